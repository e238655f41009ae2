//! Pipelines in sentences.

use banksman_core::guard::GuardResult;
use banksman_core::pipeline::plan::Action;
use banksman_core::pipeline::{Pipeline, Reason as Blocked, State, When};
use banksman_core::task::State as TaskState;
use banksman_core::{Lease, Name, Stamp, Task, TaskId, Wall};
use banksman_engine::why::{Answer, Phases};

use super::reason::{self, Reason};
use super::sentence;
use crate::words;

/// How a pipeline stands, since when, and what can be done about it. With the task of its phase, if that is known; an attempt at an
/// item is not the one to be tried again.
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

/// Where it is, and since when.
fn place(pipeline: &Pipeline, at: Stamp) -> String {
    let ago = words::span(at.lease - pipeline.phase_started.lease);
    match &pipeline.state {
        State::Init => "has not begun".into(),
        State::Checking { phase, when } => {
            let names: Vec<&str> = pipeline.guards().iter().map(|guard| guard.name.as_str()).collect();
            let guards = if names.len() == 1 { "guard" } else { "guards" };
            format!("waits for the answer of {guards} {} {}", names.join(", "), side(*when, phase))
        }
        State::Running { phase, task: None, .. } => format!("is to put an item into a queue, in phase {phase}"),
        State::Running { phase, approach, .. } => {
            let by = match pipeline.plan.phase(phase).map(|phase| &phase.action) {
                Some(Action::Strategy { approaches, .. }) => approaches.get(*approach as usize),
                Some(Action::Do(_) | Action::Push(_)) | None => None,
            };
            let by = by.map(|approach| format!(", by {}", approach.name)).unwrap_or_default();
            let (place, of) = (pipeline.plan.index(phase).map_or(0, |index| index + 1), pipeline.plan.phases.len());
            let attempt = match pipeline.attempt {
                1 => String::new(),
                number => format!(", the {} attempt", words::ordinal(number as usize)),
            };
            format!("has been in phase {phase} ({place} of {of}{by}{attempt}) for {ago}")
        }
        State::Blocked { phase, reason: Blocked::Dependencies, .. } => format!("is blocked before phase {phase}"),
        State::Blocked { phase, when, reason: Blocked::Guard { .. } | Blocked::Overdue { .. } } => {
            format!("is blocked {}, for {ago} by now", side(*when, phase))
        }
        State::Blocked { phase, reason: Blocked::Decision { .. }, .. } => format!("is blocked in phase {phase}"),
        State::Done => "is done".into(),
        State::Failed { phase, .. } => format!("has failed in phase {phase}"),
        State::Cancelled { phase: Some(phase) } => format!("was cancelled in phase {phase}"),
        State::Cancelled { phase: None } => "was cancelled before it began".into(),
    }
}

/// Why it stands so, in a few words.
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

/// How old the answer of a guard is.
fn as_of(looked: Wall, at: Stamp) -> String {
    if looked.0 == 0 { String::new() } else { format!(" (as of {} ago)", words::span(at.wall - looked)) }
}

fn not_started(task: &TaskId) -> String {
    format!("its task {task} has not started")
}

/// What a person can do about one that does not go on by itself.
pub(super) fn advice(pipeline: &Pipeline) -> Option<String> {
    let id = &pipeline.id;
    match &pipeline.state {
        State::Blocked { reason: Blocked::Guard { .. }, .. } => {
            Some(format!("What frees it: banksman why {id}. To go on regardless: banksman pipelines unblock {id}"))
        }
        State::Blocked { reason: Blocked::Dependencies, .. } => {
            Some(format!("To go on regardless: banksman pipelines unblock {id}"))
        }
        State::Blocked { reason: Blocked::Decision { decision, .. } | Blocked::Overdue { decision, .. }, .. } => {
            Some(format!("Answer with: banksman decisions resolve {decision} N"))
        }
        State::Failed { recoverable: true, .. } => Some(format!("To try that phase again: banksman pipelines retry {id}")),
        State::Failed { recoverable: false, .. } => Some(format!("That is final; to start a new one: {}", anew(pipeline))),
        State::Init | State::Checking { .. } | State::Running { .. } | State::Done | State::Cancelled { .. } => None,
    }
}

/// The command that starts another one like it.
pub(crate) fn anew(pipeline: &Pipeline) -> String {
    let vars = pipeline.plan.vars.iter().filter_map(|(name, default)| {
        let value = pipeline.context.get(name).filter(|value| default.as_ref() != Some(*value))?;
        let word = match value.as_str() {
            Some(text) => format!("{name}={text}"),
            None => format!("{name}:={value}"),
        };
        Some(format!(" --var {}", words::quoted(word)))
    });
    // Another runbook may have one of this name, now or when somebody does as this says.
    let (name, runbook) = (words::quoted(&pipeline.plan.name), words::quoted(&*pipeline.plan.runbook));
    format!("banksman pipelines start {name} --runbook {runbook}{}", vars.collect::<String>())
}

/// Where it is, with what is the matter with the task of its phase.
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

/// Whether it goes on only if a runner looks at it: what it waits for is no task.
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

