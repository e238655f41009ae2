//! Removing a worktree, and putting a worktree onto another commit, both after everything in it was saved.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::saving::{SaveResult, Saved, Saving};
use super::worktree::{Found, Repository};
use super::{Git, GitError, Id, file_names, system};

/// Upper bound on saves of one worktree: a process may still write to it.
const SAVES: usize = 4;

/// The result of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    Removed(Option<Saved>),
    /// These repositories inside of the worktree have commits or changes that exist nowhere else. Nothing was removed.
    Embedded(Vec<PathBuf>),
    /// Not everything could be saved. Nothing was removed.
    Incomplete(String),
    /// The path holds something else. Nothing was removed.
    NotOurs,
}

impl Repository {
    /// Saves and removes a worktree, and its branch if `drops_branch`.
    pub fn remove(&self, path: &Path, branch: &str, drops_branch: bool, saving: Saving<'_>) -> Result<Removal, GitError> {
        let mut last = None;
        match self.find(path)? {
            Found::Other => return Ok(Removal::NotOurs),
            Found::Nothing => {}
            Found::Unfinished => {
                let _lock = self.lock()?;
                self.drop_half_added(path);
            }
            Found::Worktree | Found::Deleted => {
                let embedded = self.embedded_work(path)?;
                if !embedded.is_empty() {
                    return Ok(Removal::Embedded(embedded));
                }
                match self.save_all(path, saving)? {
                    SaveResult { incomplete: Some(why), .. } => return Ok(Removal::Incomplete(why)),
                    SaveResult { saved, .. } => last = saved,
                }
                self.unregister(path)?;
            }
        }
        if drops_branch {
            last = self.drop_branch(branch, saving)?.or(last);
        }
        Ok(Removal::Removed(last))
    }

    /// Saves until a save finds nothing new. Returns the last saved state.
    pub(super) fn save_all(&self, path: &Path, saving: Saving<'_>) -> Result<SaveResult, GitError> {
        let mut last = None;
        for _ in 0..SAVES {
            match self.save(path, saving)? {
                SaveResult { saved: None, incomplete } => return Ok(SaveResult { saved: last, incomplete }),
                SaveResult { incomplete: Some(why), saved } => return Ok(SaveResult { saved, incomplete: Some(why) }),
                SaveResult { saved, .. } => last = saved,
            }
        }
        Ok(SaveResult { saved: last, incomplete: Some("its files keep changing".into()) })
    }

    /// Removes the files and git's record of the worktree. Everything is saved.
    fn unregister(&self, path: &Path) -> Result<(), GitError> {
        let _lock = self.lock()?;
        let args: [&OsStr; 6] =
            ["worktree".as_ref(), "remove".as_ref(), "--force".as_ref(), "--force".as_ref(), "--".as_ref(), path.as_ref()];
        let answer = self.git.ask(&args)?;
        // The error of the system names a file that git could not delete, such as one of a root process.
        if path.exists() {
            fs::remove_dir_all(path).map_err(system(path))?;
        }
        match self.admin_dir(path) {
            None => Ok(()),
            Some(_) if answer.status == 0 => Ok(()),
            Some(_) => Err(answer.failed()),
        }
    }

    /// Removes a branch that is not checked out, at the commit that is saved or that another ref reaches.
    fn drop_branch(&self, branch: &str, saving: Saving<'_>) -> Result<Option<Saved>, GitError> {
        let Some(tip) = self.git.tip(branch)? else { return Ok(None) };
        if !self.git.checkouts(branch)?.is_empty() {
            return Ok(None);
        }
        let saved = self.save_commit(&tip, branch, saving)?;
        let name = format!("refs/heads/{branch}");
        // A branch that was moved meanwhile stays.
        self.delete_ref(&name, &tip)?.ok();
        Ok(saved)
    }

