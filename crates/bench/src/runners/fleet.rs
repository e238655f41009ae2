//! Runners that work together, and the times of their work.

use std::process::Child;
use std::time::{Duration, Instant};

use banksman_adapters::host;
use banksman_core::Seq;
use banksman_store::EventFilter;

use super::{SLOTS, Site};
use crate::bench::Result;
use crate::program;

/// Time limit of a round: longer than any takes.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Interval at which the progress of runners is polled.
const POLL: Duration = Duration::from_millis(20);

/// Runs the backlog with this many runners and run slots per runner. Returns the seconds from the first start of a task
/// to the last end, and the milliseconds from then until all runners are gone.
pub(super) fn finish(site: &Site, runners: usize, slots: usize) -> Result<(f64, f64)> {
    let after = site.project.reader()?.view().last_event()?;
    let mut fleet = Fleet::start(site, runners, slots, &["--until-idle"])?;
    fleet.wait()?;
    let gone = host::wall_ms();
    let last = ends(site, after)?.into_iter().max().ok_or("no task has ended")?;
    Ok((window(site, after, usize::MAX)?, (gone - last) as f64))
}

/// Runs this many runners until this many tasks have ended. Returns the seconds from the first start to that end.
pub(super) fn first(site: &Site, runners: usize, count: usize) -> Result<f64> {
    let mut reader = site.project.reader()?;
    let after = reader.view().last_event()?;
    let fleet = Fleet::start(site, runners, SLOTS, &[])?;
    let since = Instant::now();
    // Every task has at least three events, and all of them have begun before the last one ends.
    while reader.view().last_event()?.0 < after.0 + 2 * count as i64 || ends(site, after)?.len() < count {
        if since.elapsed() > TIMEOUT {
            return Err(format!("{count} tasks did not end within {} s", TIMEOUT.as_secs()).into());
        }
        std::thread::sleep(POLL);
    }
    drop(fleet);
    window(site, after, count)
}

/// Seconds from the first start of a task after an event to the end of the `count`th.
fn window(site: &Site, after: Seq, count: usize) -> Result<f64> {
    let start = moments(site, after, "task:started")?.into_iter().min().ok_or("no task has started")?;
    let mut ends = ends(site, after)?;
    ends.sort_unstable();
    let end = ends.get(count.min(ends.len()).saturating_sub(1)).ok_or("no task has ended")?;
    Ok((end - start) as f64 / 1e3)
}

fn ends(site: &Site, after: Seq) -> Result<Vec<i64>> {
    moments(site, after, "task:complete")
}

/// The times of events of a kind, in milliseconds.
fn moments(site: &Site, mut after: Seq, kind: &str) -> Result<Vec<i64>> {
    let mut reader = site.project.reader()?;
    let filter = EventFilter { kind: Some(kind.into()), ..EventFilter::default() };
    let mut moments = Vec::new();
    loop {
        let page = reader.view().events(after, &filter)?;
        moments.extend(page.events.iter().map(|event| event.wall.0));
        after = page.last;
        if !page.more {
            return Ok(moments);
        }
    }
}

/// Runners of one project. They are asked to leave when this value is dropped.
pub(super) struct Fleet(Vec<Child>);

impl Fleet {
    pub(super) fn start(site: &Site, runners: usize, slots: usize, args: &[&str]) -> Result<Fleet> {
        let mut fleet = Fleet(Vec::with_capacity(runners));
        for _ in 0..runners {
            fleet.0.push(site.runner(slots, args)?.spawn()?);
        }
        Ok(fleet)
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(Child::id)
    }

    /// Waits until all runners have left by themselves.
    fn wait(&mut self) -> Result<()> {
        let until = Instant::now() + TIMEOUT;
        for mut child in self.0.drain(..) {
            loop {
                match child.try_wait()? {
                    Some(status) if status.success() => break,
                    Some(status) => return Err(format!("a runner has left: {status}").into()),
                    None if Instant::now() > until => {
                        child.kill()?;
                        return Err("a runner did not end".into());
                    }
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.0.iter().for_each(|child| program::ask_to_leave(child.id()));
        for child in &mut self.0 {
            program::await_end(child);
        }
    }
}
