//! Messages to tasks: the real engine and store, senders that are killed between any two steps, targets that die, hang, start and are started
//! again.
//!
//! Sessions are a model: what one has seen is a list of messages, and its keeper takes each id once. The checkers know nothing of the
//! machine: they look at those lists, at the receipts and at the locks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use banksman_core::agent::{AgentChoice, AgentEnd, AgentVerdict, AgentWork};
use banksman_core::backlog::{Run, RunEndRecord, Runner, Session as Processes};
use banksman_core::bus::{Contention, Draft, MessageType};
use banksman_core::decision::About;
use banksman_core::dispatch::{Confirmation, Mode, OBSERVE_WITHIN, Plan, Presence, SendOutcome, SessionInput, confirm, decide};
use banksman_core::mailbox::{Delivery, Receipt, State, Way};
use banksman_core::resource::grant::Address;
use banksman_core::resource::lock;
use banksman_core::task::retry::Marker;
use banksman_core::task::{OnExhausted, RunEnd, Spec, Verdict, Watch, Work as What};
use banksman_core::{
    Epoch, Limits, Liveness, MessageId, Name, ProcessId, RunId, RunnerId, Span, Stamp, Status, TaskId, Title, Wall,
};
use banksman_engine::{
    Claim, MailboxOutcome, MailboxRequest, PostOutcome, PostRequest, Reply, Request, RunOutcome, RunRequest, Seen, TaskRequest,
    Work,
};
use banksman_store::{Key, Store};

use crate::clock::{Clock, HOST};
use crate::random::Random;
use crate::store;

/// How many tasks and senders there are, and how many steps are taken with faults.
const TARGETS: usize = 3;
const SENDERS: usize = 3;
const STEPS: usize = 300;

/// How many steps without faults must be enough.
const CALM: usize = 2_000;

/// A mistake on purpose, which a checker must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailMutation {
    /// A keeper writes a message whenever it is sent, and a sender sends it twice.
    SendsTwice,
    /// A runner starts an agent without the messages that were fetched for its prompt.
    ForgetsPrompt,
    /// A sender says that it has sent what it has not.
    ReportsTooSoon,
    /// Nobody looks after the message of a sender that was killed.
    LeavesLock,
    /// A keeper says at the end of a session that it has written what it still had for the next turn.
    ClaimsFollowUps,
    /// A runner records an end without what the keeper has said of its messages.
    ForgetsWritten,
}

/// What happened in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MailTally {
    /// How many messages have each end.
    pub read: usize,
    pub undelivered: usize,
    pub unknown: usize,
    /// How many were seen by a second run.
    pub redelivered: usize,
    /// How many senders were killed.
    pub killed: usize,
    /// How often a person was asked about a start.
    pub asked: usize,
}

/// A session, with its keeper.
struct Session {
    work: Work,
    input: SessionInput,
    /// Whether the runner has reported its start.
    is_reported: bool,
    seen: Vec<MessageId>,
    /// What it has acknowledged, by reading its mailbox again.
    acknowledged: Vec<MessageId>,
    /// Whether it has said its result, or ended well.
    has_result: bool,
    /// What its keeper has for the next turns of its agent, and what it has written of that.
    held: Vec<MessageId>,
    written: Vec<MessageId>,
    /// How it ended, if it has.
    ended: Option<(RunEnd, bool)>,
}

/// A process that sends a message.
struct Sender {
    process: ProcessId,
    stage: Stage,
}

enum Stage {
    Idle,
    /// The facts were read, and the message is in the mailbox.
    Posted(TaskId, Plan, u32),
    /// It holds the lock.
    Began(Box<Delivery>, Plan, u32),
    /// The facts are the same under the lock.
    Confirmed(Box<Delivery>),
    /// It has sent it.
    Sent(Box<Delivery>, SendOutcome),
}

struct World {
    random: Random,
    mutation: Option<MailMutation>,
    store: Store,
    clock: Clock,
    targets: Vec<TaskId>,
    runner: Runner,
    sessions: BTreeMap<RunId, Session>,
    senders: Vec<Sender>,
    posted: BTreeSet<MessageId>,
    born: u64,
    made: u64,
    dead: Vec<ProcessId>,
    tally: MailTally,
    is_calm: bool,
}

