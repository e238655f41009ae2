use banksman_core::event::Kind;
use banksman_core::resource::grant::{GrantRequest, OFFER, WaitingProcess};
use banksman_core::task::{Need, Spec};
use banksman_core::{Epoch, HolderId, Name, SectionId};
use banksman_store::test_support::ManualMachine;
use banksman_store::{Store, sqlite};

use super::*;
use crate::calls::sections::SectionRequest;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn holder(text: &str) -> HolderId {
    HolderId::new(text).unwrap()
}

fn standing() -> WaitingProcess {
    let process = ProcessId { host: "host".into(), boot: "boot".into(), pid_ns: 1, pid: 7, start: 1 };
    WaitingProcess { process, address: None, lease: None }
}

/// A store, and the number of its transactions.
struct World(Store, usize);

impl World {
    fn ask(&mut self, request: Request) -> Reply {
        let mut committed = self.0.batch(&[request]).pop().unwrap().unwrap();
        self.1 += 1;
        committed.replies.pop().unwrap()
    }

    fn hold(&mut self, lock: &str) -> Epoch {
        let ask = Box::new(Ask::new(GrantRequest::new(holder("x"))));
        match self.ask(Request::plain(Command::Lock(name(lock), lock::Input::Acquire(ask)))) {
            Reply::Coordinate { outcome: Outcome::Lock(lock::Outcome::Acquired(grant)), .. } => grant.epoch,
            other => panic!("{other:?}"),
        }
    }

    /// Waits, and releases the lock as soon as the wait sleeps. Returns the number of transactions of the wait.
    fn wait(&mut self, mut wait: Wait, lock: &str, epoch: Epoch) -> (usize, Reply) {
        let before = self.1;
        let mut action = WaitAction::Ask;
        loop {
            action = match action {
                WaitAction::Ask => {
                    let reply = self.ask(wait.request());
                    wait.answer(reply)
                }
                WaitAction::Probe(processes) => wait.probed(processes.into_iter().map(|process| (process, Liveness::Alive))),
                WaitAction::Sleep { .. } => {
                    let release = lock::Input::Release { holder: holder("x"), epoch };
                    self.ask(Request::plain(Command::Lock(name(lock), release)));
                    WaitAction::Ask
                }
                WaitAction::Done(reply) => return (self.1 - before, reply),
            };
        }
    }
}

/// The budget allows two transactions more than for a plain lock; none is needed.
#[test]
fn a_wait_for_a_claim_takes_no_more_transactions_than_for_a_lock() {
    let mut world = World(sqlite::memory(Box::new(ManualMachine::at(1_000))).unwrap(), 0);
    let poll = Span::from_secs(5);
    let epoch = world.hold("plain");
    let ask = Ask { wait: Some(standing()), ..Ask::new(GrantRequest::new(holder("ann"))) };
    let resource = Resource { kind: Kind::Lock, name: name("plain") };
    let (plain, reply) = world.wait(Wait::new(resource, ask, poll), "plain", epoch);
    assert!(matches!(reply, Reply::Coordinate { outcome: Outcome::Lock(lock::Outcome::Acquired(_)), .. }), "{reply:?}");

    let (section, id) = (SectionId::new("s-1").unwrap(), TaskId::new("t-1").unwrap());
    world.ask(Request::Section(SectionRequest::Add { id: section.clone(), name: "db".parse().unwrap(), exclusive: true }));
    let needs = vec![Need::Lock(name("need"))];
    let spec = Spec { section: Some(section.clone()), needs: needs.clone(), ..Spec::new("T".parse().unwrap()) };
    world.ask(Request::Task(TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on: Vec::new(), by: None }));
    let epoch = world.hold("need");
    let wait = Some((standing(), Span::from_secs(30)));
    let taking = Taking { section: Some(section), needs, wait, ..Taking::new(holder("ann"), Span::from_secs(60)) };
    let (claim, reply) = world.wait(Wait::for_task(id, taking, poll), "need", epoch);
    assert!(matches!(reply, Reply::Task(TaskOutcome::Stepped(banksman_core::task::Outcome::Taken, _))), "{reply:?}");
    assert!(claim <= plain, "{claim} against {plain}");
}

