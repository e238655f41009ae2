//! A keeper and its session: it makes the record, starts the program, ends the tree, and reports to its owner.
//!
//! ```text
//! Born --record made--> Made --locked, written--> Running --exit--> Draining --> Ended --acknowledged or 100 ms--> gone
//!                         `-- has a tombstone: refuses            `--kill--> Stopping --^
//! ```

use std::collections::{BTreeSet, VecDeque};

use banksman_core::backlog::Session;
use banksman_core::task::RunEnd;
use banksman_core::{ProcessId, RunId, Seq, TaskId};
use banksman_engine::Work;

use super::program::Child;
use crate::clock::Ms;
use crate::machine::Record;
use crate::mutation::Mutation;
use crate::report::Checker;
use crate::world::World;

/// How long the owner may take to acknowledge.
const ACKNOWLEDGE: Ms = 100;

pub(crate) struct Keeper {
    pub(crate) number: u32,
    pub(crate) run: RunId,
    pub(crate) task: TaskId,
    /// The fencing number that its session presents.
    pub(crate) run_epoch: banksman_core::Epoch,
    pub(crate) process: ProcessId,
    pub(crate) alive: bool,
    pub(crate) stage: Stage,
    /// The time before which it is not scheduled.
    pub(crate) not_before: Ms,
    pub(crate) owner: Option<u64>,
    epoch: i64,
    pub(crate) mail: VecDeque<(u64, Ask)>,
    pub(crate) child: Option<Child>,
    /// Descendants that are detached from the child.
    pub(crate) hidden: Vec<ProcessId>,
    /// The nudges that were delivered.
    nudged: BTreeSet<Seq>,
    /// How the child ended.
    pub(crate) exit: Option<RunEnd>,
    /// Whether the machine lacks a resource to start the child.
    pub(crate) is_short: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    Born,
    Made,
    Running,
    Draining { until: Ms },
    Stopping { until: Ms },
    Ended { ending: RunEnd, until: Ms },
    Gone,
}

/// A request of an owner, with its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Own(i64),
    Kill(i64),
    Nudge(i64, Seq),
    Acknowledge(i64),
}

/// A notice to the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    Started(Session),
    Ended(RunEnd),
    Nudged(Seq),
    RecordExists,
    LowerEpoch,
}

impl Keeper {
    pub(crate) fn new(number: u32, work: &Work, process: ProcessId, stream: u64, not_before: Ms) -> Keeper {
        Keeper {
            number,
            run: work.run.id.clone(),
            task: work.task.id.clone(),
            run_epoch: work.run.epoch,
            process,
            alive: true,
            stage: Stage::Born,
            not_before,
            owner: Some(stream),
            epoch: work.run.owner_epoch.0,
            mail: VecDeque::new(),
            child: None,
            hidden: Vec::new(),
            nudged: BTreeSet::new(),
            exit: None,
            is_short: false,
        }
    }

    /// Whether it is in a container that no runner can see into. The lock of its record shows that it is dead; nothing
    /// shows the state of its tree.
    pub(crate) fn is_unseen(&self) -> bool {
        self.number % 5 == 2
    }

    /// Whether a process of the session is alive.
    pub(crate) fn tree_lives(&self) -> bool {
        self.child.is_some() || !self.hidden.is_empty()
    }

    /// The time at which it acts by itself.
    pub(crate) fn due(&self) -> Option<Ms> {
        match &self.stage {
            _ if !self.alive => None,
            Stage::Born | Stage::Made => Some(self.not_before),
            Stage::Running => (!self.mail.is_empty() || self.exit.is_some() || self.child.is_none()).then_some(self.not_before),
            Stage::Draining { until } | Stage::Stopping { until } | Stage::Ended { until, .. } => {
                Some(if self.mail.is_empty() { (*until).max(self.not_before) } else { self.not_before })
            }
            Stage::Gone => None,
        }
    }
}

