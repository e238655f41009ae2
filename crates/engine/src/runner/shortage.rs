//! A machine that has not enough of something to start runs: their tasks stay pending, and the runner tries again later and
//! later, at first with one.
//!
//! ```text
//! as many as it may --a start fails for a shortage--> no more than live now
//!        ^                                             |   when time has come: one more
//!        |                                             v
//!        `-- all that it may have begun, or 16 ---- 2 more, 4 more, ... as long as all of them begin
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

/// How a runner goes on while there is a shortage.
#[derive(Debug)]
struct Backoff {
    /// The error, which names the resource that is short.
    error: Box<str>,
    /// How often a try has failed.
    failures: u32,
    /// How many runs it may have meanwhile.
    most: usize,
    /// How many more it tries to start.
    more: usize,
    try_at: Lease,
    is_trying: bool,
    /// How many of the last try are not known to have begun.
    open: usize,
    /// There was more to start than the last try allowed.
    was_full: bool,
}

impl Backoff {
    /// How many more runs it may have if so many live.
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

    /// How many more runs it may have, of so many, if so many live.
    pub(super) fn room(&self, room: usize, living: usize) -> usize {
        self.backoff.as_ref().map_or(room, |backoff| room.min(backoff.room(living)))
    }

    /// A session could not begin, because the machine has not enough of something. So many have begun and live.
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
        // Several of one try count once.
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

    /// When it tries to start more.
    pub(super) fn next_deadline(&self) -> Option<Lease> {
        self.backoff.as_ref().filter(|backoff| !backoff.is_trying).map(|backoff| backoff.try_at)
    }

    /// Whether it is time to try to start more, which it does then.
    pub(super) fn begin_try(&mut self, now: Lease) -> bool {
        let backoff = self.backoff.as_mut().filter(|backoff| !backoff.is_trying && backoff.try_at <= now);
        backoff.map(|backoff| backoff.is_trying = true).is_some()
    }

    /// So many were claimed, which are to begin now; and there may be more.
    pub(super) fn on_claimed(&mut self, started: usize, is_full: bool, sent_at: Lease) {
        // What takes the place of a run that has ended is no try.
        if let Some(backoff) = self.backoff.as_mut().filter(|backoff| backoff.is_trying) {
            // If one of them never tells, the next try comes all the same.
            backoff.failures += 1;
            backoff.try_at = sent_at + backoff.pause();
            (backoff.is_trying, backoff.open, backoff.was_full) = (false, started, is_full);
        }
    }

    /// There is nothing to start, so there is enough.
    pub(super) fn nothing_to_start(&mut self, context: &Context, out: &mut Output) {
        if self.backoff.as_ref().is_some_and(|backoff| backoff.is_trying) {
            self.have_enough(context, out);
        }
    }

    /// One more session has begun, so that so many have and live.
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
