//! Running a program that delivers a notice, for a limited time.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::NotifyError;
use crate::program::{self, Kept};

/// How much of the end of its output is kept, in bytes.
const KEPT: usize = 1_000;

/// Runs the command in a process group of its own. After `limit` the group and all descendants are killed.
pub(super) fn run(command: Command, limit: Duration) -> Result<(), NotifyError> {
    let program = command.get_program().to_string_lossy().into_owned();
    match program::run(command, limit, Kept::last(KEPT), Kept::last(KEPT)) {
        Ok(Some(ended)) if ended.status.success() => Ok(()),
        Ok(Some(ended)) => {
            // Stderr says more about a failure than stdout.
            let said = Some(ended.stderr.last_line()).filter(|line| !line.is_empty()).unwrap_or_else(|| ended.stdout.last_line());
            Err(NotifyError::Exit { program, how: describe(ended.status), said })
        }
        Ok(None) => Err(NotifyError::Overdue { program, limit }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(NotifyError::NoProgram { program }),
        Err(source) => Err(NotifyError::Start { program, source }),
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".into(),
    }
}
