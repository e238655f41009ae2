//! The attempts of tasks, recoveries, outbox commands and decisions of one runner, over the real store.

use banksman_core::decision::Act;
use banksman_core::resource::coordination::Command;
use banksman_core::resource::grant::{Ask, GrantRequest};
use banksman_core::resource::lock;
use banksman_core::task::retry::Marker;
use banksman_core::task::{Mark, State, Watch};
use banksman_core::{Decision, HolderId, Limits, LimitsChange, Name, Notice, Seq, Span};

use super::stage::{Actor, Stage, TIMEOUT, exited, options, policy, task};
use super::{Action, Activity, Input, Options, Vitals};
use crate::calls::decisions::{DecisionOutcome, DecisionRequest};
use crate::calls::manual::Taking;
use crate::calls::runs::{RunOutcome, RunRequest};
use crate::calls::tasks::TaskRequest;
use crate::request::{Reply, Request};

/// A runner that has started the only task.
fn started(stage: &mut Stage, options: Options) -> Actor {
    let mut actor = stage.start("m", options);
    assert!(actor.did().contains(&"spawn t".to_owned()));
    actor
}

/// Ends the last run of the only task.
fn end(stage: &mut Stage, actor: &mut Actor, code: i32) -> Span {
    actor.notify(stage, Input::Ended(actor.run().clone(), exited(code))).expect("it waits for more")
}

#[test]
fn the_file_of_a_loop_is_checked_before_claim_and_finish() {
    let mut stage = Stage::new();
    stage.add_loop("t");
    let mut actor = stage.start("m", options());
    // The first check belongs to the scan of all waiting loops.
    assert_eq!(actor.did(), ["check t", "check t", "claim", "spawn t"]);
    end(&mut stage, &mut actor, 0);
    assert_eq!(actor.did(), ["check t", "finish", "acknowledge"]);
    stage.sleep(&mut actor);
    assert!(actor.did().ends_with(&["check t", "claim", "spawn t"].map(String::from)));
    stage.files.insert(task("t"), Marker::Done);
    end(&mut stage, &mut actor, 1);
    assert_eq!(actor.did(), ["check t", "finish", "acknowledge"]);
    assert_eq!(stage.status("t"), "completed");
}

#[test]
fn no_file_is_checked_without_a_loop() {
    let mut stage = Stage::new();
    stage.add("t", |_| {});
    let mut actor = stage.start("m", options());
    end(&mut stage, &mut actor, 0);
    assert_eq!(actor.did(), ["claim", "spawn t", "finish", "acknowledge"]);
}

#[test]
fn a_loop_that_is_done_before_its_first_attempt_is_not_started() {
    for (marker, status) in [(Marker::Done, "completed"), (Marker::Broken("a directory".into()), "failed")] {
        let mut stage = Stage::new();
        // The scan of all waiting loops finds it.
        stage.add_loop("t");
        stage.files.insert(task("t"), marker.clone());
        let mut actor = stage.start("m", options());
        assert_eq!(actor.did()[..2], ["check t", "found"]);
        assert_eq!(stage.status("t"), status);

        // It became done while its runner was asleep, between two scans.
        let mut stage = Stage::new();
        let mut actor = stage.start("m", options());
        stage.files.insert(task("t"), marker);
        stage.add_loop("t");
        stage.play(&mut actor);
        assert_eq!(actor.did()[..2], ["check t", "found"]);
        assert_eq!((stage.status("t"), stage.count_events("task:started")), (status.into(), 0));
    }
}

#[test]
fn backoff_ends_exactly_at_its_deadline() {
    let mut stage = Stage::new();
    stage.add_loop("t");
    let mut actor = started(&mut stage, options());
    let sleep = end(&mut stage, &mut actor, 0);
    assert_eq!(sleep, policy().delay, "it sleeps exactly as long as its task");
    actor.did();
    stage.pass(999);
    // A wake-up in between does not start it either.
    assert_eq!(actor.notify(&mut stage, Input::Woken), Some(Span::from_ms(1)));
    assert_eq!((actor.did(), stage.count_events("task:started")), (Vec::new(), 1));
    stage.pass(1);
    stage.play(&mut actor);
    assert!(actor.did().ends_with(&["check t", "claim", "spawn t"].map(String::from)));
}

