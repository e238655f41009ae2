//! Bad input: a clear message with a hint, the right exit code, and no partial changes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::world::{Said, World};

fn refused(world: &World, args: &[&str], code: i32, words: &str) {
    let said = world.run(args);
    assert_eq!(said.code, code, "{args:?}: {said:?}");
    assert!(said.stderr.contains(words), "{args:?} does not say {words:?}: {}", said.stderr);
    assert!(said.stdout.is_empty(), "{said:?}");
}

#[test]
fn names_durations_and_json_are_checked_before_any_change() {
    let world = World::new();
    let long = "x".repeat(201);
    refused(&world, &["locks", "acquire", ""], 2, "must not be empty");
    refused(&world, &["locks", "acquire", &long], 2, "at most 200 bytes, this one has 201");
    refused(&world, &["locks", "acquire", "a\tb"], 2, "control characters");
    refused(&world, &["locks", "acquire", "x", "--holder", "a\nb"], 2, "control characters");
    refused(&world, &["locks", "acquire", "x", "--request-id", &long], 2, "at most 200 bytes");
    refused(&world, &["locks", "acquire", "x", "--ttl", "-5s"], 2, "cannot be negative");
    refused(&world, &["locks", "acquire", "x", "--ttl", "5"], 2, "has no unit");
    refused(&world, &["locks", "acquire", "x", "--ttl", "0s"], 2, "greater than zero");
    refused(&world, &["locks", "define", "x", "--max-hold", "999999d"], 2, "hundred years");
    refused(&world, &["locks", "acquire", "x", "--timeout", "soon"], 2, "is not a duration");
    refused(&world, &["locks", "acquire", "x", "--metadata", "{"], 2, "not JSON");
    refused(&world, &["locks", "acquire", "x", "--metadata", &format!("\"{}\"", "m".repeat(20_000))], 2, "at most 16384 bytes");
    refused(&world, &["locks", "acquire", "x", "--pid", "999999999"], 4, "no process");
    refused(&world, &["locks", "acquire", "task:t-1"], 2, "reserved");
    refused(&world, &["locks", "run", "x"], 2, "<CMD>");
    refused(&world, &["locks", "show", "x"], 4, "there is no lock x");
    refused(&world, &["semaphores", "define", "s", "--capacity", "-1"], 2, "invalid value");
    assert_eq!(world.events().len(), 0, "nothing happened");
    world.ok(&["locks", "define", "x", "--ttl", "1h"]);
    refused(&world, &["locks", "release", "x", "--holder", "a"], 2, "--epoch is missing");
    refused(&world, &["locks", "heartbeat", "x", "--epoch", "1"], 2, "--holder is missing");
    let said = world.run(&["locks", "frob", "--json"]);
    assert_eq!((said.code, said.stdout.contains(r#""code":"USAGE""#)), (2, true));
}

#[test]
fn outside_of_a_project_the_error_names_init() {
    let world = World::empty_on_sqlite();
    refused(&world, &["locks", "list"], 4, "banksman init");
    refused(&world, &["-C", "/no/such/place", "locks", "list"], 4, "No such file");
    refused(&world, &["--store", "sqlite:/no/such/place/store.db", "locks", "list"], 4, "no store");
    refused(&world, &["--store", "mysql://x", "locks", "list"], 2, "must begin with sqlite:");
    world.ok(&["init"]);
    refused(&world, &["init"], 2, "already");
    fs::write(world.path().join(".banksman/config.toml"), "[locking]\nheartbeat = \"5s\"\n").unwrap();
    refused(&world, &["locks", "list"], 3, "did you mean locking.heartbeat_timeout?");
}

#[test]
fn foreign_damaged_and_newer_stores_are_distinguished() {
    let world = World::on_sqlite();
    world.ok(&["locks", "acquire", "x", "--holder", "a"]);
    let folder = world.path().join(".banksman");
    let store = folder.join("store.db");
    // Checkpoint the log, so that the database file alone is the store.
    let connection = rusqlite::Connection::open(&store).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    let good = fs::read(&store).unwrap();
    let replace = |bytes: &[u8]| {
        for name in ["store.db-wal", "store.db-shm"] {
            fs::remove_file(folder.join(name)).ok();
        }
        fs::write(&store, bytes).unwrap();
    };
    let both = |code, words: &str| {
        refused(&world, &["locks", "list"], code, words);
        refused(&world, &["locks", "acquire", "y"], code, words);
    };

    replace(
        b"this is a diary, not a database; it goes on for more than a hundred bytes so that it looks like a file of some kind",
    );
    both(3, "not a SQLite database");
    replace(b"");
    both(3, "empty file");
    fs::remove_file(&store).unwrap();
    rusqlite::Connection::open(&store).unwrap().execute_batch("CREATE TABLE diary (page TEXT)").unwrap();
    both(3, "another program");
    replace(&good);
    rusqlite::Connection::open(&store).unwrap().execute_batch("UPDATE store SET version = 99").unwrap();
    both(3, "newer version");
    let mut damaged = good.clone();
    damaged[4_096..].fill(0xff);
    replace(&damaged);
    both(7, "damaged");
    assert_eq!(world.run(&["doctor"]).code, 7);
    replace(&good);
    assert_eq!(world.holder("x").unwrap().as_str(), "a", "the good one still opens");
}

#[test]
fn doctor_finds_a_table_that_differs_from_the_log() {
    let world = World::on_sqlite().unchecked();
    world.ok(&["locks", "acquire", "x", "--holder", "a"]);
    world.check();
    let store = world.path().join(".banksman/store.db");
    rusqlite::Connection::open(store).unwrap().execute_batch("UPDATE locks SET holder = 'b'").unwrap();
    let said = world.run(&["doctor"]);
    assert_eq!(said.code, 7);
    assert!(said.stdout.contains("wrong") && said.stdout.contains("lock x"), "{said:?}");
}

/// Mounts a small file system, and unmounts it when the test ends.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(path: &'a Path, options: &str) -> Option<Mounted<'a>> {
        fs::create_dir_all(path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "banksman-test"]).arg(path).output().unwrap();
        if !mounted.status.success() {
            assert!(!rustix::process::getuid().is_root(), "root may mount: {mounted:?}");
            return None;
        }
        Some(Mounted(path))
    }

    fn remount(&self, options: &str) {
        assert!(Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.0).status().unwrap().success());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.0).status().ok();
    }
}

