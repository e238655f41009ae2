//! Pipelines that do not go on by a run alone: those that may begin, whose guards are to be looked at, or that push an item.
//!
//! One that a guard holds up is looked at when its time has come, or when something has happened to what the guard asks about:
//! the store finds who listens to that, so a look reads nobody else. Every runner goes through the log for itself, from the
//! first event that somebody may not have heard of. Who was looked at knows of all that came before, so the next look finds others,
//! and only when nobody is left does it go on in the log. A holder that dies is no event, so a runner that sees it makes it
//! one: it takes from the dead what pipelines wait for.

use std::collections::BTreeSet;

use banksman_core::event::{Kind, Resource};
use banksman_core::guard::{GuardInputs, Wants};
use banksman_core::pipeline::plan::{Action, Phase};
use banksman_core::pipeline::{Outcome, Pipeline, Reason, State, When, phase_task};
use banksman_core::resource::coordination::{Command, Coordination};
use banksman_core::resource::grant;
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::task::Work;
use banksman_core::{Grant, Lease, Now, Seq, Task};
use banksman_store::{Key, Snapshot};

use super::{Advice, Dispatcher, Looking, RunnerEvent};
use crate::guards::{self, Judgement};
use crate::pipelines::{PipelineOutcome, PipelineRequest, item};
use crate::request::Request;
use crate::runs::Candidate;

/// How many pipelines are looked at in one go; and of how many locks and semaphores that others wait for the holders are watched.
pub(super) const PIPELINES: u32 = 100;

/// How many pipelines a runner looks at the guards of at the same time; the others wait for their turn. Each may run commands.
const LOOKS: usize = 8;

/// How many events are gone through in one go.
const PAGE: i64 = 500;

impl Dispatcher {
    /// A pipeline begins that nothing stands in the way of.
    pub(super) fn beginning(&self, task: &Task) -> Request {
        // Whether roots are limited is decided with the rows: all that may be needed is loaded.
        let (id, needs) = (task.id.clone(), task.spec.needs_to_begin(true).to_vec());
        Request::Pipeline(PipelineRequest::Begin { id, needs, seen: self.seen() })
    }

    /// The first phase of a pipeline that begins, to be claimed along with that: in between, others could take what it needs.
    pub(super) fn first_phase(&mut self, task: &Task) -> Option<Candidate> {
        let Some(Work::Pipeline(plan)) = &task.spec.work else { return None };
        let is_run = |phase: &&Phase| phase.pre.is_empty() && !matches!(phase.action, Action::Push(_));
        let needs = plan.needs(plan.phases.first().filter(is_run)?, false, &task.id);
        let run = self.fresh_runs.pop()?;
        let (is_guarded, asks) = (false, Wants::default());
        Some(Candidate { task: phase_task(&task.id, 1), run, section: task.spec.section.clone(), needs, is_guarded, asks })
    }

    /// If somebody listens: who listens to what has happened, and who holds what they wait for.
    pub(super) fn listening_keys(&self, snapshot: &Snapshot) -> Vec<Key> {
        let awaited = snapshot.listening.since.filter(|_| self.only.is_none()).map(|_| Key::Awaited { limit: PIPELINES });
        awaited.into_iter().chain(self.heard_key(snapshot)).collect()
    }

    fn heard_key(&self, snapshot: &Snapshot) -> Option<Key> {
        let after = self.listened.max(snapshot.listening.since.filter(|_| self.only.is_none())?);
        let through = Seq(after.0 + PAGE).min(snapshot.seq);
        (after < through).then_some(Key::HeardPipelines { after, through, limit: PIPELINES })
    }

    /// The locks and semaphores that guards ask about, of pipelines whose time has come.
    pub(super) fn guard_keys(&self, snapshot: &Snapshot) -> BTreeSet<Key> {
        let wanted = |pipeline: &Pipeline| guards::store_keys(&guards::wants(pipeline.guards(), &pipeline.context));
        let keys = snapshot.backlog.pipelines.values().filter(|_| self.only.is_none()).flat_map(wanted);
        keys.filter(|key| matches!(key, Key::Lock(_) | Key::Semaphore(_))).collect()
    }

