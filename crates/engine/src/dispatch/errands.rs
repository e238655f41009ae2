//! What the outbox holds for this runner: sessions to be ended or woken up, and people to be told.

use banksman_core::backlog::Backlog;
use banksman_core::{Errand, Lease, Seq, Span};

use super::{Advice, Dispatcher, Phase};
use crate::runs::RunRequest;

/// How long an errand may take, unless it says otherwise, before it counts as tried in vain.
const ANSWER_WITHIN: Span = Span::from_secs(10);

/// How long it may take to tell people: longer than all ways to do it together.
const TOLD_WITHIN: Span = Span::from_secs(60);

impl Dispatcher {
    /// Begins what is due, once each.
    pub(super) fn run_errands(&mut self, backlog: &Backlog, now: Lease) {
        self.doing.retain(|seq, _| backlog.outbox.contains_key(seq));
        self.errand_due = None;
        let own = backlog.outbox.values().filter(|sent| sent.executor.as_ref() == Some(&self.me.id) && !sent.is_dead());
        for sent in own {
            if self.doing.contains_key(&sent.seq) {
                continue;
            }
            if sent.due > now {
                self.errand_due = Some(self.errand_due.map_or(sent.due, |due| due.min(sent.due)));
                continue;
            }
            let within = match &sent.errand {
                Errand::Kill { run } => match self.mine.get_mut(run) {
                    // Nobody is there to be asked for it.
                    Some(mine) if mine.unproven => continue,
                    Some(mine) if !matches!(mine.phase, Phase::Ended(_)) => {
                        mine.phase = Phase::Killing;
                        self.queue.push_back(Advice::Kill(run.clone()));
                        self.options.kill_patience
                    }
                    _ => continue,
                },
                Errand::Nudge { run } => match self.mine.get(run) {
                    Some(mine) if mine.phase == Phase::Live => {
                        self.queue.push_back(Advice::Nudge(run.clone(), sent.seq));
                        ANSWER_WITHIN
                    }
                    _ => continue,
                },
                Errand::Notify(notice) => {
                    self.queue.push_back(Advice::Notify(sent.seq, notice.clone()));
                    TOLD_WITHIN
                }
                // It was given to the driver when the run was claimed, or is part of the recovery.
                Errand::Spawn { .. } => continue,
            };
            self.doing.insert(sent.seq, now + within);
        }
    }

    /// An errand was done, or could not be.
    pub fn did(&mut self, errand: Seq, result: Result<(), Box<str>>) {
        self.tried(errand, result.err(), false);
    }

    /// An errand could not be done, and never will.
    pub fn gave_up(&mut self, errand: Seq, error: Box<str>) {
        self.tried(errand, Some(error), true);
    }

    fn tried(&mut self, errand: Seq, error: Option<Box<str>>, is_final: bool) {
        if self.doing.contains_key(&errand) {
            self.results.push(RunRequest::Tried { runner: self.me.id.clone(), errand, error, is_final });
        }
    }

    /// Tells the store what came of errands; also of those that took too long.
    pub(super) fn give_up_errands(&mut self, now: Lease) -> Option<Advice> {
        let late: Vec<Seq> = self.doing.iter().filter(|(_, until)| **until <= now).map(|(seq, _)| *seq).collect();
        for errand in late {
            self.did(errand, Err("there was no answer".into()));
        }
        let results = std::mem::take(&mut self.results);
        (!results.is_empty()).then(|| self.call(results))
    }
}
