//! No argument makes the library panic, and nothing that is refused leaves a trace.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use banksman_core::event::{Kind, Resource};
use banksman_core::ids::NameError;
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::grant::{Ask, GrantRequest};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{HolderId, Name};
use banksman_runtime::{AcquireError, Acquisition, ArgumentError, Client, Error, WaitOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::World;

fn define(client: &Client, name: &str, capacity: u32) {
    let input = semaphore::Input::Define(semaphore::Config { capacity, ttl: None });
    client.ask(Command::Semaphore(Name::new(name).unwrap(), input), Vec::new()).unwrap();
}

/// How many wait for anything.
fn waiters(world: &World) -> usize {
    let all = world.client().reader().unwrap().view().snapshot().unwrap().coordination;
    all.locks.values().map(|lock| lock.waiters.len()).sum::<usize>()
        + all.semaphores.values().map(|one| one.waiters.len()).sum::<usize>()
}

#[test]
fn a_lock_has_one_slot() {
    let world = World::new();
    let client = world.client();
    for weight in [0, 2, 5, u32::MAX] {
        let refused = client.lock("w").unwrap().weight(weight).acquire();
        assert!(matches!(refused, Err(AcquireError::Argument(ArgumentError::LockWeight(given))) if given == weight));
        // Those who ask below the builder are refused as well.
        let claim = GrantRequest { weight, ..GrantRequest::new(HolderId::new("h").unwrap()) };
        let input = lock::Input::Acquire(Box::new(Ask::new(claim)));
        let (outcome, _) = client.ask(Command::Lock(Name::new("w").unwrap(), input), Vec::new()).unwrap();
        assert_eq!(outcome, Outcome::Lock(lock::Outcome::NotOneSlot));
    }
    client.lock("w").unwrap().acquire().unwrap().release().unwrap();
}

#[test]
fn a_wait_may_be_endless() {
    let world = World::new();
    let client = world.client();
    let first = client.lock("l").unwrap().acquire().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| client.lock("l").unwrap().wait(Duration::MAX).acquire().unwrap().release());
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
fn whoever_panics_while_it_waits_does_not_stand_in_the_way() {
    let world = World::new();
    let client = world.client();
    let first = client.lock("l").unwrap().acquire().unwrap();
    let resource = Resource { kind: Kind::Lock, name: Name::new("l").unwrap() };
    let ask = Ask::new(GrantRequest::new(HolderId::new("h").unwrap()));
    let mut progress = |_: &_, _| panic!("the program is broken");
    let patience = WaitOptions { wait: Some(Duration::from_secs(60)), progress: Some(&mut progress), ..WaitOptions::default() };
    let acquire = || client.acquire(resource, ask, patience);
    assert!(catch_unwind(AssertUnwindSafe(acquire)).is_err());
    assert_eq!(waiters(&world), 0);
    first.release().unwrap();
    client.lock("l").unwrap().acquire().unwrap().release().unwrap();
}

#[test]
fn names_of_banksman_are_reserved() {
    let world = World::new();
    let client = world.client();
    for name in ["task:t-1", "section:s-1", "dispatch:q", "run:r-1", "runs", "roots"] {
        let reserved = |error| assert!(matches!(error, NameError::Reserved { .. }), "{error}");
        reserved(client.lock(name).err().unwrap());
        reserved(client.semaphore(name).err().unwrap());
        // Nor below the builder.
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
            assert!(matches!(client.ask(command, Vec::new()), Err(Error::Name(NameError::Reserved { .. }))));
            let acquired = client.acquire(resource, *ask(), WaitOptions::default());
            assert!(matches!(acquired, Err(Error::Name(NameError::Reserved { .. }))));
        }
    }
    assert!(world.client().reader().unwrap().view().snapshot().unwrap().coordination.locks.is_empty());
}

