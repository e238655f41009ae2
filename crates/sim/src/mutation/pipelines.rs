//! The faults of [`Mutation`] around pipelines.

use std::sync::Arc;

use banksman_core::event::{Event, TaskFact};
use banksman_core::pipeline::plan::{Action, After, OnFail, Plan};
use banksman_core::pipeline::{Outcome, Pipeline, State};
use banksman_core::resource::lock::{self, Lock};
use banksman_core::{Effect, Now, Task, TaskId};
use banksman_engine::{GuardCheck, PipelineOutcome, PipelineRequest, Reply, Request, RunRequest};
use banksman_store::{Call as _, Tables, Tx};

use super::{Mutation, after, workers};

/// Decides like the real request, except for the fault.
pub(super) fn decide(mutation: Mutation, request: &Request, tx: &mut Tx) -> Reply {
    match (mutation, request) {
        (Mutation::EndForgotten, Request::Run(RunRequest::Finish { .. })) => {
            let pipelines = std::mem::take(&mut tx.tables.backlog.pipelines);
            after(request, tx, |tx| tx.tables.backlog.pipelines = pipelines)
        }
        (Mutation::PhaseSkipped, Request::Run(RunRequest::Finish { .. })) => with_plans(request, skip, tx),
        (Mutation::SecondTask, Request::Run(RunRequest::Finish { .. })) => {
            let before: Vec<TaskId> = tx.tables.backlog.tasks.keys().cloned().collect();
            after(request, tx, |tx| {
                let is_new = |task: &&Task| !before.contains(&task.id);
                let new: Vec<Task> = tx.tables.backlog.tasks.values().filter(is_new).cloned().collect();
                new.into_iter().for_each(|task| add_twin(task, tx));
            })
        }
        (Mutation::HostForgotten, Request::Run(RunRequest::Finish { .. })) => {
            let last = tx.tables.backlog.pipelines.values().filter(|pipeline| is_at_its_end(pipeline));
            let last: Vec<TaskId> = last.map(|pipeline| pipeline.id.clone()).collect();
            let hosts: Vec<Task> = last.iter().filter_map(|id| tx.tables.backlog.tasks.remove(id)).collect();
            after(request, tx, |tx| tx.tables.backlog.tasks.extend(hosts.into_iter().map(|host| (host.id.clone(), host))))
        }
        (Mutation::RetriedForGood, Request::Pipeline(PipelineRequest::Retry { id })) => {
            if let Some(State::Failed { recoverable, .. }) = tx.tables.backlog.pipelines.get_mut(id).map(|row| &mut row.state) {
                *recoverable = true;
            }
            request.decide(tx)
        }
        (Mutation::GoesOnCancelled, Request::Run(RunRequest::Finish { what, .. })) => {
            let host = what.task.spec.parent.as_ref().and_then(|host| tx.tables.backlog.pipelines.get_mut(host));
            if let Some(host) = host
                && let State::Cancelled { phase: Some(phase) } = &host.state
            {
                host.state = State::Running { phase: phase.clone(), approach: 0, task: Some(what.task.id.clone()) };
            }
            request.decide(tx)
        }
        (Mutation::GuardsOff, Request::Pipeline(PipelineRequest::CheckGuards(guard_check))) => {
            let guard_check = GuardCheck { guards: Vec::new(), ..(**guard_check).clone() };
            Request::Pipeline(PipelineRequest::CheckGuards(Box::new(guard_check))).decide(tx)
        }
        (Mutation::OldAnswer, Request::Pipeline(PipelineRequest::CheckGuards(guard_check))) => {
            let guard_check = transferred(guard_check, &tx.tables);
            Request::Pipeline(PipelineRequest::CheckGuards(Box::new(guard_check))).decide(tx)
        }
        (Mutation::TwoCheckers, Request::Pipeline(PipelineRequest::BeginCheck { id, .. })) => {
            tx.tables.backlog.pipelines.get_mut(id).into_iter().for_each(|pipeline| pipeline.checker = None);
            request.decide(tx)
        }
        (Mutation::CheckerStays, Request::Pipeline(PipelineRequest::BeginCheck { id, by, .. })) => {
            match tx.tables.backlog.pipelines.get(id) {
                Some(row) if row.checker.as_ref().is_some_and(|checker| checker != by) => {
                    Reply::Pipeline(PipelineOutcome::Stepped(Outcome::Late, Box::new(row.clone())))
                }
                Some(_) | None => request.decide(tx),
            }
        }
        (Mutation::SilentPipeline, Request::Pipeline(PipelineRequest::Set { id, .. })) => after(request, tx, |tx| {
            tx.tables.backlog.pipelines.get_mut(id).into_iter().for_each(|pipeline| pipeline.attempt += 1)
        }),
        (Mutation::KeptStays, _) => {
            let is_kept = |lock: &Lock| match &lock.state {
                lock::State::Held(grant) => grant.claim.holder.as_str().starts_with("pipeline:"),
                lock::State::Free => false,
            };
            let hides = matches!(request, Request::Run(RunRequest::Finish { .. }) | Request::Task(_) | Request::Pipeline(_));
            let kept: Vec<_> = tx.tables.coordination.locks.extract_if(.., |_, lock| hides && is_kept(lock)).collect();
            after(request, tx, |tx| tx.tables.coordination.locks.extend(kept))
        }
        _ => workers::decide(mutation, request, tx),
    }
}

