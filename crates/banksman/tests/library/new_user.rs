//! The library as a new user would use it, from its documentation alone: no internal crate is named here.

use std::time::Duration;

use banksman::{CancelToken, Error, NewTask, Project, PushOptions, Pushed, QueueOptions, TaskFilter, TaskStatus};
use serde::{Deserialize, Serialize};

use crate::World;

/// No wait of these tests takes this long.
const SOON: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Build {
    branch: String,
    number: u32,
}

#[test]
fn a_program_uses_locks_queues_and_tasks_together() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    assert!(matches!(Project::find(dir.path()), Err(Error::NoProject { .. })));
    let project = Project::init(dir.path())?;
    assert!(matches!(Project::init(dir.path()), Err(Error::ProjectExists { .. })));
    let client = project.open()?;
    let events = client.events()?.kind("task:complete");

    let lock = client.lock("deploy").holder("builder").acquire_within(SOON)?;
    let queue = client.queue("builds");
    assert!(matches!(queue.push(&1), Err(Error::NotFound { kind: "queue", .. })), "a refusal is an error");
    queue.define(QueueOptions::new().visibility_timeout(SOON).max_attempts(2))?;
    let build = Build { branch: "main".into(), number: 7 };
    let Pushed::Added(id) = queue.push_with(&build, PushOptions::new().dedupe_key("main"))? else { panic!("it is new") };
    let again = queue.push_with(&build, PushOptions::new().dedupe_key("main"))?;
    assert_eq!((again.id(), &again), (id.as_str(), &Pushed::Duplicate(id.clone())));

    let item = queue.take_within(SOON)?.expect("it was pushed");
    assert_eq!((item.id(), item.data::<Build>()?), (id, build));
    let task = client
        .tasks()
        .add(NewTask::new("Build main").label("build").lock("deploy").depends_on(client.tasks().add("Approve")?))?;
    assert_eq!(task.status(), TaskStatus::Blocked);
    let refused = client.tasks().done(&task, &()).unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("depends on")), "{refused}");

    // Another thread approves and builds; this one waits.
    let worker = client.clone();
    let done = std::thread::spawn(move || -> banksman::Result<()> {
        let tasks = worker.tasks();
        let approve = tasks.list(TaskFilter::new().status(TaskStatus::Pending))?.remove(0);
        tasks.done(&approve, &())?;
        let build = tasks.list(TaskFilter::new().label("build"))?.remove(0);
        lock.release()?;
        tasks.done(build, &"build-7.tar")?;
        item.complete()
    });
    let built = client.tasks().wait(&task, SOON)?;
    assert_eq!((built.status(), built.output::<String>()?.as_deref()), (TaskStatus::Completed, Some("build-7.tar")));
    done.join().unwrap()?;
    let titles: Result<Vec<_>, _> =
        events.take(2).map(|event| event?.source_id().map(str::to_owned).ok_or(Error::Cancelled)).collect();
    assert_eq!(titles?.last().map(String::as_str), Some(task.id().as_ref()));
    assert_eq!(queue.counts()?, Default::default());
    Ok(())
}

#[test]
fn tasks_can_fail_be_cancelled_and_be_awaited() {
    let world = World::new();
    let tasks = world.client().tasks();
    let failed = tasks.fail(tasks.add("Fail").unwrap(), "no space left").unwrap();
    assert_eq!((failed.status(), failed.error()), (TaskStatus::Failed, Some("no space left")));
    let late = tasks.add(NewTask::new("Nobody runs it").run("true").env("NAME", "value")).unwrap();
    let error = tasks.wait(&late, Duration::from_millis(20)).unwrap_err();
    assert!(matches!(&error, Error::TimedOut { what, .. } if what.contains(late.id().as_ref())), "{error:?}");
    assert_eq!(tasks.cancel(&late).unwrap().status(), TaskStatus::Cancelled);
    let over: Vec<_> = tasks.wait_all([&failed, &late], SOON).unwrap().iter().map(|task| task.status()).collect();
    assert_eq!(over, [TaskStatus::Failed, TaskStatus::Cancelled]);
    assert!(matches!(tasks.get("t-nothing"), Err(Error::NotFound { kind: "task", .. })));
    let bad = [
        NewTask::new(""),
        NewTask::new("x").run(" "),
        NewTask::new("x").lock("task:t-1"),
        NewTask::new("x").semaphore("s", 0),
        NewTask::new("x").env("A=B", "c"),
        NewTask::new("x").timeout(Duration::ZERO),
        NewTask::new("x").child(),
    ];
    for task in bad {
        let error = tasks.add(task.clone()).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{task:?}: {error:?}");
    }
    for unknown in [NewTask::new("x").section("nowhere"), NewTask::new("x").depends_on("t-0")] {
        assert!(matches!(tasks.add(unknown), Err(Error::NotFound { .. })));
    }
    assert_eq!(tasks.list(TaskFilter::new()).unwrap().len(), 2);
}

