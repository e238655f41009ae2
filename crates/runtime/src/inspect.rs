//! Reads a project without changing anything: why a task is where it is, and the state of the backlog.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::Duration;

use banksman_adapters::host::Host;
use banksman_adapters::keeper::{self, Found, Record, Silence};
use banksman_core::agent::limit::{AccountLimit, State};
use banksman_core::agent::spend::DaySpend;
use banksman_core::backlog::{Backlog, Run, Runner};
use banksman_core::landing::{Entry, LandingQueue};
use banksman_core::{Limits, Liveness, Name, Pause, ProcessId, RunId, Stamp, Status, Task, TaskId, Title, Wall};
use banksman_engine::landing_queue;
use banksman_engine::why::{self, Answer, Attended, Life, Situation, Why};
use banksman_store::{Counts, Hosted, Key, Reader, Snapshot, StoreError};

use crate::client::Client;
use crate::guards;
use crate::landing;
use crate::project::Project;
use crate::sessions::{Sessions, ended, local_day};

/// How many failures, and how many tasks that a person has stopped, are listed.
const FAILURES: i64 = 3;
const STOPPED: i64 = 20;

/// How long a keeper may take to answer before it is reported as silent.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How many keepers are asked in parallel.
const ASKED_AT_ONCE: usize = 16;

/// How many pipelines are listed.
const PIPELINES: i64 = 10;

/// How many unfinished pipelines are read when nothing is running.
const LEFT: i64 = 100;

/// The state of the backlog.
#[derive(Debug, Clone)]
pub struct Overview {
    /// The moment of this state.
    pub at: Stamp,
    /// How many tasks there are of each kind.
    pub counts: Counts,
    /// The live runs, oldest first.
    pub runs: Vec<LiveRun>,
    /// The runners, including killed ones that are not removed yet.
    pub runners: Vec<Manned>,
    /// How many run slots are taken.
    pub used: u64,
    /// How many runs may live, and how many roots may be in progress.
    pub limits: Limits,
    /// How many ready tasks wait only for capacity: a run slot, or a runner with room for another run.
    pub queued: u64,
    /// How many roots are in progress.
    pub roots: usize,
    /// How many decisions wait for an answer.
    pub decisions: usize,
    /// The questions about tasks whose agents were not started because something is not trusted.
    pub untrusted: Vec<Box<str>>,
    pub landings: Vec<LandingQueue>,
    /// Why their commits cannot be checked here, if so.
    pub uncheckable: Option<Box<str>>,
    /// The limits of accounts that keep tasks from starting.
    pub account_limits: Vec<AccountLimit>,
    /// What agents have used and cost today.
    pub spend: Vec<DaySpend>,
    /// The first pipelines that are not over, each with its task.
    pub pipelines: Vec<Hosted>,
    /// How many pipelines have which status.
    pub pipeline_counts: BTreeMap<String, u64>,
    /// The most recently failed tasks, newest first.
    pub failures: Vec<Task>,
    /// How many pending tasks depend on a task that will not complete by itself, and one of them.
    pub held: (u64, Option<TaskId>),
    /// Why nothing is started.
    pub pause: Option<Pause>,
    /// The first tasks that a person has stopped.
    pub stopped: Vec<Task>,
}

#[derive(Debug, Clone)]
pub struct LiveRun {
    pub run: Run,
    /// The state of its runner.
    pub attended: Attended,
    /// The title of its task.
    pub title: Title,
}

#[derive(Debug, Clone)]
pub struct Manned {
    pub runner: Runner,
    pub life: Life,
    /// How many live runs it owns.
    pub runs: usize,
}

/// Why a task is where it is; `None` if there is no such task.
pub fn why(reader: &mut Reader, project: &Project, task: &TaskId) -> Result<Option<Why>, StoreError> {
    let host = project.host();
    let rows = why::read(&mut reader.view(), task, project.config().limits())?;
    let Some(why::Rows { snapshot, before }) = rows else { return Ok(None) };
    let probes = probe(&snapshot, host);
    let issues = guards::issues(reader, why::issues(&snapshot.backlog));
    let mut why = Situation::new(&snapshot, &probes).issues(issues).why(task, &before);
    if let Some(why) = &mut why {
        ask_keeper(&mut why.answer, &Sessions::new(project));
        if let Answer::Landing(place) = &mut why.answer {
            place.uncheckable = place.entry.as_ref().and_then(|entry| uncheckable(project, entry));
        }
    }
    Ok(why)
}

