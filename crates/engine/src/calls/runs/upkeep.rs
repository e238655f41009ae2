//! The upkeep around runs: expired backoffs, the results of outbox commands, and the moment when nothing is left to do.

use std::collections::BTreeMap;

use banksman_core::backlog::{COMMAND_ATTEMPTS, Run};
use banksman_core::event::{Event, Finished};
use banksman_core::resource::lock;
use banksman_core::{Effect, Notice, NoticeKind, OutboxCommand, RunnerId, Seq, Status, TaskId, decision, task};
use banksman_store::Tx;

use crate::calls::manual::end_if_over;
use crate::calls::runs::RunOutcome;
use crate::calls::steps::{carry_out, drop_commands, step_task, wake_runners};
use crate::request::Seen;
use crate::wakeups::note_ready;

pub(crate) fn stepped(id: &TaskId, input: task::Input, tx: &mut Tx) -> RunOutcome {
    let before = tx.seq;
    let Some(outcome) = step_task(tx, id, input, None) else { return RunOutcome::Late };
    if tx.seq != before {
        wake_runners(tx);
    }
    RunOutcome::Stepped(outcome, Box::new(tx.tables.backlog.tasks[id].clone()))
}

/// Makes a task ready if its backoff is over, or if the holder that worked on it has lost its lock.
pub(crate) fn make_ready(id: &TaskId, seen: &Seen, tx: &mut Tx) {
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return };
    let input = match &task.state {
        task::State::Backoff { .. } => task::Input::MakeReady,
        task::State::Manual { holder, epoch, .. } => {
            let (holder, epoch) = (holder.clone(), *epoch);
            end_if_over(id, &seen.now(tx), tx);
            match tx.tables.coordination.locks.get(&id.lock()).map(|lock| &lock.state) {
                Some(lock::State::Held(grant)) if grant.epoch == epoch => {
                    task::Input::Take { holder, epoch, until: grant.deadline() }
                }
                Some(_) | None => return,
            }
        }
        _ => return,
    };
    step_task(tx, id, input, None);
    note_ready(id, tx);
    tx.changed.takeable.extend(tx.changed.ready.get(id).cloned());
}

/// Notifies people, once after the last run, that nothing is left to do.
pub(crate) fn rest(runner: &RunnerId, counts: &BTreeMap<Status, u64>, dead: u64, tx: &mut Tx) -> RunOutcome {
    if tx.tables.backlog.runs.values().any(Run::is_live) || !tx.tables.backlog.totals.has_run_since() {
        return RunOutcome::Late;
    }
    tx.tables.backlog.totals.finished_at = tx.seq;
    let words: Vec<String> = counts.iter().map(|(status, number)| format!("{number} {status}")).collect();
    let tasks = (!words.is_empty()).then(|| format!("Tasks: {}.", words.join(", ")));
    let items = (dead > 0).then(|| format!("Items: {dead} dead."));
    let said: Vec<String> = tasks.into_iter().chain(items).collect();
    let notice =
        Notice { kind: NoticeKind::BacklogFinished, subject: "nothing is left to do".into(), text: said.join(" ").into() };
    let effects =
        vec![Effect::Emit(Event::Finished(Finished(counts.clone()))), Effect::Send(OutboxCommand::Notify(Box::new(notice)))];
    carry_out(tx, effects, Some(runner));
    RunOutcome::Done
}

/// Records an attempt at an outbox command: a failed one is retried later, and in the end a person is asked.
pub(crate) fn tried(runner: &RunnerId, seq: Seq, error: Option<&str>, is_final: bool, tx: &mut Tx) -> RunOutcome {
    let entry = tx.tables.backlog.outbox.get_mut(&seq).filter(|entry| entry.executor.as_ref() == Some(runner));
    let Some(entry) = entry else { return RunOutcome::Late };
    let Some(error) = error else {
        drop_commands(tx, |entry| entry.seq == seq);
        return RunOutcome::Done;
    };
    if entry.is_dead() {
        return RunOutcome::Late;
    }
    entry.failed(tx.lease);
    let attempts = entry.attempts;
    if is_final {
        entry.attempts = COMMAND_ATTEMPTS;
    }
    if entry.is_dead() {
        let entry = entry.clone();
        let now = tx.now(Vec::new(), Default::default());
        let step = decision::ask_about(seq, &entry.command, attempts, error, &now);
        carry_out(tx, step.effects, Some(runner));
    }
    RunOutcome::Done
}
