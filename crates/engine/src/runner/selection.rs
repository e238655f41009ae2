//! Which tasks a runner starts next, and which runs of others it takes over.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::{Backlog, Run, Runner};
use banksman_core::event::Resource;
use banksman_core::guard::Wants;
use banksman_core::pipeline::phase_task;
use banksman_core::pipeline::plan::{Action, Phase};
use banksman_core::resource::coordination::Coordination;
use banksman_core::task::admission::{Admission, Reason};
use banksman_core::task::{self, roots};
use banksman_core::{HolderId, Lease, Now, RunId, RunnerId, Task, TaskId, Ticket, WorkClaim};
use banksman_store::{Key, Snapshot};

use super::CLAIM_LIMIT;
use super::context::Context;
use super::protocol::{Output, RunnerEvent};
use crate::claims::occupy;
use crate::facts;
use crate::guards::asked_at_claim;
use crate::ledger::{Draft, take};
use crate::pipelines::PipelineRequest;
use crate::request::Request;
use crate::runs::{Candidate, RunRequest, Work};
use crate::tasks::TaskRequest;

#[derive(Debug, Default)]
pub(super) struct Selection {
    /// The ids of the next runs.
    fresh_runs: Vec<RunId>,
    /// The runs that it could not adopt, until something changes.
    refused: BTreeSet<RunId>,
    /// The tasks that a claim could not start, and why, until something changes.
    passed_over: BTreeMap<TaskId, Vec<Reason>>,
    /// How many ready tasks were seen that somebody holds the lock of.
    locked: usize,
    /// How many tasks were seen to wait for nothing but a run slot.
    queued: usize,
    /// Whether the last pass found that only so many roots may be under way.
    roots_are_limited: bool,
    /// What it has told the store that it waits for.
    watching: Vec<Resource>,
    /// The claims of the dead that it has asked to remove.
    dropped_claims: BTreeSet<Ticket>,
}

/// What may be started.
#[derive(Default)]
pub(super) struct Choice {
    pub(super) candidates: Vec<Candidate>,
    /// The pipelines that may begin.
    pub(super) beginnings: Vec<Request>,
    pub(super) blocked: Vec<Vec<Reason>>,
}

impl Selection {
    pub(super) fn give_ids(&mut self, fresh: impl FnMut() -> RunId) {
        let missing = CLAIM_LIMIT.saturating_sub(self.fresh_runs.len());
        self.fresh_runs.extend(std::iter::repeat_with(fresh).take(missing));
    }

    /// Something may have changed.
    pub(super) fn woken(&mut self) {
        self.refused.clear();
        self.passed_over.clear();
    }

    /// Something was freed: who was passed over may come before the others.
    pub(super) fn freed(&mut self) {
        self.passed_over.clear();
    }

    /// The ready tasks to read for so much room.
    pub(super) fn first_keys(&self, room: usize) -> impl Iterator<Item = Key> + use<> {
        let of_each = u32::try_from(if room > 0 { room + self.locked } else { 0 }).unwrap_or(u32::MAX);
        let ready = (of_each > 0).then_some(Key::Ready { of_each });
        let queue = (of_each > 0 && self.roots_are_limited).then_some(Key::Queue { of_each });
        ready.into_iter().chain(queue)
    }

    /// Finds out whether roots are limited. Says whether that has changed.
    pub(super) fn note_limits(&mut self, snapshot: &Snapshot) -> bool {
        let are_limited = facts::root_limit(&snapshot.backlog) > 0;
        std::mem::replace(&mut self.roots_are_limited, are_limited) != are_limited
    }

