//! Queries about a pipeline: where it is, what it waits for, and which events it listens to.

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

    /// Whether a variable was given at its start, so that no phase can change it.
    pub fn is_given(&self, var: &str) -> bool {
        // One without a default was given, also where the names were not recorded.
        self.given.contains(var) || self.plan.vars.get(var) == Some(&None)
    }

    /// The failure that has led to the current attempt at its phase, if the previous attempt or another phase has failed.
    pub fn reason(&self) -> Option<&str> {
        let State::Running { approach, .. } = &self.state else { return None };
        // Each approach has had a task of its own.
        self.last_failure.as_ref().filter(|last| last.tasks + 1 + approach == self.tasks).map(|last| &*last.error)
    }

    /// The task of its phase.
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

    /// Whether it is over. A failed pipeline may be retried.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Failed { .. } | State::Cancelled { .. })
    }

    /// Whether the filter selects it and it runs: it has begun a phase, and is not over. A pipeline that waits before a
    /// phase for the others of the same filter does not count, or two of them would wait for each other.
    pub fn is_running_as(&self, filter: &PipelineFilter) -> bool {
        let matches = |wanted: &Option<Text>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted.literal() == Some(value));
        let waits = matches!(self.gate(), Some((_, When::Pre)));
        let asks = || self.guards().iter().any(|guard| guard.wants(&self.context).running.contains(filter));
        let is_inside = |phase: &Name| self.phase() == Some(phase) && !waits;
        !self.is_over()
            && self.tasks > 0
            && matches(&filter.name, self.plan.name.as_str())
            && matches(&filter.runbook, &self.plan.runbook)
            && filter.phase.as_ref().is_none_or(is_inside)
            && !(waits && asks())
    }

    /// The resources that it needs under its own name in its current state: the locks of the plan once one of its
    /// phases keeps them, and until it leaves a phase with guards after it, everything that the phase needs.
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

    /// The word for its state.
    pub fn word(&self) -> &'static str {
        (&self.state).into()
    }

    /// The phase whose guards are to be checked, and the side that they are on.
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

    /// The guards that are to be checked.
    pub fn guards(&self) -> &[Guard] {
        let asked = self.gate().and_then(|(phase, when)| Some((self.plan.phase(phase)?, when)));
        asked.map_or(&[], |(phase, when)| if when == When::Pre { &phase.pre } else { &phase.post })
    }

    /// The last event that the result of the blocking guard takes into account.
    pub fn knows(&self) -> Option<Seq> {
        match &self.state {
            State::Blocked { reason: Reason::Guard { at, .. }, .. } => Some(*at),
            _ => None,
        }
    }

    /// From when on an event causes a check of the blocking guard.
    pub fn rests(&self) -> Option<Lease> {
        match &self.state {
            State::Blocked { reason: Reason::Guard { rest, .. }, .. } => Some(*rest),
            _ => None,
        }
    }

    /// Whether a runner checks its guards. Guards that need the store alone have no checker: a recorded one belongs to
    /// an earlier phase, and may have died before it could report.
    pub fn is_being_checked(&self) -> bool {
        self.checker.is_some() && !self.guards().iter().all(|guard| guard.wants(&self.context).is_internal())
    }

    /// Whether the blocking guard is checked again so soon that it need not listen to events before.
    pub fn is_asked_soon(&self) -> bool {
        matches!(&self.state, State::Blocked { reason: Reason::Guard { again, rest, .. }, .. } if again <= rest)
    }

    /// The sources whose events may change the result of the blocking guard. There are none while it is being checked,
    /// or will be soon: that result will take the events into account.
    pub fn listens(&self) -> Vec<Source> {
        let State::Blocked { reason: Reason::Guard { guard, .. }, .. } = &self.state else { return Vec::new() };
        if self.is_being_checked() || self.is_asked_soon() {
            return Vec::new();
        }
        let asked = self.guards().iter().find(|asked| asked.name == *guard);
        asked.map(|asked| asked.sources(&self.context)).unwrap_or_default()
    }
}
