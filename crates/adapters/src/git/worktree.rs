//! The worktrees that tasks work in: made, found again, and checked.
//!
//! Git does not serialize processes that add worktrees at the same time: each reads the half-made worktrees of the
//! others, and fails. So that step alone runs under a lock of ours, and is repeated after any error. The files, which
//! take nearly all of the time, are written outside of the lock.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::journal::Journal;
use super::scratch::remove_half_made;
use super::settling::settle_all;
use super::transaction::{Transaction, Update};
use super::{Git, GitError, Id, check, system};

/// How long one command of git may take. To end it sooner, the caller ends the session.
const LIMIT: Duration = Duration::from_secs(3_600);

/// How often adding a worktree is tried, and the pause before the second time, which doubles.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);

/// How long to wait for another process's lock of an index or a branch.
const FOREIGN_LOCK: Duration = Duration::from_secs(2);

/// The repository of a project.
#[derive(Debug, Clone)]
pub struct Repository {
    pub(super) git: Git,
    /// Git's directory, which all worktrees share.
    pub(super) common: PathBuf,
    /// The top of the checkout that the directory is in; `None` in a bare repository.
    top: Option<PathBuf>,
    /// The path from there to the directory.
    prefix: PathBuf,
}

/// What exists at the path of a worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// Nothing, although git has a worktree registered there: the directory was deleted.
    Deleted,
    /// A worktree that a killed git has registered and not completed: it has no HEAD and no files yet.
    Unfinished,
    /// A worktree of this repository.
    Worktree,
    Other,
}

impl Repository {
    /// The repository that a directory belongs to, if there is one.
    pub fn of(directory: &Path) -> Result<Option<Repository>, GitError> {
        let mut git = Git::new(directory, LIMIT);
        let args = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let answer = git.ask(&args)?;
        if answer.status != 0 {
            return Ok(None);
        }
        let common: PathBuf = OsStr::from_bytes(answer.stdout.strip_suffix(b"\n").unwrap_or(&answer.stdout)).into();
        git.common = Some(common.clone());
        let top = git.path_line(&["rev-parse", "--path-format=absolute", "--show-toplevel"]).ok();
        let prefix = match &top {
            Some(_) => git.path_line(&["rev-parse", "--show-prefix"])?,
            None => PathBuf::new(),
        };
        Ok(Some(Repository { git, common, top, prefix }))
    }

    /// Git's directory, which all worktrees share.
    pub fn common_dir(&self) -> &Path {
        &self.common
    }

    /// The top of the checkout that the directory is in.
    pub fn top(&self) -> Option<&Path> {
        self.top.as_deref()
    }

    /// The path from the top of the checkout to the directory.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The commit that a revision names, if there is one.
    pub fn commit(&self, revision: &str) -> Result<Option<String>, GitError> {
        let answer =
            self.git.ask(&["rev-parse", "--quiet", "--verify", "--end-of-options", &format!("{revision}^{{commit}}")])?;
        Ok((answer.status == 0).then(|| answer.text()))
    }

    /// The branch that the directory is on; `None` if its HEAD is detached.
    pub fn branch(&self) -> Result<Option<String>, GitError> {
        branch_at(&self.git)
    }

    /// Refuses the names that git refuses for a branch.
    pub fn check_branch(&self, name: &str) -> Result<(), GitError> {
        check(name)?;
        match self.git.says(&["check-ref-format", "--branch", name]) {
            Ok(true) => Ok(()),
            _ => Err(GitError::Name(name.into())),
        }
    }

    /// Another directory in which a branch is checked out.
    pub fn checked_out(&self, branch: &str, except: &Path) -> Result<Option<PathBuf>, GitError> {
        let _lock = self.lock()?;
        let except = except.canonicalize().unwrap_or_else(|_| except.into());
        Ok(self.git.checkouts(branch)?.into_iter().map(|checkout| checkout.path).find(|path| *path != except))
    }

