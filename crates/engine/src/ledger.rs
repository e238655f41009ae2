//! What the calls around tasks share: stepping machines inside a transaction, and telling runners of it.

use banksman_core::backlog::Sent;
use banksman_core::claim::{Ask, Claim};
use banksman_core::coordination::{Command, Coordination, Outcome as Held};
use banksman_core::event::{Event, Fact, Resource};
use banksman_core::task::{self, Need};
use banksman_core::{Effect, Epoch, HolderId, Now, ProcessId, RunnerId, TaskId, lock, semaphore};
use banksman_store::{Tables, Turn};

/// Steps a task that is there, and carries out what follows. Errands go to `executor`.
pub(crate) fn step_task(
    tables: &mut Tables,
    turn: &mut Turn,
    id: &TaskId,
    input: task::Input,
    executor: Option<&RunnerId>,
) -> Option<task::Outcome> {
    let task = tables.backlog.tasks.remove(id)?;
    let now = turn.now(Vec::new(), banksman_core::Span::ZERO);
    let step = task.step(input, &now);
    tables.backlog.tasks.insert(id.clone(), step.state);
    for (seq, errand) in turn.carry_out(step.effects, false) {
        let executor = executor.expect("only a task with a run sends errands, and a run has an owner").clone();
        tables.backlog.outbox.insert(seq, Sent { seq, errand, executor });
    }
    Some(step.outcome)
}

/// A lock or slots for somebody who does not wait.
pub(crate) fn take(need: &Need, holder: HolderId, processes: Vec<ProcessId>) -> Command {
    let weight = match need {
        Need::Lock(_) => 1,
        Need::Slots { weight, .. } => *weight,
    };
    let claim =
        Claim { holder, ancestors: Vec::new(), weight, ttl: None, max_hold: None, processes, metadata: None, request: None };
    let ask = Box::new(Ask { claim, fallback_ttl: None, epoch: None, granted_before: None, wait: None });
    match need {
        Need::Lock(name) => Command::Lock(name.clone(), lock::Input::Acquire(ask)),
        Need::Slots { name, .. } => Command::Semaphore(name.clone(), semaphore::Input::Acquire(ask)),
    }
}

/// The same given back.
pub(crate) fn give_back(need: &Need, holder: HolderId, epoch: Epoch) -> Command {
    match need {
        Need::Lock(name) => Command::Lock(name.clone(), lock::Input::Release { holder, epoch }),
        Need::Slots { name, .. } => Command::Semaphore(name.clone(), semaphore::Input::Release { holder, epoch: Some(epoch) }),
    }
}

/// The epoch of a grant, if the answer is one.
pub(crate) fn granted(outcome: &Held) -> Option<Epoch> {
    match outcome {
        Held::Lock(lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. })
        | Held::Semaphore(semaphore::Outcome::Acquired(grant)) => Some(grant.epoch),
        _ => None,
    }
}

/// Several commands that are all carried out, or none of them.
pub(crate) struct Draft {
    coordination: Coordination,
    effects: Vec<Effect>,
    now: Now,
}

impl Draft {
    pub(crate) fn new(coordination: &Coordination, now: Now) -> Draft {
        Draft { coordination: coordination.clone(), effects: Vec::new(), now }
    }

    pub(crate) fn handle(&mut self, command: Command) -> Held {
        let step = std::mem::take(&mut self.coordination).handle(command, &self.now);
        self.coordination = step.state;
        let events = step.effects.iter().filter(|effect| matches!(effect, Effect::Emit(_))).count();
        self.now.seq.0 += i64::try_from(events).expect("a step has few events");
        self.effects.extend(step.effects);
        step.outcome
    }

    /// What would be held.
    pub(crate) fn coordination(self) -> Coordination {
        self.coordination
    }

    /// Makes it count.
    pub(crate) fn keep(self, tables: &mut Tables, turn: &mut Turn) {
        tables.coordination = self.coordination;
        wake_watchers(tables, &self.effects, turn);
        let errands = turn.carry_out(self.effects, false);
        debug_assert!(errands.is_empty(), "locks send no errands");
    }
}

/// Wakes the runners that wait for what these effects have freed.
pub(crate) fn wake_watchers(tables: &Tables, effects: &[Effect], turn: &mut Turn) {
    let freed = |effect: &Effect| match effect {
        Effect::Emit(Event::Resource { resource, fact }) => match fact {
            Fact::Released(_) | Fact::Reclaimed(_) | Fact::OfferLapsed(_) | Fact::Defined(_) => Some(resource.clone()),
            Fact::Acquired(_) | Fact::Increased(_) => None,
        },
        Effect::Emit(Event::Task { .. } | Event::Section { .. } | Event::Import { .. } | Event::Custom { .. })
        | Effect::Wake(_)
        | Effect::Send(_) => None,
    };
    let freed: Vec<Resource> = effects.iter().filter_map(freed).collect();
    if freed.is_empty() {
        return;
    }
    let watching = tables.watchers.iter().filter(|watcher| watcher.watching.iter().any(|watched| freed.contains(watched)));
    let wakes = watching.map(|watcher| Effect::Wake(watcher.address.clone())).collect();
    turn.carry_out(wakes, false);
}

/// Wakes all runners but one: there may be something to do for them.
pub(crate) fn wake_runners(tables: &Tables, turn: &mut Turn, but: Option<&RunnerId>) {
    let others = tables.backlog.runners.values().filter(|runner| Some(&runner.id) != but);
    let wakes = others.map(|runner| Effect::Wake(runner.address.clone())).collect();
    turn.carry_out(wakes, false);
}

/// Wakes one runner.
pub(crate) fn wake_runner(tables: &Tables, turn: &mut Turn, id: &RunnerId) {
    if let Some(runner) = tables.backlog.runners.get(id) {
        turn.carry_out(vec![Effect::Wake(runner.address.clone())], false);
    }
}

/// Writes an event of the backlog.
pub(crate) fn emit(turn: &mut Turn, event: Event) -> Epoch {
    let epoch = Epoch::from(turn.seq);
    turn.carry_out(vec![Effect::Emit(event)], false);
    epoch
}
