//! Git, by its command line: facts about branches, merges, and the worktrees of tasks.
//!
//! Names of branches never become options or expressions: they are looked up as full ref names, and all later commands
//! get the ids of commits. No git prompts, pages, or leaves a process behind.
//!
//! Files: `facts` about branches; `checkouts` of a branch; `merge` merges in the worktree of `scratch`; `land` makes
//! and lands the commits of a merge queue; `target` is the branch that both move. The move of the target and its
//! checkout: `journal` notes it for a process that settles it after a crash; `transaction` changes the refs,
//! `ref_locks` finds the locks of a killed one; `moving` moves the checkout, with `staging` (the new files), `files`
//! (single files), `steps` (one for each path) and `writers` (programs that have a file open); `blob` compares a file
//! with a commit; `collection` keeps `git gc` away; `settling` settles killed merges; `landed` is the record of what
//! was merged.
//!
//! The worktrees of tasks: `worktree` makes and finds them, `saving` saves their content, `removal` removes them after
//! that or puts them onto another commit, `collecting` makes the commit that lands, and `comparing` shows their
//! changes.

mod blob;
mod checkouts;
mod collecting;
mod collection;
mod comparing;
mod facts;
mod files;
mod journal;
mod land;
mod landed;
mod merge;
mod moving;
#[cfg(test)]
mod moving_tests;
mod ref_locks;
mod removal;
mod saving;
mod scratch;
mod settling;
mod staging;
mod steps;
mod target;
mod transaction;
mod worktree;
mod writers;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use thiserror::Error;

use crate::program::{self, Kept};

pub use collecting::{Collected, Collecting, Leftovers};
pub use comparing::{Diff, DiffSize};
pub use land::{Built, Lander, Message, Moved};
pub use merge::{MergeError, Merged, merge};
pub use removal::Removal;
pub use saving::{SAVED_LIMIT, SaveResult, Saved, Saving};
pub use settling::{Leftover, Settled, leftovers, settle_leftovers};
pub use worktree::{Found, Repository};

/// How much output of git is read. No useful list of files is longer.
const OUTPUT: usize = 256 << 20;

