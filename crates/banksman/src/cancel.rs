//! Cancelling a wait from another thread.

use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{OrPublic, Result};

/// Cancels all waits that use this token, permanently. Clones are the same token.
///
/// ```
/// use std::time::Duration;
/// use banksman::{CancelToken, Error, Project};
///
/// # let dir = tempfile::tempdir()?;
/// # let client = Project::init(dir.path())?.open()?;
/// let _held = client.lock("report").acquire()?;
/// let token = CancelToken::new()?;
/// let stop = token.clone();
/// let waiter = std::thread::spawn(move || {
///     client.lock("report").cancel_on(&token).acquire_within(Duration::from_secs(60)).map(drop)
/// });
/// stop.cancel();
/// assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct CancelToken(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    is_cancelled: AtomicBool,
    /// Becomes readable on cancellation, and is never read.
    reader: PipeReader,
    writer: PipeWriter,
}

impl CancelToken {
    /// Creates a token. Fails if the process has no file descriptors left.
    pub fn new() -> Result<CancelToken> {
        let (reader, writer) = std::io::pipe().or_public()?;
        Ok(CancelToken(Arc::new(Inner { is_cancelled: AtomicBool::new(false), reader, writer })))
    }

    /// Ends the waits that use this token, and all later ones.
    pub fn cancel(&self) {
        if !self.0.is_cancelled.swap(true, Ordering::AcqRel) {
            (&self.0.writer).write_all(b"x").expect("a pipe has room for its first byte");
        }
    }

    /// Whether [`cancel`](CancelToken::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.reader.as_fd()
    }
}
