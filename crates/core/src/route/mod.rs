//! Routes: subscriptions to events, and what follows from them.
//!
//! ```text
//!   the log --> one event after the other --> route(event, subscriptions) --> reactions --> one transaction, which also
//!                                                                                           moves the cursor in the log
//! ```
//!
//! Routing is pure: the same events and subscriptions give the same reactions, in the order of the events and, for one
//! event, in the order of the subscriptions. Laws: events before a subscription do not reach it; a route never acts on
//! events about the very object that it acts on, nor on events about routes, or it would feed itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use strum::{IntoStaticStr, VariantNames};
use thiserror::Error;

use crate::event::Event;
use crate::ids::{Name, Seq};
use crate::pipeline::plan::{BindError, Bound, Context, Plan, Push};
use crate::queue::{Data, DataError, New};
use crate::time::{Span, Wall};

/// A pattern for events: `pipeline:phase(merge)`, `queue:push`, `deploy:*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Box<str>", into = "Box<str>")]
pub struct Pattern {
    /// The category; any if there is none.
    pub category: Option<Box<str>>,
    /// The action; any if there is none.
    pub action: Option<Box<str>>,
    /// The subject: the name of the lock, queue, worker, pipeline or phase, the id of the task or pipeline.
    pub argument: Option<Box<str>>,
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a pattern is written category:action, category:action(argument), category:* or *, not {0:?}")]
pub struct PatternError(pub Box<str>);

/// The actions for the events that a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The runbook that it is from.
    pub runbook: Box<str>,
    pub on: Pattern,
    pub then: Vec<Then>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Then {
    /// A pipeline starts. Its variables get their values from the fields of the event's data with the same names; the
    /// variable `event` gets the complete event.
    Start(Arc<Plan>),
    /// The event is put into a queue.
    Push(Push),
    Wake(Name),
    /// The text of a notification.
    Notify(Box<str>),
}

/// How many routes can follow from each other. Beyond that a chain of them stops, and a person is asked.
pub const DEPTH_LIMIT: u32 = 10;

/// How many routes a project can have.
pub const ROUTES_LIMIT: usize = 10_000;

/// All routes of a project, by their ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes {
    pub routes: BTreeMap<Box<str>, InForce>,
}

/// A route that is applied. The baseline of the log keeps it in this form: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    pub route: Arc<Route>,
    /// The event that defined it: only later events reach it.
    pub since: Seq,
}

/// The events of a route in the log. The variants are the second words of their kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", prefix = "route:")]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum RouteFact {
    /// It was applied, or changed.
    Defined(Arc<Route>),
    /// It is no longer applied.
    Removed {},
    /// A notification was sent.
    Notified { event: Seq },
    /// An action of it could not be carried out.
    Failed { event: Seq, error: Box<str> },
}

/// An event with its place in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub seq: Seq,
    pub wall: Wall,
    pub event: Event,
    /// How many routes led to it, one after the other.
    pub depth: u32,
    /// The definition of the pipeline that it is about, if it is about one.
    pub pipeline: Option<Definition>,
}

/// The definition of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    pub runbook: Box<str>,
    pub name: Box<str>,
}

/// A subscription to events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    pub pattern: Pattern,
    /// Only later events match.
    pub since: Seq,
    pub subscriber: Subscriber,
}

/// The receiver of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subscriber {
    /// A route, with its id.
    Route(Box<str>, Arc<Route>),
    /// A worker, which is woken.
    Worker(Name),
}

/// The result of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaction {
    pub event: Seq,
    /// How many routes led to that event.
    pub depth: u32,
    /// The route, if it is the result of one.
    pub route: Option<Box<str>>,
    pub does: Does,
}

/// An action because of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Does {
    Wake(Name),
    /// A pipeline starts with these variables.
    Start(Arc<Plan>, Bound),
    /// An item is put into a queue.
    Push(Name, New),
    /// The text of a notification.
    Notify {
        /// The event, in a few words.
        subject: Box<str>,
        text: Box<str>,
    },
    /// The action is impossible: the event lacks data for it, or has too much.
    Nothing(Box<str>),
}

/// Why a route would feed itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("it would feed itself: {pattern} is what happens to {what}, which it acts on")]
pub struct FeedsItself {
    pub pattern: Pattern,
    /// The object that it acts on.
    pub what: Box<str>,
}

