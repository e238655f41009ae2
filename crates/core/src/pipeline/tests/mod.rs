//! The behaviour of pipelines. The table of every state with every input and the random histories are in files of their
//! own.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::backlog::Backlog;
use crate::guard::{Condition, Guard, GuardAction, Predicate};
use crate::ids::Seq;
use crate::pipeline::plan::{Push, RunCommand};
use crate::pipeline::strategy::{Approach, Fallback};
use crate::replay::Replay;
use crate::step::{Effect, OutboxCommand};
use crate::test_world::{name, runner, task as id};
use crate::time::Span;

mod blocked;
mod frozen;
mod histories;
mod model;
mod table;

/// The task of this number.
pub(super) fn child(number: u32) -> TaskId {
    id(&format!("p-1.{number}"))
}

pub(super) fn vars(value: Value) -> Context {
    serde_json::from_value(value).unwrap()
}

/// A phase that runs a command, without conditions.
pub(super) fn phase(text: &str) -> Phase {
    Phase::new(name(text), Action::Do(RunCommand::Run("true".into())))
}

pub(super) fn guard(text: &str) -> Guard {
    let condition = Condition::All(Vec::new());
    Guard { name: name(text), condition, on_failure: GuardAction::Block, fresh_for: Span::ZERO, timeout: Span::ZERO }
}

pub(super) fn approach(text: &str, fallback_on: Vec<Fallback>) -> Approach {
    Approach { name: name(text), run_command: RunCommand::Run("true".into()), fallback_on, timeout: None }
}

pub(super) fn strategy(approaches: Vec<Approach>) -> Action {
    Action::Strategy { name: name("s"), approaches }
}

pub(super) fn push() -> Action {
    Action::Push(Push { queue: name("q"), priority: 0, vars: Vec::new() })
}

pub(super) fn plan(phases: Vec<Phase>) -> Arc<Plan> {
    Arc::new(Plan { runbook: "book".into(), name: name("way"), vars: BTreeMap::new(), phases, land: None })
}

pub(super) fn success(output: Value) -> PhaseEnd {
    PhaseEnd::Success { output: Some(output).filter(|output| !output.is_null()) }
}

pub(super) fn failed(error: &str) -> PhaseEnd {
    PhaseEnd::Failed { error: error.into(), tail: "".into(), timed_out: false }
}

pub(super) fn passed() -> GuardsResult {
    GuardsResult::Pass { warnings: Vec::new(), recheck: None }
}

/// A pipeline with a clock: after each step the events are read back as from the log, replayed, and compared with the
/// state.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) pipeline: Pipeline,
    pub(super) now: Now,
    pub(super) log: Replay,
    /// The events, in order.
    pub(super) facts: Vec<Fact>,
    /// The tasks to be added.
    pub(super) made: BTreeSet<TaskId>,
    /// The number of notifications.
    pub(super) notices: usize,
}

impl Site {
    /// A pipeline that was added, with nothing in its way.
    pub(super) fn new(phases: Vec<Phase>) -> Site {
        let mut site = Site::blank(phases);
        assert_eq!(site.ask(Input::Start { unmet: false }), Outcome::Noted);
        site
    }

    /// A pipeline before it is added.
    pub(super) fn blank(phases: Vec<Phase>) -> Site {
        let now = Now { seq: Seq(1), lease: Lease(1_000), wall: Wall(1_000_000), ..Now::default() };
        let vars = Bound { context: vars(json!({ "title": "x" })), given: ["title".into()].into() };
        let pipeline = Pipeline::new(id("p-1"), Title::new("x").unwrap(), plan(phases), vars, &now);
        Site { pipeline, now, log: Replay::default(), facts: Vec::new(), made: BTreeSet::new(), notices: 0 }
    }

    /// A pipeline whose first phase has begun.
    pub(super) fn begun(phases: Vec<Phase>) -> Site {
        let mut site = Site::new(phases);
        site.ask(Input::Begin);
        site
    }

    pub(super) fn pass(&mut self, ms: i64) {
        (self.now.lease.0, self.now.wall.0) = (self.now.lease.0 + ms, self.now.wall.0 + ms);
    }

