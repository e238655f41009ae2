use std::collections::BTreeMap;

use banksman_core::backlog::Section;
use banksman_core::{Label, SectionId, Seq, Stamp, Status};
use banksman_store::{Key, Listed, Reader, TaskFilter};
use clap::Args;
use serde::Serialize;

use super::view;
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::DIM;
use crate::table::TableFlags;
use crate::views::tasks::TaskView;

/// The number of lines shown by default.
const LINES: usize = 100;

/// List tasks, oldest first.
///
/// Prints the first 100 tasks, and the command for the next page; with --json all tasks, unless --limit is given.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks list\n  banksman tasks list --status failed,stuck\n  banksman tasks list --search login --all\n  banksman tasks list --section backend --label urgent --json"
)]
pub(crate) struct List {
    /// Only tasks with this status, such as pending, blocked, in_progress or failed; several with commas
    #[arg(long = "status", value_name = "STATUS", value_parser = status, value_delimiter = ',')]
    statuses: Vec<Status>,
    /// Only tasks of this section
    #[arg(long, value_name = "SECTION")]
    section: Option<String>,
    /// Only tasks with this label; with several labels, tasks that have all of them
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<Label>,
    /// Only children of this task
    #[arg(long, value_name = "TASK", alias = "children-of")]
    parent: Option<String>,
    /// Only tasks whose title contains this text, in any case
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only the first N tasks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Continue after this cursor, which the previous page has printed
    #[arg(long, value_name = "CURSOR")]
    after: Option<i64>,
    /// Show all tasks
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Also the phases of pipelines; with --parent and --json they are always shown
    #[arg(long)]
    phases: bool,
    #[command(flatten)]
    table: TableFlags,
}

/// The JSON output: one page, with the cursor for the next one.
#[derive(Serialize)]
struct Page<'a> {
    tasks: Vec<TaskView<'a>>,
    next: Option<Seq>,
}

/// Parses a status of the command line.
pub(super) fn status(word: &str) -> Result<Status, String> {
    let words = || Status::ALL.map(Status::as_str).join(", ");
    Status::parse(word).ok_or_else(|| format!("valid values: {}", words()))
}

impl List {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let mut reader = context.reader()?;
        let section = self.section.as_deref().map(|name| find::section(&mut reader, name)).transpose()?;
        let filter = TaskFilter {
            statuses: self.statuses.clone(),
            section: section.map(|section| section.id),
            parent: self.parent.as_deref().map(|name| find::task_id(&mut reader, name)).transpose()?,
            labels: self.labels.clone(),
            search: self.search.clone(),
            // JSON output has always contained the phases.
            hide_phases: !self.phases && self.parent.is_none() && !context.printer.json,
            page: 0,
        };
        let limit = match self.limit {
            Some(limit) => limit as usize,
            None if self.all || context.printer.json => usize::MAX,
            None => LINES,
        };
        // Sorting needs all rows: the first in another order may be the last in the list.
        let read = if self.table.is_sorted() { usize::MAX } else { limit };
        let (tasks, next) = self.page(&mut reader, &filter, read)?;
        let rows = reader.view().load(&[Key::Sections].into())?;
        let (at, sections) = (rows.at(), rows.tables.backlog.sections);
        let view = Page { tasks: tasks.iter().map(|listed| TaskView::new(listed, &sections)).collect(), next };
        let human = match (tasks.is_empty(), self.options().is_empty() && self.after.is_none()) {
            (false, _) => self.draw(&tasks, &sections, at, limit)?,
            (true, false) => format!("{DIM}no matching tasks{DIM:#}"),
            (true, true) => format!("no tasks yet\n{DIM}try: banksman tasks add 'Say hello' --run 'echo hello'{DIM:#}"),
        };
        context.printer.print(&view, human);
        if let Some(next) = next.filter(|_| !context.printer.json) {
            let limit = self.limit.map(|limit| format!(" --limit {limit}")).unwrap_or_default();
            let flags = self.options() + if self.phases { " --phases" } else { "" } + &self.table.arguments();
            let command = format!("banksman tasks list{flags}{limit} --after {next}");
            context.printer.note(&format!("{DIM}next page: {command}{DIM:#}"));
        }
        Ok(exit::OK)
    }

    /// The first tasks after the cursor, and the cursor for the next page if there are more. The first read has the
    /// wanted size; if the filter drops some, later reads have a thousand rows each, so that no single read of a long
    /// list holds up others.
    fn page(&self, reader: &mut Reader, filter: &TaskFilter, limit: usize) -> Result<(Vec<Listed>, Option<Seq>), Failure> {
        let mut tasks: Vec<Listed> = Vec::new();
        let mut next = Some(Seq(self.after.unwrap_or(0)));
        let mut page = limit.saturating_add(1);
        while let Some(after) = next.filter(|_| tasks.len() <= limit) {
            let (found, more) = reader.view().tasks(&TaskFilter { page, ..filter.clone() }, after)?;
            tasks.extend(found);
            (next, page) = (more, 0);
        }
        let more = tasks.len() > limit;
        tasks.truncate(limit);
        let next = tasks.last().map(|last| last.task.position).filter(|_| more);
        Ok((tasks, next))
    }

    /// The filters as command line arguments.
    fn options(&self) -> String {
        let mut words = String::new();
        let mut add = |flag: &str, value: &dyn std::fmt::Display| words.push_str(&format!(" --{flag} {}", format::quoted(value)));
        if !self.statuses.is_empty() {
            add("status", &self.statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>().join(","));
        }
        self.section.iter().for_each(|section| add("section", section));
        self.labels.iter().for_each(|label| add("label", label));
        self.parent.iter().for_each(|parent| add("parent", parent));
        self.search.iter().for_each(|search| add("search", search));
        words
    }
}

impl List {
    /// Renders the table. Columns without information are hidden unless they are asked for.
    fn draw(
        &self,
        tasks: &[Listed],
        sections: &BTreeMap<SectionId, Section>,
        at: Stamp,
        limit: usize,
    ) -> Result<String, Failure> {
        let in_sections = tasks.iter().any(|listed| listed.task.spec.section.is_some());
        let weighed = tasks.iter().any(|listed| listed.task.spec.priority != 0);
        let columns = [
            "ID??",
            "STATUS",
            "TITLE~",
            if in_sections { "SECTION~???" } else { "SECTION!" },
            if weighed { "PRIORITY>????" } else { "PRIORITY>!" },
            "SINCE>??",
            "DETAIL~?",
            "LABELS~!",
            "RUNS>!",
            "ADDED>!",
            "PARENT!",
        ];
        let row = |listed: &Listed| {
            let task = &listed.task;
            let section = task.spec.section.as_ref().and_then(|id| sections.get(id));
            let labels: Vec<&str> = task.spec.labels.iter().map(Label::as_str).collect();
            let remark = view::remark(listed, at);
            vec![
                task.id.to_string(),
                view::coloured(listed.status()),
                task.spec.title.to_string(),
                section.map_or_else(|| "-".into(), |section| section.name.to_string()),
                task.spec.priority.to_string(),
                format::span(at.lease - task.changed.lease),
                if remark.is_empty() { remark } else { format!("{DIM}{remark}{DIM:#}") },
                labels.join(","),
                task.attempts.to_string(),
                format::ago(task.created),
                task.spec.parent.as_ref().map(ToString::to_string).unwrap_or_default(),
            ]
        };
        let text = self.table.render(&columns, tasks.iter().map(row).collect())?;
        // A sorted table was read in full.
        Ok(text.lines().take(limit.saturating_add(1)).collect::<Vec<_>>().join("\n"))
    }
}
