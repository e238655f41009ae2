//! Regular expressions of a runbook: matched in linear time, and never larger than a limit.

use regex::{Regex, RegexBuilder};
use thiserror::Error;

/// The longest regular expression, in bytes.
pub const LENGTH_LIMIT: usize = 1_000;

/// How much memory one may need once it is compiled, in bytes.
const SIZE_LIMIT: usize = 1 << 20;

/// How deep its groups can stand in each other.
const NEST_LIMIT: u32 = 50;

/// Why a text is no regular expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegexError {
    /// It does not make sense.
    #[error("{0}")]
    Syntax(Box<str>),
    /// It is too long, or would need too much memory.
    #[error("the regular expression is too large")]
    TooLarge,
}

/// Compiles a regular expression. Whatever it is, a match takes time in proportion to the text.
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

/// The crate draws the place below the text; its last line says what is wrong.
fn last_line(text: &str) -> Box<str> {
    let line = text.lines().last().unwrap_or(text).trim();
    line.strip_prefix("error: ").unwrap_or(line).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_sense_compiles_and_what_does_not_is_told_in_a_line() {
        assert!(compile("^conflict in .*\\.rs$").unwrap().is_match("conflict in a.rs"));
        assert!(compile("größe").unwrap().is_match("Die größe"));
        assert_eq!(compile("(a").unwrap_err().to_string(), "unclosed group");
    }

    #[test]
    fn a_regular_expression_that_would_eat_memory_is_refused() {
        assert_eq!(compile("(((a{100}){100}){100}){100}").unwrap_err(), RegexError::TooLarge);
        assert_eq!(compile(&"a".repeat(LENGTH_LIMIT + 1)).unwrap_err(), RegexError::TooLarge);
        assert!(compile(&format!("{}a{}", "(".repeat(200), ")".repeat(200))).is_err());
    }

    #[test]
    fn one_that_other_engines_choke_on_is_quick() {
        // Backtracking would need 2^50000 steps here, so this would never end.
        assert!(!compile("^(a+)+$").unwrap().is_match(&format!("{}b", "a".repeat(50_000))));
    }
}