    pub(super) fn ask(&mut self, input: Input) -> Outcome {
        let before = self.pipeline.clone();
        let step = self.pipeline.clone().step(input.clone(), &self.now);
        self.pipeline = step.state;
        self.pipeline.check();
        let is_quiet = step.effects.is_empty();
        for effect in step.effects {
            if let Effect::Send(OutboxCommand::Notify(_)) = effect {
                self.notices += 1;
                continue;
            }
            let Effect::Emit(event) = effect else { panic!("a pipeline has no other effects than events: {effect:?}") };
            if let Event::Decision { .. } = event {
                self.now.seq.0 += 1;
                continue;
            }
            let (component, id) = event.source();
            let read = Event::parse(event.kind(), component, id, &event.data()).unwrap();
            assert_eq!(read, event, "as it is read back from the log");
            let Event::Pipeline { fact, .. } = event else { panic!("{event:?}") };
            self.facts.push(fact);
            self.log.apply(self.now.seq, self.now.wall, read);
            self.now.seq.0 += 1;
        }
        self.compare(&input);
        if let Outcome::Begin(task) = &step.outcome {
            assert!(self.made.insert(task.clone()), "{task} was there already");
            assert_eq!(self.pipeline.task(), Some(task), "the one task that it has");
        }
        if matches!(step.outcome, Outcome::Late | Outcome::Refused(_)) {
            assert_eq!((&self.pipeline, is_quiet), (&before, true), "a late or refused input changes nothing: {input:?}");
        }
        step.outcome
    }

    fn compare(&self, input: &Input) {
        // Before it is added there are no events.
        if self.facts.is_empty() {
            return;
        }
        let backlog = Backlog { pipelines: [(id("p-1"), self.pipeline.clone())].into(), ..Backlog::default() };
        let tables = Replay::default().with_backlog(&backlog);
        assert_eq!(self.log.differences(&tables), Vec::<String>::new(), "log and tables agree after {input:?}");
    }

    /// Ends its present task.
    pub(super) fn end(&mut self, end: PhaseEnd) -> Outcome {
        let task = self.pipeline.task().expect("it has a task").clone();
        self.ask(Input::Ended { task, end, runs: 1 })
    }

    pub(super) fn report_guards(&mut self, verdict: GuardsResult) -> Outcome {
        let (State::Checking { phase, when } | State::Blocked { phase, when, .. }) = self.pipeline.state.clone() else {
            panic!("no guards are checked: {:?}", self.pipeline.state)
        };
        self.ask(Input::Checked { phase, when, verdict, at: Seq(1) })
    }

    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.facts.iter().map(|fact| fact.kind().split_once(':').unwrap().1).collect()
    }

    fn where_it_is(&self) -> String {
        format!("{} {}", self.pipeline.word(), self.pipeline.phase().map_or("", Name::as_str))
    }
}

fn two() -> Vec<Phase> {
    vec![phase("one"), phase("two")]
}

#[test]
fn phases_run_in_order_and_pass_on_their_output() {
    let first = Phase { output: vec!["version".into(), "files".into()], ..phase("one") };
    let mut site = Site::new(vec![first, phase("two")]);
    assert_eq!(site.ask(Input::Begin), Outcome::Begin(child(1)));
    site.pass(10);
    assert_eq!(site.end(success(json!({ "version": 2, "title": "y" }))), Outcome::Begin(child(2)));
    assert_eq!(site.pipeline.context, vars(json!({ "one": { "version": 2 }, "title": "x" })), "only declared fields");
    assert_eq!((site.where_it_is().as_str(), site.pipeline.phase_started.lease), ("running two", Lease(1_010)));
    assert_eq!(site.end(success(Value::Null)), Outcome::Over);
    assert_eq!(site.pipeline.state, State::Done);
    assert_eq!(site.kinds(), ["created", "started", "phase", "set", "phase", "complete"]);
}

#[test]
fn only_declared_fields_of_objects_become_variables() {
    for output in [json!(7), json!([1]), json!("x"), json!({}), json!({ "title": "x" }), json!({ "a b": 1, "": 2, "phase": "x" })]
    {
        let mut site = Site::begun(two());
        site.end(success(output));
        assert_eq!(site.pipeline.context, vars(json!({ "title": "x" })));
        assert!(!site.kinds().contains(&"set"));
    }
}

