//! Who held a lock when, as a picture.

use banksman::store::EventRow;

use crate::printer::{DIM, GREEN};

/// How wide the picture is.
const WIDTH: i64 = 60;

/// One grant, from beginning to end.
struct Bar {
    holder: String,
    from: i64,
    to: i64,
}

fn bars(events: &[EventRow]) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for event in events {
        let holder = event.data["holder"].as_str().unwrap_or_default();
        match event.kind.as_str() {
            "lock:acquired" => bars.push(Bar { holder: holder.into(), from: event.wall.0, to: event.wall.0 }),
            "lock:released" | "lock:reclaimed" => {
                if let Some(bar) = bars.iter_mut().rev().find(|bar| bar.holder == holder) {
                    bar.to = event.wall.0;
                }
            }
            _ => {}
        }
    }
    bars
}

/// One line per holder, with a bar where it held the lock.
pub(super) fn draw(events: &[EventRow]) -> String {
    let bars = bars(events);
    let start = bars.iter().map(|bar| bar.from).min().unwrap_or(0);
    let end = bars.iter().map(|bar| bar.to).max().unwrap_or(0).max(start + 1);
    let column = |time: i64| usize::try_from((time - start) * WIDTH / (end - start)).unwrap_or(0);
    let lines = bars.iter().map(|bar| {
        let (from, to) = (column(bar.from), column(bar.to).max(column(bar.from) + 1));
        format!("   {:<9}{}{GREEN}{}{GREEN:#}", bar.holder, " ".repeat(from), "█".repeat(to - from))
    });
    let axis = format!("   {DIM}{:<9}0{:>width$.1} s{DIM:#}", "", (end - start) as f64 / 1_000.0, width = WIDTH as usize - 1);
    lines.chain([axis]).collect::<Vec<_>>().join("\n")
}

/// How many bars begin before the one before has ended.
pub(super) fn overlaps(events: &[EventRow]) -> usize {
    bars(events).windows(2).filter(|pair| pair[1].from < pair[0].to).count()
}
