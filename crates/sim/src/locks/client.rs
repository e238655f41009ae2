//! A simulated process that holds locks and slots: what it believes to hold, and what it is doing right now.

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
    /// When the child of a dead one dies.
    pub(crate) orphan_until: Ms,
    /// When a dead one's successor starts.
    pub(crate) back_at: Ms,
    pub(crate) paused_until: Option<Ms>,
    pub(crate) doing: Doing,
    /// What it believes to hold, outermost first.
    pub(crate) holds: Vec<Hold>,
    /// It was woken.
    pub(crate) mailbox: bool,
    /// Answers that came while it was paused.
    pub(crate) unread: Vec<(InFlight, Heard)>,
    /// Whether it holds everything under one name, or each thing under a child of the one before.
    pub(crate) nests: bool,
    /// What this process was waiting for when it died, under a request id: its successor may ask again.
    pub(crate) legacy: Option<(Resource, Ask)>,
    name: String,
    lives: u64,
}

/// What the main thread of a process does.
pub(crate) enum Doing {
    /// Works, or looks out of the window.
    Backoff { until: Ms },
    /// Has sent a call and waits for the answer.
    Calling(Purpose),
    /// Waits.
    Sleeping { waiter: Box<Waiter>, watch: Vec<ProcessId>, until: Ms, due: Ms, place: usize },
    /// Has nothing left to do.
    Finished,
}

/// What a call of the main thread is for.
pub(crate) enum Purpose {
    Wait(Box<Waiter>),
    Leave,
    Release { resource: Resource, epoch: Epoch },
    OddJob,
}

/// One acquisition under way.
pub(crate) struct Waiter {
    pub(crate) wait: Wait,
    pub(crate) resource: Resource,
    /// When it gives up.
    pub(crate) limit: Option<Ms>,
    /// Whether the request may be repeated when its answer was lost.
    pub(crate) repeatable: bool,
    /// The grant that is to be extended.
    pub(crate) extends: Option<Epoch>,
    /// Whether it has noticed a stall, so that it may take longer than others would.
    pub(crate) stalled: bool,
    /// When the last answer was given: what it says about time counts from there.
    pub(crate) answered: Lease,
    /// What a successor asks for again.
    pub(crate) again: Option<(Resource, Ask)>,
}

/// Something that a process believes to hold.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) resource: Resource,
    pub(crate) holder: HolderId,
    pub(crate) epoch: Epoch,
    pub(crate) weight: u32,
    /// When it wants to give it back.
    pub(crate) until: Ms,
    /// When to show a sign of life; a careless process has no such plan.
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

    /// Starts a new process in this slot, with a command that it runs. One that takes over where its predecessor was cut off also takes
    /// its name and its way of naming.
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

    /// The name that its first grant is held under, unique for this life.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn address(&self) -> Address {
        Address(self.name.as_str().into())
    }

    pub(crate) fn hold(&mut self, resource: &Resource, epoch: Epoch) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.resource == *resource && hold.epoch == epoch)
    }

    /// It has learnt that it does not hold this any more.
    pub(crate) fn forget(&mut self, resource: &Resource, epoch: Epoch) {
        self.holds.retain(|hold| !(hold.resource == *resource && hold.epoch == epoch));
    }
}
