//! The documentation of the command line agrees with the binary: exit codes, completions, manual.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::screen::Screen;
use crate::world::World;

/// The exit codes, each with its error codes.
type Codes = BTreeMap<u8, BTreeSet<String>>;

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(sources(&path)) } else { files.push(path) }
    }
    files
}

/// The constants of exit_codes.rs.
fn constants() -> BTreeMap<String, u8> {
    let line = |line: &str| {
        let (name, value) = line.strip_prefix("pub(crate) const ")?.split_once(": u8 = ")?;
        Some((name.to_owned(), value.trim_end_matches(';').parse().unwrap()))
    };
    include_str!("../../src/exit_codes.rs").lines().filter_map(line).collect()
}

/// The codes in the source: every `exit::NAME` that is followed by an error code.
fn in_source() -> Codes {
    let constants = constants();
    let mut codes: Codes = constants.values().map(|code| (*code, BTreeSet::new())).collect();
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = fs::read_to_string(&path).unwrap();
        for call in text.split("Failure::new(").skip(1) {
            // Only the table of store errors passes them as variables.
            let literal = call.trim_start().starts_with("exit::") || call.starts_with("exit, code,");
            assert!(literal || call.starts_with("exit: u8"), "{}: Failure::new({:.40}…", path.display(), call);
        }
        for use_of in text.split("exit::").skip(1) {
            let Some((name, rest)) = use_of.split_once(',') else { continue };
            let Some(code) = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next()) else { continue };
            if let Some(number) = constants.get(name) {
                codes.get_mut(number).unwrap().insert(code.into());
            }
        }
    }
    codes
}

/// The codes in the page: `| 6 | words | `LOCKED`, `FULL` |`.
fn on_page() -> Codes {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let number = cells.get(1)?.parse().ok()?;
        let codes = cells[3].split(", ").filter(|code| !code.is_empty()).map(|code| code.trim_matches('`').to_owned());
        Some((number, codes.collect()))
    };
    include_str!("../../../../docs/reference/exit-codes.md").lines().filter_map(row).collect()
}

#[test]
fn the_page_of_exit_codes_lists_what_the_source_uses() {
    assert_eq!(on_page(), in_source(), "left: docs/reference/exit-codes.md, right: crates/cli/src");
}

/// The names of all commands in the generated reference.
pub(crate) fn commands() -> Vec<String> {
    let page = include_str!("../../../../docs/reference/cli.md");
    let headings = page.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(" banksman "));
    headings.map(str::to_owned).collect()
}

#[test]
fn completion_scripts_are_valid_in_their_shell() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = world.ok(&["completions", shell]);
        assert!(script.contains("banksman"), "{shell}: {script}");
        check_syntax(&world, shell, &script);
    }
    assert_eq!(world.error(&["completions", "tcsh"]).0, 2);
}

#[test]
fn completions_offer_verbs_flags_and_names_of_the_project() {
    let world = World::new();
    world.ok(&["sections", "add", "backend"]);
    world.ok(&["tasks", "add", "Build it"]);
    world.ok(&["queues", "define", "triage"]);
    world.ok(&["locks", "acquire", "deploy", "--holder", "ada", "--ttl", "1h"]);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "2"]);
    world.ok(&["runbooks", "new", "feature"]);
    world.ok(&["tasks", "add", "Asks", "--run", &format!("{} tasks ask 'Which one?'", crate::world::BANKSMAN)]);
    world.run(&["run", "--until-idle"]);
    let decision = world.data(&["decisions", "list"])["decisions"][0]["id"].as_str().unwrap().to_owned();
    let offered = |words: &[&str]| {
        let index = words.len().to_string();
        let mut command = world.command(&[&["--", "banksman"], words].concat());
        command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index).env("_CLAP_COMPLETE_COMP_TYPE", "9");
        command.env("_CLAP_COMPLETE_SPACE", "true").env("_CLAP_IFS", "\n");
        let said: crate::world::Said = command.output().unwrap().into();
        said.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(offered(&["ti"]).contains(&"timeline".to_owned()), "{:?}", offered(&["ti"]));
    assert!(offered(&["locks", "run", "--max"]).contains(&"--max-hold".to_owned()));
    for (words, name) in [
        (&["why", ""][..], "Build it"),
        (&["tasks", "show", "B"], "Build it"),
        (&["sessions", "logs", "B"], "Build it"),
        (&["tasks", "list", "--section", ""], "backend"),
        (&["queues", "show", ""], "triage"),
        (&["config", "get", "lim"], "limits.max_concurrent_runs"),
        (&["tasks", "list", "--status", "com"], "completed"),
        (&["locks", "show", ""], "deploy"),
        (&["locks", "run", "dep"], "deploy"),
        (&["semaphores", "show", ""], "gpu"),
        (&["runbooks", "show", ""], "feature"),
        (&["pipelines", "start", ""], "feature"),
        (&["decisions", "show", ""], &decision),
    ] {
        assert!(offered(words).contains(&name.to_owned()), "{words:?}: {:?}", offered(words));
    }
}

