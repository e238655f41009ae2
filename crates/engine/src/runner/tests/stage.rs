//! The test world of the dispatcher: the real store in memory, a manual clock, and files as the test defines them. The tests themselves
//! play the sessions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use banksman_core::backlog::{Backlog, RunEndRecord, Runner};
use banksman_core::pipeline::{Pipeline, Reason, State as Stand};
use banksman_core::resource::grant::Address;
use banksman_core::task::retry::{Marker, OnTimeout, Policy};
use banksman_core::task::{OnExhausted, RunEnd, Spec, State, TaskEnd, Watch, Work as Command};
use banksman_core::{Lease, Limits, Liveness, NoticeKind, ProcessId, RunId, RunnerId, Seq, Span, Stamp, TaskId, Wall};
use banksman_store::test_support::ManualMachine;
use banksman_store::{Key, Snapshot, Store, Tally, sqlite};

use super::{Action, Dispatcher, Input, Options};
use crate::calls::pipelines::PipelineRequest;
use crate::calls::runs::{RunOutcome, RunRequest};
use crate::calls::tasks::TaskRequest;
use crate::calls::workers::WorkerRequest;
use crate::claims::Claim;
use crate::request::{Reply, Request, Seen, TypedRequest};

/// Upper bound on the steps until a runner sleeps: more than any test needs, so that a spinning runner fails.
const STEPS: usize = 1_000;

/// The silence timeout of the tests.
pub(super) const TIMEOUT: Span = Span::from_secs(60);

/// The world around the dispatchers.
pub(super) struct Stage {
    store: Store,
    clock: ManualMachine,
    /// The files DONE.
    pub(super) files: BTreeMap<TaskId, Marker>,
    /// The dead processes.
    pub(super) dead: BTreeSet<ProcessId>,
    /// The addresses that the store has woken.
    woken: BTreeSet<Address>,
    /// The last event: listening runners are notified of it.
    last: Seq,
    /// The statistics of the database.
    pub(super) tally: Arc<Tally>,
    /// The number of wake-ups.
    pub(super) wakes: u64,
    /// Whether all rows are checked after every transaction.
    pub(super) is_checked: bool,
}

/// One runner.
pub(super) struct Actor {
    pub(super) dispatcher: Dispatcher,
    pub(super) row: Runner,
    runs: u32,
    /// Its requests and actions, in words.
    pub(super) trace: Vec<String>,
    /// The actions that the test has to play.
    pub(super) wants: VecDeque<Action>,
    /// The outbox commands which notify people that nothing is left to do.
    pub(super) finishes: BTreeSet<Seq>,
    /// The last event of which it was notified.
    heard: Seq,
}

pub(super) fn task(name: &str) -> TaskId {
    TaskId::new(name).unwrap()
}

pub(super) fn options() -> Options {
    let watch = Watch { timeout: TIMEOUT, max_recoveries: 2, on_exhausted: OnExhausted::Escalate };
    Options { kill_patience: Span::from_secs(15), poll: Span::from_secs(3_600), ..Options::new(watch) }
}

/// A loop with a backoff of a second, whose children have half a minute.
pub(super) fn policy() -> Policy {
    Policy {
        max_attempts: NonZeroU32::new(3).unwrap(),
        delay: Span::from_secs(1),
        child_wait: Span::from_secs(30),
        on_children_timeout: OnTimeout::Kill,
    }
}

pub(super) fn exited(code: i32) -> RunEndRecord {
    RunEndRecord::new(RunEnd::Exited(code), Wall(0), None)
}

impl Stage {
    pub(super) fn new() -> Stage {
        let clock = ManualMachine::at(1_000);
        let tally = Arc::new(Tally::default());
        let store = sqlite::memory(Box::new(clock.clone())).unwrap().counted(&tally);
        let (files, dead, woken) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Stage { store, clock, files, dead, woken, last: Seq(0), tally, wakes: 0, is_checked: true }
    }

    pub(super) fn now(&self) -> Lease {
        Lease(self.clock.now())
    }

    pub(super) fn pass(&self, ms: i64) {
        self.clock.advance(ms);
    }

    pub(super) fn runner(&self, name: &str, options: Options) -> Actor {
        let pid = i32::from(name.as_bytes()[0]);
        let process = ProcessId { host: "host".into(), boot: "boot".into(), pid_ns: 1, pid, start: 1 };
        let id = RunnerId::new(name).unwrap();
        let (max_runs, sections) = (options.max_runs, options.sections.clone());
        let row = Runner { max_runs, sections, ..Runner::new(id, process, Address(name.into()), Stamp::default()) };
        let dispatcher = Dispatcher::new(row.clone(), options);
        Actor { dispatcher, row, runs: 0, trace: Vec::new(), wants: VecDeque::new(), finishes: BTreeSet::new(), heard: Seq(0) }
    }

