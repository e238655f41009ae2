//! The state after a part of the log, as rows that replace it: one for each lock, semaphore, section, task, decision,
//! import, queue, item, worker, route, pipeline, workspace, landing, landing target and account limit, and one each for the limits and
//! the pause.
//!
//! Every event changes at most one of them, so a part of the log can be replayed over the few rows that it is about. The
//! form of the rows is as frozen as that of the events: fields may be added with a default, nothing else.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use super::Replay;
use crate::event::{Event, Kind, Resource};
use crate::ids::{DecisionId, ImportId, ItemId, LandingId, Name, SectionId, TaskId};
use crate::pipeline::Pipeline;
use crate::pipeline::plan::Plan;

/// The component of an item, which no event has as its source.
const ITEM: &str = "item";

/// What a row is about, in the words of an event's source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entity {
    /// The kind of thing.
    pub component: Box<str>,
    pub id: Box<str>,
}

/// A row that this program does not understand.
#[derive(Debug, Error)]
#[error("what is kept of {component} {id} cannot be read: {what}")]
pub struct StoredError {
    component: Box<str>,
    id: Box<str>,
    what: String,
}

/// A place in the replay.
enum Slot {
    Resource(Resource),
    Section(SectionId),
    Task(TaskId),
    Decision(DecisionId),
    Import(ImportId),
    Queue(Name),
    Item(ItemId),
    Worker(Name),
    Route(Box<str>),
    Pipeline(TaskId),
    Workspace(TaskId),
    Landing(LandingId),
    LandingTarget(Name),
    AccountLimit(Name),
    Limits,
    Pause,
}

impl Entity {
    /// What an event changes; nothing if it is the event of a user.
    pub fn of(event: &Event) -> Option<Entity> {
        let (component, id) = event.source();
        match event {
            Event::Resource { .. }
            | Event::Section { .. }
            | Event::Task { .. }
            | Event::Decision { .. }
            | Event::Worker { .. }
            | Event::Route { .. }
            | Event::Pipeline { .. }
            | Event::Workspace { .. }
            | Event::Landing { .. }
            | Event::LandingTarget { .. }
            | Event::AccountLimit { .. }
            | Event::Import { .. } => Some(Entity { component: component.into(), id: id?.into() }),
            // A queue and each of its items are entities of their own, whatever the source says.
            Event::Queue { fact, .. } if fact.item().is_some() => {
                Some(Entity { component: ITEM.into(), id: fact.item()?.to_string().into() })
            }
            Event::Queue { .. } => Some(Entity { component: component.into(), id: id?.into() }),
            Event::Limits(_) | Event::Paused(_) | Event::Resumed(_) => {
                Some(Entity { component: component.into(), id: "".into() })
            }
            Event::Finished(_) | Event::Custom { .. } => None,
        }
    }

    fn slot(&self) -> Result<Slot, StoredError> {
        match (&*self.component, Kind::parse(&self.component)) {
            (_, Some(kind)) => self.parsed(Name::new(&self.id)).map(|name| Slot::Resource(Resource { kind, name })),
            ("section", None) => self.parsed(SectionId::new(&self.id)).map(Slot::Section),
            ("task", None) => self.parsed(TaskId::new(&self.id)).map(Slot::Task),
            ("decision", None) => self.parsed(DecisionId::new(&self.id)).map(Slot::Decision),
            ("import", None) => self.parsed(ImportId::new(&self.id)).map(Slot::Import),
            ("queue", None) => self.parsed(Name::new(&self.id)).map(Slot::Queue),
            ("pipeline", None) => self.parsed(TaskId::new(&self.id)).map(Slot::Pipeline),
            (ITEM, None) => self.parsed(self.id.parse()).map(Slot::Item),
            ("worker", None) => self.parsed(Name::new(&self.id)).map(Slot::Worker),
            ("workspace", None) => self.parsed(TaskId::new(&self.id)).map(Slot::Workspace),
            ("landing", None) => self.parsed(LandingId::new(&self.id)).map(Slot::Landing),
            ("landing_target", None) => self.parsed(Name::new(&self.id)).map(Slot::LandingTarget),
            ("account_limit", None) => self.parsed(Name::new(&self.id)).map(Slot::AccountLimit),
            ("limits", None) => Ok(Slot::Limits),
            ("backlog", None) => Ok(Slot::Pause),
            ("route", None) => Ok(Slot::Route(self.id.clone())),
            (_, None) => Err(self.unreadable("there is no such kind of thing")),
        }
    }

