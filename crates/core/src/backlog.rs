//! The rows around tasks: sections, dependencies, runs, runners, and outbox commands on their way out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agent::limit::AccountLimit;
use crate::agent::spend::DaySpend;
use crate::agent::{AgentEnd, RunAgent};
use crate::decision::Decision;
use crate::ids::{
    DecisionId, Epoch, HolderId, ImportId, LandingId, Name, RunId, RunnerId, SectionId, Seq, TaskId, Ticket, Title,
};
use crate::import::Import;
use crate::landing::{Entry, Target};
use crate::pause::Pause;
use crate::pipeline::Pipeline;
use crate::process::ProcessId;
use crate::resource::grant::Address;
use crate::step::{Now, OutboxCommand};
use crate::task::dependencies;
use crate::task::limits::Limits;
use crate::task::{Need, RetryReason, RunEnd, Status, Task};
use crate::time::{Lease, Span, Stamp, Wall};
use crate::workspace::Workspace;

/// Tasks and all that belongs to them, or the part of it that one decision needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backlog {
    /// The sections.
    pub sections: BTreeMap<SectionId, Section>,
    /// The tasks.
    pub tasks: BTreeMap<TaskId, Task>,
    /// What each of these tasks depends on.
    pub edges: BTreeMap<TaskId, Vec<Edge>>,
    /// The runs.
    pub runs: BTreeMap<RunId, Run>,
    /// The runners.
    pub runners: BTreeMap<RunnerId, Runner>,
    /// What must be done outside, oldest first.
    pub outbox: BTreeMap<Seq, OutboxEntry>,
    /// The questions for people.
    pub decisions: BTreeMap<DecisionId, Decision>,
    /// Whether there is something new to be said of the whole.
    pub totals: BacklogTotals,
    /// The pipelines, each under the id of its task.
    pub pipelines: BTreeMap<TaskId, Pipeline>,
    /// The workspaces, each under the id of its owner.
    pub workspaces: BTreeMap<TaskId, Workspace>,
    /// The imports that are not finished.
    pub imports: BTreeMap<ImportId, Import>,
    /// Claims that ended against the will of their holders, who were not told yet.
    pub lost_claims: BTreeMap<(TaskId, HolderId), LostClaim>,
    /// The tasks that are added as part of an import. It is for the row alone, and read back only with the tasks of an import
    /// that is dropped.
    pub imported: BTreeMap<TaskId, ImportId>,
    /// The entries of merge queues.
    pub landings: BTreeMap<LandingId, Entry>,
    /// The branches that they land on.
    pub landing_targets: BTreeMap<Name, Target>,
    /// What agents have used and cost, by day and agent.
    pub spend: BTreeMap<(i64, Name), DaySpend>,
    /// The limits of accounts that were reached, each under the name of its resource.
    pub account_limits: BTreeMap<Name, AccountLimit>,
    /// How much may be under way; `None` until the first runner, or a person, has set it. It is read with every row.
    pub limits: Option<Limits>,
    /// Why nothing is started, if a person wants that. It is read with every row.
    pub pause: Option<Pause>,
}

/// A claim that ended against the will of its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostClaim {
    /// On which task.
    pub task: TaskId,
    /// Whose.
    pub holder: HolderId,
    /// The grant of the task's lock.
    pub epoch: Epoch,
    /// How it was lost.
    pub reason: Box<str>,
    /// When.
    pub at: Wall,
}

/// What is known of the backlog as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BacklogTotals {
    /// When it was last said that there is nothing left to do: the number of that event.
    pub finished_at: Seq,
    /// The last run that began.
    pub last_run: Epoch,
    /// How many tasks stand how, as far as they were counted.
    pub counts: BTreeMap<Status, u64>,
    /// How many items of workers are dead, likewise.
    pub dead: u64,
}

/// An ordered group of tasks. The baseline of the log keeps it in its serialized form: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Which one.
    #[serde(skip_serializing)]
    pub id: SectionId,
    /// What people call it.
    pub name: Title,
    /// Whether one runner at a time works in it.
    pub exclusive: bool,
    /// Its place: the number of the event that added it.
    pub position: Seq,
}

/// A dependency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// The task that must be completed first.
    pub on: TaskId,
    /// Whether it is enough that it is over, however it ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_failed: bool,
}

