//! Histories of a semaphore: all short ones, and random long ones against a naive model.

use proptest::prelude::*;

use super::*;

/// Small inputs that collide in many ways: increases, a strict order, offers that lapse, and a changing capacity.
fn try_one(world: &mut World<Semaphore>, choice: usize) {
    let first = world.machine.holders.values().next().cloned();
    let ticket = world.machine.holders.values().find_map(|grant| grant.ticket);
    match choice {
        0 => drop(world.ask(ask("a").ttl(60).bound_to(&[1]).waits(1))),
        1 => drop(world.ask(ask("a").weight(3).waits(2))),
        2 => drop(world.ask(ask("b").weight(2).ttl(30).waits(3))),
        3 => drop(first.map(|grant| world.release(grant.claim.holder.as_str(), Some(grant.epoch)))),
        4 => drop(ticket.map(|ticket| world.poll(ticket))),
        5 => drop(ticket.map(|ticket| world.leave(ticket))),
        6 => drop(world.machine.waiters.first().map(|first| first.ticket).map(|ticket| world.leave(ticket))),
        7 => {
            world.pass(20);
            world.reap();
        }
        8 => {
            let capacity = 5 - world.machine.config.capacity;
            world.resize(capacity);
        }
        _ => unreachable!("{choice}"),
    }
}

/// Asserts that time alone changes something at the deadline and not a millisecond earlier.
fn assert_deadline_is_exact(world: &World<Semaphore>) {
    let mut later = world.clone();
    let Some(deadline) = world.machine.next_deadline() else {
        later.pass(1_000_000);
        assert_eq!(later.reap(), []);
        return;
    };
    later.now.lease = Lease(deadline.0 - 1);
    assert_eq!(later.reap(), []);
    later.now.lease = deadline;
    assert_ne!(later.reap(), []);
}

#[test]
fn all_orders_of_a_few_inputs_keep_the_invariants() {
    fn explore(world: &World<Semaphore>, depth: usize) -> usize {
        if depth == 0 {
            world.assert_nothing_given_twice(3);
            assert_deadline_is_exact(world);
            return 1;
        }
        let after = |choice| {
            let mut next = world.clone();
            try_one(&mut next, choice);
            for (who, grant) in &next.machine.holders {
                let rose = world.machine.holders.get(who).is_none_or(|before| before.epoch <= grant.epoch);
                assert!(rose && grant.epoch.0 < next.now.seq.0, "the epoch of {who} fell, or is no event's number");
            }
            explore(&next, depth - 1)
        };
        (0..9).map(after).sum()
    }
    assert_eq!(explore(&World::semaphore(3), 5), 9 * 9 * 9 * 9 * 9);
}

/// An operation of a random history. Each person has a process, and a new one after it died.
#[derive(Debug, Clone)]
enum Op {
    Ask { who: usize, weight: u32, waits: bool },
    Poll(usize),
    Leave(usize),
    Heartbeat { who: usize, blind: bool },
    Release { who: usize, blind: bool },
    Force(usize),
    Resize(u32),
    Reap,
    Pass(i64),
    Die(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0..4_usize;
    let flag = || prop::bool::weighted(0.8);
    prop_oneof![
        8 => (who.clone(), 0..6_u32, flag()).prop_map(|(who, weight, waits)| Op::Ask { who, weight, waits }),
        3 => who.clone().prop_map(Op::Poll),
        1 => who.clone().prop_map(Op::Leave),
        2 => (who.clone(), flag()).prop_map(|(who, blind)| Op::Heartbeat { who, blind }),
        4 => (who.clone(), flag()).prop_map(|(who, blind)| Op::Release { who, blind }),
        1 => who.clone().prop_map(Op::Force),
        1 => (1..6_u32).prop_map(Op::Resize),
        1 => Just(Op::Reap),
        3 => prop::sample::select(vec![5, 10, 30, 60]).prop_map(Op::Pass),
        1 => who.prop_map(Op::Die),
    ]
}

const PEOPLE: [&str; 4] = ["a", "b", "c", "d"];
const TTL: i64 = 60;

/// The semaphore as on a whiteboard, in seconds and with persons for numbers.
struct SemaphoreModel {
    time: i64,
    dead: Vec<i32>,
    capacity: u32,
    given: usize,
    /// The grants of the persons.
    held: [Option<Given>; 4],
    waiters: Vec<Wish>,
}

#[derive(Clone)]
struct Given {
    number: usize,
    weight: u32,
    pid: i32,
    ticket: Option<Ticket>,
    heard: i64,
    offer: Option<Offered>,
}

/// The end and the process of an offer, and the weight that is left if it lapses.
#[derive(Clone)]
struct Offered {
    until: i64,
    pid: i32,
    else_weight: u32,
}

#[derive(Clone)]
struct Wish {
    ticket: Ticket,
    who: usize,
    weight: u32,
    pid: i32,
}

impl SemaphoreModel {
    fn has(&self, who: usize) -> u32 {
        self.held[who].as_ref().map_or(0, |given| given.weight)
    }

