//! A task is admitted exactly if every single condition holds: random histories of other holders at its resources.

use proptest::prelude::*;

use super::*;

/// A random operation of another holder at one of the resources.
#[derive(Debug, Clone)]
enum Op {
    Ask { at: usize, who: usize, weight: u32, waits: bool, lease: bool },
    Release { at: usize, who: usize },
    Pass(i64),
    Die(i32),
}

const LOCKS: [&str; 3] = ["task:t-1", "section:s-1", "db"];
const SEMAPHORES: [&str; 3] = ["gpu", "disk", "runs"];
const PEOPLE: [&str; 4] = ["runner:m", "runner:n", "x", "y"];

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (0..6_usize, 0..4_usize, 1..4_u32, any::<bool>(), any::<bool>())
            .prop_map(|(at, who, weight, waits, lease)| Op::Ask { at, who, weight, waits, lease }),
        3 => (0..6_usize, 0..4_usize).prop_map(|(at, who)| Op::Release { at, who }),
        2 => prop::sample::select(vec![5, 15, 20]).prop_map(Op::Pass),
        2 => (0..4_i32).prop_map(Op::Die),
    ]
}

fn play(scene: &mut Scene, op: &Op) {
    match *op {
        Op::Ask { at, who, weight, waits, lease } => {
            let pid = i32::try_from(who).unwrap();
            let mut wish = ask(PEOPLE[who]).bound_to(&[pid]);
            wish = if lease { wish.ttl(20) } else { wish };
            wish = if waits { wish.waits(pid) } else { wish };
            match at {
                0..3 => drop(scene.site.at_lock(LOCKS[at], Input::Acquire(Box::new(wish)))),
                _ => {
                    let input = semaphore::Input::Acquire(Box::new(wish.weight(weight)));
                    scene.site.at_semaphore(SEMAPHORES[at - 3], input);
                }
            }
        }
        Op::Release { at, who } if at < 3 => {
            let epoch = scene.site.holder(LOCKS[at]).map(|(_, epoch)| epoch).unwrap_or_default();
            scene.site.at_lock(LOCKS[at], Input::Release { holder: holder(PEOPLE[who]), epoch });
        }
        Op::Release { at, who } => {
            let input = semaphore::Input::Release { holder: holder(PEOPLE[who]), epoch: None };
            scene.site.at_semaphore(SEMAPHORES[at - 3], input);
        }
        Op::Pass(secs) => scene.site.pass(secs),
        Op::Die(pid) => {
            // The death is known only until the next one: the next process with this number is another one.
            scene.site.now.dead.clear();
            scene.site.kill(pid);
        }
    }
}

/// Whether `who` would get the lock right now, by the lock itself.
fn gets_lock(scene: &Scene, label: &str, who: &str) -> bool {
    let Some(lock) = scene.site.machine.locks.get(label) else { return true };
    match lock.clone().step(Input::Acquire(Box::new(ask(who))), &scene.site.now).outcome {
        lock::Outcome::Acquired(_) | lock::Outcome::Reclaimed { .. } => true,
        lock::Outcome::Busy(_) => false,
        other => panic!("{other:?}"),
    }
}

/// Whether a new holder would get the slots right now, with no waiter before it.
pub(super) fn gets_slots(scene: &Scene, label: &str, weight: u32) -> bool {
    let semaphore = &scene.site.machine.semaphores[label];
    let alone = semaphore.waiters.iter().all(|waiter| scene.site.now.dead.contains(&waiter.standing.process));
    let input = semaphore::Input::Acquire(Box::new(ask("run:r-1").weight(weight)));
    match semaphore.clone().step(input, &scene.site.now).outcome {
        semaphore::Outcome::Acquired(_) => alone,
        semaphore::Outcome::Full { .. } | semaphore::Outcome::TooManyWaiters => false,
        other => panic!("{other:?}"),
    }
}