/// The reactions to an event, in the order of the subscriptions.
pub fn route(heard: &Heard, subscriptions: &[Subscription]) -> Vec<Reaction> {
    let reached = subscriptions.iter().filter(|one| heard.seq > one.since && heard.is_meant_by(&one.pattern));
    let mut reactions = Vec::new();
    for one in reached {
        let mut add = |route: Option<&Box<str>>, does| {
            reactions.push(Reaction { event: heard.seq, depth: heard.depth, route: route.cloned(), does });
        };
        match &one.subscriber {
            Subscriber::Worker(name) if is_about(&heard.event, "worker", name.as_str()) => {}
            Subscriber::Worker(name) => add(None, Does::Wake(name.clone())),
            // Events of routes reach no route: a route for all events would notify of its own notifications.
            Subscriber::Route(..) if matches!(heard.event, Event::Route { .. }) => {}
            Subscriber::Route(id, route) => {
                let then = route.then.iter().filter(|then| !feeds(then, heard));
                then.for_each(|then| add(Some(id), heard.react(then)));
            }
        }
    }
    reactions
}

/// Whether a route acts on the very object that the event is about.
fn feeds(then: &Then, heard: &Heard) -> bool {
    match then {
        Then::Start(plan) => {
            // The tasks of a pipeline are part of it: its own events report their changes.
            let is_phase = matches!(&heard.event, Event::Task { id, .. } if id.as_str().starts_with("p-"));
            let is_own = |own: &Definition| own.runbook == plan.runbook && *own.name == *plan.name.as_str();
            is_phase || heard.pipeline.as_ref().is_some_and(is_own)
        }
        Then::Push(push) => is_about(&heard.event, "queue", push.queue.as_str()),
        Then::Wake(worker) => is_about(&heard.event, "worker", worker.as_str()),
        Then::Notify(_) => false,
    }
}

/// Whether an event is about this worker or queue.
fn is_about(event: &Event, category: &str, name: &str) -> bool {
    event.kind().split(':').next() == Some(category) && event.arguments().iter().any(|argument| &**argument == name)
}

impl Reaction {
    /// Whether the chain of routes is so long that this reaction must not follow: what it would start or push could
    /// come back to it.
    pub fn is_too_deep(&self) -> bool {
        self.depth >= DEPTH_LIMIT && matches!(self.does, Does::Start(..) | Does::Push(..))
    }
}

impl Heard {
    /// Whether a pattern matches it. A pipeline is known by its name, too.
    pub fn is_meant_by(&self, pattern: &Pattern) -> bool {
        let name = self.pipeline.as_ref().map(|definition| definition.name.clone());
        pattern.fits(&self.event, name.as_deref())
    }

    /// The event in the form for people and programs.
    pub fn json(&self) -> Value {
        let (component, id) = self.event.source();
        let data: Value = serde_json::from_str(&self.event.data()).unwrap_or_default();
        let source = match id {
            Some(id) => json!({ "component": component, "id": id }),
            None => json!({ "component": component }),
        };
        json!({ "id": self.seq, "kind": self.event.kind(), "timestamp": self.wall.utc(), "source": source, "data": data })
    }

    /// Its data as variables, and the complete event as `event`.
    fn variables(&self) -> Context {
        let event = self.json();
        let mut variables: Context = match &event["data"] {
            Value::Object(fields) => fields.iter().map(|(name, value)| (name.as_str().into(), value.clone())).collect(),
            _ => Context::new(),
        };
        variables.insert("event".into(), event);
        variables
    }

    fn react(&self, then: &Then) -> Does {
        match then {
            Then::Start(plan) => match plan.bind_known(self.variables()) {
                Ok(vars) => Does::Start(Arc::clone(plan), vars),
                Err(error) => Does::Nothing(unbound(plan, &error)),
            },
            Then::Push(push) => match self.item(push) {
                Ok(data) => {
                    Does::Push(push.queue.clone(), New { data, priority: push.priority, delay: Span::ZERO, dedupe: None })
                }
                Err(error) => Does::Nothing(format!("nothing was put into the queue {}: {error}", push.queue).into()),
            },
            Then::Wake(worker) => Does::Wake(worker.clone()),
            Then::Notify(text) => {
                let id = self.event.source().1.map(|id| format!(" {id}")).unwrap_or_default();
                Does::Notify { subject: format!("{}{id}", self.event.kind()).into(), text: text.clone() }
            }
        }
    }

    /// The event itself, or the requested fields of its data.
    fn item(&self, push: &Push) -> Result<Data, DataError> {
        let value = if push.vars.is_empty() {
            self.json()
        } else {
            let mut variables = self.variables();
            variables.retain(|name, _| push.vars.contains(name));
            json!(variables)
        };
        Data::new(value)
    }
}

