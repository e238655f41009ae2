//! An open project.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use banksman_core::event::{CustomKind, Event as CoreEvent, Kind, Source};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::semaphore;
use banksman_core::{Epoch, Name};
use banksman_runtime::caller;
use serde::Serialize;

use crate::acquire::Acquire;
use crate::error::{Error, OrPublic, Result, bad_name};
use crate::events::Events;
use crate::json;
use crate::project::Project;
use crate::queue::Queue;
use crate::renewal::Renewals;
use crate::runner::Runner;
use crate::tasks::Tasks;

/// An open project. Clones share its connection, and all methods can be called from all threads.
///
/// Every method blocks until the store has answered; in asynchronous programs, call the methods on a thread for
/// blocking work. An acknowledged change is durable.
///
/// ```
/// use banksman::Project;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// let client = Project::init(path)?.open()?;
/// let for_a_thread = client.clone();
/// let worker = std::thread::spawn(move || for_a_thread.lock("report").try_acquire()?.release());
/// worker.join().unwrap()?;
///
/// let number = client.emit("deploy:finished", &"web")?;
/// let event = client.events_after(number - 1)?.next().expect("it was just written")?;
/// assert_eq!((event.kind(), event.data::<String>()?.as_str()), ("deploy:finished", "web"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client(Arc<Shared>);

/// A weak reference for renewals, which do not keep the client open.
pub(crate) struct WeakClient(Weak<Shared>);

struct Shared {
    client: banksman_runtime::Client,
    project: Project,
    renewals: Arc<Renewals>,
    /// Grants of requests with an id that a guard of this client holds.
    guarded: Mutex<BTreeSet<Epoch>>,
}

impl Client {
    pub(crate) fn open(project: &Project) -> Result<Client> {
        let client = project.0.open().or_public()?;
        client.act_for(&caller::actor());
        let (project, renewals, guarded) = (project.clone(), Arc::default(), Mutex::default());
        Ok(Client(Arc::new(Shared { client, project, renewals, guarded })))
    }

    /// The project.
    pub fn project(&self) -> &Project {
        &self.0.project
    }

    /// A request for the lock with this name. Locks need no definition.
    ///
    /// A name has 1 to 200 bytes of UTF-8, no control characters and no space at either end; names that Banksman itself uses, such as
    /// `task:…`, `run:…`, `runs` and `roots`, are reserved. The same holds for the names of semaphores, queues and holders.
    pub fn lock(&self, name: impl Into<String>) -> Acquire {
        Acquire::new(self, Kind::Lock, name.into())
    }

    /// A request for slots of the semaphore with this name. [`define_semaphore`](Client::define_semaphore) creates
    /// semaphores.
    pub fn semaphore(&self, name: impl Into<String>) -> Acquire {
        Acquire::new(self, Kind::Semaphore, name.into())
    }

    /// Creates a semaphore with this number of slots, or changes the number. Holders keep their slots.
    pub fn define_semaphore(&self, name: &str, capacity: u32) -> Result<()> {
        if capacity == 0 {
            return Err(Error::invalid("a semaphore must have at least one slot"));
        }
        let config = semaphore::Config { capacity, ttl: None };
        let command = Command::Semaphore(
            Name::unreserved(name).map_err(|error| bad_name("semaphore", error))?,
            semaphore::Input::Define(config),
        );
        match self.inner().ask(command, Vec::new()).or_public()?.0 {
            Outcome::Semaphore(semaphore::Outcome::Defined) => Ok(()),
            other => unreachable!("a semaphore was defined, and the answer is {other:?}"),
        }
    }

    /// The queue with this name. [`Queue::define`] creates queues.
    pub fn queue(&self, name: impl Into<String>) -> Queue {
        Queue::new(self, name.into())
    }

    /// The tasks of the project.
    pub fn tasks(&self) -> Tasks {
        Tasks::new(self)
    }

    /// The events of the project, from now on.
    pub fn events(&self) -> Result<Events> {
        Events::open(self, None)
    }

    /// The events of the project after the one with this number; after 0, from the beginning of the log.
    pub fn events_after(&self, number: u64) -> Result<Events> {
        Events::open(self, Some(number))
    }

    /// Writes a custom event, such as `deploy:finished`, with any data. Returns its number.
    pub fn emit(&self, kind: &str, data: &impl Serialize) -> Result<u64> {
        let kind = CustomKind::new(kind).map_err(Error::invalid)?;
        let source = Source { component: "user".into(), id: None };
        let event = CoreEvent::Custom { kind, source, data: json::value(data)? };
        Ok(self.inner().emit(event).or_public()?.0.unsigned_abs())
    }

    /// A runner, which starts the tasks of the project.
    pub fn runner(&self) -> Runner {
        Runner::new(self)
    }

    pub(crate) fn inner(&self) -> &banksman_runtime::Client {
        &self.0.client
    }

    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.0))
    }

    pub(crate) fn renewals(&self) -> &Arc<Renewals> {
        &self.0.renewals
    }

    pub(crate) fn guarded(&self) -> MutexGuard<'_, BTreeSet<Epoch>> {
        self.0.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WeakClient {
    pub(crate) fn upgrade(&self) -> Option<Client> {
        self.0.upgrade().map(Client)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.renewals.close();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("project", &self.0.project).finish_non_exhaustive()
    }
}
