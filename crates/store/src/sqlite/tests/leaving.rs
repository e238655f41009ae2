//! Closing a store.

use std::path::Path;

use banksman_core::{Effect, Event};

use crate::call::{Call, Tx};
use crate::identity::StoreId;
use crate::key::Key;
use crate::sqlite::writer_lock::recorded;
use crate::sqlite::{CHECKPOINT_WHEN_LEAVING, create, open};
use crate::test_support::ManualMachine;

/// Writes an event of this many bytes.
struct Write(usize);

impl Call for Write {
    type Reply = ();

    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }

    fn decide(&self, tx: &mut Tx) {
        let data = format!("\"{}\"", "x".repeat(self.0));
        let event = Event::parse("note:made", "note", None, &data).unwrap();
        tx.carry_out(vec![Effect::Emit(event)], false);
    }
}

fn log_length(store: &Path) -> u64 {
    store.with_file_name("store.db-wal").metadata().map_or(0, |log| log.len())
}

#[test]
fn only_the_last_process_to_close_checkpoints_a_long_log() {
    let dir = tempfile::tempdir().unwrap();
    let (path, turn) = (dir.path().join("store.db"), dir.path().join("turn"));
    create(&path, "p", &StoreId::new("s-1"), &ManualMachine::at(1_000)).unwrap();
    let mut first = open(&path, &turn, Box::new(ManualMachine::at(1_000))).unwrap();
    first.batch(&[Write(1)]).pop().unwrap().unwrap();
    drop(first);
    let short = log_length(&path);
    assert!(short > 0, "a short log is left to the next process");

    let mut first = open(&path, &turn, Box::new(ManualMachine::at(1_000))).unwrap();
    let second = open(&path, &turn, Box::new(ManualMachine::at(1_000))).unwrap();
    first.batch(&[Write(2 * CHECKPOINT_WHEN_LEAVING as usize)]).pop().unwrap().unwrap();
    drop(first);
    assert!(log_length(&path) > CHECKPOINT_WHEN_LEAVING, "another connection is still open");
    drop(second);
    assert_eq!(log_length(&path), 0);
    let last = open(&path, &turn, Box::new(ManualMachine::at(1_000))).unwrap().batch(&[Write(1)]).pop().unwrap().unwrap().seq;
    assert_eq!(last.0, 3, "nothing is lost");
}

#[test]
fn closing_a_store_records_the_last_event() {
    let dir = tempfile::tempdir().unwrap();
    let (path, turn) = (dir.path().join("store.db"), dir.path().join("turn"));
    create(&path, "p", &StoreId::new("s-1"), &ManualMachine::at(1_000)).unwrap();
    let mut first = open(&path, &turn, Box::new(ManualMachine::at(1_000))).unwrap();
    let mut second = open(&path, &turn, Box::new(ManualMachine::at(1_000))).unwrap();
    (0..3).for_each(|_| drop(first.batch(&[Write(1)]).pop().unwrap().unwrap()));
    second.batch(&[Write(1)]).pop().unwrap().unwrap();
    assert_eq!(recorded(&turn, "s-1"), Some(4), "the first event of a connection is recorded at once");
    drop(first);
    assert_eq!(recorded(&turn, "s-1"), Some(4), "the recorded event does not go back");
    (0..3).for_each(|_| drop(second.batch(&[Write(1)]).pop().unwrap().unwrap()));
    drop(second);
    assert_eq!(recorded(&turn, "s-1"), Some(7));
}
