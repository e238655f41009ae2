//! The writer thread: when it takes the writer lock, when it lends it to a caller, and when it releases it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use banksman_store::{Committed, Store, StoreError};

use super::queued_call::{Answers, Batch, QueuedCall};
use super::{BATCH, lock};
use crate::wakeups::Wakeups;

/// How long the writer lock is kept while calls keep coming.
const SLICE: Duration = Duration::from_millis(4);

/// How long to spin for the next call before the writer lock is released, if the calls of this process come in quick
/// succession.
const LINGER: Duration = Duration::from_micros(150);

/// How long to queue for the writer lock instead of taking a free one, after another process wanted it.
const POLITE: Duration = Duration::from_millis(100);

/// The shortest time between two notifications.
const NOTIFY_EVERY: Duration = Duration::from_millis(10);

pub(super) enum Message {
    Write(Arc<QueuedCall>),
    /// The change notifier is due: its last use was too recent.
    Notify,
}

/// The state shared by the callers and the thread.
pub(super) struct Shared {
    pub(super) state: Mutex<WriterState>,
    /// The number of calls in the queue of the thread.
    pub(super) queued: AtomicUsize,
    /// Held while this process holds the writer lock.
    pub(super) inside: Mutex<()>,
    /// Set while the thread waits for the writer lock.
    pub(super) outside: AtomicBool,
    /// When a caller last returned with its answers.
    pub(super) returned: Moment,
    /// When a borrower last used the writer lock.
    pub(super) used: Moment,
}

/// A moment that one thread notes and another reads.
pub(super) struct Moment {
    start: Instant,
    nanos: AtomicU64,
}

impl Moment {
    const NEVER: u64 = 0;
    /// An operation that has begun and not ended.
    const NOW: u64 = u64::MAX;

    fn never() -> Moment {
        Moment { start: Instant::now(), nanos: AtomicU64::new(Moment::NEVER) }
    }

    pub(super) fn note(&self) {
        self.nanos.store(self.start.elapsed().as_nanos() as u64, Ordering::Release);
    }

    pub(super) fn begin(&self) {
        self.nanos.store(Moment::NOW, Ordering::Release);
    }

    pub(super) fn elapsed(&self) -> Duration {
        match self.nanos.load(Ordering::Acquire) {
            Moment::NEVER => Duration::MAX,
            Moment::NOW => Duration::ZERO,
            nanos => self.start.elapsed().saturating_sub(Duration::from_nanos(nanos)),
        }
    }
}

impl Shared {
    pub(super) fn new(store: Store, wakeups: Arc<Wakeups>) -> Shared {
        Shared {
            state: Mutex::new(WriterState { store, wakeups, notified: None, notify_due: false, met: None, lent_until: None }),
            queued: AtomicUsize::new(0),
            inside: Mutex::new(()),
            outside: AtomicBool::new(false),
            returned: Moment::never(),
            used: Moment::never(),
        }
    }

