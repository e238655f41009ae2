//! What people do with decisions: answer them. What the answer says is done in the same transaction, once.

use banksman_core::decision::{self, About, Act};
use banksman_core::task::{self, After, Mark};
use banksman_core::{Decision, DecisionId};
use banksman_store::{Key, Tables, Turn};

use crate::ledger::{any_runner, descendants, step_task, wake_runners};
use crate::tasks;

/// What can be asked.
#[derive(Debug, Clone)]
pub struct DecisionRequest {
    /// Which one.
    pub id: DecisionId,
    /// What it is about, as it was read: the rows to load follow from it.
    pub about: About,
    /// The number of the option.
    pub option: u32,
    /// Who answers.
    pub by: Box<str>,
    /// What is said beside.
    pub note: Option<Box<str>>,
}

/// What can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// The machine's answer, with the decision as it stands now.
    Stepped(decision::Outcome, Box<Decision>),
    /// There is no such decision.
    Unknown,
}

impl DecisionRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        let own = [Key::Decision(self.id.clone()), Key::OpenDecisions, Key::Runners, Key::Live, Key::Outbox];
        let about = match &self.about {
            About::Task(task) => vec![Key::Family(task.clone()), Key::ByHand(task.clone()), Key::Pipeline(task.clone())],
            About::Errand(_) => Vec::new(),
        };
        own.into_iter().chain(about).collect()
    }

    pub(crate) fn decide(&self, tables: &mut Tables, turn: &mut Turn) -> DecisionOutcome {
        let Some(decision) = tables.backlog.decisions.remove(&self.id) else { return DecisionOutcome::Unknown };
        let input = decision::Input::Resolve { option: self.option, by: self.by.clone(), note: self.note.clone() };
        let step = decision.step(input, &turn.now(Vec::new(), Default::default()));
        tables.backlog.decisions.insert(self.id.clone(), step.state.clone());
        turn.carry_out(step.effects, false);
        if let decision::Outcome::Resolved(act) = &step.outcome {
            carry_out(*act, &step.state, tables, turn);
        }
        DecisionOutcome::Stepped(step.outcome, Box::new(step.state))
    }
}

/// Does what an answer says. What it was about may have changed meanwhile; then the machines refuse, and nothing happens.
fn carry_out(act: Act, decision: &Decision, tables: &mut Tables, turn: &mut Turn) {
    match (&decision.question.about, act) {
        (About::Task(task), Act::Retry) => drop(step_task(tables, turn, task, task::Input::Retry, None)),
        (About::Task(task), Act::Skip) => drop(step_task(tables, turn, task, task::Input::Set(Mark::Skipped), None)),
        (About::Task(task), Act::Fail) => {
            let error = format!("given up by decision {}", decision.id).into();
            tasks::stop(task, After::Fail { error }, tables, turn);
        }
        (About::Task(task), Act::Cancel) => {
            tasks::stop(task, After::Cancel, tables, turn);
            for child in descendants(tables, task) {
                tasks::stop(&child, After::Cancel, tables, turn);
            }
        }
        (About::Errand(seq), Act::Resend) => {
            let heir = any_runner(tables);
            if let Some(sent) = tables.backlog.outbox.get_mut(seq) {
                (sent.attempts, sent.due) = (0, turn.lease);
                if sent.errand.run().is_none() {
                    sent.executor = heir;
                }
            }
        }
        (About::Errand(seq), Act::Drop) => drop(tables.backlog.outbox.remove(seq)),
        (About::Task(_), Act::Resend | Act::Drop) | (About::Errand(_), Act::Retry | Act::Fail | Act::Cancel | Act::Skip) => {
            unreachable!("a question only has options that fit what it is about")
        }
    }
    wake_runners(tables, turn, None);
}
