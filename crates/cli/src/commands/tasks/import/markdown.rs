//! A Markdown checklist: `## Section`, `- [ ] Title: `command` (after: A; B)`; indented items are dependencies of the
//! item above.

use super::problem::Problems;
use super::record::Record;
use super::source::Parsed;

/// The width of a tab.
const TAB: usize = 4;

/// An item that others may be indented below.
struct Outer {
    indent: usize,
    /// The index of its record, unless the box is ticked.
    record: Option<usize>,
}

pub(super) fn parse(text: &str, problems: &mut Problems) -> Parsed {
    let mut parsed = Parsed::default();
    let mut section = None;
    let mut fence: Option<&str> = None;
    let mut open: Vec<Outer> = Vec::new();
    for (line, text) in super::source::lines(text) {
        if let Some(mark) = fence {
            if text.trim() == mark {
                fence = None;
            }
            continue;
        }
        let bare = text.trim_start();
        if bare.starts_with("```") || bare.starts_with("~~~") {
            fence = Some(&bare[..3]);
            continue;
        }
        if let Some((level, heading)) = heading(text) {
            match level {
                1 => section = None,
                2 => section = Some(heading.to_owned()).filter(|name| !name.is_empty()),
                _ => {}
            }
            open.clear();
            continue;
        }
        let Some((indent, is_done, item)) = item(text) else { continue };
        if !parsed.has_room(line, problems) {
            break;
        }
        while open.last().is_some_and(|outer| outer.indent >= indent) {
            open.pop();
        }
        let record = task(line, section.clone(), item);
        if is_done {
            parsed.done.push(record.title);
            open.push(Outer { indent, record: None });
            continue;
        }
        let index = parsed.records.len();
        if let Some(outer) = open.last().and_then(|outer| outer.record) {
            parsed.records[outer].inner.push(index);
        }
        parsed.records.push(record);
        open.push(Outer { indent, record: Some(index) });
    }
    parsed
}

fn heading(text: &str) -> Option<(usize, &str)> {
    let level = text.bytes().take_while(|byte| *byte == b'#').count();
    let rest = &text[level..];
    let is_heading = (1..=6).contains(&level) && (rest.is_empty() || rest.starts_with([' ', '\t']));
    is_heading.then(|| (level, rest.trim().trim_end_matches('#').trim_end()))
}

/// The indentation of an item with a box, whether the box is ticked, and the rest.
fn item(text: &str) -> Option<(usize, bool, &str)> {
    let mut indent = 0;
    let bare = text.trim_start_matches(|letter| {
        indent += match letter {
            ' ' => 1,
            '\t' => TAB - indent % TAB,
            _ => return false,
        };
        true
    });
    let digits = bare.bytes().take_while(u8::is_ascii_digit).count();
    let rest = match digits {
        0 => bare.strip_prefix(['-', '*', '+'])?,
        _ => bare[digits..].strip_prefix(['.', ')'])?,
    };
    let rest = rest.trim_start().strip_prefix('[')?;
    let (is_done, rest) = match (rest.strip_prefix([' ']), rest.strip_prefix(['x', 'X'])) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        (None, None) => return None,
    };
    let rest = rest.strip_prefix(']')?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then(|| (indent, is_done, rest.trim()))
}

/// A record with the command and the dependencies at the end of the item, in either order.
fn task(line: usize, section: Option<String>, item: &str) -> Record {
    let mut record = Record { line, section, ..Record::default() };
    let mut rest = item;
    loop {
        if record.run.is_none()
            && let Some((before, code)) = trailing_code(rest)
        {
            record.run = Some(code.into());
            rest = before;
        } else if record.depends_on.is_empty()
            && let Some((before, names)) = trailing_after(rest)
        {
            record.depends_on = names;
            rest = before;
        } else {
            break;
        }
    }
    let title = bare(rest);
    // A command alone is its own title.
    record.title = if title.is_empty() { record.run.clone().unwrap_or_default() } else { title.into() };
    record
}

/// Removes the colon before a command.
fn bare(text: &str) -> &str {
    text.trim_end_matches(|letter: char| letter == ':' || letter.is_whitespace())
}

