//! Shortages: the system has run out of a resource for the moment. The same call may succeed later.

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The resource that is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Shortage {
    /// `EAGAIN` of a fork: a limit on processes or threads is reached.
    #[error("no more processes can be started (see ulimit -u, or pids.max of the control group)")]
    Processes,
    /// `EMFILE`: this process has as many open files as it may have.
    #[error("no more files can be opened by this process (see ulimit -n)")]
    OpenFiles,
    /// `ENFILE`: the system has as many open files as it can have.
    #[error("no more files can be opened on this machine (see fs.file-max)")]
    SystemFiles,
    /// `ENOMEM`.
    #[error("there is not enough memory")]
    Memory,
    /// `ENOSPC`.
    #[error("there is no space left on the disk")]
    Disk,
    /// `EDQUOT`.
    #[error("the disk quota is used up")]
    Quota,
}

impl Shortage {
    /// The shortage that an error means, if any. Only for calls that never wait: for other calls `EAGAIN` has another meaning.
    pub fn of(error: &io::Error) -> Option<Shortage> {
        match Errno::from_io_error(error)? {
            Errno::AGAIN => Some(Shortage::Processes),
            Errno::MFILE => Some(Shortage::OpenFiles),
            Errno::NFILE => Some(Shortage::SystemFiles),
            Errno::NOMEM => Some(Shortage::Memory),
            Errno::NOSPC => Some(Shortage::Disk),
            Errno::DQUOT => Some(Shortage::Quota),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_distinguished_from_a_mistake() {
        let of = |errno: Errno| Shortage::of(&errno.into());
        assert_eq!(of(Errno::AGAIN), Some(Shortage::Processes));
        assert_eq!(of(Errno::MFILE), Some(Shortage::OpenFiles));
        assert_eq!(of(Errno::NOSPC), Some(Shortage::Disk));
        for mistake in [Errno::NOENT, Errno::ACCESS, Errno::TOOBIG, Errno::NOEXEC, Errno::NAMETOOLONG, Errno::ROFS] {
            assert_eq!(of(mistake), None);
        }
        assert_eq!(Shortage::of(&io::Error::other("words")), None);
    }
}
