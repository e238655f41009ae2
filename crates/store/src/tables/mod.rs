//! The tables, one file each, and the rows that a decision sees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use banksman_core::backlog::Backlog;
use banksman_core::bus::Message;
use banksman_core::event::Resource;
use banksman_core::mailbox::Delivery;
use banksman_core::queue::Queues;
use banksman_core::resource::coordination::Coordination;
use banksman_core::{Epoch, HolderId, MessageId, RequestId, TaskId};

use crate::columns::Type;

pub(crate) mod project_counts;
pub(crate) mod task_lists;

use pipelines::Listening;
use workers::Automation;

/// Declares the tables: the names of their columns, and one type for the statements of all of them.
macro_rules! tables {
    ($($module:ident $variant:ident $stored:expr;)*) => {
        $(pub(crate) mod $module;)*

        /// A statement of a table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Statement {
            $($variant($module::Statement),)*
        }

        $(impl $module::Statement {
            pub(crate) const fn erased(self) -> Statement {
                Statement::$variant(self)
            }
        }

        impl From<$module::Statement> for Statement {
            fn from(statement: $module::Statement) -> Statement {
                statement.erased()
            }
        })*

        impl Statement {
            pub(crate) const COUNT: usize = 0 $(+ $module::Statement::ALL.len())*;

            #[cfg(test)]
            pub(crate) fn all() -> impl Iterator<Item = Statement> {
                std::iter::empty()$(.chain($module::Statement::ALL.iter().map(|one| one.erased())))*
            }

            /// The number of the statement, unique and below [`Statement::COUNT`].
            pub(crate) const fn index(self) -> usize {
                let before = 0;
                $(if let Statement::$variant(one) = self {
                    return before + one as usize;
                }
                let before = before + $module::Statement::ALL.len();)*
                before
            }

            fn written(self) -> String {
                match self {
                    $(Statement::$variant(one) => one.text(),)*
                }
            }
        }

        /// The columns of a table that are read.
        pub(crate) fn stored(table: &str) -> Option<Vec<(String, Type)>> {
            match table {
                $(stringify!($module) => $stored,)*
                _ => None,
            }
        }
    };
}

tables! {
    projects Projects None;
    events Events None;
    baseline Baseline None;
    marks Marks None;
    locks Locks Some(locks::stored());
    semaphores Semaphores Some(semaphores::stored());
    slots Slots Some(slots::stored());
    waiters Waiters Some(waiters::stored());
    claims Claims Some(claims::stored());
    lost_claims LostClaims Some(lost_claims::stored());
    sections Sections Some(sections::stored());
    tasks Tasks Some(tasks::stored());
    task_counts TaskCounts None;
    edges Edges Some(edges::stored());
    fan_outs FanOuts None;
    runs Runs Some(runs::stored());
    runners Runners Some(runners::stored());
    outbox Outbox Some(outbox::stored());
    decisions Decisions Some(decisions::stored());
    imports Imports Some(imports::stored());
    landings Landings Some(landings::stored());
    landing_targets LandingTargets Some(landing_targets::stored());
    account_limits AccountLimits Some(account_limits::stored());
    spend Spend Some(spend::stored());
    pipelines Pipelines Some(pipelines::stored());
    listeners Listeners None;
    queues Queues Some(queues::stored());
    items Items Some(items::stored());
    takers Takers Some(takers::stored());
    workers Workers Some(workers::stored());
    jobs Jobs Some(jobs::stored());
    routes Routes Some(routes::stored());
    workspaces Workspaces Some(workspaces::stored());
    messages Messages Some(messages::stored());
    deliveries Deliveries Some(deliveries::stored());
}

impl Statement {
    /// The text with parameters `$n`. It is assembled once.
    pub(crate) fn text(self) -> &'static str {
        static TEXTS: [OnceLock<String>; Statement::COUNT] = [const { OnceLock::new() }; Statement::COUNT];
        TEXTS[self.index()].get_or_init(|| self.written())
    }
}

/// A partial copy of the tables: the rows that the calls of one batch need, with the changes of earlier calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// Locks and semaphores.
    pub coordination: Coordination,
    pub requests: BTreeMap<RequestId, Granted>,
    /// Tasks and what belongs to them.
    pub backlog: Backlog,
    /// Queues and their items.
    pub queues: Queues,
    /// Workers and routes.
    pub automation: Automation,
    /// Blocked pipelines.
    pub listening: Listening,
    /// The first ready tasks of every lane.
    pub ready: BTreeSet<TaskId>,
    /// The first resources that tasks are parked on, each with its first task.
    pub parked: Vec<(Resource, TaskId)>,
    /// The first tasks that are parked on each of the loaded resources.
    pub parked_on: BTreeMap<Resource, Vec<TaskId>>,
    /// The number of dependents of a task, counted up to one more than the limit of one transaction.
    pub dependents: BTreeMap<TaskId, u32>,
    /// An ended task whose fan-out is not finished.
    pub fan_out: Option<TaskId>,
    /// The requested messages, and the posted ones.
    pub messages: BTreeMap<MessageId, Message>,
    pub deliveries: BTreeMap<MessageId, Delivery>,
    /// Tasks that have ended or are gone, and still have open deliveries.
    pub over_targets: BTreeSet<TaskId>,
    /// The number of live runs.
    pub live_runs: u64,
}

/// The grant of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    pub resource: Resource,
    pub holder: HolderId,
    /// The epoch of the grant.
    pub epoch: Epoch,
}
