//! A table of every state with every input, and tests of the other behaviour.

use super::*;
use crate::ids::Seq;
use crate::process::ProcessId;
use crate::replay::Replay;
use crate::resource::grant::Address;
use crate::step::Effect;
use crate::test_world::{holder, name};

mod histories;

pub(super) fn data(text: &str) -> Data {
    Data::parse(text).unwrap()
}

pub(super) fn new(priority: i32) -> New {
    New { data: data("1"), priority, delay: Span::ZERO, dedupe: None }
}

fn config(max_attempts: u32) -> Config {
    Config { visibility_timeout: Span::from_ms(100), max_attempts, dead_letter: None, max_length: 1_000 }
}

/// Queues with a clock: every step happens at `at`, and its events are replayed.
pub(super) struct Site {
    pub(super) queues: Queues,
    pub(super) now: Now,
    pub(super) log: Replay,
    pub(super) woken: Vec<Address>,
}

impl Site {
    pub(super) fn new() -> Site {
        let now = Now { seq: Seq(1), ticket: Ticket(1), ..Now::default() };
        Site { queues: Queues::default(), now, log: Replay::default(), woken: Vec::new() }
    }

    /// A queue `q` with these terms.
    fn with(config: Config) -> Site {
        let mut site = Site::new();
        site.ask("q", Input::Define(config));
        site
    }

    pub(super) fn at(&mut self, ms: i64) -> &mut Site {
        (self.now.lease, self.now.wall) = (Lease(ms), Wall(1_000_000 + ms));
        self
    }

    pub(super) fn ask(&mut self, queue: &str, input: Input) -> Outcome {
        let step = std::mem::take(&mut self.queues).step(&name(queue), input, &self.now);
        self.queues = step.state;
        self.queues.check();
        for effect in step.effects {
            match effect {
                Effect::Emit(event) => {
                    // As the log gives it back.
                    let (component, id) = event.source();
                    let read = Event::parse(event.kind(), component, id, &event.data()).unwrap();
                    assert_eq!(read, event);
                    self.log.apply(self.now.seq, self.now.wall, read);
                    self.now.seq.0 += 1;
                }
                Effect::Wake(address) => self.woken.push(address),
                Effect::Send(command) => panic!("{command:?}"),
            }
        }
        if matches!(&step.outcome, Outcome::Waiting(waiting) if waiting.ticket == self.now.ticket) {
            self.now.ticket.0 += 1;
        }
        let tables = Replay::default().with_queues(&self.queues);
        assert_eq!(self.log.differences(&tables), Vec::<String>::new(), "log and tables agree");
        step.outcome
    }

