//! An open project, shared by the threads of one process.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use banksman_adapters::host::Host;
use banksman_core::event::{Actor, Event, Resource};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::grant::Ask;
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{Liveness, Name, ProcessId, Seq, Stamp, TaskId};
use banksman_engine::{Reply, Request, Seen, Taking, TypedRequest};
use banksman_store::sqlite::Occupant;
use banksman_store::{Key, Reader, Snapshot, StoreError, StoreId, View};

use crate::config::Config;
use crate::error::Error;
use crate::project::Project;
use crate::waiting::{self, Acquisition, ClaimProgress, TaskClaim, WaitOptions};
use crate::wakeups::Wakeups;
use crate::writer::{AnswerSignal, Answers, Pending, Writer};

/// How long a call waits for the store by default.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// An open project. One per process is enough: all threads share it, and calls that arrive together share a
/// transaction.
pub struct Client {
    writer: Writer,
    wakeups: Arc<Wakeups>,
    project: Project,
    this: ProcessId,
}

impl Client {
    pub(crate) fn open(project: &Project) -> Result<Client, Error> {
        Client::open_with(project, Box::new(|_| {}))
    }

    /// Opens a project. `on_stall` is called when another process holds the store up.
    pub fn open_with(project: &Project, on_stall: Box<dyn Fn(&Occupant) + Send + Sync>) -> Result<Client, Error> {
        let this = project.host().current().map_err(Error::system("this process cannot be identified"))?;
        let mut store = project.open_store()?;
        project.ignore_ours();
        let wakeups = Arc::new(Wakeups::open(project)?);
        wakeups.here().into_iter().for_each(|end| store.wakes_here(end));
        let named = project.clone();
        let on_stall = move || named.occupant().iter().for_each(&on_stall);
        let writer = Writer::start(store, Arc::clone(&wakeups), Box::new(on_stall));
        let writer = writer.map_err(Error::system("the writing thread cannot be started"))?;
        Ok(Client { writer, wakeups, project: project.clone(), this })
    }

    /// Sends one command to a lock or a semaphore, with the known states of processes. Reserved names can be neither
    /// acquired nor defined.
    pub fn ask(&self, command: Command, probes: Vec<(ProcessId, Liveness)>) -> Result<(Outcome, Stamp), Error> {
        if let Command::Lock(name, lock::Input::Acquire(_) | lock::Input::Define(_))
        | Command::Semaphore(name, semaphore::Input::Acquire(_) | semaphore::Input::Define(_)) = &command
        {
            Name::unreserved(name.as_str())?;
        }
        let seen = Seen { probes, ..Seen::default() };
        match self.call(Request::Coordinate { command, seen })? {
            Reply::Coordinate { outcome, at } => Ok((outcome, at)),
            reply => unreachable!("a lock or a semaphore was asked, and the answer is {reply:?}"),
        }
    }

    /// Requests a lock or slots, and waits for them if the request says so. Reserved names cannot be acquired.
    pub fn acquire(&self, resource: Resource, ask: Ask, patience: WaitOptions<'_>) -> Result<Acquisition, Error> {
        Name::unreserved(resource.name.as_str())?;
        self.acquire_any(resource, ask, patience)
    }

    /// The same for every name: a person who works on a task holds its lock.
    #[doc(hidden)]
    pub fn acquire_any(&self, resource: Resource, ask: Ask, patience: WaitOptions<'_>) -> Result<Acquisition, Error> {
        waiting::acquire(self, resource, ask, patience)
    }

    /// Takes a task with all that it needs: its lock, its exclusive section, its locks and semaphores. Waits for it if
    /// the options say so.
    pub fn take_task(
        &self,
        task: TaskId,
        taking: Taking,
        patience: &WaitOptions<'_>,
        progress: Option<ClaimProgress<'_>>,
    ) -> Result<TaskClaim, Error> {
        waiting::take_task(self, task, taking, patience, self.config().overtake, progress)
    }

