//! A pipeline: one pass through the phases of a plan.
//!
//! ```text
//!   Init ------ begin -----------> enter a phase <-------------------------------------.
//!    |                               |   has guards: Checking --failed--> Blocked      |
//!    | dependencies                  v                  |  passed          | unblock   |
//!    `----> Blocked -- begin --> Running <--------------'------------------'           |
//!                                  |  |  its task has failed: retry, another phase -----+
//!              its task is done    |  |                   or Failed -- retry, by a person +
//!              (guards: Checking)  |  `-- its task waits for a decision: Blocked          |
//!                                  v                                                     |
//!                                leave the phase --- the next one -----------------------'
//!                                  `--------------- the last one: Done
//! ```
//!
//! The guards before a phase are evaluated twice: while nothing is held yet (Checking), and again when its task is
//! claimed. A pass leaves the [`Recheck`], which the claim evaluates inside its transaction; results from outside that
//! are too old by then are collected again by the session. If a guard no longer holds, the pipeline is blocked as
//! before, and its task is held.
//!
//! A pipeline that a guard blocks has a [deadline](Pipeline::overdue). The check at that time decides: the phase has
//! failed, or if nothing follows from that, a person is asked (Overdue).
//!
//! A pipeline that is Done and whose work came back from the merge queue continues with the phase that its plan names.
//!
//! Everything but Done, Failed and Cancelled can be cancelled.
//!
//! Invariants: every phase in its state is one of the plan; a pipeline has at most one task at a time, and inputs about
//! that task name it, so that the end of an earlier one is late. A pipeline that failed for good is never retried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::IntoStaticStr;

use crate::decision::Question;
use crate::event::Event;
use crate::guard::Guard;
use crate::ids::{DecisionId, Name, RunnerId, Seq, TaskId, Title};
use crate::pipeline::plan::{Action, After, BindError, Bound, Context, OnFail, Phase, Plan};
use crate::step::{EffectBuffer, Notice, NoticeKind, Now, OutboxCommand, Step};
use crate::time::{Lease, Span, Stamp, Wall};

mod blocking;
mod fact;
mod input;
mod output;
pub mod plan;
mod questions;
pub mod strategy;
mod transitions;

pub use fact::Fact;
pub(crate) use fact::remember;
pub use input::{GuardsResult, Input, Outcome, PhaseEnd, Refusal};
pub use transitions::phase_task;

/// How many tasks the phases of one pipeline can have, so that a loop of phases ends.
pub const TASK_LIMIT: u32 = 10_000;

/// How long after a result neither events nor time alone cause another check of the world outside: a burst of events
/// causes one check.
pub const REST: Span = Span::from_secs(1);

/// How long a guard may block a phase, unless the runbook says otherwise.
pub const BLOCKED_TIMEOUT: Span = Span::from_secs(30 * 60);

/// How many checkpoints are kept: the last ones.
pub const CHECKPOINT_LIMIT: usize = 100;

/// The longest message of a checkpoint, in bytes.
pub const MESSAGE_LIMIT: usize = 1_000;

/// A pipeline. Its row and the baseline of the log have it in its serialized form, which is read with [`Pipeline::restore`]: a new
/// field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pipeline {
    #[serde(skip, default = "unknown_id")]
    pub id: TaskId,
    /// Title and plan are kept in the spec of its task.
    #[serde(skip, default = "unknown_title")]
    pub title: Title,
    #[serde(skip, default = "Plan::unknown")]
    pub plan: Arc<Plan>,
    pub state: State,
    /// The number of the attempt at the phase, counted from 1.
    pub attempt: u32,
    /// How many attempts there were at each phase.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attempts: BTreeMap<Name, u32>,
    /// Since when it is in the phase, or before it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub phase_started: Stamp,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: Context,
    /// The variables that were given at its start: its phases cannot change them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub given: BTreeSet<Box<str>>,
    /// The notes that were recorded on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<Checkpoint>,
    /// How many tasks its phases have had.
    pub tasks: u32,
    /// How often a phase has failed, since a person last asked for a retry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<Name, u32>,
    /// Whether a phase has begun that keeps its locks: from then on every phase needs them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_keeping: bool,
    /// The runner that checks its guards, until it has reported the result: their commands must not run twice at a
    /// time. Until then the check counts as running, though the pipeline may have moved on meanwhile.
    #[serde(default, rename = "looker", skip_serializing_if = "Option::is_none")]
    pub checker: Option<RunnerId>,
    /// The conditions that must still hold when a run of its phase is claimed; nothing after a person has unblocked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recheck: Option<Recheck>,
    /// When the guard that blocks it will have blocked it for too long; nothing once people were notified of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue: Option<Lease>,
    /// How many runs the last attempt at each phase has had beside the first one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retried: BTreeMap<Name, u32>,
    /// The last failure of a phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
}

