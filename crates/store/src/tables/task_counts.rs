//! The number of tasks in each state: counters that every batch updates, so that no read has to scan all tasks.
//!
//! The counters are in the row of the project ([`ProjectCounts`]). Tasks of an unfinished import are counted under its
//! id in a table of their own, and are left out until the import is finished. Blocked tasks follow from `unmet`, which
//! the database maintains, and are counted in an index of their own.

use std::collections::BTreeMap;

use banksman_core::backlog::Backlog;
use banksman_core::ids::TaskId;
use banksman_core::{Status, Task};

use crate::error::StoreError;
use crate::reader::View;
use crate::sql;
use crate::table::statements;
use crate::tables::project_counts::ProjectCounts;
use crate::tables::projects::{self, Counters};
use crate::tables::task_lists::status;
use crate::tables::tasks::word;
use crate::value::{Query, Row, Rows};

statements! {
    /// Counters of finished imports.
    Imported => "SELECT c.state, CAST(0 AS BIGINT), c.by_hand, CAST(sum(c.number) AS BIGINT) FROM task_counts c WHERE c.project = $1 \
        AND (c.import = '' OR c.import NOT IN (SELECT m.id FROM imports m WHERE m.project = $1)) GROUP BY c.state, c.by_hand".to_owned(),
    /// The pending tasks with unmet dependencies, to be subtracted from the pending ones.
    Held => sql::expand(
        "SELECT 'pending', CAST(1 AS BIGINT), CAST(CASE WHEN t.lane IS NULL THEN 1 ELSE 0 END AS BIGINT), count(*) \
         FROM tasks t WHERE t.project = $1 AND t.state = 'pending' AND t.unmet > 0 AND {top_level t} AND {visible t} GROUP BY 3",
    ),
    /// The same counts by a scan of all tasks.
    Real => sql::expand(
        "SELECT state, CAST(CASE WHEN unmet > 0 THEN 1 ELSE 0 END AS BIGINT), \
         CAST(CASE WHEN lane IS NULL THEN 1 ELSE 0 END AS BIGINT), count(*) \
         FROM tasks t WHERE project = $1 AND {visible t} AND {top_level t} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    ),
    /// Live runs and taken run slots, by a scan of both tables.
    RealRuns => "SELECT (SELECT count(*) FROM runs WHERE project = $1 AND live = 1), \
        (SELECT CAST(coalesce(sum(weight), 0) AS BIGINT) FROM slots WHERE project = $1 AND semaphore = 'runs')".to_owned(),
    Add => "INSERT INTO task_counts (project, import, state, by_hand, number) VALUES ($1, $2, $3, $4, $5) \
            ON CONFLICT (project, import, state, by_hand) DO UPDATE SET number = task_counts.number + $5".to_owned(),
}

/// The kind of tasks of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Counted<'a> {
    /// The import of the tasks; empty once it is finished.
    pub(crate) import: &'a str,
    /// The word for their state.
    state: &'static str,
    is_manual: bool,
}

/// Suffix of the state for manual tasks.
const MANUAL: &str = "/manual";

impl Counted<'_> {
    /// The name of the counter in the row of the project.
    pub(crate) fn key(&self) -> String {
        format!("{}{}", self.state, if self.is_manual { MANUAL } else { "" })
    }
}

/// The changes of the counters between the tasks of `before` and those of `after`.
pub(crate) fn changed<'a>(before: &'a Backlog, after: &'a Backlog) -> BTreeMap<Counted<'a>, i64> {
    let mut changes: BTreeMap<Counted<'a>, i64> = BTreeMap::new();
    let mut count = |backlog: &'a Backlog, id: &'a TaskId, task: &Task, by: i64| {
        // A part of something else is not counted.
        if !task.spec.is_part() {
            let import = backlog.imported.get(id).map_or("", |import| import.as_str());
            let counted = Counted { import, state: word(&task.state), is_manual: task.spec.work.is_none() };
            *changes.entry(counted).or_default() += by;
        }
    };
    for (id, task) in &after.tasks {
        match before.tasks.get(id) {
            Some(was) if word(&was.state) == word(&task.state) && was.spec.work.is_none() == task.spec.work.is_none() => {}
            Some(was) => {
                count(before, id, was, -1);
                count(after, id, task, 1);
            }
            None => count(after, id, task, 1),
        }
    }
    for (id, task) in before.tasks.iter().filter(|(id, _)| !after.tasks.contains_key(*id)) {
        count(before, id, task, -1);
    }
    changes.retain(|_, by| *by != 0);
    changes
}

