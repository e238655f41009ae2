//! The store agrees with the pure core: random histories over several connections, with transactions that are lost,
//! on every database.

use banksman_core::resource::coordination::{Command, Coordination, Outcome};
use banksman_core::resource::grant::{Address, Ask, GrantRequest, Term, WaitingProcess};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{Effect, Epoch, HolderId, Liveness, Name, Now, ProcessId, RequestId, Seq, Span, Ticket};
use banksman_engine::{Reply, Request, Seen};
use banksman_store::{Keep, Store};

use crate::dice::Dice;
use crate::world::World;

/// Decides the same commands with the pure core alone.
struct Model {
    state: Coordination,
    seq: i64,
    ticket: i64,
    requests: std::collections::BTreeMap<RequestId, Epoch>,
}

impl Model {
    fn decide(&mut self, request: &Request, reply: &Reply) -> Outcome {
        let (Request::Coordinate { command, seen }, Reply::Coordinate { outcome, at }) = (request, reply) else { unreachable!() };
        let dead =
            seen.probes.iter().filter(|(_, liveness)| *liveness == Liveness::Dead).map(|(process, _)| process.clone()).collect();
        let now = Now {
            seq: Seq(self.seq),
            ticket: Ticket(self.ticket),
            lease: at.lease,
            wall: at.wall,
            dead,
            patience: seen.patience,
        };
        let mut command = command.clone();
        if let Command::Lock(_, lock::Input::Acquire(ask)) | Command::Semaphore(_, semaphore::Input::Acquire(ask)) = &mut command
        {
            ask.granted_before = ask.claim.request.as_ref().and_then(|request| self.requests.get(request).copied());
        }
        let step = std::mem::take(&mut self.state).handle(command, &now);
        self.state = step.state;
        for effect in &step.effects {
            if let Effect::Emit(event) = effect {
                if let Some(request) = event.request() {
                    self.requests.insert(RequestId::new(request).unwrap(), Epoch(self.seq));
                }
                self.seq += 1;
            }
        }
        let waits = |ticket: Ticket| ticket.0 == self.ticket;
        let has_taken_ticket = match outcome {
            Outcome::Lock(lock::Outcome::Waiting(waiting)) => waits(waiting.ticket),
            Outcome::Semaphore(semaphore::Outcome::Waiting(waiting)) => waits(waiting.ticket),
            _ => false,
        };
        self.ticket += i64::from(has_taken_ticket);
        step.outcome
    }

    /// The number of an epoch that may exist.
    fn number(&self, dice: &mut Dice) -> i64 {
        let newest = self.seq.max(2);
        newest - 1 - i64::try_from(dice.roll(6)).unwrap().min(newest - 1)
    }
}

fn process(number: u64) -> ProcessId {
    ProcessId { host: "h".into(), boot: "b".into(), pid_ns: 1, pid: i32::try_from(number).unwrap(), start: 1 }
}

