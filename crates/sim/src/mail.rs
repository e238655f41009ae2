//! Messages to tasks: the real engine and store, senders that are killed between any two steps, targets that die, hang,
//! start and are restarted.
//!
//! Sessions are a model: a session has seen a list of messages, and its keeper takes each id once. The checkers know
//! nothing of the state machine: they read these lists, the receipts and the locks.

mod checks;
mod sending;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use banksman_core::agent::{AgentChoice, AgentEnd, AgentVerdict, AgentWork};
use banksman_core::backlog::{Run, RunEndRecord, Runner, Session as Processes};
use banksman_core::bus::{Contention, Draft, MessageType};
use banksman_core::decision::About;
use banksman_core::dispatch::{Confirmation, Mode, OBSERVE_WITHIN, Plan, Presence, SendOutcome, SessionInput, confirm, decide};
use banksman_core::mailbox::{Delivery, DeliveryPath, Receipt, State};
use banksman_core::resource::grant::Address;
use banksman_core::resource::lock;
use banksman_core::task::retry::Marker;
use banksman_core::task::{OnExhausted, RunEnd, Spec, Verdict, Watch, Work as What};
use banksman_core::{
    Epoch, Limits, Liveness, MessageId, Name, ProcessId, RunId, RunnerId, Span, Stamp, Status, TaskId, Title, Wall,
};
use banksman_engine::{
    Claim, MailboxOutcome, MailboxRequest, PostOutcome, PostRequest, Reply, RunOutcome, RunRequest, Seen, TaskRequest, Work,
};
use banksman_store::Key;

use crate::ground::{Ground, history};
use crate::mutation::MailMutation;
use sending::{Sender, Stage};
use sessions::Session;

/// How many tasks and senders there are, and how many steps are taken with faults.
const TARGETS: usize = 3;
const SENDERS: usize = 3;
const STEPS: usize = 300;

/// How many steps without faults must be enough to finish.
const QUIESCE_STEPS: usize = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MailTally {
    /// How many messages have each receipt.
    pub read: usize,
    pub undelivered: usize,
    pub unknown: usize,
    /// How many messages a second run has seen.
    pub redelivered: usize,
    /// How many senders were killed.
    pub killed: usize,
    /// How often a person was asked about a start.
    pub asked: usize,
}

struct World<'g> {
    ground: &'g mut Ground,
    mutation: Option<MailMutation>,
    targets: Vec<TaskId>,
    runner: Runner,
    sessions: BTreeMap<RunId, Session>,
    senders: Vec<Sender>,
    posted: BTreeSet<MessageId>,
    made: u64,
    dead: Vec<ProcessId>,
    tally: MailTally,
}

/// Runs the history of one seed. Returns the violation of a rule, if there is one.
pub fn mail_history(seed: u64, mutation: Option<MailMutation>) -> Result<MailTally, String> {
    history(seed, 0x3a11 << 16, |ground| {
        let id = RunnerId::new("n-1").expect("a valid id");
        let runner = Runner::new(id, ground.newborn(), Address("runner".into()), Stamp::default());
        World {
            runner: Runner { has_duty: true, ..runner },
            ground,
            mutation,
            targets: Vec::new(),
            sessions: BTreeMap::new(),
            senders: Vec::new(),
            posted: BTreeSet::new(),
            made: 0,
            dead: Vec::new(),
            tally: MailTally::default(),
        }
        .run()
    })
}