/// Runs the history of one seed. Says what must not be.
pub fn mail_history(seed: u64, mutation: Option<MailMutation>) -> Result<MailTally, String> {
    let clock = Clock::new();
    let store = store::empty(&clock).map_err(|error| error.to_string())?;
    let mut world = World {
        random: Random::new(seed ^ 0x3a11 << 16),
        mutation,
        store,
        clock,
        targets: Vec::new(),
        runner: runner(),
        sessions: BTreeMap::new(),
        senders: Vec::new(),
        posted: BTreeSet::new(),
        born: 100,
        made: 0,
        dead: Vec::new(),
        tally: MailTally::default(),
        is_calm: false,
    };
    let result = world.run();
    store::give_back(world.store);
    result.map_err(|what| format!("seed {seed}: {what}"))
}

fn process(number: u64) -> ProcessId {
    let pid = i32::try_from(number).expect("few");
    ProcessId { host: HOST.into(), boot: "boot".into(), pid_ns: 1, pid, start: number }
}

fn runner() -> Runner {
    let id = RunnerId::new("n-1").expect("a valid id");
    Runner { has_duty: true, ..Runner::new(id, process(1), Address("runner".into()), Stamp::default()) }
}

impl World {
    fn run(&mut self) -> Result<MailTally, String> {
        let limits = Limits { runs: 8, roots: 0 };
        self.call(RunRequest::Enlist { runner: Box::new(self.runner.clone()), limits }.into())?;
        for number in 0..TARGETS {
            self.add(number)?;
        }
        for _ in 0..SENDERS {
            let sender = self.newborn();
            self.senders.push(sender);
        }
        for step in 0..STEPS + CALM {
            self.is_calm = step >= STEPS;
            // Now and then nothing happens for long.
            let most = if self.random.in_thousand(40) { 700_000 } else { 20_000 };
            self.clock.advance(self.random.between(1, most));
            match self.random.below(100) {
                0..3 if !self.is_calm => {
                    let slot = self.random.below(SENDERS);
                    let newborn = self.newborn();
                    self.dead.push(std::mem::replace(&mut self.senders[slot], newborn).process);
                    self.tally.killed += 1;
                }
                3..50 => {
                    let slot = self.random.below(SENDERS);
                    self.send(slot)?;
                }
                50..65 => self.tend()?,
                65..72 => self.sweep()?,
                _ => self.live()?,
            }
            self.check()?;
            if self.is_calm && self.is_over()? {
                break;
            }
        }
        if !self.is_over()? {
            let rows = self.store.view().everything().map_err(|error| error.to_string())?;
            let states: Vec<_> = rows.backlog.tasks.values().map(|task| &task.state).collect();
            return Err(format!("something never ends: {states:?}, {:?}", self.deliveries()?));
        }
        let differing = self.store.view().compare_with_log().map_err(|error| error.to_string())?;
        if !differing.is_empty() {
            return Err(format!("the log and the tables differ: {differing:?}"));
        }
        self.check_ends()?;
        Ok(self.tally)
    }

    fn call(&mut self, request: Request) -> Result<Reply, String> {
        let committed = self.store.batch(&[request]).pop().expect("one request, one batch").map_err(|error| error.to_string())?;
        committed.replies.into_iter().next().ok_or_else(|| "no reply".into())
    }

    fn mailbox(&mut self, request: MailboxRequest) -> Result<MailboxOutcome, String> {
        match self.call(request.into())? {
            Reply::Mailbox(outcome) => Ok(outcome),
            reply => Err(format!("{reply:?}")),
        }
    }

    fn newborn(&mut self) -> Sender {
        self.born += 1;
        Sender { process: process(self.born), stage: Stage::Idle }
    }

