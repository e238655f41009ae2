//! A question for a person, raised when the machine must not choose alone.
//!
//! ```text
//!   raised --> Open -- resolve: one of its options is carried out --> Resolved
//!               `----- what it was about changed without it -------> Withdrawn
//! ```
//!
//! Invariants: it is answered once, with one of its options; its recommended option is one of them. Its row is the
//! replay of its events.

use serde::{Deserialize, Serialize};

use crate::event::{DecisionFact, Event};
use crate::ids::{DecisionId, LandingId, Name, RunId, Seq, TaskId, Title};
use crate::landing::{CommitId, Entry, Return};
use crate::step::{EffectBuffer, Notice, NoticeKind, Now, OutboxCommand, Step};
use crate::time::{Span, Wall};

/// The answer to a question without options: the note has the text.
pub const OPEN_ANSWER: &str = "go on, with what --note says";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub id: DecisionId,
    pub question: Question,
    pub raised: Wall,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    pub about: About,
    pub text: Box<str>,
    /// The possible answers, numbered from 1.
    pub options: Vec<Choice>,
    /// The number of the option to take when in doubt.
    pub recommended: u32,
}

/// The subject of a decision.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum About {
    /// A task that waits for the answer.
    Task(TaskId),
    /// An outbox command that failed, by its number.
    #[serde(rename = "errand")]
    OutboxCommand(Seq),
    /// A live run: its keeper is dead while its processes cannot be proven dead, or it has asked something and takes
    /// the answer.
    Run { run: RunId, task: TaskId },
    /// A route that was stopped, because the chain of routes that led to it is too long.
    Route(Box<str>),
    /// An entry of a merge queue that cannot land by itself; without an entry, the queue, whose target fails the check.
    Landing {
        target: Name,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry: Option<LandingId>,
        /// The task whose work it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
    },
}

/// A possible answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub text: Box<str>,
    pub act: Act,
}

/// The effect of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// The task is tried again, as if for the first time.
    Retry,
    Fail,
    Cancel,
    Skip,
    /// The outbox command is tried again.
    Resend,
    /// The outbox command is dropped.
    Drop,
    /// The run is ended as lost, and its task continues as after any lost run.
    End,
    /// The pipeline waits for its guard once more.
    Wait,
    /// The pipeline continues, whatever its guard says.
    Pass,
    /// The route is removed.
    Remove,
    /// The work goes back to its author, who gets another attempt.
    Return,
    Resume,
    /// The task continues with the answer.
    Answer,
    /// The task continues where it was.
    Continue,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Open,
    Resolved(Answer),
    Withdrawn { at: Wall },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The number of the option.
    pub option: u32,
    pub by: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Box<str>>,
    pub at: Wall,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    Resolve {
        option: u32,
        by: Box<str>,
        note: Option<Box<str>>,
    },
    /// Its subject has changed.
    Withdraw,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is answered; the caller carries out this act.
    Resolved(Act),
    /// An answer is not needed any more.
    Withdrawn,
    /// It was answered or withdrawn before.
    Over(State),
    /// It has only this many options.
    NoSuchOption { options: u32 },
}

impl Decision {
    /// A decision that was just raised.
    pub fn new(id: DecisionId, question: Question, raised: Wall) -> Decision {
        Decision { id, question, raised, state: State::Open }
    }

    pub fn step(mut self, input: Input, now: &Now) -> Step<Decision, Outcome> {
        let mut buffer = EffectBuffer::new(now);
        let outcome = match (&self.state, input) {
            (State::Resolved(_) | State::Withdrawn { .. }, _) => Outcome::Over(self.state.clone()),
            (State::Open, Input::Resolve { option, by, note }) => match self.question.option(option) {
                None => Outcome::NoSuchOption { options: u32::try_from(self.question.options.len()).unwrap_or(u32::MAX) },
                Some(choice) => {
                    let act = choice.act;
                    self.record(DecisionFact::Resolved { option, by, note }, now, &mut buffer);
                    Outcome::Resolved(act)
                }
            },
            (State::Open, Input::Withdraw) => {
                self.record(DecisionFact::Withdrawn {}, now, &mut buffer);
                Outcome::Withdrawn
            }
        };
        Step { state: self, outcome, effects: buffer.effects }
    }

