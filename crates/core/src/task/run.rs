//! The run that works on a task: its verdict, its activity, and its end.

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
    /// The last sign of activity.
    pub seen: Stamp,
    /// Its verdict so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Whether its session checks the guards of its phase again before the command begins: the results were too old at
    /// the claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recheck: bool,
}

/// The verdict of a run, or a person, on the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    Done {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
    },
    /// It is done, with no changes to land.
    NoChange {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
    },
    Failed {
        error: Box<str>,
    },
    /// A person has to decide something first.
    Ask {
        question: Box<str>,
        /// The possible answers; an open one, if the list is empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        options: Vec<Box<str>>,
    },
    /// Its command was not started: a guard of its phase no longer holds.
    Refused(Box<Refused>),
    /// Its agent was not started: what the program would execute, or be allowed to do, in its directory is not trusted.
    Untrusted {
        error: Box<str>,
    },
    /// The end of its agent program; the run itself has reported no verdict.
    Agent(Box<AgentEnd>),
}

impl Verdict {
    /// The error, if the run reported a failure.
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
    /// It was active, and then stopped.
    NoHeartbeat { last_seen: Stamp },
    /// No activity was ever seen.
    NoProgress { duration: Span },
    /// Its session is dead and left no record of an exit.
    SessionDead,
}

/// The result of an activity check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    /// It has written output.
    Active,
    /// It keeps writing output for longer than it may be silent: it has recovered.
    Steady,
    /// It has written no output for this long, but works: it uses the processor, starts processes, or writes files in
    /// its workspace.
    Busy(Span),
    /// No activity was seen for this long.
    Idle(Span),
    /// Its session is dead and left no record of an exit.
    SessionDead,
}

/// What follows after a run was stopped.
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
        /// The longest time it was allowed to take.
        max: Span,
    },
    /// The task is retried. That is a recovery, of which the number is limited.
    Restart,
    /// The task is pending again, as if the run had never begun: a person wants that.
    PutBack {
        /// Whether the session has no time to end by itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
    },
}

/// How many more times the allowed silence work without output counts as activity.
const BELIEVED: i64 = 4;

/// The rules for a run without activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// How long it may be without activity; also how long it has after a nudge.
    pub timeout: Span,
    /// How many recoveries a task has at most, since a person last retried it.
    pub max_recoveries: u32,
    pub on_exhausted: OnExhausted,
}

impl Watch {
    /// The same rules with another time of silence.
    #[must_use]
    pub fn of(self, silence: Option<Span>) -> Watch {
        Watch { timeout: silence.unwrap_or(self.timeout), ..self }
    }

    /// Whether work still counts as activity of a run that has been without output for so long.
    pub fn believes(&self, quiet: Span) -> bool {
        quiet.as_ms() < self.timeout.as_ms().saturating_mul(1 + BELIEVED)
    }
}

/// What happens to a task without recoveries left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnExhausted {
    /// A person decides.
    #[default]
    Escalate,
    Fail,
}

/// Why a run did not finish its task, and another one follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum RetryReason {
    Failed,
    /// It ended well, but did not report that the task is done.
    NoVerdict,
    Overtime,
    Stuck,
    Lost,
    Never,
    /// It could not begin, because the machine lacked a resource.
    Shortage,
    /// Its command was not started, because a guard of its phase no longer held.
    Guard,
    /// Its agent was not started, because something that it would execute is not trusted.
    Untrusted,
    /// The account of its agent is limited.
    Quota,
    /// The account of its agent is not logged in.
    Auth,
    /// The provider of its agent is overloaded.
    Overloaded,
    /// The provider of its agent cannot be reached.
    Network,
    /// Its agent only retried its requests.
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

    /// Whether the run does not count as an attempt: something else kept it from working.
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

    /// The reason that kept an agent from working, if its verdict is one.
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

    /// The text for people.
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
    /// Its session died without a record of an exit. Its results are not known.
    Lost,
    /// It is proven that it never began.
    Never,
    /// Its session could not begin, so its command was not started at all.
    NotBegun {
        error: Box<str>,
        /// Whether the machine lacked a resource, such as processes or disk: that passes by itself.
        is_shortage: bool,
    },
}

impl After {
    /// The precedence: a stronger request replaces a weaker one.
    pub(crate) fn precedence(&self) -> u8 {
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
    /// Whether its command was not started at all.
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
            // The conventions of a shell.
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
