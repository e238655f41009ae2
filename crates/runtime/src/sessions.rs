//! The files of a project's sessions, and how a run becomes a session.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use banksman_adapters::keeper::{self, Found, InputKind, Limit, Record, Spec};
use banksman_adapters::private;
use banksman_core::agent::spend::Day;
use banksman_core::backlog::RunEndRecord;
use banksman_core::landing::{Entry, Return};
use banksman_core::task::retry::Marker;
use banksman_core::task::{LiveInput, RetryReason, RunEnd, Task, Work as What, WorkspaceSpec};
use banksman_core::{MessageId, RunId, Span, TaskId, Wall};
use banksman_engine::Work;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rustix::fs::OFlags;
use serde_json::json;

use crate::agents::{AgentCall, Past};
use crate::project::Project;
use crate::{agents, guarded, merge_branch, workspaces};

/// Variables of the process that started the runner, which its runs must not inherit.
pub(crate) const FOREIGN: [&str; 6] = [
    "BANKSMAN_ROUTE_DEPTH",
    "BANKSMAN_ANCESTORS",
    "BANKSMAN_LOCK",
    "BANKSMAN_LOCK_EPOCH",
    "BANKSMAN_SEMAPHORE",
    "BANKSMAN_SEMAPHORE_EPOCH",
];

/// How much of the last output goes into the result for the next run, in bytes.
const TAIL: u64 = 4_000;

/// How much of the output of a phase is searched for its result, in complete lines: a result that is too large for
/// variables must be refused, not overlooked.
const PHASE_TAIL: u64 = 256 * 1_024;

/// The longest line that is searched.
const LONGEST_LINE: u64 = 16 * 1_024 * 1_024;

#[derive(Debug, Clone)]
pub struct Sessions {
    project: Project,
    /// The directory of control sockets, if it is not in the project.
    sockets: Option<PathBuf>,
    /// The store's URL, if the project does not have it in its settings.
    store: Option<String>,
}

impl Sessions {
    /// The sessions of a project.
    pub fn new(project: &Project) -> Sessions {
        Sessions { project: project.clone(), sockets: None, store: None }
    }

    /// Uses another directory for control sockets, such as one that is kept in memory.
    pub fn sockets(self, directory: Option<PathBuf>) -> Sessions {
        Sessions { sockets: directory, ..self }
    }

    /// Passes the URL of the store to runs.
    pub fn store(self, url: Option<String>) -> Sessions {
        Sessions { store: url, ..self }
    }

    /// The record of a run.
    pub fn record(&self, run: &RunId) -> PathBuf {
        self.project.folder().join("runs").join(run.as_str())
    }

    /// The log of a run.
    pub fn log(&self, run: &RunId) -> PathBuf {
        self.project.folder().join("logs").join(format!("{run}.log"))
    }

    /// The folder of a task, for the files of its runs.
    pub fn task_dir(&self, task: &TaskId) -> PathBuf {
        self.project.folder().join("tasks").join(task.as_str())
    }

