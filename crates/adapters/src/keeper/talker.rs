//! The client side of talking to a live session.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::connect::connect;
use super::protocol::{
    Arrival, Inbox, InputKind, InputRefusal, Notice, Refusal, decode, decode_as, encode_as, send as send_some,
};
use super::talk::{OUTPUT_PIECE, TALK_LIMIT, TALK_VERSION, TalkReply, TalkRequest, Typist};

/// The input that a session accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// The kind of the input, if it is open.
    pub input: Option<InputKind>,
    pub has_typist: bool,
    /// Whether the session works in turns, so that a message can wait for the next turn.
    pub has_turns: bool,
}

/// When a message is written into a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// As soon as the session reads.
    Now,
    /// At the end of the agent's turn. The keeper holds the message until then, and the end of the session lists the
    /// written ones.
    NextTurn,
}

/// The state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The keeper has the message, and the session has not read earlier input.
    Taken,
    /// All of the message is in the input of the session.
    Written,
}

/// Why a session cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// No keeper lives: the session has ended, or has not started yet.
    #[error("the session has ended")]
    Gone,
    /// The keeper does not answer, and nothing was sent.
    #[error("the keeper of the session does not answer")]
    Silent,
    /// The keeper is of a version that does not support it.
    #[error("the session was started by an earlier version of Banksman, which takes no input")]
    Cannot,
    #[error(transparent)]
    Refused(InputRefusal),
    /// The message was sent, and the result is unknown.
    #[error("it is not known whether the session has got it")]
    Unknown,
    #[error(transparent)]
    System(io::Error),
}

impl From<io::Error> for TalkError {
    fn from(error: io::Error) -> TalkError {
        match error.kind() {
            io::ErrorKind::NotConnected
            | io::ErrorKind::NotFound
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => TalkError::Gone,
            io::ErrorKind::TimedOut => TalkError::Silent,
            _ => TalkError::System(error),
        }
    }
}

/// Queries the input that a session accepts. Waits `patience` for the answer.
pub fn ping(record: &Path, patience: Duration) -> Result<Presence, TalkError> {
    Talker::open(record, patience)?.ping(patience)
}

/// Nudges a session: stopped processes continue, and processes with a handler for SIGUSR1 get it.
pub fn nudge(record: &Path, patience: Duration) -> Result<(), TalkError> {
    let until = Instant::now() + patience;
    let mut talker = Talker::connect(record, until)?;
    talker.send_request(&TalkRequest::Nudge, until)?;
    match talker.receive(until)? {
        Some(TalkReply::Nudged) => Ok(()),
        Some(_) => Err(TalkError::Cannot),
        None => Err(TalkError::Silent),
    }
}

/// Makes the keeper of an agent wait for a message at the end of the turn.
pub fn expect_answer(record: &Path, patience: Duration) -> Result<(), TalkError> {
    let mut talker = Talker::open(record, patience)?;
    talker.send_request(&TalkRequest::Expect, Instant::now() + patience)?;
    // Requests are handled in order, so the answer to the next one confirms this one.
    talker.ping(patience).map(drop)
}

/// Closes the input of a session behind everything that was sent before.
pub fn close_input(record: &Path, patience: Duration) -> Result<(), TalkError> {
    let until = Instant::now() + patience;
    let mut talker = Talker::connect(record, until)?;
    talker.send_request(&TalkRequest::Close, until)?;
    // Requests are handled in order, so the answer to the next one confirms this one.
    talker.send_request(&TalkRequest::Ping, until)?;
    match talker.receive(until)? {
        Some(TalkReply::Pong { .. }) => Ok(()),
        Some(TalkReply::Refused(refusal)) => Err(TalkError::Refused(refusal)),
        Some(_) => Err(TalkError::Cannot),
        None => Err(TalkError::Silent),
    }
}

/// Writes a message into a session: [`Talker::send`].
pub fn send(record: &Path, id: &str, text: &str, patience: Duration) -> Result<Delivery, TalkError> {
    Talker::open(record, patience)?.send(id, text, When::Now, patience)
}

