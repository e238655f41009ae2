//! Guards of pipelines under runners: guards about the store, and guards with inputs from outside.

use banksman_core::guard::{Issue, IssueFilter, Predicate};
use banksman_core::{Lease, SectionId, Seq, Status};
use banksman_store::Key;

use super::*;

/// Gives the runner the inputs of the guards that it wants to check.
fn check(stage: &mut Stage, actor: &mut Actor, inputs: GuardInputs) {
    let pipeline = actor.guards_to_check();
    actor.notify(stage, RunnerInput::GuardsChecked(pipeline, Box::new(inputs)));
}

#[test]
fn a_store_guard_is_evaluated_inside_of_the_transaction() {
    let mut stage = Stage::with_pipeline(behind("l"));
    let mut actor = stage.start("m", options());
    assert_eq!(actor.did(), ["begin", "check guards", "claim", "spawn p-1.1"]);

    // The lock is taken after the runner has read the rows, and before its request.
    let mut stage = Stage::with_pipeline(behind("l"));
    let mut actor = stage.runner("m", options());
    let mut epoch = None;
    stage.play_with(&mut actor, |stage, requests| {
        let is_guard_check = |request: &Request| matches!(request, Request::Pipeline(PipelineRequest::CheckGuards(_)));
        if requests.iter().any(is_guard_check) && epoch.is_none() {
            epoch = Some(stage.lock("l", "ann"));
        }
    });
    assert_eq!(actor.did(), ["begin", "check guards"]);
    let State::Blocked { when: When::Pre, reason: Reason::Guard { part, .. }, .. } = stage.at("p-1").state else {
        panic!("{}", stage.phase_status("p-1"))
    };
    assert!(part.contains('l') && part.contains("ann"), "{part}");
    // Other locks are taken and released.
    let other = stage.lock("other", "ann");
    stage.unlock("other", "ann", other);
    stage.play(&mut actor);
    assert_eq!(stage.phase_status("p-1"), "blocked one");
    stage.unlock("l", "ann", epoch.unwrap());
    stage.play(&mut actor);
    assert_eq!((stage.phase_status("p-1"), spawned(&mut actor)), ("running one".into(), vec!["p-1.1".into()]));
}

#[test]
fn one_pipeline_waits_for_the_phase_of_another() {
    let mut stage = Stage::new();
    let in_two = Condition::Predicate(Predicate::PipelineInPhase { pipeline: text("p-1"), phase: name("two") });
    let done = Condition::Predicate(Predicate::PipelineComplete { pipeline: text("p-1") });
    stage.pipeline("p-2", vec![Phase { pre: guard(in_two), post: guard(done), ..phase("one") }]);
    stage.pipeline("p-1", two());
    let mut actor = stage.start("m", options());
    assert_eq!((spawned(&mut actor), stage.phase_status("p-2")), (vec!["p-1.1".into()], "blocked one".into()));
    end(&mut stage, &mut actor, 0, "");
    let mut begun = spawned(&mut actor);
    begun.sort();
    assert_eq!(begun, ["p-1.2", "p-2.1"]);
    let runs: Vec<_> =
        actor
            .wants
            .iter()
            .filter_map(|action| {
                if let RunnerAction::Spawn(work) = action { Some((work.task.id.clone(), work.run.id.clone())) } else { None }
            })
            .collect();
    let run = |id: &str| runs.iter().find(|(of, _)| of.as_str() == id).unwrap().1.clone();
    actor.notify(&mut stage, RunnerInput::Ended(run("p-2.1").clone(), exited(0)));
    assert_eq!(stage.phase_status("p-2"), "blocked one", "its own work is done, and it is not over");
    actor.notify(&mut stage, RunnerInput::Ended(run("p-1.2").clone(), exited(0)));
    assert_eq!((stage.phase_status("p-1"), stage.phase_status("p-2")), ("done".into(), "done".into()));
}

