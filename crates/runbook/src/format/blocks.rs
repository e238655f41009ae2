//! The blocks of a runbook.

use banksman_core::queue::{ATTEMPTS_LIMIT, LENGTH_LIMIT};
use banksman_core::resource::semaphore::CAPACITY_LIMIT;
use banksman_core::worker::CONCURRENCY_LIMIT;

use super::parts::{CONDITION, FALLBACK, LANDS, LOCKS, MERGES, ON_FAIL, ON_FAILURE, PUSHES, SEMAPHORES, TELLS};
use super::{Key, Kind, Table, key};

const DESCRIPTION: Key = key("description", Kind::Prose, "What it is for, in a line.");

const RUN: Key =
    key("run", Kind::Shell, "A line for the shell. Nothing is put into it: it finds the variable `title` in `$VAR_TITLE`.");
const ARGV: Key =
    key("argv", Kind::List(&Kind::Template), "A program with its arguments, without a shell. Each of them is a template.");
const AGENT: Key = key("agent", Kind::Own("agent"), "The agent that is given a prompt.");
const PROMPT: Key = key("prompt", Kind::Template, "The prompt for the agent.").with("agent");
const PROMPT_FILE: Key =
    key("prompt_file", Kind::Path, "The file with the prompt, relative to the runbook's folder.").with("agent");

/// The whole file.
pub(crate) static ROOT: Table = Table {
    title: "a runbook",
    doc: "A runbook is a TOML file in `.banksman/runbooks`; it is called like the file, without the ending.",
    keys: &[
        DESCRIPTION,
        key("pipeline", Kind::Each(&Kind::Own("pipeline"), &PIPELINE), "Pipelines: phases with conditions between them."),
        key("guard", Kind::Each(&Kind::Own("guard"), &GUARD), "Guards: conditions that phases name."),
        key("strategy", Kind::Each(&Kind::Own("strategy"), &STRATEGY), "Strategies: approaches, tried one after the other."),
        key("agent", Kind::Each(&Kind::Own("agent"), &AGENT_BLOCK), "Agents: programs that are given a prompt."),
        key("lock", Kind::Each(&Kind::Shared("lock"), &LOCK), "The terms of locks."),
        key("semaphore", Kind::Each(&Kind::Shared("semaphore"), &SEMAPHORE), "Semaphores, with how many slots they have."),
        key("queue", Kind::Each(&Kind::Shared("queue"), &QUEUE), "Queues, with their terms."),
        key("worker", Kind::Each(&Kind::Own("worker"), &WORKER), "Workers: what becomes of the items of a queue."),
        key("on", Kind::Each(&Kind::Event, &ON), "What happens when something happens."),
    ],
    example: r#"description = "Build and test a branch"

[pipeline.check]
vars = ["branch"]

[[pipeline.check.phase]]
name = "build"
run = "git switch --detach \"$VAR_BRANCH\" && make"

[[pipeline.check.phase]]
name = "test"
run = "make test"
"#,
    ..Table::EMPTY
};

static PIPELINE: Table = Table {
    title: "[pipeline.NAME]",
    doc: "What is done, phase by phase. A pipeline that runs is pinned to the text it was started with.",
    keys: &[
        DESCRIPTION,
        key(
            "vars",
            Kind::Vars,
            "Its variables. A name in the list must be given when the pipeline starts; a table in it, or instead of it, gives \
             variables their defaults. Names are lower-case letters, digits and `_`.",
        ),
        key("land", LANDS, "It works in a worktree, and its work lands."),
        key("phase", Kind::List(&Kind::Table(&PHASE)), "Its phases. It begins with the first.").required(),
    ],
    example: r#"[pipeline.release]
description = "Tag a version and tell people"
vars = ["version", { channel = "beta" }]

[[pipeline.release.phase]]
name = "tag"
argv = ["git", "tag", "v{{ version }}"]

[[pipeline.release.phase]]
name = "announce"
run = 'echo "$VAR_VERSION is out on $VAR_CHANNEL"'
"#,
    ..Table::EMPTY
};

