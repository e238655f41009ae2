//! A simulated runner: the real dispatcher in a process that can be killed, stopped and started again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use banksman_core::backlog::Runner as Row;
use banksman_core::resource::grant::Address;
use banksman_core::task::{OnExhausted, Watch};
use banksman_core::{Lease, Limits, ProcessId, RunId, RunnerId, SectionId, Span, Stamp, TaskId};
use banksman_engine::{Dispatcher, Options, RunnerInput};

use super::keeper::Notice;
use super::notify::Notification;
use super::outside::GuardCheck;
use super::root_checks::Roots;
use crate::Scenario;
use crate::clock::Ms;
use crate::commit::{Heard, Sender};
use crate::machine::Record;
use crate::mutation::Mutation;
use crate::world::World;

/// The longest sleep.
pub(crate) const POLL: Span = Span::from_secs(30);

pub(crate) struct Runner {
    pub(crate) id: RunnerId,
    pub(crate) process: ProcessId,
    pub(crate) alive: bool,
    /// When another runner starts in its place.
    pub(crate) back_at: Ms,
    pub(crate) paused_until: Option<Ms>,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) doing: Doing,
    pub(crate) mailbox: bool,
    /// Whether there were events since it last checked.
    pub(crate) change_notifier: bool,
    /// Whether it was asked to exit.
    pub(crate) cancelled: bool,
    pub(crate) sessions: BTreeMap<RunId, Stream>,
    pub(crate) sweeps: Vec<Sweep>,
    pub(crate) notifications: Vec<Notification>,
    /// Its guard checks in progress.
    pub(crate) guard_checks: Vec<GuardCheck>,
    /// The difference between the machine's clock and the store's.
    pub(crate) offset: i64,
    pub(crate) options: Options,
    /// What there was to wait for when it last read the backlog.
    pub(crate) awaits: Option<BTreeSet<String>>,
    pub(crate) roots: Roots,
    /// The tasks that claims have refused since the last wake-up.
    pub(crate) passed_over: BTreeSet<TaskId>,
    /// Whether its machine lacks a resource to start runs.
    pub(crate) is_short: bool,
    pub(crate) unread: Option<Heard>,
}

pub(crate) enum Doing {
    Acting,
    Calling,
    Sleeping { watch: Vec<ProcessId>, until: Ms },
}

/// The runner's end of a stream to a keeper.
pub(crate) struct Stream {
    pub(crate) number: u64,
    pub(crate) keeper: u32,
    pub(crate) epoch: i64,
    pub(crate) notices: VecDeque<Notice>,
    /// The other end is closed: there will be no more notices.
    pub(crate) closed: bool,
}

/// The sweep of a session's remaining processes.
pub(crate) struct Sweep {
    pub(crate) run: RunId,
    pub(crate) keeper: u32,
    pub(crate) done_at: Ms,
}

impl Runner {
    /// Whether it can act at all.
    pub(crate) fn is_awake(&self) -> bool {
        self.alive && self.paused_until.is_none()
    }

    pub(crate) fn address(&self) -> Address {
        Address(self.id.as_str().into())
    }
}

