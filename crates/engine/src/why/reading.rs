//! The rows that an answer needs.

use std::collections::BTreeSet;

use banksman_core::backlog::Backlog;
use banksman_core::pipeline::Pipeline;
use banksman_core::task::State;
use banksman_core::{Limits, Task, TaskId};
use banksman_store::{Key, Snapshot, StoreError, View};

use super::{asked, is_ready};
use crate::calls::mailbox::has_prompt;
use crate::calls::pipelines::guards::store_keys;
use crate::facts;
use crate::why::chains::chains;

/// The rows for the answer about one task, all of one moment.
#[derive(Debug)]
pub struct Rows {
    pub snapshot: Snapshot,
    /// The number of ready tasks that come before the task, by lane, each with an example whose rows were read.
    pub before: Vec<(TaskId, u64)>,
}

/// Reads all rows that the answer about a task needs; `None` if the task does not exist. `limits` apply to a project without limits.
pub fn read(view: &mut View<'_>, task: &TaskId, limits: Limits) -> Result<Option<Rows>, StoreError> {
    let mut before = Vec::new();
    let mut wanted = keys(task, &before, &Backlog::default());
    // The keys of some rows are in others. In the end all rows are read at one moment.
    loop {
        let mut snapshot = view.load(&wanted)?;
        let limits = *snapshot.backlog.limits.get_or_insert(limits);
        let Some(row) = snapshot.backlog.tasks.get(task) else { return Ok(None) };
        if before.is_empty() && is_ready(row, &snapshot.backlog) {
            before = view.ready_before(row, limits.roots > 0)?;
        }
        let more = keys(task, &before, &snapshot.backlog);
        if more.is_subset(&wanted) {
            return Ok(Some(Rows { snapshot, before }));
        }
        wanted.extend(more);
    }
}

/// The rows that the answer about a task needs, as far as they follow from the known rows: they are complete when reading them adds no
/// more keys. `before` has the number of ready tasks that come before it, by lane.
fn keys(id: &TaskId, before: &[(TaskId, u64)], known: &Backlog) -> BTreeSet<Key> {
    let mut keys = lane_keys(before, known);
    keys.extend([Key::Task(id.clone()), Key::Dependencies(id.clone()), Key::RunsOf(id.clone())]);
    let Some(task) = known.tasks.get(id) else { return keys };
    // Most tasks have no dependencies, and preparing the statements that follow them takes longer than most answers.
    if task.state == State::Pending && known.edges.get(id).is_some_and(|edges| !edges.is_empty()) {
        keys.extend([Key::Chain(id.clone()), Key::FanOut]);
    }
    let ends = chains(task, known).into_iter().filter_map(|(links, _)| known.tasks.get(links.last()?));
    if let Some(of) = &task.spec.item {
        keys.extend([Key::Item(of.taken.item), Key::Worker(of.worker.clone())]);
    }
    for task in ends.chain([task]) {
        standing_keys(task, known, &mut keys);
    }
    leave_out_roots(&mut keys, known);
    keys
}

/// The rows that explain the state of a task.
fn standing_keys(task: &Task, known: &Backlog, keys: &mut BTreeSet<Key>) {
    match &task.state {
        State::Pending | State::Backoff { .. } => {
            keys.extend(facts::keys(&task.id, task.spec.section.as_ref(), task.spec.needs_to_begin(true)));
        }
        State::Held => {
            keys.extend([Key::Pipeline(task.id.clone()), Key::Live, Key::Runners]);
            let pipeline = task.spec.parent.as_ref().and_then(|parent| known.pipelines.get(parent));
            keys.extend(pipeline.and_then(asked).map(|(guard, vars)| store_keys(&guard.wants(vars))).unwrap_or_default());
        }
        State::Awaiting { .. } => drop(keys.insert(Key::Family(task.id.clone()))),
        State::AwaitingDecision { decision } => drop(keys.insert(Key::Decision(decision.clone()))),
        State::InPhases { .. } => {
            keys.extend([Key::Task(task.id.clone()), Key::Pipeline(task.id.clone()), Key::Live, Key::Runners]);
            let pipeline = known.pipelines.get(&task.id);
            keys.extend(pipeline.and_then(asked).map(|(guard, vars)| store_keys(&guard.wants(vars))).unwrap_or_default());
            if let Some(phase) = pipeline.and_then(Pipeline::task) {
                keys.extend([Key::Task(phase.clone()), Key::RunsOf(phase.clone())]);
                known.tasks.get(phase).into_iter().for_each(|phase| standing_keys(phase, known, keys));
            }
        }
        State::Done(_) if task.has_phases() => keys.extend([Key::Task(task.id.clone()), Key::Pipeline(task.id.clone())]),
        State::Running(_) | State::Stuck { .. } | State::Stopping { .. } => {
            keys.insert(Key::OpenDecisions);
            keys.extend(has_prompt(task).then(|| Key::Mailbox(task.id.clone())));
        }
        State::Landing { .. } => {
            keys.extend([Key::LandingOf(task.id.clone()), Key::Runners]);
            let own = known.landings.values().filter(|entry| entry.spec.task.as_ref() == Some(&task.id));
            keys.extend(own.map(|entry| Key::LandingQueue(entry.target.clone())));
        }
        State::Review => drop(keys.insert(Key::LandingOf(task.id.clone()))),
        State::Manual { .. } | State::Done(_) => {}
    }
}

/// The rows that explain why lanes wait, each with an example.
pub fn lane_keys(lanes: &[(TaskId, u64)], known: &Backlog) -> BTreeSet<Key> {
    let mut keys = BTreeSet::from(facts::common_keys());
    for (id, _) in lanes {
        match known.tasks.get(id) {
            Some(task) => keys.extend(facts::keys(id, task.spec.section.as_ref(), task.spec.needs_to_begin(true))),
            None => drop(keys.insert(Key::Task(id.clone()))),
        }
    }
    leave_out_roots(&mut keys, known);
    keys
}

/// Leaves out the roots that are under way if roots are not limited: then they do not matter.
fn leave_out_roots(keys: &mut BTreeSet<Key>, known: &Backlog) {
    if facts::root_limit(known) == 0 {
        keys.remove(&Key::LimitedRoots);
    }
}
