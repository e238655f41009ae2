//! Pipelines that people start: plans of all sorts, and every later change to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use banksman_core::event::{Kind, Resource};
use banksman_core::guard::{Cmd, Condition, Guard, GuardAction, Predicate};
use banksman_core::pipeline::plan::{Action, After, Context, OnFail, Phase, Plan, Push, RunCommand, Text};
use banksman_core::pipeline::strategy::{Approach, Fallback};
use banksman_core::queue::{Config, Input};
use banksman_core::task::{Need, Spec, Work};
use banksman_core::{Epoch, Name, Span, TaskId, Title};
use banksman_engine::{PipelineRequest, QueueRequest, Request, Start, TaskRequest};
use serde_json::Value;

use super::outside::{COMMANDS, FILES};
use super::pipeline_model::PipelineState;
use super::users::resources;
use crate::random::Random;
use crate::world::World;

/// The most pipelines that are started.
pub(crate) const PIPELINE_LIMIT: u32 = 12;

/// The names of phases.
const LETTERS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The errors that a strategy may fall back on: parts of the errors of runs.
const ERRORS: [&str; 3] = ["say", "exit", "hand"];

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

/// The queue into which phases push. The other queue that they name is never defined.
pub(crate) fn define_queue() -> Request {
    let config = Config { visibility_timeout: Span::from_secs(30), max_attempts: 3, dead_letter: None, max_length: 1_000 };
    Request::Queue(QueueRequest::new(name("q"), Input::Define(config)))
}

impl World<'_> {
    /// A pipeline started by a person, or by the run of a task.
    pub(crate) fn start_pipeline(&mut self, of: Option<(TaskId, Epoch)>) -> Request {
        self.counts.pipelines += 1;
        let id = TaskId::new(&format!("p{}", self.counts.pipelines)).expect("a good id");
        let plan = self.plan();
        let vars = plan.bind(Context::new()).expect("each variable has a default");
        let section = if self.random.in_thousand(300) { self.some_section() } else { None };
        let (parent, by) = of.unzip();
        let depends_on = if parent.is_some() { Vec::new() } else { self.dependencies(650) };
        let spec = Spec {
            section,
            parent,
            priority: i32::from(self.random.in_thousand(200)),
            work: Some(Work::Pipeline(Arc::new(plan))),
            ..Spec::new(Title::new("a pipeline").expect("a good title"))
        };
        Request::Pipeline(PipelineRequest::Start(Box::new(Start { id, spec, depends_on, vars, by })))
    }

    /// A person changes a pipeline.
    pub(crate) fn change_pipeline(&mut self) -> Option<Request> {
        let open = |id: &&TaskId| !matches!(self.model.pipelines[*id].state, PipelineState::Done | PipelineState::Cancelled);
        let ids: Vec<TaskId> = self.model.pipelines.keys().filter(open).cloned().collect();
        if ids.is_empty() {
            return None;
        }
        let failed = |id: &&TaskId| matches!(self.model.pipelines[*id].state, PipelineState::Failed { .. });
        let failed: Vec<TaskId> = ids.iter().filter(failed).cloned().collect();
        let for_good = |id: &&TaskId| matches!(self.model.pipelines[*id].state, PipelineState::Failed { recoverable: false, .. });
        let for_good: Vec<TaskId> = failed.iter().filter(for_good).cloned().collect();
        let id = self.random.pick(&ids).clone();
        Some(Request::Pipeline(match self.random.below(100) {
            0..10 if !for_good.is_empty() => PipelineRequest::Retry { id: self.random.pick(&for_good).clone() },
            0..30 if !failed.is_empty() => PipelineRequest::Retry { id: self.random.pick(&failed).clone() },
            0..35 => PipelineRequest::Retry { id },
            35..60 => PipelineRequest::Unblock { id, by: Some("ann".into()) },
            60..82 => {
                let value = *self.random.pick(&["la", "lb"]);
                PipelineRequest::Set { id, vars: Context::from([("lock".into(), Value::from(value))]), by: None }
            }
            82..87 => PipelineRequest::Checkpoint { id, message: "so far".into(), by: None },
            _ => return Some(Request::Task(TaskRequest::Cancel { id })),
        }))
    }

    pub(crate) fn plan(&mut self) -> Plan {
        let count = 2 + self.random.below(4);
        let others: Vec<TaskId> = self.model.pipelines.keys().cloned().collect();
        // A phase that needs slots of an undefined semaphore would keep its place among the roots for ever.
        let defined = |resource: &Resource| resource.kind == Kind::Lock || self.model.capacity.contains_key(&resource.name);
        let had: Vec<Resource> = resources().into_iter().filter(defined).collect();
        let mut phases: Vec<Phase> = (0..count).map(|at| phase(at, count, &others, &had, &mut self.random)).collect();
        self.keep_lock(&mut phases);
        let vars = BTreeMap::from([("lock".into(), Some(Value::from("la"))), ("n".into(), Some(Value::from(0)))]);
        Plan { runbook: "book".into(), name: name("way"), vars, phases, land: None }
    }
}

