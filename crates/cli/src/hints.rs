//! Tests that every command in a message, a hint or a help page exists, with its flags.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

/// The crates that contain messages for people.
const CRATES: [&str; 4] = ["cli", "runtime", "engine", "core"];

/// Words that follow the name of the program in prose.
const PROSE: [&str; 8] = ["that", "folder", "needs", "merge", "project", "itself", "made", "writes"];

/// The ends of a command in a text, beside the end of the line.
const ENDS: [&str; 10] = ["\"", ";", ")", "(", "`", "\\n", "]", ", ", "{", " -- "];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.path() {
            path if path.is_dir() => sources(&path, found),
            path => found.extend(path.extension().is_some_and(|end| end == "rs").then_some(path)),
        }
    }
}

/// The reason why a command line in a text does not work, if it does not.
fn mistake(root: &Command, text: &str) -> Option<String> {
    let end = ENDS.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    let mut words = text[..end].split_whitespace().peekable();
    let (mut command, mut path) = (root, String::from("banksman"));
    let letters = |word: &str| word.trim_end_matches(|c: char| !c.is_ascii_lowercase()).to_owned();
    while let Some(verb) = words.peek().and_then(|word| command.find_subcommand(letters(word))) {
        path = format!("{path} {}", verb.get_name());
        command = verb;
        words.next();
    }
    if command.is_subcommand_required_set() {
        return Some(format!("{path} is no command by itself"));
    }
    let knows = |flag: &str| {
        let own = command.get_arguments().chain(root.get_arguments());
        own.flat_map(|arg| arg.get_long_and_visible_aliases().unwrap_or_default()).any(|known| known == flag)
    };
    let flags = words.filter_map(|word| word.strip_prefix("--")).filter(|flag| !flag.is_empty());
    let name = |flag: &str| flag.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect::<String>();
    let mut unknown = flags.map(name).filter(|flag| !["help", "version", ""].contains(&flag.as_str()) && !knows(flag));
    unknown.next().map(|flag| format!("{path} has no flag --{flag}"))
}

#[test]
fn every_command_named_in_a_text_exists() {
    let mut root = crate::Cli::command();
    root.build();
    let mut files = Vec::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    CRATES.iter().for_each(|name| sources(&crates.join(name).join("src"), &mut files));
    let (mut mistakes, mut number) = (Vec::new(), 0);
    for path in files.iter().filter(|path| !path.ends_with("hints.rs")) {
        let text = fs::read_to_string(path).unwrap();
        for (line, text) in text.lines().enumerate().filter(|(_, text)| !text.trim_start().starts_with("//!")) {
            for (at, _) in text.match_indices("banksman ") {
                let rest = &text[at + "banksman ".len()..];
                let word: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
                if word.is_empty() || PROSE.contains(&word.as_str()) {
                    continue;
                }
                number += 1;
                let found = match root.find_subcommand(&word) {
                    Some(_) => mistake(&root, rest),
                    None => Some(format!("there is no command {word}")),
                };
                mistakes.extend(found.map(|why| format!("{}:{}: {why}", path.display(), line + 1)));
            }
        }
    }
    assert!(number > 300, "only {number} commands were found");
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}
