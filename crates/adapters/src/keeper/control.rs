//! The clients of a keeper: its owner, and the processes that connect to its control socket.

use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::OFlags;
use serde::Serialize;

use super::protocol::{
    Arrival, Inbox, Limit, Notice, Refusal, Request, Unclear, VERSION, decode, decode_as, encode, encode_as, send,
};
use super::talk::{TALK_LIMIT, TALK_VERSION, TalkReply, TalkRequest};
use crate::private;

/// The age of a session at which the socket is opened. A short session never needs it.
const BIND_AFTER: Duration = Duration::from_millis(100);

/// The pause after the socket could not be opened.
const BIND_AGAIN: Duration = Duration::from_secs(1);

/// The maximum number of clients. If one more connects, the oldest that is neither owner nor watcher is disconnected.
const CLIENTS: usize = 16;

/// How many bytes of lines a watcher may be behind: 1 MB of output, each byte of which takes up to four.
const BEHIND: usize = 4 * 1024 * 1024;

/// An authorized request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask {
    /// A new owner needs the state of the session.
    Adopted,
    Status {
        client: u64,
    },
    Sample {
        client: u64,
    },
    Kill {
        grace: Duration,
    },
    Nudge {
        effect_id: i64,
    },
    Acknowledge,
    Renew {
        limit: Limit,
    },
    Talk {
        client: u64,
        request: TalkRequest,
    },
}

#[derive(Debug)]
struct Client {
    id: u64,
    stream: UnixStream,
    inbox: Inbox,
    /// Whether the client gets the output.
    watches: bool,
    /// Lines that the client has not received yet.
    outbox: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Control {
    clients: Vec<Client>,
    owner: Option<u64>,
    /// The client that may type.
    typist: Option<u64>,
    epoch: i64,
    last_id: u64,
    listener: Option<UnixListener>,
    socket: PathBuf,
    bind_at: Instant,
}

impl Control {
    /// Begins with the non-blocking stream of the owner, and the lines that have arrived there but were not handled yet.
    pub(super) fn new(owner: UnixStream, inbox: Inbox, epoch: i64, socket: PathBuf) -> Control {
        let owner = Client { id: 0, stream: owner, inbox, watches: false, outbox: Vec::new() };
        let bind_at = Instant::now() + BIND_AFTER;
        Control { clients: vec![owner], owner: Some(0), typist: None, epoch, last_id: 0, listener: None, socket, bind_at }
    }

    pub(super) fn epoch(&self) -> i64 {
        self.epoch
    }

    pub(super) fn owned(&self) -> bool {
        self.owner.is_some()
    }

    /// Opens the socket if it is due. Returns the time of the next attempt if the socket is not open.
    pub(super) fn bind_when_due(&mut self) -> Option<Instant> {
        if self.listener.is_none() && Instant::now() >= self.bind_at {
            match bind(&self.socket) {
                Ok(listener) => self.listener = Some(listener),
                // The session continues, but cannot be adopted meanwhile.
                Err(_) => self.bind_at = Instant::now() + BIND_AGAIN,
            }
        }
        self.listener.is_none().then_some(self.bind_at)
    }

    /// The descriptors to poll: the listener, if there is one, then the clients.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let flags = |client: &Client| if client.outbox.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let clients = self.clients.iter().map(move |client| (client.stream.as_fd(), flags(client)));
        self.listener.iter().map(|listener| (listener.as_fd(), PollFlags::IN)).chain(clients)
    }

    /// Handles the requests that the owner sent before the first poll.
    pub(super) fn receive_first(&mut self) -> Vec<Ask> {
        self.read(0)
    }

    /// Handles the requests that have arrived; `ready` has one entry for each of the [descriptors](Control::descriptors).
    pub(super) fn receive(&mut self, ready: &[bool]) -> Vec<Ask> {
        let (door, ready) = ready.split_at(usize::from(self.listener.is_some()));
        let ready = ready.iter().zip(&self.clients).filter(|(ready, _)| **ready);
        let mut readable: Vec<u64> = ready.map(|(_, client)| client.id).collect();
        readable.iter().for_each(|id| self.flush(*id));
        if door == [true] {
            readable.extend(self.accept());
        }
        readable.into_iter().flat_map(|id| self.read(id)).collect()
    }

    /// Notifies the owner, if there is one.
    pub(super) fn notify_owner(&mut self, notice: &Notice) {
        if let Some(owner) = self.owner {
            self.answer(owner, notice);
        }
    }

    /// Answers a client. A client that does not read its answers is disconnected: the keeper never waits.
    pub(super) fn answer<T: Serialize>(&mut self, id: u64, answer: &T) {
        let Some(client) = self.clients.iter().find(|client| client.id == id) else { return };
        let line = encode(answer);
        if !matches!(send(&client.stream, &line), Ok(sent) if sent == line.len()) {
            self.cut_off(id);
        }
    }

    /// Answers a client that talks to the session.
    pub(super) fn reply(&mut self, id: u64, reply: &TalkReply) {
        let Some(client) = self.clients.iter_mut().find(|client| client.id == id) else { return };
        client.outbox.extend(encode_as(TALK_VERSION, reply));
        self.flush(id);
    }

