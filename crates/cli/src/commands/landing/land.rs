//! `land`: work lands on a branch by a person's hand.

use std::os::fd::AsFd;
use std::time::Duration;

use banksman_adapters::git::Lander;
use banksman_core::landing::{CommitId, End, Entry, EntrySpec, Outcome, Return, State};
use banksman_core::task::{self, LandSpec};
use banksman_core::{LandingId, Name, Status, Task, TaskId};
use banksman_engine::{LandingRequest, LandingVerb, TaskOutcome, TaskRequest};
use banksman_runtime::Client;
use banksman_runtime::landing::{self, WorkEnd, WorkOptions};
use banksman_store::Key;
use clap::Args;

use super::super::ExitResult;
use super::{git_failure, landing_failure, sentence, target_of};
use crate::commands::find;
use crate::commands::resources::Dur;
use crate::commands::tasks::{refused, speaker};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::person_only;
use crate::signals::Signals;
use crate::views::Named;
use crate::views::landing::EntryView;

/// Land tasks or branches: put them into the merge queue, and see them through.
///
/// All changes of a branch, or of a task's worktree, become one commit on top of the target. That commit is checked (landing.check), and the target moves to
/// exactly that commit. A checkout of the target is updated if nothing in it is in the way. The branch itself does not move.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman land fix-login\n  banksman land 'Add login' --unchecked\n  banksman land fix-login --into release\n  banksman land fix-login --unchecked"
)]
pub(crate) struct Land {
    /// The tasks or branches
    #[arg(required = true, value_name = "TASK|BRANCH")]
    work: Vec<String>,
    /// The branch to land on [default: landing.target, or the branch of the main checkout]
    #[arg(long, value_name = "TARGET")]
    into: Option<String>,
    /// Land without the check
    #[arg(long)]
    unchecked: bool,
    /// The title of the commit of a branch [default: the subject of its last commit]
    #[arg(long)]
    title: Option<String>,
    /// What is higher lands first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Only put them into the queue, and leave the rest to a runner
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// How long to wait for another worker at most [default: locking.wait_timeout, 30m]
    #[arg(long, value_name = "DUR")]
    timeout: Option<Dur>,
}

