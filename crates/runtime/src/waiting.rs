//! The real driver of a wait: probes processes, sleeps on descriptors, and asks again.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use banksman_adapters::host;
use banksman_core::event::Resource;
use banksman_core::resource::coordination::Outcome;
use banksman_core::resource::grant::{Ask, Waiting, WaitingProcess};
use banksman_core::{Liveness, ProcessId, RunId, Span, Stamp, TaskId};
use banksman_engine::{LockedBy, Reply, Taking, TaskOutcome, Wait, WaitAction, runs_in_the_way};
use banksman_store::Reader;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::client::{Cancel, Client};
use crate::error::Error;
use crate::inspect::{self, Unattended};
use crate::sessions::Sessions;
use crate::task_wait::{OpenRecorder, record_ended};
use crate::wakeups::Mailbox;

/// A timer that fires later than this was not just scheduled late: the process was stalled.
pub(crate) const STALL: Duration = Duration::from_secs(1);

/// Called with the position among the waiters and the elapsed time.
pub type Progress<'a> = &'a mut dyn FnMut(&Waiting, Duration);

/// How to record the ends of blocking runs that have no runner.
pub struct EndedRuns<'a> {
    pub files: &'a Sessions,
    pub open: OpenRecorder<'a>,
    /// Called with the blocking runs that have no runner, after each check of them.
    pub report: &'a dyn Fn(&[Unattended]),
}

/// How long to wait, and how to report progress.
#[derive(Default)]
pub struct WaitOptions<'a> {
    /// How long to wait at most; without it the answer comes at once.
    pub wait: Option<Duration>,
    /// Ends the wait when it becomes readable.
    pub cancel: Cancel<'a>,
    /// Called with the state of the wait: after every change, and every `tick`.
    pub progress: Option<Progress<'a>>,
    /// How often to report when nothing changes.
    pub tick: Option<Duration>,
    /// How to record the end of a blocking run; without it the wait leaves that to other processes.
    pub ended_runs: Option<EndedRuns<'a>>,
}

#[derive(Debug)]
pub enum Acquisition {
    Answered {
        outcome: Outcome,
        at: Stamp,
        /// When the last request was sent, in milliseconds since this machine's boot: the answer is no older.
        asked: i64,
    },
    /// The request id was used before, for something else.
    RequestReused,
    /// The time was up. The caller no longer waits.
    TimedOut(Waiting),
    /// The wait was cancelled. The caller no longer waits.
    Cancelled,
}

pub(crate) enum Woken {
    Called,
    Cancelled,
    Died(ProcessId, Liveness),
    Late(Duration),
    /// A process exited on which the end of a run depends.
    RunEnded,
    Time,
}

enum WaitOutcome {
    Answered(Box<Reply>, i64),
    TimedOut(Waiting, Vec<LockedBy>),
    Cancelled,
}

