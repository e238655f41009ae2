//! Tests of the whole crate. One test binary, because linking dominates.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails shall say so at once")]

mod chaos;
mod fixtures;
mod format;
mod meaning;
mod schema;
mod size;
