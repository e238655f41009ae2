//! What a runner does about the sessions of its runs: it starts them, hears of them, takes them over, and puts them away.

use banksman_adapters::host;
use banksman_adapters::keeper::{self, Found, Limit, Notice, Record, Refusal};
use banksman_adapters::life_file;
use banksman_core::backlog::{self, Ended};
use banksman_core::task::Ending;
use banksman_core::{Lease, RunId, Seq, Wall};
use banksman_engine::Work;
use banksman_store::Key;

use super::{Runner, Told};
use crate::sessions;

impl Runner<'_> {
    pub(super) fn spawn(&mut self, work: &Work, tell: &mut dyn FnMut(Told)) {
        if work.run.attempt > 0
            && let Err(error) = self.tell_last_result(work)
        {
            tell(Told::RunTrouble(work.run.id.clone(), format!("it cannot be told how the last run ended: {error}")));
        }
        let started = self.files.write_input(work).and_then(|()| self.keepers.start(&self.files.spec(work, self.limit)));
        match started {
            Ok(session) => drop(self.sessions.insert(work.run.id.clone(), session)),
            Err(error) => {
                let ending = Ending::NotStarted { error: format!("its keeper cannot be started: {error}").into() };
                self.ended(&work.run.id, now_ended(ending, None));
            }
        }
    }

    /// Writes down for a run how the one before it ended.
    fn tell_last_result(&self, work: &Work) -> Result<(), String> {
        let rows = self.client.load(&[Key::RunsOf(work.task.id.clone())].into()).map_err(|error| error.to_string())?;
        let last = rows.backlog.runs.values().filter(|run| run.attempt < work.run.attempt).max_by_key(|run| run.attempt);
        last.map_or(Ok(()), |last| self.files.tell_last_result(last)).map_err(|error| error.to_string())
    }

    /// The session of a run has ended.
    pub(super) fn ended(&mut self, run: &RunId, ended: Ended) {
        let ended = self.files.with_tail(self.dispatcher.work(run), ended);
        self.dispatcher.ended(run, ended);
    }

    /// Finds out what became of a session that this process did not start, or has lost sight of.
    pub(super) fn recover(&mut self, work: &Work, tell: &mut dyn FnMut(Told)) {
        let run = &work.run;
        if run.boot != self.client.this_process().boot {
            // The machine has been started anew since: nothing of it lives. But it may have ended before that.
            let ended = match self.files.look(&run.id) {
                Ok(Found::Ended(_, ending)) => sessions::ended(ending),
                _ => now_ended(Ending::Lost, Some("the machine was restarted")),
            };
            return self.ended(&run.id, ended);
        }
        let found = match self.files.look(&run.id) {
            Ok(Found::Nothing) => keeper::bury(&self.files.record(&run.id)),
            other => other,
        };
        match found {
            Ok(Found::Nothing | Found::Buried) => {
                let ending = if run.session.is_some() { Ending::Lost } else { Ending::Never };
                self.ended(&run.id, now_ended(ending, None));
            }
            Ok(Found::Ended(_, ending)) => self.ended(&run.id, sessions::ended(ending)),
            Ok(Found::Live(_)) => match keeper::adopt(&self.files.record(&run.id), run.owner_epoch.0) {
                Ok(mut session) => {
                    if let Some(limit) = self.limit {
                        session.renew(limit);
                    }
                    self.sessions.insert(run.id.clone(), session);
                }
                Err(error) => {
                    tell(Told::RunTrouble(run.id.clone(), format!("its keeper does not answer: {error}")));
                    self.dispatcher.unclear(&run.id, self.now());
                }
            },
            Ok(Found::Dead(record)) => self.sweep(&run.id, record),
            Err(error) => {
                tell(Told::RunTrouble(run.id.clone(), format!("its record cannot be read: {error}")));
                self.dispatcher.unclear(&run.id, self.now());
            }
        }
    }

    /// The keeper was killed. What is left of the tree is ended before the run counts as lost.
    fn sweep(&mut self, run: &RunId, record: Record) {
        if let Some(request) = self.dispatcher.session_dead(run) {
            // It only tells people why there is a pause; the end of the run is what counts.
            self.client.call(request).ok();
        }
        self.aside.sweep(run.clone(), record, self.client.config().kill_grace);
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
                    self.dispatcher.started(run, backlog::Session { keeper: keeper_pid, child: child_pid }, now);
                }
                Notice::Ended(ending) => self.ended(run, sessions::ended(ending)),
                Notice::Refused(Refusal::NoRecord { error }) => {
                    let ending = Ending::NotStarted { error: format!("its record cannot be made: {error}").into() };
                    self.ended(run, now_ended(ending, None));
                }
                Notice::Ready => {}
                // Others own it; the rows will tell.
                Notice::Refused(Refusal::LowerEpoch { .. }) => self.dispatcher.woken(),
                Notice::Nudged { effect_id } => self.dispatcher.did(Seq(effect_id), Ok(())),
                Notice::Refused(Refusal::RecordExists | Refusal::Version { .. }) => {}
                Notice::Gone => {
                    self.sessions.remove(run);
                    self.dispatcher.gone(run);
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

    /// Clears away the records of sessions whose runs have ended without them: whoever looked after them was killed before
    /// it could, or the run was taken for lost from another machine. What cannot be done now is done by the next runner.
    pub(super) fn clear_away(&self) {
        self.remove_life_files();
        for (run, record) in self.files.left() {
            let keys = [Key::Run(run.clone())].into();
            let Ok(rows) = self.client.load(&keys) else { return };
            if rows.backlog.runs.get(&run).is_some_and(backlog::Run::is_live) {
                continue;
            }
            let (path, grace) = (self.files.record(&run), self.client.config().kill_grace);
            match record {
                None => drop(keeper::forget(&path)),
                // Its keeper was killed: something of it may live.
                Some(record) => {
                    drop(std::thread::spawn(move || keeper::sweep(&record, grace).and_then(|_| keeper::forget(&path))))
                }
            }
        }
    }

    /// Removes the life files of runners that were killed, and whose rows others have removed.
    fn remove_life_files(&self) {
        let Some(files) = &self.client.host().life_files else { return };
        let Ok(rows) = self.client.load(&[Key::Runners].into()) else { return };
        let known: Vec<_> = rows.backlog.runners.values().map(|runner| runner.process.clone()).collect();
        life_file::remove_dead(files, &known);
    }
}

pub(crate) fn now_ended(ending: Ending, note: Option<&str>) -> Ended {
    Ended::new(ending, Wall(host::wall_ms()), note.map(Into::into))
}
