//! A project in the middle of its work, with planned ages of everything: the screens are taken of it.

use std::cell::RefCell;
use std::process::Command;

use banksman_adapters::host;
use rusqlite::Connection;

use crate::merging;
use crate::screen::Screen;
use crate::world::{BANKSMAN, Running, World, until};

/// The pipes that its tasks read: opening one lets its task continue.
const GATES: [&str; 5] = ["build", "migrate", "payment", "cart", "release"];

const RUNBOOK: &str = r#"
[pipeline.release]
[[pipeline.release.phase]]
name = "build"
run = "cat gate-release"
[[pipeline.release.phase]]
name = "nightly-tests"
run = "echo '214 of 390 tests passed'; cat gate-never"
[[pipeline.release.phase]]
name = "publish"
run = "./publish.sh"
"#;

pub(crate) const MIGRATE: &str = "Migrate the customer database, and all invoices of 2025";
pub(crate) const TRANSLATE: &str = "Translate the 漢字 titles of the page for families 👩‍👩‍👧‍👦 in Japan";

/// A project with a runner, whose local time is 14:00.
pub(crate) struct Shop {
    /// Dropped before the sessions of the world are ended: otherwise it would start them again.
    _runner: Running,
    pub(crate) world: World,
    clock: RefCell<Clock>,
}

/// Moves the times in the store, so that minutes pass at once.
struct Clock {
    store: Connection,
    /// The columns with wall clock times.
    columns: Vec<(String, String)>,
    /// The time of the last step as it is written now, and the time at which the step was made.
    last: i64,
    passed: i64,
}

impl Clock {
    fn of(world: &World) -> Clock {
        let store = Connection::open(world.path().join(".banksman/store.db")).unwrap();
        store.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
        let walls = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c \
                     WHERE m.type = 'table' AND (c.name LIKE '%\\_wall' ESCAPE '\\' OR c.name = 'wall')";
        let mut statement = store.prepare(walls).unwrap();
        let columns = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let columns = columns.map(Result::unwrap).collect();
        drop(statement);
        Clock { store, columns, last: 0, passed: 0 }
    }

    /// Lets minutes pass. Everything since the last step gets the same time, so the speed of the machine does not matter. Readings of the
    /// lease clock are not changed, because they are small on a machine that has just booted; that clock is advanced instead.
    fn pass(&mut self, minutes: i64) {
        let (now, span) = (host::wall_ms(), minutes * 60_000);
        self.store.execute("BEGIN IMMEDIATE", []).unwrap();
        self.store.execute("UPDATE projects SET lease = lease + ?1, lease_base = lease_base + ?1", [span]).unwrap();
        let moved = |column: &str| format!("CASE WHEN {column} > ?1 THEN ?2 ELSE {column} + ?2 - ?3 END");
        let times = [self.last, now - span, self.passed];
        for (table, column) in &self.columns {
            self.store.execute(&format!("UPDATE {table} SET {column} = {}", moved(column)), times).unwrap();
        }
        let ended = moved("json_extract(ended, '$.at')");
        let ended = format!("UPDATE runs SET ended = json_set(ended, '$.at', {ended}) WHERE ended IS NOT NULL");
        self.store.execute(&ended, times).unwrap();
        self.store.execute("COMMIT", []).unwrap();
        (self.last, self.passed) = (now - span, now);
    }

    /// Removes the time that has passed since the last step, so that a bar of a few minutes ends where it would on a fast machine.
    fn stop(&mut self) {
        let now = host::wall_ms();
        let by = now - self.passed;
        self.store.execute("BEGIN IMMEDIATE", []).unwrap();
        for (table, column) in &self.columns {
            self.store.execute(&format!("UPDATE {table} SET {column} = {column} + ?1"), [by]).unwrap();
        }
        let ended = "UPDATE runs SET ended = json_set(ended, '$.at', json_extract(ended, '$.at') + ?1) WHERE ended IS NOT NULL";
        self.store.execute(ended, [by]).unwrap();
        self.store.execute("COMMIT", []).unwrap();
        (self.last, self.passed) = (self.last + by, now);
    }
}

