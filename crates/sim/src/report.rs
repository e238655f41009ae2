//! The result of a history: its counts, and its first violation.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;

/// The properties that are checked, by the words that the command line uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Checker {
    /// An epoch is handed out once, to one holder, and whoever is told an epoch has it.
    Epochs,
    /// Sequence numbers, epochs, tickets, fences and the lease clock only rise.
    Order,
    /// What is given out fits; a lock has one holder.
    Capacity,
    /// Only the current epoch can do anything; the rightful holder is never refused.
    Fencing,
    /// Waiters are served in the order of arrival.
    Fifo,
    /// Nobody in a line is forgotten, and every wait ends once the faults do.
    Waiters,
    /// Nothing is taken from the living, nor before its time.
    Living,
    /// The event log replays to the tables.
    Replay,
    /// The store and the pure core agree, on every answer and every row.
    Model,
    /// The same seed gives the same history.
    Trace,
    /// The store carries out every transaction.
    Store,
    /// A task never has two live sessions, and a run begins at most once.
    Twice,
    /// The end of every run is recorded once, when its session is dead, as it really was.
    Ends,
    /// Live sessions hold what they need, and that fits.
    Slots,
    /// No run begins beyond the limit that the project has at that moment.
    Limits,
    /// Nothing is started while a person wants that.
    Paused,
    /// Nothing starts before what it depends on, and nothing waits for itself.
    Early,
    /// One runner at a time works in an exclusive section.
    Sections,
    /// What could be done is done, and who shall end when idle ends then, not before.
    Idle,
    /// Nothing is left behind.
    Left,
    /// A loop is tried as often as allowed, after its rest, and not once it is known to be done.
    Loops,
    /// What looks stuck is helped step by step, as often as allowed, and every help counts.
    Escalation,
    /// A question is raised once, answered once, and the answer carried out once.
    Decisions,
    /// Not more roots are under way than allowed, and they begin in the order of their arrival.
    Roots,
    /// A pipeline does one thing at a time, in an order that its plan allows, and its own task stands as it does.
    Phases,
    /// No pipeline goes on before its guards let it, and one runner at a time looks at them.
    Guards,
    /// An item of a worker is being processed exactly as long as its one task lives, and ends as that does.
    Items,
    /// What follows from an event happens, and happens once.
    Routes,
    /// No lock is held without a live owner.
    Owners,
    /// No task is in progress by hand without a claim.
    Claims,
    /// No run lives that nobody may adopt.
    Adoption,
    /// No claim is overtaken for longer than its bound.
    Overtaken,
    /// Nobody is held up for long by processes that are stopped.
    HeldUp,
    /// Nobody is refused a wait as a deadlock where there is no circle.
    Circles,
    /// `why` names all that keeps a task from starting, and nothing else.
    Why,
    /// No more runners are woken than there is a reason for.
    Wakeups,
    /// Whoever has waited longest for a task is woken first.
    Turns,
    /// No task is parked on what is free for it.
    Parked,
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("no variant is skipped").get_name())
    }
}

/// A property that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub checker: Checker,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.checker, self.what)
    }
}

/// Collects violations; the first one ends the history.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// If set, only this checker counts: it must detect the fault without the help of the others.
    only: Option<Checker>,
    first: Option<Violation>,
}

impl Verdict {
    pub(crate) fn new(only: Option<Checker>) -> Verdict {
        Verdict { only, first: None }
    }

    /// Notes a violation.
    pub(crate) fn report(&mut self, checker: Checker, what: impl FnOnce() -> String) {
        if self.first.is_none() && self.only.is_none_or(|only| only == checker) {
            self.first = Some(Violation { checker, what: what() });
        }
    }

    /// Notes a violation unless `holds`.
    pub(crate) fn expect(&mut self, checker: Checker, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.report(checker, what);
        }
    }

    pub(crate) fn is_guilty(&self) -> bool {
        self.first.is_some()
    }

    pub(crate) fn take(&mut self) -> Option<Violation> {
        self.first.take()
    }
}

/// How often things happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    counts: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub(crate) fn count(&mut self, what: &'static str) {
        self.count_many(what, 1);
    }

    pub(crate) fn count_many(&mut self, what: &'static str, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    /// Adds the counts of another history.
    pub fn add(&mut self, other: &Tally) {
        for (what, times) in &other.counts {
            self.count_many(what, *times);
        }
    }

    /// How often `what` happened.
    pub fn get(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    /// All counts, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts.iter().map(|(what, times)| (*what, *times))
    }
}

/// The result of one history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The first violation, if any.
    pub violation: Option<Violation>,
    /// A hash over the trace.
    pub hash: u64,
    /// How often things happened.
    pub tally: Tally,
}
