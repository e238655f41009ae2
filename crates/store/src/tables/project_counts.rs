//! Counters in the row of the project, updated with every batch, so that no read has to scan the counted rows.

use std::collections::BTreeMap;

use banksman_core::Name;
use banksman_core::backlog::Backlog;
use banksman_core::resource::coordination::Coordination;

use crate::columns::{Codec, Int, NeededJson, to_json};
use crate::error::StoreError;
use crate::tables::{Tables, task_counts};
use crate::value::{Row, Value};

/// The counters of a project. All of them follow from the other tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProjectCounts {
    pub(crate) live_runs: i64,
    /// The number of run slots taken.
    pub(crate) run_slots: i64,
    /// Tasks by kind, as [`task_counts`] names the kinds. The counters in the rows of `task_counts` have to be added,
    /// so a number may be negative.
    pub(crate) tasks: BTreeMap<String, i64>,
}

impl ProjectCounts {
    pub(crate) fn read(row: &mut Row) -> Result<ProjectCounts, StoreError> {
        Ok(ProjectCounts { live_runs: Int::read(row)?, run_slots: Int::read(row)?, tasks: NeededJson::read(row)? })
    }

    pub(crate) fn params(&self) -> [Value<'static>; 3] {
        [self.live_runs.into(), self.run_slots.into(), to_json(&self.tasks).into()]
    }

    /// The counters after a batch that turns the rows of `before` into those of `after`.
    pub(crate) fn after(&self, before: &Tables, after: &Tables) -> ProjectCounts {
        let mut tasks = self.tasks.clone();
        for (kind, by) in
            task_counts::changed(&before.backlog, &after.backlog).into_iter().filter(|(kind, _)| kind.import.is_empty())
        {
            *tasks.entry(kind.key()).or_default() += by;
        }
        tasks.retain(|_, number| *number != 0);
        ProjectCounts {
            live_runs: self.live_runs + live_runs(&after.backlog) - live_runs(&before.backlog),
            run_slots: self.run_slots + run_slots(&after.coordination) - run_slots(&before.coordination),
            tasks,
        }
    }
}

fn live_runs(backlog: &Backlog) -> i64 {
    backlog.runs.values().filter(|run| run.is_live()).count() as i64
}

fn run_slots(coordination: &Coordination) -> i64 {
    let holders = coordination.semaphores.get(&Name::runs()).into_iter().flat_map(|slots| slots.holders.values());
    holders.map(|grant| i64::from(grant.claim.weight)).sum()
}
