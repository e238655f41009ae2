//! The life of a keeper.
//!
//! ```text
//! Running --exit--> Draining --no more output, or 1 s--> [no child left?] --> Ended --acknowledged, or 2 s--> Over
//!    |                                                         | no            ^
//!    +--kill, or its limit--------------------------------> Stopping --ECHILD--+
//! ```

mod nudging;
mod output;
mod talking;

use std::collections::VecDeque;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{WaitStatus, getpid};
use rustix::time::Timespec;

use banksman_agents::StopReason;

use super::activity::Sampler;
use super::agent::AgentWatch;
use super::child::{self, NotStarted, Started};
use super::control::{Ask, Control};
use super::input::{Input, Recent};
use super::log::Log;
use super::protocol::{Activity, Notice, SessionEnd, Spec, Status};
use super::record::Own;
use super::server::Signals;
use super::talk::TalkReply;
use super::timer::Timer;
use crate::{host, tree};

/// How long output is read after the program's exit, while another process keeps it open.
const DRAIN: Duration = Duration::from_secs(1);

/// How long the owner may take to acknowledge before the record is flushed.
const ACKNOWLEDGE: Duration = Duration::from_millis(100);

/// How long the keeper waits for the acknowledgement after that. A busy owner will need a keeper again, and a new one
/// costs more than this wait.
const STAY: Duration = Duration::from_secs(2);

/// The smallest limit of a log.
const LOG_LIMIT: u64 = 4 * 1024;

/// The longest error, in characters.
const ERROR_LIMIT: usize = 1_000;

enum Stage {
    Running,
    Draining { until: Instant },
    Stopping(tree::TreeShutdown),
    Ended { ending: SessionEnd, until: Instant, recorded: bool, flushed: bool },
    Over,
}

pub(super) struct Keeper {
    spec: Spec,
    record: Own,
    control: Control,
    signals: Signals,
    timer: Option<Timer>,
    started_at_ms: i64,
    log: Log,
    output: Option<OwnedFd>,
    errors: Option<OwnedFd>,
    agent: Option<AgentWatch>,
    /// Whether the owner was notified of the first answer of the agent.
    is_answer_notified: bool,
    input: Option<Input>,
    /// The messages for the next turns of the agent: clients, ids and texts.
    follow_ups: VecDeque<(u64, String, String)>,
    /// Whether the agent has asked a question, and waits for a message at the end of its turn.
    expects: bool,
    /// Whether the agent has ended that turn, and waits.
    is_waiting: bool,
    /// The messages that could not be written at once, and are written now.
    written_late: VecDeque<String>,
    recent: Recent,
    output_at_ms: Option<i64>,
    heard: Instant,
    sampler: Sampler,
    buffer: Vec<u8>,
    child: Result<i32, NotStarted>,
    /// The start of the program and, once it has exited, its run time.
    began: Instant,
    ran: Option<Duration>,
    exit: Option<WaitStatus>,
    childless: bool,
    stopped: bool,
    lapsed: bool,
    stragglers: usize,
    nudged: Vec<i64>,
    nudges: u32,
    acknowledged: bool,
    stage: Stage,
}

impl Keeper {
    /// Starts the program, unless its lease has expired already.
    pub(super) fn start(
        spec: Spec,
        record: Own,
        control: Control,
        signals: Signals,
        mut timer: Option<Timer>,
        started_at_ms: i64,
    ) -> Keeper {
        let lapsed = timer.as_mut().is_some_and(|timer| timer.due().is_some());
        let spawned = if lapsed { Err(String::from("its lease was over before it began").into()) } else { child::spawn(&spec) };
        let (child, output, errors, input) = match spawned {
            Ok(Started { pid, output, errors, input }) => (Ok(pid), Some(output), errors, input),
            // The error may contain a very long program name.
            Err(fault) => (Err(NotStarted { error: fault.error.chars().take(ERROR_LIMIT).collect(), ..fault }), None, None, None),
        };
        let mut log = Log::new(spec.log.clone(), spec.log_limit.max(LOG_LIMIT));
        if let Some(banner) = &spec.banner {
            log.take(format!("banksman: {banner}\n").as_bytes());
        }
        let (childless, stage) = (child.is_err(), Stage::Running);
        let agent = spec.agent.map(AgentWatch::new);
        Keeper {
            spec,
            record,
            control,
            signals,
            timer,
            started_at_ms,
            log,
            output,
            errors,
            agent,
            is_answer_notified: false,
            input,
            follow_ups: VecDeque::new(),
            expects: false,
            is_waiting: false,
            written_late: VecDeque::new(),
            recent: Recent::default(),
            output_at_ms: None,
            heard: Instant::now(),
            sampler: Sampler::default(),
            buffer: vec![0; 64 * 1024],
            child,
            began: Instant::now(),
            ran: None,
            exit: None,
            childless,
            stopped: false,
            lapsed,
            stragglers: 0,
            nudged: Vec::new(),
            nudges: 0,
            acknowledged: false,
            stage,
        }
    }

