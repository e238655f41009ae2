//! The side of the runner: starting, adopting and asking keepers.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::MARK;
use super::protocol::{
    Arrival, Inbox, LINE_LIMIT, Limit, Notice, Order, Request, SPEC_LIMIT, Spec, Status, decode, encode, send,
};
use super::record::{Found, Record, forget, look};
use crate::{private, reentry};

/// How long a keeper may take to open its control socket, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// One stream to one keeper. It never blocks; poll it and take the [notices](Session::notices). Dropping it does
/// nothing to the session.
#[derive(Debug)]
pub struct Session {
    stream: UnixStream,
    inbox: Inbox,
    /// What did not fit into the stream yet.
    outbox: Vec<u8>,
    owner_epoch: i64,
    record: PathBuf,
    /// The keeper, if it is a child of this process.
    child: Option<Child>,
    gone: bool,
    /// Whether the ending was told and acknowledged, so that nobody needs the record.
    ended: bool,
    settled: bool,
}

/// Starts a keeper with its session. What becomes of it is told by the [notices](Session::notices): `Started`, or
/// `Refused`, or `Ended` at once if the program cannot be started; or `Gone` if the keeper cannot even begin.
///
/// The keeper is the program that [`reentry`] knows; without one nothing is started.
pub fn start(spec: &Spec) -> io::Result<Session> {
    let order = order(spec, false)?;
    spawn(reentry::program()?, order, spec)
}

/// Like [`start`], with a keeper that says that it is [ready](Notice::Ready) for another session after this one.
pub(super) fn start_to_stay(program: &Path, spec: &Spec) -> io::Result<Session> {
    spawn(program, order(spec, true)?, spec)
}

/// Like [`start`], with another program whose `main` calls [`reentry::enter`]. For tests, whose own `main` does not.
#[doc(hidden)]
pub fn start_from(program: &Path, spec: &Spec) -> io::Result<Session> {
    spawn(program, order(spec, false)?, spec)
}

fn spawn(program: &Path, order: Vec<u8>, spec: &Spec) -> io::Result<Session> {
    reap_former(None);
    let (stream, far) = UnixStream::pair()?;
    let mut keeper = Command::new(program);
    keeper.arg0("banksman").arg(MARK).stdin(OwnedFd::from(far)).stdout(Stdio::null()).stderr(Stdio::null());
    let child = keeper.spawn()?;
    // The far end is in the keeper alone from here on.
    drop(keeper);
    send_all(&stream, &order);
    let mut session = Session::over(stream, spec.owner_epoch, &spec.record)?;
    session.child = Some(child);
    Ok(session)
}

/// The first line to a keeper.
fn order(spec: &Spec, stay: bool) -> io::Result<Vec<u8>> {
    let paths = [&spec.record, &spec.log, &spec.sockets, &spec.cwd].into_iter().chain(&spec.make_dirs).chain(&spec.stdin);
    if let Some(relative) = paths.into_iter().find(|path| !path.is_absolute()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{relative:?} is not an absolute path")));
    }
    let (boot, pid_ns) = place()?;
    let order = encode(&Order { boot: boot.clone(), pid_ns: *pid_ns, stay, spec });
    if order.len() > SPEC_LIMIT {
        let text = format!("arguments and environment take {} bytes, at most {SPEC_LIMIT} are possible", order.len());
        return Err(io::Error::new(io::ErrorKind::ArgumentListTooLong, text));
    }
    Ok(order)
}

/// Sends an order over a stream that blocks. A keeper that could not read it has ended, and so has the stream.
fn send_all(stream: &UnixStream, mut order: &[u8]) {
    while let Ok(sent) = send(stream, order) {
        order = &order[sent..];
        if order.is_empty() {
            return;
        }
    }
}

/// Takes a living session over. The keeper refuses if it has seen a higher epoch, which the first notice tells;
/// otherwise it tells `Started`, and `Ended` if that is so.
///
/// Fails with `NotConnected` if no keeper lives; then [`look`] tells more.
pub fn adopt(record: &Path, owner_epoch: i64) -> io::Result<Session> {
    let mut session = Session::over(connect(record)?, owner_epoch, record)?;
    session.ask(Request::Own { epoch: owner_epoch });
    Ok(session)
}

/// Asks how a session is. Anybody may, at any time.
///
/// Fails with `NotConnected` if no keeper lives.
pub fn status(record: &Path) -> io::Result<Status> {
    let stream = connect(record)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    send(&stream, &encode(&Request::Status))?;
    let mut line = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(not_connected());
    }
    let unclear = |_| io::Error::new(io::ErrorKind::InvalidData, "the keeper is of another version of Banksman");
    decode(&line).map_err(unclear)
}

impl Session {
    fn over(stream: UnixStream, owner_epoch: i64, record: &Path) -> io::Result<Session> {
        stream.set_nonblocking(true)?;
        let (inbox, record) = (Inbox::new(LINE_LIMIT), record.into());
        let (outbox, child) = (Vec::new(), None);
        Ok(Session { stream, inbox, outbox, owner_epoch, record, child, gone: false, ended: false, settled: false })
    }

