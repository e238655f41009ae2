//! Runs that have ended without a runner: a command that needs what they hold records their end.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::Signal;

use crate::claims::{UNTIL_GO, section, until_waiting};
use crate::world::{World, until};

/// The pid of the keeper of the only run.
fn keeper(world: &World) -> i32 {
    let mut pid = None;
    until("its keeper is known", || {
        pid = world.data(&["sessions", "list"])["sessions"][0]["keeperPid"].as_i64();
        pid.is_some()
    });
    i32::try_from(pid.unwrap()).unwrap()
}

/// A run without a runner ends like any other: a command that waits for its resources records the end, and so does one with --no-wait.
#[test]
fn waiting_commands_record_the_end_of_a_run_without_a_runner() {
    for signal in [Signal::INT, Signal::KILL] {
        let world = World::new();
        // No poll comes within the test, so only the waiting commands can record the end.
        world.configure("[locking]\npoll_interval = \"10m\"\n");
        section(&world, "db");
        world.add(&["Mig", "--section", "db", "--lock", "dep", "--run", UNTIL_GO]);
        world.add(&["Rev", "--section", "db"]);
        let runner = world.start(&["run", "--quiet"]);
        until("it runs", || world.has("begun"));
        let early = world.start(&["tasks", "take", "Rev", "--holder", "alice"]);
        until_waiting(&world, 1);
        runner.signal(signal);
        runner.end();
        let mut late = world.command(&["locks", "acquire", "dep", "--holder", "bob", "--ttl", "60s"]);
        let mut late = late.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(late.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.any(|line| line.contains("no runner is running")), "{signal:?}");
        world.touch("go");
        let early = early.end();
        assert_eq!((early.code, late.wait().unwrap().code()), (0, Some(0)), "{signal:?}: {early:?}");
        assert_eq!(world.status("Mig"), "completed");
    }
}

#[test]
fn commands_without_waiting_record_the_end_of_a_run() {
    let asks: [&[&str]; 4] = [
        &["tasks", "take", "Rev", "--holder", "alice", "--no-wait"],
        &["locks", "acquire", "dep", "--holder", "bob", "--ttl", "60s", "--no-wait"],
        &["tasks", "take", "Mig", "--holder", "alice", "--timeout", "60s"],
        &["tasks", "delete", "Mig"],
    ];
    for ask in asks {
        let world = with_unrecorded_run();
        // The run has completed this task, so the take is refused at once.
        let expected = if ask[2] == "Mig" && ask[1] == "take" { 2 } else { 0 };
        let said = world.run(ask);
        assert_eq!(said.code, expected, "{ask:?}: {said:?}");
    }
    // On a server, this process has another host id than the commands, which have a state directory of their own.
    let Some(world) = World::only_on_sqlite().map(|_| with_unrecorded_run()) else { return };
    let guard = world.library().lock("dep").holder("bob").try_acquire().unwrap();
    assert_eq!((guard.release().is_ok(), world.status("Mig")), (true, "completed".into()));
}

/// A project whose only run, with the section `db` and the lock `dep`, has ended without a runner.
fn with_unrecorded_run() -> World {
    let world = World::new();
    section(&world, "db");
    world.add(&["Mig", "--section", "db", "--lock", "dep", "--run", UNTIL_GO]);
    world.add(&["Rev", "--section", "db"]);
    let runner = world.start(&["run", "--quiet"]);
    until("it runs", || world.has("begun"));
    let keeper = keeper(&world);
    runner.signal(Signal::KILL);
    runner.end();
    world.touch("go");
    until("its session has ended", || !crate::world::is_alive(keeper));
    world
}

#[test]
fn a_wait_for_a_run_without_a_keeper_names_the_remedy() {
    let world = World::new();
    world.add(&["Mig", "--lock", "dep", "--run", UNTIL_GO]);
    let runner = world.start(&["run", "--quiet"]);
    until("it runs", || world.has("begun"));
    let keeper = keeper(&world);
    let run = world.holder("dep").unwrap().run().unwrap();
    runner.signal(Signal::KILL);
    runner.end();
    crate::world::kill(keeper);
    until("it is dead", || !crate::world::is_alive(keeper));
    let said = world.run(&["locks", "acquire", "dep", "--holder", "bob", "--timeout", "300ms"]);
    assert_eq!(said.code, 6, "{said:?}");
    let command = format!("banksman sessions kill {run}");
    assert!(said.stderr.contains(&command) && said.stderr.contains("keeper"), "{said:?}");
    // Doctor reports it too, and does not count the dead keeper among the silent ones.
    let doctor = world.ok(&["doctor"]);
    assert!(doctor.contains("its keeper is dead") && !doctor.contains("the keeper of 1 run"), "{doctor}");
    world.run(&["sessions", "kill", run.as_str()]);
    world.ok(&["locks", "acquire", "dep", "--holder", "bob", "--no-wait"]);
}
