//! Starts this executable again with a hidden first argument: as a keeper, or to run a guard command, a guard check, a
//! merge or the check of a commit.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use banksman_adapters::reentry;

use crate::error::Error;
use crate::{agents, guarded, landing, merge_branch, workspaces};

/// Must be called first in the `main` of every program that creates a [`Runner`](crate::Runner) or checks guards.
///
/// The library starts the running executable again, as the supervisor of a session or of a guard's command, and to
/// merge branches. `enter` recognises such a start by its arguments, does its work, and never returns. In every other
/// process it returns at once. A program that has not called it gets [`Error::NotEntered`] instead of a runner.
pub fn enter() {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = reentry::enter(&args)
        .or_else(|| merge_branch::enter(&args))
        .or_else(|| guarded::enter(&args))
        .or_else(|| workspaces::enter(&args))
        .or_else(|| agents::start_check::enter(&args))
        .or_else(|| landing::enter(&args))
    {
        std::process::exit(if code == ExitCode::SUCCESS { 0 } else { 1 });
    }
}

/// Starts `program`, the absolute path of a `banksman` executable, instead of the running one. For a program whose `main` cannot call [`enter`]
/// first: a test, or an extension of another language. The first of all calls to [`enter`] and `use_program` decides.
pub fn use_program(program: &Path) -> Result<(), Error> {
    reentry::use_program(program).map_err(Error::system("this program cannot be used for supervisors"))
}
