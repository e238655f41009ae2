//! The real engine on the real store survives every fault.

use banksman_sim::{Options, Tally, run, run_twice};

fn assert_holds(seed: u64) -> Tally {
    let report = run(seed, Options::default(), None);
    let what = report.violation.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(report.violation.is_none(), "seed {seed}: {what}\nreplay it with: cargo run -p banksman-sim -- --seed {seed}");
    report.tally
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in 120..140 {
        let report = run_twice(seed, Options::default());
        assert_eq!(report.violation, None, "seed {seed}");
    }
    let hash = |seed| run(seed, Options::default(), None).hash;
    assert_ne!(hash(500), hash(501), "another seed is another history");
}

/// A simulation in which nothing happens proves nothing.
#[test]
fn fixed_seeds_keep_every_promise_and_meet_every_fault() {
    let mut tally = Tally::default();
    (0..120).for_each(|seed| tally.add(&assert_holds(seed)));
    for what in [
        "asked again by a successor",
        "deadlocks refused",
        "fault: commit unknown, done",
        "fault: commit unknown, undone",
        "fault: crash",
        "fault: crash after commit",
        "fault: pause",
        "fault: reboot",
        "fault: replies lost",
        "fault: wake-up late",
        "fault: wake-up lost",
        "fault: wall clock set",
        "fenced",
        "gave up unknowing",
        "gone",
        "increases",
        "lost",
        "offers lapsed",
        "reclaims",
        "releases",
        "spent",
        "stalls noticed",
    ] {
        assert!(tally.get(what) > 0, "{what} never happened: {tally:?}");
    }
}
