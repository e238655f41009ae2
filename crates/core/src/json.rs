//! JSON that comes from outside, and is to be kept.

use serde_json::Value;
use thiserror::Error;

/// How deep lists and objects may be nested. What is kept is read again inside of rows and events, which nest it deeper; a
/// reader gives up after 127 levels, and then could not read the row at all.
pub const NESTING_LIMIT: usize = 64;

/// Why a text is not kept.
#[derive(Debug, Error)]
pub enum JsonError {
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    /// It is nested too deeply.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
}

/// A value is nested too deeply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("lists and objects may be nested {NESTING_LIMIT} levels deep, and these go deeper")]
pub struct TooDeep;

/// Reads a text from outside.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    let value = serde_json::from_str(text)?;
    keepable(&value)?;
    Ok(value)
}

/// Whether a value can be kept.
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
    fn what_is_nested_too_deeply_is_refused() {
        assert!(parse(&nested(NESTING_LIMIT)).is_ok());
        assert!(matches!(parse(&nested(NESTING_LIMIT + 1)), Err(JsonError::TooDeep(_))));
        assert!(matches!(parse(&nested(100_000)), Err(JsonError::Syntax(_))), "no stack is that deep");
        let object = format!("{{\"a\":{}}}", nested(NESTING_LIMIT));
        assert!(matches!(parse(&object), Err(JsonError::TooDeep(_))));
        assert!(matches!(parse("{"), Err(JsonError::Syntax(_))));
    }
}
