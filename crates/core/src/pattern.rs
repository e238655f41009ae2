//! Regular expressions that people write, with limits.

pub use regex::Regex;

/// The longest regular expression, in bytes.
pub const PATTERN_LIMIT: usize = 1_000;

/// How much memory one may take once it is compiled. Matching takes time that is linear in the text, with this as the factor.
const SIZE_LIMIT: usize = 256 * 1_024;

/// How deep groups can stand in each other.
const NEST_LIMIT: u32 = 50;

/// Reads a regular expression, or says in a sentence what is wrong with it.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > PATTERN_LIMIT {
        return Err(format!("a regular expression may have at most {PATTERN_LIMIT} bytes, this one has {}", pattern.len()));
    }
    let built = regex::RegexBuilder::new(pattern)
        .multi_line(true)
        .nest_limit(NEST_LIMIT)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SIZE_LIMIT)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "the regular expression is too large once it is spelt out".into(),
        // It is told with a picture of the pattern; the last line says what is wrong.
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!("no regular expression: {}", last.trim_start_matches("error: "))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_matched_each_by_itself() {
        assert!(compile("^done$").unwrap().is_match("not yet\ndone\n"));
    }

    #[test]
    fn what_is_wrong_is_said_in_a_sentence() {
        let wrong = |pattern: &str| compile(pattern).unwrap_err();
        assert_eq!(wrong("a("), "no regular expression: unclosed group");
        assert_eq!(
            wrong(r"(?<=a)b"),
            "no regular expression: look-around, including look-ahead and look-behind, is not supported"
        );
        assert!(wrong(&"a".repeat(1_001)).contains("at most 1000 bytes"));
        for huge in [r"(\w{100}){100}", "((a{1000}){1000}){1000}", r"[\w&&\d]{1000}{1000}"] {
            assert!(wrong(huge).contains("too large"), "{huge}: {}", wrong(huge));
        }
        assert!(compile(&"(".repeat(400)).is_err());
    }

    #[test]
    fn no_pattern_takes_long() {
        let text = "a".repeat(50_000);
        let start = std::time::Instant::now();
        compile("(a*)*b").unwrap().is_match(&text);
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    }
}
