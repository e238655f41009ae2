//! Locks, semaphores, queues; workers and routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use banksman_core::pipeline::plan::Plan;
use banksman_core::queue::QUEUES_LIMIT;
use banksman_core::route::{Pattern, Route, Then};
use banksman_core::worker::{Definition, Job};
use banksman_core::{Name, Span};

use super::read::{Spot, View};
use super::run_command::push_of;
use super::{Build, Uses, VariableScope, own};
use crate::WORKER_VARS;
use crate::diagnostic::{At, Code};
use crate::runbook::{LockTerms, QueueTerms, Runbook, SemaphoreTerms};

/// How long an item waits after the first failed attempt of a worker, unless the worker sets another delay.
const RETRY_DELAY: Span = Span::from_secs(10);

impl<'a> Build<'a, '_> {
    /// Reads the resources that the whole project shares.
    pub(super) fn read_shared(&mut self, root: View<'a>, runbook: &mut Runbook) {
        for (name, view) in named(root, "lock") {
            let terms = LockTerms { ttl: view.span("ttl"), max_hold: view.span("max_hold") };
            if let (Some(ttl), Some(most)) = (terms.ttl, terms.max_hold)
                && ttl > most
            {
                let message = format!("a grant cannot last {ttl} without a heartbeat if it lasts {most} at most");
                self.sink.add(Code::OutOfRange, view.value_at("ttl"), message);
            }
            runbook.locks.extend(own(name).map(|name| (name, terms)));
        }
        for (name, view) in named(root, "semaphore") {
            let Some(capacity) = view.number("capacity") else { continue };
            self.capacities.insert(name, capacity);
            runbook.semaphores.extend(own(name).map(|name| (name, SemaphoreTerms { capacity, ttl: view.span("ttl") })));
        }
        self.read_queues(root, runbook);
    }

    fn read_queues(&mut self, root: View<'a>, runbook: &mut Runbook) {
        let queues = named(root, "queue");
        if let Some((_, extra)) = queues.get(QUEUES_LIMIT) {
            self.sink.add(Code::OutOfRange, extra.at(), format!("a project can have at most {QUEUES_LIMIT} queues"));
        }
        for (name, view) in &queues {
            let terms = QueueTerms {
                visibility_timeout: view.span("visibility_timeout"),
                max_attempts: view.number("max_attempts"),
                dead_letter: view.name("dead_letter"),
                max_length: view.number("max_length"),
            };
            runbook.queues.extend(own(name).map(|name| (name, terms)));
        }
        self.check_dead_letters(&queues);
    }

    /// Dead items must not move in a cycle.
    fn check_dead_letters(&mut self, queues: &[(&'a str, View<'a>)]) {
        let to: BTreeMap<&str, (&str, At)> = queues
            .iter()
            .filter_map(|(name, view)| Some((*name, (view.str("dead_letter")?, view.value_at("dead_letter")))))
            .collect();
        let mut over: BTreeMap<&str, &str> = BTreeMap::new();
        for start in to.keys() {
            let mut chain = vec![*start];
            let mut at = *start;
            while let Some((next, place)) = to.get(at).filter(|_| over.insert(at, start).is_none()) {
                if over.get(next) == Some(start) {
                    chain.push(next);
                    chain.drain(..chain.iter().position(|name| name == next).unwrap_or(0));
                    let message = match chain.len() {
                        2 => format!("the dead items of {next:?} cannot go to itself"),
                        _ => format!("dead items go around for ever: {}", chain.join(" -> ")),
                    };
                    self.sink.add(Code::Cycle, place.clone(), message);
                }
                chain.push(next);
                at = next;
            }
        }
    }

    pub(super) fn read_workers(&mut self, root: View<'a>, runbook: &mut Runbook) {
        for (name, view) in named(root, "worker") {
            let job = self.job(view, runbook);
            let wake_on = view.many("wake_on").into_iter().filter_map(|word| Pattern::new(word.get_ref().as_str()?).ok());
            let concurrency = view.number("concurrency").unwrap_or(1);
            let wake_on = wake_on.collect();
            let Some(((name, queue), job)) = own(name).zip(view.name("queue")).zip(job) else { continue };
            let retry_delay = view.span("retry_delay").unwrap_or(RETRY_DELAY);
            let worker =
                Definition { runbook: self.name.into(), name: name.clone(), queue, job, concurrency, wake_on, retry_delay };
            runbook.workers.insert(name, worker);
        }
    }

    fn job(&mut self, view: View<'a>, runbook: &Runbook) -> Option<Job> {
        if let Some(name) = view.str("pipeline") {
            if view.get("timeout").is_some() {
                let hint = "the phases of a pipeline have a `timeout` of their own";
                self.sink.hint(Code::Conflict, view.key_at("timeout"), "`timeout` beside `pipeline`", hint);
            }
            return self.plan(name, view.value_at("pipeline"), runbook).map(Job::Pipeline);
        }
        let mut uses = Uses::default();
        let run_command = self.run_command(view, &mut uses);
        self.check_uses(&uses, &WORKER_VARS.into(), VariableScope::Worker);
        Some(Job::Task { run_command: run_command?, timeout: view.span("timeout") })
    }

    fn plan(&mut self, name: &str, at: At, runbook: &Runbook) -> Option<Arc<Plan>> {
        let plan = runbook.pipelines.get(name).map(|def| def.plan.clone());
        if plan.is_none() {
            self.no_such("pipeline", name, at, runbook.pipelines.keys().map(Name::as_str));
        }
        plan
    }

    pub(super) fn read_routes(&mut self, root: View<'a>, runbook: &mut Runbook) {
        for (pattern, place, value) in root.view("on").map(|all| all.entries()).unwrap_or_default() {
            let Some(view) = View::of(value) else { continue };
            let mut then = Vec::new();
            for (name, at) in names(view.many("start")) {
                then.extend(self.plan(name, at, runbook).map(Then::Start));
            }
            // The fields of an event are not known here.
            then.extend(view.get("push").and_then(|push| push_of(push, &mut Uses::default())).map(Then::Push));
            for (name, at) in names(view.many("wake")) {
                match runbook.workers.get_key_value(name) {
                    Some((worker, _)) => then.push(Then::Wake(worker.clone())),
                    // A worker with errors was reported already.
                    None if named(root, "worker").iter().any(|(other, _)| *other == name) => {}
                    None => self.no_such("worker", name, at, runbook.workers.keys().map(Name::as_str)),
                }
            }
            then.extend(view.string("notify").map(Then::Notify));
            let Ok(on) = Pattern::new(pattern) else { continue };
            let route = Route { runbook: self.name.into(), on, then };
            if let Err(error) = route.check() {
                self.sink.add(Code::Cycle, place, error.to_string());
            }
            runbook.routes.push(route);
        }
    }
}

/// The tables of one kind, in the order of the file.
fn named<'a>(root: View<'a>, kind: &str) -> Vec<(&'a str, View<'a>)> {
    let all = root.view(kind).map(|all| all.entries()).unwrap_or_default();
    all.into_iter().filter_map(|(name, _, value)| Some((name, View::of(value)?))).collect()
}

fn names<'a>(values: Vec<Spot<'a>>) -> Vec<(&'a str, At)> {
    values.into_iter().filter_map(|value| Some((value.get_ref().as_str()?, value.span()))).collect()
}
