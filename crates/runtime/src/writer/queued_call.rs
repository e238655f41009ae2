//! Calls on their way to the writer thread, and the answers on their way back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};

use banksman_engine::{Reply, Request};
use banksman_store::StoreError;
use rustix::event::{EventfdFlags, eventfd};

use super::lock;

/// The answers to the requests of one call, in order.
pub(crate) type Answers = Vec<Result<Reply, StoreError>>;

/// Becomes readable when a call is answered.
pub(crate) struct AnswerSignal(OwnedFd);

impl AnswerSignal {
    pub(crate) fn new() -> std::io::Result<AnswerSignal> {
        Ok(AnswerSignal(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    fn raise(&self) {
        // It cannot overflow: it is cleared before the next call.
        rustix::io::write(&self.0, &1u64.to_ne_bytes()).ok();
    }

    pub(super) fn clear(&self) {
        // It does not matter whether there was anything to read.
        rustix::io::read(&self.0, &mut [0; 8]).ok();
    }
}

impl AsFd for AnswerSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The requests of one call in the queue.
pub(super) struct QueuedCall {
    pub(super) state: Mutex<State>,
    pub(super) answered: Condvar,
    /// For a caller that does not wait on the condition alone.
    signal: Option<Arc<AnswerSignal>>,
    /// Whether it came as soon as the previous call was answered: then the next one is likely to do so, too.
    pub(super) is_prompt: bool,
}

pub(super) enum State {
    /// Not taken yet: the caller may still withdraw or change it.
    Queued(Vec<Request>),
    /// Part of a batch.
    Taken,
    /// The caller has given up: before the call was taken, it must not be carried out any more; after that, its answers
    /// are discarded.
    Abandoned,
    Answered(Answers, Option<Relay>),
}

impl QueuedCall {
    pub(super) fn new(requests: Vec<Request>, signal: Option<Arc<AnswerSignal>>, is_prompt: bool) -> QueuedCall {
        QueuedCall { state: Mutex::new(State::Queued(requests)), answered: Condvar::new(), signal, is_prompt }
    }

    /// Takes the call into a batch, unless its caller has withdrawn it.
    fn take(&self) -> Option<Vec<Request>> {
        let mut state = lock(&self.state);
        let State::Queued(requests) = &mut *state else { return None };
        let requests = std::mem::take(requests);
        *state = State::Taken;
        Some(requests)
    }

    /// Answers the call with an error before it is part of a batch.
    pub(super) fn refuse(&self, error: &StoreError) {
        if let Some(requests) = self.take() {
            self.answer(failed(error, requests.len()), None);
            self.answered.notify_one();
        }
    }

    fn answer(&self, answers: Answers, relay: Option<Relay>) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Abandoned) {
            *state = State::Answered(answers, relay);
        }
        drop(state);
        self.signal.iter().for_each(|signal| signal.raise());
    }

    fn is_abandoned(&self) -> bool {
        matches!(*lock(&self.state), State::Abandoned)
    }
}

/// The calls that are written together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) requests: Vec<Request>,
    /// The calls with the number of their requests.
    calls: Vec<(Arc<QueuedCall>, usize)>,
}

impl Batch {
    /// Adds a call, unless its caller has withdrawn it.
    pub(super) fn add(&mut self, queued: Arc<QueuedCall>) {
        if let Some(requests) = queued.take() {
            self.calls.push((queued, requests.len()));
            self.requests.extend(requests);
        }
    }

    /// Whether the batch has only one call.
    pub(super) fn is_single(&self) -> bool {
        self.calls.len() == 1
    }

    /// Answers the calls. The first caller wakes the next two, and so on. An abandoned call would break the relay, so
    /// it is left out; a caller that gives up later sees its answer at its next timeout at the latest.
    pub(super) fn answer(self, answers: Answers) {
        let mut rest = answers.into_iter();
        let own = self.calls.into_iter().map(|(call, count)| (call, rest.by_ref().take(count).collect::<Answers>()));
        let (calls, answers): (Vec<_>, Vec<_>) = own.filter(|(call, _)| !call.is_abandoned()).unzip();
        let calls: Arc<[Arc<QueuedCall>]> = calls.into();
        for (index, (call, answers)) in calls.iter().zip(answers).enumerate() {
            call.answer(answers, Some(Relay { calls: Arc::clone(&calls), index }));
        }
        if let Some(first) = calls.first() {
            first.answered.notify_one();
        }
    }
}

/// Callers that are answered together wake each other, each one two more. Waking a thread costs more than deciding its
/// call, and the writer thread must not spend its time on that.
pub(super) struct Relay {
    calls: Arc<[Arc<QueuedCall>]>,
    index: usize,
}

impl Relay {
    pub(super) fn pass_on(&self) {
        let next = 2 * self.index + 1;
        self.calls.iter().skip(next).take(2).for_each(|call| call.answered.notify_one());
    }
}

/// The answers to `count` requests that have failed together.
pub(super) fn failed(error: &StoreError, count: usize) -> Answers {
    (0..count).map(|_| Err(error.clone())).collect()
}
