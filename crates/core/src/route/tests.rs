use proptest::prelude::*;

use super::*;
use crate::event::{CustomKind, Source, TaskFact};
use crate::ids::TaskId;
use crate::queue::Fact as QueueFact;
use crate::replay::Replay;
use crate::test_world::name;
use crate::worker::Fact as WorkerFact;

fn custom(kind: &str, id: Option<&str>, data: Value) -> Event {
    let source = Source { component: "user".into(), id: id.map(Into::into) };
    Event::Custom { kind: CustomKind::new(kind).unwrap(), source, data }
}

fn heard(seq: i64, event: Event) -> Heard {
    Heard { seq: Seq(seq), wall: Wall(1_000), event, depth: 0, pipeline: None }
}

/// An event of a pipeline of this definition that enters the phase `merge`.
fn in_phase(runbook: &str, pipeline: &str) -> Heard {
    let event = Event::parse("pipeline:phase", "pipeline", Some("p-1"), r#"{"phase":"merge","attempt":1}"#).unwrap();
    let definition = Definition { runbook: runbook.into(), name: pipeline.into() };
    Heard { pipeline: Some(definition), ..heard(7, event) }
}

fn pushed(queue: &str) -> Event {
    let data = Data::parse("1").unwrap();
    let item = crate::ids::ItemId(Seq(1));
    Event::Queue { name: name(queue), fact: QueueFact::Push { item, data, priority: 0, not_before: None, dedupe: None } }
}

fn failed(task: &str) -> Event {
    Event::Task { id: TaskId::new(task).unwrap(), fact: TaskFact::Failed { error: "no".into(), run: None } }
}

fn plan(pipeline: &str, vars: &[(&str, Option<Value>)]) -> Arc<Plan> {
    let vars = vars.iter().map(|(name, default)| ((*name).into(), default.clone())).collect();
    Arc::new(Plan { runbook: "r".into(), name: name(pipeline), vars, phases: Vec::new(), land: None })
}

fn push(queue: &str) -> Then {
    Then::Push(Push { queue: name(queue), priority: 2, vars: Vec::new() })
}

fn subscribe(pattern: &str, then: Vec<Then>) -> Subscription {
    let on = Pattern::new(pattern).unwrap();
    let route = Route { runbook: "r".into(), on: on.clone(), then };
    Subscription { pattern: on, since: Seq(0), subscriber: Subscriber::Route(route.id(), Arc::new(route)) }
}

fn does(event: Event, pattern: &str, then: Then) -> Vec<Does> {
    route(&heard(7, event), &[subscribe(pattern, vec![then])]).into_iter().map(|reaction| reaction.does).collect()
}

#[test]
fn a_pattern_matches_kind_and_subject() {
    let done = custom("deploy:done", Some("prod"), json!({}));
    let escalated = Event::parse("escalate", "task", Some("t-1"), r#"{"decision":"d-1","error":"x","run":"r-1"}"#).unwrap();
    let cases = [
        (&done, vec!["*", "*:*", "deploy:*", "*:done", "deploy:done", "deploy:done(prod)", "*(prod)"]),
        (&pushed("q"), vec!["queue:push", "queue:push(q)", "queue:*(q)", "*"]),
        (&failed("t-1"), vec!["task:failed", "task:failed(t-1)", "task:*(t-1)"]),
    ];
    let never = ["deploy:failed", "deploy:done(test)", "release:done", "queue:push(p)", "task:failed(t-2)", "escalate"];
    for (event, patterns) in cases {
        for pattern in patterns {
            assert!(Pattern::new(pattern).unwrap().matches(event), "{pattern} {}", event.kind());
        }
        for pattern in never {
            assert!(!Pattern::new(pattern).unwrap().matches(event), "{pattern} {}", event.kind());
        }
    }
    assert!(Pattern::new("escalate(t-1)").unwrap().matches(&escalated));
    assert!(!Pattern::new("escalate:now").unwrap().matches(&escalated));
}

#[test]
fn a_pipeline_is_known_by_its_id_its_name_and_its_phase() {
    for pattern in ["pipeline:phase", "pipeline:phase(merge)", "pipeline:phase(p-1)", "pipeline:*(feature)"] {
        assert!(in_phase("r", "feature").is_meant_by(&Pattern::new(pattern).unwrap()), "{pattern}");
    }
    for pattern in ["pipeline:phase(build)", "pipeline:complete", "pipeline:*(other)"] {
        assert!(!in_phase("r", "feature").is_meant_by(&Pattern::new(pattern).unwrap()), "{pattern}");
    }
    let started = |heard: Heard| route(&heard, &[subscribe("pipeline:*", vec![Then::Start(plan("p", &[]))])]).len();
    assert_eq!((started(in_phase("r", "p")), started(in_phase("r", "q")), started(in_phase("s", "p"))), (0, 1, 1));
}

#[test]
fn a_pipeline_gets_its_variables_from_the_event() {
    let start = |vars: &[(&str, Option<Value>)], data| {
        does(custom("deploy:done", None, data), "deploy:done", Then::Start(plan("p", vars))).remove(0)
    };
    let Does::Start(_, vars) = start(&[("stage", None), ("by", Some(json!("me")))], json!({ "stage": "prod", "x": 1 })) else {
        panic!("it starts");
    };
    assert_eq!((json!(vars.context), json!(vars.given)), (json!({ "by": "me", "stage": "prod" }), json!(["stage"])));
    let Does::Start(_, Bound { context, .. }) = start(&[("event", None)], json!([1])) else { panic!("it starts") };
    assert_eq!(
        context["event"],
        json!({ "id": 7, "kind": "deploy:done", "timestamp": "1970-01-01T00:00:01.000Z", "source": { "component": "user" }, "data": [1] })
    );
    let Does::Nothing(error) = start(&[("stage", None)], json!({})) else { panic!("nothing is there") };
    assert_eq!(&*error, r#"the pipeline p was not started: the variable "stage" has no value"#);
}

#[test]
fn a_queue_gets_the_event_or_the_requested_fields() {
    let event = || custom("deploy:done", Some("prod"), json!({ "stage": "prod", "x": 1 }));
    let Does::Push(queue, new) = does(event(), "deploy:done", push("q")).remove(0) else { panic!("it is put there") };
    assert_eq!((queue, new.priority, &new.data.value()["source"]["id"]), (name("q"), 2, &json!("prod")));
    let some = Then::Push(Push { queue: name("q"), priority: 0, vars: vec!["stage".into(), "none".into()] });
    let Does::Push(_, new) = does(event(), "*", some).remove(0) else { panic!("it is put there") };
    assert_eq!(new.data.value(), &json!({ "stage": "prod" }));
    let huge = custom("deploy:done", None, json!("x".repeat(crate::queue::DATA_LIMIT)));
    assert!(matches!(&does(huge, "*", push("q"))[..], [Does::Nothing(_)]));
}

#[test]
fn a_notification_has_the_text_of_the_route() {
    let reactions = does(failed("t-1"), "task:failed", Then::Notify("look at it".into()));
    assert_eq!(reactions, [Does::Notify { subject: "task:failed t-1".into(), text: "look at it".into() }]);
}

#[test]
fn routes_and_workers_do_not_feed_themselves() {
    assert_eq!(does(pushed("q"), "queue:*", push("q")), [], "it would never end");
    assert_eq!(does(pushed("p"), "queue:*", push("q")).len(), 1);
    let asleep = || Event::Worker { name: name("w"), fact: WorkerFact::Asleep {} };
    assert_eq!(does(asleep(), "*", Then::Wake(name("w"))), []);
    assert_eq!(does(asleep(), "*", Then::Wake(name("v"))).len(), 1);
    let worker = |name_: &str| {
        let pattern = Pattern::new("worker:asleep").unwrap();
        route(&heard(7, asleep()), &[Subscription { pattern, since: Seq(0), subscriber: Subscriber::Worker(name(name_)) }]).len()
    };
    assert_eq!((worker("w"), worker("v")), (0, 1));
    let notified = Event::Route { id: "r/*".into(), fact: RouteFact::Notified { event: Seq(6) } };
    assert_eq!(does(notified, "*", Then::Notify("x".into())), [], "it would notify of its own notifications");
    assert_eq!(does(failed("p-1.1"), "task:failed", Then::Start(plan("p", &[]))), [], "a phase is part of its pipeline");
    assert_eq!(does(failed("t-1"), "task:failed", Then::Start(plan("p", &[]))).len(), 1);
}

#[test]
fn a_route_whose_pattern_names_its_own_object_is_refused() {
    let check = |pattern: &str, then: Then| {
        Route { runbook: "r".into(), on: Pattern::new(pattern).unwrap(), then: vec![then] }.check().map_err(|e| e.to_string())
    };
    let refused = check("pipeline:*(p)", Then::Start(plan("p", &[]))).unwrap_err();
    assert_eq!(refused, "it would feed itself: pipeline:*(p) is what happens to the pipeline p, which it acts on");
    assert!(check("*(p)", Then::Start(plan("p", &[]))).is_err());
    assert!(check("queue:push(q)", push("q")).is_err());
    assert!(check("worker:asleep(w)", Then::Wake(name("w"))).is_err());
    assert!(check("pipeline:complete(other)", Then::Start(plan("p", &[]))).is_ok());
    assert!(check("queue:dead(q)", push("graves")).is_ok());
    assert!(check("lock:released(p)", Then::Start(plan("p", &[]))).is_ok());
}

fn an_event() -> impl Strategy<Value = Event> {
    let kinds = prop::sample::select(vec!["deploy:done", "deploy:failed", "release:done"]);
    let ids = prop::sample::select(vec![None, Some("a"), Some("b")]);
    prop_oneof![
        (kinds, ids).prop_map(|(kind, id)| custom(kind, id, json!({ "x": 1 }))),
        prop::sample::select(vec!["a", "b"]).prop_map(pushed),
    ]
}

fn a_subscription() -> impl Strategy<Value = Subscription> {
    let words = |words: &[&'static str]| prop::sample::select(words.to_vec());
    let pattern =
        (words(&["*", "deploy", "release", "queue"]), words(&["*", "done", "failed", "push"]), words(&["", "(a)", "(b)"]))
            .prop_map(|(category, action, argument)| format!("{category}:{action}{argument}"));
    (pattern, 0i64..20, 0usize..2).prop_map(|(pattern, since, kind)| {
        let one = match kind {
            0 => subscribe(&pattern, vec![push("b"), Then::Notify("x".into())]),
            _ => Subscription { subscriber: Subscriber::Worker(name("w")), ..subscribe(&pattern, vec![]) },
        };
        Subscription { since: Seq(since), ..one }
    })
}

/// The naive model: the number of reactions, by the texts alone.
fn expected_reactions(seq: i64, event: &Event, one: &Subscription) -> usize {
    let text = one.pattern.to_string();
    let (kind, argument) = text.strip_suffix(')').and_then(|text| text.split_once('(')).unwrap_or((&text, ""));
    let (category, action) = kind.split_once(':').unwrap_or((kind, "*"));
    let (is_category, is_action) = event.kind().split_once(':').unwrap();
    let fits = |wanted: &str, is: &str| wanted == "*" || wanted == is;
    let id = event.source().1.unwrap_or("none");
    if seq <= one.since.0 || !fits(category, is_category) || !fits(action, is_action) || (!argument.is_empty() && argument != id)
    {
        return 0;
    }
    match &one.subscriber {
        Subscriber::Route(..) if is_category == "queue" && id == "b" => 1,
        Subscriber::Route(..) => 2,
        Subscriber::Worker(_) => 1,
    }
}

proptest! {
    #[test]
    fn routing_is_deterministic_and_keeps_the_order(
        events in prop::collection::vec(an_event(), 1..20),
        subscriptions in prop::collection::vec(a_subscription(), 0..8),
    ) {
        let log: Vec<Heard> = events.into_iter().zip(1..).map(|(event, seq)| heard(seq, event)).collect();
        let all = || log.iter().flat_map(|heard| route(heard, &subscriptions)).collect::<Vec<Reaction>>();
        let reactions = all();
        prop_assert_eq!(&reactions, &all(), "the result is deterministic");
        prop_assert!(reactions.windows(2).all(|pair| pair[0].event <= pair[1].event), "in the order of the events");
        let wanted: usize =
            log.iter().flat_map(|heard| subscriptions.iter().map(|one| expected_reactions(heard.seq.0, &heard.event, one))).sum();
        prop_assert_eq!(reactions.len(), wanted);
        // The division of the log into pages makes no difference.
        for cut in 0..log.len() {
            let parts = [&log[..cut], &log[cut..]].into_iter().flatten().flat_map(|heard| route(heard, &subscriptions));
            prop_assert_eq!(&parts.collect::<Vec<_>>(), &reactions);
        }
    }
}

/// Stored data must be readable for ever.
#[test]
fn the_stored_form_is_frozen() {
    let data =
        r#"{"on":"queue:dead(q)","runbook":"r","then":[{"push":{"priority":2,"queue":"graves"}},{"wake":"w"},{"notify":"x"}]}"#;
    let event = Event::parse("route:defined", "route", Some("r/queue:dead(q)"), data).unwrap();
    assert_eq!((event.kind(), event.data().as_str()), ("route:defined", data));
    for (kind, data) in
        [("route:removed", "{}"), ("route:notified", r#"{"event":3}"#), ("route:failed", r#"{"error":"x","event":3}"#)]
    {
        let event = Event::parse(kind, "route", Some("r/*"), data).unwrap();
        assert_eq!((event.kind(), event.data().as_str()), (kind, data));
    }
    let mut replay = Replay::default();
    replay.apply(Seq(4), Wall(0), event);
    let entity = crate::replay::stored::Entity { component: "route".into(), id: "r/queue:dead(q)".into() };
    let row = r#"{"route":{"runbook":"r","on":"queue:dead(q)","then":[{"push":{"queue":"graves","priority":2}},{"wake":"w"},{"notify":"x"}]},"since":4}"#;
    assert_eq!(replay.stored(&entity).unwrap().as_deref(), Some(row));
    replay.restore(&entity, row).unwrap();
    assert_eq!(replay.stored(&entity).unwrap().as_deref(), Some(row));
}

#[test]
fn a_chain_of_routes_ends() {
    let push = Then::Push(Push { queue: Name::new("q").unwrap(), priority: 0, vars: Vec::new() });
    let then = vec![push, Then::Notify("told".into())];
    let route_of = Route { runbook: "r".into(), on: Pattern::new("*").unwrap(), then };
    let subscriber = Subscriber::Route(route_of.id(), Arc::new(route_of));
    let all = [Subscription { pattern: Pattern::new("*").unwrap(), since: Seq(0), subscriber }];
    for depth in [0, 1, DEPTH_LIMIT - 1, DEPTH_LIMIT, DEPTH_LIMIT + 5] {
        let reactions = route(&Heard { depth, ..heard(3, custom("a:b", None, json!({}))) }, &all);
        assert_eq!(reactions.iter().map(|one| one.depth).collect::<Vec<_>>(), [depth, depth]);
        // Notifications are never too deep: nothing follows from them.
        let deep: Vec<bool> = reactions.iter().map(Reaction::is_too_deep).collect();
        assert_eq!(deep, [depth >= DEPTH_LIMIT, false], "{depth}");
    }
}