    /// Whether it waits for an answer.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub fn answered_by(&self) -> Option<&str> {
        match &self.state {
            State::Resolved(answer) => Some(&answer.by),
            State::Open | State::Withdrawn { .. } => None,
        }
    }

    /// Applies an event that followed the one that raised it.
    pub fn apply(&mut self, fact: DecisionFact, at: Wall) {
        match fact {
            DecisionFact::Raised(_) => {}
            DecisionFact::Resolved { option, by, note } => self.state = State::Resolved(Answer { option, by, note, at }),
            DecisionFact::Withdrawn {} => self.state = State::Withdrawn { at },
        }
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        assert!(self.question.option(self.question.recommended).is_some(), "{} recommends nothing", self.id);
        if let State::Resolved(answer) = &self.state {
            assert!(self.question.option(answer.option).is_some(), "{} was answered with nothing", self.id);
        }
    }

    fn record(&mut self, fact: DecisionFact, now: &Now, buffer: &mut EffectBuffer) {
        self.apply(fact.clone(), now.wall);
        buffer.emit(Event::Decision { id: self.id.clone(), fact });
    }
}

fn choice(text: impl Into<Box<str>>, act: Act) -> Choice {
    Choice { text: text.into(), act }
}

/// The options for a run once it is known that none of its processes is left.
fn ways_to_end(known: &str) -> Vec<Choice> {
    [
        ("end the run as lost, and go on with the task", Act::End),
        ("end the run, and mark the task as failed", Act::Fail),
        ("end the run, and cancel the task and its children", Act::Cancel),
    ]
    .map(|(way, act)| choice(format!("{known}: {way}"), act))
    .into()
}

impl Question {
    /// A question whose first option is recommended.
    fn new(about: About, text: impl Into<Box<str>>, options: Vec<Choice>) -> Question {
        Question { about, text: text.into(), options, recommended: 1 }
    }

