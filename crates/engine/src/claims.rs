//! Claiming: a runner takes the first ready tasks that it may, each with all its resources or not at all.
//!
//! One call reads the head of the ready tasks and decides over it, so that no two runners ever choose the same task. Every task in the
//! head is started or leaves the head: a task that waits for a lock or a semaphore is parked on it, until a transaction frees part of
//! it (see [`crate::wakeups`]). Only the limits of the project, and exclusive sections, keep tasks in the head that are not started. A
//! runner that finds no more tasks is registered as idle in the same transaction, so that no wake-up is lost before it sleeps.

use banksman_core::backlog::{Backlog, Hold, Idle, Run};
use banksman_core::event::Resource;
use banksman_core::pipeline::phase_task;
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::lock;
use banksman_core::task::admission::{Admission, Reason};
use banksman_core::task::{self, Need, State, Work as Kind, roots};
use banksman_core::{Name, Now, Pipeline, RunId, RunnerId, SectionId, Task, TaskId};
use banksman_store::{Key, Tables, Tx};

use crate::calls::accounts;
use crate::calls::mailbox;
use crate::calls::pipelines::guards::{asked_at_claim, check_at_claim, store_keys};
use crate::calls::pipelines::{self, PipelineOutcome};
use crate::calls::runs::{RunOutcome, Work};
use crate::calls::sections;
use crate::calls::steps::{Draft, step_task, take};
use crate::facts;
use crate::request::Seen;
use crate::wakeups::{park, unpark};

/// A runner that has room for more runs.
#[derive(Debug, Clone)]
pub struct Claim {
    pub runner: RunnerId,
    /// The most tasks to take.
    pub room: usize,
    /// The least number of ready tasks to read from a lane.
    pub head: usize,
    /// The ids of new runs, `room` of them.
    pub runs: Vec<RunId>,
    /// The sections of the runner; all if empty.
    pub sections: Vec<SectionId>,
    /// Loops that were checked and have no file DONE.
    pub checked: Vec<TaskId>,
    /// The observed state of the holders in the way.
    pub seen: Seen,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// The runs to start.
    pub started: Vec<Work>,
    /// The pipelines that have begun.
    pub began: Vec<Pipeline>,
    /// The tasks that could not be taken, with the reasons.
    pub blocked: Vec<(Task, Vec<Reason>)>,
    /// The pipelines whose phase was not begun, because a guard no longer holds.
    pub refuted: Vec<Pipeline>,
    /// Loops to check for the file DONE.
    pub unchecked: Vec<TaskId>,
    /// Whether there may be more ready tasks than were read.
    pub again: bool,
}

impl Claim {
    pub(crate) fn keys(&self) -> Vec<Key> {
        let of_each = u32::try_from((2 * self.room).max(self.head)).unwrap_or(u32::MAX);
        let [ready, roots] = [self.sections.clone(), self.sections.clone()];
        let mut keys = vec![Key::Ready { of_each, sections: ready }, Key::ReadyRoots { of_each, sections: roots }];
        keys.push(Key::Runner(self.runner.clone()));
        keys.extend([Key::AccountLimits, Key::Sections, Key::LiveExclusive, Key::RunSlots, Key::LimitedRoots]);
        keys
    }

