//! Replays the event log into the tables that follow from it. Heartbeats, deadlines, offers and waiters are not part of
//! it.
//!
//! The state of an entity is that of its machine without the times on the lease clock, where that is enough. The
//! computation is an independent one: it knows the events alone, so `doctor` can compare its result with the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::agent::limit::{self, AccountLimit};
use crate::backlog::{Backlog, Section};
use crate::decision::Decision;
use crate::event::{DecisionFact, Event, ImportFact, Resource, SectionFact, TaskFact};
use crate::ids::{DecisionId, ImportId, ItemId, LandingId, Name, SectionId, Seq, TaskId};
use crate::landing::{Entry, EntryFact, Target};
use crate::pause::Pause;
use crate::pipeline::Pipeline;
use crate::queue::{Item, Queue};
use crate::route::Routes;
use crate::task::limits::Limits;
use crate::time::Wall;
use crate::worker::Workers;
use crate::workspace::{self, Workspace};

mod pipelines;
mod queues;
mod resources;
pub mod stored;
mod tasks;

use resources::ResourceEntry;
use tasks::TaskEntry;

/// The tables as far as they follow from the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replay {
    resources: BTreeMap<Resource, ResourceEntry>,
    sections: BTreeMap<SectionId, Section>,
    tasks: BTreeMap<TaskId, TaskEntry>,
    decisions: BTreeMap<DecisionId, Decision>,
    /// Whether the tasks of an import are visible: they are from its end on, unless it was dropped.
    imports: BTreeMap<ImportId, bool>,
    queues: BTreeMap<Name, Queue>,
    items: BTreeMap<ItemId, Item>,
    workers: Workers,
    routes: Routes,
    pipelines: BTreeMap<TaskId, Pipeline>,
    workspaces: BTreeMap<TaskId, Workspace>,
    landings: BTreeMap<LandingId, Entry>,
    landing_targets: BTreeMap<Name, Target>,
    account_limits: BTreeMap<Name, AccountLimit>,
    limits: Option<Limits>,
    pause: Option<Pause>,
}

impl Replay {
    /// Applies the next event of the log.
    pub fn apply(&mut self, seq: Seq, wall: Wall, event: Event) {
        match event {
            Event::Resource { resource, fact } => self.apply_to_resource(seq, wall, resource, fact),
            Event::Section { id, fact } => self.apply_to_section(seq, id, fact),
            Event::Task { id, fact } => match fact {
                TaskFact::Added { spec, depends_on, import } => {
                    self.tasks.insert(id, TaskEntry::new(*spec, depends_on, import, seq, wall));
                }
                TaskFact::Deleted {} => drop(self.tasks.remove(&id)),
                fact => drop(self.tasks.get_mut(&id).map(|task| task.apply(seq, fact))),
            },
            Event::Decision { id, fact: DecisionFact::Raised(question) } => {
                self.decisions.insert(id.clone(), Decision::new(id, *question, wall));
            }
            Event::Decision { id, fact } => drop(self.decisions.get_mut(&id).map(|decision| decision.apply(fact, wall))),
            Event::Import { id, fact } => match fact {
                ImportFact::Opened { .. } => drop(self.imports.insert(id, false)),
                ImportFact::Finished { .. } => drop(self.imports.insert(id, true)),
                ImportFact::Dropped {} => {
                    self.tasks.retain(|_, task| task.import.as_ref() != Some(&id));
                    self.imports.insert(id, false);
                }
            },
            Event::Queue { name, fact } => self.apply_to_queue(seq, wall, name, fact),
            Event::Worker { name, fact } => self.workers.apply(seq, &name, fact),
            Event::Route { id, fact } => self.routes.apply(seq, &id, fact),
            Event::Pipeline { id, fact } => self.apply_to_pipeline(id, fact),
            Event::Workspace { id, fact } => {
                let before = self.workspaces.remove(&id);
                self.workspaces.extend(workspace::apply(&id, before, &fact, wall).map(|after| (id, after)));
            }
            Event::Landing { id, fact: EntryFact::Added { target, spec } } => {
                self.landings.insert(id.clone(), Entry::new(id, target, *spec, wall));
            }
            Event::Landing { id, fact } => drop(self.landings.get_mut(&id).map(|entry| entry.apply(fact))),
            Event::LandingTarget { name, fact } => {
                self.landing_targets.entry(name.clone()).or_insert_with(|| Target::new(name)).apply(fact, wall);
            }
            Event::AccountLimit { name, fact } => {
                let before = self.account_limits.remove(&name);
                self.account_limits.extend(limit::apply(&name, before, fact, wall).map(|after| (name, after)));
            }
            Event::Limits(limits) => self.limits = Some(limits),
            Event::Paused(pause) => self.pause = Some(pause),
            Event::Resumed(_) => self.pause = None,
            Event::Finished(_) | Event::Custom { .. } => {}
        }
    }

