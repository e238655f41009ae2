//! A task as a file describes it. To add a field: a word in `FIELDS`, an arm in `Record::set`, and its place in `spec`.

use std::num::NonZeroU32;

use banksman_core::suggest::distance;
use banksman_core::task::retry::Policy;
use banksman_core::task::{Spec, WorkspaceSpec};
use banksman_core::{Label, Name, SectionId, Span, Title};
use serde_json::Value;

use super::problem::{Problem, Problems};
use crate::commands::resources::Dur;
use crate::commands::tasks::spec;
use crate::failure::Failure;

/// The fields, as they are written in JSON and in the header of a CSV file.
pub(super) const FIELDS: [&str; 17] = [
    "key",
    "title",
    "run",
    "section",
    "labels",
    "priority",
    "retries",
    "loop",
    "maxAttempts",
    "maxDuration",
    "silenceTimeout",
    "workspace",
    "locks",
    "semaphores",
    "dependsOn",
    "allowFailed",
    "id",
];

/// The separator of a list in a CSV field.
const SEPARATOR: char = ';';

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) line: usize,
    pub(super) key: Option<String>,
    pub(super) title: String,
    pub(super) run: Option<String>,
    pub(super) section: Option<String>,
    pub(super) labels: Vec<String>,
    pub(super) priority: i32,
    pub(super) retries: u32,
    pub(super) looped: bool,
    pub(super) max_attempts: Option<NonZeroU32>,
    pub(super) max_duration: Option<Span>,
    pub(super) silence_timeout: Option<Span>,
    pub(super) workspace: WorkspaceSpec,
    pub(super) locks: Vec<String>,
    pub(super) semaphores: Vec<String>,
    pub(super) depends_on: Vec<String>,
    pub(super) allow_failed: bool,
    /// The indexes of the records indented below it, which are its dependencies.
    pub(super) inner: Vec<usize>,
}

