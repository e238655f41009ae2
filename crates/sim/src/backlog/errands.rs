//! What a runner does beside: nudging sessions, and telling people, which may go wrong.

use banksman_core::{RunId, Seq};
use banksman_engine::RunnerInput;

use super::keeper::Ask;
use super::world::World;
use crate::clock::Ms;

/// An attempt to tell people.
pub(crate) struct Telling {
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

    /// People are told on a thread of its own. Some days nobody can be reached, and some things nobody wants to hear.
    pub(crate) fn tell_people(&mut self, slot: usize, command: Seq) {
        if self.random.in_thousand(200) {
            return self.input(slot, RunnerInput::CommandDone(command, Ok(())));
        }
        let works = self.calm || !self.random.in_thousand(if self.unreachable { 970 } else { 100 });
        let done_at = self.clock.now() + self.random.between(0, 1_500);
        self.runners[slot].tellings.push(Telling { done_at, command, works });
    }

    pub(crate) fn finish_tellings(&mut self, slot: usize) {
        let now = self.clock.now();
        let done: Vec<Telling> = self.runners[slot].tellings.extract_if(.., |telling| telling.done_at <= now).collect();
        for telling in done {
            self.tally.count(if telling.works { "people told" } else { "fault: people not told" });
            let result = if telling.works { Ok(()) } else { Err("nobody answers".into()) };
            self.input(slot, RunnerInput::CommandDone(telling.command, result));
        }
    }
}
