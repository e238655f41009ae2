//! Queues survive every fault; and every checker can fail: for each there is a store with one fault, which that checker finds
//! without the others.

use banksman_sim::queues::{QueueMutation, run, run_twice};
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
fn the_same_seed_is_the_same_history() {
    for seed in 150..158 {
        assert_eq!(run_twice(seed, Options::default()).violation, None, "seed {seed}");
    }
    let hash = |seed| run(seed, Options::default(), None).hash;
    assert_ne!(hash(500), hash(501), "another seed is another history");
}

/// The seed on which each fault is caught.
const PINS: [(QueueMutation, u64); 6] = [
    (QueueMutation::FencingOff, 0),
    (QueueMutation::NoTime, 0),
    (QueueMutation::Silent, 0),
    (QueueMutation::LostItem, 0),
    (QueueMutation::OldEpoch, 0),
    (QueueMutation::SilentRow, 0),
];

#[test]
fn every_fault_is_caught_by_the_checker_that_is_meant_for_it() {
    assert_eq!(PINS.map(|(mutation, _)| mutation), QueueMutation::ALL);
    for (mutation, pin) in PINS {
        let options = Options { broken: Some(mutation), only: Some(mutation.checker()), steps: None };
        let is_caught = |seed| run(seed, options, None).violation.is_some();
        assert!(
            crate::caught_on(mutation.name(), pin, is_caught),
            "{} was never caught by [{}]",
            mutation.name(),
            mutation.checker()
        );
    }
}
