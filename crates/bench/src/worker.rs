//! What one worker process does: it opens its store, says that it is ready, hears when to start and when to stop,
//! and reports lines of numbers at the end.

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

/// What it says when it is ready.
pub(crate) const READY: &str = "ready";

/// How long a holder holds during the hand-offs.
const HOLD: Duration = Duration::from_millis(1);

/// Longer than any figure takes: who waits for so long has found a fault.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays the role that the arguments name.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let lines = match args[..] {
        ["pairs", dir, name] => pairs(dir, name)?,
        ["pairs-until", dir, name, over] => pairs_until(dir, name, Path::new(over))?,
        ["plain", path, id] => plain(path, id.parse()?)?,
        ["turns", dir] => turns(dir)?,
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

/// How many commits a database has seen, from another process: opening its files in this one, and closing them,
/// would drop the locks that its own connection holds.
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

/// Says that all is ready, and sleeps until the start. Returns when to stop.
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

/// Pairs on one lock of its own. Reports how long each call took.
fn pairs(dir: &str, name: &str) -> Result<Vec<Vec<u64>>> {
    let client = open(dir)?;
    let end = start()?;
    let mut calls = Vec::new();
    while clock::now() < end {
        let held = timed(&mut calls, || Held::acquire(&client, name))?;
        timed(&mut calls, || held.release(&client))?;
    }
    Ok(calls)
}

/// The same until a file appears.
fn pairs_until(dir: &str, name: &str, over: &Path) -> Result<Vec<Vec<u64>>> {
    let client = open(dir)?;
    let end = start()?;
    let mut calls = Vec::new();
    while clock::now() < end && !over.exists() {
        let held = timed(&mut calls, || Held::acquire(&client, name))?;
        timed(&mut calls, || held.release(&client))?;
    }
    Ok(calls)
}

/// The same with plain SQLite.
fn plain(path: &str, id: i64) -> Result<Vec<Vec<u64>>> {
    let mut plain = Plain::open(Path::new(path))?;
    let end = start()?;
    let mut calls = Vec::new();
    while clock::now() < end {
        timed(&mut calls, || plain.acquire(id))?;
        timed(&mut calls, || plain.release(id))?;
    }
    Ok(calls)
}

/// Posts messages.
fn posts(dir: &str) -> Result<Vec<Vec<u64>>> {
    let client = open(dir)?;
    let end = start()?;
    let mut calls = Vec::new();
    while clock::now() < end {
        timed(&mut calls, || messages::post(&client))?;
    }
    Ok(calls)
}

/// The same with a file that is locked and flushed for each message.
fn appends(path: &str) -> Result<Vec<Vec<u64>>> {
    let mut file = LockedFile::open(Path::new(path))?;
    let end = start()?;
    let mut calls = Vec::new();
    while clock::now() < end {
        timed(&mut calls, || file.append())?;
    }
    Ok(calls)
}

fn timed<T>(calls: &mut Vec<Vec<u64>>, call: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = clock::now();
    let result = call()?;
    calls.push(vec![clock::now() - before]);
    Ok(result)
}

/// Waits for the one lock, holds it for a moment, and again. Reports each [`Handoff`].
fn turns(dir: &str) -> Result<Vec<Vec<u64>>> {
    let client = open(dir)?;
    let end = start()?;
    let mut turns = Vec::new();
    while clock::now() < end {
        turns.push(turn(&client)?.to_line());
    }
    Ok(turns)
}

/// Uses the client's own `acquire`, not the builder on top of it, because that one tells of every sleep.
fn turn(client: &Client) -> Result<Handoff> {
    let resource = Resource { kind: Kind::Lock, name: Name::new(LOCK)? };
    let claim = GrantRequest {
        processes: vec![client.this_process().clone()],
        ..GrantRequest::new(HolderId::new(&banksman_adapters::ids::short("h"))?)
    };
    let ask = Ask::new(claim);
    let called = clock::now();
    let (mut joined, mut sleeps) = (0, 0);
    let mut falls_asleep = |_: &_, _| {
        sleeps += 1;
        joined = if joined == 0 { clock::now() } else { joined };
    };
    let patience = WaitOptions { wait: Some(PATIENCE), progress: Some(&mut falls_asleep), ..WaitOptions::default() };
    let grant = granted(client.acquire(resource.clone(), ask, patience)?)?;
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

/// Waits for the lock that the bench holds, until the time is up.
fn idle(dir: &str) -> Result<Vec<Vec<u64>>> {
    let client = library(dir)?;
    let end = start()?;
    match client.lock(LOCK).acquire_within(clock::left(end)) {
        Err(banksman::Error::Busy { .. }) => Ok(Vec::new()),
        Ok(_) => Err("the lock was granted while the bench held it".into()),
        Err(error) => Err(error.into()),
    }
}
