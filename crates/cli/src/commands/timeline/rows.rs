//! The state of every task over time: a pure function from events to rows.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::{Event, Fact, SectionFact, TaskFact};
use banksman_core::task::RetryReason;
use banksman_core::{Name, RunId, SectionId, TaskId, Wall};
use banksman_store::EventRow;

/// The state of a task at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for dependencies.
    Waits,
    /// Waits for a slot, a lock or a runner.
    Ready,
    Runs,
    /// Runs after its runner was killed.
    Alone,
    /// Runs without its slot while it waits for children.
    Lends,
    /// Runs, and will crash.
    Crashes,
    /// Shows no activity.
    Stuck,
    AwaitingDecision,
    /// The work is in the merge queue.
    Lands,
    Over,
}

/// A single moment in the life of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Crashed,
    Adopted,
    /// Stopped early, and runs again.
    Again,
    /// Stopped by a person.
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Completed,
    Failed(Box<str>),
    Cancelled,
}

/// A task. All times are in milliseconds since the start of the timeline.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: TaskId,
    pub(crate) title: String,
    pub(crate) parent: Option<TaskId>,
    pub(crate) end: Option<End>,
    /// The number of runs that began, and of runs that were followed by a retry.
    pub(crate) runs: u32,
    pub(crate) retries: u32,
    pub(crate) changes: Vec<(i64, State)>,
    pub(crate) marks: Vec<(i64, Mark)>,
    unmet: BTreeSet<TaskId>,
    /// The current run, its start, and whether it has lent its slot.
    run: Option<(RunId, i64, bool)>,
    /// Whether the run is being ended. A runner that adopts a run only to end it is not marked.
    is_ending: bool,
}

/// A section with its tasks. Tasks without a section are in one without a name.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) id: Option<SectionId>,
    pub(crate) name: String,
    pub(crate) is_exclusive: bool,
    pub(crate) rows: Vec<Row>,
}

/// The data of a task that was added before the first event.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) title: String,
    pub(crate) section: Option<SectionId>,
    pub(crate) parent: Option<TaskId>,
}

/// The lifetime of a runner on the wall clock.
#[derive(Debug, Clone)]
pub(crate) struct RunnerSpan {
    pub(crate) name: &'static str,
    pub(crate) from: Wall,
    pub(crate) to: Wall,
    pub(crate) is_killed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) begin: Wall,
    pub(crate) length: i64,
    /// The runners: name, from, to.
    pub(crate) runners: Vec<(&'static str, i64, i64)>,
    /// When a runner was killed.
    pub(crate) kill: Option<i64>,
    pub(crate) sections: Vec<Section>,
    /// The number of slots taken since each time.
    pub(crate) slots: Vec<(i64, u32)>,
    pub(crate) capacity: u32,
    known: BTreeMap<TaskId, Known>,
}

impl Timeline {
    /// The timeline of a demo, whose runners are known. `ends` has the actual ends of runs: the log records an end
    /// without a runner later.
    pub(crate) fn of(events: &[EventRow], ends: &BTreeMap<RunId, Wall>, spans: &[RunnerSpan]) -> Timeline {
        let begin = spans.first().map_or(Wall(0), |span| span.from);
        let since = |wall: Wall| (wall.0 - begin.0).max(0);
        let mut timeline = Timeline {
            begin,
            runners: spans.iter().map(|span| (span.name, since(span.from), since(span.to))).collect(),
            kill: spans.iter().find(|span| span.is_killed).map(|span| since(span.to)),
            slots: vec![(0, 0)],
            ..Timeline::default()
        };
        timeline.length = timeline.runners.iter().map(|(.., to)| *to).max().unwrap_or(0).max(1);
        timeline.replay(events, ends);
        timeline
    }

    /// A part of a project's log. `sections` and `known` have what is older than the first event.
    pub(crate) fn between(
        begin: Wall,
        end: Wall,
        events: &[EventRow],
        sections: Vec<Section>,
        known: BTreeMap<TaskId, Known>,
    ) -> Timeline {
        let length = (end.0 - begin.0).max(1);
        let mut timeline = Timeline { begin, length, sections, known, ..Timeline::default() };
        timeline.replay(events, &BTreeMap::new());
        timeline.rows().filter(|row| row.changes.last().is_some_and(|last| last.1 != State::Over)).for_each(|row| {
            row.changes.push((length, State::Over));
        });
        let starts: Vec<i64> = timeline.all_rows().flat_map(|row| row.changes.iter().map(|change| change.0)).collect();
        timeline.capacity = starts.into_iter().map(|at| timeline.busy_at(at)).max().unwrap_or(0);
        timeline
    }

