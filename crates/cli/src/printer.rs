//! Decides once where output goes: data on stdout, everything else on stderr, JSON if asked. Every text passes through
//! [`terminal::render`] here, so that nothing from outside commands a terminal; see there.

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
    /// The command in words, for the envelope.
    pub(crate) command: String,
}

/// What `--json` prints of a command that did what it was asked.
#[derive(Serialize)]
struct Success<'a, V> {
    success: bool,
    command: &'a str,
    data: &'a V,
}

/// What `--json` prints of a command that failed.
#[derive(Serialize)]
struct Failed<'a> {
    success: bool,
    command: &'a str,
    error: &'a Failure,
}

impl Printer {
    /// The result of a command that did what it was asked: its view for programs, its words for people.
    pub(crate) fn result(&self, view: &impl Serialize, human: impl AsRef<str>) -> ExitResult {
        self.print(view, human);
        Ok(exit::OK)
    }

    /// The same, for a command that has more to say or another exit status.
    pub(crate) fn print(&self, view: &impl Serialize, human: impl AsRef<str>) {
        self.try_result(view, human).unwrap_or_else(|error| self.lost(&error));
    }

    /// The same, for a command that can take back what it did if nobody learns of it.
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

    /// A view as one line of JSON, without an envelope.
    pub(crate) fn view(&self, view: &impl Serialize) {
        self.line(&json(view));
    }

    /// One line of data on stdout. A reader that went away, as `head` does, ends the process quietly.
    pub(crate) fn line(&self, text: &str) {
        self.try_line(text).unwrap_or_else(|error| self.lost(&error));
    }

    fn try_line(&self, text: &str) -> io::Result<()> {
        let text = self.render(text);
        let mut out = anstream::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush())
    }

    /// Ends the process, because stdout takes nothing any more. A reader that went away has had what it wanted.
    fn lost(&self, error: &io::Error) -> ! {
        if error.kind() != io::ErrorKind::BrokenPipe {
            self.stderr(&format!("{RED}error:{RED:#} cannot write to stdout: {error}\n"));
            std::process::exit(i32::from(exit::ERROR));
        }
        std::process::exit(i32::from(exit::OK))
    }

    /// Data on stdout as it is, whatever it is.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).unwrap_or_else(|error| self.lost(&error));
    }

    /// Output of a run on stdout. A terminal is shown its colours, and nothing else that would command it; everything else gets every byte.
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

    /// What a filter has let pass.
    fn write_log(&self, text: &str) {
        let mut out = anstream::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).unwrap_or_else(|error| self.lost(&error));
    }

    /// A remark on stderr.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            let text = terminal::stderr_width().map_or_else(|| text.to_owned(), |width| terminal::wrap(text, width));
            self.stderr(&format!("{text}\n"));
        }
    }

    /// Why the command failed.
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

    /// A command line that is not understood, as its parser says it.
    pub(crate) fn misuse(&self, text: &str) {
        let text = text.strip_prefix("error:").map_or_else(|| text.to_owned(), |rest| format!("{RED}error:{RED:#}{rest}"));
        self.stderr(&text);
    }

    /// Whether a person looks at stderr, so that a line that changes is welcome.
    pub(crate) fn is_watched(&self) -> bool {
        !self.quiet && !self.json && std::io::stderr().is_terminal()
    }

    /// Asks a person, who answers behind the question.
    pub(crate) fn ask(&self, question: &str) {
        let text = terminal::stderr_width().map_or_else(|| question.to_owned(), |width| terminal::wrap(question, width));
        self.stderr(&format!("{text} "));
    }

    /// Replaces the current line on stderr. A line that is too long for the terminal is cut, also if the terminal adds a `^C` to it: one that
    /// wraps cannot be replaced.
    pub(crate) fn rewrite(&self, text: &str) {
        let text = terminal::one_line(text);
        let text = terminal::stderr_width().map_or_else(|| text.clone(), |width| terminal::cut(&text, width.saturating_sub(3)));
        // That it is rewritten has nothing to do with colours, which may not be wanted. There is nowhere left to complain to.
        io::stderr().write_all(b"\r\x1b[2K").ok();
        self.write_stderr(&self.render(&text));
    }

    fn stderr(&self, text: &str) {
        self.write_stderr(&self.render(text));
    }

    fn write_stderr(&self, rendered: &str) {
        // Stripped of its colours first, so that it is written at once and not word by word.
        let mut whole =
            anstream::AutoStream::new(Vec::with_capacity(rendered.len()), anstream::AutoStream::choice(&io::stderr()));
        // There is nowhere left to complain to.
        whole.write_all(rendered.as_bytes()).and_then(|()| io::stderr().write_all(&whole.into_inner())).ok();
    }

    fn render(&self, text: &str) -> String {
        terminal::render(text, if self.json { Notation::Json } else { Notation::Text })
    }
}

/// A view as JSON, with the keys of every object in alphabetical order: the order of the fields of a type means nothing.
fn json(view: &impl Serialize) -> String {
    views::value(view).to_string()
}