    /// Keeps the session until it is over. Returns the owner's stream if the first owner has acknowledged the end.
    pub(super) fn keep(mut self) -> Option<(UnixStream, Signals)> {
        self.greet_owner();
        for ask in self.control.receive_first() {
            self.answer(ask);
        }
        loop {
            let deadline = self.advance();
            if matches!(self.stage, Stage::Over) {
                let owner = if self.acknowledged { self.control.into_first_owner() } else { None };
                return owner.map(|owner| (owner, self.signals));
            }
            self.wait(deadline);
        }
    }

    /// Notifies a new owner of everything that it has missed.
    fn greet_owner(&mut self) {
        if let Ok(child_pid) = self.child {
            self.control.notify_owner(&Notice::Started { keeper_pid: own_pid(), child_pid });
        }
        self.is_answer_notified = false;
        self.notify_answer();
        if let Stage::Ended { ending, until, .. } = &mut self.stage {
            *until = Instant::now() + ACKNOWLEDGE;
            let notice = Notice::Ended(ending.clone());
            self.control.notify_owner(&notice);
        }
    }

    /// Advances as far as possible without waiting. Returns the time at which time alone changes something.
    fn advance(&mut self) -> Option<Instant> {
        self.check_limit();
        self.check_agent();
        loop {
            let now = Instant::now();
            match &mut self.stage {
                Stage::Running if self.child.is_err() => self.finish(),
                Stage::Running if self.exit.is_none() => {
                    let agent = self.agent.as_ref().and_then(AgentWatch::deadline).map(|(at, _)| at);
                    return self.control.bind_when_due().into_iter().chain(agent).min();
                }
                Stage::Running => {
                    self.stage = Stage::Draining { until: now + DRAIN };
                    self.read_output();
                }
                Stage::Draining { until } if (self.output.is_some() || self.errors.is_some()) && now < *until => {
                    let until = *until;
                    return self.control.bind_when_due().into_iter().chain([until]).min();
                }
                Stage::Draining { .. } if self.childless => self.finish(),
                Stage::Draining { .. } => {
                    self.stragglers = tree::living();
                    self.stage = Stage::Stopping(tree::TreeShutdown::begin(Duration::from_millis(self.spec.grace_ms)));
                }
                Stage::Stopping(_) if self.childless => self.finish(),
                Stage::Stopping(end) => {
                    let step = now + end.step();
                    return self.control.bind_when_due().into_iter().chain([step]).min();
                }
                Stage::Ended { until, .. } if self.control.owned() && now < *until => return Some(*until),
                Stage::Ended { flushed: false, .. } => self.flush(),
                Stage::Ended { .. } => {
                    self.control.close();
                    self.stage = Stage::Over;
                }
                Stage::Over => return None,
            }
        }
    }

    /// Ends the session if its owner has not renewed it in time. A later renewal does not help: other machines rely on the end.
    fn check_limit(&mut self) {
        if let Some(left) = self.timer.as_mut().and_then(Timer::due) {
            self.reap();
            self.lapsed |= self.exit.is_none() && matches!(self.stage, Stage::Running);
            self.stop(left);
        }
    }

