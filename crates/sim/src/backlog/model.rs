//! The model of the backlog: what there is to do, which run does it and who holds what, from the committed events alone.
//!
//! It is naive, and shares no code with the state machines of the core.

use std::collections::BTreeMap;
use std::sync::Arc;

use banksman_core::backlog::Edge;
use banksman_core::event::Resource;
use banksman_core::pipeline::plan::Plan;
use banksman_core::task::{After, PIPELINE_ENV, Spec, Verdict, Work};
use banksman_core::{
    DecisionId, Epoch, HolderId, Lease, Limits, Name, Pause, ProcessId, RunId, RunnerId, SectionId, Seq, Status, TaskId,
};

use super::decisions::DecisionModel;
use super::pause::runs;
use super::pipeline_model::PipelineModel;
use super::worker_model::AutomationModel;

/// The state of the model.
#[derive(Debug, Default)]
pub(crate) struct BacklogModel {
    /// The last event that it has processed.
    pub(crate) last: Seq,
    pub(crate) jobs: BTreeMap<TaskId, TaskModel>,
    /// The sections, and whether they are exclusive.
    pub(crate) sections: BTreeMap<SectionId, bool>,
    pub(crate) runs: BTreeMap<RunId, RunModel>,
    pub(crate) held: BTreeMap<Resource, BTreeMap<HolderId, Holding>>,
    pub(crate) capacity: BTreeMap<Name, u32>,
    pub(crate) limits: Option<Limits>,
    pub(crate) pause: Option<Pause>,
    pub(crate) runners: BTreeMap<RunnerId, Known>,
    pub(crate) decisions: BTreeMap<DecisionId, DecisionModel>,
    pub(crate) pipelines: BTreeMap<TaskId, PipelineModel>,
    pub(crate) automation: AutomationModel,
    /// The number of the boot, and the difference between its clock and the lease clock.
    pub(crate) lease: Option<(i64, i64)>,
}

#[derive(Debug)]
pub(crate) struct TaskModel {
    pub(crate) spec: Spec,
    pub(crate) deps: Vec<Edge>,
    pub(crate) state: TaskState,
    /// The number of the event that added it.
    pub(crate) position: Seq,
    pub(crate) attempts: u32,
    pub(crate) failures: u32,
    pub(crate) recoveries: u32,
    /// How many runs have begun since a person last asked for a retry.
    pub(crate) tried: u32,
    /// The end of its delay. No event records that the delay was seen to be over.
    pub(crate) rests: Option<Lease>,
    /// The runner that has reported the end of its last run, and when.
    pub(crate) ended: Option<(RunnerId, Seq)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskState {
    Pending,
    Live(RunId),
    /// It is done, and its children may take until then; `None` once they are being cancelled.
    Awaiting(Option<Lease>),
    AwaitingDecision(DecisionId),
    /// A person works on it.
    Manual,
    /// It has the state of its pipeline, which may be blocked.
    InPhases(bool),
    /// Its work is in the merge queue.
    Landing,
    Review,
    Over(Status),
}

#[derive(Debug)]
pub(crate) struct RunModel {
    pub(crate) task: TaskId,
    pub(crate) owner: RunnerId,
    pub(crate) epoch: Epoch,
    pub(crate) stopping: Option<After>,
    /// Since when it looks stuck.
    pub(crate) stuck: Option<Lease>,
    /// The result that it has reported.
    pub(crate) verdict: Option<Verdict>,
    pub(crate) ended: bool,
    /// Whether it has released its slot and not resumed yet.
    pub(crate) paused: bool,
    /// Whether it has done so at least once. When it resumes, its runner may have started other runs.
    pub(crate) has_paused: bool,
}

#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) weight: u32,
    pub(crate) processes: Vec<ProcessId>,
    /// When it expires, at the latest.
    pub(crate) until: Option<Lease>,
    /// When it expires, as its holder knows.
    pub(crate) ends: Option<Lease>,
    /// Whether it was offered to a waiter, which may not have taken it up.
    pub(crate) offered: bool,
}

#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) process: ProcessId,
    pub(crate) max_runs: Option<u32>,
    /// Whether it has announced that it leaves.
    pub(crate) left: bool,
}

impl TaskModel {
    pub(crate) fn new(spec: Spec, deps: Vec<Edge>, position: Seq) -> TaskModel {
        TaskModel {
            spec,
            deps,
            state: TaskState::Pending,
            position,
            attempts: 0,
            failures: 0,
            recoveries: 0,
            tried: 0,
            rests: None,
            ended: None,
        }
    }

    /// Whether it has begun and continues by itself.
    pub(crate) fn is_under_way(&self) -> bool {
        match self.state {
            TaskState::Live(_) | TaskState::Awaiting(_) | TaskState::InPhases(false) => true,
            TaskState::Pending => self.rests.is_some(),
            TaskState::AwaitingDecision(_)
            | TaskState::InPhases(true)
            | TaskState::Manual
            | TaskState::Landing
            | TaskState::Review
            | TaskState::Over(_) => false,
        }
    }

    /// The plan of the pipeline, if this is a pipeline's task.
    pub(crate) fn plan(&self) -> Option<&Arc<Plan>> {
        match &self.spec.work {
            Some(Work::Pipeline(plan)) => Some(plan),
            Some(_) | None => None,
        }
    }

