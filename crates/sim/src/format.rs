//! Commands and outcomes of locks and semaphores in one vocabulary, for checkers that treat both alike.

use std::fmt;

use banksman_core::TaskId;
use banksman_core::event::{Event, Fact, TaskFact};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::deadlock::Link;
use banksman_core::resource::grant::{Ask, Grant, Waiting};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{Epoch, HolderId, Ticket};
use banksman_engine::{
    DecisionOutcome, PipelineOutcome, PipelineRequest, Reply, Request, RunOutcome, RunRequest, SectionOutcome, SectionRequest,
    TaskOutcome, TaskRequest,
};

use crate::commit::{CommittedCall, Logged};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked<'a> {
    Define,
    Acquire(&'a Ask),
    Poll(Ticket),
    Leave(Ticket),
    Heartbeat(&'a HolderId, Option<Epoch>),
    Release(&'a HolderId, Option<Epoch>),
    Force,
    Reap,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer<'a> {
    /// Newly granted, or taken up.
    Acquired(&'a Grant),
    /// Already held, and renewed.
    Extended(&'a Grant),
    Waiting(&'a Waiting),
    Gone,
    Left,
    Released,
    /// A lock reports its fence.
    Fenced(Option<Epoch>),
    /// Held by another holder, or free.
    NotOwner,
    AlreadyFree,
    Lost,
    Deadlock(&'a [Link]),
    /// A refusal or a result without anything to check.
    Other(&'static str),
}

pub(crate) fn asked(command: &Command) -> Asked<'_> {
    match command {
        Command::Lock(_, input) => match input {
            lock::Input::Define(_) => Asked::Define,
            lock::Input::Acquire(ask) => Asked::Acquire(ask),
            lock::Input::Poll { ticket } => Asked::Poll(*ticket),
            lock::Input::Leave { ticket } => Asked::Leave(*ticket),
            lock::Input::Heartbeat { holder, epoch } => Asked::Heartbeat(holder, Some(*epoch)),
            lock::Input::Release { holder, epoch } => Asked::Release(holder, Some(*epoch)),
            lock::Input::Force { .. } => Asked::Force,
            lock::Input::Reap => Asked::Reap,
        },
        Command::Semaphore(_, input) => match input {
            semaphore::Input::Define(_) => Asked::Define,
            semaphore::Input::Acquire(ask) => Asked::Acquire(ask),
            semaphore::Input::Poll { ticket } => Asked::Poll(*ticket),
            semaphore::Input::Leave { ticket } => Asked::Leave(*ticket),
            semaphore::Input::Heartbeat { holder, epoch } => Asked::Heartbeat(holder, *epoch),
            semaphore::Input::Release { holder, epoch } => Asked::Release(holder, *epoch),
            semaphore::Input::Force { .. } => Asked::Force,
            semaphore::Input::Reap => Asked::Reap,
        },
    }
}

pub(crate) fn answer(outcome: &Outcome) -> Answer<'_> {
    match outcome {
        Outcome::Lock(outcome) => match outcome {
            lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. } => Answer::Acquired(grant),
            lock::Outcome::Extended(grant) => Answer::Extended(grant),
            lock::Outcome::Waiting(waiting) => Answer::Waiting(waiting),
            lock::Outcome::Gone => Answer::Gone,
            lock::Outcome::Left => Answer::Left,
            lock::Outcome::Released => Answer::Released,
            lock::Outcome::Fenced { fence } => Answer::Fenced(Some(*fence)),
            lock::Outcome::NotOwner { .. } => Answer::NotOwner,
            lock::Outcome::AlreadyFree => Answer::AlreadyFree,
            lock::Outcome::Lost => Answer::Lost,
            lock::Outcome::Defined => Answer::Other("defined"),
            lock::Outcome::Busy(_) => Answer::Other("busy"),
            lock::Outcome::TooManyWaiters => Answer::Other("line full"),
            lock::Outcome::NotOneSlot => Answer::Other("not one slot"),
            lock::Outcome::Spent { .. } => Answer::Other("spent"),
            lock::Outcome::Reaped { .. } => Answer::Other("reaped"),
            lock::Outcome::Kept => Answer::Other("kept"),
        },
        Outcome::Semaphore(outcome) => match outcome {
            semaphore::Outcome::Acquired(grant) => Answer::Acquired(grant),
            semaphore::Outcome::AlreadyHeld(grant)
            | semaphore::Outcome::Increased(grant)
            | semaphore::Outcome::Extended(grant) => Answer::Extended(grant),
            semaphore::Outcome::Waiting(waiting) => Answer::Waiting(waiting),
            semaphore::Outcome::Gone => Answer::Gone,
            semaphore::Outcome::Left => Answer::Left,
            semaphore::Outcome::Released => Answer::Released,
            semaphore::Outcome::Fenced { .. } => Answer::Fenced(None),
            semaphore::Outcome::NotHolder => Answer::NotOwner,
            semaphore::Outcome::Defined => Answer::Other("defined"),
            semaphore::Outcome::Full { .. } => Answer::Other("full"),
            semaphore::Outcome::TooManyWaiters => Answer::Other("line full"),
            semaphore::Outcome::NoWeight => Answer::Other("no weight"),
            semaphore::Outcome::TooHeavy { .. } => Answer::Other("too heavy"),
            semaphore::Outcome::HeldAlready => Answer::Other("held already"),
            semaphore::Outcome::Spent { .. } => Answer::Other("spent"),
            semaphore::Outcome::Reaped(_) => Answer::Other("reaped"),
        },
        Outcome::Deadlock(cycle) => Answer::Deadlock(cycle),
        Outcome::Undefined => Answer::Other("undefined"),
    }
}

/// A request and its reply as a line of the trace: `acquires lock a: waiting, 2nd`.
pub(crate) struct Answered<'a>(pub(crate) &'a Request, pub(crate) &'a Reply);

impl fmt::Display for Answered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Request::Coordinate { command, seen } => {
                write!(f, "{} {}", Verb(asked(command)), command.resource())?;
                if !seen.probes.is_empty() {
                    write!(f, " (looked at {})", seen.probes.len())?;
                }
            }
            Request::Emit(event) => write!(f, "emits {}", event.kind())?,
            Request::Section(SectionRequest::Add { id, .. }) => write!(f, "adds section {id}")?,
            Request::Section(SectionRequest::Update { id, exclusive, .. }) => write!(f, "makes {id} exclusive: {exclusive:?}")?,
            Request::Section(SectionRequest::Delete { id, .. }) => write!(f, "deletes section {id}")?,
            Request::Task(request) => task(f, request)?,
            Request::Run(request) => run(f, request)?,
            Request::Pipeline(request) => pipeline(f, request)?,
            Request::Decision(request) => write!(f, "answers {} with {}", request.id, request.option)?,
            other => write!(f, "{other:?}")?,
        }
        match self.1 {
            Reply::Coordinate { outcome, .. } => write!(f, ": {}", answer(outcome)),
            Reply::RequestReused => write!(f, ": request id used before"),
            Reply::Emitted(seq) => write!(f, ": event {seq}"),
            Reply::Section(SectionOutcome::Kept(_)) | Reply::Task(TaskOutcome::Kept(_)) => write!(f, ": kept"),
            Reply::Task(TaskOutcome::Stepped(outcome, _)) => write!(f, ": {outcome:?}"),
            Reply::Run(RunOutcome::Claimed(claimed)) => {
                let (started, blocked) = (&claimed.started, &claimed.blocked);
                let runs: Vec<&str> = started.iter().map(|work| work.run.id.as_str()).collect();
                write!(f, ": {runs:?}, refused {}", blocked.len())
            }
            Reply::Run(RunOutcome::Adopted(_)) => write!(f, ": adopted"),
            Reply::Run(RunOutcome::Stepped(outcome, _)) => write!(f, ": {outcome:?}"),
            Reply::Pipeline(PipelineOutcome::Stepped(outcome, pipeline)) => write!(f, ": {outcome:?}, {:?}", pipeline.state),
            Reply::Decision(DecisionOutcome::Stepped(outcome, _)) => write!(f, ": {outcome:?}"),
            other => write!(f, ": {other:?}"),
        }
    }
}

impl fmt::Display for CommittedCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Answered(self.request, self.reply).fmt(f)
    }
}

