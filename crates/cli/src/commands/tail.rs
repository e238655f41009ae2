//! The log of a run: its content, its end, and new output.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use banksman_agents::{Family, Lines, render};
use banksman_core::backlog::Run;
use banksman_core::{RunId, Task};
use banksman_runtime::{Project, Sessions, agents};
use banksman_store::{EventFilter, Key, Reader};
use clap::Args;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{DIM, Printer};
use crate::signals::Signals;
use crate::terminal::LogFilter;
use crate::views::Text;
use crate::views::sessions::{LogLine, LogText};

/// The size of a read from the end.
const BLOCK: u64 = 64 * 1_024;

/// How to show a log.
#[derive(Debug, Args)]
pub(crate) struct LogFlags {
    /// Follow: print new output until the run ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last N lines
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Print every byte unchanged: raw agent events, and all terminal control sequences
    #[arg(long)]
    pub(crate) raw: bool,
}

/// Prints the log of a run.
pub(crate) fn print(context: &Context, project: &Project, run: &Run, flags: &LogFlags) -> ExitResult {
    let path = Sessions::new(project).log(&run.id);
    let mut tail = Tail::open(&path, flags.tail).map_err(unreadable(&path))?;
    let family = family(project, run, flags)?;
    if flags.follow {
        return follow(context, project, &run.id, tail, flags.raw, family);
    }
    if context.printer.json {
        let mut text = Vec::new();
        tail.read_to(&mut text).map_err(unreadable(&path))?;
        let text = String::from_utf8_lossy(&text);
        let view = LogText {
            task_id: &run.task,
            run: &run.id,
            attempt: run.attempt,
            live: run.is_live(),
            path: Text(path.display()),
            text: &text,
        };
        return context.printer.result(&view, "");
    }
    let mut log = Rendering::new(Log::new(&context.printer, flags.raw), family);
    let printed = tail.read_to(&mut log).map_err(unreadable(&path))?;
    log.finish().map_err(unreadable(&path))?;
    if printed == 0 {
        let where_ = if *run.host == *project.host().id { "" } else { ", or it runs on another machine" };
        context.printer.note(&format!("{DIM}run {} has printed nothing{where_}{DIM:#}", run.id));
    }
    Ok(exit::OK)
}

/// The output format of the run's program, if the log is rendered for people.
pub(super) fn family(project: &Project, run: &Run, flags: &LogFlags) -> Result<Option<Family>, Failure> {
    if flags.raw {
        return Ok(None);
    }
    let tasks = project.reader()?.view().load(&[Key::Task(run.task.clone())].into())?.tables.backlog.tasks;
    Ok(LogEnd::new(project, tasks.get(&run.task), run).family)
}

/// Renders the events of an agent program as text, and copies other output unchanged.
pub(super) struct Rendering<W> {
    into: W,
    family: Option<Family>,
    lines: Lines,
}

impl<W: Write> Rendering<W> {
    pub(super) fn new(into: W, family: Option<Family>) -> Rendering<W> {
        Rendering { into, family, lines: Lines::default() }
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        let Some(family) = self.family else { return Ok(()) };
        let mut text = String::new();
        self.lines.finish(|line| render::line(family, line, &mut text));
        self.into.write_all(text.as_bytes())
    }
}

impl<W: Write> Write for Rendering<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(family) = self.family else { return self.into.write(bytes) };
        let mut text = String::new();
        self.lines.feed(bytes, |line| render::line(family, line, &mut text));
        self.into.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.flush()
    }
}

/// Prints the log and all new output, until the run ends.
fn follow(context: &Context, project: &Project, run: &RunId, mut tail: Tail, is_raw: bool, family: Option<Family>) -> ExitResult {
    let signals = Signals::install()?;
    let mut reader = project.reader()?;
    let mut follower = project.follow(reader.view().last_event()?)?;
    let path = tail.path.clone();
    let log = Rendering::new(Log::new(&context.printer, is_raw), family);
    let mut out = Out { printer: &context.printer, run, line: Vec::new(), log };
    loop {
        // Checked before the log is read: output from before the end is in the log when the end is.
        let ended = !is_live(&mut reader, run)?;
        tail.read_to(&mut out).map_err(unreadable(&path))?;
        if ended {
            out.finish();
            return Ok(exit::OK);
        }
        if !follower.wait_for(signals.as_fd(), &[tail.as_fd()], Duration::MAX) {
            return Err(Failure::interrupted());
        }
        tail.empty();
        while !follower.next(&EventFilter::default())?.is_empty() {}
    }
}

