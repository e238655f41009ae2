//! Carries out the reactions to events, in one transaction that also moves the cursor in the log, so that each is done once.

use std::sync::Arc;

use banksman_core::backlog::Backlog;
use banksman_core::decision::{self, About};
use banksman_core::event::Event;
use banksman_core::pipeline::plan::{Bound, Plan};
use banksman_core::queue::{self, Pushed};
use banksman_core::route::{Does, Reaction, RouteFact};
use banksman_core::task::{Spec, Work};
use banksman_core::{Decision, DecisionId, Effect, Name, Notice, NoticeKind, OutboxCommand, Seq, Span, TaskId, worker};
use banksman_store::{Automation, Key, Tx};

use crate::calls::pipelines::{self, Start};
use crate::calls::queues::step_queue;
use crate::calls::steps::{carry_out, emit, wake_runners, withdraw};
use crate::calls::workers::step_worker;

/// A part of the log that was routed, and the reactions to it.
#[derive(Debug, Clone)]
pub struct RouteRequest {
    /// The last event that was routed before.
    pub from: Seq,
    /// The last event that is routed now.
    pub to: Seq,
    /// The reactions to the events in between, in their order.
    pub reactions: Vec<Reaction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteOutcome {
    Routed,
    /// Another runner was faster.
    Late,
}

impl RouteRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        let of = |reaction: &Reaction| match &reaction.does {
            Does::Wake(worker) => vec![Key::Worker(worker.clone())],
            Does::Push(queue, _) => {
                vec![Key::NamedQueue(queue.clone()), Key::FirstTaker(queue.clone()), Key::WorkerRunners(queue.clone())]
            }
            Does::Start(..) => vec![Key::Sections],
            Does::Notify { .. } | Does::Nothing(_) => Vec::new(),
        };
        let routes = self.reactions.iter().filter_map(|reaction| reaction.route.clone()).map(Key::Route);
        let deep = self.reactions.iter().any(Reaction::is_too_deep).then_some(Key::OpenDecisions);
        self.reactions.iter().flat_map(of).chain(routes).chain(deep).chain([Key::Router, Key::Runners]).collect()
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> RouteOutcome {
        if tx.tables.automation.cursor != self.from {
            return RouteOutcome::Late;
        }
        tx.tables.automation.cursor = self.to;
        for reaction in &self.reactions {
            if !is_wanted(reaction, &tx.tables.automation) {
                continue;
            }
            tx.depth = reaction.depth + 1;
            if reaction.is_too_deep() {
                stop(reaction, tx);
            } else if let Err(error) = react(reaction, tx) {
                emit_fact(reaction, |event| RouteFact::Failed { event, error: error.into() }, tx);
            }
        }
        if !self.reactions.is_empty() {
            wake_runners(tx);
        }
        RouteOutcome::Routed
    }
}

/// Whether a reaction is still wanted: a route that was removed or changed since the events were read does not want it, nor does a
/// worker that fell asleep only after the event.
fn is_wanted(reaction: &Reaction, automation: &Automation) -> bool {
    match (&reaction.route, &reaction.does) {
        (Some(id), _) => automation.routes.routes.get(id).is_some_and(|in_force| in_force.since < reaction.event),
        (None, Does::Wake(worker)) => automation.workers.workers.get(worker).is_some_and(|worker| worker.since < reaction.event),
        (None, _) => true,
    }
}

/// Emits the result of a reaction, if it belongs to a route.
fn emit_fact(reaction: &Reaction, fact: impl FnOnce(Seq) -> RouteFact, tx: &mut Tx) {
    if let Some(id) = &reaction.route {
        emit(tx, Event::Route { id: id.clone(), fact: fact(reaction.event) });
    }
}

