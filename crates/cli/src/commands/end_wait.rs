//! Waits of a command for the end of sessions, and the failure when they do not end in time.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use banksman_core::RunId;
use banksman_core::backlog::Run;
use banksman_engine::why::Life;
use banksman_runtime::{Client, RunnerReport, inspect, recover_run};
use banksman_store::{EventFilter, Key, Reader};

use super::find;
use super::resources::Dur;
use super::why::attention;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::RED;
use crate::signals::Signals;

/// The time on top of the grace period of a session.
const MARGIN: Duration = Duration::from_secs(60);

/// A wait with a deadline.
pub(crate) struct EndWait {
    timeout: Duration,
    until: Instant,
}

impl EndWait {
    pub(crate) fn new(client: &Client, timeout: Option<Dur>) -> EndWait {
        let timeout = timeout.map_or(client.config().kill_grace + MARGIN, |timeout| timeout.0);
        // Caps timeouts beyond the range of `Instant` at a year.
        let year = Duration::from_secs(365 * 86_400);
        EndWait { timeout, until: Instant::now() + timeout.min(year) }
    }

    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits until none of these runs is live. Runs whose runner is gone are recovered from this process, all at the
    /// same time, until the consequences of their end are done, too.
    pub(crate) fn end_all(&self, context: &Context, client: &Client, signals: &Signals, runs: &[RunId]) -> Result<(), Failure> {
        if runs.is_empty() {
            return Ok(());
        }
        let pair = || UnixStream::pair().map_err(|error| Failure::system("create a pipe", error));
        let ((over, cancel), (finished, done)) = (pair()?, pair()?);
        let (given_up, cancel_own) = pair()?;
        let failed = Mutex::new(None);
        let mut reader = client.reader()?;
        let (_, live) = inspect::sessions(&mut reader, client.project())?;
        let is_attended = |run: &RunId| live.iter().any(|live| live.run.id == *run && live.attended.life == Life::Alive);
        let mut follower = client.project().follow(reader.view().last_event()?)?;
        std::thread::scope(|scope| {
            for run in runs {
                let cancel = if is_attended(run) { cancel.as_fd() } else { cancel_own.as_fd() };
                let (failed, mut done) = (&failed, &done);
                scope.spawn(move || {
                    let mut on_report = |report: RunnerReport| {
                        if let RunnerReport::RunTrouble(run, what) = report {
                            context.printer.note(&format!("{RED}run {run}{RED:#}: {what}"));
                        }
                    };
                    let (files, left) = (context.sessions(client.project()), self.left());
                    if let Err(error) = recover_run(client, files, run.clone(), cancel, left, &mut on_report) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                    // If this fails, the wait sees the end of the run in the log.
                    done.write_all(b".").ok();
                });
            }
            // A run ends when its runner records it in the log; waiting processes get no other notification.
            let mut left = runs.len();
            let waited = loop {
                match living(&mut reader, runs) {
                    Ok(0) => break Ok(true),
                    Err(failure) => break Err(failure),
                    Ok(_) => {}
                }
                if left == 0 || !follower.wait_for(signals.as_fd(), &[finished.as_fd()], self.left()) {
                    break Ok(false);
                }
                if let Err(error) = follower.next(&EventFilter::default()) {
                    break Err(error.into());
                }
                left -= read_all(&finished).min(left);
            };
            drop(over);
            // After a successful wait, the recoveries still notify the user, and return by themselves.
            if !matches!(waited, Ok(true)) {
                (&given_up).write_all(b".").ok();
            }
            waited.map(drop)
        })?;
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error.into());
        }
        for run in runs {
            let run = find::run(&mut reader, run.as_str())?;
            if run.is_live() {
                return Err(self.failure(client, &mut reader, &run)?);
            }
        }
        Ok(())
    }

    /// The reason why a run still lives.
    fn failure(&self, client: &Client, reader: &mut Reader, run: &Run) -> Result<Failure, Failure> {
        let failure = not_ended(client, reader, run)?;
        let is_late = failure.exit == exit::INTERRUPTED && self.left().is_zero();
        if is_late { self.late(client, reader, run) } else { Ok(failure) }
    }

    /// The failure for a run that has not ended before the deadline.
    fn late(&self, client: &Client, reader: &mut Reader, run: &Run) -> Result<Failure, Failure> {
        let (_, live) = inspect::sessions(reader, client.project())?;
        let attended = live.into_iter().find(|live| live.run.id == run.id).map(|live| live.attended);
        let waited = format::span(Dur(self.timeout).span());
        let runner = match attended.as_ref() {
            Some(attended) if attended.life == Life::Alive => {
                format!("; its runner {} is alive, but has not ended it", attended.owner)
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
                "the run is still stopping, and keeps its locks and its slot until it has ended; see: banksman why {}",
                run.task
            )))
    }
}

/// The number of these runs that are live.
fn living(reader: &mut Reader, runs: &[RunId]) -> Result<usize, Failure> {
    let rows = reader.view().load(&runs.iter().cloned().map(Key::Run).collect())?.tables.backlog.runs;
    Ok(rows.values().filter(|run| run.is_live()).count())
}

/// Reads the available bytes and returns their number.
fn read_all(mut from: &UnixStream) -> usize {
    let mut buffer = [0; 64];
    from.set_nonblocking(true).ok();
    std::iter::from_fn(|| from.read(&mut buffer).ok().filter(|read| *read > 0)).sum()
}

/// The reason why a run still lives, apart from the timeout.
fn not_ended(client: &Client, reader: &mut Reader, run: &Run) -> Result<Failure, Failure> {
    let (_, live) = inspect::sessions(reader, client.project())?;
    let asked = live.into_iter().find(|live| live.run.id == run.id).and_then(|live| live.attended.asked);
    Ok(match asked {
        Some(decision) => Failure::unproven(run, &decision),
        None if client.host().one_kernel || *run.host == *client.host().id => Failure::interrupted(),
        None => Failure::elsewhere(run),
    })
}