#[test]
fn a_loop_has_at_most_max_attempts() {
    let mut stage = Stage::new();
    stage.add_loop("t");
    let mut actor = started(&mut stage, options());
    for _ in 1..policy().max_attempts.get() {
        end(&mut stage, &mut actor, 0);
        stage.sleep(&mut actor);
    }
    end(&mut stage, &mut actor, 0);
    stage.sleep(&mut actor);
    assert_eq!((stage.status("t"), stage.count_events("task:started")), ("failed".into(), 3));
}

#[test]
fn a_done_loop_waits_for_its_children_until_child_wait() {
    let mut stage = Stage::new();
    stage.add_loop("t");
    let mut actor = started(&mut stage, Options { max_runs: Some(1), ..options() });
    for child in ["c-1", "c-2"] {
        stage.add(child, |spec| spec.parent = Some(task("t")));
    }
    stage.files.insert(task("t"), Marker::Done);
    end(&mut stage, &mut actor, 0);
    assert!(actor.did().contains(&"spawn c-1".to_owned()), "its place is free");
    assert!(matches!(stage.rows().tasks[&task("t")].state, State::Awaiting { until: Some(_), .. }));
    let slept = stage.sleep(&mut actor);
    assert_eq!(Span::from_ms(slept), policy().child_wait);
    let did = actor.did();
    assert!(did.contains(&"settle".into()) && did.contains(&"kill".into()), "{did:?}");
    assert_eq!(stage.status("c-2"), "cancelled", "it had not begun");
    assert_eq!(stage.status("t"), "in_progress", "one child is not dead yet");
    end(&mut stage, &mut actor, 143);
    assert_eq!((stage.status("c-1"), stage.status("t")), ("cancelled".into(), "completed".into()));
}

/// The child was ended with the others, and a person retried it: no runner ends it a second time, and nothing continues without a person.
#[test]
fn until_idle_does_not_wait_for_a_parent_whose_child_needs_a_person() {
    let mut stage = Stage::new();
    stage.add_loop("t");
    let mut actor = started(&mut stage, Options { until_idle: true, ..options() });
    for child in ["c-1", "c-2"] {
        stage.add(child, |spec| (spec.parent, spec.work) = (Some(task("t")), None));
    }
    stage.files.insert(task("t"), Marker::Done);
    end(&mut stage, &mut actor, 0);
    // Both children are cancelled with their parent, and a person retries one of them in the same transaction.
    stage.pass(policy().child_wait.as_ms());
    let settle = Request::Run(RunRequest::Settle { task: task("t") });
    stage.ask_all(&[settle, Request::Task(TaskRequest::Retry { id: task("c-1") })]);
    assert!(matches!(stage.rows().tasks[&task("t")].state, State::Awaiting { until: None, .. }));
    assert_eq!(actor.notify(&mut stage, Input::Woken), None);
}

/// Reports that the run of the only task has shown no activity for `quiet`.
fn observe(stage: &mut Stage, actor: &mut Actor, quiet: Span) -> Vec<String> {
    observe_activity(stage, actor, quiet, Activity::Idle)
}

fn observe_activity(stage: &mut Stage, actor: &mut Actor, quiet: Span, activity: Activity) -> Vec<String> {
    actor.notify(stage, Input::Pulse(actor.run().clone(), Some(Vitals { quiet, output_bytes: 0, activity })));
    actor.did()
}

