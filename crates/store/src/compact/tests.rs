use banksman_core::event::{CustomKind, Defined, Fact};
use banksman_core::event::{Event, Kind, Resource, Source};
use banksman_core::{Effect, Name};

use super::*;
use crate::call::{Call, Tx};
use crate::key::Key;
use crate::sqlite;
use crate::test_support::ManualMachine;

/// Writes these events.
struct WriteEvents(Vec<Event>);

impl Call for WriteEvents {
    type Reply = ();

    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }

    fn decide(&self, tx: &mut Tx) {
        tx.carry_out(self.0.iter().cloned().map(Effect::Emit).collect(), false);
    }
}

fn write(store: &mut Store, events: Vec<Event>) {
    store.batch(&[WriteEvents(events)]).into_iter().for_each(|committed| drop(committed.unwrap()));
}

fn defined(capacity: u32) -> Event {
    let resource = Resource { kind: Kind::Semaphore, name: Name::new("gpu").unwrap() };
    Event::Resource { resource, fact: Fact::Defined(Defined { capacity: Some(capacity), ttl: None, max_hold: None }) }
}

fn custom(bytes: usize) -> Event {
    let source = Source { component: "user".into(), id: None };
    Event::Custom { kind: CustomKind::new("a:b").unwrap(), source, data: "x".repeat(bytes).into() }
}

/// Of two concurrent compactions, the slower one changes nothing: the rows that it computed are outdated.
#[test]
fn an_overtaken_step_changes_nothing() {
    let mut store = sqlite::memory(Box::new(ManualMachine::at(1_000))).unwrap();
    write(&mut store, vec![defined(1), defined(2), defined(3), custom(1)]);
    let limit = Limit { through: Seq(1), before: Wall(i64::MAX), unheard: None };
    let part = store.view().part(Mark::default(), &limit).unwrap().unwrap();
    let rows = store.view().rows_after(&part).unwrap();

    assert_eq!(store.compact(Keep::Last(1), |_| {}).unwrap().events, 3);
    assert!(!store.replace(&part, &rows).unwrap());
    let baseline = store.view().baseline().unwrap();
    assert_eq!((baseline.mark.through, baseline.rows.len()), (Seq(3), 1));
    assert!(baseline.rows[0].1.contains(r#""capacity":3"#), "{:?}", baseline.rows);
}

#[test]
fn steps_stay_small_when_events_are_large() {
    let mut store = sqlite::memory(Box::new(ManualMachine::at(1_000))).unwrap();
    write(&mut store, (0..10).map(|_| custom(STEP_BYTES / 2 - 100)).chain([custom(2 * STEP_BYTES), custom(1)]).collect());
    let mut steps = Vec::new();
    store.compact(Keep::Last(1), |so_far| steps.push(so_far.mark.through.0)).unwrap();
    assert_eq!(steps, [2, 4, 6, 8, 10, 11]);
}

#[test]
fn an_empty_log_and_a_single_event_are_not_compacted() {
    let mut store = sqlite::memory(Box::new(ManualMachine::at(1_000))).unwrap();
    for keep in [Keep::Last(1), Keep::Last(0), Keep::Last(i64::MAX), Keep::For(Span::ZERO)] {
        assert_eq!(store.compact(keep, |_| {}).unwrap(), Compacted::default());
    }
    write(&mut store, vec![defined(1)]);
    for keep in [Keep::Last(1), Keep::Last(0), Keep::Last(i64::MAX), Keep::For(Span::ZERO)] {
        assert_eq!(store.compact(keep, |_| {}).unwrap(), Compacted::default());
    }
}
