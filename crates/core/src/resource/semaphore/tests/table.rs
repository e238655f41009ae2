//! Every state of a semaphore against every input.

use super::*;
use crate::test_world::assert_table;

/// Four slots of which `a` has, had or never had two, with the epoch and the ticket of `a`.
pub(super) struct Scene {
    pub(super) world: World<Semaphore>,
    pub(super) own: Epoch,
    pub(super) ticket: Ticket,
}

fn a() -> Ask {
    ask("a").weight(2).ttl(60).bound_to(&[1]).request("r")
}

pub(super) fn scene(state: &str) -> Scene {
    let mut world = World::semaphore(4);
    if state == "never held" {
        return Scene { world, own: Epoch(0), ticket: Ticket(0) };
    }
    if let Some(what) = state.strip_prefix("offered") {
        world.get(ask("x").weight(4));
        let ticket = world.wait(a().waits(1));
        world.release("x", None);
        match what {
            "" => {}
            ", lapsed" => world.pass(15),
            ", waiter dead" => world.kill(1),
            _ => unreachable!("{what}"),
        }
        return Scene { own: world.grant("a").epoch, world, ticket };
    }
    let own = world.get(a());
    if let Some(what) = state.strip_prefix("more ") {
        world.get(ask("x").weight(2));
        let ticket = world.wait(ask("a").weight(4).waits(9));
        if what != "waited for" {
            world.release("x", None);
        }
        match what {
            "waited for" | "offered" => {}
            "lapsed" => world.pass(15),
            "for a dead waiter" => world.kill(9),
            "for a dead holder" => [1, 9].into_iter().for_each(|pid| world.kill(pid)),
            "taken up" => assert_eq!(granted(world.poll(ticket)).epoch, own),
            _ => unreachable!("{what}"),
        }
        return Scene { world, own, ticket };
    }
    if state.starts_with("b3, d1 wait") {
        world.get(ask("x").weight(2));
        world.wait(ask("b").weight(3).waits(2));
        world.wait(ask("d").weight(1).waits(3));
    }
    match state {
        "held" | "b3, d1 wait" => {}
        "released" => assert_eq!(world.release("a", Some(own)), Outcome::Released),
        "expired" | "b3, d1 wait, expired" => world.pass(60),
        "holder dead" => world.kill(1),
        "shrunk" => assert_eq!(world.resize(1), Outcome::Defined),
        _ => unreachable!("{state}"),
    }
    Scene { world, own, ticket: Ticket(0) }
}

const STATES: [&str; 17] = [
    "never held",
    "released",
    "held",
    "expired",
    "holder dead",
    "shrunk",
    "offered",
    "offered, lapsed",
    "offered, waiter dead",
    "more waited for",
    "more offered",
    "more lapsed",
    "more for a dead waiter",
    "more for a dead holder",
    "more taken up",
    "b3, d1 wait",
    "b3, d1 wait, expired",
];

/// Every state against the given inputs: the outcome, and the holders with their weights afterwards.
fn assert_answers(inputs: &[&str], expected: &str, act: fn(&mut Scene, &str) -> Outcome) {
    assert_table(&STATES, inputs, expected, |state, input| {
        let mut scene = scene(state);
        let outcome = act(&mut scene, input);
        format!("{}: {}", word(&outcome), scene.world.held()).trim_end().to_owned()
    });
}

#[test]
fn every_state_with_every_request() {
    let inputs = ["ask c 1", "ask c 3", "wait c 3", "wait c 5"];
    let expected = "
                        ask c 1           ask c 3         wait c 3        wait c 5
held                    acquired: a2 c1   full(2): a2     place 1: a2     too heavy: a2
shrunk                  full(0): a2       too heavy: a2   too heavy: a2   too heavy: a2
offered                 acquired: a2? c1  full(2): a2?    place 1: a2?    too heavy: a2?
more waited for         full(0): a2 x2    full(0): a2 x2  place 2: a2 x2  too heavy: a2 x2
more offered            full(0): a4?      full(0): a4?    place 1: a4?    too heavy: a4?
more lapsed             acquired: a2 c1   full(2): a2     place 1: a2     too heavy: a2
more for a dead waiter  acquired: a2 c1   full(2): a2     place 1: a2     too heavy: a2
more taken up           full(0): a4       full(0): a4     place 1: a4     too heavy: a4
b3, d1 wait             full(0): a2 x2    full(0): a2 x2  place 3: a2 x2  too heavy: a2 x2
b3, d1 wait, expired    full(2): x2       full(2): x2     place 3: x2     too heavy: x2
any other               acquired: c1      acquired: c3    acquired: c3    too heavy:
";
    assert_answers(&inputs, expected, |Scene { world, .. }, input| match input {
        "ask c 1" => world.ask(ask("c")),
        "ask c 3" => world.ask(ask("c").weight(3)),
        "wait c 3" => world.ask(ask("c").weight(3).waits(4)),
        "wait c 5" => world.ask(ask("c").weight(5).waits(4)),
        _ => unreachable!("{input}"),
    });
}

