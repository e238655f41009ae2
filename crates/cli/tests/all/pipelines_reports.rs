//! Reports about pipelines: why one does not move, its state, and the hints.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::guards_at_claim::{hold, release};
use crate::pipelines::{begun, way};
use crate::tasks::wait_for;
use crate::why::kinds;
use crate::world::{BANKSMAN, Said, World, until};

/// The line of a list or page that contains these words.
fn line<'a>(text: &'a str, words: &str) -> &'a str {
    text.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{words:?} is not in {text}"))
}

/// Runs a command as it is printed.
fn paste(world: &World, command: &str) -> Said {
    let words = command.strip_prefix("banksman ").unwrap();
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c");
    world.clean(shell, &[format!("{BANKSMAN} {words}")]).output().unwrap().into()
}

/// Starts a runner, waits for a condition, and stops the runner.
fn with_a_runner(world: &World, what: &str, condition: impl Fn() -> bool) -> Said {
    let runner = world.start(&["run"]);
    until(what, condition);
    runner.stop()
}

#[test]
fn hints_about_a_failed_pipeline_can_be_pasted() {
    let world = World::new();
    let never = "[guard.never]\ncondition = { lock_free = \"gate\" }\non_failure = { fail = \"shut\" }\n";
    let phases = way(&[("one", "run = 'test -e key'"), ("two", "run = 'true'\npre = \"never\"")]);
    world.book(&format!("[pipeline.way]\nvars = [\"title\", {{ tries = 3 }}]\n{}\n{never}", &phases["[pipeline.way]\n".len()..]));
    let id = world.begin(&["--var", "title=it's one"]);
    let next = world.add(&["next", "--run", "true", "--depends-on", &id]);
    assert_eq!(world.run_all(), 7);
    let hint = world.data(&["why", &next])["reasons"][0]["hint"].as_str().unwrap().to_owned();
    assert_eq!(hint, format!("banksman pipelines retry {id}"));
    assert_eq!(paste(&world, &hint).code, 0);
    world.touch("key");
    hold(&world, "gate");
    assert_eq!(world.run_all(), 7);
    assert_eq!(world.data(&["pipelines", "show", &id])["recoverable"], false);
    let why = world.data(&["why", &next]);
    assert_eq!(why["reasons"][0]["hint"], Value::Null, "nothing helps: {why}");
    assert!(why["reasons"][0]["message"].as_str().unwrap().contains("shut"), "{why}");
    let (code, error) = world.error(&["pipelines", "retry", &id]);
    assert_eq!(code, 5);
    let again = error["hint"].as_str().unwrap().strip_prefix("start a new one: ").unwrap();
    crate::runbooks::write(&world, "other", &way(&[("one", "run = 'true'")]));
    let said = paste(&world, again);
    assert_eq!(said.code, 0, "{again}: {said:?}");
    let vars = json!({ "title": "it's one", "tries": 3 });
    let second = &world.data(&["pipelines", "list"])["pipelines"][1];
    assert_eq!((&second["vars"], &second["title"]), (&vars, &json!("it's one")), "{again}");
    let text = world.ok(&["why", &id]);
    assert_eq!(text.matches("the gate").count() + text.matches("shut").count(), 1, "it is said once: {text}");
}

