//! Connects the machines with the store: which rows a request needs, which machine decides, and how to wait.
//!
//! The engine starts no thread and never blocks. A driver, real or simulated, passes [`Request`]s to the store,
//! and sleeps as long as a [`Wait`] tells it to.

mod request;
mod wait;

pub use request::{Reply, Request, Seen};
pub use wait::{Advice, Wait};
