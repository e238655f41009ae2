//! The world: processes, one store, and a scheduler that chooses what happens next.

use std::collections::BTreeMap;
use std::fmt;

use banksman_core::resource::grant::Address;
use banksman_core::task::RunEnd;
use banksman_core::{RunId, RunnerId, TaskId};
use banksman_store::{Keep, Machine as _, Store, StoreError};

use crate::backlog::keeper::Keeper;
use crate::backlog::loop_checks::{CallContext, Checked};
use crate::backlog::model::BacklogModel;
use crate::backlog::outside::{Outside, Sample};
use crate::backlog::runner::{Doing, Runner};
use crate::backlog::shortage::Shortage;
use crate::backlog::users::User;
use crate::clock::{Clock, Ms};
use crate::commit::{InFlight, LeaseSeen};
use crate::fleet::Fleet;
use crate::locks::Locks;
use crate::machine::Machine;
use crate::mutation::Mutation;
use crate::people::{People, Person};
use crate::queues::Queues;
use crate::random::Random;
use crate::report::{Report, Tally, Verdict};
use crate::trace::{Listener, Trace};
use crate::{Options, Scenario, store};

/// After this many steps all rows are compared.
const COMPARE_EVERY: usize = 120;

const TAKERS: usize = 5;

/// How late an actor is scheduled at most.
const LATE: Ms = 30_000;

/// A delay of all actors from this length on counts for checkers that measure time.
const LONG: Ms = 5_000;

pub(crate) struct World<'a> {
    pub(crate) options: Options,
    pub(crate) scenario: Scenario,
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    pub(crate) random: Random,
    pub(crate) machine: Machine,
    pub(crate) runners: Vec<Runner>,
    pub(crate) keepers: BTreeMap<u32, Keeper>,
    pub(crate) users: Vec<User>,
    pub(crate) locks: Locks,
    pub(crate) queues: Queues,
    pub(crate) people: People,
    pub(crate) fleet: Fleet,
    /// Calls that are sent and not yet decided.
    pub(crate) calls: Vec<InFlight>,
    /// Calls that arrive again, much later.
    pub(crate) late: Vec<(Ms, InFlight)>,
    /// Wake-ups that arrive late.
    pub(crate) delayed: Vec<(Ms, Address)>,
    pub(crate) lease_seen: LeaseSeen,
    /// How many of a thousand steps have a fault.
    pub(crate) harsh: usize,
    /// The limit of run slots in the options of most runners.
    pub(crate) limit: u32,
    /// The limit of roots in the options of most runners.
    pub(crate) root_limit: u32,
    /// Decides when people change the limits, in histories where they do.
    pub(crate) changes_limits: Option<Random>,
    /// Decides when people pause, stop and resume, in histories where they do.
    pub(crate) pauses: Option<Random>,
    /// Decides which pipelines keep a lock across their phases, in histories where some do.
    pub(crate) keeps_locks: Option<Random>,
    /// Decides when the log is compacted.
    compactions: Random,
    /// Whether there are workers and routes.
    pub(crate) has_workers: bool,
    /// The work for them that is left undone, and since when.
    pub(crate) neglected: BTreeMap<String, Ms>,
    /// Whether, and until when, the machine lacks a resource to start runs.
    pub(crate) shortage: Shortage,
    /// Whether notifying people mostly fails.
    pub(crate) unreachable: bool,
    /// Whether the faults have stopped, so that everything ends.
    pub(crate) is_quiescing: bool,
    /// Whether all work is done and the runners are asked to exit.
    pub(crate) is_closing: bool,
    pub(crate) model: BacklogModel,
    /// The inputs of guards outside of the store.
    pub(crate) outside: Outside,
    /// The visit in which a runner was given the guards of a pipeline to check.
    pub(crate) examined: BTreeMap<(RunnerId, TaskId), u32>,
    /// Roots that began while an earlier root waited: the new one, the earlier one and the runner.
    pub(crate) passed: Vec<(TaskId, TaskId, RunnerId)>,
    /// What runners have last read outside.
    pub(crate) samples: BTreeMap<(RunnerId, TaskId), Sample>,
    /// The real facts about the runs.
    pub(crate) run_facts: BTreeMap<RunId, RunFacts>,
    /// The last checks of runners for the files DONE.
    pub(crate) checks: BTreeMap<(RunnerId, TaskId), Checked>,
    /// The context of the observed request.
    pub(crate) call: CallContext,
    pub(crate) counts: Counts,
    /// Work that a runner could start, and since when.
    pub(crate) idle: BTreeMap<TaskId, Ms>,
    /// Waiting loops with a file DONE, and since when.
    pub(crate) unread: BTreeMap<TaskId, Ms>,
    /// The end of the last long delay of all actors.
    late_until: Ms,
    /// From when on no wake-up is missing.
    pub(crate) reliable_from: Option<Ms>,
    pub(crate) verdict: Verdict,
    pub(crate) tally: Tally,
    trace: Trace<'a>,
}

