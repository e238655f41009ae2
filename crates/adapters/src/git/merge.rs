//! Merging a branch into another, without disturbing work in progress.
//!
//! The new commit is made in a worktree of its own, and held by a ref. Then a compare-and-swap moves the target from
//! exactly the commit that the merge began with, and its checkout, if it has one, with it: the checkout must be clean
//! (`moving`). If another process has moved the target or changed the checkout meanwhile, nothing is touched and the
//! merge starts again. The merged branch itself never moves.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use banksman_core::pipeline::plan::MergeHow;
use thiserror::Error;

use super::checkouts::Checkout;
use super::journal::{Journal, owner};
use super::scratch::{MergeLock, Tree};
use super::settling::settle_all;
use super::target::Target;
use super::transaction::Update;
use super::{Git, GitError, Id, check};

/// How often a merge is attempted while other processes move the target.
const ATTEMPTS: u32 = 5;

/// How long one command of git may take. To end the merge sooner, the caller ends the process.
const LIMIT: Duration = Duration::from_secs(3_600);

/// How many files of a conflict a message names.
const NAMED: usize = 10;

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The new tip of the target.
    pub commit: String,
    pub before: String,
    /// The checkout that moved along.
    pub checkout: Option<PathBuf>,
    /// The folder with the files that were changed while the checkout moved.
    pub saved: Option<PathBuf>,
}

impl Merged {
    /// Whether the target has moved. It has not if it contained the branch already.
    pub fn has_moved(&self) -> bool {
        self.commit != self.before
    }
}

/// Why a branch was not merged. Nothing was changed, unless the variant says so.
#[derive(Debug, Error)]
pub enum MergeError {
    /// The target has commits of its own.
    #[error("not a fast-forward: {into} has commits that {branch} does not have")]
    NotFastForward { branch: Box<str>, into: Box<str> },
    /// Both sides have changed the same lines in different ways.
    #[error("conflict in {}", files(.0))]
    Conflict(Vec<String>),
    /// A rebase drops merges, including the changes that people have made in them.
    #[error("a rebase would lose changes: merges in {0} have some of their own")]
    OwnChanges(Box<str>),
    /// The checkout of the target has changes.
    #[error("the checkout at {} has changes", .0.display())]
    Dirty(PathBuf),
    /// New files in the checkout of the target would be overwritten.
    #[error("the checkout at {} has changes: new files are in the way", .0.display())]
    InTheWay(PathBuf),
    /// A rebase of the target, or a merge into it, is in progress.
    #[error("the checkout at {} has changes: a {what} is under way", path.display())]
    UnderWay { path: PathBuf, what: &'static str },
    /// Another git has locked the checkout of the target.
    #[error("the checkout at {} is locked: another git is at work there, or was killed and has left its index.lock", .0.display())]
    Locked(PathBuf),
    /// The target is checked out in more than one directory, and only one of them could move along.
    #[error("the checkout at {} is not the only one of {into}", path.display())]
    SeveralCheckouts { into: Box<str>, path: PathBuf },
    /// The target is a symbolic ref: another branch would move, maybe under its checkout.
    #[error("the branch {into} is another name of {other}: merge into that")]
    Alias { into: Box<str>, other: String },
    /// Another process moved the target during every attempt.
    #[error("the branch {into} was moved by others meanwhile, {ATTEMPTS} times: {said}")]
    Moved { into: Box<str>, said: String },
    /// The checkout of the target has begun to move and could not be moved back.
    #[error("the checkout at {} is between two commits, and the next merge, or banksman doctor --fix, tries to put it back: {source}", path.display())]
    Halfway { path: PathBuf, source: GitError },
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Why an attempt at a merge ends.
pub(super) enum Halt {
    /// Another process was faster. Nothing was touched, and the merge can start again.
    Again(String),
    /// Another git has locked the checkout at this moment.
    Locked(PathBuf),
    Refused(MergeError),
}

impl<E: Into<MergeError>> From<E> for Halt {
    fn from(error: E) -> Halt {
        Halt::Refused(error.into())
    }
}

/// Merges a branch of the repository that `repo` belongs to into another, in a worktree below `scratch`. Merges with the same
/// `scratch` wait for each other. The remains of killed merges are settled first.
///
/// Hooks do not run in that worktree, but they do in the checkout of the target. The former tip of the target is kept
/// as `refs/banksman/merges/TARGET/TIME-ID`, until at least 50 later merges into it have been made. A branch that has
/// landed as other commits than its own is recorded as `refs/banksman/landed/TARGET/TIME-TIP`, for as long.
pub fn merge(repo: &Path, scratch: &Path, branch: &str, into: &str, how: MergeHow) -> Result<Merged, MergeError> {
    check(branch)?;
    check(into)?;
    let mut git = with_identity(Git::new(repo, LIMIT).check_version()?)?;
    let [common, git_dir] = git.places([&["--git-common-dir"], &["--git-dir"]])?;
    git.common = Some(common.clone());
    let merge_lock = MergeLock::take(&git, scratch, &common)?;
    // A checkout that a killed merge left between two commits must be settled before its state means anything.
    settle_all(&git, &common, Some(merge_lock.scratch()))?;
    if let Some(other) = git.alias_of(into)? {
        return Err(MergeError::Alias { into: into.into(), other });
    }
    let journal = Journal::begin(&common, merge_lock.scratch())?;
    let note = format!("banksman: merge {branch}");
    let target = Target { git: &git, git_dir: &git_dir, journal: &journal, name: into, note };
    let job = MergeAttempt {
        git: &git,
        target,
        merge_lock: &merge_lock,
        journal: &journal,
        branch,
        into,
        how,
        candidate: RefCell::default(),
    };
    journal.keep_collection_away()?;
    let end = job.merge();
    journal.let_collect();
    // The next merge settles a checkout that could not be moved back, and the locks of a killed git; it needs the journal.
    if journal.open_record()?.is_none() && !journal.has_left_locks.get() {
        journal.end()?;
    }
    end
}

/// Gives git an identity for commits, if none is configured.
fn with_identity(git: Git) -> Result<Git, GitError> {
    if git.ask(&["var", "GIT_COMMITTER_IDENT"])?.status == 0 {
        return Ok(git);
    }
    Ok(git.with("user.name=banksman").with("user.email=banksman@localhost"))
}

struct MergeAttempt<'a> {
    git: &'a Git,
    target: Target<'a>,
    merge_lock: &'a MergeLock,
    journal: &'a Journal,
    branch: &'a str,
    into: &'a str,
    how: MergeHow,
    /// The tip of the branch, the tip of the target and the commit made from them: an attempt after one that failed
    /// because of the checkout need not make the commit again.
    candidate: RefCell<Option<(Id, Id, Id)>>,
}

impl MergeAttempt<'_> {
    fn merge(&self) -> Result<Merged, MergeError> {
        let mut attempt = 1;
        loop {
            let error = match self.attempt() {
                Ok(merged) => {
                    self.git.prune_records(self.journal, self.into, Vec::new())?;
                    return Ok(merged);
                }
                Err(Halt::Refused(MergeError::Git(error @ GitError::Failed { .. })))
                    if self.journal.may_be_collecting(&error) =>
                {
                    error.into()
                }
                Err(Halt::Refused(error)) => return Err(error),
                Err(Halt::Locked(path)) => MergeError::Locked(path),
                Err(Halt::Again(said)) => MergeError::Moved { into: self.into.into(), said },
            };
            if attempt == ATTEMPTS || self.journal.has_left_locks.get() {
                return Err(error);
            }
            // The other process needs a moment.
            std::thread::sleep(Duration::from_millis(20) * attempt);
            attempt += 1;
        }
    }

