//! Checks the guarantees against the event log: a pure count over the events.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::backlog::Edge;
use banksman_core::event::{DecisionFact, Event, Fact, SectionFact, TaskFact};
use banksman_core::task::{RetryReason, RunEnd, Spec};
use banksman_core::{HolderId, RunId, RunnerId, SectionId, TaskId};
use banksman_store::EventRow;

#[derive(Debug, Default)]
pub(super) struct Audit {
    /// The number of runs that began.
    pub(super) runs: usize,
    /// The number of runs that were claimed and never began.
    pub(super) never_begun: usize,
    /// The tasks of which a run crashed and was followed by another.
    pub(super) crashed: Vec<String>,
    /// The tasks of which a run stopped early and was followed by another.
    pub(super) restarted: Vec<String>,
    /// The tasks of which a run was stuck and recovered.
    pub(super) recovered: Vec<String>,
    /// The tasks that needed a person's decision.
    pub(super) escalated: Vec<String>,
    /// The number of decisions raised, and of decisions answered.
    pub(super) raised: usize,
    pub(super) answered: usize,
    /// The runs that another runner took over.
    pub(super) adopted: BTreeSet<RunId>,
    /// The number of tasks added by a run.
    pub(super) children: usize,
    /// The number of runs that began before a dependency was completed.
    pub(super) early: usize,
    /// The number of runs that began while another run of the same task lived.
    pub(super) doubled: usize,
    /// The largest number of runners that worked in one exclusive section at the same time.
    pub(super) most_runners: usize,
    /// The largest number of slots of each lock or semaphore that were taken at the same time.
    pub(super) most: BTreeMap<String, u32>,
    exclusive: BTreeSet<SectionId>,
    tasks: BTreeMap<TaskId, (Box<Spec>, Vec<Edge>)>,
    completed: BTreeSet<TaskId>,
    live: BTreeMap<TaskId, RunnerId>,
    held: BTreeMap<String, BTreeMap<HolderId, u32>>,
}

impl Audit {
    pub(super) fn of(events: &[EventRow]) -> Audit {
        let mut audit = Audit::default();
        for row in events {
            let data = row.data.to_string();
            match Event::parse(&row.kind, &row.source.component, row.source.id.as_deref(), &data) {
                Ok(Event::Section { id, fact: SectionFact::Added { exclusive: true, .. } }) => {
                    audit.exclusive.insert(id);
                }
                Ok(Event::Task { id, fact }) => audit.task(id, fact),
                Ok(Event::Decision { fact: DecisionFact::Raised(_), .. }) => audit.raised += 1,
                Ok(Event::Decision { fact: DecisionFact::Resolved { .. }, .. }) => audit.answered += 1,
                Ok(Event::Resource { resource, fact }) => audit.resource(resource.to_string(), fact),
                _ => {}
            }
        }
        audit
    }

    fn task(&mut self, id: TaskId, fact: TaskFact) {
        match fact {
            TaskFact::Added { spec, depends_on, .. } => {
                self.children += usize::from(spec.parent.is_some());
                self.tasks.insert(id, (spec, depends_on));
            }
            TaskFact::Started { runner, .. } => {
                let waits = |(_, edges): &(_, Vec<Edge>)| edges.iter().any(|edge| !self.completed.contains(&edge.on));
                self.early += usize::from(self.tasks.get(&id).is_some_and(waits));
                self.runs += 1;
                self.doubled += usize::from(self.live.insert(id, runner).is_some());
                self.count_runners();
            }
            TaskFact::Adopted { run, runner, .. } => {
                self.adopted.insert(run);
                self.live.insert(id, runner);
                self.count_runners();
            }
            // The runner was killed after the claim and before the start.
            TaskFact::Restarting { ending: RunEnd::Never | RunEnd::NotBegun { .. }, .. } => {
                self.live.remove(&id);
                self.runs -= 1;
                self.never_begun += 1;
            }
            TaskFact::Restarting { why: Some(RetryReason::NoVerdict), .. } => {
                self.live.remove(&id);
                self.restarted.extend(self.title(&id));
            }
            TaskFact::Recovered { .. } => self.recovered.extend(self.title(&id)),
            TaskFact::Escalated { .. } => {
                self.live.remove(&id);
                self.escalated.extend(self.title(&id));
            }
            TaskFact::Restarting { .. } => {
                self.live.remove(&id);
                self.crashed.extend(self.title(&id));
            }
            TaskFact::Complete { .. } => {
                self.live.remove(&id);
                self.completed.insert(id);
            }
            TaskFact::Failed { .. } | TaskFact::Cancelled { .. } => {
                self.live.remove(&id);
            }
            _ => {}
        }
    }

    fn title(&self, id: &TaskId) -> Option<String> {
        self.tasks.get(id).map(|(spec, _)| spec.title.to_string())
    }

    fn count_runners(&mut self) {
        for section in &self.exclusive {
            let is_in = |task: &TaskId| self.tasks.get(task).is_some_and(|(spec, _)| spec.section.as_ref() == Some(section));
            let at_work: BTreeSet<&RunnerId> =
                self.live.iter().filter(|(task, _)| is_in(task)).map(|(_, runner)| runner).collect();
            self.most_runners = self.most_runners.max(at_work.len());
        }
    }

    fn resource(&mut self, name: String, fact: Fact) {
        let holders = self.held.entry(name.clone()).or_default();
        match fact {
            Fact::Acquired(claim) => {
                holders.insert(claim.holder, claim.weight);
                let taken: u32 = holders.values().sum();
                let most = self.most.entry(name).or_default();
                *most = taken.max(*most);
            }
            Fact::Released(ended) | Fact::Reclaimed(ended) => {
                holders.remove(&ended.holder);
            }
            Fact::Defined(_) | Fact::Increased(_) | Fact::OfferLapsed(_) => {}
        }
    }
}
