//! Writes calls: on a thread that shares the writer lock with other processes, or in the caller itself when no other
//! writer is waiting.
//!
//! The thread waits for the writer lock first and then decides everything that has arrived meanwhile in one
//! transaction. It keeps the writer lock for a short slice while more calls arrive, because passing it on costs more
//! than a transaction. A single caller does not pay for two thread switches: it takes a free writer lock, writes, and
//! releases it; if other processes want the lock too, the thread waits for it and lends it to the caller for the rest
//! of the slice.
//!
//! A caller that must not block [begins](Writer::begin) a call. As long as other processes write, it may still change
//! its requests, so that a busy store makes its transactions larger and not more numerous.

mod queued_call;
mod thread;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use banksman_core::event::Actor;
use banksman_engine::{Reply, Request};
use banksman_store::{Committed, Identity, Key, Snapshot, Store, StoreError, View};

pub(crate) use queued_call::{AnswerSignal, Answers};
use queued_call::{QueuedCall, Relay, State, failed};
use thread::{Message, Shared};

use crate::wakeups::Wakeups;

/// The most requests in one transaction.
const BATCH: usize = 256;

/// A caller that comes back within this time after an answer is likely to do so again, also if it had to wait for a
/// processor meanwhile.
const PROMPT: Duration = Duration::from_millis(1);

/// The wait after which the process that holds the store up is named.
const NAME_AFTER: Duration = Duration::from_secs(2);

/// Called when the store is held up, to find and report the process that holds it.
pub(crate) type OnStall = Box<dyn Fn() + Send + Sync>;

/// The client: writes calls itself, or passes them to the thread.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    queue: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    on_stall: OnStall,
}

/// A call that waits for other writers.
pub(crate) struct Pending {
    queued: Arc<QueuedCall>,
    /// The number of its requests.
    count: usize,
    since: Instant,
    deadline: Duration,
    is_named: bool,
}

impl Writer {
    pub(crate) fn start(store: Store, wakeups: Arc<Wakeups>, on_stall: OnStall) -> std::io::Result<Writer> {
        let (queue, inbox) = mpsc::channel();
        let shared = Arc::new(Shared::new(store, wakeups));
        let server = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("banksman-writer".into()).spawn(move || server.serve(&inbox))?;
        Ok(Writer { shared, queue: Some(queue), thread: Some(thread), on_stall })
    }

    /// Carries out a call. At the deadline it is withdrawn: it has no effect, now or later.
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

    /// Carries out the requests at once if no other writer is in the way. Otherwise the signal is raised when the call
    /// is to be [polled](Writer::poll).
    pub(crate) fn begin(
        &self,
        requests: Vec<Request>,
        deadline: Duration,
        signal: &Arc<AnswerSignal>,
    ) -> Result<Answers, Pending> {
        if let Some(answers) = self.write_alone(&requests) {
            return Ok(answers);
        }
        signal.clear();
        self.submit(requests, deadline, Some(signal)).map_or_else(Ok, Err)
    }

    /// Changes the requests of a call, unless it is already part of a batch.
    pub(crate) fn amend(&self, call: &mut Pending, change: impl FnOnce(&mut Vec<Request>)) {
        if let State::Queued(requests) = &mut *lock(&call.queued.state) {
            change(requests);
            call.count = requests.len();
        }
    }

    /// Writes at once if no other writer, in this process or another, wants to, or with the writer lock that the thread
    /// has lent.
    fn write_alone(&self, requests: &[Request]) -> Option<Answers> {
        if self.shared.queued.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let mut state = try_lock(&self.shared.state)?;
        let is_borrowed = state.lent_until.is_some();
        // The thread that lends the writer lock holds `inside` for its borrower.
        let _inside = if is_borrowed { None } else { Some(try_lock(&self.shared.inside)?) };
        if !is_borrowed && !state.enter_if_free() {
            return None;
        }
        if is_borrowed {
            self.shared.used.begin();
        }
        let results = state.store.batch(requests);
        let is_stalled = results.iter().all(|result| matches!(result, Err(StoreError::Stalled)));
        let woke = results.iter().flatten().any(|committed| !committed.wakes.is_empty());
        state.keep_or_unlock(woke || is_stalled);
        if is_borrowed {
            self.shared.used.note();
        }
        if is_stalled {
            state.met = Some(Instant::now());
            (self.on_stall)();
            return None;
        }
        state.note_others();
        let mut answers = Vec::with_capacity(requests.len());
        for result in results {
            match result {
                Ok(Committed { replies, wakes, events, is_followed, .. }) => {
                    wakes.iter().for_each(|address| state.wakeups.wake(address));
                    if events > 0 && is_followed && !state.notify_if_time() {
                        self.send(Message::Notify);
                    }
                    answers.extend(replies.into_iter().map(Ok));
                }
                Err(error) => answers.push(Err(error)),
            }
        }
        // The lender of the writer lock tidies up afterwards.
        if !is_borrowed {
            state.tidy(true);
        }
        drop(state);
        self.shared.returned.note();
        Some(answers)
    }

