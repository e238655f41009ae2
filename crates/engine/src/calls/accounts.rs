//! The limits of accounts: the choice of the agent for a run, and the limits that its end or its first answer reports.

use banksman_core::agent::limit::{self, AccountLimit, BUDGET, Input, LOGIN, Outcome, Scope};
use banksman_core::agent::spend::{Day, DaySpend};
use banksman_core::agent::{AgentChoice, AgentEnd, AgentVerdict, RunAgent};
use banksman_core::backlog::{Run, RunEndRecord};
use banksman_core::event::Resource;
use banksman_core::task::Work as What;
use banksman_core::{Epoch, Name, RunId, Task};
use banksman_store::{Key, Tx, parked_page};

/// A request about the limits of accounts.
#[derive(Debug, Clone)]
pub enum AccountRequest {
    /// Report that the model has answered a run.
    Answered { run: RunId, owner_epoch: Epoch },
    /// Return the tasks that wait for a limit which has expired to their lanes.
    Return,
    /// Let agents start although the budget of the day was spent: the budget has changed since.
    LiftBudget,
    /// Try the limits of an account now, before they expire.
    Retry { account: Name },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountOutcome {
    Done,
    /// The limits of the account that the next run tries.
    Retried(Vec<AccountLimit>),
    /// The run has ended, or has another owner.
    Late,
}

impl AccountRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        let run = match self {
            AccountRequest::Answered { run, .. } => Some(Key::Run(run.clone())),
            AccountRequest::Return | AccountRequest::LiftBudget | AccountRequest::Retry { .. } => None,
        };
        run.into_iter().chain([Key::AccountLimits, Key::Idle]).collect()
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> AccountOutcome {
        match self {
            AccountRequest::Answered { run, owner_epoch } => {
                let is_own = |row: &&Run| row.is_live() && row.owner_epoch == *owner_epoch;
                if tx.tables.backlog.runs.get(run).filter(is_own).is_none() {
                    return AccountOutcome::Late;
                }
                step_all(tx, |_| true, &Input::Answer { run: run.clone() });
                AccountOutcome::Done
            }
            AccountRequest::Return => AccountOutcome::Done,
            AccountRequest::LiftBudget => {
                step_all(tx, |limit| limit.scope.account.is_none(), &Input::Retry);
                AccountOutcome::Done
            }
            AccountRequest::Retry { account } => {
                step_all(tx, |limit| limit.scope.account.as_ref() == Some(account), &Input::Retry);
                let of_account = |limit: &&AccountLimit| limit.scope.account.as_ref() == Some(account);
                AccountOutcome::Retried(tx.tables.backlog.account_limits.values().filter(of_account).cloned().collect())
            }
        }
    }
}

/// Chooses the agent for a run. The run tries the expired limits of its account.
pub(crate) fn start(task: &Task, run: &RunId, tx: &mut Tx) -> Option<RunAgent> {
    let Some(What::Agent(work)) = &task.spec.work else { return None };
    let now = tx.now(Vec::new(), Default::default());
    let choice = limit::choose(work, tx.tables.backlog.account_limits.values(), &now).ok()?.clone();
    let outcomes = step_all(tx, |limit| limit.scope.covers(&choice), &Input::Start { run: run.clone() });
    Some(RunAgent { agent: choice.agent, probes: outcomes.contains(&Outcome::Probing) })
}

/// Records the spending and the limits that the end of a run reports for the account of its agent.
pub(crate) fn note_end(task: &Task, run: &Run, ending: &RunEndRecord, tx: &mut Tx) {
    let Some(What::Agent(work)) = &task.spec.work else { return };
    let Some(choice) = work.choice(run.agent.as_ref().map(|agent| &agent.agent)) else { return };
    let end = ending.agent.as_deref();
    end.into_iter().for_each(|end| note_spend(end, ending, tx));
    let reached = end.and_then(|end| match &end.verdict {
        AgentVerdict::Quota(limit) => Some((limit.kind.clone(), limit.model.clone(), limit.resets)),
        AgentVerdict::Auth => Some((LOGIN.into(), None, None)),
        _ => None,
    });
    if let Some((kind, model, resets)) = reached {
        let unnamed = model.is_some() && choice.model.is_none();
        let scope = Scope { account: Some(choice.account.clone()), kind, model, unnamed };
        let text = end.map(|end| end.text.clone()).unwrap_or_default();
        let (run, agent) = (Some(run.id.clone()), Some(choice.agent.clone()));
        reach(scope, Input::Reach { run, agent, resets, text, unnamed }, tx);
    } else if end.is_some_and(|end| end.is_answered()) {
        step_all(tx, |_| true, &Input::Answer { run: run.id.clone() });
    }
    // The run may have been stopped by another limit than the one that it tried.
    step_all(tx, |_| true, &Input::End { run: run.id.clone() });
}