    /// A runner that was played until it sleeps.
    pub(super) fn start(&mut self, name: &str, options: Options) -> Actor {
        let mut actor = self.runner(name, options);
        self.play(&mut actor);
        actor
    }

    /// Loses all pending wake-ups.
    pub(super) fn forget_wakes(&mut self) {
        self.woken.clear();
    }

    /// Whether a wake-up for a runner is pending.
    pub(super) fn is_woken(&self, actor: &Actor) -> bool {
        self.woken.contains(&actor.row.address)
    }

    /// Kills a runner: its death is visible to probes, but announced to no runner.
    pub(super) fn kill(&mut self, actor: Actor) {
        self.dead.insert(actor.row.process);
    }

    pub(super) fn add(&mut self, name: &str, change: impl FnOnce(&mut Spec)) {
        let mut spec = Spec {
            section: None,
            parent: None,
            labels: Vec::new(),
            priority: 0,
            work: Some(Command::Run("true".into())),
            needs: Vec::new(),
            retries: 0,
            restart: None,
            ..Spec::new(name.parse().unwrap())
        };
        change(&mut spec);
        let request = TaskRequest::Add { id: task(name), spec: Box::new(spec), depends_on: Vec::new(), by: None };
        self.ask(Request::Task(request));
    }

    pub(super) fn add_loop(&mut self, name: &str) {
        self.add(name, |spec| spec.restart = Some(policy()));
    }

    pub(super) fn request<R: TypedRequest>(&mut self, request: R) -> R::Reply {
        R::reply(self.ask(request.into())).expect("a reply to this request")
    }

    pub(super) fn ask(&mut self, request: Request) -> Reply {
        self.ask_all(&[request]).remove(0)
    }

    pub(super) fn ask_all(&mut self, requests: &[Request]) -> Vec<Reply> {
        let mut replies = Vec::new();
        for committed in self.store.batch(requests) {
            let committed = committed.unwrap();
            self.wakes += committed.wakes.len() as u64;
            self.woken.extend(committed.wakes);
            self.last = committed.seq;
            replies.extend(committed.replies);
            if self.is_checked
                && let Err(wrong) = agrees(&self.store.view().everything().unwrap().backlog)
            {
                panic!("{wrong}, after {requests:#?}");
            }
        }
        replies
    }

    /// Lets pipelines begin, although no runner has room for a run.
    pub(super) fn begin_pipelines(&mut self) {
        self.claim_after(Vec::new());
    }

    /// Lets a runner without room for a run claim the ready tasks, after these requests in the same transaction.
    pub(super) fn claim_after(&mut self, first: Vec<Request>) {
        self.claim_runs_after(first, &[]);
    }

    /// Like [`Stage::claim_after`], with room for these runs.
    pub(super) fn claim_runs_after(&mut self, first: Vec<Request>, runs: &[&str]) {
        let runner = Box::new(self.runner("full", options()).row);
        let claim = Claim {
            runner: runner.id.clone(),
            room: runs.len(),
            head: 8,
            runs: runs.iter().map(|run| RunId::new(run).unwrap()).collect(),
            sections: Vec::new(),
            checked: Vec::new(),
            seen: Seen::default(),
        };
        let leave = RunRequest::Retire { runner: runner.id.clone(), seen: Seen::default() };
        let enlist = RunRequest::Enlist { runner, limits: Limits::NONE };
        let claim = [enlist, RunRequest::Claim(Box::new(claim)), leave].map(Request::from);
        self.ask_all(&[&first[..], &claim].concat());
    }

    pub(super) fn rows(&mut self) -> Backlog {
        self.everything().tables.backlog
    }

    /// All rows, which must be sound and agree with the log.
    pub(super) fn everything(&mut self) -> Snapshot {
        let rows = self.store.view().everything().unwrap();
        rows.backlog.check();
        rows.queues.check();
        rows.automation.workers.check();
        assert_eq!(self.store.view().compare_with_log().unwrap(), Vec::<String>::new());
        assert_eq!(self.store.view().check_counts().unwrap(), Vec::<String>::new());
        let listens = |one: &Pipeline| one.listens().into_iter().map(|to| (one.id.clone(), to, one.knows().unwrap())).collect();
        let listeners: BTreeSet<_> = rows.backlog.pipelines.values().flat_map(|one| -> Vec<_> { listens(one) }).collect();
        assert_eq!(self.store.view().listeners().unwrap(), listeners, "the listeners follow from the pipelines");
        rows
    }

    pub(super) fn status(&mut self, name: &str) -> String {
        self.rows().tasks[&task(name)].status().to_string()
    }

    pub(super) fn load(&mut self, keys: &BTreeSet<Key>) -> Snapshot {
        self.store.view().load(keys).unwrap()
    }

