//! The settings: one table of keys, and the layers that give them values.
//!
//! The user's file comes first, then the project's, then the environment; a later layer wins. Flags are the
//! caller's business.

mod duration;
mod edit;
mod layers;
mod problem;

use std::fmt;
use std::time::Duration;

use banksman_store::postgres::Server;

pub use duration::duration;
pub use edit::set;
pub use layers::{Layer, Setting, Settings, Source, Surroundings};
pub use problem::{ConfigError, Problem, distance, unknown_key};

/// What every variable that sets a key begins with.
pub const VARIABLE_PREFIX: &str = "BANKSMAN_CONFIG_";

/// All keys. Reading, listing, writing, error messages and the reference page derive from this table.
pub static KEYS: &[Key] = &[
    Key {
        name: "project",
        kind: Kind::Id(|config| &mut config.project),
        home: Home::Init,
        default: None,
        description: "the id of the project, made by `init`",
    },
    Key {
        name: "store",
        kind: Kind::Url(|config| &mut config.store),
        home: Home::User,
        default: None,
        description: "a PostgreSQL server that keeps the projects, instead of a file in each of them",
    },
    Key {
        name: "locking.heartbeat_timeout",
        kind: Kind::Period(|config| &mut config.heartbeat_timeout),
        home: Home::Everywhere,
        default: Some("60s"),
        description: "how long a grant that is bound to no process lives without a heartbeat",
    },
    Key {
        name: "locking.wait_timeout",
        kind: Kind::Duration(|config| &mut config.wait_timeout),
        home: Home::Everywhere,
        default: Some("30m"),
        description: "how long to wait in line unless --timeout says otherwise",
    },
    Key {
        name: "locking.poll_interval",
        kind: Kind::Period(|config| &mut config.poll_interval),
        home: Home::Everywhere,
        default: Some("5s"),
        description: "how often a waiter looks by itself, in case a wake-up was lost",
    },
    Key {
        name: "limits.max_concurrent_runs",
        kind: Kind::Count(|config| &mut config.max_concurrent_runs),
        home: Home::Everywhere,
        default: Some("0"),
        description: "how many sessions of the project may live at a time, on all its runners; 0 for any number",
    },
    Key {
        name: "task.heartbeat_timeout",
        kind: Kind::Period(|config| &mut config.task_heartbeat_timeout),
        home: Home::Everywhere,
        default: Some("15m"),
        description: "how long a run may be without output and heartbeat before it counts as stuck",
    },
    Key {
        name: "task.max_recovery_attempts",
        kind: Kind::Count(|config| &mut config.max_recovery_attempts),
        home: Home::Everywhere,
        default: Some("3"),
        description: "how often a task is started again after its session was lost",
    },
    Key {
        name: "task.kill_grace",
        kind: Kind::Duration(|config| &mut config.kill_grace),
        home: Home::Everywhere,
        default: Some("10s"),
        description: "how long a session may take to end when it is asked to, before it is killed",
    },
    Key {
        name: "task.log_limit_mib",
        kind: Kind::Count(|config| &mut config.log_limit_mib),
        home: Home::Everywhere,
        default: Some("10"),
        description: "the size in MiB after which the log of a run begins anew; the part before it is kept once",
    },
];

/// The settings that apply.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// The id of the project, if its file has one.
    pub project: Option<String>,
    /// The server that keeps the user's projects. It may carry a password, so it is printed by nobody.
    pub store: Option<String>,
    /// How long a lock that is bound to no process lives without a heartbeat.
    pub heartbeat_timeout: Duration,
    /// How long to wait for a lock unless told otherwise.
    pub wait_timeout: Duration,
    /// How often a waiter looks by itself, in case a wake-up was lost.
    pub poll_interval: Duration,
    /// How many sessions may live at a time; 0 for any number.
    pub max_concurrent_runs: u32,
    /// How long a run may be without a sign of life.
    pub task_heartbeat_timeout: Duration,
    /// How often a task is started again after its session was lost.
    pub max_recovery_attempts: u32,
    /// How long a session may take to end when it is asked to.
    pub kill_grace: Duration,
    /// The size of a log, in MiB, after which it begins anew.
    pub log_limit_mib: u32,
}

