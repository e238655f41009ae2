//! Messages on their way to a task: fetching and acknowledging them, and dispatches over a control socket.
//!
//! A sender puts its message into the mailbox of the task in the transaction of the post. A dispatcher then begins to send the first
//! message that may be sent, under the lock of the target, and settles it. If the dispatcher dies in between, the process that proves
//! its death settles the message as unknown.

use banksman_core::backlog::Run;
use banksman_core::bus::{Contention, Draft as MessageDraft, MessageType};
use banksman_core::decision;
use banksman_core::dispatch::{self, LockClaim, Mode, Plan, Release, ReleaseEvent, SendOutcome};
use banksman_core::mailbox::{Delivery, DeliveryPath, Dispatch, FETCH_LIMIT, Input, Outcome, State};
use banksman_core::resource::coordination::Command;
use banksman_core::task::{Need, RunEnd, Work as Kind};
use banksman_core::{Decision, Effect, Epoch, HolderId, MessageId, OutboxCommand, ProcessId, RunId, Span, Status, Task, TaskId};
use banksman_store::{Key, Tables, Tx};

use crate::calls::bus::post;
use crate::calls::runs::end::{open_question, unanswered};
use crate::calls::runs::{RunOutcome, standing};
use crate::calls::steps::{Draft, carry_out, take, withdraw};
use crate::request::Seen;

/// The most messages in one prompt.
const PROMPT_LIMIT: usize = 20;

#[derive(Debug, Clone)]
pub enum MailboxRequest {
    /// A run reads its mailbox, and acknowledges the messages that it has read before.
    Fetch {
        task: TaskId,
        run: RunId,
        epoch: Epoch,
        /// Return the messages of the last fetch once more, and acknowledge nothing.
        again: bool,
    },
    /// Begin to send the first message for a target that its run may receive.
    Begin {
        target: TaskId,
        /// The run of the target, whose keeper has just reported that it takes input.
        run: RunId,
        /// Whether the session takes messages for its next turn, too.
        follow_ups: bool,
        /// The sending process.
        dispatcher: ProcessId,
    },
    /// A send has ended.
    Settle {
        id: MessageId,
        target: TaskId,
        /// The grant of the lock.
        epoch: Epoch,
        outcome: SendOutcome,
        /// Whether the session has received the message completely.
        is_written: bool,
    },
    /// The dispatcher of a message is dead.
    Abandon {
        id: MessageId,
        target: TaskId,
        /// The observed state of its process.
        seen: Seen,
    },
    /// The session of a run that was started with a message has not been observed for too long: a person is asked.
    Unobserved { id: MessageId, target: TaskId, run: RunId },
    /// A live run asks a person. Its session waits, and the answer goes into its mailbox.
    Ask {
        task: TaskId,
        run: RunId,
        epoch: Epoch,
        question: Box<str>,
        /// The possible answers; if empty, any answer.
        options: Vec<Box<str>>,
    },
    /// A target is over: its undelivered messages are returned to the senders.
    Return { target: TaskId },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailboxOutcome {
    Done,
    /// The messages, oldest first; their texts are on the bus.
    Fetched(Vec<Delivery>),
    /// The message to send now.
    Began(Box<Delivery>),
    /// The lock is held, by the dispatch of this message if it is known.
    Busy(Option<Box<Delivery>>),
    /// No message may be sent.
    Nothing,
    /// The run is over, the task has another run, or another process has settled the message.
    Late,
}

impl MailboxRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            MailboxRequest::Fetch { task, run, .. } => vec![Key::Run(run.clone()), Key::Mailbox(task.clone())],
            MailboxRequest::Begin { target, run, .. } => {
                vec![Key::Run(run.clone()), Key::Mailbox(target.clone()), Key::Lock(target.dispatch_lock())]
            }
            MailboxRequest::Settle { id, target, .. } | MailboxRequest::Abandon { id, target, .. } => {
                vec![Key::Delivery(id.clone()), Key::Lock(target.dispatch_lock())]
            }
            MailboxRequest::Unobserved { id, target, run } => {
                let own = [Key::Delivery(id.clone()), Key::Task(target.clone()), Key::Run(run.clone())];
                own.into_iter().chain([Key::OpenDecisions, Key::Runners]).collect()
            }
            MailboxRequest::Ask { task, run, .. } => {
                vec![Key::Task(task.clone()), Key::Run(run.clone()), Key::OpenDecisions, Key::Runners]
            }
            MailboxRequest::Return { target } => return_keys(target),
        }
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> MailboxOutcome {
        match self {
            MailboxRequest::Fetch { task, run, epoch, again } => fetch(task, run, *epoch, *again, tx),
            MailboxRequest::Begin { target, run, follow_ups, dispatcher } => begin(target, run, *follow_ups, dispatcher, tx),
            MailboxRequest::Settle { id, epoch, outcome, is_written, .. } => {
                settle(id, Input::Settle { epoch: *epoch, outcome: *outcome, is_written: *is_written }, tx)
            }
            MailboxRequest::Abandon { id, seen, .. } => abandon(id, seen, tx),
            MailboxRequest::Unobserved { id, target, run } => ask(id, target, run, tx),
            MailboxRequest::Ask { task, run, epoch, question, options } => ask_for_run(task, run, *epoch, question, options, tx),
            MailboxRequest::Return { target } => {
                return_rest(target, tx);
                MailboxOutcome::Done
            }
        }
    }
}

