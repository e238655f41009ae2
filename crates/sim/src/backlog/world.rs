//! The world: a few runners, their sessions, people, one store, and a scheduler that chooses what happens next.

use std::collections::BTreeMap;
use std::fmt;

use banksman_core::resource::grant::Address;
use banksman_core::task::Ending;
use banksman_core::{RunId, RunnerId, TaskId};
use banksman_store::{Machine as _, Store, StoreError, sqlite};

use super::book::Book;
use super::desk::InFlight;
use super::keeper::Keeper;
use super::loops::{Checked, Said};
use super::machine::Machine;
use super::mutation::Mutation;
use super::outside::{Outside, Sample};
use super::runner::{Doing, Runner};
use super::scarcity::Scarcity;
use super::users::User;
use crate::Options;
use crate::clock::{Clock, Ms};
use crate::random::Random;
use crate::report::{Report, Tally, Verdict};
use crate::trace::{Listener, Trace};

/// After so many steps all rows are compared.
const LOOK_CLOSELY: usize = 120;

/// How late somebody is scheduled at most.
const LATE: Ms = 30_000;

pub(crate) struct World<'a> {
    pub(crate) options: Options<Mutation>,
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    pub(crate) random: Random,
    pub(crate) machine: Machine,
    pub(crate) runners: Vec<Runner>,
    pub(crate) keepers: BTreeMap<u32, Keeper>,
    pub(crate) users: Vec<User>,
    /// Sent and not yet decided.
    pub(crate) calls: Vec<InFlight>,
    /// Calls that come again, much later.
    pub(crate) late: Vec<(Ms, InFlight)>,
    /// Wake-ups that come late.
    pub(crate) delayed: Vec<(Ms, Address)>,
    /// How many steps of a thousand go wrong.
    pub(crate) harsh: usize,
    /// The run slots that most runners are told.
    pub(crate) limit: u32,
    /// The roots that most runners are told.
    pub(crate) root_limit: u32,
    /// Decides when people change the limits, in histories where they do.
    pub(crate) changes_limits: Option<Random>,
    /// Decides which pipelines keep a lock across their phases, in histories where some do.
    pub(crate) keeps_locks: Option<Random>,
    /// Whether there are workers and routes.
    pub(crate) has_crew: bool,
    /// What is to be done for them, and since when.
    pub(crate) neglected: BTreeMap<String, Ms>,
    /// Whether, and until when, the machine has not enough of something to start runs.
    pub(crate) scarcity: Scarcity,
    /// Whether people can hardly ever be told anything.
    pub(crate) unreachable: bool,
    /// No more faults; everybody finishes.
    pub(crate) calm: bool,
    pub(crate) book: Book,
    /// What guards ask about.
    pub(crate) outside: Outside,
    /// For which of the times a runner was given the guards of a pipeline to look at.
    pub(crate) examined: BTreeMap<(RunnerId, TaskId), u32>,
    /// Roots that began while others that came before them waited, with those, and who began them.
    pub(crate) passed: Vec<(TaskId, TaskId, RunnerId)>,
    /// What runners have last found outside.
    pub(crate) samples: BTreeMap<(RunnerId, TaskId), Sample>,
    /// What really became of the runs.
    pub(crate) fates: BTreeMap<RunId, Fated>,
    /// What the runners have last found in the places of the files DONE.
    pub(crate) checks: BTreeMap<(RunnerId, TaskId), Checked>,
    /// What is said in the request that is looked at.
    pub(crate) said: Said,
    pub(crate) counts: Counts,
    /// Work that a runner could start, and since when.
    pub(crate) idle: BTreeMap<TaskId, Ms>,
    /// Loops that wait and have a file DONE, and since when.
    pub(crate) unread: BTreeMap<TaskId, Ms>,
    /// From when on no wake-up is missing any more.
    pub(crate) reliable_from: Option<Ms>,
    pub(crate) verdict: Verdict,
    pub(crate) tally: Tally,
    trace: Trace<'a>,
}

