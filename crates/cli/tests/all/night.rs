//! A night in a minute: a backlog of loops by agents that crash, hang, lie, stop early and sometimes work, while the runner is
//! killed again and again. In the end every task is over or waits for a person, and no attempt was repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use banksman_core::decision::About;
use banksman_core::task::retry::{OnTimeout, Policy};
use banksman_core::task::{State, TaskEnd};
use banksman_core::{Name, Span, Task, TaskId};
use banksman_runtime::Client;
use banksman_store::EventRow;
use rustix::process::Signal;

use crate::crashes::add;
use crate::world::{BANKSMAN, World, is_alive};

/// Performs one of its arguments per attempt; the last one is repeated. It records each attempt in a file that can be created only once,
/// and whether the attempt before it is still alive.
const AGENT: &str = r#"
    dir=$BANKSMAN_TASK_DIR
    n=0
    while [ -e "$dir/begun-$n" ]; do
        read before < "$dir/begun-$n"
        case "$(cat /proc/$before/stat 2>/dev/null)" in *agent*' Z '*) ;; *'(agent)'*) echo "$BANKSMAN_RUN $before" >> doubled ;; esac
        n=$((n + 1))
    done
    (set -C; echo $$ > "$dir/begun-$n") || echo "$BANKSMAN_RUN" >> doubled
    echo "$BANKSMAN_RUN" >> runs
    shift $((n < $# ? n : $# - 1))
    echo "$1" > "$dir/last"
    case $1 in
        crash) [ $((n % 2)) = 0 ] && exit 3; kill -SEGV $$ ;;
        hang) trap '' TERM; sleep 600 & wait; sleep 600 ;;
        lie) echo DONE; touch DONE ;;
        silent) ;;
        fail) $BANKSMAN tasks fail --error 'no luck' ;;
        sleepy) trap 'woken=1' USR1; until [ "$woken" ]; do sleep 0.1; done; echo awake; touch "$dir/DONE" ;;
        file) touch "$dir/DONE"; exit 7 ;;
        say) $BANKSMAN tasks done --output "$n"; exit 7 ;;
    esac
"#;

/// The attempts of a task.
const RESTARTS: u32 = 6;

/// The recoveries of a task.
const RECOVERIES: u32 = 3;

/// The limits of runs and of roots under way: some roots rest, so both limits are reached.
const RUNS: usize = 8;
const ROOTS: usize = 10;

/// The lifetime of a runner.
const LIFE: Duration = Duration::from_secs(2);

/// The upper bound on the duration of the test.
const NIGHT: Duration = Duration::from_secs(240);

/// The actions of a task's agent, by the number of the task.
fn plan(number: u64) -> Vec<&'static str> {
    match number {
        0..4 => return vec!["crash"],
        4..7 => return vec!["hang"],
        7..10 => return vec!["silent"],
        10..12 => return vec!["file"],
        12..14 => return vec!["say"],
        14..16 => return vec!["lie", "crash", "sleepy"],
        _ => {}
    }
    let mut seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        // Xorshift, so that the test is reproducible.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        match seed % 100 {
            0..25 => "crash",
            25..32 => "hang",
            32..47 => "lie",
            47..62 => "silent",
            62..67 => "fail",
            67..70 => "sleepy",
            70..88 => "file",
            _ => "say",
        }
    };
    (0..RESTARTS).map(|_| next()).collect()
}

fn add_task(client: &Client, number: u64) -> TaskId {
    let policy = Policy {
        max_attempts: NonZeroU32::new(RESTARTS).unwrap(),
        delay: Span::from_ms(100),
        child_wait: Span::from_secs(60),
        on_children_timeout: OnTimeout::Fail,
    };
    let command = format!("exec ./agent {}", plan(number).join(" "));
    add(client, &format!("n{number}"), &command, |spec| spec.restart = Some(policy))
}

/// Whether a task needs no runner any more.
fn is_settled(task: &Task) -> bool {
    matches!(task.state, State::Done(_) | State::AwaitingDecision { .. })
}

