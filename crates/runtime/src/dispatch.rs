//! Sends a message to a task or a run: reads the facts, makes the plan, and dispatches over a control socket.
//!
//! The message is put into the mailbox of the target first, so that it is durable before anything is tried. A process
//! that then gets the lock of the target sends all waiting messages, one by one; if the lock is held, the message is
//! left to the dispatcher that holds it.

use std::time::{Duration, Instant};

use banksman_adapters::keeper::{self, InputKind, TalkError, Talker, When};
use banksman_core::bus::{Draft, Message};
use banksman_core::dispatch::{self, Confirmation, Mode, Plan, Presence, ROUNDS, Refused, SendOutcome, SessionInput};
use banksman_core::mailbox::{Delivery, Receipt};
use banksman_core::task::State;
use banksman_core::{Epoch, Liveness, MessageId, RunId, Seq, Task, TaskId};
use banksman_engine::{MailboxOutcome, MailboxRequest, PostOutcome, Reply, Seen, TypedRequest, Work};
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

/// How long a session may take to read a message. A message that its keeper has taken by then is not taken back.
const SEND: Duration = Duration::from_secs(2);

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The facts allow no way to send it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The message is not on the bus.
    #[error(transparent)]
    Post(#[from] PostError),
    #[error(transparent)]
    Shell(#[from] Error),
}

/// A message that is in the mailbox of its target, or further.
#[derive(Debug)]
pub struct PostedMessage {
    /// The answer of the bus.
    pub post: PostOutcome,
    /// The plan by which it was sent.
    pub plan: Plan,
}

/// The known facts about a target, and a connection to the keeper that reported them.
struct Facts {
    presence: Presence,
    talker: Option<Talker>,
}

impl Facts {
    fn of(presence: Presence) -> Facts {
        Facts { presence, talker: None }
    }

    /// Whether the session takes messages for its next turn.
    fn has_turns(&self) -> bool {
        matches!(self.presence, Presence::Live { input: Some(SessionInput::Turns), .. })
    }
}

fn answered(reply: Reply) -> MailboxOutcome {
    MailboxRequest::reply(reply).expect("the store replies to the request that it got")
}

impl Client {
    /// Sends a message to the task that it is about.
    pub fn send(&self, draft: Draft, target: &TaskId, mode: Mode) -> Result<PostedMessage, SendError> {
        let facts = self.facts(target, None)?;
        let plan = dispatch::decide(&facts.presence, mode)?;
        let Plan::ControlSocket { run } = &plan else {
            return Ok(PostedMessage { post: self.post_to(draft, Some(mode), Vec::new())?.0, plan });
        };
        // One transaction puts the message into the mailbox and takes it out again.
        let begin = self.begin(target, run, &facts);
        let (post, mut began) = self.post_to(draft.clone(), Some(mode), vec![begin.into()])?;
        if let (PostOutcome::Posted(_) | PostOutcome::AlreadyPosted(_), Some(began)) = (&post, began.pop()) {
            self.dispatch(target, facts, plan.clone(), answered(began), Some(&draft))?;
        }
        Ok(PostedMessage { post, plan })
    }

    /// Sends the waiting messages of a task into its live session, if that takes messages for its next turn. Returns
    /// the receipt of one of them.
    pub(crate) fn deliver(&self, target: &TaskId, message: &MessageId) -> Result<Receipt, Error> {
        let facts = self.facts(target, None)?;
        if let Ok(Plan::ControlSocket { run }) = dispatch::decide(&facts.presence, Mode::FollowUp) {
            let began = self.request(self.begin(target, &run, &facts))?;
            self.dispatch(target, facts, Plan::ControlSocket { run }, began, None)?;
        }
        let rows = self.load(&[Key::Delivery(message.clone()), Key::Task(target.clone())].into())?;
        let status = rows.backlog.tasks.get(target).map(Task::status);
        // The result of its run does not matter: nothing is left to send then.
        Ok(rows.deliveries.get(message).map_or(Receipt::Undelivered, |delivery| delivery.receipt(status, false)))
    }

    /// Asks a person on behalf of a live run whose session takes the answer as its next turn. Returns whether the
    /// session does; otherwise nothing was asked.
    pub fn ask_live(
        &self,
        task: &TaskId,
        run: &RunId,
        epoch: Epoch,
        question: &str,
        options: Vec<Box<str>>,
    ) -> Result<bool, Error> {
        let record = Sessions::new(self.project()).record(run);
        if !keeper::ping(&record, PING).is_ok_and(|presence| presence.has_turns && presence.input.is_some()) {
            return Ok(false);
        }
        let (task, run, question) = (task.clone(), run.clone(), question.into());
        match self.request(MailboxRequest::Ask { task, run, epoch, question, options })? {
            // If the keeper does not hear of it, the session ends with its turn, and the question is then one of its task.
            MailboxOutcome::Done => keeper::expect_answer(&record, PING).ok(),
            _ => return Ok(false),
        };
        Ok(true)
    }

    /// The known facts about a target, asked over the previous connection if there is one.
    fn facts(&self, target: &TaskId, last: Option<Facts>) -> Result<Facts, Error> {
        let rows = self.load(&[Key::Task(target.clone())].into())?;
        let Some(task) = rows.backlog.tasks.get(target) else { return Ok(Facts::of(Presence::Unknown)) };
        if task.status().is_over() {
            return Ok(Facts::of(Presence::Over));
        }
        let Some(run) = task.live().map(|live| live.run.clone()) else {
            let may_start = task.spec.work.is_some() && matches!(task.state, State::Pending | State::Backoff { .. });
            return Ok(Facts::of(Presence::Dormant { may_start }));
        };
        let is_same = |facts: &Facts| matches!(&facts.presence, Presence::Live { run: before, .. } if *before == run);
        let connected = last.filter(is_same).and_then(|facts| facts.talker);
        let (input, talker) = match self.session_input(&run, connected)? {
            Some((input, talker)) => (Some(input), Some(talker)),
            None => (None, None),
        };
        Ok(Facts { presence: Presence::Live { run, input }, talker })
    }

    /// The input that the session of a run takes; `None` if its keeper does not answer in time, has an older version,
    /// or is on another machine.
    fn session_input(&self, run: &RunId, connected: Option<Talker>) -> Result<Option<(SessionInput, Talker)>, Error> {
        let talker = match connected {
            Some(talker) => Some(talker),
            None => {
                let rows = self.load(&[Key::Run(run.clone())].into())?;
                let is_here = rows.backlog.runs.get(run).is_some_and(|row| row.host == self.host().id);
                is_here.then(|| Talker::open(&Sessions::new(self.project()).record(run), PING).ok()).flatten()
            }
        };
        let answer = talker.and_then(|mut talker| talker.ping(PING).ok().map(|presence| (presence, talker)));
        Ok(answer.map(|(presence, talker)| {
            let input = match presence.input {
                None => SessionInput::Nothing,
                Some(InputKind::Pipe) if presence.has_turns => SessionInput::Turns,
                Some(InputKind::Pipe) => SessionInput::Pipe,
                Some(InputKind::Terminal) => SessionInput::Terminal { has_typist: presence.has_typist },
            };
            (input, talker)
        }))
    }

    fn begin(&self, target: &TaskId, run: &RunId, facts: &Facts) -> MailboxRequest {
        let (target, run, dispatcher) = (target.clone(), run.clone(), self.this_process().clone());
        MailboxRequest::Begin { target, run, follow_ups: facts.has_turns(), dispatcher }
    }

    /// Sends the waiting messages of a target over its control socket, under the lock of the target. `own` is a message
    /// whose text is known.
    fn dispatch(
        &self,
        target: &TaskId,
        mut facts: Facts,
        mut plan: Plan,
        mut began: MailboxOutcome,
        own: Option<&Draft>,
    ) -> Result<(), Error> {
        let mut round = 1;
        while let Plan::ControlSocket { run } = plan.clone() {
            began = match began {
                MailboxOutcome::Began(delivery) => {
                    // The facts may have changed before this process held the lock.
                    facts = self.facts(target, Some(facts))?;
                    let again = dispatch::decide(&facts.presence, Mode::Steer);
                    match (dispatch::confirm(&plan, &again, round), &mut facts.talker) {
                        // A message that the session does not take stays in the mailbox: it is not retried here.
                        (Confirmation::Proceed, Some(talker)) => {
                            let (outcome, is_written) = self.carry(&delivery, &run, talker, own)?;
                            if outcome != SendOutcome::Sent {
                                return self.settle(&delivery, outcome, is_written, None).map(drop);
                            }
                            let next = self.begin(target, &run, &facts);
                            self.settle(&delivery, outcome, is_written, Some(next))?.unwrap_or(MailboxOutcome::Nothing)
                        }
                        (Confirmation::Proceed | Confirmation::DecideAnew | Confirmation::GiveUp, _) => {
                            self.settle(&delivery, SendOutcome::FallbackSent, false, None)?;
                            let Ok(Plan::ControlSocket { run }) = again else { return Ok(()) };
                            (plan, round) = (Plan::ControlSocket { run: run.clone() }, round + 1);
                            if round > ROUNDS {
                                return Ok(());
                            }
                            self.request(self.begin(target, &run, &facts))?
                        }
                    }
                }
                MailboxOutcome::Busy(Some(other)) if self.is_abandoned(&other) => {
                    self.abandon(&other)?;
                    self.request(self.begin(target, &run, &facts))?
                }
                // Another dispatcher has the lock, and checks for further messages when it is done.
                MailboxOutcome::Busy(_)
                | MailboxOutcome::Nothing
                | MailboxOutcome::Late
                | MailboxOutcome::Done
                | MailboxOutcome::Fetched(_) => return Ok(()),
            };
        }
        Ok(())
    }

    /// Sends one message. Returns the outcome, and whether the session has it.
    fn carry(
        &self,
        delivery: &Delivery,
        run: &RunId,
        talker: &mut Talker,
        own: Option<&Draft>,
    ) -> Result<(SendOutcome, bool), Error> {
        let own = own.filter(|own| own.id == delivery.id);
        let other = if own.is_some() { None } else { self.reader()?.view().message(&delivery.id)? };
        let Some(draft) = own.or(other.as_ref().map(|message| &message.draft)) else {
            return Ok((SendOutcome::Failed, false));
        };
        let text = self.input_text(run, draft)?;
        let when = match delivery.mode {
            Mode::Steer => When::Now,
            Mode::FollowUp => When::NextTurn,
        };
        Ok(match talker.send(delivery.id.as_str(), &text, when, SEND) {
            Ok(keeper::Delivery::Written) => (SendOutcome::Sent, true),
            Ok(keeper::Delivery::Taken) => (SendOutcome::Sent, false),
            Err(TalkError::Unknown) => (SendOutcome::Unknown, false),
            Err(TalkError::Refused(_) | TalkError::Cannot) => (SendOutcome::Rejected, false),
            Err(TalkError::Gone | TalkError::Silent | TalkError::System(_)) => (SendOutcome::Failed, false),
        })
    }

    /// The text that is written into the session of a run for a message.
    fn input_text(&self, run: &RunId, draft: &Draft) -> Result<String, Error> {
        let keys = draft.task.iter().cloned().map(Key::Task).chain([Key::Run(run.clone())]).collect();
        let mut rows = self.load(&keys)?.tables.backlog;
        let work =
            draft.task.as_ref().and_then(|task| Some(Work { task: rows.tasks.remove(task)?, run: rows.runs.remove(run)? }));
        let encode = work.and_then(|work| agents::steering(self.project(), &work));
        Ok(encode.map_or_else(|| draft.body.to_string(), |encode| encode(&draft.body)))
    }

    /// Records the outcome of a send, and begins the next one in the same transaction.
    fn settle(
        &self,
        delivery: &Delivery,
        outcome: SendOutcome,
        is_written: bool,
        next: Option<MailboxRequest>,
    ) -> Result<Option<MailboxOutcome>, Error> {
        let epoch = delivery.claim().map_or(Epoch(0), |claim| claim.epoch);
        let (id, target) = (delivery.id.clone(), delivery.target.clone());
        let settle = MailboxRequest::Settle { id, target, epoch, outcome, is_written };
        let replies = self.call_all([settle].into_iter().chain(next).map(Into::into).collect());
        let mut replies = replies.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(if replies.len() > 1 { replies.pop().map(answered) } else { None })
    }

    fn is_abandoned(&self, delivery: &Delivery) -> bool {
        let dispatcher = delivery.dispatch.as_ref().and_then(|dispatch| dispatch.dispatcher.as_ref());
        dispatcher.is_some_and(|process| matches!(self.host().probe(process), Liveness::Dead | Liveness::OtherBoot))
    }

    /// Records that the dispatcher of a message died before it knew the outcome.
    fn abandon(&self, delivery: &Delivery) -> Result<(), Error> {
        let dispatcher = delivery.dispatch.as_ref().and_then(|dispatch| dispatch.dispatcher.clone());
        let probes = dispatcher.map(|process| (process.clone(), self.host().probe(&process))).into_iter().collect();
        let seen = Seen { probes, ..Seen::default() };
        let (id, target) = (delivery.id.clone(), delivery.target.clone());
        self.request(MailboxRequest::Abandon { id, target, seen }).map(drop)
    }

    /// Reads the mailbox of a run: acknowledges the messages that it has read before, and returns the new ones with
    /// their texts. `None` if the run is over.
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

    /// Sleeps until the mailbox of a run has a message that the run has not read. Returns false if the time is over or
    /// `cancel` became readable.
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

    /// Sleeps until `find` returns something. Calls it again whenever the store has changed.
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
            // An interruption is a reason to check, like any other.
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
    pub message: Message,
    /// Whether an earlier run has read it.
    pub is_redelivered: bool,
}
