mod compact;
mod sentence;

use std::os::fd::AsFd;

use banksman_core::event::{CustomKind, Event, Source, check_kind};
use banksman_core::{Name, Seq};
use banksman_store::{EventFilter, EventRow, Mark, Reader};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::ExitResult;
use super::since;
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::{CYAN, DIM};
use crate::signals::Signals;
use crate::terminal;
use crate::views::events::EventView;
pub(crate) use sentence::Titles;

/// The largest data of an event, in bytes of JSON.
const DATA_LIMIT: usize = 64 * 1_024;

/// The number of characters shown of a text, and of structured data such as the definition of a worker: `--json` has
/// all of it.
const SHOWN: usize = 300;
const PARTS_SHOWN: usize = 80;

/// The number of events shown by default.
const LINES: usize = 20;

/// The number of events read at a time from the end of the log.
const WINDOW: i64 = 1_000;

/// Show events: the last 20, as sentences.
///
/// With --json or --since it prints all events unless --limit is given. The locks and slots of runs are left out; --raw, --kind and
/// --source show them.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Examples:\n  banksman events --follow\n  banksman events --kind lock: --since 1h\n  banksman events --source lock:deploy --json"
)]
pub(crate) struct Events {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Follow: also print new events
    #[arg(short, long)]
    follow: bool,
    /// Only events of this kind, such as lock:acquired, or of a category: lock: or lock:*
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only events from this source, such as lock or lock:deploy
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Only events of the last DURATION, such as 1h; or since a time such as 22:00 or 2026-11-15T08:00:00Z
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only the last N events
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show numbers, UTC times, kinds and data instead of sentences
    #[arg(long)]
    raw: bool,
}

subcommands! {
    enum Verb {
        Emit(Emit),
        Compact(compact::Compact),
    }
}

/// Record an event of your own.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman events emit deploy:done --about web --data '{\"version\": \"1.2\"}'")]
struct Emit {
    /// The kind of the event, as CATEGORY:ACTION
    kind: String,
    /// The subject of the event: the pattern `deploy:done(web)` matches `web` [default: $BANKSMAN_HOLDER]
    #[arg(long, value_name = "NAME")]
    about: Option<Name>,
    /// Data of the event, as JSON
    #[arg(long, value_name = "JSON", default_value = "{}")]
    data: String,
}

impl Events {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        match self.verb {
            Some(verb) => verb.run(context),
            None => self.show(context),
        }
    }

    fn show(self, context: &Context) -> ExitResult {
        let since = self.since.as_deref().map(since::parse).transpose()?;
        // Routes write a category as `lock:*`.
        let kind =
            self.kind.map(|kind| kind.strip_suffix('*').filter(|category| category.ends_with(':')).unwrap_or(&kind).to_owned());
        // A category is valid although it is no kind.
        if let Some(Err(unknown)) = kind.as_deref().filter(|kind| !kind.ends_with(':')).map(check_kind) {
            let hint = unknown.meant.map_or_else(|| unknown.others.join(", "), |meant| format!("did you mean {meant}?"));
            return Err(Failure::usage(format!("--kind: unknown kind {:?}", unknown.kind)).hint(hint));
        }
        let filter = EventFilter { kind, source: self.source, since };
        let is_chosen = filter.kind.is_some() || filter.source.is_some();
        let shape = match (self.raw || context.printer.json, is_chosen) {
            (true, _) => Shape::Raw,
            (false, true) => Shape::Sentences,
            (false, false) => Shape::Notable,
        };
        let limit = match self.limit {
            Some(limit) => limit,
            None if context.printer.json || filter.since.is_some() => usize::MAX,
            None => LINES,
        };
        if self.follow {
            return follow(context, &filter, shape, limit);
        }
        let mut reader = context.reader()?;
        let (events, compacted, is_all) = last(&mut reader, &filter, shape, limit)?;
        // Older events do not matter if the output has all that was asked for.
        if compacted.through > Seq(0) && is_all && filter.since.is_none_or(|since| since <= compacted.wall) {
            note_compacted(context, compacted);
        }
        let compacted_through = (compacted.through > Seq(0)).then_some(compacted.through);
        let view = Page { events: EventView::list(&events), compacted_through };
        let human = if events.is_empty() {
            let words = if is_chosen || filter.since.is_some() || compacted.through > Seq(0) {
                "no matching events"
            } else {
                "no events yet"
            };
            format!("{DIM}{words}{DIM:#}")
        } else {
            lines(&mut reader, &events, shape)?.join("\n")
        };
        context.printer.result(&view, human)
    }
}

/// The form in which events are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// With all their data.
    Raw,
    Sentences,
    /// As sentences, without events that follow from others.
    Notable,
}

impl Shape {
    fn shows(self, event: &EventRow) -> bool {
        self != Shape::Notable || sentence::is_notable(event)
    }
}

fn lines(reader: &mut Reader, events: &[EventRow], shape: Shape) -> Result<Vec<String>, Failure> {
    if shape == Shape::Raw {
        return Ok(events.iter().map(event_line).collect());
    }
    let titles = sentence::titles(reader, events)?;
    Ok(events.iter().map(|event| sentence::line(event, &titles)).collect())
}

