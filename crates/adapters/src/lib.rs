//! The outside world, each part behind a small interface.
//!
//! * [`host`]: this machine and its clocks. * [`user`]: the user of this process. * [`process`]: the identity and liveness of a process.
//! * [`life_file`]: the proof of death of a process that cannot be seen.
//! * [`tree`]: all descendants of a process. * [`ids`]: short random names.
//! * [`keeper`]: the supervisor process of a session, which outlives the runner.
//! * [`program`]: running a program for a limited time. * [`command_supervisor`]: the same, leaving no process behind.
//! * [`shortage`]: errors that pass by themselves.
//! * [`git`]: branches, and merging them.
//! * [`notify`]: notifications for people. * [`digest`]: hashes and signatures.
//! * [`reentry`]: the program that is started as a keeper or a supervisor. * [`os_bytes`]: paths as data, UTF-8 or not.
//! * [`private`]: the files of a project, for their owner only. * [`anchor`]: a directory that must stay at its path.
//! * [`wake`]: waking one waiter whose row has changed. * [`change_notifier`]: waking all followers of the event log.

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
