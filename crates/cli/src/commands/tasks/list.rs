use std::collections::BTreeMap;

use banksman_core::backlog::Section;
use banksman_core::{Label, SectionId, Seq, Stamp, Status};
use banksman_store::{Key, Listed, Reader, TaskFilter};
use clap::Args;
use serde::Serialize;

use super::view;
use crate::commands::{Done, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::DIM;
use crate::views::tasks::TaskView;
use crate::{table, words};

/// How many lines a person is shown unless told otherwise.
const LINES: usize = 100;

/// Show the tasks, oldest first.
///
/// A person is shown the first 100, and how to go on; with --json it is all of them unless --limit says otherwise.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks list\n  banksman tasks list --status failed,stuck\n  banksman tasks list --search login --all\n  banksman tasks list --section backend --label urgent --json"
)]
pub(super) struct List {
    /// Only those that stand so, such as pending, blocked, in_progress or failed; several with commas
    #[arg(long = "status", value_name = "STATUS", value_parser = status, value_delimiter = ',')]
    statuses: Vec<Status>,
    /// Only those of this section
    #[arg(long, value_name = "SECTION")]
    section: Option<String>,
    /// Only those with this label; with several, those that have all of them
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<Label>,
    /// Only those that this task has created
    #[arg(long, value_name = "TASK", alias = "children-of")]
    parent: Option<String>,
    /// Only those whose title contains this, whatever the case
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only the first so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Only those after this place in the list, which the page before it has told
    #[arg(long, value_name = "CURSOR")]
    after: Option<i64>,
    /// However many there are
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// A part of the list, and the place after it if there are more.
#[derive(Serialize)]
struct Page<'a> {
    tasks: Vec<TaskView<'a>>,
    next: Option<Seq>,
}

/// A status on the command line.
pub(super) fn status(word: &str) -> Result<Status, String> {
    let words = || Status::ALL.map(Status::as_str).join(", ");
    Status::parse(word).ok_or_else(|| format!("the words are {}", words()))
}

impl List {
    pub(super) fn run(self, context: &Context) -> Done {
        let mut reader = context.reader()?;
        let section = self.section.as_deref().map(|name| find::section(&mut reader, name)).transpose()?;
        let filter = TaskFilter {
            statuses: self.statuses.clone(),
            section: section.map(|section| section.id),
            parent: self.parent.as_deref().map(|name| find::task_id(&mut reader, name)).transpose()?,
            labels: self.labels.clone(),
            search: self.search.clone(),
        };
        let limit = match self.limit {
            Some(limit) => limit as usize,
            None if self.all || context.printer.json => usize::MAX,
            None => LINES,
        };
        let (tasks, next) = self.page(&mut reader, &filter, limit)?;
        let rows = reader.view().load(&[Key::Sections].into())?;
        let (sections, at) = (rows.backlog.sections, Stamp { lease: rows.lease, wall: rows.wall });
        let view = Page { tasks: tasks.iter().map(|listed| TaskView::new(listed, &sections)).collect(), next };
        let human = match (tasks.is_empty(), self.options().is_empty() && self.after.is_none()) {
            (false, _) => table(&tasks, &sections, at),
            (true, false) => format!("{DIM}no matching tasks{DIM:#}"),
            (true, true) => format!("no tasks yet\n{DIM}try: banksman tasks add 'Say hello' --run 'echo hello'{DIM:#}"),
        };
        context.printer.print(&view, human);
        if let Some(next) = next.filter(|_| !context.printer.json) {
            let limit = self.limit.map(|limit| format!(" --limit {limit}")).unwrap_or_default();
            let command = format!("banksman tasks list{}{limit} --after {next}", self.options());
            context.printer.note(&format!("{DIM}there are more: {command}{DIM:#}"));
        }
        Ok(exit::OK)
    }

    /// The first tasks after the cursor, and the cursor after them if there are more. They are read a thousand at a time:
    /// nothing is held up by a reader that goes through a long list.
    fn page(&self, reader: &mut Reader, filter: &TaskFilter, limit: usize) -> Result<(Vec<Listed>, Option<Seq>), Failure> {
        let mut tasks: Vec<Listed> = Vec::new();
        let mut next = Some(Seq(self.after.unwrap_or(0)));
        while let Some(after) = next.filter(|_| tasks.len() <= limit) {
            let (page, more) = reader.view().tasks(filter, after)?;
            tasks.extend(page);
            next = more;
        }
        let more = tasks.len() > limit;
        tasks.truncate(limit);
        let next = tasks.last().map(|last| last.task.position).filter(|_| more);
        Ok((tasks, next))
    }

    /// The filters as they are written on a command line.
    fn options(&self) -> String {
        let mut words = String::new();
        let mut add = |flag: &str, value: &dyn std::fmt::Display| words.push_str(&format!(" --{flag} {}", words::quoted(value)));
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

/// The columns that say something.
fn table(tasks: &[Listed], sections: &BTreeMap<SectionId, Section>, at: Stamp) -> String {
    let in_sections = tasks.iter().any(|listed| listed.task.spec.section.is_some());
    let weighed = tasks.iter().any(|listed| listed.task.spec.priority != 0);
    let mut columns = vec!["ID", "STATUS", "TITLE"];
    columns.extend(in_sections.then_some("SECTION"));
    columns.extend(weighed.then_some("PRIORITY>"));
    columns.extend(["SINCE>", ""]);
    let row = |listed: &Listed| {
        let task = &listed.task;
        let mut row = vec![task.id.to_string(), view::coloured(listed.status()), view::brief(task.spec.title.as_str(), 50)];
        if in_sections {
            let section = task.spec.section.as_ref().and_then(|id| sections.get(id));
            row.push(section.map_or_else(|| "-".into(), |section| view::brief(section.name.as_str(), 20)));
        }
        if weighed {
            row.push(task.spec.priority.to_string());
        }
        row.push(words::span(at.lease - task.changed.lease));
        let remark = view::remark(listed, at);
        row.push(if remark.is_empty() { remark } else { format!("{DIM}{remark}{DIM:#}") });
        row
    };
    table::render(&columns, tasks.iter().map(row).collect())
}
