//! The files of a project: private to their owner, reached through no link, and moved with the project.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::{Said, World, until};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// All paths below a directory.
fn below(dir: &Path) -> Vec<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let deeper: Vec<PathBuf> =
        entries.iter().filter(|path| path.symlink_metadata().unwrap().is_dir()).flat_map(|path| below(path)).collect();
    entries.into_iter().chain(deeper).collect()
}

#[test]
fn a_project_is_private_also_after_a_clone() {
    let world = World::on_sqlite();
    world.ok(&["tasks", "add", "A", "--run", "echo hello"]);
    world.ok(&["run", "--until-idle"]);
    let folder = world.path().join(".banksman");
    let is_committed = |path: &Path| ["config.toml", ".gitignore", "runbooks"].iter().any(|name| path.ends_with(name));
    let private = || below(&folder).into_iter().filter(|path| !is_committed(path)).chain([folder.clone()]);
    for path in private() {
        assert_eq!(mode(&path) & 0o077, 0, "{} is made with mode {:o}", path.display(), mode(&path));
    }
    // The modes with which git and tar create them.
    for name in ["", "run", "logs", "runs", "tasks"] {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for name in ["store.db", "turn", "turn.gate"] {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    world.ok(&["status"]);
    for path in private() {
        assert_eq!(mode(&path) & 0o077, 0, "{} has mode {:o}", path.display(), mode(&path));
    }
    assert_eq!(mode(&folder.join("config.toml")), 0o644, "the repository's files are left alone");
}

#[test]
fn symlinks_in_a_project_folder_are_refused() {
    for name in ["turn", "turn.gate", "run", "runs", "logs", "tasks", "workspaces", "run/bell", "store.db"] {
        let world = World::on_sqlite().unchecked();
        world.ok(&["tasks", "add", "A", "--run", "echo hello"]);
        let (entry, outside) = (world.path().join(".banksman").join(name), world.path().join("outside"));
        if entry.exists() {
            fs::rename(&entry, &outside).unwrap();
            fs::rename(&outside, world.path().join("kept")).unwrap();
        }
        let target = if name == "store.db" { world.path().join("kept") } else { outside.clone() };
        symlink(&target, &entry).unwrap();
        let error = world.assert_refused(&["run", "--until-idle"], 5, "STORE_UNSAFE");
        assert!(error["message"].as_str().unwrap().contains(&format!(".banksman/{name}")), "{error}");
        assert!(!outside.exists(), "{name} was made outside of the project");
    }
    let world = World::empty_on_sqlite();
    fs::create_dir(world.path().join("outside")).unwrap();
    symlink("outside", world.path().join(".banksman")).unwrap();
    assert_eq!(world.error(&["init"]).1["code"], "STORE_UNSAFE");
    assert_eq!(fs::read_dir(world.path().join("outside")).unwrap().count(), 0);
}

#[test]
fn files_made_as_root_belong_to_the_owner_of_the_directory() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = World::empty_on_sqlite();
    let owner = 65_534;
    std::os::unix::fs::chown(world.path(), Some(owner), Some(owner)).unwrap();
    world.ok(&["init"]);
    world.ok(&["tasks", "add", "A", "--run", "echo hello", "--workspace", "dir"]);
    world.ok(&["run", "--until-idle"]);
    let folder = world.path().join(".banksman");
    for path in below(&folder).into_iter().chain([folder]) {
        assert_eq!(path.symlink_metadata().unwrap().uid(), owner, "{}", path.display());
    }
}

#[test]
fn a_runner_of_a_moved_project_stops_and_recreates_nothing() {
    let world = World::on_sqlite();
    let (old, new) = (world.path().join("old"), world.path().join("new"));
    fs::create_dir(&old).unwrap();
    let at = |dir: &Path| dir.to_str().unwrap().to_owned();
    world.ok(&["-C", &at(&old), "init"]);
    let wait = "touch started; while [ ! -e go ]; do sleep 0.02; done";
    world.ok(&["-C", &at(&old), "tasks", "add", "A", "--run", wait]);
    world.ok(&["-C", &at(&old), "tasks", "add", "B", "--depends-on", "A", "--run", "pwd > where"]);
    let runner = world.start(&["-C", &at(&old), "run", "--until-idle"]);
    until("A has started", || old.join("started").exists());
    fs::rename(&old, &new).unwrap();
    fs::write(new.join("go"), "").unwrap();
    let Said { code, stderr, .. } = runner.end();
    assert_eq!(code, 7, "{stderr}");
    assert!(stderr.contains(&format!("moved to {}", at(&new))), "{stderr}");
    assert!(!old.exists(), "the old directory was made again");
    world.ok(&["-C", &at(&new), "run", "--until-idle"]);
    assert_eq!(fs::read_to_string(new.join("where")).unwrap().trim(), at(&new.canonicalize().unwrap()));
    assert!(!old.exists());
}

#[test]
fn a_session_of_a_moved_project_is_adopted_at_the_new_path() {
    let world = World::on_sqlite();
    let (old, new) = (world.path().join("old"), world.path().join("new"));
    fs::create_dir(&old).unwrap();
    let at = |dir: &Path| dir.to_str().unwrap().to_owned();
    let run = |dir: &Path, args: &[&str]| {
        let mut command: Command = world.command(&[&["-C", &at(dir)], args].concat());
        command.env_remove("XDG_RUNTIME_DIR").env("BANKSMAN_CONFIG_LOCKING__POLL_INTERVAL", "200ms");
        command
    };
    assert!(run(&old, &["init"]).output().unwrap().status.success());
    let wait = "touch started; while [ ! -e go ]; do sleep 0.02; done; echo once >> ends";
    assert!(run(&old, &["tasks", "add", "A", "--run", wait]).output().unwrap().status.success());
    let mut runner = run(&old, &["run"]).stderr(std::process::Stdio::null()).spawn().unwrap();
    until("A has started and can be adopted", || {
        old.join("started").exists()
            && fs::read_dir(old.join(".banksman/run"))
                .unwrap()
                .flatten()
                .any(|entry| entry.file_name() != "bell" && !entry.path().ends_with(".wake"))
    });
    fs::rename(&old, &new).unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(7));
    let mut next = run(&new, &["run", "--until-idle"]).spawn().unwrap();
    fs::write(new.join("go"), "").unwrap();
    assert!(next.wait().unwrap().success());
    assert_eq!(fs::read_to_string(new.join("ends")).unwrap(), "once\n");
    assert!(!old.exists());
}

#[test]
fn doctor_removes_the_sockets_of_killed_waiters() {
    let world = World::on_sqlite();
    world.ok(&["locks", "define", "x"]);
    let run = world.path().join(".banksman/run");
    for number in 0..20 {
        drop(UnixDatagram::bind(run.join(format!("w-{number}.wake"))).unwrap());
    }
    let count =
        || fs::read_dir(&run).unwrap().flatten().filter(|entry| entry.path().extension() == Some("wake".as_ref())).count();
    let said = world.run(&["doctor"]);
    assert!(said.code == 0 && said.stdout.contains("sockets of killed processes: 20"), "{said:?}");
    assert_eq!(count(), 20, "without --fix nothing is changed");
    world.ok(&["doctor", "--fix"]);
    assert_eq!(count(), 0);
}