    pub(super) fn serve(&self, inbox: &Receiver<Message>) {
        let mut notify_due = false;
        let mut next = None;
        loop {
            let first = match next.take() {
                Some(call) => Ok(Message::Write(call)),
                None if notify_due => inbox.recv_timeout(NOTIFY_EVERY),
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match first {
                Ok(Message::Write(call)) => next = self.hold_writer_lock(call, inbox, &mut notify_due),
                Ok(Message::Notify) => notify_due = true,
                Err(RecvTimeoutError::Timeout) => {
                    notify_due = false;
                    lock(&self.state).notify();
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if notify_due {
            lock(&self.state).notify();
        }
    }

    /// Takes the writer lock and writes until the lock is to be released. It waits for the lock first, so that
    /// everything that arrives meanwhile joins the batch. Sets `notify_due` if the change notifier is still to be used,
    /// and returns a call that came after the writer lock was released.
    fn hold_writer_lock(
        &self,
        first: Arc<QueuedCall>,
        inbox: &Receiver<Message>,
        notify_due: &mut bool,
    ) -> Option<Arc<QueuedCall>> {
        let mut state = lock(&self.state);
        // For callers that do not come back at once, lingering would hold up all other writers.
        let lingers = first.is_prompt;
        self.outside.store(true, Ordering::Release);
        let entered = state.enter();
        self.outside.store(false, Ordering::Release);
        let inside = lock(&self.inside);
        if let Err(error) = entered {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            first.refuse(&error);
            return None;
        }
        let ends = Instant::now() + SLICE;
        let mut has_events = false;
        let mut next = Some(first);
        let mut late = None;
        while let Some(first) = next {
            let batch = self.gather(first, inbox, notify_due);
            let Wrote { answers, events, woke } = state.write(&batch);
            has_events |= events;
            // A waiter that was woken now wants the writer lock, so the lock is not kept for calls that may come.
            let goes_on = !woke && lingers && Instant::now() < ends;
            if goes_on && batch.is_single() && state.store.keeps_writer_lock() {
                let came;
                (state, came) = self.lend(state, ends, || batch.answer(answers), inbox, notify_due);
                if state.lent_until.take().is_some() {
                    next = came;
                } else {
                    (next, late) = (None, came);
                }
            } else {
                batch.answer(answers);
                next = if goes_on { linger(inbox, notify_due) } else { None };
            }
        }
        state.store.unlock_writer();
        drop(inside);
        let quiet = self.queued.load(Ordering::Relaxed) == 0;
        state.tidy(quiet);
        if has_events && !state.notify_if_time() {
            *notify_due = true;
        }
        late
    }

    /// A batch of a call and all that have arrived since.
    fn gather(&self, first: Arc<QueuedCall>, inbox: &Receiver<Message>, notify_due: &mut bool) -> Batch {
        let mut batch = Batch::default();
        batch.add(first);
        let mut arrived = 1;
        while batch.requests.len() < BATCH
            && let Ok(message) = inbox.try_recv()
        {
            match message {
                Message::Write(call) => {
                    batch.add(call);
                    arrived += 1;
                }
                Message::Notify => *notify_due = true,
            }
        }
        self.queued.fetch_sub(arrived, Ordering::Relaxed);
        batch
    }

    /// Lends the writer lock to the only caller, which then writes without a switch of threads, until the slice is over
    /// or it stops calling. It is answered after everything is ready for its next call. Returns the next call that came
    /// through the queue instead. `lent_until` is `None` if the borrower has released the writer lock.
    fn lend<'s>(
        &'s self,
        mut state: MutexGuard<'s, WriterState>,
        ends: Instant,
        answer: impl FnOnce(),
        inbox: &Receiver<Message>,
        notify_due: &mut bool,
    ) -> (MutexGuard<'s, WriterState>, Option<Arc<QueuedCall>>) {
        state.lent_until = Some(ends);
        self.used.note();
        drop(state);
        answer();
        loop {
            let message = inbox.recv_timeout(LINGER);
            match message {
                Ok(Message::Write(call)) => return (lock(&self.state), Some(call)),
                Ok(Message::Notify) => *notify_due = true,
                Err(RecvTimeoutError::Disconnected) => return (lock(&self.state), None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // While the borrower writes, it must not find the state locked.
            if self.used.elapsed() < LINGER {
                continue;
            }
            let state = lock(&self.state);
            if state.lent_until.is_none() || self.used.elapsed() >= LINGER {
                return (state, None);
            }
        }
    }
}

/// Spins for the next call for a moment: its caller has just been answered and is likely to have one.
fn linger(inbox: &Receiver<Message>, notify_due: &mut bool) -> Option<Arc<QueuedCall>> {
    let since = Instant::now();
    while since.elapsed() < LINGER {
        match inbox.try_recv() {
            Ok(Message::Write(call)) => return Some(call),
            Ok(Message::Notify) => *notify_due = true,
            Err(_) => std::hint::spin_loop(),
        }
    }
    None
}

/// The results of a batch.
#[derive(Default)]
struct Wrote {
    answers: Answers,
    /// Whether there are events that followers wait for.
    events: bool,
    /// Whether a waiter was granted something.
    woke: bool,
}

/// The store, and the actions after each commit.
pub(super) struct WriterState {
    pub(super) store: Store,
    pub(super) wakeups: Arc<Wakeups>,
    notified: Option<Instant>,
    notify_due: bool,
    /// When another process last wanted the writer lock.
    pub(super) met: Option<Instant>,
    /// Until when a caller may write with the writer lock that the thread has.
    pub(super) lent_until: Option<Instant>,
}

impl WriterState {
    /// Takes the writer lock, and notes whether other processes wanted it.
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

    /// Takes the writer lock if that overtakes no other process. A free lock is no proof of that: waiters may just be
    /// waking up.
    pub(super) fn enter_if_free(&mut self) -> bool {
        if self.has_just_met() {
            return false;
        }
        let entered = self.store.try_lock_writer().unwrap_or(false);
        if !entered {
            self.met = Some(Instant::now());
        }
        entered
    }

    /// Notes whether other processes wanted to write, where only the transaction itself finds that out.
    pub(super) fn note_others(&mut self) {
        if self.store.has_waited() {
            self.met = Some(Instant::now());
        }
    }

    /// After a write of a caller: keeps a writer lock whose loan is not over, and releases any other.
    pub(super) fn keep_or_unlock(&mut self, is_wanted: bool) {
        if is_wanted || self.lent_until.is_none_or(|ends| Instant::now() >= ends) {
            self.lent_until = None;
            self.store.unlock_writer();
        }
    }

    /// Writes a batch.
    fn write(&mut self, batch: &Batch) -> Wrote {
        let mut wrote = Wrote::default();
        let requests = &batch.requests;
        if requests.is_empty() {
            return wrote;
        }
        let mut results = self.store.batch(requests);
        if results.iter().all(|result| matches!(result, Err(StoreError::Stalled))) && self.store.lock_writer().is_ok() {
            // Another process holds the store for longer than a write without the lock waits.
            self.met = Some(Instant::now());
            results = self.store.batch(requests);
        }
        self.note_others();
        for result in results {
            match result {
                Ok(Committed { replies, wakes, events, is_followed, .. }) => {
                    wakes.iter().for_each(|address| self.wakeups.wake(address));
                    wrote.answers.extend(replies.into_iter().map(Ok));
                    wrote.events |= events > 0 && is_followed;
                    wrote.woke |= !wakes.is_empty();
                }
                Err(error) => wrote.answers.push(Err(error)),
            }
        }
        wrote
    }

    /// Rings unless the last ring is too recent. Returns whether the caller need not have it rung later.
    pub(super) fn notify_if_time(&mut self) -> bool {
        if self.notified.is_some_and(|notified| notified.elapsed() < NOTIFY_EVERY) {
            // Only the first caller that is too early has it rung later, for all that follow until then.
            return std::mem::replace(&mut self.notify_due, true);
        }
        self.notify();
        true
    }

    fn notify(&mut self) {
        self.notify_due = false;
        self.notified = Some(Instant::now());
        self.wakeups.ring(&mut self.store);
    }

    /// A checkpoint that fails is retried after the next batch; nothing depends on it.
    pub(super) fn tidy(&mut self, quiet: bool) {
        self.store.tidy(quiet).ok();
    }
}