    /// Ends an agent program that has no time left. An agent that has given its result gets the message for its next
    /// turn, or the end of its input.
    fn check_agent(&mut self) {
        while let Some(agent) = self.agent.as_mut().filter(|agent| agent.has_result() || self.is_waiting)
            && let Some(input) = self.input.as_mut().filter(|input| input.is_open())
        {
            match self.follow_ups.pop_front() {
                // If the message is refused, the session has not got it, and no client is told that it has.
                Some((client, id, text)) => {
                    if input.take(client, &id, &text).is_ok_and(|is_new| is_new) {
                        agent.begin_turn();
                        (self.expects, self.is_waiting) = (false, false);
                    }
                }
                None if self.expects => {
                    // The turn is over, the run is not.
                    if !self.is_waiting {
                        agent.begin_turn();
                    }
                    self.is_waiting = true;
                    return;
                }
                None => input.close(),
            }
            self.write_late();
        }
        let due = self.agent.as_ref().and_then(AgentWatch::deadline).filter(|(at, _)| *at <= Instant::now());
        if let Some((_, reason)) = due.filter(|_| self.exit.is_none() && matches!(self.stage, Stage::Running)) {
            self.agent.iter_mut().for_each(|agent| agent.close(reason));
            self.stop(Duration::from_millis(self.spec.grace_ms));
        }
    }

    /// Records and reports the end of the session: none of its processes is left.
    fn finish(&mut self) {
        self.read_output();
        (self.output, self.errors) = (None, None);
        let agent = self.agent.take().map(|mut agent| {
            agent.flush(|bytes| self.log.take(bytes));
            Box::new(agent.finish())
        });
        if let Some(mut input) = self.input.take() {
            let mut progress = input.end();
            progress.lost.extend(self.follow_ups.drain(..).map(|(client, id, _)| (client, id)));
            self.reply_to_senders(progress);
        }
        self.control.notify_watchers(&TalkReply::Ended);
        for dir in &self.spec.spare_dirs {
            // A directory that is not empty stays. The next run of the task, which needs it again, begins after the end
            // is recorded.
            fs::remove_dir(dir).ok();
        }
        let ending = SessionEnd {
            code: self.exit.and_then(WaitStatus::exit_status),
            signal: self.exit.and_then(WaitStatus::terminating_signal),
            error: self.child.as_ref().err().map(|failure| failure.error.clone()),
            shortage: self.child.as_ref().err().and_then(|failure| failure.shortage),
            ran_ms: self.ran.map(|ran| u64::try_from(ran.as_millis()).unwrap_or(u64::MAX)),
            stopped: self.stopped,
            lapsed: self.lapsed,
            log: self.log.report().clone(),
            ended_at_ms: host::wall_ms(),
            stragglers: u32::try_from(self.stragglers).unwrap_or(u32::MAX),
            written: self.written_late.drain(..).collect(),
            agent,
        };
        // If the end cannot be written, the owner is notified all the same, and `flush` tries once more.
        let recorded = self.record.end(&ending).is_ok();
        let notice = Notice::Ended(ending.clone());
        self.control.notify_owner(&notice);
        self.stage = Stage::Ended { ending, until: Instant::now() + ACKNOWLEDGE, recorded, flushed: false };
    }

    /// Makes the ending survive a power cut, because the owner has not acknowledged it in time. Then polls once more:
    /// an acknowledgement or an adoption that has arrived meanwhile must not be missed.
    fn flush(&mut self) {
        if let Stage::Ended { ending, until, recorded, flushed } = &mut self.stage {
            // There is no one to report a failure to; without an ending the run counts as lost.
            if !*recorded {
                self.record.end(ending).ok();
            }
            self.record.sync().ok();
            (*flushed, *until) = (true, Instant::now() + STAY);
        }
        self.wait(Some(Instant::now()));
    }