impl Default for Config {
    fn default() -> Config {
        let zero = Duration::ZERO;
        let mut config = Config {
            project: None,
            store: None,
            heartbeat_timeout: zero,
            wait_timeout: zero,
            poll_interval: zero,
            max_concurrent_runs: 0,
            task_heartbeat_timeout: zero,
            max_recovery_attempts: 0,
            kill_grace: zero,
            log_limit_mib: 0,
        };
        for (key, text) in KEYS.iter().filter_map(|key| Some((key, key.default?))) {
            key.assign(&mut config, text).expect("the defaults in the table are valid");
        }
        config
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("project", &self.project)
            .field("store", &self.store.as_deref().map(masked))
            .field("heartbeat_timeout", &self.heartbeat_timeout)
            .field("wait_timeout", &self.wait_timeout)
            .field("poll_interval", &self.poll_interval)
            .field("max_concurrent_runs", &self.max_concurrent_runs)
            .field("task_heartbeat_timeout", &self.task_heartbeat_timeout)
            .field("max_recovery_attempts", &self.max_recovery_attempts)
            .field("kill_grace", &self.kill_grace)
            .field("log_limit_mib", &self.log_limit_mib)
            .finish()
    }
}

/// One thing that can be set.
#[derive(Debug)]
pub struct Key {
    /// Its name, with the section before the dot.
    pub name: &'static str,
    /// What its values look like, and where they go.
    pub kind: Kind,
    /// Where it may be set.
    pub home: Home,
    /// What applies if nobody sets it.
    pub default: Option<&'static str>,
    /// What it means.
    pub description: &'static str,
}

/// What the values of a key look like, with the field that they go to.
#[derive(Debug)]
pub enum Kind {
    /// A duration, which may be nothing.
    Duration(fn(&mut Config) -> &mut Duration),
    /// A duration that is longer than nothing.
    Period(fn(&mut Config) -> &mut Duration),
    /// A number that is not negative.
    Count(fn(&mut Config) -> &mut u32),
    /// A name.
    Id(fn(&mut Config) -> &mut Option<String>),
    /// The place of a PostgreSQL database.
    Url(fn(&mut Config) -> &mut Option<String>),
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
}

impl Key {
    /// The key of this name.
    pub fn find(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// The variable that sets it: `BANKSMAN_CONFIG_LOCKING__WAIT_TIMEOUT`.
    pub fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.name.replace('.', "__").to_uppercase())
    }

    /// What a value of it looks like.
    pub fn example(&self) -> &'static str {
        match self.kind {
            Kind::Duration(_) | Kind::Period(_) => self.default.unwrap_or("90s"),
            Kind::Count(_) => self.default.unwrap_or("3"),
            Kind::Id(_) => "p-7h2k9x4m",
            Kind::Url(_) => "postgres://user@host/database",
        }
    }

    /// Reads a value and puts it where it belongs.
    fn assign(&self, config: &mut Config, text: &str) -> Result<(), String> {
        match self.kind {
            Kind::Duration(field) => *field(config) = duration(text)?,
            Kind::Period(field) => {
                let period = duration(text)?;
                if period.is_zero() {
                    return Err("it must be longer than nothing".into());
                }
                *field(config) = period;
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
                *field(config) = Some(text.into());
            }
        }
        Ok(())
    }

    /// Refuses a layer in which it may not be set.
    fn admit(&self, layer: Layer) -> Result<(), String> {
        match (self.home, layer) {
            (Home::Everywhere, _) | (Home::Init, Layer::Project) | (Home::User, Layer::User) => Ok(()),
            (Home::Init, Layer::User | Layer::Environment) => Err("it belongs to one project; only its own file has it".into()),
            (Home::User, Layer::Project) => Err("it may carry a password and this file may be committed; \
                 set it in the user's file with: banksman config set --user store URL"
                .into()),
            (Home::User, Layer::Environment) => Err("the variable for it is BANKSMAN_STORE".into()),
        }
    }

    /// A value of it as it may be shown.
    pub fn shown(&self, text: &str) -> String {
        match self.kind {
            Kind::Url(_) => masked(text),
            Kind::Duration(_) | Kind::Period(_) | Kind::Count(_) | Kind::Id(_) => text.into(),
        }
    }
}

/// A URL without its password. It hides too much rather than too little.
pub fn masked(url: &str) -> String {
    let (head, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (&url[..scheme.len() + 3], rest));
    // The last @, because a password that was not escaped may contain one.
    let shown = match rest.rsplit_once('@').and_then(|(login, host)| Some((login.split_once(':')?.0, host))) {
        Some((user, host)) => format!("{head}{user}:***@{host}"),
        None => url.into(),
    };
    match shown.split_once("password=") {
        Some((before, after)) => {
            let rest = after.find('&').map_or("", |at| &after[at..]);
            format!("{before}password=***{rest}")
        }
        None => shown,
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
        let config = Config { store: Some("postgres://me:secret@db/app".into()), ..Config::default() };
        assert!(!format!("{config:?}").contains("secret"));
    }
}
