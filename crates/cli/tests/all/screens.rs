//! What people see in terminals of several widths. Nothing wraps, and every screen was looked at.

use insta::{Settings, assert_snapshot};
use rustix::process::Signal;

use crate::screen::shown;
use crate::world::{Running, World, until};

/// The widths that people have: half a laptop, the classic, a desktop, and a whole wide screen.
pub(crate) const WIDTHS: [u16; 4] = [60, 80, 120, 200];

const RUNBOOK: &str = r#"
[pipeline.release]
[[pipeline.release.phase]]
name = "build"
run = "true"
[[pipeline.release.phase]]
name = "nightly-tests"
run = "cat gate"
[[pipeline.release.phase]]
name = "publish"
run = "true"
"#;

/// A project in the middle of its work, some minutes old. Ends when the runner is dropped.
pub(crate) fn project() -> (World, Running) {
    let world = World::on_sqlite();
    let ok = |args: &[&str]| drop(world.ok(args));
    assert!(std::process::Command::new("mkfifo").arg(world.path().join("gate")).status().unwrap().success());
    ok(&["config", "set", "limits.max_concurrent_runs", "3"]);
    ok(&["sections", "add", "backend"]);
    ok(&["sections", "add", "documentation"]);
    ok(&["tasks", "add", "Build", "--run", "true", "--section", "backend"]);
    ok(&[
        "tasks",
        "add",
        "Migrate the customer database to the new schema of the invoices",
        "--run",
        "echo 'column \"total\" is ambiguous, and the transaction was rolled back' >&2; exit 3",
        "--section",
        "backend",
        // So that the order in which the two end is always the same.
        "--depends-on",
        "Build",
    ]);
    ok(&[
        "tasks",
        "add",
        "Import invoices",
        "--run",
        "true",
        "--depends-on",
        "Migrate the customer database to the new schema of the invoices",
        "--section",
        "backend",
    ]);
    ok(&[
        "tasks",
        "add",
        "Translate the 漢字 titles of the welcome page 🎉 for Japan",
        "--run",
        "cat gate",
        "--section",
        "documentation",
    ]);
    ok(&["tasks", "add", "Login", "--run", "cat gate", "--priority", "5", "--label", "auth"]);
    ok(&["tasks", "add", "Review the pricing page with the people from sales", "--section", "documentation"]);
    ok(&["tasks", "add", "Deploy", "--run", "true", "--lock", "production"]);
    ok(&["locks", "acquire", "production", "--holder", "ada", "--ttl", "9d"]);
    std::fs::write(world.path().join(".banksman/runbooks/release.toml"), RUNBOOK).unwrap();
    ok(&["pipelines", "start", "release", "--title", "Release 2.0"]);
    let runner = world.start(&["run"]);
    until("all that can begin has begun", || {
        let runs = world.data(&["status"])["runs"].as_array().unwrap().clone();
        runs.len() == 3 && runs.iter().any(|run| run["task"].as_str().unwrap().ends_with(".2"))
    });
    until("what can fail has failed", || world.data(&["status"])["byStatus"]["failed"] == 1);
    // Everything is eleven minutes old, so that every age is as wide as every other: the lease clock goes on, and what happened at a
    // time of the wall clock happened before. Readings of the lease clock are small on a machine that has just been started, so they stay.
    let store = rusqlite::Connection::open(world.path().join(".banksman/store.db")).unwrap();
    store.execute("UPDATE projects SET lease = lease + 660000, lease_base = lease_base + 660000", []).unwrap();
    let walls = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c \
                 WHERE m.type = 'table' AND (c.name LIKE '%\\_wall' ESCAPE '\\' OR c.name = 'wall')";
    let columns: Vec<(String, String)> =
        store.prepare(walls).unwrap().query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    for (table, column) in columns {
        store.execute(&format!("UPDATE {table} SET {column} = {column} - 660000"), []).unwrap();
    }
    (world, runner)
}

/// What differs from run to run, in the same width.
pub(crate) fn fixed(world: &World, check: impl FnOnce()) {
    let mut settings = Settings::clone_current();
    settings.add_filter(&world.path().canonicalize().unwrap().display().to_string(), "[DIR]");
    settings.add_filter(r"\b(t|s|r|n|p)-[0-9a-hjkmnp-tv-z]{8}\b", "$1-xxxxxxxx");
    settings.add_filter(r"\b11m\d\ds\b", "11m00s");
    // How long the first phase took: its column is as wide as the age of the second one.
    settings.add_filter(r"completed +\d+m?s\b", "completed      45ms");
    settings.add_filter(r"(alive|short) +\d+  here", "$1  99999  here");
    settings.add_filter(r"\d\d:\d\d:\d\d", "22:14:07");
    settings.bind(check);
}

fn snapshots(world: &World, commands: &[&[&str]]) {
    for args in commands {
        let mut text = String::new();
        for width in WIDTHS {
            let screen = shown(world, args, width);
            text.push_str(&format!("--- {width} columns\n{screen}\n"));
        }
        let name =
            args.iter().take(3).map(|word| word.replace(|c: char| !c.is_alphanumeric(), "_")).collect::<Vec<_>>().join("_");
        fixed(world, || assert_snapshot!(name, text));
    }
}

#[test]
fn every_screen_fits() {
    let (world, runner) = project();
    snapshots(
        &world,
        &[
            &["tasks", "list"],
            &["pipelines", "list"],
            &["pipelines", "show", "Release 2.0"],
            &["locks", "list"],
            &["sections", "list"],
        ],
    );
    // Ids, times and the order of runs differ from run to run, and with them where a line is cut.
    let words: [(&[&str], &str); 6] = [
        (&["status"], "3 of 3 run slots are taken"),
        (&["sessions", "list", "--columns", "task,state,for"], "Login"),
        (&["why", "Import invoices"], "Migrate"),
        (&["why", "Deploy"], "lock production is held by ada"),
        (&["report", "--since", "30m"], "Migrate"),
        (&["timeline", "--since", "30m"], "Login"),
    ];
    for (args, word) in words {
        for width in WIDTHS {
            let screen = shown(&world, args, width);
            assert!(screen.contains(word), "{screen}");
        }
    }
    runner.signal(Signal::TERM);
    drop(runner.end());
}

#[test]
fn lists_are_cut_to_the_columns_that_are_wanted() {
    let world = World::new();
    for (title, priority) in [("Beta", "1"), ("alpha", "3"), ("Gamma", "2")] {
        world.ok(&["tasks", "add", title, "--priority", priority, "--label", "x"]);
    }
    let list = |flags: &[&str]| world.ok(&[&["tasks", "list"], flags].concat());
    assert_eq!(list(&["--columns", "title,labels", "--sort", "title"]), "TITLE  LABELS\nalpha  x\nBeta   x\nGamma  x\n");
    assert_eq!(list(&["--columns", "title", "--sort=-priority", "--limit", "2"]), "TITLE\nalpha\nGamma\n");
    let said = world.run(&["tasks", "list", "--columns", "titel"]);
    assert!(said.code == 2 && said.stderr.contains("the columns are id, status, title"), "{said:?}");
}
