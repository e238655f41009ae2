//! Runners whose machine has not enough of something to start runs. They go on by themselves when it has.

use banksman::core::Liveness;
use banksman::store::Key;

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let runners = examination.reader.view().load(&[Key::Runners].into())?.backlog.runners;
    let host = examination.project.host();
    let living =
        runners.into_values().filter(|runner| !matches!(host.probe(&runner.process), Liveness::Dead | Liveness::OtherBoot));
    let entries = living.filter_map(|runner| {
        let error = runner.shortage?.error;
        Some(Entry::new(format!("runner {} cannot start more runs: {error}", runner.id)))
    });
    Ok(Finding::notes("shortages", "every runner can start runs", entries.collect()))
}
