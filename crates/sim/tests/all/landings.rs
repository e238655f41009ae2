//! Merge queues with workers that are killed between any two steps.

use banksman_sim::{LandingMutation, land_history};

#[test]
fn every_good_task_lands_once_and_tested() {
    let (mut landed, mut killed) = (0, 0);
    for seed in 0..60 {
        let tally = land_history(seed, None).unwrap_or_else(|what| panic!("{what}"));
        (landed, killed) = (landed + tally.landed, killed + tally.killed);
    }
    assert!(landed > 200 && killed > 500, "{landed} landed, {killed} killed");
}

#[test]
fn every_mutation_is_detected() {
    use LandingMutation::*;
    for (mutation, said) in [
        (SkipsCheck, "on which the check fails"),
        (MovesAnyway, "commits, and"),
        (ReportsTooSoon, "is not on the target"),
        (ForgetsMove, "has landed twice"),
    ] {
        let found = (0..60).find_map(|seed| land_history(seed, Some(mutation)).err());
        let found = found.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        assert!(found.contains(said), "{mutation:?}: {found}");
    }
}

#[test]
#[ignore = "takes long: make soak"]
fn many_more_histories_land() {
    for seed in 1_000..6_000 {
        land_history(seed, None).unwrap_or_else(|what| panic!("{what}"));
    }
}
