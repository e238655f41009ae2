//! Pipelines under runners, over the real store. After every transaction the stage compares each pipeline with its tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use banksman_core::backlog::{Edge, RunEndRecord};
use banksman_core::decision::About;
use banksman_core::guard::{Condition, FileInfo, Guard, GuardAction, GuardInputs, Predicate};
use banksman_core::pipeline::plan::{Action, After, Bound, OnFail, Phase, Plan, Push, RunCommand, Text};
use banksman_core::pipeline::strategy::{Approach, Fallback};
use banksman_core::pipeline::{Outcome, Pipeline, Reason, State, When};
use banksman_core::queue::{self, Input};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::grant::{Ask, GrantRequest, WaitingProcess};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::task::{self, Mark, Need, Spec, Verdict, Watch, Work};
use banksman_core::{Epoch, HolderId, Limits, LimitsChange, Name, ProcessId, Span, TaskId};
use serde_json::{Value, json};

use super::stage::{Actor, Stage, TIMEOUT, exited, options, task};
use super::{Activity, Options, Vitals};
use crate::calls::decisions::DecisionRequest;
use crate::calls::manual::Taking;
use crate::calls::pipelines::{PipelineOutcome, PipelineRequest, Start};
use crate::calls::queues::QueueRequest;
use crate::calls::runs::RunRequest;
use crate::calls::tasks::{Edit, TaskOutcome, TaskRequest};
use crate::request::{Request, Seen};
use crate::{RunnerAction, RunnerInput};

mod guards;
mod people;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn phase(text: &str) -> Phase {
    Phase::new(name(text), Action::Do(RunCommand::Run("true".into())))
}

fn two() -> Vec<Phase> {
    vec![phase("one"), phase("two")]
}

fn guard(condition: Condition) -> Vec<Guard> {
    let on_failure = GuardAction::Block;
    vec![Guard { name: name("g"), condition, on_failure, fresh_for: Span::from_secs(30), timeout: Span::from_secs(1) }]
}

fn text(literal: &str) -> Text {
    Text::Literal(literal.into())
}

/// Two phases; a guard of the first needs a free lock.
fn behind(lock: &str) -> Vec<Phase> {
    vec![Phase { pre: guard(Condition::Predicate(Predicate::LockFree { lock: text(lock) })), ..phase("one") }, phase("two")]
}

/// One phase; its guard needs an existing file.
fn after_file() -> Vec<Phase> {
    vec![Phase { pre: guard(Condition::Predicate(Predicate::FileExists { path: text("go") })), ..phase("one") }]
}

fn found(exists: bool) -> GuardInputs {
    let file = FileInfo { exists, matches: BTreeMap::new() };
    GuardInputs { files: [("go".into(), file)].into(), ..GuardInputs::default() }
}

impl Stage {
    fn with_pipeline(phases: Vec<Phase>) -> Stage {
        let mut stage = Stage::new();
        stage.pipeline("p-1", phases);
        stage
    }

    fn pipeline(&mut self, id: &str, phases: Vec<Phase>) {
        self.pipeline_after(id, phases, json!({}), &[]);
    }

    fn pipeline_after(&mut self, id: &str, phases: Vec<Phase>, vars: Value, depends_on: &[&str]) {
        let plan = Plan { runbook: "book".into(), name: name("way"), vars: BTreeMap::new(), phases, land: None };
        let start = Start {
            id: task(id),
            spec: Spec { work: Some(Work::Pipeline(Arc::new(plan))), ..Spec::new(id.parse().unwrap()) },
            depends_on: depends_on.iter().map(|on| Edge { on: task(on), allow_failed: false }).collect(),
            vars: Bound { context: serde_json::from_value(vars).unwrap(), ..Bound::default() },
            by: None,
        };
        let outcome = self.request(PipelineRequest::Start(Box::new(start)));
        assert!(matches!(outcome, PipelineOutcome::Stepped(..)), "{outcome:?}");
    }

    fn at(&mut self, id: &str) -> Pipeline {
        self.rows().pipelines[&task(id)].clone()
    }

