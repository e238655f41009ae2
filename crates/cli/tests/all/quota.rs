//! Limits of accounts, with real processes: which runs start, which wait, and kills in between.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::agents::{INIT, RESULT, trusted};
use crate::world::{BANKSMAN, World, until};

const ANSWER: &str = r#"echo '{"type":"assistant","message":{"id":"m-1","content":[{"type":"text","text":"hello"}]}}'"#;

/// A claude that hits a limit of this many seconds until the file `open` exists; then it answers once the file `answer` exists, and ends once
/// the file `end` exists.
fn limited(world: &World, name: &str, seconds: u32) {
    let limit = format!(
        "T=$(($(date +%s)+{seconds})); echo '{{\"type\":\"rate_limit_event\",\"rate_limit_info\":{{\"status\":\"rejected\",\
         \"resetsAt\":'$T',\"rateLimitType\":\"five_hour\"}}}}'; \
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\"api_error_status\":429,\"result\":\"session limit\"}}'; exit 1"
    );
    let wait = |file: &str| format!("while [ ! -e {}/{file} ]; do sleep 0.02; done", world.path().display());
    let open = world.path().join("open");
    let script = format!(
        "{INIT}; if [ ! -e {} ]; then {limit}; fi; {}; {ANSWER}; {}; {RESULT}",
        open.display(),
        wait("answer"),
        wait("end")
    );
    trusted(world, name, &script);
}

/// The number of starts of the program.
pub(crate) fn starts(world: &World, name: &str) -> usize {
    fs::read_to_string(world.path().join(format!("{name}.sh.args"))).unwrap_or_default().lines().count()
}

fn limit(world: &World) -> serde_json::Value {
    world.data(&["status"])["accountLimits"][0].clone()
}

#[test]
fn no_run_starts_while_an_account_is_limited_and_one_run_probes_it() {
    let world = World::new();
    limited(&world, "mine", 3);
    for title in ["a", "b", "c", "d", "e"] {
        world.ok(&["tasks", "add", title, "--agent", "mine"]);
    }
    world.ok(&["tasks", "add", "plain", "--run", "true"]);
    let _runner = world.start(&["run", "--max-runs", "2"]);
    until("the limit is known", || limit(&world)["state"] == "waiting");
    until("the others go on", || world.data(&["tasks", "show", "plain"])["status"] == "completed");
    let known = starts(&world, "mine");
    assert!(known <= 2, "{known} runs have hit the limit");
    let why = world.ok(&["why", "e"]);
    assert!(why.contains("mine: limit reached, resets ") && why.contains("one run probes it in "), "{why}");
    let status = world.data(&["status"]);
    assert_eq!((&status["slots"]["used"], &status["runs"]), (&0.into(), &serde_json::json!([])), "all slots are free");
    assert!(world.ok(&["status"]).contains("mine: limit reached, resets "));
    assert!(world.ok(&["agents", "list"]).contains("mine: limit reached, resets "));
    world.touch("open");
    until("its time has come", || limit(&world)["state"] == "probing");
    until("one tries it", || starts(&world, "mine") == known + 1);
    assert!(world.ok(&["why", "e"]).contains("it may start when that run has its first answer"));
    world.touch("answer");
    until("the others follow its answer", || starts(&world, "mine") == known + 2);
    assert!(limit(&world).is_null(), "the limit ends before the run that probed it");
    world.touch("end");
    let is_done = |title: &str| world.data(&["tasks", "show", title])["status"] == "completed";
    until("all are done", || ["a", "b", "c", "d", "e"].iter().all(|title| is_done(title)));
    let first = world.data(&["tasks", "show", "a"]);
    assert_eq!(first["attempts"], 1, "a limit is no attempt: {first}");
    let resumed = fs::read_to_string(world.path().join("mine.sh.args")).unwrap();
    assert!(resumed.lines().nth(known).unwrap().contains("--resume s-1"), "the session is resumed: {resumed}");
}

#[test]
fn a_killed_probe_is_followed_by_another_one() {
    let world = World::new();
    limited(&world, "mine", 2);
    for title in ["a", "b"] {
        world.ok(&["tasks", "add", title, "--agent", "mine"]);
    }
    let mut runner = world.start(&["run", "--max-runs", "1"]);
    until("the limit is known", || limit(&world)["state"] == "waiting");
    world.touch("open");
    until("one tries it", || limit(&world)["state"] == "probing");
    let run = limit(&world)["run"].as_str().unwrap().to_owned();
    until("its session is known", || !world.data(&["status"])["runs"].as_array().unwrap().is_empty());
    let sessions = world.data(&["sessions", "list"]);
    let keeper = sessions["sessions"][0]["keeperPid"].as_i64().unwrap_or_else(|| panic!("{sessions}"));
    runner.0.kill().unwrap();
    runner.0.wait().unwrap();
    kill_process(Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap(), Signal::KILL).unwrap();
    let _second = world.start(&["run", "--max-runs", "1"]);
    until("another run tries it", || limit(&world)["run"].as_str().is_some_and(|other| other != run));
    world.touch("answer");
    world.touch("end");
    until("both are done", || ["a", "b"].iter().all(|title| world.data(&["tasks", "show", title])["status"] == "completed"));
}

