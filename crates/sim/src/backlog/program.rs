//! The program of a session: it takes time, calls the store, leaves processes behind, and exits.

use std::collections::VecDeque;

use banksman_core::task::{OnExhausted, Pulse, RunEnd, Verdict, Watch};
use banksman_core::{ProcessId, Span, TaskId};
use banksman_engine::{Request, TaskRequest};

use super::keeper::Keeper;
use super::pause::Pause;
use super::plans::PIPELINE_LIMIT;
use super::shortage::not_begun;
use crate::Scenario;
use crate::clock::Ms;
use crate::commit::Heard;
use crate::commit::{InFlight, Sender};
use crate::machine::Placed;
use crate::world::World;

/// How long a session hangs if nothing ends it.
const HANGS: Ms = 300_000;

/// With this many tasks, sessions add no more children.
const CHILD_LIMIT: u32 = 60;

/// The watch settings in the requests of sessions: they have no effect.
const WATCH: Watch = Watch { timeout: Span::from_secs(60), max_recoveries: 0, on_exhausted: OnExhausted::Fail };

/// The first process of a session.
pub(crate) struct Child {
    pub(crate) process: ProcessId,
    began: Ms,
    ends_at: Ms,
    code: i32,
    plan: VecDeque<(Ms, Act)>,
    /// It shows no activity while it works.
    silent: bool,
    /// Since when it hangs, and whether a nudge helps.
    hangs: Option<(Ms, bool)>,
    /// Whether it waits for the reply to a call.
    pub(crate) calling: bool,
    /// Set while it waits for tasks.
    pub(crate) pause: Option<Pause>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    AddChild,
    Done,
    Fail,
    /// Its agent turns out not to be trusted.
    Distrust,
    Heartbeat,
    Hide,
    Wait,
    /// It creates the file DONE.
    Mark,
    /// It creates a directory in its place.
    Blunder,
    Hang,
}

impl Child {
    pub(crate) fn due(&self) -> Option<Ms> {
        let next = self.plan.front().map_or(self.ends_at, |(at, _)| (*at).min(self.ends_at));
        let next = if self.hangs.is_some() { self.ends_at } else { next };
        (!self.calling).then(|| self.pause.map_or(next, Pause::due))
    }

    /// How long it has shown no activity.
    pub(crate) fn quiet(&self, now: Ms) -> Ms {
        match self.hangs {
            _ if self.silent => now - self.began,
            Some((since, _)) => now - since,
            None => 0,
        }
    }

    /// A nudge, which helps or not.
    pub(crate) fn wake_up(&mut self, now: Ms) {
        if let Some((_, true)) = self.hangs {
            (self.hangs, self.ends_at) = (None, now + 500);
        }
        self.silent = false;
    }
}

