//! The table of all settings.

use banksman_adapters::git::Leftovers;
use banksman_core::agent::OnQuota;
use banksman_core::task::OnExhausted;
use banksman_core::task::retry::OnTimeout;

use super::{Home, Key, Kind, OnConflict, WorkspaceDefault};

/// Former names, each with the one that took its place. They keep working.
pub static FORMER: &[(&str, &str)] =
    &[("task.heartbeat_timeout", "task.silence_timeout"), ("loop.max_restarts", "loop.max_attempts")];

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
        description: "how long to wait for a lock or slots, unless --timeout says otherwise",
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
        description: "accepted without effect: an exclusive section is held exactly as long as a run or a claim is in it",
    },
    Key {
        name: "locking.overtake",
        kind: Kind::Duration(|config| &mut config.overtake),
        home: Home::Everywhere,
        default: Some("30s"),
        description: "how long others may overtake a claim that waits; then what is free is reserved for it",
    },
    Key {
        name: "loop.max_attempts",
        kind: Kind::Number(|config| &mut config.restart.max_attempts),
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
        name: "workspace.default",
        kind: Kind::Word(&["checkout", "dir", "worktree"], |config, at| {
            config.workspace.default = [WorkspaceDefault::Checkout, WorkspaceDefault::Dir, WorkspaceDefault::Worktree][at]
        }),
        home: Home::Everywhere,
        default: Some("checkout"),
        description: "where a task works that is added without --workspace: in the project's checkout, in a directory or in a worktree of its own",
    },
    Key {
        name: "workspace.root",
        kind: Kind::Directory(|config| &mut config.workspace.root),
        home: Home::Everywhere,
        default: None,
        description: "the directory of the worktrees; without it, `.NAME-banksman` beside the checkout NAME",
    },
    Key {
        name: "workspace.copy",
        kind: Kind::List(|config| &mut config.workspace.copy),
        home: Home::Everywhere,
        default: Some(""),
        description: "ignored files and directories of the checkout that every new worktree gets a copy of",
    },
    Key {
        name: "workspace.setup",
        kind: Kind::Program(|config| &mut config.workspace.setup),
        home: Home::Trusted,
        default: None,
        description: "a command that is run once in every new worktree, before the first command of its task",
    },
    Key {
        name: "workspace.setup_inputs",
        kind: Kind::List(|config| &mut config.workspace.setup_inputs),
        home: Home::Everywhere,
        default: Some(""),
        description: "files in the worktree; when one of them has changed, the setup is run again before the next run",
    },
    Key {
        name: "workspace.save_ignored",
        kind: Kind::List(|config| &mut config.workspace.save_ignored),
        home: Home::Everywhere,
        default: Some(""),
        description: "patterns of ignored files that are saved, too, before a worktree is removed",
    },
    Key {
        name: "workspace.keep_for",
        kind: Kind::Period(|config| &mut config.workspace.keep_for),
        home: Home::Everywhere,
        default: Some("14d"),
        description: "how long the worktree of a task that is over is kept; then it is saved and removed",
    },
    Key {
        name: "workspace.min_free",
        kind: Kind::Size(|config| &mut config.workspace.min_free),
        home: Home::Everywhere,
        default: Some("0"),
        description: "the free disk space below which no task starts in a worktree; 0 for no such limit",
    },
    Key {
        name: "landing.target",
        kind: Kind::Id(|config| &mut config.landing.target),
        home: Home::Everywhere,
        default: None,
        description: "the branch that work lands on; if it is not set, the branch of the main checkout",
    },
    Key {
        name: "landing.check",
        kind: Kind::Program(|config| &mut config.landing.check),
        home: Home::Trusted,
        default: None,
        description: "the command that every commit must pass before it lands; it runs in a worktree of exactly that commit",
    },
    Key {
        name: "landing.timeout",
        kind: Kind::Period(|config| &mut config.landing.timeout),
        home: Home::Everywhere,
        default: Some("30m"),
        description: "how long the check may take",
    },
    Key {
        name: "landing.fresh",
        kind: Kind::Switch(|config| &mut config.landing.fresh),
        home: Home::Everywhere,
        default: Some("off"),
        description: "whether every check starts from an empty directory instead of the last build output",
    },
    Key {
        name: "landing.retries",
        kind: Kind::Count(|config| &mut config.landing.retries),
        home: Home::Everywhere,
        default: Some("2"),
        description: "how often work that conflicts or fails the check goes back to its author before a person is asked",
    },
    Key {
        name: "landing.on_conflict",
        kind: Kind::Word(&["author", "agent", "decision"], |config, at| {
            config.landing.on_conflict = [OnConflict::Author, OnConflict::Agent, OnConflict::Decision][at];
        }),
        home: Home::Everywhere,
        default: Some("author"),
        description: "who resolves a conflict: the author in another attempt (an agent in its session), the agent in a new session, or a person",
    },
    Key {
        name: "landing.leftovers",
        kind: Kind::Word(&["commit", "return", "ask"], |config, at| {
            config.landing.leftovers = [Leftovers::Commit, Leftovers::Return, Leftovers::Ask][at];
        }),
        home: Home::Everywhere,
        default: Some("commit"),
        description: "what is done with files that a task has not committed: they are committed, or go back to its author, or a person is asked",
    },
    Key {
        name: "agents.default",
        kind: Kind::Id(|config| &mut config.agents.default),
        home: Home::Everywhere,
        default: None,
        description: "the agent of `do` without --agent",
    },
    Key {
        name: "agents.on_quota",
        kind: Kind::Word(&["wait", "next"], |config, at| config.agents.on_quota = [OnQuota::Wait, OnQuota::Next][at]),
        home: Home::Everywhere,
        default: Some("wait"),
        description: "what a task with several agents does while the account of the first is limited: it waits, or the next one does it",
    },
    Key {
        name: "budget.day",
        kind: Kind::Count(|config| &mut config.budget_day),
        home: Home::Everywhere,
        default: Some("0"),
        description: "how many dollars the agents of the project may cost in a day before no more are started; 0 for any amount",
    },
    Key {
        name: "agents.retry_patience",
        kind: Kind::Period(|config| &mut config.agents.retry_patience),
        home: Home::Everywhere,
        default: Some("5m"),
        description: "how long an agent program may do nothing but try to reach its provider before its run is ended",
    },
    Key {
        name: "bus.lock_timeout",
        kind: Kind::Period(|config| &mut config.bus.lock_timeout),
        home: Home::Everywhere,
        default: Some("10s"),
        description: "how long one attempt to post a message waits while other processes write; on PostgreSQL at least 10s",
    },
    Key {
        name: "bus.attempts",
        kind: Kind::Number(|config| &mut config.bus.attempts),
        home: Home::Everywhere,
        default: Some("3"),
        description: "how often it is tried to post a message before it is given up",
    },
    Key {
        name: "bus.retry_backoff",
        kind: Kind::Duration(|config| &mut config.bus.retry_backoff),
        home: Home::Everywhere,
        default: Some("100ms"),
        description: "the pause before the second attempt to post a message; it doubles before each further one",
    },
    Key {
        name: "bus.keep",
        kind: Kind::Period(|config| &mut config.bus.keep),
        home: Home::Everywhere,
        default: Some("30d"),
        description: "how long messages are kept: `events compact` removes older ones",
    },
    Key {
        name: "notify.on",
        kind: Kind::Notices(|config| &mut config.notify.on),
        home: Home::Everywhere,
        default: Some("all"),
        description: "which notifications are sent: all, or some of escalate, decision, task_failed, backlog_finished, route",
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
    Key {
        name: "report.notify",
        kind: Kind::Switch(|config| &mut config.report_notify),
        home: Home::Everywhere,
        default: Some("off"),
        description: "whether the notice backlog_finished has the text of `banksman report` in it, as Markdown",
    },
];
