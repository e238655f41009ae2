//! A temporary project, and `banksman` as a user would run it.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use banksman_adapters::keeper;
use banksman_core::event::{Kind, Resource};
use banksman_core::resource::grant::{Ask, GrantRequest, Waiters};
use banksman_core::resource::lock::State;
use banksman_core::{Epoch, Grant, HolderId, Name};
use banksman_runtime::{Client, Project, WaitOptions};
use banksman_store::{EventFilter, EventRow, Snapshot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use crate::postgres;

/// The upper bound on everything that a test waits for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const BANKSMAN: &str = env!("CARGO_BIN_EXE_banksman");

/// A separate project, on SQLite or, with `BANKSMAN_TEST_STORE=postgres`, in PostgreSQL.
pub(crate) struct World {
    dir: Dir,
    /// The parent directory, if that is temporary too.
    _above: Option<tempfile::TempDir>,
    /// The store's URL, unless it is the file in the project.
    store: Option<String>,
    /// The directory for the random part of the host id, so that no test uses the user's.
    state: PathBuf,
    /// Whether the store is checked when the test ends.
    is_checked: bool,
}

impl Drop for World {
    fn drop(&mut self) {
        if self.is_checked && !std::thread::panicking() {
            self.check();
        }
    }
}

/// The directory of a world. No session outlives it, also when the test fails.
struct Dir(tempfile::TempDir);

impl Drop for Dir {
    fn drop(&mut self) {
        let records = std::fs::read_dir(self.0.path().join(".banksman/runs")).into_iter().flatten().flatten();
        for record in records.map(|entry| entry.path()) {
            // A stopped keeper cannot end its session.
            if let Ok(keeper::Found::Live(live)) = keeper::read_record(&record)
                && keeper::is_stopped(&live)
            {
                keeper::kill(&live).ok();
                keeper::sweep(&live, Duration::ZERO).ok();
            } else if let Ok(mut session) = keeper::adopt(&record, i64::MAX) {
                session.kill(Duration::ZERO);
                let start = Instant::now();
                while matches!(keeper::read_record(&record), Ok(keeper::Found::Live(_))) && start.elapsed() < DEADLINE {
                    std::thread::park_timeout(Duration::from_millis(2));
                }
            }
        }
    }
}

/// The output and the exit status of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A command in the background. It is killed when the test ends.
pub(crate) struct Running(pub(crate) Child);

impl World {
    /// Whether a process holds, or waits for, a write lock on a file of the store.
    fn has_store_lock(&self, pid: &str) -> bool {
        let files = std::fs::read_dir(self.path().join(".banksman")).unwrap().flatten();
        let files =
            files.filter(|file| ["store", "turn"].iter().any(|name| file.file_name().to_string_lossy().starts_with(name)));
        let inodes: Vec<String> = files.map(|file| format!(":{}", file.metadata().unwrap().ino())).collect();
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_of = |word: &&str| inodes.iter().any(|inode| word.ends_with(inode.as_str()));
            words.contains(&"WRITE") && words.contains(&pid) && words.iter().any(is_of)
        })
    }

    pub(crate) fn new() -> World {
        World::empty().initialized()
    }

    /// Makes a project in the directory.
    pub(crate) fn initialized(mut self) -> World {
        self.ok(&["init"]);
        self.is_checked = true;
        self
    }

    /// Skips the check at the end of the test, because the store is damaged on purpose or is elsewhere.
    pub(crate) fn unchecked(mut self) -> World {
        self.is_checked = false;
        self
    }

    /// A directory that is no project yet.
    pub(crate) fn empty() -> World {
        World::empty_on_sqlite().moved_to(postgres::wanted().then(postgres::shared_database))
    }

    pub(crate) fn empty_on_sqlite() -> World {
        World::empty_in(OsStr::new("banksman-test-"))
    }

    /// A directory that is no project yet, with a name that begins with `prefix`.
    pub(crate) fn empty_in(prefix: &OsStr) -> World {
        World::of(tempfile::Builder::new().prefix(prefix).tempdir().unwrap(), None)
    }

    fn of(dir: tempfile::TempDir, above: Option<tempfile::TempDir>) -> World {
        let state = dir.path().join("state");
        World { dir: Dir(dir), _above: above, store: None, state, is_checked: false }
    }

    /// A project on SQLite in a directory of exactly this name.
    pub(crate) fn named_on_sqlite(name: &str) -> World {
        let above = tempfile::Builder::new().prefix("banksman-test-").tempdir().unwrap();
        let dir = tempfile::Builder::new().prefix(name).rand_bytes(0).tempdir_in(&above).unwrap();
        World::of(dir, Some(above)).initialized()
    }

    /// A project on SQLite, for tests of its files.
    pub(crate) fn on_sqlite() -> World {
        World::empty_on_sqlite().initialized()
    }

    /// A project on SQLite; `None` in a test run on PostgreSQL.
    pub(crate) fn only_on_sqlite() -> Option<World> {
        (!postgres::wanted()).then(World::on_sqlite)
    }

    /// A directory that is no project yet, whose store will be at this URL.
    pub(crate) fn at(url: String) -> World {
        World::empty_on_sqlite().moved_to(Some(url))
    }

    /// The same directory with its store at this URL.
    pub(crate) fn moved_to(mut self, url: Option<String>) -> World {
        self.store = url;
        self
    }

    pub(crate) fn is_on_sqlite(&self) -> bool {
        self.store.is_none()
    }

    pub(crate) fn url(&self) -> String {
        let file = || format!("sqlite:{}", self.path().join(".banksman/store.db").display());
        self.store.clone().unwrap_or_else(file)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.0.path()
    }

    /// `banksman ARGS` in the project, without the variables of Banksman from the environment.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        self.clean(Command::new(BANKSMAN), args)
    }

    pub(crate) fn clean<S: AsRef<OsStr>>(&self, mut command: Command, args: &[S]) -> Command {
        command.args(args).current_dir(self.path()).env("XDG_STATE_HOME", &self.state).env("NO_COLOR", "1").stdin(Stdio::null());
        // Tests must not depend on the settings of the user who runs them.
        command.env("XDG_CONFIG_HOME", self.path().join("config"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BANKSMAN_")) {
            command.env_remove(name);
        }
        if let Some(url) = &self.store {
            command.env("BANKSMAN_STORE", url);
        }
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Said {
        self.command(args).output().unwrap().into()
    }

    /// Appends lines to the settings of the project.
    pub(crate) fn configure(&self, lines: &str) {
        let file = self.path().join(".banksman/config.toml");
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap_or_default() + lines).unwrap();
    }

    /// Writes a setting into the file of the project, as if it came with the repository.
    pub(crate) fn committed(&self, key: &str, value: &str) {
        self.ok(&["config", "set", key, "placeholder"]);
        let file = self.path().join(".banksman/config.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("\"placeholder\"", &format!("{value:?}"))).unwrap();
    }

    /// Runs a command that must succeed, and returns its stdout.
    pub(crate) fn ok<S: AsRef<OsStr> + std::fmt::Debug>(&self, args: &[S]) -> String {
        let said = self.run(args);
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        said.stdout
    }

    /// Runs a command that must succeed, with `--json`, and returns `data`.
    pub(crate) fn data(&self, args: &[&str]) -> Value {
        let mut value: Value = serde_json::from_str(&self.ok(&with_json(args))).unwrap();
        assert_eq!(value["success"], true);
        value["data"].take()
    }

    /// Runs a command that must fail, with `--json`, and returns the exit code and `error`.
    pub(crate) fn error(&self, args: &[&str]) -> (i32, Value) {
        let said = self.run(&with_json(args));
        let mut value: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{args:?}: {said:?}"));
        assert_eq!(value["success"], false, "{args:?}");
        (said.code, value["error"].take())
    }

    /// Starts a command in the background, with its output captured.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> Running {
        Running(self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub(crate) fn project(&self) -> Project {
        let place = self.store.as_ref().map(|url| banksman_runtime::StoreUrl::parse(url, |_| None).unwrap());
        Project::find_at(self.path(), place).unwrap()
    }

    /// The public library, on this project.
    pub(crate) fn library(&self) -> banksman::Client {
        self.library_of(&self.project())
    }

    /// The public library, on another project in the same database.
    pub(crate) fn library_of(&self, project: &Project) -> banksman::Client {
        let own = || format!("sqlite:{}", project.folder().join("store.db").display());
        let store = self.store.clone().unwrap_or_else(own);
        banksman::Project::find_in(project.root(), &store).unwrap().open().unwrap()
    }

    /// Another project in the same database, in a subdirectory.
    pub(crate) fn another(&self, name: &str) -> Project {
        let root = self.path().join(name);
        std::fs::create_dir(&root).unwrap();
        let place = self.store.as_ref().map(|url| banksman_runtime::StoreUrl::parse(url, |_| None).unwrap());
        Project::init_at(&root, place).unwrap()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.project().reader().unwrap().view().snapshot().unwrap()
    }

    pub(crate) fn events(&self) -> Vec<EventRow> {
        let mut reader = self.project().reader().unwrap();
        let mut all = Vec::new();
        loop {
            let after = all.last().map_or_else(Default::default, |event: &EventRow| event.id);
            let page = reader.view().events(after, &EventFilter::default()).unwrap();
            all.extend(page.events);
            if !page.more {
                return all;
            }
        }
    }

    /// The grant of a lock, if it is held.
    pub(crate) fn grant(&self, lock: &str) -> Option<Grant> {
        match self.snapshot().coordination.locks.remove(lock)?.state {
            State::Free => None,
            State::Held(grant) => Some(*grant),
        }
    }

    pub(crate) fn holder(&self, lock: &str) -> Option<HolderId> {
        self.grant(lock).map(|grant| grant.claim.holder)
    }

    pub(crate) fn waiters(&self, lock: &str) -> Waiters {
        self.snapshot().coordination.locks.remove(lock).map(|row| row.waiters).unwrap_or_default()
    }

    pub(crate) fn until_held_by(&self, lock: &str, holder: &str) {
        until(&format!("{lock} held by {holder}"), || {
            self.grant(lock).is_some_and(|grant| grant.claim.holder.as_str() == holder && grant.offer.is_none())
        });
    }

    pub(crate) fn until_waiters(&self, lock: &str, length: usize) {
        until(&format!("{length} waiters of {lock}"), || self.waiters(lock).len() == length);
    }

    /// Starts commands that wait for a lock, in the order of their names: `w0`, `w1` and so on.
    pub(crate) fn start_waiters(&self, lock: &str, count: usize) -> Vec<Running> {
        let wait = |n| {
            let waiter = self.start(&["locks", "acquire", lock, "--holder", &format!("w{n}"), "--ttl", "1h"]);
            self.until_waiters(lock, n + 1);
            waiter
        };
        (0..count).map(wait).collect()
    }

    /// Holds a reserved lock for as long as the client lives.
    pub(crate) fn hold_reserved(&self, client: &Client, lock: &str, holder: &str) -> Epoch {
        let resource = Resource { kind: Kind::Lock, name: Name::new(lock).unwrap() };
        let processes = vec![client.this_process().clone()];
        let claim = GrantRequest { processes, ..GrantRequest::new(HolderId::new(holder).unwrap()) };
        client.acquire_any(resource, Ask::new(claim), WaitOptions::default()).unwrap();
        self.grant(lock).unwrap().epoch
    }

    /// Runs a command that must fail with this exit status and this error code. Returns the error.
    #[track_caller]
    pub(crate) fn assert_refused(&self, args: &[&str], exit: i32, code: &str) -> Value {
        let (found, error) = self.error(args);
        assert_eq!((found, error["code"].as_str()), (exit, Some(code)), "{args:?}: {error}");
        error
    }

    /// Adds a task and returns its id.
    pub(crate) fn add(&self, args: &[&str]) -> String {
        self.data(&[&["tasks", "add"], args].concat())["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn task(&self, name: &str) -> Value {
        self.data(&["tasks", "show", name])
    }

    pub(crate) fn status(&self, name: &str) -> String {
        self.task(name)["status"].as_str().unwrap().to_owned()
    }

    pub(crate) fn until_status(&self, name: &str, status: &str) {
        until(&format!("{name} is {status}"), || self.status(name) == status);
    }

    /// Starts a runner in the background.
    pub(crate) fn runner(&self, args: &[&str]) -> Running {
        self.start(&[&["run", "--quiet"], args].concat())
    }

    /// Runs until nothing is left to do. Returns the exit status.
    pub(crate) fn run_all(&self) -> i32 {
        let said = self.runner(&["--until-idle"]).end();
        assert!([0, 7].contains(&said.code), "{said:?}");
        said.code
    }

    pub(crate) fn touch(&self, file: &str) {
        std::fs::write(self.path().join(file), "").unwrap();
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.path().join(file).exists()
    }

    /// The text of a file; empty if the file does not exist.
    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path().join(file)).unwrap_or_default()
    }

    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        self.read(file).lines().map(Into::into).collect()
    }

    pub(crate) fn everything(&self) -> Snapshot {
        self.project().reader().unwrap().view().everything().unwrap()
    }

    /// The number of events of a kind.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.events().iter().filter(|event| event.kind == kind).count()
    }

    /// Asserts that the store is sound.
    pub(crate) fn check(&self) {
        let said = self.run(&["doctor"]);
        assert_eq!(said.code, 0, "{said:?}");
    }
}

