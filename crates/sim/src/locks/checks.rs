//! Checks every answer against the ledger.

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::grant::{Ask, Grant, Waiting};
use banksman_core::{Epoch, HolderId, Lease, ProcessId, Ticket};
use banksman_engine::{Reply, Request};

use super::ledger::{Account, Ledger, Place, Scene};
use crate::commit::CommittedCall;
use crate::format::{Answer, Asked, answer, asked};
use crate::report::{Checker, Verdict};

impl Ledger {
    /// Processes a committed call and reports its violations.
    pub(crate) fn check(&mut self, call: &CommittedCall<'_>, dead: &dyn Fn(&ProcessId) -> bool, verdict: &mut Verdict) {
        let Request::Coordinate { command, seen } = call.request else {
            let scene = Scene { asked: Asked::Reap, lease: call.note.lease, patience: 0, stall: None, dead };
            return call.events.iter().for_each(|logged| self.enter(logged, &scene, verdict));
        };
        let resource = command.resource();
        let asked = asked(command);
        let looks = matches!(asked, Asked::Poll(_));
        let stall = call.caller.as_ref().filter(|_| looks).and_then(|caller| self.stalls.get(caller)).cloned();
        let scene = Scene { asked, lease: call.note.lease, patience: seen.patience.as_ms(), stall, dead };
        let presented = presented(asked);
        let account = self.account(&resource);
        if let Asked::Leave(ticket) = asked {
            account.waiters.retain(|place| place.ticket != ticket);
        }
        let was_rightful = presented.is_some_and(|(holder, epoch)| account.rightful(holder, epoch));
        for logged in call.events {
            self.enter(logged, &scene, verdict);
        }
        let Reply::Coordinate { outcome, .. } = call.reply else { return };
        let answer = answer(outcome);
        self.check_reported_grant(&resource, answer, call.caller.as_ref(), dead, verdict);
        let account = self.account(&resource);
        if let Some((holder, epoch)) = presented {
            account.fencing(&resource, (holder, epoch), was_rightful, answer, verdict);
        }
        account.renew_leases(asked, answer, scene.lease);
        account.waiting(&resource, call, asked, answer, &scene, verdict);
        if let Answer::Deadlock(cycle) = answer {
            let waits = |ticket: Ticket| ticket == call.note.ticket || self.accounts.values().any(|a| a.place(ticket).is_some());
            let phantom = cycle.iter().find(|link| !waits(link.ticket));
            verdict.expect(Checker::Waiters, phantom.is_none(), || format!("a deadlock with one who does not wait: {phantom:?}"));
        }
    }

    /// A holder that is told of a grant has it, under that epoch and no other, and no other living process was told the
    /// same.
    fn check_reported_grant(
        &mut self,
        resource: &Resource,
        answer: Answer<'_>,
        caller: Option<&ProcessId>,
        dead: &dyn Fn(&ProcessId) -> bool,
        verdict: &mut Verdict,
    ) {
        let (Answer::Acquired(grant) | Answer::Extended(grant)) = answer else { return };
        let Grant { claim, epoch, .. } = grant;
        if let Some(caller) = caller {
            let other = self.reported_to.insert(*epoch, caller.clone()).filter(|other| other != caller && !dead(other));
            verdict.expect(Checker::Epochs, other.is_none(), || {
                format!("{caller:?} was told epoch {epoch} of {resource}, as was {other:?}")
            });
        }
        let owner = self.granted.get(epoch);
        let right = owner.is_some_and(|(of, holder)| of == resource && *holder == claim.holder);
        verdict.expect(Checker::Epochs, right, || {
            format!("{} was told epoch {epoch} of {resource}, which was given to {owner:?}", claim.holder)
        });
        let holding = self.accounts.get(resource).and_then(|account| account.holders.get(&claim.holder));
        let has = holding.is_some_and(|holding| holding.epoch == *epoch && holding.claim.weight == claim.weight);
        verdict.expect(Checker::Epochs, has, || {
            let has = holding.map(|holding| (holding.epoch, holding.claim.weight));
            format!("{} was told epoch {epoch} and weight {} of {resource}, but has {has:?}", claim.holder, claim.weight)
        });
    }
}

/// The holder and the epoch that a call presents, if it acts on a grant.
fn presented(asked: Asked<'_>) -> Option<(&HolderId, Option<Epoch>)> {
    match asked {
        Asked::Heartbeat(holder, epoch) | Asked::Release(holder, epoch) => Some((holder, epoch)),
        Asked::Acquire(Ask { claim, epoch: Some(epoch), .. }) => Some((&claim.holder, Some(*epoch))),
        Asked::Acquire(_) | Asked::Define | Asked::Poll(_) | Asked::Leave(_) | Asked::Force | Asked::Reap => None,
    }
}

