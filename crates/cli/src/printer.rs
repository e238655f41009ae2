//! Decides once where output goes: data on stdout, everything else on stderr, JSON if requested. Every text passes
//! through [`terminal::render`] here, so that external text cannot control the terminal.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::commands::ExitResult;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::terminal::{self, LogFilter, Notation, Style};
use crate::views;

pub(crate) const BOLD: Style = Style::new("1");
pub(crate) const DIM: Style = Style::new("2");
pub(crate) const RED: Style = Style::new("1;31");
pub(crate) const GREEN: Style = Style::new("32");
pub(crate) const YELLOW: Style = Style::new("33");
pub(crate) const CYAN: Style = Style::new("36");

/// Where output goes.
#[derive(Debug, Clone)]
pub(crate) struct Printer {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    /// The command, for the envelope.
    pub(crate) command: String,
}

/// The envelope of a successful command.
#[derive(Serialize)]
struct Success<'a, V> {
    success: bool,
    command: &'a str,
    data: &'a V,
}

/// The envelope of a failed command.
#[derive(Serialize)]
struct Failed<'a> {
    success: bool,
    command: &'a str,
    error: &'a Failure,
}

impl Printer {
    /// Prints the result of a successful command: the view as JSON, or the text.
    pub(crate) fn result(&self, view: &impl Serialize, human: impl AsRef<str>) -> ExitResult {
        self.print(view, human);
        Ok(exit::OK)
    }

    /// Prints a result, for a command with further output or another exit status.
    pub(crate) fn print(&self, view: &impl Serialize, human: impl AsRef<str>) {
        self.try_result(view, human).unwrap_or_else(|error| self.lost(&error));
    }

    /// Prints a result, for a command that is undone if the output fails.
    pub(crate) fn try_result(&self, view: &impl Serialize, human: impl AsRef<str>) -> io::Result<()> {
        if self.json {
            self.try_line(&json(&Success { success: true, command: &self.command, data: view }))
        } else if !self.quiet {
            let human = human.as_ref().trim_end_matches('\n');
            match terminal::stdout_width() {
                Some(width) => self.try_line(&terminal::wrap(human, width)),
                None => self.try_line(human),
            }
        } else {
            Ok(())
        }
    }

    /// Prints a view as one line of JSON, without an envelope.
    pub(crate) fn view(&self, view: &impl Serialize) {
        self.line(&json(view));
    }

    /// Prints one line of data on stdout. If the reader has gone, as `head` does, the process exits without an error.
    pub(crate) fn line(&self, text: &str) {
        self.try_line(text).unwrap_or_else(|error| self.lost(&error));
    }

    fn try_line(&self, text: &str) -> io::Result<()> {
        let text = self.render(text);
        let mut out = anstream::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush())
    }

    /// Exits after a failed write to stdout. A reader that has closed the pipe has all it wanted.
    fn lost(&self, error: &io::Error) -> ! {
        if error.kind() != io::ErrorKind::BrokenPipe {
            self.stderr(&format!("{RED}error:{RED:#} cannot write to stdout: {error}\n"));
            std::process::exit(i32::from(exit::ERROR));
        }
        std::process::exit(i32::from(exit::OK))
    }

    /// Prints bytes on stdout unchanged.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).unwrap_or_else(|error| self.lost(&error));
    }

    /// Prints output of a run on stdout: on a terminal only its text and colours, otherwise every byte.
    pub(crate) fn log(&self, filter: &mut LogFilter, bytes: &[u8]) {
        if !std::io::stdout().is_terminal() {
            return self.raw(bytes);
        }
        self.write_log(&filter.pass(bytes));
    }

    /// Ends the output of a run.
    pub(crate) fn end_log(&self, filter: &mut LogFilter) {
        self.write_log(filter.finish());
    }

    /// Prints filtered output.
    fn write_log(&self, text: &str) {
        let mut out = anstream::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).unwrap_or_else(|error| self.lost(&error));
    }

    /// Prints a note on stderr.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            let text = terminal::stderr_width().map_or_else(|| text.to_owned(), |width| terminal::wrap(text, width));
            self.stderr(&format!("{text}\n"));
        }
    }

    /// Prints the failure of the command.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json {
            return self.view(&Failed { success: false, command: &self.command, error: failure });
        }
        let body = failure.body.as_ref().map_or_else(String::new, |body| format!("{body}\n\n"));
        let mut text = format!("{RED}error:{RED:#} {}\n", failure.message);
        if let Some(hint) = &failure.hint {
            text.push_str(&format!("{DIM}hint: {hint}{DIM:#}\n"));
        }
        let text = terminal::stderr_width().map_or_else(|| text.clone(), |width| terminal::wrap(&text, width));
        self.stderr(&(body + &text));
    }

    /// Prints an error of the command line parser.
    pub(crate) fn misuse(&self, text: &str) {
        let text = text.strip_prefix("error:").map_or_else(|| text.to_owned(), |rest| format!("{RED}error:{RED:#}{rest}"));
        self.stderr(&text);
    }

    /// Whether stderr is a terminal, so that a status line can be rewritten.
    pub(crate) fn is_watched(&self) -> bool {
        !self.quiet && !self.json && std::io::stderr().is_terminal()
    }

    /// Asks a question; the answer is typed behind it.
    pub(crate) fn ask(&self, question: &str) {
        let text = terminal::stderr_width().map_or_else(|| question.to_owned(), |width| terminal::wrap(question, width));
        self.stderr(&format!("{text} "));
    }

    /// Replaces the current line on stderr. A line that is too long for the terminal is truncated, with room for a `^C`
    /// of the terminal: a wrapped line cannot be replaced.
    pub(crate) fn rewrite(&self, text: &str) {
        let text = terminal::one_line(text);
        let text = terminal::stderr_width().map_or_else(|| text.clone(), |width| terminal::cut(&text, width.saturating_sub(3)));
        // The line is rewritten even if colours are off. Errors are ignored: there is no other place to report them.
        io::stderr().write_all(b"\r\x1b[2K").ok();
        self.write_stderr(&self.render(&text));
    }

    fn stderr(&self, text: &str) {
        self.write_stderr(&self.render(text));
    }

    fn write_stderr(&self, rendered: &str) {
        // Colours are stripped into a buffer first, so that the text is written at once and not word by word.
        let mut whole =
            anstream::AutoStream::new(Vec::with_capacity(rendered.len()), anstream::AutoStream::choice(&io::stderr()));
        // Errors are ignored: there is no other place to report them.
        whole.write_all(rendered.as_bytes()).and_then(|()| io::stderr().write_all(&whole.into_inner())).ok();
    }

    fn render(&self, text: &str) -> String {
        terminal::render(text, if self.json { Notation::Json } else { Notation::Text })
    }
}

/// A view as JSON, with the keys of every object in alphabetical order.
fn json(view: &impl Serialize) -> String {
    views::value(view).to_string()
}