    /// Whether it is a phase of this pipeline.
    pub(crate) fn is_phase_of(&self, pipeline: &TaskId) -> bool {
        self.spec.parent.as_ref() == Some(pipeline) && self.spec.env.contains_key(PIPELINE_ENV)
    }
}

impl BacklogModel {
    /// Whether it is a phase that a guard keeps from beginning.
    pub(crate) fn is_held(&self, job: &TaskModel) -> bool {
        let pipeline = job.spec.parent.as_ref().and_then(|parent| self.pipelines.get(parent));
        let held = pipeline.and_then(|pipeline| pipeline.blocked.as_ref()?.held());
        held.is_some_and(|held| self.jobs.get(&held.task).is_some_and(|other| std::ptr::eq(other, job)))
    }

    pub(crate) fn enlist(&mut self, id: &RunnerId, process: &ProcessId, max_runs: Option<u32>) {
        self.runners.insert(id.clone(), Known { process: process.clone(), max_runs, left: false });
    }

    pub(crate) fn tasks_contain(&self, id: &TaskId) -> bool {
        self.jobs.contains_key(id)
    }

    pub(crate) fn is_live(&self, run: &RunId) -> bool {
        self.runs.get(run).is_some_and(|entry| !entry.ended)
    }

    pub(crate) fn live_runs(&self) -> impl Iterator<Item = &RunId> {
        self.runs.iter().filter(|(_, entry)| !entry.ended).map(|(id, _)| id)
    }

    /// How many live runs of a runner hold a slot.
    pub(crate) fn at_work(&self, runner: &RunnerId) -> usize {
        let holds_slot = |run: &RunId| self.holders(&runs()).any(|(holder, _)| *holder == run.holder());
        let own = self.runs.iter().filter(|(_, entry)| !entry.ended && entry.owner == *runner);
        own.filter(|(run, _)| holds_slot(run)).count()
    }

    /// How many live runs of a runner have never released their slot.
    pub(crate) fn steady(&self, runner: &RunnerId) -> usize {
        self.runs.values().filter(|entry| !entry.ended && !entry.has_paused && entry.owner == *runner).count()
    }

    /// The owners of live runs in a section.
    pub(crate) fn owners_in<'a>(&'a self, section: &'a SectionId) -> impl Iterator<Item = &'a RunnerId> {
        let is_in = move |entry: &&RunModel| {
            !entry.ended && self.jobs.get(&entry.task).is_some_and(|job| job.spec.section.as_ref() == Some(section))
        };
        self.runs.values().filter(is_in).map(|entry| &entry.owner)
    }

    pub(crate) fn holders(&self, resource: &Resource) -> impl Iterator<Item = (&HolderId, &Holding)> {
        self.held.get(resource).into_iter().flatten()
    }

    /// The live run of a task.
    pub(crate) fn live(&self, task: &TaskId) -> Option<(&RunId, &RunModel)> {
        match &self.jobs.get(task)?.state {
            TaskState::Live(run) => Some((run, self.runs.get(run)?)),
            TaskState::Pending
            | TaskState::Awaiting(_)
            | TaskState::AwaitingDecision(_)
            | TaskState::InPhases(_)
            | TaskState::Manual
            | TaskState::Landing
            | TaskState::Review
            | TaskState::Over(_) => None,
        }
    }

    /// The dependencies of a task that are not met.
    pub(crate) fn unmet<'a>(&'a self, job: &'a TaskModel) -> impl Iterator<Item = &'a TaskId> {
        let is_met = |edge: &&Edge| match self.jobs.get(&edge.on).map(|on| &on.state) {
            Some(TaskState::Over(Status::Completed)) => true,
            Some(TaskState::Over(_)) => edge.allow_failed,
            Some(_) | None => false,
        };
        job.deps.iter().filter(move |edge| !is_met(edge)).map(|edge| &edge.on)
    }

    /// How many tasks that a task has created, directly or not, are not over.
    pub(crate) fn open_children(&self, id: &TaskId) -> usize {
        let children = self.jobs.iter().filter(|(_, job)| job.spec.parent.as_ref() == Some(id));
        children.map(|(child, job)| usize::from(!matches!(job.state, TaskState::Over(_))) + self.open_children(child)).sum()
    }

    /// Whether a person has stopped it, so that no run of it starts.
    pub(crate) fn is_paused(&self, job: &TaskModel) -> bool {
        self.pause.is_some() || job.spec.paused.is_some()
    }

    /// How many roots may be in progress; 0 for any number.
    pub(crate) fn root_limit(&self) -> u32 {
        self.limits.map_or(0, |limits| limits.roots)
    }

    /// The roots that are in progress.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &TaskId> {
        self.jobs.iter().filter(|(_, job)| job.spec.parent.is_none() && job.is_under_way()).map(|(id, _)| id)
    }

    /// Whether a task would reach itself along its dependencies if it had these.
    pub(crate) fn closes_circle(&self, task: &TaskId, deps: &[Edge]) -> bool {
        let mut open: Vec<&TaskId> = deps.iter().map(|edge| &edge.on).collect();
        let mut seen = std::collections::BTreeSet::new();
        while let Some(next) = open.pop() {
            if next == task {
                return true;
            }
            if seen.insert(next) {
                open.extend(self.jobs.get(next).into_iter().flat_map(|job| job.deps.iter().map(|edge| &edge.on)));
            }
        }
        false
    }
}
