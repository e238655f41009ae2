//! The log of a session: all of its output, as it arrives.
//!
//! The file is made at the first output. When it reaches its limit it becomes `<log>.1`, replacing an older one, and a
//! new file begins: so the log always has the newest output, at least as much as the limit and at most twice as much.
//! Output that cannot be written is counted and the session continues; after a second, writing is tried again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::protocol::{LogReport, message};
use super::record::with_parents;
use crate::private;

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    limit: u64,
    file: Option<File>,
    /// The sizes of the file and of the one before.
    size: u64,
    older: u64,
    /// No write is tried before this time.
    resume: Option<Instant>,
    report: LogReport,
}

impl Log {
    pub(super) fn new(path: PathBuf, limit: u64) -> Log {
        Log { path, limit, file: None, size: 0, older: 0, resume: None, report: LogReport::default() }
    }

    pub(super) fn report(&self) -> &LogReport {
        &self.report
    }

    /// Writes output. Never fails: lost bytes are counted in the report.
    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        self.report.bytes += bytes.len() as u64;
        if self.resume.is_some_and(|resume| Instant::now() < resume) {
            self.report.dropped += bytes.len() as u64;
            return;
        }
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) => {
                    self.report.dropped += bytes.len() as u64;
                    self.report.error.get_or_insert_with(|| format!("cannot write {:?}: {}", self.path, message(&error)));
                    self.resume = Some(Instant::now() + PAUSE);
                    return;
                }
            }
        }
        self.resume = None;
    }

    /// Writes as much as fits into the file, but at least one byte.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.file.is_some() && self.size >= self.limit {
            self.rotate()?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(Log::open(&self.path, &mut self.size)?),
        };
        let room = usize::try_from(self.limit.saturating_sub(self.size)).unwrap_or(usize::MAX).max(1);
        let written = match file.write(&bytes[..bytes.len().min(room)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        self.size += written as u64;
        Ok(written)
    }

    /// Opens the file. Does not block if the path is a named pipe.
    fn open(path: &Path, size: &mut u64) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
        let file = with_parents(path, || private::open(path, flags))?;
        *size = file.metadata()?.len();
        Ok(file)
    }

    fn rotate(&mut self) -> io::Result<()> {
        let mut older = self.path.clone().into_os_string();
        older.push(".1");
        fs::rename(&self.path, &older)?;
        self.report.dropped += self.older;
        (self.older, self.size, self.file) = (self.size, 0, None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_output_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/log");
        let mut log = Log::new(path.clone(), 10);
        assert!(!path.exists(), "made at the first output");
        for n in 0..7 {
            log.take(format!("{n}{n}{n}{n}").as_bytes());
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "55556666");
        assert_eq!(fs::read_to_string(dir.path().join("a/b/log.1")).unwrap(), "2233334444");
        assert_eq!(log.report(), &LogReport { bytes: 28, dropped: 10, error: None });
    }

    #[test]
    fn output_that_cannot_be_written_is_counted() {
        let mut log = Log::new("/dev/full".into(), 1 << 20);
        log.take(b"four");
        log.take(b"more");
        let report = log.report();
        assert_eq!((report.bytes, report.dropped), (8, 8));
        assert_eq!(report.error.as_deref(), Some("cannot write \"/dev/full\": No space left on device"));
    }

    #[test]
    fn a_named_pipe_without_a_reader_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut log = Log::new(path, 1 << 20);
        log.take(b"four");
        assert_eq!(log.report().dropped, 4);
    }
}
