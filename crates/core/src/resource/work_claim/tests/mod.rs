use super::*;
use crate::resource::semaphore::{self, Config};
use crate::test_world::{World, ask, assert_table, holder, name, process, words};

mod turns;

/// Parts from a list: `L` and `M` are locks, `S:2` is two slots of a semaphore, `section:…` and `task:…` are locks by
/// name.
fn parts(list: &str) -> Vec<Part> {
    let part = |text: &str| match text.strip_prefix("S:") {
        Some(weight) => {
            Part { resource: Resource { kind: Kind::Semaphore, name: name("S") }, weight: weight.parse().unwrap(), epoch: None }
        }
        None => Part { resource: Resource { kind: Kind::Lock, name: name(text) }, weight: 1, epoch: None },
    };
    list.split_whitespace().map(part).collect()
}

fn take(who: &str, task: &str, list: &str) -> Take {
    Take {
        holder: holder(who),
        ancestors: Vec::new(),
        task: Some(TaskId::new(task).unwrap()),
        parts: parts(list),
        ttl: Span::from_secs(60),
        ticket: None,
        wait: None,
    }
}

impl Take {
    fn waits(self, pid: i32) -> Take {
        let standing = WaitingProcess { process: process(pid), address: None, lease: None };
        Take { wait: Some((standing, Some(Span::from_secs(30)))), ..self }
    }

    fn again(self, ticket: Ticket) -> Take {
        Take { ticket: Some(ticket), ..self }
    }
}

impl World<Coordination> {
    fn work(&mut self, input: Input) -> Outcome {
        let step = self.machine.clone().work(input, &self.now);
        step.state.check();
        self.machine = step.state;
        self.record(step.effects);
        self.now.ticket.0 += 1;
        step.outcome
    }

    fn take(&mut self, take: Take) -> Outcome {
        self.work(Input::Take(Box::new(take)))
    }

    fn lock(&mut self, label: &str, who: &str) -> Epoch {
        match self.at_lock(label, lock::Input::Acquire(Box::new(ask(who)))) {
            coordination::Outcome::Lock(lock::Outcome::Acquired(grant)) => grant.epoch,
            other => panic!("{other:?}"),
        }
    }

    fn unlock(&mut self, label: &str, who: &str, epoch: Epoch) {
        self.at_lock(label, lock::Input::Release { holder: holder(who), epoch });
    }

    fn of(&self, label: &str) -> &str {
        self.holder(label).map_or("nobody", |(who, _)| who)
    }
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Waiting(..) => "waits".into(),
        other => words(other),
    }
}

fn ticket(outcome: Outcome) -> Ticket {
    match outcome {
        Outcome::Held(claim) => claim.ticket,
        Outcome::Waiting(waiting, _) => waiting.ticket,
        other => panic!("{other:?}"),
    }
}

fn site() -> World<Coordination> {
    let mut world = World::site();
    world.at_semaphore("S", semaphore::Input::Define(Config { capacity: 2, ttl: None }));
    world
}

