//! Compaction removes old events from the log and loses no state: while other processes work, and when it is killed.

use banksman_core::backlog::Backlog;
use banksman_core::event::{CustomKind, Event, Source};
use banksman_core::resource::coordination::{Command, Coordination};
use banksman_core::resource::semaphore;
use banksman_core::{Name, Seq, Status, TaskId};
use banksman_engine::{Request, Seen};
use banksman_store::{EventFilter, Keep, Mark};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::crashes::add;
use crate::postgres;
use crate::world::{World, until};

/// Writes custom events to the log.
fn chatter(world: &World, count: usize) {
    let source = || Source { component: "user".into(), id: None };
    let kind = || CustomKind::new("noise:made").unwrap();
    let emit = |number| Request::Emit(Event::Custom { kind: kind(), source: source(), data: json!({ "number": number }) });
    let requests: Vec<Request> = (0..count).map(emit).collect();
    let mut store = world.project().open_store().unwrap();
    for batch in requests.chunks(1_000) {
        store.batch(batch).into_iter().for_each(|committed| drop(committed.unwrap()));
    }
}

fn mark(world: &World) -> Mark {
    world.project().reader().unwrap().view().mark().unwrap()
}

fn rows(world: &World) -> (Coordination, Backlog) {
    let everything = world.everything();
    (everything.tables.coordination, everything.tables.backlog)
}

#[test]
fn compaction_removes_old_events_and_keeps_their_state() {
    let world = World::new();
    world.ok(&["sections", "add", "back end", "--exclusive"]);
    world.ok(&["tasks", "add", "first", "--run", "true", "--section", "back end"]);
    world.ok(&["tasks", "add", "second", "--run", "false", "--depends-on", "first"]);
    world.ok(&["tasks", "add", "gone", "--run", "true"]);
    world.run(&["run", "--until-idle"]);
    world.ok(&["tasks", "delete", "gone"]);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "3"]);
    world.ok(&["semaphores", "acquire", "gpu", "--holder", "g", "--weight", "2"]);
    world.ok(&["locks", "acquire", "db", "--holder", "a", "--ttl", "1h", "--request-id", "r"]);
    let (before, all) = (rows(&world), world.events());
    let count = i64::try_from(all.len()).unwrap();

    assert_eq!(world.data(&["events"])["compactedThrough"], Value::Null);
    let rehearsed = world.data(&["events", "compact", "--keep-events", "1", "--dry-run"]);
    assert_eq!((&rehearsed["removed"], &rehearsed["dryRun"]), (&json!(count - 1), &json!(true)));
    assert_eq!(world.events().len(), all.len(), "a rehearsal changes nothing");
    assert_eq!(world.data(&["events", "compact"])["removed"], 0, "nothing is a week old");
    assert_eq!(world.data(&["events", "compact", "--keep", "1h"])["removed"], 0);

    let done = world.data(&["events", "compact", "--keep-events", "3"]);
    assert_eq!((&done["removed"], &done["kept"], &done["compactedThrough"]), (&json!(count - 3), &json!(3), &json!(count - 3)));
    assert_eq!(world.events().len(), 3);
    assert_eq!(rows(&world), before);
    world.check();

    // A retention of zero removes all events but the newest.
    assert_eq!(world.data(&["events", "compact", "--keep", "0s"])["removed"], 2);
    assert_eq!(world.data(&["events", "compact", "--keep", "0s"])["removed"], 0);
    let left = world.events();
    assert_eq!((left.len(), left[0].id), (1, Seq(count)));
    assert_eq!(rows(&world), before);
    world.check();

    // Later events are compacted as well.
    world.ok(&["locks", "release", "db", "--force"]);
    world.ok(&["tasks", "retry", "second"]);
    world.run(&["run", "--until-idle"]);
    world.ok(&["events", "compact", "--keep-events", "1"]);
    world.check();
    assert!(world.ok(&["events", "compact"]).starts_with("no event is old enough to be removed; 1 event is left, from "));
}