    /// The status and the phase of a pipeline, in two words.
    fn phase_status(&mut self, id: &str) -> String {
        let pipeline = self.at(id);
        format!("{} {}", pipeline.word(), pipeline.phase().map_or("", Name::as_str)).trim_end().into()
    }

    fn lock(&mut self, name_: &str, holder: &str) -> Epoch {
        self.lock_of(name_, holder, Vec::new())
    }

    fn lock_of(&mut self, name_: &str, holder: &str, processes: Vec<ProcessId>) -> Epoch {
        self.ask(acquire(name_, holder, processes));
        self.everything().coordination.locks[&name(name_)].fence
    }

    fn unlock(&mut self, name_: &str, holder: &str, epoch: Epoch) {
        let release = lock::Input::Release { holder: HolderId::new(holder).unwrap(), epoch };
        self.ask(Request::plain(Command::Lock(name(name_), release)));
    }
}

fn acquire(lock: &str, holder: &str, processes: Vec<ProcessId>) -> Request {
    let claim = GrantRequest { processes, ..GrantRequest::new(HolderId::new(holder).unwrap()) };
    let ask = Box::new(Ask::new(claim));
    Request::plain(Command::Lock(name(lock), lock::Input::Acquire(ask)))
}

/// Ends the last run of an actor, with this output.
fn end(stage: &mut Stage, actor: &mut Actor, code: i32, tail: &str) {
    actor.notify(stage, RunnerInput::Ended(actor.run().clone(), RunEndRecord { tail: Some(tail.into()), ..exited(code) }));
}

fn spawned(actor: &mut Actor) -> Vec<String> {
    actor.did().into_iter().filter_map(|word| word.strip_prefix("spawn ").map(str::to_owned)).collect()
}

#[test]
fn a_runner_begins_a_pipeline_and_goes_from_phase_to_phase() {
    let mut stage = Stage::new();
    let phases = vec![Phase { output: vec!["n".into()], ..phase("one") }, phase("two")];
    stage.pipeline_after("p-1", phases, json!({ "title": "x" }), &[]);
    let mut actor = stage.start("m", options());
    assert_eq!(actor.did(), ["begin", "claim", "spawn p-1.1"]);
    let env = stage.rows().tasks[&task("p-1.1")].spec.env.clone();
    let expected = [("BANKSMAN_PHASE", "one"), ("BANKSMAN_PIPELINE", "p-1"), ("VAR_TITLE", "x")];
    assert_eq!(env, expected.map(|(name, value)| (name.into(), value.into())).into());
    end(&mut stage, &mut actor, 0, "working\n{\"title\": \"y\", \"n\": [1]}\nbye\n");
    assert_eq!(actor.did(), ["finish", "acknowledge", "claim", "spawn p-1.2"]);
    let env = stage.rows().tasks[&task("p-1.2")].spec.env.clone();
    assert_eq!((&*env["VAR_TITLE"], &*env["VAR_ONE_N"]), ("x", "[1]"), "only what is declared");
    end(&mut stage, &mut actor, 0, "");
    assert_eq!((stage.phase_status("p-1").as_str(), stage.status("p-1").as_str()), ("done", "completed"));
    let task::State::Done(done) = stage.rows().tasks[&task("p-1")].state.clone() else { panic!("it is over") };
    assert_eq!(done, task::TaskEnd::Success { output: Some(json!({ "title": "x", "one": { "n": [1] } })), warning: None });
}

#[test]
fn several_pipelines_run_side_by_side() {
    let mut stage = Stage::new();
    (1..=5).for_each(|number| stage.pipeline(&format!("p-{number}"), two()));
    let mut actor = stage.runner("m", Options { max_runs: Some(2), until_idle: true, ..options() });
    let mut order = Vec::new();
    while stage.play(&mut actor).is_some() {
        order.extend(spawned(&mut actor));
        // All started runs end at once.
        let runs: Vec<_> = actor
            .wants
            .drain(..)
            .filter_map(|action| if let RunnerAction::Spawn(work) = action { Some(work.run.id) } else { None })
            .collect();
        assert!((1..=2).contains(&runs.len()), "{order:?}");
        runs.iter().for_each(|run| actor.dispatcher.on(RunnerInput::Ended(run.clone(), exited(0)), stage.now()));
    }
    assert_eq!((order.len(), stage.count_events("pipeline:complete"), stage.count_events("task:started")), (10, 5, 10));
}