/// The last events that pass the filter, the mark of the last compaction, and whether these are all events. The log is
/// read from its end, in growing parts.
fn last(reader: &mut Reader, filter: &EventFilter, shape: Shape, limit: usize) -> Result<(Vec<EventRow>, Mark, bool), Failure> {
    let newest = reader.view().last_event()?;
    let mut window = if limit == usize::MAX { newest.0 } else { WINDOW };
    loop {
        let start = Seq((newest.0 - window).max(0));
        let (mut events, mut after) = (Vec::new(), start);
        let compacted = loop {
            let page = reader.view().events(after, filter)?;
            after = page.last;
            events.extend(page.events.into_iter().filter(|event| shape.shows(event)));
            if !page.more {
                break page.compacted;
            }
        };
        let is_all = start <= compacted.through || start == Seq(0);
        if events.len() >= limit || is_all {
            let skipped = events.len().saturating_sub(limit);
            return Ok((events.split_off(skipped), compacted, is_all && skipped == 0));
        }
        window = window.saturating_mul(8);
    }
}

/// A part of the log.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    events: Vec<EventView<'a>>,
    compacted_through: Option<Seq>,
}

#[derive(Serialize)]
struct Emitted<'a> {
    id: Seq,
    kind: &'a str,
}

/// Prints the last events and then every new event, one per line, until interrupted.
fn follow(context: &Context, filter: &EventFilter, shape: Shape, limit: usize) -> ExitResult {
    let signals = Signals::install()?;
    let project = context.project()?;
    let mut reader = project.reader()?;
    let begin = if limit == usize::MAX { Seq(0) } else { reader.view().last_event()? };
    if begin > Seq(0) {
        let (events, ..) = last(&mut reader, filter, shape, limit)?;
        let events: Vec<EventRow> = events.into_iter().filter(|event| event.id <= begin).collect();
        show_each(context, &mut reader, &events, shape)?;
    }
    let mut follower = project.follow(begin)?;
    loop {
        let mut events = follower.next(filter)?;
        if let Some(compacted) = follower.missed().filter(|mark| filter.since.is_none_or(|since| since <= mark.wall)) {
            note_compacted(context, compacted);
        }
        if events.is_empty() && !follower.wait(signals.as_fd()) {
            return Err(Failure::interrupted());
        }
        events.retain(|event| shape.shows(event));
        show_each(context, &mut reader, &events, shape)?;
    }
}

fn show_each(context: &Context, reader: &mut Reader, events: &[EventRow], shape: Shape) -> Result<(), Failure> {
    if context.printer.json {
        events.iter().for_each(|event| context.printer.view(&EventView::from(event)));
    } else {
        let width = terminal::stdout_width();
        let fitting = |line: String| width.map_or_else(|| line.clone(), |width| terminal::wrap(&line, width));
        lines(reader, events, shape)?.into_iter().for_each(|line| context.printer.line(&fitting(line)));
    }
    Ok(())
}

fn note_compacted(context: &Context, compacted: Mark) {
    let (through, wall) = (compacted.through, format::rfc3339(compacted.wall));
    context.printer.note(&format!("{DIM}events up to {through}, of {wall}, were compacted and are no longer in the log{DIM:#}"));
}

/// The latest events of an entity, below its page.
pub(crate) fn recent(events: &[EventRow], titles: &Titles) -> String {
    if events.is_empty() {
        return String::new();
    }
    let lines = events.iter().rev().map(|event| format!("\n{}", sentence::line(event, titles)));
    format!("\n\n{DIM}RECENT{DIM:#}{}", lines.collect::<String>())
}

/// `17  2026-11-15T08:00:00.000Z  lock:acquired  deploy  holder=ci-42  ttl=60000  by ada`.
fn event_line(event: &EventRow) -> String {
    let source = event.source.id.as_deref().unwrap_or(&event.source.component);
    let mut line =
        format!("{DIM}{:>6}  {}{DIM:#}  {CYAN}{:<20}{CYAN:#}  {source}", event.id, format::rfc3339(event.wall), event.kind);
    if let Value::Object(fields) = &event.data {
        for (name, value) in fields.iter().filter(|(name, _)| *name != "processes") {
            let value = value.as_str().map_or_else(|| cut(&value.to_string(), PARTS_SHOWN), |text| cut(text, SHOWN));
            line.push_str(&format!("  {DIM}{name}={DIM:#}{}", format::one_line(&value)));
        }
    }
    if let Some(by) = &event.by {
        line.push_str(&format!("  {DIM}by {}{DIM:#}", format::one_line(&by.to_string())));
    }
    line
}

fn cut(value: &str, at_most: usize) -> String {
    match value.char_indices().nth(at_most) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}

impl Emit {
    fn run(self, context: &Context) -> ExitResult {
        let kind = CustomKind::new(&self.kind).map_err(Failure::usage)?;
        if self.data.len() > DATA_LIMIT {
            return Err(Failure::usage(format!("--data may have at most {DATA_LIMIT} bytes, this one has {}", self.data.len())));
        }
        let data = banksman_core::json::parse(&self.data)
            .map_err(|error| Failure::usage(format!("--data: {error}")).hint(r#"for example: --data '{"version": "1.2"}'"#))?;
        let about = self.about.map(|about| about.to_string()).or_else(|| std::env::var("BANKSMAN_HOLDER").ok());
        let source = Source { component: "user".into(), id: about.map(Into::into) };
        let seq = context.client()?.emit(Event::Custom { kind, source, data })?;
        context.printer.result(&Emitted { id: seq, kind: &self.kind }, format!("event {seq}"))
    }
}
