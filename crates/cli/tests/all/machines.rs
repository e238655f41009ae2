//! Runners on several machines: leases instead of proofs of death. A second directory for the random part of the host id simulates
//! another machine. The machines share the project's folder, which makes the test stricter.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use banksman_core::backlog::Run;
use banksman_core::task::RunEnd;
use banksman_core::{Lease, RunnerId, Span, Status, TaskId};
use banksman_engine::{Reply, Request, RunOutcome, RunRequest, Seen, Work};
use banksman_store::Snapshot;
use rustix::process::Signal;

use crate::crashes::{WATCHED, add};
use crate::postgres;
use crate::world::{BANKSMAN, Running, World, is_alive, until};

/// The lease of a runner's runs.
const TTL: Duration = Duration::from_secs(3);

/// A task that ignores SIGTERM.
fn stubborn() -> String {
    format!("trap '' TERM\n{WATCHED}")
}

/// A project that several machines can share.
struct Site {
    world: World,
}

impl Site {
    fn new() -> Site {
        let world = World::at(postgres::fresh_database()).initialized();
        world.ok(&["config", "set", "locking.heartbeat_timeout", &format!("{}ms", TTL.as_millis())]);
        Site { world }
    }

    /// Starts a runner on one of the machines.
    fn runner(&self, host: &str, args: &[&str]) -> Running {
        let mut command = self.world.command(&[&["run"], args].concat());
        command.env("XDG_STATE_HOME", self.world.path().join(host));
        // Only once: the lease leaves an heir little time.
        if !self.world.path().join(host).join("banksman/trust").exists() {
            self.trust(host, self.world.path());
        }
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Trusts the project, as the user of a machine does once in each clone.
    fn trust(&self, host: &str, clone: &Path) {
        let mut command = self.world.command(&["trust"]);
        let trusted = command.current_dir(clone).env("XDG_STATE_HOME", self.world.path().join(host)).output().unwrap();
        assert!(trusted.status.success(), "{trusted:?}");
    }

    /// Adds a watched task in an exclusive section.
    fn task(&self, command: &str) -> TaskId {
        self.world.ok(&["sections", "add", "alone", "--exclusive"]);
        let section = self.rows().tables.backlog.sections.into_keys().next();
        add(&self.world.project().open().unwrap(), "watched", command, |spec| spec.section = section)
    }

    fn rows(&self) -> Snapshot {
        self.world.everything()
    }

    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = self.rows().tables.backlog.runs.into_values().collect();
        runs.sort_by_key(|run| run.epoch);
        runs
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.world.path().join(file)).unwrap_or_default();
        text.lines().map(Into::into).collect()
    }

    fn until_begun(&self, times: usize) {
        until(&format!("{times} runs have begun"), || self.lines("begun").len() == times);
    }

    fn until_runners(&self, number: usize) {
        until(&format!("{number} runners"), || self.rows().backlog.runners.len() == number);
    }

    fn open(&self) {
        std::fs::write(self.world.path().join("open"), "").unwrap();
    }

    fn records(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.world.path().join(".banksman/runs")).into_iter().flatten().flatten();
        files.map(|file| file.path()).collect()
    }

    /// Asserts that there were two runs, one after the other, the first of which was lost.
    fn check_lost_and_repeated(&self, task: &TaskId) {
        assert_eq!(self.lines("doubled"), Vec::<String>::new(), "two runs at a time");
        assert_eq!(self.lines("begun").len(), 2);
        assert_eq!(self.lines("ended").len(), 1);
        let runs = self.runs();
        let endings: Vec<&RunEnd> = runs.iter().map(|run| &run.ended.as_ref().unwrap().ending).collect();
        assert_eq!(endings, [&RunEnd::Lost, &RunEnd::Exited(0)], "{runs:?}");
        assert!(runs.iter().all(|run| run.lease.is_none()));
        let rows = self.rows();
        assert_eq!(rows.backlog.tasks[task].status(), Status::Completed);
        assert_eq!((rows.backlog.tasks[task].recoveries, rows.backlog.tasks[task].failures), (1, 0));
        assert!(rows.backlog.outbox.is_empty());
        let slots = rows.tables.coordination.semaphores.into_values().find(|row| row.name.as_str() == "runs").unwrap();
        assert!(slots.holders.is_empty());
        for run in &runs {
            let ends = ["task:complete", "task:restarting", "task:failed", "task:cancelled"];
            let events = self.world.events();
            let recorded =
                events.iter().filter(|event| ends.contains(&event.kind.as_str()) && event.data["run"] == run.id.as_str());
            assert_eq!(recorded.count(), 1, "the end of {} is recorded once", run.id);
        }
        self.world.check();
    }
}

/// The note on how a run ended.
fn note(run: &Run) -> &str {
    run.ended.as_ref().unwrap().note.as_deref().unwrap_or_default()
}