/// Numbers that make names.
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

/// What really became of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fated {
    /// Its program was started, or it was tried to.
    pub(crate) spawned: bool,
    /// It could not begin, because the machine had not enough of something.
    pub(crate) short: bool,
    /// The end that its keeper has written down.
    pub(crate) recorded: Option<Ending>,
    /// The machine was restarted since it was claimed.
    pub(crate) rebooted: bool,
    /// What was written down has not survived that.
    pub(crate) forgotten: bool,
}

#[derive(Debug, Clone, Copy)]
enum Actor {
    Runner(usize),
    Keeper(u32),
    Program(u32),
    User(usize),
}

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, options: Options<Mutation>, listener: Option<Listener<'a>>) -> Result<World<'a>, StoreError> {
        let clock = Clock::new();
        let store = sqlite::memory(Box::new(clock.clone()))?;
        // Another stream of numbers than that of the locks' world.
        let mut random = Random::new(seed ^ 0x5eed_ba11_ad00_0000);
        let machine = Machine::new(clock.boot());
        let harsh = *random.pick(&[0, 10, 25, 25, 50]);
        let limit = *random.pick(&[0, 1, 2, 2, 3]);
        let root_limit = *random.pick(&[0, 0, 1, 2, 2, 3]);
        let unreachable = random.in_thousand(300);
        // By numbers of its own, so that a history without them is what it is.
        let has_crew = Random::new(seed ^ 0xc4e3_0000_5eed_0000).in_thousand(450);
        let mut limits = Random::new(seed ^ 0x1a17_0000_5eed_0000);
        let changes_limits = limits.in_thousand(300).then_some(limits);
        // A pipeline that waits for a person keeps its lock, and others that wait for the lock keep their places among the roots.
        let mut keeps = Random::new(seed ^ 0x1ee9_0000_5eed_0000);
        let is_keeping = keeps.in_thousand(500) && root_limit == 0 && changes_limits.is_none();
        let keeps_locks = is_keeping.then_some(keeps);
        Ok(World {
            options,
            clock,
            store,
            random,
            machine,
            runners: Vec::new(),
            keepers: BTreeMap::new(),
            users: Vec::new(),
            calls: Vec::new(),
            late: Vec::new(),
            delayed: Vec::new(),
            harsh,
            limit,
            root_limit,
            changes_limits,
            keeps_locks,
            has_crew,
            neglected: BTreeMap::new(),
            scarcity: Scarcity::new(seed),
            unreachable,
            calm: false,
            book: Book::default(),
            outside: Outside::default(),
            examined: BTreeMap::new(),
            samples: BTreeMap::new(),
            passed: Vec::new(),
            fates: BTreeMap::new(),
            checks: BTreeMap::new(),
            said: Said::default(),
            counts: Counts::default(),
            idle: BTreeMap::new(),
            unread: BTreeMap::new(),
            reliable_from: None,
            verdict: Verdict::new(options.only),
            tally: Tally::default(),
            trace: Trace::new(listener),
        })
    }

    /// Lives through one history.
    pub(crate) fn run(mut self) -> Report {
        self.set_up();
        let long = self.random.in_thousand(80);
        let steps = self.options.steps.unwrap_or_else(|| if long { 1_500 } else { 250 + self.random.below(350) });
        for step in 1..=steps {
            if self.verdict.is_guilty() {
                break;
            }
            self.step();
            if step % LOOK_CLOSELY == 0 {
                self.look_closely();
            }
        }
        if !self.verdict.is_guilty() {
            self.calm_down();
        }
        let violation = self.verdict.take();
        if let Some(violation) = &violation {
            let at = self.clock.now();
            self.trace.write(at, format_args!("VIOLATION {violation}"));
        }
        Report { violation, hash: self.trace.hash(), tally: self.tally }
    }

    /// One thing happens.
    pub(crate) fn step(&mut self) {
        self.tally.count("steps");
        self.catch_up();
        if !self.calm && self.random.in_thousand(self.harsh) {
            return self.fault();
        }
        let ready = self.ready();
        let calls = self.calls.iter().any(|call| self.can_be_served(call));
        let choice = self.random.below(100);
        match (calls, ready.is_empty()) {
            // Time goes on while somebody could act: it is scheduled late.
            _ if !self.calm && self.harsh > 0 && choice < 2 => self.jump(LATE),
            (true, true) => self.serve(),
            (true, false) if choice < 25 => self.serve(),
            (_, false) => match *self.random.pick(&ready) {
                Actor::Runner(slot) => self.drive(slot),
                Actor::Keeper(number) => self.keep(number),
                Actor::Program(number) => self.go_on_with_program(number),
                Actor::User(index) => self.act(index),
            },
            (false, true) => self.jump(Ms::MAX),
        }
        self.watch_idleness();
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
            if is_due(keeper.child.as_ref().and_then(super::program::Child::due)) {
                ready.push(Actor::Program(*number));
            }
        }
        ready.extend((0..self.users.len()).filter(|index| self.users[*index].is_due(now)).map(Actor::User));
        ready
    }

    /// Whether a keeper that has ended its session would see that its owner is gone.
    fn is_deserted(&self, keeper: &Keeper) -> bool {
        matches!(keeper.stage, super::keeper::Stage::Ended { .. }) && keeper.owner.is_none_or(|stream| !self.is_open(stream))
    }

    /// Lets happen what only depends on time.
    fn catch_up(&mut self) {
        let now = self.clock.now();
        let due: Vec<(Ms, Address)> = self.delayed.extract_if(.., |(at, _)| *at <= now).collect();
        due.iter().for_each(|(_, address)| self.ring(address));
        let late: Vec<(Ms, InFlight)> = self.late.extract_if(.., |(at, _)| *at <= now).collect();
        self.calls.extend(late.into_iter().map(|(_, call)| call));
        for slot in 0..self.runners.len() {
            let runner = &mut self.runners[slot];
            if !runner.alive && !self.calm && runner.back_at <= now {
                let told = self.orders();
                self.start_runner(slot, told);
            } else if runner.paused_until.is_some_and(|until| until <= now) {
                self.go_on(slot);
            }
        }
        self.keepers.retain(|_, keeper| keeper.alive || keeper.tree_lives());
    }

    /// A runner that was stopped goes on.
    pub(crate) fn go_on(&mut self, slot: usize) {
        self.runners[slot].paused_until = None;
        self.note(slot, format_args!("goes on"));
        if let Some(heard) = self.runners[slot].unread.take() {
            self.runner_hears(slot, heard);
        }
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
                _ if !runner.alive => times.extend((!self.calm).then_some(runner.back_at)),
                _ if runner.paused_until.is_some() => times.extend(runner.paused_until),
                Doing::Sleeping { until, .. } => times.push(*until),
                Doing::Acting | Doing::Calling => {}
            }
            times.extend(runner.sweeps.iter().map(|sweep| sweep.done_at));
            times.extend(runner.tellings.iter().map(|telling| telling.done_at));
            times.extend(runner.gatherings.iter().map(|gathering| gathering.done_at));
        }
        for keeper in self.keepers.values() {
            times.extend(keeper.due());
            times.extend(keeper.alive.then_some(keeper.not_before));
            times.extend(keeper.child.as_ref().and_then(super::program::Child::due));
        }
        times.extend(self.users.iter().filter_map(User::due));
        times
    }

    pub(crate) fn mutation(&self) -> Option<Mutation> {
        self.options.broken
    }

    pub(crate) fn fate(&mut self, run: &RunId) -> &mut Fated {
        self.fates.entry(run.clone()).or_default()
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
