//! What goes on around runs: rests that are over, errands that were tried, and the moment when nothing is left to do.

use std::collections::BTreeMap;

use banksman_core::backlog::{ERRAND_ATTEMPTS, Run};
use banksman_core::event::{Event, Finished};
use banksman_core::resource::lock;
use banksman_core::{Effect, Errand, Notice, NoticeKind, RunnerId, Seq, Status, TaskId, decision, task};
use banksman_store::{Tables, Turn};

use crate::ledger::{carry_out, drop_errands, step_task, wake_runners};
use crate::manual::end_if_over;
use crate::request::Seen;
use crate::runs::RunOutcome;

pub(crate) fn stepped(id: &TaskId, input: task::Input, tables: &mut Tables, turn: &mut Turn) -> RunOutcome {
    let before = turn.seq;
    let Some(outcome) = step_task(tables, turn, id, input, None) else { return RunOutcome::Late };
    if turn.seq != before {
        wake_runners(tables, turn, None);
    }
    RunOutcome::Stepped(outcome, Box::new(tables.backlog.tasks[id].clone()))
}

/// Makes a task ready if its rest is over, or if who worked on it has lost its lock.
pub(crate) fn ripen(id: &TaskId, seen: &Seen, tables: &mut Tables, turn: &mut Turn) {
    let Some(task) = tables.backlog.tasks.get(id) else { return };
    let input = match &task.state {
        task::State::Resting { .. } => task::Input::Ripen,
        task::State::ByHand { holder, epoch, .. } => {
            let (holder, epoch) = (holder.clone(), *epoch);
            end_if_over(id, &seen.now(turn), tables, turn);
            match tables.coordination.locks.get(&id.lock()).map(|lock| &lock.state) {
                Some(lock::State::Held(grant)) if grant.epoch == epoch => {
                    task::Input::Take { holder, epoch, until: grant.deadline() }
                }
                Some(_) | None => return,
            }
        }
        _ => return,
    };
    step_task(tables, turn, id, input, None);
}

/// People are told once that there is nothing left to do, after something was done.
pub(crate) fn rest(
    runner: &RunnerId,
    counts: &BTreeMap<Status, u64>,
    dead: u64,
    tables: &mut Tables,
    turn: &mut Turn,
) -> RunOutcome {
    if tables.backlog.runs.values().any(Run::is_live) || !tables.backlog.finish.is_news() {
        return RunOutcome::Late;
    }
    tables.backlog.finish.told = turn.seq;
    let words: Vec<String> = counts.iter().map(|(status, number)| format!("{number} {status}")).collect();
    let tasks = (!words.is_empty()).then(|| format!("Tasks: {}.", words.join(", ")));
    let items = (dead > 0).then(|| format!("Items: {dead} dead."));
    let said: Vec<String> = tasks.into_iter().chain(items).collect();
    let notice =
        Notice { kind: NoticeKind::BacklogFinished, subject: "nothing is left to do".into(), text: said.join(" ").into() };
    let effects = vec![Effect::Emit(Event::Finished(Finished(counts.clone()))), Effect::Send(Errand::Notify(Box::new(notice)))];
    carry_out(tables, turn, effects, Some(runner));
    RunOutcome::Done
}

/// An errand was done, or tried in vain: it is tried again later, and in the end a person is asked.
pub(crate) fn tried(
    runner: &RunnerId,
    seq: Seq,
    error: Option<&str>,
    is_final: bool,
    tables: &mut Tables,
    turn: &mut Turn,
) -> RunOutcome {
    let sent = tables.backlog.outbox.get_mut(&seq).filter(|sent| sent.executor.as_ref() == Some(runner));
    let Some(sent) = sent else { return RunOutcome::Late };
    let Some(error) = error else {
        drop_errands(tables, turn, |sent| sent.seq == seq);
        return RunOutcome::Done;
    };
    if sent.is_dead() {
        return RunOutcome::Late;
    }
    sent.failed(turn.lease);
    let attempts = sent.attempts;
    if is_final {
        sent.attempts = ERRAND_ATTEMPTS;
    }
    if sent.is_dead() {
        let sent = sent.clone();
        let now = turn.now(Vec::new(), Default::default());
        let step = decision::ask_about(seq, &sent.errand, attempts, error, &now);
        carry_out(tables, turn, step.effects, Some(runner));
    }
    RunOutcome::Done
}
