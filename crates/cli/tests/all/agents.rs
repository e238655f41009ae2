//! Agents, with programs that speak the format of one: scripts whose output is the test.

use std::fs;
use std::path::PathBuf;

use crate::merging::{git, repository};
use crate::quota::starts;
use crate::screen::Screen;
use crate::worktrees::{Checkout, checkout};
use crate::world::{BANKSMAN, World, until, write_program};

pub(crate) const INIT: &str = r#"echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'"#;
pub(crate) const RESULT: &str = r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":2,"total_cost_usd":0.25,"usage":{"input_tokens":10,"output_tokens":2}}'"#;

/// Makes a program that does this. Its arguments and its prompt are in files beside it.
fn script(world: &World, name: &str, script: &str) -> PathBuf {
    let program = world.path().join(format!("{name}.sh"));
    let text = format!("#!/bin/sh\necho \"$@\" >> {0}.args\ncat > {0}.prompt\n{script}\n", program.display());
    write_program(&program, &text);
    program
}

/// The same, and an agent of it.
fn agent(world: &World, name: &str, script: &str) {
    reading_agent(world, name, "", script);
}

/// The same, and the program executes something from these files of a repository.
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

fn run(world: &World) {
    world.run(&["run", "--until-idle"]);
}

fn show(world: &World, task: &str) -> serde_json::Value {
    world.data(&["tasks", "show", task])
}

fn verdict(world: &World, task: &str) -> (String, String) {
    let task = show(world, task);
    let run = task["runs"].as_array().unwrap().last().cloned().unwrap();
    (task["status"].as_str().unwrap().into(), run["agent"]["verdict"].as_str().unwrap_or("none").into())
}

