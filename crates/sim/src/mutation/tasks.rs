//! Faults of tasks, runs and decisions, and of what a runner reads.

use std::collections::BTreeSet;

use banksman_core::event::{DecisionFact, Event};
use banksman_core::task::retry::Policy;
use banksman_core::task::{After, State};
use banksman_core::{Decision, DecisionId, Effect, Name, Task, decision};
use banksman_engine::{PauseRequest, PipelineRequest, Reply, Request, RunRequest, TaskRequest};
use banksman_store::{Call as _, Snapshot, Tx};

use super::{Mutation, after, pipelines, workers};

/// Changes what a runner reads.
pub(crate) fn misread(mutation: Mutation, snapshot: &mut Snapshot) {
    match mutation {
        Mutation::SectionsOff => snapshot.backlog.sections.values_mut().for_each(|section| section.exclusive = false),
        Mutation::SlotsOff => {
            let slots = snapshot.coordination.semaphores.get_mut(&Name::runs());
            slots.into_iter().for_each(|slots| slots.config.capacity += 1);
        }
        Mutation::RootsOff => snapshot.backlog.limits.iter_mut().for_each(|limits| limits.roots = 0),
        Mutation::RestOff => snapshot.backlog.tasks.values_mut().for_each(wake),
        Mutation::RestForgotten => {
            snapshot.backlog.tasks.retain(|_, task| !matches!(task.state, State::Backoff { .. }));
        }
        Mutation::TwoCheckers => snapshot.backlog.pipelines.values_mut().for_each(|pipeline| pipeline.checker = None),
        Mutation::IdleEarly => {
            snapshot.backlog.tasks.retain(|_, task| task.state != State::Pending || task.spec.needs.is_empty());
        }
        _ => workers::misread(mutation, &mut snapshot.automation),
    }
}