#[test]
fn one_runner_at_a_time_gathers_inputs_and_another_takes_over() {
    let mut stage = Stage::with_pipeline(after_file());
    let (mut first, mut second) = (stage.runner("m", options()), stage.runner("n", options()));
    stage.play(&mut first);
    stage.play(&mut second);
    assert_eq!(
        (first.did(), second.did()),
        (vec!["begin".into(), "begin check".into(), "gather p-1".into()], Vec::<String>::new())
    );
    // The first runner does not gather the inputs twice.
    first.notify(&mut stage, RunnerInput::Woken);
    assert_eq!(first.did(), Vec::<String>::new());
    check(&mut stage, &mut first, found(false));
    assert_eq!((first.did(), stage.phase_status("p-1")), (vec!["check guards".to_owned()], "blocked one".into()));
    // The result is fresh for a while, and then the runner on duty checks again.
    let slept = stage.sleep(&mut first);
    assert_eq!(Span::from_ms(slept), Span::from_secs(30));
    assert_eq!(first.did(), ["begin check", "gather p-1"]);
    stage.play(&mut second);
    assert_eq!(second.did(), Vec::<String>::new());
    // It dies before it has a result.
    stage.kill(first);
    let mut third = stage.start("o", options());
    assert_eq!(third.did(), ["begin check", "retire", "gather p-1"]);
    check(&mut stage, &mut third, found(true));
    assert_eq!(spawned(&mut third), ["p-1.1"]);
}

#[test]
fn a_result_without_freshness_is_not_rechecked_without_a_pause() {
    let mut stage = Stage::new();
    let mut phases = after_file();
    phases[0].pre[0].fresh_for = Span::ZERO;
    stage.pipeline("p-1", phases);
    let mut actor = stage.start("m", options());
    let pipeline = actor.guards_to_check();
    actor.dispatcher.on(RunnerInput::GuardsChecked(pipeline, Box::new(found(false))), stage.now());
    assert_eq!(stage.sleep(&mut actor), 1_000);
    assert_eq!(actor.did(), ["begin", "begin check", "gather p-1", "check guards", "begin check", "gather p-1"]);
}

#[test]
fn stale_results_are_collected_again_by_the_session() {
    let live = |inputs: GuardInputs| {
        let mut stage = Stage::with_pipeline(after_file());
        let mut actor = stage.start("m", options());
        let fresh_until = inputs.fresh_until.map(|age| Lease(stage.now().0 + age.0));
        check(&mut stage, &mut actor, GuardInputs { fresh_until, ..inputs });
        stage.rows().tasks[&task("p-1.1")].live().expect("it runs").clone()
    };
    let aged = |ms| GuardInputs { fresh_until: Some(Lease(ms)), ..found(true) };
    assert!(live(aged(-1)).recheck);
    assert!(!live(aged(10_000)).recheck);
    // The session makes the workspace in which the file is.
    assert!(live(GuardInputs { awaits_workspace: true, ..aged(10_000) }).recheck);
    assert!(live(GuardInputs { awaits_workspace: true, files: BTreeMap::new(), ..aged(10_000) }).recheck);
}

#[test]
fn an_unknown_input_does_not_fail_a_pipeline_for_good() {
    let mut stage = Stage::new();
    let mut phases = after_file();
    phases[0].pre[0].on_failure = GuardAction::Fail { message: "no key".into() };
    stage.pipeline("p-1", phases);
    let mut actor = stage.start("m", options());
    check(&mut stage, &mut actor, GuardInputs::default());
    let slept = stage.sleep(&mut actor);
    let State::Blocked { reason: Reason::Guard { part, .. }, .. } = stage.at("p-1").state else { panic!() };
    assert_eq!((&*part, Span::from_ms(slept)), ("not known: file go", Span::from_secs(30)));
    check(&mut stage, &mut actor, found(false));
    stage.sleep(&mut actor);
    let State::Failed { error, recoverable: false, .. } = stage.at("p-1").state else { panic!("{}", stage.phase_status("p-1")) };
    assert_eq!(&*error, "no key (guard g: file go is not there)");
}

