//! Workers and applied runbooks, over the real store.

use std::collections::BTreeMap;
use std::sync::Arc;

use banksman_core::event::{CustomKind, Event, Source};
use banksman_core::pipeline::plan::{Action, Phase, Plan, Push, RunCommand};
use banksman_core::queue::{self, Data, Input, New, Outcome};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::semaphore;
use banksman_core::route::{Does, Pattern, Reaction, Route, Then};
use banksman_core::task::{Need, Work};
use banksman_core::worker::{Definition, Job};
use banksman_core::{Limits, Name, NoticeKind, OutboxCommand, Seq, Span, TaskId, worker};
use banksman_store::Key;
use serde_json::{Value, json};

use super::Options;
use super::stage::{Actor, Stage, exited, options};
use crate::calls::queues::QueueRequest;
use crate::calls::routes::{RouteOutcome, RouteRequest};
use crate::calls::runbooks::{ApplyOutcome, ApplyRequest, How, Incompatible};
use crate::calls::steps::take;
use crate::calls::workers::{WorkerOutcome, WorkerRequest};
use crate::request::{Reply, Request};
use crate::{RunnerAction, RunnerInput};

mod routes;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn terms(max_attempts: u32, dead_letter: Option<&str>) -> queue::Config {
    let visibility_timeout = Span::from_secs(10);
    queue::Config { visibility_timeout, max_attempts, dead_letter: dead_letter.map(name), max_length: 1_000 }
}

fn definition(worker: &str, queue: &str, concurrency: u32, wake_on: &[&str]) -> Definition {
    Definition {
        runbook: "r".into(),
        name: name(worker),
        queue: name(queue),
        job: Job::Task { run_command: RunCommand::Run("true".into()), timeout: None },
        concurrency,
        wake_on: wake_on.iter().map(|pattern| Pattern::new(pattern).unwrap()).collect(),
        retry_delay: Span::ZERO,
    }
}

fn route(pattern: &str, then: Vec<Then>) -> Arc<Route> {
    Arc::new(Route { runbook: "r".into(), on: Pattern::new(pattern).unwrap(), then })
}

/// A runbook with the queues `q` and `graves`.
fn runbook(workers: Vec<Definition>, routes: Vec<Arc<Route>>) -> ApplyRequest {
    ApplyRequest {
        runbook: "r".into(),
        queues: BTreeMap::from([(name("q"), terms(2, Some("graves"))), (name("graves"), terms(1, None))]),
        workers: workers.into_iter().map(|worker| (worker.name.clone(), Arc::new(worker))).collect(),
        routes,
        ..ApplyRequest::default()
    }
}

impl Stage {
    /// With the worker `w` of the queue `q`.
    fn with_worker(concurrency: u32, wake_on: &[&str]) -> Stage {
        let mut stage = Stage::new();
        stage.apply(vec![definition("w", "q", concurrency, wake_on)], vec![]);
        stage
    }

    fn apply(&mut self, workers: Vec<Definition>, routes: Vec<Arc<Route>>) {
        let outcome = self.request(runbook(workers, routes));
        assert!(matches!(outcome, ApplyOutcome::Applied(_)), "{outcome:?}");
    }

    fn push(&mut self, queue: &str, data: &Value, delay: Span) {
        let new = New { data: Data::new(data.clone()).unwrap(), priority: 0, delay, dedupe: None };
        let request = QueueRequest::new(name(queue), Input::Push(vec![new]));
        let Reply::Queue { outcome: Outcome::Pushed(_), .. } = self.ask(Request::Queue(request)) else { panic!("not pushed") };
    }

    fn emit(&mut self, kind: &str, data: Value) {
        let source = Source { component: "user".into(), id: None };
        self.ask(Request::Emit(Event::Custom { kind: CustomKind::new(kind).unwrap(), source, data }));
    }

    /// The status of the worker `w`, and the number of its jobs.
    fn standing(&mut self) -> (&'static str, usize) {
        let worker = &self.everything().automation.workers.workers[&name("w")];
        (worker.state(), worker.jobs.len())
    }

    /// The items of a queue by their states.
    fn states(&mut self, queue: &str) -> Vec<&'static str> {
        let rows = self.everything().tables.queues;
        rows.items.values().filter(|item| item.queue == name(queue)).map(|item| item.status()).collect()
    }
}