/// Codex reports the end of its limit as text, in the local time of its machine.
#[test]
fn the_end_of_a_limit_is_parsed_from_text() {
    let world = World::new();
    let text =
        "You’ve hit your usage limit. Visit https://chatgpt.com/settings/usage to purchase more credits or try again at '$WHEN'.";
    let script = format!(
        "WHEN=$(date -d '+100 minutes' '+%b %-dth, %Y %-I:%M %p'); \
         echo '{{\"type\":\"thread.started\",\"thread_id\":\"c-1\"}}'; \
         echo '{{\"type\":\"error\",\"message\":\"{text}\"}}'; echo '{{\"type\":\"turn.failed\",\"error\":{{\"message\":\"{text}\"}}}}'; exit 1"
    );
    trusted(&world, "mine", &script);
    let config = world.path().join(".banksman/config.toml");
    let settings = fs::read_to_string(&config).unwrap().replace("extends = \"claude\"", "extends = \"codex\"");
    fs::write(&config, settings).unwrap();
    world.ok(&["trust", "--agent", "mine"]);
    world.ok(&["tasks", "add", "a", "--agent", "mine"]);
    for (number, zone) in ["<+14>-14", "America/New_York"].into_iter().enumerate() {
        let mut runner = world.command(&["run"]).env("TZ", zone).env("LC_ALL", "C").spawn().unwrap();
        until("the limit is known", || starts(&world, "mine") == number + 1 && limit(&world)["state"] == "waiting");
        runner.kill().and_then(|()| runner.wait()).unwrap();
        let resets: jiff::Timestamp = limit(&world)["resetsAt"].as_str().unwrap().parse().unwrap();
        let left = resets.duration_since(jiff::Timestamp::now()).as_secs();
        // The text has no seconds, so the limit ends with the minute.
        assert!((98 * 60..=101 * 60).contains(&left), "{zone}: {left} s, {resets}");
        assert!(world.ok(&["why", "a"]).contains("mine: limit reached, resets "));
        world.ok(&["agents", "retry", "mine"]);
    }
    assert_eq!(world.data(&["tasks", "show", "a"])["attempts"], 0);
}

#[test]
fn a_missing_login_is_retried_at_once_on_request() {
    let world = World::new();
    let refused = format!(
        "{INIT}; if [ ! -e {}/open ]; then echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\
        \"result\":\"Not logged in · Please run /login\"}}'; exit 1; fi; {RESULT}",
        world.path().display()
    );
    trusted(&world, "mine", &refused);
    world.ok(&["tasks", "add", "a", "--agent", "mine"]);
    let _runner = world.start(&["run"]);
    until("it is known", || world.ok(&["why", "a"]).contains("mine: not logged in, next try "));
    assert!(world.ok(&["why", "a"]).contains("banksman agents retry mine"));
    world.touch("open");
    let said = world.ok(&["agents", "retry", "mine"]);
    assert!(said.contains("the next run of mine checks whether the account works again"), "{said}");
    until("it is done", || world.data(&["tasks", "show", "a"])["status"] == "completed");
    assert!(world.ok(&["agents", "retry", "mine"]).contains("mine is not limited"));
    assert_eq!(world.run(&["agents", "retry", "nobody"]).code, 4);
}

#[test]
fn on_quota_next_starts_the_next_agent_in_a_new_session() {
    let world = World::new();
    limited(&world, "first", 3_600);
    trusted(&world, "second", &format!("{INIT}; {RESULT}"));
    let twice = world.run(&["tasks", "add", "x", "--agent", "first,first"]);
    assert!(twice.code == 2 && twice.stderr.contains("--agent names first twice"), "{twice:?}");
    world.ok(&["config", "set", "agents.on_quota", "next"]);
    world.ok(&["tasks", "add", "a", "--agent", "first,second"]);
    world.ok(&["run", "--until-idle"]);
    let task = world.data(&["tasks", "show", "a"]);
    assert_eq!((&task["status"], &task["runs"][1]["agent"]["agent"]), (&"completed".into(), &"second".into()), "{task}");
    let (args, prompt) = (world.path().join("second.sh.args"), world.path().join("second.sh.prompt"));
    assert!(!fs::read_to_string(args).unwrap().contains("--resume"), "the session of the first one is left alone");
    assert!(fs::read_to_string(prompt).unwrap().contains("An earlier attempt did not count: session limit"));
    assert_eq!((starts(&world, "first"), starts(&world, "second")), (1, 1));
}

/// Two tasks for an agent; the first one spends the budget of the day.
fn with_a_budget() -> World {
    let world = World::new();
    trusted(&world, "mine", &format!("{INIT}; {}", RESULT.replace("0.25", "1.5")));
    world.ok(&["config", "set", "budget.day", "1"]);
    for title in ["a", "b"] {
        world.ok(&["tasks", "add", title, "--agent", "mine"]);
    }
    world
}

