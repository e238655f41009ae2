//! Facts that happened, as the event log keeps them.

mod actor;
mod custom;
mod facts;
mod kinds;
mod resource;

use std::error::Error;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::limit::LimitFact;
use crate::ids::{DecisionId, ImportId, LandingId, Name, SectionId, TaskId};
use crate::landing::{EntryFact, TargetFact};
use crate::pause::Pause;
use crate::pipeline;
use crate::queue;
use crate::route::RouteFact;
use crate::task::limits::Limits;
use crate::worker;
use crate::workspace;

pub use self::actor::{Actor, ActorKind};
pub use self::custom::{CustomKind, KindError};
pub use self::kinds::{UnknownKind, check_kind, kinds};
pub use self::resource::{Defined, Fact, Forced, GrantEnd, Increased, Kind, Resource};
pub use facts::{DecisionFact, Finished, ImportFact, Resumed, SectionFact, TaskFact};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A lock or a semaphore has changed.
    Resource { resource: Resource, fact: Fact },
    /// A task has changed.
    Task { id: TaskId, fact: TaskFact },
    /// A section has changed.
    Section { id: SectionId, fact: SectionFact },
    /// A decision has changed.
    Decision { id: DecisionId, fact: DecisionFact },
    /// Nothing is left that a runner could do.
    Finished(Finished),
    /// An import has changed.
    Import { id: ImportId, fact: ImportFact },
    /// A queue or one of its items has changed.
    Queue { name: Name, fact: queue::Fact },
    /// A worker has changed.
    Worker { name: Name, fact: worker::Fact },
    /// A route has changed.
    Route { id: Box<str>, fact: RouteFact },
    /// A pipeline has changed.
    Pipeline { id: TaskId, fact: pipeline::Fact },
    /// The workspace of a task or a pipeline has changed.
    Workspace { id: TaskId, fact: workspace::Fact },
    /// An entry of a merge queue has changed.
    Landing { id: LandingId, fact: EntryFact },
    /// The merge queue of a branch has changed.
    LandingTarget { name: Name, fact: TargetFact },
    /// A limit of an account has changed.
    AccountLimit { name: Name, fact: LimitFact },
    /// The limits of the project were set.
    Limits(Limits),
    /// Nothing is started from now on.
    Paused(Pause),
    /// Tasks are started again.
    Resumed(Resumed),
    /// A fact that a user recorded. It changes no state.
    Custom {
        /// `category:action`.
        kind: CustomKind,
        source: Source,
        data: Value,
    },
}

/// Where an event comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// The kind of the object, such as `lock`.
    pub component: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
}

/// The kind of the event for a task that cannot go on by itself.
pub(crate) const ESCALATE: &str = "escalate";

/// The kind of the event which reports that nothing is left to do.
const FINISHED: &str = "backlog:finished";

/// The kinds of the events that begin and end a pause, and the component of all three.
const PAUSED: &str = "backlog:paused";
const RESUMED: &str = "backlog:resumed";
const BACKLOG: &str = "backlog";

/// The category and the component of the events of queues.
const QUEUE: &str = "queue";

/// The category and the component of the events of workers.
const WORKER: &str = "worker";

/// The category and the component of the events of routes.
const ROUTE: &str = "route";

/// The kind of the event for new limits, and its component.
const LIMITS_SET: &str = "limits:set";
const LIMITS: &str = "limits";

/// The category and the component of the events of workspaces.
const WORKSPACE: &str = "workspace";
/// The category and the component of the events of merge queues and of their entries.
const LANDING: &str = "landing";
const LANDING_TARGET: &str = "landing_target";

/// The category and the component of the events of the limits of accounts.
const ACCOUNT_LIMIT: &str = "account_limit";

/// The component of the events of pipelines and their strategies.
const PIPELINE: &str = "pipeline";

/// Why a stored event cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("event of kind {kind:?} cannot be read")]
pub struct ParseError {
    kind: String,
    source: Box<dyn Error + Send + Sync>,
}

