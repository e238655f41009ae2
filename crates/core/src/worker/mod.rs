//! A worker: turns the items of a queue into tasks or pipelines, a few at a time.
//!
//! ```text
//!            define                 wake                       take, up to its concurrency
//!   nothing -------> asleep <------------------> awake ------------------------------------> a job
//!                 (with wake_on)   drained      (without wake_on: always)                     |
//!                                                  ^------------- its task has ended ---------'
//!   remove: it takes nothing more, and is gone with its last job
//! ```
//!
//! Invariants: a worker has at most as many jobs as its concurrency allowed when it took them; a worker that is asleep
//! has none; a removed worker without jobs is gone; no two of its jobs are the same take.
//!
//! Like the queues of a project, all workers are one machine: it is the model of all workers of a project in tests, and
//! filled with the rows of one batch it *is* the decision. The rows follow from the events alone, so `Worker::apply`
//! serves both.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use crate::event::Event;
use crate::ids::{Epoch, HolderId, ItemId, Name, NameError, Seq, TaskId};
use crate::pipeline::plan::{Plan, RunCommand};
use crate::route::Pattern;
use crate::step::{EffectBuffer, Now, Step};
use crate::time::{Lease, Span};

/// How many workers a project can have.
pub const WORKERS_LIMIT: usize = 1_000;

/// How many items one worker can process at a time.
pub const CONCURRENCY_LIMIT: u32 = 10_000;

/// The definition of a worker in a runbook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    pub runbook: Box<str>,
    pub name: Name,
    /// The queue whose items it takes.
    pub queue: Name,
    /// The job for each item.
    pub job: Job,
    /// How many items it processes at a time.
    pub concurrency: u32,
    /// The events that wake it. Without any it is always awake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wake_on: Vec<Pattern>,
    /// How long an item waits after its first attempt has failed; twice as long after each further one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub retry_delay: Span,
}

fn is_none(span: &Span) -> bool {
    *span == Span::ZERO
}

/// The longest wait before an item is retried.
const RETRY_LIMIT: Span = Span::from_secs(3_600);

impl Definition {
    /// How long an item waits after this attempt, counted from 1, has failed.
    pub fn retry_after(&self, attempt: u32) -> Span {
        let after = Span::from_ms(self.retry_delay.as_ms().saturating_mul(1 << (attempt.clamp(1, 31) - 1)));
        // A longer delay in the definition is kept.
        after.min(self.retry_delay.max(RETRY_LIMIT))
    }
}

/// The job for an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Job {
    /// A pipeline. Its variables get their values from the fields of the item with the same names; the variable `item`
    /// gets the complete item.
    Pipeline(Arc<Plan>),
    /// A task with this work. A command finds the item in its environment.
    Task {
        #[serde(rename = "deed")]
        run_command: RunCommand,
        /// How long it may take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<Span>,
    },
}

/// All workers of a project, or the ones that a decision needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workers {
    pub workers: BTreeMap<Name, Worker>,
}

/// A worker. The baseline of the log keeps it in this form: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    pub definition: Arc<Definition>,
    /// Whether a person has paused it.
    pub paused: bool,
    /// Whether it takes items until its queue is empty.
    pub awake: bool,
    /// Whether it was removed, and only its jobs are left.
    pub removed: bool,
    /// The event that defined it, or since which it is asleep: only later events wake it.
    pub since: Seq,
    pub jobs: BTreeMap<TaskId, Taken>,
}

/// An item that became a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub queue: Name,
    pub item: ItemId,
    /// The number of the take.
    pub epoch: Epoch,
}

/// The events of a worker in the log. The variants are the second words of their kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", prefix = "worker:")]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Fact {
    /// It was defined, or changed.
    Defined(Arc<Definition>),
    /// It takes no more items, and is gone after its last job.
    Removed {},
    /// A person has paused it.
    Paused {},
    /// It may take items again.
    Resumed {},
    /// It takes items until its queue is empty.
    Woken {},
    /// Its queue is empty, and it waits to be woken.
    Asleep {},
    /// An item became a task.
    Take {
        task: TaskId,
        /// The item.
        #[serde(flatten)]
        taken: Taken,
    },
    /// The task of an item has ended.
    End { task: TaskId, how: JobEnd },
}