impl Land {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        if self.unchecked {
            person_only::require_person("land --unchecked", context)?;
        }
        let client = context.client()?;
        let lander = landing::lander(client.project()).map_err(git_failure)?;
        let mut found = Vec::new();
        for name in &self.work {
            found.push(Source::find(name, &client, &lander)?);
        }
        let mut ids = Vec::new();
        for source in found {
            let target = self.target(&client, &lander, &source)?;
            let id = match &source {
                Source::Branch(branch) => self.enqueue(&client, &lander, &target, branch)?,
                Source::Task(task) => self.enqueue_task(&client, &lander, &target, task)?,
            };
            ids.push((target, id));
        }
        let entries = if self.no_wait {
            ids.iter().map(|(_, id)| load(&client, id)).collect::<Result<Vec<_>, _>>()?
        } else {
            self.see_through(&client, &lander, &ids)?
        };
        if let Some(entry) = entries.iter().find(|entry| !self.is_well(entry)) {
            return Err(unsettled(entry));
        }
        let human = entries.iter().map(sentence).collect::<Vec<_>>().join("\n");
        let views: Vec<_> = entries.iter().map(EntryView::from).collect();
        context.printer.result(&Named("landings", views), human)
    }

    /// Where it lands: as was said, as the task says, or as the settings say.
    fn target(&self, client: &Client, lander: &Lander, source: &Source) -> Result<Name, Failure> {
        let of_task = match source {
            Source::Task(task) => task.spec.land.as_ref().filter(|_| self.into.is_none()),
            Source::Branch(_) => None,
        };
        match of_task {
            // The landing of the parent is the check.
            Some(land) if land.of_child => Ok(land.target.clone()),
            Some(land) => self.require_check(client).map(|()| land.target.clone()),
            None => {
                let target = target_of(client, lander, self.into.as_deref())?;
                self.require_check(client).map(|()| target)
            }
        }
    }

    /// Puts what is in the worktree of a task into the queue. If it is there already, it is only seen through.
    fn enqueue_task(&self, client: &Client, lander: &Lander, target: &Name, task: &Task) -> Result<LandingId, Failure> {
        let of_child = task.spec.land.as_ref().is_some_and(|land| land.of_child && land.target == *target);
        let to = LandSpec { target: target.clone(), unchecked: self.unchecked || of_child, of_child };
        let request = TaskRequest::Land { id: task.id.clone(), by: speaker(None)?, to };
        match client.request(request)? {
            TaskOutcome::Stepped(task::Outcome::Landing | task::Outcome::NotPending(Status::Landing), task) => {
                let rows = client.load(&[Key::LandingOf(task.id.clone())].into())?.backlog;
                let entry = rows.landings.into_values().next().ok_or_else(|| super::unknown(task.id.as_str()))?;
                // Whoever asks for it wants it tried now.
                client.request(LandingRequest { target: entry.target, verb: LandingVerb::TryNow(entry.id.clone()) })?;
                Ok(entry.id)
            }
            // One that was completed without landing is not changed by it.
            TaskOutcome::Stepped(task::Outcome::Over(Status::Completed), task) => {
                let workspaces = client.load(&[Key::Workspace(task.id.clone())].into())?.backlog.workspaces;
                let Some(workspace) = workspaces.get(&task.id) else {
                    return Err(Failure::new(exit::NOT_FOUND, "NO_WORKSPACE", format!("{} has no worktree any more", task.id))
                        .hint(format!("banksman landing list --all, or banksman recover list {}", task.id)));
                };
                let spec = EntrySpec {
                    source: None,
                    title: task.spec.title.as_str().into(),
                    branch: None,
                    task: Some(task.id.clone()),
                    host: workspace.host.clone(),
                    ..self.spec()
                };
                self.add(client, lander, target, spec)
            }
            outcome => Err(refused(&task.id, &outcome)),
        }
    }

    fn require_check(&self, client: &Client) -> Result<(), Failure> {
        if self.unchecked {
            return Ok(());
        }
        match client.project().landing_check() {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(landing_failure(landing::LandingError::NoCheck)),
            Err(_) => Err(landing_failure(landing::LandingError::Untrusted)),
        }
    }

    fn enqueue(&self, client: &Client, lander: &Lander, target: &Name, branch: &str) -> Result<LandingId, Failure> {
        let Some(tip) = lander.branch_tip(branch).map_err(git_failure)? else {
            return Err(Failure::new(exit::NOT_FOUND, "BRANCH_NOT_FOUND", format!("there is no branch {branch:?}"))
                .detail("branch", &branch)
                .hint("git branch lists them"));
        };
        let title = match &self.title {
            Some(title) => title.clone(),
            None => lander.subject(&tip).map_err(git_failure)?,
        };
        let source = CommitId::new(&tip).map_err(|error| Failure::system("read the tip of the branch", error))?;
        let host = client.this_process().host.clone();
        let spec = EntrySpec { source: Some(source), title: title.into(), branch: Some(branch.into()), host, ..self.spec() };
        self.add(client, lander, target, spec)
    }

    /// What was said of all that lands.
    fn spec(&self) -> EntrySpec {
        EntrySpec {
            source: None,
            title: Box::default(),
            branch: None,
            task: None,
            priority: self.priority,
            unchecked: self.unchecked,
            host: Box::default(),
            round: 0,
            rounds: 0,
            ask_on_conflict: false,
            of_child: false,
        }
    }

    fn add(&self, client: &Client, lander: &Lander, target: &Name, spec: EntrySpec) -> Result<LandingId, Failure> {
        match landing::enqueue(client, lander, target, spec).map_err(landing_failure)? {
            Outcome::Added(id) | Outcome::Duplicate(id) => Ok(id),
            Outcome::Full => Err(Failure::new(exit::LOCKED, "LANDING_FULL", format!("the merge queue of {target} is full"))
                .hint("banksman landing list shows what is in it")),
            other => Err(Failure::unexpected(&other)),
        }
    }

    /// Works for the queue until each of these cannot come any further. If another process does so, it is waited for.
    fn see_through(&self, client: &Client, lander: &Lander, ids: &[(Name, LandingId)]) -> Result<Vec<Entry>, Failure> {
        let signals = Signals::install().map_err(|error| Failure::system("take note of signals", error))?;
        let wait = self.timeout.map_or(client.config().wait_timeout, |timeout| timeout.0);
        let mut entries = Vec::new();
        for (target, id) in ids {
            let options = WorkOptions { goal: Some(id.clone()), wait, cancel: Some(signals.as_fd()), tell: None };
            match landing::work(client, lander, target, &options).map_err(landing_failure)? {
                WorkEnd::Settled(entry) => entries.push(*entry),
                WorkEnd::Cancelled if wait > Duration::ZERO && is_readable(&signals) => return Err(Failure::interrupted()),
                WorkEnd::Cancelled | WorkEnd::Idle(_) => entries.push(load(client, id)?),
            }
        }
        Ok(entries)
    }

    fn is_well(&self, entry: &Entry) -> bool {
        match &entry.state {
            State::Over(End::Landed { .. } | End::NoChange { .. }) => true,
            State::Over(End::Returned(_) | End::Shelved { .. } | End::Removed { .. })
            | State::Asking { .. }
            | State::Waiting { .. } => false,
            State::Queued | State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. } => self.no_wait,
        }
    }
}

