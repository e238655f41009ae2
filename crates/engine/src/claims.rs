//! Claiming: a task is taken with all that it needs, or not at all.

use banksman_core::backlog::{Backlog, Hold, Run};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::lock;
use banksman_core::task::admission::{Admission, Reason};
use banksman_core::task::{self, Need};
use banksman_core::{Name, Now, Pipeline, RunId, RunnerId, SectionId, Task};
use banksman_store::Tx;

use crate::facts;
use crate::guards::check_at_claim;
use crate::ledger::{Draft, grant_of, granted, step_task, take};
use crate::request::Seen;
use crate::runs::{Candidate, RunOutcome, Work};
use crate::sections;

pub(crate) fn claim(runner: &RunnerId, room: usize, candidates: &[Candidate], seen: &Seen, tx: &mut Tx) -> RunOutcome {
    let mut started = Vec::new();
    let mut blocked = Vec::new();
    let mut refuted = Vec::new();
    // One that was taken for dead, and cleared away, must not start anything: nobody would watch over it.
    if !tx.tables.backlog.runners.contains_key(runner) {
        return RunOutcome::Late;
    }
    for candidate in candidates {
        if started.len() == room {
            break;
        }
        tx.depth = tx.tables.backlog.tasks.get(&candidate.task).map_or(0, |task| task.spec.depth);
        match claim_one(runner, candidate, seen, &mut refuted, tx) {
            Ok(work) => started.push(work),
            Err(reasons) => blocked.push((candidate.task.clone(), reasons)),
        }
    }
    RunOutcome::Claimed { started, blocked, refuted }
}

/// Takes one task with all that it needs, or nothing.
fn claim_one(
    runner: &RunnerId,
    candidate: &Candidate,
    seen: &Seen,
    refuted: &mut Vec<Pipeline>,
    tx: &mut Tx,
) -> Result<Work, Vec<Reason>> {
    let Some(task) = tx.tables.backlog.tasks.get(&candidate.task) else { return Err(Vec::new()) };
    // It was changed since it was seen: the rows that it needs now were not loaded.
    if (&task.spec.section, &task.spec.needs) != (&candidate.section, &candidate.needs) || task.has_phases() {
        return Err(Vec::new());
    }
    let now = seen.now(tx);
    match facts::admit(task, Some(runner), &tx.tables.coordination, &tx.tables.backlog, &now) {
        Admission::Run => {}
        Admission::Blocked(reasons) => return Err(reasons),
    }
    let recheck = check_at_claim(&candidate.task, &candidate.asks, &now, tx).map_err(|not_now| {
        refuted.extend(not_now.pipeline());
        Vec::new()
    })?;
    // What was admitted is granted; were it not so, nothing of it would be kept.
    let taken = occupy(candidate, &tx.tables.coordination, &tx.tables.backlog, now);
    let (draft, holds) = taken.ok_or_else(Vec::new)?;
    draft.keep(tx);
    let owner = tx.tables.backlog.runners[runner].clone();
    let Task { attempts, spec, .. } = &tx.tables.backlog.tasks[&candidate.task];
    let attempt = spec.first_attempt.saturating_add(*attempts);
    let input = task::Input::Start { run: candidate.run.clone(), runner: runner.clone(), recheck };
    let outcome = step_task(tx, &candidate.task, input, Some(runner));
    let Some(task::Outcome::Started(epoch)) = outcome else { unreachable!("an admitted task starts: {outcome:?}") };
    let task = tx.tables.backlog.tasks[&candidate.task].clone();
    let mut run = Run {
        id: candidate.run.clone(),
        task: task.id.clone(),
        attempt,
        epoch,
        owner: runner.clone(),
        owner_epoch: epoch,
        holds,
        session: None,
        host: owner.process.host.clone(),
        boot: owner.process.boot.clone(),
        started: task.changed,
        lease: None,
        ended: None,
    };
    run.renew(&owner, tx.lease);
    tx.tables.backlog.runs.insert(run.id.clone(), run.clone());
    Ok(Work { run, task })
}

/// Takes everything that a run of the candidate holds; `None` if something of it is not free.
pub(crate) fn occupy(
    candidate: &Candidate,
    coordination: &Coordination,
    backlog: &Backlog,
    now: Now,
) -> Option<(Draft, Vec<Hold>)> {
    let own = [Need::Slots { name: Name::runs(), weight: 1 }, Need::Lock(candidate.task.lock())];
    let mut draft = Draft::new(coordination, now);
    let mut holds = Vec::new();
    for need in own.into_iter().chain(candidate.needs.iter().cloned()) {
        match &need {
            // The pipeline holds it, and does so after this run, too.
            Need::Kept { pipeline, .. } => {
                let holder = pipeline.pipeline_holder();
                if grant_of(&need.resource(), &holder, coordination).is_none() {
                    granted(&draft.handle(take(&need, holder, Vec::new())))?;
                }
            }
            Need::Lock(_) | Need::Slots { .. } => {
                let epoch = granted(&draft.handle(take(&need, candidate.run.holder(), Vec::new())))?;
                holds.push(Hold { need, epoch });
            }
        }
    }
    enter_section(&candidate.run, candidate.section.as_ref(), coordination, backlog, &mut draft)?;
    Some((draft, holds))
}

/// Takes the lock of an exclusive section for a run, unless another run of its runner has it: they share the section. `None` if
/// somebody else works there.
fn enter_section(
    run: &RunId,
    section: Option<&SectionId>,
    coordination: &Coordination,
    backlog: &Backlog,
    draft: &mut Draft,
) -> Option<()> {
    let exclusive = section.and_then(|id| backlog.sections.get(id)).filter(|section| section.exclusive);
    let Some(section) = exclusive else { return Some(()) };
    if sections::manual_lock(&section.id, coordination, backlog).is_none()
        && let Some(lock::State::Held(_)) = coordination.locks.get(&section.id.lock()).map(|lock| &lock.state)
    {
        return Some(());
    }
    granted(&draft.handle(take(&Need::Lock(section.id.lock()), run.holder(), Vec::new()))).map(drop)
}
