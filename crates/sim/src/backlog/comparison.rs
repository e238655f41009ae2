//! The rows of pipelines, compared with what an outsider knows of them.

use banksman_core::Pipeline;
use banksman_core::pipeline::{Reason, When};

use super::way::{Stand, Way};
use super::world::World;
use crate::report::Checker;

impl World<'_> {
    /// Compares the rows of pipelines with the book.
    pub(crate) fn compare_pipelines(&mut self, rows: &banksman_core::backlog::Backlog) {
        let mut differs = rows.pipelines.values().filter_map(|row| {
            let Some(way) = self.book.ways.get(&row.id) else { return Some(format!("{} is not in the book", row.id)) };
            let told = (way.attempt, way.begun, &way.context);
            let is_same = told == (row.attempt, row.tasks, &row.context) && stands_so(row, way);
            (!is_same).then(|| format!("the row says {row:?}, the book {way:?}"))
        });
        let differs = differs.next();
        let many = rows.pipelines.len() == self.book.ways.len();
        self.verdict.expect(Checker::Model, differs.is_none() && many, || differs.unwrap_or("a pipeline has no row".to_owned()));
    }
}

fn stands_so(row: &Pipeline, way: &Way) -> bool {
    use banksman_core::pipeline::State as Row;
    let at = row.phase().and_then(|phase| way.at(phase));
    match (&row.state, &way.stand) {
        (Row::Init, Stand::Init) => way.blocked.is_none(),
        (Row::Blocked { reason: Reason::Dependencies, .. }, Stand::Init) => way.blocked.is_some(),
        (Row::Checking { when, .. }, stand) => way.blocked.is_none() && side(stand, at) == Some(*when),
        (Row::Blocked { reason, .. }, Stand::In { .. }) if reason.held().is_some() => {
            let is_same = way.is_held_up() == matches!(reason, Reason::Guard { .. });
            is_same && way.blocked.is_some() && row.task() == way.task()
        }
        (Row::Blocked { when, reason: Reason::Guard { .. }, .. }, stand) => way.is_held_up() && side(stand, at) == Some(*when),
        (Row::Blocked { when, reason: Reason::Overdue { .. }, .. }, stand) => {
            matches!(way.blocked, Some(Reason::Overdue { .. })) && side(stand, at) == Some(*when)
        }
        (Row::Blocked { reason: Reason::Decision { .. }, .. }, Stand::In { .. }) => row.task() == way.task(),
        (Row::Running { approach, task, .. }, Stand::In { at: here, approach: tried, task: own }) => {
            (at, approach, task) == (Some(*here), tried, own)
        }
        (Row::Done, Stand::Done) | (Row::Cancelled { .. }, Stand::Cancelled) => true,
        (Row::Failed { recoverable, .. }, Stand::Failed { at: here, recoverable: told }) => {
            (at, recoverable) == (Some(*here), told)
        }
        _ => false,
    }
}

fn side(stand: &Stand, at: Option<usize>) -> Option<When> {
    match stand {
        Stand::Pre(here) if Some(*here) == at => Some(When::Pre),
        Stand::Post(here) if Some(*here) == at => Some(When::Post),
        _ => None,
    }
}
