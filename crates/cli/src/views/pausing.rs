//! The pause of the project, and stopped tasks.

use banksman_core::{Pause, RunId, Status, TaskId, Title};
use serde::Serialize;

use super::Time;

#[derive(Debug, Serialize)]
pub(crate) struct PauseView<'a> {
    verb: &'static str,
    by: &'a str,
    at: Time,
}

impl<'a> From<&'a Pause> for PauseView<'a> {
    fn from(pause: &'a Pause) -> PauseView<'a> {
        PauseView { verb: pause.verb.as_str(), by: &pause.by, at: Time(pause.at) }
    }
}

/// The output of `pause` and `resume`: the pause, and the outcome.
#[derive(Debug, Serialize)]
pub(crate) struct PausedView<'a> {
    pub(crate) paused: Option<PauseView<'a>>,
    pub(crate) outcome: &'static str,
    /// The number of live sessions, which continue.
    pub(crate) sessions: usize,
}

/// The output of `stop`.
#[derive(Debug, Serialize)]
pub(crate) struct StopView<'a> {
    pub(crate) paused: Option<PauseView<'a>>,
    /// The tasks that were given.
    pub(crate) tasks: Vec<StoppedTask<'a>>,
    /// The sessions that were ended.
    pub(crate) sessions: Vec<StoppedSession<'a>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct StoppedTask<'a> {
    pub(crate) id: &'a TaskId,
    pub(crate) title: &'a Title,
    pub(crate) outcome: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct StoppedSession<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) task: &'a TaskId,
    pub(crate) title: &'a Title,
    /// The current status of the task.
    pub(crate) status: Status,
    /// `stopped`; `stopping` if the session is still live; `ended` if it ended by itself before.
    pub(crate) outcome: &'static str,
}
