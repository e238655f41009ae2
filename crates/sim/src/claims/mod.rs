//! The world of claims: people who claim tasks with everything that they need while they hold other things, renew, give up and are
//! killed, beside runners with exclusive sections that are killed and whose runs are adopted; limits that change, locks that are forced,
//! tasks that are deleted; transactions that are lost before or after their commit, and lost wake-ups.
//!
//! * `world`: what happens. `people`, `runners`: the actors.
//! * `checks`, `overtaking`: what must be true after every commit. `explanation`: whether `why` names the true cause. The checkers look
//!   at rows and events alone; they call none of the functions that they check.
//! * [`ClaimMutation`]: engines with one fault each, to show that the checkers can fail.

mod checks;
mod explanation;
mod mutation;
mod overtaking;
mod people;
mod runners;
mod world;

pub use mutation::ClaimMutation;

use crate::report::{Checker, Report, Tally, Violation};
use crate::{Listener, Options};
use world::World;

/// Lives through the history of one seed.
pub fn run(seed: u64, options: Options<ClaimMutation>, listener: Option<Listener<'_>>) -> Report {
    match World::new(seed, options, listener) {
        Ok(world) => world.run(),
        Err(error) => {
            let violation = Violation { checker: Checker::Store, what: error.to_string() };
            Report { violation: Some(violation), hash: 0, tally: Tally::default() }
        }
    }
}

/// Lives through the history twice: it must be the same one.
pub fn run_twice(seed: u64, options: Options<ClaimMutation>) -> Report {
    crate::twice(options.only, || run(seed, options, None))
}
