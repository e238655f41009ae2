//! A temporary PostgreSQL server for the tests: the one of `scripts/with-postgres`, or one per process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::world::{DEADLINE, is_alive};

/// Whether the tests are to run on PostgreSQL.
pub(crate) fn wanted() -> bool {
    match std::env::var("BANKSMAN_TEST_STORE").as_deref() {
        Err(_) | Ok("sqlite") => false,
        Ok("postgres") => true,
        Ok(other) => panic!("BANKSMAN_TEST_STORE must be sqlite or postgres, not {other:?}"),
    }
}

/// The number itself, or a quarter of it on PostgreSQL: the server shares the machine with the test.
pub(crate) fn sized(number: usize) -> usize {
    if wanted() { number.div_ceil(4) } else { number }
}

/// This many seeds; on PostgreSQL a quarter as many, and different ones.
pub(crate) fn seeds(number: u64) -> std::ops::Range<u64> {
    if wanted() { number..number + number.div_ceil(4) } else { 0..number }
}

/// Creates a database for one test. Returns its URL.
pub(crate) fn fresh_database() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Process ids are reused while the server still has the databases of the earlier process.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let name = format!("test_{}_{}_{now}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    SERVER.sql("postgres", &format!("CREATE DATABASE {name}"));
    SERVER.url(&name)
}

/// The URL of the database that most tests share, each with a project of its own.
pub(crate) fn shared_database() -> String {
    const NAME: &str = "shared";
    let there = || SERVER.sql("postgres", &format!("SELECT 1 FROM pg_database WHERE datname = '{NAME}'"));
    // Another test may create it at the same moment.
    while there().is_empty() {
        SERVER.try_sql("postgres", &format!("CREATE DATABASE {NAME}"));
    }
    SERVER.url(NAME)
}

/// The server that all tests share.
static SERVER: LazyLock<Server> = LazyLock::new(|| match std::env::var_os("BANKSMAN_TEST_POSTGRES") {
    Some(dir) => Server { dir: dir.into(), pid: 0, settings: Vec::new() },
    None => Server::start(),
});

pub(crate) struct Server {
    dir: PathBuf,
    pub(crate) pid: i32,
    settings: Vec<String>,
}

impl Server {
    /// Starts a separate server, reachable through a Unix socket only.
    pub(crate) fn start() -> Server {
        Server::start_with(|_| Vec::new())
    }

    /// Starts a server with more settings, which may refer to files in its directory.
    pub(crate) fn start_with(settings: impl FnOnce(&Path) -> Vec<String>) -> Server {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let base = Path::new("/tmp").join("banksman-test-postgres");
        std::fs::create_dir_all(&base).unwrap();
        sweep(&base);
        let dir = base.join(format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir_all(&dir).unwrap();
        if rustix::process::getuid().is_root() {
            // PostgreSQL refuses to run as root.
            assert!(Command::new("chown").arg("nobody").arg(&dir).status().unwrap().success());
        }
        let data = dir.join("data");
        let init = unprivileged("initdb")
            .args(["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8"])
            .arg("-D")
            .arg(&data)
            .output()
            .unwrap();
        assert!(init.status.success(), "{init:?}");
        let settings = settings(&dir);
        if rustix::process::getuid().is_root() {
            assert!(Command::new("chown").arg("-R").arg("nobody").arg(&dir).status().unwrap().success());
        }
        let mut server = Server { pid: 0, dir, settings };
        server.restart();
        server
    }

    /// Starts the server, or starts it again after it has ended.
    ///
    /// The children of a killed server live for a moment, and PostgreSQL refuses to start while one of them does: so the start is
    /// repeated until it succeeds, as a service manager would do.
    pub(crate) fn restart(&mut self) {
        let start = Instant::now();
        self.pid = launch(&self.dir, self.settings.clone());
        while !self.try_sql("postgres", "SELECT 1") {
            assert!(start.elapsed() < DEADLINE, "the server does not start: {}", self.log());
            if !is_alive(self.pid) {
                self.pid = launch(&self.dir, self.settings.clone());
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// The log of the server.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(log_of(&self.dir)).unwrap_or_default()
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user=postgres", self.dir.display())
    }

    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let done = self.psql(database, sql);
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    fn try_sql(&self, database: &str, sql: &str) -> bool {
        self.psql(database, sql).status.success()
    }

    fn psql(&self, database: &str, sql: &str) -> std::process::Output {
        let port = self.settings.iter().find_map(|setting| setting.strip_prefix("port=")).unwrap_or("5432");
        let mut psql = Command::new(program("psql"));
        psql.args(["-X", "-q", "-t", "-A", "-U", "postgres", "-p", port, "-h"]).arg(&self.dir).args(["-d", database, "-c", sql]);
        psql.output().unwrap()
    }

    /// Terminates every connection except its own.
    pub(crate) fn terminate_connections(&self) {
        self.sql("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'");
    }
}

/// Starts the server from a thread that never ends, because the kernel kills the server when that thread ends.
fn launch(dir: &Path, settings: Vec<String>) -> i32 {
    let (data, socket) = (dir.join("data"), dir.to_owned());
    let log = std::fs::File::options().create(true).append(true).open(log_of(dir)).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut server = unprivileged("postgres");
        server.arg("-D").arg(data).arg("-k").arg(socket).args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "max_connections=200",
        ]);
        settings.iter().for_each(|setting| {
            server.args(["-c", setting]);
        });
        let mut child = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        sender.send(i32::try_from(child.id()).unwrap()).unwrap();
        child.wait().unwrap();
        std::thread::park();
    });
    receiver.recv().unwrap()
}

fn log_of(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// A program of PostgreSQL, run as an unprivileged user, that dies with the thread that started it.
fn unprivileged(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL");
    if rustix::process::getuid().is_root() {
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    }
    command.arg("--").arg(program(name));
    command
}

/// Finds a program in `PATH`, or where Debian and other distributions install it.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        places.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    let found = places.into_iter().map(|place| place.join(name)).find(|place| place.exists());
    found.unwrap_or_else(|| panic!("PostgreSQL's {name} is needed: run `make setup`"))
}

/// Removes the directories of processes that are dead.
fn sweep(base: &Path) {
    for entry in std::fs::read_dir(base).unwrap().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.split('-').next()?.parse::<i32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}
