//! A change notifier for the followers of the event log: a file that is touched after a commit has become visible.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW, futimens};

use crate::private;

/// The writing side: it touches the file.
pub struct ChangeNotifier(File);

/// The reading side: it watches the file.
pub struct Listener(OwnedFd);

impl ChangeNotifier {
    /// Opens the file, and creates it if it does not exist.
    pub fn open(path: &Path) -> io::Result<ChangeNotifier> {
        Ok(ChangeNotifier(private::open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK)?))
    }

    pub fn ring(&self) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        Ok(futimens(&self.0, &Timestamps { last_access: now, last_modification: now })?)
    }
}

impl Listener {
    /// Starts to listen. Every later ring is received.
    pub fn open(path: &Path) -> io::Result<Listener> {
        ChangeNotifier::open(path)?;
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&fd, path, WatchFlags::ATTRIB | WatchFlags::DONT_FOLLOW)?;
        Ok(Listener(fd))
    }

    /// Discards all rings so far.
    pub fn empty(&self) {
        let mut buffer = [MaybeUninit::uninit(); 1_024];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        while reader.next().is_ok() {}
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn a_ring_is_received_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bell");
        let listener = Listener::open(&path).unwrap();
        ChangeNotifier::open(&path).unwrap().ring().unwrap();
        assert_eq!(poll(&mut [PollFd::new(&listener, PollFlags::IN)], None).unwrap(), 1);
        listener.empty();
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&now)).unwrap(), 0);
    }
}
