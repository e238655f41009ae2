//! The timeline as JSON.

use banksman_core::TaskId;
use serde::Serialize;

use super::rows::{Mark, Row, Section, Timeline};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TimelineView<'a> {
    length_ms: i64,
    killed_at_ms: Option<i64>,
    runners: Vec<RunnerView>,
    sections: Vec<SectionView<'a>>,
    slots: Vec<SlotsView>,
    capacity: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunnerView {
    name: &'static str,
    from_ms: i64,
    to_ms: i64,
}

#[derive(Serialize)]
struct SectionView<'a> {
    name: &'a str,
    exclusive: bool,
    tasks: Vec<TaskView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskView<'a> {
    id: &'a TaskId,
    title: &'a str,
    child: bool,
    completed: bool,
    segments: Vec<SegmentView>,
    crashed_at_ms: Vec<i64>,
    adopted_at_ms: Vec<i64>,
    restarted_at_ms: Vec<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SegmentView {
    state: &'static str,
    from_ms: i64,
    to_ms: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SlotsView {
    from_ms: i64,
    used: u32,
}

impl Timeline {
    pub(crate) fn view(&self) -> TimelineView<'_> {
        let runners = self.runners.iter().map(|&(name, from_ms, to_ms)| RunnerView { name, from_ms, to_ms });
        TimelineView {
            length_ms: self.length,
            killed_at_ms: self.kill,
            runners: runners.collect(),
            sections: self.sections.iter().map(SectionView::from).collect(),
            slots: self.slots.iter().map(|&(from_ms, used)| SlotsView { from_ms, used }).collect(),
            capacity: self.capacity,
        }
    }
}

impl<'a> From<&'a Section> for SectionView<'a> {
    fn from(section: &'a Section) -> SectionView<'a> {
        SectionView { name: &section.name, exclusive: section.is_exclusive, tasks: section.rows.iter().map(Into::into).collect() }
    }
}

impl<'a> From<&'a Row> for TaskView<'a> {
    fn from(row: &'a Row) -> TaskView<'a> {
        let segments = row.segments().map(|(from_ms, to_ms, state)| SegmentView { state: state.word(), from_ms, to_ms });
        TaskView {
            id: &row.id,
            title: &row.title,
            child: row.parent.is_some(),
            completed: row.is_completed(),
            segments: segments.collect(),
            crashed_at_ms: row.marked(Mark::Crashed),
            adopted_at_ms: row.marked(Mark::Adopted),
            restarted_at_ms: row.marked(Mark::Again),
        }
    }
}