fn fetch(task: &TaskId, run: &RunId, epoch: Epoch, again: bool, tx: &mut Tx) -> MailboxOutcome {
    let is_of_task = tx.tables.backlog.runs.get(run).is_some_and(|row| row.task == *task);
    if !is_of_task || standing(run, epoch, &tx.tables) != RunOutcome::Done {
        return MailboxOutcome::Late;
    }
    let has_read = |delivery: &Delivery| match &delivery.state {
        State::Fetched { epoch: by, way: DeliveryPath::Prompt | DeliveryPath::Read, .. } => *by == epoch,
        _ => false,
    };
    if again {
        return MailboxOutcome::Fetched(in_order(task, has_read, tx));
    }
    for delivery in in_order(task, has_read, tx) {
        step(&delivery.id, Input::Acknowledge { run: run.clone(), epoch }, tx);
    }
    let mut unread = in_order(task, |delivery| delivery.is_for(epoch), tx);
    unread.truncate(FETCH_LIMIT);
    let fetched = unread.into_iter().map(|delivery| {
        step(&delivery.id, Input::Fetch { run: run.clone(), epoch, way: DeliveryPath::Read }, tx);
        tx.tables.deliveries[&delivery.id].clone()
    });
    MailboxOutcome::Fetched(fetched.collect())
}

/// The matching deliveries to a task, oldest first.
fn in_order(task: &TaskId, matches: impl Fn(&Delivery) -> bool, tx: &Tx) -> Vec<Delivery> {
    let all = tx.tables.deliveries.values().filter(|delivery| delivery.target == *task && matches(delivery));
    let mut found: Vec<Delivery> = all.cloned().collect();
    found.sort_by_key(|delivery| delivery.seq);
    found
}

/// Steps a delivery, if it exists, and releases the lock that the step gives up.
fn step(id: &MessageId, input: Input, tx: &mut Tx) -> Option<Outcome> {
    let delivery = tx.tables.deliveries.remove(id)?;
    let step = delivery.step(input);
    if cfg!(debug_assertions) {
        step.state.check();
    }
    tx.tables.deliveries.insert(id.clone(), step.state);
    if let Outcome::Release(claim) = &step.outcome {
        let mut draft = Draft::new(&tx.tables.coordination, tx.now(Vec::new(), Span::ZERO));
        // The release of a lock that was taken away by force is refused, which is fine.
        draft.handle(Command::release(Need::Lock(claim.lock.clone()).resource(), claim.holder.clone(), claim.epoch));
        draft.keep(tx);
    }
    Some(step.outcome)
}