/// Finds out whether the keeper of a run answers. A keeper on another machine has no record here.
fn ask_keeper(answer: &mut Answer, files: &Sessions) {
    match answer {
        Answer::Running { run, .. } | Answer::Stopping { run, .. } => {
            run.silence = keeper::silence(&files.record(&run.id), ANSWER_WITHIN).map(|silence| silence.to_string().into());
            run.ended = ended_alone(run, files);
        }
        Answer::InPhases(phases) => phases.phase.iter_mut().for_each(|(_, answer)| ask_keeper(answer, files)),
        _ => {}
    }
}

/// How many live runs have a keeper on this machine, and the runs whose keeper does not answer, with the reason. All
/// keepers are asked in parallel.
pub fn silent_keepers(reader: &mut Reader, project: &Project) -> Result<(usize, Vec<(Run, Silence)>), StoreError> {
    let snapshot = reader.view().load(&BTreeSet::from([Key::Live]))?;
    let files = Sessions::new(project);
    let has_keeper = |run: &Run| !matches!(files.read_record(&run.id), Ok(Found::Dead(_) | Found::Ended(..)));
    let is_here = |run: &Run| run.is_live() && files.record(&run.id).exists() && has_keeper(run);
    let runs: Vec<Run> = snapshot.tables.backlog.runs.into_values().filter(is_here).collect();
    let ask = |run: &Run| Some((run.clone(), keeper::silence(&files.record(&run.id), ANSWER_WITHIN)?));
    let share = runs.len().div_ceil(ASKED_AT_ONCE).max(1);
    let found = std::thread::scope(|scope| {
        let parts = runs.chunks(share).map(|part| {
            let asked = std::thread::Builder::new().spawn_scoped(scope, || part.iter().filter_map(ask).collect::<Vec<_>>());
            // Without a thread, this one asks.
            asked.map_err(|_| part)
        });
        let parts: Vec<_> = parts.collect();
        parts
            .into_iter()
            .flat_map(|part| match part {
                Ok(asked) => asked.join().unwrap_or_default(),
                Err(part) => part.iter().filter_map(ask).collect(),
            })
            .collect()
    });
    Ok((runs.len(), found))
}

/// The state of a backlog in which nothing continues by itself.
#[derive(Debug)]
pub struct Leftovers {
    /// How many tasks have which status.
    pub counts: Counts,
    /// The most recently failed tasks, newest first.
    pub failures: Vec<Task>,
    /// How many decisions wait for a person.
    pub decisions: usize,
    /// The pipelines that are not over, the first few of them.
    pub pipelines: Vec<Hosted>,
    /// A pending task that depends on one that will not complete by itself.
    pub held: Option<TaskId>,
    /// The first tasks that a person has stopped.
    pub stopped: Vec<Task>,
    /// Why nothing is started.
    pub pause: Option<Pause>,
}

/// The state of the backlog, read over the connection of a client that is about to exit: many clients may exit at the
/// same moment.
pub fn leftovers(client: &Client) -> Result<Leftovers, StoreError> {
    client.view(|view| {
        let counts = view.final_counts()?;
        let has = |status| counts.by_status.get(&status).is_some_and(|count| *count > 0);
        let failures = if has(Status::Failed) { view.last_failed(FAILURES)? } else { Vec::new() };
        let held = if has(Status::Blocked) { view.held_by_ended()?.1 } else { None };
        let is_open = counts.by_status.iter().any(|(status, count)| *count > 0 && !status.is_over());
        let (stopped, pipelines) =
            if is_open { (view.stopped(STOPPED)?, view.open_pipelines(LEFT)?) } else { Default::default() };
        let backlog = view.load(&[Key::OpenDecisions].into())?.tables.backlog;
        let (decisions, pause) = (backlog.decisions.len(), backlog.pause);
        Ok(Leftovers { counts, failures, decisions, pipelines, held, stopped, pause })
    })
}

