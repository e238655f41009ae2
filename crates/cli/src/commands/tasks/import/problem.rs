//! The problems of a file, each with its place, up to a limit.

use serde::Serialize;

use crate::exit_codes as exit;
use crate::failure::Failure;

/// The upper bound on reported problems.
const LIMIT: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) column: Option<usize>,
    pub(super) field: Option<String>,
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
    more: usize,
}

impl Problem {
    pub(super) fn new(line: usize, what: impl Into<String>) -> Problem {
        Problem { line, column: None, field: None, what: what.into(), hint: None }
    }

    pub(super) fn column(self, column: usize) -> Problem {
        Problem { column: Some(column), ..self }
    }

    pub(super) fn field(self, field: &str) -> Problem {
        Problem { field: Some(field.into()), ..self }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Problem {
        Problem { hint: Some(hint.into()), ..self }
    }

    /// A problem from a check that is shared with the command line.
    pub(super) fn of(line: usize, field: &str, failure: Failure) -> Problem {
        Problem { hint: failure.hint, ..Problem::new(line, failure.message).field(field) }
    }

    /// `12:5: title: a title must not be empty`.
    pub(super) fn message(&self) -> String {
        let column = self.column.map_or_else(String::new, |column| format!("{column}:"));
        let field = self.field.as_ref().map_or_else(String::new, |field| format!(" {field}:"));
        format!("{}:{column}{field} {}", self.line, self.what)
    }
}

impl Problems {
    pub(super) fn push(&mut self, problem: Problem) {
        if self.list.len() < LIMIT { self.list.push(problem) } else { self.more += 1 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether further problems would not be reported.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= LIMIT
    }

    #[cfg(test)]
    pub(super) fn messages(&self) -> Vec<String> {
        self.list.iter().map(Problem::message).collect()
    }

    /// Fails with all problems, if there are any.
    pub(super) fn check(mut self, file: &str) -> Result<(), Failure> {
        if self.list.is_empty() {
            return Ok(());
        }
        self.list.sort_by_key(|problem| (problem.line, problem.column));
        let number = match (self.list.len() + self.more, self.more) {
            (1, _) => "1 mistake".into(),
            (number, 0) => format!("{number} mistakes"),
            (_, _) => format!("more than {LIMIT} mistakes"),
        };
        let mut message = format!("{file} has {number}; nothing was imported");
        for problem in &self.list {
            message.push_str(&format!("\n  {file}:{}", problem.message()));
            if let Some(hint) = &problem.hint {
                message.push_str(&format!("\n    hint: {hint}"));
            }
        }
        Err(Failure::new(exit::USAGE, "IMPORT_INVALID", message)
            .detail("file", &file)
            .detail("problems", &self.list)
            .detail("more", &(self.more > 0))
            .hint("correct the file and try again; --dry-run only checks it"))
    }
}
