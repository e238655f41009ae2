//! The runs that a runner looks after, and what becomes of their sessions.

use banksman_core::backlog::{Ended, Session};
use banksman_core::task::{self, Pulse};
use banksman_core::{Lease, RunId, Span, Status};

use super::{Advice, CLAIM_LIMIT, Dispatcher, RETRY_AFTER};
use crate::request::Request;
use crate::runs::{RunRequest, Work};
use crate::tasks::TaskRequest;

/// How long the report of a start may wait for others, or for the end that makes it unnecessary.
const REPORT_AFTER: Span = Span::from_ms(20);

/// One of them.
#[derive(Debug)]
pub(super) struct OwnedRun {
    pub(super) work: Work,
    pub(super) phase: Phase,
    /// The processes, and when the store is told of them.
    pub(super) report: Option<(Session, Lease)>,
    /// Its last sign of life, as far as it was looked for.
    pub(super) seen: Lease,
    pub(super) stuck: bool,
    /// It is to be ended, as far as the store has told: nobody needs to find that it takes too long.
    pub(super) stopping: bool,
    /// When it is recorded next.
    pub(super) checkpoint_at: Option<Lease>,
    /// When to find out again what became of its session.
    pub(super) recover_at: Option<Lease>,
    /// Its keeper is dead, and it cannot be proven that its processes are: only a person can end it.
    pub(super) unproven: bool,
    /// It was claimed by this runner, and has not begun as far as is known.
    pub(super) is_fresh: bool,
    /// Its keeper is being asked about it.
    pub(super) is_asked: bool,
}

impl OwnedRun {
    pub(super) fn new(work: Work) -> OwnedRun {
        let live = work.task.live();
        let seen = live.map_or(work.run.started.lease, |live| live.seen.lease);
        let stuck = work.task.status() == Status::Stuck;
        let stopping = matches!(work.task.state, task::State::Stopping { .. });
        let (report, checkpoint_at, recover_at) = (None, None, None);
        let (phase, unproven, is_fresh, is_asked) = (Phase::Live, false, false, false);
        OwnedRun { work, phase, report, seen, stuck, stopping, checkpoint_at, recover_at, unproven, is_fresh, is_asked }
    }
}

/// How far it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Live,
    Killing,
    Ended(Ended),
}

impl Dispatcher {
    /// The work of a run that it looks after.
    pub fn work(&self, run: &RunId) -> Option<&Work> {
        self.owned.get(run).map(|owned| &owned.work)
    }

    /// Whether the session of a run is to end, and was not seen dead.
    pub fn is_being_killed(&self, run: &RunId) -> bool {
        self.owned.get(run).is_some_and(|owned| owned.phase == Phase::Killing || (owned.stopping && owned.phase == Phase::Live))
    }

    /// The session of a run has begun.
    pub fn started(&mut self, run: &RunId, session: Session, now: Lease) {
        if let Some(owned) = self.owned.get_mut(run).filter(|owned| owned.work.run.session.is_none()) {
            owned.report = Some((session, now + REPORT_AFTER));
        }
        self.has_begun(run, now);
    }

    /// The tree of a run was seen dead.
    pub fn ended(&mut self, run: &RunId, ending: Ended) {
        self.has_begun(run, self.entry);
        if let Some(owned) = self.owned.get_mut(run) {
            owned.report = None;
            owned.phase = Phase::Ended(ending);
            // What it leaves may be what others were refused for, and they come before those who were not.
            self.passed_over.clear();
        }
    }

    /// The keeper of a run is gone and has left no word.
    pub fn gone(&mut self, run: &RunId) {
        if let Some(owned) = self.owned.get_mut(run).filter(|owned| !matches!(owned.phase, Phase::Ended(_))) {
            owned.phase = Phase::Live;
            let work = owned.work.clone();
            self.queue.push_back(Advice::Recover(Box::new(work)));
        }
    }

    /// What became of the session of a run could not be found out. It is tried again in a moment.
    pub fn unclear(&mut self, run: &RunId, now: Lease) {
        if let Some(owned) = self.owned.get_mut(run).filter(|owned| !matches!(owned.phase, Phase::Ended(_))) {
            owned.recover_at = Some(now + RETRY_AFTER);
        }
    }

    /// The keeper of a run is dead, and it cannot be proven that its processes are. A person is asked, once; meanwhile it is looked at
    /// again from time to time.
    pub fn unproven(&mut self, run: &RunId, why: Box<str>, now: Lease) {
        let again = now + self.options.poll;
        if let Some(owned) = self.owned.get_mut(run).filter(|owned| !matches!(owned.phase, Phase::Ended(_))) {
            (owned.unproven, owned.recover_at) = (true, Some(again));
            let what = Box::new(owned.work.clone());
            self.results.push(RunRequest::Unproven { runner: self.me.id.clone(), what, why });
        }
    }

    /// Whether all that is left to do for its runs is up to a person.
    pub(super) fn only_unproven(&self) -> bool {
        self.owned.values().all(|owned| owned.unproven)
    }

    /// The request that tells that the session of a run is dead, though its tree may not be.
    pub fn session_dead(&self, run: &RunId) -> Option<Request> {
        let work = &self.owned.get(run)?.work;
        Some(Request::Task(TaskRequest::Heartbeat {
            id: work.task.id.clone(),
            epoch: work.run.epoch,
            pulse: Pulse::SessionDead,
            watch: self.options.watch,
        }))
    }

    pub(super) fn report_starts(&mut self) -> Advice {
        let mut requests = Vec::new();
        for owned in self.owned.values_mut() {
            if let Some((session, _)) = owned.report.take() {
                let (run, owner_epoch) = (owned.work.run.id.clone(), owned.work.run.owner_epoch);
                owned.work.run.session = Some(session.clone());
                requests.push(RunRequest::Started { run, owner_epoch, session });
            }
        }
        self.call(requests)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.owned.values().any(|owned| matches!(owned.phase, Phase::Ended(_)))
    }

    /// How many more runs it may have, once those that have ended are reported.
    pub(super) fn room(&self) -> usize {
        // One that waits for its children leaves its place to them, or a runner with one place would never start them.
        let is_at_work = |id: &RunId, owned: &OwnedRun| !matches!(owned.phase, Phase::Ended(_)) && !self.paused.contains(id);
        let living = self.owned.iter().filter(|(id, owned)| is_at_work(id, owned)).count();
        let own = self.options.max_runs.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
        let room = own.saturating_sub(living).min(CLAIM_LIMIT);
        self.shortage.as_ref().map_or(room, |shortage| room.min(shortage.room(living)))
    }
}