#[test]
fn a_request_for_compacted_events_is_refused() {
    let world = World::new();
    chatter(&world, 10);
    world.ok(&["events", "compact", "--keep-events", "4"]);
    let said = world.run(&["events"]);
    assert_eq!(said.stdout.lines().count(), 4);
    assert!(said.stderr.starts_with("events up to 6, of 20"), "{said:?}");
    assert!(said.stderr.contains("were compacted and are no longer in the log"), "{said:?}");
    let data = world.data(&["events", "--since", "1h"]);
    assert_eq!((&data["compactedThrough"], data["events"].as_array().unwrap().len()), (&json!(6), 4));
    for complete in [&["events", "--limit", "2"][..], &["events", "--since", "0s"], &["events", "--quiet"]] {
        assert_eq!(world.run(complete).stderr, "", "{complete:?} misses nothing");
    }

    let follower = world.start(&["events", "--follow", "--json"]);
    let mut from_old = world.project().follow(Seq(2)).unwrap();
    let filter = EventFilter::default();
    assert_eq!(from_old.next(&filter).unwrap().len(), 4);
    assert_eq!(from_old.missed().map(|mark| mark.through), Some(Seq(6)));
    assert_eq!(from_old.missed(), None, "the gap is reported once");
    chatter(&world, 3);
    world.ok(&["events", "compact", "--keep-events", "1"]);
    assert_eq!(from_old.next(&filter).unwrap().len(), 1, "the follower was overtaken by the compaction");
    assert_eq!(from_old.missed().map(|mark| mark.through), Some(Seq(12)));
    let mut in_time = world.project().follow(Seq(12)).unwrap();
    assert_eq!((in_time.next(&filter).unwrap().len(), in_time.missed()), (1, None));
    let said = follower.stop();
    assert!(said.stderr.contains("were compacted and are no longer in the log"), "{said:?}");
}

#[test]
fn request_ids_are_known_as_long_as_their_events() {
    let world = World::new();
    let again = |holder| world.run(&["locks", "acquire", "db", "--holder", holder, "--request-id", "r", "--no-wait"]);
    assert_eq!(again("a").code, 0);
    world.ok(&["events", "emit", "a:b"]);
    world.ok(&["events", "compact", "--keep-events", "1"]);
    assert!(again("a").stdout.contains("extended"), "what is held is known by its request, whatever the log says");
    world.ok(&["locks", "release", "db", "--force"]);
    assert_eq!(again("c").code, 0, "the grant is over, and the log does not know the request any more");
    world.ok(&["locks", "release", "db", "--force"]);
    assert_ne!(again("b").code, 0, "the request was another's");
    world.ok(&["events", "compact", "--keep-events", "1"]);
    assert_eq!(again("b").code, 0, "it is forgotten");
}

/// The compaction is killed after every few steps while a runner works, another one compacts, and the store is checked.
#[test]
fn a_compaction_may_be_killed_at_any_moment_beside_other_processes() {
    let world = World::new();
    chatter(&world, 20_000);
    let client = world.project().open().unwrap();
    let tasks: Vec<TaskId> = (0..40).map(|n| add(&client, &format!("n {n}"), "true", |_| {})).collect();
    let runner = world.start(&["run", "--until-idle", "--max-runs", "2"]);
    let last = Seq(19_000);
    while mark(&world).through < last {
        let before = mark(&world).through;
        let compactions = [(); 2].map(|()| world.start(&["events", "compact", "--keep-events", "50"]));
        until("a step", || mark(&world).through > before);
        compactions.iter().for_each(|compaction| compaction.signal(Signal::KILL));
        drop(compactions);
    }
    let last_compaction = world.start(&["events", "compact", "--keep-events", "50"]);
    world.check();
    assert_eq!(last_compaction.end().code, 0);
    let said = runner.end();
    assert_eq!(said.code, 0, "{said:?}");
    let (_, backlog) = rows(&world);
    assert!(tasks.iter().all(|task| backlog.tasks[task].status() == Status::Completed));
    world.check();
    world.ok(&["events", "compact", "--keep-events", "1"]);
    world.check();
    assert_eq!(world.events().len(), 1);
}

#[test]
fn replay_during_a_compaction_finds_no_differences() {
    let world = World::new();
    let define = |number| {
        let name = Name::new(&format!("s-{number}")).unwrap();
        let input = semaphore::Input::Define(semaphore::Config { capacity: 1, ttl: None });
        Request::Coordinate { command: Command::Semaphore(name, input), seen: Seen::default() }
    };
    let requests: Vec<Request> = (0..6_000).map(define).collect();
    let mut store = world.project().open_store().unwrap();
    for batch in requests.chunks(1_000) {
        store.batch(batch).into_iter().for_each(|committed| drop(committed.unwrap()));
    }
    let compaction = std::thread::spawn(move || store.compact(Keep::Last(1), |_| {}).unwrap());
    let mut reader = world.project().reader().unwrap();
    loop {
        let over = compaction.is_finished();
        assert_eq!(reader.view().compare_with_log().unwrap(), Vec::<String>::new());
        if over {
            break;
        }
    }
    assert_eq!(compaction.join().unwrap().events, 5_999);
}

