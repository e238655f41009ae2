use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use banksman_adapters::keeper::{TalkError, TalkReply, Talker, Typist};
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::SIGWINCH;

use super::{is_here, talk_failure};
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::DIM;
use crate::signals::Signals;

/// How long a keeper may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Ctrl-].
const DETACH: u8 = 0x1d;

/// Ctrl-C also detaches a client that only watches.
const INTERRUPT: u8 = 0x03;

/// Undoes what a program may have changed: alternate screen, hidden cursor, colours, bracketed paste, mouse reporting.
const RESTORE: &str = "\x1b[?1049l\x1b[?25h\x1b[0m\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l";

/// Attach to the terminal of a session: see its output, and type.
///
/// Ctrl-] detaches; the session continues. Several clients may watch; one at a time types, and the terminal has the size of its window.
/// The session must have been started with a terminal or an input: `tasks add --pty` or `--input`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman sessions attach r-7k2m9q1a\n  banksman sessions attach r-7k2m9q1a --watch\n  banksman sessions attach r-7k2m9q1a --take"
)]
pub(super) struct Attach {
    /// The run, the beginning of its id, or the task
    run: String,
    /// Only watch
    #[arg(long, conflicts_with = "take")]
    watch: bool,
    /// Take over the input from another client, which then only watches
    #[arg(long)]
    take: bool,
}

impl Attach {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let run = find::run(&mut project.reader()?, &self.run)?;
        if !is_here(&run, &project) {
            return Err(Failure::elsewhere(&run));
        }
        let has_keyboard = std::io::stdin().is_terminal();
        let typist = match (self.take, self.watch || !has_keyboard) {
            (true, _) => Typist::Take,
            (false, true) => Typist::Never,
            (false, false) => Typist::IfFree,
        };
        let record = context.sessions(&project).record(&run.id);
        let attached = Talker::attach(&record, typist, size(), ANSWER_TIMEOUT);
        let (talker, is_typist) = attached.map_err(|error| talk_failure(error, &run.id))?;
        let how = match (is_typist, typist) {
            (true, _) => "Ctrl-] detaches",
            (false, Typist::Never) => "watching; Ctrl-] detaches",
            (false, _) => "another client types: watching; take over with --take; Ctrl-] detaches",
        };
        context.printer.note(&format!("{DIM}attached to {}: {how}{DIM:#}", run.id));
        let raw =
            has_keyboard.then(RawTerminal::enter).transpose().map_err(|error| Failure::system("use the terminal", error))?;
        let end = View { context, talker, is_typist }.follow(has_keyboard);
        drop(raw);
        match end? {
            End::Detached => context.printer.note(&format!("\n{DIM}detached; the session continues{DIM:#}")),
            End::Ended => context.printer.note(&format!("\n{DIM}the session has ended{DIM:#}")),
            End::CutOff => {
                return Err(Failure::new(
                    exit::ERROR,
                    "DETACHED",
                    "the keeper closed the connection: this terminal was too slow",
                )
                .hint("attach again, or read its log: banksman sessions logs"));
            }
        }
        Ok(exit::OK)
    }
}

enum End {
    Detached,
    Ended,
    CutOff,
}

struct View<'a> {
    context: &'a Context,
    talker: Talker,
    is_typist: bool,
}

impl View<'_> {
    fn follow(mut self, has_keyboard: bool) -> Result<End, Failure> {
        let signals = Signals::install()?;
        let resized = resized().map_err(|error| Failure::system("install signal handlers", error))?;
        let stdin = std::io::stdin();
        let mut keys = has_keyboard.then(|| stdin.as_fd());
        // Output that came with the reply to the request is buffered already: the poll does not report it.
        if let Some(end) = self.show()? {
            return Ok(end);
        }
        loop {
            let talker = if self.talker.has_unsent() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let mut fds = vec![
                PollFd::new(&signals, PollFlags::IN),
                PollFd::new(&resized, PollFlags::IN),
                PollFd::new(&self.talker, talker),
            ];
            fds.extend(keys.map(|keys| PollFd::from_borrowed_fd(keys, PollFlags::IN)));
            // A signal interrupts the poll, and makes a descriptor readable.
            poll(&mut fds, None).ok();
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            if ready[0] {
                return Ok(End::Detached);
            }
            if ready[1] {
                drain(&resized);
                let (rows, columns) = size();
                if self.is_typist {
                    self.talker.resize(rows, columns);
                }
            }
            if ready[2] {
                self.talker.push();
                if let Some(end) = self.show()? {
                    return Ok(end);
                }
            }
            if ready.get(3) == Some(&true) && !self.type_in(&mut keys) {
                return Ok(End::Detached);
            }
        }
    }

    /// Prints the received output.
    fn show(&mut self) -> Result<Option<End>, Failure> {
        for heard in self.talker.heard() {
            match heard {
                Ok(TalkReply::Output { bytes }) => self.context.printer.raw(bytes.as_bytes()),
                Ok(TalkReply::TypistMoved) => self.is_typist = false,
                Ok(TalkReply::Ended) => return Ok(Some(End::Ended)),
                Ok(_) => {}
                Err(TalkError::Gone) => return Ok(Some(End::CutOff)),
                Err(error) => return Err(Failure::system("follow the session", error)),
            }
        }
        Ok(None)
    }

    /// Sends the input to the session. Returns false to detach.
    fn type_in(&mut self, keys: &mut Option<BorrowedFd<'_>>) -> bool {
        let mut bytes = [0; 4096];
        let read = keys.map_or(Ok(0), |keys| rustix::io::read(keys, &mut bytes));
        match read {
            Ok(0) | Err(_) => *keys = None,
            Ok(read) => {
                let typed = &bytes[..read];
                let ends = |byte: &u8| *byte == DETACH || (!self.is_typist && *byte == INTERRUPT);
                let detach = typed.iter().position(ends);
                if self.is_typist {
                    self.talker.type_in(&typed[..detach.unwrap_or(read)]);
                }
                return detach.is_none();
            }
        }
        true
    }
}

/// Raw mode of the terminal, until this is dropped.
struct RawTerminal(Termios);

impl RawTerminal {
    fn enter() -> std::io::Result<RawTerminal> {
        let before = tcgetattr(std::io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw)?;
        Ok(RawTerminal(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0).ok();
        if std::io::stdout().is_terminal() {
            std::io::stdout().write_all(RESTORE.as_bytes()).ok();
            std::io::stdout().flush().ok();
        }
    }
}

/// The rows and columns of this terminal.
fn size() -> (u16, u16) {
    tcgetwinsize(std::io::stdout()).map_or((24, 80), |size| (size.ws_row, size.ws_col))
}

/// A stream that becomes readable when the window changes its size.
fn resized() -> std::io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGWINCH, OwnedFd::from(write))?;
    Ok(read)
}

fn drain(stream: &UnixStream) {
    let mut bytes = [0; 64];
    while std::io::Read::read(&mut &*stream, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
}
