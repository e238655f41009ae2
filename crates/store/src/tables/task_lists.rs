//! Read-only views of tasks: lists, names, counts.

use std::collections::BTreeMap;

use banksman_core::event::Resource;
use banksman_core::ids::{SectionId, TaskId};
use banksman_core::{Label, Seq, Status, Task};

use crate::columns::{Codec, Int, Text};
use crate::error::StoreError;
use crate::reader::View;
use crate::table::Table;
use crate::tables::items::{self, WorkItems};
use crate::tables::projects::{self, Counters};
use crate::tables::task_counts::{self, TaskCounts};
use crate::tables::tasks::{Statement, Tasks, parked_resource};
use crate::tables::workers;
use crate::value::{Query, Value};

/// Maximum number of tasks of one read.
const PAGE: i64 = 1_000;

#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only tasks in one of these statuses; all if empty.
    pub statuses: Vec<Status>,
    /// Only tasks of this section.
    pub section: Option<SectionId>,
    /// Only the children of this task.
    pub parent: Option<TaskId>,
    /// Only tasks with all these labels.
    pub labels: Vec<Label>,
    /// Only tasks whose title contains this text, ignoring case.
    pub search: Option<String>,
    /// Whether to hide the phases of pipelines.
    pub hide_phases: bool,
    /// Maximum number of rows to read, including rows that do not pass; 0 for a full page.
    pub page: usize,
}

/// A task in a list.
#[derive(Debug, Clone)]
pub struct Listed {
    pub task: Task,
    /// The number of unmet dependencies.
    pub unmet: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// By status: pending tasks with unmet dependencies are blocked.
    pub by_status: BTreeMap<Status, u64>,
    /// Pending manual tasks, which no runner will start.
    pub by_hand: u64,
    /// Ready tasks by lane, with one task of each as its example.
    pub ready: Vec<(TaskId, u64)>,
    /// The items of workers. Their tasks are not counted separately, and neither are the phases of pipelines.
    pub items: WorkItems,
}

impl Listed {
    /// The status, with regard to dependencies.
    pub fn status(&self) -> Status {
        match self.task.status() {
            Status::Pending if self.unmet > 0 => Status::Blocked,
            status => status,
        }
    }
}

impl TaskFilter {
    /// The stored states of the rows that may pass, each between bars.
    fn states(&self) -> String {
        let words = self.statuses.iter().flat_map(|status| match status {
            Status::Pending => &["pending", "resting"][..],
            Status::Blocked => &["pending", "resting", "held", "parked", "phases_blocked"],
            // A task that is being stopped is in progress too.
            Status::InProgress => &["running", "stopping", "awaiting", "by_hand", "phases"],
            Status::Stuck => &["stuck"],
            Status::Landing => &["landing"],
            Status::Review => &["review"],
            Status::Completed => &["completed"],
            Status::Failed => &["failed"],
            Status::Cancelled => &["cancelled"],
            Status::Skipped => &["skipped"],
        });
        words.fold("|".to_owned(), |all, word| all + word + "|")
    }

    /// A pattern for the stored spec of a task with the first label, so that not every row has to be read. Other specs
    /// may match it too; a label that JSON escapes is not searched for.
    fn label_in_spec(&self) -> Option<String> {
        let label = self.labels.first().filter(|label| !label.as_str().contains(['"', '\\']))?;
        Some(format!("%\"{label}\"%"))
    }

    /// Whether a row that the database has found passes.
    fn passes(&self, listed: &Listed, search: Option<&str>) -> bool {
        let spec = &listed.task.spec;
        !(self.hide_phases && spec.phase().is_some())
            && (self.statuses.is_empty() || self.statuses.contains(&listed.status()))
            && self.labels.iter().all(|label| spec.labels.contains(label))
            && search.is_none_or(|text| spec.title.as_str().to_lowercase().contains(text))
    }
}

