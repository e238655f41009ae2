//! The table of all settings.

use banksman_adapters::git::Leftovers;
use banksman_core::agent::OnQuota;
use banksman_core::task::OnExhausted;
use banksman_core::task::retry::OnTimeout;

use super::{Home, Key, Kind, OnConflict, WorkspaceDefault, key};

/// Former names with their replacements. They keep working.
pub static FORMER: &[(&str, &str)] =
    &[("task.heartbeat_timeout", "task.silence_timeout"), ("loop.max_restarts", "loop.max_attempts")];

/// All keys. Reading, listing, writing, error messages and the reference page derive from this table.
pub static KEYS: &[Key] = &[
    key("project", Kind::Id(|config| &mut config.project)).at(Home::Init).means("the id of the project, made by `init`"),
    key("shared", Kind::Switch(|config| &mut config.shared))
        .at(Home::Init)
        .or("off")
        .means("whether the project is kept in a database; written by `init` and `store copy`"),
    key("store", Kind::Url(|config| &mut config.store))
        .at(Home::User)
        .means("a PostgreSQL server that keeps the projects, instead of a file in each of them"),
    key("locking.heartbeat_timeout", Kind::Period(|config| &mut config.heartbeat_timeout))
        .or("60s")
        .means("how long a grant that is bound to no process lives without a heartbeat"),
    key("locking.wait_timeout", Kind::Duration(|config| &mut config.wait_timeout))
        .or("30m")
        .means("how long to wait for a lock or slots, unless --timeout says otherwise"),
    key("locking.poll_interval", Kind::Period(|config| &mut config.poll_interval))
        .or("5s")
        .means("how often a waiter looks by itself, in case a wake-up was lost"),
    key("locking.task_timeout", Kind::Period(|config| &mut config.task_timeout))
        .or("60m")
        .means("how long a manual claim on a task, with everything that was claimed together, lives without a heartbeat"),
    key("locking.section_timeout", Kind::Period(|config| &mut config.section_timeout))
        .or("120m")
        .means("accepted without effect: an exclusive section is held exactly as long as a run or a claim is in it"),
    key("locking.overtake", Kind::Duration(|config| &mut config.overtake))
        .or("30s")
        .means("how long others may overtake a claim that waits; then what is free is reserved for it"),
    key("loop.max_attempts", Kind::Number(|config| &mut config.restart.max_attempts))
        .or("100")
        .means("how many attempts a task that was added with --loop has at most"),
    key("loop.restart_delay", Kind::Span(|config| &mut config.restart.delay))
        .or("1s")
        .means("how long such a task rests between two attempts"),
    key("loop.child_wait", Kind::Span(|config| &mut config.restart.child_wait))
        .or("300s")
        .means("how long its children may take after it is done"),
    key(
        "loop.on_children_timeout",
        Kind::Word(&["warn", "fail", "kill"], |config, at| {
            config.restart.on_children_timeout = [OnTimeout::Warn, OnTimeout::Fail, OnTimeout::Kill][at]
        }),
    )
    .or("warn")
    .means("what then: it is done with a warning, it has failed, or they are cancelled"),
    key("limits.max_concurrent_runs", Kind::Count(|config| &mut config.max_concurrent_runs))
        .or("4")
        .means("how many runs of the project may live at a time, on all its runners; 0 for any number"),
    key("limits.max_concurrent_root_tasks", Kind::Count(|config| &mut config.max_concurrent_root_tasks))
        .or("0")
        .means("how many tasks that are no children may be under way at a time, in the order of their arrival; 0 for any number"),
    key("task.silence_timeout", Kind::Period(|config| &mut config.silence_timeout))
        .or("15m")
        .means("how long a run may be without output and heartbeat before it counts as stuck, unless it works"),
    key("task.max_duration", Kind::Limit(|config| &mut config.max_duration))
        .or("none")
        .means("how long a run may take, with or without signs of life"),
    key("task.max_recovery_attempts", Kind::Count(|config| &mut config.max_recovery_attempts))
        .or("3")
        .means("how often a task is helped: its run nudged, restarted, or followed by another after its session was lost"),
    key(
        "task.on_exhausted",
        Kind::Word(&["escalate", "fail"], |config, at| config.on_exhausted = [OnExhausted::Escalate, OnExhausted::Fail][at]),
    )
    .or("escalate")
    .means("what to do with a task that was recovered so often: ask a person, or fail it"),
    key("task.checkpoint_interval", Kind::Limit(|config| &mut config.checkpoint_interval))
        .or("none")
        .means("how often an event records that a run is in progress"),
    key("task.kill_grace", Kind::Duration(|config| &mut config.kill_grace))
        .or("10s")
        .means("how long a session may take to end when it is asked to, before it is killed"),
    key("task.log_limit_mib", Kind::Count(|config| &mut config.log_limit_mib))
        .or("10")
        .means("the size in MiB after which the log of a run begins anew; the part before it is kept once"),
    key("queue.visibility_timeout", Kind::Period(|config| &mut config.queue_visibility_timeout))
        .or("5m")
        .means("how long an item that was taken is left to its holder, in queues that are defined without a visibility timeout"),
    key("queue.max_attempts", Kind::Number(|config| &mut config.queue_max_attempts))
        .or("3")
        .means("how often an item is taken at most, in queues that are defined without max attempts"),
    key(
        "workspace.default",
        Kind::Word(&["checkout", "dir", "worktree"], |config, at| {
            config.workspace.default = [WorkspaceDefault::Checkout, WorkspaceDefault::Dir, WorkspaceDefault::Worktree][at]
        }),
    )
    .or("checkout")
    .means(
        "where a task works that is added without --workspace: in the project's checkout, in a directory or \
             in a worktree of its own",
    ),
    key("workspace.root", Kind::Directory(|config| &mut config.workspace.root))
        .means("the directory of the worktrees; without it, `.NAME-banksman` beside the checkout NAME"),
    key("workspace.copy", Kind::List(|config| &mut config.workspace.copy))
        .or("")
        .means("ignored files and directories of the checkout that every new worktree gets a copy of"),
    key("workspace.setup", Kind::Program(|config| &mut config.workspace.setup))
        .at(Home::Trusted)
        .means("a command that is run once in every new worktree, before the first command of its task"),
    key("workspace.setup_inputs", Kind::List(|config| &mut config.workspace.setup_inputs))
        .or("")
        .means("files in the worktree; when one of them has changed, the setup is run again before the next run"),
    key("workspace.save_ignored", Kind::List(|config| &mut config.workspace.save_ignored))
        .or("")
        .means("patterns of ignored files that are saved, too, before a worktree is removed"),
    key("workspace.keep_for", Kind::Period(|config| &mut config.workspace.keep_for))
        .or("14d")
        .means("how long the worktree of a task that is over is kept; then it is saved and removed"),
    key("workspace.min_free", Kind::Size(|config| &mut config.workspace.min_free))
        .or("0")
        .means("the free disk space below which no task starts in a worktree; 0 for no such limit"),
    key("landing.target", Kind::Id(|config| &mut config.landing.target))
        .means("the branch that work lands on; if it is not set, the branch of the main checkout"),
    key("landing.check", Kind::Program(|config| &mut config.landing.check))
        .at(Home::Trusted)
        .means("the command that every commit must pass before it lands; it runs in a worktree of exactly that commit"),
    key("landing.timeout", Kind::Period(|config| &mut config.landing.timeout)).or("30m").means("how long the check may take"),
    key("landing.fresh", Kind::Switch(|config| &mut config.landing.fresh))
        .or("off")
        .means("whether every check starts from an empty directory instead of the last build output"),
    key("landing.retries", Kind::Count(|config| &mut config.landing.retries))
        .or("2")
        .means("how often work that conflicts or fails the check goes back to its author before a person is asked"),
    key(
        "landing.on_conflict",
        Kind::Word(&["author", "agent", "decision"], |config, at| {
            config.landing.on_conflict = [OnConflict::Author, OnConflict::Agent, OnConflict::Decision][at];
        }),
    )
    .or("author")
    .means(
        "who resolves a conflict: the author in another attempt (an agent in its session), the agent in a \
             new session, or a person",
    ),
    key(
        "landing.leftovers",
        Kind::Word(&["commit", "return", "ask"], |config, at| {
            config.landing.leftovers = [Leftovers::Commit, Leftovers::Return, Leftovers::Ask][at];
        }),
    )
    .or("commit")
    .means(
        "what is done with files that a task has not committed: they are committed, or go back to its \
             author, or a person is asked",
    ),
    key("agents.default", Kind::Id(|config| &mut config.agents.default)).means("the agent of `do` without --agent"),
    key(
        "agents.on_quota",
        Kind::Word(&["wait", "next"], |config, at| config.agents.on_quota = [OnQuota::Wait, OnQuota::Next][at]),
    )
    .or("wait")
    .means("what a task with several agents does while the account of the first is limited: it waits, or the next one does it"),
    key("budget.day", Kind::Count(|config| &mut config.budget_day))
        .or("0")
        .means("how many dollars the agents of the project may cost in a day before no more are started; 0 for any amount"),
    key("agents.retry_patience", Kind::Period(|config| &mut config.agents.retry_patience))
        .or("5m")
        .means("how long an agent program may do nothing but try to reach its provider before its run is ended"),
    key("bus.lock_timeout", Kind::Period(|config| &mut config.bus.lock_timeout))
        .or("10s")
        .means("how long one attempt to post a message waits while other processes write; on PostgreSQL at least 10s"),
    key("bus.attempts", Kind::Number(|config| &mut config.bus.attempts))
        .or("3")
        .means("how often it is tried to post a message before it is given up"),
    key("bus.retry_backoff", Kind::Duration(|config| &mut config.bus.retry_backoff))
        .or("100ms")
        .means("the pause before the second attempt to post a message; it doubles before each further one"),
    key("bus.keep", Kind::Period(|config| &mut config.bus.keep))
        .or("30d")
        .means("how long messages are kept: `events compact` removes older ones"),
    key("notify.on", Kind::Notices(|config| &mut config.notify.on))
        .or("all")
        .means("which notifications are sent: all, or some of escalate, decision, task_failed, backlog_finished, route"),
    key("notify.desktop", Kind::Switch(|config| &mut config.notify.desktop))
        .or("off")
        .means("whether notices appear on the desktop, through notify-send"),
    key("notify.sound", Kind::Switch(|config| &mut config.notify.sound))
        .or("off")
        .means("whether notices on the desktop make a sound"),
    key("notify.command", Kind::Program(|config| &mut config.notify.command))
        .at(Home::Trusted)
        .means("a command that is run for every notice, with the notice in its environment and on its stdin"),
    key("notify.webhook", Kind::Webhook(|config| &mut config.notify.webhook))
        .at(Home::Trusted)
        .means("a URL that every notice is posted to as JSON"),
    key("notify.webhook_secret_file", Kind::File(|config| &mut config.notify.webhook_secret_file))
        .at(Home::Trusted)
        .means("a file that only its owner can read, with the secret that posted notices are signed with"),
    key("report.notify", Kind::Switch(|config| &mut config.report_notify))
        .or("off")
        .means("whether the notice backlog_finished has the text of `banksman report` in it, as Markdown"),
];
