use super::*;
use crate::ids::Title;
use crate::task::Spec;

fn id(name: &str) -> TaskId {
    TaskId::new(name).unwrap()
}

fn event(name: &str, fact: TaskFact) -> Event {
    Event::Task { id: id(name), fact }
}

fn added(name: &str, parent: Option<&str>, on: &[&str], import: Option<&str>) -> Event {
    let spec = Spec { parent: parent.map(id), ..Spec::new(Title::new(&name.to_uppercase()).unwrap()) };
    let depends_on = on.iter().map(|on| Edge { on: id(on.trim_end_matches('?')), allow_failed: on.ends_with('?') }).collect();
    let import = import.map(|import| ImportId::new(import).unwrap());
    event(name, TaskFact::Added { spec: Box::new(spec), depends_on, import })
}

fn complete(name: &str) -> Event {
    event(name, TaskFact::Complete { run: None, output: Some(serde_json::json!({"v": 1})), warning: None })
}

fn failed(name: &str) -> Event {
    event(name, TaskFact::Failed { run: None, error: "broke".into() })
}

/// What the events say, as `task TYPE body`.
fn told(events: &[Event]) -> Vec<String> {
    let mut derived = DerivedMessages::default();
    let messages = events.iter().zip(1..).flat_map(|(event, seq)| derived.apply(Seq(seq), Wall(seq), event));
    let words = |message: Message| {
        assert_eq!(message.draft.id.as_str(), format!("event-{}-{}", message.seq, message.draft.task.as_ref().unwrap()));
        format!("{} {} {}", message.draft.task.unwrap(), message.draft.kind, message.draft.body)
    };
    messages.collect::<Vec<_>>().into_iter().map(words).collect()
}

#[test]
fn a_task_tells_once_per_change_what_it_waits_for() {
    let events = [added("a", None, &[], None), added("b", None, &[], None), added("c", None, &["a", "b"], None)];
    let more = [complete("a"), event("a", TaskFact::Retried {}), complete("b"), complete("a"), complete("c")];
    assert_eq!(
        told(&[&events[..], &more].concat()),
        [
            "c PROGRESS waiting for 2 tasks: a (A), b (B)",
            r#"a FACT A: completed: {"v":1}"#,
            "c PROGRESS waiting for 1 task: b (B)",
            "c PROGRESS waiting for 2 tasks: a (A), b (B)",
            r#"b FACT B: completed: {"v":1}"#,
            "c PROGRESS waiting for 1 task: a (A)",
            r#"a FACT A: completed: {"v":1}"#,
            "c FACT all dependencies are met",
            r#"c FACT C: completed: {"v":1}"#,
        ]
    );
}

#[test]
fn a_failure_unblocks_only_those_who_allow_it_and_is_told_to_the_parent() {
    let events = [
        added("p", None, &[], None),
        added("a", Some("p"), &[], None),
        added("strict", None, &["a"], None),
        added("lenient", None, &["a?"], None),
        failed("a"),
    ];
    assert_eq!(
        told(&events)[2..],
        ["a FACT A: failed: broke", "p FACT child a, A: failed: broke", "lenient FACT all dependencies are met"]
    );
}

#[test]
fn the_tasks_of_an_import_speak_when_it_is_finished() {
    let import = |fact| Event::Import { id: ImportId::new("i-1").unwrap(), fact };
    let hidden = [added("a", None, &[], Some("i-1")), added("b", None, &["a"], Some("i-1"))];
    assert_eq!(told(&hidden), [""; 0]);
    let finished = [&hidden[..], &[import(ImportFact::Finished { tasks: 2 })]].concat();
    assert_eq!(told(&finished), ["b PROGRESS waiting for 1 task: a (A)"]);
    let dropped = [&hidden[..], &[import(ImportFact::Dropped {}), complete("a")]].concat();
    assert_eq!(told(&dropped), [""; 0]);
}

#[test]
fn a_removed_dependency_and_long_lists() {
    let mut events: Vec<Event> = (0..25).map(|n| added(&format!("d{n:02}"), None, &[], None)).collect();
    let on: Vec<String> = (0..25).map(|n| format!("d{n:02}")).collect();
    events.push(added("t", None, &on.iter().map(String::as_str).collect::<Vec<_>>(), None));
    let told_last = |events: &[Event]| told(events).pop().unwrap();
    assert!(told_last(&events).ends_with("d19 (D19) and 5 more"), "{}", told_last(&events));
    let spec = Box::new(Spec::new(Title::new("T").unwrap()));
    events.push(event("t", TaskFact::Updated { spec, depends_on: Vec::new() }));
    assert_eq!(told_last(&events), "t FACT all dependencies are met");
}

/// Whoever begins in the middle of the log hears the same as one who has heard all of it.
#[test]
fn a_replay_of_the_beginning_is_as_good_as_the_beginning() {
    let events = [
        added("a", None, &[], None),
        added("b", None, &["a"], None),
        added("c", Some("b"), &["a", "b?"], None),
        complete("a"),
        failed("b"),
        event("b", TaskFact::Retried {}),
        complete("b"),
        complete("c"),
    ];
    for at in 0..events.len() {
        let mut replay = crate::replay::Replay::default();
        let mut whole = DerivedMessages::default();
        for (event, seq) in events[..at].iter().zip(1..) {
            replay.apply(Seq(seq), Wall(seq), event.clone());
            drop(whole.apply(Seq(seq), Wall(seq), event));
        }
        let mut rest = DerivedMessages::new(replay.known_tasks());
        for (event, seq) in events[at..].iter().zip(at as i64 + 1..) {
            assert_eq!(rest.apply(Seq(seq), Wall(seq), event), whole.apply(Seq(seq), Wall(seq), event), "{event:?}");
        }
    }
}

#[test]
fn every_kind_that_matters_is_named() {
    let all = crate::event::kinds();
    assert!(KINDS.iter().all(|kind| all.iter().any(|known| known == kind)), "{KINDS:?}");
}