#[test]
fn why_evaluates_store_guards_at_once_and_names_a_missing_runner() {
    let world = World::new();
    world.book(&format!(
        "{}\n[guard.quiet]\ncondition = {{ lock_free = \"gate\" }}\n",
        way(&[("one", "run = 'true'\npre = \"quiet\"")])
    ));
    let epoch = hold(&world, "gate");
    let id = world.begin(&[]);
    let next = world.add(&["next", "--run", "true", "--depends-on", &id]);
    with_a_runner(&world, "it is held up", || world.pipeline_state(&id) == "blocked one");
    let why = world.data(&["why", &id]);
    assert_eq!((why["answer"].as_str(), kinds(&why)), (Some("in_phases"), vec!["guard", "no_runner"]), "{why}");
    let reason = &why["reasons"][0];
    assert!(reason["message"].as_str().unwrap().contains("lock gate is held by bob"), "{why}");
    assert_eq!(
        (&reason["resource"], &reason["hint"]),
        (&json!("guard quiet"), &json!("banksman locks show gate")),
        "what frees it comes first"
    );
    let wakes = reason["wakes"].as_str().unwrap();
    assert!(wakes.starts_with("it continues when lock gate is released"), "{wakes}");
    assert!(wakes.ends_with(&format!("banksman pipelines unblock {id}")), "{wakes}");
    let guard = &why["pipeline"]["blockedBy"]["guard"];
    assert!(guard["at"].is_null() && guard["again"].is_null(), "these are no times: {guard}");
    assert!(
        guard["lookedAt"].as_str().unwrap().ends_with('Z') && guard["nextLookAt"].as_str().unwrap().ends_with('Z'),
        "{guard}"
    );
    assert_eq!(world.data(&["status"])["next"], "no runner is running; start one: banksman run");
    release(&world, "gate", &epoch);
    let why = world.data(&["why", &id]);
    let message = why["reasons"][0]["message"].as_str().unwrap();
    assert!(message.contains("guard quiet passes now"), "{message}");
    let text = world.ok(&["why", &next]);
    assert!(text.contains("passes now") && text.contains("no runner is running"), "{text}");
    hold(&world, "gate");
    let _runner = world.runner(&[]);
    until("a runner is there", || kinds(&world.data(&["why", &id])) == ["guard"]);
    assert_eq!(world.data(&["status"])["next"], format!("a pipeline is blocked: banksman why {id}"));
}

#[test]
fn why_evaluates_guards_about_tasks_at_once() {
    let world = World::new();
    let guard = "[guard.ready]\ncondition = { tasks_complete = { label = \"must\" } }\n";
    world.book(&format!("{}\n{guard}", way(&[("one", "run = 'true'\npre = \"ready\"")])));
    let must = world.add(&["must", "--label", "must"]);
    let id = world.begin(&[]);
    with_a_runner(&world, "it is held up", || world.pipeline_state(&id) == "blocked one");
    let message = || world.data(&["why", &id])["reasons"][0]["message"].as_str().unwrap().to_owned();
    assert!(message().contains("guard ready does not pass"), "{}", message());
    world.ok(&["tasks", "done", &must]);
    assert!(message().contains("guard ready passes now"), "{}", message());
}

#[test]
fn why_names_the_reason_of_an_unknown_guard_result() {
    let guard = "[guard.ready]\ncondition = { issues_complete = { section = \"nowhere\" } }\n";
    let (world, id) = begun(&format!("{}\n{guard}", way(&[("one", "run = 'true'\npre = \"ready\"")])));
    with_a_runner(&world, "it is held up", || world.pipeline_state(&id) == "blocked one");
    let why = world.ok(&["why", &id]);
    assert!(why.contains("not known: tasks of section nowhere unknown: there is no such section (as of"), "{why}");
}

#[test]
fn why_names_the_age_of_the_last_guard_check() {
    let guard = "[guard.there]\ncondition = { file_exists = \"key\" }\n";
    let (world, id) = begun(&format!("{}\n{guard}", way(&[("one", "run = 'true'\npre = \"there\"")])));
    let runner = world.runner(&[]);
    world.until_pipeline_state(&id, "blocked one");
    let why = world.data(&["why", &id]);
    let (message, wakes) = (why["reasons"][0]["message"].as_str().unwrap(), why["reasons"][0]["wakes"].as_str().unwrap());
    assert!(message.contains("as of ") && message.contains(" ago"), "{message}");
    assert!(wakes.contains("checked again"), "{wakes}");
    assert_eq!(kinds(&why), ["guard"]);
    runner.stop();
    assert_eq!(kinds(&world.data(&["why", &id])), ["guard", "no_runner"]);
}

