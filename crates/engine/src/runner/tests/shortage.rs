//! A runner whose machine lacks a resource, over the real store.

use std::collections::BTreeSet;

use banksman_core::RunId;
use banksman_core::backlog::{RunEndRecord, Session};
use banksman_core::task::{RunEnd, State};
use banksman_core::{Span, Wall};

use super::stage::{Actor, Stage, exited, options, task};
use super::{Action, Input, Options, RunnerEvent};

/// The machine of one runner, with room for a number of sessions.
struct Machine {
    stage: Stage,
    actor: Actor,
    room: usize,
    live: BTreeSet<RunId>,
    refused: usize,
    events: Vec<RunnerEvent>,
}

fn short() -> RunEndRecord {
    RunEndRecord::new(RunEnd::NotBegun { error: "no more processes".into(), is_shortage: true }, Wall(0), None)
}

impl Machine {
    fn new(tasks: usize, room: usize, options: Options) -> Machine {
        let mut stage = Stage::new();
        (0..tasks).for_each(|number| stage.add(&format!("t{number}"), |_| {}));
        let actor = stage.runner("m", options);
        let (live, events) = (BTreeSet::new(), Vec::new());
        let mut machine = Machine { stage, actor, room, live, refused: 0, events };
        machine.go_on();
        machine
    }

    /// Plays the runner until it would sleep, and starts the sessions for which there is room. Returns the time that it would sleep.
    fn go_on(&mut self) -> Option<Span> {
        loop {
            let slept = self.stage.play(&mut self.actor);
            let spawns: Vec<RunId> = std::mem::take(&mut self.actor.wants)
                .into_iter()
                .filter_map(|action| if let Action::Spawn(work) = action { Some(work.run.id) } else { None })
                .collect();
            if spawns.is_empty() {
                self.events.extend(self.actor.dispatcher.events());
                return slept;
            }
            for run in spawns {
                let now = self.stage.now();
                if self.live.len() < self.room {
                    self.actor.dispatcher.on(Input::Started(run.clone(), Session { keeper: 1, child: 2 }), now);
                    self.live.insert(run);
                } else {
                    self.refused += 1;
                    self.actor.dispatcher.on(Input::Shortage(run.clone(), short()), now);
                }
            }
        }
    }

    /// Ends one session successfully.
    fn end_one(&mut self) {
        let run = self.live.pop_first().expect("something lives");
        self.actor.dispatcher.on(Input::Ended(run.clone(), exited(0)), self.stage.now());
        self.go_on();
    }

    fn completed(&mut self) -> usize {
        let is_done = |state: &State| matches!(state, State::Done(_));
        self.stage.rows().tasks.values().filter(|task| is_done(&task.state)).count()
    }

    fn reports(&self) -> (usize, usize) {
        let count = |kind: fn(&RunnerEvent) -> bool| self.events.iter().filter(|event| kind(event)).count();
        (count(|event| matches!(event, RunnerEvent::Short(_))), count(|event| matches!(event, RunnerEvent::Enough)))
    }
}

#[test]
fn a_task_that_cannot_start_stays_pending_and_uses_no_attempt() {
    let mut machine = Machine::new(5, 0, options());
    assert_eq!((machine.live.len(), machine.reports()), (0, (1, 0)));
    for name in ["t0", "t4"] {
        let row = machine.stage.rows().tasks[&task(name)].clone();
        assert_eq!((row.state, row.attempts, row.failures, row.recoveries), (State::Pending, 0, 0, 0));
    }
    let row = machine.stage.rows().runners.into_values().next().unwrap();
    assert_eq!(&*row.shortage.unwrap().error, "no more processes");
}

#[test]
fn a_shortage_is_retried_with_one_run_and_growing_pauses() {
    let mut machine = Machine::new(20, 0, options());
    let mut pauses = Vec::new();
    for tried in 1..=8 {
        let before = machine.refused;
        let slept = machine.go_on().expect("it waits");
        pauses.push(slept.as_ms());
        machine.stage.pass(slept.as_ms());
        machine.go_on();
        assert_eq!(machine.refused - before, 1, "try {tried}");
    }
    assert!(pauses.is_sorted() && pauses[0] <= 500 && *pauses.last().unwrap() > 10_000, "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= 30_000), "{pauses:?}");
    assert_eq!(machine.reports(), (1, 0), "it is reported once");
}

#[test]
fn all_tasks_start_once_the_shortage_is_over() {
    let mut machine = Machine::new(40, 0, options());
    machine.room = usize::MAX;
    let slept = machine.go_on().expect("it waits").as_ms();
    machine.stage.pass(slept);
    machine.go_on();
    assert_eq!((machine.live.len(), machine.reports()), (40, (1, 1)));
    assert!(machine.stage.rows().runners.into_values().all(|row| row.shortage.is_none()));
}

#[test]
fn an_ended_run_makes_room_during_a_lasting_shortage() {
    let mut machine = Machine::new(30, 3, options());
    assert_eq!(machine.live.len(), 3);
    let refused = machine.refused;
    while machine.completed() < 30 {
        machine.end_one();
        assert!(machine.live.len() <= 3);
    }
    assert_eq!(machine.refused, refused, "nothing is tried in vain meanwhile");
    assert_eq!(machine.reports().0, 1);
}

#[test]
fn until_idle_does_not_end_during_a_shortage() {
    let mut machine = Machine::new(2, 0, Options { until_idle: true, ..options() });
    assert!(machine.go_on().is_some(), "it waits");
    machine.room = 1;
    for _ in 0..20 {
        match machine.go_on() {
            None => break,
            Some(slept) => machine.stage.pass(slept.as_ms()),
        }
        while !machine.live.is_empty() {
            machine.end_one();
        }
    }
    assert_eq!(machine.completed(), 2);
    assert!(machine.go_on().is_none(), "it has ended");
}

#[test]
fn an_unreported_start_does_not_block_further_tries() {
    let mut machine = Machine::new(3, 0, options());
    let slept = machine.go_on().expect("it waits").as_ms();
    machine.stage.pass(slept);
    // The keeper is stopped before it can report the start.
    machine.stage.play(&mut machine.actor);
    assert!(matches!(machine.actor.wants.pop_back(), Some(Action::Spawn(_))));
    machine.room = usize::MAX;
    for _ in 0..4 {
        let slept = machine.go_on().expect("it waits").as_ms();
        machine.stage.pass(slept);
    }
    assert_eq!(machine.live.len(), 2);
}