/// A value before it is interpreted by its field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Raw<'a> {
    /// From a format in which everything is text.
    Text(&'a str),
    /// From a format with types.
    Json(&'a Value),
}

impl Raw<'_> {
    fn is_absent(self) -> bool {
        match self {
            Raw::Text(text) => text.is_empty(),
            Raw::Json(value) => value.is_null(),
        }
    }

    fn text(self) -> Result<String, String> {
        match self {
            Raw::Text(text) => Ok(text.into()),
            Raw::Json(Value::String(text)) => Ok(text.clone()),
            Raw::Json(other) => Err(format!("must be a string, not {}", kind(other))),
        }
    }

    /// A text, or a number such as the id of an issue in a tracker.
    fn name(self) -> Result<String, String> {
        match self {
            Raw::Json(Value::Number(number)) if number.is_u64() => Ok(number.to_string()),
            other => other.text(),
        }
    }

    fn list(self) -> Result<Vec<String>, String> {
        match self {
            Raw::Text(text) => Ok(text.split(SEPARATOR).map(str::trim).filter(|item| !item.is_empty()).map(Into::into).collect()),
            Raw::Json(Value::Array(items)) => items.iter().map(|item| Raw::Json(item).text()).collect(),
            Raw::Json(Value::String(text)) => Ok(vec![text.clone()]),
            Raw::Json(other) => Err(format!("must be a list of strings, not {}", kind(other))),
        }
    }

    fn number<N: TryFrom<i64> + std::str::FromStr>(self, what: &str) -> Result<N, String> {
        let (number, text) = match self {
            Raw::Text(text) => (text.trim().parse().ok(), format!("{text:?}")),
            Raw::Json(value) => (value.as_i64().and_then(|number| number.try_into().ok()), value.to_string()),
        };
        number.ok_or_else(|| format!("must be {what}, not {text}"))
    }

    fn attempts(self) -> Result<NonZeroU32, String> {
        let what = "a whole number of at least 1";
        self.number::<u32>(what).and_then(|number| NonZeroU32::new(number).ok_or_else(|| format!("must be {what}, not 0")))
    }

    fn duration(self) -> Result<Span, String> {
        let text = self.text()?;
        let span =
            text.parse::<Dur>().map(Dur::span).map_err(|error| format!("must be a duration such as 90s or 1h30m: {error}"))?;
        if span == Span::ZERO { Err("must be greater than zero".into()) } else { Ok(span) }
    }

    fn workspace(self) -> Result<WorkspaceSpec, String> {
        match self.text()?.as_str() {
            "checkout" | "none" => Ok(WorkspaceSpec::Checkout),
            "dir" => Ok(WorkspaceSpec::Dir),
            "worktree" => Ok(WorkspaceSpec::Worktree(Box::default())),
            other => Err(format!("must be checkout, dir or worktree, not {other:?}")),
        }
    }

    fn flag(self) -> Result<bool, String> {
        match self {
            Raw::Text("true" | "yes" | "1") | Raw::Json(Value::Bool(true)) => Ok(true),
            Raw::Text("false" | "no" | "0") | Raw::Json(Value::Bool(false)) => Ok(false),
            Raw::Text(text) => Err(format!("must be true or false, not {text:?}")),
            Raw::Json(other) => Err(format!("must be true or false, not {}", kind(other))),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

impl Record {
    /// Sets one field. An absent value, such as an empty column, changes nothing.
    pub(super) fn set(&mut self, field: &str, value: Raw<'_>) -> Result<(), Problem> {
        if value.is_absent() && FIELDS.contains(&field) {
            return Ok(());
        }
        let taken = match field {
            "key" | "id" => value.name().map(|text| self.key = Some(text)),
            "title" => value.text().map(|text| self.title = text),
            "run" => value.text().map(|text| self.run = Some(text)),
            "section" => value.text().map(|text| self.section = Some(text)),
            "labels" => value.list().map(|list| self.labels = list),
            "priority" => value.number("a whole number").map(|number| self.priority = number),
            "retries" => value.number("a whole number of at least 0").map(|number| self.retries = number),
            "loop" => value.flag().map(|flag| self.looped = flag),
            "maxAttempts" | "maxRestarts" => value.attempts().map(|number| self.max_attempts = Some(number)),
            "maxDuration" => value.duration().map(|span| self.max_duration = Some(span)),
            "silenceTimeout" => value.duration().map(|span| self.silence_timeout = Some(span)),
            "workspace" => value.workspace().map(|workspace| self.workspace = workspace),
            "locks" => value.list().map(|list| self.locks = list),
            "semaphores" => value.list().map(|list| self.semaphores = list),
            "dependsOn" => value.list().map(|list| self.depends_on = list),
            "allowFailed" => value.flag().map(|flag| self.allow_failed = flag),
            other => return Err(unknown(self.line, other)),
        };
        taken.map_err(|what| Problem::new(self.line, what).field(field))
    }
}

/// The problem for an unknown field, with a suggestion if there is a similar one.
pub(super) fn unknown(line: usize, name: &str) -> Problem {
    let plain = |text: &str| text.replace(['_', '-', ' '], "").to_lowercase();
    // A prefix of a field counts as similar: `prio` for `priority`.
    let begun = |field: &str| name.len() > 2 && plain(field).starts_with(&plain(name));
    let near = |field: &&&str| if begun(field) { 1 } else { distance(&plain(name), &plain(field)) };
    let nearest = FIELDS.iter().min_by_key(near).filter(|field| near(field) <= 2.max(name.len() / 4));
    let problem = Problem::new(line, format!("unknown field {name:?}"));
    problem.hint(match nearest {
        Some(field) => format!("did you mean {field}?"),
        None => format!("valid fields: {}", FIELDS.join(", ")),
    })
}

/// The spec of a task, with the same checks as on the command line. Reports all problems. `policy` is the retry policy
/// of a loop, except for the record's own maximum of attempts.
pub(super) fn spec(record: &Record, section: Option<SectionId>, policy: &Policy, problems: &mut Problems) -> Option<Spec> {
    let mut found = Vec::new();
    let mut note = |field: &str, failure: Failure| found.push(Problem::of(record.line, field, failure));
    let usage = |error: banksman_core::ids::NameError| Failure::usage(error);

    let title = Title::new(&record.title).map_err(|error| note("title", usage(error))).ok();
    let work = record.run.as_deref().map(spec::work).transpose().map_err(|failure| note("run", failure)).ok();
    let labels = record.labels.iter().map(|label| Label::new(label).map_err(usage)).collect::<Result<Vec<_>, _>>();
    let labels = labels.and_then(spec::labels).map_err(|failure| note("labels", failure)).ok();
    let locks = record.locks.iter().map(|name| Name::new(name).map_err(usage).and_then(|name| spec::lock(&name)));
    let locks = locks.collect::<Result<Vec<_>, _>>().map_err(|failure| note("locks", failure)).ok();
    let slots = record.semaphores.iter().map(|text| spec::slots(text).map_err(|failure| failure.at(text)));
    let slots = slots.collect::<Result<Vec<_>, _>>().map_err(|failure| note("semaphores", failure)).ok();
    let needs = locks.zip(slots).map(|(locks, slots)| [locks, slots].concat());
    let needs = needs.and_then(|needs| spec::needs(needs).map_err(|failure| note("semaphores", failure)).ok());
    if record.looped && record.retries > 0 {
        note("retries", Failure::usage("a loop is always retried").hint("remove retries, or loop"));
    }
    if record.looped && record.run.is_none() {
        note("loop", Failure::usage("a loop needs a command").hint("set run, or remove loop"));
    }
    if !record.looped && record.max_attempts.is_some() {
        note("maxAttempts", Failure::usage("only a loop has a maximum number of attempts").hint("set loop to true"));
    }
    let limits = [("maxDuration", record.max_duration), ("silenceTimeout", record.silence_timeout)];
    for (field, _) in limits.into_iter().filter(|(_, limit)| limit.is_some() && record.run.is_none()) {
        note(field, Failure::usage("only a task with a command has runs").hint(format!("set run, or remove {field}")));
    }
    found.into_iter().for_each(|problem| problems.push(problem));
    let max_attempts = record.max_attempts.unwrap_or(policy.max_attempts);
    Some(Spec {
        section,
        labels: labels?,
        priority: record.priority,
        work: work?,
        needs: needs?,
        retries: record.retries,
        restart: record.looped.then(|| Policy { max_attempts, ..policy.clone() }),
        timeout: record.max_duration,
        silence: record.silence_timeout,
        workspace: record.workspace.clone(),
        ..Spec::new(title?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_field_gets_a_suggestion_and_an_unknown_one_the_list() {
        let hint = |name: &str| unknown(1, name).hint.unwrap_or_default();
        for (slip, meant) in [("titel", "title"), ("depends_on", "dependsOn"), ("prio", "priority"), ("Label", "labels")] {
            assert_eq!(hint(slip), format!("did you mean {meant}?"));
        }
        assert!(hint("assignee").starts_with("valid fields: key, title"));
    }

    #[test]
    fn every_field_can_be_set() {
        for field in FIELDS {
            let known = Record::default().set(field, Raw::Text("1"));
            let has_own_words = ["workspace", "maxDuration", "silenceTimeout"].contains(&field);
            assert!(known.is_ok() || has_own_words, "{field}: {known:?}");
        }
    }
}
