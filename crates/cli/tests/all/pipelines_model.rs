//! Pipelines and their tasks agree with a naive model: random calls of people and runners, through two clients, on every
//! database. The model has the pure machine for the pipeline itself, and a list of how each task stands beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use banksman_core::backlog::Edge;
use banksman_core::guard::{Condition, Guard, GuardAction, GuardInputs, Wants};
use banksman_core::pipeline::plan::{Action, After, Context, Deed, OnFail, Phase, Plan, Push, Text};
use banksman_core::pipeline::strategy::{Approach, Fallback};
use banksman_core::pipeline::{End, Input, Outcome, Pipeline, Reason, Recheck, State, Verdict};
use banksman_core::queue::{self, Data, New};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::grant::{Ask, GrantRequest};
use banksman_core::resource::lock;
use banksman_core::task::{self, Mark, Spec, Work};
use banksman_core::{Epoch, HolderId, Lease, Name, Now, Seq, Span, Status, TaskId};
use banksman_engine::{
    Judgement, PipelineOutcome, PipelineRequest, QueueRequest, Reply, Request, Seen, Start, TaskOutcome, TaskRequest,
};
use banksman_runtime::Client;
use banksman_store::{Keep, Reader};
use serde_json::{Value, json};

use crate::conformance::Dice;
use crate::world::World;

/// How many items fit into the queue.
const LENGTH: usize = 4;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn vars(value: Value) -> Context {
    serde_json::from_value(value).unwrap()
}

/// What there is, as far as it can be known without a database.
#[derive(Default)]
struct Model {
    pipelines: BTreeMap<TaskId, Pipeline>,
    /// How each task stands that is not that of a pipeline.
    tasks: BTreeMap<TaskId, Status>,
    edges: BTreeMap<TaskId, Vec<TaskId>>,
    locks: BTreeMap<&'static str, Epoch>,
    items: usize,
    /// An answer of guards that somebody has not told yet.
    stale: Option<Judgement>,
}

impl Model {
    fn status(&self, id: &TaskId) -> Option<Status> {
        let of = |pipeline: &Pipeline| match &pipeline.state {
            State::Init | State::Blocked { reason: Reason::Dependencies, .. } => Status::Pending,
            State::Checking { .. } | State::Running { .. } => Status::InProgress,
            State::Blocked { .. } => Status::Blocked,
            State::Done => Status::Completed,
            State::Failed { .. } => Status::Failed,
            State::Cancelled { .. } => Status::Cancelled,
        };
        self.pipelines.get(id).map(of).or_else(|| self.tasks.get(id).copied())
    }

    fn ids(&self) -> Vec<TaskId> {
        self.pipelines.keys().chain(self.tasks.keys()).cloned().collect()
    }

    fn is_met(&self, id: &TaskId) -> bool {
        self.edges.get(id).into_iter().flatten().all(|on| self.status(on) == Some(Status::Completed))
    }

    fn step(&mut self, id: &TaskId, input: Input) -> Outcome {
        let pipeline = self.pipelines.remove(id).unwrap();
        let step = pipeline.step(input, &Now::default());
        step.state.check();
        self.pipelines.insert(id.clone(), step.state);
        if let Outcome::Begin(task) = &step.outcome {
            assert_eq!(self.tasks.insert(task.clone(), Status::Pending), None, "a task of its own");
        }
        step.outcome
    }

    /// The pipeline that a task is a phase of.
    fn host(id: &TaskId) -> Option<TaskId> {
        id.as_str().rsplit_once('.').map(|(host, _)| TaskId::new(host).unwrap())
    }

    /// A task is over, or gone.
    fn over(&mut self, id: &TaskId, end: End) {
        if let Some(host) = Model::host(id).filter(|host| self.pipelines.contains_key(host)) {
            self.step(&host, Input::Ended { task: id.clone(), end, runs: 1 });
        }
    }

    /// What guards say: each is about one lock.
    fn verdict(&self, guards: &[Guard]) -> Verdict {
        let is_held = |guard: &&Guard| {
            let Condition::LockFree { lock: Text::Literal(lock) } = &guard.condition else { unreachable!() };
            self.locks.contains_key(&**lock)
        };
        match guards.iter().find(is_held).map(|guard| (guard.name.clone(), guard.on_failure.clone())) {
            None => {
                let recheck = Some(Recheck { guards: guards.to_vec(), fresh_until: Lease(i64::MAX) });
                Verdict::Pass { warnings: Vec::new(), recheck }
            }
            Some((guard, GuardAction::Fail { message })) => Verdict::Fail { guard, message, part: "".into() },
            Some((guard, _)) => Verdict::Block { guard, part: "".into(), again: Default::default(), asks_outside: false },
        }
    }
}

