//! Pauses the project, stops sessions, and resumes them.

mod resume;
mod stop;

use banksman_core::{Pause as Pausing, PauseVerb};
use banksman_engine::{PauseOutcome, PauseRequest};
use banksman_store::Key;
use clap::Args;

pub(crate) use resume::{Resume, lift};
pub(crate) use stop::{Stop, stop_all};

use super::ExitResult;
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::{DIM, YELLOW};
use crate::views::pausing::PausedView;

/// Pause the project: running sessions continue, but nothing new is started until it is resumed.
///
/// The pause applies to the runners of all machines, until banksman resume. A runner that is started meanwhile waits.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman pause\n  banksman resume")]
pub(crate) struct Pause {}

impl Pause {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let PauseOutcome::Paused { pause, before } = client.request(PauseRequest::Pause { by: user() })? else {
            return Err(Failure::unexpected(&"another answer than paused"));
        };
        let sessions = client.load(&[Key::Live].into())?.backlog.runs.values().filter(|run| run.is_live()).count();
        let is_same = before.as_ref() == Some(&pause);
        let outcome = if is_same { "already_paused" } else { "paused" };
        let said = if is_same { format!("is paused already: {}", because(&pause)) } else { "is paused".into() };
        let human = format!(
            "the project {YELLOW}{said}{YELLOW:#}; {}{DIM}nothing is started until: banksman resume{DIM:#}",
            sessions_note(sessions)
        );
        context.printer.result(&PausedView { paused: Some((&pause).into()), outcome, sessions }, human)
    }
}

/// `3 sessions continue (to end them: banksman stop); `; empty if there are none.
fn sessions_note(sessions: usize) -> String {
    match sessions {
        0 => String::new(),
        1 => "1 session continues (to end it: banksman stop); ".into(),
        several => format!("{several} sessions continue (to end them: banksman stop); "),
    }
}

/// The user of this process.
pub(crate) fn user() -> Box<str> {
    banksman_adapters::user::User::current().name
}

/// The command that paused the project.
pub(crate) fn verb(verb: PauseVerb) -> &'static str {
    match verb {
        PauseVerb::Pause => "banksman pause",
        PauseVerb::Stop => "banksman stop",
        PauseVerb::Interrupt => "Ctrl-C",
    }
}

/// `ann stopped it 5m ago (banksman stop)`.
pub(crate) fn because(pause: &Pausing) -> String {
    let did = match pause.verb {
        PauseVerb::Pause => "paused",
        PauseVerb::Stop | PauseVerb::Interrupt => "stopped",
    };
    format!("{} {did} it {} ({})", pause.by, format::ago(pause.at), verb(pause.verb))
}
