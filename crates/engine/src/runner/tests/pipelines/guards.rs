//! Guards of pipelines under runners: those about the store, and those that ask the world outside.

use banksman_core::guard::{Issue, IssueFilter, Predicate};
use banksman_core::{SectionId, Seq, Status};
use banksman_store::Key;

use super::*;

/// The runner is told of the guards that it wants to have checked.
fn check(stage: &mut Stage, actor: &mut Actor, inputs: GuardInputs) {
    let pipeline = actor.guards_to_check();
    actor.notify(stage, RunnerInput::GuardsChecked(pipeline, Box::new(inputs)));
}

#[test]
fn a_guard_about_the_store_is_judged_inside_of_the_transaction() {
    let mut stage = Stage::with_pipeline(behind("l"));
    let mut actor = stage.start("m", options());
    assert_eq!(actor.did(), ["begin", "check guards", "claim", "spawn p-1.1"]);

    // The lock is taken after the runner has looked, and before it asks.
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
        panic!("{}", stage.stands("p-1"))
    };
    assert!(part.contains('l') && part.contains("ann"), "{part}");
    // Others come and go.
    let other = stage.lock("other", "ann");
    stage.unlock("other", "ann", other);
    stage.play(&mut actor);
    assert_eq!(stage.stands("p-1"), "blocked one");
    stage.unlock("l", "ann", epoch.unwrap());
    stage.play(&mut actor);
    assert_eq!((stage.stands("p-1"), spawned(&mut actor)), ("running one".into(), vec!["p-1.1".into()]));
}

#[test]
fn one_pipeline_waits_for_the_phase_of_another() {
    let mut stage = Stage::new();
    let in_two = Condition::Predicate(Predicate::PipelineInPhase { pipeline: text("p-1"), phase: name("two") });
    let done = Condition::Predicate(Predicate::PipelineComplete { pipeline: text("p-1") });
    stage.pipeline("p-2", vec![Phase { pre: guard(in_two), post: guard(done), ..phase("one") }]);
    stage.pipeline("p-1", two());
    let mut actor = stage.start("m", options());
    assert_eq!((spawned(&mut actor), stage.stands("p-2")), (vec!["p-1.1".into()], "blocked one".into()));
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
    assert_eq!(stage.stands("p-2"), "blocked one", "its own work is done, and it is not over");
    actor.notify(&mut stage, RunnerInput::Ended(run("p-1.2").clone(), exited(0)));
    assert_eq!((stage.stands("p-1"), stage.stands("p-2")), ("done".into(), "done".into()));
}

#[test]
fn one_runner_at_a_time_asks_the_world_outside_and_another_takes_over_when_it_is_gone() {
    let mut stage = Stage::with_pipeline(after_file());
    let (mut first, mut second) = (stage.runner("m", options()), stage.runner("n", options()));
    stage.play(&mut first);
    stage.play(&mut second);
    assert_eq!((first.did(), second.did()), (vec!["begin".into(), "examine".into(), "gather p-1".into()], Vec::<String>::new()));
    // It looks at nothing else meanwhile, and does not ask twice.
    first.notify(&mut stage, RunnerInput::Woken);
    assert_eq!(first.did(), Vec::<String>::new());
    check(&mut stage, &mut first, found(false));
    assert_eq!((first.did(), stage.stands("p-1")), (vec!["check guards".to_owned()], "blocked one".into()));
    // The answer is good for a while, and then the one that has duty asks again.
    let slept = stage.sleep(&mut first);
    assert_eq!(Span::from_ms(slept), Span::from_secs(30));
    assert_eq!(first.did(), ["examine", "gather p-1"]);
    stage.play(&mut second);
    assert_eq!(second.did(), Vec::<String>::new());
    // It dies before it has an answer.
    stage.kill(first);
    let mut third = stage.start("o", options());
    assert_eq!(third.did(), ["examine", "retire", "gather p-1"]);
    check(&mut stage, &mut third, found(true));
    assert_eq!(spawned(&mut third), ["p-1.1"]);
}

