//! Guards of pipelines under runners: those about the store, and those that ask the world outside.

use super::*;

#[test]
fn a_guard_about_the_store_is_judged_inside_of_the_transaction() {
    let mut stage = Stage::new();
    stage.pipeline("p-1", behind("l"));
    let mut actor = stage.runner("m", options());
    stage.play(&mut actor);
    assert_eq!(actor.did(), ["begin", "judge", "claim", "spawn p-1.1"]);

    // The lock is taken after the runner has looked, and before it asks.
    let mut stage = Stage::new();
    stage.pipeline("p-1", behind("l"));
    let mut actor = stage.runner("m", options());
    let mut epoch = None;
    stage.play_with(&mut actor, |stage, requests| {
        let is_judge = |request: &Request| matches!(request, Request::Pipeline(PipelineRequest::Judge(_)));
        if requests.iter().any(is_judge) && epoch.is_none() {
            epoch = Some(stage.lock("l", "ann"));
        }
    });
    assert_eq!(actor.did(), ["begin", "judge"]);
    let State::Blocked { when: When::Pre, reason: Reason::Guard { part, .. }, .. } = stage.at("p-1").state else {
        panic!("{}", stage.stands("p-1"))
    };
    assert!(part.contains('l') && part.contains("ann"), "{part}");
    // Others come and go.
    let other = stage.lock("other", "ann");
    stage.unlock("other", "ann", other);
    stage.play(&mut actor);
    assert_eq!(stage.stands("p-1"), "blocked one");
    stage.unlock("l", "ann", epoch.unwrap());
    stage.play(&mut actor);
    assert_eq!((stage.stands("p-1"), spawned(&mut actor)), ("running one".into(), vec!["p-1.1".into()]));
}

#[test]
fn one_pipeline_waits_for_the_phase_of_another() {
    let mut stage = Stage::new();
    let in_two = Condition::PipelineInPhase { pipeline: text("p-1"), phase: name("two") };
    let done = Condition::PipelineComplete { pipeline: text("p-1") };
    stage.pipeline("p-2", vec![Phase { pre: guard(in_two), post: guard(done), ..phase("one") }]);
    stage.pipeline("p-1", two());
    let mut actor = stage.runner("m", options());
    stage.play(&mut actor);
    assert_eq!((spawned(&mut actor), stage.stands("p-2")), (vec!["p-1.1".into()], "blocked one".into()));
    end(&mut stage, &mut actor, 0, "");
    let mut begun = spawned(&mut actor);
    begun.sort();
    assert_eq!(begun, ["p-1.2", "p-2.1"]);
    let runs: Vec<_> = actor
        .wants
        .iter()
        .filter_map(
            |advice| if let Advice::Spawn(work) = advice { Some((work.task.id.clone(), work.run.id.clone())) } else { None },
        )
        .collect();
    let run = |id: &str| runs.iter().find(|(of, _)| of.as_str() == id).unwrap().1.clone();
    actor.dispatcher.ended(&run("p-2.1"), exited(0));
    stage.play(&mut actor);
    assert_eq!(stage.stands("p-2"), "blocked one", "its own work is done, and it is not over");
    actor.dispatcher.ended(&run("p-1.2"), exited(0));
    stage.play(&mut actor);
    assert_eq!((stage.stands("p-1"), stage.stands("p-2")), ("done".into(), "done".into()));
}

#[test]
fn one_runner_at_a_time_asks_the_world_outside_and_another_takes_over_when_it_is_gone() {
    let mut stage = Stage::new();
    stage.pipeline("p-1", after_file());
    let (mut first, mut second) = (stage.runner("m", options()), stage.runner("n", options()));
    stage.play(&mut first);
    stage.play(&mut second);
    assert_eq!((first.did(), second.did()), (vec!["begin".into(), "examine".into(), "gather p-1".into()], Vec::<String>::new()));
    // It looks at nothing else meanwhile, and does not ask twice.
    first.dispatcher.woken();
    stage.play(&mut first);
    assert_eq!(first.did(), Vec::<String>::new());
    let gathered = |actor: &mut Actor, inputs| match actor.wants.pop_back() {
        Some(Advice::Gather(pipeline)) => actor.dispatcher.gathered(&pipeline, inputs),
        other => panic!("{other:?}"),
    };
    gathered(&mut first, found(false));
    stage.play(&mut first);
    assert_eq!((first.did(), stage.stands("p-1")), (vec!["judge".to_owned()], "blocked one".into()));
    // The answer is good for a while, and then one of them asks again.
    let slept = stage.sleep(&mut second);
    assert_eq!(Span::from_ms(slept), Span::from_secs(30));
    assert_eq!(second.did(), ["examine", "gather p-1"]);
    stage.play(&mut first);
    assert_eq!(first.did(), Vec::<String>::new());
    // It dies before it has an answer.
    stage.kill(second);
    let mut third = stage.runner("o", options());
    stage.play(&mut third);
    assert_eq!(third.did(), ["retire", "examine", "gather p-1"]);
    gathered(&mut third, found(true));
    stage.play(&mut third);
    assert_eq!(spawned(&mut third), ["p-1.1"]);
}

#[test]
fn an_answer_about_other_variables_does_not_count() {
    let mut stage = Stage::new();
    let held = Condition::FileExists { path: Text::Var { var: "file".into() } };
    stage.pipeline_after("p-1", vec![Phase { pre: guard(held), ..phase("one") }], json!({ "file": "go" }), &[]);
    let mut actor = stage.runner("m", options());
    stage.play(&mut actor);
    let Some(Advice::Gather(pipeline)) = actor.wants.pop_back() else { panic!("{:?}", actor.did()) };
    let vars = serde_json::from_value(json!({ "file": "stop" })).unwrap();
    stage.about(PipelineRequest::Set { id: task("p-1"), vars, by: None });
    let mut inputs = found(true);
    inputs.vars = pipeline.context.clone();
    actor.dispatcher.gathered(&pipeline, inputs);
    stage.play(&mut actor);
    assert_eq!((stage.stands("p-1"), spawned(&mut actor)), ("checking one".into(), Vec::new()));
    assert!(matches!(actor.wants.pop_back(), Some(Advice::Gather(again)) if again.context["file"] == json!("stop")));
}
