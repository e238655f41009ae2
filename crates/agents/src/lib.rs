//! Agent programs as data: how they are started, what their output means, and how a run has ended.
//!
//! ```text
//! Profile --command line--> program --lines--> family --Event--> Report --judge--> AgentVerdict
//! ```
//!
//! Nothing here starts a process or reads a file. The programs change with every release, so every parser is tolerant:
//! an unknown line is an opaque event, and never fails a run.

pub mod event;
mod family;
mod judge;
mod lines;
pub mod profile;
pub mod prompt;
pub mod render;
mod report;
pub mod resets;
pub mod steer;
pub mod trouble;

pub use event::Event;
pub use family::Family;
pub use judge::{Exit, StopReason, judge};
pub use lines::Lines;
pub use profile::{Level, Profile, ProfileError, Profiles};
pub use report::{Reader, Report, ReportedEnd, Retry};
pub use resets::Reset;
pub use trouble::Trouble;
