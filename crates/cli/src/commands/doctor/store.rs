//! The store: whether the database is intact, and whether the event log and the tables agree.

use banksman_store::{Key, ServerUsage};

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

/// With fewer free connections commands are soon refused: each runner has one connection, each command one or two.
const FEW_CONNECTIONS: u32 = 10;

/// In percent. The queue fills up while a client of the server listens and does not read.
const FULL_QUEUE: u32 = 50;

pub(super) fn integrity(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let complaints = examination.reader.view().check_integrity()?;
    Ok(faults("store", "the database passed its integrity check", complaints))
}

pub(super) fn event_log(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let differences = examination.reader.view().compare_with_log()?;
    Ok(faults("event log", "event log and tables agree", differences))
}

pub(super) fn counters(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let differences = examination.reader.view().check_counts()?;
    Ok(faults("counters", "the counters of tasks by status agree with the tasks", differences))
}

/// The resources that all clients of the database server share; `None` for SQLite.
pub(super) fn server(examination: &mut Examination<'_>) -> Result<Option<Finding>, Failure> {
    let Some(usage) = examination.reader.view().server_usage()? else { return Ok(None) };
    let ServerUsage { connections, max_connections, notification_queue } = usage;
    let left = max_connections.saturating_sub(connections);
    let said =
        format!("{left} of {max_connections} connections are left, and the notification queue is {notification_queue} % full");
    let is_scarce = left < FEW_CONNECTIONS || notification_queue > FULL_QUEUE;
    let entries = if is_scarce { vec![Entry::new(said.clone())] } else { Vec::new() };
    Ok(Some(Finding::notes("server", &said, entries)))
}

/// A task whose end has not reached all of its dependents; `None` if there is none.
pub(super) fn fan_outs(examination: &mut Examination<'_>) -> Result<Option<Finding>, Failure> {
    let Some(task) = examination.reader.view().load(&[Key::FanOut].into())?.tables.fan_out else { return Ok(None) };
    let said = format!("task {task} has ended; a runner has yet to update all of its dependents");
    Ok(Some(Finding::notes("dependents", &said, vec![Entry::new(said.clone())])))
}

fn faults(check: &'static str, fine: &str, complaints: Vec<String>) -> Finding {
    Finding::faults(check, fine, complaints.into_iter().map(Entry::new).collect())
}
