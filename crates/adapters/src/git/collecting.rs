//! Collecting the work of a task from its worktree: its commits, and its uncommitted changes, as one commit that can land.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::checkouts::Checkout;
use super::worktree::{Found, Repository, branch_at};
use super::{Git, GitError, Id, file_names, system, zero_separated};

/// The file in git's directory for a worktree that notes the merge that we have begun there, and its conflicting files.
const OWN_MERGE: &str = "banksman-merge";

/// How many files a message names.
const NAMED: usize = 10;

/// What to do with uncommitted files of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Leftovers {
    #[default]
    Commit,
    /// Return the work to its author, who commits them.
    Return,
    /// Let a person decide.
    Ask,
}

/// The options of a collection.
#[derive(Debug, Clone, Copy)]
pub struct Collecting<'a> {
    /// The branch that the work lands on.
    pub target: &'a str,
    /// The branch of the worktree, used if the directory is gone.
    pub branch: &'a str,
    /// The message of the commit of uncommitted files.
    pub title: &'a str,
    pub leftovers: Leftovers,
    /// Files that were copied into the worktree, and must not land.
    pub copied: &'a [String],
}

/// The result of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collected {
    Commit {
        commit: String,
        branch: Option<String>,
    },
    /// The target has everything already.
    Nothing,
    /// The author has to repair this first.
    Unfinished(String),
    /// There are uncommitted files, and a person decides about them.
    Uncommitted(String),
}

impl Repository {
    /// Collects the work from a worktree. Uncommitted files are committed in the worktree itself, so that a run that
    /// continues there finds them committed. Hooks do not run: they are for the commits of people, and the check of the
    /// queue tests this commit.
    pub fn collect(&self, path: &Path, what: Collecting<'_>) -> Result<Collected, GitError> {
        let (commit, branch) = match self.find(path)? {
            Found::Worktree => {
                let git = self.git.at(path);
                self.unlock(path)?;
                match self.commit_leftovers(path, &git, what)? {
                    Ok(commit) => (commit, branch_at(&git)?),
                    Err(unfinished) => return Ok(unfinished),
                }
            }
            // Committed work is in the repository.
            Found::Nothing | Found::Unfinished | Found::Deleted | Found::Other => match self.git.tip(what.branch)? {
                Some(tip) => (tip, Some(what.branch.to_owned())),
                None => return Ok(Collected::Nothing),
            },
        };
        if self.changes_nothing(&commit, what.target)? {
            return Ok(Collected::Nothing);
        }
        let copied = self.copied_files(&commit, what)?;
        if !copied.is_empty() {
            let reason =
                format!("it contains files that were only copied into the worktree (workspace.copy): {}", named(&copied));
            return Ok(Collected::Unfinished(reason));
        }
        Ok(Collected::Commit { commit, branch })
    }

    /// Commits all changes in a worktree in which no operation is in progress.
    pub(super) fn commit_all(&self, path: &Path, title: &str) -> Result<(), GitError> {
        let git = self.git.at(path);
        let what = Collecting { target: "", branch: "", title, leftovers: Leftovers::Commit, copied: &[] };
        self.commit_leftovers(path, &git, what).map(drop)
    }

    /// Commits the uncommitted files of a worktree and returns its commit.
    fn commit_leftovers(&self, path: &Path, git: &Git, what: Collecting<'_>) -> Result<Result<Id, Collected>, GitError> {
        let own = self.own_dir(path)?;
        let head = git.line(&["rev-parse", "--verify", "HEAD"])?;
        let merged = match self.merge_under_way(path, git, &own, &head)? {
            Ok(merged) => merged,
            Err(reason) => return Ok(Err(Collected::Unfinished(reason))),
        };
        let (tree, incomplete) = self.snapshot(git, &own, &head, &[], &self.put_inside(path, git)?)?;
        // A file that git cannot add, for example because its filter is missing, must not be left behind silently.
        if let Some(said) = incomplete {
            return Err(GitError::Failed { what: "add".into(), said });
        }
        let names = git.get(&["diff-tree", "-r", "-z", "--no-renames", "--name-only", &head, &tree])?;
        let files = file_names(&names);
        if files.is_empty() && merged.is_none() {
            return Ok(Ok(head));
        }
        match what.leftovers {
            Leftovers::Commit => {}
            _ if merged.is_some() => {}
            Leftovers::Return => {
                return Ok(Err(Collected::Unfinished(format!("not everything was committed: {}", named(&files)))));
            }
            Leftovers::Ask => return Ok(Err(Collected::Uncommitted(format!("not everything was committed: {}", named(&files))))),
        }
        let mut args = vec!["commit-tree", "-p", &head];
        args.extend(merged.iter().flat_map(|merged| ["-p", merged.as_str()]));
        args.extend(["-F", "-", &tree]);
        let answer = git.ask_with(&args, format!("{}\n", what.title.replace('\n', " ")).as_bytes())?;
        if answer.status != 0 {
            return Err(answer.failed());
        }
        let commit = answer.text();
        git.get(&["update-ref", "-m", "banksman: commit what was left", "HEAD", &commit, &head])?;
        // The files are unchanged; only the index follows the new commit.
        git.get(&["read-tree", "--reset", &commit])?;
        git.ask(&["update-index", "-q", "--refresh"])?;
        if merged.is_some() {
            self.end_own_merge(git, &own)?;
        }
        Ok(Ok(commit))
    }

