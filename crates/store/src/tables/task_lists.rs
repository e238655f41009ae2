//! What can be read of tasks without changing anything: lists, names, counts.

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

/// How many tasks one read returns at most.
const PAGE: i64 = 1_000;

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only those that stand in one of these ways; all if there is none.
    pub statuses: Vec<Status>,
    /// Only those of this section.
    pub section: Option<SectionId>,
    /// Only the children of this task.
    pub parent: Option<TaskId>,
    /// Only those that have all these labels.
    pub labels: Vec<Label>,
    /// Only those whose title contains this, whatever the case.
    pub search: Option<String>,
    /// Without the phases of pipelines.
    pub hide_phases: bool,
    /// No more rows than this are read, whether they pass or not; 0 for a full page.
    pub page: usize,
}

/// A task in a list.
#[derive(Debug, Clone)]
pub struct Listed {
    pub task: Task,
    /// How many dependencies hold it back.
    pub unmet: u32,
}

/// How many tasks there are of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// By status: what dependencies hold back is blocked.
    pub by_status: BTreeMap<Status, u64>,
    /// Pending tasks for people, which no runner will start.
    pub by_hand: u64,
    /// Ready tasks by lane, with one task of each as its example.
    pub ready: Vec<(TaskId, u64)>,
    /// The items of workers. Their tasks are not counted by themselves, nor are the phases of pipelines.
    pub items: WorkItems,
}

impl Listed {
    /// The word for how it stands, with what dependencies tell.
    pub fn status(&self) -> Status {
        match self.task.status() {
            Status::Pending if self.unmet > 0 => Status::Blocked,
            status => status,
        }
    }
}

impl TaskFilter {
    /// The words of the rows that may pass, each between bars.
    fn states(&self) -> String {
        let words = self.statuses.iter().flat_map(|status| match status {
            Status::Pending => &["pending", "resting"][..],
            Status::Blocked => &["pending", "resting", "held", "parked", "phases_blocked"],
            // What is being stopped is in progress too.
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

    /// What the stored text of a task with the first label looks like, so that not every row has to be read. It may look so
    /// without that; a label that is written in another way than it is spelt is not looked for.
    fn label_in_spec(&self) -> Option<String> {
        let label = self.labels.first().filter(|label| !label.as_str().contains(['"', '\\']))?;
        Some(format!("%\"{label}\"%"))
    }

    /// Whether a row passes that the database has found.
    fn passes(&self, listed: &Listed, search: Option<&str>) -> bool {
        let spec = &listed.task.spec;
        !(self.hide_phases && spec.phase().is_some())
            && (self.statuses.is_empty() || self.statuses.contains(&listed.status()))
            && self.labels.iter().all(|label| spec.labels.contains(label))
            && search.is_none_or(|text| spec.title.as_str().to_lowercase().contains(text))
    }
}

impl View<'_> {
    /// The next tasks after a position, in their order, that pass the filter; and where to go on, if there may be more.
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

    /// The tasks that a name may mean, best first: the exact id, else exact titles, else ids that begin so, else titles whatever the case,
    /// else titles that contain it.
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

    /// The first tasks of exactly this title.
    pub fn tasks_titled(&mut self, title: &str) -> Result<Vec<TaskId>, StoreError> {
        let found = self.rows(Query::new(Statement::IdByTitle, [self.project.into(), title.into()]))?;
        found.into_iter().map(|mut row| Text::read(&mut row)).collect()
    }

    /// Counts the tasks.
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

    /// The same for somebody who most likely finds that all is over. Many may ask at the same moment, and the whole costs PostgreSQL some
    /// milliseconds for each that asks for the first time.
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

    /// The ready tasks that come before this one, by lane, with one task of each as its example. Where only so many roots may be
    /// under way, those before a root are the roots that came earlier.
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

    /// The first tasks that a person has stopped.
    pub fn stopped(&mut self, limit: i64) -> Result<Vec<Task>, StoreError> {
        self.read::<Tasks>(Query::new(Statement::Stopped, [self.project.into(), limit.into()]))
    }

    /// The tasks that failed last, newest first.
    pub fn last_failed(&mut self, limit: i64) -> Result<Vec<Task>, StoreError> {
        self.read::<Tasks>(Query::new(Statement::LastFailed, [self.project.into(), limit.into()]))
    }

    /// How many pending tasks wait for one that has failed, was cancelled or was skipped; with one of them as an example.
    pub fn held_by_ended(&mut self) -> Result<(u64, Option<TaskId>), StoreError> {
        let mut rows = self.rows(Query::new(Statement::HeldByEnded, [self.project.into()]))?;
        let Some(mut row) = rows.pop() else { return Ok((0, None)) };
        Ok((Int::read(&mut row)?, Text::read(&mut row)?))
    }

    /// The first of these, each with one that it waits for.
    pub fn first_held_by_ended(&mut self, limit: i64) -> Result<Vec<(TaskId, TaskId)>, StoreError> {
        let rows = self.rows(Query::new(Statement::HeldFirst, [self.project.into(), limit.into()]))?;
        rows.into_iter().map(|mut row| Ok((Text::read(&mut row)?, Text::read(&mut row)?))).collect()
    }

    /// The first ready tasks that wait for a lock or a semaphore, each with what it waits for.
    pub fn first_parked(&mut self, limit: i64) -> Result<Vec<(TaskId, Resource)>, StoreError> {
        let rows = self.rows(Query::new(Statement::ParkedFirst, [self.project.into(), limit.into()]))?;
        rows.into_iter().map(|mut row| Ok((Text::read(&mut row)?, parked_resource(&row.text()?)?))).collect()
    }
}

/// The status that the word of a row stands for.
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
