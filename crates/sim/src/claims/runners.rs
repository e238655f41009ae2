//! Runners, as far as claims are concerned: they claim, finish and adopt runs, and remove what the dead have left.

use banksman_core::backlog::{Ended, Run, Runner as Row};
use banksman_core::resource::grant::Address;
use banksman_core::task::retry::Marker;
use banksman_core::task::{Ending, OnExhausted, State, Watch};
use banksman_core::{Lease, RunId, RunnerId, Span, Stamp, Task, TaskId, Wall};
use banksman_engine::{Candidate, Reply, Request, RunOutcome, RunRequest, TaskRequest, Work};
use banksman_store::Snapshot;

use super::world::{CommitOutcome, NO_LIMITS, World, process};
use crate::clock::Ms;

/// How often a runner looks by itself.
const LOOK: Ms = 700;

/// The most runs of one runner.
const ROOM: usize = 3;

/// A process that claims tasks.
pub(super) struct Runner {
    pub(super) pid: i32,
    pub(super) id: RunnerId,
    enlisted: bool,
    pub(super) next: Ms,
    pub(super) woken: bool,
}

impl Runner {
    pub(super) fn new(pid: i32, now: Ms) -> Runner {
        let id = RunnerId::new(&format!("n{pid}")).expect("a plain word");
        Runner { pid, id, enlisted: false, next: now, woken: false }
    }

    fn row(&self) -> Row {
        Row {
            id: self.id.clone(),
            process: process(self.pid),
            address: Address(self.pid.to_string().into()),
            sections: Vec::new(),
            max_runs: None,
            watching: Vec::new(),
            started: Stamp::default(),
            seen: Lease(0),
            terms: None,
            shortage: None,
        }
    }
}

/// The task of a run, as somebody sees it who reads the rows.
pub(super) fn work(rows: &Snapshot, id: &RunId) -> Option<Work> {
    let run = rows.backlog.runs.get(id)?.clone();
    Some(Work { task: rows.backlog.tasks.get(&run.task)?.clone(), run })
}

pub(super) fn finish(runner: RunnerId, what: Work) -> RunRequest {
    let watch = Watch { timeout: Span::from_secs(60), max_recoveries: 3, on_exhausted: OnExhausted::Fail };
    let ending = Ended::new(Ending::Exited(0), Wall(0), None);
    RunRequest::Finish { runner, what: Box::new(what), ending, marker: Marker::Absent, watch }
}

pub(super) fn candidate(task: &Task, run: RunId) -> Candidate {
    let (section, needs) = (task.spec.section.clone(), task.spec.needs.clone());
    Candidate { task: task.id.clone(), run, section, needs, is_guarded: false, asks: Default::default() }
}

impl World<'_> {
    /// A runner looks, and does what is to be done in one transaction.
    pub(super) fn drive(&mut self, index: usize) {
        let now = self.clock.now();
        let runner = &mut self.runners[index];
        (runner.next, runner.woken) = (now + LOOK, false);
        let Some(rows) = self.rows() else { return };
        let requests = self.requests(index, &rows);
        if requests.is_empty() {
            return;
        }
        match self.commit(requests) {
            (CommitOutcome::Committed, replies) => {
                self.runners[index].enlisted = true;
                // Who has done something looks again at once.
                let is_nothing =
                    |reply: &Reply| matches!(reply, Reply::Run(RunOutcome::Claimed { started, .. }) if started.is_empty());
                let next = if replies.iter().all(is_nothing) { now + LOOK } else { now + 1 };
                replies.into_iter().for_each(|reply| self.start(reply));
                self.runners[index].next = next;
            }
            (CommitOutcome::Lost, _) => self.runners[index].next = now + 1,
            (CommitOutcome::Unknown, _) => self.kill(self.runners[index].pid),
        }
    }

    fn start(&mut self, reply: Reply) {
        let Reply::Run(RunOutcome::Claimed { started, .. }) = reply else { return };
        for work in started {
            self.tally.count("runs");
            let until = self.clock.now() + self.random.between(20, 2_500);
            self.sessions.insert(work.run.id, until);
        }
    }

    fn requests(&mut self, index: usize, rows: &Snapshot) -> Vec<Request> {
        let runner = self.runners[index].id.clone();
        if !self.runners[index].enlisted {
            let row = Box::new(self.runners[index].row());
            return vec![RunRequest::Enlist { runner: row, limits: NO_LIMITS }.into()];
        }
        let orphan = rows.backlog.runs.values().find(|run| run.is_live() && self.is_gone(&run.owner));
        if let Some(what) = orphan.and_then(|run| work(rows, &run.id)) {
            self.tally.count("adoptions");
            return vec![RunRequest::Adopt { runner, what: Box::new(what), seen: self.seen() }.into()];
        }
        let mut requests = self.tidy_up(rows);
        let own: Vec<&Run> = rows.backlog.runs.values().filter(|run| run.is_live() && run.owner == runner).collect();
        let has_ended = |run: &&&Run| self.sessions.get(&run.id).is_none_or(|until| *until <= self.clock.now());
        if let Some(what) = own.iter().find(has_ended).and_then(|run| work(rows, &run.id)) {
            requests.push(finish(runner.clone(), what).into());
        }
        if self.faults && own.len() < ROOM {
            requests.extend(self.claim(runner, rows));
        }
        requests
    }

    pub(super) fn is_gone(&self, runner: &RunnerId) -> bool {
        !self.runners.iter().any(|one| one.id == *runner)
    }

    /// Removes what the dead have left: claims that wait, claims whose time is up, rows of runners.
    fn tidy_up(&self, rows: &Snapshot) -> Vec<Request> {
        let is_dead = |claim: &&banksman_core::WorkClaim| claim.waits().is_some_and(|terms| !self.lives(&terms.standing.process));
        let leave = |claim: &banksman_core::WorkClaim| {
            let resources = claim.parts.iter().map(|part| part.resource.clone()).collect();
            Request::Task(TaskRequest::Leave { ticket: claim.ticket, resources, seen: Some(self.seen()) })
        };
        let mut requests: Vec<Request> = rows.coordination.claims.values().filter(is_dead).map(leave).collect();
        let is_due = |state: &State| matches!(state, State::Manual { until: Some(until), .. } if *until <= rows.lease);
        let left: Vec<TaskId> =
            rows.backlog.tasks.values().filter(|task| is_due(&task.state)).map(|task| task.id.clone()).collect();
        if !left.is_empty() {
            requests.push(RunRequest::Ripen { rested: Vec::new(), left, seen: self.seen() }.into());
        }
        let gone = rows.backlog.runners.keys().filter(|runner| self.is_gone(runner));
        requests.extend(gone.map(|runner| RunRequest::Retire { runner: runner.clone(), seen: self.seen() }.into()));
        requests
    }

    /// One task that is ready, if there is one.
    fn claim(&mut self, runner: RunnerId, rows: &Snapshot) -> Option<Request> {
        let ready: Vec<&Task> = rows.backlog.tasks.values().filter(|task| task.state == State::Pending).collect();
        if ready.is_empty() {
            return None;
        }
        let task = *self.random.pick(&ready);
        let candidates = vec![candidate(task, self.new_run())];
        Some(RunRequest::Claim { runner, room: 1, candidates, seen: self.seen() }.into())
    }

    pub(super) fn new_run(&mut self) -> RunId {
        self.run_number += 1;
        RunId::new(&format!("r{}", self.run_number)).expect("a plain word")
    }
}
