//! Facts about branches: whether one exists, is clean, is merged.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{Git, GitError, Id, check, journal};

/// The author of commits that are made for comparison only.
pub(super) const NOBODY: [(&str, &str); 6] = [
    ("GIT_AUTHOR_NAME", "banksman"),
    ("GIT_AUTHOR_EMAIL", "banksman@localhost"),
    ("GIT_AUTHOR_DATE", "2000-01-01T00:00:00Z"),
    ("GIT_COMMITTER_NAME", "banksman"),
    ("GIT_COMMITTER_EMAIL", "banksman@localhost"),
    ("GIT_COMMITTER_DATE", "2000-01-01T00:00:00Z"),
];

impl Git {
    /// Whether there is a branch of this name, local or as last fetched from a remote (`origin/main`).
    pub fn branch_exists(&self, branch: &str) -> Result<bool, GitError> {
        Ok(self.seen(branch)?.is_some())
    }

    /// Whether all checkouts of a branch have no changes and no new files. A branch that is not checked out has none.
    pub fn branch_clean(&self, branch: &str) -> Result<bool, GitError> {
        Ok(self.branch_changes(branch)?.is_none())
    }

    /// The first checkout of a branch that is not clean, with its changed and new files. The list is empty if only a
    /// merge or the like is in progress.
    pub fn branch_changes(&self, branch: &str) -> Result<Option<(PathBuf, Vec<String>)>, GitError> {
        self.seen(branch)?.ok_or_else(|| GitError::NoBranch(branch.into()))?;
        let (mut quiet, until) = (None, Instant::now() + self.limit);
        while let Some(changes) = self.unclean(branch)? {
            // A merge that moves the checkout looks like changes until it is done, and may have ended since git looked.
            let since = journal::await_moves(&self.common()?, self.limit);
            if since.is_none() || since == quiet || Instant::now() >= until {
                return Ok(Some(changes));
            }
            quiet = since;
        }
        Ok(None)
    }

    fn unclean(&self, branch: &str) -> Result<Option<(PathBuf, Vec<String>)>, GitError> {
        for checkout in self.checkouts(branch)? {
            let files = self.changes(&checkout)?;
            if !files.is_empty() || self.under_way(&checkout)?.is_some() {
                return Ok(Some((checkout.path, files)));
            }
        }
        Ok(None)
    }

    /// Whether a branch is merged into another. The other branch has its commits, or what a merge of ours has made of
    /// them, as recorded; or merging it again would change nothing; or the other has commits with equal changes, or one
    /// commit with all its changes, even if later commits have changed these lines again.
    pub fn is_merged(&self, branch: &str, into: &str) -> Result<bool, GitError> {
        let known = |name: &str| self.seen(name)?.ok_or_else(|| GitError::NoBranch(name.into()));
        let (tip, at) = (known(branch)?, known(into)?);
        Ok(self.contains(&at, &tip)?
            || self.is_landed(into, &at, &tip)?
            || self.changes_nothing(&at, &tip)?
            || self.has_equal_changes(&at, &tip)?
            || self.has_squashed(&at, &tip)?)
    }

    /// Whether a merge of a commit into another would leave the files as they are.
    fn changes_nothing(&self, into: &Id, commit: &Id) -> Result<bool, GitError> {
        let answer = self.ask(&["merge-tree", "--write-tree", "--no-messages", into, commit])?;
        // There are conflicts, or no common ancestor.
        if answer.status != 0 {
            return Ok(false);
        }
        let tree = self.line(&["rev-parse", "--verify", &format!("{into}^{{tree}}")])?;
        Ok(String::from_utf8_lossy(&answer.stdout).trim() == tree)
    }

    /// The tip of a local branch.
    pub(super) fn tip(&self, branch: &str) -> Result<Option<Id>, GitError> {
        self.find(branch, &["refs/heads/"])
    }