pub fn overview(reader: &mut Reader, project: &Project) -> Result<Overview, StoreError> {
    let host = project.host();
    let counts = reader.view().counts()?;
    let failures = reader.view().last_failed(FAILURES)?;
    let held = reader.view().held_by_ended()?;
    let stopped = reader.view().stopped(STOPPED)?;
    let (pipelines, pipeline_counts) = (reader.view().open_pipelines(PIPELINES)?, reader.view().pipeline_counts()?);
    let mut keys: BTreeSet<Key> = why::lane_keys(&counts.ready, &Backlog::default());
    let today = local_day(Wall(banksman_adapters::host::wall_ms())).date;
    keys.extend([Key::OpenDecisions, Key::OpenLandings, Key::DueRoots, Key::Spend { since: today }]);
    let snapshot = loop {
        let snapshot = load(reader, project, &keys)?;
        let wanted = why::lane_keys(&counts.ready, &snapshot.backlog);
        if wanted.is_subset(&keys) {
            break snapshot;
        }
        keys.extend(wanted);
    };
    let probes = probe(&snapshot, host);
    let situation = Situation::new(&snapshot, &probes);
    let slots = snapshot.coordination.semaphores.get(&Name::runs());
    let (mut runs, runners) = (live_runs(&snapshot, &situation), manned(&snapshot.backlog, &situation));
    // Only states that can be read without waiting for a keeper.
    let files = Sessions::new(project);
    for live in &mut runs {
        let is_stopped = matches!(files.read_record(&live.run.id), Ok(Found::Live(record)) if keeper::is_stopped(&record));
        live.attended.silence = is_stopped.then(|| Silence::Stopped.to_string().into());
        live.attended.ended = ended_alone(&live.attended, &files);
    }
    let queued = situation.queued(&counts.ready);
    let landings = landing_queues(&snapshot.backlog);
    let uncheckable = landings.iter().flat_map(|queue| queue.entries.values()).find_map(|entry| uncheckable(project, entry));
    Ok(Overview {
        at: snapshot.at(),
        runs,
        runners,
        used: slots.map_or(0, |slots| slots.used(situation.now())),
        limits: limits(&snapshot),
        queued,
        roots: situation.roots().count(),
        decisions: snapshot.backlog.decisions.len(),
        untrusted: untrusted(&snapshot.backlog),
        landings,
        uncheckable,
        account_limits: closed_limits(&snapshot.backlog),
        spend: snapshot.backlog.spend.values().filter(|spend| spend.day == today).cloned().collect(),
        pipelines,
        pipeline_counts,
        failures,
        held,
        pause: snapshot.backlog.pause.clone(),
        stopped,
        counts,
    })
}

fn untrusted(backlog: &Backlog) -> Vec<Box<str>> {
    let open = backlog.decisions.values().filter(|decision| decision.is_open() && decision.question.is_of_trust());
    open.map(|decision| decision.question.text.clone()).collect()
}

/// Why the commit of an entry cannot be checked here, if the entry waits for its check.
fn uncheckable(project: &Project, entry: &Entry) -> Option<Box<str>> {
    let waits = !entry.spec.unchecked && entry.state.is_before_check();
    waits.then(|| landing::uncheckable(project)).flatten().map(|error| error.to_string().into())
}

/// All merge queues that have entries or are paused.
pub fn landing_queues(backlog: &Backlog) -> Vec<LandingQueue> {
    let paused = backlog.landing_targets.values().filter(|target| target.paused.is_some()).map(|target| &target.name);
    let targets: BTreeSet<&Name> = backlog.landings.values().map(|entry| &entry.target).chain(paused).collect();
    targets.into_iter().map(|target| landing_queue(target, backlog)).collect()
}

/// The limits of accounts that are not over.
pub fn closed_limits(backlog: &Backlog) -> Vec<AccountLimit> {
    backlog.account_limits.values().filter(|limit| limit.state != State::Open).cloned().collect()
}

/// Loads rows. A project without limits gets those of its settings: the first runner will write them.
fn load(reader: &mut Reader, project: &Project, keys: &BTreeSet<Key>) -> Result<Snapshot, StoreError> {
    let mut snapshot = reader.view().load(keys)?;
    snapshot.backlog.limits.get_or_insert(project.config().limits());
    Ok(snapshot)
}

fn limits(snapshot: &Snapshot) -> Limits {
    snapshot.backlog.limits.expect("they are filled in when they are read")
}

/// The live runs, oldest first, with the state of their runners.
pub fn sessions(reader: &mut Reader, project: &Project) -> Result<(Stamp, Vec<LiveRun>), StoreError> {
    let snapshot = reader.view().load(&BTreeSet::from([Key::Live, Key::Runners, Key::OpenDecisions]))?;
    let probes = probe(&snapshot, project.host());
    let mut runs = live_runs(&snapshot, &Situation::new(&snapshot, &probes));
    let files = Sessions::new(project);
    runs.iter_mut().for_each(|live| live.attended.ended = ended_alone(&live.attended, &files));
    Ok((snapshot.at(), runs))
}

/// The runs whose session has ended without a runner, and which no living runner will record.
pub fn unrecorded(reader: &mut Reader, project: &Project) -> Result<Vec<RunId>, StoreError> {
    let (_, live) = sessions(reader, project)?;
    let ended = live.into_iter().map(|live| live.attended).filter(Attended::is_unrecorded);
    Ok(ended.map(|run| run.id).collect())
}

