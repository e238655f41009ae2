//! Many runners of one project: the cost of a task for the database, the wake-ups, and that no task waits in vain.

use banksman_core::backlog::{Edge, RunEndRecord, Session};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::semaphore;
use banksman_core::task::{Need, RunEnd, Spec, Work};
use banksman_core::{HolderId, Lease, Limits, Name, RunId, SectionId, Span, Status};
use banksman_store::Tallied;

use super::stage::{Actor, Stage, exited, options, task};
use super::{Action, Input, Options};
use crate::calls::runs::RunRequest;
use crate::calls::sections::SectionRequest;
use crate::calls::steps::take;
use crate::calls::tasks::{Edit, TaskRequest};
use crate::request::{Request, Seen};

/// Runs at a time of each runner.
const SLOTS: usize = 4;

/// Runners that are played in a random order, which is the same in every test run.
struct Fleet {
    stage: Stage,
    actors: Vec<Actor>,
    /// When each of them would wake up by itself.
    until: Vec<Option<Lease>>,
    /// The live sessions, with their runners.
    live: Vec<(usize, RunId)>,
    random: u64,
}

impl Fleet {
    fn new(runners: usize) -> Fleet {
        let mut stage = Stage::new();
        stage.is_checked = false;
        let max_runs = u32::try_from(SLOTS).unwrap();
        let limits = Limits { runs: u32::try_from(runners * SLOTS).unwrap(), ..Limits::NONE };
        let options = Options { max_runs: Some(max_runs), limits, ..options() };
        let name = |number: u8| char::from(b'A' + number).to_string();
        let actors: Vec<_> = (0..runners).map(|number| stage.runner(&name(number as u8), options.clone())).collect();
        let until = vec![Some(stage.now()); runners];
        Fleet { stage, actors, until, live: Vec::new(), random: 1 }
    }

    fn chance(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % below
    }

    /// Plays all runners that were woken or whose sleep is over.
    fn settle(&mut self) {
        loop {
            let now = self.stage.now();
            let is_due =
                |index: &usize| self.stage.is_woken(&self.actors[*index]) || self.until[*index].is_some_and(|until| until <= now);
            let Some(index) = (0..self.actors.len()).find(is_due) else { return };
            self.play(index);
        }
    }

    fn play(&mut self, index: usize) {
        let actor = &mut self.actors[index];
        let slept = self.stage.play(actor);
        self.until[index] = slept.map(|span| self.stage.now() + span);
        let now = self.stage.now();
        let spawned: Vec<RunId> = actor
            .wants
            .drain(..)
            .filter_map(|action| match action {
                Action::Spawn(work) => Some(work.run.id.clone()),
                _ => None,
            })
            .collect();
        for run in spawned {
            actor.dispatcher.on(Input::Started(run.clone(), Session { keeper: 1, child: 1 }), now);
            self.until[index] = Some(now);
            self.live.push((index, run));
        }
    }

    /// Ends a random session after some time.
    fn end_one(&mut self) {
        let at = self.chance(self.live.len());
        let (index, run) = self.live.swap_remove(at);
        self.stage.pass(3);
        self.settle();
        self.actors[index].dispatcher.on(Input::Ended(run, exited(0)), self.stage.now());
        self.play(index);
        self.settle();
    }

    fn completed(&mut self) -> usize {
        self.stage.rows().tasks.values().filter(|task| task.status() == Status::Completed).count()
    }

    fn cost(&self) -> (Tallied, u64) {
        (self.stage.tally.read(), self.stage.wakes)
    }
}

/// The costs per task.
#[derive(Debug)]
struct Costs {
    writes: f64,
    empty: f64,
    all: f64,
    rows: f64,
    wakes: f64,
}

