//! A runner in this process.

use std::fmt;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use banksman_runtime::{RunOptions, RunnerReport, Sessions};

use crate::cancel::CancelToken;
use crate::client::Client;
use crate::error::{Error, Internal, OrPublic, Result};
use crate::new_task;

/// A runner: starts the tasks of a project that have a command, each as a session of its own, and supervises them.
///
/// The program itself supervises the sessions: it is started again for each. So its `main` must begin with
/// [`enter`](crate::enter). The user must have made the store, or trust it.
///
/// ```no_run
/// use std::time::Duration;
/// use banksman::{NewTask, Project};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     banksman::enter();
///     let client = Project::find(".")?.open()?;
///
///     // On a thread, until it is stopped or dropped …
///     let runner = client.runner().max_runs(2).start()?;
///     let task = client.tasks().add(NewTask::new("Run the tests").run("make test"))?;
///     println!("{}", client.tasks().wait(&task, Duration::from_secs(600))?.status());
///     runner.stop()?;
///
///     // … or here, until there is nothing left to do.
///     client.runner().run_until_idle()?;
///     Ok(())
/// }
/// ```
#[must_use = "a runner does nothing until it is started"]
pub struct Runner {
    client: Client,
    max_runs: Option<u32>,
    sections: Vec<String>,
    on_trouble: Option<OnTrouble>,
    cancel: Option<CancelToken>,
}

type OnTrouble = Box<dyn FnMut(&str) + Send>;

/// A runner that works on a thread of this process. Dropping it stops it.
pub struct RunnerHandle {
    stop: CancelToken,
    /// In a mutex so that the handle can be shared between threads.
    thread: Mutex<Option<JoinHandle<Result<()>>>>,
}

impl Runner {
    pub(crate) fn new(client: &Client) -> Runner {
        Runner { client: client.clone(), max_runs: None, sections: Vec::new(), on_trouble: None, cancel: None }
    }

    /// Limits the number of concurrent runs. The limits of the project apply in any case.
    pub fn max_runs(mut self, runs: u32) -> Runner {
        self.max_runs = Some(runs);
        self
    }

    /// Works only in this section, given by name or id. May be called more than once.
    pub fn section(mut self, section: impl Into<String>) -> Runner {
        self.sections.push(section.into());
        self
    }

    /// Reports a failure that will be retried: the store did not answer, or a notification was not sent.
    pub fn on_trouble(mut self, report: impl FnMut(&str) + Send + 'static) -> Runner {
        self.on_trouble = Some(Box::new(report));
        self
    }

    /// Stops the runner when the token is cancelled.
    pub fn cancel_on(mut self, token: &CancelToken) -> Runner {
        self.cancel = Some(token.clone());
        self
    }

    /// Works on this thread until there is nothing left to do. Its own sessions have ended then.
    ///
    /// # Errors
    ///
    /// [`Error::NotEntered`] and [`Error::Untrusted`] before anything is started.
    pub fn run_until_idle(self) -> Result<()> {
        self.work(true, &mut || {})
    }

    /// Works on this thread until the token of [`cancel_on`](Runner::cancel_on) is cancelled. Sessions continue, and
    /// the next runner adopts them.
    pub fn run(self) -> Result<()> {
        self.work(false, &mut || {})
    }

    /// Works on a thread of its own. Returns when the runner has started, or has failed to.
    pub fn start(mut self) -> Result<RunnerHandle> {
        let stop = self.cancel.take().map_or_else(CancelToken::new, Ok)?;
        self.cancel = Some(stop.clone());
        let (begun, is_begun) = mpsc::channel();
        // The receiver is gone if the thread that starts the runner was unwound.
        let work = move || self.work(false, &mut || begun.send(()).unwrap_or_default());
        let thread = std::thread::Builder::new().name("banksman-runner".into()).spawn(work).or_public()?;
        let handle = RunnerHandle { stop, thread: Mutex::new(Some(thread)) };
        match is_begun.recv() {
            Ok(()) => Ok(handle),
            // The thread has ended before the runner started.
            Err(_) => handle.join().and(Err(Error::Cancelled)),
        }
    }

    fn work(mut self, until_idle: bool, begun: &mut dyn FnMut()) -> Result<()> {
        let client = self.client.inner();
        let mut reader = client.reader().or_public()?;
        let sections = self.sections.iter().map(|name| new_task::section(&mut reader, name)).collect::<Result<_>>()?;
        let options = RunOptions { max_runs: self.max_runs, sections, until_idle, report: None };
        // The runner acts for itself, not for the person or the run that this process acts for.
        let own = client.project().open().or_public()?;
        let runner = banksman_runtime::Runner::new(&own, Sessions::new(own.project()), options).or_public()?;
        let token = self.cancel.take().map_or_else(CancelToken::new, Ok)?;
        begun();
        let mut on_report = |report: RunnerReport| {
            if let (Some(on_trouble), Some(trouble)) = (&mut self.on_trouble, trouble(report)) {
                on_trouble(&trouble);
            }
        };
        runner.run(token.fd(), &mut on_report).map_err(Internal::public)
    }
}

fn trouble(report: RunnerReport) -> Option<String> {
    match report {
        RunnerReport::Event(_) | RunnerReport::Left { .. } => None,
        RunnerReport::Trouble(error) => Some(error.to_string()),
        RunnerReport::RunTrouble(run, what) => Some(format!("run {run}: {what}")),
        RunnerReport::NoticeTrouble(_, what) => Some(format!("a notification was not sent: {what}")),
    }
}

impl RunnerHandle {
    /// Stops the runner, and waits until it has left. Sessions continue, and the next runner adopts them.
    pub fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.join()
    }

    /// Whether the runner has ended, by an error or because it was stopped. [`stop`](RunnerHandle::stop) returns the
    /// error.
    pub fn is_finished(&self) -> bool {
        self.thread().as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&self) -> Result<()> {
        let thread = self.thread().take();
        let ended = thread.map_or(Ok(Ok(())), JoinHandle::join);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn thread(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<Result<()>>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunnerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
        // To learn how the runner ended, callers use `stop`.
        if let Some(thread) = self.thread().take() {
            thread.join().ok();
        }
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Runner");
        fields.field("client", &self.client).field("max_runs", &self.max_runs).field("sections", &self.sections);
        fields.finish_non_exhaustive()
    }
}

impl fmt::Debug for RunnerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerHandle").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}
