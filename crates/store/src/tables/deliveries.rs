//! Deliveries of messages to tasks. `is_open` is 1 until the delivery can no longer change, and NULL then; `is_locked`
//! is 1 while a dispatch holds the target's lock for it.

use banksman_core::Seq;
use banksman_core::ids::{MessageId, RunId, TaskId};
use banksman_core::mailbox::{Delivery, State};

use crate::columns::{Int, Json, NeededJson, Text};
use crate::error::StoreError;
use crate::reader::View;
use crate::table::table;
use crate::value::Query;

table! {
    Deliveries "deliveries" of &'a MessageId => Delivery, |_id, delivery|
    by ["seq"] = [Int &delivery.seq]; inserts
    fixed { seq: Int, id: Text, target: Text, mode: NeededJson }
    changing { state: NeededJson, dispatch: Json } + {
        "is_open": Int = delivery.is_open().then_some(1),
        "is_locked": Int = delivery.claim().map(|_| 1),
    }
    read Delivery = Delivery { id, seq, target, mode, state, dispatch };
    statements {
        ById => "SELECT {deliveries} FROM deliveries WHERE project = $1 AND id = $2",
        /// The open deliveries to a task.
        OfTarget => "SELECT {deliveries} FROM deliveries WHERE project = $1 AND target = $2 AND is_open = 1 ORDER BY seq",
        /// The deliveries that a dispatch holds a lock for.
        Locked => "SELECT {deliveries} FROM deliveries WHERE project = $1 AND is_locked = 1 ORDER BY seq LIMIT $2",
        /// The targets of open deliveries that have ended or are gone. Dispatches in progress are settled first.
        OverTargets => "SELECT DISTINCT d.target FROM deliveries d LEFT JOIN tasks t ON t.project = d.project AND t.id = d.target \
                        WHERE d.project = $1 AND d.is_open = 1 AND d.is_locked IS NULL \
                        AND coalesce(t.state, 'completed') IN ('completed', 'failed', 'cancelled', 'skipped') LIMIT $2",
        After => "SELECT {deliveries} FROM deliveries WHERE project = $1 AND seq > $2 ORDER BY seq LIMIT $3",
        Before => "SELECT {deliveries} FROM deliveries WHERE project = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3",
        /// Removes the deliveries of removed messages.
        DeleteThrough => "DELETE FROM deliveries WHERE project = $1 AND seq <= $2 AND is_open IS NULL AND NOT EXISTS \
                          (SELECT 1 FROM messages m WHERE m.project = $1 AND m.seq = deliveries.seq)",
    }
}

impl View<'_> {
    /// The delivery of a message.
    pub fn delivery(&mut self, id: &MessageId) -> Result<Option<Delivery>, StoreError> {
        Ok(self.read::<Deliveries>(Query::new(Statement::ById, [self.project.into(), id.as_str().into()]))?.pop())
    }

    /// The open deliveries to a task, oldest first.
    pub fn mailbox(&mut self, target: &TaskId) -> Result<Vec<Delivery>, StoreError> {
        self.read::<Deliveries>(Query::new(Statement::OfTarget, [self.project.into(), target.as_str().into()]))
    }

    /// The messages that a run has fetched and not acknowledged, oldest first.
    pub fn fetched_by(&mut self, target: &TaskId, run: &RunId) -> Result<Vec<Delivery>, StoreError> {
        let open = self.mailbox(target)?;
        Ok(open.into_iter().filter(|delivery| matches!(&delivery.state, State::Fetched { run: by, .. } if by == run)).collect())
    }

    /// A page of the deliveries after this number.
    pub fn deliveries(&mut self, after: Seq, limit: i64) -> Result<Vec<Delivery>, StoreError> {
        self.read::<Deliveries>(Query::new(Statement::After, [self.project.into(), after.0.into(), limit.into()]))
    }

    /// The last deliveries, newest first.
    pub fn last_deliveries(&mut self, limit: i64) -> Result<Vec<Delivery>, StoreError> {
        self.read::<Deliveries>(Query::new(Statement::Before, [self.project.into(), i64::MAX.into(), limit.into()]))
    }
}
