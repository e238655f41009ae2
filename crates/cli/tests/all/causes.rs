//! `why` tells the truth: random situations in a store in memory. The test removes one named cause after the other. The task can be
//! claimed when no cause is left, and not before, and no cause appears that was not named at first.

use std::collections::BTreeSet;

use banksman_core::task::admission::Reason;
use banksman_core::{HolderId, TaskId};
use banksman_engine::why::{Answer, Cause};

mod cause;
mod guarded;
mod scene;
mod situation;

use cause::{ROOTS, about, kind};
use scene::Scene;

/// The kinds of causes that one situation had.
type Kinds = BTreeSet<&'static str>;

/// Plays one situation to its end.
fn play(seed: u64) -> Kinds {
    let mut scene = Scene::new(seed);
    let task = scene.furnish();
    let mut kinds = Kinds::new();
    let mut named: Option<BTreeSet<String>> = None;
    loop {
        let answer = scene.why(&task);
        let causes = match &answer {
            Answer::Starting(runner) => {
                assert!(scene.living.contains(runner), "seed {seed}");
                let claimed = scene.claimable(&task);
                assert!(claimed.is_some(), "seed {seed}: nothing is said to stand in the way, but it cannot be claimed");
                kinds.insert("starting");
                return kinds;
            }
            Answer::Manual { holder, .. } => {
                assert!(is_claimed_by(&mut scene, &task, holder), "seed {seed}: {holder} works on it");
                kinds.insert("taken by a person");
                scene.end_claim(&task);
                continue;
            }
            Answer::Waits(causes) => causes.clone(),
            other => panic!("seed {seed}: {other:?}"),
        };
        assert!(!could_begin(&mut scene, &task, &causes), "seed {seed}: {causes:#?} stands in the way, but it can begin");
        kinds.extend(causes.iter().map(kind));
        kinds.extend(causes.iter().filter_map(|cause| part_of_claim(&mut scene, cause)));
        causes.iter().for_each(|cause| scene.verify(cause, &task));
        let now: BTreeSet<String> = causes.iter().map(about).collect();
        if let Some(named) = &named {
            // Removing a cause may let an earlier root begin, which then takes a place.
            let new: Vec<&String> = now.iter().filter(|cause| *cause != ROOTS && !named.contains(*cause)).collect();
            assert!(new.is_empty(), "seed {seed}: {new:?} was not named before: {named:?}");
        }
        let removable: Vec<&Cause> = causes.iter().filter(|cause| **cause != Cause::Manual).collect();
        if removable.is_empty() {
            assert!(scene.takeable(&task), "seed {seed}: the task is manual, and no person can take it");
            return kinds;
        }
        let cause = removable[scene.dice.index(removable.len())];
        let gone = about(cause);
        scene.remove(cause);
        // Some causes take more than one step, such as more runs than there are slots.
        let still = match scene.why(&task) {
            Answer::Waits(causes) => causes.iter().any(|cause| about(cause) == gone),
            _ => false,
        };
        // A freed resource is reserved only for claims that were named.
        assert!(!still || !is_one_step(cause), "seed {seed}: {cause:?} is still there");
        named = Some(now.into_iter().filter(|cause| still || *cause != gone).collect());
    }
}

/// Whether a runner could begin the task, or a person if the task is manual.
fn could_begin(scene: &mut Scene, task: &TaskId, causes: &[Cause]) -> bool {
    let is_manual = causes.contains(&Cause::Manual);
    // Earlier roots get the free places first, although the task itself could be claimed.
    let is_overtaken = causes.iter().any(|cause| kind(cause) == "behind earlier roots");
    match is_manual {
        true => causes.len() > 1 && scene.takeable(task),
        false => !is_overtaken && scene.claimable(task).is_some(),
    }
}

/// Whether neither a runner nor another person gets a task that this holder works on. Once its claim has expired, both may.
fn is_claimed_by(scene: &mut Scene, task: &TaskId, holder: &HolderId) -> bool {
    let rows = scene.everything();
    let banksman_core::task::State::Manual { holder: actual, until, .. } = &rows.backlog.tasks[task].state else { return false };
    let is_over = until.is_some_and(|until| until <= rows.lease);
    actual == holder && (is_over || (scene.claimable(task).is_none() && !scene.takeable(task)))
}

/// The part of a person's claim that a cause names.
fn part_of_claim(scene: &mut Scene, cause: &Cause) -> Option<&'static str> {
    let Cause::Taken { reason, line, .. } = cause else { return None };
    let resource = reason.resource()?;
    let is_claimed = reason.holders().iter().any(|holding| scene.claimed_for(&resource, &holding.holder).is_some());
    match reason {
        Reason::Lock { .. } if is_claimed => Some("lock of a claim"),
        Reason::Slots { .. } if is_claimed => Some("slots of a claim"),
        Reason::Section { .. } if is_claimed => Some("section of a claim"),
        Reason::Lock { .. } if line.iter().any(|(holder, _)| holder.as_str().starts_with("ann")) => {
            Some("lock that a claim waits for")
        }
        _ => None,
    }
}

/// Whether all that a cause names is removed in one step.
fn is_one_step(cause: &Cause) -> bool {
    matches!(cause, Cause::Taken { reason: Reason::Lock { .. } | Reason::TaskLock { .. } | Reason::Slots { .. }, .. })
}

#[test]
fn why_names_all_causes_and_no_others() {
    let seeds: u64 = std::env::var("BANKSMAN_TEST_SITUATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let kinds: BTreeSet<&str> = (0..seeds).flat_map(play).collect();
    let all = [
        "a claim is next",
        "behind a line",
        "behind earlier roots",
        "by hand",
        "dependency",
        "full",
        "kept out of the section",
        "lock",
        "lock goes on",
        "lock of a claim",
        "lock that a claim waits for",
        "never fits",
        "no runner",
        "no slot",
        "reserved",
        "roots",
        "section",
        "section busy",
        "section of a claim",
        "slots",
        "slots of a claim",
        "starting",
        "taken by a person",
        "task lock",
        "undefined",
        "works elsewhere",
    ];
    let missing: Vec<&str> = all.into_iter().filter(|kind| !kinds.contains(kind)).collect();
    assert!(missing.is_empty(), "never came up: {missing:?}");
}
