//! A machine that has not enough of something to start runs: their tasks stay pending, and the runner tries again later and
//! later, at first with one.
//!
//! ```text
//! as many as it may --a start fails for a shortage--> no more than live now
//!        ^                                             |   when time has come: one more
//!        |                                             v
//!        `-- all that it may have begun, or 16 ---- 2 more, 4 more, ... as long as all of them begin
//! ```

use banksman_core::backlog::Ended;
use banksman_core::{Lease, RunId, Span};

use super::{CLAIM_LIMIT, Dispatcher, OwnedRun, Phase, RunnerEvent};
use crate::runs::RunRequest;

/// The first pause. It doubles up to [`LONGEST`].
const SHORTEST: Span = Span::from_ms(500);

/// The longest pause.
const LONGEST: Span = Span::from_secs(30);

/// How a runner goes on while there is a shortage.
#[derive(Debug)]
pub(super) struct Backoff {
    /// What there is not enough of.
    error: Box<str>,
    /// How often a try has failed.
    failures: u32,
    /// How many runs it may have meanwhile.
    most: usize,
    /// How many more it tries to start.
    more: usize,
    /// When it does so.
    try_at: Lease,
    is_trying: bool,
    /// How many of the last try are not known to have begun.
    open: usize,
    /// There was more to start than the last try allowed.
    was_full: bool,
}

impl Backoff {
    /// How many more runs it may have if so many live.
    pub(super) fn room(&self, living: usize) -> usize {
        let most = self.most + if self.is_trying { self.more } else { 0 };
        most.saturating_sub(living)
    }

    fn pause(&self) -> Span {
        let doublings = self.failures.saturating_sub(1).min(16);
        Span::from_ms(SHORTEST.as_ms() << doublings).min(LONGEST)
    }
}

impl Dispatcher {
    /// The session of a run could not begin, because the machine has not enough of something.
    pub fn short(&mut self, run: &RunId, ended: Ended, now: Lease) {
        let Some(owned) = self.owned.get_mut(run) else { return };
        owned.is_fresh = false;
        owned.report = None;
        let error: Box<str> = ended.ending.to_string().into();
        owned.phase = Phase::Ended(ended);
        self.passed_over.clear();
        let begun = self.owned.values().filter(|owned| is_at_work(owned)).count();
        let is_new = self.shortage.is_none();
        if is_new {
            self.news.push(RunnerEvent::Short(error.clone()));
        }
        let backoff = self.shortage.get_or_insert_with(|| Backoff {
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
            self.results.push(RunRequest::Short { runner: self.me.id.clone(), shortage });
        }
    }

    /// When it tries to start more.
    pub(super) fn try_at(&self) -> Option<Lease> {
        self.shortage.as_ref().filter(|backoff| !backoff.is_trying).map(|backoff| backoff.try_at)
    }

    /// Whether it is time to try to start more, which it does then.
    pub(super) fn is_time_to_try(&mut self, now: Lease) -> bool {
        let backoff = self.shortage.as_mut().filter(|backoff| !backoff.is_trying && backoff.try_at <= now);
        backoff.map(|backoff| backoff.is_trying = true).is_some()
    }

    /// So many were claimed, which are to begin now; and there may be more.
    pub(super) fn note_try(&mut self, started: usize, is_full: bool) {
        let entry = self.entry;
        // What takes the place of a run that has ended is no try.
        if let Some(backoff) = self.shortage.as_mut().filter(|backoff| backoff.is_trying) {
            // If one of them never tells, the next try comes all the same.
            backoff.failures += 1;
            backoff.try_at = entry + backoff.pause();
            (backoff.is_trying, backoff.open, backoff.was_full) = (false, started, is_full);
        }
    }

    /// There is nothing to start, so there is enough.
    pub(super) fn nothing_to_try(&mut self) {
        if self.shortage.as_ref().is_some_and(|backoff| backoff.is_trying) {
            self.have_enough();
        }
    }

    /// The session of a run has begun, or has ended in its own way.
    pub(super) fn has_begun(&mut self, run: &RunId, now: Lease) {
        let Some(owned) = self.owned.get_mut(run).filter(|owned| owned.is_fresh) else { return };
        owned.is_fresh = false;
        self.news.push(RunnerEvent::Started(Box::new(owned.work.clone())));
        let begun = self.owned.values().filter(|owned| is_at_work(owned)).count();
        let Some(backoff) = self.shortage.as_mut() else { return };
        backoff.most = backoff.most.max(begun);
        if backoff.open == 0 {
            return;
        }
        backoff.open -= 1;
        if backoff.open > 0 {
            return;
        }
        if !backoff.was_full || backoff.more > CLAIM_LIMIT {
            return self.have_enough();
        }
        backoff.more *= 2;
        backoff.failures = backoff.failures.saturating_sub(1);
        backoff.try_at = now;
    }

    fn have_enough(&mut self) {
        self.shortage = None;
        self.news.push(RunnerEvent::Enough);
        self.results.push(RunRequest::Short { runner: self.me.id.clone(), shortage: None });
    }
}

fn is_at_work(owned: &OwnedRun) -> bool {
    !owned.is_fresh && !matches!(owned.phase, Phase::Ended(_))
}
