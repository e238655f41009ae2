//! Regular expressions of a runbook: matched in linear time, and never larger than a limit.

use regex::{Regex, RegexBuilder};
use thiserror::Error;

/// The longest regular expression, in bytes.
pub const LENGTH_LIMIT: usize = 1_000;

/// How much memory a compiled regular expression may need, in bytes.
const SIZE_LIMIT: usize = 1 << 20;

/// How deep groups may be nested.
const NEST_LIMIT: u32 = 50;

/// Why a text is not accepted as a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegexError {
    #[error("{0}")]
    Syntax(Box<str>),
    /// It is too long, or would need too much memory.
    #[error("the regular expression is too large")]
    TooLarge,
}

/// Compiles a regular expression. Matching always takes time in proportion to the text.
pub fn compile(text: &str) -> Result<Regex, RegexError> {
    if text.len() > LENGTH_LIMIT {
        return Err(RegexError::TooLarge);
    }
    let built = RegexBuilder::new(text).size_limit(SIZE_LIMIT).dfa_size_limit(SIZE_LIMIT).nest_limit(NEST_LIMIT).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => RegexError::TooLarge,
        other => RegexError::Syntax(last_line(&other.to_string())),
    })
}

/// The last line of the error. The lines before it draw the place below the text.
fn last_line(text: &str) -> Box<str> {
    let line = text.lines().last().unwrap_or(text).trim();
    line.strip_prefix("error: ").unwrap_or(line).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_patterns_compile_and_errors_have_one_line() {
        assert!(compile("^conflict in .*\\.rs$").unwrap().is_match("conflict in a.rs"));
        assert!(compile("größe").unwrap().is_match("Die größe"));
        assert_eq!(compile("(a").unwrap_err().to_string(), "unclosed group");
    }

    #[test]
    fn oversized_patterns_are_refused() {
        assert_eq!(compile("(((a{100}){100}){100}){100}").unwrap_err(), RegexError::TooLarge);
        assert_eq!(compile(&"a".repeat(LENGTH_LIMIT + 1)).unwrap_err(), RegexError::TooLarge);
        assert!(compile(&format!("{}a{}", "(".repeat(200), ")".repeat(200))).is_err());
    }

    #[test]
    fn matching_does_not_backtrack() {
        // Backtracking would need 2^50000 steps here, so this would never end.
        assert!(!compile("^(a+)+$").unwrap().is_match(&format!("{}b", "a".repeat(50_000))));
    }
}
