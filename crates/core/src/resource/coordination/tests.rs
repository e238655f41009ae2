use proptest::prelude::*;

use super::*;
use crate::ids::Epoch;
use crate::resource::grant::Ask;
use crate::resource::semaphore::Config;
use crate::test_world::{World, ask, holder, name};

impl World<Coordination> {
    pub(crate) fn site() -> World<Coordination> {
        World::new(Coordination::default())
    }

    pub(crate) fn at_lock(&mut self, label: &str, input: lock::Input) -> Outcome {
        self.act(Command::Lock(name(label), input))
    }

    pub(crate) fn at_semaphore(&mut self, label: &str, input: semaphore::Input) -> Outcome {
        self.act(Command::Semaphore(name(label), input))
    }

    fn ask_lock(&mut self, label: &str, ask: Ask) -> Outcome {
        self.at_lock(label, lock::Input::Acquire(Box::new(ask)))
    }

    fn ask_slots(&mut self, label: &str, ask: Ask) -> Outcome {
        self.at_semaphore(label, semaphore::Input::Acquire(Box::new(ask)))
    }

    fn define(mut self, label: &str, capacity: u32) -> Self {
        self.at_semaphore(label, semaphore::Input::Define(Config { capacity, ttl: None }));
        self
    }

    /// The holder of the lock, with its epoch.
    pub(crate) fn holder(&self, label: &str) -> Option<(&str, Epoch)> {
        match &self.machine.locks.get(label)?.state {
            lock::State::Free => None,
            lock::State::Held(grant) => Some((grant.claim.holder.as_str(), grant.epoch)),
        }
    }

    fn waiters(&self) -> usize {
        let locks = self.machine.locks.values().map(|lock| lock.waiters.len());
        locks.chain(self.machine.semaphores.values().map(|semaphore| semaphore.waiters.len())).sum()
    }

    /// Gives back everything that the holder `who` has.
    fn finish(&mut self, who: &str) {
        let locks: Vec<_> = self.machine.locks.keys().map(|label| label.to_string()).collect();
        for label in locks {
            if let Some((by, epoch)) = self.holder(&label)
                && by == who
            {
                self.at_lock(&label, lock::Input::Release { holder: holder(who), epoch });
            }
        }
        let semaphores: Vec<_> = self.machine.semaphores.keys().map(|label| label.to_string()).collect();
        for label in semaphores {
            self.at_semaphore(&label, semaphore::Input::Release { holder: holder(who), epoch: None });
        }
    }
}

fn is_granted(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Lock(outcome) => matches!(outcome, lock::Outcome::Acquired(_) | lock::Outcome::Reclaimed { .. }),
        Outcome::Semaphore(outcome) => matches!(
            outcome,
            semaphore::Outcome::Acquired(_) | semaphore::Outcome::Increased(_) | semaphore::Outcome::AlreadyHeld(_)
        ),
        Outcome::Deadlock(_) | Outcome::Undefined => false,
    }
}

fn ticket(outcome: &Outcome) -> Option<Ticket> {
    match outcome {
        Outcome::Lock(lock::Outcome::Waiting(waiting)) => Some(waiting.ticket),
        Outcome::Semaphore(semaphore::Outcome::Waiting(waiting)) => Some(waiting.ticket),
        _ => None,
    }
}

/// The cycle in words, such as `b -> lock L`.
fn cycle(outcome: &Outcome) -> Vec<String> {
    match outcome {
        Outcome::Deadlock(links) => links.iter().map(|link| format!("{} -> {}", link.party, link.resource)).collect(),
        other => panic!("no deadlock but {other:?}"),
    }
}

fn assert_granted(outcome: Outcome) {
    assert!(is_granted(&outcome), "not granted but {outcome:?}");
}

fn assert_waits(outcome: Outcome) -> Ticket {
    ticket(&outcome).unwrap_or_else(|| panic!("not waiting but {outcome:?}"))
}