static PHASE: Table = Table {
    title: "[[pipeline.NAME.phase]]",
    doc: "One phase: one thing that is done, what must hold before and after it, and what comes next. Beside its variables, a \
          template can name `pipeline`, `phase`, `attempt` and `reason`: the failure that led to this attempt, or an empty text.",
    keys: &[
        key("name", Kind::Own("phase"), "What it is called.").required(),
        RUN,
        ARGV,
        AGENT,
        PROMPT,
        PROMPT_FILE,
        key("strategy", Kind::Own("strategy"), "The strategy whose approaches are tried."),
        key("push", PUSHES, "An item is put into a queue."),
        key("merge", MERGES, "A branch is merged."),
        key(
            "output",
            Kind::List(&Kind::Variable),
            "The fields of its result that later phases can read: of the last line that it prints, if that is a JSON object. \
             `output = [\"version\"]` in the phase `build` is `{{ build.version }}` in a template, `{ var = \"build.version\" }` in a \
             condition and `$VAR_BUILD_VERSION` in a shell. Signs other than letters and digits of the phase become `_`.",
        ),
        key(
            "pre",
            Kind::OneOrMany(&Kind::Own("guard")),
            "Guards that must hold when it begins. They are checked again when its run is claimed, also for each of its retries.",
        ),
        key(
            "post",
            Kind::OneOrMany(&Kind::Own("guard")),
            "Guards that must hold before it is over. Its locks are held until then, so they cannot ask about these.",
        ),
        key(
            "blocked_timeout",
            Kind::Duration,
            "How long guards may block it. Then it has failed, and `on_fail` says what follows; without that, a person is asked. For \
             guards before it that ask about locks, semaphores, pipelines and tasks alone a notice is sent instead.",
        )
        .or("\"30m\""),
        key("lock", LOCKS, "Locks that are held while it runs."),
        key(
            "hold",
            Kind::Word(&["phase", "pipeline"]),
            "How long its locks are held: while it runs, or until the end of the pipeline, under the holder `pipeline:ID`. All locks that \
             a pipeline holds until its end are taken together, by the first phase that says so: with the locks of the phases that may \
             follow, so that two pipelines never wait for each other.",
        )
        .with("lock")
        .or("\"phase\""),
        key("semaphore", SEMAPHORES, "Slots that are held while it runs."),
        key("timeout", Kind::Duration, "How long a run of it may take."),
        key("retries", Kind::Number(0, 1_000), "How often a run that failed is followed by another before the phase has failed.")
            .or("0"),
        key("next", Kind::Own("phase"), "What comes after it: a phase, or \"done\". The phase below it without this."),
        key("on_fail", ON_FAIL, "What comes when it has failed. \"retry\" tries it again, 3 times.").or("\"fail\""),
    ],
    one_of: &["run", "argv", "agent", "strategy", "push", "merge"],
    example: r#"[pipeline.feature]
vars = ["title", "branch"]

[[pipeline.feature.phase]]
name = "build"
agent = "builder"
prompt = "Build this on the branch {{ branch }}: {{ title }}"
timeout = "2h"
retries = 1

[[pipeline.feature.phase]]
name = "test"
run = "make test"
lock = "test-database"
semaphore = { name = "builders", weight = 2 }
timeout = "30m"
on_fail = { phase = "fix", times = 3 }

[[pipeline.feature.phase]]
name = "land"
merge = { branch = { var = "branch" }, into = "main", how = "rebase" }
lock = "main"
next = "done"

[[pipeline.feature.phase]]
name = "fix"
agent = "builder"
prompt = "The tests of {{ branch }} fail. Mend it. This is attempt {{ attempt }}."
next = "test"

[agent.builder]
command = ["my-agent", "--yes"]

[semaphore.builders]
capacity = 4
"#,
    ..Table::EMPTY
};

