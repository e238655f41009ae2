mod model;

use self::model::gets_slots;
use super::*;
use crate::agent::{AgentChoice, AgentWork};
use crate::ids::{Name, SectionId, Seq};
use crate::pause::PauseVerb;
use crate::resource::coordination::Coordination;
use crate::resource::lock::{self, Input};
use crate::resource::semaphore::{self, Config};
use crate::task::tests::spec;
use crate::task::{After, Input as TaskInput, OnExhausted, Watch};
use crate::test_world::{World, ask, holder, name, runner, task};
use crate::time::{Span, Wall};

/// A task that needs the lock `db`, two slots of `gpu` and one of `disk`, in an exclusive section, with all facts that
/// the answer depends on. At first nothing keeps the runner `m` from starting it.
#[derive(Debug, Clone)]
struct Scene {
    site: World<Coordination>,
    task: Task,
    runner: Option<RunnerId>,
    dependencies: Vec<(TaskId, Option<Status>, bool)>,
    section: Section,
    foreign: Option<(RunId, RunnerId)>,
    limits: Vec<AccountLimit>,
    /// Other roots, and the limit; 0 stands for no limit.
    roots: Vec<Task>,
    limit: u32,
    pause: Option<Pause>,
}

impl Scene {
    fn new() -> Scene {
        let mut site = World::site();
        for (label, capacity) in [("gpu", 3), ("disk", 1), ("runs", 2)] {
            site.at_semaphore(label, semaphore::Input::Define(Config { capacity, ttl: None }));
        }
        let (id, slots) = (SectionId::new("s-1").unwrap(), |label: &str, weight| Need::Slots { name: name(label), weight });
        let section = Section { id, name: "back end".parse().unwrap(), exclusive: true, position: Seq(1) };
        let mut task = Task::new(task("t-1"), spec("build"), &site.now);
        task.spec.needs = vec![Need::Lock(name("db")), slots("gpu", 2), slots("disk", 1)];
        Scene {
            site,
            task,
            runner: Some(runner("m")),
            dependencies: Vec::new(),
            section,
            foreign: None,
            limits: Vec::new(),
            roots: Vec::new(),
            limit: 0,
            pause: None,
        }
    }

    fn admit(&self) -> Admission {
        let Coordination { locks, semaphores, .. } = &self.site.machine;
        let title = self.section.name.clone();
        let dependency = |(task, status, allow_failed): &(TaskId, Option<Status>, bool)| (task.clone(), *status, *allow_failed);
        let dependencies: Vec<_> = self.dependencies.iter().map(dependency).collect();
        let needed = |need: &Need| match need.resource().kind {
            Kind::Lock => Needed::Lock(locks.get(need.name())),
            Kind::Semaphore => Needed::Slots(semaphores.get(need.name())),
        };
        let facts = Facts {
            runner: self.runner.as_ref(),
            pause: self.pause.as_ref(),
            dependencies: dependencies
                .iter()
                .map(|(task, status, allow_failed)| Dependency {
                    task,
                    title: Some(&title).filter(|_| status.is_some()),
                    status: *status,
                    since: None,
                    allow_failed: *allow_failed,
                })
                .collect(),
            section: Some(Exclusive {
                section: &self.section,
                lock: locks.get(&self.section.id.lock()),
                foreign: self.foreign.as_ref().map(|(run, owner)| (run, owner, Stamp::default())),
            }),
            lock: locks.get(&self.task.id.lock()),
            needs: self.task.spec.needs.iter().map(needed).collect(),
            roots: Roots::of(self.limit, &self.roots),
            slots: semaphores.get(&Name::runs()),
            account_limits: self.limits.iter().collect(),
            reserved: Default::default(),
        };
        admit(&self.task, &facts, &self.site.now)
    }

    /// All reasons against it, in words.
    fn reasons(&self) -> Vec<String> {
        match self.admit() {
            Admission::Run => Vec::new(),
            Admission::Blocked(reasons) => reasons.iter().map(describe).collect(),
        }
    }

    fn take(&mut self, label: &str, who: &str) {
        self.site.at_lock(label, Input::Acquire(Box::new(ask(who).ttl(60).bound_to(&[1]))));
    }

