//! A clock that all processes of this machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC, in nanoseconds. Unlike an `Instant`, it has a meaning in another process.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.expect("time since boot is not negative") * 1_000_000_000 + nanos.expect("a part of a second is not negative")
}

/// Sleeps until the clock shows `until`.
pub(crate) fn sleep_until(until: u64) {
    std::thread::sleep(left(until));
}

/// The time until the clock shows `until`.
pub(crate) fn left(until: u64) -> Duration {
    Duration::from_nanos(until.saturating_sub(now()))
}

/// A duration in nanoseconds, the unit of this clock.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