    /// The commit that is being merged in a worktree, if the merge is ours and has no conflicts left. The inner error
    /// is for the author: another operation is in progress, or conflicts are left.
    fn merge_under_way(&self, path: &Path, git: &Git, own: &Path, head: &Id) -> Result<Result<Option<Id>, String>, GitError> {
        let is_rebasing = own.join("rebase-merge").exists() || own.join("rebase-apply").exists();
        let checkout = Checkout { path: path.to_owned(), is_rebasing };
        let Some(doing) = git.under_way(&checkout)? else {
            fs::remove_file(own.join(OWN_MERGE)).ok();
            return Ok(Ok(None));
        };
        let merging = git.ask(&["rev-parse", "--quiet", "--verify", "MERGE_HEAD"])?.text();
        let note = fs::read(own.join(OWN_MERGE)).unwrap_or_default();
        let mut note = note.split(|byte| *byte == 0);
        if merging.is_empty() || note.next() != Some(merging.as_bytes()) {
            return Ok(Err(format!("a {doing} is in progress in the worktree")));
        }
        // A process was killed after the commit.
        if git.contains(head, &merging)? {
            self.end_own_merge(git, own)?;
            return Ok(Ok(None));
        }
        let has_markers = |name: &&[u8]| {
            let text = fs::read(path.join(OsStr::from_bytes(name))).unwrap_or_default();
            text.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"<<<<<<< ") || line.starts_with(b">>>>>>> "))
        };
        let marked: Vec<String> = note
            .filter(|name| !name.is_empty())
            .filter(has_markers)
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        Ok(if marked.is_empty() { Ok(Some(merging)) } else { Err(format!("conflicts are not resolved in {}", named(&marked))) })
    }

    fn end_own_merge(&self, git: &Git, own: &Path) -> Result<(), GitError> {
        git.get(&["merge", "--quit"])?;
        fs::remove_file(own.join(OWN_MERGE)).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(system(own)(error)),
        })
    }

    /// Notes that the merge in a worktree is ours, and its conflicting files.
    pub(super) fn note_merge(&self, own: &Path, commit: &str, files: &[u8]) -> Result<(), GitError> {
        let note = own.join(OWN_MERGE);
        fs::write(&note, [commit.as_bytes(), b"\0", files].concat()).map_err(system(&note))
    }

    /// The untracked repositories inside of a worktree, relative to its top. Git would commit only a reference to their
    /// commits, which exist nowhere else.
    fn put_inside(&self, path: &Path, git: &Git) -> Result<Vec<PathBuf>, GitError> {
        let list = git.get(&["ls-files", "-z", "--others", "--exclude-standard", "--directory", "--full-name", "--", ":/"])?;
        let mut open: Vec<PathBuf> = zero_separated(&list)
            .filter(|name| name.ends_with(b"/"))
            .map(|name| PathBuf::from(OsStr::from_bytes(name.strip_suffix(b"/").unwrap_or(name))))
            .collect();
        let mut found = Vec::new();
        while let Some(directory) = open.pop() {
            if path.join(&directory).join(".git").exists() {
                found.push(directory);
                continue;
            }
            let entries = fs::read_dir(path.join(&directory)).into_iter().flatten().flatten();
            let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            open.extend(directories.map(|entry| directory.join(entry.file_name())));
        }
        Ok(found)
    }

    /// Whether a commit brings nothing to a branch: the branch has all its commits, or they revert each other.
    fn changes_nothing(&self, commit: &Id, target: &str) -> Result<bool, GitError> {
        let Some(tip) = self.git.tip(target)? else { return Ok(false) };
        let base = self.git.ask(&["merge-base", &tip, commit])?.text();
        if base.is_empty() || base == *commit {
            return Ok(base == *commit);
        }
        let answer = self.git.ask(&["diff-tree", "--quiet", &base, commit])?;
        match answer.status {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(answer.failed()),
        }
    }

    /// The copied files that a commit has and the target has not.
    fn copied_files(&self, commit: &Id, what: Collecting<'_>) -> Result<Vec<String>, GitError> {
        let Some(tip) = self.git.tip(what.target)?.filter(|_| !what.copied.is_empty()) else { return Ok(Vec::new()) };
        let list = |tree: &Id| -> Result<Vec<String>, GitError> {
            let mut args: Vec<&str> = vec!["ls-tree", "-r", "-z", "--name-only", "--full-tree", tree, "--"];
            args.extend(what.copied.iter().map(|name| name.trim_end_matches('/')));
            let names = self.git.get(&args)?;
            Ok(file_names(&names))
        };
        let before = list(&tip)?;
        Ok(list(commit)?.into_iter().filter(|name| !before.contains(name)).collect())
    }
}

fn named(files: &[String]) -> String {
    let named = files.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if files.len() > NAMED { format!("{named} and {} more", files.len() - NAMED) } else { named }
}
