//! The work of one worker process: it opens its store, reports that it is ready, reads its start and end times, and prints
//! lines of numbers at the end.

use std::io::{BufRead, BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::{Command as Request, Outcome};
use banksman_core::resource::grant::{Ask, Grant, GrantRequest};
use banksman_core::resource::lock;
use banksman_core::{HolderId, Name};
use banksman_runtime::{Acquisition, Client, Project, WaitOptions};

use crate::bench::{Bench, Result};
use crate::clock;
use crate::handoff::{Handoff, LOCK};
use crate::held::Held;
use crate::messages::{self, LockedFile};
use crate::plain::Plain;

/// The first argument of a worker process.
pub(crate) const MARK: &str = "--worker";

/// The line that it prints when it is ready.
pub(crate) const READY: &str = "ready";

/// How long a holder keeps the lock during the hand-offs.
const HOLD: Duration = Duration::from_millis(1);

/// Longer than any figure takes: a timeout means that something is broken.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Plays the role that the arguments name.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let lines = match args[..] {
        ["pairs", dir, name] => pairs(dir, name, None)?,
        ["pairs-until", dir, name, over] => pairs(dir, name, Some(Path::new(over)))?,
        ["plain", path, id] => plain(path, id.parse()?)?,
        ["handoffs", dir] => handoffs(dir)?,
        ["idle", dir] => idle(dir)?,
        ["posts", dir] => posts(dir)?,
        ["appends", path] => appends(path)?,
        ["follows", dir] => return messages::follow(dir),
        ["commits", path] => vec![vec![read_commits(path)?]],
        _ => return Err(format!("no worker does {args:?}").into()),
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in lines {
        writeln!(out, "{}", line.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))?;
    }
    Ok(out.flush()?)
}

/// The number of commits of a database, read by another process: opening and closing its files in this process would drop
/// the locks of its own connection.
pub(crate) fn commits(index: &Path) -> Result<u64> {
    let output = Command::new(std::env::current_exe()?).args([MARK, "commits"]).arg(index).output()?;
    if !output.status.success() {
        return Err(format!("the commits cannot be read: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// The third word of SQLite's WAL index is a counter that every commit raises.
fn read_commits(path: &str) -> Result<u64> {
    let bytes = std::fs::read(path)?;
    let word = bytes.get(8..12).ok_or("the WAL index is too short")?;
    Ok(u32::from_ne_bytes(word.try_into()?).into())
}

/// Reports that the process is ready, and sleeps until the start. Returns the end time.
fn start() -> Result<u64> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{READY}")?;
    out.flush()?;
    drop(out);
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let (start, end) = line.trim().split_once(' ').ok_or("the bench has gone")?;
    clock::sleep_until(start.parse()?);
    Ok(end.parse()?)
}

fn open(dir: &str) -> Result<Client> {
    Ok(Project::find_at(Path::new(dir), None)?.open()?)
}

fn library(dir: &str) -> Result<banksman::Client> {
    Bench::library(&Project::find_at(Path::new(dir), None)?)
}

/// Waits for the start, and repeats `work` until the end, or until the file `over` appears. `work` adds lines to the report.
fn repeat(over: Option<&Path>, mut work: impl FnMut(&mut Vec<Vec<u64>>) -> Result<()>) -> Result<Vec<Vec<u64>>> {
    let end = start()?;
    let mut lines = Vec::new();
    while clock::now() < end && !over.is_some_and(Path::exists) {
        work(&mut lines)?;
    }
    Ok(lines)
}

/// Pairs on a lock of its own. Reports the duration of each call.
fn pairs(dir: &str, name: &str, over: Option<&Path>) -> Result<Vec<Vec<u64>>> {
    let client = open(dir)?;
    repeat(over, |calls| {
        let held = timed(calls, || Held::acquire(&client, name))?;
        timed(calls, || held.release(&client))
    })
}

/// The same with plain SQLite.
fn plain(path: &str, id: i64) -> Result<Vec<Vec<u64>>> {
    let mut plain = Plain::open(Path::new(path))?;
    repeat(None, |calls| {
        timed(calls, || plain.acquire(id))?;
        timed(calls, || plain.release(id))
    })
}

/// Posts messages.
fn posts(dir: &str) -> Result<Vec<Vec<u64>>> {
    let client = open(dir)?;
    repeat(None, |calls| timed(calls, || messages::post(&client)))
}

/// The same with a file that is locked and flushed for each message.
fn appends(path: &str) -> Result<Vec<Vec<u64>>> {
    let mut file = LockedFile::open(Path::new(path))?;
    repeat(None, |calls| timed(calls, || file.append()))
}

fn timed<T>(calls: &mut Vec<Vec<u64>>, call: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = clock::now();
    let result = call()?;
    calls.push(vec![clock::now() - before]);
    Ok(result)
}

/// Acquires the shared lock again and again, and holds it for a moment. Reports each [`Handoff`].
fn handoffs(dir: &str) -> Result<Vec<Vec<u64>>> {
    let client = open(dir)?;
    repeat(None, |lines| {
        lines.push(hand_off(&client)?.to_line());
        Ok(())
    })
}

/// Uses the client's own `acquire` instead of the library, because it reports every sleep.
fn hand_off(client: &Client) -> Result<Handoff> {
    let resource = Resource { kind: Kind::Lock, name: Name::new(LOCK)? };
    let claim = GrantRequest {
        processes: vec![client.this_process().clone()],
        ..GrantRequest::new(HolderId::new(&banksman_adapters::ids::short("h"))?)
    };
    let ask = Ask::new(claim);
    let called = clock::now();
    let (mut joined, mut sleeps) = (0, 0);
    let mut on_sleep = |_: &_, _| {
        sleeps += 1;
        joined = if joined == 0 { clock::now() } else { joined };
    };
    let options = WaitOptions { wait: Some(TIMEOUT), progress: Some(&mut on_sleep), ..WaitOptions::default() };
    let grant = granted(client.acquire(resource.clone(), ask, options)?)?;
    let granted = clock::now();
    std::thread::sleep(HOLD);
    let released = clock::now();
    let input = lock::Input::Release { holder: grant.claim.holder, epoch: grant.epoch };
    client.ask(Request::Lock(resource.name, input), Vec::new())?;
    let (epoch, ticket) = (grant.epoch.0.unsigned_abs(), grant.ticket.map_or(0, |ticket| ticket.0.unsigned_abs()));
    Ok(Handoff { called, joined, granted, released, epoch, ticket, sleeps })
}

fn granted(acquisition: Acquisition) -> Result<Grant> {
    match acquisition {
        Acquisition::Answered { outcome: Outcome::Lock(lock::Outcome::Acquired(grant)), .. } => Ok(grant),
        other => Err(format!("the lock was not granted: {other:?}").into()),
    }
}

/// Waits for the lock that the bench holds, until the end.
fn idle(dir: &str) -> Result<Vec<Vec<u64>>> {
    let client = library(dir)?;
    let end = start()?;
    match client.lock(LOCK).acquire_within(clock::left(end)) {
        Err(banksman::Error::Busy { .. }) => Ok(Vec::new()),
        Ok(_) => Err("the lock was granted while the bench held it".into()),
        Err(error) => Err(error.into()),
    }
}
