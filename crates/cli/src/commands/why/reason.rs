//! One reason: what is missing, who has it, since when, and what will change it.

use banksman::core::admission::Reason as Refusal;
use banksman::core::backlog::Run;
use banksman::core::pipeline::State;
use banksman::core::task::{Done, Ending};
use banksman::core::{RunnerId, Stamp, Status, TaskId, Title};
use banksman::engine::why::{Answer, Attended, Cause, Chain, End, Holder, Life, Link, Obstacle};
use serde_json::{Value, json};

use super::{phases, sentence};
use crate::printer::{DIM, RED, YELLOW};
use crate::words;

/// How many tasks of a chain are named before and after those that are only counted.
const NAMED: usize = 3;

/// A reason in words and as data. The fields that do not belong to its kind are empty.
#[derive(Debug, Default)]
pub(super) struct Reason {
    pub(super) kind: &'static str,
    pub(super) message: String,
    /// What will change it.
    pub(super) wakes: String,
    /// What a person can do about it.
    pub(super) hint: Option<String>,
    /// Whether it will never change by itself.
    pub(super) is_final: bool,
    pub(super) since: Option<Stamp>,
    pub(super) resource: Option<String>,
    pub(super) holders: Vec<Value>,
    pub(super) waiters: usize,
    pub(super) chain: Vec<Value>,
    pub(super) cycle: Vec<String>,
    pub(super) because: Vec<Reason>,
    pub(super) runners: Vec<Value>,
    pub(super) place: Option<u64>,
}

impl Reason {
    /// Adds it to a text, with what it says of others below it.
    pub(super) fn print(&self, indent: &str, text: &mut String) {
        let style = if self.is_final { RED } else { YELLOW };
        text.push_str(&format!("\n{indent}  {style}-{style:#} {}", self.message));
        let below = format!("{indent}    ");
        for reason in &self.because {
            reason.print(&format!("{indent}  "), text);
        }
        if self.because.is_empty() {
            text.push_str(&format!("\n{below}{DIM}{}{DIM:#}", self.wakes));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n{below}{DIM}try: {hint}{DIM:#}"));
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "kind": self.kind,
            "message": self.message,
            "wakes": self.wakes,
            "hint": self.hint,
            "since": self.since.map(|since| words::rfc3339(since.wall)),
            "resource": self.resource,
            "holders": self.holders,
            "waiters": self.waiters,
            "chain": self.chain,
            "cycle": self.cycle,
            "because": self.because.iter().map(Reason::json).collect::<Vec<_>>(),
            "runners": self.runners,
            "place": self.place,
        })
    }
}

/// What stands in the way of a task, in words.
pub(super) fn of(cause: &Cause, task: &TaskId, at: Stamp) -> Reason {
    match cause {
        Cause::ByHand => Reason {
            kind: "by_hand",
            message: "it is for people: it has no command".into(),
            wakes: "it is over when somebody says so".into(),
            hint: Some(format!("banksman tasks done {task}")),
            ..Reason::default()
        },
        Cause::Resting { until } => Reason {
            kind: "resting",
            message: "it rests between two attempts".into(),
            wakes: format!("it may start in {}", words::span(*until - at.lease)),
            ..Reason::default()
        },
        Cause::Roots { limit, roots, ahead } => {
            let place = ahead + 1;
            let root = |(id, title, since): &(TaskId, Title, Stamp)| json!({ "holder": id, "title": title, "since": words::rfc3339(since.wall) });
            let names: Vec<String> = roots.iter().take(NAMED).map(|(id, title, _)| format!("{title} ({id})")).collect();
            let more = if roots.len() > NAMED { format!(" and {} more", roots.len() - NAMED) } else { String::new() };
            Reason {
                kind: "no_root_slot",
                message: format!("{} of {limit} roots are under way: {}{more}", roots.len(), names.join(", ")),
                wakes: format!("it is the {} in the queue for the next root that ends", words::ordinal(place as usize)),
                hint: Some("banksman config set limits.max_concurrent_root_tasks N".into()),
                holders: roots.iter().map(root).collect(),
                place: Some(place),
                ..Reason::default()
            }
        }
        Cause::Dependency(chain) => dependency(chain, at),
        Cause::Taken { reason, holders, line, ahead } => {
            let first = line.first().map(|(holder, _)| holder.as_str());
            let taken = Taken { reason, holders, waiters: line.len(), first, ahead: *ahead, at };
            taken.reason()
        }
        Cause::SectionBusy { name, run, task } => Reason {
            kind: "section_busy",
            message: format!("{} (task {task}) still lives in its exclusive section {name}", sentence::attended(run)),
            wakes: match (run.life, &run.heir) {
                (Life::Gone, None) => "the next runner looks after that run, and may then start this task".into(),
                (Life::Gone, Some(heir)) => format!("once runner {heir} looks after that run, it may start this task"),
                (Life::Alive | Life::Unknown, _) => "it may start when that run has ended".into(),
            },
            since: Some(run.started),
            ..Reason::default()
        },
        Cause::NoRunner => Reason {
            kind: "no_runner",
            message: "no runner is alive".into(),
            wakes: "it starts when a runner does".into(),
            hint: Some("banksman run".into()),
            is_final: true,
            ..Reason::default()
        },
        Cause::NoRunnerFree { runners, ahead } => no_runner_free(runners, *ahead, at),
    }
}

