//! The end of a limit in the text of a program: a local time, or a duration.

use banksman_core::Span;
use serde::{Deserialize, Serialize};

/// The end of a limit. To compute the moment, the caller needs the time of the text and the time zone of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reset {
    /// At this local time of the program.
    At {
        /// The day; `None` is the day of the text.
        day: Option<Day>,
        hour: u8,
        minute: u8,
    },
    /// This long after the text.
    After(Span),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Day {
    pub year: i16,
    pub month: u8,
    pub day: u8,
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

impl Reset {
    /// Parses "try again at 2:15 AM", "try again at Nov 21st, 2026 9:36 AM", "try again in 2 hours 5 minutes" and "try
    /// again in 1m30s".
    pub fn of_words(text: &str) -> Option<Reset> {
        let text = text.to_ascii_lowercase();
        let behind = |words: &str| text.rsplit_once(words).map(|(_, rest)| rest);
        if let Some(rest) = behind("again at ") {
            return at(rest);
        }
        ["again in ", "retry in ", "reset after "].into_iter().find_map(behind).and_then(after).map(Reset::After)
    }
}

/// A time of day, maybe after a date.
fn at(text: &str) -> Option<Reset> {
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_end_matches([',', '.', ')'])).take(5).collect();
    let (day, time) = match words.as_slice() {
        [month, day, year, time @ ..] if month.chars().all(char::is_alphabetic) => {
            let month = MONTHS.iter().position(|name| month.starts_with(name))?;
            let day = day.trim_end_matches(char::is_alphabetic).parse().ok()?;
            (Some(Day { year: year.parse().ok()?, month: u8::try_from(month + 1).ok()?, day }), time)
        }
        time => (None, time),
    };
    let [time, half, ..] = time else { return None };
    let (hour, minute) = time.split_once(':')?;
    let (hour, minute): (u8, u8) = (hour.parse().ok()?, minute.parse().ok()?);
    let hour = match *half {
        "am" => hour % 12,
        "pm" => hour % 12 + 12,
        _ => return None,
    };
    ((1..=12).contains(&time.split(':').next()?.parse::<u8>().ok()?) && minute < 60).then_some(Reset::At { day, hour, minute })
}

/// A duration such as "3 days 2 hours", "1h2m3.5s" or "350ms", up to the first word that does not belong to it.
fn after(text: &str) -> Option<Span> {
    let (mut total, mut rest) = (None, text);
    loop {
        rest = rest.trim_start_matches([' ', ',']).trim_start_matches("and ");
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..digits].parse::<f64>() else { break };
        let unit = rest[digits..].trim_start();
        let letters = unit.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(unit.len());
        let ms = match &unit[..letters] {
            "ms" => 1.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1e3,
            "m" | "min" | "mins" | "minute" | "minutes" => 60e3,
            "h" | "hour" | "hours" => 3_600e3,
            "d" | "day" | "days" => 86_400e3,
            _ => break,
        };
        total = Some(total.unwrap_or(0.0) + number * ms);
        rest = &unit[letters..];
    }
    total.map(|ms: f64| Span::from_ms(ms.ceil() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_times_of_real_programs_are_parsed() {
        let day = |year, month, day| Some(Day { year, month, day });
        let at = |day, hour, minute| Some(Reset::At { day, hour, minute });
        let after = |seconds| Some(Reset::After(Span::from_secs(seconds)));
        for (text, expected) in [
            // The texts of codex.
            (
                "You’ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit https://chatgpt.com/settings/usage to purchase more credits or try again at 8:02 AM.",
                at(None, 8, 2),
            ),
            (
                "You’ve hit your usage limit. Visit https://chatgpt.com/settings/usage to purchase more credits or try again at Nov 21st, 2026 9:36 AM.",
                at(day(2026, 11, 21), 9, 36),
            ),
            ("You’ve hit your usage limit. Try again at 6:02 PM.", at(None, 18, 2)),
            ("You’ve hit your usage limit. Try again at 12:00 AM.", at(None, 0, 0)),
            ("You’ve hit your usage limit. Try again at 12:30 PM.", at(None, 12, 30)),
            (
                "You’ve hit your usage limit. Upgrade to Plus to continue using Codex (https://chatgpt.com/explore/plus), or try again later.",
                None,
            ),
            // The texts of earlier versions and of providers.
            ("You've hit your usage limit. Try again in 3 days 2 hours 5 minutes.", after(266_700)),
            (
                "Rate limit reached. Please try again in 11.054s. Visit https://example.org",
                Some(Reset::After(Span::from_ms(11_054))),
            ),
            ("Please try again in 1h2m3s.", after(3_723)),
            ("Please try again in 350ms.", Some(Reset::After(Span::from_ms(350)))),
            ("Your quota will reset after 3h41m22s.", after(13_282)),
            ("Please retry in 41.385s.", Some(Reset::After(Span::from_ms(41_385)))),
            // Texts without a valid time.
            ("try again at 25:00 AM", None),
            ("try again at noon", None),
            ("try again in a while", None),
            ("try again at Nov 21st", None),
        ] {
            assert_eq!(Reset::of_words(text), expected, "{text}");
        }
    }
}
