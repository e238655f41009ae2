//! The story: the tasks, and the failures on the way.

use banksman_core::{ProcessId, RunId};
use banksman_store::EventRow;

use super::night;
use super::stage::{Stage, now};
use crate::commands::timeline::rows::RunnerSpan;
use crate::failure::Failure;
use crate::printer::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};

pub(super) const SLOTS: u32 = 3;

/// The lock that two tasks need and alice holds.
pub(super) const LOCK: &str = "database";

/// A task: section, title, what it depends on, its command, more options.
type Part = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

pub(super) const TASKS: [Part; 12] = [
    ("build", "Fetch", "", "sleep 0.3; banksman events emit demo:fetching; sleep 0.3", &[]),
    ("build", "Docs", "", "sleep 0.9", &[]),
    ("build", "Compile", "Fetch", "sleep 0.9", &[]),
    ("build", "Lint", "Fetch", "sleep 0.5", &[]),
    // Crashes at the first attempt. The runner is killed during the second one.
    (
        "tests",
        "Unit tests",
        "Compile",
        "sleep 0.4; [ $BANKSMAN_ATTEMPT = 0 ] && kill -9 $$; banksman events emit demo:testing; sleep 0.6",
        &["--retries", "1"],
    ),
    // Leaves a process behind with its own session and an empty environment.
    (
        "tests",
        "Browser tests",
        "Compile",
        r#"env -i setsid sleep 600 >&- 2>&- & banksman events emit demo:hidden --data "{\"pid\":$!}"; sleep 2"#,
        &[],
    ),
    // Adds a part of its work as a task and waits for it.
    (
        "tests",
        "Fuzzing",
        "Compile",
        "banksman tasks add Minimise --child --section tests --run 'sleep 2.2' && banksman tasks wait Minimise && sleep 0.3",
        &[],
    ),
    ("production", "Backup", "", "sleep 0.6", &["--lock", LOCK]),
    ("production", "Migrate", "Backup", "sleep 0.5", &["--lock", LOCK]),
    ("production", "Deploy", "Docs,Lint,Unit tests,Browser tests,Fuzzing,Migrate", "sleep 0.7", &[]),
    ("production", "Smoke test", "Deploy", "sleep 0.6", &[]),
    ("production", "Warm caches", "Deploy", "sleep 0.9", &[]),
];

/// The input of `checks`.
pub(super) struct Observed {
    pub(super) spans: Vec<RunnerSpan>,
    /// The sessions that were live when their runner was killed.
    pub(super) orphans: Vec<Orphan>,
    /// The number of them that were alive when the runner was dead.
    pub(super) alive_after_kill: usize,
    /// The hidden process of `Browser tests`.
    pub(super) hidden: ProcessId,
    /// The exit statuses of the last runners.
    pub(super) statuses: Vec<Option<i32>>,
}

pub(super) struct Orphan {
    pub(super) run: RunId,
    title: String,
    process: ProcessId,
}

