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

/// How long output is read after the program's exit, while somebody keeps it open.
const DRAIN: Duration = Duration::from_secs(1);

/// How long the owner may take to acknowledge before the record is flushed.
const ACKNOWLEDGE: Duration = Duration::from_millis(100);

/// How long it is waited for after that. An owner that is busy needs its keeper again, and another one costs more than to wait.
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
    is_answer_told: bool,
    /// The way into the session, if it has one.
    input: Option<Input>,
    /// The messages for the next turns of its agent: who sent them, their ids and texts.
    follow_ups: VecDeque<(u64, String, String)>,
    /// Its agent has asked something: it waits for a message at the end of its turn.
    expects: bool,
    /// It has ended its turn, and waits.
    rests: bool,
    /// The messages that were not written at once, and are now.
    written_late: VecDeque<String>,
    recent: Recent,
    output_at_ms: Option<i64>,
    heard: Instant,
    sampler: Sampler,
    buffer: Vec<u8>,
    child: Result<i32, NotStarted>,
    /// When the program began and, once it has exited, how long it ran.
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
    /// Starts the program, unless it came too late for that.
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
            // It may name a program with a very long name.
            Err(not) => (Err(NotStarted { error: not.error.chars().take(ERROR_LIMIT).collect(), ..not }), None, None, None),
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
            is_answer_told: false,
            input,
            follow_ups: VecDeque::new(),
            expects: false,
            rests: false,
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

    /// Keeps the session until it is over. Returns the owner's stream if it was the first owner that acknowledged the end.
    pub(super) fn keep(mut self) -> Option<(UnixStream, Signals)> {
        self.introduce();
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

    /// Tells the owner what it has missed.
    fn introduce(&mut self) {
        if let Ok(child_pid) = self.child {
            self.control.notify_owner(&Notice::Started { keeper_pid: own_pid(), child_pid });
        }
        self.is_answer_told = false;
        self.tell_answer();
        if let Stage::Ended { ending, until, .. } = &mut self.stage {
            *until = Instant::now() + ACKNOWLEDGE;
            let notice = Notice::Ended(ending.clone());
            self.control.notify_owner(&notice);
        }
    }

    /// Goes on as far as possible without waiting. Returns when time alone will change something.
    fn advance(&mut self) -> Option<Instant> {
        self.heed_limit();
        self.heed_agent();
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

    /// Ends the session if nobody has renewed it in time. There is no way back: its end is counted on.
    fn heed_limit(&mut self) {
        if let Some(left) = self.timer.as_mut().and_then(Timer::due) {
            self.reap();
            self.lapsed |= self.exit.is_none() && matches!(self.stage, Stage::Running);
            self.stop(left);
        }
    }

    /// Ends an agent program that has no more time. One that has given its result is given what waited for its next turn, or finds the
    /// end of its input.
    fn heed_agent(&mut self) {
        while let Some(agent) = self.agent.as_mut().filter(|agent| agent.has_result() || self.rests)
            && let Some(input) = self.input.as_mut().filter(|input| input.is_open())
        {
            match self.follow_ups.pop_front() {
                // If it is refused, the session has not got it, and nobody is told that it has.
                Some((client, id, text)) => {
                    if input.take(client, &id, &text).is_ok_and(|is_new| is_new) {
                        agent.begin_turn();
                        (self.expects, self.rests) = (false, false);
                    }
                }
                None if self.expects => {
                    // The turn is over, and not the run.
                    if !self.rests {
                        agent.begin_turn();
                    }
                    self.rests = true;
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

    /// The session has ended: no process of it is left.
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
            self.tell_senders(progress);
        }
        self.control.tell_watchers(&TalkReply::Ended);
        for dir in &self.spec.spare_dirs {
            // One with something in it stays. The next run of the task, which needs it again, begins after the end is recorded.
            fs::remove_dir(dir).ok();
        }
        let ending = SessionEnd {
            code: self.exit.and_then(WaitStatus::exit_status),
            signal: self.exit.and_then(WaitStatus::terminating_signal),
            error: self.child.as_ref().err().map(|not| not.error.clone()),
            shortage: self.child.as_ref().err().and_then(|not| not.shortage),
            ran_ms: self.ran.map(|ran| u64::try_from(ran.as_millis()).unwrap_or(u64::MAX)),
            stopped: self.stopped,
            lapsed: self.lapsed,
            log: self.log.report().clone(),
            ended_at_ms: host::wall_ms(),
            stragglers: u32::try_from(self.stragglers).unwrap_or(u32::MAX),
            written: self.written_late.drain(..).collect(),
            agent,
        };
        // If it cannot be written, the owner is told all the same, and it is tried once more.
        let recorded = self.record.end(&ending).is_ok();
        let notice = Notice::Ended(ending.clone());
        self.control.notify_owner(&notice);
        self.stage = Stage::Ended { ending, until: Instant::now() + ACKNOWLEDGE, recorded, flushed: false };
    }

    /// Nobody has acknowledged in time. Makes the ending survive a power cut, and looks once more, as who does or
    /// adopts meanwhile would not be heard.
    fn flush(&mut self) {
        if let Stage::Ended { ending, until, recorded, flushed } = &mut self.stage {
            // There is nobody to tell if this fails; without an ending the run counts as lost.
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
        // That it fires is a reason to go on, no more.
        fds.extend(self.timer.iter().map(|timer| PollFd::new(timer, PollFlags::IN)));
        let timeout = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(n) if n > 0 => {}
            // What has interrupted it is in the pipe of signals.
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
            self.tell_answer();
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
            Ask::Adopted => self.introduce(),
            Ask::Status { client } => {
                let status = self.status();
                self.control.answer(client, &status);
            }
            Ask::Sample { client } => {
                let activity = match &self.agent {
                    // Its processes may be busy with waiting: only what it tells counts.
                    Some(agent) if agent.is_calling() || self.rests => Activity::Busy,
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
                    // If it cannot be removed, it is found as ended, which is the truth.
                    self.record.remove().ok();
                    self.control.close();
                    self.acknowledged = true;
                    self.stage = Stage::Over;
                }
            }
        }
    }

    /// Begins to end the tree, or has less patience with it.
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

    /// Reaps every child that is dead. None left is the proof that the session has no process left.
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
