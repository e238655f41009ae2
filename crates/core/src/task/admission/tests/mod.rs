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

/// A task that needs the lock `db`, two slots of `gpu` and one of `disk`, in an exclusive section, and all that the
/// answer depends on. At first nothing blocks it of the runner `m`.
#[derive(Debug, Clone)]
struct Scene {
    site: World<Coordination>,
    task: Task,
    runner: Option<RunnerId>,
    dependencies: Vec<(TaskId, Option<Status>, bool)>,
    section: Section,
    foreign: Option<(RunId, RunnerId)>,
    limits: Vec<AccountLimit>,
    /// Other roots, and how many may be under way; any number if that is 0.
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

    /// All that stands in the way, in words.
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

    /// One root may be under way, and this one is.
    fn begin_root(&mut self, id: &str) {
        let mut root = Task::new(task(id), spec("other"), &self.site.now);
        root.state = State::Backoff { until: Lease(0) };
        self.roots.push(root);
        self.limit = 1;
    }

    /// An agent does it, whose account is limited.
    fn limit_account(&mut self) {
        let choice = AgentChoice { agent: name("claude"), account: name("mine"), model: None };
        let work = AgentWork { agents: vec![choice], ..AgentWork::default() };
        self.task.spec.work = self.task.spec.work.take().map(|_| Work::Agent(std::sync::Arc::new(work)));
        let scope = limit::Scope { account: Some(name("mine")), kind: "five_hour".into(), model: None, unnamed: false };
        let reach = limit::Input::Reach { run: None, agent: None, resets: None, text: "".into(), unnamed: false };
        self.limits.push(AccountLimit::new(scope, &self.site.now).step(reach, &self.site.now).state);
    }

    /// The process `pid` waits for the lock.
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

/// Something that stands in the way, and how it is told.
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
fn a_pause_of_the_project_or_of_the_task_holds_it_back_and_a_task_for_people_is_not_held_back() {
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
fn every_reason_is_told_alone_and_in_every_combination() {
    assert_eq!(Scene::new().admit(), Admission::Run);
    for choice in 0..1_usize << TROUBLES.len() {
        let (mut scene, mut expected) = (Scene::new(), Vec::new());
        for (number, (make, told)) in TROUBLES.iter().enumerate().filter(|(number, _)| choice >> number & 1 == 1) {
            make(&mut scene);
            // Whoever holds the section answers for all runs in it.
            let is_told = match number {
                6 => choice >> 5 & 1 == 0,
                // One without work has no agent.
                10 => choice >> 1 & 1 == 0,
                _ => true,
            };
            if is_told {
                expected.push(*told);
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
fn one_that_waits_for_a_decision_is_blocked_by_nothing_else() {
    let mut scene = Scene::new();
    scene.task.state = State::AwaitingDecision { decision: DecisionId::from(Seq(7)) };
    scene.take("db", "x");
    assert_eq!(scene.reasons(), ["asks d-7"]);
}

#[test]
fn one_that_rests_is_admitted_at_the_very_moment() {
    let mut scene = Scene::new();
    let until = scene.site.now.lease + Span::from_ms(1);
    scene.task.state = State::Backoff { until };
    assert_eq!(scene.reasons().len(), 1);
    scene.site.now.lease = until;
    assert_eq!(scene.admit(), Admission::Run);
}

#[test]
fn one_that_is_worked_on_by_hand_names_who_has_its_lock() {
    let mut scene = Scene::new();
    let (holder, epoch) = (holder("ann"), crate::ids::Epoch(7));
    scene.task.state = State::Manual { holder, epoch, until: None };
    assert_eq!(scene.reasons(), ["is in_progress"], "its lock is free, and nobody has looked yet");
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
fn a_dependency_is_met_when_it_is_completed_or_over_and_that_is_enough() {
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
fn a_grant_that_is_over_is_not_in_the_way_unless_somebody_stands_in_line() {
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
            assert_eq!(scene.reasons().len(), 1, "{label}: the one in line comes first");
            scene.site.kill(2);
            assert_eq!(scene.reasons(), Vec::<String>::new(), "{label}: the one in line is dead");
        }
    }
}

#[test]
fn slots_are_for_those_in_line_though_enough_are_free() {
    let mut scene = Scene::new();
    scene.take_slots("gpu", "x", 1);
    scene.wait_for_slots("gpu", "y", 3, 2);
    assert_eq!(scene.reasons(), ["semaphore gpu: 2 > 2 of 3, line 1, x"]);
}

#[test]
fn a_crowd_of_holders_leaves_no_place_though_slots_are_free() {
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
fn an_increase_that_was_not_taken_up_leaves_what_was_held_before() {
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
fn a_runner_works_on_in_the_section_that_it_holds() {
    let mut scene = Scene::new();
    let grant = ask("runner:m").max_hold(60).bound_to(&[1]);
    scene.site.at_lock("section:s-1", Input::Acquire(Box::new(grant)));
    assert_eq!(scene.reasons(), Vec::<String>::new());
    for other in [None, Some(runner("n"))] {
        let other = Scene { runner: other, ..scene.clone() };
        assert_eq!(other.reasons(), ["lock section:s-1: runner:m"]);
    }
    scene.wait("section:s-1", "runner:n", 2);
    assert_eq!(scene.reasons(), Vec::<String>::new(), "it need not leave for one who waits");
    scene.site.pass(60);
    assert_eq!(scene.reasons(), ["lock section:s-1: runner:m"], "unless its time is over");
    scene.site.kill(2);
    assert_eq!(scene.reasons(), Vec::<String>::new(), "and somebody is there");
}

#[test]
fn a_run_that_lives_on_in_the_section_is_in_the_way_until_it_is_adopted() {
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
    assert_eq!(scene.reasons(), Vec::<String>::new(), "it is its own now");
}

#[test]
fn a_reason_names_the_resource_whose_release_may_change_it() {
    let resources = |trouble: usize| {
        let mut scene = Scene::new();
        TROUBLES[trouble].0(&mut scene);
        match scene.admit() {
            Admission::Run => unreachable!("there is trouble"),
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
fn a_need_without_its_fact_is_a_mistake_of_the_caller() {
    let scene = Scene::new();
    admit(&scene.task, &Facts::default(), &scene.site.now);
}

/// A runner whose death nobody can see crashes at 10:15, with a lock from 10:00 that lasts an hour.
#[test]
fn what_was_started_at_ten_and_crashed_unseen_can_be_claimed_at_five_past_eleven() {
    const MINUTE: i64 = 60;
    let mut scene = Scene::new();
    scene.site.at_lock("task:t-1", Input::Acquire(Box::new(ask("runner:a").ttl(60 * MINUTE))));
    scene.site.pass(30 * MINUTE);
    let Admission::Blocked(reasons) = scene.admit() else { panic!("nobody knows at 10:30 that it crashed") };
    let [Reason::TaskLock { holder, .. }] = &reasons[..] else { panic!("{reasons:?}") };
    let left = holder.until.map(|until| until - scene.site.now.lease);
    assert_eq!((holder.holder.as_str(), left), ("runner:a", Some(crate::Span::from_secs(30 * MINUTE))));
    scene.site.pass(29 * MINUTE);
    assert!(matches!(scene.admit(), Admission::Blocked(_)), "10:59");
    scene.site.pass(6 * MINUTE);
    assert_eq!(scene.admit(), Admission::Run, "11:05");
}