    fn add(&mut self, number: usize) -> Result<(), String> {
        let id = TaskId::new(&format!("t{number}")).expect("a valid id");
        let name = || Name::new("agent").expect("a valid name");
        let work = if self.random.in_thousand(600) {
            let agents = vec![AgentChoice { agent: name(), account: name(), model: None }];
            What::Agent(Arc::new(AgentWork { agents, prompt: "".into(), on_quota: Default::default() }))
        } else {
            What::shell("true").expect("a command")
        };
        let title = Title::new(&format!("work {number}")).expect("a valid title");
        let spec = Spec { work: Some(work), retries: 6, ..Spec::new(title) };
        self.call(TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on: Vec::new(), by: None }.into())?;
        self.targets.push(id);
        Ok(())
    }

    fn status(&mut self, id: &TaskId) -> Result<Status, String> {
        let rows = self.store.view().load(&[Key::Task(id.clone())].into()).map_err(|error| error.to_string())?;
        Ok(rows.backlog.tasks[id].status())
    }

    /// What a sender finds out about a target.
    fn presence(&mut self, id: &TaskId) -> Result<Presence, String> {
        let rows = self.store.view().load(&[Key::Task(id.clone())].into()).map_err(|error| error.to_string())?;
        let task = &rows.backlog.tasks[id];
        if task.status().is_over() {
            return Ok(Presence::Over);
        }
        Ok(match task.live() {
            None => Presence::Dormant { may_start: true },
            Some(live) => {
                // A keeper that hangs, or whose session is not there yet or not any more, does not answer.
                let session = self.sessions.get(&live.run).filter(|session| session.ended.is_none());
                let hangs = self.random.in_thousand(if self.is_calm { 0 } else { 100 });
                Presence::Live { run: live.run.clone(), input: session.filter(|_| !hangs).map(|session| session.input) }
            }
        })
    }

    /// One step of a sender.
    fn send(&mut self, slot: usize) -> Result<(), String> {
        let stage = std::mem::replace(&mut self.senders[slot].stage, Stage::Idle);
        self.senders[slot].stage = match stage {
            Stage::Idle if self.is_calm => Stage::Idle,
            Stage::Idle => self.post()?,
            Stage::Posted(target, plan, round) => self.begin(slot, target, plan, round)?,
            Stage::Began(delivery, plan, round) => {
                let target = delivery.target.clone();
                let again = decide(&self.presence(&target)?, Mode::Steer);
                match (confirm(&plan, &again, round), again) {
                    (Confirmation::Proceed, _) => Stage::Confirmed(delivery),
                    (Confirmation::DecideAnew, Ok(plan)) => {
                        self.settle(&delivery, SendOutcome::FallbackSent)?;
                        Stage::Posted(target, plan, round + 1)
                    }
                    (Confirmation::DecideAnew | Confirmation::GiveUp, _) => {
                        self.settle(&delivery, SendOutcome::FallbackSent)?;
                        Stage::Idle
                    }
                }
            }
            Stage::Confirmed(delivery) => {
                let outcome = self.carry(&delivery);
                Stage::Sent(delivery, outcome)
            }
            Stage::Sent(delivery, outcome) => {
                self.settle(&delivery, outcome)?;
                // There may be more to send.
                let plan = delivery.dispatch.as_ref().map(|dispatch| dispatch.plan.clone());
                plan.map_or(Stage::Idle, |plan| Stage::Posted(delivery.target.clone(), plan, 1))
            }
        };
        Ok(())
    }

    fn post(&mut self) -> Result<Stage, String> {
        let target = self.random.pick(&self.targets).clone();
        let mode = if self.random.in_thousand(600) { Mode::Steer } else { Mode::FollowUp };
        let Ok(plan) = decide(&self.presence(&target)?, mode) else { return Ok(Stage::Idle) };
        self.made += 1;
        let id = MessageId::new(&format!("m-{}", self.made)).expect("a valid id");
        let kind = MessageType::new("INFO").expect("a known word");
        let (task, attachments) = (Some(target.clone()), Vec::new());
        let draft =
            Draft { id: id.clone(), kind, task, run: None, author: "a".into(), parent: None, body: "x".into(), attachments };
        let request = PostRequest { draft, contention: Contention { attempts: 1, ..Contention::default() }, to_task: Some(mode) };
        match self.call(request.into())? {
            Reply::Post(PostOutcome::Posted(_)) => drop(self.posted.insert(id)),
            Reply::Post(PostOutcome::TargetOver(..)) => return Ok(Stage::Idle),
            reply => return Err(format!("{reply:?}")),
        }
        Ok(Stage::Posted(target, plan, 1))
    }

    fn begin(&mut self, slot: usize, target: TaskId, plan: Plan, round: u32) -> Result<Stage, String> {
        let Plan::ControlSocket { run } = &plan else { return Ok(Stage::Idle) };
        let dispatcher = self.senders[slot].process.clone();
        let follow_ups = self.sessions.get(run).is_some_and(|session| session.input == SessionInput::Turns);
        let request = MailboxRequest::Begin { target: target.clone(), run: run.clone(), follow_ups, dispatcher };
        Ok(match self.mailbox(request)? {
            MailboxOutcome::Began(delivery) => Stage::Began(delivery, plan, round),
            _ => Stage::Idle,
        })
    }

    /// Writes a message into a session.
    fn carry(&mut self, delivery: &Delivery) -> SendOutcome {
        if self.mutation == Some(MailMutation::ReportsTooSoon) && self.random.in_thousand(300) {
            return SendOutcome::Sent;
        }
        let run = delivery.dispatch.as_ref().map(|dispatch| dispatch.run.clone());
        let session = run.and_then(|run| self.sessions.get_mut(&run)).filter(|session| session.ended.is_none());
        let Some(session) = session else { return SendOutcome::Failed };
        if self.random.in_thousand(100) {
            return SendOutcome::Rejected;
        }
        if delivery.mode == Mode::FollowUp {
            if !session.seen.contains(&delivery.id) && !session.held.contains(&delivery.id) {
                session.held.push(delivery.id.clone());
            }
            return SendOutcome::Sent;
        }
        let is_twice = self.mutation == Some(MailMutation::SendsTwice);
        for _ in 0..1 + usize::from(is_twice) {
            if is_twice || !session.seen.contains(&delivery.id) {
                session.seen.push(delivery.id.clone());
            }
        }
        // The answer may not come in time.
        if self.random.in_thousand(80) { SendOutcome::Unknown } else { SendOutcome::Sent }
    }

    fn settle(&mut self, delivery: &Delivery, outcome: SendOutcome) -> Result<(), String> {
        let epoch = delivery.claim().map_or(Epoch(0), |claim| claim.epoch);
        let (id, target) = (delivery.id.clone(), delivery.target.clone());
        let is_written = delivery.mode == Mode::Steer;
        self.mailbox(MailboxRequest::Settle { id, target, epoch, outcome, is_written }).map(drop)
    }

    /// One step of the runner: it claims, reports a start, or reports an end.
    fn tend(&mut self) -> Result<(), String> {
        let unreported = self.sessions.values().find(|session| !session.is_reported && session.ended.is_none());
        let ended = self.sessions.values().find(|session| session.ended.is_some());
        match (ended.map(|session| session.work.run.id.clone()), unreported.map(|session| session.work.clone())) {
            (Some(run), _) if self.random.in_thousand(500) => self.finish(&run),
            (_, Some(work)) if self.is_calm || self.random.in_thousand(300) => {
                let session = Processes { keeper: 7, child: 8 };
                let prompted = matches!(work.task.spec.work, Some(What::Agent(_))).then(|| work.task.id.clone());
                let (run, owner_epoch) = (work.run.id.clone(), work.run.owner_epoch);
                self.call(RunRequest::Started { run: run.clone(), owner_epoch, session, prompted }.into())?;
                self.sessions.get_mut(&run).expect("it was just there").is_reported = true;
                Ok(())
            }
            (Some(run), None) => self.finish(&run),
            (_, _) => self.claim(),
        }
    }

    fn claim(&mut self) -> Result<(), String> {
        // What rests after a start that failed is ready again in time.
        let (rested, left) = (self.targets.clone(), Vec::new());
        self.call(RunRequest::MakeReady { rested, left, seen: Seen::default() }.into())?;
        self.made += 1;
        let run = RunId::new(&format!("r-{}", self.made)).expect("a valid id");
        let claim = Claim {
            runner: self.runner.id.clone(),
            room: 1,
            head: 8,
            runs: vec![run],
            sections: Vec::new(),
            checked: Vec::new(),
            seen: Seen::default(),
        };
        let Reply::Run(RunOutcome::Claimed(claimed)) = self.call(RunRequest::Claim(Box::new(claim)).into())? else {
            return Ok(());
        };
        for work in claimed.started {
            let told = self.store.view().fetched_by(&work.task.id, &work.run.id).map_err(|error| error.to_string())?;
            let forgets = self.mutation == Some(MailMutation::ForgetsPrompt);
            let seen = told.into_iter().filter(|_| !forgets).map(|delivery| delivery.id).collect();
            let has_turns = matches!(work.task.spec.work, Some(What::Agent(_)));
            let input = match self.random.in_thousand(700) {
                true if has_turns => SessionInput::Turns,
                true => SessionInput::Pipe,
                false => SessionInput::Nothing,
            };
            // Some sessions are never there.
            let begins = self.is_calm || self.random.in_thousand(900);
            let not_begun = || (RunEnd::NotBegun { error: "no".into(), is_shortage: false }, false);
            let (seen, ended) = if begins { (seen, None) } else { (Vec::new(), Some(not_begun())) };
            let id = work.run.id.clone();
            let (acknowledged, held, written) = (Vec::new(), Vec::new(), Vec::new());
            self.sessions.insert(
                id,
                Session { work, input, is_reported: false, seen, acknowledged, has_result: false, held, written, ended },
            );
        }
        Ok(())
    }

    fn finish(&mut self, run: &RunId) -> Result<(), String> {
        let session = &self.sessions[run];
        let (ending, is_ok) = session.ended.clone().expect("the caller has seen it");
        let work = session.work.clone();
        let is_agent = matches!(work.task.spec.work, Some(What::Agent(_))) && matches!(ending, RunEnd::Exited(_));
        let verdict = if is_ok { AgentVerdict::Ok } else { AgentVerdict::Crashed };
        let agent = AgentEnd {
            agent: Name::new("agent").expect("a valid name"),
            verdict,
            text: "".into(),
            session: None,
            model: None,
            key_source: None,
            turns: 1,
            answers: 1,
            usage: Default::default(),
            cost_micros: None,
        };
        let claimed = if self.mutation == Some(MailMutation::ClaimsFollowUps) { session.held.clone() } else { Vec::new() };
        let told = if self.mutation == Some(MailMutation::ForgetsWritten) { &[][..] } else { &session.written };
        let written = told.iter().cloned().chain(claimed).collect();
        let agent = is_agent.then(|| Box::new(agent));
        let record = RunEndRecord { agent, written, ..RunEndRecord::new(ending, Wall(0), None) };
        let watch = Watch { timeout: Span::ZERO, max_recoveries: u32::MAX, on_exhausted: OnExhausted::Fail };
        let (runner, what) = (self.runner.id.clone(), Box::new(work));
        self.call(RunRequest::Finish { runner, what, ending: record, marker: Marker::Absent, watch }.into())?;
        // What it has seen is remembered: a session never comes back.
        let session = self.sessions.get_mut(run).expect("it was just there");
        session.ended = None;
        session.input = SessionInput::Nothing;
        session.is_reported = true;
        session.work.run.ended = Some(RunEndRecord::new(RunEnd::Lost, Wall(0), None));
        Ok(())
    }

    /// A session does something: it reads its mailbox, tells its result, or ends.
    fn live(&mut self) -> Result<(), String> {
        let living = self.sessions.values().filter(|session| session.ended.is_none() && session.work.run.ended.is_none());
        let runs: Vec<RunId> = living.map(|session| session.work.run.id.clone()).collect();
        if runs.is_empty() {
            return Ok(());
        }
        let run = self.random.pick(&runs).clone();
        let (task, epoch) = (self.sessions[&run].work.task.id.clone(), self.sessions[&run].work.run.epoch);
        let has_turns = self.sessions[&run].input == SessionInput::Turns;
        match self.random.below(10) {
            // One that works in turns hears of its messages by itself.
            0..4 if has_turns => self.turn(&run),
            0..5 => {
                let request = MailboxRequest::Fetch { task, run: run.clone(), epoch, again: false };
                if let MailboxOutcome::Fetched(fetched) = self.mailbox(request)? {
                    let session = self.sessions.get_mut(&run).expect("it was just there");
                    session.acknowledged.clone_from(&session.seen);
                    session.seen.extend(fetched.into_iter().map(|delivery| delivery.id));
                }
            }
            5 => {
                let verdict = Verdict::Failed { error: "no".into() };
                self.call(TaskRequest::Conclude { id: task, epoch: Some(epoch), by: None, verdict }.into())?;
                self.sessions.get_mut(&run).expect("it lives").has_result = true;
            }
            6 if !self.is_calm && self.random.in_thousand(400) => self.end(&run, RunEnd::Signalled(9), false),
            7 if !self.is_calm && self.random.in_thousand(400) => self.end(&run, RunEnd::Exited(1), false),
            8 if self.is_calm || self.random.in_thousand(300) => {
                self.turn(&run);
                self.end(&run, RunEnd::Exited(0), true);
            }
            9 => self.turn(&run),
            // It hangs.
            _ => {}
        }
        Ok(())
    }

    /// Its agent ends a turn, and the next ones begin with what waits for them.
    fn turn(&mut self, run: &RunId) {
        let session = self.sessions.get_mut(run).expect("it lives");
        session.seen.extend(session.held.iter().cloned());
        session.written.append(&mut session.held);
    }

    fn end(&mut self, run: &RunId, ending: RunEnd, is_ok: bool) {
        let session = self.sessions.get_mut(run).expect("it lives");
        session.ended = Some((ending, is_ok));
        session.has_result |= is_ok;
    }

    /// What a runner does about senders that are dead, and about targets that are over.
    fn sweep(&mut self) -> Result<(), String> {
        let rows = self.store.view().load(&[Key::UnsettledDeliveries { limit: 10 }].into()).map_err(|error| error.to_string())?;
        let probes: Vec<_> = self.dead.iter().map(|process| (process.clone(), Liveness::Dead)).collect();
        let is_left = self.mutation == Some(MailMutation::LeavesLock);
        for delivery in rows.deliveries.values().filter(|_| !is_left) {
            let (id, target, seen) =
                (delivery.id.clone(), delivery.target.clone(), Seen { probes: probes.clone(), ..Seen::default() });
            let request = MailboxRequest::Abandon { id, target, seen };
            self.call(request.into())?;
        }
        for delivery in rows.deliveries.values() {
            let started = delivery.dispatch.as_ref().filter(|dispatch| dispatch.plan == Plan::Spawn);
            if let Some(run) = started.map(|dispatch| dispatch.run.clone()) {
                let (id, target) = (delivery.id.clone(), delivery.target.clone());
                self.mailbox(MailboxRequest::Unobserved { id, target, run })?;
            }
        }
        self.check_asked()?;
        for target in rows.over_targets {
            self.mailbox(MailboxRequest::Return { target })?;
        }
        Ok(())
    }

    /// A start that nobody has observed for long has a decision.
    fn check_asked(&mut self) -> Result<(), String> {
        let keys = [Key::UnsettledDeliveries { limit: 10 }, Key::OpenDecisions, Key::Live].into();
        let rows = self.store.view().load(&keys).map_err(|error| error.to_string())?;
        for delivery in rows.deliveries.values() {
            let Some(dispatch) = delivery.dispatch.as_ref().filter(|dispatch| dispatch.plan == Plan::Spawn) else { continue };
            let is_asked = rows.backlog.decisions.values().any(|decision| match &decision.question.about {
                About::Run { run, .. } => *run == dispatch.run,
                _ => false,
            });
            let is_overdue = rows.lease >= dispatch.began.lease + OBSERVE_WITHIN;
            self.tally.asked += usize::from(is_asked);
            if is_overdue != is_asked {
                return Err(format!("nobody is asked about {}", delivery.id));
            }
        }
        Ok(())
    }

    fn deliveries(&mut self) -> Result<Vec<Delivery>, String> {
        self.store.view().deliveries(banksman_core::Seq(0), 10_000).map_err(|error| error.to_string())
    }

    /// What must be true after every step.
    fn check(&mut self) -> Result<(), String> {
        for session in self.sessions.values() {
            let mut seen = session.seen.clone();
            seen.sort();
            if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("run {} has seen {} twice", session.work.run.id, pair[0]));
            }
        }
        let deliveries = self.deliveries()?;
        for delivery in &deliveries {
            delivery.check();
            if let State::Fetched { run, way: Way::Written, .. } = &delivery.state
                && !self.sessions.get(run).is_some_and(|session| session.seen.contains(&delivery.id))
            {
                return Err(format!("{} is reported as delivered, and {run} has not got it", delivery.id));
            }
        }
        self.check_locks(&deliveries)
    }

    /// Every lock of a dispatch belongs to a delivery that somebody settles: a sender, or the run that was started with it.
    fn check_locks(&mut self, deliveries: &[Delivery]) -> Result<(), String> {
        let keys = self.targets.iter().map(|target| Key::Lock(target.dispatch_lock())).collect();
        let rows = self.store.view().load(&keys).map_err(|error| error.to_string())?;
        for lock in rows.coordination.locks.values() {
            let lock::State::Held(grant) = &lock.state else { continue };
            let is_its = |delivery: &&Delivery| {
                delivery.claim().is_some_and(|claim| claim.lock == lock.name && claim.epoch == grant.epoch)
            };
            let Some(dispatch) = deliveries.iter().find(is_its).and_then(|delivery| delivery.dispatch.as_ref()) else {
                return Err(format!("{} is held by no dispatch", lock.name));
            };
            let is_run_live = self.sessions.get(&dispatch.run).is_none_or(|session| session.work.run.ended.is_none());
            if dispatch.plan == Plan::Spawn && !is_run_live {
                return Err(format!("{} is held for a start whose run is over", lock.name));
            }
        }
        Ok(())
    }

    /// Whether all tasks are over, and nothing is under way.
    fn is_over(&mut self) -> Result<bool, String> {
        for id in self.targets.clone() {
            if !self.status(&id)?.is_over() {
                return Ok(false);
            }
        }
        let is_idle = self.senders.iter().all(|sender| matches!(sender.stage, Stage::Idle));
        let keys = [Key::UnsettledDeliveries { limit: 10 }].into();
        let rows = self.store.view().load(&keys).map_err(|error| error.to_string())?;
        let is_left = !rows.over_targets.is_empty() || !rows.deliveries.is_empty();
        // What nobody looks after is never settled.
        let is_left = is_left && self.mutation != Some(MailMutation::LeavesLock);
        Ok(is_idle && !is_left)
    }

    /// What must be true in the end: every message has an end, and it is a true one.
    fn check_ends(&mut self) -> Result<(), String> {
        let deliveries = self.deliveries()?;
        if deliveries.len() != self.posted.len() {
            return Err(format!("{} messages were posted, and {} are there", self.posted.len(), deliveries.len()));
        }
        if let Some(held) = deliveries.iter().find(|delivery| delivery.claim().is_some()) {
            return Err(format!("nobody releases the lock of {}", held.id));
        }
        for delivery in &deliveries {
            let seen = self.sessions.values().filter(|session| session.seen.contains(&delivery.id)).count();
            self.tally.redelivered += usize::from(seen > 1);
            let status = self.status(&delivery.target)?;
            // What the keeper of the last run has told of is known.
            let is_told = delivery
                .run()
                .and_then(|run| self.sessions.get(run))
                .is_some_and(|session| session.written.contains(&delivery.id));
            let is_acknowledged = delivery.run().and_then(|run| self.sessions.get(run)).is_some_and(|session| {
                session.acknowledged.contains(&delivery.id) || session.has_result && session.seen.contains(&delivery.id)
            });
            let run = delivery.run().map(|run| Key::Run(run.clone())).into_iter().collect();
            let rows = self.store.view().load(&run).map_err(|error| error.to_string())?;
            let has_ended_well = rows.backlog.runs.values().any(Run::has_ended_well);
            match delivery.receipt(Some(status), has_ended_well) {
                Receipt::Undelivered if is_told && status == Status::Completed => {
                    return Err(format!(
                        "{} was written into the session that completed its task, and counts as undelivered",
                        delivery.id
                    ));
                }
                Receipt::Read if seen == 0 => {
                    return Err(format!("{} is lost: nobody has seen it, and it counts as read", delivery.id));
                }
                Receipt::Read if !is_acknowledged => {
                    return Err(format!("{} counts as read, and the run that had it has not said so", delivery.id));
                }
                Receipt::Read => self.tally.read += 1,
                Receipt::Undelivered => self.tally.undelivered += 1,
                Receipt::Unknown => self.tally.unknown += 1,
                other => return Err(format!("{} is still {}", delivery.id, other.as_str())),
            }
        }
        Ok(())
    }
}
