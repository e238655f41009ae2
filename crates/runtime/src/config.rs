//! The settings: one table of keys, and the layers that give them values.
//!
//! The user's file comes first, then the project's, then the environment; a later layer wins. Flags are the
//! caller's business.

mod duration;
mod edit;
mod keys;
mod layers;
mod notify;
mod problem;
mod workspace;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use banksman_adapters::git::Leftovers;
use banksman_adapters::notify::{Program, Webhook};
use banksman_agents::Profiles;
use banksman_core::agent::OnQuota;
use banksman_core::queue::{self, ATTEMPTS_LIMIT, DEFAULT_LENGTH};
use banksman_core::task::retry::{OnTimeout, Policy};
use banksman_core::task::{OnExhausted, Watch};
use banksman_core::{Limits, NoticeKind, Span};
use banksman_runbook::QueueTerms;
use banksman_store::postgres::Server;

use crate::waiting::span;

pub use duration::duration;
pub(crate) use edit::record;
pub use edit::{set, unset};
pub use keys::{FORMER, KEYS};
pub use layers::{Environment, Foreign, Layer, Setting, Settings, Source};
pub use notify::Notify;
pub use problem::{ConfigError, Problem, unknown_key};
pub use workspace::{WorkspaceDefault, WorkspaceSettings};

/// The prefix of every variable that sets a key.
pub const VARIABLE_PREFIX: &str = "BANKSMAN_CONFIG_";

/// The settings that apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The id of the project, if its file has one.
    pub project: Option<String>,
    /// Whether the project is kept in a database, so that there is no store in its folder.
    pub shared: bool,
    /// The server that keeps the user's projects.
    pub store: Option<SecretUrl>,
    /// How long a lock that is bound to no process lives without a heartbeat.
    pub heartbeat_timeout: Duration,
    /// How long to wait for a lock by default.
    pub wait_timeout: Duration,
    /// How often a waiter polls, in case a wake-up was lost.
    pub poll_interval: Duration,
    /// How long a manual claim lives without a heartbeat.
    pub task_timeout: Duration,
    /// Read and not used: a section is held as long as a run or a claim is in it.
    pub section_timeout: Duration,
    /// How long others may overtake a waiting claim.
    pub overtake: Duration,
    /// How a loop is tried again.
    pub restart: Policy,
    /// How many runs may live at a time; 0 for any number. The project's row decides; this is its initial value.
    pub max_concurrent_runs: u32,
    /// How many roots may be in progress at a time; likewise.
    pub max_concurrent_root_tasks: u32,
    /// How long a run may show no activity.
    pub silence_timeout: Duration,
    /// How long a run may take.
    pub max_duration: Option<Duration>,
    /// How many recoveries a task gets.
    pub max_recovery_attempts: u32,
    /// What happens when they are used up.
    pub on_exhausted: OnExhausted,
    /// How often an event records that a run is in progress.
    pub checkpoint_interval: Option<Duration>,
    /// How long a session may take to end when it is asked to.
    pub kill_grace: Duration,
    /// The size in MiB after which a log starts over.
    pub log_limit_mib: u32,
    /// How long an item that was taken from a queue belongs to its holder, unless the queue says otherwise.
    pub queue_visibility_timeout: Duration,
    /// How many attempts an item has, unless the queue says otherwise.
    pub queue_max_attempts: NonZeroU32,
    /// Where tasks work.
    pub workspace: WorkspaceSettings,
    /// How messages are posted and kept.
    pub bus: Bus,
    /// The settings of landing.
    pub landing: Landing,
    /// Agent programs.
    pub agents: AgentSettings,
    /// How much agents may cost in a day, in dollars; 0 for any amount.
    pub budget_day: u32,
    /// Which notifications are sent, and where to.
    pub notify: Notify,
    /// Whether the notice `backlog_finished` contains the report.
    pub report_notify: bool,
}

/// Agent programs, and what all of them have in common.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentSettings {
    pub profiles: Profiles,
    /// The rules for agents that work on tasks of a section, by its name in lower case.
    pub rules: BTreeMap<String, String>,
    /// The agent of `do`, if none is named.
    pub default: Option<String>,
    /// What happens to a task while the account of its first agent is limited.
    pub on_quota: OnQuota,
    /// How long a program may do nothing but retry.
    pub retry_patience: Duration,
}