/// The proven death of one holder is not forgotten when the other is probed: a blocked claim stores nothing.
#[test]
fn a_claim_passes_two_holders_who_died_one_after_the_other() {
    let mut world = World(sqlite::memory(Box::new(ManualMachine::at(1_000))).unwrap(), 0);
    let process = |pid| ProcessId { pid, ..standing().process };
    for (lock, who, pid) in [("a", "x", 11), ("b", "y", 12)] {
        let request = GrantRequest { processes: vec![process(pid)], ..GrantRequest::new(holder(who)) };
        world.ask(Request::plain(Command::Lock(name(lock), lock::Input::Acquire(Box::new(Ask::new(request))))));
    }
    let (id, needs) = (TaskId::new("t-1").unwrap(), vec![Need::Lock(name("a")), Need::Lock(name("b"))]);
    let spec = Spec { needs: needs.clone(), ..Spec::new("T".parse().unwrap()) };
    world.ask(Request::Task(TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on: Vec::new(), by: None }));
    let wait = Some((standing(), Span::from_secs(30)));
    let mut wait =
        Wait::for_task(id, Taking { needs, wait, ..Taking::new(holder("ann"), Span::from_secs(60)) }, Span::from_secs(5));
    let mut dead = vec![11];
    let mut action = WaitAction::Ask;
    for _ in 0..20 {
        action = match action {
            WaitAction::Ask => wait.answer(world.ask(wait.request())),
            WaitAction::Probe(processes) => wait.probed(processes.into_iter().map(|process| {
                let liveness = if dead.contains(&process.pid) { Liveness::Dead } else { Liveness::Alive };
                (process, liveness)
            })),
            WaitAction::Sleep { watch, .. } => {
                assert_eq!(watch, [process(12)], "the other one is dead already");
                dead.push(12);
                wait.probed([(process(12), Liveness::Dead)])
            }
            WaitAction::Done(reply) => {
                let is_taken = matches!(reply, Reply::Task(TaskOutcome::Stepped(banksman_core::task::Outcome::Taken, _)));
                return assert!(is_taken && dead.len() == 2, "{reply:?}");
            }
        };
    }
    panic!("it probes the two holders alternately for ever");
}

/// Three processes that wait for tasks are stopped, and there is no runner. A waiter for a lock that they need gets it after the turn of the
/// first and the common turn of the two others.
#[test]
fn a_lock_passes_any_number_of_stopped_claims_after_two_turns() {
    let clock = ManualMachine::at(1_000);
    let mut world = World(sqlite::memory(Box::new(clock.clone())).unwrap(), 0);
    let epoch = world.hold("need");
    for (number, also) in ["one", "two", "three"].into_iter().enumerate() {
        let id = TaskId::new(&format!("t-{number}")).unwrap();
        let needs = vec![Need::Lock(name("need")), Need::Lock(name(also))];
        let spec = Spec { needs: needs.clone(), ..Spec::new("T".parse().unwrap()) };
        world.ask(Request::Task(TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on: Vec::new(), by: None }));
        let wait = Some((standing(), Span::from_secs(30)));
        let taking = Taking { needs, wait, ..Taking::new(holder(&format!("p{number}")), Span::from_secs(60)) };
        let reply = world.ask(Request::Task(TaskRequest::Take { id, taking: Box::new(taking) }));
        assert!(matches!(reply, Reply::Task(TaskOutcome::Waiting(_))), "{reply:?}");
    }
    clock.advance(30_000);
    let ask = Ask { wait: Some(standing()), ..Ask::new(GrantRequest::new(holder("carl"))) };
    let resource = Resource { kind: Kind::Lock, name: name("need") };
    let mut wait = Wait::new(resource, ask, Span::from_secs(60));
    let (mut action, mut waited, mut is_held) = (WaitAction::Ask, 0, true);
    for _ in 0..20 {
        action = match action {
            WaitAction::Ask => wait.answer(world.ask(wait.request())),
            WaitAction::Probe(processes) => wait.probed(processes.into_iter().map(|process| (process, Liveness::Alive))),
            WaitAction::Sleep { .. } if is_held => {
                is_held = false;
                world.ask(Request::plain(Command::Lock(name("need"), lock::Input::Release { holder: holder("x"), epoch })));
                WaitAction::Ask
            }
            WaitAction::Sleep { at_most, .. } => {
                waited += at_most.as_ms();
                clock.advance(at_most.as_ms());
                WaitAction::Ask
            }
            WaitAction::Done(Reply::Coordinate { outcome: Outcome::Lock(lock::Outcome::Acquired(_)), .. }) => {
                return assert_eq!(waited, 2 * OFFER.as_ms());
            }
            other => panic!("{other:?}"),
        };
    }
    panic!("it waits for ever");
}
