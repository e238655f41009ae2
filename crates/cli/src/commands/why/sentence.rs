//! Answers as sentences, without colours: people and programs read the same.

use banksman_core::Stamp;
use banksman_core::task::{After, Done, Stuck};
use banksman_engine::why::{Answer, Attended, Cause, Life};

use super::phases;
use crate::words;

/// What is said before the list of reasons.
pub(super) fn headline(causes: &[Cause]) -> String {
    match causes.len() {
        0 => "nothing blocks it".into(),
        1 => "one thing blocks it".into(),
        number => format!("{number} things block it"),
    }
}

/// Any answer but a list of reasons: what is so, and since when.
pub(super) fn answer(answer: &Answer, changed: Stamp, at: Stamp) -> String {
    let ago = |stamp: Stamp| words::span(at.lease - stamp.lease);
    match answer {
        Answer::Waits(causes) => headline(causes),
        Answer::Starting(runner) => format!("is about to start: nothing blocks it, and runner {runner} has room"),
        Answer::Running { run, stuck: None } => format!("has been running for {}: {}", ago(run.started), attended(run)),
        Answer::Running { run, stuck: Some((since, reason)) } => {
            format!("has been stuck for {}: {}; {}", ago(*since), stuck(reason, at), attended(run))
        }
        Answer::Stopping { run, since, then: after } => {
            let wanted = then(after);
            format!("is being stopped, for {} by now: {}; when no process of it is left, {wanted}", ago(*since), attended(run))
        }
        Answer::Awaiting { children, until } => {
            let names: Vec<String> = children
                .iter()
                .map(|child| child.title.as_ref().map_or(child.id.to_string(), |t| format!("{t} ({})", child.id)))
                .collect();
            let then = match until {
                Some(until) => format!("they have {} more", words::span(*until - at.lease)),
                None => "they are being ended".into(),
            };
            format!("is done but for its children: {}; {then}", names.join(", "))
        }
        Answer::AwaitingDecision { decision, question } => {
            let text = question.as_ref().map(|question| format!(": {}", question.text)).unwrap_or_default();
            format!(
                "has been waiting for a person for {}{text} Answer with: banksman decisions resolve {decision} N",
                ago(changed)
            )
        }
        Answer::Manual { holder, until } => {
            let until = until.map(|until| format!("; {} are left before others may take it", words::span(until - at.lease)));
            format!("has been worked on by {holder} for {}{}", ago(changed), until.unwrap_or_default())
        }
        Answer::InPhases(phases) => phases::in_phases(phases, at),
        Answer::Review => format!("is being looked at by a person, for {} by now", ago(changed)),
        Answer::Over { done, .. } => over(done, changed, at),
    }
}

/// How a task ended.
pub(super) fn over(done: &Done, changed: Stamp, at: Stamp) -> String {
    let ago = words::span(at.lease - changed.lease);
    match done {
        Done::Success { warning: None, .. } => format!("completed {ago} ago"),
        Done::Success { warning: Some(warning), .. } => format!("completed {ago} ago, but {warning}"),
        Done::Failed { error } => format!("failed {ago} ago: {error}"),
        Done::Cancelled => format!("was cancelled {ago} ago"),
        Done::Skipped => format!("was skipped {ago} ago"),
    }
}

/// A run, and who looks after it.
pub(super) fn attended(run: &Attended) -> String {
    let text = format!("run {}, the {}, of runner {}", run.id, words::ordinal(run.attempt as usize + 1), run.owner);
    match attention(run) {
        None => text,
        Some(attention) => format!("{text}; {attention}"),
    }
}

/// What is to be said if nobody looks after a run, or its keeper does not answer.
pub(crate) fn attention(run: &Attended) -> Option<String> {
    if let Some(decision) = &run.asked {
        return Some(format!(
            "its keeper is dead, and a person must say whether its processes are: banksman decisions show {decision}"
        ));
    }
    if let Some(ended) = &run.ended {
        return Some(format!("its session has ended ({ended}), which is not recorded yet"));
    }
    let said: Vec<String> = ownerless(run).into_iter().chain(silent(run)).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// What is to be said if the keeper of a run does not answer. `is stopped` is what the system says of such a process.
fn silent(run: &Attended) -> Option<String> {
    let silence = run.silence.as_ref()?;
    let keeper = run.session.as_ref().map_or("its keeper".into(), |session| format!("its keeper, process {},", session.keeper));
    let go_on = match &run.session {
        Some(session) if silence.contains("stopped") => format!("; kill -CONT {} lets it go on", session.keeper),
        _ => String::new(),
    };
    Some(format!(
        "{keeper} does not answer: {silence}{go_on}, and banksman sessions kill {} ends it with all its processes",
        run.id
    ))
}

fn ownerless(run: &Attended) -> Option<String> {
    match (run.life, &run.heir) {
        (Life::Alive, _) => None,
        (Life::Unknown, _) => Some("that runner cannot be seen from here".into()),
        (Life::Gone, Some(heir)) => Some(format!("its runner is gone, and runner {heir} will look after it")),
        (Life::Gone, None) => Some("its runner is gone, and the next runner will look after it".into()),
    }
}

pub(super) fn stuck(reason: &Stuck, at: Stamp) -> String {
    match reason {
        Stuck::NoHeartbeat { last_seen } => format!("nothing was seen of it for {}", words::span(at.lease - last_seen.lease)),
        Stuck::NoProgress { duration } => format!("nothing was seen of it within {} of its start", words::span(*duration)),
        Stuck::SessionDead => "its session is dead and left no exit behind".into(),
    }
}

/// What comes after a stop.
pub(super) fn then(after: &After) -> String {
    match after {
        After::Cancel => "it is cancelled".into(),
        After::Fail { error } => format!("it has failed: {error}"),
        After::Escalate { error } => format!("a person decides: {error}"),
        After::Overtime { max } => format!("that attempt has failed: it took longer than {}", words::span(*max)),
        After::Restart => "it is tried again".into(),
    }
}
