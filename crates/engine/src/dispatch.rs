//! What a runner does next. Nothing here reads, writes, starts or sleeps: that is the driver's part.
//!
//! ```text
//!   next() --> Load(keys)      read these rows, then loaded(rows)
//!          --> Probe(who)      look at these processes, then probed(…)
//!          --> Call(requests)  send them to the store as one batch, then answered(…) or unanswered()
//!          --> Spawn, Recover, Kill, Acknowledge      act on a session; what comes of it is told by started, ended, gone
//!          --> Sleep           until woken (then woken()), one of these dies (then died(…)), or time passes
//!          --> Done            there is nothing left to do here
//! ```
//!
//! A run that has ended is reported together with the claim of the next one, in one transaction. Before it sleeps, a
//! runner tells the store what it waits for and looks once more, so that nothing is freed behind its back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use banksman_core::admission::{Admission, Holding, Reason};
use banksman_core::backlog::{Backlog, Ended, Run, Runner, Session};
use banksman_core::event::Resource;
use banksman_core::task::{self, Pulse};
use banksman_core::{Errand, Lease, Liveness, Name, Now, ProcessId, RunId, RunnerId, SectionId, Span, Status, Task, TaskId};
use banksman_store::{Key, Snapshot};

use crate::facts;
use crate::request::{Reply, Request, Seen};
use crate::runs::{Candidate, RunOutcome, RunRequest, Work, occupy};
use crate::tasks::{TaskOutcome, TaskRequest};

/// How many tasks one claim takes at most.
const CLAIM_LIMIT: usize = 16;

/// How long the report of a start may wait for others, or for the end that makes it unnecessary.
const REPORT_AFTER: Span = Span::from_ms(20);

/// How long to wait after the store did not answer.
const RETRY_AFTER: Span = Span::from_secs(1);

/// What a runner was told to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many runs it has at a time, at most.
    pub max_runs: Option<u32>,
    /// How many runs the project allows at a time; 0 for any number.
    pub limit: u32,
    /// The sections it works in; all if empty.
    pub sections: Vec<SectionId>,
    /// Whether to end when there is nothing left to do.
    pub until_idle: bool,
    /// How many lost runs of a task are followed by another.
    pub max_recoveries: u32,
    /// How long to sleep at most: covers wake-ups that were lost.
    pub poll: Span,
    /// How long a run may be without a sign of life.
    pub heartbeat_timeout: Option<Span>,
    /// After which silence others may take its runs for lost, where they cannot see whether it lives: it renews three times
    /// as often. `None` where all runners are on one machine. The [terms](Runner::terms) of its row say the same.
    pub lease: Option<Span>,
}

/// What the driver does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// Read these rows.
    Load(BTreeSet<Key>),
    /// Look at these processes.
    Probe(Vec<ProcessId>),
    /// Send as many requests as [`Dispatcher::requests`] holds, as one batch.
    Call,
    /// Start the session of a run.
    Spawn(Box<Work>),
    /// Find out what became of the session of a run, and go on from there.
    Recover(Box<Work>),
    /// Find out since when nothing was seen of a run, and tell by [`Dispatcher::pulse`].
    Pulse(RunId),
    /// End the session of a run.
    Kill(RunId),
    /// Tell the keeper of a run that its end is durable.
    Acknowledge(RunId),
    /// Let go of the session of a run: another runner looks after it.
    Forget(RunId),
    /// Sleep.
    Sleep {
        /// Wake up when one of these dies.
        watch: Vec<ProcessId>,
        /// How long at most.
        at_most: Span,
    },
    /// There is nothing left to do.
    Done,
}

/// What has happened, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A run begins.
    Started(Box<Work>),
    /// A run of a runner that is gone is looked after.
    Adopted(Box<Work>),
    /// Nothing was seen of a run for too long.
    Stuck(Box<Work>),
    /// It does something again.
    Recovered(Box<Work>),
    /// A run has ended, and this is what its task makes of it.
    Ended(Box<Work>, Ended, task::Outcome),
    /// So many more ready tasks wait for nothing but a run slot, or fewer. Counted are those that a look sees: the
    /// first few of each kind.
    Queued(i64),
}