static GUARD: Table = Table {
    title: "[guard.NAME]",
    doc: "A condition with a name, and what follows if it does not hold.",
    keys: &[
        DESCRIPTION,
        key("condition", Kind::Table(&CONDITION), "What must hold. Up to 200 conditions, 20 deep.").required(),
        key(
            "on_failure",
            ON_FAILURE,
            "What follows if it does not: the pipeline waits until it does, or goes on with a warning, or looks again after a \
             while, or the phase has failed, and its `on_fail` says what follows.",
        )
        .or("\"block\""),
        key(
            "fresh_for",
            Kind::DurationOrZero,
            "How long an answer about files, branches, commands or issues of other trackers is good. A blocked phase is checked again then, \
             after a second at the earliest; a phase that begins later checks it again, holding its locks.",
        )
        .or("\"30s\""),
        key("timeout", Kind::Duration, "How long one of its commands may take.").or("\"1m\""),
    ],
    example: r#"[guard.tests-pass]
condition = { command = "make test" }
on_failure = { retry = "30s" }
timeout = "10m"

[guard.nothing-in-the-way]
condition = { all = [{ lock_free = "deploy" }, { not = { file_exists = "STOP" } }] }

[pipeline.deploy]

[[pipeline.deploy.phase]]
name = "deploy"
run = "./deploy.sh"
pre = ["nothing-in-the-way"]
post = ["tests-pass"]
"#,
    ..Table::EMPTY
};

static STRATEGY: Table = Table {
    title: "[strategy.NAME]",
    doc: "Approaches that are tried one after the other, until one succeeds.",
    keys: &[DESCRIPTION, key("approach", Kind::List(&Kind::Table(&APPROACH)), "The approaches, in order; up to 100.").required()],
    example: r#"[strategy.land]

[[strategy.land.approach]]
name = "fast-forward"
merge = { branch = { var = "branch" }, into = "main", how = "fast_forward" }
fallback_on = "any"

[[strategy.land.approach]]
name = "rebase"
merge = { branch = { var = "branch" }, into = "main", how = "rebase" }
fallback_on = ["timeout", { error = "conflict" }]
timeout = "5m"

[[strategy.land.approach]]
name = "agent"
agent = "merger"
prompt = "Rebase {{ branch }} onto main and solve the conflicts."

[agent.merger]
command = ["my-agent"]

[pipeline.merge]
vars = ["branch"]

[[pipeline.merge.phase]]
name = "merge"
strategy = "land"
lock = "main"
"#,
    ..Table::EMPTY
};

static APPROACH: Table = Table {
    title: "[[strategy.NAME.approach]]",
    doc: "One approach. An error that `fallback_on` does not match ends the chain: the phase has failed.",
    keys: &[
        key("name", Kind::Own("approach"), "What it is called.").required(),
        RUN,
        ARGV,
        AGENT,
        PROMPT,
        PROMPT_FILE,
        key("merge", MERGES, "A branch is merged."),
        key("fallback_on", FALLBACK, "What makes the next approach be tried instead; nothing does without it."),
        key("timeout", Kind::Duration, "How long it may take."),
    ],
    one_of: &["run", "argv", "agent", "merge"],
    ..Table::EMPTY
};

static AGENT_BLOCK: Table = Table {
    title: "[agent.NAME]",
    doc: "A program that is given a prompt on its standard input.",
    keys: &[DESCRIPTION, key("command", Kind::List(&Kind::Plain), "The program with its arguments, without a shell.").required()],
    example: r#"[agent.reviewer]
command = ["my-agent", "--read-only"]

[pipeline.review]
vars = ["branch"]

[[pipeline.review.phase]]
name = "review"
agent = "reviewer"
prompt = """
Review the branch {{ branch }}.
{% if attempt > 1 %}It was mended since the last time.{% endif %}
"""
"#,
    ..Table::EMPTY
};

static LOCK: Table = Table {
    title: "[lock.NAME]",
    doc: "The terms of a lock, for manual use. A lock that is not defined has none. A phase keeps its locks until its \
          run is over, however long that takes: `timeout` says how long it may. With `hold = \"pipeline\"` they are kept until the end of the \
          pipeline.",
    keys: &[
        DESCRIPTION,
        key("ttl", Kind::Duration, "How long a grant lasts without a heartbeat."),
        key("max_hold", Kind::Duration, "How long it lasts at most."),
    ],
    example: "[lock.main]\nmax_hold = \"1h\"\n",
    ..Table::EMPTY
};

