//! Listening for notifications of the server: one connection and one thread per process, for any number of waiters; for
//! runners one per folder.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use futures_util::future::poll_fn;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio_postgres::AsyncMessage;

use super::connect::{self, Server};
use crate::error::StoreError;

/// Listens on one channel and wakes the subscribers of a key.
pub struct Listener {
    channel: String,
    listeners: Arc<Mutex<Listeners>>,
}

/// The subscribers by key; the empty key receives everything.
#[derive(Default)]
struct Listeners {
    subscribers: BTreeMap<String, OwnedFd>,
    /// Whether the last user of the listener is gone.
    closed: bool,
    /// Wakes the listening thread.
    waker: Option<Waker>,
}

/// A subscriber that is woken when its key is notified. Dropping it ends the subscription.
pub struct Subscription {
    key: String,
    listeners: Arc<Mutex<Listeners>>,
}

/// A descriptor that becomes readable after any notification.
pub struct ChangeSubscription {
    read: OwnedFd,
    _subscription: Subscription,
}

impl Listener {
    /// Starts to listen. Returns once the server has confirmed, so that no later notification is missed.
    pub fn start(server: &Server, channel: String) -> Result<Listener, StoreError> {
        Listener::with(server, channel, None)
    }

    /// The same, and holds a shared lock for as long as the connection lasts: it shows writers that there is a
    /// listener.
    fn with(server: &Server, channel: String, shared: Option<i64>) -> Result<Listener, StoreError> {
        let listeners = Arc::new(Mutex::new(Listeners::default()));
        let (ready, started) = std::sync::mpsc::channel();
        let (server, shared_listeners, name) = (server.clone(), Arc::clone(&listeners), channel.clone());
        let run = move || {
            let mut ready = Some(ready);
            let Ok(runtime) = connect::runtime() else { return };
            while !lock(&shared_listeners).closed {
                let call = |heard: Heard<'_>| match heard {
                    Heard::Key(key) => lock(&shared_listeners).call(key),
                    Heard::Anything => lock(&shared_listeners).call_all(),
                };
                let is_closed = |context: &Context<'_>| lock(&shared_listeners).is_closed(context);
                let result = runtime.block_on(listen(&server, &name, shared, call, is_closed, &mut ready));
                if let (Err(error), Some(ready)) = (result, &ready) {
                    // If the send fails, no caller waits for the first attempt any more, and there is nothing to
                    // report.
                    ready.send(Err(error)).ok();
                    return;
                }
                connect::pause(std::time::Duration::from_millis(200));
            }
        };
        std::thread::Builder::new().name("banksman-listen".into()).spawn(run).map_err(StoreError::io)?;
        started.recv().unwrap_or(Err(StoreError::Stalled))?;
        Ok(Listener { channel, listeners })
    }

    /// Listens in a thread for as long as the process lives, on behalf of other processes too. The thread begins once
    /// `elect` returns true. `call` receives every key.
    pub fn relay(
        server: &Server,
        channel: String,
        elect: impl FnOnce() -> bool + Send + 'static,
        call: impl Fn(Heard<'_>) + Send + 'static,
    ) -> Result<(), StoreError> {
        let server = server.clone();
        let run = move || {
            let Some(runtime) = elect().then(|| connect::runtime().ok()).flatten() else { return };
            loop {
                // After any error the next attempt follows; until then waiters fall back to polling.
                runtime.block_on(listen(&server, &channel, None, &call, |_| false, &mut None)).ok();
                connect::pause(std::time::Duration::from_millis(200));
            }
        };
        std::thread::Builder::new().name("banksman-relay".into()).spawn(run).map(drop).map_err(StoreError::io)
    }

    /// Listens to every event of a project, for followers of its log.
    pub fn change_channel(server: &Server, project: i64) -> Result<Listener, StoreError> {
        Listener::with(server, super::change_channel(project), Some(super::FOLLOWER_SPACE | project))
    }

    /// Writes to a descriptor, which must not block, whenever this key is notified.
    pub fn subscribe(&self, key: &str, wake: OwnedFd) -> Subscription {
        lock(&self.listeners).subscribers.insert(key.to_owned(), wake);
        Subscription { key: key.to_owned(), listeners: Arc::clone(&self.listeners) }
    }

    /// Subscribes to everything.
    pub fn changes(&self) -> Result<ChangeSubscription, StoreError> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|error| StoreError::io(error.into()))?;
        Ok(ChangeSubscription { read, _subscription: self.subscribe("", write) })
    }

    pub fn channel(&self) -> &str {
        &self.channel
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The thread ends, and its connection with it: writers must not believe that there is a follower.
        let mut listeners = lock(&self.listeners);
        listeners.closed = true;
        listeners.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl ChangeSubscription {
    /// Discards the notifications received so far.
    pub fn empty(&self) {
        let mut bytes = [0u8; 64];
        while rustix::io::read(&self.read, &mut bytes).is_ok_and(|count| count > 0) {}
    }
}

impl AsFd for ChangeSubscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        lock(&self.listeners).subscribers.remove(&self.key);
    }
}

/// A received notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard<'a> {
    /// This key was notified.
    Key(&'a str),
    /// Listening has just begun: any key may have been notified before.
    Anything,
}

type Ready = Option<std::sync::mpsc::Sender<Result<(), StoreError>>>;

/// Listens until the connection breaks. Notifications may be lost after a break, so all subscribers are woken once.
async fn listen(
    server: &Server,
    channel: &str,
    shared: Option<i64>,
    call: impl Fn(Heard<'_>),
    is_closed: impl Fn(&Context<'_>) -> bool,
    ready: &mut Ready,
) -> Result<(), StoreError> {
    let (client, mut messages) = server.connect().await?;
    let share = shared.map(|lock| format!("; SELECT pg_advisory_lock_shared({lock})")).unwrap_or_default();
    let command = format!("LISTEN \"{channel}\"{share}");
    let listening = client.batch_execute(&command);
    let mut listening = std::pin::pin!(listening);
    let mut confirmed = false;
    loop {
        let next = poll_fn(|context| {
            if is_closed(context) {
                return std::task::Poll::Ready(None);
            }
            if !confirmed && let std::task::Poll::Ready(done) = listening.as_mut().poll(context) {
                confirmed = true;
                if done.is_err() {
                    return std::task::Poll::Ready(None);
                }
                call(Heard::Anything);
                if let Some(ready) = ready.take() {
                    ready.send(Ok(())).ok();
                }
            }
            messages.as_mut().poll_next(context)
        });
        match next.await {
            Some(Ok(AsyncMessage::Notification(notification))) => call(Heard::Key(notification.payload())),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(super::classify(error)),
            None => return Ok(()),
        }
    }
}

impl Listeners {
    /// Whether the listener is closed. If not, closing it wakes the caller of this context.
    fn is_closed(&mut self, context: &Context<'_>) -> bool {
        self.waker = Some(context.waker().clone());
        self.closed
    }

    fn call(&self, key: &str) {
        let named = self.subscribers.get(key).filter(|_| !key.is_empty());
        named.into_iter().chain(self.subscribers.get("")).for_each(poke);
    }

    fn call_all(&self) {
        self.subscribers.values().for_each(poke);
    }
}

/// Ignores a full pipe: its reader wakes anyway.
fn poke(pipe: &OwnedFd) {
    rustix::io::write(pipe, b"!").ok();
}

fn lock(listeners: &Mutex<Listeners>) -> MutexGuard<'_, Listeners> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}