    /// The state of the file that marks a task as done.
    pub fn marker(&self, task: &TaskId) -> Marker {
        let broken = |error: String| Marker::Broken(error.into());
        match std::fs::metadata(self.done(task)) {
            Ok(found) if found.is_file() => Marker::Done,
            Ok(found) if found.is_dir() => broken("it is a directory".into()),
            Ok(_) => broken("it is neither a file nor a directory".into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Marker::Absent,
            Err(error) => broken(error.to_string()),
        }
    }

    /// The file that marks a task as done.
    pub fn done(&self, task: &TaskId) -> PathBuf {
        self.task_dir(task).join("DONE")
    }

    /// Removes that file, so that the task can be tried again.
    pub fn remove_done(&self, task: &TaskId) -> std::io::Result<()> {
        match std::fs::remove_file(self.done(task)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The file with the result of the previous run.
    fn last_result(&self, task: &TaskId) -> PathBuf {
        self.task_dir(task).join("last-result.json")
    }

    /// Writes the result of the last run, for the next one.
    pub(crate) fn write_last_result(&self, past: &Past) -> std::io::Result<()> {
        let Some((run, ended)) = past.last().and_then(|run| Some((run, run.ended.as_ref()?))) else { return Ok(()) };
        // The work of that run was returned.
        let landing = past.landing.as_ref().filter(|entry| agents::is_after(entry, run));
        let returned = landing.and_then(|entry| Some((entry, agents::returned(entry)?)));
        let verdict = returned.map(|(_, why)| why.as_str()).or(ended.setback.map(RetryReason::as_str));
        let summary = json!({
            "run": run.id,
            "attempt": run.attempt,
            "verdict": verdict,
            "landing": returned.map(|(entry, why)| landing_result(entry, why)),
            "ending": ended.ending.to_string(),
            "exitCode": ended.ending.exit_code(),
            "signal": ended.ending.signal(),
            "error": ended.error,
            "note": ended.note,
            "answer": past.answer.as_ref().and_then(agents::Answered::of),
            "endedAt": Timestamp::from_millisecond(ended.at.0).ok().map(|at| format!("{at:.3}")),
            "log": self.log(&run.id).display().to_string(),
            "tail": tail(&self.log(&run.id), TAIL),
        });
        let (directory, path) = (self.task_dir(&run.task), self.last_result(&run.task));
        private::make_dir(&directory)?;
        // A concurrent reader finds the old or the new file, never half of one.
        replace_file(&path, format!("{summary:#}\n").as_bytes())
    }

    /// The input of the runs of a task.
    fn input(&self, task: &TaskId) -> PathBuf {
        self.task_dir(task).join("input")
    }

    /// Why a run must not start in a worktree now, if the disk has less room than `workspace.min_free`.
    pub(crate) fn lacks_space(&self, work: &Work) -> Option<String> {
        let wanted = self.project.config().workspace.min_free;
        let needs_files = matches!(work.task.spec.workspace, WorkspaceSpec::Worktree(_) | WorkspaceSpec::Shared { .. });
        let free = Some(()).filter(|()| wanted > 0 && needs_files).and_then(|()| workspaces::free_space(&self.project))?;
        let mib = |bytes: u64| bytes >> 20;
        let text =
            || format!("only {} MiB are free where worktrees are, and workspace.min_free is {} MiB", mib(free), mib(wanted));
        (free < wanted).then(text)
    }

    /// Writes the input of a run before it starts.
    pub(crate) fn prepare(&self, work: &Work, agent: Option<&AgentCall>) -> std::io::Result<()> {
        let prompt = agent.filter(|agent| agent.reads_prompt).map(|agent| agent.prompt.as_str());
        let Some(text) = prompt.or_else(|| reads(work)) else { return Ok(()) };
        private::make_dir(&self.task_dir(&work.task.id))?;
        replace_file(&self.input(&work.task.id), text.as_bytes())
    }

    /// Adds the end of a run's output, if the run is a phase of a pipeline: its result is read from there.
    pub(crate) fn with_tail(&self, work: Option<&Work>, ended: RunEndRecord) -> RunEndRecord {
        let Some(work) = work.filter(|work| work.task.spec.phase().is_some()) else { return ended };
        let tail = last_lines(&self.log(&work.run.id));
        let overlooked = tail.is_none().then(|| {
            let limit = LONGEST_LINE / 1_024 / 1_024;
            format!("the last line of its output is longer than {limit} MiB, and was not read as a result")
        });
        let notes: Vec<String> = ended.note.map(String::from).into_iter().chain(overlooked).collect();
        let note = (!notes.is_empty()).then(|| notes.join("; ").into());
        RunEndRecord { tail: Some(tail.unwrap_or_default().into()), note, ..ended }
    }

    /// Adds the result of the agent of a run.
    pub(crate) fn with_agent(&self, work: Option<&Work>, end: &keeper::SessionEnd, ended: RunEndRecord) -> RunEndRecord {
        let agent = work.zip(end.agent.as_ref());
        let agent = agent.and_then(|(work, agent)| agents::end_of(&self.project, work, agent, end));
        RunEndRecord {
            agent: agent.map(Box::new),
            budget_micros: self.project.config().budget_micros(),
            day: Some(local_day(ended.at)),
            ..ended
        }
    }

    /// The same for a session whose keeper was killed.
    pub(crate) fn with_lost_agent(&self, work: Option<&Work>, ended: RunEndRecord) -> RunEndRecord {
        let lost = work.filter(|_| ended.agent.is_none() && ended.ending == RunEnd::Lost);
        let agent = lost.and_then(|work| agents::end_of_lost(&self.project, work, &self.log(&work.run.id)));
        RunEndRecord {
            agent: agent.map(Box::new).or(ended.agent),
            budget_micros: self.project.config().budget_micros(),
            day: Some(local_day(ended.at)),
            ..ended
        }
    }

    /// The directory of a task that works in one of its own.
    pub fn workspace(&self, task: &TaskId) -> PathBuf {
        workspaces::dir(&self.project, task)
    }

    /// The content of a run's record.
    pub fn read_record(&self, run: &RunId) -> std::io::Result<Found> {
        keeper::read_record(&self.record(run))
    }

    /// Whether there is a record of any session.
    pub(crate) fn has_records(&self) -> bool {
        std::fs::read_dir(self.project.folder().join("runs")).is_ok_and(|mut files| files.next().is_some())
    }

    /// The records of sessions without a keeper; with the content of the record if the keeper was killed.
    pub(crate) fn left(&self) -> Vec<(RunId, Option<Record>)> {
        let Ok(files) = std::fs::read_dir(self.project.folder().join("runs")) else { return Vec::new() };
        let names = files.flatten().filter_map(|file| file.file_name().into_string().ok());
        let left = names.filter_map(|name| RunId::new(&name).ok()).filter_map(|run| match self.read_record(&run).ok()? {
            Found::Ended(..) => Some((run, None)),
            Found::Dead(record) => Some((run, Some(record))),
            Found::Nothing | Found::Tombstone | Found::Live(_) => None,
        });
        left.collect()
    }

    /// What a keeper needs to know about a run.
    pub(crate) fn spec(&self, work: &Work, agent: Option<&AgentCall>, limit: Option<Limit>) -> Spec {
        let Work { run, task } = work;
        let config = self.project.config();
        let task_dir = self.task_dir(&task.id);
        let cwd = match &task.spec.workspace {
            WorkspaceSpec::Cwd(directory) => PathBuf::from(&**directory),
            // A session goes to its workspace itself, after that is prepared.
            WorkspaceSpec::Checkout | WorkspaceSpec::Dir | WorkspaceSpec::Worktree(_) | WorkspaceSpec::Shared { .. } => {
                self.project.root().to_owned()
            }
        };
        let (make_dirs, spare_dirs) = (vec![task_dir.clone()], vec![task_dir.clone()]);
        let argv = match &task.spec.work {
            Some(What::Run(command)) => vec!["/bin/sh".into(), "-c".into(), command.to_string().into()],
            Some(What::Exec { argv, .. }) => argv.iter().map(|word| word.to_string().into()).collect(),
            Some(What::Agent(_)) => agent.map(|agent| agent.terms.argv(&self.project, agent.argv.clone())).unwrap_or_default(),
            Some(What::Merge { branch, into, how }) => merge_branch::argv(&self.project, branch, into, *how),
            // A pipeline has no runs: its phases have them.
            Some(What::Pipeline(_)) | None => Vec::new(),
        };
        let argv = match task.live() {
            Some(live) if live.recheck => guarded::argv(&self.project, task, live.epoch, argv),
            Some(_) | None => argv,
        };
        let argv = match task.spec.workspace.owner(&task.id).filter(|_| works_there(task)) {
            Some(owner) => workspaces::argv(&self.project, owner, argv),
            None => argv,
        };
        let mut env: Vec<(String, OsString)> = vec![
            ("BANKSMAN_PROJECT".into(), self.project.root().into()),
            ("BANKSMAN_TASK".into(), task.id.to_string().into()),
            ("BANKSMAN_TITLE".into(), task.spec.title.to_string().into()),
            ("BANKSMAN_RUN".into(), run.id.to_string().into()),
            ("BANKSMAN_RUN_EPOCH".into(), run.epoch.to_string().into()),
            ("BANKSMAN_HOLDER".into(), run.id.holder().to_string().into()),
            ("BANKSMAN_TASK_DIR".into(), task_dir.into()),
            ("BANKSMAN_ATTEMPT".into(), run.attempt.to_string().into()),
        ];
        if run.attempt > task.spec.first_attempt {
            env.push(("BANKSMAN_LAST_RESULT".into(), self.last_result(&task.id).into()));
        }
        let mut env_remove: Vec<String> = FOREIGN.map(Into::into).into();
        if let Some(agent) = agent {
            env_remove.extend(agent.env_remove.clone());
            env.extend(agent.env.clone());
        }
        // A wait for what its pipeline holds would be in vain as long as this run waits.
        if let Some(pipeline) = task.spec.parent.as_ref().filter(|_| task.spec.phase().is_some()) {
            env.push(("BANKSMAN_ANCESTORS".into(), pipeline.pipeline_holder().to_string().into()));
        }
        if task.spec.depth > 0 {
            env.push(("BANKSMAN_ROUTE_DEPTH".into(), task.spec.depth.to_string().into()));
        }
        env.extend(task.spec.env.iter().map(|(name, value)| (name.to_string(), value.to_string().into())));
        env.extend(self.store.clone().map(|url| ("BANKSMAN_STORE".into(), url.into())));
        Spec {
            run: run.id.to_string(),
            owner_epoch: run.owner_epoch.0,
            record: self.record(&run.id),
            log: self.log(&run.id),
            log_limit: u64::from(config.log_limit_mib) * 1_024 * 1_024,
            banner: task.spec.restart.as_ref().map(|_| format!("attempt {}", task.failures.saturating_add(1))),
            sockets: self.sockets.clone().unwrap_or_else(|| self.project.run_dir()),
            argv,
            cwd,
            make_dirs,
            spare_dirs,
            env,
            env_remove,
            stdin: (reads(work).is_some() || agent.is_some_and(|agent| agent.reads_prompt)).then(|| self.input(&task.id)),
            grace_ms: u64::try_from(config.kill_grace.as_millis()).unwrap_or(u64::MAX),
            limit,
            input: task.spec.input.or_else(|| agent?.input).map(|input| match input {
                LiveInput::Pipe => InputKind::Pipe,
                LiveInput::Terminal => InputKind::Terminal,
            }),
            own_workspace: (task.spec.workspace == WorkspaceSpec::Dir).then(|| self.workspace(&task.id)),
            agent: agent.map(|agent| agent.spec),
        }
    }
}

/// The day of a moment, in the time zone of this machine.
pub fn local_day(at: Wall) -> Day {
    let local = |at: Wall| Some(Timestamp::from_millisecond(at.0).ok()?.to_zoned(TimeZone::system()));
    let day = || {
        let today = local(at)?;
        let ends = today.tomorrow().ok()?.start_of_day().ok()?.timestamp().as_millisecond();
        let date = i64::from(today.date().since(jiff::civil::date(1970, 1, 1)).ok()?.get_days());
        Some(Day { date, ends: Wall(ends) })
    };
    day().unwrap_or_else(|| Day::utc(at))
}

/// Whether the command of a task works with files: a merge does without a work tree of its own.
fn works_there(task: &Task) -> bool {
    !matches!(task.spec.work, Some(What::Merge { .. }))
}

/// The text that a run reads from stdin.
fn reads(work: &Work) -> Option<&str> {
    match &work.task.spec.work {
        Some(What::Exec { input, .. }) => input.as_deref(),
        Some(What::Run(_) | What::Agent(_) | What::Merge { .. } | What::Pipeline(_)) | None => None,
    }
}

/// Why the work of a run was returned, for the next one.
fn landing_result(entry: &Entry, why: &Return) -> serde_json::Value {
    let (files, log, commit) = match why {
        Return::Conflict { tip, files } => (Some(files), None, Some(tip)),
        Return::CheckFailed { commit, log } => (None, Some(log), Some(commit)),
        Return::NoChange | Return::Unfinished { .. } | Return::TargetMoves | Return::Failure { .. } => (None, None, None),
    };
    json!({
        "id": entry.id,
        "target": entry.target,
        "reason": why.as_str(),
        "message": why.to_string(),
        "files": files,
        "log": log,
        "commit": commit,
        "output": log.map(|log| tail(Path::new(&**log), TAIL)),
    })
}

/// Writes a file in the folder of a task, where runs may have put anything in its place: writes a new file beside it
/// and renames that over it.
fn replace_file(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let draft = path.with_extension(path.extension().map_or("new".into(), |ending| format!("{}.new", ending.to_string_lossy())));
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    private::open(&draft, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?.write_all(text)?;
    std::fs::rename(draft, path)
}

/// Opens a plain file that a run may have replaced by anything, without waiting for the other end of a pipe.
fn open_plain(path: &Path) -> std::io::Result<File> {
    let file = private::open(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a plain file")),
    }
}

/// The last bytes of a log, from the beginning of a line if there is one.
pub(crate) fn tail(log: &Path, most: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = open_plain(log)?;
        let from = file.metadata()?.len().saturating_sub(most);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        let cut = bytes.iter().position(|byte| *byte == b'\n').filter(|_| from > 0).map_or(0, |at| at + 1);
        Ok(bytes.split_off(cut))
    };
    // A run without output has no log.
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The last lines of a log, the first of them complete; `None` if the last one is too long.
fn last_lines(log: &Path) -> Option<String> {
    let read = || -> std::io::Result<Option<Vec<u8>>> {
        let mut file = open_plain(log)?;
        let length = file.metadata()?.len();
        let mut from = length.saturating_sub(PHASE_TAIL);
        let mut chunk = Vec::new();
        while from > 0 {
            if length - from > LONGEST_LINE {
                return Ok(None);
            }
            let before = from.saturating_sub(PHASE_TAIL);
            chunk.clear();
            file.seek(SeekFrom::Start(before))?;
            (&mut file).take(from - before).read_to_end(&mut chunk)?;
            match chunk.iter().rposition(|byte| *byte == b'\n') {
                Some(at) => {
                    from = before + at as u64 + 1;
                    break;
                }
                None => from = before,
            }
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.take(length - from).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    };
    // A run without output has no log.
    read().unwrap_or(Some(Vec::new())).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The end of a run, from the end of its session.
pub(crate) fn ended(ending: keeper::SessionEnd) -> RunEndRecord {
    let mut notes = Vec::new();
    if let Some(error) = &ending.log.error {
        notes.push(format!("{} bytes of its output could not be kept: {error}", ending.log.dropped));
    } else if ending.log.dropped > 0 {
        notes.push(format!("the oldest {} bytes of its output were dropped", ending.log.dropped));
    }
    match ending.stragglers {
        0 => {}
        1 => notes.push("cleaned up 1 leftover process".into()),
        several => notes.push(format!("cleaned up {several} leftover processes")),
    }
    if let Some(shortage) = ending.shortage {
        let how = RunEnd::NotBegun { error: shortage.to_string().into(), is_shortage: true };
        return RunEndRecord::new(how, Wall(ending.ended_at_ms), ending.error.map(Into::into));
    }
    let how = match (ending.error, ending.code, ending.signal) {
        // The exit status then says nothing about its work.
        _ if ending.lapsed => {
            notes.push("its runner could not renew the lease, so it was ended".into());
            RunEnd::Lost
        }
        (Some(error), _, _) => RunEnd::NotStarted { error: error.into() },
        (None, Some(code), _) => RunEnd::Exited(code),
        (None, None, Some(signal)) => RunEnd::Signalled(signal),
        (None, None, None) => RunEnd::Lost,
    };
    let note = (!notes.is_empty()).then(|| notes.join("; ").into());
    let ran = ending.ran_ms.filter(|_| !ending.stopped).map(|ran| Span::from_ms(i64::try_from(ran).unwrap_or(i64::MAX)));
    let written = ending.written.iter().filter_map(|id| MessageId::new(id).ok()).collect();
    RunEndRecord { ran, written, ..RunEndRecord::new(how, Wall(ending.ended_at_ms), note) }
}
