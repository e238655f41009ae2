//! All requests to a project, as calls of the store.

use banksman_core::event::{Event, Fact};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::grant::Ask;
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::task::State;
use banksman_core::{Effect, Epoch, Limits, LimitsChange, Liveness, Now, ProcessId, Seq, Span, Stamp, TaskId, queue};
use banksman_store::{Call, Granted, Key, Tables, Tx};

use crate::calls::accounts::{AccountOutcome, AccountRequest};
use crate::calls::bus::{PostOutcome, PostRequest};
use crate::calls::decisions::{DecisionOutcome, DecisionRequest};
use crate::calls::imports::{ImportOutcome, ImportRequest};
use crate::calls::landings::{LandingOutcome, LandingRequest, keys_of_landing};
use crate::calls::limits;
use crate::calls::mailbox::{self, MailboxOutcome, MailboxRequest};
use crate::calls::manual::{end_broken, follow_lock, pass_absent, turn_keys};
use crate::calls::pause::{PauseOutcome, PauseRequest};
use crate::calls::pipelines::{PipelineOutcome, PipelineRequest};
use crate::calls::queues::QueueRequest;
use crate::calls::routes::{RouteOutcome, RouteRequest};
use crate::calls::runbooks::{ApplyOutcome, ApplyRequest};
use crate::calls::runs::{RunOutcome, RunRequest};
use crate::calls::sections::{SectionOutcome, SectionRequest};
use crate::calls::steps::wake_watchers;
use crate::calls::tasks::{TaskOutcome, TaskRequest};
use crate::calls::workers::{WorkerOutcome, WorkerRequest};
use crate::calls::workspaces::{WorkspaceOutcome, WorkspaceRequest};
use crate::{facts, wakeups};