/// How messages are posted and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bus {
    /// How long one attempt to post waits for the writer lock.
    pub lock_timeout: Duration,
    pub attempts: NonZeroU32,
    /// The pause before the second attempt; it doubles each time.
    pub retry_backoff: Duration,
    /// How long messages are kept.
    pub keep: Duration,
}

/// Who resolves a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// The author, in another attempt: an agent in the session that has done the work.
    #[default]
    Author,
    /// The agent of the task in a new session.
    Agent,
    /// A person is asked.
    Decision,
}

/// The settings of landing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Landing {
    /// The branch that work lands on; the branch of the main checkout if there is none.
    pub target: Option<String>,
    /// The command that every commit must pass before it lands.
    pub check: Option<Program>,
    /// How long the check may take.
    pub timeout: Duration,
    /// Whether every check starts from an empty directory.
    pub fresh: bool,
    /// How often work goes back to its author before a person is asked.
    pub retries: u32,
    /// Who resolves a conflict.
    pub on_conflict: OnConflict,
    /// What happens to files that a task has not committed.
    pub leftovers: Leftovers,
}

impl Config {
    /// How runs are watched.
    pub fn watch(&self) -> Watch {
        Watch { timeout: span(self.silence_timeout), max_recoveries: self.max_recovery_attempts, on_exhausted: self.on_exhausted }
    }

    /// How much agents may cost in a day, in millionths of a dollar, if that is limited.
    pub fn budget_micros(&self) -> Option<u64> {
        (self.budget_day > 0).then(|| u64::from(self.budget_day) * 1_000_000)
    }

    /// The limits of a project that has none yet.
    pub fn limits(&self) -> Limits {
        Limits { runs: self.max_concurrent_runs, roots: self.max_concurrent_root_tasks }
    }

    /// The configuration of a queue with these terms.
    pub fn queue(&self, terms: &QueueTerms) -> queue::Config {
        queue::Config {
            visibility_timeout: terms.visibility_timeout.unwrap_or(span(self.queue_visibility_timeout)),
            max_attempts: terms.max_attempts.unwrap_or(self.queue_max_attempts.get().min(ATTEMPTS_LIMIT)),
            dead_letter: terms.dead_letter.clone(),
            max_length: terms.max_length.unwrap_or(DEFAULT_LENGTH),
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        let zero = Duration::ZERO;
        let mut config = Config {
            project: None,
            shared: false,
            store: None,
            heartbeat_timeout: zero,
            wait_timeout: zero,
            poll_interval: zero,
            task_timeout: zero,
            section_timeout: zero,
            overtake: zero,
            restart: Policy {
                max_attempts: NonZeroU32::MIN,
                delay: Span::ZERO,
                child_wait: Span::ZERO,
                on_children_timeout: OnTimeout::Warn,
            },
            max_concurrent_runs: 0,
            max_concurrent_root_tasks: 0,
            silence_timeout: zero,
            max_duration: None,
            max_recovery_attempts: 0,
            on_exhausted: OnExhausted::default(),
            checkpoint_interval: None,
            kill_grace: zero,
            log_limit_mib: 0,
            queue_visibility_timeout: zero,
            queue_max_attempts: NonZeroU32::MIN,
            workspace: WorkspaceSettings::default(),
            bus: Bus { lock_timeout: zero, attempts: NonZeroU32::MIN, retry_backoff: zero, keep: zero },
            landing: Landing::default(),
            agents: AgentSettings::default(),
            budget_day: 0,
            notify: Notify::default(),
            report_notify: false,
        };
        for (key, text) in KEYS.iter().filter_map(|key| Some((key, key.default?))) {
            key.assign(&mut config, text).expect("the defaults in the table are valid");
        }
        config
    }
}

/// The URL of a store. It may contain a password, which is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(pub String);

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        masked(&self.0).fmt(f)
    }
}

#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    /// The format of its values, and the field for them.
    pub kind: Kind,
    /// Where it may be set.
    pub home: Home,
    /// The value if no layer sets it.
    pub default: Option<&'static str>,
    pub description: &'static str,
}

