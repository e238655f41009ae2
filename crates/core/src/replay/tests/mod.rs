use proptest::prelude::*;

use self::stored::assert_every_cut;
use super::*;
use crate::event::{CustomKind, Source};
use crate::ids::{Epoch, Ticket};
use crate::resource::coordination::Coordination;
use crate::resource::lock;
use crate::resource::semaphore;
use crate::test_world::{World, ask, holder, root, secs};

mod backlog;
pub(crate) mod stored;

/// A random operation. Its numbers are made to fit when it is executed.
#[derive(Debug, Clone)]
enum Op {
    Ask { lock: bool, label: usize, who: usize, weight: u32, waits: bool, lease: bool },
    Poll { lock: bool, label: usize, back: i64 },
    Leave { lock: bool, label: usize, back: i64 },
    Heartbeat { lock: bool, label: usize, who: usize },
    Release { lock: bool, label: usize, who: usize },
    Force { lock: bool, label: usize, who: usize },
    Define { lock: bool, label: usize, number: u32 },
    Maintain,
    Pass(i64),
    Die(i32),
}

const PEOPLE: [&str; 4] = ["a", "b", "c", "d"];
const LABELS: [&str; 2] = ["one", "two"];

fn op() -> impl Strategy<Value = Op> {
    let place = || (any::<bool>(), 0..2_usize);
    let person = || (any::<bool>(), 0..2_usize, 0..4_usize);
    prop_oneof![
        10 => (person(), 1..5_u32, any::<bool>(), any::<bool>())
            .prop_map(|((lock, label, who), weight, waits, lease)| Op::Ask { lock, label, who, weight, waits, lease }),
        4 => (place(), 1..9_i64).prop_map(|((lock, label), back)| Op::Poll { lock, label, back }),
        1 => (place(), 1..9_i64).prop_map(|((lock, label), back)| Op::Leave { lock, label, back }),
        2 => person().prop_map(|(lock, label, who)| Op::Heartbeat { lock, label, who }),
        4 => person().prop_map(|(lock, label, who)| Op::Release { lock, label, who }),
        1 => person().prop_map(|(lock, label, who)| Op::Force { lock, label, who }),
        1 => (place(), 0..5_u32).prop_map(|((lock, label), number)| Op::Define { lock, label, number }),
        1 => Just(Op::Maintain),
        2 => prop::sample::select(vec![5, 10, 30]).prop_map(Op::Pass),
        1 => (0..4_i32).prop_map(Op::Die),
    ]
}

/// The inputs of the two machines have the same names, so that one arm serves both.
macro_rules! either {
    ($world:ident, $lock:ident, $label:ident, $($input:tt)*) => {
        if $lock {
            drop($world.at_lock(LABELS[$label], lock::Input::$($input)*))
        } else {
            drop($world.at_semaphore(LABELS[$label], semaphore::Input::$($input)*))
        }
    };
}

fn play(world: &mut World<Coordination>, op: Op) {
    let back = |world: &World<Coordination>, back: i64| Ticket(world.now.ticket.0 - back);
    let epoch = |world: &World<Coordination>, label: usize| world.holder(LABELS[label]).map_or(Epoch(11), |(_, epoch)| epoch);
    match op {
        Op::Ask { lock, label, who, weight, waits, lease } => {
            let pid = i32::try_from(who).unwrap();
            let mut wish = ask(PEOPLE[who]).weight(if lock { 1 } else { weight }).bound_to(&[pid]);
            wish = if lease { wish.ttl(20) } else { wish };
            wish = if waits { wish.waits(pid).under(&["parent"]) } else { wish };
            either!(world, lock, label, Acquire(Box::new(wish)));
        }
        Op::Poll { lock, label, back: by } => either!(world, lock, label, Poll { ticket: back(world, by) }),
        Op::Leave { lock, label, back: by } => either!(world, lock, label, Leave { ticket: back(world, by) }),
        Op::Heartbeat { lock: true, label, who } => {
            let epoch = epoch(world, label);
            world.at_lock(LABELS[label], lock::Input::Heartbeat { holder: holder(PEOPLE[who]), epoch });
        }
        Op::Heartbeat { lock: false, label, who } => {
            world.at_semaphore(LABELS[label], semaphore::Input::Heartbeat { holder: holder(PEOPLE[who]), epoch: None });
        }
        Op::Release { lock: true, label, who } => {
            let epoch = epoch(world, label);
            world.at_lock(LABELS[label], lock::Input::Release { holder: holder(PEOPLE[who]), epoch });
        }
        Op::Release { lock: false, label, who } => {
            world.at_semaphore(LABELS[label], semaphore::Input::Release { holder: holder(PEOPLE[who]), epoch: None });
        }
        Op::Force { lock: true, label, .. } => drop(world.at_lock(LABELS[label], lock::Input::Force { by: root() })),
        Op::Force { lock: false, label, who } => {
            world.at_semaphore(LABELS[label], semaphore::Input::Force { holder: holder(PEOPLE[who]), by: root() });
        }
        Op::Define { lock: true, label, number } => {
            let ttl = (number > 2).then_some(secs(i64::from(number))).flatten();
            world.at_lock(LABELS[label], lock::Input::Define(lock::Config { ttl, max_hold: None }));
        }
        Op::Define { lock: false, label, number } => {
            let config = semaphore::Config { capacity: number + 1, ttl: None };
            world.at_semaphore(LABELS[label], semaphore::Input::Define(config));
        }
        Op::Maintain => {
            let step = world.machine.clone().maintain(&world.now);
            world.machine = step.state;
            world.record(step.effects);
        }
        Op::Pass(secs) => world.pass(secs),
        // The death is known only for the next few operations: the next process with this number is another one.
        Op::Die(pid) => {
            world.now.dead.clear();
            world.kill(pid);
        }
    }
}

