//! The merge queue of a branch: commits that land on it one after the other, each tested as it lands.
//!
//! ```text
//!            built                 check passed              moved
//!   Queued --------> Candidate ------------------> Passed ----------> Over(Landed)
//!   (of a task: first collected, from its worktree)
//!     ^ ^               | fails twice                | the target moved: built again
//!     | |               v                            |
//!     | '----------- Suspect -- the bare tip fails too: the queue is paused, the entry is not blamed
//!     |                 '------ the bare tip passes: Over(Returned), or Asking
//!     |
//!   Waiting: a checkout, or git itself, is in the way. Later entries pass.
//! ```
//!
//! A conflict leaves the queue at once (Returned), so clean entries never wait behind it. Of several tasks that conflict in the same
//! file, one author at a time resolves: the others wait in the queue (see `conflicts`). One worker at a time acts for a queue: it
//! holds the lock `landing:TARGET`, and its epoch is compared in the transaction of every report.
//!
//! Invariants: at most one entry of a machine has a commit that may land next; an entry lands once, with exactly the
//! commit that was checked, from exactly the tip that it was made on; a paused queue moves nothing. A row is the replay
//! of its events.

mod conflicts;
mod display;
mod entry;
mod fact;
mod protocol;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::decision::Question;
use crate::event::Event;
use crate::ids::{DecisionId, LandingId, Name, Seq, TaskId};
use crate::step::{EffectBuffer, Notice, NoticeKind, Now, OutboxCommand, Step};
use crate::time::{Lease, Span, Wall};

pub use entry::{CommitId, CommitIdError, Entry, EntrySpec, LandingEnd, Obstacle, Return, State, Terms};
pub use fact::{EntryFact, RedTip, TargetFact};
pub use protocol::{Found, Input, Outcome, Report, Work};

/// How many entries of branches a queue has at most. Entries of tasks have no limit of their own: finished work is not
/// refused.
pub const QUEUE_LIMIT: usize = 1_000;

/// How often an entry is built again because others have moved the target.
pub const REBUILD_LIMIT: u32 = 5;

/// How often a failure of git is retried before a person is asked.
pub const FAILURE_LIMIT: u32 = 5;

/// How long an entry waits before its obstacle is checked again; the wait doubles each time, up to the second value.
const FIRST_WAIT: Span = Span::from_secs(5);
const LONGEST_WAIT: Span = Span::from_secs(300);

/// How long an entry waits for one author who resolves a conflict in the same files.
const AUTHOR_WAIT: Span = Span::from_secs(30 * 60);

/// The merge queue of a branch, with the entries that are not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LandingQueue {
    pub target: Target,
    /// The entries that are not over.
    pub entries: BTreeMap<LandingId, Entry>,
}

/// The branch that entries land on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub name: Name,
    /// The pause, while nothing lands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The last commit on which the check has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub green: Option<CommitId>,
    /// The tasks whose authors resolve a conflict with the branch. Others that conflict in the same files wait for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolving: Vec<Resolving>,
}

/// A task whose author resolves a conflict, until its work has landed or left the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resolving {
    pub task: TaskId,
    /// The files with the conflict.
    pub files: Vec<Box<str>>,
}

/// Why nothing lands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    pub at: Wall,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<str>>,
    /// The tip that fails the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub red: Option<RedTip>,
}

impl LandingQueue {
    /// A queue without entries.
    pub fn new(target: Name) -> LandingQueue {
        LandingQueue { target: Target::new(target), entries: BTreeMap::new() }
    }

