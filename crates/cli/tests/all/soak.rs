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
