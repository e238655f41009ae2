//! PostgreSQL: the same pairs over a server of our own, next to plain statements by `pgbench` on the same server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use banksman::{Client, Project};
use banksman_runtime::StoreUrl;

use crate::bench::{Bench, Result};
use crate::report::{Row, Target, Unit};
use crate::single;
use crate::stats::{self, Sample};
use crate::threads;
use crate::{clock, proc};

const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;
const THREADS: usize = 32;
const HAND_OFFS: usize = 300;

/// The environment variable that names the store to the binary.
pub(crate) const STORE_VARIABLE: &str = "BANKSMAN_STORE";

/// Time limit for starting the server.
const START: Duration = Duration::from_secs(20);

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(server) = Server::installed(bench)? else {
        let none = Row::new("PostgreSQL", Unit::PairsPerSecond, Sample::once(0.0)).beside("not installed");
        return Ok(vec![none]);
    };
    let place = bench.place("postgres")?;
    let project = Project::init_in(&place, &server.url())?;
    let engine = banksman_runtime::Project::find_at(&place, Some(StoreUrl::parse(&server.url(), |_| None)?))?.open()?;
    server.make_rows()?;
    let span = bench.span(ROUND);
    let (mut one, mut plain_one, mut many, mut plain_many) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds(ROUNDS) {
        one.push(single::rate(span, || single::pair(&engine, "one"))?);
        plain_one.push(server.plain(1, span)?);
        let (pairs, seconds) = threads::round(&engine, THREADS, span)?;
        many.push(pairs / seconds);
        plain_many.push(server.plain(THREADS, span)?);
    }
    let gaps = hand_offs(&project.open()?, &project.open()?)?;
    let (one_ratio, many_ratio) = (Sample::of(&stats::ratios(&one, &plain_one)), Sample::of(&stats::ratios(&many, &plain_many)));
    let plain = |connections: usize| format!("plain statements, {connections} connections");
    Ok(vec![
        Row::new("PostgreSQL: 1 client, acquire + release", Unit::PairsPerSecond, Sample::of(&one))
            .peer(&plain(1), Sample::of(&plain_one), one_ratio)
            .target(Target::RatioAtLeast(0.5)),
        Row::new("PostgreSQL: 32 threads of one process", Unit::PairsPerSecond, Sample::of(&many))
            .peer(&plain(THREADS), Sample::of(&plain_many), many_ratio)
            .target(Target::AtLeast(8_000.0)),
        Row::new("PostgreSQL: release to grant on another connection, p50", Unit::Milliseconds, Sample::of(&gaps))
            .target(Target::AtMost(3.0)),
    ])
}

/// Two clients that pass a lock to and fro: the time from just before a release until the other client has it, in
/// milliseconds.
fn hand_offs(here: &Client, there: &Client) -> Result<Vec<f64>> {
    let (sender, moments) = mpsc::channel();
    std::thread::scope(|scope| {
        for client in [here, there] {
            let sender = sender.clone();
            scope.spawn(move || -> Result<()> {
                for _ in 0..HAND_OFFS {
                    let held = client.lock("to-and-fro").acquire_within(START)?;
                    sender.send((clock::now(), true))?;
                    // Long enough for the other client to wait again.
                    let until = Instant::now() + Duration::from_millis(5);
                    while Instant::now() < until {
                        std::thread::yield_now();
                    }
                    sender.send((clock::now(), false))?;
                    held.release()?;
                }
                Ok(())
            });
        }
    });
    drop(sender);
    let mut moments: Vec<(u64, bool)> = moments.into_iter().collect();
    moments.sort_unstable();
    let gaps = moments.windows(2).filter(|pair| !pair[0].1 && pair[1].1).map(|pair| (pair[1].0 - pair[0].0) as f64 / 1e6);
    Ok(gaps.collect())
}

/// A server with a Unix socket and durable commits. It is killed when this value is dropped.
pub(crate) struct Server {
    child: Child,
    dir: PathBuf,
    programs: PathBuf,
}

impl Server {
    /// Starts a server, if the programs are installed.
    pub(crate) fn installed(bench: &Bench) -> Result<Option<Server>> {
        programs().map(|programs| Server::start(bench, programs)).transpose()
    }