fn request(dice: &mut Dice, model: &Model) -> Request {
    let holder = HolderId::new(&format!("h{}", dice.roll(4))).unwrap();
    let epoch = Epoch(model.number(dice));
    let ticket = Ticket((model.ticket - 1 - i64::try_from(dice.roll(4)).unwrap()).max(1));
    let ask = |dice: &mut Dice, weight: u32| {
        let number = dice.roll(5);
        let claim = GrantRequest {
            holder: holder.clone(),
            ancestors: if dice.chance(5) { vec![HolderId::new("h0").unwrap()] } else { Vec::new() },
            weight,
            ttl: dice.chance(2).then(|| Span::from_ms(i64::try_from(dice.roll(30)).unwrap() + 1)),
            max_hold: dice.chance(6).then(|| Span::from_ms(20)),
            processes: if dice.chance(2) { vec![process(number)] } else { Vec::new() },
            metadata: dice.chance(4).then(|| serde_json::json!({ "n": number })),
            request: dice.chance(4).then(|| RequestId::new(&format!("{}-{}", holder, dice.roll(40))).unwrap()),
        };
        let waiting_process = WaitingProcess {
            process: process(number),
            address: Some(Address("c/k".into())),
            lease: dice.chance(3).then(|| Span::from_ms(50)),
        };
        Box::new(Ask {
            claim,
            term: if dice.chance(9) { Term::Open } else { Term::Usual(dice.chance(2).then(|| Span::from_ms(1_000))) },
            epoch: dice.chance(6).then_some(epoch),
            granted_before: None,
            wait: (!dice.chance(4)).then_some(waiting_process),
            anew: dice.chance(4),
        })
    };
    let by = banksman_core::event::Forced { user: "u".into(), host: "h".into(), pid: 1 };
    let command = if dice.chance(2) {
        let name = Name::new(dice.pick(&["a", "b"])).unwrap();
        let input = match dice.roll(12) {
            0 => lock::Input::Define(lock::Config { ttl: dice.chance(2).then(|| Span::from_ms(40)), max_hold: None }),
            1..=4 => lock::Input::Acquire(ask(dice, 1)),
            5 | 6 => lock::Input::Poll { ticket },
            7 => lock::Input::Leave { ticket },
            8 => lock::Input::Heartbeat { holder, epoch },
            9 | 10 => lock::Input::Release { holder, epoch },
            _ if dice.chance(2) => lock::Input::Force { by },
            _ => lock::Input::Reap,
        };
        Command::Lock(name, input)
    } else {
        let name = Name::new(dice.pick(&["s", "t"])).unwrap();
        let epoch = dice.chance(2).then_some(epoch);
        let weight = u32::try_from(dice.roll(4)).unwrap();
        let input = match dice.roll(12) {
            0 => semaphore::Input::Define(semaphore::Config {
                capacity: weight + 1,
                ttl: dice.chance(2).then(|| Span::from_ms(40)),
            }),
            1..=4 => semaphore::Input::Acquire(ask(dice, weight)),
            5 | 6 => semaphore::Input::Poll { ticket },
            7 => semaphore::Input::Leave { ticket },
            8 => semaphore::Input::Heartbeat { holder, epoch },
            9 | 10 => semaphore::Input::Release { holder, epoch },
            _ if dice.chance(2) => semaphore::Input::Force { holder, by },
            _ => semaphore::Input::Reap,
        };
        Command::Semaphore(name, input)
    };
    let probes = (0..dice.roll(3))
        .map(|_| (process(dice.roll(5)), dice.pick(&[Liveness::Dead, Liveness::Alive, Liveness::Unknown])))
        .collect();
    Request::Coordinate { command, seen: Seen { probes, patience: Span::ZERO } }
}

pub(crate) fn history(seed: u64, batches: usize) {
    let world = World::new();
    let mut dice = Dice(seed);
    let mut model = Model { state: Coordination::default(), seq: 1, ticket: 1, requests: Default::default() };
    let mut connections: Vec<Store> = (0..3).map(|_| world.project().open_store().unwrap()).collect();
    let mut reader = world.project().reader().unwrap();
    for batch in 0..batches {
        let requests: Vec<Request> = (0..=dice.roll(4)).map(|_| request(&mut dice, &model)).collect();
        let number = usize::try_from(dice.roll(3)).unwrap();
        let open = connections[number].begin(&requests).unwrap();
        if dice.chance(5) {
            // A crash before the commit; sometimes the connection is lost too.
            drop(open);
            if dice.chance(2) {
                connections[number] = world.project().open_store().unwrap();
            }
            continue;
        }
        let committed = open.commit().unwrap();
        for (request, reply) in requests.iter().zip(&committed.replies) {
            if matches!(reply, Reply::RequestReused) {
                continue;
            }
            let expected = model.decide(request, reply);
            let Reply::Coordinate { outcome, .. } = reply else { unreachable!() };
            assert_eq!(*outcome, expected, "seed {seed}, batch {batch}: {request:?}");
        }
        assert_eq!(committed.seq.0 + 1, model.seq, "seed {seed}, batch {batch}");
        if dice.chance(8) {
            // A request id is known as long as its event is in the log.
            let keep = Keep::Last(i64::try_from(dice.roll(8)).unwrap());
            let through = connections[number].compact(keep, |_| {}).unwrap().mark.through;
            model.requests.retain(|_, epoch| *epoch > Epoch::from(through));
            assert_eq!(reader.view().compare_with_log().unwrap(), Vec::<String>::new(), "seed {seed}, batch {batch}");
        }
        if dice.chance(8) {
            compare(&reader.view().snapshot().unwrap().coordination, &model.state, seed);
        }
    }
    compare(&reader.view().snapshot().unwrap().coordination, &model.state, seed);
    assert_eq!(reader.view().compare_with_log().unwrap(), Vec::<String>::new(), "seed {seed}");
}

/// Compares the rows with the model, except locks in their initial state: a lock that was only queried leaves no row, one whose
/// defaults were removed leaves one.
fn compare(rows: &Coordination, model: &Coordination, seed: u64) {
    let known = |all: &Coordination| {
        let mut all = all.clone();
        all.locks.retain(|name, row| *row != lock::Lock::new(name.clone()));
        all
    };
    assert_eq!(known(rows), known(model), "seed {seed}");
}

#[test]
fn random_histories_agree_with_the_pure_core() {
    for seed in crate::postgres::seeds(12) {
        history(seed, 120);
    }
}
