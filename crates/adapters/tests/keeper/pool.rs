//! Keepers that are reused.

use banksman_adapters::keeper::{Keepers, Spec};
use rustix::process::Signal;

use crate::world::{PROGRAM, Talk, World, alive, signal, until};

fn spec(world: &World, n: u32, script: &str) -> Spec {
    let spec = world.spec(script);
    Spec {
        run: format!("{}-{n}", spec.run),
        record: world.path(&format!("runs/r-{n}")),
        log: world.path(&format!("logs/r-{n}")),
        ..spec
    }
}

/// Runs a session to its acknowledged end. Returns the pid of its keeper.
fn run(world: &World, keepers: &mut Keepers, n: u32) -> i32 {
    let session = keepers.start(&spec(world, n, &format!("echo {n}; exit {n}"))).unwrap();
    let mut talk = Talk::new(session);
    let (keeper, _) = talk.started();
    assert_eq!(talk.ended().code, Some(i32::try_from(n).unwrap()));
    keepers.acknowledge(talk.session);
    until("the keeper has reported whether it stays", || {
        keepers.tend();
        (keepers.descriptors().count() == 0).then_some(())
    });
    keeper
}

#[test]
fn a_keeper_is_reused_for_the_next_session() {
    let world = World::new();
    let mut keepers = Keepers::of(PROGRAM.into());
    let first = run(&world, &mut keepers, 1);
    for n in 2..5 {
        assert_eq!(run(&world, &mut keepers, n), first);
        assert_eq!(std::fs::read_to_string(world.path(&format!("logs/r-{n}"))).unwrap(), format!("{n}\n"));
    }
    assert_eq!(world.list("runs"), Vec::<String>::new(), "every record is removed");
    drop(keepers);
    until("the keeper ends with its owner", || (!alive(first)).then_some(()));
}

#[test]
fn one_idle_keeper_always_stays() {
    let world = World::new();
    let mut keepers = Keepers::of(PROGRAM.into());
    let sessions = [1, 2].map(|n| keepers.start(&spec(&world, n, "true")).unwrap());
    let both = sessions.map(|session| {
        let mut talk = Talk::new(session);
        let (keeper, _) = talk.started();
        talk.ended();
        keepers.acknowledge(talk.session);
        keeper
    });
    until("both wait for another session", || {
        keepers.tend();
        keepers.next_deadline()
    });
    until("one of them is dismissed", || {
        keepers.tend();
        keepers.next_deadline().is_none().then_some(())
    });
    let stays = run(&world, &mut keepers, 3);
    assert!(both.contains(&stays));
    until("the other one ends", || both.iter().any(|keeper| !alive(*keeper)).then_some(()));
}

#[test]
fn a_killed_or_terminated_keeper_gets_no_other_session() {
    for how in [Signal::KILL, Signal::TERM] {
        let world = World::new();
        let mut keepers = Keepers::of(PROGRAM.into());
        let first = run(&world, &mut keepers, 1);
        signal(first, how);
        if how == Signal::KILL {
            until("the keeper is dead", || (!alive(first)).then_some(()));
            assert_ne!(run(&world, &mut keepers, 2), first);
        } else {
            // If the keeper has handled the signal already, another one keeps the session; if not, it ends without
            // making a record.
            let session = keepers.start(&spec(&world, 2, "true")).unwrap();
            let mut talk = Talk::new(session);
            let begun = talk.begun();
            assert!(begun.is_none_or(|keeper| keeper != first), "a terminated keeper has started a session");
        }
    }
}
