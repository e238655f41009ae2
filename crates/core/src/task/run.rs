//! The run that works on a task: what it says, what is seen of it, and how it ends.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::IntoStaticStr;

use crate::agent::{AgentEnd, AgentVerdict};
use crate::ids::{Epoch, Name, RunId, Seq};
use crate::time::{Span, Stamp};

/// The largest result, as JSON, in bytes.
pub const OUTPUT_LIMIT: usize = 1_000_000;

/// The longest error text that is kept, in bytes.
pub const ERROR_LIMIT: usize = 10_000;

/// The run that works on a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Live {
    pub run: RunId,
    pub epoch: Epoch,
    pub started: Stamp,
    /// Its last sign of life.
    pub seen: Stamp,
    /// What it has said of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Whether its session checks the guards of its phase again before the command begins: the answers were too old at the claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recheck: bool,
}

/// What a run, or a person, says of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    Done {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
    },
    /// It is done, and there is nothing that lands.
    NoChange {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
    },
    Failed {
        error: Box<str>,
    },
    /// A person is to decide something first.
    Ask {
        question: Box<str>,
        /// The possible answers; any, if there is none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        options: Vec<Box<str>>,
    },
    /// Its command was not begun: a guard of its phase does not hold any more.
    Refused(Box<Refused>),
    /// Its agent was not begun: what the program would execute or be allowed where it was to run is not trusted.
    Untrusted {
        error: Box<str>,
    },
    /// Its agent program has ended so, and the run itself has said nothing.
    Agent(Box<AgentEnd>),
}

impl Verdict {
    /// What it says about itself, if it has failed by its own word.
    pub(crate) fn failure(self) -> Option<Box<str>> {
        match self {
            Verdict::Failed { error } => Some(error),
            Verdict::Done { .. }
            | Verdict::NoChange { .. }
            | Verdict::Ask { .. }
            | Verdict::Refused(_)
            | Verdict::Untrusted { .. }
            | Verdict::Agent(_) => None,
        }
    }
}

/// The result of the guards of a phase that does not let its run begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    pub guard: Name,
    /// The part of its condition that does not hold.
    pub part: Box<str>,
    /// After how long the guard is checked again, if no event comes first.
    pub again: Span,
    /// The message of a guard that fails the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fails: Option<Box<str>>,
    /// The last event that the result takes into account.
    pub at: Seq,
}

impl Refused {
    pub fn reason(&self) -> String {
        match &self.fails {
            Some(message) => format!("{message} (guard {}: {})", self.guard, self.part),
            None => format!("guard {}: {}", self.guard, self.part),
        }
    }
}

/// Why a run looks stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Stuck {
    /// It used to show signs of life, and then stopped.
    NoHeartbeat { last_seen: Stamp },
    /// It has done nothing that could be seen.
    NoProgress { duration: Span },
    /// Its session is dead and left no exit behind.
    SessionDead,
}

/// What a look at a run has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    /// It has put something out.
    Active,
    /// It has put something out, and goes on to do so for longer than it may be silent: it is well again.
    Steady,
    /// It has put out nothing for so long, but works: it uses the processor, starts processes, or writes files in its workspace.
    Busy(Span),
    /// Nothing was seen of it for so long.
    Idle(Span),
    /// Its session is dead and left no exit behind.
    SessionDead,
}

/// What comes after a run was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum After {
    Cancel,
    Fail {
        error: Box<str>,
    },
    /// A person decides.
    Escalate {
        error: Box<str>,
    },
    /// The run has failed: it took too long. Another may follow.
    Overtime {
        /// How long it was allowed to take.
        max: Span,
    },
    /// It is tried again. That is a recovery: there are only so many.
    Restart,
    /// It is pending again, as if the run had never begun: a person wants that.
    PutBack {
        /// Whether the session has no time to end by itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
    },
}

/// How many times the silence that a run is allowed work without output is believed in, beyond the first.
const BELIEVED: i64 = 4;

/// How a run is watched, and what is done for one that looks stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// How long it may be without a sign of life; also how long it has after it was nudged.
    pub timeout: Span,
    /// How often a task is helped at most, since a person last asked for a retry.
    pub max_recoveries: u32,
    pub on_exhausted: OnExhausted,
}

impl Watch {
    /// The same for a task that may be silent for another time.
    #[must_use]
    pub fn of(self, silence: Option<Span>) -> Watch {
        Watch { timeout: silence.unwrap_or(self.timeout), ..self }
    }

    /// Whether work is still a reason to believe in a run that has put out nothing for so long.
    pub fn believes(&self, quiet: Span) -> bool {
        quiet.as_ms() < self.timeout.as_ms().saturating_mul(1 + BELIEVED)
    }
}

/// What becomes of a task that was helped as often as allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnExhausted {
    /// A person decides.
    #[default]
    Escalate,
    Fail,
}

/// Why a run did not bring its task to an end, and another follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum RetryReason {
    Failed,
    /// It ended well, but did not say that the task is done.
    NoVerdict,
    Overtime,
    Stuck,
    Lost,
    Never,
    /// It could not begin, because the machine has not enough of something.
    Shortage,
    /// Its command was not begun, because a guard of its phase did not hold any more.
    Guard,
    /// Its agent was not begun, because something that it would execute is not trusted.
    Untrusted,
    /// The account of its agent is limited.
    Quota,
    /// The account of its agent is not logged in.
    Auth,
    /// The provider of its agent has too much to do.
    Overloaded,
    /// The provider of its agent cannot be reached.
    Network,
    /// Its agent did nothing but try again.
    Hung,
    /// Its work came back from the merge queue, which has the reason.
    Landing,
    /// A person has stopped it.
    Stopped,
}

