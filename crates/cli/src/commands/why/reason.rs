//! One reason: what blocks the task, its holders, since when, and when the task continues.

use banksman_core::agent::limit::{AccountLimit, BUDGET, LOGIN, State};
use banksman_core::task::RetryReason;
use banksman_core::task::admission::Reason as Refusal;
use banksman_core::{Name, Pause, RunnerId, Span, Stamp, TaskId, Title};
use banksman_engine::why::{Cause, Life, Obstacle};
use serde::Serialize;

use super::dependency::dependency;
use super::sentence;
use super::taken::Taken;
use crate::commands::pausing;
use crate::format;
use crate::printer::{DIM, RED, YELLOW};
use crate::views::why::{HolderView, Kind, LinkView, RunnerView};
use crate::views::{Time, accounts};

/// The number of names listed; the others are only counted. Of a chain, this many at each end.
pub(super) const NAMED: usize = 3;

/// A reason as text and as data. Fields that do not apply to its kind are empty.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Reason {
    pub(super) kind: Kind,
    pub(super) message: String,
    /// When the task continues.
    pub(super) wakes: String,
    /// The command for a person.
    pub(super) hint: Option<String>,
    /// Whether nothing will change without a person.
    #[serde(skip)]
    pub(super) is_final: bool,
    pub(super) since: Option<Time>,
    pub(super) resource: Option<String>,
    pub(super) holders: Vec<HolderView>,
    pub(super) waiters: usize,
    pub(super) chain: Vec<LinkView>,
    pub(super) cycle: Vec<String>,
    pub(super) because: Vec<Reason>,
    pub(super) runners: Vec<RunnerView>,
    pub(super) place: Option<u64>,
}

impl Reason {
    /// Appends the reason to a text, with nested reasons below it.
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
}

/// The reason for a cause.
pub(super) fn of(cause: &Cause, task: &TaskId, at: Stamp) -> Reason {
    match cause {
        Cause::Manual => Reason {
            kind: Kind::ByHand,
            message: "it is manual: it has no command".into(),
            wakes: "it ends when a person reports it (tasks done)".into(),
            hint: Some(format!("banksman tasks done {task}")),
            ..Reason::default()
        },
        Cause::Paused { pause, is_task } => paused(pause, task, *is_task),
        Cause::Backoff { until, not_begun, agent } => Reason {
            kind: if not_begun.is_some() { Kind::NotBegun } else { Kind::Resting },
            message: match (not_begun, agent) {
                (Some(error), _) => format!("its last run could not start: {error}"),
                (None, Some((agent, why, said))) => kept_from_working(agent, *why, said),
                (None, None) => "it is in backoff between two attempts".into(),
            },
            wakes: format!("it may start in {}", format::span(*until - at.lease)),
            ..Reason::default()
        },
        Cause::Roots { limit, roots, ahead } => {
            let place = ahead + 1;
            let earlier = if roots.len() < *limit as usize { "; earlier roots take the remaining places" } else { "" };
            let root = |(id, title, since): &(TaskId, Title, Stamp)| HolderView::Root {
                holder: id.clone(),
                title: title.clone(),
                since: (*since).into(),
            };
            let names: Vec<String> = roots.iter().take(NAMED).map(|(id, title, _)| format!("{title} ({id})")).collect();
            let more = if roots.len() > NAMED { format!(" and {} more", roots.len() - NAMED) } else { String::new() };
            Reason {
                kind: Kind::NoRootSlot,
                message: match names.is_empty() {
                    true => format!("{} of {limit} roots are in progress{earlier}", roots.len()),
                    false => format!("{} of {limit} roots are in progress: {}{more}{earlier}", roots.len(), names.join(", ")),
                },
                wakes: format!("it is the {} in the queue for the next root that ends", format::ordinal(place as usize)),
                hint: Some("banksman config set limits.max_concurrent_root_tasks N".into()),
                holders: roots.iter().map(root).collect(),
                place: Some(place),
                ..Reason::default()
            }
        }
        Cause::Dependency(chain) => dependency(chain, at),
        Cause::PassedOn { task } => Reason {
            kind: Kind::Dependency,
            message: format!("task {task} has ended, and its many dependents are being updated"),
            wakes: "it continues when a runner has updated it".into(),
            hint: Some("banksman doctor".into()),
            resource: Some(format!("task {task}")),
            ..Reason::default()
        },
        Cause::Taken { reason, holders, line, ahead } => {
            let first = line.first().map(|(holder, _)| holder.as_str());
            let taken = Taken { reason, holders, waiters: line.len(), first, ahead: *ahead, at };
            taken.reason()
        }
        Cause::AccountLimit { agent, limit } => account_limit(agent, limit),
        Cause::SectionBusy { name, run, task } => Reason {
            kind: Kind::SectionBusy,
            message: format!("{} (task {task}) is still live in its exclusive section {name}", sentence::attended(run)),
            wakes: match (run.life, &run.heir) {
                (Life::Gone, None) => "the next runner adopts that run, and may then start this task".into(),
                (Life::Gone, Some(heir)) => format!("runner {heir} adopts that run, and may then start this task"),
                (Life::Alive | Life::Unknown, _) => "it may start when that run has ended".into(),
            },
            since: Some(run.started.into()),
            ..Reason::default()
        },
        Cause::NoRunner { .. } => Reason {
            kind: Kind::NoRunner,
            message: "no runner is running".into(),
            wakes: "it continues when a runner starts".into(),
            hint: Some("banksman run".into()),
            is_final: true,
            place: cause.position(),
            ..Reason::default()
        },
        Cause::NoRunnerFree { runners, ahead } => no_runner_free(runners, *ahead, at),
    }
}

