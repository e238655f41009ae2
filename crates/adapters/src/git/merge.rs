//! Merging a branch into another, without touching anything that somebody works on.
//!
//! The new commit is made in a worktree of its own, and held by a ref. Then the target moves, by comparing and swapping, from the
//! very commit that the merge began with, and its checkout with it, if it has one: it must be clean (`moving`). If somebody else
//! has moved the target or changed anything of the checkout meanwhile, nothing is touched and the merge begins anew. The branch
//! itself never moves.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use banksman_core::pipeline::plan::MergeHow;
use thiserror::Error;

use super::checkouts::Checkout;
use super::journal::{Journal, owner};
use super::moving::Move;
use super::scratch::{Tree, Turn};
use super::settling::settle_all;
use super::staging::{Staged, stage};
use super::transaction::{Transaction, Update};
use super::{Git, GitError, Id, check};

/// How often a merge begins anew because somebody else has moved the target.
const ATTEMPTS: u32 = 5;

/// How long one command of git may take. Whoever wants the whole merge to end sooner ends the process.
const LIMIT: Duration = Duration::from_secs(3_600);

/// How many files of a conflict are named.
const NAMED: usize = 10;

/// What a merge came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Where the target is now.
    pub commit: String,
    /// Where it was before.
    pub before: String,
    /// The checkout that moved along.
    pub checkout: Option<PathBuf>,
    /// The folder with the files that somebody has changed in the moment in which the checkout moved.
    pub saved: Option<PathBuf>,
}

impl Merged {
    /// Whether the target has moved. It has not if all of the branch was in it already.
    pub fn has_moved(&self) -> bool {
        self.commit != self.before
    }
}

