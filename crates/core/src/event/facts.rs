//! The events of tasks, sections, decisions and imports in the log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};

use crate::backlog::Edge;
use crate::decision::Question;
use crate::event::ESCALATE;
use crate::ids::{DecisionId, Epoch, HolderId, ImportId, RunId, RunnerId, Title};
use crate::pause::Pause;
use crate::task::{After, RetryReason, RunEnd, Spec, Status, Stuck};
use crate::time::Span;

/// The events of a task in the log. The variants are the second words of their kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
#[strum(serialize_all = "snake_case", prefix = "task:")]
pub enum TaskFact {
    Added {
        spec: Box<Spec>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        depends_on: Vec<Edge>,
        /// The import that it is part of. The task is not visible before the import is finished.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        import: Option<ImportId>,
    },
    /// Its specification or its dependencies were changed.
    Updated {
        spec: Box<Spec>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        depends_on: Vec<Edge>,
    },
    /// A run began. The event's number is its epoch.
    Started {
        run: RunId,
        /// Counted from 0.
        attempt: u32,
        runner: RunnerId,
        /// In a loop: how many attempts were made before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        restart: Option<u32>,
    },
    /// Another runner supervises its run from now on. The event's number is the owner epoch.
    Adopted {
        run: RunId,
        runner: RunnerId,
        /// The runner that supervised it before.
        from: RunnerId,
    },
    /// Its run shows no activity.
    Stuck {
        run: RunId,
        reason: Stuck,
    },
    Nudged {
        run: RunId,
        /// The number of recoveries, this one included.
        recoveries: u32,
    },
    /// Its run shows activity again.
    Recovered {
        run: RunId,
        /// The number of recoveries that counts from now on, if it has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recoveries: Option<u32>,
    },
    /// Its run is active, as these observations show.
    Checkpoint {
        run: RunId,
        /// Its output so far, in bytes.
        output_bytes: u64,
        /// The time since its last output.
        quiet: Span,
    },
    Stopping {
        run: RunId,
        then: After,
    },
    /// Its run ended and another follows.
    Restarting {
        run: RunId,
        ending: RunEnd,
        /// Why another run follows. Like the counts, it is not in events of stores before version 3.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<RetryReason>,
        /// The error that the run reported, if it reported a failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Box<str>>,
        /// The number of failed runs from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failures: Option<u32>,
        /// The number of recoveries from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recoveries: Option<u32>,
        /// The number of runs from now on, if this one does not count: its command was not started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
    },
    /// Its own work is done, and it waits for its children.
    Awaiting {
        /// The run that ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// How many children have not ended.
        children: u32,
        /// Whether it has no changes of its own to land.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        no_change: bool,
    },
    /// Its children took too long, and are being cancelled.
    EndingChildren {},
    /// It cannot go on by itself: a person decides.
    Escalated {
        /// The run that ended.
        run: RunId,
        error: Box<str>,
        decision: DecisionId,
        /// The number of runs from now on, if this one does not count: its agent was not started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
    },
    /// Its run has asked a person something, and it waits for the answer.
    Asked {
        /// The run that ended.
        run: RunId,
        question: Box<str>,
        /// The decision with the question.
        decision: DecisionId,
    },
    /// The question of its run was answered: the task continues.
    Answered {
        decision: DecisionId,
    },
    /// It was taken for manual work.
    Taken {
        holder: HolderId,
        /// The grant of its lock.
        epoch: Epoch,
    },
    /// The manual work on it has ended.
    Returned {},
    /// Its pipeline goes through its phases.
    InPhases {
        /// Whether the pipeline is blocked.
        is_blocked: bool,
    },
    Complete {
        /// The run that completed it; none if it was completed manually.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warning: Option<Box<str>>,
    },
    Failed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        error: Box<str>,
    },
    Cancelled {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
    },
    /// Its work is in the merge queue.
    Landing {
        /// The run that did the work; none if a person lands it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warning: Option<Box<str>>,
    },
    /// Its work came back from the merge queue for another attempt.
    SentBack {
        reason: Box<str>,
    },
    /// A person requested a retry.
    Retried {},
    /// A person paused it: no run of it is started.
    Paused(Box<Pause>),
    Resumed(Resumed),
    /// A person skipped it, or reviews it.
    Marked {
        status: Status,
    },
    Deleted {},
}

/// The events of a decision in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
#[strum(serialize_all = "snake_case", prefix = "decision:")]
pub enum DecisionFact {
    /// It was raised. The event's number is part of its id.
    Raised(Box<Question>),
    Resolved {
        option: u32,
        by: Box<str>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<Box<str>>,
    },
    Withdrawn {},
}

/// The end of a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    pub by: Box<str>,
}

/// The number of tasks by status when nothing is left that a runner could do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Finished(pub BTreeMap<Status, u64>);

/// The events of a section in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
#[strum(serialize_all = "snake_case", prefix = "section:")]
pub enum SectionFact {
    Added {
        name: Title,
        /// Whether one runner at a time works in it.
        exclusive: bool,
    },
    Updated {
        name: Title,
        /// Whether one runner at a time works in it.
        exclusive: bool,
    },
    Deleted {},
}

/// The events of an import in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
#[strum(serialize_all = "snake_case", prefix = "import:")]
pub enum ImportFact {
    Opened {
        /// How many tasks it will have.
        tasks: u32,
    },
    /// It is complete: from now on its tasks are visible.
    Finished { tasks: u32 },
    /// It was dropped: its tasks were never visible.
    Dropped {},
}

impl TaskFact {
    /// The kind of its event.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            TaskFact::Escalated { .. } => ESCALATE,
            fact => fact.into(),
        }
    }
}
