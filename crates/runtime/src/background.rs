//! What a runner does on separate threads: whatever may wait for a keeper, cleaning up sessions whose keeper was
//! killed, notifying people, and gathering the inputs of guards. Every job is answered, even if its thread fails,
//! because no job is requested twice. Every thread ends after a limited time.

mod sessions;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;
use std::time::{Duration, Instant};

use banksman_adapters::keeper::{self, Record, Session, Silence};
use banksman_adapters::notify::{self, Channel, Delivery};
use banksman_core::backlog::RunEndRecord;
use banksman_core::guard::GuardInputs;
use banksman_core::landing::Entry;
use banksman_core::mailbox::Receipt;
use banksman_core::{MessageId, Name, Notice, NoticeKind, Pipeline, RunId, Seq, TaskId};
use banksman_engine::Vitals;

use crate::client::Client;
use crate::guards::{self, Answers};
use crate::landing::{self, LandingError, WorkOptions};
use crate::project::Project;

/// How long the commands of guards may take to end when the runner does: slightly longer than their supervisors allow them.
const GUARDS_END_WITHIN: Duration = Duration::from_secs(6);

/// How long a job waits for another process that works for the same merge queue before it starts again.
const LANDS_AFTER: Duration = Duration::from_secs(600);

pub(crate) enum JobResult {
    /// The remaining processes of a session were ended.
    Swept(RunId, RunEndRecord),
    /// It cannot be proven that no process of the session is left, for this reason.
    Unproven(RunId, Box<str>),
    /// The state of a session is known.
    Recovered(RunId, Box<Recovered>),
    /// The state of a session is unknown, or its remaining processes could not be ended; with the reason, if people
    /// should know.
    Unclear(RunId, Option<String>),
    /// The vitals of a session; or, if its keeper does not answer, the reason.
    Pulse(RunId, Result<Vitals, Option<String>>),
    /// The keeper of a session that is to end cannot end it.
    Silent(RunId, Record, Silence),
    /// The merge queue of a branch has no work left, or the work failed.
    Landed(Name, Result<(), Box<str>>),
    /// The state to which that job has brought an entry.
    LandingStands(Box<Entry>),
    Done,
    /// The inputs of the guards of a pipeline, and how long they stay fresh.
    Gathered(Box<Pipeline>, Box<GuardInputs>, Option<Instant>),
    /// Whether the session of a task has taken a message for its next turn.
    Delivered(Seq, Result<(), Box<str>>),
    /// Whether people were notified.
    Notified(Seq, Result<(), NotNotified>),
}

/// A run whose session is to be found again.
pub(crate) struct Recovery {
    pub(crate) run: RunId,
    pub(crate) record: PathBuf,
    pub(crate) owner_epoch: i64,
    /// Whether the machine was not restarted since the run began.
    pub(crate) is_of_this_boot: bool,
}

pub(crate) enum Recovered {
    /// The machine was restarted: no process of the session is alive.
    Rebooted,
    /// The session left no record, and never will.
    Nothing,
    Ended(keeper::SessionEnd),
    /// The session is alive, and this runner supervises it now.
    Adopted(Session),
    /// Its keeper was killed.
    Dead(Record),
}

pub(crate) struct NotNotified {
    pub(crate) error: Box<str>,
    /// Whether another attempt is useless.
    pub(crate) is_final: bool,
}

/// Why a job gave no result.
struct Undone {
    why: String,
    /// Whether the job has begun: then it is unknown how far it came.
    has_begun: bool,
}

pub(crate) enum Notifying {
    /// The notice is being sent, except over the channels in `refused`, though the settings name them.
    Begun {
        /// The channels and the reasons.
        refused: Vec<String>,
    },
    /// No setting asks for this kind of notice, or there is no channel.
    Unwanted,
}

