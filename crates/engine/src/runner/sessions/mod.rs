//! The runs of a runner, and the state of their sessions.

mod silence;

pub use silence::{Activity, Vitals};

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::{Backlog, RunEndRecord, Session};
use banksman_core::task::retry::Marker;
use banksman_core::task::{self, After, Pulse, Watch};
use banksman_core::{Lease, Name, RunId, Span, Status, Task, TaskId};
use banksman_store::Snapshot;

use super::RETRY_AFTER;
use super::context::Context;
use super::protocol::{Action, Output, RunnerEvent};
use crate::calls::accounts::AccountRequest;
use crate::calls::mailbox::has_prompt;
use crate::calls::runs::{RunRequest, Work};
use crate::calls::tasks::TaskRequest;
use crate::request::Request;

/// The time after which the start of a session is reported along with other requests. Before that, its end may make the report unnecessary.
const REPORT_ALONG: Span = Span::from_ms(250);

/// The time after which the start of a session is reported in any case.
const REPORT_AFTER: Span = Span::from_ms(500);

#[derive(Debug, Default)]
pub(super) struct Sessions {
    owned: BTreeMap<RunId, OwnedRun>,
    /// The runs that have freed their slot while they wait for others.
    paused: BTreeSet<RunId>,
    pending: Vec<Request>,
}

/// A run of this runner.
#[derive(Debug)]
struct OwnedRun {
    work: Work,
    phase: Phase,
    /// The processes, and when they began, until the start is reported to the store.
    report: Option<(Session, Lease)>,
    /// The last observed activity.
    seen: Lease,
    stuck: bool,
    /// The store has decided to end the run: its duration is no longer checked.
    stopping: bool,
    /// End the session without a grace period.
    at_once: bool,
    /// When the next checkpoint is recorded.
    checkpoint_at: Option<Lease>,
    /// When to recover the session again.
    recover_at: Option<Lease>,
    /// Its keeper is dead, but its processes cannot be proven dead: only a person can end the run.
    unproven: bool,
    /// This runner has claimed it, and the session has not begun as far as is known.
    is_fresh: bool,
    /// A pulse of its keeper is pending.
    is_asked: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Live,
    Killing,
    Ended(RunEndRecord),
}

impl OwnedRun {
    fn new(work: Work) -> OwnedRun {
        let live = work.task.live();
        let seen = live.map_or(work.run.started.lease, |live| live.seen.lease);
        let stuck = work.task.status() == Status::Stuck;
        let stopping = matches!(work.task.state, task::State::Stopping { .. });
        let (report, checkpoint_at, recover_at) = (None, None, None);
        let (phase, unproven, is_fresh, is_asked) = (Phase::Live, false, false, false);
        let at_once = matches!(work.task.state, task::State::Stopping { then: After::PutBack { now: true }, .. });
        OwnedRun { work, phase, report, seen, stuck, stopping, at_once, checkpoint_at, recover_at, unproven, is_fresh, is_asked }
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }
}

impl Sessions {
    pub(super) fn work(&self, run: &RunId) -> Option<&Work> {
        self.owned.get(run).map(|owned| &owned.work)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owned.is_empty()
    }

    /// Whether this runner has a run that is not among its runs in the store.
    pub(super) fn has_others_than(&self, runs: &BTreeSet<RunId>) -> bool {
        self.owned.keys().any(|run| !runs.contains(run))
    }

    /// Whether the session of a run is being ended, and was not seen dead.
    pub(super) fn is_being_killed(&self, run: &RunId) -> bool {
        self.owned.get(run).is_some_and(|owned| owned.phase == Phase::Killing || (owned.stopping && owned.phase == Phase::Live))
    }

    pub(super) fn is_live(&self, run: &RunId) -> bool {
        self.owned.get(run).is_some_and(|owned| owned.phase == Phase::Live)
    }

    /// The task of a run whose session is live.
    pub(super) fn live_task(&self, run: &RunId) -> Option<&TaskId> {
        self.owned.get(run).filter(|owned| owned.phase == Phase::Live).map(|owned| &owned.work.task.id)
    }

    /// Marks the session of a run as being ended, unless it has ended or has no keeper that could end it.
    pub(super) fn kill(&mut self, run: &RunId, at_once: bool) -> bool {
        let owned = self.owned.get_mut(run).filter(|owned| !owned.unproven && !owned.has_ended());
        owned.map(|owned| (owned.phase, owned.at_once) = (Phase::Killing, owned.at_once || at_once)).is_some()
    }

    /// Whether the session of a run is being ended without a grace period.
    pub(super) fn is_killed_at_once(&self, run: &RunId) -> bool {
        self.owned.get(run).is_some_and(|owned| owned.at_once)
    }

