use super::*;
use crate::test_world::{World, ask, holder, name, process, root, secs, words};

mod histories;
mod table;

use table::{Scene, scene};

impl World<Semaphore> {
    fn semaphore(capacity: u32) -> World<Semaphore> {
        World::new(Semaphore::new(name("gpu"), Config { capacity, ttl: None }))
    }

    fn ask(&mut self, ask: Ask) -> Outcome {
        self.act(Input::Acquire(Box::new(ask)))
    }

    fn get(&mut self, ask: Ask) -> Epoch {
        granted(self.ask(ask)).epoch
    }

    fn wait(&mut self, ask: Ask) -> Ticket {
        waiting(self.ask(ask)).ticket
    }

    fn poll(&mut self, ticket: Ticket) -> Outcome {
        self.act(Input::Poll { ticket })
    }

    fn leave(&mut self, ticket: Ticket) -> Outcome {
        self.act(Input::Leave { ticket })
    }

    fn heartbeat(&mut self, who: &str, epoch: Option<Epoch>) -> Outcome {
        self.act(Input::Heartbeat { holder: holder(who), epoch })
    }

    fn release(&mut self, who: &str, epoch: Option<Epoch>) -> Outcome {
        self.act(Input::Release { holder: holder(who), epoch })
    }

    fn force(&mut self, who: &str) -> Outcome {
        self.act(Input::Force { holder: holder(who), by: root() })
    }

    fn resize(&mut self, capacity: u32) -> Outcome {
        self.act(Input::Define(Config { capacity, ttl: None }))
    }

    fn reap(&mut self) -> Vec<(HolderId, Reason)> {
        match self.act(Input::Reap) {
            Outcome::Reaped(over) => over,
            other => panic!("not reaped but {other:?}"),
        }
    }

    fn grant(&self, who: &str) -> &Grant {
        self.machine.holders.get(who).unwrap()
    }

    /// The weights by holder, such as `a2 b1`; an offer is marked with a question mark.
    fn held(&self) -> String {
        let text =
            |grant: &Grant| format!("{}{}{}", grant.claim.holder, grant.claim.weight, grant.offer.as_ref().map_or("", |_| "?"));
        self.machine.holders.values().map(text).collect::<Vec<_>>().join(" ")
    }

    /// The weights of the waiters, in order.
    fn waiters(&self) -> String {
        let text = |waiter: &Waiter| format!("{}{}", waiter.claim.holder, waiter.claim.weight);
        self.machine.waiters.iter().map(text).collect::<Vec<_>>().join(" ")
    }
}

fn granted(outcome: Outcome) -> Grant {
    match outcome {
        Outcome::Acquired(grant) | Outcome::AlreadyHeld(grant) | Outcome::Increased(grant) | Outcome::Extended(grant) => grant,
        other => panic!("not granted but {other:?}"),
    }
}

fn waiting(outcome: Outcome) -> Waiting {
    match outcome {
        Outcome::Waiting(waiting) => waiting,
        other => panic!("not waiting but {other:?}"),
    }
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::AlreadyHeld(_) => "has it".into(),
        Outcome::Full { available, .. } => format!("full({available})"),
        Outcome::Waiting(waiting) => format!("place {}", waiting.place),
        Outcome::TooManyWaiters => "line full".into(),
        Outcome::NotHolder => "no holder".into(),
        Outcome::Reaped(over) => format!("reaped {}", over.len()),
        other => words(other),
    }
}

#[test]
fn a_new_grant_is_refused_to_a_present_holder_or_waiter() {
    let mut world = World::semaphore(4);
    let anew = |ask: Ask| Ask { anew: true, ..ask };
    world.get(anew(ask("a").weight(2)));
    for weight in [1, 2, 3] {
        assert_eq!(world.ask(anew(ask("a").weight(weight))), Outcome::HeldAlready);
    }
    assert_eq!(world.grant("a").claim.weight, 2, "nothing was added");
    let ticket = world.wait(anew(ask("b").weight(3).request("r").waits(1)));
    assert_eq!(world.ask(anew(ask("b").waits(2))), Outcome::HeldAlready);
    assert_eq!(waiting(world.ask(anew(ask("b").weight(3).request("r").waits(3)))).ticket, ticket, "the same request");
    world.release("a", None);
    world.poll(ticket);
    assert_eq!(world.ask(anew(ask("b"))), Outcome::HeldAlready);
    world.release("b", None);
    world.get(anew(ask("b")));
}

