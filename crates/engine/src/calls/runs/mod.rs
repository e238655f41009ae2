//! The life of a run in the store: claimed, started, adopted, ended; and the runners that own runs.

pub(crate) mod awaiting;
pub(crate) mod end;
pub(crate) mod upkeep;

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::{Run, RunEndRecord, Runner, Session, Shortage};
use banksman_core::dispatch::ReleaseEvent;
use banksman_core::resource::deadlock::Link;
use banksman_core::resource::grant::WaitingProcess;
use banksman_core::resource::work_claim::{Part, Take};
use banksman_core::task::retry::Marker;
use banksman_core::task::{self, Need, RunEnd, Task, Watch};
use banksman_core::{
    Epoch, HolderId, Lease, Limits, LimitsChange, Name, OutboxCommand, Pipeline, RunId, RunnerId, Seq, Span, Status, TaskId,
    Ticket, Wall,
};
use banksman_store::{Key, Tables, Tx};

use crate::calls::limits;
use crate::calls::mailbox;
use crate::calls::runs::awaiting::awaiting;
use crate::calls::runs::end::{adopt, dismiss, finish, free_slot, free_workspace, lose, open_question, renew, unproven};
use crate::calls::runs::upkeep::{make_ready, rest, stepped, tried};
use crate::calls::steps::{descendants, inherit, open_children, wake_runner, withdraw};
use crate::calls::tasks;
use crate::claims::{Claim, Claimed};
use crate::facts;
use crate::request::Seen;
use crate::wakeups;

/// The requests of runners and runs.
#[derive(Debug, Clone)]
pub enum RunRequest {
    /// Register a runner.
    Enlist {
        runner: Box<Runner>,
        /// The limits for a project that has none yet.
        limits: Limits,
    },
    /// Report that the machine of a runner lacks a resource to start runs, or no longer lacks it.
    Short {
        runner: RunnerId,
        /// The error, and the delay before the runner tries again.
        shortage: Option<(Box<str>, Span)>,
    },
    /// Leave, or remove a runner that is proven dead.
    Retire {
        /// The runner to remove.
        runner: RunnerId,
        seen: Seen,
    },
    /// Report that the runner lives, which renews its promise to end its sessions should it fall silent.
    Renew { runner: RunnerId },
    /// Remove another runner that is proven dead, or has been silent for longer than it promised.
    Dismiss {
        /// The runner to remove.
        runner: RunnerId,
        seen: Seen,
    },
    /// Take tasks, with all their resources.
    Claim(Box<Claim>),
    /// Notify the next page of the dependents of an ended task.
    FanOut {
        /// The ended task.
        task: TaskId,
    },
    /// Wake another runner instead of one that was woken and has not called since.
    PassOn { runner: RunnerId, woken: Lease },
    /// Report that a session has begun.
    Started {
        run: RunId,
        owner_epoch: Epoch,
        /// Its processes.
        session: Session,
        /// Its task, if the prompt contains messages for the task.
        prompted: Option<TaskId>,
    },
    /// Report that the process tree of a run was seen dead.
    Finish {
        runner: RunnerId,
        /// The run with its task.
        what: Box<Work>,
        ending: RunEndRecord,
        /// The state of the file DONE, if the task is a loop.
        marker: Marker,
        watch: Watch,
    },
    /// Report that the file DONE of a loop, or something in its place, was found before the next attempt.
    Found { task: TaskId, marker: Marker },
    /// Make tasks ready whose backoff is over, or whose claims have ended.
    MakeReady {
        rested: Vec<TaskId>,
        /// The tasks that had manual claims.
        left: Vec<TaskId>,
        /// The observed state of the holders of these claims.
        seen: Seen,
    },
    /// Check whether a task is over with its children.
    Settle { task: TaskId },
    /// Report that no runner has anything left to do.
    Rest {
        runner: RunnerId,
        /// The number of tasks by status.
        counts: BTreeMap<Status, u64>,
        /// The number of dead items of workers.
        dead: u64,
    },
    /// Report the result of an outbox command.
    Tried {
        runner: RunnerId,
        command: Seq,
        /// The error, if it failed.
        error: Option<Box<str>>,
        /// Whether another attempt is pointless.
        is_final: bool,
    },
    /// Become the owner of a run whose owner is gone.
    Adopt {
        runner: RunnerId,
        /// The run with its task, as they were read.
        what: Box<Work>,
        /// The observed state of the owner.
        seen: Seen,
    },
    /// End a run whose machine has been silent for longer than was promised: its keeper has ended it.
    Lose {
        runner: RunnerId,
        /// The run with its task, as they were read.
        what: Box<Work>,
        /// How long the caller itself was stalled.
        patience: Span,
        /// The limits for the recoveries of the task.
        watch: Watch,
    },
    /// Report that the keeper of a run is dead, but its processes cannot be proven dead: a person is asked.
    Unproven {
        runner: RunnerId,
        /// The run with its task, as they were read.
        what: Box<Work>,
        /// Why it cannot be proven.
        why: Box<str>,
    },
    /// Wait, as a run, until tasks are over: refused if they wait for that run.
    Await {
        run: RunId,
        epoch: Epoch,
        /// The holders that wait as long as the run does.
        ancestors: Vec<HolderId>,
        /// The resources that must be free for the tasks to end, as they were read.
        parts: Vec<Part>,
        standing: WaitingProcess,
        /// The observed state of other waiters.
        seen: Seen,
    },
    /// End such a wait.
    EndAwait { ticket: Ticket },
    /// Free the slot of a run, because the run only waits for others.
    Pause {
        run: RunId,
        epoch: Epoch,
        /// The owner of the workspace of the run, whose lock is released, too.
        workspace: Option<TaskId>,
    },
    /// Ensure that a slot which a run has taken again belongs to a live run.
    Resume {
        run: RunId,
        epoch: Epoch,
        /// The owner of the workspace of the run.
        workspace: Option<TaskId>,
    },
}

