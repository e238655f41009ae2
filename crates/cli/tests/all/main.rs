//! Tests of the binary, with real processes and real signals. One test binary, because linking dominates.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails shall say so at once")]

mod causes;
mod compact;
mod config;
mod conformance;
mod copy;
mod crashes;
mod decisions;
mod demo;
mod feed;
mod guards;
mod hands;
mod import;
mod input;
mod ladder;
mod listing;
mod locks;
mod loops;
mod machines;
mod merging;
mod night;
mod notices;
mod notify;
mod output;
mod postgres;
mod processes;
mod queues;
mod queues_model;
mod reference;
mod roots;
mod run;
mod runbooks;
mod sections;
mod semaphores;
mod sessions;
mod shapes;
mod shipped;
mod soak;
mod status;
mod store;
mod tasks;
mod trouble;
mod why;
mod workers;
mod world;
