//! The store: where Banksman keeps its rows.
//!
//! A [`Call`] names the rows that it needs and decides over them; a batch of calls is one transaction: one load, the
//! decisions in order, one write. Nothing else writes. SQL is written once, with `$n`, for every database.
//!
//! * [`Call`], [`Tx`]: the interface of a caller, and of its decision.
//! * [`Tables`], [`Key`]: the rows that a decision sees, and their names. `tables/` has a file for each table with its
//!   columns and statements; `load.rs` maps keys to statements, `changes.rs` writes the changes of a batch.
//! * [`Store`]: a connection that writes; [`Reader`]: a connection that only reads.
//! * [`sqlite`], [`postgres`]: the databases.

mod backend;
mod call;
mod changes;
mod columns;
mod compact;
mod copy;
mod dialect;
mod error;
mod identity;
mod key;
mod load;
mod loaded;
mod machine;
pub mod postgres;
mod reader;
mod relocate;
mod schema;
mod sql;
pub mod sqlite;
mod store;
mod table;
mod tables;
mod tally;
pub mod test_support;
mod value;

pub use call::{Call, Changed, Tx};
pub use compact::{Compacted, Keep, Mark, Size};
pub use copy::Copied;
pub use error::StoreError;
pub use identity::{Identity, StoreId};
pub use key::Key;
pub use load::{CHAIN_LIMIT, IMPORTED, PARKED_LIMIT, parked_page};
pub use machine::{Machine, Reading};
pub use reader::{EventFilter, EventRow, Page, Reader, ServerUsage, Snapshot, View};
pub use relocate::{RelocateError, Route, relocate};
pub use schema::VERSION;
pub use store::{Committed, Open, Store};
pub use tables::fan_outs::FAN_OUT;
pub use tables::items::{DeadItems, QueueCounts, WorkItems};
pub use tables::messages::{MESSAGES_PAGE, MessageFilter, MessagePage, TaskEvents, TypeCount};
pub use tables::pipelines::{Hosted, Listening};
pub use tables::task_lists::{Counts, Listed, TaskFilter};
pub use tables::workers::Automation;
pub use tables::{Granted, Tables};
pub use tally::{Tallied, Tally};
