use super::*;
use crate::decision::{Act, OPEN_ANSWER, Question};
use crate::event::DecisionFact;

fn ask(world: &mut World<Task>, options: &[&str]) -> Outcome {
    let epoch = Some(world.epoch());
    let options = options.iter().map(|option| (*option).into()).collect();
    world.act(Input::Conclude { epoch, verdict: Verdict::Ask { question: "which one?".into(), options } })
}

fn raised(world: &World<Task>) -> Question {
    let question = world.log.iter().rev().find_map(|(_, _, event)| match event {
        Event::Decision { fact: DecisionFact::Raised(question), .. } => Some((**question).clone()),
        _ => None,
    });
    question.expect("something was asked")
}

#[test]
fn a_question_waits_for_its_answer_whatever_the_exit() {
    for ending in [RunEnd::Exited(0), RunEnd::Exited(1), RunEnd::Lost, RunEnd::Signalled(9)] {
        let (mut world, _) = World::running();
        assert_eq!(ask(&mut world, &["this", "that"]), Outcome::Noted);
        let Outcome::AwaitingDecision(decision) = world.end_last(ending) else { panic!("{:#?}", world.log) };
        assert_eq!(world.machine.status(), Status::Blocked);
        assert_eq!((world.machine.failures, world.machine.recoveries), (0, 0), "no retry and no recovery is used");
        let question = raised(&world);
        let acts: Vec<Act> = question.options.iter().map(|option| option.act).collect();
        assert_eq!((&*question.text, acts), ("which one?", vec![Act::Answer, Act::Answer, Act::Fail, Act::Cancel]));
        assert_eq!(world.machine.state, State::AwaitingDecision { decision });
        assert_eq!(world.act(Input::Answer), Outcome::Clear);
        assert_eq!(world.machine.state, State::Pending);
        assert_eq!(world.act(Input::Answer), Outcome::NotPending(Status::Pending), "it is answered once");
    }
}

#[test]
fn a_question_without_options_is_open_and_the_last_verdict_counts() {
    let (mut world, _) = World::running();
    ask(&mut world, &[]);
    world.end_last(RunEnd::Exited(0));
    assert_eq!(&*raised(&world).options[0].text, OPEN_ANSWER);
    world.act(Input::Answer);
    world.start();
    ask(&mut world, &[]);
    let epoch = Some(world.epoch());
    world.act(Input::Conclude { epoch, verdict: Verdict::Done { output: None } });
    assert_eq!(world.end_last(RunEnd::Exited(0)), Outcome::Ended(Status::Completed));
}

#[test]
fn a_run_that_is_cancelled_or_failed_raises_no_question() {
    for (after, status) in [(After::Cancel, Status::Cancelled), (After::Fail { error: "x".into() }, Status::Failed)] {
        let (mut world, _) = World::running();
        ask(&mut world, &[]);
        world.stop(after);
        assert_eq!(world.end_last(RunEnd::Signalled(15)), Outcome::Ended(status));
    }
    let mut world = World::task();
    let verdict = Verdict::Ask { question: "?".into(), options: Vec::new() };
    assert_eq!(world.act(Input::Conclude { epoch: None, verdict }), Outcome::Late, "only a run asks");
}

#[test]
fn an_untrusted_agent_is_no_attempt_and_uses_nothing() {
    let untrusted = || Verdict::Untrusted { error: "agent a is not trusted here".into() };
    for ending in [RunEnd::Exited(1), RunEnd::Lost, RunEnd::Signalled(9)] {
        let mut world = World::task();
        world.start();
        world.end_last(RunEnd::Lost);
        let before = (world.machine.attempts, world.machine.failures, world.machine.recoveries);
        world.start();
        let epoch = Some(world.epoch());
        assert_eq!(world.act(Input::Conclude { epoch, verdict: untrusted() }), Outcome::Noted);
        let Outcome::AwaitingDecision(decision) = world.end_last(ending) else { panic!("{:#?}", world.log) };
        assert_eq!((world.machine.attempts, world.machine.failures, world.machine.recoveries), before, "no attempt is used");
        assert_eq!(world.machine.state, State::AwaitingDecision { decision });
        let question = raised(&world);
        assert!(question.is_of_trust() && !question.is_of_run(), "{question:?}");
        assert!(question.text.ends_with("has not begun: agent a is not trusted here"), "{}", question.text);
        assert_eq!(world.act(Input::Answer), Outcome::Clear);
        assert_eq!((world.machine.attempts, world.machine.failures, world.machine.recoveries), before);
    }
    let mut world = World::task();
    assert_eq!(world.act(Input::Conclude { epoch: None, verdict: untrusted() }), Outcome::Late, "only a run has this verdict");
    world.start();
    let epoch = Some(world.epoch());
    world.act(Input::Conclude { epoch, verdict: untrusted() });
    world.stop(After::Cancel);
    assert_eq!(world.end_last(RunEnd::Exited(1)), Outcome::Ended(Status::Cancelled), "no decision is raised");
}
