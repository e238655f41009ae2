//! Limits of accounts that keep tasks from starting.

use banksman_core::agent::limit::{AccountLimit, BUDGET, LOGIN, State};
use banksman_core::{Name, RunId};
use serde::Serialize;

use super::Time;
use crate::format;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LimitView<'a> {
    /// `None` for the budget, which all agents share.
    account: Option<&'a Name>,
    kind: &'a str,
    model: Option<&'a str>,
    state: &'static str,
    message: String,
    since: Time,
    /// When the account is probed.
    resets_at: Option<Time>,
    /// Whether the provider has reported the time.
    is_reset_known: bool,
    /// The run that probes the account.
    run: Option<&'a RunId>,
    said: &'a str,
}

impl<'a> From<&'a AccountLimit> for LimitView<'a> {
    fn from(limit: &'a AccountLimit) -> LimitView<'a> {
        let (state, resets_at, is_reset_known, run) = match &limit.state {
            State::Waiting { resets, is_given, .. } => ("waiting", Some(Time(*resets)), *is_given, None),
            State::Probing { run } => ("probing", None, false, Some(run)),
            State::Open => ("open", None, false, None),
        };
        LimitView {
            account: limit.scope.account.as_ref(),
            kind: &limit.scope.kind,
            model: limit.scope.model.as_deref(),
            state,
            message: sentence(limit),
            since: Time(limit.since),
            resets_at,
            is_reset_known,
            run,
            said: &limit.text,
        }
    }
}

/// `claude: limit reached, resets 23:40`.
pub(crate) fn sentence(limit: &AccountLimit) -> String {
    let account = limit.scope.account.as_ref().map_or("all agents", |account| account.as_str());
    let model = limit.scope.model.as_ref().map(|model| format!(" ({model})")).unwrap_or_default();
    let what = match &*limit.scope.kind {
        LOGIN => "not logged in",
        BUDGET => "daily budget is spent",
        _ => "limit reached",
    };
    let then = match &limit.state {
        State::Waiting { resets, is_given: true, .. } => format!("resets {}", format::local(*resets)),
        State::Waiting { resets, .. } => format!("next try {}", format::local(*resets)),
        State::Probing { run } => format!("run {run} is probing it"),
        State::Open => "over".into(),
    };
    format!("{account}{model}: {what}, {then}")
}