    /// Takes in a run that was claimed (`is_fresh`) or adopted.
    pub(super) fn begin(&mut self, work: Work, is_fresh: bool, out: &mut Output) {
        self.owned.insert(work.run.id.clone(), OwnedRun { is_fresh, ..OwnedRun::new(work.clone()) });
        let work = Box::new(work);
        if is_fresh {
            out.act(Action::Spawn(work));
        } else {
            out.report(RunnerEvent::Adopted(work.clone()));
            out.act(Action::Recover(work));
        }
    }

    pub(super) fn started(&mut self, run: &RunId, session: Session, now: Lease) {
        if let Some(owned) = self.owned.get_mut(run).filter(|owned| owned.work.run.session.is_none()) {
            owned.report = Some((session, now));
        }
    }

    /// Marks a fresh run as begun. Returns whether it was fresh.
    pub(super) fn has_begun(&mut self, run: &RunId, out: &mut Output) -> bool {
        let Some(owned) = self.owned.get_mut(run).filter(|owned| owned.is_fresh) else { return false };
        owned.is_fresh = false;
        out.report(RunnerEvent::Started(Box::new(owned.work.clone())));
        true
    }

    pub(super) fn ended(&mut self, run: &RunId, ending: RunEndRecord) -> bool {
        let Some(owned) = self.owned.get_mut(run) else { return false };
        owned.is_fresh = false;
        owned.report = None;
        owned.phase = Phase::Ended(ending);
        true
    }

    /// Reports that the model has answered a run, so that the tasks that wait for the limit that the run tries can start.
    pub(super) fn answered(&mut self, run: &RunId) {
        if let Some(owned) = self.owned.get(run).filter(|owned| owned.work.run.agent.as_ref().is_some_and(|agent| agent.probes)) {
            let (run, owner_epoch) = (run.clone(), owned.work.run.owner_epoch);
            self.pending.push(AccountRequest::Answered { run, owner_epoch }.into());
        }
    }

    pub(super) fn keeper_gone(&mut self, run: &RunId, out: &mut Output) {
        if let Some(owned) = self.open(run) {
            owned.phase = Phase::Live;
            out.act(Action::Recover(Box::new(owned.work.clone())));
        }
    }

    pub(super) fn unclear(&mut self, run: &RunId, now: Lease) {
        if let Some(owned) = self.open(run) {
            owned.recover_at = Some(now + RETRY_AFTER);
        }
    }

    pub(super) fn unproven(&mut self, run: &RunId, why: Box<str>, context: &Context, now: Lease) {
        let Some(owned) = self.open(run) else { return };
        (owned.unproven, owned.recover_at) = (true, Some(now + context.options.poll));
        let what = Box::new(owned.work.clone());
        self.pending.push(RunRequest::Unproven { runner: context.id(), what, why }.into());
    }

    /// Handles a missing reply: it is unknown whether a person was asked about these sessions, so they are recovered again.
    pub(super) fn on_no_reply(&mut self, requests: &[Request], now: Lease) {
        for request in requests {
            if let Request::Run(RunRequest::Unproven { what, .. }) = request
                && let Some(owned) = self.open(&what.run.id)
            {
                (owned.unproven, owned.recover_at) = (false, Some(now + RETRY_AFTER));
            }
        }
    }

    fn open(&mut self, run: &RunId) -> Option<&mut OwnedRun> {
        self.owned.get_mut(run).filter(|owned| !owned.has_ended())
    }

    /// Whether all runs of this runner need a person.
    pub(super) fn only_unproven(&self) -> bool {
        self.owned.values().all(|owned| owned.unproven)
    }

    pub(super) fn is_unproven(&self, run: &RunId) -> bool {
        self.owned.get(run).is_some_and(|owned| owned.unproven)
    }

    /// The request that reports the session of a run as dead, although its process tree may not be.
    pub(super) fn session_dead(&self, run: &RunId, watch: Watch) -> Option<Request> {
        let work = self.work(run)?;
        let (id, epoch) = (work.task.id.clone(), work.run.epoch);
        Some(Request::Task(TaskRequest::Heartbeat { id, epoch, pulse: Pulse::SessionDead, watch }))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.owned.values().any(OwnedRun::has_ended)
    }

    /// The tasks whose runs have ended without a report yet.
    pub(super) fn ended_tasks(&self) -> impl Iterator<Item = &Task> {
        self.owned.values().filter(|owned| owned.has_ended()).map(|owned| &owned.work.task)
    }

    /// How many runs occupy a place of this runner. A run that waits for its children leaves its place to them, or a runner with one
    /// place would never start them.
    pub(super) fn living(&self) -> usize {
        self.owned.iter().filter(|(id, owned)| !owned.has_ended() && !self.paused.contains(*id)).count()
    }

