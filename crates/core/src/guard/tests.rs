//! Every condition with every sort of result: its truth, and its explanation.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::test_world::name;

fn text(text: &str) -> Text {
    Text::Literal(text.into())
}

fn var(name: &str) -> Text {
    Text::Var { var: name.into() }
}

fn issue(id: &str, status: Status) -> Issue {
    Issue { id: id.into(), status }
}

fn labelled(label: &str) -> IssueFilter {
    IssueFilter { label: Some(text(label)), ..IssueFilter::default() }
}

fn run(line: &str) -> Cmd {
    Cmd::Run(line.into())
}

fn not(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

fn guard(condition: Condition) -> Guard {
    Guard { name: name("ready"), condition, on_failure: GuardAction::Block, fresh_for: FRESH_FOR, timeout: COMMAND_TIMEOUT }
}

fn holder(name: &str) -> Option<HolderId> {
    Some(HolderId::new(name).unwrap())
}

/// A world in which a bit of everything is known, except whatever is called "dark".
fn inputs() -> GuardInputs {
    let mut inputs = GuardInputs::default();
    inputs.vars.insert("branch".into(), json!("topic"));
    inputs.vars.insert("number".into(), json!(7));
    inputs.locks.insert("deploy".into(), holder("run:r-1"));
    inputs.locks.insert("idle".into(), None);
    inputs.semaphores.insert("builds".into(), 2);
    let mixed = vec![issue("t-1", Status::Completed), issue("t-2", Status::InProgress), issue("t-3", Status::Blocked)];
    inputs.issues.insert(labelled("mixed"), mixed);
    inputs.issues.insert(labelled("good"), vec![issue("t-1", Status::Completed), issue("t-4", Status::Completed)]);
    inputs.issues.insert(labelled("none"), vec![]);
    inputs.branches.insert("topic".into(), BranchInfo { exists: true, clean: Some(true) });
    inputs.branches.insert("messy".into(), BranchInfo { exists: true, clean: Some(false) });
    inputs.branches.insert("hidden".into(), BranchInfo { exists: true, clean: None });
    inputs.branches.insert("gone".into(), BranchInfo { exists: false, clean: Some(true) });
    inputs.merged.insert(("topic".into(), "main".into()), true);
    inputs.merged.insert(("messy".into(), "main".into()), false);
    let matches = BTreeMap::from([("^ok$".into(), true), ("bad".into(), false)]);
    inputs.files.insert("here".into(), FileInfo { exists: true, matches });
    inputs.files.insert("absent".into(), FileInfo::default());
    inputs.pipelines.insert("p-1".into(), PipelineInfo { phase: Some(name("test")), is_complete: false });
    inputs.pipelines.insert("p-2".into(), PipelineInfo { phase: None, is_complete: true });
    inputs.command_results.insert(run("true"), CommandResult::Success);
    inputs.command_results.insert(run("false"), CommandResult::Failure);
    inputs.command_results.insert(run("make test"), CommandResult::Unknown);
    inputs.command_results.insert(Cmd::Argv(vec![text("check"), text("topic")]), CommandResult::Success);
    inputs.unknown.insert(Topic::Lock("walled".into()), "cannot be looked at".into());
    inputs.unknown.insert(Topic::Command(run("make test")), "took too long".into());
    inputs
}

fn lock_free(lock: &str) -> Condition {
    Condition::Predicate(Predicate::LockFree { lock: text(lock) })
}

fn held(lock: &str, by: Option<Text>) -> Condition {
    Condition::Predicate(Predicate::LockHeld { lock: text(lock), by })
}

fn slots(semaphore: &str, slots: u32) -> Condition {
    Condition::Predicate(Predicate::SemaphoreAvailable { semaphore: text(semaphore), slots })
}

fn complete(label: &str) -> Condition {
    Condition::Predicate(Predicate::IssuesComplete { filter: labelled(label) })
}

fn unblocked(label: &str) -> Condition {
    Condition::Predicate(Predicate::NoBlockedIssues { filter: labelled(label) })
}

fn exists(branch: &str) -> Condition {
    Condition::Predicate(Predicate::BranchExists { branch: text(branch) })
}

fn clean(branch: &str) -> Condition {
    Condition::Predicate(Predicate::BranchClean { branch: text(branch) })
}

fn merged(branch: Text, into: &str) -> Condition {
    Condition::Predicate(Predicate::BranchMerged { branch, into: text(into) })
}

fn file(path: &str) -> Condition {
    Condition::Predicate(Predicate::FileExists { path: text(path) })
}

fn contains(path: &str, pattern: &str) -> Condition {
    Condition::Predicate(Predicate::FileContains { path: text(path), pattern: pattern.into() })
}

fn phase(pipeline: &str, phase: &str) -> Condition {
    Condition::Predicate(Predicate::PipelineInPhase { pipeline: text(pipeline), phase: name(phase) })
}

fn done(pipeline: &str) -> Condition {
    Condition::Predicate(Predicate::PipelineComplete { pipeline: text(pipeline) })
}

fn command(line: &str, expect_success: bool) -> Condition {
    Condition::Predicate(Predicate::Command { cmd: run(line), expect_success })
}

#[test]
fn every_condition_with_every_sort_of_result() {
    use Truth::{False, True, Unknown};
    let inputs = inputs();
    let argv = |args: Vec<Text>| Condition::Predicate(Predicate::Command { cmd: Cmd::Argv(args), expect_success: true });
    let table = [
        (lock_free("idle"), True, "lock idle is free"),
        (lock_free("dark"), True, "lock dark is free"),
        (lock_free("deploy"), False, "lock deploy is held by run:r-1"),
        (lock_free("walled"), Unknown, "not known: lock walled cannot be looked at"),
        (
            Condition::Predicate(Predicate::LockFree { lock: var("nobody") }),
            Unknown,
            "not known: the variable nobody has no value",
        ),
        (held("deploy", None), True, "lock deploy is held by run:r-1"),
        (held("deploy", Some(text("run:r-1"))), True, "lock deploy is held by run:r-1"),
        (held("deploy", Some(text("run:r-2"))), False, "lock deploy is held by run:r-1"),
        (held("deploy", Some(var("nobody"))), Unknown, "not known: the variable nobody has no value"),
        (held("idle", None), False, "lock idle is free"),
        (held("dark", None), Unknown, "not known: lock dark"),
        (slots("builds", 2), True, "semaphore builds has 2 free slots (2 are asked for)"),
        (slots("builds", 3), False, "semaphore builds has 2 free slots (3 are asked for)"),
        (slots("builds", 1), True, "semaphore builds has 2 free slots (1 is asked for)"),
        (slots("dark", 0), Unknown, "not known: semaphore dark"),
        (complete("good"), True, "all 2 tasks are completed"),
        (complete("none"), True, "there are no such tasks"),
        (complete("mixed"), False, "task t-2 is in_progress (2 of 3 not completed)"),
        (complete("dark"), Unknown, "not known: tasks with label dark"),
        (unblocked("good"), True, "none of 2 tasks is blocked"),
        (unblocked("mixed"), False, "task t-3 is blocked (1 of 3 are blocked)"),
        (unblocked("dark"), Unknown, "not known: tasks with label dark"),
        (exists("topic"), True, "branch topic is there"),
        (exists("gone"), False, "branch gone is not there"),
        (exists("dark"), Unknown, "not known: branch dark"),
        (clean("topic"), True, "branch topic is clean"),
        (clean("messy"), False, "branch messy has changes in its checkout"),
        (clean("hidden"), Unknown, "not known: branch hidden"),
        (clean("gone"), Unknown, "not known: branch gone"),
        (clean("dark"), Unknown, "not known: branch dark"),
        (merged(var("branch"), "main"), True, "branch topic is merged into main"),
        (merged(text("messy"), "main"), False, "branch messy is not merged into main"),
        (merged(text("dark"), "main"), Unknown, "not known: whether branch dark is merged into main"),
        (file("here"), True, "file here is there"),
        (file("absent"), False, "file absent is not there"),
        (file("dark"), Unknown, "not known: file dark"),
        (contains("here", "^ok$"), True, "file here has a line that /^ok$/ matches"),
        (contains("here", "bad"), False, "file here has no line that /bad/ matches"),
        (contains("here", "dark"), Unknown, "not known: file here"),
        (contains("absent", "^ok$"), False, "file absent is not there"),
        (contains("dark", "^ok$"), Unknown, "not known: file dark"),
        (phase("p-1", "test"), True, "pipeline p-1 is in phase test"),
        (phase("p-1", "merge"), False, "pipeline p-1 is in phase test"),
        (phase("p-2", "merge"), False, "pipeline p-2 is in no phase"),
        (phase("dark", "merge"), Unknown, "not known: pipeline dark"),
        (done("p-2"), True, "pipeline p-2 is done"),
        (done("p-1"), False, "pipeline p-1 is not done"),
        (done("dark"), Unknown, "not known: pipeline dark"),
        (command("true", true), True, "command `true` succeeded"),
        (command("true", false), False, "command `true` succeeded"),
        (command("false", true), False, "command `false` failed"),
        (command("false", false), True, "command `false` failed"),
        (command("make test", true), Unknown, "not known: command `make test` took too long"),
        (command("make test", false), Unknown, "not known: command `make test` took too long"),
        (command("dark", true), Unknown, "not known: command `dark`"),
        (argv(vec![text("check"), var("branch")]), True, "command `check topic` succeeded"),
        (argv(vec![text("check"), var("nobody")]), Unknown, "not known: the variable nobody has no value"),
        (Condition::All(vec![]), True, "an empty `all` holds"),
        (Condition::Any(vec![]), False, "an empty `any` does not hold"),
    ];
    for (condition, truth, words) in table {
        assert_eq!(condition.truth(&inputs), truth, "{condition:?}");
        assert_eq!(not(condition.clone()).truth(&inputs), !truth, "not {condition:?}");
        assert_eq!(&*condition.part(&inputs), words, "{condition:?}");
        assert_eq!(not(condition).part(&inputs), words.into(), "the fact is the same for the negation");
    }
}

#[test]
fn an_empty_variable_is_unknown() {
    let mut inputs = inputs();
    inputs.vars.insert("none".into(), "".into());
    let none = || var("none");
    let all = [
        Condition::Predicate(Predicate::LockFree { lock: none() }),
        held("deploy", Some(none())),
        Condition::Predicate(Predicate::SemaphoreAvailable { semaphore: none(), slots: 1 }),
        Condition::Predicate(Predicate::IssuesComplete { filter: IssueFilter { label: Some(none()), ..IssueFilter::default() } }),
        Condition::Predicate(Predicate::BranchExists { branch: none() }),
        merged(none(), "main"),
        Condition::Predicate(Predicate::FileExists { path: none() }),
        Condition::Predicate(Predicate::PipelineComplete { pipeline: none() }),
    ];
    // Even if there are inputs for the empty name.
    inputs.files.insert("".into(), FileInfo { exists: true, ..FileInfo::default() });
    inputs.locks.insert("".into(), None);
    for condition in all {
        assert_eq!(condition.truth(&inputs), Truth::Unknown, "{condition:?}");
        assert_eq!(&*condition.part(&inputs), "not known: the variable none has no value");
    }
    assert_eq!(file("").truth(&inputs), Truth::Unknown);
    assert_eq!(Cmd::Argv(vec![text("test"), none()]).with(&inputs.vars), Some(Cmd::Argv(vec![text("test"), text("")])));
}

#[test]
fn only_a_true_condition_passes() {
    let inputs = inputs();
    assert_eq!(guard(exists("topic")).evaluate(&inputs), GuardResult::Passed);
    for condition in [exists("gone"), exists("dark"), not(exists("dark"))] {
        let result = guard(condition).evaluate(&inputs);
        assert!(
            matches!(&result, GuardResult::Failed { guard, action: GuardAction::Block, .. } if guard.as_str() == "ready"),
            "{result:?}"
        );
    }
}

#[test]
fn an_unknown_condition_never_fails_for_good() {
    let inputs = inputs();
    let fail = GuardAction::Fail { message: "no".into() };
    let action =
        |condition: Condition, on_failure: &GuardAction| match (Guard { on_failure: on_failure.clone(), ..guard(condition) })
            .evaluate(&inputs)
        {
            GuardResult::Passed => None,
            GuardResult::Failed { action, part, .. } => Some((action, part.starts_with("not known"))),
        };
    assert_eq!(action(exists("gone"), &fail), Some((fail.clone(), false)));
    for unknown in [
        exists("dark"),
        not(exists("dark")),
        command("make test", true),
        Condition::Predicate(Predicate::LockFree { lock: var("nobody") }),
    ] {
        assert_eq!(action(unknown, &fail), Some((GuardAction::Block, true)));
    }
    // One part that is known to be false is enough.
    assert_eq!(action(Condition::All(vec![exists("dark"), exists("gone")]), &fail), Some((fail.clone(), false)));
    for other in [GuardAction::Block, GuardAction::Warn, GuardAction::Retry { delay: Span::from_secs(5) }] {
        assert_eq!(action(exists("dark"), &other), Some((other, true)));
    }
}

#[test]
fn the_explanation_is_the_smallest_part() {
    let inputs = inputs();
    let part = |condition: Condition| condition.part(&inputs);
    // Of an `all`: the first part that is false, before one that is unknown.
    let all = Condition::All(vec![exists("topic"), exists("dark"), lock_free("deploy"), exists("gone")]);
    assert_eq!(&*part(all), "lock deploy is held by run:r-1");
    assert_eq!(&*part(Condition::All(vec![exists("topic"), exists("dark")])), "not known: branch dark");
    // Of an `any`: an unknown part, which alone could change the result; else all parts.
    assert_eq!(&*part(Condition::Any(vec![exists("gone"), exists("dark")])), "not known: branch dark");
    let none = Condition::Any(vec![exists("gone"), lock_free("deploy")]);
    assert_eq!(&*part(none), "branch gone is not there, and lock deploy is held by run:r-1");
    // Under a "not" the two change places.
    assert_eq!(&*part(not(Condition::Any(vec![exists("gone"), file("here")]))), "file here is there");
    assert_eq!(&*part(not(Condition::All(vec![file("here"), exists("topic")]))), "file here is there, and branch topic is there");
    assert_eq!(&*part(not(not(Condition::All(vec![file("here"), exists("gone")])))), "branch gone is not there");
}

#[test]
fn an_explanation_is_one_line_of_limited_length() {
    let many = Condition::Any((0..100).map(|n| file(&format!("{n}"))).collect());
    let mut inputs = GuardInputs::default();
    inputs.files.extend((0..100).map(|n| (n.to_string().into(), FileInfo::default())));
    assert!(many.part(&inputs).ends_with(", and file 4 is not there, and 95 more"), "{}", many.part(&inputs));
    let long = command(&format!("first\n{}", "é".repeat(5_000)), true).part(&inputs);
    assert!(long.starts_with("not known: command `first é") && long.ends_with("…`"), "{long}");
    assert!(file(&"é".repeat(5_000)).part(&inputs).chars().count() <= 1_001);
}

#[test]
fn wants_have_their_variables_substituted() {
    let inputs = inputs();
    let guard = guard(Condition::All(vec![
        lock_free("a"),
        held("b", Some(var("nobody"))),
        Condition::Predicate(Predicate::LockFree { lock: var("nobody") }),
        not(Condition::Any(vec![slots("s", 1), merged(var("branch"), "main"), merged(var("nobody"), "main")])),
        clean("x"),
        contains("f", "1"),
        contains("f", "2"),
        file("f"),
        file("g"),
        done("p-1"),
        Condition::Predicate(Predicate::PipelineInPhase { pipeline: var("number"), phase: name("x") }),
        Condition::Predicate(Predicate::Command { cmd: Cmd::Argv(vec![var("branch")]), expect_success: true }),
        Condition::Predicate(Predicate::Command { cmd: Cmd::Argv(vec![var("nobody")]), expect_success: true }),
        complete("l"),
        Condition::Predicate(Predicate::IssuesComplete {
            filter: IssueFilter { ids: vec![var("nobody")], ..IssueFilter::default() },
        }),
    ]));
    assert_eq!(guard.vars(), BTreeSet::from(["branch", "nobody", "number"]));
    let wants = guard.wants(&inputs.vars);
    let set = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect();
    let expected = Wants {
        locks: set(&["a", "b"]),
        semaphores: set(&["s"]),
        issues: [labelled("l")].into(),
        blocked: [].into(),
        branches: set(&["x"]),
        merged: [("topic".into(), "main".into())].into(),
        files: [("f".into(), set(&["1", "2"])), ("g".into(), set(&[]))].into(),
        pipelines: set(&["7", "p-1"]),
        running: [].into(),
        commands: [Cmd::Argv(vec![text("topic")])].into(),
    };
    assert_eq!(wants, expected);
}

#[test]
fn wants_know_whether_they_are_internal_or_outside() {
    let asks = |condition: Condition| {
        let wants = guard(condition).wants(&Context::new());
        (wants.is_internal(), wants.asks_outside())
    };
    for condition in [lock_free("a"), held("a", None), slots("s", 1), done("p"), phase("p", "x"), Condition::All(vec![])] {
        assert_eq!(asks(condition.clone()), (true, false), "{condition:?}");
    }
    assert_eq!(asks(complete("l")), (false, false));
    let foreign = IssueFilter { from: Some(run("tracker list")), ..IssueFilter::default() };
    assert_eq!(asks(Condition::Predicate(Predicate::NoBlockedIssues { filter: foreign })), (false, true));
    for condition in [exists("b"), clean("b"), merged(text("b"), "m"), file("f"), contains("f", "x"), command("true", true)] {
        assert_eq!(asks(Condition::Any(vec![lock_free("a"), condition.clone()])), (false, true), "{condition:?}");
    }
}

#[test]
fn sources_are_the_events_that_could_change_a_guard() {
    let sources_of = |condition: Condition| -> Vec<String> {
        let sources = guard(condition).sources(&inputs().vars);
        sources.iter().map(|source| format!("{} {}", source.component, source.id.as_deref().unwrap_or("*"))).collect()
    };
    let all = Condition::All(vec![not(lock_free("deploy")), slots("builds", 1), done("p-1"), command("true", true), file("f")]);
    assert_eq!(sources_of(all), ["lock deploy", "semaphore builds", "pipeline p-1"]);
    assert_eq!(sources_of(complete("l")), ["task *", "import *"]);
    let filter = IssueFilter { section: Some(text("backend")), ..IssueFilter::default() };
    assert_eq!(
        sources_of(Condition::Predicate(Predicate::IssuesComplete { filter: filter.clone() })),
        ["task *", "import *", "section *"]
    );
    let foreign = IssueFilter { from: Some(run("tracker")), ..filter };
    assert_eq!(sources_of(Condition::Predicate(Predicate::IssuesComplete { filter: foreign })), [""; 0]);
    assert_eq!(sources_of(Condition::Predicate(Predicate::LockFree { lock: var("branch") })), ["lock topic"]);
}

#[test]
fn a_guard_for_the_end_of_named_tasks_listens_only_to_them() {
    let sources_of = |condition: Condition| -> Vec<String> {
        let sources = guard(condition).sources(&inputs().vars);
        sources.iter().map(|source| format!("{} {}", source.component, source.id.as_deref().unwrap_or("*"))).collect()
    };
    let named = |ids: Vec<Text>| IssueFilter { ids, ..IssueFilter::default() };
    let both = || named(vec![text("t-2"), var("branch")]);
    let complete = |filter: IssueFilter| Condition::Predicate(Predicate::IssuesComplete { filter });
    let blocked = |filter: IssueFilter| Condition::Predicate(Predicate::NoBlockedIssues { filter });
    assert_eq!(sources_of(complete(both())), ["task t-2", "task topic", "import *"]);
    let more = Condition::Any(vec![complete(both()), not(complete(named(vec![text("t-1"), text("t-2")])))]);
    assert_eq!(sources_of(more), ["task t-1", "task t-2", "task topic", "import *"]);
    let of_section = IssueFilter { section: Some(text("backend")), label: Some(text("l")), ..both() };
    assert_eq!(sources_of(complete(of_section)), ["task t-2", "task topic", "import *", "section *"]);
    // Events of other tasks decide whether a task is blocked.
    let wide = [
        blocked(both()),
        Condition::All(vec![complete(both()), blocked(both())]),
        Condition::All(vec![complete(both()), self::complete("l")]),
        complete(IssueFilter { status: Some(Status::Blocked), ..both() }),
        complete(named((0..=100).map(|n| text(&format!("t-{n}"))).collect())),
    ];
    for condition in wide {
        assert_eq!(sources_of(condition.clone()), ["task *", "import *"], "{condition:?}");
    }
    assert_eq!(sources_of(complete(named(vec![var("nobody")]))), [""; 0]);
}

#[test]
fn wants_of_several_guards_are_merged() {
    let vars = Context::new();
    let mut wants = guard(Condition::All(vec![contains("f", "1"), lock_free("a")])).wants(&vars);
    wants.extend(guard(Condition::All(vec![contains("f", "2"), slots("s", 1)])).wants(&vars));
    let both = Condition::All(vec![contains("f", "1"), lock_free("a"), contains("f", "2"), slots("s", 1)]);
    assert_eq!(wants, guard(both).wants(&vars));
}

#[test]
fn the_stored_form_is_frozen() {
    let condition = Condition::All(vec![
        Condition::Predicate(Predicate::LockHeld { lock: text("deploy"), by: Some(var("who")) }),
        not(Condition::Predicate(Predicate::Command {
            cmd: Cmd::Argv(vec![text("check"), var("branch")]),
            expect_success: false,
        })),
    ]);
    let mut stored = guard(condition);
    stored.on_failure = GuardAction::Retry { delay: Span::from_secs(5) };
    let frozen = r#"{"name":"ready","condition":{"all":[{"lockHeld":{"lock":"deploy","by":{"var":"who"}}},{"not":{"command":{"cmd":{"argv":["check",{"var":"branch"}]},"expect_success":false}}}]},"onFailure":{"retry":{"delay":5000}},"freshFor":30000,"timeout":60000}"#;
    assert_eq!(serde_json::to_string(&stored).unwrap(), frozen);
    assert_eq!(serde_json::from_str::<Guard>(frozen).unwrap(), stored);
}

#[test]
fn grants_that_are_over_count_as_free() {
    use crate::Grant;
    use crate::resource::coordination::Coordination;
    use crate::resource::grant::GrantRequest;
    use crate::resource::lock;
    use crate::resource::semaphore;
    use crate::step::Now;
    use crate::time::Lease;

    let start = Now::default();
    let grant = |weight: u32, ttl: Option<i64>| {
        let claim = GrantRequest { ttl: ttl.map(Span::from_ms), weight, ..crate::test_world::ask("h").claim };
        Grant::new(claim, crate::Epoch(1), &start)
    };
    let mut rows = Coordination::default();
    for (of, ttl) in [("for-ever", None), ("a-while", Some(100))] {
        let state = lock::State::Held(Box::new(grant(1, ttl)));
        rows.locks.insert(name(of), lock::Lock { state, ..lock::Lock::new(name(of)) });
    }
    let mut slots = semaphore::Semaphore::new(name("slots"), semaphore::Config { capacity: 5, ttl: None });
    slots.holders.insert(HolderId::new("a").unwrap(), grant(1, None));
    slots.holders.insert(HolderId::new("b").unwrap(), grant(3, Some(100)));
    rows.semaphores.insert(name("slots"), slots);

    let all = Condition::All(vec![
        lock_free("for-ever"),
        lock_free("a-while"),
        lock_free("never"),
        self::slots("slots", 1),
        self::slots("nowhere", 1),
    ]);
    let wants = guard(all).wants(&Context::new());
    let inputs_at = |ms: i64| {
        let mut inputs = GuardInputs::default();
        inputs.add_held(&wants, &rows, &Now { lease: Lease(ms), ..Now::default() });
        inputs
    };
    let (early, late) = (inputs_at(99), inputs_at(100));
    assert_eq!(
        early.locks,
        BTreeMap::from([("for-ever".into(), holder("h")), ("a-while".into(), holder("h")), ("never".into(), None)])
    );
    assert_eq!(late.locks, BTreeMap::from([("for-ever".into(), holder("h")), ("a-while".into(), None), ("never".into(), None)]));
    assert_eq!((early.semaphores["slots"], late.semaphores["slots"]), (1, 4));
    let next = |wants: &Wants, ms, patience| wants.next_deadline(&rows, &Now { lease: Lease(ms), patience, ..Now::default() });
    assert_eq!(next(&wants, 99, Span::ZERO), Some(Lease(100)));
    assert_eq!(next(&wants, 100, Span::ZERO), None, "the grant is over");
    assert_eq!(next(&wants, 100, Span::from_ms(5)), Some(Lease(105)), "the grant is not over after a stall");
    assert_eq!(next(&guard(lock_free("for-ever")).wants(&Context::new()), 0, Span::ZERO), None);
    assert_eq!(&*self::slots("nowhere", 1).part(&late), "not known: semaphore nowhere is not there");
}
