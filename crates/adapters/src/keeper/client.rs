//! The side of the runner: starting, adopting and querying keepers. Only [`adopt`] and the queries wait for a keeper,
//! and for a limited time: a keeper may be stopped or blocked for any length of time.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::MARK;
use super::connect::{connect, receive_line};
use super::protocol::{
    Activity, Arrival, Inbox, LINE_LIMIT, Limit, Notice, Request, SPEC_LIMIT, SpawnRequest, Spec, Status, decode, encode, send,
};
use super::record::forget;
use crate::reentry;

/// How long a keeper may take to open its control socket, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many bytes are buffered for a keeper that does not read. Later requests are dropped: they would not help.
const UNREAD_LIMIT: usize = 2 * SPEC_LIMIT;

/// How long to wait for the exit of a keeper after the end of its stream. A process closes its files a moment before it exits.
const EXIT_WITHIN: Duration = Duration::from_millis(20);

/// A non-blocking stream to a keeper: poll it and read the [notices](Session::notices). Dropping it does not affect the session.
#[derive(Debug)]
pub struct Session {
    stream: UnixStream,
    inbox: Inbox,
    /// Requests that are not sent yet.
    outbox: Vec<u8>,
    owner_epoch: i64,
    record: PathBuf,
    /// The keeper, if it is a child of this process.
    child: Option<Child>,
    /// The exit status of the keeper, if it was such a child.
    exit: Option<ExitStatus>,
    gone: bool,
    /// Whether the ending has arrived.
    ended: bool,
    /// Whether the ending was acknowledged after it has arrived, so that the record is not needed any more.
    settled: bool,
}

/// Starts a keeper with its session. The [notices](Session::notices) report the result: `Started`, `Refused`, `Ended`
/// at once if the program cannot be started, or `Gone` if the keeper cannot even begin.
///
/// The keeper is the program that [`reentry`] knows; without one nothing is started.
pub fn start(spec: &Spec) -> io::Result<Session> {
    let request = spawn_request(spec, false)?;
    spawn(reentry::program()?, request, spec)
}

/// Like [`start`], with a keeper that is [ready](Notice::Ready) for another session after this one.
pub(super) fn start_to_stay(program: &Path, spec: &Spec) -> io::Result<Session> {
    spawn(program, spawn_request(spec, true)?, spec)
}

/// Like [`start`], with another program whose `main` calls [`reentry::enter`]. For tests, whose own `main` does not.
#[doc(hidden)]
pub fn start_from(program: &Path, spec: &Spec) -> io::Result<Session> {
    spawn(program, spawn_request(spec, false)?, spec)
}

/// Starts a keeper without a session, for [`Session::again`].
pub(super) fn start_idle(program: &Path) -> io::Result<Session> {
    reap_former(None);
    let (stream, server) = UnixStream::pair()?;
    let mut keeper = Command::new(program);
    keeper.arg0("banksman").arg(MARK).stdin(OwnedFd::from(server)).stdout(Stdio::null()).stderr(Stdio::null());
    let child = keeper.spawn()?;
    // From here on only the keeper holds the server end.
    drop(keeper);
    let mut session = Session::over(stream, 0, Path::new(""))?;
    session.child = Some(child);
    Ok(session)
}

fn spawn(program: &Path, request: Vec<u8>, spec: &Spec) -> io::Result<Session> {
    start_idle(program)?.give(request, spec)
}

/// The first line to a keeper.
fn spawn_request(spec: &Spec, stay: bool) -> io::Result<Vec<u8>> {
    let paths = [&spec.record, &spec.log, &spec.sockets, &spec.cwd]
        .into_iter()
        .chain(&spec.make_dirs)
        .chain(&spec.spare_dirs)
        .chain(&spec.stdin);
    if let Some(relative) = paths.into_iter().find(|path| !path.is_absolute()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{relative:?} is not an absolute path")));
    }
    let (boot, pid_ns) = place()?;
    let request = encode(&SpawnRequest { boot: boot.clone(), pid_ns: *pid_ns, stay, spec });
    if request.len() > SPEC_LIMIT {
        let text = format!("arguments and environment take {} bytes, at most {SPEC_LIMIT} are possible", request.len());
        return Err(io::Error::new(io::ErrorKind::ArgumentListTooLong, text));
    }
    Ok(request)
}

/// Takes over a live session. The first notice is `Refused` if the keeper has seen a higher epoch; otherwise it is
/// `Started`, followed by `Ended` if the session has ended.
///
/// Fails with `NotConnected` if no keeper lives; then [`read_record`](super::read_record) has the reason. Fails with
/// `TimedOut` after five seconds if the keeper lives but does not accept connections. Only its notices show that it
/// answers.
pub fn adopt(record: &Path, owner_epoch: i64) -> io::Result<Session> {
    let mut session = Session::over(connect(record, Instant::now() + PATIENCE)?, owner_epoch, record)?;
    session.ask(Request::Own { epoch: owner_epoch });
    Ok(session)
}