/// The text before the code span at the end, and the code in it.
fn trailing_code(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_end();
    let ticks = text.bytes().rev().take_while(|byte| *byte == b'`').count();
    let inside = &text[..text.len() - ticks];
    // The opening run has exactly as many backticks.
    let mut end = if ticks > 0 { inside.len() } else { 0 };
    loop {
        let last = inside[..end].rfind('`')? + 1;
        let run = inside[..last].bytes().rev().take_while(|byte| *byte == b'`').count();
        if run == ticks {
            let code = &inside[last..];
            let spaced = code.strip_prefix(' ').and_then(|code| code.strip_suffix(' ')).filter(|code| !code.trim().is_empty());
            return Some((&inside[..last - ticks], spaced.unwrap_or(code))).filter(|(_, code)| !code.trim().is_empty());
        }
        end = last - run;
    }
}

/// The text before `(after: A; B)` at the end, and the names in it.
fn trailing_after(text: &str) -> Option<(&str, Vec<String>)> {
    let inside = bare(text).strip_suffix(')')?;
    let at = inside.rfind("(after:")?;
    let names = inside[at + "(after:".len()..].split(';').map(str::trim).filter(|name| !name.is_empty());
    Some((inside[..at].trim_end(), names.map(Into::into).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Parsed {
        let mut problems = Problems::default();
        let parsed = parse(text, &mut problems);
        assert!(problems.is_empty());
        parsed
    }

    fn one(item: &str) -> (String, Option<String>, Vec<String>) {
        let record = task(1, None, item);
        (record.title, record.run, record.depends_on)
    }

    #[test]
    fn headings_are_sections_and_boxes_are_tasks() {
        let text = "# Plan\n\n- [ ] loose\n\n## Back end ##\nSome words.\n- [ ] one\n* [x] two\n+ [X] three\n- plain\n1. [ ] four\n\n### Detail\n- [ ] five\n# Rest\n- [ ] six\n```\n- [ ] code\n```\n- [ ]seven\n";
        let parsed = parsed(text);
        let found: Vec<_> =
            parsed.records.iter().map(|record| (record.line, record.title.as_str(), record.section.as_deref())).collect();
        let inside = Some("Back end");
        assert_eq!(
            found,
            [(3, "loose", None), (7, "one", inside), (11, "four", inside), (14, "five", inside), (16, "six", None)]
        );
        assert_eq!(parsed.done, ["two", "three"]);
    }

    #[test]
    fn indented_items_are_dependencies() {
        let text =
            "- [ ] release\n  - [ ] test\n    - [ ] build\n  - [x] write\n    - [ ] proofread\n\t- [ ] announce\n- [ ] other\n";
        let parsed = parsed(text);
        let titles: Vec<&str> = parsed.records.iter().map(|record| record.title.as_str()).collect();
        assert_eq!(titles, ["release", "test", "build", "proofread", "announce", "other"]);
        let inner: Vec<&[usize]> = parsed.records.iter().map(|record| &record.inner[..]).collect();
        assert_eq!(inner, [&[1][..], &[2], &[], &[], &[], &[]], "what is below a ticked box stands for itself");
    }

    #[test]
    fn a_title_may_end_with_a_command_and_dependencies() {
        let record = |title: &str, run: Option<&str>, after: &[&str]| {
            (title.to_owned(), run.map(str::to_owned), after.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(one("Run the tests: `make test`"), record("Run the tests", Some("make test"), &[]));
        assert_eq!(one("Ship `it` now"), record("Ship `it` now", None, &[]));
        assert_eq!(one("`make all`"), record("make all", Some("make all"), &[]));
        assert_eq!(one("Echo: `` echo `date` ``"), record("Echo", Some("echo `date`"), &[]));
        assert_eq!(one("A `b` (after: C; D e)"), record("A", Some("b"), &["C", "D e"]));
        assert_eq!(one("A (after: C): `b`"), record("A", Some("b"), &["C"]));
        assert_eq!(one("Look (at it)"), record("Look (at it)", None, &[]));
        assert_eq!(one("Odd ` tick"), record("Odd ` tick", None, &[]));
    }
}
