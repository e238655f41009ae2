//! A simulated process that holds locks and slots: what it believes to hold, and its current action.

use banksman_core::event::Resource;
use banksman_core::resource::grant::{Address, Ask};
use banksman_core::{Epoch, HolderId, Lease, ProcessId};
use banksman_engine::Wait;

use crate::clock::Ms;
use crate::commit::{Heard, InFlight};

/// One slot of the simulation. When its process dies, another one starts in its place, with the same pid.
pub(crate) struct Client {
    pub(crate) slot: usize,
    pub(crate) id: ProcessId,
    pub(crate) alive: bool,
    /// A command that it runs. It dies with its parent, or a little later.
    pub(crate) child: ProcessId,
    pub(crate) child_alive: bool,
    /// When the child of a dead process dies.
    pub(crate) orphan_until: Ms,
    /// When the successor of a dead process starts.
    pub(crate) back_at: Ms,
    pub(crate) paused_until: Option<Ms>,
    pub(crate) doing: Doing,
    /// The grants that it believes to hold, outermost first.
    pub(crate) holds: Vec<Hold>,
    /// Whether it was woken.
    pub(crate) mailbox: bool,
    /// Replies that came while it was paused.
    pub(crate) unread: Vec<(InFlight, Heard)>,
    /// Whether it holds everything under one name, or each grant under a child of the previous one.
    pub(crate) nests: bool,
    /// The request, with a request id, for which this process waited when it died: its successor may ask again.
    pub(crate) legacy: Option<(Resource, Ask)>,
    name: String,
    lives: u64,
}

/// The current action of a process's main thread.
pub(crate) enum Doing {
    /// Works, or idles.
    Backoff {
        until: Ms,
    },
    /// Has sent a call and waits for the reply.
    Calling(Purpose),
    /// Waits.
    Sleeping {
        waiter: Box<Waiter>,
        watch: Vec<ProcessId>,
        until: Ms,
        due: Ms,
        place: usize,
    },
    Finished,
}

/// The purpose of a call of the main thread.
pub(crate) enum Purpose {
    Wait(Box<Waiter>),
    Leave,
    Release { resource: Resource, epoch: Epoch },
    OddJob,
}

/// An acquisition in progress.
pub(crate) struct Waiter {
    pub(crate) wait: Wait,
    pub(crate) resource: Resource,
    /// When it gives up.
    pub(crate) limit: Option<Ms>,
    /// Whether the request may be repeated when its reply was lost.
    pub(crate) repeatable: bool,
    /// The grant that is to be extended.
    pub(crate) extends: Option<Epoch>,
    /// Whether it has noticed a stall, so that it may take longer than others.
    pub(crate) stalled: bool,
    /// When the last reply was given: its durations count from there.
    pub(crate) answered: Lease,
    /// The request that a successor repeats.
    pub(crate) again: Option<(Resource, Ask)>,
}

/// A grant that a process believes to hold.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) resource: Resource,
    pub(crate) holder: HolderId,
    pub(crate) epoch: Epoch,
    pub(crate) weight: u32,
    /// When it wants to release it.
    pub(crate) until: Ms,
    /// When to send the next heartbeat; a careless process sends none.
    pub(crate) beat_at: Option<Ms>,
    pub(crate) beat_every: Ms,
}

impl Client {
    pub(crate) fn new(slot: usize, never: ProcessId) -> Client {
        Client {
            slot,
            child: never.clone(),
            child_alive: false,
            orphan_until: 0,
            id: never,
            alive: false,
            back_at: 0,
            paused_until: None,
            doing: Doing::Finished,
            holds: Vec::new(),
            mailbox: false,
            unread: Vec::new(),
            nests: false,
            legacy: None,
            name: String::new(),
            lives: 0,
        }
    }

    /// Starts a new process in this slot, with a command that it runs. A process that resumes the interrupted wait of
    /// its predecessor also takes over its name and its way of naming.
    pub(crate) fn start(&mut self, id: ProcessId, child: ProcessId, nests: bool, now: Ms) {
        self.lives += 1;
        if self.legacy.is_none() {
            self.name = format!("p{}.{}", self.slot, self.lives);
            self.nests = nests;
        }
        (self.id, self.child) = (id, child);
        (self.alive, self.child_alive, self.mailbox, self.paused_until) = (true, true, false, None);
        self.doing = Doing::Backoff { until: now };
    }

    pub(crate) fn die(&mut self, orphan_until: Ms, back_at: Ms) {
        (self.alive, self.orphan_until, self.back_at) = (false, orphan_until, back_at);
        self.legacy = match std::mem::replace(&mut self.doing, Doing::Finished) {
            Doing::Sleeping { waiter, .. } | Doing::Calling(Purpose::Wait(waiter)) => waiter.again,
            Doing::Backoff { .. } | Doing::Calling(_) | Doing::Finished => None,
        };
        self.holds.clear();
        self.unread.clear();
        self.paused_until = None;
    }

    /// Whether it can act at all.
    pub(crate) fn is_awake(&self) -> bool {
        self.alive && self.paused_until.is_none()
    }

    /// The holder name of its first grant, unique for this process.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn address(&self) -> Address {
        Address(self.name.as_str().into())
    }

    pub(crate) fn hold(&mut self, resource: &Resource, epoch: Epoch) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.resource == *resource && hold.epoch == epoch)
    }

    /// It has learnt that it no longer holds this grant.
    pub(crate) fn forget(&mut self, resource: &Resource, epoch: Epoch) {
        self.holds.retain(|hold| !(hold.resource == *resource && hold.epoch == epoch));
    }
}
