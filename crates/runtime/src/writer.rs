//! How calls are written: by a thread that takes turns with other processes, or by the caller itself when nobody is
//! in the way.
//!
//! The thread waits for the writer lock first and then decides everything that has arrived meanwhile in one transaction. It
//! keeps the writer lock for a short slice while more keeps coming, because handing it over costs more than a transaction.
//! A caller that is alone does not pay for two thread switches: it takes a free writer lock, writes, and gives it back; and if other
//! processes want it too, the thread waits for it and lends it to the caller for the rest of the slice.
//!
//! One that has other things to do than to wait [begins](Writer::begin) a call. As long as others write, it may still change what it asks for,
//! so that a busy store makes its transactions larger and not its line longer.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use banksman_core::event::Actor;
use banksman_engine::{Reply, Request};
use banksman_store::{Committed, Identity, Key, Snapshot, Store, StoreError, View};
use rustix::event::{EventfdFlags, eventfd};

use crate::wakeups::Wakeups;

/// The most requests in one transaction.
const BATCH: usize = 256;

/// How long the writer lock goes on while calls keep coming.
const SLICE: Duration = Duration::from_millis(4);

/// How long to look for the next call before the writer lock is given up, if the calls of this process come one upon the other.
const LINGER: Duration = Duration::from_micros(150);

/// A caller that comes back within this time after an answer is likely to do so again, also if it had to wait for a processor meanwhile.
const PROMPT: Duration = Duration::from_millis(1);

/// How long to leave the writer lock to others, in their order, after one of them was met at the writer lock.
const POLITE: Duration = Duration::from_millis(100);

/// After this long, the process that holds the store up is named.
const NAME_AFTER: Duration = Duration::from_secs(2);

/// The change notifier is not rung more often than this.
const BELL_EVERY: Duration = Duration::from_millis(10);

/// Called when the store is held up, to find out and tell by whom.
pub(crate) type OnStall = Box<dyn Fn() + Send + Sync>;

/// The client: writes calls, or hands them to the thread.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    jobs: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    on_stall: OnStall,
}

/// What the callers and the thread share.
struct Shared {
    state: Mutex<WriterState>,
    /// How many jobs are on their way to the thread.
    queued: AtomicUsize,
    /// Held while this process holds the writer lock.
    inside: Mutex<()>,
    /// Set while the thread waits for others to end their turn.
    outside: AtomicBool,
    /// When a caller last went on with its answers.
    returned: Mutex<Option<Instant>>,
}

/// What the thread is told.
enum Message {
    Write(Arc<Job>),
    /// The change notifier is due: it was rung too short a time ago.
    Ring,
}

/// The requests of one call on their way.
struct Job {
    state: Mutex<State>,
    answered: Condvar,
    /// For a caller that does not wait for the condition alone.
    bell: Option<Arc<Bell>>,
    /// Whether it came as soon as the one before was answered: then the next one is likely to do so, too.
    is_prompt: bool,
}

enum State {
    /// Not looked at yet: the caller may still withdraw or change it.
    Queued(Vec<Request>),
    /// Part of a batch.
    Taken,
    /// The caller has given up: before it was taken it must not happen any more, after that nobody listens.
    Abandoned,
    Answered(Answers, Option<Relay>),
}

/// The answers to the requests of one call, in their order.
pub(crate) type Answers = Vec<Result<Reply, StoreError>>;

