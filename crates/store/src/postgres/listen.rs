//! Hearing what the server notifies: one connection and one thread per process, however many wait.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::poll_fn;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio_postgres::AsyncMessage;

use super::connect::{self, Server};
use crate::error::StoreError;

/// Listens on one channel and wakes those who subscribed to a key.
pub struct Listener {
    channel: String,
    ears: Arc<Mutex<Ears>>,
}

/// Whom to wake, by key; the empty key hears everything.
#[derive(Default)]
struct Ears {
    subscribers: BTreeMap<String, OwnedFd>,
    /// Nobody is left to hear anything.
    closed: bool,
}

/// A place that becomes readable when its key is called. It is given up with this value.
pub struct Subscription {
    key: String,
    read: OwnedFd,
    ears: Arc<Mutex<Ears>>,
}

impl Listener {
    /// Starts to listen. Returns once the server has confirmed, so that nothing is missed from then on.
    pub fn start(server: &Server, channel: String) -> Result<Listener, StoreError> {
        let ears = Arc::new(Mutex::new(Ears::default()));
        let (ready, started) = std::sync::mpsc::channel();
        let (server, heard, name) = (server.clone(), Arc::clone(&ears), channel.clone());
        let run = move || {
            let mut ready = Some(ready);
            let Ok(runtime) = connect::runtime() else { return };
            while !lock(&heard).closed {
                let result = runtime.block_on(listen(&server, &name, &heard, &mut ready));
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
        Ok(Listener { channel, ears })
    }

    /// The follower's ear: hears every event of a project.
    pub fn change_channel(server: &Server, project: i64) -> Result<Listener, StoreError> {
        Listener::start(server, super::change_channel(project))
    }

    /// Subscribes to a key. Its address is `CHANNEL/KEY`.
    pub fn subscribe(&self, key: &str) -> Result<Subscription, StoreError> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|error| StoreError::io(error.into()))?;
        lock(&self.ears).subscribers.insert(key.to_owned(), write);
        Ok(Subscription { key: key.to_owned(), read, ears: Arc::clone(&self.ears) })
    }

    /// The channel it listens on.
    pub fn channel(&self) -> &str {
        &self.channel
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The thread ends with the process, or at its next reconnection; it costs nothing until then.
        lock(&self.ears).closed = true;
    }
}

impl Subscription {
    /// Takes out what has been heard so far.
    pub fn empty(&self) {
        let mut bytes = [0u8; 64];
        while rustix::io::read(&self.read, &mut bytes).is_ok_and(|count| count > 0) {}
    }
}

impl AsFd for Subscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        lock(&self.ears).subscribers.remove(&self.key);
    }
}

type Ready = Option<std::sync::mpsc::Sender<Result<(), StoreError>>>;

/// Listens until the connection breaks. After a break something may have been missed, so everybody is woken once.
async fn listen(server: &Server, channel: &str, ears: &Mutex<Ears>, ready: &mut Ready) -> Result<(), StoreError> {
    let (client, mut messages) = server.connect().await?;
    let command = format!("LISTEN \"{channel}\"");
    let listening = client.batch_execute(&command);
    let mut listening = std::pin::pin!(listening);
    let mut confirmed = false;
    loop {
        let next = poll_fn(|context| {
            if !confirmed && let std::task::Poll::Ready(done) = listening.as_mut().poll(context) {
                confirmed = true;
                if done.is_err() {
                    return std::task::Poll::Ready(None);
                }
                lock(ears).call_all();
                if let Some(ready) = ready.take() {
                    ready.send(Ok(())).ok();
                }
            }
            messages.as_mut().poll_next(context)
        });
        match next.await {
            Some(Ok(AsyncMessage::Notification(notification))) => lock(ears).call(notification.payload()),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(super::judge(error)),
            None => return Ok(()),
        }
    }
}

impl Ears {
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

fn lock(ears: &Mutex<Ears>) -> MutexGuard<'_, Ears> {
    ears.lock().unwrap_or_else(PoisonError::into_inner)
}
