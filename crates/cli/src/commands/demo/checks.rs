//! The claims that the demo prints: each is checked against the store, the log and /proc before it is printed.

use banksman_core::task::RunEnd;
use banksman_core::{Liveness, Status};
use serde::Serialize;

use super::audit::Audit;
use super::stage::Stage;
use super::story::{LOCK, Observed, SLOTS};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{DIM, GREEN, RED};

/// A claim, and the problems that contradict it.
#[derive(Serialize)]
pub(super) struct Check {
    #[serde(rename = "check")]
    name: &'static str,
    pub(super) holds: bool,
    text: String,
    problems: Vec<String>,
}

impl Check {
    pub(super) fn new<const N: usize>(name: &'static str, text: String, conditions: [(bool, String); N]) -> Check {
        let problems = conditions.into_iter().filter(|(holds, _)| !holds).map(|(_, problem)| problem);
        let problems: Vec<String> = problems.collect();
        Check { name, holds: problems.is_empty(), text, problems }
    }

    pub(super) fn line(&self) -> String {
        match self.holds {
            true => format!("{GREEN}✓{GREEN:#} {}", self.text),
            false => format!("{RED}✗ FAILED:{RED:#} {} {DIM}({}){DIM:#}", self.text, self.problems.join("; ")),
        }
    }
}

pub(super) fn all(stage: &Stage, observed: &Observed) -> Result<Vec<Check>, Failure> {
    let audit = Audit::of(stage.seen());
    let rows = stage.rows()?;
    let (tasks, runs) = (&rows.backlog.tasks, &rows.backlog.runs);
    let completed = tasks.values().filter(|task| task.status() == Status::Completed).count();
    let most = |name: &str| audit.most.get(name).copied().unwrap_or_default();
    let (slots, holders) = (most("semaphore runs"), most(&format!("lock {LOCK}")));

    let orphans = observed.orphans.len();
    let ended = observed.orphans.iter().filter_map(|orphan| runs.get(&orphan.run)?.ended.as_ref());
    let ended_well = ended.filter(|ended| ended.ending == RunEnd::Exited(0)).count();
    let adopted = observed.orphans.iter().filter(|orphan| audit.adopted.contains(&orphan.run)).count();
    let killed_at = observed.spans.iter().find(|span| span.is_killed).map_or(0, |span| span.to.0 - observed.spans[0].from.0);

    // Each of these was followed by another run.
    let again = audit.crashed.len() + audit.restarted.len() + audit.escalated.len();
    let left = stage.remaining();
    let hidden = stage.probe(&observed.hidden);
    let (events, differences) = stage.replay()?;
    Ok(vec![
        Check::new(
            "tasks",
            format!("{completed} of {} tasks completed, {} of them added by another task", tasks.len(), audit.children),
            [
                (completed == tasks.len(), format!("{} did not", tasks.len() - completed)),
                (
                    observed.statuses.iter().all(|status| *status == Some(exit::OK.into())),
                    format!("the runners: {:?}", observed.statuses),
                ),
            ],
        ),
        Check::new(
            "runs",
            format!("{} crashed and was retried; no run was started twice, none was lost", audit.crashed.join(", ")),
            [
                (audit.crashed.len() == 1, format!("{} crashed", audit.crashed.len())),
                (
                    audit.runs == tasks.len() + again && runs.len() == audit.runs + audit.never_begun,
                    format!("{} runs, {} kept", audit.runs, runs.len()),
                ),
                (audit.doubled == 0, format!("{} ran twice at the same time", audit.doubled)),
            ],
        ),
        Check::new(
            "order",
            format!("no task began before its dependencies; at most {slots} of {SLOTS} slots were taken"),
            [(audit.early == 0, format!("{} began too early", audit.early)), (slots <= SLOTS, "too many slots".into())],
        ),
        Check::new(
            "sessions",
            format!(
                "the runner was killed at {:.1} s; its {orphans} sessions continued and were adopted",
                killed_at as f64 / 1_000.0
            ),
            [
                (observed.alive_after_kill > 0, "no session was alive when the runner was dead".into()),
                (adopted == orphans, format!("{adopted} were adopted")),
                (ended_well == orphans, format!("{ended_well} ended well")),
            ],
        ),
        Check::new(
            "locks",
            format!("production had one runner at a time, and the lock {LOCK} one holder"),
            [(audit.most_runners == 1, format!("{} runners", audit.most_runners)), (holders == 1, format!("{holders} holders"))],
        ),
        Check::new(
            "endurance",
            format!(
                "{} was restarted, {} recovered, a person decided about {}",
                audit.restarted.join(", "),
                audit.recovered.join(", "),
                audit.escalated.join(", ")
            ),
            [
                (audit.restarted.len() == 1, format!("{} were restarted", audit.restarted.len())),
                (audit.recovered.len() == 1, format!("{} recovered", audit.recovered.len())),
                (
                    (audit.escalated.len(), audit.raised, audit.answered) == (1, 1, 1),
                    format!("{} questions, {} answers", audit.raised, audit.answered),
                ),
            ],
        ),
        Check::new(
            "remains",
            format!("no process is left, not even the hidden one; {events} events agree with the tables"),
            [
                (left.is_empty(), format!("processes {left:?} are left")),
                (hidden == Liveness::Dead, format!("the hidden process is {hidden:?}")),
                (differences.is_empty(), differences.join(", ")),
            ],
        ),
    ])
}
