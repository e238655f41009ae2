//! What a runner does on threads of their own: whatever may wait for a keeper, clearing sessions away whose keeper was killed,
//! telling people, and looking at what guards ask about. Whatever happens to a thread, what it was to do is answered: nobody would
//! ask a second time. Every one of them ends after a limited time.

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

/// How long the commands of guards may take to end when the runner does: a little longer than their supervisors have.
const GUARDS_END_WITHIN: Duration = Duration::from_secs(6);

/// How long a job waits for another process that works for the same merge queue; then it is begun again.
const LANDS_AFTER: Duration = Duration::from_secs(600);

/// What was done.
pub(crate) enum JobResult {
    /// What was left of a session was ended.
    Swept(RunId, RunEndRecord),
    /// It cannot be proven that nothing is left of it, for this reason.
    Unproven(RunId, Box<str>),
    /// What became of a session was found out.
    Recovered(RunId, Box<Recovered>),
    /// It could not be found out, or what was left of it could not be ended; with the reason, if people should know.
    Unclear(RunId, Option<String>),
    /// A session was looked at; or not, with the reason, if its keeper does not answer.
    Pulse(RunId, Result<Vitals, Option<String>>),
    /// The keeper of a session that is to end cannot end it.
    Silent(RunId, Record, Silence),
    /// Nothing is left to do for the merge queue of a branch now, or it could not be done.
    Landed(Name, Result<(), Box<str>>),
    /// That job has brought an entry so far.
    LandingStands(Box<Entry>),
    /// Nothing follows from it.
    Done,
    /// What the guards of a pipeline ask about was looked at, and until when that is fresh.
    Gathered(Box<Pipeline>, Box<GuardInputs>, Option<Instant>),
    /// The session of a task has a message for its next turn, or not.
    Delivered(Seq, Result<(), Box<str>>),
    /// People were told, or not.
    Notified(Seq, Result<(), NotNotified>),
}

/// What is known of a run whose session is to be found again.
pub(crate) struct Recovery {
    pub(crate) run: RunId,
    pub(crate) record: PathBuf,
    pub(crate) owner_epoch: i64,
    /// Whether the machine was not restarted since the run began.
    pub(crate) is_of_this_boot: bool,
}

/// What became of a session.
pub(crate) enum Recovered {
    /// The machine was restarted: nothing of it lives.
    Rebooted,
    /// It left no record, and never will.
    Nothing,
    Ended(keeper::SessionEnd),
    /// It lives, and is looked after from here.
    Adopted(Session),
    /// Its keeper was killed.
    Dead(Record),
}

/// Why people were not told.
pub(crate) struct NotNotified {
    pub(crate) error: Box<str>,
    /// Whether it is of no use to try again.
    pub(crate) is_final: bool,
}

/// Why something was not done.
struct Undone {
    why: String,
    /// Whether it has begun: then nobody knows how far it came.
    has_begun: bool,
}

/// What becomes of a notice.
pub(crate) enum Notifying {
    /// It is being sent, but not in these ways, though the settings name them.
    Begun {
        /// Which ones, and why not.
        refused: Vec<String>,
    },
    /// Nobody wants it.
    Unwanted,
}

/// The threads, and how they tell what they have done.
pub(crate) struct Background {
    sender: Sender<(JobResult, Vec<Channel>)>,
    receiver: Receiver<(JobResult, Vec<Channel>)>,
    signal_reader: UnixStream,
    signal_writer: Arc<UnixStream>,
    /// The ways in which people were told already, where another has failed.
    told: BTreeMap<Seq, BTreeSet<Channel>>,
    /// What the commands of guards have answered.
    answers: Arc<Answers>,
    /// The looks at the guards of pipelines that are under way, each with what ends it when it is dropped.
    looks: BTreeMap<TaskId, PipeWriter>,
    /// The merge queues that are worked for, each with what ends it when it is dropped.
    landings: BTreeMap<Name, PipeWriter>,
    /// Writes the report that people get when nothing is left to do.
    report: Option<fn(&Project) -> Option<String>>,
}

