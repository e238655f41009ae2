//! Pipelines in sentences.

use banksman::core::pipeline::{Pipeline, Reason, State, When};
use banksman::core::{Stamp, TaskId};
use banksman::engine::why::Answer;

use super::sentence;
use crate::words;

/// How a pipeline stands, and since when.
pub(crate) fn standing(pipeline: &Pipeline, at: Stamp) -> String {
    let id = &pipeline.id;
    let ago = || words::span(at.lease - pipeline.phase_started.lease);
    match &pipeline.state {
        State::Init => "has not begun".into(),
        State::Checking { phase, when } => format!("looks at the guards {} phase {phase}", side(*when)),
        State::Running { phase, task: None, .. } => format!("puts an item into a queue, in phase {phase}"),
        State::Running { phase, .. } => {
            let (place, of) = (pipeline.plan.index(phase).map_or(0, |index| index + 1), pipeline.plan.phases.len());
            let attempt = match pipeline.attempt {
                1 => String::new(),
                number => format!(", the {} attempt", words::ordinal(number as usize)),
            };
            format!("has been in phase {phase} ({place} of {of}{attempt}) for {}", ago())
        }
        State::Blocked { phase, reason: Reason::Dependencies, .. } => format!("waits for others before phase {phase}"),
        State::Blocked { phase, when, reason: Reason::Guard { guard, part, .. } } => format!(
            "is blocked {} phase {phase}, for {} by now: guard {guard} does not hold: {part}. To go on regardless: banksman pipelines unblock {id}",
            side(*when),
            ago(),
        ),
        State::Blocked { phase, reason: Reason::Decision { decision, .. }, .. } => {
            format!("is blocked in phase {phase} by a question. Answer with: banksman decisions resolve {decision} N")
        }
        State::Done => "is done".into(),
        State::Failed { phase, error, recoverable } => {
            let then = match recoverable {
                true => format!(". To try that phase again: banksman pipelines retry {id}"),
                false => ". That is final".into(),
            };
            format!("has failed in phase {phase}: {error}{then}")
        }
        State::Cancelled { phase } => match phase {
            Some(phase) => format!("was cancelled in phase {phase}"),
            None => "was cancelled before it began".into(),
        },
    }
}

/// The same with what is the matter with the task of its phase.
pub(super) fn in_phases(pipeline: &Pipeline, phase: Option<&(TaskId, Box<Answer>)>, at: Stamp) -> String {
    let standing = standing(pipeline, at);
    match (&pipeline.state, phase) {
        (State::Running { .. }, Some((task, answer))) => {
            format!("{standing}: its task {task} {}", sentence::answer(answer, pipeline.phase_started, at))
        }
        _ => standing,
    }
}

fn side(when: When) -> &'static str {
    match when {
        When::Pre => "before",
        When::Post => "at the end of",
    }
}