    /// Notifies all watchers. A watcher that is too far behind is disconnected.
    pub(super) fn notify_watchers(&mut self, reply: &TalkReply) {
        let line = encode_as(TALK_VERSION, reply);
        let watchers: Vec<u64> = self.clients.iter().filter(|client| client.watches).map(|client| client.id).collect();
        for id in watchers {
            if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
                client.outbox.extend_from_slice(&line);
            }
            self.flush(id);
        }
    }

    /// Sends as much as a client accepts now.
    fn flush(&mut self, id: u64) {
        let Some(client) = self.clients.iter_mut().find(|client| client.id == id) else { return };
        while !client.outbox.is_empty() {
            match send(&client.stream, &client.outbox) {
                Ok(sent) => drop(client.outbox.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && client.outbox.len() <= BEHIND => return,
                Err(_) => return self.cut_off(id),
            }
        }
    }

    /// Makes a client a watcher, which gets the output.
    pub(super) fn watch(&mut self, id: u64) {
        self.clients.iter_mut().filter(|client| client.id == id).for_each(|client| client.watches = true);
    }

    pub(super) fn has_watchers(&self) -> bool {
        self.clients.iter().any(|client| client.watches)
    }

    pub(super) fn typist(&self) -> Option<u64> {
        self.typist
    }

    /// Makes a client the typist, and notifies the former one.
    pub(super) fn set_typist(&mut self, id: u64) {
        if let Some(former) = self.typist.replace(id).filter(|former| *former != id) {
            self.reply(former, &TalkReply::TypistMoved);
        }
    }

    /// The stream of the first owner, if it is still the owner and no request of it is unread.
    pub(super) fn into_first_owner(mut self) -> Option<UnixStream> {
        let at = self.clients.iter().position(|client| client.id == 0 && self.owner == Some(0))?;
        let owner = self.clients.swap_remove(at);
        owner.inbox.is_empty().then_some(owner.stream)
    }

    /// Closes the socket for good.
    pub(super) fn close(&mut self) {
        if self.listener.take().is_some() {
            // If it cannot be removed, `forget` removes it with the record.
            fs::remove_file(&self.socket).ok();
        }
    }

    fn accept(&mut self) -> Option<u64> {
        let (stream, _) = self.listener.as_ref()?.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
        if peer.uid != rustix::process::geteuid() {
            return None;
        }
        if self.clients.len() >= CLIENTS {
            let is_idle = |client: &&Client| Some(client.id) != self.owner && !client.watches;
            let oldest = self.clients.iter().find(is_idle)?.id;
            self.cut_off(oldest);
        }
        self.last_id += 1;
        self.clients.push(Client { id: self.last_id, stream, inbox: Inbox::new(TALK_LIMIT), watches: false, outbox: Vec::new() });
        Some(self.last_id)
    }

    fn read(&mut self, id: u64) -> Vec<Ask> {
        let mut asks = Vec::new();
        let Some(client) = self.clients.iter_mut().find(|client| client.id == id) else { return asks };
        let mut arrival = client.inbox.fill(&client.stream);
        let lines: Vec<Vec<u8>> = std::iter::from_fn(|| client.inbox.line()).collect();
        for line in lines {
            if let Ok(request) = decode_as::<TalkRequest>(TALK_VERSION, &line) {
                asks.push(Ask::Talk { client: id, request });
                continue;
            }
            match decode::<Request>(&line) {
                Ok(request) => self.authorize(id, request, &mut asks),
                Err(unclear) => {
                    if unclear == Unclear::Version {
                        self.answer(id, &Notice::Refused(Refusal::Version { keeper: VERSION }));
                    }
                    arrival = Arrival::End;
                    break;
                }
            }
        }
        if arrival == Arrival::End {
            self.cut_off(id);
        }
        asks
    }

    fn authorize(&mut self, id: u64, request: Request, asks: &mut Vec<Ask>) {
        let (epoch, ask) = match request {
            Request::Status => return asks.push(Ask::Status { client: id }),
            Request::Sample => return asks.push(Ask::Sample { client: id }),
            Request::Own { epoch } => (epoch, None),
            Request::Kill { epoch, grace_ms } => (epoch, Some(Ask::Kill { grace: Duration::from_millis(grace_ms) })),
            Request::Nudge { epoch, effect_id } => (epoch, Some(Ask::Nudge { effect_id })),
            Request::Acknowledge { epoch } => (epoch, Some(Ask::Acknowledge)),
            Request::Renew { epoch, limit } => (epoch, Some(Ask::Renew { limit })),
        };
        if epoch < self.epoch {
            return self.answer(id, &Notice::Refused(Refusal::LowerEpoch { current: self.epoch }));
        }
        if self.owner != Some(id) {
            if let Some(former) = self.owner {
                self.answer(former, &Notice::Refused(Refusal::LowerEpoch { current: epoch }));
                self.cut_off(former);
            }
            self.owner = Some(id);
            asks.push(Ask::Adopted);
        }
        self.epoch = epoch;
        asks.extend(ask);
    }

    fn cut_off(&mut self, id: u64) {
        if self.owner == Some(id) {
            self.owner = None;
        }
        // The right to type belongs to the connection, so it ends with the process.
        if self.typist == Some(id) {
            self.typist = None;
        }
        if let Some(at) = self.clients.iter().position(|client| client.id == id) {
            // The stream of the first owner is also the stdin of this process, so closing it is not enough.
            self.clients.remove(at).stream.shutdown(Shutdown::Both).ok();
        }
    }
}

/// Binds through `/proc/self/fd`, because the path may be longer than the 108 bytes of a socket address.
fn bind(socket: &Path) -> io::Result<UnixListener> {
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    private::make_dir(dir)?;
    let dir = private::open(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let short = Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    let listener = UnixListener::bind(&short)?;
    // Before this call only the check of the peer's uid, which is always made, protects the socket.
    fs::set_permissions(&short, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
