//! Many tasks over the four programs in one repository, with limits, crashes of the programs, and kills of runners and keepers.

// Helper functions are test code, too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::process::Child;

use banksman_agent_tests::world::{AGENTS, World, until};
use serde_json::Value;

/// How long a limit of claude lasts, in seconds.
const LIMIT: u32 = 6;

/// A linear congruential generator: a seed gives the same history as far as the machine allows.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}

/// The script of a task.
fn script(title: &str, number: usize, agent: &str) -> String {
    let file = title.to_lowercase().replace(' ', "-");
    let commit = format!("@run echo {file} > {file}.txt && git add {file}.txt && git commit -qm {file}\n");
    match number % 5 {
        // Only claude reports when its limit ends.
        0 if agent == "claude" => format!("@limit {LIMIT}\n{commit}"),
        // The program dies in a tool call, once.
        1 => format!(
            "@run if mkdir $BANKSMAN_PROJECT/.banksman/died-{file} 2> /dev/null; then \
             kill -9 $PPID; sleep 5; fi\n{commit}"
        ),
        2 => format!("@run sleep 1\n{commit}"),
        3 => format!("@run echo left > {file}.txt\n"),
        _ => commit,
    }
}

fn runs(task: &Value) -> Vec<Value> {
    task["runs"].as_array().cloned().unwrap_or_default()
}

/// Runs this many tasks to completion, and kills a runner or a keeper this many times.
fn fleet(tasks: usize, kills: usize, seed: u64) {
    let world = World::new();
    world.ok(&["config", "set", "landing.check", "true"]);
    world.ok(&["config", "set", "limits.max_concurrent_runs", "8"]);
    world.ok(&["trust"]);
    let titles: Vec<(String, &str)> = (0..tasks).map(|n| (format!("Task {n:02} {}", AGENTS[n % 4]), AGENTS[n % 4])).collect();
    for (number, (title, agent)) in titles.iter().enumerate() {
        world.add_with(title, agent, &script(title, number, agent), &["--land", "--retries", "3"]);
    }
    let start = || world.start(&["run", "--until-idle", "--max-runs", "4"]);
    let mut random = Random(seed);
    let mut runners: Vec<Child> = vec![start(), start()];
    for kill in 0..kills {
        let landed = |world: &World| world.git(&["log", "--format=%s", "main"]).lines().count() - 1;
        let before = landed(&world);
        // Some progress between two kills, or all runners have ended.
        until("something has landed", || landed(&world) > before || runners.iter_mut().all(|r| r.try_wait().unwrap().is_some()));
        let sessions = world.json(&["sessions", "list"])["data"]["sessions"].as_array().cloned().unwrap_or_default();
        let keepers: Vec<i64> = sessions.iter().filter_map(|session| session["keeperPid"].as_i64()).collect();
        if kill % 2 == 0 && !keepers.is_empty() {
            // The keeper may have ended meanwhile.
            let keeper = keepers[random.below(keepers.len())].to_string();
            world.command("kill".as_ref(), &["-9", &keeper]).stderr(std::process::Stdio::null()).status().unwrap();
        } else {
            let index = random.below(runners.len());
            let mut runner = std::mem::replace(&mut runners[index], start());
            runner.kill().and_then(|()| runner.wait()).unwrap();
        }
    }
    for mut runner in runners {
        runner.wait().unwrap();
    }
    world.run_until_idle();
    let mut verdicts = BTreeMap::new();
    for (title, agent) in &titles {
        let task = world.task(title);
        let file = title.to_lowercase().replace(' ', "-");
        assert_eq!(task["status"], "completed", "{title}: {task}\n{}", world.log(title));
        world.git(&["show", &format!("main:{file}.txt")]);
        // A run that was limited, or killed with its keeper or its runner, is no attempt of the task.
        let counted = runs(&task).iter().filter(|run| run["agent"]["verdict"] != "quota").count();
        assert!(task["attempts"].as_u64().unwrap() as usize <= counted, "{title}: {task}");
        for run in runs(&task) {
            *verdicts.entry(format!("{agent} {}", run["agent"]["verdict"].as_str().unwrap_or("none"))).or_insert(0) += 1;
        }
    }
    assert_eq!(world.git(&["log", "--format=%s", "main"]).lines().count(), tasks + 1, "each landed once");
    let reached = assert_no_start_while_limited(&world);
    assert!(reached > 0, "a limit was reached");
    assert!(verdicts.contains_key("claude quota") && verdicts.values().sum::<usize>() > tasks, "{verdicts:?}");
}

/// Asserts that between the start and the end of a limit of claude only probing runs start. Returns how often a limit
/// was reached.
fn assert_no_start_while_limited(world: &World) -> usize {
    let of = |title: &str| world.task(title)["id"].as_str().unwrap().to_owned();
    let tasks = world.json(&["tasks", "list"])["data"]["tasks"].as_array().cloned().unwrap_or_default();
    let titles = tasks.iter().filter_map(|task| task["title"].as_str()).filter(|title| title.ends_with("claude"));
    let of_claude: Vec<String> = titles.map(|title| format!("task:{}", of(title))).collect();
    let events =
        world.json(&["events", "--since", "1h", "--limit", "100000"])["data"]["events"].as_array().cloned().unwrap_or_default();
    let (mut reached, mut is_limited, mut probing, mut started) = (0, false, Vec::new(), Vec::new());
    for event in &events {
        let (kind, run) = (event["kind"].as_str().unwrap_or_default(), event["data"]["run"].clone());
        match kind {
            "account_limit:reached" => (reached, is_limited) = (reached + 1, true),
            "account_limit:probing" => probing.push(run),
            "account_limit:ended" => is_limited = false,
            "task:started" if is_limited && of_claude.iter().any(|source| event["source"] == *source) => started.push(run),
            _ => {}
        }
    }
    assert!(started.iter().all(|run| probing.contains(run)), "started {started:?}, probing {probing:?}: {events:?}");
    reached
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn tasks_over_four_agents_land_through_limits_crashes_and_kills() {
    fleet(8, 3, 7);
}

/// The long version, for `make soak`.
#[test]
#[ignore = "needs the real programs: make test-agents"]
fn forty_tasks_over_four_agents_land_through_limits_crashes_and_kills() {
    if std::env::var_os("BANKSMAN_TEST_LONG").is_none() {
        return;
    }
    fleet(40, 16, 11);
}
