//! Issues: the tasks of the project, or what another tracker's command prints.

use banksman_core::guard::{GuardInputs, Issue, IssueFilter, Topic, Wants};
use banksman_core::pipeline::plan::Text;
use banksman_core::{Label, SectionId, Seq, Status, Task, TaskId};
use banksman_store::{Key, Listed, Reader, StoreError, TaskFilter};
use serde::Deserialize;

use super::commands::{Results, ended};
use super::mark_unknown;

/// The most issues that one filter may select.
const LIMIT: usize = 100_000;

/// Why the issues of a filter are unknown.
enum Trouble {
    Store(StoreError),
    Words(String),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        Trouble::Store(error)
    }
}

/// Reads the tasks of the project that filters without a command select.
pub(super) fn ours(reader: &mut Reader, wants: &Wants, inputs: &mut GuardInputs) {
    for filter in wants.issues.iter().filter(|filter| filter.from.is_none()) {
        let found = if filter.ids.is_empty() { page_through(reader, filter) } else { by_id(reader, filter) };
        match found {
            Ok(issues) => drop(inputs.issues.insert(filter.clone(), issues)),
            Err(Trouble::Store(error)) => {
                mark_unknown(inputs, Topic::Issues(filter.clone()), format!("cannot be checked ({error})"))
            }
            Err(Trouble::Words(words)) => mark_unknown(inputs, Topic::Issues(filter.clone()), words),
        }
    }
}

/// All tasks that a filter selects, without pipelines and their phases: they are how work is done, no issues. A filter
/// can name them by id.
fn page_through(reader: &mut Reader, filter: &IssueFilter) -> Result<Vec<Issue>, Trouble> {
    let rows = TaskFilter {
        statuses: filter.status.into_iter().collect(),
        section: section(reader, filter)?,
        labels: label(filter)?.into_iter().collect(),
        ..TaskFilter::default()
    };
    let mut issues = Vec::new();
    let mut next = Some(Seq(0));
    while let Some(after) = next {
        let (page, more) = reader.view().tasks(&rows, after)?;
        issues.extend(page.iter().filter(|listed| !is_of_pipeline(&listed.task)).map(issue));
        if issues.len() > LIMIT {
            return Err(Trouble::Words(format!("are more than {LIMIT}")));
        }
        next = more;
    }
    Ok(issues)
}

/// The tasks with these ids that pass the rest of the filter. Every id must be a task's: an unknown id is more often a
/// typo than a deleted task.
fn by_id(reader: &mut Reader, filter: &IssueFilter) -> Result<Vec<Issue>, Trouble> {
    let (section, label) = (section(reader, filter)?, label(filter)?);
    let mut issues = Vec::new();
    for id in filter.ids.iter().filter_map(Text::literal) {
        let missing = || Trouble::Words(format!("unknown: there is no task {id}"));
        let id = TaskId::new(id).map_err(|_| missing())?;
        let rows = reader.view().load(&[Key::Task(id.clone()), Key::Dependencies(id.clone())].into())?.tables.backlog;
        let unmet = rows.unmet(&id);
        let listed = Listed { task: rows.tasks.get(&id).ok_or_else(missing)?.clone(), unmet };
        let spec = &listed.task.spec;
        let passes = section.as_ref().is_none_or(|section| spec.section.as_ref() == Some(section))
            && label.as_ref().is_none_or(|label| spec.labels.contains(label))
            && filter.status.is_none_or(|status| listed.status() == status);
        issues.extend(passes.then(|| issue(&listed)));
    }
    Ok(issues)
}

fn section(reader: &mut Reader, filter: &IssueFilter) -> Result<Option<SectionId>, Trouble> {
    let Some(name) = filter.section.as_ref().and_then(Text::literal) else { return Ok(None) };
    let sections = reader.view().load(&[Key::Sections].into())?.tables.backlog.sections;
    let by_name = || sections.values().find(|section| section.name.as_str() == name);
    let section = sections.get(name).or_else(by_name);
    section.map(|section| Some(section.id.clone())).ok_or_else(|| Trouble::Words("unknown: there is no such section".into()))
}

fn label(filter: &IssueFilter) -> Result<Option<Label>, Trouble> {
    let label = filter.label.as_ref().and_then(Text::literal);
    label.map(|text| Label::new(text).map_err(|error| Trouble::Words(format!("unknown: {error}")))).transpose()
}