fn no_runner_free(runners: &[(RunnerId, Vec<Obstacle>)], ahead: u64, at: Stamp) -> Reason {
    let said = |obstacles: &[Obstacle]| obstacles.iter().map(|obstacle| obstacle_words(obstacle, at)).collect::<Vec<_>>();
    let each: Vec<String> =
        runners.iter().map(|(runner, obstacles)| format!("runner {runner} {}", said(obstacles).join(" and "))).collect();
    let full = |obstacles: &[Obstacle]| obstacles.iter().all(|obstacle| matches!(obstacle, Obstacle::Full(_)));
    let elsewhere = |obstacles: &[Obstacle]| obstacles.iter().any(|obstacle| matches!(obstacle, Obstacle::OtherSections(_)));
    let queue = runners.iter().any(|(_, obstacles)| full(obstacles));
    let all_elsewhere = runners.iter().all(|(_, obstacles)| elsewhere(obstacles));
    let place = queue.then_some(ahead + 1);
    let wakes = match place {
        Some(place) => format!("it is the {} in the queue for the next run that ends", words::ordinal(place as usize)),
        None if all_elsewhere => "it starts when a runner works in its section".into(),
        None => "it starts when one of these can take it".into(),
    };
    Reason {
        kind: "no_free_runner",
        message: format!("no runner can take it: {}", each.join("; ")),
        wakes,
        hint: (queue || all_elsewhere).then(|| "banksman run".into()),
        runners: runners.iter().map(|(runner, obstacles)| json!({ "runner": runner, "obstacles": said(obstacles) })).collect(),
        place,
        ..Reason::default()
    }
}

fn obstacle_words(obstacle: &Obstacle, at: Stamp) -> String {
    match obstacle {
        Obstacle::OtherSections(names) => {
            let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            format!("works only in {}", names.join(", "))
        }
        Obstacle::Full(1) => "has the one run that it may have".into(),
        Obstacle::Full(max) => format!("has all {max} runs that it may have"),
        Obstacle::Section(cause) => match &**cause {
            Cause::Taken { reason: Refusal::Section { name, holder, .. }, .. } => {
                let span = words::span(at.lease - holder.since.lease);
                let owner = holder.holder.as_str().replacen("runner:", "runner ", 1);
                format!("is kept out of section {name}, held by {owner} for {span}")
            }
            Cause::SectionBusy { name, run, .. } => {
                format!("is kept out of section {name}, where {} still lives", sentence::attended(run))
            }
            other => format!("is kept out of its section: {other:?}"),
        },
    }
}

/// A lock or slots that others have.
struct Taken<'a> {
    reason: &'a Refusal,
    holders: &'a [Holder],
    waiters: usize,
    /// The first in line.
    first: Option<&'a str>,
    ahead: u64,
    at: Stamp,
}

