//! Durations as people write them.

use std::time::Duration;

use banksman_core::Span;

/// Reads a duration such as `500ms`, `90s`, `1h30m` or `2d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<Span>().map(|span| Duration::from_millis(span.as_ms().unsigned_abs()))
}
