//! Diagnostics of a runbook: all errors at once, each with its place.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use strum::IntoStaticStr;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};

/// Maximum number of errors kept for one file.
pub const DIAGNOSTIC_LIMIT: usize = 1_000;

/// Maximum number of errors drawn with their lines.
const DRAWN: usize = 100;

/// The longest line that is drawn, in bytes. For a longer one only the place is shown.
const LINE: usize = 4_000;

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Code {
    /// The runbook is too large.
    TooLarge,
    /// The text is not valid TOML.
    Syntax,
    /// The format has no such key.
    UnknownKey,
    /// A key has a value of another type.
    WrongType,
    /// A required key is missing.
    MissingKey,
    /// Two keys exclude each other, or a key lacks another one that it needs.
    Conflict,
    /// A text is not a valid name.
    BadName,
    /// A name is defined twice.
    Duplicate,
    /// A text is not one of the allowed words.
    BadWord,
    /// A text is not a valid duration.
    BadDuration,
    /// A number is too small or too large, or there are too many or too few of something.
    OutOfRange,
    /// A text is not a valid regular expression.
    BadRegex,
    /// A text is not a valid event pattern.
    BadPattern,
    /// A template is wrong, or is used where none is allowed.
    Template,
    /// The variable does not exist.
    UnknownVariable,
    /// The guard, strategy, agent, pipeline, worker or phase does not exist.
    UnknownReference,
    /// Phases or queues follow each other for ever.
    Cycle,
    /// No path reaches a phase.
    Unreachable,
    /// A referenced file cannot be used.
    File,
}

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub code: Code,
    pub message: Box<str>,
    /// How to fix it.
    pub hint: Option<Box<str>>,
    /// The name and text of another file, if the error is in a file that the runbook refers to.
    pub elsewhere: Option<(Box<str>, Arc<str>)>,
    /// The place, in bytes of the text.
    pub span: Range<usize>,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
}

/// All errors of a runbook, in the order of its lines; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics {
    /// The name of the runbook's file for messages.
    pub file: Box<str>,
    pub text: Arc<str>,
    pub list: Vec<Diagnostic>,
    /// The number of errors beyond [`DIAGNOSTIC_LIMIT`].
    pub more: usize,
}

impl Code {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the error is about something missing, which may be in the part that could not be read.
    fn is_absence(self) -> bool {
        match self {
            Code::MissingKey | Code::Conflict | Code::UnknownReference | Code::UnknownVariable | Code::Unreachable => true,
            Code::Cycle | Code::OutOfRange => true,
            Code::TooLarge | Code::Syntax | Code::UnknownKey | Code::WrongType | Code::BadName | Code::Duplicate => false,
            Code::BadWord | Code::BadDuration | Code::BadRegex | Code::BadPattern | Code::Template | Code::File => false,
        }
    }
}

impl fmt::Display for Diagnostics {
    /// Without colours.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.draw(false))
    }
}

impl std::error::Error for Diagnostics {}

impl Diagnostics {
    /// All errors with their lines, for people.
    pub fn draw(&self, colours: bool) -> String {
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        let drawn: Vec<String> = self.list.iter().take(DRAWN).map(|wrong| self.draw_one(wrong, &renderer)).collect();
        let mut text = drawn.join("\n\n");
        let rest = self.list.len().saturating_sub(DRAWN) + self.more;
        if rest > 0 {
            text += &format!("\n\nand {rest} more in {}", self.file);
        }
        text
    }

    fn draw_one(&self, wrong: &Diagnostic, renderer: &Renderer) -> String {
        let (file, text) = match &wrong.elsewhere {
            Some((file, text)) => (&**file, &**text),
            None => (&*self.file, &*self.text),
        };
        let file = &*harmless(file.into());
        // Only the line itself is passed on: a long file with many errors must not take long.
        let start = text[..wrong.span.start].rfind('\n').map_or(0, |at| at + 1);
        let end = text[wrong.span.start..].find('\n').map_or(text.len(), |at| wrong.span.start + at);
        let span = wrong.span.start - start..wrong.span.end.min(end) - start;
        let title = Level::ERROR.primary_title(&*wrong.message).id(wrong.code.as_str());
        let group = if end - start > LINE {
            title.element(Origin::path(file).line(wrong.line).char_column(wrong.column))
        } else {
            let snippet = Snippet::source(&text[start..end]).line_start(wrong.line).path(file);
            title.element(snippet.annotation(AnnotationKind::Primary.span(span)))
        };
        let group = match &wrong.hint {
            Some(hint) => group.element(Level::HELP.message(&**hint)),
            None => group,
        };
        renderer.render(&[group])
    }
}

/// Collects the errors of one text.
#[derive(Debug)]
pub(crate) struct Sink<'a> {
    pub(crate) text: &'a str,
    list: Vec<Diagnostic>,
    more: usize,
}

/// A place in the text.
pub(crate) type At = Range<usize>;

