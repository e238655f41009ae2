//! The definitions that a runbook becomes.

use std::fs;
use std::path::Path;

use banksman_core::guard::{Cmd, Condition, FRESH_FOR, GuardAction, PipelineFilter, Predicate};
use banksman_core::pipeline::plan::{Action, After, MergeHow, OnFail, Push, RunCommand, Text};
use banksman_core::pipeline::strategy::Fallback;
use banksman_core::route::Then;
use banksman_core::task::{Need, Status};
use banksman_core::worker::Job;
use banksman_core::{Name, Span};
use banksman_runbook::{QueueTerms, Runbook, parse};
use serde_json::json;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn var(name: &str) -> Text {
    Text::Var { var: name.into() }
}

fn everything() -> Runbook {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/right");
    let text = fs::read_to_string(dir.join("everything.toml")).unwrap();
    parse("everything", &text, &|file| fs::read_to_string(dir.join(file)).map_err(|error| error.to_string())).unwrap()
}

#[test]
fn variables_have_their_defaults() {
    let runbook = everything();
    let plan = &runbook.pipelines["feature"].plan;
    assert_eq!((&*plan.runbook, plan.name.as_str()), ("everything", "feature"));
    let vars: Vec<(&str, Option<serde_json::Value>)> = plan.vars.iter().map(|(name, value)| (&**name, value.clone())).collect();
    let expected = vec![
        ("base", Some(json!("main"))),
        ("branch", None),
        ("deep", Some(json!({ "a": [1.5, true] }))),
        ("files", Some(json!(["a", "b"]))),
        ("title", None),
        ("tries", Some(json!(3))),
        ("when", Some(json!("2026-11-15"))),
    ];
    assert_eq!(vars, expected);
}

#[test]
fn phases_have_their_actions_guards_needs_and_order() {
    let runbook = everything();
    let plan = &runbook.pipelines["feature"].plan;
    let names: Vec<&str> = plan.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["build", "test", "review", "announce", "merge", "mend"]);
    let build = &plan.phases[0];
    assert!(matches!(&build.action, Action::Do(RunCommand::Agent { command, prompt, .. })
        if command.len() == 2 && prompt.starts_with("Build {{ title }}")));
    let guards = |guards: &[banksman_core::guard::Guard]| guards.iter().map(|guard| guard.name.to_string()).collect::<Vec<_>>();
    assert_eq!((guards(&build.pre), guards(&build.post)), (vec!["clean".into(), "quiet".into()], vec!["built".to_owned()]));
    let slots = |text: &str, weight| Need::Slots { name: name(text), weight };
    let needs = vec![Need::Lock(name("main")), Need::Lock(name("docs")), slots("builders", 2), slots("machines", 1)];
    assert_eq!(build.needs, needs);
    assert_eq!((build.timeout, build.retries), (Some(Span::from_secs(5_400)), 2));
    let fails: Vec<OnFail> = plan.phases.iter().map(|phase| phase.on_fail.clone()).collect();
    let mend = |times| OnFail::Phase { to: name("mend"), times };
    let retry = |times| OnFail::Retry { times };
    let expected = [retry(3), mend(3), mend(7), retry(3), retry(2), OnFail::Fail];
    assert_eq!(fails, expected);
    let then: Vec<After> = plan.phases.iter().map(|phase| phase.then.clone()).collect();
    let expected = [After::Next, After::Next, After::Next, After::Next, After::Done, After::Phase(name("test"))];
    assert_eq!(then, expected);
    assert!(
        matches!(&plan.phases[2].action, Action::Do(RunCommand::Agent { prompt, .. }) if prompt.starts_with("Review {{ branch }}"))
    );
    let push = Push { queue: name("news"), priority: -5, vars: vec!["title".into()] };
    assert_eq!(plan.phases[3].action, Action::Push(push));
    let small = &runbook.pipelines["small"].plan.phases;
    assert!(matches!(&small[0].action, Action::Do(RunCommand::Merge(merge)) if merge.how == MergeHow::FastForward));
    assert_eq!(small[1].action, Action::Push(Push { queue: name("news"), priority: 0, vars: Vec::new() }));
}

#[test]
fn approaches_have_their_fallbacks() {
    let runbook = everything();
    let Action::Strategy { name: title, approaches } = &runbook.pipelines["feature"].plan.phases[4].action else { panic!() };
    assert_eq!((title.as_str(), approaches.len()), ("land", 3));
    assert_eq!(approaches[0].fallback_on, [Fallback::Timeout, Fallback::Error("not a fast-forward".into())]);
    assert_eq!(approaches[0].timeout, Some(Span::from_secs(300)));
    assert_eq!((approaches[1].fallback_on.as_slice(), approaches[2].fallback_on.len()), ([Fallback::Any].as_slice(), 0));
}

