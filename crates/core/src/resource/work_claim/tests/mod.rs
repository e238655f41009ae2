use super::*;
use crate::resource::semaphore::{self, Config};
use crate::test_world::{World, ask, assert_table, holder, name, process, words};

mod turns;

/// `L` and `M` are locks, `S:2` is two slots of a semaphore, `section:…` and `task:…` are what they are called.
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

/// Every state of a claim with every input: what is answered, and who has `L` and `M` then.
#[test]
fn every_input_has_its_answer_in_every_state() {
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
        // One that is held is another's to take: its own number is that of the claim it has.
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
fn it_is_taken_whole_or_not_at_all_and_given_back_whole() {
    let mut world = site();
    let epoch = world.lock("M", "x");
    assert_eq!(word(&world.take(take("a", "t-1", "L M S:1"))), "busy");
    assert_eq!((world.of("L"), world.machine.semaphores["S"].holders.len()), ("nobody", 0));
    let claim = ticket(world.take(take("a", "t-1", "L M S:1").waits(1)));
    assert_eq!(world.of("L"), "nobody", "who waits holds nothing");
    world.unlock("M", "x", epoch);
    assert_eq!(world.of("M"), "nobody", "and stands in no line");
    let held = ticket(world.take(take("a", "t-1", "L M S:1").waits(1).again(claim)));
    assert_eq!((held, world.of("L"), world.of("M")), (claim, "a", "a"));
    world.work(Input::End { ticket: claim });
    assert_eq!((world.of("L"), world.of("M"), world.machine.semaphores["S"].holders.len()), ("nobody", "nobody", 0));
}

#[test]
fn a_section_is_shared_by_the_claims_of_one_holder_and_freed_with_the_last() {
    let mut world = site();
    let one = ticket(world.take(take("a", "t-1", "section:s task:t-1")));
    let two = ticket(world.take(take("a", "t-2", "section:s task:t-2")));
    assert_eq!(word(&world.take(take("b", "t-3", "section:s task:t-3"))), "busy");
    world.work(Input::End { ticket: one });
    assert_eq!(world.of("section:s"), "a");
    world.pass(10_000);
    world.machine = world.machine.clone().maintain(&world.now).state;
    assert_eq!((world.of("section:s"), world.of("task:t-2")), ("a", "nobody"), "it has no lease of its own");
    world.work(Input::End { ticket: two });
    assert_eq!(world.of("section:s"), "nobody");
}

#[test]
fn others_overtake_a_claim_for_its_bound_and_then_only_those_who_hold_what_it_waits_for() {
    let mut world = site();
    world.lock("M", "x");
    let claim = ticket(world.take(take("a", "t-1", "L M").waits(1)));
    let epoch = world.lock("L", "y");
    world.pass(30);
    world.at_lock("L", lock::Input::Acquire(Box::new(ask("z").waits(3))));
    world.unlock("L", "y", epoch);
    assert_eq!(world.of("L"), "nobody", "it is kept, also from those who stand in line");
    let busy = world.at_lock("L", lock::Input::Acquire(Box::new(ask("y"))));
    let coordination::Outcome::Lock(lock::Outcome::Busy(blocked)) = busy else { panic!("{busy:?}") };
    assert_eq!((blocked.reserved.unwrap().holder, blocked.watch), (holder("a"), vec![vec![process(1)]]));
    // A newer claim waits behind it, and one who works for x passes.
    assert_eq!(word(&world.take(take("b", "t-2", "L"))), "busy");
    let passes = world.at_lock("L", lock::Input::Acquire(Box::new(ask("child").under(&["x"]))));
    let coordination::Outcome::Lock(lock::Outcome::Acquired(grant)) = passes else { panic!("{passes:?}") };
    world.unlock("L", "child", grant.epoch);
    // Who gives up leaves nothing behind: the line goes on.
    world.work(Input::Leave { ticket: claim });
    assert_eq!((world.of("L"), world.machine.claims.len()), ("z", 0));
}

#[test]
fn those_who_wait_for_one_task_get_it_in_the_order_in_which_they_came() {
    let mut world = site();
    let held = ticket(world.take(take("a", "t-1", "task:t-1")));
    let bob = ticket(world.take(take("b", "t-1", "task:t-1").waits(2)));
    let eve = ticket(world.take(take("e", "t-1", "task:t-1").waits(3)));
    world.work(Input::End { ticket: held });
    assert_eq!(word(&world.take(take("e", "t-1", "task:t-1").waits(3).again(eve))), "waits", "bob came first");
    assert_eq!(word(&world.take(take("x", "t-1", "task:t-1"))), "busy");
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1").waits(2).again(bob))), "held");
    world.work(Input::End { ticket: bob });
    assert_eq!(word(&world.take(take("e", "t-1", "task:t-1").waits(3).again(eve))), "held");
}

#[test]
fn what_is_taken_in_the_same_draft_lets_nobody_pass() {
    let mut world = site();
    world.lock("N", "x");
    world.take(take("a", "t-1", "L N section:s").waits(1));
    // Whoever comes may overtake it for L, but the section is kept.
    assert_eq!(word(&world.take(take("b", "t-2", "L section:s"))), "busy", "not by having L first");
    assert_eq!(word(&world.take(take("b", "t-2", "L"))), "held");
}

#[test]
fn nothing_is_kept_for_the_dead() {
    let mut world = site();
    world.lock("M", "x");
    world.take(take("a", "t-1", "L M").waits(1));
    world.pass(30);
    assert_eq!(word(&world.take(take("b", "t-2", "L"))), "busy");
    world.kill(1);
    assert_eq!(word(&world.take(take("b", "t-2", "L"))), "held");
}

#[test]
fn one_that_does_not_try_in_its_turn_yields_and_keeps_its_ticket() {
    let mut world = site();
    let section = || Resource { kind: Kind::Lock, name: name("section:s") };
    let held = ticket(world.take(take("x", "t-0", "task:t-0 section:s")));
    let stopped = ticket(world.take(take("a", "t-1", "task:t-1 section:s").waits(1)));
    let also = ticket(world.take(take("b", "t-2", "task:t-2 section:s").waits(2)));
    world.work(Input::End { ticket: held });
    world.machine.give_turns(&[section()], &world.now.clone());
    assert_eq!(world.machine.claims[&stopped].turn_ends(), Some(world.now.lease + OFFER));
    assert_eq!(world.machine.claims[&also].turn_ends(), None, "only the first one");
    assert_eq!(word(&world.take(take("y", "t-3", "task:t-3 section:s"))), "busy", "its time is not up");
    assert_eq!(word(&world.work(Input::Yield { ticket: stopped })), "gone", "nor can anybody say so");
    world.pass(15);
    // Nothing is reserved for it any more; the next one is not passed over.
    assert_eq!(word(&world.take(take("y", "t-3", "task:t-3 section:s"))), "busy");
    let reserved = |world: &World<Coordination>| world.machine.reservation(&section(), &world.now).map(|kept| kept.ticket);
    assert_eq!(reserved(&world), Some(also));
    assert_eq!(word(&world.work(Input::Yield { ticket: stopped })), "yielded");
    world.machine.give_turns(&[section()], &world.now.clone());
    assert_eq!(world.machine.claims[&also].turn_ends(), Some(world.now.lease + OFFER));
    world.pass(15);
    assert_eq!(reserved(&world), None);
    assert_eq!(word(&world.take(take("y", "t-3", "task:t-3 section:s"))), "held");
    // It goes on: its old ticket counts again.
    assert_eq!(word(&world.take(take("a", "t-1", "task:t-1 section:s").waits(1).again(stopped))), "waits");
    assert_eq!((reserved(&world), world.machine.claims[&stopped].unanswered(&world.now)), (Some(stopped), None));
}

#[test]
fn slots_are_kept_up_to_what_is_wanted() {
    let mut world = World::site();
    world.at_semaphore("S", semaphore::Input::Define(Config { capacity: 3, ttl: None }));
    world.lock("M", "x");
    world.take(take("a", "t-1", "M S:2").waits(1));
    world.pass(30);
    assert_eq!(word(&world.take(take("b", "t-2", "S:2"))), "busy");
    assert_eq!(word(&world.take(take("b", "t-2", "S:1"))), "held", "one is left");
}

#[test]
fn circles_through_claims_lines_and_reservations_are_refused() {
    // A claim waits for what one holds who stands in line for what its holder has.
    let mut world = site();
    world.lock("mine", "a");
    world.lock("L", "x");
    world.at_lock("mine", lock::Input::Acquire(Box::new(ask("x").waits(9))));
    assert_eq!(word(&world.take(take("a", "t-1", "L").waits(1))), "deadlock");
    assert!(world.machine.claims.is_empty());
    // A reservation: y waits for x, who waits for what is kept for a claim that waits for y.
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
fn namesakes_that_wait_for_the_same_are_no_circle() {
    // Two claims on a task that another one has.
    let mut world = site();
    let held = ticket(world.take(take("a", "t-1", "task:t-1")));
    let one = ticket(world.take(take("b", "t-1", "task:t-1").waits(1)));
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1").waits(2))), "waits");
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1").waits(1).again(one))), "waits");
    world.work(Input::End { ticket: held });
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1").waits(1).again(one))), "held");
    // Two tasks that need the same lock, and a plain wait for it on either side of a claim.
    let mut world = site();
    world.lock("L", "x");
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1 L").waits(1))), "waits");
    assert_eq!(word(&world.take(take("b", "t-2", "task:t-2 L").waits(2))), "waits");
    let plain = world.at_lock("L", lock::Input::Acquire(Box::new(ask("b").waits(3))));
    assert!(matches!(plain, coordination::Outcome::Lock(lock::Outcome::Waiting(_))), "{plain:?}");
    assert_eq!(word(&world.take(take("b", "t-3", "task:t-3 L").waits(4))), "waits");
    // Four claims, two on each of two tasks: each pair waits for a namesake that the other pair would be in the way of.
    let mut world = site();
    take_both(&mut world);
    for (pid, task) in [(1, "t-1"), (2, "t-2"), (3, "t-1"), (4, "t-2")] {
        assert_eq!(word(&world.take(take("b", task, &format!("task:{task}")).waits(pid))), "waits");
    }
}

fn take_both(world: &mut World<Coordination>) {
    world.take(take("a", "t-1", "task:t-1"));
    world.take(take("a", "t-2", "task:t-2"));
}

#[test]
fn a_circle_through_what_a_name_holds_is_refused_however_many_wait_under_it() {
    let mut world = site();
    world.lock("L", "b");
    world.lock("M", "x");
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1 M").waits(1))), "waits");
    assert_eq!(word(&world.take(take("b", "t-2", "task:t-2 M").waits(2))), "waits");
    let refused = world.at_lock("L", lock::Input::Acquire(Box::new(ask("x").waits(3))));
    assert!(matches!(refused, coordination::Outcome::Deadlock(_)), "{refused:?}");
    // And the other way round: the wait of x is there first.
    let mut world = site();
    world.lock("L", "b");
    world.lock("M", "x");
    world.at_lock("L", lock::Input::Acquire(Box::new(ask("x").waits(3))));
    assert_eq!(word(&world.take(take("b", "t-1", "task:t-1 M").waits(1))), "deadlock");
}

/// Who holds what a claim waits for passes what is reserved for it, also when others stand before it in the line.
#[test]
fn one_that_a_reservation_lets_passes_those_before_it_in_line() {
    let mut world = site();
    world.lock("L", "x");
    let epoch = world.lock("M", "p");
    world.at_lock("M", lock::Input::Acquire(Box::new(ask("q").waits(2))));
    world.at_lock("M", lock::Input::Acquire(Box::new(ask("child").under(&["x"]).waits(3))));
    let claim = ticket(world.take(take("a", "t-1", "L M").waits(1)));
    world.pass(30);
    // The claim waits for x, and x for the second in line; the first one waits for the claim.
    assert_eq!(word(&world.take(take("a", "t-1", "L M").waits(1).again(claim))), "waits");
    world.unlock("M", "p", epoch);
    assert_eq!(world.of("M"), "child");
}

#[test]
fn one_that_has_yielded_comes_first_again_and_closes_no_circle() {
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
    // K is kept for b, who waits for x, who waits for y; but y waits for b only as long as its process is stopped.
    assert_eq!(word(&world.take(take("b", "t-2", "K L").waits(2).again(claim))), "waits");
    assert_eq!(word(&world.take(of_y(take("d", "t-1", "K").waits(1).again(stopped)))), "held", "it is the first again");
}

#[test]
fn what_is_over_closes_no_circle() {
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
    assert_eq!(word(&world.take(take("a", "t-1", "M N").waits(1))), "waits", "M is anybody's");
    // Likewise the wait of a process that is dead.
    let mut world = site();
    scene(&mut world);
    world.kill(2);
    assert_eq!(word(&world.take(take("a", "t-1", "M N").waits(1))), "waits", "p waits for nothing any more");
}

#[test]
fn what_is_over_closes_no_circle_of_those_in_line() {
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
    assert_eq!(world.of("M"), "r", "p cannot come back to what r waits for");
}

/// Who passes follows from all that is held, also while several locks are cleared away at once.
#[test]
fn one_that_a_reservation_lets_passes_also_when_the_dead_are_cleared_away() {
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
fn slots_beyond_those_that_are_kept_close_no_circle() {
    let mut world = World::site();
    world.at_semaphore("S", semaphore::Input::Define(Config { capacity: 3, ttl: None }));
    world.lock("L", "y");
    world.lock("M", "x");
    world.at_semaphore("S", semaphore::Input::Acquire(Box::new(ask("z").weight(3))));
    world.at_semaphore("S", semaphore::Input::Acquire(Box::new(ask("y").waits(2))));
    world.at_lock("L", lock::Input::Acquire(Box::new(ask("x").waits(3))));
    let claim = ticket(world.take(take("a", "t-1", "M S:1").waits(1)));
    world.pass(30);
    assert_eq!(word(&world.take(take("a", "t-1", "M S:1").waits(1).again(claim))), "waits", "there are two for y");
}

/// A wait that will get what the circle needs may be that of a dead process: the circle names it.
#[test]
fn a_circle_names_the_processes_that_will_hold_what_is_waited_for() {
    let mut world = site();
    world.lock("M", "z");
    world.lock("L", "x");
    world.take(take("y", "t-1", "task:t-1 L").waits(1));
    world.at_lock("M", lock::Input::Acquire(Box::new(ask("y").waits(2))));
    let refused = |world: &mut World<Coordination>| world.at_lock("L", lock::Input::Acquire(Box::new(ask("z").waits(3))));
    let coordination::Outcome::Deadlock(cycle) = refused(&mut world) else { panic!("z waits for y, and y for z") };
    let said: Vec<_> = cycle.iter().map(|link| (link.process.pid, link.before.iter().map(|one| one.pid).collect())).collect();
    assert_eq!(said, [(3, vec![1]), (2, vec![])]);
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
    assert_eq!(word(&world.work(waits("run:b", "task:b", 2))), "deadlock", "nor for itself");
    assert_eq!(world.machine.claims.len(), 1);
}
