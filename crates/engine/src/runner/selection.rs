//! The selection of the tasks to start, and of the runs to adopt.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::agent::limit;
use banksman_core::backlog::{Backlog, Run, Runner};
use banksman_core::event::Resource;
use banksman_core::resource::coordination::{Command, Coordination};
use banksman_core::task::admission::{Admission, Reason};
use banksman_core::task::retry::Marker;
use banksman_core::task::{Need, State};
use banksman_core::{Lease, Name, Now, RunId, RunnerId, Span, Task, TaskId, Ticket, WorkClaim};
use banksman_store::{Key, Snapshot};

use super::CLAIM_LIMIT;
use super::context::Context;
use super::protocol::{Output, RunnerEvent};
use crate::calls::accounts::{self, AccountRequest};
use crate::calls::runs::{RunRequest, Work};
use crate::calls::tasks::TaskRequest;
use crate::claims::{Claim, Claimed};
use crate::facts;
use crate::request::Request;

/// The most awaited locks and semaphores whose holders are watched at a time: the first ones always, and the others page by page.
const PARKED: u32 = 100;

/// The silence after which a woken runner counts as stalled, and another one is woken.
const ANSWER_WITHIN: Span = Span::from_secs(2);

/// The least number of ready tasks that a claim reads from a lane, unless the claim before has filled its runner: then the first tasks can be
/// taken, and twice the room is enough. A claim that took none of the tasks that it read is followed by one that reads twice as many.
const HEAD: usize = 8;
const MAX_HEAD: usize = 64;

#[derive(Debug)]
pub(super) struct Selection {
    /// The ids of the next runs.
    fresh_runs: Vec<RunId>,
    /// The least number of ready tasks that the next claim reads from a lane.
    head: usize,
    /// Whether there may be tasks to take that the last claim did not see.
    is_due: bool,
    /// The loops that the next claim may take: they have no file DONE.
    checked: Vec<TaskId>,
    /// Reports of loops that have a file DONE, or something in its place.
    found: Vec<Request>,
    /// The tasks that the last claims could not take, with the reasons.
    blocked: BTreeMap<TaskId, (Task, Vec<Reason>)>,
    /// The runs that could not be adopted, until something changes.
    refused: BTreeSet<RunId>,
    /// The reported number of tasks that only wait for a run slot.
    queued: usize,
    /// The claims of dead processes whose removal was requested.
    dropped_claims: BTreeSet<Ticket>,
    /// The limits whose waiting tasks were requested to return, each with its state then and the first waiting task.
    returned: BTreeMap<Name, (limit::State, TaskId)>,
    /// The last resource of the current page beyond the first one.
    parked_after: Option<Resource>,
    /// The resources of which all waiting tasks are read, not only the first.
    behind: BTreeSet<Resource>,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection {
            fresh_runs: Vec::new(),
            head: HEAD,
            is_due: true,
            checked: Vec::new(),
            found: Vec::new(),
            blocked: BTreeMap::new(),
            refused: BTreeSet::new(),
            queued: 0,
            dropped_claims: BTreeSet::new(),
            returned: BTreeMap::new(),
            parked_after: None,
            behind: BTreeSet::new(),
        }
    }
}

impl Selection {
    pub(super) fn give_ids(&mut self, fresh: impl FnMut() -> RunId) {
        let missing = CLAIM_LIMIT.saturating_sub(self.fresh_runs.len());
        self.fresh_runs.extend(std::iter::repeat_with(fresh).take(missing));
    }

    /// Forgets refusals, and claims again: the rows may have changed.
    pub(super) fn woken(&mut self) {
        self.refused.clear();
        self.returned.clear();
        self.is_due = true;
    }

    /// Claims again, and checks files again before that, because there may be tasks to take, or the store did not reply.
    pub(super) fn freed(&mut self) {
        self.is_due = true;
        self.checked.clear();
    }

    /// Whether a claim is due, with this room.
    pub(super) fn is_due(&self, room: usize, context: &Context) -> bool {
        self.is_due && room > 0 && context.only.is_none()
    }

