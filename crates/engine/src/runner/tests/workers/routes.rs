//! The reactions to events, over the real store.

use super::*;

#[test]
fn routes_react_once_with_several_runners() {
    let mut stage = Stage::new();
    let then = vec![
        Then::Push(Push { queue: name("q"), priority: 0, vars: vec!["stage".into()] }),
        Then::Notify("it is there".into()),
        Then::Wake(name("w")),
    ];
    stage.apply(vec![definition("w", "q", 5, &["never:comes"])], vec![route("deploy:*", then)]);
    let mut actors: Vec<Actor> = ["m", "n", "o"].map(|id| stage.runner(id, options())).into();
    for round in 1..=3 {
        stage.emit("deploy:done", json!({ "stage": "prod", "round": round }));
        for actor in &mut actors {
            stage.play(actor);
        }
        assert_eq!((stage.count_events("queue:push"), stage.count_events("route:notified")), (round, round));
    }
    assert_eq!(stage.standing(), ("busy", 3));
    assert!(stage.everything().queues.items.values().all(|item| item.data.value() == &json!({ "stage": "prod" })));
    let notices = actors.iter().flat_map(|actor| &actor.wants).filter(|action| {
        matches!(action, RunnerAction::Notify(_, notice) if notice.kind == NoticeKind::Route && &*notice.text == "it is there")
    });
    assert_eq!(notices.count(), 3);
}

#[test]
fn one_of_two_runners_that_read_the_same_events_is_late() {
    let mut stage = Stage::new();
    stage.apply(vec![], vec![]);
    let new = New { data: Data::parse("1").unwrap(), priority: 0, delay: Span::ZERO, dedupe: None };
    let reaction = Reaction { event: Seq(3), depth: 0, route: None, does: Does::Push(name("q"), new) };
    let request = || Request::Route(RouteRequest { from: Seq(0), to: Seq(3), reactions: vec![reaction.clone()] });
    assert_eq!(stage.ask(request()), Reply::Route(RouteOutcome::Routed));
    assert_eq!(stage.ask(request()), Reply::Route(RouteOutcome::Late));
    assert_eq!(stage.count_events("queue:push"), 1);
}

#[test]
fn a_route_applied_during_a_read_gets_the_events_after_it() {
    let mut stage = Stage::new();
    let push = || vec![Then::Push(Push { queue: name("graves"), priority: 0, vars: Vec::new() })];
    stage.apply(vec![], vec![route("a:b", push())]);
    let mut actor = stage.start("m", options());
    stage.emit("x:y", json!({}));
    actor.dispatcher.on(RunnerInput::NewEvents, stage.now());
    // Between the read of the routes and the read of the events, another route is applied, and its event comes.
    loop {
        let RunnerAction::Load(keys) = actor.dispatcher.next(stage.now()) else { continue };
        let is_second = keys.iter().any(|key| matches!(key, Key::Log { .. }));
        if is_second {
            stage.apply(vec![], vec![route("a:b", push()), route("deploy:done", push())]);
            stage.emit("deploy:done", json!({}));
        }
        let rows = stage.load(&keys);
        actor.dispatcher.on(RunnerInput::Rows(Box::new(rows)), stage.now());
        if is_second {
            break;
        }
    }
    stage.play(&mut actor);
    assert_eq!(stage.count_events("queue:push"), 1);
}

#[test]
fn removed_or_changed_subscribers_do_not_react_to_events_read_before() {
    let mut stage = Stage::new();
    let then = || vec![Then::Notify("it is there".into())];
    stage.apply(vec![definition("w", "q", 1, &["x:y"])], vec![route("x:y", then()), route("x:*", then())]);
    stage.push("q", &json!(1), Span::ZERO);
    let mut actor = stage.start("m", options());
    stage.emit("x:y", json!({}));
    actor.dispatcher.on(RunnerInput::NewEvents, stage.now());
    let mut is_changed = false;
    stage.play_with(&mut actor, |stage, requests| {
        if requests.iter().any(|request| matches!(request, Request::Route(_))) && !std::mem::replace(&mut is_changed, true) {
            stage.apply(vec![definition("w", "q", 2, &["x:y"])], vec![route("x:y", then())]);
        }
    });
    assert!(is_changed);
    assert_eq!((stage.standing(), stage.count_events("route:notified")), (("asleep", 0), 1), "one route has stayed as it was");
}