struct Verb<'a>(Asked<'a>);

impl fmt::Display for Verb<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Asked::Define => write!(f, "defines"),
            Asked::Acquire(Ask { claim, epoch: Some(epoch), .. }) => {
                write!(f, "as {} extends {epoch} to {} of", claim.holder, claim.weight)
            }
            Asked::Acquire(Ask { claim, .. }) if claim.weight != 1 => {
                write!(f, "as {} acquires {} of", claim.holder, claim.weight)
            }
            Asked::Acquire(Ask { claim, .. }) => write!(f, "as {} acquires", claim.holder),
            Asked::Poll(ticket) => write!(f, "looks with ticket {ticket} at"),
            Asked::Leave(ticket) => write!(f, "leaves with ticket {ticket}"),
            Asked::Heartbeat(holder, epoch) => write!(f, "as {holder} heartbeats {}", Number(epoch)),
            Asked::Release(holder, epoch) => write!(f, "as {holder} releases {}", Number(epoch)),
            Asked::Force => write!(f, "forces"),
            Asked::Reap => write!(f, "reaps"),
        }
    }
}

struct Number(Option<Epoch>);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("any epoch of"),
            Some(epoch) => write!(f, "{epoch} of"),
        }
    }
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Acquired(grant) => write!(f, "acquired, epoch {}", grant.epoch),
            Answer::Extended(grant) => write!(f, "extended, epoch {}, weight {}", grant.epoch, grant.claim.weight),
            Answer::Waiting(waiting) => write!(f, "waiting, {}, ticket {}", Ordinal(waiting.place), waiting.ticket),
            Answer::Gone => write!(f, "gone"),
            Answer::Left => write!(f, "left"),
            Answer::Released => write!(f, "released"),
            Answer::Fenced(Some(fence)) => write!(f, "fenced, the fence is {fence}"),
            Answer::Fenced(None) => write!(f, "fenced"),
            Answer::NotOwner => write!(f, "not the owner"),
            Answer::AlreadyFree => write!(f, "already free"),
            Answer::Lost => write!(f, "lost"),
            Answer::Deadlock(cycle) => write!(f, "deadlock of {}", cycle.len()),
            Answer::Other(word) => f.write_str(word),
        }
    }
}

