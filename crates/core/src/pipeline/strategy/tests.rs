//! Every state with every result, and random histories against a list.

use proptest::prelude::{Just, Strategy as Random, any, prop, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::test_world::name;

fn approach(what: &str, fallback_on: Vec<Fallback>) -> Approach {
    Approach { name: name(what), run_command: RunCommand::Run("true".into()), fallback_on, timeout: None }
}

/// Fast-forward, then rebase, then an agent: a usual way to merge.
fn merging() -> Vec<Approach> {
    vec![
        approach("forward", vec![Fallback::Error("not a fast-forward".into())]),
        approach("rebase", vec![Fallback::Error("^conflict in ".into()), Fallback::Timeout]),
        approach("agent", vec![Fallback::Any]),
    ]
}

fn at(current: usize) -> Strategy {
    Strategy { current, ..Strategy::new(name("merge"), merging()).unwrap() }
}

fn failed(error: &str) -> Input {
    Input::Failed { error: error.into(), timed_out: false }
}

fn late(error: &str) -> Input {
    Input::Failed { error: error.into(), timed_out: true }
}

#[test]
fn every_approach_with_every_result() {
    let next = |index: usize, from: &str, to: &str, error: &str| Outcome::TryNext {
        index,
        from: name(from),
        to: name(to),
        error: error.into(),
    };
    let over = |at: &str, error: &str| Outcome::Exhausted { at: name(at), error: error.into() };
    let output = Some(Value::from(7));
    let good = || Input::Success { output: output.clone() };
    let success = || Outcome::Success { output: output.clone() };
    let table = [
        (0, good(), success(), 0),
        (0, failed("error: not a fast-forward: x"), next(1, "forward", "rebase", "error: not a fast-forward: x"), 1),
        (0, failed("no such branch"), over("forward", "no such branch"), 0),
        (0, late("took too long"), over("forward", "took too long"), 0),
        (0, late("not a fast-forward"), next(1, "forward", "rebase", "not a fast-forward"), 1),
        (1, good(), success(), 1),
        (1, failed("exit 1\nconflict in a.rs\n"), next(2, "rebase", "agent", "exit 1\nconflict in a.rs\n"), 2),
        (1, failed("a conflict in a.rs"), over("rebase", "a conflict in a.rs"), 1),
        (1, late("whatever"), next(2, "rebase", "agent", "whatever"), 2),
        (2, good(), success(), 2),
        (2, failed("gave up"), over("agent", "gave up"), 2),
        (2, late("gave up"), over("agent", "gave up"), 2),
    ];
    for (current, input, outcome, after) in table {
        let step = at(current).step(input.clone());
        step.state.check();
        assert_eq!(step.outcome, outcome, "approach {current}, {input:?}");
        assert_eq!(step.state, at(after), "approach {current}, {input:?}");
        assert!(step.effects.is_empty());
    }
}

#[test]
fn a_strategy_has_approaches() {
    assert_eq!(Strategy::new(name("empty"), vec![]), None);
    assert_eq!(at(1).approach().name, name("rebase"));
}

#[test]
fn an_invalid_pattern_matches_nothing() {
    assert!(!approach("x", vec![Fallback::Error("(".into())]).falls_back("(", false));
    assert!(!approach("x", vec![]).falls_back("anything", true));
}

#[test]
fn the_stored_form_is_frozen() {
    let mut stored = at(1);
    stored.approaches.truncate(2);
    let frozen = r#"{"name":"merge","approaches":[{"name":"forward","deed":{"run":"true"},"fallbackOn":[{"error":"not a fast-forward"}]},{"name":"rebase","deed":{"run":"true"},"fallbackOn":[{"error":"^conflict in "},"timeout"]}],"current":1}"#;
    assert_eq!(serde_json::to_string(&stored).unwrap(), frozen);
    assert_eq!(serde_json::from_str::<Strategy>(frozen).unwrap(), stored);
}

/// The fallbacks of an approach, and its end: success, or the error `a` or `b`, perhaps by a time-out.
type Line = (Vec<Fallback>, Option<(char, bool)>);

fn chain() -> impl Random<Value = Vec<Line>> {
    let fallback = prop_oneof![
        Just(Fallback::Any),
        Just(Fallback::Timeout),
        Just(Fallback::Error("a".into())),
        Just(Fallback::Error("b".into())),
    ];
    let end = prop_oneof![1 => Just(None), 4 => (prop_oneof![Just('a'), Just('b')], any::<bool>()).prop_map(Some)];
    prop::collection::vec((prop::collection::vec(fallback, 0..3), end), 1..6)
}

proptest! {
    #[test]
    fn random_strategies_agree_with_a_list(chain in chain()) {
        // The model: strike out approaches from the top as long as each has failed for a reason in its list and another
        // one is left.
        let names = |on: &Fallback, error: char, late: bool| match on {
            Fallback::Any => true,
            Fallback::Timeout => late,
            Fallback::Error(letter) => **letter == *error.to_string(),
        };
        let struck = chain.iter().take_while(|(on, end)| end.is_some_and(|(error, late)| on.iter().any(|on| names(on, error, late)))).count();
        let last = struck.min(chain.len() - 1);
        let succeeds = chain[last].1.is_none();

        let approaches = chain.iter().enumerate().map(|(n, (on, _))| approach(&n.to_string(), on.clone())).collect();
        let mut strategy = Strategy::new(name("s"), approaches).unwrap();
        let mut tried = vec![strategy.current];
        let end = loop {
            let input = match chain[strategy.current].1 {
                None => Input::Success { output: None },
                Some((error, timed_out)) => Input::Failed { error: error.to_string().into(), timed_out },
            };
            let step = strategy.step(input);
            step.state.check();
            strategy = step.state;
            match step.outcome {
                Outcome::TryNext { index, .. } => {
                    prop_assert_eq!(index, strategy.current);
                    tried.push(index);
                }
                end => break end,
            }
        };
        prop_assert_eq!(tried, (0..=last).collect::<Vec<_>>());
        prop_assert_eq!(matches!(end, Outcome::Success { .. }), succeeds);
    }
}
