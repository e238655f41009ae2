//! Holds a lock while working, and stops when the lock is lost.
//!
//! ```text
//! cargo run -p banksman --example critical_section
//! banksman locks show nightly-report      # who holds it, meanwhile
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::time::Duration;

use banksman::{Error, Project};

fn main() -> banksman::Result<()> {
    let project = match Project::find(".") {
        Err(Error::NoProject { .. }) => Project::init(".")?,
        found => found?,
    };
    let client = project.open()?;
    // The guard renews the time to live: even if this machine is cut off, another one can continue.
    let request = client.lock("nightly-report").ttl(Duration::from_secs(30));
    let lock = match request.acquire_within(Duration::from_secs(10)) {
        Err(Error::Busy { holders, position, .. }) => {
            println!("{} holds it; this process was number {} of the waiters", holders.join(", "), position.unwrap_or(1));
            return Ok(());
        }
        lock => lock?,
    };
    for step in 1..=3 {
        if lock.is_lost() {
            println!("the lock is lost: stop, another process may have begun");
            return Ok(());
        }
        println!("step {step}, with the fencing number {}", lock.epoch());
    }
    lock.release()
}