    pub fn step(mut self, input: Input, now: &Now) -> Step<LandingQueue, Outcome> {
        let mut buffer = EffectBuffer::new(now);
        let outcome = match input {
            Input::Add(spec) => self.add(*spec, now, &mut buffer),
            Input::Report(id, report) => match self.entries.get(&id).cloned() {
                Some(entry) => self.report(entry, report, now, &mut buffer),
                None => Outcome::Unknown,
            },
            Input::Pause { .. } if self.target.paused.is_some() => Outcome::Unchanged,
            Input::Pause { by } => {
                self.record_target(TargetFact::Paused { by: Some(by), red: None }, now, &mut buffer);
                Outcome::Paused
            }
            Input::Resume { .. } if self.target.paused.is_none() => Outcome::Unchanged,
            Input::Resume { by } => {
                self.record_target(TargetFact::Resumed { by }, now, &mut buffer);
                Outcome::Resumed
            }
            Input::Remove { entry, by } => match self.entries.get(&entry).cloned() {
                // The target may have moved to its commit already: the report comes in a moment.
                Some(Entry { state: State::Passed { .. }, .. }) => Outcome::Late,
                Some(entry) => self.record(entry, EntryFact::Removed { by }, &mut buffer),
                None => Outcome::Unknown,
            },
            Input::TryNow(id) => match self.entries.get_mut(&id) {
                Some(entry) => {
                    entry.again = None;
                    Outcome::Unchanged
                }
                None => Outcome::Unknown,
            },
            Input::Answer { entry, again } => match self.entries.get(&entry).cloned() {
                Some(entry) => match (entry.state.clone(), again) {
                    (State::Asking { .. }, true) => {
                        // The person may have repaired it in the worktree.
                        let collect = entry.spec.task.is_some();
                        self.record(entry, EntryFact::Requeued { rebuilds: 0, tries: 0, collect }, &mut buffer)
                    }
                    (State::Asking { because, .. }, false) => self.record(entry, EntryFact::Returned(because), &mut buffer),
                    (
                        State::Queued
                        | State::Candidate { .. }
                        | State::Suspect { .. }
                        | State::Passed { .. }
                        | State::Waiting { .. }
                        | State::Over(_),
                        _,
                    ) => Outcome::Late,
                },
                None => Outcome::Unknown,
            },
            Input::AuthorLeft(task) => self.author_left(task, now, &mut buffer),
        };
        if let Outcome::Stands(entry) = &outcome {
            self.follow_author(entry, now, &mut buffer);
        }
        Step { state: self, outcome, effects: buffer.effects }
    }

    /// The next work for a worker on this machine. Where there is only one machine, it has no name.
    pub fn next(&self, host: &str, now: Lease) -> Work {
        let own = || self.entries.values().filter(|entry| entry.is_for(host));
        if self.target.paused.is_some() {
            return Work::Nothing;
        }
        let is_due = |entry: &&Entry| match &entry.state {
            State::Queued => true,
            State::Waiting { .. } if self.target.author_before(entry).is_some_and(|task| self.is_queued(task)) => false,
            State::Waiting { obstacle: Obstacle::Author { .. } } if self.target.author_before(entry).is_none() => true,
            State::Waiting { .. } => entry.again.is_none_or(|again| again <= now),
            _ => false,
        };
        // Collecting takes a moment, and an author who has more to do need not wait for the checks of others.
        let uncollected = own().filter(|entry| entry.is_uncollected()).filter(is_due).min_by_key(|entry| entry.place());
        if let Some(entry) = uncollected {
            return Work::Collect(Box::new(entry.clone()));
        }
        if let Some(entry) = own().find(|entry| entry.is_active()) {
            return work(entry);
        }
        if let Some(entry) = own().filter(is_due).min_by_key(|entry| entry.place()) {
            return Work::Build(Box::new(entry.clone()));
        }
        self.next_deadline(host).map_or(Work::Nothing, Work::Sleep)
    }

    pub fn next_deadline(&self, host: &str) -> Option<Lease> {
        let waiting = self.entries.values().filter(|entry| entry.is_for(host) && self.target.paused.is_none());
        waiting.filter(|entry| matches!(entry.state, State::Waiting { .. })).filter_map(|entry| entry.again).min()
    }

    /// How many entries come before this one.
    pub fn ahead_of(&self, id: &LandingId) -> Option<usize> {
        let place = self.entries.get(id)?.place();
        let is_before = |entry: &&Entry| entry.place() < place && !matches!(entry.state, State::Asking { .. });
        Some(self.entries.values().filter(is_before).count())
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        assert!(self.branches() <= QUEUE_LIMIT, "{} has too many entries", self.target.name);
        for (id, entry) in &self.entries {
            assert_eq!(id, &entry.id);
            assert_eq!(self.target.name, entry.target, "{id} is in the queue of another branch");
            assert!(entry.is_open(), "{id} is over and still in the queue");
            assert!(entry.rebuilds <= REBUILD_LIMIT, "{id} was built too often");
            assert!(entry.spec.source.is_some() || entry.spec.task.is_some(), "{id} has neither a commit nor a task");
            assert!(entry.spec.source.is_some() || !entry.is_active(), "{id} has a commit of nothing");
            let others = self.entries.values().filter(|other| other.id != *id && other.spec.host == entry.spec.host);
            assert!(
                !entry.is_active() || !others.into_iter().any(Entry::is_active),
                "{id} is not the only one that may land next"
            );
        }
    }