impl Background {
    pub(crate) fn new(report: Option<fn(&Project) -> Option<String>>) -> std::io::Result<Background> {
        let (sender, receiver) = mpsc::channel();
        let (signal_reader, signal_writer) = UnixStream::pair()?;
        signal_reader.set_nonblocking(true)?;
        let (told, answers, looks, landings) = (BTreeMap::new(), Arc::default(), BTreeMap::new(), BTreeMap::new());
        let signal_writer = Arc::new(signal_writer);
        Ok(Background { sender, receiver, signal_reader, signal_writer, told, answers, looks, landings, report })
    }

    /// Works for the merge queue of a branch until nothing is left to do. If another process does so, its end is waited for.
    pub(crate) fn land(&mut self, project: &Project, target: Name) {
        // Without a pipe it cannot be ended early.
        let (stop, job) = std::io::pipe().ok().unzip();
        self.landings.extend(job.map(|job| (target.clone(), job)));
        let (project, failed) = (project.clone(), target.clone());
        let (sender, signal_writer) = (self.sender.clone(), Arc::clone(&self.signal_writer));
        let undone = move |undone: Undone| JobResult::Landed(failed, Err(undone.why.into()));
        self.run(undone, move || {
            let tell = |entry: &Entry| {
                sender.send((JobResult::LandingStands(Box::new(entry.clone())), Vec::new())).ok();
                (&*signal_writer).write_all(b"!").ok();
            };
            let result = land(&project, &target, stop.as_ref().map(PipeReader::as_fd), &tell);
            JobResult::Landed(target, result.map_err(|error| error.to_string().into()))
        });
    }

