//! Other programs that run many commands, two at a time: xargs, which keeps no record; and task-spooler and pueue, if
//! they are installed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::{Bench, Result};
use crate::fifo::Fifo;
use crate::peers::{self, Server};
use crate::program::Cost;
use crate::{clock, program};

const SLOTS: usize = 2;

/// Each queued task of task-spooler is a process with a connection to its server, which accepts at most 1,000.
const SPOOLER_TASKS: usize = 900;

/// pueue checks for finished tasks a few times per second, so that a few tasks are enough.
const PUEUE_TASKS: usize = 40;

/// Time limit for the first answer of a server.
const START: Duration = Duration::from_secs(10);

/// Runs `true` this many times. `xargs` only starts the processes.
pub(crate) fn xargs(dir: &Path, tasks: usize) -> Result<Cost> {
    let lines = dir.join("lines");
    std::fs::write(&lines, "x\n".repeat(tasks))?;
    let mut command = Command::new("xargs");
    command.args(["-n1", "-P2", "true"]).stdin(std::fs::File::open(lines)?).stdout(Stdio::null());
    program::timed(&mut command)
}

/// The same through task-spooler: all tasks are queued behind two that wait for the start.
pub(crate) fn spooler(bench: &Bench) -> Result<Option<f64>> {
    if !peers::installed("tsp") {
        return Ok(None);
    }
    let dir = bench.place("tsp")?;
    let (mut gate, mut bell) = (Fifo::make(&dir.join("gate"))?, Fifo::make(&dir.join("bell"))?);
    let tsp = |args: &[&str]| -> Result<()> {
        let mut command = Command::new("tsp");
        command.args(args).current_dir(&dir).env("TS_SOCKET", dir.join("socket")).env("TMPDIR", &dir);
        quietly(&mut command)
    };
    tsp(&["-S", &SLOTS.to_string()])?;
    let fill = || -> Result<()> {
        (0..SLOTS).try_for_each(|_| tsp(&["-n", "sh", "-c", "read x <gate"]))?;
        (1..SPOOLER_TASKS).try_for_each(|_| tsp(&["-n", "true"]))?;
        tsp(&["-n", "sh", "-c", "echo >bell"])
    };
    let rate = fill().and_then(|()| rate_until_bell(&mut bell, SPOOLER_TASKS, || gate.ring(SLOTS)));
    // No other process ends the server.
    tsp(&["-K"])?;
    rate.map(Some)
}

/// The same through pueue, in a group that is paused until all tasks are queued.
pub(crate) fn pueue(bench: &Bench) -> Result<Option<f64>> {
    if !peers::installed("pueue") || !peers::installed("pueued") {
        return Ok(None);
    }
    let dir = bench.place("pueue")?;
    let mut bell = Fifo::make(&dir.join("bell"))?;
    // A relative name, because a socket's path is limited to 108 bytes.
    let config = "shared: { pueue_directory: data, runtime_directory: data, use_unix_socket: true, unix_socket_path: s }\n\
        client: {}\ndaemon: {}\n";
    std::fs::File::create(dir.join("pueue.yml"))?.write_all(config.as_bytes())?;
    std::fs::create_dir(dir.join("data"))?;
    let pueue = |args: &[&str]| quietly(Command::new("pueue").args(["-c", "pueue.yml"]).args(args).current_dir(&dir));
    let server = Server::start(&dir, "pueued", ["-c", "pueue.yml"])?;
    let deadline = Instant::now() + START;
    while let Err(error) = pueue(&["status"]) {
        if Instant::now() >= deadline {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    pueue(&["parallel", &SLOTS.to_string()])?;
    pueue(&["pause"])?;
    (1..PUEUE_TASKS).try_for_each(|_| pueue(&["add", "true"]))?;
    pueue(&["add", "echo >bell"])?;
    let rate = rate_until_bell(&mut bell, PUEUE_TASKS, || pueue(&["start"]))?;
    drop(server);
    Ok(Some(rate))
}

/// Tasks per second, if the last of them rings.
fn rate_until_bell(bell: &mut Fifo, tasks: usize, start: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = clock::now();
    start()?;
    let ended = bell.wait()?;
    Ok(tasks as f64 * 1e9 / (ended - began) as f64)
}

fn quietly(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
