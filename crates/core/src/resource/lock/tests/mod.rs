use super::*;
use crate::test_world::{World, ask, assert_table, holder, name, process, root, secs, words};

mod histories;

impl World<Lock> {
    fn lock() -> World<Lock> {
        World::new(Lock::new(name("db")))
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

    fn heartbeat(&mut self, who: &str, epoch: Epoch) -> Outcome {
        self.act(Input::Heartbeat { holder: holder(who), epoch })
    }

    fn release(&mut self, who: &str, epoch: Epoch) -> Outcome {
        self.act(Input::Release { holder: holder(who), epoch })
    }

    fn force(&mut self) -> Outcome {
        self.act(Input::Force { by: root() })
    }

    fn reap(&mut self) -> Outcome {
        self.act(Input::Reap)
    }

    fn grant(&self) -> Option<&Grant> {
        match &self.machine.state {
            State::Free => None,
            State::Held(grant) => Some(grant),
        }
    }

    fn held_by(&self) -> &str {
        self.grant().map_or("-", |grant| grant.claim.holder.as_str())
    }

    fn waiters(&self) -> Vec<&str> {
        self.machine.waiters.iter().map(|waiter| waiter.claim.holder.as_str()).collect()
    }
}

fn granted(outcome: Outcome) -> Grant {
    match outcome {
        Outcome::Acquired(grant) | Outcome::Extended(grant) | Outcome::Reclaimed { grant, .. } => grant,
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
        Outcome::Waiting(waiting) => format!("place {}", waiting.place),
        Outcome::TooManyWaiters => "line full".into(),
        Outcome::AlreadyFree => "free".into(),
        other => words(other),
    }
}

/// A lock that `a` has, had or never had, with the epoch and the ticket of `a`.
struct Scene {
    world: World<Lock>,
    own: Epoch,
    ticket: Ticket,
}

fn a() -> Ask {
    ask("a").ttl(60).max_hold(600).bound_to(&[1]).request("r")
}

fn scene(state: &str) -> Scene {
    let mut world = World::lock();
    if state == "never held" {
        return Scene { world, own: Epoch(0), ticket: Ticket(0) };
    }
    if let Some(what) = state.strip_prefix("offered") {
        let x = world.get(ask("x"));
        let ticket = world.wait(a().waits(1));
        assert_eq!(world.release("x", x), Outcome::Released);
        let own = world.grant().unwrap().epoch;
        match what {
            "" => {}
            ", lapsed" => world.pass(15),
            ", waiter dead" => world.kill(1),
            ", taken up" => assert_eq!(granted(world.poll(ticket)).epoch, own),
            _ => unreachable!("{what}"),
        }
        return Scene { world, own, ticket };
    }
    let own = world.get(a());
    if state.starts_with("b, d wait") {
        world.wait(ask("b").waits(2));
        world.wait(ask("d").waits(3));
    }
    match state {
        "held" | "b, d wait" => {}
        "released" => assert_eq!(world.release("a", own), Outcome::Released),
        "forced" => assert_eq!(world.force(), Outcome::Released),
        "expired" | "b, d wait, expired" => world.pass(60),
        "held too long" | "b, d wait, too long" => {
            world.pass(599);
            assert_eq!(granted(world.heartbeat("a", own)).epoch, own);
            world.pass(1);
        }
        "holder dead" => world.kill(1),
        "b, d wait, b dead" => world.kill(2),
        "reaped" => {
            world.pass(60);
            assert_eq!(word(&world.reap()), "reaped");
        }
        _ => unreachable!("{state}"),
    }
    Scene { world, own, ticket: Ticket(0) }
}

const STATES: [&str; 16] = [
    "never held",
    "released",
    "forced",
    "reaped",
    "held",
    "expired",
    "held too long",
    "holder dead",
    "offered",
    "offered, lapsed",
    "offered, waiter dead",
    "offered, taken up",
    "b, d wait",
    "b, d wait, expired",
    "b, d wait, too long",
    "b, d wait, b dead",
];

/// Every state against the given inputs: the outcome, and the holder of the lock afterwards.
fn assert_answers(inputs: &[&str], expected: &str, act: fn(&mut Scene, &str) -> Outcome) {
    assert_table(&STATES, inputs, expected, |state, input| {
        let mut scene = scene(state);
        let outcome = act(&mut scene, input);
        format!("{} {}", word(&outcome), scene.world.held_by())
    });
}

#[test]
fn a_lock_has_one_slot() {
    let mut world = World::lock();
    for weight in [0, 2, u32::MAX] {
        assert_eq!(world.ask(ask("a").weight(weight)), Outcome::NotOneSlot);
        assert_eq!(world.ask(ask("a").weight(weight).waits(1)), Outcome::NotOneSlot);
    }
    world.get(ask("a"));
}

#[test]
fn every_state_with_every_request() {
    let inputs = ["ask c", "wait c", "ask a", "with epoch", "same request", "look", "leave"];
    let expected = "
                      ask c        wait c       ask a        with epoch  same request  look        leave
never held            acquired c   acquired c   acquired a   fenced -    acquired a    gone -      left -
released              acquired c   acquired c   acquired a   free -      spent -       gone -      left -
forced                acquired c   acquired c   acquired a   fenced -    spent -       gone -      left -
reaped                acquired c   acquired c   acquired a   fenced -    spent -       gone -      left -
held                  busy a       place 1 a    busy a       extended a  extended a    gone a      left a
expired               reclaimed c  reclaimed c  reclaimed a  extended a  spent -       gone -      left a
held too long         reclaimed c  reclaimed c  reclaimed a  lost -      spent -       gone -      left a
holder dead           reclaimed c  reclaimed c  reclaimed a  extended a  spent -       gone -      left a
offered, lapsed       reclaimed c  reclaimed c  reclaimed a  extended a  spent -       gone -      left -
offered, waiter dead  reclaimed c  reclaimed c  reclaimed a  extended a  spent -       gone -      left -
b, d wait             busy a       place 3 a    busy a       extended a  extended a    gone a      left a
b, d wait, expired    busy b       place 2 b    busy b       extended a  spent b       gone b      left a
b, d wait, too long   busy b       place 2 b    busy b       lost b      spent b       gone b      left a
b, d wait, b dead     busy a       place 2 a    busy a       extended a  extended a    gone a      left a
any other             busy a       place 1 a    busy a       extended a  extended a    acquired a  left -
";
    assert_answers(&inputs, expected, |Scene { world, own, ticket }, input| match input {
        "ask c" => world.ask(ask("c")),
        "wait c" => world.ask(ask("c").waits(4)),
        "ask a" => world.ask(ask("a")),
        "with epoch" => world.ask(ask("a").epoch(*own)),
        "same request" if *own == Epoch(0) => world.ask(a()),
        "same request" => world.ask(a().granted_before(*own)),
        "look" => world.poll(*ticket),
        "leave" => world.leave(*ticket),
        _ => unreachable!("{input}"),
    });
}

#[test]
fn every_state_with_every_call_of_a_holder() {
    let inputs = ["beat", "old beat", "future beat", "b's beat", "release", "old release", "b's release"];
    let expected = "
                     beat        old beat  future beat  b's beat     release     old release  b's release
never held           fenced -    fenced -  fenced -     fenced -     fenced -    fenced -     fenced -
released             free -      fenced -  fenced -     free -       free -      fenced -     free -
forced               fenced -    fenced -  fenced -     fenced -     fenced -    fenced -     fenced -
reaped               fenced -    fenced -  fenced -     fenced -     fenced -    fenced -     fenced -
held too long        lost -      fenced a  fenced a     not owner a  released -  fenced a     not owner a
b, d wait            extended a  fenced a  fenced a     not owner a  released b  fenced a     not owner a
b, d wait, expired   extended a  fenced a  fenced a     not owner a  released b  fenced a     not owner a
b, d wait, too long  lost b      fenced a  fenced a     not owner a  released b  fenced a     not owner a
b, d wait, b dead    extended a  fenced a  fenced a     not owner a  released b  fenced a     not owner a
any other            extended a  fenced a  fenced a     not owner a  released -  fenced a     not owner a
";
    assert_answers(&inputs, expected, |Scene { world, own, .. }, input| match input {
        "beat" => world.heartbeat("a", *own),
        "old beat" => world.heartbeat("a", Epoch(own.0 - 1)),
        "future beat" => world.heartbeat("a", Epoch(99)),
        "b's beat" => world.heartbeat("b", *own),
        "release" => world.release("a", *own),
        "old release" => world.release("a", Epoch(own.0 - 1)),
        "b's release" => world.release("b", *own),
        _ => unreachable!("{input}"),
    });
}

#[test]
fn every_state_with_every_administrative_input() {
    let inputs = ["force", "reap", "define", "future free", "b's old free"];
    let expected = "
                     force       reap      define     future free  b's old free
never held           free -      kept -    defined -  fenced -     fenced -
released             free -      kept -    defined -  fenced -     fenced -
forced               free -      kept -    defined -  fenced -     fenced -
reaped               free -      kept -    defined -  fenced -     fenced -
held                 released -  kept a    defined a  fenced a     fenced a
offered              released -  kept a    defined a  fenced a     fenced a
offered, taken up    released -  kept a    defined a  fenced a     fenced a
b, d wait            released b  kept a    defined a  fenced a     fenced a
b, d wait, expired   released b  reaped b  defined a  fenced a     fenced a
b, d wait, too long  released b  reaped b  defined a  fenced a     fenced a
b, d wait, b dead    released b  kept a    defined a  fenced a     fenced a
any other            released -  reaped -  defined a  fenced a     fenced a
";
    assert_answers(&inputs, expected, |Scene { world, own, .. }, input| match input {
        "force" => world.force(),
        "reap" => world.reap(),
        "define" => world.act(Input::Define(Config { ttl: secs(1), max_hold: None })),
        "future free" => world.release("a", Epoch(99)),
        "b's old free" => world.release("b", Epoch(own.0 - 1)),
        _ => unreachable!("{input}"),
    });
}

#[test]
fn the_fence_is_checked_before_the_owner() {
    let mut world = World::lock();
    let a = world.get(ask("a"));
    world.force();
    let b = world.get(ask("b"));
    assert_eq!(world.heartbeat("a", a), Outcome::Fenced { fence: b });
    assert_eq!(world.heartbeat("a", b), Outcome::NotOwner { holder: holder("b") });
    assert_eq!(world.release("b", Epoch(b.0 + 1)), Outcome::Fenced { fence: b });
    assert_eq!(world.release("b", b), Outcome::Released);
    assert_eq!(world.release("b", b), Outcome::AlreadyFree);
    assert_eq!(world.release("a", a), Outcome::Fenced { fence: b });
}

#[test]
fn a_lease_ends_at_its_time_to_live_unless_a_heartbeat_revives_it() {
    let mut world = World::lock();
    let a = world.get(ask("a").ttl(60));
    world.now.lease = Lease(world.now.lease.0 + 59_999);
    assert!(matches!(world.ask(ask("b")), Outcome::Busy(_)));
    world.pass(60);
    assert_eq!(granted(world.heartbeat("a", a)).epoch, a);
    assert_eq!(world.machine.next_deadline(), Some(world.now.lease + crate::time::Span::from_secs(60)));
    world.pass(60);
    let Outcome::Reclaimed { grant, from, reason } = world.ask(ask("b")) else { panic!("not taken over") };
    assert_eq!((from, reason), (holder("a"), Reason::Expired));
    assert_eq!(world.heartbeat("a", a), Outcome::Fenced { fence: grant.epoch });
}

#[test]
fn a_lock_at_its_longest_hold_goes_to_the_next_waiter() {
    let mut world = World::lock();
    let a = world.get(ask("a").max_hold(100));
    world.wait(ask("b").waits(2));
    world.pass(100);
    assert_eq!(world.heartbeat("a", a), Outcome::Lost);
    assert_eq!((world.held_by(), world.woken(), world.kinds()), ("b", vec!["2"], vec!["acquired", "reclaimed", "acquired"]));
    assert!(matches!(world.heartbeat("a", a), Outcome::Fenced { .. }));
}

#[test]
fn a_stall_delays_takeovers_but_not_the_longest_hold() {
    let mut world = World::lock();
    let a = world.get(ask("a").ttl(60).max_hold(70));
    world.now.patience = crate::time::Span::from_secs(15);
    world.pass(70);
    assert_eq!(world.reap(), Outcome::Kept);
    assert_eq!(world.clone().heartbeat("a", a), Outcome::Lost);
    world.pass(5);
    assert_eq!(world.reap(), Outcome::Reaped { holder: holder("a"), reason: Reason::Expired });
}

#[test]
fn a_grant_ends_with_its_last_process_and_not_by_age() {
    let mut world = World::lock();
    world.get(ask("a").bound_to(&[1, 2]));
    world.pass(1_000_000);
    world.kill(1);
    assert_eq!(world.reap(), Outcome::Kept);
    world.kill(2);
    assert_eq!(world.reap(), Outcome::Reaped { holder: holder("a"), reason: Reason::Dead });

    world.get(ask("bound to nobody"));
    assert_eq!((world.reap(), world.machine.next_deadline()), (Outcome::Kept, None));
}

#[test]
fn an_offer_lapses_after_15_s_and_the_next_waiter_is_woken() {
    let Scene { mut world, own, ticket } = scene("offered");
    world.wait(ask("b").waits(2));
    world.pass(14);
    assert_eq!(world.reap(), Outcome::Kept);
    world.pass(1);
    assert_eq!(world.reap(), Outcome::Reaped { holder: holder("a"), reason: Reason::Lapsed });
    assert_eq!((world.held_by(), world.woken()), ("b", vec!["1", "2"]));
    assert_eq!(world.kinds()[2..], ["acquired", "offer_lapsed", "acquired"]);
    assert_eq!(world.poll(ticket), Outcome::Gone);
    assert!(matches!(world.heartbeat("a", own), Outcome::Fenced { .. }));
}

#[test]
fn an_offer_to_a_dead_waiter_lapses_and_skips_dead_waiters() {
    let Scene { mut world, .. } = scene("offered");
    world.wait(ask("b").waits(2));
    let c = world.wait(ask("c").waits(3));
    [1, 2].into_iter().for_each(|pid| world.kill(pid));
    assert_eq!(granted(world.poll(c)).claim.holder, holder("c"));
}

#[test]
fn a_repeated_poll_gets_the_same_answer() {
    let Scene { mut world, own, ticket } = scene("offered");
    let events = world.log.len();
    for _ in 0..2 {
        let grant = granted(world.poll(ticket));
        assert_eq!((grant.epoch, grant.offer), (own, None));
    }
    assert_eq!(world.log.len(), events);
    world.pass(59);
    assert_eq!(world.reap(), Outcome::Kept, "what was taken up lives for its time to live");
}

#[test]
fn leaving_gives_back_a_grant_of_the_ticket() {
    for state in ["offered", "offered, taken up"] {
        let Scene { mut world, own, ticket } = scene(state);
        let b = world.wait(ask("b").waits(2));
        world.wait(ask("c").waits(3));
        assert_eq!(world.leave(ticket), Outcome::Left);
        assert_eq!((world.held_by(), world.waiters()), ("b", vec!["c"]));
        assert!(matches!(world.heartbeat("a", own), Outcome::Fenced { .. }));
        world.poll(b);
        assert_eq!(world.leave(ticket), Outcome::Left, "a second leave does no harm");
        assert_eq!(world.held_by(), "b");
    }
}

#[test]
fn a_repeated_request_gets_the_same_grant() {
    let mut world = World::lock();
    let first = world.get(ask("a").request("r"));
    assert_eq!(granted(world.ask(ask("a").request("r").granted_before(first))).epoch, first);
    world.release("a", first);
    assert_eq!(world.ask(ask("a").request("r").granted_before(first)), Outcome::Spent { epoch: first });
    assert_eq!((world.held_by(), world.kinds()), ("-", vec!["acquired", "released"]));
}

#[test]
fn a_repeated_request_keeps_its_place_with_its_new_address() {
    let mut world = World::lock();
    let x = world.get(ask("x"));
    let ticket = world.wait(ask("a").request("r").bound_to(&[1]).waits(1));
    world.wait(ask("b").waits(2));
    world.kill(1);
    let again = waiting(world.ask(ask("a").request("r").bound_to(&[7]).waits(7)));
    assert_eq!((again.ticket, again.place, world.waiters()), (ticket, 1, vec!["a", "b"]));
    world.release("x", x);
    assert_eq!((world.held_by(), world.woken()), ("a", vec!["7"]));
    let offered = world.grant().unwrap().epoch;
    let again = granted(world.ask(ask("a").request("r").granted_before(offered).waits(7)));
    assert_eq!((again.epoch, again.offer), (offered, None));
    assert_eq!(world.reap(), Outcome::Kept, "it is bound to the process that took it up, not to the dead one");
}

#[test]
fn a_name_waits_for_itself_like_a_stranger() {
    let mut world = World::lock();
    let first = world.get(ask("a"));
    assert!(matches!(world.ask(ask("a")), Outcome::Busy(_)));
    let ticket = world.wait(ask("a").waits(2));
    assert_eq!(granted(world.ask(ask("a").epoch(first))).epoch, first);
    world.release("a", first);
    let second = granted(world.poll(ticket)).epoch;
    assert!(second > first);
    assert_eq!(world.release("a", first), Outcome::Fenced { fence: second });
}

#[test]
fn time_outs_come_from_request_definition_and_fallback_in_order() {
    let ttl = |defined: Option<i64>, ask: Ask| {
        let mut world = World::lock();
        world.act(Input::Define(Config { ttl: defined.and_then(secs), max_hold: secs(500) }));
        let grant = granted(world.ask(ask));
        (grant.claim.ttl, grant.claim.max_hold)
    };
    assert_eq!(ttl(Some(20), ask("a").ttl(10).max_hold(5).fallback(30)), (secs(10), secs(5)));
    assert_eq!(ttl(Some(20), ask("a").fallback(30)), (secs(20), secs(500)));
    assert_eq!(ttl(None, ask("a").fallback(30)), (secs(30), secs(500)));
    assert_eq!(ttl(None, ask("a")), (None, secs(500)));
    assert_eq!(ttl(Some(20), ask("a").open()), (None, None), "an open grant has no end by time");
    assert_eq!(ttl(Some(20), ask("a").ttl(10).open()), (secs(10), None));
}

#[test]
fn the_limit_of_waiters_spares_present_ones() {
    let mut world = World::lock();
    world.get(ask("x"));
    for number in 0..WAITERS_LIMIT {
        world.wait(ask("a").request(&number.to_string()).waits(1));
    }
    assert_eq!(world.ask(ask("a").waits(1)), Outcome::TooManyWaiters);
    assert_eq!(waiting(world.ask(ask("a").request("999").waits(1))).place, WAITERS_LIMIT);
    assert!(matches!(world.ask(ask("a")), Outcome::Busy(_)));
}

#[test]
fn the_first_waiter_watches_the_holder_and_others_the_one_before() {
    let mut world = World::lock();
    world.get(ask("a").ttl(60).bound_to(&[1, 2]));
    let first = waiting(world.ask(ask("b").waits(3))).blocked;
    assert_eq!((first.watch, first.deadline), (vec![vec![process(1), process(2)]], world.machine.next_deadline()));
    let second = waiting(world.ask(ask("c").waits(4))).blocked;
    assert_eq!((second.watch, second.deadline, second.waiters), (vec![vec![process(3)]], None, 2));
}
