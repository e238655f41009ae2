//! Keepers with real processes. One test binary, because linking dominates.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails shall say so at once")]

mod ends;
mod limits;
mod minder;
mod nudges;
mod owners;
mod pool;
mod records;
mod runs;
mod silent;
mod world;
