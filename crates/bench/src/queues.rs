//! Other programs that work through many commands, two at a time: xargs, which keeps no record; and task-spooler and
//! pueue, if they are installed.

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

/// Each task in the queue of task-spooler is a process that is connected to its server, which takes 1,000 at most.
const SPOOLER_TASKS: usize = 900;

/// pueue looks for finished tasks a few times per second, so that few tasks tell enough.
const PUEUE_TASKS: usize = 40;

/// How long a server may take to answer for the first time.
const START: Duration = Duration::from_secs(10);

/// So many `true`. All that `xargs` does is to start them.
pub(crate) fn xargs(dir: &Path, tasks: usize) -> Result<Cost> {
    let lines = dir.join("lines");
    std::fs::write(&lines, "x\n".repeat(tasks))?;
    let mut command = Command::new("xargs");
    command.args(["-n1", "-P2", "true"]).stdin(std::fs::File::open(lines)?).stdout(Stdio::null());
    program::timed(&mut command)
}

/// The same through task-spooler: all of them are in its queue, behind two that wait for the start.
pub(crate) fn spooler(bench: &Bench) -> Result<Option<f64>> {
    if !peers::installed("tsp") {
        return Ok(None);
    }
    let dir = bench.place("tsp")?;
    let (mut gate, mut change_notifier) = (Fifo::make(&dir.join("gate"))?, Fifo::make(&dir.join("bell"))?);
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
    let rate = fill().and_then(|()| until_heard(&mut change_notifier, SPOOLER_TASKS, || gate.ring(SLOTS)));
    // The server is a process that nobody else ends.
    tsp(&["-K"])?;
    rate.map(Some)
}

/// The same through pueue, in a group that is paused until all are there.
pub(crate) fn pueue(bench: &Bench) -> Result<Option<f64>> {
    if !peers::installed("pueue") || !peers::installed("pueued") {
        return Ok(None);
    }
    let dir = bench.place("pueue")?;
    let mut change_notifier = Fifo::make(&dir.join("bell"))?;
    // A relative name, because a socket's path is limited to 108 bytes.
    let config = "shared: { pueue_directory: data, runtime_directory: data, use_unix_socket: true, unix_socket_path: s }\n\
        client: {}\ndaemon: {}\n";
    std::fs::File::create(dir.join("pueue.yml"))?.write_all(config.as_bytes())?;
    std::fs::create_dir(dir.join("data"))?;
    let pueue = |args: &[&str]| quietly(Command::new("pueue").args(["-c", "pueue.yml"]).args(args).current_dir(&dir));
    let server = Server::start(&dir, "pueued", ["-c", "pueue.yml"])?;
    let patience_ends = Instant::now() + START;
    while let Err(error) = pueue(&["status"]) {
        if Instant::now() >= patience_ends {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    pueue(&["parallel", &SLOTS.to_string()])?;
    pueue(&["pause"])?;
    (1..PUEUE_TASKS).try_for_each(|_| pueue(&["add", "true"]))?;
    pueue(&["add", "echo >bell"])?;
    let rate = until_heard(&mut change_notifier, PUEUE_TASKS, || pueue(&["start"]))?;
    drop(server);
    Ok(Some(rate))
}

/// So many per second, if the last of them rings.
fn until_heard(change_notifier: &mut Fifo, tasks: usize, start: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = clock::now();
    start()?;
    let ended = change_notifier.heard()?;
    Ok(tasks as f64 * 1e9 / (ended - began) as f64)
}

fn quietly(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