#[test]
fn concurrent_guard_checks_of_a_runner_are_limited() {
    let mut stage = Stage::new();
    for number in 1..=20 {
        stage.pipeline(&format!("p-{number:02}"), after_file());
    }
    let mut actor = stage.start("m", options());
    let (mut checks, mut most) = (Vec::new(), 0);
    while !actor.wants.is_empty() {
        most = most.max(actor.wants.len());
        let Some(RunnerAction::CheckGuards(pipeline)) = actor.wants.pop_front() else { panic!("{:?}", actor.wants) };
        checks.push(pipeline.id.to_string());
        actor.notify(&mut stage, RunnerInput::GuardsChecked(pipeline, Box::new(found(false))));
    }
    let all: Vec<String> = (1..=20).map(|number| format!("p-{number:02}")).collect();
    assert_eq!((most, checks), (8, all));
    // Another runner does not check the same pipelines, but takes those for which the first has no room.
    stage.pass(30_000);
    actor.notify(&mut stage, RunnerInput::Woken);
    let other = stage.start("n", options());
    let check = |action: &RunnerAction| matches!(action, RunnerAction::CheckGuards(_)).then(|| format!("{action:?}"));
    let of = |actor: &Actor| actor.wants.iter().filter_map(check).collect::<BTreeSet<String>>();
    assert_eq!((of(&actor).len(), of(&other).len()), (8, 8));
    assert!(of(&actor).is_disjoint(&of(&other)));
}

#[test]
fn a_dead_checker_is_replaced_although_its_runs_live() {
    let mut stage = Stage::new();
    stage.add("t-1", |_| {});
    stage.pipeline("p-1", after_file());
    let first = stage.start("m", options());
    assert_eq!(first.wants.len(), 2, "a session and a check: {:?}", first.wants);
    stage.kill(first);
    let mut second = stage.start("n", options());
    assert_eq!(second.did(), ["begin check", "adopt", "gather p-1", "recover t-1"]);
}

#[test]
fn a_check_that_no_pipeline_waits_for_is_stopped() {
    let begun = |stage: &mut Stage| {
        stage.pipeline("p-1", after_file());
        let mut actor = stage.start("m", options());
        assert_eq!(actor.did(), ["begin", "begin check", "gather p-1"]);
        let pipeline = actor.guards_to_check();
        (actor, pipeline)
    };
    let cancel = |stage: &mut Stage| drop(stage.request(TaskRequest::Cancel { id: task("p-1") }));
    let unblock = |stage: &mut Stage| drop(stage.request(PipelineRequest::Unblock { id: task("p-1"), by: None }));
    let delete = |stage: &mut Stage| {
        stage.request(TaskRequest::Cancel { id: task("p-1") });
        stage.request(TaskRequest::Delete { id: task("p-1"), force: false });
    };
    for end in [&cancel as &dyn Fn(&mut Stage), &unblock, &delete] {
        let mut stage = Stage::new();
        let (mut actor, pipeline) = begun(&mut stage);
        stage.pipeline("p-2", two());
        stage.play(&mut actor);
        assert_eq!(actor.did(), ["begin", "claim", "spawn p-2.1"], "the pipeline still waits for the check");
        end(&mut stage);
        stage.play(&mut actor);
        assert_eq!(actor.did().iter().filter(|what| *what == "stop check of p-1").count(), 1);
        stage.pass(30_000);
        actor.notify(&mut stage, RunnerInput::Woken);
        assert!(!actor.did().iter().any(|what| what.starts_with("stop")), "the check is stopped once");
        actor.notify(&mut stage, RunnerInput::GuardsChecked(pipeline, Box::default()));
        assert_eq!(actor.did(), ["check guards"]);
        assert!(stage.rows().pipelines.get("p-1").is_none_or(|row| row.checker.is_none()));
    }
}

#[test]
fn a_stopped_check_has_no_result() {
    let mut stage = Stage::new();
    stage.pipeline_after("p-1", after_file(), json!({ "key": "first" }), &[]);
    let mut actor = stage.start("m", options());
    let pipeline = actor.guards_to_check();
    for value in ["second", "first"] {
        let vars = serde_json::from_value(json!({ "key": value })).unwrap();
        stage.request(PipelineRequest::Set { id: task("p-1"), vars, by: None });
        actor.notify(&mut stage, RunnerInput::Woken);
    }
    assert_eq!(actor.did(), ["begin", "begin check", "gather p-1", "stop check of p-1"]);
    // The variables are the same again, and yet the stopped check has no result.
    actor.notify(
        &mut stage,
        RunnerInput::GuardsChecked(
            pipeline.clone(),
            Box::new(GuardInputs { vars: pipeline.context.clone(), ..GuardInputs::default() }),
        ),
    );
    assert_eq!(
        (actor.did(), stage.phase_status("p-1")),
        (["check guards", "begin check", "gather p-1"].map(str::to_owned).into(), "checking one".into())
    );
}