impl World<'_> {
    /// Executes the next step of a keeper.
    pub(crate) fn keep(&mut self, number: u32) {
        let Some(mut keeper) = self.keepers.remove(&number) else { return };
        self.advance_keeper(&mut keeper);
        self.keepers.insert(number, keeper);
    }

    fn advance_keeper(&mut self, keeper: &mut Keeper) {
        let now = self.clock.now();
        // The end of the owner's stream is noticed before anything else.
        if keeper.owner.is_some_and(|stream| !self.is_open(stream)) && keeper.mail.is_empty() {
            keeper.owner = None;
        }
        if let Some((stream, ask)) = keeper.mail.pop_front() {
            return self.consider(keeper, stream, ask);
        }
        match keeper.stage.clone() {
            Stage::Born => match self.machine.records.get(&keeper.run) {
                Some(_) if self.mutation() != Some(Mutation::RecordShared) => self.refuse(keeper),
                _ => {
                    self.machine.records.insert(keeper.run.clone(), Record::Empty);
                    keeper.stage = Stage::Made;
                }
            },
            Stage::Made if self.machine.records.get(&keeper.run) != Some(&Record::Empty) => self.refuse(keeper),
            Stage::Made => {
                let record = Record::Kept { keeper: keeper.number, ended: None, flushed: false };
                self.machine.records.insert(keeper.run.clone(), record);
                self.start_program(keeper);
                keeper.stage = Stage::Running;
                self.introduce(keeper);
            }
            Stage::Running
                if keeper.child.is_none() && !keeper.hidden.is_empty() && self.mutation() != Some(Mutation::Stragglers) =>
            {
                keeper.stage = Stage::Draining { until: now + self.random.between(0, 1_000) };
            }
            Stage::Running if keeper.child.is_none() => self.finish_session(keeper),
            Stage::Running => {}
            Stage::Draining { until } if until <= now => {
                keeper.stage = Stage::Stopping { until: now + self.random.between(0, 2_000) };
            }
            Stage::Stopping { until } if until <= now => {
                self.end_tree(keeper);
                self.finish_session(keeper);
            }
            Stage::Ended { until, .. } if until <= now || keeper.owner.is_none() => {
                if let Some(Record::Kept { flushed, .. }) = self.machine.records.get_mut(&keeper.run) {
                    *flushed = true;
                }
                self.leave_session(keeper);
            }
            Stage::Draining { .. } | Stage::Stopping { .. } | Stage::Ended { .. } | Stage::Gone => {}
        }
    }

    fn refuse(&mut self, keeper: &mut Keeper) {
        self.say(format_args!("keeper {} of {}: there is a record already", keeper.number, keeper.run));
        self.tally.count("keepers refused");
        self.notify(keeper, Notice::RecordExists);
        self.leave_session(keeper);
    }

    /// Reports to the owner what it has missed.
    fn introduce(&mut self, keeper: &mut Keeper) {
        if let Some(child) = keeper.child.as_ref().map(|child| child.process.pid) {
            self.notify(keeper, Notice::Started(Session { keeper: keeper.process.pid, child }));
        }
        if let Stage::Ended { ending, until } = &mut keeper.stage {
            *until = self.clock.now() + ACKNOWLEDGE;
            let notice = Notice::Ended(ending.clone());
            self.notify(keeper, notice);
        }
    }

    fn consider(&mut self, keeper: &mut Keeper, stream: u64, ask: Ask) {
        let (Ask::Own(epoch) | Ask::Kill(epoch) | Ask::Nudge(epoch, _) | Ask::Acknowledge(epoch)) = ask;
        if epoch < keeper.epoch {
            return self.notify_stream(stream, Notice::LowerEpoch);
        }
        keeper.epoch = epoch;
        if keeper.owner != Some(stream) {
            if let Some(former) = keeper.owner.replace(stream) {
                self.notify_stream(former, Notice::LowerEpoch);
                self.close_stream(former);
            }
            self.introduce(keeper);
        }
        match (ask, &keeper.stage) {
            (Ask::Kill(_), Stage::Running | Stage::Draining { .. }) => {
                keeper.stage = Stage::Stopping { until: self.clock.now() + self.random.between(0, 2_000) };
            }
            (Ask::Nudge(_, command), _) => {
                let is_new = keeper.nudged.insert(command);
                if let Some(child) = keeper.child.as_mut().filter(|_| is_new) {
                    child.wake_up(self.clock.now());
                }
                self.notify(keeper, Notice::Nudged(command));
            }
            (Ask::Acknowledge(_), Stage::Ended { .. }) => {
                self.machine.records.remove(&keeper.run);
                self.leave_session(keeper);
            }
            _ => {}
        }
    }

    /// Kills what is left of the tree, and reaps it.
    pub(crate) fn end_tree(&mut self, keeper: &mut Keeper) {
        if let Some(child) = keeper.child.take() {
            self.machine.exit(&child.process);
            self.drop_calls_of_program(keeper.number);
            keeper.exit.get_or_insert(RunEnd::Signalled(15));
        }
        for process in std::mem::take(&mut keeper.hidden) {
            self.machine.exit(&process);
            self.tally.count("hidden processes ended");
        }
    }

    fn finish_session(&mut self, keeper: &mut Keeper) {
        let ending = keeper.exit.clone().unwrap_or(RunEnd::Lost);
        self.say(format_args!("session of {} has ended: {ending}", keeper.run));
        match self.machine.records.get_mut(&keeper.run) {
            Some(Record::Kept { ended, .. }) => *ended = Some(ending.clone()),
            other => {
                let what = format!("the record of {} is {other:?} when its session ends", keeper.run);
                self.verdict.report(Checker::Twice, || what);
            }
        }
        self.facts(&keeper.run).recorded = Some(ending.clone());
        self.notify(keeper, Notice::Ended(ending.clone()));
        keeper.stage = Stage::Ended { ending, until: self.clock.now() + ACKNOWLEDGE };
    }

    /// The keeper exits, which closes its end of the stream.
    pub(crate) fn leave_session(&mut self, keeper: &mut Keeper) {
        keeper.alive = false;
        keeper.stage = Stage::Gone;
        self.machine.exit(&keeper.process);
        let streams: Vec<u64> = keeper.mail.drain(..).map(|(stream, _)| stream).chain(keeper.owner.take()).collect();
        streams.into_iter().for_each(|stream| self.close_stream(stream));
    }

    fn notify(&mut self, keeper: &Keeper, notice: Notice) {
        if let Some(stream) = keeper.owner {
            self.notify_stream(stream, notice);
        }
    }
}
