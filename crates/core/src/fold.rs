//! What the event log says the tables must be. Heartbeats, deadlines, offers and lines are not part of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backlog::{Backlog, Edge};
use crate::claim::{Claim, Grant};
use crate::coordination::Coordination;
use crate::decision::Decision;
use crate::event::{DecisionFact, Defined, Event, Fact, ImportFact, Kind, Resource, SectionFact, TaskFact};
use crate::ids::{DecisionId, Epoch, HolderId, ImportId, ItemId, Name, RunId, RunnerId, SectionId, Seq, TaskId, Title};
use crate::limits::Limits;
use crate::lock::State;
use crate::router::Routes;
use crate::task::{self, After, Done, Ending, Spec, Status, Stuck, Task};
use crate::time::{Lease, Stamp, Wall};
use crate::worker::{Worker, Workers};

#[path = "fold_pipelines.rs"]
mod pipelines;
#[path = "fold_queues.rs"]
mod queues;
#[path = "fold_stored.rs"]
pub mod stored;

/// The tables as far as the log tells them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folded {
    resources: BTreeMap<Resource, Entry>,
    sections: BTreeMap<SectionId, Group>,
    tasks: BTreeMap<TaskId, Job>,
    decisions: BTreeMap<DecisionId, Decision>,
    /// Whether the tasks of an import are there: they are from its end on, unless it was dropped.
    imports: BTreeMap<ImportId, bool>,
    queues: BTreeMap<Name, queues::Belt>,
    items: BTreeMap<ItemId, queues::Thing>,
    workers: Workers,
    routes: Routes,
    pipelines: BTreeMap<TaskId, pipelines::Going>,
    limits: Option<Limits>,
}

/// A lock or a semaphore. This and all below is [`stored`]: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    defined: Option<Defined>,
    fence: Epoch,
    holders: BTreeMap<HolderId, Holding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holding {
    claim: Claim,
    epoch: Epoch,
    acquired: Wall,
}

/// A section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: Title,
    exclusive: bool,
    position: Seq,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Job {
    spec: Spec,
    depends_on: Vec<Edge>,
    position: Seq,
    created: Wall,
    standing: Standing,
    attempts: u32,
    failures: u32,
    recoveries: u32,
    /// The import that it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    import: Option<ImportId>,
}

/// How things stand with a task, without the moments of the lease clock and without what a live run has said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Standing {
    Pending,
    Live { run: RunId, epoch: Epoch, owner: Option<(RunnerId, Epoch)>, phase: Phase },
    Awaiting { output: Option<Value>, is_ending: bool },
    Parked(DecisionId),
    ByHand(HolderId, Epoch),
    InPhases { is_blocked: bool },
    Review,
    Done(Done),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Phase {
    Running,
    Stuck(Stuck),
    Stopping(After),
}

impl Folded {
    /// Applies the next event of the log.
    pub fn apply(&mut self, seq: Seq, wall: Wall, event: Event) {
        match event {
            Event::Resource { resource, fact } => self.apply_to_resource(seq, wall, resource, fact),
            Event::Section { id, fact } => self.apply_to_section(seq, id, fact),
            Event::Task { id, fact } => match fact {
                TaskFact::Added { spec, depends_on, import } => {
                    self.tasks.insert(id, Job { import, ..Job::new(*spec, depends_on, seq, wall) });
                }
                TaskFact::Deleted {} => drop(self.tasks.remove(&id)),
                fact => drop(self.tasks.get_mut(&id).map(|job| job.apply(seq, fact))),
            },
            Event::Decision { id, fact: DecisionFact::Raised(question) } => {
                self.decisions.insert(id.clone(), Decision::new(id, *question, wall));
            }
            Event::Decision { id, fact } => drop(self.decisions.get_mut(&id).map(|decision| decision.apply(fact, wall))),
            Event::Import { id, fact } => match fact {
                ImportFact::Opened { .. } => drop(self.imports.insert(id, false)),
                ImportFact::Finished { .. } => drop(self.imports.insert(id, true)),
                ImportFact::Dropped {} => {
                    self.tasks.retain(|_, job| job.import.as_ref() != Some(&id));
                    self.imports.insert(id, false);
                }
            },
            Event::Queue { name, fact } => self.apply_to_queue(seq, wall, name, fact),
            Event::Worker { name, fact } => self.workers.apply(seq, &name, fact),
            Event::Route { id, fact } => self.routes.apply(seq, &id, fact),
            Event::Pipeline { id, fact } => self.apply_to_pipeline(id, fact),
            Event::Limits(limits) => self.limits = Some(limits),
            Event::Finished(_) | Event::Custom { .. } => {}
        }
    }

