//! `store copy` moves a project: at every moment exactly one store is in use, and the other one names it.

use std::sync::atomic::{AtomicBool, Ordering};

use banksman_core::event::{CustomKind, Event, Source};
use banksman_runtime::{Error, Project, StoreUrl};
use banksman_store::StoreError;

use crate::postgres;
use crate::world::World;

/// The URLs of the project's store and of another file.
fn urls(world: &World) -> (String, String) {
    let url = |path: &str| format!("sqlite:{}", world.path().canonicalize().unwrap().join(path).display());
    (url(".banksman/store.db"), url(".banksman/new.db"))
}

fn sql(url: &str, text: &str) {
    rusqlite::Connection::open(url.strip_prefix("sqlite:").unwrap()).unwrap().execute_batch(text).unwrap();
}

#[test]
fn the_old_store_is_retired_and_names_the_new_one() {
    let world = World::on_sqlite();
    let url = postgres::fresh_database();
    let (old, _) = urls(&world);
    world.ok(&["locks", "acquire", "deploy", "--holder", "a"]);
    let open_before = world.library();
    let moved_to = world.data(&["store", "copy", &old, &url])["store"].as_str().unwrap().to_owned();

    for args in [&["locks", "acquire", "deploy", "--holder", "b"][..], &["tasks", "list"], &["events"], &["run"], &["init"]] {
        let (code, error) = world.error(args);
        if args == ["init"] {
            assert_eq!(error["code"], "STORE_ELSEWHERE", "{error}");
            continue;
        }
        assert_eq!((code, error["code"].as_str()), (3, Some("STORE_MOVED")), "{args:?}: {error}");
        assert_eq!(error["details"]["movedTo"], moved_to.as_str(), "{args:?}");
        assert!(error["hint"].as_str().unwrap().contains(&format!("BANKSMAN_STORE='{moved_to}'")), "{error}");
    }
    // A process that has the old store open is refused at its next transaction.
    let refused = open_before.lock("deploy").try_acquire().err().unwrap();
    assert!(refused.to_string().contains("retired"), "{refused}");

    // The config names the new store for clones, the user's setting agrees with it, and the lock is still held.
    assert!(std::fs::read_to_string(world.path().join(".banksman/config.toml")).unwrap().contains("shared = true"));
    world.ok(&["config", "set", "--user", "store", &moved_to]);
    assert_eq!(world.data(&["locks", "list"])["locks"][0]["holder"], "a");
}

#[test]
fn no_write_is_lost_between_the_copy_and_the_retirement() {
    let world = World::on_sqlite().unchecked();
    let (old, new) = urls(&world);
    let client = world.project().open().unwrap();
    let (begun, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let (said, last) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut last = 0;
            loop {
                let (kind, source) = (CustomKind::new("test:written").unwrap(), Source { component: "user".into(), id: None });
                match client.emit(Event::Custom { kind, source, data: serde_json::json!({}) }) {
                    Ok(seq) => last = seq.0,
                    Err(Error::Store(StoreError::Moved { .. })) => return last,
                    Err(error) => panic!("{error}"),
                }
                begun.store(true, Ordering::Relaxed);
                assert!(!failed.load(Ordering::Relaxed), "the copy has failed");
            }
        });
        crate::world::until("it writes", || begun.load(Ordering::Relaxed));
        let copied = world.run(&["store", "copy", &old, &new]);
        // The writer stops when the store is retired.
        failed.store(world.run(&["locks", "list"]).code == 0, Ordering::Relaxed);
        (copied, writer.join().unwrap())
    });
    assert_eq!(said.code, 0, "{said:?}");
    let place = StoreUrl::parse(&new, |_| None).unwrap();
    let project = Project::find_at(world.path(), Some(place)).unwrap();
    let copied = project.reader().unwrap().view().snapshot().unwrap().seq.0;
    assert_eq!(copied, last, "what was acknowledged last is the last that was copied");
}

#[test]
fn a_copy_can_be_undone_until_the_new_store_has_changed() {
    let world = World::on_sqlite();
    let (old, new) = urls(&world);
    world.ok(&["locks", "acquire", "deploy", "--holder", "a"]);
    assert_eq!(world.error(&["store", "copy", "--undo", &old, &new]).1["code"], "USAGE", "there is nothing to undo");
    world.ok(&["store", "copy", &old, &new]);
    world.ok(&["store", "copy", "--undo", &old, &new]);
    assert_eq!(world.data(&["locks", "list"])["locks"][0]["holder"], "a");
    assert_eq!(world.error(&["--store", &new, "locks", "list"]).1["code"], "STORE_MOVED");

    // The remains of an undone copy do not prevent another one.
    world.ok(&["store", "copy", &old, &new]);
    world.ok(&["--store", &new, "locks", "acquire", "other", "--holder", "b"]);
    world.assert_refused(&["store", "copy", "--undo", &old, &new], 2, "STORE_CHANGED");
    assert_eq!(world.data(&["--store", &new, "locks", "list", "--held"])["locks"].as_array().unwrap().len(), 2);

    // The project moves back with the changes made since.
    world.ok(&["store", "copy", &new, &old]);
    assert_eq!(world.data(&["locks", "list", "--held"])["locks"].as_array().unwrap().len(), 2);
    assert_eq!(world.error(&["--store", &new, "locks", "list"]).1["code"], "STORE_MOVED");
}

#[test]
fn a_killed_copy_is_completed_by_the_next_one() {
    let world = World::on_sqlite().unchecked();
    let (old, new) = urls(&world);
    world.ok(&["locks", "acquire", "deploy", "--holder", "a"]);
    world.ok(&["store", "copy", &old, &new]);
    // The state after a kill before the new store was taken into use.
    sql(&new, &format!("UPDATE projects SET moved_to = '{old}'"));
    assert_eq!(world.error(&["--store", &new, "locks", "list"]).1["code"], "STORE_MOVED");
    assert_eq!(world.data(&["store", "copy", &old, &new])["store"], new.as_str());
    assert_eq!(world.data(&["--store", &new, "locks", "list"])["locks"][0]["holder"], "a");
    // The state after a kill before the old store was retired.
    sql(&new, &format!("UPDATE projects SET moved_to = '{old}'"));
    sql(&old, "UPDATE projects SET moved_to = NULL");
    world.ok(&["locks", "acquire", "other", "--holder", "b"]);
    world.ok(&["store", "copy", &old, &new]);
    assert_eq!(world.data(&["--store", &new, "locks", "list", "--held"])["locks"].as_array().unwrap().len(), 2);
}