/// The format of the values of a key, with the field that they are stored in.
#[derive(Debug)]
pub enum Kind {
    /// A duration, which may be zero.
    Duration(fn(&mut Config) -> &mut Duration),
    /// A duration that is greater than zero.
    Period(fn(&mut Config) -> &mut Duration),
    /// The same, as a `Span`.
    Span(fn(&mut Config) -> &mut Span),
    /// A duration that is greater than zero, or none.
    Limit(fn(&mut Config) -> &mut Option<Duration>),
    /// A number that is not negative.
    Count(fn(&mut Config) -> &mut u32),
    /// A number from 1 on.
    Number(fn(&mut Config) -> &mut NonZeroU32),
    /// One of these words; the field gets its index.
    Word(&'static [&'static str], fn(&mut Config, usize)),
    /// A name.
    Id(fn(&mut Config) -> &mut Option<String>),
    /// The URL of a PostgreSQL database.
    Url(fn(&mut Config) -> &mut Option<SecretUrl>),
    /// On or off.
    Switch(fn(&mut Config) -> &mut bool),
    /// Kinds of notices, with commas between them.
    Notices(fn(&mut Config) -> &mut Vec<NoticeKind>),
    /// A shell command line, or a program with its arguments.
    Program(fn(&mut Config) -> &mut Option<Program>),
    /// A URL to post to.
    Webhook(fn(&mut Config) -> &mut Option<String>),
    /// An absolute path.
    File(fn(&mut Config) -> &mut Option<PathBuf>),
    /// A directory, absolute or relative to the project.
    Directory(fn(&mut Config) -> &mut Option<PathBuf>),
    /// Texts with commas between them.
    List(fn(&mut Config) -> &mut Vec<String>),
    /// A number of bytes.
    Size(fn(&mut Config) -> &mut u64),
}

/// Where a key may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// In every layer.
    Everywhere,
    /// In the project's file, and only by `init`.
    Init,
    /// In the user's file only, because it may be secret and the project's file is committed.
    User,
    /// In every layer; a value from the project's file has no effect until the user trusts it.
    Trusted,
}

/// A key that may be set everywhere.
const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, home: Home::Everywhere, default: None, description: "" }
}

impl Key {
    const fn at(self, home: Home) -> Key {
        Key { home, ..self }
    }

    const fn or(self, default: &'static str) -> Key {
        Key { default: Some(default), ..self }
    }

    const fn means(self, description: &'static str) -> Key {
        Key { description, ..self }
    }