    fn apply_to_section(&mut self, seq: Seq, id: SectionId, fact: SectionFact) {
        match fact {
            SectionFact::Added { name, exclusive } => {
                self.sections.insert(id, Group { name, exclusive, position: seq });
            }
            SectionFact::Updated { name, exclusive } => {
                if let Some(group) = self.sections.get_mut(&id) {
                    (group.name, group.exclusive) = (name, exclusive);
                }
            }
            SectionFact::Deleted {} => drop(self.sections.remove(&id)),
        }
    }

    fn apply_to_resource(&mut self, seq: Seq, wall: Wall, resource: Resource, fact: Fact) {
        let is_lock = resource.kind == Kind::Lock;
        let entry = self.resources.entry(resource).or_default();
        match fact {
            Fact::Defined(defined) => entry.defined = Some(defined),
            Fact::Acquired(claim) => {
                entry.fence = Epoch::from(seq);
                entry.holders.insert(claim.holder.clone(), Holding { claim, epoch: Epoch::from(seq), acquired: wall });
            }
            Fact::Increased(increased) => {
                if let Some(holding) = entry.holders.get_mut(&increased.holder) {
                    holding.claim.weight = increased.weight;
                }
            }
            Fact::Reclaimed(ended) | Fact::Released(ended) | Fact::OfferLapsed(ended) => {
                if ended.reason.is_some() || ended.forced.is_some() {
                    entry.fence = Epoch::from(seq);
                }
                match (ended.keeps, entry.holders.get_mut(&ended.holder)) {
                    (Some(weight), Some(holding)) => holding.claim.weight = weight,
                    _ => drop(entry.holders.remove(&ended.holder)),
                }
            }
        }
        if !is_lock {
            entry.fence = Epoch::default();
        }
    }

    /// The same view of the real tables.
    pub fn of(tables: &Coordination) -> Folded {
        let holding = |grant: &Grant| {
            (
                grant.claim.holder.clone(),
                Holding { claim: grant.claim.clone(), epoch: grant.epoch, acquired: grant.acquired.wall },
            )
        };
        let mut folded = Folded::default();
        for lock in tables.locks.values() {
            let (ttl, max_hold) = (lock.config.ttl, lock.config.max_hold);
            let defined = (ttl.is_some() || max_hold.is_some()).then_some(Defined { capacity: None, ttl, max_hold });
            let holders = match &lock.state {
                State::Free => BTreeMap::new(),
                State::Held(grant) => BTreeMap::from([holding(grant)]),
            };
            let resource = Resource { kind: Kind::Lock, name: lock.name.clone() };
            folded.resources.insert(resource, Entry { defined, fence: lock.fence, holders });
        }
        for semaphore in tables.semaphores.values() {
            let config = semaphore.config;
            let defined = Some(Defined { capacity: Some(config.capacity), ttl: config.ttl, max_hold: None });
            let holders = semaphore.holders.values().map(holding).collect();
            let resource = Resource { kind: Kind::Semaphore, name: semaphore.name.clone() };
            folded.resources.insert(resource, Entry { defined, fence: Epoch::default(), holders });
        }
        folded
    }