/// Asks until the request is granted, refused, timed out or cancelled.
pub(crate) fn acquire(
    client: &Client,
    resource: Resource,
    mut ask: Ask,
    mut patience: WaitOptions<'_>,
) -> Result<Acquisition, Error> {
    let mailbox = patience.wait.map(|_| client.wakeups().mailbox()).transpose()?;
    ask.wait = mailbox.as_ref().map(|mailbox| waiting_process(client, mailbox));
    let wait = Wait::new(resource, ask, span(client.config().poll_interval));
    let progress = patience.progress.take();
    let mut report = progress.map(|progress| move |_: &Wait, waiting: &Waiting, elapsed| progress(waiting, elapsed));
    let report = report.as_mut().map(|report| report as Report<'_>);
    Ok(match drive(client, wait, mailbox, &patience, report)? {
        WaitOutcome::Answered(reply, asked) => match *reply {
            Reply::Coordinate { outcome, at } => Acquisition::Answered { outcome, at, asked },
            Reply::RequestReused => Acquisition::RequestReused,
            reply => unreachable!("an acquisition was asked for, and the answer is {reply:?}"),
        },
        WaitOutcome::TimedOut(waiting, _) => Acquisition::TimedOut(waiting),
        WaitOutcome::Cancelled => Acquisition::Cancelled,
    })
}

#[derive(Debug)]
pub enum TaskClaim {
    Answered(TaskOutcome),
    /// The time was up. The claim waits no longer.
    TimedOut(Vec<LockedBy>),
    /// It was cancelled. The claim waits no longer.
    Cancelled,
}

/// Called with the blockers of the claim, and the elapsed time.
pub type ClaimProgress<'a> = &'a mut dyn FnMut(&[LockedBy], Duration);

/// Takes a task with all that it needs, and waits for it if the options say so.
pub(crate) fn take_task(
    client: &Client,
    task: TaskId,
    mut taking: Taking,
    patience: &WaitOptions<'_>,
    overtake: Duration,
    progress: Option<ClaimProgress<'_>>,
) -> Result<TaskClaim, Error> {
    let mailbox = patience.wait.map(|_| client.wakeups().mailbox()).transpose()?;
    taking.wait = mailbox.as_ref().map(|mailbox| (waiting_process(client, mailbox), span(overtake)));
    let wait = Wait::for_task(task, taking, span(client.config().poll_interval));
    let mut report = progress.map(|progress| move |wait: &Wait, _: &Waiting, elapsed| progress(wait.locked_by(), elapsed));
    let report = report.as_mut().map(|report| report as Report<'_>);
    Ok(match drive(client, wait, mailbox, patience, report)? {
        WaitOutcome::Answered(reply, _) => match *reply {
            Reply::Task(outcome) => TaskClaim::Answered(outcome),
            reply => unreachable!("a task was asked for, and the answer is {reply:?}"),
        },
        WaitOutcome::TimedOut(_, locked_by) => TaskClaim::TimedOut(locked_by),
        WaitOutcome::Cancelled => TaskClaim::Cancelled,
    })
}

fn waiting_process(client: &Client, mailbox: &Mailbox) -> WaitingProcess {
    WaitingProcess {
        process: client.this_process().clone(),
        address: Some(mailbox.address().clone()),
        // Across machines no other process can see this one die: its place lasts for a few of its own polls.
        lease: mailbox.is_remote().then(|| span(client.config().poll_interval * 3)),
    }
}

/// Called with the state of a wait.
type Report<'a> = &'a mut dyn FnMut(&Wait, &Waiting, Duration);

/// Carries out the actions of a wait until it ends.
fn drive(
    client: &Client,
    wait: Wait,
    mailbox: Option<Mailbox>,
    patience: &WaitOptions<'_>,
    mut report: Option<Report<'_>>,
) -> Result<WaitOutcome, Error> {
    let start = Instant::now();
    let mut guard = WaitGuard { client, wait, is_over: false };
    let wait = &mut guard.wait;
    let (mut action, mut asked) = (WaitAction::Ask, host::boot_ms());
    let mut runs = RunsInTheWay::new(client, patience.ended_runs.as_ref());
    loop {
        action = match action {
            WaitAction::Ask => {
                asked = host::boot_ms();
                wait.answer(client.call(wait.request())?)
            }
            WaitAction::Probe(processes) => {
                let found: Vec<_> = processes.into_iter().map(|process| (client.host().probe(&process), process)).collect();
                wait.probed(found.into_iter().map(|(liveness, process)| (process, liveness)))
            }
            WaitAction::Done(reply) if runs.record_ends(runs_in_the_way(&reply)) => WaitAction::Ask,
            WaitAction::Sleep { .. } if runs.record_ends(wait.runs_in_the_way()) => WaitAction::Ask,
            WaitAction::Done(reply) => {
                guard.is_over = true;
                return Ok(WaitOutcome::Answered(Box::new(reply), asked));
            }
            WaitAction::Sleep { watch, at_most, waiting } => {
                let left = patience.wait.unwrap_or_default().saturating_sub(start.elapsed());
                if left.is_zero() {
                    let locked_by = wait.locked_by().to_vec();
                    return guard.leave(WaitOutcome::TimedOut(waiting, locked_by));
                }
                if let Some(report) = &mut report {
                    report(wait, &waiting, start.elapsed());
                }
                let due = host::deadline(duration(at_most));
                let until = due.min(host::deadline(left));
                let until = patience.tick.map_or(until, |tick| until.min(host::deadline(tick)));
                let mailbox = mailbox.as_ref().expect("only a waiter with a mailbox sleeps");
                match sleep(client, mailbox.as_fd(), patience.cancel, &watch, &runs.ends, until) {
                    Woken::Cancelled => return guard.leave(WaitOutcome::Cancelled),
                    Woken::Called => {
                        mailbox.empty();
                        WaitAction::Ask
                    }
                    Woken::Died(process, liveness) => wait.probed([(process, liveness)]),
                    Woken::Late(late) => {
                        runs.is_due = true;
                        wait.stalled(span(late));
                        WaitAction::Ask
                    }
                    Woken::RunEnded => {
                        runs.is_due = true;
                        wait.probed([])
                    }
                    // A tick only reports the elapsed time; the store is asked when something is due.
                    Woken::Time if Instant::now() < due => wait.probed([]),
                    Woken::Time => {
                        runs.is_due = true;
                        WaitAction::Ask
                    }
                }
            }
        };
    }
}

/// The runs that block a wait. Their runners record their ends; for runs without a runner, the wait does.
struct RunsInTheWay<'c> {
    client: &'c Client,
    how: Option<&'c EndedRuns<'c>>,
    reader: Option<Reader>,
    /// The runs that were checked last.
    seen: BTreeSet<RunId>,
    /// Whether to check the same runs again.
    is_due: bool,
    /// Readable when a process exits on which the end of one of them depends, because that is no event.
    ends: Vec<OwnedFd>,
}

impl<'c> RunsInTheWay<'c> {
    fn new(client: &'c Client, how: Option<&'c EndedRuns<'c>>) -> RunsInTheWay<'c> {
        RunsInTheWay { client, how, reader: None, seen: BTreeSet::new(), is_due: true, ends: Vec::new() }
    }

    /// Records the ends of the runs that have ended without a runner. Returns whether to ask again.
    fn record_ends(&mut self, runs: BTreeSet<RunId>) -> bool {
        let Some(how) = self.how.filter(|_| self.is_due || self.seen != runs) else { return false };
        (self.is_due, self.seen) = (false, runs);
        self.ends.clear();
        // If reading fails, the wait continues without recording.
        let (recorded, unattended) =
            if self.seen.is_empty() { (false, Vec::new()) } else { self.record(how).unwrap_or_default() };
        (how.report)(&unattended);
        recorded
    }

    fn record(&mut self, how: &EndedRuns<'_>) -> Result<(bool, Vec<Unattended>), Error> {
        let project = self.client.project();
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(project.reader()?),
        };
        let recorded = record_ended(project, how.files, reader, how.open)?;
        let (ends, unattended) = inspect::in_the_way(reader, project, &self.seen)?;
        self.ends = ends;
        Ok((recorded, unattended))
    }
}

/// A position among the waiters. If its caller fails with an error or a panic, the drop gives up the position, so that
/// nothing is offered to it as long as this process lives.
struct WaitGuard<'c> {
    client: &'c Client,
    wait: Wait,
    is_over: bool,
}