    /// The number of events of this kind.
    pub(super) fn count_events(&mut self, kind: &str) -> usize {
        let page = self.store.view().events(banksman_core::Seq(0), &Default::default()).unwrap();
        page.events.iter().filter(|event| &*event.kind == kind).count()
    }

    /// Plays a runner until it would sleep, polls a run, or is done. Returns the time that it would sleep.
    pub(super) fn play(&mut self, actor: &mut Actor) -> Option<Span> {
        self.play_with(actor, |_, _| {})
    }

    /// Like [`Stage::play`], with a hook between the rows that the runner has read and each of its calls.
    pub(super) fn play_with(&mut self, actor: &mut Actor, mut between: impl FnMut(&mut Stage, &[Request])) -> Option<Span> {
        for _ in 0..STEPS {
            let Actor { dispatcher, runs, row, .. } = actor;
            dispatcher.give_ids(|| {
                *runs += 1;
                RunId::new(&format!("{}-{runs}", row.id)).unwrap()
            });
            match actor.dispatcher.next(self.now()) {
                Action::Load(keys) => {
                    let rows = self.store.view().load(&keys).unwrap();
                    actor.dispatcher.on(Input::Rows(Box::new(rows)), self.now());
                }
                Action::Probe(processes) => {
                    let probe = |process: &ProcessId| if self.dead.contains(process) { Liveness::Dead } else { Liveness::Alive };
                    let found: Vec<_> = processes.into_iter().map(|process| (process.clone(), probe(&process))).collect();
                    actor.dispatcher.on(Input::Probed(found), self.now());
                }
                Action::Check(tasks) => {
                    let names: Vec<_> = tasks.iter().map(TaskId::as_str).collect();
                    actor.trace.push(format!("check {}", names.join(" ")));
                    let check = |task: TaskId| (task.clone(), self.files.get(&task).cloned().unwrap_or_default());
                    let found: Vec<_> = tasks.into_iter().map(check).collect();
                    actor.dispatcher.on(Input::Checked(found), self.now());
                }
                // The notification that nothing is left has tests of its own.
                Action::Notify(command, notice) if notice.kind == NoticeKind::BacklogFinished => {
                    actor.finishes.insert(command);
                    actor.dispatcher.on(Input::CommandDone(command, Ok(())), self.now());
                }
                Action::Call(requests) => {
                    let is_left_out = |request: &Request| match request {
                        Request::Run(RunRequest::Tried { command, .. }) => actor.finishes.contains(command),
                        _ => false,
                    };
                    between(self, &requests);
                    let replies = self.ask_all(&requests);
                    let named = requests.iter().zip(&replies).filter(|(request, _)| !is_left_out(request));
                    let words: Vec<&str> = named.flat_map(|(request, reply)| names(request, reply)).collect();
                    actor.trace.extend(words.into_iter().map(str::to_owned));
                    actor.dispatcher.on(Input::Replies(replies), self.now());
                }
                Action::Sleep { .. } if actor.dispatcher.listens() && actor.heard < self.last => {
                    actor.heard = self.last;
                    actor.dispatcher.on(Input::NewEvents, self.now());
                }
                Action::Sleep { at_most, .. } => {
                    if !self.woken.remove(&actor.row.address) {
                        assert!(at_most > Span::ZERO, "it spins: {:?}", actor.dispatcher);
                        return Some(at_most);
                    }
                    actor.dispatcher.on(Input::Woken, self.now());
                }
                // The runner continues with the result of the poll.
                Action::Pulse(..) => {
                    actor.trace.push("pulse".into());
                    return Some(Span::ZERO);
                }
                Action::Done => return None,
                action => {
                    let word = match &action {
                        Action::Spawn(work) => format!("spawn {}", work.task.id),
                        Action::Recover(work) => format!("recover {}", work.task.id),
                        Action::Kill(..) => "kill".into(),
                        Action::Nudge(..) => "nudge".into(),
                        Action::Deliver(..) => "deliver".into(),
                        Action::Notify(..) => "notify".into(),
                        Action::Acknowledge(_) => "acknowledge".into(),
                        Action::CheckGuards(pipeline) => format!("gather {}", pipeline.id),
                        Action::Land(target) => format!("land on {target}"),
                        Action::StopGuards(pipeline) => format!("stop check of {pipeline}"),
                        other => format!("{other:?}"),
                    };
                    actor.trace.push(word);
                    actor.wants.push_back(action);
                }
            }
        }
        panic!("it does not come to rest: {:?}", &actor.trace[actor.trace.len().saturating_sub(10)..])
    }

    /// Lets the runner sleep as long as it wants to, and then plays it.
    pub(super) fn sleep(&mut self, actor: &mut Actor) -> i64 {
        let slept = self.play(actor).expect("it is not done").as_ms();
        self.pass(slept);
        self.play(actor);
        slept
    }
}