#[test]
fn a_wait_that_closes_a_cycle_is_refused_and_leaves_no_trace() {
    let mut world = World::site();
    assert_granted(world.ask_lock("L", ask("a")));
    assert_granted(world.ask_lock("M", ask("b")));
    assert_waits(world.ask_lock("M", ask("a").waits(1)));
    let before = world.machine.clone();
    assert_eq!(cycle(&world.ask_lock("L", ask("b").waits(2))), ["b -> lock L", "a -> lock M"]);
    assert_eq!((&world.machine, world.log.len()), (&before, 2));
    world.finish("b");
    assert_eq!(world.holder("M").map(|(who, _)| who), Some("a"));
}

#[test]
fn a_request_without_a_wait_is_busy_and_not_deadlocked() {
    let mut world = World::site();
    assert_granted(world.ask_lock("L", ask("a")));
    assert_granted(world.ask_lock("M", ask("b")));
    assert_waits(world.ask_lock("M", ask("a").waits(1)));
    assert!(matches!(world.ask_lock("L", ask("b")), Outcome::Lock(lock::Outcome::Busy(_))));
}

#[test]
fn a_cycle_through_locks_and_slots_is_refused() {
    let mut world = World::site().define("S", 2);
    assert_granted(world.ask_lock("L", ask("a")));
    assert_granted(world.ask_slots("S", ask("b").weight(2)));
    assert_granted(world.ask_lock("N", ask("c")));
    assert_waits(world.ask_slots("S", ask("a").waits(1)));
    assert_waits(world.ask_lock("N", ask("b").waits(2)));
    let refused = world.ask_lock("L", ask("c").waits(3));
    assert_eq!(cycle(&refused), ["c -> lock L", "a -> semaphore S", "b -> lock N"]);
}

#[test]
fn the_wait_of_a_child_counts_for_its_ancestors() {
    let mut world = World::site();
    assert_granted(world.ask_lock("L", ask("parent")));
    assert_granted(world.ask_lock("M", ask("b")));
    assert_eq!(cycle(&world.ask_lock("L", ask("child").under(&["parent"]).waits(1))), ["parent -> lock L"]);
    assert_waits(world.ask_lock("M", ask("child").under(&["parent"]).waits(1)));
    assert_eq!(cycle(&world.ask_lock("L", ask("b").waits(2))), ["b -> lock L", "parent -> lock M"]);
}

#[test]
fn a_name_waits_for_its_own_lock_like_a_stranger() {
    let mut world = World::site();
    assert_granted(world.ask_lock("L", ask("a")));
    assert_waits(world.ask_lock("L", ask("a").waits(1)));
    assert_waits(world.ask_lock("L", ask("b").waits(2)));
    assert_waits(world.ask_lock("L", ask("a").waits(3)));
}

/// A smaller capacity can make a deadlock of waits that were fine before. Only new waiters are refused.
#[test]
fn a_present_waiter_is_never_refused_later() {
    let mut world = World::site().define("S", 4);
    assert_granted(world.ask_slots("S", ask("a").weight(2)));
    assert_granted(world.ask_slots("S", ask("x").weight(2)));
    assert_granted(world.ask_lock("L", ask("b")));
    assert_waits(world.ask_lock("L", ask("a").waits(1)));
    let ticket = assert_waits(world.ask_slots("S", ask("b").weight(2).waits(2)));
    let mut world = world.define("S", 3);
    assert_eq!(assert_waits(world.at_semaphore("S", semaphore::Input::Poll { ticket })), ticket);
    cycle(&world.ask_slots("S", ask("c").waits(3)));
}

#[test]
fn increases_that_block_each_other_are_refused() {
    let mut world = World::site().define("S", 4);
    assert_granted(world.ask_slots("S", ask("a").weight(2)));
    assert_granted(world.ask_slots("S", ask("b").weight(2)));
    assert_waits(world.ask_slots("S", ask("a").weight(3).waits(1)));
    let refused = world.ask_slots("S", ask("b").weight(3).waits(2));
    assert_eq!(cycle(&refused), ["b -> semaphore S", "a -> semaphore S"]);
    world.finish("b");
    assert_eq!(world.machine.semaphores.get("S").unwrap().available(), 1);
}

