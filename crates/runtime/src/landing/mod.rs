//! Works for the merge queues of a project: makes commits, checks them and moves targets, and reports each step before
//! the next.
//!
//! The holder of the lock `landing:TARGET` is the worker of its queue: a runner, or the command `land`. If it is
//! killed, another process gets the lock, reads in the rows how far the entry had come, and asks git whether the target
//! has moved already.

mod check;
mod collect;

use std::time::Duration;

use banksman_adapters::git::{Built, GitError, Lander, MergeError, Message, Moved};
use banksman_adapters::ids;
use banksman_core::event::{Kind, Resource};
use banksman_core::landing::{
    CommitId, Entry, EntrySpec, Input, LandingEnd, LandingQueue, Obstacle, Outcome, Report, State, Target, Work,
};
use banksman_core::resource::coordination::{self, Command};
use banksman_core::resource::grant::{Ask, GrantRequest, Term};
use banksman_core::resource::lock;
use banksman_core::{HolderId, LandingId, Lease, Name};
use banksman_engine::{LandingOutcome, LandingRequest, LandingWorker, Reply, TypedRequest, landing_queue};
use banksman_store::{Key, StoreError};
use thiserror::Error;

use crate::client::{Cancel, Client};
use crate::error::Error;
use crate::outlets::Refusal;
use crate::project::Project;
use crate::waiting::{Acquisition, WaitOptions};
use crate::workspaces;
use banksman_adapters::notify::Program;

pub(crate) use check::enter;

