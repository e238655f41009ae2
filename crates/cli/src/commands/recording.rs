//! Runs whose session ended without a runner: the next command that reads them records their end.

use std::cell::RefCell;

use banksman_runtime::inspect::Unattended;
use banksman_runtime::{Client, EndedRuns, Project};
use banksman_store::Reader;

use crate::context::Context;
use crate::failure::Failure;

/// Records the end of such runs.
pub(crate) fn record_ended(context: &Context, project: &Project, reader: &mut Reader) -> Result<(), Failure> {
    let open = || context.runner_client().ok();
    banksman_runtime::record_ended(project, &context.sessions(project), reader, &open)?;
    Ok(())
}

/// Runs a wait that records the ends of blocking runs without a runner.
pub(crate) fn with_ended_runs<T>(context: &Context, client: &Client, wait: impl FnOnce(EndedRuns<'_>, &NoRunner) -> T) -> T {
    let (files, said) = (context.sessions(client.project()), NoRunner::default());
    let open = || context.runner_client().ok();
    let report = |unattended: &[Unattended]| drop(said.0.replace(unattended.to_vec()));
    wait(EndedRuns { files: &files, open: &open, report: &report }, &said)
}

/// The blocking runs without a runner.
#[derive(Default)]
pub(crate) struct NoRunner(RefCell<Vec<Unattended>>);

impl NoRunner {
    /// An addition to the progress line, such as `; no runner is running`.
    pub(crate) fn suffix(&self) -> String {
        let unattended = self.0.borrow();
        match unattended.iter().find(|one| one.is_keeper_dead).or(unattended.first()) {
            Some(Unattended { run, is_keeper_dead: true }) => {
                format!("; the runner and the keeper of run {run} are dead, end it with: banksman sessions kill {run}")
            }
            Some(_) => "; no runner is running".into(),
            None => String::new(),
        }
    }
}
