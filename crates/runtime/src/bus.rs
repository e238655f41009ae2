//! The bus: posting under contention, and reading posted messages merged with those derived from the event log.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use banksman_core::Seq;
use banksman_core::bus::derived::{self, DerivedMessages};
use banksman_core::bus::{Contention, Draft, DraftError, Message, MessageType};
use banksman_core::dispatch::Mode;
use banksman_engine::{PostOutcome, PostRequest, Reply, Request};
use banksman_store::{MessageFilter, Reader, StoreError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

use crate::client::Client;
use crate::error::Error;
use crate::project::Project;
use crate::waiting::span;
use crate::wakeups::EventListener;

/// The minimum wait of a writer on a database server: the server ends a wait for the writer lock after nine seconds.
const SERVER_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
pub enum PostError {
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// Other writers kept the store for too long. The message is not on the bus and will not be.
    #[error(
        "the store was busy: the message was not posted after {attempts} {} in {} ms",
        if *attempts == 1 { "attempt" } else { "attempts" },
        waited.as_millis()
    )]
    LockTimeout { attempts: u32, waited: Duration },
    #[error(transparent)]
    Shell(#[from] Error),
}

impl From<StoreError> for PostError {
    fn from(error: StoreError) -> PostError {
        PostError::Shell(error.into())
    }
}

impl Client {
    /// Posts a message. If the writer lock is not free in time, tries again; other failures are returned at once. An
    /// abandoned message is never written later.
    pub fn post(&self, draft: Draft) -> Result<PostOutcome, PostError> {
        Ok(self.post_to(draft, None, Vec::new())?.0)
    }