#[test]
fn slots_are_given_by_weight_within_the_capacity() {
    let mut world = World::semaphore(4);
    world.get(ask("a").weight(3));
    assert_eq!(word(&world.ask(ask("b").weight(2))), "full(1)");
    world.get(ask("b"));
    assert_eq!((world.held().as_str(), world.machine.available()), ("a3 b1", 0));
    assert_eq!(world.ask(ask("c").weight(0)), Outcome::NoWeight);
    assert_eq!(world.ask(ask("c").weight(5)), Outcome::TooHeavy { capacity: 4 });
}

#[test]
fn asking_again_for_no_more_only_renews_the_lease() {
    let mut world = World::semaphore(4);
    let epoch = world.get(ask("a").weight(3).ttl(60));
    world.pass(50);
    for weight in [3, 1] {
        let Outcome::AlreadyHeld(grant) = world.ask(ask("a").weight(weight)) else { panic!("not held already") };
        assert_eq!((grant.epoch, grant.claim.weight, grant.claim.ttl), (epoch, 3, secs(60)));
    }
    world.pass(50);
    assert_eq!(world.reap(), []);
    assert_eq!(world.kinds(), ["acquired"]);
}

#[test]
fn an_increase_keeps_its_epoch() {
    let mut world = World::semaphore(4);
    let epoch = world.get(ask("a"));
    let Outcome::Increased(grant) = world.ask(ask("a").weight(4)) else { panic!("not increased") };
    assert_eq!((grant.epoch, world.held().as_str(), world.kinds()), (epoch, "a4", vec!["acquired", "increased"]));
}

#[test]
fn an_increase_that_does_not_fit_waits_with_the_old_weight() {
    let mut world = World::semaphore(4);
    let a = world.get(ask("a").weight(2));
    let b = world.get(ask("b").weight(2));
    let ticket = world.wait(ask("a").weight(3).waits(1));
    assert_eq!((world.held().as_str(), world.waiters().as_str()), ("a2 b2", "a3"));
    world.release("b", Some(b));
    assert_eq!((world.held().as_str(), world.woken()), ("a3?", vec!["1"]));
    assert_eq!(granted(world.poll(ticket)).epoch, a);
    assert_eq!(world.held(), "a3");
}

#[test]
fn an_increase_waits_behind_earlier_waiters() {
    let mut world = World::semaphore(4);
    world.get(ask("a"));
    world.get(ask("x").weight(2));
    world.wait(ask("b").weight(3).waits(2));
    assert_eq!(word(&world.ask(ask("a").weight(2))), "full(1)");
    world.wait(ask("a").weight(2).waits(1));
    world.release("x", None);
    assert_eq!((world.held().as_str(), world.waiters().as_str()), ("a1 b3?", "a2"));
}

#[test]
fn a_lapsed_increase_goes_back_to_the_old_weight() {
    for end in ["time", "death", "leave"] {
        let Scene { mut world, own, ticket } = scene("more offered");
        world.wait(ask("b").weight(2).waits(2));
        match end {
            "time" => world.pass(15),
            "death" => world.kill(9),
            _ => drop(world.leave(ticket)),
        }
        world.reap();
        assert_eq!((world.held().as_str(), world.waiters().as_str()), ("a2 b2?", ""), "{end}");
        assert_eq!(world.kinds()[3..], ["increased", "offer_lapsed", "acquired"]);
        assert_eq!(granted(world.heartbeat("a", Some(own))).claim.weight, 2);
        assert_eq!(world.poll(ticket), Outcome::Gone);
    }
}

/// Once taken up, the added slots cannot be distinguished from the rest, which is in use.
#[test]
fn leaving_after_taking_up_an_increase_releases_no_slots() {
    let Scene { mut world, own, ticket } = scene("more taken up");
    assert_eq!(world.leave(ticket), Outcome::Left);
    assert_eq!(granted(world.heartbeat("a", Some(own))).claim.weight, 4);
}

