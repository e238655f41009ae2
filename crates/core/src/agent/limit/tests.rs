use super::*;
use crate::ids::Seq;
use crate::step::Effect;
use crate::test_world::name;

fn run(number: u32) -> RunId {
    RunId::new(&format!("r-{number}")).unwrap()
}

fn scope(model: Option<&str>) -> Scope {
    Scope { account: Some(name("claude")), kind: "five_hour".into(), model: model.map(Into::into), unnamed: false }
}

fn now(ms: i64) -> Now {
    Now { seq: Seq(1), lease: Lease(ms), wall: Wall(1_000_000 + ms), ..Now::default() }
}

fn at(state: State) -> AccountLimit {
    AccountLimit { state, unknown: 1, since: Wall(1_000_000), ..AccountLimit::new(scope(None), &now(0)) }
}

fn waiting(until: i64, is_given: bool) -> State {
    State::Waiting { until: Lease(until), resets: Wall(1_000_000 + until), is_given }
}

fn reach(by: u32, resets: Option<i64>) -> Input {
    let resets = resets.map(|ms| Wall(1_000_000 + ms));
    Input::Reach { run: Some(run(by)), agent: Some(name("claude")), resets, text: "said".into(), unnamed: false }
}

/// Steps, and checks that the row follows from the events alone.
fn step(limit: AccountLimit, input: Input, now: &Now) -> Step<AccountLimit, Outcome> {
    let before = Some(limit.clone().timeless()).filter(|limit| limit.state != State::Open);
    let stepped = limit.step(input, now);
    stepped.state.check();
    let replayed = stepped.effects.iter().fold(before, |row, effect| match effect {
        Effect::Emit(Event::AccountLimit { name, fact }) => apply(name, row, fact.clone(), now.wall),
        other => panic!("{other:?}"),
    });
    assert_eq!(replayed, Some(stepped.state.clone().timeless()).filter(|limit| limit.state != State::Open));
    stepped
}

#[test]
fn every_input_in_every_state_has_one_outcome() {
    const MINUTE: i64 = 60_000;
    let now = now(100);
    let probing = || State::Probing { run: run(1) };
    let (start, answer, end) =
        (|by| Input::Start { run: run(by) }, |by| Input::Answer { run: run(by) }, |by| Input::End { run: run(by) });
    let second = waiting(100 + 15 * MINUTE, false);
    let table = [
        // Before its end.
        (waiting(500, true), reach(2, Some(900)), Outcome::Waiting, waiting(900, true)),
        (waiting(500, true), reach(2, Some(400)), Outcome::Known, waiting(500, true)),
        (waiting(500, true), reach(2, None), Outcome::Known, waiting(500, true)),
        (waiting(500, false), reach(2, Some(400)), Outcome::Waiting, waiting(400, true)),
        (waiting(500, false), reach(2, None), Outcome::Known, waiting(500, false)),
        (waiting(500, true), start(2), Outcome::Refused, waiting(500, true)),
        (waiting(500, true), answer(2), Outcome::Late, waiting(500, true)),
        (waiting(500, true), end(2), Outcome::Late, waiting(500, true)),
        (waiting(500, true), Input::Retry, Outcome::Due, waiting(100, true)),
        // Its end has come.
        (waiting(100, true), reach(2, Some(900)), Outcome::Waiting, waiting(900, true)),
        (waiting(100, true), reach(2, Some(50)), Outcome::Waiting, second.clone()),
        (waiting(100, true), reach(2, None), Outcome::Waiting, second.clone()),
        (waiting(100, true), start(1), Outcome::Probing, probing()),
        (waiting(100, true), answer(2), Outcome::Late, waiting(100, true)),
        (waiting(100, true), end(2), Outcome::Late, waiting(100, true)),
        (waiting(100, true), Input::Retry, Outcome::Due, waiting(100, true)),
        // One run probes.
        (probing(), reach(1, Some(900)), Outcome::Waiting, waiting(900, true)),
        (probing(), reach(1, None), Outcome::Waiting, second.clone()),
        (probing(), reach(2, Some(900)), Outcome::Known, probing()),
        (probing(), start(1), Outcome::Probing, probing()),
        (probing(), start(2), Outcome::Refused, probing()),
        (probing(), answer(1), Outcome::Open, State::Open),
        (probing(), answer(2), Outcome::Late, probing()),
        (probing(), end(1), Outcome::Due, waiting(100, true)),
        (probing(), end(2), Outcome::Late, probing()),
        (probing(), Input::Retry, Outcome::Probing, probing()),
        // It is over.
        (State::Open, reach(2, Some(900)), Outcome::Waiting, waiting(900, true)),
        (State::Open, reach(2, None), Outcome::Waiting, second),
        (State::Open, start(2), Outcome::Open, State::Open),
        (State::Open, answer(2), Outcome::Late, State::Open),
        (State::Open, end(2), Outcome::Late, State::Open),
        (State::Open, Input::Retry, Outcome::Open, State::Open),
    ];
    for (before, input, outcome, after) in table {
        let words = format!("{before:?} {input:?}");
        let stepped = step(at(before), input, &now);
        assert_eq!((stepped.outcome, stepped.state.state), (outcome, after), "{words}");
    }
}

