//! Saving the content of a worktree before any of it is dropped: its files, its commits, its stashes.
//!
//! A save makes one commit, under `refs/banksman/saved/<id>/<n>`. Its tree is the work tree, new files included; its
//! first parent is HEAD, and its other parents are the commits that no other ref reaches: amended or reset commits, an
//! unfinished merge, stashes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::facts::NOBODY;
use super::files::copy_index;
use super::worktree::{Repository, branch_at};
use super::{Git, GitError, Id, system, zero_separated};

/// The namespace of the refs of saved states.
const PLACE: &str = "refs/banksman/saved/";

/// How many states of one workspace are kept. The oldest are dropped first.
pub const SAVED_LIMIT: usize = 100;

/// How many entries of a reflog are read, the newest first.
const REFLOG: usize = 1_000;

/// The options of a save.
#[derive(Debug, Clone, Copy)]
pub struct Saving<'a> {
    /// The task or pipeline whose workspace it is.
    pub id: &'a str,
    /// The reason of the save, for people: "before it was removed".
    pub reason: &'a str,
    /// Git patterns of ignored files that are saved too.
    pub ignored: &'a [String],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The task or pipeline whose workspace it was.
    pub id: String,
    /// The number of the state.
    pub number: u64,
    /// The commit that holds everything.
    pub commit: String,
    /// In seconds since 1970.
    pub at: i64,
    pub reason: String,
}

impl Saved {
    /// The name of the ref.
    pub fn name(&self) -> String {
        format!("{PLACE}{}/{}", self.id, self.number)
    }
}

/// The result of a save.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SaveResult {
    /// The new state; `None` if everything is safe already.
    pub saved: Option<Saved>,
    /// Git's message about files that could not be read. Then nothing may be dropped.
    pub incomplete: Option<String>,
}

/// Refs that do not keep a commit safe. A merge queue holds commits for a short time and removes its records when there
/// are many, and the branches of other tasks may be removed at this very moment, by a process that relies on this save.
const PASSING: [&str; 6] = [
    "refs/stash",
    "refs/banksman/queued/*",
    "refs/banksman/candidates/*",
    "refs/banksman/landed/*",
    "refs/banksman/merges/*",
    "refs/heads/banksman/*",
];

impl Repository {
    /// Saves everything in a worktree that no other ref reaches. The branch of the worktree does not count, because it
    /// may be removed next.
    pub fn save(&self, path: &Path, saving: Saving<'_>) -> Result<SaveResult, GitError> {
        let Some(admin) = self.admin_dir(path) else { return Ok(SaveResult::default()) };
        let there = if path.join(".git").exists() { self.git.at(path) } else { self.without_files(&admin) };
        let head = there.line(&["rev-parse", "--verify", "HEAD"])?;
        let branch = branch_at(&there)?;
        let (tree, incomplete) = match path.join(".git").exists() {
            true => self.snapshot(&there, &admin, &head, saving.ignored, &[])?,
            false => (there.line(&["rev-parse", "--verify", "HEAD^{tree}"])?, None),
        };
        let index = if path.join(".git").exists() { self.staged(&there, &head, &tree)? } else { None };
        let tips = self.unreachable(self.commits_of(&there, &admin, &head, branch.as_deref(), index)?, branch.as_deref())?;
        let last = self.saved(Some(saving.id))?.pop();
        let head_tree = self.git.line(&["rev-parse", "--verify", &format!("{head}^{{tree}}")])?;
        let is_known = tree == head_tree || last.as_ref().is_some_and(|last| self.tree_of(&last.commit).as_ref() == Ok(&tree));
        if tips.is_empty() && is_known {
            return Ok(SaveResult { saved: None, incomplete });
        }
        let parents: Vec<Id> = std::iter::once(head.clone()).chain(tips.into_iter().filter(|tip| *tip != head)).collect();
        let commit = self.commit_saved(&tree, &parents, saving.reason)?;
        let saved = self.keep(saving.id, &commit, last.map_or(1, |last| last.number + 1))?;
        // Fails if an object of the commit is missing: a `git gc` may have removed it meanwhile.
        self.git.get(&["rev-list", "--objects", "--quiet", &commit, "--not", &head])?;
        self.drop_oldest(saving.id)?;
        Ok(SaveResult { saved: Some(saved), incomplete })
    }

