//! Resources: locks, semaphores, and claims of several of them.
//!
//! * [`lock`] and [`semaphore`]: one holder, and N weighted slots; both with waiters.
//! * [`grant`]: requests, grants and waiters, shared by the two.
//! * [`coordination`]: all resources of a project together, and the refusal of deadlocks ([`deadlock`]).
//! * [`work_claim`]: everything that a person or a runner takes to work on a task, all of it or nothing.

pub mod coordination;
pub mod deadlock;
pub mod grant;
pub mod lock;
pub mod semaphore;
pub mod work_claim;
