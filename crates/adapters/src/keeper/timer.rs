//! The limit of a session, on a clock that runs while the machine is suspended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};

use super::protocol::Limit;
use crate::host;

/// Becomes readable when the limit is reached, and immediately after a suspension past the limit, which the time-out of
/// a poll does not notice.
#[derive(Debug)]
pub(super) struct Timer {
    fd: OwnedFd,
    limit: Limit,
    /// The time for which the timer is set.
    armed: Option<i64>,
}

impl Timer {
    pub(super) fn new(limit: Limit) -> rustix::io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let mut timer = Timer { fd, limit, armed: None };
        timer.arm()?;
        Ok(timer)
    }

    pub(super) fn limit(&self) -> Limit {
        self.limit
    }

    pub(super) fn renew(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// The time that the session has left to end, if it must end now.
    pub(super) fn due(&mut self) -> Option<Duration> {
        // A timer that cannot be set keeps its former time, which is earlier.
        self.arm().ok();
        let now = host::boot_ms();
        let left = u64::try_from(self.limit.kill_ms - now).unwrap_or(0);
        (now >= self.limit.ask_ms).then(|| Duration::from_millis(left))
    }

    /// Sets the timer to the next of the two times.
    fn arm(&mut self) -> rustix::io::Result<()> {
        let now = host::boot_ms();
        let next = [self.limit.ask_ms, self.limit.kill_ms].into_iter().find(|at| *at > now);
        if next == self.armed {
            return Ok(());
        }
        // Zero stops the timer.
        let at = next.map_or(0, host::own_boottime_ns);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: at / 1_000_000_000, tv_nsec: at % 1_000_000_000 };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: zero, it_value: value })?;
        self.armed = next;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
