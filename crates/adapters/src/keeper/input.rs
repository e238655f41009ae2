//! Input for a live session: through a pipe to its stdin, or through its terminal. The keeper never waits for a program
//! that does not read: unread input is buffered up to a limit, and refused beyond.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::termios::{Winsize, tcsetwinsize};

use super::protocol::{InputKind, InputRefusal};

/// How much unread input is buffered, in bytes, in addition to the content of the pipe or terminal. A single message
/// may be larger: if it were never accepted, all later messages would wait for it.
pub(super) const PENDING_LIMIT: usize = 1024 * 1024;

/// How many ids of messages are remembered, so that no message is written twice.
const REMEMBERED: usize = 10_000;

/// The size of a terminal until a client attaches.
pub(super) const FIRST_SIZE: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };

/// The input of a session.
#[derive(Debug)]
pub(super) struct Input {
    kind: InputKind,
    to: Option<OwnedFd>,
    queue: VecDeque<Piece>,
    pending: usize,
    /// The ids of the accepted messages.
    taken: VecDeque<String>,
    closes: bool,
    size: Winsize,
}

/// Bytes that are not fully written yet.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    written: usize,
    /// The client and the id of the message that these bytes complete.
    message: Option<(u64, String)>,
}

/// The messages whose state has changed, each with the client that sent it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) written: Vec<(u64, String)>,
    /// Messages that will never be written.
    pub(super) lost: Vec<(u64, String)>,
}

impl Input {
    pub(super) fn new(kind: InputKind, to: OwnedFd) -> Input {
        let (queue, taken) = (VecDeque::new(), VecDeque::new());
        Input { kind, to: Some(to), queue, pending: 0, taken, closes: false, size: FIRST_SIZE }
    }

    pub(super) fn kind(&self) -> InputKind {
        self.kind
    }

    /// Whether the session accepts input.
    pub(super) fn is_open(&self) -> bool {
        self.to.is_some() && !self.closes
    }

    /// The descriptor to poll for writing, if input is pending.
    pub(super) fn descriptor(&self) -> Option<&OwnedFd> {
        self.to.as_ref().filter(|_| !self.queue.is_empty())
    }

    /// Accepts a message and returns whether it is new. A message that was accepted before is not written again.
    pub(super) fn take(&mut self, client: u64, id: &str, text: &str) -> Result<bool, InputRefusal> {
        if self.has_taken(id) {
            return Ok(false);
        }
        let bytes = match self.kind {
            InputKind::Pipe if text.ends_with('\n') => text.as_bytes().to_vec(),
            InputKind::Pipe => format!("{text}\n").into_bytes(),
            // A terminal expects a carriage return for Enter.
            InputKind::Terminal => format!("{}\r", text.trim_end_matches('\n')).replace('\n', "\r").into_bytes(),
        };
        self.push(bytes, Some((client, id.to_owned())))?;
        if self.taken.len() >= REMEMBERED {
            self.taken.pop_front();
        }
        self.taken.push_back(id.to_owned());
        Ok(true)
    }

    /// Whether a message was accepted.
    pub(super) fn has_taken(&self, id: &str) -> bool {
        self.taken.iter().any(|taken| taken == id)
    }

    /// Accepts the first input of the program, such as its prompt, of any size.
    pub(super) fn begin_with(&mut self, bytes: Vec<u8>) {
        self.pending += bytes.len();
        self.queue.push_back(Piece { bytes, written: 0, message: None });
    }

    /// Accepts bytes that a person types.
    pub(super) fn typed(&mut self, bytes: Vec<u8>) -> Result<(), InputRefusal> {
        self.push(bytes, None)
    }

    fn push(&mut self, bytes: Vec<u8>, message: Option<(u64, String)>) -> Result<(), InputRefusal> {
        if !self.is_open() {
            return Err(InputRefusal::Closed);
        }
        if self.pending > 0 && self.pending + bytes.len() > PENDING_LIMIT {
            return Err(InputRefusal::Full { pending: self.pending });
        }
        self.pending += bytes.len();
        self.queue.push_back(Piece { bytes, written: 0, message });
        Ok(())
    }

    /// Closes the input behind everything that was accepted before.
    pub(super) fn close(&mut self) {
        if self.kind == InputKind::Terminal && self.is_open() {
            // A terminal has no end of file; Ctrl-D stands for it.
            self.queue.push_back(Piece { bytes: vec![4], written: 0, message: None });
            self.pending += 1;
        }
        self.closes = true;
    }

