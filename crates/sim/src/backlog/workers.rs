//! Workers and routes that people apply: items, emitted events, and every later change.

use std::collections::BTreeMap;
use std::sync::Arc;

use banksman_core::event::{CustomKind, Event, Source};
use banksman_core::pipeline::plan::{Push, RunCommand};
use banksman_core::queue::{self, Config, Data, Input, New, Part};
use banksman_core::route::{Pattern, Route, Then};
use banksman_core::worker::{Definition, Job};
use banksman_core::{HolderId, ItemId, Name, Span};
use banksman_engine::{ApplyRequest, QueueRequest, Request, WorkerRequest};
use serde_json::{Value, json};

use super::plans::name;
use crate::world::World;

/// How many items people push, and how many events they emit.
const ITEM_LIMIT: u32 = 16;
const EMIT_LIMIT: u32 = 10;

/// The queues that workers take from, and the one for dead items of the first of them.
pub(crate) const QUEUES: [&str; 2] = ["qa", "qb"];
const GRAVES: &str = "graves";

/// The workers: the first makes tasks, the second pipelines.
const WORKERS: [&str; 2] = ["wa", "wb"];

impl World<'_> {
    /// Applies the runbook of workers and routes.
    pub(crate) fn set_up_workers(&mut self) {
        let runbook = self.runbook(true);
        self.operate(runbook);
        for _ in 0..self.random.below(5) {
            let request = self.push();
            self.operate(request);
        }
    }

    /// A runbook with all workers and routes, or with some of them.
    fn runbook(&mut self, is_complete: bool) -> Request {
        let terms = |max_attempts, dead_letter: Option<&str>| Config {
            visibility_timeout: Span::from_secs(20),
            max_attempts,
            dead_letter: dead_letter.map(name),
            max_length: 1_000,
        };
        let queues = BTreeMap::from([
            (name(QUEUES[0]), terms(2, Some(GRAVES))),
            (name(QUEUES[1]), terms(2, None)),
            (name(GRAVES), terms(1, None)),
        ]);
        let timeout = self.random.in_thousand(200).then(|| Span::from_ms(self.random.between(300, 4_000)));
        let task = Job::Task { run_command: RunCommand::Run("true".into()), timeout };
        let pipeline = Job::Pipeline(Arc::new(self.plan()));
        let mut workers = BTreeMap::new();
        for (index, job) in [task, pipeline].into_iter().enumerate() {
            let wake_on = match self.random.below(4) {
                0 => vec!["deploy:*"],
                1 => vec!["deploy:done", "queue:push(qb)"],
                _ => Vec::new(),
            };
            let definition = Definition {
                runbook: "automation".into(),
                name: name(WORKERS[index]),
                queue: name(QUEUES[index]),
                job,
                concurrency: 1 + u32::try_from(self.random.below(3)).expect("small"),
                wake_on: wake_on.into_iter().map(pattern).collect(),
                retry_delay: Span::from_ms(self.random.between(0, 3_000)),
            };
            if is_complete || self.random.in_thousand(700) {
                workers.insert(definition.name.clone(), Arc::new(definition));
            }
        }
        let push = |queue: &str| Then::Push(Push { queue: name(queue), priority: 0, vars: Vec::new() });
        let mut routes = vec![
            ("deploy:done", vec![push("qa"), Then::Notify("it is done".into())]),
            ("queue:dead(qa)", vec![push("qb")]),
            ("task:failed", vec![Then::Notify("look".into())]),
            ("deploy:begun", vec![Then::Start(Arc::new(self.plan()))]),
        ];
        if workers.contains_key(&name("wb")) {
            routes.push(("deploy:*", vec![Then::Wake(name("wb"))]));
        }
        routes.retain(|_| is_complete || self.random.in_thousand(700));
        let route = |(on, then): (&str, Vec<Then>)| Arc::new(Route { runbook: "automation".into(), on: pattern(on), then });
        let routes = routes.into_iter().map(route).collect();
        Request::Apply(Box::new(ApplyRequest {
            runbook: "automation".into(),
            queues,
            workers,
            routes,
            ..ApplyRequest::default()
        }))
    }

    fn push(&mut self) -> Request {
        self.counts.items += 1;
        let delay = if self.random.in_thousand(200) { Span::from_ms(self.random.between(1, 9_000)) } else { Span::ZERO };
        let data = Data::new(json!({ "n": self.counts.items })).expect("it is small");
        let new = New { data, priority: i32::from(self.random.in_thousand(200)), delay, dedupe: None };
        self.queue_request(Input::Push(vec![new]))
    }

    fn queue_request(&mut self, input: Input) -> Request {
        Request::Queue(QueueRequest::new(name(QUEUES[self.random.below(2)]), input))
    }

    /// A random request about workers, their queues, or the events that wake them.
    pub(crate) fn some_worker_request(&mut self) -> Option<Request> {
        let worker = name(WORKERS[self.random.below(2)]);
        Some(match self.random.below(100) {
            0..30 => return (self.counts.items < ITEM_LIMIT).then(|| self.push()),
            30..48 => {
                self.counts.emits += 1;
                let kind =
                    CustomKind::new(["deploy:done", "deploy:begun", "deploy:over"][self.random.below(3)]).expect("a good kind");
                let source = Source { component: "user".into(), id: None };
                let event = Event::Custom { kind, source, data: Value::Object(Default::default()) };
                return (self.counts.emits < EMIT_LIMIT).then_some(Request::Emit(event));
            }
            48..54 => Request::Worker(WorkerRequest::Wake { worker }),
            54..60 => Request::Worker(WorkerRequest::Pause { worker }),
            60..70 => Request::Worker(WorkerRequest::Resume { worker }),
            70..74 => self.queue_request(Input::Pause),
            74..81 => self.queue_request(Input::Resume),
            81..87 => {
                // Mostly a dead item.
                let any = self.random.in_thousand(200);
                let items =
                    self.model.automation.items.iter().filter(|(_, item)| any || item.is_dead() || item.queue.as_str() == GRAVES);
                let items: Vec<(ItemId, Name)> = items.map(|(id, item)| (*id, item.queue.clone())).collect();
                if items.is_empty() {
                    return None;
                }
                let (item, queue) = self.random.pick(&items).clone();
                Request::Queue(QueueRequest::new(queue, Input::Requeue(item)))
            }
            87..91 => {
                let part = *self.random.pick(&[Part::Ready, Part::Backoff, Part::Processing, Part::Dead]);
                self.queue_request(Input::Purge(part, 2))
            }
            // A holder that takes an item and never returns it.
            91..94 => {
                let holder = HolderId::new("ann").expect("a good name");
                self.queue_request(Input::Take { holder, wait: None, ticket: None })
            }
            94..99 => self.runbook(false),
            _ => Request::Apply(Box::new(ApplyRequest { runbook: "automation".into(), ..ApplyRequest::default() })),
        })
    }

    /// Applies the complete runbook, and resumes everything.
    pub(crate) fn settle_workers(&mut self) {
        let runbook = self.runbook(true);
        self.operate(runbook);
        for (queue, worker) in QUEUES.into_iter().zip(WORKERS) {
            self.operate(Request::Queue(QueueRequest::new(name(queue), queue::Input::Resume)));
            self.operate(Request::Worker(WorkerRequest::Resume { worker: name(worker) }));
            self.operate(Request::Worker(WorkerRequest::Wake { worker: name(worker) }));
        }
    }
}

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).expect("a good pattern")
}

/// The reactions of a route to an event, each with a text that no other has for that event.
pub(crate) fn reactions_of(route: &Route) -> impl Iterator<Item = String> {
    route.then.iter().map(|then| match then {
        Then::Push(push) => format!("push {}", push.queue),
        Then::Start(_) => "start".to_owned(),
        Then::Wake(worker) => format!("wake {worker}"),
        Then::Notify(_) => format!("tell of {}", route.on),
    })
}
