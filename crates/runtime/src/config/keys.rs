//! The table of all settings.

use banksman_core::task::OnExhausted;
use banksman_core::task::retry::OnTimeout;

use super::{Home, Key, Kind};

/// Former names, each with the one that took its place. They keep working.
pub static FORMER: &[(&str, &str)] = &[("task.heartbeat_timeout", "task.silence_timeout")];

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
        name: "shared",
        kind: Kind::Switch(|config| &mut config.shared),
        home: Home::Init,
        default: Some("off"),
        description: "whether the project is kept in a database; written by `init` and `store copy`",
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
        name: "locking.task_timeout",
        kind: Kind::Period(|config| &mut config.task_timeout),
        home: Home::Everywhere,
        default: Some("60m"),
        description: "how long a manual claim on a task, with everything that was claimed together, lives without a heartbeat",
    },
    Key {
        name: "locking.section_timeout",
        kind: Kind::Period(|config| &mut config.section_timeout),
        home: Home::Everywhere,
        default: Some("120m"),
        description: "accepted without effect: an exclusive section is kept exactly as long as somebody works in it",
    },
    Key {
        name: "locking.overtake",
        kind: Kind::Duration(|config| &mut config.overtake),
        home: Home::Everywhere,
        default: Some("30s"),
        description: "how long others may overtake a claim that waits; then what is free is reserved for it",
    },
    Key {
        name: "loop.max_restarts",
        kind: Kind::Number(|config| &mut config.restart.max_restarts),
        home: Home::Everywhere,
        default: Some("100"),
        description: "how many attempts a task that was added with --loop has at most",
    },
    Key {
        name: "loop.restart_delay",
        kind: Kind::Span(|config| &mut config.restart.delay),
        home: Home::Everywhere,
        default: Some("1s"),
        description: "how long such a task rests between two attempts",
    },
    Key {
        name: "loop.child_wait",
        kind: Kind::Span(|config| &mut config.restart.child_wait),
        home: Home::Everywhere,
        default: Some("300s"),
        description: "how long its children may take after it is done",
    },
    Key {
        name: "loop.on_children_timeout",
        kind: Kind::Word(&["warn", "fail", "kill"], |config, at| {
            config.restart.on_children_timeout = [OnTimeout::Warn, OnTimeout::Fail, OnTimeout::Kill][at]
        }),
        home: Home::Everywhere,
        default: Some("warn"),
        description: "what then: it is done with a warning, it has failed, or they are cancelled",
    },
    Key {
        name: "limits.max_concurrent_runs",
        kind: Kind::Count(|config| &mut config.max_concurrent_runs),
        home: Home::Everywhere,
        default: Some("4"),
        description: "how many runs of the project may live at a time, on all its runners; 0 for any number",
    },
    Key {
        name: "limits.max_concurrent_root_tasks",
        kind: Kind::Count(|config| &mut config.max_concurrent_root_tasks),
        home: Home::Everywhere,
        default: Some("0"),
        description: "how many tasks that are no children may be under way at a time, in the order of their arrival; 0 for any number",
    },
    Key {
        name: "task.silence_timeout",
        kind: Kind::Period(|config| &mut config.silence_timeout),
        home: Home::Everywhere,
        default: Some("15m"),
        description: "how long a run may be without output and heartbeat before it counts as stuck, unless it works",
    },
    Key {
        name: "task.max_duration",
        kind: Kind::Limit(|config| &mut config.max_duration),
        home: Home::Everywhere,
        default: Some("none"),
        description: "how long a run may take, with or without signs of life",
    },
    Key {
        name: "task.max_recovery_attempts",
        kind: Kind::Count(|config| &mut config.max_recovery_attempts),
        home: Home::Everywhere,
        default: Some("3"),
        description: "how often a task is helped: its run nudged, restarted, or followed by another after its session was lost",
    },
    Key {
        name: "task.on_exhausted",
        kind: Kind::Word(&["escalate", "fail"], |config, at| {
            config.on_exhausted = [OnExhausted::Escalate, OnExhausted::Fail][at]
        }),
        home: Home::Everywhere,
        default: Some("escalate"),
        description: "what to do with a task that was recovered so often: ask a person, or fail it",
    },
    Key {
        name: "task.checkpoint_interval",
        kind: Kind::Limit(|config| &mut config.checkpoint_interval),
        home: Home::Everywhere,
        default: Some("none"),
        description: "how often it is recorded that a run is at work, as an event",
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
    Key {
        name: "queue.visibility_timeout",
        kind: Kind::Period(|config| &mut config.queue_visibility_timeout),
        home: Home::Everywhere,
        default: Some("5m"),
        description: "how long an item that was taken is left to its holder, in queues that are defined without a visibility timeout",
    },
    Key {
        name: "queue.max_attempts",
        kind: Kind::Number(|config| &mut config.queue_max_attempts),
        home: Home::Everywhere,
        default: Some("3"),
        description: "how often an item is taken at most, in queues that are defined without max attempts",
    },
    Key {
        name: "notify.on",
        kind: Kind::Notices(|config| &mut config.notify.on),
        home: Home::Everywhere,
        default: Some("all"),
        description: "what people are told of: all, or some of escalate, decision, task_failed, backlog_finished, route",
    },
    Key {
        name: "notify.desktop",
        kind: Kind::Switch(|config| &mut config.notify.desktop),
        home: Home::Everywhere,
        default: Some("off"),
        description: "whether notices appear on the desktop, through notify-send",
    },
    Key {
        name: "notify.sound",
        kind: Kind::Switch(|config| &mut config.notify.sound),
        home: Home::Everywhere,
        default: Some("off"),
        description: "whether notices on the desktop make a sound",
    },
    Key {
        name: "notify.command",
        kind: Kind::Program(|config| &mut config.notify.command),
        home: Home::Trusted,
        default: None,
        description: "a command that is run for every notice, with the notice in its environment and on its stdin",
    },
    Key {
        name: "notify.webhook",
        kind: Kind::Webhook(|config| &mut config.notify.webhook),
        home: Home::Trusted,
        default: None,
        description: "a URL that every notice is posted to as JSON",
    },
    Key {
        name: "notify.webhook_secret_file",
        kind: Kind::File(|config| &mut config.notify.webhook_secret_file),
        home: Home::Trusted,
        default: None,
        description: "a file that only its owner can read, with the secret that posted notices are signed with",
    },
];