    pub fn find(&self, path: &Path) -> Result<Found, GitError> {
        let admin = self.admin_dir(path);
        if admin.as_ref().is_some_and(|admin| !admin.join("HEAD").exists()) && has_only_link(path) {
            return Ok(Found::Unfinished);
        }
        let registered = admin.is_some();
        match fs::symlink_metadata(path.join(".git")) {
            Ok(_) if registered => Ok(Found::Worktree),
            Ok(_) => Ok(Found::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_dir(path) {
                Ok(mut entries) => Ok(if entries.next().is_some() {
                    Found::Other
                } else if registered {
                    Found::Deleted
                } else {
                    Found::Nothing
                }),
                Err(_) => Ok(if registered { Found::Deleted } else { Found::Nothing }),
            },
            Err(error) => Err(system(path)(error)),
        }
    }

    /// Git's own directory of the worktree at a path.
    pub(super) fn admin_dir(&self, path: &Path) -> Option<PathBuf> {
        let wanted = real(path).join(".git");
        let entries = fs::read_dir(self.common.join("worktrees")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).find(|admin| {
            let link = fs::read(admin.join("gitdir")).unwrap_or_default();
            let link = PathBuf::from(OsStr::from_bytes(link.strip_suffix(b"\n").unwrap_or(&link)));
            link == wanted || link.parent().map(real).is_some_and(|parent| parent.join(".git") == wanted)
        })
    }

    /// Git's own directory of a worktree.
    pub fn own_dir(&self, path: &Path) -> Result<PathBuf, GitError> {
        self.git.at(path).place("--git-dir")
    }

    /// The same repository, seen from the top of a checkout.
    #[must_use]
    pub fn at_top(&self, top: &Path) -> Repository {
        Repository { git: self.git.at(top), ..self.clone() }
    }

    /// All linked worktrees of the repository: their paths as git knows them.
    pub fn worktrees(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.common.join("worktrees")).into_iter().flatten().flatten();
        let link = |admin: PathBuf| {
            let link = fs::read(admin.join("gitdir")).ok()?;
            Some(Path::new(OsStr::from_bytes(link.strip_suffix(b"\n").unwrap_or(&link))).parent()?.to_owned())
        };
        entries.filter_map(|entry| link(entry.path())).collect()
    }

    /// Makes a worktree at a free path, on a branch that starts at `base` unless it exists already. A lock of the
    /// branch that a killed git has left is removed: no worktree has the branch, so no other process moves it.
    pub fn make(&self, path: &Path, branch: &str, base: &str) -> Result<(), GitError> {
        remove_left(vec![self.branch_lock(branch)])?;
        self.add(path, branch, base)?;
        let git = self.git.at(path);
        // Only the index and the files: HEAD is in place.
        let made = git.get(&["read-tree", "-m", "-u", "--no-recurse-submodules", "HEAD"]);
        made.map(drop).map_err(|error| name_full_disk(path, error))
    }

