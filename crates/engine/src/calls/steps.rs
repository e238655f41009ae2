//! Shared helpers of the calls: stepping machines inside a transaction, and waking runners.

use banksman_core::backlog::{Backlog, OutboxEntry};
use banksman_core::decision::About;
use banksman_core::event::{DecisionFact, Event, Fact, Resource};
use banksman_core::resource::coordination::{Command, Coordination, Outcome as Held};
use banksman_core::resource::grant::{Ask, GrantRequest, Term};
use banksman_core::task::{self, LandSpec, Need};
use banksman_core::{Decision, DecisionId, Effect, Epoch, HolderId, Now, ProcessId, RunnerId, TaskId, WorkClaim, decision};
use banksman_store::{Tables, Tx};

use crate::calls::landings::{dequeue_work, enqueue_work, leave_author, try_waiting};
use crate::calls::manual::let_go;
use crate::calls::pipelines;

/// Steps a task, if it exists, and carries out the effects. Outbox commands go to `executor`.
pub(crate) fn step_task(tx: &mut Tx, id: &TaskId, input: task::Input, executor: Option<&RunnerId>) -> Option<task::Outcome> {
    step_task_after(tx, id, input, executor, "")
}

/// Like [`step_task`], at the end of a run, with the tail of its output.
pub(crate) fn step_task_after(
    tx: &mut Tx,
    id: &TaskId,
    input: task::Input,
    executor: Option<&RunnerId>,
    tail: &str,
) -> Option<task::Outcome> {
    let task = tx.tables.backlog.tasks.remove(id)?;
    let before = task.state.clone();
    let now = tx.now(Vec::new(), banksman_core::Span::ZERO);
    let to = match &input {
        task::Input::Land(to) => Some(to.clone()),
        _ => task.spec.land.clone(),
    };
    let step = task.step(input, &now);
    let is_same = std::mem::discriminant(&before) == std::mem::discriminant(&step.state.state);
    note_reopened(&before, &step.state.state, tx);
    tx.tables.backlog.tasks.insert(id.clone(), step.state);
    carry_out(tx, step.effects, executor);
    pipelines::follow(id, &before, tail, tx);
    follow_landing(id, &before, to.as_deref(), tx);
    // The decision or the manual claim of a state ends with the state.
    match before {
        task::State::AwaitingDecision { decision } if !is_same => withdraw(tx, &decision),
        task::State::Manual { holder, epoch, .. } if !is_same => let_go(id, &holder, epoch, tx),
        _ => {}
    }
    Some(step.outcome)
}

/// Records that a task was reopened: tasks that were ready at the beginning of the batch may depend on it.
pub(crate) fn note_reopened(before: &task::State, after: &task::State, tx: &mut Tx) {
    let is_over = |state: &task::State| matches!(state, task::State::Done(_));
    tx.changed.reopens |= is_over(before) && !is_over(after);
}

/// Keeps the work of a task in the merge queue exactly as long as the task is landing.
pub(crate) fn follow_landing(id: &TaskId, before: &task::State, to: Option<&LandSpec>, tx: &mut Tx) {
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return };
    let is_landing = |state: &task::State| matches!(state, task::State::Landing { .. });
    match (is_landing(before), is_landing(&task.state), to) {
        (false, true, Some(to)) => enqueue_work(id, to, tx),
        (true, false, _) => dequeue_work(id, tx),
        _ => {}
    }
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return };
    if matches!(task.state, task::State::Done(_) | task::State::Review | task::State::AwaitingDecision { .. }) {
        leave_author(id, tx);
    }
    if tx.tables.backlog.tasks.get(id).is_some_and(|task| task.status().is_over()) {
        try_waiting(id, tx);
    }
}

/// Carries out the effects of a step: stores the decisions, and assigns the outbox commands to a runner.
pub(crate) fn carry_out(tx: &mut Tx, effects: Vec<Effect>, executor: Option<&RunnerId>) {
    for effect in &effects {
        if let Effect::Emit(Event::Decision { id, fact }) = effect {
            match fact {
                DecisionFact::Raised(question) => {
                    let decision = Decision::new(id.clone(), (**question).clone(), tx.wall);
                    tx.tables.backlog.decisions.insert(id.clone(), decision);
                }
                // The caller that stepped the decision stores its new state.
                DecisionFact::Resolved { .. } | DecisionFact::Withdrawn {} => {}
            }
        }
    }
    for (seq, command) in tx.carry_out(effects, false) {
        let executor = match command.run() {
            Some(_) => Some(executor.expect("only a task with a run sends commands, and a run has an owner").clone()),
            None => executor.cloned().or_else(|| any_runner(&tx.tables)),
        };
        tx.tables.backlog.outbox.insert(seq, OutboxEntry::new(seq, command, executor, tx.lease));
    }
}

/// Withdraws a decision whose subject has changed without it.
pub(crate) fn withdraw(tx: &mut Tx, id: &DecisionId) {
    let Some(decision) = tx.tables.backlog.decisions.remove(id) else { return };
    let step = decision.step(decision::Input::Withdraw, &tx.now(Vec::new(), banksman_core::Span::ZERO));
    tx.tables.backlog.decisions.insert(id.clone(), step.state);
    tx.carry_out(step.effects, false);
}

