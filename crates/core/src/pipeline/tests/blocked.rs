//! Guards that stop a pipeline: at the claim, and for too long.

use super::*;

/// One phase behind a guard, with this follow-up of a failure.
fn guarded(on_fail: OnFail) -> Site {
    let phase = Phase { pre: vec![guard("g")], blocked_timeout: Some(Span::from_secs(60)), on_fail, ..phase("one") };
    Site::begun(vec![phase])
}

fn block(asks_outside: bool) -> GuardsResult {
    GuardsResult::Block { guard: name("g"), part: "p".into(), again: Lease(i64::MAX / 2), asks_outside }
}

fn refute(site: &mut Site, verdict: GuardsResult) -> Outcome {
    let task = site.pipeline.task().unwrap().clone();
    site.ask(Input::Refuted { task, verdict, at: Seq(0) })
}

#[test]
fn a_guard_refuted_at_the_claim_holds_the_task() {
    let mut site = guarded(OnFail::Fail);
    assert_eq!(site.report_guards(passed()), Outcome::Begin(child(1)));
    assert_eq!(site.ask(Input::Refuted { task: child(9), verdict: block(false), at: Seq(0) }), Outcome::Late);
    assert_eq!(refute(&mut site, block(false)), Outcome::Blocked);
    assert_eq!((site.where_it_is().as_str(), site.pipeline.task()), ("blocked one", Some(&child(1))));
    assert_eq!(site.report_guards(block(false)), Outcome::Blocked);
    assert_eq!((site.report_guards(passed()), site.where_it_is().as_str()), (Outcome::Noted, "running one"));
    assert_eq!((site.pipeline.task(), site.pipeline.attempt, site.pipeline.tasks), (Some(&child(1)), 1, 1), "the same task");
    assert_eq!(site.kinds()[3..], ["phase", "blocked", "resumed"]);
    // A person may do the work meanwhile, or let the pipeline continue.
    refute(&mut site, block(false));
    assert_eq!(site.ask(Input::Unblock { by: Some("ann".into()) }), Outcome::Noted);
    assert_eq!((site.pipeline.recheck.clone(), site.pipeline.task()), (None, Some(&child(1))));
    refute(&mut site, block(false));
    assert_eq!(site.end(success(Value::Null)), Outcome::Over);
    // A guard that fails the phase does so at the claim as well.
    let mut site = guarded(OnFail::Fail);
    site.report_guards(passed());
    let fail = GuardsResult::Fail { guard: name("g"), message: "no".into(), part: "p".into() };
    assert_eq!((refute(&mut site, fail), site.where_it_is().as_str()), (Outcome::Over, "failed one"));
}

#[test]
fn an_overdue_guard_fails_the_phase_or_asks_a_person() {
    // The plan has a follow-up.
    let mut site = guarded(OnFail::Retry { times: 1 });
    site.report_guards(block(true));
    assert_eq!(site.pipeline.next_deadline(), Some(Lease(1_000) + Span::from_secs(60)));
    site.pass(60_000);
    assert_eq!((site.report_guards(block(true)), site.where_it_is().as_str()), (Outcome::Check, "checking one"));
    // The follow-up has reached its limit.
    site.report_guards(block(true));
    site.pass(59_999);
    assert_eq!((site.report_guards(block(true)), site.kinds().contains(&"raised")), (Outcome::Blocked, false));
    site.pass(1);
    assert_eq!(site.report_guards(block(true)), Outcome::Blocked);
    assert!(matches!(site.pipeline.state, State::Blocked { reason: Reason::Overdue { .. }, .. }), "{:?}", site.pipeline.state);
    assert_eq!((site.pipeline.next_deadline(), site.report_guards(passed())), (None, Outcome::Late), "no check is due");
    let (asked, mut other) = (site.clone(), site.clone());
    assert_eq!((site.ask(Input::Wait), site.where_it_is().as_str()), (Outcome::Blocked, "blocked one"));
    assert_eq!(site.report_guards(passed()), Outcome::Begin(child(1)));
    assert_eq!((other.ask(Input::GiveUp), other.where_it_is().as_str()), (Outcome::Over, "failed one"));
    let mut other = asked;
    assert_eq!(other.ask(Input::Unblock { by: None }), Outcome::Begin(child(1)));
}

#[test]
fn an_overdue_guard_about_the_store_notifies_once() {
    let mut site = guarded(OnFail::Retry { times: 1 });
    for _ in 0..3 {
        site.report_guards(block(false));
        site.pass(60_000);
    }
    assert_eq!((site.where_it_is().as_str(), site.notices), ("blocked one", 1));
    // A wait for the world outside has a new deadline after that.
    site.report_guards(block(true));
    site.pass(59_999);
    assert_eq!(site.report_guards(block(true)), Outcome::Blocked);
    site.pass(1);
    assert_eq!((site.report_guards(block(true)), site.where_it_is().as_str()), (Outcome::Check, "checking one"));
    // After the phase the pipeline holds the locks of the phase, so that the wait has an end.
    let mut site = Site::begun(vec![Phase { post: vec![guard("g")], ..phase("one") }]);
    site.end(success(Value::Null));
    site.report_guards(block(false));
    site.pass(BLOCKED_TIMEOUT.as_ms());
    site.report_guards(block(false));
    assert!(matches!(site.pipeline.state, State::Blocked { reason: Reason::Overdue { .. }, .. }), "{:?}", site.pipeline.state);
}

#[test]
fn every_run_of_a_phase_counts_as_an_attempt() {
    let mut site = Site::begun(vec![Phase { on_fail: OnFail::Retry { times: 9 }, ..phase("one") }]);
    site.ask(Input::Ended { task: child(1), end: failed("no"), runs: 3 });
    assert_eq!(site.pipeline.attempt, 4, "its task was tried three times");
    site.ask(Input::Ended { task: child(2), end: failed("no"), runs: 1 });
    assert_eq!(site.pipeline.attempt, 5);
}
