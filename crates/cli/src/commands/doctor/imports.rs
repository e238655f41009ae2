//! Unfinished imports. The tasks of a killed import are not visible, but what they refer to cannot be deleted, and the
//! store cannot be copied.

use banksman_core::Liveness;
use banksman_store::Key;

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let open = examination.reader.view().load(&[Key::Imports].into())?.tables.backlog.imports;
    let cleared = match examination.fix && !open.is_empty() {
        true => examination.context.client()?.clear_imports()?,
        false => Vec::new(),
    };
    let entry = |import: &banksman_core::import::Import| {
        let (id, added, total) = (&import.id, import.added, import.total);
        let is_dead = matches!(examination.project.host().probe(&import.process), Liveness::Dead | Liveness::OtherBoot);
        let killed = || Entry::new(format!("import {id} was killed after {added} of {total} tasks"));
        if cleared.iter().any(|gone| gone.id == import.id) {
            killed().fixed("its tasks were removed")
        } else if is_dead {
            killed().fixable()
        } else {
            Entry::new(format!("import {id} of process {} is in progress: {added} of {total} tasks", import.process.pid))
        }
    };
    let entries = open.values().map(entry).collect();
    Ok(Finding::notes("imports", "no unfinished imports", entries))
}
