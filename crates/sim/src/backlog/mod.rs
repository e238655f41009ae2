//! Complete backlogs: runners, keepers, programs and people on one machine, with crashes between any two steps.
//!
//! The runners are the real `Dispatcher`, on the real store; what they start, watch and lose is simulated with the
//! guarantees of the real keeper. Checkers compare the event log with what the processes really did.
//!
//! * The simulation: `world`, `commit`, `faults`, `quiesce`; `users` with `requests`, `holds`, `plans`, `workers`;
//!   `runner` with `driver`, `notify`, `outside`; `keeper`, `program`, `pause`, `shortage`, `machine`.
//! * The checkers, with a model of their own: `model`, `pipeline_model`, `worker_model`; `checks`, `..._checks`,
//!   `idleness`, `kept_locks`, `comparison`. Both, for decisions: `decisions`.

mod checks;
mod comparison;
mod decisions;
mod driver;
mod guard_checks;
mod holds;
pub(crate) mod idleness;
pub(crate) mod keeper;
mod kept_locks;
pub(crate) mod loop_checks;
pub(crate) mod model;
mod notify;
pub(crate) mod outside;
mod pause;
mod pipeline_checks;
mod pipeline_model;
mod plans;
pub(crate) mod program;
mod requests;
mod root_checks;
mod route_checks;
mod run_end_checks;
pub(crate) mod runner;
pub(crate) mod shortage;
pub(crate) mod users;
mod worker_model;
mod workers;
