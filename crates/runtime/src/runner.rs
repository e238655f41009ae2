//! The real driver of a runner: reads, calls, starts and watches sessions, and sleeps on descriptors.

mod calling;
mod recovery;
mod sleeping;
mod tending;

use sleeping::Woken;
pub(crate) use tending::now_ended;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use banksman_adapters::anchor::Anchor;
use banksman_adapters::keeper::{Keepers, Limit, Session};
use banksman_adapters::life_file::LifeFile;
use banksman_adapters::{host, ids, os_bytes, reentry};
use banksman_core::backlog::{Runner as Row, Terms};
use banksman_core::{Lease, RunId, RunnerId, SectionId, Span, Stamp, Wall};
use banksman_engine::{Dispatcher, Options, RunnerAction, RunnerEvent, RunnerInput};
use banksman_store::{StoreError, StoreId};

use crate::background::{Background, Notifying};
use crate::client::Client;
use crate::error::Error;
use crate::project::Project;
use crate::sessions::Sessions;
use crate::waiting::span;
use crate::wakeups::{EventListener, Mailbox};
use crate::writer::AnswerSignal;

/// How much longer than the grace of its session a keeper may take to end it.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How long the last keepers may take to exit.
const FAREWELL: Duration = Duration::from_secs(1);

/// The options of a runner.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// How many runs it may have at a time.
    pub max_runs: Option<u32>,
    /// The sections it works in; all if empty.
    pub sections: Vec<SectionId>,
    /// Whether to exit when no work is left.
    pub until_idle: bool,
    /// Writes the report that is sent when no work is left, if the settings ask for it (`report.notify`).
    pub report: Option<fn(&Project) -> Option<String>>,
}

#[derive(Debug)]
pub enum RunnerReport {
    /// An event of a run.
    Event(RunnerEvent),
    /// The store did not answer; the call is repeated in a moment.
    Trouble(StoreError),
    /// An operation for a run failed.
    RunTrouble(RunId, String),
    /// A notice cannot be sent, or not over every channel that the settings name.
    NoticeTrouble(Box<banksman_core::Notice>, String),
    /// The runner leaves this many sessions behind, which end unless a runner in the same folder adopts them in time.
    Left {
        sessions: usize,
        /// The time for that.
        within: Span,
    },
}

/// A runner of this process.
pub struct Runner<'a> {
    client: &'a Client,
    files: Sessions,
    mailbox: Mailbox,
    /// Signals that a call was answered.
    answered: Arc<AnswerSignal>,
    /// Signals new events, while the dispatcher needs them.
    listener: Option<EventListener>,
    dispatcher: Dispatcher,
    sessions: BTreeMap<RunId, Session>,
    /// The keepers of ended sessions.
    keepers: Keepers,
    /// The project's folder, which must stay where it is.
    anchor: Anchor,
    /// The store that the user must trust as long as the runner starts anything; `None` if it starts nothing.
    store: Option<StoreId>,
    /// The error for which it leaves by itself.
    leaves_for: Option<Error>,
    /// The difference between this machine's clock and the store's.
    offset: i64,
    background: Background,
    /// The silence after which its runs are lost, where other machines cannot see whether it is alive.
    ttl: Option<Duration>,
    /// How long its sessions may continue without a runner, by the last renewal.
    limit: Option<Limit>,
    /// Its death is proven by the lock of this file, for processes that cannot see this one.
    _life: Option<Arc<LifeFile>>,
    /// When it leaves, whatever work is left.
    leaves_at: Option<Instant>,
    /// The runs whose keepers were reported as silent.
    silent: BTreeSet<RunId>,
    /// Why keepers that this process has started may have left no record.
    unbegun: BTreeMap<RunId, String>,
}