    /// The tasks among these rows that it may start.
    pub(super) fn ready<'a>(&'a self, snapshot: &'a Snapshot, context: &'a Context) -> impl Iterator<Item = &'a Task> {
        snapshot.backlog.tasks.values().filter(|task| self.may_take(task, snapshot.lease, context))
    }

    fn may_take(&self, task: &Task, now: Lease, context: &Context) -> bool {
        context.only.is_none()
            && task.is_due(now)
            && task.spec.work.is_some()
            && !self.passed_over.contains_key(&task.id)
            && context.is_in_sections(task)
    }

    /// The rows that decide whether these tasks may start.
    pub(super) fn keys(&self, snapshot: &Snapshot, context: &Context) -> BTreeSet<Key> {
        let of = |task: &Task| {
            let own = Key::Lock(task.id.lock());
            let needs = task.spec.needs_to_begin(true);
            let guards = task.spec.guarded.then(|| Key::Pipeline(task.id.clone()));
            facts::resource_keys(task.spec.section.as_ref(), needs).into_iter().chain([own]).chain(guards)
        };
        self.ready(snapshot, context).flat_map(of).collect()
    }

    /// Chooses as many as there is room for. So many roots have ended, and keep their place until it is known whether they go
    /// on: they came before those that wait.
    pub(super) fn choose(
        &mut self,
        snapshot: &Snapshot,
        now: &Now,
        room: usize,
        ended_roots: usize,
        context: &Context,
    ) -> Choice {
        let limit = facts::root_limit(&snapshot.backlog);
        let mut ready: Vec<&Task> =
            snapshot.backlog.tasks.values().filter(|task| self.may_take(task, snapshot.lease, context)).collect();
        ready.sort_by_key(|task| roots::order(task, limit));
        let mut choice = Choice::default();
        let under_way = snapshot.backlog.tasks.values().filter(|task| roots::is_under_way(task)).count();
        let mut places = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(under_way + ended_roots);
        // What the first ones take is not there for those behind them.
        let mut coordination = snapshot.coordination.clone();
        for task in ready {
            let begins = limit > 0 && task.spec.parent.is_none() && !roots::is_under_way(task);
            // A pipeline has no run of its own, and needs no room for one.
            let runner = (!task.has_phases()).then_some(&context.me.id);
            match facts::admit(task, runner, &coordination, &snapshot.backlog, now) {
                // The places that are left go to the first ones.
                Admission::Run if begins && places == 0 => {}
                Admission::Run if task.has_phases() => {
                    choice.beginnings.push(beginning(task, context));
                    places -= usize::from(begins);
                    let first = if choice.candidates.len() < room { self.first_phase(task) } else { None };
                    let taken = |first: &Candidate| occupy(first, &coordination, &snapshot.backlog, now.clone());
                    let draft = match first.as_ref().and_then(taken) {
                        Some((draft, _)) => {
                            choice.candidates.extend(first);
                            draft
                        }
                        // Others wait for it, or for room.
                        None => begin_without_run(task, limit > 0, &coordination, now),
                    };
                    coordination = draft.coordination();
                }
                Admission::Run if choice.candidates.len() < room => {
                    let Some(run) = self.fresh_runs.pop() else { break };
                    let (section, needs) = (task.spec.section.clone(), task.spec.needs.clone());
                    let (is_guarded, asks) = (task.spec.guarded, asks(task, &snapshot.backlog));
                    let candidate = Candidate { task: task.id.clone(), run, section, needs, is_guarded, asks };
                    if let Some((draft, _)) = occupy(&candidate, &coordination, &snapshot.backlog, now.clone()) {
                        coordination = draft.coordination();
                        choice.candidates.push(candidate);
                        places -= usize::from(begins);
                    }
                }
                // Who comes after it must not take its place among the roots.
                Admission::Run => places -= usize::from(begins),
                Admission::Blocked(reasons) => {
                    let is_next = begins && matches!(&reasons[..], [Reason::NoSlot { .. }]);
                    places = places.saturating_sub(usize::from(is_next));
                    choice.blocked.push(reasons);
                }
            }
        }
        choice
    }

    /// The first phase of a pipeline that begins, to be claimed along with that: in between, others could take what it needs.
    fn first_phase(&mut self, task: &Task) -> Option<Candidate> {
        let Some(task::Work::Pipeline(plan)) = &task.spec.work else { return None };
        let is_run = |phase: &&Phase| phase.pre.is_empty() && !matches!(phase.action, Action::Push(_));
        let needs = plan.needs(plan.phases.first().filter(is_run)?, false, &task.id);
        let run = self.fresh_runs.pop()?;
        let (is_guarded, asks) = (false, Wants::default());
        Some(Candidate { task: phase_task(&task.id, 1), run, section: task.spec.section.clone(), needs, is_guarded, asks })
    }

    /// Whether more tasks are locked than the last pass knew of. The lock of a task keeps runners from that task, but not from
    /// those behind it, which were not read.
    pub(super) fn note_locked(&mut self, blocked: &[Vec<Reason>]) -> bool {
        let is_own = |reason: &Reason| match reason {
            Reason::TaskLock { .. } => true,
            Reason::Reserved { resource, .. } => resource.name.task().is_some(),
            _ => false,
        };
        let locked = blocked.iter().filter(|reasons| reasons.iter().any(is_own)).count();
        locked > std::mem::replace(&mut self.locked, locked)
    }

    /// What a claim has found in the way still is, as far as anybody knows.
    pub(super) fn still_blocked(&self, snapshot: &Snapshot) -> impl Iterator<Item = Vec<Reason>> {
        let known = self.passed_over.iter().filter(|(task, _)| snapshot.backlog.tasks.contains_key(*task));
        known.map(|(_, reasons)| reasons.clone())
    }

    /// Reports how many tasks wait for nothing but a slot.
    pub(super) fn report_queued(&mut self, queued: usize, out: &mut Output) {
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let delta = count(queued) - count(self.queued);
        self.queued = queued;
        if delta != 0 {
            out.report(RunnerEvent::Queued(delta));
        }
    }

    /// Tells the store what it waits for, if that has changed.
    pub(super) fn watch(&mut self, blocked: &[Vec<Reason>], context: &Context) -> Option<Request> {
        let resources: BTreeSet<Resource> = blocked.iter().flatten().filter_map(Reason::resource).collect();
        let resources: Vec<Resource> = resources.into_iter().collect();
        if resources == self.watching {
            return None;
        }
        self.watching.clone_from(&resources);
        Some(RunRequest::Watch { runner: context.id(), resources }.into())
    }

    /// The store does not know this runner any more, nor what it waits for.
    pub(super) fn forget_watching(&mut self) {
        self.watching.clear();
    }

    /// A claim could not start these tasks. Who found no place among the roots is in line for the next one: those behind it
    /// must not go first.
    pub(super) fn pass_over(&mut self, blocked: impl IntoIterator<Item = (TaskId, Vec<Reason>)>) {
        let is_in_line = |reasons: &[Reason]| reasons.iter().any(|reason| matches!(reason, Reason::NoRoot { .. }));
        self.passed_over.extend(blocked.into_iter().filter(|(_, reasons)| !is_in_line(reasons)));
    }

    /// A run could not be adopted.
    pub(super) fn refuse(&mut self, run: RunId) {
        self.refused.insert(run);
    }

    pub(super) fn is_refused(&self, run: &RunId) -> bool {
        self.refused.contains(run)
    }

    /// The live runs that nobody looks after.
    pub(super) fn orphans(&self, backlog: &Backlog, context: &Context) -> Vec<Work> {
        let here = backlog.runs.values().filter(|run| run.is_within_reach_of(&context.me));
        let orphans = here.filter(|run| context.is_orphan(run, backlog) && context.concerns(&run.id));
        orphans.filter(|run| !self.is_refused(&run.id)).filter_map(|run| work(run, backlog)).collect()
    }

    /// Removes the claims of those who died while they waited, each once: what was reserved for them is free then.
    pub(super) fn dead_claims(&mut self, coordination: &Coordination, now: &Now, context: &Context) -> Vec<Request> {
        let seen = context.seen();
        let mut over: Vec<&WorkClaim> = coordination.claims.values().filter(|claim| claim.is_over(now)).collect();
        over.retain(|claim| context.only.is_none() && self.dropped_claims.insert(claim.ticket));
        let drop = |claim: &WorkClaim| {
            let resources = claim.parts.iter().map(|part| part.resource.clone()).collect();
            Request::Task(TaskRequest::Leave { ticket: claim.ticket, resources, seen: Some(seen.clone()) })
        };
        over.into_iter().map(drop).collect()
    }
}

