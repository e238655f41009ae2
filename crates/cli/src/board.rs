//! The board: everything that a screen shows, read at one moment. `status`, `report` and `top` are views of it.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;

use banksman_core::decision::About;
use banksman_core::event::{Event, TaskFact};
use banksman_core::task::{State, Work};
use banksman_core::workspace::Place;
use banksman_core::{Decision, Seq, Stamp, Status, Task, TaskId, Wall};
use banksman_runtime::Project;
use banksman_runtime::inspect::{self, LiveRun, Overview};
use banksman_store::{EventFilter, EventRow, Key, Reader, Tables};

use crate::commands::tail::LogEnd;
use crate::commands::{landing, pipelines, why};
use crate::failure::Failure;

/// The number of recently ended tasks on the board, and the number of last events that the first read searches for them.
const ENDED: usize = 10;
const EVENT_WINDOW: i64 = 1_000;

/// The number of tasks shown that wait for dependencies, and of tasks that wait for a lock or a semaphore.
const BLOCKED: i64 = 5;

/// The number of tasks shown that start next.
const NEXT: u32 = 3;

/// The upper bound on reads of a store that changes meanwhile.
const TRIES: usize = 4;

pub(crate) struct Board {
    pub(crate) project: String,
    pub(crate) overview: Overview,
    pub(crate) live: Vec<Live>,
    /// The open decisions, oldest first.
    pub(crate) decisions: Vec<Decision>,
    pub(crate) landings: Vec<Landing>,
    pub(crate) blocked: Vec<Blocked>,
    /// The tasks that only wait for a lock or a semaphore.
    pub(crate) waiting: Vec<Blocked>,
    /// The tasks that start next.
    pub(crate) next: Vec<(TaskId, String)>,
    /// The tasks that ended last, newest first, each once.
    pub(crate) ended: Vec<Ended>,
    /// The last event that the board includes.
    newest: Seq,
}

/// A live run and its activity.
pub(crate) struct Live {
    pub(crate) run: LiveRun,
    /// The agents that the run may use.
    pub(crate) agent: Option<String>,
    /// The phase of the pipeline that the run belongs to.
    pub(crate) phase: Option<String>,
    pub(crate) is_stuck: bool,
    /// The worktree, and the commit on which it is based.
    pub(crate) worktree: Option<(PathBuf, String)>,
    log: LogEnd,
    /// The last line of the log.
    pub(crate) activity: String,
}

impl Live {
    /// Reads the last line again if the log has changed, and returns whether it has.
    pub(crate) fn follow_log(&mut self) -> bool {
        let has_changed = self.log.has_changed();
        if has_changed {
            self.activity = self.log.lines(1).pop().unwrap_or_default();
        }
        has_changed
    }
}

/// An entry of a merge queue.
pub(crate) struct Landing {
    pub(crate) task: Option<TaskId>,
    pub(crate) title: String,
    pub(crate) state: String,
    pub(crate) target: String,
}

/// A task that cannot continue by itself, and what blocks it.
pub(crate) struct Blocked {
    pub(crate) task: TaskId,
    pub(crate) title: String,
    pub(crate) by: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) task: TaskId,
    pub(crate) title: String,
    pub(crate) status: Status,
    pub(crate) error: Option<String>,
    pub(crate) at: Wall,
}

impl Board {
    /// Reads the board as of one moment: a change during the read causes another read. Log ends and ended tasks that
    /// have not changed are taken from `before`.
    pub(crate) fn read(reader: &mut Reader, project: &Project, before: Option<&Board>) -> Result<Board, Failure> {
        let (mut tries, mut newest) = (0, reader.view().last_event()?);
        loop {
            let board = Board::read_once(reader, project, newest, before)?;
            tries += 1;
            let now = reader.view().last_event()?;
            if now == newest || tries == TRIES {
                return Ok(board);
            }
            newest = now;
        }
    }