/// What is compared of a pipeline: all but the moments, and the words in which a guard says no.
fn plain(pipeline: &Pipeline) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut state = pipeline.state.clone();
    match &mut state {
        State::Blocked { reason: reason @ Reason::Guard { .. }, .. } => {
            *reason = reason.timeless();
            if let Reason::Guard { part, .. } = reason {
                *part = "".into();
            }
        }
        State::Failed { error, recoverable: false, .. } => *error = error.split('(').next().unwrap().into(),
        _ => {}
    }
    let said: Vec<_> = pipeline.checkpoints.iter().map(|said| (said.phase.clone(), said.message.clone())).collect();
    (state, pipeline.attempt, pipeline.tasks, pipeline.context.clone(), pipeline.failures.clone(), said)
}

fn guards(dice: &mut Dice) -> Vec<Guard> {
    let one = |dice: &mut Dice| {
        let lock = dice.pick(&["a", "b"]);
        let on_failure = if dice.chance(8) { GuardAction::Fail { message: "no".into() } } else { GuardAction::Block };
        let condition = Condition::LockFree { lock: Text::Literal(lock.into()) };
        Guard { name: name(lock), condition, on_failure, fresh_for: Span::from_secs(30), timeout: Span::from_secs(1) }
    };
    if dice.chance(3) { vec![one(dice)] } else { Vec::new() }
}

fn plan(dice: &mut Dice) -> Plan {
    let count = 1 + dice.roll(4);
    let title = |number: u64| name(&format!("phase-{number}"));
    let run = || Deed::Run("true".into());
    let approach = |text: &str, fallback_on| Approach { name: name(text), deed: run(), fallback_on, timeout: None };
    let phases = (0..count).map(|number| Phase {
        name: title(number),
        action: match dice.roll(6) {
            0 => Action::Push(Push { queue: name(dice.pick(&["q", "q", "nowhere"])), priority: 0, vars: Vec::new() }),
            1 => Action::Strategy {
                name: name("s"),
                approaches: vec![approach("x", vec![Fallback::Error("^no$".into())]), approach("y", Vec::new())],
            },
            _ => Action::Do(run()),
        },
        pre: guards(dice),
        post: guards(dice),
        needs: Vec::new(),
        keeps: false,
        timeout: None,
        retries: 0,
        blocked_timeout: None,
        output: Vec::new(),
        then: match dice.roll(8) {
            0 => After::Phase(title(dice.roll(count))),
            1 => After::Done,
            _ => After::Next,
        },
        on_fail: match dice.roll(4) {
            0 => OnFail::Retry { times: 1 },
            1 => OnFail::Phase { to: title(dice.roll(count)), times: 2 },
            _ => OnFail::Fail,
        },
    });
    let phases = phases.collect();
    Plan { runbook: "book".into(), name: name("way"), vars: BTreeMap::new(), phases }
}

struct Play {
    clients: Vec<Client>,
    reader: Reader,
    model: Model,
    dice: Dice,
    number: u32,
    /// What was asked, for the message of a failure.
    asked: Vec<String>,
}

impl Play {
    fn call(&mut self, request: Request) -> Reply {
        self.asked.push(format!("{request:?}"));
        let client = usize::try_from(self.dice.roll(2)).unwrap();
        self.clients[client].call(request).unwrap()
    }

    fn ask(&mut self, request: PipelineRequest) -> PipelineOutcome {
        match self.call(Request::Pipeline(request)) {
            Reply::Pipeline(outcome) => outcome,
            reply => panic!("{reply:?}"),
        }
    }

    fn by_hand(&mut self, request: TaskRequest) -> TaskOutcome {
        match self.call(Request::Task(request)) {
            Reply::Task(outcome) => outcome,
            reply => panic!("{reply:?}"),
        }
    }

    fn fresh(&mut self, letter: char) -> TaskId {
        self.number += 1;
        TaskId::new(&format!("{letter}-{}", self.number)).unwrap()
    }

    fn some(&mut self) -> Option<TaskId> {
        let ids: Vec<TaskId> = self.model.pipelines.keys().cloned().collect();
        (!ids.is_empty()).then(|| self.dice.pick(&ids))
    }

