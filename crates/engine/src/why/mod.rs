//! Explains the state of a task to people, from the same facts and the same decision as a claim.
//!
//! A task starts when a living runner may take it: a runner that serves its section, has room, and is admitted. So admission is decided
//! for every living runner; an obstacle for all of them is a cause, and if each has an obstacle of its own, that is one too. Dependencies
//! are followed to the task that causes the wait.
//!
//! [`read`] reads the rows, [`processes`] names the processes to probe; [`Situation::why`] answers.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::{Backlog, Run, Runner};
use banksman_core::guard::{Guard, GuardInputs, GuardResult, Issue, IssueFilter};
use banksman_core::landing::Entry;
use banksman_core::mailbox::Delivery;
use banksman_core::pipeline::plan::Context;
use banksman_core::pipeline::{self, Pipeline};
use banksman_core::queue::{self, Queues};
use banksman_core::resource::coordination::Coordination;
use banksman_core::task::roots;
use banksman_core::task::{Live, OfItem, Spec, State};
use banksman_core::worker::Workers;
use banksman_core::{Liveness, MessageId, Now, ProcessId, RunnerId, Status, Task, TaskId};
use banksman_store::{Snapshot, Tables};

use crate::calls::landings::landing_queue;
use crate::calls::pipelines::guards::know;
use crate::calls::steps::descendants;
use crate::facts;
use crate::why::chains::unmet;

mod answer;
mod causes;
mod chains;
mod reading;

pub use answer::{
    Answer, Attended, Cause, Chain, ChainEnd, Holder, ItemFuture, LandingPlace, Life, Link, Obstacle, Phases, Unanswered, Why,
};
pub use reading::{Rows, lane_keys, read};

/// The guard that blocks a pipeline, with its variables, if the store alone has its inputs.
fn asked(pipeline: &Pipeline) -> Option<(&Guard, &Context)> {
    let pipeline::State::Blocked { reason: pipeline::Reason::Guard { guard, .. }, .. } = &pipeline.state else { return None };
    let asked = pipeline.guards().iter().find(|asked| asked.name == *guard)?;
    (!asked.wants(&pipeline.context).asks_outside()).then_some((asked, &pipeline.context))
}

/// The filters of the tasks that the blocking guards ask for.
pub fn issues(known: &Backlog) -> BTreeSet<IssueFilter> {
    let asked = known.pipelines.values().filter_map(asked);
    asked.flat_map(|(guard, vars)| guard.wants(vars).issues).collect()
}

/// Whether a task is pending, has work for a runner, and has no open dependency.
pub fn is_ready(task: &Task, backlog: &Backlog) -> bool {
    task.state == State::Pending && task.spec.work.is_some() && unmet(task, backlog).next().is_none()
}

/// The processes that must be probed before the answer.
pub fn processes(snapshot: &Snapshot) -> BTreeSet<ProcessId> {
    let runners = snapshot.backlog.runners.values().map(|runner| &runner.process);
    runners.chain(facts::processes(&snapshot.coordination)).cloned().collect()
}

/// Rows of one moment, with the results of probes.
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
    /// Combines the rows with the results of probing [`processes`].
    pub fn new(snapshot: &'a Snapshot, probes: &'a BTreeMap<ProcessId, Liveness>) -> Situation<'a> {
        let dead = probes.iter().filter(|(_, liveness)| matches!(liveness, Liveness::Dead | Liveness::OtherBoot));
        let dead = dead.map(|(process, _)| process.clone()).collect();
        let now = Now { lease: snapshot.lease, wall: snapshot.wall, dead, ..Now::default() };
        let Tables { backlog, coordination, queues, automation, deliveries, fan_out, .. } = &snapshot.tables;
        let (issues, workers, fan_out) = (BTreeMap::new(), &automation.workers, fan_out.as_ref());
        Situation { backlog, coordination, queues, workers, deliveries, fan_out, probes, issues, now }
    }

    /// Adds the tasks that match the filters of [`issues`].
    pub fn issues(self, issues: BTreeMap<IssueFilter, Vec<Issue>>) -> Situation<'a> {
        Situation { issues, ..self }
    }

    /// Explains the state of a task. `before` has the number of ready tasks that come before it, by lane, each with an example whose rows
    /// were read; it may be empty if there are none.
    pub fn why(&self, id: &TaskId, before: &[(TaskId, u64)]) -> Option<Why> {
        let task = self.backlog.tasks.get(id)?;
        let answer = self.answer(task, before);
        let is_blocked =
            matches!(&answer, Answer::Waits(causes) if causes.iter().any(|cause| matches!(cause, Cause::Dependency(_))));
        let status = if is_blocked { Status::Blocked } else { task.status() };
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

    /// The future of the item that a task is an attempt at.
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
            // Its lease has expired, and other runners act on that.
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

    /// A live run, and its owner.
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
            // The keeper is outside of the store: the caller asks it.
            silence: None,
            ended: None,
        }
    }

    /// How many ready tasks only wait for room. They are given by lane, each with an example whose rows were read.
    pub fn queued(&self, lanes: &[(TaskId, u64)]) -> u64 {
        if self.workers().next().is_none() {
            return 0;
        }
        self.count(lanes, |task| self.is_queued(task))
    }

    /// How many of these ready tasks match, by lane; each lane is checked by its example.
    fn count(&self, lanes: &[(TaskId, u64)], matches: impl Fn(&Task) -> bool) -> u64 {
        // A task that waits for a lock or a semaphore has left its lane, so the example is checked without its own needs.
        let is_counted = |(example, _): &&(TaskId, u64)| {
            let task = self.backlog.tasks.get(example).filter(|task| is_ready(task, self.backlog));
            task.is_some_and(|task| matches(&Task { spec: Spec { needs: Vec::new(), ..task.spec.clone() }, ..task.clone() }))
        };
        lanes.iter().filter(is_counted).map(|(_, count)| count).sum()
    }

    /// The roots that are under way.
    pub fn roots(&self) -> impl Iterator<Item = &'a Task> {
        self.backlog.tasks.values().filter(|task| roots::is_under_way(task))
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
                let open = descendants(self.backlog, &task.id).into_iter().filter_map(|id| self.backlog.tasks.get(&id));
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
            // The guard that holds it blocks its pipeline.
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

    /// The current result of the guard that blocks a pipeline.
    fn guard(&self, pipeline: &Pipeline) -> Option<GuardResult> {
        let (guard, vars) = asked(pipeline)?;
        let wants = guard.wants(vars);
        // If the tasks could not be read, the result of the last check has the reason.
        if wants.issues.iter().any(|filter| !self.issues.contains_key(filter)) {
            return None;
        }
        let mut inputs = GuardInputs { vars: vars.clone(), issues: self.issues.clone(), ..GuardInputs::default() };
        know(Some(&pipeline.id), &wants, self.coordination, self.backlog, &self.now, &mut inputs);
        Some(guard.evaluate(&inputs))
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
}

#[cfg(test)]
mod tests;
