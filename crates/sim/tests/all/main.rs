//! Tests of the simulator. One test binary, because linking dominates. No seed is random and none runs twice here: fresh seeds
//! are for `make soak`.

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