#[test]
fn the_end_of_an_earlier_task_is_late() {
    let mut site = Site::begun(two());
    site.end(success(Value::Null));
    for end in [success(json!({ "a": 1 })), failed("no"), PhaseEnd::Dropped { how: "cancelled".into() }] {
        assert_eq!(site.ask(Input::Ended { task: child(1), end, runs: 1 }), Outcome::Late);
    }
    let parked = Input::AwaitingDecision { task: child(1), decision: Some(DecisionId::new("d-1").unwrap()) };
    assert_eq!(site.ask(parked), Outcome::Late);
    assert_eq!(site.ask(Input::Unclear { task: child(1), error: "no".into() }), Outcome::Late);
}

#[test]
fn a_phase_is_retried_up_to_its_limit_and_attempts_are_counted() {
    let again = Phase { on_fail: OnFail::Retry { times: 2 }, ..phase("one") };
    let mut site = Site::begun(vec![again, phase("two")]);
    for attempt in 1..=2 {
        assert_eq!(site.pipeline.attempt, attempt);
        assert_eq!(site.end(failed("no")), Outcome::Begin(child(attempt + 1)));
    }
    assert_eq!((site.pipeline.attempt, site.end(failed("still no"))), (3, Outcome::Over));
    let over = State::Failed { phase: name("one"), error: "still no".into(), recoverable: true };
    assert_eq!(site.pipeline.state, over);
    assert_eq!(site.kinds()[2..], ["phase", "phase_failed", "phase", "phase_failed", "phase", "failed"]);

    // A retry by a person resets the limit, and the attempts are counted on.
    assert_eq!((site.ask(Input::Retry), site.pipeline.attempt), (Outcome::Begin(child(4)), 4));
    assert_eq!((site.end(failed("no")), site.pipeline.attempt), (Outcome::Begin(child(5)), 5));
    assert_eq!((site.end(success(Value::Null)), site.pipeline.attempt), (Outcome::Begin(child(6)), 1));
}

#[test]
fn a_failed_phase_leads_to_another_up_to_its_limit() {
    let test = Phase { on_fail: OnFail::Phase { to: name("fix"), times: 2 }, ..phase("test") };
    let last = Phase { then: After::Done, ..phase("last") };
    let fix = Phase { then: After::Phase(name("test")), ..phase("fix") };
    let mut site = Site::begun(vec![test, last, fix]);
    for attempt in 1..=2 {
        site.end(failed("no"));
        assert_eq!((site.where_it_is().as_str(), site.pipeline.attempt), ("running fix", attempt));
        site.end(success(Value::Null));
        assert_eq!((site.where_it_is().as_str(), site.pipeline.attempt), ("running test", attempt + 1));
    }
    assert_eq!((site.end(failed("no")), site.where_it_is().as_str()), (Outcome::Over, "failed test"));
    site.ask(Input::Retry);
    site.end(success(Value::Null));
    site.end(success(Value::Null));
    assert_eq!(site.pipeline.state, State::Done, "the phases after the last one on the way are not done");
}

#[test]
fn an_attempt_after_a_failure_has_its_reason() {
    let choices = strategy(vec![approach("first", vec![Fallback::Any]), approach("second", Vec::new())]);
    let fix = Phase { action: choices, then: After::Phase(name("test")), pre: vec![guard("g")], ..phase("fix") };
    let test = Phase { on_fail: OnFail::Phase { to: name("fix"), times: 1 }, ..phase("test") };
    let mut site = Site::begun(vec![test, fix]);
    assert_eq!(site.pipeline.reason(), None);
    site.end(failed("the test failed"));
    site.report_guards(passed());
    assert_eq!((site.where_it_is().as_str(), site.pipeline.reason()), ("running fix", Some("the test failed")));
    site.end(failed("the first approach failed"));
    assert_eq!(site.pipeline.reason(), Some("the test failed"), "another approach is the same attempt");
    site.end(success(Value::Null));
    assert_eq!((site.where_it_is().as_str(), site.pipeline.reason()), ("running test", None), "the failure was mended");
    site.end(failed("it failed again"));
    assert_eq!(site.pipeline.reason(), None, "it is over");
    site.ask(Input::Retry);
    assert_eq!(site.pipeline.reason(), Some("it failed again"));
}