fn begin(target: &TaskId, run: &RunId, follow_ups: bool, dispatcher: &ProcessId, tx: &mut Tx) -> MailboxOutcome {
    let Some(row) = tx.tables.backlog.runs.get(run).filter(|row| row.is_live() && row.task == *target) else {
        return MailboxOutcome::Late;
    };
    let epoch = row.epoch;
    let may_go = |delivery: &Delivery| (follow_ups || delivery.mode == Mode::Steer) && delivery.is_for(epoch);
    let first = in_order(target, may_go, tx).into_iter().next();
    let Some(delivery) = first else { return MailboxOutcome::Nothing };
    let plan = Plan::ControlSocket { run: run.clone() };
    let Some(release) = lock(target, &delivery, &plan, tx) else {
        let other = tx.tables.deliveries.values().find(|other| other.claim().is_some() && other.target == *target);
        return MailboxOutcome::Busy(other.cloned().map(Box::new));
    };
    let began = tx.now(Vec::new(), Span::ZERO).stamp();
    let dispatch = Dispatch { plan, run: run.clone(), epoch, dispatcher: Some(dispatcher.clone()), release, began };
    step(&delivery.id, Input::Dispatch(Box::new(dispatch)), tx);
    MailboxOutcome::Began(Box::new(tx.tables.deliveries[&delivery.id].clone()))
}

/// Takes the lock of a target for a dispatch, without a process or a lease: only the reducer releases it. `None` if it is held.
fn lock(target: &TaskId, delivery: &Delivery, plan: &Plan, tx: &mut Tx) -> Option<Release> {
    let need = Need::Lock(target.dispatch_lock());
    let holder = HolderId::new(&format!("dispatch:{}", delivery.seq)).expect("a number is short");
    let mut draft = Draft::new(&tx.tables.coordination, tx.now(Vec::new(), Span::ZERO));
    let epoch = draft.handle(take(&need, holder.clone(), Vec::new())).granted()?.epoch;
    let claim = LockClaim { lock: target.dispatch_lock(), holder, epoch };
    // A lock that does not fit the plan is detected before anything is kept.
    let policy = dispatch::release_policy(plan, target, Some(&claim)).ok()?;
    draft.keep(tx);
    Some(Release::new(policy, Some(claim)))
}

fn settle(id: &MessageId, input: Input, tx: &mut Tx) -> MailboxOutcome {
    match step(id, input, tx) {
        Some(Outcome::Done | Outcome::Release(_)) => MailboxOutcome::Done,
        Some(Outcome::Yours | Outcome::InDispatch | Outcome::NotYours | Outcome::NotWritten | Outcome::Final) | None => {
            MailboxOutcome::Late
        }
    }
}

fn abandon(id: &MessageId, seen: &Seen, tx: &mut Tx) -> MailboxOutcome {
    let now = seen.now(tx);
    let Some(delivery) = tx.tables.deliveries.get(id) else { return MailboxOutcome::Late };
    let dispatcher = delivery.dispatch.as_ref().and_then(|dispatch| dispatch.dispatcher.clone());
    match (dispatcher, delivery.claim().map(|claim| claim.epoch)) {
        (Some(dispatcher), Some(epoch)) if now.all_dead(std::slice::from_ref(&dispatcher)) => {
            settle(id, Input::Settle { epoch, outcome: SendOutcome::Unknown, is_written: false }, tx)
        }
        _ => MailboxOutcome::Late,
    }
}

/// Asks a person about a session that was not observed, once.
fn ask(id: &MessageId, target: &TaskId, run: &RunId, tx: &mut Tx) -> MailboxOutcome {
    let now = tx.now(Vec::new(), Span::ZERO);
    let delivery = tx.tables.deliveries.get(id).filter(|delivery| delivery.claim().is_some());
    let dispatch = delivery.and_then(|delivery| delivery.dispatch.as_ref());
    let Some(dispatch) = dispatch.filter(|dispatch| dispatch.plan == Plan::Spawn && dispatch.run == *run) else {
        return MailboxOutcome::Late;
    };
    let waited = now.lease - dispatch.began.lease;
    let is_live = tx.tables.backlog.runs.get(run).is_some_and(|run| run.is_live() && run.session.is_none());
    let is_asked = open_question(run, &tx.tables.backlog).is_some();
    let Some(task) = tx.tables.backlog.tasks.get(target).filter(|_| is_live && !is_asked && waited >= dispatch::OBSERVE_WITHIN)
    else {
        return MailboxOutcome::Late;
    };
    let step = decision::ask_about_start(run, target, &task.spec.title, waited, &now);
    carry_out(tx, step.effects, None);
    MailboxOutcome::Done
}

