//! Applies a runbook: defines its locks, semaphores and queues, and creates, changes or removes its workers and routes. All of it
//! or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use banksman_core::event::Event;
use banksman_core::pipeline::plan::Plan;
use banksman_core::resource::coordination::{Command, Coordination};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::route::{FeedsItself, ROUTES_LIMIT, Route, RouteFact, Then};
use banksman_core::worker::{self, Definition, Job};
use banksman_core::{Effect, Name, Now, Span, queue};
use banksman_store::{Automation, Key, Tx};

use crate::calls::pipelines::phases::{Lack, lacks, slot_keys};
use crate::calls::routes::withdraw_stale;
use crate::calls::steps::{wake_runners, wake_watchers};

/// The resources of a runbook to apply. An empty request removes the runbook; its locks, semaphores and queues stay, because others
/// may use them.
#[derive(Debug, Clone, Default)]
pub struct ApplyRequest {
    pub runbook: Box<str>,
    pub locks: BTreeMap<Name, lock::Config>,
    pub semaphores: BTreeMap<Name, semaphore::Config>,
    pub queues: BTreeMap<Name, queue::Config>,
    pub workers: BTreeMap<Name, Arc<Definition>>,
    pub routes: Vec<Arc<Route>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// The runbook is applied, with these changes.
    Applied(Vec<Change>),
    /// The runbook cannot be applied, for all these reasons. Nothing was changed.
    Refused(Vec<Incompatible>),
}

/// The change of one definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// `lock`, `semaphore`, `queue`, `worker` or `route`.
    pub sort: &'static str,
    /// Its name; the pattern of a route.
    pub name: Box<str>,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Created,
    Changed,
    Same,
    Removed,
    /// A worker takes no more items, and is removed when its remaining jobs have ended.
    Finishing {
        jobs: usize,
    },
}

/// Why a runbook cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incompatible {
    /// A worker or a route uses a queue that does not exist.
    NoQueue {
        user: Box<str>,
        queue: Name,
    },
    /// A route wakes a worker that does not exist.
    NoWorker {
        /// The pattern of the route.
        route: Box<str>,
        worker: Name,
    },
    /// A pipeline that a worker or a route starts would wait in vain for slots.
    Lacks {
        user: Box<str>,
        lack: Lack,
    },
    Worker(Name, worker::Outcome),
    Queue(Name, queue::Outcome),
    /// A route causes the events that it listens to.
    Feeds(FeedsItself),
    TooManyRoutes,
}

impl How {
    pub fn as_str(self) -> &'static str {
        match self {
            How::Created => "created",
            How::Changed => "changed",
            How::Same => "unchanged",
            How::Removed => "removed",
            How::Finishing { .. } => "finishing",
        }
    }
}

/// The tables with the runbook applied.
struct Draft {
    coordination: Coordination,
    queues: queue::Queues,
    automation: Automation,
    now: Now,
    effects: Vec<Effect>,
    changes: Vec<Change>,
    incompatible: Vec<Incompatible>,
}

