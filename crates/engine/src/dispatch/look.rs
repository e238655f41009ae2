//! A look at the backlog: what may be started, what must be taken over, what to wait for.

use std::collections::BTreeSet;

use banksman_core::backlog::{Backlog, Ended, Finish, Run, Runner};
use banksman_core::event::Resource;
use banksman_core::guard::Wants;
use banksman_core::resource::coordination::Coordination;
use banksman_core::task::admission::{Admission, Reason};
use banksman_core::task::roots;
use banksman_core::{HolderId, Lease, Liveness, Name, Now, ProcessId, RunId, RunnerId, SectionId, Span, Task, TaskId, WorkClaim};
use banksman_store::{Key, Snapshot};

use super::{Advice, Dispatcher, Look, OwnedRun, Phase, Rest, RunnerEvent};
use crate::claims::occupy;
use crate::endings::open_question;
use crate::facts;
use crate::guards::asked_at_claim;
use crate::ledger::{Draft, take};
use crate::request::{Request, Seen};
use crate::runs::{Candidate, RunRequest, Work};
use crate::tasks::TaskRequest;

impl Dispatcher {
    /// Takes in rows.
    pub fn loaded(&mut self, snapshot: Snapshot) {
        match std::mem::replace(&mut self.look, Look::Due) {
            // Which ready tasks were read, and how many, depends on these, so they are read again.
            Look::First if self.note_paused(&snapshot) | self.note_limits(&snapshot) => {}
            Look::First => {
                let ready = snapshot.backlog.tasks.values().filter(|task| self.may_take(task, snapshot.lease));
                let mut keys: BTreeSet<Key> = ready
                    .flat_map(|task| {
                        let own = Key::Lock(task.id.lock());
                        let needs = task.spec.needs_to_begin(true);
                        let guards = task.spec.guarded.then(|| Key::Pipeline(task.id.clone()));
                        facts::resource_keys(task.spec.section.as_ref(), needs).into_iter().chain([own]).chain(guards)
                    })
                    .collect();
                keys.extend(self.family_keys(&snapshot));
                keys.extend(self.crew_keys(&snapshot));
                keys.extend(self.guard_keys(&snapshot));
                keys.extend(self.listening_keys(&snapshot));
                if keys.is_empty() {
                    return self.evaluate(snapshot);
                }
                self.queue.push_back(Advice::Load(keys));
                self.look = Look::Second(Box::new(snapshot));
            }
            Look::Second(mut first) => {
                first.coordination.locks.extend(snapshot.coordination.locks);
                first.coordination.semaphores.extend(snapshot.coordination.semaphores);
                first.queues = snapshot.queues;
                first.crew.heard = snapshot.crew.heard;
                first.backlog.pipelines.extend(snapshot.backlog.pipelines);
                first.listening.heard = snapshot.listening.heard;
                first.listening.awaited = snapshot.listening.awaited;
                // Children come with those who wait for them.
                for (id, task) in snapshot.backlog.tasks {
                    first.backlog.tasks.entry(id).or_insert(task);
                }
                self.evaluate(*first);
            }
            Look::Scan(after) => self.scanned(after, snapshot),
            Look::Count(rest) => {
                self.is_told = true;
                self.look = Look::Done(rest);
                if snapshot.backlog.finish.is_news() {
                    let Finish { counts, dead, .. } = snapshot.backlog.finish;
                    let advice = self.call([RunRequest::Rest { runner: self.me.id.clone(), counts, dead }]);
                    self.queue.push_back(advice);
                }
            }
            Look::Done(_) | Look::Due | Look::Probing(_) | Look::Checking(_) | Look::Scanned(_) => {}
        }
    }

    /// Finds out which of its runs have no slot. Says whether that has changed.
    fn note_paused(&mut self, snapshot: &Snapshot) -> bool {
        let Some(slots) = snapshot.coordination.semaphores.get(&Name::runs()) else { return false };
        let live = snapshot.backlog.runs.values().filter(|run| run.owner == self.me.id);
        let paused = live.filter(|run| !slots.holders.contains_key(&run.id.holder())).map(|run| run.id.clone()).collect();
        std::mem::replace(&mut self.paused, paused) != self.paused
    }

