//! Every command that a hint prints works as it is printed, at that moment.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use regex::Regex;

use crate::screen::Screen;
use crate::shop::Shop;
use crate::world::{BANKSMAN, Said};

/// Commands that print hints: some succeed, some fail.
const SOURCES: &[&str] = &[
    "status",
    "why 'import the'",
    "why deploy",
    "why 'review the'",
    "why 'Upgrade the payment library'",
    "why 'fix the flaky'",
    "why 'Release 2.0'",
    "why build",
    "report",
    "decisions list",
    "decisions show {decision}",
    "tasks list --limit 2",
    "tasks show nosuch",
    "tasks show bild",
    "tasks add 'One more'",
    "tasks add 'And a command' --run true",
    "tasks retry Build",
    "tasks done Build",
    "tasks take deploy --holder bob --no-wait",
    "tasks delete Build",
    "tasks update Build --section nosuch",
    "tasks logs nosuch",
    "tasks diff Build",
    "land Build",
    "landing remove nosuch",
    "locks acquire production --no-wait",
    "locks release production --holder bob",
    "locks release nosuch --holder bob",
    "locks show nosuch",
    "semaphores acquire nosuch",
    "semaphores show nosuch",
    "queues show nosuch",
    "queues take nosuch",
    "sections delete backend",
    "sections show nosuch",
    "runbooks show nosuch",
    "runbooks list",
    "pipelines start nosuch",
    "pipelines show nosuch",
    "guards check nosuch",
    "decisions resolve nosuch 1",
    "sessions show nosuch",
    "config set task.hearbeat_timeout 5s",
];

/// Commands that need a terminal or run until they are ended, each with a text that proves that it works.
const ENDLESS: [(&str, &str); 4] =
    [("run", "is running"), ("top", "JUST ENDED"), ("events --follow", "started"), ("decisions review", "q to stop:")];

/// A command line, run by a shell.
fn shell(shop: &Shop, line: &str) -> Command {
    let mut command = shop.command(&[]);
    let (program, _) = BANKSMAN.rsplit_once('/').unwrap();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(shop.world.path()).stdin(Stdio::null());
    for (name, value) in command.env("PATH", path).get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// The words of the commands in a text, each up to the next command. Commands end at `; `, at a bracket, and with the line.
fn commands(text: &str) -> Vec<Vec<String>> {
    let found = text.lines().flat_map(|line| {
        let starts: Vec<usize> =
            line.match_indices("banksman ").map(|(at, _)| at).filter(|at| !line[..*at].ends_with(['/', '.'])).collect();
        let ends = starts.iter().skip(1).copied().chain([line.len()]);
        starts.iter().zip(ends.collect::<Vec<_>>()).map(|(start, end)| line[*start..end].to_owned()).collect::<Vec<_>>()
    });
    let words = found.map(|line| {
        let line = line
            .split("; ")
            .next()
            .unwrap_or_default()
            .split(", then")
            .next()
            .unwrap_or_default()
            .trim_end_matches([')', '.', ':', ',', ';', ' '])
            .to_owned();
        // A quoted title is one word.
        let words = Regex::new(r"'[^']*'|\S+").unwrap();
        words.find_iter(&line).map(|word| word.as_str().to_owned()).collect::<Vec<_>>()
    });
    words.filter(|words| words.len() > 1).collect()
}

/// The value for a placeholder of a hint.
fn filled(before: &str, word: &str, decision: &str) -> String {
    match word {
        "…" if before == "--section" => "documentation".into(),
        "…" if before == "--depends-on" => "Build".into(),
        "N" => "2".into(),
        "ID" => decision.into(),
        "TASK" | "TASK…" => "'A leaf'".into(),
        "TITLE" => "'a new task'".into(),
        "CMD" => "true".into(),
        "BRANCH" => "main".into(),
        other => other.into(),
    }
}

#[test]
fn every_command_that_a_hint_prints_works() {
    let shop = Shop::new();
    let decision = shop.world.data(&["decisions", "list"])["decisions"][0]["id"].as_str().unwrap().to_owned();
    shop.world.ok(&["tasks", "add", "A leaf"]);
    let (mut tried, mut wrong) = (BTreeSet::new(), Vec::new());
    for source in SOURCES {
        let source = source.replace("{decision}", &decision);
        let said: Said = shell(&shop, &format!("banksman {source}")).output().unwrap().into();
        for words in commands(&format!("{}\n{}", said.stdout, said.stderr)) {
            let pairs = std::iter::once("").chain(words.iter().map(String::as_str)).zip(&words);
            let words: Vec<String> = pairs.map(|(before, word)| filled(before, word, &decision)).collect();
            let line = words[1..].join(" ");
            if !tried.insert(line.clone()) {
                continue;
            }
            let endless = ENDLESS.iter().find(|(command, _)| line == *command || line.starts_with(&format!("{command} ")));
            if let Some((command, shows)) = endless {
                Screen::of(shop.command(&command.split(' ').collect::<Vec<_>>()), 40, 120).until_shows(shows);
                continue;
            }
            // Prose may follow the command: a command line that the parser refuses is shortened until it is accepted.
            let mut words = &words[1..];
            let said = loop {
                let said: Said = shell(&shop, &format!("banksman {}", words.join(" "))).output().unwrap().into();
                let is_prose =
                    said.code == 2 && ["unexpected argument", "nterminated"].iter().any(|word| said.stderr.contains(word));
                if !is_prose || words.len() == 1 {
                    break said;
                }
                words = &words[..words.len() - 1];
            };
            // Busy, not permitted and unhealthy are valid results.
            if ![0, 5, 6, 7].contains(&said.code) {
                wrong.push(format!("banksman {source}\n  hints: {line}\n  {said:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried.len() > 25, "only these were found: {tried:#?}");
}
