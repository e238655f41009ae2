//! Whole backlogs: runners, keepers, programs and people on one machine, with crashes between any two steps.
//!
//! The runners are the real `Dispatcher`, on the real store; what they start, watch and lose is simulated with the
//! promises of the real keeper. Checkers compare what the log says with what the processes really did.
//!
//! * `world`, `users`, `wishes`, `hands`, `plans`, `crew`, `outside`, `runner`, `driver`, `outbox commands`, `keeper`, `program`, `pause`,
//!   `machine`, `faults`, `desk`, `calm`: what happens.
//! * `book`, `judge`, `ends`, `loops`, `roots`, `truth`, `way`, `phases`, `kept`, `comparison`, `verdicts`, `items`, `reactions`: what must be true, kept by an outsider;
//!   `answers`: both, for decisions.
//! * [`Mutation`]: engines, drivers and keepers with one fault each.

mod answers;
mod book;
mod calm;
mod comparison;
mod crew;
mod desk;
mod driver;
mod ends;
mod errands;
mod faults;
mod hands;
mod items;
mod judge;
mod keeper;
mod kept;
mod lapses;
mod loops;
mod machine;
mod mutation;
mod outside;
mod pause;
mod phases;
mod plans;
mod program;
mod reactions;
mod roots;
mod runner;
mod scarcity;
mod slips;
mod truth;
mod users;
mod verdicts;
mod way;
mod wishes;
mod words;
mod world;

pub use mutation::Mutation;

use crate::report::{Checker, Report, Tally, Violation};
use crate::{Listener, Options};

/// Lives through the history of one seed.
pub fn run(seed: u64, options: Options<Mutation>, listener: Option<Listener<'_>>) -> Report {
    match world::World::new(seed, options, listener) {
        Ok(world) => world.run(),
        Err(error) => {
            let violation = Violation { checker: Checker::Store, what: error.to_string() };
            Report { violation: Some(violation), hash: 0, tally: Tally::default() }
        }
    }
}

/// Lives through the history twice: it must be the same one.
pub fn run_twice(seed: u64, options: Options<Mutation>) -> Report {
    crate::twice(options.only, || run(seed, options, None))
}