    /// Gives the keeper of a session that was acknowledged another one to keep, once it has said that it is
    /// [ready](Notice::Ready).
    pub(super) fn again(mut self, spec: &Spec) -> io::Result<Session> {
        let order = order(spec, true)?;
        self.stream.set_nonblocking(false)?;
        send_all(&self.stream, &order);
        let child = self.child.take();
        let mut session = Session::over(self.stream.try_clone()?, spec.owner_epoch, &spec.record)?;
        session.child = child;
        Ok(session)
    }

    /// All that has arrived. [`Notice::Gone`] comes once, and last.
    pub fn notices(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        if self.gone {
            return notices;
        }
        self.push();
        let mut arrival = Arrival::Some;
        while arrival == Arrival::Some {
            arrival = self.inbox.fill(&self.stream);
            while let Some(line) = self.inbox.line() {
                match decode::<Notice>(&line) {
                    Ok(notice) => notices.push(notice),
                    Err(_) => arrival = Arrival::End,
                }
            }
        }
        self.ended |= notices.iter().any(|notice| matches!(notice, Notice::Ended(_)));
        if arrival == Arrival::End {
            self.gone = true;
            notices.push(Notice::Gone);
            reap_former(self.child.take());
            self.tidy();
        }
        notices
    }

    /// Asks for the end of the session: its processes have `grace` to end by themselves. [`Notice::Ended`] tells when
    /// none of them is left.
    pub fn kill(&mut self, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.ask(Request::Kill { epoch: self.owner_epoch, grace_ms });
    }

    /// Asks for a sign of life: a line in the log, SIGCONT for every process, and SIGUSR1 for those that catch it. An effect is
    /// done once, however often it is asked for; [`Notice::Nudged`] tells that it was.
    pub fn nudge(&mut self, effect_id: i64) {
        self.ask(Request::Nudge { epoch: self.owner_epoch, effect_id });
    }

    /// Tells that the session may go on for longer. One that is ending already ends all the same.
    pub fn renew(&mut self, limit: Limit) {
        self.ask(Request::Renew { epoch: self.owner_epoch, limit });
    }

    /// Says that the ending is stored. Nobody needs the session's record any more, so it is removed: by the keeper or,
    /// if that has gone meanwhile, from here. Keep the session until [`Notice::Gone`], or a late one stays.
    pub fn acknowledge(&mut self) {
        self.settled = self.ended;
        self.ask(Request::Acknowledge { epoch: self.owner_epoch });
        if self.gone {
            self.tidy();
        }
    }

    fn ask(&mut self, request: Request) {
        self.outbox.extend(encode(&request));
        self.push();
    }

    /// Sends what is to be sent. If the keeper is gone, its silence tells.
    fn push(&mut self) {
        while !self.gone && !self.outbox.is_empty() {
            match send(&self.stream, &self.outbox) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.outbox.clear();
                    self.tidy();
                }
            }
        }
    }

    /// Removes the record if the acknowledgement came too late for the keeper.
    fn tidy(&self) {
        if self.settled {
            // If it cannot be removed, it is found as ended again, which is the truth.
            forget(&self.record).ok();
        }
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        reap_former(self.child.take());
    }
}

/// Reaps what has ended of the keepers that this process has started and has no session of any more.
fn reap_former(one_more: Option<Child>) {
    static FORMER: Mutex<Vec<Child>> = Mutex::new(Vec::new());
    let mut former = FORMER.lock().unwrap_or_else(PoisonError::into_inner);
    former.extend(one_more);
    former.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// Connects to the keeper of a record; waits a little if its socket is not there yet.
fn connect(record: &Path) -> io::Result<UnixStream> {
    let patience_ends = Instant::now() + PATIENCE;
    loop {
        let Found::Live(found) = look(record)? else { return Err(not_connected()) };
        match connect_to(&found, record) {
            Ok(stream) => {
                let peer = rustix::net::sockopt::socket_peercred(&stream)?;
                let ours = peer.uid == rustix::process::geteuid();
                return if ours { Ok(stream) } else { Err(io::ErrorKind::PermissionDenied.into()) };
            }
            Err(error) if Instant::now() > patience_ends => return Err(error),
            // The socket of a keeper comes when it is likely to be needed; there is nothing to wait for but time.
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// The path may be longer than the 108 bytes of a socket address, so it is addressed through `/proc/self/fd`.
fn connect_to(found: &Record, record: &Path) -> io::Result<UnixStream> {
    let (Some(dir), Some(name)) = (found.socket.parent(), found.socket.file_name()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let open = |dir: &Path| private::open(dir, OFlags::RDONLY | OFlags::DIRECTORY);
    // A project that was moved has its sockets beside its records still, if they are in the project at all.
    let beside = || record.parent()?.parent().map(|folder| open(&folder.join("run")));
    let dir = open(dir).or_else(|error| beside().unwrap_or(Err(error)))?;
    UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

fn not_connected() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "no keeper lives")
}

/// The boot and the pid namespace of this process.
pub(super) fn place() -> io::Result<&'static (String, u64)> {
    static PLACE: OnceLock<(String, u64)> = OnceLock::new();
    if let Some(place) = PLACE.get() {
        return Ok(place);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    let pid_ns = fs::metadata("/proc/self/ns/pid")?.ino();
    Ok(PLACE.get_or_init(|| (boot, pid_ns)))
}