    fn apply_to_section(&mut self, seq: Seq, id: SectionId, fact: SectionFact) {
        match fact {
            SectionFact::Added { name, exclusive } => {
                self.sections.insert(id.clone(), Section { id, name, exclusive, position: seq });
            }
            SectionFact::Updated { name, exclusive } => {
                if let Some(section) = self.sections.get_mut(&id) {
                    (section.name, section.exclusive) = (name, exclusive);
                }
            }
            SectionFact::Deleted {} => drop(self.sections.remove(&id)),
        }
    }

    /// This view with the real tasks, and all that belongs to them, beside the other tables.
    pub fn with_backlog(self, backlog: &Backlog) -> Replay {
        Replay {
            sections: backlog.sections.clone(),
            tasks: backlog.tasks.iter().map(|(id, task)| (id.clone(), TaskEntry::of(task, backlog))).collect(),
            decisions: backlog.decisions.clone(),
            pipelines: backlog.pipelines.iter().map(|(id, pipeline)| (id.clone(), pipelines::timeless(pipeline))).collect(),
            workspaces: backlog.workspaces.clone(),
            landings: backlog.landings.iter().map(|(id, entry)| (id.clone(), Entry { again: None, ..entry.clone() })).collect(),
            landing_targets: backlog.landing_targets.clone(),
            account_limits: backlog
                .account_limits
                .iter()
                .filter(|(_, limit)| limit.state != limit::State::Open)
                .map(|(name, limit)| (name.clone(), limit.clone().timeless()))
                .collect(),
            limits: backlog.limits,
            pause: backlog.pause.clone(),
            ..self
        }
    }

    /// This view with the real workers and routes beside the other tables.
    pub fn with_workers(self, workers: &Workers, routes: &Routes) -> Replay {
        Replay { workers: workers.clone(), routes: routes.clone(), ..self }
    }

    /// The differences between two views, with both sides as JSON: resources, then sections, then tasks, then the rest.
    pub fn differences(&self, tables: &Replay) -> Vec<String> {
        let limits = |limits: Option<Limits>| limits.map(|limits| ("limits", limits)).into_iter().collect();
        let pause = |pause: &Option<Pause>| pause.clone().map(|pause| ("pause", pause)).into_iter().collect();
        [
            differing("", &resources::known(&self.resources), &resources::known(&tables.resources)),
            differing("section ", &self.sections, &tables.sections),
            differing("task ", &self.visible_tasks(), &tables.tasks),
            differing("decision ", &self.decisions, &tables.decisions),
            differing("queue ", &self.measured(), &tables.queues),
            differing("item ", &self.items, &tables.items),
            differing("pipeline ", &self.pipelines, &tables.pipelines),
            differing("worker ", &self.workers.workers, &tables.workers.workers),
            differing("route ", &self.routes.routes, &tables.routes.routes),
            differing("workspace ", &self.workspaces, &tables.workspaces),
            differing("landing ", &self.landings, &tables.landings),
            differing("landing target ", &self.landing_targets, &tables.landing_targets),
            differing("account limit ", &self.account_limits, &tables.account_limits),
            differing("", &limits(self.limits), &limits(tables.limits)),
            differing("", &pause(&self.pause), &pause(&tables.pause)),
        ]
        .concat()
    }
}

/// The longest text of one side of a difference: a specification or a result may be much longer.
const SIDE_LIMIT: usize = 200;

/// The fields in which two views of the same entities differ.
fn differing<K: Ord + Display, V: PartialEq + Serialize + Debug>(
    what: &str,
    log: &BTreeMap<K, V>,
    rows: &BTreeMap<K, V>,
) -> Vec<String> {
    let ids: BTreeSet<_> = log.keys().chain(rows.keys()).collect();
    let mut found = Vec::new();
    for id in ids {
        match (log.get(id), rows.get(id)) {
            (Some(log), Some(row)) if log == row => {}
            (Some(log), Some(row)) => {
                let sides = sides(log, row).into_iter().map(|(field, log, row)| {
                    format!("{what}{id}{field}: the log says {}, the tables say {}", cut(&log), cut(&row))
                });
                found.extend(sides);
            }
            (Some(_), None) => found.push(format!("{what}{id}: the log has it, the tables do not")),
            (None, _) => found.push(format!("{what}{id}: the tables have it, the log does not")),
        }
    }
    found
}

/// Each field that differs, with both sides; the entire entities if no serialized field differs.
fn sides<V: Serialize + Debug>(log: &V, row: &V) -> Vec<(String, String, String)> {
    let fields = |side: &V| match serde_json::to_value(side) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (log_fields, row_fields) = (fields(log), fields(row));
    let names: BTreeSet<_> = log_fields.keys().chain(row_fields.keys()).collect();
    let differ = names.into_iter().filter(|name| log_fields.get(*name) != row_fields.get(*name));
    let text = |fields: &Map<String, Value>, name: &str| fields.get(name).unwrap_or(&Value::Null).to_string();
    let mut sides: Vec<_> = differ.map(|name| (format!(", {name}"), text(&log_fields, name), text(&row_fields, name))).collect();
    if sides.is_empty() {
        sides.push((String::new(), format!("{log:?}"), format!("{row:?}")));
    }
    sides
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SIDE_LIMIT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
