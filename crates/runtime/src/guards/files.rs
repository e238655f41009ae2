//! Files that guards ask about.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use banksman_core::guard::{FileInfo, GuardInputs, Topic};
use banksman_core::pattern;

use super::mark_unknown;

/// The largest file that is searched, in bytes.
const LIMIT: u64 = 10 * 1_024 * 1_024;

/// The longest line that is searched, in bytes. The search of one line cannot be stopped, and a large expression may
/// take a tenth of a millisecond for every byte.
const LINE: usize = 8 * 1_024;

/// How long one file is searched.
const TIME: Duration = Duration::from_secs(1);

/// Checks whether a file exists, and searches it for the patterns.
pub(super) fn read_file(root: &Path, path: &str, patterns: &BTreeSet<Box<str>>, inputs: &mut GuardInputs) {
    let mut info = FileInfo::default();
    let found = inside(root, path).and_then(|found| {
        let Some(found) = found else { return Ok(()) };
        info.exists = true;
        if patterns.is_empty() { Ok(()) } else { search(&found, patterns, &mut info) }
    });
    if let Err(words) = found {
        mark_unknown(inputs, Topic::File(path.into()), words);
        if !info.exists {
            return;
        }
    }
    inputs.files.insert(path.into(), info);
}

/// The real path of a path in the project; `None` if nothing is there. It must not lead out of the project.
fn inside(root: &Path, path: &str) -> Result<Option<PathBuf>, String> {
    let unreadable = |error: io::Error| format!("cannot be checked: {error}");
    let root = root.canonicalize().map_err(unreadable)?;
    let mut part = root.join(path);
    let mut is_there = true;
    // A missing file may still be outside: its nearest existing directory decides.
    let real = loop {
        match part.canonicalize() {
            Ok(real) => break real,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => is_there = false,
            Err(error) => return Err(unreadable(error)),
        }
        if !part.pop() {
            return Ok(None);
        }
    };
    if !real.starts_with(&root) {
        return Err("lies outside the project".into());
    }
    Ok(is_there.then_some(real))
}

fn search(path: &Path, patterns: &BTreeSet<Box<str>>, info: &mut FileInfo) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    // A pipe or a device might never end.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err("is no file that has lines".into());
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(unreadable)?.take(LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LIMIT {
        return Err("has more than 10 MiB".into());
    }
    let text = String::from_utf8_lossy(&bytes);
    let until = Instant::now() + TIME;
    for wanted in patterns {
        let compiled = pattern::compile(wanted).map_err(|error| format!("cannot be searched for /{wanted}/: {error}"))?;
        info.matches.insert(wanted.clone(), has_line(&text, |line| compiled.is_match(line), until)?);
    }
    Ok(())
}

/// Whether a line matches, or why that is unknown.
fn has_line(text: &str, is_match: impl Fn(&str) -> bool, until: Instant) -> Result<bool, String> {
    for line in text.lines().filter(|line| line.len() <= LINE) {
        if Instant::now() > until {
            return Err("takes too long to search".into());
        }
        if is_match(line) {
            return Ok(true);
        }
    }
    if text.lines().any(|line| line.len() > LINE) { Err("has a line of more than 8 KiB".into()) } else { Ok(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_are_bounded_in_line_length_and_time() {
        let far = || Instant::now() + Duration::from_secs(600);
        let compiled = pattern::compile("[ab]*a[ab]{300}[^ab]").unwrap();
        let hard = |line: &str| compiled.is_match(line);
        let line = |length: usize| "ab".repeat(length / 2);
        let hit = format!("a{}c", "b".repeat(300));
        assert_eq!(has_line(&format!("{}\n{hit}", line(100)), hard, far()), Ok(true));
        assert_eq!(has_line(&line(100), hard, far()), Ok(false));
        let long = line(10_000_000);
        assert_eq!(has_line(&long, hard, far()), Err("has a line of more than 8 KiB".into()));
        assert_eq!(has_line(&format!("{long}\n{hit}"), hard, far()), Ok(true), "another line matches");
        let many = format!("{}\n", line(LINE)).repeat(1_000);
        assert_eq!(has_line(&many, hard, Instant::now()), Err("takes too long to search".into()));
    }
}
