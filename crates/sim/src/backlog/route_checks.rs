//! Checks of routes: every reaction to an event happens, and happens once.

use banksman_core::event::{Event, TaskFact};
use banksman_core::route::RouteFact;
use banksman_core::{Name, Seq, TaskId, queue};
use banksman_engine::{Reply, Request, RouteOutcome};
use serde_json::Value;

use super::worker_model::AutomationModel;
use super::workers::reactions_of;
use crate::commit::CommittedCall;
use crate::commit::Logged;
use crate::report::Checker;
use crate::world::World;

impl AutomationModel {
    /// Whether an event up to `to` owes this reaction.
    pub(crate) fn owes(&self, to: Seq, what: &str) -> bool {
        self.owed.keys().any(|(event, owed)| *event <= to && owed == what)
    }

    /// A route is redefined or removed, so its owed reactions lapse.
    fn lapse(&mut self, route: &str) {
        self.owed.retain(|_, of| **of != *route);
    }
}

impl World<'_> {
    /// After an event: records the reactions that it owes, and settles the one that it is.
    pub(crate) fn observe_reactions(&mut self, logged: &Logged) {
        let (seq, event) = (logged.seq, &logged.event);
        match event {
            Event::Route { id, fact } => self.observe_route(id, fact, seq),
            Event::Queue { name, fact: queue::Fact::Push { data, .. } } if self.call.routed.is_some() => {
                let about = data.value().get("id").and_then(Value::as_i64);
                self.follows(about.map(Seq), &format!("push {name}"));
            }
            Event::Task { id, fact: TaskFact::Added { spec, .. } } if self.call.routed.is_some() && spec.parent.is_none() => {
                self.follows(event_of(id), "start");
            }
            _ => {}
        }
        self.owe(seq, event);
    }

    fn observe_route(&mut self, id: &str, fact: &RouteFact, seq: Seq) {
        self.tally.count(fact.kind());
        let automation = &mut self.model.automation;
        match fact {
            RouteFact::Defined(route) => {
                automation.lapse(id);
                automation.routes.insert(id.into(), (route.clone(), seq));
            }
            RouteFact::Removed {} => {
                automation.lapse(id);
                automation.routes.remove(id);
            }
            RouteFact::Notified { event } => {
                let pattern = id.split_once('/').map_or(id, |(_, pattern)| pattern).to_owned();
                self.follows(Some(*event), &format!("tell of {pattern}"));
            }
            // The queues always exist, and no variable is missing; but a worker may be removed.
            RouteFact::Failed { event, .. } => self.follows(Some(*event), "wake wb"),
        }
    }

    /// An event has had this reaction.
    fn follows(&mut self, event: Option<Seq>, what: &str) {
        self.tally.count("reactions");
        let key = (event.unwrap_or_default(), what.to_owned());
        let automation = &mut self.model.automation;
        let was_owed = automation.owed.remove(&key).is_some();
        self.verdict.expect(Checker::Routes, was_owed, || format!("after event {}: {what}, and nothing asks for that", key.0));
    }

    fn owe(&mut self, seq: Seq, event: &Event) {
        let automation = &mut self.model.automation;
        if !matches!(event, Event::Route { .. }) {
            for (id, (route, since)) in &automation.routes {
                if *since < seq && means(&route.on.to_string(), event) {
                    automation.owed.extend(reactions_of(route).map(|what| ((seq, what), id.clone())));
                }
            }
        }
        for worker in automation.workers.values_mut().filter(|worker| !worker.awake && !worker.removed && worker.since < seq) {
            if worker.wake_on().any(|pattern| means(&pattern, event)) {
                worker.called.get_or_insert(seq);
            }
        }
    }

    /// The routing position has moved on: no reaction to an earlier event is owed any more.
    pub(crate) fn after_routing(&mut self, call: &CommittedCall<'_>) {
        let (Request::Route(request), Reply::Route(RouteOutcome::Routed)) = (call.request, call.reply) else { return };
        let to = request.to;
        let automation = &mut self.model.automation;
        // A worker that is awake needs no waking.
        let is_awake = |what: &str| {
            let worker = what.strip_prefix("wake ").and_then(|name| automation.workers.get(&Name::new(name).ok()?));
            worker.is_some_and(|worker| worker.awake)
        };
        automation.owed.retain(|(event, what), _| *event > to || !is_awake(what));
        let left =
            automation.owed.keys().find(|(event, _)| *event <= to).map(|(event, what)| format!("after event {event}: {what}"));
        let asleep = automation.workers.iter().find(|(_, worker)| worker.called.is_some_and(|event| event <= to));
        let left = left.or_else(|| asleep.map(|(name, worker)| format!("{name} sleeps on after {:?}", worker.called)));
        self.verdict.expect(Checker::Routes, left.is_none(), || {
            format!("the log was routed up to {to}, and this has not followed: {}", left.unwrap_or_default())
        });
    }
}

/// The event for which a route has started a pipeline.
fn event_of(id: &TaskId) -> Option<Seq> {
    let (event, _) = id.as_str().strip_prefix("p-")?.split_once('.')?;
    event.parse().ok().map(Seq)
}

/// Whether a pattern of this simulation matches an event.
fn means(pattern: &str, event: &Event) -> bool {
    let kind = event.kind();
    match pattern {
        "deploy:*" => kind.starts_with("deploy:"),
        "queue:dead(qa)" => matches!(event, Event::Queue { name, fact: queue::Fact::Dead { .. } } if name.as_str() == "qa"),
        "queue:push(qb)" => matches!(event, Event::Queue { name, fact: queue::Fact::Push { .. } } if name.as_str() == "qb"),
        plain => kind == plain,
    }
}
