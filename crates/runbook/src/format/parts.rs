//! The small tables in blocks.

use banksman_core::guard::{CONDITION_LIMIT, DEPTH_LIMIT};
use banksman_core::resource::semaphore::CAPACITY_LIMIT;

use super::{Key, Kind, Table, key};

/// The number of retries after a failure.
pub(super) const TIMES: Kind = Kind::Number(1, 1_000);

const SLOTS: Kind = Kind::Number(1, CAPACITY_LIMIT as i64);
const LOCK: Kind = Kind::Shared("lock");
const PRIORITY: Kind = Kind::Number(i32::MIN as i64, i32::MAX as i64);

/// The ways to merge, as in `MergeHow`.
const HOW: Kind = Kind::Word(&["fast_forward", "rebase", "merge_commit"]);

/// The states of a task, as in `Status`.
const STATUS: Kind = Kind::Word(&[
    "pending",
    "blocked",
    "in_progress",
    "stuck",
    "landing",
    "review",
    "completed",
    "failed",
    "cancelled",
    "skipped",
]);

/// `lock = …`
pub(super) const LOCKS: Kind = Kind::OneOrMany(&LOCK);

/// `semaphore = …`
pub(super) const SEMAPHORES: Kind = Kind::OneOrMany(&Kind::Short(&Kind::Shared("semaphore"), &SLOTS_OF));

static SLOTS_OF: Table = Table {
    title: "semaphore = { … }",
    doc: "Slots of a semaphore that are held while a phase runs.",
    keys: &[key("name", Kind::Shared("semaphore"), "Which one.").required(), key("weight", SLOTS, "How many slots.").or("1")],
    ..Table::EMPTY
};

/// `push = …` of a phase
pub(super) const PUSHES: Kind = Kind::Short(&Kind::Shared("queue"), &PUSH);

static PUSH: Table = Table {
    title: "push = { … }",
    doc: "An item that is put into a queue: an object with variables.",
    keys: &[
        key("queue", Kind::Shared("queue"), "Which queue.").required(),
        key("priority", PRIORITY, "What is higher is taken first.").or("0"),
        key("vars", Kind::List(&Kind::Variable), "Which variables are in the item; all of them without it."),
    ],
    ..Table::EMPTY
};

/// `push = …` of a route
pub(super) const TELLS: Kind = Kind::Short(&Kind::Shared("queue"), &TELL);

static TELL: Table = Table {
    title: "on: push = { … }",
    doc: "An item that is made of an event.",
    keys: &[
        key("queue", Kind::Shared("queue"), "Which queue.").required(),
        key("priority", PRIORITY, "What is higher is taken first.").or("0"),
        // Runbooks do not define the names of event fields: `phase`, `movedTo`.
        key(
            "vars",
            Kind::List(&Kind::Plain),
            "Which fields of its data are in the item; the item is the whole event without it.",
        ),
    ],
    ..Table::EMPTY
};

/// `merge = …`
pub(super) const MERGES: Kind = Kind::Table(&MERGE);

static MERGE: Table = Table {
    title: "merge = { … }",
    doc: "A branch that is merged into another, in a temporary worktree.",
    keys: &[
        key("branch", Kind::Text, "Which branch.").required(),
        key("into", Kind::Text, "Into which.").required(),
        key("how", HOW, "How.").or("\"fast_forward\""),
    ],
    ..Table::EMPTY
};

/// `land = …`
pub(super) const LANDS: Kind = Kind::Table(&LAND);

static LAND: Table = Table {
    title: "land = { … }",
    doc: "The pipeline works in a worktree, and its work lands through the merge queue when its last phase is done. What is said when it \
          starts (`--no-land`, `--into`, `--branch`) comes first.",
    keys: &[
        key("branch", Kind::Text, "The branch of the worktree. One that is named after the pipeline without it."),
        key("into", Kind::Text, "The branch that its work lands on. That of the settings without it."),
        key(
            "returned",
            Kind::Own("phase"),
            "The phase that goes on when the work comes back, with the conflict or the failure in the worktree. Without it a person looks \
             at it.",
        ),
    ],
    ..Table::EMPTY
};

/// `on_fail = …`
pub(super) const ON_FAIL: Kind = Kind::Short(&Kind::Word(&["fail", "retry"]), &FAIL);