#[test]
fn dependencies_on_the_end_and_events_from_the_beginning() {
    let world = World::new();
    let (client, tasks) = (world.client(), world.client().tasks());
    let first = tasks.add("Try it").unwrap();
    let strict = tasks.add(NewTask::new("Only after success").depends_on(&first)).unwrap();
    let lenient = tasks.add(NewTask::new("Clean up").depends_on_end_of(&first)).unwrap();
    assert_eq!([strict.status(), lenient.status()], [TaskStatus::Blocked, TaskStatus::Blocked]);
    tasks.fail(&first, "no").unwrap();
    let found = tasks.list(TaskFilter::new().title_contains("CLEAN")).unwrap();
    assert_eq!((found.len(), found[0].status()), (1, TaskStatus::Pending), "it is over, however it ended");
    assert_eq!(tasks.get(&strict).unwrap().status(), TaskStatus::Blocked);
    let added = client.events_after(0).unwrap().kind("task:added").next().unwrap().unwrap();
    assert_eq!(added.source_id(), Some(first.id().as_ref()));
    let next = client.events_after(added.number()).unwrap().kind("task:added").next().unwrap().unwrap();
    assert_eq!(next.source_id(), Some(strict.id().as_ref()));
}

#[test]
fn a_dropped_item_returns_until_it_is_dead() {
    let world = World::new();
    let queue = world.client().queue("q");
    queue.define(QueueOptions::new().max_attempts(2)).unwrap();
    queue.push(&Build { branch: "main".into(), number: 1 }).unwrap();
    drop(queue.take().unwrap().unwrap());
    assert_eq!(queue.counts().unwrap().ready, 1);
    let item = queue.take().unwrap().unwrap();
    assert_eq!(item.attempt(), 2);
    assert!(std::thread::spawn(move || item.data::<Vec<u8>>().expect("it is something else")).join().is_err());
    assert_eq!((queue.counts().unwrap().dead, queue.take().unwrap().is_none()), (1, true));

    // An item whose visibility timeout is over belongs to the next holder.
    let short = world.client().queue("short");
    short.define(QueueOptions::new().visibility_timeout(Duration::from_millis(1))).unwrap();
    short.push(&"x").unwrap();
    let late = short.take().unwrap().unwrap();
    let second = short.take_within(SOON).unwrap().unwrap();
    assert!(matches!(late.extend(), Err(Error::Lost { .. })));
    let error = late.complete().unwrap_err();
    assert!(matches!(&error, Error::Lost { what, .. } if what.contains("queue short")), "{error:?}");
    second.extend_for(SOON).unwrap();
    second.fail("not today", SOON).unwrap();
    assert_eq!(short.counts().unwrap().delayed, 1);
}

#[test]
fn every_wait_can_be_cancelled() {
    let world = World::new();
    let client = world.client();
    let token = CancelToken::new().unwrap();
    let _held = client.lock("l").try_acquire().unwrap();
    client.queue("q").define(QueueOptions::new()).unwrap();
    let task = client.tasks().add("Wait").unwrap();
    let mut events = client.events().unwrap().cancel_on(&token);
    std::thread::scope(|scope| {
        let waits = [
            scope.spawn(|| client.lock("l").cancel_on(&token).acquire().map(drop)),
            scope.spawn(|| client.queue("q").cancel_on(&token).take_within(SOON).map(drop)),
            scope.spawn(|| client.tasks().cancel_on(&token).wait(&task, SOON).map(drop)),
        ];
        let ends = scope.spawn(move || events.by_ref().filter(|event| event.is_err()).count());
        token.clone().cancel();
        for wait in waits {
            assert!(matches!(wait.join().unwrap(), Err(Error::Cancelled)));
        }
        assert_eq!(ends.join().unwrap(), 0, "the iteration is over");
    });
    assert!(token.is_cancelled());
    let after = client.lock("l").cancel_on(&token).acquire();
    assert!(matches!(after, Err(Error::Cancelled)), "later waits are cancelled too");
    let locks = world.runtime().reader().unwrap().view().snapshot().unwrap().tables.coordination.locks;
    assert!(locks.values().all(|lock| lock.waiters.is_empty()), "no waiters are left");
}
