//! A timeline as text: one row per task, fitted to the width, readable without colours.

use std::collections::BTreeSet;

use banksman_core::{Span, TaskId};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::rows::{End, Mark, Row, State, Timeline};
use crate::format;
use crate::printer::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};
use crate::terminal::{self, Style};

/// The minimum width of the names, and the width of the results behind the bars.
const NAMES: usize = 10;
const RESULT: usize = 9;

/// The number of samples per column.
const PARTS: i64 = 8;

const PLAIN: Style = Style::PLAIN;

type Cell = (char, Style);

/// The labels of the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Time since the start of the timeline.
    Elapsed,
    /// Time of day.
    Clock,
}

/// The steps of an axis, in seconds.
const STEPS: [i64; 18] =
    [1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

struct Picture<'a> {
    timeline: &'a Timeline,
    /// The tasks with a row.
    shown: BTreeSet<TaskId>,
    names: usize,
    bars: usize,
}

/// Draws the picture in this many columns.
pub(crate) fn draw(timeline: &Timeline, axis: Axis, width: usize) -> String {
    let shown = timeline.ids();
    let longest = timeline.all_rows().map(|row| terminal::width(&name(row, &shown)) + 4).max().unwrap_or(0);
    let names = longest.clamp(NAMES, (width / 3).max(NAMES));
    let picture = Picture { timeline, shown, names, bars: width.saturating_sub(2 + names + RESULT).max(10) };
    picture.draw(axis, width)
}

