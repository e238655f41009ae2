//! The naive model of a task: runs are numbers, times are seconds, states are words.

use proptest::prelude::*;

use super::*;

/// What happens in a random history. A run is named by how many runs ago it began: 0 is the last one.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Found(Marker, u32),
    Start,
    Active(usize),
    Idle(usize, i64),
    Dead(usize),
    Checkpoint(usize, i64),
    Overtime(usize),
    Say(usize, bool),
    SayManually(bool),
    Stop(u8),
    End(usize, RunEnd, Marker, u32),
    MakeReady,
    Settle(u32),
    Retry,
    Set(Mark),
    Take(i64),
    Return,
    Pass(i64),
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let back = || prop_oneof![6 => Just(0_usize), 1 => 1..3_usize];
    let secs = || prop::sample::select(vec![1, 30, 59, 60, 90]);
    let marker = || prop_oneof![8 => Just(Marker::Absent), 2 => Just(Marker::Done), 1 => Just(Marker::Broken("?".into()))];
    let ending = prop_oneof![
        3 => Just(RunEnd::Exited(0)),
        3 => Just(RunEnd::Exited(1)),
        1 => Just(RunEnd::Signalled(9)),
        1 => Just(RunEnd::NotStarted { error: "no shell".into() }),
        3 => Just(RunEnd::Lost),
        1 => Just(RunEnd::Never),
        1 => Just(not_begun(true)),
        2 => Just(not_begun(false)),
    ];
    prop_oneof![
        2 => (marker(), 0..3_u32).prop_map(|(marker, children)| Op::Found(marker, children)),
        10 => Just(Op::Start),
        2 => back().prop_map(Op::Active),
        6 => (back(), secs()).prop_map(|(back, secs)| Op::Idle(back, secs)),
        1 => back().prop_map(Op::Dead),
        1 => (back(), secs()).prop_map(|(back, secs)| Op::Checkpoint(back, secs)),
        1 => back().prop_map(Op::Overtime),
        2 => (back(), any::<bool>()).prop_map(|(back, done)| Op::Say(back, done)),
        1 => any::<bool>().prop_map(Op::SayManually),
        2 => (0..6_u8).prop_map(Op::Stop),
        8 => (back(), ending, marker(), 0..3_u32).prop_map(|(back, ending, marker, children)| Op::End(back, ending, marker, children)),
        1 => Just(Op::MakeReady),
        2 => (0..2_u32).prop_map(Op::Settle),
        3 => Just(Op::Retry),
        1 => prop::sample::select(vec![Mark::Skipped, Mark::Review]).prop_map(Op::Set),
        1 => (1..3_i64).prop_map(Op::Take),
        2 => Just(Op::Return),
        6 => secs().prop_map(Op::Pass),
    ]
}

pub(super) struct TaskModel {
    pub(super) time: i64,
    pub(super) word: &'static str,
    pub(super) runs: usize,
    pub(super) live: Option<Attempt>,
    pub(super) failures: u32,
    pub(super) recoveries: u32,
    /// The policy for children that take too long, if it is a loop.
    pub(super) looping: Option<OnTimeout>,
    /// Whether a person decides when no recoveries are left.
    pub(super) escalates: bool,
    /// When the backoff, or the time of the children, is over.
    pub(super) until: i64,
    /// The grant of the person who works on it.
    pub(super) grant: i64,
}

#[derive(Default)]
pub(super) struct Attempt {
    pub(super) began: i64,
    pub(super) heard: i64,
    pub(super) stuck: Option<i64>,
    pub(super) is_dead: bool,
    /// The precedence of the requested stop: put back, restart, overtime, escalate, fail, cancel.
    pub(super) wish: Option<u8>,
    pub(super) said: Option<bool>,
}

impl TaskModel {
    pub(super) fn new(looping: Option<OnTimeout>, escalates: bool) -> TaskModel {
        let (time, word, runs, live) = (0, "pending", 0, None);
        TaskModel { time, word, runs, live, failures: 0, recoveries: 0, looping, escalates, until: 0, grant: 0 }
    }

    /// The live run, if the operation is about it.
    fn at(&mut self, back: usize) -> Option<&mut Attempt> {
        self.live.as_mut().filter(|_| back == 0)
    }

    fn is_over(&self) -> bool {
        ["completed", "failed", "cancelled", "skipped"].contains(&self.word)
    }

    /// Whether a person may take or mark it: no run works on it, it is not over, and it does not wait for its children.
    fn is_free(&self) -> bool {
        self.live.is_none() && ["pending", "resting", "parked", "by hand", "review"].contains(&self.word)
    }

