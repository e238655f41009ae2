//! The time namespace of this process: the offsets of its clocks from the clocks of the machine.
//!
//! A container may have clocks of its own (`unshare --time`): CLOCK_MONOTONIC and CLOCK_BOOTTIME are shifted by an
//! offset, and so are the start times in `/proc/PID/stat`, by the offset of the process that *reads* them. Times that
//! are stored, or compared with times that another process has stored, are always times of the initial namespace.

use std::fs;
use std::io;
use std::sync::OnceLock;

/// The unit of times in `/proc`, in nanoseconds: USER_HZ is 100 on every platform of Rust.
const TICK: i128 = 10_000_000;

/// How far the clocks of a namespace are ahead of the clocks of the initial namespace, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Offsets {
    pub(crate) monotonic_ns: i64,
    pub(crate) boottime_ns: i64,
}

impl Offsets {
    /// The offsets of this process. A process stays in one time namespace from its `exec` on, and offsets are fixed
    /// once a process is in it.
    pub(crate) fn own() -> io::Result<Offsets> {
        static OWN: OnceLock<Offsets> = OnceLock::new();
        if let Some(own) = OWN.get() {
            return Ok(*own);
        }
        let own = match fs::read_to_string("/proc/self/timens_offsets") {
            Ok(text) => parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown format"))?,
            // A kernel without time namespaces has neither of the files.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !fs::exists("/proc/self/ns/time")? => Offsets::default(),
            Err(error) => return Err(error),
        };
        Ok(*OWN.get_or_init(|| own))
    }

    /// Converts a start time that this process has read into one of the initial namespace. The result is exact if the offset is a
    /// multiple of a tick, and may be one tick off otherwise.
    pub(crate) fn start_ticks(self, read: u64) -> u64 {
        // The kernel counts in unsigned 64 bits; a start before the zero of a namespace wraps around.
        let shifted = i128::from(read) * TICK;
        let shifted = if shifted > i128::from(i64::MAX) { shifted - (1 << 64) } else { shifted };
        u64::try_from((shifted - i128::from(self.boottime_ns)).div_euclid(TICK)).unwrap_or(0)
    }
}

/// Lines such as `monotonic           0         0`: clock, seconds, nanoseconds.
fn parse(text: &str) -> Option<Offsets> {
    let offset = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        let mut numbers = line.split_whitespace().skip(1).map(str::parse::<i64>);
        let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
    };
    Some(Offsets { monotonic_ns: offset("monotonic")?, boottime_ns: offset("boottime")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read() {
        let text = "monotonic      864000         0\nboottime          -10 500000000\n";
        let parsed = parse(text).unwrap();
        assert_eq!(parsed, Offsets { monotonic_ns: 864_000_000_000_000, boottime_ns: -9_500_000_000 });
        assert_eq!(parse("monotonic 0 0\n"), None, "a missing offset is not zero");
        assert_eq!(parse("monotonic 0 0\nboottime x 0\n"), None);
    }

    #[test]
    fn a_start_is_the_same_in_every_namespace() {
        // The computation of the kernel for a reader whose namespace is ahead by `offset`.
        let read = |start_ns: i64, offset: i64| start_ns.wrapping_add(offset).cast_unsigned() / 10_000_000;
        for offset in [0, 100_000 * 1_000_000_000, -30 * 1_000_000_000] {
            let offsets = Offsets { monotonic_ns: 0, boottime_ns: offset };
            assert_eq!(offsets.start_ticks(read(123_456_789_012, offset)), 12_345, "{offset}");
        }
        for offset in [7_777_777, -7_777_777, -200_000_000_001] {
            let offsets = Offsets { monotonic_ns: 0, boottime_ns: offset };
            let start = offsets.start_ticks(read(123_456_789_012, offset));
            assert!(start.abs_diff(12_345) <= 1, "{offset}: {start}");
        }
    }
}