    /// The reports about files of loops, and then a claim of `room` tasks, if it is due.
    pub(super) fn requests(&mut self, room: usize, context: &Context) -> Vec<Request> {
        let mut requests = std::mem::take(&mut self.found);
        if self.is_due(room, context) {
            self.is_due = false;
            self.blocked.clear();
            let runs = self.fresh_runs.split_off(self.fresh_runs.len().saturating_sub(room));
            let (runner, sections) = (context.id(), context.options.sections.clone());
            let (checked, seen) = (self.checked.clone(), context.seen());
            let (room, head) = (runs.len(), self.head);
            requests.push(RunRequest::Claim(Box::new(Claim { runner, room, head, runs, sections, checked, seen })).into());
        }
        requests
    }

    /// Takes back a claim that is not sent.
    pub(super) fn take_back(&mut self, claim: Claim) {
        self.fresh_runs.extend(claim.runs);
        self.is_due = true;
    }

    /// Claims no more: there is nothing to take, and the runner does not wait for tasks.
    pub(super) fn nothing_left(&mut self) {
        self.is_due = false;
    }

    /// Whether something was freed since the last claim was made.
    pub(super) fn is_freed(&self) -> bool {
        self.is_due
    }

    /// Claims again, because something was freed that the last claim did not count.
    pub(super) fn stays_freed(&mut self) {
        self.is_due = true;
    }

    /// Takes in the result of a claim, except for the started runs.
    pub(super) fn on_claimed(&mut self, claimed: &Claimed, is_full: bool, out: &mut Output) {
        self.is_due = claimed.again;
        self.head = match is_full {
            true => 0,
            false if claimed.again => (2 * self.head).clamp(HEAD, MAX_HEAD),
            false => HEAD,
        };
        // The results of checks count until the claim that needed them is through, and for one attempt.
        if claimed.unchecked.is_empty() {
            self.checked.clear();
        }
        self.checked.retain(|id| claimed.started.iter().all(|work| work.task.id != *id));
        self.blocked.extend(claimed.blocked.iter().map(|(task, reasons)| (task.id.clone(), (task.clone(), reasons.clone()))));
        let waits_for_slot = |(_, reasons): &&(Task, Vec<Reason>)| matches!(&reasons[..], [Reason::NoSlot { .. }]);
        self.report_queued(claimed.blocked.iter().filter(waits_for_slot).count(), out);
    }

    /// Takes in the state of the files DONE of loops that may be taken.
    pub(super) fn on_checked(&mut self, found: Vec<(TaskId, Marker)>) {
        for (task, marker) in found {
            match marker {
                Marker::Absent => self.checked.push(task),
                marker => self.found.push(RunRequest::Found { task, marker }.into()),
            }
        }
        self.is_due = true;
    }

    /// The rows of the parked tasks, for the first read.
    pub(super) fn first_keys(&self) -> impl Iterator<Item = Key> {
        let others = self.parked_after.clone().map(|after| Key::Parked { after: Some(after), limit: PARKED });
        let behind = self.behind.iter().cloned().map(Key::ParkedOn);
        [Key::Parked { after: None, limit: PARKED }].into_iter().chain(others).chain(behind)
    }

    /// Requests all tasks parked on each resource if the first of each are not enough to decide that nothing is left: a task behind the
    /// first may need less. Returns whether they must still be read.
    pub(super) fn reads_behind(&mut self, snapshot: &Snapshot) -> bool {
        let is_due = !self.has_read_behind(snapshot);
        if is_due {
            self.behind = snapshot.parked.iter().map(|(resource, _)| resource.clone()).collect();
        }
        is_due
    }

    pub(super) fn has_read_behind(&self, snapshot: &Snapshot) -> bool {
        snapshot.parked.iter().all(|(resource, _)| self.behind.contains(resource))
    }

    /// Reads only the first parked tasks again, because something is left to do.
    pub(super) fn forget_behind(&mut self) {
        self.behind.clear();
    }

    /// Chooses the page of parked tasks to read next, beside the first page.
    pub(super) fn turn_page(&mut self, snapshot: &Snapshot) {
        let pages = 1 + usize::from(self.parked_after.is_some());
        // The tasks that a person has stopped take one place of a page.
        let is_last = snapshot.parked.len() + 1 < pages * PARKED as usize;
        self.parked_after = snapshot.parked.last().filter(|_| !is_last).map(|(resource, _)| resource.clone());
    }

    /// The rows that decide whether the tasks that could not be taken may start.
    pub(super) fn keys(&self, snapshot: &Snapshot) -> BTreeSet<Key> {
        self.waiting(snapshot).flat_map(|task| resources(task).map(|need| facts::need_key(&need)).collect::<Vec<_>>()).collect()
    }

