//! Eight tasks that change one repository at the same time, each in a worktree of its own, and land one after the other: two want the
//! same line, two are only wrong together, one crashes, and the runner is killed in the middle of a landing.

use std::collections::BTreeSet;

use banksman_core::Status;
use banksman_store::EventRow;

use super::checks::Check;
use super::stage::{Stage, now};
use super::story::{of_kind, task};
use crate::commands::timeline::rows::RunnerSpan;
use crate::failure::Failure;
use crate::printer::{BOLD, CYAN, GREEN, RED, YELLOW};

/// The number of tasks that run at the same time.
pub(super) const SLOTS: u32 = 8;

/// The check: no two services listen on the same port. The sleep leaves time to kill the runner.
const CHECK: &str = "sleep 0.15; test -z \"$(cat ports/* 2> /dev/null | sort | uniq -d)\"";

/// A task: section, title, its command, more options.
type Part = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// Changes the first line of a file that both tasks change. The second task finds the conflict in its worktree and
/// keeps both lines.
const NEWS: &str = "sleep 0.4; if grep -q '^<<<<<<<' NEWS; then grep -vE '^(<<<<<<<|=======|>>>>>>>)' NEWS > both; mv both NEWS; \
                    else sed -i \"1s/.*/$BANKSMAN_TITLE/\" NEWS; git commit -qam \"$BANKSMAN_TITLE\"; fi";

/// Takes the first port that is free in its worktree; at the first attempt both tasks find the same port.
const PORT: &str = "sleep 0.6; name=$(echo $BANKSMAN_TITLE | cut -d' ' -f2); rm -f ports/$name; port=8000; \
                    while grep -qsx $port ports/*; do port=$((port + 1)); done; mkdir -p ports; echo $port > ports/$name";

pub(super) const TASKS: [Part; 8] = [
    ("pages", "Announce mail", NEWS, &[]),
    ("pages", "Announce chat", NEWS, &[]),
    ("pages", "Write a guide", "sleep 0.7; echo guide > guide.md", &[]),
    ("pages", "Fix a typo", "sleep 0.3; sed -i s/teh/the/ README; git commit -qam typo", &[]),
    ("services", "Add mail", PORT, &[]),
    ("services", "Add chat", PORT, &[]),
    ("services", "Add search", "sleep 0.5; [ $BANKSMAN_ATTEMPT = 0 ] && kill -9 $$; echo search > search", &["--retries", "1"]),
    ("services", "Add login", "sleep 0.8; echo login > login; git add -A; git commit -qm login", &[]),
];

/// The input of `checks`.
pub(super) struct Observed {
    pub(super) spans: Vec<RunnerSpan>,
    /// The commit of the target branch when the runner was killed.
    tip_at_kill: String,
    status: Option<i32>,
}

pub(super) fn run(stage: &mut Stage) -> Result<Observed, Failure> {
    prepare(stage)?;
    stage.begin();
    let runner = stage.spawn_banksman(&["run"])?;
    let mut spans = vec![RunnerSpan { name: "runner 1", from: now(), to: now(), is_killed: false }];
    let event = stage.until(|seen| of_kind(seen, "workspace:made"))?;
    stage.narrate(event.wall, &format!("{CYAN}a runner starts{CYAN:#}; each task works in its own worktree"));
    let event = stage.until(|seen| task(seen, "task:restarting", "Add search"))?;
    stage.narrate(event.wall, &format!("{BOLD}Add search{BOLD:#} {RED}crashes{RED:#}, and continues in the same worktree"));
    let event = stage.until(|seen| of_kind(seen, "landing:landed"))?;
    stage.narrate(event.wall, &format!("the first task has {GREEN}landed{GREEN:#}: checked as one commit on top of main"));
    // The commit of the next landing is made and not checked yet.
    let landed = event.id;
    let built = stage.until(|seen| seen.iter().find(|event| event.id > landed && event.kind == "landing:built").cloned())?;
    let tip_at_kill = stage.git(&["rev-parse", "main"])?;
    spans[0].to = runner.kill()?;
    spans[0].is_killed = true;
    stage.narrate(spans[0].to.max(built.wall), &format!("{RED}kill -9 of the runner{RED:#} while it checks a commit"));
    spans.push(RunnerSpan { name: "runner 2", from: now(), to: now(), is_killed: false });
    let runner = stage.spawn_banksman(&["run", "--until-idle"])?;
    let event = stage.until(|seen| sent_back(seen, "conflict"))?;
    stage
        .narrate(event.wall, &format!("{YELLOW}a conflict{YELLOW:#} goes back to its author, with the conflict in the worktree"));
    let event = stage.until(|seen| sent_back(seen, "the check fails"))?;
    stage.narrate(event.wall, &format!("{YELLOW}a failed check{YELLOW:#} goes back: each service passes alone, but not both"));
    if let Some(process) = stage.identify(runner.pid()) {
        stage.until_death(&[&process])?;
    }
    spans[1].to = now();
    let status = runner.end()?;
    stage.catch_up()?;
    stage.narrate(now(), "everything has landed; the runner exits");
    Ok(Observed { spans, tip_at_kill, status })
}

