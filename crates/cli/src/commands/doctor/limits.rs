//! Limits in the settings that differ from the project's row because a file was edited. The row applies.

use banksman_core::Limits;

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let settings = examination.project.config().limits();
    let row = examination.reader.view().load(&Default::default())?.backlog.limits;
    let fine = match row {
        Some(row) => format!("the settings and the project agree: {}", describe(row)),
        None => format!("not set yet; the first runner sets them: {}", describe(settings)),
    };
    let entries = differences(settings, row.unwrap_or(settings)).into_iter();
    let entries = entries.map(|(text, command)| Entry::new(text).solved_by(command)).collect();
    Ok(Finding::notes("limits", &fine, entries))
}

/// The differences between the settings and the row, and the commands that update the row.
pub(in crate::commands) fn differences(settings: Limits, row: Limits) -> Vec<(String, String)> {
    let keys = [
        ("limits.max_concurrent_runs", settings.runs, row.runs),
        ("limits.max_concurrent_root_tasks", settings.roots, row.roots),
    ];
    let differing = keys.into_iter().filter(|(_, setting, applies)| setting != applies);
    let said = differing.map(|(key, setting, applies)| {
        let text = format!("{key} is {setting} in the settings, but the project uses {applies}");
        (text, format!("banksman config set {key} {setting}"))
    });
    said.collect()
}

/// `at most 4 runs at a time, any number of root tasks`.
fn describe(limits: Limits) -> String {
    let number = |limit: u32, what: &str| match limit {
        0 => format!("any number of {what}s"),
        1 => format!("at most 1 {what}"),
        several => format!("at most {several} {what}s"),
    };
    format!("{} and {} at a time", number(limits.runs, "run"), number(limits.roots, "root task"))
}
