//! No text from outside controls the terminal: in any field, of any verb, on stdout or stderr, with or without colours.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use crate::merging::{git, repository};
use crate::world::{BANKSMAN, Said, World, until};

/// A foreign colour, the bell, a title, an eight-bit sequence that clears the screen, and two changes of direction.
const EVIL: &str = "EVIL\x1b[31;5m\x07\x1b]0;t\x07\u{9b}2J\x7f\u{202e}\u{2066}";

/// The worst that names may contain: changes of direction, but no control characters.
const SOFT: &str = "soft\u{202e}\u{200f}\u{2067}name";

/// A runbook with a guard that fails with such text, and a phase that prints some.
const RUNBOOK: &str = r#"
description = "soft\u202ename"

[guard.no]
condition = { command = "printf 'EVIL\\033[31;5m\\007\\n' >&2; false" }

[pipeline.p]
[[pipeline.p.phase]]
name = "one"
run = "printf 'EVIL\\033[31;5m\\n'; exit 3"

[pipeline.held]
[[pipeline.held.phase]]
name = "one"
run = "true"
pre = ["no"]
"#;

/// Whether a terminal interprets the character instead of printing it.
fn is_interpreted(c: char) -> bool {
    let is_direction = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_direction || (c.is_control() && c != '\n' && c != '\t')
}

/// Removes the colours of Banksman.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('m') {
            Some((style, rest)) if style.bytes().all(|byte| byte.is_ascii_digit() || byte == b';') && style != "31;5" => {
                out.push_str(rest)
            }
            _ => out.push_str(&format!("\x1b[{part}")),
        }
    }
    out
}

fn check(args: &[String], said: &Said) {
    for text in [&said.stdout, &said.stderr] {
        let text = without_colours(text);
        assert!(!text.contains(is_interpreted), "{args:?}: {text:?}");
    }
}

/// A project with such text in every field that may come from outside.
fn hostile() -> World {
    let world = World::new();
    repository(&world);
    let run = |args: &[&str]| {
        let said = world.run(args);
        check(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>(), &said);
        said
    };
    let json = serde_json::json!({ "key": EVIL, SOFT: [EVIL] }).to_string();
    run(&["sections", "add", SOFT]);
    run(&["tasks", "add", SOFT, "--section", SOFT, "--label", SOFT, "--run", "printf 'EVIL\\033[31;5m\\007\\n'; exit 3"]);
    run(&["tasks", "add", "Failed"]);
    run(&["tasks", "fail", "Failed", "--error", EVIL]);
    run(&["tasks", "add", "Done"]);
    run(&["tasks", "done", "Done", "--output", &json]);
    run(&["tasks", "add", "Waits", "--run", "true", "--lock", SOFT, "--depends-on", "Failed"]);
    run(&["tasks", "add", "Locked", "--run", "true", "--lock", SOFT]);
    run(&["locks", "acquire", SOFT, "--holder", SOFT, "--metadata", &json, "--ttl", "1h"]);
    run(&["semaphores", "define", SOFT, "--capacity", "2"]);
    run(&["semaphores", "acquire", SOFT, "--holder", SOFT, "--metadata", &json, "--ttl", "1h"]);
    run(&["queues", "define", SOFT, "--max-attempts", "1"]);
    run(&["queues", "push", SOFT, &json, "--dedupe", SOFT]);
    let taken = world.data(&["queues", "take", SOFT, "--holder", SOFT]);
    let (item, epoch) = (taken["item"]["id"].as_str().unwrap().to_owned(), taken["item"]["epoch"].to_string());
    run(&["queues", "fail", SOFT, &item, "--holder", SOFT, "--epoch", &epoch, "--error", EVIL]);
    run(&["queues", "push", SOFT, &json]);
    run(&["events", "emit", "my:event", "--data", &json]);
    let runbooks = world.path().join(".banksman/runbooks");
    std::fs::write(runbooks.join("good.toml"), RUNBOOK).unwrap();
    run(&["pipelines", "start", "p"]);
    run(&["pipelines", "start", "held"]);
    let runner = world.start(&["run"]);
    let blocked = || world.data(&["pipelines", "list"])["pipelines"][1]["state"] == "blocked";
    until("what can fail has failed", || {
        world.data(&["tasks", "list", "--status", "failed"])["tasks"].as_array().unwrap().len() > 2
    });
    until("the guard has said no", blocked);
    let said = runner.stop();
    assert!(said.stderr.contains("failed"), "{said:?}");
    check(&["run".into()], &said);
    let held = world.data(&["pipelines", "list"])["pipelines"][1]["id"].as_str().unwrap().to_owned();
    run(&["pipelines", "checkpoint", "--pipeline", &held, EVIL]);
    // An invalid runbook with such text in its name and contents.
    let name = OsString::from_vec(b"bad\x1b[31;5m\x07\xff.toml".to_vec());
    std::fs::write(runbooks.join(name), format!("[pipeline.\"{SOFT}\"]\n\"EVIL\\u001b[31;5m\" = 1\nx = \"\u{202e}\"\n")).unwrap();
    git(world.path(), &["branch", SOFT]);
    world
}