#[test]
fn why_reports_guards_that_no_runner_checks() {
    let guard = "[guard.slow]\ncondition = { command = \"touch looking; sleep 1000\" }\ntimeout = \"10m\"\n";
    let (world, id) = begun(&format!("{}\n{guard}", way(&[("one", "run = 'true'\npre = \"slow\"")])));
    let runner = world.runner(&[]);
    until("the guard is checked", || world.has("looking"));
    assert_eq!((world.pipeline_state(&id).as_str(), kinds(&world.data(&["why", &id]))), ("checking one", vec![]));
    let why = world.ok(&["why", &id]);
    assert!(why.contains("waits for guard") && why.contains("before phase one"), "{why}");
    runner.signal(Signal::KILL);
    runner.end();
    assert_eq!(kinds(&world.data(&["why", &id])), ["no_runner"]);
    assert_eq!(world.data(&["status"])["next"], "no runner is running; start one: banksman run");
}

#[test]
fn an_ambiguous_pipeline_name_is_refused_with_both_ids() {
    let world = World::new();
    world.book(&way(&[("one", "run = 'true'")]));
    let (first, second) = (world.begin(&["--title", "both"]), world.begin(&["--title", "both"]));
    for verb in ["show", "retry", "unblock", "cancel"] {
        let error = world.assert_refused(&["pipelines", verb, "both"], 2, "AMBIGUOUS_NAME");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&first) && message.contains(&second) && message.contains("several pipelines"), "{message}");
    }
    let third = world.begin(&["--title", "one"]);
    world.add(&["one", "--run", "true"]);
    assert_eq!(world.data(&["pipelines", "show", "one"])["id"], third, "only a pipeline can be meant");
    assert_eq!(world.error(&["pipelines", "show", "none"]).0, 4);
}

#[test]
fn the_mark_of_a_phase_agrees_with_the_pipeline() {
    let world = World::new();
    let shut = "[guard.shut]\ncondition = { lock_held = \"nobody\" }\non_failure = { fail = \"shut\" }\n";
    let mark = |phases: &[(&str, &str)]| {
        world.book(&format!("{}\n{shut}", way(phases).replacen('\n', "\nvars = { thing = 1 }\n", 1)));
        let id = world.begin(&[]);
        world.run_all();
        let page = world.ok(&["pipelines", "show", &id]);
        assert!(page.lines().next().unwrap().contains("has failed in phase bad"), "{page}");
        let mark = |phase: &str| page.lines().find(|line| line.split_whitespace().nth(1) == Some(phase)).unwrap().chars().next();
        assert_eq!(mark("later"), Some('·'), "{page}");
        let ran = page.lines().any(|line| line.starts_with('✗') && line.contains(&format!("{id}.1")));
        assert_eq!(world.ok(&["why", &id]).contains("its output: banksman tasks logs"), ran, "{page}");
        mark("bad").unwrap()
    };
    let later = ("later", "run = 'true'");
    assert_eq!(mark(&[("bad", "run = 'true'\npost = \"shut\""), later]), '✗', "its last guard");
    assert_eq!(mark(&[("bad", "run = 'true'\npre = \"shut\""), later]), '✗', "its first guard");
    assert_eq!(mark(&[("bad", "argv = [\"echo\", \"{{ thing.missing }}\"]"), later]), '✗', "what it is to do");
}

#[test]
fn a_phase_that_waits_is_not_reported_as_running() {
    let world = World::new();
    world.book(&format!(
        "{}\n[guard.quiet]\ncondition = {{ lock_free = \"gate\" }}\n",
        way(&[("one", "run = 'test -e key'\nlock = \"db\""), ("two", "run = 'true'\npre = \"quiet\"")])
    ));
    hold(&world, "gate");
    let epoch = hold(&world, "db");
    let id = world.begin(&[]);
    let runner = world.runner(&[]);
    world.until_pipeline_state(&id, "running one");
    let task = format!("{id}.1");
    let waits = format!("its task {task} has not started");
    for said in
        [world.ok(&["pipelines", "show", &id]), world.ok(&["pipelines", "list"]), world.ok(&["why", &id]), world.ok(&["status"])]
    {
        assert!(said.contains(&waits), "{said}");
    }
    let why = world.ok(&["why", &id]);
    assert!(line(&why, &waits).ends_with(": one thing blocks it"), "{why}");
    release(&world, "db", &epoch);
    world.until_pipeline_state(&id, "failed one");
    runner.stop();
    let (code, error) = world.error(&["pipelines", "unblock", &id]);
    let again = format!("to retry the phase: banksman pipelines retry {id}");
    assert_eq!((code, &error["hint"]), (2, &json!(again)));
    assert!(world.ok(&["why", &id]).contains(&format!("its output: banksman tasks logs {task}")));
    let said = world.run(&["pipelines", "retry", &id]);
    assert!(said.stdout.contains("has not started") && said.stderr.contains("no runner is running"), "{said:?}");
    world.touch("key");
    with_a_runner(&world, "it is held up", || world.pipeline_state(&id) == "blocked two");
    let since = || world.pipeline(&id)["phaseStartedAt"].as_str().unwrap().to_owned();
    let before = since();
    let said = world.run(&["pipelines", "unblock", &id]);
    assert!(said.stderr.contains("no runner is running"), "{said:?}");
    assert!(since() > before, "the time before its guards is not time in the phase: {before} {}", since());
    let said = world.run(&["pipelines", "retry", "--json", &id]);
    assert_eq!(said.stderr, "", "with --json nothing is written to stderr");
}

