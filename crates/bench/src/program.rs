//! The binary, started as a user starts it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use banksman_core::backlog;
use banksman_runtime::Project;
use banksman_store::Key;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, set_child_subreaper, wait, waitid};

use crate::bench::Result;
use crate::clock;
use crate::proc;

/// Time limit for a runner to begin, and to leave.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Work of a runner before its first sleep is not part of any figure.
const SETTLE: Duration = Duration::from_millis(500);

/// `target/release/banksman`.
pub(crate) fn path() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("banksman");
    if program.exists() {
        return Ok(program);
    }
    Err(format!("{} is missing: cargo build --release -p banksman-cli", program.display()).into())
}

/// The binary in a project. It prints errors only.
pub(crate) fn command(project: &Project, args: &[&str]) -> Result<Command> {
    let mut command = Command::new(path()?);
    command.args(args).current_dir(project.root());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

/// A runner in a project. Its output is discarded.
pub(crate) fn run(project: &Project, args: &[&str]) -> Result<Command> {
    let mut command = command(project, &[&["run"], args].concat())?;
    command.stderr(Stdio::null());
    Ok(command)
}

/// Runs a command, and fails if the command fails.
pub(crate) fn done(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// Runs the binary with these arguments, and fails if it fails.
pub(crate) fn succeed(project: &Project, args: &[&str]) -> Result<()> {
    let status = command(project, args)?.status()?;
    if status.success() { Ok(()) } else { Err(format!("banksman {args:?}: {status}").into()) }
}

/// Milliseconds from the start of a command to its exit.
pub(crate) fn start_to_exit(command: &mut Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = clock::now();
    let status = command.status()?;
    let ms = (clock::now() - start) as f64 / 1e6;
    if status.success() { Ok(ms) } else { Err(format!("{command:?}: {status}").into()) }
}

/// The cost of a command, including all processes that it has started.
pub(crate) struct Cost {
    /// From its start to its exit.
    pub(crate) seconds: f64,
    /// Processor time of the command itself, in milliseconds.
    pub(crate) own_ms: f64,
    /// Processor time of all other processes that it has started, whichever process waited for them.
    pub(crate) others_ms: f64,
}

/// Runs a command. This process must have no other children meanwhile.
///
/// A keeper may outlive its runner, and then none of its time is charged to the runner. So this process adopts every
/// orphan of the command, and waits for it too.
pub(crate) fn timed(command: &mut Command) -> Result<Cost> {
    set_child_subreaper(Some(getpid()))?;
    let before = proc::spent(std::process::id())?.children_ms;
    let start = clock::now();
    let mut child = command.spawn()?;
    exited(child.id())?;
    let seconds = (clock::now() - start) as f64 / 1e9;
    // The process is not reaped yet, so its times are still available.
    let own_ms = proc::spent(child.id())?.own_ms;
    let status = child.wait()?;
    wait_for_rest()?;
    set_child_subreaper(None)?;
    let all_ms = proc::spent(std::process::id())?.children_ms - before;
    if status.success() {
        Ok(Cost { seconds, own_ms, others_ms: all_ms - own_ms })
    } else {
        Err(format!("{command:?}: {status}").into())
    }
}

/// Runs a function. Returns the processor time of all processes that it has started too, in milliseconds. This process
/// must have no other children meanwhile.
pub(crate) fn with_children<T>(f: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    set_child_subreaper(Some(getpid()))?;
    let before = proc::spent(std::process::id())?.children_ms;
    let result = f();
    wait_for_rest()?;
    set_child_subreaper(None)?;
    Ok((result?, proc::spent(std::process::id())?.children_ms - before))
}

/// Asks a process to leave. Ignores a process that is gone.
pub(crate) fn ask_to_leave(pid: u32) {
    as_pid(pid).and_then(|pid| Ok(kill_process(pid, Signal::TERM)?)).ok();
}

/// Waits for a process that was asked to leave, and kills it if it does not.
pub(crate) fn await_end(child: &mut Child) {
    let deadline = Instant::now() + TIMEOUT;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().ok();
    child.wait().ok();
}

/// Reaps children until none is left.
fn wait_for_rest() -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return Ok(()),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) => return Err("what the command left behind did not end within 10 s".into()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn exited(pid: u32) -> Result<()> {
    waitid(WaitId::Pid(as_pid(pid)?), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    Ok(())
}

fn as_pid(pid: u32) -> Result<Pid> {
    Ok(Pid::from_raw(pid.try_into()?).ok_or("0 is not a process")?)
}

/// A runner that is stopped when this value is dropped.
pub(crate) struct Runner(Child);

impl Runner {
    /// Wraps a runner that was just started.
    pub(crate) fn of(child: Child) -> Runner {
        Runner(child)
    }

    /// Starts a runner, and waits until `ready` accepts its row.
    pub(crate) fn start(project: &Project, args: &[&str], ready: impl Fn(&backlog::Runner) -> bool) -> Result<Runner> {
        let runner = Runner(run(project, args)?.spawn()?);
        let mut reader = project.reader()?;
        let deadline = Instant::now() + TIMEOUT;
        while !reader.view().load(&BTreeSet::from([Key::Runners]))?.backlog.runners.values().any(&ready) {
            if Instant::now() >= deadline {
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

    /// Fails if the runner is gone.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the runner has left: {status}").into()),
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // The runner is asked first, so that it removes its row.
        ask_to_leave(self.pid());
        await_end(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shell leaves a process behind that outlives it and does all the work.
    #[test]
    fn orphans_of_the_command_are_counted() {
        let busy = "(i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done) & exit 0";
        let cost = timed(Command::new("sh").args(["-c", busy])).expect("a shell can be run");
        assert!(cost.others_ms >= 50.0 && cost.own_ms < cost.others_ms, "{} and {}", cost.own_ms, cost.others_ms);
    }
}
