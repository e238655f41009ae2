//! Limits of accounts: runners with the real engine and store, accounts that are limited again and again, runners that
//! are killed, sessions that crash, and tasks that are cancelled.
//!
//! The provider is a model: an account is limited at some times, and reports until when. The checkers know nothing of
//! the state machine: they know which limit a committed end has reported, which run has probed it since, and which
//! answer was committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use banksman_core::agent::{AgentChoice, AgentEnd, AgentVerdict, AgentWork, Limit, Usage};
use banksman_core::backlog::{RunEndRecord, Runner, Session};
use banksman_core::resource::grant::Address;
use banksman_core::task::{OnExhausted, RunEnd, Spec, Watch, Work as What};
use banksman_core::{Lease, Liveness, Name, ProcessId, RunId, RunnerId, Span, Stamp, TaskId, Title, Wall};
use banksman_engine::{
    AccountOutcome, AccountRequest, Dispatcher, Options, Reply, Request, RunOutcome, RunRequest, RunnerAction, RunnerInput,
    TaskRequest, Work,
};
use banksman_store::{Call, Key, Machine, Tables, Tx};

use crate::clock::Ms;
use crate::ground::{Ground, history};
use crate::mutation::QuotaMutation;

/// How many runners, accounts and tasks there are.
const RUNNERS: usize = 3;
const ACCOUNTS: [&str; 2] = ["claude", "codex"];
const TASKS: usize = 16;

/// How many steps are taken with faults, and how many without faults must be enough to finish.
const STEPS: usize = 600;
const QUIESCE_STEPS: usize = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaTally {
    /// How many runs were started.
    pub runs: usize,
    /// How many of them have probed whether a limit is over.
    pub probes: usize,
    /// How many runners were killed.
    pub killed: usize,
}

/// A request, as a mutation decides it.
struct Mutated(Request, Option<QuotaMutation>);

struct Actor {
    dispatcher: Dispatcher,
    id: RunnerId,
    process: ProcessId,
    sleeps_until: Option<Ms>,
    is_woken: bool,
}

/// A session of an agent.
struct Played {
    account: Name,
    owner: RunnerId,
    answers_at: Option<Ms>,
    ends_at: Ms,
    end: RunEndRecord,
    is_answer_reported: bool,
    is_end_reported: bool,
}

/// The known limit of an account, from committed calls.
struct KnownLimit {
    until: Ms,
    /// The run that has probed it since.
    probe: Option<RunId>,
}

struct World<'g> {
    ground: &'g mut Ground,
    mutation: Option<QuotaMutation>,
    actors: Vec<Actor>,
    dead: BTreeSet<ProcessId>,
    sessions: BTreeMap<RunId, Played>,
    limits: BTreeMap<Name, KnownLimit>,
    runs: u64,
    tally: QuotaTally,
}

