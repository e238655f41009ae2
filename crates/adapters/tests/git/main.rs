//! Git with real repositories. One test binary, because linking dominates.

#![expect(clippy::unwrap_used, reason = "a test that fails shall say so at once")]

mod facts;
mod meanwhile;
mod merges;
mod moving;
mod saving;
mod worktrees;
mod world;
