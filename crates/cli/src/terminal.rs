//! Safe terminal output: external text with all control characters escaped, and our own styles.
//!
//! Both are in one string until they are printed, because lines and tables are composed of them. Therefore a [`Style`]
//! is not written as an escape sequence but as a mark with a random number that no external text can contain.
//! [`render`] turns these marks, and nothing else, into escape sequences; every other control character is escaped, so
//! that no caller has to.

mod log_filter;

use std::fmt::{self, Write};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use banksman_adapters::ids;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

pub(crate) use log_filter::LogFilter;

/// The delimiters of a mark: two code points that are no characters.
const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';

/// A style, as the parameters of its escape sequence. `{STYLE}` starts it and `{STYLE:#}` ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style(&'static str);

impl Style {
    /// No style.
    pub(crate) const PLAIN: Style = Style("");

    pub(crate) const fn new(parameters: &'static str) -> Style {
        Style(parameters)
    }
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, f.alternate()) {
            ("", _) => Ok(()),
            (parameters, false) => write!(f, "{OPEN}{}{parameters}{CLOSE}", secret()),
            (_, true) => write!(f, "{OPEN}{}0{CLOSE}", secret()),
        }
    }
}

/// The random part of our marks, different in every process.
fn secret() -> &'static str {
    static SECRET: OnceLock<String> = OnceLock::new();
    SECRET.get_or_init(|| format!("{}/", ids::random(16)))
}

/// The notation of escaped characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notation {
    /// `\u{1b}`.
    Text,
    /// `\u001b`, which has the same meaning inside of a JSON string.
    Json,
}

/// A text for output: our styles become escape sequences, and all other control characters are escaped.
pub(crate) fn render(text: &str, notation: Notation) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Style(parameters) => write!(out, "\x1b[{parameters}m").expect("a string takes everything"),
            Piece::Text(text) => escape(text, notation, false, &mut out),
        }
    }
    out
}

/// A text without styles, with control characters escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text) {
        if let Piece::Text(text) = piece {
            escape(text, Notation::Text, false, &mut out);
        }
    }
    out
}

/// A text for one line, such as a cell of a table: line breaks and tabs are escaped, too.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Style(parameters) => write!(out, "{OPEN}{}{parameters}{CLOSE}", secret()).expect("a string takes everything"),
            Piece::Text(text) => escape(text, Notation::Text, true, &mut out),
        }
    }
    out
}

/// The width of a text in terminal columns, without its styles.
pub(crate) fn width(text: &str) -> usize {
    plain(text).width()
}

/// A one-line text truncated to this many terminal columns, with an ellipsis. Its styles stay.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    let (mut out, mut left, mut is_full) = (String::with_capacity(text.len()), limit.saturating_sub(1), limit == 0);
    for piece in pieces(text) {
        match piece {
            Piece::Style(parameters) => write!(out, "{OPEN}{}{parameters}{CLOSE}", secret()).expect("a string takes everything"),
            Piece::Text(text) => {
                for character in text.graphemes(true) {
                    match left.checked_sub(character.width()).filter(|_| !is_full) {
                        Some(rest) => {
                            left = rest;
                            out.push_str(character);
                        }
                        None if is_full => break,
                        None => {
                            is_full = true;
                            out.push('…');
                        }
                    }
                }
            }
        }
    }
    out
}

/// Breaks long lines between words, with the rest aligned with the start of the words. A command stays on one line, its
/// own if necessary, so that it can be copied.
pub(crate) fn wrap(text: &str, limit: usize) -> String {
    text.split('\n').map(|line| wrap_line(line, limit)).collect::<Vec<_>>().join("\n")
}

fn wrap_line(line: &str, limit: usize) -> String {
    let plain = plain(line);
    let indent = indent(&plain);
    if plain.width() <= limit || indent + 20 > limit {
        return line.to_owned();
    }
    let is_advice = ["try: ", "hint: ", "next: "].iter().any(|word| plain.trim_start().starts_with(word));
    if is_advice || plain.contains("  banksman ") {
        return match line.find("banksman ") {
            Some(at) => {
                let (prose, command) = line.split_at(at);
                let prose = broken(prose.trim_end(), limit, indent);
                format!("{prose}\n{}{command}", " ".repeat(bullets(&plain) + 2))
            }
            // The command of another program.
            None if plain.trim_start().starts_with("try: ") => line.to_owned(),
            None => broken(line, limit, indent),
        };
    }
    broken(line, limit, indent)
}

