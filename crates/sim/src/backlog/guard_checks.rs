//! The expected results of guards, from the model and from what runners have read outside of the store.

use banksman_core::event::{Kind, Resource};
use banksman_core::guard::{Cmd, Condition, Guard, GuardAction, Predicate};
use banksman_core::pipeline::plan::{Context, Text};
use banksman_core::{Lease, Name, TaskId};

use super::loop_checks::Basis;
use super::model::Holding;
use super::outside::Outside;
use super::pipeline_model::{PipelineModel, PipelineState};
use crate::report::Checker;
use crate::world::World;

/// What the model knows of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Yes,
    No,
    /// The condition cannot be evaluated.
    Unknown,
    /// The runner may know it, but the model does not.
    Unsure,
}

/// The moment for which a condition is evaluated.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// The moment of the observed transaction.
    Transaction(Lease),
    Now(Lease),
}

impl World<'_> {
    /// A pipeline passes its guards: a person wants that, or all of them hold.
    pub(crate) fn check_passed(&mut self, id: &TaskId) {
        if self.call.about == Basis::Unblock {
            return;
        }
        self.check_sample(id);
        let Some(pipeline) = self.model.pipelines.get(id) else { return };
        let holds = |guard: &&Guard| {
            guard.on_failure == GuardAction::Warn || matches!(self.says(guard, pipeline), Known::Yes | Known::Unsure)
        };
        let failing = pipeline.guards().iter().find(|guard| !holds(guard));
        let was_asked = self.call.about == Basis::Guards(id.clone());
        self.verdict.expect(Checker::Guards, was_asked && failing.is_none(), || {
            format!("{id} goes on from {:?}, asked: {was_asked}, and this does not hold: {failing:?}", pipeline.state)
        });
    }

    /// A guard blocks a pipeline: it does not hold, and no guard fails the pipeline.
    pub(crate) fn check_held_up(&mut self, id: &TaskId, guard: &Name) {
        self.check_sample(id);
        let Some(pipeline) = self.model.pipelines.get(id) else { return };
        let named = pipeline.guards().iter().find(|other| other.name == *guard);
        let right = named.is_some_and(|named| {
            holds_up(named, self.says(named, pipeline)) && !pipeline.guards().iter().any(|other| self.fails(other, pipeline))
        });
        self.verdict.expect(Checker::Guards, right, || format!("{id} is held up at {:?} by {named:?}", pipeline.state));
    }

    /// A phase begins: no guard that only asks the store is false, unless a person has waived the guards. The phase's
    /// own locks and slots do not count.
    pub(crate) fn check_begins(&mut self, task: &TaskId) {
        let Some((id, pipeline)) = self.model.pipelines.iter().find(|(_, pipeline)| pipeline.task() == Some(task)) else {
            return;
        };
        let PipelineState::In { at, .. } = pipeline.state else { return };
        let phase = &pipeline.plan.phases[at];
        if pipeline.waived {
            return;
        }
        let is_own = |name: &str| phase.needs.iter().any(|need| need.name().as_str() == name);
        let is_false = |guard: &&Guard| {
            let wants = guard.wants(&pipeline.context);
            let about_own = wants.locks.iter().chain(&wants.semaphores).any(|name| is_own(name));
            let moment = Moment::Transaction(self.call.lease);
            guard.on_failure != GuardAction::Warn
                && !about_own
                && self.known(&guard.condition, &pipeline.context, None, moment) == Known::No
        };
        let failing = phase.pre.iter().find(is_false).cloned();
        let id = id.clone();
        self.verdict
            .expect(Checker::Guards, failing.is_none(), || format!("{task} of {id} begins, and this is false: {failing:?}"));
    }

    /// A guard keeps the task of a phase from beginning: as far as the store shows, it does not hold.
    pub(crate) fn check_refuted(&mut self, id: &TaskId, guard: &Name) {
        self.tally.count("phases that a guard stops at the claim");
        let Some(pipeline) = self.model.pipelines.get(id) else { return };
        let PipelineState::In { at, .. } = pipeline.state else { return };
        let named = pipeline.plan.phases[at].pre.iter().find(|other| other.name == *guard);
        let right = named.is_some_and(|named| {
            self.known(&named.condition, &pipeline.context, None, Moment::Transaction(self.call.lease)) != Known::Yes
        });
        self.verdict.expect(Checker::Guards, right, || format!("{id} is stopped at the claim by {named:?}"));
    }

    /// A phase that a guard kept from beginning continues: a person wants that, or its guards hold.
    pub(crate) fn check_resumed(&mut self, id: &TaskId) {
        if self.model.pipelines.get(id).is_some_and(PipelineModel::is_held_up) {
            self.check_passed(id);
        }
    }

    /// Whether a condition asks about something that is held, so that a release may change it.
    pub(crate) fn asks_about_held(&self, condition: &Condition, pipeline: &PipelineModel) -> bool {
        let is_held = |kind: Kind, name: &Text| {
            text(name, &pipeline.context).is_some_and(|name| self.model.holders(&Resource { kind, name }).next().is_some())
        };
        match condition {
            Condition::All(parts) | Condition::Any(parts) => parts.iter().any(|part| self.asks_about_held(part, pipeline)),
            Condition::Not(part) => self.asks_about_held(part, pipeline),
            Condition::Predicate(Predicate::LockFree { lock } | Predicate::LockHeld { lock, .. }) => is_held(Kind::Lock, lock),
            Condition::Predicate(Predicate::SemaphoreAvailable { semaphore, .. }) => is_held(Kind::Semaphore, semaphore),
            Condition::Predicate(_) => false,
        }
    }

    /// A guard fails a pipeline for good.
    pub(crate) fn check_failed_by_guard(&mut self, id: &TaskId) {
        self.check_sample(id);
        let Some(pipeline) = self.model.pipelines.get(id) else { return };
        let may_be = |guard: &Guard| matches!(self.says(guard, pipeline), Known::No | Known::Unsure);
        let is_so = |guard: &Guard| matches!(guard.on_failure, GuardAction::Fail { .. }) && may_be(guard);
        let right = pipeline.guards().iter().any(is_so);
        self.verdict.expect(Checker::Guards, right, || format!("{id} is failed at {:?}, and no guard says so", pipeline.state));
    }

    fn fails(&self, guard: &Guard, pipeline: &PipelineModel) -> bool {
        matches!(guard.on_failure, GuardAction::Fail { .. }) && self.says(guard, pipeline) == Known::No
    }

    /// The outside inputs were gathered for these guards, in this visit of the phase.
    fn check_sample(&mut self, id: &TaskId) {
        let (Some(pipeline), Basis::Guards(_)) = (self.model.pipelines.get(id), &self.call.about) else { return };
        if !pipeline.guards().iter().any(|guard| asks_outside(&guard.condition)) {
            return;
        }
        let sample = self.call.by.as_ref().and_then(|by| self.samples.get(&(by.clone(), id.clone())));
        let is_fresh = sample.is_some_and(|sample| sample.visit == pipeline.visit);
        self.verdict.expect(Checker::Guards, is_fresh, || {
            format!("the guards of {id} at {:?}, time {}, are answered with {sample:?}", pipeline.state, pipeline.visit)
        });
    }

    /// The result of a guard in the observed transaction.
    fn says(&self, guard: &Guard, pipeline: &PipelineModel) -> Known {
        let id = match &self.call.about {
            Basis::Guards(id) => id,
            _ => return Known::Unsure,
        };
        let sample = self.call.by.as_ref().and_then(|by| self.samples.get(&(by.clone(), id.clone())));
        self.known(&guard.condition, &pipeline.context, sample.map(|sample| &sample.found), Moment::Transaction(self.call.lease))
    }

    /// Whether all guards before which a pipeline waits would pass now, if they were checked.
    pub(crate) fn would_pass(&self, pipeline: &PipelineModel, lease: Lease) -> bool {
        let holds = |guard: &Guard| {
            guard.on_failure == GuardAction::Warn
                || self.known(&guard.condition, &pipeline.context, Some(&self.outside), Moment::Now(lease)) == Known::Yes
        };
        pipeline.guards().iter().all(holds)
    }

    /// Whether a guard before which a pipeline waits would block or fail it now.
    pub(crate) fn is_rightly_held_up(&self, pipeline: &PipelineModel, lease: Lease) -> bool {
        let known = |guard: &Guard| self.known(&guard.condition, &pipeline.context, Some(&self.outside), Moment::Now(lease));
        let blocks = |guard: &Guard| holds_up(guard, known(guard));
        pipeline.guards().iter().any(blocks)
    }

    fn known(&self, condition: &Condition, vars: &Context, found: Option<&Outside>, at: Moment) -> Known {
        let all = |parts: &[Condition]| -> Vec<Known> { parts.iter().map(|part| self.known(part, vars, found, at)).collect() };
        match condition {
            Condition::All(parts) => weigh(&all(parts), [Known::No, Known::Unsure, Known::Unknown], Known::Yes),
            Condition::Any(parts) => weigh(&all(parts), [Known::Yes, Known::Unsure, Known::Unknown], Known::No),
            Condition::Not(part) => opposite(self.known(part, vars, found, at)),
            Condition::Predicate(predicate) => self.known_of(predicate, vars, found, at),
        }
    }

    fn known_of(&self, predicate: &Predicate, vars: &Context, found: Option<&Outside>, at: Moment) -> Known {
        match predicate {
            Predicate::LockFree { lock } => text(lock, vars).map_or(Known::Unknown, |lock| opposite(self.is_locked(&lock, at))),
            Predicate::LockHeld { lock, .. } => text(lock, vars).map_or(Known::Unknown, |lock| self.is_locked(&lock, at)),
            Predicate::SemaphoreAvailable { semaphore, slots } => match text(semaphore, vars) {
                Some(semaphore) => self.has_slots(&semaphore, *slots, at),
                None => Known::Unknown,
            },
            Predicate::FileExists { path: Text::Literal(path) } => plain(found.and_then(|found| found.files.get(path)).copied()),
            Predicate::Command { cmd: Cmd::Run(line), expect_success } => {
                let result = found.and_then(|found| found.commands.get(line)).copied().flatten();
                plain(result.map(|result| result == *expect_success))
            }
            Predicate::PipelineComplete { pipeline: Text::Literal(id) } => {
                let pipeline = TaskId::new(id).ok().and_then(|id| self.model.pipelines.get(&id));
                plain(pipeline.map(|pipeline| pipeline.state == PipelineState::Done))
            }
            // No guard asks that here.
            _ => Known::Unsure,
        }
    }

    fn is_locked(&self, lock: &Name, at: Moment) -> Known {
        let resource = Resource { kind: Kind::Lock, name: lock.clone() };
        let holders: Vec<Known> = self.model.holders(&resource).map(|(_, held)| self.is_held(held, at)).collect();
        weigh(&holders, [Known::Yes, Known::Unsure, Known::Unknown], Known::No)
    }

    /// Whether a grant still counts. The transaction may not have seen that its holder is dead.
    fn is_held(&self, held: &Holding, at: Moment) -> Known {
        let is_dead = !held.processes.is_empty() && !held.processes.iter().any(|process| self.machine.lives(process));
        match (at, held.until) {
            _ if held.offered => Known::Unsure,
            (Moment::Transaction(lease) | Moment::Now(lease), Some(until)) if until < lease => Known::No,
            (Moment::Transaction(lease) | Moment::Now(lease), _) if held.ends.is_some_and(|ends| ends <= lease) => Known::Unsure,
            (Moment::Transaction(_), _) if is_dead => Known::Unsure,
            (Moment::Now(_), _) if is_dead => Known::No,
            (Moment::Transaction(_) | Moment::Now(_), _) => Known::Yes,
        }
    }

    fn has_slots(&self, semaphore: &Name, slots: u32, at: Moment) -> Known {
        let Some(capacity) = self.model.capacity.get(semaphore) else { return Known::Unknown };
        let resource = Resource { kind: Kind::Semaphore, name: semaphore.clone() };
        let of = |wanted: &[Known]| -> u32 {
            let held = self.model.holders(&resource).filter(|(_, held)| wanted.contains(&self.is_held(held, at)));
            held.map(|(_, held)| held.weight).sum()
        };
        let (least, most) = (of(&[Known::Yes]), of(&[Known::Yes, Known::Unsure]));
        match (capacity.saturating_sub(most) >= slots, capacity.saturating_sub(least) >= slots) {
            (true, _) => Known::Yes,
            (false, false) => Known::No,
            (false, true) => Known::Unsure,
        }
    }
}

