//! The binary, started as a user does.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use banksman::Project;
use banksman::core::backlog;
use banksman::store::Key;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::bench::Result;
use crate::clock;
use crate::proc::{self, Spent};

/// How long a runner may take to begin, and to leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a runner does before it sleeps is not part of any figure.
const SETTLE: Duration = Duration::from_millis(500);

/// `target/release/banksman`.
pub(crate) fn path() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("banksman");
    if program.exists() {
        return Ok(program);
    }
    Err(format!("{} is missing: cargo build --release -p banksman-cli", program.display()).into())
}

/// The binary in a project. It only says what goes wrong.
pub(crate) fn command(project: &Project, args: &[&str]) -> Result<Command> {
    let mut command = Command::new(path()?);
    command.args(args).current_dir(project.root());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

/// A runner in a project. What it says is not of interest.
pub(crate) fn run(project: &Project, args: &[&str]) -> Result<Command> {
    let mut command = command(project, &[&["run"], args].concat())?;
    command.stderr(Stdio::null());
    Ok(command)
}

/// Runs it, and fails if it does.
pub(crate) fn succeed(project: &Project, args: &[&str]) -> Result<()> {
    check(args, command(project, args)?.status()?)
}

fn check(what: &[&str], status: ExitStatus) -> Result<()> {
    if status.success() { Ok(()) } else { Err(format!("banksman {what:?}: {status}").into()) }
}

/// Milliseconds from the start of a command to its exit.
pub(crate) fn start_to_exit(command: &mut Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = clock::now();
    let status = command.status()?;
    let ms = (clock::now() - start) as f64 / 1e6;
    if status.success() { Ok(ms) } else { Err(format!("{command:?}: {status}").into()) }
}

/// Seconds from the start of a command to its exit, and what it and its children have spent.
pub(crate) fn timed(command: &mut Command) -> Result<(f64, Spent)> {
    let start = clock::now();
    let mut child = command.spawn()?;
    exited(child.id())?;
    let seconds = (clock::now() - start) as f64 / 1e9;
    // It is not waited for yet, so what it has spent can still be seen.
    let spent = proc::spent(child.id())?;
    let status = child.wait()?;
    if status.success() { Ok((seconds, spent)) } else { Err(format!("{command:?}: {status}").into()) }
}

fn exited(pid: u32) -> Result<()> {
    waitid(WaitId::Pid(as_pid(pid)?), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    Ok(())
}

fn as_pid(pid: u32) -> Result<Pid> {
    Ok(Pid::from_raw(pid.try_into()?).ok_or("0 is not a process")?)
}

/// A runner that goes on until this value ends.
pub(crate) struct Runner(Child);

impl Runner {
    /// Starts it, and waits until it is at work: until `ready` says so of its row.
    pub(crate) fn start(project: &Project, args: &[&str], ready: impl Fn(&backlog::Runner) -> bool) -> Result<Runner> {
        let runner = Runner(run(project, args)?.spawn()?);
        let mut reader = project.reader()?;
        let patience_ends = Instant::now() + PATIENCE;
        while !reader.view().load(&BTreeSet::from([Key::Runners]))?.backlog.runners.values().any(&ready) {
            if Instant::now() >= patience_ends {
                return Err("the runner did not begin within 10 s".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(SETTLE);
        Ok(runner)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Fails if it is gone.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the runner has left: {status}").into()),
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // It is asked first, so that it takes its row along.
        as_pid(self.pid()).and_then(|pid| Ok(kill_process(pid, Signal::TERM)?)).ok();
        let patience_ends = Instant::now() + PATIENCE;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < patience_ends {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
