//! Scripts in the prompt of a model, one step per line. `@script NAME` begins a script; lines without `@` are ignored.

/// A step of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// `@run COMMAND`: call the shell.
    Run(String),
    /// `@say TEXT`: end the turn with this.
    Say(String),
    /// `@huge N`: end the turn with N letters.
    Huge(usize),
    /// `@limit SECONDS`: the account is limited for SECONDS, from the first request on.
    Limit(u64),
    /// `@quota SECONDS LASTS`: the limit lasts LASTS seconds, while every refusal says that it ends in SECONDS.
    Quota { said: u64, lasts: u64 },
    /// `@overload N`: refuse the first N requests.
    Overload(u32),
    /// `@unauthorized`: refuse every request.
    Unauthorized,
    /// `@cut`: cut the connection once.
    Cut,
    /// `@hang`: never answer.
    Hang,
}

/// The name and the steps of the script in a prompt.
pub(super) fn steps(said: &[String]) -> (String, Vec<Step>) {
    let (mut name, mut steps) = (String::new(), Vec::new());
    // One of the programs puts quotes around its prompt.
    let lines = said.iter().flat_map(|text| text.lines()).map(|line| line.trim().trim_matches('"'));
    for line in lines {
        let Some(line) = line.strip_prefix('@') else { continue };
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let step = match verb {
            "script" if name.is_empty() => {
                name = rest.to_owned();
                continue;
            }
            // A prompt that repeats the script does not repeat its steps.
            "script" => break,
            "run" => Step::Run(rest.to_owned()),
            "say" => Step::Say(rest.to_owned()),
            "huge" => Step::Huge(rest.parse().unwrap_or(1_000)),
            "limit" => Step::Limit(rest.parse().unwrap_or(10)),
            "quota" => {
                let (said, lasts) = rest.split_once(' ').unwrap_or((rest, rest));
                Step::Quota { said: said.parse().unwrap_or(10), lasts: lasts.parse().unwrap_or(10) }
            }
            "overload" => Step::Overload(rest.parse().unwrap_or(1)),
            "unauthorized" => Step::Unauthorized,
            "cut" => Step::Cut,
            "hang" => Step::Hang,
            _ => continue,
        };
        steps.push(step);
    }
    (name, steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_once_from_among_other_lines() {
        let said = ["Title\n\"@script a\n@run make test\nmore\n@limit 5\"".to_owned(), "@script a\n@run x".to_owned()];
        assert_eq!(steps(&said), ("a".to_owned(), vec![Step::Run("make test".into()), Step::Limit(5)]));
    }
}