/// Becomes readable when a call is answered.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> std::io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    fn ring(&self) {
        // It cannot overflow: it is silenced before the next call.
        rustix::io::write(&self.0, &1u64.to_ne_bytes()).ok();
    }

    fn silence(&self) {
        // Nothing to read is as well.
        rustix::io::read(&self.0, &mut [0; 8]).ok();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A call that others stand before.
pub(crate) struct Pending {
    job: Arc<Job>,
    /// How many requests it has.
    count: usize,
    since: Instant,
    deadline: Duration,
    is_named: bool,
}

/// Those who are answered together wake each other, each one two more. Waking a thread costs more than deciding its
/// call, and the thread that writes has better things to do.
struct Relay {
    jobs: Arc<[Arc<Job>]>,
    index: usize,
}

impl Relay {
    fn pass_on(&self) {
        let next = 2 * self.index + 1;
        self.jobs.iter().skip(next).take(2).for_each(|job| job.answered.notify_one());
    }
}

impl Writer {
    pub(crate) fn start(store: Store, wakeups: Arc<Wakeups>, on_stall: OnStall) -> std::io::Result<Writer> {
        let (jobs, inbox) = mpsc::channel();
        let shared = Arc::new(Shared {
            state: Mutex::new(WriterState { store, wakeups, rung: None, ring_due: false, met: None, loan: None }),
            queued: AtomicUsize::new(0),
            inside: Mutex::new(()),
            outside: AtomicBool::new(false),
            returned: Mutex::new(None),
        });
        let server = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("banksman-writer".into()).spawn(move || server.serve(&inbox))?;
        Ok(Writer { shared, jobs: Some(jobs), thread: Some(thread), on_stall })
    }

    /// Carries out a call. At the deadline it is withdrawn: then it has not happened and will not happen.
    pub(crate) fn call(&self, request: Request, deadline: Duration) -> Result<Reply, StoreError> {
        self.call_all(vec![request], deadline).pop().expect("one call has one answer")
    }

    /// Carries out several calls in their order, in one transaction if they are not too many.
    pub(crate) fn call_all(&self, mut requests: Vec<Request>, deadline: Duration) -> Answers {
        if let Some(answers) = self.write_alone(&requests) {
            return answers;
        }
        let mut calls = Vec::with_capacity(1);
        while !requests.is_empty() {
            let rest = requests.split_off(BATCH.min(requests.len()));
            calls.push(self.submit(std::mem::replace(&mut requests, rest), deadline, None));
        }
        calls.into_iter().flat_map(|call| call.map_or_else(|refused| refused, |mut call| self.await_answers(&mut call))).collect()
    }

    /// Carries out the requests at once if nobody is in the way. Else the bell tells when the call is to be [looked at](Writer::look).
    pub(crate) fn begin(&self, requests: Vec<Request>, deadline: Duration, bell: &Arc<Bell>) -> Result<Answers, Pending> {
        if let Some(answers) = self.write_alone(&requests) {
            return Ok(answers);
        }
        bell.silence();
        self.submit(requests, deadline, Some(bell)).map_or_else(Ok, Err)
    }

    /// Changes what a call asks for, unless it is a part of a batch already.
    pub(crate) fn amend(&self, call: &mut Pending, change: impl FnOnce(&mut Vec<Request>)) {
        if let State::Queued(requests) = &mut *lock(&call.job.state) {
            change(requests);
            call.count = requests.len();
        }
    }

    /// Writes at once if nobody else, in this process or another, wants to, or with the writer lock that the thread has lent.
    fn write_alone(&self, requests: &[Request]) -> Option<Answers> {
        if self.shared.queued.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let mut state = try_lock(&self.shared.state)?;
        let is_borrowed = state.loan.is_some();
        // The thread that lends the writer lock is inside for its borrower.
        let _inside = if is_borrowed { None } else { Some(try_lock(&self.shared.inside)?) };
        if !is_borrowed && !state.enter_if_free() {
            return None;
        }
        let results = state.store.batch(requests);
        let is_stalled = results.iter().all(|result| matches!(result, Err(StoreError::Stalled)));
        let woke = results.iter().flatten().any(|committed| !committed.wakes.is_empty());
        state.keep_or_unlock(woke || is_stalled);
        if is_stalled {
            state.met = Some(Instant::now());
            (self.on_stall)();
            return None;
        }
        state.note_others();
        let mut answers = Vec::with_capacity(requests.len());
        for result in results {
            match result {
                Ok(Committed { replies, wakes, events, .. }) => {
                    wakes.iter().for_each(|address| state.wakeups.wake(address));
                    if events > 0 && !state.ring_if_time() {
                        self.send(Message::Ring);
                    }
                    answers.extend(replies.into_iter().map(Ok));
                }
                Err(error) => answers.push(Err(error)),
            }
        }
        // Who lends the writer lock tidies up afterwards.
        if !is_borrowed {
            state.tidy(true);
        }
        drop(state);
        self.shared.note_return();
        Some(answers)
    }

    /// Sends a call to the thread. Fails with the answers if that has ended.
    fn submit(&self, requests: Vec<Request>, deadline: Duration, bell: Option<&Arc<Bell>>) -> Result<Pending, Answers> {
        let count = requests.len();
        let (state, answered) = (Mutex::new(State::Queued(requests)), Condvar::new());
        let is_prompt = lock(&self.shared.returned).is_some_and(|returned| returned.elapsed() < PROMPT);
        let job = Arc::new(Job { state, answered, bell: bell.map(Arc::clone), is_prompt });
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        if self.send(Message::Write(Arc::clone(&job))) {
            Ok(Pending { job, count, since: Instant::now(), deadline, is_named: false })
        } else {
            Err(failed(&gone(), count))
        }
    }

    fn await_answers(&self, call: &mut Pending) -> Answers {
        loop {
            if let Some(answers) = self.look(call) {
                return answers;
            }
            let state = lock(&call.job.state);
            if matches!(*state, State::Queued(_) | State::Taken) {
                drop(call.job.answered.wait_timeout(state, call.patience()));
            }
        }
    }

    /// The answers to a call, once they are there. At its deadline it is withdrawn: then it has not happened and will not happen.
    pub(crate) fn look(&self, call: &mut Pending) -> Option<Answers> {
        let waited = call.since.elapsed();
        let mut state = lock(&call.job.state);
        let error = match &*state {
            State::Answered(..) => {
                let State::Answered(answers, relay) = std::mem::replace(&mut *state, State::Abandoned) else {
                    unreachable!("just seen")
                };
                drop(state);
                relay.iter().for_each(Relay::pass_on);
                self.shared.note_return();
                return Some(answers);
            }
            State::Queued(_) if waited >= call.deadline => StoreError::Stalled,
            // The disk does not answer. Whether it will have happened is open.
            State::Taken if waited >= call.deadline * 2 => StoreError::Unknown { source: Arc::new(StoreError::Stalled) },
            State::Queued(_) | State::Taken | State::Abandoned => {
                drop(state);
                if waited >= NAME_AFTER && !std::mem::replace(&mut call.is_named, true) {
                    (self.on_stall)();
                }
                return None;
            }
        };
        *state = State::Abandoned;
        Some(failed(&error, call.count))
    }

    /// Notes with every event from now on whose command caused it.
    pub(crate) fn act_for(&self, actor: &Actor) {
        lock(&self.shared.state).store.act_for(actor);
    }

    /// Tells the database that much has been added. Without it plans are worse for a while, so a failure does not matter.
    pub(crate) fn analyze(&self) {
        lock(&self.shared.state).store.analyze().ok();
    }

    /// The id of the store.
    pub(crate) fn identity(&self) -> Result<Identity, StoreError> {
        lock(&self.shared.state).store.view().identity()
    }

    /// Reads rows over the connection that writes, whose pages are in memory already.
    pub(crate) fn load(&self, keys: &BTreeSet<Key>) -> Result<Snapshot, StoreError> {
        self.view(|view| view.load(keys))
    }

    /// The same for whatever can be read.
    pub(crate) fn view<T>(&self, read: impl FnOnce(&mut View<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        read(&mut lock(&self.shared.state).store.view())
    }

    fn send(&self, message: Message) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(message).is_ok())
    }

    /// Runs `f` at a moment when this process does not have the writer lock, and takes no turn until it returns.
    pub(crate) fn outside_turn(&self, f: impl FnOnce()) {
        let _outside = lock(&self.shared.inside);
        f();
    }
}

