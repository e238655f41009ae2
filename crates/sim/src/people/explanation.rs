//! `why` names the true causes of a pending task: a runner can claim it once all of them are removed, and not before.
//!
//! The check runs in transactions that are rolled back, so that the history is not affected.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::RunEndRecord;
use banksman_core::event::{Forced, Kind, Resource};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::task::admission::Reason;
use banksman_core::task::retry::Marker;
use banksman_core::task::{OnExhausted, RunEnd, State, Watch};
use banksman_core::{Limits, LimitsChange, Liveness, ProcessId, RunId, RunnerId, SectionId, Span, TaskId, Wall, WorkClaim};
use banksman_engine::why::{self, Answer, Cause, Obstacle, Situation};
use banksman_engine::{Claim, Reply, Request, RunOutcome, RunRequest, Seen, TaskRequest, Work};
use banksman_store::{Call, Key, Snapshot, StoreError, Tx};

use crate::mutation::Mutation;
use crate::report::Checker;
use crate::world::World;

/// A transaction that is always rolled back: `script` decides over all rows.
struct Rehearsal<'a> {
    keys: Vec<Key>,
    script: &'a dyn Fn(&mut Tx),
}

impl Call for Rehearsal<'_> {
    type Reply = ();

    fn keys(&self) -> Vec<Key> {
        self.keys.clone()
    }

    fn decide(&self, tx: &mut Tx) {
        (self.script)(tx);
    }
}

impl World<'_> {
    /// Asks why a task has not started, and tests the answer.
    pub(super) fn check_explanation(&mut self, id: &TaskId) {
        if let Err(error) = self.try_explanation(id) {
            self.verdict.report(Checker::Store, || error.to_string());
        }
    }

    fn try_explanation(&mut self, id: &TaskId) -> Result<(), StoreError> {
        let Some(rows) = self.claim_rows() else { return Ok(()) };
        let is_pending = rows.backlog.tasks.get(id).is_some_and(|task| task.state == State::Pending);
        let runners: Vec<RunnerId> = rows.backlog.runners.keys().filter(|runner| !self.is_gone(&rows, runner)).cloned().collect();
        if !is_pending || runners.is_empty() {
            return Ok(());
        }
        let causes = match self.explain(id)? {
            Some(Answer::Starting(_)) => Vec::new(),
            Some(Answer::Waits(causes)) => causes,
            other => {
                self.verdict.report(Checker::Why, || format!("{id} is pending, and why says {other:?}"));
                return Ok(());
            }
        };
        self.tally.count(if causes.is_empty() { "explained: starting" } else { "explained: waiting" });
        let refused = self.rehearse(id, &causes, &runners, &rows)?;
        self.verdict.expect(Checker::Why, refused.is_none(), || {
            format!("{id} does not start without all that is named, {causes:?}: {refused:?}")
        });
        // Each cause alone keeps the task from starting.
        for cause in &causes {
            let others: Vec<Cause> = causes.iter().filter(|other| *other != cause).cloned().collect();
            if others.iter().all(|other| is_precise(other, &rows)) {
                let refused = self.rehearse(id, &others, &runners, &rows)?;
                self.verdict.expect(Checker::Why, refused.is_some(), || format!("{id} starts in spite of {cause:?}"));
            }
        }
        Ok(())
    }

    /// The answer of `why`, from the rows that it reads.
    fn explain(&mut self, id: &TaskId) -> Result<Option<Answer>, StoreError> {
        let rows = why::read(&mut self.store.view(), id, Limits::NONE)?;
        let Some(why::Rows { snapshot: mut rows, before }) = rows else { return Ok(None) };
        if self.mutation() == Some(Mutation::WhyIgnoresClaims) {
            rows.coordination.claims.retain(|_, claim| claim.waits().is_none());
        }
        let liveness = |process: &ProcessId| if self.machine.lives(process) { Liveness::Alive } else { Liveness::Dead };
        let probes: BTreeMap<_, _> =
            why::processes(&rows).into_iter().map(|process| (process.clone(), liveness(&process))).collect();
        Ok(Situation::new(&rows, &probes).why(id, &before).map(|why| why.answer))
    }

    /// The replies to these runners if none of them can start the task after all causes are removed.
    fn rehearse(
        &mut self,
        id: &TaskId,
        causes: &[Cause],
        runners: &[RunnerId],
        rows: &Snapshot,
    ) -> Result<Option<Vec<Reply>>, StoreError> {
        let (seen, run) = (self.seen(rows), RunId::new("r0").expect("a plain word"));
        let claim = |runner: &RunnerId| {
            let (runner, runs, seen) = (runner.clone(), vec![run.clone()], seen.clone());
            let claim = Claim { runner, room: 1, head: 8, runs, sections: Vec::new(), checked: vec![id.clone()], seen };
            Request::Run(RunRequest::Claim(Box::new(claim)))
        };
        let refused = RefCell::new(Some(Vec::new()));
        let script = |tx: &mut Tx| {
            for cause in causes {
                remove(cause, &seen, tx);
            }
            let has_started =
                |reply: &Reply| matches!(reply, Reply::Run(RunOutcome::Claimed(claimed)) if !claimed.started.is_empty());
            loop {
                // Only this task is ready.
                tx.tables.ready = [id.clone()].into();
                tx.tables.parked_on.clear();
                let replies: Vec<Reply> = runners.iter().map(|runner| claim(runner).decide(tx)).collect();
                let next = next_in_turn(causes, &replies);
                refused.replace((!replies.iter().any(has_started)).then_some(replies));
                match next {
                    Some(resource) => dismiss_claims(&resource, tx),
                    None => return,
                }
            }
        };
        let keys = claim(&runners[0]).keys().into_iter().chain(all_keys(rows)).collect();
        drop(self.store.begin(&[Rehearsal { keys, script: &script }])?);
        Ok(refused.into_inner())
    }
}

