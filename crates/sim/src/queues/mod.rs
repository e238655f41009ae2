//! The world of queues: workers that wait, take, work, stall and die; people who push, pause and requeue; transactions that are
//! lost before or after their commit, and wake-ups that never arrive.
//!
//! * `world`: what happens. `ledger`: what must be true, kept by an outsider and by the pure core.
//! * [`QueueMutation`]: stores with one fault each, to show that the checkers can fail.

mod ledger;
mod mutation;
mod world;

pub use mutation::QueueMutation;

use crate::report::{Checker, Report, Tally, Violation};
use crate::{Listener, Options};
use world::World;

/// Lives through the history of one seed.
pub fn run(seed: u64, options: Options<QueueMutation>, listener: Option<Listener<'_>>) -> Report {
    match World::new(seed, options, listener) {
        Ok(world) => world.run(),
        Err(error) => {
            let violation = Violation { checker: Checker::Store, what: error.to_string() };
            Report { violation: Some(violation), hash: 0, tally: Tally::default() }
        }
    }
}

/// Lives through the history twice: it must be the same one.
pub fn run_twice(seed: u64, options: Options<QueueMutation>) -> Report {
    crate::twice(options.only, || run(seed, options, None))
}
