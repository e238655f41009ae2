//! The life of a run as the store sees it: claimed, started, adopted, ended; and the runners that look after runs.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::{Ended, Run, Runner, Session, Shortage};
use banksman_core::event::{Kind, Resource};
use banksman_core::guard::Wants;
use banksman_core::resource::deadlock::Link;
use banksman_core::resource::grant::WaitingProcess;
use banksman_core::resource::work_claim::{Part, Take};
use banksman_core::task::admission::Reason;
use banksman_core::task::retry::Marker;
use banksman_core::task::{self, Ending, Need, Task, Watch};
use banksman_core::{
    Epoch, HolderId, Limits, LimitsChange, Name, Pipeline, RunId, RunnerId, SectionId, Seq, Span, Status, TaskId, Ticket, Wall,
};
use banksman_store::{Key, Tables, Tx};

use crate::awaiting::awaiting;
use crate::calm::{rest, ripen, stepped, tried};
use crate::claims::claim;
use crate::endings::{adopt, dismiss, finish, free_slot, lose, renew, unproven};
use crate::facts;
use crate::guards::store_keys;
use crate::ledger::{any_runner, descendants, inherit, open_children, wake_runner, wake_runners};
use crate::limits;
use crate::request::Seen;
use crate::tasks;

/// What runners ask.
#[derive(Debug, Clone)]
pub enum RunRequest {
    /// Make itself known.
    Enlist {
        /// Itself.
        runner: Box<Runner>,
        /// The limits of a project that has none yet.
        limits: Limits,
    },
    /// Tell what it waits for.
    Watch {
        /// Itself.
        runner: RunnerId,
        /// What stands in the way of tasks that are ready otherwise.
        resources: Vec<Resource>,
    },
    /// Tell that its machine has not enough of something to start runs, or has again.
    Short {
        /// Itself.
        runner: RunnerId,
        /// What, and for how long it waits before it tries again.
        shortage: Option<(Box<str>, Span)>,
    },
    /// Leave, or clear away a runner that is proven dead.
    Retire {
        /// Who is gone.
        runner: RunnerId,
        /// What was seen of it.
        seen: Seen,
    },
    /// Tell that it lives, and that its sessions have not long to live should it fall silent.
    Renew {
        /// Itself.
        runner: RunnerId,
    },
    /// Clear away another runner that is proven dead, or has been silent for longer than it promised.
    Dismiss {
        /// Who is gone.
        runner: RunnerId,
        /// What was seen of it.
        seen: Seen,
    },
    /// Take tasks, with all that they need.
    Claim {
        /// Itself.
        runner: RunnerId,
        /// How many at most.
        room: usize,
        /// Which ones, best first.
        candidates: Vec<Candidate>,
        /// What was seen of those in the way.
        seen: Seen,
    },
    /// Tell that a session has begun.
    Started {
        /// Of which run.
        run: RunId,
        /// As whose owner.
        owner_epoch: Epoch,
        /// Its processes.
        session: Session,
    },
    /// Tell that the tree of a run was seen dead.
    Finish {
        /// Itself.
        runner: RunnerId,
        /// The run with its task.
        what: Box<Work>,
        /// How it ended.
        ending: Ended,
        /// What was found in the place of the file DONE, if it is a loop.
        marker: Marker,
        /// How it was watched.
        watch: Watch,
    },
    /// Tell that the file DONE of a loop, or something in its place, was found before its next attempt.
    Found {
        /// Of which task.
        task: TaskId,
        /// What.
        marker: Marker,
    },
    /// Make tasks ready whose rest is over, or on which nobody works any more.
    Ripen {
        /// Those that have rested.
        rested: Vec<TaskId>,
        /// Those that were worked on by hand.
        left: Vec<TaskId>,
        /// What was seen of those who worked on them.
        seen: Seen,
    },
    /// Look whether a task is over with its children.
    Settle {
        /// Which one.
        task: TaskId,
    },
    /// Tell that there is nothing left that a runner could do.
    Rest {
        /// Itself.
        runner: RunnerId,
        /// How many tasks stand how.
        counts: BTreeMap<Status, u64>,
        /// How many items of workers are dead.
        dead: u64,
    },
    /// Tell what came of an outbox command.
    Tried {
        /// Itself.
        runner: RunnerId,
        /// Which one.
        command: Seq,
        /// Why it could not be done, if it could not.
        error: Option<Box<str>>,
        /// Whether there is no use in trying it again.
        is_final: bool,
    },
    /// Look after a run whose owner is gone.
    Adopt {
        /// Itself.
        runner: RunnerId,
        /// The run with its task, as it was seen.
        what: Box<Work>,
        /// What was seen of the owner.
        seen: Seen,
    },
    /// End a run whose machine has been silent for longer than was promised: its keeper has ended it.
    Lose {
        /// Itself.
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
        /// Itself.
        runner: RunnerId,
        /// The run with its task, as it was seen.
        what: Box<Work>,
        /// Why it cannot be proven.
        why: Box<str>,
    },
    /// Wait until tasks are over, as a run: refused if they wait for that run.
    Await {
        /// Which run.
        run: RunId,
        /// Its number.
        epoch: Epoch,
        /// The holders that wait as long as it does.
        ancestors: Vec<HolderId>,
        /// What must be free for the tasks to end, as they were read.
        parts: Vec<Part>,
        /// The process that waits.
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
        /// Which run.
        run: RunId,
        /// Its number.
        epoch: Epoch,
    },
    /// Make sure that a slot which a run has taken again belongs to a live run.
    Resume {
        /// Which run.
        run: RunId,
        /// Its number.
        epoch: Epoch,
    },
}