    fn read_once(reader: &mut Reader, project: &Project, newest: Seq, before: Option<&Board>) -> Result<Board, Failure> {
        let overview = inspect::overview(reader, project)?;
        let held = reader.view().first_held_by_ended(BLOCKED)?;
        let parked = reader.view().first_parked(BLOCKED)?;
        let mut keys: BTreeSet<Key> = overview.runs.iter().map(|live| Key::Task(live.run.task.clone())).collect();
        keys.extend(overview.runs.iter().map(|live| Key::Workspace(live.run.task.clone())));
        keys.extend([Key::OpenDecisions, Key::Ready { of_each: NEXT, sections: Vec::new() }]);
        keys.extend(held.iter().flat_map(|(task, on)| [task, on]).cloned().map(Key::Task));
        keys.extend(parked.iter().map(|(task, _)| Key::Task(task.clone())));
        let Tables { backlog: rows, ready, .. } = reader.view().load(&keys)?.tables;
        let mut next: Vec<&Task> = ready.iter().filter_map(|id| rows.tasks.get(id)).collect();
        next.sort_by_key(|task| (Reverse(task.spec.priority), task.position));
        let next = next.into_iter().take(NEXT as usize).map(|task| (task.id.clone(), task.spec.title.to_string())).collect();
        let earlier = |live: &LiveRun| before?.live.iter().find(|earlier| earlier.run.run.id == live.run.id);
        let live = overview.runs.iter().map(|live| {
            let task = rows.tasks.get(&live.run.task);
            let (log, activity) = match earlier(live) {
                Some(earlier) => (earlier.log.clone(), earlier.activity.clone()),
                None => (LogEnd::new(project, task, &live.run), String::new()),
            };
            let mut live = Live {
                agent: task.and_then(|task| match &task.spec.work {
                    Some(Work::Agent(work)) => Some(work.names()),
                    _ => None,
                }),
                phase: task.and_then(|task| task.spec.phase()).map(str::to_owned),
                worktree: rows.workspaces.get(&live.run.task).and_then(|workspace| match &workspace.place {
                    Place::Worktree { path, base, .. } => Some((PathBuf::from(&**path), base.to_string())),
                    Place::Dir { .. } => None,
                }),
                is_stuck: task.is_some_and(|task| matches!(task.state, State::Stuck { .. })),
                log,
                activity,
                run: live.clone(),
            };
            live.follow_log();
            live
        });
        let live = live.collect();
        let mut decisions: Vec<Decision> = rows.decisions.values().cloned().collect();
        decisions.sort_by_key(|decision| decision.raised);
        let is_held = |hosted: &&banksman_store::Hosted| pipelines::is_held_up(&hosted.pipeline);
        let mut blocked: Vec<Blocked> = overview
            .pipelines
            .iter()
            .filter(is_held)
            .map(|hosted| Blocked {
                task: hosted.task.id.clone(),
                title: hosted.task.spec.title.to_string(),
                by: why::detail(&hosted.pipeline, None).unwrap_or_default(),
            })
            .collect();
        let title = |id: &TaskId| rows.tasks.get(id).map(|task| task.spec.title.to_string());
        let blocked_by = |task: &TaskId, by: String| Some(Blocked { task: task.clone(), title: title(task)?, by });
        blocked.extend(held.iter().filter_map(|(task, on)| {
            let status = rows.tasks.get(on).map(|on| on.status().to_string()).unwrap_or_default();
            blocked_by(task, format!("{status}: {}", title(on)?))
        }));
        let waiting = parked.iter().filter_map(|(task, resource)| blocked_by(task, resource.to_string())).collect();
        let landings = landing::board(reader)?;
        let mut ended = ended(reader, newest, before)?;
        // A task that runs again has not ended.
        ended.retain(|ended| !overview.runs.iter().any(|live| live.run.task == ended.task));
        let project = project.root().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Board { project, overview, live, decisions, landings, blocked, waiting, next, ended, newest })
    }

    /// The present moment on the clock of the last read.
    pub(crate) fn now(&self) -> Stamp {
        let passed = Wall(banksman_adapters::host::wall_ms()) - self.overview.at.wall;
        Stamp { lease: self.overview.at.lease + passed, wall: Wall(self.overview.at.wall.0 + passed.as_ms()) }
    }

    /// The number of tasks that are blocked by something that does not change by itself.
    pub(crate) fn blocked_number(&self) -> u64 {
        self.overview.held.0.max(self.blocked.len() as u64)
    }

    /// The task that a decision is about.
    pub(crate) fn task_of<'a>(&self, decision: &'a Decision) -> Option<&'a TaskId> {
        match &decision.question.about {
            About::Task(task) | About::Run { task, .. } => Some(task),
            _ => None,
        }
    }
}

/// The tasks that ended last, newest first, each once, without phases.
fn ended(reader: &mut Reader, newest: Seq, before: Option<&Board>) -> Result<Vec<Ended>, Failure> {
    let filter = EventFilter { kind: Some("task:".into()), ..EventFilter::default() };
    let from = Seq((newest.0 - EVENT_WINDOW).max(0)).max(before.map_or(Seq(0), |before| before.newest));
    let events = if from < newest { reader.view().events(from, &filter)?.events } else { Vec::new() };
    let mut seen = BTreeSet::new();
    let ends = events.iter().rev().filter_map(end).filter(|(id, ..)| seen.insert(id.clone())).take(4 * ENDED);
    let ends: Vec<(TaskId, Status, Option<String>, Wall)> = ends.collect();
    let keys: BTreeSet<Key> = ends.iter().map(|(id, ..)| Key::Task(id.clone())).collect();
    let tasks = if keys.is_empty() { Default::default() } else { reader.view().load(&keys)?.tables.backlog.tasks };
    let named = ends.into_iter().filter_map(|(id, status, error, at)| {
        let task = tasks.get(&id).filter(|task| task.spec.phase().is_none())?;
        Some(Ended { title: task.spec.title.to_string(), task: id, status, error, at })
    });
    let mut ended: Vec<Ended> = named.collect();
    for earlier in before.iter().flat_map(|before| &before.ended) {
        if ended.iter().all(|ended| ended.task != earlier.task) {
            ended.push(earlier.clone());
        }
    }
    ended.truncate(ENDED);
    Ok(ended)
}

fn end(row: &EventRow) -> Option<(TaskId, Status, Option<String>, Wall)> {
    let data = row.data.to_string();
    let Ok(Event::Task { id, fact }) = Event::parse(&row.kind, &row.source.component, row.source.id.as_deref(), &data) else {
        return None;
    };
    let (status, error) = match fact {
        TaskFact::Complete { .. } => (Status::Completed, None),
        TaskFact::Failed { error, .. } => (Status::Failed, Some(error.to_string())),
        TaskFact::Cancelled { .. } => (Status::Cancelled, None),
        _ => return None,
    };
    Some((id, status, error, row.wall))
}
