//! The entries of merge queues. `is_open` is 1 until the entry has left its queue, and NULL then.

use banksman_core::ids::LandingId;
use banksman_core::landing::Entry;

use crate::columns::{Int, NeededJson, Text};
use crate::error::StoreError;
use crate::reader::View;
use crate::table::table;
use crate::value::Query;

table! {
    Landings "landings" of &'a LandingId => Entry, |_id, entry|
    by ["id"] = [Text &entry.id]; inserts
    fixed { id: Text, target: Text, added("added_wall"): Int }
        + { "seq": Int = entry.id.seq().0, "task": Text = entry.spec.task.as_ref().map(|task| task.as_str()) }
    changing { spec: NeededJson, state: NeededJson, rebuilds: Int, tries: Int, again: Int } + { "is_open": Int = entry.is_open().then_some(1) }
    read Entry = Entry { id, target, added, spec, state, rebuilds, tries, again };
    statements {
        ById => "SELECT {landings} FROM landings WHERE project = $1 AND id = $2",
        All => "SELECT {landings} FROM landings WHERE project = $1 ORDER BY seq",
        Open => "SELECT {landings} FROM landings WHERE project = $1 AND is_open = 1 ORDER BY target, seq",
        OpenOf => "SELECT {landings} FROM landings WHERE project = $1 AND is_open = 1 AND target = $2 ORDER BY seq",
        /// The last entry of a task.
        OfTask => "SELECT {landings} FROM landings WHERE project = $1 AND task = $2 ORDER BY seq DESC LIMIT 1",
        /// The last entry of each ancestor of a task.
        Above => "{ancestors} SELECT {landings l} FROM ancestors a CROSS JOIN landings l WHERE l.project = $1 \
            AND l.id = (SELECT i.id FROM landings i WHERE i.project = $1 AND i.task = a.id ORDER BY i.seq DESC LIMIT 1)",
        Last => "SELECT {landings} FROM landings WHERE project = $1 ORDER BY seq DESC LIMIT $2",
    }
}

impl View<'_> {
    /// The last entries of all merge queues, newest first.
    pub fn last_landings(&mut self, limit: i64) -> Result<Vec<Entry>, StoreError> {
        self.read::<Landings>(Query::new(Statement::Last, [self.project.into(), limit.into()]))
    }
}