fn is_live(reader: &mut Reader, run: &RunId) -> Result<bool, Failure> {
    let runs = reader.view().load(&[Key::Run(run.clone())].into())?.tables.backlog.runs;
    Ok(runs.get(run).is_some_and(Run::is_live))
}

/// The last lines of a log; empty if it cannot be read.
fn last_lines(path: &Path, number: usize) -> Vec<String> {
    let mut text = Vec::new();
    let read = Tail::open(path, Some(number)).and_then(|mut tail| tail.read_to(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    String::from_utf8_lossy(&text).lines().map(plain).collect()
}

/// The last lines of the rendered events of an agent.
fn rendered(family: Family, lines: &[String], number: usize) -> Vec<String> {
    let mut text = String::new();
    lines.iter().for_each(|line| render::line(family, line.as_bytes(), &mut text));
    let lines: Vec<String> = text.lines().map(plain).collect();
    lines[lines.len().saturating_sub(number)..].to_vec()
}

/// The number of events read for each line wanted: many events have no text.
const EVENTS_PER_LINE: usize = 10;

/// The end of the log of a run, as text.
#[derive(Debug, Clone)]
pub(crate) struct LogEnd {
    path: PathBuf,
    /// The format of the program's output, unless it is plain text.
    family: Option<Family>,
    /// The inode and the length of the file at the last check.
    seen: Option<(u64, u64)>,
}

impl LogEnd {
    pub(crate) fn new(project: &Project, task: Option<&Task>, run: &Run) -> LogEnd {
        let family = task.and_then(|task| agents::family(project, task, run)).filter(|family| *family != Family::Text);
        LogEnd { path: Sessions::new(project).log(&run.id), family, seen: None }
    }

    /// The last lines; empty if the log cannot be read.
    pub(crate) fn lines(&self, number: usize) -> Vec<String> {
        match self.family {
            Some(family) => rendered(family, &last_lines(&self.path, EVENTS_PER_LINE * number), number),
            None => last_lines(&self.path, number),
        }
    }

    /// Whether the log has changed since the last call.
    pub(crate) fn has_changed(&mut self) -> bool {
        let now = std::fs::metadata(&self.path).map(|log| (log.ino(), log.len())).ok();
        std::mem::replace(&mut self.seen, now) != now
    }
}

/// A line without control characters.
pub(super) fn plain(line: &str) -> String {
    let line = anstream::adapter::strip_str(line).to_string();
    // Only the text after the last carriage return is visible on a terminal.
    line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default().replace(char::is_control, " ")
}

/// The path of the older part of a rotated log.
pub(crate) fn rotated(path: &Path) -> PathBuf {
    let mut older = path.as_os_str().to_owned();
    older.push(".1");
    older.into()
}

pub(super) fn unreadable(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::system(&format!("read {}", path.display()), error)
}

/// A position in a log. Its descriptor becomes readable when the log grows.
pub(crate) struct Tail {
    path: PathBuf,
    /// The older part of a rotated log, if it is to be read.
    older: Option<File>,
    file: Option<File>,
    watch: OwnedFd,
}

impl Tail {
    /// Opens a log at its start, or at its last lines. The file need not exist yet.
    pub(crate) fn open(path: &Path, lines: Option<usize>) -> io::Result<Tail> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut tail = Tail { path: path.into(), older: None, file: None, watch };
        tail.reopen()?;
        // Opened after the newer part: if the log is rotated in between, both are the same file.
        let older = open(&rotated(path))?;
        tail.older = older.filter(|older| tail.file.as_ref().is_none_or(|file| !is_same(file, older)));
        if let Some(lines) = lines {
            let found = tail.file.as_mut().map_or(Ok(0), |file| skip_to_last(file, lines))?;
            match &mut tail.older {
                Some(older) if found < lines => drop(skip_to_last(older, lines - found)?),
                _ => tail.older = None,
            }
        }
        Ok(tail)
    }

    /// Copies everything up to the current end.
    pub(super) fn read_to(&mut self, out: &mut impl Write) -> io::Result<u64> {
        let mut copied = self.older.take().map_or(Ok(0), |mut older| io::copy(&mut older, out))?;
        loop {
            // Checked before the copy: a rotated file does not grow, so its end is final.
            let current = open(&self.path)?;
            let moved = match (&self.file, &current) {
                (Some(file), Some(current)) => !is_same(file, current),
                (None, Some(_)) => true,
                (_, None) => false,
            };
            copied += self.file.as_mut().map_or(Ok(0), |file| io::copy(file, out))?;
            if !moved {
                return Ok(copied);
            }
            self.reopen()?;
        }
    }

    /// Reads the pending notifications.
    pub(crate) fn empty(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4_096];
        let mut events = inotify::Reader::new(&self.watch, &mut buffer);
        while events.next().is_ok() {}
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        let (path, flags) = match (&self.file, self.path.parent()) {
            (Some(_), _) => (&*self.path, WatchFlags::MODIFY | WatchFlags::MOVE_SELF),
            (None, Some(folder)) => (folder, WatchFlags::CREATE),
            (None, None) => return Ok(()),
        };
        // If the watch fails, the slow poll of the caller finds new output.
        inotify::add_watch(&self.watch, path, flags).ok();
        Ok(())
    }
}

