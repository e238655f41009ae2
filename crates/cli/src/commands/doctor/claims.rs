//! Locks of tasks without a worker: the holder waited for something else, or the task continued without it.

use banksman_core::resource::lock;
use banksman_core::task::State;
use banksman_core::{Epoch, Task};
use banksman_store::Key;

use super::{Entry, Examination, Finding};
use crate::failure::Failure;
use crate::format;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let held =
        examination.reader.view().snapshot()?.tables.coordination.locks.into_values().filter_map(|lock| match lock.state {
            lock::State::Held(grant) => Some((lock.name.task()?, lock.name, grant)),
            lock::State::Free => None,
        });
    let held: Vec<_> = held.collect();
    // Loaded together with the tasks, so that a claim or an end in between is no finding.
    let keys = held.iter().flat_map(|(task, name, _)| [Key::Task(task.clone()), Key::Lock(name.clone()), Key::Live]).collect();
    let rows = examination.reader.view().load(&keys)?;
    let entry = |(id, name, grant): &(_, banksman_core::Name, Box<banksman_core::Grant>)| {
        let is_still_held =
            matches!(&rows.coordination.locks.get(name)?.state, lock::State::Held(now) if now.epoch == grant.epoch);
        let task = rows.backlog.tasks.get(id);
        let is_run = rows.backlog.runs.values().any(|run| run.id.holder() == grant.claim.holder);
        let is_worked_on = is_run || task.is_some_and(|task| works_on(task, grant.epoch));
        let holder = &grant.claim.holder;
        let text = || match task {
            Some(_) => format!("lock {name} is held by {holder}, which does not work on the task"),
            None => format!("lock {name} is held by {holder}, but its task does not exist"),
        };
        let free = || format!("banksman locks release {} --force", format::quoted(name));
        (is_still_held && !is_worked_on && grant.offer.is_none()).then(|| Entry::new(text()).solved_by(free()))
    };
    let entries = held.iter().filter_map(entry).collect();
    let fine = match held.len() {
        0 => "no task lock is held".to_owned(),
        1 => "1 task lock is held, by the run or person that works on the task".into(),
        several => format!("{several} task locks are held, each by the run or person that works on the task"),
    };
    Ok(Finding::notes("claims", &fine, entries))
}

/// Whether a person works on the task under this epoch.
fn works_on(task: &Task, by: Epoch) -> bool {
    matches!(&task.state, State::Manual { epoch, .. } if *epoch == by)
}
