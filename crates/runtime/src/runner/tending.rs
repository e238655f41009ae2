//! How a runner handles the sessions of its runs: it starts them, reads their notices, and removes their records.

use std::time::Duration;

use banksman_adapters::host;
use banksman_adapters::keeper::{self, Limit, Notice, Record, Refusal, Session};
use banksman_adapters::shortage::Shortage;
use banksman_core::backlog::{self, RunEndRecord};
use banksman_core::task::RunEnd;
use banksman_core::{Lease, RunId, Seq, Wall};
use banksman_engine::{RunnerInput, Work};

use super::{Runner, RunnerReport};
use crate::agents::{self, AgentCall, Past};
use crate::sessions;

impl Runner<'_> {
    pub(super) fn spawn(&mut self, work: &Work, report: &mut dyn FnMut(RunnerReport)) {
        if work.run.attempt > work.task.spec.first_attempt
            && let Err(error) = self.write_last_result(work)
        {
            report(RunnerReport::RunTrouble(work.run.id.clone(), format!("cannot find out how the last run ended: {error}")));
        }
        if let Some(error) = self.files.lacks_space(work) {
            let ending = RunEnd::NotBegun { error: error.into(), is_shortage: true };
            return self.ended(&work.run.id, now_ended(ending, None));
        }
        let agent = match self.plan_agent(work) {
            Ok(agent) => agent,
            Err(error) => {
                let ending = RunEnd::NotBegun { error: error.into(), is_shortage: false };
                return self.ended(&work.run.id, now_ended(ending, None));
            }
        };
        let agent = agent.as_ref();
        let prepared = self.files.prepare(work, agent);
        let started = prepared.and_then(|()| self.keepers.start(&self.files.spec(work, agent, self.limit)));
        match started {
            Ok(session) => drop(self.sessions.insert(work.run.id.clone(), session)),
            Err(error) => {
                let ending = not_started("its keeper cannot be started", &error.to_string(), Shortage::of(&error));
                self.ended(&work.run.id, now_ended(ending, None));
            }
        }
    }

    /// How the agent of a run is started, if it has one.
    fn plan_agent(&self, work: &Work) -> Result<Option<AgentCall>, String> {
        if agents::work_of(&work.task).is_none() {
            return Ok(None);
        }
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let mut reader = self.client.reader().map_err(|error| text(&error))?;
        let past = Past::load(&mut reader, &work.task.id).map_err(|error| text(&error))?;
        // The claim has fetched these messages for this run.
        let fetched = reader.view().fetched_by(&work.task.id, &work.run.id).map_err(|error| text(&error))?;
        let letters = self.client.letters(fetched).map_err(|error| text(&error))?;
        agents::plan(self.client.project(), work, &past, &letters).map_err(|error| text(&error))
    }

    /// Writes the result of the previous run into a file for the next one.
    fn write_last_result(&self, work: &Work) -> Result<(), String> {
        let mut reader = self.client.reader().map_err(|error| error.to_string())?;
        let past = Past::load(&mut reader, &work.task.id).map_err(|error| error.to_string())?;
        self.files.write_last_result(&past).map_err(|error| error.to_string())
    }

    /// Handles the end of a session.
    pub(super) fn ended(&mut self, run: &RunId, ended: RunEndRecord) {
        self.silent.remove(run);
        self.unbegun.remove(run);
        if let RunEnd::NotBegun { is_shortage: true, .. } = ended.ending {
            return self.dispatcher.on(RunnerInput::Shortage(run.clone(), ended), self.now());
        }
        let ended = self.files.with_tail(self.dispatcher.work(run), ended);
        let ended = self.files.with_lost_agent(self.dispatcher.work(run), ended);
        self.dispatcher.on(RunnerInput::Ended(run.clone(), ended), self.now());
    }

    /// Ends what is left of the process tree of a killed keeper, before the run counts as lost.
    pub(super) fn sweep(&mut self, run: &RunId, record: Record, grace: Duration) {
        if let Some(request) = self.dispatcher.session_dead(run) {
            // This call only explains the pause; the end of the run is what counts.
            self.client.call(request).ok();
        }
        self.background.sweep(run.clone(), record, grace);
    }

    /// The end of a run is durable: releases its keeper, or removes its record.
    pub(super) fn acknowledge(&mut self, run: &RunId, report: &mut dyn FnMut(RunnerReport)) {
        match self.sessions.remove(run) {
            Some(session) => self.keepers.acknowledge(session),
            None => {
                if let Err(error) = keeper::forget(&self.files.record(run)) {
                    report(RunnerReport::RunTrouble(run.clone(), format!("its record cannot be removed: {error}")));
                }
            }
        }
    }

    /// Handles the notices of a session.
    pub(super) fn listen(&mut self, run: &RunId) {
        let Some(session) = self.sessions.get_mut(run) else { return };
        for notice in session.notices() {
            match notice {
                Notice::Started { keeper_pid, child_pid } => {
                    let now = Lease(host::monotonic_ms() + self.offset);
                    self.dispatcher
                        .on(RunnerInput::Started(run.clone(), backlog::Session { keeper: keeper_pid, child: child_pid }), now);
                }
                Notice::Ended(ending) => {
                    let ended = self.files.with_agent(self.dispatcher.work(run), &ending, sessions::ended(ending.clone()));
                    self.ended(run, ended);
                }
                Notice::Refused(Refusal::NoRecord { error, shortage }) => {
                    let ending = not_started("its record cannot be made", &error, shortage);
                    self.ended(run, now_ended(ending, None));
                }
                Notice::Refused(Refusal::CannotBegin { error, shortage }) => {
                    let ending = not_begun(format!("its keeper cannot begin: {error}"), shortage);
                    self.ended(run, now_ended(ending, None));
                }
                Notice::Answered => self.dispatcher.on(RunnerInput::Answered(run.clone()), self.now()),
                Notice::Ready => {}
                // Another runner owns it; the rows will show that.
                Notice::Refused(Refusal::LowerEpoch { .. }) => self.dispatcher.on(RunnerInput::Woken, self.now()),
                Notice::Nudged { effect_id } => self.dispatcher.on(RunnerInput::CommandDone(Seq(effect_id), Ok(())), self.now()),
                Notice::Refused(Refusal::RecordExists | Refusal::Version { .. }) => {}
                Notice::Gone => {
                    // If the keeper has left no record, this is why.
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

    /// Passes the new limit to the keepers of its runs, if the call sent at `sent_ms` has renewed the lease.
    pub(super) fn renew_sessions(&mut self, sent_ms: i64) {
        let (Some(ttl), Some(runs)) = (self.ttl, self.dispatcher.renewed()) else { return };
        let limit = Limit::after(sent_ms, ttl, self.client.config().kill_grace);
        self.limit = Some(limit);
        for (_, session) in self.sessions.iter_mut().filter(|(run, _)| runs.contains(*run)) {
            session.renew(limit);
        }
    }
}

/// Why a keeper has no session: a shortage, or another failure.
fn not_started(what: &str, error: &str, shortage: Option<Shortage>) -> RunEnd {
    match shortage {
        Some(_) => not_begun(format!("{what}: {error}"), shortage),
        None => RunEnd::NotStarted { error: format!("{what}: {error}").into() },
    }
}

/// A shortage has a text of its own, which says more than the error of the system.
fn not_begun(error: String, shortage: Option<Shortage>) -> RunEnd {
    let text = shortage.map_or(error, |shortage| shortage.to_string());
    RunEnd::NotBegun { error: text.into(), is_shortage: shortage.is_some() }
}

pub(crate) fn now_ended(ending: RunEnd, note: Option<&str>) -> RunEndRecord {
    RunEndRecord::new(ending, Wall(host::wall_ms()), note.map(Into::into))
}
