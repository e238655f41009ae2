//! The protocol between a keeper and its clients: one JSON object per line, each with the version.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::SendFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::agent::{AgentReport, AgentSpec};
use crate::os_bytes;
use crate::shortage::Shortage;

/// The version of the lines on the wire and in the record.
pub(super) const VERSION: u32 = 1;

/// The longest line.
pub(super) const LINE_LIMIT: usize = 64 * 1024;

/// The longest first line to a new keeper, which has the arguments and the environment.
pub(super) const SPEC_LIMIT: usize = 1024 * 1024;

/// The specification of a session. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The id of the run. The session finds it in `BANKSMAN_RUN`.
    pub run: String,
    /// A client with a higher epoch becomes the owner; one with a lower epoch is refused.
    pub owner_epoch: i64,
    /// The run's record. If it exists, nothing is started.
    #[serde(with = "os_bytes")]
    pub record: PathBuf,
    /// The file for the output. Made at the first output.
    #[serde(with = "os_bytes")]
    pub log: PathBuf,
    /// After this many bytes, but at least 4 KiB, the log becomes `<log>.1`, and a new one begins.
    pub log_limit: u64,
    /// The first line of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub banner: Option<String>,
    /// The directory of control sockets. Made with mode 0700 if it is missing.
    #[serde(with = "os_bytes")]
    pub sockets: PathBuf,
    /// Program and arguments.
    #[serde(with = "os_bytes")]
    pub argv: Vec<OsString>,
    /// The working directory of the program.
    #[serde(with = "os_bytes")]
    pub cwd: PathBuf,
    /// Directories to make before the start.
    #[serde(with = "os_bytes")]
    pub make_dirs: Vec<PathBuf>,
    /// Directories to remove at the end if they are empty.
    #[serde(default, with = "os_bytes")]
    pub spare_dirs: Vec<PathBuf>,
    /// Variables to set, in addition to the environment of the keeper, which is the one of the process that started it.
    #[serde(with = "os_bytes")]
    pub env: Vec<(String, OsString)>,
    /// Variables to remove before that.
    pub env_remove: Vec<String>,
    /// The file for stdin; `/dev/null` if there is none.
    #[serde(default, with = "os_bytes")]
    pub stdin: Option<PathBuf>,
    /// How long the processes may take to end after SIGTERM, when the keeper gets a signal or when they are stragglers.
    pub grace_ms: u64,
    /// When the keeper ends the session unless its owner renews it. Without a limit, never.
    pub limit: Option<Limit>,
    /// How the live session gets input, through a pipe or a terminal. Without it, stdin is the file or `/dev/null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputKind>,
    /// A directory in which only this session works: every change there is a change by the session.
    #[serde(default, with = "os_bytes")]
    pub own_workspace: Option<PathBuf>,
    /// How the program is watched, if it is an agent program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentSpec>,
}

/// How a session gets input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// A pipe to its stdin.
    Pipe,
    /// A terminal of its own.
    Terminal,
}

/// Why input for a session was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum InputRefusal {
    /// The session was started without an input.
    #[error("the session takes no input")]
    NoInput,
    /// The session has closed its input, or ends.
    #[error("the session takes no input any more")]
    Closed,
    /// The session does not read its earlier input.
    #[error("the session has not read the last {pending} bytes that it was sent")]
    Full { pending: usize },
    #[error("a person types into the session")]
    Typing,
    /// Only the typist may do this.
    #[error("another client types into the session")]
    NotTypist,
}

/// How long a session may run without a renewal by its owner. The times are [`boot_ms`](crate::host::boot_ms), which
/// includes the time of a suspension: the lease expires meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// When the processes get SIGTERM.
    pub ask_ms: i64,
    /// When the processes are killed.
    pub kill_ms: i64,
}