#[test]
fn a_full_disk_is_reported_and_nothing_changes() {
    let world = World::empty_on_sqlite();
    let disk = world.path().join("disk");
    let Some(_mounted) = Mounted::new(&disk, "size=900k") else { return };
    let at = |args: &[&str]| world.run(&[&["-C", disk.to_str().unwrap()], args].concat());
    assert_eq!(at(&["init"]).code, 0);
    assert_eq!(at(&["locks", "acquire", "x", "--holder", "a", "--ttl", "1h"]).code, 0);
    // Fills the disk completely; the error is expected.
    Command::new("dd").args(["if=/dev/zero", "bs=1k", "count=1000"]).arg(format!("of={}/fill", disk.display())).output().unwrap();
    let full = |said: Said| {
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.stderr.contains("no space is left") && said.stderr.contains("nothing was changed"), "{said:?}");
    };
    full(at(&["locks", "acquire", "y", "--holder", "b"]));
    full(at(&["locks", "release", "x", "--holder", "a", "--epoch", "1"]));
    fs::remove_file(disk.join("fill")).unwrap();
    assert_eq!(at(&["doctor"]).code, 0);
    let list = at(&["locks", "list", "--json"]).stdout;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["data"]["locks"].as_array().unwrap().len(), 1);
    assert_eq!(list["data"]["locks"][0]["holder"], "a");
    assert_eq!(at(&["locks", "release", "x", "--holder", "a", "--epoch", "1"]).code, 0);
}

#[test]
fn a_read_only_directory_is_refused_and_left_unchanged() {
    let world = World::empty_on_sqlite();
    let disk = world.path().join("disk");
    let Some(mounted) = Mounted::new(&disk, "size=4m") else { return };
    let at = |args: &[&str]| world.run(&[&["-C", disk.to_str().unwrap()], args].concat());
    mounted.remount("ro");
    let said = at(&["init"]);
    assert_eq!((said.code, said.stderr.contains("Read-only")), (5, true), "{said:?}");
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
    mounted.remount("rw");
    assert_eq!(at(&["init"]).code, 0);
    mounted.remount("ro");
    for args in [&["locks", "list"][..], &["locks", "acquire", "x"]] {
        let said = at(args);
        assert_eq!((said.code, said.stderr.contains("cannot be written")), (5, true), "{args:?}: {said:?}");
    }
}

#[test]
fn init_on_a_disk_too_small_leaves_nothing() {
    let world = World::empty_on_sqlite();
    let disk = world.path().join("disk");
    let Some(_mounted) = Mounted::new(&disk, "size=20k") else { return };
    let said = world.run(&["-C", disk.to_str().unwrap(), "init"]);
    assert_eq!((said.code, said.stderr.contains("no space")), (1, true), "{said:?}");
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
}

#[test]
fn relative_paths_are_resolved_against_the_c_option() {
    let world = World::new();
    let sub = world.path().join("sub");
    std::fs::create_dir(&sub).unwrap();
    std::fs::write(sub.join("x.toml"), "[pipeline.p]\n[[pipeline.p.phase]]\nname = \"a\"\nrun = \"true\"\n").unwrap();
    std::fs::write(sub.join("list.md"), "- [ ] one\n").unwrap();
    let at = |args: &[&str]| {
        let mut command = world.command(&[&["-C", world.path().to_str().unwrap()], args].concat());
        let said = command.current_dir("/").output().unwrap();
        assert!(said.status.success(), "{args:?}: {said:?}");
        String::from_utf8(said.stdout).unwrap()
    };
    at(&["runbooks", "check", "sub/x.toml"]);
    at(&["runbooks", "show", "sub/x.toml"]);
    at(&["pipelines", "start", "p", "--runbook", "sub/x.toml"]);
    at(&["tasks", "import", "sub/list.md"]);
    let here = at(&["locks", "run", "l", "--", "pwd"]);
    assert_eq!(std::path::Path::new(here.trim()).canonicalize().unwrap(), world.path().canonicalize().unwrap());
    // BANKSMAN_PROJECT in the environment does not change the base of relative paths.
    let mut inside = world.command(&["runbooks", "check", "x.toml"]);
    let said = inside.env("BANKSMAN_PROJECT", world.path()).current_dir(&sub).output().unwrap();
    assert!(said.status.success(), "{said:?}");
}
