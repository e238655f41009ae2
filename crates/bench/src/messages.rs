//! The bus: appends next to a file that is locked and flushed for each message, reads of many messages, and the latency
//! of a follower.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use banksman_core::bus::{Draft, MessageType};
use banksman_core::{MessageId, Seq};
use banksman_engine::PostOutcome;
use banksman_runtime::{BusFollower, BusReader, Client, Project};
use banksman_store::MessageFilter;

use crate::bench::{Bench, Result};
use crate::process_group::ProcessGroup;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::{clock, single, worker};

const ROUND: Duration = Duration::from_millis(150);
const ROUNDS: usize = 31;
const PROCESSES: usize = 16;
const PROCESSES_ROUND: Duration = Duration::from_secs(2);
const PROCESSES_ROUNDS: usize = 5;
const THREADS: usize = 16;
const MANY: usize = 100_000;
const HEARD: usize = 200;

/// The body of a message: about as long as a sentence of an agent.
const BODY: &str = "the tests of the login pass; the next step is the page that shows which sessions of a user are alive";

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = one_writer(bench)?;
    rows.extend(many_processes(bench)?);
    rows.extend(many_threads(bench)?);
    rows.extend(reading(bench)?);
    Ok(rows)
}

pub(crate) fn post(client: &Client) -> Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = format!("m-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let draft = Draft {
        id: MessageId::new(&id)?,
        kind: MessageType::new("INFO")?,
        task: None,
        run: None,
        author: "bench".into(),
        parent: None,
        body: BODY.into(),
        attachments: Vec::new(),
    };
    match client.post(draft)? {
        PostOutcome::Posted(_) => Ok(()),
        other => Err(format!("the message was not posted: {other:?}").into()),
    }
}

/// A file of messages: each is appended under a lock, and flushed.
pub(crate) struct LockedFile(File);

impl LockedFile {
    pub(crate) fn open(path: &Path) -> Result<LockedFile> {
        Ok(LockedFile(OpenOptions::new().append(true).create(true).open(path)?))
    }

    pub(crate) fn append(&mut self) -> Result<()> {
        self.0.lock()?;
        let written = writeln!(self.0, "{BODY}").and_then(|()| self.0.sync_data());
        self.0.unlock()?;
        Ok(written?)
    }
}

fn one_writer(bench: &Bench) -> Result<Vec<Row>> {
    let (_project, client) = bench.project("messages-one")?;
    let mut file = LockedFile::open(&bench.place("messages-file")?.join("bus"))?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(ROUNDS) {
        ours.push(single::rate(ROUND, || post(&client))?);
        theirs.push(single::rate(ROUND, || file.append())?);
    }
    let ratio = Sample::of(&stats::ratios(&ours, &theirs));
    Ok(vec![
        Row::new("bus: 1 writer", Unit::MessagesPerSecond, Sample::of(&ours))
            .peer("a file with flock and fdatasync", Sample::of(&theirs), ratio)
            .target(Target::RatioAtLeast(0.6)),
    ])
}

