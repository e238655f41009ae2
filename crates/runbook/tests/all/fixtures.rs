//! A folder of wrong runbooks, each with all its expected diagnostics; and one of right runbooks.
//!
//! The expectations are at the top of each file. `UPDATE_EXPECT=1 cargo test -p banksman-runbook` rewrites them: review
//! the diff.

#![expect(clippy::disallowed_methods, reason = "the environment selects whether to rewrite the expectations")]

use std::fs;
use std::path::{Path, PathBuf};

use banksman_runbook::{Diagnostics, parse};

const EXPECT: &str = "# expect: ";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn runbooks(dir: &Path) -> Vec<(String, PathBuf)> {
    let mut all: Vec<(String, PathBuf)> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    all.sort();
    all
}

fn check(dir: &Path, name: &str, text: &str) -> Result<(), Diagnostics> {
    parse(name, text, &|file| fs::read_to_string(dir.join(file)).map_err(|error| error.kind().to_string())).map(drop)
}

fn diagnostic_lines(wrong: &Diagnostics) -> Vec<String> {
    let line = |one: &banksman_runbook::Diagnostic| {
        let file = one.elsewhere.as_ref().map_or_else(String::new, |(file, _)| format!("{file}:"));
        let hint = one.hint.as_ref().map_or_else(String::new, |hint| format!(" | {hint}"));
        format!("{} {file}{}:{} {}{hint}", one.code.as_str(), one.line, one.column, one.message)
    };
    wrong.list.iter().map(line).collect()
}

/// Writes the expectations at the top. The other lines move down accordingly.
fn update(dir: &Path, name: &str, path: &Path, text: &str) {
    let rest: String = text.lines().filter(|line| !line.starts_with(EXPECT)).map(|line| format!("{line}\n")).collect();
    let count = check(dir, name, &rest).err().map_or(0, |wrong| wrong.list.len());
    let moved = format!("{}{rest}", "#\n".repeat(count));
    let lines = check(dir, name, &moved).err().map(|wrong| diagnostic_lines(&wrong)).unwrap_or_default();
    let top: String = lines.iter().map(|line| format!("{EXPECT}{}\n", line.replace('\n', " "))).collect();
    fs::write(path, format!("{top}{rest}")).unwrap();
}

#[test]
fn wrong_runbooks_get_the_expected_diagnostics() {
    let dir = folder("wrong");
    let all = runbooks(&dir);
    assert!(all.len() >= 45, "{}", all.len());
    for (name, path) in all {
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            update(&dir, &name, &path, &fs::read_to_string(&path).unwrap());
        }
        let text = fs::read_to_string(&path).unwrap();
        let expected: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(EXPECT)).collect();
        let found = check(&dir, &name, &text).err().map(|wrong| diagnostic_lines(&wrong)).unwrap_or_default();
        assert!(!expected.is_empty(), "{name} expects nothing");
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn every_error_is_drawn_with_its_line() {
    let dir = folder("wrong");
    for (name, path) in runbooks(&dir) {
        let wrong = check(&dir, &name, &fs::read_to_string(&path).unwrap()).unwrap_err();
        let drawn = wrong.draw(false);
        for one in &wrong.list {
            let file = one.elsewhere.as_ref().map_or(&*wrong.file, |(file, _)| file);
            assert!(drawn.contains(&format!("--> {file}:{}:{}", one.line, one.column)), "{name}: {one:?}\n{drawn}");
        }
        assert_eq!(drawn.matches("^").count() > 0, !wrong.list.is_empty(), "{name}\n{drawn}");
        wrong.draw(true);
    }
}

#[test]
fn right_runbooks_are_accepted() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runbooks");
    for dir in [folder("right"), shipped] {
        let all = runbooks(&dir);
        assert!(all.len() >= 2, "{}", dir.display());
        for (name, path) in all {
            if let Err(wrong) = check(&dir, &name, &fs::read_to_string(&path).unwrap()) {
                panic!("{name}\n{wrong}");
            }
        }
    }
}
