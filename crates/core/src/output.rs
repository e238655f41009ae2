//! The part of a command's output that explains its failure.

/// The last line of the error. Advice that git adds for people after its error is skipped, unless there is nothing
/// else.
pub fn telling_line(text: &str) -> &str {
    let lines = || text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    lines().find(|line| !is_advice(line)).or_else(|| lines().next()).unwrap_or_default()
}

fn is_advice(line: &str) -> bool {
    line.starts_with("hint:") || matches!(line, "Aborting" | "Aborting.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_found_before_the_advice_after_it() {
        let push = "To ../origin\n ! [rejected] main -> main (fetch first)\nerror: failed to push some refs to '../origin'\n\
                    hint: Updates were rejected because the remote contains work\nhint: See 'git push --help'.\n\n";
        assert_eq!(telling_line(push), "error: failed to push some refs to '../origin'");
        assert_eq!(
            telling_line("error: your changes would be overwritten\nAborting\n"),
            "error: your changes would be overwritten"
        );
        assert_eq!([telling_line("a\n b \n\n"), telling_line("hint: x\n"), telling_line(" \n")], ["b", "hint: x", ""]);
    }
}