    fn has_help(&self) -> bool {
        self.recoveries < MAX_RECOVERIES
    }

    /// The precedence of the stop when no recoveries are left.
    fn last_wish(&self) -> u8 {
        if self.escalates { 3 } else { 4 }
    }

    fn done(&mut self, children: u32) {
        (self.word, self.until) = if children > 0 { ("awaiting", self.time + REST) } else { ("completed", 0) };
    }

    fn give_up(&mut self) {
        self.word = if self.escalates { "parked" } else { "failed" };
    }

    fn silent(&mut self, secs: i64) {
        let (time, has_help, last_wish) = (self.time, self.has_help(), self.last_wish());
        let Some(attempt) = self.live.as_mut().filter(|attempt| attempt.wish.is_none()) else { return };
        match attempt.stuck {
            None => {
                attempt.heard = attempt.heard.max(time - secs);
                if time - attempt.heard >= TIMEOUT {
                    attempt.stuck = Some(time);
                    if has_help {
                        self.recoveries += 1;
                    } else {
                        attempt.wish = Some(last_wish);
                    }
                }
            }
            Some(since) if !attempt.is_dead && time - since >= TIMEOUT => {
                attempt.wish = Some(if has_help { 1 } else { last_wish });
            }
            Some(_) => {}
        }
    }

    fn end(&mut self, ending: &RunEnd, marker: &Marker, children: u32) {
        let mut attempt = self.live.take().unwrap();
        self.word = "pending";
        if attempt.wish == Some(0) {
            let is_done = self.looping.is_some() && *marker != Marker::Absent;
            if attempt.said.is_none() && !is_done {
                return;
            }
            attempt.wish = None;
        }
        if attempt.wish == Some(5) {
            self.word = "cancelled";
        } else if self.looping.is_some() {
            self.end_of_loop(&attempt, ending, marker, children);
        } else {
            self.end_of_task(&attempt, ending);
        }
    }

    fn end_of_task(&mut self, attempt: &Attempt, ending: &RunEnd) {
        let is_silent = attempt.said.is_none();
        let is_good = is_silent && attempt.wish.is_none() && *ending == RunEnd::Exited(0);
        let may_follow = is_silent && attempt.wish.is_none_or(|wish| wish < 3);
        let is_nothing = [RunEnd::Never, not_begun(true)].contains(ending) && may_follow;
        let is_lost = attempt.wish == Some(1) || attempt.wish.is_none() && is_silent && *ending == RunEnd::Lost;
        match () {
            () if attempt.said == Some(true) || is_good => self.word = "completed",
            () if attempt.wish == Some(4) => self.word = "failed",
            () if attempt.wish == Some(3) => self.word = "parked",
            () if is_nothing => {}
            () if *ending == not_begun(false) && may_follow => self.rest_or_give_up(),
            () if is_lost && self.has_help() => self.recoveries += 1,
            () if is_lost => self.give_up(),
            () if self.failures < RETRIES => self.failures += 1,
            () => self.word = "failed",
        }
    }

    fn end_of_loop(&mut self, attempt: &Attempt, ending: &RunEnd, marker: &Marker, children: u32) {
        let is_nothing = [RunEnd::Never, not_begun(true)].contains(ending) && attempt.said.is_none();
        let is_stuck = attempt.wish == Some(1) && !ending.is_not_begun();
        match () {
            () if attempt.said == Some(true) || *marker == Marker::Done => self.done(children),
            () if attempt.wish == Some(4) => self.word = "failed",
            () if attempt.wish == Some(3) => self.word = "parked",
            () if *marker != Marker::Absent => self.word = "failed",
            () if is_nothing => {}
            () if *ending == not_begun(false) && attempt.said.is_none() => self.rest_or_give_up(),
            () if self.failures + 1 == MAX_ATTEMPTS => self.word = "failed",
            () if is_stuck && !self.has_help() => self.give_up(),
            () => {
                self.recoveries += u32::from(is_stuck);
                self.failures += 1;
                (self.word, self.until) = ("resting", self.time + REST);
            }
        }
    }

    /// Its session could not begin: it backs off for 1, 2, 4, … seconds, as long as it has recoveries.
    fn rest_or_give_up(&mut self) {
        if !self.has_help() {
            return self.give_up();
        }
        (self.word, self.until) = ("resting", self.time + (1 << self.recoveries));
        self.recoveries += 1;
    }

    fn found(&mut self, marker: &Marker, children: u32) {
        if self.looping.is_some() && self.live.is_none() && ["pending", "resting"].contains(&self.word) {
            match marker {
                Marker::Absent => {}
                Marker::Done => self.done(children),
                Marker::Broken(_) => self.word = "failed",
            }
        }
    }

