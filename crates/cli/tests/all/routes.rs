//! Routes: the actions that follow from events.

use serde_json::{Value, json};

use crate::workers::{apply, runner};
use crate::world::{BANKSMAN, World, until};

#[test]
fn routes_push_notify_wake_and_start_once_with_several_runners() {
    let world = World::new();
    let notices = world.path().join("told");
    let command = format!("cat >> '{}'; echo >> '{}'", notices.display(), notices.display());
    world.ok(&["config", "set", "--user", "notify.command", &command]);
    apply(
        &world,
        r#"
        [queue.q]
        [worker.w]
        queue = "q"
        pipeline = "smoke"
        wake_on = "never:comes"
        [on."deploy:done"]
        push = { queue = "q", vars = ["stage"] }
        wake = "w"
        notify = "something was deployed"
        start = "smoke"
        [pipeline.smoke]
        vars = ["stage"]
        [[pipeline.smoke.phase]]
        name = "smoke"
        run = 'echo "$VAR_STAGE" >> smoked'
        "#,
    );
    let runners = [runner(&world), runner(&world)];
    world.ok(&["events", "emit", "deploy:done", "--data", r#"{"stage": "prod"}"#]);
    world.ok(&["events", "emit", "deploy:done", "--data", r#"{"stage": "test"}"#]);
    until("all pipelines are done", || world.count("pipeline:complete") == 4);
    until("the items are done", || world.count("queue:complete") == 2);
    until("the notifications are sent", || {
        std::fs::read_to_string(&notices).is_ok_and(|text| text.matches("something was deployed").count() == 2)
    });
    let smoked = std::fs::read_to_string(world.path().join("smoked")).unwrap();
    assert_eq!((smoked.matches("prod").count(), smoked.matches("test").count()), (2, 2));
    // A route that cannot be carried out is recorded as an event.
    world.ok(&["events", "emit", "deploy:done", "--data", "{}"]);
    until("the failures are recorded", || world.count("route:failed") == 1);
    drop(runners);
    assert_eq!(world.count("queue:push"), 3);
}

#[test]
fn compaction_keeps_events_that_no_runner_has_routed() {
    for (subscriber, then) in [("[on.\"deploy:done\"]\npush = { queue = \"q\" }", "queue:push"), ("", "queue:complete")] {
        let world = World::new();
        let wake_on = "[queue.q]\n[worker.w]\nqueue = \"q\"\nrun = \"true\"\nwake_on = \"deploy:done\"\n";
        apply(&world, &format!("{wake_on}{subscriber}"));
        world.ok(&["queues", "push", "q", "1"]);
        (0..3).for_each(|_| drop(world.ok(&["events", "emit", "deploy:begun"])));
        world.ok(&["events", "emit", "deploy:done"]);
        world.ok(&["events", "emit", "deploy:over"]);
        world.ok(&["events", "emit", "deploy:over"]);
        let done = world.events().iter().find(|event| event.kind == "deploy:done").unwrap().id;
        for dry_run in ["--dry-run", "--quiet"] {
            let compacted = world.data(&["events", "compact", "--keep-events", "1", dry_run]);
            assert_eq!((&compacted["unheard"], &compacted["compactedThrough"]), (&json!(done), &json!(done.0 - 1)));
        }
        let said = world.ok(&["events", "compact", "--keep-events", "1"]);
        assert!(said.contains(&format!(
            "event {done} and all later events are kept: a worker, a route or a blocked pipeline has not processed it yet"
        )));
        assert_eq!(world.data(&["events", "compact", "--keep-events", "3"])["unheard"], Value::Null, "it would stay anyway");
        world.ok(&["run", "--until-idle"]);
        assert_eq!(world.count(then), 1, "the event was handled");
        let compacted = world.data(&["events", "compact", "--keep-events", "1"]);
        assert_eq!((&compacted["unheard"], &compacted["kept"]), (&Value::Null, &json!(1)), "nothing keeps it any more");
    }
}

#[test]
fn a_circular_chain_of_routes_is_stopped_with_a_decision() {
    let world = World::new();
    // A completed task starts the pipeline, which pushes an item, of which the worker makes a task.
    apply(
        &world,
        "[queue.q]\n[worker.w]\nqueue = \"q\"\nrun = \"true\"\n[on.\"task:complete\"]\nstart = \"p\"\n\
         [pipeline.p]\n[[pipeline.p.phase]]\nname = \"one\"\npush = \"q\"\n",
    );
    world.data(&["tasks", "add", "First", "--run", "true"]);
    let said = world.run(&["run", "--until-idle", "--quiet"]);
    assert!([0, 7].contains(&said.code), "{said:?}");
    let pipelines = || world.data(&["pipelines", "list"])["pipelines"].as_array().unwrap().len();
    assert_eq!((pipelines(), world.count("route:failed")), (10, 1));
    let open = world.data(&["decisions", "list"]);
    let decision = &open["decisions"][0];
    assert_eq!(
        (decision["route"].as_str(), open["decisions"].as_array().unwrap().len()),
        (Some("ops/task:complete"), 1),
        "{open}"
    );
    // Another chain that ends in the same way raises no second decision.
    world.data(&["tasks", "add", "Second", "--run", "true"]);
    world.run(&["run", "--until-idle", "--quiet"]);
    assert_eq!((pipelines(), world.count("decision:raised")), (20, 1));
    // A task added by a run of the chain has the depth of the run.
    let id = decision["id"].as_str().unwrap().to_owned();
    world.ok(&["decisions", "resolve", &id, "2"]);
    assert!(!world.data(&["runbooks", "list"]).to_string().contains("task:complete"));
    apply(
        &world,
        &format!(
            "[on.\"task:complete\"]\nstart = \"p\"\n[pipeline.p]\n[[pipeline.p.phase]]\nname = \"one\"\n\
             run = \"{BANKSMAN} tasks add Next --run true\"\n"
        ),
    );
    world.data(&["tasks", "add", "Third", "--run", "true"]);
    world.run(&["run", "--until-idle", "--quiet"]);
    assert_eq!((pipelines(), world.count("decision:raised")), (30, 2));
    world.ok(&["doctor"]);
}