fn scenes() -> impl Strategy<Value = Scene> {
    let status = prop::option::weighted(0.9, prop::sample::select(Status::ALL.to_vec()));
    let dependencies = prop::collection::vec((status, any::<bool>()), 0..3);
    let foreign = prop::option::weighted(0.3, prop::sample::select(vec!["m", "n"]));
    let ops = prop::collection::vec(op(), 0..25);
    let rest = prop::option::weighted(0.3, 0..60_i64);
    let roots = (0..3_usize, 0..3_u32, any::<bool>());
    (dependencies, foreign, ops, any::<bool>(), prop::bool::weighted(0.8), rest, roots).prop_map(
        |(dependencies, foreign, ops, asks, works, rest, (roots, limit, is_child))| {
            let mut scene = Scene::new();
            if let Some(secs) = rest {
                scene.task.state = State::Backoff { until: scene.site.now.lease + Span::from_secs(secs) };
            }
            scene.task.spec.parent = is_child.then(|| task("d-9"));
            (0..roots).for_each(|number| scene.begin_root(&format!("x-{number}")));
            // A root in backoff has begun, so it is one of them.
            scene.roots.extend(rest.is_some().then(|| scene.task.clone()));
            scene.limit = limit;
            let number = |(at, (status, allow)): (usize, (Option<Status>, bool))| (task(&format!("d-{at}")), status, allow);
            scene.dependencies = dependencies.into_iter().enumerate().map(number).collect();
            scene.foreign = foreign.map(|owner| (RunId::new("r-9").unwrap(), runner(owner)));
            scene.runner = scene.runner.filter(|_| asks);
            scene.task.spec.work = scene.task.spec.work.filter(|_| works);
            ops.iter().for_each(|op| play(&mut scene, op));
            scene
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn a_task_is_admitted_iff_every_condition_holds(scene in scenes()) {
        let mut violated: Vec<String> = Vec::new();
        let mut unless = |holds: bool, reason: &str| {
            if !holds {
                violated.push(reason.to_owned());
            }
        };
        let is_rested = match &scene.task.state {
            State::Backoff { until } => scene.site.now.lease >= *until,
            _ => true,
        };
        unless(is_rested, "rests until");
        unless(scene.task.spec.work.is_some(), "no work");
        for (task, status, allow_failed) in &scene.dependencies {
            let over = [Status::Failed, Status::Cancelled, Status::Skipped].map(Some).contains(status);
            unless(*status == Some(Status::Completed) || *allow_failed && over, task.as_str());
        }
        unless(gets_lock(&scene, "task:t-1", "run:r-1"), "lock task:t-1");
        let own = scene.runner.is_some() && scene.site.holder("section:s-1").is_some_and(|(who, _)| who == "runner:m");
        let gets_section = own || gets_lock(&scene, "section:s-1", "runner:new");
        unless(gets_section, "lock section:s-1");
        if gets_section && let Some((run, owner)) = &scene.foreign {
            unless(scene.runner.as_ref() == Some(owner), run.as_str());
        }
        unless(gets_lock(&scene, "db", "run:r-1"), "lock db");
        unless(gets_slots(&scene, "gpu", 2), "semaphore gpu");
        unless(gets_slots(&scene, "disk", 1), "semaphore disk");
        let is_begun = matches!(scene.task.state, State::Backoff { .. });
        let others = scene.roots.iter().filter(|root| root.id != scene.task.id && root.spec.parent.is_none()).count();
        let has_place = scene.limit == 0 || is_begun || others < usize::try_from(scene.limit).unwrap();
        unless(has_place || scene.task.spec.parent.is_some(), "roots");
        unless(gets_slots(&scene, "runs", 1), "runs");
        let reasons = scene.reasons();
        prop_assert_eq!(reasons.len(), violated.len(), "{:?} and {:?}", reasons, violated);
        for (reason, prefix) in reasons.iter().zip(&violated) {
            prop_assert!(reason.starts_with(prefix.as_str()), "{reasons:?} and {violated:?}");
        }
    }
}
