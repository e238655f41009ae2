//! The screen of `top`: a header, a list in sections, and a line of keys.

use banksman_core::{Status, TaskId};
use banksman_engine::why::Life;
use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style as Paint};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::Top;
use crate::board::{Board, Ended};
use crate::format;
use crate::printer::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};
use crate::table;
use crate::terminal::{self, Style};
use crate::views::spend::{self, SpendView};

/// A line of the list; a line without a subject is a heading.
pub(super) struct Item {
    pub(super) text: String,
    pub(super) subject: Option<Subject>,
}

/// The object that keys act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) task: Option<TaskId>,
    pub(super) decision: Option<String>,
    pub(super) title: String,
}

impl Subject {
    fn task(id: &TaskId, title: &str) -> Subject {
        Subject { task: Some(id.clone()), decision: None, title: title.to_owned() }
    }
}

const HELP: &str = "\
Keys of banksman top

  ↑ ↓ j k      select a line          PgUp PgDn Home End
  Enter  l     show its log           w   explain its status
  o            open its workspace     d   answer open decisions
  t            take it                r   retry it
  c            cancel it (asks first) n   nudge it
  /            show only lines that contain a text; Esc shows all
  ?            this page              q   leave";

pub(super) fn draw(top: &mut Top, frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let body = height.saturating_sub(3);
    let mut lines = vec![header(&top.board, top.is_running, width)];
    let log = top.pane.as_ref().and_then(|pane| pane.log_of.as_ref());
    lines.push(
        log.map_or_else(String::new, |of| terminal::cut(&format!("{DIM}log of{DIM:#} {}", terminal::one_line(&of.title)), width)),
    );
    match &mut top.pane {
        Some(pane) => lines.extend(pane.lines(width, body)),
        None => lines.extend(list(top, width, body)),
    }
    lines.resize(height.saturating_sub(1), String::new());
    lines.push(footer(top, width));
    let lines: Vec<Line<'_>> = lines.iter().map(|line| painted(line)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

pub(super) fn help() -> String {
    HELP.to_owned()
}

/// `shop  3/4 slots  12 of 40 done  1 needs you  2 failed  $1.20 today  up 3 h 12 min`.
fn header(board: &Board, is_running: bool, width: usize) -> String {
    let overview = &board.overview;
    let count = |status: Status| overview.counts.by_status.get(&status).copied().unwrap_or_default();
    let all: u64 = overview.counts.by_status.values().sum();
    let slots = match overview.limits.runs {
        0 => format!("{} running", overview.used),
        limit => format!("{}/{limit} slots", overview.used),
    };
    let mut parts = vec![format!("{BOLD}{}{BOLD:#}", terminal::one_line(&board.project)), slots];
    parts.push(format!("{GREEN}{} of {all} done{GREEN:#}", count(Status::Completed)));
    let asked = overview.decisions;
    parts.extend((asked > 0).then(|| format!("{RED}{asked} {} you{RED:#}", if asked == 1 { "needs" } else { "need" })));
    let failed = count(Status::Failed);
    parts.extend((failed > 0).then(|| format!("{RED}{failed} failed{RED:#}")));
    let spent: Vec<SpendView> = overview.spend.iter().map(Into::into).collect();
    parts.extend(spend::price(&spent).map(|price| format!("{price} today")));
    let paused = overview.pause.as_ref();
    parts.extend(paused.map(|pause| format!("{YELLOW}paused by {}{YELLOW:#}", terminal::one_line(&pause.by))));
    let runner = overview
        .runners
        .iter()
        .filter(|manned| manned.life != Life::Gone)
        .map(|manned| &manned.runner)
        .min_by_key(|runner| runner.started.lease);
    parts.push(match runner {
        Some(runner) => format!("{DIM}up {}{DIM:#}", format::span(board.now().lease - runner.started.lease)),
        None if is_running => format!("{DIM}starting{DIM:#}"),
        None => format!("{YELLOW}no runner: banksman run{YELLOW:#}"),
    });
    // The uptime is the least important part.
    if runner.is_some() && terminal::width(&parts.join("  ")) > width {
        parts.pop();
    }
    terminal::cut(&parts.join("  "), width)
}

fn footer(top: &Top, width: usize) -> String {
    let text = match (&top.confirm, &top.message, &top.typing, &top.pane) {
        (Some(subject), ..) => {
            let title = terminal::cut(&terminal::one_line(&subject.title), width.saturating_sub(24));
            format!("{YELLOW}cancel {title}? y/n{YELLOW:#}")
        }
        (_, _, Some(text), _) => format!("/{}", terminal::one_line(text)),
        (_, Some(message), ..) => terminal::one_line(message),
        (_, _, _, Some(_)) => format!("{DIM}Esc back  ↑↓ scroll  q leave{DIM:#}"),
        _ => {
            let filter = top.filter.as_ref().map_or_else(String::new, |text| format!("/{}  Esc all  ", terminal::one_line(text)));
            format!("{filter}{DIM}{}{DIM:#}", keys(width.saturating_sub(terminal::width(&filter))))
        }
    };
    terminal::cut(&text, width)
}

/// The keys that fit, and always the last two.
fn keys(width: usize) -> String {
    const LAST: [&str; 2] = ["? help", "q leave"];
    let all = ["Enter log", "w why", "d decide", "r retry", "c cancel", "o open", "t take", "n nudge", "/ filter"];
    let line = |number: usize| all[..number].iter().chain(&LAST).copied().collect::<Vec<_>>().join("  ");
    (0..=all.len()).rev().map(line).find(|line| terminal::width(line) <= width).unwrap_or_default()
}

/// The part of the list around the selected line.
fn list(top: &mut Top, width: usize, height: usize) -> Vec<String> {
    let items = items(top, width.saturating_sub(2));
    let subjects: Vec<Subject> = items.iter().filter_map(|item| item.subject.clone()).collect();
    // The selection follows its subject when the list changes, so that a key does not act on another one.
    let chosen = top.subjects.get(top.selected).or(top.subjects.last());
    let nearest = |at: &usize| at.abs_diff(top.selected);
    let same = (0..subjects.len()).filter(|at| Some(&subjects[*at]) == chosen).min_by_key(nearest);
    top.selected = same.unwrap_or(top.selected).min(subjects.len().saturating_sub(1));
    top.subjects = subjects;
    let mut number = 0;
    let mut at = 0;
    let mut lines = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let is_selected = item.subject.is_some() && number == top.selected;
        number += usize::from(item.subject.is_some());
        if is_selected {
            at = index;
        }
        lines.push(format!("{}{}", if is_selected { "▸ " } else { "  " }, item.text));
    }
    if lines.is_empty() {
        let text = match &top.filter {
            Some(filter) => format!("no line contains {}; Esc shows all", terminal::one_line(filter)),
            None => "nothing in progress: banksman tasks add TITLE --run CMD".to_owned(),
        };
        lines.push(terminal::cut(&format!("  {DIM}{text}{DIM:#}"), width));
    }
    let from = at.saturating_sub(height.saturating_sub(2)).min(lines.len().saturating_sub(height));
    lines.into_iter().skip(from).take(height).collect()
}

