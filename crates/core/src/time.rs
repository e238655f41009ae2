//! Integer times: two clocks that cannot be mixed up, and the distance between two readings.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reading of the lease clock, in milliseconds. It never jumps and never goes back; only it is compared with
/// time-outs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lease(pub i64);

/// A reading of the wall clock, in milliseconds since 1970 (UTC). It is for people and for the event log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(pub i64);

/// A length of time in milliseconds, never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(i64);

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stamp {
    /// The time for comparisons.
    pub lease: Lease,
    /// The time for people.
    pub wall: Wall,
}

impl Stamp {
    /// The wall time of a lease time, as far as this stamp allows.
    pub fn wall_of(self, lease: Lease) -> Wall {
        Wall(self.wall.0.saturating_add(lease.0).saturating_sub(self.lease.0))
    }
}

impl Span {
    pub const ZERO: Span = Span(0);

    /// A span of `ms` milliseconds; a negative number counts as zero.
    pub const fn from_ms(ms: i64) -> Span {
        Span(if ms < 0 { 0 } else { ms })
    }

    /// A span of `secs` seconds.
    pub const fn from_secs(secs: i64) -> Span {
        Span::from_ms(secs.saturating_mul(1_000))
    }

    /// The length in milliseconds.
    pub const fn as_ms(self) -> i64 {
        self.0
    }
}

impl From<std::time::Duration> for Span {
    fn from(duration: std::time::Duration) -> Span {
        Span(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Reads a duration such as `500ms`, `90s`, `1h30m` or `2d`.
impl std::str::FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Span, String> {
        let hint = "write it like 500ms, 90s, 1h30m or 2d";
        let mut rest = text.trim();
        let mut total: i64 = 0;
        if rest.is_empty() {
            return Err(format!("a duration is missing: {hint}"));
        }
        if rest.starts_with('-') {
            return Err(format!("a duration cannot be negative: {text:?}"));
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| format!("{text:?} has no unit: {hint}"))?;
            let number: i64 = rest[..digits].parse().map_err(|_| format!("{text:?} is not a duration: {hint}"))?;
            let unit_end = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
            let unit_ms: i64 = match &rest[digits..unit_end] {
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(format!("{text:?} is not a duration: {hint}")),
            };
            let part = number.checked_mul(unit_ms);
            total = part.and_then(|part| total.checked_add(part)).ok_or_else(|| format!("{text:?} is too long"))?;
            rest = &rest[unit_end..];
        }
        // A century: anything longer is a typo, and must not overflow the clocks.
        if total > 100 * 366 * 86_400_000 {
            return Err(format!("{text:?} is longer than a hundred years"));
        }
        Ok(Span(total))
    }
}

/// As on the command line: `90s`, `1h30m`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ms = self.0;
        for (unit, length) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            if ms >= length {
                write!(f, "{}{unit}", ms / length)?;
                ms %= length;
            }
        }
        if self.0 == 0 { f.write_str("0s") } else { Ok(()) }
    }
}

impl Wall {
    /// The time in the format of RFC 3339, in UTC.
    pub fn utc(self) -> String {
        let (days, ms) = (self.0.div_euclid(86_400_000), self.0.rem_euclid(86_400_000));
        // The days are counted from the first of March of the year 0, in eras of 400 years: so the leap day is the last of its
        // year, and the months before it have fixed lengths.
        let from_march = days + 719_468;
        let (era, of_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute, second, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60, ms % 1_000);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

impl Stamp {
    /// The moment this long ago.
    pub fn before(self, span: Span) -> Stamp {
        let ago = |ms: i64| ms.saturating_sub(span.0);
        Stamp { lease: Lease(ago(self.lease.0)), wall: Wall(ago(self.wall.0)) }
    }

    /// The later of two moments, by the lease clock.
    pub fn later(self, other: Stamp) -> Stamp {
        if other.lease > self.lease { other } else { self }
    }
}

impl std::ops::Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl std::ops::Add<Span> for Lease {
    type Output = Lease;
    fn add(self, span: Span) -> Lease {
        Lease(self.0.saturating_add(span.0))
    }
}

impl std::ops::Sub for Lease {
    type Output = Span;
    /// The time since an earlier reading; zero if `earlier` is later.
    fn sub(self, earlier: Lease) -> Span {
        Span::from_ms(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Sub for Wall {
    type Output = Span;
    /// The time since an earlier reading; zero if the wall clock was set back in between.
    fn sub(self, earlier: Wall) -> Span {
        Span::from_ms(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_times_are_written_as_rfc_3339() {
        let words = [0, 951_782_400_000, 1_709_164_799_999, 4_102_444_800_001, -1].map(|ms| Wall(ms).utc());
        let wanted = [
            "1970-01-01T00:00:00.000Z",
            "2000-02-29T00:00:00.000Z",
            "2024-02-28T23:59:59.999Z",
            "2100-01-01T00:00:00.001Z",
            "1969-12-31T23:59:59.999Z",
        ];
        assert_eq!(words, wanted);
    }

    #[test]
    fn spans_are_parsed() {
        let read = |text: &str| text.parse::<Span>();
        assert_eq!(read("500ms"), Ok(Span::from_ms(500)));
        assert_eq!(read("1h30m"), Ok(Span::from_secs(5_400)));
        assert_eq!([read("0s"), read("5s ")], [Ok(Span::ZERO), Ok(Span::from_secs(5))]);
        for bad in ["", "5", "-5s", "5x", "s", "1.5s", "99999999999999999999s", "9000000d", "9223372036854775807d"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn spans_are_displayed_as_they_are_typed() {
        let words = [0, 1_500, 90_000, 5_400_000, 86_400_000].map(|ms| Span::from_ms(ms).to_string());
        assert_eq!(words, ["0s", "1s500ms", "1m30s", "1h30m", "1d"]);
    }
}