    /// The option with this number.
    pub fn option(&self, number: u32) -> Option<&Choice> {
        self.options.get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// What to do with a task that cannot go on by itself.
    pub(crate) fn of_task(task: &TaskId, title: &Title, error: &str) -> Question {
        Question::new(
            About::Task(task.clone()),
            format!("\"{title}\" cannot go on by itself: {error}. What now?"),
            vec![
                choice("try it again, as if for the first time", Act::Retry),
                choice("mark it as failed", Act::Fail),
                choice("skip it", Act::Skip),
                choice("cancel it and its children", Act::Cancel),
            ],
        )
    }

    /// What to do with a task whose agent was not started, because something that it would execute is not trusted.
    pub(crate) fn of_trust(task: &TaskId, title: &Title, error: &str) -> Question {
        Question::new(
            About::Task(task.clone()),
            format!("\"{title}\" has not begun: {error}"),
            vec![
                choice("look again: it is trusted now, or gone", Act::Continue),
                choice("mark it as failed", Act::Fail),
                choice("skip it", Act::Skip),
                choice("cancel it and its children", Act::Cancel),
            ],
        )
    }

    /// Whether the task can continue once something is trusted.
    pub fn is_of_trust(&self) -> bool {
        self.options.iter().any(|option| option.act == Act::Continue)
    }

    /// The question of a task's run.
    pub(crate) fn of_run(task: &TaskId, question: &str, options: &[Box<str>]) -> Question {
        let answers: Vec<Choice> = options.iter().map(|option| choice(option.clone(), Act::Answer)).collect();
        let open = answers.is_empty().then(|| choice(OPEN_ANSWER, Act::Answer));
        let rest = [choice("mark the task as failed", Act::Fail), choice("cancel the task and its children", Act::Cancel)];
        Question::new(About::Task(task.clone()), question, answers.into_iter().chain(open).chain(rest).collect())
    }

    /// What to do with a pipeline that a guard has blocked for too long.
    pub(crate) fn of_guard(pipeline: &TaskId, phase: &Name, reason: &str, waited: Span) -> Question {
        Question::new(
            About::Task(pipeline.clone()),
            format!("Phase {phase} of {pipeline} has been blocked for {waited}: {reason}. What now?"),
            vec![
                choice("check the guard again, and wait for as long as before", Act::Wait),
                choice("go on with the phase, whatever the guard says", Act::Pass),
                choice("mark the pipeline as failed", Act::Fail),
                choice("cancel the pipeline", Act::Cancel),
            ],
        )
    }

    /// What to do about an outbox command that failed too often.
    fn of_command(seq: Seq, command: &OutboxCommand, attempts: u32, error: &str) -> Question {
        let tries = if attempts == 1 { "once".into() } else { format!("{attempts} times") };
        let what = match command {
            OutboxCommand::Spawn { run } => format!("start run {run}"),
            OutboxCommand::Kill { run, .. } => format!("end run {run}"),
            OutboxCommand::Nudge { run } => format!("nudge run {run}"),
            OutboxCommand::Deliver { run, message } => format!("send {message} to run {run}"),
            OutboxCommand::Notify(notice) => format!("tell people: {}", notice.subject),
        };
        Question::new(
            About::OutboxCommand(seq),
            format!("It was tried {tries} in vain to {what} ({error}). What now?"),
            vec![choice("try it again", Act::Resend), choice("leave it", Act::Drop)],
        )
    }

    /// The question of a live run.
    fn of_live_run(run: &RunId, task: &TaskId, question: &str, options: &[Box<str>]) -> Question {
        let mut asked = Question::of_run(task, question, options);
        asked.about = About::Run { run: run.clone(), task: task.clone() };
        // The other options are for a task that waits. This one works.
        asked.options.retain(|option| option.act == Act::Answer);
        asked
    }

    /// Whether a run asked it, and continues with the answer.
    pub fn is_of_run(&self) -> bool {
        self.options.iter().any(|option| option.act == Act::Answer)
    }

    /// The answers that it offers.
    pub fn offered(&self) -> impl Iterator<Item = &str> {
        let offered = self.options.iter().filter(|option| option.act == Act::Answer && &*option.text != OPEN_ANSWER);
        offered.map(|option| &*option.text)
    }

    /// A person's answer as text.
    pub fn answer(&self, option: u32, note: Option<&str>) -> String {
        let chosen = self.option(option).map(|choice| &*choice.text).filter(|text| *text != OPEN_ANSWER);
        match (chosen, note) {
            (Some(chosen), Some(note)) => format!("{chosen}: {note}"),
            (Some(text), None) | (None, Some(text)) => text.to_owned(),
            (None, None) => OPEN_ANSWER.to_owned(),
        }
    }

    /// Whether a run may be ended whose processes cannot be proven dead.
    fn of_unproven(run: &RunId, task: &TaskId, title: &Title, why: &str) -> Question {
        Question::new(
            About::Run { run: run.clone(), task: task.clone() },
            format!(
                "The keeper of run {run} of \"{title}\" is dead, and it cannot be proven that its processes are: {why}. \
                 Are they gone, so that the run can be ended?"
            ),
            ways_to_end("they are gone"),
        )
    }

    /// Whether a run may be ended whose session was never seen.
    fn of_unobserved(run: &RunId, task: &TaskId, title: &Title, waited: Span) -> Question {
        Question::new(
            About::Run { run: run.clone(), task: task.clone() },
            format!(
                "Run {run} of \"{title}\" was claimed {} minutes ago with a message in its prompt, and its session has not been seen since. \
                 Is there none, so that the run can be ended?",
                waited.as_ms() / 60_000
            ),
            ways_to_end("there is none"),
        )
    }

    /// What to do about a route that was stopped.
    fn of_route(route: &str, event: Seq, depth: u32) -> Question {
        Question::new(
            About::Route(route.into()),
            format!(
                "The route {route} was stopped at event {event}: {depth} routes led to it, one after the other, so it seems to go round \
                 in circles. What now?"
            ),
            vec![
                choice("leave it: this chain ends here, and the route stays applied", Act::Drop),
                choice("remove the route", Act::Remove),
            ],
        )
    }

    /// What to do with an entry of a merge queue that cannot land by itself.
    pub(crate) fn of_landing(entry: &Entry, because: &Return) -> Question {
        let (title, target, task) = (&entry.spec.title, &entry.target, entry.spec.task.clone());
        let mut options = vec![choice("queue it again as it is", Act::Retry), choice("take it out of the queue", Act::Drop)];
        if task.is_some() {
            options.insert(0, choice("give it back to its author for another attempt", Act::Return));
        }
        Question::new(
            About::Landing { target: target.clone(), entry: Some(entry.id.clone()), task },
            format!("\"{title}\" cannot land on {target}: {because}. What now?"),
            options,
        )
    }

    /// What to do about a target that fails the check.
    pub(crate) fn of_red_tip(target: &Name, tip: &CommitId, log: &str) -> Question {
        Question::new(
            About::Landing { target: target.clone(), entry: None, task: None },
            format!(
                "The check fails on {target} itself, at {} (output: {log}), so nothing lands on it. Go on when it is repaired?",
                tip.short()
            ),
            vec![choice("it is repaired, or the check was wrong: go on", Act::Resume)],
        )
    }

    /// Raises it: an event, and a notification of this kind if there is one.
    pub(crate) fn raise(self, notice: Option<NoticeKind>, buffer: &mut EffectBuffer) -> DecisionId {
        let id = DecisionId::from(buffer.next());
        let notice =
            notice.map(|kind| Notice { kind, subject: format!("decision {id} waits for you").into(), text: self.text.clone() });
        buffer.emit(Event::Decision { id: id.clone(), fact: DecisionFact::Raised(Box::new(self)) });
        if let Some(notice) = notice {
            buffer.send(OutboxCommand::Notify(Box::new(notice)));
        }
        id
    }
}

fn ask(question: Question, notice: Option<NoticeKind>, now: &Now) -> Step<DecisionId, ()> {
    let mut buffer = EffectBuffer::new(now);
    let id = question.raise(notice, &mut buffer);
    Step { state: id, outcome: (), effects: buffer.effects }
}

/// Asks what to do about an outbox command that failed too often.
pub fn ask_about(seq: Seq, command: &OutboxCommand, attempts: u32, error: &str, now: &Now) -> Step<DecisionId, ()> {
    // A notification cannot report that notifications fail.
    let notice = match command {
        OutboxCommand::Notify(_) => None,
        OutboxCommand::Spawn { .. }
        | OutboxCommand::Kill { .. }
        | OutboxCommand::Nudge { .. }
        | OutboxCommand::Deliver { .. } => Some(NoticeKind::Decision),
    };
    ask(Question::of_command(seq, command, attempts, error), notice, now)
}

/// Asks whether a run may be ended whose processes cannot be proven dead.
pub fn ask_about_run(run: &RunId, task: &TaskId, title: &Title, why: &str, now: &Now) -> Step<DecisionId, ()> {
    ask(Question::of_unproven(run, task, title, why), Some(NoticeKind::Decision), now)
}

/// Asks a person the question of a live run.
pub fn ask_for_run(run: &RunId, task: &TaskId, question: &str, options: &[Box<str>], now: &Now) -> Step<DecisionId, ()> {
    ask(Question::of_live_run(run, task, question, options), Some(NoticeKind::Decision), now)
}

/// Asks whether a run may be ended whose session was not seen for so long.
pub fn ask_about_start(run: &RunId, task: &TaskId, title: &Title, waited: Span, now: &Now) -> Step<DecisionId, ()> {
    ask(Question::of_unobserved(run, task, title, waited), Some(NoticeKind::Decision), now)
}

/// Asks what to do about a route that was stopped.
pub fn ask_about_route(route: &str, event: Seq, depth: u32, now: &Now) -> Step<DecisionId, ()> {
    ask(Question::of_route(route, event, depth), Some(NoticeKind::Decision), now)
}

#[cfg(test)]
mod tests;