/// Counters for names.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) tasks: u32,
    pub(crate) pipelines: u32,
    pub(crate) sections: u32,
    pub(crate) runs: u32,
    pub(crate) runners: u32,
    pub(crate) keepers: u32,
    pub(crate) streams: u64,
    pub(crate) items: u32,
    pub(crate) emits: u32,
}

/// The real facts about a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunFacts {
    /// Whether its program was started, or the start was tried.
    pub(crate) spawned: bool,
    /// Whether it could not begin for lack of a resource.
    pub(crate) short: bool,
    /// The end that its keeper has recorded.
    pub(crate) recorded: Option<RunEnd>,
    /// Whether the machine was restarted since it was claimed.
    pub(crate) rebooted: bool,
    /// Whether its record was lost in that restart.
    pub(crate) forgotten: bool,
}

#[derive(Debug, Clone, Copy)]
enum Actor {
    Runner(usize),
    Keeper(u32),
    Program(u32),
    User(usize),
    Client(usize),
    Taker(usize),
    QueueUser,
    Person(usize),
    Disturbance,
}

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, options: Options, listener: Option<Listener<'a>>) -> Result<World<'a>, StoreError> {
        let clock = Clock::new();
        let store = store::empty(&clock)?;
        let scenario = options.scenario(seed);
        // Every scenario has its own random numbers.
        let mut random = Random::new(seed ^ 0x5eed_ba11_ad00_0000 ^ scenario.stream());
        let machine = Machine::new(clock.boot());
        let harsh = *random.pick(match scenario {
            Scenario::Locks | Scenario::Queues => &[45],
            Scenario::People => &[15, 30],
            Scenario::Backlog => &[0, 10, 25, 25, 50],
            Scenario::Runners => &[0],
        });
        let clients = if scenario == Scenario::Locks { 3 + random.below(6) } else { 0 };
        let locks = Locks::new(clients);
        let (boot, monotonic) = (clock.boot_number(), clock.monotonic());
        let (few, roots): (&[u32], &[u32]) = match scenario {
            Scenario::Runners => (&[0], &[0]),
            _ => (&[0, 1, 2, 2, 3], &[0, 0, 1, 2, 2, 3]),
        };
        let (limit, root_limit) = (*random.pick(few), *random.pick(roots));
        let unreachable = random.in_thousand(300);
        // With random numbers of their own, so that histories without them are unchanged.
        let has_workers = Random::new(seed ^ 0xc4e3_0000_5eed_0000).in_thousand(450) && scenario != Scenario::Runners;
        let mut limits = Random::new(seed ^ 0x1a17_0000_5eed_0000);
        let changes_limits = (limits.in_thousand(300) && scenario != Scenario::Runners).then_some(limits);
        let mut pauses = Random::new(seed ^ 0x9a05_0000_5eed_0000);
        let pauses = (pauses.in_thousand(350) && scenario == Scenario::Backlog).then_some(pauses);
        // A pipeline that waits for a person keeps its lock, and others that wait for the lock keep their places among
        // the roots.
        let mut keeps = Random::new(seed ^ 0x1ee9_0000_5eed_0000);
        let is_keeping = keeps.in_thousand(500) && root_limit == 0 && changes_limits.is_none();
        let keeps_locks = is_keeping.then_some(keeps);
        Ok(World {
            options,
            scenario,
            clock,
            store,
            random,
            machine,
            runners: Vec::new(),
            keepers: BTreeMap::new(),
            users: Vec::new(),
            locks,
            queues: Queues::default(),
            people: People::default(),
            fleet: Fleet::default(),
            calls: Vec::new(),
            late: Vec::new(),
            delayed: Vec::new(),
            lease_seen: LeaseSeen { boot, monotonic, lease: monotonic, written: 0 },
            harsh,
            limit,
            root_limit,
            changes_limits,
            pauses,
            keeps_locks,
            compactions: Random::new(seed ^ 0xc0_5eed_ac70_0000),
            has_workers,
            neglected: BTreeMap::new(),
            shortage: Shortage::new(seed),
            unreachable,
            is_quiescing: false,
            is_closing: false,
            model: BacklogModel::default(),
            outside: Outside::default(),
            examined: BTreeMap::new(),
            samples: BTreeMap::new(),
            passed: Vec::new(),
            run_facts: BTreeMap::new(),
            checks: BTreeMap::new(),
            call: CallContext::default(),
            counts: Counts::default(),
            idle: BTreeMap::new(),
            unread: BTreeMap::new(),
            late_until: 0,
            reliable_from: None,
            verdict: Verdict::new(options.only),
            tally: Tally::default(),
            trace: Trace::new(listener),
        })
    }

    /// Runs one history.
    pub(crate) fn run(mut self) -> Report {
        match self.scenario {
            Scenario::Locks => self.set_up_locks(),
            Scenario::Queues => self.set_up_queues(TAKERS),
            Scenario::People => self.set_up_people(),
            Scenario::Backlog => self.set_up(),
            Scenario::Runners => self.set_up_fleet(),
        }
        let long = self.random.in_thousand(80);
        let steps = self.options.steps.unwrap_or_else(|| match self.scenario {
            Scenario::Locks => 200 + self.random.below(200),
            Scenario::Queues => 100 + self.random.below(200),
            Scenario::People => 250 + self.random.below(500),
            Scenario::Backlog if long => 1_500,
            Scenario::Backlog => 250 + self.random.below(350),
            Scenario::Runners => 2_500,
        });
        for step in 1..=steps {
            if self.verdict.is_guilty() {
                break;
            }
            self.step();
            if step % COMPARE_EVERY == 0 {
                self.compare_rows();
            }
        }
        if !self.verdict.is_guilty() {
            self.quiesce();
        }
        let violation = self.verdict.take();
        if let Some(violation) = &violation {
            let at = self.clock.now();
            self.trace.write(at, format_args!("VIOLATION {violation}"));
        }
        store::give_back(self.store);
        Report { violation, hash: self.trace.hash(), tally: self.tally }
    }

    /// Executes one step.
    pub(crate) fn step(&mut self) {
        self.tally.count("steps");
        // The store knows a request id only as long as the event of its grant; the model of the locks knows it for ever.
        if self.scenario != Scenario::Locks && self.compactions.in_thousand(6) {
            self.compact();
        }
        self.catch_up();
        if !self.is_quiescing && self.random.in_thousand(self.harsh) {
            return self.fault();
        }
        let ready = self.ready();
        let calls = self.calls.iter().any(|call| self.can_be_served(call));
        let choice = self.random.below(100);
        match (calls, ready.is_empty()) {
            // Time passes while actors could act: they are scheduled late.
            _ if !self.is_quiescing && self.harsh > 0 && choice < 2 => self.jump_late(),
            (true, true) => self.serve(),
            (true, false) if choice < 25 => self.serve(),
            (_, false) => match *self.random.pick(&ready) {
                Actor::Runner(slot) => self.drive(slot),
                Actor::Keeper(number) => self.keep(number),
                Actor::Program(number) => self.advance_program(number),
                Actor::User(index) => self.act(index),
                Actor::Client(slot) => self.advance_client(slot),
                Actor::Taker(slot) => self.act_taker(slot),
                Actor::QueueUser => self.act_queue_user(),
                Actor::Person(index) => self.act_person(index),
                Actor::Disturbance => self.disturb(),
            },
            (false, true) => self.jump(Ms::MAX),
        }
        self.watch_idleness();
        if self.has_people() {
            self.watch_stopped();
        }
    }

    /// Compacts the event log: nothing else changes.
    fn compact(&mut self) {
        let keep = Keep::Last(self.compactions.between(0, 7));
        match self.store.compact(keep, |_| {}) {
            Ok(done) => {
                self.tally.count("compactions");
                self.say(format_args!("the log is compacted: {keep:?}, {done:?}"));
            }
            Err(error) => self.store_failed(&error),
        }
    }

    fn ready(&self) -> Vec<Actor> {
        let now = self.clock.now();
        let is_due = |due: Option<Ms>| due.is_some_and(|due| due <= now);
        let mut ready = Vec::new();
        let awake = (0..self.runners.len()).filter(|slot| self.runners[*slot].is_awake());
        ready.extend(awake.filter(|slot| self.has_reason(*slot)).map(Actor::Runner));
        for (number, keeper) in &self.keepers {
            if is_due(keeper.due()) || (keeper.alive && keeper.not_before <= now && self.is_deserted(keeper)) {
                ready.push(Actor::Keeper(*number));
            }
            if is_due(keeper.child.as_ref().and_then(crate::backlog::program::Child::due)) {
                ready.push(Actor::Program(*number));
            }
        }
        ready.extend((0..self.users.len()).filter(|index| self.users[*index].is_due(now)).map(Actor::User));
        ready.extend((0..self.locks.clients.len()).filter(|slot| self.client_is_ready(*slot)).map(Actor::Client));
        ready.extend((0..self.queues.takers.len()).filter(|slot| is_due(self.queues.takers[*slot].due())).map(Actor::Taker));
        ready.extend(is_due(self.queue_user_due()).then_some(Actor::QueueUser));
        let persons = self.people.persons.iter().enumerate();
        ready.extend(persons.filter(|(_, person)| is_due(person.due(self.is_quiescing))).map(|(index, _)| Actor::Person(index)));
        ready.extend(is_due(self.disturbance_due()).then_some(Actor::Disturbance));
        ready
    }

    /// Whether a keeper that has ended its session would see that its owner is gone.
    fn is_deserted(&self, keeper: &Keeper) -> bool {
        matches!(keeper.stage, crate::backlog::keeper::Stage::Ended { .. })
            && keeper.owner.is_none_or(|stream| !self.is_open(stream))
    }

    /// Executes what depends on time alone.
    fn catch_up(&mut self) {
        let now = self.clock.now();
        let due: Vec<(Ms, Address)> = self.delayed.extract_if(.., |(at, _)| *at <= now).collect();
        due.iter().for_each(|(_, address)| self.wake_now(address));
        let late: Vec<(Ms, InFlight)> = self.late.extract_if(.., |(at, _)| *at <= now).collect();
        self.calls.extend(late.into_iter().map(|(_, call)| call));
        for slot in 0..self.runners.len() {
            let runner = &mut self.runners[slot];
            if !runner.alive && !self.is_quiescing && runner.back_at <= now {
                let options = self.runner_options();
                self.start_runner(slot, options);
            } else if runner.paused_until.is_some_and(|until| until <= now) {
                self.go_on(slot);
            }
        }
        self.keepers.retain(|_, keeper| keeper.alive || keeper.tree_lives());
        self.catch_up_with_clients();
        self.feed();
    }

    /// A stopped runner continues.
    pub(crate) fn go_on(&mut self, slot: usize) {
        self.runners[slot].paused_until = None;
        self.note(slot, format_args!("goes on"));
        if let Some(heard) = self.runners[slot].unread.take() {
            self.on_runner_reply(slot, heard);
        }
    }

    /// Time passes while actors could act: they are scheduled late.
    fn jump_late(&mut self) {
        let before = self.clock.now();
        self.jump(LATE);
        if self.clock.now() - before >= LONG {
            self.late_until = self.clock.now();
        }
    }

    /// How long all actors have had time to act since the last long delay.
    pub(crate) fn time_since_late(&self) -> Ms {
        self.clock.now() - self.late_until
    }

    /// Time jumps to the next moment at which something is due.
    fn jump(&mut self, at_most: Ms) {
        let now = self.clock.now();
        let next = self.times().into_iter().filter(|at| *at > now).min().unwrap_or(now + 1_000);
        self.clock.advance((next - now).min(at_most));
    }

    fn times(&self) -> Vec<Ms> {
        let mut times: Vec<Ms> = self.delayed.iter().map(|(at, _)| *at).collect();
        times.extend(self.late.iter().map(|(at, _)| *at));
        for runner in &self.runners {
            match &runner.doing {
                _ if !runner.alive => times.extend((!self.is_quiescing).then_some(runner.back_at)),
                _ if runner.paused_until.is_some() => times.extend(runner.paused_until),
                Doing::Sleeping { until, .. } => times.push(*until),
                Doing::Acting | Doing::Calling => {}
            }
            times.extend(runner.sweeps.iter().map(|sweep| sweep.done_at));
            times.extend(runner.notifications.iter().map(|notification| notification.done_at));
            times.extend(runner.guard_checks.iter().map(|check| check.done_at));
        }
        for keeper in self.keepers.values() {
            times.extend(keeper.due());
            times.extend(keeper.alive.then_some(keeper.not_before));
            times.extend(keeper.child.as_ref().and_then(crate::backlog::program::Child::due));
        }
        times.extend(self.users.iter().filter_map(User::due));
        times.extend(self.times_of_clients());
        times.extend(self.queues.takers.iter().filter_map(crate::queues::Taker::due));
        times.extend(self.queue_user_due());
        times.extend(self.people.persons.iter().filter_map(|person: &Person| person.due(self.is_quiescing)));
        times.extend(self.disturbance_due());
        times.extend(self.feed_due());
        times
    }

    pub(crate) fn mutation(&self) -> Option<Mutation> {
        self.options.mutation
    }

    pub(crate) fn facts(&mut self, run: &RunId) -> &mut RunFacts {
        self.run_facts.entry(run.clone()).or_default()
    }

    pub(crate) fn say(&mut self, text: fmt::Arguments<'_>) {
        self.trace.write(self.clock.now(), text);
    }

    /// A line of the trace about one runner.
    pub(crate) fn note(&mut self, slot: usize, text: fmt::Arguments<'_>) {
        let (at, id) = (self.clock.now(), &self.runners[slot].id);
        self.trace.write(at, format_args!("{id} {text}"));
    }
}