/// The statements that update the counters of imports.
pub(crate) fn changes<'a>(project: i64, before: &'a Backlog, after: &'a Backlog, queries: &mut Vec<Query<'a>>) {
    if before.imported.is_empty() && after.imported.is_empty() {
        return;
    }
    for (Counted { import, state, is_manual }, by) in changed(before, after).into_iter().filter(|(kind, _)| !kind.import.is_empty()) {
        let params = [project.into(), import.into(), state.into(), i64::from(is_manual).into(), by.into()];
        queries.push(Query::new(Statement::Add, params));
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskCounts {
    pub(crate) by_status: BTreeMap<Status, u64>,
    /// How many of the pending tasks are manual.
    pub(crate) by_hand: u64,
}

impl TaskCounts {
    /// Reads counters, from the project and from rows. Those of pending tasks include blocked tasks, which have rows of
    /// their own.
    pub(crate) fn kept(counts: &ProjectCounts, rows: impl IntoIterator<Item = Row>) -> Result<TaskCounts, StoreError> {
        let mut tally = Tally::default();
        for (key, number) in &counts.tasks {
            let (word, is_manual) = key.strip_suffix(MANUAL).map_or((key.as_str(), false), |word| (word, true));
            tally.add(status(word, false)?, is_manual, *number);
        }
        for mut row in rows {
            let (word, is_held, is_manual, number) = (row.text()?, row.int()? != 0, row.int()? != 0, row.int()?);
            tally.add(status(&word, is_held)?, is_manual, number);
            if is_held {
                tally.add(Status::Pending, is_manual, -number);
            }
        }
        tally.finish()
    }

    /// Reads counts of a scan.
    fn real(rows: Rows) -> Result<TaskCounts, StoreError> {
        let mut tally = Tally::default();
        for mut row in rows {
            let (word, is_held, is_manual, number) = (row.text()?, row.int()? != 0, row.int()? != 0, row.int()?);
            tally.add(status(&word, is_held)?, is_manual, number);
        }
        tally.finish()
    }
}

/// A sum of counters.
#[derive(Default)]
struct Tally {
    by_status: BTreeMap<Status, i64>,
    manual: i64,
}

impl Tally {
    fn add(&mut self, status: Status, is_manual: bool, number: i64) {
        *self.by_status.entry(status).or_default() += number;
        self.manual += if is_manual && status == Status::Pending { number } else { 0 };
    }

    fn finish(self) -> Result<TaskCounts, StoreError> {
        let unsigned = |number: i64| u64::try_from(number).map_err(StoreError::corrupt);
        let by_status = self.by_status.into_iter().filter(|(_, number)| *number != 0);
        let by_status = by_status.map(|(status, number)| Ok((status, unsigned(number)?))).collect::<Result<_, StoreError>>()?;
        Ok(TaskCounts { by_status, by_hand: unsigned(self.manual)? })
    }
}

impl View<'_> {
    /// Compares the counters with the tables, in one snapshot. Returns a description of each difference.
    pub fn check_counts(&mut self) -> Result<Vec<String>, StoreError> {
        let counters = Query::new(projects::Statement::One, [self.project.into()]);
        let counted =
            [Statement::Imported, Statement::Held, Statement::Real, Statement::RealRuns].map(|statement| Query::new(statement, [self.project.into()]));
        let queries: Vec<Query<'_>> = std::iter::once(counters).chain(counted).collect();
        let mut answers = self.backend.read(&queries)?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let counts = Counters::read(next())?.counts;
        let kept = TaskCounts::kept(&counts, next().into_iter().chain(next()))?;
        let real = TaskCounts::real(next())?;
        let mut runs = next().pop().ok_or_else(|| StoreError::corrupt("live runs cannot be counted"))?;
        let difference = |what: &str, kept: i64, real: i64| {
            (kept != real).then(|| format!("the counter of {what} says {kept}, and there are {real}"))
        };
        let count =
            |counts: &TaskCounts, status: Status| counts.by_status.get(&status).map_or(0, |number| *number as i64);
        let tasks = Status::ALL.into_iter().filter_map(|status| {
            difference(&format!("{status} tasks"), count(&kept, status), count(&real, status))
        });
        let mut differences: Vec<String> = tasks.collect();
        differences.extend(difference("pending tasks for people", kept.by_hand as i64, real.by_hand as i64));
        differences.extend(difference("live runs", counts.live_runs, runs.int()?));
        differences.extend(difference("slots for runs that are taken", counts.run_slots, runs.int()?));
        Ok(differences)
    }
}