/// A runner.
#[derive(Debug)]
pub struct Dispatcher {
    me: Runner,
    options: Options,
    /// The one run that it is there for.
    only: Option<RunId>,
    mine: BTreeMap<RunId, Mine>,
    /// The exclusive sections whose lock it has.
    sections: BTreeSet<SectionId>,
    probes: BTreeMap<ProcessId, Liveness>,
    queue: VecDeque<Advice>,
    requests: Vec<Request>,
    look: Look,
    /// What others must not be asked again until something changes.
    refused: BTreeSet<RunId>,
    passed_over: BTreeMap<TaskId, Vec<Reason>>,
    /// How many tasks were seen to wait for nothing but a run slot.
    queued: usize,
    /// Its runs that have given their slot back while they wait for others.
    paused: BTreeSet<RunId>,
    watching: Vec<Resource>,
    enlisted: bool,
    leaving: bool,
    not_before: Option<Lease>,
    fresh_runs: Vec<RunId>,
    news: Vec<News>,
    /// When the last call was sent, and when the last one that renewed its lease.
    sent: Lease,
    renewed_at: Lease,
    /// Whose keepers are to be told of the renewal.
    renewed: Option<BTreeSet<RunId>>,
    /// How long it was stalled itself, and until when it gives others so much longer.
    stall: Option<(Span, Lease)>,
}

#[derive(Debug)]
struct Mine {
    work: Work,
    phase: Phase,
    /// The processes, and when the store is told of them.
    report: Option<(Session, Lease)>,
    /// Its last sign of life, as far as it was looked for.
    seen: Lease,
    stuck: bool,
}

