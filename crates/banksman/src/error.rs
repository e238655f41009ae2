//! Errors, with the facts that a program needs to react.

use std::fmt;
use std::path::PathBuf;

use banksman_core::event::{Kind, Resource as CoreResource};
use banksman_core::ids::NameError;
use banksman_core::resource::deadlock::Link;
use banksman_runtime::ProjectError;
use banksman_store::StoreError;
use thiserror::Error;

/// The result of a call to this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a call failed. Unless a variant says otherwise, nothing was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Other holders have the lock or the slots, and the timeout passed.
    #[error("{}", busy(.resource, .holders, *.position, *.waiters))]
    #[non_exhaustive]
    Busy {
        /// The requested resource.
        resource: Resource,
        /// The current holders. Empty if the resource is reserved for a waiter.
        holders: Vec<String>,
        /// The position among the waiters at the timeout, counted from 1. `None` if the call did not wait.
        position: Option<usize>,
        /// The number of waiters, including this one if it waited.
        waiters: usize,
    },
    /// Waiting would never end: the holders wait for each other.
    #[error("waiting for {resource} would be a deadlock: {}", circle(.cycle))]
    #[non_exhaustive]
    Deadlock {
        /// The requested resource.
        resource: Resource,
        /// The cycle. Each holder waits for a resource of the next one, and the last one for a resource of the first
        /// one.
        cycle: Vec<Wait>,
    },
    /// The named holder already has slots of the semaphore, or waits for some.
    #[error("{holder} has {resource} already, or waits for it")]
    #[non_exhaustive]
    AlreadyHeld {
        /// The requested resource.
        resource: Resource,
        /// The holder.
        holder: String,
    },
    /// The lock, the slots or the item is no longer held: it expired, or was taken away. Another holder may have it.
    #[error("{what} is not held any more")]
    #[non_exhaustive]
    Lost {
        /// The lost lock, slots or item.
        what: String,
    },
    /// The wait was ended by its [`CancelToken`](crate::CancelToken).
    #[error("the wait was cancelled")]
    Cancelled,
    /// The timeout of a wait passed.
    #[error("waited too long for {what}")]
    #[non_exhaustive]
    TimedOut {
        /// What the call waited for.
        what: String,
    },
    /// The project has no such object.
    #[error("there is no {kind} {name}")]
    #[non_exhaustive]
    NotFound {
        /// The kind of the object, such as `task` or `queue`.
        kind: &'static str,
        /// Its name or id.
        name: String,
    },
    /// An argument is not valid.
    #[error("{0}")]
    InvalidArgument(String),
    /// The state of the object does not allow the operation, whatever the arguments are.
    #[error("{0}")]
    Refused(String),
    /// A compaction has removed events from the log that were not read yet.
    #[error("the events up to {through} are not in the log any more")]
    #[non_exhaustive]
    Compacted {
        /// The last removed event.
        through: u64,
    },
    /// There is no project.
    #[error("there is no banksman project in {} or above it", from.display())]
    #[non_exhaustive]
    NoProject {
        /// Where the search began.
        from: PathBuf,
    },
    /// The directory is a project already.
    #[error("{} is a banksman project already", root.display())]
    #[non_exhaustive]
    ProjectExists {
        /// The directory of the project.
        root: PathBuf,
    },
    /// The user has neither made the store nor trusted it, so none of its tasks are started.
    #[error("the store {store} is not trusted, so nothing of it is started")]
    #[non_exhaustive]
    Untrusted {
        /// Where the store is.
        store: String,
    },
    /// `main` has not called [`enter`](crate::enter), which a runner requires.
    #[error("this program would start itself again: its main must call banksman::enter() before anything else")]
    NotEntered,
    /// The commit failed, and it is not known whether the change was saved. Check before repeating the call.
    #[error("it is not known whether the change was saved: {source}")]
    #[non_exhaustive]
    OutcomeUnknown {
        /// The error of the database.
        source: Source,
    },
    /// The store, the project or the operating system failed.
    #[error(transparent)]
    Failed(Source),
}

/// A lock or a semaphore.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Resource {
    /// Whether it is a lock or a semaphore.
    pub kind: ResourceKind,
    /// Its name.
    pub name: String,
}

