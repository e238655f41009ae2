//! The end of a run: recorded once, when its session is dead, and with its real result.

use banksman_core::agent::AgentVerdict;
use banksman_core::task::retry::Marker;
use banksman_core::task::{After, OnExhausted, RetryReason, RunEnd, Verdict, Watch};
use banksman_core::{DecisionId, RunId, Span, Status, TaskId};

use super::loop_checks::on_exhausted;
use super::model::{RunModel, TaskModel, TaskState};
use super::shortage::not_begun;
use crate::report::Checker;
use crate::world::{RunFacts, World};

/// What a task becomes by the end of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    Over(Status),
    Again(RetryReason, RunEnd),
    Awaiting,
    AwaitingDecision(DecisionId),
    Landing,
}

impl World<'_> {
    /// Feeds the end of a task, or of one run of it, to the model.
    pub(crate) fn observe_end(&mut self, id: &TaskId, run: Option<&RunId>, made: Made) {
        if let Some(run) = run {
            self.must_be_live(id, run);
            self.check_marker(id);
            let lives = self.lives(run);
            self.verdict.expect(Checker::Ends, !lives, || format!("the end of {run} is recorded, and its session lives"));
            let facts = self.run_facts.get(run).cloned().unwrap_or_default();
            let children = self.model.open_children(id);
            if let (Some(entry), Some(job)) = (self.model.runs.get(run), self.model.jobs.get(id)) {
                let (marker, watch) = (&self.call.marker, self.call.watch);
                let expected = |ending| expected(job, entry, ending, marker, watch, children);
                let right: Vec<Expected> = facts.endings().into_iter().map(expected).collect();
                self.verdict.expect(Checker::Ends, right.contains(&Expected::of(&made)), || {
                    format!("{run} of {id} became {made:?}; what happened is {facts:?}, so it should be one of {right:?}")
                });
            }
            self.count_end(id, &made);
            if let (Some(entry), Some(job)) = (self.model.runs.get_mut(run), self.model.jobs.get_mut(id)) {
                entry.ended = true;
                job.ended = Some((entry.owner.clone(), self.call.seq));
            }
        } else {
            let live = self.model.live(id).map(|(live, _)| live.clone());
            self.verdict.expect(Checker::Ends, live.is_none(), || format!("{id} ends by hand while {live:?} is at it"));
            // A pipeline decides the end of its own task.
            if self.model.jobs.get(id).is_some_and(|job| job.plan().is_none()) {
                self.check_settled(id, &made);
            }
        }
        let lease = self.call.lease;
        if let Some(job) = self.model.jobs.get_mut(id) {
            let over = matches!(job.state, TaskState::Over(_));
            self.verdict.expect(Checker::Ends, !over, || format!("{id} ends twice: {:?}, {made:?}", job.state));
            let policy = job.spec.restart.as_ref();
            let (delay, wait) = policy.map_or((Span::ZERO, Span::ZERO), |policy| (policy.delay, policy.child_wait));
            job.rests = match &made {
                Made::Again(RetryReason::Never | RetryReason::Shortage | RetryReason::Stopped, _) => None,
                Made::Again(..) if delay > Span::ZERO => Some(lease + delay),
                Made::Again(..) | Made::Over(_) | Made::Awaiting | Made::AwaitingDecision(_) | Made::Landing => None,
            };
            job.state = match &made {
                Made::Over(status) => TaskState::Over(*status),
                Made::Again(..) => TaskState::Pending,
                Made::Awaiting => TaskState::Awaiting(Some(lease + wait)),
                Made::AwaitingDecision(decision) => TaskState::AwaitingDecision(decision.clone()),
                Made::Landing => TaskState::Landing,
            };
        }
        self.tally.count(match made {
            Made::Over(Status::Completed) => "completed",
            Made::Over(Status::Failed) => "failed",
            Made::Over(_) => "cancelled",
            Made::Again(RetryReason::Lost, _) => "again: lost",
            Made::Again(RetryReason::Never, _) => "again: never began",
            Made::Again(RetryReason::Shortage, _) => "again: shortage",
            Made::Again(RetryReason::Guard, _) => "again: a guard does not hold",
            Made::Again(RetryReason::Untrusted, _) => "again: not trusted",
            Made::Again(RetryReason::Failed, _) => "again: failed",
            Made::Again(RetryReason::NoVerdict, _) => "again: no verdict",
            Made::Again(RetryReason::Overtime, _) => "again: took too long",
            Made::Again(RetryReason::Stuck, _) => "again: stuck",
            Made::Again(RetryReason::Quota, _) => "again: quota",
            Made::Again(RetryReason::Auth, _) => "again: not logged in",
            Made::Again(RetryReason::Overloaded | RetryReason::Network | RetryReason::Hung, _) => "again: the provider",
            Made::Again(RetryReason::Landing, _) => "again: did not land",
            Made::Again(RetryReason::Stopped, _) => "again: stopped by a person",
            Made::Awaiting => "waits for its children",
            Made::AwaitingDecision(_) => "parked",
            Made::Landing => "lands",
        });
    }

    /// Counts the end of a run as the model does. A run that never began is no attempt.
    fn count_end(&mut self, id: &TaskId, made: &Made) {
        let (Made::Again(why, _), Some(job)) = (made, self.model.jobs.get_mut(id)) else { return };
        let is_loop = job.spec.restart.is_some();
        match why {
            RetryReason::Landing => {}
            RetryReason::Never => job.tried -= 1,
            RetryReason::Shortage
            | RetryReason::Guard
            | RetryReason::Untrusted
            | RetryReason::Quota
            | RetryReason::Auth
            | RetryReason::Stopped => {
                (job.tried, job.attempts) = (job.tried - 1, job.attempts - 1);
            }
            RetryReason::Overloaded | RetryReason::Network | RetryReason::Hung => {
                (job.tried, job.attempts, job.recoveries) = (job.tried - 1, job.attempts - 1, job.recoveries + 1);
            }
            RetryReason::Failed | RetryReason::Overtime | RetryReason::NoVerdict => job.failures += 1,
            RetryReason::Lost if is_loop => job.failures += 1,
            RetryReason::Lost => job.recoveries += 1,
            RetryReason::Stuck => {
                job.failures += u32::from(is_loop);
                job.recoveries += 1;
            }
        }
    }
}

