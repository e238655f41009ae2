//! The model of loops: the file DONE, their attempts, their delays, and the children for which they wait.

use banksman_core::decision::{self, About, Act};
use banksman_core::event::TaskFact;
use banksman_core::resource::coordination::Command;
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::task::retry::{Marker, OnTimeout};
use banksman_core::task::{After, OnExhausted, Spec, Watch};
use banksman_core::{HolderId, Lease, RunId, RunnerId, Seq, Span, Status, TaskId};
use banksman_engine::{DecisionOutcome, DecisionRequest, PipelineRequest, Reply, Request, RunRequest, TaskRequest};

use super::model::TaskState;
use super::run_end_checks::Made;
use crate::machine::Placed;
use crate::mutation::Mutation;
use crate::report::Checker;
use crate::world::World;

/// What the caller of a request has reported, and when.
#[derive(Debug)]
pub(crate) struct CallContext {
    pub(crate) seq: Seq,
    pub(crate) lease: Lease,
    /// The state of the file DONE that it has read.
    pub(crate) marker: Marker,
    pub(crate) watch: Watch,
    /// What the call is based on: the end of a run, the file of a task, the children of a task.
    pub(crate) about: Basis,
    /// The runner that calls.
    pub(crate) by: Option<RunnerId>,
    /// The pipeline that pushes an item into a queue.
    pub(crate) pushes: Option<TaskId>,
    /// The holder that wants a lock or slots.
    pub(crate) asks: Option<HolderId>,
    /// The last event that the call routes.
    pub(crate) routed: Option<Seq>,
}

/// What a caller has checked before it reports on a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Basis {
    End(RunnerId),
    File,
    Children,
    Pulse,
    /// The guards of a pipeline.
    Guards(TaskId),
    Push,
    /// Nothing: a person unblocks a pipeline.
    Unblock,
    Other,
}

/// A check for the file DONE.
#[derive(Debug)]
pub(crate) struct Checked {
    marker: Marker,
    at: Seq,
    /// Whether a session of the task was alive.
    lived: bool,
}

impl Default for CallContext {
    fn default() -> CallContext {
        let watch = Watch { timeout: Span::ZERO, max_recoveries: 0, on_exhausted: OnExhausted::Escalate };
        let (by, pushes, asks, routed) = (None, None, None, None);
        CallContext { seq: Seq(0), lease: Lease(0), marker: Marker::Absent, watch, about: Basis::Other, by, pushes, asks, routed }
    }
}

impl CallContext {
    pub(crate) fn of(request: &Request, reply: &Reply) -> CallContext {
        let blank = CallContext::default();
        match request {
            Request::Run(RunRequest::Finish { runner, marker, watch, .. }) => {
                CallContext { marker: marker.clone(), watch: *watch, about: Basis::End(runner.clone()), ..blank }
            }
            Request::Run(RunRequest::Found { marker, .. }) => CallContext { marker: marker.clone(), about: Basis::File, ..blank },
            Request::Run(RunRequest::Settle { .. }) => CallContext { about: Basis::Children, ..blank },
            Request::Task(TaskRequest::Heartbeat { watch, .. }) => CallContext { watch: *watch, about: Basis::Pulse, ..blank },
            Request::Pipeline(PipelineRequest::CheckGuards(guard_check)) => {
                CallContext { about: Basis::Guards(guard_check.id.clone()), ..blank }
            }
            Request::Pipeline(PipelineRequest::Push { id, .. }) => {
                CallContext { about: Basis::Push, pushes: Some(id.clone()), ..blank }
            }
            Request::Pipeline(PipelineRequest::Unblock { .. }) => CallContext { about: Basis::Unblock, ..blank },
            Request::Decision(_)
                if matches!(reply, Reply::Decision(DecisionOutcome::Stepped(decision::Outcome::Resolved(Act::Pass), _))) =>
            {
                CallContext { about: Basis::Unblock, ..blank }
            }
            Request::Coordinate {
                command: Command::Lock(_, lock::Input::Acquire(ask)) | Command::Semaphore(_, semaphore::Input::Acquire(ask)),
                ..
            } => CallContext { asks: Some(ask.claim.holder.clone()), ..blank },
            // A person's decision is no recovery, so it is not limited.
            Request::Decision(DecisionRequest { about: About::Run { .. }, .. }) => {
                CallContext { watch: Watch { max_recoveries: u32::MAX, ..blank.watch }, ..blank }
            }
            Request::Route(request) => CallContext { routed: Some(request.to), ..blank },
            _ => blank,
        }
    }
}

