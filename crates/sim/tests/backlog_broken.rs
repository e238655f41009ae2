//! Every checker of the backlog can fail: for each there is an engine, a driver or a keeper with one fault, which that
//! checker finds without the others.

use banksman_sim::Options;
use banksman_sim::backlog::{Flaw, run};

/// The honest world passes on these same seeds: see `backlog.rs`.
const SEEDS: std::ops::Range<u64> = 0..150;

fn assert_caught(flaw: Flaw) {
    let only = flaw.checker();
    let options = Options { broken: Some(flaw), only: Some(only), steps: None };
    let caught = SEEDS.into_iter().find_map(|seed| run(seed, options, None).violation.map(|violation| (seed, violation)));
    assert!(caught.is_some(), "{} was never caught by [{only}]", flaw.name());
}

macro_rules! caught {
    ($($test:ident: $flaw:ident),* $(,)?) => {
        $(#[test] fn $test() { assert_caught(Flaw::$flaw); })*

        #[test]
        fn every_fault_has_its_test() {
            assert_eq!(Flaw::ALL.to_vec(), vec![$(Flaw::$flaw),*]);
        }
    };
}

caught! {
    a_second_keeper_of_a_run_is_caught: RecordShared,
    a_run_started_again_is_caught: Respawn,
    a_tree_that_was_not_swept_is_caught: NoSweep,
    a_session_that_leaves_processes_behind_is_caught: Stragglers,
    a_slot_freed_on_the_wish_to_kill_is_caught: EndAtWish,
    an_end_that_was_forgotten_before_it_was_stored_is_caught: AcknowledgeFirst,
    a_dependent_that_starts_early_is_caught: DependenciesOff,
    two_runners_in_one_section_are_caught: SectionsOff,
    one_run_too_many_is_caught: SlotsOff,
    a_runner_with_more_runs_than_it_may_have_is_caught: RoomOff,
    a_stalled_runner_called_dead_is_caught: StalledIsDead,
    a_dead_runner_whose_pid_lives_on_is_caught: PidOnly,
    a_runner_that_hears_nothing_is_caught: Deaf,
    a_late_end_of_an_earlier_run_is_caught: LateEnd,
    an_old_epoch_that_passes_is_caught: FencingOff,
    a_circle_of_dependencies_is_caught: CirclesOff,
    an_errand_that_stays_is_caught: ErrandsStay,
    a_task_that_changes_without_an_event_is_caught: SilentTask,
    a_runner_that_ends_too_early_is_caught: IdleEarly,
    an_attempt_without_a_look_for_done_is_caught: DoneUnseen,
    one_root_too_many_is_caught: RootsOff,
    a_root_that_jumps_the_queue_is_caught: QueueJumped,
    counters_that_are_reset_are_caught: CountersReset,
    one_attempt_too_many_is_caught: RestartsOff,
    an_attempt_before_the_rest_is_over_is_caught: RestOff,
    a_rest_that_nobody_remembers_is_caught: RestForgotten,
    a_nudge_that_does_not_count_is_caught: NudgeFree,
    a_question_raised_twice_is_caught: AskedTwice,
    an_answer_carried_out_twice_is_caught: AnsweredTwice,
    a_question_that_stays_is_caught: QuestionStays,
    children_that_are_not_waited_for_are_caught: ChildrenOff,
    a_pipeline_whose_task_is_over_is_caught: EndForgotten,
    a_phase_that_is_skipped_is_caught: PhaseSkipped,
    a_second_task_of_a_phase_is_caught: SecondTask,
    a_task_that_does_not_stand_as_its_pipeline_is_caught: HostForgotten,
    a_retry_of_what_failed_for_good_is_caught: RetriedForGood,
    a_cancelled_pipeline_that_goes_on_is_caught: GoesOnCancelled,
    a_phase_before_its_guards_is_caught: GuardsOff,
    an_answer_for_other_guards_is_caught: OldAnswer,
    two_runners_at_one_guard_are_caught: TwoLookers,
    a_dead_runner_that_keeps_a_guard_is_caught: LookerStays,
    a_guard_that_nobody_tells_of_is_caught: AnswerLost,
    a_pipeline_that_changes_without_an_event_is_caught: SilentPipeline,
    an_item_that_does_not_hear_of_its_end_is_caught: ItemForgotten,
    an_item_that_becomes_two_tasks_is_caught: TakenTwice,
    an_item_taken_again_while_its_task_lives_is_caught: ItemNotKept,
    a_paused_worker_that_takes_is_caught: PauseOff,
    a_job_that_nobody_settles_is_caught: JobForgotten,
    a_worker_that_sleeps_on_is_caught: SleepsOn,
    an_event_routed_twice_is_caught: RoutedTwice,
    an_event_that_is_passed_over_is_caught: RoutePassed,
}