#[test]
fn conditions_become_predicates() {
    let runbook = everything();
    let (clean, quiet, built) = (&runbook.guards["clean"], &runbook.guards["quiet"], &runbook.guards["built"]);
    assert_eq!((&clean.on_failure, clean.fresh_for), (&GuardAction::Warn, FRESH_FOR));
    assert_eq!((&quiet.on_failure, quiet.fresh_for), (&GuardAction::Retry { delay: Span::from_secs(30) }, Span::ZERO));
    assert_eq!(built.on_failure, GuardAction::Fail { message: "nothing was built".into() });
    let Condition::Not(inner) = &quiet.condition else { panic!() };
    let Condition::Any(parts) = &**inner else { panic!() };
    assert_eq!(parts[0], Condition::Predicate(Predicate::LockHeld { lock: Text::Literal("deploy".into()), by: None }));
    assert_eq!(
        parts[1],
        Condition::Predicate(Predicate::LockHeld { lock: Text::Literal("deploy".into()), by: Some(var("title")) })
    );
    assert_eq!(
        parts[4],
        Condition::Predicate(Predicate::SemaphoreAvailable { semaphore: Text::Literal("builders".into()), slots: 2 })
    );
    let (name, runbook) = (Some(Text::Literal("deploy".into())), Some(var("branch")));
    let phase = Some(Name::new("ship").unwrap());
    assert_eq!(parts[6], Condition::Predicate(Predicate::PipelineRunning { filter: PipelineFilter { name, runbook, phase } }));
    assert_eq!(parts[9], Condition::Predicate(Predicate::Command { cmd: Cmd::Run("false".into()), expect_success: false }));
    let argv = vec![Text::Literal("test".into()), Text::Literal("-n".into()), var("title")];
    assert_eq!(parts[10], Condition::Predicate(Predicate::Command { cmd: Cmd::Argv(argv), expect_success: true }));
    let Condition::All(parts) = &built.condition else { panic!() };
    let Condition::Predicate(Predicate::IssuesComplete { filter }) = &parts[2] else { panic!() };
    assert_eq!((filter.status, filter.ids.len(), &filter.from), (Some(Status::Review), 2, &None));
    let Condition::Predicate(Predicate::NoBlockedIssues { filter }) = &parts[4] else { panic!() };
    assert!(matches!(&filter.from, Some(Cmd::Argv(argv)) if argv.len() == 3));
}

#[test]
fn locks_semaphores_and_queues_have_their_terms() {
    let runbook = everything();
    assert_eq!((runbook.locks["main"].ttl, runbook.locks["docs"].ttl), (Some(Span::from_secs(60)), None));
    assert_eq!((runbook.semaphores["builders"].capacity, runbook.semaphores["builders"].ttl), (4, Some(Span::from_secs(90))));
    let (news, lost) = (&runbook.queues["news"], &runbook.queues["lost"]);
    assert_eq!((news.max_attempts, news.max_length, &news.dead_letter), (Some(2), Some(100), &Some(name("lost"))));
    assert_eq!(*lost, QueueTerms::default(), "the settings decide");
}

#[test]
fn workers_and_routes_have_their_targets() {
    let runbook = everything();
    let herald = &runbook.workers["herald"];
    assert!(matches!(&herald.job, Job::Pipeline(plan) if plan.name.as_str() == "small"));
    assert_eq!((herald.concurrency, herald.wake_on.len(), herald.queue.as_str()), (3, 2, "news"));
    assert!(matches!(&runbook.workers["plain"].job, Job::Task { run_command: RunCommand::Argv(_), timeout: Some(_) }));
    assert_eq!(runbook.routes.len(), 2);
    let then = &runbook.routes[0].then;
    assert!(matches!(&then[0], Then::Start(plan) if plan.name.as_str() == "small"));
    assert_eq!(then[1], Then::Push(Push { queue: name("news"), priority: 0, vars: Vec::new() }));
    let some = Push { queue: name("news"), priority: 9, vars: vec!["phase".into(), "movedTo".into()] };
    assert_eq!(runbook.routes[1].then, [Then::Push(some)], "the fields of events are not called like variables");
    assert_eq!(then[2..], [Then::Wake(name("herald")), Then::Wake(name("plain")), Then::Notify("a feature has landed".into())]);
}

#[test]
fn the_name_of_a_runbook_is_checked() {
    let no_files = |_: &str| Err(String::new());
    for bad in ["", "a:b", " a", "a/b"] {
        let wrong = parse(bad, "", &no_files).unwrap_err();
        assert_eq!((wrong.list[0].code.as_str(), wrong.list[0].line), ("bad-name", 1), "{bad:?}");
    }
}

#[test]
fn every_status_of_a_task_can_be_asked_for() {
    for status in Status::ALL {
        let text = format!("[guard.g]\ncondition = {{ tasks_complete = {{ status = \"{status}\" }} }}\n");
        let runbook = parse("one", &text, &|_| Err("there are no files here".into())).unwrap_or_else(|wrong| panic!("{wrong}"));
        let Condition::Predicate(Predicate::IssuesComplete { filter }) = &runbook.guards["g"].condition else { panic!() };
        assert_eq!(filter.status, Some(status));
    }
}