impl<'a> Runner<'a> {
    /// A runner that has not begun. It starts the commands in the store, so the user must have made or trusted the
    /// store; otherwise this is [`Error::Untrusted`]. Its sessions are supervised by this executable, so `main` must
    /// have called [`enter`](crate::enter).
    pub fn new(client: &'a Client, files: Sessions, options: RunOptions) -> Result<Runner<'a>, Error> {
        let store = client.trusted_store()?;
        reentry::program()?;
        let mut runner = Runner { store, ..Runner::with(client, files, options, None)? };
        runner.keepers.prepare();
        Ok(runner)
    }

    /// A runner that takes no tasks and only waits for the end of a run; if the run has no other runner, this one
    /// adopts it. It starts nothing, so it needs no trust.
    fn only(client: &'a Client, files: Sessions, run: RunId) -> Result<Runner<'a>, Error> {
        let options = RunOptions { max_runs: Some(0), sections: Vec::new(), until_idle: false, report: None };
        Runner::with(client, files, options, Some(run))
    }

    fn with(client: &'a Client, files: Sessions, options: RunOptions, only: Option<RunId>) -> Result<Runner<'a>, Error> {
        let mailbox = client.wakeups().runner_mailbox()?;
        let config = client.config();
        let id = RunnerId::new(&ids::short("n")).expect("a short id is valid");
        let ttl = mailbox.is_remote().then_some(config.heartbeat_timeout);
        let folder = client.project().folder();
        let folder = folder.canonicalize().map_err(Error::system("the project's folder cannot be found"))?;
        let report = options.report;
        let started = Stamp { lease: Lease(0), wall: Wall(host::wall_ms()) };
        let row = Row {
            sections: options.sections.clone(),
            max_runs: options.max_runs,
            until_idle: options.until_idle,
            terms: ttl.map(|ttl| Terms { ttl: span(ttl), folder: os_bytes::as_text(&folder).into() }),
            ..Row::new(id, client.this_process().clone(), mailbox.address().clone(), started)
        };
        let options = Options {
            max_runs: options.max_runs,
            limits: config.limits(),
            sections: options.sections,
            until_idle: options.until_idle,
            watch: config.watch(),
            max_duration: config.max_duration.map(span),
            checkpoint_interval: config.checkpoint_interval.map(span),
            kill_patience: span(config.kill_grace + KILL_PATIENCE),
            poll: span(config.poll_interval),
            lease: ttl.map(span),
        };
        let life_files = client.host().life_files.as_deref();
        let life = life_files.map(|files| LifeFile::hold(files, client.this_process())).transpose();
        let dispatcher = Dispatcher::new(row, options);
        Ok(Runner {
            client,
            files,
            mailbox,
            answered: Arc::new(AnswerSignal::new().map_err(Error::system("a descriptor for answers cannot be made"))?),
            listener: None,
            dispatcher: match only {
                Some(run) => dispatcher.only(run),
                None => dispatcher,
            },
            sessions: BTreeMap::new(),
            keepers: Keepers::default(),
            anchor: Anchor::open(&folder).map_err(Error::system("the project's folder cannot be opened"))?,
            store: None,
            leaves_for: None,
            offset: 0,
            background: Background::new(report).map_err(Error::system("a pair of sockets cannot be made"))?,
            ttl,
            // Without a renewal no session may begin.
            limit: ttl.map(|_| Limit::default()),
            _life: life.map_err(Error::system("cannot create the file that shows that this runner is alive"))?,
            leaves_at: None,
            silent: BTreeSet::new(),
            unbegun: BTreeMap::new(),
        })
    }

    pub fn id(&self) -> &RunnerId {
        self.dispatcher.id()
    }

    /// Works until no work is left, or `cancel` becomes readable. Its sessions live on.
    pub fn run(mut self, cancel: BorrowedFd<'_>, report: &mut dyn FnMut(RunnerReport)) -> Result<(), Error> {
        let fresh = || RunId::new(&ids::short("r")).expect("a short id is valid");
        let cleared = self.background.clear_away(self.client.project(), &self.files);
        loop {
            // Before anything is claimed or started: after a move, the folder would be created again, or another
            // project's files be used.
            if let Some(gone) = self.anchor.gone() {
                return Err(Error::Moved { path: self.anchor.path().into(), gone });
            }
            self.dispatcher.give_ids(fresh);
            match self.dispatcher.next(self.now()) {
                // Before anything is claimed.
                RunnerAction::Load(_) if self.is_distrusted() => self.dispatcher.on(RunnerInput::Leave, self.now()),
                RunnerAction::Load(keys) => match self.client.load(&keys) {
                    Ok(snapshot) => {
                        self.offset = snapshot.lease.0 - host::monotonic_ms();
                        self.dispatcher.on(RunnerInput::Rows(Box::new(snapshot)), self.now());
                    }
                    Err(error @ StoreError::Moved { .. }) => return Err(error.into()),
                    Err(error) => self.trouble(error, report),
                },
                RunnerAction::Probe(processes) => {
                    let found: Vec<_> =
                        processes.into_iter().map(|process| (process.clone(), self.client.host().probe(&process))).collect();
                    self.dispatcher.on(RunnerInput::Probed(found), self.now());
                }
                RunnerAction::Check(tasks) => {
                    let found: Vec<_> = tasks.into_iter().map(|task| (task.clone(), self.files.marker(&task))).collect();
                    self.dispatcher.on(RunnerInput::Checked(found), self.now());
                }
                RunnerAction::Call(requests) => {
                    let sent_ms = host::boot_ms();
                    let answers = self.call(requests);
                    match answers.into_iter().collect::<Result<Vec<_>, _>>() {
                        Ok(replies) => self.dispatcher.on(RunnerInput::Replies(replies), self.now()),
                        Err(error @ StoreError::Moved { .. }) => return Err(error.into()),
                        Err(error) => self.trouble(error, report),
                    }
                    self.renew_sessions(sent_ms);
                }
                RunnerAction::Spawn(work) => self.spawn(&work, report),
                RunnerAction::Recover(work) => self.recover(&work),
                RunnerAction::Pulse(run, silence) => self.background.ask_status(run.clone(), self.files.record(&run), silence),
                RunnerAction::Kill(run, now) => self.kill(&run, now),
                RunnerAction::Nudge(run, entry) => {
                    if let Some(session) = self.sessions.get_mut(&run) {
                        session.nudge(entry.0);
                    }
                }
                RunnerAction::Deliver(task, message, entry) => {
                    self.background.deliver(self.client.project(), task, message, entry);
                }
                RunnerAction::Notify(entry, notice) => match self.background.notify(self.client.project(), entry, &notice) {
                    Notifying::Begun { refused } if refused.is_empty() => {}
                    Notifying::Begun { refused } => report(RunnerReport::NoticeTrouble(notice, refused.join("; "))),
                    Notifying::Unwanted => self.dispatcher.on(RunnerInput::CommandDone(entry, Ok(())), self.now()),
                },
                RunnerAction::CheckGuards(pipeline) => self.background.check_guards(self.client.project(), pipeline),
                RunnerAction::StopGuards(pipeline) => self.background.stop_checking(&pipeline),
                RunnerAction::Land(target) => self.background.land(self.client.project(), target),
                RunnerAction::Acknowledge(run) => self.acknowledge(&run, report),
                RunnerAction::Forget(run) => drop(self.sessions.remove(&run)),
                // Events from before it began to listen must be handled first.
                RunnerAction::Sleep { .. } if self.start_listening(report) => {
                    self.dispatcher.on(RunnerInput::NewEvents, self.now())
                }
                RunnerAction::Sleep { watch, at_most } => match self.sleep(cancel, &watch, at_most, report) {
                    Woken::Called => {
                        self.mailbox.empty();
                        self.dispatcher.on(RunnerInput::Woken, self.now());
                    }
                    Woken::Cancelled => self.dispatcher.on(RunnerInput::Leave, self.now()),
                    Woken::Died(process) => self.dispatcher.on(RunnerInput::Died(process), self.now()),
                    Woken::Other => {}
                },
                RunnerAction::Done => break,
            }
            self.dispatcher.events().into_iter().for_each(|event| report(RunnerReport::Event(event)));
        }
        if let (Some(limit), sessions @ 1..) = (self.limit, self.sessions.len()) {
            report(RunnerReport::Left { sessions, within: Span::from_ms(limit.ask_ms - host::boot_ms()) });
        }
        self.keepers.dismiss(FAREWELL);
        self.background.dismiss(FAREWELL, cleared);
        self.leaves_for.map_or(Ok(()), Err)
    }

    /// Whether the user has just revoked the trust in the store.
    fn is_distrusted(&mut self) -> bool {
        let Some(store) = self.store.take() else { return false };
        self.leaves_for = self.client.project().require_trust_in(Some(store.clone())).err();
        self.store = self.leaves_for.is_none().then_some(store);
        self.leaves_for.is_some()
    }

    /// Starts or stops listening, as the dispatcher wants it. Returns whether it has started.
    fn start_listening(&mut self, report: &mut dyn FnMut(RunnerReport)) -> bool {
        if !self.dispatcher.listens() {
            self.listener = None;
            return false;
        }
        if self.listener.is_some() {
            return false;
        }
        let listener = self.client.reader().map_err(Error::from);
        match listener.and_then(|reader| EventListener::open(self.client.project(), reader.project())) {
            Ok(listener) => self.listener = Some(listener),
            // Without a listener, the regular poll remains.
            Err(Error::Store(error)) => report(RunnerReport::Trouble(error)),
            Err(_) => {}
        }
        self.listener.is_some()
    }

    fn now(&self) -> Lease {
        Lease(host::monotonic_ms() + self.offset)
    }

    /// The instant on the lease clock.
    fn lease_of(&self, instant: Instant) -> Lease {
        let ms = |span: Duration| Span::from_ms(i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 4));
        let now = Instant::now();
        match instant.checked_duration_since(now) {
            Some(left) => self.now() + ms(left),
            None => Lease(self.now().0 - ms(now - instant).as_ms()),
        }
    }

    fn trouble(&mut self, error: StoreError, report: &mut dyn FnMut(RunnerReport)) {
        report(RunnerReport::Trouble(error));
        self.dispatcher.on(RunnerInput::NoReply, self.now());
    }
}

/// Waits for the end of a run, and brings it about if its runner is gone: adopts what is left of its session, stops
/// that if the run is to be stopped, and records its end. Returns early if `cancel` becomes readable, after `at_most`,
/// or if the run is on another machine without a runner there: the run's row shows that.
pub fn recover_run(
    client: &Client,
    files: Sessions,
    run: RunId,
    cancel: BorrowedFd<'_>,
    at_most: Duration,
    report: &mut dyn FnMut(RunnerReport),
) -> Result<(), Error> {
    let runner = Runner::only(client, files, run)?;
    Runner { leaves_at: Instant::now().checked_add(at_most), ..runner }.run(cancel, report)
}
