//! A session that waits for tasks releases its slot, and takes it again before it continues: `tasks wait` in a run.
//!
//! ```text
//! at work --Pause--> Away { until } --Acquire--> InLine --Poll--> has a slot --Resume--> at work
//! ```

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::grant::{Ask, GrantRequest, WaitingProcess};
use banksman_core::resource::semaphore;
use banksman_core::{Name, ProcessId, RunId, Ticket};
use banksman_engine::{Reply, Request, RunRequest};

use crate::clock::Ms;
use crate::commit::Heard;
use crate::commit::{InFlight, Sender};
use crate::report::Checker;
use crate::world::World;

/// The state of a waiting session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It wants to release its slot.
    Asked,
    /// It waits for tasks.
    Away { until: Ms },
    /// It waits for a slot.
    InLine { ticket: Ticket, poll_at: Ms },
    /// It has a slot, and confirms that it may keep it.
    Back,
}

impl Pause {
    /// When it acts by itself.
    pub(crate) fn due(self) -> Ms {
        match self {
            Pause::Asked | Pause::Back => 0,
            Pause::Away { until } => until,
            Pause::InLine { poll_at, .. } => poll_at,
        }
    }
}

impl World<'_> {
    /// Executes the next step of a waiting session.
    pub(crate) fn advance_waiting(&mut self, number: u32, pause: Pause) {
        let Some(keeper) = self.keepers.get(&number) else { return };
        let (run, epoch) = (keeper.run.clone(), keeper.run_epoch);
        let request = match pause {
            Pause::Asked => Request::Run(RunRequest::Pause { run, epoch, workspace: None }),
            Pause::Back => Request::Run(RunRequest::Resume { run, epoch, workspace: None }),
            Pause::Away { .. } => {
                let Some(process) = keeper.child.as_ref().map(|child| child.process.clone()) else { return };
                Request::plain(Command::Semaphore(Name::runs(), semaphore::Input::Acquire(Box::new(slot(&run, process)))))
            }
            Pause::InLine { ticket, .. } => Request::plain(Command::Semaphore(Name::runs(), semaphore::Input::Poll { ticket })),
        };
        self.calls.push(InFlight { from: Sender::Program(number), requests: vec![request] });
    }

    /// A waiting session receives the reply to its last step.
    pub(crate) fn on_waiting_reply(&mut self, pause: Pause, heard: &Heard) -> Option<Pause> {
        let now = self.clock.now();
        let Heard::Replies(replies) = heard else {
            // It asks again, so each of its steps may be carried out twice.
            return Some(pause);
        };
        match (pause, replies.first()) {
            (Pause::Asked, _) => {
                self.tally.count("slots given back");
                Some(Pause::Away { until: now + self.random.between(10, 6_000) })
            }
            (Pause::Back, _) => None,
            (Pause::Away { .. } | Pause::InLine { .. }, Some(Reply::Coordinate { outcome: Outcome::Semaphore(outcome), .. })) => {
                match outcome {
                    semaphore::Outcome::Waiting(waiting) => {
                        let poll_at = now + self.random.between(10, 2_000);
                        Some(Pause::InLine { ticket: waiting.ticket, poll_at })
                    }
                    semaphore::Outcome::Gone => Some(Pause::Away { until: now }),
                    _ => Some(Pause::Back),
                }
            }
            (Pause::Away { .. } | Pause::InLine { .. }, _) => None,
        }
    }

    /// A session that continues has its slot again.
    pub(crate) fn check_slot(&mut self, number: u32) {
        let Some(run) = self.keepers.get(&number).map(|keeper| keeper.run.clone()) else { return };
        let holds = self.model.holders(&runs()).any(|(holder, _)| *holder == run.holder());
        self.verdict.expect(Checker::Slots, holds, || format!("{run} goes on without a slot"));
    }

    /// Whether a living session waits for a run slot.
    pub(crate) fn slots_are_waited_for(&self, resource: &Resource) -> bool {
        let waits = |pause: Pause| matches!(pause, Pause::InLine { .. } | Pause::Away { .. });
        let mut children = self.keepers.values().filter_map(|keeper| keeper.child.as_ref());
        *resource == runs() && children.any(|child| child.pause.is_some_and(waits))
    }
}

pub(crate) fn runs() -> Resource {
    Resource { kind: Kind::Semaphore, name: Name::runs() }
}

/// Bound to no process: like the slot that the run had before, it ends with the run.
fn slot(run: &RunId, process: ProcessId) -> Ask {
    let wait = Some(WaitingProcess { process, address: None, lease: None });
    Ask { wait, ..Ask::new(GrantRequest::new(run.holder())) }
}
