//! The deterministic simulator: the real engine on the real store, a handful of processes, virtual time, and faults
//! between any two steps.
//!
//! One seed is one history. A scheduler chooses what happens next: a process acts, calls that arrived together go into
//! one transaction, time jumps to the next deadline, a fault is injected. Checkers run after every commit; then the
//! faults stop, and every wait and every task must come to its end.
//!
//! * [`Scenario`]: the actors of a history.
//! * `world`: the scheduler. `commit`: commits calls to the store. `faults`: the faults. `quiesce`: the end of a history.
//! * `locks`, `queues`, `backlog`, `people`, `fleet`: the actors, and the checkers of their actions: models, and the pure core.
//! * [`land_history`]: merge queues, in a simulation of their own with a model of git.
//! * [`quota_history`]: limits of accounts, in a simulation of their own with a model of the provider.
//! * [`mail_history`]: messages to tasks, in a simulation of their own with a model of sessions.
//! * [`projection`]: the throughput of a project with many machines.
//! * [`Mutation`]: variants with one fault each, to show that the checkers can fail; beside it, the faults of the small simulations.

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
mod projection;
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
pub use projection::{Projection, Workload, projection};
pub use report::{Checker, Report, Tally, Violation};
pub use scenario::Scenario;
pub use store::use_postgres;
pub use trace::Listener;

use banksman_store::StoreError;

use world::World;

/// How to run a history.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The actors. By default the mutation chooses, else the seed.
    pub scenario: Option<Scenario>,
    /// A deliberate fault.
    pub mutation: Option<Mutation>,
    /// Use this checker only.
    pub only: Option<Checker>,
    /// How many steps with faults; by default the seed chooses.
    pub steps: Option<usize>,
}

impl Options {
    /// A deliberately broken variant that only its own checker may detect.
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

/// Runs the history twice: both must be the same.
pub fn run_twice(seed: u64, options: Options) -> Report {
    let (first, second) = (run(seed, options, None), run(seed, options, None));
    let same = first.hash == second.hash || first.violation.is_some();
    if same || options.only.is_some_and(|only| only != Checker::Trace) {
        return first;
    }
    let what = format!("the first time the trace had the hash {:016x}, the second time {:016x}", first.hash, second.hash);
    Report { violation: Some(Violation { checker: Checker::Trace, what }), ..first }
}
