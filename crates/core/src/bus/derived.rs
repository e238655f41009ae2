//! Messages that are derived from the event log: the dependencies a task waits for, that none is left, the questions of
//! its run, and its end. As a view of the log they are not stored, so a task with ten thousand dependents costs nothing
//! until they are read.
//!
//! * PROGRESS, when the dependencies that hold a task back have changed;
//! * FACT, when none is left;
//! * QUESTION, when a run has asked a person, and ANSWER, when the person has answered;
//! * FACT with the result, when it ends; also on the bus of its parent.

use std::collections::{BTreeMap, BTreeSet};

use crate::backlog::Edge;
use crate::bus::{Contention, Draft, Message, MessageType};
use crate::decision::{About, Question};
use crate::event::{DecisionFact, Event, ImportFact, TaskFact};
use crate::ids::{DecisionId, ImportId, MessageId, RunId, Seq, TaskId};
use crate::task::Status;
use crate::time::Wall;

/// The author of these messages.
pub const AUTHOR: &str = "banksman";

/// How many dependencies a message names.
const NAMED: usize = 20;

/// The longest part of a result that a message repeats, in bytes.
const RESULT_LIMIT: usize = 64 * 1024;

/// The kinds of events that a message may follow from. All others can be skipped.
pub const KINDS: [&str; 14] = [
    "task:added",
    "task:updated",
    "task:complete",
    "task:failed",
    "task:cancelled",
    "task:retried",
    "task:marked",
    "task:deleted",
    "import:finished",
    "import:dropped",
    "task:asked",
    "decision:raised",
    "decision:resolved",
    "decision:withdrawn",
];

/// The types of the messages that are derived.
pub fn types() -> [MessageType; 4] {
    [MessageType::fact(), MessageType::progress(), MessageType::question(), MessageType::answer()]
}

/// The state of the tasks that messages depend on, at one place of the log.
#[derive(Debug, Clone, Default)]
pub struct DerivedMessages {
    tasks: BTreeMap<TaskId, Known>,
    dependents: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// The open questions of runs.
    questions: BTreeMap<DecisionId, Question>,
}

/// The known state of a task.
#[derive(Debug, Clone)]
pub struct Known {
    pub title: Box<str>,
    pub parent: Option<TaskId>,
    pub edges: Vec<Edge>,
    /// How it ended, if it has.
    pub end: Option<TaskResult>,
    /// The import that it is part of, until that is finished.
    pub hidden: Option<ImportId>,
}

/// How a task ended, as far as its dependents are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskResult {
    Completed,
    /// It failed, or was cancelled or skipped.
    NotCompleted,
}

impl DerivedMessages {
    /// Starts from the tasks and the open questions at a place in the log.
    pub fn new(
        tasks: impl IntoIterator<Item = (TaskId, Known)>,
        questions: impl IntoIterator<Item = (DecisionId, Question)>,
    ) -> DerivedMessages {
        let questions = questions.into_iter().filter(|(_, question)| question.is_of_run()).collect();
        let mut derived = DerivedMessages { questions, ..DerivedMessages::default() };
        for (id, known) in tasks {
            derived.insert(id, known);
        }
        derived
    }

