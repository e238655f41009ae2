//! Problems with the settings: all of them at once, each with its place.

use std::fmt;

use banksman_core::suggest::distance;
use thiserror::Error;

use super::keys::FORMER;
use super::layers::{Layer, Source};
use super::{Home, KEYS, Key};

/// Why the settings cannot be used.
#[derive(Debug, Error)]
pub struct ConfigError {
    /// All problems; at least one.
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The place, unless a caller gave the value.
    pub source: Option<Source>,
    /// The line of the file.
    pub line: Option<usize>,
    /// The key, unless the problem is about the file itself.
    pub key: Option<String>,
    pub what: String,
}

impl Problem {
    /// The key with a wrong value in a file, if [`set`](super::set) accepts another value for it there.
    pub fn settable(&self) -> Option<&'static Key> {
        let layer = self.source.as_ref().map(Source::layer).filter(|layer| *layer != Layer::Environment)?;
        Key::find(self.key.as_deref()?).filter(|key| key.home != Home::Init && key.admit(layer).is_ok())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.source.as_ref().and_then(Source::place), self.line) {
            (Some(place), Some(line)) => write!(f, "{place}:{line}: ")?,
            (Some(place), None) => write!(f, "{place}: ")?,
            (None, _) => {}
        }
        match &self.key {
            Some(key) => write!(f, "{key}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problems[..] {
            [problem] => problem.fmt(f),
            problems => {
                write!(f, "{} settings are wrong", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> ConfigError {
        ConfigError { problems: vec![problem] }
    }
}

/// The problem with a name from a caller that no key has.
pub fn unknown_key(name: &str) -> ConfigError {
    Problem { source: None, line: None, key: Some(name.into()), what: unknown(name, Layer::User) }.into()
}

/// Reports that no key has this name, and suggests the nearest one.
pub(super) fn unknown(name: &str, layer: Layer) -> String {
    if KEYS.iter().any(|key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))) {
        return format!("this is a section; its keys are written below [{name}]");
    }
    let spelt = |key: &Key| if layer == Layer::Environment { key.variable() } else { key.name.to_owned() };
    nearest(name).map_or("there is no such key".into(), |key| format!("there is no such key; did you mean {}?", spelt(key)))
}

/// The key that was most likely meant, by its name or a former one: by the part after the section, and among equals by
/// the full name.
fn nearest(name: &str) -> Option<&'static Key> {
    let tail = |name: &str| name.rsplit_once('.').map_or(name.to_owned(), |(_, tail)| tail.to_owned());
    let score = |key: &&'static str| {
        let full = distance(name, key);
        // A prefix counts as one typo at most: `wait` for `wait_timeout`.
        let begun = tail(key).starts_with(&tail(name)) && !tail(name).is_empty();
        let tails = distance(&tail(name), &tail(key));
        // Two short words are close to each other even if they share no letter.
        let akin = tails < tail(key).len();
        let apart = if begun {
            full.min(1)
        } else if akin {
            full.min(tails)
        } else {
            full
        };
        (apart, full)
    };
    let close = |key: &&'static str| score(key).0 <= 2.max(name.len() / 4);
    let names = KEYS.iter().map(|key| key.name).chain(FORMER.iter().map(|(former, _)| *former));
    names.filter(close).min_by_key(score).and_then(Key::find)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_key_and_nonsense_finds_none() {
        let meant = |name| nearest(name).map(|key| key.name);
        for name in ["locking.heartbeat", "locking.heartbeat_timout", "lock.heartbeat_timeout"] {
            assert_eq!(meant(name), Some("locking.heartbeat_timeout"), "{name}");
        }
        assert_eq!(meant("task.hearbeat_timeout"), Some("task.silence_timeout"), "by its former name");
        assert_eq!(meant("locking.poll"), Some("locking.poll_interval"));
        assert_eq!(meant("stores"), Some("store"));
        assert_eq!(meant("queue.visibility"), Some("queue.visibility_timeout"));
        for name in ["frobnicate", "x.y.z", "weather.tomorrow"] {
            assert_eq!(meant(name), None, "{name}");
        }
    }
}