/// One attempt at a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Which one.
    pub id: RunId,
    /// At which task.
    pub task: TaskId,
    /// Counted from 0.
    pub attempt: u32,
    /// Its fencing number, fixed for the run.
    pub epoch: Epoch,
    /// The runner that looks after it.
    pub owner: RunnerId,
    /// Rises with every change of the owner.
    pub owner_epoch: Epoch,
    /// What it holds.
    pub holds: Vec<Hold>,
    /// The agent that does it, if its task is for one.
    pub agent: Option<RunAgent>,
    /// Its processes, once it is known that they were started.
    pub session: Option<Session>,
    /// The machine that it runs on.
    pub host: Box<str>,
    /// The boot of that machine: none of its processes outlives it.
    pub boot: Box<str>,
    /// Since when.
    pub started: Stamp,
    /// Until when nobody else may take it for lost, while it lives.
    pub lease: Option<RunLease>,
    /// How and when it ended.
    pub ended: Option<RunEndRecord>,
}

/// What a runner has promised where others may not be able to see whether it lives, as on another machine: it renews,
/// and a session that was not renewed for two thirds of `ttl` is ended by its own keeper, before `ttl` is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// After such a silence its runs are lost.
    pub ttl: Span,
    /// The folder on its machine where the records of its runs are. Only who has the same can adopt them.
    pub folder: Box<str>,
}

/// How long a live run is safe from being taken for lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLease {
    /// When its runner was last heard of.
    pub renewed: Lease,
    /// What was promised then.
    pub terms: Terms,
}

/// What a run holds while it lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// A lock or slots.
    pub need: Need,
    /// The grant.
    pub epoch: Epoch,
}

/// The processes of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The process that keeps it.
    pub keeper: i32,
    /// The first process of the tree.
    pub child: i32,
}

/// How and when a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEndRecord {
    /// How.
    pub ending: RunEnd,
    /// When, for people.
    pub at: Wall,
    /// What is to be said beside it, such as output that could not be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Box<str>>,
    /// Why another run followed, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setback: Option<RetryReason>,
    /// What the run said of its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<str>>,
    /// How long its command ran, by the clock of its keeper, if it ended by itself before anybody asked it to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Span>,
    /// What its agent program came to, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<AgentEnd>>,
    /// What it has asked a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<DecisionId>,
    /// How much agents may cost in a day, in millionths of a dollar, as the runner that reports the end knows it.
    #[serde(skip)]
    pub budget_micros: Option<u64>,
    /// The last that it has printed, if it is a phase of a pipeline. It is not kept: the log has it.
    #[serde(skip)]
    pub tail: Option<Box<str>>,
}

/// A process that claims tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    /// Which one.
    pub id: RunnerId,
    /// Its process.
    pub process: ProcessId,
    /// Where to wake it.
    pub address: Address,
    /// The sections it works in; all if empty.
    pub sections: Vec<SectionId>,
    /// How many runs it starts at most.
    pub max_runs: Option<u32>,
    /// Whether it ends when there is nothing left to do.
    pub until_idle: bool,
    /// What it waits for while it sleeps, if it could take tasks.
    pub idle: Option<Idle>,
    /// When it was woken, if it has not called since.
    pub woken: Option<Lease>,
    /// Whether it is the one that is woken for whatever is not a task to take.
    pub has_duty: bool,
    /// Since when it runs.
    pub started: Stamp,
    /// When it was last heard of. Only kept up where it has a lease.
    pub seen: Lease,
    /// Its promise, where its death cannot be seen from everywhere.
    pub terms: Option<Terms>,
    /// What its machine has not enough of to start runs.
    pub shortage: Option<Shortage>,
}

/// A runner that found nothing more to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// How many tasks it could take.
    pub wants: u32,
    /// Who waits for longest is woken first.
    pub ticket: Ticket,
    /// It has seen tasks that only a limit of the project keeps from starting.
    pub is_limited: bool,
}

/// A runner cannot start as many runs as it could have, because its machine has not enough of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// What there is not enough of.
    pub error: Box<str>,
    /// Since when.
    pub since: Stamp,
    /// When it is tried again.
    pub until: Lease,
}

/// An outbox command in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Its number: outbox commands of one subject are done in this order.
    pub seq: Seq,
    /// What is to be done.
    pub command: OutboxCommand,
    /// Who does it; whoever comes first if there is nobody.
    pub executor: Option<RunnerId>,
    /// How often that was tried in vain.
    pub attempts: u32,
    /// Not before then.
    pub due: Lease,
}

