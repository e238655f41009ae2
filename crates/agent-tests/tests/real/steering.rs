//! Messages to the real claude while it works, and to its next run.

use std::fs;

use banksman_agent_tests::world::{World, until};

fn steerable() -> World {
    let world = World::untrusted();
    let config = world.root().join(".banksman/config.toml");
    let text = fs::read_to_string(&config).unwrap_or_default();
    fs::write(&config, text + "\n[agent.claude]\ninput = true\n").expect("the settings can be written");
    world.ok(&["trust", "--agent", "claude"]);
    world
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_steered_message_arrives_in_the_running_session() {
    let world = steerable();
    world.add(
        "Steered",
        "claude",
        "@run touch $BANKSMAN_PROJECT/begun; while [ ! -e $BANKSMAN_PROJECT/go ]; do sleep 0.1; done\n@run true\n@run true\n",
    );
    let mut runner = world.start(&["run", "--until-idle"]);
    until("the tool is called", || world.root().join("begun").exists());
    let sent = world.json(&["send", "Steered", "use port 8080 from now on", "--author", "ada"]);
    assert_eq!(sent["data"]["receipt"], "delivered", "{sent}");
    world.write("go", "");
    runner.wait().unwrap();
    assert_eq!(world.status("Steered"), "completed", "{}", world.log("Steered"));
    let seen = world.model.prompts("Steered");
    assert!(seen.iter().any(|body| body.contains("use port 8080 from now on")), "the model got the message: {}", seen.len());
    let id = sent["data"]["id"].as_str().unwrap();
    assert_eq!(world.json(&["mailbox", "show", id])["data"]["receipt"], "read");
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_follow_up_reaches_the_next_turn() {
    let world = steerable();
    let script = "@run touch $BANKSMAN_PROJECT/begun; while [ ! -e $BANKSMAN_PROJECT/go ]; do sleep 0.1; done\n\
                  @say The first turn is over.\n\
                  @run echo second > $BANKSMAN_PROJECT/second\n";
    world.add("Followed", "claude", script);
    let mut runner = world.start(&["run", "--until-idle"]);
    until("the tool is called", || world.root().join("begun").exists());
    let sent = world.json(&["send", "Followed", "and mind the tests", "--author", "ada", "--mode", "follow-up"]);
    assert_eq!((&sent["data"]["plan"], &sent["data"]["receipt"]), (&"control_socket".into(), &"sent".into()), "{sent}");
    world.write("go", "");
    runner.wait().unwrap();
    let log = world.log("Followed");
    assert_eq!((world.verdicts("Followed"), world.status("Followed")), (vec!["ok".into()], "completed".into()), "{log}");
    let (asked, bodies) = (world.model.asked("Followed"), world.model.prompts("Followed"));
    let received: Vec<bool> = bodies.iter().map(|body| body.contains("and mind the tests")).collect();
    assert_eq!(
        received,
        [false, false, true, true],
        "the tool, the end of the first turn, the tool of the second one, its end: {asked:?}"
    );
    assert!(fs::read_to_string(world.root().join("second")).is_ok(), "{log}");
    let id = sent["data"]["id"].as_str().unwrap();
    assert_eq!(world.json(&["mailbox", "show", id])["data"]["receipt"], "read", "{log}");
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_session_that_asked_a_question_continues_with_the_answer() {
    let world = steerable();
    let script = "@run banksman tasks ask 'Which port?' --option 80 --option 8080\n\
                  @say I wait for the answer.\n\
                  @run echo second > $BANKSMAN_PROJECT/second\n";
    world.add("Asked", "claude", script);
    let mut runner = world.start(&["run", "--until-idle"]);
    let open = || world.json(&["decisions", "list"])["data"]["decisions"].clone();
    until("it has asked", || !open().as_array().unwrap().is_empty());
    until("its turn is over", || world.model.asked("Asked").iter().any(|asked| asked.starts_with("Say")));
    world.ok(&["decisions", "resolve", open()[0]["id"].as_str().unwrap(), "2"]);
    runner.wait().unwrap();
    let log = world.log("Asked");
    assert_eq!((world.verdicts("Asked"), world.status("Asked")), (vec!["ok".into()], "completed".into()), "{log}");
    assert!(fs::read_to_string(world.root().join("second")).is_ok(), "{log}");
    assert!(world.model.prompts("Asked").last().is_some_and(|said| said.contains("8080")), "{log}");
}
