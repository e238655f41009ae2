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
            (of_trouble(Trouble::of_words(&program_words(report)), AgentVerdict::Crashed, report), text)
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

/// The last line of plain text that says something. Before the program has begun, that is what Banksman says of its preparation.
fn last_words(report: &Report) -> Box<str> {
    let has_begun = report.session.is_some() || report.answers > 0;
    let words = program_words(report);
    let text = if words.trim().is_empty() && !has_begun { &report.plain } else { &*words };
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().into()
}

/// The plain text without the lines that Banksman prints while it prepares the worktree: they contain the title of the task, which
/// must not pass for trouble of the provider.
fn program_words(report: &Report) -> String {
    report.plain.lines().filter(|line| !line.starts_with("banksman: ")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    /// A run of claude in a worktree whose name has this in it, that prints these lines and exits with 143.
    fn judged(title: &str, output: &str, errors: &str) -> (AgentVerdict, Box<str>) {
        let mut reader = Reader::new(Family::Claude);
        reader.errors(format!("banksman: made the worktree /w on branch banksman/t-1-{title}\n{errors}").as_bytes(), 0);
        reader.output(output.as_bytes(), 0);
        verdict(Family::Claude, reader.report(), Exit { code: Some(143), signal: None }, None)
    }

    #[test]
    fn the_lines_of_banksman_are_not_the_words_of_the_program() {
        let init = "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s-1\",\"model\":\"m\"}\n";
        assert_eq!(judged("add-login", init, ""), (AgentVerdict::Crashed, "exit status 143".into()));
        assert_eq!(judged("add-login", init, "out of memory\n"), (AgentVerdict::Crashed, "out of memory".into()));
        // A title is no trouble of the provider.
        for output in [init, ""] {
            assert_eq!(judged("handle overloaded_error and rate limit", output, "").0, AgentVerdict::Crashed);
        }
    }
}
