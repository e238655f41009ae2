//! Times, durations and positions as text.

use banksman_core::{HolderId, Lease, Span, Stamp, Wall};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// RFC 3339 in UTC, with milliseconds.
pub(crate) fn rfc3339(wall: Wall) -> String {
    Timestamp::from_millisecond(wall.0).map_or_else(|_| wall.0.to_string(), |time| format!("{time:.3}"))
}

/// A moment in local time: `22:14:07`, and with the date if that is not today, `Nov 17 22:14`.
pub(crate) fn local(wall: Wall) -> String {
    let Ok(time) = Timestamp::from_millisecond(wall.0) else { return wall.0.to_string() };
    let zone = TimeZone::system();
    let (time, now) = (time.to_zoned(zone.clone()), Timestamp::now().to_zoned(zone));
    clock(&time, &now)
}

fn clock(time: &Zoned, now: &Zoned) -> String {
    let format = if time.date() == now.date() { "%H:%M:%S" } else { "%b %d %H:%M" };
    time.strftime(format).to_string()
}

/// The time since a moment: `3 min ago`.
pub(crate) fn ago(wall: Wall) -> String {
    format!("{} ago", since(wall))
}

/// The time since a moment, as a duration: `3 min`.
pub(crate) fn since(wall: Wall) -> String {
    span(now() - wall)
}

/// The time until a moment: `in 3 min`; `now` once it is past.
pub(crate) fn away(wall: Wall) -> String {
    match wall - now() {
        Span::ZERO => "now".into(),
        left => format!("in {}", span(left)),
    }
}

fn now() -> Wall {
    Wall(banksman_adapters::host::wall_ms())
}

/// A holder with its kind as a word: `run r-7k2m9q1a` for `run:r-7k2m9q1a`; other names are unchanged.
pub(crate) fn holder(holder: &HolderId) -> String {
    let known = ["run:", "runner:", "pipeline:"].into_iter().find(|kind| holder.as_str().starts_with(kind));
    known.map_or_else(|| holder.to_string(), |kind| holder.as_str().replacen(kind, &kind.replace(':', " "), 1))
}

/// The approximate wall-clock time of a deadline on the lease clock.
pub(crate) fn wall_of(deadline: Lease, now: Stamp) -> Wall {
    now.wall_of(deadline)
}

/// A duration rounded for people: `480 ms`, `12 s`, `1 min 30 s`, `4 min`, `5 h 3 min`, `2 d`.
pub(crate) fn span(span: Span) -> String {
    let ms = span.as_ms();
    let secs = ms / 1_000;
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    match secs {
        0 => format!("{ms} ms"),
        1..=59 => format!("{secs} s"),
        60..=119 => two(1, "min", secs - 60, "s"),
        120..=3_599 => format!("{} min", secs / 60),
        3_600..=86_399 => two(secs / 3_600, "h", secs % 3_600 / 60, "min"),
        _ => two(secs / 86_400, "d", secs % 86_400 / 3_600, "h"),
    }
}

/// An amount in millionths of a dollar: `$0.0012`, `$3.40`.
pub(crate) fn dollars(micros: u64) -> String {
    let (whole, rest) = (micros / 1_000_000, micros % 1_000_000);
    if micros < 100_000 { format!("${whole}.{:04}", rest / 100) } else { format!("${whole}.{:02}", rest / 10_000) }
}

/// A word of a shell command, quoted if necessary.
pub(crate) fn quoted(word: impl std::fmt::Display) -> String {
    let word = word.to_string();
    let plain = |letter: char| letter.is_alphanumeric() || "_-./:@%+=,".contains(letter);
    if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// The last word of a command, with `--` before a word that starts with a dash.
pub(crate) fn last(word: impl std::fmt::Display) -> String {
    let word = quoted(word);
    if word.starts_with('-') { format!("-- {word}") } else { word }
}

/// A text on one line, with line breaks and control characters escaped.
pub(crate) fn one_line(text: &str) -> String {
    crate::terminal::one_line(text)
}

/// `1 slot`, `2 slots`.
pub(crate) fn slots(number: u32) -> String {
    if number == 1 { "1 slot".into() } else { format!("{number} slots") }
}

/// `1 child`, `2 children`.
pub(crate) fn children(number: u32) -> String {
    if number == 1 { "1 child".into() } else { format!("{number} children") }
}

/// `1 task`, `100,000 tasks`.
pub(crate) fn tasks(number: usize) -> String {
    if number == 1 { "1 task".into() } else { format!("{} tasks", thousands(number)) }
}

/// A number with thousands separators.
pub(crate) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

/// A size in a suitable unit: `512 KiB`, `3.2 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    match number {
        0..=1_023 => format!("{number} bytes"),
        1_024..=1_048_575 => format!("{} KiB", number / 1_024),
        // Integer arithmetic is exact enough for one decimal.
        _ => format!("{}.{} MiB", number / 1_048_576, number % 1_048_576 * 10 / 1_048_576),
    }
}

/// `1st`, `2nd`, `3rd`, `4th`, …
pub(crate) fn ordinal(number: usize) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_for_people() {
        let words = |ms| span(Span::from_ms(ms));
        assert_eq!([words(0), words(480), words(12_900), words(192_000)], ["0 ms", "480 ms", "12 s", "3 min"]);
        assert_eq!([words(60_000), words(90_500), words(119_999)], ["1 min", "1 min 30 s", "1 min 59 s"]);
        assert_eq!([words(3_599_000), words(3_600_000), words(18_180_000)], ["59 min", "1 h", "5 h 3 min"]);
        assert_eq!([words(172_800_000), words(187_200_000)], ["2 d", "2 d 4 h"]);
    }

    #[test]
    fn ordinals_have_the_right_suffix() {
        let places: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 101, 111].into_iter().map(ordinal).collect();
        assert_eq!(places, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "101st", "111th"]);
    }

    #[test]
    fn large_numbers_have_separators() {
        assert_eq!([1, 12, 999, 1_000, 100_000, 1_234_567].map(thousands).join(" "), "1 12 999 1,000 100,000 1,234,567");
        assert_eq!([tasks(1), tasks(0), tasks(1_000)], ["1 task", "0 tasks", "1,000 tasks"]);
    }

    #[test]
    fn words_with_special_characters_are_quoted() {
        let words = ["deploy", "db/main:2", "my lock", "it's", "$HOME", "", "größe", "a;b"].map(quoted);
        assert_eq!(words, ["deploy", "db/main:2", "'my lock'", r"'it'\''s'", "'$HOME'", "''", "größe", "'a;b'"]);
    }

    #[test]
    fn control_characters_are_escaped_in_one_line() {
        assert_eq!(one_line("a\nb\rc\t\u{1b}[31m größe"), r"a\nb\rc\t\u{1b}[31m größe");
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(rfc3339(Wall(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
    }
}
