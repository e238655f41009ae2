//! Answers of people to decisions. The action of the answer is carried out once, in the same transaction.

use banksman_core::decision::{self, About, Act};
use banksman_core::task::{self, After, Mark};
use banksman_core::{Decision, DecisionId, landing, pipeline};
use banksman_store::{Key, Tables, Tx};

use crate::calls::landings::step_queue;
use crate::calls::mailbox;
use crate::calls::pipelines::step_pipeline;
use crate::calls::routes;
use crate::calls::runs::end::end_unproven;
use crate::calls::runs::{Work, end_keys};
use crate::calls::steps::{any_runner, descendants, step_task, wake_runners};
use crate::calls::tasks;

#[derive(Debug, Clone)]
pub struct DecisionRequest {
    pub id: DecisionId,
    /// The subject of the decision, as it was read: the rows to load follow from it.
    pub about: About,
    /// The run that the decision is about, as it was read.
    pub run: Option<Box<Work>>,
    /// The number of the option.
    pub option: u32,
    pub by: Box<str>,
    pub note: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// The machine's answer, with the decision after the step.
    Stepped(decision::Outcome, Box<Decision>),
    /// The run of the decision has changed since it was read; nothing has happened.
    Late,
    Unknown,
}

impl DecisionRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        let own = [Key::Decision(self.id.clone()), Key::OpenDecisions, Key::Runners, Key::Live, Key::Outbox];
        let about = match &self.about {
            About::Task(task) => vec![Key::Family(task.clone()), Key::Manual(task.clone()), Key::Pipeline(task.clone())],
            About::OutboxCommand(_) => Vec::new(),
            About::Run { run, task } => {
                vec![Key::Run(run.clone()), Key::Family(task.clone()), Key::Pipeline(task.clone()), Key::Mailbox(task.clone())]
            }
            About::Route(route) => vec![Key::Route(route.clone())],
            About::Landing { target, task, .. } => {
                let task = task.iter().flat_map(|task| [Key::Task(task.clone()), Key::Pipeline(task.clone())]);
                task.chain([Key::LandingQueue(target.clone())]).collect()
            }
        };
        own.into_iter().chain(about).chain(self.run.iter().flat_map(|work| end_keys(work))).collect()
    }

    pub(crate) fn decide(&self, tx: &mut Tx) -> DecisionOutcome {
        let is_late = |decision: &Decision| decision.is_open() && !self.is_current(decision, &tx.tables);
        if tx.tables.backlog.decisions.get(&self.id).is_some_and(is_late) {
            return DecisionOutcome::Late;
        }
        let Some(decision) = tx.tables.backlog.decisions.remove(&self.id) else { return DecisionOutcome::Unknown };
        let input = decision::Input::Resolve { option: self.option, by: self.by.clone(), note: self.note.clone() };
        let step = decision.step(input, &tx.now(Vec::new(), Default::default()));
        tx.tables.backlog.decisions.insert(self.id.clone(), step.state.clone());
        tx.carry_out(step.effects, false);
        if let decision::Outcome::Resolved(act) = &step.outcome {
            carry_out(*act, &step.state, self.run.as_deref(), tx);
        }
        DecisionOutcome::Stepped(step.outcome, Box::new(step.state))
    }

    /// Whether the run of a decision is unchanged since it was read: the resources to free follow from it.
    fn is_current(&self, decision: &Decision, tables: &Tables) -> bool {
        let About::Run { run, .. } = &decision.question.about else { return true };
        // The run goes on working, and keeps its resources.
        if decision.question.is_of_run() {
            return true;
        }
        let (Some(now), Some(then)) = (tables.backlog.runs.get(run), &self.run) else { return false };
        now.is_live() && then.run.id == *run && (now.owner_epoch, &now.holds) == (then.run.owner_epoch, &then.run.holds)
    }
}