/// All lines, in sections.
fn items(top: &Top, width: usize) -> Vec<Item> {
    let board = &top.board;
    let parts = [
        running(top, width),
        needs_you(board, width),
        landing(board, width),
        blocked(board, width),
        waiting(board, width),
        next(board, width),
        ended(board, width),
    ];
    let filter = top.filter.as_ref().map(|text| text.to_lowercase());
    let mut items = Vec::new();
    for part in parts {
        let is_shown = |item: &Item| {
            let text = terminal::plain(&item.text).to_lowercase();
            item.subject.is_none() || filter.as_ref().is_none_or(|filter| text.contains(filter))
        };
        let part: Vec<Item> = part.into_iter().filter(is_shown).collect();
        if part.iter().any(|item| item.subject.is_some()) {
            if !items.is_empty() {
                items.push(Item { text: String::new(), subject: None });
            }
            items.extend(part);
        }
    }
    items
}

/// A table whose header is the heading of a section.
fn part(columns: &[&str], rows: Vec<(Subject, Vec<String>)>, width: usize) -> Vec<Item> {
    let (subjects, cells): (Vec<Subject>, Vec<Vec<String>>) = rows.into_iter().unzip();
    let lines = table::lines(columns, cells, width);
    let subjects = std::iter::once(None).chain(subjects.into_iter().map(Some));
    lines.into_iter().zip(subjects).map(|(text, subject)| Item { text, subject }).collect()
}

