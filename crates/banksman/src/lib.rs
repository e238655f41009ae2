//! Locks, semaphores, queues and tasks that many processes share: fenced, fair, durable.
//!
//! This library and the command `banksman` use the same projects: the command shows what a program holds, and the other
//! way around. There is no daemon; every process opens the store, which is a SQLite file in the project or a PostgreSQL
//! database.
//!
//! ```
//! use std::time::Duration;
//! use banksman::Project;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path();
//! let project = Project::init(path)?;
//! let client = project.open()?;
//!
//! // Waits for at most five seconds. The lock is bound to this process: if it dies, the first waiter gets it.
//! let lock = client.lock("deploy").holder("release-robot").acquire_within(Duration::from_secs(5))?;
//! println!("held, with the fencing number {}", lock.epoch());
//! lock.release()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Start at [`Project`] and [`Client`]; then [`Acquire`] and [`Guard`] for locks and semaphores, [`Queue`] and
//! [`Item`], [`Tasks`] and [`NewTask`], [`Events`], and [`Runner`] for a program that starts tasks itself. [`Error`]
//! names holders and waiters.
//!
//! Every method blocks. Clients, guards and items can move between threads; a [`CancelToken`] ends a wait from another thread.

#![warn(missing_docs, missing_debug_implementations)]

mod acquire;
mod cancel;
mod client;
mod error;
mod events;
mod guard;
mod item;
mod json;
mod new_task;
mod project;
mod queue;
mod renewal;
mod runner;
mod task;
mod tasks;

use std::path::Path;
use std::time::{Duration, SystemTime};

use banksman_core::{HolderId, Wall};

pub use acquire::Acquire;
pub use cancel::CancelToken;
pub use client::Client;
pub use error::{Error, Resource, ResourceKind, Result, Wait};
pub use events::{Event, Events};
pub use guard::Guard;
pub use item::Item;
pub use new_task::NewTask;
pub use project::Project;
pub use queue::{PushOptions, Pushed, Queue, QueueCounts, QueueOptions};
pub use runner::{Runner, RunnerHandle};
pub use task::{Task, TaskFilter, TaskId, TaskStatus};
pub use tasks::Tasks;

use error::OrPublic;

/// Must be the first call in the `main` of every program that has a [`Runner`].
///
/// The library starts the running executable again: as the supervisor of a session or of a guard's command, and to
/// merge branches. `enter` recognises such a start by its arguments, does the work, and never returns. In every other
/// process it returns at once. A program that has not called it gets [`Error::NotEntered`] instead of a runner.
pub fn enter() {
    banksman_runtime::enter();
}

/// Starts `program`, the absolute path of a `banksman` executable, instead of the running one. For a program whose
/// `main` cannot call [`enter`] first: a test, or an extension of another language. The first of all calls to [`enter`]
/// and `use_program` wins.
pub fn use_program(program: impl AsRef<Path>) -> Result<()> {
    banksman_runtime::use_program(program.as_ref()).or_public()
}

fn time_of(wall: Wall) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(wall.0.unsigned_abs())
}

fn fresh_holder() -> HolderId {
    HolderId::new(&banksman_adapters::ids::short("h")).expect("a short id is a valid name")
}

/// The guide. Its programs are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/library.md")]
struct Guide;