/// Stops a reaction because its chain of routes seems to be circular. A person is asked, once for each route.
fn stop(reaction: &Reaction, tx: &mut Tx) {
    let Reaction { event, depth, route, .. } = reaction;
    let error = format!("{depth} routes led to this event, one after the other: the chain was stopped");
    emit_fact(reaction, |event| RouteFact::Failed { event, error: error.into() }, tx);
    let Some(route) = route else { return };
    if open_question(route, &tx.tables.backlog).is_none() {
        let step = decision::ask_about_route(route, *event, *depth, &tx.now(Vec::new(), Span::ZERO));
        carry_out(tx, step.effects, None);
    }
}

/// The open question about a route, if there is one.
fn open_question(route: &str, backlog: &Backlog) -> Option<DecisionId> {
    let is_about = |decision: &&Decision| matches!(&decision.question.about, About::Route(about) if **about == *route);
    backlog.decisions.values().filter(|decision| decision.is_open()).find(is_about).map(|decision| decision.id.clone())
}

/// Removes a route on the decision of a person.
pub(crate) fn remove(route: &str, tx: &mut Tx) {
    if tx.tables.automation.routes.routes.remove(route).is_some() {
        emit(tx, Event::Route { id: route.into(), fact: RouteFact::Removed {} });
    }
}

/// Withdraws the questions about routes that were removed or redefined.
pub(crate) fn withdraw_stale(tx: &mut Tx) {
    let is_stale = |decision: &&Decision| match &decision.question.about {
        About::Route(id) => tx.tables.automation.routes.routes.get(id).is_none_or(|in_force| in_force.since > decision.id.seq()),
        About::Task(_) | About::OutboxCommand(_) | About::Run { .. } | About::Landing { .. } => false,
    };
    let open = tx.tables.backlog.decisions.values().filter(|decision| decision.is_open());
    let stale: Vec<DecisionId> = open.filter(is_stale).map(|decision| decision.id.clone()).collect();
    stale.iter().for_each(|id| withdraw(tx, id));
}

/// Carries out a reaction, or returns why that is impossible.
fn react(reaction: &Reaction, tx: &mut Tx) -> Result<(), String> {
    match &reaction.does {
        Does::Wake(name) => match step_worker(name, worker::Input::Wake, tx) {
            worker::Outcome::Unknown => Err(format!("there is no worker {name}")),
            _ => Ok(()),
        },
        Does::Push(queue, item) => push(queue, item, tx),
        Does::Notify { subject, text } => {
            // The sequence number of the preceding event identifies an outbox command.
            emit_fact(reaction, |event| RouteFact::Notified { event }, tx);
            let notice = Notice { kind: NoticeKind::Route, subject: subject.clone(), text: text.clone() };
            carry_out(tx, vec![Effect::Send(OutboxCommand::Notify(Box::new(notice)))], None);
            Ok(())
        }
        Does::Start(plan, vars) => {
            start(reaction.event, plan, vars.clone(), tx);
            Ok(())
        }
        Does::Nothing(error) => Err(error.to_string()),
    }
}

/// Starts a pipeline. Its id is unique because it contains the number of the event that adds its task.
fn start(event: Seq, plan: &Arc<Plan>, vars: Bound, tx: &mut Tx) {
    let id = TaskId::new(&format!("p-{event}.{}", tx.seq)).expect("two numbers are short and plain");
    let (workspace, land) = plan.place(&vars.context);
    let spec = Spec { work: Some(Work::Pipeline(Arc::clone(plan))), workspace, land, ..Spec::new(plan.title(&vars.context)) };
    pipelines::begin_life(&Start { id, spec, depends_on: Vec::new(), vars, by: None }, tx);
}

fn push(queue: &Name, item: &queue::New, tx: &mut Tx) -> Result<(), String> {
    match step_queue(queue, queue::Input::Push(vec![item.clone()]), tx) {
        queue::Outcome::Pushed(pushed) if pushed.contains(&Pushed::Full) => Err(format!("the queue {queue} is full")),
        queue::Outcome::Pushed(_) => Ok(()),
        _ => Err(format!("there is no queue {queue}")),
    }
}
