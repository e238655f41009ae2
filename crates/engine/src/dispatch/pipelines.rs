//! Pipelines that do not go on by a run alone: those that may begin, whose guards are to be looked at, or that push an item.

use std::collections::BTreeSet;

use banksman_core::guard::GuardInputs;
use banksman_core::pipeline::{Outcome, Pipeline, Reason, State};
use banksman_core::plan::Action;
use banksman_core::{Lease, Now, Task};
use banksman_store::{Key, Snapshot};

use super::{Advice, Dispatcher, News};
use crate::guards::{self, Judgement};
use crate::pipelines::{PipelineOutcome, PipelineRequest, item};
use crate::request::Request;

/// How many pipelines are looked at in one go.
pub(super) const PIPELINES: u32 = 100;

impl Dispatcher {
    /// A pipeline begins that nothing stands in the way of.
    pub(super) fn beginning(&self, task: &Task) -> Request {
        let root_limit = self.options.root_limit;
        Request::Pipeline(PipelineRequest::Begin { id: task.id.clone(), root_limit, seen: self.seen() })
    }

    /// The locks and semaphores that guards ask about, of pipelines that they hold up.
    pub(super) fn guard_keys(&self, snapshot: &Snapshot) -> BTreeSet<Key> {
        let wanted = |pipeline: &Pipeline| guards::store_keys(&guards::wants(pipeline.guards(), &pipeline.context));
        let keys = snapshot.backlog.pipelines.values().filter(|_| self.only.is_none()).flat_map(wanted);
        keys.filter(|key| matches!(key, Key::Lock(_) | Key::Semaphore(_))).collect()
    }

    /// What is to be done for pipelines whose time has come.
    pub(super) fn advance(&self, snapshot: &Snapshot, now: &Now) -> Vec<Request> {
        let due = snapshot.backlog.pipelines.values().filter(|pipeline| guards::is_due(pipeline, snapshot, now));
        due.filter_map(|pipeline| self.next_of(pipeline, snapshot)).map(Request::Pipeline).collect()
    }

    fn next_of(&self, pipeline: &Pipeline, snapshot: &Snapshot) -> Option<PipelineRequest> {
        let id = pipeline.id.clone();
        if let State::Running { phase, task: None, .. } = &pipeline.state {
            let Action::Push(push) = &pipeline.plan.phase(phase)?.action else { return None };
            let item = Box::new(item(pipeline, push)?);
            return Some(PipelineRequest::Push { id, phase: phase.clone(), queue: push.queue.clone(), item });
        }
        if guards::wants(pipeline.guards(), &pipeline.context).is_internal() {
            let inputs = GuardInputs { vars: pipeline.context.clone(), ..GuardInputs::default() };
            return Some(PipelineRequest::Judge(Box::new(Judgement::new(pipeline, None, inputs, self.seen())?)));
        }
        let is_taken = self.looking.contains(&id) || guards::is_looked_at(pipeline, &self.me.id, &snapshot.backlog);
        (!is_taken).then(|| PipelineRequest::Examine { id, by: self.me.id.clone() })
    }

    /// Takes in the answer to a request about a pipeline. Says whether to look again.
    pub(super) fn take_in_pipeline(&mut self, request: PipelineRequest, outcome: PipelineOutcome) -> bool {
        match &outcome {
            PipelineOutcome::Stepped(Outcome::Late | Outcome::Refused(_), _) => {}
            PipelineOutcome::Stepped(outcome, pipeline) => {
                if matches!(request, PipelineRequest::Begin { .. }) {
                    self.news.push(News::Begins(pipeline.clone()));
                }
                // Who is to be looked at stands as somebody found it before.
                if *outcome != Outcome::Check {
                    self.note_pipeline(pipeline);
                }
            }
            PipelineOutcome::Unknown | PipelineOutcome::Refused(_) | PipelineOutcome::Waits(_) | PipelineOutcome::Fenced => {}
        }
        match (request, outcome) {
            (PipelineRequest::Examine { id, .. }, PipelineOutcome::Stepped(Outcome::Check, pipeline)) => {
                self.looking.insert(id);
                self.queue.push_back(Advice::Gather(pipeline));
                true
            }
            (PipelineRequest::Judge(judgement), _) => {
                self.looking.remove(&judgement.id);
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
        self.news.extend(is_news.then(|| News::Stands(Box::new(pipeline.clone()))));
    }

    /// What the guards of a pipeline ask about was looked at.
    pub fn gathered(&mut self, pipeline: &Pipeline, inputs: GuardInputs) {
        match Judgement::new(pipeline, Some(self.me.id.clone()), inputs, self.seen()) {
            Some(judgement) => self.judgements.push(Request::Pipeline(PipelineRequest::Judge(Box::new(judgement)))),
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
        let lapses =
            |pipeline: &Pipeline| guards::wants(pipeline.guards(), &pipeline.context).next_deadline(&snapshot.coordination);
        let pipelines = || snapshot.backlog.pipelines.values();
        let due = pipelines().filter_map(Pipeline::next_deadline).chain(pipelines().filter_map(lapses));
        due.filter(|due| *due > snapshot.lease).min()
    }

    /// Whether one of these pipelines may go on by itself.
    pub(super) fn has_open_pipelines(snapshot: &Snapshot) -> bool {
        snapshot.backlog.pipelines.values().any(|pipeline| !pipeline.is_over())
    }

    /// The store did not answer: what these requests told may not have arrived, and is looked at again.
    pub(super) fn forget_looks(&mut self, requests: Vec<Request>) {
        for request in requests {
            if let Request::Pipeline(PipelineRequest::Judge(judgement)) = request {
                self.looking.remove(&judgement.id);
            }
        }
    }
}
