//! Resolves names: the exact id, then the exact title, then a unique prefix of the id, then a title in any case, then a
//! unique part of a title.

use std::collections::BTreeSet;

use banksman_core::backlog::{Run, Section};
use banksman_core::{Seq, TaskId, suggest};
use banksman_store::{Key, Listed, Reader, TaskFilter};
use serde_json::Value;

use super::tasks::brief;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;

/// The task with this name.
pub(crate) fn task_id(reader: &mut Reader, name: &str) -> Result<TaskId, Failure> {
    let found = tasks_named(reader, name)?;
    match &found[..] {
        [id] => Ok(id.clone()),
        [] => Err(unknown_task(reader, name)?),
        several => Err(ambiguous_task(reader, name, several)?),
    }
}

/// The candidates for a name.
pub(crate) fn tasks_named(reader: &mut Reader, name: &str) -> Result<Vec<TaskId>, Failure> {
    // Every id starts with the empty string.
    Ok(if name.is_empty() { Vec::new() } else { reader.view().find_tasks(name)? })
}

/// Whether a task has exactly this title.
pub(crate) fn is_title(reader: &mut Reader, title: &str) -> Result<bool, Failure> {
    let found = tasks_named(reader, title)?;
    let tasks = reader.view().load(&found.into_iter().map(Key::Task).collect())?.tables.backlog.tasks;
    Ok(tasks.values().any(|task| task.spec.title.as_str() == title))
}

