//! The pure state machines of Banksman: what may happen next, decided without a clock, a file or a thread.
//!
//! Every machine has the signature `step(self, input, now) -> Step { state, outcome, effects }`. Time, sequence
//! numbers and proofs of death come in with [`Now`]; what must be done comes out as [`Effect`]s. A refusal is an
//! outcome, never an error.
//!
//! * [`resource`]: locks, semaphores, grants, waiters, deadlocks, and claims of several resources.
//! * [`task`]: one unit of work and its runs, with its dependencies, admission, retries, limits and status.
//! * [`pipeline`]: one pass through the phases of a plan; [`guard`]: the conditions for it to continue.
//! * [`queue`]: items that wait to be worked on; [`worker`]: turns them into tasks or pipelines; [`route`]: what
//!   follows from events.
//! * [`workspace`]: the directory in which a task or a pipeline works.
//! * [`landing`]: the merge queue of a branch.
//! * [`bus`]: messages; [`mailbox`]: the delivery of a message to its task; [`dispatch`]: the way it takes.
//! * [`decision`]: a question for a person. [`import`]: many tasks that appear together. [`backlog`]: the rows around tasks.
//! * [`event`], [`replay`]: the facts, and the tables that follow from them.
//! * [`pause`]: nothing is started until a person resumes it.
//! * [`ids`], [`time`], [`process`], [`json`], [`pattern`], [`suggest`]: the values that all of them share.

pub mod agent;
pub mod backlog;
pub mod bus;
pub mod decision;
pub mod dispatch;
pub mod event;
pub mod guard;
pub mod ids;
pub mod import;
pub mod json;
pub mod landing;
pub mod mailbox;
pub mod output;
pub mod pattern;
pub mod pause;
pub mod pipeline;
pub mod process;
pub mod queue;
pub mod replay;
pub mod resource;
pub mod route;
mod step;
pub mod suggest;
pub mod task;
#[cfg(test)]
mod test_world;
pub mod time;
pub mod worker;
pub mod workspace;

pub use decision::Decision;
pub use event::Event;
pub use ids::{
    DecisionId, DedupeKey, Epoch, HolderId, ImportId, ItemId, Label, LandingId, MessageId, Name, RequestId, RunId, RunnerId,
    SectionId, Seq, TaskId, Ticket, Title,
};
pub use pause::{Pause, PauseVerb};
pub use pipeline::Pipeline;
pub use process::{Liveness, ProcessId};
pub use resource::grant::Grant;
pub use resource::work_claim::WorkClaim;
pub use step::{Effect, Notice, NoticeKind, Now, OutboxCommand, Step};
pub use task::limits::{Limits, LimitsChange};
pub use task::{Status, Task};
pub use time::{Lease, Span, Stamp, Wall};
pub use workspace::Workspace;