#[test]
fn a_session_of_a_dead_machine_ends_before_the_next_begins() {
    let site = Site::new();
    // A claim of a lost run ends with it, so that the next run can claim the task.
    site.world.ok(&["tasks", "add", "claimed"]);
    let claim = format!("{BANKSMAN} tasks take claimed --no-wait && echo $BANKSMAN_RUN >> takes");
    let task = site.task(&format!("{claim}\n{}\n{BANKSMAN} tasks done claimed", stubborn()));
    let first = site.runner("one", &[]);
    site.until_begun(1);
    let keeper = site.runs()[0].session.clone();
    let second = site.runner("two", &["--until-idle"]);
    site.until_runners(2);
    let killed = Instant::now();
    first.signal(Signal::KILL);
    site.until_begun(2);
    assert!(killed.elapsed() > TTL / 2, "taken over after {:?}", killed.elapsed());
    if let Some(keeper) = keeper {
        until("its keeper has gone", || !is_alive(keeper.keeper));
    }
    site.open();
    let said = second.end();
    assert_eq!(said.code, 0, "{said:?}");
    let runs = site.runs();
    assert!(note(&runs[0]).starts_with("its machine was not heard of for "), "{runs:?}");
    assert_ne!(runs[0].host, runs[1].host);
    assert!(site.rows().backlog.runners.is_empty(), "the silent one was cleared away");
    site.check_lost_and_repeated(&task);
    assert_eq!(site.lines("takes"), site.lines("begun"), "each run has claimed the other task");
    assert_eq!(site.world.data(&["tasks", "show", "claimed"])["status"], "completed");
    // The next runner on that machine removes the remaining record.
    assert_eq!(site.records().len(), 1);
    let said = site.runner("one", &["--until-idle"]).end();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(site.records(), Vec::<PathBuf>::new());
}

#[test]
fn a_runner_that_was_cut_off_repeats_nothing() {
    let site = Site::new();
    let task = site.task(&stubborn());
    let first = site.runner("one", &[]);
    site.until_begun(1);
    let second = site.runner("two", &[]);
    site.until_runners(2);
    first.signal(Signal::STOP);
    site.until_begun(2);
    // Without a run the silent runner is removed, too.
    site.until_runners(1);
    first.signal(Signal::CONT);
    site.until_runners(2);
    until("the first has cleared its record away", || site.records().len() == 1);
    site.open();
    until("the end", || site.rows().backlog.tasks[&task].status() == Status::Completed);
    until("no record is left", || site.records().is_empty());
    for runner in [first, second] {
        let said = runner.stop();
        assert_eq!(said.code, 0, "{said:?}");
    }
    site.check_lost_and_repeated(&task);
}

#[test]
fn a_runner_that_renews_keeps_its_runs() {
    let site = Site::new();
    let task = site.task(&stubborn());
    let first = site.runner("one", &[]);
    site.until_begun(1);
    let begun = site.rows().lease;
    let second = site.runner("two", &["--until-idle"]);
    site.until_runners(2);
    let owner = site.runs()[0].owner.clone();
    let seen = || site.rows().backlog.runners[&owner].seen;
    until("it was heard of for several leases", || seen() - begun > Span::from_ms(3 * 3_000));
    let run = site.runs().remove(0);
    assert!(run.lease.as_ref().is_some_and(|lease| lease.renewed > begun), "its runs are renewed with it");
    // Requests to lose the run, as from a runner whose check was overtaken by a renewal, are refused: the rows decide.
    let rows = site.rows().tables.backlog;
    let idle = rows.runners.keys().find(|id| **id != owner).unwrap().clone();
    let what = Box::new(Work { run, task: rows.tasks[&task].clone() });
    let dismiss = |runner: &RunnerId| RunRequest::Dismiss { runner: runner.clone(), seen: Seen::default() };
    let client = site.world.project().open().unwrap();
    let watch = client.config().watch();
    let lose = RunRequest::Lose { runner: idle.clone(), what, patience: Span::ZERO, watch };
    let ask = |request: RunRequest| client.call(Request::Run(request)).unwrap();
    assert_eq!(ask(lose), Reply::Run(RunOutcome::OwnerLives));
    assert_eq!(ask(dismiss(&owner)), Reply::Run(RunOutcome::Late), "it has a run");
    assert_eq!(ask(dismiss(&idle)), Reply::Run(RunOutcome::OwnerLives));
    site.open();
    let said = second.end();
    assert_eq!(said.code, 0, "{said:?}");
    first.stop();
    assert_eq!((site.lines("begun").len(), site.lines("ended").len(), site.runs().len()), (1, 1, 1));
    assert_eq!(site.rows().backlog.tasks[&task].status(), Status::Completed);
    site.world.check();
}