/// The resource that the next waiting claim reserves after the named claims have given up: only the first of them is named.
fn next_in_turn(causes: &[Cause], replies: &[Reply]) -> Option<Resource> {
    let gives_up = |cause: &Cause| match cause {
        Cause::Taken { reason, line, .. } => matches!(reason, Reason::Reserved { .. }) || !line.is_empty(),
        _ => false,
    };
    let kept = |reply: &Reply| {
        let Reply::Run(RunOutcome::Claimed(claimed)) = reply else { return None };
        match &claimed.blocked.first()?.1[..] {
            [Reason::Reserved { resource, task: Some(_), .. }, ..] => Some(resource.clone()),
            _ => None,
        }
    };
    // Other runners may have other obstacles.
    if causes.iter().any(gives_up) { replies.iter().find_map(kept) } else { None }
}

/// The rows of everything that may have to be removed.
fn all_keys(rows: &Snapshot) -> BTreeSet<Key> {
    let tasks = rows.backlog.tasks.keys().flat_map(|id| [Key::Task(id.clone()), Key::Manual(id.clone()), Key::Lock(id.lock())]);
    let locks = rows.coordination.locks.keys().cloned().map(Key::Lock);
    let semaphores = rows.coordination.semaphores.keys().cloned().map(Key::Semaphore);
    let common = [Key::Waits, Key::Live, Key::Runners, Key::Sections, Key::Outbox, Key::OpenDecisions];
    tasks.chain(locks).chain(semaphores).chain(common).collect()
}

/// Whether the removal of this cause removes no other: the end of a run, or of a claim that loses a part, frees all
/// that it holds. An expired claim loses its part to the next one before it ends.
fn is_precise(cause: &Cause, rows: &Snapshot) -> bool {
    match cause {
        Cause::Taken { reason: Reason::NoSlot { .. }, .. } => true,
        Cause::Taken { reason: Reason::Lock { resource, .. } | Reason::Slots { resource, .. }, line, .. } => {
            let is_part = |claim: &WorkClaim| claim.waits().is_none() && claim.wants(resource);
            line.is_empty() && !rows.coordination.claims.values().any(is_part)
        }
        _ => false,
    }
}