/// A run with its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    pub run: Run,
    pub task: Task,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    Done,
    /// The tasks that were taken, and the others.
    Claimed(Box<Claimed>),
    /// The live runs of the runner; their leases are renewed.
    Renewed(BTreeSet<RunId>),
    /// The run has ended, with the outcome of its task, both rows as they are now, and the pipeline that the task was a phase of,
    /// unless another task continues it.
    Finished(task::Outcome, Box<Work>, Option<Box<Pipeline>>),
    /// The outcome of a task, with the task after the step.
    Stepped(task::Outcome, Box<Task>),
    /// The run is lost, with its end, the outcome of its task, and the pipeline as in `Finished`.
    Lost(RunEndRecord, task::Outcome, Option<Box<Pipeline>>),
    /// The caller owns the run now.
    Adopted(Box<Work>),
    /// The owner lives, or cannot be observed.
    OwnerLives,
    /// The run is on another machine.
    Elsewhere,
    /// The wait was recorded under this ticket.
    Awaits(Ticket),
    /// The wait would never end.
    Deadlock(Vec<Link>),
    /// The run has changed since: another runner was faster, or it has ended.
    Late,
    Unknown,
}

impl RunRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            RunRequest::Enlist { .. } => limits::keys().into_iter().chain([Key::Outbox]).collect(),
            RunRequest::Short { runner, .. } => vec![Key::Runner(runner.clone())],
            RunRequest::Retire { runner, .. } => vec![Key::Runners, Key::LiveOf(runner.clone()), Key::Outbox],
            RunRequest::Tried { .. } => vec![Key::Runners, Key::Outbox, Key::OpenDecisions],
            RunRequest::Rest { .. } => vec![Key::Runners, Key::Live, Key::FinishedMark],
            RunRequest::Found { task, .. } => vec![Key::Family(task.clone()), Key::Runners],
            RunRequest::Settle { task } => {
                let own = [Key::Family(task.clone()), Key::Manual(task.clone())];
                own.into_iter().chain([Key::Runners, Key::Live, Key::Outbox, Key::OpenDecisions]).collect()
            }
            RunRequest::MakeReady { rested, left, .. } => {
                let tasks = rested.iter().chain(left).cloned().map(Key::Task);
                tasks.chain(left.iter().cloned().map(Key::Manual)).chain([Key::Runners]).collect()
            }
            RunRequest::Renew { .. } => vec![Key::Runners, Key::Live],
            RunRequest::Dismiss { .. } => vec![Key::Runners, Key::Live, Key::Outbox],
            RunRequest::Claim(claim) => claim.keys(),
            RunRequest::FanOut { .. } => vec![Key::FanOut, Key::Idle],
            RunRequest::PassOn { runner, .. } => vec![Key::Runner(runner.clone()), Key::Idle],
            RunRequest::Started { run, prompted, .. } => {
                let mailbox = prompted
                    .iter()
                    .flat_map(|task| [Key::Mailbox(task.clone()), Key::Lock(task.dispatch_lock()), Key::OpenDecisions]);
                mailbox.chain([Key::Run(run.clone()), Key::OutboxOfRun(run.clone())]).collect()
            }
            RunRequest::Finish { runner, what, ending, .. } => {
                let others = [Key::Runner(runner.clone()), Key::Idle, Key::OutboxOfRun(what.run.id.clone()), Key::OpenDecisions];
                let spend = ending.agent.as_ref().map(|_| Key::Spend { since: ending.day().date });
                let written = ending.written.iter().cloned().map(Key::Delivery);
                // The task may begin again at once, and its dependencies may have been reopened meanwhile.
                let again = (ending.ending != RunEnd::Exited(0)).then(|| Key::Dependencies(what.task.id.clone()));
                end_keys(what).into_iter().chain(others).chain(spend).chain(written).chain(again).collect()
            }
            RunRequest::Adopt { what, .. } => {
                let Work { run, task } = &**what;
                vec![Key::Run(run.id.clone()), Key::Task(task.id.clone()), Key::Live, Key::Runners, Key::Outbox]
            }
            RunRequest::Lose { what, .. } => {
                end_keys(what).into_iter().chain([Key::Live, Key::Runners, Key::Outbox, Key::OpenDecisions]).collect()
            }
            RunRequest::Unproven { what, .. } => vec![
                Key::Run(what.run.id.clone()),
                Key::Task(what.task.id.clone()),
                Key::Runners,
                Key::Outbox,
                Key::OpenDecisions,
            ],
            RunRequest::Await { run, parts, .. } => {
                let parts = parts.iter().map(|part| Key::resource(&part.resource));
                parts.chain([Key::Run(run.clone()), Key::Waits]).collect()
            }
            RunRequest::EndAwait { .. } => vec![Key::Waits],
            RunRequest::Pause { run, workspace, .. } | RunRequest::Resume { run, workspace, .. } => {
                let lock = workspace.iter().map(|owner| Key::Lock(owner.workspace_lock()));
                lock.chain([Key::Run(run.clone()), Key::RunSlots, Key::RunSlot(run.clone()), Key::Runners]).collect()
            }
        }
    }

    /// The tasks that may end by this request.
    pub(crate) fn ends(&self) -> impl Iterator<Item = &TaskId> {
        let (task, parent) = match self {
            RunRequest::Finish { what, .. } | RunRequest::Lose { what, .. } => {
                (Some(&what.task.id), what.task.spec.parent.as_ref())
            }
            RunRequest::Found { task, .. } | RunRequest::Settle { task } => (Some(task), None),
            _ => (None, None),
        };
        task.into_iter().chain(parent)
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> RunOutcome {
        match self {
            RunRequest::Enlist { runner, limits } => {
                let now = tx.now(Vec::new(), Default::default());
                let row = Runner { started: now.stamp(), seen: now.lease, ..(**runner).clone() };
                tx.tables.backlog.runners.insert(runner.id.clone(), row);
                wakeups::assign_duty(tx);
                wakeups::join_watch(&runner.id, tx);
                // A runner that takes no tasks does not set the limits.
                if runner.max_runs == Some(0) {
                    return RunOutcome::Done;
                }
                inherit(&mut tx.tables, None, Some(&runner.id));
                limits::change(LimitsChange::default(), *limits, tx);
                RunOutcome::Done
            }
            RunRequest::Short { runner, shortage } => {
                let now = tx.now(Vec::new(), Default::default()).stamp();
                let Some(row) = tx.tables.backlog.runners.get_mut(runner) else { return RunOutcome::Late };
                let since = row.shortage.take().map_or(now, |before| before.since);
                row.shortage = shortage.clone().map(|(error, delay)| Shortage { error, since, until: now.lease + delay });
                RunOutcome::Done
            }
            RunRequest::Retire { runner, seen } => {
                // Without probes the runner itself leaves.
                let gone = |row: &Runner| seen.probes.is_empty() || seen.now(tx).all_dead(std::slice::from_ref(&row.process));
                if let Some(row) = tx.tables.backlog.runners.get(runner).filter(|row| gone(row)).cloned() {
                    tx.tables.backlog.runners.remove(runner);
                    wakeups::hand_over(&row, None, tx);
                }
                RunOutcome::Done
            }
            RunRequest::Found { task, marker } => {
                let children = open_children(&tx.tables.backlog, task);
                stepped(task, task::Input::Found { marker: marker.clone(), children }, tx)
            }
            RunRequest::MakeReady { rested, left, seen } => {
                rested.iter().chain(left).for_each(|task| make_ready(task, seen, tx));
                RunOutcome::Done
            }
            RunRequest::Settle { task } => {
                let children = open_children(&tx.tables.backlog, task);
                let outcome = stepped(task, task::Input::Settle { children }, tx);
                if matches!(outcome, RunOutcome::Stepped(task::Outcome::EndChildren, _)) {
                    for child in descendants(&tx.tables.backlog, task) {
                        tasks::stop(&child, task::After::Cancel, tx);
                    }
                }
                outcome
            }
            RunRequest::Rest { runner, counts, dead } => rest(runner, counts, *dead, tx),
            RunRequest::Tried { runner, command, error, is_final } => tried(runner, *command, error.as_deref(), *is_final, tx),
            RunRequest::Renew { runner } => renew(runner, tx),
            RunRequest::Dismiss { runner, seen } => dismiss(runner, seen, tx),
            RunRequest::Claim(claim) => claim.decide(tx),
            RunRequest::FanOut { task } => {
                if tx.tables.fan_out.as_ref() == Some(task) {
                    tx.changed.fan_out = Some(task.clone());
                    // The dependents are not loaded, and each may be ready.
                    tx.changed.ready_anywhere = usize::MAX;
                }
                RunOutcome::Done
            }
            RunRequest::PassOn { runner, woken } => {
                if let Some(row) = tx.tables.backlog.runners.get_mut(runner).filter(|row| row.woken == Some(*woken)) {
                    row.woken = None;
                    tx.changed.ready_anywhere = tx.changed.ready_anywhere.max(1);
                }
                RunOutcome::Done
            }
            RunRequest::Started { run, owner_epoch, session, .. } => {
                let Some(row) = tx.tables.backlog.runs.get_mut(run) else { return RunOutcome::Late };
                if row.owner_epoch != *owner_epoch || !row.is_live() {
                    return RunOutcome::Late;
                }
                row.session = Some(session.clone());
                let is_spawn =
                    |command: &OutboxCommand| matches!(command, OutboxCommand::Spawn { run: spawned } if spawned == run);
                tx.tables.backlog.outbox.retain(|_, entry| !is_spawn(&entry.command));
                // The session has begun, so its keeper has answered.
                mailbox::observe(run, &ReleaseEvent::SocketAlive, tx);
                if let Some(asked) = open_question(run, &tx.tables.backlog) {
                    withdraw(tx, &asked);
                }
                RunOutcome::Done
            }
            RunRequest::Finish { runner, what, ending, marker, watch } => finish(runner, what, ending, marker, watch, tx),
            RunRequest::Adopt { runner, what, seen } => adopt(runner, what, seen, tx),
            RunRequest::Lose { runner, what, patience, watch } => lose(runner, what, *patience, watch, tx),
            RunRequest::Unproven { runner, what, why } => unproven(runner, what, why, tx),
            RunRequest::Await { run, epoch, ancestors, parts, standing, seen } => {
                let wait = Some((standing.clone(), None));
                let (holder, ancestors, parts, ttl) = (run.holder(), ancestors.clone(), parts.clone(), Span::ZERO);
                let take = Take { holder, ancestors, task: None, parts, ttl, ticket: None, wait };
                awaiting(run, *epoch, take, seen, tx)
            }
            RunRequest::EndAwait { ticket } => {
                tx.tables.coordination.claims.remove(ticket);
                RunOutcome::Done
            }
            RunRequest::Pause { run, epoch, workspace } => {
                let outcome = standing(run, *epoch, &tx.tables);
                if outcome == RunOutcome::Done {
                    free_slot(run, tx);
                    // Its children may work in the workspace meanwhile.
                    workspace.iter().for_each(|owner| free_workspace(run, owner, tx));
                    // Its runner may start another run now, whether it waits for a slot or not.
                    let owner = tx.tables.backlog.runs[run].owner.clone();
                    wake_runner(tx, &owner);
                }
                outcome
            }
            RunRequest::Resume { run, epoch, workspace } => {
                let outcome = standing(run, *epoch, &tx.tables);
                if outcome != RunOutcome::Done {
                    // The run has ended meanwhile, and no other request would ever free its slot and workspace.
                    free_slot(run, tx);
                    workspace.iter().for_each(|owner| free_workspace(run, owner, tx));
                }
                outcome
            }
        }
    }
}

