//! Backups, and failures without one: lost logs, damage, paths that are too long, output that cannot be written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::postgres;
use crate::world::{Said, World, until};

#[test]
fn a_backup_is_made_while_the_store_is_in_use_and_can_be_restored() {
    let world = World::on_sqlite();
    world.ok(&["locks", "acquire", "deploy", "--holder", "a"]);
    let file = world.path().join("backup.db");
    let name = file.to_str().unwrap();
    let client = world.library();
    let (begun, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let written = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                client.lock("busy").try_acquire().unwrap().release().unwrap();
                begun.store(true, Ordering::Relaxed);
            }
        });
        until("it writes", || begun.load(Ordering::Relaxed));
        let said = world.run(&["store", "backup", name, "--json"]);
        stop.store(true, Ordering::Relaxed);
        said
    });
    let mut written: serde_json::Value = serde_json::from_str(&written.stdout).unwrap_or_else(|_| panic!("{written:?}"));
    let written = written["data"].take();
    assert_eq!(written.as_object().unwrap().keys().collect::<Vec<_>>(), ["bytes", "file", "lastEvent"]);
    assert!(written["lastEvent"].as_i64().unwrap() >= 3, "{written}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        fs::read_dir(world.path()).unwrap().flatten().filter(|entry| entry.path().to_str().unwrap().contains("backup")).count(),
        1
    );

    let before = fs::read(&file).unwrap();
    world.assert_refused(&["store", "backup", name], 2, "FILE_EXISTS");
    assert_eq!(fs::read(&file).unwrap(), before, "a file that is there is left alone");

    // Restored as the guide describes it.
    drop(client);
    world.ok(&["locks", "acquire", "later", "--holder", "b"]);
    let folder = world.path().join(".banksman");
    for name in ["store.db", "turn"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    // The last process that closed the store may have removed these.
    for name in ["store.db-wal", "store.db-shm"] {
        fs::remove_file(folder.join(name)).ok();
    }
    fs::copy(&file, folder.join("store.db")).unwrap();
    world.check();
    let held: Vec<String> = world.data(&["locks", "list", "--held"])["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| lock["name"].to_string())
        .collect();
    assert!(held.contains(&"\"deploy\"".to_owned()) && !held.contains(&"\"later\"".to_owned()), "{held:?}");
    world.ok(&["locks", "acquire", "again", "--holder", "c"]);
}

#[test]
fn backup_of_a_postgresql_project_refers_to_pg_dump() {
    let world = World::at(postgres::fresh_database()).initialized();
    let error = world.assert_refused(&["store", "backup", "backup.db"], 2, "USAGE");
    assert!(error["hint"].as_str().unwrap().starts_with("pg_dump --schema=banksman"), "{error}");
    assert!(!world.has("backup.db"));
}

#[test]
fn a_store_without_its_wal_is_refused() {
    let world = World::on_sqlite();
    world.ok(&["locks", "acquire", "deploy", "--holder", "a"]);
    let folder = world.path().join(".banksman");
    // The database file is copied without its log.
    fs::remove_file(folder.join("store.db-wal")).unwrap();
    fs::remove_file(folder.join("store.db-shm")).unwrap();
    for args in [&["locks", "acquire", "deploy", "--holder", "b"][..], &["status"], &["doctor"]] {
        let error = world.assert_refused(args, 7, "STORE_WENT_BACK");
        assert!(error["hint"].as_str().unwrap().contains("store.db-wal"), "{error}");
    }
    fs::remove_file(folder.join("turn")).unwrap();
    world.ok(&["locks", "acquire", "deploy", "--holder", "b"]);
}

#[test]
fn doctor_on_a_damaged_store_does_not_recommend_doctor() {
    let world = World::on_sqlite().unchecked();
    let store = world.path().join(".banksman/store.db");
    fs::remove_file(world.path().join(".banksman/store.db-wal")).ok();
    let size = fs::metadata(&store).unwrap().len();
    let mut bytes = fs::read(&store).unwrap();
    bytes[4_096..].fill(0x5a);
    fs::write(&store, &bytes).unwrap();
    assert_eq!(bytes.len() as u64, size);
    let (code, error) = world.error(&["doctor"]);
    assert_eq!(code, 7, "{error}");
    assert!(!error["hint"].as_str().unwrap().contains("banksman doctor"), "{error}");
}

#[test]
fn a_grant_that_cannot_be_printed_is_released() {
    let world = World::on_sqlite();
    world.ok(&["semaphores", "define", "gpu", "--capacity", "1"]);
    let to_full = |args: &[&str]| -> Said {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        world.command(args).stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap().into()
    };
    for args in
        [&["locks", "acquire", "deploy"][..], &["semaphores", "acquire", "gpu"], &["locks", "acquire", "deploy", "--json"]]
    {
        let said = to_full(args);
        assert_eq!(said.code, 1, "{args:?}: {said:?}");
    }
    assert_eq!(world.holder("deploy"), None);
    let epoch = world.data(&["locks", "acquire", "mine", "--holder", "a"])["epoch"].to_string();
    let said = to_full(&["locks", "acquire", "mine", "--holder", "a", "--epoch", &epoch]);
    assert!(said.code == 1 && said.stderr.contains("still held"), "{said:?}");
    assert!(world.holder("mine").is_some(), "an earlier grant is kept");
    for args in [&["events"][..], &["status"], &["locks", "list", "--json"]] {
        let said = to_full(args);
        assert!(said.code == 1 && said.stderr.contains("No space left"), "{args:?}: {said:?}");
    }
}

#[test]
fn a_number_of_more_than_64_bits_is_refused() {
    let world = World::on_sqlite();
    world.ok(&["queues", "define", "q"]);
    for args in [
        &["queues", "push", "q", "{\"id\":123456789012345678901}"][..],
        &["events", "emit", "a:b", "--data", "[-9223372036854775809]"],
    ] {
        let (code, error) = world.error(args);
        assert_eq!(code, 2, "{error}");
        assert!(error["message"].as_str().unwrap().contains("64 bits"), "{error}");
    }
    world.ok(&["queues", "push", "q", "{\"id\":18446744073709551615}"]);
    assert_eq!(world.data(&["queues", "take", "q", "--holder", "h"])["item"]["data"]["id"], 18_446_744_073_709_551_615_u64);
}

#[test]
fn a_long_path_works_or_is_refused_clearly() {
    let world = World::empty_on_sqlite();
    let deep = |parts: usize| {
        let dir = (0..parts).fold(world.path().to_owned(), |dir, _| dir.join("d".repeat(80)));
        fs::create_dir_all(&dir).unwrap();
        dir.to_str().unwrap().to_owned()
    };
    let (long, too_long) = (deep(4), deep(9));
    assert!(long.len() > 300 && too_long.len() > 700);
    world.ok(&["-C", &long, "init"]);
    world.ok(&["-C", &long, "tasks", "add", "A", "--run", "pwd > where"]);
    world.ok(&["-C", &long, "run", "--until-idle"]);
    assert!(fs::read_to_string(Path::new(&long).join("where")).unwrap().trim().ends_with(&"d".repeat(80)));
    world.assert_refused(&["-C", &too_long, "init"], 3, "STORE_PATH_TOO_LONG");
    assert!(!Path::new(&too_long).join(".banksman").exists(), "nothing is left half done");
}
