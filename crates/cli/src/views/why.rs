//! Why a task does not run.

use banksman_core::backlog::{Run, Session};
use banksman_core::{DecisionId, HolderId, ItemId, Name, RunId, RunnerId, Status, TaskId, Title};
use banksman_engine::why::{Attended, Holder, Link};
use serde::Serialize;
use serde_json::Value;

use super::Time;
use super::landing::EntryView;
use super::pipelines::PipelineView;
use super::tasks::RunEndView;
use crate::commands::why::{Reason, life};

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $variant:ident $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        pub(crate) enum $name { $($(#[$of])* #[serde(rename = $word)] $variant),+ }

        #[cfg(test)]
        impl $name {
            const WORDS: &[&str] = &[$($word),+];
        }
    };
}

words! {
    /// The state of the task.
    AnswerKind {
        Waiting "waiting",
        Starting "starting",
        Running "running",
        Stopping "stopping",
        Awaiting "awaiting",
        Parked "parked",
        ByHand "by_hand",
        InPhases "in_phases",
        Landing "landing",
        Review "review",
        Finished "finished",
    }
}

words! {
    /// The kind of a reason. The guide explains each word.
    #[derive(Default)]
    Kind {
        ByHand "by_hand",
        Paused "paused",
        Stopped "stopped",
        NotBegun "not_begun",
        Resting "resting",
        NoRootSlot "no_root_slot",
        Dependency "dependency",
        SectionBusy "section_busy",
        NoRunner "no_runner",
        Shortage "shortage",
        NoFreeRunner "no_free_runner",
        Login "login",
        Budget "budget",
        Quota "quota",
        Guard "guard",
        Decision "decision",
        TaskLock "task_lock",
        Lock "lock",
        Section "section",
        Undefined "undefined",
        Reserved "reserved",
        NoSlot "no_slot",
        Slots "slots",
        #[default] Other "other",
    }
}

/// The keys are the same for every answer.
#[derive(Debug, Serialize)]
pub(crate) struct WhyView<'a> {
    pub(crate) task: &'a TaskId,
    pub(crate) title: &'a Title,
    pub(crate) status: Status,
    pub(crate) answer: AnswerKind,
    pub(crate) message: String,
    pub(crate) since: Time,
    pub(crate) attempts: u32,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) runner: Option<&'a RunnerId>,
    pub(crate) run: Option<RunView<'a>>,
    pub(crate) then: Option<String>,
    pub(crate) decision: Option<&'a DecisionId>,
    pub(crate) holder: Option<&'a HolderId>,
    pub(crate) error: Option<String>,
    pub(crate) output: Option<&'a Value>,
    pub(crate) pipeline: Option<PipelineView<'a>>,
    /// The entry of its work in a merge queue, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) landing: Option<EntryView<'a>>,
    pub(crate) item: Option<ItemView<'a>>,
    /// The processes that wait to work on the task, but do not answer.
    pub(crate) unanswered: Vec<UnansweredView<'a>>,
}

/// A process that waits to work on a task, was woken and has not answered: it may be stopped.
#[derive(Debug, Serialize)]
pub(crate) struct UnansweredView<'a> {
    pub(crate) holder: &'a HolderId,
    pub(crate) pid: i32,
    /// When it was woken.
    pub(crate) since: Time,
}

/// A run with its runner.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttendedRun<'a> {
    id: &'a RunId,
    attempt: u32,
    started_at: Time,
    runner: &'a RunnerId,
    runner_state: Option<&'static str>,
    decision: Option<&'a DecisionId>,
    keeper_silence: Option<&'a str>,
    session_ended: Option<&'a str>,
}

impl<'a> From<&'a Attended> for AttendedRun<'a> {
    fn from(run: &'a Attended) -> AttendedRun<'a> {
        AttendedRun {
            id: &run.id,
            attempt: run.attempt,
            started_at: Time(run.started.wall),
            runner: &run.owner,
            runner_state: Some(life(run.life)),
            decision: run.asked.as_ref(),
            keeper_silence: run.silence.as_deref(),
            session_ended: run.ended.as_deref(),
        }
    }
}

