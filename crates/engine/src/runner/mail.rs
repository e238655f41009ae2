//! Messages whose dispatcher is dead, messages for tasks that are over, and starts with a message that were not observed.

use banksman_core::ProcessId;
use banksman_core::dispatch::{OBSERVE_WITHIN, Plan};
use banksman_core::mailbox::Delivery;
use banksman_store::{Key, Snapshot};

use super::context::Context;
use crate::calls::mailbox::MailboxRequest;
use crate::calls::runs::end::open_question;
use crate::request::Request;

/// The most deliveries to read in one pass.
const LIMIT: u32 = 100;

pub(super) fn first_keys() -> [Key; 2] {
    [Key::UnsettledDeliveries { limit: LIMIT }, Key::OpenDecisions]
}

/// The process that sends a message now.
fn dispatcher(delivery: &Delivery) -> Option<&ProcessId> {
    delivery.claim().and(delivery.dispatch.as_ref()?.dispatcher.as_ref())
}

/// The processes that send messages now.
pub(super) fn dispatchers(snapshot: &Snapshot) -> impl Iterator<Item = &ProcessId> {
    snapshot.deliveries.values().filter_map(dispatcher)
}

/// The requests that settle these messages.
pub(super) fn requests(snapshot: &Snapshot, context: &Context) -> Vec<Request> {
    let is_abandoned = |delivery: &&Delivery| dispatcher(delivery).is_some_and(|process| context.is_dead(process));
    let abandoned = snapshot.deliveries.values().filter(is_abandoned).map(|delivery| {
        let (id, target) = (delivery.id.clone(), delivery.target.clone());
        MailboxRequest::Abandon { id, target, seen: context.seen() }
    });
    let over = snapshot.over_targets.iter().map(|target| MailboxRequest::Return { target: target.clone() });
    let unobserved = snapshot.deliveries.values().filter_map(|delivery| {
        let dispatch = delivery.claim().and(delivery.dispatch.as_ref())?;
        let is_due = dispatch.plan == Plan::Spawn && snapshot.lease >= dispatch.began.lease + OBSERVE_WITHIN;
        let is_asked = open_question(&dispatch.run, &snapshot.backlog).is_some();
        let (id, target, run) = (delivery.id.clone(), delivery.target.clone(), dispatch.run.clone());
        // A start whose run has ended or was observed needs no question.
        let is_live = snapshot.backlog.runs.get(&run).is_some_and(|run| run.session.is_none());
        (is_due && is_live && !is_asked).then_some(MailboxRequest::Unobserved { id, target, run })
    });
    abandoned.chain(over).chain(unobserved).map(Request::from).collect()
}
