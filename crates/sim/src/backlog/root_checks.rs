//! Checks of roots: never more in progress than the limit allows, and started in the order of their arrival.

use banksman_core::event::Kind;
use banksman_core::task::Spec;
use banksman_core::{Name, RunnerId, Seq, TaskId};
use banksman_engine::Options;

use super::model::{TaskModel, TaskState};
use crate::report::Checker;
use crate::world::World;

/// The roots as a runner can read them.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    /// Roots that only lack a place or a run slot.
    plain: Vec<(Seq, TaskId)>,
    /// Roots in progress. A root in a delay may lose its place before the claim.
    placed: Vec<TaskId>,
}

impl World<'_> {
    pub(crate) fn roots_for(&self, options: &Options) -> Roots {
        if self.model.root_limit() == 0 || !options.sections.is_empty() || !self.is_free(Kind::Semaphore, &Name::runs(), 1) {
            return Roots::default();
        }
        let jobs = self.model.jobs.iter().filter(|(id, job)| self.is_plain(id, job));
        let plain = jobs.map(|(id, job)| (job.position, id.clone())).collect();
        Roots { plain, placed: self.model.under_way().cloned().collect() }
    }

    /// Whether it is a root that only lacks a place or a run slot.
    fn is_plain(&self, id: &TaskId, job: &TaskModel) -> bool {
        let Spec { parent, work, section, .. } = &job.spec;
        let is_free = parent.is_none() && work.is_some() && section.is_none() && job.spec.needs_to_begin(true).is_empty();
        let is_ready = job.state == TaskState::Pending && job.rests.is_none() && self.model.unmet(job).next().is_none();
        is_free
            && is_ready
            && !self.model.is_paused(job)
            && !self.machine.files.contains_key(id)
            && self.is_free(Kind::Lock, &id.lock(), 1)
    }

    /// A root begins: there is a place for it, and no earlier root that the runner has read was passed over.
    pub(crate) fn check_root(&mut self, id: &TaskId, runner: &RunnerId) {
        let (Some(job), Some(claimant)) =
            (self.model.jobs.get(id), self.runners.iter().find(|claimant| claimant.id == *runner && claimant.alive))
        else {
            return;
        };
        let limit = self.model.root_limit() as usize;
        if limit == 0 || job.spec.parent.is_some() || job.is_under_way() {
            return;
        }
        self.tally.count("roots admitted");
        let under_way: Vec<&TaskId> = self.model.under_way().collect();
        self.verdict.expect(Checker::Roots, under_way.len() < limit, || {
            format!("{runner} begins {id}, and may have {limit} roots in progress: {under_way:?}")
        });
        let waits = |root: &TaskId| self.model.jobs.get(root).is_some_and(|job| self.is_plain(root, job));
        let Roots { plain, placed } = &claimant.roots;
        let mut before = plain.iter().filter(|(position, _)| *position < job.position);
        // If other runners took one of them meanwhile, this runner may not have read the later ones.
        let is_own = |root: &TaskId| self.model.live(root).is_some_and(|(_, entry)| entry.owner == *runner);
        let is_sure = !placed.contains(id) && before.clone().all(|(_, root)| waits(root) || is_own(root));
        let passed = before.find(|(_, root)| is_sure && waits(root) && !claimant.passed_over.contains(root));
        self.passed.extend(passed.map(|(_, root)| (id.clone(), root.clone(), runner.clone())));
    }

    /// After a commit: a root that was passed over was neither started in the same transaction nor refused.
    pub(crate) fn check_passed_over(&mut self) {
        for (id, root, runner) in std::mem::take(&mut self.passed) {
            let claimant = self.runners.iter().find(|claimant| claimant.id == runner && claimant.alive);
            let is_refused = claimant.is_some_and(|claimant| claimant.passed_over.contains(&root));
            let waits = self.model.jobs.get(&root).is_some_and(|job| self.is_plain(&root, job));
            // A pipeline needs no slot to begin, so it may begin while an earlier task waits for one. Whether there was
            // a slot when the runner read it is unknown.
            let has_phases = |id: &TaskId| self.model.jobs.get(id).is_some_and(|job| job.plan().is_some());
            let is_plain = has_phases(&root) || !has_phases(&id);
            self.verdict.expect(Checker::Roots, is_refused || !waits || !is_plain, || format!("{id} begins before {root}"));
        }
    }

    /// Whether a task waits for a place among the roots. Every root in progress is checked by itself.
    pub(crate) fn waits_for_a_root(&self, job: &TaskModel) -> bool {
        let limit = self.model.root_limit() as usize;
        limit > 0 && job.spec.parent.is_none() && !job.is_under_way() && self.model.under_way().count() >= limit
    }

    /// Whether a task would get a place among the roots, if a runner took it.
    pub(crate) fn has_place(&self, job: &TaskModel) -> bool {
        let limit = self.model.root_limit() as usize;
        // An earlier root that only lacks a run slot is not overtaken.
        let is_before = |(id, other): &(&TaskId, &TaskModel)| {
            let is_root = other.spec.parent.is_none() && other.spec.work.is_some() && other.plan().is_none();
            is_root && other.position < job.position && self.has_all_but_a_slot(id, other)
        };
        let before = || self.model.jobs.iter().filter(is_before).count();
        limit == 0 || job.spec.parent.is_some() || job.is_under_way() || self.model.under_way().count() + before() < limit
    }
}
