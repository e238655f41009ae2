//! What became of every task over time: a pure function from events to rows.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::{Event, Fact, SectionFact, TaskFact};
use banksman_core::task::RetryReason;
use banksman_core::{Name, RunId, SectionId, TaskId, Wall};
use banksman_store::EventRow;

/// How things stand with a task at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Others must be completed first.
    Waits,
    /// Only a slot, a lock or a runner is missing.
    Ready,
    Runs,
    /// It runs, and its runner was killed.
    Alone,
    /// It runs, and leaves its slot to others while it waits for them.
    Lends,
    /// It runs, and will crash.
    Crashes,
    /// It shows no sign of life.
    Stuck,
    /// A person is asked.
    AwaitingDecision,
    Over,
}

/// What happens to a task in one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Crashed,
    Adopted,
    /// It stopped early, and is run again.
    Again,
}

/// A task. All times are in milliseconds since the start of the first runner.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: TaskId,
    pub(super) title: String,
    pub(super) is_child: bool,
    pub(super) is_completed: bool,
    pub(super) changes: Vec<(i64, State)>,
    pub(super) marks: Vec<(i64, Mark)>,
    unmet: BTreeSet<TaskId>,
    /// The run that is at it, since when, and whether it has lent its slot.
    run: Option<(RunId, i64, bool)>,
}

#[derive(Debug)]
pub(super) struct Section {
    id: SectionId,
    pub(super) name: String,
    pub(super) is_exclusive: bool,
    pub(super) rows: Vec<Row>,
}

/// The life of a runner, by the wall clock.
#[derive(Debug, Clone)]
pub(super) struct Shift {
    pub(super) name: &'static str,
    pub(super) from: Wall,
    pub(super) to: Wall,
    pub(super) is_killed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) length: i64,
    /// The runners: name, from, to.
    pub(super) runners: Vec<(&'static str, i64, i64)>,
    /// When one of them was killed.
    pub(super) kill: Option<i64>,
    pub(super) sections: Vec<Section>,
    /// How many slots were taken from when on.
    pub(super) slots: Vec<(i64, u32)>,
    pub(super) capacity: u32,
}

impl Timeline {
    /// Builds it from the log. `ends` tells when runs really ended: while no runner is there, the log learns it later.
    pub(super) fn of(events: &[EventRow], ends: &BTreeMap<RunId, Wall>, shifts: &[Shift]) -> Timeline {
        let zero = shifts.first().map_or(Wall(0), |shift| shift.from);
        let since = |wall: Wall| (wall.0 - zero.0).max(0);
        let ends: BTreeMap<&RunId, i64> = ends.iter().map(|(run, wall)| (run, since(*wall))).collect();
        let mut timeline = Timeline {
            runners: shifts.iter().map(|shift| (shift.name, since(shift.from), since(shift.to))).collect(),
            kill: shifts.iter().find(|shift| shift.is_killed).map(|shift| since(shift.to)),
            slots: vec![(0, 0)],
            ..Timeline::default()
        };
        timeline.length = timeline.runners.iter().map(|(.., to)| *to).max().unwrap_or(0).max(1);
        let mut orphaned = false;
        for row in events {
            let at = since(row.wall);
            if !orphaned && timeline.kill.is_some_and(|kill| kill <= at) {
                orphaned = true;
                timeline.orphan();
            }
            let data = row.data.to_string();
            match Event::parse(&row.kind, &row.source.component, row.source.id.as_deref(), &data) {
                Ok(Event::Section { id, fact: SectionFact::Added { name, exclusive } }) => {
                    timeline.sections.push(Section { id, name: name.to_string(), is_exclusive: exclusive, rows: Vec::new() })
                }
                Ok(Event::Task { id, fact }) => timeline.task(id, fact, at, &ends),
                Ok(Event::Resource { resource, fact }) if resource.name == Name::runs() => timeline.slot(fact, at),
                _ => {}
            }
        }
        timeline
    }

    fn rows(&mut self) -> impl Iterator<Item = &mut Row> {
        self.sections.iter_mut().flat_map(|section| &mut section.rows)
    }

    /// The only runner is killed: its runs go on alone.
    fn orphan(&mut self) {
        let kill = self.kill.unwrap_or_default();
        self.rows().filter(|row| row.run.is_some()).for_each(|row| row.turn(kill, State::Alone));
    }

