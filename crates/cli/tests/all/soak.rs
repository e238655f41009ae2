//! Long tests: `make soak`.

#[test]
#[ignore = "takes long: make soak"]
fn sixty_four_processes_with_1000_rounds_lose_and_double_no_grant() {
    crate::processes::race(64, 1_000);
}

#[test]
#[ignore = "takes long: make soak"]
fn sixteen_processes_take_each_of_32000_items_once() {
    crate::queue_takers::share(16, 32_000);
}

#[test]
#[ignore = "takes long: make soak"]
fn a_million_items_survive_killed_takers() {
    crate::queue_takers::kill_takers(8, 1_000_000, 1_000);
}

/// Runs histories with new seeds, taken from the clock.
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
fn a_thousand_killed_landings_leave_nothing_half_done() {
    fresh(1, |seed| crate::landing_killed::kill_landings(250, seed));
}

#[test]
#[ignore = "takes long: make soak"]
fn eight_runners_killed_a_hundred_times_lose_and_double_no_task() {
    crate::fleet::kill_runners(1_000, 100);
}

#[test]
#[ignore = "takes long: make soak"]
fn a_claim_on_postgres_reads_few_rows_beside_100000_tasks() {
    crate::fleet::check_rows_read_by_claims(100_000);
}

#[test]
#[ignore = "takes long: make soak"]
fn two_hundred_tasks_land_while_processes_are_killed() {
    fresh(1, |seed| crate::landing_chaos::chaos(200, 300, seed));
}