    /// Posts a message, and puts it into the mailbox of its task if `to_task` is given. The requests in `then` are
    /// answered in the same transaction; a request that fails there has no reply.
    pub(crate) fn post_to(
        &self,
        draft: Draft,
        to_task: Option<Mode>,
        then: Vec<Request>,
    ) -> Result<(PostOutcome, Vec<Reply>), PostError> {
        draft.check()?;
        let bus = &self.config().bus;
        let lock_timeout = if self.project().is_shared() { bus.lock_timeout.max(SERVER_WAIT) } else { bus.lock_timeout };
        let (began, mut contention) = (Instant::now(), Contention { attempts: 1, ..Contention::default() });
        loop {
            let request = Request::Post(Box::new(PostRequest { draft: draft.clone(), contention, to_task }));
            let requests = [request].into_iter().chain(then.clone()).collect();
            let mut replies = self.call_all_within(requests, lock_timeout).into_iter();
            match replies.next().expect("one call has one answer") {
                Ok(Reply::Post(outcome)) => return Ok((outcome, replies.map_while(Result::ok).collect())),
                Ok(reply) => unreachable!("a message was posted, and the answer is {reply:?}"),
                Err(StoreError::Stalled) if contention.attempts >= bus.attempts.get() => {
                    return Err(PostError::LockTimeout { attempts: contention.attempts, waited: began.elapsed() });
                }
                Err(StoreError::Stalled) => {
                    std::thread::sleep(bus.retry_backoff * 2_u32.saturating_pow(contention.attempts - 1));
                    contention = Contention { attempts: contention.attempts + 1, waited: span(began.elapsed()) };
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A reading position on the bus. Posted messages and those derived from the event log come in the order of their numbers.
pub struct BusReader {
    reader: Reader,
    filter: MessageFilter,
    posted: Source,
    derived: Source,
    /// The tasks at the position of the derived messages, loaded with the first of them.
    tasks: Option<DerivedMessages>,
}

/// Messages that were read and not yet returned.
struct Source {
    waiting: VecDeque<Message>,
    /// Every message up to this number was read.
    through: Seq,
}

impl BusReader {
    /// Begins after a message or an event.
    pub fn new(reader: Reader, filter: MessageFilter, after: Seq) -> BusReader {
        let source = || Source { waiting: VecDeque::new(), through: after };
        BusReader { reader, filter, posted: source(), derived: source(), tasks: None }
    }

    /// The next messages; none if there is nothing new.
    pub fn next_page(&mut self) -> Result<Vec<Message>, Error> {
        loop {
            let (mut posted_more, mut derived_more) = (false, false);
            if self.posted.waiting.is_empty() {
                let page = self.reader.view().messages(self.posted.through, &self.filter)?;
                (self.posted.through, posted_more) = (page.through, page.more);
                self.posted.waiting.extend(page.messages);
            }
            if self.derived.waiting.is_empty() {
                derived_more = self.derive()?;
            }
            let messages = self.merged();
            if !messages.is_empty() || !(posted_more || derived_more) {
                return Ok(messages);
            }
        }
    }

    /// The last messages, oldest first. The next page follows them.
    pub fn last(&mut self, limit: usize) -> Result<Vec<Message>, Error> {
        let newest = self.reader.view().last_event()?;
        let posted = self.reader.view().last_messages(limit, &self.filter)?;
        let mut messages: Vec<Message> = posted.into_iter().filter(|message| message.seq <= newest).collect();
        self.derived.through = Seq(0);
        let mut derived = VecDeque::new();
        loop {
            let more = self.derive()?;
            derived.append(&mut self.derived.waiting);
            while derived.len() > limit {
                derived.pop_front();
            }
            if !more {
                break;
            }
        }
        // Messages derived after the posted ones were read belong to the next page.
        let later = derived.iter().position(|message| message.seq > newest).unwrap_or(derived.len());
        self.derived.waiting = derived.split_off(later);
        self.posted.through = newest;
        messages.extend(derived);
        messages.sort_by_key(|message| message.seq);
        let skip = messages.len().saturating_sub(limit);
        Ok(messages.split_off(skip))
    }

    /// Reads a page of the events from which messages are derived. Returns whether there may be more.
    fn derive(&mut self) -> Result<bool, Error> {
        let is_wanted = |kind: MessageType| self.filter.kinds.is_empty() || self.filter.kinds.contains(&kind);
        if !derived::types().into_iter().any(is_wanted) {
            self.derived.through = Seq(i64::MAX);
            return Ok(false);
        }
        let page = self.reader.view().task_events(self.derived.through)?;
        if !page.events.is_empty() && self.tasks.is_none() {
            self.tasks = Some(self.tasks_at(self.derived.through)?);
        }
        if let Some(tasks) = &mut self.tasks {
            for (seq, wall, event) in &page.events {
                let messages = tasks.apply(*seq, *wall, event);
                self.derived.waiting.extend(messages.into_iter().filter(|message| self.filter.passes(message)));
            }
        }
        self.derived.through = page.through;
        Ok(page.more)
    }

    /// The tasks at a position in the log.
    fn tasks_at(&mut self, place: Seq) -> Result<DerivedMessages, Error> {
        let mut tasks = self.reader.view().baseline_messages()?;
        let mut after = Seq(0);
        while after < place {
            let page = self.reader.view().task_events(after)?;
            for (seq, wall, event) in page.events.iter().filter(|(seq, ..)| *seq <= place) {
                drop(tasks.apply(*seq, *wall, event));
            }
            after = page.through;
        }
        Ok(tasks)
    }

    /// The messages read from both sources, in order, as far as neither source can still bring an earlier one.
    fn merged(&mut self) -> Vec<Message> {
        let complete = self.posted.through.min(self.derived.through);
        let mut messages = Vec::new();
        loop {
            let first = |source: &Source| source.waiting.front().map(|message| message.seq).filter(|seq| *seq <= complete);
            let source = match (first(&self.posted), first(&self.derived)) {
                (Some(posted), Some(derived)) if posted < derived => &mut self.posted,
                (_, Some(_)) => &mut self.derived,
                (Some(_), None) => &mut self.posted,
                (None, None) => return messages,
            };
            messages.extend(source.waiting.pop_front());
        }
    }
}

/// Follows the bus: sleeps on the change notifier.
pub struct BusFollower {
    reader: BusReader,
    listener: EventListener,
    poll_interval: Duration,
}

impl BusFollower {
    /// Follows the bus after the last message that the reader has returned.
    pub fn open(project: &Project, reader: BusReader) -> Result<BusFollower, Error> {
        let number = reader.reader.project();
        let listener = EventListener::open(project, number)?;
        Ok(BusFollower { reader, listener, poll_interval: project.config().poll_interval })
    }

    /// The next messages. Sleeps until there are some, and returns `None` if `cancel` becomes readable before.
    pub fn next(&mut self, cancel: BorrowedFd<'_>) -> Result<Option<Vec<Message>>, Error> {
        loop {
            self.listener.empty();
            let messages = self.reader.next_page()?;
            if !messages.is_empty() {
                return Ok(Some(messages));
            }
            let mut fds = [PollFd::from_borrowed_fd(cancel, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
            let timeout = Timespec::try_from(self.poll_interval).ok();
            // An interruption is a reason to read, like any other.
            poll(&mut fds, timeout.as_ref()).ok();
            if !fds[0].revents().is_empty() {
                return Ok(None);
            }
        }
    }
}
