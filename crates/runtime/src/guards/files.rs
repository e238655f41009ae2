//! Files of the project.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use banksman_core::guard::{FileInfo, GuardInputs, Topic};
use banksman_core::pattern;

use super::doubt;

/// The largest file that is looked into, in bytes.
const LIMIT: u64 = 10 * 1_024 * 1_024;

/// Looks at a file, and for the patterns in it.
pub(super) fn look_at(root: &Path, path: &str, patterns: &BTreeSet<Box<str>>, inputs: &mut GuardInputs) {
    let mut info = FileInfo::default();
    let found = inside(root, path).and_then(|found| {
        let Some(found) = found else { return Ok(()) };
        info.exists = true;
        if patterns.is_empty() { Ok(()) } else { search(&found, patterns, &mut info) }
    });
    if let Err(words) = found {
        doubt(inputs, Topic::File(path.into()), words);
        if !info.exists {
            return;
        }
    }
    inputs.files.insert(path.into(), info);
}

/// Where a path of the project leads; `None` if nothing is there. It must not lead out of the project.
fn inside(root: &Path, path: &str) -> Result<Option<PathBuf>, String> {
    let unreadable = |error: io::Error| format!("cannot be looked at: {error}");
    let root = root.canonicalize().map_err(unreadable)?;
    let mut part = root.join(path);
    let mut is_there = true;
    // What is not there may still lie outside: the nearest directory that is there tells.
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
    for wanted in patterns {
        let compiled = pattern::compile(wanted).map_err(|error| format!("cannot be searched for /{wanted}/: {error}"))?;
        info.matches.insert(wanted.clone(), text.lines().any(|line| compiled.is_match(line)));
    }
    Ok(())
}