impl Event {
    /// The kind as the log has it, such as `lock:acquired`.
    pub fn kind(&self) -> &str {
        match self {
            Event::Resource { resource, fact } => match (resource.kind, fact) {
                (Kind::Lock, Fact::Defined(_)) => "lock:defined",
                (Kind::Lock, Fact::Acquired(_)) => "lock:acquired",
                (Kind::Lock, Fact::Increased(_)) => "lock:increased",
                (Kind::Lock, Fact::Reclaimed(_)) => "lock:reclaimed",
                (Kind::Lock, Fact::Released(_)) => "lock:released",
                (Kind::Lock, Fact::OfferLapsed(_)) => "lock:offer_lapsed",
                (Kind::Semaphore, Fact::Defined(_)) => "semaphore:defined",
                (Kind::Semaphore, Fact::Acquired(_)) => "semaphore:acquired",
                (Kind::Semaphore, Fact::Increased(_)) => "semaphore:increased",
                (Kind::Semaphore, Fact::Reclaimed(_)) => "semaphore:reclaimed",
                (Kind::Semaphore, Fact::Released(_)) => "semaphore:released",
                (Kind::Semaphore, Fact::OfferLapsed(_)) => "semaphore:offer_lapsed",
            },
            Event::Task { fact, .. } => fact.kind(),
            Event::Section { fact, .. } => fact.into(),
            Event::Decision { fact, .. } => fact.into(),
            Event::Finished(_) => FINISHED,
            Event::Import { fact, .. } => fact.into(),
            Event::Queue { fact, .. } => fact.kind(),
            Event::Worker { fact, .. } => fact.kind(),
            Event::Route { fact, .. } => fact.kind(),
            Event::Pipeline { fact, .. } => fact.kind(),
            Event::Workspace { fact, .. } => fact.kind(),
            Event::Landing { fact, .. } => fact.kind(),
            Event::LandingTarget { fact, .. } => fact.kind(),
            Event::AccountLimit { fact, .. } => fact.kind(),
            Event::Limits(_) => LIMITS_SET,
            Event::Paused(_) => PAUSED,
            Event::Resumed(_) => RESUMED,
            Event::Custom { kind, .. } => kind.as_str(),
        }
    }

    /// Where it comes from: the component and, if there is one, the id.
    pub fn source(&self) -> (&str, Option<&str>) {
        match self {
            Event::Resource { resource, .. } => (resource.kind.as_str(), Some(resource.name.as_str())),
            Event::Task { id, .. } => ("task", Some(id.as_str())),
            Event::Section { id, .. } => ("section", Some(id.as_str())),
            Event::Decision { id, .. } => ("decision", Some(id.as_str())),
            Event::Finished(_) | Event::Paused(_) | Event::Resumed(_) => (BACKLOG, None),
            Event::Import { id, .. } => ("import", Some(id.as_str())),
            Event::Queue { name, .. } => (QUEUE, Some(name.as_str())),
            Event::Worker { name, .. } => (WORKER, Some(name.as_str())),
            Event::Route { id, .. } => (ROUTE, Some(id)),
            Event::Pipeline { id, .. } => (PIPELINE, Some(id.as_str())),
            Event::Workspace { id, .. } => (WORKSPACE, Some(id.as_str())),
            Event::Landing { id, .. } => (LANDING, Some(id.as_str())),
            Event::LandingTarget { name, .. } => (LANDING_TARGET, Some(name.as_str())),
            Event::AccountLimit { name, .. } => (ACCOUNT_LIMIT, Some(name.as_str())),
            Event::Limits(_) => (LIMITS, None),
            Event::Custom { source, .. } => (&source.component, source.id.as_deref()),
        }
    }

    /// The values that the argument of a pattern is compared with: the name or id of the source, and the phase of a
    /// pipeline.
    pub fn arguments(&self) -> Vec<Box<str>> {
        let phase = match self {
            Event::Pipeline { fact, .. } => fact.phase().map(Name::as_str),
            _ => None,
        };
        self.source().1.into_iter().chain(phase).map(Into::into).collect()
    }

    /// The request that this event granted.
    pub fn request(&self) -> Option<&str> {
        match self {
            Event::Resource { fact: Fact::Acquired(claim), .. } => claim.request.as_ref().map(|r| r.as_str()),
            _ => None,
        }
    }

