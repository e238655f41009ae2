//! The public library beside the binary: both see the same project.

use std::time::Duration;

use banksman::{Error, NewTask, QueueOptions, TaskFilter, TaskStatus};
use serde_json::{Value, json};

use crate::postgres;
use crate::world::{DEADLINE, World};

#[test]
fn the_library_and_the_command_share_a_project() {
    let world = World::new();
    let client = world.library();

    // On a server the grant has a lease, which the library renews.
    let guard = client.lock("deploy").holder("program").try_acquire().unwrap();
    let shown = world.data(&["locks", "show", "deploy"]);
    assert_eq!((&shown["holder"], shown["expiresAt"].is_null()), (&json!("program"), !postgres::wanted()), "{shown}");
    assert_eq!(world.error(&["locks", "acquire", "deploy", "--no-wait"]).1["details"]["holder"], "program");
    guard.release().unwrap();
    world.ok(&["locks", "acquire", "deploy", "--holder", "person"]);
    match client.lock("deploy").acquire_within(Duration::from_millis(1)) {
        Err(Error::Busy { holders, position, .. }) => assert_eq!((holders, position), (vec!["person".to_owned()], Some(1))),
        other => panic!("{other:?}"),
    }

    let queue = client.queue("builds");
    queue.define(QueueOptions::new()).unwrap();
    world.ok(&["queues", "push", "builds", r#"{"number": 7}"#]);
    let item = queue.take_within(DEADLINE).unwrap().unwrap();
    assert_eq!(item.data::<Value>().unwrap(), json!({ "number": 7 }));
    item.complete().unwrap();

    // The library adds a task, and a runner of the binary runs it.
    let tasks = client.tasks();
    let task = tasks.add(NewTask::new("Greet").run("echo \"$GREETING\" > greeting").env("GREETING", "a 'b' $c")).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| tasks.wait(&task, DEADLINE).unwrap());
        world.ok(&["run", "--until-idle"]);
        assert_eq!(waiting.join().unwrap().status(), TaskStatus::Completed);
    });
    assert_eq!(std::fs::read_to_string(world.path().join("greeting")).unwrap(), "a 'b' $c\n");
    assert_eq!(tasks.list(TaskFilter::new().status(TaskStatus::Completed)).unwrap().len(), 1);
}