    /// The key with this name or former name.
    pub fn find(name: &str) -> Option<&'static Key> {
        let name = FORMER.iter().find(|(former, _)| *former == name).map_or(name, |(_, name)| name);
        KEYS.iter().find(|key| key.name == name)
    }

    /// The variable that sets this key: `BANKSMAN_CONFIG_LOCKING__WAIT_TIMEOUT`.
    pub fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.name.replace('.', "__").to_uppercase())
    }

    /// An example value.
    pub fn example(&self) -> &'static str {
        match self.kind {
            Kind::Duration(_) | Kind::Period(_) | Kind::Span(_) => self.default.unwrap_or("90s"),
            Kind::Limit(_) => "2h",
            Kind::Count(_) | Kind::Number(_) => self.default.unwrap_or("3"),
            Kind::Word(words, _) => words[0],
            Kind::Id(_) => "p-7h2k9x4m",
            Kind::Url(_) => "postgres://user@host/database",
            Kind::Switch(_) => "on",
            Kind::Notices(_) => "escalate,decision",
            Kind::Program(_) => "./tell-me.sh",
            Kind::Webhook(_) => "https://hooks.example.org/banksman",
            Kind::File(_) => "/home/me/.config/banksman/secret",
            Kind::Directory(_) => "../worktrees",
            Kind::List(_) => ".env,config/local.toml",
            Kind::Size(_) => "2GiB",
        }
    }

    /// Parses a value and stores it in its field.
    fn assign(&self, config: &mut Config, text: &str) -> Result<(), String> {
        match self.kind {
            Kind::Duration(field) => *field(config) = duration(text)?,
            Kind::Span(field) => *field(config) = span(duration(text)?),
            Kind::Period(field) => *field(config) = period(text)?,
            Kind::Limit(field) if text.trim() == "none" => *field(config) = None,
            Kind::Limit(field) => *field(config) = Some(period(text)?),
            Kind::Number(field) => {
                *field(config) = text.trim().parse().map_err(|_| format!("it must be a whole number from 1 on, not {text:?}"))?;
            }
            Kind::Word(words, field) => {
                let at = words.iter().position(|word| *word == text.trim());
                field(config, at.ok_or_else(|| format!("it must be {}, not {text:?}", words.join(" or ")))?);
            }
            Kind::Count(field) => {
                let number: u32 =
                    text.trim().parse().map_err(|_| format!("it must be a whole number from 0 on, not {text:?}"))?;
                *field(config) = number;
            }
            Kind::Id(field) => {
                if text.is_empty() {
                    return Err("it must not be empty".into());
                }
                *field(config) = Some(text.into());
            }
            Kind::Url(field) => {
                // The value is not repeated, because it may carry a password.
                if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
                    return Err(format!("it must begin with postgres://, as in {}", self.example()));
                }
                Server::parse(text, |_| None, "").map_err(|what| format!("it cannot be understood: {what}"))?;
                *field(config) = Some(SecretUrl(text.into()));
            }
            Kind::Switch(field) => *field(config) = notify::switch(text)?,
            Kind::Notices(field) => *field(config) = notify::kinds(text)?,
            Kind::Program(field) => *field(config) = Some(notify::program(text)?),
            Kind::Webhook(field) => {
                Webhook::new(text, None)?;
                *field(config) = Some(text.into());
            }
            Kind::File(field) => *field(config) = Some(notify::file(text)?),
            Kind::Directory(field) => *field(config) = Some(workspace::directory(text)?),
            Kind::List(field) => *field(config) = workspace::list(text)?,
            Kind::Size(field) => *field(config) = workspace::size(text)?,
        }
        Ok(())
    }

    /// Refuses a layer in which the key may not be set.
    fn admit(&self, layer: Layer) -> Result<(), String> {
        match (self.home, layer) {
            (Home::Everywhere | Home::Trusted, _) | (Home::Init, Layer::Project) | (Home::User, Layer::User) => Ok(()),
            (Home::Init, Layer::User | Layer::Environment) => Err("it belongs to one project; only its own file has it".into()),
            (Home::User, Layer::Project) => Err("it may carry a password and this file may be committed; \
                 set it in the user's file with: banksman config set --user store URL"
                .into()),
            (Home::User, Layer::Environment) => Err("the variable for it is BANKSMAN_STORE".into()),
        }
    }

    /// A value as it may be printed.
    pub fn masked(&self, text: &str) -> String {
        match self.kind {
            Kind::Url(_) => masked(text),
            Kind::Webhook(_) => notify::masked(text),
            Kind::Duration(_) | Kind::Period(_) | Kind::Span(_) | Kind::Limit(_) => text.into(),
            Kind::Count(_) | Kind::Number(_) | Kind::Word(..) | Kind::Id(_) => text.into(),
            Kind::Switch(_) | Kind::Notices(_) => text.into(),
            Kind::Size(_) => text.into(),
            Kind::Program(_) | Kind::File(_) | Kind::Directory(_) | Kind::List(_) => notify::harmless(text),
        }
    }
}

fn period(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be greater than zero".into()),
        period => Ok(period),
    }
}

/// A URL without its password. It hides too much rather than too little.
pub fn masked(url: &str) -> String {
    let (head, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (&url[..scheme.len() + 3], rest));
    // The last @, because a password that was not escaped may contain one.
    let safe = match rest.rsplit_once('@').and_then(|(login, host)| Some((login.split_once(':')?.0, host))) {
        Some((user, host)) => format!("{head}{user}:***@{host}"),
        None => url.into(),
    };
    match safe.split_once("password=") {
        Some((before, after)) => {
            let rest = after.find('&').map_or("", |at| &after[at..]);
            format!("{before}password=***{rest}")
        }
        None => safe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_and_every_example_is_valid() {
        let config = Config::default();
        assert_eq!((config.heartbeat_timeout.as_secs(), config.wait_timeout.as_secs()), (60, 1_800));
        for key in KEYS {
            key.assign(&mut Config::default(), key.example()).unwrap();
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(masked("postgres://me:secret@db/app"), "postgres://me:***@db/app");
        assert_eq!(masked("postgres://me:p@ss:w/rd@db/app"), "postgres://me:***@db/app");
        assert_eq!(masked("postgres://me@db:5432/app"), "postgres://me@db:5432/app");
        assert_eq!(masked("postgres://db/app?password=secret&x=1"), "postgres://db/app?password=***&x=1");
        let config = Config { store: Some(SecretUrl("postgres://me:hunter2@db/app".into())), ..Config::default() };
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