/// How the task of an item ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEnd {
    /// It was completed, and so is the item.
    Completed,
    /// It has failed, and so has the attempt at the item.
    Failed,
    /// A person cancelled or skipped it.
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Define it, or change it.
    Define(Arc<Definition>),
    /// Take no more items, and be gone after the last job.
    Remove,
    /// Take items until its queue is empty.
    Wake,
    Pause,
    /// Take items again.
    Resume,
    /// An item was taken for it, and became this task.
    Take {
        task: TaskId,
        taken: Taken,
    },
    /// The task of one of its items has ended.
    Ended {
        task: TaskId,
        how: JobEnd,
    },
    /// Its queue is empty.
    Drained,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Created,
    /// Its definition has changed.
    Changed,
    /// It has this definition already.
    Same,
    /// Another runbook has one of this name.
    Foreign {
        runbook: Box<str>,
    },
    /// There are too many workers.
    TooMany,
    /// Its name is too long for the name of a holder.
    BadName,
    /// There is no such worker.
    Unknown,
    /// It is gone, or will be after its last job.
    Removed {
        /// The number of its jobs.
        jobs: usize,
    },
    Woken,
    Awake,
    /// It takes nothing from now on.
    Paused,
    Resumed,
    /// It waits to be woken.
    Asleep,
    /// The item is its job.
    Taken,
    /// It has as many jobs as it may have.
    Full,
    /// The job is over; this was its item.
    Ended(Taken),
    /// It has no such job, or the job was over before.
    NoJob,
}

/// The holder of the items that a worker processes.
pub fn holder(name: &Name) -> Result<HolderId, NameError> {
    HolderId::new(&format!("worker:{name}"))
}

impl Workers {
    /// Decides one input to the worker of this name.
    pub fn step(mut self, name: &Name, input: Input, now: &Now) -> Step<Workers, Outcome> {
        let mut buffer = EffectBuffer::new(now);
        let (fact, outcome) = self.decide(name, input);
        if let Some(fact) = fact {
            let seq = buffer.next();
            buffer.emit(Event::Worker { name: name.clone(), fact: fact.clone() });
            self.apply(seq, name, fact);
        }
        Step { state: self, outcome, effects: buffer.effects }
    }

    fn decide(&self, name: &Name, input: Input) -> (Option<Fact>, Outcome) {
        let worker = self.workers.get(name);
        if let Input::Define(definition) = input {
            return self.define(name, worker, definition);
        }
        let Some(worker) = worker else { return (None, Outcome::Unknown) };
        match input {
            Input::Ended { task, how } => match worker.jobs.get(&task).cloned() {
                Some(taken) => (Some(Fact::End { task, how }), Outcome::Ended(taken)),
                None => (None, Outcome::NoJob),
            },
            // Only its jobs still exist.
            _ if worker.removed => (None, Outcome::Unknown),
            Input::Define(_) => unreachable!("it was decided before"),
            Input::Remove => (Some(Fact::Removed {}), Outcome::Removed { jobs: worker.jobs.len() }),
            Input::Wake if worker.awake => (None, Outcome::Awake),
            Input::Wake => (Some(Fact::Woken {}), Outcome::Woken),
            Input::Pause => ((!worker.paused).then_some(Fact::Paused {}), Outcome::Paused),
            Input::Resume => (worker.paused.then_some(Fact::Resumed {}), Outcome::Resumed),
            Input::Take { task, taken } => match worker.refusal() {
                Some(refusal) => (None, refusal),
                None => (Some(Fact::Take { task, taken }), Outcome::Taken),
            },
            Input::Drained if !worker.awake => (None, Outcome::Asleep),
            // Items that its jobs return can only be taken while it is awake.
            Input::Drained if worker.definition.wake_on.is_empty() || !worker.jobs.is_empty() => (None, Outcome::Awake),
            Input::Drained => (Some(Fact::Asleep {}), Outcome::Asleep),
        }
    }

    fn define(&self, name: &Name, worker: Option<&Worker>, definition: Arc<Definition>) -> (Option<Fact>, Outcome) {
        let outcome = match worker {
            _ if holder(name).is_err() => return (None, Outcome::BadName),
            None if self.workers.len() >= WORKERS_LIMIT => return (None, Outcome::TooMany),
            None => Outcome::Created,
            Some(worker) if worker.removed => Outcome::Created,
            Some(worker) if worker.definition.runbook != definition.runbook => {
                return (None, Outcome::Foreign { runbook: worker.definition.runbook.clone() });
            }
            Some(worker) if worker.definition == definition => return (None, Outcome::Same),
            Some(_) => Outcome::Changed,
        };
        (Some(Fact::Defined(definition)), outcome)
    }