/// Decides with changed plans.
fn with_plans(request: &Request, change: impl Fn(&Plan) -> Plan, tx: &mut Tx) -> Reply {
    let plans: Vec<(TaskId, Arc<Plan>)> =
        tx.tables.backlog.pipelines.iter().map(|(id, pipeline)| (id.clone(), Arc::clone(&pipeline.plan))).collect();
    for pipeline in tx.tables.backlog.pipelines.values_mut() {
        pipeline.plan = Arc::new(change(&pipeline.plan));
    }
    let reply = request.decide(tx);
    for (id, plan) in plans {
        tx.tables.backlog.pipelines.get_mut(&id).into_iter().for_each(|pipeline| pipeline.plan = Arc::clone(&plan));
    }
    reply
}

fn skip(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for at in 2..plan.phases.len() {
        plan.phases[at - 2].then = After::Phase(plan.phases[at].name.clone());
    }
    plan
}

/// Whether the end of its current phase is the end of the pipeline, whatever the result.
fn is_at_its_end(pipeline: &Pipeline) -> bool {
    let phase = pipeline.task().and(pipeline.phase()).and_then(|phase| pipeline.plan.phase(phase));
    let is_last = phase.is_some_and(|phase| pipeline.plan.phases.last() == Some(phase) || phase.then == After::Done);
    is_last
        && phase.is_some_and(|phase| {
            let is_plain = matches!(phase.action, Action::Do(_)) && phase.on_fail == OnFail::Fail;
            is_plain && phase.post.is_empty() && !matches!(phase.then, After::Phase(_))
        })
}

fn add_twin(task: Task, tx: &mut Tx) {
    let id = TaskId::new(&format!("{}x", task.id)).expect("a good id");
    let now: Now = tx.now(Vec::new(), Default::default());
    let twin = Task::new(id.clone(), task.spec.clone(), &now);
    let fact = TaskFact::Added { spec: Box::new(task.spec), depends_on: Vec::new(), import: None };
    tx.carry_out(vec![Effect::Emit(Event::Task { id: id.clone(), fact })], false);
    tx.tables.backlog.tasks.insert(id, twin);
}

/// The same result, as if it had been requested for the gate at which the pipeline is now.
fn transferred(guard_check: &GuardCheck, tables: &Tables) -> GuardCheck {
    let mut guard_check = guard_check.clone();
    if let Some(pipeline) = tables.backlog.pipelines.get(&guard_check.id) {
        guard_check.tasks = pipeline.tasks;
        if let Some((phase, when)) = pipeline.gate() {
            (guard_check.phase, guard_check.when) = (phase.clone(), when);
        }
    }
    guard_check
}

/// Decides as if no task had dependencies.
pub(super) fn without_edges(request: &Request, tx: &mut Tx) -> Reply {
    let edges = std::mem::take(&mut tx.tables.backlog.edges);
    let reply = request.decide(tx);
    for (task, edges) in edges {
        tx.tables.backlog.edges.entry(task).or_insert(edges);
    }
    reply
}
