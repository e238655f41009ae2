//! Settings: where they come from, how they are changed, and how errors in them are reported.

use std::fs;

use serde_json::Value;

use crate::world::{Said, World};

const VARIABLE: &str = "BANKSMAN_CONFIG_LOCKING__WAIT_TIMEOUT";

fn with_variable(world: &World, name: &str, value: &str, args: &[&str]) -> Said {
    world.command(args).env(name, value).output().unwrap().into()
}

/// The value and the source of a setting.
fn setting(world: &World, key: &str) -> (Value, Value) {
    let setting = world.data(&["config", "get", key]);
    (setting["value"].clone(), setting["source"].clone())
}

#[test]
fn each_layer_overrides_the_one_before() {
    let world = World::on_sqlite();
    let key = "locking.wait_timeout";
    assert_eq!(setting(&world, key), ("30m".into(), "default".into()));
    world.ok(&["config", "set", "--user", key, "90m"]);
    assert_eq!(setting(&world, key), ("90m".into(), "user".into()));
    world.ok(&["config", "set", key, "60s"]);
    assert_eq!(setting(&world, key), ("60s".into(), "project".into()));
    assert_eq!(world.ok(&["config", "get", "--user", key]), "90m\n");
    let said = with_variable(&world, VARIABLE, "1h30m", &["config", "get", key]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "1h30m\n"), "as it was written");

    // The setting that is shown takes effect: the wait ends at once, and a flag overrides everything.
    world.ok(&["locks", "acquire", "db", "--holder", "a"]);
    let said = with_variable(&world, VARIABLE, "1ms", &["locks", "acquire", "db", "--holder", "b"]);
    assert_eq!((said.code, said.stderr.contains("waited too long")), (6, true), "{said:?}");
    world.ok(&["config", "set", key, "0s"]);
    assert_eq!(world.run(&["locks", "acquire", "db", "--holder", "b"]).code, 6);
    let waiter = world.start(&["locks", "acquire", "db", "--holder", "b", "--timeout", "1h"]);
    world.until_waiters("db", 1);
    drop(waiter);
}

#[test]
fn unset_restores_the_value_of_the_layer_below() {
    let world = World::on_sqlite();
    let key = "locking.wait_timeout";
    let file = world.path().join(".banksman/config.toml");
    let before = fs::read_to_string(&file).unwrap();
    world.ok(&["config", "set", "--user", key, "90m"]);
    world.ok(&["config", "set", key, "60s"]);
    world.ok(&["config", "unset", key]);
    assert_eq!(setting(&world, key), ("90m".into(), "user".into()));
    world.ok(&["config", "unset", "--user", key]);
    assert_eq!(setting(&world, key), ("30m".into(), "default".into()));
    world.ok(&["config", "unset", "locking.overtake"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), before, "nothing is left of it, nor of one that was not set");
}

#[test]
fn a_setting_without_effect_is_accepted_with_a_note() {
    let world = World::on_sqlite();
    let said = world.run(&["config", "set", "locking.section_timeout", "3s"]);
    assert!(said.code == 0 && said.stderr.contains("this setting has no effect: an exclusive section is held"), "{said:?}");
    assert!(world.run(&["config", "set", "locking.task_timeout", "3s"]).stderr.is_empty());
    assert_eq!(setting(&world, "locking.section_timeout"), ("3s".into(), "project".into()), "a file with it loads");
}

#[test]
fn settings_can_be_read_and_set_outside_of_a_project() {
    let world = World::empty_on_sqlite();
    world.ok(&["config", "set", "--user", "locking.poll_interval", "7s"]);
    assert_eq!(world.ok(&["config", "get", "locking.poll_interval"]), "7s\n");
    let list = world.data(&["config", "list"]);
    let all = banksman_runtime::config::KEYS.len();
    assert_eq!((list["settings"].as_array().unwrap().len(), &list["projectFile"]), (all, &Value::Null));
    let error = world.assert_refused(&["config", "set", "locking.poll_interval", "7s"], 4, "PROJECT_NOT_FOUND");
    assert!(error["hint"].as_str().unwrap().contains("--user"));
}

#[test]
fn set_changes_only_its_own_line_of_the_file() {
    let world = World::on_sqlite();
    let file = world.path().join(".banksman/config.toml");
    let before = fs::read_to_string(&file).unwrap() + "\n[locking] # ours\n# do not touch\npoll_interval = '2s' # fast\n";
    fs::write(&file, &before).unwrap();
    world.ok(&["config", "set", "locking.poll_interval", "3s"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), before.replace("'2s'", "\"3s\""));
}