/// The threads, and the channel on which they report their results.
pub(crate) struct Background {
    sender: Sender<(JobResult, Vec<Channel>)>,
    receiver: Receiver<(JobResult, Vec<Channel>)>,
    signal_reader: UnixStream,
    signal_writer: Arc<UnixStream>,
    /// The channels that have delivered a notice, where another channel has failed.
    delivered: BTreeMap<Seq, BTreeSet<Channel>>,
    /// What the commands of guards have answered.
    answers: Arc<Answers>,
    /// The guard checks that are running, each with a pipe that cancels it when dropped.
    guard_checks: BTreeMap<TaskId, PipeWriter>,
    /// The merge queues with a running job, each with a pipe that cancels it when dropped.
    landings: BTreeMap<Name, PipeWriter>,
    /// Writes the report that is sent when the backlog is finished.
    report: Option<fn(&Project) -> Option<String>>,
}

impl Background {
    pub(crate) fn new(report: Option<fn(&Project) -> Option<String>>) -> std::io::Result<Background> {
        let (sender, receiver) = mpsc::channel();
        let (signal_reader, signal_writer) = UnixStream::pair()?;
        signal_reader.set_nonblocking(true)?;
        let (delivered, answers, guard_checks, landings) = (BTreeMap::new(), Arc::default(), BTreeMap::new(), BTreeMap::new());
        let signal_writer = Arc::new(signal_writer);
        Ok(Background { sender, receiver, signal_reader, signal_writer, delivered, answers, guard_checks, landings, report })
    }

    /// Works for the merge queue of a branch until its work is done. If another process works for it, waits for that to
    /// end.
    pub(crate) fn land(&mut self, project: &Project, target: Name) {
        // Without a pipe the job cannot be cancelled.
        let (stop, job) = std::io::pipe().ok().unzip();
        self.landings.extend(job.map(|job| (target.clone(), job)));
        let (project, failed) = (project.clone(), target.clone());
        let (sender, signal_writer) = (self.sender.clone(), Arc::clone(&self.signal_writer));
        let undone = move |undone: Undone| JobResult::Landed(failed, Err(undone.why.into()));
        self.run(undone, move || {
            let report = |entry: &Entry| {
                sender.send((JobResult::LandingStands(Box::new(entry.clone())), Vec::new())).ok();
                (&*signal_writer).write_all(b"!").ok();
            };
            let result = land(&project, &target, stop.as_ref().map(PipeReader::as_fd), &report);
            JobResult::Landed(target, result.map_err(|error| error.to_string().into()))
        });
    }

