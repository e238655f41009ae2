//! Why a task is where it is: the answer to people, from the same facts and the same decision as a claim.
//!
//! A task starts when a living runner may take it: one that works in its section, has room, and is admitted. So
//! admission is asked for every living runner; what stands in the way of all of them is a cause, and if each has
//! an obstacle of its own, that is one too. What is waited for is followed to the task at which it begins.
//!
//! [`read`] reads the rows, [`processes`] names the processes to look at; [`Situation::why`] answers.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::{Backlog, Run, Runner};
use banksman_core::event::{Kind, Resource};
use banksman_core::guard::{Guard, GuardInputs, GuardResult, Issue, IssueFilter};
use banksman_core::landing::Entry;
use banksman_core::mailbox::Delivery;
use banksman_core::pipeline::plan::Context;
use banksman_core::pipeline::{self, Pipeline};
use banksman_core::queue::{self, Queues};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::{Grant, Waiter};
use banksman_core::resource::lock;
use banksman_core::task::admission::{Admission, Holding, Reason};
use banksman_core::task::roots;
use banksman_core::task::{Live, OfItem, RetryReason, RunEnd, Spec, State};
use banksman_core::worker::Workers;
use banksman_core::{Liveness, MessageId, Name, Now, ProcessId, RunId, RunnerId, Status, Task, TaskId, Title};
use banksman_store::{Snapshot, Tables};

use crate::calls::landings::landing_queue;
use crate::calls::pipelines::guards::know;
use crate::calls::steps::family;
use crate::facts;
use crate::why::chains::{Stop, chains, unmet};

mod answer;
mod chains;
mod reading;

pub use answer::{
    Answer, Attended, Cause, Chain, ChainEnd, Holder, ItemFuture, LandingPlace, Life, Link, Obstacle, Phases, Unanswered, Why,
};
pub use reading::{Rows, lane_keys, read};

/// The guard that holds a pipeline up, if the store alone can tell what it says, and the variables that it is asked with.
fn asked(pipeline: &Pipeline) -> Option<(&Guard, &Context)> {
    let pipeline::State::Blocked { reason: pipeline::Reason::Guard { guard, .. }, .. } = &pipeline.state else { return None };
    let asked = pipeline.guards().iter().find(|asked| asked.name == *guard)?;
    (!asked.wants(&pipeline.context).asks_outside()).then_some((asked, &pipeline.context))
}

/// The tasks that are asked about by guards that hold something up.
pub fn issues(known: &Backlog) -> BTreeSet<IssueFilter> {
    let asked = known.pipelines.values().filter_map(asked);
    asked.flat_map(|(guard, vars)| guard.wants(vars).issues).collect()
}

/// Whether a task is pending, for a runner to do, and held back by no other task.
pub fn is_ready(task: &Task, backlog: &Backlog) -> bool {
    task.state == State::Pending && task.spec.work.is_some() && unmet(task, backlog).next().is_none()
}

/// The processes that must be looked at before the answer.
pub fn processes(snapshot: &Snapshot) -> BTreeSet<ProcessId> {
    let runners = snapshot.backlog.runners.values().map(|runner| &runner.process);
    runners.chain(facts::processes(&snapshot.coordination)).cloned().collect()
}

/// Rows of one moment, with what is known of processes.
#[derive(Debug)]
pub struct Situation<'a> {
    backlog: &'a Backlog,
    coordination: &'a Coordination,
    queues: &'a Queues,
    workers: &'a Workers,
    deliveries: &'a BTreeMap<MessageId, Delivery>,
    fan_out: Option<&'a TaskId>,
    probes: &'a BTreeMap<ProcessId, Liveness>,
    issues: BTreeMap<IssueFilter, Vec<Issue>>,
    now: Now,
}

