//! What people mean by a name: the exact id, then the exact title, then a unique beginning of the id.

use banksman::core::TaskId;
use banksman::core::backlog::{Run, Section};
use banksman::store::{Key, Reader};
use serde_json::json;

use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::words;

/// The task that a name means.
pub(crate) fn task_id(reader: &mut Reader, name: &str) -> Result<TaskId, Failure> {
    let found = tasks_named(reader, name)?;
    match &found[..] {
        [id] => Ok(id.clone()),
        [] => Err(no_task(name)),
        several => Err(ambiguous("task", name, several.iter().map(TaskId::as_str))),
    }
}

/// The tasks that a name may mean.
pub(crate) fn tasks_named(reader: &mut Reader, name: &str) -> Result<Vec<TaskId>, Failure> {
    // Everything begins with nothing.
    Ok(if name.is_empty() { Vec::new() } else { reader.view().find_tasks(name)? })
}

/// The tasks that these names mean, each once, in this order. Nothing is done if one of them means nothing.
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

/// The section that a name means.
pub(crate) fn section(reader: &mut Reader, name: &str) -> Result<Section, Failure> {
    let sections = reader.view().load(&[Key::Sections].into())?.backlog.sections;
    let by_name = || sections.values().find(|section| section.name.as_str() == name);
    if let Some(section) = sections.get(name).or_else(by_name) {
        return Ok(section.clone());
    }
    let begins_so = |section: &&Section| !name.is_empty() && section.id.as_str().starts_with(name);
    let found: Vec<&Section> = sections.values().filter(begins_so).collect();
    match &found[..] {
        [section] => Ok((*section).clone()),
        [] => Err(no_section(name)),
        several => Err(ambiguous("section", name, several.iter().map(|section| section.id.as_str()))),
    }
}

/// The run that a name means.
pub(crate) fn run(reader: &mut Reader, name: &str) -> Result<Run, Failure> {
    let mut found = if name.is_empty() { Vec::new() } else { reader.view().find_runs(name)? };
    match found.len() {
        0 => Err(Failure::new(exit::NOT_FOUND, "RUN_NOT_FOUND", format!("there is no run {name:?}"))
            .details(json!({ "run": name }))
            .hint("banksman sessions list --all shows the last runs")),
        1 => Ok(found.remove(0)),
        _ => Err(ambiguous("run", name, found.iter().map(|run| run.id.as_str()))),
    }
}

pub(crate) fn no_task(name: &str) -> Failure {
    Failure::new(exit::NOT_FOUND, "TASK_NOT_FOUND", format!("there is no task {name:?}"))
        .details(json!({ "task": name }))
        .hint("banksman tasks list shows all tasks")
}

pub(crate) fn no_section(name: &str) -> Failure {
    Failure::new(exit::NOT_FOUND, "SECTION_NOT_FOUND", format!("there is no section {name:?}"))
        .details(json!({ "section": name }))
        .hint(format!("banksman sections list shows all sections; make one with: banksman sections add {}", words::quoted(name)))
}

pub(crate) fn ambiguous<'a>(what: &str, name: &str, ids: impl Iterator<Item = &'a str>) -> Failure {
    let ids: Vec<&str> = ids.collect();
    Failure::new(exit::USAGE, "AMBIGUOUS_NAME", format!("{name:?} may mean more than one {what}: {}", ids.join(", ")))
        .details(json!({ "name": name, "ids": ids }))
        .hint("use the id")
}
