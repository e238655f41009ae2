//! How many tasks stand how: counters that every batch keeps up, so that nobody has to go through all tasks.
//!
//! Tasks of an import are counted under its id from the beginning, and their counters are left out while it is not finished.
//! What dependencies hold back follows from `unmet`, which the database keeps, and is counted in an index of its own.

use std::collections::BTreeMap;

use banksman_core::backlog::Backlog;
use banksman_core::ids::TaskId;
use banksman_core::{Status, Task};

use crate::error::StoreError;
use crate::reader::View;
use crate::sql;
use crate::table::statements;
use crate::tables::task_lists::status;
use crate::tables::tasks::word;
use crate::value::{Query, Rows};

statements! {
    /// Counters, and beside them what of the pending dependencies hold back: that is taken off the number of the others.
    Kept => sql::expand(
        "SELECT c.state, CAST(0 AS BIGINT), c.by_hand, CAST(sum(c.number) AS BIGINT) FROM task_counts c WHERE c.project = $1 \
         AND (c.import = '' OR c.import NOT IN (SELECT m.id FROM imports m WHERE m.project = $1)) GROUP BY c.state, c.by_hand \
         UNION ALL SELECT 'pending', CAST(1 AS BIGINT), CAST(CASE WHEN t.lane IS NULL THEN 1 ELSE 0 END AS BIGINT), count(*) \
         FROM tasks t WHERE t.project = $1 AND t.state = 'pending' AND t.unmet > 0 AND {top_level t} AND {visible t} GROUP BY 3",
    ),
    /// The same by going through all tasks.
    Real => sql::expand(
        "SELECT state, CAST(CASE WHEN unmet > 0 THEN 1 ELSE 0 END AS BIGINT), \
         CAST(CASE WHEN lane IS NULL THEN 1 ELSE 0 END AS BIGINT), count(*) \
         FROM tasks t WHERE project = $1 AND {visible t} AND {top_level t} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    ),
    Add => "INSERT INTO task_counts (project, import, state, by_hand, number) VALUES ($1, $2, $3, $4, $5) \
            ON CONFLICT (project, import, state, by_hand) DO UPDATE SET number = task_counts.number + $5".to_owned(),
}

/// What one counter counts: the import, the word for the state, and whether it is for people.
type Counted<'a> = (&'a str, &'static str, bool);

/// The statements that bring the counters from `before` to `after`.
pub(crate) fn changes<'a>(project: i64, before: &'a Backlog, after: &'a Backlog, queries: &mut Vec<Query<'a>>) {
    let mut changes: BTreeMap<Counted<'a>, i64> = BTreeMap::new();
    let mut count = |backlog: &'a Backlog, id: &'a TaskId, task: &Task, by: i64| {
        // A part of something else is not counted.
        if !task.spec.is_part() {
            let import = backlog.imported.get(id).map_or("", |import| import.as_str());
            *changes.entry((import, word(&task.state), task.spec.work.is_none())).or_default() += by;
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
    for ((import, state, by_hand), by) in changes.into_iter().filter(|(_, by)| *by != 0) {
        let params = [project.into(), import.into(), state.into(), i64::from(by_hand).into(), by.into()];
        queries.push(Query::new(Statement::Add, params));
    }
}

/// How many tasks stand how.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskCounts {
    pub(crate) by_status: BTreeMap<Status, u64>,
    /// How many of the pending are for people.
    pub(crate) by_hand: u64,
}

impl TaskCounts {
    /// Reads counters. Those of pending tasks count what dependencies hold back too, which has rows of its own.
    pub(crate) fn kept(rows: Rows) -> Result<TaskCounts, StoreError> {
        TaskCounts::read(rows, true)
    }

    fn read(rows: Rows, is_held_counted: bool) -> Result<TaskCounts, StoreError> {
        let (mut by_status, mut by_hand): (BTreeMap<Status, i64>, i64) = Default::default();
        for mut row in rows {
            let (word, is_held, is_by_hand, number) = (row.text()?, row.int()? != 0, row.int()? != 0, row.int()?);
            let stands = status(&word, is_held)?;
            *by_status.entry(stands).or_default() += number;
            if is_held && word == "pending" && is_held_counted {
                *by_status.entry(Status::Pending).or_default() -= number;
                by_hand -= if is_by_hand { number } else { 0 };
            }
            by_hand += if is_by_hand && stands == Status::Pending { number } else { 0 };
        }
        let whole = |number: i64| u64::try_from(number).map_err(StoreError::corrupt);
        let by_status = by_status.into_iter().filter(|(_, number)| *number != 0);
        let by_status = by_status.map(|(status, number)| Ok((status, whole(number)?))).collect::<Result<_, StoreError>>()?;
        Ok(TaskCounts { by_status, by_hand: whole(by_hand)? })
    }
}

impl View<'_> {
    /// What the counters say otherwise than the tasks, in words. Both are read at one moment.
    pub fn check_counts(&mut self) -> Result<Vec<String>, StoreError> {
        let queries =
            [Statement::Kept, Statement::Real].map(|statement| Query::new(statement, [self.project.into()]));
        let mut answers = self.backend.read(&queries)?.into_iter();
        let kept = TaskCounts::kept(answers.next().unwrap_or_default())?;
        let real = TaskCounts::read(answers.next().unwrap_or_default(), false)?;
        let count = |counts: &TaskCounts, status: Status| counts.by_status.get(&status).copied().unwrap_or_default();
        let differing = Status::ALL.into_iter().filter(|status| count(&kept, *status) != count(&real, *status));
        let said = differing.map(|status| {
            format!("the counter of {status} tasks says {}, and there are {}", count(&kept, status), count(&real, status))
        });
        let by_hand = (kept.by_hand != real.by_hand)
            .then(|| format!("the counter of pending tasks for people says {}, and there are {}", kept.by_hand, real.by_hand));
        Ok(said.chain(by_hand).collect())
    }
}
