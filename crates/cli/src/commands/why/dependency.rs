//! Dependencies, and what these wait for in turn.

use banksman_core::Stamp;
use banksman_core::pipeline::State;
use banksman_core::task::TaskEnd;
use banksman_engine::why::{Answer, Cause, Chain, ChainEnd, Link};

use super::reason::{self, NAMED, Reason};
use super::{phases, sentence};
use crate::views::why::Kind;

/// The reason for a chain of dependencies.
pub(super) fn dependency(chain: &Chain, at: Stamp) -> Reason {
    let mut message = format!("waits for {}", links(&chain.links));
    let last = chain.links.last();
    let name = last.map(|link| link.id.to_string()).unwrap_or_default();
    let mut reason = Reason {
        kind: Kind::Dependency,
        since: chain.links.first().and_then(|link| link.since).map(Into::into),
        chain: chain.links.iter().map(Into::into).collect(),
        wakes: "it may start when that task is completed".into(),
        ..Reason::default()
    };
    match &chain.end {
        ChainEnd::Gone => {
            message.push_str(", which no longer exists");
            reason.wakes = "needs a person".into();
            reason.is_final = true;
        }
        ChainEnd::More => message.push_str(", which waits for further tasks"),
        ChainEnd::Cycle(cycle) => {
            reason.cycle = cycle.iter().map(ToString::to_string).collect();
            message.push_str(&format!("; these wait for each other: {}", reason.cycle.join(" -> ")));
            reason.wakes = "needs a person".into();
            reason.hint = Some(format!("banksman tasks update {name} --depends-on ''"));
            reason.is_final = true;
        }
        ChainEnd::Because(answer) => {
            match &**answer {
                Answer::Waits(causes) => {
                    let because = last.map(|last| causes.iter().map(|cause| reason::of(cause, &last.id, at)).collect());
                    reason.because = because.unwrap_or_default();
                    reason.is_final = reason.because.iter().any(|reason| reason.is_final);
                    // A missing runner affects all tasks, so it is reported for the first one only.
                    let for_runner = matches!(causes[..], [Cause::NoRunner { .. }]);
                    if for_runner {
                        reason.because.clear();
                    }
                    message.push_str(if for_runner { ", which waits for a runner" } else { ", which waits in turn:" });
                }
                Answer::Over { done, pipeline, .. } => {
                    reason.wakes = "that task stays incomplete without a person".into();
                    reason.is_final = true;
                    reason.hint = match (done, pipeline.as_ref().map(|pipeline| &pipeline.state)) {
                        (_, Some(State::Failed { recoverable: true, .. })) => Some(format!("banksman pipelines retry {name}")),
                        // No command revives it.
                        (TaskEnd::Failed { .. } | TaskEnd::Cancelled | TaskEnd::Skipped, Some(_)) => None,
                        (TaskEnd::Failed { .. } | TaskEnd::Cancelled | TaskEnd::Skipped, None) => {
                            Some(format!("banksman tasks retry {name}"))
                        }
                        (TaskEnd::Success { .. }, _) => Some(format!("banksman tasks show {name}")),
                    };
                }
                Answer::Landing(_) => {
                    reason.wakes = "it may start when that task has landed".into();
                    reason.hint = Some(format!("banksman why {name}"));
                }
                Answer::Review(Some(_)) => {
                    reason.wakes = "it may start when that task has landed".into();
                    reason.hint = Some(format!("banksman land {name}"));
                }
                Answer::Review(None) => {
                    reason.wakes = "it may start when that task is reported as done".into();
                    reason.hint = Some(format!("banksman tasks done {name}"));
                }
                Answer::AwaitingDecision { decision, .. } => {
                    reason.wakes = "it may start when the decision is made and that task is completed".into();
                    reason.hint = Some(format!("banksman decisions show {decision}"));
                }
                Answer::Manual { .. } => reason.wakes = "it may start when that task is reported as done".into(),
                Answer::InPhases(phases) => {
                    reason.because = phases::reasons(phases, at);
                    reason.is_final = reason.because.iter().any(|reason| reason.is_final);
                    // A missing runner affects all tasks, so it is reported for the first one only.
                    if reason.because.len() > 1 {
                        reason.because.retain(|reason| reason.kind != Kind::NoRunner);
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

/// `Build (t-1), which waits for Compile (t-2)`. The middle of a long chain is only counted.
fn links(links: &[Link]) -> String {
    let name = |link: &Link| match &link.title {
        Some(title) => format!("{title} ({})", link.id),
        None => link.id.to_string(),
    };
    let mut named: Vec<String> = links.iter().map(name).collect();
    if named.len() > 2 * NAMED + 1 {
        let counted = named.len() - 2 * NAMED;
        named.splice(NAMED..named.len() - NAMED, [format!("… {counted} more …")]);
    }
    named.join(", which waits for ")
}