/// Ends all started runs, and plays the runner. Returns the tasks of the runs.
fn end_all(stage: &mut Stage, actor: &mut Actor, code: i32) -> Vec<TaskId> {
    let spawned = actor.wants.drain(..).filter_map(|action| match action {
        RunnerAction::Spawn(work) => Some(work),
        _ => None,
    });
    let spawned: Vec<_> = spawned.collect();
    let ended = spawned.iter().map(|work| work.task.id.clone()).collect();
    spawned.iter().for_each(|work| actor.dispatcher.on(RunnerInput::Ended(work.run.id.clone(), exited(code)), stage.now()));
    stage.play(actor);
    ended
}

#[test]
fn a_runner_wakes_up_to_settle_an_expired_item() {
    let mut stage = Stage::new();
    stage.apply(vec![], vec![]);
    stage.push("graves", &json!(1), Span::ZERO);
    let take = Input::Take { holder: banksman_core::HolderId::new("a").unwrap(), wait: None, ticket: None };
    stage.ask(Request::Queue(QueueRequest::new(name("graves"), take)));
    let mut actor = stage.runner("m", Options { poll: Span::from_secs(3_600), ..options() });
    assert_eq!(stage.play(&mut actor), Some(Span::from_secs(10)), "the visibility timeout");
    stage.pass(10_000);
    stage.play(&mut actor);
    assert_eq!(stage.states("graves"), ["dead"]);
}

#[test]
fn a_worker_stays_awake_for_the_retry_of_a_failed_item() {
    let mut stage = Stage::new();
    let worker = Definition { retry_delay: Span::from_secs(10), ..definition("w", "q", 1, &["x:y"]) };
    stage.apply(vec![worker], vec![]);
    stage.request(WorkerRequest::Wake { worker: name("w") });
    stage.push("q", &json!(1), Span::ZERO);
    let mut actor = stage.start("m", options());
    assert_eq!(end_all(&mut stage, &mut actor, 1).len(), 1);
    assert_eq!((stage.states("q"), stage.standing()), (vec!["failed"], ("awake", 0)));
    stage.pass(9_999);
    stage.play(&mut actor);
    assert_eq!(stage.states("q"), ["failed"], "not yet");
    stage.pass(1);
    stage.play(&mut actor);
    assert_eq!(stage.standing(), ("busy", 1));
    end_all(&mut stage, &mut actor, 1);
    assert_eq!((stage.states("graves"), stage.standing()), (vec!["pending"], ("asleep", 0)), "it was the last attempt");
}

#[test]
fn a_worker_stays_awake_for_a_delayed_item_behind_held_ones() {
    let mut stage = Stage::with_worker(1, &["x:y"]);
    stage.request(WorkerRequest::Wake { worker: name("w") });
    for number in 0..8 {
        stage.push("q", &json!(number), Span::ZERO);
        let take = Input::Take { holder: "me".parse().unwrap(), wait: None, ticket: None };
        stage.ask(Request::Queue(QueueRequest::new(name("q"), take)));
    }
    // The held items expire before this one becomes available.
    stage.push("q", &json!(8), Span::from_secs(60));
    stage.start("m", options());
    assert_eq!(stage.standing(), ("awake", 0));
}

