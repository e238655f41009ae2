//! The end of a history: the faults stop, all people leave, and all work that can be done must get done.

use banksman_core::event::Kind;
use banksman_core::task::{OnExhausted, Watch};
use banksman_core::{Limits, Span, TaskId};
use banksman_engine::Options;
use banksman_store::Key;

use crate::Scenario;
use crate::backlog::idleness;
use crate::backlog::model::TaskState;
use crate::backlog::runner::{Doing, POLL, Runner};
use crate::backlog::users::{TOP_CAPACITY, define, resources};
use crate::clock::Ms;
use crate::machine::Record;
use crate::report::Checker;
use crate::world::World;

/// Everything is over within this time. It covers all sessions one after the other, and phases that a guard blocks for
/// their longest time, half an hour, in each of their attempts.
const PATIENCE: Ms = 2 * 3_600_000;

/// The limit for a history that loops without time passing.
const STEPS: usize = 60_000;

/// Every how many steps people check for abandoned work.
const PEOPLE_POLL: usize = 64;

impl World<'_> {
    /// Brings everything to its end, and checks that end.
    pub(crate) fn quiesce(&mut self) {
        self.say(format_args!("the faults stop"));
        self.is_quiescing = true;
        match self.scenario {
            Scenario::Locks => self.quiesce_locks(),
            Scenario::Queues => {
                self.quiesce_queues();
                self.compare_rows();
            }
            Scenario::People | Scenario::Backlog | Scenario::Runners => self.quiesce_backlog(),
        }
    }

    fn quiesce_locks(&mut self) {
        self.quiesce_clients();
        self.run_until(|world| world.clients_have_finished());
        if !self.verdict.is_guilty() {
            self.compare_rows();
            self.close_clients();
        }
    }

    fn quiesce_backlog(&mut self) {
        self.send_users_home();
        self.stop_people_at_the_end();
        self.resume_all();
        self.settle_outside();
        if self.has_workers {
            self.settle_workers();
        }
        for resource in resources() {
            if resource.kind == Kind::Semaphore && self.model.capacity.contains_key(&resource.name) {
                self.operate(define(&resource, TOP_CAPACITY));
            }
        }
        for slot in 0..self.runners.len() {
            if self.runners[slot].paused_until.is_some() {
                self.go_on(slot);
            }
        }
        let now = self.clock.now();
        self.keepers.values_mut().for_each(|keeper| keeper.not_before = keeper.not_before.min(now));
        self.start_last_runner();
        // A poll makes up for wake-ups that were lost before.
        self.reliable_from = Some(self.clock.now() + POLL.as_ms() + 2_000);
        self.run_until(|world| world.is_settled());
        if self.verdict.is_guilty() {
            return;
        }
        self.check_tasks();
        if self.has_people() {
            self.reap_for_people();
            self.check_people_at_the_end();
        }
        self.check_pipelines_at_the_end();
        self.check_workers_at_the_end();
        self.is_closing = true;
        for runner in self.runners.iter_mut().filter(|runner| runner.alive) {
            runner.cancelled = true;
        }
        self.run_until(|world| world.runners.iter().all(|runner| !runner.alive) && world.calls.is_empty());
        if !self.verdict.is_guilty() {
            self.compare_rows();
            if self.harsh > 0 {
                self.clear_away();
            }
            self.close();
        }
    }

    /// Starts a runner that takes every task and exits when all is done.
    fn start_last_runner(&mut self) {
        // A runner that exits when idle would not wait for what people still hold.
        if self.has_people() {
            let options = self.options_beside_people();
            return self.start_runner(self.runners.len(), options);
        }
        let watch = Watch { timeout: Span::from_secs(2), max_recoveries: 2, on_exhausted: OnExhausted::Escalate };
        let options = Options {
            until_idle: true,
            limits: Limits { runs: self.limit, roots: self.root_limit },
            kill_patience: Span::from_secs(3),
            poll: POLL,
            ..Options::new(watch)
        };
        self.start_runner(self.runners.len(), options);
    }

    pub(crate) fn run_until(&mut self, is_there: impl Fn(&mut World<'_>) -> bool) {
        let (end, mut steps) = (self.clock.now() + PATIENCE, 0);
        let mut is_answered = false;
        loop {
            // A runner that was about to exit when a person answered does not see the consequences: the next one does.
            if steps % PEOPLE_POLL == 0 {
                is_answered |= self.try_again();
            }
            let stays = |runner: &Runner| runner.alive && runner.options.until_idle;
            if is_answered && !self.is_closing && !self.runners.iter().any(stays) {
                self.start_last_runner();
                is_answered = false;
            }
            if self.verdict.is_guilty() || is_there(self) {
                return;
            }
            // A runner that was asked to exit has left something for the next one.
            if steps % PEOPLE_POLL == 0
                && !self.is_closing
                && self.runners.iter().all(|runner| !runner.alive)
                && !self.outbox_is_empty()
            {
                self.start_last_runner();
            }
            if self.clock.now() > end || steps > STEPS {
                return self.report_unfinished();
            }
            self.step();
            steps += 1;
        }
    }

    fn is_settled(&mut self) -> bool {
        let over = |state: &TaskState| !matches!(state, TaskState::Live(_) | TaskState::Awaiting(_) | TaskState::Manual);
        // A runner that is about to act may cause more.
        let rests = |slot: usize| {
            let runner = &self.runners[slot];
            !runner.alive || (matches!(runner.doing, Doing::Sleeping { .. }) && !self.has_reason(slot))
        };
        let quiet = self.calls.is_empty()
            && (0..self.runners.len()).all(rests)
            && !self.people_are_busy()
            && self.runners.iter().all(|runner| !runner.alive || runner.guard_checks.is_empty())
            && self.late.is_empty()
            && self.keepers.values().all(|keeper| !keeper.alive && !keeper.tree_lives());
        let has_pending = || self.model.jobs.values().any(|job| job.state == TaskState::Pending);
        let idle = self.runners.iter().all(|runner| !runner.alive || !runner.options.until_idle)
            && !(self.has_people() && has_pending());
        // A task that waits for a blocking guard waits for people, and so does every runner.
        let is_held_up = self.model.pipelines.values().any(|pipeline| self.is_awaited(pipeline))
            || self.model.jobs.values().any(|job| job.state == TaskState::Pending && self.waits_for_kept(job));
        let rests = self.model.pipelines.iter().all(|(id, pipeline)| self.cannot_advance(id, pipeline));
        let mut pending = self.model.jobs.values().filter(|job| job.state == TaskState::Pending);
        let idle = idle || (is_held_up && rests && pending.all(|job| self.is_rightly_blocked(job)));
        // A wait without a time limit is one for a child that a person has retried.
        let is_left =
            |id: &TaskId, state: &TaskState| matches!(state, TaskState::Awaiting(None)) && self.model.open_children(id) > 0;
        let all_over = self.model.jobs.iter().all(|(id, job)| over(&job.state) || is_left(id, &job.state));
        quiet && idle && self.workers_are_idle() && all_over && self.outbox_is_empty()
    }

    fn outbox_is_empty(&mut self) -> bool {
        match self.store.view().load(&[Key::Outbox].into()) {
            Ok(rows) => rows.backlog.outbox.is_empty(),
            Err(error) => {
                self.store_failed(&error);
                true
            }
        }
    }

    fn report_unfinished(&mut self) {
        let stuck = [self.stuck_clients(), self.stuck_people()].concat();
        self.verdict.expect(Checker::Waiters, stuck.is_empty(), || format!("these wait for ever: {}", stuck.join(", ")));
        let open = self.model.jobs.iter().filter(|(_, job)| !idleness::is_over(job));
        let open: Vec<String> = open.map(|(id, job)| format!("{id} {:?}", job.state)).collect();
        let runners = self.runners.iter().filter(|runner| runner.alive).map(|runner| runner.id.to_string());
        let runners: Vec<String> = runners.collect();
        self.verdict.report(Checker::Idle, || format!("it never ends: {}; runners {}", open.join(", "), runners.join(", ")));
    }

    /// Every task is over, or there is a reason why it is not.
    fn check_tasks(&mut self) {
        let pending = self.model.jobs.iter().filter(|(_, job)| job.state == TaskState::Pending);
        let idle: Vec<String> = pending.filter(|(_, job)| !self.is_rightly_blocked(job)).map(|(id, _)| id.to_string()).collect();
        self.verdict
            .expect(Checker::Idle, idle.is_empty(), || format!("nothing moves, and these are not done: {}", idle.join(", ")));
        let left = self.model.jobs.values().filter(|job| idleness::is_over(job)).count();
        self.tally.count_many("tasks over at the end", left as u64);
    }

    /// Nothing is left behind: no outbox command, no lock or slot of a run or a living process, no record, no process.
    fn close(&mut self) {
        let rows = match self.store.view().everything() {
            Ok(rows) => rows,
            Err(error) => return self.store_failed(&error),
        };
        // Beside people no runner stays until it has sent the last notice.
        let outbox = if self.has_people() { 0 } else { rows.backlog.outbox.len() };
        self.verdict.expect(Checker::Left, outbox == 0, || format!("{outbox} outbox commands are left"));
        let all = self
            .model
            .held
            .iter()
            .flat_map(|(resource, holders)| holders.iter().map(move |(holder, held)| (resource, holder, held)));
        let held: Vec<String> = all
            .filter(|(resource, holder, held)| {
                // A grant that was offered to a session which died while waiting is free for the next claimant.
                let semaphore = rows.coordination.semaphores.get(&resource.name);
                let offered = semaphore.and_then(|semaphore| semaphore.holders.get(*holder)?.offer.as_ref()).is_some();
                (holder.as_str().starts_with("run:") && !offered)
                    || held.processes.iter().any(|process| self.machine.lives(process))
            })
            .map(|(resource, holder, _)| format!("{resource} of {holder}"))
            .collect();
        self.verdict.expect(Checker::Left, held.is_empty(), || format!("still held: {}", held.join(", ")));
        // Tombstones stay, and so do records that a reboot has emptied. The next runner would remove the rest.
        let is_left = |record: &Record| matches!(record, Record::Kept { .. }) || self.harsh == 0;
        let records = self.machine.records.iter().filter(|(_, record)| is_left(record));
        let records: Vec<String> = records.map(|(run, record)| format!("{run} {record:?}")).collect();
        self.verdict.expect(Checker::Left, records.is_empty(), || format!("records are left: {}", records.join(", ")));
        let keepers = self.keepers.values().filter(|keeper| keeper.alive || keeper.tree_lives()).count();
        self.verdict.expect(Checker::Left, keepers == 0, || format!("{keepers} keepers are left"));
    }
}
