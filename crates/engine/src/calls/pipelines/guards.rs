//! Guards of pipelines: their inputs from the store, and their combined result.

use std::collections::BTreeSet;

use banksman_core::backlog::Backlog;
use banksman_core::guard::{Guard, GuardAction, GuardInputs, GuardResult, PipelineInfo, Topic, Wants, task_id};
use banksman_core::pipeline::plan::Context;
use banksman_core::pipeline::{self, GuardsResult, Pipeline, Recheck, State, When};
use banksman_core::resource::coordination::Coordination;
use banksman_core::{Lease, Name, Now, RunnerId, Seq, Span, TaskId};
use banksman_store::{Key, Tables, Tx};

use crate::calls::pipelines::{PipelineOutcome, step_pipeline, stepped};
use crate::request::Seen;

/// The interval between checks of a guard whose result only events can change: it covers an event that no runner received.
const RECHECK_INTERVAL: Span = Span::from_secs(300);

/// One check of the guards of a phase, with the inputs from outside of the store.
#[derive(Debug, Clone)]
pub struct GuardCheck {
    pub id: TaskId,
    pub phase: Name,
    pub when: When,
    /// The runner that has gathered the inputs, if there were any to gather.
    pub by: Option<RunnerId>,
    /// The number of tasks that the phases had had: the pipeline may have come back to the same guards since.
    pub tasks: u32,
    /// The task of the phase, if it is held until the guards pass.
    pub held: Option<TaskId>,
    pub guards: Vec<Guard>,
    /// The inputs gathered before. Inputs from the store are read again.
    pub inputs: GuardInputs,
    /// The observed state of the holders of locks and slots.
    pub seen: Seen,
    /// The last event before the runner began to gather the inputs.
    pub at: Seq,
    /// The check was given up: the pipeline no longer waited for its result.
    pub is_moot: bool,
}

impl GuardCheck {
    /// Checks the guards that a pipeline waits for.
    pub(crate) fn new(pipeline: &Pipeline, by: Option<RunnerId>, inputs: GuardInputs, seen: Seen, at: Seq) -> Option<GuardCheck> {
        let (phase, when) = pipeline.gate()?;
        let (phase, guards) = (phase.clone(), pipeline.guards().to_vec());
        let (id, tasks, held) = (pipeline.id.clone(), pipeline.tasks, pipeline.task().cloned());
        Some(GuardCheck { id, phase, when, by, tasks, held, guards, inputs, seen, at, is_moot: false })
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let own = [Key::Task(self.id.clone()), Key::Pipeline(self.id.clone()), Key::Runners];
        let own = own.into_iter().chain(self.held.clone().map(Key::Task));
        own.chain(store_keys(&wants(&self.guards, &self.inputs.vars))).collect()
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> PipelineOutcome {
        if let Some(by) = &self.by {
            step_pipeline(&self.id, pipeline::Input::EndCheck { by: by.clone() }, tx);
        }
        let Some(pipeline) = tx.tables.backlog.pipelines.get(&self.id) else { return PipelineOutcome::Unknown };
        // The check does not answer the question that the pipeline has now.
        if self.is_moot || pipeline.context != self.inputs.vars || pipeline.tasks != self.tasks {
            return stepped(&self.id, pipeline::Input::Poll, tx);
        }
        let now = self.seen.now(tx);
        let wants = wants(&self.guards, &self.inputs.vars);
        let mut inputs = self.inputs.clone();
        know(Some(&self.id), &wants, &tx.tables.coordination, &tx.tables.backlog, &now, &mut inputs);
        let verdict = verdict_until_expiry(&self.guards, &wants, &inputs, &tx.tables.coordination, &now);
        // Guards with inputs from the store alone are evaluated by the rows of this transaction.
        let at = if self.by.is_some() { self.at } else { Seq(now.seq.0 - 1) };
        let input = pipeline::Input::Checked { phase: self.phase.clone(), when: self.when, verdict, at };
        stepped(&self.id, input, tx)
    }
}

/// All inputs that guards ask for.
pub(crate) fn wants<'a>(guards: impl IntoIterator<Item = &'a Guard>, vars: &Context) -> Wants {
    let mut all = Wants::default();
    guards.into_iter().for_each(|guard| all.extend(guard.wants(vars)));
    all
}

/// The rows that guards ask for.
pub fn store_keys(wants: &Wants) -> BTreeSet<Key> {
    let name = |text: &str| Name::new(text).ok();
    let locks = wants.locks.iter().filter_map(|lock| name(lock)).map(Key::Lock);
    let semaphores = wants.semaphores.iter().filter_map(|semaphore| name(semaphore)).map(Key::Semaphore);
    let pipelines = wants.pipelines.iter().filter_map(|id| task_id(id));
    let pipelines = pipelines.flat_map(|id| [Key::Task(id.clone()), Key::Pipeline(id)]);
    let running = (!wants.running.is_empty()).then_some(Key::BegunPipelines);
    locks.chain(semaphores).chain(pipelines).chain(running).collect()
}

