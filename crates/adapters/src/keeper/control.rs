//! Those who talk to a keeper: its owner, and whoever connects to its control socket.

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

/// The socket is opened when a session is this old. A short one never needs it.
const BIND_AFTER: Duration = Duration::from_millis(100);

/// The pause after the socket could not be opened.
const BIND_AGAIN: Duration = Duration::from_secs(1);

/// How many may be connected at a time. One more, and the oldest of those who only look is cut off.
const CLIENTS: usize = 16;

/// How far one who watches may be behind, in bytes of the lines to it: 1 MB of output, each byte of which takes up to four.
const BEHIND: usize = 4 * 1024 * 1024;

/// Something to be done for a client. Whether it may ask for it is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask {
    /// A new owner wants to know what is.
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
    /// Whether it sees the output.
    watches: bool,
    /// What it has not taken yet, if it watches.
    outbox: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Control {
    clients: Vec<Client>,
    owner: Option<u64>,
    /// Who may type.
    typist: Option<u64>,
    epoch: i64,
    last_id: u64,
    listener: Option<UnixListener>,
    socket: PathBuf,
    bind_at: Instant,
}

impl Control {
    /// Begins with the stream of the owner, which does not block, and what has come from it but was not looked at.
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

    /// Opens the socket if it is time. Says when it is, if it is not open then.
    pub(super) fn bind_when_due(&mut self) -> Option<Instant> {
        if self.listener.is_none() && Instant::now() >= self.bind_at {
            match bind(&self.socket) {
                Ok(listener) => self.listener = Some(listener),
                // The session goes on; it just cannot be adopted meanwhile.
                Err(_) => self.bind_at = Instant::now() + BIND_AGAIN,
            }
        }
        self.listener.is_none().then_some(self.bind_at)
    }

    /// All that can become readable: first the listener if there is one, then the clients.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let flags = |client: &Client| if client.outbox.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let clients = self.clients.iter().map(move |client| (client.stream.as_fd(), flags(client)));
        self.listener.iter().map(|listener| (listener.as_fd(), PollFlags::IN)).chain(clients)
    }

    /// Takes in what the owner has asked before it was listened to.
    pub(super) fn receive_first(&mut self) -> Vec<Ask> {
        self.read(0)
    }

    /// Takes in what has arrived, where `ready` tells which of the [descriptors](Control::descriptors) are readable.
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

    /// Answers a client. One that does not take its answers is cut off: the keeper waits for nobody.
    pub(super) fn answer<T: Serialize>(&mut self, id: u64, answer: &T) {
        let Some(client) = self.clients.iter().find(|client| client.id == id) else { return };
        let line = encode(answer);
        if !matches!(send(&client.stream, &line), Ok(sent) if sent == line.len()) {
            self.cut_off(id);
        }
    }

    /// Answers one who talks to the session.
    pub(super) fn reply(&mut self, id: u64, reply: &TalkReply) {
        let Some(client) = self.clients.iter_mut().find(|client| client.id == id) else { return };
        client.outbox.extend(encode_as(TALK_VERSION, reply));
        self.flush(id);
    }

    /// Tells all who watch. One that is too far behind is cut off.
    pub(super) fn tell_watchers(&mut self, reply: &TalkReply) {
        let line = encode_as(TALK_VERSION, reply);
        let watchers: Vec<u64> = self.clients.iter().filter(|client| client.watches).map(|client| client.id).collect();
        for id in watchers {
            if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
                client.outbox.extend_from_slice(&line);
            }
            self.flush(id);
        }
    }

    /// Sends what a client takes now.
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

    /// Lets a client see the output.
    pub(super) fn watch(&mut self, id: u64) {
        self.clients.iter_mut().filter(|client| client.id == id).for_each(|client| client.watches = true);
    }

    pub(super) fn has_watchers(&self) -> bool {
        self.clients.iter().any(|client| client.watches)
    }

    pub(super) fn typist(&self) -> Option<u64> {
        self.typist
    }

    /// Makes a client the typist, and tells who was it before.
    pub(super) fn set_typist(&mut self, id: u64) {
        if let Some(former) = self.typist.replace(id).filter(|former| *former != id) {
            self.reply(former, &TalkReply::TypistMoved);
        }
    }

    /// The stream that it began with, if nobody else has become the owner since and nothing is left to be read in it.
    pub(super) fn into_first_owner(mut self) -> Option<UnixStream> {
        let at = self.clients.iter().position(|client| client.id == 0 && self.owner == Some(0))?;
        let owner = self.clients.swap_remove(at);
        owner.inbox.is_empty().then_some(owner.stream)
    }

    /// Closes the socket for good.
    pub(super) fn close(&mut self) {
        if self.listener.take().is_some() {
            // If it cannot be removed, whoever forgets the record does.
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
            // Those who watch stay.
            let looks = |client: &&Client| Some(client.id) != self.owner && !client.watches;
            let oldest = self.clients.iter().find(looks)?.id;
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
                Ok(request) => self.consider(id, request, &mut asks),
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

    fn consider(&mut self, id: u64, request: Request, asks: &mut Vec<Ask>) {
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
        // The right to type is bound to the connection, so it ends with the process that has it.
        if self.typist == Some(id) {
            self.typist = None;
        }
        if let Some(at) = self.clients.iter().position(|client| client.id == id) {
            // The first owner's stream is this process's stdin too, so closing it is not enough.
            self.clients.remove(at).stream.shutdown(Shutdown::Both).ok();
        }
    }
}

/// Binds through `/proc/self/fd`, as the path may be longer than the 108 bytes of a socket address.
fn bind(socket: &Path) -> io::Result<UnixListener> {
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    private::make_dir(dir)?;
    let dir = private::open(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let short = Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    let listener = UnixListener::bind(&short)?;
    // Until here only the uid of the peer protects it, which is asked in any case.
    fs::set_permissions(&short, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
