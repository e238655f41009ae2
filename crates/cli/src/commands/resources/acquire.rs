//! Acquires locks and slots, with or without waiting, and shows the progress of a wait.

use std::os::fd::AsFd;
use std::time::Duration;

use banksman_core::event::{Kind, Resource};
use banksman_core::ids::{HolderId, RequestId};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::deadlock::Link;
use banksman_core::resource::grant::{Ask, Blocked, Grant, GrantRequest, Term, Waiting};
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::{Epoch, Name, ProcessId, Span, Stamp, Wall};
use banksman_runtime::{Acquisition, Client, WaitOptions};
use clap::Args;
use serde_json::Value;

use super::{Dur, own_name, undefined};
use crate::commands::recording::with_ended_runs;
use crate::commands::waiting_line::WaitingLine;
use crate::context::{Actor, Context, inherited_epoch};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM};
use crate::signals::Signals;
use crate::views::Time;
use crate::views::resources::{Granted, LinkView};

/// The largest metadata, in bytes of JSON.
const METADATA_LIMIT: usize = 16 * 1_024;

#[derive(Debug, Args)]
pub(crate) struct AcquireFlags {
    /// The holder [default: $BANKSMAN_HOLDER, or a fresh name]
    #[arg(long, value_name = "NAME")]
    pub(crate) holder: Option<HolderId>,
    /// Bind the grant to this process: it is released when the process dies
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    pub(crate) pid: Option<i32>,
    /// Time to live without a heartbeat, such as 90s or 1h30m
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub(crate) ttl: Option<Dur>,
    /// JSON to show with the grant
    #[arg(long, value_name = "JSON")]
    pub(crate) metadata: Option<String>,
    /// Request id: a repeated request with the same id returns the same grant
    #[arg(long, value_name = "ID")]
    pub(crate) request_id: Option<RequestId>,
    /// The epoch of a grant to extend
    #[arg(long, value_name = "N")]
    pub(crate) epoch: Option<i64>,
    /// Do not wait: exit 6 if it is not free
    #[arg(long, conflicts_with = "timeout")]
    pub(crate) no_wait: bool,
    /// Maximum time to wait [default: locking.wait_timeout, 30m]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub(crate) timeout: Option<Dur>,
}

/// The parameters of an acquisition beside the flags.
pub(crate) struct Wanted {
    pub(crate) resource: Resource,
    pub(crate) actor: Actor,
    pub(crate) weight: u32,
    pub(crate) max_hold: Option<Span>,
    /// The processes that the grant is bound to, beside the one of `--pid`.
    pub(crate) processes: Vec<ProcessId>,
    /// Whether the grant needs heartbeats if no time to live is given.
    pub(crate) leased: bool,
    pub(crate) epoch: Option<Epoch>,
}

/// A grant, and the outcome that led to it.
pub(crate) struct Won {
    pub(crate) grant: Grant,
    pub(crate) outcome: &'static str,
    pub(crate) from: Option<String>,
    pub(crate) at: Stamp,
}

/// Acquires, and prints the grant.
pub(crate) fn acquire(
    context: &Context,
    kind: Kind,
    name: &Name,
    weight: u32,
    max_hold: Option<Dur>,
    flags: &AcquireFlags,
) -> super::super::ExitResult {
    let resource = own_name(kind, name)?;
    let asked = resource.clone();
    let actor = Actor::new(flags.holder.as_ref(), flags.request_id.as_ref())?;
    let epoch = flags.epoch.map(Epoch).or(inherited_epoch(kind.as_str(), name.as_str())?);
    let max_hold = max_hold.map(|dur| dur.positive("--max-hold")).transpose()?;
    let wanted = Wanted { resource, actor, weight, max_hold, processes: Vec::new(), leased: flags.pid.is_none(), epoch };
    let (client, signals) = (context.client()?, Signals::install()?);
    let won = win(context, &client, wanted, flags, Some(&signals))?;
    let (view, human) = describe(kind, name, &won);
    context.printer.try_result(&view, human).map_err(|error| unprinted(&client, &asked, &won, &error))?;
    Ok(exit::OK)
}

