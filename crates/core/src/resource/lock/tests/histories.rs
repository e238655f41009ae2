//! Histories of a lock: all short ones, and random long ones against a naive model.

use proptest::prelude::*;

use super::*;

/// Small inputs that collide in many ways: two waiters, releases, time, death and force.
fn try_one(world: &mut World<Lock>, choice: usize) {
    let current = world.grant().map(|grant| (grant.claim.holder.clone(), grant.epoch, grant.ticket));
    match choice {
        0 => drop(world.ask(ask("a").ttl(60).request("r").bound_to(&[1]).waits(1))),
        1 => drop(world.ask(ask("b").max_hold(30).waits(2))),
        2 => drop(current.map(|(holder, epoch, _)| world.release(holder.as_str(), epoch))),
        3 => drop(current.and_then(|(_, _, ticket)| Some(world.poll(ticket?)))),
        4 => drop(world.machine.waiters.first().map(|first| first.ticket).map(|ticket| world.leave(ticket))),
        5 => drop(world.force()),
        6 => {
            world.pass(20);
            world.reap();
        }
        7 => {
            // The next process 1 is a new one: no process of before lives after this.
            world.kill(1);
            world.reap();
            world.now.dead.clear();
        }
        _ => unreachable!("{choice}"),
    }
}

/// Asserts that calls with the epoch of a grant that has ended are refused and change nothing.
fn assert_old_epochs_are_powerless(world: &World<Lock>) {
    for (seq, _, event) in &world.log {
        let Event::Resource { fact: Fact::Acquired(claim), .. } = event else { continue };
        if world.grant().is_some_and(|grant| grant.epoch == Epoch::from(*seq)) {
            continue;
        }
        let mut later = world.clone();
        let outcome = later.heartbeat(claim.holder.as_str(), Epoch::from(*seq));
        assert!(matches!(outcome, Outcome::Fenced { .. } | Outcome::AlreadyFree), "{outcome:?}");
        assert_eq!((&later.machine, later.log.len()), (&world.machine, world.log.len()));
    }
}

/// Asserts that time alone changes something at the deadline and not a millisecond earlier.
fn assert_deadline_is_exact(world: &World<Lock>) {
    let mut later = world.clone();
    let Some(deadline) = world.machine.next_deadline() else {
        later.pass(1_000_000);
        assert_eq!(later.reap(), Outcome::Kept);
        return;
    };
    later.now.lease = Lease(deadline.0 - 1);
    assert_eq!(later.reap(), Outcome::Kept);
    later.now.lease = deadline;
    assert!(matches!(later.reap(), Outcome::Reaped { .. }));
}

#[test]
fn all_orders_of_a_few_inputs_keep_the_invariants() {
    fn explore(world: &World<Lock>, depth: usize) -> usize {
        if depth == 0 {
            world.assert_nothing_given_twice(1);
            assert_old_epochs_are_powerless(world);
            assert_deadline_is_exact(world);
            return 1;
        }
        let after = |choice| {
            let mut next = world.clone();
            try_one(&mut next, choice);
            assert!(next.machine.fence >= world.machine.fence, "the fence fell");
            assert!(next.machine.fence.0 < next.now.seq.0, "the fence is the number of an event");
            explore(&next, depth - 1)
        };
        (0..8).map(after).sum()
    }
    assert_eq!(explore(&World::lock(), 5), 8 * 8 * 8 * 8 * 8);
}

/// An operation of a random history. Each person has a process, and a new one after it died.
#[derive(Debug, Clone)]
enum Op {
    Ask { who: usize, waits: bool },
    Poll(usize),
    Leave(usize),
    Heartbeat(usize),
    Release(usize),
    Force,
    Reap,
    Pass(i64),
    Die(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0..4_usize;
    prop_oneof![
        6 => (who.clone(), prop::bool::weighted(0.8)).prop_map(|(who, waits)| Op::Ask { who, waits }),
        3 => who.clone().prop_map(Op::Poll),
        1 => who.clone().prop_map(Op::Leave),
        2 => who.clone().prop_map(Op::Heartbeat),
        4 => who.clone().prop_map(Op::Release),
        1 => Just(Op::Force),
        1 => Just(Op::Reap),
        3 => prop::sample::select(vec![5, 10, 30, 60]).prop_map(Op::Pass),
        1 => who.prop_map(Op::Die),
    ]
}

const PEOPLE: [&str; 4] = ["a", "b", "c", "d"];
const TTL: i64 = 60;
const MAX_HOLD: i64 = 150;

/// The lock as on a whiteboard, in seconds and with persons for numbers.
#[derive(Default)]
struct LockModel {
    time: i64,
    dead: Vec<i32>,
    given: usize,
    holder: Option<Given>,
    waiters: Vec<(Ticket, usize, i32)>,
}

/// One grant.
#[derive(Clone)]
struct Given {
    number: usize,
    who: usize,
    pid: i32,
    ticket: Option<Ticket>,
    since: i64,
    heard: i64,
    offered: bool,
}

impl LockModel {
    fn give(&mut self, who: usize, pid: i32, ticket: Option<Ticket>) {
        self.given += 1;
        let (since, heard, offered) = (self.time, self.time, ticket.is_some());
        self.holder = Some(Given { number: self.given, who, pid, ticket, since, heard, offered });
    }