    fn attempt(&self) -> Result<Merged, Halt> {
        let (tip, before) = (self.tip(self.branch)?, self.tip(self.into)?);
        if self.git.contains(&before, &tip)? {
            return Ok(Merged { commit: before.clone(), before, checkout: None, saved: None });
        }
        let checkout = self.checkout()?;
        let commit = self.candidate(&tip, &before)?;
        let mut merged =
            Merged { commit, before, checkout: checkout.as_ref().map(|checkout| checkout.path.clone()), saved: None };
        if merged.has_moved() {
            self.git.save_tip(self.journal.common(), self.into, &merged.before)?;
            let updates = self.updates(&tip, &merged)?;
            match &checkout {
                Some(checkout) => merged.saved = self.target.move_with(checkout, &merged.before, &merged.commit, &updates)?,
                None => self.target.move_alone(&updates)?,
            }
        }
        Ok(merged)
    }

    fn tip(&self, branch: &str) -> Result<Id, GitError> {
        self.git.tip(branch)?.ok_or_else(|| GitError::NoBranch(branch.into()))
    }

    /// The checkout of the target, which must have no changes, so that it can move along.
    fn checkout(&self) -> Result<Option<Checkout>, MergeError> {
        let Some(checkout) = self.target.checkout()? else { return Ok(None) };
        if !self.git.can_move(&checkout)? {
            return Err(MergeError::Dirty(checkout.path));
        }
        Ok(Some(checkout))
    }

