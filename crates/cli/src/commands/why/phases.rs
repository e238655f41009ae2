//! Pipelines as sentences.

use banksman_core::guard::GuardResult;
use banksman_core::pipeline::plan::Action;
use banksman_core::pipeline::{Pipeline, Reason as Blocked, State, When};
use banksman_core::task::State as TaskState;
use banksman_core::{DecisionId, Lease, Name, Stamp, Task, TaskId, Wall};
use banksman_engine::why::{Answer, Phases};

use super::reason::{self, Reason};
use super::sentence;
use crate::format;
use crate::views::why::Kind;

/// The state of a pipeline, its duration, and the next step for a person. `task` is the task of its phase, if known; a
/// pipeline that is an attempt at an item has no advice once it is over, because the item is retried instead.
pub(crate) fn standing(pipeline: &Pipeline, task: Option<&Task>, is_attempt: bool, at: Stamp) -> String {
    let why = detail(pipeline, task).map(|why| format!(": {why}")).unwrap_or_default();
    let as_of = match &pipeline.state {
        State::Blocked { reason: Blocked::Guard { looked, .. }, .. } => as_of(*looked, at),
        _ => String::new(),
    };
    let advice =
        advice(pipeline).filter(|_| !is_attempt || !pipeline.is_over()).map(|advice| format!(". {advice}")).unwrap_or_default();
    format!("{}{why}{as_of}{advice}", place(pipeline, at))
}

/// The current phase and its duration.
fn place(pipeline: &Pipeline, at: Stamp) -> String {
    let ago = format::span(at.lease - pipeline.phase_started.lease);
    match &pipeline.state {
        State::Init => "has not started".into(),
        State::Checking { phase, when } => {
            let names: Vec<&str> = pipeline.guards().iter().map(|guard| guard.name.as_str()).collect();
            let guards = if names.len() == 1 { "guard" } else { "guards" };
            format!("waits for {guards} {} {}", names.join(", "), side(*when, phase))
        }
        State::Running { phase, task: None, .. } => format!("is about to push an item, in phase {phase}"),
        State::Running { phase, approach, .. } => {
            let by = match pipeline.plan.phase(phase).map(|phase| &phase.action) {
                Some(Action::Strategy { approaches, .. }) => approaches.get(*approach as usize),
                Some(Action::Do(_) | Action::Push(_)) | None => None,
            };
            let by = by.map(|approach| format!(", by {}", approach.name)).unwrap_or_default();
            let (place, of) = (pipeline.plan.index(phase).map_or(0, |index| index + 1), pipeline.plan.phases.len());
            let attempt = match pipeline.attempt {
                1 => String::new(),
                number => format!(", the {} attempt", format::ordinal(number as usize)),
            };
            format!("has been in phase {phase} ({place} of {of}{by}{attempt}) for {ago}")
        }
        State::Blocked { phase, reason: Blocked::Dependencies, .. } => format!("is blocked before phase {phase}"),
        State::Blocked { phase, when, reason: Blocked::Guard { .. } | Blocked::Overdue { .. } } => {
            format!("is blocked {}, for {ago}", side(*when, phase))
        }
        State::Blocked { phase, reason: Blocked::Decision { .. }, .. } => format!("is blocked in phase {phase}"),
        State::Done => "is done".into(),
        State::Failed { phase, .. } => format!("has failed in phase {phase}"),
        State::Cancelled { phase: Some(phase) } => format!("was cancelled in phase {phase}"),
        State::Cancelled { phase: None } => "was cancelled before it started".into(),
    }
}

/// The reason for the state, in a few words.
pub(crate) fn detail(pipeline: &Pipeline, task: Option<&Task>) -> Option<String> {
    match &pipeline.state {
        State::Blocked { reason: Blocked::Dependencies, .. } => Some("waiting for dependencies".into()),
        State::Blocked { reason: Blocked::Guard { guard, part, .. } | Blocked::Overdue { guard, part, .. }, .. } => {
            Some(format!("guard {guard}: {part}"))
        }
        State::Blocked { reason: Blocked::Decision { task, .. }, .. } => Some(format!("its task {task} waits for a decision")),
        State::Failed { error, .. } => Some(error.to_string()),
        State::Running { task: Some(_), .. } => {
            task.filter(|task| task.state == TaskState::Pending).map(|task| not_started(&task.id))
        }
        State::Init | State::Checking { .. } | State::Running { .. } | State::Done | State::Cancelled { .. } => None,
    }
}

/// The age of a guard's result.
fn as_of(looked: Wall, at: Stamp) -> String {
    if looked.0 == 0 { String::new() } else { format!(" (as of {} ago)", format::span(at.wall - looked)) }
}

