//! A lock of the engine, without the guard of the library, for figures of the engine.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::grant::{Ask, Grant, GrantRequest};
use banksman_core::resource::lock;
use banksman_core::{HolderId, Name};
use banksman_runtime::{Acquisition, Client, WaitOptions};

use crate::bench::Result;

pub(crate) struct Held {
    name: Name,
    grant: Grant,
}

impl Held {
    /// Acquires a lock that is free.
    pub(crate) fn acquire(client: &Client, name: &str) -> Result<Held> {
        let name = Name::new(name)?;
        let processes = vec![client.this_process().clone()];
        let request = GrantRequest { processes, ..GrantRequest::new(HolderId::new("bench")?) };
        let resource = Resource { kind: Kind::Lock, name: name.clone() };
        match client.acquire(resource, Ask::new(request), WaitOptions::default())? {
            Acquisition::Answered { outcome: Outcome::Lock(lock::Outcome::Acquired(grant)), .. } => Ok(Held { name, grant }),
            other => Err(format!("the lock was not granted: {other:?}").into()),
        }
    }

    pub(crate) fn release(self, client: &Client) -> Result<()> {
        let release = lock::Input::Release { holder: self.grant.claim.holder, epoch: self.grant.epoch };
        match client.ask(Command::Lock(self.name, release), Vec::new())?.0 {
            Outcome::Lock(lock::Outcome::Released) => Ok(()),
            other => Err(format!("the lock was not released: {other:?}").into()),
        }
    }
}
