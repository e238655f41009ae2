//! Changing how a task is run, and cancelling many tasks at once.

use banksman_core::task::Spec;
use banksman_core::{TaskId, Title};
use banksman_engine::{TaskOutcome, TaskRequest};

use crate::import::listed;
use crate::screen::Screen;
use crate::world::{BANKSMAN, World, until};

#[test]
fn command_needs_retries_and_loop_can_be_changed() {
    let world = World::new();
    world.ok(&["tasks", "add", "Build", "--run", "exit 1", "--lock", "old"]);
    world.ok(&["tasks", "add", "Poll", "--run", "true"]);
    world.ok(&["tasks", "add", "Sign"]);
    world.ok(&[
        "tasks",
        "update",
        "Build",
        "--run",
        &format!("{BANKSMAN} locks show db --json > held"),
        "--lock",
        "db",
        "--retries",
        "2",
    ]);
    let poll = format!("echo $BANKSMAN_ATTEMPT >> seen; [ $BANKSMAN_ATTEMPT -lt 1 ] || {BANKSMAN} tasks done");
    world.ok(&["tasks", "update", "Poll", "--run", &poll, "--loop", "--max-attempts", "3", "--restart-delay", "10ms"]);
    world.ok(&["tasks", "update", "Sign", "--run", "true"]);
    let (code, error) = world.error(&["tasks", "update", "Poll", "--retries", "2"]);
    assert!(code == 2 && error["hint"].as_str().unwrap().contains("--no-loop"), "{error}");
    assert_eq!(world.run(&["run", "--until-idle"]).code, 0, "{:?}", listed(&world));
    let held = std::fs::read_to_string(world.path().join("held")).unwrap();
    assert!(held.contains("run:r-"), "the new lock was held: {held}");
    assert_eq!(std::fs::read_to_string(world.path().join("seen")).unwrap(), "0\n1\n");
}

#[test]
fn command_and_needs_of_a_live_run_cannot_be_changed() {
    let world = World::new();
    world.ok(&["tasks", "add", "Build", "--run", "while [ ! -e open ]; do sleep 0.01; done"]);
    let runner = world.start(&["run", "--until-idle"]);
    until("it runs", || listed(&world)[0].1 == "in_progress");
    for flags in [["--run", "true"], ["--lock", "db"]] {
        assert_ne!(world.run(&["tasks", "update", "Build", flags[0], flags[1]]).code, 0);
    }
    world.touch("open");
    assert_eq!(runner.end().code, 0);
}

#[test]
fn tasks_are_cancelled_by_label_section_and_all() {
    let world = World::new();
    world.ok(&["sections", "add", "backend"]);
    world.ok(&["tasks", "add", "A", "--run", "true", "--label", "old", "--section", "backend"]);
    world.ok(&["tasks", "add", "B", "--run", "true", "--label", "old"]);
    world.ok(&["tasks", "add", "C", "--run", "true", "--section", "backend"]);
    world.ok(&["tasks", "add", "D"]);
    let cancelled = |flags: &[&str]| {
        let data = world.data(&[&["tasks", "cancel"], flags].concat());
        let titles = data["tasks"].as_array().unwrap().iter().map(|task| task["title"].as_str().unwrap().to_owned());
        titles.collect::<Vec<_>>()
    };
    assert_eq!(cancelled(&["--running"]), Vec::<String>::new());
    assert_eq!(cancelled(&["--label", "old", "--section", "backend"]), ["A"]);
    assert_eq!(cancelled(&["--label", "old"]), ["B"]);
    assert_eq!(cancelled(&["--all"]), ["C", "D"]);
    assert_eq!(world.run(&["tasks", "cancel"]).code, 2);
}

