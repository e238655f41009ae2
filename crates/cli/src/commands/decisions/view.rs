//! Decisions for people and for programs.

use banksman_core::Decision;
use banksman_core::decision::{About, State};
use serde_json::{Value, json};

use crate::commands::tasks::brief;
use crate::printer::{BOLD, DIM, GREEN, YELLOW};
use crate::words;

pub(super) fn json(decision: &Decision) -> Value {
    let question = &decision.question;
    let options = (1u32..).zip(&question.options);
    let options = options.map(|(number, choice)| json!({ "number": number, "text": choice.text, "act": choice.act }));
    let (task, entry, run, route) = match &question.about {
        About::Task(task) => (Some(task), None, None, None),
        About::OutboxCommand(entry) => (None, Some(entry), None, None),
        About::Run { run, task } => (Some(task), None, Some(run), None),
        About::Route(route) => (None, None, None, Some(route)),
    };
    let (answer, ended) = match &decision.state {
        State::Open => (None, None),
        State::Resolved(answer) => (Some(answer), Some(answer.at)),
        State::Withdrawn { at } => (None, Some(*at)),
    };
    json!({
        "id": decision.id,
        "state": word(decision),
        "task": task,
        "errand": entry,
        "run": run,
        "route": route,
        "question": question.text,
        "options": options.collect::<Vec<_>>(),
        "recommended": question.recommended,
        "raisedAt": words::rfc3339(decision.raised),
        "endedAt": ended.map(words::rfc3339),
        "answer": answer.map(|answer| answer.option),
        "by": answer.map(|answer| &answer.by),
        "note": answer.and_then(|answer| answer.note.as_deref()),
    })
}

pub(super) fn row(decision: &Decision) -> Vec<String> {
    let state = match &decision.state {
        State::Open => format!("{YELLOW}open{YELLOW:#}"),
        State::Resolved(answer) => {
            let text = decision.question.option(answer.option).map_or("", |choice| &*choice.text);
            format!("{GREEN}{}{GREEN:#}", brief(text, 30))
        }
        State::Withdrawn { .. } => format!("{DIM}withdrawn{DIM:#}"),
    };
    vec![decision.id.to_string(), state, words::rfc3339(decision.raised), brief(&decision.question.text, 90)]
}

/// The question with its options.
pub(super) fn page(decision: &Decision) -> String {
    let question = &decision.question;
    let mut text = format!("{BOLD}{}{BOLD:#} {DIM}raised {}{DIM:#}\n{}", decision.id, words::ago(decision.raised), question.text);
    for (number, choice) in (1u32..).zip(&question.options) {
        let hint = if number == question.recommended { format!(" {DIM}(recommended){DIM:#}") } else { String::new() };
        text.push_str(&format!("\n  {BOLD}{number}{BOLD:#}  {}{hint}", choice.text));
    }
    if let About::Task(task) | About::Run { task, .. } = &question.about {
        text.push_str(&format!("\n{DIM}what happened: banksman tasks show {task}{DIM:#}"));
    }
    match &decision.state {
        State::Open => text.push_str(&format!("\n{DIM}answer with: banksman decisions resolve {} N{DIM:#}", decision.id)),
        State::Resolved(answer) => {
            let note = answer.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
            let at = words::ago(answer.at);
            text.push_str(&format!("\n{GREEN}answered with {}{GREEN:#} by {} {at}{note}", answer.option, answer.by));
        }
        State::Withdrawn { at } => text.push_str(&format!("\n{DIM}withdrawn {}{DIM:#}", words::ago(*at))),
    }
    text
}

fn word(decision: &Decision) -> &'static str {
    match &decision.state {
        State::Open => "open",
        State::Resolved(_) => "resolved",
        State::Withdrawn { .. } => "withdrawn",
    }
}