    /// Git for a worktree whose directory is gone, with what is left in its git directory.
    fn without_files(&self, admin: &Path) -> Git {
        self.git.clone().with_variable("GIT_DIR", admin)
    }

    fn tree_of(&self, commit: &str) -> Result<Id, String> {
        self.git.line(&["rev-parse", "--verify", &format!("{commit}^{{tree}}")]).map_err(|error| error.to_string())
    }

    /// Writes the work tree as a git tree, with a temporary index. Also returns git's message if it could not read everything.
    pub(super) fn snapshot(
        &self,
        there: &Git,
        admin: &Path,
        head: &Id,
        ignored: &[String],
        without: &[PathBuf],
    ) -> Result<(Id, Option<String>), GitError> {
        let index = admin.join(format!("banksman-index-{}", std::process::id()));
        let scratch = Scratch(index.clone());
        match copy_index(&admin.join("index"), &index) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                there.clone().with_index(&index).get(&["read-tree", head])?;
            }
            Err(error) => return Err(system(&index)(error)),
        }
        let git = there.clone().with_index(&index).with("advice.addEmbeddedRepo=false").with("core.safecrlf=false");
        let mut args: Vec<OsString> = ["add", "--all", "--sparse", "--ignore-errors", "--", ":/"].map(OsString::from).into();
        args.extend(without.iter().map(|path| {
            let mut exclude = OsString::from(":(exclude,top,literal)");
            exclude.push(path);
            exclude
        }));
        let added = git.ask(&args)?;
        let incomplete = (added.status != 0).then(|| added.failed().to_string());
        if !ignored.is_empty() {
            let list = ["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--full-name", "--"];
            let patterns = ignored.iter().map(|pattern| format!(":(top,glob){pattern}"));
            let found = git.get(&list.into_iter().map(str::to_owned).chain(patterns).collect::<Vec<_>>())?;
            if zero_separated(&found).next().is_some() {
                let top = there.path_line(&["rev-parse", "--show-toplevel"])?;
                let answer = git.at(&top).ask_with(&["update-index", "-z", "--add", "--stdin"], &found)?;
                if answer.status != 0 {
                    return Err(answer.failed());
                }
            }
        }
        let tree = git.line(&["write-tree"])?;
        drop(scratch);
        Ok((tree, incomplete))
    }

    /// The files of a worktree as a git tree, new files included.
    pub(super) fn tree_of_files(&self, path: &Path) -> Result<Id, GitError> {
        let git = self.git.at(path);
        let head = git.line(&["rev-parse", "--verify", "HEAD"])?;
        Ok(self.snapshot(&git, &self.own_dir(path)?, &head, &[], &[])?.0)
    }

    /// The index as a commit, if it differs from both HEAD and the files.
    fn staged(&self, there: &Git, head: &Id, tree: &Id) -> Result<Option<Id>, GitError> {
        let written = there.ask(&["write-tree"])?;
        // An index with conflicts has no tree; the files have both sides.
        if written.status != 0 {
            return Ok(None);
        }
        let staged = written.text();
        if staged == *tree || Ok(&staged) == self.tree_of(head).as_ref() {
            return Ok(None);
        }
        // With a constant date, so that the same index gives the same commit each time.
        self.commit_at(&staged, std::slice::from_ref(head), "the index", &NOBODY).map(Some)
    }

    /// Every commit that a worktree refers to.
    fn commits_of(
        &self,
        there: &Git,
        admin: &Path,
        head: &Id,
        branch: Option<&str>,
        index: Option<Id>,
    ) -> Result<BTreeSet<Id>, GitError> {
        let mut found: BTreeSet<Id> = [head.clone()].into_iter().chain(index).collect();
        for name in ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD"] {
            found.extend(there.line(&["rev-parse", "--quiet", "--verify", name]).ok());
        }
        let log = fs::read(admin.join("logs/HEAD")).unwrap_or_default();
        for line in log.split(|byte| *byte == b'\n').rev().take(REFLOG) {
            let ids = line.split(|byte| *byte == b' ').take(2).filter(|id| id.len() >= 40);
            found.extend(ids.map(|id| String::from_utf8_lossy(id).into_owned()).filter(|id| id.bytes().any(|byte| byte != b'0')));
        }
        // All worktrees share the stashes; the message of a stash begins with its branch.
        if let Some(branch) = branch {
            let list = self.git.ask(&["stash", "list", "--format=%H %gs"])?;
            let text = String::from_utf8_lossy(&list.stdout).into_owned();
            let made_here = |subject: &str| {
                [format!("WIP on {branch}:"), format!("On {branch}:")].iter().any(|begin| subject.starts_with(begin))
            };
            found.extend(
                text.lines()
                    .filter_map(|line| line.split_once(' '))
                    .filter(|(_, subject)| made_here(subject))
                    .map(|(id, _)| id.to_owned()),
            );
        }
        Ok(found)
    }

    /// The commits that no ref but the branch reaches, without ancestors of other ones.
    fn unreachable(&self, commits: BTreeSet<Id>, branch: Option<&str>) -> Result<Vec<Id>, GitError> {
        // An old reflog may name commits that were collected long ago.
        let asked: String = commits.iter().map(|id| format!("{id}\n")).collect();
        let known = self.git.ask_with(&["cat-file", "--batch-check=%(objectname) %(objecttype)"], asked.as_bytes())?;
        let known = String::from_utf8_lossy(&known.stdout).into_owned();
        let commits = known.lines().filter_map(|line| line.strip_suffix(" commit"));
        // A broken ref of another worktree keeps nothing safe, and must not make this save fail.
        let mut args: Vec<String> = ["rev-list", "--parents", "--ignore-missing"].map(Into::into).into();
        let options = args.len();
        args.extend(commits.map(Into::into));
        if args.len() == options {
            return Ok(Vec::new());
        }
        args.push("--not".into());
        args.extend(branch.map(|branch| format!("--exclude=refs/heads/{branch}")));
        args.extend(PASSING.map(|held| format!("--exclude={held}")));
        args.push("--all".into());
        let list = self.git.line(&args)?;
        let rows: BTreeMap<&str, Vec<&str>> = list
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some((words.next().filter(|id| !id.is_empty())?, words.collect()))
            })
            .collect();
        let inner: BTreeSet<&str> = rows.values().flatten().copied().collect();
        Ok(rows.keys().filter(|id| !inner.contains(*id)).map(|id| (*id).to_owned()).collect())
    }

    /// Saves the commits that no ref but a branch reaches.
    pub(super) fn save_tips(&self, commits: BTreeSet<Id>, branch: &str, saving: Saving<'_>) -> Result<Option<Saved>, GitError> {
        let tips = self.unreachable(commits, Some(branch))?;
        let Some(first) = tips.first() else { return Ok(None) };
        let tree = self.git.line(&["rev-parse", "--verify", &format!("{first}^{{tree}}")])?;
        let commit = self.commit_saved(&tree, &tips, saving.reason)?;
        let next = self.saved(Some(saving.id))?.pop().map_or(1, |last| last.number + 1);
        self.keep(saving.id, &commit, next).map(Some)
    }

    fn commit_saved(&self, tree: &Id, parents: &[Id], reason: &str) -> Result<Id, GitError> {
        let now: Vec<_> = NOBODY.into_iter().filter(|(name, _)| !name.ends_with("_DATE")).collect();
        self.commit_at(tree, parents, reason, &now)
    }

    /// Makes a commit without an identity of the user's: the saved commits have their own authors.
    fn commit_at(&self, tree: &Id, parents: &[Id], reason: &str, identity: &[(&str, &str)]) -> Result<Id, GitError> {
        let mut args: Vec<String> = vec!["commit-tree".into(), tree.clone(), "-m".into(), format!("banksman: saved {reason}")];
        args.extend(parents.iter().flat_map(|parent| ["-p".to_owned(), parent.clone()]));
        let mut command = self.git.command(&args);
        command.envs(identity.iter().copied());
        let answer = self.git.end(command, "commit-tree".into())?;
        if answer.status != 0 {
            return Err(answer.failed());
        }
        Ok(answer.text())
    }

    /// Gives a saved state the next free name.
    fn keep(&self, id: &str, commit: &Id, first: u64) -> Result<Saved, GitError> {
        let mut number = first;
        loop {
            let name = format!("{PLACE}{id}/{number}");
            let none = "0".repeat(commit.len());
            let made = self.git.set_own_ref(&self.common, &["update-ref", &name, commit, &none]);
            if made.is_ok() {
                let found = self.saved(Some(id))?.into_iter().find(|saved| saved.number == number);
                return found.ok_or_else(|| GitError::Failed { what: "update-ref".into(), said: format!("{name} is not there") });
            }
            // Another process has taken the number; any other failure is an error.
            if self.git.ask(&["rev-parse", "--quiet", "--verify", &name])?.status != 0 || number > first + 100 {
                made?;
            }
            number += 1;
        }
    }

    /// The saved states of one workspace, or of all, oldest first.
    pub fn saved(&self, id: Option<&str>) -> Result<Vec<Saved>, GitError> {
        let place = id.map_or(PLACE.to_owned(), |id| format!("{PLACE}{id}/"));
        let format = "--format=%(objectname)%00%(refname)%00%(committerdate:unix)%00%(contents:subject)";
        let list = self.git.line(&["for-each-ref", format, "--", &place])?;
        let mut saved: Vec<Saved> = list.lines().filter_map(saved_state).collect();
        saved.sort_by(|a, b| (&a.id, a.number).cmp(&(&b.id, b.number)));
        Ok(saved)
    }

    fn drop_oldest(&self, id: &str) -> Result<(), GitError> {
        let saved = self.saved(Some(id))?;
        let over = saved.len().saturating_sub(SAVED_LIMIT);
        saved.iter().take(over).try_for_each(|saved| self.forget_saved(saved))
    }

    /// Drops a saved state.
    pub fn forget_saved(&self, saved: &Saved) -> Result<(), GitError> {
        self.delete_ref(&saved.name(), &saved.commit)?.map_err(|said| GitError::Failed { what: "update-ref".into(), said })
    }

    /// Makes a branch from a saved state: its files are one commit on top of the former HEAD.
    pub fn restore(&self, saved: &Saved, branch: &str) -> Result<(), GitError> {
        self.check_branch(branch)?;
        let none = "0".repeat(saved.commit.len());
        self.git.get(&["update-ref", &format!("refs/heads/{branch}"), &saved.commit, &none]).map(drop)
    }
}

fn saved_state(line: &str) -> Option<Saved> {
    let mut parts = line.split('\0');
    let (commit, name, at, subject) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (id, number) = name.strip_prefix(PLACE)?.rsplit_once('/')?;
    let reason = subject.strip_prefix("banksman: saved ").unwrap_or(subject);
    Some(Saved {
        id: id.into(),
        number: number.parse().ok()?,
        commit: commit.into(),
        at: at.parse().ok()?,
        reason: reason.into(),
    })
}

/// A temporary index, removed on drop with its lock.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
        let mut lock = self.0.clone().into_os_string();
        lock.push(OsStr::new(".lock"));
        fs::remove_file(lock).ok();
    }
}
