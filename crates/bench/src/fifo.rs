//! A named pipe: a shell command signals the bench, or waits for it, without another process.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, mknodat};

use crate::bench::Result;
use crate::clock;

/// Longer than any command takes: a timeout means that something is broken.
const TIMEOUT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// A pipe that is open at both ends, so that opening it never blocks.
pub(crate) struct Fifo(File);

impl Fifo {
    pub(crate) fn make(path: &Path) -> Result<Fifo> {
        mknodat(CWD, path, FileType::Fifo, 0o600.into(), 0)?;
        Ok(Fifo(File::options().read(true).write(true).open(path)?))
    }

    /// Unblocks this many readers of a line.
    pub(crate) fn ring(&mut self, times: usize) -> Result<()> {
        Ok(self.0.write_all(&vec![b'\n'; times])?)
    }

    /// Waits until a line is written. Returns the time.
    pub(crate) fn wait(&mut self) -> Result<u64> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        if poll(&mut fds, Some(&TIMEOUT))? == 0 {
            return Err("a command was not heard of for 30 s".into());
        }
        let at = clock::now();
        self.0.read_exact(&mut [0])?;
        Ok(at)
    }

    /// Whether there are unread lines.
    pub(crate) fn has_more(&self, within: Duration) -> Result<bool> {
        let timeout = Timespec { tv_sec: within.as_secs().cast_signed(), tv_nsec: within.subsec_nanos().into() };
        Ok(poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout))? > 0)
    }
}
