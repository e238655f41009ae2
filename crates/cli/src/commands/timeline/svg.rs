//! A timeline as an SVG image, for a pull request or a page.

use std::fmt::Write;

use super::picture::{Axis, name, ticks, took};
use super::rows::{End, Mark, Row, State, Timeline};
use crate::terminal;

const WIDTH: usize = 1_000;
const NAMES: usize = 260;
const BARS: usize = 640;
const LINE: usize = 22;
const TOP: usize = 64;

/// The image as a self-contained file.
pub(crate) fn draw(timeline: &Timeline, title: &str) -> String {
    let sections = timeline.sections.iter().filter(|section| !section.rows.is_empty());
    let lines: usize = sections.clone().map(|section| section.rows.len() + usize::from(!section.name.is_empty())).sum();
    let height = TOP + lines * LINE + 40;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\" fill=\"#1f2328\">{}</text>\n",
        escaped(title)
    );
    for (at, label) in ticks(timeline, Axis::Clock, 80) {
        let x = place(timeline, at);
        add(
            &mut svg,
            format_args!("<line x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{}\" stroke=\"#eaeef2\"/>", TOP - 10, height - 30),
        );
        add(&mut svg, format_args!("<text x=\"{x}\" y=\"{}\" fill=\"#656d76\" font-size=\"11\">{label}</text>", TOP - 16));
    }
    let shown = timeline.ids();
    let mut y = TOP;
    for section in sections {
        if !section.name.is_empty() {
            let name = escaped(&section.name);
            add(&mut svg, format_args!("<text x=\"16\" y=\"{}\" font-weight=\"600\" fill=\"#1f2328\">{name}</text>", y + 15));
            y += LINE;
        }
        for row in &section.rows {
            task(&mut svg, timeline, row, &name(row, &shown), y);
            y += LINE;
        }
    }
    legend(&mut svg, y + 24);
    svg.push_str("</svg>\n");
    svg
}

fn task(svg: &mut String, timeline: &Timeline, row: &Row, name: &str, y: usize) {
    let label = escaped(&terminal::cut(name, 34));
    add(svg, format_args!("<text x=\"24\" y=\"{}\" fill=\"#1f2328\">{label}</text>", y + 15));
    for (from, to, state) in row.segments() {
        let Some(colour) = colour(state) else { continue };
        let (x, end) = (place(timeline, from), place(timeline, to));
        let wide = end.saturating_sub(x).max(1);
        let words = state.word().replace('_', " ");
        let (top, high) = if state.is_at_work() { (y + 4, LINE - 8) } else { (y + 9, 4) };
        add(
            svg,
            format_args!(
                "<rect x=\"{x}\" y=\"{top}\" width=\"{wide}\" height=\"{high}\" rx=\"2\" fill=\"{colour}\"><title>{} {words} {}</title></rect>",
                escaped(&row.title),
                took(to - from)
            ),
        );
    }
    for (at, mark) in &row.marks {
        let (letter, colour) = match mark {
            Mark::Crashed => ('✗', "#cf222e"),
            Mark::Adopted => ('◆', "#9a6700"),
            Mark::Again => ('↻', "#9a6700"),
            Mark::Stopped => ('■', "#9a6700"),
        };
        let x = place(timeline, *at);
        add(svg, format_args!("<text x=\"{x}\" y=\"{}\" fill=\"{colour}\" text-anchor=\"middle\">{letter}</text>", y + 15));
    }
    let (sign, colour) = match row.end {
        Some(End::Completed) => ('✓', "#1a7f37"),
        Some(End::Failed(_)) => ('✗', "#cf222e"),
        Some(End::Cancelled) => ('–', "#656d76"),
        None => ('…', "#0969da"),
    };
    let x = NAMES + BARS + 12;
    let took = took(row.worked());
    add(svg, format_args!("<text x=\"{x}\" y=\"{}\" fill=\"{colour}\">{sign} {took}</text>", y + 15));
}

fn legend(svg: &mut String, y: usize) {
    let states = [
        (State::Runs, "runs"),
        (State::Crashes, "fails"),
        (State::Stuck, "no activity"),
        (State::AwaitingDecision, "waits for a decision"),
        (State::Lands, "lands"),
        (State::Ready, "waits for a slot or a lock"),
        (State::Waits, "waits for others"),
    ];
    let mut x = 24;
    for (state, words) in states {
        let colour = colour(state).unwrap_or("none");
        add(svg, format_args!("<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{colour}\"/>", y - 9));
        add(svg, format_args!("<text x=\"{}\" y=\"{y}\" fill=\"#656d76\" font-size=\"11\">{words}</text>", x + 15));
        x += 30 + words.len() * 6;
    }
}

fn colour(state: State) -> Option<&'static str> {
    match state {
        State::Waits => Some("#d0d7de"),
        State::Ready => Some("#eac54f"),
        State::Runs => Some("#2da44e"),
        State::Alone => Some("#bf8700"),
        State::Lends => Some("#aceebb"),
        State::Crashes => Some("#fa4549"),
        State::Stuck => Some("#fb8f44"),
        State::AwaitingDecision => Some("#a475f9"),
        State::Lands => Some("#54aeff"),
        State::Over => None,
    }
}

fn place(timeline: &Timeline, at: i64) -> usize {
    NAMES + usize::try_from(at * BARS as i64 / timeline.length).unwrap_or(0).min(BARS)
}

fn add(svg: &mut String, element: std::fmt::Arguments<'_>) {
    writeln!(svg, "{element}").expect("a string takes everything");
}

/// A text escaped for XML, without control characters.
pub(crate) fn escaped(text: &str) -> String {
    terminal::plain(&terminal::one_line(text))
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
