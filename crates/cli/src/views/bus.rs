//! Messages.

use banksman_core::bus::Message;
use banksman_core::dispatch::Mode;
use banksman_core::mailbox::{Delivery, Receipt};
use banksman_core::{MessageId, Name, RunId, Seq, TaskId};
use banksman_runtime::Letter;
use banksman_store::TypeCount;
use serde::Serialize;

use super::Time;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageView<'a> {
    seq: Seq,
    id: &'a MessageId,
    timestamp: Time,
    #[serde(rename = "type")]
    kind: &'a str,
    task: &'a Option<TaskId>,
    run: &'a Option<RunId>,
    author: &'a str,
    reply_to: &'a Option<MessageId>,
    body: &'a str,
    attachments: &'a [Box<str>],
    attempts: u32,
    waited_ms: i64,
}

impl<'a> From<&'a Message> for MessageView<'a> {
    fn from(message: &'a Message) -> MessageView<'a> {
        let draft = &message.draft;
        MessageView {
            seq: message.seq,
            id: &draft.id,
            timestamp: Time(message.wall),
            kind: draft.kind.as_str(),
            task: &draft.task,
            run: &draft.run,
            author: &draft.author,
            reply_to: &draft.parent,
            body: &draft.body,
            attachments: &draft.attachments,
            attempts: message.contention.attempts,
            waited_ms: message.contention.waited.as_ms(),
        }
    }
}

/// A message as a run reads it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LetterView<'a> {
    #[serde(flatten)]
    message: MessageView<'a>,
    redelivered: bool,
}

impl<'a> From<&'a Letter> for LetterView<'a> {
    fn from(letter: &'a Letter) -> LetterView<'a> {
        LetterView { message: MessageView::from(&letter.message), redelivered: letter.is_redelivered }
    }
}

/// The delivery of a message to a task.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliveryView<'a> {
    seq: Seq,
    id: &'a MessageId,
    task: &'a TaskId,
    author: &'a str,
    mode: Mode,
    receipt: Receipt,
    run: Option<&'a RunId>,
    redelivered: bool,
    lock: Option<&'a Name>,
}

impl<'a> DeliveryView<'a> {
    pub(crate) fn new(delivery: &'a Delivery, receipt: Receipt, author: &'a str) -> DeliveryView<'a> {
        DeliveryView {
            seq: delivery.seq,
            id: &delivery.id,
            task: &delivery.target,
            author,
            mode: delivery.mode,
            receipt,
            run: delivery.run(),
            redelivered: delivery.is_redelivered(),
            lock: delivery.claim().map(|claim| &claim.lock),
        }
    }
}

/// Statistics of all stored messages.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BusStats {
    messages: u64,
    attempts: u64,
    retries: u64,
    waited_ms: u64,
    longest_wait_ms: u64,
    bytes: u64,
    last_seq: Option<Seq>,
    pub(crate) types: Vec<TypeView>,
}

/// Statistics of the messages of one type.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TypeView {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) messages: u64,
    pub(crate) attempts: u64,
    pub(crate) waited_ms: u64,
    pub(crate) longest_wait_ms: u64,
    pub(crate) bytes: u64,
}

impl From<&[TypeCount]> for BusStats {
    fn from(counts: &[TypeCount]) -> BusStats {
        let ms = |span: banksman_core::Span| u64::try_from(span.as_ms()).unwrap_or(0);
        let types: Vec<TypeView> = counts
            .iter()
            .map(|count| TypeView {
                kind: count.kind.to_string(),
                messages: count.messages,
                attempts: count.attempts,
                waited_ms: ms(count.waited),
                longest_wait_ms: ms(count.longest_wait),
                bytes: count.bytes,
            })
            .collect();
        let sum = |of: fn(&TypeView) -> u64| types.iter().map(of).sum::<u64>();
        let (messages, attempts) = (sum(|of| of.messages), sum(|of| of.attempts));
        BusStats {
            messages,
            attempts,
            retries: attempts - messages,
            waited_ms: sum(|of| of.waited_ms),
            longest_wait_ms: types.iter().map(|of| of.longest_wait_ms).max().unwrap_or(0),
            bytes: sum(|of| of.bytes),
            last_seq: counts.iter().map(|count| count.last).max(),
            types,
        }
    }
}
