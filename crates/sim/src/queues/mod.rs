//! Queues: processes that wait for items, take them, work, stall and die; people who push, pause and requeue.
//!
//! The checkers are a model of its own and the pure core, both in `ledger`.

mod ledger;

use banksman_core::queue::{Config, Data, Hold, Input, New, Outcome, Part, State, Waiting};
use banksman_core::resource::grant::{Address, WaitingProcess};
use banksman_core::{DedupeKey, HolderId, Liveness, Name, ProcessId, Span};
use banksman_engine::{QueueRequest, Reply, Request, TakeAction, TakingItem};
use banksman_store::Key;

use self::ledger::Ledger;
use crate::clock::Ms;
use crate::commit::{CommittedCall, Heard, InFlight, Sender};
use crate::random::Random;
use crate::report::Checker;
use crate::world::World;

/// How often a taker polls.
const POLL: Ms = 60_000;

/// The visibility timeout of items.
const VISIBILITY: Ms = 2_000;

/// The takers of a history, and the model of their queues.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) takers: Vec<Taker>,
    ledger: Ledger,
    /// When a person pushes, pauses or requeues next.
    user_at: Ms,
    /// How many takers there have been.
    lives: u32,
}

/// A process that takes items and works on them.
pub(crate) struct Taker {
    process: ProcessId,
    name: String,
    taking: TakingItem,
    doing: Doing,
}

enum Doing {
    /// It waits for a reply, which is about this item if there is one.
    Calling(Option<Hold>),
    /// It waits for an item.
    Sleeping { until: Ms, watch: Option<ProcessId>, waiting: Waiting },
    /// It works on an item.
    Working { hold: Hold, until: Ms },
    /// It can act at once.
    Ready,
}

fn queue() -> Name {
    Name::new("tq").expect("a plain word")
}

/// Whether it is a queue of takers, not of workers.
pub(crate) fn is_of_takers(name: &Name) -> bool {
    *name == queue() || *name == dead_letters()
}

fn dead_letters() -> Name {
    Name::new("td").expect("a plain word")
}

impl Taker {
    fn new(process: ProcessId, number: u32) -> Taker {
        let name = format!("taker{number}");
        let holder = HolderId::new(&name).expect("a plain word");
        let waiting = WaitingProcess { process: process.clone(), address: Some(Address(name.as_str().into())), lease: None };
        let taking = TakingItem::new(queue(), holder, Some(waiting), Span::from_ms(POLL));
        Taker { process, name, taking, doing: Doing::Ready }
    }

    /// Starts to take the next item.
    fn start_over(&mut self, number: u32) {
        *self = Taker::new(self.process.clone(), number);
    }

    /// When it acts by itself.
    pub(crate) fn due(&self) -> Option<Ms> {
        match &self.doing {
            Doing::Calling(_) => None,
            Doing::Sleeping { until, .. } | Doing::Working { until, .. } => Some(*until),
            Doing::Ready => Some(0),
        }
    }
}

