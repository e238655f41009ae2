//! JSON that comes from outside and is stored.

use serde_json::Value;
use thiserror::Error;

/// How deep lists and objects may be nested. A stored value is read again inside of rows and events, which nest it
/// deeper; a reader gives up after 127 levels, and then could not read the row at all.
pub const NESTING_LIMIT: usize = 64;

/// Why a text cannot be stored.
#[derive(Debug, Error)]
pub enum JsonError {
    #[error("it is not JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// It has a number that could not be stored exactly.
    #[error("the number {0} has more than 64 bits, and would not be kept exactly; write it as text, in quotes")]
    LargeInteger(String),
}

/// A value is nested too deeply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("lists and objects may be nested {NESTING_LIMIT} levels deep, and these go deeper")]
pub struct TooDeep;

/// Reads a text from outside.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    let value = serde_json::from_str(text)?;
    keepable(&value)?;
    match large_integer(text) {
        Some(number) => Err(JsonError::LargeInteger(number.to_owned())),
        None => Ok(value),
    }
}

/// Reads the output of a program: an integer that does not fit into 64 bits becomes a text with its digits.
pub fn parse_exact(text: &str) -> Result<Value, JsonError> {
    let (mut exact, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(number) = large_integer(rest) {
        let at = number.as_ptr() as usize - rest.as_ptr() as usize;
        exact.extend([&rest[..at], "\"", number, "\""]);
        rest = &rest[at + number.len()..];
    }
    exact.push_str(rest);
    parse(&exact)
}

/// The first integer in a JSON text that does not fit into 64 bits: it would be read as a float, and become another
/// number.
fn large_integer(text: &str) -> Option<&str> {
    let is_part = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
    let (bytes, mut at) = (text.as_bytes(), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let end = bytes[at..].iter().position(|byte| !is_part(*byte)).map_or(bytes.len(), |length| at + length);
                let number = &text[at..end];
                let is_integer = !number.contains(['.', 'e', 'E']);
                if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(number);
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    None
}

/// Whether a value can be stored.
pub fn keepable(value: &Value) -> Result<(), TooDeep> {
    fn fits(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(list) => left > 0 && list.iter().all(|value| fits(value, left - 1)),
            Value::Object(fields) => left > 0 && fields.values().all(|value| fits(value, left - 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    if fits(value, NESTING_LIMIT) { Ok(()) } else { Err(TooDeep) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn large_integers_can_be_read_as_text() {
        let read =
            parse_exact(r#"{"id":123456789012345678901,"all":[-99999999999999999999, 7, "18446744073709551616"]}"#).unwrap();
        let wanted = r#"{"all":["-99999999999999999999",7,"18446744073709551616"],"id":"123456789012345678901"}"#;
        assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::from_str::<Value>(wanted).unwrap());
        assert!(parse_exact("{123456789012345678901").is_err());
    }

    #[test]
    fn inexact_numbers_are_refused() {
        for kept in
            ["18446744073709551615", "-9223372036854775808", "1e40", "1.5", "[\"99999999999999999999\\\"9\", 1]", "{\"9\":-0}"]
        {
            assert!(parse(kept).is_ok(), "{kept}");
        }
        for (text, number) in
            [("18446744073709551616", "18446744073709551616"), ("[1,{\"a\\\"\":-9223372036854775809}]", "-9223372036854775809")]
        {
            let error = parse(text).unwrap_err();
            assert!(matches!(&error, JsonError::LargeInteger(found) if found == number), "{error}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        assert!(parse(&nested(NESTING_LIMIT)).is_ok());
        assert!(matches!(parse(&nested(NESTING_LIMIT + 1)), Err(JsonError::TooDeep(_))));
        assert!(matches!(parse(&nested(100_000)), Err(JsonError::Syntax(_))), "no stack is that deep");
        let object = format!("{{\"a\":{}}}", nested(NESTING_LIMIT));
        assert!(matches!(parse(&object), Err(JsonError::TooDeep(_))));
        assert!(matches!(parse("{"), Err(JsonError::Syntax(_))));
    }
}