    /// What is to be done for pipelines whose time has come, or that something has happened for.
    pub(super) fn advance(&mut self, snapshot: &Snapshot, now: &Now) -> Vec<Request> {
        self.stop_looking(snapshot);
        let heard = &snapshot.listening.heard;
        let is_due =
            |pipeline: &&Pipeline| heard.contains(&pipeline.id) || pipeline.next_deadline().is_some_and(|due| due <= now.lease);
        let mut due: Vec<&Pipeline> = snapshot.backlog.pipelines.values().filter(is_due).collect();
        // Who could have been looked at for the longest time comes first.
        due.sort_by_key(|pipeline| if heard.contains(&pipeline.id) { pipeline.rests() } else { pipeline.next_deadline() });
        let mut steps: Vec<PipelineRequest> =
            due.into_iter().filter_map(|pipeline| self.next_of(pipeline, snapshot, now)).collect();
        let all = steps.len();
        let mut room = LOOKS.saturating_sub(self.looking.len());
        steps.retain(|step| {
            let is_look = matches!(step, PipelineRequest::Examine { .. });
            let has_room = !is_look || room > 0;
            room -= usize::from(is_look && has_room);
            has_room
        });
        // Who has to wait for his turn must be heard of again.
        self.is_behind = false;
        if let Some(Key::HeardPipelines { through, limit, .. }) = self.heard_key(snapshot)
            && heard.len() < limit as usize
            && steps.len() == all
        {
            self.listened = through;
            self.is_behind = through < snapshot.seq;
        }
        steps.into_iter().map(Request::Pipeline).chain(self.reaps(snapshot, now)).collect()
    }

    /// Ends the looks that nobody waits for any more: the pipeline was cancelled, or unblocked, or its variables are others. Nobody
    /// else looks before that has ended.
    fn stop_looking(&mut self, snapshot: &Snapshot) {
        for (id, looking) in self.looking.iter_mut().filter(|(_, looking)| !looking.is_moot) {
            let is_awaited = |row: &Pipeline| guards::is_awaited(&looking.asked, row);
            looking.is_moot = !snapshot.backlog.pipelines.get(id).is_some_and(is_awaited);
            self.queue.extend(looking.is_moot.then(|| Advice::StopLooking(id.clone())));
        }
    }

    /// Takes from the dead what pipelines wait for.
    fn reaps(&self, snapshot: &Snapshot, now: &Now) -> Vec<Request> {
        let rows = &snapshot.coordination;
        let is_dead = |grant: &Grant| matches!(grant.over(now), Some(grant::Reason::Dead | grant::Reason::Lapsed));
        let reap = |resource: &Resource| {
            let name = || resource.name.clone();
            match resource.kind {
                Kind::Lock => match &rows.locks.get(&resource.name)?.state {
                    lock::State::Held(grant) if is_dead(grant) => Some(Command::Lock(name(), lock::Input::Reap)),
                    _ => None,
                },
                Kind::Semaphore => {
                    let is_found = rows.semaphores.get(&resource.name)?.holders.values().any(is_dead);
                    is_found.then(|| Command::Semaphore(name(), semaphore::Input::Reap))
                }
            }
        };
        let commands = snapshot.listening.awaited.iter().filter_map(reap);
        commands.map(|command| Request::Coordinate { command, seen: self.seen() }).collect()
    }

    fn next_of(&self, pipeline: &Pipeline, snapshot: &Snapshot, now: &Now) -> Option<PipelineRequest> {
        let id = pipeline.id.clone();
        if let State::Running { phase, task: None, .. } = &pipeline.state {
            let Action::Push(push) = &pipeline.plan.phase(phase)?.action else { return None };
            let item = item(pipeline, push);
            let (phase, queue, asks) = (phase.clone(), push.queue.clone(), guards::asked_at_claim(pipeline));
            return Some(PipelineRequest::Push { id, phase, queue, item, asks });
        }
        if guards::wants(pipeline.guards(), &pipeline.context).is_internal() {
            let inputs = GuardInputs { vars: pipeline.context.clone(), ..GuardInputs::default() };
            return Some(PipelineRequest::Judge(Box::new(Judgement::new(pipeline, None, inputs, self.seen(), Seq(0))?)));
        }
        let is_taken = self.looking.contains_key(&id) || guards::is_looked_at(pipeline, &self.me.id, &snapshot.backlog, now);
        let (by, at, heard) = (self.me.id.clone(), snapshot.seq, snapshot.listening.heard.contains(&id));
        (!is_taken).then(|| PipelineRequest::Examine { id, by, at, heard, seen: self.seen() })
    }

    /// Takes in the answer to a request about a pipeline. Says whether to look again.
    pub(super) fn take_in_pipeline(&mut self, request: PipelineRequest, outcome: PipelineOutcome) -> bool {
        match &outcome {
            PipelineOutcome::Stepped(Outcome::Late | Outcome::Refused(_), _) => {}
            PipelineOutcome::Stepped(outcome, pipeline) => {
                if matches!(request, PipelineRequest::Begin { .. }) {
                    self.news.push(RunnerEvent::Begins(pipeline.clone()));
                }
                // Who is to be looked at stands as somebody found it before.
                if *outcome != Outcome::Check {
                    self.note_pipeline(pipeline);
                }
            }
            PipelineOutcome::Unknown | PipelineOutcome::Refused(_) | PipelineOutcome::Waits(_) | PipelineOutcome::Fenced => {}
        }
        match (request, outcome) {
            (PipelineRequest::Examine { id, at, .. }, PipelineOutcome::Stepped(Outcome::Check, pipeline)) => {
                self.looking.insert(id, Looking { at, asked: pipeline.clone(), is_moot: false });
                self.queue.push_back(Advice::Gather(pipeline));
                true
            }
            // One that nobody had to look for says nothing about who looks.
            (PipelineRequest::Judge(judgement), _) if judgement.by.is_some() => {
                // What has happened since it began to look may be for this one, too.
                if let Some(looking) = self.looking.remove(&judgement.id) {
                    self.listened = self.listened.min(looking.at);
                }
                true
            }
            (_, _) => true,
        }
    }

