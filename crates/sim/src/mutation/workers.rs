//! The faults of [`Mutation`] around workers and routes.

use banksman_core::queue::State;
use banksman_core::route::Pattern;
use banksman_core::worker::{Input, JobEnd};
use banksman_core::{Name, Seq, Span, Status, Task};
use banksman_engine::{Reply, Request, RouteRequest, WorkerOutcome, WorkerRequest};
use banksman_store::{Automation, Call as _, Tables, Tx};

use super::{Mutation, after};

/// Decides like the real request, except for the fault.
pub(super) fn decide(mutation: Mutation, request: &Request, tx: &mut Tx) -> Reply {
    match (mutation, request) {
        (Mutation::ItemForgotten, Request::Worker(WorkerRequest::Settle { worker, task, .. })) => {
            let now = tx.now(Vec::new(), Span::ZERO);
            let how = match tx.tables.backlog.tasks.get(task).map(Task::status) {
                Some(Status::Completed) => JobEnd::Completed,
                Some(Status::Failed) => JobEnd::Failed,
                Some(_) | None => JobEnd::Cancelled,
            };
            let input = Input::Ended { task: task.clone(), how };
            let step = std::mem::take(&mut tx.tables.automation.workers).step(worker, input, &now);
            tx.tables.automation.workers = step.state;
            tx.carry_out(step.effects, false);
            Reply::Worker(WorkerOutcome::Stepped(step.outcome))
        }
        (Mutation::TakenTwice, Request::Worker(WorkerRequest::Take { .. })) => {
            let reply = request.decide(tx);
            if let Reply::Worker(WorkerOutcome::Took { item, .. }) = &reply {
                let row = tx.tables.queues.items.get_mut(item);
                row.into_iter().for_each(|row| row.state = State::Pending { not_before: None });
                return request.decide(tx);
            }
            reply
        }
        (Mutation::ItemNotKept, Request::Worker(WorkerRequest::Take { queue, .. })) => {
            let reply = request.decide(tx);
            let visibility = tx.tables.queues.queues.get(queue).map(|queue| queue.config.visibility_timeout);
            if let (Reply::Worker(WorkerOutcome::Took { item, .. }), Some(visibility)) = (&reply, visibility)
                && let Some(State::Processing(taken)) = tx.tables.queues.items.get_mut(item).map(|item| &mut item.state)
            {
                taken.until = tx.lease + visibility;
            }
            reply
        }
        (Mutation::PauseOff, Request::Worker(WorkerRequest::Take { worker, .. })) => {
            let was = set_paused(&mut tx.tables, worker, false);
            after(request, tx, |tx| _ = set_paused(&mut tx.tables, worker, was))
        }
        // The last of several events is routed again the next time, too.
        (Mutation::RoutedTwice, Request::Route(routed)) => after(request, tx, |tx| {
            let last = Seq(routed.to.0 - 1);
            if last > routed.from && tx.tables.automation.cursor == routed.to {
                tx.tables.automation.cursor = last;
            }
        }),
        (Mutation::RoutePassed, Request::Route(routed)) => {
            let nothing = RouteRequest { reactions: Vec::new(), ..routed.clone() };
            Request::Route(nothing).decide(tx)
        }
        _ => request.decide(tx),
    }
}

fn set_paused(tables: &mut Tables, worker: &Name, paused: bool) -> bool {
    let worker = tables.automation.workers.workers.get_mut(worker);
    worker.is_some_and(|worker| std::mem::replace(&mut worker.paused, paused))
}

/// Changes what a runner reads of workers and routes.
pub(super) fn misread(mutation: Mutation, automation: &mut Automation) {
    match mutation {
        Mutation::PauseOff => automation.workers.workers.values_mut().for_each(|worker| worker.paused = false),
        Mutation::JobForgotten => automation.over.clear(),
        Mutation::SleepsOn => {
            for worker in automation.workers.workers.values_mut() {
                let mut definition = (*worker.definition).clone();
                definition.wake_on = definition.wake_on.into_iter().map(|_| Pattern::new("never:comes").expect("good")).collect();
                worker.definition = definition.into();
            }
        }
        _ => {}
    }
}