    /// The data as JSON text.
    pub fn data(&self) -> String {
        let text = match self {
            Event::Resource { fact, .. } => match fact {
                Fact::Defined(defined) => serde_json::to_string(defined),
                Fact::Acquired(claim) => serde_json::to_string(claim),
                Fact::Increased(increased) => serde_json::to_string(increased),
                Fact::Reclaimed(ended) | Fact::Released(ended) | Fact::OfferLapsed(ended) => serde_json::to_string(ended),
            },
            Event::Task { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::Section { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::Decision { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::Finished(finished) => serde_json::to_string(finished),
            Event::Import { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::Queue { fact, .. } => fact.data(),
            Event::Worker { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::Route { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::Pipeline { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::Workspace { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::Landing { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::LandingTarget { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::AccountLimit { fact, .. } => serde_json::to_string(&inner(fact)),
            Event::Limits(limits) => serde_json::to_string(limits),
            Event::Paused(pause) => serde_json::to_string(pause),
            Event::Resumed(resumed) => serde_json::to_string(resumed),
            Event::Custom { data, .. } => serde_json::to_string(data),
        };
        text.expect("plain data without maps of odd keys always becomes JSON")
    }

    /// Reads an event back from its stored parts.
    pub fn parse(kind: &str, component: &str, id: Option<&str>, data: &str) -> Result<Event, ParseError> {
        Event::read(kind, component, id, data).map_err(|source| ParseError { kind: kind.to_owned(), source })
    }

    fn read(kind: &str, component: &str, id: Option<&str>, data: &str) -> Result<Event, Box<dyn Error + Send + Sync>> {
        // The one kind of a single word.
        let parts = if kind == ESCALATE { Some(("task", "escalated")) } else { kind.split_once(':') };
        let (category, action) = parts.ok_or("it has no category")?;
        let custom = || {
            let source = Source { component: component.into(), id: id.map(Into::into) };
            serde_json::from_str(data).map(|data| Event::Custom { kind: CustomKind::stored(kind), source, data })
        };
        let text = id.unwrap_or_default();
        // A category may be younger than events that users wrote under its name: those have another component.
        Ok(match (category, component) {
            ("task", _) => Event::Task { id: TaskId::new(text)?, fact: outer(action, data)? },
            ("section", "section") => Event::Section { id: SectionId::new(text)?, fact: outer(action, data)? },
            ("decision", "decision") => Event::Decision { id: DecisionId::new(text)?, fact: outer(action, data)? },
            ("import", "import") => Event::Import { id: ImportId::new(text)?, fact: outer(action, data)? },
            (QUEUE, QUEUE) => Event::Queue { name: Name::new(text)?, fact: outer(action, data)? },
            (WORKER, WORKER) => Event::Worker { name: Name::new(text)?, fact: outer(action, data)? },
            (ROUTE, ROUTE) => Event::Route { id: text.into(), fact: outer(action, data)? },
            (PIPELINE | "strategy", PIPELINE) => Event::Pipeline { id: TaskId::new(text)?, fact: outer(action, data)? },
            (LANDING, LANDING) => Event::Landing { id: LandingId::new(text)?, fact: outer(action, data)? },
            (LANDING_TARGET, LANDING_TARGET) => Event::LandingTarget { name: Name::new(text)?, fact: outer(action, data)? },
            (ACCOUNT_LIMIT, ACCOUNT_LIMIT) => Event::AccountLimit { name: Name::new(text)?, fact: outer(action, data)? },
            (WORKSPACE, WORKSPACE) => match (TaskId::new(text), outer(action, data)) {
                (Ok(id), Ok(fact)) => Event::Workspace { id, fact },
                // A user could write it with this component, too.
                _ => custom()?,
            },
            (_, BACKLOG) if kind == FINISHED => Event::Finished(serde_json::from_str(data)?),
            (_, BACKLOG) if kind == PAUSED => Event::Paused(serde_json::from_str(data)?),
            (_, BACKLOG) if kind == RESUMED => Event::Resumed(serde_json::from_str(data)?),
            (_, LIMITS) if kind == LIMITS_SET => Event::Limits(serde_json::from_str(data)?),
            (category, _) => match Kind::parse(category) {
                Some(kind) => {
                    Event::Resource { resource: Resource { kind, name: Name::new(text)? }, fact: Fact::read(action, data)? }
                }
                None => custom()?,
            },
        })
    }
}

/// The fields of a fact without its word, which is part of the event's kind.
fn inner<F: Serialize>(fact: &F) -> Value {
    match serde_json::to_value(fact) {
        Ok(Value::Object(mut one)) => one.values_mut().next().map(Value::take).unwrap_or_default(),
        _ => unreachable!("a fact becomes an object with one key"),
    }
}

/// The fact that a word and fields stand for.
fn outer<F: serde::de::DeserializeOwned>(word: &str, data: &str) -> Result<F, serde_json::Error> {
    let fields: Value = serde_json::from_str(data)?;
    serde_json::from_value(serde_json::json!({ word: fields }))
}

#[cfg(test)]
mod tests;