#[test]
fn why_names_the_current_approach_of_a_strategy() {
    let approach = |name: &str, more: &str| format!("[[strategy.s.approach]]\nname = \"{name}\"\n{more}\n");
    let second = format!("run = '{}'", wait_for("go"));
    let strategy = approach("quick", "run = 'false'\nfallback_on = \"any\"") + &approach("thorough", &second);
    let (world, id) = begun(&format!("{}\n{strategy}", way(&[("one", "strategy = \"s\"")])));
    let _runner = world.runner(&[]);
    until("the second is tried", || world.ok(&["why", &id]).contains("in phase one (1 of 1, by thorough)"));
    world.touch("go");
    world.until_pipeline_state(&id, "done");
}

#[test]
fn the_logs_of_a_pipeline_are_those_of_its_phases() {
    let two = format!("run = 'echo from two; {}'", wait_for("go"));
    let (world, id) = begun(&way(&[("one", "run = 'echo from one; until test -e on; do sleep 0.02; done'"), ("two", &two)]));
    let follower = world.start(&["tasks", "logs", &id, "--follow"]);
    let runner = world.runner(&["--until-idle"]);
    until("one prints", || world.run(&["tasks", "logs", &id]).stdout == "from one\n");
    world.touch("on");
    until("two prints", || world.run(&["tasks", "logs", &id]).stdout == "from two\n");
    world.touch("go");
    assert_eq!(runner.end().code, 0);
    let said = follower.end();
    assert_eq!((said.code, said.stdout.as_str()), (0, "from one\nfrom two\n"), "{said:?}");
    assert_eq!(world.ok(&["tasks", "logs", &id, "--follow"]), "from two\n", "it is over");
    assert_eq!(world.data(&["tasks", "logs", &id])["taskId"], format!("{id}.2"));
    let never = world.begin(&[]);
    world.ok(&["pipelines", "cancel", &never]);
    let task = world.add(&["task", "--run", "true"]);
    world.ok(&["tasks", "cancel", &task]);
    for over in [never, task] {
        // No more output can follow.
        world.assert_refused(&["tasks", "logs", &over, "--follow"], 4, "RUN_NOT_FOUND");
    }
}

#[test]
fn list_and_status_name_the_guard_that_blocks_a_pipeline() {
    let (world, id) = begun(&format!(
        "{}\n[guard.quiet]\ncondition = {{ lock_free = \"gate\" }}\n",
        way(&[("one", "run = 'true'\npre = \"quiet\"")])
    ));
    assert_eq!(world.ok(&["pipelines", "list", "--state", "blocked"]), "no pipelines with state blocked\n");
    hold(&world, "gate");
    with_a_runner(&world, "it is held up", || world.pipeline_state(&id) == "blocked one");
    for text in [world.ok(&["pipelines", "list"]), world.ok(&["status"])] {
        assert!(line(&text, &id).trim_end().ends_with("guard quiet: lock gate is held by bob"), "{text}");
    }
}

