//! Tests with the real agent programs: a scripted model on loopback, and a project for the agents to work in.

#![expect(clippy::panic, reason = "test code panics with what is missing")]

pub mod model;
pub mod world;
