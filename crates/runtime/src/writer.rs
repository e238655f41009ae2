//! How calls are written: by a thread that takes turns with other processes, or by the caller itself when nobody is
//! in the way.
//!
//! The thread waits for the writer lock first and then decides everything that has arrived meanwhile in one transaction. It
//! keeps the writer lock for a short slice while more keeps coming, because handing it over costs more than a transaction.
//! A caller that is alone does not pay for two thread switches: it takes a free turn, writes, and gives it back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use banksman_core::event::Actor;
use banksman_engine::{Reply, Request};
use banksman_store::{Committed, Identity, Key, Snapshot, Store, StoreError};

use crate::wakeups::Wakeups;

/// The most calls in one transaction.
const BATCH: usize = 256;

/// How long the writer lock goes on while calls keep coming.
const SLICE: Duration = Duration::from_millis(4);

/// How long to look for the next call before the writer lock is given up.
const LINGER: Duration = Duration::from_micros(150);

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
    /// How many calls are on their way to the thread.
    queued: AtomicUsize,
    /// Held while this process holds the writer lock.
    inside: Mutex<()>,
    /// Set while the thread waits for others to end their turn.
    outside: AtomicBool,
}

/// What the thread is told.
enum Message {
    Write(Arc<Job>),
    /// The change notifier is due: it was rung too short a time ago.
    Ring,
}

/// One call on its way.
struct Job {
    request: Request,
    state: Mutex<State>,
    answered: Condvar,
}

enum State {
    /// Not looked at yet: the caller may still withdraw it.
    Queued,
    /// Part of a batch.
    Taken,
    /// The caller has given up: before it was taken it must not happen any more, after that nobody listens.
    Abandoned,
    Answered(Result<Reply, StoreError>, Option<Relay>),
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
            state: Mutex::new(WriterState { store, wakeups, rung: None, ring_due: false, met: None }),
            queued: AtomicUsize::new(0),
            inside: Mutex::new(()),
            outside: AtomicBool::new(false),
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
    pub(crate) fn call_all(&self, requests: Vec<Request>, deadline: Duration) -> Vec<Result<Reply, StoreError>> {
        match self.write_alone(&requests) {
            Some(answers) => answers,
            None => {
                let jobs: Vec<_> = requests.into_iter().map(|request| self.submit(request)).collect();
                jobs.into_iter().map(|job| self.await_answer(&job?, deadline)).collect()
            }
        }
    }

    /// Writes at once if nobody else, in this process or another, wants to.
    fn write_alone(&self, requests: &[Request]) -> Option<Vec<Result<Reply, StoreError>>> {
        if self.shared.queued.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let mut state = try_lock(&self.shared.state)?;
        let _inside = try_lock(&self.shared.inside)?;
        if !state.enter_if_free() {
            return None;
        }
        let results = state.store.batch(requests);
        state.store.unlock_writer();
        if results.iter().all(|result| matches!(result, Err(StoreError::Stalled))) {
            state.met = Some(Instant::now());
            (self.on_stall)();
            return None;
        }
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
        state.tidy(true);
        Some(answers)
    }

    fn submit(&self, request: Request) -> Result<Arc<Job>, StoreError> {
        let job = Arc::new(Job { request, state: Mutex::new(State::Queued), answered: Condvar::new() });
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        if self.send(Message::Write(Arc::clone(&job))) { Ok(job) } else { Err(gone()) }
    }