#[test]
fn a_result_for_other_variables_does_not_count() {
    let mut stage = Stage::new();
    let held = Condition::Predicate(Predicate::FileExists { path: Text::Var { var: "file".into() } });
    stage.pipeline_after("p-1", vec![Phase { pre: guard(held), ..phase("one") }], json!({ "file": "go" }), &[]);
    let mut actor = stage.start("m", options());
    let pipeline = actor.guards_to_check();
    let vars = serde_json::from_value(json!({ "file": "stop" })).unwrap();
    stage.request(PipelineRequest::Set { id: task("p-1"), vars, by: None });
    let mut inputs = found(true);
    inputs.vars = pipeline.context.clone();
    actor.notify(&mut stage, RunnerInput::GuardsChecked(pipeline, Box::new(inputs)));
    assert_eq!((stage.phase_status("p-1"), spawned(&mut actor)), ("checking one".into(), Vec::new()));
    assert!(matches!(actor.wants.pop_back(), Some(RunnerAction::CheckGuards(again)) if again.context["file"] == json!("stop")));
}

#[test]
fn a_guard_about_certain_tasks_ignores_other_tasks() {
    let mut stage = Stage::new();
    stage.add("t-1", |spec| spec.work = None);
    let filter = IssueFilter { ids: vec![text("t-1")], ..IssueFilter::default() };
    let completed = Condition::Predicate(Predicate::IssuesComplete { filter: filter.clone() });
    stage.pipeline("p-1", vec![Phase { pre: guard(completed), ..phase("one") }]);
    let mut actor = stage.start("m", options());
    let pipeline = actor.guards_to_check();
    let issues = [(filter, vec![Issue { id: "t-1".into(), status: Status::Pending }])];
    actor.notify(
        &mut stage,
        RunnerInput::GuardsChecked(pipeline, Box::new(GuardInputs { issues: issues.into(), ..GuardInputs::default() })),
    );
    stage.pass(1_000);
    actor.did();
    let done = |id: &str| TaskRequest::Conclude { id: task(id), epoch: None, by: None, verdict: Verdict::Done { output: None } };
    stage.add("t-2", |spec| spec.work = None);
    stage.request(done("t-2"));
    stage.play(&mut actor);
    assert_eq!(actor.did(), Vec::<String>::new());
    stage.request(done("t-1"));
    stage.play(&mut actor);
    assert_eq!(actor.did(), ["begin check", "gather p-1"]);
}

/// Adds `number` pipelines behind the lock a, and as many behind b; all of them are blocked.
fn crowd(stage: &mut Stage, actor: &mut Actor, number: usize) {
    for one in 0..2 * number {
        stage.pipeline(&format!("p-{one:03}"), behind(if one < number { "a" } else { "b" }));
    }
    stage.play(actor);
    assert_eq!(count(stage, "blocked"), 2 * number);
    actor.did();
}

fn count(stage: &mut Stage, word: &str) -> usize {
    stage.rows().pipelines.values().filter(|one| one.word() == word).count()
}

fn checked(actor: &mut Actor) -> usize {
    actor.did().iter().filter(|word| *word == "check guards").count()
}

#[test]
fn only_pipelines_that_listen_to_an_event_are_checked() {
    let mut stage = Stage::new();
    let (first, second) = (stage.lock("a", "ann"), stage.lock("b", "bob"));
    let mut actor = stage.runner("m", options());
    crowd(&mut stage, &mut actor, 105);
    // A runner of some sections checks guards all the same, if no other runner is left.
    let sections = vec![SectionId::new("s").unwrap()];
    stage.ask(RunRequest::Retire { runner: actor.dispatcher.id().clone(), seen: Seen::default() }.into());
    let mut actor = stage.start("n", Options { sections, ..options() });
    assert_eq!(checked(&mut actor), 0);
    stage.unlock("b", "bob", second);
    stage.play(&mut actor);
    assert_eq!((count(&mut stage, "blocked"), count(&mut stage, "running")), (105, 105));
    assert_eq!(checked(&mut actor), 105, "no other pipeline is checked");
    let other = stage.lock("other", "ann");
    stage.unlock("other", "ann", other);
    stage.play(&mut actor);
    assert_eq!(checked(&mut actor), 0);
    // No runner is there to notice it.
    stage.unlock("a", "ann", first);
    let mut actor = stage.start("o", options());
    assert_eq!((count(&mut stage, "running"), checked(&mut actor)), (210, 105));
}

