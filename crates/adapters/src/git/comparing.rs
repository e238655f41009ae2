//! What was done in a worktree, as a patch.

use std::path::Path;

use super::saving::Saved;
use super::worktree::Repository;
use super::{GitError, Id, zero_separated};

/// How many commits that no branch has are named.
const COMMITS: usize = 100;

/// The difference between two states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// The commit that it is compared with.
    pub base: String,
    /// The files that differ.
    pub files: Vec<String>,
    /// The commits in between, or beside it, one line each.
    pub commits: Vec<String>,
    pub patch: Vec<u8>,
}

/// How many lines were added and removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiffSize {
    pub added: u64,
    pub removed: u64,
}

impl Repository {
    /// How much the files of a worktree differ from its base. New files count once they are added. Nothing is written.
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

    /// What the files of a worktree have that its base has not, committed or not, new files included.
    pub fn diff(&self, path: &Path, base: &str) -> Result<Diff, GitError> {
        let tree = self.tree_of_files(path)?;
        self.between(base, &tree, Vec::new())
    }

    /// What the files of a saved state have that its HEAD had not, and the other commits that it holds.
    pub fn diff_of_saved(&self, saved: &Saved) -> Result<Diff, GitError> {
        let parents = self.git.line(&["rev-parse", &format!("{}^@", saved.commit)])?;
        let mut parents = parents.lines().map(str::to_owned);
        let base = parents.next().unwrap_or_else(|| saved.commit.clone());
        // No branch may have the commits that it was made on any more.
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
        let files = zero_separated(&names).map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let patch = self.git.get(&["diff", "--no-color", "--no-ext-diff", base, tree, "--"])?;
        Ok(Diff { base: base.into(), files, commits, patch })
    }
}
