//! Connects the machines with the store: the rows that a request needs, the machine that decides, and the way to wait.
//!
//! The engine starts no thread and never blocks. A driver, real or simulated, passes [`Request`]s to the store,
//! and sleeps for as long as a [`Wait`] says.

mod calls;
mod claims;
mod facts;
mod request;
mod runner;
mod wait;
mod wakeups;
pub mod why;

pub use calls::accounts::{AccountOutcome, AccountRequest};
pub use calls::bus::{PostOutcome, PostRequest};
pub use calls::decisions::{DecisionOutcome, DecisionRequest};
pub use calls::imports::{ImportOutcome, ImportRequest, SYNC_ROWS, can_sync};
pub use calls::landings::{LandingOutcome, LandingRequest, Worker as LandingWorker, landing_queue};
pub use calls::mailbox::{MailboxOutcome, MailboxRequest};
pub use calls::manual::{ClaimWaiting, LockedBy, Taking, Unmet};
pub use calls::pause::{PauseOutcome, PauseRequest, Stopped};
pub use calls::pipelines::guards::{GuardCheck, asked_at_claim, know, store_keys, verdict};
pub use calls::pipelines::phases::{Lack, lacks, slot_keys};
pub use calls::pipelines::{PipelineOutcome, PipelineRequest, Start};
pub use calls::queues::QueueRequest;
pub use calls::routes::{RouteOutcome, RouteRequest};
pub use calls::runbooks::{ApplyOutcome, ApplyRequest, Change, How, Incompatible};
pub use calls::runs::awaiting::{awaited_keys, awaited_parts};
pub use calls::runs::{RunOutcome, RunRequest, Work, ended};
pub use calls::sections::{SectionOutcome, SectionRequest};
pub use calls::tasks::{Edit, TaskOutcome, TaskRequest};
pub use calls::workers::{WorkerOutcome, WorkerRequest};
pub use calls::workspaces::{WorkspaceOutcome, WorkspaceRequest};
pub use claims::{Claim, Claimed};
pub use request::{Reply, Request, Seen, TypedRequest};
pub use runner::{Action as RunnerAction, Activity, Dispatcher, Input as RunnerInput, Options, RunnerEvent, Vitals};
pub use wait::take::{TakeAction, Taking as TakingItem};
pub use wait::{Wait, WaitAction, runs_in_the_way};