/// Every state of a claim with every input: the outcome, and the holders of `L` and `M` afterwards.
#[test]
fn every_input_in_every_state_has_one_outcome() {
    let scene = |state: &str, world: &mut World<Coordination>| match state {
        "none" => Ticket(99),
        "held" => ticket(world.take(take("a", "t-1", "L M S:2"))),
        "lost" => {
            let claim = ticket(world.take(take("a", "t-1", "L M")));
            world.at_lock("M", lock::Input::Force { by: crate::test_world::root() });
            claim
        }
        "waits" => {
            world.lock("M", "x");
            ticket(world.take(take("a", "t-1", "L M").waits(1)))
        }
        "freed" => {
            let epoch = world.lock("M", "x");
            let claim = ticket(world.take(take("a", "t-1", "L M").waits(1)));
            world.unlock("M", "x", epoch);
            claim
        }
        _ => unreachable!("{state}"),
    };
    let input = |state: &str, input: &str, ticket| match input {
        // A held claim cannot be taken again: another holder takes instead.
        "again" if ["held", "lost"].contains(&state) => Input::Take(Box::new(take("b", "t-2", "L M").waits(2))),
        "again" => Input::Take(Box::new(take("a", "t-1", "L M").waits(1).again(ticket))),
        "no wait" => Input::Take(Box::new(take("b", "t-2", "L M"))),
        "too heavy" => Input::Take(Box::new(take("b", "t-2", "S:3").waits(2))),
        "leave" => Input::Leave { ticket },
        "renew" => Input::Renew { ticket },
        "end" => Input::End { ticket },
        _ => unreachable!("{input}"),
    };
    let states = ["none", "held", "lost", "waits", "freed"];
    let inputs = ["again", "no wait", "too heavy", "leave", "renew", "end"];
    let expected = "
           again      no wait   too heavy  leave     renew        end
none       held a a   held b b  never - -  gone - -  gone - -     gone - -
held       waits a a  busy a a  never a a  gone a a  renewed a a  left - -
lost       waits a -  busy a -  never a -  gone a -  lost a -     left - -
waits      waits - x  busy - x  never - x  left - x  gone - x     gone - x
any other  held a a   held b b  never - -  left - -  gone - -     gone - -
";
    assert_table(&states, &inputs, expected, |state, what| {
        let mut world = site();
        let claim = scene(state, &mut world);
        let outcome = world.work(input(state, what, claim));
        let of = |label: &str| world.holder(label).map_or("-", |(who, _)| who).to_owned();
        format!("{} {} {}", word(&outcome), of("L"), of("M"))
    });
}

#[test]
fn a_claim_takes_and_gives_back_all_parts_or_none() {
    let mut world = site();
    let epoch = world.lock("M", "x");
    assert_eq!(word(&world.take(take("a", "t-1", "L M S:1"))), "busy");
    assert_eq!((world.of("L"), world.machine.semaphores["S"].holders.len()), ("nobody", 0));
    let claim = ticket(world.take(take("a", "t-1", "L M S:1").waits(1)));
    assert_eq!(world.of("L"), "nobody", "a waiting claim holds nothing");
    world.unlock("M", "x", epoch);
    assert_eq!(world.of("M"), "nobody", "a claim is no waiter of the lock");
    let held = ticket(world.take(take("a", "t-1", "L M S:1").waits(1).again(claim)));
    assert_eq!((held, world.of("L"), world.of("M")), (claim, "a", "a"));
    world.work(Input::End { ticket: claim });
    assert_eq!((world.of("L"), world.of("M"), world.machine.semaphores["S"].holders.len()), ("nobody", "nobody", 0));
}

#[test]
fn claims_of_one_holder_share_a_section() {
    let mut world = site();
    let one = ticket(world.take(take("a", "t-1", "section:s task:t-1")));
    let two = ticket(world.take(take("a", "t-2", "section:s task:t-2")));
    assert_eq!(word(&world.take(take("b", "t-3", "section:s task:t-3"))), "busy");
    world.work(Input::End { ticket: one });
    assert_eq!(world.of("section:s"), "a");
    world.pass(10_000);
    world.machine = world.machine.clone().maintain(&world.now).state;
    assert_eq!((world.of("section:s"), world.of("task:t-2")), ("a", "nobody"), "a section has no lease");
    world.work(Input::End { ticket: two });
    assert_eq!(world.of("section:s"), "nobody");
}

#[test]
fn after_its_bound_only_holders_of_its_parts_overtake_a_claim() {
    let mut world = site();
    world.lock("M", "x");
    let claim = ticket(world.take(take("a", "t-1", "L M").waits(1)));
    let epoch = world.lock("L", "y");
    world.pass(30);
    world.at_lock("L", lock::Input::Acquire(Box::new(ask("z").waits(3))));
    world.unlock("L", "y", epoch);
    assert_eq!(world.of("L"), "nobody", "it is reserved, also against its waiters");
    let busy = world.at_lock("L", lock::Input::Acquire(Box::new(ask("y"))));
    let coordination::Outcome::Lock(lock::Outcome::Busy(blocked)) = busy else { panic!("{busy:?}") };
    assert_eq!((blocked.reserved.unwrap().holder, blocked.watch), (holder("a"), vec![vec![process(1)]]));
    // A newer claim waits behind it, and a child of x passes.
    assert_eq!(word(&world.take(take("b", "t-2", "L"))), "busy");
    let passes = world.at_lock("L", lock::Input::Acquire(Box::new(ask("child").under(&["x"]))));
    let coordination::Outcome::Lock(lock::Outcome::Acquired(grant)) = passes else { panic!("{passes:?}") };
    world.unlock("L", "child", grant.epoch);
    // A claim that leaves releases its reservations: the next waiter gets the lock.
    world.work(Input::Leave { ticket: claim });
    assert_eq!((world.of("L"), world.machine.claims.len()), ("z", 0));
}