impl World<'_> {
    /// Removes the records of sessions whose runs have ended without them, as a runner does when it starts.
    pub(crate) fn clear_away(&mut self) {
        let (model, keepers) = (&self.model, &self.keepers);
        self.machine.records.retain(|run, record| match record {
            Record::Empty | Record::Tombstone => true,
            Record::Kept { keeper, .. } => model.is_live(run) || keepers.get(keeper).is_some_and(|keeper| keeper.alive),
        });
    }

    /// Starts a runner in a free slot.
    pub(crate) fn start_runner(&mut self, slot: usize, options: Options) {
        self.clear_away();
        self.counts.runners += 1;
        let id = RunnerId::new(&format!("n{}", self.counts.runners)).expect("a good id");
        let process = self.machine.fork();
        let row = Row {
            sections: options.sections.clone(),
            max_runs: options.max_runs,
            until_idle: options.until_idle,
            ..Row::new(id.clone(), process.clone(), Address(id.as_str().into()), Stamp::default())
        };
        let mut engine_options = options.clone();
        engine_options.max_runs.take_if(|_| self.mutation() == Some(Mutation::RoomOff));
        self.say(format_args!("runner {id} starts, pid {}, {options:?}", process.pid));
        self.tally.count("runners");
        self.model.enlist(&id, &process, options.max_runs);
        let runner = Runner {
            id,
            process,
            alive: true,
            back_at: 0,
            paused_until: None,
            dispatcher: Dispatcher::new(row, engine_options),
            doing: Doing::Acting,
            mailbox: false,
            change_notifier: false,
            cancelled: false,
            sessions: BTreeMap::new(),
            sweeps: Vec::new(),
            notifications: Vec::new(),
            guard_checks: Vec::new(),
            offset: 0,
            options,
            awaits: None,
            roots: Roots::default(),
            passed_over: BTreeSet::new(),
            is_short: false,
            unread: None,
        };
        if slot < self.runners.len() { self.runners[slot] = runner } else { self.runners.push(runner) }
    }

    /// The options of the next runner.
    pub(crate) fn runner_options(&mut self) -> Options {
        match self.scenario {
            Scenario::People => return self.options_beside_people(),
            Scenario::Runners => return self.fleet_options(),
            Scenario::Locks | Scenario::Queues | Scenario::Backlog => {}
        }
        let random = &mut self.random;
        let max_runs =
            random.in_thousand(500).then(|| 1 + u32::from(random.in_thousand(500)) + u32::from(random.in_thousand(300)));
        let sections: Vec<SectionId> = self.model.sections.keys().cloned().collect();
        let some = !sections.is_empty() && random.in_thousand(150);
        let limit = if random.in_thousand(800) { self.limit } else { [0, 1, 2, 3, 4][random.below(5)] };
        let root_limit = if random.in_thousand(750) { self.root_limit } else { [0, 1, 2][random.below(3)] };
        let timeout = if random.in_thousand(600) { random.between(500, 5_000) } else { random.between(5_000, 40_000) };
        let watch = Watch {
            timeout: Span::from_ms(timeout),
            max_recoveries: [0, 1, 2, 3][random.below(4)],
            on_exhausted: if random.in_thousand(650) { OnExhausted::Escalate } else { OnExhausted::Fail },
        };
        Options {
            max_runs,
            sections: if some { vec![random.pick(&sections).clone()] } else { Vec::new() },
            until_idle: random.in_thousand(400),
            limits: Limits { runs: limit, roots: root_limit },
            kill_patience: Span::from_ms(random.between(200, 3_000)),
            max_duration: random.in_thousand(300).then(|| Span::from_ms(random.between(1_000, 15_000))),
            checkpoint_interval: random.in_thousand(300).then(|| Span::from_ms(random.between(300, 3_000))),
            poll: POLL,
            ..Options::new(watch)
        }
    }

    /// Ends the process of a runner, with everything in it.
    pub(crate) fn end_runner(&mut self, slot: usize) {
        let most = if self.scenario == Scenario::People { 600 } else { 15_000 };
        let back_at = self.clock.now() + self.random.between(20, most);
        let runner = &mut self.runners[slot];
        (runner.alive, runner.back_at, runner.paused_until, runner.unread) = (false, back_at, None, None);
        runner.sessions.clear();
        runner.sweeps.clear();
        runner.notifications.clear();
        runner.guard_checks.clear();
        let process = runner.process.clone();
        self.machine.exit(&process);
        self.calls.retain(|call| call.from != Sender::Runner(slot) && call.from != Sender::Thread(slot));
    }

    /// Whether the runner's end of a stream is open.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.streams().any(|stream| stream.number == number && !stream.closed)
    }

    fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.runners.iter().filter(|runner| runner.alive).flat_map(|runner| runner.sessions.values())
    }

    fn stream(&mut self, number: u64) -> Option<&mut Stream> {
        let streams = self.runners.iter_mut().flat_map(|runner| runner.sessions.values_mut());
        streams.into_iter().find(|stream| stream.number == number)
    }

    pub(crate) fn notify_stream(&mut self, number: u64, notice: Notice) {
        if let Some(stream) = self.stream(number) {
            stream.notices.push_back(notice);
        }
    }

    pub(crate) fn close_stream(&mut self, number: u64) {
        if let Some(stream) = self.stream(number) {
            stream.closed = true;
        }
    }

    /// A runner receives the reply to its call.
    pub(crate) fn on_runner_reply(&mut self, slot: usize, heard: Heard) {
        self.runners[slot].doing = Doing::Acting;
        match heard {
            Heard::Replies(replies) => self.input(slot, RunnerInput::Replies(replies)),
            Heard::Unknown => self.input(slot, RunnerInput::NoReply),
        }
    }

    /// Feeds an input to a runner.
    pub(crate) fn input(&mut self, slot: usize, input: RunnerInput) {
        let now = self.lease_of(slot);
        self.runners[slot].dispatcher.on(input, now);
    }

    /// The store's lease clock as this runner knows it.
    pub(crate) fn lease_of(&self, slot: usize) -> Lease {
        Lease(self.clock.monotonic() + self.runners[slot].offset)
    }
}