#[test]
fn an_answer_that_is_good_for_no_time_is_not_asked_for_without_a_pause() {
    let mut stage = Stage::new();
    let mut phases = after_file();
    phases[0].pre[0].fresh_for = Span::ZERO;
    stage.pipeline("p-1", phases);
    let mut actor = stage.start("m", options());
    let pipeline = actor.guards_to_check();
    actor.dispatcher.on(RunnerInput::GuardsChecked(pipeline, Box::new(found(false))), stage.now());
    assert_eq!(stage.sleep(&mut actor), 1_000);
    assert_eq!(actor.did(), ["begin", "examine", "gather p-1", "check guards", "examine", "gather p-1"]);
}

#[test]
fn what_nobody_knows_does_not_fail_a_pipeline_for_good() {
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
    let State::Failed { error, recoverable: false, .. } = stage.at("p-1").state else { panic!("{}", stage.stands("p-1")) };
    assert_eq!(&*error, "no key (guard g: file go is not there)");
}

#[test]
fn so_many_are_looked_at_at_a_time_and_the_others_wait_for_their_turn() {
    let mut stage = Stage::new();
    for number in 1..=20 {
        stage.pipeline(&format!("p-{number:02}"), after_file());
    }
    let mut actor = stage.start("m", options());
    let (mut looks, mut most) = (Vec::new(), 0);
    while !actor.wants.is_empty() {
        most = most.max(actor.wants.len());
        let Some(RunnerAction::CheckGuards(pipeline)) = actor.wants.pop_front() else { panic!("{:?}", actor.wants) };
        looks.push(pipeline.id.to_string());
        actor.notify(&mut stage, RunnerInput::GuardsChecked(pipeline, Box::new(found(false))));
    }
    let all: Vec<String> = (1..=20).map(|number| format!("p-{number:02}")).collect();
    assert_eq!((most, looks), (8, all));
    // Another runner does not take what it looks at, and does take what it has no room for.
    stage.pass(30_000);
    actor.notify(&mut stage, RunnerInput::Woken);
    let other = stage.start("n", options());
    let look = |action: &RunnerAction| matches!(action, RunnerAction::CheckGuards(_)).then(|| format!("{action:?}"));
    let of = |actor: &Actor| actor.wants.iter().filter_map(look).collect::<BTreeSet<String>>();
    assert_eq!((of(&actor).len(), of(&other).len()), (8, 8));
    assert!(of(&actor).is_disjoint(&of(&other)));
}

#[test]
fn one_that_is_dead_looks_at_nothing_though_its_runs_live() {
    let mut stage = Stage::new();
    stage.add("t-1", |_| {});
    stage.pipeline("p-1", after_file());
    let first = stage.start("m", options());
    assert_eq!(first.wants.len(), 2, "a session and a look: {:?}", first.wants);
    stage.kill(first);
    let mut second = stage.start("n", options());
    assert_eq!(second.did(), ["examine", "adopt", "gather p-1", "recover t-1"]);
}

#[test]
fn a_look_that_nobody_waits_for_is_ended() {
    let begun = |stage: &mut Stage| {
        stage.pipeline("p-1", after_file());
        let mut actor = stage.start("m", options());
        assert_eq!(actor.did(), ["begin", "examine", "gather p-1"]);
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
        assert_eq!(actor.did(), ["begin", "claim", "spawn p-2.1"], "it is still waited for");
        end(&mut stage);
        stage.play(&mut actor);
        assert_eq!(actor.did().iter().filter(|what| *what == "stop looking at p-1").count(), 1);
        stage.pass(30_000);
        actor.notify(&mut stage, RunnerInput::Woken);
        assert!(!actor.did().iter().any(|what| what.starts_with("stop")), "it was told once");
        actor.notify(&mut stage, RunnerInput::GuardsChecked(pipeline, Box::default()));
        assert_eq!(actor.did(), ["check guards"]);
        assert!(stage.rows().pipelines.get("p-1").is_none_or(|row| row.checker.is_none()));
    }
}

