//! Positions in the log: `finished` is the last event that reported the backlog as finished, `router` the last event
//! that was routed.

use banksman_core::Seq;

use crate::table::statements;
use crate::value::Query;

statements! {
    /// The mark `finished`, and the last run that began.
    Finished => "SELECT coalesce((SELECT seq FROM marks WHERE project = $1 AND name = 'finished'), 0), \
                 coalesce((SELECT epoch FROM runs WHERE project = $1 ORDER BY epoch DESC LIMIT 1), 0)".to_owned(),
    Routed => "SELECT seq FROM marks WHERE project = $1 AND name = 'router'".to_owned(),
    Move => "INSERT INTO marks (project, name, seq) VALUES ($1, $2, $3) ON CONFLICT (project, name) DO UPDATE SET seq = $3".to_owned(),
}

pub(crate) fn finished(project: i64, event: Seq) -> Query<'static> {
    Query::new(Statement::Move, [project.into(), "finished".into(), event.0.into()])
}

pub(crate) fn routed(project: i64, cursor: Seq) -> Query<'static> {
    Query::new(Statement::Move, [project.into(), "router".into(), cursor.0.into()])
}