    fn settle(&mut self, children: u32) {
        if self.live.is_some() {
            return;
        }
        match (self.word, self.looping) {
            ("awaiting" | "ending children", _) if children == 0 => self.word = "completed",
            ("awaiting", Some(on_timeout)) if self.time >= self.until => {
                self.word = match on_timeout {
                    OnTimeout::Warn => "completed",
                    OnTimeout::Fail => "failed",
                    OnTimeout::Kill => "ending children",
                }
            }
            _ => {}
        }
    }

    pub(super) fn op(&mut self, op: &Op) {
        let time = self.time;
        let is_rested = self.word == "resting" && time >= self.until;
        match op {
            Op::Found(marker, children) => self.found(marker, *children),
            Op::Start => {
                if self.live.is_none() && (self.word == "pending" || is_rested) {
                    (self.word, self.runs) = ("pending", self.runs + 1);
                    self.live = Some(Attempt { began: time, heard: time, ..Attempt::default() });
                }
            }
            Op::MakeReady if is_rested => self.word = "pending",
            Op::MakeReady => {}
            Op::Active(back) => {
                if let Some(attempt) = self.at(*back) {
                    let was_stuck = attempt.stuck.is_some() && attempt.wish.is_none();
                    (attempt.heard, attempt.stuck, attempt.is_dead) = (time, None, false);
                    if was_stuck {
                        self.recoveries = 0;
                    }
                }
            }
            Op::Idle(back, secs) => {
                if self.at(*back).is_some() {
                    self.silent(*secs);
                }
            }
            Op::Dead(back) => {
                if let Some(attempt) = self.at(*back).filter(|attempt| attempt.wish.is_none() && attempt.stuck.is_none()) {
                    (attempt.stuck, attempt.is_dead) = (Some(time), true);
                }
            }
            Op::Checkpoint(back, quiet) => {
                if let Some(attempt) = self.at(*back) {
                    attempt.heard = attempt.heard.max(time - quiet);
                }
            }
            Op::Overtime(back) => {
                if let Some(attempt) = self.at(*back).filter(|attempt| time - attempt.began >= MAX_DURATION) {
                    attempt.wish = attempt.wish.or(Some(2));
                }
            }
            Op::Say(back, done) => {
                if let Some(attempt) = self.at(*back) {
                    let was_stuck = attempt.stuck.is_some() && attempt.wish.is_none();
                    (attempt.heard, attempt.stuck, attempt.is_dead, attempt.said) = (time, None, false, Some(*done));
                    if was_stuck {
                        self.recoveries = 0;
                    }
                }
            }
            Op::SayManually(done) => {
                if self.live.is_none() && !self.is_over() {
                    self.word = if *done { "completed" } else { "failed" };
                }
            }
            Op::Stop(wish) => {
                let is_over = self.is_over();
                match &mut self.live {
                    Some(attempt) => attempt.wish = attempt.wish.max(Some(*wish)),
                    None if is_over || *wish < 4 => {}
                    None => self.word = if *wish == 4 { "failed" } else { "cancelled" },
                }
            }
            Op::End(back, ending, marker, children) => {
                if self.at(*back).is_some() {
                    self.end(ending, marker, *children);
                }
            }
            Op::Settle(children) => self.settle(*children),
            Op::Retry => {
                if self.live.is_none() && (self.is_over() || ["parked", "review"].contains(&self.word)) {
                    (self.word, self.failures, self.recoveries) = ("pending", 0, 0);
                }
            }
            Op::Set(mark) => {
                if self.is_free() {
                    self.word = if *mark == Mark::Skipped { "skipped" } else { "review" };
                }
            }
            Op::Take(grant) => {
                if self.is_free() {
                    if self.word != "by hand" || self.grant != *grant {
                        (self.failures, self.recoveries) = (0, 0);
                    }
                    (self.word, self.grant) = ("by hand", *grant);
                }
            }
            Op::Return => {
                if self.live.is_none() && self.word == "by hand" {
                    self.word = "pending";
                }
            }
            Op::Pass(secs) => self.time += secs,
        }
    }

    /// The state in the words of the table.
    pub(super) fn letters(&self) -> &'static str {
        match &self.live {
            Some(Attempt { wish: Some(wish), .. }) => {
                ["to put back", "to restart", "overtime", "to escalate", "to fail", "to cancel"][usize::from(*wish)]
            }
            Some(Attempt { stuck: Some(_), .. }) => "stuck",
            Some(_) => "running",
            None => self.word,
        }
    }
}
