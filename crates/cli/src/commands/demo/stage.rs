//! Where the demo plays: a temporary project, actors, and an eye on the event log.

use std::cell::RefCell;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use banksman::core::Seq;
use banksman::store::{EventFilter, EventRow};
use banksman::{Follower, Project};
use rustix::process::{Pid, Signal, kill_process};

use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, CYAN, DIM, Printer};

/// No scene takes longer than this unless something is broken.
const DEADLINE: Duration = Duration::from_secs(30);

pub(super) struct Stage {
    printer: Printer,
    project: Project,
    follower: RefCell<Follower>,
    seen: RefCell<Vec<EventRow>>,
    _dir: tempfile::TempDir,
}

/// A process of the play. It is ended if the play ends before it.
pub(super) struct Actor(Child);

impl Stage {
    pub(super) fn set(context: &Context) -> Result<Stage, Failure> {
        let dir = tempfile::Builder::new().prefix("banksman-demo-").tempdir().map_err(system)?;
        let project = Project::init(dir.path())?;
        let follower = RefCell::new(project.follow(Seq(0))?);
        Ok(Stage { printer: context.printer.clone(), project, follower, seen: RefCell::default(), _dir: dir })
    }

    /// The title of a scene.
    pub(super) fn title(&self, number: u32, text: &str) {
        self.say(&format!("\n{CYAN}{number}{CYAN:#}  {BOLD}{text}{BOLD:#}"));
    }

    /// A line of the play.
    pub(super) fn say(&self, text: &str) {
        if !self.printer.json && !self.printer.quiet {
            self.printer.line(text);
        }
    }

    /// A line with the command that a user would type.
    pub(super) fn prompt(&self, command: &str) {
        self.say(&format!("   {DIM}$ banksman {command}{DIM:#}"));
    }

    /// Starts `banksman ARGS` as a process of its own.
    pub(super) fn cast(&self, args: &[&str]) -> Result<Actor, Failure> {
        let mut command = Command::new("/proc/self/exe");
        // The file is named, because the user's settings may name a server.
        let store = format!("sqlite:{}", self.project.store());
        command.arg("-C").arg(self.project.root()).arg("--store").arg(store).args(args).env("NO_COLOR", "1");
        for name in ["BANKSMAN_HOLDER", "BANKSMAN_ANCESTORS", "BANKSMAN_LOCK", "BANKSMAN_STORE", "BANKSMAN_PROJECT"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map(Actor).map_err(system)
    }

    /// Waits for the next event of this kind about this holder.
    pub(super) fn until(&self, kind: &str, holder: &str) -> Result<EventRow, Failure> {
        let about = |event: &EventRow| event.kind == kind && event.data["holder"] == holder;
        self.wait_for(|seen| seen.iter().find(|event| about(event)).cloned())
    }

    /// Waits until so many stand in line for a lock.
    pub(super) fn until_line(&self, lock: &str, length: usize) -> Result<(), Failure> {
        let mut reader = self.project.reader()?;
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            let snapshot = reader.view().snapshot()?;
            if snapshot.coordination.locks.values().any(|row| row.name.as_str() == lock && row.line.len() >= length) {
                return Ok(());
            }
            // Standing in line is no event, so nothing rings.
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(late())
    }

    /// All events of one lock so far.
    pub(super) fn events_of(&self, lock: &str) -> Vec<EventRow> {
        self.seen.borrow().iter().filter(|event| event.source.id.as_deref() == Some(lock)).cloned().collect()
    }

    /// The number of events, and whether the log agrees with the tables.
    pub(super) fn check(&self) -> Result<(i64, bool), Failure> {
        let mut reader = self.project.reader()?;
        Ok((reader.view().last_event()?.0, reader.view().compare_with_log()?.is_empty()))
    }

    fn wait_for<T>(&self, find: impl Fn(&[EventRow]) -> Option<T>) -> Result<T, Failure> {
        let (never, _keep) = rustix::pipe::pipe().map_err(|error| system(error.into()))?;
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            if let Some(found) = find(&self.seen.borrow()) {
                return Ok(found);
            }
            let mut follower = self.follower.borrow_mut();
            let events = follower.next(&EventFilter::default())?;
            if events.is_empty() {
                follower.wait(std::os::fd::AsFd::as_fd(&never));
            }
            self.seen.borrow_mut().extend(events);
        }
        Err(late())
    }
}

impl Actor {
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).ok_or_else(late)?;
        kill_process(pid, signal).map_err(|error| system(error.into()))
    }

    /// Waits for the end. Returns the exit status and what was said on stderr.
    pub(super) fn end(mut self) -> Result<(Option<i32>, String), Failure> {
        let mut said = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            std::io::Read::read_to_string(stderr, &mut said).map_err(system)?;
        }
        let status = self.0.wait().map_err(system)?;
        Ok((status.code(), said))
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // Fails for the one that has ended already, as nearly all have.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn system(error: std::io::Error) -> Failure {
    Failure::system("run the demo", error)
}

fn late() -> Failure {
    Failure::new(exit::ERROR, "DEMO", "the demo waited in vain for something to happen")
}