impl<'a> Situation<'a> {
    /// What was read, and what a look at [`processes`] has found.
    pub fn new(snapshot: &'a Snapshot, probes: &'a BTreeMap<ProcessId, Liveness>) -> Situation<'a> {
        let dead = probes.iter().filter(|(_, liveness)| matches!(liveness, Liveness::Dead | Liveness::OtherBoot));
        let dead = dead.map(|(process, _)| process.clone()).collect();
        let now = Now { lease: snapshot.lease, wall: snapshot.wall, dead, ..Now::default() };
        let Tables { backlog, coordination, queues, automation, deliveries, fan_out, .. } = &snapshot.tables;
        let (issues, workers, fan_out) = (BTreeMap::new(), &automation.workers, fan_out.as_ref());
        Situation { backlog, coordination, queues, workers, deliveries, fan_out, probes, issues, now }
    }

    /// The tasks that [`issues`] asks about.
    pub fn issues(self, issues: BTreeMap<IssueFilter, Vec<Issue>>) -> Situation<'a> {
        Situation { issues, ..self }
    }

    /// Why the task is where it is. `before` has the ready tasks that come before it, by lane, each with an example whose
    /// rows were read; it may be empty if there are none.
    pub fn why(&self, id: &TaskId, before: &[(TaskId, u64)]) -> Option<Why> {
        let task = self.backlog.tasks.get(id)?;
        let answer = self.answer(task, before);
        let held_back =
            matches!(&answer, Answer::Waits(causes) if causes.iter().any(|cause| matches!(cause, Cause::Dependency(_))));
        let status = if held_back { Status::Blocked } else { task.status() };
        let item_future = task.spec.item.as_ref().map(|of| self.item_future(of));
        let has_runner = self.workers().next().is_some();
        let unmet = unmet(task, self.backlog).count();
        let unanswered = self.coordination.claims.values().filter(|claim| claim.task.as_ref() == Some(&task.id));
        let unanswered = unanswered.filter_map(|claim| {
            let since = claim.unanswered(&self.now).filter(|_| !claim.is_over(&self.now))?;
            Some(Unanswered { holder: claim.holder.clone(), pid: claim.waits()?.standing.process.pid, since })
        });
        let unanswered = unanswered.collect();
        Some(Why { task: task.clone(), status, at: self.now.stamp(), answer, item_future, has_runner, unmet, unanswered })
    }

    /// What becomes of the item that a task is an attempt at.
    fn item_future(&self, of: &OfItem) -> ItemFuture {
        let Some(item) = self.queues.items.get(&of.taken.item) else { return ItemFuture::Gone };
        match (&item.state, &item.origin) {
            (queue::State::Processing(taken), _) if taken.epoch == of.taken.epoch => ItemFuture::Open,
            (queue::State::Processing(taken), _) => {
                let jobs = self.workers.workers.get(&of.worker).into_iter().flat_map(|worker| &worker.jobs);
                let task = jobs.filter(|(_, job)| job.epoch == taken.epoch).map(|(task, _)| task.clone()).next();
                ItemFuture::Again { holder: taken.holder.clone(), task }
            }
            (queue::State::Dead { reason, .. }, _) => ItemFuture::Dead { queue: item.queue.clone(), reason: reason.clone() },
            (_, Some(origin)) => ItemFuture::Dead { queue: item.queue.clone(), reason: origin.reason.clone() },
            (queue::State::Pending { .. } | queue::State::Failed { .. } | queue::State::Completed, None) => ItemFuture::Waits,
        }
    }

    /// The moment, with the processes that are dead.
    pub fn now(&self) -> &Now {
        &self.now
    }

    /// Whether a runner lives.
    pub fn life(&self, runner: &RunnerId) -> Life {
        let Some(row) = self.backlog.runners.get(runner) else { return Life::Gone };
        match self.probes.get(&row.process) {
            Some(Liveness::Dead | Liveness::OtherBoot) => Life::Gone,
            // It breaks its promise to be heard of, so others go by that.
            _ if row.is_silent(&self.now) => Life::Gone,
            Some(Liveness::Alive) => Life::Alive,
            Some(Liveness::Unknown) | None if row.terms.is_some() => Life::Alive,
            Some(Liveness::Unknown) | None => Life::Unknown,
        }
    }

    /// The runners that are not gone and take tasks.
    pub fn workers(&self) -> impl Iterator<Item = &'a Runner> {
        let takes_tasks = |runner: &&Runner| runner.max_runs != Some(0) && self.life(&runner.id) != Life::Gone;
        self.backlog.runners.values().filter(takes_tasks)
    }

    /// A live run, and who looks after it.
    pub fn attended(&self, run: &Run) -> Attended {
        let life = self.life(&run.owner);
        let heir = self.workers().find(|runner| run.is_within_reach_of(runner)).map(|runner| runner.id.clone());
        Attended {
            id: run.id.clone(),
            attempt: run.attempt,
            started: run.started,
            session: run.session.clone(),
            owner: run.owner.clone(),
            life,
            heir: heir.filter(|_| life == Life::Gone),
            asked: crate::calls::runs::end::open_question(&run.id, self.backlog),
            prompted: self.deliveries.values().find(|delivery| delivery.is_in_prompt_of(&run.id)).map(|found| found.id.clone()),
            // It is outside; whoever can asks.
            silence: None,
            ended: None,
        }
    }

    /// How many ready tasks wait for nothing but room. They are given by lane, each with an example whose rows were read.
    pub fn queued(&self, lanes: &[(TaskId, u64)]) -> u64 {
        if self.workers().next().is_none() {
            return 0;
        }
        self.count(lanes, |task| self.is_queued(task))
    }

    /// How many of these ready tasks, by lane, are so; each lane is checked by its example.
    fn count(&self, lanes: &[(TaskId, u64)], is_so: impl Fn(&Task) -> bool) -> u64 {
        // What waits for a lock or a semaphore is not in a lane any more, so that the example counts without what it needs itself.
        let is_counted = |(example, _): &&(TaskId, u64)| {
            let task = self.backlog.tasks.get(example).filter(|task| is_ready(task, self.backlog));
            task.is_some_and(|task| is_so(&Task { spec: Spec { needs: Vec::new(), ..task.spec.clone() }, ..task.clone() }))
        };
        lanes.iter().filter(is_counted).map(|(_, count)| count).sum()
    }

    /// Whether a ready task waits for nothing but room, or a runner.
    fn is_queued(&self, task: &Task) -> bool {
        let causes = self.causes(task, &[]);
        !causes.is_empty() && causes.iter().all(|cause| cause.position().is_some())
    }

    /// How many of the ready tasks before one wait in the same queue.
    fn ahead(&self, before: &[(TaskId, u64)]) -> u64 {
        self.count(before, |task| self.is_queued(task))
    }

    /// The roots that are under way.
    pub fn roots(&self) -> impl Iterator<Item = &'a Task> {
        self.backlog.tasks.values().filter(|task| roots::is_under_way(task))
    }

    /// The places that are left go to the roots that came earlier, and would begin if there were room for a run.
    fn overtaken_by_roots(&self, task: &Task, runner: Option<&Runner>, before: &[(TaskId, u64)]) -> Option<Cause> {
        let limit = facts::root_limit(self.backlog);
        // People begin what they like.
        if limit == 0 || task.spec.work.is_none() || task.spec.parent.is_some() || roots::is_under_way(task) {
            return None;
        }
        let begins = |task: &Task| matches!(&self.reasons(task, runner)[..], [] | [Reason::NoSlot { .. }]);
        let earlier = self.count(before, begins);
        let roots: Vec<_> = self.roots().map(|root| (root.id.clone(), root.spec.title.clone(), root.changed)).collect();
        let is_full = roots.len() as u64 + earlier >= u64::from(limit);
        let ahead = || self.count(before, |task| begins(task) || self.is_queued(task));
        is_full.then(|| Cause::Roots { limit, roots, ahead: ahead() })
    }

    fn answer(&self, task: &Task, before: &[(TaskId, u64)]) -> Answer {
        let of = |live: &Live| {
            let run = self.backlog.runs.get(&live.run).map(|run| self.attended(run));
            run.expect("a live run is loaded with all others of them")
        };
        match &task.state {
            State::Pending | State::Backoff { .. } => {
                let causes = self.causes(task, before);
                match self.workers().find(|runner| self.obstacles(task, runner).is_empty()) {
                    Some(runner) if causes.is_empty() => Answer::Starting(runner.id.clone()),
                    _ => Answer::Waits(causes),
                }
            }
            State::Running(live) => Answer::Running { run: of(live), stuck: None },
            State::Stuck { live, detected, reason } => Answer::Running { run: of(live), stuck: Some((*detected, *reason)) },
            State::Stopping { live, since, then } => Answer::Stopping { run: of(live), since: *since, then: then.clone() },
            State::Awaiting { until, .. } => {
                let open = family(self.backlog, &task.id).into_iter().filter_map(|id| self.backlog.tasks.get(&id));
                let open = open.filter(|task| !task.status().is_over());
                let link = |task: &Task| Link {
                    id: task.id.clone(),
                    title: Some(task.spec.title.clone()),
                    status: Some(task.status()),
                    since: Some(task.changed),
                };
                Answer::Awaiting { children: open.map(link).collect(), until: *until }
            }
            State::AwaitingDecision { decision } => {
                let question = self.backlog.decisions.get(decision).map(|decision| decision.question.clone());
                Answer::AwaitingDecision { decision: decision.clone(), question }
            }
            State::Manual { holder, until, .. } => Answer::Manual { holder: holder.clone(), until: *until },
            State::Landing { .. } => Answer::Landing(Box::new(self.landing_place(&task.id))),
            State::Review => Answer::Review(self.last_landing(&task.id).filter(|entry| !entry.is_open()).cloned().map(Box::new)),
            State::InPhases { .. } => {
                let pipeline = self.backlog.pipelines.get(&task.id).expect("it is loaded with its task");
                let phase = pipeline.task().and_then(|phase| self.backlog.tasks.get(phase));
                let phase = phase.map(|phase| (phase.id.clone(), self.answer(phase, before)));
                let (guard, has_runner) = (self.guard(pipeline), self.workers().next().is_some());
                Answer::InPhases(Box::new(Phases { pipeline: pipeline.clone(), phase, guard, has_runner }))
            }
            // What keeps it keeps its pipeline.
            State::Held => {
                let parent = task.spec.parent.as_ref().and_then(|parent| self.backlog.pipelines.get(parent));
                let pipeline = parent.expect("it is loaded with the task of its phase");
                let (guard, has_runner) = (self.guard(pipeline), self.workers().next().is_some());
                Answer::InPhases(Box::new(Phases { pipeline: pipeline.clone(), phase: None, guard, has_runner }))
            }
            State::Done(done) => {
                let last =
                    self.backlog.runs.values().filter(|run| run.task == task.id).max_by_key(|run| (run.attempt, run.epoch));
                let pipeline = self.backlog.pipelines.get(&task.id).cloned().map(Box::new);
                Answer::Over { done: done.clone(), last: last.cloned().map(Box::new), pipeline }
            }
        }
    }

    /// What the guard that holds a pipeline up says now.
    fn guard(&self, pipeline: &Pipeline) -> Option<GuardResult> {
        let (guard, vars) = asked(pipeline)?;
        let wants = guard.wants(vars);
        // Why issues cannot be told stands in what the last look has found.
        if wants.issues.iter().any(|filter| !self.issues.contains_key(filter)) {
            return None;
        }
        let mut inputs = GuardInputs { vars: vars.clone(), issues: self.issues.clone(), ..GuardInputs::default() };
        know(Some(&pipeline.id), &wants, self.coordination, self.backlog, &self.now, &mut inputs);
        Some(guard.evaluate(&inputs))
    }

    /// All that must change before a pending task can start.
    fn causes(&self, task: &Task, before: &[(TaskId, u64)]) -> Vec<Cause> {
        let mut causes = Vec::new();
        let is_manual = task.spec.work.is_none();
        let runner = self.workers().next().filter(|_| !is_manual);
        for reason in self.reasons(task, runner) {
            match reason {
                Reason::NotPending(_) => {}
                Reason::NoWork => causes.push(Cause::Manual),
                Reason::Backoff { until } => {
                    causes.push(Cause::Backoff { until, not_begun: self.not_begun(task), agent: self.kept_from_working(task) });
                }
                Reason::Paused { pause, is_task } => causes.push(Cause::Paused { pause, is_task }),
                // It is asked why the task is parked, not why it is not started.
                Reason::Decision(_) => {}
                // Whether there is a place for it is asked below.
                Reason::NoRoot { .. } => {}
                // All of them are followed below.
                Reason::Dependency { .. } => {}
                // What keeps a runner out of a section differs from runner to runner. Without any, it is for whoever comes.
                Reason::Section { .. } | Reason::SectionBusy { .. } if runner.is_some() => {}
                // People need all that runs need, but for a run slot.
                Reason::NoSlot { .. } if is_manual => {}
                Reason::AccountLimit { agent, limit } => causes.push(Cause::AccountLimit { agent, limit }),
                Reason::SectionBusy { name, run, .. } => causes.extend(self.section_busy(name, &run)),
                Reason::TaskLock { .. }
                | Reason::Section { .. }
                | Reason::Lock { .. }
                | Reason::Slots { .. }
                | Reason::Undefined { .. }
                | Reason::Reserved { .. }
                | Reason::NoSlot { .. } => causes.push(self.taken(reason, before)),
            }
        }
        // Slots come last: they are what people can do least about.
        let is_slot = |cause: &Cause| matches!(cause, Cause::Taken { reason: Reason::NoSlot { .. }, .. });
        let at = causes.iter().position(is_slot).unwrap_or(causes.len());
        causes.splice(at..at, self.overtaken_by_roots(task, runner, before));
        let chains = chains(task, self.backlog);
        let dependencies = chains.into_iter().map(|(links, stop)| Cause::Dependency(self.chain(&links, stop)));
        let at = causes.iter().take_while(|cause| matches!(cause, Cause::Manual | Cause::Paused { .. })).count();
        causes.splice(at..at, dependencies);
        let edges = self.backlog.edges.get(&task.id).map_or(&[][..], Vec::as_slice);
        // It may be among those that have not learned of it yet.
        let ended = self.fan_out.filter(|ended| causes.is_empty() && edges.iter().any(|edge| edge.on == **ended));
        causes.extend(ended.map(|ended| Cause::PassedOn { task: ended.clone() }));
        causes.extend((!is_manual).then(|| self.no_runner(task, before)).flatten());
        causes
    }

    fn reasons(&self, task: &Task, runner: Option<&Runner>) -> Vec<Reason> {
        match facts::admit(task, runner.map(|runner| &runner.id), self.coordination, self.backlog, &self.now) {
            Admission::Run => Vec::new(),
            Admission::Blocked(reasons) => reasons,
        }
    }

    /// What keeps every runner from taking the task, each for itself.
    fn no_runner(&self, task: &Task, before: &[(TaskId, u64)]) -> Option<Cause> {
        let runners: Vec<_> = self.workers().map(|runner| (runner.id.clone(), self.obstacles(task, runner))).collect();
        if runners.is_empty() {
            return Some(Cause::NoRunner { ahead: self.ahead(before) });
        }
        let all = runners.iter().all(|(_, obstacles)| !obstacles.is_empty());
        let ahead = if all && answer::is_queue(&runners) { self.ahead(before) } else { 0 };
        all.then_some(Cause::NoRunnerFree { runners, ahead })
    }

    /// What keeps one runner from taking the task, whatever else stands in the way.
    fn obstacles(&self, task: &Task, runner: &Runner) -> Vec<Obstacle> {
        let mut obstacles = Vec::new();
        let sections = &runner.sections;
        if !sections.is_empty() && !task.spec.section.as_ref().is_some_and(|section| sections.contains(section)) {
            let named = sections.iter().filter_map(|id| self.backlog.sections.get(id));
            obstacles.push(Obstacle::OtherSections(named.map(|section| section.name.clone()).collect()));
        }
        // One that waits for others has given its slot back, and its place with it.
        let slots = self.coordination.semaphores.get(&Name::runs());
        let is_at_work = |run: &&Run| slots.is_none_or(|slots| slots.holders.contains_key(&run.id.holder()));
        let own = self.backlog.runs.values().filter(|run| run.is_live() && run.owner == runner.id);
        let runs = own.filter(is_at_work).count();
        if let Some(max) = runner.max_runs.filter(|max| u32::try_from(runs).is_ok_and(|runs| runs >= *max)) {
            obstacles.push(Obstacle::Full(max));
        }
        obstacles.extend(runner.shortage.clone().map(Obstacle::Short));
        for reason in self.reasons(task, Some(runner)) {
            let cause = match reason {
                Reason::SectionBusy { name, run, .. } => self.section_busy(name, &run),
                Reason::Section { .. } => Some(self.taken(reason, &[])),
                _ => None,
            };
            obstacles.extend(cause.map(|cause| Obstacle::Section(Box::new(cause))));
        }
        obstacles
    }

    fn last_landing(&self, id: &TaskId) -> Option<&Entry> {
        let own = self.backlog.landings.values().filter(|entry| entry.spec.task.as_ref() == Some(id));
        own.max_by_key(|entry| entry.id.seq())
    }

    fn landing_place(&self, id: &TaskId) -> LandingPlace {
        let has_runner = self.workers().next().is_some();
        let Some(entry) = self.last_landing(id) else {
            return LandingPlace { entry: None, paused: None, ahead: 0, author_before: None, uncheckable: None, has_runner };
        };
        let queue = landing_queue(&entry.target, self.backlog);
        let ahead = queue.ahead_of(&entry.id).unwrap_or(0);
        let author_before = queue.target.author_before(entry).cloned();
        let (entry, paused) = (Some(entry.clone()), queue.target.paused);
        LandingPlace { entry, paused, ahead, author_before, uncheckable: None, has_runner }
    }

    /// Why the last session of a task could not begin, if it could not.
    fn not_begun(&self, task: &Task) -> Option<Box<str>> {
        let last = self.backlog.runs.values().filter(|run| run.task == task.id).max_by_key(|run| run.epoch)?;
        match &last.ended.as_ref()?.ending {
            RunEnd::NotBegun { error, .. } => Some(error.clone()),
            _ => None,
        }
    }

    /// What kept the agent of the last run from working, if something did.
    fn kept_from_working(&self, task: &Task) -> Option<(Name, RetryReason, Box<str>)> {
        let last = self.backlog.runs.values().filter(|run| run.task == task.id).max_by_key(|run| run.epoch)?;
        let agent = last.ended.as_ref()?.agent.as_ref()?;
        Some((agent.agent.clone(), RetryReason::of_agent(&agent.verdict)?, agent.text.clone()))
    }

    fn section_busy(&self, name: Title, run: &RunId) -> Option<Cause> {
        let run = self.backlog.runs.get(run)?;
        Some(Cause::SectionBusy { name, run: self.attended(run), task: run.task.clone() })
    }

    fn taken(&self, reason: Reason, before: &[(TaskId, u64)]) -> Cause {
        let resource = reason.resource().expect("only what is taken comes here");
        let (grants, line) = self.grants(&resource);
        let holder = |holding: &Holding| {
            let grant = grants.iter().find(|grant| grant.claim.holder == holding.holder);
            self.holder(holding.clone(), grant.copied())
        };
        let holders = reason.holders().iter().map(holder).collect();
        let present = line.into_iter().filter(|waiter| !waiter.is_over(&self.now));
        let present = present.map(|waiter| (waiter.claim.holder.clone(), waiter.since));
        // What is freed is kept for these.
        let claims = self.coordination.reserving(&resource, &self.now);
        let claims = claims.filter_map(|claim| Some((claim.holder.clone(), claim.waits()?.since)));
        let line = present.chain(claims).collect();
        let ahead = if matches!(reason, Reason::NoSlot { .. }) { self.ahead(before) } else { 0 };
        Cause::Taken { reason, holders, line, ahead }
    }

    fn holder(&self, holding: Holding, grant: Option<&Grant>) -> Holder {
        let run = self.backlog.runs.values().find(|run| run.is_live() && run.id.holder() == holding.holder);
        let run = run.and_then(|run| {
            let task = self.backlog.tasks.get(&run.task)?;
            Some((self.attended(run), task.id.clone(), task.spec.title.clone()))
        });
        let pids = grant.map(|grant| grant.watch().iter().map(|process| process.pid).collect()).unwrap_or_default();
        Holder { pids, over: grant.and_then(|grant| grant.over(&self.now)), run, holding }
    }

    fn grants(&self, resource: &Resource) -> (Vec<&'a Grant>, Vec<&'a Waiter>) {
        match resource.kind {
            Kind::Lock => match self.coordination.locks.get(&resource.name) {
                None => (Vec::new(), Vec::new()),
                Some(lock) => {
                    let grant = match &lock.state {
                        lock::State::Held(grant) => Some(&**grant),
                        lock::State::Free => None,
                    };
                    (grant.into_iter().collect(), lock.waiters.iter().collect())
                }
            },
            Kind::Semaphore => match self.coordination.semaphores.get(&resource.name) {
                None => (Vec::new(), Vec::new()),
                Some(semaphore) => (semaphore.holders.values().collect(), semaphore.waiters.iter().collect()),
            },
        }
    }

    fn chain(&self, links: &[TaskId], stop: Stop) -> Chain {
        let end = match stop {
            Stop::Gone => ChainEnd::Gone,
            Stop::More => ChainEnd::More,
            Stop::Cycle(cycle) => ChainEnd::Cycle(cycle),
            Stop::Task => {
                let last = links.last().and_then(|id| self.backlog.tasks.get(id)).expect("a chain that ends with a task has it");
                ChainEnd::Because(Box::new(self.answer(last, &[])))
            }
        };
        Chain { links: links.iter().map(|id| self.link(id)).collect(), end }
    }

    fn link(&self, id: &TaskId) -> Link {
        let task = self.backlog.tasks.get(id);
        let status = |task: &Task| match task.status() {
            Status::Pending if unmet(task, self.backlog).next().is_some() => Status::Blocked,
            status => status,
        };
        Link {
            id: id.clone(),
            title: task.map(|task| task.spec.title.clone()),
            status: task.map(status),
            since: task.map(|task| task.changed),
        }
    }
}

#[cfg(test)]
mod tests;
