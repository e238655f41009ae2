//! Agents, played by scripts that print the output of an agent program.

use std::fs;
use std::path::PathBuf;

use crate::merging::git;
use crate::quota::starts;
use crate::screen::Screen;
use crate::worktrees::{Checkout, checkout};
use crate::world::{BANKSMAN, World, until, write_program};

pub(crate) const INIT: &str = r#"echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'"#;
pub(crate) const RESULT: &str = r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":2,"total_cost_usd":0.25,"usage":{"input_tokens":10,"output_tokens":2}}'"#;

/// Writes an executable script. Its arguments and its prompt are kept in files beside it.
pub(crate) fn script(world: &World, name: &str, script: &str) -> PathBuf {
    let program = world.path().join(format!("{name}.sh"));
    let text = format!("#!/bin/sh\necho \"$@\" >> {0}.args\ncat > {0}.prompt\n{script}\n", program.display());
    write_program(&program, &text);
    program
}

/// Configures an agent whose program is such a script.
pub(crate) fn agent(world: &World, name: &str, script: &str) {
    reading_agent(world, name, "", script);
}

/// Like `agent`; `reads` are the files of a repository from which the program executes something.
fn reading_agent(world: &World, name: &str, reads: &str, script: &str) {
    let program = self::script(world, name, script);
    world.configure(&format!(
        "\n[agent.{name}]\nextends = \"claude\"\nprogram = \"{}\"\naccount = \"{name}\"\nreads = [{reads}]\ncheck_login = []\n",
        program.display()
    ));
}

pub(crate) fn trusted(world: &World, name: &str, script: &str) {
    agent(world, name, script);
    world.ok(&["trust", "--agent", name]);
}

pub(crate) fn run(world: &World) {
    world.run(&["run", "--until-idle"]);
}

pub(crate) fn show(world: &World, task: &str) -> serde_json::Value {
    world.data(&["tasks", "show", task])
}

fn verdict(world: &World, task: &str) -> (String, String) {
    let task = show(world, task);
    let run = task["runs"].as_array().unwrap().last().cloned().unwrap();
    (task["status"].as_str().unwrap().into(), run["agent"]["verdict"].as_str().unwrap_or("none").into())
}

#[test]
fn the_result_of_an_agent_decides_not_its_exit_status() {
    let world = World::new();
    for (name, script) in [
        ("good", format!("{INIT}; {RESULT}; exit 3")),
        ("bad", format!("{INIT}; {}; exit 0", RESULT.replace("\"is_error\":false", "\"is_error\":true"))),
        ("silent", format!("{INIT}; exit 0")),
        ("crash", format!("{INIT}; kill -9 $$")),
    ] {
        trusted(&world, name, &script);
        world.ok(&["tasks", "add", name, "--agent", name, "--prompt", "do it"]);
    }
    run(&world);
    let of = |task: &str| verdict(&world, task);
    assert_eq!(of("good"), ("completed".into(), "ok".into()));
    assert_eq!(of("bad"), ("failed".into(), "failed".into()));
    assert_eq!(of("silent"), ("failed".into(), "no_result".into()));
    assert_eq!(of("crash"), ("failed".into(), "crashed".into()));
    let run = show(&world, "good")["runs"][0]["agent"].clone();
    assert_eq!((&run["session"], &run["turns"], &run["costMicros"]), (&"s-1".into(), &2.into(), &250_000.into()));
    let prompt = fs::read_to_string(world.path().join("good.sh.prompt")).unwrap();
    assert!(prompt.starts_with("good\n\ndo it\n\nHow to finish:\n"), "{prompt}");
    let (log, raw) = (world.ok(&["tasks", "logs", "good"]), world.ok(&["tasks", "logs", "good", "--raw"]));
    assert!(log.ends_with("cost: $0.2500\ndone\n") && raw.contains("\"type\":\"result\""), "{log}{raw}");
}