fn not_started(task: &TaskId) -> String {
    format!("its task {task} has not started")
}

/// What a person can do about a pipeline that does not continue by itself.
pub(super) fn advice(pipeline: &Pipeline) -> Option<String> {
    let id = &pipeline.id;
    match &pipeline.state {
        State::Blocked { reason: Blocked::Guard { .. }, .. } => {
            Some(format!("To see what unblocks it: banksman why {id}. To continue regardless: banksman pipelines unblock {id}"))
        }
        State::Blocked { reason: Blocked::Dependencies, .. } => {
            Some(format!("To continue regardless: banksman pipelines unblock {id}"))
        }
        State::Blocked { reason: Blocked::Decision { decision, .. } | Blocked::Overdue { decision, .. }, .. } => {
            Some(format!("Answer with: banksman decisions resolve {decision} N"))
        }
        State::Failed { recoverable: true, .. } => Some(format!("To retry the phase: banksman pipelines retry {id}")),
        State::Failed { recoverable: false, .. } => {
            Some(format!("This is final; to start a new pipeline: {}", restart(pipeline)))
        }
        State::Init | State::Checking { .. } | State::Running { .. } | State::Done | State::Cancelled { .. } => None,
    }
}

/// The command that starts a new pipeline with the same variables.
pub(crate) fn restart(pipeline: &Pipeline) -> String {
    let vars = pipeline.plan.vars.iter().filter_map(|(name, default)| {
        let value = pipeline.context.get(name).filter(|value| default.as_ref() != Some(*value))?;
        let word = match value.as_str() {
            Some(text) => format!("{name}={text}"),
            None => format!("{name}:={value}"),
        };
        Some(format!(" --var {}", format::quoted(word)))
    });
    // Another runbook may have a pipeline of this name, now or when the command is executed.
    let (name, runbook) = (format::quoted(&pipeline.plan.name), format::quoted(&*pipeline.plan.runbook));
    format!("banksman pipelines start {name} --runbook {runbook}{}", vars.collect::<String>())
}

/// The current phase, with the state of its task.
pub(super) fn in_phases(phases: &Phases, at: Stamp) -> String {
    let Phases { pipeline, phase, .. } = phases;
    let place = place(pipeline, at);
    match (&pipeline.state, phase) {
        (State::Running { .. }, Some((task, Answer::Waits(causes)))) => {
            format!("{place}, but {}: {}", not_started(task), sentence::headline(causes))
        }
        (State::Running { .. }, Some((task, answer))) => {
            format!("{place}: its task {task} {}", sentence::answer(answer, pipeline.phase_started, at))
        }
        _ => place,
    }
}

/// Whether only a runner can continue the pipeline: it waits for something other than a task.
pub(crate) fn needs_runner(pipeline: &Pipeline) -> bool {
    match &pipeline.state {
        State::Checking { .. } | State::Running { task: None, .. } | State::Blocked { reason: Blocked::Guard { .. }, .. } => true,
        State::Init
        | State::Running { .. }
        | State::Blocked { .. }
        | State::Done
        | State::Failed { .. }
        | State::Cancelled { .. } => false,
    }
}

/// The reasons why the pipeline, or the task of its phase, does not continue.
pub(super) fn reasons(phases: &Phases, at: Stamp) -> Vec<Reason> {
    let pipeline = &phases.pipeline;
    let no_runner = (needs_runner(pipeline) && !phases.has_runner).then(|| Reason {
        kind: Kind::NoRunner,
        message: "no runner is running".into(),
        wakes: "it continues when a runner is running".into(),
        hint: Some("banksman run".into()),
        is_final: true,
        ..Reason::default()
    });
    let own = match (&pipeline.state, &phases.phase) {
        (State::Blocked { reason: Blocked::Guard { guard, part, again, looked, .. }, .. }, _) => {
            let (message, part) = match &phases.guard {
                Some(GuardResult::Passed) => {
                    (format!("guard {guard} passes now; the last check found: {part}{}", as_of(*looked, at)), part)
                }
                Some(GuardResult::Failed { part, .. }) => (format!("guard {guard} does not pass: {part}"), part),
                None => (format!("guard {guard} does not pass: {part}{}", as_of(*looked, at)), part),
            };
            let (wakes, hint) = remedy(pipeline, guard, part);
            let wakes = wakes.unwrap_or_else(|| next_check(*again, phases.has_runner, at));
            let regardless = format!("to continue regardless: banksman pipelines unblock {}", pipeline.id);
            vec![Reason {
                kind: Kind::Guard,
                message,
                wakes: format!("{wakes}; {}{regardless}", limit(pipeline, at)),
                hint: Some(hint),
                since: Some(pipeline.phase_started.into()),
                resource: Some(format!("guard {guard}")),
                ..Reason::default()
            }]
        }
        (State::Blocked { reason: Blocked::Overdue { guard, part, decision, .. }, .. }, _) => {
            vec![undecided(decision, format!("guard {guard} has failed for too long: {part}"))]
        }
        (State::Blocked { reason: Blocked::Decision { decision, task, .. }, .. }, _) => {
            vec![undecided(decision, format!("its task {task} waits for decision {decision}"))]
        }
        (_, Some((task, Answer::Waits(causes)))) => causes.iter().map(|cause| reason::of(cause, task, at)).collect(),
        _ => Vec::new(),
    };
    own.into_iter().chain(no_runner).collect()
}

