//! How much the worktrees of live runs have changed. Git takes its time, so it is asked beside the screen.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use banksman_core::TaskId;
use banksman_runtime::{Project, workspaces};

/// How often git is asked at most, and how many worktrees.
const EVERY: Duration = Duration::from_secs(15);
const WORKTREES: usize = 16;

/// A task with its worktree, and the commit that this began with.
pub(crate) type Worktree = (TaskId, PathBuf, String);

/// What is known of the worktrees: `+120 -8`.
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

    /// Takes what was found since the last time, and asks again when that is old.
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
        let (tell, answer) = channel();
        let project = project.clone();
        let ask = move || {
            let Ok(repository) = workspaces::repository(&project) else { return };
            let size = |(task, path, base): Worktree| {
                let size = repository.size(&path, &base).ok()?;
                Some((task, format!("+{} -{}", size.added, size.removed)))
            };
            // The screen may be gone.
            tell.send(worktrees.into_iter().filter_map(size).collect()).ok();
        };
        // Without a thread the column stays empty.
        if std::thread::Builder::new().spawn(ask).is_ok() {
            (self.asked, self.answer) = (Some(Instant::now()), Some(answer));
        }
    }
}
