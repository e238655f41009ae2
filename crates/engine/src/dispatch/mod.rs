//! What a runner does next. Nothing here reads, writes, starts or sleeps: that is the driver's part.
//!
//! ```text
//!   next() --> Load(keys)      read these rows, then loaded(rows)
//!          --> Probe(who)      look at these processes, then probed(…)
//!          --> Check(tasks)    look for the file DONE of these tasks, then checked(…)
//!          --> Call(requests)  send them to the store as one batch, then answered(…) or unanswered()
//!          --> Spawn, Recover, Kill, Nudge, Acknowledge      act on a session; what comes of it is told by started, ended,
//!                                                            gone, did
//!          --> Notify          tell people, then did(…)
//!          --> Gather          find out what the guards of a pipeline ask about, then gathered(…)
//!          --> StopLooking     nobody wants to know that any more; gathered(…) all the same
//!          --> Sleep           until woken (then woken()), one of these dies (then died(…)), or time passes
//!          --> Done            there is nothing left to do here
//! ```
//!
//! A run that has ended is reported together with the claim of the next one, in one transaction. Before it sleeps, a
//! runner tells the store what it waits for and looks once more, so that nothing is freed behind its back.

mod advice;
mod answers;
mod crew;
#[cfg(test)]
mod crew_tests;
mod look;
mod loops;
mod outbox;
mod owned_run;
#[cfg(test)]
mod pipeline_tests;
mod pipelines;
mod shortage;
#[cfg(test)]
mod shortage_tests;
mod silence;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unproven_tests;

pub use advice::{Advice, Options, RunnerEvent};
use owned_run::{OwnedRun, Phase};
use shortage::Backoff;
pub use silence::{Activity, Vitals};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use banksman_core::backlog::Runner;
use banksman_core::event::Resource;
use banksman_core::task::admission::Reason;
use banksman_core::task::retry::Marker;
use banksman_core::{Lease, Liveness, Name, Pipeline, ProcessId, RunId, RunnerId, Seq, Span, TaskId, Ticket};
use banksman_store::{Key, Snapshot};

use crate::facts;
use crate::request::{Request, Seen};
use crate::runs::RunRequest;

/// How many tasks one claim takes at most.
const CLAIM_LIMIT: usize = 16;

/// How many waiting loops are looked at in one go.
const SCAN_LIMIT: u32 = 1_000;

/// How many locks, and semaphores, with a grant that time has ended are swept in one go.
const SWEEP_LIMIT: u32 = 100;

/// How long to wait after the store did not answer.
const RETRY_AFTER: Span = Span::from_secs(1);

