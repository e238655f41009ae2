//! The run or the holder that this process acts for, as given by its environment.

use banksman_adapters::user::User;
use banksman_core::event::Actor;
use banksman_core::{Epoch, HolderId, RunId, TaskId};
use thiserror::Error;

/// A variable of the environment cannot be used.
#[derive(Debug, Error)]
pub enum CallerError {
    /// The value is not a valid name.
    #[error("{variable}: {what}")]
    Name { variable: &'static str, what: String },
    #[error("{variable} is not a number: {text:?}")]
    Number { variable: &'static str, text: String },
}

/// The holder that this process acts for.
#[derive(Debug, Clone)]
pub struct CallingHolder {
    pub holder: HolderId,
    /// The holders on whose behalf it acts, nearest first.
    pub ancestors: Vec<HolderId>,
}

/// The run that this process is part of.
#[derive(Debug, Clone)]
pub struct CallingRun {
    pub run: Option<RunId>,
    pub task: TaskId,
    pub epoch: Epoch,
}

/// A variable that is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The person or run that causes the events of this process.
pub fn actor() -> Actor {
    let user = User::current().name;
    match variable("BANKSMAN_RUN").filter(|run| RunId::new(run).is_ok()) {
        Some(run) => {
            let depth = variable("BANKSMAN_ROUTE_DEPTH").and_then(|depth| depth.parse().ok());
            Actor::run(user, run).at_depth(depth.unwrap_or_default())
        }
        None => Actor::person(user),
    }
}

/// The holder in the environment, with its ancestors.
pub fn holder() -> Result<Option<CallingHolder>, CallerError> {
    let Some(holder) = variable("BANKSMAN_HOLDER") else { return Ok(None) };
    let holder = HolderId::new(&holder).map_err(bad("BANKSMAN_HOLDER"))?;
    let lines = variable("BANKSMAN_ANCESTORS").unwrap_or_default();
    let ancestors = lines.lines().map(HolderId::new).collect::<Result<_, _>>().map_err(bad("BANKSMAN_ANCESTORS"))?;
    Ok(Some(CallingHolder { holder, ancestors }))
}

/// The run in the environment.
pub fn run() -> Result<Option<CallingRun>, CallerError> {
    let (Some(task), Some(epoch)) = (variable("BANKSMAN_TASK"), variable("BANKSMAN_RUN_EPOCH")) else { return Ok(None) };
    let task = TaskId::new(&task).map_err(bad("BANKSMAN_TASK"))?;
    let number = epoch.parse().map_err(|_| CallerError::Number { variable: "BANKSMAN_RUN_EPOCH", text: epoch.clone() })?;
    let run = variable("BANKSMAN_RUN").as_deref().map(RunId::new).transpose().map_err(bad("BANKSMAN_RUN"))?;
    Ok(Some(CallingRun { run, task, epoch: Epoch(number) }))
}

fn bad<E: ToString>(variable: &'static str) -> impl FnOnce(E) -> CallerError {
    move |error| CallerError::Name { variable, what: error.to_string() }
}