#[test]
fn what_was_not_found_out_because_nobody_waited_says_nothing() {
    let mut stage = Stage::new();
    stage.pipeline_after("p-1", after_file(), json!({ "key": "first" }), &[]);
    let mut actor = stage.start("m", options());
    let pipeline = actor.guards_to_check();
    for value in ["second", "first"] {
        let vars = serde_json::from_value(json!({ "key": value })).unwrap();
        stage.request(PipelineRequest::Set { id: task("p-1"), vars, by: None });
        actor.notify(&mut stage, RunnerInput::Woken);
    }
    assert_eq!(actor.did(), ["begin", "examine", "gather p-1", "stop looking at p-1"]);
    // All is as it was, and yet this is no answer.
    actor.notify(
        &mut stage,
        RunnerInput::GuardsChecked(
            pipeline.clone(),
            Box::new(GuardInputs { vars: pipeline.context.clone(), ..GuardInputs::default() }),
        ),
    );
    assert_eq!(
        (actor.did(), stage.stands("p-1")),
        (["check guards", "examine", "gather p-1"].map(str::to_owned).into(), "checking one".into())
    );
}

#[test]
fn an_answer_about_other_variables_does_not_count() {
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
    assert_eq!((stage.stands("p-1"), spawned(&mut actor)), ("checking one".into(), Vec::new()));
    assert!(matches!(actor.wants.pop_back(), Some(RunnerAction::CheckGuards(again)) if again.context["file"] == json!("stop")));
}

#[test]
fn who_waits_for_certain_tasks_does_not_hear_of_others() {
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
    assert_eq!(actor.did(), ["examine", "gather p-1"]);
}

/// Pipelines behind the lock a, and as many behind b; all of them are blocked.
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
fn a_blocked_pipeline_hears_of_what_could_unblock_it_among_many_others() {
    let mut stage = Stage::new();
    let (first, second) = (stage.lock("a", "ann"), stage.lock("b", "bob"));
    let mut actor = stage.runner("m", options());
    crowd(&mut stage, &mut actor, 105);
    // Who takes only some of the tasks looks at guards all the same, if nobody else is left for that.
    let sections = vec![SectionId::new("s").unwrap()];
    stage.ask(RunRequest::Retire { runner: actor.dispatcher.id().clone(), seen: Seen::default() }.into());
    let mut actor = stage.start("n", Options { sections, ..options() });
    assert_eq!(checked(&mut actor), 0);
    stage.unlock("b", "bob", second);
    stage.play(&mut actor);
    assert_eq!((count(&mut stage, "blocked"), count(&mut stage, "running")), (105, 105));
    assert_eq!(checked(&mut actor), 105, "nobody else is looked at");
    let other = stage.lock("other", "ann");
    stage.unlock("other", "ann", other);
    stage.play(&mut actor);
    assert_eq!(checked(&mut actor), 0);
    // Nobody was there to hear of it.
    stage.unlock("a", "ann", first);
    let mut actor = stage.start("o", options());
    assert_eq!((count(&mut stage, "running"), checked(&mut actor)), (210, 105));
}

#[test]
fn what_happened_behind_much_else_is_heard_of_at_once() {
    let mut stage = Stage::new();
    let epoch = stage.lock("a", "ann");
    stage.pipeline("p-1", behind("a"));
    let mut actor = stage.start("m", options());
    assert_eq!(stage.stands("p-1"), "blocked one");
    // More than is gone through in one go, before it comes to look.
    let others = (0..1_100).map(|number| acquire(&format!("l-{number}"), "ann", Vec::new()));
    let release = lock::Input::Release { holder: HolderId::new("ann").unwrap(), epoch };
    let all: Vec<Request> = others.chain([Request::plain(Command::Lock(name("a"), release))]).collect();
    stage.ask_all(&all);
    stage.play(&mut actor);
    assert_eq!(stage.stands("p-1"), "running one");
}

#[test]
fn a_look_reads_no_more_than_concerns_it_however_many_are_held_up() {
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
    // Only those that may go on, and not all at once.
    stage.unlock("a", "ann", epoch);
    let heard = Key::HeardPipelines { after: since, through: Seq(other.0 + 1), limit: 30 };
    let read = stage.load(&[heard].into());
    assert_eq!((read.backlog.pipelines.len(), read.listening.heard.len()), (30, 30));
    let waits_for_a = |one: &Pipeline| one.listens().iter().all(|to| to.id.as_deref() == Some("a"));
    assert!(read.backlog.pipelines.values().all(waits_for_a));
}

