//! Stories that together use every verb, line by line.

pub(super) const GENERAL: &[&[&str]] = &[
    &["init"],
    &["locks", "list"],
    &["locks", "define", "db", "--ttl", "1h"],
    &["locks", "list"],
    &["locks", "show", "db"],
    &["locks", "acquire", "db", "--holder", "a"],
    &["locks", "acquire", "bound", "--holder", "a", "--pid", "1", "--metadata", "[1]"],
    &["locks", "list", "--held"],
    &["locks", "show", "db"],
    &["locks", "heartbeat", "db", "--holder", "a", "--epoch", "2"],
    &["locks", "release", "db", "--holder", "a", "--epoch", "2"],
    &["locks", "release", "db", "--force"],
    &["locks", "acquire", "short", "--ttl", "1ms"],
    &["locks", "cleanup", "--dry-run"],
    &["locks", "cleanup"],
    &["semaphores", "define", "gpu", "--capacity", "4"],
    &["semaphores", "list"],
    &["semaphores", "acquire", "gpu", "--weight", "2", "--holder", "a"],
    &["semaphores", "show", "gpu"],
    &["semaphores", "heartbeat", "gpu", "--holder", "a"],
    &["semaphores", "release", "gpu", "--holder", "a"],
    &["semaphores", "cleanup"],
    &["events", "emit", "deploy:done"],
    &["bus", "post", "INFO", "hello", "--author", "ada"],
    &["bus", "read"],
    &["bus", "stats"],
    &["bus", "export", "bus.jsonl"],
    &["events"],
    &["events", "compact", "--keep-events", "2"],
    &["doctor"],
    &["config", "list"],
    &["config", "get", "locking.wait_timeout"],
    &["config", "set", "locking.wait_timeout", "5m"],
    &["trust", "--show"],
    &["demo"],
    &["config", "set", "--user", "notify.command", "true"],
    &["notify", "test"],
    &["completions", "bash"],
    &["agents", "list"],
    &["timeline"],
    &["report"],
    &["man"],
    &["man", "pages"],
];

/// A backlog, from the first section to the last.
pub(super) const BACKLOG: &[&[&str]] = &[
    &["sections", "list"],
    &["tasks", "import", "none.md"],
    &["sections", "add", "alpha", "--exclusive"],
    &["sections", "update", "alpha", "--exclusive", "false"],
    &["tasks", "list"],
    &["tasks", "add", "first", "--section", "alpha", "--lock", "x", "--run", "echo hi"],
    &["tasks", "add", "second", "--depends-on", "first", "--label", "l"],
    &["tasks", "add", "third"],
    &["tasks", "update", "second", "--priority", "1"],
    &["tasks", "list"],
    &["tasks", "show", "first"],
    &["send", "first", "hello", "--author", "ada", "--id", "m-1"],
    &["mailbox", "list"],
    &["mailbox", "show", "m-1"],
    &["tasks", "done", "second", "--anyway", "--output", "[1]"],
    &["tasks", "take", "third", "--holder", "ann"],
    &["tasks", "release", "third", "--holder", "ann"],
    &["tasks", "fail", "third", "--error", "no"],
    &["tasks", "retry", "third"],
    &["tasks", "cancel", "third"],
    &["tasks", "delete", "third"],
    &["run", "--until-idle", "--quiet"],
    &["tasks", "wait", "first"],
    &["tasks", "show", "second"],
    &["tasks", "show", "first"],
    &["tasks", "logs", "first"],
    &["sections", "list"],
    &["sections", "show", "alpha"],
    &["sections", "add", "beta"],
    &["sections", "delete", "beta"],
    &["pause"],
    &["stop", "second"],
    &["stop"],
    &["resume", "second"],
    &["resume"],
];

