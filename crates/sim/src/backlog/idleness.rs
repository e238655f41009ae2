//! What could be done right now, by the model and the processes alone; and the comparison of all rows.

use std::collections::BTreeSet;

use banksman_core::event::{Kind, Resource};
use banksman_core::task::{Need, State};
use banksman_core::{Lease, Name, RunId, Seq, Status, TaskId};
use banksman_engine::Options;
use banksman_store::{Key, TaskFilter};

use super::model::{Holding, TaskModel, TaskState};
use super::runner::{POLL, Runner};
use crate::clock::Ms;
use crate::report::Checker;
use crate::world::World;

/// How long work may be left undone when no wake-up is lost: far less than the poll interval.
const IDLE_LIMIT: Ms = 6_000;

/// How long a file DONE may stay unread: every poll checks for it.
const FILE_LIMIT: Ms = 2 * POLL.as_ms();

impl World<'_> {
    /// What a runner has to wait for. A runner whose capacity is taken by runs that only a person can end starts nothing.
    pub(crate) fn awaited_by(&self, runner: &Runner) -> BTreeSet<String> {
        let options = &runner.options;
        let has_room = options.max_runs.is_none_or(|max| self.model.at_work(&runner.id) < max as usize);
        let waits = |job: &TaskModel| {
            has_room
                && is_for(options, job)
                && self.model.unmet(job).next().is_none()
                && !self.is_hopeless(job)
                && !self.waits_for_a_root(job)
                && !self.model.is_held(job)
                && !self.model.is_paused(job)
        };
        let goes_on = |id: &TaskId, job: &TaskModel| match job.state {
            TaskState::Awaiting(until) => until.is_some() || self.model.open_children(id) == 0,
            _ => waits(job),
        };
        let jobs = self.model.jobs.iter().filter(|(id, job)| goes_on(id, job)).map(|(id, _)| id);
        let pipelines = self.model.pipelines.iter().filter(|(_, pipeline)| self.is_awaited(pipeline)).map(|(id, _)| id);
        // Only a person can decide whether a run that cannot be seen may be ended.
        let runs = self.model.live_runs().filter(|run| !self.is_asked_about(run)).map(ToString::to_string);
        let items = self.waits_for_items(options).then(|| "items".to_owned());
        jobs.chain(pipelines).map(ToString::to_string).chain(runs).chain(items).collect()
    }

    /// Notes for how long there has been work that a runner could start.
    pub(crate) fn watch_idleness(&mut self) {
        let now = self.clock.now();
        let mut idle = std::mem::take(&mut self.idle);
        // What people hold, request and wait for keeps tasks from starting.
        let is_quiet = !self.people_are_busy();
        let enabled = self
            .model
            .jobs
            .iter()
            .filter(|_| is_quiet)
            .filter(|(id, job)| self.could_start(id, job) || self.could_settle(id, job));
        let pipelines = self.model.pipelines.iter().filter(|(id, pipeline)| self.could_go_on(id, pipeline)).map(|(id, _)| id);
        let enabled: Vec<TaskId> = enabled.map(|(id, _)| id).chain(pipelines).cloned().collect();
        idle.retain(|id, _| enabled.contains(id));
        for id in enabled {
            idle.entry(id).or_insert(now);
        }
        let reliable = self.harsh == 0 || self.reliable_from.is_some_and(|from| from <= now);
        if let Some((id, since)) = idle.iter().find(|(_, since)| reliable && now - **since > IDLE_LIMIT) {
            // What tasks wait for, by the rows.
            let keys = [Key::Ready { of_each: 16, sections: Vec::new() }, Key::ReadyRoots { of_each: 16, sections: Vec::new() }];
            let parked = self.store.view().first_parked(100);
            if let (Ok(rows), Ok(parked)) = (self.store.view().load(&keys.into()), parked) {
                let needs = self.model.jobs.get(id).map(|job| job.spec.needs_to_begin(true).to_vec());
                self.say(format_args!("parked: {parked:?}, ready: {:?}, needs of {id}: {needs:?}", rows.ready));
            }
            self.verdict.report(Checker::Idle, || format!("{id} could have gone on {} ms ago", now - since));
        }
        self.idle = idle;
        self.watch_files(now, reliable);
        self.watch_automation(reliable, IDLE_LIMIT);
    }

    /// Notes for how long the file DONE of a waiting loop has not been read.
    fn watch_files(&mut self, now: Ms, reliable: bool) {
        let able = |runner: &Runner| runner.is_awake() && !runner.cancelled;
        let able = reliable && self.runners.iter().any(able);
        let (model, files) = (&self.model, &self.machine.files);
        let waits = |id: &TaskId| model.jobs.get(id).is_some_and(|job| job.state == TaskState::Pending);
        self.unread.retain(|id, _| able && waits(id) && files.contains_key(id));
        for id in files.keys().filter(|id| able && waits(id)) {
            self.unread.entry(id.clone()).or_insert(now);
        }
        if let Some((id, since)) = self.unread.iter().find(|(_, since)| now - **since > FILE_LIMIT) {
            self.verdict.report(Checker::Idle, || format!("DONE of {id} was not read for {} ms", now - since));
        }
    }

    /// Whether any runner could start the task right now.
    pub(crate) fn could_start(&self, id: &TaskId, job: &TaskModel) -> bool {
        // The phases of a pipeline have its needs.
        let has_phases = job.plan().is_some();
        let able = |runner: &&Runner| {
            runner.is_awake()
                && !runner.cancelled
                // It retries with growing delays.
                && !runner.is_short
                && is_for(&runner.options, job)
                && runner.options.max_runs.is_none_or(|max| self.model.at_work(&runner.id) < max as usize)
                && (has_phases || self.may_enter(runner, job))
        };
        self.has_all_but_a_slot(id, job)
            && self.has_place(job)
            && (has_phases || self.is_free(Kind::Semaphore, &Name::runs(), 1))
            && self.runners.iter().any(|runner| able(&runner))
    }

    /// Whether a task is ready and everything that it needs is free, with the possible exception of a run slot.
    pub(crate) fn has_all_but_a_slot(&self, id: &TaskId, job: &TaskModel) -> bool {
        job.state == TaskState::Pending
            && !self.model.is_held(job)
            && !self.model.is_paused(job)
            && job.rests.is_none_or(|until| self.lease().is_some_and(|lease| lease >= until))
            && self.model.unmet(job).next().is_none()
            && self.is_free(Kind::Lock, &id.lock(), 1)
            && job.spec.needs_to_begin(self.model.root_limit() > 0).iter().all(|need| {
                let is_free = || self.is_free(need.resource().kind, need.name(), need.weight());
                matches!(need, Need::Kept { pipeline, .. } if self.is_kept_by(&need.resource(), pipeline)) || is_free()
            })
    }

    /// Whether a task that is done could be over with its children right now.
    fn could_settle(&self, id: &TaskId, job: &TaskModel) -> bool {
        let TaskState::Awaiting(until) = job.state else { return false };
        let late = until.is_some_and(|until| self.lease().is_some_and(|lease| lease >= until));
        let able = |runner: &Runner| runner.is_awake() && !runner.cancelled;
        (late || self.model.open_children(id) == 0) && self.runners.iter().any(able)
    }

    /// Whether the section of a task is free for a runner, or its own. A runner without a run in a section does not
    /// block others there.
    fn may_enter(&self, runner: &Runner, job: &TaskModel) -> bool {
        let exclusive = job.spec.section.as_ref().filter(|section| self.model.sections.get(*section) == Some(&true));
        exclusive.is_none_or(|section| self.model.owners_in(section).all(|owner| *owner == runner.id))
    }

    pub(crate) fn is_free(&self, kind: Kind, name: &Name, weight: u32) -> bool {
        let capacity = match kind {
            Kind::Lock => 1,
            Kind::Semaphore => self.model.capacity.get(name).copied().unwrap_or(0),
        };
        let resource = Resource { kind, name: name.clone() };
        let used: u32 = self.model.holders(&resource).filter(|(_, held)| !self.is_over(held)).map(|(_, held)| held.weight).sum();
        used + weight <= capacity && !self.is_waited_for(&resource) && !self.slots_are_waited_for(&resource)
    }

    /// Whether a grant is really over, noticed or not.
    fn is_over(&self, holding: &Holding) -> bool {
        let dead = !holding.processes.is_empty() && !holding.processes.iter().any(|process| self.machine.lives(process));
        dead || holding.until.is_some_and(|until| self.lease().is_some_and(|lease| lease >= until))
    }

    pub(crate) fn lease(&self) -> Option<Lease> {
        let (boot, offset) = self.model.lease?;
        (boot == self.clock.boot_number()).then(|| Lease(self.clock.monotonic() + offset))
    }

    /// Compares all rows with the event log and with the model.
    pub(crate) fn compare_rows(&mut self) {
        let counters = self.store.view().check_counts();
        match self.store.view().compare_with_log().and_then(|log| Ok([log, counters?].concat())) {
            Ok(differences) => self.verdict.expect(Checker::Replay, differences.is_empty(), || differences.join("\n")),
            Err(error) => return self.store_failed(&error),
        }
        let listed = self.store.view().tasks(&TaskFilter::default(), Seq(0));
        let rows = self.store.view().everything();
        let ((listed, _), everything) = match (listed, rows) {
            (Ok(listed), Ok(rows)) => (listed, rows),
            (Err(error), _) | (_, Err(error)) => return self.store_failed(&error),
        };
        self.compare_automation(&everything);
        self.compare_locks(&everything.coordination);
        let rows = everything.tables.backlog;
        rows.check();
        let differs: Vec<String> = listed
            .iter()
            .filter_map(|listed| {
                let (task, unmet) = (&listed.task, listed.unmet as usize);
                let Some(job) = self.model.jobs.get(&task.id) else { return Some(format!("{} is not in the model", task.id)) };
                let state = match &task.state {
                    State::Pending | State::Backoff { .. } | State::Held => TaskState::Pending,
                    State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. } => {
                        TaskState::Live(live.run.clone())
                    }
                    State::Awaiting { until, .. } => TaskState::Awaiting(*until),
                    State::AwaitingDecision { decision } => TaskState::AwaitingDecision(decision.clone()),
                    State::Manual { .. } => TaskState::Manual,
                    State::InPhases { is_blocked } => TaskState::InPhases(*is_blocked),
                    State::Landing { .. } => TaskState::Landing,
                    State::Review => TaskState::Review,
                    State::Done(done) => TaskState::Over(done.status()),
                };
                let rests = match task.state {
                    State::Backoff { until } => Some(until),
                    _ => None,
                };
                let row = (state, rests, unmet, task.attempts, task.failures, task.recoveries, task.spec.paused.is_some());
                let unmet = self.model.unmet(job).count();
                let is_paused = job.spec.paused.is_some();
                let expected = (job.state.clone(), job.rests, unmet, job.attempts, job.failures, job.recoveries, is_paused);
                (row != expected).then(|| format!("{}: the row says {row:?}, the model {expected:?}", task.id))
            })
            .collect();
        self.verdict.expect(Checker::Model, differs.is_empty(), || differs.join("\n"));
        let many = listed.len() == self.model.jobs.len();
        self.verdict.expect(Checker::Model, many, || "the model has tasks without a row".to_owned());
        let live = rows.runs.values().filter(|run| run.is_live()).map(|run| (&run.id, &run.owner));
        let expected = self.model.runs.iter().filter(|(_, entry)| !entry.ended).map(|(id, entry)| (id, &entry.owner));
        self.verdict.expect(Checker::Model, live.eq(expected), || "the live runs, or their owners, differ".to_owned());
        let is_over = |run: &RunId| !self.model.is_live(run);
        let dead = rows.outbox.values().find(|entry| entry.command.run().is_some_and(is_over));
        self.verdict.expect(Checker::Left, dead.is_none(), || format!("an outbox command for a run that is over: {dead:?}"));
        self.check_given_up(&rows);
        self.compare_pipelines(&rows);
    }

    /// Whether the model explains why a task is still pending when nothing moves any more.
    pub(crate) fn is_rightly_blocked(&self, job: &TaskModel) -> bool {
        let unmet = self.model.unmet(job).next().is_some();
        let is_blocked = unmet || self.is_hopeless(job) || job.spec.work.is_none() || self.model.is_held(job);
        is_blocked || self.waits_for_kept(job) || self.waits_for_a_root(job)
    }

    /// Whether a task needs more slots than there are.
    fn is_hopeless(&self, job: &TaskModel) -> bool {
        job.spec.needs_to_begin(self.model.root_limit() > 0).iter().any(|need| match need {
            Need::Lock(_) | Need::Kept { slots: None, .. } => self.is_kept_by_another(need),
            Need::Kept { pipeline, .. } if self.is_kept_by(&need.resource(), pipeline) => false,
            Need::Slots { name, .. } | Need::Kept { name, .. } => {
                self.model.capacity.get(name).is_none_or(|capacity| need.weight() > *capacity) || self.are_kept_by_others(need)
            }
        })
    }
}

/// Whether a runner with these options would take the task.
fn is_for(options: &Options, job: &TaskModel) -> bool {
    let in_section = || job.spec.section.as_ref().is_some_and(|section| options.sections.contains(section));
    job.state == TaskState::Pending && job.spec.work.is_some() && (options.sections.is_empty() || in_section())
}

/// Whether a task is over, whatever the result.
pub(crate) fn is_over(job: &TaskModel) -> bool {
    matches!(job.state, TaskState::Over(Status::Completed | Status::Failed | Status::Cancelled | Status::Skipped))
}
