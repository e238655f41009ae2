//! A run: one attempt at a task, its runner, what it holds, and how it ended.

use serde::{Deserialize, Serialize};

use super::runner::{Runner, Terms};
use crate::agent::spend::Day;
use crate::agent::{AgentEnd, RunAgent};
use crate::ids::{DecisionId, Epoch, MessageId, RunId, RunnerId, TaskId};
use crate::step::Now;
use crate::task::{Need, RetryReason, RunEnd};
use crate::time::{Lease, Span, Stamp, Wall};

/// One attempt at a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub id: RunId,
    pub task: TaskId,
    /// Counted from 0.
    pub attempt: u32,
    /// Its fencing number, fixed for the run.
    pub epoch: Epoch,
    /// The runner that supervises it.
    pub owner: RunnerId,
    /// Rises with every change of the owner.
    pub owner_epoch: Epoch,
    pub holds: Vec<Hold>,
    /// The agent that does it, if its task is for one.
    pub agent: Option<RunAgent>,
    /// Its processes, once it is known that they were started.
    pub session: Option<Session>,
    /// The machine that it runs on.
    pub host: Box<str>,
    /// The boot of that machine: none of its processes outlives it.
    pub boot: Box<str>,
    pub started: Stamp,
    /// While it lives, other runners may not declare it lost before this lease is over.
    pub lease: Option<RunLease>,
    pub ended: Option<RunEndRecord>,
}

/// How long a live run is safe from being declared lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLease {
    /// When its runner last renewed it.
    pub renewed: Lease,
    /// The terms at that moment.
    pub terms: Terms,
}

/// A resource that a run holds while it lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// A lock or slots.
    pub need: Need,
    /// The grant.
    pub epoch: Epoch,
}

/// The processes of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The process that keeps it.
    pub keeper: i32,
    /// The first process of the tree.
    pub child: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEndRecord {
    pub ending: RunEnd,
    pub at: Wall,
    /// A note for people, such as output that could not be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Box<str>>,
    /// Why another run followed, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setback: Option<RetryReason>,
    /// The error that the run reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<str>>,
    /// How long its command ran, by the clock of its keeper, if it ended by itself before it was asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Span>,
    /// The result of its agent program, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<AgentEnd>>,
    /// The question that it asked a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<DecisionId>,
    /// The daily budget of agents, in millionths of a dollar, as the reporting runner knows it.
    #[serde(skip)]
    pub budget_micros: Option<u64>,
    /// The day to which its cost counts, as the reporting runner knows it.
    #[serde(skip)]
    pub day: Option<Day>,
    /// The messages that were written into its session after their sender may have gone. They are not stored here: the
    /// mailbox has them.
    #[serde(skip)]
    pub written: Vec<MessageId>,
    /// Its last output, if it is a phase of a pipeline. It is not stored here: the log has it.
    #[serde(skip)]
    pub tail: Option<Box<str>>,
}

impl Run {
    /// Whether it may have live processes.
    pub fn is_live(&self) -> bool {
        self.ended.is_none()
    }

    /// Whether it has ended by itself, with success, and no other run had to follow.
    pub fn has_ended_well(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.ending == RunEnd::Exited(0) && ended.setback.is_none())
    }

    /// Whether this runner can find out how it ended, and supervise it: both are on the same machine and keep their
    /// records in the same folder. Without leases there is one machine only, whatever id its users give it.
    pub fn is_within_reach_of(&self, runner: &Runner) -> bool {
        match (&self.lease, &runner.terms) {
            (None, None) => true,
            (None, Some(_)) => self.host == runner.process.host,
            (Some(lease), Some(own)) => self.host == runner.process.host && own.folder == lease.terms.folder,
            (Some(_), None) => false,
        }
    }

    /// Whether its runner has been silent for so long that its keeper must have ended the session.
    pub fn is_lost(&self, now: &Now) -> bool {
        self.is_live() && self.lease.as_ref().is_some_and(|lease| now.is_past(lease.end()))
    }

    /// Renews the lease. Its end never moves back: a keeper may still go by an earlier, longer promise.
    pub fn renew(&mut self, by: &Runner, now: Lease) {
        let renewed = by.terms.clone().map(|terms| RunLease { renewed: now, terms });
        if renewed.as_ref().is_some_and(|renewed| self.lease.as_ref().is_none_or(|lease| lease.end() <= renewed.end())) {
            self.lease = renewed;
        }
    }
}

impl RunLease {
    pub fn end(&self) -> Lease {
        self.renewed + self.terms.ttl
    }
}

impl RunEndRecord {
    /// An end without further details.
    pub fn new(ending: RunEnd, at: Wall, note: Option<Box<str>>) -> RunEndRecord {
        RunEndRecord {
            ending,
            at,
            note,
            setback: None,
            error: None,
            ran: None,
            agent: None,
            asked: None,
            budget_micros: None,
            day: None,
            written: Vec::new(),
            tail: None,
        }
    }

    /// The day to which its cost counts.
    pub fn day(&self) -> Day {
        self.day.unwrap_or_else(|| Day::utc(self.at))
    }
}