#[test]
fn a_retry_gets_the_last_output_and_a_loop_needs_more_than_a_result() {
    let world = World::new();
    trusted(&world, "first", &format!("{INIT}; echo it did not work; exit 1"));
    world.ok(&["tasks", "add", "again", "--agent", "first", "--retries", "1"]);
    trusted(
        &world,
        "looping",
        &format!("{INIT}; {RESULT}; [ $(wc -l < $0.args) -lt 2 ] || {BANKSMAN} tasks done $BANKSMAN_TASK"),
    );
    world.ok(&["tasks", "add", "loop", "--agent", "looping", "--loop", "--restart-delay", "0s"]);
    run(&world);
    let prompt = fs::read_to_string(world.path().join("first.sh.prompt")).unwrap();
    assert!(prompt.contains("An earlier attempt did not count: it did not work"), "{prompt}");
    assert!(prompt.contains("```\nit did not work\n```"), "{prompt}");
    assert_eq!(show(&world, "again")["runs"].as_array().unwrap().len(), 2);
    assert_eq!(verdict(&world, "loop").0, "completed");
    assert_eq!(show(&world, "loop")["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn an_agent_starts_only_with_trust_and_a_change_revokes_it() {
    let world = World::new();
    agent(&world, "mine", &format!("{INIT}; {RESULT}"));
    let said = world.run(&["tasks", "add", "a", "--agent", "mine"]);
    assert!(said.stderr.contains("agent mine is not trusted here yet: banksman trust --agent mine"), "{}", said.stderr);
    let refused = world.run(&["do", "b", "--agent", "mine"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(refused.stderr.contains("banksman trust --agent mine"), "{refused:?}");
    let shown = world.ok(&["trust", "--show", "--agent", "mine"]);
    assert!(shown.contains("not trusted  agent mine: permission level full"), "{shown}");
    world.ok(&["trust", "--agent", "mine"]);
    run(&world);
    assert_eq!(verdict(&world, "a").1, "ok");
    world.configure("level = \"edit\"\n");
    world.ok(&["tasks", "add", "c", "--agent", "mine"]);
    let _runner = world.start(&["run"]);
    until("the run is refused", || world.ok(&["why", "c"]).contains("agent mine is not trusted here (permission level edit"));
}

/// Hooks in the format of claude.
const HOOKS: &str = r#"{"hooks":{"SessionStart":[]}}"#;

fn write_hooks(directory: &std::path::Path, text: &str) {
    fs::create_dir_all(directory.join(".claude")).unwrap();
    fs::write(directory.join(".claude/settings.json"), text).unwrap();
}

#[test]
fn trust_covers_the_files_of_the_worktree_not_of_the_checkout() {
    let Checkout { world, beside } = &checkout();
    write_hooks(world.path(), HOOKS);
    git(world.path(), &["add", ".claude"]);
    git(world.path(), &["commit", "-q", "-m", "hooks"]);
    git(world.path(), &["branch", "hooks"]);
    git(world.path(), &["rm", "-q", ".claude/settings.json"]);
    git(world.path(), &["commit", "-q", "-m", "none"]);
    reading_agent(world, "mine", "\".claude/settings.json\"", &format!("{INIT}; {RESULT}"));
    world.ok(&["trust", "--agent", "mine"]);
    let id = world.data(&["tasks", "add", "Hooked", "--worktree", "--base", "hooks", "--agent", "mine"])["id"].clone();
    let id = id.as_str().unwrap();
    let ran = world.run(&["run", "--until-idle"]);
    assert_eq!((ran.code, starts(world, "mine")), (7, 0), "{ran:?}");
    let command = format!("banksman trust --agent mine --task {id}");
    assert!(ran.stderr.contains(&command), "the runner names it: {ran:?}");
    let why = world.ok(&["why", "Hooked"]);
    assert!(why.contains(".claude/settings.json (hooks SessionStart)") && why.contains(&command), "{why}");
    let status = world.ok(&["status"]);
    assert!(status.contains("is not trusted"), "{status}");
    let task = show(world, "Hooked");
    assert_eq!((&task["status"], &task["attempts"]), (&"blocked".into(), &0.into()), "it is no attempt: {task}");
    assert!(task["runs"][0]["agent"].is_null(), "no agent has run: {task}");
    // Neither trust in the files of the checkout nor another attempt helps.
    let decision = world.data(&["decisions", "list"])["decisions"][0]["id"].as_str().unwrap().to_owned();
    world.ok(&["trust", "--agent", "mine"]);
    world.ok(&["decisions", "resolve", &decision, "1"]);
    world.run(&["run", "--until-idle"]);
    assert_eq!((starts(world, "mine"), show(world, "Hooked")["status"].clone()), (0, "blocked".into()));
    // The files of the worktree are shown and trusted.
    let shown = world.ok(&["trust", "--show", "--agent", "mine", "--task", "Hooked"]);
    let row = "not trusted  agent mine: reads .claude/settings.json (hooks SessionStart)";
    assert!(shown.contains(row) && shown.contains(beside.join(id).to_str().unwrap()), "{shown}");
    let trusted = world.ok(&["trust", "--agent", "mine", "--task", "Hooked"]);
    assert!(trusted.contains("Hooked continues"), "{trusted}");
    run(world);
    let task = show(world, "Hooked");
    assert_eq!((&task["status"], &task["attempts"], starts(world, "mine")), (&"completed".into(), &1.into(), 1), "{task}");
    let prompt = fs::read_to_string(world.path().join("mine.sh.prompt")).unwrap();
    assert!(!prompt.contains("trust"), "the agent is not asked to trust files: {prompt}");
    // The same hooks in another worktree need no further trust, also after another `trust`.
    world.ok(&["trust"]);
    world.ok(&["tasks", "add", "Again", "--worktree", "--base", "hooks", "--agent", "mine"]);
    // Files that are only in the checkout do not matter.
    write_hooks(world.path(), "{}");
    world.ok(&["tasks", "add", "Plain", "--worktree", "--agent", "mine"]);
    run(world);
    assert_eq!((verdict(world, "Again").1, verdict(world, "Plain").1), ("ok".into(), "ok".into()));
    world.check();
}

#[test]
fn a_resumed_session_executes_no_file_that_its_agent_has_written() {
    let Checkout { world, beside } = &checkout();
    let limit = "echo '{\"type\":\"rate_limit_event\",\"rate_limit_info\":{\"status\":\"rejected\",\"resetsAt\":'$(($(date +%s)+1))',\"rateLimitType\":\"five_hour\"}}'";
    let limited = RESULT.replace("\"is_error\":false", "\"is_error\":true,\"api_error_status\":429");
    let writes = format!("mkdir .claude; echo '{HOOKS}' > .claude/settings.json");
    let first = format!("if [ $(wc -l < $0.args) -lt 2 ]; then {writes}; {limit}; {limited}; exit 1; fi");
    reading_agent(world, "mine", "\".claude/settings.json\"", &format!("{INIT}; {first}; {RESULT}"));
    world.ok(&["trust", "--agent", "mine"]);
    let id = world.data(&["tasks", "add", "Sly", "--worktree", "--agent", "mine"])["id"].as_str().unwrap().to_owned();
    let runner = world.start(&["run"]);
    until("the task is blocked or completed", || {
        let task = show(world, "Sly");
        task["status"] == "blocked" || task["status"] == "completed"
    });
    drop(runner);
    assert_eq!((starts(world, "mine"), show(world, "Sly")["attempts"].clone()), (1, 0.into()));
    assert!(fs::read_to_string(beside.join(&id).join(".claude/settings.json")).is_ok(), "the file is left in place");
    world.ok(&["trust", "--agent", "mine", "--task", &id]);
    run(world);
    assert_eq!((verdict(world, "Sly"), show(world, "Sly")["attempts"].clone()), (("completed".into(), "ok".into()), 1.into()));
    let args = fs::read_to_string(world.path().join("mine.sh.args")).unwrap();
    assert!(args.lines().nth(1).unwrap().contains("--resume s-1"), "the session is resumed: {args}");
}

#[test]
fn an_agent_is_trusted_with_the_section_that_it_extends() {
    let world = World::new();
    agent(&world, "base", &format!("{INIT}; {RESULT}"));
    let config = world.path().join(".banksman/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}\n[agent.derived]\nextends = \"base\"\n")).unwrap();
    world.ok(&["trust", "--agent", "derived"]);
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("account = \"base\"", "account = \"other\"")).unwrap();
    let shown = world.ok(&["trust", "--show", "--agent", "derived"]);
    assert!(shown.contains("not trusted  agent derived: section [agent.base] of the project"), "{shown}");
    world.ok(&["tasks", "add", "Derived", "--agent", "derived"]);
    run(&world);
    assert_eq!((starts(&world, "base"), show(&world, "Derived")["status"].clone()), (0, "blocked".into()));
}

#[test]
fn agents_check_does_not_start_an_untrusted_program() {
    let world = World::new();
    agent(&world, "mine", "echo 1.2.3");
    let checked = world.run(&["agents", "check", "mine"]);
    assert_eq!((checked.code, starts(&world, "mine")), (7, 0), "{checked:?}");
    assert!(checked.stdout.contains("not trusted here") && checked.stdout.contains("banksman trust --agent mine"), "{checked:?}");
    world.ok(&["trust", "--agent", "mine"]);
    assert!(world.run(&["agents", "check", "mine"]).stdout.contains("version 1.2.3"));
}

#[test]
fn only_a_regular_file_is_trusted_and_a_long_one_to_its_end() {
    let world = World::new();
    reading_agent(&world, "mine", "\".claude/settings.json\"", &format!("{INIT}; {RESULT}"));
    // A long file is compared to its end.
    let long = |last: &str| format!("{{\"x\":\"{}{last}\"}}", " ".repeat(2 << 20));
    write_hooks(world.path(), &long("a"));
    world.ok(&["trust", "--agent", "mine"]);
    world.ok(&["tasks", "add", "Long", "--agent", "mine"]);
    run(&world);
    assert_eq!(verdict(&world, "Long").1, "ok");
    write_hooks(world.path(), &long("b"));
    world.ok(&["tasks", "add", "Changed", "--agent", "mine"]);
    run(&world);
    assert_eq!((starts(&world, "mine"), show(&world, "Changed")["status"].clone()), (1, "blocked".into()));
    // Only a regular file can be trusted.
    let file = world.path().join(".claude/settings.json");
    fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    let said = world.run(&["trust", "--agent", "mine"]);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.stdout.contains("not trusted  agent mine: reads .claude/settings.json: it is no file"), "{said:?}");
    world.ok(&["tasks", "add", "Odd", "--agent", "mine"]);
    run(&world);
    assert_eq!((starts(&world, "mine"), show(&world, "Odd")["status"].clone()), (1, "blocked".into()));
    let why = world.ok(&["why", "Odd"]);
    assert!(why.contains("it is no file"), "{why}");
}

#[test]
fn agents_are_listed_shown_and_checked() {
    let world = World::new();
    trusted(&world, "mine", "echo 1.2.3");
    let list = world.ok(&["agents", "list"]);
    assert!(["claude", "codex", "gemini", "opencode", "mine"].iter().all(|name| list.contains(name)), "{list}");
    let shown = world.ok(&["agents", "show", "mine"]);
    assert!(shown.contains("--permission-mode bypassPermissions"), "{shown}");
    let unknown = world.run(&["agents", "show", "cloud"]);
    assert_eq!(unknown.code, 4, "{unknown:?}");
    assert!(unknown.stderr.contains("did you mean claude?"), "{unknown:?}");
    let checked = world.run(&["agents", "check", "mine"]);
    assert_eq!(checked.code, 7, "{checked:?}");
    assert!(
        checked.stdout.contains("version 1.2.3") && checked.stdout.contains("this version does not know --verbose"),
        "{checked:?}"
    );
}

#[test]
fn the_cost_under_a_subscription_is_shown_as_a_list_price() {
    let at = checkout();
    let init = INIT.replace("\"model\"", "\"apiKeySource\":\"none\",\"model\"");
    trusted(&at.world, "covered", &format!("{init}; {RESULT}"));
    at.world.ok(&["tasks", "add", "Covered", "--agent", "covered"]);
    run(&at.world);
    let today = |world: &World| world.data(&["status"])["spendToday"][0]["paidMicros"].clone();
    assert_eq!(today(&at.world), 0);
    for said in [
        at.world.ok(&["report"]),
        at.world.ok(&["tasks", "show", "Covered"]),
        at.world.ok(&["do", "Covered", "--agent", "covered"]),
    ] {
        assert!(said.contains("$0.25 (list price)"), "{said}");
        assert!(!said.contains("spent"), "{said}");
    }
    // Another account pays, although the program prints the same.
    at.world.configure("env = { CLAUDE_CODE_USE_BEDROCK = \"1\" }\n");
    at.world.ok(&["trust", "--agent", "covered"]);
    at.world.ok(&["tasks", "add", "Paid", "--agent", "covered"]);
    run(&at.world);
    assert_eq!(today(&at.world), 250_000);
    let said = at.world.ok(&["tasks", "show", "Paid"]);
    assert!(said.contains(", $0.25)"), "{said}");
}

#[test]
fn the_prompt_of_a_landing_task_explains_no_change() {
    let at = checkout();
    at.world.ok(&["config", "set", "--user", "landing.check", "true"]);
    let says = format!("{BANKSMAN} tasks done $BANKSMAN_TASK --no-change");
    trusted(
        &at.world,
        "mine",
        &format!("{INIT}; cp $0.prompt $0.prompt$BANKSMAN_ATTEMPT; [ $BANKSMAN_ATTEMPT = 0 ] || {says}; {RESULT}"),
    );
    at.world.ok(&["tasks", "add", "Look", "--agent", "mine"]);
    run(&at.world);
    assert_eq!(verdict(&at.world, "Look"), ("completed".into(), "ok".into()));
    for attempt in 0..2 {
        let prompt = fs::read_to_string(at.world.path().join(format!("mine.sh.prompt{attempt}"))).unwrap();
        assert_eq!(prompt.contains("did not land: nothing was changed."), attempt == 1, "{prompt}");
        assert!(prompt.contains("banksman tasks done \"$BANKSMAN_TASK\" --no-change"), "{prompt}");
    }
}

#[test]
fn the_prompt_contains_the_rules_of_the_section() {
    let world = World::new();
    trusted(&world, "mine", &format!("{INIT}; {RESULT}"));
    world.configure("\n[section.database]\nrules = \"No locks.\"\n");
    for section in ["Database", "web"] {
        world.ok(&["sections", "add", section]);
        world.ok(&["tasks", "add", &format!("In {section}"), "--agent", "mine", "--section", section]);
    }
    let prompt = |task: &str| world.ok(&["tasks", "show", task, "--prompt"]);
    assert!(prompt("In Database").contains("Rules for Database:\nNo locks.\n"), "{}", prompt("In Database"));
    assert!(!prompt("In web").contains("Rules"), "{}", prompt("In web"));
    // Rules are no command, so there is nothing to trust.
    run(&world);
    assert!(fs::read_to_string(world.path().join("mine.sh.prompt")).is_ok());
    assert_eq!(verdict(&world, "In Database").1, "ok");
}

#[test]
fn logs_top_and_review_show_the_text_of_an_agent_not_its_json() {
    const SAYS: &str = r#"echo '{"type":"assistant","message":{"content":[{"type":"text","text":"I look at the tests."}]}}'"#;
    let world = World::new();
    let gate = world.path().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    trusted(
        &world,
        "talker",
        &format!("{INIT}; {SAYS}; cat {}; {BANKSMAN} tasks ask 'Go on?' --option Yes; {RESULT}", gate.display()),
    );
    world.ok(&["tasks", "add", "Talk", "--agent", "talker", "--prompt", "do it"]);
    let _runner = world.start(&["run"]);
    until("it talks", || world.run(&["logs", "Talk"]).stdout.contains("I look"));
    let mut top = Screen::start(&world, &["top"], 20, 100);
    top.until("its last words", |screen| screen.contains("▸ Talk") && screen.contains("I look at the tests."));
    assert!(!top.text().contains('{'), "{}", top.text());
    top.press("q");
    top.end();
    fs::write(&gate, "").unwrap();
    until("a person is asked", || world.data(&["status"])["decisions"] == 1);
    let mut review = Screen::start(&world, &["decisions", "review"], 30, 100);
    let shown = review.until_shows("q to stop:");
    assert!(shown.contains("| I look at the tests.") && !shown.contains('{'), "{shown}");
    review.press("q\r");
    review.end();
}