/// Descriptors that become readable when a process exits on which the end of a run depends, because that is no event:
/// the runners of live runs, and the keepers of runs without a runner.
pub fn watch_ends(reader: &mut Reader, project: &Project) -> Result<Vec<OwnedFd>, StoreError> {
    let snapshot = reader.view().load(&BTreeSet::from([Key::Live, Key::Runners, Key::OpenDecisions]))?;
    let (host, files) = (project.host(), Sessions::new(project));
    let probes = probe(&snapshot, host);
    let live = live_runs(&snapshot, &Situation::new(&snapshot, &probes));
    Ok(live.iter().filter_map(|live| host.watch(&ends_with(live, &snapshot, &files)?).ok()).collect())
}

/// A blocking run without a runner; no other runner will adopt it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unattended {
    pub run: RunId,
    /// Whether its keeper was killed too, so that nothing reports the end of its session.
    pub is_keeper_dead: bool,
}

/// Descriptors that become readable when a process exits on which the end of one of these runs depends, because that is
/// no event; and the runs without a runner.
pub(crate) fn in_the_way(
    reader: &mut Reader,
    project: &Project,
    runs: &BTreeSet<RunId>,
) -> Result<(Vec<OwnedFd>, Vec<Unattended>), StoreError> {
    let snapshot = reader.view().load(&BTreeSet::from([Key::Live, Key::Runners, Key::OpenDecisions]))?;
    let (host, files) = (project.host(), Sessions::new(project));
    let probes = probe(&snapshot, host);
    let situation = Situation::new(&snapshot, &probes);
    let mut live = live_runs(&snapshot, &situation);
    live.retain(|live| runs.contains(&live.run.id));
    let ends = live.iter().filter_map(|live| host.watch(&ends_with(live, &snapshot, &files)?).ok()).collect();
    let unattended = live.into_iter().filter(|live| live.attended.life == Life::Gone && live.attended.heir.is_none());
    let unattended = unattended.map(|live| {
        let is_keeper_dead = matches!(files.read_record(&live.run.id), Ok(Found::Dead(_)));
        Unattended { run: live.run.id, is_keeper_dead }
    });
    Ok((ends, unattended.collect()))
}

/// The process on whose exit the end of a run may depend, because that is no event: its runner, or its keeper if it has
/// no runner.
fn ends_with(live: &LiveRun, snapshot: &Snapshot, files: &Sessions) -> Option<ProcessId> {
    match snapshot.backlog.runners.get(&live.run.owner) {
        Some(runner) if live.attended.life == Life::Alive => Some(runner.process.clone()),
        _ if live.attended.heir.is_some() => None,
        _ => match files.read_record(&live.run.id) {
            Ok(Found::Live(record)) => Some(keeper_process(&record, &live.run)),
            _ => None,
        },
    }
}

fn keeper_process(record: &Record, run: &Run) -> ProcessId {
    let (pid, start) = (record.keeper_pid, record.keeper_start);
    ProcessId { host: run.host.clone(), boot: record.boot.as_str().into(), pid_ns: record.pid_ns, pid, start }
}

/// How the session of a run without a runner has ended, if its record on this machine has that.
fn ended_alone(run: &Attended, files: &Sessions) -> Option<Box<str>> {
    if run.life != Life::Gone || run.asked.is_some() {
        return None;
    }
    match files.read_record(&run.id) {
        Ok(Found::Ended(_, ending)) => Some(ended(ending).ending.to_string().into()),
        _ => None,
    }
}

fn probe(snapshot: &Snapshot, host: &Host) -> BTreeMap<ProcessId, Liveness> {
    why::processes(snapshot).into_iter().map(|process| (process.clone(), host.probe(&process))).collect()
}

fn live_runs(snapshot: &Snapshot, situation: &Situation<'_>) -> Vec<LiveRun> {
    let backlog = &snapshot.backlog;
    let mut runs: Vec<&Run> = backlog.runs.values().filter(|run| run.is_live()).collect();
    runs.sort_by_key(|run| run.epoch);
    let live = |run: &&Run| {
        let title = backlog.tasks.get(&run.task)?.spec.title.clone();
        Some(LiveRun { run: (*run).clone(), attended: situation.attended(run), title })
    };
    runs.iter().filter_map(live).collect()
}

fn manned(backlog: &Backlog, situation: &Situation<'_>) -> Vec<Manned> {
    // A runner that only waits for the end of a run is not listed.
    let rows = backlog.runners.values().filter(|runner| runner.max_runs != Some(0));
    let mut runners: Vec<Manned> = rows
        .map(|runner| Manned {
            runner: runner.clone(),
            life: situation.life(&runner.id),
            runs: backlog.runs.values().filter(|run| run.is_live() && run.owner == runner.id).count(),
        })
        .collect();
    runners.sort_by_key(|manned| manned.runner.started.lease);
    runners
}
