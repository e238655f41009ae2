//! Which tasks a runner starts next, and which runs of others it takes over.

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

/// Of how many locks and semaphores that tasks wait for the holders are watched at a time: of the first ones always, and of the others in turn.
const PARKED: u32 = 100;

/// After which silence a runner that was woken is taken for stalled, and another one is woken.
const ANSWER_WITHIN: Span = Span::from_secs(2);

/// How many ready tasks of a lane a claim reads at least, unless the one before has filled its runner: then the first ones can be taken, and
/// twice the room is enough. One that could take none of those that it read is followed by one that reads twice as many.
const HEAD: usize = 8;
const MAX_HEAD: usize = 64;

#[derive(Debug)]
pub(super) struct Selection {
    /// The ids of the next runs.
    fresh_runs: Vec<RunId>,
    /// How many ready tasks of a lane the next claim reads at least.
    head: usize,
    /// Whether there may be something to take that the last claim did not see.
    is_due: bool,
    /// The loops that the next claim may take: nothing says that they are done.
    checked: Vec<TaskId>,
    /// Loops that were found to be done, or to have something in the place of the file.
    found: Vec<Request>,
    /// The tasks that the last claims could not take, and why.
    blocked: BTreeMap<TaskId, (Task, Vec<Reason>)>,
    /// The runs that it could not adopt, until something changes.
    refused: BTreeSet<RunId>,
    /// How many tasks were seen to wait for nothing but a run slot.
    queued: usize,
    /// The claims of the dead that it has asked to remove.
    dropped_claims: BTreeSet<Ticket>,
    /// The limits whose waiting tasks it has asked to return, as they stood then, with the first task that waited.
    returned: BTreeMap<Name, (limit::State, TaskId)>,
    /// Up to where the holders beyond the first ones were looked at.
    parked_after: Option<Resource>,
    /// The resources of which more than the first of those are read that wait for it.
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

    /// Something may have changed.
    pub(super) fn woken(&mut self) {
        self.refused.clear();
        self.returned.clear();
        self.is_due = true;
    }

    /// There may be something to take.
    pub(super) fn freed(&mut self) {
        self.is_due = true;
        self.checked.clear();
    }

    /// The store did not reply: it claims again, and looks for files again before that.
    pub(super) fn on_no_reply(&mut self) {
        self.is_due = true;
        self.checked.clear();
    }

    /// Whether a claim is to be sent, with so much room.
    pub(super) fn is_due(&self, room: usize, context: &Context) -> bool {
        self.is_due && room > 0 && context.only.is_none()
    }

    /// The claim of so many tasks, if there may be something to take; after what was found out about loops.
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

    /// A claim is not sent, or not yet.
    pub(super) fn take_back(&mut self, claim: Claim) {
        self.fresh_runs.extend(claim.runs);
        self.is_due = true;
    }

    /// There is nothing to take, and the runner does not wait for anything.
    pub(super) fn nothing_left(&mut self) {
        self.is_due = false;
    }

    /// Whether something was freed since the last claim was made.
    pub(super) fn is_freed(&self) -> bool {
        self.is_due
    }

    /// The last claim knew nothing of what was freed.
    pub(super) fn stays_freed(&mut self) {
        self.is_due = true;
    }

    /// Takes in what a claim has found, without what it has started.
    pub(super) fn on_claimed(&mut self, claimed: &Claimed, is_full: bool, out: &mut Output) {
        self.is_due = claimed.again;
        self.head = match is_full {
            true => 0,
            false if claimed.again => (2 * self.head).clamp(HEAD, MAX_HEAD),
            false => HEAD,
        };
        // What was found out counts until the claim that asked for it is through, and for one attempt.
        if claimed.unchecked.is_empty() {
            self.checked.clear();
        }
        self.checked.retain(|id| claimed.started.iter().all(|work| work.task.id != *id));
        self.blocked.extend(claimed.blocked.iter().map(|(task, reasons)| (task.id.clone(), (task.clone(), reasons.clone()))));
        let waits_for_slot = |(_, reasons): &&(Task, Vec<Reason>)| matches!(&reasons[..], [Reason::NoSlot { .. }]);
        self.report_queued(claimed.blocked.iter().filter(waits_for_slot).count(), out);
    }

    /// Takes in what was found in the place of the files DONE of loops that may be taken.
    pub(super) fn on_checked(&mut self, found: Vec<(TaskId, Marker)>) {
        for (task, marker) in found {
            match marker {
                Marker::Absent => self.checked.push(task),
                marker => self.found.push(RunRequest::Found { task, marker }.into()),
            }
        }
        self.is_due = true;
    }