#[test]
fn an_event_behind_many_others_is_found_at_once() {
    let mut stage = Stage::new();
    let epoch = stage.lock("a", "ann");
    stage.pipeline("p-1", behind("a"));
    let mut actor = stage.start("m", options());
    assert_eq!(stage.phase_status("p-1"), "blocked one");
    // More events than one page, before the runner reads the log.
    let others = (0..1_100).map(|number| acquire(&format!("l-{number}"), "ann", Vec::new()));
    let release = lock::Input::Release { holder: HolderId::new("ann").unwrap(), epoch };
    let all: Vec<Request> = others.chain([Request::plain(Command::Lock(name("a"), release))]).collect();
    stage.ask_all(&all);
    stage.play(&mut actor);
    assert_eq!(stage.phase_status("p-1"), "running one");
}

#[test]
fn a_check_reads_only_its_rows_among_many_blocked_pipelines() {
    let mut stage = Stage::new();
    let epoch = stage.lock("a", "ann");
    stage.lock("b", "bob");
    let mut actor = stage.runner("m", options());
    crowd(&mut stage, &mut actor, 40);
    let since = stage.rows().pipelines.values().filter_map(Pipeline::knows).max().unwrap();
    let limit = 100;
    let due = Key::DuePipelines { now: stage.now(), limit };
    let other = stage.lock("other", "ann");
    let heard = Key::HeardPipelines { after: since, through: Seq(other.0), limit };
    let keys = [due, Key::Awaited { limit }, heard];
    let read = stage.load(&keys.into());
    assert_eq!((read.backlog.pipelines.len(), read.backlog.tasks.len(), read.coordination.locks.len()), (0, 0, 2));
    assert_eq!(read.listening.awaited.len(), 2);
    // Only the pipelines that may continue are read, and not all at once.
    stage.unlock("a", "ann", epoch);
    let heard = Key::HeardPipelines { after: since, through: Seq(other.0 + 1), limit: 30 };
    let read = stage.load(&[heard].into());
    assert_eq!((read.backlog.pipelines.len(), read.listening.heard.len()), (30, 30));
    let waits_for_a = |one: &Pipeline| one.listens().iter().all(|to| to.id.as_deref() == Some("a"));
    assert!(read.backlog.pipelines.values().all(waits_for_a));
}

#[test]
fn locks_of_dead_holders_are_reaped_for_all_waiting_pipelines() {
    let mut stage = Stage::new();
    let process = ProcessId { host: "host".into(), boot: "boot".into(), pid_ns: 1, pid: 7, start: 1 };
    stage.lock_of("a", "ann", vec![process.clone()]);
    stage.lock("b", "bob");
    let mut actor = stage.runner("m", options());
    crowd(&mut stage, &mut actor, 105);
    stage.dead.insert(process.clone());
    actor.notify(&mut stage, RunnerInput::Died(process));
    assert_eq!((count(&mut stage, "running"), count(&mut stage, "blocked")), (105, 105));
    assert_eq!(checked(&mut actor), 105);
    assert_eq!(stage.everything().coordination.locks[&name("a")].state, lock::State::Free);
}

#[test]
fn events_during_a_check_are_not_missed() {
    let mut stage = Stage::new();
    let both = Condition::All(vec![
        Condition::Predicate(Predicate::LockFree { lock: text("l") }),
        Condition::Predicate(Predicate::FileExists { path: text("go") }),
    ]);
    stage.pipeline("p-1", vec![Phase { pre: guard(both), ..phase("one") }]);
    let epoch = stage.lock("l", "ann");
    let mut actor = stage.start("m", options());
    check(&mut stage, &mut actor, found(false));
    assert_eq!(stage.phase_status("p-1"), "blocked one");
    assert_eq!(actor.did(), ["begin", "begin check", "gather p-1", "check guards"]);
    // The next check waits until the result is a second old.
    stage.unlock("l", "ann", epoch);
    assert_eq!(stage.sleep(&mut actor), 1_000);
    assert_eq!(actor.did(), ["begin check", "begin check", "gather p-1"]);
    // The checking runner dies with the events that it has received, and the next one needs no event to take over.
    stage.kill(actor);
    let mut actor = stage.start("n", options());
    assert_eq!(actor.did(), ["begin check", "retire", "gather p-1"]);
    let again = stage.lock("l", "bob");
    stage.unlock("l", "bob", again);
    stage.play(&mut actor);
    assert_eq!(actor.did(), Vec::<String>::new(), "a check is already running");
    check(&mut stage, &mut actor, found(false));
    stage.sleep(&mut actor);
    assert_eq!(actor.did(), ["check guards", "begin check", "begin check", "gather p-1"], "the result is older than the events");
    check(&mut stage, &mut actor, found(true));
    assert_eq!(spawned(&mut actor), ["p-1.1"]);
}

