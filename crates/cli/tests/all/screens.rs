//! Output in terminals of several widths. Nothing wraps where it should not; a person has checked every recorded screen.

use insta::{Settings, assert_snapshot};
use regex::Regex;

use crate::screen::{Screen, picture};
use crate::shop::{MIGRATE, Shop, TRANSLATE};
use crate::world::{World, until};

/// Common widths: half a laptop, the classic, a desktop, and a wide screen.
pub(crate) const WIDTHS: [u16; 4] = [60, 80, 120, 200];

/// Replaces everything that differs from run to run by text of the same width. No step of the shop takes a minute.
const FILTERS: [(&str, &str); 8] = [
    (r"\b(t|s|r|n|p|d)-[0-9a-hjkmnp-tv-z]{8}\b", "$1-xxxxxxxx"),
    (r"\b1 min \d+ s\b", "1 min"),
    (r"\b14:00:\d\d\b", "14:00:00"),
    (r"STATE +PID", "STATE     PID"),
    (r"(alive|short) +\d+  here", "$1   99999  here"),
    (r"8 d 23 h|\b9 d\b", "8 d 23 h"),
    (r"\b[0-9a-f]{12}\b", "0123456789ab"),
    (r"\bd-\d\d\b", "d-55"),
];

/// Compares a text with its snapshot.
pub(crate) fn check(name: &str, text: &str) {
    let mut settings = Settings::clone_current();
    FILTERS.iter().for_each(|(pattern, by)| settings.add_filter(pattern, *by));
    settings.bind(|| assert_snapshot!(name, text));
}

fn at_all_widths(shown: impl Fn(u16) -> String) -> String {
    WIDTHS.iter().map(|width| format!("--- {width} columns\n{}\n", shown(*width))).collect()
}

/// The screens of commands that end: a name, and the commands.
fn screens() -> Vec<(&'static str, Vec<Vec<&'static str>>)> {
    vec![
        ("tasks_list", vec![vec!["tasks", "list"]]),
        ("pipelines_list", vec![vec!["pipelines", "list"]]),
        ("pipelines_show", vec![vec!["pipelines", "show", "release"]]),
        ("sections_list", vec![vec!["sections", "list"]]),
        ("status", vec![vec!["status"]]),
        (
            "why",
            vec![
                vec!["why", "import the"],
                vec!["why", "deploy"],
                vec!["why", TRANSLATE],
                vec!["why", MIGRATE],
                vec!["why", "payment"],
                vec!["why", "Release 2.0"],
            ],
        ),
        ("timeline", vec![vec!["timeline"]]),
        ("report", vec![vec!["report"]]),
        ("events", vec![vec!["events"]]),
        ("decisions_list", vec![vec!["decisions", "list"]]),
    ]
}

/// The first screen of a review.
fn review(shop: &Shop, width: u16) -> String {
    let mut screen = Screen::of(shop.command(&["decisions", "review"]), 30, width);
    let shown = screen.until_shows("q to stop:");
    screen.press("q\r");
    assert!(screen.end().0.success());
    shown
}

#[test]
fn every_screen_fits() {
    let shop = Shop::new();
    for (name, calls) in screens() {
        let text = at_all_widths(|width| calls.iter().map(|args| shop.screen_of(args, width)).collect::<Vec<_>>().join("\n\n"));
        check(name, &text);
    }
    check("decisions_review", &at_all_widths(|width| review(&shop, width)));
}

/// Its line breaks between the same words, however many digits the duration before it has.
const LONG: &str = "Migrate the customer database, and all invoices of 2025-26";

/// A runner on a terminal: its status line, the output after Ctrl-C, and the summary at the end.
fn watched(width: u16) -> String {
    let world = World::named_on_sqlite("shop");
    let gates = ["gate-a", "gate-b"].map(|name| world.path().join(name));
    assert!(std::process::Command::new("mkfifo").args(&gates).status().unwrap().success());
    let add = |title: &str, more: &[&str]| drop(world.ok(&[&["tasks", "add", title], more].concat()));
    world.ok(&["config", "set", "limits.max_concurrent_runs", "2"]);
    add(LONG, &["--run", "exit 3", "--priority", "9"]);
    add("Import the invoices", &["--run", "true", "--depends-on", LONG]);
    add("Build", &["--run", "true", "--priority", "8", "--depends-on", LONG, "--allow-failed"]);
    add(TRANSLATE, &["--run", "cat gate-a", "--priority", "7", "--depends-on", "Build"]);
    add("Review the prices", &[]);
    let mut screen = Screen::start(&world, &["run"], 30, width);
    screen.until_shows("started    Translate");
    // Added only now, so that the two always start in this order.
    add("Fix the cart", &["--run", "cat gate-b"]);
    let live = screen.until("how things stand", |screen| {
        let is_whole = |line: &str| line.contains("2 running") && (line.ends_with('…') || line.ends_with("Fix the cart"));
        screen.contains("started    Fix the cart") && screen.lines().last().is_some_and(is_whole)
    });
    screen.press("\x03");
    let left = screen.until_shows("Press Ctrl-C again");
    screen.press("\x03");
    let stopped = screen.end().1;
    assert!(stopped.contains("stopped Fix the cart") && stopped.contains("stopped Translate"), "{stopped}");
    let again = Screen::start(&world, &["run", "--until-idle"], 30, width);
    until("both run again", || world.data(&["status"])["runs"].as_array().unwrap().len() == 2);
    // Each gate has one reader.
    std::fs::write(&gates[0], "").unwrap();
    until("one has ended", || world.data(&["status"])["byStatus"]["completed"] == 2);
    std::fs::write(&gates[1], "").unwrap();
    // The two start in either order.
    let ended: Vec<String> = again.end().1.lines().filter(|line| !line.contains("  started  ")).map(str::to_owned).collect();
    let ended = ended.join("\n");
    [live, left, ended].join("\n\n")
}