static FAIL: Table = Table {
    title: "on_fail = { … }",
    doc: "What follows when a phase has failed. It is always bounded: after so many times the pipeline has failed.",
    keys: &[
        key("retry", TIMES, "The phase is tried again, so often."),
        key("phase", Kind::Own("phase"), "This phase follows instead."),
        key("times", TIMES, "How often it does.").with("phase").or("3"),
    ],
    one_of: &["retry", "phase"],
    ..Table::EMPTY
};

/// `on_failure = …`
pub(super) const ON_FAILURE: Kind = Kind::Short(&Kind::Word(&["block", "warn"]), &FAILURE);

static FAILURE: Table = Table {
    title: "on_failure = { … }",
    doc: "What follows when a guard does not hold.",
    keys: &[
        key("retry", Kind::Duration, "The guard is checked again after this time."),
        key(
            "fail",
            Kind::Prose,
            "The pipeline has failed for good, and this is why. While nobody knows whether the guard holds, it waits.",
        ),
    ],
    one_of: &["retry", "fail"],
    ..Table::EMPTY
};

/// `fallback_on = …`
pub(super) const FALLBACK: Kind = Kind::OneOrMany(&Kind::Short(&Kind::Word(&["any", "timeout"]), &ERROR));

static ERROR: Table = Table {
    title: "fallback_on = [{ … }]",
    doc: "An error that is a reason to try the next approach.",
    keys: &[key("error", Kind::Regex, "This matches the error, or the output before it.").required()],
    ..Table::EMPTY
};

static HELD: Table = Table {
    title: "lock_held = { … }",
    doc: "A lock that must be held.",
    keys: &[key("lock", Kind::Text, "Which one.").required(), key("by", Kind::Text, "By whom; anybody without it.")],
    ..Table::EMPTY
};

static AVAILABLE: Table = Table {
    title: "semaphore_available = { … }",
    doc: "A semaphore that must have free slots.",
    keys: &[key("semaphore", Kind::Text, "Which one.").required(), key("slots", SLOTS, "How many slots must be free.").or("1")],
    ..Table::EMPTY
};

static MERGED: Table = Table {
    title: "branch_merged = { … }",
    doc: "A branch that must be in another.",
    keys: &[key("branch", Kind::Text, "Which one.").required(), key("into", Kind::Text, "In which.").required()],
    ..Table::EMPTY
};

static CONTAINS: Table = Table {
    title: "file_contains = { … }",
    doc: "What a file must have in it.",
    keys: &[
        key("path", Kind::Inside, "Which file, seen from the workspace of the pipeline, or else from the project.").required(),
        key("pattern", Kind::Regex, "It has a line that this matches.").required(),
    ],
    ..Table::EMPTY
};

static IN_PHASE: Table = Table {
    title: "pipeline_in_phase = { … }",
    doc: "Where a pipeline must be.",
    keys: &[
        key("pipeline", Kind::Text, "Which pipeline, by its id.").required(),
        key("phase", Kind::Own("phase"), "Which phase.").required(),
    ],
    ..Table::EMPTY
};

static RUNNING: Table = Table {
    title: "pipeline_running = { … }",
    doc: "Pipelines that run: each has begun a phase, and is not over. The pipeline that asks does not count, nor does one that \
          waits before a phase for the same condition, so that two of them never wait for each other.",
    keys: &[
        key("name", Kind::Text, "Those of this name, as in `[pipeline.NAME]`."),
        key("runbook", Kind::Text, "Those of this runbook."),
        key("phase", Kind::Own("phase"), "Those that are in this phase."),
    ],
    some_of: &["name", "runbook"],
    example: r#"[guard.only-deploy]
description = "No other deploy is running"
condition = { not = { pipeline_running = "deploy" } }

[pipeline.deploy]

[[pipeline.deploy.phase]]
name = "ship"
run = "./ship.sh"
pre = ["only-deploy"]
"#,
    ..Table::EMPTY
};

/// A shell command line, or a program.
const PROGRAM: [Key; 2] = [
    key("run", Kind::Shell, "A line for the shell. It finds the variable `title` in `$VAR_TITLE`."),
    key("argv", Kind::List(&Kind::Text), "A program with its arguments, without a shell."),
];

static COMMAND: Table = Table {
    title: "command = { … }",
    doc: "A command, and how it must end.",
    keys: &[PROGRAM[0], PROGRAM[1], key("expect_success", Kind::Flag, "Whether it must exit with 0.").or("true")],
    one_of: &["run", "argv"],
    ..Table::EMPTY
};

static LISTING: Table = Table {
    title: "command = { … }",
    doc: "A command that lists the issues of another tracker.",
    keys: &[PROGRAM[0], PROGRAM[1]],
    one_of: &["run", "argv"],
    ..Table::EMPTY
};