/// How often an outbox command is tried.
pub const COMMAND_ATTEMPTS: u32 = 5;

impl Run {
    /// Whether it may have live processes.
    pub fn is_live(&self) -> bool {
        self.ended.is_none()
    }

    /// Whether this runner could find out what became of it, and look after it: it is on the same machine, and keeps its
    /// records in the same folder. Without leases there is one machine only, whatever id its users give it.
    pub fn is_within_reach_of(&self, runner: &Runner) -> bool {
        match (&self.lease, &runner.terms) {
            (None, None) => true,
            (None, Some(_)) => self.host == runner.process.host,
            (Some(lease), Some(own)) => self.host == runner.process.host && own.folder == lease.terms.folder,
            (Some(_), None) => false,
        }
    }

    /// Whether its runner has been silent for so long that its session must have been ended by its keeper.
    pub fn is_lost(&self, now: &Now) -> bool {
        self.is_live() && self.lease.as_ref().is_some_and(|lease| now.is_past(lease.end()))
    }

    /// It is heard of. The end of a lease never moves back: a keeper may still go by an earlier, longer promise.
    pub fn renew(&mut self, by: &Runner, now: Lease) {
        let renewed = by.terms.clone().map(|terms| RunLease { renewed: now, terms });
        if renewed.as_ref().is_some_and(|renewed| self.lease.as_ref().is_none_or(|lease| lease.end() <= renewed.end())) {
            self.lease = renewed;
        }
    }
}

impl RunEndRecord {
    /// How it ended, and when, with nothing to be said beside.
    pub fn new(ending: RunEnd, at: Wall, note: Option<Box<str>>) -> RunEndRecord {
        RunEndRecord {
            ending,
            at,
            note,
            setback: None,
            error: None,
            ran: None,
            agent: None,
            asked: None,
            budget_micros: None,
            tail: None,
        }
    }
}

impl OutboxEntry {
    /// One that was not tried yet.
    pub fn new(seq: Seq, command: OutboxCommand, executor: Option<RunnerId>, now: Lease) -> OutboxEntry {
        OutboxEntry { seq, command, executor, attempts: 0, due: now }
    }

    /// Whether it was tried so often that only a person can say how to go on.
    pub fn is_dead(&self) -> bool {
        self.attempts >= COMMAND_ATTEMPTS
    }

    /// It was tried in vain: the next time comes later and later.
    pub fn failed(&mut self, now: Lease) {
        self.attempts += 1;
        self.due = now + Span::from_secs(1 << self.attempts.min(6).saturating_sub(1));
    }
}

impl BacklogTotals {
    /// Whether something was done since people were told that there is nothing left to do.
    pub fn has_run_since(&self) -> bool {
        self.last_run > Epoch::from(self.finished_at)
    }
}

impl RunLease {
    /// Until when it lasts.
    pub fn end(&self) -> Lease {
        self.renewed + self.terms.ttl
    }
}

impl Runner {
    /// Whether it has a lease and was silent for longer. It may live, but none of its sessions does.
    pub fn is_silent(&self, now: &Now) -> bool {
        self.terms.as_ref().is_some_and(|terms| now.is_past(self.seen + terms.ttl))
    }
}

impl Backlog {
    /// The live runs of a section.
    pub fn live_in<'a>(&'a self, section: &'a SectionId) -> impl Iterator<Item = &'a Run> {
        let is_in = move |run: &&Run| self.tasks.get(&run.task).is_some_and(|task| task.spec.section.as_ref() == Some(section));
        self.runs.values().filter(|run| run.is_live()).filter(is_in)
    }