    fn take_slots(&mut self, label: &str, who: &str, weight: u32) {
        let wish = ask(who).weight(weight).ttl(60).bound_to(&[1]);
        self.site.at_semaphore(label, semaphore::Input::Acquire(Box::new(wish)));
    }

    /// Adds a root that is under way, with a limit of one.
    fn begin_root(&mut self, id: &str) {
        let mut root = Task::new(task(id), spec("other"), &self.site.now);
        root.state = State::Backoff { until: Lease(0) };
        self.roots.push(root);
        self.limit = 1;
    }

    /// Makes it the work of an agent whose account is limited.
    fn limit_account(&mut self) {
        let choice = AgentChoice { agent: name("claude"), account: name("mine"), model: None };
        let work = AgentWork { agents: vec![choice], ..AgentWork::default() };
        self.task.spec.work = self.task.spec.work.take().map(|_| Work::Agent(std::sync::Arc::new(work)));
        let scope = limit::Scope { account: Some(name("mine")), kind: "five_hour".into(), model: None, unnamed: false };
        let reach = limit::Input::Reach { run: None, agent: None, resets: None, text: "".into(), unnamed: false };
        self.limits.push(AccountLimit::new(scope, &self.site.now).step(reach, &self.site.now).state);
    }

    /// Adds the process `pid` to the waiters for the lock.
    fn wait(&mut self, label: &str, who: &str, pid: i32) {
        self.site.at_lock(label, Input::Acquire(Box::new(ask(who).waits(pid))));
    }

    fn wait_for_slots(&mut self, label: &str, who: &str, weight: u32, pid: i32) {
        self.site.at_semaphore(label, semaphore::Input::Acquire(Box::new(ask(who).weight(weight).waits(pid))));
    }
}

fn describe(reason: &Reason) -> String {
    let list = |holders: &[Holding]| holders.iter().map(|held| held.holder.as_str()).collect::<Vec<_>>().join(" ");
    match reason {
        Reason::NotPending(status) => format!("is {status}"),
        Reason::NoWork => "no work".into(),
        Reason::Paused { pause, is_task } => {
            format!("{} by {}{}", pause.verb.as_str(), pause.by, if *is_task { ", it alone" } else { "" })
        }
        Reason::Backoff { until } => format!("rests until {}", until.0),
        Reason::Decision(decision) => format!("asks {decision}"),
        Reason::NoRoot { limit, roots } => {
            let ids: Vec<_> = roots.iter().map(|(id, _, _)| id.as_str()).collect();
            format!("roots {limit}, {}", ids.join(" "))
        }
        Reason::Dependency { task, status: Some(status), .. } => format!("{task} is {status}"),
        Reason::Dependency { task, status: None, .. } => format!("{task} is gone"),
        Reason::Section { resource, holder, .. } => format!("{resource}: {}", holder.holder),
        Reason::SectionBusy { run, owner, .. } => format!("{run} of {owner}"),
        Reason::TaskLock { resource, holder } | Reason::Lock { resource, holder } => format!("{resource}: {}", holder.holder),
        Reason::Slots { resource, wanted, available, capacity, waiters, holders } => {
            format!("{resource}: {wanted} > {available} of {capacity}, line {waiters}, {}", list(holders))
        }
        Reason::Undefined { resource } => format!("{resource} undefined"),
        Reason::AccountLimit { agent, limit } => format!("{agent} waits for {}", limit.name),
        Reason::Reserved { resource, holder, .. } => format!("{resource} kept for {holder}"),
        Reason::NoSlot { capacity, waiters, holders } => format!("runs {capacity}, line {waiters}, {}", list(holders)),
    }
}