#[test]
fn until_idle_ignores_the_place_of_a_phase_that_can_never_run() {
    for (weight, behind, is_over) in [(2, None, true), (1, None, false), (1, Some("l"), false)] {
        let mut stage = Stage::new();
        let config = semaphore::Config { capacity: 1, ttl: None };
        stage.ask(Request::plain(Command::Semaphore(name("s"), semaphore::Input::Define(config))));
        let mut needs = vec![Need::Slots { name: name("s"), weight }];
        if let Some(lock) = behind {
            stage.lock(lock, "ann");
            needs.push(Need::Lock(name(lock)));
        }
        stage.pipeline("p-1", vec![phase("one"), Phase { needs, ..phase("two") }]);
        stage.add("t", |_| {});
        let mut actor = stage.runner("m", Options { until_idle: true, limits: Limits { runs: 0, roots: 1 }, ..options() });
        stage.play(&mut actor);
        end(&mut stage, &mut actor, 0, "");
        assert_eq!(stage.phase_status("p-1"), "running two");
        assert_eq!(stage.play(&mut actor).is_none(), is_over, "{weight} of 1 slot, behind {behind:?}");
    }
}

/// A pipeline needs the lock of its first phase only while roots are limited. When the limit was removed, it was not returned to its lane,
/// and every runner tried to without a pause.
#[test]
fn a_pipeline_waiting_for_its_first_phase_begins_without_a_root_limit() {
    let mut stage = Stage::new();
    stage.lock("l", "ann");
    stage.pipeline("p-1", vec![Phase { needs: vec![Need::Lock(name("l"))], ..phase("one") }]);
    let mut actor = stage.runner("m", Options { limits: Limits { runs: 0, roots: 1 }, ..options() });
    stage.play(&mut actor);
    assert_eq!(stage.status("p-1"), "pending");
    let change = LimitsChange { roots: Some(0), ..LimitsChange::default() };
    stage.ask(Request::SetLimits { change, seed: Limits::NONE });
    actor.notify(&mut stage, RunnerInput::Woken);
    assert_eq!(stage.phase_status("p-1"), "running one");
}

/// Of several phases that wait for one resource, a runner reads only the first.
#[test]
fn until_idle_ignores_the_places_of_several_phases_that_can_never_run() {
    let mut stage = Stage::new();
    let config = semaphore::Config { capacity: 1, ttl: None };
    stage.ask(Request::plain(Command::Semaphore(name("s"), semaphore::Input::Define(config))));
    let limits = Limits { runs: 0, roots: 2 };
    let mut actor = stage.runner("m", Options { limits, ..options() });
    for id in ["p-1", "p-2"] {
        let needs = vec![Need::Slots { name: name("s"), weight: 2 }];
        stage.pipeline(id, vec![phase("one"), Phase { needs, ..phase("two") }]);
        actor.notify(&mut stage, RunnerInput::Woken);
        end(&mut stage, &mut actor, 0, "");
        assert_eq!(stage.phase_status(id), "running two");
    }
    stage.add("t", |_| {});
    let mut idle = stage.runner("n", Options { until_idle: true, limits, ..options() });
    assert_eq!(stage.play(&mut idle), None);
    assert_eq!(stage.status("t"), "pending");
}

