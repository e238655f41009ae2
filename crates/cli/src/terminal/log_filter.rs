//! Filters the output of a run for a terminal: colours pass, and other control sequences are dropped.

use super::{is_style, is_unsafe};

/// The longest escape sequence whose parameters are kept.
const LONGEST: usize = 64;

/// Filters output in pieces, which may be split anywhere.
#[derive(Debug, Default)]
pub(crate) struct LogFilter {
    /// The first bytes of an incomplete character.
    rest: Vec<u8>,
    state: State,
    /// Whether a colour is on, which must not outlive the output.
    is_styled: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// After a carriage return: a CRLF line ending, or a progress bar that overwrites its line.
    Return,
    /// After ESC.
    Escape,
    /// After ESC [, with the parameters so far.
    Control(String),
    /// In a command string for the terminal, such as its title: up to BEL or ST, and at most to the end of the line.
    Command,
}

impl LogFilter {
    /// Filters a piece of output.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.rest);
        let mut out = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            chunk.valid().chars().for_each(|c| self.take(c, &mut out));
            // A character that is cut off may continue in the next piece.
            match chunk.invalid() {
                [] => {}
                cut if chunks.peek().is_none() && is_incomplete(cut) => self.rest = cut.to_vec(),
                _ => self.take(char::REPLACEMENT_CHARACTER, &mut out),
            }
        }
        out
    }

    /// The sequence that ends the output.
    pub(crate) fn finish(&mut self) -> &'static str {
        if std::mem::take(&mut self.is_styled) { "\x1b[0m" } else { "" }
    }

    fn take(&mut self, c: char, out: &mut String) {
        self.state = match (std::mem::take(&mut self.state), c) {
            (State::Return, c) => {
                out.push('\n');
                if c == '\n' { State::Text } else { plain(c, out) }
            }
            (State::Text, c) => plain(c, out),
            // A line break ends every sequence, so that an incomplete one does not hide the rest of the log.
            (_, '\n') => plain('\n', out),
            (_, '\x1b') => State::Escape,
            (State::Escape, '[') => State::Control(String::new()),
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::Command,
            (State::Escape, ' '..='/') => State::Escape,
            (State::Escape, _) => State::Text,
            (State::Control(mut parameters), ' '..='?') => {
                if parameters.len() <= LONGEST {
                    parameters.push(c);
                }
                State::Control(parameters)
            }
            (State::Control(parameters), 'm') if is_style(&parameters) => {
                self.is_styled = !matches!(&*parameters, "" | "0");
                out.push_str("\x1b[");
                out.push_str(&parameters);
                out.push('m');
                State::Text
            }
            (State::Control(_), _) => State::Text,
            (State::Command, '\x07' | '\u{9c}') => State::Text,
            (State::Command, _) => State::Command,
        };
    }
}

/// Handles a character outside of any sequence.
fn plain(c: char, out: &mut String) -> State {
    match c {
        '\r' => return State::Return,
        '\x1b' => return State::Escape,
        '\u{9b}' => return State::Control(String::new()),
        '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => return State::Command,
        '\n' | '\t' => out.push(c),
        c if c.is_control() => {}
        c if is_unsafe(c) => super::escape_char(c, super::Notation::Text, out),
        c => out.push(c),
    }
    State::Text
}

/// Whether the bytes are an incomplete character, as opposed to invalid ones.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Filters the bytes as one piece and in small pieces, which must agree.
    fn passed(bytes: &[u8]) -> String {
        let at_once = LogFilter::default().pass(bytes);
        for size in 1..=3 {
            let mut filter = LogFilter::default();
            let cut: String = bytes.chunks(size).map(|piece| filter.pass(piece)).collect();
            assert_eq!(cut, at_once, "in pieces of {size}");
        }
        at_once
    }

    #[test]
    fn colours_pass_and_other_sequences_do_not() {
        assert_eq!(passed(b"\x1b[1;38;5;9mred\x1b[0m \x1b[mplain\n"), "\x1b[1;38;5;9mred\x1b[0m \x1b[mplain\n");
        assert_eq!(passed(b"a\x1b[2J\x1b[H\x1b[?25l\x1b[>4mb\x1bc\x1b(B\x07\x08c"), "abc");
        assert_eq!(passed(b"a\x1b]0;title\x07b\x1b]52;c;ZXZpbA==\x1b\\c\x1bPq\x1b\\d"), "abcd");
        assert_eq!(passed("a\u{9b}2Jb\u{9d}0;t\u{9c}c\u{85}d".as_bytes()), "abcd");
        assert_eq!(passed("größe \u{202e}x\u{2069}".as_bytes()), "größe \\u{202e}x\\u{2069}");
        assert_eq!(passed(b"a\xff\x9b2Jb\xc3"), "a\u{fffd}\u{fffd}2Jb");
        assert_eq!(passed(b"10%\r20%\r\ndone\r\n"), "10%\n20%\ndone\n");
        assert_eq!(passed(b"a\x1b]0;never ends\nb\x1b[31\nc"), "a\nb\nc", "a line break ends everything");
        assert_eq!(passed(&[b"\x1b[".as_slice(), &[b'1'; 100], b"mx"].concat()), "x");
    }

    #[test]
    fn a_colour_does_not_outlive_the_output() {
        let mut filter = LogFilter::default();
        filter.pass(b"\x1b[31mred");
        assert_eq!((filter.finish(), filter.finish()), ("\x1b[0m", ""));
        filter.pass(b"\x1b[31mred\x1b[0m");
        assert_eq!(filter.finish(), "");
    }
}
