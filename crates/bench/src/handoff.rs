//! One lock, one holder, 16 waiters, each a process: the speed and the order of its hand-offs, and the cost of waiting.

use std::time::{Duration, Instant};

use banksman_runtime::Project;

use crate::bench::{Bench, Result};
use crate::process_group::ProcessGroup;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::{machine, proc, threads, worker};

pub(crate) const LOCK: &str = "baton";

const WAITERS: usize = 16;
const ROUND: Duration = Duration::from_secs(4);
const ROUNDS: usize = 3;
const FLUSHES: usize = 200;
const IDLE: Duration = Duration::from_secs(10);

/// One hold of the lock, with times of the clock that all processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handoff {
    /// Just before the request.
    pub(crate) called: u64,
    /// When its process waited and first slept; 0 if the lock was free.
    pub(crate) joined: u64,
    /// When `acquire` returned.
    pub(crate) granted: u64,
    /// Just before `release` was called.
    pub(crate) released: u64,
    pub(crate) epoch: u64,
    /// 0 if the lock was free.
    pub(crate) ticket: u64,
    /// How often its process slept while it waited: every wakeup but the last was useless.
    pub(crate) sleeps: u64,
}

impl Handoff {
    pub(crate) fn to_line(self) -> Vec<u64> {
        let Handoff { called, joined, granted, released, epoch, ticket, sleeps } = self;
        vec![called, joined, granted, released, epoch, ticket, sleeps]
    }

    fn from_line(line: &[u64]) -> Result<Handoff> {
        match *line {
            [called, joined, granted, released, epoch, ticket, sleeps] => {
                Ok(Handoff { called, joined, granted, released, epoch, ticket, sleeps })
            }
            _ => Err("a worker process reported something else than a turn".into()),
        }
    }
}

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    // The speed of the disk may change during a run, so each round measures its own Fs.
    let mut flush = Vec::new();
    let (mut p50, mut p99, mut wakes, mut commits, mut wrong) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0);
    for round in 0..bench.rounds(ROUNDS) {
        let (project, client) = bench.project(&format!("handoff-{round}"))?;
        flush.push(machine::flush_time(bench.dir(), FLUSHES)?.as_secs_f64() * 1e3);
        let (holds, written) = pass_round(&project, bench.span(ROUND))?;
        // The last process to close the store removes the index of its WAL, from which the commits are read.
        drop(client);
        flush.push(machine::flush_time(bench.dir(), FLUSHES)?.as_secs_f64() * 1e3);
        let times = handoffs_ms(&holds);
        p50.push(stats::percentile(&times, 0.5));
        p99.push(stats::percentile(&times, 0.99));
        let waited = holds.iter().filter(|hold| hold.sleeps > 0).count();
        wakes.push(holds.iter().map(|hold| hold.sleeps as f64).sum::<f64>() / waited as f64);
        commits.push(written as f64 / holds.len() as f64);
        wrong += inversions(&holds);
    }
    let flush_ms = Sample::of(&flush).median;
    let limit = format!("2 Fs = {:.2} ms, between these rounds", 2.0 * flush_ms);
    let (idle_cpu, look) = idle(bench)?;
    Ok(vec![
        Row::new("hand-off between processes, 16 waiters: p50", Unit::Milliseconds, Sample::of(&p50))
            .beside(limit)
            .target(Target::AtMost(1.0 + 2.0 * flush_ms)),
        Row::new("hand-off: p99", Unit::Milliseconds, Sample::of(&p99)).target(Target::AtMost(10.0)),
        Row::new("hand-off: wakes per release", Unit::Count, Sample::of(&wakes))
            .beside("sleeps in line per grant, counted by the waiters")
            .target(Target::AtMost(1.05)),
        Row::new("hand-off: commits per turn", Unit::Count, Sample::of(&commits)).beside("join, release, take up: 3"),
        Row::new("hand-off: inversions", Unit::Count, Sample::once(wrong as f64))
            .beside("grants against the order of tickets or of arrival")
            .target(Target::AtMost(0.0)),
        Row::new("an idle waiter's CPU (worst of 16)", Unit::Percent, idle_cpu).beside(look).target(Target::AtMost(0.1)),
    ])
}

