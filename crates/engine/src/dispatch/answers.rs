//! What the store's answers mean for a runner.

use banksman_core::task::admission::Reason;
use banksman_core::{Lease, task};

use super::{Advice, Dispatcher, Look, OwnedRun, RETRY_AFTER, RunnerEvent};
use crate::request::{Reply, Request};
use crate::runs::{RunOutcome, RunRequest, Work};
use crate::tasks::TaskOutcome;
use crate::workers::{WorkerOutcome, WorkerRequest};

impl Dispatcher {
    /// Takes in the store's answers to [`Dispatcher::requests`], in their order.
    pub fn answered(&mut self, replies: Vec<Reply>) {
        let requests = std::mem::take(&mut self.requests);
        let mut look = false;
        for (request, reply) in requests.into_iter().zip(replies) {
            match (request, reply) {
                (Request::Run(request), Reply::Run(outcome)) => look |= self.take_in(request, outcome),
                // Whatever came of it, the rows are others now.
                (request, Reply::Worker(outcome)) => {
                    if let (Request::Worker(WorkerRequest::Take { worker, queue }), WorkerOutcome::Unfit { item, error }) =
                        (request, outcome)
                    {
                        self.news.push(RunnerEvent::Unfit { worker, queue, item, error });
                    }
                    look = true;
                }
                (_, Reply::Route(_) | Reply::Queue { .. } | Reply::Coordinate { .. }) => look = true,
                (Request::Pipeline(request), Reply::Pipeline(outcome)) => look |= self.take_in_pipeline(request, outcome),
                (_, Reply::Task(TaskOutcome::Stepped(outcome, task))) => {
                    // What follows from it is in the outbox, or the run is not its own any more.
                    look |= outcome != task::Outcome::Seen;
                    self.note_pulse(outcome, &task);
                }
                _ => {}
            }
        }
        if look {
            self.look = Look::Due;
        }
    }

    /// The store did not answer. What was asked may or may not have happened: the rows will tell.
    pub fn unanswered(&mut self, now: Lease) {
        let requests = std::mem::take(&mut self.requests);
        self.forget_looks(requests);
        self.look = Look::Due;
        self.not_before = Some(now + RETRY_AFTER);
    }

    /// Takes in one answer. Says whether to look again.
    fn take_in(&mut self, request: RunRequest, outcome: RunOutcome) -> bool {
        match (request, outcome) {
            (RunRequest::Enlist { .. }, _) => {
                self.enlisted = true;
                true
            }
            (RunRequest::Renew { .. }, RunOutcome::Renewed(runs)) => {
                self.renewed_at = self.entry;
                // What it has and the store does not was taken for lost.
                let look = self.owned.keys().any(|run| !runs.contains(run));
                self.renewed = Some(runs);
                look
            }
            (RunRequest::Renew { .. }, _) => {
                self.enlisted = false;
                true
            }
            (RunRequest::Finish { what, ending, .. }, outcome) => {
                let id = what.run.id.clone();
                self.owned.remove(&id);
                self.queue.push_back(Advice::Acknowledge(id));
                if let RunOutcome::Finished(outcome, task, pipeline) = outcome {
                    self.news.push(RunnerEvent::Ended(Box::new(Work { run: what.run, task: *task }), ending, outcome));
                    pipeline.iter().for_each(|pipeline| self.note_pipeline(pipeline));
                }
                true
            }
            (RunRequest::Claim { room, .. }, RunOutcome::Claimed { started, blocked, refuted }) => {
                refuted.iter().for_each(|pipeline| self.note_pipeline(pipeline));
                // Who found no place among the roots is in line for the next one: those behind it must not go first.
                let is_in_line = |reasons: &[Reason]| reasons.iter().any(|reason| matches!(reason, Reason::NoRoot { .. }));
                self.passed_over.extend(blocked.into_iter().filter(|(_, reasons)| !is_in_line(reasons)));
                let full = started.len() == room;
                let any = !started.is_empty();
                self.note_try(started.len(), full);
                for work in started {
                    self.begin(work, true);
                }
                !any || !full
            }
            (RunRequest::Claim { .. }, _) => {
                // It was taken for dead. It makes itself known again.
                self.enlisted = false;
                true
            }
            (RunRequest::Adopt { .. }, RunOutcome::Adopted(work)) => {
                self.begin(*work, false);
                true
            }
            (RunRequest::Found { .. } | RunRequest::Settle { .. }, RunOutcome::Stepped(outcome, task)) => {
                self.news.push(RunnerEvent::Settled(task, outcome));
                true
            }
            (RunRequest::Tried { command, .. }, _) => {
                self.doing.remove(&command);
                true
            }
            (RunRequest::Adopt { what, .. }, _) => {
                self.refused.insert(what.run.id);
                true
            }
            (RunRequest::Watch { .. }, RunOutcome::Late) => {
                self.enlisted = false;
                self.watching.clear();
                true
            }
            (RunRequest::Watch { .. }, RunOutcome::Done) => {
                // What was in the way of a claim may have been freed before anybody knew that it waits for that.
                self.passed_over.clear();
                true
            }
            (RunRequest::Lose { what, .. }, RunOutcome::Lost(ended, outcome, pipeline)) => {
                self.news.push(RunnerEvent::Ended(what, ended, outcome));
                pipeline.iter().for_each(|pipeline| self.note_pipeline(pipeline));
                true
            }
            (
                RunRequest::Watch { .. }
                | RunRequest::Found { .. }
                | RunRequest::Ripen { .. }
                | RunRequest::Rest { .. }
                | RunRequest::Settle { .. }
                | RunRequest::Retire { .. }
                | RunRequest::Dismiss { .. }
                | RunRequest::Unproven { .. }
                | RunRequest::Lose { .. },
                _,
            ) => true,
            // One that was taken for dead makes itself known again when it claims.
            (RunRequest::Started { .. } | RunRequest::Short { .. }, _) => false,
            (
                RunRequest::Pause { .. } | RunRequest::Resume { .. } | RunRequest::Await { .. } | RunRequest::EndAwait { .. },
                _,
            ) => false,
        }
    }

    fn begin(&mut self, work: Work, fresh: bool) {
        self.owned.insert(work.run.id.clone(), OwnedRun { is_fresh: fresh, ..OwnedRun::new(work.clone()) });
        let work = Box::new(work);
        if fresh {
            self.queue.push_back(Advice::Spawn(work));
        } else {
            self.news.push(RunnerEvent::Adopted(work.clone()));
            self.queue.push_back(Advice::Recover(work));
            // A wish to stop it may have been waiting for an owner.
            self.look = Look::Due;
        }
    }
}