    fn fits(&self, who: usize, weight: u32) -> bool {
        let others: u32 = (0..4).filter(|other| *other != who).map(|other| self.has(other)).sum();
        weight <= self.has(who) || others + weight <= self.capacity
    }

    fn give(&mut self, who: usize, weight: u32, pid: i32) -> &mut Given {
        self.given += 1;
        let (number, heard) = (self.given, self.time);
        let fresh = Given { number, weight, pid, ticket: None, heard, offer: None };
        let given = self.held[who].get_or_insert(fresh);
        given.weight = given.weight.max(weight);
        given
    }

    fn hand_on(&mut self) {
        while !self.waiters.is_empty() && self.fits(self.waiters[0].who, self.waiters[0].weight) {
            let Wish { ticket, who, weight, pid } = self.waiters.remove(0);
            let (had, until) = (self.has(who), self.time + 15);
            let given = self.give(who, weight, pid);
            let else_weight = given.offer.as_ref().map_or(had, |offer| offer.else_weight);
            (given.ticket, given.offer) = (Some(ticket), Some(Offered { until, pid, else_weight }));
        }
    }

    /// An offer is not taken up: the weight goes back to the earlier one, which may be zero.
    fn take_back(&mut self, who: usize) {
        let Some(given) = &mut self.held[who] else { return };
        let offer = given.offer.take().unwrap();
        (given.weight, given.ticket) = (offer.else_weight, None);
        if given.weight == 0 {
            self.held[who] = None;
        }
    }

    fn tidy(&mut self) {
        self.waiters.retain(|wish| !self.dead.contains(&wish.pid));
        for who in 0..4 {
            let offer = self.held[who].as_ref().and_then(|given| given.offer.clone());
            let missed = offer.as_ref().is_some_and(|offer| self.dead.contains(&offer.pid) || self.time >= offer.until);
            if missed {
                self.take_back(who);
            }
            let over = |given: &Given| self.dead.contains(&given.pid) || self.time - given.heard >= TTL;
            if self.held[who].as_ref().is_some_and(|given| given.offer.is_none() && over(given)) {
                self.held[who] = None;
            }
        }
        self.hand_on();
    }

    /// Takes up an offer. The ticket of an increase is worth nothing afterwards.
    fn take_up(&mut self, who: usize) {
        let time = self.time;
        let Some(given) = &mut self.held[who] else { return };
        given.heard = time;
        if given.offer.take().is_some_and(|offer| offer.else_weight > 0) {
            given.ticket = None;
        }
    }

