//! The runner, and the sessions that it has started.

use super::*;

/// A session, with its keeper.
pub(super) struct Session {
    pub(super) work: Work,
    pub(super) input: SessionInput,
    /// Whether the runner has reported its start.
    pub(super) is_reported: bool,
    pub(super) seen: Vec<MessageId>,
    /// The messages that it has acknowledged, by reading its mailbox again.
    pub(super) acknowledged: Vec<MessageId>,
    /// Whether it has reported its result, or ended well.
    pub(super) has_result: bool,
    /// The messages that its keeper has for the next turns of its agent, and those that it has written.
    pub(super) held: Vec<MessageId>,
    pub(super) written: Vec<MessageId>,
    /// How it ended, if it has.
    pub(super) ended: Option<(RunEnd, bool)>,
}

impl World<'_> {
    /// One step of the runner: it claims, reports a start, or reports an end.
    pub(super) fn tend(&mut self) -> Result<(), String> {
        let unreported = self.sessions.values().find(|session| !session.is_reported && session.ended.is_none());
        let ended = self.sessions.values().find(|session| session.ended.is_some());
        match (ended.map(|session| session.work.run.id.clone()), unreported.map(|session| session.work.clone())) {
            (Some(run), _) if self.ground.random.in_thousand(500) => self.finish(&run),
            (_, Some(work)) if self.ground.is_quiescing || self.ground.random.in_thousand(300) => {
                let session = Processes { keeper: 7, child: 8 };
                let prompted = matches!(work.task.spec.work, Some(What::Agent(_))).then(|| work.task.id.clone());
                let (run, owner_epoch) = (work.run.id.clone(), work.run.owner_epoch);
                self.ground.call(RunRequest::Started { run: run.clone(), owner_epoch, session, prompted })?;
                self.sessions.get_mut(&run).expect("it was just there").is_reported = true;
                Ok(())
            }
            (Some(run), None) => self.finish(&run),
            (_, _) => self.claim(),
        }
    }

    fn claim(&mut self) -> Result<(), String> {
        // A task that backs off after a failed start is ready again in time.
        let (rested, left) = (self.targets.clone(), Vec::new());
        self.ground.call(RunRequest::MakeReady { rested, left, seen: Seen::default() })?;
        self.made += 1;
        let run = RunId::new(&format!("r-{}", self.made)).expect("a valid id");
        let claim = Claim {
            runner: self.runner.id.clone(),
            room: 1,
            head: 8,
            runs: vec![run],
            sections: Vec::new(),
            checked: Vec::new(),
            seen: Seen::default(),
        };
        let Reply::Run(RunOutcome::Claimed(claimed)) = self.ground.call(RunRequest::Claim(Box::new(claim)))? else {
            return Ok(());
        };
        for work in claimed.started {
            let fetched = self.ground.store.view().fetched_by(&work.task.id, &work.run.id).map_err(|error| error.to_string())?;
            let forgets = self.mutation == Some(MailMutation::ForgetsPrompt);
            let seen = fetched.into_iter().filter(|_| !forgets).map(|delivery| delivery.id).collect();
            let has_turns = matches!(work.task.spec.work, Some(What::Agent(_)));
            let input = match self.ground.random.in_thousand(700) {
                true if has_turns => SessionInput::Turns,
                true => SessionInput::Pipe,
                false => SessionInput::Nothing,
            };
            // Some sessions never begin.
            let begins = self.ground.is_quiescing || self.ground.random.in_thousand(900);
            let not_begun = || (RunEnd::NotBegun { error: "no".into(), is_shortage: false }, false);
            let (seen, ended) = if begins { (seen, None) } else { (Vec::new(), Some(not_begun())) };
            let id = work.run.id.clone();
            let (acknowledged, held, written) = (Vec::new(), Vec::new(), Vec::new());
            self.sessions.insert(
                id,
                Session { work, input, is_reported: false, seen, acknowledged, has_result: false, held, written, ended },
            );
        }
        Ok(())
    }

    fn finish(&mut self, run: &RunId) -> Result<(), String> {
        let session = &self.sessions[run];
        let (ending, is_ok) = session.ended.clone().expect("the caller has seen it");
        let work = session.work.clone();
        let is_agent = matches!(work.task.spec.work, Some(What::Agent(_))) && matches!(ending, RunEnd::Exited(_));
        let verdict = if is_ok { AgentVerdict::Ok } else { AgentVerdict::Crashed };
        let agent = AgentEnd {
            agent: Name::new("agent").expect("a valid name"),
            verdict,
            text: "".into(),
            session: None,
            model: None,
            key_source: None,
            turns: 1,
            answers: 1,
            usage: Default::default(),
            cost_micros: None,
        };
        let claimed = if self.mutation == Some(MailMutation::ClaimsFollowUps) { session.held.clone() } else { Vec::new() };
        let reported = if self.mutation == Some(MailMutation::ForgetsWritten) { &[][..] } else { &session.written };
        let written = reported.iter().cloned().chain(claimed).collect();
        let agent = is_agent.then(|| Box::new(agent));
        let record = RunEndRecord { agent, written, ..RunEndRecord::new(ending, Wall(0), None) };
        let watch = Watch { timeout: Span::ZERO, max_recoveries: u32::MAX, on_exhausted: OnExhausted::Fail };
        let (runner, what) = (self.runner.id.clone(), Box::new(work));
        self.ground.call(RunRequest::Finish { runner, what, ending: record, marker: Marker::Absent, watch })?;
        // The messages that it has seen are kept: a session never comes back.
        let session = self.sessions.get_mut(run).expect("it was just there");
        session.ended = None;
        session.input = SessionInput::Nothing;
        session.is_reported = true;
        session.work.run.ended = Some(RunEndRecord::new(RunEnd::Lost, Wall(0), None));
        Ok(())
    }

    /// A session acts: it reads its mailbox, reports its result, or ends.
    pub(super) fn live(&mut self) -> Result<(), String> {
        let living = self.sessions.values().filter(|session| session.ended.is_none() && session.work.run.ended.is_none());
        let runs: Vec<RunId> = living.map(|session| session.work.run.id.clone()).collect();
        if runs.is_empty() {
            return Ok(());
        }
        let run = self.ground.random.pick(&runs).clone();
        let (task, epoch) = (self.sessions[&run].work.task.id.clone(), self.sessions[&run].work.run.epoch);
        let has_turns = self.sessions[&run].input == SessionInput::Turns;
        match self.ground.random.below(10) {
            // A session that works in turns gets its messages without reading.
            0..4 if has_turns => self.turn(&run),
            0..5 => {
                let request = MailboxRequest::Fetch { task, run: run.clone(), epoch, again: false };
                if let MailboxOutcome::Fetched(fetched) = self.mailbox(request)? {
                    let session = self.sessions.get_mut(&run).expect("it was just there");
                    session.acknowledged.clone_from(&session.seen);
                    session.seen.extend(fetched.into_iter().map(|delivery| delivery.id));
                }
            }
            5 => {
                let verdict = Verdict::Failed { error: "no".into() };
                self.ground.call(TaskRequest::Conclude { id: task, epoch: Some(epoch), by: None, verdict })?;
                self.sessions.get_mut(&run).expect("it lives").has_result = true;
            }
            6 if !self.ground.is_quiescing && self.ground.random.in_thousand(400) => self.end(&run, RunEnd::Signalled(9), false),
            7 if !self.ground.is_quiescing && self.ground.random.in_thousand(400) => self.end(&run, RunEnd::Exited(1), false),
            8 if self.ground.is_quiescing || self.ground.random.in_thousand(300) => {
                self.turn(&run);
                self.end(&run, RunEnd::Exited(0), true);
            }
            9 => self.turn(&run),
            // The session hangs.
            _ => {}
        }
        Ok(())
    }

    /// The agent ends a turn, and the next one begins with the messages that its keeper holds.
    fn turn(&mut self, run: &RunId) {
        let session = self.sessions.get_mut(run).expect("it lives");
        session.seen.extend(session.held.iter().cloned());
        session.written.append(&mut session.held);
    }

    fn end(&mut self, run: &RunId, ending: RunEnd, is_ok: bool) {
        let session = self.sessions.get_mut(run).expect("it lives");
        session.ended = Some((ending, is_ok));
        session.has_result |= is_ok;
    }
}