impl Account {
    /// Success only with the current epoch; a refusal only without it.
    fn fencing(
        &self,
        resource: &Resource,
        (holder, epoch): (&HolderId, Option<Epoch>),
        was_rightful: bool,
        answer: Answer<'_>,
        verdict: &mut Verdict,
    ) {
        match answer {
            Answer::Acquired(_) | Answer::Extended(_) | Answer::Released | Answer::Lost | Answer::Waiting(_) => {
                verdict.expect(Checker::Fencing, was_rightful, || {
                    format!("{holder} with epoch {epoch:?} of {resource} was served, but the ledger has {:?}", self.epochs())
                });
            }
            Answer::Fenced(_) | Answer::NotOwner | Answer::AlreadyFree => {
                let still = self.rightful(holder, epoch);
                verdict.expect(Checker::Fencing, !still, || format!("{holder} holds {epoch:?} of {resource} and was refused"));
            }
            Answer::Gone | Answer::Left | Answer::Deadlock(_) | Answer::Other(_) => {}
        }
        if resource.kind == Kind::Lock {
            let fence = self.fence;
            if let Answer::Fenced(Some(told)) = answer {
                verdict.expect(Checker::Order, told == fence, || format!("the fence of {resource} is {fence}, not {told}"));
            }
            let own_end = !matches!(answer, Answer::AlreadyFree) || epoch == Some(fence);
            verdict.expect(Checker::Fencing, own_end, || format!("{holder} did not release {resource} itself ({epoch:?})"));
        }
    }

    fn epochs(&self) -> Vec<(&str, Epoch)> {
        self.holders.iter().map(|(holder, holding)| (holder.as_str(), holding.epoch)).collect()
    }

    /// Leases that this call renews.
    fn renew_leases(&mut self, asked: Asked<'_>, answer: Answer<'_>, lease: Lease) {
        match (asked, answer) {
            (Asked::Heartbeat(holder, _), Answer::Extended(_)) => {
                self.holders.get_mut(holder).into_iter().for_each(|holding| holding.hear(lease, false));
            }
            (_, Answer::Acquired(grant) | Answer::Extended(grant)) => {
                self.holders.get_mut(&grant.claim.holder).into_iter().for_each(|holding| holding.hear(lease, true));
            }
            // A request for more proves that the holder is alive, whatever its result.
            (Asked::Acquire(Ask { claim, epoch: Some(epoch), .. }), _) if self.rightful(&claim.holder, Some(*epoch)) => {
                self.holders.get_mut(&claim.holder).into_iter().for_each(|holding| holding.hear(lease, false));
            }
            _ => {}
        }
    }

    /// The waiters, as each of them sees its position.
    fn waiting(
        &mut self,
        resource: &Resource,
        call: &CommittedCall<'_>,
        asked: Asked<'_>,
        answer: Answer<'_>,
        scene: &Scene<'_>,
        verdict: &mut Verdict,
    ) {
        match (asked, answer) {
            (Asked::Poll(ticket), Answer::Gone) => {
                let place = self.waiters.iter().find(|place| place.ticket == ticket && !place.is_over(scene));
                verdict.expect(Checker::Waiters, place.is_none(), || {
                    format!("ticket {ticket} for {resource} is gone, but was not removed: {place:?}")
                });
                self.waiters.retain(|place| place.ticket != ticket);
            }
            (Asked::Acquire(Ask { claim, wait: Some(standing), .. }), Answer::Waiting(Waiting { ticket, blocked, .. }))
                if self.place(*ticket).is_none() =>
            {
                let last = self.waiters.last().map_or(Ticket(0), |place| place.ticket);
                verdict.expect(Checker::Order, *ticket > last, || format!("ticket {ticket} for {resource} comes after {last}"));
                verdict.expect(Checker::Order, *ticket == call.note.ticket, || format!("ticket {ticket} is not the next one"));
                verdict.expect(Checker::Waiters, blocked.waiters > 0, || format!("nobody waits for {resource}"));
                // A successor asks again after its predecessor was found dead and removed.
                self.waiters.retain(|place| place.claim.metadata != claim.metadata || !place.is_over(scene));
                self.waiters.push(Place::new(*ticket, claim, standing, scene.lease));
            }
            (_, Answer::Waiting(Waiting { ticket, place, .. })) => {
                let Some(index) = self.place(*ticket) else {
                    return verdict.report(Checker::Waiters, || format!("ticket {ticket} waits for {resource}, unheard of"));
                };
                if let Asked::Acquire(Ask { wait: Some(standing), .. }) = asked {
                    self.waiters[index] = Place::new(*ticket, &self.waiters[index].claim, standing, scene.lease);
                }
                let living = self.waiters[..index].iter().filter(|before| !before.is_over(scene)).count();
                verdict.expect(Checker::Fifo, (living + 1..=index + 1).contains(place), || {
                    format!("ticket {ticket} for {resource} is told place {place}; {living} to {index} stand before it")
                });
                self.waiters[index].looked = scene.lease;
            }
            _ => {}
        }
    }
}