static TASKS: Table = Table {
    title: "tasks_complete = { … }",
    doc: "Which tasks are meant: those that all of it is true of. They are tasks of the project, unless a command lists the issues of \
          another tracker.",
    keys: &[
        key("section", Kind::Text, "Those of this section, by its name or id."),
        key("label", Kind::Text, "Those with this label."),
        key("status", STATUS, "Those with this status."),
        key("ids", Kind::List(&Kind::Text), "These."),
        key(
            "command",
            Kind::Short(&Kind::Shell, &LISTING),
            "The issues of another tracker instead: what this prints is a JSON list of objects with `id`, `status` and `labels`.",
        ),
    ],
    ..Table::EMPTY
};

/// One condition.
pub(crate) static CONDITION: Table = Table {
    title: "condition = { … }",
    doc: "One question. What nobody can find out, such as the end of a command that takes too long, is unknown, and only what is \
          true passes: the opposite of unknown is unknown.",
    keys: &[
        key("command", Kind::Short(&Kind::Shell, &COMMAND), "A command exits with 0. One that takes too long is unknown."),
        key("lock_free", Kind::Text, "Nobody holds this lock."),
        key("lock_held", Kind::Short(&Kind::Plain, &HELD), "Somebody holds this lock."),
        key("semaphore_available", Kind::Short(&Kind::Plain, &AVAILABLE), "This semaphore has a free slot, or so many."),
        key("tasks_complete", Kind::Table(&TASKS), "All these tasks are completed. None at all is as good."),
        key("no_blocked_tasks", Kind::Table(&TASKS), "None of these tasks is blocked."),
        key("issues_complete", Kind::Table(&TASKS), "The former name of `tasks_complete`."),
        key("no_blocked_issues", Kind::Table(&TASKS), "The former name of `no_blocked_tasks`."),
        key("branch_exists", Kind::Text, "There is a branch of this name."),
        key("branch_clean", Kind::Text, "The checkout of this branch has no changes. One that is not checked out has none."),
        key(
            "branch_merged",
            Kind::Table(&MERGED),
            "All that is in a branch is in another: its commits, or what a merge has made of them; merging it again would change nothing.",
        ),
        key("file_exists", Kind::Inside, "There is a file, seen from the workspace of the pipeline, or else from the project."),
        key(
            "file_contains",
            Kind::Table(&CONTAINS),
            "A file has a line that a regular expression matches. Lines over 8 KiB are not searched: without a match in another line the result is unknown.",
        ),
        key("pipeline_in_phase", Kind::Table(&IN_PHASE), "Another pipeline is in a phase."),
        key("pipeline_complete", Kind::Text, "Another pipeline, by its id, is done."),
        key("pipeline_running", Kind::Short(&Kind::Plain, &RUNNING), "Another pipeline of this name runs."),
        key("all", Kind::List(&Kind::Table(&CONDITION)), "All of these hold."),
        key("any", Kind::List(&Kind::Table(&CONDITION)), "One of these holds."),
        key("not", Kind::Table(&CONDITION), "This does not hold."),
    ],
    one_of: &[
        "command",
        "lock_free",
        "lock_held",
        "semaphore_available",
        "tasks_complete",
        "no_blocked_tasks",
        "issues_complete",
        "no_blocked_issues",
        "branch_exists",
        "branch_clean",
        "branch_merged",
        "file_exists",
        "file_contains",
        "pipeline_in_phase",
        "pipeline_complete",
        "pipeline_running",
        "all",
        "any",
        "not",
    ],
    example: r#"[guard.may-deploy]
condition = { all = [
  { lock_free = "deploy" },
  { semaphore_available = { semaphore = "builders", slots = 2 } },
  { branch_clean = { var = "branch" } },
  { branch_merged = { branch = { var = "branch" }, into = "main" } },
  { not = { file_exists = "STOP" } },
  { file_contains = { path = "VERSION", pattern = '^1\.\d+$' } },
  { tasks_complete = { section = "release", label = "must" } },
  { any = [{ command = "make smoke" }, { command = { argv = ["./smoke", "--quick"], expect_success = true } }] },
] }

[pipeline.deploy]
vars = ["branch"]

[[pipeline.deploy.phase]]
name = "deploy"
run = "./deploy.sh"
pre = ["may-deploy"]
"#,
    ..Table::EMPTY
};

const _: () = assert!(DEPTH_LIMIT == 20 && CONDITION_LIMIT == 200, "the page on conditions says so");