    /// Finds out whether roots are limited. Says whether that has changed.
    fn note_limits(&mut self, snapshot: &Snapshot) -> bool {
        let are_limited = facts::root_limit(&snapshot.backlog) > 0;
        std::mem::replace(&mut self.roots_are_limited, are_limited) != are_limited
    }

    /// Takes in what a look at processes found.
    pub fn probed(&mut self, found: impl IntoIterator<Item = (ProcessId, Liveness)>) {
        self.probes.extend(found);
        match std::mem::replace(&mut self.look, Look::Due) {
            Look::Probing(snapshot) => self.evaluate(*snapshot),
            other => self.look = other,
        }
    }

    pub(super) fn may_take(&self, task: &Task, now: Lease) -> bool {
        let in_section = |section: &SectionId| self.options.sections.contains(section);
        self.only.is_none()
            && task.is_due(now)
            && task.spec.work.is_some()
            && !self.passed_over.contains_key(&task.id)
            && (self.options.sections.is_empty() || task.spec.section.as_ref().is_some_and(in_section))
    }

    fn now(&self, snapshot: &Snapshot) -> Now {
        let dead = self.probes.iter().filter(|(_, liveness)| matches!(liveness, Liveness::Dead | Liveness::OtherBoot));
        Now {
            lease: snapshot.lease,
            wall: snapshot.wall,
            dead: dead.map(|(process, _)| process.clone()).collect(),
            patience: self.patience(),
            ..Now::default()
        }
    }

    pub(super) fn seen(&self) -> Seen {
        let dead = self.probes.iter().filter(|(_, liveness)| matches!(liveness, Liveness::Dead | Liveness::OtherBoot));
        Seen { probes: dead.map(|(process, liveness)| (process.clone(), *liveness)).collect(), patience: self.patience() }
    }

    pub(super) fn patience(&self) -> Span {
        self.stall.map_or(Span::ZERO, |(late, _)| late)
    }