#[test]
fn a_pipeline_begins_together_with_its_first_phase() {
    for root_limit in [0, 1] {
        let mut stage = Stage::with_pipeline(vec![Phase { needs: vec![Need::Lock(name("l"))], ..phase("one") }]);
        let mut actor = stage.runner("m", Options { limits: Limits { runs: 0, roots: root_limit }, ..options() });
        let mut has_begun = false;
        stage.play_with(&mut actor, |stage, requests| {
            if has_begun {
                stage.lock("l", "ann");
            }
            has_begun |= requests.iter().any(|request| matches!(request, Request::Run(RunRequest::Claim(_))));
        });
        assert_eq!((has_begun, spawned(&mut actor)), (true, vec!["p-1.1".into()]));
    }
    // A pipeline that has to wait takes no place of a limited root.
    let mut stage = Stage::new();
    stage.lock("l", "ann");
    stage.pipeline("p-1", vec![Phase { needs: vec![Need::Lock(name("l"))], ..phase("one") }]);
    stage.pipeline("p-2", two());
    let mut actor = stage.runner("m", Options { limits: Limits { runs: 0, roots: 1 }, ..options() });
    stage.play(&mut actor);
    assert_eq!((spawned(&mut actor), stage.phase_status("p-1")), (vec!["p-2.1".into()], "init".into()));
}

#[test]
fn a_release_after_a_refused_claim_is_not_lost() {
    let mut stage = Stage::new();
    stage.add("t", |spec| spec.needs = vec![Need::Lock(name("l"))]);
    let mut actor = stage.runner("m", options());
    // A person takes the lock before the runner claims, and releases it before the runner sleeps.
    let mut held = None;
    let mut claims = 0;
    stage.play_with(&mut actor, |stage, requests| {
        if requests.iter().any(|request| matches!(request, Request::Run(RunRequest::Claim(_)))) {
            claims += 1;
            match claims {
                1 => held = Some(stage.lock("l", "ann")),
                2 => stage.unlock("l", "ann", held.expect("it was taken")),
                _ => {}
            }
        }
    });
    assert_eq!(spawned(&mut actor), ["t"]);
}

#[test]
fn pipelines_begin_after_their_dependencies() {
    let mut stage = Stage::new();
    stage.add("t", |_| {});
    stage.pipeline_after("p-1", two(), json!({}), &["t"]);
    stage.pipeline_after("p-2", two(), json!({}), &["p-1"]);
    assert_eq!((stage.phase_status("p-1"), stage.phase_status("p-2")), ("blocked one".into(), "blocked one".into()));
    let mut actor = stage.start("m", options());
    let mut order = spawned(&mut actor);
    for _ in 0..5 {
        end(&mut stage, &mut actor, 0, "");
        order.extend(spawned(&mut actor));
    }
    assert_eq!(order, ["t", "p-1.1", "p-1.2", "p-2.1", "p-2.2"]);
    assert_eq!(stage.phase_status("p-2"), "done");
}

#[test]
fn a_failure_leads_to_another_phase_or_approach_in_one_transaction() {
    let mut stage = Stage::new();
    let approach = |text: &str, fallback_on| Approach {
        name: name(text),
        run_command: RunCommand::Run("true".into()),
        fallback_on,
        timeout: Some(Span::from_secs(30)),
    };
    let approaches = vec![approach("a", vec![Fallback::Error("boom".into()), Fallback::Timeout]), approach("b", Vec::new())];
    let action = Action::Strategy { name: name("s"), approaches };
    let on_fail = OnFail::Phase { to: name("fix"), times: 1 };
    let fix = Phase { then: After::Phase(name("one")), ..phase("fix") };
    stage.pipeline("p-1", vec![Phase { action, on_fail, then: After::Done, ..phase("one") }, fix]);
    let mut actor = stage.start("m", options());
    end(&mut stage, &mut actor, 1, "boom!");
    assert_eq!(spawned(&mut actor), ["p-1.1", "p-1.2"]);
    assert_eq!(stage.rows().tasks[&task("p-1.2")].spec.title.as_str(), "p-1: one (b)");
    end(&mut stage, &mut actor, 1, "boom!");
    assert_eq!((spawned(&mut actor), stage.phase_status("p-1")), (vec!["p-1.3".into()], "running fix".into()));
    end(&mut stage, &mut actor, 0, "");
    assert_eq!((spawned(&mut actor), stage.phase_status("p-1")), (vec!["p-1.4".into()], "running one".into()));
    // The approach takes too long.
    stage.sleep(&mut actor);
    assert_eq!(actor.did(), ["overtime", "kill"]);
    end(&mut stage, &mut actor, 143, "");
    assert_eq!(spawned(&mut actor), ["p-1.5"]);
    end(&mut stage, &mut actor, 1, "");
    assert_eq!((stage.phase_status("p-1").as_str(), stage.status("p-1").as_str()), ("failed one", "failed"));
}