/// The words of a line with the blank behind each. A number and its unit are one word: `12 min`.
fn words(line: &str) -> Vec<&str> {
    const UNITS: [&str; 5] = ["ms", "s", "min", "h", "d"];
    let (mut words, mut end): (Vec<&str>, usize) = (Vec::new(), 0);
    for word in line.split_inclusive(' ') {
        let start = end;
        end += word.len();
        let is_unit = UNITS.contains(&word.trim_end_matches(|letter: char| !letter.is_alphabetic()));
        let is_number = |word: &&mut &str| word.trim_end_matches(' ').ends_with(|letter: char| letter.is_ascii_digit());
        match words.last_mut().filter(|last| is_unit && is_number(last)) {
            Some(number) => *number = &line[start - number.len()..end],
            None => words.push(word),
        }
    }
    words
}

fn broken(line: &str, limit: usize, indent: usize) -> String {
    let (mut out, mut used) = (String::new(), 0);
    for word in words(line) {
        let wide = width(word.trim_end_matches(' '));
        if used > indent && used + wide > limit {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        }
        out.push_str(word);
        used += width(word);
    }
    out
}

/// The length of the bullet of a line, with the blanks around it.
fn bullets(line: &str) -> usize {
    line.chars().take_while(|letter| matches!(letter, ' ' | '-' | '·')).count()
}

/// The column where the words of a line start: after its bullet, after a leading time, or after the name of a field.
fn indent(line: &str) -> usize {
    let times = ["00:00:00  ", "Aaa 00 00:00  "];
    let fits = |time: &&&str| {
        let same = |(shape, letter): (char, char)| match shape {
            '0' => letter.is_ascii_digit(),
            'A' | 'a' => letter.is_ascii_alphabetic(),
            other => letter == other,
        };
        line.chars().count() > time.len() && time.chars().zip(line.chars()).all(same)
    };
    times.iter().find(fits).map_or_else(|| value(line).unwrap_or_else(|| bullets(line)), |time| time.len())
}

/// The start of the value in a line such as `  command  make test`, or `ok    store  the database …`.
fn value(line: &str) -> Option<usize> {
    const FARTHEST: usize = 20;
    let behind_name = |from: usize| {
        let rest = line[from..].strip_prefix(char::is_alphabetic).map(|_| &line[from..])?;
        let name = rest.find("  ")?;
        let gap = rest[name..].len() - rest[name..].trim_start_matches(' ').len();
        let at = from + name + gap;
        (rest[..name].is_ascii() && !rest[..name].contains(' ') && at <= FARTHEST).then_some(at)
    };
    match line.starts_with("  ") {
        true => behind_name(2),
        false => behind_name(0).map(|at| behind_name(at).unwrap_or(at)),
    }
}

/// The width of the terminal on stdout; `None` if stdout is no terminal.
pub(crate) fn stdout_width() -> Option<usize> {
    columns(io::stdout())
}

/// The width of the terminal on stderr.
pub(crate) fn stderr_width() -> Option<usize> {
    columns(io::stderr())
}

fn columns(stream: impl AsFd + IsTerminal) -> Option<usize> {
    let size = stream.is_terminal().then(|| rustix::termios::tcgetwinsize(stream).ok()).flatten()?;
    // Some terminals do not know their size.
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Converts the output of another library, which has escaped external text already: its colours become styles.
pub(crate) fn from_ansi(drawing: &str) -> String {
    let mut out = String::with_capacity(drawing.len());
    let mut parts = drawing.split("\x1b[");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        match part.split_once('m').filter(|(parameters, _)| is_style(parameters)) {
            Some((parameters, rest)) => {
                let parameters = if parameters.is_empty() { "0" } else { parameters };
                write!(out, "{OPEN}{}{parameters}{CLOSE}{rest}", secret()).expect("a string takes everything");
            }
            None => write!(out, "\x1b[{part}").expect("a string takes everything"),
        }
    }
    out
}

/// Splits a text into parts of one style each, with control characters escaped.
pub(crate) fn styled(text: &str) -> Vec<(&str, String)> {
    let (mut parts, mut style) = (Vec::new(), "");
    for piece in pieces(text) {
        match piece {
            Piece::Style("0") => style = "",
            Piece::Style(parameters) => style = parameters,
            Piece::Text(text) => {
                let mut out = String::new();
                escape(text, Notation::Text, true, &mut out);
                parts.push((style, out));
            }
        }
    }
    parts
}

enum Piece<'a> {
    Text(&'a str),
    /// The parameters of a style.
    Style(&'a str),
}

/// Splits a text into styles and plain text.
fn pieces(mut text: &str) -> impl Iterator<Item = Piece<'_>> {
    std::iter::from_fn(move || {
        if let Some((parameters, rest)) = mark(text) {
            text = rest;
            return Some(Piece::Style(parameters));
        }
        let mut opens = text.match_indices(OPEN).map(|(at, _)| at);
        let end = opens.find(|at| mark(&text[*at..]).is_some()).unwrap_or(text.len());
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(Piece::Text(piece))
    })
}