fn between(before: (Tallied, u64), after: (Tallied, u64), tasks: usize) -> Costs {
    let of = |before: u64, after: u64| (after - before) as f64 / tasks as f64;
    let ((then, woken), (now, wakes)) = (before, after);
    let writes = of(then.writes, now.writes);
    Costs {
        writes,
        empty: of(then.empty, now.empty),
        all: writes + of(then.reads, now.reads),
        rows: of(then.rows, now.rows),
        wakes: of(woken, wakes),
    }
}

/// The costs of a task must not grow again: they limit a project on any machine.
#[test]
fn the_cost_of_a_task_does_not_depend_on_the_number_of_runners() {
    for runners in [4, 16] {
        let mut fleet = Fleet::new(runners);
        (0..220).for_each(|number| fleet.stage.add(&format!("t-{number}"), |_| {}));
        fleet.settle();
        (0..30).for_each(|_| fleet.end_one());
        let before = fleet.cost();
        (0..100).for_each(|_| fleet.end_one());
        let costs = between(before, fleet.cost(), 100);
        assert!(costs.writes <= 1.7 && costs.empty <= 0.05 && costs.all <= 2.2, "{runners} runners: {costs:?}");
        assert!(costs.rows <= 30.0 && costs.wakes <= 0.1, "{runners} runners: {costs:?}");
        while !fleet.live.is_empty() {
            fleet.end_one();
        }
        assert_eq!(fleet.completed(), 220);
        // All runners are idle: one task wakes one runner. It is added, claimed and ended, and people are notified that nothing is left.
        let before = fleet.cost();
        for number in 0..10 {
            fleet.stage.add(&format!("single-{number}"), |_| {});
            fleet.settle();
            assert_eq!(fleet.live.len(), 1, "one runner has started it");
            fleet.end_one();
        }
        let costs = between(before, fleet.cost(), 10);
        assert!(costs.wakes <= 1.1 && costs.writes <= 5.0 && costs.all <= 11.0, "{runners} idle runners: {costs:?}");
    }
}

fn add_after(stage: &mut Stage, name: &str, on: &[&str]) {
    let depends_on = on.iter().map(|on| Edge { on: task(on), allow_failed: false }).collect();
    let spec = Spec { work: Some(Work::Run("true".into())), ..Spec::new(name.parse().unwrap()) };
    stage.ask(Request::Task(TaskRequest::Add { id: task(name), spec: Box::new(spec), depends_on, by: None }));
}

fn end(stage: &mut Stage, actor: &mut Actor) -> Option<Span> {
    actor.notify(stage, Input::Ended(actor.run(), exited(0)))
}

#[test]
fn a_retried_task_waits_for_a_reopened_dependency() {
    let mut stage = Stage::new();
    add_after(&mut stage, "a", &[]);
    add_after(&mut stage, "b", &["a"]);
    let mut actor = stage.start("m", Options { max_runs: Some(1), ..options() });
    end(&mut stage, &mut actor);
    assert_eq!(stage.status("b"), "in_progress");
    stage.ask(Request::Task(TaskRequest::Retry { id: task("a") }));
    let never = RunEndRecord { ending: RunEnd::Never, ..exited(0) };
    actor.notify(&mut stage, Input::Ended(actor.run(), never));
    assert_eq!([stage.status("a"), stage.status("b")], ["in_progress", "pending"]);
    end(&mut stage, &mut actor);
    assert_eq!([stage.status("a"), stage.status("b")], ["completed", "in_progress"]);
}

#[test]
fn a_chain_continues_with_one_runner_without_a_wake_up() {
    let mut stage = Stage::new();
    add_after(&mut stage, "a", &[]);
    add_after(&mut stage, "b", &["a"]);
    let mut actor = stage.start("m", Options { max_runs: Some(1), ..options() });
    assert_eq!(actor.did(), ["claim", "spawn a"]);
    let wakes = stage.wakes;
    end(&mut stage, &mut actor);
    assert_eq!(actor.did(), ["finish", "acknowledge", "claim", "spawn b"]);
    assert_eq!(stage.wakes, wakes, "the runner that ends it claims by itself");
}