fn running(top: &Top, width: usize) -> Vec<Item> {
    let board = &top.board;
    let now = board.now();
    let row = |live: &crate::board::Live| {
        let title = live.run.title.as_str();
        let state = match (&live.run.attended.silence, live.run.attended.life) {
            (Some(_), _) => format!("{RED}its keeper does not answer{RED:#}"),
            (None, Life::Gone) => format!("{YELLOW}no runner{YELLOW:#}"),
            _ if live.is_stuck => format!("{YELLOW}no activity{YELLOW:#}"),
            _ => String::new(),
        };
        let activity = if state.is_empty() { format!("{DIM}{}{DIM:#}", live.activity) } else { state };
        let cells = vec![
            format!("{CYAN}{}{CYAN:#}", terminal::one_line(title)),
            live.agent.clone().or_else(|| live.phase.clone()).unwrap_or_default(),
            top.changes.of(&live.run.run.task).unwrap_or_default().to_owned(),
            format::span(now.lease - live.run.run.started.lease),
            if live.run.run.attempt > 0 { format!("attempt {}", live.run.run.attempt + 1) } else { String::new() },
            activity,
        ];
        (Subject::task(&live.run.run.task, title), cells)
    };
    let title = format!("RUNNING {}~", board.live.len());
    part(&[&title, "AGENT OR PHASE~?", "CHANGES?", "FOR>", "??", "ACTIVITY~"], board.live.iter().map(row).collect(), width)
}

fn needs_you(board: &Board, width: usize) -> Vec<Item> {
    let row = |decision: &banksman_core::Decision| {
        let subject = Subject {
            task: board.task_of(decision).cloned(),
            decision: Some(decision.id.to_string()),
            title: decision.question.text.to_string(),
        };
        let question = format!("{RED}{}{RED:#}", terminal::one_line(&decision.question.text));
        (subject, vec![question, decision.id.to_string(), format::since(decision.raised)])
    };
    let title = format!("NEEDS YOU {}~", board.decisions.len());
    part(&[&title, "?", "FOR>"], board.decisions.iter().map(row).collect(), width)
}

fn landing(board: &Board, width: usize) -> Vec<Item> {
    let row = |entry: &crate::board::Landing| {
        let subject = Subject { task: entry.task.clone(), decision: None, title: entry.title.clone() };
        (subject, vec![terminal::one_line(&entry.title), entry.state.clone(), entry.target.clone()])
    };
    let title = format!("LANDING {}~", board.landings.len());
    part(&[&title, "STATE~", "TARGET~?"], board.landings.iter().map(row).collect(), width)
}

fn blocked(board: &Board, width: usize) -> Vec<Item> {
    let row = |blocked: &crate::board::Blocked| {
        let title = format!("{YELLOW}{}{YELLOW:#}", terminal::one_line(&blocked.title));
        (Subject::task(&blocked.task, &blocked.title), vec![title, terminal::one_line(&blocked.by)])
    };
    let title = format!("BLOCKED {}~", board.blocked_number());
    part(&[&title, "BY~"], board.blocked.iter().map(row).collect(), width)
}

fn waiting(board: &Board, width: usize) -> Vec<Item> {
    let row = |waiting: &crate::board::Blocked| {
        (Subject::task(&waiting.task, &waiting.title), vec![terminal::one_line(&waiting.title), terminal::one_line(&waiting.by)])
    };
    part(&["WAITING~", "FOR~"], board.waiting.iter().map(row).collect(), width)
}

fn next(board: &Board, width: usize) -> Vec<Item> {
    let row = |(task, title): &(TaskId, String)| (Subject::task(task, title), vec![terminal::one_line(title)]);
    part(&["NEXT~"], board.next.iter().map(row).collect(), width)
}

fn ended(board: &Board, width: usize) -> Vec<Item> {
    let row = |ended: &Ended| {
        let style = match ended.status {
            Status::Completed => GREEN,
            Status::Failed => RED,
            _ => Style::PLAIN,
        };
        let sign = match ended.status {
            Status::Completed => '✓',
            Status::Cancelled | Status::Skipped => '-',
            _ => '✗',
        };
        let title = format!("{style}{sign}{style:#} {}", terminal::one_line(&ended.title));
        let how = ended.error.clone().unwrap_or_else(|| ended.status.to_string());
        (Subject::task(&ended.task, &ended.title), vec![title, format::ago(ended.at), format!("{DIM}{how}{DIM:#}")])
    };
    part(&["JUST ENDED~", "WHEN>", "~?"], board.ended.iter().map(row).collect(), width)
}

/// Converts a line with our styles into one with the library's styles.
fn painted(text: &str) -> Line<'static> {
    let is_selected = text.starts_with("▸ ");
    let spans = terminal::styled(text).into_iter().map(|(style, text)| {
        let paint = match style {
            "1" => Paint::new().add_modifier(Modifier::BOLD),
            "2" => Paint::new().add_modifier(Modifier::DIM),
            "1;31" => Paint::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            "32" => Paint::new().fg(Color::Green),
            "33" => Paint::new().fg(Color::Yellow),
            "36" => Paint::new().fg(Color::Cyan),
            _ => Paint::new(),
        };
        Span::styled(text, if is_selected { paint.add_modifier(Modifier::BOLD) } else { paint })
    });
    Line::from(spans.collect::<Vec<_>>())
}
