//! Outbox commands of a runner: nudging sessions and notifying people, which may fail.

use banksman_core::{RunId, Seq};
use banksman_engine::RunnerInput;

use super::keeper::Ask;
use crate::clock::Ms;
use crate::world::World;

/// An attempt to notify people.
pub(crate) struct Notification {
    pub(crate) done_at: Ms,
    command: Seq,
    works: bool,
}

impl World<'_> {
    pub(crate) fn nudge_run(&mut self, slot: usize, run: &RunId, command: Seq) {
        let stream = self.runners[slot].sessions.get(run).map(|stream| (stream.keeper, stream.number, stream.epoch));
        if let Some((keeper, stream, epoch)) = stream {
            self.tally.count("nudges sent");
            self.ask(keeper, stream, Ask::Nudge(epoch, command));
        }
    }

    /// Notifies people on a separate thread. At times no channel works, and some notices are not wanted.
    pub(crate) fn notify_people(&mut self, slot: usize, command: Seq) {
        if self.random.in_thousand(200) {
            return self.input(slot, RunnerInput::CommandDone(command, Ok(())));
        }
        let works = self.is_quiescing || !self.random.in_thousand(if self.unreachable { 970 } else { 100 });
        let done_at = self.clock.now() + self.random.between(0, 1_500);
        self.runners[slot].notifications.push(Notification { done_at, command, works });
    }

    pub(crate) fn finish_notifications(&mut self, slot: usize) {
        let now = self.clock.now();
        let done: Vec<Notification> =
            self.runners[slot].notifications.extract_if(.., |notification| notification.done_at <= now).collect();
        for notification in done {
            self.tally.count(if notification.works { "people told" } else { "fault: people not told" });
            let result = if notification.works { Ok(()) } else { Err("nobody answers".into()) };
            self.input(slot, RunnerInput::CommandDone(notification.command, result));
        }
    }
}
