//! The thread that writes: it takes a turn, decides everything that has arrived meanwhile in one transaction, and
//! answers after the commit.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use banksman_engine::{Reply, Request};
use banksman_store::{Committed, Store, StoreError};

use crate::post::Post;

/// The most calls in one transaction.
const BATCH: usize = 256;

/// After this long, the process that holds the store up is named.
const NAME_AFTER: Duration = Duration::from_secs(2);

/// The bell is not rung more often than this.
const BELL_EVERY: Duration = Duration::from_millis(10);

/// Called when the store is held up, to find out and tell by whom.
pub(crate) type OnStall = Box<dyn Fn() + Send + Sync>;

/// The near end: hands calls to the thread and waits for their answers.
pub(crate) struct Writer {
    jobs: Option<Sender<Arc<Job>>>,
    /// How many calls are on their way to the thread.
    queued: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
    on_stall: OnStall,
    /// Held while this process has its turn.
    inside: Arc<Mutex<()>>,
    /// Set while the thread waits for others to end their turn.
    outside: Arc<AtomicBool>,
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
    pub(crate) fn start(store: Store, post: Arc<Post>, on_stall: OnStall) -> std::io::Result<Writer> {
        let (jobs, inbox) = mpsc::channel();
        let inside = Arc::new(Mutex::new(()));
        let queued = Arc::new(AtomicUsize::new(0));
        let outside = Arc::new(AtomicBool::new(false));
        let desk = Desk {
            store,
            post,
            rung: None,
            ring_due: false,
            queued: Arc::clone(&queued),
            inside: Arc::clone(&inside),
            outside: Arc::clone(&outside),
        };
        let thread = std::thread::Builder::new().name("banksman-writer".into()).spawn(move || desk.serve(&inbox))?;
        Ok(Writer { jobs: Some(jobs), queued, thread: Some(thread), on_stall, inside, outside })
    }

    /// Carries out a call. At the deadline it is withdrawn: then it has not happened and will not happen.
    pub(crate) fn call(&self, request: Request, deadline: Duration) -> Result<Reply, StoreError> {
        let job = Arc::new(Job { request, state: Mutex::new(State::Queued), answered: Condvar::new() });
        self.queued.fetch_add(1, Ordering::Relaxed);
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(Arc::clone(&job)).is_ok());
        if !sent {
            return Err(gone());
        }
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
            let next = if waited < NAME_AFTER {
                NAME_AFTER.min(deadline)
            } else if waited < deadline {
                deadline
            } else {
                deadline * 2
            };
            let left = next.saturating_sub(waited).max(Duration::from_millis(1));
            state = job.answered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let State::Answered(answer, relay) = std::mem::replace(&mut *state, State::Abandoned) else { unreachable!("just seen") };
        drop(state);
        relay.iter().for_each(Relay::pass_on);
        answer
    }

    /// Runs `f` at a moment when this process does not have its turn, and takes no turn until it returns.
    pub(crate) fn outside_turn(&self, f: impl FnOnce()) {
        let _outside = lock(&self.inside);
        f();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        // A thread that still waits for its turn has nothing left to do: whoever called it has given up.
        if let Some(thread) = self.thread.take().filter(|_| !self.outside.load(Ordering::Acquire)) {
            // A panic over there ends the process by itself; there is nothing to add.
            thread.join().ok();
        }
    }
}

/// The far end: owns the store.
struct Desk {
    store: Store,
    post: Arc<Post>,
    rung: Option<Instant>,
    ring_due: bool,
    queued: Arc<AtomicUsize>,
    inside: Arc<Mutex<()>>,
    outside: Arc<AtomicBool>,
}

impl Desk {
    fn serve(mut self, inbox: &Receiver<Arc<Job>>) {
        loop {
            let first = if self.ring_due {
                inbox.recv_timeout(BELL_EVERY)
            } else {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match first {
                Ok(first) => self.turn(first, inbox),
                Err(RecvTimeoutError::Timeout) => self.ring(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.ring_due {
            self.ring();
        }
    }

    /// One turn: waits for it first, so that everything that arrives meanwhile comes along.
    fn turn(&mut self, first: Arc<Job>, inbox: &Receiver<Arc<Job>>) {
        self.outside.store(true, Ordering::Release);
        let entered = self.store.take_turn();
        self.outside.store(false, Ordering::Release);
        let inside = Arc::clone(&self.inside);
        let inside = lock(&inside);
        let arrived: Vec<Arc<Job>> = std::iter::once(first).chain(inbox.try_iter().take(BATCH - 1)).collect();
        let quiet = self.queued.fetch_sub(arrived.len(), Ordering::Relaxed) == arrived.len();
        let jobs: Vec<Arc<Job>> = arrived.into_iter().filter(|job| job.take()).collect();
        if jobs.is_empty() || entered.is_err() {
            self.store.give_turn_back();
            drop(inside);
            if let Err(error) = entered {
                jobs.iter().for_each(|job| job.answer(Err(error.clone())));
            }
            return;
        }
        let requests: Vec<Request> = jobs.iter().map(|job| job.request.clone()).collect();
        let results = self.store.batch(&requests);
        drop(inside);
        let mut jobs = jobs.iter();
        for result in results {
            match result {
                Ok(Committed { replies, wakes, events, .. }) => {
                    wakes.iter().for_each(|address| self.post.wake(address));
                    answer_all(jobs.by_ref().take(replies.len()).cloned().collect(), replies);
                    self.ring_due |= events > 0;
                }
                Err(error) => {
                    if let Some(job) = jobs.next() {
                        job.answer(Err(error));
                    }
                }
            }
        }
        if self.ring_due && self.rung.is_none_or(|rung| rung.elapsed() >= BELL_EVERY) {
            self.ring();
        }
        // A checkpoint that fails is tried again after the next batch; nothing depends on it.
        self.store.tidy(quiet).ok();
    }

    fn ring(&mut self) {
        self.ring_due = false;
        self.rung = Some(Instant::now());
        self.post.ring(&mut self.store);
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
}

/// Answers the calls of one batch. The first caller wakes the next two, and so on. One that has given up would break
/// the relay, so it is left out; one that is in it sees its answer at the latest when its time is up.
fn answer_all(mut jobs: Vec<Arc<Job>>, mut replies: Vec<Reply>) {
    let mut listening = jobs.iter().map(|job| !matches!(*lock(&job.state), State::Abandoned)).collect::<Vec<_>>().into_iter();
    let mut also = listening.clone();
    jobs.retain(|_| listening.next().unwrap_or(false));
    replies.retain(|_| also.next().unwrap_or(false));
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
