//! How many tasks stand how: counters that every batch keeps up, so that nobody has to go through all tasks.
//!
//! Tasks of an import are counted under its id from the beginning, and their counters are left out while it is not finished.
//! What dependencies hold back follows from `unmet`, which the database keeps, and is counted in an index of its own.

use std::collections::BTreeMap;

use banksman_core::backlog::Backlog;
use banksman_core::ids::TaskId;
use banksman_core::{Status, Task};

use crate::backlog::word;
use crate::board::status;
use crate::error::StoreError;
use crate::reader::View;
use crate::sql::Statement;
use crate::value::{Query, Rows};

/// What one counter counts: the import, the word for the state, and whether it is for people.
type Counted<'a> = (&'a str, &'static str, bool);

/// The statements that bring the counters from `before` to `after`.
pub(crate) fn between<'a>(project: i64, before: &'a Backlog, after: &'a Backlog, queries: &mut Vec<Query<'a>>) {
    let mut changes: BTreeMap<Counted<'a>, i64> = BTreeMap::new();
    let mut count = |backlog: &'a Backlog, id: &'a TaskId, task: &Task, by: i64| {
        // A part of something else is not counted.
        if !task.spec.is_part() {
            let import = backlog.imported.get(id).map_or("", |import| import.as_str());
            *changes.entry((import, word(task), task.spec.work.is_none())).or_default() += by;
        }
    };
    for (id, task) in &after.tasks {
        match before.tasks.get(id) {
            Some(was) if word(was) == word(task) && was.spec.work.is_none() == task.spec.work.is_none() => {}
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
        queries.push(Query::new(Statement::AddToCount, params));
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
            [Statement::TaskCounts, Statement::RealCounts].map(|statement| Query::new(statement, [self.project.into()]));
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