impl Picture<'_> {
    fn draw(&self, axis: Axis, width: usize) -> String {
        let timeline = self.timeline;
        let mut lines = vec![format!("  {}{DIM}{}{DIM:#}", " ".repeat(self.names), self.axis(axis)).trim_end().to_owned()];
        for (name, from, to) in &timeline.runners {
            let cells = self.cells(|time| if (*from..*to).contains(&time) { ('━', CYAN) } else { (' ', PLAIN) });
            lines.push(self.line(name, &cells, ""));
        }
        for section in timeline.sections.iter().filter(|section| !section.rows.is_empty()) {
            if !section.name.is_empty() {
                let note = if section.is_exclusive { " (exclusive)" } else { "" };
                let blank = self.cells(|_| (' ', PLAIN));
                let name = terminal::cut(&terminal::one_line(&section.name), self.names + self.bars - note.len());
                let wide = terminal::width(&name) + note.len();
                let rest = &blank[wide.saturating_sub(self.names)..];
                let padding = " ".repeat(self.names.saturating_sub(wide));
                lines.push(format!("  {BOLD}{name}{BOLD:#}{DIM}{note}{DIM:#}{padding}{}", paint(rest)).trim_end().to_owned());
            }
            lines.extend(section.rows.iter().map(|row| self.task(row)));
        }
        if timeline.capacity > 0 {
            let steps: Vec<char> = " ▁▂▃▄▅▆▇█".chars().collect();
            let step = |used: u32| steps[(used as usize * 8).checked_div(timeline.capacity as usize).unwrap_or(0).min(8)];
            let used = self.cells(|time| (step(timeline.slots_at(time)), CYAN));
            let label = if timeline.slots.is_empty() { "at work" } else { "slots" };
            lines.push(self.line(label, &used, &format!("{DIM}of {}{DIM:#}", timeline.capacity)));
        }
        lines.extend(self.kill(width));
        lines.push(legend(timeline, width));
        lines.join("\n")
    }

    /// The label below the mark of the kill.
    fn kill(&self, width: usize) -> Option<String> {
        let kill = self.timeline.kill?;
        let text = format!("kill -9 of the runner at {:.1} s", seconds(kill));
        let place = self.names + self.column(kill);
        let (text, place) = match place + text.len() + 4 <= width {
            true => (format!("╵ {text}"), place),
            false => (format!("{text} ╵"), (place).saturating_sub(text.len() + 1)),
        };
        Some(format!("  {}{RED}{text}{RED:#}", " ".repeat(place)))
    }

    fn task(&self, row: &Row) -> String {
        let mut cells = self.cells(|time| row.at(time).map_or((' ', PLAIN), cell));
        // A run too short to dominate a column is drawn if the column shows no other run.
        for (from, _, state) in row.segments().filter(|(.., state)| state.is_at_work()) {
            let drawn = &mut cells[self.column(from)];
            if !matches!(drawn.0, '█' | '▒' | '░' | '▓' | '│') {
                *drawn = cell(state);
            }
        }
        for (at, mark) in &row.marks {
            cells[self.column(*at)] = match mark {
                Mark::Crashed => ('✗', RED),
                Mark::Adopted => ('◆', YELLOW),
                Mark::Again => ('↻', YELLOW),
                Mark::Stopped => ('■', YELLOW),
            };
        }
        let result = match row.end {
            Some(End::Completed) => format!("{GREEN}✓{GREEN:#}"),
            Some(End::Failed(_)) => format!("{RED}✗{RED:#}"),
            Some(End::Cancelled) => format!("{DIM}-{DIM:#}"),
            None => format!("{CYAN}…{CYAN:#}"),
        };
        self.line(&format!("  {}", name(row, &self.shown)), &cells, &format!("{result} {DIM}{}{DIM:#}", took(row.worked())))
    }

    /// The state with the most samples in each column, with the mark of the kill.
    fn cells(&self, cell: impl Fn(i64) -> Cell) -> Vec<Cell> {
        let (length, bars) = (self.timeline.length, self.bars as i64);
        let time = |column: usize, part: i64| (column as i64 * PARTS + part) * length / (bars * PARTS);
        let longest = |column: usize| {
            let seen: Vec<Cell> = (0..PARTS).map(|part| cell(time(column, part))).collect();
            let share = |cell: &&Cell| seen.iter().filter(|other| other == cell).count();
            seen.iter().max_by_key(share).copied().unwrap_or((' ', PLAIN))
        };
        let mut cells: Vec<Cell> = (0..self.bars).map(longest).collect();
        if let Some(kill) = self.timeline.kill {
            cells[self.column(kill)] = ('│', RED);
        }
        cells
    }

    fn column(&self, time: i64) -> usize {
        usize::try_from(time * self.bars as i64 / self.timeline.length).unwrap_or(0).min(self.bars - 1)
    }

    /// Labels at round times, as many as fit.
    fn axis(&self, axis: Axis) -> String {
        let mut text = String::new();
        let place = |at: i64| usize::try_from(at * self.bars as i64 / self.timeline.length).unwrap_or(self.bars);
        for (at, label) in ticks(self.timeline, axis, self.bars) {
            let place = place(at);
            if place + label.len() > self.bars {
                break;
            }
            if place > text.len() || text.is_empty() {
                text = format!("{text:place$}{label}");
            }
        }
        text
    }

    fn line(&self, name: &str, cells: &[Cell], rest: &str) -> String {
        let name = terminal::cut(name, self.names.saturating_sub(1));
        let padding = " ".repeat(self.names.saturating_sub(terminal::width(&name)));
        format!("  {name}{padding}{} {rest}", paint(cells)).trim_end().to_owned()
    }
}

/// The times and labels of an axis with this many columns.
pub(crate) fn ticks(timeline: &Timeline, axis: Axis, columns: usize) -> Vec<(i64, String)> {
    let (length, columns) = (timeline.length, columns as i64);
    let zone = TimeZone::system();
    let begin = Timestamp::from_millisecond(timeline.begin.0).unwrap_or_default();
    // A clock axis has round times, wherever the picture starts.
    let shift = match axis {
        Axis::Elapsed => 0,
        Axis::Clock => timeline.begin.0 + i64::from(zone.to_offset(begin).seconds()) * 1_000,
    };
    let label = |at: i64, step: i64| match axis {
        Axis::Elapsed => elapsed(at),
        Axis::Clock => {
            let time = begin.checked_add(SignedDuration::from_millis(at)).unwrap_or(begin).to_zoned(zone.clone());
            let form = match step {
                ..60 => "%H:%M:%S",
                60..86_400 => "%H:%M",
                _ => "%b %d",
            };
            time.strftime(form).to_string()
        }
    };
    let has_room = |step: &i64| step * 1_000 * columns / length >= label(length, *step).len() as i64 + 2;
    let step = STEPS.into_iter().find(has_room).unwrap_or(*STEPS.last().expect("there are steps"));
    let first = (-shift).rem_euclid(step * 1_000);
    (0..).map(|number| first + number * step * 1_000).take_while(|at| *at <= length).map(|at| (at, label(at, step))).collect()
}