/// The last failure of a phase: the reason for the attempt that follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    pub error: Box<str>,
    /// How many tasks the phases had had by then.
    pub tasks: u32,
}

/// The guards before a phase that are left to be evaluated when its run is claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recheck {
    /// The guards, as far as the store can answer them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<Guard>,
    /// Until when the results from outside are fresh.
    pub fresh_until: Lease,
}

/// The state of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// It has not begun.
    Init,
    /// The guards of a phase are to be checked.
    Checking {
        phase: Name,
        /// Before or after it.
        when: When,
    },
    Blocked {
        phase: Name,
        /// Before it begins, or before it is over.
        when: When,
        reason: Reason,
    },
    Running {
        phase: Name,
        /// The index of the approach in its strategy.
        #[serde(default)]
        approach: u32,
        /// The task of the phase; without one, an item is put into a queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
    },
    Done,
    Failed {
        phase: Name,
        error: Box<str>,
        /// Whether it can be retried.
        recoverable: bool,
    },
    Cancelled {
        /// The phase that it was in, if it had begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<Name>,
    },
}

/// The side of a phase that guards are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Before it begins.
    Pre,
    /// Before it is over.
    Post,
}

/// Why a pipeline is blocked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reason {
    Dependencies,
    /// A guard does not hold.
    Guard {
        guard: Name,
        /// The part of it that does not hold, in words.
        part: Box<str>,
        /// The last event that the result takes into account: a later one may change the result.
        #[serde(default, skip_serializing_if = "is_none")]
        at: Seq,
        /// When it is checked again, unless an event comes before.
        #[serde(default, skip_serializing_if = "is_never")]
        again: Lease,
        /// Until when an event alone causes no check: the events up to then are answered by one check.
        #[serde(default, skip_serializing_if = "is_never")]
        rest: Lease,
        /// When it was checked, for people.
        #[serde(default, skip_serializing_if = "is_unknown")]
        looked: Wall,
        /// The task of the phase, if there is one already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<Held>,
    },
    /// A guard has not held for too long, and a person is asked what to do.
    Overdue {
        guard: Name,
        /// The part of it that does not hold, in words.
        part: Box<str>,
        decision: DecisionId,
        /// The task of the phase, if there is one already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<Held>,
    },
    /// The task of the phase waits for a decision.
    Decision {
        decision: DecisionId,
        /// The approach that the task belongs to.
        approach: u32,
        task: TaskId,
    },
}

/// The task of a phase that a guard keeps from starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub task: TaskId,
    /// The approach that it belongs to.
    #[serde(default)]
    pub approach: u32,
}

/// A note that was recorded on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Name>,
    pub message: Box<str>,
    pub at: Wall,
}

fn unknown_id() -> TaskId {
    TaskId::new("unknown").expect("a valid id")
}

pub(crate) fn unknown_title() -> Title {
    Title::new("unknown").expect("a valid title")
}

fn is_default(stamp: &Stamp) -> bool {
    *stamp == Stamp::default()
}

fn is_none(at: &Seq) -> bool {
    at.0 == 0
}

fn is_never(again: &Lease) -> bool {
    again.0 == 0
}

fn is_unknown(looked: &Wall) -> bool {
    looked.0 == 0
}

impl Reason {
    /// The task of the phase that a guard keeps from starting.
    pub fn held(&self) -> Option<&Held> {
        match self {
            Reason::Guard { held, .. } | Reason::Overdue { held, .. } => held.as_ref(),
            Reason::Dependencies | Reason::Decision { .. } => None,
        }
    }

    /// The reason without the times and event numbers of the check: later checks may have the same result.
    pub fn timeless(&self) -> Reason {
        match self.clone() {
            Reason::Guard { guard, part, held, .. } => {
                Reason::Guard { guard, part, at: Seq(0), again: Lease(0), rest: Lease(0), looked: Wall(0), held }
            }
            reason @ (Reason::Dependencies | Reason::Decision { .. } | Reason::Overdue { .. }) => reason,
        }
    }
}

impl Pipeline {
    /// Reads the serialized form. It does not include title and plan, which are in the spec of the task.
    pub fn restore(id: TaskId, data: &str) -> serde_json::Result<Pipeline> {
        Ok(Pipeline { id, ..serde_json::from_str(data)? })
    }

