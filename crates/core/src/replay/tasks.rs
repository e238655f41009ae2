//! Replays tasks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Replay;
use crate::backlog::{Backlog, Edge};
use crate::bus::derived::{Known, TaskResult};
use crate::decision::Question;
use crate::event::TaskFact;
use crate::ids::{DecisionId, Epoch, HolderId, ImportId, RunId, RunnerId, Seq, TaskId};
use crate::task::{self, After, RunEnd, Spec, Status, Stuck, Task, TaskEnd};
use crate::time::{Lease, Stamp, Wall};

/// A task. The baseline keeps it, and the types below, in this form: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskEntry {
    spec: Spec,
    depends_on: Vec<Edge>,
    position: Seq,
    created: Wall,
    #[serde(rename = "standing")]
    state: LoggedState,
    attempts: u32,
    failures: u32,
    recoveries: u32,
    /// The import that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) import: Option<ImportId>,
}

/// The state of a task, without the times on the lease clock and without the reports of a live run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum LoggedState {
    Pending,
    Live {
        run: RunId,
        epoch: Epoch,
        owner: Option<(RunnerId, Epoch)>,
        phase: LivePhase,
    },
    Awaiting {
        output: Option<Value>,
        is_ending: bool,
        #[serde(default)]
        no_change: bool,
    },
    #[serde(rename = "parked")]
    AwaitingDecision(DecisionId),
    #[serde(rename = "byHand")]
    Manual(HolderId, Epoch),
    InPhases {
        is_blocked: bool,
    },
    Landing {
        output: Option<Value>,
        warning: Option<Box<str>>,
    },
    Review,
    Done(TaskEnd),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum LivePhase {
    Running,
    Stuck(Stuck),
    Stopping(After),
}

impl Replay {
    /// The visible tasks: the tasks of an import are hidden before its end.
    pub(super) fn visible_tasks(&self) -> BTreeMap<TaskId, TaskEntry> {
        let is_finished = |import: &ImportId| self.imports.get(import).copied().unwrap_or(false);
        let visible = self.tasks.iter().filter(|(_, task)| task.import.as_ref().is_none_or(is_finished));
        visible.map(|(id, task)| (id.clone(), TaskEntry { import: None, ..task.clone() })).collect()
    }

    /// The state of the tasks that messages about them depend on.
    pub fn known_tasks(&self) -> impl Iterator<Item = (TaskId, Known)> + '_ {
        let is_hidden = |import: &&ImportId| !self.imports.get(*import).copied().unwrap_or(false);
        self.tasks.iter().map(move |(id, task)| {
            let end = match &task.state {
                LoggedState::Done(TaskEnd::Success { .. }) => Some(TaskResult::Completed),
                LoggedState::Done(_) => Some(TaskResult::NotCompleted),
                _ => None,
            };
            let (title, parent) = (task.spec.title.as_str().into(), task.spec.parent.clone());
            let hidden = task.import.as_ref().filter(is_hidden).cloned();
            (id.clone(), Known { title, parent, edges: task.depends_on.clone(), end, hidden })
        })
    }

    /// The open questions.
    pub fn open_questions(&self) -> impl Iterator<Item = (DecisionId, Question)> + '_ {
        let open = self.decisions.iter().filter(|(_, decision)| decision.is_open());
        open.map(|(id, decision)| (id.clone(), decision.question.clone()))
    }
}

impl TaskEntry {
    pub(super) fn new(spec: Spec, depends_on: Vec<Edge>, import: Option<ImportId>, position: Seq, created: Wall) -> TaskEntry {
        let (attempts, failures, recoveries) = (0, 0, 0);
        let (depends_on, state) = (sorted(depends_on), LoggedState::Pending);
        TaskEntry { spec, depends_on, position, created, state, attempts, failures, recoveries, import }
    }

    pub(super) fn of(task: &Task, backlog: &Backlog) -> TaskEntry {
        TaskEntry {
            spec: task.spec.clone(),
            depends_on: sorted(backlog.edges.get(&task.id).cloned().unwrap_or_default()),
            position: task.position,
            created: task.created,
            state: LoggedState::of(task, backlog),
            attempts: task.attempts,
            failures: task.failures,
            recoveries: task.recoveries,
            import: None,
        }
    }