#[test]
fn a_handle_never_shares_its_grant() {
    let world = World::new();
    let client = world.client();
    define(&client, "s", 5);
    let slots = |client: &'_ Client, holder: &str, weight| {
        client.semaphore("s").unwrap().holder(holder).unwrap().weight(weight).acquire().map(|held| (held.epoch(), held.release()))
    };
    let one = client.semaphore("s").unwrap().holder("me").unwrap().acquire().unwrap();
    for weight in [1, 2, 5, 6] {
        assert!(matches!(slots(&client, "me", weight), Err(AcquireError::AlreadyHeld { .. })), "{weight}");
        assert!(
            matches!(slots(&world.client(), "me", weight), Err(AcquireError::AlreadyHeld { .. })),
            "another process: {weight}"
        );
    }
    one.heartbeat().unwrap();
    assert_ne!(slots(&client, "you", 4).unwrap().0, one.epoch(), "the refused have left its weight alone");
    let (two, three) = (client.semaphore("s").unwrap().acquire().unwrap(), client.semaphore("s").unwrap().acquire().unwrap());
    assert_ne!(two.holder(), three.holder(), "a holder without a name is one of its own");
    drop(two);
    three.heartbeat().unwrap();
    one.release().unwrap();
    slots(&client, "me", 1).unwrap().1.unwrap();

    // A request that is repeated gets its grant, but not while a handle of this client has it.
    for (kind, name) in [(Kind::Lock, "l"), (Kind::Semaphore, "s")] {
        let ask = |client: &'_ Client| {
            let acquire = if kind == Kind::Lock { client.lock(name).unwrap() } else { client.semaphore(name).unwrap() };
            acquire
                .holder("again")
                .unwrap()
                .request_id(name)
                .unwrap()
                .acquire()
                .map(|held| (held.epoch(), std::mem::forget(held)))
        };
        let first = ask(&client).unwrap().0;
        assert!(matches!(ask(&client), Err(AcquireError::AlreadyHeld { .. })));
        assert_eq!(ask(&world.client()).unwrap().0, first, "the answer was lost");
    }
}

/// What may be asked for, with values at every edge.
fn span() -> impl Strategy<Value = Option<Duration>> {
    let edges = [0, 1, 999_999, 1_000_000, 1_500_000, u64::MAX].map(Duration::from_nanos);
    let all = edges.into_iter().chain([Duration::from_secs(3_600), Duration::from_secs(u64::MAX), Duration::MAX]);
    proptest::option::of(proptest::sample::select(all.collect::<Vec<_>>()))
}

#[test]
fn no_argument_panics_or_leaves_a_waiter() {
    let world = World::new();
    let (client, other) = (world.client(), world.client());
    define(&client, "slots", 3);
    let _slot = other.semaphore("slots").unwrap().acquire().unwrap();
    let _lock = other.lock("held").unwrap().acquire().unwrap();
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
        let build = || -> Result<_, NameError> {
            let mut acquire = if is_lock { client.lock(&name) } else { client.semaphore(&name) }?;
            if let Some(holder) = &holder {
                acquire = acquire.holder(holder)?;
            }
            if let Some(request) = &request {
                acquire = acquire.request_id(request)?;
            }
            acquire = weight.into_iter().fold(acquire, |acquire, weight| acquire.weight(weight));
            acquire = ttl.into_iter().fold(acquire, |acquire, ttl| acquire.ttl(ttl));
            acquire = max_hold.into_iter().fold(acquire, |acquire, max_hold| acquire.max_hold(max_hold));
            // What others have is not waited for: they keep it.
            let is_held = name == "held" || name == "slots";
            Ok(wait
                .map(|wait| if is_held { wait.min(Duration::from_millis(2)) } else { wait })
                .into_iter()
                .fold(acquire, |acquire, wait| acquire.wait(wait)))
        };
        let word = match build().map(banksman_runtime::Acquire::acquire) {
            Err(_) => "name",
            Ok(Ok(held)) => {
                held.heartbeat().ok();
                held.release().ok();
                "held"
            }
            Ok(Err(AcquireError::Argument(_))) => "argument",
            Ok(Err(AcquireError::Busy(_))) => "busy",
            Ok(Err(AcquireError::Refused { .. })) => "refused",
            Ok(Err(error)) => return Err(TestCaseError::fail(format!("{error:?}"))),
        };
        *count.borrow_mut().entry(word).or_default() += 1;
        client.lock("after").unwrap().acquire().unwrap().release().unwrap();
        Ok(())
    });
    tried.unwrap();
    for word in ["name", "held", "argument", "busy", "refused"] {
        assert!(seen.contains_key(word), "{seen:?}");
    }
    assert_eq!(waiters(&world), 0);
}

#[test]
fn an_endless_tick_is_a_tick_that_never_comes() {
    let world = World::new();
    let client = world.client();
    let _held = client.lock("l").unwrap().acquire().unwrap();
    let resource = Resource { kind: Kind::Lock, name: Name::new("l").unwrap() };
    let ask = Ask::new(GrantRequest::new(HolderId::new("h").unwrap()));
    let patience = WaitOptions { wait: Some(Duration::from_millis(5)), tick: Some(Duration::MAX), ..WaitOptions::default() };
    assert!(matches!(client.acquire(resource, ask, patience), Ok(Acquisition::TimedOut(_))));
    let queue = Name::new("q").unwrap();
    let taken = client.take(&queue, HolderId::new("h").unwrap(), Some(Duration::MAX), None, &mut |_| {});
    assert!(taken.is_ok(), "there is no such queue: {taken:?}");
}