#[test]
fn one_of_many_leaving_runners_reports_that_nothing_is_left() {
    let mut stage = Stage::new();
    add_after(&mut stage, "a", &[]);
    add_after(&mut stage, "b", &[]);
    let idle = || Options { max_runs: Some(1), until_idle: true, ..options() };
    let [mut first, mut second, third] = ["m", "n", "o"].map(|name| stage.start(name, idle()));
    assert!(end(&mut stage, &mut first).is_some(), "b runs");
    let reports = |requests: &[Request]| requests.iter().any(|request| matches!(request, Request::Run(RunRequest::Rest { .. })));
    second.dispatcher.on(Input::Ended(second.run(), exited(0)), stage.now());
    let mut third = Some(third);
    let left = stage.play_with(&mut second, |stage, requests| {
        if reports(requests)
            && let Some(mut third) = third.take()
        {
            third.dispatcher.on(Input::Woken, stage.now());
            let left = stage.play_with(&mut third, |_, requests| assert!(!reports(requests), "{requests:?}"));
            assert_eq!(left, None, "it leaves while another one reports it");
        }
    });
    assert_eq!((left, third.is_none()), (None, true), "the runner that ended the last run reports it");
    assert_eq!((first.notify(&mut stage, Input::Woken), stage.count_events("backlog:finished")), (None, 1));
}

/// While others write, more runs may end: all of them are reported in one transaction, or the late ones in the next.
#[test]
fn a_run_that_ends_while_others_write_joins_the_pending_report() {
    for is_in_time in [true, false] {
        let mut stage = Stage::new();
        (0..4).for_each(|number| stage.add(&format!("t-{number}"), |_| {}));
        let mut actor = stage.start("m", Options { max_runs: Some(2), ..options() });
        let spawned = |action| if let Action::Spawn(work) = action { Some(work.run.id) } else { None };
        let runs: Vec<RunId> = actor.wants.drain(..).filter_map(spawned).collect();
        let now = stage.now();
        actor.did();
        actor.dispatcher.on(Input::Ended(runs[0].clone(), exited(0)), now);
        let Action::Call(mut requests) = actor.dispatcher.next(now) else { panic!("it reports the end") };
        assert!(actor.dispatcher.may_amend());
        actor.dispatcher.on(Input::Ended(runs[1].clone(), exited(0)), now);
        if is_in_time {
            actor.dispatcher.amend(&mut requests);
        }
        assert_eq!(requests.len(), if is_in_time { 3 } else { 2 }, "the ends, and one claim for all of them");
        let replies = stage.ask_all(&requests);
        actor.dispatcher.on(Input::Replies(replies), now);
        stage.play(&mut actor);
        let did = actor.did();
        let calls = did.iter().filter(|did| *did == "claim").count();
        assert_eq!(calls, usize::from(!is_in_time), "{did:?}");
        assert!(["spawn t-2", "spawn t-3"].iter().all(|spawn| did.iter().any(|did| did == spawn)), "{did:?}");
        assert_eq!(stage.rows().runs.values().filter(|run| run.is_live()).count(), 2);
    }
}

/// The run of a loop is reported after its file was checked, and keeps its place until then.
#[test]
fn an_ended_loop_keeps_its_place_until_it_is_reported() {
    let mut stage = Stage::new();
    stage.add_loop("t-0");
    (1..6).for_each(|number| stage.add(&format!("t-{number}"), |_| {}));
    let mut actor = stage.start("m", Options { max_runs: Some(3), ..options() });
    let spawned = |action| if let Action::Spawn(work) = action { Some(work) } else { None };
    let mut runs: Vec<_> = actor.wants.drain(..).filter_map(spawned).collect();
    runs.sort_by_key(|work| work.task.id.clone());
    let now = stage.now();
    actor.dispatcher.on(Input::Ended(runs[1].run.id.clone(), exited(0)), now);
    let Action::Call(mut requests) = actor.dispatcher.next(now) else { panic!("it reports the end") };
    [2, 0].iter().for_each(|number: &usize| actor.dispatcher.on(Input::Ended(runs[*number].run.id.clone(), exited(0)), now));
    actor.dispatcher.amend(&mut requests);
    let replies = stage.ask_all(&requests);
    assert_eq!(stage.rows().runs.values().filter(|run| run.is_live()).count(), 3);
    actor.dispatcher.on(Input::Replies(replies), now);
    stage.play(&mut actor);
    assert_eq!(stage.rows().runs.values().filter(|run| run.is_live()).count(), 3);
}