#[test]
fn an_item_is_put_into_its_queue_once() {
    let mut stage = Stage::new();
    let terms = queue::Config { visibility_timeout: Span::from_secs(10), max_attempts: 1, dead_letter: None, max_length: 1 };
    stage.ask(Request::Queue(QueueRequest::new(name("q"), Input::Define(terms))));
    let push = |queue: &str, vars: Vec<Box<str>>| Action::Push(Push { queue: name(queue), priority: 3, vars });
    let send = || vec![Phase { action: push("q", vec!["a".into()]), ..phase("send") }, phase("two")];
    stage.pipeline_after("p-1", send(), json!({ "a": 1, "b": 2 }), &[]);
    // Both runners find the push to do; one does it.
    let (mut first, mut second) = (stage.runner("m", options()), stage.runner("n", options()));
    stage.play_with(&mut first, |stage, requests| {
        if requests.iter().any(|request| matches!(request, Request::Pipeline(PipelineRequest::Push { .. }))) {
            stage.play(&mut second);
        }
    });
    let items = stage.everything().tables.queues.items;
    assert_eq!(items.len(), 1);
    let item = items.into_values().next().unwrap();
    assert_eq!((serde_json::to_value(&item.data).unwrap(), item.priority), (json!({ "a": 1 }), 3));
    assert_eq!(stage.phase_status("p-1"), "running two");
    // The queue is full now, and another does not exist.
    stage.pipeline("p-2", send());
    stage.pipeline("p-3", vec![Phase { action: push("nowhere", Vec::new()), ..phase("send") }]);
    stage.play(&mut first);
    assert_eq!((stage.phase_status("p-2"), stage.phase_status("p-3")), ("failed send".into(), "failed send".into()));
    // An item is nested one level deeper than its values.
    let deepest = (0..64).fold(json!(1), |inside, _| json!([inside]));
    stage.pipeline_after("p-4", send(), json!({ "a": deepest }), &[]);
    stage.play(&mut first);
    assert_eq!(stage.phase_status("p-4"), "failed send");
}

#[test]
fn the_root_limit_includes_pipelines() {
    let mut stage = Stage::with_pipeline(two());
    stage.add("t", |_| {});
    stage.pipeline("p-2", two());
    let mut actor = stage.runner("m", Options { limits: Limits { runs: 0, roots: 1 }, ..options() });
    stage.play(&mut actor);
    let mut order = spawned(&mut actor);
    for _ in 0..5 {
        end(&mut stage, &mut actor, 0, "");
        order.extend(spawned(&mut actor));
    }
    assert_eq!(order, ["p-1.1", "p-1.2", "t", "p-2.1", "p-2.2"]);
    assert_eq!(stage.phase_status("p-2"), "done");
}

