//! Merging a branch into another, without touching anything that somebody works on.
//!
//! The new commit is made in a worktree of its own. Then the target moves, by comparing and swapping, from the very commit that
//! the merge began with; before that its checkout does, if it has one, which must be clean. If somebody else has moved the target
//! meanwhile, the checkout goes back and the merge begins anew. The branch itself never moves.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use banksman_core::plan::MergeHow;
use thiserror::Error;

use super::checkouts::Checkout;
use super::moving::Move;
use super::scratch::{Tree, Turn};
use super::{Git, GitError, Id, check};

/// How often a merge begins anew because somebody else has moved the target.
const ATTEMPTS: u32 = 5;

/// How long one command of git may take. Whoever wants the whole merge to end sooner ends the process.
const LIMIT: Duration = Duration::from_secs(3_600);

/// How many former tips of a branch are kept.
const KEPT: usize = 50;

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
    #[error("the checkout at {} is between two commits, and the next merge into it tries to put it back: {source}", path.display())]
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

/// Merges a branch of the repository that `repo` belongs to into another, in a worktree below `scratch`. Merges with the same
/// `scratch` wait for each other.
///
/// Hooks do not run in that worktree; in the checkout of the target they do. The tip that the target had before is kept as
/// `refs/banksman/merges/TARGET/TIME-ID`, until 50 later merges into it have been made.
pub fn merge(repo: &Path, scratch: &Path, branch: &str, into: &str, how: MergeHow) -> Result<Merged, MergeError> {
    check(branch)?;
    check(into)?;
    let git = Git::new(repo, LIMIT);
    git.check_version()?;
    let git = known(git)?;
    let turn = Turn::take(&git, scratch)?;
    if let Some(other) = git.alias_of(into)? {
        return Err(MergeError::Alias { into: into.into(), other });
    }
    for checkout in git.checkouts(into)?.into_iter().filter(|checkout| !checkout.is_rebasing) {
        // Left by a merge that was killed: nothing is known of the checkout before it is where its branch is.
        if let Some(left) = Move::left(&git.at(&checkout.path))? {
            settle(&left, &checkout)?;
            left.end()?;
        }
    }
    let job = Job { git: &git, turn: &turn, branch, into, how };
    let mut attempt = 1;
    loop {
        match job.attempt() {
            Err(MergeError::Moved { .. } | MergeError::Locked(_)) if attempt < ATTEMPTS => {
                // Whoever has it locked at this moment needs a moment.
                std::thread::sleep(Duration::from_millis(20) * attempt);
                attempt += 1;
            }
            end => return end,
        }
    }
}

fn settle(moving: &Move, checkout: &Checkout) -> Result<(), MergeError> {
    moving.settle().map_err(|source| MergeError::Halfway { path: checkout.path.clone(), source })
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
    turn: &'a Turn,
    branch: &'a str,
    into: &'a str,
    how: MergeHow,
}

