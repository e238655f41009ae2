//! A pipeline: one go through the phases of a plan.
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
//! Everything but Done, Failed and Cancelled can be cancelled.
//!
//! Invariants: a phase that is named is one of the plan; a pipeline has at most one task at a time, and whoever speaks for
//! that task names it, so that the end of an earlier one is late. What failed for good is never tried again.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::Event;
use crate::ids::{DecisionId, Name, RunnerId, Seq, TaskId};
use crate::plan::{self, Action, After, BindError, Context, OnFail, Phase, Plan};
use crate::step::{Now, Scribe, Step};
use crate::time::{Lease, Span, Stamp, Wall};

mod fact;
mod going;
mod questions;

pub use fact::Fact;
pub(crate) use fact::remember;
pub use going::phase_task;

/// How many tasks the phases of one pipeline can have: what goes round in circles ends some time.
pub const TASK_LIMIT: u32 = 10_000;

/// How long neither events nor time alone make the world outside be asked again, after an answer: what happens often is looked
/// at once.
pub const REST: Span = Span::from_secs(1);

/// The most checkpoints that are kept: the last ones.
pub const CHECKPOINT_LIMIT: usize = 100;

/// The longest message of a checkpoint, in bytes.
pub const MESSAGE_LIMIT: usize = 1_000;

/// A pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// Which one: the id of its task.
    pub id: TaskId,
    /// What it does.
    pub plan: Arc<Plan>,
    /// How it stands.
    pub state: State,
    /// Which attempt at the phase this is, counted from 1.
    pub attempt: u32,
    /// How many attempts there were at each phase.
    pub attempts: BTreeMap<Name, u32>,
    /// Since when it is in the phase, or before it.
    pub phase_started: Stamp,
    /// The variables.
    pub context: Context,
    /// What was said on the way.
    pub checkpoints: Vec<Checkpoint>,
    /// How many tasks its phases have had.
    pub tasks: u32,
    /// How often a phase has failed, since a person last asked for a retry.
    pub failures: BTreeMap<Name, u32>,
    /// Whether a phase has begun that keeps its locks: from then on every phase needs them.
    pub is_keeping: bool,
    /// The runner that looks at its guards, until it has told what it found: a command of theirs must not run twice at a time.
    /// Until then it counts as looking, though the pipeline may have gone on meanwhile.
    pub looker: Option<RunnerId>,
}

/// How a pipeline stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum State {
    /// It has not begun.
    Init,
    /// The guards of a phase are to be looked at.
    Checking {
        /// Which phase.
        phase: Name,
        /// Before or after it.
        when: When,
    },
    /// It cannot go on.
    Blocked {
        /// In which phase.
        phase: Name,
        /// Before it begins, or before it is over.
        when: When,
        /// Why.
        reason: Reason,
    },
    /// Something is done.
    Running {
        /// In which phase.
        phase: Name,
        /// Which approach of its strategy, counted from 0.
        #[serde(default)]
        approach: u32,
        /// By which task; without one an item is put into a queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
    },
    /// All phases are done.
    Done,
    /// A phase has failed.
    Failed {
        /// Which one.
        phase: Name,
        /// Why.
        error: Box<str>,
        /// Whether it can be tried again.
        recoverable: bool,
    },
    /// Nobody wants it any more.
    Cancelled {
        /// In which phase, if it had begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<Name>,
    },
}

/// On which side of a phase guards stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Before it begins.
    Pre,
    /// Before it is over.
    Post,
}

