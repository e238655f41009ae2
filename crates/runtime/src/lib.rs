//! The real driver: opens projects, batches calls on a writer thread, sleeps on descriptors while it waits, and runs sessions.
//!
//! The public library `banksman` and the command are made of it. Every method blocks; the engine below does not. A process needs one
//! [`Client`] for all its threads: calls that arrive at the same time share one transaction.

pub mod agents;
mod applying;
mod background;
mod bus;
pub mod caller;
mod client;
pub mod config;
mod discovery;
mod dispatch;
mod error;
mod follow;
mod guarded;
pub mod guards;
mod import;
pub mod inspect;
pub mod landing;
mod machine;
mod merge_branch;
mod outlets;
mod project;
mod queues;
mod reentry;
mod relocation;
mod run_slot;
pub mod runbooks;
mod runner;
mod sessions;
mod task_wait;
mod trust;
mod wait_until;
mod waiting;
mod wakeups;
pub mod workspaces;
mod writer;

pub use bus::{BusFollower, BusReader, PostError};
pub use client::Client;
pub use config::{Config, duration as parse_duration};
pub use dispatch::{Letter, PostedMessage, SendError};
pub use error::Error;
pub use follow::Follower;
pub use import::ImportError;
pub use machine::RealMachine;
pub use merge_branch::merge as merge_branch;
pub use outlets::{Outlets, Refusal};
pub use project::{Project, ProjectError, StoreUrl};
pub use queues::TakeEnd;
pub use reentry::{enter, use_program};
pub use runbooks::{LoadedRunbook, RunbookError, RunbookFile, load_all, load_runbook};
pub use runner::{RunOptions, Runner, RunnerReport, recover_run};
pub use sessions::{Sessions, local_day};
pub use task_wait::{AwaitProgress, AwaitedTask, OpenRecorder, TaskWaitError, record_ended, wait_for_tasks};
pub use trust::{Trust, TrustedStore};
pub use wait_until::{UntilOptions, WaitEnd, concern, until};
pub use waiting::{Acquisition, ClaimProgress, EndedRuns, Progress, TaskClaim, WaitOptions};
