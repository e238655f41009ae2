//! The pure core as a model of the store: the same commands at the same moments, in memory, without a database.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::event::{Event, Fact, Kind, Resource};
use banksman_core::resource::coordination::{Command, Coordination, Outcome};
use banksman_core::resource::grant::{Address, Ask};
use banksman_core::resource::lock;
use banksman_core::resource::lock::Lock;
use banksman_core::resource::semaphore;
use banksman_core::{Effect, Epoch, Liveness, Now, ProcessId, RequestId, Seq, Ticket};
use banksman_engine::{Reply, Request, Seen};

use crate::commit::CommittedCall;
use crate::format::{Asked, asked};
use crate::report::{Checker, Verdict};

/// All locks and semaphores, as the core alone would have them.
#[derive(Debug, Default)]
pub(crate) struct Model {
    coordination: Coordination,
    requests: BTreeMap<RequestId, (Resource, Epoch)>,
    /// The last number of each kind that was given out.
    seq: Seq,
    ticket: Ticket,
}

impl Model {
    /// Follows a committed batch and compares every answer, event and wake-up.
    pub(crate) fn follow(&mut self, batch: &[CommittedCall<'_>], wakes: &[Address], boot: &str, verdict: &mut Verdict) {
        let loaded = self.loaded(batch.iter().map(|call| call.request));
        let mut woken = Vec::new();
        for call in batch {
            let counters = (Seq(self.seq.0 + 1), Ticket(self.ticket.0 + 1));
            verdict.expect(Checker::Model, counters == (call.note.seq, call.note.ticket), || {
                format!("the store is at {:?}, the model at {counters:?}", (call.note.seq, call.note.ticket))
            });
            let (reply, effects) = self.decide(call, &loaded, boot);
            verdict.expect(Checker::Model, reply == *call.reply, || {
                format!("{:?}: the store says {:?}, the model {reply:?}", call.request, call.reply)
            });
            let mut events = Vec::new();
            for effect in effects {
                match effect {
                    Effect::Emit(event) => events.push(event),
                    Effect::Wake(address) => woken.push(address),
                    Effect::Send(purpose) => unreachable!("locks send no commands: {purpose:?}"),
                }
            }
            let same = events.iter().eq(call.events.iter().map(|logged| &logged.event));
            verdict.expect(Checker::Model, same, || format!("the log has {:?}, the model {events:?}", call.events));
            self.remember(&events);
        }
        verdict.expect(Checker::Model, woken == wakes, || format!("the store wakes {wakes:?}, the model {woken:?}"));
    }

    /// Compares all rows.
    pub(crate) fn compare(&mut self, mut tables: Coordination, verdict: &mut Verdict) {
        self.coordination.check();
        // A lock that was only polled has no row; a lock whose definition was withdrawn has an empty one.
        for coordination in [&mut self.coordination, &mut tables] {
            coordination.locks.retain(|name, lock| *lock != Lock::new(name.clone()));
        }
        verdict.expect(Checker::Model, self.coordination == tables, || {
            format!("the store has {tables:#?}, the model {:#?}", self.coordination)
        });
    }

    fn decide(&mut self, call: &CommittedCall<'_>, loaded: &BTreeSet<Resource>, boot: &str) -> (Reply, Vec<Effect>) {
        let (command, seen) = match call.request {
            Request::Emit(event) => return (Reply::Emitted(call.note.seq), vec![Effect::Emit(event.clone())]),
            Request::Coordinate { command, seen } => (command, seen),
            Request::Post(_)
            | Request::Mailbox(_)
            | Request::Section(_)
            | Request::Task(_)
            | Request::Run(_)
            | Request::Decision(_)
            | Request::Import(_)
            | Request::Landing(_)
            | Request::Queue(_)
            | Request::Pipeline(_)
            | Request::Workspace(_)
            | Request::Account(_)
            | Request::Worker(_)
            | Request::Route(_)
            | Request::Pause(_)
            | Request::SetLimits { .. }
            | Request::Apply(_) => unreachable!("this simulation has no tasks and no queues"),
        };
        let mut command = command.clone();
        let resource = command.resource();
        if let Command::Lock(_, lock::Input::Acquire(ask)) | Command::Semaphore(_, semaphore::Input::Acquire(ask)) = &mut command
            && let Some((of, epoch)) = ask.claim.request.as_ref().and_then(|request| self.requests.get(request))
        {
            if *of != resource {
                return (Reply::RequestReused, Vec::new());
            }
            ask.granted_before = Some(*epoch);
        }
        let dead = dead(seen, boot);
        let rest = if dead.is_empty() { Coordination::default() } else { self.set_aside(loaded) };
        let now = Now {
            seq: call.note.seq,
            ticket: call.note.ticket,
            lease: call.note.lease,
            wall: call.note.wall,
            dead,
            patience: seen.patience,
        };
        let step = std::mem::take(&mut self.coordination).handle(command, &now);
        self.coordination = step.state;
        self.coordination.locks.extend(rest.locks);
        self.coordination.semaphores.extend(rest.semaphores);
        if let Outcome::Lock(lock::Outcome::Waiting(waiting)) | Outcome::Semaphore(semaphore::Outcome::Waiting(waiting)) =
            &step.outcome
            && waiting.ticket == now.ticket
        {
            self.ticket = waiting.ticket;
        }
        (Reply::Coordinate { outcome: step.outcome, at: now.stamp() }, step.effects)
    }

    /// The core reclaims from dead processes in everything that a batch has loaded; this removes the rest.
    fn set_aside(&mut self, loaded: &BTreeSet<Resource>) -> Coordination {
        let is_loaded = |kind, name: &banksman_core::Name| loaded.contains(&Resource { kind, name: name.clone() });
        Coordination {
            locks: self.coordination.locks.extract_if(.., |name, _| !is_loaded(Kind::Lock, name)).collect(),
            semaphores: self.coordination.semaphores.extract_if(.., |name, _| !is_loaded(Kind::Semaphore, name)).collect(),
            claims: Default::default(),
        }
    }

    /// The resources that a batch of these requests may read: those it names, and all that have waiters if one of the
    /// requests may have to wait or knows a dead process.
    fn loaded<'a>(&self, requests: impl Iterator<Item = &'a Request>) -> BTreeSet<Resource> {
        let mut loaded = BTreeSet::new();
        for request in requests {
            let Request::Coordinate { command, seen } = request else { continue };
            loaded.insert(command.resource());
            if !seen.probes.is_empty() || matches!(asked(command), Asked::Acquire(Ask { wait: Some(_), .. })) {
                let locks = self.coordination.locks.values().filter(|lock| !lock.waiters.is_empty());
                loaded.extend(locks.map(|lock| Resource { kind: Kind::Lock, name: lock.name.clone() }));
                let semaphores = self.coordination.semaphores.values().filter(|semaphore| !semaphore.waiters.is_empty());
                loaded.extend(semaphores.map(|s| Resource { kind: Kind::Semaphore, name: s.name.clone() }));
            }
        }
        loaded
    }

    fn remember(&mut self, events: &[Event]) {
        for event in events {
            self.seq.0 += 1;
            if let Event::Resource { resource, fact: Fact::Acquired(claim) } = event
                && let Some(request) = &claim.request
            {
                self.requests.insert(request.clone(), (resource.clone(), Epoch::from(self.seq)));
            }
        }
    }
}

/// The processes that the caller's probes prove dead: boots are numbered here, so their order is known.
fn dead(seen: &Seen, boot: &str) -> Vec<ProcessId> {
    let proven = seen.probes.iter().filter(|(process, liveness)| match liveness {
        Liveness::Dead => true,
        Liveness::OtherBoot => &*process.boot != boot,
        Liveness::Alive | Liveness::Unknown => false,
    });
    proven.map(|(process, _)| process.clone()).collect()
}
