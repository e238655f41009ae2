//! The changes in a worktree, as a patch.

use std::path::Path;

use super::saving::Saved;
use super::worktree::Repository;
use super::{GitError, Id, file_names};

/// How many commits that no branch has are listed.
const COMMITS: usize = 100;

/// The difference between two states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// The commit that the state is compared with.
    pub base: String,
    pub files: Vec<String>,
    /// The saved commits that no branch has, one line each.
    pub commits: Vec<String>,
    pub patch: Vec<u8>,
}

/// The numbers of added and removed lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiffSize {
    pub added: u64,
    pub removed: u64,
}

impl Repository {
    /// The size of the difference between the files of a worktree and its base. New files count once they are added.
    /// Writes nothing.
    pub fn size(&self, path: &Path, base: &str) -> Result<DiffSize, GitError> {
        let lines = self.git.at(path).get(&["diff", "--numstat", "--no-ext-diff", base, "--"])?;
        let mut size = DiffSize::default();
        for line in String::from_utf8_lossy(&lines).lines() {
            // A binary file has no lines.
            let mut numbers = line.split('\t').map(|number| number.parse::<u64>().unwrap_or(0));
            size.added += numbers.next().unwrap_or(0);
            size.removed += numbers.next().unwrap_or(0);
        }
        Ok(size)
    }

    /// The difference from the base of a worktree to its files, committed or not, including new files.
    pub fn diff(&self, path: &Path, base: &str) -> Result<Diff, GitError> {
        let tree = self.tree_of_files(path)?;
        self.between(base, &tree, Vec::new())
    }

    /// The difference from the HEAD of a saved state to its files, and the other commits that it holds.
    pub fn diff_of_saved(&self, saved: &Saved) -> Result<Diff, GitError> {
        let parents = self.git.line(&["rev-parse", &format!("{}^@", saved.commit)])?;
        let mut parents = parents.lines().map(str::to_owned);
        let base = parents.next().unwrap_or_else(|| saved.commit.clone());
        // The commits below the saved state that no branch has any more.
        let lost =
            ["log", &format!("--max-count={COMMITS}"), "--format=%h %s", &base, "--not", "--branches", "--tags", "--remotes"];
        let lost = self.git.line(&lost)?;
        let mut commits: Vec<String> = lost.lines().map(str::to_owned).collect();
        for commit in parents {
            commits.push(self.git.line(&["log", "--max-count=1", "--format=%h %s", &commit])?);
        }
        self.between(&base, &saved.commit, commits)
    }

    fn between(&self, base: &str, tree: &Id, commits: Vec<String>) -> Result<Diff, GitError> {
        let names = self.git.get(&["diff", "--name-only", "-z", base, tree, "--"])?;
        let files = file_names(&names);
        let patch = self.git.get(&["diff", "--no-color", "--no-ext-diff", base, tree, "--"])?;
        Ok(Diff { base: base.into(), files, commits, patch })
    }
}
