//! Output of a command that must never wait for whoever reads it: a pipe that nobody reads, or a terminal stopped by Ctrl-S.
//! A thread writes it; when too much waits, lines are dropped and counted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::printer::Printer;
use crate::views;

/// How many lines wait at most.
const LINES: usize = 1_000;

/// How long the end of a command is held up by output of which nothing is taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often that is looked at.
const ROUND: Duration = Duration::from_millis(100);

/// Lines on their way out.
#[derive(Debug)]
pub(crate) struct OutputQueue {
    lines: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
    /// Closed when the thread has written everything.
    end: Receiver<()>,
}

/// The line below everything else.
#[derive(Debug)]
pub(crate) struct StatusLine(SyncSender<Line>);

#[derive(Debug)]
enum Line {
    /// A remark on stderr.
    Note(String),
    /// The result on stdout, for programs and for people.
    Result(Value, String),
    /// The line below everything else, in place of the one before.
    Status(String),
}

impl StatusLine {
    /// Shows another text there; an empty one removes it. It is left out while too much waits: the next one tells more.
    pub(crate) fn show(&self, text: String) {
        self.0.try_send(Line::Status(text)).ok();
    }
}

impl OutputQueue {
    /// Starts the thread.
    pub(crate) fn start(printer: Printer) -> io::Result<OutputQueue> {
        let (lines, queue) = mpsc::sync_channel(LINES);
        let (alive, end) = mpsc::channel();
        let (dropped, written) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (missing, count) = (Arc::clone(&dropped), Arc::clone(&written));
        let write = move || {
            let _alive: mpsc::Sender<()> = alive;
            let mut status = String::new();
            for line in queue {
                if !status.is_empty() {
                    printer.rewrite("");
                }
                match line {
                    Line::Note(text) => printer.note(&text),
                    Line::Result(view, text) => printer.print(&view, text),
                    Line::Status(text) => status = text,
                }
                if !status.is_empty() {
                    printer.rewrite(&status);
                }
                count.fetch_add(1, Ordering::Relaxed);
                tell_dropped(&printer, &missing);
            }
        };
        std::thread::Builder::new().name("banksman-output".into()).spawn(write)?;
        Ok(OutputQueue { lines, dropped, written, end })
    }

    /// A remark on stderr, now or as soon as somebody reads; or never.
    pub(crate) fn note(&self, text: String) {
        self.push(Line::Note(text));
    }

    /// The result of the command.
    pub(crate) fn result(&self, view: &impl Serialize, text: String) {
        self.push(Line::Result(views::value(view), text));
    }

    /// The line below everything else. Whoever has it ends before the queue does.
    pub(crate) fn status_line(&self) -> StatusLine {
        StatusLine(self.lines.clone())
    }

    fn push(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, as long as somebody reads.
    pub(crate) fn finish(self) {
        drop(self.lines);
        let (mut written, mut since) = (self.written.load(Ordering::Relaxed), Instant::now());
        while self.end.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
            let now = self.written.load(Ordering::Relaxed);
            if now != written {
                (written, since) = (now, Instant::now());
            } else if since.elapsed() > PATIENCE {
                return;
            }
        }
    }
}

/// Says how many lines are missing, where they are.
fn tell_dropped(printer: &Printer, dropped: &AtomicU64) {
    match dropped.swap(0, Ordering::Relaxed) {
        0 => {}
        1 => printer.note("1 line of output was dropped"),
        several => printer.note(&format!("{several} lines of output were dropped")),
    }
}