#[test]
fn items_become_tasks_up_to_the_concurrency() {
    let mut stage = Stage::with_worker(2, &[]);
    (0..5).for_each(|number| stage.push("q", &json!({ "number": number, "issue-title": "a b" }), Span::ZERO));
    let mut actor = stage.start("m", options());
    assert_eq!(stage.standing(), ("busy", 2));
    assert_eq!(stage.states("q"), ["processing", "processing", "pending", "pending", "pending"]);
    let work = actor.wants.iter().find_map(|action| match action {
        RunnerAction::Spawn(work) => Some(work.task.clone()),
        _ => None,
    });
    let task = work.unwrap();
    assert_eq!(task.spec.work, Some(Work::Run("true".into())));
    let env = |variable: &str| task.spec.env.get(variable).map(|value| value.to_string());
    assert_eq!((env("VAR_NUMBER"), env("VAR_ISSUE_TITLE")), (Some("0".into()), Some("a b".into())));
    assert_eq!(env("BANKSMAN_ITEM").unwrap(), r#"{"issue-title":"a b","number":0}"#);
    assert!(task.id.as_str().starts_with(&env("BANKSMAN_ITEM_ID").unwrap().replace("q-", "t-")), "{}", task.id);
    let mut done = Vec::new();
    while stage.standing().1 > 0 {
        done.extend(end_all(&mut stage, &mut actor, 0));
        assert!(stage.standing().1 <= 2);
    }
    assert_eq!((done.len(), stage.states("q")), (5, vec![]), "each once");
    assert_eq!((stage.count_events("queue:complete"), stage.count_events("worker:end")), (5, 5));
}

#[test]
fn an_item_does_not_expire_while_its_task_lives() {
    let mut stage = Stage::with_worker(1, &[]);
    stage.push("q", &json!(1), Span::ZERO);
    let mut actor = stage.start("m", options());
    stage.pass(86_400_000);
    let request = QueueRequest::new(name("q"), Input::Take { holder: "me".parse().unwrap(), wait: None, ticket: None });
    assert!(matches!(stage.ask(Request::Queue(request)), Reply::Queue { outcome: Outcome::Empty { .. }, .. }));
    end_all(&mut stage, &mut actor, 0);
    assert_eq!(stage.states("q"), Vec::<&str>::new());
}

#[test]
fn a_failing_item_is_retried_and_dies_with_the_error_of_its_task() {
    let mut stage = Stage::with_worker(1, &[]);
    stage.push("q", &json!(1), Span::ZERO);
    let mut actor = stage.start("m", options());
    end_all(&mut stage, &mut actor, 3);
    assert_eq!(stage.states("q"), ["processing"], "the second attempt");
    end_all(&mut stage, &mut actor, 4);
    let rows = stage.everything().tables.queues;
    let item = rows.items.values().next().unwrap();
    assert_eq!((item.queue.as_str(), &*item.origin.as_ref().unwrap().reason), ("graves", "exit status 4"));
    let errors: Vec<&str> = item.history.iter().map(|attempt| &*attempt.error).collect();
    assert_eq!(errors, ["exit status 3", "exit status 4"]);
    assert_eq!(item.history[0].holder.as_str(), "worker:w");
    // People are notified of the item, once, and not of its tasks.
    let notices = stage.everything().tables.backlog.outbox.into_values().filter_map(|entry| match entry.command {
        OutboxCommand::Notify(notice) if notice.kind == NoticeKind::TaskFailed => Some((notice.subject, notice.text)),
        _ => None,
    });
    let subject = format!("dead: item {} of queue q", item.id).into();
    assert_eq!(notices.collect::<Vec<_>>(), [(subject, "exit status 4".into())]);
}

#[test]
fn a_push_wakes_a_sleeping_runner_and_a_delay_is_slept_through() {
    let mut stage = Stage::with_worker(2, &[]);
    let mut actor = stage.runner("m", options());
    assert_eq!(stage.play(&mut actor), Some(options().poll));
    stage.push("q", &json!(1), Span::ZERO);
    stage.play(&mut actor);
    assert_eq!(stage.standing(), ("busy", 1));
    stage.push("q", &json!(2), Span::from_secs(7));
    assert_eq!(stage.play(&mut actor), Some(Span::from_secs(7)));
    stage.pass(7_000);
    stage.play(&mut actor);
    assert_eq!(stage.standing(), ("busy", 2));
    // No runner is woken for a queue without a worker.
    stage.push("graves", &json!(3), Span::ZERO);
    actor.did();
    stage.play(&mut actor);
    assert_eq!(actor.did(), Vec::<String>::new());
}

#[test]
fn run_until_idle_waits_for_items() {
    let mut stage = Stage::with_worker(1, &[]);
    stage.push("q", &json!(1), Span::ZERO);
    stage.push("q", &json!(2), Span::from_secs(5));
    let mut actor = stage.runner("m", Options { until_idle: true, ..options() });
    assert!(stage.play(&mut actor).is_some());
    end_all(&mut stage, &mut actor, 0);
    stage.pass(5_000);
    assert!(stage.play(&mut actor).is_some(), "there is one more");
    end_all(&mut stage, &mut actor, 0);
    assert_eq!(stage.play(&mut actor), None, "nothing is left");
}

#[test]
fn a_paused_worker_takes_nothing_until_it_is_resumed() {
    let mut stage = Stage::with_worker(1, &[]);
    stage.request(WorkerRequest::Pause { worker: name("w") });
    stage.push("q", &json!(1), Span::ZERO);
    let mut actor = stage.start("m", options());
    assert_eq!(stage.standing(), ("paused", 0));
    stage.request(WorkerRequest::Resume { worker: name("w") });
    stage.play(&mut actor);
    assert_eq!(stage.standing(), ("busy", 1));
    // A paused queue gives no items, and polling it would not help.
    end_all(&mut stage, &mut actor, 0);
    stage.ask(Request::Queue(QueueRequest::new(name("q"), Input::Pause)));
    stage.push("q", &json!(2), Span::ZERO);
    stage.play(&mut actor);
    assert_eq!(stage.standing(), ("awake", 0));
    stage.ask(Request::Queue(QueueRequest::new(name("q"), Input::Resume)));
    stage.play(&mut actor);
    assert_eq!(stage.standing(), ("busy", 1));
}

#[test]
fn an_event_wakes_a_worker_until_its_queue_is_empty() {
    let mut stage = Stage::new();
    stage.emit("deploy:done", json!({}));
    stage.apply(vec![definition("w", "q", 1, &["deploy:done"])], vec![]);
    (0..2).for_each(|number| stage.push("q", &json!(number), Span::ZERO));
    let mut actor = stage.start("m", options());
    assert_eq!(stage.standing(), ("asleep", 0), "an event before its definition does not wake it");
    assert!(actor.dispatcher.listens());
    stage.emit("deploy:failed", json!({}));
    stage.play(&mut actor);
    assert_eq!(stage.standing(), ("asleep", 0));
    stage.emit("deploy:done", json!({}));
    stage.play(&mut actor);
    assert_eq!(stage.standing(), ("busy", 1));
    end_all(&mut stage, &mut actor, 0);
    assert_eq!(stage.standing(), ("busy", 1));
    // A failed item is retried before the worker sleeps.
    end_all(&mut stage, &mut actor, 1);
    assert_eq!(stage.standing(), ("busy", 1));
    end_all(&mut stage, &mut actor, 0);
    assert_eq!(stage.standing(), ("asleep", 0));
    stage.push("q", &json!(3), Span::ZERO);
    stage.play(&mut actor);
    assert_eq!(stage.standing(), ("asleep", 0));
    stage.request(WorkerRequest::Wake { worker: name("w") });
    stage.play(&mut actor);
    assert_eq!(stage.standing(), ("busy", 1), "a person can wake it too");
}

#[test]
fn an_event_for_an_awake_worker_does_not_wake_it_later() {
    let mut stage = Stage::with_worker(1, &["night:begin"]);
    stage.push("q", &json!(1), Span::ZERO);
    let mut actor = stage.runner("m", options());
    stage.emit("night:begin", json!({}));
    stage.play(&mut actor);
    stage.emit("night:begin", json!({}));
    stage.play(&mut actor);
    end_all(&mut stage, &mut actor, 0);
    assert_eq!(stage.standing(), ("asleep", 0));
    stage.push("q", &json!(2), Span::ZERO);
    // A new runner reads the log again.
    stage.kill(actor);
    stage.start("n", options());
    assert_eq!(
        (stage.standing(), stage.count_events("worker:woken")),
        (("asleep", 0), 1),
        "the second event came while the worker was awake"
    );
}

#[test]
fn a_runner_of_some_sections_does_not_serve_workers() {
    let mut stage = Stage::with_worker(1, &[]);
    stage.push("q", &json!(1), Span::ZERO);
    stage.start("m", Options { sections: vec!["s-1".parse().unwrap()], ..options() });
    assert_eq!(stage.standing(), ("awake", 0));
}

#[test]
fn the_items_of_a_killed_runner_are_settled_by_the_next() {
    let mut stage = Stage::with_worker(3, &[]);
    (0..3).for_each(|number| stage.push("q", &json!(number), Span::ZERO));
    let actor = stage.start("m", options());
    stage.kill(actor);
    let mut heir = stage.start("n", options());
    let adopted = heir.wants.drain(..).filter_map(|action| match action {
        RunnerAction::Recover(work) => Some(work.run.id.clone()),
        _ => None,
    });
    let adopted: Vec<_> = adopted.collect();
    assert_eq!(adopted.len(), 3);
    adopted.iter().for_each(|run| heir.dispatcher.on(RunnerInput::Ended(run.clone(), exited(0)), stage.now()));
    stage.play(&mut heir);
    assert_eq!((stage.standing(), stage.count_events("queue:complete")), (("awake", 0), 3));
}

#[test]
fn a_cancelled_or_deleted_task_fails_its_item() {
    let mut stage = Stage::with_worker(1, &[]);
    stage.push("q", &json!(1), Span::ZERO);
    let WorkerOutcome::Took { task, .. } = stage.request(WorkerRequest::Take { worker: name("w"), queue: name("q") }) else {
        panic!("it takes one");
    };
    let taken = stage.everything().automation.workers.workers[&name("w")].jobs[&task].clone();
    let settle = WorkerRequest::Settle { worker: name("w"), task: task.clone(), taken };
    assert_eq!(stage.request(settle.clone()), WorkerOutcome::NotOver);
    stage.ask(Request::Task(crate::calls::tasks::TaskRequest::Cancel { id: task.clone() }));
    assert!(matches!(stage.request(settle.clone()), WorkerOutcome::Settled(Outcome::Failed { .. })));
    assert_eq!(stage.request(settle), WorkerOutcome::Stepped(worker::Outcome::NoJob), "once");
    let history = stage.everything().queues.items.values().next().unwrap().history.clone();
    assert_eq!(&*history[0].error, format!("its task {task} was cancelled"));
    let WorkerOutcome::Took { task, .. } = stage.request(WorkerRequest::Take { worker: name("w"), queue: name("q") }) else {
        panic!("it takes it again");
    };
    stage.ask(Request::Task(crate::calls::tasks::TaskRequest::Delete { id: task, force: true }));
    stage.start("m", options());
    assert_eq!(stage.states("graves"), ["pending"]);
}

fn plan(vars: &[&str]) -> Arc<Plan> {
    let phase = |phase: &str, run_command: RunCommand| Phase {
        name: name(phase),
        action: Action::Do(run_command),
        pre: Vec::new(),
        post: Vec::new(),
        needs: Vec::new(),
        keeps: false,
        timeout: None,
        retries: 0,
        blocked_timeout: None,
        output: Vec::new(),
        then: Default::default(),
        on_fail: Default::default(),
    };
    let phases = vec![
        phase("build", RunCommand::Run("make".into())),
        phase("say", RunCommand::Argv(vec!["echo".into(), "{{ title }}".into()])),
    ];
    let vars = vars.iter().map(|name| ((*name).into(), None)).collect();
    Arc::new(Plan { runbook: "r".into(), name: name("p"), vars, phases, land: None })
}

#[test]
fn an_item_becomes_a_pipeline_and_is_completed_with_it() {
    let mut stage = Stage::new();
    let worker = Definition { job: Job::Pipeline(plan(&["title"])), ..definition("w", "q", 1, &[]) };
    stage.apply(vec![worker], vec![]);
    stage.push("q", &json!({ "title": "a b", "other": 1 }), Span::ZERO);
    let mut actor = stage.start("m", options());
    assert_eq!(stage.standing(), ("busy", 1));
    let phases = [end_all(&mut stage, &mut actor, 0), end_all(&mut stage, &mut actor, 0)].concat();
    assert_eq!(phases.len(), 2);
    assert!(phases.iter().all(|id| id.as_str().starts_with("p-")), "{phases:?}");
    let spec = stage.rows().tasks[&phases[1]].spec.clone();
    assert_eq!(spec.work, Some(Work::Exec { argv: vec!["echo".into(), "a b".into()], input: None }));
    assert_eq!(spec.title.as_str(), "a b: say");
    assert_eq!((stage.standing(), stage.count_events("queue:complete")), (("awake", 0), 1));
    // An item without the variable cannot begin, is dead at once, and has the error.
    stage.push("q", &json!({ "other": 1 }), Span::ZERO);
    stage.play(&mut actor);
    let rows = stage.everything().tables.queues;
    let history = &rows.items.values().next().unwrap().history;
    assert_eq!((history.len(), &*history[0].error), (1, r#"the variable "title" has no value"#));
    // An item whose phase fails is retried as another pipeline.
    stage.push("q", &json!({ "title": "x" }), Span::ZERO);
    stage.play(&mut actor);
    let first = end_all(&mut stage, &mut actor, 3);
    let second = end_all(&mut stage, &mut actor, 3);
    assert_ne!(first, second);
    let reasons: Vec<_> = stage.everything().tables.queues.items.into_values().filter_map(|item| item.origin).collect();
    assert!(reasons.iter().any(|origin| origin.reason.contains("build: exit status 3")), "{reasons:?}");
}

/// The take of an item does not read the needs of the first phase. The pipeline was parked on slots that were free, so that no release
/// could return it.
#[test]
fn a_pipeline_of_an_item_is_not_parked_on_slots_that_were_not_loaded() {
    let mut stage = Stage::new();
    let mut plan = Plan::clone(&plan(&["title"]));
    let slots = |weight| vec![Need::Slots { name: name("s"), weight }];
    plan.phases[0].needs = slots(1);
    let config = semaphore::Config { capacity: 2, ttl: None };
    stage.ask(Request::plain(Command::Semaphore(name("s"), semaphore::Input::Define(config))));
    stage.apply(vec![Definition { job: Job::Pipeline(Arc::new(plan)), ..definition("w", "q", 1, &[]) }], vec![]);
    // The runner on duty reads only the first parked task, which waits for a person.
    let taken = take(&slots(1)[0], "ann".parse().unwrap(), Vec::new());
    stage.ask(Request::plain(taken));
    stage.add("t", |spec| spec.needs = slots(2));
    let mut actor = stage.start("m", Options { limits: Limits { runs: 0, roots: 1 }, ..options() });
    stage.push("q", &json!({ "title": "x" }), Span::ZERO);
    stage.play(&mut actor);
    assert_eq!(end_all(&mut stage, &mut actor, 0).len(), 1);
}

#[test]
fn a_runbook_is_applied_completely_or_not_at_all() {
    let mut stage = Stage::new();
    let push = |queue: &str| Then::Push(Push { queue: name(queue), priority: 0, vars: Vec::new() });
    let wrong = runbook(
        vec![definition("w", "nowhere", 1, &[])],
        vec![route("queue:dead(graves)", vec![push("graves")]), route("x:y", vec![Then::Wake(name("ghost")), push("void")])],
    );
    let ApplyOutcome::Refused(incompatible) = stage.request(wrong) else { panic!("it is wrong") };
    assert_eq!(incompatible.len(), 4, "{incompatible:?}");
    assert!(matches!(&incompatible[0], Incompatible::NoQueue { queue, .. } if queue.as_str() == "nowhere"));
    assert!(stage.everything().queues.queues.is_empty());

    let first = || runbook(vec![definition("w", "q", 1, &[])], vec![route("x:y", vec![push("q")])]);
    let how = |outcome: ApplyOutcome| match outcome {
        ApplyOutcome::Applied(changes) => changes.iter().map(|change| change.how).collect::<Vec<_>>(),
        ApplyOutcome::Refused(incompatible) => panic!("{incompatible:?}"),
    };
    assert_eq!(how(stage.request(first())), [How::Created; 4]);
    let before = stage.count_events("worker:defined");
    assert_eq!(how(stage.request(first())), [How::Same; 4]);
    assert_eq!(stage.count_events("worker:defined"), before, "nothing is written");
    stage.push("q", &json!(1), Span::ZERO);
    stage.request(WorkerRequest::Take { worker: name("w"), queue: name("q") });
    let second = runbook(vec![definition("v", "q", 1, &[])], vec![route("x:y", vec![push("graves")])]);
    assert_eq!(how(stage.request(second)), [How::Same, How::Same, How::Created, How::Finishing { jobs: 1 }, How::Changed]);
    let theirs = Definition { runbook: "other".into(), ..definition("v", "q", 1, &[]) };
    let theirs = BTreeMap::from([(name("v"), Arc::new(theirs))]);
    let theirs = ApplyRequest { runbook: "other".into(), workers: theirs, ..ApplyRequest::default() };
    let ApplyOutcome::Refused(incompatible) = stage.request(theirs) else { panic!("names belong to runbooks") };
    assert_eq!(incompatible, [Incompatible::Worker(name("v"), worker::Outcome::Foreign { runbook: "r".into() })]);
    let gone = stage.request(ApplyRequest { runbook: "r".into(), ..ApplyRequest::default() });
    assert_eq!(how(gone), [How::Removed, How::Removed]);
    let mut actor = stage.start("m", options());
    end_all(&mut stage, &mut actor, 0);
    let automation = stage.everything().tables.automation;
    assert!(automation.workers.workers.is_empty() && automation.routes.routes.is_empty(), "{automation:?}");
}

#[test]
fn queues_with_circular_dead_letters_can_be_applied() {
    let mut stage = Stage::new();
    let queues = BTreeMap::from([(name("a"), terms(1, Some("b"))), (name("b"), terms(1, Some("a")))]);
    let outcome = stage.request(ApplyRequest { runbook: "r".into(), queues: queues.clone(), ..ApplyRequest::default() });
    assert!(matches!(outcome, ApplyOutcome::Applied(_)), "{outcome:?}");
    assert!(stage.everything().queues.queues.iter().all(|(name, queue)| queue.config == queues[name]));
    let lost = BTreeMap::from([(name("c"), terms(1, Some("nowhere")))]);
    let outcome = stage.request(ApplyRequest { runbook: "r".into(), queues: lost, ..ApplyRequest::default() });
    assert!(matches!(outcome, ApplyOutcome::Refused(_)), "{outcome:?}");
}