    /// The same view of all the real tables, tasks included.
    pub fn of_all(tables: &Coordination, backlog: &Backlog) -> Folded {
        let group = |section: &crate::backlog::Section| Group {
            name: section.name.clone(),
            exclusive: section.exclusive,
            position: section.position,
        };
        Folded {
            sections: backlog.sections.iter().map(|(id, section)| (id.clone(), group(section))).collect(),
            tasks: backlog.tasks.iter().map(|(id, task)| (id.clone(), Job::of(task, backlog))).collect(),
            decisions: backlog.decisions.clone(),
            pipelines: backlog.pipelines.iter().map(|(id, pipeline)| (id.clone(), pipelines::Going::of(pipeline))).collect(),
            limits: backlog.limits,
            ..Folded::of(tables)
        }
    }

    /// The same view with the real workers and routes beside the other tables.
    pub fn with_crew(self, workers: &Workers, routes: &Routes) -> Folded {
        Folded { workers: workers.clone(), routes: routes.clone(), ..self }
    }

    /// The tasks that are there: those of an import are not before its end.
    fn shown(&self) -> BTreeMap<TaskId, Job> {
        let is_there = |import: &ImportId| self.imports.get(import).copied().unwrap_or(false);
        let shown = self.tasks.iter().filter(|(_, job)| job.import.as_ref().is_none_or(is_there));
        shown.map(|(id, job)| (id.clone(), Job { import: None, ..job.clone() })).collect()
    }

    /// What two views differ about, with both sides in words: resources, then sections, then tasks.
    pub fn differences(&self, tables: &Folded) -> Vec<String> {
        let blank = Entry::default();
        let names: std::collections::BTreeSet<_> = self.resources.keys().chain(tables.resources.keys()).collect();
        let differs = names.into_iter().filter_map(|name| {
            let log = self.resources.get(name).unwrap_or(&blank).normal();
            let row = tables.resources.get(name).unwrap_or(&blank).normal();
            (log != row).then(|| format!("{name}: the log says {log:?}, the tables say {row:?}"))
        });
        let sections = differing("section", &self.sections, &tables.sections, Group::fields);
        let tasks = differing("task", &self.shown(), &tables.tasks, Job::fields);
        let decisions = differing("decision", &self.decisions, &tables.decisions, |decision| {
            [("question", format!("{:?}", decision.question)), ("state", format!("{:?}", decision.state))]
        });
        let queues = differing("queue", &self.measured(), &tables.queues, queues::Belt::fields);
        let items = differing("item", &self.items, &tables.items, queues::Thing::fields);
        let workers = differing("worker", &self.workers.workers, &tables.workers.workers, worker_fields);
        let routes = differing("route", &self.routes.routes, &tables.routes.routes, |in_force| {
            [("terms", format!("{:?}", in_force.route)), ("since", in_force.since.to_string())]
        });
        let pipelines = differing("pipeline", &self.pipelines, &tables.pipelines, pipelines::Going::fields);
        let limits = (self.limits != tables.limits)
            .then(|| format!("limits: the log says {:?}, the tables say {:?}", self.limits, tables.limits));
        let lately = pipelines.into_iter().chain(workers).chain(routes).chain(limits);
        differs.chain(sections).chain(tasks).chain(decisions).chain(queues).chain(items).chain(lately).collect()
    }
}

/// The longest text of one side of a difference: a specification or a result may be much longer.
const SIDE_LIMIT: usize = 200;