/// Asks a person for a live run. An unanswered earlier question of the run is withdrawn.
fn ask_for_run(task: &TaskId, run: &RunId, epoch: Epoch, question: &str, options: &[Box<str>], tx: &mut Tx) -> MailboxOutcome {
    let is_of_task = tx.tables.backlog.runs.get(run).is_some_and(|row| row.task == *task);
    if !is_of_task || standing(run, epoch, &tx.tables) != RunOutcome::Done {
        return MailboxOutcome::Late;
    }
    if let Some(before) = unanswered(run, &tx.tables.backlog).map(|decision| decision.id.clone()) {
        withdraw(tx, &before);
    }
    let step = decision::ask_for_run(run, task, question, options, &tx.now(Vec::new(), Span::ZERO));
    carry_out(tx, step.effects, None);
    MailboxOutcome::Done
}

/// Puts the answer to a question of a live run into the mailbox of its task: the runner gives it to the session as
/// the next turn; otherwise the next run gets it.
pub(crate) fn answer(decision: &Decision, run: &RunId, task: &TaskId, tx: &mut Tx) {
    let decision::State::Resolved(answer) = &decision.state else { return };
    let live = tx.tables.backlog.runs.get(run).filter(|row| row.is_live() && row.task == *task);
    let Some(owner) = live.map(|row| row.owner.clone()) else { return };
    let id = |word: &str| MessageId::new(&format!("{word}-{}", decision.id)).expect("an id is short and plain");
    let draft = MessageDraft {
        id: id("answer"),
        kind: MessageType::answer(),
        task: Some(task.clone()),
        run: None,
        author: answer.by.clone(),
        parent: Some(id("question")),
        body: decision.question.answer(answer.option, answer.note.as_deref()).into(),
        attachments: Vec::new(),
    };
    let message = draft.id.clone();
    let delivery = Delivery::new(message.clone(), tx.seq, task.clone(), Mode::FollowUp);
    tx.tables.deliveries.insert(message.clone(), delivery);
    post(draft, Contention { attempts: 1, ..Contention::default() }, tx);
    carry_out(tx, vec![Effect::Send(OutboxCommand::Deliver { run: run.clone(), message })], Some(&owner));
}

/// Whether the runs of a task get their messages in the prompt.
pub(crate) fn has_prompt(task: &Task) -> bool {
    matches!(task.spec.work, Some(Kind::Agent(_)))
}

/// The rows that a claim needs to put messages into the prompt of a task, and the end of its run to acknowledge them.
pub(crate) fn prompt_keys(task: &Task) -> Vec<Key> {
    if has_prompt(task) { vec![Key::Mailbox(task.id.clone()), Key::Lock(task.id.dispatch_lock())] } else { Vec::new() }
}

/// Puts the messages for a task into the prompt of a new run. The lock of the target is held until the session has been observed.
pub(crate) fn put_into_prompt(task: &Task, run: &RunId, epoch: Epoch, tx: &mut Tx) {
    if !has_prompt(task) {
        return;
    }
    let mut unread = in_order(&task.id, |delivery| delivery.is_for(epoch), tx);
    unread.truncate(PROMPT_LIMIT);
    for (index, delivery) in unread.iter().enumerate() {
        let release = if index == 0 { lock(&task.id, delivery, &Plan::Spawn, tx) } else { None };
        let input = match release {
            Some(release) => {
                let began = tx.now(Vec::new(), Span::ZERO).stamp();
                let dispatch = Dispatch { plan: Plan::Spawn, run: run.clone(), epoch, dispatcher: None, release, began };
                Input::Dispatch(Box::new(dispatch))
            }
            None => Input::Fetch { run: run.clone(), epoch, way: DeliveryPath::Prompt },
        };
        step(&delivery.id, input, tx);
    }
}