impl Limit {
    /// The limit after a renewal that was sent at `sent_ms`, of a lease that others respect for `ttl` after it has
    /// arrived. The session is asked to end after two thirds of the `ttl`, and has `grace`, but at most a sixth of the
    /// `ttl`, to do so. In the last sixth the remaining processes are killed and reaped.
    pub fn after(sent_ms: i64, ttl: Duration, grace: Duration) -> Limit {
        let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 4);
        let ask_ms = sent_ms + ms(ttl) * 2 / 3;
        Limit { ask_ms, kill_ms: ask_ms + ms(grace).min(ms(ttl) / 6) }
    }
}

/// The first line to a new keeper. It includes facts that the runner knows, so that the keeper need not look them up.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SpawnRequest<S> {
    pub(super) boot: String,
    pub(super) pid_ns: u64,
    /// Whether to wait for another session after this one.
    pub(super) stay: bool,
    pub(super) spec: S,
}

/// A notice of a keeper to its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// The session lives. Sent again after an adoption.
    Started {
        keeper_pid: i32,
        /// The pid of the session's first process.
        child_pid: i32,
    },
    /// A request was refused.
    Refused(Refusal),
    /// A nudge was done, now or before.
    Nudged {
        /// The effect that requested it.
        effect_id: i64,
    },
    /// The model of the agent program has answered for the first time.
    Answered,
    /// The session has ended: none of its processes is left.
    Ended(SessionEnd),
    /// The keeper is done with the session, and can keep another one.
    Ready,
    /// The stream has ended. The session may live: see [`read_record`](super::read_record).
    #[serde(skip)]
    Gone,
}

/// Why a keeper refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The run was started, or got a tombstone, before. Nothing was started.
    #[error("the run has a record already")]
    RecordExists,
    /// The record cannot be made. Nothing was started.
    #[error("cannot create the record: {error}")]
    NoRecord {
        error: String,
        /// The shortage behind the error, if it may pass by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shortage: Option<Shortage>,
    },
    /// The keeper cannot do its work. Nothing was started.
    #[error("the keeper cannot begin: {error}")]
    CannotBegin {
        error: String,
        /// The shortage behind the error, if it may pass by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shortage: Option<Shortage>,
    },
    /// An owner with a higher epoch owns the session.
    #[error("the session has an owner with epoch {current}")]
    LowerEpoch {
        /// The highest epoch so far.
        current: i64,
    },
    /// The keeper uses another version of the protocol.
    #[error("the keeper speaks version {keeper} of the protocol")]
    Version {
        /// The protocol version of the keeper.
        keeper: u32,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// The exit code of the first process.
    pub code: Option<i32>,
    /// The signal that ended the first process.
    pub signal: Option<i32>,
    /// Why the program could not be started.
    pub error: Option<String>,
    /// The shortage behind the error, if it may pass by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<Shortage>,
    /// How long the first process ran, in milliseconds, independent of the wall clock. Missing from keepers of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// Whether the first process was still running when it was asked to stop.
    pub stopped: bool,
    /// Whether the reason was that the owner had not renewed the session in time.
    pub lapsed: bool,
    pub log: LogReport,
    /// In milliseconds since 1970.
    pub ended_at_ms: i64,
    /// How many descendants outlived the first process and had to be ended.
    pub stragglers: u32,
    /// The last of the messages that were written late, when their sender may have been gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<String>,
    /// The report of the agent program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<AgentReport>>,
}

/// How the output was logged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReport {
    /// The size of the output.
    pub bytes: u64,
    /// How many of these bytes are not in the log: they could not be written, or were rotated out.
    pub dropped: u64,
    /// The first error of writing.
    pub error: Option<String>,
}

