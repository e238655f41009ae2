//! Where Banksman keeps its rows.
//!
//! A [`Call`] says which rows it needs and decides over them; a batch of calls is one transaction: one load, the
//! decisions in order, one write. Nothing else writes. SQL is written once, with `$n`, for every database.
//!
//! * [`Call`], [`Tx`]: what a caller implements, and what its decision may do.
//! * [`Tables`], [`Key`]: the rows that a decision sees, and how it names them.
//! * [`Store`]: a connection that writes; [`Reader`]: one that only reads.
//! * [`sqlite`], [`postgres`]: the databases.

mod backend;
mod backlog;
mod board;
mod call;
mod changes;
mod compact;
mod copy;
mod counts;
mod crew;
mod dialect;
mod error;
#[macro_use]
mod fragments;
mod identity;
mod import;
mod key;
mod machine;
mod pipelines;
pub mod postgres;
mod queues;
mod reader;
mod relocate;
mod rows;
mod schema;
mod sql;
pub mod sqlite;
mod store;
mod tables;
mod value;

pub use board::{Counts, Listed, TaskFilter};
pub use call::{Call, Tx};
pub use compact::{Compacted, Keep, Mark, Size};
pub use copy::Copied;
pub use crew::Crew;
pub use error::StoreError;
pub use identity::{Identity, StoreId};
pub use key::Key;
pub use machine::{Machine, Reading};
pub use pipelines::{Hosted, Listening};
pub use queues::{DeadItems, QueueCounts, WorkItems};
pub use reader::{EventFilter, EventRow, Page, Reader, Snapshot, View};
pub use relocate::{RelocateError, Route, relocate};
pub use schema::VERSION;
pub use store::{Committed, Open, Store};
pub use tables::{CHAIN_LIMIT, Granted, IMPORTED, Tables, Watcher};
