//! The start of a keeper, in its own process, up to the start of its program.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{chdir, getpid, set_child_subreaper, setsid};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

use super::MARK;
use super::cgroup::Cgroup;
use super::control::Control;
use super::keep::Keeper;
use super::protocol::{
    Arrival, Inbox, Notice, Refusal, Request, SPEC_LIMIT, SpawnRequest, Spec, Unclear, VERSION, decode, encode, message, send,
};
use super::record::{Own, Record};
use super::timer::Timer;
use crate::shortage::Shortage;
use crate::{host, ids, process};

/// Becomes a keeper if the arguments ask for one, and returns when its work is done. Returns `None` otherwise.
/// See [`reentry::enter`](crate::reentry::enter).
pub(crate) fn enter(args: &[OsString]) -> Option<ExitCode> {
    if args.get(1)? != MARK {
        return None;
    }
    // The runner sees the end of the stream, and then reads the record.
    Some(begin().map_or_else(report_failure, |()| ExitCode::SUCCESS))
}

/// Reports to the owner why this keeper ends before a session has begun.
fn report_failure(error: io::Error) -> ExitCode {
    if let Ok(owner) = io::stdin().as_fd().try_clone_to_owned() {
        let refusal = Refusal::CannotBegin { error: message(&error), shortage: Shortage::of(&error) };
        // An owner that does not get the refusal sees the end of the stream.
        refuse(&UnixStream::from(owner), refusal).ok();
    }
    ExitCode::FAILURE
}

/// Keeps one session after the other while the owner requests more: this saves most of the cost of a start.
fn begin() -> io::Result<()> {
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    let mut signals = Signals::catch()?;
    let mut owner = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // A keeper must not prevent that a directory is removed or a disk is unmounted.
    chdir("/")?;
    // Before anything is started, so that every process of a session is in the group.
    let cgroup = Cgroup::join();
    // Without a session the keeper waits until its owner requests one or ends the stream.
    loop {
        let mut inbox = Inbox::new(SPEC_LIMIT);
        let request = match receive(&owner, &mut inbox) {
            Some(Ok(request)) => request,
            Some(Err(Unclear::Version)) => return refuse(&owner, Refusal::Version { keeper: VERSION }),
            Some(Err(Unclear::Garbage)) => return Err(io::ErrorKind::InvalidData.into()),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        owner.set_nonblocking(true)?;
        // A SIGTERM while the keeper was idle means that no further session is wanted.
        if signals.take() {
            return Ok(());
        }
        let stay = request.stay;
        match keep(request, cgroup.as_ref(), owner, inbox, signals)? {
            Some(after) if stay => (owner, signals) = after,
            Some(_) | None => return Ok(()),
        }
        owner.set_nonblocking(false)?;
        send(&owner, &encode(&Notice::Ready))?;
    }
}

/// Keeps one session. Returns the owner's stream for the next request, if the end of the session was acknowledged.
fn keep(
    request: SpawnRequest<Spec>,
    cgroup: Option<&Cgroup>,
    owner: UnixStream,
    inbox: Inbox,
    signals: Signals,
) -> io::Result<Option<(UnixStream, Signals)>> {
    let record = describe(&request, cgroup)?;
    let (started_at_ms, socket) = (record.started_at_ms, record.socket.clone());
    let spec = request.spec;
    let timer = spec.limit.map(Timer::new).transpose()?;
    let record = match Own::create(&spec.record, record) {
        Ok(Some(record)) => record,
        Ok(None) => return refuse(&owner, Refusal::RecordExists).map(|()| None),
        Err(error) => {
            let (error, shortage) = (message(&error), Shortage::of(&error));
            return refuse(&owner, Refusal::NoRecord { error, shortage }).map(|()| None);
        }
    };
    let control = Control::new(owner, inbox, spec.owner_epoch, socket);
    Ok(Keeper::start(spec, record, control, signals, timer, started_at_ms).keep())
}

/// Receives the next request for a session. Later lines stay in the inbox.
fn receive(owner: &UnixStream, inbox: &mut Inbox) -> Option<Result<SpawnRequest<Spec>, Unclear>> {
    while inbox.fill(owner) == Arrival::Some {
        while let Some(line) = inbox.line() {
            // A request that crossed the end of the previous session, such as a second acknowledgement, is skipped.
            if decode::<Request>(&line).is_err() {
                return Some(decode(&line));
            }
        }
    }
    None
}

fn describe(request: &SpawnRequest<Spec>, cgroup: Option<&Cgroup>) -> io::Result<Record> {
    let pid = getpid().as_raw_nonzero().get();
    Ok(Record {
        run: request.spec.run.clone(),
        owner_epoch: request.spec.owner_epoch,
        keeper_pid: pid,
        keeper_start: process::start_time(pid)?,
        boot: request.boot.clone(),
        pid_ns: request.pid_ns,
        socket: request.spec.sockets.join(format!("{}.keeper", ids::short("k"))),
        log: request.spec.log.clone(),
        started_at_ms: host::wall_ms(),
        cgroup: cgroup.map(|cgroup| cgroup.id().clone()),
    })
}

fn refuse(owner: &UnixStream, refusal: Refusal) -> io::Result<()> {
    send(owner, &encode(&Notice::Refused(refusal))).map(drop)
}

/// The signals of a keeper. All have a handler and none is ignored: the program would inherit an ignored signal, while
/// a signal with a handler is reset to its default.
#[derive(Debug)]
pub(super) struct Signals {
    pipe: UnixStream,
    term: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> io::Result<Signals> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let term = Arc::new(AtomicBool::new(false));
        flag::register(SIGTERM, Arc::clone(&term))?;
        low_level::pipe::register(SIGTERM, OwnedFd::from(write.try_clone()?))?;
        low_level::pipe::register(SIGCHLD, OwnedFd::from(write))?;
        // These signals have no effect. SIGXFSZ comes when the log reaches a limit on the size of files.
        let ignored = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGXFSZ] {
            flag::register(signal, Arc::clone(&ignored))?;
        }
        Ok(Signals { pipe, term })
    }

    /// Whether SIGTERM has arrived since the last call.
    pub(super) fn take(&self) -> bool {
        let mut bytes = [0u8; 64];
        while io::Read::read(&mut &self.pipe, &mut bytes).is_ok_and(|n| n == bytes.len()) {}
        self.term.swap(false, Ordering::Relaxed)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