/// Decides like the real request, except for the fault.
pub(super) fn decide(mutation: Mutation, request: &Request, tx: &mut Tx) -> Reply {
    match (mutation, request) {
        (Mutation::DependenciesOff, Request::Task(TaskRequest::Add { id, .. })) => {
            after(request, tx, |tx| drop(tx.tables.backlog.edges.remove(id)))
        }
        (Mutation::QueueJumped, Request::Run(RunRequest::Claim(_))) => {
            let backlog = &tx.tables.backlog;
            let ready = tx.tables.ready.iter().filter_map(|id| backlog.tasks.get(id)).filter(|task| task.spec.parent.is_none());
            if let Some(first) = ready.min_by_key(|task| task.position).map(|task| task.id.clone()) {
                tx.tables.ready.remove(&first);
            }
            request.decide(tx)
        }
        (Mutation::CirclesOff, Request::Task(TaskRequest::Update { .. })) => pipelines::without_edges(request, tx),
        (Mutation::SectionsOff, Request::Run(RunRequest::Claim { .. } | RunRequest::Adopt { .. })) => {
            let sections = tx.tables.backlog.sections.clone();
            tx.tables.backlog.sections.values_mut().for_each(|section| section.exclusive = false);
            after(request, tx, |tx| tx.tables.backlog.sections = sections)
        }
        (Mutation::SlotsOff, Request::Run(RunRequest::Claim { .. })) => {
            let slots = tx.tables.coordination.semaphores.get_mut(&Name::runs());
            slots.into_iter().for_each(|slots| slots.config.capacity += 1);
            after(request, tx, |tx| {
                let slots = tx.tables.coordination.semaphores.get_mut(&Name::runs());
                slots.into_iter().for_each(|slots| slots.config.capacity -= 1);
            })
        }
        // The capacity of the slots, which claims use, does not change.
        (Mutation::LimitKept, Request::SetLimits { .. }) => {
            let kept = tx.tables.coordination.semaphores.get(&Name::runs()).map(|slots| slots.config.capacity);
            after(request, tx, |tx| {
                if let (Some(kept), Some(slots)) = (kept, tx.tables.coordination.semaphores.get_mut(&Name::runs())) {
                    slots.config.capacity = kept;
                }
            })
        }
        (Mutation::PauseUnseen, Request::Run(RunRequest::Claim(_))) => {
            let pause = tx.tables.backlog.pause.take();
            after(request, tx, |tx| tx.tables.backlog.pause = pause)
        }
        (Mutation::StopUnseen, Request::Pause(PauseRequest::StopTasks { .. })) => {
            after(request, tx, |tx| tx.tables.backlog.tasks.values_mut().for_each(|task| task.spec.paused = None))
        }
        (Mutation::StopCounts, Request::Pause(_)) => after(request, tx, |tx| {
            for task in tx.tables.backlog.tasks.values_mut() {
                if let State::Stopping { then: then @ After::PutBack { .. }, .. } = &mut task.state {
                    *then = After::Restart;
                }
            }
        }),
        (Mutation::RootsOff, Request::Run(RunRequest::Claim(_))) => {
            let limits = tx.tables.backlog.limits;
            tx.tables.backlog.limits.iter_mut().for_each(|limits| limits.roots = 0);
            after(request, tx, |tx| tx.tables.backlog.limits = limits)
        }
        (Mutation::LateEnd, Request::Run(RunRequest::Finish { runner, what, ending, marker, watch })) => {
            let mut what = what.clone();
            let is_live = |run: &&banksman_core::backlog::Run| run.is_live() && run.task == what.task.id;
            let (mut owner, current) = (runner.clone(), tx.tables.backlog.runs.values().find(is_live).cloned());
            if let Some(current) = current {
                (owner, what.run) = (current.owner.clone(), current);
            }
            let (ending, marker) = (ending.clone(), marker.clone());
            let finish = RunRequest::Finish { runner: owner, what, ending, marker, watch: *watch };
            Request::Run(finish).decide(tx)
        }
        (Mutation::CountersReset, Request::Run(RunRequest::Adopt { what, .. })) => after(request, tx, |tx| {
            let task = tx.tables.backlog.tasks.get_mut(&what.task.id);
            task.into_iter().for_each(|task| (task.failures, task.recoveries) = (0, 0));
        }),
        (Mutation::RestartsOff, Request::Run(RunRequest::Finish { what, .. })) => {
            let policy = tx.tables.backlog.tasks.get(&what.task.id).and_then(|task| task.spec.restart.clone());
            let more = |policy: &Policy| Policy { max_attempts: policy.max_attempts.saturating_add(1), ..policy.clone() };
            let task = tx.tables.backlog.tasks.get_mut(&what.task.id);
            task.into_iter().for_each(|task| task.spec.restart = policy.as_ref().map(more));
            after(request, tx, |tx| {
                let task = tx.tables.backlog.tasks.get_mut(&what.task.id);
                task.into_iter().for_each(|task| task.spec.restart = policy.clone());
            })
        }
        (Mutation::RestOff, Request::Run(RunRequest::Claim { .. })) => {
            let resting = tx.tables.backlog.tasks.values().filter(|task| matches!(task.state, State::Backoff { .. }));
            tx.tables.ready.extend(resting.map(|task| task.id.clone()).collect::<Vec<_>>());
            tx.tables.backlog.tasks.values_mut().for_each(wake);
            request.decide(tx)
        }
        (Mutation::NudgeFree, Request::Task(TaskRequest::Heartbeat { id, .. })) => {
            tx.tables.backlog.tasks.get_mut(id).into_iter().for_each(|task| task.recoveries = 0);
            request.decide(tx)
        }
        (Mutation::AskedTwice, Request::Run(RunRequest::Finish { .. })) => {
            let before = tx.tables.backlog.decisions.keys().cloned().collect();
            after(request, tx, |tx| ask_again(&before, tx))
        }
        (Mutation::AnsweredTwice, Request::Decision(request)) => {
            let asked = tx.tables.backlog.decisions.get_mut(&request.id);
            asked.into_iter().for_each(|asked| asked.state = decision::State::Open);
            Request::Decision(request.clone()).decide(tx)
        }
        (Mutation::QuestionStays, Request::Task(_)) => {
            let decisions = std::mem::take(&mut tx.tables.backlog.decisions);
            after(request, tx, |tx| tx.tables.backlog.decisions.extend(decisions))
        }
        (Mutation::ChildrenOff, Request::Run(RunRequest::Finish { what, .. })) => {
            let is_child = |task: &Task| task.spec.parent.as_ref() == Some(&what.task.id);
            let children: Vec<Task> =
                tx.tables.backlog.tasks.extract_if(.., |_, task| is_child(task)).map(|(_, task)| task).collect();
            after(request, tx, |tx| tx.tables.backlog.tasks.extend(children.into_iter().map(|task| (task.id.clone(), task))))
        }
        (Mutation::OldEpoch, Request::Task(TaskRequest::Conclude { id, epoch: Some(_), verdict, .. })) => {
            let epoch = tx.tables.backlog.tasks.get(id).and_then(|task| task.live()).map(|live| live.epoch);
            Request::Task(TaskRequest::Conclude { id: id.clone(), epoch, by: None, verdict: verdict.clone() }).decide(tx)
        }
        (Mutation::CommandsStay, Request::Run(RunRequest::Finish { .. })) => {
            let outbox = tx.tables.backlog.outbox.clone();
            after(request, tx, |tx| tx.tables.backlog.outbox = outbox)
        }
        (Mutation::GuardsOffAtClaim, Request::Run(RunRequest::Claim { .. })) => {
            tx.tables.backlog.pipelines.values_mut().for_each(|pipeline| pipeline.recheck = None);
            request.decide(tx)
        }
        (Mutation::NeverOverdue, Request::Pipeline(PipelineRequest::CheckGuards(guard_check))) => after(request, tx, |tx| {
            let pipeline = tx.tables.backlog.pipelines.get_mut(&guard_check.id);
            pipeline.into_iter().for_each(|pipeline| pipeline.overdue = None);
        }),
        (Mutation::SilentTask, Request::Task(TaskRequest::Retry { id })) => {
            after(request, tx, |tx| tx.tables.backlog.tasks.get_mut(id).into_iter().for_each(|task| task.attempts += 1))
        }
        _ => pipelines::decide(mutation, request, tx),
    }
}

/// Ends the backoff of a task.
fn wake(task: &mut Task) {
    if let State::Backoff { .. } = task.state {
        task.state = State::Pending;
    }
}

/// Raises every new question once more.
fn ask_again(before: &BTreeSet<DecisionId>, tx: &mut Tx) {
    let new: Vec<Decision> = tx.tables.backlog.decisions.values().filter(|asked| !before.contains(&asked.id)).cloned().collect();
    for asked in new {
        let id = DecisionId::from(tx.seq);
        let fact = DecisionFact::Raised(Box::new(asked.question.clone()));
        tx.carry_out(vec![Effect::Emit(Event::Decision { id: id.clone(), fact })], false);
        tx.tables.backlog.decisions.insert(id.clone(), Decision { id, ..asked });
    }
}