fn paused(pause: &Pause, task: &TaskId, is_task: bool) -> Reason {
    let resume = if is_task { format!("banksman resume {task}") } else { "banksman resume".into() };
    Reason {
        kind: if is_task { Kind::Stopped } else { Kind::Paused },
        message: match is_task {
            true => format!("{} has stopped it ({})", pause.by, format::ago(pause.at)),
            false => format!("the project is paused: {}", pausing::because(pause)),
        },
        wakes: match is_task {
            true => "it may start when a person resumes it".into(),
            false if pause.verb.is_lifted_by_run() => "it may start when a person resumes the project, or starts a runner".into(),
            false => "it may start when a person resumes the project".into(),
        },
        hint: Some(resume),
        is_final: true,
        since: Some(Time(pause.at)),
        ..Reason::default()
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
    let is_short = |obstacles: &[Obstacle]| obstacles.iter().any(|obstacle| matches!(obstacle, Obstacle::Short(_)));
    let short = runners.iter().any(|(_, obstacles)| is_short(obstacles));
    let view =
        |(runner, obstacles): &(RunnerId, Vec<Obstacle>)| RunnerView { runner: runner.clone(), obstacles: said(obstacles) };
    let wakes = match place {
        None if short => "it starts when the machine has enough resources again; no attempt is used up meanwhile".into(),
        Some(place) => format!("it is the {} in the queue for the next run that ends", format::ordinal(place as usize)),
        None if all_elsewhere => "it starts when a runner works in its section".into(),
        None => "it starts when one of these runners can take it".into(),
    };
    Reason {
        kind: if short { Kind::Shortage } else { Kind::NoFreeRunner },
        message: format!("no runner can take it: {}", each.join("; ")),
        wakes,
        hint: (queue || all_elsewhere).then(|| "banksman run".into()),
        runners: runners.iter().map(view).collect(),
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
        Obstacle::Full(1) => "has reached its limit of 1 run".into(),
        Obstacle::Full(max) => format!("has reached its limit of {max} runs"),
        Obstacle::Short(shortage) => {
            let (since, next) = (at.lease - shortage.since.lease, shortage.until - at.lease);
            format!(
                "has been unable to start more runs for {}: {}; it retries in {}",
                format::span(since),
                shortage.error,
                format::span(next.max(Span::ZERO))
            )
        }
        Obstacle::Section(cause) => match &**cause {
            Cause::Taken { reason: Refusal::Section { name, holder, .. }, .. } => {
                let span = format::span(at.lease - holder.since.lease);
                let owner = holder.holder.as_str().replacen("runner:", "runner ", 1);
                format!("waits for section {name}, held by {owner} for {span}")
            }
            Cause::SectionBusy { name, run, .. } => {
                format!("waits for section {name}, where {} is still live", sentence::attended(run))
            }
            Cause::Taken { .. }
            | Cause::Manual
            | Cause::Paused { .. }
            | Cause::Backoff { .. }
            | Cause::Roots { .. }
            | Cause::Dependency(_)
            | Cause::PassedOn { .. }
            | Cause::AccountLimit { .. }
            | Cause::NoRunner { .. }
            | Cause::NoRunnerFree { .. } => "waits for the section of the task".into(),
        },
    }
}

/// The reason for a limited account.
fn account_limit(agent: &Name, limit: &AccountLimit) -> Reason {
    let said = if limit.text.is_empty() { String::new() } else { format!(": {}", format::one_line(&limit.text)) };
    let is_login = &*limit.scope.kind == LOGIN;
    Reason {
        kind: match &*limit.scope.kind {
            LOGIN => Kind::Login,
            BUDGET => Kind::Budget,
            _ => Kind::Quota,
        },
        message: format!("{}{said}", accounts::sentence(limit)),
        wakes: match (&limit.state, &*limit.scope.kind) {
            (_, BUDGET) => "it may start when the day is over, or the budget is raised".into(),
            (State::Probing { .. }, _) => "it may start when that run has its first answer".into(),
            _ => format!("one run probes it {}, and the others follow", format::away(limit.resets())),
        },
        hint: match &*limit.scope.kind {
            BUDGET => Some("banksman config set budget.day N".into()),
            _ if is_login => Some(format!("banksman agents check {agent}, and then: banksman agents retry {agent}")),
            _ => None,
        },
        since: Some(Time(limit.since)),
        resource: Some(limit.name.to_string()),
        ..Reason::default()
    }
}

/// Why an agent cannot work.
fn kept_from_working(agent: &Name, why: RetryReason, said: &str) -> String {
    let what = match why {
        RetryReason::Overloaded => "its provider is overloaded",
        RetryReason::Network => "its provider cannot be reached",
        _ => "it only retried",
    };
    if said.is_empty() { format!("{agent}: {what}") } else { format!("{agent}: {what}: {}", format::one_line(said)) }
}
