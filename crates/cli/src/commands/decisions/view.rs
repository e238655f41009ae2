//! Decisions as text.

use banksman_core::decision::{About, State};
use banksman_core::{Decision, Title};

use crate::commands::tasks::brief;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, YELLOW};

pub(super) fn row(decision: &Decision) -> Vec<String> {
    let state = match &decision.state {
        State::Open => format!("{YELLOW}open{YELLOW:#}"),
        State::Resolved(answer) => {
            let text = decision.question.option(answer.option).map_or("", |choice| &*choice.text);
            format!("{GREEN}{}{GREEN:#}", brief(text, 30))
        }
        State::Withdrawn { .. } => format!("{DIM}withdrawn{DIM:#}"),
    };
    vec![decision.id.to_string(), state, format::ago(decision.raised), brief(&decision.question.text, 90)]
}

/// The question with its options, and the commands to continue with.
pub(super) fn page(decision: &Decision) -> String {
    let mut text = question(decision, None);
    if let About::Task(task) | About::Run { task, .. } = &decision.question.about {
        text.push_str(&format!("\n{DIM}what happened: banksman tasks show {task}{DIM:#}"));
    }
    match &decision.state {
        State::Open => text.push_str(&format!("\n{DIM}answer with: banksman decisions resolve {} N{DIM:#}", decision.id)),
        State::Resolved(answer) => {
            let note = answer.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
            let at = format::ago(answer.at);
            text.push_str(&format!("\n{GREEN}answered with {}{GREEN:#} by {} {at}{note}", answer.option, answer.by));
        }
        State::Withdrawn { at } => text.push_str(&format!("\n{DIM}withdrawn {}{DIM:#}", format::ago(*at))),
    }
    text
}

/// The question with its options, with the title of its task if one is given.
pub(super) fn question(decision: &Decision, task: Option<&Title>) -> String {
    let question = &decision.question;
    let about = task.map(|title| format!(" {DIM}about{DIM:#} {}", format::one_line(title.as_str()))).unwrap_or_default();
    let mut text =
        format!("{BOLD}{}{BOLD:#}{about} {DIM}raised {}{DIM:#}\n{}", decision.id, format::ago(decision.raised), question.text);
    for (number, choice) in (1u32..).zip(&question.options) {
        let hint = if number == question.recommended { format!(" {DIM}(recommended){DIM:#}") } else { String::new() };
        text.push_str(&format!("\n  {BOLD}{number}{BOLD:#}  {}{hint}", choice.text));
    }
    text
}
