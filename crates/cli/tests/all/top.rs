//! `top` and `run --top`, in a real terminal.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::screen::Screen;
use crate::screens::{WIDTHS, check};
use crate::shop::Shop;
use crate::world::{World, until};

const HEIGHT: u16 = 26;

fn fits(screen: &str, width: u16) {
    let is_wider = |line: &&str| unicode_width(line) > usize::from(width);
    assert_eq!(screen.lines().find(is_wider), None, "{screen}");
}

/// The width of a line as the terminal emulator counts it.
fn unicode_width(line: &str) -> usize {
    let mut parser = vt100::Parser::new(1.try_into().unwrap(), 1_000.try_into().unwrap(), 0);
    parser.process(line.as_bytes());
    usize::from(parser.screen().cursor_position().1)
}

#[test]
fn the_board_fits_every_terminal() {
    let shop = Shop::new();
    let mut text = String::new();
    for width in WIDTHS {
        let mut screen = Screen::of(shop.command(&["top"]), HEIGHT, width);
        let shown = screen.until_shows("JUST ENDED");
        fits(&shown, width);
        text.push_str(&format!("--- {width} columns\n{shown}\n"));
        screen.press("q");
        assert!(screen.end().0.success());
    }
    check("top", &text);
}

#[test]
fn keys_act_on_the_selected_line() {
    let shop = Shop::new();
    let world = &shop.world;
    let mut screen = Screen::of(shop.command(&["top"]), HEIGHT, 100);
    screen.until_shows("▸ Translate");
    screen.press("w");
    screen.until_shows("has been running for");
    screen.press("\x1b");
    screen.until_shows("JUST ENDED");
    screen.press("?");
    screen.until_shows("Keys of banksman top");
    screen.press("\x1b");
    screen.press("/translate\r");
    screen.until("only the line with that text", |screen| screen.contains("▸ Translate") && !screen.contains("JUST ENDED"));
    // A declined confirmation does nothing; a confirmed one cancels.
    screen.press("c");
    screen.until_shows("? y/n");
    screen.press("n");
    screen.until_shows("Enter log");
    assert_eq!(world.data(&["tasks", "show", "Translate"])["status"], "in_progress");
    screen.press("cy");
    until("it is cancelled", || world.data(&["tasks", "show", "Translate"])["status"] == "cancelled");
    screen.press("\x1b");
    // Changes by other processes are shown without a key.
    world.ok(&["tasks", "done", "Review the prices with the people from sales"]);
    screen.until_shows("✓ Review the prices");
    screen.resize(20, 60);
    let shown = screen.until("a line with fewer keys", |screen| {
        screen.lines().any(|line| line.starts_with("Enter log") && line.ends_with("q leave") && !line.contains("o open"))
    });
    fits(&shown, 60);
    screen.press("q");
    let (status, left) = screen.end();
    assert!(status.success() && left.is_empty(), "{left}");
}

#[test]
fn the_terminal_is_restored_after_a_kill() {
    let world = World::new();
    world.ok(&["tasks", "add", "A", "--run", "true"]);
    let mut command = world.command(&["-c", &format!("stty -a > before; {} top; stty -a > after", crate::world::BANKSMAN)]);
    let mut shell = Command::new("sh");
    shell.args(command.get_args()).current_dir(world.path());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    command = shell;
    let screen = Screen::of(command, HEIGHT, 80);
    screen.until_shows("0 of 1 done");
    assert!(screen.with(|screen| screen.alternate_screen() && screen.hide_cursor()));
    let pid = top_of(world.path());
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    screen.until("the screen of before", |screen| !screen.contains("0 of 1 done"));
    until("the shell has looked", || world.has("after"));
    assert!(screen.with(|screen| !screen.alternate_screen() && !screen.hide_cursor()));
    screen.end();
    let settings = |name: &str| std::fs::read_to_string(world.path().join(name)).unwrap();
    assert_eq!(settings("before"), settings("after"));
}

/// The pid of the `top` whose working directory is this one.
fn top_of(folder: &std::path::Path) -> i32 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_top = |pid: &i32| {
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd"));
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        cwd.is_ok_and(|cwd| cwd == folder.canonicalize().unwrap()) && words.get(1) == Some(&&b"top"[..])
    };
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_top).unwrap()
}

#[test]
fn without_a_terminal_top_refers_to_status() {
    let world = World::new();
    let said = world.run(&["top"]);
    assert!(said.code == 2 && said.stderr.contains("banksman status"), "{said:?}");
}

#[test]
fn run_top_starts_and_stops_a_runner() {
    let world = World::new();
    world.ok(&["tasks", "add", "A", "--run", "true"]);
    let mut screen = Screen::start(&world, &["run", "--top"], HEIGHT, 80);
    screen.until_shows("1 of 1 done");
    screen.press("q");
    let (status, left) = screen.end();
    assert!(status.success() && left.contains("the runner has left"), "{left}");
    assert_eq!(world.data(&["status"])["runners"].as_array().unwrap().len(), 0);
}

