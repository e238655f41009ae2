//! What can happen to tasks, sections, decisions and imports, as the event log keeps it.

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

/// What can happen to a task. The variants are the second words of the events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
#[strum(serialize_all = "snake_case", prefix = "task:")]
pub enum TaskFact {
    Added {
        spec: Box<Spec>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        depends_on: Vec<Edge>,
        /// The import that it is part of. It is not there before that is finished.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        import: Option<ImportId>,
    },
    /// What is to be done, or what must come first, was changed.
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
    /// Another runner looks after its run from now on. The event's number is the owner epoch.
    Adopted {
        run: RunId,
        runner: RunnerId,
        /// The runner that looked after it before.
        from: RunnerId,
    },
    /// Its run shows no activity.
    Stuck {
        run: RunId,
        /// What makes it look so.
        reason: Stuck,
    },
    /// Its run was woken up.
    Nudged {
        run: RunId,
        /// How often it was helped, this time included.
        recoveries: u32,
    },
    /// Its run shows signs of life again.
    Recovered {
        run: RunId,
        /// How often it counts as helped from now on, if that is something else than before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recoveries: Option<u32>,
    },
    /// Its run is at work; this was seen of it.
    Checkpoint {
        run: RunId,
        /// How much output it has made, in bytes.
        output_bytes: u64,
        /// How long ago the last of it came.
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
        /// Why another follows. Like the counts, it is not in events of stores before version 3.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<RetryReason>,
        /// What it said before, if it said that it has failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Box<str>>,
        /// How many runs have failed now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failures: Option<u32>,
        /// How often it was helped now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recoveries: Option<u32>,
        /// How many runs it has had now, if this one does not count: its command was not started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
    },
    /// It is done, as far as it depends on itself, and waits for its children.
    Awaiting {
        /// The run that ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// How many children have not ended.
        children: u32,
        /// Whether there is nothing of its own that lands.
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
        /// How many runs it has had now, if this one does not count: its agent was not begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
    },
    /// Its run has asked a person something, and it waits for the answer.
    Asked {
        /// The run that ended.
        run: RunId,
        question: Box<str>,
        /// The question, as people answer it.
        decision: DecisionId,
    },
    /// What its run has asked was answered: it goes on.
    Answered {
        decision: DecisionId,
    },
    /// Somebody works on it by hand.
    Taken {
        holder: HolderId,
        /// The grant of its lock.
        epoch: Epoch,
    },
    /// Nobody works on it by hand any more.
    Returned {},
    /// It goes through the phases of its pipeline.
    InPhases {
        /// Whether that cannot go on.
        is_blocked: bool,
    },
    Complete {
        /// By which run; by hand if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// What a person should know.
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
        /// The run that did it; a person wants it to land if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// What a person should know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warning: Option<Box<str>>,
    },
    /// Its work came back from the merge queue: it is tried again.
    SentBack {
        reason: Box<str>,
    },
    /// A person wants it tried again.
    Retried {},
    /// A person has stopped it: no run of it is started.
    Paused(Box<Pause>),
    /// Its runs are started again.
    Resumed(Resumed),
    /// A person passed it over, or looks at it.
    Marked {
        status: Status,
    },
    Deleted {},
}

/// What can happen to a decision.
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

/// Who has ended a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The user.
    pub by: Box<str>,
}

/// What is left when there is nothing left that a runner could do: how many tasks stand so.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Finished(pub BTreeMap<Status, u64>);

/// What can happen to a section.
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

/// What can happen to an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
#[strum(serialize_all = "snake_case", prefix = "import:")]
pub enum ImportFact {
    Opened {
        /// How many tasks it will have.
        tasks: u32,
    },
    /// It is complete: from now on its tasks are there.
    Finished { tasks: u32 },
    /// It was given up: its tasks never were.
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