/// A runner died while it checked a guard of the first phase, and a person let that phase begin. The pipeline still named the dead runner
/// as its checker when the guard of the second phase blocked it, and listened to nothing.
#[test]
fn a_store_guard_listens_although_an_earlier_checker_died() {
    let mut stage = Stage::new();
    let second = Phase { pre: guard(Condition::Predicate(Predicate::LockFree { lock: text("l") })), ..phase("two") };
    stage.pipeline("p-1", after_file().into_iter().chain([second]).collect());
    let epoch = stage.lock("l", "ann");
    let mut first = stage.start("m", options());
    assert_eq!(first.did(), ["begin", "begin check", "gather p-1"]);
    stage.kill(first);
    stage.request(PipelineRequest::Unblock { id: task("p-1"), by: Some("ann".into()) });
    let mut actor = stage.start("n", options());
    assert_eq!(spawned(&mut actor), ["p-1.1"]);
    end(&mut stage, &mut actor, 0, "");
    assert_eq!(stage.phase_status("p-1"), "blocked two");
    assert!(stage.at("p-1").checker.is_some(), "the dead runner is still the checker");
    stage.unlock("l", "ann", epoch);
    actor.notify(&mut stage, RunnerInput::Woken);
    assert_eq!((stage.phase_status("p-1"), spawned(&mut actor)), ("running two".into(), vec!["p-1.2".into()]));
}

/// One guard asks for a lock, the other for a file. The lock was released while both were checked: no known guard could be waited for any
/// more, so that runners which end when nothing is left ended.
#[test]
fn until_idle_waits_for_the_result_of_a_check() {
    let mut stage = Stage::new();
    let file = Guard { name: name("h"), ..guard(Condition::Predicate(Predicate::FileExists { path: text("go") })).remove(0) };
    let pre = guard(Condition::Predicate(Predicate::LockFree { lock: text("l") })).into_iter().chain([file]).collect();
    stage.pipeline("p-1", vec![Phase { pre, ..phase("one") }]);
    let epoch = stage.lock("l", "ann");
    let idle = || Options { until_idle: true, ..options() };
    let (mut first, mut second) = (stage.runner("m", idle()), stage.runner("n", idle()));
    stage.play(&mut first);
    check(&mut stage, &mut first, found(true));
    assert_eq!(stage.phase_status("p-1"), "blocked one");
    stage.sleep(&mut first);
    assert_eq!(first.did(), ["begin", "begin check", "gather p-1", "check guards", "begin check", "gather p-1"]);
    stage.unlock("l", "ann", epoch);
    for actor in [&mut first, &mut second] {
        actor.notify(&mut stage, RunnerInput::Woken);
        assert_eq!(actor.did(), Vec::<String>::new());
    }
    check(&mut stage, &mut first, found(true));
    assert_eq!(spawned(&mut first), ["p-1.1"]);
}

