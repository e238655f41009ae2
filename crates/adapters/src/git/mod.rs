//! Git, by its command line: what is known of branches, and merging them.
//!
//! Names of branches never become options or expressions: they are looked up as whole names, and everything after that is told
//! the ids of commits. Nothing asks anybody, pages, or stays behind.
//!
//! Files: `facts` what is known; `checkouts` where a branch is checked out; `merge` the merge; `scratch` the worktree it works in;
//! `moving` the checkout that moves along.

mod checkouts;
mod facts;
mod merge;
mod moving;
mod scratch;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use thiserror::Error;

use crate::program::{self, Kept};

pub use merge::{MergeError, Merged, merge};

/// How much of what git prints is read. More than that is no list of files that anybody would look at.
const OUTPUT: usize = 256 << 20;

/// Variables that would lead git to another repository than the one that is meant, as in a hook.
const LOCAL: [&str; 17] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_GRAFT_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_ATTR_SOURCE",
    "GIT_QUARANTINE_PATH",
];

/// The first version that knows all options which a merge uses: `rebase --no-update-refs` came last.
const NEEDED: (u32, u32) = (2, 38);

/// Settings that would leave a process behind.
const SETTINGS: [&str; 3] = ["gc.auto=0", "maintenance.auto=false", "core.fsmonitor=false"];

/// Why git could not be asked.
#[derive(Debug, Error)]
pub enum GitError {
    /// No branch can have this name.
    #[error("{0:?} is no name of a branch")]
    Name(Box<str>),
    /// There is no such branch.
    #[error("no such branch: {0}")]
    NoBranch(Box<str>),
    /// A checkout of the branch is on a disk that is not there now, as far as git was told.
    #[error("the checkout at {} is locked: its directory is not there", .0.display())]
    Away(PathBuf),
    /// It took too long.
    #[error("git {0} took too long")]
    TimedOut(String),
    /// It failed.
    #[error("git {what} failed: {said}")]
    Failed {
        /// What it was asked to do.
        what: String,
        /// What it said.
        said: String,
    },
    /// It does not know all that is asked of it.
    #[error("git {0} is too old: merging needs {major}.{minor} or later", major = NEEDED.0, minor = NEEDED.1)]
    TooOld(String),
    /// The system refuses.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A repository, seen from one of its directories.
#[derive(Debug, Clone)]
pub struct Git {
    directory: PathBuf,
    limit: Duration,
    /// Settings beside those of the repository.
    settings: Vec<String>,
    /// Another index than that of the directory.
    index: Option<PathBuf>,
}

/// The id of a commit.
type Id = String;

/// What git came to.
struct Answer {
    what: String,
    status: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Git {
    /// The repository that `directory` belongs to. One command may take `limit`.
    pub fn new(directory: &Path, limit: Duration) -> Git {
        Git { directory: directory.into(), limit, settings: SETTINGS.map(Into::into).into(), index: None }
    }

    /// Refuses a git that cannot merge. One that does not say its version in the usual way is taken for a new one.
    fn check_version(&self) -> Result<(), GitError> {
        let line = self.line(&["version"])?;
        let version = line.split(' ').nth(2).unwrap_or_default();
        let mut numbers = version.split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < NEEDED => Err(GitError::TooOld(version.into())),
            _ => Ok(()),
        }
    }

    /// The same repository, seen from another directory.
    fn at(&self, directory: &Path) -> Git {
        Git { directory: directory.into(), ..self.clone() }
    }

    /// With one more setting.
    fn with(mut self, setting: &str) -> Git {
        self.settings.push(setting.into());
        self
    }

    /// With another index.
    fn with_index(mut self, index: &Path) -> Git {
        self.index = Some(index.into());
        self
    }

    fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new("git");
        command.arg("--no-pager").args(self.settings.iter().flat_map(|setting| ["-c", setting]));
        command.args(args).current_dir(&self.directory).stdin(Stdio::null());
        for name in LOCAL {
            command.env_remove(name);
        }
        command.envs(self.index.as_ref().map(|index| ("GIT_INDEX_FILE", index)));
        // Nobody is there to be asked, to edit or to read page by page.
        command.envs([("GIT_TERMINAL_PROMPT", "0"), ("LC_ALL", "C"), ("GIT_PAGER", "cat"), ("GIT_EDITOR", "true")]);
        command.envs([("GIT_SEQUENCE_EDITOR", "true"), ("GIT_ASKPASS", "true"), ("SSH_ASKPASS", "true")]);
        // Whoever only looks must not hold up who works.
        command.env("GIT_OPTIONAL_LOCKS", "0");
        command
    }

    /// Asks git, whatever it answers.
    fn ask<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Answer, GitError> {
        self.end(self.command(args), args.first().map(|arg| arg.as_ref().to_string_lossy().into()).unwrap_or_default())
    }

    fn end(&self, command: Command, what: String) -> Result<Answer, GitError> {
        let answer = self.start_of(command, what, OUTPUT)?;
        if answer.stdout.len() == OUTPUT {
            return Err(GitError::Failed { what: answer.what, said: "it printed too much".into() });
        }
        Ok(answer)
    }

    /// Like `end`, with no more than the first bytes of what git prints.
    fn start_of(&self, command: Command, what: String, bytes: usize) -> Result<Answer, GitError> {
        let system = |source| GitError::System { what: format!("git {what}"), source };
        let ended = program::run(command, self.limit, Kept::first(bytes), Kept::last(4_096)).map_err(system)?;
        let Some(ended) = ended else { return Err(GitError::TimedOut(what)) };
        let status = ended.status.code().unwrap_or_else(|| 128 + ended.status.signal().unwrap_or_default());
        let stderr = String::from_utf8_lossy(&ended.stderr.bytes).trim().to_owned();
        Ok(Answer { what, status, stdout: ended.stdout.bytes, stderr })
    }

    /// What git prints, if it succeeds.
    fn get<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>, GitError> {
        let answer = self.ask(args)?;
        if answer.status == 0 { Ok(answer.stdout) } else { Err(answer.failed()) }
    }

    /// A line that git prints, if it succeeds.
    fn line<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.get(args)?).trim_end_matches('\n').to_owned())
    }

    /// A path that git prints on a line of its own, if it succeeds. Paths are bytes.
    fn path_line<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<PathBuf, GitError> {
        let bytes = self.get(args)?;
        Ok(OsStr::from_bytes(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into())
    }

    /// Whether git says yes by its exit status.
    fn says<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<bool, GitError> {
        let answer = self.ask(args)?;
        match answer.status {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(answer.failed()),
        }
    }
}

impl Answer {
    fn failed(&self) -> GitError {
        let said = if self.stderr.is_empty() { format!("exit status {}", self.status) } else { self.stderr.clone() };
        GitError::Failed { what: self.what.clone(), said }
    }
}

/// Refuses what can be no name of a branch. Git itself refuses the rest, as nothing has such a name.
fn check(name: &str) -> Result<(), GitError> {
    if name.is_empty() || name.starts_with('-') || name.chars().any(char::is_control) {
        return Err(GitError::Name(name.into()));
    }
    Ok(())
}
