//! The sessions of runs.

use std::path::PathBuf;

use banksman_adapters::keeper::Silence;
use banksman_core::{Epoch, Name, RunId, RunnerId, TaskId};
use serde::Serialize;

use super::tasks::RunEndView;
use super::{Text, Time};

/// A session and its processes: a number in a list, commands on a page.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionView<'a, P> {
    pub(crate) run: &'a RunId,
    pub(crate) state: &'static str,
    pub(crate) task: &'a TaskId,
    pub(crate) title: &'a str,
    pub(crate) attempt: u32,
    pub(crate) runner: &'a RunnerId,
    pub(crate) runner_state: Option<&'static str>,
    pub(crate) here: bool,
    pub(crate) keeper_pid: Option<i32>,
    pub(crate) keeper_silence: Option<Text<Silence>>,
    pub(crate) child_pid: Option<i32>,
    pub(crate) processes: Option<P>,
    pub(crate) output_bytes: Option<u64>,
    pub(crate) started_at: Time,
    #[serde(flatten)]
    pub(crate) end: RunEndView<'a>,
    pub(crate) signal: Option<i32>,
}

/// All details of a session.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionPage<'a> {
    #[serde(flatten)]
    pub(crate) session: SessionView<'a, Vec<ProcessView>>,
    pub(crate) epoch: Epoch,
    pub(crate) owner_epoch: Epoch,
    pub(crate) keeper_owner_epoch: Option<i64>,
    pub(crate) holds: Vec<HoldView<'a>>,
    pub(crate) record: PathBuf,
    pub(crate) log: LogView<'a>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ProcessView {
    pub(crate) pid: i32,
    pub(crate) command: Option<String>,
}

/// A lock or slots that a run holds.
#[derive(Debug, Serialize)]
pub(crate) struct HoldView<'a> {
    pub(crate) name: &'a Name,
    pub(crate) epoch: Epoch,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogView<'a> {
    pub(crate) path: String,
    pub(crate) bytes: Option<u64>,
    pub(crate) dropped: Option<u64>,
    pub(crate) error: Option<&'a String>,
    pub(crate) last_output_at: Option<Time>,
}

/// The outcome of `sessions kill`.
#[derive(Debug, Serialize)]
pub(crate) struct Killed<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) task: &'a TaskId,
    pub(crate) outcome: &'a str,
    pub(crate) ending: Option<String>,
    pub(crate) note: Option<&'a str>,
}

/// The output of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogText<'a> {
    pub(crate) task_id: &'a TaskId,
    pub(crate) run: &'a RunId,
    pub(crate) attempt: u32,
    pub(crate) live: bool,
    pub(crate) path: Text<std::path::Display<'a>>,
    pub(crate) text: &'a str,
}

/// A line of followed output.
#[derive(Debug, Serialize)]
pub(crate) struct LogLine<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) line: &'a str,
}