    /// How many dependencies hold a task back. They must be among the rows.
    pub fn unmet(&self, id: &TaskId) -> u32 {
        let status = |on: &TaskId| self.tasks.get(on).map(Task::status);
        let edges = self.edges.get(id).into_iter().flatten();
        let unmet = edges.filter(|edge| !status(&edge.on).is_some_and(|status| dependencies::is_met(status, edge.allow_failed)));
        u32::try_from(unmet.count()).unwrap_or(u32::MAX)
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        self.tasks.values().for_each(Task::check);
        self.decisions.values().for_each(Decision::check);
        self.pipelines.values().for_each(Pipeline::check);
        for run in self.runs.values().filter(|run| run.is_live()) {
            if let Some(task) = self.tasks.get(&run.task) {
                let live = task.live().map(|live| (&live.run, live.epoch));
                assert_eq!(live, Some((&run.id, run.epoch)), "run {} lives, but task {} does not know it", run.id, task.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessId;

    fn runner(host: &str, terms: Option<(i64, &str)>) -> Runner {
        Runner {
            id: RunnerId::new("n-1").unwrap(),
            process: ProcessId { host: host.into(), boot: "boot".into(), pid_ns: 1, pid: 1, start: 1 },
            address: Address("nowhere".into()),
            sections: Vec::new(),
            max_runs: None,
            until_idle: false,
            idle: None,
            woken: None,
            has_duty: false,
            started: Stamp::default(),
            seen: Lease(1_000),
            terms: terms.map(|(ttl, folder)| Terms { ttl: Span::from_ms(ttl), folder: folder.into() }),
            shortage: None,
        }
    }

    fn run(owner: &Runner, now: i64) -> Run {
        let mut run = Run {
            id: RunId::new("r-1").unwrap(),
            task: TaskId::new("t-1").unwrap(),
            attempt: 0,
            epoch: Epoch(1),
            owner: owner.id.clone(),
            owner_epoch: Epoch(1),
            holds: Vec::new(),
            agent: None,
            session: None,
            host: owner.process.host.clone(),
            boot: owner.process.boot.clone(),
            started: Stamp::default(),
            lease: None,
            ended: None,
        };
        run.renew(owner, Lease(now));
        run
    }

    fn at(lease: i64, patience: i64) -> Now {
        Now { lease: Lease(lease), patience: Span::from_ms(patience), ..Now::default() }
    }

    #[test]
    fn a_run_is_lost_after_a_whole_lease_and_the_patience_of_who_was_stalled() {
        let owner = runner("here", Some((300, "/a")));
        let mut run = run(&owner, 1_000);
        assert!(!run.is_lost(&at(1_299, 0)) && run.is_lost(&at(1_300, 0)));
        assert!(!run.is_lost(&at(1_399, 100)) && run.is_lost(&at(1_400, 100)));
        run.renew(&owner, Lease(1_200));
        assert!(!run.is_lost(&at(1_499, 0)) && run.is_lost(&at(1_500, 0)));
        run.ended = Some(RunEndRecord::new(RunEnd::Lost, Wall(0), None));
        assert!(!run.is_lost(&at(9_999, 0)));
    }

    #[test]
    fn without_a_promise_nothing_is_lost_by_time() {
        let owner = runner("here", None);
        assert_eq!(run(&owner, 1_000).lease, None);
        assert!(!run(&owner, 1_000).is_lost(&at(i64::MAX, 0)));
        assert!(!owner.is_silent(&at(i64::MAX, 0)));
    }

    #[test]
    fn the_longer_promise_is_kept() {
        let mut run = run(&runner("here", Some((60_000, "/a"))), 1_000);
        let hasty = runner("here", Some((3_000, "/a")));
        run.renew(&hasty, Lease(2_000));
        assert!(!run.is_lost(&at(60_999, 0)), "its keeper may not have heard of the shorter one");
        run.renew(&hasty, Lease(60_000));
        assert!(run.is_lost(&at(63_000, 0)));
    }

    #[test]
    fn a_runner_is_silent_when_its_lease_is_over() {
        let runner = runner("here", Some((300, "/a")));
        assert!(!runner.is_silent(&at(1_299, 0)) && runner.is_silent(&at(1_300, 0)) && !runner.is_silent(&at(1_300, 1)));
    }

    #[test]
    fn only_who_shares_machine_and_folder_can_look_after_a_run() {
        let leased = run(&runner("here", Some((300, "/a"))), 1_000);
        assert!(leased.is_within_reach_of(&runner("here", Some((900, "/a")))));
        assert!(!leased.is_within_reach_of(&runner("here", Some((300, "/b")))));
        assert!(!leased.is_within_reach_of(&runner("there", Some((300, "/a")))));
        assert!(!leased.is_within_reach_of(&runner("here", None)));
        let plain = run(&runner("here", None), 1_000);
        assert!(plain.is_within_reach_of(&runner("here", None)));
        assert!(plain.is_within_reach_of(&runner("another home", None)), "all share one kernel");
        assert!(!plain.is_within_reach_of(&runner("there", Some((300, "/a")))), "it was copied to where machines differ");
    }
}
