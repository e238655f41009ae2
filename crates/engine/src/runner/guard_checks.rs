//! Pipelines that need more than a run to continue: their guards must be checked, or they push an item.
//!
//! A blocked pipeline is checked at its deadline, or when an event has changed an input of its guards: the store finds the pipelines
//! that listen to an event, so a check reads no others. Every runner reads the log by itself, from the first event that a pipeline
//! may have missed. A checked pipeline knows all events before the check, so the next query finds other pipelines, and the runner
//! moves on in the log only when none are left. The death of a holder is no event, so a runner that observes it creates one: it
//! reaps the dead holder's grants that pipelines wait for.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::guard::{Guard, GuardInputs};
use banksman_core::pipeline::plan::Action as PhaseAction;
use banksman_core::pipeline::{Outcome, Pipeline, Reason, State, When};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::grant;
use banksman_core::resource::lock;
use banksman_core::{Grant, Lease, Name, Now, Seq, TaskId};
use banksman_store::{Key, Snapshot};

use super::context::Context;
use super::protocol::{Action, Output, RunnerEvent};
use crate::calls::pipelines::guards::{self, GuardCheck};
use crate::calls::pipelines::{PipelineOutcome, PipelineRequest, item};
use crate::request::Request;

/// The most pipelines to read at once; and the most locks and semaphores whose holders are watched for waiting pipelines.
pub(super) const PIPELINES: u32 = 100;

/// The most pipelines whose guards one runner checks at the same time, because each check may run commands; the others wait.
const CHECKS: usize = 8;

/// The most events to search for listeners at once.
const PAGE: i64 = 500;

#[derive(Debug, Default)]
pub(super) struct GuardChecks {
    /// The pipelines whose guards are being checked.
    running: BTreeMap<TaskId, Check>,
    pending: Vec<Request>,
    /// The pipelines that were reported as blocked, each with its guard and the failed part of the guard.
    reported: BTreeMap<TaskId, (Name, Box<str>)>,
    /// The last event whose listeners were all found.
    listened: Seq,
    /// The last pass has not reached the end of the log.
    pub(super) is_behind: bool,
}

#[derive(Debug)]
struct Check {
    /// The last event before the check began.
    at: Seq,
    /// The pipeline at that time.
    asked: Box<Pipeline>,
    /// The pipeline no longer waits for the result.
    is_moot: bool,
}

impl GuardChecks {
    /// The rows that show whether the pipelines still wait for their checks.
    pub(super) fn first_keys(&self) -> impl Iterator<Item = Key> {
        self.running.keys().cloned().map(Key::Pipeline)
    }

    /// The locks and semaphores that guards ask for; and, if pipelines listen, the listeners to new events and the holders of the
    /// resources that they wait for.
    pub(super) fn keys(&self, snapshot: &Snapshot) -> BTreeSet<Key> {
        let wanted = |pipeline: &Pipeline| guards::store_keys(&guards::wants(pipeline.guards(), &pipeline.context));
        let keys = snapshot.backlog.pipelines.values().flat_map(wanted);
        let keys = keys.filter(|key| matches!(key, Key::Lock(_) | Key::Semaphore(_)));
        let awaited = snapshot.listening.since.map(|_| Key::Awaited { limit: PIPELINES });
        keys.chain(awaited).chain(self.listeners_key(snapshot)).collect()
    }

    fn listeners_key(&self, snapshot: &Snapshot) -> Option<Key> {
        let after = self.listened.max(snapshot.listening.since?);
        let through = Seq(after.0 + PAGE).min(snapshot.seq);
        (after < through).then_some(Key::HeardPipelines { after, through, limit: PIPELINES })
    }

    /// The requests for pipelines whose deadline has passed, or that an event may have unblocked.
    pub(super) fn advance(&mut self, snapshot: &Snapshot, now: &Now, context: &Context, out: &mut Output) -> Vec<Request> {
        self.stop_moot(snapshot, out);
        let heard = &snapshot.listening.heard;
        let is_due =
            |pipeline: &&Pipeline| heard.contains(&pipeline.id) || pipeline.next_deadline().is_some_and(|due| due <= now.lease);
        let mut due: Vec<&Pipeline> = snapshot.backlog.pipelines.values().filter(is_due).collect();
        // The pipeline that has been due for the longest time comes first.
        due.sort_by_key(|pipeline| if heard.contains(&pipeline.id) { pipeline.rests() } else { pipeline.next_deadline() });
        let mut steps: Vec<PipelineRequest> =
            due.into_iter().filter_map(|pipeline| self.next_of(pipeline, snapshot, now, context)).collect();
        let all = steps.len();
        let mut room = CHECKS.saturating_sub(self.running.len());
        steps.retain(|step| {
            let is_check = matches!(step, PipelineRequest::BeginCheck { .. });
            let has_room = !is_check || room > 0;
            room -= usize::from(is_check && has_room);
            has_room
        });
        // A pipeline that has to wait for a check must be found again.
        self.is_behind = false;
        if let Some(Key::HeardPipelines { through, limit, .. }) = self.listeners_key(snapshot)
            && heard.len() < limit as usize
            && steps.len() == all
        {
            self.listened = through;
            self.is_behind = through < snapshot.seq;
        }
        steps.into_iter().map(Request::Pipeline).chain(reaps(snapshot, now, context)).collect()
    }