#[test]
fn a_pipeline_that_cannot_begin_takes_no_root_place() {
    let mut stage = Stage::new();
    let needs = |need: Need| vec![Phase { needs: vec![need], ..phase("one") }, phase("two")];
    stage.pipeline("p-1", needs(Need::Slots { name: name("gpu"), weight: 1 }));
    stage.pipeline("p-2", needs(Need::Lock(name("db"))));
    stage.pipeline("p-3", needs(Need::Lock(name("db"))));
    stage.add("t", |_| {});
    let mut actor = stage.runner("m", Options { limits: Limits { runs: 0, roots: 2 }, ..options() });
    stage.play(&mut actor);
    let mut begun = spawned(&mut actor);
    begun.sort();
    assert_eq!(begun, ["p-2.1", "t"], "the semaphore does not exist, and p-2 has the lock that p-3 needs");
    assert_eq!((stage.phase_status("p-1"), stage.phase_status("p-3")), ("init".into(), "init".into()));
    let define = semaphore::Input::Define(semaphore::Config { capacity: 1, ttl: None });
    stage.ask(Request::plain(Command::Semaphore(name("gpu"), define)));
    stage.play(&mut actor);
    assert_eq!(stage.phase_status("p-1"), "init", "there is no place");
    let run = |actor: &Actor, id: &str| {
        let spawn = |action: &RunnerAction| match action {
            RunnerAction::Spawn(work) if work.task.id.as_str() == id => Some(work.run.id.clone()),
            _ => None,
        };
        actor.wants.iter().find_map(spawn).unwrap()
    };
    let ended = run(&actor, "t");
    actor.notify(&mut stage, RunnerInput::Ended(ended.clone(), exited(0)));
    assert_eq!((spawned(&mut actor), stage.phase_status("p-3")), (vec!["p-1.1".into()], "init".into()));
}

#[test]
fn a_begun_pipeline_is_finished_before_other_roots_begin() {
    let mut stage = Stage::new();
    let epoch = stage.lock("db", "ann");
    stage.pipeline("p-1", vec![phase("one"), Phase { needs: vec![Need::Lock(name("db"))], ..phase("two") }]);
    stage.add("t", |_| {});
    let mut actor = stage.runner("m", Options { limits: Limits { runs: 0, roots: 1 }, ..options() });
    stage.play(&mut actor);
    end(&mut stage, &mut actor, 0, "");
    assert_eq!((spawned(&mut actor), stage.phase_status("p-1")), (vec!["p-1.1".into()], "running two".into()));
    stage.unlock("db", "ann", epoch);
    stage.play(&mut actor);
    assert_eq!(spawned(&mut actor), ["p-1.2"]);
    end(&mut stage, &mut actor, 0, "");
    assert_eq!(spawned(&mut actor), ["t"]);
}

#[test]
fn a_pipeline_does_not_overtake_a_root_that_only_waits_for_a_slot() {
    let mut stage = Stage::new();
    stage.add("t-1", |_| {});
    stage.add("t-2", |_| {});
    stage.pipeline("p-1", two());
    let mut actor = stage.runner("m", Options { limits: Limits { runs: 1, roots: 2 }, ..options() });
    stage.play(&mut actor);
    assert_eq!((spawned(&mut actor), stage.phase_status("p-1")), (vec!["t-1".into()], "init".into()));
    end(&mut stage, &mut actor, 0, "");
    assert_eq!((spawned(&mut actor), stage.phase_status("p-1")), (vec!["t-2".into()], "running one".into()));
}

#[test]
fn the_lock_of_a_phase_is_held_only_while_it_runs() {
    let mut stage = Stage::new();
    let needs = || vec![Need::Lock(name("db"))];
    let phases = || vec![Phase { needs: needs(), ..phase("one") }, phase("two")];
    stage.pipeline("p-1", phases());
    stage.pipeline("p-2", phases());
    let mut actor = stage.start("m", options());
    assert_eq!(spawned(&mut actor), ["p-1.1"], "the other waits for the lock, in its phase");
    assert_eq!(stage.phase_status("p-2"), "running one");
    end(&mut stage, &mut actor, 0, "");
    let mut begun = spawned(&mut actor);
    begun.sort();
    assert_eq!(begun, ["p-1.2", "p-2.1"]);
}

#[test]
fn until_idle_stays_while_a_pipeline_may_continue() {
    let idle = || Options { until_idle: true, ..options() };
    let mut stage = Stage::with_pipeline(behind("l"));
    let epoch = stage.lock("l", "ann");
    let mut actor = stage.runner("m", idle());
    assert!(stage.play(&mut actor).is_some(), "the lock may come free");
    stage.unlock("l", "ann", epoch);
    assert!(stage.play(&mut actor).is_some());
    for _ in 0..2 {
        actor.dispatcher.on(RunnerInput::Ended(actor.run().clone(), exited(0)), stage.now());
        if stage.play(&mut actor).is_none() {
            break;
        }
    }
    assert_eq!((stage.phase_status("p-1"), stage.play(&mut actor)), ("done".into(), None));
}