/// Declares the requests and the replies. Each listed request has its own type, the form in which the enum keeps it, and an outcome.
macro_rules! requests {
    ($($(#[$doc:meta])* $noun:ident($kept:ty): $request:ty => $outcome:ty;)*) => {
        #[derive(Debug, Clone)]
        pub enum Request {
            /// A command to a lock or a semaphore.
            Coordinate {
                command: Command,
                /// The results of the caller's probes.
                seen: Seen,
            },
            /// Write a user event.
            Emit(Event),
            Queue(QueueRequest),
            /// Change the limits of the project.
            SetLimits {
                change: LimitsChange,
                /// The limits for a project that has none yet.
                seed: Limits,
            },
            $($(#[$doc])* $noun($kept),)*
        }

        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Reply {
            Coordinate {
                outcome: Outcome,
                at: Stamp,
            },
            /// The request id was used before, for another resource or holder.
            RequestReused,
            /// The number of the event that was written.
            Emitted(Seq),
            Queue {
                outcome: queue::Outcome,
                at: Stamp,
            },
            /// The limits as they are now.
            Limits(Limits),
            $($(#[$doc])* $noun($outcome),)*
        }

        impl Request {
            fn own_keys(&self) -> Vec<Key> {
                match self {
                    Request::Coordinate { command, seen } => coordinate_keys(command, seen),
                    Request::Emit(_) => Vec::new(),
                    Request::Queue(request) => request.keys(),
                    Request::SetLimits { .. } => limits::keys(),
                    $(Request::$noun(request) => request.keys(),)*
                }
            }

            fn carry_out(&self, tx: &mut Tx) -> Reply {
                match self {
                    Request::Coordinate { command, seen } => coordinate(command.clone(), seen, tx),
                    Request::Emit(event) => emit(event, tx),
                    Request::Queue(request) => request.decide(tx),
                    Request::SetLimits { change, seed } => Reply::Limits(limits::change(*change, *seed, tx)),
                    $(Request::$noun(request) => Reply::$noun(request.decide(tx)),)*
                }
            }
        }

        $(impl From<$request> for Request {
            fn from(request: $request) -> Request {
                Request::$noun(request.into())
            }
        }

        impl TypedRequest for $request {
            type Reply = $outcome;

            fn reply(reply: Reply) -> Option<$outcome> {
                if let Reply::$noun(reply) = reply { Some(reply) } else { None }
            }
        })*
    };
}

requests! {
    Post(Box<PostRequest>): PostRequest => PostOutcome;
    Mailbox(MailboxRequest): MailboxRequest => MailboxOutcome;
    Section(SectionRequest): SectionRequest => SectionOutcome;
    Task(TaskRequest): TaskRequest => TaskOutcome;
    /// A request of a runner, or about a run.
    Run(RunRequest): RunRequest => RunOutcome;
    /// The answer to a decision.
    Decision(DecisionRequest): DecisionRequest => DecisionOutcome;
    Import(ImportRequest): ImportRequest => ImportOutcome;
    /// A request to a merge queue.
    Landing(LandingRequest): LandingRequest => LandingOutcome;
    Worker(WorkerRequest): WorkerRequest => WorkerOutcome;
    /// The reactions to events.
    Route(RouteRequest): RouteRequest => RouteOutcome;
    /// Apply a runbook.
    Apply(Box<ApplyRequest>): ApplyRequest => ApplyOutcome;
    Pipeline(PipelineRequest): PipelineRequest => PipelineOutcome;
    Workspace(WorkspaceRequest): WorkspaceRequest => WorkspaceOutcome;
    /// A request about the limits of accounts.
    Account(AccountRequest): AccountRequest => AccountOutcome;
    /// Pause, stop or resume the project, or some tasks.
    Pause(PauseRequest): PauseRequest => PauseOutcome;
}

/// The caller's observations of the world outside of the store, which the decision trusts.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The processes that were probed, with the results.
    pub probes: Vec<(ProcessId, Liveness)>,
    /// How long the caller itself was stalled.
    pub patience: Span,
}

impl Seen {
    /// The moment of a decision that trusts these observations.
    pub(crate) fn now(&self, tx: &Tx) -> Now {
        let dead = self.probes.iter().filter(|(process, liveness)| match liveness {
            Liveness::Dead => true,
            Liveness::OtherBoot => tx.is_over(&process.boot),
            Liveness::Alive | banksman_core::Liveness::Unknown => false,
        });
        tx.now(dead.map(|(process, _)| process.clone()).collect(), self.patience)
    }
}

impl Request {
    /// A request to a lock or a semaphore, without any probes.
    pub fn plain(command: Command) -> Request {
        Request::Coordinate { command, seen: Seen::default() }
    }
}

/// A request whose reply has a type of its own.
pub trait TypedRequest: Into<Request> {
    type Reply;

    /// Converts the reply to such a request; `None` for the reply to another request.
    fn reply(reply: Reply) -> Option<Self::Reply>;
}

impl Call for Request {
    type Reply = Reply;

    fn keys(&self) -> Vec<Key> {
        self.own_keys()
    }

    fn follow(&self, loaded: &Tables) -> Vec<Key> {
        match self {
            Request::Run(RunRequest::Claim(claim)) => claim.follow(loaded),
            Request::Coordinate { command, .. } if asks(command) => turn_keys(loaded).collect(),
            Request::Task(TaskRequest::Add { .. }) => Vec::new(),
            // The resources of a ready task that is cancelled or changed go to the next waiter.
            Request::Task(_) | Request::Decision(_) | Request::Pipeline(_) => {
                let ready = loaded.backlog.tasks.values().filter(|task| task.state == State::Pending);
                let needs = ready.flat_map(|task| facts::resource_keys(None, task.spec.needs_to_begin(true)));
                let landing = keys_of_landing(loaded.backlog.tasks.values());
                let turns = turn_keys(loaded).filter(|_| matches!(self, Request::Task(TaskRequest::Take { .. })));
                needs.chain(landing).chain(mailbox::notice_keys(loaded)).chain(turns).collect()
            }
            // The work of a task that ends may land.
            Request::Run(request) => keys_of_landing(request.ends().filter_map(|task| loaded.backlog.tasks.get(task))),
            Request::Worker(_) => keys_of_landing(loaded.backlog.tasks.values()),
            Request::Landing(request) => request.follow(loaded),
            Request::Mailbox(_) => mailbox::notice_keys(loaded),
            _ => Vec::new(),
        }
    }

    fn decide(&self, tx: &mut Tx) -> Reply {
        let of_caller = tx.depth;
        tx.depth = of_caller.max(self.depth(&tx.tables));
        let reply = self.carry_out(tx);
        tx.depth = of_caller;
        reply
    }

    fn settle(tx: &mut Tx) {
        wakeups::settle(tx);
    }
}

impl Request {
    /// The number of chained routes that led to the subject of the request.
    fn depth(&self, tables: &Tables) -> u32 {
        let of_task = |id: &TaskId| tables.backlog.tasks.get(id).map_or(0, |task| task.spec.depth);
        match self {
            Request::Task(TaskRequest::CancelAll { ids }) => ids.iter().map(of_task).max().unwrap_or(0),
            Request::Task(request) => request.cause().map_or(0, of_task),
            Request::Import(ImportRequest::Sync { edit, .. }) => edit.iter().map(|(id, _)| of_task(id)).max().unwrap_or(0),
            Request::Pipeline(request) => request.cause().map_or(0, of_task),
            Request::Worker(WorkerRequest::Settle { task, .. }) => of_task(task),
            Request::Run(RunRequest::Finish { what, .. } | RunRequest::Lose { what, .. }) => what.task.spec.depth,
            Request::Queue(request) => {
                let item = request.hold().and_then(|hold| tables.queues.items.get(&hold.item));
                item.map_or(0, |item| item.depth)
            }
            // Claims, takes and routes set the depth for each of their tasks, items and reactions.
            Request::Run(_) | Request::Worker(_) | Request::Route(_) => 0,
            Request::Coordinate { .. }
            | Request::Emit(_)
            | Request::Post(_)
            | Request::Mailbox(_)
            | Request::Section(_)
            | Request::Decision(_)
            | Request::Import(_)
            | Request::Landing(_)
            | Request::Apply(_)
            | Request::Workspace(_)
            | Request::Account(_)
            | Request::Pause(_)
            | Request::SetLimits { .. } => 0,
        }
    }
}

fn coordinate_keys(command: &Command, seen: &Seen) -> Vec<Key> {
    let mut keys = vec![match command {
        Command::Lock(name, _) => Key::Lock(name.clone()),
        Command::Semaphore(name, _) => Key::Semaphore(name.clone()),
    }];
    let ask = ask(command);
    if let Some(request) = ask.and_then(|ask| ask.claim.request.as_ref()) {
        keys.push(Key::Request(request.clone()));
    }
    // Only a new waiter can close a cycle; and dead processes are removed from all waits.
    if ask.is_some_and(|ask| ask.wait.is_some()) || !seen.probes.is_empty() {
        keys.push(Key::Waits);
    }
    // A holder that loses the lock of a task no longer works on the task.
    if let Command::Lock(name, _) = command
        && let Some(task) = name.task()
    {
        keys.extend([Key::Task(task.clone()), Key::Manual(task), Key::Runners]);
    }
    if is_taken_away(command) {
        keys.extend([Key::ClaimsOn(command.resource().name), Key::Runners]);
    }
    keys
}

fn emit(event: &Event, tx: &mut Tx) -> Reply {
    let seq = tx.seq;
    tx.carry_out(vec![Effect::Emit(event.clone())], false);
    Reply::Emitted(seq)
}

fn coordinate(mut command: Command, seen: &Seen, tx: &mut Tx) -> Reply {
    let resource = command.resource();
    if let Some(ask) = ask_mut(&mut command)
        && let Some(granted) = ask.claim.request.as_ref().and_then(|request| tx.tables.requests.get(request))
    {
        if granted.resource != resource || granted.holder != ask.claim.holder {
            return Reply::RequestReused;
        }
        ask.granted_before = Some(granted.epoch);
    }
    if asks(&command) {
        pass_absent(None, seen, tx);
    }
    let now = seen.now(tx);
    let is_own = matches!(&command, Command::Lock(_, lock::Input::Release { .. }));
    let is_taken_away = is_taken_away(&command);
    let step = std::mem::take(&mut tx.tables.coordination).handle(command, &now);
    tx.tables.coordination = step.state;
    let took_ticket = match &step.outcome {
        Outcome::Lock(lock::Outcome::Waiting(waiting)) => waiting.ticket == now.ticket,
        Outcome::Semaphore(semaphore::Outcome::Waiting(waiting)) => waiting.ticket == now.ticket,
        _ => false,
    };
    remember_requests(&step.effects, tx.seq, &mut tx.tables);
    wake_watchers(&step.effects, tx);
    tx.carry_out(step.effects, took_ticket);
    let is_renewed = matches!(&step.outcome, Outcome::Lock(lock::Outcome::Extended(_)));
    follow_lock(&resource.name, is_own, is_renewed, tx);
    if is_taken_away {
        end_broken(&resource, &now, tx);
    }
    Reply::Coordinate { outcome: step.outcome, at: now.stamp() }
}

/// Whether a command acquires a lock or slots, or polls a wait for them.
fn asks(command: &Command) -> bool {
    match command {
        Command::Lock(_, input) => matches!(input, lock::Input::Acquire(_) | lock::Input::Poll { .. }),
        Command::Semaphore(_, input) => matches!(input, semaphore::Input::Acquire(_) | semaphore::Input::Poll { .. }),
    }
}

/// Whether a holder may lose an unreleased grant by the command.
fn is_taken_away(command: &Command) -> bool {
    match command {
        Command::Lock(_, input) => matches!(input, lock::Input::Force { .. } | lock::Input::Reap),
        Command::Semaphore(_, input) => matches!(input, semaphore::Input::Force { .. } | semaphore::Input::Reap),
    }
}

/// Records the granted requests for later calls of the same batch.
fn remember_requests(effects: &[Effect], first: Seq, tables: &mut Tables) {
    let events = effects.iter().filter_map(|effect| match effect {
        Effect::Emit(event) => Some(event),
        Effect::Wake(_) | Effect::Send(_) => None,
    });
    for (event, seq) in events.zip(first.0..) {
        if let Event::Resource { resource, fact: Fact::Acquired(claim) } = event
            && let Some(request) = &claim.request
        {
            tables
                .requests
                .insert(request.clone(), Granted { resource: resource.clone(), holder: claim.holder.clone(), epoch: Epoch(seq) });
        }
    }
}

fn ask(command: &Command) -> Option<&Ask> {
    match command {
        Command::Lock(_, lock::Input::Acquire(ask)) | Command::Semaphore(_, semaphore::Input::Acquire(ask)) => Some(ask),
        Command::Lock(..) | Command::Semaphore(..) => None,
    }
}

fn ask_mut(command: &mut Command) -> Option<&mut Ask> {
    match command {
        Command::Lock(_, lock::Input::Acquire(ask)) | Command::Semaphore(_, semaphore::Input::Acquire(ask)) => Some(ask),
        Command::Lock(..) | Command::Semaphore(..) => None,
    }
}
