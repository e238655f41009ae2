//! The world: a few processes, one store, and a scheduler that chooses what happens next.

use std::collections::BTreeMap;
use std::fmt;

use banksman_core::event::{Event, Fact, Resource};
use banksman_core::resource::grant::Address;
use banksman_core::{Epoch, Name};
use banksman_engine::Reply;
use banksman_store::{Machine as _, Store, StoreError, sqlite};

use crate::Options;
use crate::broken::Broken;
use crate::clock::{Clock, Ms};
use crate::ledger::{Ledger, Logged};
use crate::model::Model;
use crate::process::{Doing, InFlight, Process};
use crate::random::Random;
use crate::report::{Checker, Report, Tally, Verdict};
use crate::script::resources;
use crate::trace::{Listener, Trace};
use crate::words::{Answer, answer};

/// After so many steps all rows are compared.
const LOOK_CLOSELY: usize = 80;

/// The slot of one who is no process of the simulation.
pub(crate) const OPERATOR: usize = usize::MAX;

pub(crate) struct World<'a> {
    pub(crate) options: Options<Broken>,
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    pub(crate) random: Random,
    pub(crate) resources: Vec<Resource>,
    pub(crate) processes: Vec<Process>,
    /// Sent and not yet decided.
    pub(crate) calls: Vec<InFlight>,
    /// Wake-ups that come late.
    pub(crate) delayed: Vec<(Ms, Address)>,
    /// No more faults; everybody finishes.
    pub(crate) calm: bool,
    /// What every acquisition so far asked for, and what else its request id was used for. Their number marks the next.
    pub(crate) asked_for: Vec<Vec<Resource>>,
    pub(crate) ledger: Ledger,
    pub(crate) model: Model,
    pub(crate) lease_seen: LeaseSeen,
    pub(crate) verdict: Verdict,
    pub(crate) tally: Tally,
    fences: BTreeMap<Name, Epoch>,
    trace: Trace<'a>,
}