    /// The repositories inside of a worktree that have commits or changes that exist nowhere else.
    pub fn embedded_work(&self, path: &Path) -> Result<Vec<PathBuf>, GitError> {
        let mut found = Vec::new();
        if self.find(path)? != Found::Worktree {
            return Ok(found);
        }
        let mut open = vec![path.to_owned()];
        while let Some(directory) = open.pop() {
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                let Ok(kind) = entry.file_type() else { continue };
                if entry.file_name() == ".git" {
                    if directory != path && self.has_own_work(&directory) {
                        found.push(directory.clone());
                    }
                } else if kind.is_dir() {
                    open.push(entry.path());
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Whether a repository has changes, or commits that no known remote has. If git cannot read it, the answer is yes.
    fn has_own_work(&self, directory: &Path) -> bool {
        let git = self.git.at(directory);
        let is_clean = || -> Result<bool, GitError> {
            let changes = git.get(&["status", "--porcelain", "-z"])?;
            let commits = git.ask(&["rev-list", "--max-count=1", "--all", "HEAD", "--not", "--remotes"])?;
            Ok(changes.is_empty() && commits.status == 0 && commits.stdout.is_empty())
        };
        !is_clean().unwrap_or(false)
    }

    /// Puts a worktree onto a commit, and its branch with it, after everything was saved.
    pub fn put_onto(&self, path: &Path, commit: &str, saving: Saving<'_>) -> Result<SaveResult, GitError> {
        let result = self.save_all(path, saving)?;
        if result.incomplete.is_some() {
            return Ok(result);
        }
        let git = self.git.at(path);
        let head = git.line(&["rev-parse", "--verify", "HEAD"])?;
        end_unfinished(&git);
        git.get(&["read-tree", "--reset", "-u", "--no-recurse-submodules", commit])?;
        git.get(&["update-ref", "-m", "banksman: put onto the commit that was checked", "HEAD", commit, &head])?;
        Ok(result)
    }

    /// Begins to merge a commit into a worktree, after everything was saved. Returns the files with conflicts. The
    /// files contain the conflict markers, for the agent that works in the worktree.
    pub fn begin_merge(&self, path: &Path, commit: &str, saving: Saving<'_>) -> Result<(SaveResult, Vec<String>), GitError> {
        let result = self.save_all(path, saving)?;
        if result.incomplete.is_some() {
            return Ok((result, Vec::new()));
        }
        let (git, own) = (self.git.at(path), self.own_dir(path)?);
        // A process killed after its commit may have left the old index, and git merges only if the index matches HEAD.
        git.get(&["read-tree", "--reset", "HEAD"])?;
        git.ask(&["update-index", "-q", "--refresh"])?;
        // Noted before the merge begins, so that an interrupted merge is recognized as ours.
        self.note_merge(&own, commit, b"")?;
        let answer = git.ask(&["merge", "--no-commit", "--no-ff", "--no-stat", "--quiet", commit])?;
        let list = git.get(&["diff", "--name-only", "--diff-filter=U", "-z"])?;
        self.note_merge(&own, commit, &list)?;
        let files = file_names(&list);
        if answer.status != 0 && files.is_empty() {
            return Err(answer.failed());
        }
        Ok((result, files))
    }

    /// Merges a commit that conflicts with the work in a worktree into it, after committing uncommitted changes.
    /// Continues an interrupted merge of the same commit. Returns the files with conflicts.
    pub fn take_back_conflict(
        &self,
        path: &Path,
        commit: &str,
        title: &str,
        saving: Saving<'_>,
    ) -> Result<Vec<String>, GitError> {
        let git = self.git.at(path);
        let merging = git.ask(&["rev-parse", "--quiet", "--verify", "MERGE_HEAD"])?;
        if String::from_utf8_lossy(&merging.stdout).trim() != commit {
            self.commit_all(path, title)?;
            let (result, files) = self.begin_merge(path, commit, saving)?;
            return match result.incomplete {
                Some(said) => Err(GitError::Failed { what: "save the worktree".into(), said }),
                None => Ok(files),
            };
        }
        let list = git.get(&["diff", "--name-only", "--diff-filter=U", "-z"])?;
        self.note_merge(&self.own_dir(path)?, commit, &list)?;
        Ok(file_names(&list))
    }

    /// Saves a commit that only a branch reaches.
    fn save_commit(&self, commit: &Id, branch: &str, saving: Saving<'_>) -> Result<Option<Saved>, GitError> {
        self.save_tips([commit.clone()].into(), branch, saving)
    }
}

/// Quits a merge, rebase or the like that is in progress. Its commits are saved, and its files stay.
fn end_unfinished(git: &Git) {
    for what in ["merge", "rebase", "cherry-pick", "revert"] {
        // The others fail, because they are not in progress.
        git.ask(&[what, "--quit"]).ok();
    }
}
