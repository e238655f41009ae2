use super::*;
use crate::ids::Title;
use crate::task::Spec;
use crate::test_world::task as id;

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

/// The messages from the events, as `task TYPE body`.
fn messages_of(events: &[Event]) -> Vec<String> {
    let mut derived = DerivedMessages::default();
    let messages = events.iter().zip(1..).flat_map(|(event, seq)| derived.apply(Seq(seq), Wall(seq), event));
    let words = |message: Message| {
        assert_eq!(message.draft.id.as_str(), format!("event-{}-{}", message.seq, message.draft.task.as_ref().unwrap()));
        format!("{} {} {}", message.draft.task.unwrap(), message.draft.kind, message.draft.body)
    };
    messages.collect::<Vec<_>>().into_iter().map(words).collect()
}

#[test]
fn each_change_of_blockers_has_one_message() {
    let events = [added("a", None, &[], None), added("b", None, &[], None), added("c", None, &["a", "b"], None)];
    let more = [complete("a"), event("a", TaskFact::Retried {}), complete("b"), complete("a"), complete("c")];
    assert_eq!(
        messages_of(&[&events[..], &more].concat()),
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
fn a_failure_unblocks_lenient_dependents_and_reaches_the_parent() {
    let events = [
        added("p", None, &[], None),
        added("a", Some("p"), &[], None),
        added("strict", None, &["a"], None),
        added("lenient", None, &["a?"], None),
        failed("a"),
    ];
    assert_eq!(
        messages_of(&events)[2..],
        ["a FACT A: failed: broke", "p FACT child a, A: failed: broke", "lenient FACT all dependencies are met"]
    );
}

fn run() -> RunId {
    RunId::new("r-1").unwrap()
}

fn decision(fact: DecisionFact) -> Event {
    Event::Decision { id: DecisionId::new("d-1").unwrap(), fact }
}

/// The events of a run that asks and of a person who answers.
fn question(options: &[&str], option: u32, note: Option<&str>) -> [Event; 4] {
    let options: Vec<Box<str>> = options.iter().map(|option| (*option).into()).collect();
    let question = Question::of_run(&id("a"), "which one?", &options);
    let asked = TaskFact::Asked { run: run(), question: "which one?".into(), decision: DecisionId::new("d-1").unwrap() };
    [
        added("a", None, &[], None),
        decision(DecisionFact::Raised(Box::new(question))),
        event("a", asked),
        decision(DecisionFact::Resolved { option, by: "ada".into(), note: note.map(Into::into) }),
    ]
}

#[test]
fn questions_of_runs_and_their_answers_are_messages() {
    for (options, option, note, texts) in [
        (&["this", "that"][..], 2, None, ["which one?\n1. this\n2. that", "that"]),
        (&["this"], 1, Some("but slowly"), ["which one?\n1. this", "this: but slowly"]),
        (&[], 1, Some("the blue one"), ["which one?", "the blue one"]),
        (&[], 2, None, ["which one?", "mark the task as failed"]),
    ] {
        let mut derived = DerivedMessages::default();
        let events = question(options, option, note);
        let messages: Vec<Message> =
            events.iter().zip(1..).flat_map(|(event, seq)| derived.apply(Seq(seq), Wall(seq), event)).collect();
        assert_eq!(messages.iter().map(|message| message.seq).collect::<Vec<_>>(), [Seq(3), Seq(4)]);
        let [asked, answered] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!([&*asked.draft.body, &*answered.draft.body], texts);
        assert_eq!((asked.draft.kind.as_str(), &*asked.draft.author, &asked.draft.run), ("QUESTION", "run:r-1", &Some(run())));
        assert_eq!((answered.draft.kind.as_str(), &*answered.draft.author), ("ANSWER", "ada"));
        assert_eq!(answered.draft.parent, Some(asked.draft.id.clone()));
        assert_eq!(answered.draft.task, Some(id("a")));
        // A second answer, or an answer to a withdrawn question, has no message.
        assert_eq!(derived.apply(Seq(5), Wall(5), &events[3]), []);
        drop(derived.apply(Seq(6), Wall(6), &events[1]));
        drop(derived.apply(Seq(7), Wall(7), &decision(DecisionFact::Withdrawn {})));
        assert_eq!(derived.apply(Seq(8), Wall(8), &events[3]), []);
    }
}

#[test]
fn escalations_are_not_messages() {
    let title = Title::new("A").unwrap();
    let raised = decision(DecisionFact::Raised(Box::new(Question::of_task(&id("a"), &title, "it hangs"))));
    let resolved = decision(DecisionFact::Resolved { option: 1, by: "ada".into(), note: None });
    assert_eq!(messages_of(&[added("a", None, &[], None), raised, resolved]), [""; 0]);
}

#[test]
fn tasks_of_an_import_have_messages_after_its_end() {
    let import = |fact| Event::Import { id: ImportId::new("i-1").unwrap(), fact };
    let hidden = [added("a", None, &[], Some("i-1")), added("b", None, &["a"], Some("i-1"))];
    assert_eq!(messages_of(&hidden), [""; 0]);
    let finished = [&hidden[..], &[import(ImportFact::Finished { tasks: 2 })]].concat();
    assert_eq!(messages_of(&finished), ["b PROGRESS waiting for 1 task: a (A)"]);
    let dropped = [&hidden[..], &[import(ImportFact::Dropped {}), complete("a")]].concat();
    assert_eq!(messages_of(&dropped), [""; 0]);
}

#[test]
fn long_lists_are_cut_and_removed_dependencies_unblock() {
    let mut events: Vec<Event> = (0..25).map(|n| added(&format!("d{n:02}"), None, &[], None)).collect();
    let on: Vec<String> = (0..25).map(|n| format!("d{n:02}")).collect();
    events.push(added("t", None, &on.iter().map(String::as_str).collect::<Vec<_>>(), None));
    let last = |events: &[Event]| messages_of(events).pop().unwrap();
    assert!(last(&events).ends_with("d19 (D19) and 5 more"), "{}", last(&events));
    let spec = Box::new(Spec::new(Title::new("T").unwrap()));
    events.push(event("t", TaskFact::Updated { spec, depends_on: Vec::new() }));
    assert_eq!(last(&events), "t FACT all dependencies are met");
}

/// A start in the middle of the log gives the same messages as a start at its beginning.
#[test]
fn messages_from_a_replayed_state_are_the_same() {
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
    let events = [&events[..], &question(&["this"], 1, None)[..]].concat();
    for at in 0..events.len() {
        let mut replay = crate::replay::Replay::default();
        let mut all = DerivedMessages::default();
        for (event, seq) in events[..at].iter().zip(1..) {
            replay.apply(Seq(seq), Wall(seq), event.clone());
            drop(all.apply(Seq(seq), Wall(seq), event));
        }
        let mut rest = DerivedMessages::new(replay.known_tasks(), replay.open_questions());
        for (event, seq) in events[at..].iter().zip(at as i64 + 1..) {
            assert_eq!(rest.apply(Seq(seq), Wall(seq), event), all.apply(Seq(seq), Wall(seq), event), "{event:?}");
        }
    }
}

#[test]
fn kinds_of_derived_messages_exist() {
    let all = crate::event::kinds();
    assert!(KINDS.iter().all(|kind| all.iter().any(|known| known == kind)), "{KINDS:?}");
}
