//! What a run of an agent program comes to.
//!
//! The program's own result decides, not its exit status alone and never its prose. Once the program was asked to end, nothing that it
//! says afterwards counts: [`Reader::close`](crate::Reader::close) keeps that out of the report.

use banksman_core::Name;
use banksman_core::agent::{AgentEnd, AgentVerdict, Limit};
use serde::{Deserialize, Serialize};

use crate::family::Family;
use crate::report::Report;
use crate::trouble::Trouble;

/// How the process of a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

/// Why a program was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had given its result, and did not end.
    AfterResult,
    /// It did nothing but try again.
    Retrying,
    /// Whoever keeps it wanted it to end.
    Asked,
}

/// Decides what a run of this agent comes to.
pub fn judge(agent: &Name, family: Family, report: &Report, exit: Exit, stop: Option<StopReason>) -> AgentEnd {
    let (verdict, text) = verdict(family, report, exit, stop);
    AgentEnd {
        agent: agent.clone(),
        verdict,
        text,
        session: report.session.clone(),
        model: report.model.clone(),
        key_source: report.key_source.clone(),
        turns: report.turns.unwrap_or(report.answers),
        answers: report.answers,
        usage: report.usage,
        cost_micros: report.cost_micros,
    }
}

fn verdict(family: Family, report: &Report, exit: Exit, stop: Option<StopReason>) -> (AgentVerdict, Box<str>) {
    match (&report.ending, stop) {
        (Some(ending), _) if !ending.is_error => match report.denied.is_empty() {
            true => (AgentVerdict::Ok, ending.text.clone()),
            false => (AgentVerdict::Refused, format!("not permitted: {}", report.denied.join(", ")).into()),
        },
        (Some(ending), _) => (of_trouble(ending.trouble, AgentVerdict::Failed, report), ending.text.clone()),
        (None, Some(StopReason::Retrying)) => {
            let retry = report.retry.as_ref();
            let text = retry.map_or_else(Default::default, |retry| retry.text.clone());
            (of_trouble(retry.map(|retry| retry.trouble), AgentVerdict::Hung, report), text)
        }
        (None, Some(StopReason::AfterResult | StopReason::Asked)) => (AgentVerdict::Hung, "it was ended".into()),
        (None, None) => by_exit(family, report, exit),
    }
}

/// The program has ended by itself, without a result.
fn by_exit(family: Family, report: &Report, exit: Exit) -> (AgentVerdict, Box<str>) {
    let said = || last_words(report);
    match (family, exit.code) {
        (Family::Text, Some(0)) => (AgentVerdict::Ok, "".into()),
        (Family::Text, Some(code)) => (AgentVerdict::Failed, format!("exit status {code}").into()),
        _ if report.limit.is_some() => (of_trouble(Some(Trouble::Quota), AgentVerdict::Quota(Limit::unnamed()), report), said()),
        // Its last step wanted a tool that it was not allowed to call.
        (Family::Opencode, Some(0)) if report.answers > 0 && !report.last_step_ended => {
            (AgentVerdict::Refused, "it ended without a final answer: a tool call was not permitted".into())
        }
        (_, Some(0)) => (AgentVerdict::NoResult, "it exited 0 without a result".into()),
        (Family::Gemini, Some(41)) => (AgentVerdict::Auth, said()),
        (Family::Gemini, Some(53)) => (AgentVerdict::Failed, "it has reached its limit of turns".into()),
        (Family::Gemini, Some(55)) => (AgentVerdict::Refused, "the folder is not trusted".into()),
        (_, Some(code)) => {
            let text = said();
            let text = if text.is_empty() { format!("exit status {code}").into() } else { text };
            (of_trouble(Trouble::of_words(&report.plain), AgentVerdict::Crashed, report), text)
        }
        (_, None) => {
            let how = exit.signal.map_or_else(|| "it is gone".into(), |signal| format!("killed by signal {signal}"));
            (AgentVerdict::Crashed, how.into())
        }
    }
}

fn of_trouble(trouble: Option<Trouble>, otherwise: AgentVerdict, report: &Report) -> AgentVerdict {
    match trouble {
        Some(Trouble::Quota) => AgentVerdict::Quota(report.limit.clone().unwrap_or_else(Limit::unnamed)),
        Some(Trouble::Auth) => AgentVerdict::Auth,
        Some(Trouble::Overloaded) => AgentVerdict::Overloaded,
        Some(Trouble::Network) => AgentVerdict::Network,
        Some(Trouble::ContextFull) => AgentVerdict::ContextFull,
        Some(Trouble::Other) | None => otherwise,
    }
}

/// The last line of plain text that says something.
fn last_words(report: &Report) -> Box<str> {
    report.plain.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().into()
}
