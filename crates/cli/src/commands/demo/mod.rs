//! A lively half minute: real processes, a real kill -9, a real deadlock.

mod scenes;
mod stage;
mod timeline;

use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::Done;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::{BOLD, DIM};
use stage::Stage;

/// See it at work: contention, a kill -9, a zombie, a deadlock.
///
/// Makes a temporary project, runs real processes in it and removes it again. Needs no agent and no network.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman demo")]
pub(crate) struct Demo {}

impl Demo {
    pub(crate) fn run(self, context: &Context) -> Done {
        let start = Instant::now();
        let stage = Stage::set(context)?;
        let crowd = scenes::crowd(&stage)?;
        let heir = scenes::heir(&stage)?;
        let zombie = scenes::zombie(&stage)?;
        let deadlock = scenes::deadlock(&stage)?;
        let (events, healthy) = stage.check()?;
        let verdict = if healthy { "the event log folds to the tables" } else { "THE EVENT LOG DOES NOT FOLD TO THE TABLES" };
        let human = format!(
            "{BOLD}That was banksman.{BOLD:#} {events} events in {:.1} s, and {verdict}.\n\
             {DIM}Your turn: banksman init, then banksman locks run NAME -- COMMAND{DIM:#}",
            start.elapsed().as_secs_f64()
        );
        let data =
            json!({ "crowd": crowd, "heir": heir, "zombie": zombie, "deadlock": deadlock, "events": events, "healthy": healthy });
        context.printer.result(data, human);
        Ok(if healthy { exit::OK } else { exit::UNHEALTHY })
    }
}
