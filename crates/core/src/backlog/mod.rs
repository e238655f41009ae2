//! The rows around tasks: sections, dependencies, runs, runners, and outbox commands on their way out.

mod run;
mod runner;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agent::limit::AccountLimit;
use crate::agent::spend::DaySpend;
use crate::decision::Decision;
use crate::ids::{DecisionId, Epoch, HolderId, ImportId, LandingId, Name, RunId, RunnerId, SectionId, Seq, TaskId, Title};
use crate::import::Import;
use crate::landing::{Entry, Target};
use crate::pause::Pause;
use crate::pipeline::Pipeline;
use crate::step::OutboxCommand;
use crate::task::dependencies;
use crate::task::limits::Limits;
use crate::task::{Status, Task};
use crate::time::{Lease, Span, Wall};
use crate::workspace::Workspace;

pub use self::run::{Hold, Run, RunEndRecord, RunLease, Session};
pub use self::runner::{Idle, Runner, Shortage, Terms};

/// Tasks and all that belongs to them, or the part of it that one decision needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backlog {
    pub sections: BTreeMap<SectionId, Section>,
    pub tasks: BTreeMap<TaskId, Task>,
    /// The dependencies of each of these tasks.
    pub edges: BTreeMap<TaskId, Vec<Edge>>,
    pub runs: BTreeMap<RunId, Run>,
    pub runners: BTreeMap<RunnerId, Runner>,
    /// The commands that are not executed yet, oldest first.
    pub outbox: BTreeMap<Seq, OutboxEntry>,
    /// The questions for people.
    pub decisions: BTreeMap<DecisionId, Decision>,
    pub totals: BacklogTotals,
    /// The pipelines, each under the id of its task.
    pub pipelines: BTreeMap<TaskId, Pipeline>,
    /// The workspaces, each under the id of its owner.
    pub workspaces: BTreeMap<TaskId, Workspace>,
    /// The imports that are not finished.
    pub imports: BTreeMap<ImportId, Import>,
    /// Claims that ended against the will of their holders, who were not notified yet.
    pub lost_claims: BTreeMap<(TaskId, HolderId), LostClaim>,
    /// The tasks that are added as part of an import. It is for the row alone, and read back only with the tasks of an
    /// import that is dropped.
    pub imported: BTreeMap<TaskId, ImportId>,
    /// The entries of merge queues.
    pub landings: BTreeMap<LandingId, Entry>,
    /// The branches that they land on.
    pub landing_targets: BTreeMap<Name, Target>,
    /// The usage and cost of agents, by day and agent.
    pub spend: BTreeMap<(i64, Name), DaySpend>,
    /// The limits of accounts that were reached, each under the name of its resource.
    pub account_limits: BTreeMap<Name, AccountLimit>,
    /// The limits on concurrent work; `None` until the first runner, or a person, has set them. They are read with
    /// every row.
    pub limits: Option<Limits>,
    /// The pause, if a person has set one. It is read with every row.
    pub pause: Option<Pause>,
}

/// A claim that ended against the will of its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostClaim {
    pub task: TaskId,
    pub holder: HolderId,
    /// The grant of the task's lock.
    pub epoch: Epoch,
    pub reason: Box<str>,
    pub at: Wall,
}

/// The totals of the backlog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BacklogTotals {
    /// The number of the last event which reported that nothing is left to do.
    pub finished_at: Seq,
    /// The last run that began.
    pub last_run: Epoch,
    /// The number of tasks by status, as far as they were counted.
    pub counts: BTreeMap<Status, u64>,
    /// The number of dead items of workers, as far as they were counted.
    pub dead: u64,
}

/// An ordered group of tasks. The baseline of the log keeps it in its serialized form: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    #[serde(skip_serializing)]
    pub id: SectionId,
    pub name: Title,
    /// Whether one runner at a time works in it.
    pub exclusive: bool,
    /// Its place: the number of the event that added it.
    pub position: Seq,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// The task that must be completed first.
    pub on: TaskId,
    /// Whether any end of that task is enough, also a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_failed: bool,
}

/// A command in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// The number: commands of one subject are executed in this order.
    pub seq: Seq,
    pub command: OutboxCommand,
    /// The runner that executes it; any runner if there is none.
    pub executor: Option<RunnerId>,
    /// The number of failed attempts.
    pub attempts: u32,
    /// It is not executed before this time.
    pub due: Lease,
}

/// How many attempts an outbox command has.
pub const COMMAND_ATTEMPTS: u32 = 5;

impl OutboxEntry {
    /// A command that was not tried yet.
    pub fn new(seq: Seq, command: OutboxCommand, executor: Option<RunnerId>, now: Lease) -> OutboxEntry {
        OutboxEntry { seq, command, executor, attempts: 0, due: now }
    }

    /// Whether it has used all its attempts, so that a person must decide.
    pub fn is_dead(&self) -> bool {
        self.attempts >= COMMAND_ATTEMPTS
    }

    /// Records a failed attempt; the delay before the next one doubles.
    pub fn failed(&mut self, now: Lease) {
        self.attempts += 1;
        self.due = now + Span::from_secs(1 << self.attempts.min(6).saturating_sub(1));
    }
}

impl BacklogTotals {
    /// Whether a run began since the last report that nothing is left to do.
    pub fn has_run_since(&self) -> bool {
        self.last_run > Epoch::from(self.finished_at)
    }
}

impl Backlog {
    /// The live runs of a section.
    pub fn live_in<'a>(&'a self, section: &'a SectionId) -> impl Iterator<Item = &'a Run> {
        let is_in = move |run: &&Run| self.tasks.get(&run.task).is_some_and(|task| task.spec.section.as_ref() == Some(section));
        self.runs.values().filter(|run| run.is_live()).filter(is_in)
    }

    /// How many dependencies hold a task back. They must be among the rows.
    pub fn unmet(&self, id: &TaskId) -> u32 {
        let status = |on: &TaskId| self.tasks.get(on).map(Task::status);
        let edges = self.edges.get(id).into_iter().flatten();
        let unmet = edges.filter(|edge| !status(&edge.on).is_some_and(|status| dependencies::is_met(status, edge.allow_failed)));
        u32::try_from(unmet.count()).unwrap_or(u32::MAX)
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        self.tasks.values().for_each(Task::check);
        self.decisions.values().for_each(Decision::check);
        self.pipelines.values().for_each(Pipeline::check);
        for run in self.runs.values().filter(|run| run.is_live()) {
            if let Some(task) = self.tasks.get(&run.task) {
                let live = task.live().map(|live| (&live.run, live.epoch));
                assert_eq!(live, Some((&run.id, run.epoch)), "run {} lives, but task {} does not know it", run.id, task.id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
