//! The pure state machines of Banksman: what may happen next, decided without a clock, a file or a thread.
//!
//! Every machine has the signature `step(self, input, now) -> Step { state, outcome, effects }`. Time, sequence
//! numbers and proofs of death come in with [`Now`]; what must be done comes out as [`Effect`]s. A refusal is an
//! outcome, never an error.
//!
//! * [`lock`] and [`semaphore`]: one holder, and N weighted slots; both with a line of waiters.
//! * [`claim`]: what is asked for, granted and waited for, shared by the two.
//! * [`coordination`]: all locks and semaphores together, and the refusal of deadlocks ([`deadlock`]).
//! * [`event`], [`fold`]: the facts, and the tables that follow from them.

pub mod claim;
pub mod coordination;
pub mod deadlock;
pub mod event;
pub mod fold;
pub mod ids;
pub mod lock;
pub mod process;
pub mod semaphore;
mod step;
#[cfg(test)]
mod test_world;
pub mod time;

pub use claim::Grant;
pub use event::Event;
pub use ids::{Epoch, HolderId, Name, RequestId, Seq, Ticket};
pub use process::{Liveness, ProcessId};
pub use step::{Effect, Now, Step};
pub use time::{Lease, Span, Stamp, Wall};