impl ApplyRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        let locks = self.locks.keys().cloned().map(Key::Lock);
        let semaphores = self.semaphores.keys().cloned().map(Key::Semaphore);
        let needed = self.plans().into_iter().flat_map(|(_, plan)| slot_keys(plan));
        locks.chain(semaphores).chain(needed).chain([Key::Automation, Key::Queues, Key::Runners, Key::OpenDecisions]).collect()
    }

    /// The pipelines that the workers and routes start, each with the text that names its user.
    fn plans(&self) -> Vec<(String, &Plan)> {
        let workers = self.workers.iter().filter_map(|(name, worker)| match &worker.job {
            Job::Pipeline(plan) => Some((format!("worker {name}"), &**plan)),
            Job::Task { .. } => None,
        });
        let starts = self.routes.iter().flat_map(|route| route.then.iter().map(move |then| (route, then)));
        let routes = starts.filter_map(|(route, then)| match then {
            Then::Start(plan) => Some((format!("route {}", route.on), &**plan)),
            Then::Push(_) | Then::Wake(_) | Then::Notify(_) => None,
        });
        workers.chain(routes).collect()
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> ApplyOutcome {
        let mut draft = Draft {
            coordination: tx.tables.coordination.clone(),
            queues: tx.tables.queues.clone(),
            automation: tx.tables.automation.clone(),
            now: tx.now(Vec::new(), Span::ZERO),
            effects: Vec::new(),
            changes: Vec::new(),
            incompatible: Vec::new(),
        };
        draft.resources(self);
        draft.queues(&self.queues);
        draft.workers(self);
        draft.routes(self);
        for (user, plan) in self.plans() {
            let lacks = lacks(plan, &draft.coordination).into_iter();
            draft.incompatible.extend(lacks.map(|lack| Incompatible::Lacks { user: user.clone().into(), lack }));
        }
        if !draft.incompatible.is_empty() {
            return ApplyOutcome::Refused(draft.incompatible);
        }
        (tx.tables.coordination, tx.tables.queues, tx.tables.automation) = (draft.coordination, draft.queues, draft.automation);
        if !draft.effects.is_empty() {
            wake_watchers(&draft.effects, tx);
            tx.carry_out(draft.effects, false);
            withdraw_stale(tx);
            wake_runners(tx);
        }
        ApplyOutcome::Applied(draft.changes)
    }
}

impl Draft {
    fn keep(&mut self, effects: Vec<Effect>) {
        let events = effects.iter().filter(|effect| matches!(effect, Effect::Emit(_))).count();
        self.now.seq.0 += i64::try_from(events).expect("a step has few events");
        self.effects.extend(effects);
    }

    fn note(&mut self, sort: &'static str, name: &str, how: How) {
        self.changes.push(Change { sort, name: name.into(), how });
    }

    fn resources(&mut self, wanted: &ApplyRequest) {
        for (name, config) in &wanted.locks {
            // A lock with the default config has no row, and needs none.
            let was = self.coordination.locks.get(name).map(|lock| lock.config);
            let was = was.or_else(|| (*config == lock::Config::default()).then_some(*config));
            let command = Command::Lock(name.clone(), lock::Input::Define(*config));
            self.define("lock", name, was.map(|was| was == *config), command);
        }
        for (name, config) in &wanted.semaphores {
            let was = self.coordination.semaphores.get(name).map(|semaphore| semaphore.config);
            let command = Command::Semaphore(name.clone(), semaphore::Input::Define(*config));
            self.define("semaphore", name, was.map(|was| was == *config), command);
        }
    }

    fn define(&mut self, sort: &'static str, name: &Name, is_same: Option<bool>, command: Command) {
        let how = compared(is_same);
        if how != How::Same {
            let step = std::mem::take(&mut self.coordination).handle(command, &self.now);
            self.coordination = step.state;
            self.keep(step.effects);
        }
        self.note(sort, name.as_str(), how);
    }

    fn queues(&mut self, wanted: &BTreeMap<Name, queue::Config>) {
        let was: BTreeMap<&Name, Option<bool>> = wanted
            .iter()
            .map(|(name, config)| (name, self.queues.queues.get(name).map(|queue| queue.config == *config)))
            .collect();
        // A dead-letter queue comes before the queues that use it. In a cycle, the first queue is made without its dead-letter queue.
        let mut left: BTreeSet<&Name> = wanted.keys().filter(|name| was[name] != Some(true)).collect();
        while let Some(first) = left.first().copied() {
            let is_there = |name: &&Name| match &wanted[*name].dead_letter {
                Some(dead_letter) => self.queues.queues.contains_key(dead_letter) || !wanted.contains_key(dead_letter),
                None => true,
            };
            match left.iter().copied().find(is_there) {
                Some(name) => {
                    left.remove(name);
                    self.queue(name, wanted[name].clone());
                }
                None => self.queue(first, queue::Config { dead_letter: None, ..wanted[first].clone() }),
            }
            if !self.incompatible.is_empty() {
                return;
            }
        }
        for (name, is_same) in was {
            self.note("queue", name.as_str(), compared(is_same));
        }
    }