#[test]
fn a_runner_on_a_terminal_shows_its_status_and_a_summary() {
    let mut settings = Settings::clone_current();
    settings.add_filter(r"\b\d\d:\d\d:\d\d\b", "22:14:07");
    settings.add_filter(r"after \d+ m?s", "after 20 ms");
    settings.add_filter(r"it \d+ m?s ago", "it 20 ms ago");
    settings.bind(|| check("run", &at_all_widths(watched)));
}

#[test]
fn lists_show_only_the_requested_columns() {
    let world = World::new();
    for (title, priority) in [("Beta", "1"), ("alpha", "3"), ("Gamma", "2")] {
        world.ok(&["tasks", "add", title, "--priority", priority, "--label", "x"]);
    }
    let list = |flags: &[&str]| world.ok(&[&["tasks", "list"], flags].concat());
    assert_eq!(list(&["--columns", "title,labels", "--sort", "title"]), "TITLE  LABELS\nalpha  x\nBeta   x\nGamma  x\n");
    assert_eq!(list(&["--columns", "title", "--sort=-priority", "--limit", "2"]), "TITLE\nalpha\nGamma\n");
    let said = world.run(&["tasks", "list", "--columns", "titel"]);
    assert!(said.code == 2 && said.stderr.contains("columns: id, status, title"), "{said:?}");
}

/// The pictures of the guide are the screens above, in colours. `UPDATE_DOCS=1` rewrites those that have changed.
#[test]
fn the_guide_has_pictures_of_the_screens() {
    const WIDTH: u16 = 100;
    let shop = Shop::new();
    let colourful = |args: &[&str]| {
        let mut command = shop.command(args);
        command.env_remove("NO_COLOR");
        command
    };
    let drawn = |screen: &Screen| {
        screen.with(|screen| {
            // Separates the letter at the end of an escape sequence from the word behind it, for the word boundaries of the filters.
            let text =
                Regex::new("(\x1b\\[[0-9;]*m)").unwrap().replace_all(&screen.contents_formatted(), "$1\u{2060}").into_owned();
            let text = FILTERS
                .iter()
                .fold(text, |text, (pattern, by)| Regex::new(pattern).unwrap().replace_all(&text, *by).into_owned());
            // Realistic ids.
            let text = ["t", "r", "n", "p", "d", "s"]
                .iter()
                .fold(text, |text, kind| text.replace(&format!("{kind}-xxxxxxxx"), &format!("{kind}-7k2m9q1a")));
            let mut same = vt100::Parser::new(screen.size().0, screen.size().1, 0);
            same.process(text.replace('\u{2060}', "").as_bytes());
            picture(same.screen())
        })
    };
    let mut pictures: Vec<(String, String)> = Vec::new();
    let ending: [(&str, &[&str]); 5] = [
        ("status", &["status"]),
        ("tasks", &["tasks", "list"]),
        ("why", &["why", "import the"]),
        ("pipeline", &["pipelines", "show", "release"]),
        ("report", &["report"]),
    ];
    for (name, args) in ending {
        let mut screen = Screen::of(colourful(args), 40, WIDTH);
        screen.wait();
        pictures.push((format!("{name}.svg"), drawn(&screen)));
    }
    let staying: [(&str, &[&str], &str, &str); 2] =
        [("top", &["top"], "JUST ENDED", "q"), ("review", &["decisions", "review"], "q to stop:", "q\r")];
    for (name, args, shows, leave) in staying {
        let mut screen = Screen::of(colourful(args), 30, WIDTH);
        screen.until_shows(shows);
        pictures.push((format!("{name}.svg"), drawn(&screen)));
        screen.press(leave);
        screen.end();
    }
    let file = shop.world.path().join("timeline.svg");
    assert!(shop.command(&["timeline", "--svg", file.to_str().unwrap()]).output().unwrap().status.success());
    pictures.push(("timeline.svg".into(), std::fs::read_to_string(file).unwrap()));

    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let digits = Regex::new(r"\d+").unwrap();
    let shape = |text: &str| digits.replace_all(text, "0").into_owned();
    for (name, new) in pictures {
        let old = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
        // Numbers are ignored: they depend on the time.
        if shape(&old) == shape(&new) {
            continue;
        }
        assert!(
            std::env::var_os("UPDATE_DOCS").is_some(),
            "docs/pictures/{name} is not what the screen shows: UPDATE_DOCS=1 rewrites it"
        );
        std::fs::write(folder.join(&name), new).unwrap();
    }
}
