//! Pipelines that do not go on by a run alone: those whose guards are to be checked, or that push an item.
//!
//! One that a guard holds up is looked at when its time has come, or when something has happened to what the guard asks about:
//! the store finds who listens to that, so a look reads nobody else. Every runner goes through the log for itself, from the
//! first event that somebody may not have heard of. Who was looked at knows of all that came before, so the next look finds others,
//! and only when nobody is left does it go on in the log. A holder that dies is no event, so a runner that sees it makes it
//! one: it takes from the dead what pipelines wait for.

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

/// How many pipelines are looked at in one go; and of how many locks and semaphores that others wait for the holders are watched.
pub(super) const PIPELINES: u32 = 100;

/// How many pipelines a runner checks the guards of at the same time; the others wait. Each may run commands.
const CHECKS: usize = 8;

/// How many events are gone through in one go.
const PAGE: i64 = 500;

#[derive(Debug, Default)]
pub(super) struct GuardChecks {
    /// The pipelines whose guards are being checked.
    running: BTreeMap<TaskId, Check>,
    pending: Vec<Request>,
    /// The pipelines that were reported as blocked, by which guard and by which part of it.
    reported: BTreeMap<TaskId, (Name, Box<str>)>,
    /// Up to where in the log it has found who listens.
    listened: Seq,
    /// There is more of the log than the last pass has gone through.
    pub(super) is_behind: bool,
}

#[derive(Debug)]
struct Check {
    /// The last event before it began.
    at: Seq,
    /// The pipeline as it stood then.
    asked: Box<Pipeline>,
    /// Nobody waits for it any more.
    is_moot: bool,
}

impl GuardChecks {
    /// Whether somebody still waits for what is being checked.
    pub(super) fn first_keys(&self) -> impl Iterator<Item = Key> {
        self.running.keys().cloned().map(Key::Pipeline)
    }

    /// The locks and semaphores that guards ask about; if somebody listens, who listens to what has happened, and who holds
    /// what they wait for.
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

    /// What is to be done for pipelines whose time has come, or that something has happened for.
    pub(super) fn advance(&mut self, snapshot: &Snapshot, now: &Now, context: &Context, out: &mut Output) -> Vec<Request> {
        self.stop_moot(snapshot, out);
        let heard = &snapshot.listening.heard;
        let is_due =
            |pipeline: &&Pipeline| heard.contains(&pipeline.id) || pipeline.next_deadline().is_some_and(|due| due <= now.lease);
        let mut due: Vec<&Pipeline> = snapshot.backlog.pipelines.values().filter(is_due).collect();
        // Who could have been checked for the longest time comes first.
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
        // Who has to wait must be heard of again.
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

    /// Ends the checks that nobody waits for any more: the pipeline was cancelled, or unblocked, or its variables are others.
    /// Nobody else checks before that has ended.
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

    /// What the guards of a pipeline ask about was found out.
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

    /// What was found out about guards.
    pub(super) fn requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.pending)
    }

    /// Takes in the reply to a request about a pipeline.
    pub(super) fn on_reply(&mut self, request: PipelineRequest, outcome: PipelineOutcome, out: &mut Output) {
        match &outcome {
            PipelineOutcome::Stepped(Outcome::Late | Outcome::Refused(_), _) => {}
            PipelineOutcome::Stepped(outcome, pipeline) => {
                // Who is to be checked stands as somebody found it before.
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
            // One that nobody had to look for says nothing about who checks.
            (PipelineRequest::CheckGuards(guard_check), _) if guard_check.by.is_some() => {
                // What has happened since the check began may be for this one, too.
                if let Some(check) = self.running.remove(&guard_check.id) {
                    self.listened = self.listened.min(check.at);
                }
            }
            (_, _) => {}
        }
    }

    /// The store did not reply: these results may not have arrived, and the guards are checked again.
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

    /// Reports a pipeline that does not go on, once.
    pub(super) fn report(&mut self, pipeline: &Pipeline, out: &mut Output) {
        let is_new = match &pipeline.state {
            State::Blocked { reason: Reason::Guard { guard, part, .. }, .. } => {
                let blocked_by = (guard.clone(), part.clone());
                self.reported.insert(pipeline.id.clone(), blocked_by.clone()) != Some(blocked_by)
            }
            state => {
                self.reported.remove(&pipeline.id);
                // Who waits for others has never begun, a decision is reported with its task, and who cancels knows.
                matches!(state, State::Failed { .. } | State::Done)
            }
        };
        if is_new {
            out.report(RunnerEvent::Stands(Box::new(pipeline.clone())));
        }
    }
}

/// Takes from the dead what pipelines wait for.
fn reaps(snapshot: &Snapshot, now: &Now, context: &Context) -> Vec<Request> {
    let rows = &snapshot.coordination;
    let is_dead = |grant: &Grant| matches!(grant.over(now), Some(grant::Reason::Dead | grant::Reason::Lapsed));
    let over = snapshot.listening.awaited.iter().filter(|resource| rows.holders_of(resource).into_iter().any(is_dead));
    over.map(|resource| Request::Coordinate { command: Command::reap(resource.clone()), seen: context.seen() }).collect()
}

/// The next moment at which time alone makes something of these pipelines due.
pub(super) fn next_due(snapshot: &Snapshot) -> Option<Lease> {
    let read = snapshot.backlog.pipelines.values().filter_map(Pipeline::next_deadline);
    read.filter(|due| *due > snapshot.lease).chain(snapshot.listening.next_due).min()
}

/// Whether one of these pipelines may go on by itself.
pub(super) fn is_waiting(snapshot: &Snapshot) -> bool {
    let pipelines = &snapshot.backlog.pipelines;
    snapshot.listening.next_due.is_some()
        || pipelines.len() >= PIPELINES as usize
        || pipelines.values().any(|pipeline| goes_on(pipeline, snapshot))
}

/// Whether a pipeline that has no task may go on without a person. A guard that asks the world outside, or stands behind a phase, ends
/// by time, and what is held may be released; tasks and other pipelines that it asks about go on by themselves, or need a person too.
/// Only the guard that blocks counts: the others are not in the way. While the guards are being checked, their answer is to be waited for; and one
/// that listens to nothing because it is looked at again soon has not heard of what has happened since.
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
