//! Queues: requests, and the real driver of a wait for an item.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use banksman_adapters::host;
use banksman_core::event::Event;
use banksman_core::queue::{Fact, Hold, Input, Outcome, Queue, Waiting};
use banksman_core::resource::grant::WaitingProcess;
use banksman_core::{HolderId, Name, Seq, Stamp};
use banksman_engine::{QueueRequest, Reply, Request, TakeAction, TakingItem};
use banksman_store::{EventFilter, Key};
use serde_json::Value;

use crate::client::{Cancel, Client};
use crate::error::Error;
use crate::waiting::{Woken, duration, sleep, span};

#[derive(Debug)]
pub enum TakeEnd {
    Answered {
        outcome: Outcome,
        at: Stamp,
    },
    /// The time was up. The caller no longer waits.
    TimedOut(Waiting),
    /// The wait was cancelled. The caller no longer waits.
    Cancelled,
}

impl Client {
    /// Sends one request to a queue.
    pub fn ask_queue(&self, queue: &Name, input: Input) -> Result<(Outcome, Stamp), Error> {
        match self.call(Request::Queue(QueueRequest::new(queue.clone(), input)))? {
            Reply::Queue { outcome, at } => Ok((outcome, at)),
            reply => unreachable!("a queue was asked, and the answer is {reply:?}"),
        }
    }

    /// Whether this holder has completed its item in this take: a caller that missed the answer may ask again. A
    /// completed item has no row, so the event log is searched; compacted events are lost.
    pub fn was_completed(&self, queue: &Name, hold: &Hold) -> Result<bool, Error> {
        let fact = Fact::Complete { item: hold.item, holder: hold.holder.clone(), epoch: hold.epoch };
        let completed = Event::Queue { name: queue.clone(), fact };
        let data: Value = serde_json::from_str(&completed.data()).expect("the data of an event is JSON");
        let source = format!("{}:{queue}", completed.source().0);
        let filter = EventFilter { kind: Some(completed.kind().into()), source: Some(source), since: None };
        let mut reader = self.reader()?;
        let mut after = Seq(hold.epoch.0);
        loop {
            let page = reader.view().events(after, &filter)?;
            if page.events.iter().any(|row| row.data == data) {
                return Ok(true);
            }
            if !page.more {
                return Ok(false);
            }
            after = page.last;
        }
    }

    /// Moves the items that are due: those of this queue, and those of the queues whose dead letters go to it.
    pub fn settle_queue(&self, queue: &Name) -> Result<(), Error> {
        let queues = self.reader()?.view().load(&[Key::Queues].into())?.tables.queues.queues;
        let concerns = |one: &&Queue| one.name == *queue || one.config.dead_letter.as_ref() == Some(queue);
        for one in queues.values().filter(concerns) {
            // A queue that was removed meanwhile has nothing left.
            while let Outcome::Settled { more: true } = self.ask_queue(&one.name, Input::Settle)?.0 {}
        }
        Ok(())
    }

    /// Takes an item; waits for one for at most `wait`, if that is given. `progress` is called with the position among
    /// the waiters.
    pub fn take(
        &self,
        queue: &Name,
        holder: HolderId,
        wait: Option<Duration>,
        cancel: Cancel<'_>,
        progress: &mut dyn FnMut(&Waiting),
    ) -> Result<TakeEnd, Error> {
        let start = Instant::now();
        let mailbox = wait.map(|_| self.wakeups().mailbox()).transpose()?;
        let poll = self.config().poll_interval;
        let waiter = mailbox.as_ref().map(|mailbox| WaitingProcess {
            process: self.this_process().clone(),
            address: Some(mailbox.address().clone()),
            // Across machines no other process can see this one die: its place lasts for a few of its own polls.
            lease: mailbox.is_remote().then(|| span(poll * 3)),
        });
        let mut place =
            TakeGuard { client: self, taking: TakingItem::new(queue.clone(), holder, waiter, span(poll)), is_over: false };
        let taking = &mut place.taking;
        let mut action = TakeAction::Ask;
        loop {
            action = match action {
                TakeAction::Ask => taking.answer(self.call(taking.request())?),
                TakeAction::Probe(process, waiting) => {
                    let liveness = self.host().probe(&process);
                    taking.probed(process, liveness, waiting)
                }
                TakeAction::Done(Reply::Queue { outcome, at }) => {
                    place.is_over = true;
                    return Ok(TakeEnd::Answered { outcome, at });
                }
                TakeAction::Done(reply) => unreachable!("an item was asked for, and the answer is {reply:?}"),
                TakeAction::Sleep { watch, at_most, waiting } => {
                    let left = wait.unwrap_or_default().saturating_sub(start.elapsed());
                    if left.is_zero() {
                        return place.leave(TakeEnd::TimedOut(waiting));
                    }
                    progress(&waiting);
                    let until = host::deadline(duration(at_most).min(left));
                    let mailbox = mailbox.as_ref().expect("only a waiter with a mailbox sleeps");
                    match sleep(self, mailbox.as_fd(), cancel, watch.as_slice(), &[], until) {
                        Woken::Cancelled => return place.leave(TakeEnd::Cancelled),
                        Woken::Called => {
                            mailbox.empty();
                            TakeAction::Ask
                        }
                        Woken::Died(process, liveness) => taking.probed(process, liveness, waiting),
                        Woken::Late(late) => {
                            taking.stalled(span(late));
                            TakeAction::Ask
                        }
                        Woken::RunEnded | Woken::Time => TakeAction::Ask,
                    }
                }
            };
        }
    }
}

/// A position among the waiters of a queue. If its caller fails with an error or a panic, the drop gives up the
/// position: it must not block the others as long as this process lives.
struct TakeGuard<'c> {
    client: &'c Client,
    taking: TakingItem,
    is_over: bool,
}

impl TakeGuard<'_> {
    fn leave(mut self, end: TakeEnd) -> Result<TakeEnd, Error> {
        self.is_over = true;
        self.taking.leave().map(|request| self.client.call(request)).transpose()?;
        Ok(end)
    }
}

impl Drop for TakeGuard<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.taking.leave().filter(|_| !self.is_over) {
            // The error that caused the drop is the one to report.
            self.client.call(request).ok();
        }
    }
}