impl AsFd for Tail {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_same(one: &File, other: &File) -> bool {
    let id = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
    id(one) == id(other)
}

/// Seeks back from the end of a file by this many lines, or to its start. Returns the number of lines after the position.
fn skip_to_last(file: &mut File, lines: usize) -> io::Result<usize> {
    let end = file.seek(SeekFrom::End(0))?;
    let mut at = end;
    let mut found = 0;
    while at > 0 {
        let from = at.saturating_sub(BLOCK);
        let mut block = vec![0; usize::try_from(at - from).expect("a block is small")];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut block)?;
        for (index, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = from + index as u64 + 1;
            // The end of the last line does not count, with or without a line break.
            if after == end {
                continue;
            }
            found += 1;
            if found == lines {
                file.seek(SeekFrom::Start(after))?;
                return Ok(found);
            }
        }
        at = from;
    }
    file.seek(SeekFrom::Start(if lines == 0 { end } else { 0 }))?;
    Ok(if end > 0 { found + 1 } else { 0 })
}

/// Writes the output of a run to stdout.
struct Log<'a> {
    printer: &'a Printer,
    /// Filters escape sequences for a terminal; `None` writes every byte.
    filter: Option<LogFilter>,
}

impl Log<'_> {
    fn new(printer: &Printer, is_raw: bool) -> Log<'_> {
        Log { printer, filter: (!is_raw).then(LogFilter::default) }
    }
}

impl Drop for Log<'_> {
    fn drop(&mut self) {
        self.filter.iter_mut().for_each(|filter| self.printer.end_log(filter));
    }
}

impl Write for Log<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.filter {
            Some(filter) => self.printer.log(filter, bytes),
            None => self.printer.raw(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The output of `--follow`: unchanged, or one JSON object per line.
struct Out<'a> {
    printer: &'a Printer,
    run: &'a RunId,
    line: Vec<u8>,
    log: Rendering<Log<'a>>,
}

impl Out<'_> {
    /// Prints the current line.
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.printer.view(&LogLine { run: self.run, line: &String::from_utf8_lossy(&line) });
    }

    fn finish(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
        // An error of the output was reported before.
        self.log.finish().ok();
    }
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.printer.json {
            return self.log.write(bytes);
        }
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                byte => self.line.push(*byte),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path, lines: Option<usize>) -> String {
        let mut text = Vec::new();
        Tail::open(path, lines).unwrap().read_to(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn tail_finds_the_last_lines_in_both_parts_of_a_rotated_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(read(&path, None), "");
        std::fs::write(rotated(&path), "1\n2\n3\n").unwrap();
        assert_eq!(read(&path, Some(2)), "2\n3\n");
        std::fs::write(&path, "4\n5").unwrap();
        let all = [None, Some(9), Some(3), Some(2), Some(1), Some(0)].map(|lines| read(&path, lines));
        assert_eq!(all, ["1\n2\n3\n4\n5", "1\n2\n3\n4\n5", "3\n4\n5", "4\n5", "5", ""]);
        let long: String = (0..100_000).map(|n| format!("{n}\n")).collect();
        std::fs::write(&path, long).unwrap();
        assert_eq!(read(&path, Some(2)), "99998\n99999\n");
        assert_eq!(read(&path, Some(50_000)).lines().next().unwrap(), "50000");
    }

    #[test]
    fn tail_reads_new_output_once_across_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = Tail::open(&path, None).unwrap();
        let mut text = Vec::new();
        let append =
            |more: &str| File::options().append(true).create(true).open(&path).unwrap().write_all(more.as_bytes()).unwrap();
        append("a");
        tail.read_to(&mut text).unwrap();
        append("b");
        std::fs::rename(&path, rotated(&path)).unwrap();
        tail.read_to(&mut text).unwrap();
        append("c");
        tail.read_to(&mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "abc");
    }
}