    fn add(&mut self, spec: EntrySpec, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let same =
            |entry: &&Entry| (&entry.spec.source, &entry.spec.host, &entry.spec.task) == (&spec.source, &spec.host, &spec.task);
        if let Some(id) = self.entries.values().find(same).map(|entry| entry.id.clone()) {
            // A repeated request means: try it now.
            self.entries.get_mut(&id).into_iter().for_each(|entry| entry.again = None);
            return Outcome::Duplicate(id);
        }
        if spec.task.is_none() && self.branches() >= QUEUE_LIMIT {
            return Outcome::Full;
        }
        let id = LandingId::from(buffer.next());
        let target = self.target.name.clone();
        let fact = EntryFact::Added { target: target.clone(), spec: Box::new(spec.clone()) };
        buffer.emit(Event::Landing { id: id.clone(), fact });
        self.entries.insert(id.clone(), Entry::new(id.clone(), target, spec, now.wall));
        Outcome::Added(id)
    }

    fn branches(&self) -> usize {
        self.entries.values().filter(|entry| entry.spec.task.is_none()).count()
    }

    /// The worktree of a task was collected.
    fn collected(&mut self, entry: Entry, found: Found, terms: Terms, buffer: &mut EffectBuffer) -> Outcome {
        match found {
            Found::Commit { source, branch } => self.record(entry, EntryFact::Collected { source, branch, terms }, buffer),
            Found::Nothing if entry.spec.round == 0 => self.record(entry, EntryFact::Returned(Return::NoChange), buffer),
            Found::Nothing => {
                let reason = "its last attempt has changed nothing either".into();
                self.record(entry, EntryFact::Shelved { reason }, buffer)
            }
            Found::Unfinished { reason } if entry.spec.round >= terms.rounds => {
                self.ask(entry, Return::Unfinished { reason }, buffer)
            }
            Found::Unfinished { reason } => self.record(entry, EntryFact::Returned(Return::Unfinished { reason }), buffer),
            Found::ForReview { reason } => self.record(entry, EntryFact::Shelved { reason }, buffer),
        }
    }