#[test]
fn a_silent_run_is_nudged_and_then_killed_once() {
    let mut stage = Stage::new();
    stage.add("t", |_| {});
    let mut actor = started(&mut stage, options());
    assert_eq!(Span::from_ms(stage.sleep(&mut actor)), TIMEOUT);
    assert_eq!(actor.did(), ["pulse"]);
    assert_eq!(observe(&mut stage, &mut actor, TIMEOUT), ["heartbeat", "nudge"]);
    let Some(Action::Nudge(_, command)) = actor.wants.pop_back() else { panic!("{:?}", actor.wants) };
    actor.notify(&mut stage, Input::CommandDone(command, Ok(())));
    assert_eq!(actor.did(), ["done"]);
    assert_eq!(Span::from_ms(stage.sleep(&mut actor)), TIMEOUT, "the nudge has one more timeout to work");
    assert_eq!(actor.did(), ["pulse"]);
    let long = Span::from_ms(2 * TIMEOUT.as_ms());
    assert_eq!(observe(&mut stage, &mut actor, long), ["heartbeat", "kill"]);
    stage.play(&mut actor);
    assert_eq!(actor.did(), Vec::<String>::new());
    end(&mut stage, &mut actor, 143);
    assert_eq!(actor.did(), ["finish", "claim", "acknowledge", "spawn t"]);
    assert_eq!(stage.rows().tasks[&task("t")].recoveries, 2);
}

#[test]
fn silent_work_is_polled_again_and_believed_for_four_more_timeouts() {
    for last in [Activity::Busy, Activity::Unclear] {
        let mut stage = Stage::new();
        stage.add("t", |_| {});
        let mut actor = started(&mut stage, options());
        let mut quiet = Span::ZERO;
        let soon = Span::from_secs(6);
        // Unclear activity is polled again soon, all else after the timeout.
        for (slept, activity) in
            [(TIMEOUT, Activity::Unclear), (soon, Activity::Busy), (TIMEOUT, Activity::Busy), (TIMEOUT, Activity::Unclear)]
        {
            assert_eq!(Span::from_ms(stage.sleep(&mut actor)), slept);
            quiet = quiet + slept;
            assert_eq!(actor.did(), ["pulse"]);
            assert_eq!(observe_activity(&mut stage, &mut actor, quiet, activity), [""; 0]);
        }
        stage.pass(5 * TIMEOUT.as_ms() - quiet.as_ms() - 1);
        stage.play(&mut actor);
        let almost = Span::from_ms(5 * TIMEOUT.as_ms() - 1);
        assert_eq!(actor.did(), ["pulse"]);
        assert_eq!(observe_activity(&mut stage, &mut actor, almost, last), [""; 0]);
        let slept = Span::from_ms(stage.sleep(&mut actor));
        assert_eq!(actor.did(), ["pulse"]);
        assert_eq!(observe_activity(&mut stage, &mut actor, almost + slept, last), ["heartbeat", "nudge"]);
    }
}

#[test]
fn a_run_that_takes_too_long_is_killed_once() {
    let mut stage = Stage::new();
    stage.add("t", |_| {});
    let max = Span::from_secs(30);
    let mut actor = started(&mut stage, Options { max_duration: Some(max), ..options() });
    assert_eq!(Span::from_ms(stage.sleep(&mut actor)), max);
    assert_eq!(actor.did(), ["overtime", "kill"]);
    end(&mut stage, &mut actor, 143);
    assert_eq!((stage.status("t"), stage.count_events("task:stopping")), ("failed".into(), 1));
}

/// A runner that has to notify people that a task has failed.
fn notifying(stage: &mut Stage) -> (Actor, Seq, Notice) {
    stage.add("t", |_| {});
    let mut actor = started(stage, options());
    end(stage, &mut actor, 1);
    let (command, notice) = notice(&mut actor);
    (actor, command, notice)
}