    fn owner(&self, ticket: Ticket) -> Option<usize> {
        (0..4).find(|who| self.held[*who].as_ref().is_some_and(|given| given.ticket == Some(ticket)))
    }
}

/// The memory of one person.
#[derive(Clone, Default)]
struct Person {
    pid: i32,
    ticket: Ticket,
    epoch: Epoch,
    number: usize,
}

/// Executes one operation in the world and in the model.
fn both(world: &mut World<Semaphore>, model: &mut SemaphoreModel, people: &mut [Person], op: &Op) {
    let is_own = |model: &SemaphoreModel, person: &Person, who: usize, blind: bool| {
        model.held[who].as_ref().is_some_and(|given| blind || given.number == person.number)
    };
    let mut heard = None;
    match *op {
        Op::Ask { who, weight, waits } => {
            let pid = people[who].pid;
            let (ticket, wish) = (world.now.ticket, ask(PEOPLE[who]).weight(weight).ttl(TTL).bound_to(&[pid]));
            heard = Some((who, world.ask(if waits { wish.waits(pid) } else { wish })));
            if weight == 0 {
                return;
            }
            model.tidy();
            if model.has(who) >= weight {
                model.take_up(who);
            } else if model.waiters.is_empty() && model.fits(who, weight) {
                model.give(who, weight, pid);
                model.take_up(who);
            } else if waits && weight <= model.capacity {
                model.waiters.push(Wish { ticket, who, weight, pid });
                people[who].ticket = ticket;
            }
        }
        Op::Poll(who) => {
            heard = Some((who, world.poll(people[who].ticket)));
            model.tidy();
            model.owner(people[who].ticket).into_iter().for_each(|owner| model.take_up(owner));
        }
        Op::Leave(who) => {
            let ticket = people[who].ticket;
            world.leave(ticket);
            model.waiters.retain(|wish| wish.ticket != ticket);
            match model.owner(ticket) {
                Some(owner) if model.held[owner].as_ref().unwrap().offer.is_some() => model.take_back(owner),
                Some(owner) => model.held[owner] = None,
                None => {}
            }
            model.hand_on();
        }
        Op::Heartbeat { who, blind } => {
            world.heartbeat(PEOPLE[who], (!blind).then_some(people[who].epoch));
            let time = model.time;
            if is_own(model, &people[who], who, blind)
                && let Some(given) = &mut model.held[who]
            {
                given.heard = time;
                given.offer.take_if(|offer| offer.else_weight == 0);
            }
        }
        Op::Release { who, blind } => {
            world.release(PEOPLE[who], (!blind).then_some(people[who].epoch));
            if is_own(model, &people[who], who, blind) {
                model.held[who] = None;
            }
            model.hand_on();
        }
        Op::Force(who) => {
            world.force(PEOPLE[who]);
            model.held[who] = None;
            model.hand_on();
        }
        Op::Resize(capacity) => {
            world.resize(capacity);
            model.capacity = capacity;
            model.waiters.retain(|wish| wish.weight <= capacity);
            model.hand_on();
        }
        Op::Reap => {
            world.reap();
            model.tidy();
        }
        Op::Pass(secs) => {
            world.pass(secs);
            model.time += secs;
        }
        Op::Die(who) => {
            world.kill(people[who].pid);
            model.dead.push(people[who].pid);
            people[who].pid += 10;
        }
    }
    if let Some((who, Outcome::Acquired(grant) | Outcome::AlreadyHeld(grant) | Outcome::Increased(grant))) = heard {
        people[who].epoch = grant.epoch;
        people[who].number = model.held[who].as_ref().map_or(0, |given| given.number);
    }
}

proptest! {
    #[test]
    fn random_histories_agree_with_a_naive_semaphore(ops in prop::collection::vec(op(), 1..80)) {
        let mut world = World::semaphore(4);
        let held = [const { None }; 4];
        let mut model = SemaphoreModel { time: 0, dead: Vec::new(), capacity: 4, given: 0, held, waiters: Vec::new() };
        let mut people: Vec<Person> = (0..4).map(|pid| Person { pid, ..Person::default() }).collect();
        for op in &ops {
            both(&mut world, &mut model, &mut people, op);
            let text = |(who, given): (&str, &Option<Given>)| {
                given.as_ref().map(|given| format!("{who}{}{}", given.weight, given.offer.as_ref().map_or("", |_| "?")))
            };
            let held: Vec<_> = PEOPLE.into_iter().zip(&model.held).filter_map(text).collect();
            let waiters: Vec<_> = model.waiters.iter().map(|wish| format!("{}{}", PEOPLE[wish.who], wish.weight)).collect();
            prop_assert_eq!((world.held(), world.waiters()), (held.join(" "), waiters.join(" ")), "after {:?}", op);
        }
        world.assert_nothing_given_twice(4);
    }
}