impl Job<'_> {
    fn attempt(&self) -> Result<Merged, MergeError> {
        let (tip, before) = (self.tip(self.branch)?, self.tip(self.into)?);
        if self.git.contains(&before, &tip)? {
            return Ok(Merged { commit: before.clone(), before, checkout: None });
        }
        let checkout = self.checkout()?;
        let commit = match self.how {
            MergeHow::FastForward => self.fast_forward(&tip, &before)?,
            MergeHow::Rebase => self.rebase(&tip, &before)?,
            MergeHow::MergeCommit => self.merge_commit(&tip, &before)?,
        };
        if commit != before {
            self.save(&before)?;
            match &checkout {
                Some(checkout) => self.forward_checkout(checkout, &before, &commit)?,
                // Whoever has checked it out meanwhile would find all that was merged taken back in the index.
                None if !self.git.checkouts(self.into)?.is_empty() => return Err(self.moved("it was checked out".into())),
                None => self.swap(self.git, &before, &commit)?,
            }
        }
        Ok(Merged { commit, before, checkout: checkout.map(|checkout| checkout.path) })
    }

    fn tip(&self, branch: &str) -> Result<Id, GitError> {
        self.git.tip(branch)?.ok_or_else(|| GitError::NoBranch(branch.into()))
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

    fn fast_forward(&self, tip: &Id, before: &Id) -> Result<Id, MergeError> {
        if self.git.contains(tip, before)? {
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

    fn finish(&self, tree: &Tree<'_>, args: &[&str]) -> Result<Id, MergeError> {
        let answer = tree.git().ask(args)?;
        if answer.status == 0 {
            return Ok(tree.head()?);
        }
        let conflicts = tree.conflicts()?;
        Err(if conflicts.is_empty() { answer.failed().into() } else { MergeError::Conflict(conflicts) })
    }

    /// Moves the target together with its checkout. What has begun and does not succeed is undone.
    fn forward_checkout(&self, checkout: &Checkout, before: &Id, commit: &Id) -> Result<(), MergeError> {
        let there = self.git.at(&checkout.path);
        let Some(moving) = Move::begin(&there, before, commit)? else {
            return Err(MergeError::Locked(checkout.path.clone()));
        };
        if let Err(refusal) = self.may_move(checkout, &there, &moving) {
            moving.end()?;
            return Err(refusal);
        }
        let end = self.forward(&there, &moving, before, commit);
        if end.is_err() {
            settle(&moving, checkout)?;
        }
        moving.end()?;
        end?;
        // Whatever it says: the merge is over.
        there.ask(&["hook", "run", "--ignore-missing", "post-merge", "--", "0"])?;
        Ok(())
    }

    /// Whether a checkout may move, which is locked now: from here on nobody stages anything or switches to another branch.
    fn may_move(&self, checkout: &Checkout, there: &Git, moving: &Move) -> Result<(), MergeError> {
        // Whoever has switched to another branch meanwhile does not want that one to move.
        if there.line(&["symbolic-ref", "--quiet", "HEAD"])? != format!("refs/heads/{}", self.into) {
            return Err(self.moved("its checkout has switched to another branch".into()));
        }
        if !self.git.can_move(checkout)? {
            return Err(MergeError::Dirty(checkout.path.clone()));
        }
        if moving.in_the_way()? {
            return Err(MergeError::InTheWay(checkout.path.clone()));
        }
        Ok(())
    }

    /// Moves the files, then the target. Git itself refuses to overwrite what somebody writes at this moment.
    fn forward(&self, there: &Git, moving: &Move, before: &Id, commit: &Id) -> Result<(), MergeError> {
        let answer = moving.forward()?;
        if answer.status == 0 {
            return self.swap(there, before, commit);
        }
        let path = there.directory.clone();
        Err(match &answer.stderr {
            said if said.contains("ntracked") => MergeError::InTheWay(path),
            said if said.contains("not uptodate") => MergeError::Dirty(path),
            _ => answer.failed().into(),
        })
    }

    /// Moves the target, if it still is where it was.
    fn swap(&self, git: &Git, before: &Id, commit: &Id) -> Result<(), MergeError> {
        let (note, name) = (format!("banksman: merge {}", self.branch), format!("refs/heads/{}", self.into));
        let answer = git.ask(&["update-ref", "-m", &note, &name, commit, before])?;
        if answer.status == 0 {
            return Ok(());
        }
        // A hook of the user's can refuse it as well.
        let is_moved = self.tip(self.into)? != *before || answer.stderr.contains(".lock'");
        Err(if is_moved { self.moved(answer.stderr) } else { answer.failed().into() })
    }

    fn moved(&self, said: String) -> MergeError {
        MergeError::Moved { into: self.into.into(), said }
    }

    /// Keeps the tip that the target has, once, and drops the oldest ones.
    fn save(&self, before: &Id) -> Result<(), GitError> {
        let place = format!("refs/banksman/merges/{}/", self.into);
        let list = self.git.line(&["for-each-ref", "--format=%(objectname) %(refname)", "--sort=-refname", &place])?;
        // A branch `a/b` has its own below those of `a`.
        let is_own = |name: &str| name.strip_prefix(&place).is_some_and(|rest| !rest.contains('/'));
        let own: Vec<_> = list.lines().filter_map(|line| line.split_once(' ')).filter(|(_, name)| is_own(name)).collect();
        if own.first().is_some_and(|(id, _)| id == before) {
            return Ok(());
        }
        let ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let name = format!("{place}{ms:014}-{}", before.get(..12).unwrap_or(before));
        self.git.get(&["update-ref", &name, before])?;
        for (_, old) in own.into_iter().skip(KEPT - 1) {
            self.git.get(&["update-ref", "-d", old])?;
        }
        Ok(())
    }
}

fn files(files: &[String]) -> String {
    let named = files.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if files.len() > NAMED { format!("{named} and {} more", files.len() - NAMED) } else { named }
}
