//! Output of a command that must never block: its reader may be a pipe that is not read, or a terminal stopped by
//! Ctrl-S. A thread writes the output; when too many lines wait, further lines are dropped and counted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::printer::Printer;
use crate::views;

/// The upper bound on waiting lines.
const LINES: usize = 1_000;

/// How long the end of the command waits for output that does not progress.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which progress is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The sender of the lines.
#[derive(Debug)]
pub(crate) struct OutputQueue {
    lines: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
    /// Closed when the thread has written everything.
    end: Receiver<()>,
}

/// The line below the other output.
#[derive(Debug)]
pub(crate) struct StatusLine(SyncSender<Line>);

#[derive(Debug)]
enum Line {
    /// A note on stderr.
    Note(String),
    /// The result on stdout, as JSON and as text.
    Result(Value, String),
    /// Replaces the line below the other output.
    Status(String),
}

impl StatusLine {
    /// Replaces the line; an empty text removes it. Skipped while too many lines wait, because the next update replaces
    /// it anyway.
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
                report_dropped(&printer, &missing);
            }
        };
        std::thread::Builder::new().name("banksman-output".into()).spawn(write)?;
        Ok(OutputQueue { lines, dropped, written, end })
    }

    /// Queues a note for stderr. It may be dropped.
    pub(crate) fn note(&self, text: String) {
        self.push(Line::Note(text));
    }

    /// Queues the result of the command.
    pub(crate) fn result(&self, view: &impl Serialize, text: String) {
        self.push(Line::Result(views::value(view), text));
    }

    /// The line below the other output. It must be dropped before the queue is finished.
    pub(crate) fn status_line(&self) -> StatusLine {
        StatusLine(self.lines.clone())
    }

    fn push(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, as long as the output progresses.
    pub(crate) fn finish(self) {
        drop(self.lines);
        let (mut written, mut since) = (self.written.load(Ordering::Relaxed), Instant::now());
        while self.end.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let now = self.written.load(Ordering::Relaxed);
            if now != written {
                (written, since) = (now, Instant::now());
            } else if since.elapsed() > STALL_TIMEOUT {
                return;
            }
        }
    }
}

/// Reports the number of lines dropped at this position.
fn report_dropped(printer: &Printer, dropped: &AtomicU64) {
    match dropped.swap(0, Ordering::Relaxed) {
        0 => {}
        1 => printer.note("1 line of output was dropped"),
        several => printer.note(&format!("{several} lines of output were dropped")),
    }
}