/// Adds the inputs from the store that the guards of a pipeline ask for, or the guards of no pipeline.
pub fn know(
    asker: Option<&TaskId>,
    wants: &Wants,
    coordination: &Coordination,
    backlog: &Backlog,
    now: &Now,
    inputs: &mut GuardInputs,
) {
    inputs.add_held(wants, coordination, now);
    // A lock that the pipeline holds itself does not block it.
    let own = asker.map(TaskId::pipeline_holder);
    inputs.locks.values_mut().filter(|holder| holder.is_some() && **holder == own).for_each(|holder| *holder = None);
    for id in &wants.pipelines {
        let Some(pipeline) = backlog.pipelines.get(&**id) else {
            inputs.unknown.insert(Topic::Pipeline(id.clone()), "is not there".into());
            continue;
        };
        let phase = pipeline.phase().filter(|_| !pipeline.is_over()).cloned();
        inputs.pipelines.insert(id.clone(), PipelineInfo { phase, is_complete: pipeline.state == State::Done });
    }
    for filter in &wants.running {
        let others = backlog.pipelines.values().filter(|pipeline| Some(&pipeline.id) != asker);
        let running = others.filter(|pipeline| pipeline.is_running_as(filter));
        inputs.running.insert(filter.clone(), running.map(|pipeline| pipeline.id.as_str().into()).collect());
    }
}

/// The combined result of guards: the first that fails the pipeline decides, otherwise the first that blocks it.
pub fn verdict(guards: &[Guard], inputs: &GuardInputs, now: &Now) -> GuardsResult {
    let (mut block, mut warnings) = (None, Vec::new());
    for asked in guards {
        let GuardResult::Failed { guard, action, part } = asked.evaluate(inputs) else { continue };
        match action {
            GuardAction::Fail { message } => return GuardsResult::Fail { guard, message, part },
            GuardAction::Warn => warnings.push((guard, part)),
            GuardAction::Block | GuardAction::Retry { .. } if block.is_some() => {}
            GuardAction::Block | GuardAction::Retry { .. } => {
                let wants = asked.wants(&inputs.vars);
                let after = match action {
                    GuardAction::Retry { delay } => delay,
                    // Changes of the store are announced by events; changes outside of it are not. A result that is fresh for no
                    // time at all is no reason to check without a pause.
                    _ if wants.is_internal() => RECHECK_INTERVAL,
                    _ => asked.fresh_for.max(pipeline::REST),
                };
                let asks_outside = wants.asks_outside();
                block = Some(GuardsResult::Block { guard, part, again: now.lease + after, asks_outside });
            }
        }
    }
    block.unwrap_or_else(|| GuardsResult::Pass { warnings, recheck: Some(recheck(guards, inputs, now)) })
}

/// The combined result of guards, to be checked again when a grant expires: no event announces an expiry.
fn verdict_until_expiry(
    guards: &[Guard],
    wants: &Wants,
    inputs: &GuardInputs,
    coordination: &Coordination,
    now: &Now,
) -> GuardsResult {
    let mut result = verdict(guards, inputs, now);
    if let GuardsResult::Block { again, .. } = &mut result {
        *again = wants.next_deadline(coordination, now).map_or(*again, |expiry| expiry.min(*again));
    }
    result
}

/// The conditions that must still hold when the phase begins. A guard that only warns has already warned.
fn recheck(guards: &[Guard], inputs: &GuardInputs, now: &Now) -> Recheck {
    let binding = guards.iter().filter(|guard| guard.on_failure != GuardAction::Warn);
    let outside = binding.clone().filter(|guard| !guard.wants(&inputs.vars).is_internal());
    // The tasks of the store are too many to be read inside of the claim.
    let asks_tasks = binding.clone().any(|guard| guard.wants(&inputs.vars).issues.iter().any(|filter| filter.from.is_none()));
    let fresh_until = match (outside.map(|guard| guard.fresh_for).min(), inputs.fresh_until) {
        (_, _) if asks_tasks || inputs.awaits_workspace => Lease(0),
        (None, _) => Lease(i64::MAX),
        (Some(_), Some(until)) => until,
        (Some(fresh_for), None) => now.lease + fresh_for,
    };
    Recheck { guards: binding.filter_map(|guard| guard.residual(inputs)).collect(), fresh_until }
}

/// The inputs from the store that the claim of a run of the phase needs.
pub fn asked_at_claim(pipeline: &Pipeline) -> Wants {
    pipeline.recheck.as_ref().map(|recheck| wants(&recheck.guards, &pipeline.context)).unwrap_or_default()
}

