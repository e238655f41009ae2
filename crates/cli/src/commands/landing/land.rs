//! `land`: lands work on the command of a person.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::Duration;

use banksman_adapters::git::Lander;
use banksman_core::landing::{CommitId, Entry, EntrySpec, Input, LandingEnd, Outcome, Return, State};
use banksman_core::task::{self, LandSpec};
use banksman_core::{LandingId, Name, Status, Task, TaskId};
use banksman_engine::{LandingRequest, TaskOutcome, TaskRequest};
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

/// Land tasks or branches through the merge queue.
///
/// All changes of a branch, or of a task's worktree, become one commit on top of the target. That commit is checked (landing.check), and
/// the target moves to exactly that commit. A checkout of the target is updated unless uncommitted changes block it. The branch
/// itself does not move.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman land fix-login\n  banksman land 'Add login' --unchecked\n  banksman land fix-login --into release"
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
    /// Higher priorities land first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Only add the work to the queue; a runner lands it
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// How long to wait for another process that works on the queue [default: locking.wait_timeout, 30m]
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
        let tips = lander.branch_tips(&self.work).map_err(git_failure)?;
        let mut found = Vec::new();
        for name in &self.work {
            found.push(Source::find(name, &client, &tips)?);
        }
        let ids = self.enqueue_all(&client, &lander, found)?;
        let entries = if self.no_wait {
            ids.iter().map(|(_, id)| load(&client, id)).collect::<Result<Vec<_>, _>>()?
        } else {
            self.work_until_settled(&client, &lander, &ids)?
        };
        if let Some(entry) = entries.iter().find(|entry| !self.has_succeeded(entry)) {
            return Err(unsettled(entry));
        }
        let human = entries.iter().map(sentence).collect::<Vec<_>>().join("\n");
        let views: Vec<_> = entries.iter().map(EntryView::from).collect();
        context.printer.result(&Named("landings", views), human)
    }

    /// Adds everything to the queue in the given order. Consecutive branches are added together.
    fn enqueue_all(&self, client: &Client, lander: &Lander, found: Vec<Source>) -> Result<Vec<(Name, LandingId)>, Failure> {
        let tips: Vec<&str> = found.iter().filter_map(Source::tip).collect();
        let titles = if self.title.is_none() { lander.subjects(&tips).map_err(git_failure)? } else { HashMap::new() };
        let mut target_of_branches = None;
        let mut ids = Vec::new();
        let mut branches: Vec<EntrySpec> = Vec::new();
        for source in &found {
            match source {
                Source::Branch { name, tip } => {
                    if target_of_branches.is_none() {
                        target_of_branches = Some(self.target(client, lander, source)?);
                    }
                    branches.push(self.branch_spec(client, name, tip, titles.get(tip).map_or("", String::as_str))?);
                }
                Source::Task(task) => {
                    self.flush(client, lander, target_of_branches.as_ref(), &mut branches, &mut ids)?;
                    let target = self.target(client, lander, source)?;
                    let id = self.enqueue_task(client, lander, &target, task)?;
                    ids.push((target, id));
                }
            }
        }
        self.flush(client, lander, target_of_branches.as_ref(), &mut branches, &mut ids)?;
        Ok(ids)
    }

    fn flush(
        &self,
        client: &Client,
        lander: &Lander,
        target: Option<&Name>,
        branches: &mut Vec<EntrySpec>,
        ids: &mut Vec<(Name, LandingId)>,
    ) -> Result<(), Failure> {
        let Some(target) = target else { return Ok(()) };
        let added = self.add(client, lander, target, std::mem::take(branches))?;
        ids.extend(added.into_iter().map(|id| (target.clone(), id)));
        Ok(())
    }

    /// The target: the one given, the one of the task, or the one in the settings.
    fn target(&self, client: &Client, lander: &Lander, source: &Source) -> Result<Name, Failure> {
        let of_task = match source {
            Source::Task(task) => task.spec.land.as_ref().filter(|_| self.into.is_none()),
            Source::Branch { .. } => None,
        };
        match of_task {
            // The child's work is checked with the landing of its parent.
            Some(land) if land.of_child => Ok(land.target.clone()),
            Some(land) => self.require_check(client).map(|()| land.target.clone()),
            None => {
                let target = target_of(client, lander, self.into.as_deref())?;
                self.require_check(client).map(|()| target)
            }
        }
    }

    /// Queues the work in the worktree of a task. Work that is queued already is tried again at once.
    fn enqueue_task(&self, client: &Client, lander: &Lander, target: &Name, task: &Task) -> Result<LandingId, Failure> {
        let of_child = task.spec.land.as_ref().is_some_and(|land| land.of_child && land.target == *target);
        let to = LandSpec { target: target.clone(), unchecked: self.unchecked || of_child, of_child };
        let request = TaskRequest::Land { id: task.id.clone(), by: speaker(None)?, to };
        match client.request(request)? {
            TaskOutcome::Stepped(task::Outcome::Landing | task::Outcome::NotPending(Status::Landing), task) => {
                let rows = client.load(&[Key::LandingOf(task.id.clone())].into())?.tables.backlog;
                let entry = rows.landings.into_values().next().ok_or_else(|| super::unknown(task.id.as_str()))?;
                // `land` retries a waiting entry at once.
                client.request(LandingRequest::new(entry.target, Input::TryNow(entry.id.clone())))?;
                Ok(entry.id)
            }
            // A task that was completed without landing stays completed.
            TaskOutcome::Stepped(task::Outcome::Over(Status::Completed), task) => {
                let workspaces = client.load(&[Key::Workspace(task.id.clone())].into())?.tables.backlog.workspaces;
                let Some(workspace) = workspaces.get(&task.id) else {
                    return Err(Failure::new(exit::NOT_FOUND, "NO_WORKSPACE", format!("{} no longer has a worktree", task.id))
                        .hint(format!("banksman landing list --all; or banksman recover list {}", task.id)));
                };
                let spec = EntrySpec {
                    source: None,
                    title: task.spec.title.as_str().into(),
                    branch: None,
                    task: Some(task.id.clone()),
                    host: workspace.host.clone(),
                    ..self.spec()
                };
                let added = self.add(client, lander, target, vec![spec])?;
                added.into_iter().next().ok_or_else(|| super::unknown(task.id.as_str()))
            }
            outcome => Err(refused(&task.id, &outcome)),
        }
    }

    fn require_check(&self, client: &Client) -> Result<(), Failure> {
        if self.unchecked {
            return Ok(());
        }
        landing::uncheckable(client.project()).map_or(Ok(()), |error| Err(landing_failure(error)))
    }

    fn branch_spec(&self, client: &Client, branch: &str, tip: &str, subject: &str) -> Result<EntrySpec, Failure> {
        let title = self.title.as_deref().unwrap_or(subject);
        let source = CommitId::new(tip).map_err(|error| Failure::system("read the tip of the branch", error))?;
        let host = client.this_process().host.clone();
        Ok(EntrySpec { source: Some(source), title: title.into(), branch: Some(branch.into()), host, ..self.spec() })
    }

    /// The options that apply to all entries.
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

    fn add(&self, client: &Client, lander: &Lander, target: &Name, specs: Vec<EntrySpec>) -> Result<Vec<LandingId>, Failure> {
        let id = |outcome| match outcome {
            Outcome::Added(id) | Outcome::Duplicate(id) => Ok(id),
            Outcome::Full => Err(Failure::new(exit::LOCKED, "LANDING_FULL", format!("the merge queue of {target} is full"))
                .hint("list its entries: banksman landing list")),
            other => Err(Failure::unexpected(&other)),
        };
        landing::enqueue(client, lander, target, specs).map_err(landing_failure)?.into_iter().map(id).collect()
    }

    /// Works on the queues until none of these entries can progress further. Waits while another process works on a
    /// queue.
    fn work_until_settled(&self, client: &Client, lander: &Lander, ids: &[(Name, LandingId)]) -> Result<Vec<Entry>, Failure> {
        let signals = Signals::install()?;
        let wait = self.timeout.map_or(client.config().wait_timeout, |timeout| timeout.0);
        let mut entries = Vec::new();
        for ids in ids.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((target, _)) = ids.first() else { continue };
            let goals: Vec<LandingId> = ids.iter().map(|(_, id)| id.clone()).collect();
            let options = WorkOptions { goals, wait, cancel: Some(signals.as_fd()), tell: None };
            match landing::work(client, lander, target, &options).map_err(landing_failure)? {
                WorkEnd::Settled(settled) => entries.extend(settled),
                WorkEnd::Cancelled if wait > Duration::ZERO && is_readable(&signals) => return Err(Failure::interrupted()),
                WorkEnd::Cancelled | WorkEnd::Idle(_) => {
                    for (_, id) in ids {
                        entries.push(load(client, id)?);
                    }
                }
            }
        }
        Ok(entries)
    }

    fn has_succeeded(&self, entry: &Entry) -> bool {
        match &entry.state {
            State::Over(LandingEnd::Landed { .. } | LandingEnd::NoChange { .. }) => true,
            State::Over(LandingEnd::Returned(_) | LandingEnd::Shelved { .. } | LandingEnd::Removed { .. })
            | State::Asking { .. }
            | State::Waiting { .. } => false,
            State::Queued | State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. } => self.no_wait,
        }
    }
}