/// Reports an observation of a session to the dispatches that have started its run.
pub(crate) fn observe(run: &RunId, event: &ReleaseEvent, tx: &mut Tx) {
    let has_started_run = |delivery: &&Delivery| {
        delivery.dispatch.as_ref().is_some_and(|dispatch| dispatch.run == *run && dispatch.plan == Plan::Spawn)
    };
    let ids: Vec<MessageId> = tx.tables.deliveries.values().filter(has_started_run).map(|delivery| delivery.id.clone()).collect();
    for id in ids {
        step(&id, Input::Observe(event.clone()), tx);
    }
}

/// Translates the end of a run into an observation of its session.
pub(crate) fn seen_end(ending: &RunEnd) -> ReleaseEvent {
    match ending {
        RunEnd::NotBegun { error, .. } | RunEnd::NotStarted { error } => ReleaseEvent::SpawnStartFailed { error: error.clone() },
        RunEnd::Exited(code) => ReleaseEvent::ChildExited { code: Some(*code) },
        _ => ReleaseEvent::ChildExited { code: None },
    }
}

/// Acknowledges the messages that a run has fetched, because it has reported its result. Messages that its keeper has not written
/// stay unacknowledged.
pub(crate) fn acknowledge(task: &TaskId, run: &RunId, epoch: Epoch, tx: &mut Tx) {
    for delivery in in_order(task, |delivery| matches!(&delivery.state, State::Fetched { epoch: by, .. } if *by == epoch), tx) {
        step(&delivery.id, Input::Acknowledge { run: run.clone(), epoch }, tx);
    }
}

/// Records that the keeper of a run that has ended had written these messages into the session.
pub(crate) fn note_written(epoch: Epoch, written: &[MessageId], tx: &mut Tx) {
    for id in written {
        step(id, Input::Written { epoch }, tx);
    }
}

/// Acknowledges the messages of the live run of a task if it has reported its result.
pub(crate) fn acknowledge_live(id: &TaskId, tx: &mut Tx) {
    let live = tx.tables.backlog.tasks.get(id).and_then(Task::live).filter(|live| live.verdict.is_some());
    if let Some((run, epoch)) = live.map(|live| (live.run.clone(), live.epoch)) {
        acknowledge(id, &run, epoch, tx);
    }
}

fn return_keys(target: &TaskId) -> Vec<Key> {
    vec![Key::Task(target.clone()), Key::RunsOf(target.clone()), Key::Mailbox(target.clone()), Key::Lock(target.dispatch_lock())]
}

/// The notices to senders about undelivered messages: they may have been posted before.
pub(crate) fn notice_keys(loaded: &Tables) -> Vec<Key> {
    loaded.deliveries.values().map(|delivery| Key::Message(notice_id(delivery))).collect()
}

fn notice_id(delivery: &Delivery) -> MessageId {
    MessageId::new(&format!("undelivered-{}", delivery.seq)).expect("a number is short")
}

/// Returns the remaining messages of a target that is over, and notifies their senders on the bus.
pub(crate) fn return_rest(target: &TaskId, tx: &mut Tx) {
    let status = tx.tables.backlog.tasks.get(target).map(Task::status);
    if status.is_some_and(|status| !status.is_over()) {
        return;
    }
    for delivery in in_order(target, |_| true, tx) {
        // No runner observes a start any more.
        step(&delivery.id, Input::Observe(ReleaseEvent::ChildExited { code: None }), tx);
        let run = delivery.run().and_then(|run| tx.tables.backlog.runs.get(run));
        let has_ended_well = run.is_some_and(Run::has_ended_well);
        step(&delivery.id, Input::Return { has_ended_well }, tx);
        let returned = &tx.tables.deliveries[&delivery.id];
        let id = notice_id(returned);
        if matches!(returned.state, State::Undelivered { .. }) && !tx.tables.messages.contains_key(&id) {
            let how = status.map_or("deleted", Status::as_str);
            let body = format!("undelivered: task {target} is {how}").into();
            let kind = MessageType::new("ERROR").expect("a known word");
            let task = status.map(|_| target.clone());
            let (parent, attachments) = (Some(delivery.id.clone()), Vec::new());
            let draft = MessageDraft { id, kind, task, run: None, author: "banksman".into(), parent, body, attachments };
            post(draft, Contention { attempts: 1, ..Contention::default() }, tx);
        }
    }
}
