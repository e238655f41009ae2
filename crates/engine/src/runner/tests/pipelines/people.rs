//! Requests of people about pipelines and the tasks of their phases.

use super::*;

#[test]
fn cancelling_the_pipeline_cancels_its_phase_and_nothing_follows() {
    let mut stage = Stage::with_pipeline(two());
    let mut actor = stage.start("m", options());
    actor.did();
    stage.request(TaskRequest::Cancel { id: task("p-1") });
    stage.play(&mut actor);
    assert_eq!((actor.did(), stage.phase_status("p-1")), (vec!["kill".to_owned()], "cancelled one".into()));
    end(&mut stage, &mut actor, 143, "{\"a\": 1}");
    assert_eq!((stage.status("p-1.1"), stage.status("p-1")), ("cancelled".into(), "cancelled".into()));
    assert_eq!((spawned(&mut actor), stage.at("p-1").context.len()), (Vec::new(), 0));
    // The same before it has begun.
    stage.pipeline_after("p-2", two(), json!({}), &["p-1"]);
    stage.request(TaskRequest::Cancel { id: task("p-2") });
    stage.play(&mut actor);
    assert_eq!((stage.status("p-2"), spawned(&mut actor)), ("cancelled".into(), Vec::new()));
}

#[test]
fn a_phase_that_awaits_a_decision_blocks_its_pipeline() {
    let watch = Watch { max_recoveries: 0, ..options().watch };
    let parked = || {
        let mut stage = Stage::with_pipeline(vec![Phase { output: vec!["by".into()], ..phase("one") }, phase("two")]);
        let mut actor = stage.start("m", Options { watch, until_idle: true, ..options() });
        stage.sleep(&mut actor);
        actor.notify(
            &mut stage,
            RunnerInput::Pulse(actor.run().clone(), Some(Vitals { quiet: TIMEOUT, output_bytes: 0, activity: Activity::Idle })),
        );
        actor.dispatcher.on(RunnerInput::Ended(actor.run().clone(), exited(143)), stage.now());
        (stage, actor)
    };
    for (option, then, spawns) in
        [(1, "running one", "p-1.1"), (2, "failed one", ""), (3, "failed one", ""), (4, "failed one", "")]
    {
        let (mut stage, mut actor) = parked();
        let idle = stage.play(&mut actor);
        assert_eq!((stage.phase_status("p-1").as_str(), stage.status("p-1").as_str()), ("blocked one", "blocked"));
        assert!(idle.is_some(), "people are notified first");
        let decision = stage.rows().decisions.into_values().next().unwrap();
        let about = About::Task(task("p-1.1"));
        stage.ask(Request::Decision(DecisionRequest { id: decision.id, about, run: None, option, by: "ann".into(), note: None }));
        actor.did();
        assert_eq!(stage.phase_status("p-1"), then, "option {option}");
        stage.play(&mut actor);
        assert_eq!(spawned(&mut actor).concat(), spawns);
    }
    // A person may also take the task, and conclude or release it.
    let (mut stage, mut actor) = parked();
    stage.play(&mut actor);
    let holder = HolderId::new("ann").unwrap();
    let taking = Taking::new(holder.clone(), Span::from_secs(60));
    stage.request(TaskRequest::Take { id: task("p-1.1"), taking: Box::new(taking) });
    assert_eq!(stage.phase_status("p-1"), "running one");
    let verdict = Verdict::Done { output: Some(json!({ "by": "hand" })) };
    stage.request(TaskRequest::Conclude { id: task("p-1.1"), epoch: None, by: Some(holder), verdict });
    assert_eq!(
        (stage.phase_status("p-1"), stage.at("p-1").context["one"].clone()),
        ("running two".into(), json!({ "by": "hand" }))
    );
}

#[test]
fn a_manual_claim_keeps_its_task_as_long_as_its_lock() {
    let mut stage = Stage::new();
    stage.add("t-1", |spec| spec.work = None);
    let (holder, minute) = (HolderId::new("ann").unwrap(), Span::from_secs(60));
    let taking = Taking::new(holder, minute);
    stage.request(TaskRequest::Take { id: task("t-1"), taking: Box::new(taking) });
    let process = |pid| ProcessId { host: "host".into(), boot: "boot".into(), pid_ns: 1, pid, start: 1 };
    let standing = WaitingProcess { process: process(7), address: None, lease: None };
    let claim = GrantRequest::new(HolderId::new("bob").unwrap());
    let ask = |claim, wait| Box::new(Ask { wait, ..Ask::new(claim) });
    stage.ask(Request::plain(Command::Lock(name("task:t-1"), lock::Input::Acquire(ask(claim.clone(), Some(standing))))));
    stage.pass(61_000);
    // Ann's claim has expired, and bob is next. Another process reports that an unrelated process is dead.
    let seen = Seen { probes: vec![(process(8), banksman_core::Liveness::Dead)], patience: Span::ZERO };
    let command = Command::Lock(name("other"), lock::Input::Acquire(ask(claim, None)));
    stage.ask(Request::Coordinate { command, seen });
    let rows = stage.everything();
    let lock::State::Held(grant) = &rows.coordination.locks[&name("task:t-1")].state else { panic!("it is free") };
    let state = &rows.backlog.tasks[&task("t-1")].state;
    assert!(matches!(state, banksman_core::task::State::Manual { epoch, .. } if *epoch == grant.epoch), "{grant:?} {state:?}");
}