    /// Cancels the guard checks and landings, and waits a moment for them and for `cleared`.
    pub(crate) fn dismiss(mut self, patience: Duration, cleared: Receiver<()>) {
        cleared.recv_timeout(patience).ok();
        let until = Instant::now() + GUARDS_END_WITHIN;
        let mut open: BTreeSet<TaskId> = std::mem::take(&mut self.guard_checks).into_keys().collect();
        let mut landings: BTreeSet<Name> = std::mem::take(&mut self.landings).into_keys().collect();
        while !open.is_empty() || !landings.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(left) {
                Ok((JobResult::Gathered(pipeline, ..), _)) => drop(open.remove(&pipeline.id)),
                Ok((JobResult::Landed(target, _), _)) => drop(landings.remove(&target)),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Sends a message that waits for a task into its live session, as its next turn.
    pub(crate) fn deliver(&self, project: &Project, target: TaskId, message: MessageId, entry: Seq) {
        let project = project.clone();
        let undone = move |undone: Undone| JobResult::Delivered(entry, Err(undone.why.into()));
        self.run(undone, move || {
            let result = match Client::open(&project).and_then(|client| client.deliver(&target, &message)) {
                Ok(Receipt::Queued) => Err("its session does not take it".into()),
                Ok(Receipt::Unknown) => Err("nobody knows whether its session has it".into()),
                Ok(Receipt::Sent | Receipt::Delivered | Receipt::Read | Receipt::Undelivered) => Ok(()),
                Err(error) => Err(error.to_string().into()),
            };
            JobResult::Delivered(entry, result)
        });
    }

    /// Sends a notice over all channels that the settings name and that have not delivered it yet.
    pub(crate) fn notify(&self, project: &Project, entry: Seq, notice: &Notice) -> Notifying {
        let outlets = project.outlets();
        if !project.config().notify.on.contains(&notice.kind) || outlets.is_empty() {
            return Notifying::Unwanted;
        }
        let done = self.delivered.get(&entry).cloned().unwrap_or_default();
        let is_report = notice.kind == NoticeKind::BacklogFinished && project.config().report_notify;
        let report = self.report.filter(|_| is_report).map(|report| (report, project.clone()));
        let mut notice = notify::Notice {
            kind: notice.kind,
            subject: notice.subject.to_string(),
            text: notice.text.to_string(),
            project: project.root().into(),
            data: serde_json::Value::Null,
        };
        let channels = outlets.channels;
        // A send that has begun may have arrived, and a notice is never sent twice over one channel.
        let not_notified = move |undone: Undone| {
            JobResult::Notified(entry, Err(NotNotified { error: undone.why.into(), is_final: undone.has_begun }))
        };
        self.start(Builder::new(), not_notified, move || {
            if let Some(text) = report.and_then(|(report, project)| report(&project)) {
                notice.text = format!("{}\n\n{text}", notice.text);
            }
            // Equal in all attempts, so that a receiver recognizes a repetition.
            let delivery = format!("n-{entry}");
            let mut delivered = Vec::new();
            let (mut errors, mut is_final) = (Vec::new(), true);
            for channel in channels.list().into_iter().filter(|channel| !done.contains(channel)) {
                match notify::send_to(&channels, channel, &notice, &delivery) {
                    Ok(()) => delivered.push(channel),
                    // The notice may have arrived, and is never sent twice over one channel.
                    Err(error) if error.delivery() == Delivery::Unknown => delivered.push(channel),
                    Err(error) => {
                        is_final &= error.delivery() == Delivery::Final;
                        errors.push(format!("{}: {error}", channel.as_str()));
                    }
                }
            }
            let result = if errors.is_empty() { Ok(()) } else { Err(NotNotified { error: errors.join("; ").into(), is_final }) };
            (JobResult::Notified(entry, result), delivered)
        });
        let refused = outlets.refused.iter().map(|(channel, refusal)| format!("{}: {refusal}", channel.as_str()));
        Notifying::Begun { refused: refused.collect() }
    }

    /// Gathers the inputs of the guards of a pipeline.
    pub(crate) fn check_guards(&mut self, project: &Project, pipeline: Box<Pipeline>) {
        // Without a pipe the check cannot be cancelled.
        let (stop, check) = std::io::pipe().ok().unzip();
        self.guard_checks.extend(check.map(|check| (pipeline.id.clone(), check)));
        let (project, answers, asked) = (project.clone(), Arc::clone(&self.answers), pipeline.clone());
        let unknown = move |undone: Undone| {
            let inputs = guards::nothing_known(&asked, &undone.why);
            JobResult::Gathered(asked, Box::new(inputs), None)
        };
        self.run(unknown, move || {
            let (inputs, fresh_until) = answers.gather(&project, &pipeline, stop.as_ref().map(PipeReader::as_fd));
            JobResult::Gathered(pipeline, Box::new(inputs), fresh_until)
        });
    }

    /// Cancels the guard check of a pipeline: its commands are ended, and the check reports what it has by then.
    pub(crate) fn stop_checking(&mut self, pipeline: &TaskId) {
        self.guard_checks.remove(pipeline);
    }

    /// Runs a job that sends no notices on a thread.
    fn run(
        &self,
        undone: impl FnOnce(Undone) -> JobResult + Clone + Send + 'static,
        work: impl FnOnce() -> JobResult + Send + 'static,
    ) {
        self.start(Builder::new(), undone, move || (work(), Vec::new()));
    }

    /// Runs a job on a thread, and reports `undone` if that fails.
    fn start(
        &self,
        thread: Builder,
        undone: impl FnOnce(Undone) -> JobResult + Clone + Send + 'static,
        work: impl FnOnce() -> (JobResult, Vec<Channel>) + Send + 'static,
    ) {
        let (sender, signal_writer) = (self.sender.clone(), Arc::clone(&self.signal_writer));
        let report = move |done| {
            // If the runner has exited, the next one repeats the job.
            sender.send(done).ok();
            (&*signal_writer).write_all(b"!").ok();
        };
        let (then, otherwise) = (report.clone(), undone.clone());
        // No other code would report a panic of this thread.
        let begun = thread.spawn(move || match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => then(done),
            Err(panic) => then((otherwise(Undone { why: panic_message(&*panic), has_begun: true }), Vec::new())),
        });
        if let Err(error) = begun {
            let why = format!("no thread can be started: {error}");
            report((undone(Undone { why, has_begun: false }), Vec::new()));
        }
    }

    /// Takes the results since the last call.
    pub(crate) fn take(&mut self) -> Vec<JobResult> {
        let mut bytes = [0; 64];
        while matches!(self.signal_reader.read(&mut bytes), Ok(read) if read > 0) {}
        let mut results = Vec::new();
        for (result, channels) in self.receiver.try_iter() {
            match &result {
                JobResult::Notified(entry, Ok(())) => drop(self.delivered.remove(entry)),
                JobResult::Notified(entry, Err(_)) => self.delivered.entry(*entry).or_default().extend(channels),
                JobResult::Gathered(pipeline, ..) => drop(self.guard_checks.remove(&pipeline.id)),
                JobResult::Landed(target, _) => drop(self.landings.remove(target)),
                JobResult::Swept(..) | JobResult::Unproven(..) | JobResult::Recovered(..) | JobResult::Unclear(..) => {}
                JobResult::Pulse(..) | JobResult::Silent(..) | JobResult::LandingStands(_) => {}
                JobResult::Delivered(..) | JobResult::Done => {}
            }
            results.push(result);
        }
        results
    }
}

/// Works for the merge queue of a branch, with a connection of its own.
fn land(project: &Project, target: &Name, cancel: Option<BorrowedFd<'_>>, tell: &dyn Fn(&Entry)) -> Result<(), LandingError> {
    let client = project.open()?;
    let lander = landing::lander(project)?;
    let options = WorkOptions { goals: Vec::new(), wait: LANDS_AFTER, cancel, tell: Some(tell) };
    landing::work(&client, &lander, target, &options).map(drop)
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("this is a mistake in banksman: {}", text.unwrap_or("a thread panicked"))
}

impl AsFd for Background {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal_reader.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    /// Waits for a result, like a runner that sleeps.
    fn next(background: &mut Background) -> JobResult {
        let timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
        let woken = poll(&mut [PollFd::new(&*background, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(woken, 1, "the job reports nothing");
        background.take().pop().unwrap()
    }

    fn not_notified(undone: Undone) -> JobResult {
        JobResult::Notified(Seq(1), Err(NotNotified { error: undone.why.into(), is_final: undone.has_begun }))
    }

    #[test]
    fn a_thread_that_panics_or_cannot_start_is_reported() {
        let mut background = Background::new(None).unwrap();
        let done = || (JobResult::Notified(Seq(1), Ok(())), Vec::new());
        background.start(Builder::new(), not_notified, done);
        assert!(matches!(next(&mut background), JobResult::Notified(Seq(1), Ok(()))));
        background.start(Builder::new(), not_notified, || panic!("so {}", "be it"));
        let JobResult::Notified(_, Err(NotNotified { error, is_final: true })) = next(&mut background) else { panic!() };
        assert_eq!(&*error, "this is a mistake in banksman: so be it");
        // No machine has room for such a stack.
        background.start(Builder::new().stack_size(1 << 60), not_notified, done);
        let JobResult::Notified(_, Err(NotNotified { error, is_final: false })) = next(&mut background) else { panic!() };
        assert!(error.starts_with("no thread can be started: "), "{error}");
    }
}
