//! One project has one store: every command finds the same one, and none makes a second one by accident.

use std::path::Path;

use banksman_runtime::config::Environment;
use banksman_runtime::{Project, ProjectError};

use crate::postgres;
use crate::world::World;

fn git(cwd: &Path, args: &[&str]) {
    let id = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main"];
    let done = std::process::Command::new("git").current_dir(cwd).args(id).args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {done:?}");
}

/// Commits the files that `init` made, as the guide describes it, and clones the repository into `clone`.
fn commit_and_clone(world: &World) -> String {
    git(world.path(), &["init", "-q"]);
    git(world.path(), &["add", ".banksman"]);
    git(world.path(), &["commit", "-qm", "Use banksman"]);
    git(world.path(), &["clone", "-q", ".", "clone"]);
    world.path().join("clone").to_str().unwrap().to_owned()
}

#[test]
fn a_clone_of_a_shared_project_finds_only_the_shared_store() {
    let url = postgres::fresh_database();
    let world = World::empty_on_sqlite();
    let made = world.run(&["init", "--store", &url]);
    assert!(made.code == 0 && made.stderr.contains("--store applies to this command only"), "{made:?}");
    world.ok(&["--store", &url, "locks", "acquire", "deploy", "--holder", "first"]);
    let clone = commit_and_clone(&world);
    let id = Project::committed_id(Path::new(&clone)).unwrap();

    // Without the URL, every command reports that the store is elsewhere.
    let error = world.assert_refused(&["-C", &clone, "locks", "acquire", "deploy", "--holder", "second"], 3, "STORE_ELSEWHERE");
    assert!(error["message"].as_str().unwrap().contains(&id), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("BANKSMAN_STORE"), "{error}");

    // No second store is made for the project: neither a file nor a project in another database.
    let other = postgres::fresh_database();
    for init in [vec!["-C", &clone, "init"], vec!["-C", &clone, "--store", &other, "init"]] {
        world.assert_refused(&init, 3, "STORE_ELSEWHERE");
    }
    assert!(!Path::new(&clone).join(".banksman/store.db").exists());

    // With the URL, from a flag or a setting, it is the same project.
    let holder = |data: serde_json::Value| data["locks"][0]["holder"].as_str().unwrap().to_owned();
    assert_eq!(holder(world.data(&["-C", &clone, "--store", &url, "locks", "list"])), "first");
    world.ok(&["config", "set", "--user", "store", &url]);
    assert_eq!(holder(world.data(&["-C", &clone, "locks", "list"])), "first");
    assert_eq!(world.error(&["-C", &clone, "init"]).1["code"], "PROJECT_EXISTS");

    // The library finds the same store as the command.
    let environment = Environment { user_file: Some(world.path().join("config/banksman/config.toml")), ..Environment::default() };
    let found = Project::discover(Path::new(&clone), &environment).unwrap();
    assert!(found.store().contains(&id), "{}", found.store());
    let alone = Project::discover(Path::new(&clone), &Environment::default());
    assert!(matches!(alone, Err(ProjectError::Elsewhere { .. })), "{alone:?}");

    // A separate project can be made explicitly.
    std::fs::remove_file(world.path().join("config/banksman/config.toml")).unwrap();
    world.ok(&["-C", &clone, "init", "--new-id"]);
    assert_eq!(world.data(&["-C", &clone, "locks", "list"])["locks"].as_array().unwrap().len(), 0);
    assert_ne!(Project::committed_id(Path::new(&clone)).unwrap(), id);
}

#[test]
fn a_user_setting_does_not_hide_the_store_in_a_project() {
    let world = World::on_sqlite().unchecked();
    world.ok(&["locks", "acquire", "deploy", "--holder", "first"]);
    // The server is not contacted: this address has none.
    world.ok(&["config", "set", "--user", "store", "postgres://me:secret@db.invalid/agents"]);
    let error = world.assert_refused(&["locks", "acquire", "deploy", "--holder", "second"], 3, "TWO_STORES");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("store.db") && message.contains("db.invalid"), "{message}");
    assert!(!error.to_string().contains("secret"), "{error}");
    assert_eq!(world.error(&["init"]).1["code"], "PROJECT_EXISTS");
    let file = format!("sqlite:{}", world.path().join(".banksman/store.db").display());
    assert_eq!(world.data(&["--store", &file, "locks", "list"])["locks"][0]["holder"], "first");
}

#[test]
fn a_missing_store_is_not_a_missing_project() {
    let world = World::on_sqlite();
    let clone = commit_and_clone(&world);
    let id = Project::committed_id(world.path()).unwrap();
    for args in [["-C", &clone, "status"], ["-C", &clone, "run"]] {
        let error = world.assert_refused(&args, 4, "STORE_MISSING");
        assert!(error["message"].as_str().unwrap().contains(&id), "{error}");
    }
    // Also in a subdirectory, and although a parent directory is another project.
    std::fs::create_dir(Path::new(&clone).join("sub")).unwrap();
    assert_eq!(world.error(&["-C", &format!("{clone}/sub"), "status"]).1["code"], "STORE_MISSING");
    // A clone of a project on SQLite may have its own store, with a warning.
    let said = world.run(&["-C", &clone, "init"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains(&id) && said.stderr.contains("shares no lock"), "{said:?}");
    assert_eq!(world.run(&["-C", &clone, "status"]).code, 0);
}

#[test]
fn init_that_fails_leaves_the_config_as_it_was() {
    let world = World::on_sqlite();
    let clone = commit_and_clone(&world);
    let config = Path::new(&clone).join(".banksman/config.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    let unreachable = format!("postgres:///none?host={}&user=me", world.path().display());
    for new_id in [vec![], vec!["--new-id"]] {
        let said = world.run(&[vec!["-C", &clone, "--store", &unreachable, "init"], new_id].concat());
        assert_eq!(said.code, 7, "{said:?}");
        assert_eq!(std::fs::read_to_string(&config).unwrap(), before);
    }
}
