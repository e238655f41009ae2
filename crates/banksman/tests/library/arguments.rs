//! No argument makes the library panic, and a refused request leaves no trace.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use banksman::{Acquire, Client, Error, NewTask, QueueOptions};
use banksman_core::event::{Kind, Resource};
use banksman_core::ids::NameError;
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::grant::{Ask, GrantRequest};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{HolderId, Name};
use banksman_runtime::{Acquisition, Error as RuntimeError, WaitOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::World;

/// The number of waiters in the project.
fn waiters(world: &World) -> usize {
    let all = world.runtime().reader().unwrap().view().snapshot().unwrap().tables.coordination;
    all.locks.values().map(|lock| lock.waiters.len()).sum::<usize>()
        + all.semaphores.values().map(|one| one.waiters.len()).sum::<usize>()
}

#[test]
fn a_lock_refuses_a_weight_other_than_one() {
    let world = World::new();
    let (client, runtime) = (world.client(), world.runtime());
    for weight in [0, 2, 5, u32::MAX] {
        assert!(matches!(client.lock("w").weight(weight).try_acquire(), Err(Error::InvalidArgument(_))));
        // Requests below the builder are refused as well.
        let claim = GrantRequest { weight, ..GrantRequest::new(HolderId::new("h").unwrap()) };
        let input = lock::Input::Acquire(Box::new(Ask::new(claim)));
        let (outcome, _) = runtime.ask(Command::Lock(Name::new("w").unwrap(), input), Vec::new()).unwrap();
        assert_eq!(outcome, Outcome::Lock(lock::Outcome::NotOneSlot));
    }
    client.lock("w").try_acquire().unwrap().release().unwrap();
}

#[test]
fn messages_name_the_argument_and_the_reason() {
    let world = World::new();
    let client = world.client();
    let queue = client.queue("x");
    queue.define(QueueOptions::new()).unwrap();
    queue.push(&"text").unwrap();
    let item = queue.take().unwrap().unwrap();
    let add = |task: NewTask| client.tasks().add(task).unwrap_err();
    let unreadable = format!("the data of item {} cannot be read: invalid type: string \"text\", expected u32", item.id());
    for (error, message) in [
        (client.lock("").try_acquire().unwrap_err(), "the name of a lock must not be empty"),
        (client.semaphore("").try_acquire().unwrap_err(), "the name of a semaphore must not be empty"),
        (client.lock("x").holder("").try_acquire().unwrap_err(), "the name of a holder must not be empty"),
        (client.lock("x").weight(2).try_acquire().unwrap_err(), "weight applies to semaphores; lock x has one slot"),
        (client.queue("").take().unwrap_err(), "the name of a queue must not be empty"),
        (
            queue.define(QueueOptions::new().dead_letter("missing")).unwrap_err(),
            "there is no queue missing to be the dead-letter queue of x",
        ),
        (queue.define(QueueOptions::new().dead_letter("x")).unwrap_err(), "queue x cannot be its own dead-letter queue"),
        (item.data::<u32>().unwrap_err(), &unreadable),
        (add(NewTask::new("x").child()), "NewTask::child works only inside a run (BANKSMAN_TASK is not set)"),
        (
            add(NewTask::new("x").env("BANKSMAN_X", "1")),
            "the variable \"BANKSMAN_X\" cannot be set: names that begin with BANKSMAN_ are reserved",
        ),
    ] {
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_lock_is_not_reentrant() {
    let world = World::new();
    let client = world.client();
    let _held = client.lock("l").holder("me").try_acquire().unwrap();
    let again = client.lock("l").holder("me").acquire_within(Duration::from_millis(10)).unwrap_err();
    assert!(matches!(&again, Error::Busy { holders, position: Some(1), .. } if *holders == ["me"]), "{again:?}");
}

#[test]
fn a_wait_without_a_limit_ends_with_the_grant() {
    let world = World::new();
    let client = world.client();
    let first = client.lock("l").try_acquire().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| client.lock("l").acquire_within(Duration::MAX).unwrap().release());
        while waiters(&world) == 0 {
            assert!(!second.is_finished(), "it does not wait");
            std::thread::yield_now();
        }
        first.release().unwrap();
        second.join().unwrap().unwrap();
    });
    assert_eq!(waiters(&world), 0);
}