/// A runner.
#[derive(Debug)]
pub struct Dispatcher {
    me: Runner,
    options: Options,
    /// The one run that it is there for.
    only: Option<RunId>,
    owned: BTreeMap<RunId, OwnedRun>,
    /// The claims of the dead that it has asked to remove.
    dropped_claims: BTreeSet<Ticket>,
    probes: BTreeMap<ProcessId, Liveness>,
    queue: VecDeque<Advice>,
    requests: Vec<Request>,
    look: Look,
    /// What was found in the place of the files DONE that the current look needs.
    markers: BTreeMap<TaskId, Marker>,
    /// When waiting loops are gone through again. One that is busy never comes to a slow look, so it is not tied to that.
    scan_at: Option<Lease>,
    /// The outbox commands that are being done, and when they are given up.
    doing: BTreeMap<Seq, Lease>,
    /// What came of outbox commands, to be told.
    results: Vec<RunRequest>,
    /// The pipelines whose guards it looks at.
    looking: BTreeMap<TaskId, Looking>,
    /// Up to where in the log it has found who listens.
    listened: Seq,
    /// There is more of the log than the last look has gone through.
    is_behind: bool,
    /// What it has found out about them, to be told.
    judgements: Vec<Request>,
    /// The pipelines that it has said to be held up, by which guard and by which part of it.
    held_up: BTreeMap<TaskId, (Name, Box<str>)>,
    /// When the next outbox command is to be tried again.
    errand_due: Option<Lease>,
    /// What takes grants away that time has ended.
    sweeps: Vec<Request>,
    /// How far waiting loops were gone through.
    scanned: Seq,
    /// Whether it was said that there is nothing left to do, or need not be.
    is_told: bool,
    /// What others must not be asked again until something changes.
    refused: BTreeSet<RunId>,
    passed_over: BTreeMap<TaskId, Vec<Reason>>,
    /// How many ready tasks were seen that somebody holds the lock of.
    locked: usize,
    /// How many tasks were seen to wait for nothing but a run slot.
    queued: usize,
    /// Whether the last look found that only so many roots may be under way.
    roots_are_limited: bool,
    /// Its runs that have given their slot back while they wait for others.
    paused: BTreeSet<RunId>,
    watching: Vec<Resource>,
    enlisted: bool,
    leaving: bool,
    not_before: Option<Lease>,
    fresh_runs: Vec<RunId>,
    news: Vec<RunnerEvent>,
    /// When the last call was sent, and when the last one that renewed its lease.
    entry: Lease,
    renewed_at: Lease,
    /// Whose keepers are to be told of the renewal.
    renewed: Option<BTreeSet<RunId>>,
    /// Up to which event it has found that nothing follows.
    routed: Seq,
    /// Whether something may follow from new events.
    listens: bool,
    /// How long it was stalled itself, and until when it gives others so much longer.
    stall: Option<(Span, Lease)>,
    /// Its machine has not enough of something to start runs.
    shortage: Option<Backoff>,
}

/// A look at guards that is under way.
#[derive(Debug)]
struct Looking {
    /// The last event before it began.
    at: Seq,
    /// The pipeline as it stood then.
    asked: Box<Pipeline>,
    /// Nobody waits for it any more.
    is_moot: bool,
}

/// How far a look at the backlog has come.
#[derive(Debug)]
enum Look {
    /// Everything was looked at.
    Done(Rest),
    /// Something may have changed.
    Due,
    /// The rows of the first read are awaited.
    First,
    /// The locks that they depend on are awaited.
    Second(Box<Snapshot>),
    /// Processes that stand in the way are looked at.
    Probing(Box<Snapshot>),
    /// Files of loops are looked for.
    Checking(Box<Snapshot>),
    /// Loops that wait are read, from this position on.
    Scan(Seq),
    /// Their files are looked for.
    Scanned(Box<Snapshot>),
    /// There is nothing left to do; the tasks are counted.
    Count(Rest),
}

/// What to wait for when there is nothing to do.
#[derive(Debug, Default, Clone)]
struct Rest {
    watch: Vec<ProcessId>,
    /// When to look again, whatever happens.
    until: Lease,
    idle: bool,
}

impl Dispatcher {
    /// A runner that has not begun.
    pub fn new(me: Runner, options: Options) -> Dispatcher {
        Dispatcher {
            me,
            options,
            only: None,
            owned: BTreeMap::new(),
            dropped_claims: BTreeSet::new(),
            probes: BTreeMap::new(),
            queue: VecDeque::new(),
            requests: Vec::new(),
            look: Look::Due,
            markers: BTreeMap::new(),
            scan_at: None,
            doing: BTreeMap::new(),
            results: Vec::new(),
            looking: BTreeMap::new(),
            listened: Seq(0),
            is_behind: false,
            held_up: BTreeMap::new(),
            judgements: Vec::new(),
            sweeps: Vec::new(),
            errand_due: None,
            scanned: Seq(0),
            is_told: false,
            refused: BTreeSet::new(),
            passed_over: BTreeMap::new(),
            locked: 0,
            queued: 0,
            roots_are_limited: false,
            paused: BTreeSet::new(),
            watching: Vec::new(),
            enlisted: false,
            leaving: false,
            not_before: None,
            fresh_runs: Vec::new(),
            news: Vec::new(),
            entry: Lease(0),
            renewed_at: Lease(0),
            renewed: None,
            routed: Seq(0),
            listens: false,
            stall: None,
            shortage: None,
        }
    }

