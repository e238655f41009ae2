//! Locks and slots that others hold.

use banksman_core::Stamp;
use banksman_core::task::admission::Reason as Refusal;
use banksman_engine::why::Holder;

use super::reason::{NAMED, Reason};
use super::sentence;
use crate::format;
use crate::views::why::Kind;

/// A refused resource with its holders.
pub(super) struct Taken<'a> {
    pub(super) reason: &'a Refusal,
    pub(super) holders: &'a [Holder],
    pub(super) waiters: usize,
    /// The first waiter.
    pub(super) first: Option<&'a str>,
    pub(super) ahead: u64,
    pub(super) at: Stamp,
}

impl Taken<'_> {
    pub(super) fn reason(self) -> Reason {
        let at = self.at;
        let held = |what: String, holder: &Holder| match (holder.over, self.first) {
            // A grant that is over goes to the first waiter, so that waiter blocks the task.
            (Some(over), Some(first)) => {
                format!("{what} goes to {first}, the first waiter; its holder {} is {over}", holder.holding.holder)
            }
            _ => {
                format!("{what} is held by {} for {}", holder_words(holder), format::span(at.lease - holder.holding.since.lease))
            }
        };
        let first = self.holders.first();
        let (kind, message, hint) = match (self.reason, first) {
            (Refusal::TaskLock { resource, .. }, Some(holder)) => (
                Kind::TaskLock,
                held(format!("its own {resource}"), holder),
                Some(format!("banksman locks show {}", resource.name)),
            ),
            (Refusal::Lock { resource, .. }, Some(holder)) => {
                let hint = format!("banksman locks show {}", format::quoted(&resource.name));
                (Kind::Lock, held(resource.to_string(), holder), Some(hint))
            }
            (Refusal::Section { name, .. }, Some(holder)) => {
                (Kind::Section, held(format!("its exclusive section {name}"), holder), None)
            }
            (Refusal::Slots { resource, wanted, available, capacity, .. }, _) => {
                return self.slots(&resource.name.to_string(), *wanted, *available, *capacity);
            }
            (Refusal::Undefined { resource }, _) => (
                Kind::Undefined,
                format!("there is no {resource}"),
                Some(format!("banksman semaphores define {} --capacity N", format::quoted(&resource.name))),
            ),
            (Refusal::Reserved { resource, holder, task, since, section }, _) => {
                let what = section.as_ref().map_or_else(|| resource.to_string(), |name| format!("its exclusive section {name}"));
                let of = task.as_ref().map(|task| format!(" to work on {task}")).unwrap_or_default();
                let span = format::span(at.lease - since.lease);
                let hint = match (section, task) {
                    (_, Some(task)) => format!("banksman tasks show {task}"),
                    (Some(name), None) => format!("banksman sections show {}", format::quoted(name)),
                    (None, None) => format!("banksman {}s show {}", resource.kind.as_str(), format::quoted(&resource.name)),
                };
                (Kind::Reserved, format!("{what} is reserved for {holder}, waiting for {span}{of}"), Some(hint))
            }
            (Refusal::NoSlot { capacity, .. }, _) => {
                (Kind::NoSlot, self.no_slot(*capacity), Some("banksman config set limits.max_concurrent_runs N".into()))
            }
            (Refusal::TaskLock { resource, .. } | Refusal::Lock { resource, .. } | Refusal::Section { resource, .. }, None) => {
                (Kind::Other, format!("{resource} is held"), None)
            }
            (Refusal::NotPending(status), _) => (Kind::Other, format!("it is {status}"), None),
            (Refusal::NoWork, _) => (Kind::Other, "it has no command".into(), None),
            (Refusal::Backoff { .. }, _) => (Kind::Other, "it is in backoff between two attempts".into(), None),
            (Refusal::Paused { .. }, _) => (Kind::Other, "it is paused".into(), None),
            (Refusal::Decision(decision), _) => (Kind::Other, format!("it waits for decision {decision}"), None),
            (Refusal::NoRoot { limit, .. }, _) => (Kind::Other, format!("{limit} roots are in progress"), None),
            (Refusal::Dependency { task, .. }, _) => (Kind::Other, format!("it waits for {task}"), None),
            (Refusal::SectionBusy { name, run, .. }, _) => {
                (Kind::Other, format!("run {run} is live in its exclusive section {name}"), None)
            }
            (Refusal::AccountLimit { agent, .. }, _) => (Kind::Other, format!("the account of {agent} is limited"), None),
        };
        let place = (kind == Kind::NoSlot).then_some(self.ahead + 1);
        let wakes = match (kind, first) {
            (Kind::Undefined, _) => "it may start when it is defined".into(),
            (Kind::NoSlot, _) => {
                format!("it is the {} in the queue for the next run that ends", format::ordinal(self.ahead as usize + 1))
            }
            (Kind::Section, _) => "it may start when the section is free".into(),
            (Kind::Reserved, _) => "it may start when that claim has ended".into(),
            (_, Some(holder)) => self.freed(holder),
            (_, None) => "it may start when it is free".into(),
        };
        Reason {
            kind,
            message,
            wakes,
            hint,
            is_final: kind == Kind::Undefined,
            since: first.map(|holder| holder.holding.since.into()),
            resource: self.reason.resource().map(|resource| resource.to_string()),
            holders: self.holders.iter().map(Into::into).collect(),
            waiters: self.waiters,
            place,
            ..Reason::default()
        }
    }

    fn slots(&self, name: &str, wanted: u32, available: u32, capacity: u32) -> Reason {
        let wanted_words = format::slots(wanted);
        let never = wanted > capacity;
        let message = match (never, available >= wanted, self.first) {
            (true, _, _) => format!("it needs {wanted_words} of semaphore {name}, which has only {capacity}"),
            (false, true, Some(first)) => {
                format!("{} for semaphore {name} before it, first {first}", self.waiting())
            }
            (false, true, None) => format!("semaphore {name} has the maximum number of holders"),
            (false, false, _) => {
                let holders: Vec<String> = self.holders.iter().take(NAMED).map(holder_words).collect();
                let more = self.holders.len().saturating_sub(NAMED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!(
                    "it needs {wanted_words} of semaphore {name}, {available} of {capacity} free; held by {}{more}",
                    holders.join(", ")
                )
            }
        };
        let quoted = format::quoted(name);
        Reason {
            kind: Kind::Slots,
            message,
            wakes: match (never, self.first, self.holders.first()) {
                (true, _, _) => "it never fits, unless the capacity is increased".into(),
                (false, Some(_), _) => "it may start when it is first in the queue and enough slots are free".into(),
                (false, None, Some(holder)) if self.holders.len() == 1 => self.freed(holder),
                (false, None, _) => "it may start when enough slots are free".into(),
            },
            hint: Some(if never {
                format!("banksman semaphores define {quoted} --capacity {wanted}")
            } else {
                format!("banksman semaphores show {quoted}")
            }),
            is_final: never,
            since: self.holders.iter().map(|holder| holder.holding.since).min_by_key(|since| since.lease).map(Into::into),
            resource: self.reason.resource().map(|resource| resource.to_string()),
            holders: self.holders.iter().map(Into::into).collect(),
            waiters: self.waiters,
            ..Reason::default()
        }
    }

    fn no_slot(&self, capacity: u32) -> String {
        let taken = match capacity {
            1 => "the only run slot is taken".into(),
            _ => format!("all {capacity} run slots are taken"),
        };
        let name = |holder: &Holder| holder.run.as_ref().map_or_else(|| holder_words(holder), |(.., title)| title.to_string());
        let mut oldest: Vec<&Holder> = self.holders.iter().collect();
        oldest.sort_by_key(|holder| holder.holding.since.lease);
        let holders: Vec<String> = oldest.into_iter().take(NAMED).map(name).collect();
        let more = self.holders.len().saturating_sub(NAMED);
        match (self.holders.is_empty(), self.first) {
            (true, Some(first)) => format!("{} for a run slot before it, first {first}", self.waiting()),
            (true, None) => "there is no run slot".into(),
            (false, _) if more > 0 => format!("{taken}: by {} and {more} more", holders.join(", ")),
            (false, _) => format!("{taken}: by {}", holders.join(", ")),
        }
    }

    /// `1 holder waits`, `2 holders wait`.
    fn waiting(&self) -> String {
        if self.waiters == 1 { "1 holder waits".into() } else { format!("{} holders wait", self.waiters) }
    }

    /// When a grant ends.
    fn freed(&self, holder: &Holder) -> String {
        if let (Some(_), Some(first)) = (holder.over, self.first) {
            return format!("it may start after {first} and the other waiters");
        }
        if let Some((run, _, _)) = &holder.run {
            return match sentence::attention(run) {
                None => "it may start when that run has ended".into(),
                Some(attention) => format!("it may start when that run has ended; {attention}"),
            };
        }
        let mut ways = vec!["it may start when that is released".to_owned()];
        match &holder.pids[..] {
            [] => {}
            [pid] => ways.push(format!("when process {pid} ends")),
            pids => ways.push(format!(
                "when the processes {} have ended",
                pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
            )),
        }
        if let Some(until) = holder.holding.until {
            ways.push(format!("in {} if it is not renewed", format::span(until - self.at.lease)));
        }
        let next = self.first.map(|first| format!("; {first} waits for it, too, and comes first")).unwrap_or_default();
        ways.join(", or ") + &next
    }
}

/// `run:r-1 (Build, t-1)`.
fn holder_words(holder: &Holder) -> String {
    let name = &holder.holding.holder;
    match &holder.run {
        Some((run, task, title)) => format!("run {} of {title} ({task})", run.id),
        None => match name.as_str().strip_prefix("runner:") {
            Some(runner) => format!("runner {runner}"),
            None => name.to_string(),
        },
    }
}