fn issue(listed: &Listed) -> Issue {
    Issue { id: listed.task.id.as_str().into(), status: listed.status() }
}

/// Whether a task is a pipeline, or one of its phases, whose ids begin with the pipeline's.
fn is_of_pipeline(task: &Task) -> bool {
    let is_pipeline = matches!(task.spec.work, Some(banksman_core::task::Work::Pipeline(_)));
    let below = |parent: &TaskId| task.id.as_str().strip_prefix(parent.as_str()).is_some_and(|rest| rest.starts_with('.'));
    is_pipeline || task.spec.parent.as_ref().is_some_and(below)
}

/// An issue as printed by a command.
#[derive(Deserialize)]
struct Printed {
    id: Id,
    status: String,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    section: Option<String>,
}

/// Some trackers print numbers as ids.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(i64),
}

/// Reads the issues that commands of other trackers have printed.
pub(super) fn foreign(wants: &Wants, results: &Results, inputs: &mut GuardInputs) {
    for filter in &wants.issues {
        let Some(cmd) = &filter.from else { continue };
        let Some(result) = results.get(cmd) else { continue };
        let printed = ended(result).and_then(|status| match (status, result) {
            (0, Ok(report)) if report.stdout.is_cut => Err("printed too much".into()),
            (0, Ok(report)) => read(&report.stdout.bytes, filter),
            (status, _) => Err(format!("ended with status {status}")),
        });
        match printed {
            Ok(issues) => drop(inputs.issues.insert(filter.clone(), issues)),
            Err(words) => mark_unknown(inputs, Topic::Issues(filter.clone()), format!("unknown: the command {words}")),
        }
    }
}

fn read(bytes: &[u8], filter: &IssueFilter) -> Result<Vec<Issue>, String> {
    let all: Vec<Printed> = serde_json::from_slice(bytes).map_err(|error| format!("printed no list of issues: {error}"))?;
    let ids: Vec<&str> = filter.ids.iter().filter_map(Text::literal).collect();
    let text = |text: &Option<Text>| text.as_ref().and_then(Text::literal).map(str::to_owned);
    let (section, label) = (text(&filter.section), text(&filter.label));
    let mut issues = Vec::new();
    let mut seen = 0;
    for printed in all {
        let id = match printed.id {
            Id::Text(text) => text,
            Id::Number(number) => number.to_string(),
        };
        let words = || format!("printed the status {:?} for issue {id}, which is none of ours", printed.status);
        let status = Status::parse(&printed.status).ok_or_else(words)?;
        let named = ids.is_empty() || ids.contains(&id.as_str());
        seen += usize::from(named);
        let passes = named
            && section.as_ref().is_none_or(|section| printed.section.as_ref() == Some(section))
            && label.as_ref().is_none_or(|label| printed.labels.contains(label))
            && filter.status.is_none_or(|wanted| wanted == status);
        issues.extend(passes.then(|| Issue { id: id.into(), status }));
    }
    if seen < ids.len() {
        return Err("did not print all issues that were asked for".into());
    }
    Ok(issues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use banksman_core::pipeline::plan::Plan;
    use banksman_core::task::{Spec, Work};
    use banksman_core::{Name, Now, Title};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn task(id: &str, parent: Option<&str>, work: Option<Work>) -> Task {
        let parent = parent.map(|parent| TaskId::new(parent).unwrap());
        let spec = Spec { parent, work, ..Spec::new(Title::new("t").unwrap()) };
        Task::new(TaskId::new(id).unwrap(), spec, &Now::default())
    }

    #[test]
    fn pipelines_and_phases_are_no_issues_but_children_are() {
        let plan =
            Plan { runbook: "r".into(), name: Name::new("p").unwrap(), vars: BTreeMap::new(), phases: Vec::new(), land: None };
        assert!(is_of_pipeline(&task("p-1", None, Some(Work::Pipeline(Arc::new(plan))))));
        assert!(is_of_pipeline(&task("p-1.2", Some("p-1"), None)));
        assert!(!is_of_pipeline(&task("t-1", None, Some(Work::Run("true".into())))));
        assert!(!is_of_pipeline(&task("t-2", Some("t-1"), None)));
        assert!(!is_of_pipeline(&task("p-12", Some("p-1"), None)));
    }
}