#[test]
fn a_strategy_falls_back_for_its_reasons_only() {
    let choices = || {
        let first = approach("first", vec![Fallback::Error("(?i)conflict".into()), Fallback::Timeout]);
        let second = approach("second", vec![Fallback::Any]);
        vec![Phase { action: strategy(vec![first, second]), ..phase("merge") }, phase("two")]
    };
    let at = |site: &Site| match &site.pipeline.state {
        State::Running { approach, .. } => Some(*approach),
        _ => None,
    };
    let failed_with = |tail: &str, timed_out| PhaseEnd::Failed { error: "exit 1".into(), tail: tail.into(), timed_out };
    for reason in [failed_with("CONFLICT in a.rs", false), failed_with("", true)] {
        let mut site = Site::begun(choices());
        assert_eq!((site.end(reason), at(&site)), (Outcome::Begin(child(2)), Some(1)));
        assert_eq!(site.pipeline.attempt, 1, "another approach is not another attempt");
        assert_eq!(site.end(failed("no")), Outcome::Over, "there is no third");
        assert_eq!(site.kinds()[2..], ["phase", "fallback", "phase", "exhausted", "failed"]);
    }
    let mut site = Site::begun(choices());
    assert_eq!(site.end(failed_with("no such branch", false)), Outcome::Over);
    assert_eq!(site.kinds()[2..], ["phase", "exhausted", "failed"]);
    assert_eq!((site.ask(Input::Retry), at(&site)), (Outcome::Begin(child(2)), Some(0)), "from the first one on");
}

#[test]
fn guards_are_checked_before_and_after_a_phase() {
    let held = Phase { pre: vec![guard("before")], post: vec![guard("after")], ..phase("one") };
    let mut site = Site::new(vec![held, phase("two")]);
    assert_eq!(site.ask(Input::Begin), Outcome::Check);
    let block = |part: &str, again| GuardsResult::Block { guard: name("before"), part: part.into(), again, asks_outside: false };
    assert_eq!(site.report_guards(block("a", Lease(9_000))), Outcome::Blocked);
    let events = site.facts.len();
    assert_eq!(site.report_guards(block("a", Lease(2_000))), Outcome::Blocked);
    assert_eq!((site.facts.len(), site.pipeline.next_deadline()), (events, Some(Lease(2_000))), "nothing has changed");
    assert_eq!(site.report_guards(block("b", Lease(9_000))), Outcome::Blocked);
    assert_eq!(site.facts.len(), events + 1, "another part blocks it");
    let warnings = vec![(name("soft"), "c".into())];
    assert_eq!(site.report_guards(GuardsResult::Pass { warnings, recheck: None }), Outcome::Begin(child(1)));
    assert_eq!(site.end(success(Value::Null)), Outcome::Check);
    assert_eq!(site.where_it_is(), "checking one", "a phase is not over before its guards pass");
    assert_eq!(site.ask(Input::Ended { task: child(1), end: failed("no"), runs: 1 }), Outcome::Late);
    assert_eq!(site.report_guards(passed()), Outcome::Begin(child(2)));
}

#[test]
fn a_guard_fails_a_phase_for_good_without_a_follow_up() {
    let fail = || GuardsResult::Fail { guard: name("g"), message: "never on a Friday".into(), part: "p".into() };
    let held = || vec![Phase { pre: vec![guard("g")], on_fail: OnFail::Retry { times: 1 }, ..phase("one") }];
    let mut site = Site::begun(held());
    assert_eq!(
        (site.report_guards(fail()), site.where_it_is().as_str(), site.pipeline.attempt),
        (Outcome::Check, "checking one", 2)
    );
    assert_eq!(site.report_guards(fail()), Outcome::Over);
    let error = "never on a Friday (guard g: p)".into();
    assert_eq!(site.pipeline.state, State::Failed { phase: name("one"), error, recoverable: false });
    assert_eq!(site.ask(Input::Retry), Outcome::Refused(Refusal::NotRecoverable));
    assert_eq!(site.ask(Input::Unblock { by: None }), Outcome::Refused(Refusal::Over));
    assert_eq!(site.ask(Input::Begin), Outcome::Late);
}

