//! No task waits although a runner could take it: a runner that was woken, or was about to claim, is gone; and the first waiting tasks or
//! runners are not the ones that can continue.

use banksman_core::backlog::Edge;
use banksman_core::landing::{self, Obstacle, Report, Target};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::semaphore;
use banksman_core::task::{LandSpec, Mark, Need, Spec, Work};
use banksman_core::{HolderId, Lease, Limits, Name, ProcessId, SectionId};
use banksman_store::Key;

use super::stage::{Actor, Stage, exited, options, task};
use super::{Action, Input, Options};
use crate::calls::landings::{LandingRequest, Worker};
use crate::calls::pause::PauseRequest;
use crate::calls::sections::SectionRequest;
use crate::calls::steps::take;
use crate::calls::tasks::{Edit, TaskRequest};
use crate::request::{Request, Seen};

fn one_run() -> Options {
    Options { max_runs: Some(1), ..options() }
}

fn section(name: &str) -> SectionId {
    SectionId::new(name).unwrap()
}

fn add_section(stage: &mut Stage, name: &str, exclusive: bool) {
    stage.request(SectionRequest::Add { id: section(name), name: name.parse().unwrap(), exclusive });
}

fn in_section(name: &str, max_runs: u32) -> Options {
    Options { max_runs: Some(max_runs), sections: vec![section(name)], ..options() }
}

/// A runner that has started a task named after it.
fn busy(stage: &mut Stage, name: &str, max_runs: u32) -> Actor {
    stage.add(&format!("own-{name}"), |_| {});
    let mut actor = stage.start(name, Options { max_runs: Some(max_runs), ..options() });
    assert!(actor.did().contains(&format!("spawn own-{name}")));
    actor
}

fn needs(name: &str, weight: u32) -> Vec<Need> {
    vec![Need::Slots { name: Name::new(name).unwrap(), weight }]
}

#[test]
fn a_runner_that_may_take_a_task_is_woken_before_older_waiters() {
    let mut stage = Stage::new();
    ["a", "b"].iter().for_each(|name| add_section(&mut stage, name, false));
    let mut others: Vec<Actor> = ('A'..='T').map(|name| stage.start(&name.to_string(), in_section("a", 1))).collect();
    let mut actor = stage.start("z", in_section("b", 1));
    // The first runner was woken to watch the last.
    for other in &mut others {
        stage.play(other);
    }
    stage.add("t", |spec| spec.section = Some(section("b")));
    assert!(stage.is_woken(&actor) && !others.iter().any(|other| stage.is_woken(other)));
    stage.play(&mut actor);
    assert!(actor.did().contains(&"spawn t".to_owned()));
}

#[test]
fn the_wake_up_of_a_runner_that_dies_passes_to_another() {
    let mut stage = Stage::new();
    let (mut first, mut woken) = (busy(&mut stage, "D", 1), busy(&mut stage, "A", 2));
    let mut other = stage.start("C", one_run());
    stage.add("t", |_| {});
    assert!(stage.is_woken(&woken) && !stage.is_woken(&other), "the longest waiting runner is woken");
    assert!(woken.did().is_empty());
    let process = woken.row.process.clone();
    stage.kill(woken);
    first.notify(&mut stage, Input::Died(process));
    assert!(first.did().contains(&"adopt".to_owned()));
    stage.play(&mut other);
    assert!(other.did().contains(&"spawn t".to_owned()));
}

#[test]
fn a_death_between_finish_and_next_claim_leaves_no_task_waiting() {
    let mut stage = Stage::new();
    let (mut first, mut ends) = (busy(&mut stage, "D", 1), busy(&mut stage, "R", 1));
    let mut other = stage.start("C", one_run());
    stage.add("next", |_| {});
    let edge = Edge { on: task("own-R"), allow_failed: false };
    stage.play(&mut other);
    let run = other.run();
    other.notify(&mut stage, Input::Ended(run, exited(0)));
    other.did();
    let spec = Spec { work: Some(Work::Run("true".into())), ..Spec::new("dependent".parse().unwrap()) };
    let add = TaskRequest::Add { id: task("dependent"), spec: Box::new(spec), depends_on: vec![edge], by: None };
    stage.request(add);
    ends.dispatcher.on(Input::Ended(ends.run(), exited(0)), stage.now());
    let Action::Call(requests) = ends.dispatcher.next(stage.now()) else { panic!("it reports the end") };
    stage.ask_all(&requests);
    assert!(!stage.is_woken(&other), "it claims the dependent itself");
    let process = ends.row.process.clone();
    stage.kill(ends);
    first.notify(&mut stage, Input::Died(process));
    stage.play(&mut other);
    assert!(other.did().contains(&"spawn dependent".to_owned()));
}