    fn start(&mut self) {
        let plan = Arc::new(plan(&mut self.dice));
        let id = self.fresh('p');
        let ids = self.model.ids();
        let count = if ids.is_empty() { 0 } else { self.dice.roll(3) };
        let on: BTreeSet<TaskId> = (0..count).map(|_| self.dice.pick(&ids)).collect();
        let unmet = !on.iter().all(|on| self.model.status(on) == Some(Status::Completed));
        let edges = on.iter().map(|on| Edge { on: on.clone(), allow_failed: false }).collect();
        let context = vars(json!({ "title": "x" }));
        let start = Start {
            id: id.clone(),
            spec: Spec { work: Some(Work::Pipeline(Arc::clone(&plan))), ..Spec::new(id.as_str().parse().unwrap()) },
            depends_on: edges,
            context: context.clone(),
            by: None,
        };
        let said = self.ask(PipelineRequest::Start(Box::new(start)));
        self.model.pipelines.insert(id.clone(), Pipeline::new(id.clone(), plan, context, &Now::default()));
        self.model.edges.insert(id.clone(), on.into_iter().collect());
        self.agree(&id, Input::Start { unmet }, said);
    }

    /// The machine answers the same.
    fn agree(&mut self, id: &TaskId, input: Input, said: PipelineOutcome) {
        let expected = self.model.step(id, input);
        let PipelineOutcome::Stepped(outcome, pipeline) = said else { panic!("{said:?} instead of {expected:?}") };
        assert_eq!(outcome, expected);
        assert_eq!(plain(&pipeline), plain(&self.model.pipelines[id]));
    }

    fn begin(&mut self, id: TaskId) {
        let said = self.ask(PipelineRequest::Begin { id: id.clone(), needs: Vec::new(), seen: Seen::default() });
        match self.model.status(&id) == Some(Status::Pending) && self.model.is_met(&id) {
            true => self.agree(&id, Input::Begin, said),
            false => assert!(matches!(said, PipelineOutcome::Waits(_)), "{said:?}"),
        }
    }

    /// What a runner does for a pipeline whose guards are to be looked at, or that pushes an item.
    fn advance(&mut self, id: TaskId) {
        let pipeline = self.model.pipelines[&id].clone();
        match &pipeline.state {
            State::Running { phase, task: None, .. } => {
                let Some(Action::Push(push)) = pipeline.plan.phase(phase).map(|phase| &phase.action) else { panic!("{phase}") };
                let data = Data::parse("{}").unwrap();
                let item = Ok(Box::new(New { data, priority: 0, delay: Span::ZERO, dedupe: None }));
                let queue = push.queue.clone();
                let is_there = queue.as_str() == "q";
                let left = pipeline.recheck.as_ref().map(|recheck| recheck.guards.clone()).unwrap_or_default();
                let mut asks = Wants::default();
                left.iter().for_each(|guard| asks.extend(guard.wants(&pipeline.context)));
                let phase = phase.clone();
                let said = self.ask(PipelineRequest::Push { id: id.clone(), phase: phase.clone(), queue, item, asks });
                if !matches!(self.model.verdict(&left), Verdict::Pass { .. }) {
                    return self.agree(&id, Input::CheckAgain { phase }, said);
                }
                let error = match is_there {
                    false => Some("there is no queue nowhere".into()),
                    true if self.model.items == LENGTH => Some("queue q is full".into()),
                    true => {
                        self.model.items += 1;
                        None
                    }
                };
                self.agree(&id, Input::Pushed { phase: phase.clone(), error }, said);
            }
            State::Checking { phase, when } | State::Blocked { phase, when, reason: Reason::Guard { .. } } => {
                let inputs = GuardInputs { vars: pipeline.context.clone(), ..GuardInputs::default() };
                let guards = pipeline.guards().to_vec();
                let judgement = Judgement {
                    by: pipeline.looker.clone(),
                    id,
                    phase: phase.clone(),
                    when: *when,
                    tasks: pipeline.tasks,
                    held: None,
                    guards,
                    inputs,
                    seen: Seen::default(),
                    at: Seq(0),
                    is_moot: false,
                };
                // Sometimes it comes late.
                let now = match self.dice.chance(4) {
                    true => self.model.stale.replace(judgement),
                    false => Some(judgement),
                };
                now.into_iter().for_each(|judgement| self.judge(judgement));
            }
            _ => self.model.stale.take().into_iter().for_each(|judgement| self.judge(judgement)),
        }
    }

    fn judge(&mut self, judgement: Judgement) {
        let id = judgement.id.clone();
        let said = self.ask(PipelineRequest::Judge(Box::new(judgement.clone())));
        let Some(pipeline) = self.model.pipelines.get(&id) else {
            return assert_eq!(said, PipelineOutcome::Unknown);
        };
        let (phase, when) = (judgement.phase, judgement.when);
        let input = match pipeline.context == judgement.inputs.vars && pipeline.tasks == judgement.tasks {
            false => Input::Look,
            true => Input::Examined { phase, when, verdict: self.model.verdict(&judgement.guards), at: judgement.at },
        };
        self.agree(&id, input, said);
    }