impl Pending {
    /// How long to wait before the call is looked at again, answered or not.
    pub(crate) fn patience(&self) -> Duration {
        let waited = self.since.elapsed();
        let steps = [NAME_AFTER, self.deadline, self.deadline * 2];
        let next = steps.into_iter().filter(|step| *step > waited).min().unwrap_or(self.deadline * 2);
        next.saturating_sub(waited).max(Duration::from_millis(1))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        // A thread that still waits for the writer lock has nothing left to do: whoever called it has given up.
        if let Some(thread) = self.thread.take().filter(|_| !self.shared.outside.load(Ordering::Acquire)) {
            // A panic over there ends the process by itself; there is nothing to add.
            thread.join().ok();
        }
    }
}

impl Shared {
    fn note_return(&self) {
        *lock(&self.returned) = Some(Instant::now());
    }

    fn serve(&self, inbox: &Receiver<Message>) {
        let mut ring_due = false;
        let mut next = None;
        loop {
            let first = match next.take() {
                Some(job) => Ok(Message::Write(job)),
                None if ring_due => inbox.recv_timeout(BELL_EVERY),
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match first {
                Ok(Message::Write(job)) => next = self.turn(job, inbox, &mut ring_due),
                Ok(Message::Ring) => ring_due = true,
                Err(RecvTimeoutError::Timeout) => {
                    ring_due = false;
                    lock(&self.state).ring();
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if ring_due {
            lock(&self.state).ring();
        }
    }

    /// One turn: waits for it first, so that everything that arrives meanwhile comes along. Notes if the change notifier is still to be
    /// rung, and returns a call that came when the writer lock had been given back.
    fn turn(&self, first: Arc<Job>, inbox: &Receiver<Message>, ring_due: &mut bool) -> Option<Arc<Job>> {
        let mut state = lock(&self.state);
        // For callers that do not come back at once, waiting for them would hold everybody up.
        let lingers = first.is_prompt;
        self.outside.store(true, Ordering::Release);
        let entered = state.enter();
        self.outside.store(false, Ordering::Release);
        let inside = lock(&self.inside);
        if let Err(error) = entered {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            if let Some(requests) = first.take() {
                first.answer(failed(&error, requests.len()), None);
                first.answered.notify_one();
            }
            return None;
        }
        let ends = Instant::now() + SLICE;
        let mut has_events = false;
        let mut next = Some(first);
        let mut late = None;
        while let Some(first) = next {
            let mut batch = Batch::default();
            batch.add(first);
            let mut arrived = 1;
            while batch.requests.len() < BATCH
                && let Ok(message) = inbox.try_recv()
            {
                match message {
                    Message::Write(job) => {
                        batch.add(job);
                        arrived += 1;
                    }
                    Message::Ring => *ring_due = true,
                }
            }
            self.queued.fetch_sub(arrived, Ordering::Relaxed);
            let is_alone = batch.jobs.len() == 1;
            let Wrote { events, woke } = state.write(batch);
            has_events |= events;
            // Whoever was woken comes for the writer lock now, so it is not kept for those who might come.
            next = if woke || !lingers || Instant::now() >= ends {
                None
            } else if is_alone && state.store.keeps_writer_lock() {
                let came;
                (state, came) = self.lend(state, ends, inbox, ring_due);
                if state.loan.take().is_some() {
                    came
                } else {
                    late = came;
                    None
                }
            } else {
                self.linger(inbox, ring_due)
            };
        }
        state.store.unlock_writer();
        drop(inside);
        let quiet = self.queued.load(Ordering::Relaxed) == 0;
        state.tidy(quiet);
        if has_events && !state.ring_if_time() {
            *ring_due = true;
        }
        late
    }

    /// Lends the writer lock to the only caller, which then writes without a switch of threads, until the slice is over or it has stopped
    /// calling. Returns the next call that was handed over instead. The loan is gone if the borrower has given the writer lock back.
    fn lend<'s>(
        &'s self,
        mut state: MutexGuard<'s, WriterState>,
        ends: Instant,
        inbox: &Receiver<Message>,
        ring_due: &mut bool,
    ) -> (MutexGuard<'s, WriterState>, Option<Arc<Job>>) {
        state.loan = Some(Loan { ends, used: Instant::now() });
        loop {
            drop(state);
            let message = inbox.recv_timeout(LINGER);
            state = lock(&self.state);
            match message {
                Ok(Message::Write(job)) => return (state, Some(job)),
                Ok(Message::Ring) => *ring_due = true,
                Err(RecvTimeoutError::Disconnected) => return (state, None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if state.loan.as_ref().is_none_or(|loan| loan.used.elapsed() >= LINGER) {
                return (state, None);
            }
        }
    }

    /// Looks for the next call for a moment: its caller has just been answered and is likely to have one.
    fn linger(&self, inbox: &Receiver<Message>, ring_due: &mut bool) -> Option<Arc<Job>> {
        let since = Instant::now();
        while since.elapsed() < LINGER {
            match inbox.try_recv() {
                Ok(Message::Write(job)) => return Some(job),
                Ok(Message::Ring) => *ring_due = true,
                Err(_) => std::hint::spin_loop(),
            }
        }
        None
    }
}

/// The calls that are written together.
#[derive(Default)]
struct Batch {
    requests: Vec<Request>,
    /// Whose requests they are, and how many of each.
    jobs: Vec<(Arc<Job>, usize)>,
}

impl Batch {
    /// Takes a call in, unless its caller has withdrawn it.
    fn add(&mut self, job: Arc<Job>) {
        if let Some(requests) = job.take() {
            self.jobs.push((job, requests.len()));
            self.requests.extend(requests);
        }
    }
}

/// What a batch has brought about.
#[derive(Default)]
struct Wrote {
    /// Something happened that followers want to hear of.
    events: bool,
    /// Somebody who waited was granted something.
    woke: bool,
}

/// The store, and what happens after each commit.
struct WriterState {
    store: Store,
    wakeups: Arc<Wakeups>,
    rung: Option<Instant>,
    ring_due: bool,
    /// When another process was last met at the writer lock.
    met: Option<Instant>,
    /// Set while the thread has the writer lock and a caller may write with it.
    loan: Option<Loan>,
}

/// The writer lock in the hands of a caller.
struct Loan {
    /// When it goes to other processes.
    ends: Instant,
    /// When the caller last wrote.
    used: Instant,
}

impl WriterState {
    /// Takes the writer lock, and notes whether others wanted it.
    fn enter(&mut self) -> Result<(), StoreError> {
        let has_met = match self.has_just_met() {
            true => self.store.lock_writer()?,
            false if self.store.try_lock_writer()? => false,
            false => self.store.lock_writer().map(|_| true)?,
        };
        if has_met {
            self.met = Some(Instant::now());
        }
        Ok(())
    }

    fn has_just_met(&self) -> bool {
        self.met.is_some_and(|met| met.elapsed() < POLITE)
    }

    /// Takes the writer lock if that overtakes nobody. A free turn is not proof: those who wait may just be waking up.
    fn enter_if_free(&mut self) -> bool {
        if self.has_just_met() {
            return false;
        }
        let entered = self.store.try_lock_writer().unwrap_or(false);
        if !entered {
            self.met = Some(Instant::now());
        }
        entered
    }

    /// Notes whether others wanted to write, where only the transaction itself finds out.
    fn note_others(&mut self) {
        if self.store.has_waited() {
            self.met = Some(Instant::now());
        }
    }

    /// After a write of a caller: keeps a writer lock that is lent for longer, and gives back any other.
    fn keep_or_unlock(&mut self, is_wanted: bool) {
        let now = Instant::now();
        match &mut self.loan {
            Some(loan) if !is_wanted && now < loan.ends => loan.used = now,
            loan => {
                *loan = None;
                self.store.unlock_writer();
            }
        }
    }

    /// Writes a batch and answers it.
    fn write(&mut self, batch: Batch) -> Wrote {
        let mut wrote = Wrote::default();
        let Batch { requests, jobs } = batch;
        if requests.is_empty() {
            return wrote;
        }
        let mut results = self.store.batch(&requests);
        if results.iter().all(|result| matches!(result, Err(StoreError::Stalled))) && self.store.lock_writer().is_ok() {
            // Others are in the way for longer than one waits without a reason.
            self.met = Some(Instant::now());
            results = self.store.batch(&requests);
        }
        self.note_others();
        let mut answers = Vec::with_capacity(requests.len());
        for result in results {
            match result {
                Ok(Committed { replies, wakes, events, .. }) => {
                    wakes.iter().for_each(|address| self.wakeups.wake(address));
                    answers.extend(replies.into_iter().map(Ok));
                    wrote.events |= events > 0;
                    wrote.woke |= !wakes.is_empty();
                }
                Err(error) => answers.push(Err(error)),
            }
        }
        answer_all(jobs, answers);
        wrote
    }

    /// Rings unless that was done a moment ago. Says whether it is done with.
    fn ring_if_time(&mut self) -> bool {
        if self.rung.is_some_and(|rung| rung.elapsed() < BELL_EVERY) {
            // The first one to find it too early has it rung later, for all who come until then.
            return std::mem::replace(&mut self.ring_due, true);
        }
        self.ring();
        true
    }

    fn ring(&mut self) {
        self.ring_due = false;
        self.rung = Some(Instant::now());
        self.wakeups.ring(&mut self.store);
    }

    /// A checkpoint that fails is tried again after the next batch; nothing depends on it.
    fn tidy(&mut self, quiet: bool) {
        self.store.tidy(quiet).ok();
    }
}

impl Job {
    /// Takes the call into a batch, unless its caller has withdrawn it.
    fn take(&self) -> Option<Vec<Request>> {
        let mut state = lock(&self.state);
        let State::Queued(requests) = &mut *state else { return None };
        let requests = std::mem::take(requests);
        *state = State::Taken;
        Some(requests)
    }

    fn answer(&self, answers: Answers, relay: Option<Relay>) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Abandoned) {
            *state = State::Answered(answers, relay);
        }
        drop(state);
        self.bell.iter().for_each(|bell| bell.ring());
    }

    fn is_abandoned(&self) -> bool {
        matches!(*lock(&self.state), State::Abandoned)
    }
}

/// Answers the calls of one batch. The first caller wakes the next two, and so on. One that has given up would break
/// the relay, so it is left out; one that is in it sees its answer at the latest when its time is up.
fn answer_all(jobs: Vec<(Arc<Job>, usize)>, answers: Answers) {
    let mut rest = answers.into_iter();
    let own = jobs.into_iter().map(|(job, count)| (job, rest.by_ref().take(count).collect::<Answers>()));
    let (jobs, answers): (Vec<_>, Vec<_>) = own.filter(|(job, _)| !job.is_abandoned()).unzip();
    let jobs: Arc<[Arc<Job>]> = jobs.into();
    for (index, (job, answers)) in jobs.iter().zip(answers).enumerate() {
        job.answer(answers, Some(Relay { jobs: Arc::clone(&jobs), index }));
    }
    if let Some(first) = jobs.first() {
        first.answered.notify_one();
    }
}

/// The answers to so many requests that have failed together.
fn failed(error: &StoreError, count: usize) -> Answers {
    (0..count).map(|_| Err(error.clone())).collect()
}

fn gone() -> StoreError {
    StoreError::Failed { source: Arc::new(std::io::Error::other("the writing thread has ended")) }
}

/// Takes a mutex that is free. One that a panic has poisoned is as good as any: the store rolls back by itself.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