#[test]
fn a_small_request_for_slots_is_found_behind_many_larger_ones() {
    let mut stage = Stage::new();
    let config = semaphore::Config { capacity: 4, ttl: None };
    let name = Name::new("s").unwrap();
    let define = Command::Semaphore(name.clone(), semaphore::Input::Define(config));
    stage.ask(Request::Coordinate { command: define, seen: Seen::default() });
    let ann = HolderId::new("ann").unwrap();
    let all = take(&needs("s", 4)[0], ann.clone(), Vec::new());
    stage.ask(Request::Coordinate { command: all, seen: Seen::default() });
    stage.add("long", |spec| (spec.priority, spec.needs) = (9, needs("s", 1)));
    for number in 0..20 {
        stage.add(&format!("heavy-{number}"), |spec| (spec.priority, spec.needs) = (1, needs("s", 4)));
    }
    stage.add("light", |spec| spec.needs = needs("s", 1));
    let mut actor = stage.start("m", options());
    assert!(actor.did().is_empty());
    let epoch = stage.everything().coordination.grant_of(&needs("s", 4)[0].resource(), &ann).unwrap().epoch;
    let release = Command::release(needs("s", 4)[0].resource(), ann, epoch);
    stage.ask(Request::Coordinate { command: release, seen: Seen::default() });
    stage.play(&mut actor);
    let did = actor.did();
    assert!(["spawn long", "spawn light"].iter().all(|word| did.contains(&(*word).to_owned())), "{did:?}");
}

#[test]
fn a_dead_holder_is_found_among_hundreds_of_awaited_locks() {
    let mut stage = Stage::new();
    let process = |pid: i32| ProcessId { host: "host".into(), boot: "boot".into(), pid_ns: 1, pid, start: 1 };
    let last = 230;
    for number in 0..=last {
        let lock = Need::Lock(Name::new(&format!("l-{number:03}")).unwrap());
        let command = take(&lock, HolderId::new(&format!("h-{number}")).unwrap(), vec![process(1_000 + number)]);
        stage.ask(Request::Coordinate { command, seen: Seen::default() });
        stage.add(&format!("t-{number}"), |spec| spec.needs = vec![lock]);
    }
    let mut actor = stage.start("m", options());
    stage.dead.insert(process(1_000 + last));
    for _ in 0..3 {
        stage.sleep(&mut actor);
    }
    assert!(actor.did().contains(&format!("spawn t-{last}")));
}

#[test]
fn the_end_of_a_task_wakes_no_runner_because_of_its_section() {
    let mut stage = Stage::new();
    add_section(&mut stage, "s", false);
    stage.add("t", |spec| spec.section = Some(section("s")));
    let mut actor = stage.start("m", one_run());
    let other = stage.start("n", one_run());
    let run = actor.run();
    actor.notify(&mut stage, Input::Ended(run, exited(0)));
    assert!(!stage.is_woken(&other));
}

#[test]
fn a_slot_that_its_runner_cannot_use_wakes_one_that_waits_for_a_slot() {
    let mut stage = Stage::new();
    add_section(&mut stage, "s", true);
    let limits = Limits { runs: 2, ..Limits::NONE };
    for name in ["one", "two"] {
        stage.add(name, |spec| spec.section = Some(section("s")));
    }
    let mut actor = stage.start("m", Options { limits, ..in_section("s", 2) });
    assert_eq!(actor.did().iter().filter(|word| word.starts_with("spawn")).count(), 2);
    let mut other = stage.start("n", Options { limits, ..one_run() });
    stage.add("t", |_| {});
    stage.play(&mut other);
    assert!(other.did().is_empty(), "all slots are taken");
    let run = actor.run();
    actor.notify(&mut stage, Input::Ended(run, exited(0)));
    assert!(stage.is_woken(&other));
    stage.play(&mut other);
    assert!(other.did().contains(&"spawn t".to_owned()));
}