#[test]
fn a_wait_behind_many_waiters_is_not_refused() {
    let mut world = World::site();
    assert_granted(world.ask_lock("L", ask("a")));
    for (pid, who) in ["b", "c", "d"].into_iter().enumerate() {
        assert_granted(world.ask_lock(who, ask(who)));
        assert_waits(world.ask_lock("L", ask(who).waits(i32::try_from(pid).unwrap())));
    }
    assert_waits(world.ask_lock("b", ask("c").waits(9)));
    assert_waits(world.ask_lock("c", ask("d").waits(9)));
}

#[test]
fn dead_holders_are_removed_before_the_deadlock_check() {
    let mut world = World::site();
    assert_granted(world.ask_lock("L", ask("a").bound_to(&[1])));
    assert_granted(world.ask_lock("M", ask("b")));
    assert_waits(world.ask_lock("M", ask("a").waits(1)));
    world.kill(1);
    assert_granted(world.ask_lock("L", ask("b").waits(2)));
    assert_eq!((world.kinds(), world.waiters()), (vec!["acquired", "acquired", "reclaimed", "acquired"], 0));
}

#[test]
fn dead_waiters_are_part_of_no_deadlock() {
    let mut world = World::site();
    assert_granted(world.ask_lock("L", ask("a")));
    assert_granted(world.ask_lock("M", ask("b")));
    assert_waits(world.ask_lock("M", ask("a").waits(1)));
    world.kill(1);
    assert_waits(world.ask_lock("L", ask("b").waits(2)));
    assert_eq!(world.waiters(), 1);
}

/// Three grants end in the same decision in which a fourth begins: the epochs are right only if all events are counted.
#[test]
fn events_of_one_decision_are_numbered_without_a_gap() {
    let mut world = World::site().define("S", 2);
    assert_granted(world.ask_lock("L", ask("a").bound_to(&[1])));
    assert_granted(world.ask_lock("M", ask("a").bound_to(&[1])));
    assert_granted(world.ask_slots("S", ask("a").weight(2).bound_to(&[1])));
    assert_waits(world.ask_slots("S", ask("b").waits(2)));
    assert_waits(world.ask_lock("L", ask("d").waits(4)));
    assert_granted(world.ask_lock("N", ask("a").bound_to(&[1])));
    world.kill(1);
    let first = world.now.seq.0;
    assert_granted(world.ask_slots("S", ask("c").waits(3)));
    let events: Vec<_> =
        world.log.iter().filter(|(seq, _, _)| seq.0 >= first).map(|(seq, _, e)| (seq.0 - first, e.kind())).collect();
    // M and N have no waiters, so they are not checked.
    let expected = ["lock:reclaimed", "lock:acquired", "semaphore:reclaimed", "semaphore:acquired", "semaphore:acquired"];
    assert_eq!(events, (0..).zip(expected).collect::<Vec<_>>());
    let epochs: Vec<_> = world.machine.semaphores.get("S").unwrap().holders.values().map(|grant| grant.epoch.0 - first).collect();
    assert_eq!(epochs, [3, 4]);
}

#[test]
fn a_refused_wait_keeps_the_removal_of_dead_holders() {
    let mut world = World::site();
    assert_granted(world.ask_lock("K", ask("x").bound_to(&[1])));
    assert_waits(world.ask_lock("K", ask("y").waits(3)));
    assert_granted(world.ask_lock("L", ask("a")));
    world.kill(1);
    assert_eq!(cycle(&world.ask_lock("L", ask("child").under(&["a"]).waits(2))), ["a -> lock L"]);
    assert_eq!(world.kinds(), ["acquired", "acquired", "reclaimed", "acquired"]);
}

