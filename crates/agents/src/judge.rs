//! The verdict on a run of an agent program.
//!
//! The result that the program reports decides, not its exit status alone and never its prose. A result that it reports
//! after it was asked to end does not count: [`Reader::close`](crate::Reader::close) keeps it out of the report.

use banksman_core::Name;
use banksman_core::agent::{AgentEnd, AgentVerdict, Limit};
use serde::{Deserialize, Serialize};

use crate::family::Family;
use crate::report::Report;
use crate::trouble::Trouble;

/// The exit of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

/// Why a program was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The program had given its result, and did not end.
    AfterResult,
    /// The program did nothing but retry.
    Retrying,
    /// The runner or a person asked for the end.
    Asked,
}

/// Decides how a run of this agent has ended.
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

/// The verdict on a program that has ended by itself, without a result.
fn by_exit(family: Family, report: &Report, exit: Exit) -> (AgentVerdict, Box<str>) {
    let said = || last_words(report);
    match (family, exit.code) {
        (Family::Text, Some(0)) => (AgentVerdict::Ok, "".into()),
        (Family::Text, Some(code)) => (AgentVerdict::Failed, format!("exit status {code}").into()),
        _ if report.limit.is_some() => (of_trouble(Some(Trouble::Quota), AgentVerdict::Quota(Limit::unnamed()), report), said()),
        // Its last step asked for a tool that it was not permitted to call.
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

/// The last line of plain text that is not empty. If the program has not begun, this may be a line about its preparation.
fn last_words(report: &Report) -> Box<str> {
    let has_begun = report.session.is_some() || report.answers > 0;
    let words = program_words(report);
    let text = if words.trim().is_empty() && !has_begun { &report.plain } else { &*words };
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().into()
}

/// The plain text without the lines that Banksman prints while it prepares the worktree: they contain the title of the
/// task, which must not be taken for an error of the provider.
fn program_words(report: &Report) -> String {
    report.plain.lines().filter(|line| !line.starts_with("banksman: ")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    /// The verdict on a run of claude in a worktree whose name contains `title`, which prints these lines and exits with 143.
    fn judged(title: &str, output: &str, errors: &str) -> (AgentVerdict, Box<str>) {
        let mut reader = Reader::new(Family::Claude);
        reader.errors(format!("banksman: made the worktree /w on branch banksman/t-1-{title}\n{errors}").as_bytes(), 0);
        reader.output(output.as_bytes(), 0);
        verdict(Family::Claude, reader.report(), Exit { code: Some(143), signal: None }, None)
    }

    #[test]
    fn preparation_lines_of_banksman_are_not_output_of_the_program() {
        let init = "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s-1\",\"model\":\"m\"}\n";
        assert_eq!(judged("add-login", init, ""), (AgentVerdict::Crashed, "exit status 143".into()));
        assert_eq!(judged("add-login", init, "out of memory\n"), (AgentVerdict::Crashed, "out of memory".into()));
        // A title is not an error of the provider.
        for output in [init, ""] {
            assert_eq!(judged("handle overloaded_error and rate limit", output, "").0, AgentVerdict::Crashed);
        }
    }
}