#[test]
fn every_state_with_every_further_request() {
    let inputs = ["ask a 2", "ask a 3", "wait a 4", "a 3 with epoch", "same request"];
    let expected = "
                        ask a 2        ask a 3         wait a 4        a 3 with epoch  same request
never held              acquired: a2   acquired: a3    acquired: a4    fenced:         acquired: a2
released                acquired: a2   acquired: a3    acquired: a4    fenced:         spent:
expired                 acquired: a2   acquired: a3    acquired: a4    increased: a3   spent:
holder dead             acquired: a2   acquired: a3    acquired: a4    acquired: a3    spent:
shrunk                  has it: a2     too heavy: a2   too heavy: a2   too heavy: a2   has it: a2
offered, lapsed         acquired: a2   acquired: a3    acquired: a4    increased: a3   spent:
offered, waiter dead    acquired: a2   acquired: a3    acquired: a4    acquired: a3    spent:
more waited for         has it: a2 x2  full(0): a2 x2  place 2: a2 x2  full(0): a2 x2  has it: a2 x2
more offered            has it: a4     has it: a4      has it: a4      has it: a4      has it: a4
more for a dead holder  acquired: a2   acquired: a3    acquired: a4    acquired: a3    spent:
more taken up           has it: a4     has it: a4      has it: a4      has it: a4      has it: a4
b3, d1 wait             has it: a2 x2  full(0): a2 x2  place 3: a2 x2  full(0): a2 x2  has it: a2 x2
b3, d1 wait, expired    full(2): x2    full(2): x2     place 3: x2     full(0): a2 x2  spent: x2
any other               has it: a2     increased: a3   increased: a4   increased: a3   has it: a2
";
    assert_answers(&inputs, expected, |Scene { world, own, .. }, input| match input {
        "ask a 2" => world.ask(ask("a").weight(2)),
        "ask a 3" => world.ask(ask("a").weight(3)),
        "wait a 4" => world.ask(ask("a").weight(4).waits(4)),
        "a 3 with epoch" => world.ask(ask("a").weight(3).epoch(*own)),
        "same request" if *own == Epoch(0) => world.ask(a()),
        "same request" => world.ask(a().granted_before(*own)),
        _ => unreachable!("{input}"),
    });
}

#[test]
fn every_state_with_every_waiter_and_administrative_input() {
    let inputs = ["look", "leave", "reap", "force a", "resize to 8"];
    let expected = "
                        look            leave        reap             force a       resize to 8
never held              gone:           left:        reaped 0:        no holder:    defined:
released                gone:           left:        reaped 0:        no holder:    defined:
held                    gone: a2        left: a2     reaped 0: a2     released:     defined: a2
expired                 gone:           left: a2     reaped 1:        released:     defined: a2
holder dead             gone:           left: a2     reaped 1:        released:     defined: a2
shrunk                  gone: a2        left: a2     reaped 0: a2     released:     defined: a2
offered                 acquired: a2    left:        reaped 0: a2?    released:     defined: a2?
offered, lapsed         gone:           left:        reaped 1:        released:     defined: a2?
offered, waiter dead    gone:           left:        reaped 1:        released:     defined: a2?
more waited for         place 1: a2 x2  left: a2 x2  reaped 0: a2 x2  released: x2  defined: a4? x2
more offered            acquired: a4    left: a2     reaped 0: a4?    released:     defined: a4?
more for a dead holder  gone:           left: a2     reaped 2:        released:     defined: a4?
more taken up           gone: a4        left: a4     reaped 0: a4     released:     defined: a4
b3, d1 wait             gone: a2 x2     left: a2 x2  reaped 0: a2 x2  released: x2  defined: a2 b3? d1? x2
b3, d1 wait, expired    gone: x2        left: a2 x2  reaped 1: x2     released: x2  defined: a2 b3? d1? x2
any other               gone: a2        left: a2     reaped 1: a2     released:     defined: a4?
";
    assert_answers(&inputs, expected, |Scene { world, ticket, .. }, input| match input {
        "look" => world.poll(*ticket),
        "leave" => world.leave(*ticket),
        "reap" => Outcome::Reaped(world.reap()),
        "force a" => world.force("a"),
        "resize to 8" => world.resize(8),
        _ => unreachable!("{input}"),
    });
}

#[test]
fn every_state_with_every_call_of_a_holder() {
    let inputs = ["beat", "blind beat", "old beat", "release", "blind release"];
    let expected = "
                      beat             blind beat       old beat       release       blind release
never held            fenced:          no holder:       fenced:        fenced:       no holder:
released              fenced:          no holder:       fenced:        fenced:       no holder:
held                  extended: a2     extended: a2     fenced: a2     released:     released:
expired               extended: a2     extended: a2     fenced: a2     released:     released:
holder dead           extended: a2     extended: a2     fenced: a2     released:     released:
shrunk                extended: a2     extended: a2     fenced: a2     released:     released:
offered               extended: a2     extended: a2     fenced: a2?    released:     released:
offered, lapsed       extended: a2     extended: a2     fenced: a2?    released:     released:
offered, waiter dead  extended: a2     extended: a2     fenced: a2?    released:     released:
more waited for       extended: a2 x2  extended: a2 x2  fenced: a2 x2  released: x2  released: x2
more taken up         extended: a4     extended: a4     fenced: a4     released:     released:
b3, d1 wait           extended: a2 x2  extended: a2 x2  fenced: a2 x2  released: x2  released: x2
b3, d1 wait, expired  extended: a2 x2  extended: a2 x2  fenced: a2 x2  released: x2  released: x2
any other             extended: a4?    extended: a4?    fenced: a4?    released:     released:
";
    assert_answers(&inputs, expected, |Scene { world, own, .. }, input| match input {
        "beat" => world.heartbeat("a", Some(*own)),
        "blind beat" => world.heartbeat("a", None),
        "old beat" => world.heartbeat("a", Some(Epoch(own.0 - 1))),
        "release" => world.release("a", Some(*own)),
        "blind release" => world.release("a", None),
        _ => unreachable!("{input}"),
    });
}
