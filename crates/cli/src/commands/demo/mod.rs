//! A release and a night in nine seconds: real tasks, real crashes, and a real kill -9 of the runner in the middle.

mod audit;
mod checks;
mod git;
mod night;
mod stage;
mod story;
#[cfg(test)]
mod tests;

use clap::Args;
use serde::Serialize;

use super::ExitResult;
use super::timeline::picture::{self, Axis};
use super::timeline::rows::Timeline;
use super::timeline::view::TimelineView;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::{BOLD, DIM};
use checks::Check;
use stage::Stage;
use story::{SLOTS, TASKS};

/// Run a demonstration: a backlog that survives crashes, a kill -9 of its runner, a hidden process, and agents that hang.
///
/// Creates a temporary project, runs a dozen real tasks in it, draws their timeline, checks the results against the store
/// and /proc, and removes the project again. Exits with 1 if a check fails. Needs no agent and no network.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman demo\n  banksman demo --git")]
pub(crate) struct Demo {
    /// Demonstrate worktrees and the merge queue: eight tasks change one repository at the same time
    #[arg(long)]
    git: bool,
}

/// The width of the timeline.
const WIDTH: usize = 80;

#[derive(Serialize)]
struct Shown<'a> {
    holds: bool,
    checks: &'a [Check],
    timeline: TimelineView<'a>,
}

impl Demo {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        if self.git {
            return land(context);
        }
        let mut stage = Stage::set(context, false)?;
        stage.say(&format!("{BOLD}A release and a night: {} tasks, {SLOTS} slots{BOLD:#}", TASKS.len() + night::TASKS.len()));
        stage.say(&format!("{DIM}Every task is a real process, and every kill is a real kill -9.{DIM:#}\n"));
        let observed = story::run(&mut stage)?;
        let timeline = Timeline::of(stage.seen(), &stage.ends()?, &observed.spans);
        let checks = checks::all(&stage, &observed)?;
        drop(stage);
        show(context, &timeline, &checks, "Next: banksman init, then banksman tasks add TITLE --run COMMAND")
    }
}

/// The demo of worktrees and landing.
fn land(context: &Context) -> ExitResult {
    let mut stage = Stage::set(context, true)?;
    let number = git::TASKS.len();
    stage.say(&format!("{BOLD}{number} tasks in {number} worktrees, one branch{BOLD:#}"));
    stage.say(&format!("{DIM}Every commit is made by a real git, and every kill is a real kill -9.{DIM:#}\n"));
    let observed = git::run(&mut stage)?;
    let timeline = Timeline::of(stage.seen(), &stage.ends()?, &observed.spans);
    let checks = git::checks(&stage, &observed)?;
    drop(stage);
    let next = "Next: banksman config set --user landing.check COMMAND, then banksman tasks add TITLE --worktree --run COMMAND";
    show(context, &timeline, &checks, next)
}

/// Prints the timeline and the checks.
fn show(context: &Context, timeline: &Timeline, checks: &[Check], next: &str) -> ExitResult {
    let holds = checks.iter().all(|check| check.holds);
    let lines: Vec<String> = checks.iter().map(Check::line).collect();
    let last = if holds { next } else { "A check has failed: this is a bug in banksman." };
    let human = format!("\n{}\n\n{}\n\n{DIM}{last}{DIM:#}", picture::draw(timeline, Axis::Elapsed, WIDTH), lines.join("\n"));
    context.printer.print(&Shown { holds, checks, timeline: timeline.view() }, human);
    Ok(if holds { exit::OK } else { exit::ERROR })
}