#[test]
fn a_person_who_ends_the_task_of_a_phase_moves_its_pipeline() {
    type End = fn(TaskId) -> TaskRequest;
    let failed = || Verdict::Failed { error: "no".into() };
    let ways: [(End, &str); 5] = [
        (|id| TaskRequest::Conclude { id, epoch: None, by: None, verdict: Verdict::Done { output: None } }, "running two"),
        (|id| TaskRequest::Conclude { id, epoch: None, by: None, verdict: Verdict::Failed { error: "no".into() } }, "failed one"),
        (|id| TaskRequest::Cancel { id }, "failed one"),
        (|id| TaskRequest::Set { id, by: None, epoch: None, mark: Mark::Skipped }, "failed one"),
        (|id| TaskRequest::Delete { id, force: false }, "failed one"),
    ];
    for (way, then) in ways {
        let mut stage = Stage::with_pipeline(two());
        stage.begin_pipelines();
        assert_eq!(stage.phase_status("p-1"), "running one");
        stage.request(way(task("p-1.1")));
        assert_eq!(stage.phase_status("p-1"), then, "{:?}", way(task("p-1.1")));
        if then == "failed one" {
            // A new task, under a new number.
            stage.request(PipelineRequest::Retry { id: task("p-1") });
            assert_eq!((stage.at("p-1").task().cloned(), stage.at("p-1").attempt), (Some(task("p-1.2")), 2));
        }
        // People cannot end the pipeline's own task.
        let before = stage.rows();
        let refused = stage.request(TaskRequest::Conclude { id: task("p-1"), epoch: None, by: None, verdict: failed() });
        assert!(matches!(refused, TaskOutcome::Stepped(task::Outcome::HasPhases, _)), "{refused:?}");
        assert_eq!(stage.rows(), before);
    }
}

#[test]
fn only_the_pipeline_retries_a_phase_that_is_over() {
    let mut stage = Stage::with_pipeline(two());
    let mut actor = stage.start("m", options());
    end(&mut stage, &mut actor, 0, "");
    end(&mut stage, &mut actor, 1, "");
    assert_eq!(stage.phase_status("p-1"), "failed two");
    actor.did();
    for id in ["p-1.1", "p-1.2", "p-1"] {
        let refused = stage.request(TaskRequest::Retry { id: task(id) });
        assert!(matches!(refused, TaskOutcome::Stepped(task::Outcome::HasPhases, _)), "{id}: {refused:?}");
    }
    stage.request(PipelineRequest::Retry { id: task("p-1") });
    stage.play(&mut actor);
    assert_eq!(spawned(&mut actor), ["p-1.3"]);
}

#[test]
fn only_the_plan_orders_the_phases() {
    let mut stage = Stage::with_pipeline(two());
    let mut actor = stage.start("m", options());
    end(&mut stage, &mut actor, 0, "");
    let before = stage.rows();
    let edit = Edit { depends_on: Some(vec![Edge { on: task("p-1"), allow_failed: true }]), ..Edit::default() };
    let refused = stage.request(TaskRequest::Update { id: task("p-1.1"), edit: Box::new(edit) });
    assert!(matches!(refused, TaskOutcome::Stepped(task::Outcome::HasPhases, _)), "{refused:?}");
    // Nor can a person mark it for review: its pipeline would keep its place for as long.
    let refused = stage.request(TaskRequest::Set { id: task("p-1.2"), by: None, epoch: None, mark: Mark::Review });
    assert!(matches!(refused, TaskOutcome::Stepped(task::Outcome::HasPhases, _)), "{refused:?}");
    assert_eq!(stage.rows(), before);
}

#[test]
fn the_task_of_a_pipeline_cannot_be_taken() {
    let mut stage = Stage::with_pipeline(two());
    let taking = Taking::new(HolderId::new("ann").unwrap(), Span::from_secs(60));
    let refused = stage.request(TaskRequest::Take { id: task("p-1"), taking: Box::new(taking) });
    assert!(matches!(refused, TaskOutcome::Stepped(task::Outcome::HasPhases, _)), "{refused:?}");
    assert!(stage.everything().coordination.locks.is_empty(), "and its lock is not held");
}

/// The roots under way are not read while roots are unlimited.
#[test]
fn a_new_root_limit_applies_within_its_transaction() {
    let mut stage = Stage::with_pipeline(two());
    stage.begin_pipelines();
    stage.pipeline("p-2", two());
    let limit = |roots| {
        let change = LimitsChange { roots: Some(roots), ..LimitsChange::default() };
        vec![Request::SetLimits { change, seed: Limits::NONE }]
    };
    stage.claim_after(limit(1));
    assert_eq!(stage.status("p-2"), "pending");
    stage.claim_after(limit(2));
    assert_eq!(stage.status("p-2"), "in_progress");
}