fn lock(name: &str) -> Need {
    Need::Lock(Name::new(name).unwrap())
}

/// Takes a lock as alice.
fn hold(stage: &mut Stage, name: &str) {
    let command = take(&lock(name), HolderId::new("alice").unwrap(), Vec::new());
    stage.ask(Request::Coordinate { command, seen: Seen::default() });
}

/// Releases a lock of alice.
fn free(stage: &mut Stage, name: &str) {
    let holder = HolderId::new("alice").unwrap();
    let epoch = stage.everything().coordination.grant_of(&lock(name).resource(), &holder).unwrap().epoch;
    stage.ask(Request::Coordinate { command: Command::release(lock(name).resource(), holder, epoch), seen: Seen::default() });
}

#[test]
fn a_task_with_two_locks_starts_in_either_order_of_release() {
    for order in [["a", "b"], ["b", "a"]] {
        let mut stage = Stage::new();
        order.iter().for_each(|name| hold(&mut stage, name));
        let mut actor = stage.start("m", options());
        for name in ["t", "u"] {
            stage.add(name, |spec| spec.needs = vec![lock("a"), lock("b")]);
        }
        stage.play(&mut actor);
        free(&mut stage, order[0]);
        stage.play(&mut actor);
        assert!(!actor.did().iter().any(|did| did.starts_with("spawn")), "{order:?}");
        free(&mut stage, order[1]);
        stage.play(&mut actor);
        assert!(actor.did().contains(&"spawn t".to_owned()), "{order:?}");
        end(&mut stage, &mut actor);
        assert!(actor.did().contains(&"spawn u".to_owned()), "the locks of the first task are free for the second: {order:?}");
    }
}

#[test]
fn blocked_tasks_do_not_delay_ready_tasks() {
    let mut stage = Stage::new();
    hold(&mut stage, "a");
    for number in 0..16 {
        stage.add(&format!("first-{number}"), |spec| (spec.priority, spec.needs) = (1, vec![lock("a")]));
    }
    stage.add("last", |_| {});
    let mut actor = stage.start("m", Options { max_runs: Some(1), ..options() });
    assert_eq!(actor.did(), ["claim", "spawn last"]);
    // Parked tasks are not read again: a claim reads as little as if they did not exist.
    let before = stage.tally.read();
    stage.is_checked = false;
    stage.add("next", |_| {});
    end(&mut stage, &mut actor);
    assert_eq!(actor.did(), ["finish", "claim", "acknowledge", "spawn next"]);
    let rows = stage.tally.read().rows - before.rows;
    assert!(rows <= 40, "{rows} rows");
    // One of them begins when the lock is free, and the next when the first ends.
    free(&mut stage, "a");
    for number in 0..16 {
        end(&mut stage, &mut actor);
        assert!(actor.did().contains(&format!("spawn first-{number}")), "{number}");
    }
}