#[test]
fn a_spent_budget_stops_agents_until_it_is_raised() {
    let world = with_a_budget();
    world.ok(&["tasks", "add", "plain", "--run", "true"]);
    let _runner = world.start(&["run", "--max-runs", "1"]);
    until("the budget is spent", || limit(&world)["kind"] == "budget");
    until("commands cost nothing", || world.data(&["tasks", "show", "plain"])["status"] == "completed");
    let why = world.ok(&["why", "b"]);
    assert!(why.contains("all agents: daily budget is spent, resets ") && why.contains("$1.50 of $1.00"), "{why}");
    let status = world.data(&["status"]);
    assert_eq!((&status["spendToday"][0]["paidMicros"], &status["budgetMicros"]), (&1_500_000.into(), &1_000_000.into()));
    assert!(world.ok(&["status"]).contains("today mine: 1 run, 12 tokens, $1.50"));
    assert_eq!(world.data(&["tasks", "show", "a"])["spend"][0]["costMicros"], 1_500_000);
    let report = world.data(&["report"]);
    assert_eq!((&report["agents"][0]["agent"], &report["spendMicros"]), (&"mine".into(), &1_500_000.into()), "{report}");
    world.ok(&["config", "set", "budget.day", "1"]);
    assert_eq!(limit(&world)["kind"], "budget", "it is spent still");
    world.ok(&["config", "set", "budget.day", "2"]);
    until("agents start again", || world.data(&["tasks", "show", "b"])["status"] == "completed");
}

#[test]
fn the_day_of_a_budget_is_a_local_day() {
    let world = with_a_budget();
    // The zone is fourteen hours ahead of UTC: its midnight is at ten.
    let mut runner = world.command(&["run", "--max-runs", "1"]).env("TZ", "<+14>-14").spawn().unwrap();
    until("the budget is spent", || limit(&world)["kind"] == "budget");
    runner.kill().and_then(|()| runner.wait()).unwrap();
    let resets = limit(&world)["resetsAt"].as_str().unwrap().to_owned();
    assert!(resets.contains("T10:00:00"), "{resets}");
    let here = world.command(&["status", "--json"]).env("TZ", "<+14>-14").output().unwrap();
    assert!(String::from_utf8_lossy(&here.stdout).contains("\"paidMicros\":1500000"), "{here:?}");
}

#[test]
fn a_session_resumes_with_the_answer_to_its_question() {
    let world = World::new();
    let ask = format!("{BANKSMAN} tasks ask 'Which database?' --option SQLite --option PostgreSQL");
    trusted(&world, "mine", &format!("{INIT}; if [ $(wc -l < $0.args) -lt 2 ]; then {ask}; fi; {RESULT}"));
    world.ok(&["tasks", "add", "a", "--agent", "mine"]);
    world.ok(&[
        "tasks",
        "add",
        "plain",
        "--run",
        &format!(
            "if [ -n \"$BANKSMAN_LAST_RESULT\" ] && [ -e \"$BANKSMAN_LAST_RESULT\" ]; then cp $BANKSMAN_LAST_RESULT {}/last; \
         else {BANKSMAN} tasks ask 'Where?'; fi",
            world.path().display()
        ),
    ]);
    world.run(&["run", "--until-idle"]);
    let task = world.data(&["tasks", "show", "a"]);
    assert_eq!((&task["status"], task["runs"].as_array().unwrap().len()), (&"blocked".into(), 1), "{task}");
    let status = world.data(&["status"]);
    assert_eq!((&status["slots"]["used"], &status["decisions"]), (&0.into(), &2.into()), "it has no slot");
    let why = world.ok(&["why", "a"]);
    assert!(why.contains("Which database?") && why.contains("banksman decisions resolve "), "{why}");
    for decision in world.data(&["decisions", "list"])["decisions"].as_array().unwrap() {
        let (id, is_first) = (decision["id"].as_str().unwrap(), decision["question"] == "Which database?");
        let answer: &[&str] = if is_first { &["2", "--note", "version 17"] } else { &["1", "--note", "in the cellar"] };
        world.ok(&[&["decisions", "resolve", id], answer].concat());
    }
    let prompt = world.ok(&["tasks", "show", "a", "--prompt"]);
    assert_eq!(prompt, "Go on with your task: a\n\nYou asked: Which database?\nThe answer: PostgreSQL: version 17\n");
    world.ok(&["run", "--until-idle"]);
    assert_eq!(world.data(&["tasks", "show", "a"])["status"], "completed");
    assert_eq!(fs::read_to_string(world.path().join("mine.sh.prompt")).unwrap(), prompt);
    assert!(fs::read_to_string(world.path().join("mine.sh.args")).unwrap().contains("--resume s-1"));
    let last: serde_json::Value = serde_json::from_str(&fs::read_to_string(world.path().join("last")).unwrap()).unwrap();
    assert_eq!((&last["answer"]["question"], &last["answer"]["answer"]), (&"Where?".into(), &"in the cellar".into()));
    let outside = world.run(&["tasks", "ask", "What?", "--task", "a"]);
    assert!(outside.code == 2 && outside.stderr.contains("only a run of "), "{outside:?}");
}
