//! The long ones: `make soak`.

#[test]
#[ignore = "takes long: make soak"]
fn sixty_four_processes_times_a_thousand_lose_and_double_none() {
    crate::processes::race(64, 1_000);
}
