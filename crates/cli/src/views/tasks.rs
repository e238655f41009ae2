//! Tasks and their runs.

use std::collections::BTreeMap;
use std::path::Path;

use banksman_core::agent::{AgentEnd, Usage};
use banksman_core::backlog::{Run, Section};
use banksman_core::event::Kind;
use banksman_core::task::{Need, RetryReason, RunEnd, State};
use banksman_core::{Epoch, HolderId, Label, Name, RunId, RunnerId, SectionId, Span, Status, Task, TaskId, Title};
use banksman_store::Listed;
use serde::Serialize;
use serde_json::Value;

use super::landing::EntryView;
use super::spend::SpendView;
use super::{Text, Time};
use crate::commands::tasks::error;
use crate::format;

/// The short form of a task, for use in other views.
#[derive(Debug, Serialize)]
pub(crate) struct Brief {
    pub(crate) id: TaskId,
    pub(crate) title: Title,
    pub(crate) status: Status,
}

impl From<&Task> for Brief {
    fn from(task: &Task) -> Brief {
        Brief { id: task.id.clone(), title: task.spec.title.clone(), status: task.status() }
    }
}

impl From<&Listed> for Brief {
    fn from(listed: &Listed) -> Brief {
        Brief { status: listed.status(), ..Brief::from(&listed.task) }
    }
}

/// A task in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskView<'a> {
    #[serde(flatten)]
    task: Brief,
    pub(crate) stopping: bool,
    section: Option<&'a Title>,
    section_id: &'a Option<SectionId>,
    priority: i32,
    labels: &'a [Label],
    parent: &'a Option<TaskId>,
    attempts: u32,
    #[serde(rename = "loop")]
    is_loop: bool,
    restarts: u32,
    recoveries: u32,
    unmet: u32,
    created_at: Time,
    changed_at: Time,
    run: Option<&'a RunId>,
    error: Option<&'a str>,
    by_hand: Option<ClaimView<'a>>,
}

impl<'a> TaskView<'a> {
    pub(crate) fn new(listed: &'a Listed, sections: &'a BTreeMap<SectionId, Section>) -> TaskView<'a> {
        TaskView::in_section(listed, listed.task.spec.section.as_ref().and_then(|id| sections.get(id)))
    }

    pub(crate) fn in_section(listed: &'a Listed, section: Option<&'a Section>) -> TaskView<'a> {
        let task = &listed.task;
        TaskView {
            task: listed.into(),
            stopping: matches!(task.state, State::Stopping { .. }),
            section: section.map(|section| &section.name),
            section_id: &task.spec.section,
            priority: task.spec.priority,
            labels: &task.spec.labels,
            parent: &task.spec.parent,
            attempts: task.attempts,
            is_loop: task.spec.restart.is_some(),
            restarts: task.failures,
            recoveries: task.recoveries,
            unmet: listed.unmet,
            created_at: Time(task.created),
            changed_at: Time(task.changed.wall),
            run: task.live().map(|live| &live.run),
            error: error(task),
            by_hand: ClaimView::of(task),
        }
    }
}

/// The manual claim of a task.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimView<'a> {
    holder: &'a HolderId,
    epoch: Epoch,
    expires_at: Option<Time>,
    lock: Name,
}

impl ClaimView<'_> {
    fn of(task: &Task) -> Option<ClaimView<'_>> {
        let State::Manual { holder, epoch, until } = &task.state else { return None };
        let expires_at = until.map(|until| Time(format::wall_of(until, task.changed)));
        Some(ClaimView { holder, epoch: *epoch, expires_at, lock: task.id.lock() })
    }
}

/// All details of a task.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskPage<'a> {
    #[serde(flatten)]
    pub(crate) task: TaskView<'a>,
    pub(crate) command: Option<String>,
    /// `none` stands for the checkout.
    pub(crate) workspace: &'static str,
    pub(crate) workspace_path: Option<&'a str>,
    pub(crate) branch: Option<&'a str>,
    /// The last entry in a merge queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) landing: Option<EntryView<'a>>,
    pub(crate) max_duration: Option<Text<Span>>,
    pub(crate) silence_timeout: Option<Text<Span>>,
    pub(crate) retries: u32,
    pub(crate) needs: Vec<NeedView<'a>>,
    pub(crate) epoch: Option<Epoch>,
    pub(crate) output: Option<&'a Value>,
    pub(crate) depends_on: Vec<Dependency<'a>>,
    pub(crate) dependents: Vec<Brief>,
    pub(crate) children: Vec<Brief>,
    pub(crate) runs: Vec<RunView<'a>>,
    /// The spend of its agents in all runs.
    pub(crate) spend: Vec<SpendView>,
    pub(crate) last_lines: &'a [String],
}

/// A dependency; a deleted one has no title and status.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Dependency<'a> {
    pub(crate) id: &'a TaskId,
    pub(crate) title: Option<&'a Title>,
    pub(crate) status: Option<Status>,
    pub(crate) allow_failed: bool,
    pub(crate) output: Option<&'a Value>,
}

/// A lock or slots that a run holds while it lives.
#[derive(Debug, Serialize)]
pub(crate) struct NeedView<'a> {
    kind: Kind,
    name: &'a Name,
    weight: Option<u32>,
    /// The pipeline that holds it beyond the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline: Option<&'a TaskId>,
}

impl<'a> From<&'a Need> for NeedView<'a> {
    fn from(need: &'a Need) -> NeedView<'a> {
        let (weight, pipeline) = match need {
            Need::Lock(_) => (None, None),
            Need::Slots { weight, .. } => (Some(*weight), None),
            Need::Kept { slots, pipeline, .. } => (*slots, Some(pipeline)),
        };
        NeedView { kind: need.resource().kind, name: need.name(), weight, pipeline }
    }
}

