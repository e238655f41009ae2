//! Checks of queues, by a model of its own that sees every committed answer, and by the pure core over all rows.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::queue::{Hold, Input, Outcome, Pushed, Queues, State};
use banksman_core::{Epoch, ItemId, Lease, Liveness, Now, Span};
use banksman_engine::{QueueRequest, Reply};

use crate::report::{Checker, Verdict};
use crate::traced::Note;

/// The model of the queues.
#[derive(Default)]
pub(crate) struct Ledger {
    /// The current takes, and until when.
    held: BTreeMap<ItemId, (Epoch, Lease)>,
    /// The highest epoch so far.
    epoch: Epoch,
    /// The items that a push has acknowledged.
    pub(crate) acknowledged: BTreeSet<ItemId>,
    pub(crate) completed: BTreeSet<ItemId>,
    /// The same inputs, decided by the pure core alone.
    pub(crate) model: Queues,
}

impl Ledger {
    /// Processes a committed answer.
    pub(crate) fn observe(&mut self, request: &QueueRequest, reply: &Reply, note: Note, verdict: &mut Verdict) {
        let Reply::Queue { outcome, at } = reply else { return };
        match (&request.input, outcome) {
            (Input::Push(_), Outcome::Pushed(pushed)) => {
                self.acknowledged.extend(pushed.iter().filter_map(|one| match one {
                    Pushed::Added(id) => Some(*id),
                    Pushed::Duplicate(_) | Pushed::Full => None,
                }));
            }
            (Input::Take { .. }, Outcome::Taken(item)) => {
                let State::Processing(taken) = &item.state else { return };
                verdict.expect(Checker::Epochs, taken.epoch > self.epoch, || {
                    format!("{} was taken as epoch {}, after epoch {}", item.id, taken.epoch, self.epoch)
                });
                verdict.expect(Checker::Ends, !self.completed.contains(&item.id), || {
                    format!("{} was taken after it was done", item.id)
                });
                let before = self.held.insert(item.id, (taken.epoch, taken.until));
                verdict.expect(Checker::Living, before.is_none_or(|(_, until)| until <= at.lease), || {
                    format!("{} was taken from {before:?} at {}", item.id, at.lease.0)
                });
                self.epoch = self.epoch.max(taken.epoch);
            }
            (Input::Complete(hold), outcome) => {
                self.check_hold(hold, matches!(outcome, Outcome::Completed), at.lease, verdict);
                if *outcome == Outcome::Completed {
                    self.held.remove(&hold.item);
                    verdict
                        .expect(Checker::Ends, self.completed.insert(hold.item), || format!("{} was completed twice", hold.item));
                }
            }
            (Input::Fail { hold, .. }, outcome) => {
                let worked = matches!(outcome, Outcome::Failed { .. } | Outcome::Dead { .. });
                self.check_hold(hold, worked, at.lease, verdict);
                if worked {
                    self.held.remove(&hold.item);
                }
            }
            (Input::Extend(hold, _), outcome) => {
                self.check_hold(hold, matches!(outcome, Outcome::Extended { .. }), at.lease, verdict);
                if let Outcome::Extended { until } = outcome {
                    self.held.insert(hold.item, (hold.epoch, *until));
                }
            }
            _ => {}
        }
        self.compare(request, outcome, note, verdict);
    }

    /// Only the last taker of an item can do anything with it, and is never refused before its visibility timeout.
    fn check_hold(&self, hold: &Hold, worked: bool, at: Lease, verdict: &mut Verdict) {
        let held = self.held.get(&hold.item);
        let is_last = held.is_some_and(|(epoch, _)| *epoch == hold.epoch);
        let in_time = held.is_some_and(|(_, until)| at < *until);
        verdict.expect(Checker::Fencing, !worked || is_last, || format!("{hold:?} is stale and worked; the model has {held:?}"));
        verdict.expect(Checker::Fencing, worked || !is_last || !in_time, || format!("{hold:?} was refused in its time"));
    }

    fn compare(&mut self, request: &QueueRequest, outcome: &Outcome, note: Note, verdict: &mut Verdict) {
        let dead = request.seen.probes.iter().filter(|(_, liveness)| *liveness == Liveness::Dead);
        let now = Now {
            seq: note.seq,
            ticket: note.ticket,
            lease: note.lease,
            wall: note.wall,
            dead: dead.map(|(process, _)| process.clone()).collect(),
            patience: Span::ZERO,
        };
        let step = std::mem::take(&mut self.model).step(&request.queue, request.input.clone(), &now);
        self.model = step.state;
        let wanted = step.outcome;
        verdict.expect(Checker::Model, wanted == *outcome, || {
            format!("{:?}: {outcome:?}, but the core says {wanted:?}", request.input)
        });
    }
}