#[test]
fn one_runner_at_a_time_checks_guards() {
    let held = || vec![Phase { pre: vec![guard("g")], ..phase("one") }];
    let after =
        |site: &mut Site, by: &str, is_free, heard| site.ask(Input::BeginCheck { by: runner(by), is_free, heard: Seq(heard) });
    let check = |site: &mut Site, by: &str, is_free| after(site, by, is_free, 0);
    let mut site = Site::begun(held());
    assert_eq!(check(&mut site, "m", false), Outcome::Check);
    assert_eq!(check(&mut site, "n", false), Outcome::Late);
    assert_eq!(check(&mut site, "n", true), Outcome::Check, "the first runner is gone");
    assert_eq!(site.pipeline.checker, Some(runner("n")));
    let block = |again| GuardsResult::Block { guard: name("g"), part: "p".into(), again, asks_outside: false };
    site.report_guards(block(Lease(5_000)));
    assert_eq!(site.pipeline.checker, Some(runner("n")), "until it reports that it is done");
    assert_eq!(site.ask(Input::EndCheck { by: runner("m") }), Outcome::Late, "another runner checks");
    assert_eq!(site.ask(Input::EndCheck { by: runner("n") }), Outcome::Noted);
    assert_eq!((check(&mut site, "m", true), &site.pipeline.checker), (Outcome::Late, &None), "no check is due");
    site.pass(4_000);
    assert_eq!(check(&mut site, "m", false), Outcome::Check);
    site.report_guards(block(Lease(1_000_000)));
    site.ask(Input::EndCheck { by: runner("m") });
    site.pass(1_000);
    assert_eq!(check(&mut site, "m", true), Outcome::Late, "there was no event");
    assert_eq!(after(&mut site, "m", true, 1), Outcome::Late, "the result takes that event into account");
    assert_eq!(after(&mut site, "m", false, 2), Outcome::Check);
    assert!(site.pipeline.knows().unwrap() >= Seq(2), "an event causes one check");
    assert_eq!(check(&mut site, "n", true), Outcome::Check, "another runner checks at once if the first does not report");
    site.ask(Input::EndCheck { by: runner("n") });
    site.report_guards(block(Lease(1_000_000)));
    site.ask(Input::EndCheck { by: runner("m") });
    site.ask(Input::Set(vars(json!({ "title": "z" }))));
    assert_eq!(check(&mut site, "m", false), Outcome::Check, "other variables are other questions");
    // A check from before the pipeline continued does not count after it.
    site.ask(Input::Unblock { by: None });
    assert_eq!((site.where_it_is().as_str(), check(&mut site, "m", true)), ("running one", Outcome::Late));
}

#[test]
fn events_cause_at_most_one_check_a_second() {
    let ask = Condition::Any(vec![Condition::Predicate(Predicate::LockFree {
        lock: crate::pipeline::plan::Text::Literal("l".into()),
    })]);
    let held = Guard { condition: ask, ..guard("g") };
    let mut site = Site::begun(vec![Phase { pre: vec![held], ..phase("one") }]);
    let block = || GuardsResult::Block { guard: name("g"), part: "p".into(), again: Lease(9_000), asks_outside: false };
    let hear = |site: &mut Site| site.ask(Input::BeginCheck { by: runner("m"), is_free: false, heard: Seq(99) });
    site.report_guards(block());
    assert_eq!((site.pipeline.listens().len(), site.pipeline.rests()), (1, Some(Lease(2_000))));
    site.pass(100);
    assert_eq!((hear(&mut site), &site.pipeline.checker), (Outcome::Noted, &None), "too soon");
    assert_eq!((site.pipeline.next_deadline(), site.pipeline.listens().len()), (Some(Lease(2_000)), 0), "the result will know");
    site.pass(900);
    assert_eq!(hear(&mut site), Outcome::Check, "its time has come");
    assert_eq!(site.pipeline.listens().len(), 0, "it is being checked");
    site.report_guards(block());
    site.ask(Input::EndCheck { by: runner("m") });
    assert_eq!(site.pipeline.listens().len(), 1);
    site.pass(1_000);
    assert_eq!(hear(&mut site), Outcome::Check, "the first event after a while causes a check at once");
}

#[test]
fn a_task_that_waits_for_a_decision_blocks_its_pipeline() {
    let decision = || DecisionId::new("d-7").unwrap();
    let mut site = Site::begun(two());
    let park = |decision| Input::AwaitingDecision { task: child(1), decision };
    assert_eq!(site.ask(park(Some(decision()))), Outcome::Blocked);
    assert_eq!(site.pipeline.task(), Some(&child(1)));
    assert_eq!(site.ask(Input::Unblock { by: None }), Outcome::Refused(Refusal::Undecided(decision())));
    assert_eq!((site.ask(park(None)), site.where_it_is().as_str()), (Outcome::Noted, "running one"));
    site.ask(park(Some(decision())));
    assert_eq!(site.end(success(Value::Null)), Outcome::Begin(child(2)), "a person has completed the task");
}

