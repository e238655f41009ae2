//! How this process is woken, and wakes others: by datagrams on one machine, by the database across machines.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Mutex;

use banksman_adapters::change_notifier::{self, ChangeNotifier};
use banksman_adapters::wake::{self, Exchange};
use banksman_adapters::{ids, private};
use banksman_core::resource::grant::Address;
use banksman_store::Store;
use banksman_store::postgres::{Listener, Server, Subscription};

use crate::error::Error;
use crate::project::{Location, Project};

/// The way messages go.
pub(crate) enum Wakeups {
    /// Through sockets and a file in the project.
    Local { exchange: Exchange, change_notifier: ChangeNotifier },
    /// Through the database server. The listener is started by the first who waits.
    Server { server: Server, listener: Mutex<Option<Listener>> },
}

/// A place at which one waiter can be woken.
pub(crate) enum Mailbox {
    Local(wake::Mailbox),
    Server { subscription: Subscription, address: Address },
}

/// Hears that something has happened in the event log.
pub(crate) enum EventListener {
    Local(change_notifier::Listener),
    Server { subscription: Subscription, _listener: Listener },
}

impl Wakeups {
    pub(crate) fn open(project: &Project) -> Result<Wakeups, Error> {
        match project.location() {
            Location::Sqlite(_) => {
                let dir = run_dir(project)?;
                let exchange = Exchange::open(&dir).map_err(Error::system("the folder for sockets cannot be opened"))?;
                let change_notifier =
                    ChangeNotifier::open(&dir.join("bell")).map_err(Error::system("the change notifier cannot be opened"))?;
                Ok(Wakeups::Local { exchange, change_notifier })
            }
            Location::Postgres { server, .. } => Ok(Wakeups::Server { server: server.clone(), listener: Mutex::new(None) }),
        }
    }

    pub(crate) fn mailbox(&self) -> Result<Mailbox, Error> {
        match self {
            Wakeups::Local { exchange, .. } => {
                exchange.mailbox().map(Mailbox::Local).map_err(Error::system("a socket to be woken at cannot be made"))
            }
            Wakeups::Server { server, listener } => {
                let mut listener = listener.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let listener = match &mut *listener {
                    Some(listener) => listener,
                    none => none.insert(Listener::start(server, format!("banksman_{}", ids::random(12)))?),
                };
                let key = ids::random(8);
                let address = Address(format!("{}/{key}", listener.channel()).into());
                Ok(Mailbox::Server { subscription: listener.subscribe(&key)?, address })
            }
        }
    }

    /// Wakes a waiter. A lost wake-up is covered by the waiter's own slow look.
    pub(crate) fn wake(&self, address: &Address) {
        if let Wakeups::Local { exchange, .. } = self {
            exchange.wake(address).ok();
        }
    }

    /// Tells the followers. They look by themselves now and then, so a failure only makes them slow.
    pub(crate) fn ring(&self, store: &mut Store) {
        match self {
            Wakeups::Local { change_notifier, .. } => change_notifier.ring().ok(),
            Wakeups::Server { .. } => store.ring().ok(),
        };
    }
}

impl EventListener {
    /// Starts to listen to the project with this number in its database.
    pub(crate) fn open(project: &Project, number: i64) -> Result<EventListener, Error> {
        match project.location() {
            Location::Sqlite(_) => {
                let path = run_dir(project)?.join("bell");
                change_notifier::Listener::open(&path)
                    .map(EventListener::Local)
                    .map_err(Error::system("cannot listen for changes"))
            }
            Location::Postgres { server, .. } => {
                let listener = Listener::change_channel(server, number)?;
                Ok(EventListener::Server { subscription: listener.subscribe("")?, _listener: listener })
            }
        }
    }

    pub(crate) fn empty(&self) {
        match self {
            EventListener::Local(listener) => listener.empty(),
            EventListener::Server { subscription, .. } => subscription.empty(),
        }
    }
}

impl AsFd for EventListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            EventListener::Local(listener) => listener.as_fd(),
            EventListener::Server { subscription, .. } => subscription.as_fd(),
        }
    }
}

impl Mailbox {
    pub(crate) fn address(&self) -> &Address {
        match self {
            Mailbox::Local(mailbox) => mailbox.address(),
            Mailbox::Server { address, .. } => address,
        }
    }

    /// Whether those who wake it may be on other machines.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Mailbox::Server { .. })
    }

    /// Takes out what has arrived, so that the next wait does not end at once.
    pub(crate) fn empty(&self) {
        match self {
            Mailbox::Local(mailbox) => mailbox.empty(),
            Mailbox::Server { subscription, .. } => subscription.empty(),
        }
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Mailbox::Local(mailbox) => mailbox.as_fd(),
            Mailbox::Server { subscription, .. } => subscription.as_fd(),
        }
    }
}

fn run_dir(project: &Project) -> Result<PathBuf, Error> {
    let dir = project.run_dir();
    private::make_dir(&dir).map_err(Error::system("the folder for sockets cannot be made"))?;
    Ok(dir)
}