fn fifo(world: &World, name: &str) -> std::path::PathBuf {
    let path = world.path().join(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[test]
fn logs_are_followed_on_the_board_and_as_a_page() {
    let world = World::new();
    let gates = ["gate-a", "gate-b"].map(|name| fifo(&world, name));
    world.ok(&["tasks", "add", "Talk", "--run", "echo one; cat gate-a; echo two; cat gate-b; echo three; cat gate-a"]);
    let _runner = world.start(&["run"]);
    until("it runs", || world.run(&["logs", "Talk"]).stdout.contains("one"));
    let mut screen = Screen::start(&world, &["top"], HEIGHT, 80);
    screen.until("its last line", |screen| screen.contains("▸ Talk") && screen.contains("one"));
    // The output of a session is followed, although it is no event.
    std::fs::write(&gates[0], "").unwrap();
    screen.until_shows("two");
    screen.press("\r");
    screen.until("its log", |screen| screen.contains("log of Talk") && screen.contains("one\ntwo"));
    std::fs::write(&gates[1], "").unwrap();
    screen.until_shows("one\ntwo\nthree");
    screen.press("q");
    screen.end();
}

#[test]
fn every_key_reports_its_result() {
    let world = World::new();
    let gate = fifo(&world, "gate");
    world.ok(&["tasks", "add", "Long", "--run", "cat gate"]);
    world.ok(&["tasks", "add", "Fails", "--run", "exit 3"]);
    world.ok(&["tasks", "add", "Held", "--run", "true", "--depends-on", "Fails"]);
    let _runner = world.start(&["run"]);
    let mut screen = Screen::start(&world, &["top"], HEIGHT, 100);
    screen.until("the board", |screen| screen.contains("▸ Long") && screen.contains("✗ Fails"));
    screen.press("n");
    screen.until_shows("nudged run r-");
    screen.press("o");
    screen.until_shows("has no workspace");
    screen.press("d");
    screen.until_shows("no open decisions");
    screen.press("/fails\r");
    screen.until("only one line", |screen| screen.contains("▸ Held") && !screen.contains("Long"));
    screen.press("jr");
    screen.until_shows("queued for retry");
    until("it has failed again", || world.data(&["tasks", "show", "Fails"])["runs"].as_array().unwrap().len() == 2);
    // A task that has ended twice is listed once.
    screen.press("\x1b");
    let ended = screen.until("all lines", |screen| screen.contains("Long") && screen.contains("✗ Fails"));
    assert_eq!(ended.matches("✗ Fails").count(), 1, "{ended}");
    // A manual task is taken by the person at this terminal.
    world.ok(&["pause"]);
    world.ok(&["tasks", "retry", "Fails"]);
    world.ok(&["tasks", "done", "Fails"]);
    screen.until_shows("NEXT");
    screen.press("/nobody\r");
    screen.until_shows("no line contains nobody");
    screen.press("/held\r");
    screen.until("only one line", |screen| screen.contains("▸ Held") && !screen.contains("Long"));
    screen.press("t");
    until("it is taken", || world.data(&["tasks", "show", "Held"])["status"] == "in_progress");
    let by = world.data(&["locks", "list"]).to_string();
    assert!(by.contains("@pts/"), "{by}");
    std::fs::write(&gate, "").unwrap();
    screen.press("\x1b");
    screen.until_shows("✓ Long");
    screen.press("q");
    assert!(screen.end().1.is_empty(), "nothing is left on the terminal");
}

#[test]
fn the_selection_follows_its_task() {
    let world = World::new();
    let gates = ["gate-a", "gate-b"].map(|name| fifo(&world, name));
    for (title, gate) in [("First", "gate-a"), ("Second", "gate-b")] {
        world.ok(&["tasks", "add", title, "--run", &format!("cat {gate}")]);
    }
    let _runner = world.start(&["run"]);
    until("both run", || world.data(&["status"])["runs"].as_array().unwrap().len() == 2);
    let mut screen = Screen::start(&world, &["top"], HEIGHT, 80);
    let order = screen.until_shows("Second");
    let (first, second) = (order.find("First").unwrap(), order.find("Second").unwrap());
    // Selects the lower of the two; the upper one ends.
    let (stays, gate) = if first < second { ("▸ Second", 0) } else { ("▸ First", 1) };
    screen.press("j");
    screen.until_shows(stays);
    std::fs::write(&gates[gate], "").unwrap();
    screen.until("the other has ended", |screen| screen.contains("JUST ENDED") && screen.contains(stays));
    std::fs::write(&gates[1 - gate], "").unwrap();
    screen.press("q");
    screen.end();
}
