use std::fmt::Write;

use banksman_core::{Decision, Span, TaskId, Wall};
use banksman_runtime::Project;
use banksman_runtime::inspect::{self, Overview};
use banksman_store::{Key, Reader};
use clap::Args;
use serde::Serialize;

use super::recording::record_ended;
use super::timeline::rows::{End, Row, Timeline};
use super::{ExitResult, since, timeline};
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::table;
use crate::views::Time;
use crate::views::spend::{self, SpendView};

/// Report what was done: completed, failed and why, what needs you, retries and time.
///
/// Without --since it begins with the first run of the last 24 hours.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman report\n  banksman report --since 22:00\n  banksman report --since 8h --markdown > night.md"
)]
pub(crate) struct Report {
    /// Begin so long ago, such as 8h; or at a time such as 22:00 or 2026-11-15T08:00:00Z
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Print Markdown, for a pull request or a message
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// The work since a moment.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportView<'a> {
    from: Time,
    to: Time,
    completed: Vec<Line<'a>>,
    failed: Vec<Line<'a>>,
    cancelled: Vec<Line<'a>>,
    needs_you: Vec<Asked<'a>>,
    retries: u32,
    runs: u32,
    /// The total time of all runs.
    worked_ms: i64,
    most_at_once: u32,
    /// The cost of agents in millionths of a dollar, as far as their programs report it.
    spend_micros: u64,
    /// The cost by agent.
    agents: &'a [SpendView],
    running: usize,
    pending: u64,
    blocked: u64,
    landing: u64,
    review: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    id: &'a TaskId,
    title: &'a str,
    runs: u32,
    worked_ms: i64,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Asked<'a> {
    decision: &'a str,
    question: &'a str,
}

impl Report {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let since = self.since.as_deref().map(since::parse).transpose()?;
        let project = context.project()?;
        let mut reader = project.reader()?;
        record_ended(context, &project, &mut reader)?;
        let data = ReportData::read(&mut reader, &project, since)?;
        let view = data.view();
        let human = if self.markdown { markdown(&view) } else { text(&view) };
        context.printer.result(&view, human)
    }
}

/// The report in the notification that nothing is left to do.
pub(crate) fn notice(project: &Project) -> Option<String> {
    let data = project.reader().ok().and_then(|mut reader| ReportData::read(&mut reader, project, None).ok())?;
    Some(markdown(&data.view()))
}

/// The input of a report.
struct ReportData {
    timeline: Timeline,
    overview: Overview,
    decisions: Vec<Decision>,
    agents: Vec<SpendView>,
}

impl ReportData {
    fn read(reader: &mut Reader, project: &Project, since: Option<Wall>) -> Result<ReportData, Failure> {
        let timeline = timeline::read(reader, since)?;
        let overview = inspect::overview(reader, project)?;
        let decisions = reader.view().load(&[Key::OpenDecisions].into())?.tables.backlog.decisions.into_values().collect();
        let agents = spend(reader, &timeline)?;
        Ok(ReportData { timeline, overview, decisions, agents })
    }

    fn view(&self) -> ReportView<'_> {
        let ReportData { timeline, overview, decisions, agents } = self;
        let count = |status| overview.counts.by_status.get(&status).copied().unwrap_or_default();
        let lines = |is: fn(&End) -> bool| lines(timeline, is);
        let rows = || timeline.all_rows();
        ReportView {
            from: Time(timeline.begin),
            to: Time(Wall(timeline.begin.0 + timeline.length)),
            completed: lines(|end| *end == End::Completed),
            failed: lines(|end| matches!(end, End::Failed(_))),
            cancelled: lines(|end| *end == End::Cancelled),
            needs_you: decisions
                .iter()
                .map(|decision| Asked { decision: decision.id.as_str(), question: &decision.question.text })
                .collect(),
            // A retry that has not started yet does not count.
            retries: rows().map(|row| row.retries.min(row.runs.saturating_sub(1))).sum(),
            runs: rows().map(|row| row.runs).sum(),
            worked_ms: rows().map(Row::worked).sum(),
            most_at_once: timeline.capacity,
            spend_micros: agents.iter().map(|agent| agent.cost_micros).sum(),
            agents,
            running: overview.runs.len(),
            pending: count(banksman_core::Status::Pending),
            blocked: count(banksman_core::Status::Blocked),
            landing: count(banksman_core::Status::Landing),
            review: count(banksman_core::Status::Review),
        }
    }
}

/// The tasks with this end, without children.
fn lines(timeline: &Timeline, is: fn(&End) -> bool) -> Vec<Line<'_>> {
    let ended = timeline.all_rows().filter(|row| row.parent.is_none() && row.end.as_ref().is_some_and(is));
    ended
        .map(|row| {
            let error = match &row.end {
                Some(End::Failed(error)) => Some(&**error),
                _ => None,
            };
            Line { id: &row.id, title: &row.title, runs: row.runs, worked_ms: row.worked(), error }
        })
        .collect()
}

/// The cost of the runs that ended in this time.
fn spend(reader: &mut Reader, timeline: &Timeline) -> Result<Vec<SpendView>, Failure> {
    let ids: Vec<&TaskId> = timeline.all_rows().map(|row| &row.id).collect();
    let mut ends = Vec::new();
    for part in ids.chunks(500) {
        let runs = reader.view().load(&part.iter().map(|id| Key::RunsOf((*id).clone())).collect())?.tables.backlog.runs;
        let ended = runs.into_values().filter_map(|run| run.ended).filter(|ended| ended.at >= timeline.begin);
        ends.extend(ended.filter_map(|ended| ended.agent));
    }
    Ok(spend::of_ends(ends.iter().map(|end| &**end)))
}

