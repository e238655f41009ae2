//! The deterministic simulator: the real engine on the real store, a handful of processes, virtual time, and faults
//! between any two steps.
//!
//! One seed is one history. A scheduler chooses what happens next: a process acts, calls that arrived together go
//! into one transaction, time jumps to the next deadline, something breaks. Checkers look at every commit; then the
//! faults stop, and everybody must come to an end.
//!
//! * `world`, `script`, `driver`, `desk`, `faults`, `calm`: what happens.
//! * `ledger`, `examine`, `model`: what must be true, kept by an outsider and by the pure core.
//! * [`Broken`]: stores with one fault each, to show that the checkers can fail.
//!
//! This is the world of locks and semaphores; [`backlog`] is that of runners, sessions, tasks, pipelines, workers and
//! routes, [`queues`] that of items and those who take them, [`claims`] that of people and runners who claim several things at once.

pub mod backlog;
mod broken;
mod calm;
pub mod claims;
mod clock;
mod desk;
mod driver;
mod examine;
mod faults;
mod ledger;
mod model;
mod process;
pub mod queues;
mod random;
mod report;
mod script;
mod trace;
mod tried;
mod words;
mod world;

pub use broken::Broken;
pub use report::{Checker, Report, Tally, Violation};
pub use trace::Listener;

use world::World;

/// How to run a history, in a world that can be broken like `B`.
#[derive(Debug, Clone, Copy)]
pub struct Options<B = Broken> {
    /// A fault on purpose.
    pub broken: Option<B>,
    /// Listen to this checker only.
    pub only: Option<Checker>,
    /// How many steps with faults; the seed chooses if nothing is said.
    pub steps: Option<usize>,
}

impl<B> Default for Options<B> {
    fn default() -> Options<B> {
        Options { broken: None, only: None, steps: None }
    }
}

/// Lives through the history of one seed.
pub fn run(seed: u64, options: Options, listener: Option<Listener<'_>>) -> Report {
    match World::new(seed, options, listener) {
        Ok(world) => world.run(),
        Err(error) => {
            let violation = Violation { checker: Checker::Store, what: error.to_string() };
            Report { violation: Some(violation), hash: 0, tally: Tally::default() }
        }
    }
}

/// Lives through the history twice: it must be the same one.
pub fn run_twice(seed: u64, options: Options) -> Report {
    twice(options.only, || run(seed, options, None))
}

fn twice(only: Option<Checker>, live: impl Fn() -> Report) -> Report {
    let (first, second) = (live(), live());
    let same = first.hash == second.hash || first.violation.is_some();
    if same || only.is_some_and(|only| only != Checker::Trace) {
        return first;
    }
    let what = format!("the first time the trace had the hash {:016x}, the second time {:016x}", first.hash, second.hash);
    Report { violation: Some(Violation { checker: Checker::Trace, what }), ..first }
}