    /// The tasks that could not be taken: by the last claims, and those that wait for a resource.
    pub(super) fn waiting<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Task> {
        self.blocked.values().map(|(task, _)| task).chain(all_parked(snapshot))
    }

    /// Whether there are ready tasks that no claim has found blocked.
    pub(super) fn misses_ready(&self, snapshot: &Snapshot) -> bool {
        snapshot.ready.iter().any(|id| !self.blocked.contains_key(id))
    }

    /// The reasons that keep tasks from starting.
    pub(super) fn reasons(&self, snapshot: &Snapshot, now: &Now, context: &Context) -> Vec<Vec<Reason>> {
        let admission = |task: &Task| facts::admit(task, Some(&context.me.id), &snapshot.coordination, &snapshot.backlog, now);
        let parked = all_parked(snapshot).filter_map(|task| match admission(task) {
            Admission::Run => None,
            Admission::Blocked(reasons) => Some(reasons),
        });
        self.blocked.values().map(|(_, reasons)| reasons.clone()).chain(parked).collect()
    }

    /// Reaps the awaited resources that are free after all, so that their parked tasks become ready: the grant has expired, or its holder
    /// or the waiter with the reservation is dead.
    pub(super) fn reaps(&mut self, snapshot: &Snapshot, now: &Now, context: &Context) -> Vec<Request> {
        let returned = self.returns(snapshot, now);
        let is_free = |resource: &Resource, task: &Task| match facts::admit(
            task,
            Some(&context.me.id),
            &snapshot.coordination,
            &snapshot.backlog,
            now,
        ) {
            Admission::Run => true,
            // A task behind the first may need fewer slots of a semaphore.
            Admission::Blocked(reasons) => {
                let waits = reasons.iter().any(|reason| reason.resource().as_ref() == Some(resource));
                !waits || snapshot.coordination.semaphores.get(&resource.name).is_some_and(|slots| slots.has_ended(now))
            }
        };
        let others = parked(snapshot).filter(|(resource, _)| !resource.name.is_account_limit());
        let free = others.filter(|(resource, task)| !returned.contains(&task.id) && is_free(resource, task));
        let reaps =
            free.map(|(resource, _)| Request::Coordinate { command: Command::reap(resource.clone()), seen: context.seen() });
        reaps.chain((!returned.is_empty()).then(|| AccountRequest::Return.into())).collect()
    }

    /// The tasks that may wait for an expired limit of an account. They are returned once for each state of the limit and first task, so
    /// that a request without effect is not repeated.
    pub(super) fn returns(&mut self, snapshot: &Snapshot, now: &Now) -> BTreeSet<TaskId> {
        let parked: Vec<&Task> = parked(snapshot).map(|(_, task)| task).collect();
        let mut due = BTreeSet::new();
        for limit in snapshot.backlog.account_limits.values().filter(|limit| limit.admits(now)) {
            for task in parked.iter().filter(|task| accounts::is_concerned(task, limit)) {
                let stands = (limit.state.clone(), task.id.clone());
                if self.returned.get(&limit.name) != Some(&stands) {
                    self.returned.insert(limit.name.clone(), stands);
                    due.insert(task.id.clone());
                }
            }
        }
        due
    }

    /// Wakes other runners in place of runners that were woken and have not called since; or of this one, if it has no room.
    pub(super) fn passed_on(backlog: &Backlog, room: usize, now: &Now, context: &Context) -> Vec<Request> {
        let woken = backlog.runners.values().filter_map(|runner| Some((runner, runner.woken?)));
        let late = woken.filter(
            |(runner, woken)| {
                if runner.id == context.me.id { room == 0 } else { now.lease >= *woken + ANSWER_WITHIN }
            },
        );
        late.map(|(runner, woken)| RunRequest::PassOn { runner: runner.id.clone(), woken }.into()).collect()
    }

    /// Reports the number of tasks that only wait for a slot.
    pub(super) fn report_queued(&mut self, queued: usize, out: &mut Output) {
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let delta = count(queued) - count(self.queued);
        self.queued = queued;
        if delta != 0 {
            out.report(RunnerEvent::Queued(delta));
        }
    }

    /// Records that a run could not be adopted.
    pub(super) fn refuse(&mut self, run: RunId) {
        self.refused.insert(run);
    }

    pub(super) fn is_refused(&self, run: &RunId) -> bool {
        self.refused.contains(run)
    }

