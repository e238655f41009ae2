//! Every checker can fail: for each there is a store with one fault, which that checker finds without the others.

use banksman_sim::{Broken, Checker, Options, run, run_twice};

/// The honest store passes on these same seeds: see `honest.rs`.
const SEEDS: std::ops::Range<u64> = 0..120;

fn assert_caught(broken: Broken) {
    let only = broken.checker();
    let options = Options { broken: Some(broken), only: Some(only), steps: None };
    let live = |seed| if only == Checker::Trace { run_twice(seed, options) } else { run(seed, options, None) };
    let caught = SEEDS.into_iter().find_map(|seed| live(seed).violation.map(|violation| (seed, violation.checker)));
    assert!(caught.is_some(), "{} was never caught by [{only}]", broken.name());
    assert!(caught.is_some_and(|(_, checker)| checker == only), "{} should be caught by [{only}]: {caught:?}", broken.name());
}

macro_rules! caught {
    ($($test:ident: $broken:ident),* $(,)?) => {
        $(#[test] fn $test() { assert_caught(Broken::$broken); })*

        #[test]
        fn every_fault_has_its_test() {
            assert_eq!(Broken::ALL.to_vec(), vec![$(Broken::$broken),*]);
        }
    };
}

caught! {
    a_stale_epoch_that_passes_is_caught: FencingOff,
    a_newcomer_at_the_front_is_caught: LineOff,
    one_slot_too_many_is_caught: CapacityOff,
    an_epoch_given_twice_is_caught: EpochReuse,
    a_fence_that_falls_is_caught: FenceFalls,
    a_forgotten_waiter_is_caught: ForgetWaiter,
    a_deadlock_that_nobody_refused_is_caught: DeadlockOff,
    a_lease_that_ends_too_early_is_caught: StealLease,
    a_living_process_called_dead_is_caught: PresumeDead,
    a_row_without_an_event_is_caught: SilentRow,
    a_heartbeat_that_was_not_written_is_caught: LostHeartbeat,
    an_influence_from_outside_is_caught: OutsideCounter,
}

/// With all checkers at work, too, no fault goes unseen on a handful of seeds.
#[test]
fn all_checkers_together_catch_every_fault() {
    for broken in Broken::ALL {
        let options = Options { broken: Some(broken), ..Options::default() };
        assert!(SEEDS.into_iter().any(|seed| run_twice(seed, options).violation.is_some()), "{}", broken.name());
    }
}
