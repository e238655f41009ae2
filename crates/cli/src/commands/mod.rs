//! One file per noun; `resources` has the code that locks and semaphores share.

pub(crate) mod agents;
pub(crate) mod bus;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod decisions;
pub(crate) mod demo;
pub(crate) mod do_tasks;
pub(crate) mod doctor;
mod end_wait;
pub(crate) mod events;
pub(crate) mod find;
pub(crate) mod guards;
pub(crate) mod init;
pub(crate) mod landing;
pub(crate) mod locks;
pub(crate) mod mailbox;
pub(crate) mod man;
pub(crate) mod notify;
pub(crate) mod pausing;
pub(crate) mod pipelines;
pub(crate) mod queues;
mod recording;
pub(crate) mod recover;
pub(crate) mod report;
pub(crate) mod resources;
pub(crate) mod run;
pub(crate) mod runbooks;
pub(crate) mod sections;
pub(crate) mod semaphores;
pub(crate) mod send;
pub(crate) mod sessions;
mod since;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod tail;
pub(crate) mod tasks;
pub(crate) mod timeline;
pub(crate) mod top;
pub(crate) mod trust;
mod waiting_line;
pub(crate) mod why;
pub(crate) mod workers;
pub(crate) mod workspaces;

use crate::failure::Failure;

/// The exit status of a successful command, or its failure.
pub(crate) type ExitResult = Result<u8, Failure>;
