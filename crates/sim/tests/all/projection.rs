//! The projection of docs/internals/scaling.md, in a small slice.

use banksman_core::Span;
use banksman_sim::{Projection, Workload, projection};

fn measure(machines: usize, duration_ms: i64, tasks: usize) -> Projection {
    projection(Workload { machines, duration: Span::from_ms(duration_ms), tasks }, 1).expect("no machine stops")
}

#[test]
fn a_hundred_machines_are_kept_busy_by_tasks_of_ten_seconds() {
    let found = measure(100, 10_000, 200);
    assert!((0.95..=1.0).contains(&found.slots_busy) && found.project_busy < 0.3, "{found:?}");
}

#[test]
fn the_commits_of_a_task_stay_in_their_bound() {
    let found = measure(16, 1_000, 200);
    assert!((1.0..=1.7).contains(&found.commits_per_task), "{found:?}");
    let [first, second] = [4, 4].map(|machines| measure(machines, 1_000, 50));
    assert_eq!(first, second, "the same seed gives the same result");
}

/// The more machines wait for a saturated project, the more runs end meanwhile, and their ends join the waiting batches.
#[test]
fn machines_beyond_saturation_do_not_reduce_the_throughput() {
    let found = [16, 48, 100].map(|machines| measure(machines, 100, 200));
    let best = found.iter().map(|one| one.tasks_per_second).fold(0.0, f64::max);
    let [first, .., last] = &found;
    assert!(first.project_busy >= 0.9 && last.slots_busy < 0.7, "{found:?}");
    assert!(last.tasks_per_second >= 0.9 * best && last.commits_per_task <= 0.35, "{found:?}");
    assert!(found.is_sorted_by(|fewer, more| more.tasks_per_second >= 0.9 * fewer.tasks_per_second), "{found:?}");
}