/// The lease clock at the last commit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeaseSeen {
    pub(crate) boot: i64,
    pub(crate) monotonic: Ms,
    pub(crate) lease: Ms,
    /// The lease time of the last commit that must have left a trace in the store.
    pub(crate) written: Ms,
}

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, options: Options<Broken>, listener: Option<Listener<'a>>) -> Result<World<'a>, StoreError> {
        let clock = Clock::new();
        let store = sqlite::memory(Box::new(clock.clone()))?;
        let mut random = Random::new(seed);
        let count = 3 + random.below(6);
        let processes = (0..count).map(|slot| Process::new(slot, &clock.boot())).collect();
        let (boot, monotonic) = (clock.boot_number(), clock.monotonic());
        Ok(World {
            options,
            clock,
            store,
            random,
            resources: resources(),
            processes,
            calls: Vec::new(),
            delayed: Vec::new(),
            calm: false,
            asked_for: Vec::new(),
            ledger: Ledger::default(),
            model: Model::default(),
            lease_seen: LeaseSeen { boot, monotonic, lease: monotonic, written: 0 },
            verdict: Verdict::new(options.only),
            tally: Tally::default(),
            fences: BTreeMap::new(),
            trace: Trace::new(listener),
        })
    }

    /// Lives through one history.
    pub(crate) fn run(mut self) -> Report {
        self.set_up();
        let steps = self.options.steps.unwrap_or_else(|| 200 + self.random.below(200));
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

    fn set_up(&mut self) {
        for resource in self.resources.clone() {
            if self.random.in_thousand(850) {
                let request = self.define(&resource, 3);
                self.operate(request);
            }
        }
    }

    /// One thing happens.
    pub(crate) fn step(&mut self) {
        self.tally.count("steps");
        self.catch_up();
        if !self.calm && self.random.in_thousand(45) {
            return self.fault();
        }
        let ready: Vec<usize> = (0..self.processes.len()).filter(|slot| self.is_ready(*slot)).collect();
        let calls = self.calls.iter().any(|call| self.processes[call.slot].is_awake());
        let choice = self.random.below(100);
        match (calls, ready.is_empty()) {
            // Time goes on while somebody could act: it is scheduled late, like a stalled process.
            _ if !self.calm && choice < 4 => self.jump(),
            (true, true) => self.serve(),
            (true, false) if choice < 18 => self.serve(),
            (_, false) => {
                let slot = *self.random.pick(&ready);
                self.go_on(slot);
            }
            (false, true) => self.jump(),
        }
    }

    /// Lets happen what only depends on time.
    fn catch_up(&mut self) {
        let now = self.clock.now();
        let (due, later) = std::mem::take(&mut self.delayed).into_iter().partition(|(at, _)| *at <= now);
        self.delayed = later;
        let due: Vec<(Ms, Address)> = due;
        due.iter().for_each(|(_, address)| self.ring(address));
        for slot in 0..self.processes.len() {
            let process = &mut self.processes[slot];
            process.child_alive &= process.alive || process.orphan_until > now;
            if !process.alive && !self.calm && process.back_at <= now {
                // Some live in a container, where pids mean nothing to the others.
                let pid_ns = if self.random.in_thousand(850) { 1 } else { 2 };
                let nests = self.random.in_thousand(400);
                self.processes[slot].start(&self.clock.boot(), pid_ns, nests, now);
                self.note(slot, format_args!("starts"));
            } else if process.paused_until.is_some_and(|until| until <= now) {
                process.paused_until = None;
                let unread = std::mem::take(&mut process.unread);
                self.note(slot, format_args!("goes on"));
                unread.into_iter().for_each(|(call, heard)| self.hear(slot, &call, heard));
            }
        }
    }

    fn is_ready(&self, slot: usize) -> bool {
        let process = &self.processes[slot];
        process.is_awake() && (self.is_due(slot) || self.beats(slot))
    }

    fn beats(&self, slot: usize) -> bool {
        let now = self.clock.now();
        self.processes[slot].holds.iter().any(|hold| hold.beat_at.is_some_and(|at| at <= now))
    }

    fn go_on(&mut self, slot: usize) {
        if self.beats(slot) {
            return self.beat(slot);
        }
        match &self.processes[slot].doing {
            Doing::Backoff { .. } => self.act(slot),
            Doing::Sleeping { .. } => self.get_up(slot),
            Doing::Calling(_) | Doing::Finished => {}
        }
    }

    /// Time jumps to the next moment at which something is due.
    fn jump(&mut self) {
        let now = self.clock.now();
        let mut times: Vec<Ms> = self.delayed.iter().map(|(at, _)| *at).collect();
        for process in &self.processes {
            if let Some(until) = process.paused_until {
                times.push(until);
            } else if process.alive {
                times.extend(process.holds.iter().filter_map(|hold| hold.beat_at));
                if let Doing::Backoff { until } | Doing::Sleeping { until, .. } = &process.doing {
                    times.push(*until);
                }
            } else {
                times.extend(process.child_alive.then_some(process.orphan_until));
                times.extend((!self.calm).then_some(process.back_at));
            }
        }
        let next = times.into_iter().filter(|at| *at > now).min().unwrap_or(now + 1_000);
        self.clock.advance(next - now);
    }

    /// Compares all rows with the log and with the model.
    pub(crate) fn look_closely(&mut self) {
        match self.store.view().compare_with_log() {
            Ok(differences) => self.verdict.expect(Checker::Fold, differences.is_empty(), || differences.join("\n")),
            Err(error) => self.store_failed(&error),
        }
        match self.store.view().snapshot() {
            Ok(snapshot) => {
                for (name, lock) in &snapshot.coordination.locks {
                    let before = self.fences.insert(name.clone(), lock.fence).unwrap_or_default();
                    self.verdict.expect(Checker::Order, lock.fence >= before, || {
                        format!("the fence of {name} fell from {before} to {}", lock.fence)
                    });
                }
                self.model.compare(snapshot.coordination, &mut self.verdict);
            }
            Err(error) => self.store_failed(&error),
        }
    }

    pub(crate) fn tally_outcome(&mut self, reply: &Reply, events: &[Logged]) {
        if let Reply::Coordinate { outcome, .. } = reply {
            match answer(outcome) {
                Answer::Waiting(_) => self.tally.count("told to wait"),
                Answer::Deadlock(_) => self.tally.count("deadlocks refused"),
                Answer::Fenced(_) => self.tally.count("fenced"),
                Answer::Gone => self.tally.count("gone"),
                Answer::Lost => self.tally.count("lost"),
                Answer::Other(word @ ("spent" | "too heavy")) => self.tally.count(word),
                _ => {}
            }
        }
        for logged in events {
            if let Event::Resource { fact, .. } = &logged.event {
                self.tally.count(match fact {
                    Fact::Defined(_) => "defined",
                    Fact::Acquired(_) => "grants",
                    Fact::Increased(_) => "increases",
                    Fact::Reclaimed(_) => "reclaims",
                    Fact::Released(_) => "releases",
                    Fact::OfferLapsed(_) => "offers lapsed",
                });
            }
        }
    }

    pub(crate) fn say(&mut self, text: fmt::Arguments<'_>) {
        self.trace.write(self.clock.now(), text);
    }

    /// A line of the trace about one process.
    pub(crate) fn note(&mut self, slot: usize, text: fmt::Arguments<'_>) {
        match slot {
            OPERATOR => self.say(format_args!("operator {text}")),
            _ => self.say(format_args!("p{slot} {text}")),
        }
    }
}
