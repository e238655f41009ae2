//! The value of `--since`.

use banksman_core::Wall;
use jiff::civil::Time;
use jiff::{Timestamp, ToSpan, Zoned};

use super::resources::Dur;
use crate::failure::Failure;

/// A moment: a duration ago (`1h`), the most recent time of day (`22:00`), or a date with a time.
pub(crate) fn parse(text: &str) -> Result<Wall, Failure> {
    if let Ok(ago) = text.parse::<Dur>() {
        let now = banksman_adapters::host::wall_ms();
        return Ok(Wall(now.saturating_sub(ago.span().as_ms())));
    }
    let is_clock = text.contains(':') && text.len() <= "22:00:00".len();
    let clock = is_clock.then(|| text.parse().ok()).flatten();
    let time = text.parse().ok().or_else(|| last(clock?, &Zoned::now()));
    time.map(|time: Timestamp| Wall(time.as_millisecond())).ok_or_else(|| {
        Failure::usage(format!("--since: {text:?} is neither a duration nor a time"))
            .hint("for example: --since 1h, --since 22:00, or --since 2026-11-15T08:00:00Z")
    })
}

/// The most recent moment with this time of day.
fn last(clock: Time, now: &Zoned) -> Option<Timestamp> {
    let today = now.with().time(clock).build().ok()?;
    let last = if today > *now { today.checked_sub(1.day()).ok()? } else { today };
    Some(last.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_means_the_most_recent_one() {
        let now: Zoned = "2026-11-18T09:30:00+01:00[Europe/Berlin]".parse().unwrap();
        let at = |text: &str| last(text.parse().unwrap(), &now).unwrap().to_string();
        assert_eq!([at("22:00"), at("09:00")], ["2026-11-17T21:00:00Z", "2026-11-18T08:00:00Z"]);
    }

    #[test]
    fn an_invalid_time_is_refused() {
        for wrong in ["yesterday", "25:00", ":", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse("2026-11-15T08:00:00Z").unwrap(), Wall(1_794_729_600_000));
    }
}
