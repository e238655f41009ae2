//! Connecting to a keeper that may not have its socket yet, and may never answer.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_socket, socket_with};
use rustix::time::Timespec;

use super::protocol::{Arrival, Inbox, LINE_LIMIT};
use super::record::{Found, Record, read_record};
use crate::private;

/// The pause before another attempt to connect.
const AGAIN: Duration = Duration::from_millis(2);

/// Connects to the keeper of a record, with a non-blocking stream. Waits until `until` for a socket that does not exist yet.
pub(super) fn connect(record: &Path, until: Instant) -> io::Result<UnixStream> {
    loop {
        let Found::Live(found) = read_record(record)? else { return Err(not_connected()) };
        match connect_to(&found, record) {
            Ok(stream) => {
                let peer = rustix::net::sockopt::socket_peercred(&stream)?;
                let ours = peer.uid == rustix::process::geteuid();
                return if ours { Ok(stream) } else { Err(io::ErrorKind::PermissionDenied.into()) };
            }
            Err(_) if Instant::now() > until => return Err(does_not_answer()),
            // A keeper opens its socket a moment after the start, and there is no event to wait for.
            Err(_) => std::thread::sleep(AGAIN),
        }
    }
}

/// Connects through `/proc/self/fd`, because the path may be longer than the 108 bytes of a socket address. The backlog
/// may be full if the keeper does not accept: connecting a non-blocking socket fails then instead of waiting.
fn connect_to(found: &Record, record: &Path) -> io::Result<UnixStream> {
    let (Some(dir), Some(name)) = (found.socket.parent(), found.socket.file_name()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let open = |dir: &Path| private::open(dir, OFlags::RDONLY | OFlags::DIRECTORY);
    // In a project that was moved, the sockets are still beside the records, if they are in the project at all.
    let beside = || record.parent()?.parent().map(|folder| open(&folder.join("run")));
    let dir = open(dir).or_else(|error| beside().unwrap_or(Err(error)))?;
    let address = SocketAddrUnix::new(Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    connect_socket(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// The first line that arrives, with its line break.
pub(super) fn receive_line(stream: &UnixStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut inbox = Inbox::new(LINE_LIMIT);
    loop {
        let arrival = inbox.fill(stream);
        if let Some(line) = inbox.line() {
            return Ok(line);
        }
        let left = until.saturating_duration_since(Instant::now());
        match arrival {
            Arrival::Some => {}
            Arrival::End => return Err(not_connected()),
            Arrival::Nothing if left.is_zero() => return Err(does_not_answer()),
            Arrival::Nothing => {
                let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
                // The stream is read again, whatever ends the poll.
                poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&timeout)).ok();
            }
        }
    }
}

fn not_connected() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "no keeper lives")
}

fn does_not_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the keeper does not answer")
}