#[test]
fn reports_of_a_phase_are_fenced_when_its_run_is_over() {
    let mut stage = Stage::with_pipeline(two());
    let mut actor = stage.start("m", options());
    let by = |stage: &mut Stage, id: &str| {
        let live = stage.rows().tasks[&task(id)].live().cloned().expect("it runs");
        Some((task(id), live.epoch))
    };
    let say = |by| PipelineRequest::Checkpoint { id: task("p-1"), message: "half".into(), by };
    let first = by(&mut stage, "p-1.1");
    assert!(matches!(stage.request(say(first.clone())), PipelineOutcome::Stepped(Outcome::Noted, _)));
    end(&mut stage, &mut actor, 0, "");
    assert_eq!(stage.request(say(first.clone())), PipelineOutcome::Fenced);
    let vars = || serde_json::from_value(json!({ "a": 1 })).unwrap();
    assert_eq!(stage.request(PipelineRequest::Set { id: task("p-1"), vars: vars(), by: first }), PipelineOutcome::Fenced);
    let second = by(&mut stage, "p-1.2");
    assert!(matches!(stage.request(say(second)), PipelineOutcome::Stepped(Outcome::Noted, _)));
    assert_eq!(stage.at("p-1").checkpoints.len(), 2);
}

#[test]
fn a_command_that_cannot_be_rendered_fails_the_phase() {
    let mut stage = Stage::new();
    let argv = Action::Do(RunCommand::Argv(vec!["echo".into(), "{{ missing }}".into()]));
    stage.pipeline("p-1", vec![phase("one"), Phase { action: argv, ..phase("two") }]);
    let mut actor = stage.start("m", options());
    end(&mut stage, &mut actor, 0, "");
    assert_eq!((stage.phase_status("p-1").as_str(), stage.rows().tasks.len()), ("failed two", 2), "no task was made for it");
    let vars = serde_json::from_value(json!({ "missing": "$(x) 'y'" })).unwrap();
    stage.request(PipelineRequest::Set { id: task("p-1"), vars, by: None });
    stage.request(PipelineRequest::Retry { id: task("p-1") });
    let work = stage.rows().tasks[&task("p-1.3")].spec.work.clone();
    assert_eq!(work, Some(Work::Exec { argv: vec!["echo".into(), "$(x) 'y'".into()], input: None }));
}

#[test]
fn an_orphaned_run_is_recovered_in_its_phase() {
    let mut stage = Stage::with_pipeline(two());
    let first = stage.start("m", options());
    let run = first.run();
    stage.kill(first);
    let mut second = stage.start("n", options());
    assert!(second.did().contains(&"recover p-1.1".to_owned()));
    second.notify(&mut stage, RunnerInput::Ended(run.clone(), exited(0)));
    assert_eq!((spawned(&mut second), stage.phase_status("p-1")), (vec!["p-1.2".into()], "running two".into()));
    assert_eq!(stage.count_events("task:started"), 2, "nothing was run twice");
    // As if the reply to the report was lost: the report is repeated.
    let work = stage.rows().tasks[&task("p-1.1")].clone();
    assert!(work.live().is_none());
    let retire = RunRequest::Retire { runner: second.dispatcher.id().clone(), seen: Seen::default() };
    stage.ask(Request::Run(retire));
    assert_eq!(stage.phase_status("p-1"), "running two");
}

#[test]
fn too_deeply_nested_output_is_never_stored() {
    let deep = format!("{{\"title\": {}{}}}", "[".repeat(120), "]".repeat(120));
    let mut stage = Stage::with_pipeline(vec![Phase { output: vec!["title".into()], ..phase("one") }, phase("two")]);
    let mut actor = stage.start("m", options());
    end(&mut stage, &mut actor, 0, &deep);
    assert_eq!((stage.phase_status("p-1").as_str(), stage.at("p-1").context.len()), ("running two", 0));
}