/// Passes the lock around. Returns every hold in the order of the grants, and the number of commits.
fn pass_round(project: &Project, span: Duration) -> Result<(Vec<Handoff>, u64)> {
    let dir = project.root().display().to_string();
    let mut group = ProcessGroup::gather("handoffs", (0..=WAITERS).map(|_| vec![dir.clone()]))?;
    let before = worker::commits(&threads::index_file(project))?;
    group.go(span)?;
    let reports = group.reports()?;
    let after = worker::commits(&threads::index_file(project))?;
    let mut holds = reports.iter().flatten().map(|line| Handoff::from_line(line)).collect::<Result<Vec<_>>>()?;
    holds.sort_by_key(|hold| hold.epoch);
    Ok((holds, after - before))
}

/// The time from just before a release until the next holder's `acquire` returned, for holders that were already
/// waiting.
fn handoffs_ms(holds: &[Handoff]) -> Vec<f64> {
    let handed = holds.windows(2).filter(|pair| pair[1].joined != 0 && pair[1].joined < pair[0].released);
    handed.map(|pair| (pair[1].granted as f64 - pair[0].released as f64) / 1e6).collect()
}

/// Grants out of order: with a ticket above that of a later grant, or to a process that asked when the holder of a
/// later grant already slept.
fn inversions(holds: &[Handoff]) -> usize {
    let (mut least_ticket, mut first_joined) = (u64::MAX, u64::MAX);
    let mut wrong = 0;
    for hold in holds.iter().rev() {
        let overtook = hold.ticket > least_ticket || hold.called > first_joined;
        wrong += usize::from(overtook);
        if hold.ticket != 0 {
            least_ticket = least_ticket.min(hold.ticket);
            first_joined = first_joined.min(hold.joined.max(1));
        }
    }
    wrong
}

/// The share of a core that an idle waiter uses, and how often one woke up.
fn idle(bench: &Bench) -> Result<(Sample, String)> {
    let (project, _) = bench.project("idle")?;
    let client = Bench::library(&project)?;
    let held = client.lock(LOCK).try_acquire()?;
    let span = bench.span(IDLE);
    let mut group = ProcessGroup::gather("idle", (0..WAITERS).map(|_| vec![project.root().display().to_string()]))?;
    // All waiters must be registered before the measurement starts, and stay until it ends.
    group.go(span + Duration::from_secs(3))?;
    await_waiters(&project)?;
    let pids = group.pids();
    let before = pids.iter().map(|pid| proc::used(*pid)).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(span);
    let after = pids.iter().map(|pid| proc::used(*pid)).collect::<Result<Vec<_>>>()?;
    group.reports()?;
    held.release()?;
    let shares = before.iter().zip(&after).map(|(before, after)| (after.0 - before.0) as f64 / span.as_nanos() as f64 * 100.0);
    let switches: u64 = before.iter().zip(&after).map(|(before, after)| after.1 - before.1).sum();
    let shares: Vec<f64> = shares.collect();
    let worst = stats::percentile(&shares, 1.0);
    let each = switches as f64 / WAITERS as f64;
    Ok((Sample::once(worst), format!("{:.0} s, {each:.1} voluntary switches each", span.as_secs_f64())))
}

fn await_waiters(project: &Project) -> Result<()> {
    let mut reader = project.reader()?;
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        let locks = reader.view().snapshot()?.tables.coordination.locks;
        if locks.values().map(|lock| lock.waiters.len()).sum::<usize>() == WAITERS {
            // Their work until then is not part of the measurement.
            std::thread::sleep(Duration::from_millis(200));
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err("the waiters did not get in line within 2 s".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(epoch: u64, ticket: u64, called: u64, joined: u64) -> Handoff {
        Handoff { called, joined, granted: epoch * 10, released: epoch * 10 + 5, epoch, ticket, sleeps: 1 }
    }

    #[test]
    fn inversions_are_counted() {
        assert_eq!(inversions(&[hold(1, 0, 1, 0), hold(2, 1, 2, 3), hold(3, 2, 3, 4)]), 0);
        assert_eq!(inversions(&[hold(2, 2, 2, 3), hold(3, 1, 3, 4)]), 1, "tickets");
        assert_eq!(inversions(&[hold(2, 0, 9, 0), hold(3, 1, 3, 4)]), 1, "granted before an earlier waiter");
    }

    #[test]
    fn only_waiters_count_as_hand_offs() {
        let holds = [hold(1, 0, 1, 0), hold(2, 1, 2, 3), hold(3, 2, 26, 27)];
        assert_eq!(handoffs_ms(&holds).len(), 1);
    }
}
