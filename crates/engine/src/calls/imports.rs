//! Imports: many tasks in small transactions, and one last that makes all of them appear.
//!
//! ```text
//!  Open ---> Chunk ... Chunk ---> Finish    sections and tasks are there, runners are woken
//!                          `----> Drop ... Drop    a few at a time; in the end nothing was
//! ```
//!
//! What an open import refers to cannot be deleted: the section of a task is not empty, and a task that others wait for has
//! dependents, whether they are shown yet or not. So there is nothing to be looked at again when it is finished, except that
//! nobody has taken the name of a new section.

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
        /// How many tasks it will have.
        total: u32,
        /// The sections that it makes.
        sections: Vec<NewSection>,
    },
    /// Add the next tasks.
    Chunk {
        id: ImportId,
        /// The number of the first of them: so many are there already.
        first: u32,
        /// What is to be done, and what must come first: tasks of the same import by their numbers' ids, or tasks that are
        /// there already.
        tasks: Vec<(Spec, Vec<Edge>)>,
    },
    /// Let its tasks appear.
    Finish { id: ImportId },
    /// Add and change tasks so that they are as a file says: all of it, or nothing.
    Sync {
        /// The sections that it makes.
        sections: Vec<NewSection>,
        /// New tasks; each comes after those that it depends on.
        add: Vec<(TaskId, Spec, Vec<Edge>)>,
        /// What is different about tasks that are there.
        edit: Vec<(TaskId, Edit)>,
    },
    /// Remove the next tasks of one that is given up.
    Drop {
        id: ImportId,
        /// Who does that: the importer, or anybody if that is dead.
        by: ProcessId,
        /// What is known of the importer.
        seen: Seen,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOutcome {
    /// It is open, and has so many tasks.
    Open {
        added: u32,
    },
    Finished(Import),
    Dropped,
    /// Some of its tasks are still to be removed.
    Dropping,
    /// There is no such import: it was dropped, or finished.
    Unknown,
    /// There is one of this id already.
    Taken,
    /// The tasks do not follow on those that are there, or are too few or too many.
    OutOfStep {
        added: u32,
    },
    /// There is no such section.
    UnknownSection(SectionId),
    /// Another section has this name.
    SectionTaken(Title),
    /// There would be too many sections.
    TooManySections,
    /// The dependencies of a task make no sense.
    Dependencies(TaskId, DagError),
    /// Its importer may be alive.
    InUse,
    /// The tasks are as the file says.
    Synced,
    /// The task is not as it was read: a run may have started, or it is over. Nothing was changed.
    Overtaken(TaskId),
}

/// The most rows that one sync writes: tasks with their dependencies.
pub const SYNC_ROWS: usize = 1_000;

/// Whether a sync may change a task: nobody works on it, and it is not over.
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
                // Through a new task a changed one may come to wait for itself.
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
    // Those of the import itself are all there when it is complete, and it is not finished before.
    let is_known = |on: &TaskId| id.number_of(on).map_or_else(|| backlog.tasks.contains_key(on), |number| number < import.total);
    for ((_, edges), number) in tasks.iter().zip(first..) {
        // Whether the tasks of an import wait for each other cannot be seen from some of them: the importer has looked.
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
    // Two tasks may change places: what they depended on before must not look like a cycle with what they will.
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