/// The runner on duty is stopped: another runner handles its work in a slow pass.
#[test]
fn fan_out_continues_while_the_runner_on_duty_is_stopped() {
    let mut stage = Stage::new();
    stage.is_checked = false;
    let stopped = busy(&mut stage, "D", 1);
    let mut actor = busy(&mut stage, "m", 1);
    let add = |number: usize| {
        let edge = Edge { on: task("own-m"), allow_failed: false };
        let spec = Spec::new(format!("d-{number}").parse().unwrap());
        Request::Task(TaskRequest::Add {
            id: task(&format!("d-{number}")),
            spec: Box::new(spec),
            depends_on: vec![edge],
            by: None,
        })
    };
    stage.ask_all(&(0..700).map(add).collect::<Vec<_>>());
    let run = actor.run();
    actor.notify(&mut stage, Input::Ended(run, exited(0)));
    let has_fan_out = |stage: &mut Stage| stage.load(&[Key::FanOut].into()).fan_out.is_some();
    assert!(stage.is_woken(&stopped) && has_fan_out(&mut stage));
    stage.sleep(&mut actor);
    assert!(!has_fan_out(&mut stage));
}

/// Running tasks, each a child of the one before; the first has ended and is in the merge queue.
fn lineage<const N: usize>(stage: &mut Stage, names: [&str; N]) -> Actor {
    for (place, name) in names.iter().enumerate() {
        stage.add(name, |spec| {
            spec.parent = place.checked_sub(1).map(|before| task(names[before]));
            spec.land =
                (place == 0).then(|| Box::new(LandSpec { target: Name::new("main").unwrap(), unchecked: true, of_child: false }));
        });
    }
    let mut actor = stage.start("m", Options { max_runs: Some(N as u32), ..options() });
    end_run(stage, &mut actor, names[0]);
    actor
}

fn end_run(stage: &mut Stage, actor: &mut Actor, name: &str) {
    let run = stage.rows().runs.values().find(|run| run.task == task(name) && run.ended.is_none()).unwrap().id.clone();
    actor.notify(stage, Input::Ended(run, exited(0)));
}

/// Reports as the worker of the merge queue that these tasks are not over.
fn report_children(stage: &mut Stage, names: &[&str]) {
    let (target, holder) = (Name::new("main").unwrap(), HolderId::new("lander").unwrap());
    let lock = Need::Lock(Target::lock(&target).unwrap());
    stage.ask(Request::Coordinate { command: take(&lock, holder.clone(), Vec::new()), seen: Seen::default() });
    let epoch = stage.everything().coordination.grant_of(&lock.resource(), &holder).unwrap().epoch;
    let id = stage.rows().landings.into_keys().next().unwrap();
    let tasks = names.iter().map(|name| task(name)).collect();
    let input = landing::Input::Report(id, Report::Obstructed(Obstacle::Children { tasks }));
    stage.request(LandingRequest { target, input, worker: Some(Worker { holder, epoch }) });
}

/// When the waiting entry is retried.
fn retried_at(stage: &mut Stage) -> Option<Lease> {
    stage.rows().landings.into_values().next().unwrap().again
}

#[test]
fn an_entry_reported_to_wait_for_an_ended_task_is_retried_at_once() {
    let mut stage = Stage::new();
    let mut actor = lineage(&mut stage, ["parent", "child"]);
    report_children(&mut stage, &["child"]);
    assert!(retried_at(&mut stage).is_some());
    end_run(&mut stage, &mut actor, "child");
    report_children(&mut stage, &["child"]);
    assert_eq!(retried_at(&mut stage), None);
}