#[test]
fn a_runner_reports_the_progress_of_pipelines() {
    let world = World::new();
    world.book(&format!(
        "{}\n[guard.quiet]\ncondition = {{ lock_free = \"gate\" }}\n",
        way(&[("one", "run = 'test -e key'"), ("two", "run = 'true'\npre = \"quiet\"")])
    ));
    let id = world.begin(&["--title", "Ship it"]);
    let said = world.run(&["run", "--until-idle"]);
    let about = |said: &Said, word: &str| line(&said.stderr, word).to_owned();
    let named = format!("Ship it {id}");
    assert!(about(&said, "begins").contains(&named), "{said:?}");
    let failed = said.stderr.lines().find(|line| line.starts_with("failed") && line.contains(&named)).unwrap();
    assert!(failed.contains("in phase one: exit status 1"), "{said:?}");
    world.touch("key");
    world.ok(&["pipelines", "retry", &id]);
    let epoch = hold(&world, "gate");
    let said = with_a_runner(&world, "it is held up", || world.pipeline_state(&id) == "blocked two");
    let blocked = about(&said, "blocked ");
    assert!(blocked.contains(&format!("{named} before phase two: guard quiet: lock gate is held by bob")), "{said:?}");
    assert_eq!(said.stderr.matches("guard quiet").count(), 1, "it is said once: {said:?}");
    assert!(said.stdout.ends_with("has left\n"), "it leaves nothing behind: {said:?}");
    release(&world, "gate", &epoch);
    let said = world.run(&["run", "--until-idle"]);
    assert!(about(&said, "done").contains(&named), "{said:?}");
}

#[test]
fn show_summarizes_a_phase_by_its_first_command() {
    let world = World::new();
    world.book(&format!(
        "[pipeline.way]\nvars = [\"branch\"]\n{}",
        &way(&[
            ("shell", "run = \"\"\"\nset -eu\n\n# All of it.\nmake all\nmake more\n\"\"\""),
            ("words", "argv = [\"printf\", \"%s %s\", \"it's\"]"),
            ("merge", "merge = { branch = { var = \"branch\" }, into = \"main\", how = \"merge_commit\" }"),
        ])["[pipeline.way]\n".len()..]
    ));
    let id = world.begin(&["--var", "branch=login"]);
    let page = world.ok(&["pipelines", "show", &id]);
    let does = |phase: &str| page.lines().find(|line| line.split_whitespace().nth(1) == Some(phase)).unwrap().to_owned();
    assert!(does("shell").ends_with("make all…"), "{page}");
    assert!(does("words").ends_with(r"printf '%s %s' 'it'\''s'"), "{page}");
    assert!(does("merge").ends_with("merge login into main (merge_commit)"), "{page}");
}

#[test]
fn a_runner_reports_items_that_do_not_fit_their_pipeline() {
    let world = World::new();
    let worker = "[queue.q]\nmax_attempts = 1\n[worker.w]\nqueue = \"q\"\npipeline = \"way\"\n";
    world.book(&format!(
        "[pipeline.way]\nvars = [\"title\"]\n{}{worker}",
        &way(&[("one", "run = 'true'")])["[pipeline.way]\n".len()..]
    ));
    world.ok(&["runbooks", "apply", "book"]);
    world.ok(&["queues", "push", "q", "{}"]);
    let is_dead = || world.data(&["queues", "show", "q"])["dead"] == 1;
    let said = with_a_runner(&world, "it is dead", is_dead);
    let unfit = line(&said.stderr, "unfit");
    assert!(unfit.contains("of queue q for worker w: the variable \"title\" has no value"), "{unfit}");
}

#[test]
fn a_runner_reports_changes_and_not_earlier_states() {
    let world = World::new();
    let guard = "[guard.there]\ncondition = { file_exists = \"key\" }\nfresh_for = \"100ms\"\n";
    world.book(&format!("{}\n{guard}", way(&[("one", "run = 'true'\npre = \"there\"")])));
    let id = world.begin(&[]);
    let said = with_a_runner(&world, "it is held up", || world.pipeline_state(&id) == "blocked one");
    assert_eq!(said.stderr.matches("blocked ").count(), 1, "{said:?}");
    world.touch("key");
    let said = world.run(&["run", "--until-idle"]);
    assert!(!said.stderr.contains("blocked "), "{said:?}");
}
