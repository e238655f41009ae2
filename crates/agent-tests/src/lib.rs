//! The real agent programs, a model on loopback that does what a prompt says, and a project for them to work in.

#![expect(clippy::panic, reason = "it is for tests, and says what is missing")]

pub mod model;
pub mod world;
