//! Claims of people beside runners survive every fault; and every checker can fail: for each there is an engine with one fault, which that
//! checker finds without the others.

use banksman_sim::claims::{ClaimMutation, run, run_twice};
use banksman_sim::{Options, Tally};

fn assert_holds(seed: u64) -> Tally {
    let report = run(seed, Options::default(), None);
    let what = report.violation.as_ref().map(ToString::to_string).unwrap_or_default();
    let replay = format!("cargo run -p banksman-sim -- --world claims --seed {seed}");
    assert!(report.violation.is_none(), "seed {seed}: {what}\nreplay it with: {replay}");
    report.tally
}

#[test]
fn known_seeds_keep_every_promise_and_meet_every_fault() {
    let mut tally = Tally::default();
    (0..10).for_each(|seed| tally.add(&assert_holds(seed)));
    for what in [
        "acquired beside a due claim",
        "adoptions",
        "claims",
        "deadlocks refused",
        "deaths",
        "explained: starting",
        "explained: waiting",
        "forced",
        "gave up",
        "limits changed",
        "locks held",
        "runs",
        "tasks deleted",
        "told of a lost claim",
        "transactions lost",
        "waits",
        "wake-ups lost",
    ] {
        assert!(tally.get(what) > 0, "{what}: {}", tally.get(what));
    }
}

#[test]
fn the_same_seed_is_the_same_history() {
    assert_eq!(run_twice(40, Options::default()).violation, None);
}

caught! { ClaimMutation by run:
    a_section_that_outlives_its_run_is_caught: SectionStays on 0,
    a_task_taken_without_a_claim_is_caught: ClaimForgotten on 0,
    a_heartbeat_for_a_part_of_a_claim_is_caught: RenewsTaskOnly on 0,
    two_people_in_one_section_are_caught: SectionOpen on 1,
    a_run_that_nobody_may_adopt_is_caught: AdoptionNeedsLock on 1,
    a_claim_that_is_overtaken_for_ever_is_caught: OvertakeOff on 0,
    a_deadlock_that_nobody_refuses_is_caught: DeadlockUnseen on 3,
    a_wait_that_outlives_its_end_is_caught: WaitStays on 0,
    an_explanation_without_claims_is_caught: WhyIgnoresClaims on 0,
}