impl RunFacts {
    /// The results with which its run may be recorded.
    fn endings(&self) -> Vec<RunEnd> {
        match (&self.recorded, self.spawned, self.rebooted) {
            (Some(ending), _, false) => vec![ending.clone()],
            (Some(ending), _, true) if self.forgotten => vec![ending.clone(), RunEnd::Lost],
            (Some(ending), _, true) => vec![ending.clone()],
            (None, true, _) => vec![RunEnd::Lost],
            // A later recovery finds nothing.
            (None, false, true) if self.short => vec![not_begun(), RunEnd::Lost, RunEnd::Never],
            (None, false, false) if self.short => vec![not_begun(), RunEnd::Never],
            (None, false, true) => vec![RunEnd::Lost, RunEnd::Never],
            (None, false, false) => vec![RunEnd::Never],
        }
    }
}

/// The expected result of a run for its task. Which decision it raises is not known in advance.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Over(Status),
    Again(RetryReason, RunEnd),
    Awaiting,
    AwaitingDecision,
    Landing,
}

impl Expected {
    fn of(made: &Made) -> Expected {
        match made {
            Made::Over(status) => Expected::Over(*status),
            Made::Again(why, ending) => Expected::Again(*why, ending.clone()),
            Made::Awaiting => Expected::Awaiting,
            Made::AwaitingDecision(_) => Expected::AwaitingDecision,
            Made::Landing => Expected::Landing,
        }
    }
}

const FAILED: Expected = Expected::Over(Status::Failed);