/// The mark at the start of a text, and the rest.
fn mark(text: &str) -> Option<(&str, &str)> {
    let (parameters, rest) = text.strip_prefix(OPEN)?.strip_prefix(secret())?.split_once(CLOSE)?;
    is_style(parameters).then_some((parameters, rest))
}

/// Whether these are the parameters of a style, and of no other escape sequence.
fn is_style(parameters: &str) -> bool {
    parameters.len() <= 64 && parameters.bytes().all(|byte| byte.is_ascii_digit() || byte == b';' || byte == b':')
}

/// Whether a character controls the terminal: control characters, and those that change the text direction.
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(text: &str, notation: Notation, in_line: bool, out: &mut String) {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' if !in_line => out.push(c),
            // A CRLF line ending.
            '\r' if !in_line && chars.peek() == Some(&'\n') => {}
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if !is_unsafe(c) && c != OPEN && c != CLOSE => out.push(c),
            c => escape_char(c, notation, out),
        }
    }
}

/// Writes the escaped form of a character. Characters that control the terminal have at most four hexadecimal digits.
fn escape_char(c: char, notation: Notation, out: &mut String) {
    let spelt = match notation {
        Notation::Text => write!(out, "\\u{{{:x}}}", u32::from(c)),
        Notation::Json => write!(out, "\\u{:04x}", u32::from(c)),
    };
    spelt.expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: Style = Style::new("1;31");

    #[test]
    fn own_styles_are_rendered_and_everything_else_is_escaped() {
        let evil = "a\x1b[31mb\x07\u{9b}2J\u{202e}\u{2066}\u{200f}\u{61c}\x7f\u{fdd0}0\u{fdd1}";
        let text = format!("{RED}{evil}{RED:#}\n\tnext\r\n");
        let spelt = r"a\u{1b}[31mb\u{7}\u{9b}2J\u{202e}\u{2066}\u{200f}\u{61c}\u{7f}\u{fdd0}0\u{fdd1}";
        assert_eq!(render(&text, Notation::Text), format!("\x1b[1;31m{spelt}\x1b[0m\n\tnext\n"));
        assert_eq!(plain(&text), format!("{spelt}\n\tnext\n"));
        assert_eq!(render(&one_line(&text), Notation::Text), format!("\x1b[1;31m{spelt}\x1b[0m\\n\\tnext\\r\\n"));
        assert_eq!(plain(&format!("{}x{:#}", Style::PLAIN, Style::PLAIN)), "x");
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let text =
            "  - lock production is held by ada, and has been for a while now\n    try: banksman locks show production --json";
        let wrapped = "  - lock production is held by ada,\n    and has been for a while now\n    try:\n      banksman locks show production --json";
        assert_eq!(wrap(text, 36), wrapped);
        assert_eq!(wrap("failed     Import invoices  banksman why t-1", 40), "failed     Import invoices\n  banksman why t-1");
        let finding = "ok    store      the database has passed its check";
        assert_eq!(wrap(finding, 40), "ok    store      the database has passed\n                 its check");
        let command = "  command     make all of the tests right now, please";
        assert_eq!(wrap(command, 40), "  command     make all of the tests\n              right now, please");
        let next = "next: 1 task waits for failed tasks: banksman why 'Import invoices'";
        assert_eq!(wrap(next, 40), "next: 1 task waits for failed tasks:\n  banksman why 'Import invoices'");
        assert_eq!(wrap("it has been running, for 11 min: run r-1", 28), "it has been running, for\n11 min: run r-1");
        assert_eq!(
            wrap("22:14:07  Import invoices of November failed", 30),
            "22:14:07  Import invoices of\n          November failed"
        );
        assert_eq!(
            plain(&wrap(&format!("{RED}one two{RED:#} three four five six seven"), 24)),
            "one two three four five\nsix seven"
        );
    }

    #[test]
    fn escaping_does_not_change_the_json_value() {
        let value = serde_json::Value::from(vec!["\x1b[2J\x7f\u{9b}\u{202e}\u{fdd0}ä\n"]);
        let line = render(&value.to_string(), Notation::Json);
        assert!(!line.contains(is_unsafe), "{line:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }

    #[test]
    fn only_the_colours_of_a_drawing_are_kept() {
        let drawn = "\x1b[1m\x1b[38;5;9merror\x1b[m: x\x1b[0m\x1b[2Jy";
        assert_eq!(render(&from_ansi(drawn), Notation::Text), "\x1b[1m\x1b[38;5;9merror\x1b[0m: x\x1b[0m\\u{1b}[2Jy");
    }
}
