//! Questions that only a person can answer.

mod evidence;
mod review;
mod view;

use banksman_core::decision::{About, Act, Outcome, State};
use banksman_core::{Decision, DecisionId};
use banksman_engine::{DecisionOutcome, DecisionRequest, Work};
use banksman_runtime::Client;
use banksman_store::{Key, Reader};
use clap::Args;

use super::{ExitResult, resources, tasks};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, GREEN};
use crate::table;
use crate::views::Named;
use crate::views::decisions::DecisionView;

/// How often an answer is retried that came too late for its run.
const TRIES: usize = 5;

/// The number of decisions that `--all` shows.
const ALL: i64 = 100;

subcommands! {
    /// Answer decisions: questions that only a person can answer.
    ///
    /// A task that could not be recovered waits for a decision, and so does an action that failed five times.
    #[command(after_help = "Examples:\n  banksman decisions list\n  banksman decisions resolve d-120 1\n  banksman decisions review")]
    pub(crate) noun Decisions {
        List(List),
        Show(Show),
        Resolve(Resolve),
        Review(review::Review),
    }
}

/// List the questions that wait for an answer.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman decisions list\n  banksman decisions list --all")]
struct List {
    /// Also list the last answered or withdrawn decisions
    #[arg(long)]
    all: bool,
}

/// Show one question with its options.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman decisions show d-120")]
struct Show {
    /// The decision, or the beginning of its id
    decision: String,
}

/// Answer a question. The chosen option takes effect at once, and only once.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman decisions resolve d-120 1\n  banksman decisions resolve d-120 --recommended --note 'the server is back'"
)]
struct Resolve {
    /// The decision, or the beginning of its id
    decision: String,
    /// The number of the option
    #[arg(required_unless_present = "recommended")]
    option: Option<u32>,
    /// Choose the recommended option
    #[arg(long, conflicts_with = "option")]
    recommended: bool,
    /// A note to record with the answer
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl List {
    fn run(self, context: &Context) -> ExitResult {
        let mut reader = context.project()?.reader()?;
        let decisions = if self.all { reader.view().last_decisions(ALL)? } else { open(&mut reader)? };
        let views: Vec<_> = decisions.iter().map(DecisionView::from).collect();
        let human = if decisions.is_empty() {
            format!("{DIM}no open decisions{DIM:#}")
        } else {
            table::render(&["ID", "STATE?", "RAISED>?", "QUESTION~"], decisions.iter().map(view::row).collect())
        };
        context.printer.result(&Named("decisions", views), human)
    }
}

impl Show {
    fn run(self, context: &Context) -> ExitResult {
        let mut reader = context.project()?.reader()?;
        let decision = find(&mut reader, &self.decision)?;
        context.printer.result(&DecisionView::from(&decision), view::page(&decision))
    }
}

impl Resolve {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let decision = find(&mut client.reader()?, &self.decision)?;
        let option = self.option.unwrap_or(decision.question.recommended);
        let decision = resolve(context, &client, &decision, option, self.note.as_deref())?;
        context.printer.result(&DecisionView::from(&decision), answered(&decision))
    }
}

pub(crate) fn resolve(
    context: &Context,
    client: &Client,
    decision: &Decision,
    option: u32,
    note: Option<&str>,
) -> Result<Decision, Failure> {
    let act = decision.question.option(option).map(|choice| choice.act);
    if let (About::Task(task), Some(Act::Retry), true) = (&decision.question.about, act, decision.is_open()) {
        let rows = client.reader()?.view().load(&[Key::Task(task.clone())].into())?;
        rows.backlog.tasks.get(task).map_or(Ok(()), |task| tasks::remove_done(&context.sessions(client.project()), task))?;
    }
    let mut reply = ask(client, decision, option, note)?;
    // The run changed between the read and the call.
    for _ in 1..TRIES {
        if matches!(reply, DecisionOutcome::Late) {
            reply = ask(client, decision, option, note)?;
        }
    }
    match reply {
        DecisionOutcome::Stepped(Outcome::Resolved(_), decision) => Ok(*decision),
        DecisionOutcome::Stepped(Outcome::NoSuchOption { options }, _) => {
            Err(Failure::usage(format!("decision {} has options 1 to {options}, not {option}", decision.id))
                .hint(format!("banksman decisions show {}", decision.id)))
        }
        DecisionOutcome::Stepped(Outcome::Over(_), decision) => Err(over(&decision)),
        DecisionOutcome::Unknown => Err(unknown(decision.id.as_str())),
        other => Err(Failure::unexpected(&other)),
    }
}

fn ask(client: &Client, decision: &Decision, option: u32, note: Option<&str>) -> Result<DecisionOutcome, Failure> {
    let run = match &decision.question.about {
        About::Run { run, task } => {
            let mut rows = client.reader()?.view().load(&[Key::Run(run.clone()), Key::Task(task.clone())].into())?.tables.backlog;
            let found = rows.runs.remove(run).zip(rows.tasks.remove(task));
            found.map(|(run, task)| Box::new(Work { run, task }))
        }
        About::Task(_) | About::OutboxCommand(_) | About::Route(_) | About::Landing { .. } => None,
    };
    let (id, about, by) = (decision.id.clone(), decision.question.about.clone(), resources::forced(client).user);
    Ok(client.request(DecisionRequest { id, about, run, option, by, note: note.map(Into::into) })?)
}

fn answered(decision: &Decision) -> String {
    let choice = match &decision.state {
        State::Resolved(answer) => decision.question.option(answer.option).map_or("", |choice| &*choice.text),
        State::Open | State::Withdrawn { .. } => "",
    };
    format!("{GREEN}resolved{GREEN:#} {BOLD}{}{BOLD:#}: {choice}", decision.id)
}

/// The decisions that wait for an answer, oldest first.
fn open(reader: &mut Reader) -> Result<Vec<Decision>, Failure> {
    let mut open: Vec<Decision> =
        reader.view().load(&[Key::OpenDecisions].into())?.tables.backlog.decisions.into_values().collect();
    open.sort_by_key(|decision| decision.id.seq());
    Ok(open)
}

/// The decision with this id, or the only open decision whose id starts with it.
fn find(reader: &mut Reader, name: &str) -> Result<Decision, Failure> {
    if let Ok(id) = DecisionId::new(name)
        && let Some(decision) = reader.view().load(&[Key::Decision(id.clone())].into())?.backlog.decisions.remove(&id)
    {
        return Ok(decision);
    }
    let mut found = open(reader)?;
    found.retain(|decision| !name.is_empty() && decision.id.as_str().starts_with(name));
    match found.len() {
        1 => Ok(found.remove(0)),
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Failure {
    Failure::new(exit::NOT_FOUND, "DECISION_NOT_FOUND", format!("there is no decision {name:?}"))
        .detail("decision", &name)
        .hint("list open decisions: banksman decisions list")
}

fn over(decision: &Decision) -> Failure {
    let message = match &decision.state {
        State::Resolved(answer) => {
            format!("decision {} was answered by {} with option {}", decision.id, answer.by, answer.option)
        }
        State::Withdrawn { .. } | State::Open => {
            format!("decision {} was withdrawn, because its subject has changed", decision.id)
        }
    };
    Failure::new(exit::USAGE, "DECISION_OVER", message).details(&DecisionView::from(decision))
}
