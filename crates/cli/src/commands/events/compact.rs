use banksman_core::Seq;
use banksman_store::{Compacted, EventFilter, Keep, Size, Store};
use clap::Args;
use serde::Serialize;

use crate::commands::ExitResult;
use crate::commands::resources::Dur;
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM};
use crate::signals::Stops;
use crate::views::Time;

/// Remove old events from the log, and keep the state that they led to.
///
/// What is held, the tasks and the sections stay as they are, and `doctor` still checks them against the log. What is lost
/// is the history before: `events` no longer shows it, and request ids of that time are forgotten. What workers, routes and
/// blocked pipelines have yet to hear of stays, with all that came after it. Others may work meanwhile. It may be interrupted at any moment; the next one goes on from there.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman events compact\n  banksman events compact --keep 30d --dry-run\n  banksman events compact --keep-events 10000"
)]
pub(super) struct Compact {
    /// Keep the events of the last so long
    #[arg(long, value_name = "DURATION", default_value = "7d")]
    keep: Dur,
    /// Keep the last so many events, however old they are
    #[arg(long, value_name = "N", conflicts_with = "keep", value_parser = clap::value_parser!(u32).range(1..))]
    keep_events: Option<u32>,
    /// Only say what would be taken out
    #[arg(long)]
    dry_run: bool,
}

/// The JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CompactedLog {
    dry_run: bool,
    removed: u64,
    removed_messages: u64,
    compacted_through: Option<Seq>,
    kept: i64,
    unheard: Option<Seq>,
    kept_since: Option<Time>,
    size: Sizes,
}

/// In bytes.
#[derive(Serialize)]
struct Sizes {
    before: u64,
    after: u64,
    free: Option<u64>,
}

impl Compact {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let keep = self.keep_events.map_or(Keep::For(self.keep.span()), |count| Keep::Last(count.into()));
        let mut store = context.project()?.open_store()?;
        let before = store.view().size()?;
        let done = if self.dry_run { store.view().compactable(keep)? } else { compact(context, &mut store, keep)? };
        let after = store.view().size()?;
        let first = store.view().events(done.mark.through, &EventFilter::default())?.events.into_iter().next();
        let left = store.view().count_events(done.mark.through)?;
        let keep_messages = Dur(context.project()?.config().bus.keep).span();
        let messages = if self.dry_run { 0 } else { store.compact_messages(keep_messages, |_| {})? };
        let view = CompactedLog {
            dry_run: self.dry_run,
            removed: done.events,
            removed_messages: messages,
            compacted_through: (done.mark.through.0 > 0).then_some(done.mark.through),
            kept: left,
            unheard: done.unheard,
            kept_since: first.as_ref().map(|event| Time(event.wall)),
            size: Sizes { before: before.bytes, after: after.bytes, free: after.free },
        };
        let would = if self.dry_run { "would take" } else { "took" };
        let mut human = match done.events {
            0 => "no event is old enough to be taken out of the log".to_owned(),
            1 => format!("{would} {BOLD}1{BOLD:#} event out of the log"),
            count => format!("{would} {BOLD}{count}{BOLD:#} events out of the log"),
        };
        if let Some(first) = first {
            human.push_str(&format!("; the oldest that stays, of {left}, is of {}", format::rfc3339(first.wall)));
        }
        if messages > 0 {
            human.push_str(&format!("\nremoved {BOLD}{messages}{BOLD:#} messages that are older than bus.keep"));
        }
        if let Some(unheard) = done.unheard {
            human.push_str(&format!(
                "\nevent {unheard} and what came after it stay: a worker, a route or a blocked pipeline has yet to hear of it, by way of banksman run"
            ));
        }
        human.push_str(&format!("\n{DIM}{}{DIM:#}", size(after)));
        context.printer.result(&view, human)
    }
}

fn compact(context: &Context, store: &mut Store, keep: Keep) -> Result<Compacted, Failure> {
    let stops = Stops::install().map_err(|error| Failure::system("take note of signals", error))?;
    let printer = &context.printer;
    let done = store.compact(keep, |so_far| {
        stops.obey();
        if printer.is_watched() {
            let upto = format::rfc3339(so_far.mark.wall);
            printer.rewrite(&format!("took {} events out, up to {upto} …", so_far.events));
        }
    })?;
    if printer.is_watched() {
        printer.rewrite("");
    }
    Ok(done)
}

/// The SQLite file does not shrink: free space in it is reused before the file grows.
fn size(size: Size) -> String {
    match size.free {
        Some(free) => format!("the store has {}, {} of them free for what comes next", bytes(size.bytes), bytes(free)),
        None => format!("the log has {} in the database, which makes room in it by itself", bytes(size.bytes)),
    }
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}