/// The holder lives, but the request for more may come from another process of the same name, which is dead.
#[test]
fn a_heartbeat_of_the_holder_does_not_take_up_an_increase() {
    let Scene { mut world, own, .. } = scene("more offered");
    world.pass(10);
    world.heartbeat("a", Some(own));
    world.pass(5);
    assert_eq!(world.reap(), [(holder("a"), Reason::Lapsed)]);
    assert_eq!(world.held(), "a2");
    world.pass(54);
    assert_eq!(world.reap(), [], "the heartbeat counted for the lease");
}

#[test]
fn the_death_of_a_holder_ends_its_grant_and_its_offer() {
    let Scene { mut world, .. } = scene("more for a dead holder");
    assert_eq!(world.reap(), [(holder("a"), Reason::Lapsed), (holder("a"), Reason::Dead)]);
    assert_eq!(world.held(), "");
}

#[test]
fn an_increase_by_epoch_revives_an_expired_lease() {
    let Scene { mut world, own, .. } = scene("expired");
    let Outcome::Increased(grant) = world.ask(ask("a").weight(3).epoch(own)) else { panic!("not increased") };
    assert_eq!((grant.epoch, grant.claim.weight), (own, 3));
    world.pass(60);
    assert_eq!(granted(world.heartbeat("a", Some(own))).epoch, own);
}

#[test]
fn a_heavy_waiter_holds_back_light_ones() {
    let mut world = World::semaphore(4);
    let a = world.get(ask("a").weight(2));
    world.wait(ask("b").weight(3).waits(2));
    world.wait(ask("c").waits(3));
    assert_eq!(word(&world.ask(ask("d"))), "full(2)");
    assert_eq!((world.held().as_str(), world.waiters().as_str()), ("a2", "b3 c1"));
    world.release("a", Some(a));
    assert_eq!((world.held().as_str(), world.woken()), ("b3? c1?", vec!["2", "3"]));
}

#[test]
fn when_the_first_waiter_leaves_the_others_pass() {
    let mut world = World::semaphore(4);
    world.get(ask("a").weight(2));
    let big = world.wait(ask("b").weight(3).waits(2));
    world.wait(ask("c").waits(3));
    assert_eq!(world.leave(big), Outcome::Left);
    assert_eq!((world.held().as_str(), world.waiters().as_str()), ("a2 c1?", ""));
}

#[test]
fn a_larger_capacity_serves_waiters() {
    let mut world = World::semaphore(2);
    world.get(ask("a").weight(2));
    world.wait(ask("b").weight(2).waits(2));
    world.wait(ask("c").weight(2).waits(3));
    world.resize(5);
    assert_eq!((world.held().as_str(), world.waiters().as_str(), world.woken()), ("a2 b2?", "c2", vec!["2"]));
}

#[test]
fn a_smaller_capacity_keeps_holders_and_wakes_hopeless_waiters() {
    let mut world = World::semaphore(4);
    let a = world.get(ask("a").weight(3).request("r"));
    let big = world.wait(ask("b").weight(4).waits(2));
    world.wait(ask("c").weight(2).waits(3));
    world.resize(2);
    assert_eq!((world.held().as_str(), world.waiters().as_str(), world.woken()), ("a3", "c2", vec!["2"]));
    assert_eq!(world.poll(big), Outcome::Gone);
    assert_eq!(world.ask(ask("b").weight(4).waits(2)), Outcome::TooHeavy { capacity: 2 });
    let again = world.ask(ask("a").weight(3).request("r").granted_before(a));
    assert_eq!(granted(again).claim.weight, 3, "it keeps its slots, also when it asks again");
    world.release("a", Some(a));
    assert_eq!(world.held(), "c2?");
}

#[test]
fn calls_of_others_and_of_old_epochs_are_refused() {
    let mut world = World::semaphore(4);
    let first = world.get(ask("a"));
    world.release("a", Some(first));
    assert_eq!(world.heartbeat("a", None), Outcome::NotHolder);
    assert_eq!(world.release("a", Some(first)), Outcome::Fenced { current: None });
    assert_eq!(world.ask(ask("a").epoch(first)), Outcome::Fenced { current: None });
    let second = world.get(ask("a"));
    for other in [first, Epoch(99)] {
        assert_eq!(world.release("a", Some(other)), Outcome::Fenced { current: Some(second) });
    }
    assert_eq!(world.force("b"), Outcome::NotHolder);
    assert_eq!((world.force("a"), world.held()), (Outcome::Released, String::new()));
}

