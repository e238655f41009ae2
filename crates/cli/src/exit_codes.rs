//! The exit codes. They are part of the interface and never change their meaning.

/// The command succeeded.
pub(crate) const OK: u8 = 0;
/// An error without a code of its own.
pub(crate) const ERROR: u8 = 1;
/// Invalid command line, or a refused edit.
pub(crate) const USAGE: u8 = 2;
/// The configuration, a runbook or the store's format is invalid.
pub(crate) const CONFIG: u8 = 3;
/// Not found, or nothing there.
pub(crate) const NOT_FOUND: u8 = 4;
/// Not permitted: not the holder, or `--force` is needed.
pub(crate) const NOT_PERMITTED: u8 = 5;
/// Locked, busy, full, or timed out.
pub(crate) const LOCKED: u8 = 6;
/// Unhealthy, or stalled.
pub(crate) const UNHEALTHY: u8 = 7;
/// Fenced: another holder has had it since.
pub(crate) const FENCED: u8 = 8;
/// Waiting would be a deadlock.
pub(crate) const DEADLOCK: u8 = 9;
/// Found, but cannot be executed, as in a shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as in a shell.
pub(crate) const NO_SUCH_COMMAND: u8 = 127;
/// Interrupted.
pub(crate) const INTERRUPTED: u8 = 130;
