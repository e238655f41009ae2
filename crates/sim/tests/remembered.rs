//! What a history found once, told again in a few lines: a seed means something else after the next change here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use banksman_core::claim::{Ask, Claim, Standing};
use banksman_core::coordination::{Command, Outcome};
use banksman_core::{Epoch, HolderId, Name, ProcessId, RequestId, Span, Ticket, lock};
use banksman_engine::{Reply, Request};
use banksman_store::{Machine, Reading, Store, sqlite};

/// A machine whose clock is set by hand.
#[derive(Clone, Default)]
struct ByHand(Arc<AtomicI64>);

impl Machine for ByHand {
    fn host(&self) -> String {
        "host".into()
    }

    fn boot(&self) -> String {
        "boot".into()
    }

    fn read(&self) -> Reading {
        Reading { monotonic_ms: self.0.load(Ordering::Relaxed), wall_ms: 0 }
    }
}

fn ask(store: &mut Store, input: lock::Input) -> lock::Outcome {
    let request = Request::plain(Command::Lock(Name::new("a").expect("a good name"), input));
    let committed = store.begin(&[request]).and_then(banksman_store::Open::commit).expect("the store works");
    match committed.replies.into_iter().next() {
        Some(Reply::Coordinate { outcome: Outcome::Lock(outcome), .. }) => outcome,
        other => unreachable!("a lock was asked, and {other:?} was the answer"),
    }
}

/// How long a place in line lasts without a look.
const PLACE: Span = Span::from_secs(15);

/// A request, bound to the process that makes it, that waits if it must.
fn acquire(holder: &str, request: &str, pid: i32) -> lock::Input {
    let process = ProcessId { host: "host".into(), boot: "boot".into(), pid_ns: 1, pid, start: 1 };
    let claim = Claim {
        holder: HolderId::new(holder).expect("a good name"),
        ancestors: Vec::new(),
        weight: 1,
        ttl: None,
        max_hold: None,
        processes: vec![process.clone()],
        metadata: None,
        request: Some(RequestId::new(request).expect("a good name")),
    };
    let wait = Some(Standing { process, address: None, lease: Some(PLACE) });
    lock::Input::Acquire(Box::new(Ask { claim, fallback_ttl: None, epoch: None, granted_before: None, wait }))
}

/// A process died while it stood in line, and its successor repeated the request: the place was the successor's,
/// but the row was still bound to the dead one, so that the next in line would have taken the lock from the living.
#[test]
fn a_place_taken_over_is_bound_to_the_process_that_took_it_over() {
    let mut store = sqlite::memory(Box::new(ByHand::default())).expect("a store in memory");
    let first = ask(&mut store, acquire("first", "r1", 1));
    let epoch = if let lock::Outcome::Acquired(grant) = first { grant.epoch } else { Epoch(0) };
    ask(&mut store, acquire("second", "r2", 2));
    ask(&mut store, acquire("second", "r2", 3));
    ask(&mut store, lock::Input::Release { holder: HolderId::new("first").expect("a good name"), epoch });
    let snapshot = store.view().snapshot().expect("the store works");
    let pids = |lock: &lock::Lock| match &lock.state {
        lock::State::Held(grant) => grant.claim.processes.iter().map(|process| process.pid).collect(),
        lock::State::Free => Vec::new(),
    };
    assert_eq!(snapshot.coordination.locks.values().flat_map(pids).collect::<Vec<_>>(), [3]);
}

/// A waiter whose place has a lease looked, and was told that it waits; but the look was not written down, so that its
/// place was gone as soon as the lease was over, however often it had looked.
#[test]
fn a_place_lasts_for_as_long_as_its_waiter_looks() {
    let clock = ByHand::default();
    let mut store = sqlite::memory(Box::new(clock.clone())).expect("a store in memory");
    ask(&mut store, acquire("first", "r1", 1));
    ask(&mut store, acquire("second", "r2", 2));
    for _ in 0..5 {
        clock.0.fetch_add(PLACE.as_ms() / 2, Ordering::Relaxed);
        let outcome = ask(&mut store, lock::Input::Look { ticket: Ticket(1) });
        assert!(matches!(outcome, lock::Outcome::Waiting(_)), "{outcome:?}");
    }
}