    /// Ends the checks that no pipeline waits for any more: it was cancelled or unblocked, or its variables have changed. No other
    /// check of the pipeline begins before this one has ended.
    fn stop_moot(&mut self, snapshot: &Snapshot, out: &mut Output) {
        for (id, check) in self.running.iter_mut().filter(|(_, check)| !check.is_moot) {
            let is_awaited = |row: &Pipeline| guards::is_awaited(&check.asked, row);
            check.is_moot = !snapshot.backlog.pipelines.get(id).is_some_and(is_awaited);
            if check.is_moot {
                out.act(Action::StopGuards(id.clone()));
            }
        }
    }

    fn next_of(&self, pipeline: &Pipeline, snapshot: &Snapshot, now: &Now, context: &Context) -> Option<PipelineRequest> {
        let id = pipeline.id.clone();
        if let State::Running { phase, task: None, .. } = &pipeline.state {
            let PhaseAction::Push(push) = &pipeline.plan.phase(phase)?.action else { return None };
            let item = item(pipeline, push);
            let (phase, queue, asks) = (phase.clone(), push.queue.clone(), guards::asked_at_claim(pipeline));
            return Some(PipelineRequest::Push { id, phase, queue, item, asks, seen: context.seen() });
        }
        if guards::wants(pipeline.guards(), &pipeline.context).is_internal() {
            let inputs = GuardInputs { vars: pipeline.context.clone(), ..GuardInputs::default() };
            return Some(PipelineRequest::CheckGuards(Box::new(GuardCheck::new(
                pipeline,
                None,
                inputs,
                context.seen(),
                Seq(0),
            )?)));
        }
        let is_taken = self.running.contains_key(&id) || guards::is_checked(pipeline, &context.me.id, &snapshot.backlog, now);
        let (by, at, heard) = (context.id(), snapshot.seq, snapshot.listening.heard.contains(&id));
        (!is_taken).then(|| PipelineRequest::BeginCheck { id, by, at, heard, seen: context.seen() })
    }

    /// Takes in the gathered inputs of the guards of a pipeline.
    pub(super) fn checked(&mut self, pipeline: &Pipeline, inputs: GuardInputs, context: &Context) {
        let (at, is_moot) = self.running.get(&pipeline.id).map_or_else(Default::default, |check| (check.at, check.is_moot));
        match GuardCheck::new(pipeline, Some(context.id()), inputs, context.seen(), at) {
            Some(guard_check) => {
                let guard_check = Box::new(GuardCheck { is_moot, ..guard_check });
                self.pending.push(Request::Pipeline(PipelineRequest::CheckGuards(guard_check)));
            }
            None => drop(self.running.remove(&pipeline.id)),
        }
    }

