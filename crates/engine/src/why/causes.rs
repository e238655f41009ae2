//! The causes that keep a pending task from starting, and the holders of the resources that it waits for.

use banksman_core::backlog::{Run, Runner};
use banksman_core::event::{Kind, Resource};
use banksman_core::resource::grant::{Grant, Waiter};
use banksman_core::resource::lock;
use banksman_core::task::admission::{Admission, Holding, Reason};
use banksman_core::task::{RetryReason, RunEnd, roots};
use banksman_core::{Name, RunId, Status, Task, TaskId, Title};

use super::Situation;
use super::answer::{self, Cause, Chain, ChainEnd, Holder, Link, Obstacle};
use super::chains::{Stop, chains, unmet};
use crate::facts;

impl<'a> Situation<'a> {
    /// All causes that keep a pending task from starting.
    pub(super) fn causes(&self, task: &Task, before: &[(TaskId, u64)]) -> Vec<Cause> {
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
                // The answer about the decision comes from the state of the task.
                Reason::Decision(_) => {}
                // The places for roots are checked below.
                Reason::NoRoot { .. } => {}
                // The dependencies are followed below.
                Reason::Dependency { .. } => {}
                // The obstacles of a section differ from runner to runner. Without a runner, they hold for any runner that comes.
                Reason::Section { .. } | Reason::SectionBusy { .. } if runner.is_some() => {}
                // People need the same resources as runs, except for a run slot.
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
        // Slots come last: people can do least about them.
        let is_slot = |cause: &Cause| matches!(cause, Cause::Taken { reason: Reason::NoSlot { .. }, .. });
        let at = causes.iter().position(is_slot).unwrap_or(causes.len());
        causes.splice(at..at, self.overtaken_by_roots(task, runner, before));
        let chains = chains(task, self.backlog);
        let dependencies = chains.into_iter().map(|(links, stop)| Cause::Dependency(self.chain(&links, stop)));
        let at = causes.iter().take_while(|cause| matches!(cause, Cause::Manual | Cause::Paused { .. })).count();
        causes.splice(at..at, dependencies);
        let edges = self.backlog.edges.get(&task.id).map_or(&[][..], Vec::as_slice);
        // The task may be a dependent that was not notified yet.
        let ended = self.fan_out.filter(|ended| causes.is_empty() && edges.iter().any(|edge| edge.on == **ended));
        causes.extend(ended.map(|ended| Cause::PassedOn { task: ended.clone() }));
        causes.extend((!is_manual).then(|| self.no_runner(task, before)).flatten());
        causes
    }

    /// The cause that the remaining places go to earlier roots, which would begin if there were room for a run.
    fn overtaken_by_roots(&self, task: &Task, runner: Option<&Runner>, before: &[(TaskId, u64)]) -> Option<Cause> {
        let limit = facts::root_limit(self.backlog);
        // People begin manual roots without a limit.
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

    /// The cause that no runner can take the task, with the obstacles of each.
    fn no_runner(&self, task: &Task, before: &[(TaskId, u64)]) -> Option<Cause> {
        let runners: Vec<_> = self.workers().map(|runner| (runner.id.clone(), self.obstacles(task, runner))).collect();
        if runners.is_empty() {
            return Some(Cause::NoRunner { ahead: self.ahead(before) });
        }
        let all = runners.iter().all(|(_, obstacles)| !obstacles.is_empty());
        let ahead = if all && answer::is_queue(&runners) { self.ahead(before) } else { 0 };
        all.then_some(Cause::NoRunnerFree { runners, ahead })
    }

    /// The obstacles that keep one runner from taking the task, apart from all other causes.
    pub(super) fn obstacles(&self, task: &Task, runner: &Runner) -> Vec<Obstacle> {
        let mut obstacles = Vec::new();
        let sections = &runner.sections;
        if !sections.is_empty() && !task.spec.section.as_ref().is_some_and(|section| sections.contains(section)) {
            let named = sections.iter().filter_map(|id| self.backlog.sections.get(id));
            obstacles.push(Obstacle::OtherSections(named.map(|section| section.name.clone()).collect()));
        }
        // A run that waits for others has freed its slot, and its place with it.
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

    fn reasons(&self, task: &Task, runner: Option<&Runner>) -> Vec<Reason> {
        match facts::admit(task, runner.map(|runner| &runner.id), self.coordination, self.backlog, &self.now) {
            Admission::Run => Vec::new(),
            Admission::Blocked(reasons) => reasons,
        }
    }

    /// Whether a ready task only waits for room or a runner.
    pub(super) fn is_queued(&self, task: &Task) -> bool {
        let causes = self.causes(task, &[]);
        !causes.is_empty() && causes.iter().all(|cause| cause.position().is_some())
    }

    /// How many of the ready tasks before one wait in the same queue.
    fn ahead(&self, before: &[(TaskId, u64)]) -> u64 {
        self.count(before, |task| self.is_queued(task))
    }

    fn taken(&self, reason: Reason, before: &[(TaskId, u64)]) -> Cause {
        let resource = reason.resource().expect("only what is taken comes here");
        let (grants, waiters) = self.grants(&resource);
        let holder = |holding: &Holding| {
            let grant = grants.iter().find(|grant| grant.claim.holder == holding.holder);
            self.holder(holding.clone(), grant.copied())
        };
        let holders = reason.holders().iter().map(holder).collect();
        let present = waiters.into_iter().filter(|waiter| !waiter.is_over(&self.now));
        let present = present.map(|waiter| (waiter.claim.holder.clone(), waiter.since));
        // A freed resource is reserved for these claims.
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

    fn section_busy(&self, name: Title, run: &RunId) -> Option<Cause> {
        let run = self.backlog.runs.get(run)?;
        Some(Cause::SectionBusy { name, run: self.attended(run), task: run.task.clone() })
    }

    /// Why the last session of a task could not begin, if it could not.
    fn not_begun(&self, task: &Task) -> Option<Box<str>> {
        let last = self.backlog.runs.values().filter(|run| run.task == task.id).max_by_key(|run| run.epoch)?;
        match &last.ended.as_ref()?.ending {
            RunEnd::NotBegun { error, .. } => Some(error.clone()),
            _ => None,
        }
    }

    /// The agent of the last run, and the reason why it could not work, if there was one.
    fn kept_from_working(&self, task: &Task) -> Option<(Name, RetryReason, Box<str>)> {
        let last = self.backlog.runs.values().filter(|run| run.task == task.id).max_by_key(|run| run.epoch)?;
        let agent = last.ended.as_ref()?.agent.as_ref()?;
        Some((agent.agent.clone(), RetryReason::of_agent(&agent.verdict)?, agent.text.clone()))
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
