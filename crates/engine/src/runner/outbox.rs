//! The outbox commands of this runner: ending and nudging sessions, delivering messages, and notifying people.

use std::collections::BTreeMap;

use banksman_core::backlog::Backlog;
use banksman_core::{Lease, OutboxCommand, Seq, Span};

use super::context::Context;
use super::protocol::{Action, Output};
use super::sessions::Sessions;
use crate::calls::runs::RunRequest;
use crate::request::Request;

/// The default time after which an outbox command counts as failed.
const REPLY_WITHIN: Span = Span::from_secs(10);

/// How long a notification may take: longer than all its channels together.
const NOTIFY_WITHIN: Span = Span::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The commands that are being carried out, with their deadlines.
    running: BTreeMap<Seq, Lease>,
    /// When the next command is queued for retry.
    due: Option<Lease>,
    pending: Vec<Request>,
}

impl Outbox {
    /// Begins the commands that are due, once each.
    pub(super) fn begin(&mut self, backlog: &Backlog, sessions: &mut Sessions, context: &Context, now: Lease, out: &mut Output) {
        self.running.retain(|seq, _| backlog.outbox.contains_key(seq));
        self.due = None;
        let own = backlog.outbox.values().filter(|entry| entry.executor.as_ref() == Some(&context.me.id) && !entry.is_dead());
        for entry in own {
            if self.running.contains_key(&entry.seq) {
                continue;
            }
            if entry.due > now {
                self.due = Some(self.due.map_or(entry.due, |due| due.min(entry.due)));
                continue;
            }
            let (action, within) = match &entry.command {
                OutboxCommand::Kill { run, now: at_once } if sessions.kill(run, *at_once) => {
                    (Action::Kill(run.clone(), *at_once), context.options.kill_patience)
                }
                OutboxCommand::Nudge { run } if sessions.is_live(run) => (Action::Nudge(run.clone(), entry.seq), REPLY_WITHIN),
                OutboxCommand::Deliver { run, message } => match sessions.live_task(run) {
                    Some(task) => (Action::Deliver(task.clone(), message.clone(), entry.seq), REPLY_WITHIN),
                    None => continue,
                },
                OutboxCommand::Notify(notice) => (Action::Notify(entry.seq, notice.clone()), NOTIFY_WITHIN),
                // A spawn was given to the driver when the run was claimed, or is part of the recovery.
                OutboxCommand::Kill { .. } | OutboxCommand::Nudge { .. } | OutboxCommand::Spawn { .. } => continue,
            };
            out.act(action);
            self.running.insert(entry.seq, now + within);
        }
    }

    /// Records that an outbox command was carried out, or failed, perhaps for good.
    pub(super) fn done(&mut self, command: Seq, error: Option<Box<str>>, is_final: bool, context: &Context) {
        if self.running.contains_key(&command) {
            self.pending.push(RunRequest::Tried { runner: context.id(), command, error, is_final }.into());
        }
    }

    /// Reports the results of commands, including the commands that took too long.
    pub(super) fn requests(&mut self, context: &Context, now: Lease) -> Vec<Request> {
        let late: Vec<Seq> = self.running.iter().filter(|(_, until)| **until <= now).map(|(seq, _)| *seq).collect();
        for command in late {
            self.done(command, Some("there was no answer".into()), false, context);
        }
        std::mem::take(&mut self.pending)
    }

    /// Forgets a command whose result is in the store.
    pub(super) fn on_reply(&mut self, command: Seq) {
        self.running.remove(&command);
    }

    /// Whether a command is due for retry. The rows show which one, and whether it still is.
    pub(super) fn take_due(&mut self, now: Lease) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    pub(super) fn next_deadline(&self) -> Option<Lease> {
        self.running.values().copied().chain(self.due).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.due.is_none()
    }
}