/// Variables that would make git use another repository, as they do in a hook.
pub const LOCAL_VARIABLES: [&str; 17] = [
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

/// The first version that knows all options of a merge. The newest is `rebase --no-update-refs`.
const NEEDED: (u32, u32) = (2, 38);

/// The first version that reads hooks from its settings.
const HOOKS_BY_SETTINGS: (u32, u32) = (2, 54);

/// Settings that would leave a process behind.
const SETTINGS: [&str; 3] = ["gc.auto=0", "maintenance.auto=false", "core.fsmonitor=false"];

/// Why git failed.
#[derive(Debug, Error)]
pub enum GitError {
    /// The name is no valid branch name.
    #[error("{0:?} is no name of a branch")]
    Name(Box<str>),
    /// There is no such branch.
    #[error("no such branch: {0}")]
    NoBranch(Box<str>),
    /// A checkout of the branch is locked and its directory is missing, for example because it is on a disk that is not mounted.
    #[error("the checkout at {} is locked: its directory is not there", .0.display())]
    Away(PathBuf),
    #[error("git {0} took too long")]
    TimedOut(String),
    #[error("git {what} failed: {said}")]
    Failed { what: String, said: String },
    /// The installed git lacks options that a merge needs.
    #[error("git {0} is too old: merging needs {major}.{minor} or later", major = NEEDED.0, minor = NEEDED.1)]
    TooOld(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System { what: String, source: io::Error },
}

/// A repository, seen from one of its directories.
#[derive(Debug, Clone)]
pub struct Git {
    directory: PathBuf,
    limit: Duration,
    /// Settings beside those of the repository.
    settings: Vec<String>,
    /// Variables beside those of the process.
    variables: Vec<(&'static str, OsString)>,
    /// The directory that all checkouts of the repository share, if it is known. It never changes.
    common: Option<PathBuf>,
    /// The version, if it is known.
    version: Option<(u32, u32)>,
}

/// The id of a commit.
type Id = String;

/// How often git is repeated after it has failed on a worktree that another git is adding, and the pause between.
const HALF_MADE_TRIES: usize = 50;
const HALF_MADE_PAUSE: Duration = Duration::from_millis(20);

/// The exit status and the output of git.
struct Answer {
    what: String,
    status: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Git {
    /// The repository that `directory` belongs to. One command may take `limit`.
    pub fn new(directory: &Path, limit: Duration) -> Git {
        Git {
            directory: directory.into(),
            limit,
            settings: SETTINGS.map(Into::into).into(),
            variables: Vec::new(),
            common: None,
            version: None,
        }
    }

    /// Refuses a git that is too old to merge. A version in an unknown format counts as new.
    fn check_version(mut self) -> Result<Git, GitError> {
        let line = self.line(&["version"])?;
        let version = line.split(' ').nth(2).unwrap_or_default();
        let mut numbers = version.split('.').map(str::parse);
        if let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) {
            self.version = Some((major, minor));
        }
        if self.version.is_some_and(|version| version < NEEDED) { Err(GitError::TooOld(version.into())) } else { Ok(self) }
    }

    /// Whether hooks may come from settings instead of files.
    fn knows_hooks_by_settings(&self) -> bool {
        self.version.is_none_or(|version| version >= HOOKS_BY_SETTINGS)
    }

    /// The directory that all checkouts of the repository share.
    fn common(&self) -> Result<PathBuf, GitError> {
        match &self.common {
            Some(common) => Ok(common.clone()),
            None => self.place("--git-common-dir"),
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

    /// With one more variable.
    fn with_variable(mut self, name: &'static str, value: impl Into<OsString>) -> Git {
        self.variables.push((name, value.into()));
        self
    }

    /// With another index than that of the directory.
    fn with_index(self, index: &Path) -> Git {
        self.with_variable("GIT_INDEX_FILE", index)
    }

    /// A directory that `rev-parse` names, such as `--git-common-dir`.
    fn place(&self, option: &str) -> Result<PathBuf, GitError> {
        self.path_line(&["rev-parse", "--path-format=absolute", option])
    }

    /// Several of them at once.
    fn places<const N: usize>(&self, options: [&[&str]; N]) -> Result<[PathBuf; N], GitError> {
        let args = [&["rev-parse", "--path-format=absolute"], &options.concat()[..]].concat();
        let list = self.get(&args)?;
        let lines = list.strip_suffix(b"\n").unwrap_or(&list).split(|byte| *byte == b'\n');
        let all: Vec<PathBuf> = lines.map(|line| PathBuf::from(OsStr::from_bytes(line))).collect();
        if let Ok(all) = all.try_into() {
            return Ok(all);
        }
        // One of the paths contains a line break.
        let one = |option: &[&str]| self.path_line(&[&["rev-parse", "--path-format=absolute"], option].concat());
        let all = options.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
        Ok(all.try_into().expect("there are as many paths as options"))
    }

    fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new("git");
        command.arg("--no-pager").args(self.settings.iter().flat_map(|setting| ["-c", setting]));
        command.args(args).current_dir(&self.directory).stdin(Stdio::null());
        for name in LOCAL_VARIABLES {
            command.env_remove(name);
        }
        // There is no person to answer a prompt, to edit or to page.
        command.envs([("GIT_TERMINAL_PROMPT", "0"), ("LC_ALL", "C"), ("GIT_PAGER", "cat"), ("GIT_EDITOR", "true")]);
        command.envs([("GIT_SEQUENCE_EDITOR", "true"), ("GIT_ASKPASS", "true"), ("SSH_ASKPASS", "true")]);
        // Reading commands must not block writing ones.
        command.env("GIT_OPTIONAL_LOCKS", "0");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs git, with any exit status.
    fn ask<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Answer, GitError> {
        let what = name_of(args);
        self.past_half_made(|| self.end(self.command(args), what.clone()))
    }

    /// Repeats a git that has failed on a half-made worktree. Many commands read all worktrees first, and fail at one
    /// that another git is adding. Adding takes milliseconds; the half-made worktree of a killed git is removed.
    fn past_half_made(&self, ask: impl Fn() -> Result<Answer, GitError>) -> Result<Answer, GitError> {
        for _ in 0..HALF_MADE_TRIES {
            let answer = ask()?;
            if answer.status == 0 || !answer.has_met_half_made() {
                return Ok(answer);
            }
            scratch::remove_half_made(&self.place("--git-common-dir")?);
            std::thread::sleep(HALF_MADE_PAUSE);
        }
        ask()
    }

    /// Runs git with input on stdin.
    fn ask_with<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Result<Answer, GitError> {
        let what = name_of(args);
        let file = || -> io::Result<File> {
            let mut file = File::from(memfd_create("banksman", MemfdFlags::CLOEXEC)?);
            file.write_all(input)?;
            file.rewind()?;
            Ok(file)
        };
        self.past_half_made(|| {
            let mut command = self.command(args);
            command.stdin(file().map_err(|source| GitError::System { what: what.clone(), source })?);
            self.end(command, what.clone())
        })
    }

    /// Makes a pack, with a path that begins with `path`, of all objects of a commit that another does not have.
    /// Returns false if an object is missing.
    fn pack(&self, commit: &Id, without: &Id, path: &Path) -> Result<bool, GitError> {
        let args = ["pack-objects".as_ref(), "--revs".as_ref(), "--quiet".as_ref(), path.as_os_str()];
        Ok(self.ask_with(&args, format!("{commit}\n^{without}\n").as_bytes())?.status == 0)
    }

    fn end(&self, command: Command, what: String) -> Result<Answer, GitError> {
        let answer = self.start_of(command, what, OUTPUT)?;
        if answer.stdout.len() == OUTPUT {
            return Err(GitError::Failed { what: answer.what, said: "it printed too much".into() });
        }
        Ok(answer)
    }

    /// Like `end`, with only the first bytes of the output.
    fn start_of(&self, command: Command, what: String, bytes: usize) -> Result<Answer, GitError> {
        let system = |source| GitError::System { what: format!("git {what}"), source };
        let ended = program::run(command, self.limit, Kept::first(bytes), Kept::last(4_096)).map_err(system)?;
        let Some(ended) = ended else { return Err(GitError::TimedOut(what)) };
        let status = ended.status.code().unwrap_or_else(|| 128 + ended.status.signal().unwrap_or_default());
        let stderr = String::from_utf8_lossy(&ended.stderr.bytes).trim().to_owned();
        Ok(Answer { what, status, stdout: ended.stdout.bytes, stderr })
    }

    /// The output of git, which must succeed.
    fn get<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>, GitError> {
        let answer = self.ask(args)?;
        if answer.status == 0 { Ok(answer.stdout) } else { Err(answer.failed()) }
    }

    /// The output of git without line breaks at its end. Git must succeed.
    fn line<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.get(args)?).trim_end_matches('\n').to_owned())
    }

    /// The path that git prints on a line of its own, as bytes. Git must succeed.
    fn path_line<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<PathBuf, GitError> {
        let bytes = self.get(args)?;
        Ok(OsStr::from_bytes(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into())
    }

    /// Whether git exits with 0, not with 1. Any other status is an error.
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
    /// Whether git has failed on a half-made worktree. The messages are in English, because `LC_ALL` is set.
    fn has_met_half_made(&self) -> bool {
        self.stderr.contains("failed to read") && self.stderr.contains("worktrees/")
    }

    /// The output without surrounding white space.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    fn failed(&self) -> GitError {
        let said = if self.stderr.is_empty() { format!("exit status {}", self.status) } else { self.stderr.clone() };
        GitError::Failed { what: self.what.clone(), said }
    }
}

/// The name of a command, for messages.
fn name_of<S: AsRef<OsStr>>(args: &[S]) -> String {
    args.first().map(|arg| arg.as_ref().to_string_lossy().into()).unwrap_or_default()
}

/// The entries of a list that is separated by zero bytes.
fn zero_separated(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == 0).filter(|entry| !entry.is_empty())
}

/// The same entries as text: names of files.
fn file_names(list: &[u8]) -> Vec<String> {
    zero_separated(list).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// An error of the system, about a path.
fn system(path: &Path) -> impl Fn(io::Error) -> GitError + use<> {
    let what = path.display().to_string();
    move |source| GitError::System { what: what.clone(), source }
}

/// Refuses names that no branch can have. All other invalid names fail later, because no branch has them.
fn check(name: &str) -> Result<(), GitError> {
    if name.is_empty() || name.starts_with('-') || name.chars().any(char::is_control) {
        return Err(GitError::Name(name.into()));
    }
    Ok(())
}
