//! The life of a run as the store sees it: claimed, started, adopted, ended; and the runners that look after runs.

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
    Epoch, HolderId, Lease, Limits, LimitsChange, Name, Pipeline, RunId, RunnerId, Seq, Span, Status, TaskId, Ticket, Wall,
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

/// What runners ask.
#[derive(Debug, Clone)]
pub enum RunRequest {
    /// Make itself known.
    Enlist {
        runner: Box<Runner>,
        /// The limits of a project that has none yet.
        limits: Limits,
    },
    /// Tell that its machine has not enough of something to start runs, or has again.
    Short {
        runner: RunnerId,
        /// What, and for how long it waits before it tries again.
        shortage: Option<(Box<str>, Span)>,
    },
    /// Leave, or clear away a runner that is proven dead.
    Retire {
        /// Who is gone.
        runner: RunnerId,
        seen: Seen,
    },
    /// Tell that it lives, and that its sessions have not long to live should it fall silent.
    Renew { runner: RunnerId },
    /// Clear away another runner that is proven dead, or has been silent for longer than it promised.
    Dismiss {
        /// Who is gone.
        runner: RunnerId,
        seen: Seen,
    },
    /// Take tasks, with all that they need.
    Claim(Box<Claim>),
    /// Let the next page of the tasks that wait for an ended one learn of its end.
    FanOut {
        /// The one that has ended.
        task: TaskId,
    },
    /// Wake another runner in the place of one that was woken and has not called since.
    PassOn { runner: RunnerId, woken: Lease },
    /// Tell that a session has begun.
    Started {
        run: RunId,
        owner_epoch: Epoch,
        /// Its processes.
        session: Session,
        /// Its task, if that is told its messages by the prompt.
        prompted: Option<TaskId>,
    },
    /// Tell that the tree of a run was seen dead.
    Finish {
        runner: RunnerId,
        /// The run with its task.
        what: Box<Work>,
        ending: RunEndRecord,
        /// What was found in the place of the file DONE, if it is a loop.
        marker: Marker,
        watch: Watch,
    },
    /// Tell that the file DONE of a loop, or something in its place, was found before its next attempt.
    Found { task: TaskId, marker: Marker },
    /// Make tasks ready whose rest is over, or on which nobody works any more.
    MakeReady {
        rested: Vec<TaskId>,
        /// Those that were worked on by hand.
        left: Vec<TaskId>,
        /// What was seen of those who worked on them.
        seen: Seen,
    },
    /// Look whether a task is over with its children.
    Settle { task: TaskId },
    /// Tell that there is nothing left that a runner could do.
    Rest {
        runner: RunnerId,
        /// How many tasks stand how.
        counts: BTreeMap<Status, u64>,
        /// How many items of workers are dead.
        dead: u64,
    },
    /// Tell what came of an outbox command.
    Tried {
        runner: RunnerId,
        command: Seq,
        /// Why it could not be done, if it could not.
        error: Option<Box<str>>,
        /// Whether there is no use in trying it again.
        is_final: bool,
    },
    /// Look after a run whose owner is gone.
    Adopt {
        runner: RunnerId,
        /// The run with its task, as it was seen.
        what: Box<Work>,
        /// What was seen of the owner.
        seen: Seen,
    },
    /// End a run whose machine has been silent for longer than was promised: its keeper has ended it.
    Lose {
        runner: RunnerId,
        /// The run with its task, as it was seen.
        what: Box<Work>,
        /// How long it was stalled itself.
        patience: Span,
        /// How its runs are watched.
        watch: Watch,
    },
    /// Tell that the keeper of a run is dead, and that it cannot be proven that its processes are: a person is asked.
    Unproven {
        runner: RunnerId,
        /// The run with its task, as it was seen.
        what: Box<Work>,
        /// Why it cannot be proven.
        why: Box<str>,
    },
    /// Wait until tasks are over, as a run: refused if they wait for that run.
    Await {
        run: RunId,
        /// Its number.
        epoch: Epoch,
        /// The holders that wait as long as it does.
        ancestors: Vec<HolderId>,
        /// What must be free for the tasks to end, as they were read.
        parts: Vec<Part>,
        standing: WaitingProcess,
        /// What was seen of others who wait.
        seen: Seen,
    },
    /// Wait for them no longer.
    EndAwait {
        /// The number of the wait.
        ticket: Ticket,
    },
    /// Give the slot of a run back, because it only waits for others.
    Pause {
        run: RunId,
        /// Its number.
        epoch: Epoch,
        /// The owner of the workspace that it works in, which is given back, too.
        workspace: Option<TaskId>,
    },
    /// Make sure that a slot which a run has taken again belongs to a live run.
    Resume {
        run: RunId,
        /// Its number.
        epoch: Epoch,
        /// The owner of the workspace that it works in.
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
    /// It is so now.
    Done,
    /// What was taken, and what not.
    Claimed(Box<Claimed>),
    /// Heard. These are its live runs, and all of them are safe again for as long as it has promised.
    Renewed(BTreeSet<RunId>),
    /// The run has ended, and this is what its task makes of it; with both as they are now, and with the pipeline that it was a phase of,
    /// if that does not go on by a task.
    Finished(task::Outcome, Box<Work>, Option<Box<Pipeline>>),
    /// This is what a task makes of it.
    Stepped(task::Outcome, Box<Task>),
    /// The run is lost, with what is said of it, and this is what its task makes of it; with its pipeline, likewise.
    Lost(RunEndRecord, task::Outcome, Option<Box<Pipeline>>),
    /// It is looked after by the one who asked.
    Adopted(Box<Work>),
    /// The owner lives, or cannot be seen.
    OwnerLives,
    /// It runs on another machine.
    Elsewhere,
    /// The wait is known under this number.
    Awaits(Ticket),
    /// The wait would never end.
    Deadlock(Vec<Link>),
    /// It has changed since: others were faster, or it has ended.
    Late,
    /// There is no such run.
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
                // It may begin again at once, and what it had waited for may be open again meanwhile.
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

    /// The tasks that may come to their end by it.
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
                // One that takes no tasks has no say in how many runs there may be.
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
                // Without a look it is the runner itself that leaves.
                let gone = |row: &Runner| seen.probes.is_empty() || seen.now(tx).all_dead(std::slice::from_ref(&row.process));
                if let Some(row) = tx.tables.backlog.runners.get(runner).filter(|row| gone(row)).cloned() {
                    tx.tables.backlog.runners.remove(runner);
                    wakeups::hand_over(&row, None, tx);
                }
                RunOutcome::Done
            }
            RunRequest::Found { task, marker } => {
                let children = open_children(&tx.tables, task);
                stepped(task, task::Input::Found { marker: marker.clone(), children }, tx)
            }
            RunRequest::MakeReady { rested, left, seen } => {
                rested.iter().chain(left).for_each(|task| make_ready(task, seen, tx));
                RunOutcome::Done
            }
            RunRequest::Settle { task } => {
                let children = open_children(&tx.tables, task);
                let outcome = stepped(task, task::Input::Settle { children }, tx);
                if matches!(outcome, RunOutcome::Stepped(task::Outcome::EndChildren, _)) {
                    for child in descendants(&tx.tables, task) {
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
                    // They are not loaded, and each may be ready.
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
                let is_spawn = |entry: &banksman_core::backlog::OutboxEntry| matches!(&entry.command, banksman_core::OutboxCommand::Spawn { run: spawned } if spawned == run);
                tx.tables.backlog.outbox.retain(|_, entry| !is_spawn(entry));
                // Its keeper has answered.
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
                    // Its children may work there meanwhile.
                    workspace.iter().for_each(|owner| free_workspace(run, owner, tx));
                    // Its runner may have room for another run now, whether it waits for a slot or not.
                    let owner = tx.tables.backlog.runs[run].owner.clone();
                    wake_runner(tx, &owner);
                }
                outcome
            }
            RunRequest::Resume { run, epoch, workspace } => {
                let outcome = standing(run, *epoch, &tx.tables);
                if outcome != RunOutcome::Done {
                    // The run has ended meanwhile, and nobody else would ever give this back.
                    free_slot(run, tx);
                    workspace.iter().for_each(|owner| free_workspace(run, owner, tx));
                }
                outcome
            }
        }
    }
}