    /// The rows that the ready tasks need, and the rows that the guards of phases among them ask for.
    pub(crate) fn follow(&self, rows: &Tables) -> Vec<Key> {
        let backlog = &rows.backlog;
        let ready = rows.ready.iter().filter_map(|id| backlog.tasks.get(id));
        // A task of an exclusive section may be reserved for the section's owner, which may wait for it.
        let owners = backlog.runs.values().map(|run| Key::Runner(run.owner.clone()));
        // Earlier calls of the batch may free parked tasks, or end the backoff of others: their own locks were not read with the head.
        let parked = rows.parked_on.values().flatten().filter_map(|id| backlog.tasks.get(id));
        let rests = backlog.tasks.values().filter(|task| matches!(task.state, State::Backoff { .. }));
        let dependencies = rests.clone().map(|task| Key::Dependencies(task.id.clone()));
        let others = parked.chain(rests);
        let own = others.clone().map(|task| Key::Lock(task.id.lock())).chain(dependencies);
        own.chain(owners).chain(ready.chain(others).flat_map(|task| needed_keys(task, backlog))).collect()
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> RunOutcome {
        // A runner that was dismissed as dead must not start anything: its runs would have no owner.
        let Some(me) = tx.tables.backlog.runners.get_mut(&self.runner) else { return RunOutcome::Late };
        let was_idle = me.idle.take();
        me.woken = None;
        let mut head =
            Head { claim: self, runs: self.runs.iter(), found: Claimed::default(), places: 0, spare: 0, is_limited: false };
        if tx.changed.reopens {
            head.found.again = true;
        } else if tx.tables.backlog.pause.is_none() {
            head.take_all(tx);
        }
        let Head { mut found, spare, is_limited, .. } = head;
        let has_room = found.started.len() < self.room;
        // A runner may have more room than one claim asks for.
        found.again |= !has_room && (spare > 0 || tx.changed.frees_dependents);
        found.again |= has_room && std::mem::take(&mut tx.changed.frees_dependents);
        let me = tx.tables.backlog.runners.get_mut(&self.runner).expect("it was just there");
        if found.again && has_room {
            // It claims again at once. If it dies or is stopped before that, another runner has to.
            me.woken = Some(tx.lease);
        } else if has_room {
            let wants = u32::try_from(self.room - found.started.len()).unwrap_or(u32::MAX);
            let ticket = was_idle.map_or(tx.ticket, |idle| idle.ticket);
            tx.ticket.0 += i64::from(was_idle.is_none());
            me.idle = Some(Idle { wants, ticket, is_limited });
        }
        // The tasks for which it has no room are left to the next runner.
        let is_slot_free = tx.tables.coordination.semaphores.get(&Name::runs()).is_none_or(|slots| slots.available() > 0);
        if !has_room && spare > 0 && is_slot_free {
            tx.changed.ready_anywhere = tx.changed.ready_anywhere.max(1);
        }
        // A free place that this runner cannot use may be for a runner of other sections.
        tx.changed.limits &= has_room && !is_limited;
        tx.changed.claimant = Some(self.runner.clone());
        RunOutcome::Claimed(Box::new(found))
    }

    /// Whether the runner works in the section of a task.
    fn may_take(&self, id: &TaskId, tx: &Tx) -> bool {
        let section = tx.tables.backlog.tasks.get(id).and_then(|task| task.spec.section.as_ref());
        self.sections.is_empty() || section.is_some_and(|section| self.sections.contains(section))
    }
}

/// Whether all rows that a task needs were loaded: a resource without a row looks free. Only a task among the ready or the parked ones is
/// known to have no open dependencies, however often it has begun: its dependencies may have been reopened meanwhile.
fn is_known(id: &TaskId, tx: &Tx) -> bool {
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return false };
    let is_parked = || tx.tables.parked_on.values().any(|tasks| tasks.contains(id));
    let knows_dependencies = tx.tables.ready.contains(id) || is_parked() || tx.loaded.contains(&Key::Dependencies(id.clone()));
    knows_dependencies && needed_keys(task, &tx.tables.backlog).iter().all(|key| tx.loaded.contains(key))
}

/// The rows, beside its own, that decide whether a ready task may start.
fn needed_keys(task: &Task, backlog: &Backlog) -> Vec<Key> {
    let section = task.spec.section.as_ref().filter(|id| backlog.sections.get(*id).is_some_and(|section| section.exclusive));
    let mut keys = facts::resource_keys(section, task.spec.needs_to_begin(true));
    if let Some(Kind::Pipeline(plan)) = &task.spec.work {
        keys.push(Key::Pipeline(task.id.clone()));
        let first = plan.phases.first().map(|phase| plan.needs(phase, false, &task.id)).unwrap_or_default();
        keys.extend(first.iter().map(facts::need_key));
    }
    keys.extend(mailbox::prompt_keys(task));
    if task.spec.guarded {
        keys.push(Key::Pipeline(task.id.clone()));
        let pipeline = task.spec.parent.as_ref().and_then(|host| backlog.pipelines.get(host));
        keys.extend(pipeline.map(|pipeline| store_keys(&asked_at_claim(pipeline))).unwrap_or_default());
    }
    keys
}

/// The head of the ready tasks while a runner takes from it.
struct Head<'a> {
    claim: &'a Claim,
    runs: std::slice::Iter<'a, RunId>,
    found: Claimed,
    /// How many more roots may begin.
    places: usize,
    /// How many more tasks could start if the runner had more room.
    spare: usize,
    is_limited: bool,
}