/// The rows for the end of a run: its resources, its task with its pipeline, and its own claims.
pub(crate) fn end_keys(Work { run, task }: &Work) -> Vec<Key> {
    let is_slot = |need: &Need| matches!(need, Need::Slots { name, .. } if *name == Name::runs());
    let holds = run.holds.iter().map(|hold| &hold.need).filter(|need| !is_slot(need)).map(facts::need_key);
    let slot = [Key::RunSlots, Key::RunSlot(run.id.clone())];
    let own = [Key::Run(run.id.clone()), own_key(task), Key::DependentCount(task.id.clone()), Key::ClaimsBy(run.id.holder())];
    let limits = matches!(task.spec.work, Some(task::Work::Agent(_))).then_some(Key::AccountLimits);
    let own = own.into_iter().chain(limits).chain(mailbox::prompt_keys(task));
    holds.chain(slot).chain(own).chain(pipeline_key(task)).chain(section_keys(task)).collect()
}

/// The lock of the section that a run leaves, and the other runs that may be in it.
fn section_keys(task: &Task) -> Vec<Key> {
    let section = task.spec.section.as_ref();
    section.into_iter().flat_map(|section| [Key::Lock(section.lock()), Key::Sections, Key::LiveExclusive]).collect()
}

/// The row of a task; for a loop also all its descendants, because it waits for them.
fn own_key(task: &Task) -> Key {
    match task.spec.restart {
        Some(_) => Key::Family(task.id.clone()),
        None => Key::Task(task.id.clone()),
    }
}

/// The pipeline of a phase's task: it continues when the task ends.
fn pipeline_key(task: &Task) -> Option<Key> {
    task.spec.phase().map(|_| Key::Pipeline(task.id.clone()))
}

/// Whether this is the epoch of a live run.
pub(crate) fn standing(run: &RunId, epoch: Epoch, tables: &Tables) -> RunOutcome {
    match tables.backlog.runs.get(run) {
        None => RunOutcome::Unknown,
        Some(run) if run.is_live() && run.epoch == epoch => RunOutcome::Done,
        Some(_) => RunOutcome::Late,
    }
}

pub fn ended(ending: RunEnd, at: Wall, note: Option<String>) -> RunEndRecord {
    RunEndRecord::new(ending, at, note.map(Into::into))
}
