//! A change of refs in two steps. After the first one git has them locked and has compared them with what they were to be; the
//! second one is a matter of renaming files.
//!
//! The program that holds the locks is a child of ours: if this process is killed, it finds its input closed, gives up and
//! removes them. Only if it is killed do they stay; `Journal` knows how to recognise them then.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::journal::Journal;
use super::{Git, GitError, Id};
use crate::tree;

pub(super) enum Update {
    /// From one commit to another, and nothing but that.
    Move {
        name: String,
        from: Id,
        to: Id,
    },
    Create {
        name: String,
        at: Id,
    },
    /// Gone, if it is at this commit.
    Delete {
        name: String,
        at: Id,
    },
}

impl Update {
    pub(super) fn name(&self) -> &str {
        match self {
            Update::Move { name, .. } | Update::Create { name, .. } | Update::Delete { name, .. } => name,
        }
    }

    fn line(&self) -> String {
        match self {
            Update::Move { name, from, to } => format!("update {name}\0{to}\0{from}\0"),
            Update::Create { name, at } => format!("create {name}\0{at}\0"),
            Update::Delete { name, at } => format!("delete {name}\0{at}\0"),
        }
    }
}

/// Refs that are locked and can be changed. If it is dropped, they are not.
pub(super) struct Transaction<'a> {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    until: Instant,
    journal: &'a Journal,
}

impl Transaction<'_> {
    /// Locks the refs and compares them. `git_dir` is that of the checkout where git is asked. The inner error is what git said against it.
    pub(super) fn prepare<'a>(
        git: &Git,
        git_dir: &Path,
        journal: &'a Journal,
        note: &str,
        updates: &[Update],
    ) -> Result<Result<Transaction<'a>, String>, GitError> {
        let failed = |source| GitError::System { what: "git update-ref".into(), source };
        journal.expect_ref_locks(git_dir, updates)?;
        let mut command = git.command(&["update-ref", "-m", note, "--stdin", "-z"]);
        // It has the lock of the journal as long as it lives, and writes its complaints there.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(journal.lock().map_err(failed)?).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        let mut transaction = Transaction { child, input, output, until: Instant::now() + git.limit, journal };
        let lines: String = updates.iter().map(Update::line).collect();
        transaction.send(&format!("start\0{lines}prepare\0"));
        if transaction.is_answered("start").map_err(failed)? && transaction.is_answered("prepare").map_err(failed)? {
            journal.note_ref_locks();
            return Ok(Ok(transaction));
        }
        transaction.end();
        Ok(Err(journal.complaints()))
    }

    /// Changes them. The error is what git said against it.
    pub(super) fn commit(mut self) -> Result<(), String> {
        self.send("commit\0");
        let is_committed = self.is_answered("commit").unwrap_or(false);
        self.end();
        if is_committed { Ok(()) } else { Err(self.journal.complaints()) }
    }

    /// If git is gone, its answer says so.
    fn send(&mut self, lines: &str) {
        if let Some(input) = &mut self.input {
            input.write_all(lines.as_bytes()).and_then(|()| input.flush()).ok();
        }
    }

    fn is_answered(&mut self, word: &str) -> io::Result<bool> {
        let expected = format!("{word}: ok\n");
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let left = self.until.saturating_duration_since(Instant::now());
            let mut byte = [0];
            if !is_readable(&self.output, left)? || self.output.read(&mut byte)? == 0 {
                return Ok(false);
            }
            line.extend(byte);
        }
        Ok(line == expected.as_bytes())
    }

    /// Waits for the end of git, which gives up what is not committed when its input is closed.
    fn end(&mut self) {
        self.input = None;
        // Its output ends with it, but for hooks that it may have left behind.
        let left = self.until.saturating_duration_since(Instant::now());
        if !is_readable(&self.output, left).unwrap_or(false) {
            tree::kill_group(&self.child);
        }
        // One that was killed has left its locks.
        if self.child.wait().is_ok_and(|status| status.signal().is_some()) {
            self.journal.settle_ref_locks();
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_readable(output: &ChildStdout, within: Duration) -> io::Result<bool> {
    let timeout = Timespec { tv_sec: within.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: within.subsec_nanos().into() };
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