/// Removes outbox commands that are done or pointless, and withdraws the questions about them.
pub(crate) fn drop_commands(tx: &mut Tx, is_over: impl Fn(&OutboxEntry) -> bool) {
    let over: Vec<OutboxEntry> =
        tx.tables.backlog.outbox.extract_if(.., |_, entry| is_over(entry)).map(|(_, entry)| entry).collect();
    for entry in over.iter().filter(|entry| entry.is_dead()) {
        let about = About::OutboxCommand(entry.seq);
        let open = tx.tables.backlog.decisions.values().find(|decision| decision.is_open() && decision.question.about == about);
        if let Some(id) = open.map(|decision| decision.id.clone()) {
            withdraw(tx, &id);
        }
    }
}

/// A runner for outbox commands that any runner can execute. A runner that serves one run only does nothing else.
pub(crate) fn any_runner(tables: &Tables) -> Option<RunnerId> {
    tables.backlog.runners.values().find(|runner| runner.max_runs != Some(0)).map(|runner| runner.id.clone())
}

/// Reassigns the outbox commands that any runner can execute from a removed runner to another. Returns whether there were any.
pub(crate) fn inherit(tables: &mut Tables, from: Option<&RunnerId>, to: Option<&RunnerId>) -> bool {
    let left =
        tables.backlog.outbox.values_mut().filter(|entry| entry.command.run().is_none() && entry.executor.as_ref() == from);
    left.map(|entry| entry.executor = to.cloned()).count() > 0
}

/// How many descendants of a task have not ended.
pub(crate) fn open_children(backlog: &Backlog, id: &TaskId) -> u32 {
    let open = descendants(backlog, id).into_iter().filter(|task| !backlog.tasks[task].status().is_over());
    u32::try_from(open.count()).unwrap_or(u32::MAX)
}

/// All tasks that a task has created, directly or not. The family must be loaded.
pub(crate) fn descendants(backlog: &Backlog, id: &TaskId) -> Vec<TaskId> {
    let mut family = vec![id.clone()];
    let mut at = 0;
    while let Some(parent) = family.get(at).cloned() {
        let children = backlog.tasks.values().filter(|task| task.spec.parent.as_ref() == Some(&parent));
        family.extend(children.map(|task| task.id.clone()));
        at += 1;
    }
    family.split_off(1)
}

/// Acquires a lock or slots for a holder that does not wait.
pub(crate) fn take(need: &Need, holder: HolderId, processes: Vec<ProcessId>) -> Command {
    let weight = need.weight();
    let claim = GrantRequest {
        holder,
        ancestors: Vec::new(),
        weight,
        ttl: None,
        max_hold: None,
        processes,
        metadata: None,
        request: None,
    };
    Command::acquire(need.resource(), Box::new(Ask { term: Term::Open, ..Ask::new(claim) }))
}

/// Several commands that are kept together, or dropped together.
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

    pub(crate) fn keep(self, tx: &mut Tx) {
        tx.tables.coordination = self.coordination;
        wake_watchers(&self.effects, tx);
        let commands = tx.carry_out(self.effects, false);
        debug_assert!(commands.is_empty(), "locks send no commands");
    }
}

/// Records the resources that these effects have freed, and wakes their waiters.
pub(crate) fn wake_watchers(effects: &[Effect], tx: &mut Tx) {
    let freed = |effect: &Effect| {
        let Effect::Emit(Event::Resource { resource, fact }) = effect else { return None };
        match fact {
            Fact::Released(_) | Fact::Reclaimed(_) | Fact::OfferLapsed(_) | Fact::Defined(_) => Some(resource.clone()),
            Fact::Acquired(_) | Fact::Increased(_) => None,
        }
    };
    let freed: Vec<Resource> = effects.iter().filter_map(freed).collect();
    if freed.is_empty() {
        return;
    }
    wake_for(&freed, tx);
}

/// Records that resources were freed, and wakes the claims that wait for one of them, in the order of their tickets.
pub(crate) fn wake_for(freed: &[Resource], tx: &mut Tx) {
    tx.changed.freed.extend(freed.iter().cloned());
    let now = tx.now(Vec::new(), banksman_core::Span::ZERO);
    tx.tables.coordination.give_turns(freed, &now);
    let wants = |claim: &&WorkClaim| freed.iter().any(|resource| claim.wants(resource));
    let claims =
        tx.tables.coordination.claims.values().filter(wants).filter_map(|claim| claim.waits()?.standing.address.as_ref());
    let wakes = claims.map(|address| Effect::Wake(address.clone())).collect();
    tx.carry_out(wakes, false);
}

/// Records a change that runners may have to handle: a task may be ready, or upkeep is due.
pub(crate) fn wake_runners(tx: &mut Tx) {
    tx.changed.duty = true;
    tx.changed.ready_anywhere = tx.changed.ready_anywhere.max(1);
}

pub(crate) fn wake_runner(tx: &mut Tx, id: &RunnerId) {
    if let Some(runner) = tx.tables.backlog.runners.get(id) {
        tx.carry_out(vec![Effect::Wake(runner.address.clone())], false);
    }
}

/// Emits an event of the backlog. Returns its number as an epoch.
pub(crate) fn emit(tx: &mut Tx, event: Event) -> Epoch {
    let epoch = Epoch::from(tx.seq);
    tx.carry_out(vec![Effect::Emit(event)], false);
    epoch
}
