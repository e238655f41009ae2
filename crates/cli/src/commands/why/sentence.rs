//! Answers as sentences, without colours, for text and for JSON.

use banksman_core::Stamp;
use banksman_core::landing::{Entry, LandingEnd, Obstacle, State};
use banksman_core::task::{After, Stuck, TaskEnd};
use banksman_engine::why::{Answer, Attended, Cause, LandingPlace, Life};

use super::phases;
use crate::format;

/// The sentence before the list of reasons.
pub(super) fn headline(causes: &[Cause]) -> String {
    match causes.len() {
        0 => "nothing blocks it".into(),
        1 => "one thing blocks it".into(),
        number => format!("{number} things block it"),
    }
}

/// The sentence for an answer, with its duration.
pub(super) fn answer(answer: &Answer, changed: Stamp, at: Stamp) -> String {
    let ago = |stamp: Stamp| format::span(at.lease - stamp.lease);
    match answer {
        Answer::Waits(causes) => headline(causes),
        Answer::Starting(runner) => format!("is about to start: nothing blocks it, and runner {runner} has room"),
        Answer::Running { run, stuck: None } => format!("has been running for {}: {}", ago(run.started), attended(run)),
        Answer::Running { run, stuck: Some((since, reason)) } => {
            format!("has been stuck for {}: {}; {}", ago(*since), stuck(reason, at), attended(run))
        }
        Answer::Stopping { run, since, then: after } => {
            let wanted = then(after);
            format!("has been stopping for {}: {}; when its last process has ended, {wanted}", ago(*since), attended(run))
        }
        Answer::Awaiting { children, until } => {
            let names: Vec<String> = children
                .iter()
                .map(|child| child.title.as_ref().map_or(child.id.to_string(), |t| format!("{t} ({})", child.id)))
                .collect();
            let then = match until {
                Some(until) => format!("they have {} left", format::span(*until - at.lease)),
                None => "they are being stopped".into(),
            };
            format!("is done except for its children: {}; {then}", names.join(", "))
        }
        Answer::AwaitingDecision { decision, question } => {
            let text = question.as_ref().map(|question| format!(": {}", question.text)).unwrap_or_default();
            format!(
                "has been waiting for a person for {}{text} Answer with: banksman decisions resolve {decision} N",
                ago(changed)
            )
        }
        Answer::Manual { holder, until } => {
            let until = until.map(|until| format!("; the claim expires in {}", format::span(until - at.lease)));
            format!("has been claimed by {holder} for {}{}", ago(changed), until.unwrap_or_default())
        }
        Answer::InPhases(phases) => phases::in_phases(phases, at),
        Answer::Landing(place) => landing(place, ago(changed)),
        Answer::Review(None) => format!("has been in review for {}", ago(changed)),
        Answer::Review(Some(entry)) => format!(
            "has been in review for {}: {}. Land it with: banksman land {}; complete it without landing: banksman tasks done {} --no-change",
            ago(changed),
            left_because(entry),
            entry.spec.task.as_ref().map_or("TASK", |task| task.as_str()),
            entry.spec.task.as_ref().map_or("TASK", |task| task.as_str()),
        ),
        Answer::Over { done, .. } => over(done, changed, at),
    }
}

/// The progress of a task's work in a merge queue.
fn landing(place: &LandingPlace, since: String) -> String {
    let Some(entry) = &place.entry else { return format!("has been landing for {since}") };
    let target = &entry.target;
    if let Some(pause) = &place.paused {
        let why = match (&pause.red, &pause.by) {
            (Some(red), _) => {
                format!("the check fails on {target} itself; answer with: banksman decisions resolve {} N", red.decision)
            }
            (None, by) => {
                format!("paused by {}; continue with: banksman landing resume {target}", by.as_deref().unwrap_or("a person"))
            }
        };
        return format!("has been waiting to land for {since}: the merge queue of {target} is paused ({why})");
    }
    if let Some(why) = &place.uncheckable {
        return format!("has been waiting to land on {target} for {since}: it cannot be checked, because {why}");
    }
    let runner = if place.has_runner { "" } else { "; no runner is running (start one: banksman run)" };
    let ahead = match place.ahead {
        0 => String::new(),
        1 => " behind 1 other entry".into(),
        number => format!(" behind {number} other entries"),
    };
    match &entry.state {
        State::Queued => format!("has been in the merge queue of {target} for {since}{ahead}{runner}"),
        State::Candidate { commit, .. } => {
            format!(
                "is landing on {target}: {} is being checked, for {since} (one check at a time: lock landing:{target}){runner}",
                commit.short()
            )
        }
        State::Suspect { .. } => {
            format!(
                "is landing on {target}: the check failed, so {target} itself is being checked (lock landing:{target}){runner}"
            )
        }
        State::Passed { .. } => format!("is landing on {target}: the check passed{runner}"),
        State::Waiting { obstacle: Obstacle::Author { files } } => {
            let files = files.join(", ");
            let first = match &place.author_before {
                Some(task) => format!("until task {task} has resolved its conflict there: one author at a time resolves a file"),
                None => "and is rebuilt next".into(),
            };
            format!("has been waiting to land on {target} for {since}: it conflicts in {files}, {first}{runner}")
        }
        State::Waiting { obstacle } => {
            format!("has been waiting to land on {target} for {since}: {obstacle}; it is retried automatically{runner}")
        }
        State::Asking { decision, because } => {
            format!("cannot land on {target}: {because}. Answer with: banksman decisions resolve {decision} N")
        }
        State::Over(_) => format!("has left the merge queue of {target}"),
    }
}