/// Why a branch is not merged. Nothing was changed then, unless it says so.
#[derive(Debug, Error)]
pub enum MergeError {
    /// The target has commits of its own.
    #[error("not a fast-forward: {into} has commits that {branch} does not have")]
    NotFastForward {
        /// What was to be merged.
        branch: Box<str>,
        /// Into which.
        into: Box<str>,
    },
    /// The two have changed the same in different ways.
    #[error("conflict in {}", files(.0))]
    Conflict(Vec<String>),
    /// A rebase leaves out merges, and what people have changed in them.
    #[error("a rebase would lose changes: merges in {0} have some of their own")]
    OwnChanges(Box<str>),
    /// Somebody works in the checkout of the target.
    #[error("the checkout at {} has changes", .0.display())]
    Dirty(PathBuf),
    /// New files in the checkout of the target would be overwritten.
    #[error("the checkout at {} has changes: new files are in the way", .0.display())]
    InTheWay(PathBuf),
    /// A rebase of the target, or a merge into it, is under way.
    #[error("the checkout at {} has changes: a {what} is under way", path.display())]
    UnderWay {
        /// Where.
        path: PathBuf,
        /// What.
        what: &'static str,
    },
    /// Some other git has the checkout of the target locked.
    #[error("the checkout at {} is locked: another git is at work there, or was killed and has left its index.lock", .0.display())]
    Locked(PathBuf),
    /// The target is checked out in more than one directory, and only one of them could move along.
    #[error("the checkout at {} is not the only one of {into}", path.display())]
    SeveralCheckouts {
        /// The target.
        into: Box<str>,
        /// One of them.
        path: PathBuf,
    },
    /// The target is a symbolic ref: another branch would move, maybe under its checkout.
    #[error("the branch {into} is another name of {other}: merge into that")]
    Alias {
        /// The target.
        into: Box<str>,
        /// What it stands for.
        other: String,
    },
    /// Somebody else moved the target, every time.
    #[error("the branch {into} was moved by others meanwhile, {ATTEMPTS} times: {said}")]
    Moved {
        /// The target.
        into: Box<str>,
        /// What git said.
        said: String,
    },
    /// The checkout of the target has begun to move and could not be put back.
    #[error("the checkout at {} is between two commits, and the next merge, or banksman doctor --fix, tries to put it back: {source}", path.display())]
    Halfway {
        /// Where.
        path: PathBuf,
        /// What went wrong.
        source: GitError,
    },
    /// Git could not do it.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Why an attempt at a merge ends.
pub(super) enum Halt {
    /// Somebody was faster: nothing was touched, and it begins anew.
    Again(String),
    /// Some other git has locked the checkout at this moment.
    Locked(PathBuf),
    /// It cannot be.
    Refused(MergeError),
}

impl<E: Into<MergeError>> From<E> for Halt {
    fn from(error: E) -> Halt {
        Halt::Refused(error.into())
    }
}

/// Merges a branch of the repository that `repo` belongs to into another, in a worktree below `scratch`. Merges with the same
/// `scratch` wait for each other. What killed merges have left is settled first.
///
/// Hooks do not run in that worktree; in the checkout of the target they do. The tip that the target had before is kept as
/// `refs/banksman/merges/TARGET/TIME-ID`, until at least 50 later merges into it have been made; a branch that has landed as other
/// commits than its own is recorded as `refs/banksman/landed/TARGET/TIME-TIP`, likewise.
pub fn merge(repo: &Path, scratch: &Path, branch: &str, into: &str, how: MergeHow) -> Result<Merged, MergeError> {
    check(branch)?;
    check(into)?;
    let git = Git::new(repo, LIMIT);
    git.check_version()?;
    let git = known(git)?;
    let (common, git_dir) = (git.place("--git-common-dir")?, git.place("--git-dir")?);
    let turn = Turn::take(&git, scratch, &common)?;
    // Nothing is known of a checkout before it is at one of its two commits.
    settle_all(&git, &common, Some(turn.scratch()))?;
    if let Some(other) = git.alias_of(into)? {
        return Err(MergeError::Alias { into: into.into(), other });
    }
    let journal = Journal::begin(&common, turn.scratch())?;
    let job = Job { git: &git, git_dir, turn: &turn, journal: &journal, branch, into, how, candidate: RefCell::default() };
    journal.keep_collection_away()?;
    let end = job.merge();
    journal.let_collect();
    // A checkout that could not be put back, and locks of a killed git, are for the next merge to settle.
    if journal.open_record()?.is_none() && !journal.has_left_locks.get() {
        journal.end()?;
    }
    end
}

/// Git with a name to make commits with, if nobody has given it one.
fn known(git: Git) -> Result<Git, GitError> {
    if git.ask(&["var", "GIT_COMMITTER_IDENT"])?.status == 0 {
        return Ok(git);
    }
    Ok(git.with("user.name=banksman").with("user.email=banksman@localhost"))
}

struct Job<'a> {
    git: &'a Git,
    /// Where git keeps what belongs to the checkout that it is asked in.
    git_dir: PathBuf,
    turn: &'a Turn,
    journal: &'a Journal,
    branch: &'a str,
    into: &'a str,
    how: MergeHow,
    /// What was made of which two tips: an attempt that comes to nothing because of the checkout need not make it again.
    candidate: RefCell<Option<(Id, Id, Id)>>,
}

