//! The stored forms of a pipeline and its events.

use super::*;

/// Stored data must be readable for ever.
#[test]
fn the_stored_state_is_frozen() {
    for text in [
        r#""init""#,
        r#"{"checking":{"phase":"build","when":"pre"}}"#,
        r#"{"blocked":{"phase":"build","when":"pre","reason":"dependencies"}}"#,
        r#"{"blocked":{"phase":"build","when":"post","reason":{"guard":{"guard":"g","part":"lock db is held","at":5,"again":7}}}}"#,
        r#"{"blocked":{"phase":"build","when":"post","reason":{"guard":{"guard":"g","part":"lock db is held","at":5,"again":7,"looked":9}}}}"#,
        r#"{"blocked":{"phase":"build","when":"post","reason":{"guard":{"guard":"g","part":"lock db is held"}}}}"#,
        r#"{"blocked":{"phase":"build","when":"pre","reason":{"guard":{"guard":"g","part":"no","at":5,"again":9,"rest":7}}}}"#,
        r#"{"blocked":{"phase":"build","when":"post","reason":{"decision":{"decision":"d-7","approach":1,"task":"p-1.2"}}}}"#,
        r#"{"running":{"phase":"build","approach":1,"task":"p-1.2"}}"#,
        r#"{"running":{"phase":"build","approach":0}}"#,
        r#""done""#,
        r#"{"failed":{"phase":"build","error":"exit 1","recoverable":true}}"#,
        r#"{"cancelled":{"phase":"build"}}"#,
        r#"{"cancelled":{}}"#,
    ] {
        let state: State = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&state).unwrap(), text);
    }
    let checkpoint = r#"{"phase":"build","message":"half","at":7}"#;
    assert_eq!(serde_json::to_string(&serde_json::from_str::<Checkpoint>(checkpoint).unwrap()).unwrap(), checkpoint);
}

#[test]
fn the_events_are_frozen() {
    for (kind, data) in [
        ("pipeline:created", r#"{"context":{"title":"x","tries":3}}"#),
        ("pipeline:created", r#"{"context":{"title":"x","tries":3},"given":["title"]}"#),
        ("pipeline:created", "{}"),
        ("pipeline:started", "{}"),
        ("pipeline:checking", r#"{"attempt":2,"phase":"build","when":"pre"}"#),
        ("pipeline:blocked", r#"{"phase":"build","reason":"dependencies","when":"pre"}"#),
        ("pipeline:phase", r#"{"approach":0,"attempt":1,"phase":"build","task":"p-1.1"}"#),
        ("pipeline:phase", r#"{"approach":0,"attempt":1,"phase":"build"}"#),
        ("pipeline:unblocked", r#"{"phase":"build","when":"pre"}"#),
        ("pipeline:resumed", "{}"),
        ("pipeline:phase_failed", r#"{"error":"exit 1","phase":"build"}"#),
        ("pipeline:warned", r#"{"guard":"g","part":"lock db is held"}"#),
        ("pipeline:set", r#"{"vars":{"a":[1,null]}}"#),
        ("pipeline:checkpoint", r#"{"at":7,"message":"half","phase":"build"}"#),
        ("pipeline:complete", "{}"),
        ("pipeline:failed", r#"{"error":"exit 1","phase":"build","recoverable":false}"#),
        ("pipeline:retry", r#"{"phase":"build"}"#),
        ("pipeline:cancelled", r#"{"phase":"build"}"#),
        ("pipeline:cancelled", "{}"),
        ("pipeline:deleted", "{}"),
        ("strategy:fallback", r#"{"error":"exit 1","from":"a","strategy":"s","to":"b"}"#),
        ("strategy:exhausted", r#"{"approach":"b","error":"exit 1","strategy":"s"}"#),
    ] {
        let event = Event::parse(kind, "pipeline", Some("p-1"), data).unwrap();
        assert!(matches!(event, Event::Pipeline { .. }), "{event:?}");
        assert_eq!((event.kind(), event.source(), event.data().as_str()), (kind, ("pipeline", Some("p-1")), data));
    }
    assert!(matches!(Event::parse("pipeline:done", "ci", None, "{}"), Ok(Event::Custom { .. })), "users could write this before");
}
