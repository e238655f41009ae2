//! The checkouts of a branch, and whether they have changes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Git, GitError};

/// A directory in which a branch is checked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checkout {
    pub(super) path: PathBuf,
    /// A rebase of the branch is in progress there; the branch moves when it ends.
    pub(super) is_rebasing: bool,
}

impl Git {
    /// The checkouts of a branch. One whose directory is gone does not count, but is an error if its worktree is
    /// locked: it will come back.
    pub(super) fn checkouts(&self, branch: &str) -> Result<Vec<Checkout>, GitError> {
        let name = format!("refs/heads/{branch}");
        let list = self.get(&["worktree", "list", "--porcelain", "-z"])?;
        let mut found = Vec::new();
        let (mut main, mut path, mut gone) = (None, None, None);
        for line in list.split(|byte| *byte == 0) {
            if let Some(directory) = line.strip_prefix(b"worktree ") {
                let directory = PathBuf::from(OsStr::from_bytes(directory));
                // The main checkout is listed first.
                path = Some(if main.is_none() { self.main(directory)? } else { directory });
                main = main.or_else(|| path.clone());
                gone = None;
            } else if line.strip_prefix(b"branch ") == Some(name.as_bytes()) {
                gone = path.clone().filter(|path| !path.is_dir());
                found.extend(path.take().filter(|path| path.is_dir()).map(|path| Checkout { path, is_rebasing: false }));
            } else if line.starts_with(b"locked")
                && let Some(path) = gone.take()
            {
                return Err(GitError::Away(path));
            }
        }
        found.extend(
            self.rebasing(&name, &main.unwrap_or_default())?.into_iter().map(|path| Checkout { path, is_rebasing: true }),
        );
        Ok(found)
    }

    /// The main checkout. Git lists the parent of its own directory, which is wrong for a submodule and for a
    /// repository whose `.git` is elsewhere.
    fn main(&self, listed: PathBuf) -> Result<PathBuf, GitError> {
        if listed.join(".git").exists() {
            return Ok(listed);
        }
        let is_here = self.place("--git-dir")? == self.common()?;
        let git = if is_here { self.clone() } else { self.at(&listed) };
        let top = git.ask(&["rev-parse", "--show-toplevel"])?;
        // There is no main checkout, or its path is unknown from here; git reports that when it runs there.
        Ok(if top.status == 0 { OsStr::from_bytes(top.stdout.strip_suffix(b"\n").unwrap_or(&top.stdout)).into() } else { listed })
    }

    /// The worktrees in which a rebase of a branch is in progress. Git lists them without a branch.
    fn rebasing(&self, name: &str, main: &Path) -> Result<Vec<PathBuf>, GitError> {
        let common = self.common()?;
        let is_rebasing = |dir: &Path| {
            let head = |kind: &str| fs::read_to_string(dir.join(kind).join("head-name")).unwrap_or_default();
            head("rebase-merge").trim_end() == name || head("rebase-apply").trim_end() == name
        };
        let mut found: Vec<PathBuf> = is_rebasing(&common).then(|| main.into()).into_iter().collect();
        for linked in fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if is_rebasing(&linked) {
                let link = fs::read(linked.join("gitdir")).unwrap_or_default();
                found.extend(Path::new(OsStr::from_bytes(link.strip_suffix(b"\n").unwrap_or(&link))).parent().map(Into::into));
            }
        }
        Ok(found)
    }

    /// The paths in a checkout that differ from its commit, including new files and changes inside of submodules. New
    /// directories are listed as one path.
    pub(super) fn changes(&self, checkout: &Checkout) -> Result<Vec<String>, GitError> {
        self.differing(checkout, &["--untracked-files=normal"])
    }

    /// Every file of the checkout that differs from its commit, including all files of new directories.
    pub(super) fn every_change(&self) -> Result<Vec<String>, GitError> {
        let checkout = Checkout { path: self.directory.clone(), is_rebasing: false };
        self.differing(&checkout, &["--untracked-files=all"])
    }

    /// Whether no tracked file differs, which could be in the way of a merge. Says nothing about new files: the result
    /// is not known yet.
    pub(super) fn can_move(&self, checkout: &Checkout) -> Result<bool, GitError> {
        Ok(self.differing(checkout, &["--untracked-files=no", "--ignore-submodules=dirty"])?.is_empty())
    }

    /// A submodule at another commit is no change: it stays where it is when the branch around it moves, until the user
    /// updates it. Banksman's own files do not count either: a changed setting must not hold up a merge.
    fn differing(&self, checkout: &Checkout, changes: &[&str]) -> Result<Vec<String>, GitError> {
        let args = [&["status", "--porcelain=v2", "--no-renames", "-z"], changes].concat();
        let list = self.at(&checkout.path).get(&args)?;
        // The user's settings can add header lines, which begin with `# `.
        let entries = list.split(|byte| *byte == 0).filter(|entry| !entry.is_empty() && !entry.starts_with(b"# "));
        let paths = entries.filter(|entry| !entry.starts_with(b"1 .M SC.. ")).map(path_of);
        Ok(paths.filter(|path| !is_own(path)).collect())
    }

    /// The operation that is in progress in a checkout. It moves the branch when it ends, even if no file has changed.
    pub(super) fn under_way(&self, checkout: &Checkout) -> Result<Option<&'static str>, GitError> {
        if checkout.is_rebasing {
            return Ok(Some("rebase"));
        }
        let names = ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"].into_iter();
        let mut kinds = names.zip(["merge", "cherry-pick", "revert"]);
        if let Some(own) = own_dir(&checkout.path) {
            return Ok(kinds.find(|(name, _)| own.join(name).exists()).map(|(_, what)| what));
        }
        let asked = b"MERGE_HEAD\nCHERRY_PICK_HEAD\nREVERT_HEAD\n";
        let answer = self.at(&checkout.path).ask_with(&["cat-file", "--batch-check"], asked)?;
        if answer.status != 0 {
            return Err(answer.failed());
        }
        let heads = String::from_utf8_lossy(&answer.stdout);
        Ok(heads.lines().zip(kinds).find(|(line, _)| !line.ends_with(" missing")).map(|(_, (_, what))| what))
    }
}

/// Git's directory for a checkout, if heads are files there.
fn own_dir(checkout: &Path) -> Option<PathBuf> {
    let link = checkout.join(".git");
    let own = match fs::read(&link) {
        Ok(text) => checkout.join(OsStr::from_bytes(text.strip_prefix(b"gitdir: ")?.trim_ascii_end())),
        Err(_) => link,
    };
    (own.join("HEAD").exists() && !own.join("reftable").exists()).then_some(own)
}

/// Whether a path is inside of a project's folder, anywhere in the repository.
fn is_own(path: &str) -> bool {
    path.split('/').any(|part| part == ".banksman")
}

/// The path in an entry of `git status`. It is the last field; the kind of the entry determines the number of fields before it.
fn path_of(entry: &[u8]) -> String {
    let before = match entry.first() {
        Some(b'1') => 8,
        Some(b'u') => 10,
        _ => 1,
    };
    let path = entry.splitn(before + 1, |byte| *byte == b' ').last().unwrap_or_default();
    String::from_utf8_lossy(path).into_owned()
}