/// What a run that ends has held, its task with the pipeline of that, and its own claims.
pub(crate) fn end_keys(Work { run, task }: &Work) -> Vec<Key> {
    let is_slot = |need: &Need| matches!(need, Need::Slots { name, .. } if *name == Name::runs());
    let holds = run.holds.iter().map(|hold| &hold.need).filter(|need| !is_slot(need)).map(facts::need_key);
    let slot = [Key::RunSlots, Key::RunSlot(run.id.clone())];
    let own = [Key::Run(run.id.clone()), own_key(task), Key::DependentCount(task.id.clone()), Key::ClaimsBy(run.id.holder())];
    let limits = matches!(task.spec.work, Some(task::Work::Agent(_))).then_some(Key::AccountLimits);
    let own = own.into_iter().chain(limits).chain(mailbox::prompt_keys(task));
    holds.chain(slot).chain(own).chain(pipeline_key(task)).chain(section_keys(task)).collect()
}

/// The lock of the section that a run leaves, and the others who may work there.
fn section_keys(task: &Task) -> Vec<Key> {
    let section = task.spec.section.as_ref();
    section.into_iter().flat_map(|section| [Key::Lock(section.lock()), Key::Sections, Key::LiveExclusive]).collect()
}

/// The row of a task; for a loop with all its descendants, because it waits for them.
fn own_key(task: &Task) -> Key {
    match task.spec.restart {
        Some(_) => Key::Family(task.id.clone()),
        None => Key::Task(task.id.clone()),
    }
}

/// The pipeline that a task is a phase of: it goes on when the task ends.
fn pipeline_key(task: &Task) -> Option<Key> {
    task.spec.phase().map(|_| Key::Pipeline(task.id.clone()))
}

/// Whether this is the number of a live run.
pub(crate) fn standing(run: &RunId, epoch: Epoch, tables: &Tables) -> RunOutcome {
    match tables.backlog.runs.get(run) {
        None => RunOutcome::Unknown,
        Some(run) if run.is_live() && run.epoch == epoch => RunOutcome::Done,
        Some(_) => RunOutcome::Late,
    }
}

/// How a run ended, for the record.
pub fn ended(ending: RunEnd, at: Wall, note: Option<String>) -> RunEndRecord {
    RunEndRecord::new(ending, at, note.map(Into::into))
}