    /// Decides over all that was read.
    pub(super) fn evaluate(&mut self, snapshot: Snapshot) {
        let unknown = self.unprobed(&snapshot);
        if !unknown.is_empty() {
            self.queue.push_back(Advice::Probe(unknown));
            self.look = Look::Probing(Box::new(snapshot));
            return;
        }
        let Some(mut snapshot) = self.check_first(snapshot) else { return };
        self.stall = self.stall.filter(|(_, until)| snapshot.lease < *until);
        let now = self.now(&snapshot);
        self.look_after_own(&snapshot.backlog);
        self.run_errands(&snapshot.backlog, snapshot.lease);
        let orphans = self.orphans(&snapshot.backlog);
        let lost = self.lost(&snapshot.backlog, &now);
        self.assume_ended(&mut snapshot);
        let Choice { mut candidates, mut beginnings, mut blocked } = self.choose(&snapshot, &now);
        // Whoever holds the lock of a task keeps runners from it, but not from those behind it, which were not read.
        let is_own = |reason: &Reason| match reason {
            Reason::TaskLock { .. } => true,
            Reason::Reserved { resource, .. } => resource.name.task().is_some(),
            _ => false,
        };
        let is_locked = |reasons: &&Vec<Reason>| reasons.iter().any(is_own);
        let locked = blocked.iter().filter(is_locked).count();
        if locked > std::mem::replace(&mut self.locked, locked) {
            self.look = Look::Due;
            return;
        }
        // What a claim has found in the way still is, as far as anybody knows.
        let passed_over = self.passed_over.iter().filter(|(task, _)| snapshot.backlog.tasks.contains_key(*task));
        blocked.extend(passed_over.map(|(_, reasons)| reasons.clone()));
        if self.room() > 0 {
            // Without room nothing was looked for.
            self.tell_queued(blocked.iter().filter(|reasons| matches!(&reasons[..], [Reason::NoSlot { .. }])).count());
        }
        if !orphans.is_empty() {
            // They may fill the room that there is, and nobody takes the place of a root before those who wait for room.
            candidates.clear();
            beginnings.clear();
        }
        if candidates.is_empty() && orphans.is_empty() {
            self.nothing_to_try();
        }
        let found = self.found(&snapshot);
        let is_found = |id: &TaskId| found.iter().any(|request| matches!(request, RunRequest::Found { task, .. } if task == id));
        candidates.retain(|candidate| !is_found(&candidate.task));
        let ripe = if self.only.is_none() { self.ripe(&snapshot, &candidates) } else { Vec::new() };
        let mut requests: Vec<Request> = self.finishes().into_iter().map(Into::into).collect();
        requests.extend(self.dead_claims(&snapshot.coordination, &now));
        requests.extend(found.into_iter().chain(ripe).chain(std::mem::take(&mut self.results)).map(Request::from));
        if self.only.is_none() {
            requests.extend(beginnings);
            requests.extend(self.advance(&snapshot, &now));
            requests.append(&mut self.judgements);
            requests.append(&mut self.sweeps);
        }
        self.markers.clear();
        let runner = self.me.id.clone();
        for work in orphans {
            requests.push(RunRequest::Adopt { runner: runner.clone(), what: Box::new(work), seen: self.seen() }.into());
        }
        for work in lost {
            let (what, patience, watch) = (Box::new(work), self.patience(), self.options.watch);
            requests.push(RunRequest::Lose { runner: runner.clone(), what, patience, watch }.into());
        }
        for gone in self.gone_runners(&snapshot.backlog, &now) {
            let clear = match self.options.lease {
                None => RunRequest::Retire { runner: gone, seen: self.seen() },
                Some(_) => RunRequest::Dismiss { runner: gone, seen: self.seen() },
            };
            requests.push(clear.into());
        }
        if !candidates.is_empty() {
            let (room, seen) = (self.room(), self.seen());
            requests.push(RunRequest::Claim { runner, room, candidates, seen }.into());
        } else {
            let watching: BTreeSet<Resource> = blocked.iter().flatten().filter_map(Reason::resource).collect();
            let watching: Vec<Resource> = watching.into_iter().collect();
            if watching != self.watching {
                self.watching.clone_from(&watching);
                requests.push(RunRequest::Watch { runner, resources: watching }.into());
            }
        }
        let crew = self.crew_requests(&snapshot);
        self.listens |= snapshot.listening.since.is_some();
        if requests.is_empty() && crew.is_empty() && self.is_behind {
            // Nobody tells of it a second time.
            self.look = Look::Due;
        } else if requests.is_empty() && crew.is_empty() {
            let rest = self.what_to_wait_for(&snapshot, &blocked);
            self.is_told &= rest.idle;
            if rest.idle && !self.is_told && self.only.is_none() && self.options.sections.is_empty() {
                self.queue.push_back(Advice::Load([Key::Finish, Key::Counts].into()));
                self.look = Look::Count(rest);
            } else {
                self.look = Look::Done(rest);
            }
        } else {
            let advice = self.call(requests.into_iter().chain(crew));
            self.queue.push_back(advice);
        }
    }

    pub(super) fn tell_queued(&mut self, queued: usize) {
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let delta = count(queued) - count(self.queued);
        self.queued = queued;
        self.news.extend((delta != 0).then_some(RunnerEvent::Queued(delta)));
    }

    /// The processes that stand in the way and were not looked at.
    fn unprobed(&self, snapshot: &Snapshot) -> Vec<ProcessId> {
        let runners = snapshot.backlog.runners.values().filter(|runner| runner.id != self.me.id).map(|runner| &runner.process);
        let unknown: BTreeSet<&ProcessId> = runners
            .chain(facts::processes(&snapshot.coordination))
            .filter(|process| **process != self.me.process && !self.probes.contains_key(*process))
            .collect();
        unknown.into_iter().cloned().collect()
    }