impl View<'_> {
    /// The next tasks after a position that pass the filter, in their order; and the position to continue from if there
    /// may be more.
    pub fn tasks(&mut self, filter: &TaskFilter, after: Seq) -> Result<(Vec<Listed>, Option<Seq>), StoreError> {
        let states = (!filter.statuses.is_empty()).then(|| filter.states());
        let limit = if filter.page == 0 { PAGE } else { PAGE.min(i64::try_from(filter.page).unwrap_or(PAGE)) };
        let params: [Value<'_>; 7] = [
            self.project.into(),
            after.0.into(),
            limit.into(),
            states.into(),
            filter.section.as_ref().map(SectionId::as_str).into(),
            filter.parent.as_ref().map(TaskId::as_str).into(),
            filter.label_in_spec().into(),
        ];
        let rows = self.rows(Query::new(Statement::Page, params))?;
        let full = rows.len() as i64 == limit;
        let mut listed = Vec::with_capacity(rows.len());
        for mut row in rows {
            listed.push(Listed { task: Tasks::read(&mut row)?, unmet: Int::read(&mut row)? });
        }
        let next = listed.last().map(|last| last.task.position).filter(|_| full);
        let search = filter.search.as_ref().map(|text| text.to_lowercase());
        listed.retain(|listed| filter.passes(listed, search.as_deref()));
        Ok((listed, next))
    }

    /// The tasks that a name may mean, best first: the task with this id, else tasks with this title, else ids that
    /// start with it, else titles that match without regard to case, else titles that contain it.
    pub fn find_tasks(&mut self, name: &str) -> Result<Vec<TaskId>, StoreError> {
        let statements =
            [Statement::IdById, Statement::IdByTitle, Statement::IdByPrefix, Statement::IdByFold, Statement::IdByPart];
        for statement in statements {
            let params: Vec<Value<'_>> = match statement {
                Statement::IdByPrefix => vec![self.project.into(), name.into(), format!("{name}\u{10ffff}").into()],
                Statement::IdByPart => {
                    let literal = name.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
                    vec![self.project.into(), format!("%{literal}%").into()]
                }
                _ => vec![self.project.into(), name.into()],
            };
            let found = self.rows(Query::new(statement, params))?;
            if !found.is_empty() {
                return found.into_iter().map(|mut row| Text::read(&mut row)).collect();
            }
        }
        Ok(Vec::new())
    }

    /// The first tasks with exactly this title.
    pub fn tasks_titled(&mut self, title: &str) -> Result<Vec<TaskId>, StoreError> {
        let found = self.rows(Query::new(Statement::IdByTitle, [self.project.into(), title.into()]))?;
        found.into_iter().map(|mut row| Text::read(&mut row)).collect()
    }

    pub fn counts(&mut self) -> Result<Counts, StoreError> {
        let project: Value<'_> = self.project.into();
        let counters = Query::new(projects::Statement::One, [project.clone()]);
        let [imported, held] = [task_counts::Statement::Imported, task_counts::Statement::Held]
            .map(|statement| Query::new(statement, [project.clone()]));
        let ready = Query::new(Statement::ReadyCounts, [project.clone()]);
        let items = Query::new(items::Statement::OfWorkers, [project]);
        let mut answers = self.backend.read(&[counters, imported, held, ready, items])?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let kept = Counters::read(next())?.counts;
        let TaskCounts { by_status, by_hand } = TaskCounts::kept(&kept, next().into_iter().chain(next()))?;
        let mut counts = Counts { by_status, by_hand, ..Counts::default() };
        for mut row in next() {
            counts.ready.push((Text::read(&mut row)?, Int::read(&mut row)?));
        }
        next().iter_mut().try_for_each(|row| counts.items.put(row))?;
        Ok(counts)
    }

    /// The same for a caller that most likely finds the backlog finished. Many processes may ask at the same moment,
    /// and the full counts cost PostgreSQL some milliseconds for each connection that asks for the first time.
    pub fn final_counts(&mut self) -> Result<Counts, StoreError> {
        let project: Value<'_> = self.project.into();
        let counters = Query::new(projects::Statement::One, [project.clone()]);
        let imported = Query::new(task_counts::Statement::Imported, [project.clone()]);
        let workers = Query::new(workers::Statement::Any, [project]);
        let mut answers = self.backend.read(&[counters, imported, workers])?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let kept = Counters::read(next())?.counts;
        let TaskCounts { by_status, by_hand } = TaskCounts::kept(&kept, next())?;
        if by_status.contains_key(&Status::Pending) || !next().is_empty() {
            return self.counts();
        }
        Ok(Counts { by_status, by_hand, ..Counts::default() })
    }

    /// Counts the tasks of each section by status.
    pub fn section_counts(&mut self) -> Result<BTreeMap<SectionId, BTreeMap<Status, u64>>, StoreError> {
        let mut counts: BTreeMap<SectionId, BTreeMap<Status, u64>> = BTreeMap::new();
        for mut row in self.rows(Query::new(Statement::SectionCounts, [self.project.into()]))? {
            let section = Text::read(&mut row)?;
            let status = status(&row.text()?, Int::read(&mut row)?)?;
            let number: u64 = Int::read(&mut row)?;
            *counts.entry(section).or_default().entry(status).or_default() += number;
        }
        Ok(counts)
    }

    /// The ready tasks before this one, by lane, with one task of each as its example. Where roots are limited, only
    /// earlier roots count as before a root.
    pub fn ready_before(&mut self, task: &Task, roots_are_limited: bool) -> Result<Vec<(TaskId, u64)>, StoreError> {
        let (project, position) = (self.project.into(), task.position.0.into());
        let query = if roots_are_limited && task.spec.parent.is_none() {
            Query::new(Statement::RootsBefore, [project, position])
        } else {
            Query::new(Statement::ReadyBefore, [project, i64::from(task.spec.priority).into(), position])
        };
        let mut lanes = Vec::new();
        for mut row in self.rows(query)? {
            // A lane without any root has no example.
            if let Some(example) = Text::read(&mut row)? {
                lanes.push((example, Int::read(&mut row)?));
            }
        }
        Ok(lanes)
    }

    /// The first tasks that a person has paused.
    pub fn stopped(&mut self, limit: i64) -> Result<Vec<Task>, StoreError> {
        self.read::<Tasks>(Query::new(Statement::Stopped, [self.project.into(), limit.into()]))
    }

    /// The tasks that failed last, newest first.
    pub fn last_failed(&mut self, limit: i64) -> Result<Vec<Task>, StoreError> {
        self.read::<Tasks>(Query::new(Statement::LastFailed, [self.project.into(), limit.into()]))
    }

    /// The number of pending tasks that wait for a task that failed, was cancelled or was skipped; and one of them as
    /// an example.
    pub fn held_by_ended(&mut self) -> Result<(u64, Option<TaskId>), StoreError> {
        let mut rows = self.rows(Query::new(Statement::HeldByEnded, [self.project.into()]))?;
        let Some(mut row) = rows.pop() else { return Ok((0, None)) };
        Ok((Int::read(&mut row)?, Text::read(&mut row)?))
    }

    /// The first of these tasks, each with a task that it waits for.
    pub fn first_held_by_ended(&mut self, limit: i64) -> Result<Vec<(TaskId, TaskId)>, StoreError> {
        let rows = self.rows(Query::new(Statement::HeldFirst, [self.project.into(), limit.into()]))?;
        rows.into_iter().map(|mut row| Ok((Text::read(&mut row)?, Text::read(&mut row)?))).collect()
    }

    /// The first ready tasks that are parked on a lock or a semaphore, each with its resource.
    pub fn first_parked(&mut self, limit: i64) -> Result<Vec<(TaskId, Resource)>, StoreError> {
        let rows = self.rows(Query::new(Statement::ParkedFirst, [self.project.into(), limit.into()]))?;
        rows.into_iter().map(|mut row| Ok((Text::read(&mut row)?, parked_resource(&row.text()?)?))).collect()
    }
}

/// The status of a row with this state.
pub(crate) fn status(word: &str, held_back: bool) -> Result<Status, StoreError> {
    let status = match word {
        "running" | "stopping" | "awaiting" | "by_hand" | "phases" => Some(Status::InProgress),
        "held" | "parked" | "phases_blocked" => Some(Status::Blocked),
        "resting" => Some(Status::Pending),
        "pending" if held_back => Some(Status::Blocked),
        other => Status::parse(other),
    };
    status.ok_or_else(|| StoreError::corrupt(format_args!("a task is {word:?}")))
}
