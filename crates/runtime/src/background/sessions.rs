//! Jobs about sessions: asking their keepers, finding them again, and ending what is left of them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use banksman_adapters::keeper::{self, Found, Record, Silence};
use banksman_adapters::life_file;
use banksman_core::backlog::Run;
use banksman_core::task::RunEnd;
use banksman_core::{RunId, Span};
use banksman_engine::{Activity, Vitals};
use banksman_store::Key;

use super::{Background, JobResult, Recovered, Recovery, Undone};
use crate::project::Project;
use crate::runner::now_ended;
use crate::sessions::Sessions;

impl Background {
    /// Ends the remaining processes of a session whose keeper was killed.
    pub(crate) fn sweep(&self, run: RunId, record: Record, grace: Duration) {
        let unswept = run.clone();
        self.run(
            move |_| JobResult::Unclear(unswept, None),
            move || {
                let note = match keeper::sweep(&record, grace) {
                    Ok(swept) if !swept.left.is_empty() => {
                        let left: Vec<String> = swept.left.iter().map(ToString::to_string).collect();
                        return JobResult::Unproven(run, format!("processes that cannot be ended: {}", left.join(", ")).into());
                    }
                    Ok(swept) if swept.ended == 1 => "its keeper was killed; 1 process of it was ended".into(),
                    Ok(swept) => format!("its keeper was killed; {} processes of it were ended", swept.ended),
                    Err(error) => return JobResult::Unproven(run, error.to_string().into()),
                };
                JobResult::Swept(run, now_ended(RunEnd::Lost, Some(&note)))
            },
        );
    }

    /// Finds a session again, and adopts it if it is alive.
    pub(crate) fn recover(&self, recovery: Recovery) {
        let run = recovery.run.clone();
        let unclear = move |undone: Undone| JobResult::Unclear(run, Some(undone.why));
        self.run(unclear, move || match find_again(&recovery) {
            Ok(found) => JobResult::Recovered(recovery.run, Box::new(found)),
            Err(error) => JobResult::Unclear(recovery.run, Some(error.to_string())),
        });
    }

    /// Asks a keeper for the vitals of its session.
    pub(crate) fn ask_status(&self, run: RunId, record: PathBuf, silence: Span) {
        let asked = run.clone();
        self.run(
            move |_| JobResult::Pulse(asked, Err(None)),
            move || {
                let vitals = match keeper::status(&record) {
                    Ok(status) => {
                        let quiet = Span::from_ms(i64::try_from(status.quiet_ms).unwrap_or(i64::MAX));
                        let activity = if quiet >= silence { activity(&record) } else { Activity::Idle };
                        Ok(Vitals { quiet, output_bytes: status.log.bytes, activity })
                    }
                    // Only a timeout is a silence to report: a keeper that has exited fails at once.
                    Err(error) if error.kind() == ErrorKind::TimedOut => {
                        Err(Some(keeper::silence(&record, Duration::ZERO).unwrap_or(Silence::Busy).to_string()))
                    }
                    Err(_) => Err(None),
                };
                JobResult::Pulse(run, vitals)
            },
        );
    }

    /// Waits until a session that was asked to end has ended, or its keeper turns out to be unable to end it.
    pub(crate) fn await_end(&self, run: RunId, record: PathBuf, grace: Duration) {
        // If the session does not end, this is requested again.
        self.run(
            |_| JobResult::Done,
            move || match keeper::await_end(&record, grace) {
                Some((record, silence)) => JobResult::Silent(run, record, silence),
                None => JobResult::Done,
            },
        );
    }

    /// Removes the records of sessions whose runs have ended without them: the runner was killed before it could, or a
    /// runner on another machine declared the run lost. What fails now is left to the next runner.
    pub(crate) fn clear_away(&self, project: &Project, files: &Sessions) -> Receiver<()> {
        let (done, cleared) = mpsc::channel();
        let (project, files) = (project.clone(), files.clone());
        self.run(
            |_| JobResult::Done,
            move || {
                clear_away(&project, &files);
                drop(done);
                JobResult::Done
            },
        );
        cleared
    }
}

fn find_again(recovery: &Recovery) -> std::io::Result<Recovered> {
    let record = &recovery.record;
    if !recovery.is_of_this_boot {
        // The session may have ended before the machine restarted.
        return Ok(match keeper::read_record(record) {
            Ok(Found::Ended(_, ending)) => Recovered::Ended(ending),
            _ => Recovered::Rebooted,
        });
    }
    let found = match keeper::read_record(record)? {
        Found::Nothing => keeper::write_tombstone(record)?,
        other => other,
    };
    Ok(match found {
        Found::Nothing | Found::Tombstone => Recovered::Nothing,
        Found::Ended(_, ending) => Recovered::Ended(ending),
        Found::Live(_) => Recovered::Adopted(keeper::adopt(record, recovery.owner_epoch)?),
        Found::Dead(record) => Recovered::Dead(record),
    })
}

/// Removes the records of sessions without a live run, and their remaining processes.
fn clear_away(project: &Project, files: &Sessions) {
    let left = files.left();
    let life_files = project.host().life_files.as_ref();
    if left.is_empty() && life_files.is_none() {
        return;
    }
    let Ok(mut reader) = project.reader() else { return };
    // Life files of killed runners whose rows are already removed.
    if let Some(life_files) = life_files {
        let Ok(rows) = reader.view().load(&[Key::Runners].into()) else { return };
        let known: Vec<_> = rows.backlog.runners.values().map(|runner| runner.process.clone()).collect();
        life_file::remove_dead(life_files, &known);
    }
    for (run, record) in left {
        let keys = [Key::Run(run.clone())].into();
        let Ok(rows) = reader.view().load(&keys) else { return };
        if rows.backlog.runs.get(&run).is_some_and(Run::is_live) {
            continue;
        }
        let path = files.record(&run);
        match record {
            None => drop(keeper::forget(&path)),
            // Its keeper was killed, and processes of it may be alive. Each sweep has a thread, so that no session
            // waits for another.
            Some(record) => {
                let grace = project.config().kill_grace;
                drop(std::thread::spawn(move || keeper::sweep(&record, grace).and_then(|_| keeper::forget(&path))))
            }
        }
    }
}

/// Whether a silent session is working. A keeper of an earlier version cannot report that.
fn activity(record: &Path) -> Activity {
    match keeper::sample(record) {
        Ok(Some(keeper::Activity::Busy)) => Activity::Busy,
        Ok(Some(keeper::Activity::Unclear)) => Activity::Unclear,
        Ok(Some(keeper::Activity::Idle) | None) | Err(_) => Activity::Idle,
    }
}
