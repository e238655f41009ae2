//! The trace in plain words.

use std::fmt;

use banksman_core::TaskId;
use banksman_core::event::{Event, Fact, TaskFact};
use banksman_engine::{
    DecisionOutcome, PipelineOutcome, PipelineRequest, Reply, Request, RunOutcome, RunRequest, SectionOutcome, SectionRequest,
    TaskOutcome, TaskRequest,
};

use crate::ledger::Logged;

/// A committed request with its answer.
pub(crate) struct Deed<'a> {
    pub(crate) request: &'a Request,
    pub(crate) reply: &'a Reply,
}

impl fmt::Display for Deed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.request {
            Request::Coordinate { .. } | Request::Emit(_) => {
                return write!(f, "{}", crate::words::Told(self.request, self.reply));
            }
            Request::Section(SectionRequest::Add { id, .. }) => write!(f, "adds section {id}")?,
            Request::Section(SectionRequest::Update { id, exclusive, .. }) => write!(f, "makes {id} exclusive: {exclusive:?}")?,
            Request::Section(SectionRequest::Delete { id, .. }) => write!(f, "deletes section {id}")?,
            Request::Task(request) => task(f, request)?,
            Request::Run(request) => run(f, request)?,
            Request::Import(request) => write!(f, "{request:?}")?,
            Request::Queue(request) => write!(f, "{request:?}")?,
            Request::Worker(request) => write!(f, "{request:?}")?,
            Request::Route(request) => write!(f, "{request:?}")?,
            Request::Apply(request) => write!(f, "{request:?}")?,
            Request::Pipeline(request) => pipeline(f, request)?,
            Request::SetLimits { change, .. } => write!(f, "{change:?}")?,
            Request::Decision(request) => write!(f, "answers {} with {}", request.id, request.option)?,
        }
        match self.reply {
            Reply::Coordinate { .. } | Reply::RequestReused | Reply::Emitted(_) => Ok(()),
            Reply::Limits(limits) => write!(f, ": {limits:?}"),
            Reply::Section(SectionOutcome::Kept(_)) | Reply::Task(TaskOutcome::Kept(_)) => write!(f, ": kept"),
            Reply::Section(outcome) => write!(f, ": {outcome:?}"),
            Reply::Task(TaskOutcome::Stepped(outcome, _)) => write!(f, ": {outcome:?}"),
            Reply::Task(outcome) => write!(f, ": {outcome:?}"),
            Reply::Run(RunOutcome::Claimed { started, blocked, .. }) => {
                let runs: Vec<&str> = started.iter().map(|work| work.run.id.as_str()).collect();
                write!(f, ": {runs:?}, refused {}", blocked.len())
            }
            Reply::Run(RunOutcome::Adopted(_)) => write!(f, ": adopted"),
            Reply::Run(RunOutcome::Stepped(outcome, _)) => write!(f, ": {outcome:?}"),
            Reply::Run(outcome) => write!(f, ": {outcome:?}"),
            Reply::Import(outcome) => write!(f, ": {outcome:?}"),
            Reply::Queue { outcome, .. } => write!(f, ": {outcome:?}"),
            Reply::Worker(outcome) => write!(f, ": {outcome:?}"),
            Reply::Route(outcome) => write!(f, ": {outcome:?}"),
            Reply::Apply(outcome) => write!(f, ": {outcome:?}"),
            Reply::Pipeline(PipelineOutcome::Stepped(outcome, pipeline)) => write!(f, ": {outcome:?}, {:?}", pipeline.state),
            Reply::Pipeline(outcome) => write!(f, ": {outcome:?}"),
            Reply::Decision(DecisionOutcome::Stepped(outcome, _)) => write!(f, ": {outcome:?}"),
            Reply::Decision(outcome) => write!(f, ": {outcome:?}"),
        }
    }
}

fn task(f: &mut fmt::Formatter<'_>, request: &TaskRequest) -> fmt::Result {
    match request {
        TaskRequest::Add { id, spec, .. } => {
            write!(f, "adds {id}")?;
            spec.parent.iter().try_for_each(|parent| write!(f, " below {parent}"))
        }
        TaskRequest::Update { id, .. } => write!(f, "changes {id}"),
        TaskRequest::Conclude { id, epoch: Some(epoch), verdict, .. } => write!(f, "as {epoch} says of {id} {verdict:?}"),
        TaskRequest::Conclude { id, epoch: None, verdict, .. } => write!(f, "says of {id} {verdict:?}"),
        TaskRequest::Heartbeat { id, pulse, .. } => write!(f, "sees {id} {pulse:?}"),
        TaskRequest::Checkpoint { id, .. } => write!(f, "records that {id} is at work"),
        TaskRequest::Overtime { id, run, .. } => write!(f, "finds that {run} of {id} takes too long"),
        TaskRequest::Cancel { id } => write!(f, "cancels {id}"),
        TaskRequest::Kill { id, run, .. } => write!(f, "kills {run} of {id}"),
        TaskRequest::Retry { id } => write!(f, "retries {id}"),
        TaskRequest::Take { id, taking } => write!(f, "{} takes {id} by hand", taking.holder),
        TaskRequest::GiveBack { id, by, .. } => write!(f, "{by:?} gives {id} back"),
        TaskRequest::Leave { ticket, seen, .. } => write!(f, "claim {ticket} gives up, seen {}", seen.is_some()),
        TaskRequest::Renew { id, by, .. } => write!(f, "{by:?} renews the claim on {id}"),
        TaskRequest::Finish { id, by, epoch, verdict, .. } => write!(f, "{by:?} as {epoch:?} says of {id} {verdict:?}"),
        TaskRequest::Edited { then, .. } => {
            write!(f, "changes it and ")?;
            task(f, then)
        }
        TaskRequest::Set { id, mark, .. } => write!(f, "marks {id} {mark:?}"),
        TaskRequest::Delete { id, force } => write!(f, "deletes {id}, force {force}"),
    }
}

