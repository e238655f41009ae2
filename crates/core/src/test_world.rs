//! A world for the tests of the machines: clocks that the test moves, numbers given out as the store gives them, and
//! short constructors for requests.

use std::collections::BTreeMap;

use crate::event::{Event, Fact, Forced};
use crate::ids::{Epoch, HolderId, Name, RequestId, RunnerId, Seq, TaskId, Ticket};
use crate::process::ProcessId;
use crate::resource::coordination::{self, Coordination};
use crate::resource::grant::{Address, Ask, GrantRequest, Term, WaitingProcess};
use crate::resource::lock::{self, Lock};
use crate::resource::semaphore::{self, Semaphore};
use crate::step::{Effect, Now, OutboxCommand, Step};
use crate::task::{Input as TaskInput, Outcome as TaskOutcome, Task};
use crate::time::{Lease, Span, Wall};

/// The common interface of all machines, so that one world can drive any of them.
pub(crate) trait Machine: Clone {
    type Input;
    type Outcome;
    fn decide(self, input: Self::Input, now: &Now) -> Step<Self, Self::Outcome>;
    fn verify(&self);
}

macro_rules! machine {
    ($machine:ty, $input:ty, $outcome:ty, $step:ident) => {
        impl Machine for $machine {
            type Input = $input;
            type Outcome = $outcome;
            fn decide(self, input: $input, now: &Now) -> Step<Self, $outcome> {
                self.$step(input, now)
            }
            fn verify(&self) {
                self.check();
            }
        }
    };
}
machine!(Lock, lock::Input, lock::Outcome, step);
machine!(Semaphore, semaphore::Input, semaphore::Outcome, step);
machine!(Task, TaskInput, TaskOutcome, step);
machine!(Coordination, coordination::Command, coordination::Outcome, handle);

/// A machine, the moment, and all its effects so far.
#[derive(Debug, Clone)]
pub(crate) struct World<M> {
    pub(crate) machine: M,
    pub(crate) now: Now,
    pub(crate) log: Vec<(Seq, Wall, Event)>,
    pub(crate) woken: Vec<Address>,
    pub(crate) outbox: Vec<OutboxCommand>,
}

impl<M: Machine> World<M> {
    /// Numbers start high, so that a test can name an epoch from before.
    pub(crate) fn new(machine: M) -> World<M> {
        let now = Now { seq: Seq(10), ticket: Ticket(1), lease: Lease(5_000), wall: Wall(1_000_000), ..Now::default() };
        World { machine, now, log: Vec::new(), woken: Vec::new(), outbox: Vec::new() }
    }

    /// Lets the machine decide, checks its invariants, and records its effects.
    pub(crate) fn act(&mut self, input: M::Input) -> M::Outcome {
        let step = self.machine.clone().decide(input, &self.now);
        step.state.verify();
        self.machine = step.state;
        self.record(step.effects);
        self.now.ticket.0 += 1;
        step.outcome
    }

    pub(crate) fn record(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Emit(event) => {
                    self.log.push((self.now.seq, self.now.wall, event));
                    self.now.seq.0 += 1;
                }
                Effect::Wake(address) => self.woken.push(address),
                Effect::Send(command) => self.outbox.push(command),
            }
        }
    }

    /// Lets time pass. The wall clock runs backwards meanwhile: no decision may depend on it.
    pub(crate) fn pass(&mut self, secs: i64) {
        self.now.lease = self.now.lease + Span::from_secs(secs);
        self.now.wall.0 -= secs;
    }

    /// Marks the process as proven dead from now on.
    pub(crate) fn kill(&mut self, pid: i32) {
        self.now.dead.push(process(pid));
    }

    /// The kinds of all events so far, without their category.
    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.log.iter().map(|(_, _, event)| event.kind().rsplit(':').next().unwrap()).collect()
    }

    /// The addresses woken so far.
    pub(crate) fn woken(&self) -> Vec<&str> {
        self.woken.iter().map(|address| &*address.0).collect()
    }

    /// Asserts, from the log alone, that slots were never given out twice. `slots` is the capacity before the first
    /// definition; slots that were given out before the capacity fell may be kept.
    pub(crate) fn assert_nothing_given_twice(&self, mut slots: u32) {
        let mut held: BTreeMap<&HolderId, u32> = BTreeMap::new();
        for (seq, _, event) in &self.log {
            let Event::Resource { fact, .. } = event else { unreachable!("these machines have events of resources only") };
            let grew = match fact {
                Fact::Defined(defined) => {
                    slots = defined.capacity.unwrap_or(slots);
                    false
                }
                Fact::Acquired(claim) => {
                    assert_eq!(held.insert(&claim.holder, claim.weight), None, "granted to a present holder: {event:?}");
                    true
                }
                Fact::Increased(to) => held.insert(&to.holder, to.weight) < Some(to.weight),
                Fact::Reclaimed(ended) | Fact::Released(ended) | Fact::OfferLapsed(ended) => {
                    assert!(ended.epoch < Epoch::from(*seq), "a grant is older than its end");
                    assert!(held.remove(&ended.holder).is_some(), "the grant never began: {event:?}");
                    ended.keeps.map(|weight| held.insert(&ended.holder, weight));
                    false
                }
            };
            let used: u32 = held.values().sum();
            assert!(!grew || used <= slots, "{used} of {slots} slots are given out after event {seq}: {:#?}", self.log);
        }
    }
}