    /// People are told how a pipeline stands that does not go on, once.
    pub(super) fn note_pipeline(&mut self, pipeline: &Pipeline) {
        let is_news = match &pipeline.state {
            State::Blocked { reason: Reason::Guard { guard, part, .. }, .. } => {
                let told = (guard.clone(), part.clone());
                self.held_up.insert(pipeline.id.clone(), told.clone()) != Some(told)
            }
            state => {
                self.held_up.remove(&pipeline.id);
                // Who waits for others was never begun, a decision is told with its task, and who cancels knows.
                matches!(state, State::Failed { .. } | State::Done)
            }
        };
        self.news.extend(is_news.then(|| RunnerEvent::Stands(Box::new(pipeline.clone()))));
    }

    /// What the guards of a pipeline ask about was looked at.
    pub fn gathered(&mut self, pipeline: &Pipeline, inputs: GuardInputs) {
        let (at, is_moot) = self.looking.get(&pipeline.id).map_or_else(Default::default, |looking| (looking.at, looking.is_moot));
        match Judgement::new(pipeline, Some(self.me.id.clone()), inputs, self.seen(), at) {
            Some(judgement) => {
                let judgement = Box::new(Judgement { is_moot, ..judgement });
                self.judgements.push(Request::Pipeline(PipelineRequest::Judge(judgement)));
            }
            None => drop(self.looking.remove(&pipeline.id)),
        }
    }

    /// Tells the store what was found out about guards.
    pub(super) fn judge(&mut self) -> Option<Advice> {
        let judgements = std::mem::take(&mut self.judgements);
        (!judgements.is_empty()).then(|| self.call(judgements))
    }

    /// The next moment at which time alone makes something of these pipelines due.
    pub(super) fn next_pipeline(snapshot: &Snapshot) -> Option<Lease> {
        let read = snapshot.backlog.pipelines.values().filter_map(Pipeline::next_deadline);
        read.filter(|due| *due > snapshot.lease).chain(snapshot.listening.next_due).min()
    }

    /// Whether one of these pipelines may go on by itself.
    pub(super) fn awaits_guards(snapshot: &Snapshot) -> bool {
        let pipelines = &snapshot.backlog.pipelines;
        snapshot.listening.next_due.is_some()
            || pipelines.len() >= PIPELINES as usize
            || pipelines.values().any(|pipeline| goes_on(pipeline, &snapshot.coordination))
    }

    /// The store did not answer: what these requests told may not have arrived, and is looked at again.
    pub(super) fn forget_looks(&mut self, requests: Vec<Request>) {
        self.listened = Seq(0);
        for request in requests {
            if let Request::Pipeline(PipelineRequest::Judge(judgement)) = request
                && judgement.by.is_some()
            {
                self.looking.remove(&judgement.id);
            }
        }
    }
}

/// Whether a pipeline that has no task may go on without a person. What asks the world outside, or stands behind a phase, ends by time, and what is held may be
/// released; tasks and other pipelines that its guards ask about go on by themselves, or need a person too.
fn goes_on(pipeline: &Pipeline, rows: &Coordination) -> bool {
    match &pipeline.state {
        State::Checking { .. } | State::Running { task: None, .. } => true,
        State::Blocked { when: When::Post, reason: Reason::Guard { .. }, .. } => true,
        State::Blocked { reason: Reason::Guard { .. }, .. } => {
            let wants = guards::wants(pipeline.guards(), &pipeline.context);
            let is_held = |name: &str| rows.locks.get(name).is_some_and(|lock| lock.state != lock::State::Free);
            let is_used = |name: &str| rows.semaphores.get(name).is_some_and(|semaphore| !semaphore.holders.is_empty());
            wants.asks_outside()
                || wants.locks.iter().any(|name| is_held(name))
                || wants.semaphores.iter().any(|name| is_used(name))
        }
        State::Init
        | State::Blocked { .. }
        | State::Running { .. }
        | State::Done
        | State::Failed { .. }
        | State::Cancelled { .. } => false,
    }
}
