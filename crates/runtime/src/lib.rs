//! Locks and semaphores that many processes share: fenced, fair, durable.
//!
//! ```
//! use std::time::Duration;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path();
//! let project = banksman_runtime::Project::init(path)?;
//! let client = project.open()?;
//!
//! // Waits in line for at most five seconds. The lock is bound to this process: if it dies, the next in line
//! // gets the lock at once.
//! let lock = client.lock("deploy")?.holder("release-robot")?.wait(Duration::from_secs(5)).acquire()?;
//! println!("it is ours, with the fencing number {}", lock.epoch());
//! lock.release()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A program that creates a [`Runner`] calls [`enter`] first in its `main`.
//!
//! Every method blocks; the engine below does not. A process needs one [`Client`] for all its threads: calls that
//! arrive at the same time share one transaction.

mod applying;
mod background;
mod client;
pub mod config;
mod discovery;
mod error;
mod follow;
mod guard;
mod guarded;
pub mod guards;
mod import;
pub mod inspect;
mod machine;
mod merge_branch;
mod outlets;
mod project;
mod queues;
mod reentry;
mod relocation;
pub mod runbooks;
mod runner;
mod sessions;
mod trust;
mod waiting;
mod wakeups;
mod writer;

pub use client::Client;
pub use config::{Config, duration as parse_duration};
pub use error::Error;
pub use follow::Follower;
pub use guard::{Acquire, AcquireError, ArgumentError, Held};
pub use import::ImportError;
pub use machine::RealMachine;
pub use merge_branch::merge as merge_branch;
pub use outlets::{Outlets, Refusal};
pub use project::{Place, Project, ProjectError};
pub use queues::TakeEnd;
pub use reentry::{enter, use_program};
pub use runbooks::{LoadedRunbook, RunbookError, RunbookFile, load_all, load_runbook};
pub use runner::{RunOptions, Runner, Told, recover_run};
pub use sessions::Sessions;
pub use trust::{Trust, TrustedStore};
pub use waiting::{Acquisition, ClaimProgress, Progress, TaskClaim, WaitOptions};
