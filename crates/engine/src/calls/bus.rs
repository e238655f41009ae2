//! The bus: posting a message.

use banksman_core::bus::{Contention, Draft, Message};
use banksman_core::dispatch::Mode;
use banksman_core::mailbox::{Delivery, MAILBOX_LIMIT};
use banksman_core::{MessageId, RunId, Seq, Status, TaskId};
use banksman_store::{Key, Tx};

#[derive(Debug, Clone)]
pub struct PostRequest {
    pub draft: Draft,
    /// How long the sender had to wait for the store.
    pub contention: Contention,
    /// Also put the message into the mailbox of its task.
    pub to_task: Option<Mode>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostOutcome {
    Posted(Seq),
    /// An identical message was posted before.
    AlreadyPosted(Seq),
    /// Another message has this id.
    IdTaken(Seq),
    UnknownTask(TaskId),
    /// The message to answer does not exist.
    UnknownParent(MessageId),
    /// The task has ended for good: no run will read the message.
    TargetOver(TaskId, Status),
    MailboxFull(TaskId),
    /// The run does not exist or is over: the sender came back too late.
    Fenced(RunId),
}

impl PostRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        let Draft { id, task, run, parent, .. } = &self.draft;
        let mut keys = vec![Key::Message(id.clone())];
        keys.extend(parent.clone().map(Key::Message));
        keys.extend(task.clone().map(Key::Task));
        keys.extend(run.clone().map(Key::Run));
        keys.extend(task.clone().filter(|_| self.to_task.is_some()).map(Key::Mailbox));
        keys
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> PostOutcome {
        let draft = &self.draft;
        if let Some(message) = tx.tables.messages.get(&draft.id) {
            return if message.draft == *draft {
                PostOutcome::AlreadyPosted(message.seq)
            } else {
                PostOutcome::IdTaken(message.seq)
            };
        }
        let backlog = &tx.tables.backlog;
        if let Some(run) = draft.run.as_ref().filter(|run| !backlog.runs.get(*run).is_some_and(|run| run.is_live())) {
            return PostOutcome::Fenced(run.clone());
        }
        if let Some(task) = draft.task.as_ref().filter(|task| !backlog.tasks.contains_key(*task)) {
            return PostOutcome::UnknownTask(task.clone());
        }
        if let Some(parent) = draft.parent.as_ref().filter(|parent| !tx.tables.messages.contains_key(*parent)) {
            return PostOutcome::UnknownParent(parent.clone());
        }
        if let (Some(mode), Some(target)) = (self.to_task, &draft.task) {
            let status = backlog.tasks[target].status();
            if status.is_over() {
                return PostOutcome::TargetOver(target.clone(), status);
            }
            let open = tx.tables.deliveries.values().filter(|delivery| delivery.target == *target && delivery.is_open());
            if open.count() >= MAILBOX_LIMIT {
                return PostOutcome::MailboxFull(target.clone());
            }
            let delivery = Delivery::new(draft.id.clone(), tx.seq, target.clone(), mode);
            tx.tables.deliveries.insert(draft.id.clone(), delivery);
        }
        PostOutcome::Posted(post(draft.clone(), self.contention, tx))
    }
}

/// Puts a message on the bus. The message takes the number of the next event.
pub(crate) fn post(draft: Draft, contention: Contention, tx: &mut Tx) -> Seq {
    let (seq, wall) = (tx.seq, tx.wall);
    tx.seq.0 += 1;
    tx.tables.messages.insert(draft.id.clone(), Message { seq, wall, draft, contention });
    seq
}
