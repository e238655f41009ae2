//! The rows around tasks: sections, dependencies, runs, runners, and errands on their way out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::claim::Address;
use crate::event::Resource;
use crate::ids::{Epoch, RunId, RunnerId, SectionId, Seq, TaskId, Title};
use crate::process::ProcessId;
use crate::step::Errand;
use crate::task::{Ending, Need, Task};
use crate::time::{Lease, Stamp, Wall};

/// Tasks and all that belongs to them, or the part of it that one decision needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backlog {
    /// The sections.
    pub sections: BTreeMap<SectionId, Section>,
    /// The tasks.
    pub tasks: BTreeMap<TaskId, Task>,
    /// What each of these tasks depends on.
    pub edges: BTreeMap<TaskId, Vec<Edge>>,
    /// The runs.
    pub runs: BTreeMap<RunId, Run>,
    /// The runners.
    pub runners: BTreeMap<RunnerId, Runner>,
    /// What must be done outside, oldest first.
    pub outbox: BTreeMap<Seq, Sent>,
}

/// An ordered group of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Which one.
    pub id: SectionId,
    /// What people call it.
    pub name: Title,
    /// Whether one runner at a time works in it.
    pub exclusive: bool,
    /// Its place: the number of the event that added it.
    pub position: Seq,
}

/// A dependency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// The task that must be completed first.
    pub on: TaskId,
    /// Whether it is enough that it is over, however it ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_failed: bool,
}

/// One attempt at a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Which one.
    pub id: RunId,
    /// At which task.
    pub task: TaskId,
    /// Counted from 0.
    pub attempt: u32,
    /// Its fencing number, fixed for the run.
    pub epoch: Epoch,
    /// The runner that looks after it.
    pub owner: RunnerId,
    /// Rises with every change of the owner.
    pub owner_epoch: Epoch,
    /// What it holds.
    pub holds: Vec<Hold>,
    /// Its processes, once it is known that they were started.
    pub session: Option<Session>,
    /// The machine that it runs on.
    pub host: Box<str>,
    /// The boot of that machine: none of its processes outlives it.
    pub boot: Box<str>,
    /// Since when.
    pub started: Stamp,
    /// How and when it ended.
    pub ended: Option<Ended>,
}

/// What a run holds while it lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// A lock or slots.
    pub need: Need,
    /// The grant.
    pub epoch: Epoch,
}

/// The processes of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The process that keeps it.
    pub keeper: i32,
    /// The first process of the tree.
    pub child: i32,
}

/// How and when a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub ending: Ending,
    /// When, for people.
    pub at: Wall,
    /// What is to be said beside it, such as output that could not be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Box<str>>,
}

/// A process that claims tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    /// Which one.
    pub id: RunnerId,
    /// Its process.
    pub process: ProcessId,
    /// Where to wake it.
    pub address: Address,
    /// The sections it works in; all if empty.
    pub sections: Vec<SectionId>,
    /// How many runs it starts at most.
    pub max_runs: Option<u32>,
    /// What it found in the way of tasks that are ready otherwise.
    pub watching: Vec<Resource>,
    /// Since when it runs.
    pub started: Stamp,
    /// When it was last heard of. Only kept up where its death cannot be seen from everywhere.
    pub seen: Lease,
}

/// An errand in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Its number: errands of one subject are done in this order.
    pub seq: Seq,
    /// What is to be done.
    pub errand: Errand,
    /// Who does it.
    pub executor: RunnerId,
    /// How often it was tried in vain.
    pub attempts: u32,
}

impl Run {
    /// Whether it may have live processes.
    pub fn is_live(&self) -> bool {
        self.ended.is_none()
    }
}

impl Backlog {
    /// The live runs of a section.
    pub fn live_in<'a>(&'a self, section: &'a SectionId) -> impl Iterator<Item = &'a Run> {
        let is_in = move |run: &&Run| self.tasks.get(&run.task).is_some_and(|task| task.spec.section.as_ref() == Some(section));
        self.runs.values().filter(|run| run.is_live()).filter(is_in)
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        self.tasks.values().for_each(Task::check);
        for run in self.runs.values().filter(|run| run.is_live()) {
            if let Some(task) = self.tasks.get(&run.task) {
                let live = task.live().map(|live| (&live.run, live.epoch));
                assert_eq!(live, Some((&run.id, run.epoch)), "run {} lives, but task {} does not know it", run.id, task.id);
            }
        }
    }
}