impl World<'_> {
    fn run(&mut self) -> Result<MailTally, String> {
        let limits = Limits { runs: 8, roots: 0 };
        self.ground.call(RunRequest::Enlist { runner: Box::new(self.runner.clone()), limits })?;
        for number in 0..TARGETS {
            self.add(number)?;
        }
        for _ in 0..SENDERS {
            let sender = self.newborn();
            self.senders.push(sender);
        }
        for step in 0..STEPS + QUIESCE_STEPS {
            self.ground.is_quiescing = step >= STEPS;
            // Now and then nothing happens for a long time.
            let most = if self.ground.random.in_thousand(40) { 700_000 } else { 20_000 };
            self.ground.clock.advance(self.ground.random.between(1, most));
            match self.ground.random.below(100) {
                0..3 if !self.ground.is_quiescing => {
                    let slot = self.ground.random.below(SENDERS);
                    let newborn = self.newborn();
                    self.dead.push(std::mem::replace(&mut self.senders[slot], newborn).process);
                    self.tally.killed += 1;
                }
                3..50 => {
                    let slot = self.ground.random.below(SENDERS);
                    self.send(slot)?;
                }
                50..65 => self.tend()?,
                65..72 => self.sweep()?,
                _ => self.live()?,
            }
            self.check()?;
            if self.ground.is_quiescing && self.is_over()? {
                break;
            }
        }
        if !self.is_over()? {
            let rows = self.ground.everything()?;
            let states: Vec<_> = rows.backlog.tasks.values().map(|task| &task.state).collect();
            return Err(format!("something never ends: {states:?}, {:?}", self.deliveries()?));
        }
        self.ground.compare_with_log()?;
        self.check_ends()?;
        Ok(self.tally)
    }

    fn mailbox(&mut self, request: MailboxRequest) -> Result<MailboxOutcome, String> {
        match self.ground.call(request)? {
            Reply::Mailbox(outcome) => Ok(outcome),
            reply => Err(format!("{reply:?}")),
        }
    }

    fn newborn(&mut self) -> Sender {
        Sender { process: self.ground.newborn(), stage: Stage::Idle }
    }

    fn add(&mut self, number: usize) -> Result<(), String> {
        let id = TaskId::new(&format!("t{number}")).expect("a valid id");
        let name = || Name::new("agent").expect("a valid name");
        let work = if self.ground.random.in_thousand(600) {
            let agents = vec![AgentChoice { agent: name(), account: name(), model: None }];
            What::Agent(Arc::new(AgentWork { agents, ..AgentWork::default() }))
        } else {
            What::shell("true").expect("a command")
        };
        let title = Title::new(&format!("work {number}")).expect("a valid title");
        let spec = Spec { work: Some(work), retries: 6, ..Spec::new(title) };
        self.ground.call(TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on: Vec::new(), by: None })?;
        self.targets.push(id);
        Ok(())
    }

    fn status(&mut self, id: &TaskId) -> Result<Status, String> {
        let rows = self.ground.load([Key::Task(id.clone())])?;
        Ok(rows.backlog.tasks[id].status())
    }

    /// The actions of a runner about dead senders, and about targets that are over.
    fn sweep(&mut self) -> Result<(), String> {
        let rows = self.ground.load([Key::UnsettledDeliveries { limit: 10 }])?;
        let probes: Vec<_> = self.dead.iter().map(|process| (process.clone(), Liveness::Dead)).collect();
        let is_left = self.mutation == Some(MailMutation::LeavesLock);
        for delivery in rows.deliveries.values().filter(|_| !is_left) {
            let (id, target, seen) =
                (delivery.id.clone(), delivery.target.clone(), Seen { probes: probes.clone(), ..Seen::default() });
            let request = MailboxRequest::Abandon { id, target, seen };
            self.ground.call(request)?;
        }
        for delivery in rows.deliveries.values() {
            let started = delivery.dispatch.as_ref().filter(|dispatch| dispatch.plan == Plan::Spawn);
            if let Some(run) = started.map(|dispatch| dispatch.run.clone()) {
                let (id, target) = (delivery.id.clone(), delivery.target.clone());
                self.mailbox(MailboxRequest::Unobserved { id, target, run })?;
            }
        }
        self.check_asked()?;
        for target in rows.tables.over_targets {
            self.mailbox(MailboxRequest::Return { target })?;
        }
        Ok(())
    }
}
