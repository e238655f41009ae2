//! Processes that share a store but not their HOME, their clocks or their pids: other users, time namespaces, containers.
//!
//! A namespace needs root, or user namespaces. Where `unshare` is refused, the test reports that and is skipped.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::postgres;
use crate::world::{BANKSMAN, Running, Said, World, until};

/// A task that runs until the file `open` exists.
const UNTIL_OPEN: &str = "echo $$ >> begun; while [ ! -e open ]; do sleep 0.02; done; echo $$ >> done";

/// Whether `unshare` with these options is permitted. These tests concern one machine, so they are skipped on PostgreSQL.
#[expect(clippy::print_stderr, reason = "that a test was skipped must be seen")]
fn may_unshare(options: &[&str]) -> bool {
    if postgres::wanted() {
        return false;
    }
    let tried = Command::new("unshare").args(options).arg("true").stderr(Stdio::null()).status();
    let may = tried.is_ok_and(|status| status.success());
    if !may {
        eprintln!("skipped: unshare {} is not permitted here", options.join(" "));
    }
    may
}

/// `banksman ARGS` in namespaces of its own.
fn unshared(world: &World, options: &[&str], args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(options).arg(BANKSMAN);
    world.clean(command, args)
}

fn start(mut command: Command) -> Running {
    Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn a_runner_with_another_home_adopts_the_runs_of_the_first() {
    let Some(world) = World::only_on_sqlite() else { return };
    world.ok(&["tasks", "add", "Long", "--run", UNTIL_OPEN]);
    let runner = |home: &str| {
        let trusted = world.command(&["trust"]).env("XDG_STATE_HOME", world.path().join(home)).output().unwrap();
        assert!(trusted.status.success(), "{trusted:?}");
        let mut command = world.command(&["run", "--until-idle"]);
        command.env("XDG_STATE_HOME", world.path().join(home));
        start(command)
    };
    let first = runner("h1");
    until("the task has begun", || world.lines("begun").len() == 1);
    first.signal(Signal::KILL);
    let second = runner("h2");
    until("the run is adopted", || world.events().iter().any(|event| event.kind == "task:adopted"));
    world.touch("open");
    assert_eq!(second.end().code, 0);
    assert_eq!((world.lines("begun").len(), world.lines("done").len()), (1, 1), "it was not started again");
}

/// A clock ten days ahead, with another boot time.
const AHEAD: [&str; 5] = ["-T", "--monotonic", "864000", "--boottime", "100000"];

#[test]
fn a_lock_is_not_taken_from_a_live_holder_by_another_time_namespace() {
    if !may_unshare(&AHEAD) {
        return;
    }
    let world = World::on_sqlite();
    let inside = |args: &[&str]| unshared(&world, &AHEAD, args).output().unwrap().status.code();
    let acquire = |lock: &'static str| ["locks", "acquire", lock, "--holder", "thief", "--no-wait"];
    let held = "locks run holds x until it is killed";
    // The holder is outside, the command inside; with a process, then with a lease.
    let outside = start(world.command(&["locks", "run", "x", "--holder", "outside", "--", "sleep", "600"]));
    world.until_held_by("x", "outside");
    assert_eq!(inside(&acquire("x")), Some(6), "{held}");
    world.ok(&["locks", "acquire", "leased", "--holder", "person", "--ttl", "1h"]);
    assert_eq!(inside(&acquire("leased")), Some(6), "an hour is not over");
    outside.stop();
    // The holder is inside, the command outside.
    let other = start(unshared(&world, &AHEAD, &["locks", "run", "x", "--holder", "inside", "--", "sleep", "600"]));
    world.until_held_by("x", "inside");
    assert_eq!(world.run(&acquire("x")).code, 6, "{held}");
    other.signal(Signal::KILL);
    // Its death is visible outside as well.
    assert_eq!(world.run(&["locks", "acquire", "x", "--holder", "heir", "--timeout", "20s"]).code, 0);
}

#[test]
fn lease_time_continues_after_writes_from_another_time_namespace() {
    if !may_unshare(&AHEAD) {
        return;
    }
    let world = World::on_sqlite();
    let inside = unshared(&world, &AHEAD, &["locks", "acquire", "other", "--holder", "inside"]).status().unwrap();
    assert!(inside.success());
    world.ok(&["locks", "acquire", "x", "--holder", "first", "--ttl", "300ms"]);
    let before = Instant::now();
    assert_eq!(world.run(&["locks", "acquire", "x", "--holder", "second", "--timeout", "20s"]).code, 0, "300 ms pass");
    assert!(before.elapsed() < Duration::from_secs(15), "{:?}", before.elapsed());
}

/// Mounts a FUSE file system without a server. Its files belong to another user, so the kernel answers `statfs` by itself.
const ON_FUSE: &str =
    r#"mount -i -n -t fuse -o fd=3,rootmode=40000,user_id=4242,group_id=4242 none "$0" 3<>/dev/fuse && exec "$@""#;

#[test]
fn init_refuses_a_fuse_file_system() {
    if !may_unshare(&["-m", "sh", "-c", ON_FUSE, "/mnt"]) {
        return;
    }
    let world = World::empty_on_sqlite();
    let mount = world.path().join("fuse");
    std::fs::create_dir(&mount).unwrap();
    let store = format!("sqlite:{}/store.db", mount.display());
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", ON_FUSE]).arg(&mount).arg(BANKSMAN);
    let said: Said = world.clean(command, &["init"]).env("BANKSMAN_STORE", &store).output().unwrap().into();
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.stderr.contains("(FUSE)") && said.stderr.contains("PostgreSQL"), "{said:?}");
}