/// The fields in which two views of the same things differ, each in words.
fn differing<K: Ord + std::fmt::Display, V: PartialEq, const N: usize>(
    what: &str,
    log: &BTreeMap<K, V>,
    rows: &BTreeMap<K, V>,
    fields: fn(&V) -> [(&'static str, String); N],
) -> Vec<String> {
    let ids: std::collections::BTreeSet<_> = log.keys().chain(rows.keys()).collect();
    let mut found = Vec::new();
    for id in ids {
        match (log.get(id), rows.get(id)) {
            (Some(log), Some(row)) if log == row => {}
            (Some(log), Some(row)) => {
                let pairs = fields(log).into_iter().zip(fields(row)).filter(|((_, log), (_, row))| log != row);
                found.extend(pairs.map(|((field, log), (_, row))| {
                    format!("{what} {id}, {field}: the log says {}, the tables say {}", cut(&log), cut(&row))
                }));
            }
            (Some(_), None) => found.push(format!("{what} {id}: the log has it, the tables do not")),
            (None, _) => found.push(format!("{what} {id}: the tables have it, the log does not")),
        }
    }
    found
}

fn worker_fields(worker: &Worker) -> [(&'static str, String); 6] {
    [
        ("terms", format!("{:?}", worker.definition)),
        ("paused", worker.paused.to_string()),
        ("awake", worker.awake.to_string()),
        ("removed", worker.removed.to_string()),
        ("since", worker.since.to_string()),
        ("jobs", format!("{:?}", worker.jobs)),
    ]
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SIDE_LIMIT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

impl Group {
    fn fields(&self) -> [(&'static str, String); 3] {
        [
            ("name", format!("{:?}", self.name.as_str())),
            ("exclusive", self.exclusive.to_string()),
            ("position", self.position.to_string()),
        ]
    }
}

impl Job {
    fn new(spec: Spec, depends_on: Vec<Edge>, seq: Seq, wall: Wall) -> Job {
        Job {
            spec,
            depends_on: sorted(depends_on),
            position: seq,
            created: wall,
            standing: Standing::Pending,
            attempts: 0,
            failures: 0,
            recoveries: 0,
            import: None,
        }
    }

    fn of(task: &Task, backlog: &Backlog) -> Job {
        Job {
            spec: task.spec.clone(),
            depends_on: sorted(backlog.edges.get(&task.id).cloned().unwrap_or_default()),
            position: task.position,
            created: task.created,
            standing: Standing::of(task, backlog),
            attempts: task.attempts,
            failures: task.failures,
            recoveries: task.recoveries,
            import: None,
        }
    }

    fn apply(&mut self, seq: Seq, fact: TaskFact) {
        match fact {
            TaskFact::Added { .. } | TaskFact::Deleted {} => unreachable!("they make and remove the whole entry"),
            TaskFact::Updated { spec, depends_on } => (self.spec, self.depends_on) = (*spec, sorted(depends_on)),
            TaskFact::Started { run, attempt, runner, .. } => {
                self.attempts = attempt + 1;
                let epoch = Epoch::from(seq);
                self.standing = Standing::Live { run, epoch, owner: Some((runner, epoch)), phase: Phase::Running };
            }
            TaskFact::Adopted { runner, .. } => {
                if let Standing::Live { owner, .. } = &mut self.standing {
                    *owner = Some((runner, Epoch::from(seq)));
                }
            }
            TaskFact::Stuck { reason, .. } => self.enter(Phase::Stuck(timeless(reason))),
            TaskFact::Nudged { recoveries, .. } => self.recoveries = recoveries,
            TaskFact::Recovered { recoveries, .. } => {
                self.recoveries = recoveries.unwrap_or(self.recoveries);
                self.enter(Phase::Running);
            }
            TaskFact::Checkpoint { .. } => {}
            TaskFact::Stopping { then, .. } => self.enter(Phase::Stopping(then)),
            TaskFact::Restarting { ending, error, failures, recoveries, attempts, .. } => {
                self.attempts = attempts.unwrap_or(self.attempts);
                match (failures, recoveries) {
                    (Some(failures), Some(recoveries)) => (self.failures, self.recoveries) = (failures, recoveries),
                    _ => self.count(&ending, error.is_some()),
                }
                self.standing = Standing::Pending;
            }
            TaskFact::Awaiting { output, .. } => self.standing = Standing::Awaiting { output, is_ending: false },
            TaskFact::EndingChildren {} => {
                if let Standing::Awaiting { is_ending, .. } = &mut self.standing {
                    *is_ending = true;
                }
            }
            TaskFact::Escalated { decision, .. } => self.standing = Standing::Parked(decision),
            TaskFact::Taken { holder, epoch } => {
                (self.failures, self.recoveries) = (0, 0);
                self.standing = Standing::ByHand(holder, epoch);
            }
            TaskFact::Returned {} => self.standing = Standing::Pending,
            TaskFact::InPhases { is_blocked } => self.standing = Standing::InPhases { is_blocked },
            TaskFact::Complete { output, warning, .. } => self.standing = Standing::Done(Done::Success { output, warning }),
            TaskFact::Failed { error, .. } => self.standing = Standing::Done(Done::Failed { error }),
            TaskFact::Cancelled { .. } => self.standing = Standing::Done(Done::Cancelled),
            TaskFact::Retried {} => {
                (self.failures, self.recoveries) = (0, 0);
                self.standing = Standing::Pending;
            }
            TaskFact::Marked { status: Status::Skipped } => self.standing = Standing::Done(Done::Skipped),
            TaskFact::Marked { .. } => self.standing = Standing::Review,
        }
    }

    fn enter(&mut self, to: Phase) {
        if let Standing::Live { phase, .. } = &mut self.standing {
            *phase = to;
        }
    }

    /// Counts a run that was followed by another, as it was done before the event told the counts.
    fn count(&mut self, ending: &Ending, said_failed: bool) {
        let was_stopped = matches!(&self.standing, Standing::Live { phase: Phase::Stopping(_), .. });
        match ending {
            _ if said_failed => self.failures += 1,
            Ending::Never | Ending::NotBegun { .. } => {}
            Ending::Lost => self.recoveries += 1,
            Ending::Exited(_) | Ending::Signalled(_) | Ending::NotStarted { .. } if was_stopped => self.recoveries += 1,
            Ending::Exited(_) | Ending::Signalled(_) | Ending::NotStarted { .. } => self.failures += 1,
        }
    }

    fn fields(&self) -> [(&'static str, String); 8] {
        [
            ("spec", format!("{:?}", self.spec)),
            ("dependencies", format!("{:?}", self.depends_on)),
            ("position", self.position.to_string()),
            ("created", self.created.0.to_string()),
            ("state", format!("{:?}", self.standing)),
            ("attempts", self.attempts.to_string()),
            ("failures", self.failures.to_string()),
            ("recoveries", self.recoveries.to_string()),
        ]
    }
}

impl Standing {
    fn of(task: &Task, backlog: &Backlog) -> Standing {
        let live = |live: &task::Live, phase: Phase| Standing::Live {
            run: live.run.clone(),
            epoch: live.epoch,
            owner: backlog.runs.get(&live.run).map(|run| (run.owner.clone(), run.owner_epoch)),
            phase,
        };
        match &task.state {
            task::State::Pending | task::State::Resting { .. } | task::State::Held => Standing::Pending,
            task::State::Awaiting { output, until } => Standing::Awaiting { output: output.clone(), is_ending: until.is_none() },
            task::State::Parked { decision } => Standing::Parked(decision.clone()),
            task::State::ByHand { holder, epoch, .. } => Standing::ByHand(holder.clone(), *epoch),
            task::State::Running(run) => live(run, Phase::Running),
            task::State::Stuck { live: run, reason, .. } => live(run, Phase::Stuck(timeless(*reason))),
            task::State::Stopping { live: run, then, .. } => live(run, Phase::Stopping(then.clone())),
            task::State::InPhases { is_blocked } => Standing::InPhases { is_blocked: *is_blocked },
            task::State::Review => Standing::Review,
            task::State::Done(done) => Standing::Done(done.clone()),
        }
    }
}

/// A reason without the lease clock, which is another one in the copy of a store.
fn timeless(reason: Stuck) -> Stuck {
    match reason {
        Stuck::NoHeartbeat { last_seen } => Stuck::NoHeartbeat { last_seen: Stamp { lease: Lease::default(), ..last_seen } },
        Stuck::NoProgress { .. } | Stuck::SessionDead => reason,
    }
}

/// Dependencies have no order.
fn sorted(mut edges: Vec<Edge>) -> Vec<Edge> {
    edges.sort();
    edges.dedup();
    edges
}

impl Entry {
    /// A lock that was defined without any default is the same as one that was never defined.
    fn normal(&self) -> Entry {
        let empty = Defined { capacity: None, ttl: None, max_hold: None };
        Entry { defined: self.defined.filter(|defined| *defined != empty), ..self.clone() }
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
