//! Runners whose machine lacks a resource to start runs. They continue by themselves when the resource is available
//! again.

use banksman_core::Liveness;
use banksman_core::backlog::Runner;
use banksman_store::Key;

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let runners = examination.reader.view().load(&[Key::Runners].into())?.tables.backlog.runners;
    let host = examination.project.host();
    let living: Vec<Runner> = runners
        .into_values()
        .filter(|runner| !matches!(host.probe(&runner.process), Liveness::Dead | Liveness::OtherBoot))
        .collect();
    let entries = living.iter().filter_map(|runner| {
        let error = &runner.shortage.as_ref()?.error;
        Some(Entry::new(format!("runner {} cannot start more runs: {error}", runner.id)))
    });
    let fine = match living.len() {
        0 => "no runner is running".to_owned(),
        1 => "1 runner is alive, and reports no shortage".into(),
        several => format!("{several} runners are alive, and none reports a shortage"),
    };
    Ok(Finding::notes("shortages", &fine, entries.collect()))
}