    /// Writes as much as the program accepts now.
    pub(super) fn write(&mut self) -> Progress {
        let mut progress = Progress::default();
        while let (Some(to), Some(piece)) = (&self.to, self.queue.front_mut()) {
            match rustix::io::write(to, &piece.bytes[piece.written..]) {
                Ok(written) => {
                    piece.written += written;
                    self.pending -= written;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return progress,
                Err(_) => {
                    self.to = None;
                    break;
                }
            }
            if piece.written == piece.bytes.len() {
                let piece = self.queue.pop_front().expect("it was there a moment ago");
                progress.written.extend(piece.message);
            }
        }
        if self.to.is_none() {
            progress.lost.extend(self.queue.drain(..).filter_map(|piece| piece.message));
            self.pending = 0;
        } else if self.closes && self.kind == InputKind::Pipe {
            self.to = None;
        }
        progress
    }

    /// Ends the input, because the session has ended: unwritten messages are lost.
    pub(super) fn end(&mut self) -> Progress {
        self.to = None;
        self.write()
    }

    /// Sets the size of a terminal. Makes the program redraw even if the size is the same.
    pub(super) fn resize(&mut self, rows: u16, columns: u16) -> io::Result<()> {
        let (Some(to), InputKind::Terminal) = (&self.to, self.kind) else { return Ok(()) };
        let size = Winsize { ws_row: rows.max(1), ws_col: columns.max(1), ..FIRST_SIZE };
        if (self.size.ws_row, self.size.ws_col) == (size.ws_row, size.ws_col) {
            let narrower = Winsize { ws_col: (size.ws_col - 1).max(1), ..size };
            tcsetwinsize(to.as_fd(), narrower)?;
        }
        self.size = size;
        Ok(tcsetwinsize(to.as_fd(), size)?)
    }
}

/// The last output of a session, for clients that attach later.
#[derive(Debug, Default)]
pub(super) struct Recent {
    bytes: VecDeque<u8>,
}

impl Recent {
    /// How much is replayed.
    const LIMIT: usize = 64 * 1024;

    pub(super) fn add(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(Recent::LIMIT)..];
        let over = (self.bytes.len() + bytes.len()).saturating_sub(Recent::LIMIT);
        self.bytes.drain(..over);
        self.bytes.extend(bytes);
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::pipe::{PipeFlags, pipe_with};

    fn pipe() -> (OwnedFd, Input) {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        fcntl_setfl(&to, OFlags::NONBLOCK).unwrap();
        (from, Input::new(InputKind::Pipe, to))
    }

    fn read(from: &OwnedFd, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        let read = rustix::io::read(from, buffer.as_mut_slice()).unwrap();
        buffer.truncate(read);
        buffer
    }

    #[test]
    fn a_message_is_written_once() {
        let (from, mut input) = pipe();
        assert_eq!(input.take(1, "m-1", "one"), Ok(true));
        assert_eq!(input.take(2, "m-1", "one"), Ok(false));
        assert_eq!(input.take(2, "m-2", "two\n"), Ok(true));
        assert_eq!(input.write().written, [(1, "m-1".into()), (2, "m-2".into())]);
        assert_eq!(read(&from, 100), b"one\ntwo\n");
        input.close();
        assert_eq!(input.take(3, "m-3", "three"), Err(InputRefusal::Closed));
        assert_eq!(input.write(), Progress::default());
        assert_eq!(read(&from, 100), b"", "the end");
    }

    #[test]
    fn unread_input_is_bounded_and_refused_beyond() {
        let (from, mut input) = pipe();
        let large = "x".repeat(PENDING_LIMIT);
        assert_eq!(input.take(1, "m-1", &large), Ok(true), "the largest body of a message, plus its line break");
        assert_eq!(input.write(), Progress::default(), "a pipe holds less");
        let refused = input.take(1, "m-2", &large);
        assert!(matches!(refused, Err(InputRefusal::Full { pending }) if pending < PENDING_LIMIT), "{refused:?}");
        let mut total = 0;
        let mut written = Vec::new();
        while written.is_empty() {
            total += read(&from, PENDING_LIMIT).len();
            written = input.write().written;
        }
        assert!(total > PENDING_LIMIT / 2);
        assert_eq!(input.take(1, "m-2", "small"), Ok(true), "a refused message may be sent again");
    }

    #[test]
    fn messages_to_a_program_that_has_ended_are_lost() {
        let (from, mut input) = pipe();
        drop(from);
        assert_eq!(input.take(1, "m-1", "one"), Ok(true));
        assert_eq!(input.write().lost, [(1, "m-1".into())]);
        assert_eq!(input.take(1, "m-2", "two"), Err(InputRefusal::Closed));
    }

    #[test]
    fn the_last_output_is_kept() {
        let mut recent = Recent::default();
        for n in 0..10_000 {
            recent.add(format!("{n:09}\n").as_bytes());
        }
        assert_eq!(recent.bytes().len(), Recent::LIMIT);
        assert!(recent.bytes().ends_with(b"000009998\n000009999\n"));
        recent.add(&vec![b'y'; Recent::LIMIT * 2]);
        assert_eq!(recent.bytes(), vec![b'y'; Recent::LIMIT]);
    }
}