#[test]
fn a_parked_task_starts_only_when_all_its_needs_are_loaded() {
    let mut stage = Stage::new();
    ["b", "c"].iter().for_each(|name| hold(&mut stage, name));
    // Of the tasks that wait for `b`, the first returns to its lane.
    stage.add("x", |spec| (spec.priority, spec.needs) = (2, vec![lock("b")]));
    stage.add("y", |spec| (spec.priority, spec.needs) = (1, vec![lock("b"), lock("c")]));
    free(&mut stage, "b");
    // The rows of a claim lead from `a` to `b` and so to `y`, but not to `c`.
    for number in 0..8 {
        stage.add(&format!("first-{number}"), |spec| (spec.priority, spec.needs) = (3, vec![lock("a")]));
    }
    hold(&mut stage, "a");
    stage.add("w", |spec| spec.needs = vec![lock("a"), lock("b")]);
    let mut actor = stage.start("m", options());
    let spawned = |actor: &mut Actor| actor.did().into_iter().filter(|did| did.starts_with("spawn")).collect::<Vec<_>>();
    assert_eq!(spawned(&mut actor), ["spawn x"]);
    end(&mut stage, &mut actor);
    assert_eq!(spawned(&mut actor), [""; 0], "alice has c");
    free(&mut stage, "c");
    stage.play(&mut actor);
    assert_eq!(spawned(&mut actor), ["spawn y"]);
}

fn slots(name: &str, weight: u32) -> Need {
    Need::Slots { name: Name::new(name).unwrap(), weight }
}

#[test]
fn a_small_request_for_slots_passes_a_larger_one() {
    let mut stage = Stage::new();
    let config = semaphore::Config { capacity: 3, ttl: None };
    let define = Command::Semaphore(Name::new("s").unwrap(), semaphore::Input::Define(config));
    stage.ask(Request::Coordinate { command: define, seen: Seen::default() });
    for (name, weight) in [("one", 1), ("two", 2), ("three", 3), ("four", 1)] {
        stage.add(name, |spec| spec.needs = vec![slots("s", weight)]);
    }
    let mut actor = stage.start("m", options());
    let first: Vec<RunId> = actor
        .wants
        .iter()
        .filter_map(|action| match action {
            Action::Spawn(work) => Some(work.run.id.clone()),
            _ => None,
        })
        .collect();
    assert!(actor.did().ends_with(&["spawn one".into(), "spawn two".into()]));
    actor.notify(&mut stage, Input::Ended(first[0].clone(), exited(0)));
    assert!(actor.did().contains(&"spawn four".to_owned()), "one slot is free, and it needs no more");
}

/// A ready task keeps the tasks behind it parked. When it is no longer ready, the next one starts.
#[test]
fn a_parked_task_does_not_wait_for_a_task_that_will_not_start() {
    let changes: [fn(&mut Stage); 3] = [
        |stage| drop(stage.ask(Request::Task(TaskRequest::Cancel { id: task("x") }))),
        |stage| drop(stage.ask(Request::Task(TaskRequest::Delete { id: task("x"), force: false }))),
        |stage| {
            let edge = Edge { on: task("never"), allow_failed: false };
            let edit = Box::new(Edit { depends_on: Some(vec![edge]), ..Edit::default() });
            stage.ask(Request::Task(TaskRequest::Update { id: task("x"), edit }));
        },
    ];
    for change in changes {
        let mut stage = Stage::new();
        stage.add("never", |spec| spec.work = None);
        hold(&mut stage, "a");
        stage.add("x", |spec| spec.needs = vec![lock("a")]);
        stage.add("y", |spec| spec.needs = vec![lock("a")]);
        free(&mut stage, "a");
        change(&mut stage);
        let mut actor = stage.start("m", options());
        assert!(actor.did().contains(&"spawn y".to_owned()));
    }
}

/// In one transaction a task got a dependency, and a claim found that it waits for a lock as well. It was parked on the lock, from which
/// no release could return it, and every runner tried to without a pause.
#[test]
fn a_task_with_open_dependencies_is_not_parked() {
    let mut stage = Stage::new();
    stage.add("never", |spec| spec.work = None);
    stage.add("x", |spec| spec.needs = vec![lock("a")]);
    let edit = Box::new(Edit { depends_on: Some(vec![Edge { on: task("never"), allow_failed: false }]), ..Edit::default() });
    let command = take(&lock("a"), HolderId::new("alice").unwrap(), Vec::new());
    stage.claim_after(vec![
        Request::Task(TaskRequest::Update { id: task("x"), edit }),
        Request::Coordinate { command, seen: Seen::default() },
    ]);
    free(&mut stage, "a");
    let mut actor = stage.start("m", options());
    assert_eq!(actor.did(), Vec::<String>::new());
}

