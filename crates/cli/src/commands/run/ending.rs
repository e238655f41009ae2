//! The tasks that remain when a runner is done: in groups, each with the command to continue with.

use banksman_core::{Status, Task};
use banksman_runtime::inspect::Leftovers;

use crate::commands::{pausing, pipelines};
use crate::format;
use crate::printer::{BOLD, DIM, RED, YELLOW};
use crate::terminal::Style;

/// The number of tasks that a group names.
const NAMED: usize = 3;

/// One line for each group that is not empty.
pub(super) fn lines(left: &Leftovers) -> Vec<String> {
    let count = |status: Status| left.counts.by_status.get(&status).copied().unwrap_or_default();
    let mut lines = Vec::new();
    if let (number @ 1.., Some(first)) = (count(Status::Failed), left.failures.first()) {
        // A task with phases, or a phase, can only be retried through its pipeline.
        let pipeline =
            first.spec.parent.as_ref().filter(|_| first.spec.phase().is_some()).or(first.has_phases().then_some(&first.id));
        let next = match pipeline {
            Some(pipeline) => format!("banksman pipelines show {pipeline}"),
            None => format!("banksman tasks retry {}", first.id),
        };
        lines.push(group(RED, "failed", number, &titles(&left.failures), &format!("banksman why {}; {next}", first.id)));
    }
    if left.decisions > 0 {
        lines.push(group(RED, "needs you", left.decisions as u64, &[], "banksman decisions review"));
    }
    let held: Vec<&Task> =
        left.pipelines.iter().filter(|hosted| pipelines::is_held_up(&hosted.pipeline)).map(|hosted| &hosted.task).collect();
    let example = left.held.as_ref().or(held.first().map(|task| &task.id));
    if let (number @ 1.., Some(example)) = (count(Status::Blocked), example) {
        let named: Vec<&str> = held.iter().map(|task| task.spec.title.as_str()).collect();
        lines.push(group(YELLOW, "blocked", number, &named, &format!("banksman why {example}")));
    }
    if left.counts.by_hand > 0 {
        lines.push(group(YELLOW, "manual", left.counts.by_hand, &[], "banksman tasks list --status pending"));
    }
    if count(Status::Review) > 0 {
        lines.push(group(YELLOW, "review", count(Status::Review), &[], "banksman tasks list --status review"));
    }
    if let Some(first) = left.stopped.first() {
        let (number, resume) = (left.stopped.len() as u64, format!("banksman resume {}", first.id));
        lines.push(group(YELLOW, "stopped", number, &titles(&left.stopped), &resume));
    }
    if let Some(pause) = &left.pause {
        let why = pausing::because(pause);
        lines.push(format!("{YELLOW}paused{YELLOW:#}     {why}  {DIM}banksman resume{DIM:#}"));
    }
    lines
}

fn titles(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.spec.title.as_str()).collect()
}

/// `failed     2: Build, Login  banksman why t-7`.
fn group(style: Style, word: &str, number: u64, titles: &[&str], command: &str) -> String {
    let named = titles.iter().take(NAMED).map(|title| format::one_line(title)).collect::<Vec<_>>().join(", ");
    let more = number.saturating_sub(titles.len().min(NAMED) as u64);
    let named = match (titles.is_empty(), more) {
        (true, _) => format!("{number} {}", if number == 1 { "task" } else { "tasks" }),
        (false, 0) => format!("{BOLD}{named}{BOLD:#}"),
        (false, more) => format!("{BOLD}{named}{BOLD:#} and {more} more"),
    };
    format!("{style}{word:<9}{style:#}  {named}  {DIM}{command}{DIM:#}")
}