#[test]
fn claims_on_one_task_get_it_in_the_order_of_arrival() {
    let mut world = site();
    let held = ticket(world.take(take("a", "t-1", "task:t-1")));
    let bob = ticket(world.take(take("b", "t-1", "task:t-1").waits(2)));
    let eve = ticket(world.take(take("e", "t-1", "task:t-1").waits(3)));
    world.work(Input::End { ticket: held });
    assert_eq!(word(&world.take(take("e", "t-1", "task:t-1").waits(3).again(eve))), "waits", "b came first");
    assert_eq!(word(&world.take(take("x", "t-1", "task:t-1"))), "busy");
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1").waits(2).again(bob))), "held");
    world.work(Input::End { ticket: bob });
    assert_eq!(word(&world.take(take("e", "t-1", "task:t-1").waits(3).again(eve))), "held");
}

#[test]
fn parts_taken_in_the_same_draft_pass_no_reservation() {
    let mut world = site();
    world.lock("N", "x");
    world.take(take("a", "t-1", "L N section:s").waits(1));
    // Others may overtake it for L, but the section is reserved.
    assert_eq!(word(&world.take(take("b", "t-2", "L section:s"))), "busy", "taking L in the same draft does not help");
    assert_eq!(word(&world.take(take("b", "t-2", "L"))), "held");
}

#[test]
fn nothing_is_reserved_for_a_dead_claim() {
    let mut world = site();
    world.lock("M", "x");
    world.take(take("a", "t-1", "L M").waits(1));
    world.pass(30);
    assert_eq!(word(&world.take(take("b", "t-2", "L"))), "busy");
    world.kill(1);
    assert_eq!(word(&world.take(take("b", "t-2", "L"))), "held");
}

#[test]
fn a_claim_without_a_try_in_its_turn_yields_and_keeps_its_ticket() {
    let mut world = site();
    let section = || Resource { kind: Kind::Lock, name: name("section:s") };
    let held = ticket(world.take(take("x", "t-0", "task:t-0 section:s")));
    let stopped = ticket(world.take(take("a", "t-1", "task:t-1 section:s").waits(1)));
    let also = ticket(world.take(take("b", "t-2", "task:t-2 section:s").waits(2)));
    world.work(Input::End { ticket: held });
    world.machine.give_turns(&[section()], &world.now.clone());
    assert_eq!(world.machine.claims[&stopped].turn_ends(), Some(world.now.lease + OFFER));
    assert_eq!(world.machine.claims[&also].turn_ends(), None, "only the first one has a turn");
    assert_eq!(word(&world.take(take("y", "t-3", "task:t-3 section:s"))), "busy", "its turn is not over");
    assert_eq!(word(&world.work(Input::Yield { ticket: stopped })), "gone", "it cannot yield before");
    world.pass(15);
    // Nothing is reserved for it any more; the next claim is not skipped.
    assert_eq!(word(&world.take(take("y", "t-3", "task:t-3 section:s"))), "busy");
    let reserved = |world: &World<Coordination>| world.machine.reservation(&section(), &world.now).map(|kept| kept.ticket);
    assert_eq!(reserved(&world), Some(also));
    assert_eq!(word(&world.work(Input::Yield { ticket: stopped })), "yielded");
    world.machine.give_turns(&[section()], &world.now.clone());
    assert_eq!(world.machine.claims[&also].turn_ends(), Some(world.now.lease + OFFER));
    world.pass(15);
    assert_eq!(reserved(&world), None);
    assert_eq!(word(&world.take(take("y", "t-3", "task:t-3 section:s"))), "held");
    // Its process continues: the old ticket counts again.
    assert_eq!(word(&world.take(take("a", "t-1", "task:t-1 section:s").waits(1).again(stopped))), "waits");
    assert_eq!((reserved(&world), world.machine.claims[&stopped].unanswered(&world.now)), (Some(stopped), None));
}