/// Applies an event as the log gives it back: from its kind, its source and its data as text.
fn apply(replay: &mut Replay, (seq, wall, event): &(Seq, Wall, Event)) {
    let (component, id) = event.source();
    let stored = Event::parse(event.kind(), component, id, &event.data()).unwrap();
    assert_eq!(&stored, event);
    replay.apply(*seq, *wall, stored);
}

proptest! {
    #[test]
    fn replaying_the_log_gives_the_tables_after_every_step(ops in prop::collection::vec(op(), 1..80)) {
        let (mut world, mut replay, mut read) = (World::site(), Replay::default(), 0);
        for label in LABELS {
            world.at_semaphore(label, semaphore::Input::Define(semaphore::Config { capacity: 4, ttl: None }));
        }
        for op in ops {
            play(&mut world, op);
            world.log[read..].iter().for_each(|entry| apply(&mut replay, entry));
            read = world.log.len();
            prop_assert_eq!(replay.differences(&Replay::of(&world.machine)), Vec::<String>::new());
        }
        [1, 3].into_iter().for_each(|stride| assert_every_cut(&world.log, stride));
    }
}

#[test]
fn replay_includes_a_lapsed_increase() {
    let mut world = World::site();
    world.at_semaphore("gpu", semaphore::Input::Define(semaphore::Config { capacity: 2, ttl: None }));
    for wish in [ask("a"), ask("b"), ask("a").weight(2).waits(1)] {
        world.at_semaphore("gpu", semaphore::Input::Acquire(Box::new(wish)));
    }
    world.at_semaphore("gpu", semaphore::Input::Release { holder: holder("b"), epoch: None });
    world.pass(15);
    world.at_semaphore("gpu", semaphore::Input::Reap);
    assert_eq!(world.kinds()[3..], ["released", "increased", "offer_lapsed"]);
    let mut replay = Replay::default();
    world.log.iter().for_each(|entry| apply(&mut replay, entry));
    assert_eq!(replay, Replay::of(&world.machine));
}

#[test]
fn a_difference_has_both_sides() {
    let mut world = World::site();
    world.at_lock("db", lock::Input::Acquire(Box::new(ask("a"))));
    let missing = Replay::default().differences(&Replay::of(&world.machine));
    assert_eq!(missing, ["lock db: the tables have it, the log does not"]);

    let mut replay = Replay::default();
    world.log.iter().for_each(|entry| apply(&mut replay, entry));
    assert_eq!(replay, Replay::of(&world.machine));
    world.machine.locks.values_mut().for_each(|lock| lock.fence = Epoch(99));
    assert_eq!(
        replay.differences(&Replay::of(&world.machine)),
        [format!("lock db, fence: the log says {}, the tables say 99", world.log[0].0)]
    );
}

/// The length of a queue is not part of the baseline, but it is compared.
#[test]
fn a_queue_of_another_length_is_a_difference() {
    let mut replay = Replay::default();
    let defined = r#"{"visibilityTimeout":300000,"maxAttempts":3,"maxLength":10}"#;
    replay.apply(Seq(1), Wall(0), Event::parse("queue:defined", "queue", Some("q"), defined).unwrap());
    let mut tables = replay.clone();
    assert_eq!(replay.differences(&tables), Vec::<String>::new());
    tables.queues.values_mut().for_each(|queue| queue.length = 2);
    let found = replay.differences(&tables);
    assert!(
        found.len() == 1 && found[0].starts_with("queue q: the log says Queue {") && found[0].contains("length: 2"),
        "{found:?}"
    );
}

#[test]
fn custom_events_and_empty_definitions_change_nothing() {
    let mut replay = Replay::default();
    let kind = CustomKind::new("deploy:done").unwrap();
    let source = Source { component: "user".into(), id: None };
    replay.apply(Seq(1), Wall(0), Event::Custom { kind, source, data: serde_json::Value::Null });
    assert_eq!(replay, Replay::default());

    let mut world = World::site();
    world.at_lock("db", lock::Input::Define(lock::Config::default()));
    world.log.iter().for_each(|entry| apply(&mut replay, entry));
    assert_eq!(replay.differences(&Replay::default()), Vec::<String>::new());
}