fn many_processes(bench: &Bench) -> Result<Vec<Row>> {
    let (project, client) = bench.project("messages-processes")?;
    // Only the worker processes may have connections.
    drop(client);
    let dir = project.root().display().to_string();
    let file: PathBuf = bench.place("messages-processes-file")?.join("bus");
    let span = bench.span(PROCESSES_ROUND);
    let (mut ours, mut theirs, mut fairness, mut longest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds(PROCESSES_ROUNDS) {
        for (role, place, rates) in [("posts", dir.clone(), &mut ours), ("appends", file.display().to_string(), &mut theirs)] {
            let mut group = ProcessGroup::gather(role, (0..PROCESSES).map(|_| vec![place.clone()]))?;
            group.go(span)?;
            let reports = group.reports()?;
            let counts: Vec<f64> = reports.iter().map(|calls| calls.len() as f64).collect();
            rates.push(counts.iter().sum::<f64>() / span.as_secs_f64());
            if role == "posts" {
                fairness.push(stats::percentile(&counts, 0.0) / stats::percentile(&counts, 1.0));
                let calls: Vec<f64> = reports.iter().flatten().flatten().map(|nanos| *nanos as f64 / 1e6).collect();
                longest.push(stats::percentile(&calls, 1.0));
            }
        }
    }
    let ratio = Sample::of(&stats::ratios(&ours, &theirs));
    Ok(vec![
        Row::new("bus: 16 writer processes", Unit::MessagesPerSecond, Sample::of(&ours)).target(Target::AtLeast(2_900.0)),
        Row::new("bus: 16 writer processes, beside a file", Unit::MessagesPerSecond, Sample::of(&ours))
            .peer("a file with flock and fdatasync, 16 processes", Sample::of(&theirs), ratio)
            .target(Target::RatioAtLeast(1.0)),
        Row::new("bus: 16 writer processes: slowest / fastest writer", Unit::Ratio, Sample::of(&fairness))
            .target(Target::AtLeast(0.5)),
        Row::new("bus: 16 writer processes: longest append", Unit::Milliseconds, Sample::of(&longest))
            .target(Target::AtMost(440.0)),
    ])
}

fn many_threads(bench: &Bench) -> Result<Vec<Row>> {
    let (_project, client) = bench.project("messages-threads")?;
    let mut rates = Vec::new();
    for _ in 0..bench.rounds(PROCESSES_ROUNDS) {
        let start = Barrier::new(THREADS);
        let span = clock::nanos(bench.span(PROCESSES_ROUND));
        let began = clock::now();
        let counts = std::thread::scope(|scope| {
            let work = || {
                start.wait();
                let end = clock::now() + span;
                let mut posted = 0_u32;
                while clock::now() < end {
                    post(&client)?;
                    posted += 1;
                }
                Ok(posted)
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect::<Result<Vec<u32>>>()
        })?;
        let posted: f64 = counts.into_iter().map(f64::from).sum();
        rates.push(posted * 1e9 / (clock::now() - began) as f64);
    }
    Ok(vec![
        Row::new("bus: 16 threads of one process", Unit::MessagesPerSecond, Sample::of(&rates)).target(Target::AtLeast(20_000.0)),
    ])
}

fn reading(bench: &Bench) -> Result<Vec<Row>> {
    let (project, client) = bench.project("messages-read")?;
    std::thread::scope(|scope| {
        let fill = || (0..MANY / 64).try_for_each(|_| post(&client));
        let threads: Vec<_> = (0..64).map(|_| scope.spawn(fill)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    let (mut all, mut newest) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(9) {
        let before = clock::now();
        let read = read_after(&project, Seq(0))?;
        all.push((clock::now() - before) as f64 / 1e6);
        let last = project.reader()?.view().last_event()?;
        post(&client)?;
        let before = clock::now();
        let one = read_after(&project, last)?;
        newest.push((clock::now() - before) as f64 / 1e6);
        if read < MANY / 64 * 64 || one != 1 {
            return Err(format!("{read} messages were read, and {one}").into());
        }
    }
    Ok(vec![
        Row::new("bus: read 100,000 messages", Unit::Milliseconds, Sample::of(&all)).target(Target::AtMost(300.0)),
        Row::new("bus: read the newest after a known number", Unit::Milliseconds, Sample::of(&newest))
            .target(Target::AtMost(5.0)),
        Row::new(
            "bus: from an append to a follower in another process",
            Unit::Milliseconds,
            Sample::of(&follower_latencies(bench, &project, &client)?),
        )
        .beside("median")
        .target(Target::AtMost(3.0)),
    ])
}

fn read_after(project: &Project, after: Seq) -> Result<usize> {
    let mut bus = BusReader::new(project.reader()?, MessageFilter::default(), after);
    let mut read = 0;
    loop {
        match bus.next_page()?.len() {
            0 => return Ok(read),
            more => read += more,
        }
    }
}

/// The time from the call of an append until a follower has the message, in milliseconds.
fn follower_latencies(bench: &Bench, project: &Project, client: &Client) -> Result<Vec<f64>> {
    let dir = project.root().display().to_string();
    let mut command = Command::new(std::env::current_exe()?);
    command.args([worker::MARK, "follows", &dir]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("it was asked to be a pipe")?).lines();
    let mut line = || -> Result<String> { Ok(lines.next().ok_or("the follower has ended")??) };
    if line()? != worker::READY {
        return Err("the follower is not ready".into());
    }
    let mut times = Vec::new();
    for _ in 0..bench.rounds(HEARD) {
        // Longer than the interval at which followers are notified of changes.
        std::thread::sleep(Duration::from_millis(15));
        let before = clock::now();
        post(client)?;
        times.push((line()?.parse::<u64>()? - before) as f64 / 1e6);
    }
    child.kill()?;
    child.wait()?;
    Ok(times)
}

/// The process of a follower: prints the time of each message.
pub(crate) fn follow(dir: &str) -> Result<()> {
    let project = Project::find_at(Path::new(dir), None)?;
    let last = project.reader()?.view().last_event()?;
    let reader = BusReader::new(project.reader()?, MessageFilter::default(), last);
    let mut follower = BusFollower::open(&project, reader)?;
    let (never, _open) = std::os::unix::net::UnixStream::pair()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", worker::READY)?;
    out.flush()?;
    while let Some(messages) = follower.next(std::os::fd::AsFd::as_fd(&never))? {
        let now = clock::now();
        messages.iter().try_for_each(|_| writeln!(out, "{now}"))?;
        out.flush()?;
    }
    Ok(())
}