    /// One that takes no tasks: it waits for the end of this run, looks after it if nobody else does, and ends with it. Its
    /// `max_runs` must be 0, by which others know it.
    pub fn only(self, run: RunId) -> Dispatcher {
        Dispatcher { only: Some(run), ..self }
    }

    /// Which runner it is.
    pub fn id(&self) -> &RunnerId {
        &self.me.id
    }

    /// The requests of [`Advice::Call`].
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// What has happened since the last time.
    pub fn news(&mut self) -> Vec<RunnerEvent> {
        std::mem::take(&mut self.news)
    }

    /// The runs whose keepers are to be told that the lease was renewed by the call that was just answered. What counts for
    /// them is when that call was sent.
    pub fn renewed(&mut self) -> Option<BTreeSet<RunId>> {
        self.renewed.take()
    }

    /// This process was stalled for so long, perhaps with all the others.
    pub fn stalled(&mut self, late: Span, now: Lease) {
        // After another lease whoever lives has been heard of again.
        if let Some(ttl) = self.options.lease {
            self.stall = Some((late.min(ttl), now + ttl));
        }
    }

    /// Provides ids for the runs of the next claim.
    pub fn give_ids(&mut self, fresh: impl FnMut() -> RunId) {
        let missing = CLAIM_LIMIT.saturating_sub(self.fresh_runs.len());
        self.fresh_runs.extend(std::iter::repeat_with(fresh).take(missing));
    }

    /// Something may have changed.
    pub fn woken(&mut self) {
        self.refused.clear();
        self.passed_over.clear();
        self.look = Look::Due;
    }

    /// Starts nothing more, leaves its sessions to their keepers, and ends.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// A process that was watched has died.
    pub fn died(&mut self, process: ProcessId) {
        self.probes.insert(process, Liveness::Dead);
        self.woken();
    }

    /// What to do now.
    pub fn next(&mut self, now: Lease) -> Advice {
        let advice = self.choose_next(now);
        if advice == Advice::Call {
            self.entry = now;
        }
        advice
    }

    fn choose_next(&mut self, now: Lease) -> Advice {
        if let Some(advice) = self.queue.pop_front() {
            return advice;
        }
        // Who leaves waits for nothing more: what told it to leave would end every sleep at once.
        if self.leaving {
            return self.farewell();
        }
        if let Some(wait) = self.not_before.map(|until| until - now).filter(|wait| *wait > Span::ZERO) {
            return Advice::Sleep { watch: Vec::new(), at_most: wait };
        }
        self.not_before = None;
        if !self.enlisted {
            let enlist = RunRequest::Enlist { runner: Box::new(self.me.clone()), limits: self.options.limits };
            let requests: Vec<RunRequest> = std::iter::once(enlist).chain(self.renewal()).collect();
            return self.call(requests);
        }
        if self.renewal_due().is_some_and(|due| due <= now) {
            let renewal = self.renewal();
            return self.call(renewal);
        }
        if let Some(owned) = self.owned.values_mut().find(|owned| owned.recover_at.is_some_and(|due| due <= now)) {
            owned.recover_at = None;
            return Advice::Recover(Box::new(owned.work.clone()));
        }
        if self.has_ended() || self.is_time_to_try(now) {
            self.look = Look::Due;
        }
        match &self.look {
            Look::Due if self.only.is_none() && self.scan_at.is_none_or(|due| due <= now) => {
                let after = self.scanned;
                self.look = Look::Scan(after);
                Advice::Load([Key::Loops { after, limit: SCAN_LIMIT }, Key::Expired { now, limit: SWEEP_LIMIT }].into())
            }
            Look::Due => {
                self.look = Look::First;
                Advice::Load(self.first_keys(now))
            }
            // The driver came back without an answer: it is asked again.
            Look::First
            | Look::Second(_)
            | Look::Probing(_)
            | Look::Checking(_)
            | Look::Scan(_)
            | Look::Scanned(_)
            | Look::Count(_) => {
                self.look = Look::Due;
                Advice::Sleep { watch: Vec::new(), at_most: RETRY_AFTER }
            }
            Look::Done(rest) => {
                let rest = rest.clone();
                self.rest(rest, now)
            }
        }
    }

