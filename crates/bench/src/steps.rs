//! The pure machines on one core: steps per second, without a store.

use std::hint::black_box;
use std::time::Duration;

use banksman_core::resource::grant::{Ask, GrantRequest};
use banksman_core::resource::lock::{self, Lock};
use banksman_core::resource::semaphore::{self, Semaphore};
use banksman_core::{Effect, Epoch, HolderId, Lease, Name, Now, ProcessId, Seq, Step};

use crate::bench::{Bench, Result};
use crate::clock;
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;

/// Number of cycles whose inputs are made in advance, so that only steps are timed.
const CYCLES: i64 = 300;
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 5;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (name, holder) = (Name::new("deploy")?, HolderId::new("h-7k2m9q0x")?);
    let (mut locks, mut semaphores) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(ROUNDS) {
        let span = bench.span(ROUND);
        let lock = Lock::new(name.clone());
        let config = semaphore::Config { capacity: 4, ttl: None };
        let semaphore = Semaphore::new(name.clone(), config);
        locks.push(rate(span, lock, |epoch| lock_cycle(&holder, epoch), Lock::step));
        semaphores.push(rate(span, semaphore, |epoch| semaphore_cycle(&holder, epoch), Semaphore::step));
    }
    let row = |what: &str, rates: &[f64]| {
        let row = Row::new(what, Unit::StepsPerSecond, Sample::of(rates));
        row.beside("acquire, heartbeat, release; one core").target(Target::AtLeast(2_000_000.0))
    };
    Ok(vec![row("pure `step` of a lock", &locks), row("pure `step` of a semaphore", &semaphores)])
}

/// The request of the library: one slot, bound to one process, without a lease.
fn ask(holder: &HolderId) -> Box<Ask> {
    let process = ProcessId {
        host: "5f0c1b7e2d9a4c6f".into(),
        boot: "0b6a4d0e-3f57-4a55-9a39-1c2f8e7d6b5a".into(),
        pid_ns: 4_026_531_836,
        pid: 4242,
        start: 123_456,
    };
    let claim = GrantRequest { processes: vec![process], ..GrantRequest::new(holder.clone()) };
    Box::new(Ask::new(claim))
}

fn lock_cycle(holder: &HolderId, epoch: Epoch) -> [lock::Input; 3] {
    [
        lock::Input::Acquire(ask(holder)),
        lock::Input::Heartbeat { holder: holder.clone(), epoch },
        lock::Input::Release { holder: holder.clone(), epoch },
    ]
}

fn semaphore_cycle(holder: &HolderId, epoch: Epoch) -> [semaphore::Input; 3] {
    [
        semaphore::Input::Acquire(ask(holder)),
        semaphore::Input::Heartbeat { holder: holder.clone(), epoch: Some(epoch) },
        semaphore::Input::Release { holder: holder.clone(), epoch: Some(epoch) },
    ]
}

/// Steps per second. `cycle` makes the inputs of one cycle, given the epoch of its grant.
fn rate<M, I, O>(
    span: Duration,
    mut machine: M,
    cycle: impl Fn(Epoch) -> [I; 3],
    step: impl Fn(M, I, &Now) -> Step<M, O>,
) -> f64 {
    let mut now = Now { seq: Seq(1), lease: Lease(1), ..Now::default() };
    let (mut steps, mut spent) = (0.0, 0);
    while spent < clock::nanos(span) {
        // A cycle has two events, its grant and its end; a heartbeat has none.
        let inputs: Vec<I> = (0..CYCLES).flat_map(|index| cycle(Epoch(now.seq.0 + 2 * index))).collect();
        let before = now.seq;
        let start = clock::now();
        for input in inputs {
            let done = step(machine, input, &now);
            let events = done.effects.iter().filter(|effect| matches!(effect, Effect::Emit(_))).count();
            now.seq.0 += i64::try_from(events).expect("a step has few events");
            now.lease.0 += 1;
            black_box((&done.outcome, &done.effects));
            machine = done.state;
            steps += 1.0;
        }
        spent += clock::now() - start;
        assert_eq!(now.seq.0, before.0 + 2 * CYCLES, "no input may be refused");
    }
    steps * 1e9 / spent as f64
}
