//! The program that is started as a keeper or as a supervisor: this one, or another that was named.
//!
//! This program may be started again only if its `main` begins with [`enter`]. Any other `main` would do its work a
//! second time and start the program again, without end. So nothing is started before `enter` or [`use_program`].

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use thiserror::Error;

use crate::{command_supervisor, keeper};

/// The running program, even if its file was replaced or removed.
const SELF: &str = "/proc/self/exe";

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The process must not start its own program again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("this program would start itself again: its main must call banksman::enter() before anything else")]
pub struct NotEntered;

impl From<NotEntered> for io::Error {
    fn from(error: NotEntered) -> io::Error {
        io::Error::new(io::ErrorKind::Unsupported, error)
    }
}

/// Becomes a keeper or a supervisor if the arguments ask for one, and returns when its work is done. Otherwise returns `None` and
/// permits this program to be started again. Call it first in `main`, with all arguments of the process.
pub fn enter(args: &[OsString]) -> Option<ExitCode> {
    let inner = keeper::enter(args).or_else(|| command_supervisor::enter(args));
    if inner.is_none() {
        PROGRAM.get_or_init(|| SELF.into());
    }
    inner
}

/// Names the program whose `main` begins with [`enter`], for a process whose own `main` does not. The first call wins.
pub fn use_program(program: &Path) -> io::Result<()> {
    let file = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino(), file.is_file()));
    let (named, own) = (file(program)?, file(Path::new(SELF))?);
    if named == own && PROGRAM.get().is_none() {
        return Err(NotEntered.into());
    }
    if !program.is_absolute() || !named.2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{program:?} is not the absolute path of a program")));
    }
    PROGRAM.get_or_init(|| program.into());
    Ok(())
}

/// The program to start as a keeper or as a supervisor.
pub fn program() -> Result<&'static Path, NotEntered> {
    PROGRAM.get().map(PathBuf::as_path).ok_or(NotEntered)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the program is global to the process.
    #[test]
    fn a_program_is_started_again_only_after_enter_or_use_program() {
        assert_eq!(program(), Err(NotEntered));
        let own = std::env::current_exe().unwrap();
        assert_eq!(use_program(&own).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(use_program(Path::new("/")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(use_program(Path::new("/nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(program(), Err(NotEntered), "a refused call sets nothing");
        use_program(Path::new("/bin/true")).unwrap();
        assert_eq!(program(), Ok(Path::new("/bin/true")));
        assert_eq!(enter(&["test".into()]), None);
        assert_eq!(program(), Ok(Path::new("/bin/true")), "the first call wins");
    }
}