    fn hand_on(&mut self) {
        if self.holder.is_none() && !self.waiters.is_empty() {
            let (ticket, who, pid) = self.waiters.remove(0);
            self.give(who, pid, Some(ticket));
        }
    }

    fn tidy(&mut self) {
        self.waiters.retain(|(_, _, pid)| !self.dead.contains(pid));
        if let Some(given) = &self.holder {
            let gone = self.dead.contains(&given.pid);
            let silent = self.time - given.heard >= if given.offered { 15 } else { TTL };
            let too_long = !given.offered && self.time - given.since >= MAX_HOLD;
            if gone || silent || too_long {
                self.holder = None;
            }
        }
        self.hand_on();
    }

    fn hear(&mut self) {
        let time = self.time;
        if let Some(given) = &mut self.holder {
            (given.heard, given.offered) = (time, false);
        }
    }

    fn has(&self, number: Option<usize>) -> bool {
        self.holder.as_ref().is_some_and(|given| Some(given.number) == number)
    }

    fn has_ticket(&self, ticket: Ticket) -> bool {
        self.holder.as_ref().is_some_and(|given| given.ticket == Some(ticket))
    }
}

/// The memory of one person.
#[derive(Clone, Default)]
struct Person {
    pid: i32,
    ticket: Ticket,
    epoch: Epoch,
    number: Option<usize>,
}

/// Executes one operation in the world and in the model.
fn both(world: &mut World<Lock>, model: &mut LockModel, people: &mut [Person], op: &Op) {
    let mut heard = None;
    match *op {
        Op::Ask { who, waits } => {
            let pid = people[who].pid;
            let (ticket, wish) = (world.now.ticket, ask(PEOPLE[who]).ttl(TTL).max_hold(MAX_HOLD).bound_to(&[pid]));
            heard = Some((who, world.ask(if waits { wish.waits(pid) } else { wish })));
            model.tidy();
            if model.holder.is_none() {
                model.give(who, pid, None);
            } else if waits {
                model.waiters.push((ticket, who, pid));
                people[who].ticket = ticket;
            }
        }
        Op::Poll(who) => {
            let ticket = people[who].ticket;
            heard = Some((who, world.poll(ticket)));
            model.tidy();
            if model.has_ticket(ticket) {
                model.hear();
            }
        }
        Op::Leave(who) => {
            let ticket = people[who].ticket;
            world.leave(ticket);
            model.waiters.retain(|(other, _, _)| *other != ticket);
            if model.has_ticket(ticket) {
                model.holder = None;
            }
            model.hand_on();
        }
        Op::Heartbeat(who) => {
            world.heartbeat(PEOPLE[who], people[who].epoch);
            let too_long = model.holder.as_ref().is_some_and(|given| model.time - given.since >= MAX_HOLD);
            if model.has(people[who].number) {
                if too_long { model.holder = None } else { model.hear() }
            }
            model.hand_on();
        }
        Op::Release(who) => {
            world.release(PEOPLE[who], people[who].epoch);
            if model.has(people[who].number) {
                model.holder = None;
            }
            model.hand_on();
        }
        Op::Force => {
            world.force();
            model.holder = None;
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
    if let Some((who, Outcome::Acquired(grant) | Outcome::Reclaimed { grant, .. })) = heard {
        people[who].epoch = grant.epoch;
        people[who].number = model.holder.as_ref().map(|given| given.number);
    }
}

proptest! {
    #[test]
    fn random_histories_agree_with_a_naive_lock(ops in prop::collection::vec(op(), 1..80)) {
        let (mut world, mut model) = (World::lock(), LockModel::default());
        let mut people: Vec<Person> = (0..4).map(|pid| Person { pid, ..Person::default() }).collect();
        for op in &ops {
            both(&mut world, &mut model, &mut people, op);
            let holder = model.holder.as_ref().map(|given| (PEOPLE[given.who], given.offered));
            prop_assert_eq!(world.grant().map(|grant| (grant.claim.holder.as_str(), grant.offer.is_some())), holder);
            prop_assert_eq!(world.waiters(), model.waiters.iter().map(|(_, who, _)| PEOPLE[*who]).collect::<Vec<_>>());
        }
        world.assert_nothing_given_twice(1);
    }
}
