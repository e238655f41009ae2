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

/// Remove old events from the log; the current state is kept.
///
/// Locks, tasks and sections are not changed, and `doctor` still checks them against the log. The earlier history is lost: `events`
/// no longer shows it, and request ids of that time are forgotten. Events that workers, routes or blocked pipelines have not
/// processed yet are kept, with all later ones. The store stays in use. The command can be interrupted at any time, and
/// continued later.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman events compact\n  banksman events compact --keep 30d --dry-run\n  banksman events compact --keep-events 10000"
)]
pub(super) struct Compact {
    /// Keep events younger than this
    #[arg(long, value_name = "DURATION", default_value = "7d")]
    keep: Dur,
    /// Keep the last N events, whatever their age
    #[arg(long, value_name = "N", conflicts_with = "keep", value_parser = clap::value_parser!(u32).range(1..))]
    keep_events: Option<u32>,
    /// Only show what would be removed
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
        let would = if self.dry_run { "would remove" } else { "removed" };
        let mut human = match done.events {
            0 => "no event is old enough to be removed".to_owned(),
            1 => format!("{would} {BOLD}1{BOLD:#} event from the log"),
            count => format!("{would} {BOLD}{count}{BOLD:#} events from the log"),
        };
        if let Some(first) = first {
            let oldest = format::local(first.wall);
            human.push_str(&match left {
                1 => format!("; 1 event is left, from {oldest}"),
                left => format!("; {left} events are left, the oldest from {oldest}"),
            });
        }
        if messages > 0 {
            let noun = if messages == 1 { "message" } else { "messages" };
            human.push_str(&format!("\nremoved {BOLD}{messages}{BOLD:#} {noun} older than bus.keep"));
        }
        if let Some(unheard) = done.unheard {
            human.push_str(&format!(
                "\nevent {unheard} and all later events are kept: a worker, a route or a blocked pipeline has not processed it yet (banksman run does that)"
            ));
        }
        human.push_str(&format!("\n{DIM}{}{DIM:#}", size(after)));
        context.printer.result(&view, human)
    }
}

fn compact(context: &Context, store: &mut Store, keep: Keep) -> Result<Compacted, Failure> {
    let stops = Stops::install().map_err(|error| Failure::system("install signal handlers", error))?;
    let printer = &context.printer;
    let done = store.compact(keep, |so_far| {
        stops.obey();
        if printer.is_watched() {
            let upto = format::local(so_far.mark.wall);
            printer.rewrite(&format!("events removed: {}, up to {upto} …", so_far.events));
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
        Some(free) => format!("the store has {}, {} of it free for new data", bytes(size.bytes), bytes(free)),
        None => format!("the log has {} in the database, which reuses freed space", bytes(size.bytes)),
    }
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}