#[derive(Debug, Error)]
pub enum LandingError {
    /// The store or the system failed.
    #[error(transparent)]
    Shell(#[from] Error),
    #[error(transparent)]
    Git(#[from] GitError),
    /// No command is set that checks commits before they land.
    #[error("landing.check is not set, and nothing lands unchecked unless a person says so")]
    NoCheck,
    /// The check command comes with the repository, and the user has not trusted it.
    #[error("landing.check comes with the project and is not trusted (trust it with: banksman trust)")]
    Untrusted,
    /// The branch has a name that no lock can have.
    #[error("the name of the branch {0} is too long")]
    LongName(Name),
}

impl From<banksman_store::StoreError> for LandingError {
    fn from(error: banksman_store::StoreError) -> LandingError {
        LandingError::Shell(error.into())
    }
}

/// The command that checks commits before they land.
fn check_command(project: &Project) -> Result<Program, LandingError> {
    match project.landing_check() {
        Ok(program) => program.ok_or(LandingError::NoCheck),
        Err(Refusal::Untrusted { .. } | Refusal::Secret(_) | Refusal::Url { .. }) => Err(LandingError::Untrusted),
    }
}

/// Why no commit can be checked here, if so.
pub fn uncheckable(project: &Project) -> Option<LandingError> {
    check_command(project).err()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkEnd {
    /// Nothing is to be done now, or until the given moment.
    Idle(Option<Lease>),
    /// The goals have come as far as they can.
    Settled(Vec<Entry>),
    /// The work was cancelled, the time was up, or another worker has the lock.
    Cancelled,
}

#[derive(Default)]
pub struct WorkOptions<'a> {
    /// Ends when none of these entries can come any further; if there are none, when no work is left.
    pub goals: Vec<LandingId>,
    /// How long to wait for another worker.
    pub wait: Duration,
    /// Ends the work when it becomes readable.
    pub cancel: Cancel<'a>,
    /// Called with an entry after each step.
    pub tell: Option<&'a dyn Fn(&Entry)>,
}

/// The repository of a project, to land on its branches.
pub fn lander(project: &Project) -> Result<Lander, GitError> {
    Lander::open(project.root(), &project.folder().join("workspaces"))
}

/// Puts commits into the queue of a branch, in one transaction if possible. Git references to them are written before
/// the rows, so that no row names a missing commit.
pub fn enqueue(client: &Client, lander: &Lander, target: &Name, specs: Vec<EntrySpec>) -> Result<Vec<Outcome>, LandingError> {
    let sources: Vec<&str> = specs.iter().filter_map(|spec| Some(spec.source.as_ref()?.as_str())).collect();
    lander.hold(target.as_str(), &sources)?;
    let request = |spec| LandingRequest::new(target.clone(), Input::Add(Box::new(spec)));
    let outcome = |reply: Result<Reply, StoreError>| match LandingRequest::reply(reply?) {
        Some(LandingOutcome::Stepped(outcome)) => Ok(outcome),
        reply => unreachable!("nobody needs a lock to add an entry, and the answer is {reply:?}"),
    };
    client.call_all(specs.into_iter().map(request).map(Into::into).collect()).into_iter().map(outcome).collect()
}

/// The queue of a branch, and the moment at which it was read.
pub fn load_queue(client: &Client, target: &Name) -> Result<(LandingQueue, Lease), LandingError> {
    let rows = client.load(&[Key::LandingQueue(target.clone())].into())?;
    Ok((landing_queue(target, &rows.backlog), rows.lease))
}

/// Works for the queue of a branch until it is empty, the goals are settled, or it is cancelled.
pub fn work(client: &Client, lander: &Lander, target: &Name, options: &WorkOptions<'_>) -> Result<WorkEnd, LandingError> {
    // With SQLite there is only one machine, and it has no name.
    let host = if client.project().is_shared() { client.this_process().host.clone() } else { Default::default() };
    let (queue, now) = load_queue(client, target)?;
    if let Some(end) = idle(&queue.next(&host, now)) {
        return settled(client, &options.goals, end);
    }
    let Some(worker) = Grant::acquire(client, target, options)? else { return Ok(WorkEnd::Cancelled) };
    // The previous worker may have been killed right after a move, and then nothing is left to move. If that cannot be
    // settled now, the next move tries again and reports the error.
    lander.settle().ok();
    let job = LandingAttempt { client, lander, target, worker: &worker, options };
    let mut has_landed = false;
    let end = loop {
        let (queue, now) = load_queue(client, target)?;
        if !options.goals.is_empty() && options.goals.iter().all(|goal| is_settled(&queue, goal)) {
            break settled(client, &options.goals, WorkEnd::Idle(None))?;
        }
        let work = queue.next(&host, now);
        if let Some(end) = idle(&work) {
            break settled(client, &options.goals, end)?;
        }
        let Some((entry, report)) = job.step(work)? else { break WorkEnd::Cancelled };
        has_landed |= matches!(report, Report::Moved { .. });
        match job.report(entry, report)? {
            LandingOutcome::Stepped(Outcome::Stands(entry)) => {
                options.tell.into_iter().for_each(|tell| tell(&entry));
                job.clear_after(&entry);
            }
            LandingOutcome::Stepped(_) => {}
            LandingOutcome::Fenced => break WorkEnd::Cancelled,
        }
    };
    if has_landed {
        job.tidy()?;
    }
    Ok(end)
}

fn idle(work: &Work) -> Option<WorkEnd> {
    match work {
        Work::Nothing => Some(WorkEnd::Idle(None)),
        Work::Sleep(until) => Some(WorkEnd::Idle(Some(*until))),
        Work::Collect(_) | Work::Build(_) | Work::Check { .. } | Work::CheckTip { .. } | Work::Move { .. } => None,
    }
}

/// Whether an entry cannot come any further now.
fn is_settled(queue: &LandingQueue, id: &LandingId) -> bool {
    queue.entries.get(id).is_none_or(|entry| match entry.state {
        State::Asking { .. } | State::Over(_) => true,
        State::Waiting { .. } => entry.again.is_some(),
        State::Queued | State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. } => false,
    })
}

/// The end of the work, with the current state of the goals.
fn settled(client: &Client, goals: &[LandingId], end: WorkEnd) -> Result<WorkEnd, LandingError> {
    if goals.is_empty() {
        return Ok(end);
    }
    let rows = client.load(&goals.iter().cloned().map(Key::Landing).collect())?.tables.backlog;
    // A branch that was named twice is one entry.
    let entries: Option<Vec<Entry>> = goals.iter().map(|goal| rows.landings.get(goal).cloned()).collect();
    Ok(entries.map_or(end, WorkEnd::Settled))
}

/// The lock of a queue, released on drop.
struct Grant<'a> {
    client: &'a Client,
    name: Name,
    worker: LandingWorker,
}