/// Adds the usage and the cost of a run to its day. When the paid amount reaches the budget, no agent starts until the day ends.
fn note_spend(end: &AgentEnd, ending: &RunEndRecord, tx: &mut Tx) {
    let Day { date: day, ends } = ending.day();
    let key = (day, end.agent.clone());
    tx.tables.backlog.spend.entry(key).or_insert_with(|| DaySpend::new(day, end.agent.clone())).add(end);
    let paid: u64 = tx.tables.backlog.spend.values().filter(|spend| spend.day == day).map(|spend| spend.paid_micros).sum();
    if let Some(budget) = ending.budget_micros.filter(|budget| paid >= *budget && end.cost_micros.is_some()) {
        let dollars = |micros: u64| format!("${}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000);
        let text = format!("{} of {}", dollars(paid), dollars(budget)).into();
        let resets = Some(ends);
        reach(budget_scope(), Input::Reach { run: None, agent: None, resets, text, unnamed: false }, tx);
    }
}

fn budget_scope() -> Scope {
    Scope { account: None, kind: BUDGET.into(), model: None, unnamed: false }
}

/// Records that a limit was reached, and notifies the runner on duty of its expiry.
pub(crate) fn reach(scope: Scope, input: Input, tx: &mut Tx) {
    let now = tx.now(Vec::new(), Default::default());
    let name = scope.resource_name();
    let row = tx.tables.backlog.account_limits.entry(name.clone()).or_insert_with(|| AccountLimit::new(scope, &now));
    debug_assert_eq!(row.name, name);
    step_all(tx, |limit| limit.name == name, &input);
    tx.changed.duty = true;
}

/// Steps the matching limits, and returns their outcomes.
fn step_all(tx: &mut Tx, is_meant: impl Fn(&AccountLimit) -> bool, input: &Input) -> Vec<Outcome> {
    let names: Vec<Name> =
        tx.tables.backlog.account_limits.values().filter(|limit| is_meant(limit)).map(|limit| limit.name.clone()).collect();
    let mut outcomes = Vec::with_capacity(names.len());
    for name in names {
        let Some(limit) = tx.tables.backlog.account_limits.remove(&name) else { continue };
        let step = limit.step(input.clone(), &tx.now(Vec::new(), Default::default()));
        #[cfg(debug_assertions)]
        step.state.check();
        // The runner on duty returns the next task if no other runner does.
        tx.changed.duty |= step.outcome == Outcome::Due;
        tx.tables.backlog.account_limits.insert(name, step.state);
        tx.carry_out(step.effects, false);
        outcomes.push(step.outcome);
    }
    outcomes
}

/// The number of tasks waiting for a limit that may return to their lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    None,
    /// The task that tries the limit.
    One,
    All,
}

/// How many of the tasks that wait for a limit may return. A limit without a row is over.
pub(crate) fn room(resource: &Resource, tx: &Tx) -> Room {
    let now = tx.now(Vec::new(), Default::default());
    match tx.tables.backlog.account_limits.get(&resource.name) {
        None => Room::All,
        Some(limit) if limit.admits_all(&now) => Room::All,
        Some(limit) if limit.admits(&now) => Room::One,
        Some(_) => Room::None,
    }
}

/// Removes the limits that are over, once no task waits for them. The transaction has loaded all tasks that wait for a limit, or a full page.
pub(crate) fn remove_open(tx: &mut Tx) {
    let Tx { tables, changed, .. } = tx;
    let waits = |name: &Name| {
        let is_meant = |resource: &Resource| resource.name == *name;
        let is_page_full = tables.parked_on.iter().any(|(on, tasks)| is_meant(on) && tasks.len() >= parked_page(on) as usize);
        is_page_full || changed.parked.values().flatten().any(is_meant)
    };
    tables.backlog.account_limits.retain(|name, limit| limit.state != limit::State::Open || waits(name));
}

/// Whether a limit covers one of the agents of a task.
pub(crate) fn is_concerned(task: &Task, limit: &AccountLimit) -> bool {
    let Some(What::Agent(work)) = &task.spec.work else { return false };
    work.agents.iter().any(|choice: &AgentChoice| limit.scope.covers(choice))
}
