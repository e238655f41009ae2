use super::*;

#[test]
fn a_custom_kind_has_two_words_and_no_reserved_category() {
    assert!(CustomKind::new("deploy:done").is_ok());
    for bad in ["deploy", "deploy:", ":done", "a:b:c", "a b:c", "a:\n"] {
        assert!(matches!(CustomKind::new(bad), Err(KindError::Malformed(_))), "{bad:?}");
    }
    assert!(matches!(CustomKind::new("lock:acquired"), Err(KindError::Reserved(_))));
}

/// Stored data must be readable for ever.
#[test]
fn the_stored_form_is_frozen() {
    let data = r#"{"holder":"run:1","ancestors":["me"],"weight":2,"ttl":60000,"maxHold":90000,"processes":[{"host":"h","boot":"b","pidNs":7,"pid":42,"start":9}],"metadata":{"why":"x"},"request":"r1"}"#;
    let event = Event::parse("semaphore:acquired", "semaphore", Some("gpu"), data).unwrap();
    assert_eq!(event.data(), data);
    assert_eq!((event.kind(), event.source(), event.request()), ("semaphore:acquired", ("semaphore", Some("gpu")), Some("r1")));

    let data = r#"{"holder":"a","epoch":7,"reason":"max_hold"}"#;
    assert_eq!(Event::parse("lock:reclaimed", "lock", Some("db"), data).unwrap().data(), data);
    let data = r#"{"holder":"a","epoch":7,"forced":{"user":"root","host":"box","pid":3}}"#;
    assert_eq!(Event::parse("lock:released", "lock", Some("db"), data).unwrap().data(), data);
    let data = r#"{"capacity":3,"ttl":1000}"#;
    assert_eq!(Event::parse("semaphore:defined", "semaphore", Some("gpu"), data).unwrap().data(), data);
    let data = r#"{"import":"i-1","spec":{"priority":0,"retries":0,"title":"a","workspace":"none"}}"#;
    assert_eq!(Event::parse("task:added", "task", Some("t-1"), data).unwrap().data(), data);
    for (kind, data) in [("import:opened", r#"{"tasks":3}"#), ("import:finished", r#"{"tasks":3}"#), ("import:dropped", "{}")] {
        let event = Event::parse(kind, "import", Some("i-1"), data).unwrap();
        assert_eq!((event.kind(), event.source(), event.data().as_str()), (kind, ("import", Some("i-1")), data));
    }
    let data = r#"{"maxConcurrentRuns":4,"maxConcurrentRootTasks":0}"#;
    let limits = Event::parse("limits:set", "limits", None, data).unwrap();
    assert_eq!((&limits, limits.data().as_str()), (&Event::Limits(Limits { runs: 4, roots: 0 }), data));
    assert!(matches!(Event::parse("limits:set", "ci", None, "{}"), Ok(Event::Custom { .. })), "users could write this before");
    for (kind, component, id, data) in [
        ("backlog:paused", "backlog", None, r#"{"verb":"stop","by":"ann","at":7}"#),
        ("backlog:resumed", "backlog", None, r#"{"by":"ann"}"#),
        ("task:paused", "task", Some("t-1"), r#"{"at":7,"by":"ann","verb":"stop"}"#),
        ("task:resumed", "task", Some("t-1"), r#"{"by":"ann"}"#),
        ("task:stopping", "task", Some("t-1"), r#"{"run":"r-1","then":{"putBack":{"now":true}}}"#),
    ] {
        let event = Event::parse(kind, component, id, data).unwrap();
        assert_eq!((event.kind(), event.source(), event.data()), (kind, (component, id), data.to_owned()));
    }
    // Users could write this before there were imports.
    assert!(matches!(Event::parse("import:done", "ci", None, "{}"), Ok(Event::Custom { .. })));
    assert!(Event::parse("lock:vanished", "lock", Some("db"), "{}").is_err());
}