impl Head<'_> {
    fn take_all(&mut self, tx: &mut Tx) {
        // Tasks that an earlier call of the batch has freed are taken in this transaction.
        unpark(tx);
        let freed = tx.changed.takeable.iter().filter(|id| self.claim.may_take(id, tx)).cloned();
        let (freed, unknown): (Vec<TaskId>, Vec<TaskId>) = freed.partition(|id| is_known(id, tx));
        tx.changed.frees_dependents |= !unknown.is_empty();
        let backlog = &tx.tables.backlog;
        tx.tables.ready.extend(freed.into_iter().filter(|id| backlog.unmet(id) == 0));
        let limit = facts::root_limit(backlog);
        let is_ready = |task: &&Task| task.state == State::Pending && task.spec.work.is_some();
        let mut ready: Vec<&Task> = tx.tables.ready.iter().filter_map(|id| backlog.tasks.get(id)).filter(is_ready).collect();
        ready.sort_by_key(|task| roots::order(task, limit));
        let ready: Vec<TaskId> = ready.into_iter().map(|task| task.id.clone()).collect();
        let under_way = backlog.tasks.values().filter(|task| roots::is_under_way(task)).count();
        self.places = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(under_way);
        if tx.changed.limits_roots {
            (self.places, self.found.again) = (0, true);
        }
        for id in &ready {
            tx.depth = tx.tables.backlog.tasks.get(id).map_or(0, |task| task.spec.depth);
            if self.take_one(id, limit > 0, tx).is_none() {
                break;
            }
        }
    }

    /// Takes a task, or records why it cannot be taken. `None` if the task must be checked before any task behind it is taken.
    fn take_one(&mut self, id: &TaskId, roots_are_limited: bool, tx: &mut Tx) -> Option<()> {
        let task = tx.tables.backlog.tasks.get(id)?;
        let (is_full, has_phases) = (self.found.started.len() >= self.claim.room, task.has_phases());
        let is_unchecked = task.spec.restart.is_some() && !self.claim.checked.contains(id);
        let begins = roots_are_limited && task.spec.parent.is_none() && !roots::is_under_way(task);
        let now = self.claim.seen.now(tx);
        // A pipeline has no run of its own, and needs no room for one.
        let runner = (!has_phases).then_some(&self.claim.runner);
        match facts::admit(task, runner, &tx.tables.coordination, &tx.tables.backlog, &now) {
            // The remaining places go to the first roots.
            Admission::Run if begins && self.places == 0 => {
                let (limit, roots) = (facts::root_limit(&tx.tables.backlog), Vec::new());
                self.skip(task.clone(), vec![Reason::NoRoot { limit, roots }], tx);
            }
            Admission::Run if has_phases => {
                self.places -= usize::from(begins);
                self.begin_pipeline(id, tx);
            }
            Admission::Run if !is_full && is_unchecked => {
                self.found.unchecked.push(id.clone());
                self.found.again = true;
                return None;
            }
            Admission::Run if !is_full => {
                if self.start(id, tx) {
                    self.places -= usize::from(begins);
                }
            }
            // A later task must not take its place among the roots.
            Admission::Run => {
                self.spare += 1;
                self.places -= usize::from(begins);
            }
            Admission::Blocked(reasons) => {
                let is_next = begins && matches!(&reasons[..], [Reason::NoSlot { .. }]);
                self.places = self.places.saturating_sub(usize::from(is_next));
                self.skip(task.clone(), reasons, tx);
            }
        }
        Some(())
    }

    /// Records why a task cannot be taken. A task that waits for a lock or a semaphore is parked on it.
    fn skip(&mut self, task: Task, reasons: Vec<Reason>, tx: &mut Tx) {
        // This runner may have been woken for the task instead of the owner of the section, which is woken then.
        if let [Reason::SectionBusy { owner, .. }] = &reasons[..] {
            tx.changed.section_owners.insert(owner.clone());
        }
        match waits_for(&reasons) {
            Some(resource) => {
                // The runner on duty handles holders that die or expire; the end of a run frees its own resources.
                let holders = reasons.iter().flat_map(Reason::holders);
                tx.changed.duty |= holders.clone().count() == 0 || holders.into_iter().any(|held| !held.holder.is_run());
                park(&task.id, resource, tx);
                // There may be more ready tasks behind it.
                self.found.again |= self.found.started.len() < self.claim.room;
            }
            None => self.is_limited |= reasons.iter().any(Reason::is_limit),
        }
        self.found.blocked.push((task, reasons));
    }

    /// Begins a pipeline, and takes its first phase in the same transaction: otherwise another run could take its resources in between.
    fn begin_pipeline(&mut self, id: &TaskId, tx: &mut Tx) {
        if let PipelineOutcome::Stepped(_, pipeline) = pipelines::begin(id, &self.claim.seen, tx) {
            self.found.began.push(*pipeline);
        }
        let phase = phase_task(id, 1);
        let is_ready = |task: &Task| task.state == State::Pending && !task.spec.guarded && !task.has_phases();
        if !tx.tables.backlog.tasks.get(&phase).is_some_and(is_ready) {
            return;
        }
        if self.found.started.len() >= self.claim.room || !self.start(&phase, tx) {
            // The phase is ready, but was not in the head.
            tx.changed.frees_dependents = true;
        }
    }

    fn start(&mut self, id: &TaskId, tx: &mut Tx) -> bool {
        let Some(run) = self.runs.next() else { return false };
        let work = start(&self.claim.runner, id, run, &self.claim.seen, &mut self.found.refuted, tx);
        let is_started = work.is_some();
        self.found.started.extend(work);
        is_started
    }
}

