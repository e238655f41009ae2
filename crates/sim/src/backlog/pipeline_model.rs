//! The model of a pipeline: from the event log and its plan alone, which step may come next.
//!
//! It shares no code with the state machine of the core.

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
    pub(crate) state: PipelineState,
    /// Why it is blocked.
    pub(crate) blocked: Option<Reason>,
    /// When its guard is due for another check.
    pub(crate) again: Option<Lease>,
    pub(crate) attempt: u32,
    /// How often each phase has begun.
    pub(crate) attempts: BTreeMap<usize, u32>,
    /// How many tasks and pushes its phases have begun.
    pub(crate) begun: u32,
    /// How often each phase has failed, since a person last asked for a retry.
    pub(crate) failures: BTreeMap<usize, u32>,
    /// How often guards were to be checked.
    pub(crate) visit: u32,
    /// The runner that checks them.
    pub(crate) checker: Option<RunnerId>,
    /// When the guard that blocks it will have blocked it for too long.
    pub(crate) overdue: Option<Lease>,
    /// How many runs the last attempt at each phase had besides the first one.
    pub(crate) retried: BTreeMap<usize, u32>,
    /// Whether a person has waived the guards before its phase.
    pub(crate) waived: bool,
    /// Whether a phase that keeps locks for the pipeline has begun, and the pipeline is not over.
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
    /// The guards after it.
    Post(usize),
    /// The step that must follow, in the same transaction.
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
    /// This phase begins, with its guards if it has any.
    Enter(usize),
    /// The next approach of this phase begins.
    Approach(usize, u32),
    /// The guards after this phase.
    Post(usize),
    /// The step that the plan defines for a failure. A strategy first decides whether there is another approach.
    Failure { at: usize, approach: u32, error: Box<str>, timed_out: bool },
    /// The same when no approach is left.
    GivenUp(usize),
    /// A person skipped, cancelled or deleted its task, so that it fails.
    Dropped(usize),
    /// No phase is left.
    Complete,
}

impl PipelineModel {
    pub(crate) fn new(plan: Arc<Plan>, context: Context) -> PipelineModel {
        PipelineModel {
            plan,
            context,
            state: PipelineState::Init,
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
        matches!(self.state, PipelineState::Done | PipelineState::Failed { .. } | PipelineState::Cancelled)
    }

    pub(crate) fn task(&self) -> Option<&TaskId> {
        match &self.state {
            PipelineState::In { task, .. } => task.as_ref(),
            _ => None,
        }
    }

    /// The guards at which it waits.
    pub(crate) fn guards(&self) -> &[Guard] {
        match self.state {
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

    /// Whether a guard blocks it.
    pub(crate) fn is_held_up(&self) -> bool {
        matches!(self.blocked, Some(Reason::Guard { .. }))
    }

    /// Whether a guard keeps the task of its phase from beginning, or blocks it at its guards, as this block says.
    pub(crate) fn holds_back(&self, phase: &Name, when: When, reason: &Reason) -> bool {
        let held = reason.held().map(|held| (&held.task, held.approach));
        match &self.state {
            PipelineState::In { at, approach, task: Some(task) } => {
                (self.at(phase), when, held) == (Some(*at), When::Pre, Some((task, *approach)))
            }
            _ => held.is_none() && self.is_before(phase, when),
        }
    }

    /// Whether it is at the guards of this phase, on this side.
    pub(crate) fn is_before(&self, phase: &Name, when: When) -> bool {
        let at = self.at(phase);
        match (&self.state, when) {
            (PipelineState::Pre(here), When::Pre) | (PipelineState::Post(here), When::Post) => at == Some(*here),
            _ => false,
        }
    }

    /// The step after a phase that succeeded.
    pub(crate) fn after_success(&self, at: usize) -> Owes {
        if self.plan.phases[at].post.is_empty() { self.after(at) } else { Owes::Post(at) }
    }

    /// The step after a phase that is over.
    pub(crate) fn after(&self, at: usize) -> Owes {
        let next = match &self.plan.phases[at].then {
            After::Next => at + 1,
            After::Phase(name) => self.at(name).unwrap_or(usize::MAX),
            After::Done => usize::MAX,
        };
        if next < self.plan.phases.len() { Owes::Enter(next) } else { Owes::Complete }
    }

    /// The phase with which a plan continues after a failed phase, if it does.
    pub(crate) fn after_failure(&self, at: usize) -> Option<usize> {
        let failed = self.failures.get(&at).copied().unwrap_or(0);
        match &self.plan.phases[at].on_fail {
            OnFail::Fail => None,
            OnFail::Retry { times } => (failed < *times).then_some(at),
            OnFail::Phase { to, times } => self.at(to).filter(|_| failed < *times),
        }
    }

    /// The approach after one that failed with this error. `None` if there is none.
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