/// What stands in its way, or in the way of the task of its phase.
pub(super) fn reasons(phases: &Phases, at: Stamp) -> Vec<Reason> {
    let pipeline = &phases.pipeline;
    let no_runner = (needs_runner(pipeline) && !phases.has_runner).then(|| Reason {
        kind: "no_runner",
        message: "no runner is alive".into(),
        wakes: "it goes on when a runner looks at it".into(),
        hint: Some("banksman run".into()),
        is_final: true,
        ..Reason::default()
    });
    let own = match (&pipeline.state, &phases.phase) {
        (State::Blocked { reason: Blocked::Guard { guard, part, again, looked, .. }, .. }, _) => {
            let message = match &phases.guard {
                Some(GuardResult::Passed) => {
                    format!("guard {guard} holds by now; the last look found: {part}{}", as_of(*looked, at))
                }
                Some(GuardResult::Failed { part, .. }) => format!("guard {guard} does not pass: {part}"),
                None => format!("guard {guard} does not pass: {part}{}", as_of(*looked, at)),
            };
            let (wakes, hint) = remedy(pipeline, guard);
            let wakes = wakes.unwrap_or_else(|| next_look(*again, phases.has_runner, at));
            let regardless = format!("to go on whatever the guard says: banksman pipelines unblock {}", pipeline.id);
            vec![Reason {
                kind: "guard",
                message,
                wakes: format!("{wakes}; {}{regardless}", limit(pipeline, at)),
                hint: Some(hint),
                since: Some(pipeline.phase_started.into()),
                resource: Some(format!("guard {guard}")),
                ..Reason::default()
            }]
        }
        (State::Blocked { reason: Blocked::Overdue { guard, part, decision, .. }, .. }, _) => vec![Reason {
            kind: "decision",
            message: format!("guard {guard} has not held for too long: {part}"),
            wakes: "it goes on when somebody has decided".into(),
            hint: Some(format!("banksman decisions show {decision}")),
            resource: Some(format!("decision {decision}")),
            ..Reason::default()
        }],
        (State::Blocked { reason: Blocked::Decision { decision, task, .. }, .. }, _) => vec![Reason {
            kind: "decision",
            message: format!("its task {task} waits for decision {decision}"),
            wakes: "it goes on when somebody has decided".into(),
            hint: Some(format!("banksman decisions show {decision}")),
            resource: Some(format!("decision {decision}")),
            ..Reason::default()
        }],
        (_, Some((task, Answer::Waits(causes)))) => causes.iter().map(|cause| reason::of(cause, task, at)).collect(),
        _ => Vec::new(),
    };
    own.into_iter().chain(no_runner).collect()
}

/// What frees a guard, as a sentence if an event does, and the command that shows or does it.
fn remedy(pipeline: &Pipeline, guard: &Name) -> (Option<String>, String) {
    let asked = pipeline.guards().iter().find(|asked| asked.name == *guard);
    let wants = asked.map(|asked| asked.wants(&pipeline.context)).unwrap_or_default();
    let released = |what: String| Some(format!("it goes on as soon as {what} is released"));
    let task = wants.issues.iter().flat_map(|filter| &filter.ids).find_map(|id| id.literal());
    if let Some(lock) = wants.locks.first().filter(|_| !wants.asks_outside()) {
        return (released(format!("lock {lock}")), format!("banksman locks show {}", words::quoted(&**lock)));
    }
    if let Some(name) = wants.semaphores.first().filter(|_| !wants.asks_outside()) {
        return (released(format!("a slot of {name}")), format!("banksman semaphores show {}", words::quoted(&**name)));
    }
    if let Some(other) = wants.pipelines.first().filter(|_| !wants.asks_outside()) {
        return (Some(format!("it goes on when pipeline {other} does")), format!("banksman why {}", words::quoted(&**other)));
    }
    if let Some(task) = task.filter(|_| !wants.asks_outside()) {
        return (Some(format!("it goes on when task {task} has changed")), format!("banksman why {}", words::quoted(task)));
    }
    let vars = asked.iter().flat_map(|asked| asked.vars()).filter_map(|var| {
        let value = pipeline.context.get(var)?;
        let word = value.as_str().map_or_else(|| format!("{var}:={value}"), |text| format!("{var}={text}"));
        Some(format!(" --var {}", words::quoted(word)))
    });
    let runbook = words::quoted(&*pipeline.plan.runbook);
    (None, format!("banksman guards check {} --runbook {runbook}{}", words::quoted(guard.as_str()), vars.collect::<String>()))
}

/// What happens if a guard does not hold in time.
fn limit(pipeline: &Pipeline, at: Stamp) -> String {
    let left = pipeline.overdue.map(|overdue| overdue - at.lease).filter(|left| left.as_ms() > 0);
    left.map(|left| format!("it may block for {} more; ", words::span(left))).unwrap_or_default()
}

/// When a guard is looked at again.
fn next_look(again: Lease, has_runner: bool, at: Stamp) -> String {
    match (has_runner, again > at.lease) {
        (true, true) => format!("it is looked at again in {} at the latest", words::span(again - at.lease)),
        (true, false) => "it is about to be looked at again".into(),
        (false, _) => "nobody looks at it again before a runner does".into(),
    }
}

/// On which side of a phase.
pub(crate) fn side(when: When, phase: &Name) -> String {
    match when {
        When::Pre => format!("before phase {phase}"),
        When::Post => format!("at the end of phase {phase}"),
    }
}
