//! What is said between a keeper and those who talk to it: JSON, one line each, every line with the version.

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

/// The longest first line to a new keeper: it carries arguments and environment.
pub(super) const SPEC_LIMIT: usize = 1024 * 1024;

/// What a keeper is told to keep. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The id of the run. The session finds it in `BANKSMAN_RUN`.
    pub run: String,
    /// Whoever presents a higher one becomes the owner, a lower one is refused.
    pub owner_epoch: i64,
    /// The run's record. If it exists, nothing is started.
    #[serde(with = "os_bytes")]
    pub record: PathBuf,
    /// Where the output goes. Made at the first output.
    #[serde(with = "os_bytes")]
    pub log: PathBuf,
    /// After this many bytes, but at least 4 KiB, the log becomes `<log>.1`, and a new one begins.
    pub log_limit: u64,
    /// A line that the log begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub banner: Option<String>,
    /// The directory of control sockets. Made with mode 0700 if it is missing.
    #[serde(with = "os_bytes")]
    pub sockets: PathBuf,
    /// Program and arguments.
    #[serde(with = "os_bytes")]
    pub argv: Vec<OsString>,
    /// Where the program is started.
    #[serde(with = "os_bytes")]
    pub cwd: PathBuf,
    /// Directories to make before.
    #[serde(with = "os_bytes")]
    pub make_dirs: Vec<PathBuf>,
    /// Directories to remove at the end if nothing is in them.
    #[serde(default, with = "os_bytes")]
    pub spare_dirs: Vec<PathBuf>,
    /// Variables to set, over the environment of the keeper, which is that of whoever started it.
    #[serde(with = "os_bytes")]
    pub env: Vec<(String, OsString)>,
    /// Variables to remove before.
    pub env_remove: Vec<String>,
    /// The file to read from; `/dev/null` otherwise.
    #[serde(default, with = "os_bytes")]
    pub stdin: Option<PathBuf>,
    /// How long a tree may take to end when it is asked to: by a signal to the keeper, or as a straggler.
    pub grace_ms: u64,
    /// When the session ends by itself unless its owner renews it; never, if there is none.
    pub limit: Option<Limit>,
    /// How it can be talked to while it lives: through a pipe to its stdin, or as its terminal. Without it, stdin is the file or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputKind>,
    /// The directory that nobody else works in: what changes there was changed by the session.
    #[serde(default, with = "os_bytes")]
    pub own_workspace: Option<PathBuf>,
    /// The program is an agent's, and is watched so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentSpec>,
}

/// How a session can be talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// Through a pipe to its stdin.
    Pipe,
    /// As its terminal.
    Terminal,
}

/// Why nothing is written into a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum InputRefusal {
    /// It was started without a way in.
    #[error("the session takes no input")]
    NoInput,
    /// It has closed its input, or ends.
    #[error("the session takes no input any more")]
    Closed,
    /// It does not read what it was sent before.
    #[error("the session has not read the last {pending} bytes that it was sent")]
    Full {
        /// How much waits.
        pending: usize,
    },
    #[error("a person types into the session")]
    Typing,
    /// Only the typist may do this.
    #[error("another client types into the session")]
    NotTypist,
}

/// How long a session may go on without a word from its owner. The times are [`boot_ms`](crate::host::boot_ms): a machine
/// that was suspended must not believe that it still has time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Then its processes are asked to end.
    pub ask_ms: i64,
    /// Milliseconds until the processes are killed.
    pub kill_ms: i64,
}

impl Limit {
    /// The limit after a renewal that was sent at `sent_ms`, of a lease that others respect for `ttl` after it arrived.
    /// The session is asked to end after two thirds of it, and has `grace`, but not more than a sixth of it, to do so. The
    /// last sixth is there to kill and reap what is left.
    pub fn after(sent_ms: i64, ttl: Duration, grace: Duration) -> Limit {
        let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 4);
        let ask_ms = sent_ms + ms(ttl) * 2 / 3;
        Limit { ask_ms, kill_ms: ask_ms + ms(grace).min(ms(ttl) / 6) }
    }
}

/// The first line to a new keeper. What it would have to look up, its starter knows already.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SpawnRequest<S> {
    pub(super) boot: String,
    pub(super) pid_ns: u64,
    /// Whether to wait for another session after this one.
    pub(super) stay: bool,
    pub(super) spec: S,
}

