//! The simulator's driver of a runner: the same steps as the real one in `runtime/runner.rs`, in virtual time.

use std::collections::BTreeSet;

use banksman_core::backlog::{OutboxEntry, RunEndRecord};
use banksman_core::task::RunEnd;
use banksman_core::{Liveness, ProcessId, RunId, Span, Wall};
use banksman_engine::{Activity, RunnerAction, RunnerInput, Vitals, Work};
use banksman_store::Key;

use super::keeper::{Ask, Keeper, Notice};
use super::runner::{Doing, Stream, Sweep};
use super::shortage::{ShortageAt, not_begun};
use crate::commit::{InFlight, Sender};
use crate::machine::Record;
use crate::mutation::Mutation;
use crate::report::Checker;
use crate::world::World;

impl World<'_> {
    /// Executes the next step of a runner.
    pub(crate) fn drive(&mut self, slot: usize) {
        if let Doing::Sleeping { .. } = self.runners[slot].doing {
            return self.wake_runner(slot);
        }
        let (now, count) = (self.lease_of(slot), &mut self.counts.runs);
        let runner = &mut self.runners[slot];
        runner.dispatcher.give_ids(|| {
            *count += 1;
            RunId::new(&format!("r{count}")).expect("a good id")
        });
        match runner.dispatcher.next(now) {
            RunnerAction::Load(keys) => self.load(slot, &keys),
            RunnerAction::Probe(processes) => {
                let found: Vec<_> =
                    processes.into_iter().map(|process| (process.clone(), self.probe_process(&process))).collect();
                self.input(slot, RunnerInput::Probed(found));
            }
            RunnerAction::Check(tasks) => {
                let found: Vec<_> = tasks.into_iter().map(|task| (task.clone(), self.read_marker(slot, &task))).collect();
                self.input(slot, RunnerInput::Checked(found));
            }
            RunnerAction::Call(requests) => {
                runner.doing = Doing::Calling;
                self.calls.push(InFlight { from: Sender::Runner(slot), requests });
            }
            RunnerAction::Spawn(work) => self.spawn(slot, &work),
            RunnerAction::Recover(work) => self.recover(slot, &work),
            RunnerAction::Pulse(run, _) => self.read_pulse(slot, &run),
            RunnerAction::Kill(run, _) => self.kill_run(slot, &run),
            RunnerAction::Nudge(run, command) => self.nudge_run(slot, &run, command),
            RunnerAction::Deliver(task, ..) => unreachable!("no agent of {task} asks anybody in this world"),
            RunnerAction::Notify(command, _) => self.notify_people(slot, command),
            RunnerAction::CheckGuards(pipeline) => self.check_guards(slot, pipeline),
            RunnerAction::StopGuards(pipeline) => self.stop_guard_check(slot, &pipeline),
            RunnerAction::Land(target) => unreachable!("nothing lands on {target} in this world"),
            RunnerAction::Acknowledge(run) => self.acknowledge(slot, &run),
            RunnerAction::Forget(run) => drop(runner.sessions.remove(&run)),
            RunnerAction::Sleep { watch, at_most } => {
                // Rounded up, so that a deadline has passed when the sleeper checks it.
                let until = self.clock.now() + at_most.as_ms() + 1;
                self.runners[slot].doing = Doing::Sleeping { watch, until };
            }
            RunnerAction::Done => self.exit_runner(slot),
        }
        let events = self.runners[slot].dispatcher.events();
        self.tally.count_many("news", events.len() as u64);
    }

    fn load(&mut self, slot: usize, keys: &BTreeSet<Key>) {
        if !self.is_quiescing && self.random.in_thousand(self.harsh / 4) {
            self.tally.count("fault: read failed");
            return self.input(slot, RunnerInput::NoReply);
        }
        let mut snapshot = match self.store.view().load(keys) {
            Ok(snapshot) => snapshot,
            Err(error) => return self.store_failed(&error),
        };
        if keys.contains(&Key::Runners) {
            let own = |entry: &OutboxEntry| entry.executor.as_ref() == Some(&self.runners[slot].id) && !entry.is_dead();
            let busy = snapshot.backlog.outbox.values().any(own);
            let command = busy.then(|| "an outbox command".to_owned());
            self.runners[slot].awaits = Some(self.awaited_by(&self.runners[slot]).into_iter().chain(command).collect());
        }
        if let Some(mutation) = self.mutation() {
            crate::mutation::misread(mutation, &mut snapshot);
        }
        self.runners[slot].offset = snapshot.lease.0 - self.clock.monotonic();
        self.input(slot, RunnerInput::Rows(Box::new(snapshot)));
    }

    /// What a runner sees when it probes another process.
    fn probe_process(&self, process: &ProcessId) -> Liveness {
        match self.mutation() {
            Some(Mutation::PidOnly) if self.machine.is_taken(process.pid) => Liveness::Alive,
            Some(Mutation::StalledIsDead) if self.is_stalled(process) => Liveness::Dead,
            _ => self.machine.probe(process),
        }
    }

    pub(crate) fn is_stalled(&self, process: &ProcessId) -> bool {
        self.runners.iter().any(|runner| runner.process == *process && runner.paused_until.is_some())
    }

    fn connect(&mut self, slot: usize, run: &RunId, keeper: u32, epoch: i64) -> u64 {
        self.counts.streams += 1;
        let number = self.counts.streams;
        let stream = Stream { number, keeper, epoch, notices: Default::default(), closed: false };
        self.runners[slot].sessions.insert(run.clone(), stream);
        number
    }

    fn spawn(&mut self, slot: usize, work: &Work) {
        let shortage_at = self.shortage_at();
        if shortage_at == Some(ShortageAt::Keeper) {
            return self.fall_short(slot, &work.run.id);
        }
        self.counts.keepers += 1;
        let number = self.counts.keepers;
        let process = self.machine.fork();
        let now = self.clock.now();
        let slow = !self.is_quiescing && self.random.in_thousand(self.harsh * 3);
        let not_before = now + if slow { self.random.between(1, 20_000) } else { self.random.between(0, 4) };
        let stream = self.connect(slot, &work.run.id, number, work.run.owner_epoch.0);
        self.note(slot, format_args!("starts keeper {number} for {}", work.run.id));
        let mut keeper = Keeper::new(number, work, process, stream, not_before);
        keeper.is_short = shortage_at == Some(ShortageAt::Program);
        self.keepers.insert(number, keeper);
    }

    fn ended(&mut self, slot: usize, run: &RunId, ending: RunEnd, note: Option<&str>) {
        if ending == not_begun() {
            return self.ended_short(slot, run);
        }
        let ended = RunEndRecord::new(ending, Wall(self.clock.now()), note.map(Into::into));
        self.runners[slot].passed_over.clear();
        self.input(slot, RunnerInput::Ended(run.clone(), ended));
    }

    /// Finds a session again that this process did not start or has lost.
    fn recover(&mut self, slot: usize, work: &Work) {
        let run = &work.run;
        self.tally.count("recoveries");
        let mut record = self.machine.records.get(&run.id).cloned();
        self.note(slot, format_args!("recovers {}: {record:?}", run.id));
        if *run.boot != *self.runners[slot].process.boot {
            if let Some(Record::Kept { ended: Some(ending), .. }) = record {
                return self.ended(slot, &run.id, ending, None);
            }
            return self.ended(slot, &run.id, RunEnd::Lost, Some("the machine was restarted"));
        }
        if matches!(record, None | Some(Record::Empty)) {
            record = Some(Record::Tombstone);
            self.machine.records.insert(run.id.clone(), Record::Tombstone);
            self.tally.count("tombstones");
        }
        match record {
            None | Some(Record::Empty | Record::Tombstone) => {
                let ending = if run.session.is_some() { RunEnd::Lost } else { RunEnd::Never };
                self.ended(slot, &run.id, ending, None);
            }
            Some(Record::Kept { keeper, ended, .. }) => {
                let lives = self.keepers.get(&keeper).is_some_and(|keeper| keeper.alive);
                match ended {
                    _ if lives && (self.is_held_up(keeper) || !self.is_quiescing && self.random.in_thousand(self.harsh)) => {
                        // The keeper does not answer, its socket does not exist yet, or it has just exited.
                        self.input(slot, RunnerInput::Unclear(run.id.clone()));
                    }
                    _ if lives => {
                        let epoch = run.owner_epoch.0;
                        let stream = self.connect(slot, &run.id, keeper, epoch);
                        self.ask(keeper, stream, Ask::Own(epoch));
                        self.tally.count("sessions adopted");
                    }
                    Some(ending) => self.ended(slot, &run.id, ending, None),
                    None if self.mutation() == Some(Mutation::Respawn) => {
                        self.machine.records.remove(&run.id);
                        self.spawn(slot, work);
                    }
                    None => self.sweep(slot, &run.id, keeper),
                }
            }
        }
    }

    pub(crate) fn ask(&mut self, keeper: u32, stream: u64, ask: Ask) {
        match self.keepers.get_mut(&keeper).filter(|keeper| keeper.alive) {
            Some(keeper) => keeper.mail.push_back((stream, ask)),
            None => self.close_stream(stream),
        }
    }

    /// The keeper was killed. What is left of the tree is ended before the run counts as lost.
    fn sweep(&mut self, slot: usize, run: &RunId, keeper: u32) {
        self.tally.count("sweeps");
        if self.mutation() == Some(Mutation::NoSweep) {
            return self.ended(slot, run, RunEnd::Lost, None);
        }
        if let Some(request) = self.runners[slot].dispatcher.session_dead(run) {
            self.calls.push(InFlight { from: Sender::Thread(slot), requests: vec![request] });
        }
        let done_at = self.clock.now() + self.random.between(0, 3_000);
        self.runners[slot].sweeps.push(Sweep { run: run.clone(), keeper, done_at });
    }

    /// How long a run has been quiet. A keeper that does not answer proves nothing.
    fn read_pulse(&mut self, slot: usize, run: &RunId) {
        self.tally.count("pulses");
        let keeper = self.keepers.values().find(|keeper| keeper.alive && keeper.run == *run && keeper.tree_lives());
        let (number, child) = keeper.map_or((0, None), |keeper| (keeper.number, keeper.child.as_ref()));
        let quiet = child.map(|child| child.quiet(self.clock.now()));
        match quiet {
            Some(quiet) if !self.random.in_thousand(100) && !self.is_held_up(number) => {
                let vitals = Vitals { quiet: Span::from_ms(quiet), output_bytes: 0, activity: Activity::Idle };
                self.input(slot, RunnerInput::Pulse(run.clone(), Some(vitals)));
            }
            _ => self.input(slot, RunnerInput::Pulse(run.clone(), None)),
        }
    }

    fn kill_run(&mut self, slot: usize, run: &RunId) {
        if self.mutation() == Some(Mutation::EndAtWish) {
            return self.ended(slot, run, RunEnd::Signalled(9), None);
        }
        let stream = self.runners[slot].sessions.get(run).map(|stream| (stream.keeper, stream.number, stream.epoch));
        if let Some((keeper, stream, epoch)) = stream {
            self.tally.count("kills");
            self.ask(keeper, stream, Ask::Kill(epoch));
        }
    }

    /// The end of a run is durable: releases its keeper, or removes its record.
    fn acknowledge(&mut self, slot: usize, run: &RunId) {
        let stream = self.runners[slot].sessions.remove(run);
        let keeper = stream.as_ref().and_then(|stream| self.keepers.get(&stream.keeper)).filter(|keeper| keeper.alive);
        match (stream, keeper.map(|keeper| keeper.number)) {
            (Some(stream), Some(keeper)) => self.ask(keeper, stream.number, Ask::Acknowledge(stream.epoch)),
            _ => self.forget(run),
        }
    }

    /// Removes a record that is no longer needed.
    fn forget(&mut self, run: &RunId) {
        match self.machine.records.get(run) {
            Some(Record::Kept { keeper, .. }) if self.keepers.get(keeper).is_some_and(|keeper| keeper.alive) => {}
            Some(Record::Kept { .. }) => drop(self.machine.records.remove(run)),
            // A keeper that stalls before it has made its record must find the tombstone, however late.
            Some(Record::Empty | Record::Tombstone) | None => {}
        }
    }

    /// Whether a sleeping runner has a reason to wake.
    pub(crate) fn has_reason(&self, slot: usize) -> bool {
        let runner = &self.runners[slot];
        let now = self.clock.now();
        match &runner.doing {
            Doing::Acting => true,
            Doing::Calling => false,
            Doing::Sleeping { until, .. } if self.mutation() == Some(Mutation::Deaf) => {
                runner.cancelled || self.hears_sessions(slot) || (*until <= now && *until % 4 == 0)
            }
            Doing::Sleeping { watch, until } => {
                runner.mailbox
                    || (runner.change_notifier && runner.dispatcher.listens())
                    || runner.cancelled
                    || *until <= now
                    || self.hears_sessions(slot)
                    || watch.iter().any(|process| self.probe_process(process) != Liveness::Alive)
            }
        }
    }

    fn hears_sessions(&self, slot: usize) -> bool {
        let runner = &self.runners[slot];
        runner.sessions.values().any(|stream| stream.closed || !stream.notices.is_empty())
            || runner.sweeps.iter().any(|sweep| sweep.done_at <= self.clock.now())
            || runner.notifications.iter().any(|notification| notification.done_at <= self.clock.now())
            || runner.guard_checks.iter().any(|check| check.done_at <= self.clock.now())
    }

    /// Wakes a sleeping runner: the same order of reasons as in the real driver.
    fn wake_runner(&mut self, slot: usize) {
        let Doing::Sleeping { watch, .. } = std::mem::replace(&mut self.runners[slot].doing, Doing::Acting) else { return };
        let runs: Vec<RunId> = self.runners[slot].sessions.keys().cloned().collect();
        for run in runs {
            self.listen(slot, &run);
        }
        self.finish_sweeps(slot);
        self.finish_notifications(slot);
        self.finish_guard_checks(slot);
        let runner = &mut self.runners[slot];
        if std::mem::take(&mut runner.change_notifier) && runner.dispatcher.listens() {
            self.input(slot, RunnerInput::NewEvents);
        }
        let died = watch.into_iter().find(|process| self.probe_process(process) != Liveness::Alive);
        let runner = &mut self.runners[slot];
        if runner.cancelled {
            self.input(slot, RunnerInput::Leave);
        } else if std::mem::take(&mut runner.mailbox) {
            runner.passed_over.clear();
            self.input(slot, RunnerInput::Woken);
        } else if let Some(process) = died {
            self.input(slot, RunnerInput::Died(process));
        }
    }

    fn finish_sweeps(&mut self, slot: usize) {
        let now = self.clock.now();
        let done: Vec<Sweep> = self.runners[slot].sweeps.extract_if(.., |sweep| sweep.done_at <= now).collect();
        for sweep in done {
            let is_unseen = self.keepers.get(&sweep.keeper).is_some_and(Keeper::is_unseen);
            if is_unseen && self.mutation() != Some(Mutation::UnseenIsDead) {
                self.tally.count("runs unproven");
                let now = self.lease_of(slot);
                match self.mutation() {
                    Some(Mutation::Unasked) => self.input(slot, RunnerInput::Unclear(sweep.run.clone())),
                    _ => self.runners[slot]
                        .dispatcher
                        .on(RunnerInput::Unproven(sweep.run.clone(), "its container cannot be seen".into()), now),
                }
                continue;
            }
            if !is_unseen && let Some(mut keeper) = self.keepers.remove(&sweep.keeper) {
                self.end_tree(&mut keeper);
                self.keepers.insert(sweep.keeper, keeper);
            }
            self.ended(slot, &sweep.run, RunEnd::Lost, Some("its keeper was killed"));
        }
    }

    /// Handles the notices of a session.
    pub(crate) fn listen(&mut self, slot: usize, run: &RunId) {
        while let Some(stream) = self.runners[slot].sessions.get_mut(run) {
            let notice = stream.notices.pop_front();
            let closed = stream.closed;
            match notice {
                Some(Notice::Started(session)) => self.input(slot, RunnerInput::Started(run.clone(), session)),
                Some(Notice::Ended(ending)) => {
                    self.ended(slot, run, ending, None);
                    if self.mutation() == Some(Mutation::AcknowledgeFirst) {
                        self.acknowledge(slot, run);
                    }
                }
                Some(Notice::Nudged(command)) => self.input(slot, RunnerInput::CommandDone(command, Ok(()))),
                Some(Notice::LowerEpoch) => self.input(slot, RunnerInput::Woken),
                Some(Notice::RecordExists) => {}
                None if closed => {
                    self.runners[slot].sessions.remove(run);
                    self.input(slot, RunnerInput::KeeperGone(run.clone()));
                }
                None => return,
            }
        }
    }

    /// The runner has no work left, and its process exits.
    fn exit_runner(&mut self, slot: usize) {
        let runner = &self.runners[slot];
        let id = runner.id.clone();
        // Its own actions since it read the store, such as asking about a run, may have left no work; and there may be
        // new work.
        let is_bound = runner.options.until_idle && !runner.cancelled;
        let awaits: Option<BTreeSet<String>> = runner.awaits.as_ref().map(|awaits| awaits & &self.awaited_by(runner));
        let is_early = is_bound && awaits.as_ref().is_none_or(|awaits| !awaits.is_empty());
        self.say(format_args!("runner {id} ends by itself"));
        self.tally.count("runners done");
        self.verdict.expect(Checker::Idle, !is_early, || format!("{id} ends as if idle, and could wait for {awaits:?}"));
        self.end_runner(slot);
    }
}