    fn start(bench: &Bench, programs: PathBuf) -> Result<Server> {
        // The path of a Unix socket must be short.
        let dir = bench.fresh("server")?;
        let socket = tempfile::Builder::new().prefix("bm-").tempdir_in("/tmp")?.keep();
        for place in [&dir, &socket] {
            if rustix::process::getuid().is_root() {
                Command::new("chown").arg("nobody").arg(place).status()?;
            }
        }
        let data = dir.join("data");
        if rustix::process::getuid().is_root() {
            open_up(bench.dir())?;
        }
        let made =
            unprivileged(&programs.join("initdb")).args(["--auth=trust", "--username=postgres", "-D"]).arg(&data).output()?;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        let child = unprivileged(&programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&socket)
            .args(["-c", "listen_addresses=", "-c", "synchronous_commit=on", "-c", "max_connections=100"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Server { child, dir: socket, programs };
        let start = Instant::now();
        while server.pgbench(&["-i", "-I", "d"], None).is_err() {
            if start.elapsed() > START {
                return Err("the PostgreSQL server does not start".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres:///postgres?host={}&user=postgres", self.dir.display())
    }

    /// The processor time of the server and all its processes, in milliseconds.
    pub(crate) fn cpu_ms(&self) -> Result<f64> {
        let mut all = proc::spent(self.child.id())?.all_ms();
        for pid in proc::child_pids(self.child.id())? {
            // A process may have ended in the meantime; then the server has waited for it.
            all += proc::spent(pid).map_or(0.0, |spent| spent.all_ms());
        }
        Ok(all)
    }

    /// Runs statements with `psql`, which continues until its input ends.
    pub(crate) fn psql(&self) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-U", "postgres", "-h"]).arg(&self.dir).arg("postgres");
        psql
    }

    /// Creates a row for each connection. pgbench's own data would take longer than the figure.
    fn make_rows(&self) -> Result<()> {
        self.pgbench(&["-i", "-I", "t"], None)?;
        let script = self.dir.join("rows.sql");
        std::fs::write(
            &script,
            "INSERT INTO pgbench_tellers (tid, bid, tbalance) SELECT row, 1, 0 FROM generate_series(1, 64) row;\n",
        )?;
        self.pgbench(&["-n", "-t", "1"], Some(&script)).map(drop)
    }

    /// Pairs per second of two plain updates, each one durable, on this many connections.
    fn plain(&self, connections: usize, span: Duration) -> Result<f64> {
        let script = self.dir.join("pair.sql");
        std::fs::write(
            &script,
            "\\set row :client_id + 1\nUPDATE pgbench_tellers SET tbalance = 1 WHERE tid = :row;\nUPDATE pgbench_tellers SET tbalance = 0 WHERE tid = :row;\n",
        )?;
        let seconds = span.as_secs().max(1).to_string();
        let clients = connections.to_string();
        let printed = self.pgbench(&["-n", "-M", "prepared", "-T", &seconds, "-c", &clients, "-j", "2"], Some(&script))?;
        let line = printed.lines().find(|line| line.starts_with("tps = ")).ok_or("pgbench printed no rate")?;
        Ok(line.trim_start_matches("tps = ").split(' ').next().unwrap_or_default().parse()?)
    }

    fn pgbench(&self, args: &[&str], script: Option<&Path>) -> Result<String> {
        let mut pgbench = Command::new(self.programs.join("pgbench"));
        pgbench.args(["-U", "postgres", "-h"]).arg(&self.dir).args(args);
        if let Some(script) = script {
            pgbench.arg("-f").arg(script);
        }
        let done = pgbench.arg("postgres").output()?;
        if done.status.success() {
            return Ok(String::from_utf8(done.stdout)?);
        }
        Err(format!("pgbench: {}", String::from_utf8_lossy(&done.stderr)).into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server has ended already, or ends now; neither matters.
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

/// Runs a program as another user if needed: PostgreSQL refuses to run as root.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL");
    if rustix::process::getuid().is_root() {
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    }
    command.arg("--").arg(program);
    command
}

/// Lets another user traverse the bench's own directory.
fn open_up(dir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))?)
}

/// The directory of the server's programs: Debian's, or one in PATH.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|version| version.path().join("bin"));
    debian.chain(std::env::split_paths(&path)).find(|dir| dir.join("initdb").exists() && dir.join("pgbench").exists())
}
