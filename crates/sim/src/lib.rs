//! The deterministic simulator: the real engine on the real store, a handful of processes, virtual time, and faults
//! between any two steps.
//!
//! One seed is one history. A scheduler chooses what happens next: a process acts, calls that arrived together go
//! into one transaction, time jumps to the next deadline, something breaks. Checkers look at every commit; then the
//! faults stop, and every wait and every task must come to its end.
//!
//! * [`Scenario`]: who takes part in a history.
//! * `world`: the scheduler. `commit`: where calls meet the store. `faults`: what goes wrong. `quiesce`: how it ends.
//! * `locks`, `queues`, `backlog`, `people`, `fleet`: the actors, and what must be true of what they do, kept by outsiders and by the pure core.
//! * [`land_history`]: merge queues, in a world of their own with a model of git.
//! * [`quota_history`]: limits of accounts, in a world of their own with a model of the provider.
//! * [`mail_history`]: messages to tasks, in a world of their own with a model of sessions.
//! * [`Mutation`]: variants with one fault each, to show that the checkers can fail; beside it those of the smaller worlds.

mod accounts;
mod backlog;
mod clock;
mod commit;
mod faults;
mod fleet;
mod format;
mod ground;
mod landings;
mod locks;
mod machine;
mod mail;
mod mutation;
mod people;
mod queues;
mod quiesce;
mod random;
mod report;
mod scenario;
mod store;
mod trace;
mod traced;
mod world;

pub use accounts::{QuotaTally, quota_history};
pub use landings::{LandingTally, land_history};
pub use mail::{MailTally, mail_history};
pub use mutation::{LandingMutation, MailMutation, Mutation, QuotaMutation};
pub use report::{Checker, Report, Tally, Violation};
pub use scenario::Scenario;
pub use store::use_postgres;
pub use trace::Listener;

use banksman_store::StoreError;

use world::World;

/// How to run a history.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Who takes part. The mutation chooses if nothing is said, else the seed.
    pub scenario: Option<Scenario>,
    /// A fault on purpose.
    pub mutation: Option<Mutation>,
    /// Listen to this checker only.
    pub only: Option<Checker>,
    /// How many steps with faults; the seed chooses if nothing is said.
    pub steps: Option<usize>,
}

impl Options {
    /// A deliberately broken variant that only its own checker may catch.
    pub fn broken(mutation: Mutation) -> Options {
        Options { mutation: Some(mutation), only: Some(mutation.checker()), ..Options::default() }
    }

    fn scenario(&self, seed: u64) -> Scenario {
        self.scenario.or(self.mutation.map(Scenario::of)).unwrap_or_else(|| Scenario::drawn(seed))
    }
}

/// Runs the history of one seed.
pub fn run(seed: u64, options: Options, listener: Option<Listener<'_>>) -> Report {
    World::new(seed, options, listener).map(World::run).unwrap_or_else(|error: StoreError| {
        let violation = Violation { checker: Checker::Store, what: error.to_string() };
        Report { violation: Some(violation), hash: 0, tally: Tally::default() }
    })
}

/// Runs the history twice: it must be the same one.
pub fn run_twice(seed: u64, options: Options) -> Report {
    let (first, second) = (run(seed, options, None), run(seed, options, None));
    let same = first.hash == second.hash || first.violation.is_some();
    if same || options.only.is_some_and(|only| only != Checker::Trace) {
        return first;
    }
    let what = format!("the first time the trace had the hash {:016x}, the second time {:016x}", first.hash, second.hash);
    Report { violation: Some(Violation { checker: Checker::Trace, what }), ..first }
}
