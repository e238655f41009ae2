//! Connects the machines with the store: which rows a request needs, which machine decides, and how to wait.
//!
//! The engine starts no thread and never blocks. A driver, real or simulated, passes [`Request`]s to the store,
//! and sleeps as long as a [`Wait`] tells it to.

mod applying;
mod awaiting;
mod calm;
mod chains;
mod claims;
mod decisions;
mod endings;
mod facts;
mod guards;
mod imports;
mod ledger;
mod limits;
mod manual;
mod phases;
mod pipelines;
mod queues;
mod request;
mod routing;
mod runner;
mod runs;
mod sections;
mod taking;
mod tasks;
mod wait;
pub mod why;
mod workers;

pub use applying::{ApplyOutcome, ApplyRequest, Change, How, Incompatible};
pub use awaiting::{awaited_keys, awaited_parts};
pub use decisions::{DecisionOutcome, DecisionRequest};
pub use guards::{Judgement, asked_at_claim, know, store_keys, verdict};
pub use imports::{ImportOutcome, ImportRequest};
pub use manual::{ClaimWaiting, LockedBy, Taking, Unmet};
pub use phases::{Lack, lacks, slot_keys};
pub use pipelines::{PipelineOutcome, PipelineRequest, Start};
pub use queues::QueueRequest;
pub use request::{Reply, Request, Seen, TypedRequest};
pub use routing::{RouteOutcome, RouteRequest};
pub use runner::{Action as RunnerAction, Activity, Dispatcher, Input as RunnerInput, Options, RunnerEvent, Vitals};
pub use runs::{Candidate, RunOutcome, RunRequest, Work, ended};
pub use sections::{SectionOutcome, SectionRequest};
pub use taking::{TakeAction, Taking as TakingItem};
pub use tasks::{Edit, TaskOutcome, TaskRequest};
pub use wait::{Advice, Wait};
pub use workers::{WorkerOutcome, WorkerRequest};