    fn look_after_own(&mut self, backlog: &Backlog) {
        // One that was taken for dead may find its runs in other hands.
        let lost: Vec<RunId> = self
            .owned
            .iter()
            .filter(|(id, _)| backlog.runs.get(*id).is_none_or(|run| run.owner != self.me.id))
            .map(|(id, _)| id.clone())
            .collect();
        for run in lost {
            self.owned.remove(&run);
            if backlog.runs.contains_key(&run) {
                self.queue.push_back(Advice::Forget(run));
            } else {
                // It has ended as far as anybody is concerned; if something of it lives, nobody else would ever end it.
                self.queue.extend([Advice::Kill(run.clone()), Advice::Acknowledge(run)]);
            }
        }
        // What it owns and does not know of: a claim whose answer was lost.
        for run in backlog.runs.values().filter(|run| run.owner == self.me.id) {
            if let Some(task) = backlog.tasks.get(&run.task).filter(|_| !self.owned.contains_key(&run.id)) {
                let work = Work { run: run.clone(), task: task.clone() };
                self.owned.insert(run.id.clone(), OwnedRun::new(work.clone()));
                self.queue.push_back(Advice::Recover(Box::new(work)));
            }
        }
    }

    /// The live runs that nobody looks after.
    fn orphans(&self, backlog: &Backlog) -> Vec<Work> {
        let here = backlog.runs.values().filter(|run| run.is_within_reach_of(&self.me));
        let orphans = here.filter(|run| self.is_orphan(run, backlog));
        let meant = orphans.filter(|run| self.only.as_ref().is_none_or(|only| *only == run.id));
        let open = meant.filter(|run| !self.refused.contains(&run.id));
        open.filter_map(|run| Some(Work { run: run.clone(), task: backlog.tasks.get(&run.task)?.clone() })).collect()
    }

    /// The runs whose machine has been silent for too long, unless it can be found out from here what became of them.
    fn lost(&self, backlog: &Backlog, now: &Now) -> Vec<Work> {
        let others = backlog.runs.values().filter(|run| run.owner != self.me.id && run.is_lost(now));
        let lost = others.filter(|run| !run.is_within_reach_of(&self.me) || !self.is_orphan(run, backlog));
        let meant = lost.filter(|run| self.only.as_ref().is_none_or(|only| *only == run.id));
        meant.filter_map(|run| Some(Work { run: run.clone(), task: backlog.tasks.get(&run.task)?.clone() })).collect()
    }

    fn is_orphan(&self, run: &Run, backlog: &Backlog) -> bool {
        let is_gone = match backlog.runners.get(&run.owner) {
            None => true,
            Some(runner) => matches!(self.probes.get(&runner.process), Some(Liveness::Dead | Liveness::OtherBoot)),
        };
        run.owner != self.me.id && is_gone
    }

    /// The runners that are dead, or silent for too long, and have left nothing behind.
    fn gone_runners(&self, backlog: &Backlog, now: &Now) -> Vec<RunnerId> {
        if self.only.is_some() {
            return Vec::new();
        }
        let is_dead = |runner: &&Runner| matches!(self.probes.get(&runner.process), Some(Liveness::Dead | Liveness::OtherBoot));
        let has_runs = |runner: &&Runner| backlog.runs.values().any(|run| run.owner == runner.id);
        let others = backlog.runners.values().filter(|runner| runner.id != self.me.id && runner.process != self.me.process);
        let gone = others.filter(|runner| is_dead(runner) || runner.is_silent(now));
        gone.filter(|runner| !has_runs(runner)).map(|runner| runner.id.clone()).collect()
    }

    /// Takes what has ended as reported: that is done together with the claim.
    fn assume_ended(&self, snapshot: &mut Snapshot) {
        for (id, owned) in self.owned.iter().filter(|(_, owned)| matches!(owned.phase, Phase::Ended(_))) {
            snapshot.backlog.runs.remove(id);
            snapshot.backlog.tasks.remove(&owned.work.task.id);
            let holder = id.holder();
            for lock in snapshot.coordination.locks.values_mut() {
                if matches!(&lock.state, banksman_core::resource::lock::State::Held(grant) if grant.claim.holder == holder) {
                    lock.state = banksman_core::resource::lock::State::Free;
                }
            }
            snapshot.coordination.semaphores.values_mut().for_each(|semaphore| drop(semaphore.holders.remove(&holder)));
        }
    }