#[test]
fn the_result_decides_not_the_exit_status() {
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
fn a_retry_is_told_what_happened_and_a_loop_needs_more_than_a_result() {
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
fn an_agent_starts_only_after_trust_and_again_when_something_has_changed() {
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

/// Hooks as claude reads them.
const HOOKS: &str = r#"{"hooks":{"SessionStart":[]}}"#;

fn write_hooks(directory: &std::path::Path, text: &str) {
    fs::create_dir_all(directory.join(".claude")).unwrap();
    fs::write(directory.join(".claude/settings.json"), text).unwrap();
}

/// How often an agent was started.
#[test]
fn what_lies_where_the_agent_runs_is_trusted_and_not_what_lies_in_the_checkout() {
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
    // What is trusted of the checkout is no help, nor is another try.
    let decision = world.data(&["decisions", "list"])["decisions"][0]["id"].as_str().unwrap().to_owned();
    world.ok(&["trust", "--agent", "mine"]);
    world.ok(&["decisions", "resolve", &decision, "1"]);
    world.run(&["run", "--until-idle"]);
    assert_eq!((starts(world, "mine"), show(world, "Hooked")["status"].clone()), (0, "blocked".into()));
    // What lies in the worktree is shown, and trusted.
    let shown = world.ok(&["trust", "--show", "--agent", "mine", "--task", "Hooked"]);
    let row = "not trusted  agent mine: reads .claude/settings.json (hooks SessionStart)";
    assert!(shown.contains(row) && shown.contains(beside.join(id).to_str().unwrap()), "{shown}");
    let trusted = world.ok(&["trust", "--agent", "mine", "--task", "Hooked"]);
    assert!(trusted.contains("Hooked goes on"), "{trusted}");
    run(world);
    let task = show(world, "Hooked");
    assert_eq!((&task["status"], &task["attempts"], starts(world, "mine")), (&"completed".into(), &1.into(), 1), "{task}");
    let prompt = fs::read_to_string(world.path().join("mine.sh.prompt")).unwrap();
    assert!(!prompt.contains("trust"), "the agent has nothing to do with it: {prompt}");
    // The same hooks elsewhere need nothing more, also after another `trust`.
    world.ok(&["trust"]);
    world.ok(&["tasks", "add", "Again", "--worktree", "--base", "hooks", "--agent", "mine"]);
    // What lies in the checkout only concerns nobody.
    write_hooks(world.path(), "{}");
    world.ok(&["tasks", "add", "Plain", "--worktree", "--agent", "mine"]);
    run(world);
    assert_eq!((verdict(world, "Again").1, verdict(world, "Plain").1), ("ok".into(), "ok".into()));
    world.check();
}

#[test]
fn what_an_agent_has_written_itself_is_not_executed_when_its_session_goes_on() {
    let Checkout { world, beside } = &checkout();
    let limit = "echo '{\"type\":\"rate_limit_event\",\"rate_limit_info\":{\"status\":\"rejected\",\"resetsAt\":'$(($(date +%s)+1))',\"rateLimitType\":\"five_hour\"}}'";
    let limited = RESULT.replace("\"is_error\":false", "\"is_error\":true,\"api_error_status\":429");
    let writes = format!("mkdir .claude; echo '{HOOKS}' > .claude/settings.json");
    let first = format!("if [ $(wc -l < $0.args) -lt 2 ]; then {writes}; {limit}; {limited}; exit 1; fi");
    reading_agent(world, "mine", "\".claude/settings.json\"", &format!("{INIT}; {first}; {RESULT}"));
    world.ok(&["trust", "--agent", "mine"]);
    let id = world.data(&["tasks", "add", "Sly", "--worktree", "--agent", "mine"])["id"].as_str().unwrap().to_owned();
    let runner = world.start(&["run"]);
    until("its session goes on, or would", || {
        let task = show(world, "Sly");
        task["status"] == "blocked" || task["status"] == "completed"
    });
    drop(runner);
    assert_eq!((starts(world, "mine"), show(world, "Sly")["attempts"].clone()), (1, 0.into()));
    assert!(fs::read_to_string(beside.join(&id).join(".claude/settings.json")).is_ok(), "it is left where it was");
    world.ok(&["trust", "--agent", "mine", "--task", &id]);
    run(world);
    assert_eq!((verdict(world, "Sly"), show(world, "Sly")["attempts"].clone()), (("completed".into(), "ok".into()), 1.into()));
    let args = fs::read_to_string(world.path().join("mine.sh.args")).unwrap();
    assert!(args.lines().nth(1).unwrap().contains("--resume s-1"), "the same session goes on: {args}");
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
fn a_program_that_the_project_names_is_not_even_asked_about_itself_before_it_is_trusted() {
    let world = World::new();
    agent(&world, "mine", "echo 1.2.3");
    let checked = world.run(&["agents", "check", "mine"]);
    assert_eq!((checked.code, starts(&world, "mine")), (7, 0), "{checked:?}");
    assert!(checked.stdout.contains("not trusted here") && checked.stdout.contains("banksman trust --agent mine"), "{checked:?}");
    world.ok(&["trust", "--agent", "mine"]);
    assert!(world.run(&["agents", "check", "mine"]).stdout.contains("version 1.2.3"));
}

#[test]
fn a_file_that_cannot_be_judged_is_not_trusted() {
    let world = World::new();
    reading_agent(&world, "mine", "\".claude/settings.json\"", &format!("{INIT}; {RESULT}"));
    // A long file is read to its end.
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
    // What is no file cannot be trusted at all.
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

/// An agent that commits a file of its own.
fn committing() -> String {
    format!("{INIT}; echo x > x-$BANKSMAN_TASK; git add .; git commit -qm x; {RESULT}")
}

#[test]
fn do_lands_what_passes_the_check_and_goes_on_where_it_was() {
    let Checkout { world, .. } = &checkout();
    let log = |count: &str| git(world.path(), &["log", "--format=%s", count]);
    trusted(world, "mine", &committing());
    let plan = "- [ ] Add login\n  With OAuth.\n- [ ] Fix rounding\n- [x] Before\n";
    fs::write(world.path().join("plan.md"), plan).unwrap();
    let said = world.run(&["do", "plan.md", "--agent", "mine", "--check", "ls x-*"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.contains("completed   Add login  landed on main as "), "{}", said.stdout);
    for line in ["agent   mine, permission level full", "target  main", "check   ls x-*", "files have uncommitted changes"] {
        assert!(said.stderr.contains(line), "{line}: {}", said.stderr);
    }
    assert!(log("-2").contains("Add login") && log("-2").contains("Fix rounding"));
    assert_eq!(world.ok(&["config", "get", "landing.check"]).trim(), "ls x-*", "the check is stored");
    let again = world.run(&["do", "Add login", "third", "Third", "--agent", "mine", "--json"]);
    assert!(again.code == 0, "{again:?}");
    let report: serde_json::Value = serde_json::from_str(&again.stdout).expect("one report, and nothing else");
    assert_eq!(report["data"]["tasks"][1]["landing"]["state"], "landed", "{report}");
    assert_eq!(world.data(&["tasks", "list", "--all"])["tasks"].as_array().unwrap().len(), 3);
}

#[test]
fn do_without_a_check_leaves_the_work_in_review_with_the_command_that_lands_it() {
    let Checkout { world, .. } = &checkout();
    let log = |count: &str| git(world.path(), &["log", "--format=%s", count]);
    trusted(world, "mine", &committing());
    let said = world.run(&["do", "Add login", "Fix rounding", "--agent", "mine"]);
    assert_eq!(said.code, 7, "{said:?}");
    assert!(said.stdout.starts_with("review      Add login  landing.check is not set"), "{}", said.stdout);
    let commands: Vec<&str> = said.stdout.lines().filter_map(|line| line.trim().strip_prefix("banksman ")).collect();
    assert_eq!(commands.len(), 2, "{}", said.stdout);
    world.ok(&commands[0].split(' ').collect::<Vec<_>>());
    assert_eq!(log("-1"), "Add login");
    // With a check, the rest lands by itself.
    let said = world.run(&["do", "add login", "fix rounding", "--agent", "mine", "--check", "true"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains("Fix rounding: was in review, and lands"), "{}", said.stderr);
    assert_eq!(log("-1"), "Fix rounding");
}

#[test]
fn do_tries_again_what_has_failed_and_says_what_is_not_installed() {
    let Checkout { world, .. } = &checkout();
    trusted(world, "mine", &format!("{INIT}; if [ -e $0.fixed ]; then echo x > x; {RESULT}; else exit 1; fi"));
    let said = world.run(&["do", "Add login", "--agent", "mine", "--check", "true"]);
    assert!(said.code == 7 && said.stdout.starts_with("failed      Add login"), "{said:?}");
    fs::write(world.path().join("mine.sh.fixed"), "").unwrap();
    let said = world.run(&["do", "Add login", "--agent", "mine"]);
    assert!(said.code == 0 && said.stderr.contains("Add login: failed before, and is tried again"), "{said:?}");
    agent(world, "other", "");
    fs::remove_file(world.path().join("other.sh")).unwrap();
    let said = world.run(&["do", "Add login", "--agent", "other"]);
    assert!(said.code == 4 && said.stderr.contains("is not installed"), "{said:?}");
    assert!(said.stderr.contains("npm install -g @anthropic-ai/claude-code"), "{said:?}");
}

#[test]
fn a_second_do_takes_over_what_was_edited() {
    let Checkout { world, .. } = &checkout();
    let plan = |text: &str| fs::write(world.path().join("plan.md"), text).unwrap();
    trusted(world, "mine", &format!("{INIT}; exit 1"));
    let gate = world.path().join("gate");
    let waits = format!("touch $0.begun; while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    trusted(world, "other", &committing().replace("; git add", &format!("; {waits}; git add")));
    plan("- [ ] Add login\n  With OAuth.\n");
    assert_eq!(world.run(&["do", "plan.md", "--agent", "mine", "--check", "true"]).code, 7);
    // By its title alone it keeps its prompt, and without --agent its agent.
    world.ok(&["config", "set", "agents.default", "other"]);
    world.run(&["do", "Add login"]);
    let work = || show(world, "Add login")["work"].clone();
    let prompt = || world.ok(&["tasks", "show", "Add login", "--prompt"]);
    assert!(prompt().contains("With OAuth.") && starts(world, "mine") == 2, "{}", work());
    plan("- [ ] Add login\n  With SAML.\n");
    let second = |name: &str, args: &[&str]| {
        let said = world.path().join(name);
        let child = world.command(args).stderr(fs::File::create(&said).unwrap()).spawn().unwrap();
        (child, said)
    };
    let (mut first, said) = second("first", &["do", "plan.md", "--agent", "other"]);
    until("it works", || world.path().join("other.sh.begun").exists());
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("Add login: failed before, and is tried again with its new prompt, by other"), "{said}");
    // A run that lives has its prompt.
    plan("- [ ] Add login\n  With a password.\n");
    let (mut third, said) = second("third", &["do", "plan.md", "--agent", "mine"]);
    let told = || fs::read_to_string(&said).unwrap();
    until("it says so", || told().contains("Add login: in_progress already"));
    fs::write(gate, "").unwrap();
    assert!(first.wait().unwrap().success() && third.wait().unwrap().success());
    let wanted = "Add login: in_progress already; its new prompt and its new agent are not used, because a run is in progress";
    assert!(told().contains(wanted), "{}", told());
    let prompt = fs::read_to_string(world.path().join("other.sh.prompt")).unwrap();
    assert!(prompt.contains("With SAML.") && !prompt.contains("With OAuth."), "{prompt}");
    let said = world.run(&["do", "plan.md", "--agent", "mine"]);
    let wanted = "Add login: completed already; its new prompt and its new agent are not used: banksman tasks retry t-";
    assert!(said.code == 0 && said.stderr.contains(wanted), "{said:?}");
    assert_eq!((starts(world, "mine"), starts(world, "other")), (2, 1));
    world.check();
}

#[test]
fn a_session_that_goes_on_is_told_a_prompt_that_was_edited() {
    let Checkout { world, .. } = &checkout();
    let ask = format!("{BANKSMAN} tasks ask 'Which one?'");
    let asks = format!("if [ $(wc -l < $0.args) -lt 2 ]; then {ask}; fi");
    trusted(world, "mine", &committing().replace("; git add", &format!("; {asks}; git add")));
    fs::write(world.path().join("plan.md"), "- [ ] Add login\n  With OAuth.\n").unwrap();
    world.run(&["do", "plan.md", "--agent", "mine", "--check", "true"]);
    fs::write(world.path().join("plan.md"), "- [ ] Add login\n  With SAML.\n").unwrap();
    let said = world.run(&["do", "plan.md", "--agent", "mine"]);
    assert!(said.stderr.contains("Add login: blocked already, now with its new prompt"), "{said:?}");
    let decision = world.data(&["decisions", "list"])["decisions"][0]["id"].as_str().unwrap().to_owned();
    world.ok(&["decisions", "resolve", &decision, "1", "--note", "this one"]);
    run(world);
    let prompt = fs::read_to_string(world.path().join("mine.sh.prompt")).unwrap();
    assert!(prompt.starts_with("Go on with your task: Add login\n\nIt was changed, and is now:\n\nWith SAML.\n"), "{prompt}");
    assert!(prompt.contains("The answer: this one"), "{prompt}");
}

#[test]
fn do_makes_a_project_and_tells_what_to_trust() {
    let world = World::empty();
    repository(&world);
    let program = script(&world, "mine", &committing());
    let section =
        format!("[agent.mine]\nextends = \"claude\"\nprogram = \"{}\"\nreads = []\ncheck_login = []\n", program.display());
    fs::create_dir_all(world.path().join("config/banksman")).unwrap();
    fs::write(world.path().join("config/banksman/config.toml"), section).unwrap();
    let refused = world.run(&["do", "Add login", "--agent", "mine", "--check", "true"]);
    assert!(refused.code == 5 && refused.stderr.contains("made a project in "), "{refused:?}");
    assert!(refused.stderr.contains("banksman trust --agent mine"), "{refused:?}");
    world.ok(&["trust", "--agent", "mine"]);
    let said = world.run(&["do", "Add login", "--agent", "mine"]);
    assert!(said.code == 0 && said.stderr.contains("check   true"), "the check was stored: {said:?}");
    assert_eq!(git(world.path(), &["log", "--format=%s", "-1"]), "Add login");
    let name = world.path().file_name().unwrap().to_str().unwrap();
    fs::remove_dir_all(world.path().with_file_name(format!(".{name}-banksman"))).ok();
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
fn what_a_subscription_covers_is_a_list_price_everywhere() {
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
    // Somebody else pays, and the program says just the same.
    at.world.configure("env = { CLAUDE_CODE_USE_BEDROCK = \"1\" }\n");
    at.world.ok(&["trust", "--agent", "covered"]);
    at.world.ok(&["tasks", "add", "Paid", "--agent", "covered"]);
    run(&at.world);
    assert_eq!(today(&at.world), 250_000);
    let said = at.world.ok(&["tasks", "show", "Paid"]);
    assert!(said.contains(", $0.25)"), "{said}");
}

#[test]
fn an_agent_whose_work_lands_knows_how_to_say_that_nothing_has_to_be_changed() {
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
fn an_agent_is_told_the_rules_of_the_section() {
    let world = World::new();
    trusted(&world, "mine", &format!("{INIT}; {RESULT}"));
    world.configure("\n[section.database]\nrules = \"No locks.\"\n");
    for section in ["Database", "web"] {
        world.ok(&["sections", "add", section]);
        world.ok(&["tasks", "add", &format!("In {section}"), "--agent", "mine", "--section", section]);
    }
    let told = |task: &str| world.ok(&["tasks", "show", task, "--prompt"]);
    assert!(told("In Database").contains("Rules for Database:\nNo locks.\n"), "{}", told("In Database"));
    assert!(!told("In web").contains("Rules"), "{}", told("In web"));
    // It is no command, so there is nothing to trust.
    run(&world);
    assert!(fs::read_to_string(world.path().join("mine.sh.prompt")).is_ok());
    assert_eq!(verdict(&world, "In Database").1, "ok");
}

#[test]
fn what_an_agent_does_is_told_in_words_where_people_look() {
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
