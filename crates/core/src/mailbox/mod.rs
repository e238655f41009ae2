//! A delivery: a message on its way to the task that it is for.
//!
//! ```text
//!      +---- not sent ---- Dispatched ---- the dispatcher died ----> Unknown
//!      |                   ^        |
//!      v      a dispatcher |        | sent, or its keeper reports that it has written it
//!   Unread ----------------+        v
//!      +------------ fetch ------> Fetched (run, epoch) -- the next read of that run, or its verdict --> Acknowledged
//!      |                           ^      |        |
//!      |                           +------+ a later run fetches it again, marked as redelivered
//!      +---- the target is over ---> Undelivered <-+ the target is over, and its run has not acknowledged it
//! ```
//!
//! A message that a run has fetched and not acknowledged stays with that run as long as it lives. Epochs rise from run
//! to run and a task has one live run, so a fetch under a higher epoch proves that the earlier run is over: no
//! transaction that ends a run has to read the mailbox.
//!
//! Invariants: a run gets a message at most once; Acknowledged, Undelivered and Unknown are final; a dispatch lock is held by at most one
//! delivery of a target, and its claim is handed out once.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::dispatch::release::{self, Release, ReleaseEvent, SendOutcome};
use crate::dispatch::{LockClaim, Mode, Plan};
use crate::ids::{Epoch, MessageId, RunId, Seq, TaskId};
use crate::process::ProcessId;
use crate::step::Step;
use crate::task::Status;
use crate::time::Stamp;

/// How many deliveries to one task may be open.
pub const MAILBOX_LIMIT: usize = 1_000;

/// How many messages one fetch returns at most.
pub const FETCH_LIMIT: usize = 100;

/// A message on its way to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub id: MessageId,
    /// Its number on the bus. Messages are fetched in this order.
    pub seq: Seq,
    /// The task that it is for.
    pub target: TaskId,
    /// When the target is to see it.
    pub mode: Mode,
    pub state: State,
    /// The last dispatch over a control socket or by a start.
    pub dispatch: Option<Dispatch>,
}

/// The state of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits in the mailbox.
    Unread {
        /// Whether an earlier run had it.
        redelivered: bool,
    },
    /// A dispatcher sends it. No run may fetch it.
    Dispatched {
        /// Whether an earlier run had it.
        redelivered: bool,
    },
    /// A run has it.
    Fetched {
        run: RunId,
        epoch: Epoch,
        way: DeliveryPath,
        /// Whether an earlier run had it.
        redelivered: bool,
    },
    /// The run has acknowledged it.
    Acknowledged { run: RunId },
    /// The target is over, and no run has acknowledged it.
    Undelivered {
        /// The run that had it last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
    },
    /// The dispatcher died before it knew. It is never sent again.
    Unknown {
        /// The run that may have it.
        run: RunId,
    },
}

/// How a message has reached a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryPath {
    /// In the prompt that its agent was started with.
    Prompt,
    /// By `mailbox read`.
    Read,
    /// Its keeper has taken it and has not yet written all of it into the session.
    Taken,
    /// Its keeper has written it into the session.
    Written,
}

/// How a message is sent to its target otherwise than by the mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispatch {
    pub plan: Plan,
    pub run: RunId,
    pub epoch: Epoch,
    /// The process that sends it; none for a start, which the runner of the run carries out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatcher: Option<ProcessId>,
    /// The lock of the target.
    pub release: Release,
    pub began: Stamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A live run takes it.
    Fetch { run: RunId, epoch: Epoch, way: DeliveryPath },
    /// A run has acknowledged what it has.
    Acknowledge { run: RunId, epoch: Epoch },
    /// A dispatcher begins to send it.
    Dispatch(Box<Dispatch>),
    /// The dispatcher of this grant has ended, with this outcome.
    Settle {
        /// The grant of the lock.
        epoch: Epoch,
        outcome: SendOutcome,
        /// Whether the session has all of it.
        is_written: bool,
    },
    /// The keeper of this run had written it into the session before the run ended.
    Written {
        /// The number of the run.
        epoch: Epoch,
    },
    /// A session that was started with it has shown a sign.
    Observe(ReleaseEvent),
    /// The target is over.
    Return {
        /// Whether the run that has it ended well: such an end acknowledges what the run has fetched.
        has_ended_well: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// As above, and the lock is to be released with this claim.
    Release(LockClaim),
    /// The run has it already.
    Yours,
    InDispatch,
    /// Another run, or another dispatcher, has it, or had it later.
    NotYours,
    /// The keeper of the run has taken it, and it is not known whether it was written into the session.
    NotWritten,
    /// It is in a final state.
    Final,
}

