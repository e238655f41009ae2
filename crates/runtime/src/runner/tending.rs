//! What a runner does about the sessions of its runs: it starts them, hears of them, and puts them away.

use std::time::Duration;

use banksman_adapters::host;
use banksman_adapters::keeper::{self, Limit, Notice, Record, Refusal, Session};
use banksman_adapters::shortage::Shortage;
use banksman_core::backlog::{self, Ended};
use banksman_core::task::Ending;
use banksman_core::{Lease, RunId, Seq, Wall};
use banksman_engine::{RunnerInput, Work};
use banksman_store::Key;

use super::{Runner, Told};
use crate::sessions;

impl Runner<'_> {
    pub(super) fn spawn(&mut self, work: &Work, tell: &mut dyn FnMut(Told)) {
        if work.run.attempt > work.task.spec.first_attempt
            && let Err(error) = self.tell_last_result(work)
        {
            tell(Told::RunTrouble(work.run.id.clone(), format!("cannot find out how the last run ended: {error}")));
        }
        let started = self.files.prepare(work).and_then(|()| self.keepers.start(&self.files.spec(work, self.limit)));
        match started {
            Ok(session) => drop(self.sessions.insert(work.run.id.clone(), session)),
            Err(error) => {
                let ending = not_started("its keeper cannot be started", &error.to_string(), Shortage::of(&error));
                self.ended(&work.run.id, now_ended(ending, None));
            }
        }
    }

    /// Writes down for a run how the one before it ended.
    fn tell_last_result(&self, work: &Work) -> Result<(), String> {
        let rows = self.client.load(&[Key::RunsOf(work.task.id.clone())].into()).map_err(|error| error.to_string())?;
        let last =
            rows.backlog.runs.values().filter(|run| run.attempt < work.run.attempt).max_by_key(|run| (run.attempt, run.epoch));
        last.map_or(Ok(()), |last| self.files.tell_last_result(last)).map_err(|error| error.to_string())
    }

    /// The session of a run has ended.
    pub(super) fn ended(&mut self, run: &RunId, ended: Ended) {
        self.silent.remove(run);
        self.unbegun.remove(run);
        if let Ending::NotBegun { is_shortage: true, .. } = ended.ending {
            return self.dispatcher.on(RunnerInput::Shortage(run.clone(), ended), self.now());
        }
        let ended = self.files.with_tail(self.dispatcher.work(run), ended);
        self.dispatcher.on(RunnerInput::Ended(run.clone(), ended), self.now());
    }

    /// The keeper was killed. What is left of the tree is ended before the run counts as lost.
    pub(super) fn sweep(&mut self, run: &RunId, record: Record, grace: Duration) {
        if let Some(request) = self.dispatcher.session_dead(run) {
            // It only tells people why there is a pause; the end of the run is what counts.
            self.client.call(request).ok();
        }
        self.background.sweep(run.clone(), record, grace);
    }

    /// The end of a run is durable: its keeper, or its record, is not needed any more.
    pub(super) fn acknowledge(&mut self, run: &RunId, tell: &mut dyn FnMut(Told)) {
        match self.sessions.remove(run) {
            Some(session) => self.keepers.acknowledge(session),
            None => {
                if let Err(error) = keeper::forget(&self.files.record(run)) {
                    tell(Told::RunTrouble(run.clone(), format!("its record cannot be removed: {error}")));
                }
            }
        }
    }

    /// Takes in what a session tells.
    pub(super) fn listen(&mut self, run: &RunId) {
        let Some(session) = self.sessions.get_mut(run) else { return };
        for notice in session.notices() {
            match notice {
                Notice::Started { keeper_pid, child_pid } => {
                    let now = Lease(host::monotonic_ms() + self.offset);
                    self.dispatcher
                        .on(RunnerInput::Started(run.clone(), backlog::Session { keeper: keeper_pid, child: child_pid }), now);
                }
                Notice::Ended(ending) => self.ended(run, sessions::ended(ending)),
                Notice::Refused(Refusal::NoRecord { error, shortage }) => {
                    let ending = not_started("its record cannot be made", &error, shortage);
                    self.ended(run, now_ended(ending, None));
                }
                Notice::Refused(Refusal::CannotBegin { error, shortage }) => {
                    let ending = not_begun(format!("its keeper cannot begin: {error}"), shortage);
                    self.ended(run, now_ended(ending, None));
                }
                Notice::Ready => {}
                // Others own it; the rows will tell.
                Notice::Refused(Refusal::LowerEpoch { .. }) => self.dispatcher.on(RunnerInput::Woken, self.now()),
                Notice::Nudged { effect_id } => self.dispatcher.on(RunnerInput::CommandDone(Seq(effect_id), Ok(())), self.now()),
                Notice::Refused(Refusal::RecordExists | Refusal::Version { .. }) => {}
                Notice::Gone => {
                    // If it has left no record, this is why.
                    if let Some(session) = self.sessions.remove(run).filter(Session::is_own) {
                        let how = session.exit().map_or("ended".into(), |exit| exit.to_string());
                        self.unbegun.insert(run.clone(), format!("its keeper ended before it began ({how})"));
                    }
                    self.dispatcher.on(RunnerInput::KeeperGone(run.clone()), self.now());
                    return;
                }
            }
        }
    }

    /// Tells the keepers of its runs that the call that was sent then has renewed the lease, if it has.
    pub(super) fn renew_sessions(&mut self, sent_ms: i64) {
        let (Some(ttl), Some(runs)) = (self.ttl, self.dispatcher.renewed()) else { return };
        let limit = Limit::after(sent_ms, ttl, self.client.config().kill_grace);
        self.limit = Some(limit);
        for (_, session) in self.sessions.iter_mut().filter(|(run, _)| runs.contains(*run)) {
            session.renew(limit);
        }
    }
}

/// The keeper of a run said that it has no session to keep: for a shortage, or because something is wrong.
fn not_started(what: &str, error: &str, shortage: Option<Shortage>) -> Ending {
    match shortage {
        Some(_) => not_begun(format!("{what}: {error}"), shortage),
        None => Ending::NotStarted { error: format!("{what}: {error}").into() },
    }
}

/// A shortage is told in its own words, which say more than those of the system.
fn not_begun(error: String, shortage: Option<Shortage>) -> Ending {
    let text = shortage.map_or(error, |shortage| shortage.to_string());
    Ending::NotBegun { error: text.into(), is_shortage: shortage.is_some() }
}

pub(crate) fn now_ended(ending: Ending, note: Option<&str>) -> Ended {
    Ended::new(ending, Wall(host::wall_ms()), note.map(Into::into))
}