impl<'a> Grant<'a> {
    fn acquire(client: &'a Client, target: &Name, options: &WorkOptions<'_>) -> Result<Option<Grant<'a>>, LandingError> {
        let name = Target::lock(target).ok_or_else(|| LandingError::LongName(target.clone()))?;
        let holder = HolderId::new(&ids::short("landing")).expect("a short id is a valid name");
        let claim = GrantRequest { processes: vec![client.this_process().clone()], ..GrantRequest::new(holder.clone()) };
        let ask = Ask { term: Term::Open, ..Ask::new(claim) };
        let wait = WaitOptions { wait: Some(options.wait), cancel: options.cancel, ..WaitOptions::default() };
        let resource = Resource { kind: Kind::Lock, name: name.clone() };
        Ok(match client.acquire_any(resource, ask, wait)? {
            Acquisition::Answered { outcome: coordination::Outcome::Lock(outcome), .. } => match outcome {
                lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. } => {
                    Some(Grant { client, name, worker: LandingWorker { holder, epoch: grant.epoch } })
                }
                _ => None,
            },
            Acquisition::Answered { .. } | Acquisition::RequestReused | Acquisition::TimedOut(_) | Acquisition::Cancelled => None,
        })
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        let LandingWorker { holder, epoch } = self.worker.clone();
        // If the store does not answer, the death of this process frees the lock.
        self.client.ask(Command::Lock(self.name.clone(), lock::Input::Release { holder, epoch }), Vec::new()).ok();
    }
}

struct LandingAttempt<'a> {
    client: &'a Client,
    lander: &'a Lander,
    target: &'a Name,
    worker: &'a Grant<'a>,
    options: &'a WorkOptions<'a>,
}

