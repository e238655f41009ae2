//! The pure state machines of Banksman: what may happen next, decided without a clock, a file or a thread.
//!
//! Every machine has the signature `step(self, input, now) -> Step { state, outcome, effects }`. Time, sequence
//! numbers and proofs of death come in with [`Now`]; what must be done comes out as [`Effect`]s. A refusal is an
//! outcome, never an error.
//!
//! * [`lock`] and [`semaphore`]: one holder, and N weighted slots; both with a line of waiters.
//! * [`claim`]: what is asked for, granted and waited for, shared by the two.
//! * [`coordination`]: all locks and semaphores together, and the refusal of deadlocks ([`deadlock`]).
//! * [`work_claim`]: everything that somebody takes to work on a task, all of it or nothing.
//! * [`task`]: one unit of work and its runs; [`dag`]: what must come first; [`admission`]: may it run now?
//! * [`limits`]: how much may be under way at a time.
//! * [`planner`]: which roots may begin, where only so many may be under way.
//! * [`restart`]: the loop of a task that does not give up; [`decision`]: a question for a person.
//! * [`backlog`]: the rows around tasks; [`import`]: many tasks that appear together.
//! * [`queue`]: things that wait to be worked on, each by one at a time.
//! * [`pipeline`]: one go through the phases of a [`plan`]; [`guard`]: what must hold for it to go on; [`strategy`]: what is tried one after the other.
//! * [`router`]: what follows from events; [`worker`]: what becomes of the items of a queue.
//! * [`spelling`]: words that are almost right.
//! * [`event`], [`replay`]: the facts, and the tables that follow from them.

pub mod admission;
pub mod backlog;
pub mod claim;
pub mod coordination;
pub mod dag;
pub mod deadlock;
pub mod decision;
pub mod event;
mod facts;
pub mod guard;
pub mod ids;
pub mod import;
pub mod json;
pub mod limits;
mod live;
pub mod lock;
pub mod output;
pub mod pattern;
pub mod pipeline;
pub mod plan;
pub mod planner;
pub mod process;
pub mod queue;
pub mod replay;
pub mod restart;
pub mod router;
pub mod semaphore;
pub mod spelling;
mod status;
mod step;
pub mod strategy;
pub mod task;
#[cfg(test)]
mod test_world;
pub mod time;
mod work;
pub mod work_claim;
pub mod worker;

pub use claim::Grant;
pub use decision::Decision;
pub use event::Event;
pub use ids::{
    DecisionId, DedupeKey, Epoch, HolderId, ImportId, ItemId, Label, Name, RequestId, RunId, RunnerId, SectionId, Seq, TaskId,
    Ticket, Title,
};
pub use limits::{Limits, LimitsChange};
pub use pipeline::Pipeline;
pub use process::{Liveness, ProcessId};
pub use step::{Effect, Errand, Notice, NoticeKind, Now, Step};
pub use task::{Status, Task};
pub use time::{Lease, Span, Stamp, Wall};
pub use work_claim::WorkClaim;