impl Job<'_> {
    fn merge(&self) -> Result<Merged, MergeError> {
        let mut attempt = 1;
        loop {
            let error = match self.attempt() {
                Ok(merged) => {
                    self.git.prune_records(self.journal, self.into)?;
                    return Ok(merged);
                }
                Err(Halt::Refused(MergeError::Git(error @ GitError::Failed { .. }))) if self.is_collecting(&error) => {
                    error.into()
                }
                Err(Halt::Refused(error)) => return Err(error),
                Err(Halt::Locked(path)) => MergeError::Locked(path),
                Err(Halt::Again(said)) => MergeError::Moved { into: self.into.into(), said },
            };
            if attempt == ATTEMPTS || self.journal.has_left_locks.get() {
                return Err(error);
            }
            // Whoever is at work there needs a moment.
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
            self.git.save_tip(self.into, &merged.before)?;
            let updates = self.updates(&tip, &merged)?;
            match &checkout {
                Some(checkout) => merged.saved = self.move_with(checkout, &merged, &updates)?,
                None => self.move_alone(&updates)?,
            }
        }
        Ok(merged)
    }

    fn tip(&self, branch: &str) -> Result<Id, GitError> {
        self.git.tip(branch)?.ok_or_else(|| GitError::NoBranch(branch.into()))
    }

    fn target(&self) -> String {
        format!("refs/heads/{}", self.into)
    }

    /// The checkout of the target, which must be one that can move along.
    fn checkout(&self) -> Result<Option<Checkout>, MergeError> {
        let mut all = self.git.checkouts(self.into)?;
        let Some(checkout) = all.pop() else { return Ok(None) };
        if !all.is_empty() {
            return Err(MergeError::SeveralCheckouts { into: self.into.into(), path: checkout.path });
        }
        if let Some(what) = self.git.under_way(&checkout)? {
            return Err(MergeError::UnderWay { path: checkout.path, what });
        }
        if !self.git.can_move(&checkout)? {
            return Err(MergeError::Dirty(checkout.path));
        }
        Ok(Some(checkout))
    }

    /// The commit that the target is to move to. A ref holds it, so that nobody clears it away.
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

    /// Makes the commits of the branch anew on top of the target. Those with a change that the target has already fall away.
    fn rebase(&self, tip: &Id, before: &Id) -> Result<Id, MergeError> {
        let tree = Tree::add(self.git, self.turn, tip)?;
        // Settings of the user's can ask for each of these, and one of them would move other branches along.
        let plain = ["--no-autostash", "--no-autosquash", "--no-update-refs", "--no-rebase-merges", "--no-stat", "--empty=drop"];
        let mut args = vec!["rebase"];
        args.extend(plain);
        args.push(before);
        let commit = self.finish(&tree, &args)?;
        // The merges are made again and compared. One that was resolved by hand has led to a conflict above, usually.
        let look = ["log", "--no-show-signature", "--format=", "--merges", "--remerge-diff", "--name-only"];
        if !self.git.get(&[&look[..], &[tip, &format!("^{before}"), "--"]].concat())?.is_empty() {
            return Err(MergeError::OwnChanges(self.branch.into()));
        }
        Ok(commit)
    }

    fn merge_commit(&self, tip: &Id, before: &Id) -> Result<Id, MergeError> {
        let tree = Tree::add(self.git, self.turn, before)?;
        let message = format!("Merge branch '{}' into {}", self.branch, self.into);
        self.finish(&tree, &["merge", "--no-ff", "--no-squash", "--commit", "--no-edit", "--no-stat", "-m", &message, tip])
    }

    /// Runs git in the worktree. The commit that it makes is held by the worktree until the ref does.
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

    /// Holds a commit, until the next one takes its place: removing a ref would lock all of them.
    fn hold(&self, commit: &Id) -> Result<(), GitError> {
        let name = format!("refs/banksman/moves/{}", owner(self.turn.scratch()));
        self.git.get(&["update-ref", &name, commit]).map(drop)
    }

    /// Whether git may fail because somebody clears away unused objects at the same time.
    fn is_collecting(&self, error: &GitError) -> bool {
        let said = error.to_string();
        let is_missing = [
            "missing",
            "bad object",
            "invalid object",
            "unable to read",
            "could not read",
            "could not parse",
            "not a valid object",
            "nonexistent object",
            "unable to write file",
            "No such file or directory",
        ];
        self.journal.is_being_collected() || is_missing.iter().any(|words| said.contains(words))
    }

    /// Whether everything of a new commit is there. Whoever clears away what is not used may have begun before the ref was there
    /// that holds it; then it is packed, which nobody removes who has begun before.
    fn is_complete(&self, commit: &Id, before: &Id) -> Result<bool, GitError> {
        if self.how == MergeHow::FastForward || commit == before {
            return Ok(true);
        }
        if !self.journal.is_being_collected() {
            let range = [commit, format!("^{before}").as_str()].map(str::to_owned);
            return Ok(self
                .git
                .ask(&[&["rev-list", "--objects", "--quiet"], &range.each_ref().map(String::as_str)[..]].concat())?
                .status
                == 0);
        }
        self.git.pack(commit, before, &self.journal.common().join("objects/pack/pack"))
    }

    /// What changes with the target: nothing, if the branch itself is in it then, or the record of what it has become.
    fn updates(&self, tip: &Id, merged: &Merged) -> Result<Vec<Update>, GitError> {
        let (from, to) = (merged.before.clone(), merged.commit.clone());
        let mut updates = vec![Update::Move { name: self.target(), from, to }];
        if !self.git.contains(&merged.commit, tip)? {
            updates.push(Git::landing(self.into, tip, &merged.commit));
        }
        Ok(updates)
    }

    fn prepare(&self, git: &Git, git_dir: &Path, updates: &[Update]) -> Result<Transaction<'_>, Halt> {
        let note = format!("banksman: merge {}", self.branch);
        let said = match Transaction::prepare(git, git_dir, self.journal, &note, updates)? {
            Ok(transaction) => return Ok(transaction),
            Err(said) => said,
        };
        // A hook of the user's can refuse it as well.
        let has_moved = |update: &Update| match update {
            Update::Move { from, .. } => self.tip(self.into).is_ok_and(|tip| tip != *from),
            Update::Create { .. } | Update::Delete { .. } => false,
        };
        let is_moved = updates.iter().any(has_moved) || said.contains(".lock'");
        Err(if is_moved { Halt::Again(said) } else { GitError::Failed { what: "update-ref".into(), said }.into() })
    }

    /// Moves a target that is not checked out anywhere.
    fn move_alone(&self, updates: &[Update]) -> Result<(), Halt> {
        let transaction = self.prepare(self.git, &self.git_dir, updates)?;
        // Whoever has checked it out meanwhile would find all that was merged taken back in the index.
        if !self.git.checkouts(self.into)?.is_empty() {
            return Err(Halt::Again("it was checked out".into()));
        }
        transaction.commit().map_err(|said| GitError::Failed { what: "update-ref".into(), said }.into())
    }

    /// Moves the target together with its checkout. What has begun and does not succeed is undone.
    fn move_with(&self, checkout: &Checkout, merged: &Merged, updates: &[Update]) -> Result<Option<PathBuf>, Halt> {
        let there = self.git.at(&checkout.path);
        let staged = match stage(&there, self.journal, &self.target(), &merged.before, &merged.commit) {
            // What somebody has committed meanwhile is a change as long as it is compared with what was there before.
            Err(Halt::Refused(MergeError::Dirty(_))) if self.tip(self.into)? != merged.before => {
                return Err(Halt::Again("somebody has committed to it".into()));
            }
            staged => staged?,
        };
        let moving = &staged.moving;
        self.journal.write_record(moving.record())?;
        let end = self.move_locked(&there, &staged, updates);
        if let Err(Halt::Refused(MergeError::Halfway { .. })) = &end {
            return end.map(|()| None);
        }
        self.journal.close_record()?;
        moving.unlock_index()?;
        let saved = moving.dispose()?;
        end?;
        // Whatever it says: the merge is over.
        there.ask(&["hook", "run", "--ignore-missing", "post-merge", "--", "0"])?;
        Ok(saved)
    }

    /// Locks, verifies and moves. The index stays locked.
    fn move_locked(&self, there: &Git, staged: &Staged<'_>, updates: &[Update]) -> Result<(), Halt> {
        let moving = &staged.moving;
        let transaction = self.prepare(there, &moving.record().git_dir, updates)?;
        if !moving.lock_index()? {
            return Err(Halt::Locked(there.directory.clone()));
        }
        staged.verify()?;
        if let Err(halt) = moving.forward() {
            undo(moving)?;
            return Err(halt);
        }
        let Err(said) = transaction.commit() else { return Ok(()) };
        // Git may have been killed after it had done it.
        if self.git.contains(&self.tip(self.into)?, &moving.record().to)? {
            return Ok(());
        }
        undo(moving)?;
        Err(GitError::Failed { what: "update-ref".into(), said }.into())
    }
}

fn undo(moving: &Move<'_>) -> Result<(), MergeError> {
    moving.undo().map_err(|source| MergeError::Halfway { path: moving.record().root.clone(), source })
}

fn files(files: &[String]) -> String {
    let named = files.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if files.len() > NAMED { format!("{named} and {} more", files.len() - NAMED) } else { named }
}