fn notice(actor: &mut Actor) -> (Seq, Notice) {
    match actor.wants.pop_back() {
        Some(Action::Notify(command, notice)) => (command, *notice),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failing_command_backs_off_and_finally_asks_a_person_once() {
    let mut stage = Stage::new();
    let (mut actor, command, first) = notifying(&mut stage);
    for pause in [1, 2, 4, 8] {
        actor.did();
        assert_eq!(actor.notify(&mut stage, Input::CommandDone(command, Err("no network".into()))), Some(Span::from_secs(pause)));
        assert_eq!(actor.did(), ["failed"]);
        stage.pass(1_000 * pause - 1);
        assert_eq!(actor.notify(&mut stage, Input::Woken), Some(Span::from_ms(1)), "not a millisecond earlier");
        stage.pass(1);
        stage.play(&mut actor);
        assert_eq!(actor.did(), ["notify"]);
        assert_eq!(notice(&mut actor), (command, first.clone()));
    }
    assert_eq!(stage.count_events("decision:raised"), 0);
    actor.notify(&mut stage, Input::CommandDone(command, Err("no network".into())));
    for _ in 0..3 {
        stage.sleep(&mut actor);
    }
    assert_eq!(actor.did(), ["failed"], "it is not tried any more");
    // As if the reply to the last report was lost.
    let again =
        RunRequest::Tried { runner: actor.dispatcher.id().clone(), command, error: Some("no network".into()), is_final: false };
    assert_eq!(stage.ask(Request::Run(again)), Reply::Run(RunOutcome::Late));
    assert_eq!(stage.count_events("decision:raised"), 1);

    let decision = stage.rows().decisions.into_values().next().unwrap();
    let request = |option| {
        let (id, about) = (decision.id.clone(), decision.question.about.clone());
        Request::Decision(DecisionRequest { id, about, run: None, option, by: "ann".into(), note: None })
    };
    assert_eq!(decision.question.option(1).map(|choice| choice.act), Some(Act::Resend));
    stage.ask(request(1));
    stage.play(&mut actor);
    assert_eq!(actor.did(), ["notify"]);
    let Reply::Decision(DecisionOutcome::Stepped(again, _)) = stage.ask(request(1)) else { panic!("it is there") };
    assert!(matches!(again, banksman_core::decision::Outcome::Over(_)), "{again:?}");
    actor.notify(&mut stage, Input::CommandDone(command, Ok(())));
    assert_eq!((actor.did(), stage.rows().outbox.len()), (vec!["done".into()], 0));
}

#[test]
fn an_outbox_command_without_a_reply_times_out() {
    let mut stage = Stage::new();
    let (mut actor, _, _) = notifying(&mut stage);
    actor.did();
    stage.sleep(&mut actor);
    assert_eq!(actor.did(), ["failed"]);
    assert_eq!(stage.rows().outbox.values().next().map(|entry| entry.attempts), Some(1));
}

#[test]
fn a_notification_of_a_dead_runner_passes_to_another_with_its_attempts() {
    let mut stage = Stage::new();
    let (mut first, command, expected) = notifying(&mut stage);
    first.notify(&mut stage, Input::CommandDone(command, Err("no network".into())));
    let mut second = stage.start("n", options());
    assert_eq!(second.did(), Vec::<String>::new(), "the first one lives");
    stage.kill(first);
    stage.pass(1_000);
    let mut third = stage.start("o", options());
    assert_eq!(third.did()[0], "retire");
    let heirs: Vec<_> = [&mut second, &mut third]
        .into_iter()
        .filter_map(|heir| {
            stage.play(heir);
            heir.did();
            heir.wants.pop_back()
        })
        .collect();
    assert!(
        matches!(&heirs[..], [Action::Notify(seq, notice)] if *seq == command && **notice == expected),
        "by one of them: {heirs:?}"
    );
    assert_eq!(stage.rows().outbox[&command].attempts, 1);
}

#[test]
fn a_notification_without_a_runner_is_sent_by_the_next_runner() {
    let mut stage = Stage::new();
    stage.add("t", |_| {});
    let verdict = banksman_core::task::Verdict::Failed { error: "no".into() };
    stage.ask(Request::Task(TaskRequest::Conclude { id: task("t"), epoch: None, by: None, verdict }));
    let mut actor = stage.start("m", options());
    assert_eq!(actor.did(), ["notify"]);
}

#[test]
fn limited_roots_begin_in_order_of_arrival() {
    let mut stage = Stage::new();
    for (name, priority) in [("a", 0), ("b", 9), ("c", 0)] {
        stage.add(name, |spec| (spec.priority, spec.restart) = (priority, Some(policy())));
    }
    let begun = |actor: &mut Actor| {
        let did = actor.did();
        did.iter().filter_map(|word| word.strip_prefix("spawn ").map(str::to_owned)).collect::<Vec<_>>()
    };
    let mut actor = stage.runner("m", Options { limits: Limits { runs: 0, roots: 1 }, ..options() });
    stage.play(&mut actor);
    assert_eq!(begun(&mut actor), ["a"]);
    end(&mut stage, &mut actor, 0);
    assert_eq!(begun(&mut actor), Vec::<String>::new(), "it rests, and keeps its place");
    stage.sleep(&mut actor);
    assert_eq!(begun(&mut actor), ["a"]);
    stage.files.insert(task("a"), Marker::Done);
    end(&mut stage, &mut actor, 0);
    assert_eq!(begun(&mut actor), ["b"]);
}

#[test]
fn changed_limits_apply_to_a_live_runner_at_once() {
    let mut stage = Stage::new();
    for name in ["a", "b", "c", "d", "e"] {
        stage.add(name, |_| {});
    }
    let begun = |actor: &mut Actor| {
        let did = actor.did();
        did.iter().filter_map(|word| word.strip_prefix("spawn ").map(str::to_owned)).collect::<Vec<_>>()
    };
    let set = |stage: &mut Stage, runs: u32| {
        let (change, seed) = (LimitsChange { runs: Some(runs), ..LimitsChange::default() }, Limits::NONE);
        let reply = stage.ask(Request::SetLimits { change, seed });
        assert_eq!(reply, Reply::Limits(Limits { runs, roots: 0 }));
        stage.everything();
    };
    let mut actor = stage.runner("m", Options { limits: Limits { runs: 2, roots: 0 }, ..options() });
    stage.play(&mut actor);
    assert_eq!(begun(&mut actor), ["a", "b"]);
    set(&mut stage, 3);
    stage.play(&mut actor);
    assert_eq!(begun(&mut actor), ["c"], "it is woken, and brings no limit of its own");
    set(&mut stage, 1);
    end(&mut stage, &mut actor, 0);
    assert_eq!(begun(&mut actor), Vec::<String>::new(), "two are still live");
    // Another runner with other limits changes nothing.
    let mut other = stage.runner("n", Options { limits: Limits { runs: 9, roots: 9 }, ..options() });
    stage.play(&mut other);
    assert_eq!((begun(&mut other), stage.rows().limits), (Vec::new(), Some(Limits { runs: 1, roots: 0 })));
    set(&mut stage, 0);
    stage.play(&mut actor);
    assert_eq!(begun(&mut actor), ["d", "e"]);
    assert_eq!(stage.count_events("limits:set"), 4);
}

#[test]
fn expired_grants_are_swept_by_the_slow_poll() {
    let mut stage = Stage::new();
    let acquire = |name: &str, ttl: i64| {
        let claim = GrantRequest { ttl: Some(Span::from_ms(ttl)), ..GrantRequest::new(HolderId::new("me").unwrap()) };
        Request::plain(Command::Lock(Name::new(name).unwrap(), lock::Input::Acquire(Box::new(Ask::new(claim)))))
    };
    let mut actor = stage.start("m", options());
    stage.ask(acquire("short", 5_000));
    stage.ask(acquire("long", 50_000_000));
    stage.sleep(&mut actor);
    assert_eq!(stage.count_events("lock:reclaimed"), 1);
    assert!(matches!(stage.everything().coordination.locks[&Name::new("short").unwrap()].state, lock::State::Free));
}

#[test]
fn checkpoints_stay_on_their_interval() {
    let mut stage = Stage::new();
    stage.add("t", |_| {});
    let interval = Span::from_secs(10);
    let mut actor = started(&mut stage, Options { checkpoint_interval: Some(interval), ..options() });
    for late in [0, 300, 0] {
        stage.sleep(&mut actor);
        assert_eq!(actor.did(), ["pulse"]);
        stage.pass(late);
        assert_eq!(observe(&mut stage, &mut actor, Span::from_ms(5)), ["checkpoint"]);
    }
    let beats = 3 * interval.as_ms();
    assert_eq!(stage.now().0, 1_000 + beats, "one that came late does not move the others");
    assert_eq!(stage.count_events("task:checkpoint"), 3);
}

/// A task that awaits a decision after its last recovery, and its runner.
fn parked(stage: &mut Stage) -> (Actor, Decision) {
    stage.add("t", |_| {});
    let watch = Watch { max_recoveries: 0, ..options().watch };
    let mut actor = started(stage, Options { watch, ..options() });
    stage.sleep(&mut actor);
    observe(stage, &mut actor, TIMEOUT);
    end(stage, &mut actor, 143);
    let open: Vec<_> = stage.rows().decisions.into_values().filter(Decision::is_open).collect();
    let [decision] = &open[..] else { panic!("{open:?}") };
    assert_eq!((stage.status("t"), stage.count_events("escalate")), ("blocked".into(), 1));
    actor.did();
    (actor, decision.clone())
}

#[test]
fn an_answer_is_carried_out_at_once_and_only_once() {
    for (option, status, does) in
        [(1, "in_progress", "spawn t"), (2, "failed", "notify"), (3, "skipped", ""), (4, "cancelled", "")]
    {
        let mut stage = Stage::new();
        let (mut actor, decision) = parked(&mut stage);
        let (id, about) = (decision.id.clone(), decision.question.about.clone());
        let request = Request::Decision(DecisionRequest { id, about, run: None, option, by: "ann".into(), note: None });
        for _ in 0..2 {
            stage.ask(request.clone());
            stage.play(&mut actor);
        }
        assert_eq!((stage.status("t").as_str(), stage.count_events("decision:resolved")), (status, 1));
        let did = actor.did().into_iter().filter(|word| word != "claim").collect::<Vec<_>>();
        assert_eq!(did.concat(), does, "option {option}");
    }
}

#[test]
fn a_cancelling_answer_releases_manual_claims_on_children() {
    let mut stage = Stage::new();
    let (_, decision) = parked(&mut stage);
    stage.add("c", |spec| (spec.parent, spec.work) = (Some(task("t")), None));
    let (holder, minute) = (HolderId::new("ann").unwrap(), Span::from_secs(60));
    let taking = Taking::new(holder, minute);
    stage.ask(Request::Task(TaskRequest::Take { id: task("c"), taking: Box::new(taking) }));
    let before = stage.count_events("lock:released");
    let lock = |stage: &mut Stage| stage.everything().coordination.locks[&task("c").lock()].clone();
    let fence = lock(&mut stage).fence;
    let (id, about) = (decision.id.clone(), decision.question.about.clone());
    stage.ask(Request::Decision(DecisionRequest { id, about, run: None, option: 4, by: "bob".into(), note: None }));
    assert_eq!((stage.status("c"), stage.count_events("lock:released")), ("cancelled".into(), before + 1));
    let lock = lock(&mut stage);
    assert_eq!((lock.state, lock.fence), (banksman_core::resource::lock::State::Free, fence));
}

#[test]
fn a_question_is_withdrawn_when_its_task_goes_on_without_an_answer() {
    let verdict = || banksman_core::task::Verdict::Done { output: None };
    let id = || task("t");
    for request in [
        TaskRequest::Retry { id: id() },
        TaskRequest::Conclude { id: id(), epoch: None, by: None, verdict: verdict() },
        TaskRequest::Cancel { id: id() },
        TaskRequest::Set { id: id(), by: None, epoch: None, mark: Mark::Skipped },
        TaskRequest::Delete { id: id(), force: false },
    ] {
        let mut stage = Stage::new();
        let (_, decision) = parked(&mut stage);
        stage.ask(Request::Task(request.clone()));
        assert!(!stage.rows().decisions[&decision.id].is_open(), "{request:?}");
        assert_eq!(stage.count_events("decision:withdrawn"), 1);
        let (id, about) = (decision.id.clone(), decision.question.about.clone());
        let late = Request::Decision(DecisionRequest { id, about, run: None, option: 1, by: "ann".into(), note: None });
        let before = stage.rows().tasks;
        stage.ask(late);
        assert_eq!(stage.rows().tasks, before, "a late answer changes nothing");
    }
}

#[test]
fn a_runner_with_room_for_many_starts_them_all() {
    let mut stage = Stage::new();
    (0..50).for_each(|number| stage.add(&format!("t{number:02}"), |_| {}));
    stage.start("m", Options { max_runs: Some(60), ..options() });
    assert_eq!(stage.count_events("task:started"), 50);
}