#[test]
fn an_entry_that_waits_for_a_descendant_is_retried_when_it_ends() {
    let mut stage = Stage::new();
    let mut actor = lineage(&mut stage, ["parent", "child", "grandchild"]);
    end_run(&mut stage, &mut actor, "child");
    report_children(&mut stage, &["grandchild"]);
    assert!(retried_at(&mut stage).is_some());
    end_run(&mut stage, &mut actor, "grandchild");
    assert_eq!(retried_at(&mut stage), None);
}

/// The task was parked on slots, and once they were free the runner on duty tried to return it without a pause.
#[test]
fn a_task_stopped_or_made_dependent_as_it_is_added_is_not_parked() {
    let edge = Edge { on: task("never"), allow_failed: false };
    let edit = Box::new(Edit { depends_on: Some(vec![edge]), ..Edit::default() });
    let stop = PauseRequest::StopTasks { by: "ann".into(), tasks: vec![task("t")], now: false };
    for change in [Request::Task(TaskRequest::Update { id: task("t"), edit }), Request::Pause(stop)] {
        let mut stage = Stage::new();
        let config = semaphore::Config { capacity: 1, ttl: None };
        stage.ask(Request::plain(Command::Semaphore(Name::new("s").unwrap(), semaphore::Input::Define(config))));
        stage.add("never", |spec| spec.work = None);
        let mut actor = stage.start("m", one_run());
        stage.add("first", |spec| spec.needs = needs("s", 1));
        stage.play(&mut actor);
        let spec = Spec { work: Some(Work::Run("true".into())), needs: needs("s", 1), ..Spec::new("t".parse().unwrap()) };
        let add = TaskRequest::Add { id: task("t"), spec: Box::new(spec), depends_on: Vec::new(), by: None };
        stage.ask_all(&[Request::Task(add), change]);
        stage.play(&mut actor);
        let run = actor.run().clone();
        actor.did();
        actor.notify(&mut stage, Input::Ended(run, exited(1)));
        stage.sleep(&mut actor);
        assert!(!actor.did().contains(&"spawn t".to_owned()));
    }
}

/// Of the tasks that wait for a resource, a runner reads the first. That task waits in vain, and no runner stayed for the task behind it.
#[test]
fn until_idle_stays_for_a_task_behind_one_that_never_fits() {
    let mut stage = Stage::new();
    let config = semaphore::Config { capacity: 2, ttl: None };
    stage.ask(Request::plain(Command::Semaphore(Name::new("s").unwrap(), semaphore::Input::Define(config))));
    let holder = HolderId::new("ann").unwrap();
    stage.ask(Request::plain(take(&needs("s", 2)[0], holder.clone(), Vec::new())));
    stage.add("vain", |spec| spec.needs = needs("s", 3));
    stage.add("t", |spec| spec.needs = needs("s", 1));
    let mut actor = stage.runner("m", Options { until_idle: true, ..options() });
    assert!(stage.play(&mut actor).is_some());
    actor.did();
    // The runner has forgotten the results of its first claims.
    assert!(actor.notify(&mut stage, Input::Woken).is_some());
    stage.ask(Request::plain(Command::Semaphore(Name::new("s").unwrap(), semaphore::Input::Release { holder, epoch: None })));
    stage.play(&mut actor);
    assert!(actor.did().contains(&"spawn t".to_owned()));
}

/// A task that was ready when the transaction began was started although a person retried its dependency in the same transaction.
#[test]
fn a_task_does_not_start_in_the_transaction_that_reopens_its_dependency() {
    let mut stage = Stage::new();
    stage.add("first", |_| {});
    let edge = Edge { on: task("first"), allow_failed: true };
    let spec = Spec { work: Some(Work::Run("true".into())), ..Spec::new("t".parse().unwrap()) };
    let add = TaskRequest::Add { id: task("t"), spec: Box::new(spec), depends_on: vec![edge], by: None };
    stage.ask(Request::Task(add));
    stage.ask(Request::Task(TaskRequest::Set { id: task("first"), by: None, epoch: None, mark: Mark::Skipped }));
    stage.claim_runs_after(vec![Request::Task(TaskRequest::Retry { id: task("first") })], &["r"]);
    assert_eq!((stage.status("t"), stage.rows().runs.len()), ("pending".into(), 0));
}