/// Releases a new grant: the output failed, so no caller knows of the grant and could release it.
fn unprinted(client: &Client, resource: &Resource, won: &Won, error: &std::io::Error) -> Failure {
    let (name, holder, epoch) = (resource.name.clone(), won.grant.claim.holder.clone(), won.grant.epoch);
    let release = Command::release(resource.clone(), holder, epoch);
    let is_new = matches!(won.outcome, "acquired" | "reclaimed");
    let released = is_new && client.ask(release, Vec::new()).is_ok();
    let state = if released { "was released again" } else { "is still held" };
    Failure::system("print the grant", error).detail("name", &name).detail("released", &released).hint(format!("{name} {state}"))
}

/// Acquires, and shows the progress of the wait.
pub(crate) fn win(
    context: &Context,
    client: &Client,
    wanted: Wanted,
    flags: &AcquireFlags,
    signals: Option<&Signals>,
) -> Result<Won, Failure> {
    let Wanted { resource, actor, weight, max_hold, mut processes, leased, epoch } = wanted;
    if let Some(pid) = flags.pid {
        let missing = |_| Failure::new(exit::NOT_FOUND, "NO_SUCH_PROCESS", format!("there is no process {pid}"));
        processes.push(client.host().identify(pid).map_err(missing)?);
    }
    let claim = GrantRequest {
        holder: actor.holder,
        ancestors: actor.ancestors,
        weight,
        ttl: flags.ttl.map(|ttl| ttl.positive("--ttl")).transpose()?,
        max_hold,
        processes,
        metadata: flags.metadata.as_deref().map(metadata).transpose()?.filter(|metadata| !metadata.is_null()),
        request: flags.request_id.clone(),
    };
    let term = Term::Usual(leased.then(|| Dur(client.config().heartbeat_timeout).span()));
    let ask = Ask { term, epoch, ..Ask::new(claim) };
    let wait = (!flags.no_wait).then(|| flags.timeout.map_or(client.config().wait_timeout, |timeout| timeout.0));
    let mut line = WaitingLine::new(context);
    let tick = line.tick();
    let acquisition = with_ended_runs(context, client, |ended_runs, no_runner| {
        let mut progress = |waiting: &Waiting, elapsed: Duration| {
            let runs = no_runner.suffix();
            line.show(&waiting_line(&resource, waiting, &runs, elapsed), runs);
        };
        let options = WaitOptions {
            wait,
            cancel: signals.map(AsFd::as_fd),
            progress: Some(&mut progress),
            tick,
            ended_runs: Some(ended_runs),
        };
        client.acquire_any(resource.clone(), ask, options)
    });
    line.clear();
    granted(&resource, acquisition?)
}

