use std::collections::BTreeMap;

use crate::event::Event;
use crate::ids::Seq;
use crate::replay::Replay;
use crate::replay::stored::Entity;
use crate::time::Wall;

/// A log whose beginning is replaced by rows, a few events at a time, as the store does it.
#[derive(Default)]
pub(crate) struct Compacted {
    rows: BTreeMap<Entity, String>,
    through: usize,
}

impl Compacted {
    /// Replays the events up to `cut` over the rows that they are about, and no others.
    pub(crate) fn advance(&mut self, log: &[(Seq, Wall, Event)], cut: usize) {
        let part = &log[self.through..cut];
        let entities: std::collections::BTreeSet<Entity> = part.iter().filter_map(|(_, _, event)| Entity::of(event)).collect();
        let mut replay = Replay::default();
        for entity in &entities {
            self.rows.get(entity).into_iter().for_each(|data| replay.restore(entity, data).unwrap());
        }
        part.iter().for_each(|(seq, wall, event)| replay.apply(*seq, *wall, event.clone()));
        for entity in entities {
            match replay.stored(&entity).unwrap() {
                Some(data) => drop(self.rows.insert(entity, data)),
                None => drop(self.rows.remove(&entity)),
            }
        }
        self.through = cut;
    }

    /// The replay of the rows and the rest of the log.
    pub(crate) fn replay(&self, log: &[(Seq, Wall, Event)]) -> Replay {
        let mut replay = Replay::default();
        self.rows.iter().for_each(|(entity, data)| replay.restore(entity, data).unwrap());
        log[self.through..].iter().for_each(|(seq, wall, event)| replay.apply(*seq, *wall, event.clone()));
        replay
    }
}

/// Asserts that every beginning of the log may be replaced by rows, in parts of `stride` events.
pub(crate) fn assert_every_cut(log: &[(Seq, Wall, Event)], stride: usize) {
    let expected = Compacted::default().replay(log);
    let mut compacted = Compacted::default();
    for cut in (0..log.len()).step_by(stride).chain([log.len()]) {
        compacted.advance(log, cut);
        assert_eq!(compacted.replay(log), expected, "the rows up to event {cut} have another replay");
    }
}

/// The tests of the events freeze the specification.
fn without_spec(data: &str) -> serde_json::Value {
    let mut value: serde_json::Value = serde_json::from_str(data).unwrap();
    value.as_object_mut().unwrap().remove("spec");
    value
}

/// Rows of earlier versions must be understood for ever.
#[test]
fn the_stored_form_of_the_rows_is_frozen() {
    let rows = [
        (
            "lock",
            "deploy",
            r#"{"defined":{"ttl":60000},"fence":7,"holders":{"ci":{"claim":{"holder":"ci","weight":2,"request":"r1"},"epoch":7,"acquired":1000}}}"#,
        ),
        ("semaphore", "gpu", r#"{"defined":{"capacity":3},"fence":0,"holders":{}}"#),
        ("section", "s-1", r#"{"name":"back end","exclusive":true,"position":2}"#),
        (
            "task",
            "t-1",
            r#"{"spec":{"title":"build","priority":0,"work":{"run":"make"},"retries":0,"workspace":"none"},"dependsOn":[{"on":"t-0"}],"position":3,"created":1000,"standing":"pending","attempts":0,"failures":0,"recoveries":0}"#,
        ),
        (
            "task",
            "t-2",
            r#"{"spec":{"title":"build","priority":0,"retries":0,"workspace":"none"},"dependsOn":[],"position":3,"created":1000,"standing":{"live":{"run":"r-1","epoch":4,"owner":["m-1",5],"phase":{"stopping":"restart"}}},"attempts":1,"failures":0,"recoveries":1}"#,
        ),
        (
            "task",
            "t-3",
            r#"{"spec":{"title":"build","priority":0,"retries":0,"workspace":"none"},"dependsOn":[],"position":3,"created":1000,"standing":{"done":{"failed":{"error":"exit 1"}}},"attempts":1,"failures":1,"recoveries":0}"#,
        ),
        (
            "queue",
            "q",
            r#"{"config":{"visibilityTimeout":300000,"maxAttempts":3,"deadLetter":"d","maxLength":10},"paused":true}"#,
        ),
        (
            "item",
            "q-7",
            r#"{"queue":"q","data":{"a":[1,null]},"priority":2,"created":1000,"dedupe":"k","attempts":0,"fence":0,"standing":"waiting"}"#,
        ),
        (
            "item",
            "q-8",
            r#"{"queue":"q","data":"x","priority":0,"created":1000,"attempts":2,"fence":9,"standing":{"held":{"holder":"a","epoch":9,"since":2000}},"history":[{"holder":"b","epoch":8,"started":1,"ended":2,"error":"no","timedOut":true}]}"#,
        ),
        (
            "item",
            "q-9",
            r#"{"queue":"d","data":1,"priority":0,"created":1000,"attempts":3,"fence":9,"standing":{"dead":{"reason":"no","at":3000}},"origin":{"queue":"q","reason":"no","at":2000}}"#,
        ),
        ("pipeline", "p-1", r#"{"state":"init","attempt":1,"tasks":0}"#),
        (
            "pipeline",
            "p-2",
            r#"{"state":{"running":{"phase":"build","approach":1,"task":"p-2.2"}},"attempt":2,"context":{"a":1},"checkpoints":[{"message":"half","at":7}],"tasks":2,"failures":{"build":1},"attempts":{"build":2},"isKeeping":true}"#,
        ),
    ];
    for (component, id, data) in rows {
        let entity = Entity { component: component.into(), id: id.into() };
        let mut replay = Replay::default();
        replay.restore(&entity, data).unwrap();
        let again = replay.stored(&entity).unwrap().unwrap();
        assert_eq!(without_spec(&again), without_spec(data));
    }
}

#[test]
fn an_unreadable_row_is_named_in_the_error() {
    let mut replay = Replay::default();
    for (component, id, data) in [("task", "t-1", "{}"), ("ghost", "g", "{}"), ("lock", "", "{}")] {
        let entity = Entity { component: component.into(), id: id.into() };
        let error = replay.restore(&entity, data).unwrap_err().to_string();
        assert!(error.starts_with(&format!("what is kept of {component} {id} cannot be read: ")), "{error}");
    }
    assert_eq!(replay, Replay::default());
}

/// A number that changed a little each time it is read and written would be a difference between log and tables.
#[test]
fn numbers_survive_a_round_trip() {
    let mut state = 1_u64;
    for _ in 0..10_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = f64::from_bits(state);
        if number.is_finite() {
            let text = serde_json::to_string(&number).unwrap();
            assert_eq!(serde_json::from_str::<f64>(&text).unwrap(), number);
        }
    }
}
