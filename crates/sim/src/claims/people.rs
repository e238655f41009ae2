//! People: they claim tasks or single locks, wait for them while they hold others, give up, renew, end their work, and are killed.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::{Command, Outcome as Coordinated};
use banksman_core::resource::grant::{Address, Ask, GrantRequest, WaitingProcess};
use banksman_core::resource::lock;
use banksman_core::task::{Outcome, State, Verdict};
use banksman_core::{Epoch, HolderId, Liveness, Name, ProcessId, Span, TaskId};
use banksman_engine::{Advice, Reply, Request, Taking, TaskOutcome, TaskRequest, Wait};

use super::world::{CommitOutcome, LOCKS, World, name, process};
use crate::clock::Ms;

/// How long a claim lives without a heartbeat.
const TTL: Ms = 4_000;

/// How long others may overtake a claim.
pub(super) const OVERTAKE: Ms = 800;

/// How often one who waits looks by itself.
const POLL: Ms = 20_000;

/// The most that a person holds.
const HOLDS: usize = 2;

/// A person at a shell.
pub(super) struct Person {
    pub(super) pid: i32,
    doing: Doing,
    holds: Vec<Hold>,
    /// How many single locks it has asked for.
    asked: u32,
}

enum Doing {
    /// Nothing new before that moment.
    Idle(Ms),
    /// It has a request for the store, and gives up at that moment.
    Asking(Box<Wait>, Ms),
    /// It waits.
    Sleeping { wait: Box<Wait>, until: Ms, give_up: Ms, watch: Vec<ProcessId> },
}

/// Something that a person holds, and until when. One who waits gives nothing back meanwhile.
#[derive(Clone)]
struct Hold {
    what: Held,
    until: Ms,
}

#[derive(Clone)]
enum Held {
    Task(TaskId, Epoch),
    Lock(Name, HolderId, Epoch),
}

impl Person {
    pub(super) fn new(pid: i32, from: Ms) -> Person {
        Person { pid, doing: Doing::Idle(from), holds: Vec::new(), asked: 0 }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.doing, Doing::Sleeping { .. } | Doing::Asking(..))
    }

    pub(super) fn is_done(&self) -> bool {
        !self.is_waiting() && self.holds.is_empty()
    }

    pub(super) fn wake(&mut self, now: Ms) {
        if let Doing::Sleeping { until, .. } = &mut self.doing {
            *until = now;
        }
    }

    pub(super) fn hear_of_death(&mut self, pid: i32, now: Ms) {
        if let Doing::Sleeping { until, watch, .. } = &mut self.doing
            && watch.iter().any(|process| process.pid == pid)
        {
            *until = now;
        }
    }
}

/// The name under which a person claims tasks.
fn claimant(pid: i32) -> HolderId {
    HolderId::new(&format!("p{pid}")).expect("a plain word")
}

/// The name under which a person holds a single lock, as a command does that runs under it.
fn lock_holder(pid: i32, number: u32) -> HolderId {
    HolderId::new(&format!("q{pid}.{number}")).expect("a plain word")
}