struct Ordinal(usize);

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = match self.0 {
            1 => "st",
            2 => "nd",
            3 => "rd",
            _ => "th",
        };
        write!(f, "{}{ending}", self.0)
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
        TaskRequest::Land { id, to, .. } => write!(f, "lands {id} on {}", to.target),
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
        TaskRequest::CancelAll { .. } => write!(f, "cancels tasks"),
    }
}

fn pipeline(f: &mut fmt::Formatter<'_>, request: &PipelineRequest) -> fmt::Result {
    match request {
        PipelineRequest::Start(start) => write!(f, "starts {} with {:?}", start.id, start.spec.work),
        PipelineRequest::BeginCheck { id, .. } => write!(f, "wants to look at the guards of {id}"),
        PipelineRequest::CheckGuards(guard_check) => {
            write!(f, "tells of the guards of {} at {} ({:?})", guard_check.id, guard_check.phase, guard_check.when)
        }
        PipelineRequest::Push { id, phase, queue, .. } => write!(f, "puts an item of {id} at {phase} into {queue}"),
        PipelineRequest::Set { id, vars, .. } => write!(f, "sets {vars:?} of {id}"),
        PipelineRequest::Checkpoint { id, .. } => write!(f, "says something of {id}"),
        PipelineRequest::Begin { id, .. } => write!(f, "begins {id}"),
        PipelineRequest::Unblock { id, .. } => write!(f, "unblocks {id}"),
        PipelineRequest::Retry { id } => write!(f, "retries pipeline {id}"),
    }
}

fn run(f: &mut fmt::Formatter<'_>, request: &RunRequest) -> fmt::Result {
    match request {
        RunRequest::Enlist { limits, .. } => write!(f, "enlists, {limits:?} if there are none"),
        RunRequest::Short { shortage, .. } => write!(f, "is short: {shortage:?}"),
        RunRequest::Retire { runner, .. } => write!(f, "retires {runner}"),
        RunRequest::Claim(claim) => write!(f, "claims up to {}", claim.room),
        RunRequest::FanOut { task } => write!(f, "tells more of those that wait for {task}"),
        RunRequest::PassOn { runner, .. } => write!(f, "wakes somebody in the place of {runner}"),
        RunRequest::Started { run, .. } => write!(f, "has started {run}"),
        RunRequest::Finish { what, ending, marker, .. } => {
            write!(f, "reports the end of {}: {}, {marker:?}", what.run.id, ending.ending)
        }
        RunRequest::Found { task, marker } => write!(f, "finds {marker:?} of {task}"),
        RunRequest::MakeReady { rested: tasks, .. } => {
            let tasks: Vec<&str> = tasks.iter().map(TaskId::as_str).collect();
            write!(f, "lets {tasks:?} rest no longer")
        }
        RunRequest::Rest { counts, .. } => write!(f, "finds nothing left to do: {counts:?}"),
        RunRequest::Settle { task } => write!(f, "looks at the children of {task}"),
        RunRequest::Tried { command, error, .. } => write!(f, "has tried outbox command {command}: {error:?}"),
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
            Event::Custom { .. } => Ok(()),
            other => write!(f, " {}", other.data()),
        }
    }
}