/// The receipt of a sender. It states no more than is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Receipt {
    /// It waits in the mailbox.
    Queued,
    /// A run has it, and has not acknowledged it.
    Sent,
    /// It was written into the session.
    Delivered,
    /// The run has acknowledged it.
    Read,
    /// The target is over, and no run has acknowledged it.
    Undelivered,
    /// It is not known whether it was sent.
    Unknown,
}

impl Receipt {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Delivery {
    /// A message that was just put into the mailbox of a task.
    pub fn new(id: MessageId, seq: Seq, target: TaskId, mode: Mode) -> Delivery {
        Delivery { id, seq, target, mode, state: State::Unread { redelivered: false }, dispatch: None }
    }

    /// Decides one input. It does not depend on the time.
    pub fn step(mut self, input: Input) -> Step<Delivery, Outcome> {
        let outcome = match input {
            Input::Fetch { run, epoch, way } => self.fetch(run, epoch, way),
            Input::Acknowledge { run, epoch } => self.acknowledge(run, epoch),
            Input::Dispatch(dispatch) => self.begin(*dispatch),
            Input::Settle { epoch, outcome, is_written } => self.settle(epoch, outcome, is_written),
            Input::Written { epoch } => self.written(epoch),
            Input::Observe(event) => self.observe(&event),
            Input::Return { has_ended_well } => self.give_back(has_ended_well),
        };
        Step { state: self, outcome, effects: Vec::new() }
    }

    fn fetch(&mut self, run: RunId, epoch: Epoch, way: DeliveryPath) -> Outcome {
        let redelivered = match &self.state {
            State::Unread { redelivered } => *redelivered,
            State::Fetched { epoch: had, .. } if *had == epoch => return Outcome::Yours,
            State::Fetched { epoch: had, .. } if *had > epoch => return Outcome::NotYours,
            State::Fetched { .. } => true,
            State::Dispatched { .. } => return Outcome::InDispatch,
            State::Acknowledged { .. } | State::Undelivered { .. } | State::Unknown { .. } => return Outcome::Final,
        };
        self.state = State::Fetched { run, epoch, way, redelivered };
        Outcome::Done
    }

    fn acknowledge(&mut self, run: RunId, by: Epoch) -> Outcome {
        match &self.state {
            // The run cannot have read what was not written into its session.
            State::Fetched { epoch, way: DeliveryPath::Taken, .. } if *epoch == by => return Outcome::NotWritten,
            State::Fetched { epoch, .. } if *epoch == by => self.state = State::Acknowledged { run },
            State::Unread { .. } | State::Fetched { .. } => return Outcome::NotYours,
            State::Dispatched { .. } => return Outcome::InDispatch,
            State::Acknowledged { .. } | State::Undelivered { .. } | State::Unknown { .. } => return Outcome::Final,
        }
        Outcome::Done
    }