impl WaitGuard<'_> {
    fn leave(mut self, outcome: WaitOutcome) -> Result<WaitOutcome, Error> {
        self.is_over = true;
        self.wait.leave().map(|request| self.client.call(request)).transpose()?;
        Ok(outcome)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.wait.leave().filter(|_| !self.is_over) {
            // The error that caused the drop is the one to report.
            self.client.call(request).ok();
        }
    }
}

/// Sleeps until something happens.
pub(crate) fn sleep(
    client: &Client,
    mailbox: std::os::fd::BorrowedFd<'_>,
    cancel: Cancel<'_>,
    watch: &[ProcessId],
    ends: &[OwnedFd],
    until: Instant,
) -> Woken {
    let mut pidfds: Vec<(&ProcessId, OwnedFd)> = Vec::with_capacity(watch.len());
    for process in watch {
        match client.host().watch(process) {
            Ok(pidfd) => pidfds.push((process, pidfd)),
            Err(liveness) => return Woken::Died(process.clone(), liveness),
        }
    }
    let mut fds = vec![PollFd::from_borrowed_fd(mailbox, PollFlags::IN)];
    fds.extend(pidfds.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)));
    fds.extend(ends.iter().map(|end| PollFd::new(end, PollFlags::IN)));
    fds.extend(cancel.map(|cancel| PollFd::from_borrowed_fd(cancel, PollFlags::IN)));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) => {}
            // Without descriptors to watch, ask again when the time is up.
            Err(_) | Ok(0) => {
                let late = Instant::now().saturating_duration_since(until);
                return if late > STALL { Woken::Late(late) } else { Woken::Time };
            }
            Ok(_) => break,
        }
    }
    let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    if cancel.is_some() && fds.last().is_some_and(ready) {
        return Woken::Cancelled;
    }
    if ready(&fds[0]) {
        return Woken::Called;
    }
    let died = pidfds.iter().zip(&fds[1..]).find(|(_, fd)| ready(fd));
    match died {
        Some(((process, _), _)) => Woken::Died((*process).clone(), Liveness::Dead),
        None if ends.is_empty() => Woken::Time,
        None => Woken::RunEnded,
    }
}

pub(crate) fn span(duration: Duration) -> Span {
    duration.into()
}

/// Rounded up, so that a deadline has passed when the sleeper checks it.
pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_ms().unsigned_abs() + 1)
}