    fn conclude(&mut self, id: TaskId) {
        let is_well = !self.dice.chance(3);
        let output = json!({ "n": self.dice.roll(3) });
        let error: Box<str> = self.dice.pick(&["no", "never"]).into();
        let verdict = match is_well {
            true => task::Verdict::Done { output: Some(output.clone()) },
            false => task::Verdict::Failed { error: error.clone() },
        };
        let said = self.by_hand(TaskRequest::Conclude { id: id.clone(), epoch: None, by: None, verdict });
        if self.model.tasks.get(&id) != Some(&Status::Pending) {
            let is_refused = |outcome: &task::Outcome| matches!(outcome, task::Outcome::HasPhases | task::Outcome::Over(_));
            assert!(matches!(&said, TaskOutcome::Stepped(outcome, _) if is_refused(outcome)), "{said:?}");
            return;
        }
        self.model.tasks.insert(id.clone(), if is_well { Status::Completed } else { Status::Failed });
        let end = match is_well {
            true => End::Success { output: Some(output) },
            false => End::Failed { error, tail: "".into(), timed_out: false },
        };
        self.model.over(&id, end);
    }

    fn cancel(&mut self, id: TaskId) {
        self.by_hand(TaskRequest::Cancel { id: id.clone() });
        if let Some(pipeline) = self.model.pipelines.get(&id) {
            if !pipeline.is_over() {
                self.model.step(&id, Input::Cancel);
            }
            let children = self.model.tasks.iter_mut().filter(|(task, _)| Model::host(task).as_ref() == Some(&id));
            children.filter(|(_, status)| !status.is_over()).for_each(|(_, status)| *status = Status::Cancelled);
        } else if self.model.tasks[&id] == Status::Pending {
            self.model.tasks.insert(id.clone(), Status::Cancelled);
            self.model.over(&id, End::Dropped { how: "cancelled".into() });
        }
    }

    fn skip(&mut self, id: TaskId) {
        self.by_hand(TaskRequest::Set { id: id.clone(), by: None, mark: Mark::Skipped });
        if self.model.tasks.get(&id) == Some(&Status::Pending) {
            self.model.tasks.insert(id.clone(), Status::Skipped);
            self.model.over(&id, End::Dropped { how: "skipped".into() });
        }
    }

    fn again(&mut self, id: TaskId) {
        self.by_hand(TaskRequest::Retry { id: id.clone() });
        if Model::host(&id).is_none() && self.model.tasks.contains_key(&id) {
            self.model.tasks.insert(id, Status::Pending);
        }
    }

    fn delete(&mut self, id: TaskId) {
        let said = self.by_hand(TaskRequest::Delete { id: id.clone(), force: false });
        // The phases of a pipeline go with it, once it is over.
        let is_underway = matches!(self.model.status(&id), Some(Status::InProgress | Status::Blocked));
        let phases = self.model.tasks.keys().filter(|task| Model::host(task).as_ref() == Some(&id));
        let gone: BTreeSet<TaskId> = phases.chain([&id]).cloned().collect();
        let waits = |(task, on): (&TaskId, &Vec<TaskId>)| !gone.contains(task) && on.iter().any(|on| gone.contains(on));
        let has_dependents = self.model.edges.iter().any(waits);
        assert_eq!(said == TaskOutcome::Deleted, !is_underway && !has_dependents, "{said:?}");
        if said == TaskOutcome::Deleted {
            self.model.pipelines.remove(&id);
            for task in gone {
                self.model.edges.remove(&task);
                self.model.tasks.remove(&task);
                self.model.over(&task, End::Dropped { how: "deleted".into() });
            }
        }
    }

    fn lock(&mut self) {
        let lock = self.dice.pick(&["a", "b"]);
        let holder = HolderId::new("ann").unwrap();
        let input = match self.model.locks.remove(lock) {
            Some(epoch) => lock::Input::Release { holder, epoch },
            None => lock::Input::Acquire(Box::new(Ask::new(GrantRequest::new(holder)))),
        };
        let is_acquire = matches!(input, lock::Input::Acquire(_));
        self.call(Request::plain(Command::Lock(name(lock), input)));
        if is_acquire {
            let fence = self.reader.view().snapshot().unwrap().coordination.locks[&name(lock)].fence;
            self.model.locks.insert(lock, fence);
        }
    }

