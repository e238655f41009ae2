//! How processes are woken: by datagrams on one machine, by the database across machines.
//!
//! Where machines share a store, an address is `CHANNEL/SOCKET@FOLDER`. A process with the same folder sends a datagram
//! to the socket in it, after the commit; a commit of any other process notifies the channel. The runners of a folder
//! share one channel, and one of them listens to it for all: it holds a lock on a file, and when it dies the next one
//! takes over.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};

use banksman_adapters::change_notifier::{self, ChangeNotifier};
use banksman_adapters::wake::{self, Exchange};
use banksman_adapters::{ids, private};
use banksman_core::resource::grant::Address;
use banksman_store::Store;
use banksman_store::postgres::{ChangeSubscription, Heard, Listener, Server, Subscription};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::Error;
use crate::project::{Location, Project};

const NO_SOCKET: &str = "a socket to be woken at cannot be made";

/// The transport of wake-ups.
pub(crate) enum Wakeups {
    /// Through sockets and a file in the project.
    Local { exchange: Exchange, change_notifier: ChangeNotifier },
    /// Through sockets in the project, and through the database server for processes on other machines. The first
    /// waiter starts the listener. `here` is the suffix of the addresses of this folder.
    Server { exchange: Exchange, here: String, dir: PathBuf, server: Server, listener: Mutex<Option<Listener>>, relay: Once },
}

/// An address at which one waiter can be woken.
pub(crate) enum Mailbox {
    Local(wake::Mailbox),
    Server { mailbox: wake::Mailbox, address: Address, _subscription: Option<Subscription> },
}

/// Wakes on changes of the event log.
pub(crate) enum EventListener {
    Local(change_notifier::Listener),
    Server { changes: ChangeSubscription, _listener: Listener },
}

impl Wakeups {
    pub(crate) fn open(project: &Project) -> Result<Wakeups, Error> {
        let dir = run_dir(project)?;
        let exchange = Exchange::open(&dir).map_err(Error::system("the folder for sockets cannot be opened"))?;
        match project.location() {
            Location::Sqlite(_) => {
                let change_notifier =
                    ChangeNotifier::open(&dir.join("bell")).map_err(Error::system("the change notifier cannot be opened"))?;
                Ok(Wakeups::Local { exchange, change_notifier })
            }
            Location::Postgres { server, .. } => {
                let identity = exchange.identity().map_err(Error::system("the folder for sockets cannot be opened"))?;
                let here = format!("@{}:{identity}", project.host().id);
                Ok(Wakeups::Server {
                    exchange,
                    here,
                    dir,
                    server: server.clone(),
                    listener: Mutex::new(None),
                    relay: Once::new(),
                })
            }
        }
    }

    pub(crate) fn mailbox(&self) -> Result<Mailbox, Error> {
        match self {
            Wakeups::Local { exchange, .. } => exchange.mailbox().map(Mailbox::Local).map_err(Error::system(NO_SOCKET)),
            Wakeups::Server { exchange, here, server, listener, .. } => {
                let mut listener = listener.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let listener = match &mut *listener {
                    Some(listener) => listener,
                    none => none.insert(Listener::start(server, format!("banksman_{}", ids::random(12)))?),
                };
                let mailbox = exchange.mailbox().map_err(Error::system(NO_SOCKET))?;
                let socket = &*mailbox.address().0;
                let address = Address(format!("{}/{socket}{here}", listener.channel()).into());
                let sender = exchange.sender_to(&mailbox).map_err(Error::system(NO_SOCKET))?;
                let subscription = listener.subscribe(socket, sender);
                Ok(Mailbox::Server { mailbox, address, _subscription: Some(subscription) })
            }
        }
    }

    /// The same for a runner, which shares the relay of its folder: it needs no connection of its own to be woken.
    pub(crate) fn runner_mailbox(&self) -> Result<Mailbox, Error> {
        let Wakeups::Server { exchange, here, dir, server, relay, .. } = self else { return self.mailbox() };
        let channel = format!("banksman_{:016x}", hash(here));
        let mailbox = exchange.mailbox().map_err(Error::system(NO_SOCKET))?;
        let address = Address(format!("{channel}/{}{here}", mailbox.address().0).into());
        let mut started = Ok(());
        relay.call_once(|| started = start_relay(server, channel, dir));
        started.map(|()| Mailbox::Server { mailbox, address, _subscription: None })
    }

    /// The suffix of the addresses that this process wakes itself, where the database wakes the others.
    pub(crate) fn here(&self) -> Option<&str> {
        match self {
            Wakeups::Local { .. } => None,
            Wakeups::Server { here, .. } => Some(here),
        }
    }

    /// Wakes a waiter of this folder. The waiter's own poll covers a lost wake-up.
    pub(crate) fn wake(&self, address: &Address) {
        match self {
            Wakeups::Local { exchange, .. } => exchange.wake(address).ok(),
            Wakeups::Server { exchange, here, .. } => {
                let socket = address.0.strip_suffix(here.as_str()).and_then(|rest| rest.split_once('/'));
                socket.and_then(|(_, socket)| exchange.wake(&Address(socket.into())).ok())
            }
        };
    }

    /// Notifies the followers. They poll, too, so a failure only makes them slow.
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
                Ok(EventListener::Server { changes: listener.changes()?, _listener: listener })
            }
        }
    }

    pub(crate) fn empty(&self) {
        match self {
            EventListener::Local(listener) => listener.empty(),
            EventListener::Server { changes, .. } => changes.empty(),
        }
    }
}

impl AsFd for EventListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            EventListener::Local(listener) => listener.as_fd(),
            EventListener::Server { changes, .. } => changes.as_fd(),
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

    /// Whether the processes that wake it may be on other machines.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Mailbox::Server { .. })
    }

    /// Discards the wake-ups that have arrived, so that the next wait does not end at once.
    pub(crate) fn empty(&self) {
        match self {
            Mailbox::Local(mailbox) | Mailbox::Server { mailbox, .. } => mailbox.empty(),
        }
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Mailbox::Local(mailbox) | Mailbox::Server { mailbox, .. } => mailbox.as_fd(),
        }
    }
}

/// Listens to a channel for all runners of a folder, as soon as no other process does.
fn start_relay(server: &Server, channel: String, dir: &Path) -> Result<(), Error> {
    let no_file = || Error::system("the file of the listener cannot be opened");
    let file = private::open(&dir.join("listener"), OFlags::RDWR | OFlags::CREATE).map_err(no_file())?;
    let exchange = Exchange::open(dir).map_err(Error::system("the folder for sockets cannot be opened"))?;
    let become_listener = move || {
        let held = loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                other => break other.is_ok(),
            }
        };
        // The lock is held for as long as the process lives.
        std::mem::forget(file);
        held
    };
    let call = move |heard: Heard<'_>| match heard {
        Heard::Key(socket) => drop(exchange.wake(&Address(socket.into()))),
        Heard::Anything => exchange.wake_all(),
    };
    Ok(Listener::relay(server, channel, become_listener, call)?)
}

/// A number that is the same in every process and version (FNV-1a).
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn run_dir(project: &Project) -> Result<PathBuf, Error> {
    let dir = project.run_dir();
    private::make_dir(&dir).map_err(Error::system("the folder for sockets cannot be made"))?;
    Ok(dir)
}
