use std::collections::BTreeMap;

use banksman::core::backlog::Section;
use banksman::core::{Label, SectionId, Seq, Stamp, Status};
use banksman::store::{Key, Listed, TaskFilter};
use clap::Args;
use serde_json::{Value, json};

use super::view;
use crate::commands::{Done, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::DIM;
use crate::{table, words};

/// Show the tasks, oldest first.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks list\n  banksman tasks list --status failed\n  banksman tasks list --section backend --label urgent --json"
)]
pub(super) struct List {
    /// Only those that stand so, such as pending, blocked, in_progress or failed
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<Status>,
    /// Only those of this section
    #[arg(long, value_name = "SECTION")]
    section: Option<String>,
    /// Only those with this label; with several, those that have all of them
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<Label>,
    /// Only those that this task has created
    #[arg(long, value_name = "TASK")]
    children_of: Option<String>,
    /// Only the first so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// A status on the command line.
pub(super) fn status(word: &str) -> Result<Status, String> {
    let words = || Status::ALL.map(Status::as_str).join(", ");
    Status::parse(word).ok_or_else(|| format!("the words are {}", words()))
}

impl List {
    pub(super) fn run(self, context: &Context) -> Done {
        let mut reader = context.reader()?;
        let filter = TaskFilter {
            status: self.status,
            section: self.section.as_deref().map(|name| find::section(&mut reader, name)).transpose()?.map(|section| section.id),
            parent: self.children_of.as_deref().map(|name| find::task_id(&mut reader, name)).transpose()?,
        };
        let filtered = self.status.is_some() || filter.section.is_some() || filter.parent.is_some() || !self.labels.is_empty();
        let limit = self.limit.unwrap_or(usize::MAX);
        let mut tasks: Vec<Listed> = Vec::new();
        let mut next = Some(Seq(0));
        while let Some(after) = next.filter(|_| tasks.len() < limit) {
            let (page, more) = reader.view().tasks(&filter, after)?;
            let fits = |listed: &Listed| self.labels.iter().all(|label| listed.task.spec.labels.contains(label));
            tasks.extend(page.into_iter().filter(fits));
            next = more;
        }
        tasks.truncate(limit);
        let rows = reader.view().load(&[Key::Sections].into())?;
        let (sections, at) = (rows.backlog.sections, Stamp { lease: rows.lease, wall: rows.wall });
        let data: Vec<Value> = tasks.iter().map(|listed| view::task_json(listed, &sections)).collect();
        let human = match (tasks.is_empty(), filtered) {
            (false, _) => table(&tasks, &sections, at),
            (true, true) => format!("{DIM}no task is like that{DIM:#}"),
            (true, false) => format!("no tasks yet\n{DIM}try: banksman tasks add 'Say hello' --run 'echo hello'{DIM:#}"),
        };
        context.printer.result(json!({ "tasks": data }), human);
        Ok(exit::OK)
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