fn sent_back(seen: &[EventRow], reason: &str) -> Option<EventRow> {
    let is_sent_back = |event: &&EventRow| {
        event.kind == "task:sent_back" && event.data["reason"].as_str().is_some_and(|why| why.contains(reason))
    };
    seen.iter().find(is_sent_back).cloned()
}

fn prepare(stage: &Stage) -> Result<(), Failure> {
    for (file, text) in [(".gitignore", ".banksman/\n"), ("README", "read teh guide\n"), ("NEWS", "no news\n")] {
        stage.write(file, text)?;
    }
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["config", "user.name", "demo"],
        &["config", "user.email", "demo@example.invalid"],
        &["add", "-A"],
        &["commit", "-q", "-m", "start"],
    ] {
        stage.git(args)?;
    }
    stage.run(&["config", "set", "limits.max_concurrent_runs", &SLOTS.to_string()])?;
    stage.run(&["config", "set", "--user", "landing.check", CHECK])?;
    for section in ["pages", "services"] {
        stage.run(&["sections", "add", section])?;
    }
    for (section, title, command, more) in TASKS {
        let args = ["tasks", "add", title, "--worktree", "--section", section, "--run", command];
        stage.run(&[&args, more].concat())?;
    }
    Ok(())
}

pub(super) fn checks(stage: &Stage, observed: &Observed) -> Result<Vec<Check>, Failure> {
    let rows = stage.rows()?;
    let completed = rows.backlog.tasks.values().filter(|task| task.status() == Status::Completed).count();
    let log = stage.git(&["log", "--format=%H %(trailers:key=Banksman-Task,valueonly,separator=%x20)", "main"])?;
    let landed: Vec<(&str, &str)> =
        log.lines().filter_map(|line| line.split_once(' ')).filter(|(_, id)| !id.is_empty()).collect();
    let distinct: BTreeSet<&str> = landed.iter().map(|(_, id)| *id).collect();
    let mut red = Vec::new();
    for (commit, _) in &landed {
        let ports = stage.git(&["grep", "-h", "", commit, "--", "ports"]).unwrap_or_default();
        let mut all: Vec<&str> = ports.lines().collect();
        all.sort_unstable();
        red.extend(all.windows(2).any(|pair| pair[0] == pair[1]).then(|| (*commit).to_owned()));
    }
    let news = stage.git(&["show", "main:NEWS"])?;
    let of = |kind: &str| stage.seen().iter().filter(|event| event.kind == kind).count();
    let changes = stage.git(&["status", "--porcelain"])?;
    let kept = stage.git(&["merge-base", "--is-ancestor", &observed.tip_at_kill, "main"]).is_ok();
    let worktrees = rows.backlog.workspaces.len();
    let saved = stage.git(&["for-each-ref", "--format=%(refname)", "refs/banksman/saved"])?.lines().count();
    let left = stage.remaining();
    let (events, differences) = stage.replay()?;
    let total = TASKS.len();
    Ok(vec![
        Check::new(
            "landed",
            format!("{completed} of {total} tasks completed; each has landed once, as one commit"),
            [
                (
                    completed == total && observed.status == Some(0),
                    format!("{completed} are completed, exit {:?}", observed.status),
                ),
                (
                    landed.len() == total && distinct.len() == total,
                    format!("{} commits of {} tasks", landed.len(), distinct.len()),
                ),
            ],
        ),
        Check::new("tested", "every landed commit passes the check".into(), [(red.is_empty(), format!("{red:?} do not"))]),
        Check::new(
            "returned",
            format!("work was sent back to its author {} times; NEWS has both lines", of("task:sent_back")),
            [
                (news.contains("Announce mail") && news.contains("Announce chat"), format!("NEWS is {news:?}")),
                (of("task:sent_back") >= 2, "not twice".into()),
            ],
        ),
        Check::new(
            "killed",
            "the runner was killed in the middle of a landing; checkout, index and branch agree".into(),
            [(changes.is_empty(), changes.clone()), (kept, "main was moved back".into())],
        ),
        Check::new(
            "saved",
            format!("the worktrees were removed, and their content is in {saved} saved states"),
            [(worktrees == 0, format!("{worktrees} are left")), (saved >= total, format!("only {saved}"))],
        ),
        Check::new(
            "clean",
            format!("no process is left; {events} events agree with the tables"),
            [(left.is_empty(), format!("{left:?} are left")), (differences.is_empty(), differences.join("; "))],
        ),
    ])
}