    fn queue(&mut self, name: &Name, config: queue::Config) {
        let step = std::mem::take(&mut self.queues).step(name, queue::Input::Define(config), &self.now);
        self.queues = step.state;
        self.keep(step.effects);
        if step.outcome != queue::Outcome::Defined {
            self.incompatible.push(Incompatible::Queue(name.clone(), step.outcome));
        }
    }

    fn workers(&mut self, wanted: &ApplyRequest) {
        for (name, definition) in &wanted.workers {
            if !self.queues.queues.contains_key(&definition.queue) {
                let user = format!("worker {name}").into();
                self.incompatible.push(Incompatible::NoQueue { user, queue: definition.queue.clone() });
            }
            match self.worker(name, worker::Input::Define(Arc::clone(definition))) {
                worker::Outcome::Created => self.note("worker", name.as_str(), How::Created),
                worker::Outcome::Changed => self.note("worker", name.as_str(), How::Changed),
                worker::Outcome::Same => self.note("worker", name.as_str(), How::Same),
                refusal => self.incompatible.push(Incompatible::Worker(name.clone(), refusal)),
            }
        }
        let own = self.automation.workers.workers.values().filter(|worker| worker.definition.runbook == wanted.runbook);
        let gone = own.filter(|worker| !worker.removed).map(|worker| worker.definition.name.clone());
        let gone: Vec<Name> = gone.filter(|name| !wanted.workers.contains_key(name)).collect();
        for name in gone {
            if let worker::Outcome::Removed { jobs } = self.worker(&name, worker::Input::Remove) {
                self.note("worker", name.as_str(), if jobs == 0 { How::Removed } else { How::Finishing { jobs } });
            }
        }
    }

    fn worker(&mut self, name: &Name, input: worker::Input) -> worker::Outcome {
        let step = std::mem::take(&mut self.automation.workers).step(name, input, &self.now);
        self.automation.workers = step.state;
        self.keep(step.effects);
        step.outcome
    }

    fn routes(&mut self, wanted: &ApplyRequest) {
        let ids: BTreeMap<Box<str>, &Arc<Route>> = wanted.routes.iter().map(|route| (route.id(), route)).collect();
        for (id, route) in &ids {
            self.check(route);
            let was = self.automation.routes.routes.get(id).map(|in_force| in_force.route == **route);
            let how = compared(was);
            if how != How::Same {
                self.route(id, RouteFact::Defined(Arc::clone(route)));
            }
            self.note("route", &route.on.to_string(), how);
        }
        let own = self.automation.routes.routes.iter().filter(|(_, in_force)| in_force.route.runbook == wanted.runbook);
        let gone = own.filter(|(id, _)| !ids.contains_key(*id)).map(|(id, in_force)| (id.clone(), in_force.route.on.to_string()));
        for (id, pattern) in gone.collect::<Vec<_>>() {
            self.route(&id, RouteFact::Removed {});
            self.note("route", &pattern, How::Removed);
        }
        if self.automation.routes.routes.len() > ROUTES_LIMIT {
            self.incompatible.push(Incompatible::TooManyRoutes);
        }
    }

    fn check(&mut self, route: &Route) {
        if let Err(error) = route.check() {
            self.incompatible.push(Incompatible::Feeds(error));
        }
        for then in &route.then {
            match then {
                Then::Push(push) if !self.queues.queues.contains_key(&push.queue) => {
                    let user = format!("route {}", route.on).into();
                    self.incompatible.push(Incompatible::NoQueue { user, queue: push.queue.clone() });
                }
                Then::Wake(name) if self.automation.workers.workers.get(name).is_none_or(|worker| worker.removed) => {
                    self.incompatible.push(Incompatible::NoWorker { route: route.on.to_string().into(), worker: name.clone() });
                }
                Then::Push(_) | Then::Wake(_) | Then::Start(_) | Then::Notify(_) => {}
            }
        }
    }

    fn route(&mut self, id: &str, fact: RouteFact) {
        self.automation.routes.apply(self.now.seq, id, fact.clone());
        self.keep(vec![Effect::Emit(Event::Route { id: id.into(), fact })]);
    }
}

fn compared(is_same: Option<bool>) -> How {
    match is_same {
        None => How::Created,
        Some(false) => How::Changed,
        Some(true) => How::Same,
    }
}