/// What is to land.
enum Source {
    Branch(String),
    Task(Box<Task>),
}

impl Source {
    /// A task by its id, a branch, or a task by whatever else names it.
    fn find(name: &str, client: &Client, lander: &Lander) -> Result<Source, Failure> {
        let mut reader = client.reader()?;
        if let Ok(id) = TaskId::new(name)
            && let Some(task) = reader.view().load(&[Key::Task(id.clone())].into())?.backlog.tasks.remove(&id)
        {
            return Ok(Source::Task(Box::new(task)));
        }
        // What git refuses as a name is none.
        if lander.branch_tip(name).ok().flatten().is_some() {
            return Ok(Source::Branch(name.into()));
        }
        let Ok(id) = find::task_id(&mut reader, name) else {
            return Err(Failure::new(exit::NOT_FOUND, "BRANCH_NOT_FOUND", format!("there is no branch and no task {name:?}"))
                .detail("branch", &name)
                .hint("git branch lists the branches, banksman tasks list the tasks"));
        };
        let task = reader.view().load(&[Key::Task(id.clone())].into())?.backlog.tasks.remove(&id);
        task.map(|task| Source::Task(Box::new(task))).ok_or_else(|| super::unknown(name))
    }
}

fn is_readable(signals: &Signals) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

fn load(client: &Client, id: &LandingId) -> Result<Entry, Failure> {
    let mut rows = client.load(&[banksman_store::Key::Landing(id.clone())].into())?.backlog;
    rows.landings.remove(id).ok_or_else(|| super::unknown(id.as_str()))
}

/// An entry that has not landed.
fn unsettled(entry: &Entry) -> Failure {
    let said = sentence(entry);
    let failure = match &entry.state {
        State::Over(End::Returned(_)) if entry.spec.task.is_some() => Failure::new(exit::ERROR, "LANDING_RETURNED", said)
            .hint("it is tried again by a runner; or repair it yourself: banksman tasks open TASK"),
        State::Over(End::Shelved { .. }) => Failure::new(exit::ERROR, "LANDING_REVIEW", said)
            .hint("banksman tasks diff TASK; then banksman land TASK --unchecked"),
        State::Over(End::Returned(Return::Conflict { .. })) => Failure::new(exit::ERROR, "LANDING_CONFLICT", said)
            .hint(format!("merge {} into the branch, resolve the conflict, commit, and land it again", entry.target)),
        State::Over(_) => Failure::new(exit::ERROR, "LANDING_RETURNED", said).hint("repair it, commit, and land it again"),
        State::Asking { decision, .. } => {
            Failure::new(exit::LOCKED, "LANDING_DECISION", said).hint(format!("banksman decisions show {decision}"))
        }
        State::Waiting { .. } => Failure::new(exit::LOCKED, "LANDING_WAITS", said).hint(format!(
            "it stays in the queue: a runner, or banksman land, tries again; or banksman landing remove {}",
            entry.id
        )),
        State::Queued | State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. } => {
            Failure::new(exit::LOCKED, "LANDING_QUEUED", said).hint("banksman landing list")
        }
    };
    failure.details(&EntryView::from(entry))
}