#[test]
fn a_failed_reaction_is_recorded_once() {
    let mut stage = Stage::new();
    stage.apply(vec![definition("w", "q", 1, &["x:y"])], vec![route("deploy:done", vec![Then::Wake(name("w"))])]);
    let other = ApplyRequest { runbook: "other".into(), routes: vec![], ..ApplyRequest::default() };
    stage.request(other);
    // The worker is removed while the route of another runbook stays.
    let mut kept = runbook(vec![], vec![]);
    kept.routes = vec![];
    let owned = Route { runbook: "other".into(), on: Pattern::new("deploy:done").unwrap(), then: vec![Then::Wake(name("w"))] };
    stage.request(ApplyRequest { runbook: "other".into(), routes: vec![Arc::new(owned)], ..ApplyRequest::default() });
    stage.request(kept);
    let mut actor = stage.start("m", options());
    stage.emit("deploy:done", json!({}));
    stage.play(&mut actor);
    assert_eq!(stage.count_events("route:failed"), 1);
    stage.play(&mut actor);
    assert_eq!(stage.count_events("route:failed"), 1);
}

#[test]
fn many_events_are_routed_page_by_page_and_none_is_left_out() {
    let mut stage = Stage::new();
    let push = Then::Push(Push { queue: name("graves"), priority: 0, vars: vec!["number".into()] });
    stage.apply(vec![], vec![route("deploy:done", vec![push])]);
    for number in 0..1_300 {
        stage.emit(if number % 100 == 7 { "deploy:done" } else { "deploy:other" }, json!({ "number": number }));
    }
    stage.start("m", options());
    let rows = stage.everything();
    let numbers: Vec<i64> = rows.queues.items.values().map(|item| item.data.value()["number"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (0..13).map(|hundred| hundred * 100 + 7).collect::<Vec<_>>());
    // A new runner continues from there.
    stage.start("n", options());
    assert_eq!(stage.everything().queues.items.len(), 13);
}

#[test]
fn a_route_starts_a_pipeline_but_not_for_its_own_events() {
    let mut stage = Stage::new();
    let routes = ["deploy:done", "pipeline:complete", "task:complete"].map(|on| route(on, vec![Then::Start(plan(&["title"]))]));
    stage.apply(vec![], routes.into());
    let mut actor = stage.start("m", options());
    stage.emit("deploy:done", json!({ "title": "a" }));
    stage.play(&mut actor);
    let started = stage.rows();
    assert_eq!(started.pipelines.len(), 1);
    assert!(started.pipelines.keys().all(|id| started.tasks[id].spec.title.as_str() == "a"));
    end_all(&mut stage, &mut actor, 0);
    end_all(&mut stage, &mut actor, 0);
    assert_eq!((stage.rows().pipelines.len(), stage.count_events("pipeline:complete")), (1, 1), "it does not feed itself");
    assert_eq!(stage.count_events("route:failed"), 0);
    stage.emit("deploy:done", json!({}));
    stage.play(&mut actor);
    assert_eq!((stage.rows().pipelines.len(), stage.count_events("route:failed")), (1, 1), "the title is missing");
}

/// Of two runners that end when nothing is left, one reports it, and the reactions happen before the last of them has left, in whatever
/// order their steps are played.
#[test]
fn reactions_to_the_end_of_the_backlog_precede_the_last_leave() {
    for moment in 0..16 {
        let mut stage = Stage::new();
        let push = vec![Then::Push(Push { queue: name("graves"), priority: 0, vars: Vec::new() })];
        stage.apply(vec![], vec![route("backlog:finished", push)]);
        stage.add("a", |_| {});
        let idle = || Options { until_idle: true, ..options() };
        let (mut first, mut second) = (stage.runner("m", idle()), stage.runner("n", idle()));
        stage.play(&mut first);
        stage.play(&mut second);
        let run = first.run();
        first.dispatcher.on(RunnerInput::Ended(run.clone(), exited(0)), stage.now());
        let mut calls = 0;
        let left = stage.play_with(&mut first, |stage, _| {
            if calls == moment {
                stage.play(&mut second);
            }
            calls += 1;
        });
        let others = stage.play(&mut second);
        assert_eq!((left.or_else(|| stage.play(&mut first)), others.or_else(|| stage.play(&mut second))), (None, None));
        assert_eq!(
            (stage.count_events("backlog:finished"), stage.count_events("queue:push")),
            (1, 1),
            "the other played at call {moment}"
        );
    }
}
