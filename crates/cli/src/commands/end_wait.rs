//! How long a command waits for the end of a session, and what it says when that does not come.

use std::time::{Duration, Instant};

use banksman_core::backlog::Run;
use banksman_engine::why::Life;
use banksman_runtime::{Client, inspect};
use banksman_store::Reader;

use super::resources::Dur;
use super::sessions::not_ended;
use super::why::attention;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;

/// How much longer than the grace of a session its end may take.
const MARGIN: Duration = Duration::from_secs(60);

/// A wait that has an end.
pub(crate) struct EndWait {
    patience: Duration,
    until: Instant,
}

impl EndWait {
    pub(crate) fn new(client: &Client, timeout: Option<Dur>) -> EndWait {
        let patience = timeout.map_or(client.config().kill_grace + MARGIN, |timeout| timeout.0);
        // Who wants to wait for longer than clocks can tell waits for a year.
        let year = Duration::from_secs(365 * 86_400);
        EndWait { patience, until: Instant::now() + patience.min(year) }
    }

    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Why a run that was to be ended still lives.
    pub(crate) fn failure(&self, client: &Client, reader: &mut Reader, run: &Run) -> Result<Failure, Failure> {
        let failure = not_ended(client, reader, run)?;
        let is_late = failure.exit == exit::INTERRUPTED && self.left().is_zero();
        if is_late { self.over(client, reader, run) } else { Ok(failure) }
    }

    /// What is said of a run that has not ended by then.
    fn over(&self, client: &Client, reader: &mut Reader, run: &Run) -> Result<Failure, Failure> {
        let (_, live) = inspect::sessions(reader, client.project())?;
        let attended = live.into_iter().find(|live| live.run.id == run.id).map(|live| live.attended);
        let waited = format::span(Dur(self.patience).span());
        let runner = match attended.as_ref() {
            Some(attended) if attended.life == Life::Alive => {
                format!("; its runner {} lives, and has not ended it", attended.owner)
            }
            Some(attended) => attention(attended).map(|said| format!("; {said}")).unwrap_or_default(),
            None => String::new(),
        };
        let message = format!("run {} has not ended within {waited}{runner}", run.id);
        Ok(Failure::new(exit::LOCKED, "STILL_STOPPING", message)
            .detail("run", &run.id)
            .detail("task", &run.task)
            .detail("runner", &run.owner)
            .hint(format!(
                "it is still stopping, and keeps its locks and its slot until it has ended; see: banksman why {}",
                run.task
            )))
    }
}