#[test]
fn what_the_dead_hold_is_taken_from_them_for_all_who_wait_for_it() {
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
fn what_happens_while_the_world_is_asked_is_not_overlooked() {
    let mut stage = Stage::new();
    let both = Condition::All(vec![
        Condition::Predicate(Predicate::LockFree { lock: text("l") }),
        Condition::Predicate(Predicate::FileExists { path: text("go") }),
    ]);
    stage.pipeline("p-1", vec![Phase { pre: guard(both), ..phase("one") }]);
    let epoch = stage.lock("l", "ann");
    let mut actor = stage.start("m", options());
    check(&mut stage, &mut actor, found(false));
    assert_eq!(stage.stands("p-1"), "blocked one");
    assert_eq!(actor.did(), ["begin", "examine", "gather p-1", "check guards"]);
    // Not before the answer has been good for a moment.
    stage.unlock("l", "ann", epoch);
    assert_eq!(stage.sleep(&mut actor), 1_000);
    assert_eq!(actor.did(), ["examine", "examine", "gather p-1"]);
    // The one that was asked dies with what it has heard, and the other needs no event to take over.
    stage.kill(actor);
    let mut actor = stage.start("n", options());
    assert_eq!(actor.did(), ["examine", "retire", "gather p-1"]);
    let again = stage.lock("l", "bob");
    stage.unlock("l", "bob", again);
    stage.play(&mut actor);
    assert_eq!(actor.did(), Vec::<String>::new(), "it is at it");
    check(&mut stage, &mut actor, found(false));
    stage.sleep(&mut actor);
    assert_eq!(actor.did(), ["check guards", "examine", "examine", "gather p-1"], "the answer is older than what has happened");
    check(&mut stage, &mut actor, found(true));
    assert_eq!(spawned(&mut actor), ["p-1.1"]);
}

/// A runner died while it checked a guard of the first phase, and a person let that phase begin. The pipeline still named the dead runner
/// as its checker when the guard of the second phase blocked it, and listened to nothing.
#[test]
fn a_guard_about_the_store_is_heard_of_though_the_checker_of_an_earlier_phase_has_died() {
    let mut stage = Stage::new();
    let second = Phase { pre: guard(Condition::Predicate(Predicate::LockFree { lock: text("l") })), ..phase("two") };
    stage.pipeline("p-1", after_file().into_iter().chain([second]).collect());
    let epoch = stage.lock("l", "ann");
    let mut first = stage.start("m", options());
    assert_eq!(first.did(), ["begin", "examine", "gather p-1"]);
    stage.kill(first);
    stage.request(PipelineRequest::Unblock { id: task("p-1"), by: Some("ann".into()) });
    let mut actor = stage.start("n", options());
    assert_eq!(spawned(&mut actor), ["p-1.1"]);
    end(&mut stage, &mut actor, 0, "");
    assert_eq!(stage.stands("p-1"), "blocked two");
    assert!(stage.at("p-1").checker.is_some(), "the dead runner is still noted");
    stage.unlock("l", "ann", epoch);
    actor.notify(&mut stage, RunnerInput::Woken);
    assert_eq!((stage.stands("p-1"), spawned(&mut actor)), ("running two".into(), vec!["p-1.2".into()]));
}

/// One guard asks about a lock, the other one about a file. The lock was released while both were checked: no guard was known to block any more
/// that somebody could wait for, so that runners which end when nothing is left ended.
#[test]
fn who_ends_when_nothing_is_left_waits_for_the_answer_of_a_check() {
    let mut stage = Stage::new();
    let file = Guard { name: name("h"), ..guard(Condition::Predicate(Predicate::FileExists { path: text("go") })).remove(0) };
    let pre = guard(Condition::Predicate(Predicate::LockFree { lock: text("l") })).into_iter().chain([file]).collect();
    stage.pipeline("p-1", vec![Phase { pre, ..phase("one") }]);
    let epoch = stage.lock("l", "ann");
    let idle = || Options { until_idle: true, ..options() };
    let (mut first, mut second) = (stage.runner("m", idle()), stage.runner("n", idle()));
    stage.play(&mut first);
    check(&mut stage, &mut first, found(true));
    assert_eq!(stage.stands("p-1"), "blocked one");
    stage.sleep(&mut first);
    assert_eq!(first.did(), ["begin", "examine", "gather p-1", "check guards", "examine", "gather p-1"]);
    stage.unlock("l", "ann", epoch);
    for actor in [&mut first, &mut second] {
        actor.notify(&mut stage, RunnerInput::Woken);
        assert_eq!(actor.did(), Vec::<String>::new());
    }
    check(&mut stage, &mut first, found(true));
    assert_eq!(spawned(&mut first), ["p-1.1"]);
}

/// A guard that is asked again soon hears of nothing. What it asks about is released, and it has not been asked again yet.
#[test]
fn who_ends_when_nothing_is_left_waits_for_the_next_look_that_may_pass() {
    let mut stage = Stage::new();
    let free = guard(Condition::Predicate(Predicate::LockFree { lock: text("l") })).remove(0);
    let pre = vec![Guard { on_failure: GuardAction::Retry { delay: Span::from_ms(500) }, ..free }];
    stage.pipeline("p-1", vec![Phase { pre, ..phase("one") }]);
    let epoch = stage.lock("l", "ann");
    let mut actor = stage.runner("m", Options { until_idle: true, ..options() });
    assert!(stage.play(&mut actor).is_some(), "the lock may come free");
    assert_eq!(stage.stands("p-1"), "blocked one");
    stage.unlock("l", "ann", epoch);
    assert!(actor.notify(&mut stage, RunnerInput::Woken).is_some(), "it is free, and the guard does not know");
    stage.sleep(&mut actor);
    assert_eq!(spawned(&mut actor), ["p-1.1"]);
    // The same for the end of another pipeline.
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
    // One that asks about nothing, because its variable has no value, hears of nothing either, and waits for a person.
    let mut stage = Stage::with_pipeline(vec![phase("one")]);
    let lock = Text::Var { var: "lock".into() };
    stage.pipeline("p-2", vec![Phase { pre: guard(Condition::Predicate(Predicate::LockFree { lock })), ..phase("one") }]);
    let mut actor = stage.start("m", Options { until_idle: true, ..options() });
    let ended = RunnerInput::Ended(actor.run().clone(), exited(0));
    assert_eq!(actor.notify(&mut stage, ended), None);
    assert_eq!(stage.stands("p-2"), "blocked one");
}

/// The check knew that the holder of the lock is dead, and what puts the item into its queue did not: each undid what the other had done.
#[test]
fn a_push_behind_a_lock_of_the_dead_happens() {
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
        (actor.did(), stage.stands("p-1")),
        (vec!["begin", "check guards", "push"].into_iter().map(Into::into).collect::<Vec<String>>(), "done".into())
    );
}

/// Its guard was true when it was checked, and false when its run was claimed, because of a lock with a time to live. It was looked at only after
/// five minutes.
#[test]
fn a_phase_that_is_refused_at_the_claim_goes_on_when_the_time_of_a_lock_is_up() {
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
    assert_eq!(stage.stands("p-1"), "running two");
    let request = GrantRequest { ttl: Some(Span::from_secs(20)), ..GrantRequest::new(HolderId::new("bob").unwrap()) };
    stage.ask(Request::plain(Command::Lock(name("l"), lock::Input::Acquire(Box::new(Ask::new(request))))));
    stage.unlock("m", "ann", epoch);
    stage.play(&mut actor);
    assert_eq!(stage.stands("p-1"), "blocked two");
    let mut slept = 0;
    while slept < 20_000 {
        slept += stage.sleep(&mut actor);
    }
    assert_eq!((slept, stage.stands("p-1")), (20_000, "running two".into()));
}