    fn act(&mut self) {
        let any = {
            let ids = self.model.ids();
            (!ids.is_empty()).then(|| self.dice.pick(&ids))
        };
        let (Some(id), Some(any)) = (self.some(), any) else { return self.start() };
        // What is under way is ended more often than what is over.
        let open: Vec<TaskId> =
            self.model.tasks.iter().filter(|(_, status)| !status.is_over()).map(|(id, _)| id.clone()).collect();
        let task = if open.is_empty() || self.dice.chance(5) { any.clone() } else { self.dice.pick(&open) };
        match self.dice.roll(24) {
            0 | 1 => self.start(),
            2 => {
                let id = self.fresh('t');
                let spec = Box::new(Spec::new("by hand".parse().unwrap()));
                self.by_hand(TaskRequest::Add { id: id.clone(), spec, depends_on: Vec::new(), by: None });
                self.model.tasks.insert(id, Status::Pending);
            }
            3..=5 => self.begin(id),
            6..=9 => self.advance(id),
            10..=14 => self.conclude(task),
            15 if self.dice.chance(3) => self.cancel(task),
            15 => self.skip(task),
            16 => self.again(any),
            17 if self.dice.chance(3) => self.delete(task),
            17 => self.lock(),
            18 => {
                let size = if self.dice.chance(5) { banksman_core::pipeline::plan::CONTEXT_LIMIT } else { 1 };
                let vars = vars(json!({ "set": "x".repeat(size) }));
                let said = self.ask(PipelineRequest::Set { id: id.clone(), vars: vars.clone(), by: None });
                self.agree(&id, Input::Set(vars), said);
            }
            19 => {
                let said = self.ask(PipelineRequest::Checkpoint { id: id.clone(), message: "half".into(), by: None });
                self.agree(&id, Input::Checkpoint("half".into()), said);
            }
            20 => {
                let said = self.ask(PipelineRequest::Unblock { id: id.clone(), by: None });
                self.agree(&id, Input::Unblock { by: None }, said);
            }
            21 | 22 => {
                let said = self.ask(PipelineRequest::Retry { id: id.clone() });
                self.agree(&id, Input::Retry, said);
            }
            _ => self.lock(),
        }
    }

    fn compare(&mut self) {
        let rows = self.reader.view().everything().unwrap();
        rows.backlog.check();
        let found: BTreeMap<&TaskId, Status> = rows.backlog.tasks.iter().map(|(id, task)| (id, task.status())).collect();
        let ids = self.model.ids();
        let expected: BTreeMap<&TaskId, Status> = ids.iter().map(|id| (id, self.model.status(id).unwrap())).collect();
        assert_eq!(found, expected);
        assert!(rows.backlog.pipelines.keys().eq(self.model.pipelines.keys()));
        for (id, pipeline) in &rows.backlog.pipelines {
            assert_eq!(plain(pipeline), plain(&self.model.pipelines[id]));
        }
        assert_eq!(rows.queues.items.len(), self.model.items);
        assert_eq!(self.reader.view().compare_with_log().unwrap(), Vec::<String>::new());
    }
}

/// Tells what led to a failure.
impl Drop for Play {
    #[expect(clippy::print_stderr, reason = "it is all that is left to read of a history that fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = self.asked.len().saturating_sub(3);
            eprintln!("the last calls: {:#?}", &self.asked[last..]);
        }
    }
}

pub(crate) fn history(seed: u64, calls: usize) {
    let world = World::new();
    let client = || Client::open_with(&world.project(), Box::new(|_| {})).unwrap();
    let mut store = world.project().open_store().unwrap();
    let mut play = Play {
        clients: vec![client(), client()],
        reader: world.project().reader().unwrap(),
        model: Model::default(),
        dice: Dice(seed),
        number: 0,
        asked: vec![format!("seed {seed}")],
    };
    let max_length = u32::try_from(LENGTH).unwrap();
    let config = queue::Config { visibility_timeout: Span::from_secs(9), max_attempts: 1, dead_letter: None, max_length };
    play.call(Request::Queue(QueueRequest::new(name("q"), queue::Input::Define(config))));
    for _ in 0..calls {
        play.act();
        play.compare();
        if play.dice.chance(40) {
            store.compact(Keep::Last(i64::try_from(play.dice.roll(8)).unwrap()), |_| {}).unwrap();
        }
    }
}

#[test]
fn random_calls_about_pipelines_agree_with_a_naive_model() {
    for seed in crate::postgres::seeds(4) {
        history(seed, 120);
    }
}