    fn read<T: DeserializeOwned>(&self, data: &str) -> Result<T, StoredError> {
        self.parsed(serde_json::from_str(data))
    }

    /// Reads a row of an entity that knows its own id, which the row does not repeat.
    fn read_with<T: DeserializeOwned>(&self, field: &str, data: &str) -> Result<T, StoredError> {
        let mut fields: Map<String, Value> = self.read(data)?;
        fields.insert(field.to_owned(), self.id.to_string().into());
        self.parsed(T::deserialize(Value::Object(fields)))
    }

    fn parsed<T>(&self, result: Result<T, impl ToString>) -> Result<T, StoredError> {
        result.map_err(|error| self.unreadable(error))
    }

    fn unreadable(&self, what: impl ToString) -> StoredError {
        StoredError { component: self.component.clone(), id: self.id.clone(), what: what.to_string() }
    }
}

impl Replay {
    /// The row of an entity. Nothing is kept of one that is gone.
    pub fn stored(&self, entity: &Entity) -> Result<Option<String>, StoredError> {
        let text = match entity.slot()? {
            Slot::Resource(resource) => self.resources.get(&resource).map(serde_json::to_string),
            Slot::Section(id) => self.sections.get(&id).map(serde_json::to_string),
            Slot::Task(id) => self.tasks.get(&id).map(serde_json::to_string),
            Slot::Decision(id) => self.decisions.get(&id).map(serde_json::to_string),
            Slot::Import(id) => self.imports.get(&id).map(serde_json::to_string),
            Slot::Queue(name) => self.queues.get(&name).map(serde_json::to_string),
            Slot::Item(id) => self.items.get(&id).map(serde_json::to_string),
            Slot::Worker(name) => self.workers.workers.get(&name).map(serde_json::to_string),
            Slot::Route(id) => self.routes.routes.get(&id).map(serde_json::to_string),
            Slot::Pipeline(id) => self.pipelines.get(&id).map(serde_json::to_string),
            Slot::Workspace(id) => self.workspaces.get(&id).map(serde_json::to_string),
            Slot::Landing(id) => self.landings.get(&id).map(serde_json::to_string),
            Slot::LandingTarget(name) => self.landing_targets.get(&name).map(serde_json::to_string),
            Slot::AccountLimit(name) => self.account_limits.get(&name).map(serde_json::to_string),
            Slot::Limits => self.limits.as_ref().map(serde_json::to_string),
            Slot::Pause => self.pause.as_ref().map(serde_json::to_string),
        };
        entity.parsed(text.transpose())
    }

    /// Takes over a row, before the events that follow it are applied.
    pub fn restore(&mut self, entity: &Entity, data: &str) -> Result<(), StoredError> {
        match entity.slot()? {
            Slot::Resource(resource) => drop(self.resources.insert(resource, entity.read(data)?)),
            Slot::Section(id) => drop(self.sections.insert(id, entity.read_with("id", data)?)),
            Slot::Task(id) => drop(self.tasks.insert(id, entity.read(data)?)),
            Slot::Decision(id) => drop(self.decisions.insert(id, entity.read(data)?)),
            Slot::Import(id) => drop(self.imports.insert(id, entity.read(data)?)),
            Slot::Queue(name) => drop(self.queues.insert(name, entity.read_with("name", data)?)),
            Slot::Item(id) => drop(self.items.insert(id, entity.read_with("id", data)?)),
            Slot::Worker(name) => drop(self.workers.workers.insert(name, entity.read(data)?)),
            Slot::Route(id) => drop(self.routes.routes.insert(id, entity.read(data)?)),
            Slot::Pipeline(id) => {
                let pipeline = entity.parsed(Pipeline::restore(id.clone(), Plan::unknown(), data))?;
                self.pipelines.insert(id, pipeline);
            }
            Slot::Workspace(id) => drop(self.workspaces.insert(id, entity.read_with("owner", data)?)),
            Slot::Landing(id) => drop(self.landings.insert(id, entity.read(data)?)),
            Slot::LandingTarget(name) => drop(self.landing_targets.insert(name, entity.read(data)?)),
            Slot::AccountLimit(name) => drop(self.account_limits.insert(name, entity.read(data)?)),
            Slot::Limits => self.limits = Some(entity.read(data)?),
            Slot::Pause => self.pause = Some(entity.read(data)?),
        }
        Ok(())
    }
}