#[test]
fn a_repeated_request_never_gets_a_second_grant() {
    let mut world = World::semaphore(4);
    let first = world.get(ask("a").request("r"));
    let again = || ask("a").request("r").granted_before(first);
    assert_eq!(granted(world.ask(again())).epoch, first);
    world.release("a", Some(first));
    assert_eq!(world.ask(again()), Outcome::Spent { epoch: first });
    world.get(ask("a").request("another"));
    assert_eq!(world.ask(again()), Outcome::Spent { epoch: first }, "the name holds another grant now");
    assert_eq!(world.kinds(), ["acquired", "released", "acquired"]);
}

#[test]
fn a_repeated_request_keeps_its_place_with_its_new_address() {
    let mut world = World::semaphore(1);
    world.get(ask("x"));
    let ticket = world.wait(ask("a").request("r").bound_to(&[1]).waits(1));
    world.wait(ask("b").waits(2));
    world.kill(1);
    let again = waiting(world.ask(ask("a").request("r").bound_to(&[7]).waits(7)));
    assert_eq!((again.ticket, again.place, world.waiters().as_str()), (ticket, 1, "a1 b1"));
    world.release("x", None);
    assert_eq!((world.held().as_str(), world.woken()), ("a1?", vec!["7"]));
    world.poll(ticket);
    assert_eq!(world.reap(), [], "it is bound to the process that took it up, not to the dead one");
}

#[test]
fn a_grant_ends_with_its_last_process_and_later_after_a_stall() {
    let mut world = World::semaphore(4);
    world.get(ask("a").bound_to(&[1, 2]));
    world.get(ask("b").ttl(60).max_hold(1));
    world.kill(1);
    world.pass(60);
    world.now.patience = Span::from_secs(5);
    assert_eq!(world.reap(), [], "one process lives, a stall is allowed for, and slots have no longest hold");
    world.kill(2);
    world.pass(5);
    assert_eq!(world.reap(), [(holder("a"), Reason::Dead), (holder("b"), Reason::Expired)]);
}

#[test]
fn the_ttl_comes_from_request_definition_and_fallback_in_order() {
    let ttl = |defined: Option<Span>, ask: Ask| {
        let mut world = World::new(Semaphore::new(name("gpu"), Config { capacity: 1, ttl: defined }));
        granted(world.ask(ask)).claim.ttl
    };
    assert_eq!(ttl(secs(20), ask("a").ttl(10).fallback(30)), secs(10));
    assert_eq!(ttl(secs(20), ask("a").fallback(30)), secs(20));
    assert_eq!(ttl(None, ask("a").fallback(30)), secs(30));
    assert_eq!(ttl(None, ask("a")), None);
    assert_eq!(ttl(secs(20), ask("a").open()), None, "an open grant has no end by time");
}

#[test]
fn waiters_and_holders_have_limits() {
    let mut world = World::semaphore(1);
    world.get(ask("x"));
    for _ in 0..WAITERS_LIMIT {
        world.wait(ask("a").waits(1));
    }
    assert_eq!(world.ask(ask("a").waits(1)), Outcome::TooManyWaiters);
    assert_eq!(word(&world.ask(ask("a"))), "full(0)");

    let mut world = World::semaphore(CAPACITY_LIMIT);
    let grant = Grant::new(ask("a").claim, Epoch(1), &world.now);
    for number in 0..HOLDER_LIMIT {
        let claim = ask(&number.to_string()).claim;
        world.machine.holders.insert(claim.holder.clone(), Grant { claim, ..grant.clone() });
    }
    assert_eq!(world.ask(ask("a").waits(1)), Outcome::TooManyWaiters);
    assert_eq!(word(&world.ask(ask("7").weight(2))), "increased");
}

#[test]
fn the_first_waiter_watches_all_holders_and_others_the_one_before() {
    let mut world = World::semaphore(2);
    world.get(ask("a").ttl(60).bound_to(&[1]));
    world.get(ask("b").ttl(30).bound_to(&[2]));
    let first = waiting(world.ask(ask("c").waits(3))).blocked;
    assert_eq!((first.watch, first.deadline), (vec![vec![process(1)], vec![process(2)]], world.machine.next_deadline()));
    let second = waiting(world.ask(ask("d").waits(4))).blocked;
    assert_eq!((second.watch, second.deadline, second.waiters), (vec![vec![process(3)]], None, 2));
}