impl RetryReason {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the run does not count as an attempt: it was kept from working by something else.
    pub fn is_uncounted(self) -> bool {
        match self {
            RetryReason::Guard
            | RetryReason::Untrusted
            | RetryReason::Quota
            | RetryReason::Auth
            | RetryReason::Overloaded
            | RetryReason::Network
            | RetryReason::Hung
            | RetryReason::Stopped => true,
            RetryReason::Failed
            | RetryReason::NoVerdict
            | RetryReason::Overtime
            | RetryReason::Stuck
            | RetryReason::Lost
            | RetryReason::Never
            | RetryReason::Landing
            | RetryReason::Shortage => false,
        }
    }

    /// The reason that keeps an agent from working, if its verdict is one.
    pub fn of_agent(verdict: &AgentVerdict) -> Option<RetryReason> {
        match verdict {
            AgentVerdict::Quota(_) => Some(RetryReason::Quota),
            AgentVerdict::Auth => Some(RetryReason::Auth),
            AgentVerdict::Overloaded => Some(RetryReason::Overloaded),
            AgentVerdict::Network => Some(RetryReason::Network),
            AgentVerdict::Hung => Some(RetryReason::Hung),
            AgentVerdict::Ok
            | AgentVerdict::Failed
            | AgentVerdict::Refused
            | AgentVerdict::ContextFull
            | AgentVerdict::NoResult
            | AgentVerdict::Crashed => None,
        }
    }

    /// What it means for people.
    pub fn describe(self, ending: &RunEnd) -> Box<str> {
        match self {
            RetryReason::NoVerdict => "it exited 0 without `tasks done`".into(),
            RetryReason::Overtime => "it took too long".into(),
            RetryReason::Stuck => "no activity".into(),
            RetryReason::Guard => "a guard did not hold any more when it was to begin".into(),
            RetryReason::Untrusted => "what its agent would execute is not trusted".into(),
            RetryReason::Quota => "the limit of its account was reached".into(),
            RetryReason::Auth => "its agent is not logged in".into(),
            RetryReason::Overloaded => "the provider of its agent is overloaded".into(),
            RetryReason::Network => "the provider of its agent cannot be reached".into(),
            RetryReason::Hung => "its agent did nothing but try again".into(),
            RetryReason::Landing => "its work did not land".into(),
            RetryReason::Stopped => "it was stopped".into(),
            RetryReason::Failed | RetryReason::Lost | RetryReason::Never | RetryReason::Shortage => ending.to_string().into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunEnd {
    Exited(i32),
    Signalled(i32),
    /// Its command could not be started.
    NotStarted {
        error: Box<str>,
    },
    /// Its session died without leaving an exit behind. What it has done is not known.
    Lost,
    /// It is proven that it never began.
    Never,
    /// Its session could not begin, so nothing of its command was started.
    NotBegun {
        error: Box<str>,
        /// Whether the machine had not enough of something, such as processes or disk: that passes by itself.
        is_shortage: bool,
    },
}

impl After {
    /// How much it says: the heavier wish wins.
    pub(crate) fn weight(&self) -> u8 {
        match self {
            After::PutBack { now: false } => 0,
            After::PutBack { now: true } => 1,
            After::Restart => 2,
            After::Overtime { .. } => 3,
            After::Escalate { .. } => 4,
            After::Fail { .. } => 5,
            After::Cancel => 6,
        }
    }
}

impl RunEnd {
    /// Whether nothing of its command was started.
    pub fn is_not_begun(&self) -> bool {
        matches!(self, RunEnd::Never | RunEnd::NotBegun { .. })
    }

    /// The status that it exited with, if it did.
    pub fn exit_code(&self) -> Option<i32> {
        match self {
            RunEnd::Exited(code) => Some(*code),
            RunEnd::Signalled(_) | RunEnd::NotStarted { .. } | RunEnd::Lost | RunEnd::Never | RunEnd::NotBegun { .. } => None,
        }
    }

    /// The signal that ended it, if one did.
    pub fn signal(&self) -> Option<i32> {
        match self {
            RunEnd::Signalled(signal) => Some(*signal),
            RunEnd::Exited(_) | RunEnd::NotStarted { .. } | RunEnd::Lost | RunEnd::Never | RunEnd::NotBegun { .. } => None,
        }
    }
}

impl std::fmt::Display for RunEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // What a shell means by them.
            RunEnd::Exited(126) => f.write_str("exit status 126 (the command cannot be executed)"),
            RunEnd::Exited(127) => f.write_str("exit status 127 (no such command)"),
            RunEnd::Exited(code) => write!(f, "exit status {code}"),
            RunEnd::Signalled(signal) => write!(f, "killed by signal {signal}"),
            RunEnd::NotStarted { error } | RunEnd::NotBegun { error, .. } => f.write_str(error),
            RunEnd::Lost => f.write_str("its session was lost"),
            RunEnd::Never => f.write_str("it never began"),
        }
    }
}