    /// The commit that the target moves to. A ref holds it, so that `git gc` does not remove it.
    fn candidate(&self, tip: &Id, before: &Id) -> Result<Id, Halt> {
        if let Some((_, _, commit)) = self.candidate.borrow().as_ref().filter(|(one, other, _)| (one, other) == (tip, before)) {
            return Ok(commit.clone());
        }
        let made = match self.how {
            MergeHow::FastForward => self.fast_forward(tip, before),
            MergeHow::Rebase => self.rebase(tip, before),
            MergeHow::MergeCommit => self.merge_commit(tip, before),
        };
        let commit = made?;
        if !self.is_complete(&commit, before)? {
            return Err(Halt::Again("objects of the new commit were cleared away".into()));
        }
        *self.candidate.borrow_mut() = Some((tip.clone(), before.clone(), commit.clone()));
        Ok(commit)
    }

    fn fast_forward(&self, tip: &Id, before: &Id) -> Result<Id, MergeError> {
        if self.git.contains(tip, before)? {
            self.hold(tip)?;
            return Ok(tip.clone());
        }
        Err(MergeError::NotFastForward { branch: self.branch.into(), into: self.into.into() })
    }

    /// Rebases the commits of the branch onto the target. Commits with a change that the target has already are dropped.
    fn rebase(&self, tip: &Id, before: &Id) -> Result<Id, MergeError> {
        let tree = Tree::add(self.git, self.merge_lock, tip)?;
        // The user's settings can turn on each of these, and `--update-refs` would move other branches along.
        let plain = ["--no-autostash", "--no-autosquash", "--no-update-refs", "--no-rebase-merges", "--no-stat", "--empty=drop"];
        let mut args = vec!["rebase"];
        args.extend(plain);
        args.push(before);
        let commit = self.finish(&tree, &args)?;
        // Git makes the merges again and compares them. A merge that was resolved manually usually led to a conflict above.
        let remerge = ["log", "--no-show-signature", "--format=", "--merges", "--remerge-diff", "--name-only"];
        if !self.git.get(&[&remerge[..], &[tip, &format!("^{before}"), "--"]].concat())?.is_empty() {
            return Err(MergeError::OwnChanges(self.branch.into()));
        }
        Ok(commit)
    }

    fn merge_commit(&self, tip: &Id, before: &Id) -> Result<Id, MergeError> {
        let tree = Tree::add(self.git, self.merge_lock, before)?;
        let message = format!("Merge branch '{}' into {}", self.branch, self.into);
        self.finish(&tree, &["merge", "--no-ff", "--no-squash", "--commit", "--no-edit", "--no-stat", "-m", &message, tip])
    }

    /// Runs git in the worktree. The worktree holds the new commit until the ref does.
    fn finish(&self, tree: &Tree<'_>, args: &[&str]) -> Result<Id, MergeError> {
        let answer = tree.git().ask(args)?;
        if answer.status == 0 {
            let commit = tree.head()?;
            if !self.git.contains(&self.tip(self.into)?, &commit).unwrap_or(false) {
                self.hold(&commit)?;
            }
            return Ok(commit);
        }
        let conflicts = tree.conflicts()?;
        Err(if conflicts.is_empty() { answer.failed().into() } else { MergeError::Conflict(conflicts) })
    }

    /// Holds a commit until the next one replaces it. The ref is not removed, because that would lock all refs.
    fn hold(&self, commit: &Id) -> Result<(), GitError> {
        let name = format!("refs/banksman/moves/{}", owner(self.merge_lock.scratch()));
        self.git.set_own_ref(self.journal.common(), &["update-ref", &name, commit])
    }

    /// Whether all objects of a new commit exist. A `git gc` may have begun before the ref that holds the commit was
    /// made; then the commit is packed: a `git gc` that began earlier does not remove the new pack.
    fn is_complete(&self, commit: &Id, before: &Id) -> Result<bool, GitError> {
        if self.how == MergeHow::FastForward || commit == before {
            return Ok(true);
        }
        if !self.journal.is_being_collected() {
            let answer = self.git.ask(&["rev-list", "--objects", "--quiet", commit, &format!("^{before}")])?;
            return Ok(answer.status == 0);
        }
        self.git.pack(commit, before, &self.journal.common().join("objects/pack/pack"))
    }

    /// The ref updates: the move of the target and, unless it then contains the branch itself, the record of what the
    /// branch has become.
    fn updates(&self, tip: &Id, merged: &Merged) -> Result<Vec<Update>, GitError> {
        let (from, to) = (merged.before.clone(), merged.commit.clone());
        let mut updates = vec![Update::Move { name: self.target.full_name(), from, to }];
        if !self.git.contains(&merged.commit, tip)? {
            updates.push(Git::landing(self.into, tip, &merged.commit));
        }
        Ok(updates)
    }
}

fn files(files: &[String]) -> String {
    let named = files.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if files.len() > NAMED { format!("{named} and {} more", files.len() - NAMED) } else { named }
}