    /// Applies a fact.
    pub fn apply(&mut self, seq: Seq, name: &Name, fact: Fact) {
        if let Fact::Defined(definition) = fact {
            let worker = Worker::defined(self.workers.remove(name), definition, seq);
            self.workers.insert(name.clone(), worker);
            return;
        }
        let Some(worker) = self.workers.get_mut(name) else { return };
        worker.apply(seq, fact);
        if worker.removed && worker.jobs.is_empty() {
            self.workers.remove(name);
        }
    }

    /// Time alone changes nothing for a worker: its queue knows when its items are due.
    pub fn next_deadline(&self) -> Option<Lease> {
        None
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        for (name, worker) in &self.workers {
            assert!(worker.awake || worker.jobs.is_empty(), "{name} is asleep and at work");
            assert!(!worker.removed || !worker.jobs.is_empty(), "{name} is gone and still there");
            assert!(worker.awake || !worker.definition.wake_on.is_empty(), "nothing wakes {name}");
            let mut takes: Vec<Epoch> = worker.jobs.values().map(|taken| taken.epoch).collect();
            takes.sort_unstable();
            assert!(takes.windows(2).all(|pair| pair[0] != pair[1]), "{name} has two jobs of one take");
        }
    }
}

impl Worker {
    /// The worker with a new definition. Its jobs and its pause stay.
    fn defined(was: Option<Worker>, definition: Arc<Definition>, since: Seq) -> Worker {
        let sleeps = !definition.wake_on.is_empty();
        match was {
            Some(was) => {
                // A sleeping worker whose new definition has no events to wake it could never wake up.
                let awake = (was.awake && !was.removed) || !sleeps || !was.jobs.is_empty();
                Worker { definition, paused: was.paused && !was.removed, awake, removed: false, since, jobs: was.jobs }
            }
            None => Worker { definition, paused: false, awake: !sleeps, removed: false, since, jobs: BTreeMap::new() },
        }
    }

    fn apply(&mut self, seq: Seq, fact: Fact) {
        match fact {
            Fact::Defined(_) => unreachable!("it creates the worker"),
            Fact::Removed {} => self.removed = true,
            Fact::Paused {} => self.paused = true,
            Fact::Resumed {} => self.paused = false,
            Fact::Woken {} => self.awake = true,
            // Its queue was empty then: earlier events have no effect any more, even if they were not processed yet.
            Fact::Asleep {} => (self.awake, self.since) = (false, seq),
            Fact::Take { task, taken } => drop(self.jobs.insert(task, taken)),
            Fact::End { task, .. } => drop(self.jobs.remove(&task)),
        }
    }

    /// Why it takes no items at the moment, if it does not.
    pub fn refusal(&self) -> Option<Outcome> {
        match self {
            _ if self.removed => Some(Outcome::Unknown),
            _ if self.paused => Some(Outcome::Paused),
            _ if !self.awake => Some(Outcome::Asleep),
            _ if self.room() == 0 => Some(Outcome::Full),
            _ => None,
        }
    }

    /// How many more jobs it may have.
    pub fn room(&self) -> usize {
        usize::try_from(self.definition.concurrency).unwrap_or(usize::MAX).saturating_sub(self.jobs.len())
    }

    /// The word for its state.
    pub fn state(&self) -> &'static str {
        match self {
            _ if self.removed => "finishing",
            _ if self.paused => "paused",
            _ if !self.awake => "asleep",
            _ if !self.jobs.is_empty() => "busy",
            _ => "awake",
        }
    }
}

impl Job {
    /// The job in a few words.
    pub fn describe(&self) -> String {
        match self {
            Job::Pipeline(plan) => format!("pipeline {}", plan.name),
            Job::Task { run_command, .. } => match run_command {
                RunCommand::Run(command) => command.to_string(),
                RunCommand::Argv(argv) => argv.join(" "),
                RunCommand::Agent { name, .. } => format!("agent {name}"),
                RunCommand::Merge(_) => "a merge".into(),
            },
        }
    }
}

impl Fact {
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests;
