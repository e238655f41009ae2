//! Guards can move, renew themselves and report their loss; refusals name the holders.

use std::time::{Duration, Instant};

use banksman::{Client, Error, Guard, Item, Resource, RunnerHandle};

use crate::World;

const SOON: Duration = Duration::from_secs(20);

#[test]
fn handles_can_move_to_another_thread() {
    fn moves<T: Send + std::fmt::Debug + 'static>() {}
    fn is_shared<T: Send + Sync + std::fmt::Debug + 'static>() {}
    moves::<Guard>();
    moves::<Item>();
    moves::<banksman::Events>();
    moves::<banksman::Runner>();
    is_shared::<RunnerHandle>();
    is_shared::<Client>();
    is_shared::<banksman::CancelToken>();
    is_shared::<Error>();

    let world = World::new();
    let guard = {
        // The client variable is dropped before the guard.
        let client = world.client();
        client.lock("l").holder("mover").try_acquire().unwrap()
    };
    let epoch = guard.epoch();
    let back = std::thread::spawn(move || (guard.renew().unwrap(), guard).1).join().unwrap();
    assert_eq!((back.epoch(), back.holder()), (epoch, "mover"));
    assert!(world.client().lock("l").try_acquire().is_err());
    drop(back);
    assert!(world.client().lock("l").try_acquire().unwrap().epoch() > epoch);
}

#[test]
fn refusals_name_the_holders_the_position_and_the_cycle() {
    let world = World::new();
    let client = world.client();
    let a = client.lock("a").holder("ann").try_acquire().unwrap();
    match client.lock("a").holder("bob").try_acquire() {
        Err(error @ Error::Busy { .. }) => assert_eq!(error.to_string(), "lock a is held by ann"),
        other => panic!("{other:?}"),
    }
    let _b = client.lock("b").holder("bob").try_acquire().unwrap();
    std::thread::scope(|scope| {
        // Bob waits for a lock of Ann; then Ann must not wait for a lock of Bob.
        let bob = scope.spawn(|| client.lock("a").holder("bob").acquire_within(SOON));
        let third = |timeout| client.lock("a").holder("eve").acquire_within(timeout);
        let started = Instant::now();
        loop {
            match third(Duration::from_millis(1)) {
                Err(Error::Busy { holders, position: Some(2), waiters: 2, .. }) => break assert_eq!(holders, ["ann"]),
                Err(Error::Busy { position: Some(1), .. }) if started.elapsed() < SOON => {}
                other => panic!("{other:?}"),
            }
        }
        match client.lock("b").holder("ann").acquire_within(SOON) {
            Err(Error::Deadlock { resource: Resource { name, .. }, cycle, .. }) => {
                let mut links: Vec<_> = cycle.iter().map(|wait| (&*wait.holder, wait.waits_for.to_string())).collect();
                links.sort();
                assert_eq!((name.as_str(), links), ("b", vec![("ann", "lock b".into()), ("bob", "lock a".into())]));
            }
            other => panic!("{other:?}"),
        }
        a.release().unwrap();
        bob.join().unwrap().unwrap().release().unwrap();
    });
    client.define_semaphore("s", 2).unwrap();
    let _slots = client.semaphore("s").holder("ann").weight(2).try_acquire().unwrap();
    let full = client.semaphore("s").acquire_within(Duration::from_millis(1)).unwrap_err();
    let words = "waited too long for semaphore s, held by ann (position 1 of 1)";
    assert_eq!(full.to_string(), words);
    assert!(matches!(client.semaphore("none").try_acquire(), Err(Error::NotFound { kind: "semaphore", .. })));
}

#[test]
fn a_grant_with_a_time_to_live_is_renewed_until_it_is_lost() {
    let world = World::new();
    let client = world.client();
    let ttl = Duration::from_millis(900);
    let kept = client.lock("kept").ttl(ttl).try_acquire().unwrap();
    let taken = client.lock("taken").ttl(ttl).try_acquire().unwrap();
    let mut reader = world.runtime().reader().unwrap();
    until("the grants are renewed", || ["kept", "taken"].iter().all(|name| is_renewed(&mut reader, name)));
    kept.renew().unwrap();

    // A person takes the lock away: the next renewal notices without a call.
    force(&world, "taken");
    until("the guard knows that it is lost", || taken.is_lost());
    assert!(matches!(taken.renew(), Err(Error::Lost { .. })));
    assert!(matches!(taken.release(), Err(Error::Lost { .. })));
    kept.release().unwrap();

    // The longest hold cannot be extended.
    let short = client.lock("short").max_hold(Duration::from_millis(1)).try_acquire().unwrap();
    let other = client.lock("short").acquire_within(SOON).unwrap();
    assert!(short.is_lost() && !other.is_lost());
    assert!(matches!(short.release(), Err(Error::Lost { .. })));
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < SOON, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

fn is_renewed(reader: &mut banksman_store::Reader, name: &str) -> bool {
    use banksman_core::resource::lock::State;
    let locks = reader.view().snapshot().unwrap().tables.coordination.locks;
    matches!(&locks[name].state, State::Held(grant) if grant.heartbeat.lease > grant.acquired.lease)
}

/// Takes a lock away from its holder, as `banksman locks release --force` does.
fn force(world: &World, name: &str) {
    use banksman_core::event::Forced;
    use banksman_core::resource::coordination::Command;
    use banksman_core::resource::lock::Input;
    let by = Forced { user: "somebody".into(), host: "here".into(), pid: 1 };
    let command = Command::Lock(banksman_core::Name::new(name).unwrap(), Input::Force { by });
    world.runtime().ask(command, Vec::new()).unwrap();
}
