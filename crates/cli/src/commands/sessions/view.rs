//! The output of `sessions list` and `sessions show`.

use std::fs;

use banksman_adapters::keeper::{Found, Status};
use banksman_core::task::Need;
use banksman_core::{Stamp, Wall};
use banksman_runtime::{Project, Sessions as Files};

use super::{Observed, is_here};
use crate::commands::why;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::views::sessions::{HoldView, LogView, ProcessView, SessionPage, SessionView};
use crate::views::{Text, Time};

/// The number of characters shown of a command line.
const COMMAND: usize = 80;

impl Observed {
    /// The state of the session as one word.
    fn state(&self) -> &'static str {
        match (&self.run.ended, &self.status, &self.found) {
            (Some(_), ..) => "ended",
            _ if self.silence.is_some() => "no_answer",
            (None, Some(status), _) if status.stopping => "stopping",
            (None, Some(_), _) | (None, None, Some(Found::Live(_))) => "live",
            // The runner is gone, and recording the end has failed.
            (None, None, Some(Found::Ended(..))) if self.has_ended_alone() => "not_recorded",
            // Not reported yet: the runner is about to.
            (None, None, Some(Found::Ended(..))) => "ending",
            (None, None, Some(Found::Dead(_))) => "keeper_dead",
            (None, None, Some(Found::Nothing | Found::Tombstone)) => "starting",
            (None, None, None) => "elsewhere",
        }
    }

    fn has_ended_alone(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.attended.ended.is_some())
    }

    fn keeper(&self) -> Option<i32> {
        let recorded = self.run.session.as_ref().map(|session| session.keeper);
        self.status.as_ref().map(|status| status.keeper_pid).or(recorded)
    }

    fn child(&self) -> Option<i32> {
        let recorded = self.run.session.as_ref().map(|session| session.child);
        self.status.as_ref().and_then(|status| status.child_pid).or(recorded)
    }
}

fn coloured(state: &str) -> String {
    let style = match state {
        "live" => GREEN,
        "ended" => DIM,
        "keeper_dead" | "no_answer" => RED,
        _ => YELLOW,
    };
    let words = if state == "not_recorded" { "ended, not recorded yet".into() } else { state.replace('_', " ") };
    format!("{style}{words}{style:#}")
}

/// `480 B`, `12 kB`, `3.4 MB`.
fn size(bytes: u64) -> String {
    match bytes {
        0..=999 => format!("{bytes} B"),
        1_000..=999_999 => format!("{} kB", bytes / 1_000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

pub(super) fn row(observed: &Observed, at: Stamp) -> Vec<String> {
    let number = |number: Option<i32>| number.map_or_else(|| "-".into(), |number| number.to_string());
    let run = &observed.run;
    let gone = observed.live.as_ref().is_some_and(|live| live.attended.life == banksman_engine::why::Life::Gone);
    let runner = if gone { format!("{} {RED}(gone){RED:#}", run.owner) } else { run.owner.to_string() };
    let took = match &run.ended {
        Some(ended) => format::span(ended.at - run.started.wall),
        None => format::span(at.lease - run.started.lease),
    };
    let status = observed.status.as_ref();
    vec![
        run.id.to_string(),
        coloured(observed.state()),
        format!("{} {DIM}{}{DIM:#}", observed.title, run.task),
        format::ordinal(run.attempt as usize + 1),
        runner,
        number(observed.keeper()),
        number(observed.child()),
        number(status.map(|status| i32::try_from(status.processes.len()).unwrap_or(i32::MAX))),
        status.map_or_else(|| "-".into(), |status| size(status.log.bytes)),
        took,
    ]
}

/// A session with its processes, for a list or a page.
fn session<'a, P>(observed: &'a Observed, project: &Project, processes: impl FnOnce(&'a Status) -> P) -> SessionView<'a, P> {
    let (run, status) = (&observed.run, observed.status.as_ref());
    SessionView {
        run: &run.id,
        state: observed.state(),
        task: &run.task,
        title: &observed.title,
        attempt: run.attempt,
        runner: &run.owner,
        runner_state: observed.live.as_ref().map(|live| why::life(live.attended.life)),
        here: is_here(run, project),
        keeper_pid: observed.keeper(),
        keeper_silence: observed.silence.map(Text),
        child_pid: observed.child(),
        processes: status.map(processes),
        output_bytes: status.map(|status| status.log.bytes),
        started_at: run.started.into(),
        end: run.into(),
        signal: run.ended.as_ref().and_then(|ended| ended.ending.signal()),
    }
}

pub(super) fn summary<'a>(observed: &'a Observed, project: &Project) -> SessionView<'a, usize> {
    session(observed, project, |status| status.processes.len())
}

pub(super) fn details<'a>(observed: &'a Observed, project: &Project) -> SessionPage<'a> {
    let (run, files, status) = (&observed.run, Files::new(project), observed.status.as_ref());
    let process = |pid: &i32| ProcessView { pid: *pid, command: command(*pid) };
    SessionPage {
        session: session(observed, project, |status| status.processes.iter().map(process).collect()),
        epoch: run.epoch,
        owner_epoch: run.owner_epoch,
        keeper_owner_epoch: status.map(|status| status.owner_epoch),
        holds: run.holds.iter().map(|hold| HoldView { name: hold.need.name(), epoch: hold.epoch }).collect(),
        record: files.record(&run.id),
        log: LogView {
            path: files.log(&run.id).display().to_string(),
            bytes: status.map(|status| status.log.bytes),
            dropped: status.map(|status| status.log.dropped),
            error: status.and_then(|status| status.log.error.as_ref()),
            last_output_at: status.and_then(|status| status.output_at_ms).map(|ms| Time(Wall(ms))),
        },
    }
}