/// Whether a guard with this result blocks a pipeline. A guard that fails pipelines blocks only while its result is
/// unknown.
fn holds_up(guard: &Guard, known: Known) -> bool {
    match guard.on_failure {
        GuardAction::Block | GuardAction::Retry { .. } => known != Known::Yes,
        GuardAction::Fail { .. } => matches!(known, Known::Unknown | Known::Unsure),
        GuardAction::Warn => false,
    }
}

/// The first of these that occurs, else the last.
fn weigh(parts: &[Known], order: [Known; 3], other: Known) -> Known {
    order.into_iter().find(|known| parts.contains(known)).unwrap_or(other)
}

fn opposite(known: Known) -> Known {
    match known {
        Known::Yes => Known::No,
        Known::No => Known::Yes,
        Known::Unknown | Known::Unsure => known,
    }
}

fn plain(known: Option<bool>) -> Known {
    known.map_or(Known::Unknown, |is_so| if is_so { Known::Yes } else { Known::No })
}

fn text(text: &Text, vars: &Context) -> Option<Name> {
    let text = match text {
        Text::Literal(text) => text.to_string(),
        Text::Var { var } => vars.get(var)?.as_str()?.to_owned(),
    };
    Name::new(&text).ok()
}

/// Whether a condition asks about something outside of the store.
pub(crate) fn asks_outside(condition: &Condition) -> bool {
    match condition {
        Condition::All(parts) | Condition::Any(parts) => parts.iter().any(asks_outside),
        Condition::Not(part) => asks_outside(part),
        Condition::Predicate(predicate) => matches!(predicate, Predicate::FileExists { .. } | Predicate::Command { .. }),
    }
}
