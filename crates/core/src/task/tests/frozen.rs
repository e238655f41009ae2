//! The stored forms of a task and its events.

use super::*;
use crate::ids::{Name, SectionId};

/// Stored data must be readable for ever.
#[test]
fn the_stored_form_is_frozen() {
    fn frozen<T: serde::de::DeserializeOwned + Serialize>(text: &str) {
        let value: T = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
    }
    let live = r#"{"run":"r-1","epoch":12,"started":{"lease":5,"wall":6},"seen":{"lease":7,"wall":8}}"#;
    let at = r#"{"lease":5,"wall":6}"#;
    frozen::<State>(r#""pending""#);
    frozen::<State>(r#""review""#);
    frozen::<State>(r#"{"resting":{"until":9000}}"#);
    frozen::<State>(r#"{"awaiting":{"output":{"a":1},"until":9000}}"#);
    frozen::<State>(r#"{"awaiting":{"until":null}}"#);
    frozen::<State>(r#"{"parked":{"decision":"d-7"}}"#);
    frozen::<State>(r#"{"byHand":{"holder":"ann","epoch":12,"until":9000}}"#);
    frozen::<State>(r#"{"byHand":{"holder":"ann","epoch":12,"until":null}}"#);
    frozen::<State>(&format!(r#"{{"running":{live}}}"#));
    for verdict in [r#"{"done":{}}"#, r#"{"done":{"output":{"a":1}}}"#, r#"{"failed":{"error":"bad"}}"#] {
        let said = live.replace(r#"8}}"#, &format!(r#"8}},"verdict":{verdict}}}"#));
        frozen::<State>(&format!(r#"{{"running":{said}}}"#));
    }
    for reason in
        [&*format!(r#"{{"noHeartbeat":{{"lastSeen":{at}}}}}"#), r#"{"noProgress":{"duration":900}}"#, r#""sessionDead""#]
    {
        frozen::<State>(&format!(r#"{{"stuck":{{"live":{live},"detected":{at},"reason":{reason}}}}}"#));
    }
    for then in [
        r#""cancel""#,
        r#""restart""#,
        r#"{"fail":{"error":"bad"}}"#,
        r#"{"escalate":{"error":"bad"}}"#,
        r#"{"overtime":{"max":7000}}"#,
    ] {
        frozen::<State>(&format!(r#"{{"stopping":{{"live":{live},"since":{at},"then":{then}}}}}"#));
    }
    for done in
        [r#"{"success":{}}"#, r#"{"success":{"output":7}}"#, r#"{"failed":{"error":"bad"}}"#, r#""cancelled""#, r#""skipped""#]
    {
        frozen::<State>(&format!(r#"{{"done":{done}}}"#));
    }
    frozen::<Spec>(r#"{"title":"build","priority":0,"retries":0,"workspace":"none"}"#);
    frozen::<Spec>(
        r#"{"title":"w q-3","priority":0,"retries":0,"workspace":"none","item":{"worker":"w","queue":"q","item":"q-3","epoch":4,"attempt":1}}"#,
    );
    frozen::<Spec>(
        r#"{"title":"build","section":"s-1","parent":"t-0","labels":["x"],"priority":-3,"work":{"run":"make"},"needs":[{"lock":"db"},{"slots":{"name":"gpu","weight":2}}],"retries":2,"workspace":"dir"}"#,
    );
    for word in ["warn", "fail", "kill"] {
        frozen::<Spec>(&format!(
            r#"{{"title":"build","priority":0,"retries":0,"restart":{{"maxRestarts":3,"delay":1000,"childWait":300000,"onChildrenTimeout":"{word}"}},"workspace":"none"}}"#
        ));
    }
    let spec: Spec = serde_json::from_str(r#"{"title":"build"}"#).unwrap();
    assert_eq!((spec.priority, spec.retries, spec.restart, spec.workspace), (0, 0, None, WorkspaceSpec::Checkout));
    let need = |text: &str| serde_json::from_str::<Need>(text).unwrap().name().clone();
    assert_eq!(need(r#"{"slots":{"name":"gpu","weight":2}}"#), Name::new("gpu").unwrap());
}

#[test]
fn the_stored_form_of_its_events_is_frozen() {
    let spec = r#"{"priority":0,"retries":0,"title":"build","workspace":"none"}"#;
    let task = TaskId::new("t-1").unwrap();
    for (kind, data) in [
        ("task:added", &*format!(r#"{{"spec":{spec}}}"#)),
        ("task:updated", &format!(r#"{{"dependsOn":[{{"on":"t-0"}},{{"allowFailed":true,"on":"t-2"}}],"spec":{spec}}}"#)),
        ("task:started", r#"{"attempt":0,"run":"r-1","runner":"m"}"#),
        ("task:started", r#"{"attempt":4,"restart":3,"run":"r-1","runner":"m"}"#),
        ("task:adopted", r#"{"from":"m","run":"r-1","runner":"n"}"#),
        ("task:stuck", r#"{"reason":{"noHeartbeat":{"lastSeen":{"lease":5,"wall":6}}},"run":"r-1"}"#),
        ("task:stuck", r#"{"reason":"sessionDead","run":"r-1"}"#),
        ("task:recovered", r#"{"run":"r-1"}"#),
        ("task:stopping", r#"{"run":"r-1","then":"restart"}"#),
        ("task:stopping", r#"{"run":"r-1","then":{"fail":{"error":"bad"}}}"#),
        ("task:stopping", r#"{"run":"r-1","then":{"escalate":{"error":"bad"}}}"#),
        ("task:stopping", r#"{"run":"r-1","then":{"overtime":{"max":7000}}}"#),
        ("task:restarting", r#"{"ending":{"exited":1},"failures":1,"recoveries":0,"run":"r-1","why":"failed"}"#),
        (
            "task:restarting",
            r#"{"ending":{"signalled":9},"error":"bad","failures":1,"recoveries":0,"run":"r-1","why":"overtime"}"#,
        ),
        (
            "task:restarting",
            r#"{"ending":{"notStarted":{"error":"no shell"}},"failures":1,"recoveries":0,"run":"r-1","why":"failed"}"#,
        ),
        ("task:restarting", r#"{"ending":"lost","failures":0,"recoveries":1,"run":"r-1","why":"lost"}"#),
        ("task:restarting", r#"{"ending":{"exited":0},"failures":4,"recoveries":2,"run":"r-1","why":"no_verdict"}"#),
        ("task:restarting", r#"{"ending":{"signalled":15},"failures":0,"recoveries":1,"run":"r-1","why":"stuck"}"#),
        ("task:restarting", r#"{"ending":"never","failures":0,"recoveries":0,"run":"r-1","why":"never"}"#),
        // As stores of version 2 have it.
        ("task:restarting", r#"{"ending":{"exited":1},"run":"r-1"}"#),
        ("task:restarting", r#"{"ending":{"signalled":9},"error":"bad","run":"r-1"}"#),
        ("task:restarting", r#"{"ending":"lost","run":"r-1"}"#),
        ("task:nudged", r#"{"recoveries":1,"run":"r-1"}"#),
        ("task:checkpoint", r#"{"outputBytes":1234,"quiet":900,"run":"r-1"}"#),
        ("task:awaiting", r#"{"children":2,"output":{"a":1},"run":"r-1"}"#),
        ("task:awaiting", r#"{"children":1}"#),
        ("task:ending_children", "{}"),
        ("escalate", r#"{"decision":"d-7","error":"bad","run":"r-1"}"#),
        ("task:taken", r#"{"epoch":12,"holder":"ann"}"#),
        ("task:returned", "{}"),
        ("task:complete", r#"{"run":"r-1","warning":"2 of its children had not ended after 300 s"}"#),
        ("task:complete", r#"{"output":{"a":1},"run":"r-1"}"#),
        ("task:complete", "{}"),
        ("task:failed", r#"{"error":"bad","run":"r-1"}"#),
        ("task:cancelled", r#"{"run":"r-1"}"#),
        ("task:retried", "{}"),
        ("task:marked", r#"{"status":"review"}"#),
        ("task:deleted", "{}"),
    ] {
        let event = Event::parse(kind, "task", Some("t-1"), data).unwrap_or_else(|error| panic!("{kind} {data}: {error:?}"));
        assert_eq!((event.kind(), &*event.data(), event.source()), (kind, data, ("task", Some("t-1"))));
        assert!(matches!(event, Event::Task { id, .. } if id == task));
    }
    for (kind, data) in [
        ("section:added", r#"{"exclusive":true,"name":"back end"}"#),
        ("section:updated", r#"{"exclusive":false,"name":"back end"}"#),
        ("section:deleted", "{}"),
    ] {
        let event = Event::parse(kind, "section", Some("s-1"), data).unwrap();
        assert_eq!((event.kind(), &*event.data(), event.source()), (kind, data, ("section", Some("s-1"))));
        assert!(matches!(event, Event::Section { id, .. } if id == SectionId::new("s-1").unwrap()));
    }
    let question = r#"{"about":{"task":"t-1"},"options":[{"act":"retry","text":"again"}],"recommended":1,"text":"Now?"}"#;
    for (kind, data) in [
        ("decision:raised", question),
        ("decision:raised", &question.replace(r#"{"task":"t-1"}"#, r#"{"errand":7}"#)),
        ("decision:resolved", r#"{"by":"ann","note":"why not","option":1}"#),
        ("decision:resolved", r#"{"by":"ann","option":1}"#),
        ("decision:withdrawn", "{}"),
    ] {
        let event = Event::parse(kind, "decision", Some("d-7"), data).unwrap();
        assert_eq!((event.kind(), &*event.data(), event.source()), (kind, data, ("decision", Some("d-7"))));
        assert!(matches!(event, Event::Decision { id, .. } if id == DecisionId::from(Seq(7))));
    }
    let data = r#"{"blocked":2,"completed":7}"#;
    let event = Event::parse("backlog:finished", "backlog", None, data).unwrap();
    assert_eq!((event.kind(), &*event.data(), event.source()), ("backlog:finished", data, ("backlog", None)));
    assert!(matches!(event, Event::Finished(left) if left.0[&Status::Blocked] == 2));
    for (kind, component) in [("decision:lunch", "user"), ("backlog:finished", "user"), ("backlog:tidied", "user")] {
        let old = Event::parse(kind, component, None, "7").unwrap();
        assert!(matches!(old, Event::Custom { .. }), "users could write this before: {old:?}");
    }
    assert!(Event::parse("task:vanished", "task", Some("t-1"), "{}").is_err());
    assert!(Event::parse("task:retried", "task", None, "{}").is_err());
    let old = Event::parse("section:lunch", "user", None, "7").unwrap();
    assert!(matches!(old, Event::Custom { .. }), "users could write this before there were sections: {old:?}");
}
