//! A change of refs in two steps. After the first step git has locked the refs and compared them with their expected values; the
//! second step only renames files.
//!
//! A `git update-ref` child holds the locks. If this process is killed, the child sees the end of its input, gives up
//! and removes the locks. They stay only if the child itself is killed; `Journal` recognizes them then.

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
    /// Moves the ref, if it is at `from`.
    Move {
        name: String,
        from: Id,
        to: Id,
    },
    Create {
        name: String,
        at: Id,
    },
    /// Deletes the ref, if it is at this commit.
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

/// Locked refs that can be changed by [`Transaction::commit`]. Dropping it changes nothing.
pub(super) struct Transaction<'a> {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    until: Instant,
    journal: &'a Journal,
}

impl Transaction<'_> {
    /// Locks the refs and compares them. `git_dir` is git's directory for the checkout that `git` runs in. The inner
    /// error is git's message.
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
        // The child holds the lock of the journal while it lives, and writes its error messages there.
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

    /// Changes the refs. The error is git's message.
    pub(super) fn commit(mut self) -> Result<(), String> {
        self.send("commit\0");
        let is_committed = self.is_answered("commit").unwrap_or(false);
        self.end();
        if is_committed { Ok(()) } else { Err(self.journal.complaints()) }
    }

    /// A failure is ignored here: if git is gone, the missing answer shows it.
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

    /// Closes the input of git, which makes it give up uncommitted changes, and waits until it has ended.
    fn end(&mut self) {
        self.input = None;
        // Its output ends with it, unless hooks that it has left behind keep the pipe open.
        let left = self.until.saturating_duration_since(Instant::now());
        if !is_readable(&self.output, left).unwrap_or(false) {
            tree::kill_group(&self.child);
        }
        // A killed git leaves its locks.
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