/// A connection to the keeper of a live session.
#[derive(Debug)]
pub struct Talker {
    stream: UnixStream,
    inbox: Inbox,
    outbox: Vec<u8>,
}

impl Talker {
    fn connect(record: &Path, until: Instant) -> Result<Talker, TalkError> {
        let stream = connect(record, until)?;
        Ok(Talker { stream, inbox: Inbox::new(TALK_LIMIT), outbox: Vec::new() })
    }

    /// Connects to the keeper of a session, for several requests.
    pub fn open(record: &Path, patience: Duration) -> Result<Talker, TalkError> {
        Talker::connect(record, Instant::now() + patience)
    }

    /// Queries the input that the session accepts. Waits `patience` for the answer.
    pub fn ping(&mut self, patience: Duration) -> Result<Presence, TalkError> {
        let until = Instant::now() + patience;
        self.send_request(&TalkRequest::Ping, until)?;
        loop {
            match self.receive(until)? {
                Some(TalkReply::Pong { input, has_typist, has_turns }) => return Ok(Presence { input, has_typist, has_turns }),
                // The result of an earlier message that was not waited for.
                Some(TalkReply::Written { .. } | TalkReply::Lost { .. }) => {}
                Some(_) => return Err(TalkError::Cannot),
                None => return Err(TalkError::Silent),
            }
        }
    }

    /// Writes a message into the session, once for each id, however often it is sent. Waits at most `patience` until
    /// the message is in the input of the session; does not wait for a message for the next turn. After an error other
    /// than `Unknown` the session never gets it.
    pub fn send(&mut self, id: &str, text: &str, when: When, patience: Duration) -> Result<Delivery, TalkError> {
        let until = Instant::now() + patience;
        let (own, text) = (id.to_owned(), text.to_owned());
        let request = match when {
            When::Now => TalkRequest::Send { id: own, text },
            When::NextTurn => TalkRequest::FollowUp { id: own, text },
        };
        self.send_request(&request, until).map_err(|_| TalkError::Unknown)?;
        let mut taken = false;
        loop {
            match self.receive(until) {
                // An earlier send with this id decides whether it is written.
                Ok(Some(TalkReply::Taken { again: true, .. })) => return Ok(Delivery::Taken),
                Ok(Some(TalkReply::Taken { .. })) if when == When::NextTurn => return Ok(Delivery::Taken),
                Ok(Some(TalkReply::Taken { .. })) => taken = true,
                Ok(Some(TalkReply::Written { id: written })) if written == id => return Ok(Delivery::Written),
                Ok(Some(TalkReply::Lost { id: lost })) if lost == id => return Err(TalkError::Refused(InputRefusal::Closed)),
                Ok(Some(TalkReply::Refused(refusal))) => return Err(TalkError::Refused(refusal)),
                Ok(Some(_)) => {}
                Ok(None) if taken => return Ok(Delivery::Taken),
                Err(TalkError::Cannot) => return Err(TalkError::Cannot),
                Ok(None) | Err(_) => return Err(TalkError::Unknown),
            }
        }
    }

    /// Attaches to the output of a session from now on, with the last output before. Returns whether this connection may type.
    pub fn attach(
        record: &Path,
        typist: Typist,
        (rows, columns): (u16, u16),
        patience: Duration,
    ) -> Result<(Talker, bool), TalkError> {
        let until = Instant::now() + patience;
        let mut talker = Talker::connect(record, until)?;
        talker.send_request(&TalkRequest::Attach { typist, rows, columns }, until)?;
        match talker.receive(until)? {
            Some(TalkReply::Attached { is_typist, .. }) => Ok((talker, is_typist)),
            Some(TalkReply::Refused(refusal)) => Err(TalkError::Refused(refusal)),
            Some(_) => Err(TalkError::Cannot),
            None => Err(TalkError::Silent),
        }
    }

    /// Types into the session.
    pub fn type_in(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(OUTPUT_PIECE) {
            self.queue(&TalkRequest::Type { bytes: OsString::from_vec(piece.to_vec()) });
        }
    }