#[test]
fn all_errors_of_all_layers_are_reported_at_once() {
    let world = World::on_sqlite().unchecked();
    fs::write(world.path().join(".banksman/config.toml"), "[locking]\nheartbeat = '5s'\nwait_timeout = 'soon'\n").unwrap();
    let file = format!("{}/.banksman/config.toml", world.path().canonicalize().unwrap().display());
    for args in [&["locks", "list"][..], &["config", "list"], &["config", "get", "locking.poll_interval"]] {
        let said = with_variable(&world, "BANKSMAN_CONFIG_LOCKING__POLL", "5s", args);
        assert_eq!((said.code, said.stdout.as_str()), (3, ""), "{args:?}");
        for words in [
            "3 settings are wrong",
            &format!("{file}:2: locking.heartbeat: there is no such key; did you mean locking.heartbeat_timeout?"),
            &format!("{file}:3: locking.wait_timeout: \"soon\" is not a duration"),
            "BANKSMAN_CONFIG_LOCKING__POLL: locking.poll: there is no such key; did you mean BANKSMAN_CONFIG_LOCKING__POLL_INTERVAL?",
        ] {
            assert!(said.stderr.contains(words), "{words:?} is missing: {}", said.stderr);
        }
    }
    let (_, error) = world.error(&["locks", "list"]);
    let problem = &error["details"]["problems"][1];
    assert_eq!((&problem["line"], &problem["key"], &problem["place"]), (&3.into(), &"locking.wait_timeout".into(), &file.into()));

    // `set` corrects one setting at a time.
    let said = world.run(&["config", "set", "locking.wait_timeout", "5m"]);
    assert_eq!((said.code, said.stderr.contains("the settings have another error")), (0, true), "{said:?}");
}

#[test]
fn an_invalid_setting_is_not_written() {
    let world = World::on_sqlite();
    let file = world.path().join(".banksman/config.toml");
    let before = fs::read(&file).unwrap();
    for (args, words) in [
        (&["locking.heartbeat", "5s"][..], "did you mean locking.heartbeat_timeout?"),
        (&["locking.heartbeat_timeout", "5"], "has no unit"),
        (&["locking.heartbeat_timeout", "-5s"], "cannot be negative"),
        (&["locking.poll_interval", "0s"], "greater than zero"),
        (&["frobnicate", "5s"], "there is no such key"),
        (&["project", "p-1"], "not set by hand"),
        (&["store", "postgres://me:secret@db/x"], "may carry a password"),
        (&["--user", "store", "me:secret@db"], "must begin with postgres://"),
    ] {
        let error = world.assert_refused(&[&["config", "set"], args].concat(), 3, "CONFIG");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words) && !message.contains("secret"), "{args:?}: {message}");
    }
    assert_eq!(fs::read(&file).unwrap(), before);
    let (code, error) = world.error(&["config", "get", "locking.wait"]);
    assert_eq!((code, error["message"].as_str().unwrap().contains("did you mean locking.wait_timeout?")), (3, true));
    world.assert_refused(&["config", "get", "store"], 4, "NOT_SET");
}

#[test]
fn the_store_url_is_private_and_its_password_is_never_printed() {
    let world = World::empty_on_sqlite();
    let url = "postgres://me:hunter2@db.example/app";
    world.ok(&["config", "set", "--user", "store", url]);
    let file = world.path().join("config/banksman/config.toml");
    assert!(fs::read_to_string(&file).unwrap().contains(url));
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    for args in [&["config", "list"][..], &["config", "get", "store"], &["config", "list", "--json"], &["--help"]] {
        let said = with_variable(&world, "BANKSMAN_STORE", url, args);
        assert_eq!((said.code, said.stdout.contains("hunter2")), (0, false), "{said:?}");
    }
    assert_eq!(setting(&world, "store"), ("postgres://me:***@db.example/app".into(), "user".into()));
    let given = world.data(&["--store", "postgres://other/x", "config", "get", "store"]);
    assert_eq!((&given["source"], &given["place"]), (&"flag".into(), &"--store".into()));
    let (code, error) = {
        let said = with_variable(&world, "BANKSMAN_CONFIG_STORE", url, &["config", "list", "--json"]);
        (said.code, said.stdout)
    };
    assert_eq!((code, error.contains("BANKSMAN_STORE"), error.contains("hunter2")), (3, true, false), "{error}");
}

#[test]
fn the_store_of_the_user_is_used_and_a_flag_wins_over_it() {
    let world = World::empty_on_sqlite();
    world.ok(&["config", "set", "--user", "store", &crate::postgres::fresh_database()]);
    world.ok(&["init"]);
    assert!(!world.has(".banksman/store.db"), "it is in the database");
    world.ok(&["locks", "run", "x", "--", "true"]);
    assert_eq!(world.data(&["events"])["events"].as_array().unwrap().len(), 2);
    assert_eq!(setting(&world, "project").1, "project");
    world.assert_refused(&["--store", "sqlite:.banksman/store.db", "events"], 4, "STORE_MISSING");
}

#[test]
fn set_warns_when_another_layer_overrides_the_value() {
    let world = World::on_sqlite();
    world.ok(&["config", "set", "locking.wait_timeout", "5m"]);
    let said = world.run(&["config", "set", "--user", "locking.wait_timeout", "6m"]);
    assert!(said.stderr.contains(".banksman/config.toml overrides this value here"), "{said:?}");
    let said = with_variable(&world, VARIABLE, "7m", &["config", "set", "locking.wait_timeout", "8m"]);
    assert!(said.stderr.contains(&format!("{VARIABLE} overrides this value here")), "{said:?}");
    assert_eq!(world.run(&["config", "set", "locking.wait_timeout", "9m"]).stderr, "");
}