    /// A pipeline that was just added.
    pub fn new(id: TaskId, title: Title, plan: Arc<Plan>, vars: Bound, now: &Now) -> Pipeline {
        let Bound { context, given } = vars;
        Pipeline {
            id,
            title,
            plan,
            state: State::Init,
            attempt: 1,
            phase_started: now.stamp(),
            context,
            given,
            checkpoints: Vec::new(),
            tasks: 0,
            failures: BTreeMap::new(),
            attempts: BTreeMap::new(),
            is_keeping: false,
            checker: None,
            recheck: None,
            overdue: None,
            retried: BTreeMap::new(),
            last_failure: None,
        }
    }

    pub fn step(mut self, input: Input, now: &Now) -> Step<Pipeline, Outcome> {
        let mut buffer = EffectBuffer::new(now);
        let outcome = match input {
            Input::Start { unmet } => self.start(unmet, &mut buffer),
            Input::Begin => match self.state {
                State::Init | State::Blocked { reason: Reason::Dependencies, .. } => self.begin(now, &mut buffer),
                _ => Outcome::Late,
            },
            Input::BeginCheck { by, is_free, heard } => self.begin_check(by, is_free, heard, now),
            Input::EndCheck { by } => match self.checker.take_if(|checker| *checker == by) {
                Some(_) => Outcome::Noted,
                None => Outcome::Late,
            },
            Input::Checked { phase, when, verdict, at } => self.checked(&phase, when, verdict, at, now, &mut buffer),
            Input::Refuted { task, verdict, at } => self.refuted(&task, verdict, at, now, &mut buffer),
            Input::Ended { task, end, runs } => self.ended(&task, end, runs, now, &mut buffer),
            Input::AwaitingDecision { task, decision } => self.awaits_decision(&task, decision, &mut buffer),
            Input::Pushed { phase, error } => self.pushed(&phase, error, now, &mut buffer),
            Input::Unclear { task, error } => match self.task() {
                Some(current) if *current == task => {
                    let phase = self.current().clone();
                    self.fail(phase, error, true, &mut buffer)
                }
                _ => Outcome::Late,
            },
            Input::CheckAgain { phase } => match &self.state {
                State::Running { phase: current, task: None, .. } if *current == phase => {
                    self.check_guards(phase, When::Pre, &mut buffer)
                }
                _ => Outcome::Late,
            },
            Input::Poll => self.poll(now),
            Input::Unblock { by } => self.unblock(by, now, &mut buffer),
            Input::Wait => self.wait_again(now, &mut buffer),
            Input::GiveUp => self.give_up(&mut buffer),
            Input::Retry => self.retry(now, &mut buffer),
            Input::Returned => self.returned(now, &mut buffer),
            Input::Cancel => match self.is_over() {
                true => Outcome::Refused(Refusal::Over),
                false => {
                    let phase = self.phase().cloned();
                    self.emit(Fact::Cancelled { phase: phase.clone() }, &mut buffer);
                    self.state = State::Cancelled { phase };
                    Outcome::Over
                }
            },
            Input::Set(vars) => self.set(vars, now, &mut buffer),
            Input::Checkpoint(message) => self.add_checkpoint(message, now, &mut buffer),
        };
        Step { state: self, outcome, effects: buffer.effects }
    }

    pub fn next_deadline(&self) -> Option<Lease> {
        match &self.state {
            State::Checking { .. } | State::Running { task: None, .. } => Some(Lease(0)),
            State::Blocked { reason: Reason::Guard { again, .. }, .. } => {
                Some(self.overdue.map_or(*again, |overdue| overdue.min(*again)))
            }
            State::Init
            | State::Blocked { .. }
            | State::Running { .. }
            | State::Done
            | State::Failed { .. }
            | State::Cancelled { .. } => None,
        }
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        if let Some(phase) = self.phase() {
            assert!(self.plan.phase(phase).is_some(), "{} is in phase {phase}, which its plan does not have", self.id);
        }
        assert!(self.attempt > 0, "{} is at no attempt", self.id);
        assert!(self.tasks <= TASK_LIMIT, "{} has had too many tasks", self.id);
        if let State::Running { phase, approach, task } = &self.state {
            match self.plan.phase(phase).map(|phase| &phase.action) {
                Some(Action::Push(_)) => assert!(task.is_none(), "{} has a task for a push", self.id),
                Some(Action::Strategy { approaches, .. }) => {
                    assert!((*approach as usize) < approaches.len(), "{} tries an approach that is not there", self.id);
                }
                Some(Action::Do(_)) | None => assert_eq!(*approach, 0, "{} has no strategy", self.id),
            }
        }
    }

    fn current(&self) -> &Name {
        self.phase().expect("a pipeline with a task is in a phase")
    }

    fn emit(&self, fact: Fact, buffer: &mut EffectBuffer) {
        buffer.emit(Event::Pipeline { id: self.id.clone(), fact });
    }
}

#[cfg(test)]
mod tests;