impl Actor {
    /// Gives an input to the runner, and plays it.
    pub(super) fn notify(&mut self, stage: &mut Stage, input: Input) -> Option<Span> {
        self.dispatcher.on(input, stage.now());
        stage.play(self)
    }

    /// The pipeline whose guards the runner wants to check.
    pub(super) fn guards_to_check(&mut self) -> Box<Pipeline> {
        match self.wants.pop_back() {
            Some(Action::CheckGuards(pipeline)) => pipeline,
            other => panic!("{other:?}"),
        }
    }

    /// The trace since the last call.
    pub(super) fn did(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trace)
    }

    /// The last run that the runner had to start.
    pub(super) fn run(&self) -> RunId {
        let spawned = self.wants.iter().rev().find_map(|action| match action {
            Action::Spawn(work) => Some(work.run.id.clone()),
            _ => None,
        });
        spawned.expect("it has started something")
    }
}

/// The words for a request in the trace. A claim that found nothing has none.
fn names(request: &Request, reply: &Reply) -> Vec<&'static str> {
    if let Reply::Run(RunOutcome::Claimed(claimed)) = reply {
        let begins = (!claimed.began.is_empty()).then_some("begin");
        return begins.into_iter().chain((!claimed.started.is_empty()).then_some("claim")).collect();
    }
    word(request).into_iter().collect()
}

fn word(request: &Request) -> Option<&'static str> {
    match request {
        Request::Run(request) => match request {
            RunRequest::Finish { .. } => Some("finish"),
            RunRequest::Found { .. } => Some("found"),
            RunRequest::MakeReady { .. } => Some("make_ready"),
            RunRequest::Settle { .. } => Some("settle"),
            RunRequest::Tried { error: None, .. } => Some("done"),
            RunRequest::Tried { error: Some(_), .. } => Some("failed"),
            RunRequest::Adopt { .. } => Some("adopt"),
            RunRequest::Retire { .. } => Some("retire"),
            _ => None,
        },
        Request::Task(TaskRequest::Heartbeat { .. }) => Some("heartbeat"),
        Request::Task(TaskRequest::Overtime { .. }) => Some("overtime"),
        Request::Task(TaskRequest::Checkpoint { .. }) => Some("checkpoint"),
        Request::Worker(WorkerRequest::Take { .. }) => Some("take"),
        Request::Worker(WorkerRequest::Settle { .. }) => Some("settle item"),
        Request::Route(_) => Some("route"),
        Request::Pipeline(request) => match request {
            PipelineRequest::BeginCheck { .. } => Some("begin check"),
            PipelineRequest::CheckGuards(_) => Some("check guards"),
            PipelineRequest::Push { .. } => Some("push"),
            _ => None,
        },
        _ => None,
    }
}

/// Checks, after every transaction, that each pipeline agrees with its own task and with the task of its phase.
fn agrees(backlog: &Backlog) -> Result<(), String> {
    for (id, pipeline) in &backlog.pipelines {
        let parent = &backlog.tasks[id].state;
        let current = pipeline.task().map(|task| (task, &backlog.tasks[task].state));
        let is_parked = matches!(current, Some((_, State::AwaitingDecision { .. })));
        let is_asked = matches!(&pipeline.state, Stand::Blocked { reason: Reason::Decision { .. }, .. });
        let is_right = match &pipeline.state {
            Stand::Init | Stand::Blocked { reason: Reason::Dependencies, .. } => *parent == State::Pending,
            Stand::Checking { .. } | Stand::Running { .. } => *parent == State::InPhases { is_blocked: false },
            Stand::Blocked { .. } => *parent == State::InPhases { is_blocked: true },
            Stand::Done => matches!(parent, State::Done(TaskEnd::Success { .. })),
            Stand::Failed { .. } => matches!(parent, State::Done(TaskEnd::Failed { .. })),
            Stand::Cancelled { .. } => matches!(parent, State::Done(TaskEnd::Cancelled)),
        };
        if !is_right {
            return Err(format!("{id} is {:?} and its task {parent:?}", pipeline.state));
        }
        if let Some((task, State::Done(done))) = current {
            return Err(format!("{id} waits for {task}, which is over: {done:?}"));
        }
        if is_parked != is_asked {
            return Err(format!("{id} is {:?} and the task of its phase {current:?}", pipeline.state));
        }
        let open = backlog.tasks.values().filter(|task| task.spec.phase().is_some() && task.spec.parent.as_ref() == Some(id));
        let stray = open.filter(|task| task.live().is_none() && !task.status().is_over() && Some(&task.id) != pipeline.task());
        if let Some(stray) = stray.map(|task| &task.id).next() {
            return Err(format!("{stray} would run, and {id} knows nothing of it"));
        }
    }
    Ok(())
}
