use std::time::{Duration, Instant};

use banksman_agent_tests::world::{AGENTS, World, until};

const COMMIT: &str = "@run echo hello > hello.txt && git add . && git commit -qm hello\n";

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_limited_task_resumes_its_session_when_the_limit_ends() {
    let world = World::new();
    world.add("First", "claude", &format!("@run echo one >> one.txt\n@limit 12\n{COMMIT}"));
    world.add("Other", "codex", COMMIT);
    let began = Instant::now();
    let mut runner = world.start(&["run", "--until-idle"]);
    until("the limit is known", || world.ok(&["why", "First"]).contains("claude: limit reached"));
    assert!(runner.wait().unwrap().success());
    assert!(began.elapsed() > Duration::from_secs(10));
    assert_eq!((world.verdicts("First"), world.status("First")), (vec!["quota".into(), "ok".into()], "completed".into()));
    assert_eq!(world.verdicts("Other"), ["ok"], "another account is not concerned");
    let task = world.task("First");
    assert_eq!(task["attempts"], 1, "a limit is no attempt");
    let session = |number: usize| task["runs"][number]["agent"]["session"].as_str().unwrap_or_default().to_owned();
    assert_eq!(session(0), session(1), "the same session");
    let once = world.model.asked("First").iter().filter(|asked| asked.contains("one.txt")).count();
    assert_eq!(once, 1, "what was done before the limit is not done again");
}

/// The seconds until a limit ends, according to `status`.
fn left(world: &World) -> i64 {
    let limit = &world.json(&["status"])["data"]["accountLimits"][0];
    let resets: jiff::Timestamp = limit["resetsAt"].as_str().and_then(|at| at.parse().ok()).expect("a limit has an end");
    resets.duration_since(jiff::Timestamp::now()).as_secs()
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn every_agent_reports_when_its_limit_ends_and_resumes_its_session() {
    // What each program reports: codex a minute of its clock. Gemini gives up if the provider asks for a wait of more
    // than five minutes. Opencode first retries for a while.
    for (agent, said, lasts, known) in
        [("codex", 4_000, 5, 3_900..=4_060), ("gemini", 4_000, 5, 3_900..=4_001), ("opencode", 2, 35, -60..=3)]
    {
        let world = World::new();
        world.add("First", agent, &format!("@run echo one >> one.txt\n@quota {said} {lasts}\n{COMMIT}"));
        let began = Instant::now();
        let mut runner = world.start(&["run", "--until-idle"]);
        until("the first run has ended", || world.verdicts("First").first().is_some_and(|verdict| verdict != "none"));
        assert_eq!(world.verdicts("First")[0], "quota", "{agent}: {}", world.log("First"));
        if said > lasts {
            let left = left(&world);
            assert!(known.contains(&left), "{agent}: {left} s; {}", world.log("First"));
            assert!(world.ok(&["why", "First"]).contains(&format!("{agent}: limit reached, resets ")));
            until("the limit is over", || began.elapsed() > Duration::from_secs(lasts + 5));
            world.ok(&["agents", "retry", agent]);
        }
        runner.wait().unwrap();
        // Opencode gives up after some retries of its own, perhaps more than once while the limit lasts.
        let verdicts = world.verdicts("First");
        let (last, limited) = verdicts.split_last().unwrap();
        assert!(last == "ok" && limited.iter().all(|verdict| verdict == "quota"), "{agent}: {verdicts:?}");
        assert!(limited.len() == 1 || agent == "opencode", "{agent}: {verdicts:?}");
        assert_eq!(world.status("First"), "completed", "{agent}");
        let task = world.task("First");
        assert_eq!(task["attempts"], 1, "a limit is no attempt");
        let session = |number: usize| task["runs"][number]["agent"]["session"].as_str().unwrap_or_default().to_owned();
        assert!(!session(0).is_empty() && session(0) == session(1), "the same session: {task}");
        let once = world.model.asked("First").iter().filter(|asked| asked.contains("one.txt")).count();
        assert_eq!(once, 1, "{agent}: what was done before the limit is not done again");
    }
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_refused_login_is_reported_at_once_and_is_no_attempt() {
    let world = World::new();
    for agent in AGENTS {
        world.add(&format!("Login {agent}"), agent, "@unauthorized\n");
    }
    let mut runner = world.start(&["run"]);
    for agent in AGENTS {
        let title = format!("Login {agent}");
        until("the login is refused", || world.ok(&["why", &title]).contains(&format!("{agent}: not logged in")));
        assert_eq!((world.verdicts(&title), world.task(&title)["attempts"].clone()), (vec!["auth".into()], 0.into()));
    }
    runner.kill().and_then(|()| runner.wait()).unwrap();
}
