//! Many processes take the items of one queue, and are killed: each item is worked on once, and none is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::Duration;

use banksman_core::queue::{Hold, Input, Outcome, State};
use banksman_core::{HolderId, Name};
use banksman_runtime::{Client, Project, StoreUrl};
use rustix::process::Signal;
use serde_json::json;

use crate::dice::Dice;
use crate::postgres::sized;
use crate::queues::piped;
use crate::world::{Running, World};

/// The environment of [`worker`]: its holder name, and how many items it takes at a time.
const WORKER: &str = "QUEUE_WORKER";
const THREADS: &str = "QUEUE_THREADS";

/// The body of the processes that the tests below start: takes and completes items until none is left, or until it is killed.
#[test]
#[ignore = "started as a process by the tests below"]
fn worker() {
    let Ok(holder) = std::env::var(WORKER) else { return };
    let holder = HolderId::new(&holder).unwrap();
    let place = std::env::var("BANKSMAN_STORE").ok().map(|url| StoreUrl::parse(&url, |_| None).unwrap());
    let client = Project::find_at(std::path::Path::new("."), place).unwrap().open().unwrap();
    let threads: usize = std::env::var(THREADS).unwrap().parse().unwrap();
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| work(&client, &holder)))));
}

fn work(client: &Client, holder: &HolderId) {
    let queue = Name::new("q").unwrap();
    loop {
        let input = Input::Take { holder: holder.clone(), wait: None, ticket: None };
        match client.ask_queue(&queue, input).unwrap().0 {
            Outcome::Taken(item) => {
                let hold = Hold { item: item.id, holder: holder.clone(), epoch: item.fence };
                match client.ask_queue(&queue, Input::Complete(hold)).unwrap().0 {
                    Outcome::Completed => {}
                    // Delayed past the visibility timeout: another worker has taken the item, or completed it.
                    Outcome::Fenced { .. } | Outcome::NoItem => {}
                    other => panic!("{other:?}"),
                }
            }
            // The items of a killed worker become available by themselves.
            Outcome::Empty { next: Some(_) } => std::thread::park_timeout(Duration::from_millis(20)),
            Outcome::Empty { next: None } => return,
            other => panic!("{other:?}"),
        }
    }
}

fn start_worker(world: &World, number: usize, threads: usize) -> Running {
    let program = Command::new(std::env::current_exe().unwrap());
    let mut command = world.clean(program, &["--exact", "queue_takers::worker", "--ignored", "--nocapture"]);
    // `clean` removes the variables that begin with BANKSMAN_, and sets those of the world.
    command
        .env(WORKER, format!("worker-{number}"))
        .env(THREADS, threads.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    Running(command.spawn().unwrap())
}

fn fill(world: &World, items: usize, visibility: &str) {
    world.ok(&["queues", "define", "q", "--visibility-timeout", visibility, "--max-attempts", "1000"]);
    let lines: String = (0..items).map(|number| format!("{number}\n")).collect();
    assert_eq!(piped(world, &["queues", "push", "q", "-"], &lines).0, 0);
}

/// Asserts from the log that every item was completed once, by its last taker. Returns how often items were taken.
fn audit(world: &World, items: usize) -> usize {
    let (mut taken, mut completed, mut takes) = (BTreeMap::new(), BTreeSet::new(), 0);
    for event in world.events() {
        let item = event.data["item"].as_str().unwrap_or_default().to_owned();
        match event.kind.as_str() {
            "queue:take" => {
                assert!(!completed.contains(&item), "{item} was taken after it was done");
                takes += 1;
                taken.insert(item, (event.data["holder"].clone(), event.id.0));
            }
            "queue:complete" => {
                let (holder, epoch) = &taken[&item];
                assert_eq!((&event.data["holder"], &event.data["epoch"]), (holder, &json!(epoch)), "{item}");
                assert!(completed.insert(item.clone()), "{item} was completed twice");
            }
            _ => {}
        }
    }
    assert_eq!(completed.len(), items, "none lost");
    assert_eq!(world.data(&["queues", "show", "q"])["length"], 0);
    world.check();
    takes
}

/// This many processes take from one queue, and each item is granted once.
pub(crate) fn share(processes: usize, items: usize) {
    let world = World::new();
    fill(&world, items, "10m");
    let workers: Vec<Running> = (0..processes).map(|number| start_worker(&world, number, 2)).collect();
    for mut worker in workers {
        assert!(worker.0.wait().unwrap().success());
    }
    assert_eq!(audit(&world, items), items, "exactly one grant each");
}

/// This many processes, with several items each, are killed at random moments and replaced, until all items are completed.
pub(crate) fn kill_takers(processes: usize, items: usize, kills: usize) {
    const EACH: usize = 16;
    let world = World::new();
    fill(&world, items, "250ms");
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    let mut dice = Dice(u64::from(seed));
    let mut workers: Vec<Running> = (0..processes).map(|number| start_worker(&world, number, EACH)).collect();
    let mut names: Vec<usize> = (0..processes).collect();
    // Until enough were killed, at least one of them while it held an item.
    let mut has_held = false;
    let mut kill = 0;
    while kill < kills || !has_held {
        // A different moment each time: before its first call, in the middle of one, or after its last.
        std::thread::park_timeout(Duration::from_micros(dice.roll(20_000)));
        let number = usize::try_from(dice.roll(processes as u64)).unwrap();
        workers[number].signal(Signal::KILL);
        workers[number].0.wait().unwrap();
        has_held = has_held || holds_items(&world, names[number]);
        names[number] = processes + kill;
        workers[number] = start_worker(&world, names[number], EACH);
        kill += 1;
    }
    for mut worker in workers {
        assert!(worker.0.wait().unwrap().success());
    }
    assert!(audit(&world, items) > items, "some were killed while they worked on an item, and others did it");
}

fn holds_items(world: &World, worker: usize) -> bool {
    let name = format!("worker-{worker}");
    let items = world.everything().tables.queues.items;
    items.values().any(|item| matches!(&item.state, State::Processing(taken) if taken.holder.as_str() == name))
}

#[test]
fn sixteen_processes_take_each_of_4000_items_once() {
    share(16, sized(16 * 250));
}

#[test]
fn killed_takers_lose_and_double_no_item() {
    kill_takers(8, sized(8_000), 30);
}
