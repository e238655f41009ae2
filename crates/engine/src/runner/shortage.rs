//! A machine that lacks a resource to start runs: their tasks stay pending, and the runner tries again with growing pauses, at first
//! with one run.
//!
//! ```text
//! up to max_runs --a start fails for a shortage--> no more than are live now
//!        ^                                             |   after the pause: one more
//!        |                                             v
//!        `-- all ready tasks begun, or 16 more ---- 2 more, 4 more, ... as long as all of them begin
//! ```

use banksman_core::{Lease, Span};

use super::CLAIM_LIMIT;
use super::context::Context;
use super::protocol::{Output, RunnerEvent};
use crate::calls::runs::RunRequest;
use crate::request::Request;

/// The first pause. It doubles up to [`LONGEST`].
const SHORTEST: Span = Span::from_ms(500);

/// The longest pause.
const LONGEST: Span = Span::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Shortage {
    backoff: Option<Backoff>,
    pending: Vec<Request>,
}

/// The state of a runner during a shortage.
#[derive(Debug)]
struct Backoff {
    /// The error, which names the resource that is short.
    error: Box<str>,
    /// The number of failed tries.
    failures: u32,
    /// The most runs between the tries.
    most: usize,
    /// How many more runs a try starts.
    more: usize,
    try_at: Lease,
    is_trying: bool,
    /// How many runs of the last try are not known to have begun.
    open: usize,
    /// There were more tasks to start than the last try allowed.
    was_full: bool,
}

impl Backoff {
    /// How many more runs the runner may have if `living` runs are live.
    fn room(&self, living: usize) -> usize {
        let most = self.most + if self.is_trying { self.more } else { 0 };
        most.saturating_sub(living)
    }

    fn pause(&self) -> Span {
        let doublings = self.failures.saturating_sub(1).min(16);
        Span::from_ms(SHORTEST.as_ms() << doublings).min(LONGEST)
    }
}

impl Shortage {
    pub(super) fn is_over(&self) -> bool {
        self.backoff.is_none()
    }

    /// Limits the room of the runner to what the shortage allows if `living` runs are live.
    pub(super) fn room(&self, room: usize, living: usize) -> usize {
        self.backoff.as_ref().map_or(room, |backoff| room.min(backoff.room(living)))
    }

    /// Records that a session could not begin because of a shortage. `begun` sessions have begun and have not ended.
    pub(super) fn found(&mut self, error: Box<str>, begun: usize, context: &Context, now: Lease, out: &mut Output) {
        let is_new = self.backoff.is_none();
        if is_new {
            out.report(RunnerEvent::Short(error.clone()));
        }
        let backoff = self.backoff.get_or_insert_with(|| Backoff {
            error: error.clone(),
            failures: 0,
            most: 0,
            more: 1,
            try_at: now,
            is_trying: false,
            open: 0,
            was_full: true,
        });
        // Several failures of one try count once.
        let is_first = is_new || backoff.open > 0;
        backoff.error = error;
        (backoff.most, backoff.more, backoff.open, backoff.is_trying) = (begun, 1, 0, false);
        if backoff.try_at <= now {
            backoff.failures += 1;
            backoff.try_at = now + backoff.pause();
        }
        if is_first {
            let shortage = Some((backoff.error.clone(), backoff.try_at - now));
            self.pending.push(RunRequest::Short { runner: context.id(), shortage }.into());
        }
    }

    pub(super) fn requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.pending)
    }

    /// The time of the next try.
    pub(super) fn next_deadline(&self) -> Option<Lease> {
        self.backoff.as_ref().filter(|backoff| !backoff.is_trying).map(|backoff| backoff.try_at)
    }

    /// Begins a try if it is due. Returns whether it was.
    pub(super) fn begin_try(&mut self, now: Lease) -> bool {
        let backoff = self.backoff.as_mut().filter(|backoff| !backoff.is_trying && backoff.try_at <= now);
        backoff.map(|backoff| backoff.is_trying = true).is_some()
    }

    /// Records the runs that a claim has started; if it `is_full`, there may be more tasks.
    pub(super) fn on_claimed(&mut self, started: usize, is_full: bool, sent_at: Lease) {
        // A run that replaces an ended one is no try.
        if let Some(backoff) = self.backoff.as_mut().filter(|backoff| backoff.is_trying) {
            // If a start is never reported, the next try comes all the same.
            backoff.failures += 1;
            backoff.try_at = sent_at + backoff.pause();
            (backoff.is_trying, backoff.open, backoff.was_full) = (false, started, is_full);
        }
    }

    /// Ends the shortage if there is nothing to start.
    pub(super) fn nothing_to_start(&mut self, context: &Context, out: &mut Output) {
        if self.backoff.as_ref().is_some_and(|backoff| backoff.is_trying) {
            self.have_enough(context, out);
        }
    }

    /// Records that one more session has begun. `begun` sessions have begun and have not ended.
    pub(super) fn session_begun(&mut self, begun: usize, context: &Context, now: Lease, out: &mut Output) {
        let Some(backoff) = self.backoff.as_mut() else { return };
        backoff.most = backoff.most.max(begun);
        if backoff.open == 0 {
            return;
        }
        backoff.open -= 1;
        if backoff.open > 0 {
            return;
        }
        if !backoff.was_full || backoff.more > CLAIM_LIMIT {
            return self.have_enough(context, out);
        }
        backoff.more *= 2;
        backoff.failures = backoff.failures.saturating_sub(1);
        backoff.try_at = now;
    }

    fn have_enough(&mut self, context: &Context, out: &mut Output) {
        self.backoff = None;
        out.report(RunnerEvent::Enough);
        self.pending.push(RunRequest::Short { runner: context.id(), shortage: None }.into());
    }
}
