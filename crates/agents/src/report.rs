//! The state of a run of an agent program, from its output so far.

use std::collections::BTreeSet;

use banksman_core::agent::{Limit, Usage};
use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::family::{Family, plain};
use crate::lines::Lines;
use crate::resets::Reset;
use crate::trouble::Trouble;

/// The longest text of a result or an error that is kept, in characters.
const TEXT: usize = 2_000;

/// The longest activity, in characters.
const ACTIVITY: usize = 100;

/// How much plain text is kept, in characters, from the end.
const PLAIN: usize = 2_000;

/// The maximum number of denied tools that are kept.
const DENIED: usize = 10;

/// The state of a run of an agent program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Report {
    /// The id with which the program can resume the session.
    pub session: Option<Box<str>>,
    pub model: Option<Box<str>>,
    /// The source of the API key, as the program names it.
    pub key_source: Option<Box<str>>,
    /// How often the model has answered.
    pub answers: u32,
    pub turns: Option<u32>,
    pub usage: Usage,
    pub cost_micros: Option<u64>,
    /// The current activity, in one line.
    pub activity: Option<Box<str>>,
    /// The tool calls in progress.
    pub calls: BTreeSet<Box<str>>,
    /// Whether a step is in progress whose tool calls the program does not report yet.
    pub in_step: bool,
    /// Whether the last step that has ended was the last one of its turn.
    pub last_step_ended: bool,
    /// The retries, if the program does nothing else.
    pub retry: Option<Retry>,
    pub limit: Option<Limit>,
    /// The end of the limit, if the program has reported it in text only.
    pub reset: Option<Reset>,
    pub denied: Vec<Box<str>>,
    pub ending: Option<ReportedEnd>,
    /// The last plain text, such as output on standard error.
    pub plain: Box<str>,
}

/// Retries without progress in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    pub trouble: Trouble,
    pub text: Box<str>,
    pub count: u32,
    /// The time of the first retry, by the clock of the reader.
    pub since_ms: i64,
}

/// The end that the program reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedEnd {
    pub is_error: bool,
    pub trouble: Option<Trouble>,
    pub text: Box<str>,
}

impl Report {
    /// Whether a tool call is in progress.
    pub fn is_calling(&self) -> bool {
        !self.calls.is_empty() || self.in_step
    }

    /// Applies an event. Returns whether it is progress: retries and plain text are not.
    fn take(&mut self, event: Event<'_>, now_ms: i64) -> bool {
        match event {
            Event::Session { id, model, key_source } => {
                let is_new = self.session.as_deref() != Some(&*id);
                self.session = Some(id.into());
                self.model = model.map(Into::into).or(self.model.take());
                self.key_source = key_source.map(Into::into).or(self.key_source.take());
                return is_new;
            }
            Event::Answer { .. } => {
                self.answers = self.answers.saturating_add(1);
                self.retry = None;
                (self.limit, self.reset) = (None, None);
                self.ending = None;
            }
            Event::Text(text) => self.activity = Some(line(&text, ACTIVITY)),
            Event::CallStarted { id, tool, detail } => {
                let what = if detail.is_empty() { tool.into_owned() } else { format!("running: {detail}") };
                self.activity = Some(line(&what, ACTIVITY));
                self.calls.insert(id.into());
            }
            Event::CallEnded { id, .. } => {
                self.calls.remove(&*id);
            }
            Event::StepStarted => (self.in_step, self.last_step_ended) = (true, false),
            Event::StepEnded { is_last } => {
                (self.in_step, self.last_step_ended) = (false, is_last);
                self.turns = Some(self.turns.unwrap_or(0) + 1);
                self.ending = is_last.then(|| ReportedEnd { is_error: false, trouble: None, text: "".into() });
            }
            Event::Used { usage, is_total: true } => self.usage = usage,
            Event::Used { usage, is_total: false } => self.usage = self.usage.plus(usage),
            Event::Cost { micros, is_total } => {
                let before = self.cost_micros.filter(|_| !is_total).unwrap_or(0);
                self.cost_micros = Some(before.saturating_add(micros));
            }
            Event::Limited(limit) => self.limit = Some(limit),
            Event::LimitEnds(reset) => self.reset = Some(reset),
            Event::NotLimited => (self.limit, self.reset) = (None, None),
            Event::Retrying { trouble, text } => {
                let before = self.retry.take();
                let (count, since_ms) = before.map_or((0, now_ms), |retry| (retry.count, retry.since_ms));
                self.activity = Some(line(&format!("retrying: {text}"), ACTIVITY));
                self.retry = Some(Retry { trouble, text: line(&text, TEXT), count: count.saturating_add(1), since_ms });
                return false;
            }
            Event::Denied(tools) => self.denied = tools.into_iter().take(DENIED).map(Into::into).collect(),
            Event::Result { is_error, trouble, text, turns } => {
                self.turns = turns.or(self.turns);
                self.calls.clear();
                self.in_step = false;
                self.ending = Some(ReportedEnd { is_error, trouble, text: cut(&text, TEXT) });
            }
            Event::Plain(text) => {
                self.note_plain(&text);
                return false;
            }
            Event::Opaque(_) => {}
        }
        true
    }