fn span(ms: i64) -> String {
    format::span(Span::from_ms(ms))
}

impl ReportView<'_> {
    fn heading(&self) -> String {
        let took = span(self.to.0.0 - self.from.0.0);
        format!("{} to {} ({took})", format::local(self.from.0), format::local(self.to.0))
    }

    /// `18 runs, 3 of them retries; 4 h 3 min of work, at most 4 at a time`.
    fn totals(&self) -> String {
        let runs = if self.runs == 1 { "1 run".into() } else { format!("{} runs", self.runs) };
        let retries = match self.retries {
            0 => String::new(),
            1 => ", 1 of them a retry".into(),
            several => format!(", {several} of them retries"),
        };
        let spend = spend::price(self.agents).map(|price| format!("; {price}")).unwrap_or_default();
        format!("{runs}{retries}; {} of work, at most {} at a time{spend}", span(self.worked_ms), self.most_at_once)
    }

    /// `3 running, 2 pending, 1 blocked, 1 in review`, if there are any.
    fn rest(&self) -> Option<String> {
        let parts = [
            (self.running as u64, "running"),
            (self.pending, "pending"),
            (self.blocked, "blocked"),
            (self.landing, "landing"),
            (self.review, "in review"),
        ];
        let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

fn runs(line: &Line<'_>) -> String {
    if line.runs > 1 { format!("{} runs", line.runs) } else { String::new() }
}

fn text(view: &ReportView<'_>) -> String {
    let mut text = format!("{BOLD}Report{BOLD:#} {}", view.heading());
    let mut part = |title: String, columns: &[&str], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let drawn = table::render(columns, rows);
            let body: Vec<&str> = drawn.lines().skip(1).collect();
            text.push_str(&format!("\n\n{title}\n{}", body.join("\n")));
        }
    };
    let took = |line: &Line<'_>| span(line.worked_ms);
    let done = view.completed.iter().map(|line| vec![String::new(), line.title.into(), took(line), runs(line)]);
    part(format!("{GREEN}Completed {}{GREEN:#}", view.completed.len()), &["", "~", ">", ""], done.collect());
    let failed = view
        .failed
        .iter()
        .map(|line| vec![String::new(), line.title.into(), took(line), runs(line), line.error.unwrap_or_default().to_owned()]);
    part(format!("{RED}Failed {}{RED:#}", view.failed.len()), &["", "~", ">", "?", "~"], failed.collect());
    let cancelled = view.cancelled.iter().map(|line| vec![String::new(), line.title.into(), took(line)]);
    part(format!("{DIM}Cancelled {}{DIM:#}", view.cancelled.len()), &["", "~", ">"], cancelled.collect());
    let asked = view.needs_you.iter().map(|asked| vec![String::new(), asked.decision.into(), asked.question.into()]);
    part(format!("{YELLOW}Needs you {}{YELLOW:#}", view.needs_you.len()), &["", "", "~"], asked.collect());
    text.push_str(&format!("\n\n{}", view.totals()));
    for agent in view.agents {
        text.push_str(&format!("\n{DIM}{}{DIM:#}", spend::summary(agent)));
    }
    if let Some(rest) = view.rest() {
        text.push_str(&format!("\n{DIM}left: {rest}{DIM:#}"));
    }
    let next = match (view.failed.first(), view.needs_you.is_empty()) {
        (_, false) => Some("banksman decisions review".into()),
        (Some(failed), true) => Some(format!("banksman why {}", format::last(failed.title))),
        (None, true) => None,
    };
    if let Some(next) = next {
        text.push_str(&format!("\n{DIM}next:{DIM:#} {next}"));
    }
    text
}

fn markdown(view: &ReportView<'_>) -> String {
    let mut text = format!("## Report, {}\n\n{}", view.heading(), view.totals());
    let agents: String = view.agents.iter().map(|agent| format!("\n- {}", escaped(&spend::summary(agent)))).collect();
    if !agents.is_empty() {
        text.push_str(&format!("\n{agents}"));
    }
    let mut part = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            write!(text, "\n\n### {title} ({})\n\n{}", lines.len(), lines.join("\n")).expect("a string takes everything");
        }
    };
    let with_runs = |line: &Line<'_>| if line.runs > 1 { format!(", {} runs", line.runs) } else { String::new() };
    let item = |line: &Line<'_>| format!("- {} ({}{})", escaped(line.title), span(line.worked_ms), with_runs(line));
    part("Completed", view.completed.iter().map(item).collect());
    let failed = view.failed.iter().map(|line| format!("{}: {}", item(line), escaped(line.error.unwrap_or_default())));
    part("Failed", failed.collect());
    part("Cancelled", view.cancelled.iter().map(item).collect());
    let asked = view.needs_you.iter().map(|asked| format!("- {}: {}", asked.decision, escaped(asked.question)));
    part("Needs you", asked.collect());
    if let Some(rest) = view.rest() {
        write!(text, "\n\nLeft: {rest}").expect("a string takes everything");
    }
    text
}

/// A text on one line of Markdown, with special characters escaped.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in format::one_line(text).chars() {
        if "\\`*_[]<>#|".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