static SEMAPHORE: Table = Table {
    title: "[semaphore.NAME]",
    doc: "A semaphore.",
    keys: &[
        DESCRIPTION,
        key("capacity", Kind::Number(1, CAPACITY_LIMIT as i64), "How many slots it has.").required(),
        key("ttl", Kind::Duration, "How long a grant lasts without a heartbeat."),
    ],
    example: "[semaphore.builders]\ncapacity = 4\n",
    ..Table::EMPTY
};

static QUEUE: Table = Table {
    title: "[queue.NAME]",
    doc: "A queue.",
    keys: &[
        DESCRIPTION,
        key(
            "visibility_timeout",
            Kind::Duration,
            "How long an item that was taken is left to its holder. Without this, the setting `queue.visibility_timeout`.",
        ),
        key(
            "max_attempts",
            Kind::Number(1, ATTEMPTS_LIMIT as i64),
            "How often an item is taken at most. Without this, the setting `queue.max_attempts`.",
        ),
        key("dead_letter", Kind::Shared("queue"), "Where an item goes when it is dead. It stays where it is without this."),
        key("max_length", Kind::Number(1, LENGTH_LIMIT as i64), "How many items it has at most.").or("1000000"),
    ],
    example: r#"[queue.triage]
visibility_timeout = "10m"
max_attempts = 5
dead_letter = "triage-dead"

[queue.triage-dead]
"#,
    ..Table::EMPTY
};

static WORKER: Table = Table {
    title: "[worker.NAME]",
    doc: "Takes the items of a queue, and makes a task or a pipeline of each. The variables of a pipeline get their values from \
          the fields of the item, and `item`, if it is one of them, is the whole item. A template can name `item` and `attempt`.",
    keys: &[
        DESCRIPTION,
        key("queue", Kind::Shared("queue"), "The queue.").required(),
        key("pipeline", Kind::Own("pipeline"), "The pipeline that starts for each item."),
        RUN,
        ARGV,
        AGENT,
        PROMPT,
        PROMPT_FILE,
        key("concurrency", Kind::Number(1, CONCURRENCY_LIMIT as i64), "How many items it is at, at most.").or("1"),
        key("timeout", Kind::Duration, "How long a run may take; a pipeline has time limits of its own."),
        key("wake_on", Kind::OneOrMany(&Kind::Event), "The events that wake it. Without any it is always awake."),
        key(
            "retry_delay",
            Kind::DurationOrZero,
            "How long an item waits after its first attempt has failed; twice as long after each further one, up to an hour. How \
             many there are says the queue.",
        )
        .or("\"10s\""),
    ],
    one_of: &["pipeline", "run", "argv", "agent"],
    example: r#"[queue.triage]

[worker.triage]
queue = "triage"
pipeline = "triage"
concurrency = 2
wake_on = ["queue:push(triage)", "pipeline:complete"]

[pipeline.triage]
vars = { issue = 0, title = "" }

[[pipeline.triage.phase]]
name = "label"
argv = ["./label.sh", "{{ issue }}"]
"#,
    ..Table::EMPTY
};

static ON: Table = Table {
    title: "[on.\"PATTERN\"]",
    doc: "What happens when an event comes. A pattern is `category:action`, with an argument in brackets if it must be about \
          something: `pipeline:phase(merge)`, `queue:push(triage)`, `deploy:*`, `*`.",
    keys: &[
        DESCRIPTION,
        key(
            "start",
            Kind::OneOrMany(&Kind::Own("pipeline")),
            "Pipelines that start. Their variables get their values from the data of the event, and `event`, if it is one of them, \
             is the whole event.",
        ),
        key("push", TELLS, "The event is put into a queue."),
        key("wake", Kind::OneOrMany(&Kind::Own("worker")), "Workers that are woken."),
        key("notify", Kind::Prose, "The text of a notification."),
    ],
    some_of: &["start", "push", "wake", "notify"],
    example: r#"[on."pipeline:failed"]
notify = "a pipeline has failed"

[on."deploy:done"]
start = "smoke-test"

[pipeline.smoke-test]
vars = { event = "" }

[[pipeline.smoke-test.phase]]
name = "smoke"
run = "./smoke.sh"
"#,
    ..Table::EMPTY
};