impl World<'_> {
    /// When a person does something next.
    pub(super) fn person_due(&self, index: usize) -> Option<Ms> {
        let person = &self.people[index];
        match &person.doing {
            Doing::Asking(..) => Some(self.clock.now()),
            Doing::Sleeping { until, give_up, .. } if self.faults => Some(*until.min(give_up)),
            Doing::Sleeping { until, .. } => Some(*until),
            Doing::Idle(from) => {
                let ends = person.holds.iter().map(|hold| hold.until).min();
                ends.into_iter().chain(self.faults.then_some(*from)).min()
            }
        }
    }

    /// A person does what is due.
    pub(super) fn act(&mut self, index: usize) {
        let (now, pid) = (self.clock.now(), self.people[index].pid);
        let doing = std::mem::replace(&mut self.people[index].doing, Doing::Idle(now + 10));
        match doing {
            Doing::Idle(from) => {
                let hold = self.people[index].holds.iter().position(|hold| hold.until <= now);
                if let Some(hold) = hold {
                    self.people[index].doing = Doing::Idle(from);
                    self.end_hold(index, hold);
                } else if self.faults && self.people[index].holds.len() < HOLDS {
                    let wait = self.new_wait(index);
                    let give_up = now + self.random.between(10, 12_000);
                    self.people[index].doing = Doing::Asking(Box::new(wait), give_up);
                } else {
                    self.people[index].doing = Doing::Idle(now + 200);
                }
            }
            Doing::Asking(mut wait, give_up) => match self.commit(vec![wait.request()]) {
                (CommitOutcome::Committed, mut replies) => {
                    let advice = wait.answer(replies.remove(0));
                    self.advise(index, wait, advice, give_up);
                }
                (CommitOutcome::Lost, _) => self.people[index].doing = Doing::Asking(wait, give_up),
                (CommitOutcome::Unknown, _) => self.kill(pid),
            },
            Doing::Sleeping { wait, give_up, .. } if give_up <= now && self.faults => self.give_up(index, wait, give_up),
            Doing::Sleeping { wait, give_up, .. } => self.people[index].doing = Doing::Asking(wait, give_up),
        }
    }

    fn give_up(&mut self, index: usize, wait: Box<Wait>, give_up: Ms) {
        let Some(leave) = wait.leave() else { return };
        self.tally.count("gave up");
        match self.commit(vec![leave]) {
            (CommitOutcome::Committed, _) => {}
            (CommitOutcome::Lost, _) => self.people[index].doing = Doing::Asking(wait, give_up),
            (CommitOutcome::Unknown, _) => self.kill(self.people[index].pid),
        }
    }

    /// Somebody wants a task, or a single lock, on behalf of all that it holds.
    fn new_wait(&mut self, index: usize) -> Wait {
        let person = &mut self.people[index];
        person.asked += 1;
        let (pid, number) = (person.pid, person.asked);
        let holder_of = |hold: &Hold| match &hold.what {
            Held::Lock(_, holder, _) => holder.clone(),
            Held::Task(..) => claimant(pid),
        };
        let ancestors: Vec<HolderId> = person.holds.iter().map(holder_of).collect();
        let standing = WaitingProcess { process: process(pid), address: Some(Address(pid.to_string().into())), lease: None };
        if self.random.in_thousand(350) {
            let lock = *self.random.pick(&LOCKS);
            let claim = GrantRequest { processes: vec![process(pid)], ancestors, ..GrantRequest::new(lock_holder(pid, number)) };
            let ask = Ask { wait: Some(standing), ..Ask::new(claim) };
            return Wait::new(Resource { kind: Kind::Lock, name: name(lock) }, ask, Span::from_ms(POLL));
        }
        let (id, spec) = self.some_task();
        let taking = Taking {
            section: spec.section.clone(),
            needs: spec.needs.clone(),
            ancestors: ancestors.into_iter().filter(|holder| *holder != claimant(pid)).collect(),
            wait: Some((standing, Span::from_ms(OVERTAKE))),
            ..Taking::new(claimant(pid), Span::from_ms(TTL))
        };
        Wait::for_task(id, taking, Span::from_ms(POLL))
    }

    /// Does what a wait says, until it sleeps, asks or is over.
    fn advise(&mut self, index: usize, mut wait: Box<Wait>, advice: Advice, give_up: Ms) {
        let mut advice = advice;
        loop {
            advice = match advice {
                Advice::Ask => {
                    self.people[index].doing = Doing::Asking(wait, give_up);
                    return;
                }
                Advice::Probe(processes) => {
                    let liveness = |process: &ProcessId| if self.lives(process) { Liveness::Alive } else { Liveness::Dead };
                    let found: Vec<_> = processes.into_iter().map(|process| (process.clone(), liveness(&process))).collect();
                    wait.probed(found)
                }
                Advice::Sleep { watch, at_most, .. } => match watch.iter().find(|process| !self.lives(process)) {
                    Some(dead) => wait.probed([(dead.clone(), Liveness::Dead)]),
                    None => {
                        self.tally.count("waits");
                        let until = self.clock.now() + at_most.as_ms() + 1;
                        self.people[index].doing = Doing::Sleeping { wait, until, give_up, watch };
                        return;
                    }
                },
                Advice::Done(reply) => return self.receive(index, &reply),
            };
        }
    }

    /// The end of a wait.
    fn receive(&mut self, index: usize, reply: &Reply) {
        let until = self.clock.now() + self.random.between(10, 3_000);
        self.people[index].doing = Doing::Idle(self.clock.now() + self.random.between(10, 2_000));
        let what = match reply {
            Reply::Task(TaskOutcome::Stepped(Outcome::Taken, task)) => match &task.state {
                State::Manual { epoch, .. } => Held::Task(task.id.clone(), *epoch),
                _ => return,
            },
            Reply::Task(TaskOutcome::Deadlock(_)) | Reply::Coordinate { outcome: Coordinated::Deadlock(_), .. } => {
                return self.tally.count("deadlocks refused");
            }
            Reply::Coordinate {
                outcome: Coordinated::Lock(lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. }),
                ..
            } => match self.lock_of(grant.epoch) {
                Some(name) => Held::Lock(name, grant.claim.holder.clone(), grant.epoch),
                None => return,
            },
            _ => return,
        };
        self.tally.count(if matches!(what, Held::Task(..)) { "claims" } else { "locks held" });
        self.people[index].holds.push(Hold { what, until });
    }

    fn lock_of(&mut self, epoch: Epoch) -> Option<Name> {
        let rows = self.rows()?;
        let is_it = |lock: &&lock::Lock| matches!(&lock.state, lock::State::Held(grant) if grant.epoch == epoch);
        rows.coordination.locks.values().find(is_it).map(|lock| lock.name.clone())
    }

    fn end_hold(&mut self, index: usize, hold: usize) {
        let (now, pid) = (self.clock.now(), self.people[index].pid);
        let what = self.people[index].holds[hold].what.clone();
        let request = match &what {
            Held::Lock(name, holder, epoch) => {
                let release = lock::Input::Release { holder: holder.clone(), epoch: *epoch };
                Request::plain(Command::Lock(name.clone(), release))
            }
            Held::Task(id, epoch) => Request::Task(self.end_task(id.clone(), claimant(pid), *epoch)),
        };
        match self.commit(vec![request]) {
            (CommitOutcome::Committed, replies) => match &replies[..] {
                [Reply::Task(TaskOutcome::Renewed(_))] => {
                    self.people[index].holds[hold].until = now + self.random.between(10, TTL * 3 / 2);
                }
                other => {
                    if let [Reply::Task(TaskOutcome::Lost(_))] = other {
                        self.tally.count("told of a lost claim");
                    }
                    self.people[index].holds.remove(hold);
                }
            },
            (CommitOutcome::Lost, _) => self.people[index].holds[hold].until = now + 5,
            (CommitOutcome::Unknown, _) => self.kill(pid),
        }
    }

    fn end_task(&mut self, id: TaskId, holder: HolderId, epoch: Epoch) -> TaskRequest {
        let by = Some(holder);
        let epoch = self.random.in_thousand(500).then_some(epoch);
        match self.random.below(3) {
            _ if self.faults && self.random.in_thousand(300) => TaskRequest::Renew { id, by, epoch },
            0 => TaskRequest::GiveBack { id, by, epoch },
            _ => TaskRequest::Finish { id, by, epoch, anyway: true, verdict: Verdict::Done { output: None } },
        }
    }
}
