//! Tests of the whole crate. One test binary, because linking dominates.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test should report the error at once")]

mod chaos;
mod fixtures;
mod format;
mod meaning;
mod schema;
mod size;
