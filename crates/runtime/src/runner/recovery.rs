//! Sessions that a runner did not start or has lost, and keepers that do not answer. Operations that may wait for a
//! keeper run on a thread (`background.rs`); their results are handled here.

use std::time::Duration;

use banksman_adapters::keeper::{self, Record, Silence};
use banksman_core::RunId;
use banksman_core::task::RunEnd;
use banksman_engine::Work;

use super::tending::now_ended;
use super::{Runner, RunnerReport};
use crate::background::{Recovered, Recovery};
use crate::sessions;

impl Runner<'_> {
    /// Finds a session again that this process did not start or has lost.
    pub(super) fn recover(&mut self, work: &Work) {
        let run = &work.run;
        let recovery = Recovery {
            run: run.id.clone(),
            record: self.files.record(&run.id),
            owner_epoch: run.owner_epoch.0,
            is_of_this_boot: run.boot == self.client.this_process().boot,
        };
        self.background.recover(recovery);
    }

    /// Handles the state of a session that was found again.
    pub(super) fn recovered(&mut self, run: &RunId, found: Recovered) {
        // Another runner owns the run by now, or its end is recorded.
        let Some(work) = self.dispatcher.work(run) else { return };
        match found {
            Recovered::Rebooted => self.ended(run, now_ended(RunEnd::Lost, Some("the machine was restarted"))),
            Recovered::Nothing => {
                let ending = match (work.run.session.is_some(), self.unbegun.remove(run)) {
                    (true, _) => RunEnd::Lost,
                    (false, Some(error)) => RunEnd::NotBegun { error: error.into(), is_shortage: false },
                    (false, None) => RunEnd::Never,
                };
                self.ended(run, now_ended(ending, None));
            }
            Recovered::Ended(ending) => {
                let ended = self.files.with_agent(self.dispatcher.work(run), &ending, sessions::ended(ending.clone()));
                self.ended(run, ended);
            }
            Recovered::Adopted(mut session) => {
                if let Some(limit) = self.limit {
                    session.renew(limit);
                }
                // The kill may have been requested before there was a session.
                if self.dispatcher.is_being_killed(run) {
                    session.kill(self.grace(run));
                }
                self.sessions.insert(run.clone(), session);
            }
            Recovered::Dead(record) => self.sweep(run, record, self.grace(run)),
        }
    }

    /// How long a session may take to end by itself.
    fn grace(&self, run: &RunId) -> Duration {
        if self.dispatcher.is_killed_at_once(run) { Duration::ZERO } else { self.client.config().kill_grace }
    }

    /// Asks for the end of a session, and ensures it, whatever state its keeper is in.
    pub(super) fn kill(&mut self, run: &RunId, now: bool) {
        let grace = if now { Duration::ZERO } else { self.grace(run) };
        if let Some(session) = self.sessions.get_mut(run) {
            session.kill(grace);
        }
        self.background.await_end(run.clone(), self.files.record(run), grace);
    }

    /// Kills a keeper that cannot end its session. Only this thread gives keepers another session, so it is certain
    /// that this keeper has none yet.
    pub(super) fn kill_keeper(&mut self, run: &RunId, record: Record, silence: Silence, report: &mut dyn FnMut(RunnerReport)) {
        if !self.dispatcher.is_being_killed(run) {
            return;
        }
        self.report_silence(run, format!("{silence}, and is killed because its session is to end"), report);
        if let Err(error) = keeper::kill(&record) {
            report(RunnerReport::RunTrouble(run.clone(), format!("its keeper {} cannot be killed: {error}", record.keeper_pid)));
        }
        self.sessions.remove(run);
        // A busy keeper has used up the grace already.
        let grace = match silence {
            Silence::Stopped => self.grace(run),
            Silence::Busy => Duration::ZERO,
        };
        self.sweep(run, record, grace);
    }

    /// Reports once that the keeper of a run does not answer.
    pub(super) fn report_silence(&mut self, run: &RunId, why: String, report: &mut dyn FnMut(RunnerReport)) {
        if self.silent.insert(run.clone()) || why.contains("killed") {
            report(RunnerReport::RunTrouble(run.clone(), format!("its keeper does not answer: {why}")));
        }
    }
}
