//! Tests of the simulator. One test binary, because linking dominates. No seed is random and none runs twice here: fresh seeds
//! are for `make soak`.

/// A test for each deliberately broken variant: its own checker finds it, on the pinned seed or on another one. And one that
/// each variant has such a test.
macro_rules! caught {
    ($mutations:ident by $run:path: $($test:ident: $mutation:ident on $pin:literal),* $(,)?) => {
        $(#[test] fn $test() {
            let (mutation, only) = ($mutations::$mutation, $mutations::$mutation.checker());
            let options = banksman_sim::Options { broken: Some(mutation), only: Some(only), steps: None };
            let is_caught = |seed| $run(seed, options, None).violation.is_some();
            assert!(crate::caught_on(mutation.name(), $pin, is_caught), "{} was never caught by [{only}]", mutation.name());
        })*

        #[test]
        fn every_mutation_has_its_test() {
            assert_eq!($mutations::ALL.to_vec(), vec![$($mutations::$mutation),*]);
        }
    };
}

mod backlog;
mod backlog_broken;
mod claims;
mod locks;
mod locks_broken;
mod queues;
mod remembered;

/// Finds a seed on which a deliberately broken variant is caught: the pinned one, or, after a change that moved the histories,
/// the first one that does.
#[expect(clippy::print_stderr, reason = "the new pin must be seen")]
fn caught_on(name: &str, pin: u64, is_caught: impl Fn(u64) -> bool) -> bool {
    if is_caught(pin) {
        return true;
    }
    let found = (0..150).find(|seed| is_caught(*seed));
    if let Some(seed) = found {
        eprintln!("{name}: seed {pin} no longer shows it; pin {seed}");
    }
    found.is_some()
}
