//! A runner: a process that claims tasks, and the terms of its lease where its death cannot be seen from everywhere.

use serde::{Deserialize, Serialize};

use crate::ids::{RunnerId, SectionId, Ticket};
use crate::process::ProcessId;
use crate::resource::grant::Address;
use crate::step::Now;
use crate::time::{Lease, Span, Stamp};

/// A process that claims tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    pub id: RunnerId,
    pub process: ProcessId,
    pub address: Address,
    /// The sections it works in; all if empty.
    pub sections: Vec<SectionId>,
    /// How many runs it starts at most.
    pub max_runs: Option<u32>,
    /// Whether it ends when there is nothing left to do.
    pub until_idle: bool,
    /// Set while it sleeps, if it could take tasks.
    pub idle: Option<Idle>,
    /// When it was woken, if it has not called since.
    pub woken: Option<Lease>,
    /// Whether it is the runner that is woken for everything that is not a task to take.
    pub has_duty: bool,
    pub started: Stamp,
    /// When it last called. Only maintained where it has a lease.
    pub seen: Lease,
    /// The terms of its lease, where its death cannot be seen from everywhere.
    pub terms: Option<Terms>,
    /// The resource that its machine lacks to start runs.
    pub shortage: Option<Shortage>,
}

/// A runner that found nothing more to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// How many tasks it could take.
    pub wants: u32,
    /// The runner that has waited for longest is woken first.
    pub ticket: Ticket,
    /// Whether it has seen tasks that only a limit of the project keeps from starting.
    pub is_limited: bool,
}

/// A runner cannot start as many runs as it could have, because its machine has not enough of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// The error, which names the resource that is short.
    pub error: Box<str>,
    pub since: Stamp,
    /// When the runner tries again.
    pub until: Lease,
}

/// What a runner promises where others may not be able to see whether it lives, as on another machine: it renews its
/// lease, and a keeper ends a session that was not renewed for two thirds of `ttl`, before `ttl` is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// After a silence of this length its runs are lost.
    pub ttl: Span,
    /// The folder on its machine with the records of its runs. Only a runner with the same folder can adopt them.
    pub folder: Box<str>,
}

impl Runner {
    /// A runner that takes any task and has not called yet.
    pub fn new(id: RunnerId, process: ProcessId, address: Address, started: Stamp) -> Runner {
        Runner {
            id,
            process,
            address,
            sections: Vec::new(),
            max_runs: None,
            until_idle: false,
            idle: None,
            woken: None,
            has_duty: false,
            started,
            seen: Lease(0),
            terms: None,
            shortage: None,
        }
    }

    /// Whether its lease has run out. The runner may live, but none of its sessions does.
    pub fn is_silent(&self, now: &Now) -> bool {
        self.terms.as_ref().is_some_and(|terms| now.is_past(self.seen + terms.ttl))
    }
}