#[test]
fn a_parked_task_with_a_reopened_dependency_is_not_forgotten() {
    let mut stage = Stage::new();
    hold(&mut stage, "a");
    stage.add("first", |_| {});
    let mut actor = stage.start("m", options());
    end(&mut stage, &mut actor);
    let depends_on = vec![Edge { on: task("first"), allow_failed: false }];
    let spec = Spec { work: Some(Work::Run("true".into())), needs: vec![lock("a")], ..Spec::new("second".parse().unwrap()) };
    stage.ask(Request::Task(TaskRequest::Add { id: task("second"), spec: Box::new(spec), depends_on, by: None }));
    // While the first task is retried, the lock is free, but the second cannot start.
    stage.ask(Request::Task(TaskRequest::Retry { id: task("first") }));
    free(&mut stage, "a");
    stage.play(&mut actor);
    assert!(actor.did().ends_with(&["spawn first".into()]));
    end(&mut stage, &mut actor);
    assert!(actor.did().contains(&"spawn second".to_owned()));
}

/// The longest waiting runner is woken first. If it may not take the task, because another runner has the exclusive section, it wakes that one.
#[test]
fn a_task_of_an_exclusive_section_wakes_the_runner_that_has_it() {
    let mut stage = Stage::new();
    let section = SectionId::new("s").unwrap();
    let add = SectionRequest::Add { id: section.clone(), name: "s".parse().unwrap(), exclusive: true };
    stage.ask(Request::Section(add));
    let options = || Options { max_runs: Some(4), ..options() };
    let (mut owner, mut other) = (stage.runner("m", options()), stage.runner("n", options()));
    stage.add("t", |spec| spec.section = Some(section.clone()));
    stage.play(&mut owner);
    stage.play(&mut other);
    // The owner takes another task, and is now the last to be woken.
    stage.add("v", |_| {});
    stage.play(&mut owner);
    assert!(owner.did().contains(&"spawn v".to_owned()));
    stage.add("u", |spec| spec.section = Some(section));
    assert_eq!((stage.is_woken(&other), stage.is_woken(&owner)), (true, false));
    stage.play(&mut other);
    assert!(stage.is_woken(&owner));
    stage.play(&mut owner);
    assert!(owner.did().contains(&"spawn u".to_owned()));
}

/// The end of a run and the claim of the next task in its exclusive section are one transaction: an idle runner does not come in between.
#[test]
fn the_owner_of_an_exclusive_section_claims_its_next_task_with_the_end_of_the_last() {
    // A runner that was woken reads the rows before it reports the end.
    for is_woken in [false, true] {
        let mut stage = Stage::new();
        let section = SectionId::new("s").unwrap();
        let add = SectionRequest::Add { id: section.clone(), name: "s".parse().unwrap(), exclusive: true };
        stage.ask(Request::Section(add));
        ["t", "u"].iter().for_each(|name| stage.add(name, |spec| spec.section = Some(section.clone())));
        let [mut owner, mut other] = ["m", "n"].map(|name| stage.start(name, Options { max_runs: Some(1), ..options() }));
        assert!(owner.did().contains(&"spawn t".to_owned()));
        if is_woken {
            owner.dispatcher.on(Input::Woken, stage.now());
        }
        owner.dispatcher.on(Input::Ended(owner.run(), exited(0)), stage.now());
        stage.play_with(&mut owner, |stage, _| {
            other.notify(stage, Input::Woken);
        });
        other.notify(&mut stage, Input::Woken);
        assert!(owner.did().contains(&"spawn u".to_owned()), "{:?}", other.did());
    }
}
