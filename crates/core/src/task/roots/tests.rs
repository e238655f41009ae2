use super::*;
use crate::ids::{DecisionId, Epoch, HolderId, RunId, RunnerId, Title};
use crate::step::Now;
use crate::task::{After, Input, Mark, Spec, Stuck, TaskEnd};
use crate::time::Lease;

fn task(number: i64, priority: i32, parent: Option<i64>) -> Task {
    let id = |number: i64| TaskId::new(&format!("t-{number}")).unwrap();
    let spec = Spec { parent: parent.map(id), priority, ..Spec::new(Title::new("x").unwrap()) };
    Task::new(id(number), spec, &Now { seq: Seq(number), ..Now::default() })
}

fn started(task: Task) -> Task {
    let (run, runner) = (RunId::new("r-1").unwrap(), RunnerId::new("n-1").unwrap());
    task.step(Input::Start { run, runner, recheck: false }, &Now::default()).state
}

#[test]
fn roots_are_under_way_only_while_they_run() {
    let pending = task(1, 0, None);
    assert!(!is_under_way(&pending));
    assert!(is_under_way(&started(pending.clone())));
    assert!(!is_under_way(&started(task(2, 0, Some(1)))), "a child is part of its root");
    assert!(!is_under_way(&pending.step(Input::Set(Mark::Review), &Now::default()).state));
}

/// A root that has begun keeps its place until it is over, or waits for something outside of it.
#[test]
fn every_state_with_or_without_a_place() {
    let (now, begun) = (Now::default(), started(task(1, 0, None)));
    let State::Running(live) = begun.state.clone() else { panic!("{begun:?}") };
    let (at, then) = (now.stamp(), After::Restart);
    for (state, keeps) in [
        (State::Pending, false),
        (State::Running(live.clone()), true),
        (State::Stuck { live: live.clone(), detected: at, reason: Stuck::SessionDead }, true),
        (State::Stopping { live, since: at, then }, true),
        (State::Backoff { until: Lease(9) }, true),
        (State::Awaiting { output: None, until: Some(Lease(9)), no_change: false }, true),
        (State::Awaiting { output: None, until: None, no_change: false }, true),
        (State::Manual { holder: HolderId::new("ann").unwrap(), epoch: Epoch(7), until: None }, true),
        (State::AwaitingDecision { decision: DecisionId::from(Seq(7)) }, false),
        (State::Review, false),
        (State::Done(TaskEnd::Cancelled), false),
    ] {
        let root = Task { state: state.clone(), ..task(1, 0, None) };
        let child = Task { state, ..task(2, 0, Some(1)) };
        assert_eq!((is_under_way(&root), is_under_way(&child)), (keeps, false), "{root:?}");
        assert_eq!(Roots::of(1, [&root]).unwrap().admit(&task(3, 0, None)), !keeps);
    }
}

#[test]
fn the_limit_admits_new_roots_and_keeps_present_ones() {
    let (first, second, third) = (started(task(1, 0, None)), started(task(2, 0, None)), task(3, 0, None));
    let all = [first.clone(), second, third.clone()];
    assert!(Roots::of(0, &all).is_none());
    let two = Roots::of(2, &all).unwrap();
    assert_eq!(two.begun.len(), 2);
    assert!(!two.admit(&third) && two.admit(&first) && two.admit(&task(4, 0, Some(1))));
    assert!(Roots::of(3, &all).unwrap().admit(&third));
    // A later limit below the number under way: the present roots continue, and no new one begins.
    let one = Roots::of(1, &all).unwrap();
    assert!(!one.admit(&third) && one.admit(&first));
}

#[test]
fn queued_roots_go_in_the_order_of_arrival_behind_all_children() {
    let (late, early, child) = (task(9, 5, None), task(3, 0, None), task(12, -1, Some(3)));
    let order = |limit| {
        let mut tasks = [&late, &early, &child];
        tasks.sort_by_key(|task| order(task, limit));
        tasks.map(|task| task.position.0)
    };
    assert_eq!(order(1), [12, 3, 9]);
    assert_eq!(order(0), [9, 3, 12], "without a limit priority comes first");
}
