//! Moving a project from one database to the other and back.

use crate::postgres;
use crate::world::World;

#[test]
fn a_project_moves_to_the_other_database_and_back() {
    let world = World::on_sqlite().unchecked();
    let url = postgres::fresh_database();
    let there = ["--store", &url];
    world.ok(&["locks", "run", "done", "--", "true"]);
    world.ok(&["semaphores", "define", "gpu", "--capacity", "3"]);
    world.ok(&["semaphores", "acquire", "gpu", "--holder", "g", "--weight", "2"]);
    let epoch = world.data(&["locks", "acquire", "db", "--holder", "a", "--ttl", "1h", "--request-id", "r"])["epoch"].to_string();
    let mut deep = world.command(&["events", "emit", "deploy:done", "--data", r#"{"n":1}"#]);
    assert!(deep.env("BANKSMAN_RUN", "r-1").env("BANKSMAN_ROUTE_DEPTH", "3").output().unwrap().status.success());
    let file = format!("sqlite:{}", world.path().join(".banksman/store.db").display());

    let copied = world.data(&["store", "copy", &file, &url]);
    let counts = ["locks", "semaphores", "holders", "tasks", "items", "events"].map(|name| copied[name].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 2, 0, 0, 6]);
    let remote = |args: &[&str]| world.data(&[&there[..], args].concat());
    let list = remote(&["locks", "list", "--held"]);
    assert_eq!((&list["locks"][0]["holder"], list["locks"][0]["epoch"].to_string()), (&"a".into(), epoch.clone()));
    let left = remote(&["locks", "heartbeat", "db", "--holder", "a", "--epoch", &epoch]);
    assert_eq!(left["outcome"], "extended", "it is still held, by the same grant");
    assert_eq!(remote(&["doctor"])["healthy"], true);
    assert_eq!(
        remote(&["locks", "acquire", "db", "--holder", "a", "--request-id", "r"])["outcome"],
        "extended",
        "requests are known"
    );

    // The project has moved already.
    world.assert_refused(&["store", "copy", &file, &url], 3, "STORE_MOVED");
    let other = World::on_sqlite().unchecked();
    let config = std::fs::read(world.path().join(".banksman/config.toml")).unwrap();
    std::fs::write(other.path().join(".banksman/config.toml"), config).unwrap();
    let other_file = format!("sqlite:{}", other.path().join(".banksman/store.db").display());
    // A database that already has the project is not overwritten.
    other.assert_refused(&["store", "copy", &other_file, &url], 2, "STORE_EXISTS");

    let back = world.path().join("back.db");
    let back_url = format!("sqlite:{}", back.display());
    assert_eq!(world.data(&["store", "copy", &url, &back_url])["holders"], 2);
    assert_eq!(world.data(&["--store", &back_url, "doctor"])["healthy"], true);
    // A chain of routes continues: an event that no route has seen yet keeps its depth.
    let depth = |file: &std::path::Path| -> i64 {
        let connection = rusqlite::Connection::open(file).unwrap();
        connection.query_row("SELECT depth FROM events WHERE kind = 'deploy:done'", [], |row| row.get(0)).unwrap()
    };
    assert_eq!((depth(&world.path().join(".banksman/store.db")), depth(&back)), (3, 3));
}

#[test]
fn a_store_that_differs_from_its_log_is_not_copied() {
    let world = World::on_sqlite().unchecked();
    world.ok(&["locks", "acquire", "db", "--holder", "a"]);
    let store = world.path().join(".banksman/store.db");
    rusqlite::Connection::open(&store).unwrap().execute_batch("UPDATE locks SET holder = 'b'").unwrap();
    let url = postgres::fresh_database();
    let target = world.path().join("copy.db");
    for to in [url.clone(), format!("sqlite:{}", target.display())] {
        let (code, _) = world.error(&["store", "copy", &format!("sqlite:{}", store.display()), &to]);
        assert_eq!(code, 7);
    }
    assert!(!target.exists(), "nothing is left behind");
    world.assert_refused(&["--store", &url, "locks", "list"], 4, "STORE_MISSING");
}

#[test]
fn a_backlog_moves_with_its_project_but_not_while_it_runs() {
    let world = World::on_sqlite().unchecked();
    world.ok(&["tasks", "add", "first", "--run", "true"]);
    world.ok(&["run", "--until-idle"]);
    world.ok(&["tasks", "add", "second", "--run", "until [ -e open ]; do sleep 0.02; done", "--depends-on", "first"]);
    world.ok(&["tasks", "add", "third", "--run", "true", "--depends-on", "second"]);
    let url = postgres::fresh_database();
    let file = format!("sqlite:{}", world.path().join(".banksman/store.db").display());

    let runner = world.start(&["run", "--until-idle"]);
    crate::world::until("it runs", || world.data(&["tasks", "show", "second"])["status"] == "in_progress");
    world.assert_refused(&["store", "copy", &file, &url], 6, "STORE_IN_USE");
    runner.signal(rustix::process::Signal::TERM);
    runner.end();
    world.ok(&["tasks", "cancel", "second"]);
    world.ok(&["tasks", "retry", "second"]);

    assert_eq!(world.data(&["store", "copy", &file, &url])["tasks"], 3);
    let there = ["--store", &url];
    assert_eq!(world.data(&[&there[..], &["doctor"]].concat())["healthy"], true);
    world.touch("open");
    world.ok(&[&there[..], &["run", "--until-idle"]].concat());
    let list = world.data(&[&there[..], &["tasks", "list"]].concat());
    let statuses: Vec<&str> = list["tasks"].as_array().unwrap().iter().map(|task| task["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["completed"; 3]);
}
