//! People: they claim tasks or single locks, wait for them while they hold others, give up, renew, end their work, and
//! are killed.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::{Command, Outcome as Coordinated};
use banksman_core::resource::grant::{Address, Ask, GrantRequest, WaitingProcess};
use banksman_core::resource::lock;
use banksman_core::task::{Outcome, State, Verdict};
use banksman_core::{Epoch, HolderId, Liveness, Name, ProcessId, Span, TaskId};
use banksman_engine::{Reply, Request, Taking, TaskOutcome, TaskRequest, Wait, WaitAction};

use super::{LOCKS, name};
use crate::clock::Ms;
use crate::commit::{Heard, InFlight, Sender};
use crate::world::World;

/// How long a claim lives without a heartbeat.
const TTL: Ms = 4_000;

/// How long others may overtake a claim.
pub(super) const OVERTAKE: Ms = 800;

/// How often a waiting process polls.
const POLL: Ms = 20_000;

/// The most grants that a person holds.
const HOLDS: usize = 2;

/// A person at a shell.
pub(crate) struct Person {
    pub(super) process: ProcessId,
    /// Unique among all shells.
    number: u32,
    doing: Doing,
    holds: Vec<Hold>,
    /// How many single locks it has requested.
    asked: u32,
    /// The name under which it claims tasks: its own, or that of a person who was killed before.
    name: u32,
    /// Until when its process is stopped.
    stopped: Ms,
}

enum Doing {
    /// No new action before that moment.
    Idle(Ms),
    Calling(Purpose),
    Sleeping {
        wait: Box<Wait>,
        until: Ms,
        give_up: Ms,
        watch: Vec<ProcessId>,
    },
}

/// The purpose of a call.
enum Purpose {
    Wait {
        wait: Box<Wait>,
        give_up: Ms,
    },
    Leave,
    /// The end of a hold, or its renewal.
    End(usize),
}

/// A grant of a person, and until when. While waiting, a person releases nothing.
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
    pub(super) fn new(process: ProcessId, number: u32, from: Ms) -> Person {
        Person { process, number, doing: Doing::Idle(from), holds: Vec::new(), asked: 0, name: number, stopped: 0 }
    }

    /// Stops the process, if it waits. A stopped process does nothing, whatever happens.
    pub(super) fn stop(&mut self, until: Ms) -> bool {
        let waits = matches!(self.doing, Doing::Sleeping { .. });
        self.stopped = if waits { until } else { self.stopped };
        waits
    }

    pub(super) fn is_stopped(&self, now: Ms) -> bool {
        self.stopped > now
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.doing, Doing::Sleeping { .. } | Doing::Calling(Purpose::Wait { .. }))
    }

    /// Whether it holds nothing and waits for nothing.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.doing, Doing::Idle(_)) && self.holds.is_empty()
    }

    pub(super) fn address(&self) -> String {
        format!("person{}", self.number)
    }

    pub(super) fn wake(&mut self, now: Ms) {
        if let Doing::Sleeping { until, .. } = &mut self.doing {
            *until = now;
        }
    }

    pub(super) fn hear_of_death(&mut self, process: &ProcessId, now: Ms) {
        if let Doing::Sleeping { until, watch, .. } = &mut self.doing
            && watch.contains(process)
        {
            *until = now;
        }
    }

    /// The name under which it claims tasks.
    fn claimant(&self) -> HolderId {
        HolderId::new(&format!("p{}", self.name)).expect("a plain word")
    }

    /// The name under which it holds its next single lock, like a command that it runs.
    fn next_lock_holder(&mut self) -> HolderId {
        self.asked += 1;
        HolderId::new(&format!("q{}.{}", self.number, self.asked)).expect("a plain word")
    }

    /// When it acts next.
    pub(crate) fn due(&self, is_quiescing: bool) -> Option<Ms> {
        match &self.doing {
            Doing::Calling(_) => None,
            Doing::Sleeping { until, give_up, .. } if !is_quiescing => Some((*until.min(give_up)).max(self.stopped)),
            Doing::Sleeping { until, .. } => Some((*until).max(self.stopped)),
            Doing::Idle(from) => {
                let ends = self.holds.iter().map(|hold| hold.until).min();
                ends.into_iter().chain((!is_quiescing).then_some(*from)).min()
            }
        }
    }
}