    fn await_answer(&self, job: &Arc<Job>, deadline: Duration) -> Result<Reply, StoreError> {
        let start = Instant::now();
        let mut named = false;
        let mut state = lock(&job.state);
        loop {
            let waited = start.elapsed();
            match &mut *state {
                State::Answered(..) => break,
                State::Queued if waited >= deadline => {
                    *state = State::Abandoned;
                    return Err(StoreError::Stalled);
                }
                // The disk does not answer. Whether it will have happened is open.
                State::Taken if waited >= deadline * 2 => {
                    *state = State::Abandoned;
                    return Err(StoreError::Unknown { source: Arc::new(StoreError::Stalled) });
                }
                State::Queued | State::Taken if waited >= NAME_AFTER && !named => {
                    named = true;
                    drop(state);
                    (self.on_stall)();
                    state = lock(&job.state);
                    continue;
                }
                State::Queued | State::Taken | State::Abandoned => {}
            }
            let steps = [NAME_AFTER, deadline, deadline * 2];
            let next = steps.into_iter().find(|step| *step > waited).unwrap_or(deadline * 2);
            let left = next.saturating_sub(waited).max(Duration::from_millis(1));
            state = job.answered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let State::Answered(answer, relay) = std::mem::replace(&mut *state, State::Abandoned) else { unreachable!("just seen") };
        drop(state);
        relay.iter().for_each(Relay::pass_on);
        answer
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
        lock(&self.shared.state).store.view().load(keys)
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
    fn serve(&self, inbox: &Receiver<Message>) {
        let mut ring_due = false;
        loop {
            let first =
                if ring_due { inbox.recv_timeout(BELL_EVERY) } else { inbox.recv().map_err(|_| RecvTimeoutError::Disconnected) };
            match first {
                Ok(Message::Write(job)) => ring_due |= self.turn(job, inbox),
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

    /// One turn: waits for it first, so that everything that arrives meanwhile comes along. Says whether the change notifier is
    /// still to be rung.
    fn turn(&self, first: Arc<Job>, inbox: &Receiver<Message>) -> bool {
        let mut state = lock(&self.state);
        self.outside.store(true, Ordering::Release);
        let entered = state.enter();
        self.outside.store(false, Ordering::Release);
        let inside = lock(&self.inside);
        if let Err(error) = entered {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            first.answer(Err(error));
            return false;
        }
        let began = Instant::now();
        let mut ring_due = false;
        let mut next = Some(first);
        while let Some(first) = next {
            let mut arrived = vec![first];
            for message in inbox.try_iter().take(BATCH - 1) {
                match message {
                    Message::Write(job) => arrived.push(job),
                    Message::Ring => ring_due = true,
                }
            }
            self.queued.fetch_sub(arrived.len(), Ordering::Relaxed);
            arrived.retain(|job| job.take());
            let Wrote { events, woke } = state.write(&arrived);
            ring_due |= events;
            // Whoever was woken comes for the writer lock now, so it is not kept for those who might come.
            next = if woke || began.elapsed() >= SLICE { None } else { self.linger(inbox, &mut ring_due) };
        }
        state.store.unlock_writer();
        drop(inside);
        let quiet = self.queued.load(Ordering::Relaxed) == 0;
        state.tidy(quiet);
        ring_due && !state.ring_if_time()
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
}

impl WriterState {
    /// Takes the writer lock, and notes whether others wanted it.
    fn enter(&mut self) -> Result<(), StoreError> {
        if self.has_just_met() || !self.store.try_lock_writer()? {
            self.met = Some(Instant::now());
            self.store.lock_writer()?;
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

    /// Writes a batch and answers it.
    fn write(&mut self, jobs: &[Arc<Job>]) -> Wrote {
        let mut wrote = Wrote::default();
        if jobs.is_empty() {
            return wrote;
        }
        let requests: Vec<&Request> = jobs.iter().map(|job| &job.request).collect();
        let mut results = self.store.batch(&requests);
        if results.iter().all(|result| matches!(result, Err(StoreError::Stalled))) && self.store.lock_writer().is_ok() {
            // Others are in the way for longer than one waits without a reason.
            self.met = Some(Instant::now());
            results = self.store.batch(&requests);
        }
        let mut jobs = jobs.iter();
        for result in results {
            match result {
                Ok(Committed { replies, wakes, events, .. }) => {
                    wakes.iter().for_each(|address| self.wakeups.wake(address));
                    answer_all(jobs.by_ref().take(replies.len()).cloned().collect(), replies);
                    wrote.events |= events > 0;
                    wrote.woke |= !wakes.is_empty();
                }
                Err(error) => {
                    if let Some(job) = jobs.next() {
                        job.answer(Err(error));
                    }
                }
            }
        }
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
    fn take(&self) -> bool {
        let mut state = lock(&self.state);
        let queued = matches!(*state, State::Queued);
        if queued {
            *state = State::Taken;
        }
        queued
    }

    fn answer(&self, answer: Result<Reply, StoreError>) {
        self.put(answer, None);
        self.answered.notify_one();
    }

    fn put(&self, answer: Result<Reply, StoreError>, relay: Option<Relay>) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Abandoned) {
            *state = State::Answered(answer, relay);
        }
    }

    fn is_abandoned(&self) -> bool {
        matches!(*lock(&self.state), State::Abandoned)
    }
}

/// Answers the calls of one batch. The first caller wakes the next two, and so on. One that has given up would break
/// the relay, so it is left out; one that is in it sees its answer at the latest when its time is up.
fn answer_all(jobs: Vec<Arc<Job>>, replies: Vec<Reply>) {
    let (jobs, replies): (Vec<_>, Vec<_>) = jobs.into_iter().zip(replies).filter(|(job, _)| !job.is_abandoned()).unzip();
    let jobs: Arc<[Arc<Job>]> = jobs.into();
    for (index, (job, reply)) in jobs.iter().zip(replies).enumerate() {
        job.put(Ok(reply), Some(Relay { jobs: Arc::clone(&jobs), index }));
    }
    if let Some(first) = jobs.first() {
        first.answered.notify_one();
    }
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
