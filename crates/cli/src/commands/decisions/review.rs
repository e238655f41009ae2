use std::io::{BufRead, IsTerminal};

use banksman_core::Decision;
use clap::Args;
use serde::Serialize;

use super::{answered, evidence, open, resolve, view};
use crate::commands::{ExitResult, top};
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::DIM;
use crate::views::decisions::DecisionView;

/// Go through all open questions, one after the other.
///
/// Each question comes with the history of its task and the end of its log. Type the number of an option, Enter for the recommended one, l
/// for the full log, d for the diff, o for a shell in its workspace, n to add a note to the answer, s to skip the question, q to stop. Each
/// answer takes effect at once.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman decisions review")]
pub(super) struct Review {}

/// A parsed line of input.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Option(u32),
    Later,
    Stop,
    /// Runs a command on the task: its log, its diff, or a shell in its workspace.
    Visit(&'static [&'static str]),
    Note,
    Unclear,
}

#[derive(Serialize)]
struct Reviewed<'a> {
    resolved: Vec<DecisionView<'a>>,
    left: usize,
}

impl Review {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let mut reader = client.reader()?;
        let questions = open(&mut reader)?;
        if context.printer.json && std::io::stdin().is_terminal() {
            return Err(Failure::usage("decisions review does not support --json on a terminal")
                .hint("banksman decisions list --json, then banksman decisions resolve ID N"));
        }
        let mut lines = std::io::stdin().lock().lines();
        let mut done: Vec<Decision> = Vec::new();
        let total = questions.len();
        let closed = || {
            Failure::usage("cannot read an answer: stdin is closed")
                .hint("banksman decisions list, then banksman decisions resolve ID N")
        };
        let mut is_first = true;
        'questions: for (at, question) in questions.into_iter().enumerate() {
            let task = evidence::task(&question);
            let evidence = task.map(|task| evidence::of(&client, &mut reader, task)).transpose()?.unwrap_or_default();
            let title = task.map(|task| evidence::title(&mut reader, task)).transpose()?.flatten();
            let page = view::question(&question, title.as_ref());
            context.printer.note(&format!("{DIM}{} of {total}{DIM:#}\n{page}{evidence}", at + 1));
            let mut note: Option<String> = None;
            loop {
                let numbers = question.question.options.len();
                let recommended = question.question.recommended;
                let more = if task.is_some() { "l log, d diff, o open, " } else { "" };
                let keys = format!("1 to {numbers}, Enter for {recommended}, {more}n note, s to skip, q to stop:");
                context.printer.note(&format!("{DIM}{keys}{DIM:#}"));
                let Some(line) = lines.next() else {
                    if is_first {
                        return Err(closed());
                    }
                    break 'questions;
                };
                is_first = false;
                let line = line.map_err(|error| Failure::system("read the answer", error))?;
                match said(&line, recommended) {
                    Said::Option(option) => match resolve(context, &client, &question, option, note.as_deref()) {
                        Ok(decision) => {
                            context.printer.note(&answered(&decision));
                            done.push(decision);
                            break;
                        }
                        // The decision was resolved meanwhile, or there is no such option: show the failure and continue.
                        Err(failure) => {
                            context.printer.note(&failure.message);
                            if failure.code == "DECISION_OVER" || failure.code == "DECISION_NOT_FOUND" {
                                break;
                            }
                        }
                    },
                    Said::Later => break,
                    Said::Visit(words) => {
                        let Some(task) = task else { continue };
                        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).chain([task.to_string()]).collect();
                        top::own(context, &words)?.status().map_err(|error| Failure::system("start this program", error))?;
                    }
                    Said::Note => {
                        context.printer.note(&format!("{DIM}the note, in one line:{DIM:#}"));
                        let Some(line) = lines.next() else { break 'questions };
                        note = Some(line.map_err(|error| Failure::system("read the note", error))?);
                    }
                    Said::Stop => break 'questions,
                    Said::Unclear => {}
                }
            }
        }
        let left = open(&mut reader)?.len();
        let view = Reviewed { resolved: done.iter().map(DecisionView::from).collect(), left };
        let human = if total == 0 { "no open decisions".into() } else { format!("{} answered, {left} left", done.len()) };
        context.printer.result(&view, human)
    }
}

fn said(line: &str, recommended: u32) -> Said {
    match line.trim() {
        "" => Said::Option(recommended),
        "s" | "skip" | "later" => Said::Later,
        "q" | "quit" => Said::Stop,
        "l" | "log" => Said::Visit(&["tasks", "logs", "--tail", "200"]),
        "d" | "diff" => Said::Visit(&["tasks", "diff"]),
        "o" | "open" => Said::Visit(&["tasks", "open"]),
        "n" | "note" => Said::Note,
        number => number.parse().map_or(Said::Unclear, Said::Option),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_answers_are_parsed() {
        let lines = ["", " 2 ", "s", "q", "maybe", "-1"].map(|line| said(line, 1));
        assert_eq!(lines, [Said::Option(1), Said::Option(2), Said::Later, Said::Stop, Said::Unclear, Said::Unclear]);
    }
}