#[test]
fn only_the_wanted_slots_are_reserved() {
    let mut world = World::site();
    world.at_semaphore("S", semaphore::Input::Define(Config { capacity: 3, ttl: None }));
    world.lock("M", "x");
    world.take(take("a", "t-1", "M S:2").waits(1));
    world.pass(30);
    assert_eq!(word(&world.take(take("b", "t-2", "S:2"))), "busy");
    assert_eq!(word(&world.take(take("b", "t-2", "S:1"))), "held", "one is left");
}

#[test]
fn cycles_through_claims_waiters_and_reservations_are_refused() {
    // A claim waits for a holder that waits for a lock of the claim's holder.
    let mut world = site();
    world.lock("mine", "a");
    world.lock("L", "x");
    world.at_lock("mine", lock::Input::Acquire(Box::new(ask("x").waits(9))));
    assert_eq!(word(&world.take(take("a", "t-1", "L").waits(1))), "deadlock");
    assert!(world.machine.claims.is_empty());
    // A reservation: y waits for x, and x for a lock that is reserved for a claim that waits for y.
    let mut world = site();
    world.lock("M", "y");
    world.lock("N", "x");
    let claim = ticket(world.take(take("a", "t-1", "L M").waits(1)));
    world.at_lock("N", lock::Input::Acquire(Box::new(ask("y").waits(2))));
    world.pass(30);
    let refused = world.at_lock("L", lock::Input::Acquire(Box::new(ask("x").waits(3))));
    let coordination::Outcome::Deadlock(cycle) = refused else { panic!("{refused:?}") };
    let words: Vec<String> = cycle.iter().map(|link| format!("{} -> {}", link.party, link.resource)).collect();
    assert_eq!(words, ["x -> lock L", "a -> lock M", "y -> lock N"]);
    world.work(Input::Leave { ticket: claim });
    assert_eq!(world.lock("L", "x"), world.holder("L").unwrap().1);
}

#[test]
fn namesakes_that_wait_for_the_same_are_no_cycle() {
    // Two claims on a task that another holder has.
    let mut world = site();
    let held = ticket(world.take(take("a", "t-1", "task:t-1")));
    let one = ticket(world.take(take("b", "t-1", "task:t-1").waits(1)));
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1").waits(2))), "waits");
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1").waits(1).again(one))), "waits");
    world.work(Input::End { ticket: held });
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1").waits(1).again(one))), "held");
    // Two tasks that need the same lock, and a plain wait for it between two claims.
    let mut world = site();
    world.lock("L", "x");
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1 L").waits(1))), "waits");
    assert_eq!(word(&world.take(take("b", "t-2", "task:t-2 L").waits(2))), "waits");
    let plain = world.at_lock("L", lock::Input::Acquire(Box::new(ask("b").waits(3))));
    assert!(matches!(plain, coordination::Outcome::Lock(lock::Outcome::Waiting(_))), "{plain:?}");
    assert_eq!(word(&world.take(take("b", "t-3", "task:t-3 L").waits(4))), "waits");
    // Four claims, two on each of two tasks: each pair waits for a namesake that the other pair would block.
    let mut world = site();
    hold_both_tasks(&mut world);
    for (pid, task) in [(1, "t-1"), (2, "t-2"), (3, "t-1"), (4, "t-2")] {
        assert_eq!(word(&world.take(take("b", task, &format!("task:{task}")).waits(pid))), "waits");
    }
}

fn hold_both_tasks(world: &mut World<Coordination>) {
    world.take(take("a", "t-1", "task:t-1"));
    world.take(take("a", "t-2", "task:t-2"));
}