/// The work to land.
enum Source {
    Branch { name: String, tip: String },
    Task(Box<Task>),
}

impl Source {
    /// A task by its id, a branch, or a task by another name, in this order.
    fn find(name: &str, client: &Client, tips: &HashMap<String, String>) -> Result<Source, Failure> {
        let mut reader = client.reader()?;
        if let Ok(id) = TaskId::new(name)
            && let Some(task) = reader.view().load(&[Key::Task(id.clone())].into())?.backlog.tasks.remove(&id)
        {
            return Ok(Source::Task(Box::new(task)));
        }
        if let Some(tip) = tips.get(name) {
            return Ok(Source::Branch { name: name.into(), tip: tip.clone() });
        }
        let Ok(id) = find::task_id(&mut reader, name) else {
            return Err(Failure::new(exit::NOT_FOUND, "BRANCH_NOT_FOUND", format!("there is no branch and no task {name:?}"))
                .detail("branch", &name)
                .hint("list the branches: git branch; list the tasks: banksman tasks list"));
        };
        let task = reader.view().load(&[Key::Task(id.clone())].into())?.backlog.tasks.remove(&id);
        task.map(|task| Source::Task(Box::new(task))).ok_or_else(|| super::unknown(name))
    }

    fn tip(&self) -> Option<&str> {
        match self {
            Source::Branch { tip, .. } => Some(tip),
            Source::Task(_) => None,
        }
    }
}

