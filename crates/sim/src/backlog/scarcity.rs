//! A machine that has not enough of something for a while: keepers cannot be started, or cannot start their program.

use banksman_core::backlog::Ended;
use banksman_core::task::Ending;
use banksman_core::{RunId, Wall};
use banksman_engine::RunnerInput;

use super::mutation::Mutation;
use super::world::World;
use crate::clock::Ms;
use crate::random::Random;

/// When there is a shortage. Its numbers are its own, so that a history without any is what it was.
pub(crate) struct Scarcity {
    random: Random,
    /// How many starts of a thousand begin one.
    share: usize,
    until: Ms,
}

/// Where a run is stopped by a shortage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// Its runner cannot start a keeper.
    Keeper,
    /// Its keeper cannot start the program.
    Program,
}

impl Scarcity {
    pub(crate) fn new(seed: u64) -> Scarcity {
        let mut random = Random::new(seed ^ 0x5ca1_ab1e_0000_5eed);
        let share = if random.in_thousand(300) { 60 } else { 0 };
        Scarcity { random, share, until: 0 }
    }
}

/// The end of a run that could not begin.
pub(crate) fn not_begun() -> Ending {
    Ending::NotBegun { error: "no more processes".into(), is_shortage: true }
}

impl World<'_> {
    /// Whether the next start fails, and where.
    pub(crate) fn lack(&mut self) -> Option<Lack> {
        let (now, scarcity) = (self.clock.now(), &mut self.scarcity);
        if self.calm || scarcity.share == 0 {
            return None;
        }
        if now >= scarcity.until && scarcity.random.in_thousand(scarcity.share) {
            scarcity.until = now + scarcity.random.between(200, 40_000);
            self.tally.count("fault: shortage");
        }
        let lack = if self.scarcity.random.in_thousand(600) { Lack::Keeper } else { Lack::Program };
        (now < self.scarcity.until).then_some(lack)
    }

    /// A keeper cannot be started.
    pub(crate) fn fall_short(&mut self, slot: usize, run: &RunId) {
        self.fate(run).short = true;
        self.note(slot, format_args!("cannot start a keeper for {run}"));
        self.ended_short(slot, run);
    }

    /// A runner hears that a run could not begin.
    pub(crate) fn ended_short(&mut self, slot: usize, run: &RunId) {
        let is_counted = self.mutation() == Some(Mutation::ShortageCounts);
        let ending = if is_counted { Ending::NotStarted { error: "no more processes".into() } } else { not_begun() };
        let ended = Ended::new(ending, Wall(self.clock.now()), None);
        self.runners[slot].passed_over.clear();
        let input = if is_counted { RunnerInput::Ended } else { RunnerInput::Shortage };
        self.input(slot, input(run.clone(), ended));
    }
}
