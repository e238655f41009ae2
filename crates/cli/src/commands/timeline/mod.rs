//! The timeline: which task ran when. The demo and the report use it, too.

pub(crate) mod picture;
pub(crate) mod rows;
mod svg;
pub(crate) mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use banksman_core::{Span, TaskId, Wall};
use banksman_store::{EventFilter, EventRow, Key, Reader};
use clap::Args;
use serde::Serialize;

use super::{ExitResult, since};
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::DIM;
use crate::terminal;
use crate::views::{Text, Time};
use picture::Axis;
use rows::{End, Known, Row, Section, State, Timeline};
use view::TimelineView;

/// The length of a timeline without `--since`.
const DAY: i64 = 86_400_000;

/// The upper bound on events read: the newest.
const EVENTS: usize = 200_000;

/// The number of tasks drawn as text, and the width of the picture without a terminal.
const ROWS: usize = 60;
const WIDTH: usize = 100;

/// Draw a timeline of runs from the event log.
///
/// Without --since, the timeline begins with the first run of the last 24 hours.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman timeline\n  banksman timeline --since 22:00\n  banksman timeline --since 8h --svg night.svg"
)]
pub(crate) struct TimelineCommand {
    /// The beginning: a duration ago such as 8h, or a time such as 22:00 or 2026-11-15T08:00:00Z
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Write the timeline of all tasks to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Drawn<'a> {
    began_at: Time,
    svg: Option<Text<std::path::Display<'a>>>,
    timeline: TimelineView<'a>,
}

impl TimelineCommand {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let since = self.since.as_deref().map(since::parse).transpose()?;
        let project = context.project()?;
        let mut timeline = read(&mut project.reader()?, since)?;
        timeline.sections.iter_mut().for_each(|section| section.rows.retain(has_happened));
        if let Some(path) = &self.svg {
            let name = project.root().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let title = format!("{name}, {} to {}", clock(&timeline, 0), clock(&timeline, timeline.length));
            std::fs::write(path, svg::draw(&timeline, &title))
                .map_err(|error| Failure::system(&format!("write {}", path.display()), error))?;
        }
        let all = timeline.all_rows().count();
        let summary = summary(&timeline);
        let view = Drawn {
            began_at: Time(timeline.begin),
            svg: self.svg.as_deref().map(|path| Text(path.display())),
            timeline: timeline.view(),
        };
        if context.printer.json {
            return context.printer.result(&view, "");
        }
        drop(view);
        keep_newest(&mut timeline, ROWS);
        let hidden = all.saturating_sub(ROWS);
        let mut human = if all == 0 {
            format!("no runs since {}", clock(&timeline, 0))
        } else {
            picture::draw(&timeline, Axis::Clock, terminal::stdout_width().unwrap_or(WIDTH))
        };
        if hidden > 0 {
            human.push_str(&format!("\n\n{DIM}the last {ROWS} of {all} tasks; draw all: banksman timeline --svg FILE{DIM:#}"));
        }
        if all > 0 {
            human.push_str(&format!("\n\n{summary}"));
        }
        if let Some(path) = &self.svg {
            human.push_str(&format!("\n{DIM}written to {}{DIM:#}", path.display()));
        }
        context.printer.result(&(), human)
    }
}

fn clock(timeline: &Timeline, at: i64) -> String {
    format::local(Wall(timeline.begin.0 + at))
}

/// `12 tasks: 9 completed, 2 failed; 3 h 12 min of work in 58 min, at most 4 at a time`.
pub(crate) fn summary(timeline: &Timeline) -> String {
    let rows: Vec<&Row> = timeline.all_rows().collect();
    let number = |is: fn(&End) -> bool| rows.iter().filter(|row| row.end.as_ref().is_some_and(is)).count();
    let ends = [
        (number(|end| *end == End::Completed), "completed"),
        (number(|end| matches!(end, End::Failed(_))), "failed"),
        (number(|end| *end == End::Cancelled), "cancelled"),
    ];
    let ends: Vec<String> = ends.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    let ends = if ends.is_empty() { String::new() } else { format!(": {}", ends.join(", ")) };
    let worked: i64 = rows.iter().map(|row| row.worked()).sum();
    let spans = [worked, timeline.length].map(|ms| format::span(Span::from_ms(ms)));
    let most = timeline.capacity;
    format!("{}{ends}; {} of work in {}, at most {most} at a time", format::tasks(rows.len()), spans[0], spans[1])
}

/// Whether a run or a person's decision appears in the row.
fn has_happened(row: &Row) -> bool {
    row.segments().any(|(.., state)| state.is_at_work() || state == State::AwaitingDecision)
}

/// Keeps the rows with the latest changes.
fn keep_newest(timeline: &mut Timeline, number: usize) {
    let last = |row: &Row| row.changes.last().map_or(0, |change| change.0);
    let mut ends: Vec<(i64, TaskId)> = timeline.all_rows().map(|row| (last(row), row.id.clone())).collect();
    ends.sort();
    let gone: BTreeSet<TaskId> = ends.iter().rev().skip(number).map(|(_, id)| id.clone()).collect();
    timeline.sections.iter_mut().for_each(|section| section.rows.retain(|row| !gone.contains(&row.id)));
}

/// The timeline since a moment; without one, since the first run of the last day.
pub(crate) fn read(reader: &mut Reader, since: Option<Wall>) -> Result<Timeline, Failure> {
    let now = reader.view().load(&[Key::Sections].into())?;
    let filter = EventFilter { since: Some(since.unwrap_or(Wall(now.wall.0 - DAY))), ..EventFilter::default() };
    let (mut events, mut after): (Vec<EventRow>, _) = Default::default();
    loop {
        let page = reader.view().events(after, &filter)?;
        after = page.last;
        let is_relevant = |event: &EventRow| matches!(&*event.source.component, "task" | "section" | "semaphore");
        events.extend(page.events.into_iter().filter(is_relevant));
        let excess = events.len().saturating_sub(EVENTS);
        events.drain(..excess);
        if !page.more {
            break;
        }
    }
    let first_run = events.iter().find(|event| event.kind == "task:started").map(|event| event.wall);
    let begin = since.or(first_run).or(filter.since).unwrap_or(now.wall);
    let known = known(reader, &events)?;
    let mut sections: Vec<_> = now.tables.backlog.sections.into_values().collect();
    sections.sort_by_key(|section| section.position);
    let sections = sections.into_iter().map(|section| Section {
        id: Some(section.id),
        name: section.name.to_string(),
        is_exclusive: section.exclusive,
        rows: Vec::new(),
    });
    Ok(Timeline::between(begin, now.wall, &events, sections.collect(), known))
}

/// The titles, sections and parents of the tasks of these events.
fn known(reader: &mut Reader, events: &[EventRow]) -> Result<BTreeMap<TaskId, Known>, Failure> {
    let of_tasks = events.iter().filter(|event| &*event.source.component == "task");
    let ids: BTreeSet<TaskId> = of_tasks.filter_map(|event| TaskId::new(event.source.id.as_deref()?).ok()).collect();
    let ids: Vec<TaskId> = ids.into_iter().collect();
    let mut known = BTreeMap::new();
    for part in ids.chunks(1_000) {
        let tasks = reader.view().load(&part.iter().cloned().map(Key::Task).collect())?.tables.backlog.tasks;
        known.extend(tasks.into_iter().map(|(id, task)| {
            let (title, section, parent) = (task.spec.title.to_string(), task.spec.section, task.spec.parent);
            (id, Known { title, section, parent })
        }));
    }
    Ok(known)
}