    pub(super) fn apply(&mut self, seq: Seq, fact: TaskFact) {
        match fact {
            TaskFact::Added { .. } | TaskFact::Deleted {} => unreachable!("they add and remove the entry"),
            TaskFact::Updated { spec, depends_on } => (self.spec, self.depends_on) = (*spec, sorted(depends_on)),
            TaskFact::Started { run, attempt, runner, .. } => {
                self.attempts = attempt + 1;
                let epoch = Epoch::from(seq);
                self.state = LoggedState::Live { run, epoch, owner: Some((runner, epoch)), phase: LivePhase::Running };
            }
            TaskFact::Adopted { runner, .. } => {
                if let LoggedState::Live { owner, .. } = &mut self.state {
                    *owner = Some((runner, Epoch::from(seq)));
                }
            }
            TaskFact::Stuck { reason, .. } => self.enter(LivePhase::Stuck(timeless(reason))),
            TaskFact::Nudged { recoveries, .. } => self.recoveries = recoveries,
            TaskFact::Recovered { recoveries, .. } => {
                self.recoveries = recoveries.unwrap_or(self.recoveries);
                self.enter(LivePhase::Running);
            }
            TaskFact::Checkpoint { .. } => {}
            TaskFact::Stopping { then, .. } => self.enter(LivePhase::Stopping(then)),
            TaskFact::Restarting { ending, error, failures, recoveries, attempts, .. } => {
                self.attempts = attempts.unwrap_or(self.attempts);
                match (failures, recoveries) {
                    (Some(failures), Some(recoveries)) => (self.failures, self.recoveries) = (failures, recoveries),
                    _ => self.count(&ending, error.is_some()),
                }
                self.state = LoggedState::Pending;
            }
            TaskFact::Awaiting { output, no_change, .. } => {
                self.state = LoggedState::Awaiting { output, is_ending: false, no_change };
            }
            TaskFact::EndingChildren {} => {
                if let LoggedState::Awaiting { is_ending, .. } = &mut self.state {
                    *is_ending = true;
                }
            }
            TaskFact::Escalated { decision, attempts, .. } => {
                self.attempts = attempts.unwrap_or(self.attempts);
                self.state = LoggedState::AwaitingDecision(decision);
            }
            TaskFact::Asked { decision, .. } => self.state = LoggedState::AwaitingDecision(decision),
            TaskFact::Taken { holder, epoch } => {
                (self.failures, self.recoveries) = (0, 0);
                self.state = LoggedState::Manual(holder, epoch);
            }
            TaskFact::Returned {} | TaskFact::Answered { .. } | TaskFact::SentBack { .. } => self.state = LoggedState::Pending,
            TaskFact::InPhases { is_blocked } => self.state = LoggedState::InPhases { is_blocked },
            TaskFact::Complete { output, warning, .. } => self.state = LoggedState::Done(TaskEnd::Success { output, warning }),
            TaskFact::Failed { error, .. } => self.state = LoggedState::Done(TaskEnd::Failed { error }),
            TaskFact::Cancelled { .. } => self.state = LoggedState::Done(TaskEnd::Cancelled),
            TaskFact::Landing { output, warning, .. } => self.state = LoggedState::Landing { output, warning },
            TaskFact::Paused(pause) => self.spec.paused = Some(pause),
            TaskFact::Resumed(_) => self.spec.paused = None,
            TaskFact::Retried {} => {
                self.spec.paused = None;
                (self.failures, self.recoveries) = (0, 0);
                self.state = LoggedState::Pending;
            }
            TaskFact::Marked { status: Status::Skipped } => self.state = LoggedState::Done(TaskEnd::Skipped),
            TaskFact::Marked { .. } => self.state = LoggedState::Review,
        }
    }

    fn enter(&mut self, to: LivePhase) {
        if let LoggedState::Live { phase, .. } = &mut self.state {
            *phase = to;
        }
    }

    /// Counts a run that was followed by another. Events of stores before version 3 do not have the counts.
    fn count(&mut self, ending: &RunEnd, said_failed: bool) {
        let was_stopped = matches!(&self.state, LoggedState::Live { phase: LivePhase::Stopping(_), .. });
        match ending {
            _ if said_failed => self.failures += 1,
            RunEnd::Never | RunEnd::NotBegun { .. } => {}
            RunEnd::Lost => self.recoveries += 1,
            RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::NotStarted { .. } if was_stopped => self.recoveries += 1,
            RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::NotStarted { .. } => self.failures += 1,
        }
    }
}

impl LoggedState {
    fn of(task: &Task, backlog: &Backlog) -> LoggedState {
        let live = |live: &task::Live, phase: LivePhase| LoggedState::Live {
            run: live.run.clone(),
            epoch: live.epoch,
            owner: backlog.runs.get(&live.run).map(|run| (run.owner.clone(), run.owner_epoch)),
            phase,
        };
        match &task.state {
            task::State::Pending | task::State::Backoff { .. } | task::State::Held => LoggedState::Pending,
            task::State::Awaiting { output, until, no_change } => {
                LoggedState::Awaiting { output: output.clone(), is_ending: until.is_none(), no_change: *no_change }
            }
            task::State::AwaitingDecision { decision } => LoggedState::AwaitingDecision(decision.clone()),
            task::State::Manual { holder, epoch, .. } => LoggedState::Manual(holder.clone(), *epoch),
            task::State::Running(run) => live(run, LivePhase::Running),
            task::State::Stuck { live: run, reason, .. } => live(run, LivePhase::Stuck(timeless(*reason))),
            task::State::Stopping { live: run, then, .. } => live(run, LivePhase::Stopping(then.clone())),
            task::State::InPhases { is_blocked } => LoggedState::InPhases { is_blocked: *is_blocked },
            task::State::Landing { output, warning } => LoggedState::Landing { output: output.clone(), warning: warning.clone() },
            task::State::Review => LoggedState::Review,
            task::State::Done(done) => LoggedState::Done(done.clone()),
        }
    }
}

/// A reason without the lease clock, which differs in a copy of a store.
fn timeless(reason: Stuck) -> Stuck {
    match reason {
        Stuck::NoHeartbeat { last_seen } => Stuck::NoHeartbeat { last_seen: Stamp { lease: Lease::default(), ..last_seen } },
        Stuck::NoProgress { .. } | Stuck::SessionDead => reason,
    }
}

/// Dependencies have no order.
fn sorted(mut edges: Vec<Edge>) -> Vec<Edge> {
    edges.sort();
    edges.dedup();
    edges
}