/// Whether all tasks are settled and nothing runs.
fn is_all_settled(world: &World) -> bool {
    let rows = world.everything().tables.backlog;
    rows.tasks.values().all(is_settled) && rows.runs.values().all(|run| !run.is_live()) && rows.outbox.is_empty()
}

/// Waits until all is settled, up to this time. Returns whether it is.
fn wait_until_settled(world: &World, patience: Duration) -> bool {
    let start = Instant::now();
    loop {
        if is_all_settled(world) {
            return true;
        }
        if start.elapsed() >= patience {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// The maximum number of live runs and of roots under way, from the log. Asserts that each run began and ended once.
fn max_concurrency(events: &[EventRow]) -> (usize, usize) {
    let (mut runs, mut ended, mut roots) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut most_runs, mut most_roots) = (0, 0);
    for event in events {
        let (id, run) = (event.source.id.as_deref().unwrap_or_default(), event.data["run"].as_str());
        match event.kind.as_str() {
            "task:started" => {
                assert!(runs.insert(run.unwrap()), "{run:?} began twice");
                roots.insert(id);
            }
            "task:restarting" | "task:complete" | "task:failed" | "escalate" => {
                if let Some(run) = run {
                    assert!(runs.remove(run) && ended.insert(run), "{run} ended twice");
                }
                if event.kind != "task:restarting" {
                    roots.remove(id);
                }
            }
            _ => {}
        }
        (most_runs, most_roots) = (most_runs.max(runs.len()), most_roots.max(roots.len()));
    }
    assert!(runs.is_empty(), "{runs:?} have not ended");
    (most_runs, most_roots)
}

fn night(tasks: u64) {
    let world = World::new();
    for (key, value) in [
        ("task.silence_timeout", "1s"),
        ("task.kill_grace", "200ms"),
        ("task.max_recovery_attempts", &RECOVERIES.to_string()),
        ("limits.max_concurrent_runs", &RUNS.to_string()),
        ("limits.max_concurrent_root_tasks", &ROOTS.to_string()),
    ] {
        world.ok(&["config", "set", key, value]);
    }
    write_agent(&world);
    let client = world.project().open().unwrap();
    let ids: Vec<TaskId> = (0..tasks).map(|number| add_task(&client, number)).collect();

    let start = Instant::now();
    let mut killed = 0;
    loop {
        let runner = world.runner(&[]);
        if wait_until_settled(&world, LIFE) {
            break;
        }
        runner.signal(Signal::KILL);
        killed += 1;
        assert!(start.elapsed() < NIGHT, "{}", unsettled(&world));
    }
    assert_eq!(world.run_all(), 7, "some have failed");

    let rows = world.everything();
    let events = world.events();
    let mut counts = BTreeMap::new();
    for (number, id) in (0..).zip(&ids) {
        let task = &rows.backlog.tasks[id];
        let ended = check_end(&world, task, &plan(number), &rows.backlog, &events);
        match number {
            0..4 | 7..10 => assert_eq!(ended, "failed", "{task:?}"),
            4..7 => assert_eq!(ended, "parked", "{task:?}"),
            10..16 => assert_eq!(ended, "completed", "{task:?}"),
            _ => {}
        }
        *counts.entry(ended).or_insert(0) += 1;
    }
    let questions = rows.backlog.decisions.len();
    assert_eq!(questions, counts["parked"], "one for each that waits for a person, and no other");
    assert_eq!(events.iter().filter(|event| event.kind == "decision:raised").count(), questions);

    // Nothing was done twice, nothing runs, and nothing is held.
    assert_eq!(world.read("doubled"), "");
    let runs = world.read("runs");
    assert_eq!(runs.lines().collect::<BTreeSet<_>>().len(), runs.lines().count(), "a run has begun twice");
    let (most_runs, most_roots) = max_concurrency(&events);
    assert_eq!((most_runs, most_roots), (RUNS, ROOTS), "as many as allowed, and no more");
    assert!(rows.coordination.semaphores[&Name::runs()].holders.is_empty());
    assert!(rows.coordination.locks.values().all(|lock| lock.state == banksman_core::resource::lock::State::Free));
    assert!(rows.backlog.runs.values().filter_map(|run| run.session.as_ref()).all(|session| !is_alive(session.child)));
    assert_eq!(leftovers(&world), Vec::<i32>::new());
    world.check();
    assert!(killed >= 3, "the runner was killed {killed} times only, in {:?}", start.elapsed());
}

/// Writes the script from another process: a child of another test could inherit a file that this process has open for writing,
/// and then the script could not be executed.
fn write_agent(world: &World) {
    let text = format!("#!/bin/sh\nBANKSMAN={BANKSMAN}\n{AGENT}");
    let mut writer = std::process::Command::new("sh");
    writer.args(["-c", "printf %s \"$1\" > agent && chmod +x agent", "sh", &text]).current_dir(world.path());
    assert!(writer.status().unwrap().success());
}

/// How a task ended, after checks that this end is right.
fn check_end(
    world: &World,
    task: &Task,
    plan: &[&str],
    backlog: &banksman_core::backlog::Backlog,
    events: &[EventRow],
) -> &'static str {
    let folder = format!(".banksman/tasks/{}", task.id);
    let begun = (0..).take_while(|number| world.has(&format!("{folder}/begun-{number}"))).count();
    let last = world.read(&format!("{folder}/last")).trim().to_owned();
    let what = format!("{begun} attempts of {plan:?}: {task:?}");
    assert!(begun <= RESTARTS as usize && task.failures < RESTARTS && task.recoveries <= RECOVERIES, "{what}");
    // The attempt number never decreases, and increases by one.
    let started: Vec<u64> = events
        .iter()
        .filter(|event| event.kind == "task:started" && event.source.id.as_deref() == Some(task.id.as_str()))
        .map(|event| event.data["restart"].as_u64().unwrap())
        .collect();
    assert!(started.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1), "{started:?}: {what}");
    let open: Vec<_> = backlog.decisions.values().filter(|it| it.question.about == About::Task(task.id.clone())).collect();
    match &task.state {
        State::Done(TaskEnd::Success { output, .. }) => {
            assert!(["file", "say", "sleepy"].contains(&&*last), "{what}");
            assert_eq!(output.is_some(), last == "say", "{what}");
            assert!(open.is_empty(), "{what}");
            "completed"
        }
        State::Done(TaskEnd::Failed { error }) => {
            let right = format!("not done after {RESTARTS} attempts, and max_attempts is {RESTARTS}; the last one: ");
            let reason = error.strip_prefix(&*right).unwrap_or_else(|| panic!("{what}"));
            let reasons: &[&str] = match &*last {
                "crash" => &["exit status 3", "killed by signal 11"],
                "lie" | "silent" => &["it exited 0 without `tasks done`"],
                "fail" => &["no luck"],
                "hang" => &["no activity"],
                _ => panic!("{what}"),
            };
            assert!(reasons.contains(&reason) && begun == RESTARTS as usize && open.is_empty(), "{what}");
            "failed"
        }
        State::AwaitingDecision { decision } => {
            assert_eq!((open.len(), task.recoveries), (1, RECOVERIES), "{what}");
            assert!(open[0].id == *decision && open[0].is_open(), "{what}");
            "parked"
        }
        _ => panic!("{what}"),
    }
}

/// The processes whose working directory is in the world.
fn leftovers(world: &World) -> Vec<i32> {
    let root = world.path().canonicalize().unwrap();
    let pids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&root)))
        .filter(|pid| is_alive(*pid))
        .collect()
}

/// The unsettled tasks, for the message of a failed test.
fn unsettled(world: &World) -> String {
    let rows = world.everything().tables.backlog;
    let mut text = String::from("these tasks are not settled:\n");
    for task in rows.tasks.values().filter(|task| !is_settled(task)) {
        writeln!(text, "{task:?}").unwrap();
    }
    writeln!(text, "{:?}", rows.outbox).unwrap();
    text
}

#[test]
fn two_hundred_loops_settle_while_the_runner_is_killed_repeatedly() {
    // Requests to a server over a connection take longer; fewer tasks test the same.
    night(if crate::postgres::wanted() { 60 } else { 200 });
}