/// The titles have blanks, and every character that a shell interprets.
#[test]
fn bash_completes_a_title_as_one_word_with_any_quoting() {
    let world = World::new();
    for title in ["Run the tests", r#"Ask: "what's $new?" `now`"#, "漢字 (new)"] {
        world.ok(&["tasks", "add", title]);
    }
    fs::write(world.path().join("script"), world.ok(&["completions", "bash"])).unwrap();
    let mut bash = Command::new("bash");
    let banksman = std::path::Path::new(crate::world::BANKSMAN).parent().unwrap();
    let path =
        std::env::join_paths([banksman.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())));
    let environment = world.command(&["ls"]);
    for (name, value) in environment.get_envs() {
        match value {
            Some(value) => bash.env(name, value),
            None => bash.env_remove(name),
        };
    }
    bash.args(["--norc", "--noprofile", "-i"]).current_dir(world.path()).env("PATH", path.unwrap());
    bash.env("LC_ALL", "C.UTF-8").env("PS1", "> ").env("INPUTRC", "/dev/null");
    let mut screen = Screen::of(bash, 12, 100);
    screen.until("a prompt", |screen| screen.ends_with('>'));
    screen.press("source ./script; PS1='$ '; clear\r");
    screen.until("the script is read", |screen| screen.starts_with('$'));
    for (typed, completed) in [
        ("Ru", r"Run\ the\ tests"),
        (r"Run\ the", r"Run\ the\ tests"),
        ("'Run", "'Run the tests'"),
        ("\"Run", "\"Run the tests\""),
        ("As", r#"Ask:\ \"what\'s\ \$new\?\"\ \`now\`"#),
        ("'As", r#"'Ask: "what'\''s $new?" `now`'"#),
        ("\"As", r#""Ask: \"what's \$new?\" \`now\`""#),
        ("漢", r"漢字\ \(new\)"),
    ] {
        screen.press(&format!("banksman why {typed}\t"));
        screen.until_shows(&format!("$ banksman why {completed}"));
        // The shell parses the line as the one title.
        screen.press("\r");
        screen.until("it is the title", |screen| screen.contains("has been pending") && screen.ends_with("\n$"));
        screen.press("clear\r");
        screen.until("an empty screen", |screen| screen == "$");
    }
    screen.press("exit\r");
    screen.end();
}

/// Checks the syntax of a script with the shell itself, if it is installed. Bash always is.
fn check_syntax(world: &World, shell: &str, script: &str) {
    let file = world.path().join(shell);
    fs::write(&file, script).unwrap();
    match Command::new(shell).arg("-n").arg(&file).stdin(Stdio::null()).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => assert!(shell != "bash", "{error}"),
    }
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let world = World::empty();
    let said = world.ok(&["man", "pages/man1"]);
    let pages: BTreeSet<String> = fs::read_dir(world.path().join("pages/man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected = commands().into_iter().map(|command| format!("banksman-{}.1", command.replace(' ', "-")));
    assert_eq!(pages, expected.chain(["banksman.1".into()]).collect());
    assert!(said.starts_with(&format!("{} pages", pages.len())), "{said}");
    let run = fs::read_to_string(world.path().join("pages/man1/banksman-locks-run.1")).unwrap();
    assert!(run.starts_with(".ie") || run.contains(".TH banksman-locks-run 1"), "{run}");
    assert!(run.contains("Hold a lock while a command runs") && run.contains("./deploy.sh production"), "{run}");
    assert!(world.ok(&["man"]).contains("banksman\\-locks(1)"));
    fs::write(world.path().join("file"), "").unwrap();
    assert_eq!(world.error(&["man", "file"]).0, 1);
}
