//! The end of a claim: by its holder, by time, by force, or with the run that made it.

use banksman_core::backlog::LostClaim;
use banksman_core::event::Resource;
use banksman_core::resource::coordination::Command;
use banksman_core::resource::lock;
use banksman_core::resource::work_claim::{Input, WorkClaim};
use banksman_core::task::{self, State, Verdict};
use banksman_core::{Epoch, HolderId, Name, Now, Span, Task, TaskId};
use banksman_store::{Tables, Tx};

use super::{adopt_claim, locked_by, renew, unmet, work};
use crate::calls::steps::{Draft, step_task, wake_runners};
use crate::calls::tasks::{self, TaskOutcome};

/// Ends a task that has no run, or reports the result of its run. A caller that has not taken the task ends it at once.
pub(crate) fn conclude(
    id: &TaskId,
    by: Option<&HolderId>,
    epoch: Option<Epoch>,
    anyway: bool,
    verdict: &Verdict,
    tx: &mut Tx,
) -> TaskOutcome {
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return TaskOutcome::Unknown };
    if task.live().is_some() {
        return tasks::stepped(id, task::Input::Conclude { epoch, verdict: verdict.clone() }, tx);
    }
    if let Some(refusal) = not_the_holder(task, by, epoch, tx) {
        return refusal;
    }
    let is_open = !matches!(task.state, State::Manual { .. } | State::Done(_));
    let unmet = unmet(task, &tx.tables);
    if is_open && !anyway && !unmet.is_empty() && matches!(verdict, Verdict::Done { .. } | Verdict::NoChange { .. }) {
        return TaskOutcome::DependsOn(unmet);
    }
    if let Some(refusal) = unheld(id, by, epoch, &mut tx.tables).or_else(|| lost(id, by, tx)) {
        return refusal;
    }
    tasks::stepped(id, task::Input::Conclude { epoch: None, verdict: verdict.clone() }, tx)
}

/// Releases a claim without a verdict about the task.
pub(crate) fn release(id: &TaskId, by: Option<&HolderId>, epoch: Option<Epoch>, tx: &mut Tx) -> TaskOutcome {
    match refusal(id, by, epoch, tx) {
        Some(refusal) => refusal,
        None => tasks::stepped(id, task::Input::Return, tx),
    }
}

/// Why the caller may not end the claim on a task.
pub(crate) fn refusal(id: &TaskId, by: Option<&HolderId>, epoch: Option<Epoch>, tx: &mut Tx) -> Option<TaskOutcome> {
    let task = tx.tables.backlog.tasks.get(id)?;
    let refusal = not_the_holder(task, by, epoch, tx).or_else(|| unheld(id, by, epoch, &mut tx.tables));
    refusal.or_else(|| lost(id, by, tx))
}

/// Why the caller is not the holder of a claimed task: compared by the epoch if there is one, otherwise by name.
///
/// A caller whose own claim is over gets that answer for as long as another holder has the task: it must not be invited to act
/// for the other holder.
pub(super) fn not_the_holder(task: &Task, by: Option<&HolderId>, epoch: Option<Epoch>, tx: &Tx) -> Option<TaskOutcome> {
    let State::Manual { holder, epoch: current, .. } = &task.state else { return None };
    if epoch == Some(*current) || (epoch.is_none() && by == Some(holder)) {
        return None;
    }
    let lost = by.filter(|by| *by != holder).and_then(|by| tx.tables.backlog.lost_claims.get(&(task.id.clone(), by.clone())));
    if let Some(lost) = lost.filter(|lost| epoch.is_none_or(|epoch| epoch == lost.epoch)) {
        let reason = format!("{}; {holder} has taken the task since", lost.reason).into();
        return Some(TaskOutcome::Lost(LostClaim { reason, ..lost.clone() }));
    }
    let claimed_by = locked_by(task, None, tx)?;
    Some(match epoch {
        Some(epoch) => TaskOutcome::NotTheClaim { epoch, claimed_by },
        None => TaskOutcome::Locked(claimed_by),
    })
}

/// Why the caller is refused on an unclaimed task: its claim is over. This is reported once.
pub(super) fn unheld(id: &TaskId, by: Option<&HolderId>, epoch: Option<Epoch>, tables: &mut Tables) -> Option<TaskOutcome> {
    let task = tables.backlog.tasks.get(id)?;
    if matches!(task.state, State::Manual { .. }) {
        return None;
    }
    // The epoch of the live run is not stale: only no claim has it.
    let is_stale = epoch.is_some() && task.live().map(|live| live.epoch) != epoch;
    let lost = by.and_then(|by| tables.backlog.lost_claims.remove(&(id.clone(), by.clone())));
    let lost = lost.filter(|lost| epoch.is_none_or(|epoch| epoch == lost.epoch));
    lost.map(TaskOutcome::Lost).or_else(|| is_stale.then_some(TaskOutcome::Fenced))
}