    fn choose(&mut self, snapshot: &Snapshot, now: &Now) -> Choice {
        let room = self.room();
        let limit = facts::root_limit(&snapshot.backlog);
        let mut ready: Vec<&Task> = snapshot.backlog.tasks.values().filter(|task| self.may_take(task, snapshot.lease)).collect();
        ready.sort_by_key(|task| roots::order(task, limit));
        let mut choice = Choice::default();
        let under_way = snapshot.backlog.tasks.values().filter(|task| roots::is_under_way(task)).count();
        // A root that has just ended may go on, and came before those that wait: it keeps its place until that is known.
        let ended = self.owned.values().filter(|owned| matches!(owned.phase, Phase::Ended(_)));
        let ended = ended.filter(|owned| owned.work.task.spec.parent.is_none()).count();
        let mut places = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(under_way + ended);
        // What the first ones take is not there for those behind them.
        let mut coordination = snapshot.coordination.clone();
        for task in ready {
            let begins = limit > 0 && task.spec.parent.is_none() && !roots::is_under_way(task);
            // A pipeline has no run of its own, and needs no room for one.
            let runner = (!task.has_phases()).then_some(&self.me.id);
            match facts::admit(task, runner, &coordination, &snapshot.backlog, now) {
                // The places that are left go to the first ones.
                Admission::Run if begins && places == 0 => {}
                Admission::Run if task.has_phases() => {
                    choice.beginnings.push(self.beginning(task));
                    places -= usize::from(begins);
                    let first = if choice.candidates.len() < room { self.first_phase(task) } else { None };
                    let taken = |first: &Candidate| occupy(first, &coordination, &snapshot.backlog, now.clone());
                    let draft = match first.as_ref().and_then(taken) {
                        Some((draft, _)) => {
                            choice.candidates.extend(first);
                            draft
                        }
                        // Others wait for it, or for room.
                        None => {
                            let holder = HolderId::new(task.id.as_str()).expect("an id is short and plain");
                            let mut draft = Draft::new(&coordination, now.clone());
                            for need in task.spec.needs_to_begin(limit > 0) {
                                draft.handle(take(need, holder.clone(), Vec::new()));
                            }
                            draft
                        }
                    };
                    coordination = draft.coordination();
                }
                Admission::Run if choice.candidates.len() < room => {
                    let Some(run) = self.fresh_runs.pop() else { break };
                    let (section, needs) = (task.spec.section.clone(), task.spec.needs.clone());
                    let (is_guarded, asks) = (task.spec.guarded, asks(task, &snapshot.backlog));
                    let candidate = Candidate { task: task.id.clone(), run, section, needs, is_guarded, asks };
                    if let Some((draft, _)) = occupy(&candidate, &coordination, &snapshot.backlog, now.clone()) {
                        coordination = draft.coordination();
                        choice.candidates.push(candidate);
                        places -= usize::from(begins);
                    }
                }
                // Who comes after it must not take its place among the roots.
                Admission::Run => places -= usize::from(begins),
                Admission::Blocked(reasons) => {
                    let is_next = begins && matches!(&reasons[..], [Reason::NoSlot { .. }]);
                    places = places.saturating_sub(usize::from(is_next));
                    choice.blocked.push(reasons);
                }
            }
        }
        choice
    }

    fn finishes(&self) -> Vec<RunRequest> {
        let ended = self.owned.values().filter_map(|owned| match &owned.phase {
            Phase::Ended(ending) => Some((owned, ending)),
            Phase::Live | Phase::Killing => None,
        });
        let finish = |(owned, ending): (&OwnedRun, &Ended)| {
            let (runner, what, watch) = (self.me.id.clone(), Box::new(owned.work.clone()), self.options.watch);
            let marker = self.marker(&owned.work.task)?;
            Some(RunRequest::Finish { runner, what, ending: ending.clone(), marker, watch })
        };
        ended.filter_map(finish).collect()
    }

    /// Removes the claims of those who died while they waited, each once: what was reserved for them is free then.
    fn dead_claims(&mut self, coordination: &Coordination, now: &Now) -> Vec<Request> {
        let seen = self.seen();
        let mut over: Vec<&WorkClaim> = coordination.claims.values().filter(|claim| claim.is_over(now)).collect();
        over.retain(|claim| self.only.is_none() && self.dropped_claims.insert(claim.ticket));
        let drop = |claim: &WorkClaim| {
            let resources = claim.parts.iter().map(|part| part.resource.clone()).collect();
            Request::Task(TaskRequest::Leave { ticket: claim.ticket, resources, seen: Some(seen.clone()) })
        };
        over.into_iter().map(drop).collect()
    }

