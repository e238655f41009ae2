//! What the store's replies mean for a runner.

use banksman_core::task;

use super::protocol::RunnerEvent;
use super::{Dispatcher, Pass};
use crate::request::{Reply, Request};
use crate::runs::{RunOutcome, RunRequest, Work};
use crate::tasks::TaskOutcome;
use crate::workers::{WorkerOutcome, WorkerRequest};

impl Dispatcher {
    /// Takes in the replies to the requests of the last call, in their order.
    pub(super) fn on_replies(&mut self, replies: Vec<Reply>) {
        let requests = std::mem::take(&mut self.sent);
        for (request, reply) in requests.into_iter().zip(replies) {
            if self.on_reply(request, reply) {
                self.pass = Pass::Due;
            }
        }
    }

    /// Takes in one reply. Says whether the rows are to be read again.
    fn on_reply(&mut self, request: Request, reply: Reply) -> bool {
        match (request, reply) {
            (Request::Run(request), Reply::Run(outcome)) => self.on_run_reply(request, outcome),
            (request, Reply::Worker(outcome)) => {
                if let Request::Worker(WorkerRequest::Take { worker, queue }) = request
                    && let WorkerOutcome::Unfit { item, error } = outcome
                {
                    self.out.report(RunnerEvent::Unfit { worker, queue, item, error });
                }
                true
            }
            (_, Reply::Route(_) | Reply::Queue { .. } | Reply::Coordinate { .. }) => true,
            (Request::Pipeline(request), Reply::Pipeline(outcome)) => {
                self.guard_checks.on_reply(request, outcome, &mut self.out);
                true
            }
            (_, Reply::Task(TaskOutcome::Stepped(outcome, task))) => {
                // What follows from it is in the outbox, or the run is not its own any more.
                let is_news = outcome != task::Outcome::Seen;
                self.sessions.on_heartbeat(outcome, &task, &mut self.out);
                is_news
            }
            _ => false,
        }
    }

    fn on_run_reply(&mut self, request: RunRequest, outcome: RunOutcome) -> bool {
        match (request, outcome) {
            (RunRequest::Enlist { .. }, _) => self.is_enlisted = true,
            (RunRequest::Renew { .. }, RunOutcome::Renewed(runs)) => {
                // What it has and the store does not was taken for lost.
                let has_lost = self.sessions.has_others_than(&runs);
                self.renewal.on_reply(runs);
                return has_lost;
            }
            // It was taken for dead. It enlists again.
            (RunRequest::Renew { .. }, _) => self.is_enlisted = false,
            (RunRequest::Finish { what, ending, .. }, outcome) => {
                self.sessions.on_finished(what.run.id.clone(), &mut self.out);
                if let RunOutcome::Finished(outcome, task, pipeline) = outcome {
                    self.out.report(RunnerEvent::Ended(Box::new(Work { run: what.run, task: *task }), ending, outcome));
                    pipeline.iter().for_each(|pipeline| self.guard_checks.report(pipeline, &mut self.out));
                }
            }
            (RunRequest::Claim { room, .. }, RunOutcome::Claimed { started, blocked, refuted }) => {
                refuted.iter().for_each(|pipeline| self.guard_checks.report(pipeline, &mut self.out));
                self.selection.pass_over(blocked);
                let (count, is_full) = (started.len(), started.len() == room);
                self.shortage.on_claimed(count, is_full, self.renewal.sent_at());
                started.into_iter().for_each(|work| self.sessions.begin(work, true, &mut self.out));
                return count == 0 || !is_full;
            }
            (RunRequest::Claim { .. }, _) => self.is_enlisted = false,
            // A wish to stop it may have been waiting for an owner.
            (RunRequest::Adopt { .. }, RunOutcome::Adopted(work)) => self.sessions.begin(*work, false, &mut self.out),
            (RunRequest::Adopt { what, .. }, _) => self.selection.refuse(what.run.id),
            (RunRequest::Found { .. } | RunRequest::Settle { .. }, RunOutcome::Stepped(outcome, task)) => {
                self.out.report(RunnerEvent::Settled(task, outcome));
            }
            (RunRequest::Tried { command, .. }, _) => self.outbox.on_reply(command),
            (RunRequest::Watch { .. }, RunOutcome::Late) => {
                self.is_enlisted = false;
                self.selection.forget_watching();
            }
            // What was in the way of a claim may have been freed before anybody knew that it waits for that.
            (RunRequest::Watch { .. }, RunOutcome::Done) => self.selection.freed(),
            (RunRequest::Lose { what, .. }, RunOutcome::Lost(ended, outcome, pipeline)) => {
                self.out.report(RunnerEvent::Ended(what, ended, outcome));
                pipeline.iter().for_each(|pipeline| self.guard_checks.report(pipeline, &mut self.out));
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
            ) => {}
            // A runner that was taken for dead enlists again when it claims.
            (
                RunRequest::Started { .. }
                | RunRequest::Short { .. }
                | RunRequest::Pause { .. }
                | RunRequest::Resume { .. }
                | RunRequest::Await { .. }
                | RunRequest::EndAwait { .. },
                _,
            ) => return false,
        }
        true
    }
}