impl World<'_> {
    /// A runner checks for the file DONE.
    pub(crate) fn read_marker(&mut self, slot: usize, task: &TaskId) -> Marker {
        if self.mutation() == Some(Mutation::DoneUnseen) {
            return Marker::Absent;
        }
        let marker = match self.machine.files.get(task) {
            None => Marker::Absent,
            Some(Placed::File) => Marker::Done,
            Some(Placed::Directory) => Marker::Broken("it is a directory".into()),
        };
        if marker != Marker::Absent {
            self.tally.count("DONE found");
        }
        let lived = self.keepers.values().any(|keeper| keeper.task == *task && keeper.tree_lives());
        let checked = Checked { marker: marker.clone(), at: self.model.last, lived };
        self.checks.insert((self.runners[slot].id.clone(), task.clone()), checked);
        marker
    }

    /// Checks every attempt: some are left, the delay is over, and its runner has checked for DONE, also since it
    /// reported the last attempt.
    pub(crate) fn check_attempt(&mut self, id: &TaskId, runner: &RunnerId, restart: Option<u32>) {
        let lease = self.call.lease;
        let Some(job) = self.model.jobs.get_mut(id) else { return };
        let (tried, rests) = (job.tried, job.rests.take());
        job.tried += 1;
        let Some(policy) = &job.spec.restart else {
            return self.verdict.expect(Checker::Loops, restart.is_none(), || format!("{id} is no loop"));
        };
        self.tally.count("attempts of loops");
        let max = policy.max_attempts.get();
        self.verdict.expect(Checker::Loops, tried < max, || format!("{id} is tried after {tried} of {max} attempts"));
        self.verdict.expect(Checker::Loops, restart == Some(tried), || {
            format!("{id} is said to be tried after {restart:?} attempts, there were {tried}")
        });
        let rested = rests.is_none_or(|until| lease >= until);
        self.verdict.expect(Checker::Loops, rested, || format!("{id} begins at {lease:?}, and rests until {rests:?}"));
        let since = job.ended.as_ref().filter(|(by, _)| by == runner).map_or(Seq(0), |(_, seq)| *seq);
        let checked = self.checks.get(&(runner.clone(), id.clone())).filter(|checked| checked.at >= since);
        let clear = checked.is_some_and(|checked| checked.marker == Marker::Absent);
        self.verdict.expect(Checker::Loops, clear, || format!("{runner} begins {id} after the check {checked:?}"));
    }

    /// What a runner reports of the file after an attempt is what it has read after the session was dead.
    pub(crate) fn check_marker(&mut self, id: &TaskId) {
        let Basis::End(runner) = &self.call.about else { return };
        if self.model.jobs.get(id).is_none_or(|job| job.spec.restart.is_none()) {
            return;
        }
        let checked = self.checks.get(&(runner.clone(), id.clone())).filter(|checked| !checked.lived);
        let right = checked.is_some_and(|checked| checked.marker == self.call.marker);
        let marker = &self.call.marker;
        self.verdict.expect(Checker::Loops, right, || format!("{marker:?} is said of {id} after the check {checked:?}"));
    }

    /// A task that changes without a run: it was found to be done, or it is over with its children.
    pub(crate) fn check_settled(&mut self, id: &TaskId, made: &Made) {
        let children = self.model.open_children(id);
        let Some(job) = self.model.jobs.get(id) else { return };
        let in_time = |until: &Option<Lease>| until.is_none_or(|until| self.call.lease < until);
        let right = match (&self.call.about, &job.state, job.spec.restart.as_ref(), made) {
            (Basis::Other, _, _, Made::Over(_)) => true,
            // A guard kept it from beginning, and now fails its phase.
            (Basis::Guards(pipeline), TaskState::Pending, None, Made::Over(Status::Failed)) => {
                job.is_phase_of(pipeline)
                    && self.model.pipelines.get(pipeline).is_some_and(|pipeline| pipeline.task() != Some(id))
            }
            // The children took too long.
            (Basis::Children, _, _, Made::Over(Status::Cancelled)) => true,
            (Basis::File, TaskState::Pending, Some(_), Made::Over(Status::Completed)) => {
                self.call.marker == Marker::Done && children == 0
            }
            (Basis::File, TaskState::Pending, Some(_), Made::Awaiting) => self.call.marker == Marker::Done && children > 0,
            (Basis::File, TaskState::Pending, Some(_), Made::Over(Status::Failed)) => {
                matches!(self.call.marker, Marker::Broken(_))
            }
            (Basis::Children, TaskState::Awaiting(until), Some(policy), Made::Over(status)) => match status {
                Status::Completed => children == 0 || (!in_time(until) && policy.on_children_timeout == OnTimeout::Warn),
                _ => children > 0 && !in_time(until) && policy.on_children_timeout == OnTimeout::Fail,
            },
            _ => false,
        };
        self.verdict.expect(Checker::Ends, right, || {
            format!("{id} becomes {made:?} with {children} open children; it was {:?}, and {:?} is said", job.state, self.call)
        });
    }

    /// The children of a task took too long, and are cancelled.
    pub(crate) fn observe_ending_children(&mut self, id: &TaskId) {
        self.tally.count("children cancelled");
        let (open, lease) = (self.model.open_children(id), self.call.lease);
        let Some(job) = self.model.jobs.get_mut(id) else { return };
        let kills = job.spec.restart.as_ref().is_some_and(|policy| policy.on_children_timeout == OnTimeout::Kill);
        let late = matches!(job.state, TaskState::Awaiting(Some(until)) if until <= lease);
        self.verdict.expect(Checker::Ends, kills && late && open > 0, || format!("the children of {id} are ended: {job:?}"));
        job.state = TaskState::Awaiting(None);
    }

    /// A delay was seen to be over, or not: there is no event for that.
    pub(crate) fn observe_rested(&mut self, tasks: &[TaskId]) {
        for id in tasks {
            if let Some(job) = self.model.jobs.get_mut(id) {
                job.rests = job.rests.filter(|until| *until > self.call.lease);
            }
        }
    }

    /// Every step of the escalation, and that there are no more of them than allowed.
    pub(crate) fn observe_rung(&mut self, id: &TaskId, fact: &TaskFact) {
        let (lease, watch) = (self.call.lease, self.call.watch);
        let (Some(job), TaskFact::Stuck { run, .. } | TaskFact::Nudged { run, .. } | TaskFact::Recovered { run, .. }) =
            (self.model.jobs.get_mut(id), fact)
        else {
            return;
        };
        let Some(entry) = self.model.runs.get_mut(run) else { return };
        match fact {
            TaskFact::Stuck { .. } => entry.stuck = Some(lease),
            TaskFact::Recovered { recoveries, .. } => {
                self.tally.count("recovered");
                let is_right = entry.stuck.is_some() || recoveries.is_some();
                self.verdict.expect(Checker::Escalation, is_right, || format!("{run} recovers, and was not stuck"));
                job.recoveries = recoveries.unwrap_or(job.recoveries);
                entry.stuck = None;
            }
            TaskFact::Nudged { recoveries, .. } => {
                self.tally.count("nudged");
                job.recoveries += 1;
                let right = *recoveries == job.recoveries && *recoveries <= watch.max_recoveries && entry.stuck == Some(lease);
                self.verdict.expect(Checker::Escalation, right, || {
                    format!(
                        "{run} is nudged, help number {recoveries} of {}; there were {}",
                        watch.max_recoveries, job.recoveries
                    )
                });
            }
            _ => {}
        }
    }

    /// A run is being stopped. If that is because it looks stuck, it was nudged before and had time to recover; or no
    /// recovery is left.
    pub(crate) fn check_stop(&mut self, id: &TaskId, run: &RunId, then: &After) {
        let (lease, watch) = (self.call.lease, self.call.watch);
        let (Some(job), Some(entry)) = (self.model.jobs.get(id), self.model.runs.get(run)) else { return };
        let had_time = entry.stuck.is_some_and(|since| since + watch.timeout <= lease);
        let spent = job.recoveries >= watch.max_recoveries && (had_time || entry.stuck == Some(lease));
        // Stopping the project at once hurries a run that is being stopped already, for its original reason.
        let is_hurried = entry.stopping.as_ref() == Some(then) && self.call.about != Basis::Pulse;
        let right = match then {
            _ if is_hurried => true,
            After::Restart => had_time && job.recoveries < watch.max_recoveries,
            After::Escalate { .. } => spent && on_exhausted(&job.spec, &watch) == OnExhausted::Escalate,
            After::Fail { .. } if self.call.about == Basis::Pulse => {
                spent && on_exhausted(&job.spec, &watch) == OnExhausted::Fail
            }
            After::Fail { .. } | After::Cancel | After::Overtime { .. } | After::PutBack { .. } => true,
        };
        self.tally.count(match then {
            After::Restart => "stopped: restart",
            After::Escalate { .. } => "stopped: escalate",
            After::Overtime { .. } => "stopped: overtime",
            After::Fail { .. } => "stopped: fail",
            After::Cancel => "stopped: cancel",
            After::PutBack { .. } => "stopped: put back",
        });
        self.verdict.expect(Checker::Escalation, right, || {
            format!(
                "{run} is stopped to {then:?}, stuck since {:?}, helped {} times: {:?}",
                entry.stuck, job.recoveries, self.call
            )
        });
    }

    /// The counters match what has happened: they only grow until a person asks for a retry, and never beyond the limits.
    pub(crate) fn check_counters(&mut self, id: &TaskId, failures: u32, recoveries: u32) {
        let Some(job) = self.model.jobs.get(id) else { return };
        let right = (job.failures, job.recoveries) == (failures, recoveries);
        self.verdict.expect(Checker::Escalation, right, || {
            format!(
                "{id} counts {failures} failures and {recoveries} recoveries; there were {} and {}",
                job.failures, job.recoveries
            )
        });
    }
}

/// What happens to a task without recoveries left: a phase with another approach fails, because that is tried after any
/// error.
pub(super) fn on_exhausted(spec: &Spec, watch: &Watch) -> OnExhausted {
    if spec.fails_when_stuck { OnExhausted::Fail } else { watch.on_exhausted }
}
