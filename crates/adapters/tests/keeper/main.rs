//! Keepers with real processes. One test binary, because linking dominates.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails shall say so at once")]

mod activity;
mod agents;
mod command_supervisor;
mod ends;
mod limits;
mod nudges;
mod owners;
mod pool;
mod records;
mod runs;
mod silent;
mod talking;
mod world;