fn pipeline(f: &mut fmt::Formatter<'_>, request: &PipelineRequest) -> fmt::Result {
    match request {
        PipelineRequest::Start(start) => write!(f, "starts {} with {:?}", start.id, start.spec.work),
        PipelineRequest::Begin { id, .. } => write!(f, "begins {id}"),
        PipelineRequest::Examine { id, .. } => write!(f, "wants to look at the guards of {id}"),
        PipelineRequest::Judge(judgement) => {
            write!(f, "tells of the guards of {} at {} ({:?})", judgement.id, judgement.phase, judgement.when)
        }
        PipelineRequest::Push { id, phase, queue, .. } => write!(f, "puts an item of {id} at {phase} into {queue}"),
        PipelineRequest::Set { id, vars, .. } => write!(f, "sets {vars:?} of {id}"),
        PipelineRequest::Checkpoint { id, .. } => write!(f, "says something of {id}"),
        PipelineRequest::Unblock { id, .. } => write!(f, "unblocks {id}"),
        PipelineRequest::Retry { id } => write!(f, "retries pipeline {id}"),
    }
}

fn run(f: &mut fmt::Formatter<'_>, request: &RunRequest) -> fmt::Result {
    match request {
        RunRequest::Enlist { limits, .. } => write!(f, "enlists, {limits:?} if there are none"),
        RunRequest::Watch { resources, .. } => {
            let names: Vec<&str> = resources.iter().map(|resource| resource.name.as_str()).collect();
            write!(f, "watches {names:?}")
        }
        RunRequest::Short { shortage, .. } => write!(f, "is short: {shortage:?}"),
        RunRequest::Retire { runner, .. } => write!(f, "retires {runner}"),
        RunRequest::Claim { room, candidates, .. } => {
            let tasks: Vec<&str> = candidates.iter().map(|candidate| candidate.task.as_str()).collect();
            write!(f, "claims up to {room} of {tasks:?}")
        }
        RunRequest::Started { run, .. } => write!(f, "has started {run}"),
        RunRequest::Finish { what, ending, marker, .. } => {
            write!(f, "reports the end of {}: {}, {marker:?}", what.run.id, ending.ending)
        }
        RunRequest::Found { task, marker } => write!(f, "finds {marker:?} of {task}"),
        RunRequest::Ripen { rested: tasks, .. } => {
            let tasks: Vec<&str> = tasks.iter().map(TaskId::as_str).collect();
            write!(f, "lets {tasks:?} rest no longer")
        }
        RunRequest::Rest { counts, .. } => write!(f, "finds nothing left to do: {counts:?}"),
        RunRequest::Settle { task } => write!(f, "looks at the children of {task}"),
        RunRequest::Tried { command, error, .. } => write!(f, "has tried errand {command}: {error:?}"),
        RunRequest::Adopt { what, .. } => write!(f, "wants {} of {}", what.run.id, what.run.owner),
        RunRequest::Renew { .. } => write!(f, "renews"),
        RunRequest::Dismiss { runner, .. } => write!(f, "dismisses {runner}"),
        RunRequest::Lose { what, .. } => write!(f, "gives {} up", what.run.id),
        RunRequest::Unproven { what, .. } => write!(f, "cannot prove the end of {}", what.run.id),
        RunRequest::Await { run, parts, .. } => write!(f, "{run} waits for {parts:?}"),
        RunRequest::EndAwait { ticket } => write!(f, "wait {ticket} ends"),
        RunRequest::Pause { run, .. } => write!(f, "gives the slot of {run} back"),
        RunRequest::Resume { run, .. } => write!(f, "has a slot for {run} again"),
    }
}

/// An event.
pub(crate) struct Line<'a>(pub(crate) &'a Logged);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Logged { seq, event, .. } = self.0;
        let (_, id) = event.source();
        write!(f, "event {seq}: {} {}", event.kind(), id.unwrap_or("-"))?;
        match event {
            Event::Task { fact, .. } => match fact {
                TaskFact::Added { spec, depends_on, .. } | TaskFact::Updated { spec, depends_on } => {
                    let on: Vec<&str> = depends_on.iter().map(|edge| edge.on.as_str()).collect();
                    write!(f, " in {:?} after {on:?} needs {:?}", spec.section, spec.needs)
                }
                other => write!(f, " {other:?}"),
            },
            Event::Resource { fact, .. } => match fact {
                Fact::Acquired(claim) => write!(f, " {} x{}", claim.holder, claim.weight),
                Fact::Released(ended) | Fact::Reclaimed(ended) | Fact::OfferLapsed(ended) => {
                    write!(f, " {} {:?}", ended.holder, ended.reason)
                }
                Fact::Defined(defined) => write!(f, " {:?}", defined.capacity),
                Fact::Increased(increased) => write!(f, " {}", increased.holder),
            },
            Event::Section { fact, .. } => write!(f, " {fact:?}"),
            Event::Import { fact, .. } => write!(f, " {fact:?}"),
            Event::Queue { fact, .. } => write!(f, " {fact:?}"),
            Event::Worker { fact, .. } => write!(f, " {fact:?}"),
            Event::Route { fact, .. } => write!(f, " {fact:?}"),
            Event::Pipeline { fact, .. } => write!(f, " {fact:?}"),
            Event::Decision { fact, .. } => write!(f, " {fact:?}"),
            Event::Finished(finished) => write!(f, " {finished:?}"),
            Event::Limits(limits) => write!(f, " {limits:?}"),
            Event::Custom { .. } => Ok(()),
        }
    }
}
