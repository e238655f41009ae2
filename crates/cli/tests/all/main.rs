//! Tests of the binary, with real processes and real signals. One test binary, because linking dominates.

mod feed;
mod input;
mod locks;
mod output;
mod processes;
mod run;
mod semaphores;
mod soak;
mod store;
mod world;
