//! A directory for sessions, and helpers for them.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use banksman_adapters::keeper::{self, Found, Notice, Record, Session, SessionEnd, Spec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::Timespec;

/// The longest time that a test waits for any event.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_banksman-keeper-test");

pub(crate) struct World(tempfile::TempDir);

/// A session, with its unread notices.
pub(crate) struct Talk {
    pub(crate) session: Session,
    notices: VecDeque<Notice>,
}

impl World {
    pub(crate) fn new() -> World {
        let world = World(tempfile::Builder::new().prefix("banksman-keeper-").tempdir().unwrap());
        fs::create_dir(world.path("runs")).unwrap();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.path("runs/r-1")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("logs/r-1")).unwrap_or_default()
    }

    /// A session of a shell script, which runs in the directory of this world.
    pub(crate) fn spec(&self, script: &str) -> Spec {
        Spec {
            run: format!("r-{}", self.0.path().display()),
            owner_epoch: 5,
            record: self.record(),
            log: self.path("logs/r-1"),
            log_limit: 1 << 20,
            banner: None,
            sockets: self.path("sockets"),
            argv: ["sh", "-c", script].map(Into::into).to_vec(),
            cwd: self.0.path().into(),
            make_dirs: Vec::new(),
            spare_dirs: Vec::new(),
            env: Vec::new(),
            env_remove: Vec::new(),
            stdin: None,
            grace_ms: 10_000,
            limit: None,
            input: None,
            own_workspace: None,
            agent: None,
        }
    }

    pub(crate) fn start(&self, script: &str) -> Talk {
        start(&self.spec(script))
    }

    pub(crate) fn adopt(&self, epoch: i64) -> Talk {
        Talk::new(keeper::adopt(&self.record(), epoch).unwrap())
    }

    pub(crate) fn find(&self) -> Found {
        keeper::read_record(&self.record()).unwrap()
    }

    /// The record of a live session.
    pub(crate) fn live(&self) -> Record {
        match self.find() {
            Found::Live(record) => record,
            other => panic!("not live: {other:?}"),
        }
    }

    /// Waits until a script has written `count` pids into the file `pids`, and returns them.
    pub(crate) fn pids(&self, count: usize) -> Vec<i32> {
        until("all pids are written", || {
            let text = fs::read_to_string(self.path("pids")).ok()?;
            let pids = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.parse().ok());
            Some(pids.collect::<Vec<i32>>()).filter(|pids| pids.len() == count)
        })
    }

    pub(crate) fn wait_for(&self, file: &str) {
        until(file, || self.path(file).exists().then_some(()));
    }

    /// The names of the entries of a directory.
    pub(crate) fn list(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(dir)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Leave no session behind, and no process that writes into the directory while it is removed.
        for name in self.list("runs") {
            let record = self.path("runs").join(name);
            if let Ok(mut session) = keeper::adopt(&record, i64::MAX) {
                session.kill(Duration::ZERO);
                until("the session is over", || (!matches!(keeper::read_record(&record), Ok(Found::Live(_)))).then_some(()));
            }
        }
    }
}

pub(crate) fn start(spec: &Spec) -> Talk {
    Talk::new(keeper::start_from(Path::new(PROGRAM), spec).unwrap())
}

impl Talk {
    pub(crate) fn new(session: Session) -> Talk {
        Talk { session, notices: VecDeque::new() }
    }

    /// The pid of the keeper, or `None` if it is gone instead.
    pub(crate) fn begun(&mut self) -> Option<i32> {
        match self.next() {
            Notice::Started { keeper_pid, .. } => Some(keeper_pid),
            Notice::Gone => None,
            other => panic!("neither started nor gone: {other:?}"),
        }
    }

    pub(crate) fn next(&mut self) -> Notice {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return notice;
            }
            assert!(Instant::now() < deadline, "no notice came");
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            poll(&mut [PollFd::new(&self.session, PollFlags::IN)], Some(&second)).unwrap();
            self.notices.extend(self.session.notices());
        }
    }

    /// The pids of keeper and child.
    pub(crate) fn started(&mut self) -> (i32, i32) {
        match self.next() {
            Notice::Started { keeper_pid, child_pid } => (keeper_pid, child_pid),
            other => panic!("not started: {other:?}"),
        }
    }

    /// The ending, after the start.
    pub(crate) fn ended(&mut self) -> SessionEnd {
        match self.next() {
            Notice::Started { .. } | Notice::Answered => self.ended(),
            Notice::Ended(ending) => ending,
            other => panic!("not ended: {other:?}"),
        }
    }

    /// Acknowledges the ending, waits until the keeper is gone, and returns the ending.
    pub(crate) fn settled(&mut self) -> SessionEnd {
        let ending = self.ended();
        self.session.acknowledge();
        assert_eq!(self.next(), Notice::Gone);
        ending
    }
}

/// Polls until there is a result.
pub(crate) fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process lives. A zombie counts as dead.
pub(crate) fn alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}