    /// Sends the size of the window.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.queue(&TalkRequest::Resize { rows, columns });
    }

    fn queue(&mut self, request: &TalkRequest) {
        self.outbox.extend(encode_as(TALK_VERSION, request));
        self.push();
    }

    /// Whether requests are not sent yet: poll for writing, too.
    pub fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends as much as the keeper accepts now. If it is gone, `heard` returns that.
    pub fn push(&mut self) {
        while !self.outbox.is_empty() {
            match send_some(&self.stream, &self.outbox) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.outbox.clear(),
            }
        }
    }

    /// Returns all replies that have arrived. The last is an error if no more will arrive.
    pub fn heard(&mut self) -> Vec<Result<TalkReply, TalkError>> {
        let mut heard = Vec::new();
        loop {
            let arrival = self.inbox.fill(&self.stream);
            while let Some(line) = self.inbox.line() {
                heard.push(parse(&line));
            }
            match arrival {
                Arrival::Some => {}
                Arrival::Nothing => return heard,
                Arrival::End => {
                    heard.push(Err(TalkError::Gone));
                    return heard;
                }
            }
        }
    }

    /// Sends a complete request.
    fn send_request(&mut self, request: &TalkRequest, until: Instant) -> Result<(), TalkError> {
        self.queue(request);
        while self.has_unsent() {
            if !self.wait(PollFlags::OUT, until) {
                return Err(TalkError::Silent);
            }
            self.push();
        }
        Ok(())
    }

    /// The next reply; `None` if it does not arrive in time.
    fn receive(&mut self, until: Instant) -> Result<Option<TalkReply>, TalkError> {
        loop {
            if let Some(line) = self.inbox.line() {
                return parse(&line).map(Some);
            }
            match self.inbox.fill(&self.stream) {
                Arrival::Some => {}
                Arrival::End => return Err(TalkError::Gone),
                Arrival::Nothing if !self.wait(PollFlags::IN, until) => return Ok(None),
                Arrival::Nothing => {}
            }
        }
    }

    /// Waits for the stream. Returns whether there is time left.
    fn wait(&self, flags: PollFlags, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        // The caller tries the stream again, whatever ends the poll.
        poll(&mut [PollFd::new(&self.stream, flags)], Some(&timeout)).ok();
        !left.is_zero()
    }
}

impl AsFd for Talker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Parses a reply. A keeper of the first version answers with its version, and closes the connection.
fn parse(line: &[u8]) -> Result<TalkReply, TalkError> {
    if let Ok(reply) = decode_as(TALK_VERSION, line) {
        return Ok(reply);
    }
    match decode::<Notice>(line) {
        Ok(Notice::Refused(Refusal::Version { .. })) => Err(TalkError::Cannot),
        _ => Err(TalkError::System(io::ErrorKind::InvalidData.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_of_the_first_version_cannot_be_talked_to() {
        // The answer of such a keeper to a line of a version that it does not know.
        let line = br#"{"v":1,"is":{"refused":{"version":{"keeper":1}}}}"#;
        assert!(matches!(parse(line), Err(TalkError::Cannot)));
        assert!(matches!(parse(b"{}"), Err(TalkError::System(_))));
    }

    #[test]
    fn lines_are_frozen() {
        let line = |request: &TalkRequest| String::from_utf8(encode_as(TALK_VERSION, request)).unwrap();
        assert_eq!(line(&TalkRequest::Ping), "{\"v\":2,\"is\":\"ping\"}\n");
        let send = TalkRequest::Send { id: "m".into(), text: "t".into() };
        assert_eq!(line(&send), "{\"v\":2,\"is\":{\"send\":{\"id\":\"m\",\"text\":\"t\"}}}\n");
        let attach = TalkRequest::Attach { typist: Typist::IfFree, rows: 1, columns: 2 };
        assert_eq!(line(&attach), "{\"v\":2,\"is\":{\"attach\":{\"typist\":\"if_free\",\"rows\":1,\"columns\":2}}}\n");
        let typed = TalkRequest::Type { bytes: OsString::from_vec(vec![b'a', 0xff]) };
        assert_eq!(line(&typed), "{\"v\":2,\"is\":{\"type\":{\"bytes\":[97,255]}}}\n");
    }
}