/// A container, as far as processes go: when its first process is killed, so are all others.
const CONTAINER: [&str; 4] = ["-p", "-f", "--mount-proc", "--kill-child"];

/// `banksman ARGS` in a container in which cgroups cannot be created, as in most.
fn contained(world: &World, args: &[&str]) -> Command {
    without_cgroups(world, &CONTAINER, args)
}

fn without_cgroups(world: &World, options: &[&str], args: &[&str]) -> Command {
    let hide = "mount -t tmpfs none /sys/fs/cgroup; exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(options).args(["sh", "-c", hide, BANKSMAN]);
    world.clean(command, args)
}

/// A runner in its own container that has begun the task `Long`.
fn begun_in_a_container(world: &World) -> Running {
    world.ok(&["tasks", "add", "Long", "--run", UNTIL_OPEN]);
    let runner = start(contained(world, &["run"]));
    until("the task has begun", || world.lines("begun").len() == 1);
    runner
}

/// The session of the only run, once the store knows it.
fn session_of_the_run(world: &World) -> banksman_core::backlog::Session {
    let everything = || world.everything();
    let session = || everything().backlog.runs.values().find_map(|run| run.session.clone());
    until("its processes are known", || session().is_some());
    session().unwrap()
}

fn decision(world: &World) -> Option<String> {
    let open = world.data(&["decisions", "list"])["decisions"].take();
    open[0]["id"].as_str().map(Into::into)
}

#[test]
fn a_runner_takes_over_the_runs_of_a_container_that_is_gone() {
    if !may_unshare(&CONTAINER) {
        return;
    }
    let world = World::on_sqlite();
    let container = begun_in_a_container(&world);
    container.signal(Signal::KILL);
    let runner = world.start(&["run", "--until-idle"]);
    until("a second attempt begins", || world.lines("begun").len() == 2);
    world.touch("open");
    assert_eq!(runner.end().code, 0);
    assert_eq!(world.data(&["tasks", "show", "Long"])["status"], "completed");
    assert!(!world.events().iter().any(|event| event.kind == "decision:raised"), "no decision is needed");
}

#[test]
fn a_person_decides_about_a_run_that_no_runner_can_probe() {
    if !may_unshare(&CONTAINER) {
        return;
    }
    let world = World::on_sqlite();
    let container = begun_in_a_container(&world);
    container.signal(Signal::KILL);
    // Another container cannot see the first one or its processes.
    let _runner = start(contained(&world, &["run"]));
    until("a person is asked", || decision(&world).is_some());
    let decision = decision(&world).unwrap();
    let why = world.ok(&["why", "Long"]);
    assert!(why.contains(&format!("banksman decisions show {decision}")), "{why}");
    assert_eq!(world.data(&["status"])["runs"][0]["decision"], decision.as_str());
    let doctor = world.run(&["doctor"]);
    assert_eq!(doctor.code, 7, "{doctor:?}");
    assert!(doctor.stdout.contains(&format!("banksman decisions resolve {decision}")), "{doctor:?}");
    let cancel: Said = contained(&world, &["tasks", "cancel", "Long"]).output().unwrap().into();
    assert_eq!(cancel.code, 6, "{cancel:?}");
    assert!(cancel.stderr.contains(&format!("banksman decisions resolve {decision}")), "{cancel:?}");
    world.ok(&["decisions", "resolve", &decision, "--recommended"]);
    assert_eq!(world.data(&["tasks", "show", "Long"])["status"], "cancelled", "that was wanted before");
    assert_eq!(world.lines("begun").len(), 1);
    until("the record is removed", || std::fs::read_dir(world.path().join(".banksman/runs")).unwrap().count() == 0);
}

