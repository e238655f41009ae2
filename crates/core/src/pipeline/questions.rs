//! What others ask of a pipeline: where it is, what it waits for, and what it listens to.

use std::collections::BTreeSet;

use super::{Pipeline, Reason, State, When};
use crate::event::Source;
use crate::guard::{Guard, PipelineFilter};
use crate::ids::{Name, Seq, TaskId};
use crate::pipeline::plan::Text;
use crate::task::Need;
use crate::time::Lease;

impl Pipeline {
    /// The phase that it is in, or failed in.
    pub fn phase(&self) -> Option<&Name> {
        match &self.state {
            State::Checking { phase, .. }
            | State::Blocked { phase, .. }
            | State::Running { phase, .. }
            | State::Failed { phase, .. } => Some(phase),
            State::Cancelled { phase } => phase.as_ref(),
            State::Init | State::Done => None,
        }
    }

    /// The task that is at its phase.
    pub fn task(&self) -> Option<&TaskId> {
        match &self.state {
            State::Running { task, .. } => task.as_ref(),
            State::Blocked { reason: Reason::Decision { task, .. }, .. } => Some(task),
            State::Blocked { reason, .. } if reason.held().is_some() => reason.held().map(|held| &held.task),
            State::Init
            | State::Checking { .. }
            | State::Blocked { .. }
            | State::Done
            | State::Failed { .. }
            | State::Cancelled { .. } => None,
        }
    }

    /// Whether it is over. One that failed may be tried again.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Failed { .. } | State::Cancelled { .. })
    }

    /// Whether it is one of these pipelines and runs: it has begun a phase, and is not over. One that waits before a phase for the
    /// others of the same filter does not count, or two of them would wait for each other.
    pub fn is_running_as(&self, filter: &PipelineFilter) -> bool {
        let is = |wanted: &Option<Text>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted.literal() == Some(is));
        let waits = matches!(self.gate(), Some((_, When::Pre)));
        let asks = || self.guards().iter().any(|guard| guard.wants(&self.context).running.contains(filter));
        let is_inside = |phase: &Name| self.phase() == Some(phase) && !waits;
        !self.is_over()
            && self.tasks > 0
            && is(&filter.name, self.plan.name.as_str())
            && is(&filter.runbook, &self.plan.runbook)
            && filter.phase.as_ref().is_none_or(is_inside)
            && !(waits && asks())
    }

    /// What it needs under its own name as it stands: the locks of the whole plan once one of its phases keeps them, and everything that a
    /// phase with guards behind it needs until it leaves the phase.
    pub fn keeps(&self) -> BTreeSet<Need> {
        let is_inside = match &self.state {
            State::Running { .. } => true,
            State::Checking { when, .. } | State::Blocked { when, .. } => *when == When::Post,
            State::Init | State::Done | State::Failed { .. } | State::Cancelled { .. } => false,
        };
        let locks = if self.is_keeping && !self.is_over() { self.plan.kept() } else { BTreeSet::new() };
        let locks = locks.into_iter().map(|name| Need::Lock(name.clone()).kept_by(&self.id));
        let phase = self.phase().filter(|_| is_inside).and_then(|phase| self.plan.phase(phase));
        locks.chain(phase.into_iter().flat_map(|phase| self.plan.kept_in(phase, false, &self.id))).collect()
    }

    /// The word for how it stands.
    pub fn word(&self) -> &'static str {
        (&self.state).into()
    }

    /// The phase whose guards are to be looked at, and on which side of it they stand.
    pub fn gate(&self) -> Option<(&Name, When)> {
        match &self.state {
            State::Checking { phase, when } | State::Blocked { phase, when, reason: Reason::Guard { .. } } => {
                Some((phase, *when))
            }
            State::Init
            | State::Blocked { .. }
            | State::Running { .. }
            | State::Done
            | State::Failed { .. }
            | State::Cancelled { .. } => None,
        }
    }

    /// The guards that are to be looked at.
    pub fn guards(&self) -> &[Guard] {
        let asked = self.gate().and_then(|(phase, when)| Some((self.plan.phase(phase)?, when)));
        asked.map_or(&[], |(phase, when)| if when == When::Pre { &phase.pre } else { &phase.post })
    }

    /// The last event that the answer of the guard that holds it up knows of.
    pub fn knows(&self) -> Option<Seq> {
        match &self.state {
            State::Blocked { reason: Reason::Guard { at, .. }, .. } => Some(*at),
            _ => None,
        }
    }

    /// From when on an event is a reason to look at the guard that holds it up.
    pub fn rests(&self) -> Option<Lease> {
        match &self.state {
            State::Blocked { reason: Reason::Guard { rest, .. }, .. } => Some(*rest),
            _ => None,
        }
    }

    /// Whether a runner checks its guards. Guards that ask the store alone have no checker: one that is noted belongs to an earlier phase,
    /// and has perhaps died before it could report.
    pub fn is_being_checked(&self) -> bool {
        self.checker.is_some() && !self.guards().iter().all(|guard| guard.wants(&self.context).is_internal())
    }

    /// Whether the guard that holds it up is looked at again so soon that it need not hear of anything before.
    pub fn is_asked_soon(&self) -> bool {
        matches!(&self.state, State::Blocked { reason: Reason::Guard { again, rest, .. }, .. } if again <= rest)
    }

    /// What may change the answer of the guard that holds it up, when something happens to it. Who is looked at, or will be soon,
    /// listens to nothing: the answer will know.
    pub fn listens(&self) -> Vec<Source> {
        let State::Blocked { reason: Reason::Guard { guard, .. }, .. } = &self.state else { return Vec::new() };
        if self.is_being_checked() || self.is_asked_soon() {
            return Vec::new();
        }
        let asked = self.guards().iter().find(|asked| asked.name == *guard);
        asked.map(|asked| asked.sources(&self.context)).unwrap_or_default()
    }
}
