//! The keeper: a small process beside the process tree of one run, its *session*. It outlives whoever started it.
//!
//! ```text
//!  runner --start--> keeper --spawn--> program --> ...      the keeper is a subreaper: whatever a descendant does,
//!    ^  \--requests--^  |  \--reads--- output               it stays below the keeper and can be found and reaped
//!    +----notices-------+
//! ```
//!
//! * **A run starts at most once.** The keeper makes the run's [`record`](read_record) exclusively and starts nothing if there
//!   is one. [`write_tombstone`] puts a tombstone there, so that a run that has not started never will.
//! * **An end is proven.** When the program has exited, what is left of its output is read for at most a second; then
//!   its stragglers are ended, and only when there is no child left to reap the session has [ended](Notice::Ended).
//!   A [kill](Session::kill) does the same to the whole tree.
//! * **An ending is not lost.** It is written into the record. If the owner [acknowledges](Session::acknowledge) it, the
//!   keeper removes its files; if not within 100 ms, the record is flushed, and if not within 2 s more, it stays. The keeper of an owner
//!   that is gone exits at once.
//! * **One owner.** Requests carry an owner epoch. Who [adopts](adopt) with a higher one becomes the owner, and
//!   whoever was it before is told so and cut off.
//! * **A session may have a [limit](Limit)**, where other machines count on its end. Its owner renews it; if not, the
//!   keeper ends the session by itself and [says so](SessionEnd::lapsed).
//! * **The output is always read**, also if the log cannot be written. See [`LogReport`].
//!
//! When the keeper itself is killed, the program dies with it and [`read_record`] says [`Found::Dead`]; the rest of the tree is
//! found by [`sweep`], by its cgroup where it has one, by its marker in the environment and by its session id. Without a cgroup, what has
//! got rid of both is not found.
//!
//! A keeper whose session was acknowledged says that it is [ready](Notice::Ready) and waits for another one, or for the end of its stream:
//! [`Keepers`] are such a supply.
//!
//! A keeper that is stopped, or does not answer for another reason, holds nobody up: [`silence`] finds it, and [`kill`] ends it
//! with its program where [`await_end`] finds that it does not end its session.
//!
//! A session that was started with an [input](InputKind) can be talked to: [`send_message`] writes into it, and who is [attached](Talker::attach)
//! sees its output and may type. Whoever may connect may do so; the right to type is bound to one connection.
//!
//! Files: `protocol` what is said, `talk` what is said to a live session; `talker` who talks to one, `input` the way into it; `client` the side of the runner, `connect` how it gets through, `silent` keepers that do not
//! answer, `pool` its supply of keepers; `server` a keeper's beginning, `keep` its life, `control`
//! those who talk to it, `child` the start of the program, `cgroup` its group, `timer` its limit, `log` its output, `activity` whether it works while there is none, `agent` what its agent program tells; `record`; `sweep`.

mod activity;
mod agent;
mod cgroup;
mod child;
mod client;
mod connect;
mod control;
mod input;
mod keep;
mod log;
mod pool;
mod protocol;
mod record;
mod server;
mod silent;
mod sweep;
mod talk;
mod talker;
mod timer;

pub use agent::{AgentReport, AgentSpec};
pub use cgroup::{CgroupId, has_cgroups};
pub use client::{Session, adopt, sample, start, start_from, status, status_within};
pub use pool::Keepers;
pub use protocol::{Activity, InputKind, InputRefusal, Limit, LogReport, Notice, Refusal, SessionEnd, Spec, Status};
pub use record::{Found, Record, forget, read_record, write_tombstone};
pub(crate) use server::enter;
pub(crate) use silent::is_process_stopped;
pub use silent::{Silence, await_end, is_stopped, kill, silence};
pub use sweep::{Swept, sweep};
pub use talk::{TalkReply, Typist};
pub use talker::{Delivery, Presence, TalkError, Talker, When, close_input, expect_answer, nudge, ping, send as send_message};

/// The hidden first argument of a keeper.
const MARK: &str = "__keeper";

/// The variable by which the processes of a run are found.
const MARKER: &str = "BANKSMAN_RUN";
