//! The output of an agent program for people: one line for each text and action.

use crate::event::Event;
use crate::family::Family;

/// The longest line of a tool's output, in characters.
const OUTPUT: usize = 200;

/// How many lines of a tool's output are shown.
const OUTPUT_LINES: usize = 5;

/// Renders a line of the log. Appends nothing if the line is for machines only.
pub fn line(family: Family, line: &[u8], into: &mut String) {
    family.parse(line, &mut |event| event_line(&event, into));
}

fn event_line(event: &Event<'_>, into: &mut String) {
    match event {
        Event::Session { .. } | Event::Answer { .. } | Event::NotLimited | Event::LimitEnds(_) | Event::Opaque(_) => {}
        Event::StepStarted | Event::StepEnded { .. } | Event::Used { .. } => {}
        Event::Text(text) => put(into, "", text.trim_end(), usize::MAX, usize::MAX),
        Event::CallStarted { tool, detail, .. } if detail.is_empty() => put(into, "> ", tool, 1, OUTPUT),
        Event::CallStarted { tool, detail, .. } => put(into, "> ", &format!("{tool}: {detail}"), 3, OUTPUT),
        Event::CallEnded { failed, output, .. } => {
            let mark = if *failed { "  ! " } else { "  | " };
            put(into, mark, output.trim_end(), OUTPUT_LINES, OUTPUT);
        }
        Event::Cost { micros, is_total: true } => put(into, "", &format!("cost: ${:.4}", dollars(*micros)), 1, OUTPUT),
        Event::Cost { .. } => {}
        Event::Limited(limit) => put(into, "! ", &format!("limit reached: {}", limit.kind), 1, OUTPUT),
        Event::Retrying { text, .. } => put(into, "! ", &format!("retrying: {text}"), 1, OUTPUT),
        Event::Denied(tools) => put(into, "! ", &format!("not permitted: {}", tools.join(", ")), 1, OUTPUT),
        Event::Result { is_error: true, text, .. } => put(into, "! ", &format!("error: {text}"), 3, OUTPUT),
        // The text of the result repeats the last text.
        Event::Result { .. } => put(into, "", "done", 1, OUTPUT),
        Event::Plain(text) => put(into, "", text, 1, usize::MAX),
    }
}

fn dollars(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn put(into: &mut String, mark: &str, text: &str, lines: usize, width: usize) {
    let count = text.lines().count();
    for line in text.lines().take(lines) {
        let cut: String = line.chars().take(width).collect();
        into.push_str(mark);
        into.push_str(&cut);
        into.push('\n');
    }
    if count > lines {
        into.push_str(mark);
        into.push_str(&format!("… {} more lines\n", count - lines));
    }
}