/// A live or ended run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunView<'a> {
    #[serde(flatten)]
    run: AttendedRun<'a>,
    heir: Option<&'a RunnerId>,
    #[serde(flatten)]
    end: RunEndView<'a>,
    keeper_pid: Option<i32>,
    child_pid: Option<i32>,
}

impl<'a> RunView<'a> {
    fn new(run: AttendedRun<'a>, heir: Option<&'a RunnerId>, end: RunEndView<'a>, session: Option<&Session>) -> RunView<'a> {
        let (keeper_pid, child_pid) = (session.map(|session| session.keeper), session.map(|session| session.child));
        RunView { run, heir, end, keeper_pid, child_pid }
    }

    pub(crate) fn live(run: &'a Attended) -> RunView<'a> {
        RunView::new(run.into(), run.heir.as_ref(), RunEndView::default(), run.session.as_ref())
    }

    pub(crate) fn ended(run: &'a Run) -> RunView<'a> {
        let attended = AttendedRun {
            id: &run.id,
            attempt: run.attempt,
            started_at: Time(run.started.wall),
            runner: &run.owner,
            runner_state: None,
            decision: None,
            keeper_silence: None,
            session_ended: None,
        };
        RunView::new(attended, None, run.into(), run.session.as_ref())
    }
}

/// The item that a task is an attempt at.
#[derive(Debug, Serialize)]
pub(crate) struct ItemView<'a> {
    pub(crate) id: ItemId,
    pub(crate) queue: &'a Name,
    pub(crate) worker: &'a Name,
    pub(crate) attempt: u32,
    pub(crate) standing: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// The holder of something that a task needs.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum HolderView {
    /// A root that takes one of the places.
    Root {
        holder: TaskId,
        title: Title,
        since: Time,
    },
    Grant(Box<GrantView>),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrantView {
    holder: HolderId,
    since: Time,
    expires_at: Option<Time>,
    state: String,
    pids: Vec<i32>,
    run: Option<RunId>,
    task: Option<TaskId>,
    title: Option<Title>,
}

impl From<&Holder> for HolderView {
    fn from(holder: &Holder) -> HolderView {
        let (holding, run) = (&holder.holding, holder.run.as_ref());
        HolderView::Grant(Box::new(GrantView {
            holder: holding.holder.clone(),
            since: Time(holding.since.wall),
            expires_at: holding.until.map(|until| Time(holding.since.wall_of(until))),
            state: holder.over.map_or_else(|| "held".into(), |over| over.to_string()),
            pids: holder.pids.clone(),
            run: run.map(|(run, ..)| run.id.clone()),
            task: run.map(|(_, task, _)| task.clone()),
            title: run.map(|(.., title)| title.clone()),
        }))
    }
}

/// A task in a chain of dependencies; a deleted one has no title and status.
#[derive(Debug, Serialize)]
pub(crate) struct LinkView {
    id: TaskId,
    title: Option<Title>,
    status: Option<Status>,
    since: Option<Time>,
}

impl From<&Link> for LinkView {
    fn from(link: &Link) -> LinkView {
        let since = link.since.map(|since| Time(since.wall));
        LinkView { id: link.id.clone(), title: link.title.clone(), status: link.status, since }
    }
}

/// A runner, and the reasons why it does not take the task.
#[derive(Debug, Serialize)]
pub(crate) struct RunnerView {
    pub(crate) runner: RunnerId,
    pub(crate) obstacles: Vec<String>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{AnswerKind, Kind};

    /// The words in backticks in these lines.
    fn named<'a>(part: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
        part.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
    }

    #[test]
    fn the_guide_names_every_answer_and_every_kind() {
        let page = include_str!("../../../../docs/guides/why.md");
        let (_, programs) = page.split_once("## For programs").unwrap();
        let table = programs.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        let first = table.take_while(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(1));
        assert_eq!(named(first), Kind::WORDS.iter().copied().collect());
        let (_, answers) = programs.split_once("has `answer` (").unwrap();
        let listed = named(answers.split_once(')').unwrap().0.lines());
        let others = ["decision", "holder", "pipeline"];
        assert_eq!(listed, AnswerKind::WORDS.iter().copied().chain(others).collect());
    }
}
