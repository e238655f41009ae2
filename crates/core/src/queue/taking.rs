//! Taking an item, and the calls of its holder: extending and completing it.

use super::{DUE_PER_TAKE, Fact, FailedAttempt, Hold, Item, Outcome, Part, Queues, State, Taken};
use crate::event::Event;
use crate::ids::{Epoch, HolderId, ItemId, Name, Ticket};
use crate::resource::grant::WaitingProcess;
use crate::step::{EffectBuffer, Now};
use crate::time::{Lease, Span};

/// The first waiter is woken for an item that is due within this time: its own next poll would be too late.
const SOON: Span = Span::from_secs(60);

impl Queues {
    pub(super) fn take(
        &mut self,
        name: &Name,
        holder: HolderId,
        wait: Option<WaitingProcess>,
        ticket: Option<Ticket>,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        self.drop_gone(name, now);
        let queue = &self.queues[name];
        let (is_paused, visibility) = (queue.paused, queue.config.visibility_timeout);
        let next = match is_paused {
            true => None,
            false => {
                self.settle(name, DUE_PER_TAKE, now, buffer);
                self.part(name, Part::Ready, 1).pop()
            }
        };
        let Some(id) = next else {
            let due = if is_paused { None } else { self.next_due(name) };
            return match wait {
                Some(standing) => self.add_waiter(name, holder, standing, ticket, due, now),
                None if is_paused => Outcome::Halted,
                None => Outcome::Empty { next: due },
            };
        };
        let item = self.items.get_mut(&id).expect("it was just found");
        item.attempts += 1;
        let fact = Fact::Take { item: id, holder: holder.clone(), attempt: item.attempts };
        item.fence = buffer.emit(Event::Queue { name: name.clone(), fact });
        let taken = Taken { holder, since: now.stamp(), epoch: item.fence, until: now.lease + visibility };
        item.state = State::Processing(taken);
        let item = Box::new(item.clone());
        if let Some(ticket) = ticket.filter(|ticket| self.takers.get(ticket).is_some_and(|taker| taker.queue == *name)) {
            self.takers.remove(&ticket);
        }
        // A take that leaves ready items wakes the next waiter, so that a push has to wake only one.
        let is_soon = |due: Lease| due <= now.lease + SOON;
        if !self.part(name, Part::Ready, 1).is_empty() || (ticket.is_some() && self.next_due(name).is_some_and(is_soon)) {
            self.wake(name, buffer);
        }
        Outcome::Taken(item)
    }

    /// Settles the first few items whose time has come.
    pub(super) fn settle(&mut self, name: &Name, limit: usize, now: &Now, buffer: &mut EffectBuffer) {
        let mut due: Vec<(Lease, ItemId)> = self.items_of(name).filter_map(|item| Some((item.due()?, item.id))).collect();
        due.sort_unstable();
        for (_, id) in due.into_iter().take(limit) {
            let item = self.items.get_mut(&id).expect("it was just found");
            match &item.state {
                State::Pending { not_before: Some(due) } | State::Failed { due } if *due <= now.lease => {
                    item.state = State::Pending { not_before: None };
                }
                State::Processing(_) if is_over(item, now) => drop(self.end(id, FailedAttempt::timed_out(), now, buffer)),
                State::Pending { .. } | State::Failed { .. } | State::Processing(_) => {}
                State::Completed | State::Dead { .. } => unreachable!("time changes nothing for it"),
            }
        }
    }

    pub(super) fn extend(&mut self, name: &Name, hold: &Hold, by: Option<Span>, now: &Now) -> Outcome {
        let visibility = self.queues[name].config.visibility_timeout;
        match self.owned(name, hold) {
            Err(refusal) => refusal,
            Ok(item) => {
                let until = now.lease + by.unwrap_or(visibility);
                if let State::Processing(taken) = &mut item.state {
                    taken.until = until;
                }
                Outcome::Extended { until }
            }
        }
    }

    pub(super) fn complete(&mut self, name: &Name, hold: &Hold, buffer: &mut EffectBuffer) -> Outcome {
        if let Err(refusal) = self.owned(name, hold) {
            return refusal;
        }
        let Hold { item, holder, epoch } = hold.clone();
        buffer.emit(Event::Queue { name: name.clone(), fact: Fact::Complete { item, holder, epoch } });
        self.remove(item);
        Outcome::Completed
    }

    /// The item, if this holder processes it under this epoch; else the refusal. An item whose time is over but that
    /// was not taken since still belongs to its holder, so that its work is not lost.
    pub(super) fn owned(&mut self, name: &Name, hold: &Hold) -> Result<&mut Item, Outcome> {
        let item = self.items.get_mut(&hold.item).ok_or(Outcome::NoItem)?;
        let fence = item.fence;
        match &item.state {
            _ if hold.epoch < fence => Err(Outcome::Fenced { fence }),
            _ if item.queue != *name => Err(Outcome::NoItem),
            State::Processing(taken) if taken.epoch == hold.epoch && taken.holder == hold.holder => Ok(item),
            State::Processing(taken) if taken.epoch == hold.epoch => Err(Outcome::NotOwner { holder: taken.holder.clone() }),
            State::Pending { .. } | State::Failed { .. } | State::Dead { .. } if hold.epoch == fence && fence != Epoch(0) => {
                Err(Outcome::NotProcessing { status: item.status() })
            }
            // This epoch was never given out for this item.
            State::Pending { .. } | State::Processing(_) | State::Failed { .. } | State::Dead { .. } | State::Completed => {
                Err(Outcome::Fenced { fence })
            }
        }
    }
}

/// Whether the time of its holder is over.
pub(super) fn is_over(item: &Item, now: &Now) -> bool {
    matches!(&item.state, State::Processing(taken) if now.is_past(taken.until))
}