/// `0`, `5 s`, `2 min`, `3 h`.
fn elapsed(ms: i64) -> String {
    match ms / 1_000 {
        0 => "0".into(),
        seconds if seconds % 3_600 == 0 => format!("{} h", seconds / 3_600),
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// `42 ms`, `0.6 s`; a minute and more as `3 min`.
pub(crate) fn took(ms: i64) -> String {
    if (100..60_000).contains(&ms) { format!("{:.1} s", seconds(ms)) } else { format::span(Span::from_ms(ms)) }
}

/// The title of a row, marked as a child if its parent has a row.
pub(crate) fn name(row: &Row, shown: &BTreeSet<TaskId>) -> String {
    let title = terminal::one_line(&row.title);
    if row.parent.as_ref().is_some_and(|parent| shown.contains(parent)) { format!("└ {title}") } else { title }
}

fn cell(state: State) -> Cell {
    match state {
        State::Waits => ('·', DIM),
        State::Ready => ('-', YELLOW),
        State::Runs => ('█', GREEN),
        State::Alone => ('▒', YELLOW),
        State::Lends => ('░', GREEN),
        State::Crashes => ('█', RED),
        State::Stuck => ('▓', YELLOW),
        State::AwaitingDecision => ('?', RED),
        State::Lands => ('≈', CYAN),
        State::Over => (' ', PLAIN),
    }
}

/// Adjacent cells with the same style share an escape sequence.
fn paint(cells: &[Cell]) -> String {
    let paint = |group: &[Cell]| {
        let (text, style) = (group.iter().map(|(letter, _)| *letter).collect::<String>(), group[0].1);
        format!("{style}{text}{style:#}")
    };
    cells.chunk_by(|a, b| a.1 == b.1).map(paint).collect()
}

/// The meaning of the signs in the picture.
fn legend(timeline: &Timeline, width: usize) -> String {
    let has_state = |state: State| timeline.all_rows().any(|row| row.changes.iter().any(|change| change.1 == state));
    let has_mark = |mark: Mark| timeline.all_rows().any(|row| row.marks.iter().any(|(_, other)| *other == mark));
    let states = [
        (State::Waits, "waits for others"),
        (State::Ready, "waits for a slot or a lock"),
        (State::Runs, "runs"),
        (State::Lends, "lends its slot to a child"),
        (State::Alone, "runs without a runner"),
        (State::Stuck, "shows no activity"),
        (State::AwaitingDecision, "waits for a decision"),
        (State::Lands, "lands"),
    ];
    let marks = [
        (Mark::Crashed, ('✗', RED), "fails"),
        (Mark::Adopted, ('◆', YELLOW), "is adopted by a runner"),
        (Mark::Again, ('↻', YELLOW), "is restarted"),
        (Mark::Stopped, ('■', YELLOW), "is stopped by a person"),
    ];
    let states = states.into_iter().filter(|(state, _)| has_state(*state)).map(|(state, words)| (cell(state), words));
    let marks = marks.into_iter().filter(|(mark, ..)| has_mark(*mark)).map(|(_, cell, words)| (cell, words));
    let mut lines: Vec<String> = vec![String::new()];
    for ((letter, style), words) in states.chain(marks) {
        let item = format!("{style}{letter}{style:#} {DIM}{words}{DIM:#}");
        let last = lines.last_mut().expect("there is one");
        match terminal::width(last) + terminal::width(&item) + 3 {
            _ if last.is_empty() => *last = format!("  {item}"),
            wide if wide <= width => last.push_str(&format!("   {item}")),
            _ => lines.push(format!("  {item}")),
        }
    }
    format!("\n{}", lines.join("\n"))
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}