    fn rest(&mut self, rest: Rest, now: Lease) -> Advice {
        let due = self.owned.values().filter_map(|owned| owned.report.as_ref()).map(|(_, due)| *due).min();
        if due.is_some_and(|due| due <= now) {
            return self.report_starts();
        }
        if let Some(advice) = self.watch_runs(now) {
            return advice;
        }
        if let Some(advice) = self.give_up_errands(now) {
            return advice;
        }
        if let Some(advice) = self.judge() {
            return advice;
        }
        // People are told before it goes.
        let is_done = self.only_unproven() && self.doing.is_empty() && self.errand_due.is_none();
        if rest.idle && (self.options.until_idle || self.only.is_some()) && is_done {
            self.leaving = true;
            return self.farewell();
        }
        // Which outbox command that is, and whether it is still to be done, the rows tell.
        if self.errand_due.take_if(|due| *due <= now).is_some() {
            self.look = Look::Due;
            return self.choose_next(now);
        }
        if rest.until <= now {
            // Not everybody who was found alive is watched.
            self.probes.retain(|_, liveness| matches!(liveness, Liveness::Dead | Liveness::OtherBoot));
            self.woken();
            return self.choose_next(now);
        }
        let recovery = self.owned.values().filter_map(|owned| owned.recover_at).min();
        let waits = [self.errand_due, self.doing.values().min().copied(), self.try_at()];
        let due = [due, recovery, self.renewal_due(), self.watch_due()].into_iter().chain(waits);
        let until = due.flatten().fold(rest.until, Lease::min);
        Advice::Sleep { watch: rest.watch, at_most: until - now }
    }

    /// What it has to say where others cannot see that it lives.
    fn renewal(&self) -> Option<RunRequest> {
        self.options.lease.map(|_| RunRequest::Renew { runner: self.me.id.clone() })
    }

    /// When it must be heard of again.
    fn renewal_due(&self) -> Option<Lease> {
        self.options.lease.map(|ttl| self.renewed_at + Span::from_ms(ttl.as_ms() / 3))
    }

    /// Goes.
    fn farewell(&mut self) -> Advice {
        if !self.enlisted {
            return Advice::Done;
        }
        self.tell_queued(0);
        // The sessions that it leaves behind have as long as possible to be adopted.
        let renewal = self.renewal().filter(|_| !self.owned.is_empty());
        let mut requests: Vec<RunRequest> = renewal.into_iter().collect();
        requests.push(RunRequest::Retire { runner: self.me.id.clone(), seen: Seen::default() });
        self.enlisted = false;
        self.call(requests)
    }

    fn call(&mut self, requests: impl IntoIterator<Item: Into<Request>>) -> Advice {
        self.requests = requests.into_iter().map(Into::into).collect();
        Advice::Call
    }

    fn first_keys(&self, now: Lease) -> BTreeSet<Key> {
        let room = self.room();
        let of_each = u32::try_from(if room > 0 { room + self.locked } else { 0 }).unwrap_or(u32::MAX);
        let mut keys = BTreeSet::from(facts::common_keys());
        keys.insert(Key::Outbox);
        if self.only.is_some() {
            keys.insert(Key::OpenDecisions);
            return keys;
        }
        if of_each > 0 {
            keys.insert(Key::Ready { of_each });
        }
        if of_each > 0 && self.roots_are_limited {
            keys.insert(Key::Queue { of_each });
        }
        // Who ends when nothing is left has to know what those wait for that are not due.
        let until = if self.options.until_idle { Lease(i64::MAX) } else { now };
        keys.extend([Key::Due, Key::DuePipelines { now: until, limit: pipelines::PIPELINES }]);
        // Whether somebody still waits for what it looks at.
        keys.extend(self.looking.keys().cloned().map(Key::Pipeline));
        if self.serves() {
            keys.insert(Key::Crew);
        }
        keys
    }
}