/// Queries the state of a session. Any process of the user may, at any time.
///
/// Fails with `NotConnected` if no keeper lives, and with `TimedOut` if one lives and does not answer within five seconds.
pub fn status(record: &Path) -> io::Result<Status> {
    status_within(record, PATIENCE)
}

/// Queries whether a session has worked since the previous sample. A keeper of an earlier version does not know.
pub fn sample(record: &Path) -> io::Result<Option<Activity>> {
    ask(record, Request::Sample, PATIENCE).map(|status| status.activity)
}

/// Like [`status`], with another patience.
pub fn status_within(record: &Path, patience: Duration) -> io::Result<Status> {
    ask(record, Request::Status, patience)
}

fn ask(record: &Path, request: Request, patience: Duration) -> io::Result<Status> {
    let until = Instant::now() + patience;
    let stream = connect(record, until)?;
    send(&stream, &encode(&request))?;
    let line = receive_line(&stream, until)?;
    let unclear = |_| io::Error::new(io::ErrorKind::InvalidData, "the keeper is of another version of Banksman");
    decode(&line).map_err(unclear)
}

impl Session {
    fn over(stream: UnixStream, owner_epoch: i64, record: &Path) -> io::Result<Session> {
        stream.set_nonblocking(true)?;
        let (inbox, record) = (Inbox::new(LINE_LIMIT), record.into());
        let (outbox, child, exit) = (Vec::new(), None, None);
        Ok(Session { stream, inbox, outbox, owner_epoch, record, child, exit, gone: false, ended: false, settled: false })
    }

    /// Gives another session to an idle keeper: one that was just started, or that is [ready](Notice::Ready).
    pub(super) fn again(self, spec: &Spec) -> io::Result<Session> {
        let request = spawn_request(spec, true)?;
        self.give(request, spec)
    }

    fn give(mut self, request: Vec<u8>, spec: &Spec) -> io::Result<Session> {
        let mut session = Session::over(self.stream.try_clone()?, spec.owner_epoch, &spec.record)?;
        session.child = self.child.take();
        session.outbox = request;
        session.push();
        Ok(session)
    }

    /// Whether this process has started the keeper.
    pub fn is_own(&self) -> bool {
        self.child.is_some() || self.exit.is_some()
    }

    /// The exit status of the keeper, if this process has started it and it has exited.
    pub fn exit(&self) -> Option<ExitStatus> {
        self.exit
    }

    /// Whether requests are not sent yet: poll the stream for writing too, and read the [notices](Session::notices) then.
    pub fn has_unsent(&self) -> bool {
        !self.gone && !self.outbox.is_empty()
    }

    /// Returns all notices that have arrived. [`Notice::Gone`] comes once, as the last one.
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
            self.exit = self.child.as_mut().and_then(exit_soon);
            reap_former(self.child.take().filter(|_| self.exit.is_none()));
            self.tidy();
        }
        notices
    }

    /// Requests the end of the session: its processes have `grace` after SIGTERM. [`Notice::Ended`] proves the end.
    pub fn kill(&mut self, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.ask(Request::Kill { epoch: self.owner_epoch, grace_ms });
    }

    /// Requests a nudge: a line in the log, SIGCONT for every process, and SIGUSR1 for processes that catch it. An
    /// effect is done once, however often it is requested; [`Notice::Nudged`] confirms it.
    pub fn nudge(&mut self, effect_id: i64) {
        self.ask(Request::Nudge { epoch: self.owner_epoch, effect_id });
    }

    /// Extends the limit of the session. A session that is ending already ends all the same.
    pub fn renew(&mut self, limit: Limit) {
        self.ask(Request::Renew { epoch: self.owner_epoch, limit });
    }

    /// Acknowledges that the ending is stored. The record of the session is not needed any more and is removed: by the
    /// keeper or, if it is gone meanwhile, by this process. Keep the session until [`Notice::Gone`], or the record may
    /// stay.
    pub fn acknowledge(&mut self) {
        self.settled = self.ended;
        self.ask(Request::Acknowledge { epoch: self.owner_epoch });
        if self.gone {
            self.tidy();
        }
    }

    fn ask(&mut self, request: Request) {
        if self.outbox.len() < UNREAD_LIMIT {
            self.outbox.extend(encode(&request));
        }
        self.push();
    }

    /// Sends as much as the stream accepts. If the keeper is gone, the end of the stream shows it.
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
            // A record that cannot be removed reports the session as ended again, which is correct.
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

/// Reaps the ended keepers among those that this process has started and has no session for any more.
fn reap_former(one_more: Option<Child>) {
    static FORMER: Mutex<Vec<Child>> = Mutex::new(Vec::new());
    let mut former = FORMER.lock().unwrap_or_else(PoisonError::into_inner);
    former.extend(one_more);
    former.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// The exit status of a keeper whose stream has ended.
fn exit_soon(keeper: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + EXIT_WITHIN;
    loop {
        match keeper.try_wait() {
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            exit => return exit.ok().flatten(),
        }
    }
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
