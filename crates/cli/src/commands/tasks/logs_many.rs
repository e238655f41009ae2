//! The output of several tasks, each line with the title of its task.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use banksman_core::backlog::Run;
use banksman_core::{RunId, TaskId};
use banksman_runtime::{Project, Sessions};
use banksman_store::{EventFilter, Key, Reader};

use crate::commands::ExitResult;
use crate::commands::tail::{self, LogFlags, Rendering, Tail};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{CYAN, Printer};
use crate::signals::Signals;
use crate::terminal;
use crate::views::sessions::LogLine;

/// The width of the title before a line.
const TITLE: usize = 24;

/// The number of lines shown of a run that is already live.
const RECENT: usize = 10;

struct Followed<'a> {
    tail: Tail,
    out: Rendering<Prefixed<'a>>,
}

/// Prints entire lines, each with the title of its task.
struct Prefixed<'a> {
    printer: &'a Printer,
    run: RunId,
    title: String,
    line: Vec<u8>,
}

impl Prefixed<'_> {
    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        match self.printer.json {
            true => self.printer.view(&LogLine { run: &self.run, line: &line }),
            false => self.printer.line(&format!("{CYAN}{}{CYAN:#} {}", self.title, terminal::one_line(&tail::plain(&line)))),
        }
    }
}

impl Write for Prefixed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                byte => self.line.push(*byte),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.end_line();
        }
        Ok(())
    }
}

impl<'a> Followed<'a> {
    fn open(context: &'a Context, project: &Project, run: &Run, title: &str, flags: &LogFlags) -> Result<Followed<'a>, Failure> {
        let path = Sessions::new(project).log(&run.id);
        let tail = Tail::open(&path, flags.tail).map_err(tail::unreadable(&path))?;
        let title = terminal::cut(&terminal::one_line(title), TITLE);
        let into = Prefixed { printer: &context.printer, run: run.id.clone(), title: format!("{title} |"), line: Vec::new() };
        Ok(Followed { tail, out: Rendering::new(into, tail::family(project, run, flags)?) })
    }

    fn read(&mut self) -> Result<(), Failure> {
        self.tail.read_to(&mut self.out).map_err(|error| Failure::system("read the log", error)).map(drop)
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.read()?;
        self.out.finish().and_then(|()| self.out.flush()).map_err(|error| Failure::system("write the log", error))
    }
}

/// Prints the latest output of these tasks, or of all live runs.
pub(super) fn print(context: &Context, project: &Project, ids: Option<&[TaskId]>, flags: &LogFlags) -> ExitResult {
    let mut reader = project.reader()?;
    for (run, title) in latest(&mut reader, ids)? {
        Followed::open(context, project, &run, &title, flags)?.end()?;
    }
    Ok(exit::OK)
}

/// The last run of each of these tasks, or all live ones, each with the title of its task.
fn latest(reader: &mut Reader, ids: Option<&[TaskId]>) -> Result<Vec<(Run, String)>, Failure> {
    let Some(ids) = ids else { return named(reader, &[Key::Live].into(), None) };
    let mut found = Vec::new();
    for id in ids {
        let title = title(reader, id)?;
        found.extend(super::logs::runs(reader, id)?.pop().map(|run| (run, title)));
    }
    Ok(found)
}

fn title(reader: &mut Reader, id: &TaskId) -> Result<String, Failure> {
    let tasks = reader.view().load(&[Key::Task(id.clone())].into())?.tables.backlog.tasks;
    Ok(tasks.get(id).map_or_else(|| id.to_string(), |task| task.spec.title.to_string()))
}

/// The runs of these keys, oldest first, each with the title of its task; restricted to these tasks and their phases if
/// `ids` is given.
fn named(reader: &mut Reader, keys: &BTreeSet<Key>, ids: Option<&[TaskId]>) -> Result<Vec<(Run, String)>, Failure> {
    let mut runs: Vec<Run> = reader.view().load(keys)?.tables.backlog.runs.into_values().collect();
    runs.sort_by_key(|run| run.epoch);
    let keys: BTreeSet<Key> = runs.iter().map(|run| Key::Task(run.task.clone())).collect();
    let tasks = if keys.is_empty() { BTreeMap::new() } else { reader.view().load(&keys)?.tables.backlog.tasks };
    let of = |run: Run| {
        let task = tasks.get(&run.task)?;
        let host = task.spec.parent.as_ref().filter(|_| task.spec.phase().is_some());
        let is_selected = |ids: &[TaskId]| ids.contains(&task.id) || host.is_some_and(|host| ids.contains(host));
        ids.is_none_or(is_selected).then(|| (run, task.spec.title.to_string()))
    };
    Ok(runs.into_iter().filter_map(of).collect())
}

/// Prints new output of these tasks, attempt after attempt, until all of them are over; without `ids`, of all runs,
/// until interrupted.
pub(super) fn follow(context: &Context, project: &Project, ids: Option<&[TaskId]>, flags: &LogFlags) -> ExitResult {
    let signals = Signals::install()?;
    let mut reader = project.reader()?;
    let mut follower = project.follow(reader.view().last_event()?)?;
    let recent = LogFlags { follow: true, tail: Some(flags.tail.unwrap_or(RECENT)), raw: flags.raw };
    let fresh = LogFlags { follow: true, tail: None, raw: flags.raw };
    let mut followed: BTreeMap<RunId, Followed<'_>> = BTreeMap::new();
    for (run, title) in named(&mut reader, &[Key::Live].into(), ids)? {
        followed.insert(run.id.clone(), Followed::open(context, project, &run, &title, &recent)?);
    }
    let mut seen: BTreeSet<RunId> = followed.keys().cloned().collect();
    loop {
        // Checked before the logs are read: output from before the end is in the log when the end is.
        let is_over = ids.map(|ids| are_over(&mut reader, ids)).transpose()?.unwrap_or(false);
        let mut begun = Vec::new();
        loop {
            let events = follower.next(&EventFilter { kind: Some("task:started".into()), ..EventFilter::default() })?;
            if events.is_empty() {
                break;
            }
            begun.extend(events.iter().filter_map(|event| RunId::new(event.data["run"].as_str()?).ok()));
        }
        let keys: BTreeSet<Key> = begun.into_iter().filter(|run| seen.insert(run.clone())).map(Key::Run).collect();
        if !keys.is_empty() {
            for (run, title) in named(&mut reader, &keys, ids)? {
                followed.insert(run.id.clone(), Followed::open(context, project, &run, &title, &fresh)?);
            }
        }
        let keys: BTreeSet<Key> = followed.keys().cloned().map(Key::Run).collect();
        let runs = if keys.is_empty() { BTreeMap::new() } else { reader.view().load(&keys)?.tables.backlog.runs };
        for one in followed.values_mut() {
            one.read()?;
        }
        for (_, mut ended) in followed.extract_if(.., |run, _| runs.get(run).is_none_or(|run| !run.is_live())) {
            ended.end()?;
        }
        if is_over {
            return Ok(exit::OK);
        }
        let fds: Vec<BorrowedFd<'_>> = followed.values().map(|one| one.tail.as_fd()).collect();
        if !follower.wait_for(signals.as_fd(), &fds, Duration::MAX) {
            return Err(Failure::interrupted());
        }
        followed.values().for_each(|one| one.tail.empty());
    }
}

fn are_over(reader: &mut Reader, ids: &[TaskId]) -> Result<bool, Failure> {
    let tasks = reader.view().load(&ids.iter().cloned().map(Key::Task).collect())?.tables.backlog.tasks;
    Ok(tasks.values().all(|task| task.status().is_over()))
}