    /// How many sessions are known to have begun and have not ended.
    pub(super) fn begun(&self) -> usize {
        self.owned.values().filter(|owned| !owned.is_fresh && !owned.has_ended()).count()
    }

    /// Records which runs of this runner have no slot.
    pub(super) fn note_paused(&mut self, snapshot: &Snapshot, context: &Context) {
        let Some(slots) = snapshot.coordination.semaphores.get(&Name::runs()) else { return };
        let live = snapshot.backlog.runs.values().filter(|run| run.owner == context.me.id);
        self.paused = live.filter(|run| !slots.holders.contains_key(&run.id.holder())).map(|run| run.id.clone()).collect();
    }

    /// Compares the runs of this runner with the rows.
    pub(super) fn reconcile(&mut self, backlog: &Backlog, context: &Context, out: &mut Output) {
        let is_own = |run: &RunId| backlog.runs.get(run).is_some_and(|run| run.owner == context.me.id);
        // The runs of a runner that was dismissed as dead may have another owner.
        for (run, _) in self.owned.extract_if(.., |run, _| !is_own(run)) {
            if backlog.runs.contains_key(&run) {
                out.act(Action::Forget(run));
            } else {
                // The run has ended in the store; if some of its processes live, no other runner would ever end them.
                out.act(Action::Kill(run.clone(), false));
                out.act(Action::Acknowledge(run));
            }
        }
        // A run of this runner that it does not know: the reply to its claim was lost.
        for run in backlog.runs.values().filter(|run| run.owner == context.me.id) {
            if let Some(task) = backlog.tasks.get(&run.task).filter(|_| !self.owned.contains_key(&run.id)) {
                let work = Work { run: run.clone(), task: task.clone() };
                self.owned.insert(run.id.clone(), OwnedRun::new(work.clone()));
                out.act(Action::Recover(Box::new(work)));
            }
        }
    }

    /// Reports the runs that have ended. `marker` returns the state of the file DONE, if it was checked.
    pub(super) fn finishes(&self, context: &Context, marker: impl Fn(&Task) -> Option<Marker>) -> Vec<Request> {
        let finish = |owned: &OwnedRun| {
            let Phase::Ended(ending) = &owned.phase else { return None };
            let (runner, what, watch) = (context.id(), Box::new(owned.work.clone()), context.options.watch);
            let marker = marker(&owned.work.task)?;
            Some(RunRequest::Finish { runner, what, ending: ending.clone(), marker, watch }.into())
        };
        self.owned.values().filter_map(finish).collect()
    }

    /// Acknowledges the end of a run that is in the store.
    pub(super) fn on_finished(&mut self, run: RunId, out: &mut Output) {
        self.owned.remove(&run);
        out.act(Action::Acknowledge(run));
    }

    /// The due reports about the runs: activity, runs that take too long, and starts, which wait a while for other requests.
    pub(super) fn requests(&mut self, is_written_anyway: bool, context: &Context, now: Lease) -> Vec<Request> {
        let mut requests = std::mem::take(&mut self.pending);
        requests.extend(self.overtime(context, now));
        let is_due = self.report_due().is_some_and(|due| due <= now);
        if is_written_anyway || !requests.is_empty() || is_due {
            requests.extend(self.owned.values_mut().filter_map(|owned| owned.report_start(is_due, now)));
        }
        requests
    }

    /// The next recovery that is due.
    pub(super) fn next_recovery(&mut self, now: Lease) -> Option<Action> {
        let owned = self.owned.values_mut().find(|owned| owned.recover_at.is_some_and(|due| due <= now))?;
        owned.recover_at = None;
        Some(Action::Recover(Box::new(owned.work.clone())))
    }

    fn report_due(&self) -> Option<Lease> {
        self.owned.values().filter_map(|owned| owned.report.as_ref()).map(|(_, began)| *began + REPORT_AFTER).min()
    }

    pub(super) fn next_deadline(&self, context: &Context) -> Option<Lease> {
        let recovery = self.owned.values().filter_map(|owned| owned.recover_at).min();
        [self.report_due(), recovery, self.watch_due(context)].into_iter().flatten().min()
    }
}

impl OwnedRun {
    fn report_start(&mut self, is_due: bool, now: Lease) -> Option<Request> {
        let (session, _) = self.report.take_if(|(_, began)| is_due || *began + REPORT_ALONG <= now)?;
        let (run, owner_epoch) = (self.work.run.id.clone(), self.work.run.owner_epoch);
        self.work.run.session = Some(session.clone());
        let prompted = has_prompt(&self.work.task).then(|| self.work.task.id.clone());
        Some(RunRequest::Started { run, owner_epoch, session, prompted }.into())
    }
}
