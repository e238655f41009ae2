//! Reads the file: its path, its format, its encoding.

use std::io::Read;
use std::path::Path;

use banksman_core::import::IMPORT_LIMIT;
use clap::ValueEnum;

use super::problem::{Problem, Problems};
use super::record::Record;
use super::{csv, jsonl, markdown};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;

/// The longest line, in bytes.
const LINE_LIMIT: usize = 1 << 20;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// One JSON object per line
    Jsonl,
    /// Comma-separated values with a header line
    Csv,
    /// A checklist
    Markdown,
}

/// The content of a file.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) records: Vec<Record>,
    /// The titles of ticked items, which are not imported.
    pub(super) done: Vec<String>,
}

impl Parsed {
    /// Whether one more record is allowed. Reports a problem if not.
    pub(super) fn has_room(&self, line: usize, problems: &mut Problems) -> bool {
        has_room(self.records.len(), line, problems)
    }
}

fn has_room(count: usize, line: usize, problems: &mut Problems) -> bool {
    let has_room = count < IMPORT_LIMIT;
    if !has_room {
        let what = format!("one import may have at most {}", format::tasks(IMPORT_LIMIT));
        problems.push(Problem::new(line, what).hint("split the file, and import its parts one after the other"));
    }
    has_room
}

impl Format {
    /// The given format, or the one of the file's extension.
    pub(super) fn of(file: &Path, given: Option<Format>) -> Result<Format, Failure> {
        let hint = "give --format jsonl, --format csv or --format markdown";
        let extension = file.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        match (given, is_stdin(file), extension.as_deref()) {
            (Some(format), _, _) => Ok(format),
            (None, true, _) => Err(Failure::usage("cannot detect the format of stdin").hint(hint)),
            (None, false, Some("jsonl" | "ndjson" | "json")) => Ok(Format::Jsonl),
            (None, false, Some("csv")) => Ok(Format::Csv),
            (None, false, Some("md" | "markdown")) => Ok(Format::Markdown),
            (None, false, _) => {
                Err(Failure::usage(format!("cannot detect the format of {} from its name", file.display())).hint(hint))
            }
        }
    }

    pub(super) fn parse(self, text: &str, problems: &mut Problems) -> Parsed {
        if let Some((line, text)) = lines(text).find(|(_, text)| text.len() > LINE_LIMIT) {
            let what = format!("a line may have at most {LINE_LIMIT} bytes, this one has {}", text.len());
            problems.push(Problem::new(line, what));
            return Parsed::default();
        }
        match self {
            Format::Jsonl => jsonl::parse(text, problems),
            Format::Csv => csv::parse(text, problems),
            Format::Markdown => markdown::parse(text, problems),
        }
    }
}

/// The lines with their numbers, without line endings.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)))
}

pub(super) fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// The text of a file, or of stdin.
pub(super) fn read(file: &Path, problems: &mut Problems) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = if is_stdin(file) {
        std::io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(file).map(|read| bytes = read)
    };
    let shown = file.display();
    read.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::new(exit::NOT_FOUND, "NO_SUCH_FILE", format!("there is no file {shown}")),
        _ => Failure::system(&format!("read {shown}"), error),
    })?;
    Ok(decode(bytes, problems))
}

/// The text without a byte order mark.
fn decode(bytes: Vec<u8>, problems: &mut Problems) -> String {
    match String::from_utf8(bytes) {
        Ok(mut text) => {
            if text.starts_with('\u{feff}') {
                text.drain(..'\u{feff}'.len_utf8());
            }
            text
        }
        Err(error) => {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
            let column = good.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
            let problem = Problem::new(line, "not valid UTF-8").column(column);
            problems.push(problem.hint("to convert the file, for example: iconv -f latin1 -t utf-8"));
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_utf_8_with_or_without_a_byte_order_mark() {
        let mut problems = Problems::default();
        assert_eq!(decode(b"\xef\xbb\xbftitle".to_vec(), &mut problems), "title");
        assert!(problems.is_empty());
        assert_eq!(decode(b"a\nb\xffc".to_vec(), &mut problems), "");
        assert_eq!(problems.messages(), ["2:2: not valid UTF-8"]);
    }

    #[test]
    fn a_line_has_a_limit() {
        let mut problems = Problems::default();
        let long = "x".repeat(LINE_LIMIT + 1);
        Format::Csv.parse(&format!("title\n{}\n{long}\n", &long[1..]), &mut problems);
        assert_eq!(problems.messages(), ["3: a line may have at most 1048576 bytes, this one has 1048577"]);
    }

    #[test]
    fn the_number_of_tasks_has_a_limit() {
        let mut problems = Problems::default();
        assert!(has_room(IMPORT_LIMIT - 1, 1_000_000, &mut problems) && problems.is_empty());
        assert!(!has_room(IMPORT_LIMIT, 1_000_001, &mut problems));
        assert_eq!(problems.messages(), ["1000001: one import may have at most 1,000,000 tasks"]);
    }

    #[test]
    fn the_format_is_given_or_detected() {
        assert_eq!(Format::of("a.JSONL".as_ref(), None).ok(), Some(Format::Jsonl));
        assert_eq!(Format::of("a.b/c.markdown".as_ref(), None).ok(), Some(Format::Markdown));
        assert_eq!(Format::of("a.md".as_ref(), Some(Format::Csv)).ok(), Some(Format::Csv));
        assert!(Format::of("-".as_ref(), None).is_err() && Format::of("backlog".as_ref(), None).is_err());
    }
}
