//! The requests of people and runners to workers: wake, pause, resume; items become tasks, and the end of a task settles its item.

use banksman_core::pipeline::plan::{self, Context};
use banksman_core::queue::{self, DUE_PER_TAKE, Hold, Item, Part, Queues};
use banksman_core::task::{OfItem, Spec, State, TaskEnd, Work};
use banksman_core::worker::{self, Definition, Job, JobEnd, Taken, Worker};
use banksman_core::{Effect, ItemId, Lease, Name, Notice, NoticeKind, OutboxCommand, Span, Task, TaskId, Title};
use banksman_store::{Key, Tx};

use crate::calls::pipelines::phases;
use crate::calls::pipelines::{self, Start};
use crate::calls::queues::step_queue;
use crate::calls::steps::{carry_out, wake_runners};
use crate::calls::tasks;

/// The visibility timeout of an item of a worker, practically unlimited: the end of its task settles the item, not time.
const UNLIMITED: Span = Span::from_secs(100 * 365 * 86_400);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerRequest {
    /// Let the worker take items until its queue is empty.
    Wake {
        worker: Name,
    },
    Pause {
        worker: Name,
    },
    Resume {
        worker: Name,
    },
    /// Turn the next item of the queue into a task.
    Take {
        worker: Name,
        queue: Name,
    },
    /// Settle the item of a task that is over.
    Settle {
        worker: Name,
        task: TaskId,
        /// The item of the task.
        taken: Taken,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerOutcome {
    Stepped(worker::Outcome),
    /// An item became this task.
    Took {
        task: TaskId,
        item: ItemId,
    },
    /// The item cannot become a task, and is dead.
    Unfit {
        item: ItemId,
        error: Box<str>,
    },
    /// There is nothing to take.
    Empty {
        /// When the next item becomes available.
        next: Option<Lease>,
    },
    /// The queue is paused, or does not exist.
    NoQueue,
    /// The worker takes from another queue.
    Elsewhere,
    /// The task is not over.
    NotOver,
    /// The item is completed, or its attempt has failed, with the outcome of the queue.
    Settled(queue::Outcome),
}

impl WorkerRequest {
    fn worker(&self) -> &Name {
        match self {
            WorkerRequest::Wake { worker }
            | WorkerRequest::Pause { worker }
            | WorkerRequest::Resume { worker }
            | WorkerRequest::Take { worker, .. }
            | WorkerRequest::Settle { worker, .. } => worker,
        }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let mut keys = vec![Key::Worker(self.worker().clone()), Key::Runners];
        let around = |queue: &Name| {
            [Key::NamedQueue(queue.clone()), Key::Takers(queue.clone()), Key::WorkerRunnersBeyond(queue.clone())].into_iter()
        };
        match self {
            WorkerRequest::Wake { .. } | WorkerRequest::Pause { .. } | WorkerRequest::Resume { .. } => {}
            WorkerRequest::Take { queue, .. } => {
                keys.extend(around(queue));
                keys.extend([Key::Sections, Key::Head { queue: queue.clone(), takes: 1, removed: 0, ended: 0 }, later(queue)]);
            }
            WorkerRequest::Settle { task, taken, .. } => {
                keys.extend(around(&taken.queue));
                keys.extend([Key::Task(task.clone()), Key::Item(taken.item)]);
                keys.push(Key::Head { queue: taken.queue.clone(), takes: 0, removed: 0, ended: 1 });
            }
        }
        keys
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> WorkerOutcome {
        match self {
            WorkerRequest::Wake { worker } => step_and_wake(worker, worker::Input::Wake, tx),
            WorkerRequest::Pause { worker } => step_and_wake(worker, worker::Input::Pause, tx),
            WorkerRequest::Resume { worker } => step_and_wake(worker, worker::Input::Resume, tx),
            WorkerRequest::Take { worker, queue } => take(worker, queue, tx),
            WorkerRequest::Settle { worker, task, taken } => settle(worker, task, taken, tx),
        }
    }
}

/// Steps a worker, and carries out the effects.
pub(crate) fn step_worker(name: &Name, input: worker::Input, tx: &mut Tx) -> worker::Outcome {
    let now = tx.now(Vec::new(), Span::ZERO);
    let step = std::mem::take(&mut tx.tables.automation.workers).step(name, input, &now);
    tx.tables.automation.workers = step.state;
    tx.carry_out(step.effects, false);
    step.outcome
}

fn step_and_wake(name: &Name, input: worker::Input, tx: &mut Tx) -> WorkerOutcome {
    let before = tx.seq;
    let outcome = step_worker(name, input, tx);
    if tx.seq != before {
        wake_runners(tx);
    }
    WorkerOutcome::Stepped(outcome)
}

/// Turns one item into a task: takes the item, adds the task and records the job.
fn take(name: &Name, queue: &Name, tx: &mut Tx) -> WorkerOutcome {
    let Some(worker) = tx.tables.automation.workers.workers.get(name) else {
        return WorkerOutcome::Stepped(worker::Outcome::Unknown);
    };
    if let Some(refusal) = worker.refusal() {
        return WorkerOutcome::Stepped(refusal);
    }
    let definition = worker.definition.clone();
    if definition.queue != *queue {
        return WorkerOutcome::Elsewhere;
    }
    let holder = worker::holder(name).expect("one with a longer name was refused");
    let input = queue::Input::Take { holder: holder.clone(), wait: None, ticket: None };
    let item = match step_queue(queue, input, tx) {
        queue::Outcome::Taken(item) => *item,
        queue::Outcome::Empty { next } => {
            // A drained worker sleeps, and would miss the items that become available later.
            if !waits(queue, &tx.tables.queues) {
                step_worker(name, worker::Input::Drained, tx);
            }
            return WorkerOutcome::Empty { next };
        }
        _ => return WorkerOutcome::NoQueue,
    };
    let hold = Hold { item: item.id, holder, epoch: item.fence };
    step_queue(queue, queue::Input::Extend(hold.clone(), Some(UNLIMITED)), tx);
    let taken = Taken { queue: queue.clone(), item: item.id, epoch: item.fence };
    tx.depth = item.depth;
    match begin(&definition, &item, taken.clone(), tx) {
        Ok(task) => {
            let outcome = step_worker(name, worker::Input::Take { task: task.clone(), taken }, tx);
            debug_assert_eq!(outcome, worker::Outcome::Taken, "its refusal was checked before");
            WorkerOutcome::Took { task, item: item.id }
        }
        Err(error) => {
            // Neither the item nor the definition changes in between: another attempt would fail the same way.
            fail(queue, hold, &error, None, tx);
            WorkerOutcome::Unfit { item: item.id, error: error.into() }
        }
    }
}

/// The first delayed items of a queue. They may be missing in the head of the queue, where held items can come before them.
pub(crate) fn later(queue: &Name) -> Key {
    Key::Part { queue: queue.clone(), part: Part::Backoff, limit: 1 + DUE_PER_TAKE as u32 }
}

/// Whether there are items in a queue that will be taken, now or later.
pub(crate) fn waits(queue: &Name, queues: &Queues) -> bool {
    let waits = |item: &Item| matches!(item.state, queue::State::Pending { .. } | queue::State::Failed { .. });
    queues.items.values().any(|item| item.queue == *queue && waits(item))
}

/// Adds the task, or starts the pipeline, that an item becomes.
fn begin(definition: &Definition, item: &Item, taken: Taken, tx: &mut Tx) -> Result<TaskId, String> {
    let title = Title::new(&format!("{} {}", definition.name, item.id)).map_err(|error| error.to_string())?;
    let of_item = OfItem { worker: definition.name.clone(), taken, attempt: item.attempts };
    let plain = Spec { item: Some(Box::new(of_item)), ..Spec::new(title) };
    match &definition.job {
        Job::Pipeline(plan) => {
            let vars = plan.bind_known(variables(item, true)).map_err(|error| error.to_string())?;
            let title = plan.called(&vars.context).unwrap_or_else(|| plain.title.clone());
            let (workspace, land) = plan.place(&vars.context);
            let spec = Spec { title, work: Some(Work::Pipeline(plan.clone())), workspace, land, ..plain };
            let id = id_of(item, "p");
            pipelines::begin_life(&Start { id: id.clone(), spec, depends_on: Vec::new(), vars, by: None }, tx);
            Ok(id)
        }
        Job::Task { run_command, timeout } => {
            let mut env = plan::environment(&variables(item, false));
            env.insert("BANKSMAN_ITEM".into(), item.data.value().to_string().into());
            env.insert("BANKSMAN_ITEM_ID".into(), item.id.to_string().into());
            let spec = Spec { work: Some(phases::work(run_command, &variables(item, true))?), env, timeout: *timeout, ..plain };
            let id = id_of(item, "t");
            tasks::add(&id, &spec, &[], None, tx);
            Ok(id)
        }
    }
}

/// The id of the task that an item becomes in this take. It is unique because the epoch of a take is the number of its event.
fn id_of(item: &Item, kind: &str) -> TaskId {
    TaskId::new(&format!("{kind}-{}.{}", item.id.0, item.fence)).expect("two numbers are short and plain")
}

/// The fields of an item; with `with_item` also the complete item as `item`, and the number of the attempt.
fn variables(item: &Item, with_item: bool) -> Context {
    let mut variables: Context = match item.data.value() {
        serde_json::Value::Object(fields) => fields.iter().map(|(name, value)| (name.as_str().into(), value.clone())).collect(),
        _ => Context::new(),
    };
    if with_item {
        variables.insert("item".into(), item.data.value().clone());
        variables.insert("attempt".into(), item.attempts.into());
    }
    variables
}

/// Fails an attempt at an item. If it was the last, people are notified, because a failed task of an item sends no notification.
fn fail(queue: &Name, hold: Hold, error: &str, retry_after: Option<Span>, tx: &mut Tx) -> queue::Outcome {
    let mut end = error.len().min(queue::ERROR_LIMIT);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    let (item, error): (ItemId, Box<str>) = (hold.item, error[..end].into());
    let outcome = step_queue(queue, queue::Input::Fail { hold, error: error.clone(), retry_after }, tx);
    if let queue::Outcome::Dead { .. } = &outcome {
        let subject = format!("dead: item {item} of queue {queue}").into();
        let notice = Notice { kind: NoticeKind::TaskFailed, subject, text: error };
        carry_out(tx, vec![Effect::Send(OutboxCommand::Notify(Box::new(notice)))], None);
    }
    outcome
}

/// The end of a job, and the error of its item, that follow from the end of its task.
fn verdict(task: Option<&Task>) -> Option<(JobEnd, String)> {
    Some(match task.map(|task| (&task.id, &task.state)) {
        None => (JobEnd::Cancelled, "its task was deleted".into()),
        Some((_, State::Done(TaskEnd::Success { .. }))) => (JobEnd::Completed, String::new()),
        Some((_, State::Done(TaskEnd::Failed { error }))) => (JobEnd::Failed, error.to_string()),
        Some((id, State::Done(TaskEnd::Cancelled))) => (JobEnd::Cancelled, format!("its task {id} was cancelled")),
        Some((id, State::Done(TaskEnd::Skipped))) => (JobEnd::Cancelled, format!("its task {id} was skipped")),
        Some(_) => return None,
    })
}

fn settle(name: &Name, task: &TaskId, taken: &Taken, tx: &mut Tx) -> WorkerOutcome {
    let job = tx.tables.automation.workers.workers.get(name).and_then(|worker: &Worker| worker.jobs.get(task));
    if job != Some(taken) {
        return WorkerOutcome::Stepped(worker::Outcome::NoJob);
    }
    let Some((how, error)) = verdict(tx.tables.backlog.tasks.get(task)) else { return WorkerOutcome::NotOver };
    let attempt = tx.tables.queues.items.get(&taken.item).map_or(1, |item| item.attempts);
    let retry_after = tx.tables.automation.workers.workers[name].definition.retry_after(attempt);
    step_worker(name, worker::Input::Ended { task: task.clone(), how }, tx);
    let holder = worker::holder(name).expect("one with a longer name was refused");
    let hold = Hold { item: taken.item, holder, epoch: taken.epoch };
    // An item that a person has purged or requeued meanwhile is refused, which is fine.
    WorkerOutcome::Settled(match how {
        JobEnd::Completed => step_queue(&taken.queue, queue::Input::Complete(hold), tx),
        JobEnd::Failed | JobEnd::Cancelled => fail(&taken.queue, hold, &error, Some(retry_after), tx),
    })
}