#[test]
fn a_panic_during_a_wait_removes_the_waiter() {
    let world = World::new();
    let client = world.client();
    let first = client.lock("l").try_acquire().unwrap();
    let resource = Resource { kind: Kind::Lock, name: Name::new("l").unwrap() };
    let ask = Ask::new(GrantRequest::new(HolderId::new("h").unwrap()));
    let mut progress = |_: &_, _| panic!("the program is broken");
    let options = WaitOptions { wait: Some(Duration::from_secs(60)), progress: Some(&mut progress), ..WaitOptions::default() };
    let runtime = world.runtime();
    let acquire = || runtime.acquire(resource, ask, options);
    assert!(catch_unwind(AssertUnwindSafe(acquire)).is_err());
    assert_eq!(waiters(&world), 0);
    first.release().unwrap();
    client.lock("l").try_acquire().unwrap().release().unwrap();
}

#[test]
fn internal_names_are_reserved() {
    let world = World::new();
    let (client, runtime) = (world.client(), world.runtime());
    for name in ["task:t-1", "section:s-1", "dispatch:q", "run:r-1", "runs", "roots"] {
        let reserved = |error: Error| assert!(error.to_string().contains("is reserved"), "{error}");
        reserved(client.lock(name).try_acquire().err().unwrap());
        reserved(client.semaphore(name).try_acquire().err().unwrap());
        reserved(client.define_semaphore(name, 1).err().unwrap());
        // The same below the builder.
        let (plain, holder) = (Name::new(name).unwrap(), HolderId::new("h").unwrap());
        let ask = || Box::new(Ask::new(GrantRequest::new(holder.clone())));
        let commands = [
            Command::Lock(plain.clone(), lock::Input::Acquire(ask())),
            Command::Lock(plain.clone(), lock::Input::Define(lock::Config::default())),
            Command::Semaphore(plain.clone(), semaphore::Input::Acquire(ask())),
            Command::Semaphore(plain.clone(), semaphore::Input::Define(semaphore::Config { capacity: 1, ttl: None })),
        ];
        for command in commands {
            let resource = command.resource();
            assert!(matches!(runtime.ask(command, Vec::new()), Err(RuntimeError::Name(NameError::Reserved { .. }))));
            let acquired = runtime.acquire(resource, *ask(), WaitOptions::default());
            assert!(matches!(acquired, Err(RuntimeError::Name(NameError::Reserved { .. }))));
        }
    }
    assert!(world.runtime().reader().unwrap().view().snapshot().unwrap().coordination.locks.is_empty());
}

#[test]
fn guards_never_share_a_grant() {
    let world = World::new();
    let client = world.client();
    client.define_semaphore("s", 5).unwrap();
    let slots = |client: &'_ Client, holder: &str, weight| {
        client.semaphore("s").holder(holder).weight(weight).try_acquire().map(|held| (held.epoch(), held.release()))
    };
    let one = client.semaphore("s").holder("me").try_acquire().unwrap();
    for weight in [1, 2, 5, 6] {
        assert!(matches!(slots(&client, "me", weight), Err(Error::AlreadyHeld { .. })), "{weight}");
        assert!(matches!(slots(&world.client(), "me", weight), Err(Error::AlreadyHeld { .. })), "another process: {weight}");
    }
    one.renew().unwrap();
    assert_ne!(slots(&client, "you", 4).unwrap().0, one.epoch(), "refused requests leave the weight unchanged");
    let (two, three) = (client.semaphore("s").try_acquire().unwrap(), client.semaphore("s").try_acquire().unwrap());
    assert_ne!(two.holder(), three.holder(), "unnamed requests have different holders");
    drop(two);
    three.renew().unwrap();
    one.release().unwrap();
    slots(&client, "me", 1).unwrap().1.unwrap();

    // A repeated request gets its grant, but not while a guard of this client has it.
    for (kind, name) in [(Kind::Lock, "l"), (Kind::Semaphore, "s")] {
        let ask = |client: &'_ Client| {
            let acquire = if kind == Kind::Lock { client.lock(name) } else { client.semaphore(name) };
            acquire.holder("again").request_id(name).try_acquire().map(|held| (held.epoch(), std::mem::forget(held)))
        };
        let first = ask(&client).unwrap().0;
        assert!(matches!(ask(&client), Err(Error::AlreadyHeld { .. })));
        assert_eq!(ask(&world.client()).unwrap().0, first, "the answer was lost");
    }
}