/// The kind of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ResourceKind {
    /// A lock: one holder.
    Lock,
    /// A semaphore: several slots.
    Semaphore,
}

/// One waiting holder, as part of a deadlock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// The holder.
    pub holder: String,
    /// The resource that the holder waits for.
    pub waits_for: Resource,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ResourceKind::Lock => "lock",
            ResourceKind::Semaphore => "semaphore",
        })
    }
}

impl Resource {
    pub(crate) fn of(resource: &CoreResource) -> Resource {
        let kind = match resource.kind {
            Kind::Lock => ResourceKind::Lock,
            Kind::Semaphore => ResourceKind::Semaphore,
        };
        Resource { kind, name: resource.name.to_string() }
    }
}

impl Error {
    pub(crate) fn deadlock(resource: Resource, cycle: &[Link]) -> Error {
        let wait = |link: &Link| Wait { holder: link.party.to_string(), waits_for: Resource::of(&link.resource) };
        Error::Deadlock { resource, cycle: cycle.iter().map(wait).collect() }
    }

    pub(crate) fn invalid(what: impl fmt::Display) -> Error {
        Error::InvalidArgument(what.to_string())
    }

    pub(crate) fn refused(why: impl fmt::Display) -> Error {
        Error::Refused(why.to_string())
    }

    pub(crate) fn failed(source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Failed(Box::new(source))
    }
}

fn busy(resource: &Resource, holders: &[String], position: Option<usize>, waiters: usize) -> String {
    let held = match holders {
        [] => "reserved for another holder".to_owned(),
        holders => format!("held by {}", holders.join(", ")),
    };
    match position {
        Some(position) => format!("waited too long for {resource}, {held} (position {position} of {waiters})"),
        None => format!("{resource} is {held}"),
    }
}

fn circle(cycle: &[Wait]) -> String {
    let blockers = cycle.iter().cycle().skip(1);
    let link = |(wait, by): (&Wait, &Wait)| format!("{} waits for {}, blocked by {}", wait.holder, wait.waits_for, by.holder);
    cycle.iter().zip(blockers).map(link).collect::<Vec<_>>().join("; ")
}

/// An error of an internal crate. A private trait instead of `From`, which would make that crate part of the public
/// interface.
pub(crate) trait Internal {
    fn public(self) -> Error;
}

/// Converts the result of an internal crate to a result of this one.
pub(crate) trait OrPublic<T> {
    fn or_public(self) -> Result<T>;
}

impl<T, E: Internal> OrPublic<T> for std::result::Result<T, E> {
    fn or_public(self) -> Result<T> {
        self.map_err(Internal::public)
    }
}

/// The error for an invalid name.
pub(crate) fn bad_name(what: impl fmt::Display, error: NameError) -> Error {
    match error {
        NameError::Empty { .. } => Error::invalid(format!("the name of a {what} must not be empty")),
        error => error.public(),
    }
}

impl Internal for NameError {
    fn public(self) -> Error {
        Error::invalid(self)
    }
}

impl Internal for StoreError {
    fn public(self) -> Error {
        match self {
            StoreError::Unknown { source } => Error::OutcomeUnknown { source: Box::new(source) },
            other => Error::failed(other),
        }
    }
}

impl Internal for banksman_runtime::Error {
    fn public(self) -> Error {
        match self {
            banksman_runtime::Error::Store(error) => error.public(),
            banksman_runtime::Error::Name(error) => error.public(),
            banksman_runtime::Error::NotEntered(_) => Error::NotEntered,
            banksman_runtime::Error::Untrusted { store, .. } => Error::Untrusted { store },
            other => Error::failed(other),
        }
    }
}

impl Internal for ProjectError {
    fn public(self) -> Error {
        match self {
            ProjectError::NotFound { from } => Error::NoProject { from },
            ProjectError::Exists { root } => Error::ProjectExists { root },
            ProjectError::Store(error) => error.public(),
            error @ ProjectError::Url { .. } => Error::invalid(error),
            other => Error::failed(other),
        }
    }
}

impl Internal for std::io::Error {
    fn public(self) -> Error {
        Error::failed(self)
    }
}
