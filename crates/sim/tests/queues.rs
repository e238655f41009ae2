//! Queues survive every fault, on seeds that are always the same and on a few that nobody has seen before; and every checker
//! can fail: for each there is a store with one fault, which that checker finds without the others.

use banksman_sim::queues::{Slip, run, run_twice};
use banksman_sim::{Options, Tally};

fn assert_holds(seed: u64) -> Tally {
    let report = run(seed, Options::default(), None);
    let what = report.violation.as_ref().map(ToString::to_string).unwrap_or_default();
    let replay = format!("cargo run -p banksman-sim -- --world queues --seed {seed}");
    assert!(report.violation.is_none(), "seed {seed}: {what}\nreplay it with: {replay}");
    report.tally
}

#[test]
fn known_seeds_keep_every_promise_and_meet_every_fault() {
    let mut tally = Tally::default();
    (0..150).for_each(|seed| tally.add(&assert_holds(seed)));
    for what in ["deaths", "transactions lost", "wake-ups", "wake-ups lost", "slow looks", "takes"] {
        assert!(tally.get(what) > 20, "{what}: {}", tally.get(what));
    }
}

#[test]
fn fresh_seeds_keep_every_promise() {
    use std::io::Read as _;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    let first = u64::from_le_bytes(bytes) >> 16;
    (first..first + 40).for_each(|seed| drop(assert_holds(seed)));
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in 500..508 {
        assert_eq!(run_twice(seed, Options::default()).violation, None, "seed {seed}");
    }
    let hash = |seed| run(seed, Options::default(), None).hash;
    assert_ne!(hash(500), hash(501), "another seed is another history");
}

#[test]
fn every_fault_is_caught_by_the_checker_that_is_meant_for_it() {
    for slip in Slip::ALL {
        let options = Options { broken: Some(slip), only: Some(slip.checker()), steps: None };
        let caught = (0..120).find_map(|seed| run(seed, options, None).violation);
        assert!(caught.is_some(), "{} was never caught by [{}]", slip.name(), slip.checker());
    }
}