    fn what_to_wait_for(&self, snapshot: &Snapshot, blocked: &[Vec<Reason>]) -> Rest {
        let alive = |process: &&ProcessId| self.probes.get(*process) == Some(&Liveness::Alive);
        let runners = snapshot.backlog.runners.values().filter(|runner| runner.id != self.me.id).map(|runner| &runner.process);
        // Whoever was seen alive, also in a line or with an offer, is not looked at again: its death must be heard of.
        let others = facts::processes(&snapshot.coordination);
        let watch: BTreeSet<&ProcessId> =
            runners.chain(others).filter(|process| **process != self.me.process).filter(alive).collect();
        let deadline = blocked.iter().flatten().flat_map(Reason::holders).filter_map(|holding| holding.until).min();
        // One that waits for slots that do not exist waits for a person. So does who waits for the place of pipelines whose phases
        // do: they are among the blocked.
        let phases = snapshot.backlog.tasks.values().filter(|task| task.spec.phase().is_some());
        let waiting: BTreeSet<_> =
            phases.filter(|task| self.may_take(task, snapshot.lease)).filter_map(|task| task.spec.parent.as_ref()).collect();
        let hopeless = |reasons: &Vec<Reason>| {
            let never = |reason: &Reason| match reason {
                Reason::Undefined { .. } => true,
                Reason::Slots { wanted, capacity, .. } => wanted > capacity,
                Reason::NoRoot { roots, .. } => roots.iter().all(|(id, ..)| waiting.contains(id)),
                _ => false,
            };
            reasons.iter().any(never)
        };
        let idle = match &self.only {
            // If nobody looks after it, and it cannot be done from here, there is nothing to wait for.
            // A person was asked whether it may be ended, and nobody else can tell.
            Some(only) if open_question(only, &snapshot.backlog).is_some() => true,
            Some(only) => snapshot.backlog.runs.get(only).is_none_or(|run| {
                let is_elsewhere = !run.is_within_reach_of(&self.me) || self.refused.contains(only);
                // One with a lease ends by time, at the latest.
                is_elsewhere && run.lease.is_none() && self.is_orphan(run, &snapshot.backlog)
            }),
            None => {
                let is_waiting =
                    Dispatcher::is_waiting(snapshot) || Dispatcher::awaits_guards(snapshot) || self.crew_waits(snapshot);
                let is_unproven = |run: &RunId| self.owned.get(run).is_some_and(|owned| owned.unproven);
                let is_over = snapshot.backlog.runs.keys().all(is_unproven) && blocked.iter().all(hopeless) && !is_waiting;
                // What it cannot start now it did not even look at.
                is_over && self.shortage.is_none()
            }
        };
        let slow = snapshot.lease + self.options.poll;
        let ends = snapshot.backlog.runs.values().filter(|run| run.owner != self.me.id).filter_map(|run| run.lease.as_ref());
        let lost = ends.map(|lease| lease.end() + self.patience()).filter(|end| *end > snapshot.lease).min();
        let due = [self.next_due(snapshot), Dispatcher::next_pipeline(snapshot), self.crew_due(snapshot)];
        let due = due.into_iter().flatten().min().map(|due| Lease(due.0 - 1));
        let until =
            deadline.into_iter().chain(lost).chain(due).fold(slow, |until, deadline| until.min(deadline + Span::from_ms(1)));
        Rest { watch: watch.into_iter().cloned().collect(), until, idle }
    }
}

/// What the guards of a phase ask the store when it is claimed.
fn asks(task: &Task, backlog: &Backlog) -> Wants {
    let pipeline = task.spec.parent.as_ref().filter(|_| task.spec.guarded).and_then(|host| backlog.pipelines.get(host));
    pipeline.map(asked_at_claim).unwrap_or_default()
}

#[derive(Default)]
struct Choice {
    candidates: Vec<Candidate>,
    /// The pipelines that may begin.
    beginnings: Vec<Request>,
    blocked: Vec<Vec<Reason>>,
}