    fn note_plain(&mut self, text: &str) {
        let text = format!("{}{}{text}", self.plain, if self.plain.is_empty() { "" } else { "\n" });
        let excess = text.chars().count().saturating_sub(PLAIN);
        self.plain = text.chars().skip(excess).collect::<String>().into();
    }
}

/// Reads the output of an agent program as it arrives.
#[derive(Debug)]
pub struct Reader {
    family: Family,
    output: Lines,
    errors: Lines,
    report: Report,
    /// Whether a reported end does not count any more, because the program was asked to end.
    is_closed: bool,
}

impl Reader {
    pub fn new(family: Family) -> Reader {
        Reader { family, output: Lines::default(), errors: Lines::default(), report: Report::default(), is_closed: false }
    }

    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Reads bytes from standard output. Returns whether there was progress.
    pub fn output(&mut self, bytes: &[u8], now_ms: i64) -> bool {
        let Reader { family, output, report, is_closed, .. } = self;
        let mut progress = false;
        output.feed(bytes, |line| progress |= take(*family, line, report, *is_closed, now_ms));
        progress
    }

    /// Reads bytes from standard error.
    pub fn errors(&mut self, bytes: &[u8], now_ms: i64) {
        let Reader { family, errors, report, .. } = self;
        errors.feed(bytes, |line| take_error(*family, line, report, now_ms));
    }

    /// Begins the next turn, after the result of the last one.
    pub fn begin_turn(&mut self) {
        self.report.ending = None;
    }

    /// Notes that the program was asked to end: a result from now on does not count.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// The final report, after the end of the output.
    pub fn finish(mut self, now_ms: i64) -> Report {
        let Reader { family, output, errors, report, is_closed } = &mut self;
        output.finish(|line| {
            take(*family, line, report, *is_closed, now_ms);
        });
        errors.finish(|line| take_error(*family, line, report, now_ms));
        self.report
    }
}

fn take(family: Family, line: &[u8], report: &mut Report, is_closed: bool, now_ms: i64) -> bool {
    let mut progress = false;
    let kept = is_closed.then(|| report.ending.clone());
    family.parse(line, &mut |event| progress |= report.take(event, now_ms));
    if let Some(ending) = kept {
        report.ending = ending;
    }
    progress
}

/// Applies a line of standard error. Gemini reports its retries only there.
fn take_error(family: Family, line: &[u8], report: &mut Report, now_ms: i64) {
    let event = plain(line);
    if let (Family::Gemini, Event::Plain(text)) = (family, &event)
        && text.starts_with("Attempt ")
        && text.contains(" failed")
    {
        // The text of some errors takes several lines, and only the last one has the time of the next attempt.
        let trouble = Trouble::of_words(text).unwrap_or(Trouble::Network);
        let retry = Event::Retrying { trouble, text: text.clone().into_owned().into() };
        report.take(retry, now_ms);
    }
    report.take(event, now_ms);
}

/// Joins a text into one line, cut if it is too long.
fn line(text: &str, limit: usize) -> Box<str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    cut(&words.join(" "), limit)
}

fn cut(text: &str, limit: usize) -> Box<str> {
    match text.char_indices().nth(limit) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}
