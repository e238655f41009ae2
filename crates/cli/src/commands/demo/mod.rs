//! A release and a night in nine seconds: real tasks, real crashes, and a real kill -9 of the runner in the middle.

mod audit;
mod checks;
mod night;
mod picture;
mod stage;
mod story;
#[cfg(test)]
mod tests;
mod timeline;
mod timeline_view;

use clap::Args;
use serde::Serialize;

use super::Done;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::{BOLD, DIM};
use checks::Check;
use stage::Stage;
use story::{SLOTS, TASKS};
use timeline::Timeline;
use timeline_view::TimelineView;

/// See it at work: a backlog that survives crashes, a kill -9 of its runner, a process that hides, and agents that hang.
///
/// Makes a temporary project, runs a dozen real tasks in it, draws what happened when, checks it against the store and
/// /proc, and removes the project again. Exits with 1 if a check fails. Needs no agent and no network.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman demo")]
pub(crate) struct Demo {}

#[derive(Serialize)]
struct Shown<'a> {
    holds: bool,
    checks: &'a [Check],
    timeline: TimelineView<'a>,
}

impl Demo {
    pub(crate) fn run(self, context: &Context) -> Done {
        let mut stage = Stage::set(context)?;
        stage.say(&format!("{BOLD}A release and a night: {} tasks, {SLOTS} slots{BOLD:#}", TASKS.len() + night::TASKS.len()));
        stage.say(&format!("{DIM}Every task is a real process, and every kill is a real kill -9.{DIM:#}\n"));
        let plot = story::play(&mut stage)?;
        let timeline = Timeline::of(stage.seen(), &stage.ends()?, &plot.shifts);
        let checks = checks::all(&stage, &plot)?;
        drop(stage);
        let holds = checks.iter().all(|check| check.holds);
        let lines: Vec<String> = checks.iter().map(Check::line).collect();
        let last =
            if holds { "Your turn: banksman init, then banksman tasks add TITLE --run COMMAND" } else { "This must not happen." };
        let human = format!("\n{}\n\n{}\n\n{DIM}{last}{DIM:#}", picture::draw(&timeline), lines.join("\n"));
        context.printer.print(&Shown { holds, checks: &checks, timeline: timeline.view() }, human);
        Ok(if holds { exit::OK } else { exit::ERROR })
    }
}