    /// The tip of a local branch, and the branch that it is an alias of.
    pub(super) fn branch(&self, branch: &str) -> Result<Option<(Id, Option<String>)>, GitError> {
        check(branch)?;
        let name = format!("refs/heads/{branch}");
        if let Some(tip) = self.common.as_ref().filter(|_| is_plain(branch)).and_then(|common| loose(&common.join(&name))) {
            return Ok(Some((tip, None)));
        }
        let list = self.line(&["for-each-ref", "--format=%(objectname) %(refname) %(symref)", "--", &name])?;
        let found = list.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| words.get(1) == Some(&&*name));
        Ok(found.map(|words| {
            let other = words.get(2).filter(|other| !other.is_empty());
            (words[0].to_owned(), other.map(|other| other.trim_start_matches("refs/heads/").to_owned()))
        }))
    }

    /// The branch that a branch is an alias of.
    pub(super) fn alias_of(&self, branch: &str) -> Result<Option<String>, GitError> {
        let answer = self.ask(&["symbolic-ref", "--quiet", &format!("refs/heads/{branch}")])?;
        let name = String::from_utf8_lossy(&answer.stdout);
        Ok((answer.status == 0).then(|| name.trim_end().trim_start_matches("refs/heads/").to_owned()))
    }

    fn seen(&self, branch: &str) -> Result<Option<Id>, GitError> {
        self.find(branch, &["refs/heads/", "refs/remotes/"])
    }

    /// The tip of the branch with exactly this name, in the first of these namespaces that has it. Unlike `rev-parse`,
    /// this accepts no expression such as `main~1`.
    fn find(&self, branch: &str, places: &[&str]) -> Result<Option<Id>, GitError> {
        check(branch)?;
        let names: Vec<String> = places.iter().map(|place| format!("{place}{branch}")).collect();
        let mut args = vec!["for-each-ref".to_owned(), "--format=%(objectname) %(refname)".into(), "--".into()];
        args.extend(names.clone());
        let list = self.line(&args)?;
        let refs: Vec<(&str, &str)> = list.lines().filter_map(|line| line.split_once(' ')).collect();
        let exactly = |name: &String| refs.iter().find(|(_, other)| other == name).map(|(id, _)| (*id).to_owned());
        Ok(names.iter().find_map(exactly))
    }

    /// Whether a commit is `other` or a descendant of it.
    pub(super) fn contains(&self, commit: &Id, other: &Id) -> Result<bool, GitError> {
        self.says(&["merge-base", "--is-ancestor", other, commit])
    }

    /// Whether every commit of `branch` that is missing in `into` has an equal change there.
    fn has_equal_changes(&self, into: &Id, branch: &Id) -> Result<bool, GitError> {
        // `git cherry` skips merges, which can have changes of their own.
        if !self.get(&["rev-list", "--merges", "--max-count=1", branch, &format!("^{into}")])?.is_empty() {
            return Ok(false);
        }
        Ok(self.line(&["cherry", into, branch])?.lines().all(|line| line.starts_with("- ")))
    }

    /// Whether one commit of `into` has all changes of the branch, or the branch has none.
    fn has_squashed(&self, into: &Id, branch: &Id) -> Result<bool, GitError> {
        let base = self.ask(&["merge-base", into, branch])?;
        let base = match base.status {
            0 => base.text(),
            1 => return Ok(false),
            _ => return Err(base.failed()),
        };
        let tree = self.line(&["rev-parse", "--verify", &format!("{branch}^{{tree}}")])?;
        if self.line(&["rev-parse", "--verify", &format!("{base}^{{tree}}")])? == tree {
            return Ok(true);
        }
        // The same commit each time, so that repeated checks leave one unused object behind, not many.
        let args = ["commit-tree", &tree, "-p", &base, "-m", "squashed"];
        let mut command = self.command(&args);
        command.envs(NOBODY);
        let answer = self.end(command, "commit-tree".into())?;
        if answer.status != 0 {
            return Err(answer.failed());
        }
        let squashed = answer.text();
        Ok(self.line(&["cherry", into, &squashed])?.starts_with("- "))
    }
}

/// Whether a name surely is a branch name whose ref file is no other file of git's.
fn is_plain(branch: &str) -> bool {
    branch.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
}

/// Reads the commit from a loose ref file. There is none if the ref is packed or stored in another way; then git must be asked.
fn loose(file: &Path) -> Option<Id> {
    if !fs::symlink_metadata(file).ok()?.is_file() {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    let id = text.trim_end();
    ([40, 64].contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tip_is_found_wherever_git_keeps_it() {
        for format in ["files", "reftable"] {
            let directory = tempfile::tempdir().unwrap();
            let git =
                Git::new(directory.path(), Duration::from_secs(60)).with("user.name=t").with("user.email=t@example.invalid");
            if git.ask(&["init", "-q", "-b", "main", &format!("--ref-format={format}")]).unwrap().status != 0 {
                continue;
            }
            git.get(&["commit", "-q", "--allow-empty", "-m", "c"]).unwrap();
            git.get(&["symbolic-ref", "refs/heads/alias", "refs/heads/main"]).unwrap();
            let tip = git.line(&["rev-parse", "HEAD"]).unwrap();
            let git = Git { common: Some(git.place("--git-common-dir").unwrap()), ..git };
            for _ in 0..2 {
                assert_eq!(git.branch("main").unwrap(), Some((tip.clone(), None)), "{format}");
                assert_eq!(git.branch("alias").unwrap(), Some((tip.clone(), Some("main".into()))), "{format}");
                assert_eq!(git.branch("other").unwrap(), None, "{format}");
                git.get(&["pack-refs", "--all"]).unwrap();
            }
            if format == "files" {
                fs::write(directory.path().join(".git/refs/heads/main.lock"), format!("{tip}\n")).unwrap();
                fs::write(directory.path().join(".git/stray"), format!("{tip}\n")).unwrap();
                assert_eq!((git.branch("main.lock").unwrap(), git.branch("../../stray").unwrap()), (None, None));
            }
        }
    }
}
