//! Which root tasks may begin, where the number of roots under way is limited.
//!
//! A root is under way from its first run on, including the backoff between two attempts, the wait for its children,
//! and manual work. A root that waits for something else (a dependency, a lock, a decision) is not, so that it does not
//! keep others out. Nor is a root whose work is in the merge queue. A pipeline is under way from its beginning on, and
//! begins when its first phase could; it is not while a guard or a decision blocks it. Between two phases it keeps its
//! place, also if the next one has to wait for a lock or for slots: roots that have begun are finished first, or many
//! of them would be half done before that lock. All of that follows from the tasks, so nothing is stored here: roots
//! that are over leave with the transaction that ends them, and roots that began before there was a limit count like
//! all others.
//!
//! The order is that of their arrival: a position is the number of the event that added the task, which only rises and
//! is never used again. A root that waits for nothing but a slot is not overtaken. Children are part of a root that has
//! begun, and go before all roots that have not.

use std::cmp::Reverse;

use crate::ids::{Seq, TaskId};
use crate::task::{State, Task};

/// The roots that are under way, and their limit.
#[derive(Debug, Clone)]
pub struct Roots<'a> {
    /// How many roots may be under way.
    pub limit: u32,
    pub begun: Vec<&'a Task>,
}

impl<'a> Roots<'a> {
    /// The roots under way among these tasks; `None` if there is no limit.
    pub fn of(limit: u32, tasks: impl IntoIterator<Item = &'a Task>) -> Option<Roots<'a>> {
        (limit > 0).then(|| Roots { limit, begun: tasks.into_iter().filter(|task| is_under_way(task)).collect() })
    }

    /// Whether the task has a place, or would get one.
    pub fn admit(&self, task: &Task) -> bool {
        let has_place = || self.begun.iter().any(|begun| begun.id == task.id);
        task.spec.parent.is_some() || has_place() || self.begun.len() < usize::try_from(self.limit).unwrap_or(usize::MAX)
    }
}

/// Whether it is a root that takes a place.
pub fn is_under_way(task: &Task) -> bool {
    let has_begun = match &task.state {
        State::Running(_)
        | State::Stuck { .. }
        | State::Stopping { .. }
        | State::Backoff { .. }
        | State::Awaiting { .. }
        | State::Manual { .. }
        | State::InPhases { is_blocked: false } => true,
        State::Pending
        | State::Held
        | State::AwaitingDecision { .. }
        | State::InPhases { is_blocked: true }
        | State::Landing { .. }
        | State::Review
        | State::Done(_) => false,
    };
    has_begun && task.spec.parent.is_none()
}

/// The key that sorts tasks in the order in which they are started.
pub fn order(task: &Task, limit: u32) -> (bool, Reverse<i32>, Seq, TaskId) {
    let is_queued = limit > 0 && task.spec.parent.is_none();
    let priority = if is_queued { 0 } else { task.spec.priority };
    (is_queued, Reverse(priority), task.position, task.id.clone())
}

#[cfg(test)]
mod tests;