#[test]
fn doctor_compares_with_the_baseline_and_reports_a_damaged_one() {
    let world = World::on_sqlite().unchecked();
    world.ok(&["locks", "acquire", "db", "--holder", "a"]);
    world.ok(&["tasks", "add", "t"]);
    world.ok(&["events", "compact", "--keep-events", "1"]);
    world.check();
    let connection = rusqlite::Connection::open(world.path().join(".banksman/store.db")).unwrap();
    let doctor = || world.run(&["doctor"]);
    connection.execute_batch("UPDATE locks SET holder = 'b'").unwrap();
    assert_eq!(doctor().code, 7);
    connection.execute_batch("UPDATE locks SET holder = 'a'").unwrap();
    world.check();
    connection.execute_batch("UPDATE baseline SET data = '{}'").unwrap();
    let said = doctor();
    assert!(said.code == 7 && said.stderr.contains("what is kept of lock db cannot be read"), "{said:?}");
}

#[test]
fn a_copy_takes_the_baseline_along() {
    let world = World::on_sqlite().unchecked();
    world.ok(&["tasks", "add", "first", "--run", "true"]);
    world.ok(&["run", "--until-idle"]);
    world.ok(&["locks", "acquire", "db", "--holder", "a", "--ttl", "1h"]);
    world.ok(&["events", "compact", "--keep-events", "2"]);
    let file = format!("sqlite:{}", world.path().join(".banksman/store.db").display());
    let back = format!("sqlite:{}", world.path().join("back.db").display());
    let url = postgres::fresh_database();
    let (through, epoch) = (mark(&world).through, world.grant("db").unwrap().epoch.to_string());
    for (from, to) in [(&file, &url), (&url, &back)] {
        let copied = world.data(&["store", "copy", from, to]);
        assert_eq!((&copied["events"], &copied["tasks"]), (&json!(2), &json!(1)));
        let there = |args: &[&str]| world.data(&[&["--store", to], args].concat());
        assert_eq!(there(&["doctor"])["healthy"], true);
        assert_eq!(there(&["events"])["compactedThrough"], json!(through));
        there(&["locks", "heartbeat", "db", "--holder", "a", "--epoch", &epoch]);
    }
}

#[test]
fn projects_of_one_database_are_compacted_separately() {
    let world = World::at(postgres::fresh_database()).initialized();
    let other = world.another("other");
    world.library_of(&other).lock("kept").try_acquire().unwrap().release().unwrap();
    chatter(&world, 10);
    world.ok(&["events", "compact", "--keep-events", "1"]);
    let mut reader = other.reader().unwrap();
    assert_eq!(reader.view().mark().unwrap().through, Seq(0));
    assert_eq!(reader.view().events(Seq(0), &EventFilter::default()).unwrap().events.len(), 2);
    assert_eq!(reader.view().compare_with_log().unwrap(), Vec::<String>::new());
}

/// A regression: the release of a lock while no runner lived was compacted away, and the pipeline stayed blocked for five minutes.
#[test]
fn compaction_keeps_events_that_a_blocked_pipeline_has_not_seen() {
    let world = World::new();
    world.book(
        "[guard.free]\ncondition = { lock_free = \"l\" }\n\
         [pipeline.way]\n[[pipeline.way.phase]]\nname = \"one\"\nrun = \"true\"\npre = \"free\"\n",
    );
    let epoch = world.data(&["locks", "acquire", "l", "--holder", "ann", "--ttl", "1h"])["epoch"].to_string();
    let id = world.begin(&[]);
    let runner = world.runner(&[]);
    world.until_pipeline_state(&id, "blocked one");
    drop(runner);
    world.ok(&["locks", "release", "l", "--holder", "ann", "--epoch", &epoch]);
    let released = world.events().last().unwrap().id;
    world.ok(&["events", "emit", "noise:made"]);
    let compacted = world.data(&["events", "compact", "--keep-events", "1"]);
    assert_eq!((&compacted["unheard"], &compacted["kept"]), (&json!(released), &json!(2)));
    assert_eq!(world.run(&["run", "--until-idle"]).code, 0);
    assert_eq!(world.pipeline_state(&id), "done");
    assert_eq!(world.data(&["events", "compact", "--keep-events", "1"])["unheard"], Value::Null);
}