/// Why a pipeline cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reason {
    /// Others must come first.
    Dependencies,
    /// A guard does not hold.
    Guard {
        /// Which one.
        guard: Name,
        /// The part of it that fails, in words.
        part: Box<str>,
        /// The last event that the answer knows of: what comes after it may change the answer.
        #[serde(default, skip_serializing_if = "is_none")]
        at: Seq,
        /// When it is looked at again, if nothing is heard before.
        #[serde(default, skip_serializing_if = "is_never")]
        again: Lease,
        /// Until when an event alone is no reason to look again: what happens by then is looked at together.
        #[serde(default, skip_serializing_if = "is_never")]
        rest: Lease,
        /// When it was looked at, for people.
        #[serde(default, skip_serializing_if = "is_unknown")]
        looked: Wall,
    },
    /// The task of the phase waits for a decision.
    Decision {
        /// Which one.
        decision: DecisionId,
        /// The approach that the task belongs to.
        approach: u32,
        /// The task.
        task: TaskId,
    },
}

/// Something that was said on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// In which phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Name>,
    /// What.
    pub message: Box<str>,
    /// When.
    pub at: Wall,
}

/// What can happen to a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// It was handed over.
    Start {
        /// Whether others must come first.
        unmet: bool,
    },
    /// Nothing stands in the way of its first phase any more.
    Begin,
    /// A runner wants to look at its guards.
    Examine {
        /// Which one.
        by: RunnerId,
        /// Whether the one that did so before is gone.
        is_free: bool,
        /// The last event that it has heard of, if one of them may change what a guard says.
        heard: Seq,
    },
    /// A runner has told what it found, whatever became of the pipeline meanwhile.
    Looked {
        /// Which one.
        by: RunnerId,
    },
    /// The guards of a phase were looked at.
    Examined {
        /// Of which phase.
        phase: Name,
        /// On which side.
        when: When,
        /// What they say.
        verdict: Verdict,
        /// The last event that they know of.
        at: Seq,
    },
    /// The task of its phase has ended.
    Ended {
        /// Which task.
        task: TaskId,
        /// How.
        end: End,
    },
    /// The task of its phase waits for a decision, or does so no longer.
    Parked {
        /// Which task.
        task: TaskId,
        /// Which decision.
        decision: Option<DecisionId>,
    },
    /// The item of its phase is in the queue, or could not be put there.
    Pushed {
        /// Of which phase.
        phase: Name,
        /// Why it could not.
        error: Option<Box<str>>,
    },
    /// What is to be done in its phase could not be put into words.
    Unclear {
        /// For which task.
        task: TaskId,
        /// Why.
        error: Box<str>,
    },
    /// Something has happened that may change what a guard says.
    Look,
    /// A person wants it to go on where it is blocked.
    Unblock,
    /// A person wants the phase that failed tried again.
    Retry,
    /// Nobody wants it any more.
    Cancel,
    /// Variables are set.
    Set(Context),
    /// Something is said on the way.
    Checkpoint(Box<str>),
}

/// What the guards of a phase say, taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may go on. These did not hold, and only warn.
    Pass {
        /// Each with the part that fails.
        warnings: Vec<(Name, Box<str>)>,
    },
    /// It waits.
    Block {
        /// For which guard.
        guard: Name,
        /// The part that fails.
        part: Box<str>,
        /// When it is looked at again, if nothing is heard before.
        again: Lease,
    },
    /// It has failed for good.
    Fail {
        /// By which guard.
        guard: Name,
        /// What the guard says then.
        message: Box<str>,
        /// The part that fails.
        part: Box<str>,
    },
}

/// How the task of a phase ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Well.
    Success {
        /// Its result: the fields of an object become variables.
        output: Option<Value>,
    },
    /// It has failed.
    Failed {
        /// Why.
        error: Box<str>,
        /// The last that it has printed.
        tail: Box<str>,
        /// Whether it took too long.
        timed_out: bool,
    },
    /// Somebody did not want it, or passed it over.
    Dropped {
        /// In a word.
        how: Box<str>,
    },
}

/// What a pipeline can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This task is to be made for the phase that it is in.
    Begin(TaskId),
    /// An item is to be put into a queue.
    Push,
    /// Guards are to be looked at.
    Check,
    /// It waits.
    Blocked,
    /// It is over.
    Over,
    /// It is noted, and nothing else is to be done.
    Noted,
    /// It has gone on since.
    Late,
    /// It cannot be done.
    Refused(Refusal),
}

