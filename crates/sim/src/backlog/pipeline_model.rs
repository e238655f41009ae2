//! The way of a pipeline as an outsider follows it: from the log and its plan alone, what may come next.
//!
//! It shares no code with the machine of the core.

use std::collections::BTreeMap;
use std::sync::Arc;

use banksman_core::guard::Guard;
use banksman_core::pipeline::plan::{Action, After, Context, OnFail, Plan};
use banksman_core::pipeline::strategy::Fallback;
use banksman_core::pipeline::{Reason, When};
use banksman_core::{Lease, Name, RunnerId, TaskId};

#[derive(Debug)]
pub(crate) struct PipelineModel {
    pub(crate) plan: Arc<Plan>,
    pub(crate) context: Context,
    pub(crate) stand: PipelineState,
    /// Why it does not go on.
    pub(crate) blocked: Option<Reason>,
    /// When its guard is looked at again by time.
    pub(crate) again: Option<Lease>,
    pub(crate) attempt: u32,
    /// How often each phase was begun.
    pub(crate) attempts: BTreeMap<usize, u32>,
    /// How many things its phases have begun.
    pub(crate) begun: u32,
    /// How often each phase has failed, since a person last asked for a retry.
    pub(crate) failures: BTreeMap<usize, u32>,
    /// How often guards were to be looked at.
    pub(crate) visit: u32,
    /// The runner that looks at them.
    pub(crate) checker: Option<RunnerId>,
    /// When the guard that blocks it has blocked it for too long.
    pub(crate) overdue: Option<Lease>,
    /// How many runs the last attempt at each phase had beside the first one.
    pub(crate) retried: BTreeMap<usize, u32>,
    /// A person has let it go on, whatever the guards before its phase say.
    pub(crate) waived: bool,
    /// A phase that keeps locks for the whole pipeline has begun, and the pipeline is not over since.
    pub(crate) is_keeping: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PipelineState {
    Init,
    /// The guards before this phase.
    Pre(usize),
    In {
        at: usize,
        approach: u32,
        task: Option<TaskId>,
    },
    /// The guards behind it.
    Post(usize),
    /// What must follow, in the same transaction.
    Owes(Owes),
    Done,
    Failed {
        at: usize,
        recoverable: bool,
    },
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owes {
    /// This phase begins, with its guards if it has some.
    Enter(usize),
    /// The next approach of this phase begins.
    Approach(usize, u32),
    /// The guards behind this phase.
    Post(usize),
    /// What the plan says of a failure. A strategy has to say first whether there is another approach.
    Failure { at: usize, approach: u32, error: Box<str>, timed_out: bool },
    /// The same when no approach is left.
    GivenUp(usize),
    /// Somebody did not want its task, so that it fails.
    Dropped(usize),
    /// There is nothing left to do.
    Complete,
}

impl PipelineModel {
    pub(crate) fn new(plan: Arc<Plan>, context: Context) -> PipelineModel {
        PipelineModel {
            plan,
            context,
            stand: PipelineState::Init,
            blocked: None,
            again: None,
            attempt: 1,
            attempts: BTreeMap::new(),
            begun: 0,
            failures: BTreeMap::new(),
            visit: 0,
            checker: None,
            overdue: None,
            retried: BTreeMap::new(),
            waived: false,
            is_keeping: false,
        }
    }

    pub(crate) fn at(&self, phase: &Name) -> Option<usize> {
        self.plan.phases.iter().position(|other| other.name == *phase)
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stand, PipelineState::Done | PipelineState::Failed { .. } | PipelineState::Cancelled)
    }

    pub(crate) fn task(&self) -> Option<&TaskId> {
        match &self.stand {
            PipelineState::In { task, .. } => task.as_ref(),
            _ => None,
        }
    }

    /// The guards that it stands before.
    pub(crate) fn guards(&self) -> &[Guard] {
        match self.stand {
            PipelineState::Pre(at) => &self.plan.phases[at].pre,
            PipelineState::Post(at) => &self.plan.phases[at].post,
            PipelineState::In { at, .. } if self.is_held_up() => &self.plan.phases[at].pre,
            _ => &[],
        }
    }

    pub(crate) fn blocking_guard(&self) -> Option<&Name> {
        match &self.blocked {
            Some(Reason::Guard { guard, .. }) => Some(guard),
            _ => None,
        }
    }

    /// Whether a guard holds it up.
    pub(crate) fn is_held_up(&self) -> bool {
        matches!(self.blocked, Some(Reason::Guard { .. }))
    }

    /// Whether a guard does not let the task of its phase begin, as a block says.
    pub(crate) fn holds_back(&self, phase: &Name, when: When, reason: &Reason) -> bool {
        let held = reason.held().map(|held| (&held.task, held.approach));
        match &self.stand {
            PipelineState::In { at, approach, task: Some(task) } => {
                (self.at(phase), when, held) == (Some(*at), When::Pre, Some((task, *approach)))
            }
            _ => held.is_none() && self.is_before(phase, when),
        }
    }

    /// Whether it stands at the guards of this phase, on this side.
    pub(crate) fn is_before(&self, phase: &Name, when: When) -> bool {
        let at = self.at(phase);
        match (&self.stand, when) {
            (PipelineState::Pre(here), When::Pre) | (PipelineState::Post(here), When::Post) => at == Some(*here),
            _ => false,
        }
    }

    /// What comes when all that a phase does was done well.
    pub(crate) fn after_success(&self, at: usize) -> Owes {
        if self.plan.phases[at].post.is_empty() { self.after(at) } else { Owes::Post(at) }
    }

    /// What comes when a phase is over.
    pub(crate) fn after(&self, at: usize) -> Owes {
        let next = match &self.plan.phases[at].then {
            After::Next => at + 1,
            After::Phase(name) => self.at(name).unwrap_or(usize::MAX),
            After::Done => usize::MAX,
        };
        if next < self.plan.phases.len() { Owes::Enter(next) } else { Owes::Complete }
    }

    /// Whether a plan lets a phase that failed be followed by another one, and by which.
    pub(crate) fn after_failure(&self, at: usize) -> Option<usize> {
        let failed = self.failures.get(&at).copied().unwrap_or(0);
        match &self.plan.phases[at].on_fail {
            OnFail::Fail => None,
            OnFail::Retry { times } => (failed < *times).then_some(at),
            OnFail::Phase { to, times } => self.at(to).filter(|_| failed < *times),
        }
    }

    /// The approach that comes after one that failed so. `None` if there is none.
    pub(crate) fn next_approach(&self, at: usize, approach: u32, error: &str, timed_out: bool) -> Option<u32> {
        let Action::Strategy { approaches, .. } = &self.plan.phases[at].action else { return None };
        let reasons = &approaches.get(approach as usize)?.fallback_on;
        let is_reason = reasons.iter().any(|reason| match reason {
            Fallback::Any => true,
            Fallback::Timeout => timed_out,
            // The patterns here are plain words.
            Fallback::Error(word) => error.contains(&**word),
        });
        (is_reason && approach as usize + 1 < approaches.len()).then_some(approach + 1)
    }

    pub(crate) fn has_strategy(&self, at: usize) -> bool {
        matches!(self.plan.phases[at].action, Action::Strategy { .. })
    }

    pub(crate) fn is_push(&self, at: usize) -> bool {
        matches!(self.plan.phases[at].action, Action::Push(_))
    }
}
