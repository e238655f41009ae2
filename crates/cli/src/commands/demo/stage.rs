//! The environment of the demo: a temporary project, its processes, and a reader of the event log.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use banksman_adapters::host;
use banksman_core::{Liveness, ProcessId, RunId, Seq, Wall};
use banksman_runtime::inspect::{self, LiveRun};
use banksman_runtime::{Follower, Project};
use banksman_store::{EventFilter, EventRow, Snapshot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{DIM, Printer};
use crate::signals::Signals;
use crate::terminal::{self, Notation};

/// The upper bound of every wait: only a defect exceeds it.
const DEADLINE: Duration = Duration::from_secs(30);

/// How long processes may take to end before they are killed.
const CLEANUP: Duration = Duration::from_secs(5);

pub(super) struct Stage {
    printer: Printer,
    project: Project,
    follower: Follower,
    signals: Signals,
    seen: Vec<EventRow>,
    start: Wall,
    dir: tempfile::TempDir,
}

/// A process of the demo. It is killed if the demo ends first.
pub(super) struct DemoProcess(Child);

impl Stage {
    /// With git, the project is below the temporary directory, because worktrees are created beside it.
    pub(super) fn set(context: &Context, with_git: bool) -> Result<Stage, Failure> {
        let signals = Signals::install()?;
        let dir = tempfile::Builder::new().prefix("banksman-demo-").tempdir().map_err(system)?;
        let root = if with_git { dir.path().join("project") } else { dir.path().to_owned() };
        fs::create_dir_all(&root).map_err(system)?;
        let project = Project::init_at(&root, None)?;
        // Tasks can call `banksman`, and it is this very program.
        fs::create_dir(dir.path().join("bin")).map_err(system)?;
        let this = format!("/proc/{}/exe", std::process::id());
        std::os::unix::fs::symlink(this, dir.path().join("bin/banksman")).map_err(system)?;
        let follower = project.follow(Seq(0))?;
        let printer = context.printer.clone();
        Ok(Stage { printer, project, follower, signals, seen: Vec::new(), start: now(), dir })
    }

    /// Sets the start of the clock.
    pub(super) fn begin(&mut self) {
        self.start = now();
    }

    /// Prints a line at once. If stdout is closed, the demo continues to its end, where everything is removed.
    pub(super) fn say(&self, text: &str) {
        if !self.printer.json && !self.printer.quiet {
            let mut out = anstream::stdout().lock();
            writeln!(out, "{}", terminal::render(text, Notation::Text)).and_then(|()| out.flush()).ok();
        }
    }

    /// Prints a line of the story with its time.
    pub(super) fn narrate(&self, at: Wall, text: &str) {
        let seconds = (at.0 - self.start.0) as f64 / 1_000.0;
        self.say(&format!("{DIM}{seconds:>4.1} s{DIM:#}  {text}"));
    }

    /// Starts `banksman ARGS` as a process without the user's settings.
    pub(super) fn spawn_banksman(&self, args: &[&str]) -> Result<DemoProcess, Failure> {
        let mut command = Command::new("/proc/self/exe");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BANKSMAN_")) {
            command.env_remove(name);
        }
        let mut path = self.dir.path().join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.args(args).current_dir(self.project.root()).env("PATH", path).env("NO_COLOR", "1");
        // The store is given, because the user's settings may name a server. Sockets stay in the project.
        command.env("BANKSMAN_PROJECT", self.project.root()).env("BANKSMAN_STORE", format!("sqlite:{}", self.project.store()));
        command.env_remove("XDG_RUNTIME_DIR").env("XDG_CONFIG_HOME", self.dir.path().join("config"));
        // In its own process group, so that Ctrl-C reaches the demo only, and the demo cleans up.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map(DemoProcess).map_err(system)
    }

    /// Runs `banksman ARGS`, which must succeed, and returns its output.
    pub(super) fn run(&self, args: &[&str]) -> Result<String, Failure> {
        let output = self.spawn_banksman(args)?.output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                Err(Failure::system("run the demo", format!("{args:?}: {}", String::from_utf8_lossy(&output.stderr).trim())))
            }
        }
    }

    /// Runs git in the project, without the user's settings.
    pub(super) fn git(&self, args: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("git");
        command.args(args).current_dir(self.project.root()).env("GIT_CONFIG_GLOBAL", "/dev/null").stdin(Stdio::null());
        let output = command.output().map_err(system)?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
            false => {
                Err(Failure::system("run the demo", format!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr).trim())))
            }
        }
    }

    /// Writes a file of the project.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        fs::write(self.project.root().join(name), text).map_err(system)
    }

    /// Waits until `find` returns an event of the log.
    pub(super) fn until(&mut self, find: impl Fn(&[EventRow]) -> Option<EventRow>) -> Result<EventRow, Failure> {
        let start = Instant::now();
        loop {
            if let Some(found) = find(&self.seen) {
                return Ok(found);
            }
            self.wait(&[], start)?;
        }
    }

    /// Waits until one of these processes is dead.
    pub(super) fn until_death(&mut self, of: &[&ProcessId]) -> Result<(), Failure> {
        let start = Instant::now();
        let Ok(watched) = of.iter().map(|process| self.project.host().watch(process)).collect::<Result<Vec<OwnedFd>, _>>() else {
            return Ok(());
        };
        while of.iter().all(|process| self.probe(process) == Liveness::Alive) {
            self.wait(&watched, start)?;
        }
        Ok(())
    }

    /// Reads new events, or sleeps until there are some.
    fn wait(&mut self, watched: &[OwnedFd], start: Instant) -> Result<(), Failure> {
        if start.elapsed() > DEADLINE {
            return Err(Failure::new(exit::ERROR, "DEMO", "the demo timed out waiting for an event"));
        }
        let events = self.follower.next(&EventFilter::default())?;
        let watched: Vec<_> = watched.iter().map(AsFd::as_fd).collect();
        if events.is_empty() && !self.follower.wait_for(self.signals.as_fd(), &watched, DEADLINE) {
            return Err(Failure::interrupted());
        }
        self.seen.extend(events);
        Ok(())
    }

    /// Reads all remaining events of the log.
    pub(super) fn catch_up(&mut self) -> Result<(), Failure> {
        loop {
            let events = self.follower.next(&EventFilter::default())?;
            if events.is_empty() {
                return Ok(());
            }
            self.seen.extend(events);
        }
    }

    pub(super) fn seen(&self) -> &[EventRow] {
        &self.seen
    }

    /// All rows of the store.
    pub(super) fn rows(&self) -> Result<Snapshot, Failure> {
        Ok(self.project.reader()?.view().everything()?)
    }

    /// The live runs.
    pub(super) fn sessions(&self) -> Result<Vec<LiveRun>, Failure> {
        Ok(inspect::sessions(&mut self.project.reader()?, &self.project)?.1)
    }

    /// When each run ended, according to its keeper.
    pub(super) fn ends(&self) -> Result<BTreeMap<RunId, Wall>, Failure> {
        let runs = self.rows()?.tables.backlog.runs;
        Ok(runs.into_values().filter_map(|run| Some((run.id, run.ended?.at))).collect())
    }

    /// The number of events, and the differences between the log and the tables.
    pub(super) fn replay(&self) -> Result<(i64, Vec<String>), Failure> {
        let mut reader = self.project.reader()?;
        Ok((reader.view().last_event()?.0, reader.view().compare_with_log()?))
    }

    pub(super) fn identify(&self, pid: i32) -> Option<ProcessId> {
        self.project.host().identify(pid).ok()
    }

    pub(super) fn probe(&self, process: &ProcessId) -> Liveness {
        self.project.host().probe(process)
    }

    /// All processes that were started for this project or work in it.
    pub(super) fn processes(&self) -> Vec<i32> {
        processes(self.project.root(), self.dir.path())
    }

    /// The processes that remain after the last runner has ended. A keeper ends a moment after its runner.
    pub(super) fn remaining(&self) -> Vec<i32> {
        let start = Instant::now();
        loop {
            let left = self.processes();
            let Some(first) = left.first().filter(|_| start.elapsed() < CLEANUP) else { return left };
            self.await_end(*first);
        }
    }

    fn await_end(&self, pid: i32) {
        if let Some(Ok(pidfd)) = self.identify(pid).map(|process| self.project.host().watch(&process)) {
            let at_most = Timespec { tv_sec: CLEANUP.as_secs().cast_signed(), tv_nsec: 0 };
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&at_most)).ok();
        }
    }

    /// Cancels all tasks and waits until their sessions have ended.
    fn cancel(&self) -> Result<(), Failure> {
        let rows = self.rows()?;
        let ids = rows.backlog.tasks.keys().map(|id| id.as_str());
        self.run(&["tasks", "cancel", "--no-wait"].into_iter().chain(ids).collect::<Vec<_>>())?;
        // The next runner ends sessions whose runner is gone.
        let runner = self.spawn_banksman(&["run", "--until-idle"])?;
        self.await_end(runner.pid());
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end();
        // The project is about to be removed.
        self.project.distrust_store().ok();
    }
}

