//! How a run of an agent program ended, as far as its task depends on it. The words of particular programs are not
//! known here.

pub mod limit;
pub mod spend;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::ids::Name;
use crate::time::Wall;

/// The longest prompt of a task, in bytes.
pub const PROMPT_LIMIT: usize = 500_000;

/// The work of a task that is done by an agent program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentWork {
    /// The candidates: the first one does the work, or a later one while the accounts before it are limited.
    pub agents: Vec<AgentChoice>,
    /// What to do while the account of the first agent is limited.
    #[serde(default, skip_serializing_if = "OnQuota::is_wait")]
    pub on_quota: OnQuota,
    /// The instructions, in addition to the title.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub prompt: Box<str>,
    /// Whether the instructions were changed, so that a resumed session may know older ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_revised: bool,
}

/// What a task does while the account of its agent is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnQuota {
    #[default]
    Wait,
    /// The next agent does the work.
    Next,
}

impl OnQuota {
    fn is_wait(&self) -> bool {
        *self == OnQuota::Wait
    }
}

/// The agent that a run was started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAgent {
    /// The name of its profile.
    pub agent: Name,
    /// Whether the run tries if a limit of the account is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probes: bool,
}

/// An agent that may do the work of a task, with what its limits depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentChoice {
    /// The name of its profile.
    pub agent: Name,
    /// The account, which as a unit is limited or logged out.
    pub account: Name,
    /// The model, if the profile or the task names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
}

/// The result of a run of an agent program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum AgentVerdict {
    /// The program has said that it is done.
    Ok,
    /// The program has said that it has failed, such as by reaching its limit of turns.
    Failed,
    /// It was not permitted to do something.
    Refused,
    /// The account is limited.
    Quota(Limit),
    /// The account is not logged in.
    Auth,
    /// The provider has too much to do.
    Overloaded,
    /// The provider cannot be reached.
    Network,
    /// The conversation does not fit any more.
    ContextFull,
    /// The program ended well without a result.
    NoResult,
    /// The program did nothing and was ended.
    Hung,
    /// The program ended without a result, and not well.
    Crashed,
}

/// A limit of an account that was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The limit in the word of the provider, such as `five_hour`.
    pub kind: Box<str>,
    /// The model, if it alone is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// When it ends, if the provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets: Option<Wall>,
}

/// Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    #[serde(default)]
    pub cache_read: u64,
    #[serde(default)]
    pub cache_write: u64,
}

/// How a run of an agent program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEnd {
    /// The name of its profile.
    pub agent: Name,
    pub verdict: AgentVerdict,
    /// The program's message about it.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub text: Box<str>,
    /// The id by which the program resumes the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// What pays for the run, in the program's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_source: Option<Box<str>>,
    pub turns: u32,
    /// How often the model has answered.
    #[serde(default)]
    pub answers: u32,
    pub usage: Usage,
    /// The cost in millionths of a dollar, if the program reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
}

impl AgentWork {
    /// The agents, as a command line names them.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.agents.iter().map(|choice| choice.agent.as_str()).collect();
        names.join(",")
    }

    /// The agent of this name, or the first one.
    pub fn choice(&self, agent: Option<&Name>) -> Option<&AgentChoice> {
        self.agents.iter().find(|choice| Some(&choice.agent) == agent).or(self.agents.first())
    }
}

impl AgentEnd {
    /// Whether the account works: the model has answered, and no limit was reported.
    pub fn is_answered(&self) -> bool {
        match self.verdict {
            AgentVerdict::Ok | AgentVerdict::Failed | AgentVerdict::Refused | AgentVerdict::ContextFull => true,
            AgentVerdict::Quota(_) | AgentVerdict::Auth => false,
            AgentVerdict::Overloaded
            | AgentVerdict::Network
            | AgentVerdict::NoResult
            | AgentVerdict::Hung
            | AgentVerdict::Crashed => self.answers > 0,
        }
    }
}

impl Limit {
    /// A limit of which nothing is known.
    pub fn unnamed() -> Limit {
        Limit { kind: "limit".into(), model: None, resets: None }
    }
}

impl Usage {
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

impl AgentVerdict {
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    /// Whether the next run resumes the session, because this one was interrupted from outside.
    pub fn resumes(&self) -> bool {
        match self {
            AgentVerdict::Quota(_)
            | AgentVerdict::Auth
            | AgentVerdict::Overloaded
            | AgentVerdict::Network
            | AgentVerdict::Hung => true,
            AgentVerdict::Ok
            | AgentVerdict::Failed
            | AgentVerdict::Refused
            | AgentVerdict::ContextFull
            | AgentVerdict::NoResult
            | AgentVerdict::Crashed => false,
        }
    }
}
