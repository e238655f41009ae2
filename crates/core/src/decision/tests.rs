use super::*;
use crate::ids::RunId;

fn decision() -> Decision {
    let question = Question::of_task(&TaskId::new("t-1").unwrap(), &Title::new("Tidy").unwrap(), "nothing helps");
    let decision = Decision::new(DecisionId::from(Seq(7)), question, Wall(1));
    decision.check();
    decision
}

fn now() -> Now {
    Now { seq: Seq(9), wall: Wall(2), ..Now::default() }
}

fn resolve(option: u32) -> Input {
    Input::Resolve { option, by: "ann".into(), note: Some("why not".into()) }
}

#[test]
fn a_decision_is_answered_once() {
    let step = decision().step(resolve(2), &now());
    assert_eq!(step.outcome, Outcome::Resolved(Act::Fail));
    let answer = Answer { option: 2, by: "ann".into(), note: Some("why not".into()), at: Wall(2) };
    assert_eq!(step.state.state, State::Resolved(answer));
    assert_eq!(step.effects.len(), 1);
    for again in [resolve(1), Input::Withdraw] {
        let second = step.state.clone().step(again, &now());
        assert_eq!(second.outcome, Outcome::Over(step.state.state.clone()));
        assert_eq!((second.state, second.effects.len()), (step.state.clone(), 0));
    }
}

#[test]
fn an_unknown_option_changes_nothing() {
    for option in [0, 5, u32::MAX] {
        let step = decision().step(resolve(option), &now());
        assert_eq!((step.outcome, step.state, step.effects.len()), (Outcome::NoSuchOption { options: 4 }, decision(), 0));
    }
}

#[test]
fn a_decision_is_withdrawn_once() {
    let step = decision().step(Input::Withdraw, &now());
    assert_eq!((&step.outcome, &step.state.state), (&Outcome::Withdrawn, &State::Withdrawn { at: Wall(2) }));
    assert_eq!(step.state.clone().step(resolve(1), &now()).outcome, Outcome::Over(step.state.state));
}

#[test]
fn its_row_is_the_replay_of_its_events() {
    for input in [resolve(3), Input::Withdraw] {
        let step = decision().step(input, &now());
        let crate::step::Effect::Emit(Event::Decision { fact, .. }) = &step.effects[0] else { panic!("{:?}", step.effects) };
        let mut replayed = decision();
        replayed.apply(fact.clone(), Wall(2));
        assert_eq!(replayed, step.state);
    }
}

#[test]
fn a_failed_notification_sends_no_notification() {
    let notifies = |command: OutboxCommand| {
        let effects = ask_about(Seq(3), &command, 5, "no answer", &now()).effects;
        effects.iter().any(|effect| matches!(effect, crate::step::Effect::Send(OutboxCommand::Notify(_))))
    };
    assert!(notifies(OutboxCommand::Kill { run: RunId::new("r-1").unwrap(), now: false }));
    let notice = Notice { kind: NoticeKind::TaskFailed, subject: "x".into(), text: "y".into() };
    assert!(!notifies(OutboxCommand::Notify(Box::new(notice))));
}

#[test]
fn the_stored_form_is_frozen() {
    let text = r#"{"about":{"task":"t-1"},"text":"Now?","options":[{"text":"again","act":"retry"}],"recommended":1}"#;
    let question: Question = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&question).unwrap(), text);
    let text = r#"{"resolved":{"option":1,"by":"ann","at":5}}"#;
    let state: State = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&state).unwrap(), text);
    assert_eq!(serde_json::to_string(&State::Open).unwrap(), r#""open""#);
}

#[test]
fn an_unproven_run_has_three_ways_to_end() {
    let (run, task, title) = (RunId::new("r-1").unwrap(), TaskId::new("t-1").unwrap(), Title::new("Tidy").unwrap());
    let step = ask_about_run(&run, &task, &title, "it is in another container", &now());
    let [raised, notice] = &step.effects[..] else { panic!("{:?}", step.effects) };
    let crate::step::Effect::Emit(Event::Decision { id, fact: DecisionFact::Raised(question) }) = raised else {
        panic!("{raised:?}")
    };
    assert!(matches!(notice, crate::step::Effect::Send(OutboxCommand::Notify(_))), "people are notified");
    assert_eq!((id, &question.about), (&step.state, &About::Run { run, task }));
    let decision = Decision::new(id.clone(), (**question).clone(), Wall(1));
    decision.check();
    for (option, act) in [(1, Act::End), (2, Act::Fail), (3, Act::Cancel)] {
        assert_eq!(decision.clone().step(resolve(option), &now()).outcome, Outcome::Resolved(act));
    }
}