#[test]
fn no_verb_prints_foreign_terminal_sequences() {
    let world = hostile();
    let held = world.data(&["pipelines", "list"])["pipelines"][1]["id"].as_str().unwrap().to_owned();
    let run = world.data(&["tasks", "show", SOFT])["runs"][0]["id"].as_str().unwrap().to_owned();
    let item = world.data(&["queues", "show", SOFT])["items"][0]["id"].as_str().unwrap_or("q-1").to_owned();
    let verbs: Vec<Vec<&str>> = vec![
        vec!["tasks", "list", "--all"],
        vec!["tasks", "show", SOFT],
        vec!["tasks", "show", "Failed"],
        vec!["tasks", "show", "Done"],
        vec!["tasks", "show", EVIL],
        vec!["tasks", "add", EVIL],
        vec!["tasks", "retry", EVIL],
        vec!["tasks", EVIL],
        vec![EVIL],
        vec!["why", SOFT],
        vec!["why", "Failed"],
        vec!["why", "Waits"],
        vec!["why", "Locked"],
        vec!["why", &held],
        vec!["status"],
        vec!["sections", "list"],
        vec!["sections", "show", SOFT],
        vec!["locks", "list"],
        vec!["locks", "show", SOFT],
        vec!["locks", "acquire", SOFT, "--no-wait"],
        vec!["locks", "acquire", EVIL, "--no-wait"],
        vec!["locks", "run", "other", "--", EVIL],
        vec!["semaphores", "list"],
        vec!["semaphores", "show", SOFT],
        vec!["queues", "list"],
        vec!["queues", "show", SOFT],
        vec!["queues", "show", SOFT, &item],
        vec!["queues", "show", EVIL],
        vec!["queues", "take", SOFT, "--holder", SOFT],
        vec!["pipelines", "list"],
        vec!["pipelines", "show", &held],
        vec!["pipelines", "start", EVIL],
        vec!["decisions", "list"],
        vec!["decisions", "show", EVIL],
        vec!["events"],
        vec!["sessions", "list"],
        vec!["sessions", "show", &run],
        vec!["runbooks", "list"],
        vec!["runbooks", "check"],
        vec!["runbooks", "show", "good"],
        vec!["runbooks", "show", EVIL],
        vec!["guards", "list"],
        vec!["guards", "check", "no"],
        vec!["workers", "list"],
        vec!["config", "list"],
        vec!["config", "get", EVIL],
        vec!["config", "set", "task.max_duration", EVIL],
        vec!["doctor"],
        vec!["merge-branch", "--how", "rebase", "--", EVIL, SOFT],
        vec!["trust", "--show"],
        vec!["import", EVIL],
        vec!["tasks", "import", EVIL],
    ];
    for verb in &verbs {
        for (more, colours) in [(None, true), (Some("--json"), false)] {
            let mut args: Vec<String> = verb.iter().map(|arg| (*arg).to_owned()).collect();
            let at = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
            more.into_iter().for_each(|flag: &str| args.insert(at, flag.into()));
            let mut command = world.command(&args);
            if colours {
                command.env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1");
            }
            let said: Said = command.output().unwrap().into();
            check(&args, &said);
            assert!(colours || !said.stdout.contains('\x1b'), "{args:?}");
        }
    }
    // The colours of Banksman are printed, and foreign sequences are escaped.
    let mut command = world.command(&["tasks", "show", "Failed"]);
    let said: Said = command.env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1").output().unwrap().into();
    assert!(said.stdout.contains("\x1b[1m") && said.stdout.contains(r"EVIL\u{1b}[31;5m"), "{said:?}");
    assert_eq!(world.data(&["tasks", "show", "Failed"])["error"], EVIL, "programs get what was written");
}

/// Runs a command in its own terminal.
fn on_terminal(world: &World, args: &str) -> Vec<u8> {
    let script = Command::new("script");
    let mut command = world.clean(script, &["-qefc", &format!("{BANKSMAN} {args}"), "/dev/null"]);
    let done = command.env_remove("NO_COLOR").env("TERM", "xterm").output().unwrap();
    assert!(done.status.success(), "{done:?}");
    done.stdout
}

#[test]
fn logs_print_colours_on_a_terminal_and_every_byte_to_a_pipe() {
    let world = World::new();
    let bytes = b"\x1b[32mgreen\x1b[0m\x1b[2J\x1b]0;t\x07\xff\xc2\x9b1A\r\nnext\n";
    std::fs::write(world.path().join("bytes"), bytes).unwrap();
    world.ok(&["tasks", "add", "A", "--run", "cat bytes"]);
    world.ok(&["run", "--until-idle"]);
    let piped = world.command(&["tasks", "logs", "A"]).output().unwrap().stdout;
    assert_eq!(piped, bytes);
    let shown = "\x1b[32mgreen\x1b[0m\u{fffd}\r\nnext\r\n";
    for args in ["tasks logs A", "tasks logs A --follow"] {
        assert_eq!(String::from_utf8(on_terminal(&world, args)).unwrap(), shown, "{args}");
    }
    // A terminal writes a line break as two characters.
    let raw = on_terminal(&world, "tasks logs A --raw");
    assert_eq!(
        raw.iter().filter(|byte| **byte != b'\r').copied().collect::<Vec<_>>(),
        bytes.iter().filter(|byte| **byte != b'\r').copied().collect::<Vec<_>>()
    );
}