impl World<'_> {
    fn person(&mut self, index: usize) -> &mut Person {
        &mut self.people.persons[index]
    }

    fn send_of_person(&mut self, index: usize, purpose: Purpose, request: Request) {
        self.person(index).doing = Doing::Calling(purpose);
        self.calls.push(InFlight { from: Sender::Person(index), requests: vec![request] });
    }

    fn ask_again(&mut self, index: usize, wait: Box<Wait>, give_up: Ms) {
        let request = wait.request();
        self.send_of_person(index, Purpose::Wait { wait, give_up }, request);
    }

    /// Executes what is due for a person.
    pub(crate) fn act_person(&mut self, index: usize) {
        let now = self.clock.now();
        let doing = std::mem::replace(&mut self.person(index).doing, Doing::Idle(now + 200));
        match doing {
            Doing::Idle(from) => {
                let hold = self.person(index).holds.iter().position(|hold| hold.until <= now);
                if let Some(hold) = hold {
                    self.person(index).doing = Doing::Idle(from);
                    self.end_hold(index, hold);
                } else if !self.is_quiescing && self.person(index).holds.len() < HOLDS {
                    let wait = Box::new(self.new_wait(index));
                    let give_up = now + self.random.between(10, 12_000);
                    self.ask_again(index, wait, give_up);
                }
            }
            Doing::Sleeping { wait, give_up, .. } if give_up <= now && !self.is_quiescing => {
                if let Some(leave) = wait.leave() {
                    self.tally.count("gave up");
                    self.send_of_person(index, Purpose::Leave, leave);
                }
            }
            Doing::Sleeping { wait, give_up, .. } => self.ask_again(index, wait, give_up),
            Doing::Calling(_) => unreachable!("one who waits for an answer is not due"),
        }
    }

    /// A request for a task or a single lock, on behalf of everything that the person holds.
    fn new_wait(&mut self, index: usize) -> Wait {
        let person = &self.people.persons[index];
        let claimant = person.claimant();
        let holder_of = |hold: &Hold| match &hold.what {
            Held::Lock(_, holder, _) => holder.clone(),
            Held::Task(..) => claimant.clone(),
        };
        let ancestors: Vec<HolderId> = person.holds.iter().map(holder_of).collect();
        let process = person.process.clone();
        let address = Some(Address(person.address().as_str().into()));
        let standing = WaitingProcess { process: process.clone(), address, lease: None };
        if self.random.in_thousand(350) {
            let lock = *self.random.pick(&LOCKS);
            let holder = self.person(index).next_lock_holder();
            let claim = GrantRequest { processes: vec![process], ancestors, ..GrantRequest::new(holder) };
            let ask = Ask { wait: Some(standing), ..Ask::new(claim) };
            return Wait::new(Resource { kind: Kind::Lock, name: name(lock) }, ask, Span::from_ms(POLL));
        }
        let (id, spec) = self.random.pick(&self.people.tasks).clone();
        let taking = Taking {
            section: spec.section.clone(),
            needs: spec.needs.clone(),
            ancestors: ancestors.into_iter().filter(|holder| *holder != claimant).collect(),
            wait: Some((standing, Span::from_ms(OVERTAKE))),
            ..Taking::new(claimant, Span::from_ms(TTL))
        };
        Wait::for_task(id, taking, Span::from_ms(POLL))
    }

    pub(crate) fn on_person_reply(&mut self, index: usize, heard: Heard) {
        let now = self.clock.now();
        let Doing::Calling(purpose) = std::mem::replace(&mut self.person(index).doing, Doing::Idle(now + 10)) else { return };
        let reply = match heard {
            Heard::Replies(replies) => replies.into_iter().next().expect("one request has one reply"),
            // The person does not know what it holds, so its shell exits.
            Heard::Unknown => return self.kill_person(index),
        };
        match purpose {
            Purpose::Wait { mut wait, give_up } => {
                let action = wait.answer(reply);
                self.follow_action(index, wait, action, give_up);
            }
            Purpose::Leave => {}
            Purpose::End(hold) => match reply {
                Reply::Task(TaskOutcome::Renewed(_)) => {
                    let until = now + self.random.between(10, TTL * 3 / 2);
                    self.person(index).holds[hold].until = until;
                }
                other => {
                    if let Reply::Task(TaskOutcome::Lost(_)) = other {
                        self.tally.count("told of a lost claim");
                    }
                    self.person(index).holds.remove(hold);
                }
            },
        }
    }

    /// Carries out the actions of a wait until it sleeps, asks or ends.
    fn follow_action(&mut self, index: usize, mut wait: Box<Wait>, mut action: WaitAction, give_up: Ms) {
        loop {
            action = match action {
                WaitAction::Ask => return self.ask_again(index, wait, give_up),
                WaitAction::Probe(processes) => {
                    let found = processes.into_iter().map(|process| (process.clone(), self.machine.probe(&process)));
                    wait.probed(found.collect::<Vec<_>>())
                }
                WaitAction::Sleep { watch, at_most, .. } => match watch.iter().find(|process| !self.machine.lives(process)) {
                    Some(dead) => wait.probed([(dead.clone(), Liveness::Dead)]),
                    None => {
                        self.tally.count("waits");
                        let until = self.clock.now() + at_most.as_ms() + 1;
                        self.person(index).doing = Doing::Sleeping { wait, until, give_up, watch };
                        return;
                    }
                },
                WaitAction::Done(reply) => return self.receive(index, &wait, &reply),
            };
        }
    }

    /// The end of a wait.
    fn receive(&mut self, index: usize, wait: &Wait, reply: &Reply) {
        let now = self.clock.now();
        let until = now + self.random.between(10, 3_000);
        self.person(index).doing = Doing::Idle(now + self.random.between(10, 2_000));
        let what = match reply {
            Reply::Task(TaskOutcome::Stepped(Outcome::Taken, task)) => match &task.state {
                State::Manual { epoch, .. } => Held::Task(task.id.clone(), *epoch),
                _ => return,
            },
            Reply::Task(TaskOutcome::Deadlock(_)) | Reply::Coordinate { outcome: Coordinated::Deadlock(_), .. } => {
                return self.tally.count("claims that would wait for ever");
            }
            Reply::Coordinate {
                outcome: Coordinated::Lock(lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. }),
                ..
            } => match wait.request() {
                Request::Coordinate { command, .. } => {
                    Held::Lock(command.resource().name, grant.claim.holder.clone(), grant.epoch)
                }
                _ => return,
            },
            _ => return,
        };
        self.tally.count(if matches!(what, Held::Task(..)) { "claims" } else { "locks held" });
        self.person(index).holds.push(Hold { what, until });
    }

    fn end_hold(&mut self, index: usize, hold: usize) {
        let holder = self.person(index).claimant();
        let request = match self.person(index).holds[hold].what.clone() {
            Held::Lock(name, holder, epoch) => Request::plain(Command::Lock(name, lock::Input::Release { holder, epoch })),
            Held::Task(id, epoch) => Request::Task(self.end_task(id, holder, epoch)),
        };
        self.send_of_person(index, Purpose::End(hold), request);
    }

    fn end_task(&mut self, id: TaskId, holder: HolderId, epoch: Epoch) -> TaskRequest {
        let by = Some(holder);
        let epoch = self.random.in_thousand(500).then_some(epoch);
        match self.random.below(3) {
            _ if !self.is_quiescing && self.random.in_thousand(300) => TaskRequest::Renew { id, by, epoch },
            0 => TaskRequest::GiveBack { id, by, epoch },
            _ => TaskRequest::Finish { id, by, epoch, anyway: true, verdict: Verdict::Done { output: None } },
        }
    }

    /// A shell is killed. Another one is opened, and processes that watch it are notified.
    pub(crate) fn kill_person(&mut self, index: usize) {
        self.tally.count("deaths");
        let process = self.person(index).process.clone();
        self.say(format_args!("the shell of {} is killed", self.people.persons[index].address()));
        self.machine.exit(&process);
        self.calls.retain(|call| call.from != Sender::Person(index));
        let now = self.clock.now();
        let name = self.people.persons[index].name;
        self.people.persons[index] = self.new_person(now + 50);
        // It may be the same person again, in another terminal.
        if self.random.in_thousand(300) {
            self.person(index).name = name;
        }
        self.people.persons.iter_mut().for_each(|person| person.hear_of_death(&process, now));
    }
}