impl Stage {
    /// Ends all processes of the demo.
    fn end(&self) {
        if self.processes().is_empty() {
            return;
        }
        // Errors are ignored: the processes are killed below in any case.
        self.cancel().ok();
        let start = Instant::now();
        while start.elapsed() < CLEANUP {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for pid in left.into_iter().filter_map(Pid::from_raw) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
}

/// The processes whose environment names the project, or whose working directory is in it.
fn processes(root: &Path, dir: &Path) -> Vec<i32> {
    let named = [b"BANKSMAN_PROJECT=".as_slice(), root.as_os_str().as_bytes()].concat();
    let belongs = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let directory = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        directory.starts_with(dir) || environment.split(|byte| *byte == 0).any(|variable| variable == named)
    };
    let own = std::process::id().cast_signed();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != own && belongs(pid)).collect()
}

impl DemoProcess {
    pub(super) fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    /// Kills the process with -9, and returns when it is dead.
    pub(super) fn kill(mut self) -> Result<Wall, Failure> {
        let at = now();
        self.0.kill().map_err(system)?;
        self.0.wait().map_err(system)?;
        Ok(at)
    }

    /// Sends SIGTERM, and returns when the process has ended.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let pid = Pid::from_raw(self.pid()).expect("a child has a pid");
        kill_process(pid, Signal::TERM).map_err(|error| system(error.into()))?;
        self.0.wait().map_err(system).map(drop)
    }

    /// Waits until the process ends, and returns its exit status.
    pub(super) fn end(mut self) -> Result<Option<i32>, Failure> {
        Ok(self.0.wait().map_err(system)?.code())
    }

    fn output(mut self) -> Result<std::process::Output, Failure> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        if let (Some(out), Some(err)) = (&mut self.0.stdout, &mut self.0.stderr) {
            out.read_to_end(&mut stdout).and_then(|_| err.read_to_end(&mut stderr)).map_err(system)?;
        }
        Ok(std::process::Output { status: self.0.wait().map_err(system)?, stdout, stderr })
    }
}

impl Drop for DemoProcess {
    fn drop(&mut self) {
        // Fails for a process that has ended already, as nearly all have.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

pub(super) fn now() -> Wall {
    Wall(host::wall_ms())
}

fn system(error: std::io::Error) -> Failure {
    Failure::system("run the demo", error)
}