    fn push(&mut self, new: New) -> ItemId {
        match self.ask("q", Input::Push(vec![new])) {
            Outcome::Pushed(pushed) => match pushed[0] {
                Pushed::Added(id) => id,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn take(&mut self) -> Outcome {
        self.ask("q", Input::Take { holder: holder("a"), wait: None, ticket: None })
    }

    fn taken(&mut self) -> Hold {
        match self.take() {
            Outcome::Taken(item) => Hold { item: item.id, holder: holder("a"), epoch: item.fence },
            other => panic!("{other:?}"),
        }
    }

    fn status(&self, item: ItemId) -> String {
        let item = self.queues.items.get(&item);
        item.map_or_else(|| "gone".into(), |item| format!("{}{}", item.status(), if item.queue == name("q") { "" } else { "@d" }))
    }
}

/// The name of an outcome.
fn word(outcome: &Outcome) -> String {
    let text = format!("{outcome:?}");
    text.split([' ', '(', '{']).next().unwrap().to_owned()
}

/// An item in each state, with the hold of its last taker, at the moment of the input.
fn in_state(state: &str) -> (Site, Hold) {
    let mut site = Site::with(config(2));
    let delay = if matches!(state, "delayed" | "delay over") { Span::from_ms(50) } else { Span::ZERO };
    let item = site.push(New { delay, ..new(0) });
    let none = Hold { item, holder: holder("a"), epoch: Epoch(0) };
    let fail = |site: &mut Site, retry| {
        let hold = site.taken();
        site.ask("q", Input::Fail { hold: hold.clone(), error: "no".into(), retry_after: Some(Span::from_ms(retry)) });
        hold
    };
    let hold = match state {
        "pending" | "delayed" => none,
        "delay over" => {
            site.at(50);
            none
        }
        "processing" => site.taken(),
        "time over" => {
            let hold = site.taken();
            site.at(100);
            hold
        }
        "last, time over" => {
            fail(&mut site, 0);
            let hold = site.taken();
            site.at(100);
            hold
        }
        "failed" => fail(&mut site, 50),
        "failed, due" => {
            let hold = fail(&mut site, 50);
            site.at(50);
            hold
        }
        "dead" | "moved" => {
            if state == "moved" {
                site.ask("d", Input::Define(config(2)));
                site.ask("q", Input::Define(Config { dead_letter: Some(name("d")), ..config(2) }));
            }
            fail(&mut site, 0);
            fail(&mut site, 0)
        }
        "completed" => {
            let hold = site.taken();
            site.ask("q", Input::Complete(hold.clone()));
            hold
        }
        other => panic!("{other}"),
    };
    (site, hold)
}

const STATES: [&str; 12] = [
    "pending",
    "delayed",
    "delay over",
    "processing",
    "time over",
    "last, time over",
    "failed",
    "failed, due",
    "dead",
    "moved",
    "completed",
    "unknown queue",
];

fn inputs(hold: &Hold) -> Vec<(&'static str, Input)> {
    let stale = Hold { epoch: Epoch(hold.epoch.0 - 1), ..hold.clone() };
    let other = Hold { holder: holder("b"), ..hold.clone() };
    let fail = |hold: Hold| Input::Fail { hold, error: "no".into(), retry_after: Some(Span::ZERO) };
    vec![
        ("push", Input::Push(vec![new(-1)])),
        ("take", Input::Take { holder: holder("b"), wait: None, ticket: None }),
        ("extend", Input::Extend(hold.clone(), None)),
        ("complete", Input::Complete(hold.clone())),
        ("complete, stale", Input::Complete(stale.clone())),
        ("complete, other", Input::Complete(other)),
        ("fail", fail(hold.clone())),
        ("fail, stale", fail(stale)),
        ("settle", Input::Settle),
        ("requeue", Input::Requeue(hold.item)),
        ("requeue all", Input::RequeueAll(Part::Dead, 9)),
        ("purge ready", Input::Purge(Part::Ready, 9)),
        ("purge resting", Input::Purge(Part::Backoff, 9)),
        ("purge processing", Input::Purge(Part::Processing, 9)),
        ("purge dead", Input::Purge(Part::Dead, 9)),
        ("pause", Input::Pause),
        ("resume", Input::Resume),
        ("leave", Input::Leave { ticket: Ticket(7) }),
    ]
}

#[test]
fn every_state_answers_every_input() {
    let mut table = String::new();
    for state in STATES {
        let (site, hold) = in_state(if state == "unknown queue" { "pending" } else { state });
        let queue = if state == "unknown queue" { "x" } else { "q" };
        for (what, input) in inputs(&hold) {
            let mut site = Site { queues: site.queues.clone(), now: site.now.clone(), log: site.log.clone(), woken: Vec::new() };
            let outcome = site.ask(queue, input);
            table += &format!("{state:<16} {what:<17} {:<13} {}\n", word(&outcome), site.status(hold.item));
        }
    }
    assert_eq!(table.trim_end(), include_str!("table.txt").trim_end(), "the table in table.txt:\n{table}");
}

#[test]
fn items_are_taken_by_priority_and_age() {
    let mut site = Site::with(config(1));
    let (low, first, second) = (site.push(new(-1)), site.push(new(0)), site.push(new(0)));
    site.at(10);
    let high = site.push(new(5));
    let order = [(); 4].map(|()| site.taken().item);
    assert_eq!(order, [high, first, second, low]);

    let mut site = Site::with(config(1));
    let old = site.push(new(0));
    site.at(AGEING.as_ms() + 1);
    site.push(new(1));
    assert_eq!(site.taken().item, old, "an hour of waiting weighs as much as one step of priority");
}

#[test]
fn an_item_that_timed_out_is_taken_again_and_fenced() {
    let mut site = Site::with(config(3));
    site.push(new(0));
    let first = site.taken();
    assert_eq!(site.take(), Outcome::Empty { next: Some(Lease(100)) });
    site.at(99);
    assert_eq!(site.ask("q", Input::Extend(first.clone(), None)), Outcome::Extended { until: Lease(199) });
    site.at(150);
    assert!(matches!(site.take(), Outcome::Empty { .. }), "it was extended");
    site.at(199);
    let second = site.taken();
    assert_eq!((second.item, site.queues.items[&second.item].attempts), (first.item, 2));
    assert!(matches!(site.ask("q", Input::Complete(first.clone())), Outcome::Fenced { .. }));
    assert!(matches!(site.ask("q", Input::Extend(first, None)), Outcome::Fenced { .. }));
    assert_eq!(site.ask("q", Input::Complete(second)), Outcome::Completed);
}

#[test]
fn a_late_holder_can_complete_an_item_that_was_not_taken_since() {
    let mut site = Site::with(config(3));
    site.push(new(0));
    let hold = site.taken();
    site.at(10_000);
    assert_eq!(site.ask("q", Input::Complete(hold)), Outcome::Completed);
}

#[test]
fn a_dead_item_keeps_its_reason_and_history() {
    let mut site = Site::new();
    site.ask("d", Input::Define(Config { max_attempts: 1, ..config(1) }));
    site.ask("q", Input::Define(Config { dead_letter: Some(name("d")), ..config(2) }));
    let item = site.push(New { dedupe: Some(DedupeKey::new("k").unwrap()), ..new(0) });
    let hold = site.taken();
    site.ask("q", Input::Fail { hold, error: "first".into(), retry_after: Some(Span::ZERO) });
    site.taken();
    site.at(100);
    assert!(matches!(site.take(), Outcome::Empty { .. }));
    let moved = site.queues.items[&item].clone();
    let origin = moved.origin.clone().unwrap();
    assert_eq!((&moved.queue, moved.attempts, moved.keeps_out()), (&name("d"), 0, None));
    assert_eq!((origin.queue, &*origin.reason), (name("q"), "timed out: it was neither completed nor extended in time"));
    let errors: Vec<(&str, bool)> = moved.history.iter().map(|attempt| (&*attempt.error, attempt.timed_out)).collect();
    assert_eq!(errors, [("first", false), ("timed out: it was neither completed nor extended in time", true)]);

    // There it is an item like any other. When it dies again, it stays; a requeue sends it back to its first queue.
    let again = match site.ask("d", Input::Take { holder: holder("a"), wait: None, ticket: None }) {
        Outcome::Taken(item) => Hold { item: item.id, holder: holder("a"), epoch: item.fence },
        other => panic!("{other:?}"),
    };
    let failed = site.ask("d", Input::Fail { hold: again, error: "hopeless".into(), retry_after: Some(Span::ZERO) });
    assert_eq!(failed, Outcome::Dead { moved_to: None });
    assert_eq!(site.ask("d", Input::RequeueAll(Part::Dead, 9)), Outcome::SomeRequeued { count: 1, stuck: 0 });
    assert_eq!((site.status(item).as_str(), site.queues.items[&item].attempts), ("pending", 0));
}

#[test]
fn full_queues_refuse_and_full_dead_letter_queues_take_no_items() {
    let mut site = Site::new();
    site.ask("d", Input::Define(Config { max_length: 1, ..config(1) }));
    site.ask("q", Input::Define(Config { dead_letter: Some(name("d")), max_length: 2, ..config(1) }));
    site.ask("d", Input::Push(vec![new(0)]));
    let item = site.push(new(0));
    let refused = site.ask("q", Input::Push(vec![new(0), new(0)]));
    assert!(matches!(&refused, Outcome::Pushed(pushed) if matches!(pushed[..], [Pushed::Added(_), Pushed::Full])), "{refused:?}");
    let hold = site.taken();
    let failed = site.ask("q", Input::Fail { hold, error: "no".into(), retry_after: Some(Span::ZERO) });
    assert_eq!((failed, site.status(item).as_str()), (Outcome::Dead { moved_to: None }, "dead"));
}

#[test]
fn a_dedupe_key_refuses_others_until_its_item_is_over() {
    let mut site = Site::with(config(1));
    let keyed = || New { dedupe: Some(DedupeKey::new("k").unwrap()), ..new(0) };
    let item = site.push(keyed());
    let again = |site: &mut Site| site.ask("q", Input::Push(vec![keyed()]));
    assert_eq!(again(&mut site), Outcome::Pushed(vec![Pushed::Duplicate(item)]));
    let hold = site.taken();
    assert_eq!(again(&mut site), Outcome::Pushed(vec![Pushed::Duplicate(item)]), "also while it is processed");
    site.ask("q", Input::Complete(hold));
    let second = site.push(keyed());
    let hold = site.taken();
    site.ask("q", Input::Fail { hold, error: "no".into(), retry_after: Some(Span::ZERO) });
    assert_eq!(site.status(second), "dead");
    let third = site.push(keyed());
    let hold = site.taken();
    assert_eq!(hold.item, third);
    site.ask("q", Input::Complete(hold));
    site.ask("q", Input::Requeue(second));
    assert_eq!(again(&mut site), Outcome::Pushed(vec![Pushed::Duplicate(second)]), "it is retried");
}

#[test]
fn a_last_attempt_that_timed_out_refuses_no_key() {
    let mut site = Site::with(config(2));
    let keyed = || New { dedupe: Some(DedupeKey::new("k").unwrap()), ..new(0) };
    let again = |site: &mut Site| site.ask("q", Input::Push(vec![keyed()]));
    let item = site.push(keyed());
    site.taken();
    site.at(100);
    assert_eq!(again(&mut site), Outcome::Pushed(vec![Pushed::Duplicate(item)]), "it has another attempt");
    let late = site.taken();
    site.at(199);
    assert_eq!(again(&mut site), Outcome::Pushed(vec![Pushed::Duplicate(item)]), "its time is not over");
    site.at(200);
    let second = site.push(keyed());
    assert_eq!((site.status(item).as_str(), site.status(second).as_str()), ("dead", "pending"));
    assert!(matches!(site.ask("q", Input::Complete(late)), Outcome::Fenced { .. }));
}

#[test]
fn a_requeued_dead_item_refuses_its_key_again() {
    let mut site = Site::with(config(1));
    site.ask("d", Input::Define(config(1)));
    site.ask("q", Input::Define(Config { dead_letter: Some(name("d")), ..config(1) }));
    let keyed = || New { dedupe: Some(DedupeKey::new("k").unwrap()), ..new(0) };
    let item = site.push(keyed());
    let hold = site.taken();
    site.ask("q", Input::Fail { hold, error: "no".into(), retry_after: Some(Span::ZERO) });
    let there = site.ask("d", Input::Push(vec![keyed()]));
    assert!(
        matches!(&there, Outcome::Pushed(pushed) if matches!(pushed[..], [Pushed::Added(_)])),
        "it died elsewhere: {there:?}"
    );
    site.ask("d", Input::Requeue(item));
    assert_eq!(site.ask("q", Input::Push(vec![keyed()])), Outcome::Pushed(vec![Pushed::Duplicate(item)]));
}

#[test]
fn due_changes_are_settled_without_a_take_and_visible_before() {
    let mut site = Site::with(config(1));
    site.ask("d", Input::Define(config(1)));
    site.ask("q", Input::Define(Config { dead_letter: Some(name("d")), ..config(1) }));
    let (item, delayed) = (site.push(new(0)), site.push(New { delay: Span::from_ms(50), ..new(0) }));
    let late = site.taken();
    site.at(99);
    assert_eq!(site.ask("q", Input::Settle), Outcome::Settled { more: false });
    assert_eq!(site.status(item), "processing", "its time is not over");
    site.at(100);
    let seen = site.queues.clone().as_of(&site.now);
    assert_eq!((&seen.items[&item].queue, site.status(item).as_str()), (&name("d"), "processing"), "nothing was written");
    assert_eq!(site.ask("q", Input::Settle), Outcome::Settled { more: false });
    assert_eq!((site.status(item).as_str(), site.queues.items[&delayed].is_ready()), ("pending@d", true));
    assert!(matches!(site.ask("q", Input::Complete(late)), Outcome::Fenced { .. }));
}

#[test]
fn many_due_items_are_settled_in_parts() {
    let mut site = Site::with(config(1));
    site.ask("q", Input::Push(vec![New { delay: Span::from_ms(50), ..new(0) }; DUE_PER_SETTLE + 1]));
    site.ask("q", Input::Pause);
    site.at(50);
    assert_eq!(site.ask("q", Input::Settle), Outcome::Settled { more: true });
    assert_eq!(site.ask("q", Input::Settle), Outcome::Settled { more: false });
    assert!(site.queues.items.values().all(Item::is_ready));
}

fn standing(number: i32) -> WaitingProcess {
    let process = ProcessId { host: "h".into(), boot: "b".into(), pid_ns: 1, pid: number, start: 1 };
    WaitingProcess { process, address: Some(Address(number.to_string().into())), lease: None }
}

#[test]
fn a_push_wakes_the_first_waiter_and_a_take_the_next() {
    let mut site = Site::with(config(1));
    let wait = |site: &mut Site, number: i32, ticket| {
        site.ask("q", Input::Take { holder: holder("w"), wait: Some(standing(number)), ticket })
    };
    let place = |outcome: Outcome| match outcome {
        Outcome::Waiting(waiting) => (waiting.place, waiting.ticket, waiting.before.map(|before| before.pid)),
        other => panic!("{other:?}"),
    };
    let (first, second) = (place(wait(&mut site, 1, None)), place(wait(&mut site, 2, None)));
    assert_eq!([(first.0, first.2), (second.0, second.2)], [(1, None), (2, Some(1))]);
    site.ask("q", Input::Push(vec![new(0), new(0)]));
    assert_eq!(std::mem::take(&mut site.woken), [Address("1".into())], "one push wakes one");
    assert!(matches!(wait(&mut site, 1, Some(first.1)), Outcome::Taken(_)));
    assert_eq!(std::mem::take(&mut site.woken), [Address("2".into())], "there is more, so the next is woken");
    assert!(matches!(wait(&mut site, 2, Some(second.1)), Outcome::Taken(_)));
    assert!(site.queues.takers.is_empty() && site.woken.is_empty());

    // Dead waiters do not block the others.
    let (dead, alive) = (place(wait(&mut site, 3, None)), place(wait(&mut site, 4, None)));
    site.now.dead = vec![standing(3).process];
    let (place, ..) = place(wait(&mut site, 4, Some(alive.1)));
    assert_eq!((place, site.queues.takers.contains_key(&dead.1)), (1, false));
}

#[test]
fn a_paused_queue_gives_out_no_items() {
    let mut site = Site::with(config(1));
    site.push(new(0));
    site.ask("q", Input::Pause);
    assert_eq!(site.take(), Outcome::Halted);
    let wait = Input::Take { holder: holder("a"), wait: Some(standing(1)), ticket: None };
    assert!(matches!(site.ask("q", wait), Outcome::Waiting(waiting) if waiting.is_halted));
    site.ask("q", Input::Resume);
    assert_eq!(site.woken, [Address("1".into())]);
    assert!(matches!(site.take(), Outcome::Taken(_)));
}

#[test]
fn definitions_and_data_are_validated() {
    let mut site = Site::new();
    let to = |dead_letter: &str| Input::Define(Config { dead_letter: Some(name(dead_letter)), ..config(1) });
    assert_eq!(site.ask("q", to("q")), Outcome::BadDeadLetter(name("q")));
    assert_eq!(site.ask("q", to("nowhere")), Outcome::BadDeadLetter(name("nowhere")));
    assert!(Data::parse("{").is_err());
    assert!(matches!(Data::parse(&format!("{:?}", "x".repeat(DATA_LIMIT))), Err(DataError::TooLarge { .. })));
    assert!(Data::parse(&format!("{}{:?}", " ".repeat(DATA_LIMIT), "x")).is_ok(), "spaces are not kept");
}

/// Stored data must be readable for ever.
#[test]
fn the_stored_form_is_frozen() {
    for (kind, data) in [
        ("queue:defined", r#"{"visibilityTimeout":300000,"maxAttempts":3,"deadLetter":"d","maxLength":10}"#),
        ("queue:paused", "{}"),
        ("queue:resumed", "{}"),
        ("queue:push", r#"{"item":"q-7","data":{"a":[1,null]},"priority":2,"notBefore":5,"dedupe":"k"}"#),
        ("queue:push", r#"{"item":"q-7","data":"x"}"#),
        ("queue:take", r#"{"item":"q-7","holder":"a","attempt":1}"#),
        ("queue:complete", r#"{"item":"q-7","holder":"a","epoch":8}"#),
        ("queue:fail", r#"{"item":"q-7","holder":"a","epoch":8,"error":"no","timedOut":true,"retryAt":9}"#),
        ("queue:dead", r#"{"item":"q-7","reason":"no","movedTo":"d"}"#),
        ("queue:requeue", r#"{"item":"q-7","movedTo":"q"}"#),
        ("queue:purged", r#"{"item":"q-7"}"#),
    ] {
        let event = Event::parse(kind, "queue", Some("q"), data).unwrap();
        assert_eq!((event.kind(), event.source(), event.data().as_str()), (kind, ("queue", Some("q")), data));
    }
    assert!(matches!(Event::parse("queue:done", "ci", None, "{}"), Ok(Event::Custom { .. })), "users could write this before");
    assert_eq!("q-17".parse(), Ok(ItemId(Seq(17))));
    assert!(["17", "q-", "q-x", "q--1", "x-1"].iter().all(|text| text.parse::<ItemId>().is_err()));
}