/// A claim that has lost a part is over, also for its holder: the loss replaces the answer.
fn lost(id: &TaskId, by: Option<&HolderId>, tx: &mut Tx) -> Option<TaskOutcome> {
    let claim = tx.tables.coordination.claim_of(id)?.clone();
    let resource = tx.tables.coordination.lost_part(&claim)?;
    let lost = lose(id, &format!("{resource} was lost"), tx)?;
    by.into_iter().for_each(|by| drop(tx.tables.backlog.lost_claims.remove(&(id.clone(), by.clone()))));
    Some(TaskOutcome::Lost(lost))
}

/// Frees the resources of a claim whose holder no longer works on the task. [`Key::Manual`] must be loaded.
pub(crate) fn let_go(id: &TaskId, holder: &HolderId, epoch: Epoch, tx: &mut Tx) {
    let ticket = match tx.tables.coordination.claim_of(id) {
        Some(claim) => claim.ticket,
        None => adopt_claim(id, holder, epoch, tx),
    };
    work(Input::End { ticket }, &tx.now(Vec::new(), Span::ZERO), tx);
}

/// Ends a claim against the will of its holder, whose next call reports it.
pub(super) fn lose(id: &TaskId, reason: &str, tx: &mut Tx) -> Option<LostClaim> {
    let State::Manual { holder, epoch, .. } = tx.tables.backlog.tasks.get(id)?.state.clone() else { return None };
    let lost = LostClaim { task: id.clone(), holder: holder.clone(), epoch, reason: reason.into(), at: tx.wall };
    tx.tables.backlog.lost_claims.insert((id.clone(), holder), lost.clone());
    step_task(tx, id, task::Input::Return, None);
    wake_runners(tx);
    Some(lost)
}

/// Ends the claim on a task if it has expired or its lock has another holder.
pub(crate) fn end_if_over(id: &TaskId, now: &Now, tx: &mut Tx) {
    let Some(State::Manual { epoch, .. }) = tx.tables.backlog.tasks.get(id).map(|task| &task.state) else { return };
    let lock = tx.tables.coordination.locks.get(&id.lock());
    let reason = match lock.map(|lock| &lock.state) {
        Some(lock::State::Held(grant)) if grant.epoch == *epoch => grant.over(now).map(|reason| format!("it is {reason}")),
        Some(lock::State::Held(_) | lock::State::Free) => Some("it was taken away".into()),
        // The lock of a claim always has a row, so this transaction has not loaded it.
        None => None,
    };
    let Some(reason) = reason else { return };
    let parts = tx.tables.coordination.claim_of(id).map(|claim| claim.parts.clone()).unwrap_or_default();
    let mut draft = Draft::new(&tx.tables.coordination, Now { seq: tx.seq, ticket: tx.ticket, ..now.clone() });
    for part in parts.into_iter().filter(|part| !part.resource.name.is_section()) {
        draft.handle(Command::reap(part.resource));
    }
    draft.keep(tx);
    lose(id, &reason, tx);
}

/// Updates the claim of a task after a request about its lock: a holder that lost the lock no longer works on the task, and a
/// renewal of the lock renews the complete claim.
pub(crate) fn follow_lock(name: &Name, is_own: bool, is_renewed: bool, tx: &mut Tx) {
    let Some(id) = name.task() else { return };
    let Some(State::Manual { epoch, .. }) = tx.tables.backlog.tasks.get(&id).map(|task| task.state.clone()) else { return };
    let is_held = match tx.tables.coordination.locks.get(name).map(|lock| &lock.state) {
        Some(lock::State::Held(grant)) => grant.epoch == epoch,
        Some(lock::State::Free) | None => false,
    };
    if is_held && is_renewed {
        renew(&id, None, Some(epoch), tx);
    } else if !is_held && is_own {
        step_task(tx, &id, task::Input::Return, None);
        wake_runners(tx);
    } else if !is_held {
        end_if_over(&id, &tx.now(Vec::new(), Span::ZERO), tx);
    }
}

/// Ends the claims that a run has made, because the run has ended. [`Key::ClaimsBy`] must be loaded.
pub(crate) fn end_claims(holder: &HolderId, tx: &mut Tx) {
    let own = tx.tables.coordination.claims.values().filter(|claim| claim.holder == *holder && claim.waits().is_none());
    let own: Vec<TaskId> = own.filter_map(|claim| claim.task.clone()).collect();
    for id in own {
        step_task(tx, &id, task::Input::Return, None);
    }
}

/// Ends the claims that have lost this resource. [`Key::ClaimsOn`] must be loaded.
pub(crate) fn end_broken(resource: &Resource, now: &Now, tx: &mut Tx) {
    let is_broken = |claim: &&WorkClaim| claim.waits().is_none() && tx.tables.coordination.lost_part(claim).is_some();
    let broken = tx.tables.coordination.claims.values().filter(|claim| claim.wants(resource)).filter(is_broken);
    let broken: Vec<TaskId> = broken.filter_map(|claim| claim.task.clone()).collect();
    for id in broken {
        // A claim that has expired ends for that reason.
        end_if_over(&id, now, tx);
        lose(&id, &format!("{resource} was taken away"), tx);
    }
}
