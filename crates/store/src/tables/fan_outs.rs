//! Ended tasks with so many dependents that updating them in one transaction would block other writers for too long:
//! they are updated a page at a time.

use banksman_core::TaskId;

use crate::table::statements;
use crate::tables::tasks;
use crate::value::Query;

/// Maximum number of dependents that one transaction updates.
pub const FAN_OUT: usize = 500;

statements! {
    /// The first unfinished fan-out.
    First => "SELECT task FROM fan_outs WHERE project = $1 ORDER BY task LIMIT 1".to_owned(),
    /// Starts a fan-out, or starts it over if the task has ended again.
    Begin => "INSERT INTO fan_outs (project, task, after_task) VALUES ($1, $2, '') \
              ON CONFLICT (project, task) DO UPDATE SET after_task = ''".to_owned(),
    /// Advances past the next page.
    Advance => format!("UPDATE fan_outs SET after_task = coalesce((SELECT max(p.task) FROM (SELECT e.task FROM edges e \
        WHERE e.project = $1 AND e.on_task = $2 AND e.task > (SELECT f.after_task FROM fan_outs f WHERE f.project = $1 AND f.task = $2) \
        ORDER BY e.task LIMIT {FAN_OUT}) p), after_task) WHERE project = $1 AND task = $2"),
    /// Removes a fan-out without dependents left.
    End => "DELETE FROM fan_outs WHERE project = $1 AND task = $2 AND NOT EXISTS (SELECT 1 FROM edges e \
        WHERE e.project = $1 AND e.on_task = $2 AND e.task > fan_outs.after_task)".to_owned(),
}

/// The statements that start a fan-out, with its first page.
pub(crate) fn begin(project: i64, task: &TaskId) -> impl Iterator<Item = Query<'_>> {
    let begin = Query::new(Statement::Begin, [project.into(), task.as_str().into()]);
    std::iter::once(begin).chain(advance(project, task))
}

/// The statements of the next page.
pub(crate) fn advance(project: i64, task: &TaskId) -> impl Iterator<Item = Query<'_>> {
    let of = move |statement: crate::tables::Statement| Query::new(statement, [project.into(), task.as_str().into()]);
    [tasks::Statement::CountUnmetOfPage.erased(), Statement::Advance.erased(), Statement::End.erased()].into_iter().map(of)
}