    /// Ends the commands of guards and of landings, and waits a moment for those and for what is being cleared away.
    pub(crate) fn dismiss(mut self, patience: Duration, cleared: Receiver<()>) {
        cleared.recv_timeout(patience).ok();
        let until = Instant::now() + GUARDS_END_WITHIN;
        let mut open: BTreeSet<TaskId> = std::mem::take(&mut self.looks).into_keys().collect();
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

    /// Tells people in all ways that the settings name and that were not taken before.
    pub(crate) fn notify(&self, project: &Project, entry: Seq, notice: &Notice) -> Notifying {
        let outlets = project.outlets();
        if !project.config().notify.on.contains(&notice.kind) || outlets.is_empty() {
            return Notifying::Unwanted;
        }
        let done = self.told.get(&entry).cloned().unwrap_or_default();
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
        // What has begun may have arrived, and nobody is told the same twice.
        let untold = move |undone: Undone| {
            JobResult::Notified(entry, Err(NotNotified { error: undone.why.into(), is_final: undone.has_begun }))
        };
        self.start(Builder::new(), untold, move || {
            if let Some(text) = report.and_then(|(report, project)| report(&project)) {
                notice.text = format!("{}\n\n{text}", notice.text);
            }
            // The same over all attempts, so that a receiver knows a repetition.
            let delivery = format!("n-{entry}");
            let mut told = Vec::new();
            let (mut errors, mut is_final) = (Vec::new(), true);
            for channel in channels.list().into_iter().filter(|channel| !done.contains(channel)) {
                match notify::send_to(&channels, channel, &notice, &delivery) {
                    Ok(()) => told.push(channel),
                    // It may have arrived, and nobody is told the same twice.
                    Err(error) if error.delivery() == Delivery::Unknown => told.push(channel),
                    Err(error) => {
                        is_final &= error.delivery() == Delivery::Final;
                        errors.push(format!("{}: {error}", channel.as_str()));
                    }
                }
            }
            let result = if errors.is_empty() { Ok(()) } else { Err(NotNotified { error: errors.join("; ").into(), is_final }) };
            (JobResult::Notified(entry, result), told)
        });
        let refused = outlets.refused.iter().map(|(channel, refusal)| format!("{}: {refusal}", channel.as_str()));
        Notifying::Begun { refused: refused.collect() }
    }

    /// Finds out what the guards of a pipeline ask about.
    pub(crate) fn check_guards(&mut self, project: &Project, pipeline: Box<Pipeline>) {
        // Without a pipe it cannot be ended early.
        let (stop, look) = std::io::pipe().ok().unzip();
        self.looks.extend(look.map(|look| (pipeline.id.clone(), look)));
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

    /// Nobody wants to know what the guards of a pipeline say: their commands are ended, and then it is told what was found.
    pub(crate) fn stop_checking(&mut self, pipeline: &TaskId) {
        self.looks.remove(pipeline);
    }

    /// Does something of which nobody is told, on a thread.
    fn run(
        &self,
        undone: impl FnOnce(Undone) -> JobResult + Clone + Send + 'static,
        work: impl FnOnce() -> JobResult + Send + 'static,
    ) {
        self.start(Builder::new(), undone, move || (work(), Vec::new()));
    }

    /// Does something on a thread, or tells what it means that this could not be done.
    fn start(
        &self,
        thread: Builder,
        undone: impl FnOnce(Undone) -> JobResult + Clone + Send + 'static,
        work: impl FnOnce() -> (JobResult, Vec<Channel>) + Send + 'static,
    ) {
        let (sender, signal_writer) = (self.sender.clone(), Arc::clone(&self.signal_writer));
        let report = move |done| {
            // If the runner is gone, the next one does it all again.
            sender.send(done).ok();
            (&*signal_writer).write_all(b"!").ok();
        };
        let (then, otherwise) = (report.clone(), undone.clone());
        // What a thread leaves behind when it panics is seen by nobody else.
        let begun = thread.spawn(move || match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => then(done),
            Err(panic) => then((otherwise(Undone { why: panic_message(&*panic), has_begun: true }), Vec::new())),
        });
        if let Err(error) = begun {
            let why = format!("no thread can be started: {error}");
            report((undone(Undone { why, has_begun: false }), Vec::new()));
        }
    }

    /// What was done since the last time.
    pub(crate) fn take(&mut self) -> Vec<JobResult> {
        let mut bytes = [0; 64];
        while matches!(self.signal_reader.read(&mut bytes), Ok(read) if read > 0) {}
        let mut results = Vec::new();
        for (result, told) in self.receiver.try_iter() {
            match &result {
                JobResult::Notified(entry, Ok(())) => drop(self.told.remove(entry)),
                JobResult::Notified(entry, Err(_)) => self.told.entry(*entry).or_default().extend(told),
                JobResult::Gathered(pipeline, ..) => drop(self.looks.remove(&pipeline.id)),
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

/// What a thread said when it panicked.
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

    /// Waits until something was done, like a runner that sleeps.
    fn next(background: &mut Background) -> JobResult {
        let timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
        let woken = poll(&mut [PollFd::new(&*background, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(woken, 1, "nobody is told");
        background.take().pop().unwrap()
    }

    fn untold(undone: Undone) -> JobResult {
        JobResult::Notified(Seq(1), Err(NotNotified { error: undone.why.into(), is_final: undone.has_begun }))
    }

    #[test]
    fn what_a_thread_does_not_come_to_is_told() {
        let mut background = Background::new(None).unwrap();
        let done = || (JobResult::Notified(Seq(1), Ok(())), Vec::new());
        background.start(Builder::new(), untold, done);
        assert!(matches!(next(&mut background), JobResult::Notified(Seq(1), Ok(()))));
        background.start(Builder::new(), untold, || panic!("so {}", "be it"));
        let JobResult::Notified(_, Err(NotNotified { error, is_final: true })) = next(&mut background) else { panic!() };
        assert_eq!(&*error, "this is a mistake in banksman: so be it");
        // No machine has room for such a stack.
        background.start(Builder::new().stack_size(1 << 60), untold, done);
        let JobResult::Notified(_, Err(NotNotified { error, is_final: false })) = next(&mut background) else { panic!() };
        assert!(error.starts_with("no thread can be started: "), "{error}");
    }
}
