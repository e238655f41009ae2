//! Parses the keys that a terminal sends.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    Letter(char),
}

/// The keys in the input of a terminal. Unknown sequences are skipped.
pub(super) fn parse(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest: &str = &text;
    let mut keys = Vec::new();
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        keys.extend(match first {
            '\x1b' => {
                let (key, after) = sequence(rest);
                rest = after;
                key
            }
            '\r' | '\n' => Some(Key::Enter),
            '\x7f' | '\x08' => Some(Key::Backspace),
            '\x03' => Some(Key::Interrupt),
            letter if letter.is_control() => None,
            letter => Some(Key::Letter(letter)),
        });
    }
    keys
}

/// The key of an escape sequence, and the rest of the input.
fn sequence(rest: &str) -> (Option<Key>, &str) {
    let Some(body) = rest.strip_prefix('[').or_else(|| rest.strip_prefix('O')) else { return (Some(Key::Escape), rest) };
    let end = body.find(|c: char| c.is_ascii_alphabetic() || c == '~').map_or(body.len(), |at| at + 1);
    let key = match &body[..end] {
        "A" => Some(Key::Up),
        "B" => Some(Key::Down),
        "5~" => Some(Key::PageUp),
        "6~" => Some(Key::PageDown),
        "H" | "1~" => Some(Key::Home),
        "F" | "4~" => Some(Key::End),
        _ => None,
    };
    (key, &body[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed() {
        let keys = parse(b"jq\x1b[A\x1b[B\x1b[5~\x1bOH\r\x7f\x03\x1b[99;5u\xc3\xa4\x1b");
        let expected = [
            Key::Letter('j'),
            Key::Letter('q'),
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::Home,
            Key::Enter,
            Key::Backspace,
            Key::Interrupt,
            Key::Letter('ä'),
            Key::Escape,
        ];
        assert_eq!(keys, expected);
    }
}