/// A guard that is checked again soon listens to no events. Its lock is released before the next check.
#[test]
fn until_idle_waits_for_the_next_guard_check() {
    let mut stage = Stage::new();
    let free = guard(Condition::Predicate(Predicate::LockFree { lock: text("l") })).remove(0);
    let pre = vec![Guard { on_failure: GuardAction::Retry { delay: Span::from_ms(500) }, ..free }];
    stage.pipeline("p-1", vec![Phase { pre, ..phase("one") }]);
    let epoch = stage.lock("l", "ann");
    let mut actor = stage.runner("m", Options { until_idle: true, ..options() });
    assert!(stage.play(&mut actor).is_some(), "the lock may come free");
    assert_eq!(stage.phase_status("p-1"), "blocked one");
    stage.unlock("l", "ann", epoch);
    assert!(actor.notify(&mut stage, RunnerInput::Woken).is_some(), "the lock is free, but the guard was not checked again");
    stage.sleep(&mut actor);
    assert_eq!(spawned(&mut actor), ["p-1.1"]);
    // The same with the end of another pipeline.
    let mut stage = Stage::with_pipeline(vec![phase("one")]);
    let done = guard(Condition::Predicate(Predicate::PipelineComplete { pipeline: text("p-1") })).remove(0);
    let pre = vec![Guard { on_failure: GuardAction::Retry { delay: Span::from_ms(500) }, ..done }];
    stage.pipeline("p-2", vec![Phase { pre, ..phase("one") }]);
    let mut actor = stage.start("m", Options { until_idle: true, ..options() });
    assert_eq!(spawned(&mut actor), ["p-1.1"]);
    let ended = RunnerInput::Ended(actor.run().clone(), exited(0));
    assert!(actor.notify(&mut stage, ended).is_some());
    stage.sleep(&mut actor);
    assert_eq!(spawned(&mut actor), ["p-2.1"]);
    // A guard that asks for nothing, because its variable has no value, listens to nothing either, and needs a person.
    let mut stage = Stage::with_pipeline(vec![phase("one")]);
    let lock = Text::Var { var: "lock".into() };
    stage.pipeline("p-2", vec![Phase { pre: guard(Condition::Predicate(Predicate::LockFree { lock })), ..phase("one") }]);
    let mut actor = stage.start("m", Options { until_idle: true, ..options() });
    let ended = RunnerInput::Ended(actor.run().clone(), exited(0));
    assert_eq!(actor.notify(&mut stage, ended), None);
    assert_eq!(stage.phase_status("p-2"), "blocked one");
}

/// The check knew that the holder of the lock is dead, but the push into the queue did not: each undid the work of the other.
#[test]
fn a_push_passes_the_lock_of_a_dead_holder() {
    let mut stage = Stage::new();
    let terms = queue::Config { visibility_timeout: Span::from_secs(10), max_attempts: 1, dead_letter: None, max_length: 1 };
    stage.ask(Request::Queue(QueueRequest::new(name("q"), Input::Define(terms))));
    let process = ProcessId { host: "host".into(), boot: "boot".into(), pid_ns: 1, pid: 7, start: 1 };
    stage.lock_of("l", "ann", vec![process.clone()]);
    let action = Action::Push(Push { queue: name("q"), priority: 0, vars: Vec::new() });
    stage.pipeline(
        "p-1",
        vec![Phase {
            pre: guard(Condition::Predicate(Predicate::LockFree { lock: text("l") })),
            ..Phase::new(name("send"), action)
        }],
    );
    stage.dead.insert(process);
    let mut actor = stage.start("m", options());
    assert_eq!(
        (actor.did(), stage.phase_status("p-1")),
        (vec!["begin", "check guards", "push"].into_iter().map(Into::into).collect::<Vec<String>>(), "done".into())
    );
}

/// The guard passed when it was checked, and failed when the run was claimed, because of a lock with a time to live. It was checked again
/// only after five minutes.
#[test]
fn a_phase_refused_at_the_claim_continues_when_the_lock_expires() {
    let mut stage = Stage::new();
    let two = Phase {
        pre: guard(Condition::Predicate(Predicate::LockFree { lock: text("l") })),
        needs: vec![Need::Lock(name("m"))],
        ..phase("two")
    };
    stage.pipeline("p-1", vec![phase("one"), two]);
    let epoch = stage.lock("m", "ann");
    let mut actor = stage.start("m", options());
    end(&mut stage, &mut actor, 0, "");
    assert_eq!(stage.phase_status("p-1"), "running two");
    let request = GrantRequest { ttl: Some(Span::from_secs(20)), ..GrantRequest::new(HolderId::new("bob").unwrap()) };
    stage.ask(Request::plain(Command::Lock(name("l"), lock::Input::Acquire(Box::new(Ask::new(request))))));
    stage.unlock("m", "ann", epoch);
    stage.play(&mut actor);
    assert_eq!(stage.phase_status("p-1"), "blocked two");
    let mut slept = 0;
    while slept < 20_000 {
        slept += stage.sleep(&mut actor);
    }
    assert_eq!((slept, stage.phase_status("p-1")), (20_000, "running two".into()));
}