/// Why something cannot be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is not blocked.
    NotBlocked,
    /// It waits for this decision, which is to be answered.
    Undecided(DecisionId),
    /// It has not failed.
    NotFailed,
    /// It has failed for good.
    NotRecoverable,
    /// It is over.
    Over,
    /// It cannot have these variables.
    Unbound(BindError),
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
    /// It without what is known beside the answer: the same answer may be found again and again.
    pub fn timeless(&self) -> Reason {
        match self.clone() {
            Reason::Guard { guard, part, .. } => {
                Reason::Guard { guard, part, at: Seq(0), again: Lease(0), rest: Lease(0), looked: Wall(0) }
            }
            reason @ (Reason::Dependencies | Reason::Decision { .. }) => reason,
        }
    }
}

impl Pipeline {
    /// A pipeline that was just handed over.
    pub fn new(id: TaskId, plan: Arc<Plan>, context: Context, now: &Now) -> Pipeline {
        Pipeline {
            id,
            plan,
            state: State::Init,
            attempt: 1,
            phase_started: now.stamp(),
            context,
            checkpoints: Vec::new(),
            tasks: 0,
            failures: BTreeMap::new(),
            attempts: BTreeMap::new(),
            is_keeping: false,
            looker: None,
        }
    }

    /// Decides one input.
    pub fn step(mut self, input: Input, now: &Now) -> Step<Pipeline, Outcome> {
        let mut scribe = Scribe::new(now);
        let outcome = match input {
            Input::Start { unmet } => self.start(unmet, &mut scribe),
            Input::Begin => match self.state {
                State::Init | State::Blocked { reason: Reason::Dependencies, .. } => self.begin(now, &mut scribe),
                _ => Outcome::Late,
            },
            Input::Examine { by, is_free, heard } => self.looked_at(by, is_free, heard, now),
            Input::Looked { by } => match self.looker.take_if(|looker| *looker == by) {
                Some(_) => Outcome::Noted,
                None => Outcome::Late,
            },
            Input::Examined { phase, when, verdict, at } => self.examined(&phase, when, verdict, at, now, &mut scribe),
            Input::Ended { task, end } => self.ended(&task, end, now, &mut scribe),
            Input::Parked { task, decision } => self.parked(&task, decision, &mut scribe),
            Input::Pushed { phase, error } => self.pushed(&phase, error, now, &mut scribe),
            Input::Unclear { task, error } => match self.task() {
                Some(current) if *current == task => {
                    let phase = self.current().clone();
                    self.fail(phase, error, true, &mut scribe)
                }
                _ => Outcome::Late,
            },
            Input::Look => self.look(now),
            Input::Unblock => self.unblock(now, &mut scribe),
            Input::Retry => self.retry(now, &mut scribe),
            Input::Cancel => match self.is_over() {
                true => Outcome::Refused(Refusal::Over),
                false => {
                    let phase = self.phase().cloned();
                    self.emit(Fact::Cancelled { phase: phase.clone() }, &mut scribe);
                    self.state = State::Cancelled { phase };
                    Outcome::Over
                }
            },
            Input::Set(vars) => self.set(vars, now, &mut scribe),
            Input::Checkpoint(message) => self.say(message, now, &mut scribe),
        };
        Step { state: self, outcome, effects: scribe.effects }
    }

    /// The next moment at which time alone could change something.
    pub fn next_deadline(&self) -> Option<Lease> {
        match &self.state {
            State::Checking { .. } | State::Running { task: None, .. } => Some(Lease(0)),
            State::Blocked { reason: Reason::Guard { again, .. }, .. } => Some(*again),
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
        self.phase().expect("who has a task is in a phase")
    }

    fn emit(&self, fact: Fact, scribe: &mut Scribe) {
        scribe.emit(Event::Pipeline { id: self.id.clone(), fact });
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
