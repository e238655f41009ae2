//! Commands and outcomes of locks and semaphores in one vocabulary, for those who look at both alike.

use std::fmt;

use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::deadlock::Link;
use banksman_core::resource::grant::{Ask, Grant, Waiting};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{Epoch, HolderId, Ticket};
use banksman_engine::{Reply, Request};

/// What was asked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked<'a> {
    Define,
    Acquire(&'a Ask),
    Look(Ticket),
    Leave(Ticket),
    Heartbeat(&'a HolderId, Option<Epoch>),
    Release(&'a HolderId, Option<Epoch>),
    Force,
    Reap,
}

/// What was answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer<'a> {
    /// Newly granted, or taken up.
    Acquired(&'a Grant),
    /// Held already, and shown to be.
    Extended(&'a Grant),
    Waiting(&'a Waiting),
    Gone,
    Left,
    Released,
    /// The lock tells its fence.
    Fenced(Option<Epoch>),
    /// Held by somebody else, or by nobody.
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
            lock::Input::Look { ticket } => Asked::Look(*ticket),
            lock::Input::Leave { ticket } => Asked::Leave(*ticket),
            lock::Input::Heartbeat { holder, epoch } => Asked::Heartbeat(holder, Some(*epoch)),
            lock::Input::Release { holder, epoch } => Asked::Release(holder, Some(*epoch)),
            lock::Input::Force { .. } => Asked::Force,
            lock::Input::Reap => Asked::Reap,
        },
        Command::Semaphore(_, input) => match input {
            semaphore::Input::Define(_) => Asked::Define,
            semaphore::Input::Acquire(ask) => Asked::Acquire(ask),
            semaphore::Input::Look { ticket } => Asked::Look(*ticket),
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
pub(crate) struct Told<'a>(pub(crate) &'a Request, pub(crate) &'a Reply);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Request::Coordinate { command, seen } => {
                write!(f, "{} {}", Verb(asked(command)), command.resource())?;
                if !seen.probes.is_empty() {
                    write!(f, " (looked at {})", seen.probes.len())?;
                }
            }
            Request::Emit(event) => write!(f, "emits {}", event.kind())?,
            Request::Section(request) => write!(f, "{request:?}")?,
            Request::Task(request) => write!(f, "{request:?}")?,
            Request::Run(request) => write!(f, "{request:?}")?,
            Request::Import(request) => write!(f, "{request:?}")?,
            Request::Queue(request) => write!(f, "{request:?}")?,
            Request::Worker(request) => write!(f, "{request:?}")?,
            Request::Route(request) => write!(f, "{request:?}")?,
            Request::Apply(request) => write!(f, "{request:?}")?,
            Request::Pipeline(request) => write!(f, "{request:?}")?,
            Request::SetLimits { change, .. } => write!(f, "{change:?}")?,
            Request::Decision(request) => write!(f, "{request:?}")?,
        }
        match self.1 {
            Reply::Coordinate { outcome, .. } => write!(f, ": {}", answer(outcome)),
            Reply::RequestReused => write!(f, ": request id used before"),
            Reply::Emitted(seq) => write!(f, ": event {seq}"),
            Reply::Section(outcome) => write!(f, ": {outcome:?}"),
            Reply::Task(outcome) => write!(f, ": {outcome:?}"),
            Reply::Run(outcome) => write!(f, ": {outcome:?}"),
            Reply::Import(outcome) => write!(f, ": {outcome:?}"),
            Reply::Queue { outcome, .. } => write!(f, ": {outcome:?}"),
            Reply::Worker(outcome) => write!(f, ": {outcome:?}"),
            Reply::Route(outcome) => write!(f, ": {outcome:?}"),
            Reply::Apply(outcome) => write!(f, ": {outcome:?}"),
            Reply::Limits(limits) => write!(f, ": {limits:?}"),
            Reply::Pipeline(outcome) => write!(f, ": {outcome:?}"),
            Reply::Decision(outcome) => write!(f, ": {outcome:?}"),
        }
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
            Asked::Look(ticket) => write!(f, "looks with ticket {ticket} at"),
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