fn with_json<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let before_command = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
    let mut args = args.to_vec();
    args.insert(before_command, "--json");
    args
}

/// Waits until a condition holds, up to the deadline.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        use std::os::unix::process::ExitStatusExt;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap());
        Said { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// Stops the process while it neither holds the writer lock nor waits for it: otherwise the store would stall, which other tests cover.
    pub(crate) fn stop_outside_transaction(&self, world: &World) {
        let pid = self.pid().to_string();
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        };
        until("it is stopped outside a transaction", || {
            self.signal(Signal::STOP);
            until("it is stopped", is_stopped);
            let is_outside = !world.has_store_lock(&pid);
            if !is_outside {
                self.signal(Signal::CONT);
            }
            is_outside
        });
    }

    /// Kills the process after this time, unless it ends before. Returns its exit code if it has ended by itself.
    pub(crate) fn kill_after(mut self, time: Duration) -> Option<i32> {
        let process = pidfd_open(Pid::from_raw(self.pid()).unwrap(), PidfdFlags::empty()).unwrap();
        let timeout = Timespec::try_from(time).unwrap();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout)).unwrap();
        self.signal(Signal::KILL);
        self.0.wait().unwrap().code()
    }

    /// Kills the process, and waits until it is gone.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Stops it as a service manager does.
    pub(crate) fn stop(self) -> Said {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Interrupts it as Ctrl-C does.
    pub(crate) fn interrupt(self) -> Said {
        self.signal(Signal::INT);
        self.end()
    }

    pub(crate) fn end(mut self) -> Said {
        let read = |pipe: Option<&mut dyn std::io::Read>| {
            let mut text = Vec::new();
            pipe.unwrap().read_to_end(&mut text).unwrap();
            text
        };
        let stdout = read(self.0.stdout.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
        let stderr = read(self.0.stderr.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
        let status = self.0.wait().unwrap();
        Output { status, stdout, stderr }.into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Writes an executable file, and its folder if that does not exist.
pub(crate) fn write_program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Kills a process, unless it has ended already.
pub(crate) fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
}

/// Whether a process exists and is no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
}