/// Why a run of a phase does not begin.
pub(crate) enum NotNow {
    /// The phase has changed since it was read.
    Changed,
    /// A guard no longer holds, and its pipeline is blocked or continues elsewhere.
    Refuted(Box<Pipeline>),
}

impl NotNow {
    /// The pipeline whose guard no longer holds.
    pub(crate) fn pipeline(self) -> Option<Pipeline> {
        match self {
            NotNow::Changed => None,
            NotNow::Refuted(pipeline) => Some(*pipeline),
        }
    }
}

/// Evaluates the guards of a phase inside of the transaction that claims a run of it. Returns whether the session must gather the
/// inputs from outside of the store again, because they are too old or the phase has had a run since.
pub(crate) fn check_at_claim(id: &TaskId, asked: &Wants, now: &Now, tx: &mut Tx) -> Result<bool, NotNow> {
    let task = tx.tables.backlog.tasks.get(id).filter(|task| task.spec.guarded);
    let Some(task) = task else { return Ok(false) };
    let parent = task.spec.parent.as_ref().and_then(|parent| tx.tables.backlog.pipelines.get(parent));
    let is_at_it = |pipeline: &&Pipeline| matches!(&pipeline.state, State::Running { task: Some(task), .. } if task == id);
    let Some(pipeline) = parent.filter(is_at_it) else { return Err(NotNow::Changed) };
    let Some(recheck) = &pipeline.recheck else { return Ok(false) };
    if asked_at_claim(pipeline) != *asked {
        return Err(NotNow::Changed);
    }
    let result = evaluate_again(pipeline, recheck, asked, now, &tx.tables);
    if let GuardsResult::Pass { .. } = result {
        let is_later = matches!(pipeline.state, State::Running { approach, .. } if approach > 0);
        return Ok(task.attempts > 0 || is_later || recheck.fresh_until < now.lease);
    }
    let (parent, at) = (pipeline.id.clone(), Seq(now.seq.0 - 1));
    step_pipeline(&parent, pipeline::Input::Refuted { task: id.clone(), verdict: result, at }, tx);
    Err(NotNow::Refuted(Box::new(tx.tables.backlog.pipelines[&parent].clone())))
}

/// Whether the remaining conditions of a phase still hold when its item is put into a queue. `now` must include the deaths that the
/// check knew of, or the two would contradict each other for ever.
pub(crate) fn may_push(id: &TaskId, asked: &Wants, now: &Now, tx: &Tx) -> bool {
    let Some(pipeline) = tx.tables.backlog.pipelines.get(id) else { return true };
    let Some(recheck) = &pipeline.recheck else { return true };
    let passes = || matches!(evaluate_again(pipeline, recheck, asked, now, &tx.tables), GuardsResult::Pass { .. });
    asked_at_claim(pipeline) == *asked && passes()
}

/// Evaluates the remaining conditions of a phase by the current rows.
fn evaluate_again(pipeline: &Pipeline, recheck: &Recheck, asked: &Wants, now: &Now, tables: &Tables) -> GuardsResult {
    let mut inputs = GuardInputs { vars: pipeline.context.clone(), ..GuardInputs::default() };
    know(Some(&pipeline.id), asked, &tables.coordination, &tables.backlog, now, &mut inputs);
    verdict_until_expiry(&recheck.guards, asked, &inputs, &tables.coordination, now)
}

/// Whether a pipeline still waits for the result of this check: the same guards, with the same variables.
pub(crate) fn is_awaited(asked: &Pipeline, pipeline: &Pipeline) -> bool {
    pipeline.gate().is_some_and(|gate| asked.gate() == Some(gate))
        && (pipeline.tasks, &pipeline.context) == (asked.tasks, &asked.context)
}

/// Begins a check of the guards of a pipeline by a runner.
pub(crate) fn begin_check(id: &TaskId, by: &RunnerId, heard: Seq, seen: &Seen, tx: &mut Tx) -> PipelineOutcome {
    let Some(pipeline) = tx.tables.backlog.pipelines.get(id) else { return PipelineOutcome::Unknown };
    let is_free = !is_checked(pipeline, by, &tx.tables.backlog, &seen.now(tx));
    stepped(id, pipeline::Input::BeginCheck { by: by.clone(), is_free, heard }, tx)
}

/// Whether another runner checks the guards of a pipeline. The result of a dead runner's check will never arrive.
pub(crate) fn is_checked(pipeline: &Pipeline, me: &RunnerId, backlog: &Backlog, now: &Now) -> bool {
    let checker = pipeline.checker.as_ref().filter(|checker| *checker != me).and_then(|checker| backlog.runners.get(checker));
    checker.is_some_and(|checker| !now.all_dead(std::slice::from_ref(&checker.process)))
}
