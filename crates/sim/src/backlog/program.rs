//! What a session does: it takes its time, talks to the store, leaves processes behind, and exits.

use std::collections::VecDeque;

use banksman_core::task::{Ending, Pulse, Verdict};
use banksman_core::{ProcessId, Span};
use banksman_engine::{Request, TaskRequest};

use super::desk::{InFlight, Sender};
use super::keeper::Keeper;
use super::pause::Pause;
use super::runner::HeardAll;
use super::world::World;
use crate::clock::Ms;

/// The first process of a session.
pub(crate) struct Child {
    pub(crate) process: ProcessId,
    ends_at: Ms,
    code: i32,
    plan: VecDeque<(Ms, Act)>,
    /// It waits for the answer to a call.
    pub(crate) calling: bool,
    /// It waits for others.
    pub(crate) pause: Option<Pause>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    AddChild,
    Done,
    Fail,
    Heartbeat,
    Hide,
    Wait,
}

impl Child {
    pub(crate) fn due(&self) -> Option<Ms> {
        let next = self.plan.front().map_or(self.ends_at, |(at, _)| (*at).min(self.ends_at));
        (!self.calling).then(|| self.pause.map_or(next, Pause::due))
    }
}

impl World<'_> {
    /// The keeper starts the program, or finds that it cannot be started.
    pub(crate) fn start_program(&mut self, keeper: &mut Keeper) {
        self.check_start(keeper);
        self.fate(&keeper.run).spawned = true;
        if self.random.in_thousand(15) {
            keeper.exit = Some(Ending::NotStarted { error: "no such program".into() });
            return;
        }
        self.tally.count("sessions");
        let now = self.clock.now();
        let takes = if self.random.in_thousand(400) { self.random.between(1, 150) } else { self.random.between(150, 9_000) };
        let code = if self.random.in_thousand(780) { 0 } else { 1 + i32::from(self.random.in_thousand(300)) };
        let mut plan = Vec::new();
        for (share, act) in [
            (120, Act::AddChild),
            (140, Act::Done),
            (60, Act::Fail),
            (150, Act::Heartbeat),
            (200, Act::Hide),
            (60, Act::Hide),
            (130, Act::Wait),
        ] {
            if self.random.in_thousand(share) {
                plan.push((now + self.random.between(0, takes), act));
            }
        }
        plan.sort_by_key(|(at, _)| *at);
        let process = self.machine.fork();
        self.say(format_args!("session of {} for {} begins, pid {}", keeper.run, keeper.task, process.pid));
        keeper.child = Some(Child { process, ends_at: now + takes, code, plan: plan.into(), calling: false, pause: None });
    }

    /// The program does what is due.
    pub(crate) fn go_on_with_program(&mut self, number: u32) {
        let now = self.clock.now();
        let Some(keeper) = self.keepers.get_mut(&number) else { return };
        let Some(child) = keeper.child.as_mut() else { return };
        let (id, epoch) = (keeper.task.clone(), keeper.run_epoch);
        if let Some(pause) = child.pause {
            child.calling = true;
            return self.go_on_waiting(number, pause);
        }
        let Some((_, act)) = child.plan.pop_front_if(|(at, _)| *at <= now) else {
            keeper.exit = Some(Ending::Exited(child.code));
            let process = child.process.clone();
            keeper.child = None;
            self.machine.exit(&process);
            return;
        };
        let conclude = |verdict| TaskRequest::Conclude { id: id.clone(), epoch: Some(epoch), verdict };
        let request = match act {
            Act::Hide => {
                let process = self.machine.fork();
                self.keepers.get_mut(&number).expect("it is there").hidden.push(process);
                return;
            }
            Act::Wait => {
                child.pause = Some(Pause::Asked);
                return;
            }
            Act::AddChild => self.child_task(&id, epoch),
            Act::Done => conclude(Verdict::Done { output: Some(serde_json::Value::from(number)) }),
            Act::Fail => conclude(Verdict::Failed { error: "I say so".into() }),
            Act::Heartbeat => {
                TaskRequest::Heartbeat { id: id.clone(), epoch, pulse: Pulse::Active, timeout: Span::from_secs(60) }
            }
        };
        if let Some(child) = self.keepers.get_mut(&number).and_then(|keeper| keeper.child.as_mut()) {
            child.calling = true;
        }
        self.calls.push(InFlight { from: Sender::Program(number), requests: vec![Request::Task(request)] });
    }

    /// The program hears something. Unless it waits for others, it does not care what.
    pub(crate) fn program_hears(&mut self, number: u32, heard: &HeardAll) {
        let pause = self.keepers.get(&number).and_then(|keeper| keeper.child.as_ref()).and_then(|child| child.pause);
        if let (Some(Pause::Back), HeardAll::Replies(_)) = (pause, heard) {
            self.check_slot(number);
        }
        let pause = pause.and_then(|pause| self.waiting_hears(pause, heard));
        if let Some(child) = self.keepers.get_mut(&number).and_then(|keeper| keeper.child.as_mut()) {
            (child.calling, child.pause) = (false, pause);
        }
    }

    /// The first process is gone: so are its calls.
    pub(crate) fn drop_calls_of_program(&mut self, number: u32) {
        self.calls.retain(|call| call.from != Sender::Program(number));
    }

    /// It is killed from outside.
    pub(crate) fn kill_child(&mut self, number: u32) {
        let Some(keeper) = self.keepers.get_mut(&number) else { return };
        let Some(child) = keeper.child.take() else { return };
        keeper.exit = Some(Ending::Signalled(9));
        self.machine.exit(&child.process);
        self.drop_calls_of_program(number);
    }
}
