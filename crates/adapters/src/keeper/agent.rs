//! The agent program of a session. Its output is parsed as it arrives, and some of it has consequences at once: a
//! program that has given its result has a few seconds to end, and one that only retries is ended when its patience is
//! over.

use std::time::{Duration, Instant};

use banksman_agents::{Family, Reader, Report, StopReason, Trouble};
use serde::{Deserialize, Serialize};

/// How an agent program is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSpec {
    /// The format of its output.
    pub family: Family,
    /// How long the program may take to end after its result.
    pub after_result_ms: u64,
    /// How long the program may do nothing but retry.
    pub patience_ms: u64,
}

/// The report of an agent program, and why it was asked to end, if it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentReport {
    pub report: Report,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
}

/// The program may renew a login that was refused once; a login that was refused twice is invalid.
const REFUSED_LOGINS: u32 = 2;

/// How much of a line is held back until it is complete, so that lines of both streams do not mix in the log.
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
    /// The last progress.
    heard: Instant,
    /// The time of the result.
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

    /// Takes output of the program. Passes the complete lines to `log`.
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

    fn hold_back(&mut self, stream: Stream, bytes: &[u8], mut log: impl FnMut(&[u8])) {
        let held = &mut self.held_back[usize::from(stream == Stream::Errors)];
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if complete > 0 {
            if !held.is_empty() {
                log(held);
                held.clear();
            }
            log(&bytes[..complete]);
        }
        held.extend_from_slice(&bytes[complete..]);
        if held.len() > HELD_BACK {
            log(held);
            held.clear();
        }
    }

    /// Passes the rest to `log`.
    pub(super) fn flush(&mut self, mut log: impl FnMut(&[u8])) {
        for held in &mut self.held_back {
            if !held.is_empty() {
                log(held);
                held.clear();
            }
        }
    }

    /// When the program must be ended because of its time, and why.
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

    /// Notes that the program is asked to end: a result from now on does not count.
    pub(super) fn close(&mut self, reason: StopReason) {
        self.stop.get_or_insert(reason);
        self.reader.close();
    }

    /// Begins the next turn, after the result of the last one.
    pub(super) fn begin_turn(&mut self) {
        self.result = None;
        self.heard = Instant::now();
        self.reader.begin_turn();
    }

    /// Whether the program works in turns: its output shows when a turn is over.
    pub(super) fn has_turns(&self) -> bool {
        self.spec.family != Family::Text
    }

    /// The time since the last progress.
    pub(super) fn quiet(&self) -> Duration {
        self.heard.elapsed()
    }

    pub(super) fn has_result(&self) -> bool {
        self.result.is_some()
    }

    /// Whether the model has answered.
    pub(super) fn has_answered(&self) -> bool {
        self.reader.report().answers > 0
    }

    /// Whether a tool call is in progress.
    pub(super) fn is_calling(&self) -> bool {
        self.reader.report().is_calling()
    }

    pub(super) fn report(&self) -> AgentReport {
        AgentReport { report: self.reader.report().clone(), stop: self.stop }
    }

    /// The final report, after the end of the output.
    pub(super) fn finish(self) -> AgentReport {
        let now_ms = self.ms(Instant::now());
        AgentReport { report: self.reader.finish(now_ms), stop: self.stop }
    }

    fn ms(&self, now: Instant) -> i64 {
        i64::try_from(now.duration_since(self.began).as_millis()).unwrap_or(i64::MAX)
    }
}
