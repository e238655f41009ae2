use proptest::prelude::*;

use super::*;

const POLICY: Policy = Policy {
    max_attempts: NonZeroU32::new(3).unwrap(),
    delay: Span::from_secs(1),
    child_wait: Span::from_secs(300),
    on_children_timeout: OnTimeout::Warn,
};

fn ended(ending: RunEnd) -> Fact {
    Fact::Ended { marker: Marker::Absent, verdict: None, ending, setback: None }
}

fn failed(next: &RetryDecision) -> &str {
    match next {
        RetryDecision::Failed(error) => error,
        other => panic!("{other:?} is no failure"),
    }
}

#[test]
fn done_before_an_attempt_ends_the_loop() {
    for made in [0, 2, 3, 9] {
        assert_eq!(POLICY.next(made, Fact::Due(Marker::Done), Lease(0)), RetryDecision::Done { output: None });
    }
    assert_eq!(POLICY.next(2, Fact::Due(Marker::Absent), Lease(0)), RetryDecision::Attempt);
}

#[test]
fn the_limit_is_an_error_before_the_next_attempt() {
    assert!(failed(&POLICY.next(3, Fact::Due(Marker::Absent), Lease(0))).contains("after 3 attempts, and max_attempts is 3"));
}

#[test]
fn done_after_an_attempt_counts_whatever_its_exit() {
    for ending in [RunEnd::Exited(0), RunEnd::Exited(1), RunEnd::Signalled(9), RunEnd::Lost] {
        let fact = Fact::Ended { marker: Marker::Done, verdict: None, ending, setback: Some(RetryReason::Stuck) };
        assert_eq!(POLICY.next(3, fact, Lease(0)), RetryDecision::Done { output: None });
    }
}

#[test]
fn a_done_verdict_is_the_result_and_a_failed_one_is_retried() {
    let fact = |verdict| Fact::Ended { marker: Marker::Absent, verdict: Some(verdict), ending: RunEnd::Exited(1), setback: None };
    let done = Verdict::Done { output: Some(7.into()) };
    assert_eq!(POLICY.next(1, fact(done), Lease(0)), RetryDecision::Done { output: Some(7.into()) });
    let error = || Verdict::Failed { error: "no luck".into() };
    assert_eq!(POLICY.next(1, fact(error()), Lease(0)), RetryDecision::Restart(RetryReason::Failed));
    assert!(failed(&POLICY.next(3, fact(error()), Lease(0))).ends_with("the last one: no luck"));
}

#[test]
fn an_exit_without_a_verdict_is_retried_and_counts() {
    assert_eq!(POLICY.next(1, ended(RunEnd::Exited(0)), Lease(0)), RetryDecision::Restart(RetryReason::NoVerdict));
    assert!(failed(&POLICY.next(3, ended(RunEnd::Exited(0)), Lease(0))).contains("without `tasks done`"));
    assert_eq!(POLICY.next(1, ended(RunEnd::Lost), Lease(0)), RetryDecision::Restart(RetryReason::Lost));
}

#[test]
fn a_run_that_never_began_is_no_attempt() {
    assert_eq!(POLICY.next(3, ended(RunEnd::Never), Lease(0)), RetryDecision::Restart(RetryReason::Never));
}

#[test]
fn a_broken_marker_is_an_error_before_and_after_an_attempt() {
    let broken = || Marker::Broken("it is a directory".into());
    assert!(failed(&POLICY.next(0, Fact::Due(broken()), Lease(0))).contains("it is a directory"));
    let after = Fact::Ended { marker: broken(), verdict: None, ending: RunEnd::Exited(0), setback: None };
    assert!(failed(&POLICY.next(1, after, Lease(0))).contains("it is a directory"));
}

#[test]
fn the_policy_decides_when_children_take_too_long() {
    let waiting = |children| Fact::Waiting { children, until: Some(Lease(300_000)) };
    assert_eq!(POLICY.next(1, waiting(0), Lease(0)), RetryDecision::Settled { warning: None });
    assert_eq!(POLICY.next(1, waiting(2), Lease(299_999)), RetryDecision::Wait);
    let warning = Some("2 of its children had not ended after 5m".into());
    assert_eq!(POLICY.next(1, waiting(2), Lease(300_000)), RetryDecision::Settled { warning });
    let fail = Policy { on_children_timeout: OnTimeout::Fail, ..POLICY };
    failed(&fail.next(1, waiting(2), Lease(300_000)));
    let kill = Policy { on_children_timeout: OnTimeout::Kill, ..POLICY };
    assert_eq!(kill.next(1, waiting(2), Lease(300_000)), RetryDecision::KillChildren);
    assert_eq!(kill.next(1, Fact::Waiting { children: 2, until: None }, Lease(9_000_000)), RetryDecision::Wait);
}

#[test]
fn the_stored_form_is_frozen() {
    let text = r#"{"maxRestarts":3,"delay":1000,"childWait":300000,"onChildrenTimeout":"warn"}"#;
    assert_eq!(serde_json::to_string(&POLICY).unwrap(), text);
    assert_eq!(serde_json::from_str::<Policy>(text).unwrap(), POLICY);
}

proptest! {
    /// The naive loop: attempts one after the other, with a check of the marker before and after each.
    #[test]
    fn random_loops_agree_with_a_naive_loop(max in 1u32..5, ends in prop::collection::vec((0i32..3, any::<bool>()), 6)) {
        let policy = Policy { max_attempts: NonZeroU32::new(max).unwrap(), ..POLICY };
        let (mut made, mut marked, mut attempts) = (0, false, 0);
        let marker = |marked| if marked { Marker::Done } else { Marker::Absent };
        let verdict = loop {
            match policy.next(made, Fact::Due(marker(marked)), Lease(0)) {
                RetryDecision::Attempt => {}
                other => break other,
            }
            let (code, done) = ends[attempts];
            (attempts, made, marked) = (attempts + 1, made + 1, done);
            let fact = Fact::Ended { marker: marker(marked), verdict: None, ending: RunEnd::Exited(code), setback: None };
            match policy.next(made, fact, Lease(0)) {
                RetryDecision::Restart(_) => {}
                other => break other,
            }
        };
        let first = ends.iter().take(max as usize).position(|(_, done)| *done);
        match first {
            Some(at) => prop_assert_eq!((attempts, verdict), (at + 1, RetryDecision::Done { output: None })),
            None => {
                prop_assert_eq!(attempts, max as usize);
                prop_assert!(matches!(verdict, RetryDecision::Failed(_)));
            }
        }
    }
}