    fn report(&mut self, entry: Entry, report: Report, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        match (entry.state.clone(), report) {
            (State::Queued | State::Waiting { .. }, Report::Collected { found, terms }) if entry.is_uncollected() => {
                self.collected(entry, found, terms, buffer)
            }
            // A commit cannot have been made of work that was not collected.
            (_, Report::Built { .. } | Report::NoChange { .. } | Report::Conflict { .. }) if entry.is_uncollected() => {
                Outcome::Late
            }
            // A second entry is not built while one is active; the report of a worker that was paused in between is
            // late.
            (State::Queued | State::Waiting { .. }, Report::Built { tip, commit }) => {
                if self.entries.values().any(|other| other.is_active() && other.spec.host == entry.spec.host) {
                    return Outcome::Late;
                }
                self.record(entry, EntryFact::Built { tip, commit }, buffer)
            }
            (State::Queued | State::Waiting { .. }, Report::NoChange { tip }) => {
                self.record(entry, EntryFact::NoChange { tip }, buffer)
            }
            (State::Queued | State::Waiting { .. }, Report::Conflict { files, .. })
                if self.is_to_wait_for_author(&entry, &files, now.lease) =>
            {
                self.wait_for_author(entry, files, now, buffer)
            }
            (State::Queued | State::Waiting { .. }, Report::Conflict { tip, files }) => {
                let asks = entry.spec.ask_on_conflict;
                self.give_back(entry, Return::Conflict { tip, files }, asks, buffer)
            }
            (State::Candidate { commit, failures, .. }, Report::Checked { commit: checked, passed, log })
                if commit == checked =>
            {
                let fact = match passed {
                    true => EntryFact::CheckPassed { commit, flaky: failures > 0 },
                    false => EntryFact::CheckFailed { commit, log: log.clone() },
                };
                let outcome = self.record(entry.clone(), fact, buffer);
                match self.entries.get(&entry.id).map(|entry| entry.state.clone()) {
                    // The tip is known to pass, so the entry is to blame.
                    Some(State::Suspect { tip, commit, log }) if self.target.green.as_ref() == Some(&tip) => {
                        let entry = self.entries[&entry.id].clone();
                        self.give_back(entry, Return::CheckFailed { commit, log }, false, buffer)
                    }
                    _ => outcome,
                }
            }
            (State::Suspect { tip, commit, log }, Report::TipChecked { tip: checked, passed: true, .. }) if tip == checked => {
                self.record_target(TargetFact::Green { commit: tip }, now, buffer);
                self.give_back(entry, Return::CheckFailed { commit, log }, false, buffer)
            }
            (State::Suspect { tip, .. }, Report::TipChecked { tip: checked, passed: false, log }) if tip == checked => {
                let fact = EntryFact::Requeued { rebuilds: entry.rebuilds, tries: entry.tries, collect: false };
                let outcome = self.record(entry, fact, buffer);
                self.pause_red(tip, log, now, buffer);
                outcome
            }
            (State::Passed { tip, commit, flaky }, Report::Moved { commit: moved }) if commit == moved => {
                let checked = !entry.spec.unchecked;
                if checked {
                    self.record_target(TargetFact::Green { commit: commit.clone() }, now, buffer);
                }
                self.record(entry, EntryFact::Landed { from: tip, commit, checked, flaky }, buffer)
            }
            (State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. }, Report::TipMoved) => {
                let rebuilds = entry.rebuilds + 1;
                if rebuilds >= REBUILD_LIMIT {
                    return self.ask(entry, Return::TargetMoves, buffer);
                }
                let fact = EntryFact::Requeued { rebuilds, tries: entry.tries, collect: false };
                self.record(entry, fact, buffer)
            }
            (State::Passed { tip, .. }, Report::Obstructed(Obstacle::Checkout { files, .. })) if entry.spec.of_child => {
                self.give_back(entry, Return::Conflict { tip, files }, false, buffer)
            }
            (
                State::Queued | State::Candidate { .. } | State::Suspect { .. } | State::Passed { .. } | State::Waiting { .. },
                Report::Obstructed(obstacle),
            ) => self.wait(entry, obstacle, now, buffer),
            (
                State::Queued
                | State::Candidate { .. }
                | State::Suspect { .. }
                | State::Passed { .. }
                | State::Waiting { .. }
                | State::Asking { .. }
                | State::Over(_),
                Report::Collected { .. }
                | Report::Built { .. }
                | Report::NoChange { .. }
                | Report::Conflict { .. }
                | Report::Checked { .. }
                | Report::TipChecked { .. }
                | Report::Moved { .. }
                | Report::TipMoved
                | Report::Obstructed(_),
            ) => Outcome::Late,
        }
    }

    /// An obstacle outside of the queue stops an entry. People are notified once; a failure that persists needs a
    /// person's decision.
    fn wait(&mut self, entry: Entry, obstacle: Obstacle, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let (id, tries) = (entry.id.clone(), entry.tries + 1);
        if let Obstacle::Failure { error } = &obstacle
            && tries >= FAILURE_LIMIT
        {
            return self.ask(entry, Return::Failure { error: error.clone() }, buffer);
        }
        let subject = format!("landing {id} of \"{}\" waits", entry.spec.title).into();
        let notice = Notice { kind: NoticeKind::Escalate, subject, text: obstacle.to_string().into() };
        let is_for_person = !matches!(obstacle, Obstacle::Children { .. } | Obstacle::Author { .. });
        self.record(entry, EntryFact::Waiting { obstacle, tries }, buffer);
        if tries == 1 && is_for_person {
            buffer.send(OutboxCommand::Notify(Box::new(notice)));
        }
        let wait = Span::from_ms((FIRST_WAIT.as_ms() << (tries - 1).min(10)).min(LONGEST_WAIT.as_ms()));
        let entry = self.entries.get_mut(&id).expect("one that waits is in the queue");
        entry.again = Some(now.lease + wait);
        Outcome::Stands(Box::new(entry.clone()))
    }

    /// An entry goes back to its author; if it has come back as often as allowed, a person is asked. Without a task the
    /// author is the person who asked for the landing.
    fn give_back(&mut self, entry: Entry, why: Return, asks: bool, buffer: &mut EffectBuffer) -> Outcome {
        if entry.spec.task.is_some() && (asks || entry.spec.round >= entry.spec.rounds) {
            return self.ask(entry, why, buffer);
        }
        self.record(entry, EntryFact::Returned(why), buffer)
    }

    fn ask(&mut self, entry: Entry, because: Return, buffer: &mut EffectBuffer) -> Outcome {
        let question = Question::of_landing(&entry, &because);
        let decision = question.raise(Some(NoticeKind::Decision), buffer);
        self.record(entry, EntryFact::Asked { decision, because }, buffer)
    }

    fn pause_red(&mut self, tip: CommitId, log: Box<str>, now: &Now, buffer: &mut EffectBuffer) {
        let question = Question::of_red_tip(&self.target.name, &tip, &log);
        let decision = question.raise(Some(NoticeKind::Decision), buffer);
        let red = Some(RedTip { tip, log, decision });
        self.record_target(TargetFact::Paused { by: None, red }, now, buffer);
    }

    fn record(&mut self, mut entry: Entry, fact: EntryFact, buffer: &mut EffectBuffer) -> Outcome {
        entry.apply(fact.clone());
        buffer.emit(Event::Landing { id: entry.id.clone(), fact });
        self.entries.insert(entry.id.clone(), entry.clone());
        if !entry.is_open() {
            self.entries.remove(&entry.id);
        }
        Outcome::Stands(Box::new(entry))
    }

    fn record_target(&mut self, fact: TargetFact, now: &Now, buffer: &mut EffectBuffer) {
        if matches!(&fact, TargetFact::Green { commit } if self.target.green.as_ref() == Some(commit)) {
            return;
        }
        self.target.apply(fact.clone(), now.wall);
        buffer.emit(Event::LandingTarget { name: self.target.name.clone(), fact });
    }
}