/// The end of a run; empty while the run lives.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunEndView<'a> {
    ended_at: Option<Time>,
    ending: Option<Text<&'a RunEnd>>,
    exit_code: Option<i32>,
    note: Option<&'a str>,
}

impl<'a> From<&'a Run> for RunEndView<'a> {
    fn from(run: &'a Run) -> RunEndView<'a> {
        let Some(ended) = &run.ended else { return RunEndView::default() };
        RunEndView {
            ended_at: Some(Time(ended.at)),
            ending: Some(Text(&ended.ending)),
            exit_code: ended.ending.exit_code(),
            note: ended.note.as_deref(),
        }
    }
}

/// A run of a task.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunView<'a> {
    id: &'a RunId,
    attempt: u32,
    epoch: Epoch,
    live: bool,
    runner: &'a RunnerId,
    started_at: Time,
    #[serde(flatten)]
    end: RunEndView<'a>,
    signal: Option<i32>,
    verdict: Option<&'static str>,
    /// The former name of the verdict.
    setback: Option<&'static str>,
    error: Option<&'a str>,
    log: String,
    /// The end of the agent's work, if an agent did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentEndView<'a>>,
}

/// The end of an agent's work.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentEndView<'a> {
    agent: &'a Name,
    verdict: &'static str,
    text: &'a str,
    session: Option<&'a str>,
    model: Option<&'a str>,
    turns: u32,
    #[serde(flatten)]
    tokens: TokensView,
    /// The cost that the program reports, in millionths of a dollar; for a subscription it is the list price.
    cost_micros: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TokensView {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
}

impl<'a> From<&'a AgentEnd> for AgentEndView<'a> {
    fn from(end: &'a AgentEnd) -> AgentEndView<'a> {
        AgentEndView {
            agent: &end.agent,
            verdict: end.verdict.as_str(),
            text: &end.text,
            session: end.session.as_deref(),
            model: end.model.as_deref(),
            turns: end.turns,
            tokens: end.usage.into(),
            cost_micros: end.cost_micros,
        }
    }
}

impl TokensView {
    /// Input and output tokens; cached input is not counted again.
    pub(crate) fn total(&self) -> u64 {
        self.input_tokens + self.output_tokens
    }
}

impl From<Usage> for TokensView {
    fn from(usage: Usage) -> TokensView {
        TokensView {
            input_tokens: usage.input,
            output_tokens: usage.output,
            cache_read_tokens: usage.cache_read,
            cache_write_tokens: usage.cache_write,
        }
    }
}

impl<'a> RunView<'a> {
    pub(crate) fn new(run: &'a Run, log: &Path) -> RunView<'a> {
        let ended = run.ended.as_ref();
        let verdict = ended.and_then(|ended| ended.setback.map(RetryReason::as_str));
        RunView {
            id: &run.id,
            attempt: run.attempt,
            epoch: run.epoch,
            live: run.is_live(),
            runner: &run.owner,
            started_at: Time(run.started.wall),
            end: run.into(),
            signal: ended.and_then(|ended| ended.ending.signal()),
            verdict,
            setback: verdict,
            error: ended.and_then(|ended| ended.error.as_deref()),
            log: log.display().to_string(),
            agent: ended.and_then(|ended| ended.agent.as_deref()).map(Into::into),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Added<'a> {
    #[serde(flatten)]
    pub(crate) task: Brief,
    pub(crate) section: Option<&'a Title>,
    pub(crate) parent: &'a Option<TaskId>,
    pub(crate) depends_on: Vec<&'a TaskId>,
    pub(crate) unmet: usize,
    pub(crate) admission: &'static str,
    pub(crate) queue_position: Option<u64>,
    pub(crate) runner_alive: bool,
}

/// A task after an update.
#[derive(Debug, Serialize)]
pub(crate) struct Updated<'a> {
    #[serde(flatten)]
    pub(crate) task: TaskView<'a>,
    pub(crate) outcome: &'static str,
}

/// The outcome of cancelling or retrying a task.
#[derive(Debug, Serialize)]
pub(crate) struct Changed {
    #[serde(flatten)]
    pub(crate) task: Brief,
    pub(crate) outcome: &'static str,
    /// The number of children cancelled with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) children: Option<usize>,
}

/// A deleted task, and its workspace if that remains.
#[derive(Debug, Serialize)]
pub(crate) struct Deleted {
    pub(crate) id: TaskId,
    pub(crate) title: String,
    pub(crate) workspace: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Taken<'a> {
    #[serde(flatten)]
    pub(crate) task: Brief,
    pub(crate) holder: &'a HolderId,
    pub(crate) epoch: Epoch,
    pub(crate) since: Time,
    pub(crate) outcome: &'static str,
}

/// The outcome of a heartbeat.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Heartbeat<'a> {
    pub(crate) id: &'a TaskId,
    pub(crate) outcome: &'static str,
    pub(crate) epoch: Epoch,
    pub(crate) expires_at: Option<Time>,
}

/// The outcome of a verdict.
#[derive(Debug, Serialize)]
pub(crate) struct Concluded<'a> {
    pub(crate) id: &'a TaskId,
    pub(crate) outcome: &'static str,
    pub(crate) status: Status,
}

/// A task that was waited for; a deleted one has no title.
#[derive(Debug, Serialize)]
pub(crate) struct Awaited<'a> {
    pub(crate) id: &'a TaskId,
    pub(crate) title: Option<&'a Title>,
    pub(crate) status: &'static str,
    pub(crate) error: Option<&'a str>,
}