impl World<'_> {
    pub(crate) fn set_up_queues(&mut self, takers: usize) {
        let config = |dead_letter| Config {
            visibility_timeout: Span::from_ms(VISIBILITY),
            max_attempts: 3,
            dead_letter,
            max_length: 1_000,
        };
        self.operate_queue(dead_letters(), Input::Define(config(None)));
        self.operate_queue(queue(), Input::Define(config(Some(dead_letters()))));
        for _ in 0..takers {
            let taker = self.new_taker();
            self.queues.takers.push(taker);
        }
    }

    fn operate_queue(&mut self, name: Name, input: Input) {
        self.operate(Request::Queue(QueueRequest::new(name, input)));
    }

    fn new_taker(&mut self) -> Taker {
        self.queues.lives += 1;
        Taker::new(self.machine.fork(), self.queues.lives)
    }

    /// When the next request of a person is due, unless the history is ending.
    pub(crate) fn queue_user_due(&self) -> Option<Ms> {
        (!self.queues.takers.is_empty() && !self.is_quiescing).then_some(self.queues.user_at)
    }

    /// A person pushes, pauses, resumes or requeues. A lost reply is not repeated: the request may or may not have
    /// taken effect.
    pub(crate) fn act_queue_user(&mut self) {
        self.queues.user_at = self.clock.now() + self.random.between(1, 250);
        let new = |random: &mut Random| New {
            data: Data::parse("1").expect("it is JSON"),
            priority: i32::try_from(random.below(3)).expect("small"),
            delay: Span::from_ms(if random.in_thousand(700) { 0 } else { random.between(1, 3_000) }),
            // Some are pushed twice.
            dedupe: random.in_thousand(300).then(|| DedupeKey::new(["a", "b", "c"][random.below(3)]).expect("a plain word")),
        };
        let (name, input) = match self.random.below(12) {
            0 => (queue(), Input::Pause),
            1 | 2 => (queue(), Input::Resume),
            3 => (dead_letters(), Input::RequeueAll(Part::Moved, 5)),
            _ => {
                let count = 1 + self.random.below(3);
                (queue(), Input::Push((0..count).map(|_| new(&mut self.random)).collect()))
            }
        };
        let request = Request::Queue(QueueRequest::new(name, input));
        self.calls.push(InFlight { from: Sender::Nobody, requests: vec![request] });
    }

    /// Executes what is due for a taker.
    pub(crate) fn act_taker(&mut self, slot: usize) {
        let (request, hold) = match &self.queues.takers[slot].doing {
            Doing::Working { hold, .. } => {
                let hold = hold.clone();
                let input = self.end_of_work(&hold);
                (Request::Queue(QueueRequest::new(queue(), input)), Some(hold))
            }
            Doing::Sleeping { .. } | Doing::Ready | Doing::Calling(_) => (self.queues.takers[slot].taking.request(), None),
        };
        if matches!(self.queues.takers[slot].doing, Doing::Sleeping { .. }) {
            self.tally.count("slow looks");
        }
        self.queues.takers[slot].doing = Doing::Calling(hold);
        self.calls.push(InFlight { from: Sender::Taker(slot), requests: vec![request] });
    }

    fn end_of_work(&mut self, hold: &Hold) -> Input {
        let hold = hold.clone();
        match self.random.below(if self.is_quiescing { 1 } else { 10 }) {
            0..6 => Input::Complete(hold),
            6..8 => {
                let delay = Span::from_ms(if self.random.in_thousand(500) { 0 } else { self.random.between(1, 3_000) });
                let retry_after = (!self.random.in_thousand(50)).then_some(delay);
                Input::Fail { hold, error: "no".into(), retry_after }
            }
            _ => Input::Extend(hold, None),
        }
    }

    /// A process dies. Another takes its place, and processes that watch it are notified.
    pub(crate) fn kill_taker(&mut self, slot: usize) {
        let new = self.new_taker();
        let dead = std::mem::replace(&mut self.queues.takers[slot], new);
        self.machine.exit(&dead.process);
        self.calls.retain(|call| call.from != Sender::Taker(slot));
        self.tally.count("deaths");
        self.say(format_args!("{} dies", dead.name));
        for taker in &mut self.queues.takers {
            let Doing::Sleeping { watch: Some(watched), waiting, .. } = &taker.doing else { continue };
            if *watched == dead.process {
                let action = taker.taking.probed(watched.clone(), Liveness::Dead, waiting.clone());
                debug_assert_eq!(action, TakeAction::Ask);
                taker.doing = Doing::Ready;
            }
        }
    }

    pub(crate) fn wake_takers(&mut self, address: &Address) {
        for taker in &mut self.queues.takers {
            if *taker.name == *address.0 && matches!(taker.doing, Doing::Sleeping { .. }) {
                taker.doing = Doing::Ready;
                self.tally.count("wake-ups");
            }
        }
    }

    pub(crate) fn on_taker_reply(&mut self, slot: usize, heard: Heard) {
        let now = self.clock.now();
        let Doing::Calling(hold) = std::mem::replace(&mut self.queues.takers[slot].doing, Doing::Ready) else { return };
        let reply = match heard {
            Heard::Replies(replies) => replies.into_iter().next().expect("one request has one reply"),
            // The taker does not know what has happened, so it exits.
            Heard::Unknown => return self.kill_taker(slot),
        };
        match (hold, reply) {
            (Some(hold), Reply::Queue { outcome: Outcome::Extended { .. }, .. }) => {
                let until = now + self.random.between(1, VISIBILITY);
                self.queues.takers[slot].doing = Doing::Working { hold, until };
            }
            // The item is settled or lost, and the taker takes the next one.
            (Some(_), _) => {
                self.queues.lives += 1;
                let number = self.queues.lives;
                self.queues.takers[slot].start_over(number);
            }
            (None, reply) => self.queues.takers[slot].doing = self.after_take(slot, reply),
        }
    }

    /// The next action of a taker after a reply.
    fn after_take(&mut self, slot: usize, reply: Reply) -> Doing {
        let now = self.clock.now();
        let mut action = self.queues.takers[slot].taking.answer(reply);
        if let TakeAction::Probe(process, waiting) = action {
            let liveness = self.machine.probe(&process);
            action = self.queues.takers[slot].taking.probed(process, liveness, waiting);
        }
        // A taker that starts to watch a process which has died meanwhile notices that at once.
        if let TakeAction::Sleep { watch: Some(process), waiting, .. } = &action
            && !self.machine.lives(process)
        {
            action = self.queues.takers[slot].taking.probed(process.clone(), Liveness::Dead, waiting.clone());
        }
        match action {
            TakeAction::Sleep { watch, at_most, waiting } => Doing::Sleeping { until: now + at_most.as_ms() + 1, watch, waiting },
            TakeAction::Done(Reply::Queue { outcome: Outcome::Taken(item), .. }) => {
                let State::Processing(taken) = &item.state else { unreachable!("it was just taken") };
                let hold = Hold { item: item.id, holder: taken.holder.clone(), epoch: taken.epoch };
                // Some work for longer than the visibility timeout.
                let most = if self.is_quiescing { VISIBILITY / 2 } else { VISIBILITY * 3 / 2 };
                self.tally.count("takes");
                Doing::Working { hold, until: now + self.random.between(1, most) }
            }
            TakeAction::Ask | TakeAction::Done(_) | TakeAction::Probe(..) => Doing::Ready,
        }
    }

    /// Feeds a committed call to the ledger.
    pub(crate) fn observe_queues(&mut self, call: &CommittedCall<'_>) {
        if let Request::Queue(request) = call.request
            && is_of_takers(&request.queue)
        {
            self.queues.ledger.observe(request, call.reply, call.note, &mut self.verdict);
        }
    }

    /// The faults are over: every acknowledged item gets completed or dead, and a push wakes the waiters.
    pub(crate) fn quiesce_queues(&mut self) {
        if self.queues.takers.is_empty() {
            return;
        }
        // A pause that is still on its way would stay.
        self.calls.retain(|call| call.from != Sender::Nobody);
        self.operate_queue(queue(), Input::Resume);
        self.run_until(|world| world.is_drained());
        let left: Vec<_> = self.queues.ledger.acknowledged.difference(&self.queues.ledger.completed).copied().collect();
        for id in left {
            // No taker takes from the dead-letter queue here.
            let is_dead = self.queues.ledger.model.items.get(&id).is_some_and(|item| item.queue == dead_letters());
            let is_there = self.store.view().load(&[Key::Item(id)].into()).is_ok_and(|rows| rows.queues.items.contains_key(&id));
            self.verdict
                .expect(Checker::Left, is_dead && is_there, || format!("{id} was acknowledged, and is neither done nor dead"));
        }
        // Every taker polls once more, since wake-ups were lost. After that no poll is due before the deadline.
        self.clock.advance(POLL + 1);
        self.run_until(|world| world.is_drained());
        let deadline = self.clock.now() + POLL / 2;
        let new = || New { data: Data::parse("2").expect("it is JSON"), priority: 0, delay: Span::ZERO, dedupe: None };
        self.operate_queue(queue(), Input::Push(vec![new(), new(), new()]));
        self.run_until(|world| world.is_drained());
        let ledger = &self.queues.ledger;
        let (now, done) = (self.clock.now(), ledger.acknowledged.difference(&ledger.completed).count());
        let dead = ledger.model.items.values().filter(|item| item.queue == dead_letters()).count();
        self.verdict.expect(Checker::Waiters, now < deadline && done <= dead, || {
            format!("three items were pushed while all waited; {done} are not done, {} ms after the deadline", now - deadline)
        });
    }

    /// Whether all takers can only wait for items.
    fn is_drained(&mut self) -> bool {
        let left = self.queues.ledger.model.items.values().any(|item| item.queue == queue());
        let now = self.clock.now();
        let waits = |taker: &Taker| matches!(taker.doing, Doing::Sleeping { until, .. } if until > now);
        !left && self.calls.is_empty() && self.queues.takers.iter().all(waits)
    }
}
