//! Imports: many tasks in small transactions, and a last transaction that makes all of them visible.
//!
//! ```text
//!  Open ---> Chunk ... Chunk ---> Finish    sections and tasks become visible, runners are woken
//!                          `----> Drop ... Drop    a few tasks at a time, until all are removed
//! ```
//!
//! The sections and tasks that an open import refers to cannot be deleted: the section of a task is not empty, and a task with
//! dependents cannot be removed, whether the dependents are visible yet or not. So finishing an import only needs to check that
//! the names of its new sections are still free.

use std::collections::BTreeSet;

use banksman_core::backlog::{Edge, Section};
use banksman_core::event::{Event, ImportFact, SectionFact, TaskFact};
use banksman_core::import::{Import, NewSection};
use banksman_core::task::Spec;
use banksman_core::task::dependencies::{self, DagError};
use banksman_core::{ImportId, ProcessId, SectionId, Span, Status, Task, TaskId, Title};
use banksman_store::{IMPORTED, Key, Tables, Tx};

use crate::calls::sections::SECTION_LIMIT;
use crate::calls::steps::{emit, wake_runners};
use crate::calls::tasks::{self, Edit, TaskOutcome};
use crate::request::Seen;

#[derive(Debug, Clone)]
pub enum ImportRequest {
    Open {
        id: ImportId,
        process: ProcessId,
        /// The number of tasks that the import will have.
        total: u32,
        /// The sections to add.
        sections: Vec<NewSection>,
    },
    /// Add the next tasks.
    Chunk {
        id: ImportId,
        /// The number of the first task of the chunk, which is the number of tasks added before.
        first: u32,
        /// The tasks, with their dependencies: tasks of the same import by the ids of their numbers, or existing tasks.
        tasks: Vec<(Spec, Vec<Edge>)>,
    },
    /// Make the tasks visible.
    Finish { id: ImportId },
    /// Add and change tasks to match a file: all of them, or none.
    Sync {
        /// The sections to add.
        sections: Vec<NewSection>,
        /// New tasks; each comes after its dependencies.
        add: Vec<(TaskId, Spec, Vec<Edge>)>,
        /// The changes of existing tasks.
        edit: Vec<(TaskId, Edit)>,
    },
    /// Remove the next tasks of an abandoned import.
    Drop {
        id: ImportId,
        /// The process that removes them: the importer, or any process if the importer is dead.
        by: ProcessId,
        /// The observed state of the importer.
        seen: Seen,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOutcome {
    Open {
        added: u32,
    },
    Finished(Import),
    Dropped,
    /// Some of its tasks are not removed yet.
    Dropping,
    /// The import was dropped or finished, or never existed.
    Unknown,
    /// Another import has this id.
    Taken,
    /// The tasks do not continue the import where it is, or are too few or too many.
    OutOfStep {
        added: u32,
    },
    UnknownSection(SectionId),
    /// Another section has this name.
    SectionTaken(Title),
    TooManySections,
    /// The dependencies of a task are invalid.
    Dependencies(TaskId, DagError),
    /// The importer may be alive.
    InUse,
    /// The tasks match the file.
    Synced,
    /// The task has changed since it was read: a run may have started, or it is over. Nothing was changed.
    Overtaken(TaskId),
}

/// The most rows that one sync writes: tasks with their dependencies.
pub const SYNC_ROWS: usize = 1_000;

/// Whether a sync may change a task: it has no run, no person has taken it, and it is not over.
pub fn can_sync(task: &Task) -> bool {
    task.live().is_none() && matches!(task.status(), Status::Pending | Status::Blocked | Status::Stuck | Status::Review)
}

impl ImportRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        let mut keys = vec![Key::Imports];
        match self {
            ImportRequest::Open { .. } => keys.push(Key::Sections),
            ImportRequest::Chunk { id, tasks, .. } => {
                keys.push(Key::Sections);
                let on = tasks.iter().flat_map(|(_, edges)| edges).map(|edge| &edge.on);
                let outside: BTreeSet<&TaskId> = on.filter(|on| id.number_of(on).is_none()).collect();
                keys.extend(outside.into_iter().cloned().map(Key::Task));
            }
            ImportRequest::Finish { .. } => keys.extend([Key::Sections, Key::Runners]),
            ImportRequest::Drop { id, .. } => keys.push(Key::Imported(id.clone())),
            ImportRequest::Sync { add, edit, .. } => {
                // A changed task may come to wait for itself through a new task.
                let upstream = add.iter().flat_map(|(_, _, edges)| edges).map(|edge| Key::Upstream(edge.on.clone()));
                let added = add.iter().flat_map(|(id, spec, edges)| tasks::add_keys(id, spec, edges));
                let edited =
                    edit.iter().flat_map(|(id, edit)| tasks::edit_keys(id, edit).into_iter().chain([Key::Task(id.clone())]));
                let all: BTreeSet<Key> =
                    [Key::Sections, Key::Runners].into_iter().chain(upstream).chain(added).chain(edited).collect();
                return all.into_iter().collect();
            }
        }
        keys
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> ImportOutcome {
        match self {
            ImportRequest::Open { id, process, total, sections } => {
                if tx.tables.backlog.imports.contains_key(id) {
                    return ImportOutcome::Taken;
                }
                if let Some(refusal) = refuse_sections(sections, &tx.tables) {
                    return refusal;
                }
                let import = Import {
                    id: id.clone(),
                    process: process.clone(),
                    position: tx.seq,
                    started: tx.wall,
                    total: *total,
                    added: 0,
                    sections: sections.clone(),
                };
                tx.tables.backlog.imports.insert(id.clone(), import);
                emit(tx, Event::Import { id: id.clone(), fact: ImportFact::Opened { tasks: *total } });
                ImportOutcome::Open { added: 0 }
            }
            ImportRequest::Chunk { id, first, tasks } => chunk(id, *first, tasks, tx),
            ImportRequest::Finish { id } => finish(id, tx),
            ImportRequest::Drop { id, by, seen } => give_up(id, by, seen, tx),
            ImportRequest::Sync { sections, add, edit } => sync(sections, add, edit, tx),
        }
    }
}

fn refuse_sections(wanted: &[NewSection], tables: &Tables) -> Option<ImportOutcome> {
    let sections = &tables.backlog.sections;
    let taken = |new: &&NewSection| sections.values().any(|section| section.name == new.name);
    if let Some(new) = wanted.iter().find(taken) {
        return Some(ImportOutcome::SectionTaken(new.name.clone()));
    }
    (sections.len() + wanted.len() > SECTION_LIMIT).then_some(ImportOutcome::TooManySections)
}

fn chunk(id: &ImportId, first: u32, tasks: &[(Spec, Vec<Edge>)], tx: &mut Tx) -> ImportOutcome {
    let backlog = &tx.tables.backlog;
    let Some(import) = backlog.imports.get(id).cloned() else { return ImportOutcome::Unknown };
    let after = u32::try_from(tasks.len()).ok().and_then(|count| first.checked_add(count));
    let Some(added) = after.filter(|after| first == import.added && *after <= import.total) else {
        return ImportOutcome::OutOfStep { added: import.added };
    };
    let is_section = |id: &SectionId| backlog.sections.contains_key(id) || import.sections.iter().any(|new| new.id == *id);
    if let Some(section) = tasks.iter().filter_map(|(spec, _)| spec.section.as_ref()).find(|section| !is_section(section)) {
        return ImportOutcome::UnknownSection(section.clone());
    }
    // Dependencies within the import exist when it is complete, and it is not finished before.
    let is_known = |on: &TaskId| id.number_of(on).map_or_else(|| backlog.tasks.contains_key(on), |number| number < import.total);
    for ((_, edges), number) in tasks.iter().zip(first..) {
        // One chunk is not enough to find cycles among the tasks of an import: the importer has checked for them.
        let task = id.task(number);
        if let Err(error) = dependencies::validate(&task, edges, is_known, &Default::default()) {
            return ImportOutcome::Dependencies(task, error);
        }
    }
    for ((spec, depends_on), number) in tasks.iter().zip(first..) {
        let spec = Spec { depth: spec.depth.max(tx.depth), ..spec.clone() }.with_workspace(&id.task(number));
        let task = Task::new(id.task(number), spec.clone(), &tx.now(Vec::new(), Span::ZERO));
        let mut edges = depends_on.clone();
        edges.sort();
        let fact = TaskFact::Added { spec: Box::new(spec), depends_on: edges.clone(), import: Some(id.clone()) };
        emit(tx, Event::Task { id: task.id.clone(), fact });
        tx.tables.backlog.imported.insert(task.id.clone(), id.clone());
        tx.tables.backlog.edges.insert(task.id.clone(), edges);
        tx.tables.backlog.tasks.insert(task.id.clone(), task);
    }
    tx.tables.backlog.imports.insert(id.clone(), Import { added, ..import });
    ImportOutcome::Open { added }
}

fn finish(id: &ImportId, tx: &mut Tx) -> ImportOutcome {
    let Some(import) = tx.tables.backlog.imports.get(id).cloned() else { return ImportOutcome::Unknown };
    if import.added != import.total {
        return ImportOutcome::OutOfStep { added: import.added };
    }
    if let Some(refusal) = refuse_sections(&import.sections, &tx.tables) {
        return refusal;
    }
    make_sections(&import.sections, tx);
    tx.tables.backlog.imports.remove(id);
    emit(tx, Event::Import { id: id.clone(), fact: ImportFact::Finished { tasks: import.total } });
    wake_runners(tx);
    ImportOutcome::Finished(import)
}

fn make_sections(sections: &[NewSection], tx: &mut Tx) {
    for NewSection { id, name } in sections.iter().cloned() {
        let section = Section { id: id.clone(), name: name.clone(), exclusive: false, position: tx.seq };
        emit(tx, Event::Section { id: id.clone(), fact: SectionFact::Added { name, exclusive: false } });
        tx.tables.backlog.sections.insert(id, section);
    }
}

fn sync(sections: &[NewSection], add: &[(TaskId, Spec, Vec<Edge>)], edit: &[(TaskId, Edit)], tx: &mut Tx) -> ImportOutcome {
    if let Some(refusal) = refuse_sections(sections, &tx.tables) {
        return refusal;
    }
    let refused = |id: &TaskId, outcome: TaskOutcome| match outcome {
        TaskOutcome::UnknownSection(section) => ImportOutcome::UnknownSection(section),
        TaskOutcome::Dependencies(error) => ImportOutcome::Dependencies(id.clone(), error),
        _ => ImportOutcome::Overtaken(id.clone()),
    };
    let mut draft = tx.clone();
    make_sections(sections, &mut draft);
    for (id, spec, edges) in add {
        match tasks::add(id, spec, edges, None, &mut draft) {
            TaskOutcome::Kept(_) => {}
            outcome => return refused(id, outcome),
        }
    }
    // Two tasks may swap places: their old dependencies must not form a cycle with their new ones.
    for (id, _) in edit.iter().filter(|(_, edit)| edit.depends_on.is_some()) {
        draft.tables.backlog.edges.insert(id.clone(), Vec::new());
    }
    for (id, edit) in edit {
        if !draft.tables.backlog.tasks.get(id).is_some_and(can_sync) {
            return ImportOutcome::Overtaken(id.clone());
        }
        match tasks::update(id, edit, &mut draft) {
            TaskOutcome::Kept(_) => {}
            outcome => return refused(id, outcome),
        }
    }
    *tx = draft;
    ImportOutcome::Synced
}

fn give_up(id: &ImportId, by: &ProcessId, seen: &Seen, tx: &mut Tx) -> ImportOutcome {
    let Some(import) = tx.tables.backlog.imports.get(id) else { return ImportOutcome::Unknown };
    if import.process != *by && !seen.now(tx).dead.contains(&import.process) {
        return ImportOutcome::InUse;
    }
    let own: Vec<TaskId> = tx.tables.backlog.tasks.keys().filter(|task| id.number_of(task).is_some()).cloned().collect();
    for task in &own {
        tx.tables.backlog.tasks.remove(task);
        tx.tables.backlog.edges.remove(task);
    }
    if own.len() >= IMPORTED {
        return ImportOutcome::Dropping;
    }
    tx.tables.backlog.imports.remove(id);
    emit(tx, Event::Import { id: id.clone(), fact: ImportFact::Dropped {} });
    ImportOutcome::Dropped
}
