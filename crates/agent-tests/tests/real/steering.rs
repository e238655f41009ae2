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
    let seen = world.model.told("Steered");
    assert!(seen.iter().any(|body| body.contains("use port 8080 from now on")), "the model was told: {}", seen.len());
    let id = sent["data"]["id"].as_str().unwrap();
    assert_eq!(world.json(&["mailbox", "show", id])["data"]["receipt"], "read");
}

#[test]
#[ignore = "needs the real programs: make test-agents"]
fn a_follow_up_reaches_the_next_turn() {
    let world = steerable();
    let script = "@run touch $BANKSMAN_PROJECT/begun; while [ ! -e $BANKSMAN_PROJECT/go ]; do sleep 0.1; done; banksman tasks fail $BANKSMAN_TASK --error again\n";
    world.add_with("Followed", "claude", script, &["--retries", "1"]);
    let mut runner = world.start(&["run", "--until-idle"]);
    until("the tool is called", || world.root().join("begun").exists());
    let sent = world.json(&["send", "Followed", "and mind the tests", "--author", "ada", "--mode", "follow-up"]);
    assert_eq!(sent["data"]["receipt"], "queued", "{sent}");
    world.write("go", "");
    runner.wait().unwrap();
    let bodies = world.model.told("Followed");
    let told = bodies.iter().position(|body| body.contains("and mind the tests")).expect("the next run is told");
    assert!(told > 0, "not the first one");
    let id = sent["data"]["id"].as_str().unwrap();
    assert_eq!(world.json(&["mailbox", "show", id])["data"]["receipt"], "read", "{}", world.log("Followed"));
}