/// Durations with values at every edge.
fn span() -> impl Strategy<Value = Option<Duration>> {
    let edges = [0, 1, 999_999, 1_000_000, 1_500_000, u64::MAX].map(Duration::from_nanos);
    let all = edges.into_iter().chain([Duration::from_secs(3_600), Duration::from_secs(u64::MAX), Duration::MAX]);
    proptest::option::of(proptest::sample::select(all.collect::<Vec<_>>()))
}

#[test]
fn no_argument_panics_or_leaves_a_waiter() {
    let world = World::new();
    let (client, other) = (world.client(), world.client());
    client.define_semaphore("slots", 3).unwrap();
    let _slot = other.semaphore("slots").try_acquire().unwrap();
    let _lock = other.lock("held").try_acquire().unwrap();
    let text =
        prop_oneof![Just(String::new()), Just("me".into()), Just("task:x".into()), ".{0,4}", "[a-z\u{0}-\u{1f}\u{202e}]{0,210}"];
    let name =
        prop_oneof![3 => proptest::sample::select(vec!["slots", "held", "free"]).prop_map(String::from), 1 => text.clone()];
    let weight = proptest::option::of(proptest::sample::select(vec![0, 1, 2, 3, 4, 1 << 31, u32::MAX]));
    let all =
        (any::<bool>(), name, proptest::option::of(text.clone()), proptest::option::of(text), weight, span(), span(), span());
    let mut seen = BTreeMap::<&str, u32>::new();
    let count = std::cell::RefCell::new(&mut seen);
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 150, failure_persistence: None, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let tried = runner.run(&all, |(is_lock, name, holder, request, weight, ttl, max_hold, wait)| {
        let mut acquire: Acquire = if is_lock { client.lock(&name) } else { client.semaphore(&name) };
        acquire = holder.into_iter().fold(acquire, Acquire::holder);
        acquire = request.into_iter().fold(acquire, Acquire::request_id);
        acquire = weight.into_iter().fold(acquire, Acquire::weight);
        acquire = ttl.into_iter().fold(acquire, Acquire::ttl);
        acquire = max_hold.into_iter().fold(acquire, Acquire::max_hold);
        // Never wait long for resources of other holders: they are never released.
        let is_held = name == "held" || name == "slots";
        let wait = wait.map(|wait| if is_held { wait.min(Duration::from_millis(2)) } else { wait });
        let word = match wait.map_or_else(|| acquire.try_acquire(), |wait| acquire.acquire_within(wait)) {
            Ok(held) => {
                held.renew().ok();
                held.release().ok();
                "held"
            }
            Err(Error::InvalidArgument(_)) => "argument",
            Err(Error::Busy { .. }) => "busy",
            Err(Error::Refused(_)) => "refused",
            Err(Error::NotFound { .. }) => "not found",
            Err(error) => return Err(TestCaseError::fail(format!("{error:?}"))),
        };
        *count.borrow_mut().entry(word).or_default() += 1;
        client.lock("after").try_acquire().unwrap().release().unwrap();
        Ok(())
    });
    tried.unwrap();
    for word in ["held", "argument", "busy", "not found"] {
        assert!(seen.contains_key(word), "{seen:?}");
    }
    assert_eq!(waiters(&world), 0);
}

#[test]
fn a_tick_of_maximum_duration_never_comes() {
    let world = World::new();
    let _held = world.client().lock("l").try_acquire().unwrap();
    let client = world.runtime();
    let resource = Resource { kind: Kind::Lock, name: Name::new("l").unwrap() };
    let ask = Ask::new(GrantRequest::new(HolderId::new("h").unwrap()));
    let options = WaitOptions { wait: Some(Duration::from_millis(5)), tick: Some(Duration::MAX), ..WaitOptions::default() };
    assert!(matches!(client.acquire(resource, ask, options), Ok(Acquisition::TimedOut(_))));
    let queue = Name::new("q").unwrap();
    let taken = client.take(&queue, HolderId::new("h").unwrap(), Some(Duration::MAX), None, &mut |_| {});
    assert!(taken.is_ok(), "there is no such queue: {taken:?}");
}