    /// Writes an event of the caller's own.
    pub fn emit(&self, event: Event) -> Result<Seq, Error> {
        match self.call(Request::Emit(event))? {
            Reply::Emitted(seq) => Ok(seq),
            reply => unreachable!("an event was emitted, and the answer is {reply:?}"),
        }
    }

    /// A second connection, for reading.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        self.project.reader()
    }

    /// Runs `f` while this process does not hold up the others: it does not take the writer lock until `f` returns. For
    /// a caller that is about to stop the process.
    pub fn without_writer_lock(&self, f: impl FnOnce()) {
        self.writer.without_writer_lock(f);
    }

    pub fn this_process(&self) -> &ProcessId {
        &self.this
    }

    pub fn host(&self) -> &Host {
        self.project.host()
    }

    pub fn config(&self) -> &Config {
        self.project.config()
    }

    pub(crate) fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    /// Sends a request to the store, and waits for the answer.
    pub fn call(&self, request: Request) -> Result<Reply, Error> {
        Ok(self.writer.call(request, CALL_TIMEOUT)?)
    }

    /// The same for a request whose reply has a type of its own.
    pub fn request<R: TypedRequest>(&self, request: R) -> Result<R::Reply, Error> {
        Ok(R::reply(self.call(request.into())?).expect("the store replies to the request that it got"))
    }

    /// Sends several requests, in one transaction if possible.
    pub(crate) fn call_all(&self, requests: Vec<Request>) -> Answers {
        self.writer.call_all(requests, CALL_TIMEOUT)
    }

    /// Sends several requests without waiting for other writers: if it must wait, the signal is raised when the call is
    /// to be polled.
    pub(crate) fn begin_call(&self, requests: Vec<Request>, signal: &Arc<AnswerSignal>) -> Result<Answers, Pending> {
        self.writer.begin(requests, CALL_TIMEOUT, signal)
    }

    /// Changes the requests of a call that was begun, unless they are being written.
    pub(crate) fn amend_call(&self, call: &mut Pending, change: impl FnOnce(&mut Vec<Request>)) {
        self.writer.amend(call, change);
    }

    /// The answers to a call that was begun, once there are any.
    pub(crate) fn poll_call(&self, call: &mut Pending) -> Option<Answers> {
        self.writer.poll(call)
    }

    /// Sends several requests, and waits for the writer lock no longer than `deadline`: if that passes, they are not
    /// carried out, now or later.
    pub(crate) fn call_all_within(&self, requests: Vec<Request>, deadline: Duration) -> Answers {
        self.writer.call_all(requests, deadline)
    }

    /// The rows that these keys name, as they are now.
    pub fn load(&self, keys: &BTreeSet<Key>) -> Result<Snapshot, StoreError> {
        self.writer.load(keys)
    }

    /// Reads over the connection that writes.
    pub(crate) fn view<T>(&self, read: impl FnOnce(&mut View<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.writer.view(read)
    }

    /// Updates the statistics of the database. To be called after many rows were added at once.
    pub(crate) fn analyze(&self) {
        self.writer.analyze();
    }

    /// Records this person or run as the cause of every event from now on. A runner acts for nobody.
    pub fn act_for(&self, actor: &Actor) {
        self.writer.act_for(actor);
    }

    /// Refuses a store that this user has neither made nor trusted.
    pub fn require_trust(&self) -> Result<(), Error> {
        self.trusted_store().map(drop)
    }

    /// The same. Returns the id of the store; `Some` if it is trusted.
    pub(crate) fn trusted_store(&self) -> Result<Option<StoreId>, Error> {
        let id = self.writer.identity()?.store;
        self.project.require_trust_in(id.clone())?;
        Ok(id)
    }

    pub fn project(&self) -> &Project {
        &self.project
    }
}

/// A descriptor that ends a wait early when it becomes readable.
pub(crate) type Cancel<'a> = Option<BorrowedFd<'a>>;