#[test]
fn waits_without_a_known_end_grow_until_an_answer() {
    let mut limit = AccountLimit::new(scope(None), &now(0));
    let mut waits = Vec::new();
    let mut ms = 0;
    for _ in 0..4 {
        limit = step(limit, reach(1, None), &now(ms)).state;
        let until = limit.next_deadline().unwrap();
        waits.push((until.0 - ms) / 60_000);
        ms = until.0;
        limit = step(limit, Input::Start { run: run(1) }, &now(ms)).state;
    }
    assert_eq!(waits, [5, 15, 60, 60]);
    limit = step(limit, Input::Answer { run: run(1) }, &now(ms)).state;
    let again = step(limit, reach(1, None), &now(ms)).state;
    assert_eq!(again.next_deadline(), Some(Lease(ms + 5 * 60_000)));
}

#[test]
fn a_distant_end_is_capped() {
    let limit = step(AccountLimit::new(scope(None), &now(0)), reach(1, Some(i64::from(u32::MAX) * 1_000)), &now(0)).state;
    assert_eq!(limit.next_deadline(), Some(Lease(LONGEST.as_ms())));
}

#[test]
fn a_budget_ends_without_a_probe() {
    let budget = Scope { account: None, kind: BUDGET.into(), model: None, unnamed: false };
    let limit = step(AccountLimit::new(budget, &now(0)), reach(1, Some(500)), &now(0)).state;
    assert_eq!((limit.admits(&now(499)), limit.admits_all(&now(500))), (false, true));
    assert_eq!(step(limit, Input::Start { run: run(2) }, &now(500)).outcome, Outcome::Open);
}

#[test]
fn a_limit_covers_its_account_and_model() {
    let choice = |account: &str, model: Option<&str>| AgentChoice {
        agent: name("a"),
        account: name(account),
        model: model.map(Into::into),
    };
    let all = scope(None);
    assert!(all.covers(&choice("claude", None)) && all.covers(&choice("claude", Some("opus"))));
    assert!(!all.covers(&choice("codex", None)));
    let opus = scope(Some("opus"));
    assert!(opus.covers(&choice("claude", Some("claude-opus-4-5"))) && opus.covers(&choice("claude", Some("opus"))));
    assert!(!opus.covers(&choice("claude", Some("sonnet"))) && !opus.covers(&choice("claude", None)));
    assert!(Scope { unnamed: true, ..opus.clone() }.covers(&choice("claude", None)));
    // A later run without a model widens a known limit of a model to all such runs.
    let wider = Input::Reach { run: None, agent: None, resets: None, text: "".into(), unnamed: true };
    let known = AccountLimit { state: waiting(500, true), ..AccountLimit::new(opus, &now(0)) };
    let stepped = step(known, wider, &now(100));
    assert_eq!((stepped.outcome, stepped.state.scope.unnamed), (Outcome::Known, true));
}

#[test]
fn on_quota_next_chooses_the_next_free_agent() {
    let choice = |text: &str| AgentChoice { agent: name(text), account: name(text), model: None };
    let work = |on_quota| AgentWork { agents: vec![choice("claude"), choice("codex")], on_quota, ..AgentWork::default() };
    let limit = |account: &str, until| AccountLimit {
        state: waiting(until, true),
        ..AccountLimit::new(Scope { account: Some(name(account)), ..scope(None) }, &now(0))
    };
    let chosen = |on_quota, limits: &[AccountLimit], ms| {
        let work = work(on_quota);
        match choose(&work, limits.iter(), &now(ms)) {
            Ok(choice) => choice.agent.to_string(),
            Err(limits) => format!("waits for {}", limits[0].1.name),
        }
    };
    let both = [limit("claude", 500), limit("codex", 300)];
    assert_eq!(chosen(OnQuota::Next, &[], 0), "claude");
    assert_eq!(chosen(OnQuota::Wait, &both[..1], 0), "waits for account:claude:five_hour");
    assert_eq!(chosen(OnQuota::Next, &both[..1], 0), "codex");
    assert_eq!(chosen(OnQuota::Next, &both, 0), "waits for account:codex:five_hour");
    assert_eq!(chosen(OnQuota::Next, &both, 300), "codex");
    assert_eq!(chosen(OnQuota::Next, &both, 500), "claude");
}

#[test]
fn the_stored_form_is_frozen() {
    let limit = at(waiting(500, true));
    let text = r#"{"name":"account:claude:five_hour","account":"claude","kind":"five_hour","since":1000000,"unknown":1,"state":{"waiting":{"until":500,"resets":1000500,"isGiven":true}}}"#;
    assert_eq!(serde_json::to_string(&limit).unwrap(), text);
    assert_eq!(serde_json::from_str::<AccountLimit>(text).unwrap(), limit);
    assert_eq!(serde_json::to_string(&State::Probing { run: run(1) }).unwrap(), r#"{"probing":{"run":"r-1"}}"#);
}
