//! A program that uses a runner is started again only if it has called `enter`.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use banksman::{Error, NewTask};
use banksman_core::pipeline::plan::MergeHow;
use banksman_core::task::{Spec, Work};
use banksman_core::{TaskId, Title};
use banksman_engine::{Request, TaskRequest};

use crate::World;

const PROGRAM: &str = env!("CARGO_BIN_EXE_banksman-library-test");

fn git(directory: &Path, args: &[&str]) -> String {
    let id = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
    let done = Command::new("git").current_dir(directory).args(id).args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
}

/// A project in a repository, with a task that runs a command and one that merges a branch.
fn world() -> World {
    let world = World::new();
    git(world.path(), &["init", "-q", "-b", "main"]);
    std::fs::write(world.path().join(".gitignore"), "/*\n!/topic\n").unwrap();
    git(world.path(), &["add", "-f", ".gitignore"]);
    git(world.path(), &["commit", "-q", "-m", "base"]);
    git(world.path(), &["switch", "-q", "-c", "topic"]);
    std::fs::write(world.path().join("topic"), "").unwrap();
    git(world.path(), &["add", "topic"]);
    git(world.path(), &["commit", "-q", "-m", "topic"]);
    git(world.path(), &["switch", "-q", "main"]);
    add(&world, "t-1", Work::Run("echo ran >> ran".into()));
    add(&world, "t-2", Work::Merge { branch: "topic".into(), into: "main".into(), how: MergeHow::FastForward });
    world
}

fn add(world: &World, id: &str, work: Work) {
    let spec = Box::new(Spec { work: Some(work), ..Spec::new(Title::new(id).unwrap()) });
    let id = TaskId::new(id).unwrap();
    world.runtime().call(Request::Task(TaskRequest::Add { id, spec, depends_on: Vec::new(), by: None })).unwrap();
}

fn run(world: &World, mode: &str, program: Option<&str>) -> Output {
    Command::new(PROGRAM).arg(mode).arg(world.path()).args(program).output().unwrap()
}

fn lines(world: &World, file: &str) -> usize {
    std::fs::read_to_string(world.path().join(file)).map_or(0, |text| text.lines().count())
}

#[test]
fn with_enter_tasks_run_and_branches_are_merged() {
    let world = world();
    let done = run(&world, "entered", None);
    assert!(done.status.success(), "{done:?}");
    assert_eq!((lines(&world, "mains"), lines(&world, "ran")), (1, 1));
    assert_eq!(git(world.path(), &["rev-parse", "main"]), git(world.path(), &["rev-parse", "topic"]));
}

#[test]
fn without_enter_a_runner_is_refused() {
    let world = world();
    let done = run(&world, "careless", None);
    assert!(!done.status.success());
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.starts_with("NotEntered:") && said.contains("banksman::enter()"), "{said}");
    assert_eq!((lines(&world, "mains"), lines(&world, "ran")), (1, 0));
    // A runner on a thread does not start either: this test program has not called `enter`.
    assert!(matches!(world.client().runner().start(), Err(Error::NotEntered)));
    // Naming itself as the supervisor does not help.
    assert!(!run(&world, "named", Some(PROGRAM)).status.success());
    assert_eq!((lines(&world, "mains"), lines(&world, "ran")), (2, 0));
}

#[test]
fn another_program_can_be_the_supervisor() {
    let world = world();
    // A copy is another file, and its `main` calls `enter`.
    let keeper = world.path().join("keeper");
    std::fs::copy(PROGRAM, &keeper).unwrap();
    let done = run(&world, "named", keeper.to_str());
    assert!(done.status.success(), "{done:?}");
    assert_eq!((lines(&world, "mains"), lines(&world, "ran")), (1, 1));
    assert_eq!(git(world.path(), &["rev-parse", "main"]), git(world.path(), &["rev-parse", "topic"]));
}

#[test]
fn a_runner_on_a_thread_works_until_it_is_stopped() {
    let world = World::new();
    let done = run(&world, "thread", None);
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8(done.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(matches!(lines[..], [failed, "pending"] if failed.starts_with("failed: ")), "{said}");
}

#[test]
fn a_waiting_run_lends_its_slot_to_its_child() {
    let world = World::new();
    let config = world.path().join(".banksman/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}\n[limits]\nmax_concurrent_runs = \"1\"\n")).unwrap();
    let tasks = world.client().tasks();
    let command = format!("'{PROGRAM}' parent '{}'", world.path().display());
    let parent = tasks.add(NewTask::new("Parent").run(command).timeout(Duration::from_secs(60))).unwrap();
    let done = run(&world, "entered", None);
    assert!(done.status.success(), "{done:?}");
    let parent = tasks.get(&parent).unwrap();
    assert_eq!(parent.output::<String>().unwrap().as_deref(), Some("completed"), "{parent:?}");
}
