//! What was proven: every sentence is checked against the store, the log and /proc before it is said.

use banksman::core::task::Ending;
use banksman::core::{Liveness, Status};
use serde_json::{Value, json};

use super::audit::Audit;
use super::stage::Stage;
use super::story::{LOCK, Plot, SLOTS};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{GREEN, RED};

/// A sentence, and whether it is true.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) holds: bool,
    pub(super) text: String,
}

impl Check {
    pub(super) fn line(&self) -> String {
        match self.holds {
            true => format!("{GREEN}✓{GREEN:#} {}", self.text),
            false => format!("{RED}✗ {}: {}{RED:#}", self.name, self.text),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({ "check": self.name, "holds": self.holds, "text": self.text })
    }
}

/// Looks at everything.
pub(super) fn all(stage: &mut Stage, plot: &Plot) -> Result<Vec<Check>, Failure> {
    let audit = Audit::of(stage.seen());
    let rows = stage.rows()?;
    let (tasks, runs) = (&rows.backlog.tasks, &rows.backlog.runs);
    let completed = tasks.values().filter(|task| task.status() == Status::Completed).count();
    let most = |name: &str| audit.most.get(name).copied().unwrap_or_default();
    let check = |name, holds, text| Check { name, holds, text };

    let orphans: Vec<_> = plot.orphans.iter().filter_map(|orphan| runs.get(&orphan.run)).collect();
    let ended_well = |ending: &Ending| *ending == Ending::Exited(0);
    let went_on = orphans.iter().filter(|run| run.ended.as_ref().is_some_and(|ended| ended_well(&ended.ending))).count();
    let adopted = plot.orphans.iter().filter(|orphan| audit.adopted.contains(&orphan.run)).count();
    let kill_at = plot.shifts.iter().find(|shift| shift.is_killed).map_or(0, |shift| shift.to.0 - plot.shifts[0].from.0);

    let left = stage.processes();
    let hidden_gone = stage.probe(&plot.hidden) == Liveness::Dead;
    let (events, differences) = stage.fold()?;
    Ok(vec![
        check(
            "tasks",
            completed == tasks.len() && plot.statuses.iter().all(|status| *status == Some(i32::from(exit::OK))),
            format!("{completed} of {} tasks completed, {} of them handed over by a task", tasks.len(), audit.children),
        ),
        check(
            "runs",
            audit.crashed == 1 && audit.runs == tasks.len() + 1 && runs.len() == audit.runs && audit.doubled == 0,
            format!("{} crashed and was run again; every other task ran exactly once", audit.crashed),
        ),
        check(
            "order",
            audit.early == 0 && most("semaphore runs") <= SLOTS,
            format!("{} began too early; at most {} of {SLOTS} slots were taken", audit.early, most("semaphore runs")),
        ),
        check(
            "sessions",
            went_on == plot.orphans.len() && adopted == plot.orphans.len() && plot.alive_after_kill > 0,
            format!(
                "The runner was killed at {:.1} s; its {} sessions went on, {adopted} were adopted, {went_on} ended well",
                kill_at as f64 / 1_000.0,
                plot.orphans.len()
            ),
        ),
        check(
            "locks",
            audit.most_runners == 1 && most(&format!("lock {LOCK}")) == 1,
            format!("At most {} runner was in production, and {} holder had the lock {LOCK}", audit.most_runners, most(&format!("lock {LOCK}"))),
        ),
        check(
            "remains",
            left.is_empty() && hidden_gone && differences.is_empty(),
            format!("{} processes are left, the hidden one included; {events} events fold to the tables", left.len()),
        ),
    ])
}