    /// The pending results of checks.
    pub(super) fn requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.pending)
    }

    /// Takes in the reply to a request about a pipeline.
    pub(super) fn on_reply(&mut self, request: PipelineRequest, outcome: PipelineOutcome, out: &mut Output) {
        match &outcome {
            PipelineOutcome::Stepped(Outcome::Late | Outcome::Refused(_), _) => {}
            PipelineOutcome::Stepped(outcome, pipeline) => {
                // A pipeline that is to be checked still has its earlier status, which was reported.
                if *outcome != Outcome::Check {
                    self.report(pipeline, out);
                }
            }
            PipelineOutcome::Unknown | PipelineOutcome::Refused(_) | PipelineOutcome::Waits(_) | PipelineOutcome::Fenced => {}
        }
        match (request, outcome) {
            (PipelineRequest::BeginCheck { id, at, .. }, PipelineOutcome::Stepped(Outcome::Check, pipeline)) => {
                self.running.insert(id, Check { at, asked: pipeline.clone(), is_moot: false });
                out.act(Action::CheckGuards(pipeline));
            }
            // A result without a runner does not end a check of this runner.
            (PipelineRequest::CheckGuards(guard_check), _) if guard_check.by.is_some() => {
                // Events since the check began may concern this pipeline, too.
                if let Some(check) = self.running.remove(&guard_check.id) {
                    self.listened = self.listened.min(check.at);
                }
            }
            (_, _) => {}
        }
    }

    /// Handles a missing reply: these results may not have arrived, so the guards are checked again.
    pub(super) fn on_no_reply(&mut self, requests: &[Request]) {
        self.listened = Seq(0);
        for request in requests {
            if let Request::Pipeline(PipelineRequest::CheckGuards(guard_check)) = request
                && guard_check.by.is_some()
            {
                self.running.remove(&guard_check.id);
            }
        }
    }

    /// Reports, once, that a pipeline is blocked or over.
    pub(super) fn report(&mut self, pipeline: &Pipeline, out: &mut Output) {
        let is_new = match &pipeline.state {
            State::Blocked { reason: Reason::Guard { guard, part, .. }, .. } => {
                let blocked_by = (guard.clone(), part.clone());
                self.reported.insert(pipeline.id.clone(), blocked_by.clone()) != Some(blocked_by)
            }
            state => {
                self.reported.remove(&pipeline.id);
                // A pipeline with open dependencies has never begun, a decision is reported with its task, and a cancellation is known
                // to the person who cancels.
                matches!(state, State::Failed { .. } | State::Done)
            }
        };
        if is_new {
            out.report(RunnerEvent::Stands(Box::new(pipeline.clone())));
        }
    }
}

/// Reaps the grants of dead holders that pipelines wait for.
fn reaps(snapshot: &Snapshot, now: &Now, context: &Context) -> Vec<Request> {
    let rows = &snapshot.coordination;
    let is_dead = |grant: &Grant| matches!(grant.over(now), Some(grant::Reason::Dead | grant::Reason::Lapsed));
    let over = snapshot.listening.awaited.iter().filter(|resource| rows.holders_of(resource).into_iter().any(is_dead));
    over.map(|resource| Request::Coordinate { command: Command::reap(resource.clone()), seen: context.seen() }).collect()
}

/// The next deadline of these pipelines.
pub(super) fn next_due(snapshot: &Snapshot) -> Option<Lease> {
    let read = snapshot.backlog.pipelines.values().filter_map(Pipeline::next_deadline);
    read.filter(|due| *due > snapshot.lease).chain(snapshot.listening.next_due).min()
}

/// Whether one of these pipelines may continue without a person.
pub(super) fn is_waiting(snapshot: &Snapshot) -> bool {
    let pipelines = &snapshot.backlog.pipelines;
    snapshot.listening.next_due.is_some()
        || pipelines.len() >= PIPELINES as usize
        || pipelines.values().any(|pipeline| goes_on(pipeline, snapshot))
}

/// Whether a pipeline that has no task may continue without a person. A guard with inputs from outside of the store, or behind a phase, is
/// checked again in time, and a held resource may be released; tasks and other pipelines that a guard asks for continue by themselves, or
/// need a person too. Only the blocking guard counts: the others are not in the way. While the guards are being checked, their result is
/// pending; and a pipeline that listens to no events because it is checked again soon has not considered the events since its last check.
fn goes_on(pipeline: &Pipeline, snapshot: &Snapshot) -> bool {
    let rows = &snapshot.coordination;
    match &pipeline.state {
        State::Checking { .. } | State::Running { task: None, .. } => true,
        State::Blocked { when: When::Post, reason: Reason::Guard { .. }, .. } => true,
        State::Blocked { reason: Reason::Guard { .. }, .. } if pipeline.is_being_checked() => true,
        State::Blocked { reason: Reason::Guard { guard, at, .. }, .. } => {
            let blocking: Vec<Guard> = pipeline.guards().iter().filter(|each| each.name == *guard).cloned().collect();
            let wants = guards::wants(&blocking, &pipeline.context);
            let is_held = |name: &str| rows.locks.get(name).is_some_and(|lock| lock.state != lock::State::Free);
            let is_used = |name: &str| rows.semaphores.get(name).is_some_and(|semaphore| !semaphore.holders.is_empty());
            wants.asks_outside()
                || wants.locks.iter().any(|name| is_held(name))
                || wants.semaphores.iter().any(|name| is_used(name))
                || *at < snapshot.seq && pipeline.is_asked_soon()
        }
        State::Init
        | State::Blocked { .. }
        | State::Running { .. }
        | State::Done
        | State::Failed { .. }
        | State::Cancelled { .. } => false,
    }
}
