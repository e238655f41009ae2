//! The status line at the bottom of the terminal of a runner, rewritten when the project changes.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use banksman_core::Status;
use banksman_core::backlog::Run;
use banksman_runtime::{Follower, Project};
use banksman_store::{EventFilter, Key, Reader};

use crate::failure::Failure;
use crate::output_queue::{OutputQueue, StatusLine};
use crate::printer::{DIM, GREEN, RED, YELLOW};

/// The shortest time between two updates.
const EVERY: Duration = Duration::from_millis(250);

/// The number of running tasks that the line names.
const NAMED: usize = 3;

/// The status line, until it is dropped.
pub(super) struct LiveLine {
    cancel: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl LiveLine {
    /// Starts to keep the line up to date. If that fails, the runner works without it.
    pub(super) fn start(project: &Project, output: &OutputQueue) -> Option<LiveLine> {
        let (cancel, cancelled) = UnixStream::pair().ok()?;
        let mut reader = project.reader().ok()?;
        let follower = project.follow(reader.view().last_event().ok()?).ok()?;
        let line = output.status_line();
        let thread = std::thread::Builder::new().name("banksman-line".into());
        let keep = move || keep(&mut reader, follower, &cancelled, &line).unwrap_or_default();
        Some(LiveLine { cancel: Some(cancel), thread: Some(thread.spawn(keep).ok()?) })
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        drop(self.cancel.take());
        self.thread.take().map(JoinHandle::join);
    }
}

fn keep(reader: &mut Reader, mut follower: Follower, cancelled: &UnixStream, line: &StatusLine) -> Result<(), Failure> {
    let (mut is_stale, mut last) = (true, None::<Instant>);
    loop {
        if is_stale && last.is_none_or(|last| last.elapsed() >= EVERY) {
            line.show(summary(reader)?);
            (is_stale, last) = (false, Some(Instant::now()));
        }
        let wait = if is_stale { EVERY } else { Duration::from_secs(3_600) };
        if !follower.wait_for(cancelled.as_fd(), &[], wait) {
            line.show(String::new());
            return Ok(());
        }
        is_stale |= !follower.next(&EventFilter::default())?.is_empty();
    }
}

/// `5 of 12 done · 2 running · 3 pending · 1 failed · 1 needs you · now: Build, Login`. The terminal truncates it: the
/// titles first.
fn summary(reader: &mut Reader) -> Result<String, Failure> {
    let counts = reader.view().counts()?.by_status;
    let rows = reader.view().load(&[Key::Live, Key::OpenDecisions].into())?.tables.backlog;
    let count = |status: Status| counts.get(&status).copied().unwrap_or_default();
    let mut live: Vec<&Run> = rows.runs.values().filter(|run| run.is_live()).collect();
    live.sort_by_key(|run| run.epoch);
    let titles: Vec<&str> =
        live.iter().filter_map(|run| rows.tasks.get(&run.task)).map(|task| task.spec.title.as_str()).collect();
    let more = if titles.len() > NAMED { ", …" } else { "" };
    let all: u64 = counts.values().sum();
    let mut parts = vec![format!("{GREEN}{} of {all} done{GREEN:#}", count(Status::Completed))];
    parts.push(if titles.is_empty() { "nothing is running".to_owned() } else { format!("{} running", titles.len()) });
    for (status, style) in [(Status::Pending, DIM), (Status::Blocked, YELLOW), (Status::Landing, DIM), (Status::Failed, RED)] {
        let number = count(status);
        parts.extend((number > 0).then(|| format!("{style}{number} {status}{style:#}")));
    }
    let asked = rows.decisions.len();
    parts.extend((asked > 0).then(|| format!("{RED}{asked} {} you{RED:#}", if asked == 1 { "needs" } else { "need" })));
    parts.extend(rows.pause.map(|_| format!("{YELLOW}paused{YELLOW:#}")));
    parts.extend((!titles.is_empty()).then(|| format!("now: {}{more}", titles[..titles.len().min(NAMED)].join(", "))));
    Ok(parts.join(" · "))
}