    fn begin(&mut self, dispatch: Dispatch) -> Outcome {
        // A start that was not observed yet still has the lock.
        if self.claim().is_some() {
            return Outcome::InDispatch;
        }
        let redelivered = match &self.state {
            State::Unread { redelivered } => *redelivered,
            State::Fetched { epoch, .. } if *epoch < dispatch.epoch => true,
            State::Fetched { epoch, .. } if *epoch == dispatch.epoch => return Outcome::Yours,
            State::Fetched { .. } => return Outcome::NotYours,
            State::Dispatched { .. } => return Outcome::InDispatch,
            State::Acknowledged { .. } | State::Undelivered { .. } | State::Unknown { .. } => return Outcome::Final,
        };
        self.state = match dispatch.plan {
            Plan::ControlSocket { .. } | Plan::Mailbox => State::Dispatched { redelivered },
            // The claim that starts the run has put it into the prompt.
            Plan::Spawn => {
                let (run, epoch) = (dispatch.run.clone(), dispatch.epoch);
                State::Fetched { run, epoch, way: DeliveryPath::Prompt, redelivered }
            }
        };
        self.dispatch = Some(dispatch);
        Outcome::Done
    }

    fn settle(&mut self, epoch: Epoch, outcome: SendOutcome, is_written: bool) -> Outcome {
        let is_of_grant = |dispatch: &&Dispatch| {
            matches!(dispatch.plan, Plan::ControlSocket { .. })
                && dispatch.release.claim().is_some_and(|claim| claim.epoch == epoch)
        };
        let Some(dispatch) = self.dispatch.as_ref().filter(is_of_grant) else { return Outcome::NotYours };
        // If the keeper has reported it before, its report stands, and only the lock is left to release.
        if let State::Dispatched { redelivered } = self.state {
            let (run, number) = (dispatch.run.clone(), dispatch.epoch);
            self.state = match outcome {
                SendOutcome::Sent => {
                    let way = if is_written { DeliveryPath::Written } else { DeliveryPath::Taken };
                    State::Fetched { run, epoch: number, way, redelivered }
                }
                SendOutcome::FallbackSent | SendOutcome::Rejected | SendOutcome::Failed => State::Unread { redelivered },
                SendOutcome::Unknown => State::Unknown { run },
            };
        }
        self.observe(&ReleaseEvent::SendFinal(outcome))
    }

    fn written(&mut self, by: Epoch) -> Outcome {
        match &mut self.state {
            State::Fetched { epoch, way, .. } if *epoch == by => {
                if *way == DeliveryPath::Taken {
                    *way = DeliveryPath::Written;
                }
                Outcome::Done
            }
            // The session has ended before its dispatcher has reported the outcome of the send.
            State::Dispatched { redelivered } => {
                let redelivered = *redelivered;
                let Some(dispatch) = self.dispatch.as_ref().filter(|dispatch| dispatch.epoch == by) else {
                    return Outcome::InDispatch;
                };
                self.state = State::Fetched { run: dispatch.run.clone(), epoch: by, way: DeliveryPath::Written, redelivered };
                Outcome::Done
            }
            State::Unread { .. } | State::Fetched { .. } => Outcome::NotYours,
            State::Acknowledged { .. } | State::Undelivered { .. } | State::Unknown { .. } => Outcome::Final,
        }
    }

    fn observe(&mut self, event: &ReleaseEvent) -> Outcome {
        let Some(dispatch) = &mut self.dispatch else { return Outcome::Done };
        let step = dispatch.release.clone().step(event);
        dispatch.release = step.state;
        match step.outcome {
            release::Outcome::Release(claim) => Outcome::Release(claim),
            release::Outcome::Nothing => Outcome::Done,
        }
    }

    fn give_back(&mut self, has_ended_well: bool) -> Outcome {
        self.state = match &self.state {
            State::Unread { .. } => State::Undelivered { run: None },
            // A message that the keeper has not written has not reached the run.
            State::Fetched { run, way: DeliveryPath::Prompt | DeliveryPath::Read | DeliveryPath::Written, .. }
                if has_ended_well =>
            {
                State::Acknowledged { run: run.clone() }
            }
            State::Fetched { run, .. } => State::Undelivered { run: Some(run.clone()) },
            State::Dispatched { .. } => return Outcome::InDispatch,
            State::Acknowledged { .. } | State::Undelivered { .. } | State::Unknown { .. } => return Outcome::Final,
        };
        Outcome::Done
    }

