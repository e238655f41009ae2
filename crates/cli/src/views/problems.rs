//! Problems of a file: settings or a runbook.

use std::borrow::Cow;

use banksman_runbook::{Diagnostic, Diagnostics};
use banksman_runtime::RunbookError;
use banksman_runtime::config::{self, Source};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct SettingProblem<'a> {
    place: Option<String>,
    line: Option<usize>,
    key: Option<&'a str>,
    what: &'a str,
}

impl<'a> From<&'a config::Problem> for SettingProblem<'a> {
    fn from(problem: &'a config::Problem) -> SettingProblem<'a> {
        let place = problem.source.as_ref().and_then(Source::place);
        SettingProblem { place, line: problem.line, key: problem.key.as_deref(), what: &problem.what }
    }
}

/// A problem of a runbook; for an unreadable file only the message is known.
#[derive(Debug, Serialize)]
pub(crate) struct RunbookProblem<'a> {
    file: Cow<'a, str>,
    line: Option<usize>,
    column: Option<usize>,
    code: Option<&'static str>,
    message: Cow<'a, str>,
    hint: Option<&'a str>,
}

impl<'a> RunbookProblem<'a> {
    pub(crate) fn list(error: &'a RunbookError) -> Vec<RunbookProblem<'a>> {
        match error {
            RunbookError::Wrong(wrong) => wrong.list.iter().map(|one| RunbookProblem::new(wrong, one)).collect(),
            RunbookError::NotFound { dir: path, .. } | RunbookError::Io { path, .. } => {
                let (file, message) = (path.display().to_string().into(), error.to_string().into());
                vec![RunbookProblem { file, line: None, column: None, code: None, message, hint: None }]
            }
        }
    }

    fn new(all: &'a Diagnostics, one: &'a Diagnostic) -> RunbookProblem<'a> {
        RunbookProblem {
            file: Cow::Borrowed(one.elsewhere.as_ref().map_or(&all.file, |(file, _)| file)),
            line: Some(one.line),
            column: Some(one.column),
            code: Some(one.code.as_str()),
            message: Cow::Borrowed(&one.message),
            hint: one.hint.as_deref(),
        }
    }
}
