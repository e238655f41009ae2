//! Splits a stream into lines of bounded length.

use memchr::memchr;

/// The longest line that is parsed, in bytes. Longer lines are skipped: no program reports anything important in one.
const LONGEST: usize = 16 * 1024 * 1024;

/// The part of a line that has arrived so far.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
    /// Whether the rest of this line is skipped.
    is_too_long: bool,
}

impl Lines {
    /// Calls `take` with every complete line, without its line break.
    pub fn feed(&mut self, mut bytes: &[u8], mut take: impl FnMut(&[u8])) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if std::mem::take(&mut self.is_too_long) {
                continue;
            }
            if self.partial.is_empty() {
                take(line);
            } else {
                self.partial.extend_from_slice(line);
                take(&self.partial);
                self.partial.clear();
            }
        }
        if self.is_too_long {
            return;
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len() > LONGEST {
            self.partial = Vec::new();
            self.is_too_long = true;
        }
    }

    /// Calls `take` with the last line, if it has no line break.
    pub fn finish(&mut self, take: impl FnOnce(&[u8])) {
        let last = std::mem::take(&mut self.partial);
        if !last.is_empty() {
            take(&last);
        }
    }
}

/// A line without escape sequences, such as colours.
pub(crate) fn without_ansi(line: &str) -> std::borrow::Cow<'_, str> {
    if memchr(0x1b, line.as_bytes()).is_none() {
        return line.into();
    }
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.chars().peekable();
    while let Some(char) = rest.next() {
        if char != '\u{1b}' {
            plain.push(char);
            continue;
        }
        match rest.next() {
            // A control sequence ends with a letter or one of a few symbols.
            Some('[') => drop(rest.by_ref().find(|char| ('\u{40}'..='\u{7e}').contains(char))),
            // A command to the terminal ends with BEL, or with the escape of the next sequence.
            Some(']') => {
                while rest.next_if(|char| *char != '\u{1b}' && *char != '\u{7}').is_some() {}
                rest.next_if_eq(&'\u{7}');
            }
            Some(_) | None => {}
        }
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.feed(chunk, |line| found.push(String::from_utf8_lossy(line).into_owned()));
        }
        lines.finish(|line| found.push(String::from_utf8_lossy(line).into_owned()));
        found
    }

    #[test]
    fn lines_are_complete_however_the_chunks_are_cut() {
        let text = b"one\n\ntwo three\nfour";
        let expected = ["one", "", "two three", "four"];
        for at in 0..text.len() {
            assert_eq!(split(&[&text[..at], &text[at..]]), expected, "cut at {at}");
        }
    }

    #[test]
    fn an_oversized_line_is_skipped_and_the_next_is_not() {
        let chunk = vec![b'x'; 1024 * 1024];
        let mut chunks: Vec<&[u8]> = vec![&chunk; 18];
        chunks.push(b"x\nnext\n");
        assert_eq!(split(&chunks), ["next"]);
    }

    #[test]
    fn colours_are_removed() {
        assert_eq!(without_ansi("\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}text"), "red text");
        assert_eq!(without_ansi("\u{1b}"), "");
        assert_eq!(without_ansi("\u{1b}[31"), "");
    }
}
