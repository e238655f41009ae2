//! A machine that lacks a resource for a while: keepers cannot be started, or cannot start their program.

use banksman_core::backlog::RunEndRecord;
use banksman_core::task::RunEnd;
use banksman_core::{RunId, Wall};
use banksman_engine::RunnerInput;

use crate::clock::Ms;
use crate::mutation::Mutation;
use crate::random::Random;
use crate::world::World;

/// When there is a shortage. It has its own random numbers, so that histories without one are unchanged.
pub(crate) struct Shortage {
    random: Random,
    /// How many of a thousand starts begin a shortage.
    share: usize,
    until: Ms,
}

/// Where a run is stopped by a shortage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShortageAt {
    /// Its runner cannot start a keeper.
    Keeper,
    /// Its keeper cannot start the program.
    Program,
}

impl Shortage {
    pub(crate) fn new(seed: u64) -> Shortage {
        let mut random = Random::new(seed ^ 0x5ca1_ab1e_0000_5eed);
        let share = if random.in_thousand(300) { 60 } else { 0 };
        Shortage { random, share, until: 0 }
    }
}

impl World<'_> {
    /// Excludes shortages from this history.
    pub(crate) fn rule_out_shortage(&mut self) {
        self.shortage.share = 0;
    }
}

/// The end of a run that could not begin.
pub(crate) fn not_begun() -> RunEnd {
    RunEnd::NotBegun { error: "no more processes".into(), is_shortage: true }
}

impl World<'_> {
    /// Whether the next start fails, and where.
    pub(crate) fn shortage_at(&mut self) -> Option<ShortageAt> {
        let (now, shortage) = (self.clock.now(), &mut self.shortage);
        if self.is_quiescing || shortage.share == 0 {
            return None;
        }
        if now >= shortage.until && shortage.random.in_thousand(shortage.share) {
            shortage.until = now + shortage.random.between(200, 40_000);
            self.tally.count("fault: shortage");
        }
        let shortage_at = if self.shortage.random.in_thousand(600) { ShortageAt::Keeper } else { ShortageAt::Program };
        (now < self.shortage.until).then_some(shortage_at)
    }

    /// A keeper cannot be started.
    pub(crate) fn fall_short(&mut self, slot: usize, run: &RunId) {
        self.facts(run).short = true;
        self.note(slot, format_args!("cannot start a keeper for {run}"));
        self.ended_short(slot, run);
    }

    /// A runner learns that a run could not begin.
    pub(crate) fn ended_short(&mut self, slot: usize, run: &RunId) {
        let is_counted = self.mutation() == Some(Mutation::ShortageCounts);
        let ending = if is_counted { RunEnd::NotStarted { error: "no more processes".into() } } else { not_begun() };
        let ended = RunEndRecord::new(ending, Wall(self.clock.now()), None);
        self.runners[slot].passed_over.clear();
        let input = if is_counted { RunnerInput::Ended } else { RunnerInput::Shortage };
        self.input(slot, input(run.clone(), ended));
    }
}