/// The lock or semaphore on which a blocked task is parked, if it can be parked.
fn waits_for(reasons: &[Reason]) -> Option<Resource> {
    let is_resource = |reason: &&Reason| {
        matches!(
            reason,
            Reason::TaskLock { .. }
                | Reason::Lock { .. }
                | Reason::Slots { .. }
                | Reason::Undefined { .. }
                | Reason::Reserved { .. }
                | Reason::AccountLimit { .. }
        )
    };
    // A task that a person has stopped, or that waits for another task since an earlier call of the batch, has left its lane already,
    // whatever else it waits for. If it were parked, no request would return it.
    if reasons.iter().any(|reason| matches!(reason, Reason::Paused { .. } | Reason::Dependency { .. })) {
        return None;
    }
    // The runs of one runner share the lock of a section, so tasks are not parked on it.
    reasons.iter().filter(is_resource).find_map(Reason::resource).filter(|resource| !resource.name.is_section())
}

/// Takes one task with all its resources, or nothing.
fn start(runner: &RunnerId, id: &TaskId, run: &RunId, seen: &Seen, refuted: &mut Vec<Pipeline>, tx: &mut Tx) -> Option<Work> {
    let task = tx.tables.backlog.tasks.get(id)?;
    let now = seen.now(tx);
    if let Admission::Blocked(_) = facts::admit(task, Some(runner), &tx.tables.coordination, &tx.tables.backlog, &now) {
        return None;
    }
    let host = task.spec.parent.as_ref().filter(|_| task.spec.guarded).and_then(|host| tx.tables.backlog.pipelines.get(host));
    let asks = host.map(asked_at_claim).unwrap_or_default();
    let recheck = match check_at_claim(id, &asks, &now, tx) {
        Ok(recheck) => recheck,
        Err(not_now) => {
            refuted.extend(not_now.pipeline());
            return None;
        }
    };
    // An admitted task gets all its resources; if it did not, nothing would be kept.
    let (draft, holds) = occupy(&tx.tables.backlog.tasks[id], run, &tx.tables.coordination, &tx.tables.backlog, now)?;
    draft.keep(tx);
    let agent = accounts::start(&tx.tables.backlog.tasks[id].clone(), run, tx);
    let owner = tx.tables.backlog.runners[runner].clone();
    let Task { attempts, spec, .. } = &tx.tables.backlog.tasks[id];
    let attempt = spec.first_attempt.saturating_add(*attempts);
    let input = task::Input::Start { run: run.clone(), runner: runner.clone(), recheck };
    let outcome = step_task(tx, id, input, Some(runner));
    let Some(task::Outcome::Started(epoch)) = outcome else { unreachable!("an admitted task starts: {outcome:?}") };
    let task = tx.tables.backlog.tasks[id].clone();
    let mut run = Run {
        id: run.clone(),
        task: task.id.clone(),
        attempt,
        epoch,
        owner: runner.clone(),
        owner_epoch: epoch,
        holds,
        agent,
        session: None,
        host: owner.process.host.clone(),
        boot: owner.process.boot.clone(),
        started: task.changed,
        lease: None,
        ended: None,
    };
    run.renew(&owner, tx.lease);
    tx.tables.backlog.runs.insert(run.id.clone(), run.clone());
    tx.tables.live_runs += 1;
    mailbox::put_into_prompt(&task, &run.id, epoch, tx);
    Some(Work { run, task })
}

/// Takes all resources that a run of the task holds; `None` if one of them is not free.
fn occupy(task: &Task, run: &RunId, coordination: &Coordination, backlog: &Backlog, now: Now) -> Option<(Draft, Vec<Hold>)> {
    let own = [Need::Slots { name: Name::runs(), weight: 1 }, Need::Lock(task.id.lock())];
    let mut draft = Draft::new(coordination, now);
    let mut holds = Vec::new();
    for need in own.into_iter().chain(task.spec.needs.iter().cloned()) {
        match &need {
            // The pipeline is the holder, and keeps the resource after this run.
            Need::Kept { pipeline, .. } => {
                let holder = pipeline.pipeline_holder();
                if coordination.grant_of(&need.resource(), &holder).is_none() {
                    draft.handle(take(&need, holder, Vec::new())).granted()?;
                }
            }
            Need::Lock(_) | Need::Slots { .. } => {
                let epoch = draft.handle(take(&need, run.holder(), Vec::new())).granted()?.epoch;
                holds.push(Hold { need, epoch });
            }
        }
    }
    enter_section(run, task.spec.section.as_ref(), coordination, backlog, &mut draft)?;
    Some((draft, holds))
}

/// Takes the lock of an exclusive section for a run, unless another run of its runner has it: they share the section. `None` if another
/// holder has the section.
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
    draft.handle(take(&Need::Lock(section.id.lock()), run.holder(), Vec::new())).granted().map(drop)
}
