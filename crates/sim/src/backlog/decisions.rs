//! Questions for people: each is raised once and answered once, and its answer is carried out once. People answer
//! twice, at the same time, with an option that does not exist, or resolve the matter in another way.

use banksman_core::backlog::COMMAND_ATTEMPTS;
use banksman_core::decision::{About, Act, Outcome, Question};
use banksman_core::event::{DecisionFact, Event, TaskFact};
use banksman_core::{DecisionId, RunId, Status, TaskId};
use banksman_engine::{DecisionOutcome, DecisionRequest, Reply, Request, Work};
use banksman_store::Key;

use super::model::TaskState;
use super::users::Purpose;
use crate::commit::CommittedCall;
use crate::commit::Logged;
use crate::commit::{InFlight, Sender};
use crate::report::Checker;
use crate::world::World;

/// A question in the model.
#[derive(Debug)]
pub(crate) struct DecisionModel {
    pub(crate) about: About,
    pub(crate) acts: Vec<Act>,
    pub(crate) open: bool,
}

impl World<'_> {
    /// A person answers a question, if there is one: perhaps one that was answered before, perhaps twice.
    pub(crate) fn answer(&mut self, index: usize) -> bool {
        let open: Vec<DecisionId> =
            self.model.decisions.iter().filter(|(_, asked)| asked.open).map(|(id, _)| id.clone()).collect();
        let all: Vec<DecisionId> = self.model.decisions.keys().cloned().collect();
        let from = if open.is_empty() || self.random.in_thousand(100) { all } else { open };
        if from.is_empty() {
            return false;
        }
        let id = self.random.pick(&from).clone();
        let mut requests = vec![self.some_answer(&id)];
        if self.random.in_thousand(200) {
            requests.push(self.some_answer(&id));
        }
        self.users[index].calling = Some(Purpose::Other);
        self.calls.push(InFlight { from: Sender::User(index), requests });
        true
    }

    fn some_answer(&mut self, id: &DecisionId) -> Request {
        let options = self.model.decisions.get(id).map_or(0, |asked| asked.acts.len());
        let wrong = self.random.in_thousand(100);
        let option = if wrong { *self.random.pick(&[0, 9]) } else { 1 + self.random.below(options) };
        self.resolve(id, u32::try_from(option).expect("small"))
    }

    fn resolve(&mut self, id: &DecisionId, option: u32) -> Request {
        let about = self.model.decisions[id].about.clone();
        let run = match &about {
            About::Run { run, task } => {
                self.remove_container(run);
                self.work(run, task)
            }
            About::Task(_) | About::OutboxCommand(_) | About::Route(_) | About::Landing { .. } => None,
        };
        Request::Decision(DecisionRequest { id: id.clone(), about, run, option, by: "somebody".into(), note: None })
    }

    /// An answer that no process of a run is alive is true: the person has ended them.
    fn remove_container(&mut self, run: &RunId) {
        let dead = self.keepers.values().filter(|keeper| keeper.run == *run && !keeper.alive && keeper.is_unseen());
        for number in dead.map(|keeper| keeper.number).collect::<Vec<_>>() {
            if let Some(mut keeper) = self.keepers.remove(&number) {
                self.end_tree(&mut keeper);
                self.keepers.insert(number, keeper);
            }
        }
    }

    fn work(&mut self, run: &RunId, task: &TaskId) -> Option<Box<Work>> {
        match self.store.view().load(&[Key::Run(run.clone()), Key::Task(task.clone())].into()) {
            Ok(mut rows) => {
                let found = rows.backlog.runs.remove(run).zip(rows.backlog.tasks.remove(task));
                found.map(|(run, task)| Box::new(Work { run, task }))
            }
            Err(error) => {
                self.store_failed(&error);
                None
            }
        }
    }

    /// Whether an open question asks if a run may be ended.
    pub(crate) fn is_asked_about(&self, run: &RunId) -> bool {
        let is_about = |asked: &DecisionModel| matches!(&asked.about, About::Run { run: about, .. } if about == run);
        self.model.decisions.values().any(|asked| asked.open && is_about(asked))
    }

    /// When the faults are over, retries all abandoned outbox commands, and ends the runs whose processes cannot be
    /// seen. Returns whether there were any.
    pub(crate) fn try_again(&mut self) -> bool {
        let is_meant = |asked: &DecisionModel| asked.open && matches!(asked.about, About::OutboxCommand(_) | About::Run { .. });
        let open: Vec<DecisionId> =
            self.model.decisions.iter().filter(|(_, asked)| is_meant(asked)).map(|(id, _)| id.clone()).collect();
        for id in &open {
            let request = self.resolve(id, 1);
            self.operate(request);
        }
        !open.is_empty()
    }

    pub(crate) fn observe_decision(&mut self, id: &DecisionId, fact: &DecisionFact) {
        match fact {
            DecisionFact::Raised(question) => self.observe_question(id, question),
            DecisionFact::Resolved { option, .. } => {
                self.tally.count("questions answered");
                let asked = self.model.decisions.get_mut(id).filter(|asked| asked.open);
                let fits = asked.is_some_and(|asked| {
                    asked.open = false;
                    (1..=asked.acts.len()).contains(&(*option as usize))
                });
                self.verdict.expect(Checker::Decisions, fits, || format!("{id} is answered with {option}, and cannot be"));
            }
            DecisionFact::Withdrawn {} => {
                self.tally.count("questions withdrawn");
                let asked = self.model.decisions.get_mut(id).filter(|asked| asked.open);
                let was_open = asked.map(|asked| asked.open = false).is_some();
                self.verdict.expect(Checker::Decisions, was_open, || format!("{id} is withdrawn, and was not open"));
            }
        }
    }

    fn observe_question(&mut self, id: &DecisionId, question: &Question) {
        self.tally.count(match question.about {
            About::Task(_) => "questions about tasks",
            About::OutboxCommand(_) => "questions about outbox commands",
            About::Run { .. } => "questions about runs",
            About::Route(_) => "questions about routes",
            About::Landing { .. } => "questions about landings",
        });
        let other = self.model.decisions.iter().find(|(_, asked)| asked.open && asked.about == question.about).map(|(id, _)| id);
        self.verdict.expect(Checker::Decisions, other.is_none(), || format!("{id} asks what {other:?} asks already"));
        let acts = question.options.iter().map(|choice| choice.act).collect();
        self.model.decisions.insert(id.clone(), DecisionModel { about: question.about.clone(), acts, open: true });
    }

    /// An answer is carried out, once; a refused answer does nothing.
    pub(crate) fn check_answer(&mut self, call: &CommittedCall<'_>, events: &[Logged]) {
        let (Request::Decision(request), Reply::Decision(outcome)) = (call.request, call.reply) else { return };
        let DecisionOutcome::Stepped(Outcome::Resolved(act), decision) = outcome else {
            self.tally.count("answers refused");
            let silent = events.is_empty();
            return self
                .verdict
                .expect(Checker::Decisions, silent, || format!("{} is no answer, and does something", request.id));
        };
        match &decision.question.about {
            About::Task(task) => {
                let done = events.iter().filter(|logged| is_done(&logged.event, task, *act)).count();
                self.verdict
                    .expect(Checker::Decisions, done == 1, || format!("{} says {act:?}, which is done {done} times", request.id));
            }
            About::OutboxCommand(seq) => {
                let outbox = match self.store.view().load(&[Key::Outbox].into()) {
                    Ok(snapshot) => snapshot.tables.backlog.outbox,
                    Err(error) => return self.store_failed(&error),
                };
                let entry = outbox.get(seq).map(|entry| entry.attempts);
                let fits = entry.is_none_or(|attempts| *act == Act::Resend && attempts == 0);
                self.verdict.expect(Checker::Decisions, fits, || {
                    format!("{} says {act:?}, and the outbox command is {entry:?}", request.id)
                });
            }
            About::Run { run, task } => {
                let is_over = !self.model.is_live(run) && self.work(run, task).is_none_or(|work| !work.run.is_live());
                self.verdict.expect(Checker::Decisions, is_over, || format!("{} says {act:?}, and {run} lives", request.id));
            }
            About::Route(_) | About::Landing { .. } => {}
        }
    }

    /// Every task that waits for an answer has its question, and every question about a task its task.
    pub(crate) fn check_questions(&mut self) {
        let parked = self.model.jobs.iter().filter_map(|(id, job)| match &job.state {
            TaskState::AwaitingDecision(decision) => Some((decision.clone(), id.clone())),
            TaskState::Pending
            | TaskState::Live(_)
            | TaskState::Awaiting(_)
            | TaskState::InPhases(_)
            | TaskState::Manual
            | TaskState::Landing
            | TaskState::Review
            | TaskState::Over(_) => None,
        });
        // A pipeline whose guard is overdue waits for its answer, too.
        let overdue = self.model.pipelines.iter().filter_map(|(id, pipeline)| match &pipeline.blocked {
            Some(banksman_core::pipeline::Reason::Overdue { decision, .. }) => Some((decision.clone(), id.clone())),
            _ => None,
        });
        let mut parked: Vec<(DecisionId, TaskId)> = parked.chain(overdue).collect();
        parked.sort();
        let asked = self.model.decisions.iter().filter(|(_, asked)| asked.open).filter_map(|(id, asked)| match &asked.about {
            About::Task(task) => Some((id.clone(), task.clone())),
            About::OutboxCommand(_) | About::Run { .. } | About::Route(_) | About::Landing { .. } => None,
        });
        let asked: Vec<(DecisionId, TaskId)> = asked.collect();
        self.verdict.expect(Checker::Decisions, parked == asked, || format!("parked are {parked:?}, asked is {asked:?}"));
        let stale = self.model.decisions.iter().find(|(_, asked)| match &asked.about {
            About::Run { run, .. } => asked.open && !self.model.is_live(run),
            About::Task(_) | About::OutboxCommand(_) | About::Route(_) | About::Landing { .. } => false,
        });
        let stale = stale.map(|(id, _)| id.clone());
        self.verdict.expect(Checker::Decisions, stale.is_none(), || format!("{stale:?} asks about a run that has ended"));
    }

    /// Every abandoned outbox command has its question, and every question about an outbox command its command.
    pub(crate) fn check_given_up(&mut self, rows: &banksman_core::backlog::Backlog) {
        let dead = rows.outbox.values().filter(|entry| entry.attempts >= COMMAND_ATTEMPTS).map(|entry| entry.seq);
        let asked = self.model.decisions.values().filter(|asked| asked.open).filter_map(|asked| match &asked.about {
            About::OutboxCommand(seq) => Some(*seq),
            About::Task(_) | About::Run { .. } | About::Route(_) | About::Landing { .. } => None,
        });
        let (dead, mut asked): (Vec<_>, Vec<_>) = (dead.collect(), asked.collect());
        asked.sort();
        self.verdict.expect(Checker::Decisions, dead == asked, || format!("given up are {dead:?}, asked is {asked:?}"));
        let open = rows.decisions.values().filter(|decision| decision.is_open()).map(|decision| &decision.id);
        let expected = self.model.decisions.iter().filter(|(_, asked)| asked.open).map(|(id, _)| id);
        self.verdict.expect(Checker::Model, open.eq(expected), || "the open decisions differ".to_owned());
    }
}

/// Whether this event carries out an answer about a task.
fn is_done(event: &Event, task: &TaskId, act: Act) -> bool {
    use banksman_core::pipeline::Fact;
    if let Event::Pipeline { id, fact } = event {
        return id == task
            && match act {
                Act::Wait => matches!(fact, Fact::Blocked { .. }),
                Act::Pass => matches!(fact, Fact::Unblocked { .. }),
                _ => false,
            };
    }
    let Event::Task { id, fact } = event else { return false };
    id == task
        && match act {
            Act::Retry => matches!(fact, TaskFact::Retried {}),
            Act::Fail => matches!(fact, TaskFact::Failed { .. }),
            Act::Cancel => matches!(fact, TaskFact::Cancelled { .. }),
            Act::Answer | Act::Continue => matches!(fact, TaskFact::Answered { .. }),
            Act::Skip => matches!(fact, TaskFact::Marked { status: Status::Skipped }),
            Act::Resend | Act::Drop | Act::End | Act::Wait | Act::Pass | Act::Remove | Act::Return | Act::Resume => false,
        }
}
