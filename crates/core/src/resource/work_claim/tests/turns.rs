//! The turns of claims, and turns without a try.

use super::*;
use crate::resource::grant::Address;

/// Two holders give back parts of a claim in one transaction, in which not all of its locks were read: the turn must
/// not be missed.
#[test]
fn a_claim_has_its_turn_when_its_last_part_is_freed() {
    let mut world = site();
    let [one, two] = ["L", "M"].map(|label| world.lock(label, label));
    let claim = ticket(world.take(take("a", "t-1", "L M N").waits(1)));
    // As in the rows that were read at the beginning.
    world.machine.claims.get_mut(&claim).unwrap().in_the_way = [holder("L"), holder("M")].into();
    world.machine.locks.remove("N");
    let freed = |label: &str| [Resource { kind: Kind::Lock, name: name(label) }];
    world.unlock("L", "L", one);
    world.machine.give_turns(&freed("L"), &world.now.clone());
    assert_eq!(world.machine.claims[&claim].turn_ends(), None);
    world.unlock("M", "M", two);
    world.machine.give_turns(&freed("M"), &world.now.clone());
    assert_eq!(world.machine.claims[&claim].turn_ends(), Some(world.now.lease + OFFER));
}

#[test]
fn a_shared_section_does_not_delay_a_turn() {
    let mut world = site();
    world.take(take("a", "t-1", "task:t-1 section:s"));
    let epoch = world.lock("L", "x");
    let claim = ticket(world.take(take("a", "t-2", "task:t-2 section:s L").waits(1)));
    world.unlock("L", "x", epoch);
    world.machine.give_turns(&[Resource { kind: Kind::Lock, name: name("L") }], &world.now.clone());
    assert_eq!(world.machine.claims[&claim].turn_ends(), Some(world.now.lease + OFFER));
}

/// However many processes are stopped, the others wait for two turns at most: that of the first claim, and that of all
/// later ones, including claims that wait for one of these.
#[test]
fn claims_after_one_that_yields_have_their_turns_together() {
    let mut world = site();
    let epoch = world.lock("L", "x");
    let other = world.lock("N", "x");
    let claims = ["L", "L N", "N"].map(|parts| ticket(world.take(take("a", &parts.replace(' ', "-"), parts).waits(1))));
    world.unlock("N", "x", other);
    world.take(take("b", "t-4", "L M").waits(4));
    world.lock("M", "y");
    world.pass(30);
    world.at_lock("L", lock::Input::Acquire(Box::new(ask("z").waits(5))));
    world.unlock("L", "x", epoch);
    world.machine.give_turns(&[Resource { kind: Kind::Lock, name: name("L") }], &world.now.clone());
    let ends = |world: &World<Coordination>| world.machine.claims.values().map(WorkClaim::turn_ends).collect::<Vec<_>>();
    let first = Some(world.now.lease + OFFER);
    assert_eq!(ends(&world), [first, None, None, None]);
    world.pass(15);
    assert_eq!(word(&world.work(Input::Yield { ticket: claims[0] })), "yielded");
    let second = Some(world.now.lease + OFFER);
    assert_eq!(ends(&world), [None, second, second, None], "the last one waits for M");
    world.pass(15);
    for ticket in &claims[1..] {
        assert_eq!(word(&world.work(Input::Yield { ticket: *ticket })), "yielded");
    }
    assert_eq!(world.of("L"), "nobody", "it is reserved for b, which lives and waits for M");
}

/// The turn of the first claim was a guess: it lacks a lock that was not read. It finds out when it tries, and the next
/// claim, which passes the reservation of the first, must get its turn then.
#[test]
fn a_turn_that_comes_too_early_is_passed_on() {
    let mut world = site();
    let section = world.lock("section:s", "x");
    let held = world.lock("M", "y");
    let first = ticket(world.take(take("a", "t-1", "M section:s task:t-1").waits(1)));
    let passes = Take { ancestors: vec![holder("y")], ..take("b", "t-2", "L section:s task:t-2").waits(2) };
    let standing = WaitingProcess { process: process(2), address: Some(Address("b".into())), lease: None };
    let second = ticket(world.take(Take { wait: Some((standing, Some(Span::from_secs(30)))), ..passes }));
    let third = ticket(world.take(take("c", "t-3", "section:s task:t-3").waits(3)));
    let unread = world.machine.locks.remove("M").unwrap();
    world.machine.claims.get_mut(&first).unwrap().in_the_way.insert(holder("y"));
    world.unlock("section:s", "x", section);
    world.machine.give_turns(&parts("section:s").into_iter().map(|part| part.resource).collect::<Vec<_>>(), &world.now.clone());
    let has_turn =
        |world: &World<Coordination>| [first, second, third].map(|ticket| world.machine.claims[&ticket].turn_ends().is_some());
    assert_eq!(has_turn(&world), [true, false, false]);
    world.machine.locks.insert(unread.name.clone(), unread);
    world.woken.clear();
    assert_eq!(word(&world.take(take("a", "t-1", "M section:s task:t-1").waits(1).again(first))), "waits");
    assert_eq!(has_turn(&world), [false, true, false], "the third does not pass the first");
    assert_eq!(world.woken, [Address("b".into())], "the second is woken");
    world.unlock("M", "y", held);
}

/// All claims that fit have a turn, not only the first: the next one would wait for a live process that does not know
/// of its turn.
#[test]
fn all_claims_that_fit_have_a_turn() {
    let mut world = site();
    world.at_semaphore("S", semaphore::Input::Define(Config { capacity: 3, ttl: None }));
    let held = ticket(world.take(take("x", "t-0", "S:3")));
    let wants = ["S:2 task:t-1", "S:2 task:t-2", "S:1 task:t-3", "S:1 task:t-4"];
    let claims = [1, 2, 3, 4].map(|pid| {
        ticket(world.take(take(&format!("p{pid}"), &format!("t-{pid}"), wants[pid - 1]).waits(i32::try_from(pid).unwrap())))
    });
    world.pass(30);
    world.work(Input::End { ticket: held });
    let freed: Vec<Resource> = parts("S:3").into_iter().map(|part| part.resource).collect();
    world.machine.give_turns(&freed, &world.now.clone());
    let has_turn = claims.map(|ticket| world.machine.claims[&ticket].turn_ends().is_some());
    assert_eq!(has_turn, [true, false, true, false]);
}