impl LandingAttempt<'_> {
    /// Does the next piece of work. Returns `None` if it was cancelled.
    fn step(&self, work: Work) -> Result<Option<(LandingId, Report)>, LandingError> {
        Ok(match work {
            Work::Collect(entry) => Some((entry.id.clone(), self.collect(&entry)?)),
            Work::Build(entry) => Some((entry.id.clone(), self.build(&entry))),
            Work::Check { entry, commit } => {
                let checked = self.check(&entry.id, &commit)?;
                checked.map(|checked| match checked {
                    Ok((passed, log)) => (entry.id.clone(), Report::Checked { commit, passed, log }),
                    Err(error) => (entry.id.clone(), failure(error)),
                })
            }
            Work::CheckTip { entry, tip } => {
                let checked = self.check(&entry.id, &tip)?;
                checked.map(|checked| match checked {
                    Ok((passed, log)) => (entry.id.clone(), Report::TipChecked { tip, passed, log }),
                    Err(error) => (entry.id.clone(), failure(error)),
                })
            }
            Work::Move { entry, tip, commit } => Some((entry.id.clone(), self.move_target(&entry, &tip, commit))),
            Work::Sleep(_) | Work::Nothing => None,
        })
    }

    fn report(&self, entry: LandingId, report: Report) -> Result<LandingOutcome, LandingError> {
        let (target, worker) = (self.target.clone(), Some(self.worker.worker.clone()));
        Ok(self.client.request(LandingRequest { target, input: Input::Report(entry, report), worker })?)
    }

    fn build(&self, entry: &Entry) -> Report {
        let Some(source) = &entry.spec.source else { return failure("its commit is not known".into()) };
        let message =
            Message { title: entry.spec.title.to_string(), task: entry.spec.task.as_ref().map(|task| task.to_string()) };
        let target = self.target.as_str();
        let built = match self.lander.build(target, source.as_str(), &message) {
            Ok(built) => built,
            Err(error) => return failure(git_message(&error)),
        };
        match built {
            Built::NoChange { tip } => with_commit(&tip, |tip| Report::NoChange { tip }),
            Built::Conflict { tip, files } => {
                let files = files.into_iter().map(Into::into).collect();
                with_commit(&tip, |tip| Report::Conflict { tip, files })
            }
            Built::Commit { tip, commit } => {
                // A check may take long, so an obstacle to the move is reported before it.
                if !entry.spec.unchecked {
                    match self.lander.obstacle(target, &tip, &commit) {
                        Ok(Some(obstacle)) => return self.moved(obstacle, None),
                        Ok(None) => {}
                        Err(error) => return failure(error.to_string()),
                    }
                }
                with_commit(&tip, |tip| with_commit(&commit, |commit| Report::Built { tip, commit }))
            }
        }
    }

    fn move_target(&self, entry: &Entry, tip: &CommitId, commit: CommitId) -> Report {
        let source = entry.spec.source.as_ref().map_or("", CommitId::as_str);
        match self.lander.move_to(self.target.as_str(), source, tip.as_str(), commit.as_str()) {
            Ok(moved) => self.moved(moved, Some(commit)),
            Err(MergeError::Git(error)) => failure(git_message(&error)),
            Err(error) => failure(error.to_string()),
        }
    }

    fn moved(&self, moved: Moved, commit: Option<CommitId>) -> Report {
        match (moved, commit) {
            (Moved::Moved { .. }, Some(commit)) => Report::Moved { commit },
            (Moved::InTheWay { checkout, reason, files }, _) => Report::Obstructed(Obstacle::Checkout {
                path: checkout.display().to_string().into(),
                reason: reason.into(),
                files: files.into_iter().map(Into::into).collect(),
            }),
            (Moved::TipMoved | Moved::Moved { .. }, _) => Report::TipMoved,
        }
    }

    /// Removes the worktree of a task whose work has landed. If that fails, it is left to the next runner that starts,
    /// or to `workspaces prune`.
    fn clear_after(&self, entry: &Entry) {
        if let (State::Over(LandingEnd::Landed { .. } | LandingEnd::NoChange { .. }), Some(task)) =
            (&entry.state, &entry.spec.task)
        {
            workspaces::remove(self.client, task, false).ok();
        }
    }

    /// Releases the commits that no entry needs any more, and removes the oldest records.
    fn tidy(&self) -> Result<(), LandingError> {
        let (queue, _) = load_queue(self.client, self.target)?;
        let queued: Vec<&str> = queue.entries.values().filter_map(|entry| Some(entry.spec.source.as_ref()?.as_str())).collect();
        Ok(self.lander.tidy(self.target.as_str(), &queued)?)
    }

    /// Runs the check on a commit.
    fn check(&self, entry: &LandingId, commit: &CommitId) -> Result<check::Checked, LandingError> {
        let project = self.client.project();
        let program = check_command(project)?;
        Ok(check::run(project, self.lander, self.target, entry, commit, &program, self.options.cancel))
    }
}

/// Parses a commit id; if git printed something else, that is a failure of git.
fn with_commit(text: &str, report: impl FnOnce(CommitId) -> Report) -> Report {
    match CommitId::new(text) {
        Ok(commit) => report(commit),
        Err(error) => failure(error.to_string()),
    }
}

fn failure(error: String) -> Report {
    Report::Obstructed(Obstacle::Failure { error: error.into() })
}

/// The message of git, with a hint.
fn git_message(error: &GitError) -> String {
    let said = error.to_string();
    let is = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if is(&["empty ident", "tell me who you are", "no email was given", "no name was given"]) {
        let say = "git config --global user.name NAME; git config --global user.email EMAIL";
        return format!("git does not know who commits; say so with: {say}");
    }
    let hint = if is(&["gpg failed", "signing", "failed to sign"]) {
        "; commit.gpgSign is on: make the key available to this process, or turn it off for this repository"
    } else if is(&["No space left", "Disk quota"]) {
        "; free some space, and it goes on by itself"
    } else if is(&["unrelated histories", "shallow"]) {
        "; if the clone is shallow: git fetch --unshallow"
    } else if is(&["bad object", "invalid object", "not a valid object"]) {
        "; a commit is gone, as after git gc --prune=now beside a git commit: git reset --soft, in the worktree, to one that is there (git reflog), \
         and it goes on by itself"
    } else {
        ""
    };
    format!("{said}{hint}")
}
