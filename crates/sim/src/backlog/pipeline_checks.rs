//! Checks of pipelines: one step at a time, in an order that the plan allows, and never left hanging.

use banksman_core::event::TaskFact;
use banksman_core::guard::Guard;
use banksman_core::pipeline::{Fact, Reason, When};
use banksman_core::task::After;
use banksman_core::{Name, Status, TaskId};
use banksman_engine::{PipelineOutcome, PipelineRequest};

use super::guard_checks::asks_outside;
use super::loop_checks::Basis;
use super::model::{TaskModel, TaskState};
use super::pipeline_model::{Owes, PipelineModel, PipelineState};
use crate::report::Checker;
use crate::world::World;

impl World<'_> {
    pub(crate) fn observe_pipeline(&mut self, id: &TaskId, fact: &Fact) {
        self.tally.count(fact.kind());
        if let Fact::Created { context, .. } = fact {
            let Some(plan) = self.model.jobs.get(id).and_then(|job| job.plan()) else {
                return self.verdict.report(Checker::Phases, || format!("{id} begins without a task"));
            };
            self.model.pipelines.insert(id.clone(), PipelineModel::new(plan.clone(), context.clone()));
            return;
        }
        let Some(pipeline) = self.model.pipelines.get(id) else {
            return self.verdict.report(Checker::Phases, || format!("{id} is no pipeline: {fact:?}"));
        };
        // A pipeline that passes the guards after a phase leaves that phase.
        let goes_on = matches!(fact, Fact::Complete {} | Fact::Checking { .. } | Fact::Phase { .. });
        if let (PipelineState::Post(at), true) = (&pipeline.state, goes_on) {
            let owes = pipeline.after(*at);
            self.check_passed(id);
            self.set_state(id, PipelineState::Owes(owes));
        }
        self.observe_step(id, fact);
    }

    fn set_state(&mut self, id: &TaskId, state: PipelineState) {
        if let Some(pipeline) = self.model.pipelines.get_mut(id) {
            if let PipelineState::Owes(Owes::Enter(at)) = state {
                let attempts = pipeline.attempts.entry(at).or_default();
                *attempts += 1 + pipeline.retried.remove(&at).unwrap_or_default();
                (pipeline.attempt, pipeline.waived) = (*attempts, false);
            }
            (pipeline.state, pipeline.blocked, pipeline.again, pipeline.checker) = (state, None, None, None);
            pipeline.overdue = None;
            pipeline.is_keeping &= !pipeline.is_over();
        }
    }

    fn observe_step(&mut self, id: &TaskId, fact: &Fact) {
        let pipeline = &self.model.pipelines[id];
        let state = pipeline.state.clone();
        let right = match fact {
            Fact::Created { .. } => true,
            Fact::Started {} => {
                let is_first = state == PipelineState::Init;
                self.check_beginning(id);
                self.set_state(id, PipelineState::Owes(Owes::Enter(0)));
                is_first
            }
            Fact::Checking { phase, when, attempt } => return self.observe_checking(id, phase, *when, *attempt),
            Fact::Blocked { phase, when, reason } => return self.observe_block(id, phase, *when, reason),
            Fact::Phase { phase, attempt, approach, task, .. } => {
                return self.observe_phase(id, phase, *attempt, *approach, task.as_ref());
            }
            Fact::Resumed {} => {
                let was_asked = pipeline.blocked.as_ref().is_some_and(|reason| match reason {
                    Reason::Decision { .. } => true,
                    reason => reason.held().is_some(),
                });
                self.check_resumed(id);
                self.model.pipelines.get_mut(id).into_iter().for_each(|pipeline| pipeline.blocked = None);
                was_asked
            }
            Fact::PhaseFailed { phase, .. } => return self.observe_failure(id, phase),
            Fact::Failed { phase, recoverable, .. } => return self.observe_end_by_failure(id, phase, *recoverable),
            Fact::Fallback { .. } => {
                let PipelineState::Owes(Owes::Failure { at, approach, error, timed_out }) = &state else {
                    return self.astray(id, fact);
                };
                let Some(next) = pipeline.next_approach(*at, *approach, error, *timed_out) else { return self.astray(id, fact) };
                self.set_state(id, PipelineState::Owes(Owes::Approach(*at, next)));
                true
            }
            Fact::Exhausted { .. } => {
                let PipelineState::Owes(Owes::Failure { at, approach, error, timed_out }) = &state else {
                    return self.astray(id, fact);
                };
                let is_right = pipeline.next_approach(*at, *approach, error, *timed_out).is_none();
                self.set_state(id, PipelineState::Owes(Owes::GivenUp(*at)));
                is_right
            }
            Fact::Complete {} => {
                self.set_state(id, PipelineState::Done);
                state == PipelineState::Owes(Owes::Complete)
            }
            Fact::Retry { phase } => {
                self.model.automation.retried.insert(id.clone());
                let pipeline = &self.model.pipelines[id];
                let PipelineState::Failed { at, recoverable: true } = state else { return self.astray(id, fact) };
                let is_same = pipeline.at(phase) == Some(at);
                self.set_state(id, PipelineState::Owes(Owes::Enter(at)));
                let pipeline = self.model.pipelines.get_mut(id).expect("it is there");
                pipeline.failures.clear();
                is_same
            }
            Fact::Cancelled { .. } => {
                let was_open = !pipeline.is_over();
                self.set_state(id, PipelineState::Cancelled);
                was_open
            }
            Fact::Set { vars } => {
                self.model.pipelines.get_mut(id).into_iter().for_each(|pipeline| pipeline.context.extend(vars.clone()));
                true
            }
            Fact::Unblocked { .. } => {
                self.model.pipelines.get_mut(id).into_iter().for_each(|pipeline| pipeline.waived = true);
                self.call.about == Basis::Unblock
            }
            Fact::Warned { .. } | Fact::Checkpoint(_) => true,
            Fact::Deleted {} => {
                self.model.pipelines.remove(id);
                true
            }
        };
        self.verdict.expect(Checker::Phases, right, || format!("{id} stood at {state:?}, and then came {fact:?}"));
    }

    fn astray(&mut self, id: &TaskId, fact: &Fact) {
        let state = self.model.pipelines.get(id).map(|pipeline| pipeline.state.clone());
        self.verdict.report(Checker::Phases, || format!("{id} stood at {state:?}, and then came {fact:?}"));
    }

    /// A pipeline begins: its dependencies are met, and it has a place among the roots, unless a person has unblocked it.
    fn check_beginning(&mut self, id: &TaskId) {
        if self.call.about == Basis::Unblock {
            return;
        }
        let Some(job) = self.model.jobs.get(id) else { return };
        let unmet: Vec<TaskId> = self.model.unmet(job).cloned().collect();
        self.verdict.expect(Checker::Early, unmet.is_empty(), || format!("{id} begins before {unmet:?}"));
        if let Some(runner) = self.call.by.clone() {
            self.check_root(id, &runner);
        }
    }

    fn observe_checking(&mut self, id: &TaskId, phase: &Name, when: When, attempt: u32) {
        let pipeline = self.model.pipelines.get_mut(id).expect("the pipeline is in the model");
        let at = pipeline.at(phase).unwrap_or(usize::MAX);
        let owed = match when {
            When::Pre => PipelineState::Owes(Owes::Enter(at)),
            When::Post => PipelineState::Owes(Owes::Post(at)),
        };
        // A phase whose item is not pushed yet returns to its guards if one of them does not hold any more.
        let is_again =
            when == When::Pre && matches!(&pipeline.state, PipelineState::In { at: stood, task: None, .. } if *stood == at);
        let right = (pipeline.state == owed || is_again) && pipeline.attempt == attempt;
        let state = std::mem::replace(
            &mut pipeline.state,
            if when == When::Pre { PipelineState::Pre(at) } else { PipelineState::Post(at) },
        );
        (pipeline.visit, pipeline.checker) = (pipeline.visit + 1, None);
        let has_guards = at < pipeline.plan.phases.len() && !pipeline.guards().is_empty();
        self.verdict.expect(Checker::Phases, right && has_guards, || {
            format!("{id} stood at {state:?}, and then the guards of {phase} ({when:?}, attempt {attempt}) were looked at")
        });
    }

    fn observe_block(&mut self, id: &TaskId, phase: &Name, when: When, reason: &Reason) {
        let pipeline = &self.model.pipelines[id];
        let right = match reason {
            Reason::Dependencies => {
                let waits = self.model.jobs.get(id).is_some_and(|job| self.model.unmet(job).next().is_some());
                pipeline.state == PipelineState::Init && waits
            }
            Reason::Guard { .. } => pipeline.holds_back(phase, when, reason),
            // Only a blocked pipeline is blocked for too long, and then a person is asked.
            Reason::Overdue { decision, .. } => {
                let is_asked = self.model.decisions.get(decision).is_some_and(|asked| asked.open);
                pipeline.is_held_up() && pipeline.holds_back(phase, when, reason) && is_asked
            }
            Reason::Decision { decision, task, .. } => {
                let state = self.model.jobs.get(task).map(|job| &job.state);
                pipeline.task() == Some(task) && state == Some(&TaskState::AwaitingDecision(decision.clone()))
            }
        };
        self.verdict
            .expect(Checker::Phases, right, || format!("{id} stands at {:?}, and is blocked: {reason:?}", pipeline.state));
        match reason {
            Reason::Guard { guard, held: Some(_), .. } if !pipeline.is_held_up() => self.check_refuted(id, guard),
            Reason::Guard { guard, .. } => self.check_held_up(id, guard),
            Reason::Overdue { .. } | Reason::Dependencies | Reason::Decision { .. } => {}
        }
        let lease = self.call.lease;
        let pipeline = self.model.pipelines.get_mut(id).expect("the pipeline is in the model");
        let limit = pipeline.plan.phase(phase).map(banksman_core::pipeline::plan::Phase::blocked_timeout);
        // After the decision about a block by the store, the time limit of an outside input starts again.
        let asks = |guard: &Name| pipeline.guards().iter().any(|asked| asked.name == *guard && asks_outside(&asked.condition));
        let was_told = pipeline.overdue.is_some_and(|overdue| overdue <= lease);
        match reason {
            Reason::Guard { guard, .. } if pipeline.is_held_up() && !(was_told && asks(guard)) => {}
            Reason::Guard { .. } => pipeline.overdue = limit.map(|limit| lease + limit),
            Reason::Overdue { .. } | Reason::Dependencies | Reason::Decision { .. } => pipeline.overdue = None,
        }
        (pipeline.blocked, pipeline.checker) = (Some(reason.clone()), None);
    }

    fn observe_phase(&mut self, id: &TaskId, phase: &Name, attempt: u32, approach: u32, task: Option<&TaskId>) {
        if let PipelineState::Pre(_) = self.model.pipelines[id].state {
            self.check_passed(id);
        }
        let pipeline = &self.model.pipelines[id];
        let at = pipeline.at(phase).unwrap_or(usize::MAX);
        let may = match &pipeline.state {
            PipelineState::Owes(Owes::Enter(next)) => *next == at && approach == 0 && pipeline.plan.phases[at].pre.is_empty(),
            PipelineState::Pre(next) => *next == at && approach == 0,
            PipelineState::Owes(Owes::Approach(next, tried)) => (*next, *tried) == (at, approach),
            _ => false,
        };
        let is_new = task.is_none_or(|task| !self.model.jobs.contains_key(task));
        let right = may && is_new && pipeline.attempt == attempt && pipeline.is_push(at) == task.is_none();
        self.verdict.expect(Checker::Phases, right, || {
            format!(
                "{id} stood at {:?}, and then {phase} began: attempt {attempt}, approach {approach}, by {task:?}",
                pipeline.state
            )
        });
        self.set_state(id, PipelineState::In { at, approach, task: task.cloned() });
        self.model.pipelines.get_mut(id).into_iter().for_each(|pipeline| pipeline.begun += 1);
    }

    /// A phase has failed, and the pipeline continues with another one.
    fn observe_failure(&mut self, id: &TaskId, phase: &Name) {
        self.fail_push(id);
        let pipeline = self.model.pipelines.get_mut(id).expect("the pipeline is in the model");
        let at = pipeline.at(phase).unwrap_or(usize::MAX);
        let is_guarded = matches!(pipeline.state, PipelineState::Pre(here) | PipelineState::Post(here) | PipelineState::In { at: here, .. } if here == at);
        let next = (pipeline.has_failed(at) || is_guarded).then(|| pipeline.after_failure(at)).flatten();
        let state = pipeline.state.clone();
        if let Some(next) = next {
            *pipeline.failures.entry(at).or_default() += 1;
            self.set_state(id, PipelineState::Owes(Owes::Enter(next)));
        }
        self.verdict.expect(Checker::Phases, next.is_some(), || format!("{id} stood at {state:?}, and goes on after {phase}"));
    }

    fn observe_end_by_failure(&mut self, id: &TaskId, phase: &Name, recoverable: bool) {
        self.fail_push(id);
        let pipeline = &self.model.pipelines[id];
        let at = pipeline.at(phase).unwrap_or(usize::MAX);
        let right = match &pipeline.state {
            PipelineState::Owes(Owes::Dropped(here)) => recoverable && *here == at,
            // A pipeline that was blocked for too long may be retried; one that a guard has failed may not.
            PipelineState::Pre(here) | PipelineState::Post(here) | PipelineState::In { at: here, .. } if *here == at => {
                let is_given_up = matches!(pipeline.blocked, Some(Reason::Overdue { .. }));
                recoverable == is_given_up && (is_given_up || pipeline.after_failure(at).is_none())
            }
            _ => recoverable && pipeline.has_failed(at) && pipeline.after_failure(at).is_none(),
        };
        self.verdict.expect(Checker::Phases, right, || {
            format!("{id} stood at {:?}, and has failed in {phase}, recoverable: {recoverable}", pipeline.state)
        });
        if matches!(pipeline.state, PipelineState::Pre(_) | PipelineState::Post(_)) && !recoverable {
            self.check_failed_by_guard(id);
        }
        self.set_state(id, PipelineState::Failed { at, recoverable });
    }

    /// A failure while an item is being pushed is that of the push: the queue is not defined.
    fn fail_push(&mut self, id: &TaskId) {
        let pipeline = &self.model.pipelines[id];
        if let (PipelineState::In { at, task: None, .. }, Basis::Push) = (&pipeline.state, &self.call.about) {
            let at = *at;
            self.set_state(id, PipelineState::Owes(Owes::GivenUp(at)));
        }
    }

    /// An item is in the queue, so its push is complete.
    pub(crate) fn observe_push(&mut self) {
        let Some(id) = self.call.pushes.clone() else { return };
        let Some(pipeline) = self.model.pipelines.get(&id) else { return };
        let PipelineState::In { at, task: None, .. } = pipeline.state else {
            let state = pipeline.state.clone();
            return self.verdict.report(Checker::Phases, || format!("{id} pushes an item, and stands at {state:?}"));
        };
        self.tally.count("items pushed by phases");
        let owes = pipeline.after_success(at);
        self.set_state(&id, PipelineState::Owes(owes));
    }

    /// The task of a phase is over, or deleted: its pipeline has to continue.
    pub(crate) fn end_phase(&mut self, task: &TaskId, fact: Option<&TaskFact>, timed_out: bool) {
        let Some((id, pipeline)) = self.model.pipelines.iter().find(|(_, pipeline)| pipeline.task() == Some(task)) else {
            return;
        };
        let PipelineState::In { at, approach, .. } = pipeline.state else { return };
        let owes = match fact {
            Some(TaskFact::Complete { .. }) => pipeline.after_success(at),
            Some(TaskFact::Failed { error, .. }) if pipeline.has_strategy(at) => {
                Owes::Failure { at, approach, error: error.clone(), timed_out }
            }
            Some(TaskFact::Failed { .. }) => Owes::GivenUp(at),
            _ => Owes::Dropped(at),
        };
        let id = id.clone();
        let more = self.model.jobs.get(task).map_or(0, |job| job.attempts.saturating_sub(1));
        self.model.pipelines.get_mut(&id).into_iter().for_each(|pipeline| *pipeline.retried.entry(at).or_default() += more);
        self.set_state(&id, PipelineState::Owes(owes));
    }

    /// Whether the run of a task was stopped because it took too long.
    pub(crate) fn took_too_long(&self, task: &TaskId) -> bool {
        self.model.live(task).is_some_and(|(_, entry)| matches!(entry.stopping, Some(After::Overtime { .. })))
    }

    /// Feeds the results of pipeline requests that have no event to the model.
    pub(crate) fn after_pipeline(&mut self, request: &PipelineRequest, reply: &PipelineOutcome) {
        let PipelineOutcome::Stepped(outcome, pipeline) = reply else { return };
        match (request, outcome) {
            (PipelineRequest::BeginCheck { id, by, .. }, banksman_core::pipeline::Outcome::Check) => {
                self.observe_examination(id, by)
            }
            (PipelineRequest::CheckGuards(_), _) => {
                let again = match &pipeline.state {
                    banksman_core::pipeline::State::Blocked { reason: Reason::Guard { again, .. }, .. } => Some(*again),
                    _ => None,
                };
                if let Some(pipeline) = self.model.pipelines.get_mut(&pipeline.id) {
                    (pipeline.again, pipeline.checker) = (again, pipeline.checker.clone());
                }
            }
            _ => {}
        }
    }

    /// After every commit: no pipeline owes a step, its own task has its state, and at most one task of it is open.
    pub(crate) fn check_pipelines(&mut self) {
        let wrong =
            self.model.pipelines.iter().find_map(|(id, pipeline)| self.fault_of(id, pipeline)).or_else(|| self.wrongly_kept());
        self.verdict.expect(Checker::Phases, wrong.is_none(), || wrong.unwrap_or_default());
    }

    fn fault_of(&self, id: &TaskId, pipeline: &PipelineModel) -> Option<String> {
        let parent = self.model.jobs.get(id).map(|job| &job.state);
        let should = match &pipeline.state {
            PipelineState::Owes(owes) => return Some(format!("{id} is left hanging: {owes:?}")),
            PipelineState::Init => TaskState::Pending,
            PipelineState::Pre(_) | PipelineState::In { .. } | PipelineState::Post(_) => {
                TaskState::InPhases(pipeline.blocked.is_some())
            }
            PipelineState::Done => TaskState::Over(Status::Completed),
            PipelineState::Failed { .. } => TaskState::Over(Status::Failed),
            PipelineState::Cancelled => TaskState::Over(Status::Cancelled),
        };
        if parent != Some(&should) {
            return Some(format!("{id} stands at {:?}, and its task is {parent:?}", pipeline.state));
        }
        let parked = pipeline.task().and_then(|task| self.model.jobs.get(task)).map(|job| &job.state);
        let is_asked = matches!(pipeline.blocked, Some(Reason::Decision { .. }));
        if is_asked != matches!(parked, Some(TaskState::AwaitingDecision(_))) {
            return Some(format!("{id} is blocked: {:?}, and its phase is {parked:?}", pipeline.blocked));
        }
        let is_open = |job: &TaskModel| !matches!(job.state, TaskState::Over(_));
        let tasks = self.model.jobs.iter().filter(|(_, job)| job.is_phase_of(id) && is_open(job)).map(|(task, _)| task);
        // The tasks of a cancelled pipeline have to be ended first.
        let mut others = tasks.filter(|task| pipeline.task() != Some(task) && pipeline.state != PipelineState::Cancelled);
        if let Some(other) = others.next() {
            return Some(format!("{id} stands at {:?}, and {other} is open", pipeline.state));
        }
        let missing = pipeline.task().filter(|task| !self.model.jobs.get(*task).is_some_and(is_open));
        missing.map(|task| format!("{id} stands at {:?}, and {task} is over or not there", pipeline.state))
    }

    /// Whether a runner could advance a pipeline right now.
    pub(crate) fn could_go_on(&self, id: &TaskId, pipeline: &PipelineModel) -> bool {
        let Some(lease) = self.lease() else { return false };
        let able = |runner: &super::runner::Runner| runner.is_awake() && !runner.cancelled;
        if !self.runners.iter().any(able) {
            return false;
        }
        match pipeline.state {
            PipelineState::In { task: None, .. } => true,
            // Only a person can decide how it continues.
            _ if matches!(pipeline.blocked, Some(Reason::Overdue { .. })) => false,
            PipelineState::In { .. } if !pipeline.is_held_up() => false,
            PipelineState::Pre(_) | PipelineState::Post(_) | PipelineState::In { .. } => {
                let is_due = !pipeline.is_held_up()
                    || pipeline.again.is_some_and(|again| again <= lease)
                    || self.would_pass(pipeline, lease);
                let is_outside = pipeline.guards().iter().any(|guard| asks_outside(&guard.condition));
                // No event reports a change outside of the store.
                let waits = is_outside && pipeline.is_held_up() && pipeline.again.is_some_and(|again| again > lease);
                // No block lasts too long without a question to a person.
                let asks = |guard: &&Guard| pipeline.blocking_guard() == Some(&guard.name) && asks_outside(&guard.condition);
                let is_late =
                    matches!(pipeline.state, PipelineState::Post(_)) || pipeline.guards().iter().any(|guard| asks(&guard));
                let is_overdue = is_late && pipeline.is_held_up() && pipeline.overdue.is_some_and(|overdue| overdue <= lease);
                (is_due && !waits || is_overdue) && !self.is_taken(id, pipeline)
            }
            _ => false,
        }
    }

    /// Whether a runner checks the guards of a pipeline, or has left something behind that must be settled first.
    fn is_taken(&self, id: &TaskId, pipeline: &PipelineModel) -> bool {
        // Also if its inputs are no longer needed: the check continues until it has reported.
        if self.is_checked(id) {
            return true;
        }
        let Some(checker) = &pipeline.checker else { return false };
        let known = self.model.runners.get(checker);
        let lives = known.is_some_and(|known| !known.left && self.machine.lives(&known.process));
        let has_runs = self.model.runs.values().any(|entry| !entry.ended && entry.owner == *checker);
        let is_stalled = self.runners.iter().any(|runner| runner.id == *checker && runner.alive && runner.paused_until.is_some());
        has_runs && !lives || is_stalled
    }

    /// Whether a pipeline keeps runners from exiting that run until they are idle.
    pub(crate) fn is_awaited(&self, pipeline: &PipelineModel) -> bool {
        match &pipeline.state {
            PipelineState::In { task: None, .. } => true,
            PipelineState::Pre(_) if pipeline.blocked.is_none() => true,
            // It ends by time.
            PipelineState::Post(_) if pipeline.blocked.is_none() || pipeline.is_held_up() => true,
            PipelineState::Pre(_) | PipelineState::In { .. } if pipeline.is_held_up() => pipeline
                .guards()
                .iter()
                .filter(|guard| pipeline.blocking_guard() == Some(&guard.name))
                .any(|guard| asks_outside(&guard.condition) || self.asks_about_held(&guard.condition, pipeline)),
            _ => false,
        }
    }

    /// Whether only people can do anything for a pipeline any more.
    pub(crate) fn cannot_advance(&self, id: &TaskId, pipeline: &PipelineModel) -> bool {
        match &pipeline.state {
            PipelineState::Done | PipelineState::Failed { .. } | PipelineState::Cancelled => true,
            PipelineState::Init => self.model.jobs.get(id).is_some_and(|job| self.is_rightly_blocked(job)),
            _ if matches!(pipeline.blocked, Some(Reason::Overdue { .. })) => true,
            PipelineState::In { .. } | PipelineState::Pre(_) | PipelineState::Post(_) if pipeline.is_held_up() => {
                self.lease().is_some_and(|lease| self.is_rightly_held_up(pipeline, lease))
            }
            PipelineState::In { task: Some(task), .. } => {
                let waits = |job: &TaskModel| match job.state {
                    TaskState::AwaitingDecision(_) | TaskState::Landing | TaskState::Review => true,
                    TaskState::Pending => self.is_rightly_blocked(job),
                    TaskState::Live(_)
                    | TaskState::Awaiting(_)
                    | TaskState::InPhases(_)
                    | TaskState::Manual
                    | TaskState::Over(_) => false,
                };
                self.model.jobs.get(task).is_some_and(waits)
            }
            PipelineState::Pre(_) | PipelineState::Post(_) | PipelineState::In { task: None, .. } | PipelineState::Owes(_) => {
                false
            }
        }
    }

    /// In the end every pipeline is over, or blocked for a valid reason.
    pub(crate) fn check_pipelines_at_the_end(&mut self) {
        let stuck = self.model.pipelines.iter().filter(|(id, pipeline)| !self.cannot_advance(id, pipeline));
        let stuck: Vec<String> =
            stuck.map(|(id, pipeline)| format!("{id} at {:?}, blocked: {:?}", pipeline.state, pipeline.blocked)).collect();
        self.verdict.expect(Checker::Idle, stuck.is_empty(), || format!("nothing moves, and these could: {}", stuck.join(", ")));
        let over = self.model.pipelines.values().filter(|pipeline| pipeline.is_over()).count();
        self.tally.count_many("pipelines over at the end", over as u64);
    }
}

impl PipelineModel {
    /// Whether the owed step is the failure of this phase.
    fn has_failed(&self, at: usize) -> bool {
        match &self.state {
            PipelineState::Owes(Owes::GivenUp(here)) => *here == at,
            _ => false,
        }
    }
}
