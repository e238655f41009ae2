//! The agent program of a session: what it tells is read as it comes, and some of it has consequences at once. A program that has given its
//! result has a few seconds to end; one that does nothing but try again is ended when patience with it is over.

use std::time::{Duration, Instant};

use banksman_agents::{Family, Reader, Report, StopReason, Trouble};
use serde::{Deserialize, Serialize};

/// How an agent program is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSpec {
    /// How it tells what it does.
    pub family: Family,
    /// How long it may take to end after its result.
    pub after_result_ms: u64,
    /// How long it may do nothing but try again.
    pub patience_ms: u64,
}

/// What an agent program has told, and why it was asked to end, if it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentReport {
    pub report: Report,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
}

/// A login that was refused once may be renewed by the program itself; refused twice, it is no good.
const REFUSED_LOGINS: u32 = 2;

/// How much of a line is held back until its end has come, so that lines of both streams stay whole in the log.
const HELD_BACK: usize = 64 * 1024;

/// One of the two streams of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Output,
    Errors,
}

#[derive(Debug)]
pub(super) struct AgentWatch {
    spec: AgentSpec,
    reader: Reader,
    began: Instant,
    /// When it last made progress.
    heard: Instant,
    /// When it gave its result.
    result: Option<Instant>,
    stop: Option<StopReason>,
    held_back: [Vec<u8>; 2],
}

impl AgentWatch {
    pub(super) fn new(spec: AgentSpec) -> AgentWatch {
        let now = Instant::now();
        let reader = Reader::new(spec.family);
        AgentWatch { spec, reader, began: now, heard: now, result: None, stop: None, held_back: [Vec::new(), Vec::new()] }
    }

    /// Takes in what came. What is to be logged now goes to `log`.
    pub(super) fn take(&mut self, stream: Stream, bytes: &[u8], log: impl FnMut(&[u8])) {
        let now = Instant::now();
        match stream {
            Stream::Output => {
                if self.reader.output(bytes, self.ms(now)) {
                    self.heard = now;
                }
            }
            Stream::Errors => self.reader.errors(bytes, self.ms(now)),
        }
        self.result = self.reader.report().ending.is_some().then(|| self.result.unwrap_or(now));
        self.hold_back(stream, bytes, log);
    }

    /// Passes on whole lines.
    fn hold_back(&mut self, stream: Stream, bytes: &[u8], mut log: impl FnMut(&[u8])) {
        let held = &mut self.held_back[usize::from(stream == Stream::Errors)];
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole > 0 {
            if !held.is_empty() {
                log(held);
                held.clear();
            }
            log(&bytes[..whole]);
        }
        held.extend_from_slice(&bytes[whole..]);
        if held.len() > HELD_BACK {
            log(held);
            held.clear();
        }
    }

    /// Passes on the rest.
    pub(super) fn flush(&mut self, mut log: impl FnMut(&[u8])) {
        for held in &mut self.held_back {
            if !held.is_empty() {
                log(held);
                held.clear();
            }
        }
    }

    /// When it is to be ended by time alone, and why.
    pub(super) fn deadline(&self) -> Option<(Instant, StopReason)> {
        if self.stop.is_some() {
            return None;
        }
        if let Some(result) = self.result {
            return Some((result + Duration::from_millis(self.spec.after_result_ms), StopReason::AfterResult));
        }
        let retry = self.reader.report().retry.as_ref()?;
        let is_refused = retry.trouble == Trouble::Auth && retry.count >= REFUSED_LOGINS;
        let patience = if is_refused { 0 } else { self.spec.patience_ms };
        let since = self.began + Duration::from_millis(u64::try_from(retry.since_ms).unwrap_or(0));
        Some((since + Duration::from_millis(patience), StopReason::Retrying))
    }

    /// It is asked to end: what it says of its result from now on does not count.
    pub(super) fn close(&mut self, reason: StopReason) {
        self.stop.get_or_insert(reason);
        self.reader.close();
    }

    /// It has given the result of a turn, and another one begins.
    pub(super) fn begin_turn(&mut self) {
        self.result = None;
        self.heard = Instant::now();
        self.reader.begin_turn();
    }

    /// Whether it works in turns: it tells when one is over.
    pub(super) fn has_turns(&self) -> bool {
        self.spec.family != Family::Text
    }

    /// For how long it made no progress.
    pub(super) fn quiet(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Whether it has given its result.
    pub(super) fn has_result(&self) -> bool {
        self.result.is_some()
    }

    /// Whether the model has answered.
    pub(super) fn has_answered(&self) -> bool {
        self.reader.report().answers > 0
    }

    /// Whether a call of a tool is under way.
    pub(super) fn is_calling(&self) -> bool {
        self.reader.report().is_calling()
    }

    pub(super) fn report(&self) -> AgentReport {
        AgentReport { report: self.reader.report().clone(), stop: self.stop }
    }

    /// All that it has told, now that nothing more comes.
    pub(super) fn finish(self) -> AgentReport {
        let now_ms = self.ms(Instant::now());
        AgentReport { report: self.reader.finish(now_ms), stop: self.stop }
    }

    fn ms(&self, now: Instant) -> i64 {
        i64::try_from(now.duration_since(self.began).as_millis()).unwrap_or(i64::MAX)
    }
}
