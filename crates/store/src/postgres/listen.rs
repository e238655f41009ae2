//! Hearing what the server notifies: one connection and one thread per process, however many wait; for runners one per folder.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use futures_util::future::poll_fn;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio_postgres::AsyncMessage;

use super::connect::{self, Server};
use crate::error::StoreError;

/// Listens on one channel and wakes those who subscribed to a key.
pub struct Listener {
    channel: String,
    listeners: Arc<Mutex<Listeners>>,
}

/// Whom to wake, by key; the empty key hears everything.
#[derive(Default)]
struct Listeners {
    subscribers: BTreeMap<String, OwnedFd>,
    /// Nobody is left to hear anything.
    closed: bool,
    /// Wakes the thread that listens.
    waker: Option<Waker>,
}

/// Somebody who is woken when a key is called. It is given up with this value.
pub struct Subscription {
    key: String,
    listeners: Arc<Mutex<Listeners>>,
}

/// A place that becomes readable when anything is called.
pub struct ChangeSubscription {
    read: OwnedFd,
    _subscription: Subscription,
}

impl Listener {
    /// Starts to listen. Returns once the server has confirmed, so that nothing is missed from then on.
    pub fn start(server: &Server, channel: String) -> Result<Listener, StoreError> {
        Listener::with(server, channel, None)
    }

    /// The same, and shares a lock for as long as the connection lasts: by that others see that somebody listens.
    fn with(server: &Server, channel: String, shared: Option<i64>) -> Result<Listener, StoreError> {
        let listeners = Arc::new(Mutex::new(Listeners::default()));
        let (ready, started) = std::sync::mpsc::channel();
        let (server, heard, name) = (server.clone(), Arc::clone(&listeners), channel.clone());
        let run = move || {
            let mut ready = Some(ready);
            let Ok(runtime) = connect::runtime() else { return };
            while !lock(&heard).closed {
                let call = |call: Heard<'_>| match call {
                    Heard::Key(key) => lock(&heard).call(key),
                    Heard::Anything => lock(&heard).call_all(),
                };
                let is_closed = |context: &Context<'_>| lock(&heard).is_closed(context);
                let result = runtime.block_on(listen(&server, &name, shared, call, is_closed, &mut ready));
                if let (Err(error), Some(ready)) = (result, &ready) {
                    // Nobody waits for the first try any more if this fails, and then there is nothing to tell.
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

    /// Listens for as long as the process lives, in a thread, once `turn` has returned: one process listens for many. `call` hears of every
    /// key.
    pub fn relay(
        server: &Server,
        channel: String,
        turn: impl FnOnce() -> bool + Send + 'static,
        call: impl Fn(Heard<'_>) + Send + 'static,
    ) -> Result<(), StoreError> {
        let server = server.clone();
        let run = move || {
            let Some(runtime) = turn().then(|| connect::runtime().ok()).flatten() else { return };
            loop {
                // Whatever it was: the next try comes, and until then those who wait look by themselves now and then.
                runtime.block_on(listen(&server, &channel, None, &call, |_| false, &mut None)).ok();
                connect::pause(std::time::Duration::from_millis(200));
            }
        };
        std::thread::Builder::new().name("banksman-relay".into()).spawn(run).map(drop).map_err(StoreError::io)
    }

    /// Hears every event of a project, for those who follow its log.
    pub fn change_channel(server: &Server, project: i64) -> Result<Listener, StoreError> {
        Listener::with(server, super::change_channel(project), Some(super::FOLLOWER_SPACE | project))
    }

    /// Writes to a descriptor, which must not block, whenever a key is called.
    pub fn subscribe(&self, key: &str, wake: OwnedFd) -> Subscription {
        lock(&self.listeners).subscribers.insert(key.to_owned(), wake);
        Subscription { key: key.to_owned(), listeners: Arc::clone(&self.listeners) }
    }

    /// Subscribes to everything.
    pub fn changes(&self) -> Result<ChangeSubscription, StoreError> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|error| StoreError::io(error.into()))?;
        Ok(ChangeSubscription { read, _subscription: self.subscribe("", write) })
    }

    /// The channel it listens on.
    pub fn channel(&self) -> &str {
        &self.channel
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The thread ends, and its connection with it: who commits must not think that somebody follows.
        let mut listeners = lock(&self.listeners);
        listeners.closed = true;
        listeners.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl ChangeSubscription {
    /// Takes out what has been heard so far.
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

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard<'a> {
    /// This key was called.
    Key(&'a str),
    /// It has just begun to listen: everybody may have been called before.
    Anything,
}

type Ready = Option<std::sync::mpsc::Sender<Result<(), StoreError>>>;

/// Listens until the connection breaks. After a break something may have been missed, so everybody is woken once.
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
    /// Whether nobody is left; else who listens is woken when that is so.
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

/// A full pipe already says all.
fn poke(pipe: &OwnedFd) {
    rustix::io::write(pipe, b"!").ok();
}

fn lock(listeners: &Mutex<Listeners>) -> MutexGuard<'_, Listeners> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}
