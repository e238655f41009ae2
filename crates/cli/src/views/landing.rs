//! Merge queues and their entries.

use banksman_core::landing::{Entry, LandingEnd, LandingQueue, Obstacle, Pause, Return, State};
use banksman_core::{DecisionId, LandingId, Name, TaskId};
use serde::Serialize;

use super::Time;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryView<'a> {
    id: &'a LandingId,
    target: &'a Name,
    state: &'static str,
    title: &'a str,
    task: Option<&'a TaskId>,
    branch: Option<&'a str>,
    source: Option<&'a str>,
    priority: i32,
    unchecked: bool,
    /// The number of entries before it, while it is in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead: Option<usize>,
    /// The task whose author resolves a conflict in the same files first.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<&'a TaskId>,
    tip: Option<&'a str>,
    commit: Option<&'a str>,
    flaky: bool,
    reason: Option<String>,
    files: Vec<&'a str>,
    log: Option<&'a str>,
    decision: Option<&'a DecisionId>,
    added_at: Time,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueView<'a> {
    target: &'a Name,
    paused: Option<PauseView<'a>>,
    entries: Vec<EntryView<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PauseView<'a> {
    at: Time,
    by: Option<&'a str>,
    red_tip: Option<&'a str>,
    log: Option<&'a str>,
    decision: Option<&'a DecisionId>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetView<'a> {
    pub(crate) target: &'a Name,
    pub(crate) paused: bool,
}

impl<'a> From<&'a Entry> for EntryView<'a> {
    fn from(entry: &'a Entry) -> EntryView<'a> {
        let mut view = EntryView {
            id: &entry.id,
            target: &entry.target,
            state: entry.state.as_str(),
            title: &entry.spec.title,
            task: entry.spec.task.as_ref(),
            branch: entry.spec.branch.as_deref(),
            source: entry.spec.source.as_ref().map(|source| source.as_str()),
            priority: entry.spec.priority,
            unchecked: entry.spec.unchecked,
            ahead: None,
            waits_for: None,
            tip: None,
            commit: None,
            flaky: false,
            reason: None,
            files: Vec::new(),
            log: None,
            decision: entry.decision(),
            added_at: Time(entry.added),
        };
        match &entry.state {
            State::Queued | State::Over(LandingEnd::Removed { .. }) => {}
            State::Candidate { tip, commit, .. } => (view.tip, view.commit) = (Some(tip.as_str()), Some(commit.as_str())),
            State::Suspect { tip, commit, log } => {
                (view.tip, view.commit, view.log) = (Some(tip.as_str()), Some(commit.as_str()), Some(&**log));
            }
            State::Passed { tip, commit, flaky } => {
                (view.tip, view.commit, view.flaky) = (Some(tip.as_str()), Some(commit.as_str()), *flaky);
            }
            State::Over(LandingEnd::Landed { from, commit, flaky, .. }) => {
                (view.tip, view.commit, view.flaky) = (Some(from.as_str()), Some(commit.as_str()), *flaky);
            }
            State::Over(LandingEnd::NoChange { tip }) => view.tip = Some(tip.as_str()),
            State::Over(LandingEnd::Shelved { reason }) => view.reason = Some(reason.to_string()),
            State::Waiting { obstacle } => {
                view.reason = Some(obstacle.to_string());
                if let Obstacle::Checkout { files, .. } | Obstacle::Author { files } = obstacle {
                    view.files = files.iter().map(|file| &**file).collect();
                }
            }
            State::Asking { because: why, .. } | State::Over(LandingEnd::Returned(why)) => {
                view.reason = Some(why.to_string());
                match why {
                    Return::Conflict { tip, files } => {
                        view.tip = Some(tip.as_str());
                        view.files = files.iter().map(|file| &**file).collect();
                    }
                    Return::CheckFailed { commit, log } => (view.commit, view.log) = (Some(commit.as_str()), Some(&**log)),
                    Return::NoChange | Return::Unfinished { .. } | Return::TargetMoves | Return::Failure { .. } => {}
                }
            }
        }
        view
    }
}

impl<'a> From<&'a LandingQueue> for QueueView<'a> {
    fn from(queue: &'a LandingQueue) -> QueueView<'a> {
        let mut entries: Vec<&Entry> = queue.entries.values().collect();
        entries.sort_by_key(|entry| entry.place());
        let view = |entry: &'a Entry| EntryView {
            ahead: queue.ahead_of(&entry.id),
            waits_for: queue.target.author_before(entry),
            ..entry.into()
        };
        QueueView {
            target: &queue.target.name,
            paused: queue.target.paused.as_ref().map(PauseView::from),
            entries: entries.into_iter().map(view).collect(),
        }
    }
}

impl<'a> From<&'a Pause> for PauseView<'a> {
    fn from(pause: &'a Pause) -> PauseView<'a> {
        let red = pause.red.as_ref();
        PauseView {
            at: Time(pause.at),
            by: pause.by.as_deref(),
            red_tip: red.map(|red| red.tip.as_str()),
            log: red.map(|red| &*red.log),
            decision: red.map(|red| &red.decision),
        }
    }
}