fn phase(at: usize, count: usize, others: &[TaskId], had: &[Resource], random: &mut Random) -> Phase {
    let pre = guards(350, "pre", others, random);
    let post = guards(200, "post", others, random);
    Phase {
        name: name(LETTERS[at]),
        action: action(random),
        pre,
        post,
        needs: needs(had, random),
        keeps: false,
        timeout: random.in_thousand(150).then(|| Span::from_ms(random.between(300, 4_000))),
        retries: u32::from(random.in_thousand(200)),
        // Guards of every other phase are overdue soon.
        blocked_timeout: (at % 2 == 1).then(|| Span::from_secs(20)),
        output: Vec::new(),
        then: match random.below(100) {
            0..10 if at + 1 < count => After::Phase(name(LETTERS[at + 1 + random.below(count - at - 1)])),
            10..15 => After::Done,
            _ => After::Next,
        },
        on_fail: on_fail(count, random),
    }
}

fn on_fail(count: usize, random: &mut Random) -> OnFail {
    let times = 1 + u32::from(random.in_thousand(400));
    match random.below(100) {
        0..30 => OnFail::Retry { times },
        30..55 => OnFail::Phase { to: name(LETTERS[random.below(count)]), times },
        _ => OnFail::Fail,
    }
}

fn action(random: &mut Random) -> Action {
    let command = || RunCommand::Run("true".into());
    match random.below(100) {
        0..20 => {
            let approaches = (0..2 + random.below(2)).map(|number| Approach {
                name: name(&format!("w{number}")),
                run_command: command(),
                fallback_on: match random.below(100) {
                    0..40 => vec![Fallback::Any],
                    40..65 => vec![Fallback::Error((*random.pick(&ERRORS)).into())],
                    65..80 => vec![Fallback::Timeout],
                    80..90 => vec![Fallback::Timeout, Fallback::Error((*random.pick(&ERRORS)).into())],
                    _ => Vec::new(),
                },
                timeout: random.in_thousand(200).then(|| Span::from_ms(random.between(300, 4_000))),
            });
            Action::Strategy { name: name("ways"), approaches: approaches.collect() }
        }
        20..30 => {
            let queue = name(if random.in_thousand(800) { "q" } else { "nowhere" });
            Action::Push(Push { queue, priority: 0, vars: Vec::new() })
        }
        _ => Action::Do(command()),
    }
}

fn needs(had: &[Resource], random: &mut Random) -> Vec<Need> {
    let mut needs = Vec::new();
    for resource in had {
        if random.in_thousand(50) {
            let name = resource.name.clone();
            needs.push(match resource.kind {
                Kind::Lock => Need::Lock(name),
                Kind::Semaphore => Need::Slots { name, weight: 1 },
            });
        }
    }
    needs
}

fn guards(share: usize, side: &str, others: &[TaskId], random: &mut Random) -> Vec<Guard> {
    if !random.in_thousand(share) {
        return Vec::new();
    }
    let many = 1 + random.below(2);
    let guard = |number| Guard {
        name: name(&format!("{side}{number}")),
        condition: condition(0, others, random),
        on_failure: match random.below(100) {
            0..50 => GuardAction::Block,
            50..60 => GuardAction::Warn,
            60..82 => GuardAction::Retry { delay: Span::from_ms(random.between(200, 4_000)) },
            _ => GuardAction::Fail { message: "no".into() },
        },
        fresh_for: Span::from_ms(random.between(500, 8_000)),
        timeout: Span::from_secs(60),
    };
    (0..many).map(guard).collect()
}

fn condition(depth: usize, others: &[TaskId], random: &mut Random) -> Condition {
    let some_lock = |random: &mut Random| match random.below(3) {
        0 => Text::Literal("la".into()),
        1 => Text::Literal("lb".into()),
        _ => Text::Var { var: "lock".into() },
    };
    match random.below(if depth < 2 { 100 } else { 75 }) {
        0..20 => Condition::Predicate(Predicate::LockFree { lock: some_lock(random) }),
        20..26 => Condition::Predicate(Predicate::LockHeld { lock: some_lock(random), by: None }),
        26..38 => {
            let semaphore = Text::Literal((*random.pick(&["sa", "sb", "nowhere"])).into());
            Condition::Predicate(Predicate::SemaphoreAvailable { semaphore, slots: 1 + u32::from(random.in_thousand(500)) })
        }
        38..55 => Condition::Predicate(Predicate::FileExists { path: Text::Literal((*random.pick(&FILES)).into()) }),
        55..72 => {
            let cmd = Cmd::Run((*random.pick(&COMMANDS)).into());
            Condition::Predicate(Predicate::Command { cmd, expect_success: random.in_thousand(800) })
        }
        72..75 if !others.is_empty() => {
            Condition::Predicate(Predicate::PipelineComplete { pipeline: Text::Literal(random.pick(others).as_str().into()) })
        }
        72..75 => Condition::All(Vec::new()),
        75..83 => Condition::All(parts(depth, others, random)),
        83..93 => Condition::Any(parts(depth, others, random)),
        _ => Condition::Not(Box::new(condition(depth + 1, others, random))),
    }
}

fn parts(depth: usize, others: &[TaskId], random: &mut Random) -> Vec<Condition> {
    (0..1 + random.below(2)).map(|_| condition(depth + 1, others, random)).collect()
}