fn is_readable(signals: &Signals) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

fn load(client: &Client, id: &LandingId) -> Result<Entry, Failure> {
    let mut rows = client.load(&[banksman_store::Key::Landing(id.clone())].into())?.tables.backlog;
    rows.landings.remove(id).ok_or_else(|| super::unknown(id.as_str()))
}

/// The failure for an entry that has not landed.
fn unsettled(entry: &Entry) -> Failure {
    let said = sentence(entry);
    let failure = match &entry.state {
        State::Over(LandingEnd::Returned(_)) if entry.spec.task.is_some() => Failure::new(exit::ERROR, "LANDING_RETURNED", said)
            .hint("a runner retries it; or fix it yourself: banksman tasks open TASK"),
        State::Over(LandingEnd::Shelved { .. }) => Failure::new(exit::ERROR, "LANDING_REVIEW", said)
            .hint("banksman tasks diff TASK; then banksman land TASK --unchecked"),
        State::Over(LandingEnd::Returned(Return::Conflict { .. })) => Failure::new(exit::ERROR, "LANDING_CONFLICT", said)
            .hint(format!("merge {} into the branch, resolve the conflict, commit, and land it again", entry.target)),
        State::Over(_) => Failure::new(exit::ERROR, "LANDING_RETURNED", said).hint("fix it, commit, and land it again"),
        State::Asking { decision, .. } => {
            Failure::new(exit::LOCKED, "LANDING_DECISION", said).hint(format!("banksman decisions show {decision}"))
        }
        State::Waiting { .. } => Failure::new(exit::LOCKED, "LANDING_WAITS", said).hint(format!(
            "the entry stays in the queue: a runner retries it, or land it again; to remove it: banksman landing remove {}",
            entry.id
        )),
        State::Queued | State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. } => {
            Failure::new(exit::LOCKED, "LANDING_QUEUED", said).hint("banksman landing list")
        }
    };
    failure.details(&EntryView::from(entry))
}