/// Runs the history of one seed. Returns the violation of a rule, if there is one.
pub fn quota_history(seed: u64, mutation: Option<QuotaMutation>) -> Result<QuotaTally, String> {
    history(seed, 0xacc0 << 16, |ground| {
        let (actors, dead, sessions, limits) = (Vec::new(), BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        World { ground, mutation, actors, dead, sessions, limits, runs: 0, tally: QuotaTally::default() }.run()
    })
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

impl Call for Mutated {
    type Reply = Reply;

    fn keys(&self) -> Vec<Key> {
        self.0.keys()
    }

    fn follow(&self, loaded: &Tables) -> Vec<Key> {
        self.0.follow(loaded)
    }

    fn decide(&self, tx: &mut Tx) -> Reply {
        use banksman_core::agent::limit::State;
        let hides = match (self.1, &self.0) {
            (Some(QuotaMutation::StartsAnyway), Request::Run(RunRequest::Claim(_))) => true,
            (Some(QuotaMutation::ForgetsProbe), Request::Run(RunRequest::Finish { .. })) => true,
            (Some(QuotaMutation::TriesTwice), Request::Run(RunRequest::Claim(_))) => {
                tx.tables.backlog.account_limits.values().any(|limit| matches!(limit.state, State::Probing { .. }))
            }
            _ => false,
        };
        let kept = if hides { std::mem::take(&mut tx.tables.backlog.account_limits) } else { BTreeMap::new() };
        let reply = self.0.decide(tx);
        for (name, limit) in kept {
            tx.tables.backlog.account_limits.entry(name).or_insert(limit);
        }
        reply
    }

    fn settle(tx: &mut Tx) {
        Request::settle(tx);
    }
}

impl World<'_> {
    fn run(&mut self) -> Result<QuotaTally, String> {
        for number in 0..TASKS {
            let account: &&str = self.ground.random.pick(&ACCOUNTS);
            let account = name(account);
            let choice = AgentChoice { agent: account.clone(), account, model: None };
            let work = AgentWork { agents: vec![choice], ..AgentWork::default() };
            let title = Title::new("a task").expect("a good title");
            let spec = Spec { work: Some(What::Agent(Arc::new(work))), retries: 20, ..Spec::new(title) };
            let id = TaskId::new(&format!("t{number}")).expect("a good id");
            self.commit(vec![Request::Task(TaskRequest::Add { id, spec: Box::new(spec), depends_on: Vec::new(), by: None })])?;
        }
        for step in 0..STEPS + QUIESCE_STEPS {
            self.ground.is_quiescing = step >= STEPS;
            while self.actors.len() < RUNNERS {
                let actor = self.newborn();
                self.actors.push(actor);
            }
            if !self.ground.is_quiescing {
                self.disturb()?;
            }
            if self.ground.is_quiescing && self.is_over()? {
                return Ok(self.tally);
            }
            if !self.act()? && !self.advance() {
                break;
            }
        }
        Err(format!("tasks wait for ever: {:?}", self.waiting()?))
    }

    /// Injects a fault.
    fn disturb(&mut self) -> Result<(), String> {
        if self.ground.random.in_thousand(15) {
            let slot = self.ground.random.below(self.actors.len());
            let actor = self.actors.remove(slot);
            self.dead.insert(actor.process);
            self.tally.killed += 1;
        }
        if self.ground.random.in_thousand(3) {
            let id = TaskId::new(&format!("t{}", self.ground.random.below(TASKS))).expect("a good id");
            self.commit(vec![Request::Task(TaskRequest::Cancel { id })])?;
        }
        Ok(())
    }

    fn newborn(&mut self) -> Actor {
        let process = self.ground.newborn();
        let id = RunnerId::new(&format!("m{}", process.pid)).expect("a good id");
        let max_runs = Some(1 + u32::try_from(self.ground.random.below(3)).expect("small"));
        let address = Address(id.as_str().into());
        let row = Runner { max_runs, ..Runner::new(id.clone(), process.clone(), address, Stamp::default()) };
        let watch = Watch { timeout: Span::from_secs(3_600), max_recoveries: 1_000, on_exhausted: OnExhausted::Escalate };
        let options = Options { max_runs, kill_patience: Span::from_secs(3), ..Options::new(watch) };
        Actor { dispatcher: Dispatcher::new(row, options), id, process, sleeps_until: None, is_woken: false }
    }

    /// Drives one actor, if any is ready.
    fn act(&mut self) -> Result<bool, String> {
        let now = self.ground.clock.now();
        let ready = |actor: &Actor| actor.is_woken || actor.sleeps_until.is_none_or(|until| until <= now);
        let ready: Vec<usize> = (0..self.actors.len()).filter(|slot| ready(&self.actors[*slot])).collect();
        self.report_sessions(now);
        let spoken: Vec<usize> = (0..self.actors.len()).filter(|slot| self.actors[*slot].is_woken).collect();
        let all: Vec<usize> = ready.into_iter().chain(spoken).collect();
        if all.is_empty() {
            return Ok(false);
        }
        let slot = *self.ground.random.pick(&all);
        self.drive(slot)?;
        Ok(true)
    }

    /// Advances time to the next moment at which something happens.
    fn advance(&mut self) -> bool {
        let now = self.ground.clock.now();
        let sleeps = self.actors.iter().filter_map(|actor| actor.sleeps_until);
        let sessions = self.sessions.values().flat_map(|played| {
            let answer = played.answers_at.filter(|_| !played.is_answer_reported);
            answer.into_iter().chain((!played.is_end_reported).then_some(played.ends_at))
        });
        let next = sleeps.chain(sessions).filter(|at| *at > now).min();
        next.inspect(|at| self.ground.clock.advance(at - now)).is_some()
    }

    /// The keepers report to the owners of their sessions.
    fn report_sessions(&mut self, now: Ms) {
        let World { sessions, actors, ground, .. } = self;
        let lease = Lease(ground.clock.monotonic());
        for (run, played) in sessions.iter_mut() {
            let Some(actor) = actors.iter_mut().find(|actor| actor.id == played.owner) else { continue };
            if !played.is_answer_reported && played.answers_at.is_some_and(|at| at <= now) {
                played.is_answer_reported = true;
                actor.dispatcher.on(RunnerInput::Answered(run.clone()), lease);
                actor.is_woken = true;
            }
            if !played.is_end_reported && played.ends_at <= now {
                played.is_end_reported = true;
                actor.dispatcher.on(RunnerInput::Ended(run.clone(), played.end.clone()), lease);
                actor.is_woken = true;
            }
        }
    }

    fn drive(&mut self, slot: usize) -> Result<(), String> {
        let lease = Lease(self.ground.clock.monotonic());
        let (woken, runs) = (std::mem::take(&mut self.actors[slot].is_woken), &mut self.runs);
        let actor = &mut self.actors[slot];
        if actor.sleeps_until.take().is_some() && woken {
            actor.dispatcher.on(RunnerInput::Woken, lease);
        }
        actor.dispatcher.give_ids(|| {
            *runs += 1;
            RunId::new(&format!("r{runs}")).expect("a good id")
        });
        match actor.dispatcher.next(lease) {
            RunnerAction::Load(keys) => {
                let rows = self.ground.load(keys)?;
                actor.dispatcher.on(RunnerInput::Rows(Box::new(rows)), lease);
            }
            RunnerAction::Probe(processes) => {
                let probe = |process: ProcessId| {
                    let is_dead = self.dead.contains(&process);
                    (process, if is_dead { Liveness::Dead } else { Liveness::Alive })
                };
                let found = processes.into_iter().map(probe).collect();
                actor.dispatcher.on(RunnerInput::Probed(found), lease);
            }
            RunnerAction::Call(requests) => {
                let replies = self.commit(requests)?;
                self.actors[slot].dispatcher.on(RunnerInput::Replies(replies), lease);
            }
            RunnerAction::Spawn(work) => self.spawn(slot, &work, lease),
            RunnerAction::Recover(work) => self.recover(slot, &work, lease),
            RunnerAction::Kill(run, _) => {
                let now = self.ground.clock.now();
                if let Some(played) = self.sessions.get_mut(&run).filter(|played| played.ends_at > now) {
                    (played.ends_at, played.answers_at) = (now, None);
                    played.end = RunEndRecord::new(RunEnd::Signalled(15), Wall(0), None);
                }
            }
            RunnerAction::Notify(command, _) | RunnerAction::Nudge(_, command) | RunnerAction::Deliver(.., command) => {
                actor.dispatcher.on(RunnerInput::CommandDone(command, Ok(())), lease);
            }
            RunnerAction::Check(tasks) => {
                let found = tasks.into_iter().map(|task| (task, Default::default())).collect();
                actor.dispatcher.on(RunnerInput::Checked(found), lease);
            }
            RunnerAction::Sleep { at_most, .. } => actor.sleeps_until = Some(self.ground.clock.now() + at_most.as_ms()),
            RunnerAction::Acknowledge(_) | RunnerAction::Forget(_) | RunnerAction::Pulse(..) => {}
            other => return Err(format!("a runner wants {other:?}")),
        }
        Ok(())
    }

    /// Begins the session of a run: its account is limited now, or the model answers.
    fn spawn(&mut self, slot: usize, work: &Work, lease: Lease) {
        let now = self.ground.clock.now();
        let Some(What::Agent(agents)) = &work.task.spec.work else { unreachable!("all tasks are for agents") };
        let account = agents.agents[0].account.clone();
        let limited = self.limited_until(&account, now);
        let takes = self.ground.random.between(200, 20_000);
        let wall = self.ground.clock.read().wall_ms;
        let verdict = match limited {
            Some(until) => {
                AgentVerdict::Quota(Limit { kind: "five_hour".into(), model: None, resets: Some(Wall(wall + until - now)) })
            }
            None if self.ground.random.in_thousand(120) => AgentVerdict::Crashed,
            None => AgentVerdict::Ok,
        };
        let answers_at = (verdict == AgentVerdict::Ok).then(|| now + self.ground.random.between(50, takes));
        let ends_at = if limited.is_some() { now + self.ground.random.between(10, 500) } else { now + takes };
        let end = AgentEnd {
            agent: account.clone(),
            verdict,
            text: "".into(),
            session: Some("s".into()),
            model: None,
            key_source: None,
            turns: 1,
            answers: u32::from(answers_at.is_some()),
            usage: Usage::default(),
            cost_micros: None,
        };
        let end = RunEndRecord { agent: Some(Box::new(end)), ..RunEndRecord::new(RunEnd::Exited(1), Wall(wall), None) };
        let owner = self.actors[slot].id.clone();
        let (is_answer_reported, is_end_reported) = (false, false);
        let played = Played { account, owner, answers_at, ends_at, end, is_answer_reported, is_end_reported };
        self.sessions.insert(work.run.id.clone(), played);
        let session = Session { keeper: 1, child: 2 };
        self.actors[slot].dispatcher.on(RunnerInput::Started(work.run.id.clone(), session), lease);
    }

    /// A runner adopts the session of another: its keeper repeats all reports to the new owner.
    fn recover(&mut self, slot: usize, work: &Work, lease: Lease) {
        let id = self.actors[slot].id.clone();
        match self.sessions.get_mut(&work.run.id) {
            Some(played) => (played.owner, played.is_answer_reported, played.is_end_reported) = (id, false, false),
            None => {
                let lost = RunEndRecord::new(RunEnd::Lost, Wall(0), None);
                self.actors[slot].dispatcher.on(RunnerInput::Ended(work.run.id.clone(), lost), lease);
            }
        }
    }

    /// Until when an account is limited: three of every ten minutes, and not the same ones for both accounts.
    fn limited_until(&self, account: &Name, now: Ms) -> Option<Ms> {
        const PERIOD: Ms = 600_000;
        let at = now + if account.as_str() == ACCOUNTS[0] { 0 } else { PERIOD / 2 };
        let of_period = at % PERIOD;
        (of_period < PERIOD * 3 / 10).then(|| now + PERIOD * 3 / 10 - of_period)
    }

    /// Commits a batch, wakes the waiters that it wakes, and checks its results.
    fn commit(&mut self, requests: Vec<Request>) -> Result<Vec<Reply>, String> {
        let calls: Vec<Mutated> = requests.iter().map(|request| Mutated(request.clone(), self.mutation)).collect();
        let mut replies = Vec::new();
        for committed in self.ground.store.batch(&calls) {
            let committed = committed.map_err(|error| error.to_string())?;
            for address in &committed.wakes {
                let woken = self.actors.iter_mut().find(|actor| *actor.id.as_str() == *address.0);
                woken.into_iter().for_each(|actor| actor.is_woken = true);
            }
            replies.extend(committed.replies);
        }
        for (request, reply) in requests.iter().zip(&replies) {
            self.check(request, reply)?;
        }
        Ok(replies)
    }

    fn check(&mut self, request: &Request, reply: &Reply) -> Result<(), String> {
        let now = self.ground.clock.now();
        match (request, reply) {
            (Request::Run(RunRequest::Claim(_)), Reply::Run(RunOutcome::Claimed(claimed))) => {
                for work in &claimed.started {
                    let Some(What::Agent(agents)) = &work.task.spec.work else { continue };
                    let account = &agents.agents[0].account;
                    self.tally.runs += 1;
                    let Some(limit) = self.limits.get_mut(account) else { continue };
                    if now < limit.until {
                        return Err(format!("{} starts while {account} is limited for {} ms", work.run.id, limit.until - now));
                    }
                    if let Some(other) = &limit.probe {
                        return Err(format!("{} starts while {other} tries the limit of {account}", work.run.id));
                    }
                    limit.probe = Some(work.run.id.clone());
                    self.tally.probes += 1;
                }
            }
            (Request::Account(AccountRequest::Answered { run, .. }), Reply::Account(AccountOutcome::Done)) => self.over(run),
            (Request::Run(RunRequest::Finish { what, ending, .. }), Reply::Run(RunOutcome::Finished(..))) => {
                self.ended(&what.run.id, ending, now);
            }
            _ => {}
        }
        Ok(())
    }

    /// The model has answered a run, so the limit that it probed is over.
    fn over(&mut self, run: &RunId) {
        self.limits.retain(|_, limit| limit.probe.as_ref() != Some(run));
    }

    fn ended(&mut self, run: &RunId, ending: &RunEndRecord, now: Ms) {
        let Some(account) = self.sessions.remove(run).map(|played| played.account) else { return };
        let wall = self.ground.clock.read().wall_ms;
        match ending.agent.as_deref().map(|end| (&end.verdict, end.is_answered())) {
            Some((AgentVerdict::Quota(Limit { resets: Some(resets), .. }), _)) if resets.0 > wall => {
                let until = now + resets.0 - wall;
                let limit = self.limits.entry(account).or_insert(KnownLimit { until, probe: None });
                // While a run probes it, only that run can change its end.
                if limit.probe.as_ref().is_none_or(|probe| probe == run) {
                    *limit = KnownLimit { until: until.max(limit.until), probe: None };
                }
            }
            Some((_, true)) => self.over(run),
            _ => {
                let tried = self.limits.values_mut().filter(|limit| limit.probe.as_ref() == Some(run));
                tried.for_each(|limit| limit.probe = None);
            }
        }
    }

    fn waiting(&mut self) -> Result<Vec<(TaskId, String)>, String> {
        let rows = self.ground.everything()?.tables.backlog;
        let open = rows.tasks.values().filter(|task| !task.status().is_over());
        Ok(open.map(|task| (task.id.clone(), format!("{:?}", task.state))).collect())
    }

    /// Whether all tasks are over; then the event log must agree with the tables.
    fn is_over(&mut self) -> Result<bool, String> {
        if !self.waiting()?.is_empty() {
            return Ok(false);
        }
        self.ground.compare_with_log().map(|()| true)
    }
}