/// Compares the outcomes of every state with every input with a table. The most frequent row is the last one, once.
pub(crate) fn assert_table(states: &[&str], inputs: &[&str], expected: &str, cell: impl Fn(&str, &str) -> String) {
    let row = |state: &&str| {
        let cells = inputs.iter().map(|input| cell(state, input));
        std::iter::once((*state).to_owned()).chain(cells).collect::<Vec<String>>()
    };
    let rows: Vec<_> = states.iter().map(row).collect();
    let count = |row: &&Vec<String>| rows.iter().filter(|other| other[1..] == row[1..]).count();
    let most = rows.iter().max_by_key(count).unwrap()[1..].to_vec();
    let mut table: Vec<Vec<String>> = vec![[&[""], inputs].concat().into_iter().map(str::to_owned).collect()];
    table.extend(rows.iter().filter(|row| row[1..] != most).cloned());
    table.push([vec!["any other".to_owned()], most].concat());
    let width = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap() + 2;
    let widths: Vec<usize> = (0..=inputs.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("\n{}", cells.collect::<String>().trim_end())
    };
    let found = table.iter().map(line).collect::<String>() + "\n";
    assert_eq!(found, expected, "{found}");
}

/// The name of a variant in words: `NotPending(…)` is "not pending".
pub(crate) fn words(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    let mut words = String::new();
    for letter in text.chars().take_while(|letter| letter.is_alphanumeric()) {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn holder(text: &str) -> HolderId {
    HolderId::new(text).unwrap()
}

pub(crate) fn task(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

pub(crate) fn runner(text: &str) -> RunnerId {
    RunnerId::new(text).unwrap()
}

pub(crate) fn process(pid: i32) -> ProcessId {
    ProcessId { host: "h".into(), boot: "b".into(), pid_ns: 1, pid, start: 1 }
}

pub(crate) fn secs(secs: i64) -> Option<Span> {
    Some(Span::from_secs(secs))
}

pub(crate) fn root() -> Forced {
    Forced { user: "root".into(), host: "h".into(), pid: 1 }
}

/// A request for one slot, without a lease, that does not wait.
pub(crate) fn ask(who: &str) -> Ask {
    Ask::new(GrantRequest::new(holder(who)))
}

impl Ask {
    pub(crate) fn under(mut self, ancestors: &[&str]) -> Ask {
        self.claim.ancestors = ancestors.iter().map(|text| holder(text)).collect();
        self
    }

    pub(crate) fn weight(mut self, weight: u32) -> Ask {
        self.claim.weight = weight;
        self
    }

    pub(crate) fn ttl(mut self, ttl: i64) -> Ask {
        self.claim.ttl = secs(ttl);
        self
    }

    pub(crate) fn fallback(mut self, ttl: i64) -> Ask {
        self.term = Term::Usual(secs(ttl));
        self
    }

    pub(crate) fn open(mut self) -> Ask {
        self.term = Term::Open;
        self
    }

    pub(crate) fn max_hold(mut self, max_hold: i64) -> Ask {
        self.claim.max_hold = secs(max_hold);
        self
    }

    pub(crate) fn bound_to(mut self, pids: &[i32]) -> Ask {
        self.claim.processes = pids.iter().copied().map(process).collect();
        self
    }

    pub(crate) fn request(mut self, request: &str) -> Ask {
        self.claim.request = Some(RequestId::new(request).unwrap());
        self
    }

    /// The log has a grant of this very request.
    pub(crate) fn granted_before(mut self, epoch: Epoch) -> Ask {
        self.granted_before = Some(epoch);
        self
    }

    pub(crate) fn epoch(mut self, epoch: Epoch) -> Ask {
        self.epoch = Some(epoch);
        self
    }

    /// The process `pid` waits if necessary; its address is its number.
    pub(crate) fn waits(mut self, pid: i32) -> Ask {
        let address = Some(Address(pid.to_string().into()));
        self.wait = Some(WaitingProcess { process: process(pid), address, lease: None });
        self
    }
}
