use banksman_agent_tests::world::{AGENTS, World};

const COMMIT: &str = "@run echo hello > hello.txt && git add . && git commit -qm hello\n";

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn every_agent_edits_and_commits_in_a_worktree_of_its_own() {
    let world = World::new();
    for agent in AGENTS {
        world.add(&format!("Hello {agent}"), agent, COMMIT);
    }
    let output = world.run_until_idle();
    for agent in AGENTS {
        let title = format!("Hello {agent}");
        assert_eq!(world.verdicts(&title), ["ok"], "{}\n{}", world.log(&title), String::from_utf8_lossy(&output.stderr));
        assert_eq!(
            (world.status(&title), world.commits(&title)),
            ("completed".into(), vec!["hello".to_owned()]),
            "{agent}: {}",
            world.log(&title)
        );
    }
    assert!(!world.root().join("hello.txt").exists(), "the checkout is untouched");
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn every_agent_commits_in_a_worktree_at_the_level_edit() {
    let world = World::untrusted();
    let sections: Vec<String> = AGENTS.iter().map(|agent| format!("[agent.{agent}]\nlevel = \"edit\"\n")).collect();
    world.write(".banksman/config.toml", &sections.concat());
    world.ok(&["trust", "--agent", &AGENTS.join(",")]);
    for agent in AGENTS {
        world.add(&format!("Hello {agent}"), agent, "@run git commit -q --allow-empty -m hello\n");
    }
    world.run_until_idle();
    for title in AGENTS.map(|agent| format!("Hello {agent}")) {
        let found = (world.verdicts(&title), world.commits(&title));
        assert_eq!(found, (vec!["ok".into()], vec!["hello".to_owned()]), "{}", world.log(&title));
    }
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn one_command_lands_a_change_of_every_agent() {
    let world = World::new();
    let work = |agent: &str| {
        let plan = format!(
            "- [ ] Hello {agent}\n  @script {agent}\n  @run echo {agent} > {agent}.txt && git add {agent}.txt && git commit -qm {agent}\n"
        );
        world.write(&format!(".banksman/{agent}.md"), &plan);
        world.run(&["do", &format!(".banksman/{agent}.md"), "--agent", agent, "--check", "ls *.txt"])
    };
    // Four runners at once.
    let said: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = AGENTS
            .map(|agent| {
                scope.spawn({
                    let work = &work;
                    move || work(agent)
                })
            })
            .into();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (agent, output) in AGENTS.iter().zip(said) {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let title = format!("Hello {agent}");
        assert!(output.status.success(), "{agent}: {out}{err}{}", world.log(&title));
        assert!(out.contains(&format!("completed   {title}  landed on main as ")), "{out}{err}");
        assert_eq!(world.git(&["show", &format!("main:{agent}.txt")]), *agent);
    }
    assert_eq!(world.git(&["log", "--format=%s", "main"]).lines().count(), AGENTS.len() + 1, "each landed once");
    assert_eq!(world.git(&["status", "--porcelain", "--", "*.txt"]), "", "the checkout has them, too");
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_huge_answer_a_failing_command_and_an_overload_end_well() {
    let world = World::new();
    // Two instances that start for the first time at the same moment both create the database of opencode, and one of
    // them crashes.
    world.add("First", "opencode", "@run echo ok\n");
    world.run_until_idle();
    for agent in AGENTS {
        world.add(&format!("Huge {agent}"), agent, "@run exit 3\n@huge 200000\n");
        world.add(&format!("Overloaded {agent}"), agent, "@overload 1\n@run echo ok\n");
    }
    world.run_until_idle();
    for title in AGENTS.iter().flat_map(|agent| [format!("Huge {agent}"), format!("Overloaded {agent}")]) {
        let log = world.log(&title);
        let end: String = log.chars().rev().take(2_000).collect::<Vec<_>>().into_iter().rev().collect();
        assert_eq!((world.verdicts(&title), world.status(&title)), (vec!["ok".into()], "completed".into()), "{title}: …{end}");
    }
    let log = world.ok(&["tasks", "logs", "Overloaded claude"]);
    assert!(log.contains("retrying: overloaded") && log.contains("> Bash: echo ok"), "{log}");
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_tool_call_longer_than_the_silence_limit_is_no_silence() {
    let world = World::new();
    for agent in AGENTS {
        world.add_with(&format!("Slow {agent}"), agent, "@run sleep 30\n", &["--silence-timeout", "12s"]);
    }
    world.run_until_idle();
    for title in AGENTS.map(|agent| format!("Slow {agent}")) {
        assert_eq!(
            (world.verdicts(&title), world.status(&title)),
            (vec!["ok".into()], "completed".into()),
            "{}",
            world.log(&title)
        );
    }
}

/// Two agents change the same line. A fresh session or the author's session resolves the conflict.
#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_conflict_goes_to_the_session_of_the_author_or_to_a_fresh_agent() {
    let world = World::new();
    world.ok(&["config", "set", "landing.check", "true"]);
    world.ok(&["trust"]);
    for (agent, on_conflict) in [("claude", "agent"), ("codex", "author"), ("claude", "author")] {
        world.ok(&["config", "set", "landing.on_conflict", on_conflict]);
        let (file, title) = (format!("{agent}-{on_conflict}.txt"), format!("Conflict {agent} {on_conflict}"));
        // In the author's session the second run continues after the first turn; in a new session it starts from the
        // beginning.
        let script = format!(
            "@run if [ $BANKSMAN_ATTEMPT = 0 ]; then echo mine > {file}; git add {file}; git commit -qm mine; \
             touch $BANKSMAN_PROJECT/.banksman/begun; while [ ! -e $BANKSMAN_PROJECT/.banksman/go ]; do sleep 0.1; done; \
             else echo both > {file}; fi\n@say The first turn is over.\n@run if [ $BANKSMAN_ATTEMPT = 1 ]; then echo both > {file}; fi\n"
        );
        world.add_with(&title, agent, &script, &["--land"]);
        let mut runner = world.start(&["run", "--until-idle"]);
        let (begun, go) = (world.root().join(".banksman/begun"), world.root().join(".banksman/go"));
        banksman_agent_tests::world::until("it has begun", || begun.exists());
        world.write(&file, "theirs\n");
        world.git(&["add", &file]);
        world.git(&["commit", "-qm", "theirs"]);
        std::fs::write(&go, "").unwrap();
        runner.wait().unwrap();
        let task = world.task(&title);
        let found = (world.verdicts(&title), world.status(&title), world.git(&["show", &format!("main:{file}")]));
        assert_eq!(found, (vec!["ok".into(); 2], "completed".into(), "both".into()), "{}", world.log(&title));
        let session = |number: usize| task["runs"][number]["agent"]["session"].as_str().unwrap_or_default().to_owned();
        assert_eq!(session(0) == session(1), on_conflict == "author", "{agent} {on_conflict}: {task}");
        let prompts = world.model.prompts(&title);
        assert!(prompts.iter().any(|said| said.contains("The work did not land: conflict in ")), "{prompts:?}");
        std::fs::remove_file(begun).unwrap();
        std::fs::remove_file(go).unwrap();
    }
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_hostile_repository_executes_nothing_before_it_is_trusted() {
    let world = World::untrusted();
    let executed = world.root().join(".banksman/executed");
    let hook = format!("touch {}", executed.display());
    let hook = serde_json::json!({"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": hook}]}]}});
    world.write(".claude/settings.json", &hook.to_string());
    world.git(&["add", "-f", ".claude"]);
    world.git(&["commit", "-qm", "hostile"]);
    let shown = world.ok(&["trust", "--show", "--agent", "claude"]);
    assert!(shown.contains("hooks SessionStart") && shown.contains("permission level full"), "{shown}");
    world.add("Hello", "claude", COMMIT);
    let mut runner = world.start(&["run"]);
    banksman_agent_tests::world::until("the run is refused", || world.ok(&["why", "Hello"]).contains("not trusted"));
    runner.kill().and_then(|()| runner.wait()).unwrap();
    assert_eq!(world.model.asked("Hello"), [""; 0], "no agent was started");
    assert!(!executed.exists());
    // Trusted, with the repository's own settings ignored.
    world.write(".banksman/config.toml", "[agent.claude]\nisolated = true\n");
    world.ok(&["trust", "--agent", "claude"]);
    world.run_until_idle();
    let last = |title: &str| world.verdicts(title).pop();
    assert_eq!((last("Hello").as_deref(), executed.exists()), (Some("ok"), false), "{}", world.log("Hello"));
    // Trusted, with the repository's own settings in force.
    world.write(".banksman/config.toml", "[agent.claude]\nisolated = false\n");
    world.ok(&["trust", "--agent", "claude"]);
    world.add("Again", "claude", COMMIT);
    world.run_until_idle();
    assert_eq!((last("Again").as_deref(), executed.exists()), (Some("ok"), true), "{}", world.log("Again"));
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn variables_that_a_repository_sets_for_the_shells_of_gemini_need_trust() {
    let world = World::new();
    let executed = world.root().join(".banksman/executed");
    world.write(".banksman/hostile.sh", &format!("touch {}\n", executed.display()));
    world.write(".env", &format!("BASH_ENV={}\n", world.root().join(".banksman/hostile.sh").display()));
    world.git(&["add", "-f", ".env"]);
    world.git(&["commit", "-qm", "hostile"]);
    world.add("Hello", "gemini", COMMIT);
    world.run_until_idle();
    assert!(world.ok(&["why", "Hello"]).contains("reads .env"), "{}", world.ok(&["why", "Hello"]));
    assert!(!executed.exists() && world.model.asked("Hello").is_empty());
    world.ok(&["trust", "--agent", "gemini", "--task", "Hello"]);
    world.run_until_idle();
    assert_eq!((world.verdicts("Hello").pop().as_deref(), executed.exists()), (Some("ok"), true), "{}", world.log("Hello"));
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn hooks_from_the_base_of_a_worktree_are_not_executed_before_trust() {
    let world = World::new();
    let executed = world.root().join(".banksman/executed");
    let hook = serde_json::json!({"hooks": {"SessionStart": [{"hooks": [
        {"type": "command", "command": format!("touch {}", executed.display())}
    ]}]}});
    world.git(&["switch", "-q", "-c", "hostile"]);
    world.write(".claude/settings.json", &hook.to_string());
    world.git(&["add", "-f", ".claude"]);
    world.git(&["commit", "-qm", "hostile"]);
    world.git(&["switch", "-q", "main"]);
    world.add_with("Hello", "claude", COMMIT, &["--base", "hostile"]);
    world.run_until_idle();
    assert!(!executed.exists() && world.model.asked("Hello").is_empty());
    assert!(world.ok(&["why", "Hello"]).contains("banksman trust --agent claude --task t-"), "{}", world.ok(&["why", "Hello"]));
    world.ok(&["trust", "--task", "Hello"]);
    world.run_until_idle();
    assert_eq!((world.verdicts("Hello").pop().as_deref(), executed.exists()), (Some("ok"), true), "{}", world.log("Hello"));
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_plugin_that_a_repository_adds_is_not_executed_before_it_is_trusted() {
    let world = World::new();
    let executed = world.root().join(".banksman/executed");
    let plugin = format!(
        "import {{ writeFileSync }} from \"fs\"\nexport const P = async () => {{ writeFileSync({:?}, \"x\"); return {{}} }}\n",
        executed.display().to_string()
    );
    world.write(".opencode/plugin/hostile.js", &plugin);
    world.git(&["add", "-f", ".opencode"]);
    world.git(&["commit", "-qm", "hostile"]);
    world.add("Hello", "opencode", COMMIT);
    let mut runner = world.start(&["run"]);
    banksman_agent_tests::world::until("the run is refused", || world.ok(&["why", "Hello"]).contains("reads .opencode/plugin"));
    runner.kill().and_then(|()| runner.wait()).unwrap();
    assert!(!executed.exists() && world.model.asked("Hello").is_empty());
    world.ok(&["trust", "--agent", "opencode"]);
    world.run_until_idle();
    assert_eq!((world.verdicts("Hello").pop().as_deref(), executed.exists()), (Some("ok"), true), "{}", world.log("Hello"));
}