/// The tasks with these names, each once, in this order. Fails if any name has no task.
pub(crate) fn task_ids<'a>(reader: &mut Reader, names: impl IntoIterator<Item = &'a str>) -> Result<Vec<TaskId>, Failure> {
    let mut ids: Vec<TaskId> = Vec::new();
    for name in names {
        let id = task_id(reader, name)?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// All tasks that pass the filter, read page by page.
pub(crate) fn all_tasks(reader: &mut Reader, filter: &TaskFilter) -> Result<Vec<Listed>, Failure> {
    let (mut tasks, mut next) = (Vec::new(), Some(Seq(0)));
    while let Some(after) = next {
        let (page, more) = reader.view().tasks(filter, after)?;
        tasks.extend(page);
        next = more;
    }
    Ok(tasks)
}

/// The number of titles compared with an unknown name.
const COMPARED: usize = 2_000;

/// The failure for an unknown name, with a similar title if there is one.
fn unknown_task(reader: &mut Reader, name: &str) -> Result<Failure, Failure> {
    let filter = TaskFilter { hide_phases: true, ..TaskFilter::default() };
    let (mut titles, mut next): (Vec<String>, _) = (Vec::new(), Some(Seq(0)));
    while let Some(after) = next.filter(|_| titles.len() < COMPARED) {
        let (page, more) = reader.view().tasks(&filter, after)?;
        titles.extend(page.into_iter().map(|listed| listed.task.spec.title.to_string()));
        next = more;
    }
    let meant = suggest::closest(name, titles.iter().map(String::as_str));
    Ok(match meant {
        Some(title) => no_task(name).hint(format!("did you mean {}?", format::quoted(title))),
        None => no_task(name),
    })
}

/// The failure for a name with several candidates, with their titles.
fn ambiguous_task(reader: &mut Reader, name: &str, ids: &[TaskId]) -> Result<Failure, Failure> {
    let tasks = reader.view().load(&ids.iter().cloned().map(Key::Task).collect())?.tables.backlog.tasks;
    let named = ids.iter().map(|id| match tasks.get(id) {
        Some(task) => format!("{id} ({})", brief(task.spec.title.as_str(), TITLE_WIDTH)),
        None => id.to_string(),
    });
    let named: Vec<String> = named.collect();
    let failure = ambiguous("task", name, ids.iter().map(TaskId::as_str));
    let message = format!("{name:?} is ambiguous; it matches several tasks: {}", named.join(", "));
    Ok(Failure { message, ..failure })
}

/// The section with this name.
pub(crate) fn section(reader: &mut Reader, name: &str) -> Result<Section, Failure> {
    let sections = reader.view().load(&[Key::Sections].into())?.tables.backlog.sections;
    let by_name = || sections.values().find(|section| section.name.as_str() == name);
    if let Some(section) = sections.get(name).or_else(by_name) {
        return Ok(section.clone());
    }
    let begins_so = |section: &&Section| !name.is_empty() && section.id.as_str().starts_with(name);
    let found: Vec<&Section> = sections.values().filter(begins_so).collect();
    let folded = name.to_lowercase();
    let is_same = |section: &&Section| section.name.as_str().to_lowercase() == folded;
    let contains = |section: &&Section| !name.is_empty() && section.name.as_str().to_lowercase().contains(&folded);
    let found = if found.is_empty() { sections.values().filter(is_same).collect() } else { found };
    let found = if found.is_empty() { sections.values().filter(contains).collect() } else { found };
    match &found[..] {
        [section] => Ok((*section).clone()),
        [] => Err(no_section(name)),
        several => Err(ambiguous("section", name, several.iter().map(|section| section.id.as_str()))),
    }
}

/// The run with this name: its id, a prefix of it, or the latest run of the task of this name.
pub(crate) fn run(reader: &mut Reader, name: &str) -> Result<Run, Failure> {
    let unknown = |message: String| {
        let failure = Failure::new(exit::NOT_FOUND, "RUN_NOT_FOUND", message).detail("run", &name);
        failure.hint("list the last runs: banksman sessions list --all")
    };
    let mut found = if name.is_empty() { Vec::new() } else { reader.view().find_runs(name)? };
    match found.len() {
        0 => match &tasks_named(reader, name)?[..] {
            [id] => {
                let runs = reader.view().load(&[Key::RunsOf(id.clone())].into())?.tables.backlog.runs;
                let latest = runs.into_values().max_by_key(|run| run.epoch);
                latest.ok_or_else(|| unknown(format!("{id} has not been run yet")).detail("taskId", id))
            }
            [] => Err(unknown(format!("there is no run or task {name:?}"))),
            several => Err(ambiguous_task(reader, name, several)?),
        },
        1 => Ok(found.remove(0)),
        _ => Err(ambiguous("run", name, found.iter().map(|run| run.id.as_str()))),
    }
}

pub(crate) fn no_task(name: &str) -> Failure {
    Failure::new(exit::NOT_FOUND, "TASK_NOT_FOUND", format!("there is no task {name:?}"))
        .detail("task", &name)
        .hint("list all tasks: banksman tasks list")
}

pub(crate) fn no_section(name: &str) -> Failure {
    Failure::new(exit::NOT_FOUND, "SECTION_NOT_FOUND", format!("there is no section {name:?}"))
        .detail("section", &name)
        .hint(format!("list all sections: banksman sections list; add one: banksman sections add {}", format::quoted(name)))
}

pub(crate) fn ambiguous<'a>(what: &str, name: &str, ids: impl Iterator<Item = &'a str>) -> Failure {
    let ids: Vec<&str> = ids.collect();
    Failure::new(exit::USAGE, "AMBIGUOUS_NAME", format!("{name:?} is ambiguous; it matches several {what}s: {}", ids.join(", ")))
        .detail("name", &name)
        .detail("ids", &ids)
        .hint("use the id")
}

/// The number of tasks in a message whose titles are added, and the length of a title.
const TITLES: usize = 20;
const TITLE_WIDTH: usize = 60;

/// Adds titles to the ids of tasks in a message, because people type titles: `Run the tests (t-7k2m9q1a) is completed
/// already`. Only words that occur in the details can be ids.
pub(crate) fn with_titles(context: &Context, failure: Failure) -> Failure {
    let mut words = BTreeSet::new();
    failure.details.values().for_each(|detail| collect(detail, &mut words));
    let keys: BTreeSet<Key> = words
        .into_iter()
        .filter(|word| occurrence(&failure.message, word).is_some())
        .filter_map(|word| TaskId::new(word).ok())
        .take(TITLES)
        .map(Key::Task)
        .collect();
    if keys.is_empty() {
        return failure;
    }
    // If the store cannot be read, the message keeps the ids alone.
    let rows = context.reader().and_then(|mut reader| Ok(reader.view().load(&keys)?));
    let tasks = rows.map(|rows| rows.tables.backlog.tasks).unwrap_or_default();
    let message = tasks.iter().fold(failure.message.clone(), |message, (id, task)| {
        replace_all(&message, id.as_str(), &format!("{} ({id})", brief(task.spec.title.as_str(), TITLE_WIDTH)))
    });
    Failure { message, ..failure }
}

fn collect<'a>(details: &'a Value, words: &mut BTreeSet<&'a str>) {
    match details {
        Value::String(text) => drop(words.insert(text)),
        Value::Array(list) => list.iter().for_each(|one| collect(one, words)),
        Value::Object(fields) => fields.values().for_each(|one| collect(one, words)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The position of a word with word boundaries on both sides: not in `p-1.2`, nor in `task:p-1`, for `p-1`.
fn occurrence(text: &str, word: &str) -> Option<usize> {
    let ends_before = |at: usize| text[..at].chars().next_back().is_none_or(|c| c == ' ' || c == '(');
    let ends_after = |at: usize| text[at..].chars().next().is_none_or(|c| " ,;:)".contains(c));
    text.match_indices(word).map(|(at, _)| at).find(|at| ends_before(*at) && ends_after(at + word.len()))
}

fn replace_all(text: &str, word: &str, by: &str) -> String {
    match occurrence(text, word) {
        Some(at) => format!("{}{by}{}", &text[..at], replace_all(&text[at + word.len()..], word, by)),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entire_ids_are_replaced() {
        let replaced = |text| replace_all(text, "p-1", "Ship (p-1)");
        assert_eq!(
            replaced("p-1 is done; p-1.2 and task:p-1 wait for p-1"),
            "Ship (p-1) is done; p-1.2 and task:p-1 wait for Ship (p-1)"
        );
        assert_eq!(replaced("p-10, xp-1"), "p-10, xp-1");
    }
}