/// Queries about the backlog that the story before leaves, which has had one run.
pub(super) const INSIGHT: &[&[&str]] = &[
    &["tasks", "add", "fourth", "--run", "true", "--semaphore", "tpu"],
    &["tasks", "add", "fifth", "--run", "true", "--lock", "other", "--depends-on", "fourth"],
    &["locks", "acquire", "other", "--holder", "b"],
    &["why", "fourth"],
    &["why", "fifth"],
    &["why", "first"],
    &["tasks", "fail", "fourth", "--error", "no"],
    &["status"],
    &["decisions", "list"],
    &["decisions", "review"],
    &["sessions", "list"],
    &["sessions", "list", "--all"],
    &["sessions", "show", "r-"],
    &["sessions", "logs", "r-"],
    &["sessions", "kill", "r-"],
];

/// A queue, from its definition to its removal, in a project of its own: items and epochs are numbered by the events.
pub(super) const QUEUES: &[&[&str]] = &[
    &["queues", "list"],
    &["queues", "define", "triage", "--max-attempts", "2"],
    &["queues", "push", "triage", "{}", "--dedupe", "k"],
    &["queues", "push", "triage", "{}", "--dedupe", "k"],
    &["queues", "list"],
    &["queues", "take", "triage", "--holder", "a"],
    &["queues", "extend", "triage", "q-2", "--holder", "a", "--epoch", "3"],
    &["queues", "show", "triage"],
    &["queues", "fail", "triage", "q-2", "--holder", "a", "--epoch", "3", "--error", "no"],
    &["queues", "take", "triage", "--holder", "a"],
    &["queues", "fail", "triage", "q-2", "--holder", "a", "--epoch", "5", "--error", "no"],
    &["queues", "show", "triage", "q-2"],
    &["queues", "list", "--dead"],
    &["queues", "requeue", "triage", "q-2"],
    &["queues", "requeue", "triage", "--all"],
    &["queues", "take", "triage", "--holder", "a"],
    &["queues", "complete", "triage", "q-2", "--holder", "a", "--epoch", "9"],
    &["queues", "pause", "triage"],
    &["queues", "resume", "triage"],
    &["queues", "purge", "triage", "--all"],
];

pub(super) const RUNBOOKS: &[&[&str]] = &[
    &["runbooks", "new", "feature"],
    &["runbooks", "check"],
    &["runbooks", "list"],
    &["runbooks", "show", "good"],
    &["runbooks", "schema"],
];

/// A guard that holds, and a guard that does not.
pub(super) const GUARDED: &str =
    "[guard.calm]\ncondition = { lock_free = \"x\" }\n[guard.never]\ncondition = { file_exists = \"nowhere\" }\n";

pub(super) const GUARDS: &[&[&str]] = &[&["guards", "list"], &["guards", "check", "calm"]];

pub(super) const CREW: &str =
    "[queue.work]\n[worker.hand]\nqueue = \"work\"\nrun = \"true\"\nwake_on = \"git:push\"\n[on.\"git:push\"]\nnotify = \"x\"\n";

/// A worker, from its runbook to its removal.
pub(super) const WORKERS: &[&[&str]] = &[
    &["workers", "list"],
    &["runbooks", "apply", "crew"],
    &["workers", "list"],
    &["workers", "wake", "hand"],
    &["workers", "pause", "hand"],
    &["workers", "resume", "hand"],
    &["workers", "show", "hand"],
    &["runbooks", "remove", "crew"],
];

/// A runbook for two pipelines whose phases end manually.
pub(super) const WAYS: &str = "[pipeline.way]\nvars = [\"a\"]\n[[pipeline.way.phase]]\nname = \"only\"\nrun = \"true\"\n";

pub(super) const PIPELINES: &[&[&str]] = &[
    &["pipelines", "list"],
    &["pipelines", "start", "way", "--var", "a=1", "--title", "walk"],
    &["pipelines", "start", "way", "--var", "a=1", "--title", "next", "--depends-on", "walk"],
    &["pipelines", "list"],
    &["pipelines", "unblock", "next"],
    &["why", "next"],
    &["status"],
    &["pipelines", "set", "--pipeline", "next", "b:=[2]"],
    &["pipelines", "checkpoint", "--pipeline", "next", "half"],
    &["pipelines", "show", "next"],
    &["tasks", "fail", "next: only", "--error", "no"],
    &["pipelines", "retry", "next"],
    &["pipelines", "cancel", "next"],
    &["pipelines", "delete", "next"],
];
