//! The rows of queues agree with the pure core: random histories over several connections, with transactions that are lost,
//! on every database.

use banksman_core::queue::{Config, Data, Hold, Input, New, Outcome, Part, Queues, State};
use banksman_core::resource::grant::{Address, WaitingProcess};
use banksman_core::{DedupeKey, Effect, Epoch, HolderId, ItemId, Liveness, Name, Now, ProcessId, Seq, Span, Ticket, queue};
use banksman_engine::{QueueRequest, Reply, Request, Seen};
use banksman_store::{Keep, Key, Store};

use crate::conformance::Dice;
use crate::world::World;

/// The same inputs, decided by the pure core alone, over all rows there are.
struct Model {
    state: Queues,
    seq: i64,
    ticket: i64,
}

impl Model {
    fn decide(&mut self, request: &QueueRequest, reply: &Reply) -> Outcome {
        let Reply::Queue { at, .. } = reply else { unreachable!() };
        let dead = request.seen.probes.iter().filter(|(_, liveness)| *liveness == Liveness::Dead);
        let now = Now {
            seq: Seq(self.seq),
            ticket: Ticket(self.ticket),
            lease: at.lease,
            wall: at.wall,
            dead: dead.map(|(process, _)| process.clone()).collect(),
            patience: Span::ZERO,
        };
        let step = std::mem::take(&mut self.state).step(&request.queue, request.input.clone(), &now);
        self.state = step.state;
        self.state.check();
        self.seq += i64::try_from(step.effects.iter().filter(|effect| matches!(effect, Effect::Emit(_))).count()).unwrap();
        if matches!(&step.outcome, Outcome::Waiting(waiting) if waiting.ticket == now.ticket) {
            self.ticket += 1;
        }
        step.outcome
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn process(number: u64) -> ProcessId {
    ProcessId { host: "h".into(), boot: "b".into(), pid_ns: 1, pid: i32::try_from(number).unwrap() + 1, start: 1 }
}

/// Something to ask of a queue; mostly something that makes sense there.
fn input(dice: &mut Dice, queue: &Name, model: &Model) -> Input {
    let ms = |dice: &mut Dice, most| Span::from_ms(i64::try_from(dice.roll(most)).unwrap());
    let here: Vec<ItemId> = model.state.items.values().filter(|item| item.queue == *queue).map(|item| item.id).collect();
    let item = if here.is_empty() || dice.chance(10) { ItemId(Seq(1)) } else { dice.pick(&here) };
    let held = model.state.items.get(&item).and_then(|item| match &item.state {
        State::Processing(taken) => Some((taken.holder.clone(), taken.epoch)),
        _ => None,
    });
    let (mut holder, mut epoch) = held.unwrap_or((HolderId::new("a").unwrap(), Epoch(model.seq - 1)));
    if dice.chance(8) {
        holder = HolderId::new(dice.pick(&["a", "b"])).unwrap();
    }
    if dice.chance(8) {
        epoch = Epoch(epoch.0 - 1);
    }
    let hold = Hold { item, holder: holder.clone(), epoch };
    let tickets: Vec<Ticket> = model.state.takers.keys().copied().collect();
    let ticket = (!tickets.is_empty() && dice.chance(2)).then(|| dice.pick(&tickets));
    match dice.roll(20) {
        0 => Input::Define(Config {
            visibility_timeout: Span::from_ms(1 + ms(dice, 30).as_ms()),
            max_attempts: 1 + u32::try_from(dice.roll(3)).unwrap(),
            dead_letter: dice.chance(2).then(|| name(dice.pick(&["dead", "one", "nowhere"]))),
            max_length: if dice.chance(3) { 6 } else { 1_000 },
        }),
        1..=6 => Input::Push(
            (0..=dice.roll(3))
                .map(|_| New {
                    data: Data::parse(&format!("{{\"n\":{}}}", dice.roll(100))).unwrap(),
                    priority: i32::try_from(dice.roll(3)).unwrap() - 1,
                    delay: if dice.chance(3) { ms(dice, 20) } else { Span::ZERO },
                    dedupe: dice.chance(3).then(|| DedupeKey::new(dice.pick(&["k", "l"])).unwrap()),
                })
                .collect(),
        ),
        7..=11 => {
            let standing = WaitingProcess {
                process: process(dice.roll(4)),
                address: Some(Address("nobody".into())),
                lease: dice.chance(3).then(|| Span::from_ms(20)),
            };
            Input::Take { holder, wait: dice.chance(3).then_some(standing), ticket }
        }
        12 => Input::Leave { ticket: ticket.unwrap_or(Ticket(1)) },
        13 => Input::Extend(hold, dice.chance(2).then(|| ms(dice, 20))),
        14 | 15 => Input::Complete(hold),
        16 => Input::Fail {
            hold,
            error: "no".into(),
            retry_after: (!dice.chance(10)).then(|| if dice.chance(2) { Span::ZERO } else { ms(dice, 20) }),
        },
        17 => Input::Settle,
        18 => Input::Requeue(item),
        _ if dice.chance(2) => Input::Pause,
        _ => Input::Resume,
    }
}

fn request(dice: &mut Dice, model: &Model) -> QueueRequest {
    let queue = name(dice.pick(&["one", "two", "dead"]));
    let input = input(dice, &queue, model);
    let probes =
        if dice.chance(4) { vec![(process(dice.roll(4)), dice.pick(&[Liveness::Dead, Liveness::Alive]))] } else { vec![] };
    QueueRequest { queue, input, seen: Seen { probes, patience: Span::ZERO } }
}

fn batch(dice: &mut Dice, model: &Model) -> Vec<QueueRequest> {
    // What goes by chunks has a batch of its own: how large a chunk is does not matter to anyone.
    if dice.chance(12) {
        let part = dice.pick(&[Part::Ready, Part::Backoff, Part::Processing, Part::Dead, Part::Moved]);
        let input = if dice.chance(2) { Input::Purge(part, 3) } else { Input::RequeueAll(part, 3) };
        return vec![QueueRequest::new(name(dice.pick(&["one", "two", "dead"])), input)];
    }
    (0..=dice.roll(5)).map(|_| request(dice, model)).collect()
}

pub(crate) fn history(seed: u64, batches: usize) {
    let world = World::new();
    let mut dice = Dice(seed);
    let mut model = Model { state: Queues::default(), seq: 1, ticket: 1 };
    let mut connections: Vec<Store> = (0..3).map(|_| world.project().open_store().unwrap()).collect();
    let mut reader = world.project().reader().unwrap();
    for number in 0..batches {
        let asked = batch(&mut dice, &model);
        let requests: Vec<Request> = asked.iter().cloned().map(Request::Queue).collect();
        let which = usize::try_from(dice.roll(3)).unwrap();
        let open = connections[which].begin(&requests).unwrap();
        if dice.chance(6) {
            drop(open);
            continue;
        }
        let committed = open.commit().unwrap();
        for (request, reply) in asked.iter().zip(&committed.replies) {
            let expected = model.decide(request, reply);
            let Reply::Queue { outcome, .. } = reply else { unreachable!() };
            assert_eq!(*outcome, expected, "seed {seed}, batch {number}: {request:?} of {asked:?}");
        }
        assert_eq!(committed.seq.0 + 1, model.seq, "seed {seed}, batch {number}");
        if dice.chance(10) {
            connections[which].compact(Keep::Last(i64::try_from(dice.roll(8)).unwrap()), |_| {}).unwrap();
            assert_eq!(reader.view().compare_with_log().unwrap(), Vec::<String>::new(), "seed {seed}, batch {number}");
        }
        if dice.chance(10) {
            compare(&mut reader, &model.state, seed);
        }
    }
    compare(&mut reader, &model.state, seed);
    assert_eq!(reader.view().compare_with_log().unwrap(), Vec::<String>::new(), "seed {seed}");
}

fn compare(reader: &mut banksman_store::Reader, model: &queue::Queues, seed: u64) {
    let rows = reader.view().everything().unwrap().queues;
    let takers = reader.view().load(&[Key::AllTakers].into()).unwrap().queues.takers;
    for (id, item) in &rows.items {
        assert_eq!(Some(item), model.items.get(id), "seed {seed}");
    }
    assert_eq!(rows.items.len(), model.items.len(), "seed {seed}");
    assert_eq!((rows.queues, &takers), (model.queues.clone(), &model.takers), "seed {seed}");
}

#[test]
fn random_histories_of_queues_agree_with_the_pure_core() {
    for seed in crate::postgres::seeds(12) {
        history(seed, 150);
    }
}
