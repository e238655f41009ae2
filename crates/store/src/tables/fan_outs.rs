//! Ended tasks with so many dependents that one transaction would keep everybody else waiting: these learn of it a page at a time.

use banksman_core::TaskId;

use crate::table::statements;
use crate::tables::tasks;
use crate::value::Query;

/// How many dependents learn in one transaction that the task has ended.
pub const FAN_OUT: usize = 500;

statements! {
    /// Those that are not finished: the first one.
    First => "SELECT task FROM fan_outs WHERE project = $1 ORDER BY task LIMIT 1".to_owned(),
    /// The task has ended again: its dependents are gone through from the front.
    Begin => "INSERT INTO fan_outs (project, task, after_task) VALUES ($1, $2, '') \
              ON CONFLICT (project, task) DO UPDATE SET after_task = ''".to_owned(),
    /// Goes on behind the next page.
    Advance => format!("UPDATE fan_outs SET after_task = coalesce((SELECT max(p.task) FROM (SELECT e.task FROM edges e \
        WHERE e.project = $1 AND e.on_task = $2 AND e.task > (SELECT f.after_task FROM fan_outs f WHERE f.project = $1 AND f.task = $2) \
        ORDER BY e.task LIMIT {FAN_OUT}) p), after_task) WHERE project = $1 AND task = $2"),
    /// Ends it, if nobody is left.
    End => "DELETE FROM fan_outs WHERE project = $1 AND task = $2 AND NOT EXISTS (SELECT 1 FROM edges e \
        WHERE e.project = $1 AND e.on_task = $2 AND e.task > fan_outs.after_task)".to_owned(),
}

/// The statements that begin one, with its first page.
pub(crate) fn begin(project: i64, task: &TaskId) -> impl Iterator<Item = Query<'_>> {
    let begin = Query::new(Statement::Begin, [project.into(), task.as_str().into()]);
    std::iter::once(begin).chain(advance(project, task))
}

/// The statements of the next page.
pub(crate) fn advance(project: i64, task: &TaskId) -> impl Iterator<Item = Query<'_>> {
    let of = move |statement: crate::tables::Statement| Query::new(statement, [project.into(), task.as_str().into()]);
    [tasks::Statement::CountUnmetOfPage.whole(), Statement::Advance.whole(), Statement::End.whole()].into_iter().map(of)
}
