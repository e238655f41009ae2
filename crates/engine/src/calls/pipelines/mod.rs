//! The requests of people and runners to pipelines: start, set, retry, unblock; and how a pipeline follows its tasks.

pub(crate) mod guards;
pub(crate) mod phases;

use banksman_core::backlog::Edge;
use banksman_core::event::{Event, Kind, Resource};
use banksman_core::guard::Wants;
use banksman_core::pipeline::plan::{BindError, Bound, Context};
use banksman_core::pipeline::{Fact, GuardsResult, Input, Outcome, Pipeline, Reason, Refusal, State};
use banksman_core::queue::{self, Data, New, Pushed};
use banksman_core::resource::coordination::Command;
use banksman_core::task::admission::Admission;
use banksman_core::task::dependencies;
use banksman_core::task::{self, Need, PipelineStatus, Spec, TaskEnd, Work};
use banksman_core::{Epoch, Name, RunnerId, Seq, Span, Task, TaskId};
use banksman_store::{Key, Tx};

use crate::calls::pipelines::guards::GuardCheck;
use crate::calls::queues::step_queue;
use crate::calls::steps::{Draft, carry_out, emit, follow_landing, note_reopened, step_task, wake_runners, withdraw};
use crate::calls::tasks::{self, TaskOutcome};
use crate::facts;
use crate::request::Seen;

#[derive(Debug, Clone)]
pub enum PipelineRequest {
    Start(Box<Start>),
    /// Begin with the first phase, if nothing blocks it. The claim of a runner also does this.
    Begin {
        id: TaskId,
        /// The resources that must be free.
        needs: Vec<Need>,
    },
    /// Begin to check the guards: only one runner at a time does.
    BeginCheck {
        id: TaskId,
        by: RunnerId,
        /// The last event that the runner knows of.
        at: Seq,
        /// Whether the runner has received an event that may change the result.
        heard: bool,
        /// The observed state of the runner that may check them already.
        seen: Seen,
    },
    /// Report the result of the guards.
    CheckGuards(Box<GuardCheck>),
    /// Put the item of a phase into its queue.
    Push {
        id: TaskId,
        phase: Name,
        queue: Name,
        /// The item, or the reason why there cannot be one.
        item: Result<Box<New>, Box<str>>,
        /// The inputs from the store that the guards of the phase ask for.
        asks: Wants,
        /// The observed state of the holders of these inputs.
        seen: Seen,
    },
    /// Set variables.
    Set {
        id: TaskId,
        vars: Context,
        /// The calling run, if it is a run.
        by: Option<(TaskId, Epoch)>,
    },
    /// Record a message about the progress.
    Checkpoint {
        id: TaskId,
        message: Box<str>,
        /// The calling run, if it is a run.
        by: Option<(TaskId, Epoch)>,
    },
    /// Continue where it is blocked.
    Unblock {
        id: TaskId,
        by: Option<Box<str>>,
    },
    /// Try the phase that failed again.
    Retry {
        id: TaskId,
    },
}

