//! The store: whether the database is intact, and whether the event log and the tables agree.

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

pub(super) fn integrity(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let complaints = examination.reader.view().check_integrity()?;
    Ok(faults("store", "the database has passed its own check", complaints))
}

pub(super) fn event_log(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let differences = examination.reader.view().compare_with_log()?;
    Ok(faults("event log", "event log and tables agree", differences))
}

pub(super) fn counters(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let differences = examination.reader.view().check_counts()?;
    Ok(faults("counters", "the counters of tasks by status agree with the tasks", differences))
}

fn faults(check: &'static str, fine: &str, complaints: Vec<String>) -> Finding {
    Finding::faults(check, fine, complaints.into_iter().map(Entry::new).collect())
}
