//! The real engine on the real store survives every fault: on seeds that are always the same, and on a few that
//! nobody has seen before.

use banksman_sim::{Options, run, run_twice};

fn assert_holds(seed: u64) {
    let violation = run(seed, Options::default(), None).violation;
    let what = violation.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(violation.is_none(), "seed {seed}: {what}\nreplay it with: cargo run -p banksman-sim -- --seed {seed}");
}

#[test]
fn fixed_seeds_keep_every_promise() {
    (0..120).for_each(assert_holds);
}

#[test]
fn fresh_seeds_keep_every_promise() {
    use std::io::Read as _;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    let first = u64::from_le_bytes(bytes) >> 16;
    (first..first + 40).for_each(assert_holds);
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in 500..530 {
        let report = run_twice(seed, Options::default());
        assert_eq!(report.violation, None, "seed {seed}");
    }
    let hash = |seed| run(seed, Options::default(), None).hash;
    assert_ne!(hash(500), hash(501), "another seed is another history");
}

/// A simulation in which nothing happens proves nothing.
#[test]
fn every_kind_of_trouble_comes_up() {
    let mut tally = banksman_sim::Tally::default();
    (0..60).for_each(|seed| tally.add(&run(seed, Options::default(), None).tally));
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
