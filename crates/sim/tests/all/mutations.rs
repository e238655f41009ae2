//! Every checker can fail: for each there is a variant with one fault, which that checker detects without the others.

use banksman_sim::{Checker, Mutation, Options, run, run_twice};
use clap::ValueEnum as _;

/// Finds a seed on which a deliberately broken variant is caught: the pinned one, or, after a change of the histories,
/// the first that works.
#[expect(clippy::print_stderr, reason = "the new pin must be seen")]
fn assert_caught(mutation: Mutation, pin: u64) {
    let (only, name) = (mutation.checker(), mutation.name());
    let options = Options::broken(mutation);
    let is_caught = |seed| match only {
        Checker::Trace => run_twice(seed, options).violation.is_some(),
        _ => run(seed, options, None).violation.is_some(),
    };
    if is_caught(pin) {
        return;
    }
    let found = (0..400).find(|seed| is_caught(*seed));
    assert!(found.is_some(), "{name} was never caught by [{only}]");
    eprintln!("{name}: seed {pin} no longer shows it; pin {found:?}");
}

macro_rules! caught {
    ($($test:ident: $mutation:ident on $pin:literal),* $(,)?) => {
        $(#[test] fn $test() { assert_caught(Mutation::$mutation, $pin); })*

        #[test]
        fn every_mutation_has_its_test() {
            assert_eq!(Mutation::value_variants(), [$(Mutation::$mutation),*]);
        }
    };
}

caught! {
    a_stale_epoch_that_passes_is_caught: LockFencingOff on 1,
    a_newcomer_at_the_front_is_caught: NewcomerFirst on 0,
    one_slot_too_many_is_caught: CapacityOff on 0,
    an_epoch_given_twice_is_caught: EpochReuse on 0,
    a_fence_that_falls_is_caught: FenceFalls on 0,
    a_forgotten_waiter_is_caught: ForgetWaiter on 0,
    a_deadlock_that_is_not_refused_is_caught: DeadlockOff on 61,
    a_lease_that_ends_too_early_is_caught: StealLease on 0,
    a_living_process_called_dead_is_caught: PresumeDead on 0,
    a_row_without_an_event_is_caught: SilentLock on 0,
    a_heartbeat_that_was_not_written_is_caught: LostHeartbeat on 0,
    an_influence_from_outside_is_caught: OutsideCounter on 0,
    a_stale_holder_of_an_item_is_caught: QueueFencingOff on 0,
    an_item_taken_before_its_visibility_timeout_is_caught: QueueNoTime on 0,
    a_push_that_wakes_no_taker_is_caught: QueueSilent on 0,
    an_acknowledged_item_that_is_lost_is_caught: QueueLostItem on 0,
    a_take_with_an_old_epoch_is_caught: QueueOldEpoch on 0,
    an_item_that_changes_without_an_event_is_caught: QueueSilentRow on 1,
    a_section_that_outlives_its_run_is_caught: SectionStays on 0,
    a_task_taken_without_a_claim_is_caught: ClaimForgotten on 0,
    a_heartbeat_for_a_part_of_a_claim_is_caught: RenewsTaskOnly on 0,
    two_people_in_one_section_are_caught: SectionOpen on 1,
    a_run_that_cannot_be_adopted_is_caught: AdoptionNeedsLock on 1,
    a_claim_that_is_overtaken_for_ever_is_caught: OvertakeOff on 0,
    a_claim_that_is_next_and_is_overtaken_is_caught: NextNotKept on 41,
    a_stopped_process_that_keeps_others_waiting_is_caught: StoppedKept on 4,
    a_deadlock_of_claims_that_is_not_refused_is_caught: DeadlockUnseen on 1,
    a_refusal_without_a_cycle_is_caught: CircleInvented on 0,
    a_wait_that_outlives_its_end_is_caught: WaitStays on 9,
    an_explanation_without_claims_is_caught: WhyIgnoresClaims on 1,
    a_second_keeper_of_a_run_is_caught: RecordShared on 37,
    a_run_started_again_is_caught: Respawn on 0,
    a_tree_that_was_not_swept_is_caught: NoSweep on 20,
    an_unseen_tree_taken_for_dead_is_caught: UnseenIsDead on 20,
    an_unproven_run_without_a_decision_is_caught: Unasked on 20,
    a_session_that_leaves_processes_behind_is_caught: Stragglers on 0,
    a_slot_freed_before_the_session_ended_is_caught: EndAtWish on 0,
    an_end_that_was_forgotten_before_it_was_stored_is_caught: AcknowledgeFirst on 70,
    a_shortage_that_counts_as_a_failure_is_caught: ShortageCounts on 15,
    a_dependent_that_starts_early_is_caught: DependenciesOff on 1,
    two_runners_in_one_section_are_caught: SectionsOff on 0,
    one_run_too_many_is_caught: SlotsOff on 1,
    a_lowered_limit_without_effect_is_caught: LimitKept on 13,
    a_start_in_a_paused_project_is_caught: PauseUnseen on 1,
    a_start_of_a_stopped_task_is_caught: StopUnseen on 8,
    a_stop_that_uses_up_an_attempt_is_caught: StopCounts on 8,
    a_runner_with_more_runs_than_it_may_have_is_caught: RoomOff on 0,
    a_stalled_runner_called_dead_is_caught: StalledIsDead on 4,
    a_dead_runner_whose_pid_lives_on_is_caught: PidOnly on 52,
    a_runner_that_hears_nothing_is_caught: Deaf on 1,
    a_late_end_of_an_earlier_run_is_caught: LateEnd on 24,
    an_old_epoch_that_passes_is_caught: OldEpoch on 8,
    a_circle_of_dependencies_is_caught: CirclesOff on 7,
    an_outbox_command_that_stays_is_caught: CommandsStay on 6,
    a_task_that_changes_without_an_event_is_caught: SilentTask on 4,
    a_runner_that_ends_too_early_is_caught: IdleEarly on 5,
    an_attempt_without_a_check_for_done_is_caught: DoneUnseen on 0,
    one_root_too_many_is_caught: RootsOff on 0,
    a_root_that_jumps_the_queue_is_caught: QueueJumped on 0,
    counters_that_are_reset_are_caught: CountersReset on 4,
    one_attempt_too_many_is_caught: RestartsOff on 0,
    an_attempt_before_the_delay_is_over_is_caught: RestOff on 0,
    a_forgotten_delay_is_caught: RestForgotten on 0,
    a_nudge_that_does_not_count_is_caught: NudgeFree on 1,
    a_question_raised_twice_is_caught: AskedTwice on 0,
    an_answer_carried_out_twice_is_caught: AnsweredTwice on 4,
    a_question_that_stays_is_caught: QuestionStays on 25,
    a_loop_that_does_not_wait_for_its_children_is_caught: ChildrenOff on 1,
    a_pipeline_whose_task_is_over_is_caught: EndForgotten on 0,
    a_phase_that_is_skipped_is_caught: PhaseSkipped on 1,
    a_second_task_of_a_phase_is_caught: SecondTask on 0,
    a_task_without_the_status_of_its_pipeline_is_caught: HostForgotten on 3,
    a_retry_of_an_unrecoverable_failure_is_caught: RetriedForGood on 239,
    a_cancelled_pipeline_that_goes_on_is_caught: GoesOnCancelled on 6,
    a_phase_before_its_guards_is_caught: GuardsOff on 1,
    an_answer_for_other_guards_is_caught: OldAnswer on 78,
    two_runners_at_one_guard_are_caught: TwoCheckers on 1,
    a_dead_runner_that_keeps_a_guard_is_caught: CheckerStays on 4,
    an_unreported_guard_check_is_caught: AnswerLost on 1,
    a_phase_that_begins_while_its_guard_is_false_is_caught: GuardsOffAtClaim on 21,
    a_guard_that_blocks_for_ever_is_caught: NeverOverdue on 92,
    a_pipeline_that_changes_without_an_event_is_caught: SilentPipeline on 9,
    a_lock_that_outlives_its_pipeline_is_caught: KeptStays on 14,
    an_item_that_outlives_its_task_is_caught: ItemForgotten on 0,
    an_item_that_becomes_two_tasks_is_caught: TakenTwice on 0,
    an_item_taken_again_while_its_task_lives_is_caught: ItemNotKept on 0,
    a_paused_worker_that_takes_is_caught: PauseOff on 1,
    an_unsettled_job_is_caught: JobForgotten on 0,
    a_worker_that_sleeps_on_is_caught: SleepsOn on 6,
    an_event_routed_twice_is_caught: RoutedTwice on 0,
    an_event_without_its_reactions_is_caught: RoutePassed on 0,
    a_wake_up_that_is_lost_is_caught: WakeLost on 1,
    a_wake_up_too_many_is_caught: WakesAll on 0,
    a_wake_up_to_a_dead_runner_is_caught: WakesTheDead on 1,
    a_runner_that_is_never_woken_is_caught: NewestFirst on 0,
    a_runner_that_is_woken_out_of_order_is_caught: EndersFirst on 0,
    a_task_that_stays_parked_is_caught: StaysParked on 2,
}
