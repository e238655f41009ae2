//! Sending a message to a task or a run: the facts, the plan, and the dispatch over a control socket.
//!
//! The message is put into the mailbox of the target first, so that it is durable before anything is tried. Whoever then finds the lock of
//! the target free sends what waits there, message by message; whoever finds it held leaves its message to the dispatcher that holds it.

use std::time::{Duration, Instant};

use banksman_adapters::keeper::{self, InputKind, TalkError};
use banksman_core::bus::{Draft, Message};
use banksman_core::dispatch::{self, Confirmation, Mode, Plan, Presence, ROUNDS, Refused, SendOutcome, SessionInput};
use banksman_core::mailbox::Delivery;
use banksman_core::task::State;
use banksman_core::{Epoch, Liveness, RunId, Seq, TaskId};
use banksman_engine::{MailboxOutcome, MailboxRequest, PostOutcome, Seen, Work};
use banksman_store::{Key, MessageFilter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::agents;
use crate::bus::PostError;
use crate::client::{Cancel, Client};
use crate::error::Error;
use crate::sessions::Sessions;
use crate::wakeups::EventListener;

/// How long a keeper may take to answer before its session counts as not alive.
const PING: Duration = Duration::from_secs(1);

/// How long a session may take to read a message. What its keeper has taken by then is not taken back.
const SEND: Duration = Duration::from_secs(2);

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The facts allow no way.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It is not on the bus.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The store failed.
    #[error(transparent)]
    Shell(#[from] Error),
}

/// A message that is in the mailbox of its target, or further.
#[derive(Debug)]
pub struct Sent {
    /// What the bus has answered.
    pub post: PostOutcome,
    /// The way that it was to take.
    pub plan: Plan,
}

impl Client {
    /// Sends a message to the task that it is about.
    pub fn send(&self, draft: Draft, target: &TaskId, mode: Mode) -> Result<Sent, SendError> {
        let plan = dispatch::decide(&self.presence(target)?, mode)?;
        let post = self.post_to(draft, Some(mode))?;
        if let (PostOutcome::Posted(_) | PostOutcome::AlreadyPosted(_), Plan::ControlSocket { .. }) = (&post, &plan) {
            self.dispatch(target, plan.clone())?;
        }
        Ok(Sent { post, plan })
    }

    /// What is known about a target now.
    pub fn presence(&self, target: &TaskId) -> Result<Presence, Error> {
        let rows = self.load(&[Key::Task(target.clone())].into())?;
        let Some(task) = rows.backlog.tasks.get(target) else { return Ok(Presence::Unknown) };
        if task.status().is_over() {
            return Ok(Presence::Over);
        }
        let Some(run) = task.live().map(|live| live.run.clone()) else {
            let may_start = task.spec.work.is_some() && matches!(task.state, State::Pending | State::Backoff { .. });
            return Ok(Presence::Dormant { may_start });
        };
        let input = self.session_input(&run)?;
        Ok(Presence::Live { run, input })
    }

    /// What the session of a run takes, as its keeper answers in time; nothing if it is silent, of an older version, or elsewhere.
    fn session_input(&self, run: &RunId) -> Result<Option<SessionInput>, Error> {
        let rows = self.load(&[Key::Run(run.clone())].into())?;
        let is_here = rows.backlog.runs.get(run).is_some_and(|row| row.host == self.host().id);
        if !is_here {
            return Ok(None);
        }
        let answer = keeper::ping(&Sessions::new(self.project()).record(run), PING);
        Ok(answer.ok().map(|presence| match presence.input {
            None => SessionInput::Nothing,
            Some(InputKind::Pipe) => SessionInput::Pipe,
            Some(InputKind::Terminal) => SessionInput::Terminal { has_typist: presence.has_typist },
        }))
    }

    /// Sends what waits for a target over its control socket, under the lock of the target.
    fn dispatch(&self, target: &TaskId, mut plan: Plan) -> Result<(), Error> {
        let mut round = 1;
        while let (Plan::ControlSocket { run }, true) = (&plan, round <= ROUNDS) {
            let begin =
                MailboxRequest::Begin { target: target.clone(), run: run.clone(), dispatcher: self.this_process().clone() };
            match self.request(begin)? {
                MailboxOutcome::Began(delivery) => {
                    // The facts may have changed before the lock was held.
                    let again = dispatch::decide(&self.presence(target)?, Mode::Steer);
                    match dispatch::confirm(&plan, &again, round) {
                        // What the session did not take stays in the mailbox: it is not tried again and again.
                        Confirmation::Proceed => {
                            if self.carry(&delivery, run)? != SendOutcome::Sent {
                                return Ok(());
                            }
                        }
                        Confirmation::DecideAnew | Confirmation::GiveUp => {
                            self.settle(&delivery, SendOutcome::FallbackSent, false)?;
                            let Ok(next) = again else { return Ok(()) };
                            (plan, round) = (next, round + 1);
                        }
                    }
                }
                MailboxOutcome::Busy(Some(other)) if self.is_abandoned(&other) => self.abandon(&other)?,
                // Another dispatcher has the lock, and looks for more when it has ended.
                MailboxOutcome::Busy(_) => return Ok(()),
                MailboxOutcome::Nothing | MailboxOutcome::Late | MailboxOutcome::Done | MailboxOutcome::Fetched(_) => {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Sends one message, and records what became of it.
    fn carry(&self, delivery: &Delivery, run: &RunId) -> Result<SendOutcome, Error> {
        let message = self.reader()?.view().message(&delivery.id)?;
        let Some(message) = message else {
            self.settle(delivery, SendOutcome::Failed, false)?;
            return Ok(SendOutcome::Failed);
        };
        let text = self.input_text(run, &message)?;
        let sent = keeper::send_message(&Sessions::new(self.project()).record(run), delivery.id.as_str(), &text, SEND);
        let (outcome, is_written) = match sent {
            Ok(keeper::Delivery::Written) => (SendOutcome::Sent, true),
            Ok(keeper::Delivery::Taken) => (SendOutcome::Sent, false),
            Err(TalkError::Unknown) => (SendOutcome::Unknown, false),
            Err(TalkError::Refused(_) | TalkError::Cannot) => (SendOutcome::Rejected, false),
            Err(TalkError::Gone | TalkError::Silent | TalkError::System(_)) => (SendOutcome::Failed, false),
        };
        self.settle(delivery, outcome, is_written)?;
        Ok(outcome)
    }

    /// What is written into the session of a run for a message.
    fn input_text(&self, run: &RunId, message: &Message) -> Result<String, Error> {
        let target = message.draft.task.clone();
        let keys = target.iter().cloned().map(Key::Task).chain([Key::Run(run.clone())]).collect();
        let mut rows = self.load(&keys)?.backlog;
        let work = target.and_then(|target| Some(Work { task: rows.tasks.remove(&target)?, run: rows.runs.remove(run)? }));
        let encode = work.and_then(|work| agents::steering(self.project(), &work));
        Ok(encode.map_or_else(|| message.draft.body.to_string(), |encode| encode(&message.draft.body)))
    }

    fn settle(&self, delivery: &Delivery, outcome: SendOutcome, is_written: bool) -> Result<(), Error> {
        let epoch = delivery.claim().map_or(Epoch(0), |claim| claim.epoch);
        let (id, target) = (delivery.id.clone(), delivery.target.clone());
        self.request(MailboxRequest::Settle { id, target, epoch, outcome, is_written }).map(drop)
    }

    fn is_abandoned(&self, delivery: &Delivery) -> bool {
        let dispatcher = delivery.dispatch.as_ref().and_then(|dispatch| dispatch.dispatcher.as_ref());
        dispatcher.is_some_and(|process| matches!(self.host().probe(process), Liveness::Dead | Liveness::OtherBoot))
    }

    /// Records that the dispatcher of a message died before it knew what became of it.
    fn abandon(&self, delivery: &Delivery) -> Result<(), Error> {
        let dispatcher = delivery.dispatch.as_ref().and_then(|dispatch| dispatch.dispatcher.clone());
        let probes = dispatcher.map(|process| (process.clone(), self.host().probe(&process))).into_iter().collect();
        let seen = Seen { probes, ..Seen::default() };
        let (id, target) = (delivery.id.clone(), delivery.target.clone());
        self.request(MailboxRequest::Abandon { id, target, seen }).map(drop)
    }

    /// Reads the mailbox of a run: acknowledges what it has read before, and returns what is new with its texts. `None` if the run is over.
    pub fn read_mailbox(&self, task: &TaskId, run: &RunId, epoch: Epoch, again: bool) -> Result<Option<Vec<Letter>>, Error> {
        let fetch = MailboxRequest::Fetch { task: task.clone(), run: run.clone(), epoch, again };
        match self.request(fetch)? {
            MailboxOutcome::Fetched(deliveries) => Ok(Some(self.letters(deliveries)?)),
            _ => Ok(None),
        }
    }

    /// The texts of messages that were fetched.
    pub(crate) fn letters(&self, deliveries: Vec<Delivery>) -> Result<Vec<Letter>, Error> {
        let mut reader = self.reader()?;
        let mut letters = Vec::new();
        for delivery in deliveries {
            let message = reader.view().message(&delivery.id)?;
            letters.extend(message.map(|message| Letter { message, is_redelivered: delivery.is_redelivered() }));
        }
        Ok(letters)
    }

    /// Sleeps until the mailbox of a run has something that it has not got. Says whether it has; not if the time is over or `cancel` became
    /// readable.
    pub fn wait_for_mail(&self, task: &TaskId, epoch: Epoch, until: Option<Instant>, cancel: Cancel<'_>) -> Result<bool, Error> {
        let mut reader = self.reader()?;
        let found = self.wait_for(until, cancel, || {
            let open = reader.view().mailbox(task)?;
            Ok(open.iter().any(|delivery| delivery.is_for(epoch)).then_some(()))
        })?;
        Ok(found.is_some())
    }

    /// Sleeps until a message after `after` answers another one.
    pub fn wait_for_reply(
        &self,
        to: &Draft,
        mut after: Seq,
        until: Option<Instant>,
        cancel: Cancel<'_>,
    ) -> Result<Option<Message>, Error> {
        let mut reader = self.reader()?;
        self.wait_for(until, cancel, || {
            loop {
                let page = reader.view().messages(after, &MessageFilter::default())?;
                after = page.through;
                let reply = page.messages.into_iter().find(|message| message.draft.parent.as_ref() == Some(&to.id));
                if reply.is_some() || !page.more {
                    return Ok(reply);
                }
            }
        })
    }

    /// Sleeps until something is found. Looks again whenever the store has changed.
    fn wait_for<T>(
        &self,
        until: Option<Instant>,
        cancel: Cancel<'_>,
        mut find: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let listener = EventListener::open(self.project(), self.reader()?.project())?;
        loop {
            listener.empty();
            if let Some(found) = find()? {
                return Ok(Some(found));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let sleep = left.unwrap_or(Duration::MAX).min(self.config().poll_interval);
            let timeout = Timespec::try_from(sleep).ok();
            let mut fds = vec![PollFd::new(&listener, PollFlags::IN)];
            fds.extend(cancel.iter().map(|cancel| PollFd::from_borrowed_fd(*cancel, PollFlags::IN)));
            // An interruption is a reason to look, like any other.
            poll(&mut fds, timeout.as_ref()).ok();
            if fds.get(1).is_some_and(|cancel| !cancel.revents().is_empty()) {
                return Ok(None);
            }
        }
    }
}

/// A message as its receiver gets it.
#[derive(Debug, Clone)]
pub struct Letter {
    /// The message.
    pub message: Message,
    /// Whether an earlier run had it.
    pub is_redelivered: bool,
}