impl Mine {
    fn new(work: Work) -> Mine {
        let live = work.task.live();
        let seen = live.map_or(work.run.started.lease, |live| live.seen.lease);
        let stuck = work.task.status() == Status::Stuck;
        Mine { work, phase: Phase::Live, report: None, seen, stuck }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Live,
    Killing,
    Ended(Ended),
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
            mine: BTreeMap::new(),
            sections: BTreeSet::new(),
            probes: BTreeMap::new(),
            queue: VecDeque::new(),
            requests: Vec::new(),
            look: Look::Due,
            refused: BTreeSet::new(),
            passed_over: BTreeMap::new(),
            queued: 0,
            paused: BTreeSet::new(),
            watching: Vec::new(),
            enlisted: false,
            leaving: false,
            not_before: None,
            fresh_runs: Vec::new(),
            news: Vec::new(),
            sent: Lease(0),
            renewed_at: Lease(0),
            renewed: None,
            stall: None,
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
    pub fn news(&mut self) -> Vec<News> {
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

    /// The work of a run that it looks after.
    pub fn work(&self, run: &RunId) -> Option<&Work> {
        self.mine.get(run).map(|mine| &mine.work)
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
            self.sent = now;
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
            let enlist = RunRequest::Enlist { runner: Box::new(self.me.clone()), limit: self.options.limit };
            return self.call(std::iter::once(enlist).chain(self.renewal()).collect());
        }
        if self.renewal_due().is_some_and(|due| due <= now) {
            let renewal = self.renewal();
            return self.call(renewal.into_iter().collect());
        }
        if self.has_ended() {
            self.look = Look::Due;
        }
        match &self.look {
            Look::Due => {
                self.look = Look::First;
                Advice::Load(self.first_keys())
            }
            // The driver came back without an answer: it is asked again.
            Look::First | Look::Second(_) | Look::Probing(_) => {
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
        let due = self.mine.values().filter_map(|mine| mine.report.as_ref()).map(|(_, due)| *due).min();
        if due.is_some_and(|due| due <= now) {
            return self.report_starts();
        }
        if let Some(run) = self.silent(now) {
            return Advice::Pulse(run);
        }
        if rest.idle && (self.options.until_idle || self.only.is_some()) && self.mine.is_empty() {
            self.leaving = true;
            return self.farewell();
        }
        if rest.until <= now {
            // Not everybody who was found alive is watched.
            self.probes.retain(|_, liveness| matches!(liveness, Liveness::Dead | Liveness::OtherBoot));
            self.woken();
            return self.choose_next(now);
        }
        let until = due.into_iter().chain(self.renewal_due()).chain(self.silence_due()).fold(rest.until, Lease::min);
        Advice::Sleep { watch: rest.watch, at_most: until - now }
    }

    /// When a run will have been without a sign of life for too long.
    fn silence_due(&self) -> Option<Lease> {
        let timeout = self.options.heartbeat_timeout?;
        self.mine.values().filter(|mine| mine.phase == Phase::Live).map(|mine| mine.seen + timeout).min()
    }

    /// A run that has been without a sign of life for too long. It is looked at once per deadline.
    fn silent(&mut self, now: Lease) -> Option<RunId> {
        let timeout = self.options.heartbeat_timeout?;
        let is_silent = |mine: &Mine| mine.phase == Phase::Live && mine.seen + timeout <= now;
        let (run, mine) = self.mine.iter_mut().find(|(_, mine)| is_silent(mine))?;
        mine.seen = now;
        Some(run.clone())
    }

    /// A run was looked at: nothing was seen of it for so long.
    pub fn pulse(&mut self, run: &RunId, quiet: Span, now: Lease) {
        let Some(timeout) = self.options.heartbeat_timeout else { return };
        let Some(mine) = self.mine.get_mut(run) else { return };
        let is_quiet = quiet >= timeout;
        if !is_quiet {
            mine.seen = Lease(now.0 - quiet.as_ms());
        }
        // What the store knows of it may be newer; and one that moves again is stuck no longer.
        if is_quiet != mine.stuck {
            let pulse = if is_quiet { Pulse::Idle(quiet) } else { Pulse::Active };
            let (id, epoch) = (mine.work.task.id.clone(), mine.work.run.epoch);
            self.requests = vec![Request::Task(TaskRequest::Heartbeat { id, epoch, pulse, timeout })];
            self.queue.push_back(Advice::Call);
        }
    }

    /// What it has to say where others cannot see that it lives.
    fn renewal(&self) -> Option<RunRequest> {
        self.options.lease.map(|_| RunRequest::Renew { runner: self.me.id.clone() })
    }

    /// When it must be heard of again.
    fn renewal_due(&self) -> Option<Lease> {
        self.options.lease.map(|ttl| self.renewed_at + Span::from_ms(ttl.as_ms() / 3))
    }

    fn report_starts(&mut self) -> Advice {
        let mut requests = Vec::new();
        for mine in self.mine.values_mut() {
            if let Some((session, _)) = mine.report.take() {
                let (run, owner_epoch) = (mine.work.run.id.clone(), mine.work.run.owner_epoch);
                mine.work.run.session = Some(session.clone());
                requests.push(RunRequest::Started { run, owner_epoch, session });
            }
        }
        self.call(requests)
    }

    /// Gives back what it holds for itself, and goes.
    fn farewell(&mut self) -> Advice {
        if !self.enlisted {
            return Advice::Done;
        }
        self.tell_queued(0);
        let busy: BTreeSet<&SectionId> = self.mine.values().filter_map(|mine| mine.work.task.spec.section.as_ref()).collect();
        let free = self.sections.iter().filter(|section| !busy.contains(section));
        let runner = &self.me.id;
        let free = free.map(|section| RunRequest::LeaveSection { runner: runner.clone(), section: section.clone() });
        // The sessions that it leaves behind have as long as possible to be adopted.
        let renewal = self.renewal().filter(|_| !self.mine.is_empty());
        let mut requests: Vec<RunRequest> = renewal.into_iter().chain(free).collect();
        requests.push(RunRequest::Retire { runner: runner.clone(), seen: Seen::default() });
        self.enlisted = false;
        self.call(requests)
    }

    fn call(&mut self, requests: Vec<RunRequest>) -> Advice {
        self.requests = requests.into_iter().map(Request::Run).collect();
        Advice::Call
    }

    fn has_ended(&self) -> bool {
        self.mine.values().any(|mine| matches!(mine.phase, Phase::Ended(_)))
    }

    /// How many more runs it may have, once those that have ended are reported.
    fn room(&self) -> usize {
        // One that waits for its children leaves its place to them, or a runner with one place would never start them.
        let is_at_work = |id: &RunId, mine: &Mine| !matches!(mine.phase, Phase::Ended(_)) && !self.paused.contains(id);
        let living = self.mine.iter().filter(|(id, mine)| is_at_work(id, mine)).count();
        let own = self.options.max_runs.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
        own.saturating_sub(living).min(CLAIM_LIMIT)
    }

    fn first_keys(&self) -> BTreeSet<Key> {
        let of_each = u32::try_from(self.room()).unwrap_or(u32::MAX);
        let mut keys = BTreeSet::from(facts::common_keys());
        keys.insert(Key::Outbox);
        if of_each > 0 {
            keys.insert(Key::Ready { of_each });
        }
        keys
    }

    /// Takes in rows.
    pub fn loaded(&mut self, snapshot: Snapshot) {
        match std::mem::replace(&mut self.look, Look::Due) {
            // How many ready tasks were read depends on it, so they are read again.
            Look::First if self.note_paused(&snapshot) => {}
            Look::First => {
                let ready = snapshot.backlog.tasks.values().filter(|task| self.may_take(task));
                let mut keys: BTreeSet<Key> = ready
                    .flat_map(|task| {
                        let own = Key::Lock(task.id.lock());
                        facts::resource_keys(task.spec.section.as_ref(), &task.spec.needs).into_iter().chain([own])
                    })
                    .collect();
                // An orphan comes with the lock of its section.
                let foreign = snapshot.backlog.runs.values().filter(|run| run.owner != self.me.id);
                let sections = foreign.filter_map(|run| snapshot.backlog.tasks.get(&run.task)?.spec.section.as_ref());
                keys.extend(sections.map(|section| Key::Lock(section.lock())));
                if keys.is_empty() {
                    return self.evaluate(snapshot);
                }
                self.queue.push_back(Advice::Load(keys));
                self.look = Look::Second(Box::new(snapshot));
            }
            Look::Second(mut first) => {
                first.coordination.locks.extend(snapshot.coordination.locks);
                first.coordination.semaphores.extend(snapshot.coordination.semaphores);
                self.evaluate(*first);
            }
            Look::Done(_) | Look::Due | Look::Probing(_) => {}
        }
    }

    /// Finds out which of its runs have no slot. Says whether that has changed.
    fn note_paused(&mut self, snapshot: &Snapshot) -> bool {
        let Some(slots) = snapshot.coordination.semaphores.get(&Name::runs()) else { return false };
        let live = snapshot.backlog.runs.values().filter(|run| run.owner == self.me.id);
        let paused = live.filter(|run| !slots.holders.contains_key(&run.id.holder())).map(|run| run.id.clone()).collect();
        std::mem::replace(&mut self.paused, paused) != self.paused
    }

    /// Takes in what a look at processes found.
    pub fn probed(&mut self, found: impl IntoIterator<Item = (ProcessId, Liveness)>) {
        self.probes.extend(found);
        match std::mem::replace(&mut self.look, Look::Due) {
            Look::Probing(snapshot) => self.evaluate(*snapshot),
            other => self.look = other,
        }
    }

    fn may_take(&self, task: &Task) -> bool {
        let in_section = |section: &SectionId| self.options.sections.contains(section);
        task.state == task::State::Pending
            && task.spec.work.is_some()
            && !self.passed_over.contains_key(&task.id)
            && (self.options.sections.is_empty() || task.spec.section.as_ref().is_some_and(in_section))
    }

    fn now(&self, snapshot: &Snapshot) -> Now {
        let dead = self.probes.iter().filter(|(_, liveness)| matches!(liveness, Liveness::Dead | Liveness::OtherBoot));
        Now {
            lease: snapshot.lease,
            wall: snapshot.wall,
            dead: dead.map(|(process, _)| process.clone()).collect(),
            patience: self.patience(),
            ..Now::default()
        }
    }

    fn seen(&self) -> Seen {
        let dead = self.probes.iter().filter(|(_, liveness)| matches!(liveness, Liveness::Dead | Liveness::OtherBoot));
        Seen { probes: dead.map(|(process, liveness)| (process.clone(), *liveness)).collect(), patience: self.patience() }
    }

    fn patience(&self) -> Span {
        self.stall.map_or(Span::ZERO, |(late, _)| late)
    }

    /// Decides over all that was read.
    fn evaluate(&mut self, mut snapshot: Snapshot) {
        let unknown = self.unprobed(&snapshot);
        if !unknown.is_empty() {
            self.queue.push_back(Advice::Probe(unknown));
            self.look = Look::Probing(Box::new(snapshot));
            return;
        }
        self.stall = self.stall.filter(|(_, until)| snapshot.lease < *until);
        let now = self.now(&snapshot);
        self.run_errands(&snapshot.backlog);
        let orphans = self.orphans(&snapshot.backlog);
        let lost = self.lost(&snapshot.backlog, &now);
        self.assume_ended(&mut snapshot);
        let Choice { mut candidates, mut blocked } = self.choose(&snapshot, &now);
        // What a claim has found in the way still is, as far as anybody knows.
        let passed_over = self.passed_over.iter().filter(|(task, _)| snapshot.backlog.tasks.contains_key(*task));
        blocked.extend(passed_over.map(|(_, reasons)| reasons.clone()));
        if self.room() > 0 {
            // Without room nothing was looked for.
            self.tell_queued(blocked.iter().filter(|reasons| matches!(&reasons[..], [Reason::NoSlot { .. }])).count());
        }
        if !orphans.is_empty() {
            // They may fill the room that there is.
            candidates.clear();
        }
        let mut requests = self.finishes();
        let runner = self.me.id.clone();
        for work in orphans {
            requests.push(RunRequest::Adopt { runner: runner.clone(), what: Box::new(work), seen: self.seen() });
        }
        for work in lost {
            let (what, patience, max_recoveries) = (Box::new(work), self.patience(), self.options.max_recoveries);
            requests.push(RunRequest::Lose { runner: runner.clone(), what, patience, max_recoveries });
        }
        for gone in self.gone_runners(&snapshot.backlog, &now) {
            requests.push(match self.options.lease {
                None => RunRequest::Retire { runner: gone, seen: self.seen() },
                Some(_) => {
                    let exclusive = snapshot.backlog.sections.values().filter(|section| section.exclusive);
                    let sections = exclusive.map(|section| section.id.clone()).collect();
                    RunRequest::Dismiss { runner: gone, sections, seen: self.seen() }
                }
            });
        }
        for section in self.idle_sections(&snapshot.backlog, &candidates) {
            requests.push(RunRequest::LeaveSection { runner: runner.clone(), section });
        }
        if !candidates.is_empty() {
            let room = self.room();
            requests.push(RunRequest::Claim { runner, room, candidates, seen: self.seen() });
        } else {
            let watching: BTreeSet<Resource> = blocked.iter().flatten().filter_map(Reason::resource).collect();
            let watching: Vec<Resource> = watching.into_iter().collect();
            if watching != self.watching {
                self.watching.clone_from(&watching);
                requests.push(RunRequest::Watch { runner, resources: watching });
            }
        }
        if requests.is_empty() {
            self.look = Look::Done(self.what_to_wait_for(&snapshot, &blocked));
        } else {
            let advice = self.call(requests);
            self.queue.push_back(advice);
        }
    }

    fn tell_queued(&mut self, queued: usize) {
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let delta = count(queued) - count(self.queued);
        self.queued = queued;
        self.news.extend((delta != 0).then_some(News::Queued(delta)));
    }

    /// The processes that stand in the way and were not looked at.
    fn unprobed(&self, snapshot: &Snapshot) -> Vec<ProcessId> {
        let runners = snapshot.backlog.runners.values().filter(|runner| runner.id != self.me.id).map(|runner| &runner.process);
        let unknown: BTreeSet<&ProcessId> = runners
            .chain(facts::processes(&snapshot.coordination))
            .filter(|process| **process != self.me.process && !self.probes.contains_key(*process))
            .collect();
        unknown.into_iter().cloned().collect()
    }

    fn run_errands(&mut self, backlog: &Backlog) {
        for sent in backlog.outbox.values().filter(|sent| sent.executor == self.me.id) {
            match &sent.errand {
                Errand::Kill { run } => {
                    if let Some(mine) = self.mine.get_mut(run).filter(|mine| mine.phase == Phase::Live) {
                        mine.phase = Phase::Killing;
                        self.queue.push_back(Advice::Kill(run.clone()));
                    }
                }
                // It was given to the driver when the run was claimed, or is part of the recovery.
                Errand::Spawn { .. } => {}
            }
        }
        // One that was taken for dead may find its runs in other hands.
        let lost: Vec<RunId> = self
            .mine
            .iter()
            .filter(|(id, _)| backlog.runs.get(*id).is_none_or(|run| run.owner != self.me.id))
            .map(|(id, _)| id.clone())
            .collect();
        for run in lost {
            self.mine.remove(&run);
            if backlog.runs.contains_key(&run) {
                self.queue.push_back(Advice::Forget(run));
            } else {
                // It has ended as far as anybody is concerned; if something of it lives, nobody else would ever end it.
                self.queue.extend([Advice::Kill(run.clone()), Advice::Acknowledge(run)]);
            }
        }
        // What it owns and does not know of: a claim whose answer was lost.
        for run in backlog.runs.values().filter(|run| run.owner == self.me.id) {
            if let Some(task) = backlog.tasks.get(&run.task).filter(|_| !self.mine.contains_key(&run.id)) {
                let work = Work { run: run.clone(), task: task.clone() };
                self.sections.extend(task.spec.section.clone());
                self.mine.insert(run.id.clone(), Mine::new(work.clone()));
                self.queue.push_back(Advice::Recover(Box::new(work)));
            }
        }
    }

    /// The live runs that nobody looks after.
    fn orphans(&self, backlog: &Backlog) -> Vec<Work> {
        let here = backlog.runs.values().filter(|run| run.is_within_reach_of(&self.me));
        let orphans = here.filter(|run| self.is_orphan(run, backlog));
        let meant = orphans.filter(|run| self.only.as_ref().is_none_or(|only| *only == run.id));
        let open = meant.filter(|run| !self.refused.contains(&run.id));
        open.filter_map(|run| Some(Work { run: run.clone(), task: backlog.tasks.get(&run.task)?.clone() })).collect()
    }

    /// The runs whose machine has been silent for too long, unless it can be found out from here what became of them.
    fn lost(&self, backlog: &Backlog, now: &Now) -> Vec<Work> {
        let others = backlog.runs.values().filter(|run| run.owner != self.me.id && run.is_lost(now));
        let lost = others.filter(|run| !run.is_within_reach_of(&self.me) || !self.is_orphan(run, backlog));
        let meant = lost.filter(|run| self.only.as_ref().is_none_or(|only| *only == run.id));
        meant.filter_map(|run| Some(Work { run: run.clone(), task: backlog.tasks.get(&run.task)?.clone() })).collect()
    }

    fn is_orphan(&self, run: &Run, backlog: &Backlog) -> bool {
        let is_gone = match backlog.runners.get(&run.owner) {
            None => true,
            Some(runner) => matches!(self.probes.get(&runner.process), Some(Liveness::Dead | Liveness::OtherBoot)),
        };
        run.owner != self.me.id && is_gone
    }

    /// The runners that are dead, or silent for too long, and have left nothing behind.
    fn gone_runners(&self, backlog: &Backlog, now: &Now) -> Vec<RunnerId> {
        if self.only.is_some() {
            return Vec::new();
        }
        let is_dead = |runner: &&Runner| matches!(self.probes.get(&runner.process), Some(Liveness::Dead | Liveness::OtherBoot));
        let has_runs = |runner: &&Runner| backlog.runs.values().any(|run| run.owner == runner.id);
        let others = backlog.runners.values().filter(|runner| runner.id != self.me.id && runner.process != self.me.process);
        let gone = others.filter(|runner| is_dead(runner) || runner.is_silent(now));
        gone.filter(|runner| !has_runs(runner)).map(|runner| runner.id.clone()).collect()
    }

    /// Takes what has ended as reported: that is done together with the claim.
    fn assume_ended(&self, snapshot: &mut Snapshot) {
        for (id, mine) in self.mine.iter().filter(|(_, mine)| matches!(mine.phase, Phase::Ended(_))) {
            snapshot.backlog.runs.remove(id);
            snapshot.backlog.tasks.remove(&mine.work.task.id);
            let holder = id.holder();
            for lock in snapshot.coordination.locks.values_mut() {
                if matches!(&lock.state, banksman_core::lock::State::Held(grant) if grant.claim.holder == holder) {
                    lock.state = banksman_core::lock::State::Free;
                }
            }
            snapshot.coordination.semaphores.values_mut().for_each(|semaphore| drop(semaphore.holders.remove(&holder)));
        }
    }

    fn choose(&mut self, snapshot: &Snapshot, now: &Now) -> Choice {
        let room = self.room();
        let mut ready: Vec<&Task> = snapshot.backlog.tasks.values().filter(|task| self.may_take(task)).collect();
        ready.sort_by_key(|task| (std::cmp::Reverse(task.spec.priority), task.position));
        let mut choice = Choice::default();
        // What the first ones take is not there for those behind them.
        let mut coordination = snapshot.coordination.clone();
        for task in ready {
            match facts::admit(task, Some(&self.me.id), &coordination, &snapshot.backlog, now) {
                Admission::Run if choice.candidates.len() < room => {
                    let Some(run) = self.fresh_runs.pop() else { break };
                    let (section, needs) = (task.spec.section.clone(), task.spec.needs.clone());
                    let candidate = Candidate { task: task.id.clone(), run, section, needs };
                    if let Some((draft, _)) = occupy(&self.me.id, &candidate, &coordination, &snapshot.backlog, now.clone()) {
                        coordination = draft.coordination();
                        choice.candidates.push(candidate);
                    }
                }
                Admission::Run => {}
                Admission::Blocked(reasons) => choice.blocked.push(reasons),
            }
        }
        choice
    }

    fn finishes(&self) -> Vec<RunRequest> {
        let ended = self.mine.values().filter_map(|mine| match &mine.phase {
            Phase::Ended(ending) => Some((mine, ending)),
            Phase::Live | Phase::Killing => None,
        });
        ended
            .map(|(mine, ending)| RunRequest::Finish {
                runner: self.me.id.clone(),
                what: Box::new(mine.work.clone()),
                ending: ending.clone(),
                max_recoveries: self.options.max_recoveries,
            })
            .collect()
    }

    /// The exclusive sections whose lock it may have, with no run of its own in them and nothing that it will start. They
    /// are kept in mind until the store has answered, and also while they are not exclusive: the lock outlives both.
    fn idle_sections(&self, backlog: &Backlog, candidates: &[Candidate]) -> Vec<SectionId> {
        let room = self.room();
        let busy = |section: &SectionId| {
            let live = backlog.live_in(section).any(|run| run.owner == self.me.id);
            live || candidates.iter().take(room).any(|candidate| candidate.section.as_ref() == Some(section))
        };
        let exclusive = |section: &&SectionId| backlog.sections.get(*section).is_some_and(|section| section.exclusive);
        self.sections.iter().filter(exclusive).filter(|section| !busy(section)).cloned().collect()
    }

    fn what_to_wait_for(&self, snapshot: &Snapshot, blocked: &[Vec<Reason>]) -> Rest {
        let alive = |process: &&ProcessId| self.probes.get(*process) == Some(&Liveness::Alive);
        let runners = snapshot.backlog.runners.values().filter(|runner| runner.id != self.me.id).map(|runner| &runner.process);
        // Whoever was seen alive, also in a line or with an offer, is not looked at again: its death must be heard of.
        let others = facts::processes(&snapshot.coordination);
        let watch: BTreeSet<&ProcessId> =
            runners.chain(others).filter(|process| **process != self.me.process).filter(alive).collect();
        let deadline = blocked.iter().flatten().flat_map(holdings).filter_map(|holding| holding.until).min();
        // One that waits for a semaphore that does not exist waits for a person.
        let hopeless = |reasons: &Vec<Reason>| reasons.iter().any(|reason| matches!(reason, Reason::Undefined { .. }));
        let idle = match &self.only {
            // If nobody looks after it, and it cannot be done from here, there is nothing to wait for.
            Some(only) => snapshot.backlog.runs.get(only).is_none_or(|run| {
                let is_elsewhere = !run.is_within_reach_of(&self.me) || self.refused.contains(only);
                // One with a lease ends by time, at the latest.
                is_elsewhere && run.lease.is_none() && self.is_orphan(run, &snapshot.backlog)
            }),
            None => snapshot.backlog.runs.is_empty() && blocked.iter().all(hopeless),
        };
        let slow = snapshot.lease + self.options.poll;
        let ends = snapshot.backlog.runs.values().filter(|run| run.owner != self.me.id).filter_map(|run| run.lease.as_ref());
        let lost = ends.map(|lease| lease.end() + self.patience()).filter(|end| *end > snapshot.lease).min();
        let until = deadline.into_iter().chain(lost).fold(slow, |until, deadline| until.min(deadline + Span::from_ms(1)));
        Rest { watch: watch.into_iter().cloned().collect(), until, idle }
    }

    /// Takes in the store's answers to [`Dispatcher::requests`], in their order.
    pub fn answered(&mut self, replies: Vec<Reply>) {
        let requests = std::mem::take(&mut self.requests);
        let mut look = false;
        for (request, reply) in requests.into_iter().zip(replies) {
            match (request, reply) {
                (Request::Run(request), Reply::Run(outcome)) => look |= self.take_in(request, outcome),
                (_, Reply::Task(TaskOutcome::Stepped(outcome, task))) => self.note_pulse(outcome, &task),
                _ => {}
            }
        }
        if look {
            self.look = Look::Due;
        }
    }

    /// Takes in what a look at a run meant for its task.
    fn note_pulse(&mut self, outcome: task::Outcome, task: &Task) {
        let Some(mine) = task.live().and_then(|live| self.mine.get_mut(&live.run)) else { return };
        mine.stuck = task.status() == Status::Stuck;
        mine.seen = mine.seen.max(task.live().map_or(mine.seen, |live| live.seen.lease));
        if matches!(outcome, task::Outcome::Stuck | task::Outcome::Recovered) {
            let work = Box::new(Work { task: task.clone(), ..mine.work.clone() });
            self.news.push(if mine.stuck { News::Stuck(work) } else { News::Recovered(work) });
        }
    }

    /// The store did not answer. What was asked may or may not have happened: the rows will tell.
    pub fn unanswered(&mut self, now: Lease) {
        self.requests.clear();
        self.look = Look::Due;
        self.not_before = Some(now + RETRY_AFTER);
    }

    /// Takes in one answer. Says whether to look again.
    fn take_in(&mut self, request: RunRequest, outcome: RunOutcome) -> bool {
        match (request, outcome) {
            (RunRequest::Enlist { .. }, _) => {
                self.enlisted = true;
                true
            }
            (RunRequest::Renew { .. }, RunOutcome::Renewed(runs)) => {
                self.renewed_at = self.sent;
                // What it has and the store does not was taken for lost.
                let look = self.mine.keys().any(|run| !runs.contains(run));
                self.renewed = Some(runs);
                look
            }
            (RunRequest::Renew { .. }, _) => {
                self.enlisted = false;
                true
            }
            (RunRequest::Finish { what, ending, .. }, outcome) => {
                let id = what.run.id.clone();
                self.mine.remove(&id);
                self.queue.push_back(Advice::Acknowledge(id));
                if let RunOutcome::Finished(outcome) = outcome {
                    self.news.push(News::Ended(what, ending, outcome));
                }
                true
            }
            (RunRequest::Claim { room, .. }, RunOutcome::Claimed { started, blocked }) => {
                self.passed_over.extend(blocked);
                let full = started.len() == room;
                let any = !started.is_empty();
                for work in started {
                    self.begin(work, true);
                }
                !any || !full
            }
            (RunRequest::Claim { .. }, _) => {
                // It was taken for dead. It makes itself known again.
                self.enlisted = false;
                true
            }
            (RunRequest::Adopt { .. }, RunOutcome::Adopted(work)) => {
                self.begin(*work, false);
                true
            }
            (RunRequest::Adopt { what, .. }, _) => {
                self.refused.insert(what.run.id);
                true
            }
            (RunRequest::Watch { .. }, RunOutcome::Late) => {
                self.enlisted = false;
                self.watching.clear();
                true
            }
            (RunRequest::LeaveSection { section, .. }, RunOutcome::Done) => {
                self.sections.remove(&section);
                true
            }
            (RunRequest::Lose { what, .. }, RunOutcome::Lost(ended, outcome)) => {
                self.news.push(News::Ended(what, ended, outcome));
                true
            }
            (
                RunRequest::Watch { .. }
                | RunRequest::LeaveSection { .. }
                | RunRequest::Retire { .. }
                | RunRequest::Dismiss { .. }
                | RunRequest::Lose { .. },
                _,
            ) => true,
            (RunRequest::Started { .. } | RunRequest::Pause { .. } | RunRequest::Resume { .. }, _) => false,
        }
    }

    fn begin(&mut self, work: Work, fresh: bool) {
        self.sections.extend(work.task.spec.section.clone());
        self.mine.insert(work.run.id.clone(), Mine::new(work.clone()));
        let work = Box::new(work);
        if fresh {
            self.news.push(News::Started(work.clone()));
            self.queue.push_back(Advice::Spawn(work));
        } else {
            self.news.push(News::Adopted(work.clone()));
            self.queue.push_back(Advice::Recover(work));
            // A wish to stop it may have been waiting for an owner.
            self.look = Look::Due;
        }
    }

    /// The session of a run has begun.
    pub fn started(&mut self, run: &RunId, session: Session, now: Lease) {
        if let Some(mine) = self.mine.get_mut(run).filter(|mine| mine.work.run.session.is_none()) {
            mine.report = Some((session, now + REPORT_AFTER));
        }
    }

    /// The tree of a run was seen dead.
    pub fn ended(&mut self, run: &RunId, ending: Ended) {
        if let Some(mine) = self.mine.get_mut(run) {
            mine.report = None;
            mine.phase = Phase::Ended(ending);
        }
    }

    /// The keeper of a run is gone and has left no word.
    pub fn gone(&mut self, run: &RunId) {
        if let Some(mine) = self.mine.get_mut(run).filter(|mine| !matches!(mine.phase, Phase::Ended(_))) {
            mine.phase = Phase::Live;
            let work = mine.work.clone();
            self.queue.push_back(Advice::Recover(Box::new(work)));
        }
    }

    /// The request that tells that the session of a run is dead, though its tree may not be.
    pub fn session_dead(&self, run: &RunId) -> Option<Request> {
        let work = &self.mine.get(run)?.work;
        Some(Request::Task(TaskRequest::Heartbeat {
            id: work.task.id.clone(),
            epoch: work.run.epoch,
            pulse: Pulse::SessionDead,
            timeout: Span::ZERO,
        }))
    }
}

#[derive(Default)]
struct Choice {
    candidates: Vec<Candidate>,
    blocked: Vec<Vec<Reason>>,
}

fn holdings(reason: &Reason) -> &[Holding] {
    match reason {
        Reason::Section { holder, .. } | Reason::TaskLock { holder, .. } | Reason::Lock { holder, .. } => {
            std::slice::from_ref(holder)
        }
        Reason::Slots { holders, .. } | Reason::NoSlot { holders, .. } => holders,
        Reason::NotPending(_)
        | Reason::NoWork
        | Reason::Dependency { .. }
        | Reason::SectionBusy { .. }
        | Reason::Undefined { .. } => &[],
    }
}