impl Target {
    /// A target of which nothing is known.
    pub fn new(name: Name) -> Target {
        Target { name, paused: None, green: None, resolving: Vec::new() }
    }

    /// Applies an event.
    pub fn apply(&mut self, fact: TargetFact, at: Wall) {
        match fact {
            TargetFact::Paused { by, red } => self.paused = Some(Pause { at, by, red }),
            TargetFact::Resumed { .. } => self.paused = None,
            TargetFact::Green { commit } => self.green = Some(commit),
            TargetFact::Resolving(resolving) => {
                self.resolving.retain(|known| known.task != resolving.task);
                self.resolving.push(resolving);
            }
            TargetFact::Resolved { task } => self.resolving.retain(|known| known.task != task),
        }
    }

    /// The lock that the worker of its queue holds.
    pub fn lock(name: &Name) -> Option<Name> {
        Name::new(&format!("landing:{name}")).ok()
    }
}

impl Entry {
    /// Its place in the queue: higher priorities first, then the order of arrival.
    pub fn place(&self) -> (Reverse<i32>, Seq) {
        (Reverse(self.spec.priority), self.id.seq())
    }

    /// The decision that it waits for.
    pub fn decision(&self) -> Option<&DecisionId> {
        if let State::Asking { decision, .. } = &self.state { Some(decision) } else { None }
    }
}

fn work(entry: &Entry) -> Work {
    let boxed = Box::new(entry.clone());
    match entry.state.clone() {
        State::Candidate { commit, .. } => Work::Check { entry: boxed, commit },
        State::Suspect { tip, .. } => Work::CheckTip { entry: boxed, tip },
        State::Passed { tip, commit, .. } => Work::Move { entry: boxed, tip, commit },
        State::Queued | State::Waiting { .. } | State::Asking { .. } | State::Over(_) => Work::Nothing,
    }
}

#[cfg(test)]
mod tests;
