//! When the limit of an account ends, for programs that give a clock time of their machine.

use banksman_agents::{Profile, Reset};
use banksman_core::Wall;
use banksman_core::agent::{AgentEnd, AgentVerdict, Limit};
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::check::variable;

/// The zone in which an agent program prints times: that of its environment, else that of this machine.
pub(super) fn zone(profile: &Profile) -> TimeZone {
    let given = profile.env.get("TZ").map(|_| variable(profile, "TZ").unwrap_or_default());
    let named = given.and_then(|name| TimeZone::get(&name).or_else(|_| TimeZone::posix(&name)).ok());
    named.unwrap_or_else(TimeZone::system)
}

/// The end of a run, with the moment at which its limit ends if the program has given that as text only.
pub(super) fn until(end: AgentEnd, reset: Option<Reset>, said: Wall, zone: &TimeZone) -> AgentEnd {
    match end.verdict {
        AgentVerdict::Quota(Limit { kind, model, resets: None }) => {
            let resets = reset.and_then(|reset| moment(reset, said, zone));
            AgentEnd { verdict: AgentVerdict::Quota(Limit { kind, model, resets }), ..end }
        }
        _ => end,
    }
}

/// The moment that a reset printed at `said` means.
fn moment(reset: Reset, said: Wall, zone: &TimeZone) -> Option<Wall> {
    let (day, hour, minute) = match reset {
        Reset::After(span) => return Some(Wall(said.0.saturating_add(span.as_ms()))),
        Reset::At { day, hour, minute } => (day, i8::try_from(hour).ok()?, i8::try_from(minute).ok()?),
    };
    let date = match day {
        Some(day) => Date::new(day.year, i8::try_from(day.month).ok()?, i8::try_from(day.day).ok()?).ok()?,
        None => Timestamp::from_millisecond(said.0).ok()?.to_zoned(zone.clone()).date(),
    };
    let time = Time::new(hour, minute, 0, 0).ok()?;
    // The printed time has no seconds: the limit ends within the named minute, so that minute must be over.
    let meant = date.to_datetime(time).to_zoned(zone.clone()).ok()?.checked_add(1.minute()).ok()?;
    Some(Wall(meant.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use banksman_agents::resets::Day;
    use banksman_core::Span;

    use super::*;

    #[test]
    fn reset_times_are_in_the_time_zone_of_the_program() {
        let wall = |text: &str| Wall(text.parse::<Timestamp>().unwrap().as_millisecond());
        let said = wall("2026-11-19T07:02:48Z");
        let at = |day, hour, minute, zone: &str| {
            moment(Reset::At { day, hour, minute }, said, &TimeZone::get(zone).or_else(|_| TimeZone::posix(zone)).unwrap())
        };
        // What codex said for limits that ended at 08:02:48 and 09:02:48, and 200,000 seconds later.
        assert_eq!(at(None, 8, 2, "UTC"), Some(wall("2026-11-19T08:03:00Z")));
        assert_eq!(at(None, 18, 2, "Asia/Tokyo"), Some(wall("2026-11-19T09:03:00Z")));
        let day = |month, day| Some(Day { year: 2026, month, day });
        assert_eq!(at(day(11, 21), 9, 36, "America/New_York"), Some(wall("2026-11-21T14:37:00Z")));
        // An hour that occurs twice means its first occurrence; an hour that is skipped means the one after the gap.
        assert_eq!(at(day(11, 1), 1, 30, "America/New_York"), Some(wall("2026-11-01T05:31:00Z")));
        assert_eq!(at(day(3, 8), 2, 30, "America/New_York"), Some(wall("2026-03-08T07:31:00Z")));
        assert_eq!(at(day(2, 30), 2, 30, "UTC"), None);
        assert_eq!(moment(Reset::After(Span::from_secs(90)), said, &TimeZone::UTC), Some(wall("2026-11-19T07:04:18Z")));
    }
}