#[test]
fn an_heir_renews_the_sessions_of_a_runner_that_left() {
    let site = Site::new();
    let task = site.task(&stubborn());
    let first = site.runner("one", &[]);
    site.until_begun(1);
    let said = first.stop();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains("1 session continues, but only for "), "{said:?}");
    let left = site.rows().lease;
    let second = site.runner("one", &["--until-idle"]);
    let renewed = || site.runs()[0].lease.as_ref().map_or(Lease(0), |lease| lease.renewed);
    until("the heir has renewed it for several leases", || renewed() - left > Span::from_ms(2 * 3_000));
    site.open();
    let said = second.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!((site.lines("begun").len(), site.lines("ended").len(), site.runs().len()), (1, 1, 1));
    assert_eq!(site.rows().backlog.tasks[&task].status(), Status::Completed);
    assert_eq!(site.records(), Vec::<PathBuf>::new());
    site.world.check();
}

#[test]
fn a_session_without_an_heir_ends_and_another_machine_repeats_it() {
    let site = Site::new();
    let task = site.task(&stubborn());
    let first = site.runner("one", &[]);
    site.until_begun(1);
    assert_eq!(first.stop().code, 0);
    let second = site.runner("two", &["--until-idle"]);
    site.until_begun(2);
    site.open();
    let said = second.end();
    assert_eq!(said.code, 0, "{said:?}");
    site.check_lost_and_repeated(&task);
}

#[test]
fn a_clone_waits_for_the_lease_of_a_session_it_cannot_probe() {
    let site = Site::new();
    let root = site.world.path().display().to_string();
    let task = site.task(&format!("cd '{root}'\n{}", stubborn()));
    let first = site.runner("one", &[]);
    site.until_begun(1);
    let clone = site.world.path().join("clone");
    std::fs::create_dir_all(clone.join(".banksman")).unwrap();
    std::fs::copy(site.world.path().join(".banksman/config.toml"), clone.join(".banksman/config.toml")).unwrap();
    first.signal(Signal::KILL);
    let mut second = site.world.command(&["run", "--until-idle"]);
    second.current_dir(&clone).env("XDG_STATE_HOME", site.world.path().join("one"));
    site.trust("one", &clone);
    let second = Running(second.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    site.until_begun(2);
    site.open();
    let said = second.end();
    assert_eq!(said.code, 0, "{said:?}");
    let runs = site.runs();
    assert_eq!(runs[0].host, runs[1].host);
    site.check_lost_and_repeated(&task);
}

#[test]
fn a_keeper_ends_its_session_when_it_cannot_renew() {
    let mut server = postgres::Server::start();
    server.sql("postgres", "CREATE DATABASE outage");
    let world = World::at(server.url("outage")).initialized();
    world.ok(&["config", "set", "locking.heartbeat_timeout", "3s"]);
    let site = Site { world };
    let task = site.task(&stubborn());
    let runner = site.runner("one", &["--until-idle"]);
    site.until_begun(1);
    let pid: i32 = std::fs::read_dir(site.world.path().join("running"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap().parse().unwrap())
        .next()
        .unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(server.pid).unwrap(), Signal::KILL).unwrap();
    until("the keeper has ended it", || !is_alive(pid));
    server.restart();
    site.until_begun(2);
    site.open();
    let said = runner.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(note(&site.runs()[0]).contains("could not renew"), "{:?}", site.runs());
    site.check_lost_and_repeated(&task);
}

#[test]
fn an_idle_runner_on_one_machine_writes_nothing() {
    let world = World::on_sqlite();
    for (key, value) in [("locking.heartbeat_timeout", "300ms"), ("locking.poll_interval", "100ms")] {
        world.ok(&["config", "set", key, value]);
    }
    let runner = world.start(&["run"]);
    let rows = || world.everything();
    until("the runner is there", || rows().backlog.runners.len() == 1);
    assert!(rows().backlog.runners.values().all(|runner| runner.terms.is_none()));
    let wal = world.path().join(".banksman/store.db-wal");
    let look = || {
        let files = [&wal, &world.path().join(".banksman/store.db")].map(|path| {
            let file = std::fs::metadata(path).unwrap();
            (file.len(), file.modified().unwrap())
        });
        (rows().seq, rows().lease, files)
    };
    // The writes of the start are over when nothing has changed for a while.
    let mut before = look();
    until("nothing has changed for a while", || {
        let now = look();
        if (now.0, now.2) != (before.0, before.2) {
            before = now;
        }
        now.1 - before.1 > Span::from_ms(500)
    });
    // This test needs time to pass: many leases, and many polls.
    until("many leases are over", || look().1 - before.1 > Span::from_ms(2_500));
    let after = look();
    assert_eq!((after.0, after.2), (before.0, before.2));
    assert_eq!(runner.stop().code, 0);
}
