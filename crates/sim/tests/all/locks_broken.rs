//! Every checker can fail: for each there is a store with one fault, which that checker finds without the others.

use banksman_sim::{Broken, Checker, Options, run, run_twice};

fn is_caught(broken: Broken, options: Options<Broken>, seed: u64) -> Option<Checker> {
    let twice = broken.checker() == Checker::Trace;
    let report = if twice { run_twice(seed, options) } else { run(seed, options, None) };
    report.violation.map(|violation| violation.checker)
}

/// With all checkers at work, too, no fault goes unseen.
fn assert_caught(broken: Broken, pin: u64) {
    let only = broken.checker();
    for options in [
        Options { broken: Some(broken), only: Some(only), steps: None },
        Options { broken: Some(broken), only: None, steps: None },
    ] {
        let caught = |seed| is_caught(broken, options, seed).is_some_and(|checker| options.only.is_none() || checker == only);
        assert!(crate::caught_on(broken.name(), pin, caught), "{} was never caught by [{only}]", broken.name());
    }
}

macro_rules! caught {
    ($($test:ident: $broken:ident on $pin:literal),* $(,)?) => {
        $(#[test] fn $test() { assert_caught(Broken::$broken, $pin); })*

        #[test]
        fn every_fault_has_its_test() {
            assert_eq!(Broken::ALL.to_vec(), vec![$(Broken::$broken),*]);
        }
    };
}

caught! {
    a_stale_epoch_that_passes_is_caught: FencingOff on 2,
    a_newcomer_at_the_front_is_caught: LineOff on 0,
    one_slot_too_many_is_caught: CapacityOff on 0,
    an_epoch_given_twice_is_caught: EpochReuse on 0,
    a_fence_that_falls_is_caught: FenceFalls on 0,
    a_forgotten_waiter_is_caught: ForgetWaiter on 0,
    a_deadlock_that_nobody_refused_is_caught: DeadlockOff on 10,
    a_lease_that_ends_too_early_is_caught: StealLease on 0,
    a_living_process_called_dead_is_caught: PresumeDead on 0,
    a_row_without_an_event_is_caught: SilentRow on 0,
    a_heartbeat_that_was_not_written_is_caught: LostHeartbeat on 0,
    an_influence_from_outside_is_caught: OutsideCounter on 0,
}