    /// Whether it can still change.
    pub fn is_open(&self) -> bool {
        let is_final = matches!(self.state, State::Acknowledged { .. } | State::Undelivered { .. } | State::Unknown { .. });
        !is_final || self.claim().is_some()
    }

    /// The lock that its dispatch holds.
    pub fn claim(&self) -> Option<&LockClaim> {
        self.dispatch.as_ref().and_then(|dispatch| dispatch.release.claim())
    }

    /// Whether it holds the lock of its target until the session of this run is seen, which has the message in its
    /// prompt.
    pub fn is_in_prompt_of(&self, run: &RunId) -> bool {
        let dispatch = self.dispatch.as_ref().filter(|_| self.claim().is_some());
        dispatch.is_some_and(|dispatch| dispatch.plan == Plan::Spawn && dispatch.run == *run)
    }

    /// Whether a run with this number may fetch it.
    pub fn is_for(&self, by: Epoch) -> bool {
        match &self.state {
            State::Unread { .. } => true,
            State::Fetched { epoch, .. } => *epoch < by,
            State::Dispatched { .. } | State::Acknowledged { .. } | State::Undelivered { .. } | State::Unknown { .. } => false,
        }
    }

    /// Whether an earlier run had it.
    pub fn is_redelivered(&self) -> bool {
        match &self.state {
            State::Unread { redelivered } | State::Dispatched { redelivered } | State::Fetched { redelivered, .. } => {
                *redelivered
            }
            State::Acknowledged { .. } | State::Undelivered { .. } | State::Unknown { .. } => false,
        }
    }

    /// The run that has it, or had it last.
    pub fn run(&self) -> Option<&RunId> {
        match &self.state {
            State::Fetched { run, .. } | State::Acknowledged { run } | State::Unknown { run } => Some(run),
            State::Undelivered { run } => run.as_ref(),
            State::Dispatched { .. } => self.dispatch.as_ref().map(|dispatch| &dispatch.run),
            State::Unread { .. } => None,
        }
    }

    /// The receipt for its sender. `target` is the status of the target, if that still exists; `has_ended_well` is
    /// about the run that has it.
    pub fn receipt(&self, target: Option<Status>, has_ended_well: bool) -> Receipt {
        let is_over = target.is_none_or(Status::is_over);
        match &self.state {
            State::Unread { .. } if is_over => Receipt::Undelivered,
            State::Unread { .. } | State::Dispatched { .. } => Receipt::Queued,
            State::Fetched { way: DeliveryPath::Prompt | DeliveryPath::Read | DeliveryPath::Written, .. }
                if is_over && has_ended_well =>
            {
                Receipt::Read
            }
            State::Fetched { .. } if is_over => Receipt::Undelivered,
            State::Fetched { way: DeliveryPath::Written, .. } => Receipt::Delivered,
            State::Fetched { .. } => Receipt::Sent,
            State::Acknowledged { .. } => Receipt::Read,
            State::Undelivered { .. } => Receipt::Undelivered,
            State::Unknown { .. } => Receipt::Unknown,
        }
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        if let Some(dispatch) = &self.dispatch {
            dispatch.release.check();
        }
        let is_sending = matches!(self.state, State::Dispatched { .. });
        assert!(!is_sending || self.claim().is_some(), "{} is being sent without a lock", self.id);
        // A start holds the lock until its session was observed, and a dispatcher until it has settled what the keeper
        // reported before.
        let is_waiting = matches!(self.state, State::Unread { .. } | State::Unknown { .. });
        assert!(!is_waiting || self.claim().is_none(), "{} is not being sent and holds a lock", self.id);
    }
}

#[cfg(test)]
mod tests;