impl World<'_> {
    /// The keeper starts the program, or fails to start it.
    pub(crate) fn start_program(&mut self, keeper: &mut Keeper) {
        self.check_start(keeper);
        self.facts(&keeper.run).spawned = true;
        if keeper.is_short {
            keeper.exit = Some(not_begun());
            return;
        }
        if self.scenario == Scenario::Backlog && self.random.in_thousand(15) {
            keeper.exit = Some(RunEnd::NotStarted { error: "no such program".into() });
            return;
        }
        self.tally.count("sessions");
        let now = self.clock.now();
        let takes = if self.random.in_thousand(400) { self.random.between(1, 150) } else { self.random.between(150, 9_000) };
        let code = if self.random.in_thousand(780) { 0 } else { 1 + i32::from(self.random.in_thousand(300)) };
        let is_loop = self.model.jobs.get(&keeper.task).is_some_and(|job| job.spec.restart.is_some());
        let of_loop = |share: usize| if is_loop { share } else { 0 };
        let mut plan = Vec::new();
        let (takes, code) = if self.scenario == Scenario::People { (takes.min(2_500), 0) } else { (takes, code) };
        for (share, act) in [
            (120 + of_loop(150), Act::AddChild),
            (of_loop(150), Act::Mark),
            (of_loop(40), Act::Blunder),
            (100, Act::Hang),
            (140, Act::Done),
            (60, Act::Fail),
            (150, Act::Heartbeat),
            (200, Act::Hide),
            (60, Act::Hide),
            (130, Act::Wait),
        ] {
            if self.scenario == Scenario::Backlog && self.random.in_thousand(share) {
                plan.push((now + self.random.between(0, takes), act));
            }
        }
        let process = self.machine.fork();
        // Without a random draw, so that the histories of the pinned seeds stay as they are.
        if self.scenario == Scenario::Backlog && process.pid % 37 == 0 {
            plan.push((now + takes / 2, Act::Distrust));
        }
        plan.sort_by_key(|(at, _)| *at);
        self.say(format_args!("session of {} for {} begins, pid {}", keeper.run, keeper.task, process.pid));
        let silent = self.random.in_thousand(150) && self.scenario == Scenario::Backlog;
        let (ends_at, plan) = (now + takes, plan.into());
        let (calling, pause, hangs) = (false, None, None);
        keeper.child = Some(Child { process, began: now, ends_at, code, plan, silent, hangs, calling, pause });
    }

    /// Executes the due step of a program.
    pub(crate) fn advance_program(&mut self, number: u32) {
        let now = self.clock.now();
        let Some(keeper) = self.keepers.get_mut(&number) else { return };
        let Some(child) = keeper.child.as_mut() else { return };
        let (id, epoch) = (keeper.task.clone(), keeper.run_epoch);
        if let Some(pause) = child.pause {
            child.calling = true;
            return self.advance_waiting(number, pause);
        }
        let act = if child.hangs.is_some() { None } else { child.plan.pop_front_if(|(at, _)| *at <= now) };
        let Some((_, act)) = act else {
            keeper.exit = Some(RunEnd::Exited(child.code));
            let process = child.process.clone();
            keeper.child = None;
            self.machine.exit(&process);
            return;
        };
        let conclude = |verdict| TaskRequest::Conclude { id: id.clone(), epoch: Some(epoch), by: None, verdict };
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
            Act::Hang => {
                (child.hangs, child.ends_at) = (Some((now, number.is_multiple_of(2))), now + HANGS);
                self.tally.count("sessions that hang");
                return;
            }
            Act::Mark => return self.make_done(&id, Placed::File),
            Act::Blunder => return self.make_done(&id, Placed::Directory),
            Act::AddChild if self.counts.tasks >= CHILD_LIMIT => return,
            Act::AddChild if self.counts.pipelines < PIPELINE_LIMIT && self.random.in_thousand(150) => {
                let request = self.start_pipeline(Some((id, epoch)));
                return self.send_of_program(number, request);
            }
            Act::AddChild => self.child_task(&id, epoch),
            Act::Done => conclude(Verdict::Done { output: Some(serde_json::json!({ "n": number })) }),
            Act::Fail => conclude(Verdict::Failed { error: "I say so".into() }),
            Act::Distrust => conclude(Verdict::Untrusted { error: "hooks".into() }),
            Act::Heartbeat => TaskRequest::Heartbeat { id: id.clone(), epoch, pulse: Pulse::Active, watch: WATCH },
        };
        self.send_of_program(number, Request::Task(request));
    }

    fn send_of_program(&mut self, number: u32, request: Request) {
        if let Some(child) = self.keepers.get_mut(&number).and_then(|keeper| keeper.child.as_mut()) {
            child.calling = true;
        }
        self.calls.push(InFlight { from: Sender::Program(number), requests: vec![request] });
    }

    /// Creates the file DONE, or something in its place.
    pub(crate) fn make_done(&mut self, task: &TaskId, placed: Placed) {
        if self.machine.files.contains_key(task) {
            return;
        }
        self.tally.count(if placed == Placed::File { "DONE made" } else { "a directory as DONE" });
        self.say(format_args!("DONE of {task}: {placed:?}"));
        self.machine.files.insert(task.clone(), placed);
    }

    /// The program receives a reply. Unless it waits for tasks, it ignores it.
    pub(crate) fn on_program_reply(&mut self, number: u32, heard: &Heard) {
        let pause = self.keepers.get(&number).and_then(|keeper| keeper.child.as_ref()).and_then(|child| child.pause);
        if let (Some(Pause::Back), Heard::Replies(_)) = (pause, heard) {
            self.check_slot(number);
        }
        let pause = pause.and_then(|pause| self.on_waiting_reply(pause, heard));
        if let Some(child) = self.keepers.get_mut(&number).and_then(|keeper| keeper.child.as_mut()) {
            (child.calling, child.pause) = (false, pause);
        }
    }

    /// The first process has exited, which drops its calls.
    pub(crate) fn drop_calls_of_program(&mut self, number: u32) {
        self.calls.retain(|call| call.from != Sender::Program(number));
    }

    /// The child is killed from outside.
    pub(crate) fn kill_child(&mut self, number: u32) {
        let Some(keeper) = self.keepers.get_mut(&number) else { return };
        let Some(child) = keeper.child.take() else { return };
        keeper.exit = Some(RunEnd::Signalled(9));
        self.machine.exit(&child.process);
        self.drop_calls_of_program(number);
    }
}