    fn wait(&mut self, deadline: Option<Instant>) {
        let mut fds = Vec::with_capacity(8);
        fds.push(PollFd::new(&self.signals, PollFlags::IN));
        fds.extend(self.output.iter().chain(&self.errors).map(|output| PollFd::new(output, PollFlags::IN)));
        let input = self.input.as_ref().and_then(Input::descriptor);
        let has_input = input.is_some();
        fds.extend(input.map(|input| PollFd::new(input, PollFlags::OUT)));
        fds.extend(self.control.descriptors().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        // It only ends the poll; `advance` checks the limit.
        fds.extend(self.timer.iter().map(|timer| PollFd::new(timer, PollFlags::IN)));
        let timeout = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(n) if n > 0 => {}
            // A signal that has interrupted the poll is in the pipe of signals.
            _ => return,
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let outputs = usize::from(self.output.is_some()) + usize::from(self.errors.is_some());
        let (own, clients) = ready.split_at(1 + outputs + usize::from(has_input));
        if own[0] {
            let term = self.signals.take();
            self.reap();
            if term {
                self.stop(Duration::from_millis(self.spec.grace_ms));
            }
        }
        if own[1..=outputs].contains(&true) {
            self.read_output();
            self.notify_answer();
        }
        if has_input && own.last() == Some(&true) {
            self.write_late();
        }
        for ask in self.control.receive(clients) {
            self.answer(ask);
        }
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Adopted => self.greet_owner(),
            Ask::Status { client } => {
                let status = self.status();
                self.control.answer(client, &status);
            }
            Ask::Sample { client } => {
                let activity = match &self.agent {
                    // The processes of an agent may be busy although it only waits, so only its output counts.
                    Some(agent) if agent.is_calling() || self.is_waiting => Activity::Busy,
                    Some(_) => Activity::Idle,
                    None => self.sampler.sample(self.heard, self.spec.own_workspace.as_deref()),
                };
                let status = Status { activity: Some(activity), ..self.status() };
                self.control.answer(client, &status);
            }
            Ask::Talk { client, request } => self.talk(client, request),
            Ask::Kill { grace } => self.stop(grace),
            Ask::Renew { limit } => self.timer.iter_mut().for_each(|timer| timer.renew(limit)),
            Ask::Nudge { effect_id } => {
                self.nudge(effect_id);
                self.control.notify_owner(&Notice::Nudged { effect_id });
            }
            Ask::Acknowledge => {
                if matches!(self.stage, Stage::Ended { .. }) {
                    // A record that cannot be removed reports the session as ended, which is correct.
                    self.record.remove().ok();
                    self.control.close();
                    self.acknowledged = true;
                    self.stage = Stage::Over;
                }
            }
        }
    }

    /// Begins to end the tree, or shortens the grace of a shutdown in progress.
    fn stop(&mut self, grace: Duration) {
        if self.exit.is_none() {
            self.agent.iter_mut().for_each(|agent| agent.close(StopReason::Asked));
        }
        match &mut self.stage {
            Stage::Running => self.stage = Stage::Stopping(tree::TreeShutdown::begin(grace)),
            Stage::Draining { .. } => {
                self.stragglers = tree::living();
                self.stage = Stage::Stopping(tree::TreeShutdown::begin(grace));
            }
            Stage::Stopping(end) => end.hurry(grace),
            Stage::Ended { .. } | Stage::Over => return,
        }
        self.stopped |= self.exit.is_none();
    }

    /// Reaps every dead child. When no child is left, the session is proven to have no process left.
    fn reap(&mut self) {
        let mut exit = None;
        let any_left = tree::reap(|pid, status| {
            if self.child == Ok(pid.as_raw_nonzero().get()) {
                exit = Some(status);
            }
        });
        self.childless = !any_left;
        if exit.is_some() {
            self.exit = exit;
            self.ran = Some(self.began.elapsed());
            if matches!(self.stage, Stage::Stopping(_)) {
                self.stragglers = tree::living();
            }
        }
    }

    fn status(&self) -> Status {
        Status {
            run: self.spec.run.clone(),
            keeper_pid: own_pid(),
            child_pid: self.child.as_ref().ok().copied(),
            processes: tree::descendants(own_pid()),
            log: self.log.report().clone(),
            owner_epoch: self.control.epoch(),
            owned: self.control.owned(),
            stopping: matches!(self.stage, Stage::Stopping(_)),
            limit: self.timer.as_ref().map(Timer::limit),
            nudges: self.nudges,
            started_at_ms: self.started_at_ms,
            output_at_ms: self.output_at_ms,
            quiet_ms: {
                let quiet = self.agent.as_ref().map_or_else(|| self.heard.elapsed(), AgentWatch::quiet);
                u64::try_from(quiet.as_millis()).unwrap_or(u64::MAX)
            },
            activity: None,
            agent: self.agent.as_ref().map(|agent| Box::new(agent.report())),
        }
    }
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}