/// A task that may be taken. What it needs is told along, so that the rows to load are known.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The task.
    pub task: TaskId,
    /// The run that would begin.
    pub run: RunId,
    /// The task's section.
    pub section: Option<SectionId>,
    /// What it needs.
    pub needs: Vec<Need>,
    /// Whether it is a phase whose guards are evaluated.
    pub is_guarded: bool,
    /// What these ask the store.
    pub asks: Wants,
}

/// A run with its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The run.
    pub run: Run,
    /// The task.
    pub task: Task,
}

/// What can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// It is so now.
    Done,
    /// These were taken, and these not.
    Claimed {
        /// The runs to start.
        started: Vec<Work>,
        /// What stands in the way of the others.
        blocked: Vec<(TaskId, Vec<Reason>)>,
        /// The pipelines whose phase was not begun, because a guard does not hold any more.
        refuted: Vec<Pipeline>,
    },
    /// Heard. These are its live runs, and all of them are safe again for as long as it has promised.
    Renewed(BTreeSet<RunId>),
    /// The run has ended, and this is what its task makes of it; with the pipeline that it was a phase of, if that does not go
    /// on by a task.
    Finished(task::Outcome, Box<Task>, Option<Box<Pipeline>>),
    /// This is what a task makes of it.
    Stepped(task::Outcome, Box<Task>),
    /// The run is lost, with what is said of it, and this is what its task makes of it; with its pipeline, likewise.
    Lost(Ended, task::Outcome, Option<Box<Pipeline>>),
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
            RunRequest::Watch { .. } | RunRequest::Short { .. } => vec![Key::Runners],
            RunRequest::Retire { .. } => vec![Key::Runners, Key::Outbox],
            RunRequest::Tried { .. } => vec![Key::Runners, Key::Outbox, Key::OpenDecisions],
            RunRequest::Rest { .. } => vec![Key::Runners, Key::Live, Key::Finish],
            RunRequest::Found { task, .. } => vec![Key::Family(task.clone()), Key::Runners],
            RunRequest::Settle { task } => {
                let own = [Key::Family(task.clone()), Key::Manual(task.clone())];
                own.into_iter().chain([Key::Runners, Key::Live, Key::Outbox, Key::OpenDecisions]).collect()
            }
            RunRequest::Ripen { rested, left, .. } => {
                let tasks = rested.iter().chain(left).cloned().map(Key::Task);
                tasks.chain(left.iter().cloned().map(Key::Manual)).chain([Key::Runners]).collect()
            }
            RunRequest::Renew { .. } => vec![Key::Runners, Key::Live],
            RunRequest::Dismiss { .. } => vec![Key::Runners, Key::Live, Key::Outbox],
            RunRequest::Claim { candidates, .. } => {
                let keys = |candidate: &Candidate| {
                    let guards = candidate.is_guarded.then(|| Key::Pipeline(candidate.task.clone()));
                    let guards = guards.into_iter().chain(store_keys(&candidate.asks));
                    facts::keys(&candidate.task, candidate.section.as_ref(), &candidate.needs).into_iter().chain(guards)
                };
                candidates.iter().flat_map(keys).chain(facts::common_keys()).collect()
            }
            RunRequest::Started { run, .. } => vec![Key::Run(run.clone()), Key::Outbox],
            RunRequest::Finish { what, .. } => {
                end_keys(what).into_iter().chain([Key::Runners, Key::Outbox, Key::OpenDecisions]).collect()
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
                let parts = parts.iter().map(|part| match part.resource.kind {
                    Kind::Lock => Key::Lock(part.resource.name.clone()),
                    Kind::Semaphore => Key::Semaphore(part.resource.name.clone()),
                });
                parts.chain([Key::Run(run.clone()), Key::Waits]).collect()
            }
            RunRequest::EndAwait { .. } => vec![Key::Waits],
            RunRequest::Pause { run, .. } | RunRequest::Resume { run, .. } => {
                vec![Key::Run(run.clone()), Key::Semaphore(Name::runs()), Key::Runners]
            }
        }
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> RunOutcome {
        match self {
            RunRequest::Enlist { runner, limits } => {
                let now = tx.now(Vec::new(), Default::default());
                let row = Runner { started: now.stamp(), seen: now.lease, ..(**runner).clone() };
                tx.tables.backlog.runners.insert(runner.id.clone(), row);
                // One that takes no tasks has no say in how many runs there may be.
                if runner.max_runs == Some(0) {
                    return RunOutcome::Done;
                }
                inherit(&mut tx.tables, None, Some(&runner.id));
                limits::change(LimitsChange::default(), *limits, tx);
                RunOutcome::Done
            }
            RunRequest::Watch { runner, resources } => match tx.tables.backlog.runners.get_mut(runner) {
                None => RunOutcome::Late,
                Some(row) => {
                    row.watching.clone_from(resources);
                    RunOutcome::Done
                }
            },
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
                if tx.tables.backlog.runners.get(runner).is_some_and(gone) {
                    tx.tables.backlog.runners.remove(runner);
                    let heir = any_runner(&tx.tables);
                    inherit(&mut tx.tables, Some(runner), heir.as_ref());
                    wake_runners(tx, None);
                }
                RunOutcome::Done
            }
            RunRequest::Found { task, marker } => {
                let children = open_children(&tx.tables, task);
                stepped(task, task::Input::Found { marker: marker.clone(), children }, tx)
            }
            RunRequest::Ripen { rested, left, seen } => {
                rested.iter().chain(left).for_each(|task| ripen(task, seen, tx));
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
            RunRequest::Claim { runner, room, candidates, seen } => claim(runner, *room, candidates, seen, tx),
            RunRequest::Started { run, owner_epoch, session } => {
                let Some(row) = tx.tables.backlog.runs.get_mut(run) else { return RunOutcome::Late };
                if row.owner_epoch != *owner_epoch || !row.is_live() {
                    return RunOutcome::Late;
                }
                row.session = Some(session.clone());
                let is_spawn = |entry: &banksman_core::backlog::OutboxEntry| matches!(&entry.command, banksman_core::OutboxCommand::Spawn { run: spawned } if spawned == run);
                tx.tables.backlog.outbox.retain(|_, entry| !is_spawn(entry));
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
            RunRequest::Pause { run, epoch } => {
                let outcome = standing(run, *epoch, &tx.tables);
                if outcome == RunOutcome::Done {
                    free_slot(run, tx);
                    // Its runner may have room for another run now, whether it waits for a slot or not.
                    let owner = tx.tables.backlog.runs[run].owner.clone();
                    wake_runner(tx, &owner);
                }
                outcome
            }
            RunRequest::Resume { run, epoch } => {
                let outcome = standing(run, *epoch, &tx.tables);
                if outcome != RunOutcome::Done {
                    // The run has ended meanwhile, and nobody else would ever give this slot back.
                    free_slot(run, tx);
                }
                outcome
            }
        }
    }
}

/// What a run that ends has held, its task with the pipeline of that, and its own claims.
pub(crate) fn end_keys(Work { run, task }: &Work) -> Vec<Key> {
    let holds = run.holds.iter().map(|hold| facts::need_key(&hold.need));
    let own = [Key::Run(run.id.clone()), own_key(task), Key::ClaimsBy(run.id.holder())];
    holds.chain(own).chain(pipeline_key(task)).chain(section_keys(task)).collect()
}

/// The lock of the section that a run leaves, and the others who may work there.
fn section_keys(task: &Task) -> Vec<Key> {
    let section = task.spec.section.as_ref();
    section.into_iter().flat_map(|section| [Key::Lock(section.lock()), Key::Live]).collect()
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
pub fn ended(ending: Ending, at: Wall, note: Option<String>) -> Ended {
    Ended::new(ending, at, note.map(Into::into))
}
