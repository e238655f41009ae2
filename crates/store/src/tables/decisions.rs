//! Questions for people. `is_open` is 1 until a decision is answered or withdrawn, and NULL then.

use banksman_core::Decision;
use banksman_core::ids::DecisionId;

use crate::columns::{Int, NeededJson, Text};
use crate::error::StoreError;
use crate::reader::View;
use crate::table::table;
use crate::value::Query;

table! {
    Decisions "decisions" of &'a DecisionId => Decision, |_id, decision|
    by ["id"] = [Text &decision.id]; inserts
    fixed { id: Text, raised("raised_wall"): Int, question: NeededJson } + { "seq": Int = decision.id.seq().0 }
    changing { state: NeededJson } + { "is_open": Int = decision.is_open().then_some(1) }
    read Decision = Decision { id, raised, question, state };
    statements {
        ById => "SELECT {decisions} FROM decisions WHERE project = $1 AND id = $2",
        All => "SELECT {decisions} FROM decisions WHERE project = $1 ORDER BY seq",
        Open => "SELECT {decisions} FROM decisions WHERE project = $1 AND is_open = 1 ORDER BY seq",
        Last => "SELECT {decisions} FROM decisions WHERE project = $1 ORDER BY seq DESC LIMIT $2",
    }
}

impl View<'_> {
    /// The last decisions, newest first.
    pub fn last_decisions(&mut self, limit: i64) -> Result<Vec<Decision>, StoreError> {
        self.read::<Decisions>(Query::new(Statement::Last, [self.project.into(), limit.into()]))
    }
}