impl Shop {
    pub(crate) fn new() -> Shop {
        let world = World::named_on_sqlite("shop");
        merging::repository(&world);
        let ok = |args: &[&str]| drop(world.ok(args));
        let gate = |name: &str| world.path().join(format!("gate-{name}"));
        for name in GATES.iter().chain(&["never"]) {
            assert!(Command::new("mkfifo").arg(gate(name)).status().unwrap().success());
        }
        // Lets the readers of a gate continue.
        let open = |name: &str| std::fs::write(gate(name), "").unwrap();
        let runs = |number: usize| world.data(&["status"])["runs"].as_array().unwrap().len() == number;
        let has_status = |title: &str, status: &str| world.data(&["tasks", "show", title])["status"] == status;

        ok(&["config", "set", "limits.max_concurrent_runs", "3"]);
        ok(&["config", "set", "task.silence_timeout", "9h"]);
        ok(&["sections", "add", "backend"]);
        ok(&["sections", "add", "documentation"]);
        let add =
            |title: &str, priority: &str, more: &[&str]| ok(&[&["tasks", "add", title, "--priority", priority], more].concat());
        add("Build", "9", &["--run", "cat gate-build", "--section", "backend"]);
        let titles = ["--run", "echo 'page 12 of 40: 家族'; cat gate-never", "--section", "documentation"];
        add(TRANSLATE, "8", &titles);
        let question = format!(
            "echo change >> base; git commit -qam 'Use version 4'; echo 'version 4 has no PayPal: 3 of 118 tests fail'; cat {}; \
             {BANKSMAN} tasks ask 'Version 4 drops PayPal. Upgrade anyway?' --option 'Upgrade, and drop PayPal' --option 'Stay with version 3'",
            gate("payment").display()
        );
        add("Upgrade the payment library", "7", &["--run", &question, "--workspace", "worktree", "--label", "payment"]);
        let migrate = "cat gate-migrate; echo 'column \"total\" is ambiguous, and the transaction was rolled back' >&2; exit 3";
        add(MIGRATE, "6", &["--run", migrate, "--section", "backend", "--depends-on", "Build"]);
        add("Import the invoices", "6", &["--run", "./import.sh", "--section", "backend", "--depends-on", MIGRATE]);
        let cart = "if [ $BANKSMAN_ATTEMPT = 0 ]; then cat gate-cart; exit 1; fi; echo 'cart::empty ... ok'; cat gate-never";
        add("Fix the flaky test of the cart", "5", &["--run", cart, "--loop", "--restart-delay", "0s", "--depends-on", "Build"]);
        add("Review the prices with the people from sales", "0", &["--section", "documentation"]);
        ok(&["locks", "acquire", "production", "--holder", "ada", "--ttl", "9d"]);
        add("Deploy", "4", &["--run", "./deploy.sh", "--lock", "production", "--depends-on", "Build"]);
        add("Remove the old theme", "0", &["--run", "true", "--depends-on", "Deploy"]);
        ok(&["tasks", "cancel", "Remove the old theme"]);
        let runner = world.start(&["run"]);
        until("three tasks run", || runs(3));
        let has_printed = |title: &str, words: &str| world.run(&["tasks", "logs", title]).stdout.contains(words);
        until("the worktree is made", || has_printed("Upgrade the payment library", "3 of 118"));
        let mut clock = Clock::of(&world);
        clock.pass(9);

        open("build");
        until("the database is migrated", || has_status(MIGRATE, "in_progress"));
        clock.pass(12);

        open("migrate");
        until("the migration has failed", || has_status(MIGRATE, "failed"));
        until("the cart is tested", || has_status("Fix the flaky test of the cart", "in_progress"));
        clock.pass(6);

        open("cart");
        until("the cart is tested again", || {
            world.data(&["tasks", "show", "Fix the flaky test of the cart"])["runs"][1]["id"].is_string()
        });
        // Chosen so that no bar ends in the middle of a cell, at any of the tested widths.
        clock.pass(5);

        std::fs::write(world.path().join(".banksman/runbooks/release.toml"), RUNBOOK).unwrap();
        ok(&["pipelines", "start", "release", "--title", "Release 2.0"]);
        until("the release has begun", || world.run(&["tasks", "show", "Release 2.0: build"]).code == 0);
        open("payment");
        until("a person is asked", || world.data(&["status"])["decisions"] == 1);
        until("the release is built", || has_status("Release 2.0: build", "in_progress"));
        clock.pass(5);

        open("release");
        until("the release is tested", || has_status("Release 2.0: build", "completed") && runs(3));
        for (title, words) in
            [(TRANSLATE, "page 12"), ("Fix the flaky test of the cart", "ok"), ("Release 2.0: nightly-tests", "214 of 390")]
        {
            until(words, || has_printed(title, words));
        }
        clock.pass(11);

        Shop { _runner: runner, world, clock: RefCell::new(clock) }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        // The time of the last step in seconds since midnight UTC, and its distance from 14:00. The clock is stopped because the current time may
        // be a second later than the time written to the store a moment before.
        let offset = self.clock.borrow().passed.div_euclid(1_000).rem_euclid(86_400) - 14 * 3_600;
        let (sign, offset) = (if offset < 0 { '-' } else { '+' }, offset.abs());
        let zone = format!("<SHOP>{sign}{:02}:{:02}:{:02}", offset / 3_600, offset / 60 % 60, offset % 60);
        let mut command = self.world.command(args);
        command.env("TZ", zone);
        command
    }

    /// The screen of this many columns after a command.
    pub(crate) fn screen_of(&self, args: &[&str], columns: u16) -> String {
        self.clock.borrow_mut().stop();
        Screen::of(self.command(args), 60, columns).end().1
    }
}