fn metadata(text: &str) -> Result<Value, Failure> {
    if text.len() > METADATA_LIMIT {
        return Err(Failure::usage(format!("--metadata may have at most {METADATA_LIMIT} bytes, this one has {}", text.len())));
    }
    banksman_core::json::parse(text).map_err(|error| {
        Failure::usage(format!("--metadata: {error}")).hint(r#"for example: --metadata '{"why": "release 1.2"}'"#)
    })
}

/// `waiting for deploy, held by agent-7 for 3 min, position 2 among the waiters (12 s; Ctrl-C to cancel)`.
fn waiting_line(resource: &Resource, waiting: &Waiting, runs: &str, elapsed: Duration) -> String {
    let name = &resource.name;
    let holder = match &waiting.blocked.holders[..] {
        [] => match &waiting.blocked.reserved {
            Some(reserved) => format!("reserved for {}", reserved.holder),
            None => "free in a moment".to_owned(),
        },
        // The deadline is on the lease clock, so the line shows only since when the lock is held.
        [grant] => format!("held by {}", grant.claim.holder),
        grants => format!("held by {} holders", grants.len()),
    };
    let since = waiting.blocked.holders.iter().map(|grant| grant.acquired.wall).min();
    let now = Wall(banksman_adapters::host::wall_ms());
    let held_for = since.map_or(String::new(), |since| format!(" for {}", format::span(now - since)));
    let place = waiting.place;
    let waited = format::span(Dur(elapsed).span());
    format!(
        "waiting for {BOLD}{name}{BOLD:#}, {holder}{held_for}, position {place} among the waiters{runs} {DIM}({waited}; Ctrl-C to cancel){DIM:#}"
    )
}

/// Turns an acquisition into a grant or a failure.
pub(crate) fn granted(resource: &Resource, acquisition: Acquisition) -> Result<Won, Failure> {
    let name = &resource.name;
    let (outcome, at) = match acquisition {
        Acquisition::Answered { outcome, at, .. } => (outcome, at),
        Acquisition::RequestReused => {
            return Err(Failure::usage("this request id was already used for another request")
                .hint("a request id can be used for one request only"));
        }
        Acquisition::TimedOut(waiting) => {
            let holders = holders(&waiting.blocked);
            let message = format!("waited too long for {name}, which is {}", occupied(&waiting.blocked));
            let hint = format!("list the waiters: banksman {}s show {}", resource.kind.as_str(), format::quoted(name));
            return Err(Failure::new(exit::LOCKED, "WAIT_TIMEOUT", message)
                .detail("name", name)
                .detail("place", &waiting.place)
                .detail("waiters", &waiting.blocked.waiters)
                .detail("holder", &holders)
                .detail("lockedBy", &waiting.blocked.holders.first().map(|grant| &grant.claim.holder))
                .detail("taskId", &name.task())
                .detail("expiresAt", &expiry(&waiting.blocked))
                .hint(hint));
        }
        Acquisition::Cancelled => return Err(Failure::interrupted()),
    };
    let won = |grant, outcome, from| Ok(Won { grant, outcome, from, at });
    let spent = |epoch: Epoch| {
        let message = format!("this request was already granted as epoch {epoch}, and that grant has ended");
        Err(Failure::new(exit::FENCED, "REQUEST_SPENT", message).hint("use a new request id to acquire it again"))
    };
    let crowded = || Err(Failure::new(exit::LOCKED, "LINE_FULL", format!("too many requests are waiting for {name}")));
    match outcome {
        Outcome::Lock(outcome) => match outcome {
            lock::Outcome::Acquired(grant) => won(grant, "acquired", None),
            lock::Outcome::Extended(grant) => won(grant, "extended", None),
            lock::Outcome::Reclaimed { grant, from, reason } => won(grant, "reclaimed", Some(format!("{from} ({reason})"))),
            lock::Outcome::Busy(blocked) => Err(busy(resource, &blocked, at, None)),
            lock::Outcome::TooManyWaiters => crowded(),
            lock::Outcome::Spent { epoch } => spent(epoch),
            other => Err(super::lock_refusal(name, &other)),
        },
        Outcome::Semaphore(outcome) => match outcome {
            semaphore::Outcome::Acquired(grant) => won(grant, "acquired", None),
            semaphore::Outcome::AlreadyHeld(grant) => won(grant, "already_held", None),
            semaphore::Outcome::Increased(grant) => won(grant, "increased", None),
            semaphore::Outcome::Full { available, blocked } => Err(busy(resource, &blocked, at, Some(available))),
            semaphore::Outcome::TooManyWaiters => crowded(),
            semaphore::Outcome::Spent { epoch } => spent(epoch),
            semaphore::Outcome::NoWeight => Err(Failure::usage("--weight must be at least 1")),
            semaphore::Outcome::TooHeavy { capacity } => {
                let message = format!("{name} has only {}, so this request can never be granted", format::slots(capacity));
                let hint = format!("make it larger with: banksman semaphores define {} --capacity N", format::quoted(name));
                let failure = Failure::new(exit::USAGE, "OVER_CAPACITY", message).hint(hint);
                Err(failure.detail("name", name).detail("capacity", &capacity))
            }
            other => Err(super::semaphore_refusal(name, &other)),
        },
        Outcome::Deadlock(cycle) => Err(deadlock(resource, &cycle)),
        Outcome::Undefined => Err(undefined(name)),
    }
}

fn holders(blocked: &Blocked) -> String {
    let names: Vec<&str> = blocked.holders.iter().map(|grant| grant.claim.holder.as_str()).collect();
    if let Some(reserved) = blocked.reserved.as_ref().filter(|_| names.is_empty()) {
        return format!("nobody, but reserved for {}", reserved.holder);
    }
    if names.is_empty() { "nobody".into() } else { names.join(", ") }
}

/// `held by agent-7`, or for whom it is reserved.
fn occupied(blocked: &Blocked) -> String {
    match &blocked.reserved {
        Some(reserved) if blocked.holders.is_empty() => format!("reserved for {}", reserved.holder),
        _ => format!("held by {}", holders(blocked)),
    }
}

/// The earliest expiry of the blocking grants.
fn expiry(blocked: &Blocked) -> Option<Time> {
    blocked.holders.iter().filter_map(Grant::expires).min().map(Time)
}

fn busy(resource: &Resource, blocked: &Blocked, at: Stamp, available: Option<u32>) -> Failure {
    let name = &resource.name;
    let since = blocked.holders.iter().map(|grant| grant.acquired.wall).min();
    let held_for = since.map_or(String::new(), |since| format!(" for {}", format::span(at.wall - since)));
    let holders = holders(blocked);
    let failure = match available {
        None => Failure::new(exit::LOCKED, "LOCKED", format!("{name} is {}{held_for}", occupied(blocked))),
        Some(available) => {
            let message = match available {
                0 => format!("{name} has no free slots; they are {}{held_for}", occupied(blocked)),
                _ => format!("{name} has only {} free; the rest is {}{held_for}", format::slots(available), occupied(blocked)),
            };
            Failure::new(exit::LOCKED, "FULL", message).detail("available", &available)
        }
    };
    failure
        .detail("name", name)
        .detail("holder", &holders)
        .detail("since", &since.map(Time))
        .detail("expiresAt", &expiry(blocked))
        .detail("waiters", &blocked.waiters)
        .hint("omit --no-wait to wait for it")
}

fn deadlock(resource: &Resource, cycle: &[Link]) -> Failure {
    circle(&format!("waiting for {resource}"), cycle).detail("name", &resource.name)
}

/// The failure for a circle of waits.
pub(crate) fn circle(what: &str, cycle: &[Link]) -> Failure {
    let blockers = cycle.iter().cycle().skip(1);
    let links = cycle
        .iter()
        .zip(blockers)
        .map(|(link, by)| format!("{} waits for {}, blocked by {}", link.party, link.resource, by.party));
    let text = links.collect::<Vec<_>>().join("; ");
    Failure::new(exit::DEADLOCK, "DEADLOCK", format!("{what} would be a deadlock: {text}"))
        .detail("cycle", &LinkView::list(cycle))
        .hint("release something first, and always acquire in the same order")
}

fn describe<'a>(kind: Kind, name: &'a Name, won: &'a Won) -> (Granted<'a>, String) {
    let Won { grant, outcome, from, at } = won;
    let holder = &grant.claim.holder;
    let view = Granted::acquired(kind, name, outcome, grant);
    let weight = if kind == Kind::Semaphore { format!(", {}", format::slots(grant.claim.weight)) } else { String::new() };
    let from_whom = from.as_ref().map_or(String::new(), |from| format!(" from {from}"));
    let lasts = grant.deadline().map_or(String::new(), |deadline| format!(", expires in {}", format::span(deadline - at.lease)));
    let noun = kind.as_str();
    let human = format!(
        "{} {BOLD}{name}{BOLD:#}{from_whom}: holder {BOLD}{holder}{BOLD:#}, epoch {BOLD}{}{BOLD:#}{weight}{lasts}\n\
         {DIM}release it with: banksman {noun}s release {} --holder {} --epoch {}{DIM:#}",
        outcome.replace('_', " "),
        grant.epoch,
        format::quoted(name),
        format::quoted(holder),
        grant.epoch
    );
    (view, human)
}
