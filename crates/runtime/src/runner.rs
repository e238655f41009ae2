//! The real driver of a runner: reads, calls, starts and watches sessions, and sleeps on descriptors.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use banksman_adapters::keeper::{self, Found, Keepers, Limit, Notice, Record, Refusal, Session};
use banksman_adapters::{host, ids};
use banksman_core::backlog::{self, Ended, Runner as Row, Terms};
use banksman_core::task::Ending;
use banksman_core::{Lease, Liveness, ProcessId, RunId, RunnerId, SectionId, Seq, Span, Stamp, Wall};
use banksman_engine::{Dispatcher, News, Next, Options, Vitals, Work};
use banksman_store::{Key, StoreError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::aside::{Aside, Deed, Telling};
use crate::client::Client;
use crate::error::Error;
use crate::post::{Ear, Mailbox};
use crate::sessions::{self, Sessions};
use crate::waiting::{STALL, span};

/// How much longer than the grace of its session a keeper may take to end it.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How long the last keepers may take to go.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a runner was told to do.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// How many runs it has at a time, at most.
    pub max_runs: Option<u32>,
    /// The sections it works in; all if empty.
    pub sections: Vec<SectionId>,
    /// Whether to end when there is nothing left to do.
    pub until_idle: bool,
}

/// What a runner has to tell.
#[derive(Debug)]
pub enum Told {
    /// Something has happened to a run.
    News(News),
    /// The store did not answer; it is asked again in a moment.
    Trouble(StoreError),
    /// Something could not be done for a run.
    RunTrouble(RunId, String),
    /// People cannot be told something, or not in every way that the settings name.
    NoticeTrouble(Box<banksman_core::Notice>, String),
    /// It leaves so many sessions behind, and they are ended unless a runner in the same folder adopts them by then.
    Left {
        /// How many.
        sessions: usize,
        /// How long they have.
        within: Span,
    },
}

/// A runner of this process.
pub struct Runner<'a> {
    client: &'a Client,
    files: Sessions,
    mailbox: Mailbox,
    /// Hears of new events, while something may follow from them.
    ear: Option<Ear>,
    dispatcher: Dispatcher,
    sessions: BTreeMap<RunId, Session>,
    /// Those whose session has ended.
    keepers: Keepers,
    /// What leads from this machine's clock to the store's.
    offset: i64,
    aside: Aside,
    /// After which silence its runs are lost, where others cannot see whether it lives.
    ttl: Option<Duration>,
    /// How long its sessions may go on, by the last renewal.
    limit: Option<Limit>,
}

enum Woken {
    Called,
    Cancelled,
    Died(ProcessId),
    Other,
}