/// The command line of a process, if it can be read.
fn command(pid: i32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|bytes| !bytes.is_empty())?;
    let words: Vec<_> = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    Some(words.join(" ").trim_end().to_owned())
}

pub(super) fn page(observed: &Observed, project: &Project, at: Stamp) -> String {
    let (run, files, status) = (&observed.run, Files::new(project), observed.status.as_ref());
    let verb = if run.is_live() { "is" } else { "has" };
    let mut text = format!("{BOLD}{}{BOLD:#} {verb} {}", run.id, coloured(observed.state()));
    let mut field = |name: &str, value: String| text.push_str(&format!("\n  {DIM}{name:<10}{DIM:#} {value}"));
    let ago = |stamp: Stamp| format!("{} ago", format::span(at.lease - stamp.lease));
    field("task", format!("{} {DIM}{}{DIM:#}, the {} run", observed.title, run.task, format::ordinal(run.attempt as usize + 1)));
    let attention = observed.live.as_ref().and_then(|live| why::attention(&live.attended));
    let attention = attention.map(|attention| format!(": {attention}")).unwrap_or_default();
    field("runner", format!("{}{attention}", run.owner));
    field("epoch", format!("{} {DIM}owner epoch {}{DIM:#}", run.epoch, run.owner_epoch));
    field("started", ago(run.started));
    if let Some(ended) = &run.ended {
        field("ended", format!("{}, after {}", format::ago(ended.at), format::span(ended.at - run.started.wall)));
        field("how", ended.ending.to_string());
        if let Some(note) = &ended.note {
            field("note", note.to_string());
        }
    }
    if !run.holds.is_empty() {
        let need = |need: &Need| match need {
            Need::Lock(name) | Need::Kept { name, .. } => format!("lock {name}"),
            Need::Slots { name, weight } => format!("{} of {name}", format::slots(*weight)),
        };
        field("holds", run.holds.iter().map(|hold| need(&hold.need)).collect::<Vec<_>>().join(", "));
    }
    if run.ended.is_none() {
        let pid = |pid: Option<i32>| pid.map_or_else(|| "not known yet".into(), |pid| pid.to_string());
        field("keeper", pid(observed.keeper()));
    }
    if let Some(status) = status {
        let lost = match (&status.log.error, status.log.dropped) {
            (Some(error), dropped) => format!("; {} of it lost: {error}", size(dropped)),
            (None, 0) => String::new(),
            (None, dropped) => format!("; the oldest {} of it dropped", size(dropped)),
        };
        field("output", format!("{}{lost}", size(status.log.bytes)));
    }
    if is_here(run, project) {
        field("log", files.log(&run.id).display().to_string());
    } else {
        field("log", "on another machine".into());
    }
    for (index, pid) in status.map_or(&[][..], |status| &status.processes).iter().enumerate() {
        let shown: String = command(*pid).unwrap_or_else(|| "(gone)".into()).chars().take(COMMAND).collect();
        field(if index == 0 { "processes" } else { "" }, format!("{pid:>7}  {}", shown.replace('\n', " ")));
    }
    text
}