/// Removes a cause, as a person would who follows the answer.
fn remove(cause: &Cause, seen: &Seen, tx: &mut Tx) {
    match cause {
        Cause::Taken { reason: Reason::Reserved { resource, .. }, .. } => {
            // The waiters of the resource come next; they are named, too.
            vacate(resource, seen, tx);
            dismiss_claims(resource, tx);
        }
        Cause::Taken { reason: Reason::NoSlot { .. }, .. } => {
            let change = LimitsChange { runs: Some(0), ..LimitsChange::default() };
            Request::SetLimits { change, seed: Limits::NONE }.decide(tx);
        }
        Cause::Taken { reason: Reason::Lock { resource, .. } | Reason::Slots { resource, .. }, line, .. } => {
            vacate(resource, seen, tx);
            // The freed resource is then reserved for the claims that are named as next.
            if !line.is_empty() {
                dismiss_claims(resource, tx);
            }
        }
        Cause::NoRunnerFree { runners, .. } => {
            for obstacle in runners.iter().flat_map(|(_, obstacles)| obstacles) {
                if let Obstacle::Section(cause) = obstacle {
                    leave_section(cause, tx);
                }
            }
        }
        other => leave_section(other, tx),
    }
}

/// Every claim that waits for a resource gives up.
fn dismiss_claims(resource: &Resource, tx: &mut Tx) {
    let waiting = tx.tables.coordination.claims.values().filter(|claim| claim.waits().is_some() && claim.wants(resource));
    for ticket in waiting.map(|claim| claim.ticket).collect::<Vec<_>>() {
        Request::Task(TaskRequest::Leave { ticket, resources: Vec::new(), seen: None }).decide(tx);
    }
}

/// Every holder of a resource loses it, and its waiters leave.
fn vacate(resource: &Resource, seen: &Seen, tx: &mut Tx) {
    let by = Forced { user: "ann".into(), host: "host".into(), pid: 1 };
    let name = &resource.name;
    loop {
        let command = match resource.kind {
            Kind::Lock => match tx.tables.coordination.locks.get(name) {
                Some(lock) if !lock.waiters.is_empty() => {
                    let ticket = lock.waiters.iter().next().expect("it is not empty").ticket;
                    Command::Lock(name.clone(), lock::Input::Leave { ticket })
                }
                Some(lock) if lock.state != lock::State::Free => {
                    Command::Lock(name.clone(), lock::Input::Force { by: by.clone() })
                }
                Some(_) | None => return,
            },
            Kind::Semaphore => match tx.tables.coordination.semaphores.get(name).and_then(|one| one.holders.keys().next()) {
                Some(holder) => {
                    Command::Semaphore(name.clone(), semaphore::Input::Force { holder: holder.clone(), by: by.clone() })
                }
                None => return,
            },
        };
        Request::Coordinate { command, seen: seen.clone() }.decide(tx);
    }
}

/// Ends the work in the section of a cause: its runs, or the claims of its holder.
fn leave_section(cause: &Cause, tx: &mut Tx) {
    let section = match cause {
        Cause::SectionBusy { task, .. } => tx.tables.backlog.tasks.get(task).and_then(|task| task.spec.section.clone()),
        Cause::Taken { reason: Reason::Section { resource, .. }, .. } => {
            resource.name.as_str().strip_prefix("section:").and_then(|id| SectionId::new(id).ok())
        }
        _ => None,
    };
    let Some(section) = section else { return };
    let here: Vec<_> =
        tx.tables.backlog.tasks.values().filter(|task| task.spec.section.as_ref() == Some(&section)).cloned().collect();
    for task in here {
        if let Some(live) = task.live() {
            let Some(run) = tx.tables.backlog.runs.get(&live.run).cloned() else { continue };
            let owner = run.owner.clone();
            Request::from(finish(owner, Work { run, task })).decide(tx);
        } else if let State::Manual { holder, .. } = &task.state {
            let by = Some(holder.clone());
            Request::Task(TaskRequest::GiveBack { id: task.id, by, epoch: None }).decide(tx);
        }
    }
}

/// The end of a run, as its runner reports it.
fn finish(runner: RunnerId, what: Work) -> RunRequest {
    let watch = Watch { timeout: Span::from_secs(60), max_recoveries: 3, on_exhausted: OnExhausted::Fail };
    let ending = RunEndRecord::new(RunEnd::Exited(0), Wall(0), None);
    RunRequest::Finish { runner, what: Box::new(what), ending, marker: Marker::Absent, watch }
}