/// A reason for a pipeline that waits for a decision.
fn undecided(decision: &DecisionId, message: String) -> Reason {
    Reason {
        kind: Kind::Decision,
        message,
        wakes: "it continues when the decision is made".into(),
        hint: Some(format!("banksman decisions show {decision}")),
        resource: Some(format!("decision {decision}")),
        ..Reason::default()
    }
}

/// When a guard can pass, if an event of the store decides, and the command that shows or causes it. `part` is the
/// failing condition.
fn remedy(pipeline: &Pipeline, guard: &Name, part: &str) -> (Option<String>, String) {
    let asked = pipeline.guards().iter().find(|asked| asked.name == *guard);
    let wants = asked.map(|asked| asked.wants(&pipeline.context)).filter(|wants| !wants.asks_outside()).unwrap_or_default();
    let continues = |when: String| Some(format!("it continues when {when}"));
    let is_named = |name: &str| part.split(' ').any(|word| word == name);
    if let Some(lock) = wants.locks.iter().find(|lock| is_named(lock)) {
        let change = if part.contains(&format!("lock {lock} is free")) { "acquired" } else { "released" };
        return (continues(format!("lock {lock} is {change}")), format!("banksman locks show {}", format::quoted(&**lock)));
    }
    if let Some(name) = wants.semaphores.iter().find(|name| is_named(name)) {
        let word = format::quoted(&**name);
        return match part.contains(&format!("semaphore {name} is not there")) {
            true => {
                (continues(format!("semaphore {name} is defined")), format!("banksman semaphores define {word} --capacity N"))
            }
            false => (continues(format!("a slot of {name} is released")), format!("banksman semaphores show {word}")),
        };
    }
    if let Some(other) = wants.pipelines.first() {
        return (continues(format!("pipeline {other} continues")), format!("banksman why {}", format::quoted(&**other)));
    }
    if let Some(task) = wants.issues.iter().flat_map(|filter| &filter.ids).find_map(|id| id.literal()) {
        return (continues(format!("task {task} has changed")), format!("banksman why {}", format::quoted(task)));
    }
    let vars = asked.iter().flat_map(|asked| asked.vars()).filter_map(|var| {
        let value = pipeline.context.get(var)?;
        let word = value.as_str().map_or_else(|| format!("{var}:={value}"), |text| format!("{var}={text}"));
        Some(format!(" --var {}", format::quoted(word)))
    });
    let runbook = format::quoted(&*pipeline.plan.runbook);
    (None, format!("banksman guards check {} --runbook {runbook}{}", format::quoted(guard.as_str()), vars.collect::<String>()))
}

/// When a guard that keeps failing times out. A guard that reads only the store does not time out; it only notifies.
fn limit(pipeline: &Pipeline, at: Stamp) -> String {
    let State::Blocked { when, reason: Blocked::Guard { guard, .. }, .. } = &pipeline.state else { return String::new() };
    let asked = pipeline.guards().iter().find(|asked| asked.name == *guard);
    let has_end = *when == When::Post || asked.is_some_and(|asked| asked.wants(&pipeline.context).asks_outside());
    let left = pipeline.overdue.map(|overdue| overdue - at.lease).filter(|left| left.as_ms() > 0).map(format::span);
    match (left, has_end) {
        (Some(left), true) => format!("it may block for {left} more; "),
        (Some(left), false) => format!("a notification is sent in {left}; "),
        (None, _) => String::new(),
    }
}

/// When the guard is checked again.
fn next_check(again: Lease, has_runner: bool, at: Stamp) -> String {
    match (has_runner, again > at.lease) {
        (true, true) => format!("it is checked again in {} at the latest", format::span(again - at.lease)),
        (true, false) => "it is about to be checked again".into(),
        (false, _) => "it is checked again when a runner is running".into(),
    }
}

/// The side of the phase.
pub(crate) fn side(when: When, phase: &Name) -> String {
    match when {
        When::Pre => format!("before phase {phase}"),
        When::Post => format!("at the end of phase {phase}"),
    }
}
