//! The handling of the store's replies in a runner.

use banksman_core::{pipeline, task};

use super::protocol::{Action, RunnerEvent};
use super::{Dispatcher, Pass};
use crate::calls::pipelines::PipelineOutcome;
use crate::calls::runs::{RunOutcome, RunRequest};
use crate::calls::tasks::TaskOutcome;
use crate::calls::workers::{WorkerOutcome, WorkerRequest};
use crate::claims::Claimed;
use crate::request::{Reply, Request};

impl Dispatcher {
    /// Takes in the replies to the requests of the last call, in their order.
    pub(super) fn on_replies(&mut self, replies: Vec<Reply>) {
        let requests = std::mem::take(&mut self.sent);
        // A run that has ended since the call frees room that the claim did not count.
        let is_freed = self.selection.is_freed();
        for (request, reply) in requests.into_iter().zip(replies) {
            if self.on_reply(request, reply) {
                self.pass = Pass::Due;
            }
        }
        if is_freed {
            self.selection.stays_freed();
        }
    }

    /// Takes in one reply. Returns whether the rows must be read again.
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
            // Tasks that waited for a limit may be ready.
            (_, Reply::Account(_)) => {
                self.selection.freed();
                true
            }
            (_, Reply::Route(_) | Reply::Queue { .. } | Reply::Coordinate { .. }) => {
                self.selection.freed();
                true
            }
            (Request::Pipeline(request), Reply::Pipeline(outcome)) => {
                // The task of its next phase is ready.
                if matches!(outcome, PipelineOutcome::Stepped(pipeline::Outcome::Begin(_), _)) {
                    self.selection.freed();
                }
                self.guard_checks.on_reply(request, outcome, &mut self.out);
                true
            }
            (_, Reply::Task(TaskOutcome::Stepped(outcome, task))) => {
                // The consequences are in the outbox, or the run has another owner now.
                let has_changed = outcome != task::Outcome::Seen;
                self.sessions.on_heartbeat(outcome, &task, &mut self.out);
                has_changed
            }
            _ => false,
        }
    }

    fn on_run_reply(&mut self, request: RunRequest, outcome: RunOutcome) -> bool {
        match (request, outcome) {
            (RunRequest::Enlist { .. }, _) => {
                self.is_enlisted = true;
                self.selection.freed();
            }
            (RunRequest::Renew { .. }, RunOutcome::Renewed(runs)) => {
                // A run that only this runner knows was ended as lost.
                let has_lost = self.sessions.has_others_than(&runs);
                self.renewal.on_reply(runs);
                return has_lost;
            }
            // The runner was dismissed as dead. It enlists again.
            (RunRequest::Renew { .. }, _) => self.is_enlisted = false,
            (RunRequest::Finish { what, ending, .. }, outcome) => {
                self.sessions.on_finished(what.run.id.clone(), &mut self.out);
                self.has_ended_last = true;
                if let RunOutcome::Finished(outcome, work, pipeline) = outcome {
                    self.out.report(RunnerEvent::Ended(work, ending, outcome));
                    pipeline.iter().for_each(|pipeline| self.guard_checks.report(pipeline, &mut self.out));
                }
                // The claim in the same batch and the runner on duty handle the consequences.
                return false;
            }
            (RunRequest::Claim(claim), RunOutcome::Claimed(claimed)) => return self.on_claimed(claim.room, *claimed),
            (RunRequest::Claim(_), _) => {
                self.is_enlisted = false;
                self.selection.freed();
            }
            // The rows are read again: a command to end the run may have waited for an owner.
            (RunRequest::Adopt { .. }, RunOutcome::Adopted(work)) => self.sessions.begin(*work, false, &mut self.out),
            (RunRequest::Adopt { what, .. }, _) => self.selection.refuse(what.run.id),
            (RunRequest::Found { .. } | RunRequest::Settle { .. }, RunOutcome::Stepped(outcome, task)) => {
                self.has_ended_last = true;
                self.out.report(RunnerEvent::Settled(task, outcome));
            }
            (RunRequest::Tried { command, .. }, _) => self.outbox.on_reply(command),
            (RunRequest::Lose { what, .. }, RunOutcome::Lost(ended, outcome, pipeline)) => {
                self.has_ended_last = true;
                self.out.report(RunnerEvent::Ended(what, ended, outcome));
                pipeline.iter().for_each(|pipeline| self.guard_checks.report(pipeline, &mut self.out));
            }
            (
                RunRequest::Found { .. }
                | RunRequest::FanOut { .. }
                | RunRequest::PassOn { .. }
                | RunRequest::MakeReady { .. }
                | RunRequest::Rest { .. }
                | RunRequest::Settle { .. }
                | RunRequest::Retire { .. }
                | RunRequest::Dismiss { .. }
                | RunRequest::Unproven { .. }
                | RunRequest::Lose { .. },
                _,
            ) => {}
            // A runner that was dismissed as dead enlists again when it claims.
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

    /// Takes in the result of a claim. Returns whether the rows must be read again, to know what to wait for.
    fn on_claimed(&mut self, room: usize, claimed: Claimed) -> bool {
        let (count, is_full) = (claimed.started.len(), claimed.started.len() == room);
        self.selection.on_claimed(&claimed, is_full, &mut self.out);
        if count == 0 && !claimed.again {
            self.shortage.nothing_to_start(&self.context, &mut self.out);
        }
        // A claim that must be repeated belongs to the same try.
        if count > 0 || !claimed.again {
            self.shortage.on_claimed(count, is_full, self.renewal.sent_at());
        }
        for pipeline in &claimed.began {
            self.out.report(RunnerEvent::Begins(Box::new(pipeline.clone())));
        }
        claimed.began.iter().chain(&claimed.refuted).for_each(|pipeline| self.guard_checks.report(pipeline, &mut self.out));
        claimed.started.into_iter().for_each(|work| self.sessions.begin(work, true, &mut self.out));
        if !claimed.unchecked.is_empty() {
            self.out.act(Action::Check(claimed.unchecked));
        }
        count == 0 && !claimed.again && self.sessions.only_unproven()
    }
}
