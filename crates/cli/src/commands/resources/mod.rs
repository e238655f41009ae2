//! The common part of `locks` and `semaphores`.

mod acquire;
mod cleanup;
mod run;
mod view;

pub(crate) use acquire::{AcquireFlags, acquire, circle, granted};
pub(crate) use cleanup::{Grants, claim_words, cleanup, drop_wait, reap, stale_grants};
pub(crate) use run::run;
pub(crate) use view::{holder_state, is_over, waiter_rows};

use std::time::Duration;

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{Name, Span};
use banksman_runtime::parse_duration;

use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;

/// A duration on the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dur(pub(crate) Duration);

impl std::str::FromStr for Dur {
    type Err = String;
    fn from_str(text: &str) -> Result<Dur, String> {
        parse_duration(text).map(Dur)
    }
}

impl Dur {
    pub(crate) fn span(self) -> Span {
        self.0.into()
    }

    /// A span greater than zero: an empty lease would be over before it begins.
    pub(crate) fn positive(self, flag: &str) -> Result<Span, Failure> {
        if self.0.is_zero() { Err(Failure::usage(format!("{flag} must be greater than zero"))) } else { Ok(self.span()) }
    }
}

/// Refuses names that are reserved for Banksman.
pub(crate) fn own_name(kind: Kind, name: &Name) -> Result<Resource, Failure> {
    if name.is_reserved() {
        let message = format!("{name} is reserved: banksman itself acquires it");
        return Err(Failure::new(exit::USAGE, "RESERVED_NAME", message).hint("it can be listed, shown and released by force"));
    }
    Ok(Resource { kind, name: name.clone() })
}

pub(crate) fn undefined(name: &Name) -> Failure {
    Failure::new(exit::NOT_FOUND, "SEMAPHORE_NOT_FOUND", format!("there is no semaphore {name}"))
        .detail("name", &name)
        .hint(format!("define it with: banksman semaphores define {} --capacity N", format::quoted(name)))
}

/// The refusal of a heartbeat or a release of a lock.
pub(crate) fn lock_refusal(name: &Name, outcome: &lock::Outcome) -> Failure {
    match outcome {
        lock::Outcome::Fenced { fence } => {
            let message = format!("fenced: {name} was granted to another holder or released by force (the fence is {fence})");
            Failure::new(exit::FENCED, "FENCED", message)
                .detail("name", name)
                .detail("fence", fence)
                .hint("stop the work that relied on the lock")
        }
        lock::Outcome::Lost => Failure::new(exit::FENCED, "LOST", format!("lost: the maximum hold time of {name} has passed"))
            .hint("stop the work that relied on the lock"),
        lock::Outcome::NotOwner { holder } => {
            let hint = format!("to release it by force: banksman locks release {} --force", format::quoted(name));
            let message = format!("{name} is held by {holder}, and only its holder can renew or release it");
            Failure::new(exit::NOT_PERMITTED, "NOT_OWNER", message).detail("name", name).detail("holder", holder).hint(hint)
        }
        lock::Outcome::AlreadyFree => {
            Failure::new(exit::NOT_PERMITTED, "NOT_HELD", format!("{name} is free: this epoch has released it before"))
        }
        other => Failure::unexpected(other),
    }
}

/// The refusal of a heartbeat or a release of slots.
pub(crate) fn semaphore_refusal(name: &Name, outcome: &semaphore::Outcome) -> Failure {
    match outcome {
        semaphore::Outcome::Fenced { current } => {
            let message = format!("fenced: this epoch no longer holds slots of {name}");
            Failure::new(exit::FENCED, "FENCED", message)
                .detail("name", name)
                .detail("currentEpoch", current)
                .hint("stop the work that relied on the slots")
        }
        semaphore::Outcome::NotHolder => {
            Failure::new(exit::NOT_PERMITTED, "NOT_HOLDER", format!("this holder has no slots of {name}"))
                .hint(format!("list the holders: banksman semaphores show {}", format::quoted(name)))
        }
        other => Failure::unexpected(other),
    }
}

/// The user who uses `--force`, for the event.
pub(crate) fn forced(client: &banksman_runtime::Client) -> banksman_core::event::Forced {
    let user = banksman_adapters::user::User::current().name;
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy().into_owned();
    banksman_core::event::Forced { user, host: host.into(), pid: client.this_process().pid }
}
