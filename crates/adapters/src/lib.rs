//! The world outside, each part behind a small interface.
//!
//! * [`host`]: this machine and its clocks. * [`user`]: whose process this is. * [`process`]: who a process is, and whether it lives.
//! * [`life_file`]: the proof of a death that cannot be seen.
//! * [`tree`]: all descendants of a process. * [`ids`]: short random names.
//! * [`keeper`]: the process beside a session, which outlives whoever started it.
//! * [`program`]: running a program for a limited time. * [`command_supervisor`]: the same, and nothing of it is left behind.
//! * [`shortage`]: errors that pass by themselves.
//! * [`git`]: branches, and merging them.
//! * [`notify`]: telling people what happened. * [`digest`]: hashes and signatures.
//! * [`reentry`]: which program is started as a keeper or a supervisor. * [`os_bytes`]: paths as data, whatever their bytes are.
//! * [`private`]: the files of a project, for their owner only. * [`anchor`]: a directory that must stay where it is.
//! * [`wake`]: telling one waiter that its row has changed. * [`change_notifier`]: telling all followers of the event log.

#[cfg(not(target_os = "linux"))]
compile_error!("banksman runs on Linux only: it relies on pidfds, /proc and Linux file locks");

pub mod anchor;
pub mod change_notifier;
pub mod command_supervisor;
pub mod digest;
pub mod git;
pub mod host;
pub mod ids;
pub mod keeper;
pub mod life_file;
pub mod notify;
pub mod os_bytes;
mod pid_namespace;
pub mod private;
pub mod process;
pub mod program;
pub mod reentry;
pub mod shortage;
mod time_namespace;
pub mod tree;
pub mod user;
pub mod wake;