/// What a keeper tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// The session lives. An adopter is told so again.
    Started {
        keeper_pid: i32,
        /// The pid of the session's first process.
        child_pid: i32,
    },
    /// Something was asked that is not done.
    Refused(Refusal),
    /// A nudge was done, now or before.
    Nudged {
        /// The effect that asked for it.
        effect_id: i64,
    },
    /// The model of its agent program has answered for the first time.
    Answered,
    /// The session has ended: no process of it is left.
    Ended(SessionEnd),
    /// The keeper has forgotten the session, and could keep another one.
    Ready,
    /// The stream has ended. Not necessarily the session: [`read_record`](super::read_record) tells.
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
        /// Whether it may pass by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shortage: Option<Shortage>,
    },
    /// The keeper cannot do its work. Nothing was started.
    #[error("the keeper cannot begin: {error}")]
    CannotBegin {
        error: String,
        /// Whether it may pass by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shortage: Option<Shortage>,
    },
    /// Somebody with a higher owner epoch owns the session.
    #[error("the session has an owner with epoch {current}")]
    LowerEpoch {
        /// The highest epoch so far.
        current: i64,
    },
    /// The two do not understand each other.
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
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why it could not be started.
    pub error: Option<String>,
    /// Whether that may pass by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<Shortage>,
    /// How long the first process ran, in milliseconds. The clock of the wall has no part in it. Keepers of earlier versions do
    /// not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// Whether it was still running when it was asked to stop.
    pub stopped: bool,
    /// Whether it was asked because nobody renewed it in time.
    pub lapsed: bool,
    /// What became of its output.
    pub log: LogReport,
    /// When, in milliseconds since 1970.
    pub ended_at_ms: i64,
    /// How many descendants outlived the first process and had to be ended.
    pub stragglers: u32,
    /// The messages that were written into it after whoever sent them may have gone, the last of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<String>,
    /// What its agent program has told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<AgentReport>>,
}

/// What became of the output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReport {
    /// How much came out.
    pub bytes: u64,
    /// How much of it is not in the log: it could not be written, or is older than what is kept.
    pub dropped: u64,
    /// Why it could not be written, the first time.
    pub error: Option<String>,
}

/// What can be asked of a keeper, with the epoch of who asks. Asking with an epoch that is not lower than any before
/// makes the asker the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Anybody may look.
    Status,
    /// The same, and whether it works: compared with the last time that this was asked.
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
    /// What becomes of its output.
    pub log: LogReport,
    /// The highest owner epoch so far.
    pub owner_epoch: i64,
    /// Whether the owner's stream is open.
    pub owned: bool,
    /// Whether its processes are being ended.
    pub stopping: bool,
    /// When it ends unless it is renewed.
    pub limit: Option<Limit>,
    /// How many nudges were done.
    pub nudges: u32,
    /// When it began, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// When output last came, in milliseconds since 1970.
    pub output_at_ms: Option<i64>,
    /// For how long no output has come, or since the start. The clock of the wall has no part in it.
    pub quiet_ms: u64,
    /// Whether it works, if that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// What its agent program has told so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<AgentReport>>,
}

/// Whether a session that is silent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It uses the processor, has started a process, or has changed a file in its own workspace.
    Busy,
    /// It does nothing of that.
    Idle,
    /// There is nothing to compare with yet: ask again after a while.
    Unclear,
}

#[derive(Serialize, Deserialize)]
struct Line<T> {
    v: u32,
    is: T,
}

/// Why a line is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unclear {
    Version,
    Garbage,
}

/// One line, with its end.
pub(super) fn encode<T: Serialize>(is: &T) -> Vec<u8> {
    encode_as(VERSION, is)
}

/// One line of this version, with its end.
pub(super) fn encode_as<T: Serialize>(version: u32, is: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(&Line { v: version, is }).expect("plain data has a JSON form");
    line.push(b'\n');
    line
}

pub(super) fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, Unclear> {
    decode_as(VERSION, line)
}

/// What a line of this version says.
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

/// An error in words, without the number that only programmers need.
pub(super) fn message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words).to_owned()
}

/// Sends what fits, without ever waiting or raising SIGPIPE on a stream that does not block.
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
    /// So many of them are known to hold no end of a line.
    searched: usize,
    limit: usize,
}

/// What one look at a stream brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Some,
    Nothing,
    /// It has ended, or what comes is no protocol of ours.
    End,
}

impl Inbox {
    pub(super) fn new(limit: usize) -> Inbox {
        Inbox { bytes: Vec::new(), searched: 0, limit }
    }

    /// Reads once.
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

    /// Whether everything that has arrived was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the next whole line.
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