    /// The first rows that tell what tasks wait for.
    pub(super) fn first_keys(&self) -> impl Iterator<Item = Key> {
        let others = self.parked_after.clone().map(|after| Key::Parked { after: Some(after), limit: PARKED });
        let behind = self.behind.iter().cloned().map(Key::ParkedOn);
        [Key::Parked { after: None, limit: PARKED }].into_iter().chain(others).chain(behind)
    }

    /// Nothing is left, as far as the first tasks tell that wait for each resource: those behind them may wait for less. Says whether they are still
    /// to be looked at.
    pub(super) fn looks_behind(&mut self, snapshot: &Snapshot) -> bool {
        let is_due = !self.has_looked_behind(snapshot);
        if is_due {
            self.behind = snapshot.parked.iter().map(|(resource, _)| resource.clone()).collect();
        }
        is_due
    }

    pub(super) fn has_looked_behind(&self, snapshot: &Snapshot) -> bool {
        snapshot.parked.iter().all(|(resource, _)| self.behind.contains(resource))
    }

    /// Something is left.
    pub(super) fn forget_those_behind(&mut self) {
        self.behind.clear();
    }

    /// Chooses what to look at next time beside the first ones.
    pub(super) fn turn_page(&mut self, snapshot: &Snapshot) {
        let pages = 1 + usize::from(self.parked_after.is_some());
        // Those that a person has stopped take the place of one.
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
    pub(super) fn overlooks(&self, snapshot: &Snapshot) -> bool {
        snapshot.ready.iter().any(|id| !self.blocked.contains_key(id))
    }

    /// What keeps tasks from starting.
    pub(super) fn reasons(&self, snapshot: &Snapshot, now: &Now, context: &Context) -> Vec<Vec<Reason>> {
        let admission = |task: &Task| facts::admit(task, Some(&context.me.id), &snapshot.coordination, &snapshot.backlog, now);
        let parked = all_parked(snapshot).filter_map(|task| match admission(task) {
            Admission::Run => None,
            Admission::Blocked(reasons) => Some(reasons),
        });
        self.blocked.values().map(|(_, reasons)| reasons.clone()).chain(parked).collect()
    }

    /// Takes away what is over of the resources that tasks wait for, so that these return to the others: time or a death has ended
    /// it, or the one that was to have it has gone without a word.
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
            // One behind the first may want less of a semaphore.
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

    /// The tasks that may wait for a limit of an account whose time has come: they are returned, as long as that changes something.
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

    /// Wakes somebody else in the place of runners that were woken and have not called since; or of this one, if it has no room.
    pub(super) fn passed_on(backlog: &Backlog, room: usize, now: &Now, context: &Context) -> Vec<Request> {
        let woken = backlog.runners.values().filter_map(|runner| Some((runner, runner.woken?)));
        let late = woken.filter(
            |(runner, woken)| {
                if runner.id == context.me.id { room == 0 } else { now.lease >= *woken + ANSWER_WITHIN }
            },
        );
        late.map(|(runner, woken)| RunRequest::PassOn { runner: runner.id.clone(), woken }.into()).collect()
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

    /// Removes the claims of those who died while they waited, each once, and lets the others pass those who were woken and do not try:
    /// what was reserved for them is free then.
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

/// When the next runner that was woken is taken for stalled.
pub(super) fn next_unanswered(backlog: &Backlog, context: &Context) -> Option<Lease> {
    let others = backlog.runners.values().filter(|runner| runner.id != context.me.id);
    others.filter_map(|runner| runner.woken).map(|woken| woken + ANSWER_WITHIN).min()
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

/// The first task of each resource that tasks wait for.
fn parked(snapshot: &Snapshot) -> impl Iterator<Item = (&Resource, &Task)> {
    let task = |id: &TaskId| snapshot.backlog.tasks.get(id).filter(|task| task.state == State::Pending);
    snapshot.parked.iter().filter_map(move |(resource, id)| Some((resource, task(id)?)))
}

/// The same, and those behind them that were read.
fn all_parked(snapshot: &Snapshot) -> impl Iterator<Item = &Task> {
    let behind = snapshot.parked_on.values().flatten().filter_map(|id| snapshot.backlog.tasks.get(id));
    parked(snapshot).map(|(_, task)| task).chain(behind.filter(|task| task.state == State::Pending))
}

/// What a task needs, with its own lock and that of its section.
fn resources(task: &Task) -> impl Iterator<Item = Need> {
    let own = Need::Lock(task.id.lock());
    let section = task.spec.section.as_ref().map(|section| Need::Lock(section.lock()));
    [own].into_iter().chain(section).chain(task.spec.needs_to_begin(true).to_vec())
}
