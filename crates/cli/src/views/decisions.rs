//! Decisions.

use banksman_core::decision::{About, Act, State};
use banksman_core::{Decision, DecisionId, LandingId, Name, RunId, Seq, TaskId};
use serde::Serialize;

use super::Time;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DecisionView<'a> {
    id: &'a DecisionId,
    state: &'static str,
    task: Option<&'a TaskId>,
    /// The outbox command that failed, under its former name.
    errand: Option<Seq>,
    run: Option<&'a RunId>,
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    landing: Option<&'a LandingId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a Name>,
    question: &'a str,
    options: Vec<OptionView<'a>>,
    recommended: u32,
    raised_at: Time,
    ended_at: Option<Time>,
    answer: Option<u32>,
    by: Option<&'a str>,
    note: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct OptionView<'a> {
    number: u32,
    text: &'a str,
    act: Act,
}

impl<'a> From<&'a Decision> for DecisionView<'a> {
    fn from(decision: &'a Decision) -> DecisionView<'a> {
        let question = &decision.question;
        let (task, errand, run, route) = match &question.about {
            About::Task(task) => (Some(task), None, None, None),
            About::OutboxCommand(entry) => (None, Some(*entry), None, None),
            About::Run { run, task } => (Some(task), None, Some(run), None),
            About::Route(route) => (None, None, None, Some(&**route)),
            About::Landing { task, .. } => (task.as_ref(), None, None, None),
        };
        let (landing, target) = match &question.about {
            About::Landing { entry, target, .. } => (entry.as_ref(), Some(target)),
            _ => (None, None),
        };
        let (state, answer, ended) = match &decision.state {
            State::Open => ("open", None, None),
            State::Resolved(answer) => ("resolved", Some(answer), Some(answer.at)),
            State::Withdrawn { at } => ("withdrawn", None, Some(*at)),
        };
        let options = (1..).zip(&question.options);
        DecisionView {
            id: &decision.id,
            state,
            task,
            errand,
            run,
            route,
            landing,
            target,
            question: &question.text,
            options: options.map(|(number, choice)| OptionView { number, text: &choice.text, act: choice.act }).collect(),
            recommended: question.recommended,
            raised_at: Time(decision.raised),
            ended_at: ended.map(Time),
            answer: answer.map(|answer| answer.option),
            by: answer.map(|answer| &*answer.by),
            note: answer.and_then(|answer| answer.note.as_deref()),
        }
    }
}