    /// Sends a call to the thread. Fails with the answers if the thread has ended.
    fn submit(&self, requests: Vec<Request>, deadline: Duration, signal: Option<&Arc<AnswerSignal>>) -> Result<Pending, Answers> {
        let count = requests.len();
        let is_prompt = self.shared.returned.elapsed() < PROMPT;
        let queued = Arc::new(QueuedCall::new(requests, signal.map(Arc::clone), is_prompt));
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        if self.send(Message::Write(Arc::clone(&queued))) {
            Ok(Pending { queued, count, since: Instant::now(), deadline, is_named: false })
        } else {
            Err(failed(&gone(), count))
        }
    }

    fn await_answers(&self, call: &mut Pending) -> Answers {
        loop {
            if let Some(answers) = self.poll(call) {
                return answers;
            }
            let state = lock(&call.queued.state);
            if matches!(*state, State::Queued(_) | State::Taken) {
                drop(call.queued.answered.wait_timeout(state, call.patience()));
            }
        }
    }

    /// The answers to a call, if there are any. At its deadline it is withdrawn: it has no effect, now or later.
    pub(crate) fn poll(&self, call: &mut Pending) -> Option<Answers> {
        let waited = call.since.elapsed();
        let mut state = lock(&call.queued.state);
        let error = match &*state {
            State::Answered(..) => {
                let State::Answered(answers, relay) = std::mem::replace(&mut *state, State::Abandoned) else {
                    unreachable!("just seen")
                };
                drop(state);
                relay.iter().for_each(Relay::pass_on);
                self.shared.returned.note();
                return Some(answers);
            }
            State::Queued(_) if waited >= call.deadline => StoreError::Stalled,
            // The disk does not answer. It is unknown whether the call will take effect.
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

    /// Records the actor as the cause of every event from now on.
    pub(crate) fn act_for(&self, actor: &Actor) {
        lock(&self.shared.state).store.act_for(actor);
    }

    /// Updates the statistics of the database after many insertions. Without that, plans are worse for a while, so a
    /// failure is ignored.
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

    /// The same for any read.
    pub(crate) fn view<T>(&self, read: impl FnOnce(&mut View<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        read(&mut lock(&self.shared.state).store.view())
    }

    fn send(&self, message: Message) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.send(message).is_ok())
    }

    /// Runs `f` while this process does not have the writer lock, and does not take it until `f` returns.
    pub(crate) fn without_writer_lock(&self, f: impl FnOnce()) {
        let _outside = lock(&self.shared.inside);
        f();
    }
}

impl Pending {
    /// How long to wait before the call is polled again, answered or not.
    pub(crate) fn patience(&self) -> Duration {
        let waited = self.since.elapsed();
        let steps = [NAME_AFTER, self.deadline, self.deadline * 2];
        let next = steps.into_iter().filter(|step| *step > waited).min().unwrap_or(self.deadline * 2);
        next.saturating_sub(waited).max(Duration::from_millis(1))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        // If the thread still waits for the writer lock, it has nothing left to do: its callers have given up.
        if let Some(thread) = self.thread.take().filter(|_| !self.shared.outside.load(Ordering::Acquire)) {
            // A panic of the thread ends the process by itself; there is nothing to add.
            thread.join().ok();
        }
    }
}

fn gone() -> StoreError {
    StoreError::Failed { source: Arc::new(std::io::Error::other("the writing thread has ended")) }
}

/// Locks a mutex if it is free. A poisoned one is as good as any: the store rolls back by itself.
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
