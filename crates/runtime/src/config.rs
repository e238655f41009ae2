//! The settings of a project: `.banksman/config.toml`.

use std::time::Duration;

use serde::Deserialize;

/// The settings that apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The id of the project, as `init` made it.
    pub project: Option<String>,
    /// How long a lock that is bound to no process lives without a heartbeat.
    pub heartbeat_timeout: Duration,
    /// How long to wait for a lock unless told otherwise.
    pub wait_timeout: Duration,
    /// How often a waiter looks by itself, in case a wake-up was lost.
    pub poll_interval: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            project: None,
            heartbeat_timeout: Duration::from_secs(60),
            wait_timeout: Duration::from_secs(30 * 60),
            poll_interval: Duration::from_secs(5),
        }
    }
}

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    project: Option<String>,
    #[serde(default)]
    locking: Locking,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Locking {
    heartbeat_timeout: Option<String>,
    wait_timeout: Option<String>,
    poll_interval: Option<String>,
}

impl Config {
    /// Reads the text of a configuration file.
    pub fn parse(text: &str) -> Result<Config, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut config = Config::default();
        if file.project.as_ref().is_some_and(|id| id.is_empty()) {
            return Err("project must not be empty".into());
        }
        config.project = file.project;
        let fields = [
            ("heartbeat_timeout", file.locking.heartbeat_timeout, &mut config.heartbeat_timeout),
            ("wait_timeout", file.locking.wait_timeout, &mut config.wait_timeout),
            ("poll_interval", file.locking.poll_interval, &mut config.poll_interval),
        ];
        for (key, text, value) in fields {
            if let Some(text) = text {
                *value = duration(&text).map_err(|error| format!("locking.{key}: {error}"))?;
            }
        }
        Ok(config)
    }
}

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

    #[test]
    fn unknown_keys_are_errors() {
        assert!(Config::parse("[locking]\nheartbeat_timeout = \"5s\"\n").is_ok_and(|c| c.heartbeat_timeout.as_secs() == 5));
        assert!(Config::parse("[locking]\nheartbeat = \"5s\"\n").is_err());
        assert!(Config::parse("[locking]\nheartbeat_timeout = \"5\"\n").unwrap_err().contains("locking.heartbeat_timeout"));
    }
}