/// A pipeline to be started.
#[derive(Debug, Clone)]
pub struct Start {
    /// The id of the pipeline and of its task.
    pub id: TaskId,
    /// The task whose work is the pipeline.
    pub spec: Spec,
    pub depends_on: Vec<Edge>,
    /// The initial variables.
    pub vars: Bound,
    /// The epoch of the run that starts it, if its parent's run does.
    pub by: Option<Epoch>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipelineOutcome {
    /// The machine's answer, with the pipeline after the step.
    Stepped(Outcome, Box<Pipeline>),
    Unknown,
    /// Its task cannot be added.
    Refused(TaskOutcome),
    /// The first phase is blocked.
    Waits(Vec<banksman_core::task::admission::Reason>),
    /// The caller is not the current run of the phase.
    Fenced,
}

impl PipelineRequest {
    /// The task that caused the request.
    pub(crate) fn cause(&self) -> Option<&TaskId> {
        match self {
            PipelineRequest::Start(start) => start.spec.parent.as_ref(),
            PipelineRequest::CheckGuards(guard_check) => Some(&guard_check.id),
            PipelineRequest::Begin { id, .. }
            | PipelineRequest::BeginCheck { id, .. }
            | PipelineRequest::Push { id, .. }
            | PipelineRequest::Set { id, .. }
            | PipelineRequest::Checkpoint { id, .. }
            | PipelineRequest::Unblock { id, .. }
            | PipelineRequest::Retry { id } => Some(id),
        }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let own = |id: &TaskId| vec![Key::Task(id.clone()), Key::Pipeline(id.clone()), Key::Runners];
        let of_run = |id: &TaskId, by: &Option<(TaskId, Epoch)>| {
            own(id).into_iter().chain(by.iter().map(|(task, _)| Key::Task(task.clone()))).collect()
        };
        match self {
            PipelineRequest::Start(start) => tasks::add_keys(&start.id, &start.spec, &start.depends_on),
            PipelineRequest::Push { id, queue, asks, .. } => {
                let queue = [Key::NamedQueue(queue.clone()), Key::FirstTaker(queue.clone()), Key::WorkerRunners(queue.clone())];
                own(id).into_iter().chain(queue).chain(guards::store_keys(asks)).collect()
            }
            PipelineRequest::Set { id, by, .. } | PipelineRequest::Checkpoint { id, by, .. } => of_run(id, by),
            PipelineRequest::CheckGuards(guard_check) => guard_check.keys(),
            PipelineRequest::Begin { id, needs } => own(id).into_iter().chain(facts::keys(id, None, needs)).collect(),
            PipelineRequest::Unblock { id, .. } => {
                own(id).into_iter().chain([Key::Family(id.clone()), Key::OpenDecisions]).collect()
            }
            PipelineRequest::Retry { id } | PipelineRequest::BeginCheck { id, .. } => own(id),
        }
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> PipelineOutcome {
        match self {
            PipelineRequest::Start(start) => begin_life(start, tx),
            PipelineRequest::Push { id, phase, queue, item, asks, seen } => {
                if !guards::may_push(id, asks, &seen.now(tx), tx) {
                    return stepped(id, Input::CheckAgain { phase: phase.clone() }, tx);
                }
                push(id, phase, queue, item, tx)
            }
            PipelineRequest::Set { id, vars, by } => {
                let outcome = stepped_by(id, by.as_ref(), Input::Set(vars.clone()), tx);
                // A guard may depend on the value of a variable.
                if let PipelineOutcome::Stepped(Outcome::Noted, _) = outcome {
                    step_pipeline(id, Input::Poll, tx);
                }
                outcome
            }
            PipelineRequest::Checkpoint { id, message, by } => {
                stepped_by(id, by.as_ref(), Input::Checkpoint(message.clone()), tx)
            }
            PipelineRequest::BeginCheck { id, by, at, heard, seen } => {
                let heard = if *heard { *at } else { Seq(0) };
                guards::begin_check(id, by, heard, seen, tx)
            }
            PipelineRequest::CheckGuards(guard_check) => guard_check.decide(tx),
            PipelineRequest::Begin { id, .. } => begin(id, &Seen::default(), tx),
            PipelineRequest::Unblock { id, by } => stepped(id, Input::Unblock { by: by.clone() }, tx),
            PipelineRequest::Retry { id } => stepped(id, Input::Retry, tx),
        }
    }
}

/// Adds a pipeline with its task.
pub(crate) fn begin_life(start: &Start, tx: &mut Tx) -> PipelineOutcome {
    let Start { id, spec, depends_on, vars, by } = start;
    let Some(Work::Pipeline(plan)) = &spec.work else { unreachable!("a pipeline is started with its plan") };
    match tasks::add(id, spec, depends_on, *by, tx) {
        TaskOutcome::Kept(_) => {}
        refused => return PipelineOutcome::Refused(refused),
    }
    let is_met = |edge: &Edge| {
        tx.tables.backlog.tasks.get(&edge.on).is_some_and(|on| dependencies::is_met(on.status(), edge.allow_failed))
    };
    let unmet = !depends_on.iter().all(is_met);
    let now = tx.now(Vec::new(), Span::ZERO);
    let pipeline = Pipeline::new(id.clone(), spec.title.clone(), plan.clone(), vars.clone(), &now);
    tx.tables.backlog.pipelines.insert(id.clone(), pipeline);
    stepped(id, Input::Start { unmet }, tx)
}

pub(crate) fn begin(id: &TaskId, seen: &Seen, tx: &mut Tx) -> PipelineOutcome {
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return PipelineOutcome::Unknown };
    let now = seen.now(tx);
    match facts::admit(task, None, &tx.tables.coordination, &tx.tables.backlog, &now) {
        Admission::Run => stepped(id, Input::Begin, tx),
        Admission::Blocked(reasons) => PipelineOutcome::Waits(reasons),
    }
}

fn push(id: &TaskId, phase: &Name, name: &Name, item: &Result<Box<New>, Box<str>>, tx: &mut Tx) -> PipelineOutcome {
    let is_awaited =
        |pipeline: &Pipeline| matches!(&pipeline.state, State::Running { phase: current, task: None, .. } if current == phase);
    match tx.tables.backlog.pipelines.get(id) {
        None => return PipelineOutcome::Unknown,
        Some(pipeline) if !is_awaited(pipeline) => {
            return PipelineOutcome::Stepped(Outcome::Late, Box::new(pipeline.clone()));
        }
        Some(_) => {}
    }
    let error = match item {
        Err(error) => Some(error.clone()),
        Ok(item) => match &step_queue(name, queue::Input::Push(vec![New::clone(item)]), tx) {
            queue::Outcome::Unknown => Some(format!("there is no queue {name}").into()),
            queue::Outcome::Pushed(pushed) if pushed.first() == Some(&Pushed::Full) => {
                Some(format!("queue {name} is full").into())
            }
            _ => None,
        },
    };
    stepped(id, Input::Pushed { phase: phase.clone(), error }, tx)
}

/// The item that a phase of a pipeline puts into a queue. A value that is small enough for a variable may be too large inside an item.
pub(crate) fn item(pipeline: &Pipeline, push: &banksman_core::pipeline::plan::Push) -> Result<Box<New>, Box<str>> {
    let is_wanted = |name: &str| push.vars.is_empty() || push.vars.iter().any(|var| &**var == name);
    let vars = pipeline.context.iter().filter(|(name, _)| is_wanted(name));
    let data = Data::new(vars.map(|(name, value)| (String::from(&**name), value.clone())).collect());
    let data = data.map_err(|error| error.to_string())?;
    Ok(Box::new(New { data, priority: push.priority, delay: Span::ZERO, dedupe: None }))
}

/// Steps a pipeline for the run of its phase, or for a person.
fn stepped_by(id: &TaskId, by: Option<&(TaskId, Epoch)>, input: Input, tx: &mut Tx) -> PipelineOutcome {
    let Some(pipeline) = tx.tables.backlog.pipelines.get(id) else { return PipelineOutcome::Unknown };
    let is_at_it = |(task, epoch): &(TaskId, Epoch)| {
        let live = tx.tables.backlog.tasks.get(task).and_then(Task::live);
        pipeline.task() == Some(task) && live.is_some_and(|live| live.epoch == *epoch)
    };
    let given = |vars: &Context| vars.keys().find(|name| pipeline.is_given(name)).cloned();
    match (by, &input) {
        (Some(by), _) if !is_at_it(by) => PipelineOutcome::Fenced,
        (Some(_), Input::Set(vars)) if given(vars).is_some() => {
            let refusal = Refusal::Unbound(BindError::Given(given(vars).unwrap_or_default()));
            PipelineOutcome::Stepped(Outcome::Refused(refusal), Box::new(pipeline.clone()))
        }
        _ => stepped(id, input, tx),
    }
}

pub(crate) fn stepped(id: &TaskId, input: Input, tx: &mut Tx) -> PipelineOutcome {
    match step_pipeline(id, input, tx) {
        None => PipelineOutcome::Unknown,
        Some(outcome) => PipelineOutcome::Stepped(outcome, Box::new(tx.tables.backlog.pipelines[id].clone())),
    }
}

/// Steps a pipeline, if it exists, and carries out the effects: the task of its next phase, and the status of its own task.
pub(crate) fn step_pipeline(id: &TaskId, input: Input, tx: &mut Tx) -> Option<Outcome> {
    let pipeline = tx.tables.backlog.pipelines.remove(id)?;
    let (before, left) = (pipeline.state.clone(), pipeline.task().cloned());
    let step = pipeline.step(input, &tx.now(Vec::new(), Span::ZERO));
    let is_same = step.state.state == before;
    tx.tables.backlog.pipelines.insert(id.clone(), step.state);
    carry_out(tx, step.effects, None);
    if let Outcome::Begin(task) = &step.outcome
        && let Err(error) = phases::add(id, task, tx)
    {
        return step_pipeline(id, Input::Unclear { task: task.clone(), error: error.into() }, tx);
    }
    if !is_same {
        settle_question(id, &before, tx);
        lead_phase(id, left, tx);
        free_kept(id, tx);
        mirror_status(id, tx);
        wake_runners(tx);
        tx.changed.frees_dependents = true;
    }
    Some(step.outcome)
}

/// Frees the resources that a pipeline holds under its own name and no longer needs: the locks and slots of a phase with guards
/// behind it when the pipeline leaves the phase, and everything once the pipeline is over and has no live run.
fn free_kept(id: &TaskId, tx: &mut Tx) {
    let is_live = |task: &Task| task.spec.parent.as_ref() == Some(id) && task.live().is_some();
    if tx.tables.backlog.tasks.values().any(is_live) {
        return;
    }
    let needed = tx.tables.backlog.pipelines.get(id).map(Pipeline::keeps).unwrap_or_default();
    let holder = id.pipeline_holder();
    let coordination = &tx.tables.coordination;
    let locks = coordination.locks.keys().map(|name| Resource { kind: Kind::Lock, name: name.clone() });
    let semaphores = coordination.semaphores.keys().map(|name| Resource { kind: Kind::Semaphore, name: name.clone() });
    let held = locks.chain(semaphores).filter_map(|Resource { kind, name }| {
        let grant = coordination.grant_of(&Resource { kind, name: name.clone() }, &holder)?;
        let need = match kind {
            Kind::Lock => Need::Lock(name),
            Kind::Semaphore => Need::Slots { name, weight: grant.claim.weight },
        };
        Some((need, grant.epoch))
    });
    let held: Vec<(Need, Epoch)> = held.filter(|(need, _)| !needed.contains(&need.kept_by(id))).collect();
    if held.is_empty() {
        return;
    }
    let mut draft = Draft::new(&tx.tables.coordination, tx.now(Vec::new(), Span::ZERO));
    for (need, epoch) in held {
        draft.handle(Command::release(need.resource(), holder.clone(), epoch));
    }
    draft.keep(tx);
}

/// Withdraws the question about an overdue guard once the pipeline is no longer blocked by it.
fn settle_question(id: &TaskId, before: &State, tx: &mut Tx) {
    let State::Blocked { reason: Reason::Overdue { decision, .. }, .. } = before else { return };
    if !matches!(&tx.tables.backlog.pipelines[id].state, State::Blocked { reason: Reason::Overdue { .. }, .. }) {
        withdraw(tx, decision);
    }
}

/// Holds the task of a phase as long as a guard does not let it begin. The task that the pipeline has `left` unfinished fails.
fn lead_phase(id: &TaskId, left: Option<TaskId>, tx: &mut Tx) {
    let pipeline = &tx.tables.backlog.pipelines[id];
    let is_waiting = |task: &Task| matches!(task.state, task::State::Pending | task::State::Backoff { .. } | task::State::Held);
    let current = pipeline.task().cloned();
    let left = left.filter(|left| current.as_ref() != Some(left) && !matches!(pipeline.state, State::Cancelled { .. }));
    if let Some(left) = left.filter(|left| tx.tables.backlog.tasks.get(left).is_some_and(is_waiting)) {
        let error = "a guard of its phase does not hold".into();
        step_task(tx, &left, task::Input::Stop(task::After::Fail { error }), None);
    }
    let Some(task) = current.as_ref().and_then(|task| tx.tables.backlog.tasks.get(task)) else { return };
    let input = match (&tx.tables.backlog.pipelines[id].state, &task.state) {
        (State::Blocked { .. }, task::State::Pending | task::State::Backoff { .. }) => task::Input::Hold,
        (State::Running { .. }, task::State::Held) => task::Input::Release,
        _ => return,
    };
    let task = task.id.clone();
    step_task(tx, &task, input, None);
}

/// Gives the task of a pipeline the status of the pipeline.
fn mirror_status(id: &TaskId, tx: &mut Tx) {
    let status = match &tx.tables.backlog.pipelines[id].state {
        // Its task waits, and shows that by its own dependencies.
        State::Init | State::Blocked { reason: Reason::Dependencies, .. } => return,
        State::Checking { .. } | State::Running { .. } => PipelineStatus::InPhases { is_blocked: false },
        State::Blocked { .. } => PipelineStatus::InPhases { is_blocked: true },
        State::Done => PipelineStatus::Over(TaskEnd::Success { output: output(&tx.tables.backlog.pipelines[id]), warning: None }),
        State::Failed { phase, error, .. } => {
            PipelineStatus::Over(TaskEnd::Failed { error: format!("phase {phase}: {error}").into() })
        }
        State::Cancelled { .. } => PipelineStatus::Over(TaskEnd::Cancelled),
    };
    let Some(parent) = tx.tables.backlog.tasks.remove(id) else { return };
    let (before, to) = (parent.state.clone(), parent.spec.land.clone());
    let step = parent.step(task::Input::MirrorStatus(status), &tx.now(Vec::new(), Span::ZERO));
    note_reopened(&before, &step.state.state, tx);
    tx.tables.backlog.tasks.insert(id.clone(), step.state);
    carry_out(tx, step.effects, None);
    follow_landing(id, &before, to.as_deref(), tx);
}

/// The output of a pipeline: its variables.
fn output(pipeline: &Pipeline) -> Option<serde_json::Value> {
    (!pipeline.context.is_empty()).then(|| serde_json::to_value(&pipeline.context).ok()).flatten()
}

/// Follows a step of a task: a pipeline continues if the task is its phase, and ends with its own task.
pub(crate) fn follow(id: &TaskId, before: &task::State, tail: &str, tx: &mut Tx) {
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return };
    if let Some(pipeline) = tx.tables.backlog.pipelines.get(id) {
        if matches!(task.state, task::State::Done(_)) && !pipeline.is_over() {
            step_pipeline(id, Input::Cancel, tx);
        }
        return;
    }
    let Some(parent) = task.spec.parent.clone() else { return };
    if tx.tables.backlog.pipelines.get(&parent).and_then(Pipeline::task) != Some(id) {
        // The pipeline was cancelled, and this run had to end before its resources are free.
        if tx.tables.backlog.pipelines.contains_key(&parent) {
            free_kept(&parent, tx);
        }
        return;
    }
    let task = id.clone();
    let input = match (before, &tx.tables.backlog.tasks[id].state) {
        (_, task::State::Done(done)) => {
            let runs = tx.tables.backlog.tasks[id].attempts;
            Input::Ended { task, end: phases::end(before, done, tail), runs }
        }
        (
            task::State::Running(live) | task::State::Stuck { live, .. } | task::State::Stopping { live, .. },
            task::State::Held,
        ) => {
            let Some(task::Verdict::Refused(refused)) = &live.verdict else { return };
            let task::Refused { guard, part, again, at, .. } = (**refused).clone();
            let verdict = GuardsResult::Block { guard, part, again: tx.lease + again, asks_outside: true };
            Input::Refuted { task, verdict, at }
        }
        // A released task goes back to its pipeline, which may hold it.
        (task::State::Manual { .. }, task::State::Pending) => return lead_phase(&parent, None, tx),
        (_, task::State::AwaitingDecision { decision }) => Input::AwaitingDecision { task, decision: Some(decision.clone()) },
        (task::State::AwaitingDecision { .. }, _) => Input::AwaitingDecision { task, decision: None },
        _ => return,
    };
    step_pipeline(&parent, input, tx);
}

/// Follows the deletion of a task: its pipeline is deleted with it, or the phase that it was the task of has failed.
pub(crate) fn forget(task: &Task, tx: &mut Tx) {
    if tx.tables.backlog.pipelines.remove(&task.id).is_some() {
        emit(tx, Event::Pipeline { id: task.id.clone(), fact: Fact::Deleted {} });
        free_kept(&task.id, tx);
    }
    if let Some(parent) = &task.spec.parent
        && tx.tables.backlog.pipelines.get(parent).and_then(Pipeline::task) == Some(&task.id)
    {
        let end = banksman_core::pipeline::PhaseEnd::Dropped { how: "deleted".into() };
        step_pipeline(parent, Input::Ended { task: task.id.clone(), end, runs: task.attempts }, tx);
    }
}
