//! Tests that the page of environment variables has every variable in the code, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The source files, without tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        let is_test = name.contains("test") || name == "reference";
        if entry.is_dir() && !is_test {
            sources(&entry, found);
        } else if name.ends_with(".rs") && !is_test {
            found.push(entry);
        }
    }
}

/// The names of variables between two of these marks.
fn names(text: &str, mark: char) -> BTreeSet<String> {
    let is_known =
        |name: &&str| ["BANKSMAN_", "PG", "XDG_"].iter().any(|prefix| name.len() > prefix.len() && name.starts_with(prefix));
    let is_name = |name: &&str| !name.ends_with('_') && name.chars().all(|char| char.is_ascii_uppercase() || char == '_');
    text.split(mark).filter(is_known).filter(is_name).map(str::to_owned).collect()
}

#[test]
fn the_reference_of_the_environment_is_complete() {
    let mut files = Vec::new();
    for name in ["adapters", "banksman", "cli", "core", "engine", "runtime", "store"] {
        sources(&root().join("crates").join(name).join("src"), &mut files);
    }
    let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut used = names(&code, '"');
    used.retain(|name| !name.starts_with("BANKSMAN_CONFIG_"));
    let page = fs::read_to_string(root().join("docs/reference/environment.md")).unwrap();
    let described = names(&page, '`');
    assert_eq!(described, used);
}
