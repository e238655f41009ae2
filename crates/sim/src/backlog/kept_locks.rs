//! Locks that a pipeline keeps across its phases (`hold = "pipeline"`): it has them from the first run of the phase
//! that keeps them until it is over and no run of it is alive, and no longer.

use banksman_core::event::{Kind, Resource};
use banksman_core::pipeline::plan::Phase;
use banksman_core::task::Need;
use banksman_core::{HolderId, Name, TaskId};

use super::model::{TaskModel, TaskState};
use super::plans::name;
use crate::world::World;

/// Only pipelines that keep it need this lock, so that none of them waits for another one in a cycle.
fn kept_lock() -> Name {
    name("lc")
}

/// The pipeline with this holder name.
fn pipeline_of(holder: &HolderId) -> Option<TaskId> {
    TaskId::new(holder.as_str().strip_prefix("pipeline:")?).ok()
}

impl World<'_> {
    /// Lets a phase of some plans keep a lock for the rest of the pipeline.
    pub(crate) fn keep_lock(&mut self, phases: &mut [Phase]) {
        let Some(random) = &mut self.keeps_locks else { return };
        if !random.in_thousand(500) {
            return;
        }
        // The locks of all later phases would be kept with it.
        phases.iter_mut().for_each(|phase| phase.needs.retain(|need| !matches!(need, Need::Lock(_))));
        let phase = &mut phases[random.below(2)];
        phase.keeps = true;
        phase.needs.push(Need::Lock(kept_lock()));
    }

    /// A run with these needs has begun: its pipeline keeps the lock from now on.
    pub(crate) fn note_kept(&mut self, needs: &[Need]) {
        for need in needs {
            let Need::Kept { name, pipeline, .. } = need else { continue };
            if let Some(pipeline) = self.model.pipelines.get_mut(pipeline).filter(|_| *name == kept_lock()) {
                pipeline.is_keeping = true;
                self.tally.count("runs under a kept lock");
            }
        }
    }

    /// Whether the pipeline itself holds a lock or slots.
    pub(crate) fn is_kept_by(&self, resource: &Resource, pipeline: &TaskId) -> bool {
        self.model.holders(resource).any(|(holder, _)| *holder == pipeline.pipeline_holder())
    }

    /// Whether a phase waits for a lock of another pipeline, which waits for a person.
    pub(crate) fn waits_for_kept(&self, job: &TaskModel) -> bool {
        job.spec.needs.iter().any(|need| {
            // Only this lock has a holder that never waits for another one.
            let Need::Kept { name, pipeline, .. } = need else { return false };
            if *name != kept_lock() {
                return false;
            }
            let resource = need.resource();
            let others =
                self.model.holders(&resource).filter_map(|(holder, _)| pipeline_of(holder)).filter(|other| other != pipeline);
            others.into_iter().any(|other| {
                let pipeline = self.model.pipelines.get(&other);
                pipeline.is_some_and(|pipeline| !pipeline.is_over() && self.cannot_advance(&other, pipeline))
            })
        })
    }

    /// Whether another pipeline holds what is needed across its phases: it continues by itself, or waits for a person.
    pub(crate) fn is_kept_by_another(&self, need: &Need) -> bool {
        let own = match need {
            Need::Kept { pipeline, .. } => Some(pipeline),
            Need::Lock(_) | Need::Slots { .. } => None,
        };
        let resource = need.resource();
        let mut keepers = self.model.holders(&resource).filter_map(|(holder, _)| pipeline_of(holder));
        keepers.any(|keeper| Some(&keeper) != own)
    }

    /// Whether there are too few slots, and only pipelines hold some.
    pub(crate) fn are_kept_by_others(&self, need: &Need) -> bool {
        let resource = need.resource();
        let (mut holders, mut again) = (self.model.holders(&resource), self.model.holders(&resource));
        holders.next().is_some()
            && again.all(|(holder, _)| holder.is_pipeline())
            && !self.is_free(resource.kind, need.name(), need.weight())
    }

    /// A lock that a pipeline holds though it is over, or does not hold though it keeps it.
    pub(crate) fn wrongly_kept(&self) -> Option<String> {
        let has_run =
            |id: &TaskId| self.model.jobs.values().any(|job| job.is_phase_of(id) && matches!(job.state, TaskState::Live(_)));
        let held = self.model.held.iter().flat_map(|(resource, holders)| holders.keys().map(move |holder| (resource, holder)));
        let mut held = held.filter_map(|(resource, holder)| Some((resource, pipeline_of(holder)?)));
        let is_over =
            |id: &TaskId| self.model.pipelines.get(id).is_none_or(super::pipeline_model::PipelineModel::is_over) && !has_run(id);
        if let Some((resource, id)) = held.find(|(_, id)| is_over(id)) {
            return Some(format!("{id} is over, and has {resource}"));
        }
        let lock = Resource { kind: Kind::Lock, name: kept_lock() };
        let lost = self.model.pipelines.iter().find(|(id, pipeline)| pipeline.is_keeping && !self.is_kept_by(&lock, id));
        lost.map(|(id, pipeline)| format!("{id} stands at {:?}, and does not keep its lock", pipeline.state))
    }
}