impl<'a> Runner<'a> {
    /// A runner that has not begun.
    pub fn new(client: &'a Client, files: Sessions, options: RunOptions) -> Result<Runner<'a>, Error> {
        Runner::with(client, files, options, None)
    }

    /// One that takes no tasks and only waits for the end of a run; if nobody else looks after it, this one does.
    fn only(client: &'a Client, files: Sessions, run: RunId) -> Result<Runner<'a>, Error> {
        let options = RunOptions { max_runs: Some(0), sections: Vec::new(), until_idle: false };
        Runner::with(client, files, options, Some(run))
    }

    fn with(client: &'a Client, files: Sessions, options: RunOptions, only: Option<RunId>) -> Result<Runner<'a>, Error> {
        let mailbox = client.post().mailbox()?;
        let config = client.config();
        let id = RunnerId::new(&ids::short("n")).expect("a short id is valid");
        let ttl = mailbox.is_remote().then_some(config.heartbeat_timeout);
        let folder = client.project().folder();
        let folder = folder.canonicalize().map_err(Error::system("the project's folder cannot be found"))?;
        let row = Row {
            id,
            process: client.this_process().clone(),
            address: mailbox.address().clone(),
            sections: options.sections.clone(),
            max_runs: options.max_runs,
            watching: Vec::new(),
            started: Stamp { lease: Lease(0), wall: Wall(host::wall_ms()) },
            seen: Lease(0),
            terms: ttl.map(|ttl| Terms { ttl: span(ttl), folder: folder.to_string_lossy().into() }),
        };
        let options = Options {
            max_runs: options.max_runs,
            limit: config.max_concurrent_runs,
            sections: options.sections,
            until_idle: options.until_idle,
            root_limit: config.max_concurrent_root_tasks,
            watch: config.watch(),
            max_duration: config.max_duration.map(span),
            checkpoint_interval: config.checkpoint_interval.map(span),
            kill_patience: span(config.kill_grace + KILL_PATIENCE),
            poll: span(config.poll_interval),
            lease: ttl.map(span),
        };
        let dispatcher = Dispatcher::new(row, options);
        Ok(Runner {
            client,
            files,
            mailbox,
            ear: None,
            dispatcher: match only {
                Some(run) => dispatcher.only(run),
                None => dispatcher,
            },
            sessions: BTreeMap::new(),
            keepers: Keepers::default(),
            offset: 0,
            aside: Aside::new().map_err(Error::system("a pair of sockets cannot be made"))?,
            ttl,
            // Without a renewal no session may begin.
            limit: ttl.map(|_| Limit::default()),
        })
    }

    /// Which one it is.
    pub fn id(&self) -> &RunnerId {
        self.dispatcher.id()
    }

    /// Works until there is nothing left to do, or `cancel` becomes readable. Its sessions live on.
    pub fn run(mut self, cancel: BorrowedFd<'_>, tell: &mut dyn FnMut(Told)) -> Result<(), Error> {
        let fresh = || RunId::new(&ids::short("r")).expect("a short id is valid");
        self.clear_away();
        loop {
            self.dispatcher.give_ids(fresh);
            match self.dispatcher.next(self.now()) {
                Next::Load(keys) => match self.client.load(&keys) {
                    Ok(snapshot) => {
                        self.offset = snapshot.lease.0 - host::monotonic_ms();
                        self.dispatcher.loaded(snapshot);
                    }
                    Err(error) => self.trouble(error, tell),
                },
                Next::Probe(processes) => {
                    let found: Vec<_> =
                        processes.into_iter().map(|process| (process.clone(), self.client.host().probe(&process))).collect();
                    self.dispatcher.probed(found);
                }
                Next::Check(tasks) => {
                    let found: Vec<_> = tasks.into_iter().map(|task| (task.clone(), self.files.marker(&task))).collect();
                    self.dispatcher.checked(found);
                }
                Next::Call => {
                    let sent_ms = host::boot_ms();
                    let answers = self.client.call_all(self.dispatcher.requests().to_vec());
                    match answers.into_iter().collect::<Result<Vec<_>, _>>() {
                        Ok(replies) => self.dispatcher.answered(replies),
                        Err(error) => self.trouble(error, tell),
                    }
                    self.renew_sessions(sent_ms);
                }
                Next::Spawn(work) => self.spawn(&work, tell),
                Next::Recover(work) => self.recover(&work, tell),
                Next::Pulse(run) => {
                    // A keeper that does not answer is no proof of anything: the next look is due after the same time.
                    match keeper::status(&self.files.record(&run)) {
                        Ok(status) => {
                            let quiet = Span::from_ms(i64::try_from(status.quiet_ms).unwrap_or(i64::MAX));
                            let vitals = Vitals { quiet, output_bytes: status.log.bytes };
                            self.dispatcher.pulse(&run, vitals, self.now());
                        }
                        Err(_) => self.dispatcher.no_pulse(&run, self.now()),
                    }
                }
                Next::Kill(run) => {
                    if let Some(session) = self.sessions.get_mut(&run) {
                        session.kill(self.client.config().kill_grace);
                    }
                }
                Next::Nudge(run, errand) => {
                    if let Some(session) = self.sessions.get_mut(&run) {
                        session.nudge(errand.0);
                    }
                }
                Next::Notify(errand, notice) => match self.aside.tell_people(self.client.project(), errand, &notice) {
                    Telling::Begun { refused } if refused.is_empty() => {}
                    Telling::Begun { refused } => tell(Told::NoticeTrouble(notice, refused.join("; "))),
                    Telling::Unwanted => self.dispatcher.did(errand, Ok(())),
                },
                Next::Gather(pipeline) => self.aside.look_at_guards(self.client.project(), pipeline),
                Next::StopLooking(pipeline) => self.aside.stop_looking(&pipeline),
                Next::Acknowledge(run) => self.acknowledge(&run, tell),
                Next::Forget(run) => drop(self.sessions.remove(&run)),
                // What has happened before it began to listen must be looked at first.
                Next::Sleep { .. } if self.prick_up_ears(tell) => self.dispatcher.heard(),
                Next::Sleep { watch, at_most } => match self.sleep(cancel, &watch, at_most) {
                    Woken::Called => {
                        self.mailbox.empty();
                        self.dispatcher.woken();
                    }
                    Woken::Cancelled => self.dispatcher.leave(),
                    Woken::Died(process) => self.dispatcher.died(process),
                    Woken::Other => {}
                },
                Next::Done => break,
            }
            self.dispatcher.news().into_iter().for_each(|news| tell(Told::News(news)));
        }
        if let (Some(limit), sessions @ 1..) = (self.limit, self.sessions.len()) {
            tell(Told::Left { sessions, within: Span::from_ms(limit.ask_ms - host::boot_ms()) });
        }
        self.keepers.dismiss(FAREWELL);
        Ok(())
    }

    /// Clears away the records of sessions whose runs have ended without them: whoever looked after them was killed before
    /// it could, or the run was taken for lost from another machine. What cannot be done now is done by the next runner.
    fn clear_away(&self) {
        for (run, record) in self.files.left() {
            let keys = [Key::Run(run.clone())].into();
            let Ok(rows) = self.client.load(&keys) else { return };
            if rows.backlog.runs.get(&run).is_some_and(backlog::Run::is_live) {
                continue;
            }
            let (path, grace) = (self.files.record(&run), self.client.config().kill_grace);
            match record {
                None => drop(keeper::forget(&path)),
                // Its keeper was killed: something of it may live.
                Some(record) => {
                    drop(std::thread::spawn(move || keeper::sweep(&record, grace).and_then(|_| keeper::forget(&path))))
                }
            }
        }
    }

    /// Begins to listen, or stops, as the dispatcher wants it. Says whether it has begun.
    fn prick_up_ears(&mut self, tell: &mut dyn FnMut(Told)) -> bool {
        if !self.dispatcher.listens() {
            self.ear = None;
            return false;
        }
        if self.ear.is_some() {
            return false;
        }
        let ear = self.client.reader().map_err(Error::from);
        match ear.and_then(|reader| Ear::open(self.client.project(), reader.project())) {
            Ok(ear) => self.ear = Some(ear),
            // The slow look is for such.
            Err(Error::Store(error)) => tell(Told::Trouble(error)),
            Err(_) => {}
        }
        self.ear.is_some()
    }

    fn now(&self) -> Lease {
        Lease(host::monotonic_ms() + self.offset)
    }

    fn trouble(&mut self, error: StoreError, tell: &mut dyn FnMut(Told)) {
        tell(Told::Trouble(error));
        self.dispatcher.unanswered(self.now());
    }

    /// Tells the keepers of its runs that the call that was sent then has renewed the lease, if it has.
    fn renew_sessions(&mut self, sent_ms: i64) {
        let (Some(ttl), Some(runs)) = (self.ttl, self.dispatcher.renewed()) else { return };
        let limit = Limit::after(sent_ms, ttl, self.client.config().kill_grace);
        self.limit = Some(limit);
        for (_, session) in self.sessions.iter_mut().filter(|(run, _)| runs.contains(*run)) {
            session.renew(limit);
        }
    }

    fn spawn(&mut self, work: &Work, tell: &mut dyn FnMut(Told)) {
        if work.run.attempt > 0
            && let Err(error) = self.tell_last_result(work)
        {
            tell(Told::RunTrouble(work.run.id.clone(), format!("it cannot be told how the last run ended: {error}")));
        }
        let started = self.files.write_input(work).and_then(|()| self.keepers.start(&self.files.spec(work, self.limit)));
        match started {
            Ok(session) => drop(self.sessions.insert(work.run.id.clone(), session)),
            Err(error) => {
                let ending = Ending::NotStarted { error: format!("its keeper cannot be started: {error}").into() };
                self.ended(&work.run.id, now_ended(ending, None));
            }
        }
    }

    /// Writes down for a run how the one before it ended.
    fn tell_last_result(&self, work: &Work) -> Result<(), String> {
        let rows = self.client.load(&[Key::RunsOf(work.task.id.clone())].into()).map_err(|error| error.to_string())?;
        let last = rows.backlog.runs.values().filter(|run| run.attempt < work.run.attempt).max_by_key(|run| run.attempt);
        last.map_or(Ok(()), |last| self.files.tell_last_result(last)).map_err(|error| error.to_string())
    }

    /// The session of a run has ended.
    fn ended(&mut self, run: &RunId, ended: Ended) {
        let ended = self.files.with_tail(self.dispatcher.work(run), ended);
        self.dispatcher.ended(run, ended);
    }

    /// Finds out what became of a session that this process did not start, or has lost sight of.
    fn recover(&mut self, work: &Work, tell: &mut dyn FnMut(Told)) {
        let run = &work.run;
        if run.boot != self.client.this_process().boot {
            // The machine has been started anew since: nothing of it lives. But it may have ended before that.
            let ended = match self.files.look(&run.id) {
                Ok(Found::Ended(_, ending)) => sessions::ended(ending),
                _ => now_ended(Ending::Lost, Some("the machine was restarted")),
            };
            return self.ended(&run.id, ended);
        }
        let found = match self.files.look(&run.id) {
            Ok(Found::Nothing) => keeper::bury(&self.files.record(&run.id)),
            other => other,
        };
        match found {
            Ok(Found::Nothing | Found::Buried) => {
                let ending = if run.session.is_some() { Ending::Lost } else { Ending::Never };
                self.ended(&run.id, now_ended(ending, None));
            }
            Ok(Found::Ended(_, ending)) => self.ended(&run.id, sessions::ended(ending)),
            Ok(Found::Live(_)) => match keeper::adopt(&self.files.record(&run.id), run.owner_epoch.0) {
                Ok(mut session) => {
                    if let Some(limit) = self.limit {
                        session.renew(limit);
                    }
                    self.sessions.insert(run.id.clone(), session);
                }
                Err(error) => {
                    tell(Told::RunTrouble(run.id.clone(), format!("its keeper does not answer: {error}")));
                    self.dispatcher.unclear(&run.id, self.now());
                }
            },
            Ok(Found::Dead(record)) => self.sweep(&run.id, record),
            Err(error) => {
                tell(Told::RunTrouble(run.id.clone(), format!("its record cannot be read: {error}")));
                self.dispatcher.unclear(&run.id, self.now());
            }
        }
    }

    /// The keeper was killed. What is left of the tree is ended before the run counts as lost.
    fn sweep(&mut self, run: &RunId, record: Record) {
        if let Some(request) = self.dispatcher.session_dead(run) {
            // It only tells people why there is a pause; the end of the run is what counts.
            self.client.call(request).ok();
        }
        self.aside.sweep(run.clone(), record, self.client.config().kill_grace);
    }

    /// The end of a run is durable: its keeper, or its record, is not needed any more.
    fn acknowledge(&mut self, run: &RunId, tell: &mut dyn FnMut(Told)) {
        match self.sessions.remove(run) {
            Some(session) => self.keepers.acknowledge(session),
            None => {
                if let Err(error) = keeper::forget(&self.files.record(run)) {
                    tell(Told::RunTrouble(run.clone(), format!("its record cannot be removed: {error}")));
                }
            }
        }
    }

    /// Sleeps until something happens, and takes in what sessions tell.
    fn sleep(&mut self, cancel: BorrowedFd<'_>, watch: &[ProcessId], at_most: Span) -> Woken {
        let mut pidfds: Vec<(&ProcessId, OwnedFd)> = Vec::with_capacity(watch.len());
        for process in watch {
            match self.client.host().watch(process) {
                Ok(pidfd) => pidfds.push((process, pidfd)),
                Err(Liveness::Dead | Liveness::OtherBoot) => return Woken::Died(process.clone()),
                // It cannot be watched, which proves nothing. The slow look is for such.
                Err(Liveness::Alive | Liveness::Unknown) => {}
            }
        }
        let runs: Vec<RunId> = self.sessions.keys().cloned().collect();
        let mut fds = vec![
            PollFd::new(&self.mailbox, PollFlags::IN),
            PollFd::from_borrowed_fd(cancel, PollFlags::IN),
            PollFd::new(&self.aside, PollFlags::IN),
        ];
        fds.extend(self.ear.as_ref().map(|ear| PollFd::new(ear, PollFlags::IN)));
        let fixed = fds.len();
        fds.extend(self.sessions.values().map(|session| PollFd::from_borrowed_fd(session.as_fd(), PollFlags::IN)));
        fds.extend(pidfds.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)));
        // A runner that is busy looks after them by the way.
        if runs.is_empty() {
            fds.extend(self.keepers.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let ms = at_most.as_ms();
        let timeout = Timespec { tv_sec: ms / 1_000, tv_nsec: (ms % 1_000) * 1_000_000 };
        let due_ms = host::boot_ms() + ms;
        // An interruption is a reason to look, like any other.
        let timed_out = poll(&mut fds, Some(&timeout)) == Ok(0);
        let late = Duration::from_millis(u64::try_from(host::boot_ms() - due_ms).unwrap_or(0));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if timed_out && late > STALL {
            self.dispatcher.stalled(span(late), self.now());
        }
        self.keepers.tend();
        let died = pidfds
            .iter()
            .zip(&ready[fixed + runs.len()..])
            .find(|(_, ready)| **ready)
            .map(|((process, _), _)| (*process).clone());
        for run in runs.iter().zip(&ready[fixed..]).filter(|(_, ready)| **ready).map(|(run, _)| run) {
            self.listen(run);
        }
        if let Some(ear) = self.ear.as_ref().filter(|_| ready[3]) {
            ear.empty();
            self.dispatcher.heard();
        }
        if ready[2] {
            for deed in self.aside.take() {
                match deed {
                    Deed::Swept(run, ended) => self.ended(&run, ended),
                    Deed::Unswept(run) => self.dispatcher.unclear(&run, self.now()),
                    Deed::Gathered(pipeline, inputs) => self.dispatcher.gathered(&pipeline, *inputs),
                    Deed::Told(errand, Ok(())) => self.dispatcher.did(errand, Ok(())),
                    Deed::Told(errand, Err(untold)) if untold.is_final => self.dispatcher.gave_up(errand, untold.error),
                    Deed::Told(errand, Err(untold)) => self.dispatcher.did(errand, Err(untold.error)),
                }
            }
        }
        match (ready[1], ready[0], died) {
            (true, _, _) => Woken::Cancelled,
            (false, true, _) => Woken::Called,
            (false, false, Some(process)) => Woken::Died(process),
            (false, false, None) => Woken::Other,
        }
    }

    /// Takes in what a session tells.
    fn listen(&mut self, run: &RunId) {
        let Some(session) = self.sessions.get_mut(run) else { return };
        for notice in session.notices() {
            match notice {
                Notice::Started { keeper_pid, child_pid } => {
                    let now = Lease(host::monotonic_ms() + self.offset);
                    self.dispatcher.started(run, backlog::Session { keeper: keeper_pid, child: child_pid }, now);
                }
                Notice::Ended(ending) => self.ended(run, sessions::ended(ending)),
                Notice::Refused(Refusal::NoRecord { error }) => {
                    let ending = Ending::NotStarted { error: format!("its record cannot be made: {error}").into() };
                    self.ended(run, now_ended(ending, None));
                }
                Notice::Ready => {}
                // Others own it; the rows will tell.
                Notice::Refused(Refusal::LowerEpoch { .. }) => self.dispatcher.woken(),
                Notice::Nudged { effect_id } => self.dispatcher.did(Seq(effect_id), Ok(())),
                Notice::Refused(Refusal::RecordExists | Refusal::Version { .. }) => {}
                Notice::Gone => {
                    self.sessions.remove(run);
                    self.dispatcher.gone(run);
                    return;
                }
            }
        }
    }
}

/// Waits for the end of a run, and brings it about if its runner is gone: what is left of its session is taken over,
/// stopped if somebody wants that, and its end is recorded. Returns early if `cancel` becomes readable, or if the
/// run is on another machine and nobody there looks after it: the run's row tells.
pub fn recover_run(
    client: &Client,
    files: Sessions,
    run: RunId,
    cancel: BorrowedFd<'_>,
    tell: &mut dyn FnMut(Told),
) -> Result<(), Error> {
    Runner::only(client, files, run)?.run(cancel, tell)
}

pub(crate) fn now_ended(ending: Ending, note: Option<&str>) -> Ended {
    Ended::new(ending, Wall(host::wall_ms()), note.map(Into::into))
}