#[test]
fn a_cycle_through_the_holdings_of_a_name_is_refused() {
    let mut world = site();
    world.lock("L", "b");
    world.lock("M", "x");
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1 M").waits(1))), "waits");
    assert_eq!(word(&world.take(take("b", "t-2", "task:t-2 M").waits(2))), "waits");
    let refused = world.at_lock("L", lock::Input::Acquire(Box::new(ask("x").waits(3))));
    assert!(matches!(refused, coordination::Outcome::Deadlock(_)), "{refused:?}");
    // In the other order: the wait of x is first.
    let mut world = site();
    world.lock("L", "b");
    world.lock("M", "x");
    world.at_lock("L", lock::Input::Acquire(Box::new(ask("x").waits(3))));
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1 M").waits(1))), "deadlock");
}

/// The holder of something that a claim waits for passes the claim's reservation, also before earlier waiters.
#[test]
fn a_waiter_that_passes_a_reservation_passes_earlier_waiters() {
    let mut world = site();
    world.lock("L", "x");
    let epoch = world.lock("M", "p");
    world.at_lock("M", lock::Input::Acquire(Box::new(ask("q").waits(2))));
    world.at_lock("M", lock::Input::Acquire(Box::new(ask("child").under(&["x"]).waits(3))));
    let claim = ticket(world.take(take("a", "t-1", "L M").waits(1)));
    world.pass(30);
    // The claim waits for x, and x for the second waiter; the first waiter waits for the claim.
    assert_eq!(word(&world.take(take("a", "t-1", "L M").waits(1).again(claim))), "waits");
    world.unlock("M", "p", epoch);
    assert_eq!(world.of("M"), "child");
}

#[test]
fn a_claim_that_yielded_comes_first_again_and_closes_no_cycle() {
    let mut world = site();
    world.lock("L", "x");
    world.lock("N", "y");
    let epoch = world.lock("K", "z");
    let of_y = |claim: Take| Take { ancestors: vec![holder("y")], ..claim };
    let stopped = ticket(world.take(of_y(take("d", "t-1", "K").waits(1))));
    world.at_lock("N", lock::Input::Acquire(Box::new(ask("x").waits(3))));
    let claim = ticket(world.take(take("b", "t-2", "K L").waits(2)));
    world.pass(30);
    world.unlock("K", "z", epoch);
    world.machine.give_turns(&[Resource { kind: Kind::Lock, name: name("K") }], &world.now.clone());
    world.pass(15);
    assert_eq!(word(&world.work(Input::Yield { ticket: stopped })), "yielded");
    // K is reserved for b, which waits for x, which waits for y; but y waits for b only as long as its own process is
    // stopped.
    assert_eq!(word(&world.take(take("b", "t-2", "K L").waits(2).again(claim))), "waits");
    assert_eq!(word(&world.take(of_y(take("d", "t-1", "K").waits(1).again(stopped)))), "held", "it comes first again");
}

#[test]
fn grants_and_waits_that_are_over_close_no_cycle() {
    let scene = |world: &mut World<Coordination>| {
        world.lock("L", "a");
        world.lock("N", "x");
        world.at_lock("M", lock::Input::Acquire(Box::new(ask("p").ttl(10))));
        world.at_lock("L", lock::Input::Acquire(Box::new(ask("p").waits(2))));
        word(&world.take(take("a", "t-1", "M N").waits(1)))
    };
    assert_eq!(scene(&mut site()), "deadlock");
    let mut world = site();
    scene(&mut world);
    world.pass(10);
    assert_eq!(word(&world.take(take("a", "t-1", "M N").waits(1))), "waits", "the grant of M is over");
    // The same with the wait of a dead process.
    let mut world = site();
    scene(&mut world);
    world.kill(2);
    assert_eq!(word(&world.take(take("a", "t-1", "M N").waits(1))), "waits", "p waits for nothing any more");
}