/// Carries out the action of an answer. If its subject has changed since, the machines refuse, and nothing happens.
fn carry_out(act: Act, decision: &Decision, run: Option<&Work>, tx: &mut Tx) {
    match (&decision.question.about, act) {
        (About::Task(task), Act::Retry) => drop(step_task(tx, task, task::Input::Retry, None)),
        (About::Task(task), Act::Answer | Act::Continue) => drop(step_task(tx, task, task::Input::Answer, None)),
        (About::Task(task), Act::Skip) => drop(step_task(tx, task, task::Input::Set(Mark::Skipped), None)),
        (About::Task(task), Act::Wait) => drop(step_pipeline(task, pipeline::Input::Wait, tx)),
        (About::Task(task), Act::Pass) => {
            let by = decision.answered_by().map(Into::into);
            step_pipeline(task, pipeline::Input::Unblock { by }, tx);
        }
        (About::Task(task), Act::Fail) if tx.tables.backlog.pipelines.contains_key(task) => {
            step_pipeline(task, pipeline::Input::GiveUp, tx);
        }
        (About::Task(task), Act::Fail) => {
            let error = format!("marked as failed by decision {}", decision.id).into();
            tasks::stop(task, After::Fail { error }, tx);
        }
        (About::Task(task), Act::Cancel) => {
            tasks::stop(task, After::Cancel, tx);
            for child in descendants(&tx.tables.backlog, task) {
                tasks::stop(&child, After::Cancel, tx);
            }
        }
        (About::OutboxCommand(seq), Act::Resend) => {
            let heir = any_runner(&tx.tables);
            if let Some(entry) = tx.tables.backlog.outbox.get_mut(seq) {
                (entry.attempts, entry.due) = (0, tx.lease);
                if entry.command.run().is_none() {
                    entry.executor = heir;
                }
            }
        }
        (About::Route(route), Act::Remove) => routes::remove(route, tx),
        (About::Route(_), Act::Drop) => {}
        (About::Landing { target, entry: Some(entry), .. }, Act::Retry | Act::Return) => {
            let input = landing::Input::Answer { entry: entry.clone(), again: act == Act::Retry };
            step_queue(target, input, tx);
        }
        (About::Landing { target, entry: Some(entry), .. }, Act::Drop) => {
            let by = decision.answered_by().unwrap_or_default().into();
            step_queue(target, landing::Input::Remove { entry: entry.clone(), by }, tx);
        }
        (About::Landing { target, entry: None, .. }, Act::Resume) => {
            let by = decision.answered_by().unwrap_or_default().into();
            step_queue(target, landing::Input::Resume { by }, tx);
        }
        (About::OutboxCommand(seq), Act::Drop) => drop(tx.tables.backlog.outbox.remove(seq)),
        (About::Run { run, task }, Act::Answer) => mailbox::answer(decision, run, task, tx),
        (About::Run { task, .. }, Act::End | Act::Fail | Act::Cancel) => {
            let then = match act {
                Act::Fail => Some(After::Fail { error: format!("marked as failed by decision {}", decision.id).into() }),
                Act::Cancel => Some(After::Cancel),
                _ => None,
            };
            then.into_iter().for_each(|then| drop(tasks::stop(task, then, tx)));
            run.and_then(|work| end_unproven(work, tx));
            for child in descendants(&tx.tables.backlog, task).into_iter().filter(|_| act == Act::Cancel) {
                tasks::stop(&child, After::Cancel, tx);
            }
        }
        (About::Task(_), Act::Resend | Act::Drop | Act::End | Act::Remove | Act::Return | Act::Resume)
        | (
            About::OutboxCommand(_),
            Act::Retry
            | Act::Fail
            | Act::Cancel
            | Act::Skip
            | Act::End
            | Act::Wait
            | Act::Pass
            | Act::Remove
            | Act::Return
            | Act::Resume
            | Act::Answer
            | Act::Continue,
        )
        | (
            About::Run { .. },
            Act::Retry
            | Act::Skip
            | Act::Resend
            | Act::Drop
            | Act::Wait
            | Act::Pass
            | Act::Remove
            | Act::Return
            | Act::Resume
            | Act::Continue,
        )
        | (
            About::Route(_),
            Act::Retry
            | Act::Fail
            | Act::Cancel
            | Act::Skip
            | Act::Resend
            | Act::End
            | Act::Wait
            | Act::Pass
            | Act::Return
            | Act::Resume
            | Act::Answer
            | Act::Continue,
        )
        | (About::Landing { .. }, _) => {
            unreachable!("a question only has options that fit what it is about")
        }
    }
    wake_runners(tx);
}
