//! The long ones: `make soak`.

#[test]
#[ignore = "takes long: make soak"]
fn sixty_four_processes_times_a_thousand_lose_and_double_none() {
    crate::processes::race(64, 1_000);
}

#[test]
#[ignore = "takes long: make soak"]
fn sixteen_processes_get_each_of_32000_items_once() {
    crate::queues::share(16, 32_000);
}

#[test]
#[ignore = "takes long: make soak"]
fn a_million_items_survive_takers_that_are_killed() {
    crate::queues::kill_takers(8, 1_000_000, 1_000);
}

/// Histories that nobody has seen before: their seeds follow the clock.
fn fresh(count: u64, history: impl Fn(u64)) {
    let first = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    (first..first + count).for_each(history);
}

#[test]
#[ignore = "takes long: make soak"]
fn fresh_histories_agree_with_the_pure_core() {
    fresh(20, |seed| crate::conformance::history(seed, 300));
}

#[test]
#[ignore = "takes long: make soak"]
fn fresh_histories_of_queues_agree_with_the_pure_core() {
    fresh(20, |seed| crate::queues_model::history(seed, 400));
}

#[test]
#[ignore = "takes long: make soak"]
fn fresh_histories_of_workers_agree_with_a_list_on_paper() {
    fresh(20, |seed| crate::workers_model::history(seed, 300));
}

#[test]
#[ignore = "takes long: make soak"]
fn fresh_calls_about_pipelines_agree_with_a_naive_model() {
    fresh(50, |seed| crate::pipelines_model::history(seed, 200));
}
