//! The keeper: the supervisor process of a session, the process tree of one run. It outlives the runner.
//!
//! ```text
//!  runner --start--> keeper --spawn--> program --> ...      the keeper is a subreaper: whatever a descendant does,
//!    ^  \--requests--^  |  \--reads--- output               it stays below the keeper and can be found and reaped
//!    +----notices-------+
//! ```
//!
//! * **A run starts at most once.** The keeper makes the run's [`record`](read_record) exclusively and starts nothing if there
//!   is one. [`write_tombstone`] puts a tombstone there, so that a run that has not started never will.
//! * **An end is proven.** When the program has exited, the rest of its output is read for at most a second. Then its stragglers are
//!   ended, and the session has [ended](Notice::Ended) only when there is no child left to reap. A [kill](Session::kill) does the same
//!   to the entire tree.
//! * **An ending is not lost.** It is written into the record. If the owner [acknowledges](Session::acknowledge) it, the
//!   keeper removes its files; if not within 100 ms, the record is flushed, and if not within 2 s more, it stays. If the owner is gone,
//!   the keeper exits at once.
//! * **One owner.** Requests carry an owner epoch. A process that [adopts](adopt) the session with a higher epoch becomes the owner, and
//!   the former owner is notified and disconnected.
//! * **A session may have a [limit](Limit)**, if other machines rely on its end. Its owner renews the limit; otherwise the keeper ends
//!   the session, and its end is marked as [lapsed](SessionEnd::lapsed).
//! * **The output is always read**, even if the log cannot be written. See [`LogReport`].
//!
//! When the keeper itself is killed, the program dies with it, and [`read_record`] returns [`Found::Dead`]. [`sweep`]
//! finds the rest of the tree by its cgroup, if it has one, by its marker in the environment and by its session id.
//! Without a cgroup, a process that has dropped both is not found.
//!
//! A keeper whose session was acknowledged is [ready](Notice::Ready), and waits for another session or for the end of its stream.
//! [`Keepers`] is a pool of such keepers.
//!
//! A keeper that is stopped, or does not answer for another reason, blocks no caller: [`silence`] finds it,
//! [`await_end`] finds that it does not end its session, and [`kill`] ends it with its program.
//!
//! A session that was started with an [input](InputKind) can be talked to: [`send_message`] writes into it, and an
//! [attached](Talker::attach) client gets its output and may type. Every process that may connect may do so; the right
//! to type belongs to one connection.
//!
//! Files: the protocol: `protocol`, and `talk` for requests to a live session. The runner's side: `client`, `connect`,
//! `silent` (keepers that do not answer), `pool` (idle keepers), `talker` (talking to a session), `sweep`. The keeper's
//! side: `server` (its start), `keep` (its life), `control` (its clients), `child` (starting the program), `cgroup`,
//! `timer` (its limit), `input`, `log`, `activity` (whether a silent session works), `agent` (the output of an agent
//! program). Both: `record`.

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

/// The variable that marks the processes of a run.
const MARKER: &str = "BANKSMAN_RUN";