    /// The messages that follow from the next event of the log.
    pub fn apply(&mut self, seq: Seq, wall: Wall, event: &Event) -> Vec<Message> {
        let at = |task: &TaskId, kind: MessageType, body: String| message(seq, wall, task, kind, body);
        match event {
            Event::Task { id, fact } => match fact {
                TaskFact::Added { spec, depends_on, import } => {
                    let (title, parent) = (spec.title.as_str().into(), spec.parent.clone());
                    let known = Known { title, parent, edges: depends_on.clone(), end: None, hidden: import.clone() };
                    self.insert(id.clone(), known);
                    self.waits(id, true).map(|(kind, body)| at(id, kind, body)).into_iter().collect()
                }
                TaskFact::Updated { spec, depends_on } => {
                    let before = self.blockers(id);
                    self.update(id, spec.title.as_str(), depends_on);
                    self.changed([(id.clone(), before)].into(), at)
                }
                TaskFact::Complete { output, warning, .. } => {
                    let warning = warning.as_ref().map(|warning| format!(" ({warning})")).unwrap_or_default();
                    let output = output.as_ref().map(|output| format!(": {}", cut(&output.to_string()))).unwrap_or_default();
                    self.ended(id, TaskResult::Completed, &format!("completed{warning}{output}"), at)
                }
                TaskFact::Failed { error, .. } => {
                    self.ended(id, TaskResult::NotCompleted, &format!("failed: {}", cut(error)), at)
                }
                TaskFact::Cancelled { .. } => self.ended(id, TaskResult::NotCompleted, "cancelled", at),
                TaskFact::Marked { status: Status::Skipped } => self.ended(id, TaskResult::NotCompleted, "skipped", at),
                TaskFact::Marked { .. } | TaskFact::Retried {} => self.set_end(id, None, at),
                TaskFact::Asked { run, decision, question } => {
                    let options = self.questions.get(decision).map(answers).unwrap_or_default();
                    vec![asked(at(id, MessageType::question(), format!("{question}{options}")), run, decision)]
                }
                TaskFact::Deleted {} => {
                    let before = self.dependents_blockers(id);
                    self.remove(id);
                    self.changed(before, at)
                }
                _ => Vec::new(),
            },
            Event::Decision { id, fact } => match fact {
                DecisionFact::Raised(question) => {
                    match &question.about {
                        // A live run has asked: its answer is a message of its own.
                        About::Run { run, task } if question.is_of_run() => {
                            let text = format!("{}{}", question.text, answers(question));
                            return vec![asked(at(task, MessageType::question(), text), run, id)];
                        }
                        _ if question.is_of_run() => drop(self.questions.insert(id.clone(), (**question).clone())),
                        _ => {}
                    }
                    Vec::new()
                }
                DecisionFact::Resolved { option, by, note } => {
                    let Some(question) = self.questions.remove(id) else { return Vec::new() };
                    let About::Task(task) = &question.about else { return Vec::new() };
                    let message = at(task, MessageType::answer(), question.answer(*option, note.as_deref()));
                    vec![answered(message, id, by)]
                }
                DecisionFact::Withdrawn {} => {
                    self.questions.remove(id);
                    Vec::new()
                }
            },
            Event::Import { id, fact: ImportFact::Finished { .. } } => {
                let visible = self.hidden_in(id);
                visible.iter().for_each(|id| self.tasks.get_mut(id).into_iter().for_each(|known| known.hidden = None));
                let waits = |id: &TaskId| self.waits(id, true).map(|(kind, body)| at(id, kind, body));
                visible.iter().filter_map(waits).collect()
            }
            Event::Import { id, fact: ImportFact::Dropped {} } => {
                let gone = self.hidden_in(id);
                gone.iter().for_each(|id| self.remove(id));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn hidden_in(&self, import: &ImportId) -> Vec<TaskId> {
        self.tasks.iter().filter(|(_, known)| known.hidden.as_ref() == Some(import)).map(|(id, _)| id.clone()).collect()
    }

    fn insert(&mut self, id: TaskId, known: Known) {
        for edge in &known.edges {
            self.dependents.entry(edge.on.clone()).or_default().insert(id.clone());
        }
        self.tasks.insert(id, known);
    }

    fn update(&mut self, id: &TaskId, title: &str, edges: &[Edge]) {
        let Some(mut known) = self.tasks.get(id).cloned() else { return };
        self.remove(id);
        (known.title, known.edges) = (title.into(), edges.to_vec());
        self.insert(id.clone(), known);
    }

    fn remove(&mut self, id: &TaskId) {
        if let Some(known) = self.tasks.remove(id) {
            for edge in known.edges {
                if let Some(dependents) = self.dependents.get_mut(&edge.on) {
                    dependents.remove(id);
                }
            }
        }
    }

    /// The dependencies that hold a task back.
    fn blockers(&self, id: &TaskId) -> BTreeSet<TaskId> {
        let Some(known) = self.tasks.get(id) else { return BTreeSet::new() };
        let holds_back = |edge: &&Edge| match self.tasks.get(&edge.on).map(|known| known.end) {
            Some(Some(TaskResult::Completed)) => false,
            Some(Some(TaskResult::NotCompleted)) => !edge.allow_failed,
            Some(None) | None => true,
        };
        known.edges.iter().filter(holds_back).map(|edge| edge.on.clone()).collect()
    }

    fn dependents_blockers(&self, id: &TaskId) -> BTreeMap<TaskId, BTreeSet<TaskId>> {
        let dependents = self.dependents.get(id).into_iter().flatten();
        dependents.map(|dependent| (dependent.clone(), self.blockers(dependent))).collect()
    }

    fn ended(
        &mut self,
        id: &TaskId,
        end: TaskResult,
        words: &str,
        at: impl Fn(&TaskId, MessageType, String) -> Message,
    ) -> Vec<Message> {
        let mut messages = Vec::new();
        if let Some(known) = self.tasks.get(id) {
            messages.push(at(id, MessageType::fact(), format!("{}: {words}", known.title)));
            messages.extend(
                known
                    .parent
                    .iter()
                    .map(|parent| at(parent, MessageType::fact(), format!("child {id}, {}: {words}", known.title))),
            );
        }
        messages.extend(self.set_end(id, Some(end), at));
        messages
    }

    fn set_end(
        &mut self,
        id: &TaskId,
        end: Option<TaskResult>,
        at: impl Fn(&TaskId, MessageType, String) -> Message,
    ) -> Vec<Message> {
        let before = self.dependents_blockers(id);
        if let Some(known) = self.tasks.get_mut(id) {
            known.end = end;
        }
        self.changed(before, at)
    }

    /// The messages for the tasks whose blockers have changed.
    fn changed(
        &self,
        before: BTreeMap<TaskId, BTreeSet<TaskId>>,
        at: impl Fn(&TaskId, MessageType, String) -> Message,
    ) -> Vec<Message> {
        let changed = before.into_iter().filter(|(id, before)| self.blockers(id) != *before);
        changed.filter_map(|(id, _)| self.waits(&id, false).map(|(kind, body)| at(&id, kind, body))).collect()
    }

    /// The message about the dependencies of a task, unless the task is over or hidden. A new task without blockers has
    /// none.
    fn waits(&self, id: &TaskId, is_new: bool) -> Option<(MessageType, String)> {
        self.tasks.get(id).filter(|known| known.end.is_none() && known.hidden.is_none())?;
        let blockers = self.blockers(id);
        if blockers.is_empty() {
            return (!is_new).then(|| (MessageType::fact(), "all dependencies are met".to_owned()));
        }
        let name = |id: &TaskId| match self.tasks.get(id) {
            Some(known) => format!("{id} ({})", known.title),
            None => id.to_string(),
        };
        let named: Vec<String> = blockers.iter().take(NAMED).map(name).collect();
        let rest = match blockers.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let tasks = if blockers.len() == 1 { "task" } else { "tasks" };
        Some((MessageType::progress(), format!("waiting for {} {tasks}: {}{rest}", blockers.len(), named.join(", "))))
    }
}

fn message(seq: Seq, wall: Wall, task: &TaskId, kind: MessageType, body: String) -> Message {
    let id = MessageId::new(&format!("event-{seq}-{task}")).expect("an id is short and plain");
    let draft = Draft {
        id,
        kind,
        task: Some(task.clone()),
        run: None,
        author: AUTHOR.into(),
        parent: None,
        body: body.into(),
        attachments: Vec::new(),
    };
    Message { seq, wall, draft, contention: Contention { attempts: 1, ..Contention::default() } }
}

/// The answers that a question offers, a line each.
fn answers(question: &Question) -> String {
    question.offered().zip(1..).map(|(option, number)| format!("\n{number}. {option}")).collect()
}

fn asked(mut message: Message, run: &RunId, decision: &DecisionId) -> Message {
    message.draft =
        Draft { id: question_id(decision), author: run.holder().as_str().into(), run: Some(run.clone()), ..message.draft };
    message
}

fn answered(mut message: Message, decision: &DecisionId, by: &str) -> Message {
    let id = MessageId::new(&format!("answer-{decision}")).expect("an id is short and plain");
    message.draft = Draft { id, author: by.into(), parent: Some(question_id(decision)), ..message.draft };
    message
}

/// The id follows from the decision alone, so that an answer can name it when the event of the question is gone.
fn question_id(decision: &DecisionId) -> MessageId {
    MessageId::new(&format!("question-{decision}")).expect("an id is short and plain")
}

fn cut(text: &str) -> &str {
    let end = (0..=RESULT_LIMIT.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests;
