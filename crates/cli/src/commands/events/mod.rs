mod compact;

use std::os::fd::AsFd;

use banksman_core::event::{CustomKind, Event, Source, check_kind};
use banksman_core::{Name, Seq, Wall};
use banksman_store::{EventFilter, EventRow, Mark};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::Done;
use super::resources::Dur;
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::{CYAN, DIM};
use crate::signals::Signals;
use crate::views::events::EventView;
use crate::words;

/// The largest data of an event, in bytes of JSON.
const DATA_LIMIT: usize = 64 * 1_024;

/// How many characters of a text people are shown, and how many of what has parts, such as the definition of a worker: `--json`
/// has all of it.
const SHOWN: usize = 300;
const PARTS_SHOWN: usize = 80;

/// Show what happened, oldest first.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Examples:\n  banksman events --follow\n  banksman events --kind lock: --since 1h\n  banksman events --source lock:deploy --json"
)]
pub(crate) struct Events {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
    /// Only this kind, such as lock:acquired, or all of a category: lock: or lock:*
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only from this source, such as lock or lock:deploy
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Only the last so long, such as 1h; or since a time such as 2026-11-15T08:00:00Z
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only the last so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
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
    /// What happened, as CATEGORY:ACTION
    kind: String,
    /// What it is about: `web` is what the pattern `deploy:done(web)` asks for [default: $BANKSMAN_HOLDER]
    #[arg(long, value_name = "NAME")]
    about: Option<Name>,
    /// What belongs to it, as JSON
    #[arg(long, value_name = "JSON", default_value = "{}")]
    data: String,
}

impl Events {
    pub(crate) fn run(self, context: &Context) -> Done {
        match self.verb {
            Some(verb) => verb.run(context),
            None => self.show(context),
        }
    }

    fn show(self, context: &Context) -> Done {
        let since = self.since.as_deref().map(since).transpose()?;
        // As routes write it.
        let kind =
            self.kind.map(|kind| kind.strip_suffix('*').filter(|category| category.ends_with(':')).unwrap_or(&kind).to_owned());
        // A category is as good as a kind, and no kind of its own.
        if let Some(Err(unknown)) = kind.as_deref().filter(|kind| !kind.ends_with(':')).map(check_kind) {
            let hint = unknown.meant.map_or_else(|| unknown.others.join(", "), |meant| format!("did you mean {meant}?"));
            return Err(Failure::usage(format!("--kind: there are no events {:?}", unknown.kind)).hint(hint));
        }
        let filter = EventFilter { kind, source: self.source, since };
        let filtered = filter.kind.is_some() || filter.source.is_some() || filter.since.is_some();
        if self.follow {
            return follow(context, &filter);
        }
        let mut reader = context.reader()?;
        let mut events = Vec::new();
        let mut after = Seq(0);
        let compacted = loop {
            let page = reader.view().events(after, &filter)?;
            after = page.last;
            events.extend(page.events);
            if !page.more {
                break page.compacted;
            }
        };
        let skip = self.limit.map_or(0, |limit| events.len().saturating_sub(limit));
        let events = &events[skip..];
        // Older events do not matter to one who has got all that was asked for.
        if compacted.through > Seq(0) && skip == 0 && filter.since.is_none_or(|since| since <= compacted.wall) {
            tell_compacted(context, compacted);
        }
        let compacted_through = (compacted.through > Seq(0)).then_some(compacted.through);
        let view = Page { events: EventView::list(events), compacted_through };
        let human = if events.is_empty() {
            let words = if filtered || compacted.through > Seq(0) {
                "no event is of that kind, source and time"
            } else {
                "nothing has happened yet"
            };
            format!("{DIM}{words}{DIM:#}")
        } else {
            events.iter().map(event_line).collect::<Vec<_>>().join("\n")
        };
        context.printer.result(&view, human)
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

/// Prints the log so far and then whatever happens, one line per event, until interrupted.
fn follow(context: &Context, filter: &EventFilter) -> Done {
    let signals = Signals::install().map_err(|error| Failure::system("take note of signals", error))?;
    let mut follower = context.project()?.follow(Seq(0))?;
    loop {
        let events = follower.next(filter)?;
        if let Some(compacted) = follower.missed().filter(|mark| filter.since.is_none_or(|since| since <= mark.wall)) {
            tell_compacted(context, compacted);
        }
        if events.is_empty() && !follower.wait(signals.as_fd()) {
            return Err(Failure::interrupted());
        }
        for event in &events {
            match context.printer.json {
                true => context.printer.view(&EventView::from(event)),
                false => context.printer.line(&event_line(event)),
            }
        }
    }
}

fn tell_compacted(context: &Context, compacted: Mark) {
    let (through, wall) = (compacted.through, words::rfc3339(compacted.wall));
    context.printer.note(&format!("{DIM}events up to {through}, of {wall}, were compacted and are no longer in the log{DIM:#}"));
}

/// The latest events of an entity, below its page.
pub(crate) fn recent(events: &[EventRow]) -> String {
    if events.is_empty() {
        return String::new();
    }
    let lines = events.iter().rev().map(|event| format!("\n{}", event_line(event)));
    format!("\n\n{DIM}RECENT{DIM:#}{}", lines.collect::<String>())
}

/// `17  2026-11-15T08:00:00.000Z  lock:acquired  deploy  holder=ci-42  ttl=60000  by ada`.
pub(crate) fn event_line(event: &EventRow) -> String {
    let source = event.source.id.as_deref().unwrap_or(&event.source.component);
    let mut line =
        format!("{DIM}{:>6}  {}{DIM:#}  {CYAN}{:<20}{CYAN:#}  {source}", event.id, words::rfc3339(event.wall), event.kind);
    if let Value::Object(fields) = &event.data {
        for (name, value) in fields.iter().filter(|(name, _)| *name != "processes") {
            let value = value.as_str().map_or_else(|| cut(&value.to_string(), PARTS_SHOWN), |text| cut(text, SHOWN));
            line.push_str(&format!("  {DIM}{name}={DIM:#}{}", words::one_line(&value)));
        }
    }
    if let Some(by) = &event.by {
        line.push_str(&format!("  {DIM}by {}{DIM:#}", words::one_line(&by.to_string())));
    }
    line
}

fn cut(value: &str, at_most: usize) -> String {
    match value.char_indices().nth(at_most) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}

fn since(text: &str) -> Result<Wall, Failure> {
    if let Ok(Dur(ago)) = text.parse() {
        let now = banksman_adapters::host::wall_ms();
        return Ok(Wall(now.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX))));
    }
    let time: Result<jiff::Timestamp, _> = text.parse();
    time.map(|time| Wall(time.as_millisecond())).map_err(|_| {
        Failure::usage(format!("--since: {text:?} is neither a duration nor a time"))
            .hint("for example: --since 1h, or --since 2026-11-15T08:00:00Z")
    })
}

impl Emit {
    fn run(self, context: &Context) -> Done {
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
