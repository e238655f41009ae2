//! `banksman do`: tasks for agents from prompts and files, and the landing of their work.

use std::fs;

use crate::agents::{INIT, RESULT, agent, run, script, show, trusted};
use crate::merging::{git, repository};
use crate::quota::starts;
use crate::worktrees::{Checkout, checkout};
use crate::world::{BANKSMAN, World, until};

/// An agent that commits a new file.
fn committing() -> String {
    format!("{INIT}; echo x > x-$BANKSMAN_TASK; git add .; git commit -qm x; {RESULT}")
}

#[test]
fn do_lands_work_that_passes_the_check_and_continues_a_file() {
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
fn do_without_a_check_leaves_the_work_in_review() {
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
    // With a check, the other task lands by itself.
    let said = world.run(&["do", "add login", "fix rounding", "--agent", "mine", "--check", "true"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains("Fix rounding: was in review, and lands"), "{}", said.stderr);
    assert_eq!(log("-1"), "Fix rounding");
}

#[test]
fn do_retries_failed_tasks_and_names_a_missing_agent_program() {
    let Checkout { world, .. } = &checkout();
    trusted(world, "mine", &format!("{INIT}; if [ -e $0.fixed ]; then echo x > x; {RESULT}; else exit 1; fi"));
    let said = world.run(&["do", "Add login", "--agent", "mine", "--check", "true"]);
    assert!(said.code == 7 && said.stdout.starts_with("failed      Add login"), "{said:?}");
    fs::write(world.path().join("mine.sh.fixed"), "").unwrap();
    let said = world.run(&["do", "Add login", "--agent", "mine"]);
    assert!(said.code == 0 && said.stderr.contains("Add login: failed before, queued for retry"), "{said:?}");
    agent(world, "other", "");
    fs::remove_file(world.path().join("other.sh")).unwrap();
    let said = world.run(&["do", "Add login", "--agent", "other"]);
    assert!(said.code == 4 && said.stderr.contains("is not installed"), "{said:?}");
    assert!(said.stderr.contains("npm install -g @anthropic-ai/claude-code"), "{said:?}");
}

#[test]
fn a_second_do_uses_the_edited_prompt_and_agent() {
    let Checkout { world, .. } = &checkout();
    let plan = |text: &str| fs::write(world.path().join("plan.md"), text).unwrap();
    trusted(world, "mine", &format!("{INIT}; exit 1"));
    let gate = world.path().join("gate");
    let waits = format!("touch $0.begun; while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    trusted(world, "other", &committing().replace("; git add", &format!("; {waits}; git add")));
    plan("- [ ] Add login\n  With OAuth.\n");
    assert_eq!(world.run(&["do", "plan.md", "--agent", "mine", "--check", "true"]).code, 7);
    // A task named by its title keeps its prompt; without --agent it gets the default agent.
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
    until("it works", || world.has("other.sh.begun"));
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("Add login: failed before, queued for retry with its new prompt, by other"), "{said}");
    // A live run keeps its prompt.
    plan("- [ ] Add login\n  With a password.\n");
    let (mut third, said) = second("third", &["do", "plan.md", "--agent", "mine"]);
    let output = || fs::read_to_string(&said).unwrap();
    until("it says so", || output().contains("Add login: in_progress already"));
    fs::write(gate, "").unwrap();
    assert!(first.wait().unwrap().success() && third.wait().unwrap().success());
    let wanted = "Add login: in_progress already; its new prompt and its new agent are not used, because a run is in progress";
    assert!(output().contains(wanted), "{}", output());
    let prompt = fs::read_to_string(world.path().join("other.sh.prompt")).unwrap();
    assert!(prompt.contains("With SAML.") && !prompt.contains("With OAuth."), "{prompt}");
    let said = world.run(&["do", "plan.md", "--agent", "mine"]);
    let wanted = "Add login: completed already; its new prompt and its new agent are not used: banksman tasks retry t-";
    assert!(said.code == 0 && said.stderr.contains(wanted), "{said:?}");
    assert_eq!((starts(world, "mine"), starts(world, "other")), (2, 1));
    world.check();
}

#[test]
fn a_resumed_session_gets_the_edited_prompt() {
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
fn do_makes_a_project_and_names_the_trust_command() {
    let world = World::empty();
    repository(&world);
    let program = script(&world, "mine", &committing());
    let section =
        format!("[agent.mine]\nextends = \"claude\"\nprogram = \"{}\"\nreads = []\ncheck_login = []\n", program.display());
    fs::create_dir_all(world.path().join("config/banksman")).unwrap();
    fs::write(world.path().join("config/banksman/config.toml"), section).unwrap();
    let refused = world.run(&["do", "Add login", "--agent", "mine", "--check", "true"]);
    assert!(refused.code == 5 && refused.stderr.contains("created a project in "), "{refused:?}");
    assert!(refused.stderr.contains("banksman trust --agent mine"), "{refused:?}");
    world.ok(&["trust", "--agent", "mine"]);
    let said = world.run(&["do", "Add login", "--agent", "mine"]);
    assert!(said.code == 0 && said.stderr.contains("check   true"), "the check was stored: {said:?}");
    assert_eq!(git(world.path(), &["log", "--format=%s", "-1"]), "Add login");
    let name = world.path().file_name().unwrap().to_str().unwrap();
    fs::remove_dir_all(world.path().with_file_name(format!(".{name}-banksman"))).ok();
}