pub(super) fn run(stage: &mut Stage) -> Result<Observed, Failure> {
    add_tasks(stage)?;
    let alice = stage.spawn_banksman(&["locks", "run", LOCK, "--holder", "alice", "--", "sleep", "600"])?;
    stage.until(|seen| of_kind(seen, "lock:acquired"))?;

    stage.begin();
    let runner = stage.spawn_banksman(&["run", "--until-idle"])?;
    let mut spans = vec![RunnerSpan { name: "runner 1", from: now(), to: now(), is_killed: true }];
    stage.narrate(now(), &format!("{CYAN}the runner starts{CYAN:#}             {DIM}$ banksman run --until-idle{DIM:#}"));
    stage.until(|seen| of_kind(seen, "demo:fetching"))?;

    let why = stage.run(&["why", "Backup"])?;
    stage.narrate(now(), &format!("{BOLD}Backup{BOLD:#} does not start; why?   {DIM}$ banksman why Backup{DIM:#}"));
    // The headline is printed already, and a viewer cannot type the suggested command.
    for line in why.lines().skip(1).filter(|line| !line.trim_start().starts_with("try:")) {
        stage.say(&wrapped(line));
    }
    let killed = alice.kill()?;
    let heir = stage.until(|seen| task(seen, "task:started", "Backup"))?;
    let after = (heir.wall - killed).as_ms();
    stage.narrate(
        killed,
        &format!("{RED}kill -9 of alice{RED:#}; {BOLD}Backup{BOLD:#} has the lock and runs {GREEN}{after} ms{GREEN:#} later"),
    );

    let fetched = stage.until(|seen| task(seen, "task:complete", "Fetch"))?;
    let event = stage.until(|seen| task(seen, "task:started", "Compile"))?;
    let after = (event.wall - fetched.wall).as_ms();
    stage.narrate(
        fetched.wall,
        &format!("{BOLD}Fetch{BOLD:#} is done; {BOLD}Compile{BOLD:#} runs {GREEN}{after} ms{GREEN:#} later"),
    );
    let event = stage.until(|seen| of_kind(seen, "demo:hidden"))?;
    let pid = event.data["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
    let hidden = stage.identify(pid).ok_or_else(|| Failure::system("find the hidden process", pid))?;
    stage.narrate(event.wall, &format!("{BOLD}Browser tests{BOLD:#} hides process {pid} behind setsid and env -i"));
    let event = stage.until(|seen| task(seen, "task:started", "Minimise"))?;
    stage.narrate(event.wall, &format!("{BOLD}Fuzzing{BOLD:#} adds {BOLD}Minimise{BOLD:#}, and lends it its slot"));
    let event = stage.until(|seen| task(seen, "task:restarting", "Unit tests"))?;
    stage.narrate(event.wall, &format!("{BOLD}Unit tests{BOLD:#} {RED}crashes{RED:#}, and is retried"));
    stage.until(|seen| of_kind(seen, "demo:testing"))?;

    let orphans = orphans(stage)?;
    spans[0].to = runner.kill()?;
    let alive_after_kill = orphans.iter().filter(|orphan| is_alive(stage, orphan)).count();
    let text = format!("{RED}kill -9 of the runner{RED:#}; {alive_after_kill} of its sessions continue without it");
    stage.narrate(spans[0].to, &text);
    stage.until_death(&orphans.iter().map(|orphan| &orphan.process).collect::<Vec<_>>())?;
    let ended = orphans.iter().find(|orphan| !is_alive(stage, orphan)).map_or("one", |orphan| &orphan.title);
    stage.narrate(now(), &format!("{BOLD}{ended}{BOLD:#} ends without a runner; its keeper records the exit status"));

    let statuses = finish(stage, &mut spans)?;
    night::run(stage, &mut spans)?;
    Ok(Observed { spans, orphans, alive_after_kill, hidden, statuses })
}

/// Two runners at once continue the work of the first one.
fn finish(stage: &mut Stage, spans: &mut Vec<RunnerSpan>) -> Result<Vec<Option<i32>>, Failure> {
    let mut runners = Vec::new();
    for name in ["runner 2", "runner 3"] {
        spans.push(RunnerSpan { name, from: now(), to: now(), is_killed: false });
        runners.push(stage.spawn_banksman(&["run", "--until-idle"])?);
    }
    stage.narrate(now(), &format!("{CYAN}two runners start{CYAN:#}, and share the sessions and the slots"));
    let event = stage.until(|seen| task(seen, "task:adopted", "Minimise"))?;
    let adopted = stage.seen().iter().filter(|event| event.kind == "task:adopted").count();
    let sessions = if adopted == 1 { "session" } else { "sessions" };
    stage.narrate(event.wall, &format!("{YELLOW}{adopted} {sessions} adopted{YELLOW:#}, and ended sessions are recorded"));
    let event = stage.until(|seen| task(seen, "task:started", "Deploy"))?;
    let last =
        stage.seen().iter().filter(|other| other.kind == "task:complete" && other.id < event.id).map(|other| other.wall).max();
    let after = (event.wall - last.unwrap_or(event.wall)).as_ms();
    stage.narrate(event.wall, &format!("{BOLD}Deploy{BOLD:#} starts {GREEN}{after} ms{GREEN:#} after its last dependency"));
    let mut statuses = Vec::new();
    for (index, runner) in runners.into_iter().enumerate() {
        if let Some(process) = stage.identify(runner.pid()) {
            stage.until_death(&[&process])?;
        }
        spans[index + 1].to = now();
        statuses.push(runner.end()?);
    }
    stage.catch_up()?;
    stage.narrate(now(), "all tasks are done; the runners exit");
    Ok(statuses)
}

fn add_tasks(stage: &Stage) -> Result<(), Failure> {
    stage.run(&["config", "set", "limits.max_concurrent_runs", &SLOTS.to_string()])?;
    stage.run(&["config", "set", "task.kill_grace", "1s"])?;
    for section in ["build", "tests"] {
        stage.run(&["sections", "add", section])?;
    }
    stage.run(&["sections", "add", "production", "--exclusive"])?;
    for (section, title, depends_on, command, more) in TASKS {
        let args = ["tasks", "add", title, "--section", section, "--run", command, "--depends-on", depends_on];
        stage.run(&[&args, more].concat())?;
    }
    Ok(())
}

/// The live sessions whose processes are known.
fn orphans(stage: &Stage) -> Result<Vec<Orphan>, Failure> {
    let orphan = |live: banksman_runtime::inspect::LiveRun| {
        let process = stage.identify(live.run.session?.child)?;
        Some(Orphan { run: live.run.id, title: live.title.to_string(), process })
    };
    Ok(stage.sessions()?.into_iter().filter_map(orphan).collect())
}

fn is_alive(stage: &Stage, orphan: &Orphan) -> bool {
    stage.probe(&orphan.process) == banksman_core::Liveness::Alive
}

/// The first event of this kind.
pub(super) fn of_kind(seen: &[EventRow], kind: &str) -> Option<EventRow> {
    seen.iter().find(|event| event.kind == kind).cloned()
}

/// The first event of this kind about the task with this title.
pub(super) fn task(seen: &[EventRow], kind: &str, title: &str) -> Option<EventRow> {
    let id = &seen.iter().find(|event| event.kind == "task:added" && event.data["spec"]["title"] == title)?.source.id;
    seen.iter().find(|event| event.kind == kind && event.source.id == *id).cloned()
}

/// A line wrapped to 80 columns, indented.
fn wrapped(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches([' ', '-']).len();
    let mut text = format!("        {}", &line[..indent]);
    let mut used = text.len();
    for word in line[indent..].split(' ') {
        if used + word.len() > 79 {
            text.push_str(&format!("\n{:width$}", "", width = 8 + indent));
            used = 8 + indent;
        } else if used > 8 + indent {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += word.len();
    }
    text
}
