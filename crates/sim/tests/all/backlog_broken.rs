//! Every checker of the backlog can fail: for each there is an engine, a driver or a keeper with one fault, which that
//! checker finds without the others.

use banksman_sim::Options;
use banksman_sim::backlog::{Mutation, run};

fn assert_caught(mutation: Mutation, pin: u64) {
    let only = mutation.checker();
    let options = Options { broken: Some(mutation), only: Some(only), steps: None };
    let is_caught = |seed| run(seed, options, None).violation.is_some();
    assert!(crate::caught_on(mutation.name(), pin, is_caught), "{} was never caught by [{only}]", mutation.name());
}

macro_rules! caught {
    ($($test:ident: $mutation:ident on $pin:literal),* $(,)?) => {
        $(#[test] fn $test() { assert_caught(Mutation::$mutation, $pin); })*

        #[test]
        fn every_fault_has_its_test() {
            assert_eq!(Mutation::ALL.to_vec(), vec![$(Mutation::$mutation),*]);
        }
    };
}

caught! {
    a_second_keeper_of_a_run_is_caught: RecordShared on 16,
    a_run_started_again_is_caught: Respawn on 0,
    a_tree_that_was_not_swept_is_caught: NoSweep on 0,
    a_tree_that_cannot_be_seen_taken_for_dead_is_caught: UnseenIsDead on 18,
    a_run_that_nobody_is_asked_about_is_caught: Unasked on 20,
    a_session_that_leaves_processes_behind_is_caught: Stragglers on 0,
    a_slot_freed_on_the_wish_to_kill_is_caught: EndAtWish on 0,
    an_end_that_was_forgotten_before_it_was_stored_is_caught: AcknowledgeFirst on 22,
    a_shortage_that_counts_as_a_failure_is_caught: ShortageCounts on 15,
    a_dependent_that_starts_early_is_caught: DependenciesOff on 0,
    two_runners_in_one_section_are_caught: SectionsOff on 0,
    one_run_too_many_is_caught: SlotsOff on 0,
    a_limit_that_was_lowered_in_vain_is_caught: LimitKept on 10,
    a_runner_with_more_runs_than_it_may_have_is_caught: RoomOff on 0,
    a_stalled_runner_called_dead_is_caught: StalledIsDead on 4,
    a_dead_runner_whose_pid_lives_on_is_caught: PidOnly on 29,
    a_runner_that_hears_nothing_is_caught: Deaf on 1,
    a_late_end_of_an_earlier_run_is_caught: LateEnd on 38,
    an_old_epoch_that_passes_is_caught: FencingOff on 4,
    a_circle_of_dependencies_is_caught: CirclesOff on 24,
    an_errand_that_stays_is_caught: ErrandsStay on 0,
    a_task_that_changes_without_an_event_is_caught: SilentTask on 1,
    a_runner_that_ends_too_early_is_caught: IdleEarly on 0,
    an_attempt_without_a_look_for_done_is_caught: DoneUnseen on 0,
    one_root_too_many_is_caught: RootsOff on 0,
    a_root_that_jumps_the_queue_is_caught: QueueJumped on 0,
    counters_that_are_reset_are_caught: CountersReset on 4,
    one_attempt_too_many_is_caught: RestartsOff on 0,
    an_attempt_before_the_rest_is_over_is_caught: RestOff on 0,
    a_rest_that_nobody_remembers_is_caught: RestForgotten on 5,
    a_nudge_that_does_not_count_is_caught: NudgeFree on 1,
    a_question_raised_twice_is_caught: AskedTwice on 0,
    an_answer_carried_out_twice_is_caught: AnsweredTwice on 31,
    a_question_that_stays_is_caught: QuestionStays on 31,
    children_that_are_not_waited_for_are_caught: ChildrenOff on 3,
    a_pipeline_whose_task_is_over_is_caught: EndForgotten on 0,
    a_phase_that_is_skipped_is_caught: PhaseSkipped on 0,
    a_second_task_of_a_phase_is_caught: SecondTask on 0,
    a_task_that_does_not_stand_as_its_pipeline_is_caught: HostForgotten on 0,
    a_retry_of_what_failed_for_good_is_caught: RetriedForGood on 13,
    a_cancelled_pipeline_that_goes_on_is_caught: GoesOnCancelled on 61,
    a_phase_before_its_guards_is_caught: GuardsOff on 0,
    an_answer_for_other_guards_is_caught: OldAnswer on 136,
    two_runners_at_one_guard_are_caught: TwoLookers on 0,
    a_dead_runner_that_keeps_a_guard_is_caught: LookerStays on 4,
    a_guard_that_nobody_tells_of_is_caught: AnswerLost on 0,
    a_phase_that_begins_while_its_guard_is_false_is_caught: GuardsOffAtClaim on 1,
    a_guard_that_blocks_for_ever_is_caught: NeverOverdue on 27,
    a_pipeline_that_changes_without_an_event_is_caught: SilentPipeline on 4,
    a_lock_that_outlives_its_pipeline_is_caught: KeptStays on 3,
    an_item_that_does_not_hear_of_its_end_is_caught: ItemForgotten on 0,
    an_item_that_becomes_two_tasks_is_caught: TakenTwice on 0,
    an_item_taken_again_while_its_task_lives_is_caught: ItemNotKept on 0,
    a_paused_worker_that_takes_is_caught: PauseOff on 4,
    a_job_that_nobody_settles_is_caught: JobForgotten on 0,
    a_worker_that_sleeps_on_is_caught: SleepsOn on 17,
    an_event_routed_twice_is_caught: RoutedTwice on 0,
    an_event_that_is_passed_over_is_caught: RoutePassed on 0,
}