#[test]
fn a_contained_runner_asks_about_runs_outside_and_continues() {
    if !may_unshare(&CONTAINER) {
        return;
    }
    let world = World::on_sqlite();
    world.ok(&["tasks", "add", "Long", "--run", UNTIL_OPEN]);
    let outside = start(without_cgroups(&world, &["-m"], &["run"]));
    until("the task has begun", || world.lines("begun").len() == 1);
    let session = session_of_the_run(&world);
    outside.signal(Signal::KILL);
    rustix::process::kill_process(rustix::process::Pid::from_raw(session.keeper).unwrap(), Signal::KILL).unwrap();
    let inside = start(contained(&world, &["run", "--until-idle"]));
    assert_eq!(inside.end().code, 7, "it does not wait for what only a person can tell");
    let decision = decision(&world).unwrap();
    assert_eq!(world.data(&["tasks", "show", "Long"])["status"], "stuck");
    world.ok(&["decisions", "resolve", &decision, "1"]);
    world.touch("open");
    let again: Said = contained(&world, &["run", "--until-idle"]).output().unwrap().into();
    assert_eq!(again.code, 0, "{again:?}");
    assert_eq!(world.data(&["tasks", "show", "Long"])["status"], "completed");
    assert_eq!(world.lines("begun").len(), 2);
}

/// The first attempt leaves a process that has neither the environment nor the session of its run; the next attempt checks for it.
const HIDES: &str = r#"
    if [ -e hidden ]; then
        case "$(cat /proc/$(cat hidden)/stat 2>/dev/null)" in ''|*') Z '*) ;; *) echo it lives >> survived ;; esac
        exit 0
    fi
    env -i PATH="$PATH" setsid sh -c 'echo $$ > hidden.new; mv hidden.new hidden; exec sleep 600' &
    while [ ! -e hidden ]; do sleep 0.01; done
    echo $$ >> begun
    sleep 600
"#;

#[expect(clippy::print_stderr, reason = "that a test was skipped must be seen")]
fn may_make_cgroups() -> bool {
    if postgres::wanted() {
        return false;
    }
    let may = banksman_adapters::keeper::has_cgroups();
    if !may {
        eprintln!("skipped: no cgroup can be made here");
    }
    may
}

#[test]
fn a_run_with_a_cgroup_is_ended_from_another_container() {
    if !may_unshare(&CONTAINER) || !may_make_cgroups() {
        return;
    }
    let world = World::on_sqlite();
    world.ok(&["tasks", "add", "Long", "--run", UNTIL_OPEN]);
    let outside = world.start(&["run"]);
    until("the task has begun", || world.lines("begun").len() == 1);
    let session = session_of_the_run(&world);
    outside.signal(Signal::KILL);
    rustix::process::kill_process(rustix::process::Pid::from_raw(session.keeper).unwrap(), Signal::KILL).unwrap();
    let inside = start(unshared(&world, &CONTAINER, &["run", "--until-idle"]));
    until("a second attempt begins", || world.lines("begun").len() == 2);
    world.touch("open");
    assert_eq!(inside.end().code, 0);
    assert!(!world.events().iter().any(|event| event.kind == "decision:raised"), "the group is the proof");
}

#[test]
fn no_process_of_a_run_with_a_cgroup_survives_its_keeper() {
    if !may_make_cgroups() {
        return;
    }
    let world = World::on_sqlite();
    world.ok(&["tasks", "add", "Hides", "--run", HIDES]);
    let runner = world.start(&["run", "--until-idle"]);
    until("the task has begun", || world.lines("begun").len() == 1);
    let hidden: i32 = std::fs::read_to_string(world.path().join("hidden")).unwrap().trim().parse().unwrap();
    let of_run = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    assert!(of_run(hidden).contains("/banksman-"), "{}", of_run(hidden));
    let keeper = session_of_the_run(&world).keeper;
    let group = of_run(hidden).lines().find_map(|line| line.strip_prefix("0::").map(String::from)).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(keeper).unwrap(), Signal::KILL).unwrap();
    assert_eq!(runner.end().code, 0);
    assert!(!world.has("survived"), "the next attempt began while a process of the first lived");
    assert!(!crate::world::is_alive(hidden));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_left = |mount: &str| std::path::Path::new(&format!("{mount}{group}")).exists();
    assert!(!mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(is_left), "the group is removed");
}
