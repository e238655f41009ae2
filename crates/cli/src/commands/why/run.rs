//! A run as data.

use banksman_core::backlog::Run;
use banksman_engine::why::Attended;
use serde_json::{Value, json};

use crate::words;

/// A live run.
pub(super) fn live_json(run: &Attended) -> Value {
    json!({
        "id": run.id,
        "attempt": run.attempt,
        "runner": run.owner,
        "runnerState": super::life(run.life),
        "heir": run.heir,
        "decision": run.asked,
        "keeperSilence": run.silence,
        "sessionEnded": run.ended,
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
    json!({
        "id": run.id,
        "attempt": run.attempt,
        "runner": run.owner,
        "runnerState": null,
        "heir": null,
        "decision": null,
        "keeperSilence": null,
        "sessionEnded": null,
        "startedAt": words::rfc3339(run.started.wall),
        "endedAt": ended.map(|ended| words::rfc3339(ended.at)),
        "ending": ended.map(|ended| ended.ending.to_string()),
        "exitCode": ended.and_then(|ended| ended.ending.exit_code()),
        "note": ended.and_then(|ended| ended.note.as_deref()),
        "keeperPid": run.session.as_ref().map(|session| session.keeper),
        "childPid": run.session.as_ref().map(|session| session.child),
    })
}
