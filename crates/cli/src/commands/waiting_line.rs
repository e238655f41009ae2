//! The progress line of a waiting command.

use std::time::Duration;

use crate::context::Context;
use crate::printer::Printer;

/// On a terminal the line is rewritten in place; elsewhere it is printed once, and again when the state of the blocking
/// runs changes.
pub(crate) struct WaitingLine<'a> {
    printer: &'a Printer,
    is_watched: bool,
    /// The last printed state of the blocking runs.
    reported: Option<String>,
}

impl<'a> WaitingLine<'a> {
    pub(crate) fn new(context: &'a Context) -> WaitingLine<'a> {
        let printer = &context.printer;
        WaitingLine { printer, is_watched: printer.is_watched(), reported: None }
    }

    /// How often the elapsed time is updated.
    pub(crate) fn tick(&self) -> Option<Duration> {
        self.is_watched.then_some(Duration::from_secs(1))
    }

    /// Prints the line; `runs` is the part of it that says why the blocking runs do not end.
    pub(crate) fn show(&mut self, line: &str, runs: String) {
        if self.is_watched {
            self.printer.rewrite(line);
        } else if self.reported.as_ref() != Some(&runs) {
            self.printer.note(line);
        }
        self.reported = Some(runs);
    }

    /// Removes the line from the terminal, if it was printed.
    pub(crate) fn clear(self) {
        if self.is_watched && self.reported.is_some() {
            self.printer.rewrite("");
        }
    }
}