#[test]
fn grants_that_are_over_close_no_cycle_of_waiters() {
    let scene = |world: &mut World<Coordination>| {
        world.lock("N", "q");
        world.lock("L", "r");
        world.at_lock("M", lock::Input::Acquire(Box::new(ask("p").ttl(10))));
        world.at_lock("N", lock::Input::Acquire(Box::new(ask("p").waits(2))));
        world.at_lock("M", lock::Input::Acquire(Box::new(ask("r").waits(3))));
    };
    let asks = |world: &mut World<Coordination>| world.at_lock("L", lock::Input::Acquire(Box::new(ask("q").waits(4))));
    let mut world = site();
    scene(&mut world);
    assert!(matches!(asks(&mut world), coordination::Outcome::Deadlock(_)));
    let mut world = site();
    scene(&mut world);
    world.pass(10);
    assert!(matches!(asks(&mut world), coordination::Outcome::Lock(lock::Outcome::Waiting(_))));
    assert_eq!(world.of("M"), "r", "the grant of p has ended");
}

/// The holders that pass follow from all that is held, also while several locks are reaped at once.
#[test]
fn reservations_let_pass_while_dead_holders_are_reaped() {
    let mut world = site();
    world.lock("Z", "x");
    world.at_lock("M", lock::Input::Acquire(Box::new(ask("p").bound_to(&[9]))));
    world.at_lock("Z", lock::Input::Acquire(Box::new(ask("q").waits(2))));
    world.at_lock("M", lock::Input::Acquire(Box::new(ask("child").under(&["x"]).waits(3))));
    world.take(take("a", "t-1", "M Z").waits(1));
    world.pass(30);
    world.kill(9);
    world.at_lock("other", lock::Input::Reap);
    assert_eq!(world.of("M"), "child", "x has Z, for which the claim waits");
}

#[test]
fn slots_that_are_not_reserved_close_no_cycle() {
    let mut world = World::site();
    world.at_semaphore("S", semaphore::Input::Define(Config { capacity: 3, ttl: None }));
    world.lock("L", "y");
    world.lock("M", "x");
    world.at_semaphore("S", semaphore::Input::Acquire(Box::new(ask("z").weight(3))));
    world.at_semaphore("S", semaphore::Input::Acquire(Box::new(ask("y").waits(2))));
    world.at_lock("L", lock::Input::Acquire(Box::new(ask("x").waits(3))));
    let claim = ticket(world.take(take("a", "t-1", "M S:1").waits(1)));
    world.pass(30);
    assert_eq!(word(&world.take(take("a", "t-1", "M S:1").waits(1).again(claim))), "waits", "two slots are left for y");
}

/// A wait that will get a resource of the cycle may be that of a dead process: the cycle names it.
#[test]
fn a_cycle_names_the_processes_that_will_hold_its_resources() {
    let mut world = site();
    world.lock("M", "z");
    world.lock("L", "x");
    world.take(take("y", "t-1", "task:t-1 L").waits(1));
    world.at_lock("M", lock::Input::Acquire(Box::new(ask("y").waits(2))));
    let refused = |world: &mut World<Coordination>| world.at_lock("L", lock::Input::Acquire(Box::new(ask("z").waits(3))));
    let coordination::Outcome::Deadlock(cycle) = refused(&mut world) else { panic!("z waits for y, and y for z") };
    let pids: Vec<_> = cycle.iter().map(|link| (link.process.pid, link.before.iter().map(|one| one.pid).collect())).collect();
    assert_eq!(pids, [(3, vec![1]), (2, vec![])]);
    world.kill(1);
    let waits = refused(&mut world);
    assert!(matches!(waits, coordination::Outcome::Lock(lock::Outcome::Waiting(_))), "{waits:?}");
}

#[test]
fn a_run_that_waits_for_a_task_is_an_edge_and_takes_nothing() {
    let mut world = site();
    world.lock("task:a", "run:a");
    world.lock("task:b", "run:b");
    let waits = |who: &str, list: &str, pid: i32| {
        let wait = Take { task: None, ..take(who, "-", list).waits(pid) };
        Input::Await(Box::new(Take { wait: wait.wait.clone().map(|(standing, _)| (standing, None)), ..wait }))
    };
    assert_eq!(word(&world.work(waits("run:a", "task:b", 1))), "waits");
    assert_eq!(word(&world.work(waits("run:b", "task:a", 2))), "deadlock");
    assert_eq!(word(&world.work(waits("run:b", "task:b", 2))), "deadlock", "a run cannot wait for itself");
    assert_eq!(world.machine.claims.len(), 1);
}
