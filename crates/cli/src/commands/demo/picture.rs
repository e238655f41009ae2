//! A timeline in 80 columns: one row per task, readable without colours too.

use super::timeline::{Mark, Row, State, Timeline};
use crate::printer::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};
use crate::terminal::Style;

/// How wide the names and the bars are.
const NAMES: usize = 17;
const BARS: usize = 52;

/// How often a column is looked at.
const PARTS: i64 = 8;

const PLAIN: Style = Style::PLAIN;

type Cell = (char, Style);

/// The whole picture.
pub(super) fn draw(timeline: &Timeline) -> String {
    let mut lines = vec![format!("  {:NAMES$}{DIM}{}{DIM:#}", "", axis(timeline.length))];
    for (name, from, to) in &timeline.runners {
        let cells = cells(timeline, |time| if (*from..*to).contains(&time) { ('━', CYAN) } else { (' ', PLAIN) });
        lines.push(line(name, &cells, ""));
    }
    for section in &timeline.sections {
        let note = if section.is_exclusive { " (exclusive)" } else { "" };
        let blank = cells(timeline, |_| (' ', PLAIN));
        let skip = (section.name.len() + note.len()).saturating_sub(NAMES);
        let name = format!("{BOLD}{}{BOLD:#}{DIM}{note}{DIM:#}", section.name);
        let padding = " ".repeat(NAMES.saturating_sub(section.name.len() + note.len()));
        lines.push(format!("  {name}{padding}{}", paint(&blank[skip..]).trim_end()));
        lines.extend(section.rows.iter().map(|row| task(timeline, row)));
    }
    let steps: Vec<char> = " ▁▂▃▄▅▆▇█".chars().collect();
    let step = |used: u32| steps[(used as usize * 8).checked_div(timeline.capacity as usize).unwrap_or(0).min(8)];
    let used = cells(timeline, |time| (step(timeline.slots_at(time)), CYAN));
    lines.push(line("slots", &used, &format!("{DIM}of {}{DIM:#}", timeline.capacity)));
    if let Some(kill) = timeline.kill {
        let text = format!("kill -9 of the runner at {:.1} s", seconds(kill));
        let column = column(timeline, kill);
        let (text, place) = match NAMES + column + text.len() + 4 <= 80 {
            true => (format!("╵ {text}"), NAMES + column),
            false => (format!("{text} ╵"), NAMES + column - text.len() - 1),
        };
        lines.push(format!("  {}{RED}{text}{RED:#}", " ".repeat(place)));
    }
    lines.push(legend());
    lines.join("\n")
}

fn task(timeline: &Timeline, row: &Row) -> String {
    let mut cells = cells(timeline, |time| row.at(time).map_or((' ', PLAIN), look));
    for (at, mark) in &row.marks {
        cells[column(timeline, *at)] = match mark {
            Mark::Crashed => ('✗', RED),
            Mark::Adopted => ('◆', YELLOW),
            Mark::Again => ('↻', YELLOW),
        };
    }
    let name = if row.is_child { format!("└ {}", row.title) } else { row.title.clone() };
    let worked: i64 = row.segments().filter(|(.., state)| state.is_at_work()).map(|(from, to, _)| to - from).sum();
    let result = if row.is_completed { format!("{GREEN}✓{GREEN:#}") } else { format!("{RED}✗{RED:#}") };
    line(&format!("  {name}"), &cells, &format!("{result} {DIM}{:.1} s{DIM:#}", seconds(worked)))
}

fn look(state: State) -> Cell {
    match state {
        State::Waits => ('·', DIM),
        State::Ready => ('-', YELLOW),
        State::Runs => ('█', GREEN),
        State::Alone => ('▒', YELLOW),
        State::Lends => ('░', GREEN),
        State::Crashes => ('█', RED),
        State::Stuck => ('▓', YELLOW),
        State::AwaitingDecision => ('?', RED),
        State::Over => (' ', PLAIN),
    }
}

/// What lasted longest in each column, with the line of the kill through all.
fn cells(timeline: &Timeline, look: impl Fn(i64) -> Cell) -> Vec<Cell> {
    let time = |column: usize, part: i64| (column as i64 * PARTS + part) * timeline.length / (BARS as i64 * PARTS);
    let longest = |column: usize| {
        let seen: Vec<Cell> = (0..PARTS).map(|part| look(time(column, part))).collect();
        let share = |cell: &&Cell| seen.iter().filter(|other| other == cell).count();
        seen.iter().max_by_key(share).copied().unwrap_or((' ', PLAIN))
    };
    let mut cells: Vec<Cell> = (0..BARS).map(longest).collect();
    if let Some(kill) = timeline.kill {
        cells[column(timeline, kill)] = ('│', RED);
    }
    cells
}

fn column(timeline: &Timeline, time: i64) -> usize {
    usize::try_from(time * BARS as i64 / timeline.length).unwrap_or(0).min(BARS - 1)
}

/// A mark at every second.
fn axis(length: i64) -> String {
    let mut text = String::new();
    for second in 0.. {
        let place = usize::try_from(second * 1_000 * BARS as i64 / length).unwrap_or(BARS);
        let label = if second == 0 { "0".into() } else { format!("{second} s") };
        if place + label.len() > BARS {
            return text;
        }
        if place > text.len() || second == 0 {
            text = format!("{text:place$}{label}");
        }
    }
    text
}

fn line(name: &str, cells: &[Cell], rest: &str) -> String {
    format!("  {name:NAMES$}{} {rest}", paint(cells)).trim_end().to_owned()
}

/// Cells of the same colour are painted together.
fn paint(cells: &[Cell]) -> String {
    let paint = |group: &[Cell]| {
        let (text, style) = (group.iter().map(|(letter, _)| *letter).collect::<String>(), group[0].1);
        format!("{style}{text}{style:#}")
    };
    cells.chunk_by(|a, b| a.1 == b.1).map(paint).collect()
}

fn legend() -> String {
    let item = |(letter, style): Cell, words: &str| format!("{style}{letter}{style:#} {DIM}{words}{DIM:#}");
    let state = |state: State, words: &str| item(look(state), words);
    let first = [
        state(State::Waits, "waits for others"),
        state(State::Ready, "waits for a slot or a lock"),
        state(State::Runs, "runs"),
        item(('✗', RED), "crashes"),
    ];
    let second = [
        state(State::Lends, "lends its slot to a child"),
        state(State::Alone, "runs without a runner"),
        item(('◆', YELLOW), "is adopted by one"),
    ];
    let third = [
        item(('↻', YELLOW), "is restarted"),
        state(State::Stuck, "shows no activity"),
        state(State::AwaitingDecision, "waits for a decision"),
    ];
    format!("\n  {}\n  {}\n  {}", first.join("   "), second.join("   "), third.join("   "))
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}