    /// The live runs whose owner is gone, and that this runner may adopt.
    pub(super) fn orphans(&self, backlog: &Backlog, context: &Context) -> Vec<Work> {
        let here = backlog.runs.values().filter(|run| run.is_within_reach_of(&context.me));
        let orphans = here.filter(|run| context.is_orphan(run, backlog) && context.concerns(&run.id));
        orphans.filter(|run| !self.is_refused(&run.id)).filter_map(|run| work(run, backlog)).collect()
    }

    /// Removes the claims of processes that died while they waited, each once, and lets others pass the claims that were woken and are not
    /// tried again: their reservations are free then.
    pub(super) fn dead_claims(&mut self, coordination: &Coordination, now: &Now, context: &Context) -> Vec<Request> {
        let seen = context.seen();
        let mut over: Vec<&WorkClaim> = coordination.claims.values().filter(|claim| claim.is_over(now)).collect();
        over.retain(|claim| context.only.is_none() && self.dropped_claims.insert(claim.ticket));
        let is_late = |claim: &&WorkClaim| claim.turn_ends().is_some_and(|end| now.is_past(end)) && !claim.is_over(now);
        over.extend(coordination.claims.values().filter(is_late).filter(|_| context.only.is_none() && context.does_duty()));
        let drop = |claim: &WorkClaim| {
            let resources = claim.parts.iter().map(|part| part.resource.clone()).collect();
            Request::Task(TaskRequest::Leave { ticket: claim.ticket, resources, seen: Some(seen.clone()) })
        };
        over.into_iter().map(drop).collect()
    }
}

/// When the next woken runner counts as stalled.
pub(super) fn next_unanswered(backlog: &Backlog, context: &Context) -> Option<Lease> {
    let others = backlog.runners.values().filter(|runner| runner.id != context.me.id);
    others.filter_map(|runner| runner.woken).map(|woken| woken + ANSWER_WITHIN).min()
}

/// The runs whose machine has been silent for too long, unless this runner can adopt them and determine their state.
pub(super) fn lost(backlog: &Backlog, now: &Now, context: &Context) -> Vec<Work> {
    let others = backlog.runs.values().filter(|run| run.owner != context.me.id && run.is_lost(now));
    let lost = others.filter(|run| !run.is_within_reach_of(&context.me) || !context.is_orphan(run, backlog));
    lost.filter(|run| context.concerns(&run.id)).filter_map(|run| work(run, backlog)).collect()
}

fn work(run: &Run, backlog: &Backlog) -> Option<Work> {
    Some(Work { run: run.clone(), task: backlog.tasks.get(&run.task)?.clone() })
}

/// The runners that are dead, or silent for too long, and have no live runs.
pub(super) fn gone_runners(backlog: &Backlog, now: &Now, context: &Context) -> Vec<RunnerId> {
    if context.only.is_some() {
        return Vec::new();
    }
    let has_runs = |runner: &&Runner| backlog.runs.values().any(|run| run.owner == runner.id);
    let others = backlog.runners.values().filter(|runner| runner.id != context.me.id && runner.process != context.me.process);
    let gone = others.filter(|runner| context.is_dead(&runner.process) || runner.is_silent(now));
    gone.filter(|runner| !has_runs(runner)).map(|runner| runner.id.clone()).collect()
}

/// The first task of each resource that tasks wait for.
fn parked(snapshot: &Snapshot) -> impl Iterator<Item = (&Resource, &Task)> {
    let task = |id: &TaskId| snapshot.backlog.tasks.get(id).filter(|task| task.state == State::Pending);
    snapshot.parked.iter().filter_map(move |(resource, id)| Some((resource, task(id)?)))
}

/// All parked tasks that were read: the first of each resource, and the tasks behind them.
fn all_parked(snapshot: &Snapshot) -> impl Iterator<Item = &Task> {
    let behind = snapshot.parked_on.values().flatten().filter_map(|id| snapshot.backlog.tasks.get(id));
    parked(snapshot).map(|(_, task)| task).chain(behind.filter(|task| task.state == State::Pending))
}

/// The needs of a task, with its own lock and the lock of its section.
fn resources(task: &Task) -> impl Iterator<Item = Need> {
    let own = Need::Lock(task.id.lock());
    let section = task.spec.section.as_ref().map(|section| Need::Lock(section.lock()));
    [own].into_iter().chain(section).chain(task.spec.needs_to_begin(true).to_vec())
}