#[test]
fn loops_of_phases_end_at_the_task_limit() {
    let again = Phase { then: After::Phase(name("one")), ..phase("one") };
    let mut site = Site::begun(vec![again, phase("two")]);
    for _ in 1..TASK_LIMIT {
        assert!(matches!(site.end(success(Value::Null)), Outcome::Begin(_)));
    }
    assert_eq!((site.end(success(Value::Null)), site.pipeline.tasks), (Outcome::Over, TASK_LIMIT));
    assert!(matches!(&site.pipeline.state, State::Failed { recoverable: false, .. }), "{:?}", site.pipeline.state);

    // The same for one attempt after the other.
    let again = Phase { on_fail: OnFail::Retry { times: u32::MAX }, ..phase("one") };
    let mut site = Site::begun(vec![again]);
    while !site.pipeline.is_over() {
        site.end(failed("no"));
    }
    assert_eq!(site.pipeline.tasks, TASK_LIMIT);
}

#[test]
fn variables_have_a_limit() {
    let large = |bytes: usize| json!({ "large": "x".repeat(bytes) });
    let fitting = plan::CONTEXT_LIMIT - r#"{"large":"","title":"x"}"#.len();
    let mut site = Site::begun(two());
    assert_eq!(site.ask(Input::Set(vars(large(fitting)))), Outcome::Noted);
    let refused = site.ask(Input::Set(vars(large(fitting + 1))));
    assert_eq!(refused, Outcome::Refused(Refusal::Unbound(BindError::TooLarge(plan::CONTEXT_LIMIT + 1))));
    let deep = (0..=crate::json::NESTING_LIMIT).fold(json!(1), |inner, _| json!([inner]));
    let refused = site.ask(Input::Set(vars(json!({ "a": deep }))));
    assert!(matches!(refused, Outcome::Refused(Refusal::Unbound(BindError::TooDeep(..)))), "{refused:?}");
    let refused = site.ask(Input::Set(vars(json!({ "attempt": 7 }))));
    assert_eq!(refused, Outcome::Refused(Refusal::Unbound(BindError::Taken("attempt".into()))));
    let refused = site.ask(Input::Set(vars(json!({ "1st": 7 }))));
    assert_eq!(refused, Outcome::Refused(Refusal::Unbound(BindError::BadName("1st".into()))));
    // Output beyond the limit is left out, with a checkpoint: the work is done.
    let declared = Phase { output: vec!["a".into(), "large".into()], ..phase("one") };
    let mut site = Site::begun(vec![declared.clone(), phase("two")]);
    site.ask(Input::Set(vars(large(fitting - 100))));
    let before = site.pipeline.context.clone();
    assert_eq!(site.end(success(json!({ "a": 1, "large": "x".repeat(200) }))), Outcome::Begin(child(2)));
    assert_eq!((&site.pipeline.context, site.pipeline.checkpoints.len()), (&before, 1));
    let mut site = Site::begun(vec![declared, phase("two")]);
    site.end(success(json!({ "a": 1, "large": "x".repeat(20_000) })));
    assert_eq!(site.pipeline.context["one"]["large"].as_str().map(str::len), Some(8_192));
    assert_eq!(&*site.pipeline.checkpoints[0].message, "the output large was cut from 20000 to 8192 bytes");
}

#[test]
fn the_last_checkpoints_are_kept() {
    let mut site = Site::begun(two());
    for number in 0..CHECKPOINT_LIMIT + 5 {
        assert_eq!(site.ask(Input::Checkpoint(number.to_string().into())), Outcome::Noted);
    }
    let kept = &site.pipeline.checkpoints;
    assert_eq!((kept.len(), &*kept[0].message, kept[0].phase.clone()), (CHECKPOINT_LIMIT, "5", Some(name("one"))));
}

#[test]
fn a_push_has_no_task() {
    let mut site = Site::new(vec![Phase { action: push(), ..phase("send") }, phase("two")]);
    assert_eq!(site.ask(Input::Begin), Outcome::Push);
    assert_eq!((site.pipeline.task(), site.pipeline.next_deadline()), (None, Some(Lease(0))), "the push is due at once");
    assert_eq!(site.ask(Input::Pushed { phase: name("two"), error: None }), Outcome::Late);
    assert_eq!(site.ask(Input::Pushed { phase: name("send"), error: None }), Outcome::Begin(child(2)));
    assert_eq!(site.ask(Input::Pushed { phase: name("send"), error: None }), Outcome::Late);
}