impl<'a> Sink<'a> {
    pub(crate) fn new(text: &'a str) -> Sink<'a> {
        Sink { text, list: Vec::new(), more: 0 }
    }

    /// Adds an error.
    pub(crate) fn add(&mut self, code: Code, at: At, message: impl Into<Box<str>>) {
        self.push(code, at, message.into(), None);
    }

    /// Adds an error with advice on how to fix it.
    pub(crate) fn hint(&mut self, code: Code, at: At, message: impl Into<Box<str>>, hint: impl Into<Box<str>>) {
        self.push(code, at, message.into(), Some(hint.into()));
    }

    fn push(&mut self, code: Code, span: At, message: Box<str>, hint: Option<Box<str>>) {
        self.put(Diagnostic { code, message, hint, elsewhere: None, span, line: 0, column: 0 });
    }

    /// Adds an error that may be in another file.
    pub(crate) fn put(&mut self, mut wrong: Diagnostic) {
        wrong.message = harmless(wrong.message);
        wrong.hint = wrong.hint.map(harmless);
        if self.list.len() < DIAGNOSTIC_LIMIT { self.list.push(wrong) } else { self.more += 1 }
    }

    /// Whether later errors will not be drawn, so that suggestions for them are not worth computing.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= DRAWN
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All errors with lines and columns, sorted and without duplicates.
    pub(crate) fn finish(mut self, file: &str) -> Diagnostics {
        let own = Lines::new(self.text);
        for wrong in &mut self.list {
            let found = match &wrong.elsewhere {
                Some((_, text)) => Lines::new(text).find(wrong.span.clone()),
                None => own.find(wrong.span.clone()),
            };
            (wrong.line, wrong.column, wrong.span) = found;
        }
        self.drop_consequential_errors();
        // Errors of the runbook itself come first.
        self.list.sort_by(|a, b| {
            let key = |wrong: &Diagnostic| (wrong.elsewhere.is_some(), wrong.span.start, wrong.code);
            key(a).cmp(&key(b)).then_with(|| a.message.cmp(&b.message))
        });
        self.list.dedup();
        Diagnostics { file: file.into(), text: self.text.into(), list: self.list, more: self.more }
    }

    /// Where the text is not valid TOML, a missing part may only be unread, and lines up to the next header may have
    /// been read as a part of something else.
    fn drop_consequential_errors(&mut self) {
        let broken: BTreeSet<usize> =
            self.list.iter().filter(|wrong| wrong.code == Code::Syntax).map(|wrong| wrong.line).collect();
        if broken.is_empty() {
            return;
        }
        let headers: BTreeSet<usize> =
            self.text.lines().enumerate().filter(|(_, line)| line.starts_with('[')).map(|(index, _)| index + 1).collect();
        let lost = |line: usize| {
            let start = broken.range(..=line).next_back();
            start.is_some_and(|start| headers.range(start + 1..=line.max(start + 1)).next().is_none_or(|header| *header > line))
        };
        self.list.retain(|wrong| wrong.code == Code::Syntax || !wrong.code.is_absence() && !lost(wrong.line));
    }
}

/// Escapes control characters: names from the file must not reach a terminal as commands.
fn harmless(text: Box<str>) -> Box<str> {
    if !text.contains(char::is_control) {
        return text;
    }
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect::<String>().into()
}

/// The offsets at which the lines of a text begin.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Lines<'a> {
        let starts = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Lines { text, starts }
    }

    /// The line and column of a span, and the span moved to character boundaries.
    fn find(&self, span: At) -> (usize, usize, At) {
        let inside = |mut at: usize| {
            at = at.min(self.text.len());
            while !self.text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let span = inside(span.start)..inside(span.end.max(span.start));
        let line = self.starts.partition_point(|start| *start <= span.start);
        let column = self.text[self.starts[line - 1]..span.start].chars().count() + 1;
        (line, column, span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_drawn_with_its_line() {
        let text = "a = 1\nnäme = \"\x1b[31mx\"\n";
        let mut sink = Sink::new(text);
        sink.hint(Code::UnknownKey, 6..11, "there is no key `näme`", "did you mean `name`?\x1b[2J");
        let wrong = sink.finish("x.toml");
        assert_eq!((wrong.list[0].line, wrong.list[0].column), (2, 1));
        let drawn = wrong.to_string();
        assert!(drawn.contains("error[unknown-key]: there is no key `näme`"), "{drawn}");
        assert!(
            drawn.contains("--> x.toml:2:1") && drawn.contains("^^^^") && drawn.contains("help: did you mean `name`?"),
            "{drawn}"
        );
        assert!(!drawn.contains('\x1b'), "what is in a file must not reach the terminal as commands: {drawn:?}");
    }

    #[test]
    fn the_number_of_drawn_errors_is_limited() {
        let text = "x = 1\n".repeat(5_000);
        let mut sink = Sink::new(&text);
        (0..5_000).for_each(|line| sink.add(Code::UnknownKey, line * 6..line * 6 + 1, "wrong"));
        let wrong = sink.finish("x.toml");
        assert_eq!((wrong.list.len(), wrong.more), (DIAGNOSTIC_LIMIT, 4_000));
        let drawn = wrong.draw(false);
        assert_eq!(drawn.matches("error[").count(), DRAWN);
        assert!(drawn.ends_with("and 4900 more in x.toml"), "{drawn}");
    }
}