/// What a task becomes by the end of its run, computed independently.
fn expected(job: &TaskModel, entry: &RunModel, ending: RunEnd, marker: &Marker, watch: Watch, children: usize) -> Expected {
    let done = match job.spec.land.is_some() {
        _ if job.spec.restart.is_some() && children > 0 => Expected::Awaiting,
        true => Expected::Landing,
        false => Expected::Over(Status::Completed),
    };
    let is_loop = job.spec.restart.is_some();
    let is_put_back = matches!(entry.stopping, Some(After::PutBack { .. }));
    // The result that a run has reported counts as if it had not been stopped.
    let stopping = entry.stopping.clone().filter(|_| !is_put_back);
    let why = match (&stopping, &entry.verdict, &ending) {
        (Some(After::Cancel), _, _) => return Expected::Over(Status::Cancelled),
        (_, Some(Verdict::Done { .. }), _) => return done,
        (_, Some(Verdict::NoChange { .. }), _) if done == Expected::Awaiting => return done,
        (_, Some(Verdict::NoChange { .. }), _) => return Expected::Over(Status::Completed),
        (None | Some(After::Overtime { .. } | After::Restart), Some(Verdict::Ask { .. } | Verdict::Untrusted { .. }), _) => {
            return Expected::AwaitingDecision;
        }
        _ if is_loop && *marker == Marker::Done => return done,
        (Some(After::Fail { .. }), _, _) => return FAILED,
        (Some(After::Escalate { .. }), _, _) => return Expected::AwaitingDecision,
        _ if is_loop && *marker != Marker::Absent => return FAILED,
        (_, None | Some(Verdict::Agent(_)), _) if is_put_back => return Expected::Again(RetryReason::Stopped, ending),
        (_, None, RunEnd::Never) => RetryReason::Never,
        (_, None, RunEnd::NotBegun { .. }) => RetryReason::Shortage,
        // For a loop that never began, only a reported failure counts.
        (_, Some(Verdict::Failed { .. }), RunEnd::Never | RunEnd::NotBegun { .. }) if is_loop => RetryReason::Failed,
        (Some(After::Overtime { .. }), _, _) => RetryReason::Overtime,
        (Some(After::Restart | After::PutBack { .. }), _, _) => RetryReason::Stuck,
        (None, Some(Verdict::Failed { .. }), _) => RetryReason::Failed,
        (None, None, RunEnd::Exited(0)) if !is_loop => return done,
        (None, None, RunEnd::Exited(0)) => RetryReason::NoVerdict,
        (None, None, RunEnd::Lost) => RetryReason::Lost,
        (None, Some(Verdict::Refused(refused)), _) if refused.fails.is_some() => return FAILED,
        (None, Some(Verdict::Refused(_)), _) => RetryReason::Guard,
        (None, Some(Verdict::Agent(end)), _) => match RetryReason::of_agent(&end.verdict) {
            Some(why) => why,
            None if end.verdict == AgentVerdict::Ok && !is_loop => return done,
            None if end.verdict == AgentVerdict::Ok => RetryReason::NoVerdict,
            None if end.verdict == AgentVerdict::Refused => return Expected::AwaitingDecision,
            None => RetryReason::Failed,
        },
        (None, None, _) => RetryReason::Failed,
    };
    let spent = match &job.spec.restart {
        Some(policy) => !matches!(why, RetryReason::Never | RetryReason::Shortage) && job.tried >= policy.max_attempts.get(),
        None => matches!(why, RetryReason::Failed | RetryReason::Overtime) && job.failures >= job.spec.retries,
    };
    let is_help = why == RetryReason::Stuck || (why == RetryReason::Lost && !is_loop);
    match on_exhausted(&job.spec, &watch) {
        _ if spent => FAILED,
        OnExhausted::Escalate if is_help && job.recoveries >= watch.max_recoveries => Expected::AwaitingDecision,
        OnExhausted::Fail if is_help && job.recoveries >= watch.max_recoveries => FAILED,
        OnExhausted::Escalate | OnExhausted::Fail => Expected::Again(why, ending),
    }
}
