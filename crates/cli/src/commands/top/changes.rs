//! The size of the changes in the worktrees of live runs. Git is slow, so a thread runs it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use banksman_core::TaskId;
use banksman_runtime::{Project, workspaces};

/// The shortest interval between two updates, and the upper bound on worktrees.
const EVERY: Duration = Duration::from_secs(15);
const WORKTREES: usize = 16;

/// A task with its worktree, and the commit on which it is based.
pub(crate) type Worktree = (TaskId, PathBuf, String);

/// The last known sizes, such as `+120 -8`.
#[derive(Default)]
pub(super) struct Changes {
    known: BTreeMap<TaskId, String>,
    asked: Option<Instant>,
    answer: Option<Receiver<BTreeMap<TaskId, String>>>,
}

impl Changes {
    pub(super) fn of(&self, task: &TaskId) -> Option<&str> {
        self.known.get(task).map(String::as_str)
    }

    /// Takes the result of the last update, and starts the next one when it is due.
    pub(super) fn update(&mut self, project: &Project, worktrees: impl Iterator<Item = Worktree>) {
        match self.answer.as_ref().map(Receiver::try_recv) {
            Some(Ok(found)) => (self.known, self.answer) = (found, None),
            Some(Err(TryRecvError::Empty)) => return,
            Some(Err(TryRecvError::Disconnected)) | None => self.answer = None,
        }
        if self.asked.is_some_and(|asked| asked.elapsed() < EVERY) {
            return;
        }
        let worktrees: Vec<Worktree> = worktrees.take(WORKTREES).collect();
        if worktrees.is_empty() {
            return self.known.clear();
        }
        let (sender, answer) = channel();
        let project = project.clone();
        let ask = move || {
            let Ok(repository) = workspaces::repository(&project) else { return };
            let size = |(task, path, base): Worktree| {
                let size = repository.size(&path, &base).ok()?;
                Some((task, format!("+{} -{}", size.added, size.removed)))
            };
            // The screen may be closed.
            sender.send(worktrees.into_iter().filter_map(size).collect()).ok();
        };
        // Without a thread the column stays empty.
        if std::thread::Builder::new().spawn(ask).is_ok() {
            (self.asked, self.answer) = (Some(Instant::now()), Some(answer));
        }
    }
}