/// The runs whose machine has been silent for too long, unless it can be found out from here what became of them.
pub(super) fn lost(backlog: &Backlog, now: &Now, context: &Context) -> Vec<Work> {
    let others = backlog.runs.values().filter(|run| run.owner != context.me.id && run.is_lost(now));
    let lost = others.filter(|run| !run.is_within_reach_of(&context.me) || !context.is_orphan(run, backlog));
    lost.filter(|run| context.concerns(&run.id)).filter_map(|run| work(run, backlog)).collect()
}

fn work(run: &Run, backlog: &Backlog) -> Option<Work> {
    Some(Work { run: run.clone(), task: backlog.tasks.get(&run.task)?.clone() })
}

/// The runners that are dead, or silent for too long, and have left nothing behind.
pub(super) fn gone_runners(backlog: &Backlog, now: &Now, context: &Context) -> Vec<RunnerId> {
    if context.only.is_some() {
        return Vec::new();
    }
    let has_runs = |runner: &&Runner| backlog.runs.values().any(|run| run.owner == runner.id);
    let others = backlog.runners.values().filter(|runner| runner.id != context.me.id && runner.process != context.me.process);
    let gone = others.filter(|runner| context.is_dead(&runner.process) || runner.is_silent(now));
    gone.filter(|runner| !has_runs(runner)).map(|runner| runner.id.clone()).collect()
}

/// A pipeline begins that nothing is in the way of.
fn beginning(task: &Task, context: &Context) -> Request {
    // Whether roots are limited is decided with the rows: all that may be needed is loaded.
    let (id, needs) = (task.id.clone(), task.spec.needs_to_begin(true).to_vec());
    Request::Pipeline(PipelineRequest::Begin { id, needs, seen: context.seen() })
}

fn begin_without_run(task: &Task, roots_are_limited: bool, coordination: &Coordination, now: &Now) -> Draft {
    let holder = HolderId::new(task.id.as_str()).expect("an id is short and plain");
    let mut draft = Draft::new(coordination, now.clone());
    for need in task.spec.needs_to_begin(roots_are_limited) {
        draft.handle(take(need, holder.clone(), Vec::new()));
    }
    draft
}

/// What the guards of a phase ask the store when it is claimed.
fn asks(task: &Task, backlog: &Backlog) -> Wants {
    let pipeline = task.spec.parent.as_ref().filter(|_| task.spec.guarded).and_then(|host| backlog.pipelines.get(host));
    pipeline.map(asked_at_claim).unwrap_or_default()
}