impl Taken<'_> {
    fn reason(self) -> Reason {
        let at = self.at;
        let held = |what: String, holder: &Holder| match (holder.over, self.first) {
            // What is over goes to the first in line, so that one is in the way.
            (Some(over), Some(first)) => {
                format!("{what} goes to {first}, the first in line; its holder {} is {over}", holder.holding.holder)
            }
            _ => format!("{what} is held by {} for {}", holder_words(holder), words::span(at.lease - holder.holding.since.lease)),
        };
        let first = self.holders.first();
        let (kind, message, hint) = match (self.reason, first) {
            (Refusal::TaskLock { resource, .. }, Some(holder)) => {
                ("task_lock", held(format!("its own {resource}"), holder), Some(format!("banksman locks show {}", resource.name)))
            }
            (Refusal::Lock { resource, .. }, Some(holder)) => {
                let hint = format!("banksman locks show {}", words::quoted(&resource.name));
                ("lock", held(resource.to_string(), holder), Some(hint))
            }
            (Refusal::Section { name, .. }, Some(holder)) => {
                ("section", held(format!("its exclusive section {name}"), holder), None)
            }
            (Refusal::Slots { resource, wanted, available, capacity, .. }, _) => {
                return self.slots(&resource.name.to_string(), *wanted, *available, *capacity);
            }
            (Refusal::Undefined { resource }, _) => (
                "undefined",
                format!("there is no {resource}"),
                Some(format!("banksman semaphores define {} --capacity N", words::quoted(&resource.name))),
            ),
            (Refusal::NoSlot { capacity, .. }, _) => ("no_slot", self.no_slot(*capacity), None),
            (refusal, _) => ("other", format!("{refusal:?}"), None),
        };
        let place = (kind == "no_slot").then_some(self.ahead + 1);
        let wakes = match (kind, first) {
            ("undefined", _) => "it may start when somebody defines it".into(),
            ("no_slot", _) => {
                format!("it is the {} in the queue for the next run that ends", words::ordinal(self.ahead as usize + 1))
            }
            ("section", _) => "it may start when that runner has nothing left to do there".into(),
            (_, Some(holder)) => self.freed(holder),
            (_, None) => "it may start when it is free".into(),
        };
        Reason {
            kind,
            message,
            wakes,
            hint,
            is_final: kind == "undefined",
            since: first.map(|holder| holder.holding.since),
            resource: self.reason.resource().map(|resource| resource.to_string()),
            holders: self.holders.iter().map(|holder| holder_json(holder, at)).collect(),
            waiters: self.waiters,
            place,
            ..Reason::default()
        }
    }

    fn slots(&self, name: &str, wanted: u32, available: u32, capacity: u32) -> Reason {
        let wanted_words = words::slots(wanted);
        let others = |number: usize| if number == 1 { "one stands".into() } else { format!("{number} stand") };
        let never = wanted > capacity;
        let message = match (never, available >= wanted, self.first) {
            (true, _, _) => format!("it needs {wanted_words} of semaphore {name}, which has only {capacity}"),
            (false, true, Some(first)) => {
                format!("{} in line for semaphore {name} before it, first {first}", others(self.waiters))
            }
            (false, true, None) => format!("semaphore {name} has as many holders as it can have"),
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
        let quoted = words::quoted(name);
        Reason {
            kind: "slots",
            message,
            wakes: match (never, self.first, self.holders.first()) {
                (true, _, _) => "it never fits, unless the semaphore grows".into(),
                (false, Some(_), _) => "it may start when the line is empty and enough slots are free".into(),
                (false, None, Some(holder)) if self.holders.len() == 1 => self.freed(holder),
                (false, None, _) => "it may start when enough slots are free".into(),
            },
            hint: Some(if never {
                format!("banksman semaphores define {quoted} --capacity {wanted}")
            } else {
                format!("banksman semaphores show {quoted}")
            }),
            is_final: never,
            since: self.holders.iter().map(|holder| holder.holding.since).min_by_key(|since| since.lease),
            resource: self.reason.resource().map(|resource| resource.to_string()),
            holders: self.holders.iter().map(|holder| holder_json(holder, self.at)).collect(),
            waiters: self.waiters,
            ..Reason::default()
        }
    }

    fn no_slot(&self, capacity: u32) -> String {
        let taken = match capacity {
            1 => "the only run slot is taken".into(),
            _ => format!("all {capacity} run slots are taken"),
        };
        let holders: Vec<String> = self.holders.iter().take(NAMED).map(holder_words).collect();
        let more = self.holders.len().saturating_sub(NAMED);
        match (self.holders.is_empty(), self.first) {
            (true, Some(first)) => format!("{} stand in line for a run slot before it, first {first}", self.waiters),
            (true, None) => "there is no run slot".into(),
            (false, _) if more > 0 => format!("{taken}, by {} and {more} more", holders.join(", ")),
            (false, _) => format!("{taken}, by {}", holders.join(", ")),
        }
    }

    /// What ends a grant.
    fn freed(&self, holder: &Holder) -> String {
        if let (Some(_), Some(first)) = (holder.over, self.first) {
            return format!("it may start when {first} and all behind it have had it");
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
            ways.push(format!("in {} if it is not renewed", words::span(until - self.at.lease)));
        }
        ways.join(", or ")
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

fn holder_json(holder: &Holder, at: Stamp) -> Value {
    let run = holder.run.as_ref();
    json!({
        "holder": holder.holding.holder,
        "since": words::rfc3339(holder.holding.since.wall),
        "expiresAt": holder.holding.until.map(|until| words::rfc3339(words::wall_of(until, at))),
        "state": holder.over.map_or("held".into(), |over| over.to_string()),
        "pids": holder.pids,
        "run": run.map(|(run, ..)| &run.id),
        "task": run.map(|(_, task, _)| task),
        "title": run.map(|(.., title)| title),
    })
}

fn dependency(chain: &Chain, at: Stamp) -> Reason {
    let mut message = format!("waits for {}", links(&chain.links));
    let last = chain.links.last();
    let name = last.map(|link| link.id.to_string()).unwrap_or_default();
    let mut reason = Reason {
        kind: "dependency",
        since: chain.links.first().and_then(|link| link.since),
        chain: chain.links.iter().map(link_json).collect(),
        wakes: "it may start when that is completed".into(),
        ..Reason::default()
    };
    match &chain.end {
        End::Gone => {
            message.push_str(", which does not exist any more");
            reason.wakes = "nothing will change that by itself".into();
            reason.is_final = true;
        }
        End::More => message.push_str(", which waits for others in turn"),
        End::Cycle(cycle) => {
            reason.cycle = cycle.iter().map(ToString::to_string).collect();
            message.push_str(&format!("; these wait for each other: {}", reason.cycle.join(" -> ")));
            reason.wakes = "nothing will change that by itself".into();
            reason.hint = Some(format!("banksman tasks update {name} --depends-on ''"));
            reason.is_final = true;
        }
        End::Because(answer) => {
            match &**answer {
                Answer::Waits(causes) => {
                    let because = last.map(|last| causes.iter().map(|cause| of(cause, &last.id, at)).collect());
                    reason.because = because.unwrap_or_default();
                    reason.is_final = reason.because.iter().any(|reason| reason.is_final);
                    // That is so for all tasks, and said of the first.
                    let for_runner = matches!(causes[..], [Cause::NoRunner]);
                    if for_runner {
                        reason.because.clear();
                    }
                    message.push_str(if for_runner { ", which waits for a runner" } else { ", which waits in turn:" });
                }
                Answer::Over { done, pipeline, .. } => {
                    reason.wakes = "that will not be completed by itself".into();
                    reason.is_final = true;
                    reason.hint = match (done, pipeline.as_ref().map(|pipeline| &pipeline.state)) {
                        (_, Some(State::Failed { recoverable: true, .. })) => Some(format!("banksman pipelines retry {name}")),
                        // Nothing brings that one back.
                        (Done::Failed { .. } | Done::Cancelled | Done::Skipped, Some(_)) => None,
                        (Done::Failed { .. } | Done::Cancelled | Done::Skipped, None) => {
                            Some(format!("banksman tasks retry {name}"))
                        }
                        (Done::Success { .. }, _) => Some(format!("banksman tasks show {name}")),
                    };
                }
                Answer::Review => {
                    reason.wakes = "it may start when somebody says that that is done".into();
                    reason.hint = Some(format!("banksman tasks done {name}"));
                }
                Answer::Parked { decision, .. } => {
                    reason.wakes = "it may start when somebody has decided and that is completed".into();
                    reason.hint = Some(format!("banksman decisions show {decision}"));
                }
                Answer::ByHand { .. } => reason.wakes = "it may start when somebody says that that is done".into(),
                Answer::InPhases(phases) => {
                    reason.because = phases::reasons(phases, at);
                    reason.is_final = reason.because.iter().any(|reason| reason.is_final);
                    // That is so for all tasks, and said of the first.
                    if reason.because.len() > 1 {
                        reason.because.retain(|reason| reason.kind != "no_runner");
                    }
                    reason.hint = reason.because.is_empty().then(|| format!("banksman pipelines show {name}"));
                }
                Answer::Starting(_) | Answer::Running { .. } | Answer::Stopping { .. } | Answer::Awaiting { .. } => {}
            }
            if !matches!(**answer, Answer::Waits(_)) {
                let changed = last.and_then(|link| link.since).unwrap_or(at);
                message.push_str(&format!(", which {}", sentence::answer(answer, changed, at)));
            }
        }
    }
    Reason { message, ..reason }
}

/// `Build (t-1), which waits for Compile (t-2)`. What is too long is counted in the middle.
fn links(links: &[Link]) -> String {
    let name = |link: &Link| match &link.title {
        Some(title) => format!("{title} ({})", link.id),
        None => link.id.to_string(),
    };
    let mut named: Vec<String> = links.iter().map(name).collect();
    if named.len() > 2 * NAMED + 1 {
        let counted = named.len() - 2 * NAMED;
        named.splice(NAMED..named.len() - NAMED, [format!("{counted} others one after the other")]);
    }
    named.join(", which waits for ")
}

fn link_json(link: &Link) -> Value {
    json!({
        "id": link.id,
        "title": link.title,
        "status": link.status.map(Status::as_str),
        "since": link.since.map(|since| words::rfc3339(since.wall)),
    })
}

/// A live run.
pub(super) fn run_json(run: &Attended) -> Value {
    json!({
        "id": run.id,
        "attempt": run.attempt,
        "runner": run.owner,
        "runnerState": super::life(run.life),
        "heir": run.heir,
        "startedAt": words::rfc3339(run.started.wall),
        "endedAt": null,
        "ending": null,
        "exitCode": null,
        "note": null,
        "keeperPid": run.session.as_ref().map(|session| session.keeper),
        "childPid": run.session.as_ref().map(|session| session.child),
    })
}

/// A run that has ended, with the same keys.
pub(super) fn ended_json(run: &Run) -> Value {
    let ended = run.ended.as_ref();
    let exit_code = ended.and_then(|ended| match &ended.ending {
        Ending::Exited(code) => Some(*code),
        Ending::Signalled(_) | Ending::NotStarted { .. } | Ending::Lost | Ending::Never => None,
    });
    json!({
        "id": run.id,
        "attempt": run.attempt,
        "runner": run.owner,
        "runnerState": null,
        "heir": null,
        "startedAt": words::rfc3339(run.started.wall),
        "endedAt": ended.map(|ended| words::rfc3339(ended.at)),
        "ending": ended.map(|ended| ended.ending.to_string()),
        "exitCode": exit_code,
        "note": ended.and_then(|ended| ended.note.as_deref()),
        "keeperPid": run.session.as_ref().map(|session| session.keeper),
        "childPid": run.session.as_ref().map(|session| session.child),
    })
}
