//! The contents of a task's worktree: the state of the entry for each of them, in each round.

use super::*;
use crate::ids::TaskId;

const TERMS: Terms = Terms { rounds: 2, ask_on_conflict: false };

fn work(round: u32) -> EntrySpec {
    EntrySpec { source: None, task: Some(TaskId::new("t-1").unwrap()), round, ..spec(1) }
}

fn collected(found: Found) -> Report {
    Report::Collected { found, terms: TERMS }
}

fn commit_of_task() -> Found {
    Found::Commit { source: commit(7), branch: Some("topic".into()) }
}

#[test]
fn every_collected_result_has_a_state_in_every_round() {
    let table = [
        (commit_of_task(), ["queued", "queued", "queued"]),
        (Found::Nothing, ["returned", "review", "review"]),
        (Found::Unfinished { reason: "a merge".into() }, ["returned", "returned", "needs_you"]),
        (Found::ForReview { reason: "no check".into() }, ["review", "review", "review"]),
    ];
    for (found, words) in table {
        for (round, word) in words.into_iter().enumerate() {
            let mut scene = Scene::new();
            let id = scene.add(work(u32::try_from(round).unwrap()));
            assert!(matches!(scene.queue.next("here", Lease(0)), Work::Collect(_)));
            scene.report(&id, collected(found.clone()));
            assert_eq!(scene.word(&id), word, "{found:?} in round {round}");
            scene.check_replay();
        }
    }
}

#[test]
fn reports_before_the_collection_are_late_and_it_happens_once() {
    let mut scene = Scene::new();
    let id = scene.add(work(0));
    for report in [
        built(),
        Report::NoChange { tip: commit(0xa0) },
        Report::Conflict { tip: commit(0xa0), files: vec!["a".into()] },
        checked(true),
        Report::Moved { commit: commit(0xb0) },
    ] {
        assert_eq!(scene.report(&id, report), Outcome::Late);
    }
    scene.report(&id, collected(commit_of_task()));
    assert_eq!(scene.report(&id, collected(Found::Nothing)), Outcome::Late);
    assert_eq!(scene.entries[&id].spec.source, Some(commit(7)));
    scene.check_replay();
}

#[test]
fn collection_precedes_checks_and_repeats_after_an_answer() {
    let mut scene = Scene::new();
    let other = scene.add(spec(3));
    scene.report(&other, built());
    let id = scene.add(work(2));
    assert!(matches!(scene.queue.next("here", Lease(0)), Work::Collect(entry) if entry.id == id));
    scene.report(&id, collected(commit_of_task()));
    assert!(matches!(scene.queue.next("here", Lease(0)), Work::Check { .. }));
    scene.report(&other, checked(true));
    scene.report(&other, Report::Moved { commit: commit(0xb0) });
    scene.report(&id, Report::Conflict { tip: commit(0xa0), files: vec!["a".into()] });
    assert_eq!(scene.word(&id), "needs_you");
    scene.step(Input::Answer { entry: id.clone(), again: true });
    // The person may have repaired it in the worktree.
    assert!(matches!(scene.queue.next("here", Lease(0)), Work::Collect(entry) if entry.id == id));
    scene.check_replay();
}

#[test]
fn changes_in_the_checkout_of_a_parent_are_a_conflict() {
    let obstacle = || Obstacle::Checkout { path: "/p".into(), reason: "it has changes".into(), files: vec!["a".into()] };
    for (of_child, word) in [(true, "returned"), (false, "waiting")] {
        let mut scene = Scene::new();
        let id = scene.add(EntrySpec { of_child, unchecked: true, ..work(0) });
        scene.report(&id, collected(commit_of_task()));
        scene.report(&id, built());
        scene.report(&id, Report::Obstructed(obstacle()));
        assert_eq!(scene.word(&id), word);
        scene.check_replay();
    }
}
