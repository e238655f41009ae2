//! What the outbox holds for this runner: sessions to be ended or woken up, and people to be told.

use banksman_core::backlog::Backlog;
use banksman_core::{Lease, OutboxCommand, Seq, Span};

use super::{Advice, Dispatcher, Phase};
use crate::runs::RunRequest;

/// How long an outbox command may take, unless it says otherwise, before it counts as tried in vain.
const ANSWER_WITHIN: Span = Span::from_secs(10);

/// How long it may take to tell people: longer than all ways to do it together.
const TOLD_WITHIN: Span = Span::from_secs(60);

impl Dispatcher {
    /// Begins what is due, once each.
    pub(super) fn run_errands(&mut self, backlog: &Backlog, now: Lease) {
        self.doing.retain(|seq, _| backlog.outbox.contains_key(seq));
        self.errand_due = None;
        let own = backlog.outbox.values().filter(|entry| entry.executor.as_ref() == Some(&self.me.id) && !entry.is_dead());
        for entry in own {
            if self.doing.contains_key(&entry.seq) {
                continue;
            }
            if entry.due > now {
                self.errand_due = Some(self.errand_due.map_or(entry.due, |due| due.min(entry.due)));
                continue;
            }
            let within = match &entry.command {
                OutboxCommand::Kill { run } => match self.owned.get_mut(run) {
                    // Nobody is there to be asked for it.
                    Some(owned) if owned.unproven => continue,
                    Some(owned) if !matches!(owned.phase, Phase::Ended(_)) => {
                        owned.phase = Phase::Killing;
                        self.queue.push_back(Advice::Kill(run.clone()));
                        self.options.kill_patience
                    }
                    _ => continue,
                },
                OutboxCommand::Nudge { run } => match self.owned.get(run) {
                    Some(owned) if owned.phase == Phase::Live => {
                        self.queue.push_back(Advice::Nudge(run.clone(), entry.seq));
                        ANSWER_WITHIN
                    }
                    _ => continue,
                },
                OutboxCommand::Notify(notice) => {
                    self.queue.push_back(Advice::Notify(entry.seq, notice.clone()));
                    TOLD_WITHIN
                }
                // It was given to the driver when the run was claimed, or is part of the recovery.
                OutboxCommand::Spawn { .. } => continue,
            };
            self.doing.insert(entry.seq, now + within);
        }
    }

    /// An outbox command was done, or could not be.
    pub fn did(&mut self, command: Seq, result: Result<(), Box<str>>) {
        self.tried(command, result.err(), false);
    }

    /// An outbox command could not be done, and never will.
    pub fn gave_up(&mut self, command: Seq, error: Box<str>) {
        self.tried(command, Some(error), true);
    }

    fn tried(&mut self, command: Seq, error: Option<Box<str>>, is_final: bool) {
        if self.doing.contains_key(&command) {
            self.results.push(RunRequest::Tried { runner: self.me.id.clone(), command, error, is_final });
        }
    }

    /// Tells the store what came of outbox commands; also of those that took too long.
    pub(super) fn give_up_errands(&mut self, now: Lease) -> Option<Advice> {
        let late: Vec<Seq> = self.doing.iter().filter(|(_, until)| **until <= now).map(|(seq, _)| *seq).collect();
        for command in late {
            self.did(command, Err("there was no answer".into()));
        }
        let results = std::mem::take(&mut self.results);
        (!results.is_empty()).then(|| self.call(results))
    }
}