/// Why an entry has left its queue without landing.
fn left_because(entry: &Entry) -> String {
    match &entry.state {
        State::Over(LandingEnd::Shelved { reason }) => reason.to_string(),
        State::Over(LandingEnd::Returned(why)) => why.to_string(),
        State::Over(LandingEnd::Removed { by }) => format!("{by} has removed it from the merge queue"),
        _ => "its work has not landed".into(),
    }
}

/// How a task ended.
pub(super) fn over(done: &TaskEnd, changed: Stamp, at: Stamp) -> String {
    let ago = format::span(at.lease - changed.lease);
    match done {
        TaskEnd::Success { warning: None, .. } => format!("completed {ago} ago"),
        TaskEnd::Success { warning: Some(warning), .. } => format!("completed {ago} ago, but {warning}"),
        TaskEnd::Failed { error } => format!("failed {ago} ago: {error}"),
        TaskEnd::Cancelled => format!("was cancelled {ago} ago"),
        TaskEnd::Skipped => format!("was skipped {ago} ago"),
    }
}

/// A run with its runner.
pub(super) fn attended(run: &Attended) -> String {
    let text = format!("run {} (attempt {}), of runner {}", run.id, run.attempt + 1, run.owner);
    match attention(run) {
        None => text,
        Some(attention) => format!("{text}; {attention}"),
    }
}

/// A warning if a run has no runner or its keeper does not answer.
pub(crate) fn attention(run: &Attended) -> Option<String> {
    if let Some(message) = &run.prompted {
        let then = match &run.asked {
            Some(decision) => format!("and a person must confirm whether it exists: banksman decisions show {decision}"),
            None => format!("and message {message} in its prompt holds the dispatch lock of the task until it is"),
        };
        let said = ownerless(run)
            .into_iter()
            .fold(format!("its session has not been seen yet, {then}"), |said, more| format!("{said}; {more}"));
        return Some(said);
    }
    if let Some(decision) = &run.asked {
        return Some(format!(
            "its keeper is dead; a person must confirm that its processes are, too: banksman decisions show {decision}"
        ));
    }
    if let Some(ended) = &run.ended {
        return Some(format!("its session has ended ({ended}), which is not recorded yet"));
    }
    let said: Vec<String> = ownerless(run).into_iter().chain(silent(run)).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// A warning if the keeper of a run does not answer. A stopped process has `stopped` in its silence.
fn silent(run: &Attended) -> Option<String> {
    let silence = run.silence.as_ref()?;
    let keeper = run.session.as_ref().map_or("its keeper".into(), |session| format!("its keeper, process {},", session.keeper));
    let go_on = match &run.session {
        Some(session) if silence.contains("stopped") => format!("; kill -CONT {} resumes it", session.keeper),
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
        (Life::Unknown, _) => Some("its runner cannot be checked from this machine".into()),
        (Life::Gone, Some(heir)) => Some(format!("its runner is gone; runner {heir} will adopt it")),
        (Life::Gone, None) => Some("its runner is gone; the next runner will adopt it".into()),
    }
}

pub(super) fn stuck(reason: &Stuck, at: Stamp) -> String {
    match reason {
        Stuck::NoHeartbeat { last_seen } => format!("no activity for {}", format::span(at.lease - last_seen.lease)),
        Stuck::NoProgress { duration } => format!("no activity within {} of its start", format::span(*duration)),
        Stuck::SessionDead => "its session is dead, and its exit status is unknown".into(),
    }
}

/// What follows a stop.
pub(super) fn then(after: &After) -> String {
    match after {
        After::Cancel => "it is cancelled".into(),
        After::Fail { error } => format!("it has failed: {error}"),
        After::Escalate { error } => format!("a person decides: {error}"),
        After::Overtime { max } => format!("the attempt has failed: it took longer than {max}"),
        After::Restart => "it is retried".into(),
        After::PutBack { .. } => "it is pending again".into(),
    }
}