    fn replay(&mut self, events: &[EventRow], ends: &BTreeMap<RunId, Wall>) {
        let begin = self.begin;
        let since = |wall: Wall| (wall.0 - begin.0).max(0);
        let ends: BTreeMap<&RunId, i64> = ends.iter().map(|(run, wall)| (run, since(*wall))).collect();
        let mut orphaned = false;
        for row in events {
            let at = since(row.wall);
            if !orphaned && self.kill.is_some_and(|kill| kill <= at) {
                orphaned = true;
                self.orphan();
            }
            let data = row.data.to_string();
            match Event::parse(&row.kind, &row.source.component, row.source.id.as_deref(), &data) {
                Ok(Event::Section { id, fact: SectionFact::Added { name, exclusive } })
                    if self.sections.iter().all(|section| section.id.as_ref() != Some(&id)) =>
                {
                    let (name, is_exclusive) = (name.to_string(), exclusive);
                    self.sections.push(Section { id: Some(id), name, is_exclusive, rows: Vec::new() });
                }
                Ok(Event::Task { id, fact }) => self.task(id, fact, at, &ends),
                Ok(Event::Resource { resource, fact }) if resource.name == Name::runs() => self.slot(fact, at),
                _ => {}
            }
        }
    }

    pub(crate) fn rows(&mut self) -> impl Iterator<Item = &mut Row> {
        self.sections.iter_mut().flat_map(|section| &mut section.rows)
    }

    pub(crate) fn all_rows(&self) -> impl Iterator<Item = &Row> {
        self.sections.iter().flat_map(|section| &section.rows)
    }

    pub(crate) fn ids(&self) -> BTreeSet<TaskId> {
        self.all_rows().map(|row| row.id.clone()).collect()
    }

    /// The only runner is killed: its runs continue without a runner.
    fn orphan(&mut self) {
        let kill = self.kill.unwrap_or_default();
        self.rows().filter(|row| row.run.is_some()).for_each(|row| row.change_state(kill, State::Alone));
    }

    /// Adds a row below its parent, or at the end of its section.
    fn add(&mut self, id: TaskId, known: Known, unmet: BTreeSet<TaskId>, change: (i64, State)) {
        let section = match self.sections.iter().position(|section| section.id == known.section) {
            Some(index) => index,
            None => {
                // Tasks without a section come first, without a heading.
                let section = Section { id: None, name: String::new(), is_exclusive: false, rows: Vec::new() };
                match self.sections.iter().position(|section| section.id.is_none()) {
                    Some(index) => index,
                    None => {
                        self.sections.insert(0, section);
                        0
                    }
                }
            }
        };
        let rows = &mut self.sections[section].rows;
        let parent = known.parent.as_ref().and_then(|parent| rows.iter().position(|row| row.id == *parent));
        let place = parent.map_or(rows.len(), |parent| {
            let is_sibling = |row: &&Row| row.parent.is_some();
            parent + 1 + rows[parent + 1..].iter().take_while(is_sibling).count()
        });
        let Known { title, parent, .. } = known;
        let row = Row {
            id,
            title,
            parent,
            end: None,
            runs: 0,
            retries: 0,
            changes: vec![change],
            marks: Vec::new(),
            unmet,
            run: None,
            is_ending: false,
        };
        rows.insert(place, row);
    }