#[test]
fn many_tasks_are_cancelled_in_one_transaction() {
    let world = World::new();
    let parent = TaskId::new(world.data(&["tasks", "add", "Parent"])["id"].as_str().unwrap()).unwrap();
    let child = Spec { parent: Some(parent), ..Spec::new(Title::new("Child").unwrap()) };
    let client = world.project().open().unwrap();
    let add =
        TaskRequest::Add { id: TaskId::new("t-11111111").unwrap(), spec: Box::new(child), depends_on: Vec::new(), by: None };
    client.request(add).unwrap();
    for title in ["A", "B", "C", "D"] {
        world.ok(&["tasks", "add", title, "--run", "true"]);
    }
    // One unknown id refuses the request for all of them.
    let id = |name: &str| TaskId::new(world.data(&["tasks", "show", name])["id"].as_str().unwrap()).unwrap();
    let unknown = TaskId::new("t-00000000").unwrap();
    let request = TaskRequest::CancelAll { ids: vec![id("A"), id("B"), unknown.clone()] };
    assert_eq!(client.request(request).unwrap(), TaskOutcome::RefusedBy(unknown, Box::new(TaskOutcome::Unknown)));
    assert!(listed(&world).iter().all(|(_, status)| status == "pending"), "{:?}", listed(&world));
    let before = world.events().len();
    drop(client);

    let data = world.data(&["tasks", "cancel", "--all"]);
    let outcomes: Vec<&str> = data["tasks"].as_array().unwrap().iter().map(|task| task["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["cancelled"; 6], "a child that goes with its parent was not over before");
    assert!(listed(&world).iter().all(|(_, status)| status == "cancelled"));
    let events = world.events();
    let times: Vec<_> = events[before..].iter().map(|event| event.wall).collect();
    assert!(times.len() >= 6 && times.iter().all(|at| *at == times[0]), "one transaction has one time: {times:?}");
    let again = world.data(&["tasks", "cancel", "A", "B"]);
    assert_eq!((&again["tasks"][0]["outcome"], &again["tasks"][1]["outcome"]), (&"already_over".into(), &"already_over".into()));
}

#[test]
fn in_a_terminal_cancelling_many_tasks_asks_first() {
    let world = World::new();
    for title in ["A", "B", "C", "D"] {
        world.ok(&["tasks", "add", title, "--run", "true"]);
    }
    let mut screen = Screen::start(&world, &["tasks", "cancel", "--all"], 10, 80);
    screen.until_shows("cancel 4 tasks: A, B, C and 1 more? [y/N]");
    screen.press("n\n");
    assert!(screen.end().1.contains("nothing was cancelled"));
    assert!(listed(&world).iter().all(|(_, status)| status == "pending"));
    let mut screen = Screen::start(&world, &["tasks", "cancel", "--all"], 10, 80);
    screen.until_shows("[y/N]");
    screen.press("y\n");
    drop(screen.end());
    assert!(listed(&world).iter().all(|(_, status)| status == "cancelled"));
}

#[test]
fn logs_of_several_tasks_are_prefixed_with_their_titles() {
    let world = World::new();
    world.ok(&["tasks", "add", "Build", "--run", "echo one; while [ ! -e open ]; do sleep 0.01; done; echo two"]);
    let again = "echo try $BANKSMAN_ATTEMPT; [ $BANKSMAN_ATTEMPT = 1 ]";
    world.ok(&["tasks", "add", "Login", "--run", again, "--retries", "1"]);
    let logs = world.start(&["tasks", "logs", "Build", "Login", "--follow"]);
    let all = world.start(&["logs", "--all", "--follow"]);
    let runner = world.start(&["run", "--until-idle"]);
    until("one has ended", || listed(&world).iter().any(|(title, status)| title == "Login" && status == "completed"));
    world.touch("open");
    assert_eq!(runner.end().code, 0);
    let said = logs.end();
    let mut lines: Vec<&str> = said.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((said.code, lines), (0, vec!["Build | one", "Build | two", "Login | try 0", "Login | try 1"]));
    all.signal(rustix::process::Signal::TERM);
    assert!(all.end().stdout.contains("Build | two"));
    let printed = world.ok(&["logs", "Build", "Login"]);
    assert_eq!(printed, "Build | one\nBuild | two\nLogin | try 1\n");
}