    fn add(&self, path: &Path, branch: &str, base: &str) -> Result<(), GitError> {
        let _lock = self.lock()?;
        let mut pause = PAUSE;
        for attempt in 1.. {
            let name = [OsStr::new(branch)];
            let new: [&OsStr; 3] = ["--no-track".as_ref(), "-b".as_ref(), branch.as_ref()];
            let is_new = self.git.tip(branch)?.is_none();
            let mut args: Vec<&OsStr> = vec!["worktree".as_ref(), "add".as_ref(), "--quiet".as_ref(), "--no-checkout".as_ref()];
            args.extend(new.iter().filter(|_| is_new));
            args.extend(["--".as_ref(), path.as_os_str()]);
            args.extend(if is_new { [OsStr::new(base)] } else { name });
            match self.git.get(&args) {
                Ok(_) => return Ok(()),
                Err(error) if attempt == TRIES => return Err(error),
                Err(_) => {
                    self.drop_half_added(path);
                    remove_half_made(&self.common);
                }
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        unreachable!("the last try returns")
    }

    /// Removes what a failed or killed `worktree add` may have left, which has no files yet. Git itself removes only
    /// worktrees that it can read, and leaves one without HEAD locked for good.
    pub(super) fn drop_half_added(&self, path: &Path) {
        fs::remove_file(path.join(".git")).ok();
        fs::remove_dir(path).ok();
        if let Some(admin) = self.admin_dir(path) {
            let args: [&OsStr; 4] = ["worktree".as_ref(), "remove".as_ref(), "--".as_ref(), path.as_ref()];
            let is_removed = self.git.ask(&args).is_ok_and(|answer| answer.status == 0);
            if !is_removed && !admin.join("HEAD").exists() {
                fs::remove_dir_all(&admin).ok();
            }
        }
    }

    /// Takes the lock under which worktrees of this repository are registered and unregistered. It is held until it is dropped.
    pub(super) fn lock(&self) -> Result<File, GitError> {
        let folder = self.common.join("banksman");
        fs::create_dir_all(&folder).map_err(system(&folder))?;
        let path = folder.join("worktrees.lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(system(&path))?;
        file.lock().map_err(system(&path))?;
        Ok(file)
    }

    /// Runs the hook that `git worktree add` would have run. Returns the error message if it failed.
    pub fn run_checkout_hook(&self, path: &Path) -> Result<Option<String>, GitError> {
        let git = self.git.at(path);
        let head = git.line(&["rev-parse", "--verify", "HEAD"])?;
        let none = "0".repeat(head.len());
        let answer = git.ask(&["hook", "run", "--ignore-missing", "post-checkout", "--", &none, &head, "1"])?;
        Ok((answer.status != 0).then(|| answer.failed().to_string()))
    }

    /// Removes the locks of index, HEAD and branch that a killed git has left in a worktree, and returns them. The
    /// caller knows that no session works there; the locks of a person's git get time to go.
    pub fn unlock(&self, path: &Path) -> Result<Vec<PathBuf>, GitError> {
        let Some(admin) = self.admin_dir(path) else { return Ok(Vec::new()) };
        let head = fs::read_to_string(admin.join("HEAD")).unwrap_or_default();
        let branch = head.strip_prefix("ref: refs/heads/").map(|name| self.branch_lock(name.trim()));
        remove_left([admin.join("index.lock"), admin.join("HEAD.lock")].into_iter().chain(branch).collect())
    }

    /// The lock file of a branch.
    fn branch_lock(&self, branch: &str) -> PathBuf {
        self.common.join("refs/heads").join(format!("{branch}.lock"))
    }

    /// Deletes a ref that is at a commit. The inner error is git's message. Deleting locks all refs for a moment: if
    /// git is killed meanwhile, a journal shows the next process that the lock is ours.
    pub(super) fn delete_ref(&self, name: &str, at: &str) -> Result<Result<(), String>, GitError> {
        let _lock = self.lock()?;
        let deleted = self.try_delete_ref(name, at)?;
        if deleted.is_ok() || settle_all(&self.git, &self.common, None).is_ok_and(|settled| settled.is_empty()) {
            return Ok(deleted);
        }
        self.try_delete_ref(name, at)
    }

    fn try_delete_ref(&self, name: &str, at: &str) -> Result<Result<(), String>, GitError> {
        let journal = Journal::begin(&self.common, &self.common.join("banksman/refs"))?;
        let delete = [Update::Delete { name: name.into(), at: at.into() }];
        let prepared = Transaction::prepare(&self.git, &self.common, &journal, "banksman: delete", &delete)?;
        let deleted = prepared.and_then(Transaction::commit);
        if !journal.has_left_locks.get() {
            journal.end()?;
        }
        Ok(deleted)
    }

    /// Whether git ignores a path, even if it is tracked.
    pub fn is_ignored(&self, path: &Path) -> Result<bool, GitError> {
        let args: [&OsStr; 5] =
            ["check-ignore".as_ref(), "--quiet".as_ref(), "--no-index".as_ref(), "--".as_ref(), path.as_ref()];
        let answer = self.git.ask(&args)?;
        Ok(answer.status == 0)
    }

    /// The commit of a worktree, and its branch if it is on one.
    pub fn head(&self, path: &Path) -> Result<(Id, Option<String>), GitError> {
        let git = self.git.at(path);
        Ok((git.line(&["rev-parse", "--verify", "HEAD"])?, branch_at(&git)?))
    }
}

/// Whether a directory is empty, missing, or has nothing but the `.git` file that leads to its repository.
fn has_only_link(path: &Path) -> bool {
    fs::read_dir(path).map_or(true, |entries| entries.flatten().all(|entry| entry.file_name() == ".git"))
}

/// Removes locks that stay longer than a live git would hold them, and returns them.
fn remove_left(mut locks: Vec<PathBuf>) -> Result<Vec<PathBuf>, GitError> {
    let until = Instant::now() + FOREIGN_LOCK;
    locks.retain(|lock| lock.exists());
    while !locks.is_empty() && Instant::now() < until {
        std::thread::sleep(PAUSE);
        locks.retain(|lock| lock.exists());
    }
    locks.iter().try_for_each(|lock| fs::remove_file(lock).map_err(system(lock)))?;
    Ok(locks)
}

/// Adds the reason that git does not name when it cannot write a file to a full disk.
pub(super) fn name_full_disk(path: &Path, error: GitError) -> GitError {
    /// A disk with less free space counts as full: the rest may be too small for the file.
    const FULL: u64 = 64 << 10;
    let free = rustix::fs::statvfs(path).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    match error {
        GitError::Failed { what, said } if free.is_ok_and(|free| free < FULL) && !said.contains("No space left") => {
            GitError::Failed { what, said: format!("{said} (No space left on device: {})", path.display()) }
        }
        error => error,
    }
}

/// The branch that a checkout is on; `None` if its HEAD is detached.
pub(super) fn branch_at(git: &Git) -> Result<Option<String>, GitError> {
    let answer = git.ask(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
    Ok((answer.status == 0).then(|| answer.text()))
}

/// A path as the system resolves it, as far as it exists.
fn real(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(parent), Some(name)) => parent.canonicalize().unwrap_or_else(|_| parent.into()).join(name),
        (Err(_), ..) => path.into(),
    }
}
