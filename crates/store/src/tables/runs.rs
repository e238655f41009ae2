//! Runs: attempts at tasks. `live` is 1 until a run has ended, and NULL then, for an index of the few live runs.

use banksman_core::backlog::Run;
use banksman_core::ids::RunId;

use crate::columns::{Int, Json, Moment, Text};
use crate::error::StoreError;
use crate::reader::View;
use crate::table::table;
use crate::value::{Query, Value};

table! {
    Runs "runs" of &'a RunId => Run, |_id, run|
    by ["epoch"] = [Int &run.epoch]; inserts
    fixed { id: Text, task: Text, attempt: Int, epoch: Int, host: Text, boot: Text, started: Moment, agent: Json }
    changing { owner: Text, owner_epoch: Int, holds: Json, session: Json, lease: Json, ended: Json }
        + { "live": Int = run.is_live().then_some(1) }
    read Run = Run { id, task, attempt, epoch, owner, owner_epoch, holds, agent, session, host, boot, started, lease, ended };
    statements {
        ById => "SELECT {runs} FROM runs WHERE project = $1 AND id = $2",
        All => "SELECT {runs} FROM runs WHERE project = $1 ORDER BY id",
        Last => "SELECT {runs} FROM runs WHERE project = $1 AND ended IS NOT NULL ORDER BY epoch DESC LIMIT $2",
        ByPrefix => "SELECT {runs} FROM runs WHERE project = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT 20",
        Live => "SELECT {runs} FROM runs WHERE project = $1 AND live = 1 ORDER BY epoch",
        LiveExclusive => "SELECT {runs r} FROM {live_exclusive}",
        OfRunner => "SELECT {runs} FROM runs WHERE project = $1 AND live = 1 AND owner = $2 ORDER BY epoch",
        OfTask => "SELECT {runs} FROM runs WHERE project = $1 AND task = $2 ORDER BY attempt",
        DeleteOfTask => "DELETE FROM runs WHERE project = $1 AND task = $2",
    }
}

impl View<'_> {
    /// The last runs that ended, newest first.
    pub fn last_runs(&mut self, limit: i64) -> Result<Vec<Run>, StoreError> {
        self.read::<Runs>(Query::new(Statement::Last, [self.project.into(), limit.into()]))
    }

    /// The runs that a name may mean: the run with this id, else the runs whose ids start with it.
    pub fn find_runs(&mut self, name: &str) -> Result<Vec<Run>, StoreError> {
        let params: [Value<'_>; 3] = [self.project.into(), name.into(), format!("{name}\u{10ffff}").into()];
        let runs = self.read::<Runs>(Query::new(Statement::ByPrefix, params))?;
        let exact = runs.iter().position(|run| run.id.as_str() == name);
        Ok(exact.map_or(runs.clone(), |at| vec![runs[at].clone()]))
    }
}