/// A request to a keeper, with the epoch of the client. A request with an epoch that is not lower than any before makes
/// the client the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Needs no epoch: every client may read the status.
    Status,
    /// The same, and whether the session has worked since the previous sample.
    Sample,
    Own {
        epoch: i64,
    },
    Kill {
        epoch: i64,
        grace_ms: u64,
    },
    Nudge {
        epoch: i64,
        effect_id: i64,
    },
    Acknowledge {
        epoch: i64,
    },
    Renew {
        epoch: i64,
        limit: Limit,
    },
}

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The id of the run.
    pub run: String,
    pub keeper_pid: i32,
    /// The pid of the session's first process, once it is started.
    pub child_pid: Option<i32>,
    /// All processes of the session.
    pub processes: Vec<i32>,
    pub log: LogReport,
    /// The highest owner epoch so far.
    pub owner_epoch: i64,
    /// Whether the owner's stream is open.
    pub owned: bool,
    /// Whether its processes are being ended.
    pub stopping: bool,
    /// When the session ends unless it is renewed.
    pub limit: Option<Limit>,
    /// The number of nudges so far.
    pub nudges: u32,
    /// In milliseconds since 1970.
    pub started_at_ms: i64,
    /// The time of the last output, in milliseconds since 1970.
    pub output_at_ms: Option<i64>,
    /// The time since the last output or the start, independent of the wall clock.
    pub quiet_ms: u64,
    /// Whether the session works, in the answer to a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// The report of the agent program so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<AgentReport>>,
}

/// Whether a silent session works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// The session uses the processor, has started a process, or has changed a file in its own workspace.
    Busy,
    /// The session does nothing of that.
    Idle,
    /// There is no earlier sample to compare with: sample again later.
    Unclear,
}

#[derive(Serialize, Deserialize)]
struct Line<T> {
    v: u32,
    is: T,
}

/// Why a line cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unclear {
    Version,
    Garbage,
}

/// Encodes one line, with its line break.
pub(super) fn encode<T: Serialize>(is: &T) -> Vec<u8> {
    encode_as(VERSION, is)
}

/// Encodes one line of this version, with its line break.
pub(super) fn encode_as<T: Serialize>(version: u32, is: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(&Line { v: version, is }).expect("plain data has a JSON form");
    line.push(b'\n');
    line
}

pub(super) fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, Unclear> {
    decode_as(VERSION, line)
}

/// Decodes a line of this version.
pub(super) fn decode_as<T: DeserializeOwned>(expected: u32, line: &[u8]) -> Result<T, Unclear> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    match serde_json::from_slice::<Line<T>>(line) {
        Ok(line) if line.v == expected => Ok(line.is),
        _ => match serde_json::from_slice::<Version>(line) {
            Ok(version) if version.v != expected => Err(Unclear::Version),
            _ => Err(Unclear::Garbage),
        },
    }
}

/// The text of an error, without the error number.
pub(super) fn message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words).to_owned()
}

/// Sends as many bytes as fit, without SIGPIPE, and without waiting if the stream is non-blocking.
pub(super) fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::net::send(stream, bytes, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// Lines as they arrive.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// The number of leading bytes that are known to contain no line break.
    searched: usize,
    limit: usize,
}

/// The result of one read from a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Some,
    Nothing,
    /// The stream has ended, or its content is not our protocol.
    End,
}

impl Inbox {
    pub(super) fn new(limit: usize) -> Inbox {
        Inbox { bytes: Vec::new(), searched: 0, limit }
    }

    pub(super) fn fill(&mut self, mut stream: &UnixStream) -> Arrival {
        let mut chunk = [0u8; 8 * 1024];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => return Arrival::End,
                Ok(_) if self.bytes.len() > self.limit => return Arrival::End,
                Ok(n) => {
                    self.bytes.extend_from_slice(&chunk[..n]);
                    return Arrival::Some;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Arrival::Nothing,
                Err(_) => return Arrival::End,
            }
        }
    }

    /// Whether no received byte is left.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the next complete line.
    pub(super) fn line(&mut self) -> Option<Vec<u8>> {
        let Some(end) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let line = self.bytes.drain(..=self.searched + end).collect();
        self.searched = 0;
        Some(line)
    }
}