    fn task(&mut self, id: TaskId, fact: TaskFact, at: i64, ends: &BTreeMap<&RunId, i64>) {
        if let TaskFact::Added { spec, depends_on, .. } = fact {
            let over: BTreeSet<TaskId> = self.rows().filter(|row| row.is_completed()).map(|row| row.id.clone()).collect();
            let unmet: BTreeSet<TaskId> = depends_on.into_iter().map(|edge| edge.on).filter(|on| !over.contains(on)).collect();
            let state = if unmet.is_empty() { State::Ready } else { State::Waits };
            let known = Known { title: spec.title.to_string(), section: spec.section.clone(), parent: spec.parent.clone() };
            return self.add(id, known, unmet, (at, state));
        }
        if self.rows().all(|row| row.id != id)
            && let Some(known) = self.known.remove(&id)
        {
            // The earlier state is not known, unless the event implies it.
            let state = match fact {
                TaskFact::Started { .. } | TaskFact::Retried {} => State::Ready,
                _ => State::Runs,
            };
            self.add(id.clone(), known, BTreeSet::new(), (0, state));
        }
        let Some(row) = self.rows().find(|row| row.id == id) else { return };
        let end = row.run.as_ref().and_then(|(run, ..)| ends.get(run)).copied().unwrap_or(at).min(at);
        match fact {
            TaskFact::Started { run, .. } => {
                row.run = Some((run, at, false));
                row.is_ending = false;
                row.runs += 1;
                row.end = None;
                row.change_state(at, State::Runs);
            }
            TaskFact::Stopping { .. } => row.is_ending = true,
            TaskFact::Adopted { .. } if row.is_ending => {}
            TaskFact::Adopted { .. } => {
                row.marks.push((at, Mark::Adopted));
                let lends = row.run.as_ref().is_some_and(|(.., lends)| *lends);
                row.change_state(at, if lends { State::Lends } else { State::Runs });
            }
            TaskFact::Stuck { .. } => row.change_state(at, State::Stuck),
            TaskFact::Recovered { .. } => row.change_state(at, State::Runs),
            TaskFact::Restarting { why: Some(why), .. } if !is_failure(why) => {
                row.finish(end);
                row.run = None;
                // A run that a person has stopped has used no attempt.
                let is_stopped = why == RetryReason::Stopped;
                row.retries += u32::from(!is_stopped);
                row.marks.push((end, if is_stopped { Mark::Stopped } else { Mark::Again }));
                row.change_state(end, State::Ready);
            }
            TaskFact::Asked { .. } | TaskFact::Escalated { .. } => {
                row.finish(end);
                row.run = None;
                row.change_state(end, State::AwaitingDecision);
            }
            TaskFact::Retried {} => row.change_state(at, State::Ready),
            TaskFact::Landing { .. } => {
                row.finish(end);
                row.run = None;
                row.change_state(end, State::Lands);
            }
            TaskFact::SentBack { .. } => {
                row.marks.push((at, Mark::Again));
                row.change_state(at, State::Ready);
            }
            TaskFact::Restarting { .. } => {
                row.finish(end);
                let start = row.run.take().map_or(0, |(_, start, _)| start);
                row.changes.iter_mut().filter(|change| change.0 >= start).for_each(|change| change.1 = State::Crashes);
                row.retries += 1;
                row.marks.push((end, Mark::Crashed));
                row.change_state(end, State::Ready);
            }
            TaskFact::Complete { .. } => {
                row.finish(end);
                (row.run, row.end) = (None, Some(End::Completed));
                for other in self.rows() {
                    if other.unmet.remove(&id) && other.unmet.is_empty() {
                        other.change_state(at, State::Ready);
                    }
                }
            }
            TaskFact::Failed { error, .. } => {
                row.finish(end);
                (row.run, row.end) = (None, Some(End::Failed(error)));
            }
            TaskFact::Cancelled { .. } => {
                row.finish(end);
                (row.run, row.end) = (None, Some(End::Cancelled));
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
        // A part of a log does not contain how many slots were taken before.
        if !self.slots.is_empty() {
            self.slots.push((at, used));
        }
        for row in self.rows() {
            if let Some((run, _, lends)) = &mut row.run
                && run.holder() == holder
            {
                *lends = state == State::Lends;
                row.change_state(at, state);
            }
        }
    }

    /// The number of slots taken at some time.
    pub(crate) fn slots_at(&self, time: i64) -> u32 {
        if self.slots.is_empty() {
            return self.busy_at(time);
        }
        self.slots.iter().take_while(|(from, _)| *from <= time).last().map_or(0, |(_, used)| *used)
    }

    /// The number of tasks with a run at some time.
    fn busy_at(&self, time: i64) -> u32 {
        let is_busy = |row: &&Row| row.at(time).is_some_and(|state| state.is_at_work() && state != State::Lends);
        u32::try_from(self.all_rows().filter(is_busy).count()).unwrap_or(u32::MAX)
    }
}

/// Whether the retried run itself has failed.
fn is_failure(why: RetryReason) -> bool {
    use RetryReason::{
        Auth, Failed, Guard, Hung, Landing, Lost, Network, Never, NoVerdict, Overloaded, Overtime, Quota, Shortage, Untrusted,
    };
    match why {
        Failed | Overtime | RetryReason::Stuck | Lost | Never | Hung => true,
        NoVerdict | Shortage | Guard | Untrusted | Quota | Auth | Overloaded | Network | Landing | RetryReason::Stopped => false,
    }
}

impl Row {
    fn change_state(&mut self, at: i64, state: State) {
        // A state of zero duration is dropped.
        if self.changes.last().is_some_and(|last| last.0 == at) {
            self.changes.pop();
        }
        self.changes.push((at, state));
    }

    /// Ends the run at this time; later states of it were recorded without knowing its end.
    fn finish(&mut self, end: i64) {
        self.changes.retain(|(at, _)| *at < end);
        self.changes.push((end, State::Over));
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.end == Some(End::Completed)
    }

    pub(crate) fn marked(&self, wanted: Mark) -> Vec<i64> {
        self.marks.iter().filter(|(_, mark)| *mark == wanted).map(|(at, _)| *at).collect()
    }

    /// The start and the end of each state, until the task was over.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (i64, i64, State)> {
        self.changes.windows(2).map(|pair| (pair[0].0, pair[1].0, pair[0].1))
    }

    /// The total duration of the runs.
    pub(crate) fn worked(&self) -> i64 {
        self.segments().filter(|(.., state)| state.is_at_work()).map(|(from, to, _)| to - from).sum()
    }

    /// The state at some time.
    pub(crate) fn at(&self, time: i64) -> Option<State> {
        self.changes.iter().take_while(|(from, _)| *from <= time).last().map(|(_, state)| *state)
    }
}

impl State {
    pub(crate) fn is_at_work(self) -> bool {
        matches!(self, State::Runs | State::Alone | State::Lends | State::Crashes | State::Stuck)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            State::Waits => "waits",
            State::Ready => "ready",
            State::Runs => "runs",
            State::Alone => "runs_alone",
            State::Lends => "lends_slot",
            State::Crashes => "crashes",
            State::Stuck => "stuck",
            State::AwaitingDecision => "parked",
            State::Lands => "lands",
            State::Over => "over",
        }
    }
}