/// An obstacle, and its reason in words.
type Trouble = (fn(&mut Scene), &'static str);

const TROUBLES: [Trouble; 13] = [
    (|scene| scene.task.state = State::Backoff { until: Lease(9_000) }, "rests until 9000"),
    (|scene| scene.task.spec.work = None, "no work"),
    (|scene| scene.dependencies.push((task("t-2"), Some(Status::Failed), false)), "t-2 is failed"),
    (|scene| scene.dependencies.push((task("t-3"), None, true)), "t-3 is gone"),
    (|scene| scene.take("task:t-1", "hand"), "lock task:t-1: hand"),
    (|scene| scene.take("section:s-1", "runner:n"), "lock section:s-1: runner:n"),
    (|scene| scene.foreign = Some((RunId::new("r-9").unwrap(), runner("n"))), "r-9 of n"),
    (|scene| scene.take("db", "x"), "lock db: x"),
    (|scene| scene.take_slots("gpu", "x", 2), "semaphore gpu: 2 > 1 of 3, line 0, x"),
    (|scene| drop(scene.site.machine.semaphores.remove("disk")), "semaphore disk undefined"),
    (Scene::limit_account, "claude waits for account:mine:five_hour"),
    (|scene| scene.begin_root("t-7"), "roots 1, t-7"),
    (|scene| ["x", "y"].into_iter().for_each(|who| scene.take_slots("runs", who, 1)), "runs 2, line 0, x y"),
];

#[test]
fn pauses_of_project_and_task_block_it_unless_it_is_manual() {
    let mut scene = Scene::new();
    scene.pause = Some(Pause { verb: PauseVerb::Pause, by: "ann".into(), at: Wall(7) });
    assert_eq!(scene.reasons(), ["pause by ann"]);
    scene.task.spec.paused = Some(Box::new(Pause { verb: PauseVerb::Stop, by: "bob".into(), at: Wall(8) }));
    assert_eq!(scene.reasons(), ["pause by ann", "stop by bob, it alone"]);
    scene.pause = None;
    assert_eq!(scene.reasons(), ["stop by bob, it alone"]);
    scene.task.spec.work = None;
    assert_eq!(scene.reasons(), ["no work"]);
}

#[test]
fn every_reason_is_reported_alone_and_in_every_combination() {
    assert_eq!(Scene::new().admit(), Admission::Run);
    for choice in 0..1_usize << TROUBLES.len() {
        let (mut scene, mut expected) = (Scene::new(), Vec::new());
        for (number, (make, reason)) in TROUBLES.iter().enumerate().filter(|(number, _)| choice >> number & 1 == 1) {
            make(&mut scene);
            // The holder of the section stands for all runs in it.
            let is_reported = match number {
                6 => choice >> 5 & 1 == 0,
                // A task without work has no agent.
                10 => choice >> 1 & 1 == 0,
                _ => true,
            };
            if is_reported {
                expected.push(*reason);
            }
        }
        assert_eq!(scene.reasons(), expected);

        scene.task = scene.task.step(TaskInput::Stop(After::Cancel), &scene.site.now).state;
        assert_eq!(scene.reasons(), ["is cancelled"], "nothing else matters");
    }
}

#[test]
fn a_task_in_any_other_state_is_not_started() {
    for status in [Status::InProgress, Status::Stuck, Status::Review, Status::Completed, Status::Skipped] {
        let mut scene = Scene::new();
        let start = || TaskInput::Start { run: RunId::new("r-1").unwrap(), runner: runner("m"), recheck: false };
        let watch = Watch { timeout: Span::ZERO, max_recoveries: 0, on_exhausted: OnExhausted::Fail };
        let epoch = crate::ids::Epoch::from(scene.site.now.seq);
        let inputs = match status {
            Status::InProgress => vec![start(), TaskInput::Stop(After::Restart)],
            Status::Stuck => {
                vec![start(), TaskInput::Heartbeat { epoch, pulse: crate::task::Pulse::SessionDead, watch }]
            }
            Status::Review => vec![TaskInput::Set(crate::task::Mark::Review)],
            Status::Completed => {
                vec![TaskInput::Conclude { epoch: None, verdict: crate::task::Verdict::Done { output: None } }]
            }
            _ => vec![TaskInput::Set(crate::task::Mark::Skipped)],
        };
        for input in inputs {
            scene.task = scene.task.step(input, &scene.site.now).state;
        }
        assert_eq!(scene.reasons(), [format!("is {status}")]);
    }
}

#[test]
fn a_task_that_waits_for_a_decision_has_no_other_reason() {
    let mut scene = Scene::new();
    scene.task.state = State::AwaitingDecision { decision: DecisionId::from(Seq(7)) };
    scene.take("db", "x");
    assert_eq!(scene.reasons(), ["asks d-7"]);
}

#[test]
fn a_task_is_admitted_at_the_end_of_its_backoff() {
    let mut scene = Scene::new();
    let until = scene.site.now.lease + Span::from_ms(1);
    scene.task.state = State::Backoff { until };
    assert_eq!(scene.reasons().len(), 1);
    scene.site.now.lease = until;
    assert_eq!(scene.admit(), Admission::Run);
}

#[test]
fn manual_work_is_blocked_by_the_holder_of_the_lock() {
    let mut scene = Scene::new();
    let (holder, epoch) = (holder("ann"), crate::ids::Epoch(7));
    scene.task.state = State::Manual { holder, epoch, until: None };
    assert_eq!(scene.reasons(), ["is in_progress"], "its lock is free, which was not recorded yet");
    scene.take("task:t-1", "ann");
    assert_eq!(scene.reasons(), ["lock task:t-1: ann"]);
}

#[test]
fn a_root_that_has_begun_keeps_its_place_and_a_child_needs_none() {
    let mut scene = Scene::new();
    scene.begin_root("t-7");
    assert_eq!(scene.reasons(), ["roots 1, t-7"]);
    let child = Scene {
        task: {
            let mut task = scene.task.clone();
            task.spec.parent = Some(self::task("t-7"));
            task
        },
        ..scene.clone()
    };
    assert_eq!(child.admit(), Admission::Run);
    scene.task.state = State::Backoff { until: Lease(0) };
    scene.roots.push(scene.task.clone());
    assert_eq!(scene.admit(), Admission::Run);
}

#[test]
fn a_dependency_is_met_by_completion_or_an_allowed_failure() {
    for status in Status::ALL {
        for allow_failed in [false, true] {
            let mut scene = Scene::new();
            scene.dependencies.push((task("t-2"), Some(status), allow_failed));
            let met = status == Status::Completed || allow_failed && status.is_over();
            let expected = if met { vec![] } else { vec![format!("t-2 is {status}")] };
            assert_eq!(scene.reasons(), expected);
        }
    }
}

#[test]
fn a_grant_that_is_over_blocks_only_with_a_waiter() {
    let ends: [fn(&mut Scene); 2] = [|scene| scene.site.pass(60), |scene| scene.site.kill(1)];
    for end in ends {
        for (label, is_lock) in [("db", true), ("task:t-1", true), ("section:s-1", true), ("gpu", false), ("runs", false)] {
            let mut scene = Scene::new();
            if is_lock {
                scene.take(label, "x")
            } else {
                scene.take_slots(label, "x", 2)
            }
            let blocked = scene.reasons();
            assert_eq!(blocked.len(), 1);
            let mut over = scene.clone();
            end(&mut over);
            assert_eq!(over.reasons(), Vec::<String>::new(), "{label}");

            if is_lock {
                scene.wait(label, "y", 2)
            } else {
                scene.wait_for_slots(label, "y", 2, 2)
            }
            end(&mut scene);
            assert_eq!(scene.reasons().len(), 1, "{label}: the waiter comes first");
            scene.site.kill(2);
            assert_eq!(scene.reasons(), Vec::<String>::new(), "{label}: the waiter is dead");
        }
    }
}

#[test]
fn free_slots_are_for_waiters_first() {
    let mut scene = Scene::new();
    scene.take_slots("gpu", "x", 1);
    scene.wait_for_slots("gpu", "y", 3, 2);
    assert_eq!(scene.reasons(), ["semaphore gpu: 2 > 2 of 3, line 1, x"]);
}

#[test]
fn the_limit_of_holders_blocks_free_slots() {
    let mut scene = Scene::new();
    scene.take_slots("gpu", "x", 1);
    let gpu = scene.site.machine.semaphores.get_mut("gpu").unwrap();
    gpu.config.capacity = u32::MAX;
    let grant = gpu.holders[&holder("x")].clone();
    for number in 1..HOLDER_LIMIT {
        gpu.holders.insert(holder(&number.to_string()), grant.clone());
    }
    assert_eq!(scene.reasons().len(), 1);
    assert!(!gets_slots(&scene, "gpu", 2));
    scene.site.kill(1);
    assert_eq!(scene.reasons(), Vec::<String>::new());
}

#[test]
fn a_lapsed_increase_leaves_the_earlier_slots() {
    let mut scene = Scene::new();
    scene.site.at_semaphore("gpu", semaphore::Input::Acquire(Box::new(ask("x").weight(2))));
    scene.take_slots("gpu", "y", 1);
    scene.wait_for_slots("gpu", "x", 3, 2);
    scene.site.at_semaphore("gpu", semaphore::Input::Release { holder: holder("y"), epoch: None });
    assert_eq!(scene.reasons(), ["semaphore gpu: 2 > 0 of 3, line 0, x"]);
    scene.site.pass(15);
    assert_eq!(scene.reasons(), ["semaphore gpu: 2 > 1 of 3, line 0, x"]);
}

#[test]
fn a_runner_continues_in_the_section_that_it_holds() {
    let mut scene = Scene::new();
    let grant = ask("runner:m").max_hold(60).bound_to(&[1]);
    scene.site.at_lock("section:s-1", Input::Acquire(Box::new(grant)));
    assert_eq!(scene.reasons(), Vec::<String>::new());
    for other in [None, Some(runner("n"))] {
        let other = Scene { runner: other, ..scene.clone() };
        assert_eq!(other.reasons(), ["lock section:s-1: runner:m"]);
    }
    scene.wait("section:s-1", "runner:n", 2);
    assert_eq!(scene.reasons(), Vec::<String>::new(), "a holder need not leave for a waiter");
    scene.site.pass(60);
    assert_eq!(scene.reasons(), ["lock section:s-1: runner:m"], "its grant is over, and there is a waiter");
    scene.site.kill(2);
    assert_eq!(scene.reasons(), Vec::<String>::new(), "the waiter is dead");
}

#[test]
fn a_live_run_in_the_section_blocks_until_it_is_adopted() {
    let mut scene = Scene::new();
    let run = RunId::new("r-9").unwrap();
    scene.take("section:s-1", "runner:n");
    scene.foreign = Some((run.clone(), runner("n")));
    assert_eq!(scene.reasons(), ["lock section:s-1: runner:n"]);
    scene.site.kill(1);
    assert_eq!(scene.reasons(), ["r-9 of n"], "the lock of a dead runner is free, but its run lives");
    let nobody = Scene { runner: None, ..scene.clone() };
    assert_eq!(nobody.reasons(), ["r-9 of n"]);
    scene.foreign = Some((run, runner("m")));
    assert_eq!(scene.reasons(), Vec::<String>::new(), "the run is its own now");
}

#[test]
fn a_reason_names_the_resource_whose_release_may_change_it() {
    let resources = |trouble: usize| {
        let mut scene = Scene::new();
        TROUBLES[trouble].0(&mut scene);
        match scene.admit() {
            Admission::Run => unreachable!("there is a reason"),
            Admission::Blocked(reasons) => reasons[0].resource().map(|resource| resource.to_string()),
        }
    };
    let named: Vec<_> = (0..TROUBLES.len()).map(|trouble| resources(trouble).unwrap_or_default()).collect();
    let expected = [
        "",
        "",
        "",
        "",
        "lock task:t-1",
        "lock section:s-1",
        "",
        "lock db",
        "semaphore gpu",
        "semaphore disk",
        "lock account:mine:five_hour",
        "",
        "semaphore runs",
    ];
    assert_eq!(named, expected);
}

#[test]
#[should_panic(expected = "each need of t-1 has its fact")]
fn a_need_without_its_fact_panics() {
    let scene = Scene::new();
    admit(&scene.task, &Facts::default(), &scene.site.now);
}

/// A runner whose death is not visible crashes at 10:15, with a lock from 10:00 that lasts an hour.
#[test]
fn a_lock_of_an_invisible_crash_is_free_after_its_lease() {
    const MINUTE: i64 = 60;
    let mut scene = Scene::new();
    scene.site.at_lock("task:t-1", Input::Acquire(Box::new(ask("runner:a").ttl(60 * MINUTE))));
    scene.site.pass(30 * MINUTE);
    let Admission::Blocked(reasons) = scene.admit() else { panic!("the crash is not known at 10:30") };
    let [Reason::TaskLock { holder, .. }] = &reasons[..] else { panic!("{reasons:?}") };
    let left = holder.until.map(|until| until - scene.site.now.lease);
    assert_eq!((holder.holder.as_str(), left), ("runner:a", Some(crate::Span::from_secs(30 * MINUTE))));
    scene.site.pass(29 * MINUTE);
    assert!(matches!(scene.admit(), Admission::Blocked(_)), "10:59");
    scene.site.pass(6 * MINUTE);
    assert_eq!(scene.admit(), Admission::Run, "11:05");
}