fn unbound(plan: &Plan, error: &BindError) -> Box<str> {
    format!("the pipeline {} was not started: {error}", plan.name).into()
}

impl Route {
    /// The id: the runbook and the pattern.
    pub fn id(&self) -> Box<str> {
        format!("{}/{}", self.runbook, self.on).into()
    }

    /// Refuses a route whose pattern names the very object that it acts on. A chain that comes back by way of other
    /// routes is not found: its steps follow from data that is not known here.
    pub fn check(&self) -> Result<(), FeedsItself> {
        for then in &self.then {
            let (category, name, what) = match then {
                Then::Start(plan) => ("pipeline", &plan.name, "the pipeline"),
                Then::Push(push) => ("queue", &push.queue, "the queue"),
                Then::Wake(worker) => ("worker", worker, "the worker"),
                Then::Notify(_) => continue,
            };
            let is_named = self.on.argument.as_deref() == Some(name.as_str());
            if is_named && self.on.category.as_deref().is_none_or(|other| other == category) {
                return Err(FeedsItself { pattern: self.on.clone(), what: format!("{what} {name}").into() });
            }
        }
        Ok(())
    }
}

impl Routes {
    /// Applies a fact.
    pub fn apply(&mut self, seq: Seq, id: &str, fact: RouteFact) {
        match fact {
            RouteFact::Defined(route) => drop(self.routes.insert(id.into(), InForce { route, since: seq })),
            RouteFact::Removed {} => drop(self.routes.remove(id)),
            RouteFact::Notified { .. } | RouteFact::Failed { .. } => {}
        }
    }
}

impl RouteFact {
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}

impl Pattern {
    /// Whether it matches an event.
    pub fn matches(&self, event: &Event) -> bool {
        self.fits(event, None)
    }

    /// As above, for an event whose subject has another name, too.
    fn fits(&self, event: &Event, other: Option<&str>) -> bool {
        let kind = event.kind();
        let (category, action) = kind.split_once(':').map_or((kind, None), |(category, action)| (category, Some(action)));
        let is = |wanted: &Option<Box<str>>, word: Option<&str>| wanted.as_deref().is_none_or(|wanted| Some(wanted) == word);
        is(&self.category, Some(category))
            && is(&self.action, action)
            && self
                .argument
                .as_deref()
                .is_none_or(|argument| other == Some(argument) || event.arguments().iter().any(|about| &**about == argument))
    }

    /// The kind of events that it matches, if it is only one.
    pub fn kind(&self) -> Option<String> {
        match (self.category.as_deref()?, self.action.as_deref()) {
            (category, Some(action)) => Some(format!("{category}:{action}")),
            (category, None) => (category == "escalate").then(|| category.to_owned()),
        }
    }

    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        let wrong = || PatternError(text.into());
        let (kind, argument) = match text.split_once('(') {
            Some((kind, rest)) => (kind, Some(rest.strip_suffix(')').filter(|argument| !argument.is_empty()).ok_or_else(wrong)?)),
            None => (text, None),
        };
        let word = |word: &str| match word {
            "*" => Ok(None),
            _ if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) => {
                Ok(Some(word.into()))
            }
            _ => Err(wrong()),
        };
        let (category, action) = match kind.split_once(':') {
            Some((category, action)) => (word(category)?, word(action)?),
            // The only kind of a single word, and all events.
            None if kind == "escalate" || kind == "*" => (word(kind)?, None),
            None => return Err(wrong()),
        };
        Ok(Pattern { category, action, argument: argument.map(Into::into) })
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.category, &self.action) {
            (None, None) => f.write_str("*")?,
            (Some(category), None) if &**category == "escalate" => f.write_str(category)?,
            (category, action) => {
                write!(f, "{}:{}", category.as_deref().unwrap_or("*"), action.as_deref().unwrap_or("*"))?;
            }
        }
        self.argument.as_ref().map_or(Ok(()), |argument| write!(f, "({argument})"))
    }
}

impl TryFrom<Box<str>> for Pattern {
    type Error = PatternError;
    fn try_from(text: Box<str>) -> Result<Pattern, PatternError> {
        Pattern::new(&text)
    }
}

impl From<Pattern> for Box<str> {
    fn from(pattern: Pattern) -> Box<str> {
        pattern.to_string().into()
    }
}

#[cfg(test)]
mod tests;
