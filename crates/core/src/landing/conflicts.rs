//! Conflicts: one author at a time resolves a file.
//!
//! Authors who resolve the same file at the same time conflict with each other again when the first of them lands, so
//! that the rounds grow with the square of their number. Therefore an entry that conflicts in a file waits while the
//! author of another task resolves that file, and is built again when that task has landed or left.
//!
//! An author who resolves never waits for another author: an entry that has to wait loses its right to resolve. So no
//! two wait for each other. An entry waits for an author no longer than `AUTHOR_WAIT`; for an entry that its author has
//! queued again, as long as the queue needs.

use super::*;

impl Target {
    /// The task whose author has to resolve first, for an entry that waits for one.
    pub fn author_before(&self, entry: &Entry) -> Option<&TaskId> {
        let State::Waiting { obstacle: Obstacle::Author { files } } = &entry.state else { return None };
        self.resolver_of(files, entry.spec.task.as_ref())
    }

    fn resolver_of(&self, files: &[Box<str>], own: Option<&TaskId>) -> Option<&TaskId> {
        let mut others = self.resolving.iter().filter(|resolving| Some(&resolving.task) != own);
        others.find(|resolving| overlap(&resolving.files, files)).map(|resolving| &resolving.task)
    }
}

impl LandingQueue {
    /// Whether the work of a task is in the queue.
    pub(super) fn is_queued(&self, task: &TaskId) -> bool {
        self.entries.values().any(|entry| entry.spec.task.as_ref() == Some(task))
    }

    /// Whether an entry that conflicts in these files waits for another author. The entry of a branch does not: its
    /// author is a person, who is notified at once.
    pub(super) fn is_to_wait_for_author(&self, entry: &Entry, files: &[Box<str>], now: Lease) -> bool {
        let is_for_author = entry.spec.task.is_some() && !entry.spec.ask_on_conflict;
        let has_waited = matches!(entry.state, State::Waiting { obstacle: Obstacle::Author { .. } })
            && entry.again.is_some_and(|again| again <= now);
        is_for_author && !has_waited && self.target.resolver_of(files, entry.spec.task.as_ref()).is_some()
    }

    pub(super) fn wait_for_author(
        &mut self,
        entry: Entry,
        files: Vec<Box<str>>,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let (id, tries) = (entry.id.clone(), entry.tries);
        self.record(entry, EntryFact::Waiting { obstacle: Obstacle::Author { files }, tries }, buffer);
        let entry = self.entries.get_mut(&id).expect("one that waits is in the queue");
        entry.again = Some(now.lease + AUTHOR_WAIT);
        Outcome::Stands(Box::new(entry.clone()))
    }

    /// Records whether the author of an entry resolves a conflict, after a step of the entry.
    pub(super) fn follow_author(&mut self, entry: &Entry, now: &Now, buffer: &mut EffectBuffer) {
        let Some(task) = entry.spec.task.clone() else { return };
        match &entry.state {
            State::Over(LandingEnd::Returned(Return::Conflict { files, .. })) => {
                for waiting in self.entries.values_mut() {
                    if let State::Waiting { obstacle: Obstacle::Author { files: theirs } } = &waiting.state
                        && overlap(theirs, files)
                    {
                        waiting.again = Some(now.lease + AUTHOR_WAIT);
                    }
                }
                self.record_target(TargetFact::Resolving(Resolving { task, files: files.clone() }), now, buffer);
            }
            State::Waiting { .. } | State::Asking { .. } | State::Over(_) => drop(self.author_left(task, now, buffer)),
            State::Queued | State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. } => {}
        }
    }

    pub(super) fn author_left(&mut self, task: TaskId, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        if !self.target.resolving.iter().any(|resolving| resolving.task == task) {
            return Outcome::Unchanged;
        }
        self.record_target(TargetFact::Resolved { task }, now, buffer);
        Outcome::Noted
    }
}

fn overlap(some: &[Box<str>], others: &[Box<str>]) -> bool {
    some.iter().any(|file| others.contains(file))
}