    fn task(&mut self, id: TaskId, fact: TaskFact, at: i64, ends: &BTreeMap<&RunId, i64>) {
        if let TaskFact::Added { spec, depends_on, .. } = fact {
            let over: BTreeSet<TaskId> = self.rows().filter(|row| row.is_completed).map(|row| row.id.clone()).collect();
            let unmet: BTreeSet<TaskId> = depends_on.into_iter().map(|edge| edge.on).filter(|on| !over.contains(on)).collect();
            let state = if unmet.is_empty() { State::Ready } else { State::Waits };
            let (title, is_child) = (spec.title.to_string(), spec.parent.is_some());
            let changes = vec![(at, state)];
            if let Some(home) = self.sections.iter_mut().find(|home| Some(&home.id) == spec.section.as_ref()) {
                home.rows.push(Row { id, title, is_child, is_completed: false, changes, marks: Vec::new(), unmet, run: None });
            }
            return;
        }
        let Some(row) = self.rows().find(|row| row.id == id) else { return };
        let end = row.run.as_ref().and_then(|(run, ..)| ends.get(run)).copied().unwrap_or(at).min(at);
        match fact {
            TaskFact::Started { run, .. } => {
                row.run = Some((run, at, false));
                row.turn(at, State::Runs);
            }
            TaskFact::Adopted { .. } => {
                row.marks.push((at, Mark::Adopted));
                let lends = row.run.as_ref().is_some_and(|(.., lends)| *lends);
                row.turn(at, if lends { State::Lends } else { State::Runs });
            }
            TaskFact::Stuck { .. } => row.turn(at, State::Stuck),
            TaskFact::Recovered { .. } => row.turn(at, State::Runs),
            TaskFact::Restarting { why: Some(RetryReason::NoVerdict), .. } => {
                row.finish(end);
                row.run = None;
                row.marks.push((end, Mark::Again));
                row.turn(end, State::Ready);
            }
            TaskFact::Escalated { .. } => {
                row.finish(end);
                row.run = None;
                row.turn(end, State::AwaitingDecision);
            }
            TaskFact::Retried {} => row.turn(at, State::Ready),
            TaskFact::Restarting { .. } => {
                row.finish(end);
                let start = row.run.take().map_or(0, |(_, start, _)| start);
                row.changes.iter_mut().filter(|change| change.0 >= start).for_each(|change| change.1 = State::Crashes);
                row.marks.push((end, Mark::Crashed));
                row.turn(end, State::Ready);
            }
            TaskFact::Complete { .. } => {
                row.finish(end);
                (row.run, row.is_completed) = (None, true);
                for other in self.rows() {
                    if other.unmet.remove(&id) && other.unmet.is_empty() {
                        other.turn(at, State::Ready);
                    }
                }
            }
            TaskFact::Failed { .. } | TaskFact::Cancelled { .. } => {
                row.finish(end);
                row.run = None;
            }
            _ => {}
        }
    }

    fn slot(&mut self, fact: Fact, at: i64) {
        let used = self.slots.last().map_or(0, |(_, used)| *used);
        let (holder, used, state) = match fact {
            Fact::Defined(defined) => return self.capacity = defined.capacity.unwrap_or_default(),
            Fact::Acquired(claim) => (claim.holder, used + claim.weight, State::Runs),
            Fact::Released(ended) | Fact::Reclaimed(ended) => (ended.holder, used.saturating_sub(1), State::Lends),
            Fact::Increased(_) | Fact::OfferLapsed(_) => return,
        };
        self.slots.push((at, used));
        for row in self.rows() {
            if let Some((run, _, lends)) = &mut row.run
                && run.holder() == holder
            {
                *lends = state == State::Lends;
                row.turn(at, state);
            }
        }
    }

    /// How many slots were taken at some time.
    pub(super) fn slots_at(&self, time: i64) -> u32 {
        self.slots.iter().take_while(|(from, _)| *from <= time).last().map_or(0, |(_, used)| *used)
    }
}

impl Row {
    fn turn(&mut self, at: i64, state: State) {
        // What lasts no time is not worth a change.
        if self.changes.last().is_some_and(|last| last.0 == at) {
            self.changes.pop();
        }
        self.changes.push((at, state));
    }

    /// Its run ended then, whatever was believed since.
    fn finish(&mut self, end: i64) {
        self.changes.retain(|(at, _)| *at < end);
        self.changes.push((end, State::Over));
    }

    pub(super) fn marked(&self, wanted: Mark) -> Vec<i64> {
        self.marks.iter().filter(|(_, mark)| *mark == wanted).map(|(at, _)| *at).collect()
    }

    /// From when to when it was in which state, until it was over.
    pub(super) fn segments(&self) -> impl Iterator<Item = (i64, i64, State)> {
        self.changes.windows(2).map(|pair| (pair[0].0, pair[1].0, pair[0].1))
    }

    /// How it stood at some time.
    pub(super) fn at(&self, time: i64) -> Option<State> {
        self.changes.iter().take_while(|(from, _)| *from <= time).last().map(|(_, state)| *state)
    }
}

impl State {
    pub(super) fn is_at_work(self) -> bool {
        matches!(self, State::Runs | State::Alone | State::Lends | State::Crashes | State::Stuck)
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            State::Waits => "waits",
            State::Ready => "ready",
            State::Runs => "runs",
            State::Alone => "runs_alone",
            State::Lends => "lends_slot",
            State::Crashes => "crashes",
            State::Stuck => "stuck",
            State::AwaitingDecision => "parked",
            State::Over => "over",
        }
    }
}
