//! The state after a part of the log, as rows that replace that part: one for each lock, semaphore, section, task,
//! decision, import, queue, item, worker, route, pipeline, workspace, landing, landing target and account limit, and
//! one each for the limits and the pause.
//!
//! Every event changes at most one of them, so a part of the log can be replayed over the few rows that it is about.
//! The form of the rows is as frozen as that of the events: fields may be added with a default, nothing else.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use super::Replay;
use crate::event::{Event, Kind, Resource};
use crate::ids::Name;
use crate::pipeline::Pipeline;

/// The component of an item, which no event has as its source.
const ITEM: &str = "item";

/// The error for a row whose component this program does not know.
const UNKNOWN: &str = "there is no such kind of thing";

/// The subject of a row, in the words of an event's source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entity {
    /// The kind of the object, such as `lock`.
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

impl Entity {
    /// The entity that an event changes; `None` for the event of a user.
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

    fn resource(&self, kind: Kind) -> Result<Resource, StoredError> {
        Ok(Resource { kind, name: self.parsed(Name::new(&self.id))? })
    }

    fn key<K: FromStr<Err: ToString>>(&self) -> Result<K, StoredError> {
        self.parsed(self.id.parse())
    }

    /// Its row.
    fn find<K: Ord + FromStr<Err: ToString>, V: Serialize>(&self, rows: &BTreeMap<K, V>) -> Result<Option<String>, StoredError> {
        self.write(rows.get(&self.key::<K>()?))
    }

    /// Adds a row to the others of its kind.
    fn put<K: Ord + FromStr<Err: ToString>, V>(&self, rows: &mut BTreeMap<K, V>, row: V) -> Result<(), StoredError> {
        self.key().map(|key| drop(rows.insert(key, row)))
    }

    fn write<V: Serialize>(&self, row: Option<&V>) -> Result<Option<String>, StoredError> {
        self.parsed(row.map(serde_json::to_string).transpose())
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
    /// The row of an entity; `None` if the entity is gone.
    pub fn stored(&self, entity: &Entity) -> Result<Option<String>, StoredError> {
        if let Some(kind) = Kind::parse(&entity.component) {
            return entity.write(self.resources.get(&entity.resource(kind)?));
        }
        match &*entity.component {
            "section" => entity.find(&self.sections),
            "task" => entity.find(&self.tasks),
            "decision" => entity.find(&self.decisions),
            "import" => entity.find(&self.imports),
            "queue" => entity.find(&self.queues),
            ITEM => entity.find(&self.items),
            "worker" => entity.find(&self.workers.workers),
            "route" => entity.write(self.routes.routes.get(&entity.id)),
            "pipeline" => entity.find(&self.pipelines),
            "workspace" => entity.find(&self.workspaces),
            "landing" => entity.find(&self.landings),
            "landing_target" => entity.find(&self.landing_targets),
            "account_limit" => entity.find(&self.account_limits),
            "limits" => entity.write(self.limits.as_ref()),
            "backlog" => entity.write(self.pause.as_ref()),
            _ => Err(entity.unreadable(UNKNOWN)),
        }
    }

    /// Loads a row, before the events that follow it are applied.
    pub fn restore(&mut self, entity: &Entity, data: &str) -> Result<(), StoredError> {
        if let Some(kind) = Kind::parse(&entity.component) {
            self.resources.insert(entity.resource(kind)?, entity.read(data)?);
            return Ok(());
        }
        match &*entity.component {
            "section" => entity.put(&mut self.sections, entity.read_with("id", data)?)?,
            "task" => entity.put(&mut self.tasks, entity.read(data)?)?,
            "decision" => entity.put(&mut self.decisions, entity.read(data)?)?,
            "import" => entity.put(&mut self.imports, entity.read(data)?)?,
            "queue" => entity.put(&mut self.queues, entity.read_with("name", data)?)?,
            ITEM => entity.put(&mut self.items, entity.read_with("id", data)?)?,
            "worker" => entity.put(&mut self.workers.workers, entity.read(data)?)?,
            "route" => drop(self.routes.routes.insert(entity.id.clone(), entity.read(data)?)),
            "pipeline" => {
                let pipeline = Pipeline::restore(entity.key()?, data);
                entity.put(&mut self.pipelines, entity.parsed(pipeline)?)?;
            }
            "workspace" => entity.put(&mut self.workspaces, entity.read_with("owner", data)?)?,
            "landing" => entity.put(&mut self.landings, entity.read(data)?)?,
            "landing_target" => entity.put(&mut self.landing_targets, entity.read(data)?)?,
            "account_limit" => entity.put(&mut self.account_limits, entity.read(data)?)?,
            "limits" => self.limits = Some(entity.read(data)?),
            "backlog" => self.pause = Some(entity.read(data)?),
            _ => return Err(entity.unreadable(UNKNOWN)),
        }
        Ok(())
    }
}