#[test]
fn maintenance_ends_all_grants_that_are_over_and_no_others() {
    let mut world = World::site().define("S", 2);
    assert_granted(world.ask_lock("L", ask("a").ttl(60)));
    assert_granted(world.ask_lock("M", ask("a").ttl(30)));
    assert_granted(world.ask_slots("S", ask("a").ttl(20)));
    assert_eq!(world.machine.next_deadline().map(|at| at - world.now.lease), Some(crate::time::Span::from_secs(20)));
    world.pass(30);
    let step = world.machine.clone().maintain(&world.now);
    world.machine = step.state;
    world.record(step.effects);
    assert_eq!(world.kinds()[4..], ["reclaimed", "reclaimed"]);
    assert_eq!((world.holder("L").is_some(), world.holder("M")), (true, None));
}

#[test]
fn a_semaphore_must_be_defined_and_a_lock_need_not() {
    let mut world = World::site();
    assert_eq!(world.ask_slots("S", ask("a")), Outcome::Undefined);
    let mut world = world.define("S", 1);
    assert_granted(world.ask_slots("S", ask("a")));
    let unknown = world.at_lock("L", lock::Input::Force { by: crate::test_world::root() });
    assert_eq!(unknown, Outcome::Lock(lock::Outcome::AlreadyFree));
}

/// A program that acquires one resource after the other and gives all of them back at its end.
#[derive(Debug)]
struct Program {
    name: &'static str,
    wishes: Vec<(usize, u32)>,
    waits: Option<(usize, Ticket)>,
    done: bool,
}

const RESOURCES: [&str; 5] = ["K", "L", "M", "S", "T"];

impl Program {
    /// Does its next step, and returns whether that changed anything. A program that is refused gives up.
    fn run(&mut self, world: &mut World<Coordination>) -> bool {
        let outcome = match (self.waits, self.wishes.last()) {
            _ if self.done => return false,
            (Some((resource, ticket)), _) if resource < 3 => world.at_lock(RESOURCES[resource], lock::Input::Poll { ticket }),
            (Some((resource, ticket)), _) => world.at_semaphore(RESOURCES[resource], semaphore::Input::Poll { ticket }),
            (None, Some((resource, _))) if *resource < 3 => world.ask_lock(RESOURCES[*resource], ask(self.name).waits(1)),
            (None, Some((resource, weight))) => world.ask_slots(RESOURCES[*resource], ask(self.name).weight(*weight).waits(1)),
            (None, None) => Outcome::Deadlock(Vec::new()),
        };
        match outcome {
            Outcome::Deadlock(_) => {
                world.finish(self.name);
                self.done = true;
            }
            granted if is_granted(&granted) => {
                self.waits = None;
                self.wishes.pop();
            }
            other if self.waits.is_none() => self.waits = ticket(&other).zip(self.wishes.last()).map(|(t, wish)| (wish.0, t)),
            _ => return false,
        }
        true
    }
}

/// A program wants a lock only once: it would be a stranger to itself.
fn wishes() -> impl Strategy<Value = Vec<(usize, u32)>> {
    prop::collection::vec((0..5_usize, 1..4_u32), 1..6).prop_map(|mut wishes| {
        let mut seen = std::collections::BTreeSet::new();
        wishes.retain(|(resource, _)| seen.insert(*resource) || *resource >= 3);
        wishes
    })
}

proptest! {
    #[test]
    fn programs_that_give_up_when_refused_all_finish(
        wishes in prop::array::uniform5(wishes()),
        turns in prop::collection::vec(0..5_usize, 0..60),
    ) {
        let mut world = World::site().define("S", 3).define("T", 4);
        let program = |(name, wishes)| Program { name, wishes, waits: None, done: false };
        let mut programs: Vec<_> = ["a", "b", "c", "d", "e"].into_iter().zip(wishes).map(program).collect();
        for turn in turns {
            programs[turn].run(&mut world);
        }
        while programs.iter().any(|program| !program.done) {
            let moved = programs.iter_mut().filter_map(|program| program.run(&mut world).then_some(())).count();
            prop_assert!(moved > 0, "no program can continue: {:#?}", programs);
        }
        prop_assert_eq!(world.waiters(), 0);
    }
}
