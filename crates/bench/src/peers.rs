//! Other servers that make every change durable, if they are installed: redis and etcd.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::{Bench, Result};
use crate::clock;
use crate::report::{Row, Unit};
use crate::stats::Sample;

const CONNECTIONS: usize = 50;
const ROUND: Duration = Duration::from_secs(2);

/// How long a server may take to start.
const START: Duration = Duration::from_secs(10);

/// The result of a peer: pairs per second, or why there are none.
pub(crate) enum Peer {
    Rate(f64),
    Missing,
}

/// A server process that is killed when this value is dropped.
pub(crate) struct Server(Child);

impl Peer {
    /// The row that compares our rate with this one.
    pub(crate) fn row(&self, name: &str, ours: Sample) -> Row {
        let row = Row::new("64 threads, beside a peer", Unit::PairsPerSecond, ours);
        match self {
            Peer::Rate(rate) => row.peer(name, Sample::once(*rate), Sample::once(ours.median / rate)),
            Peer::Missing => row.beside(format!("{name}: not installed")),
        }
    }
}

/// A pair is SET NX and DEL: two logged commands. The benchmark of redis is fastest with one kind of command, so half
/// of its SETs count.
pub(crate) fn redis(bench: &Bench) -> Result<Peer> {
    if !installed("redis-server") || !installed("redis-benchmark") {
        return Ok(Peer::Missing);
    }
    let dir = bench.place("redis")?;
    // A relative name, because a socket's path is limited to 108 bytes.
    let socket = "redis.sock";
    let options = ["--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "yes", "--appendfsync", "always"];
    let server = Server::start(&dir, "redis-server", options)?;
    server.wait_until(|| dir.join(socket).exists())?;
    let count = (bench.span(ROUND).as_millis() * 20).to_string();
    let args = ["-s", socket, "-c", &CONNECTIONS.to_string(), "-n", &count, "-r", "64", "--csv", "SET", "lock:__rand_int__", "h"];
    let output = Command::new("redis-benchmark").current_dir(&dir).args(args).output()?;
    let text = String::from_utf8(output.stdout)?;
    let fields = text.lines().last().map(|line| line.split("\",\"").collect::<Vec<_>>());
    let sets = fields.and_then(|fields| fields.get(1)?.parse::<f64>().ok());
    Ok(Peer::Rate(sets.ok_or_else(|| format!("redis-benchmark said {text:?}"))? / 2.0))
}

/// A pair is a put and a delete, through the JSON gateway, which costs etcd some processor time but no durability.
pub(crate) fn etcd(bench: &Bench) -> Result<Peer> {
    if !installed("etcd") {
        return Ok(Peer::Missing);
    }
    let dir = bench.place("etcd")?;
    let (clients, members) = (free_address()?, free_address()?);
    let (clients_url, members_url) = (format!("http://{clients}"), format!("http://{members}"));
    let options = [
        ["--data-dir", "data"],
        ["--listen-client-urls", &clients_url],
        ["--advertise-client-urls", &clients_url],
        ["--listen-peer-urls", &members_url],
        ["--initial-advertise-peer-urls", &members_url],
        ["--initial-cluster", &format!("default={members_url}")],
    ];
    let server = Server::start(&dir, "etcd", options.concat())?;
    server.wait_until(|| etcd_pairs(clients, 0, clock::now() + 1).is_ok())?;
    let end = clock::now() + clock::nanos(bench.span(ROUND));
    let began = Instant::now();
    let pairs = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|number| scope.spawn(move || etcd_pairs(clients, number, end))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).sum::<Result<f64>>()
    })?;
    Ok(Peer::Rate(pairs / began.elapsed().as_secs_f64()))
}

/// Pairs over one connection, at least one.
fn etcd_pairs(server: SocketAddr, number: usize, end: u64) -> Result<f64> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(START))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    // Keys are sent as base64, and any four digits decode to three bytes.
    let key = format!("{number:04}");
    let put = post(server, "/v3/kv/put", &format!(r#"{{"key":"{key}","value":"{key}"}}"#));
    let delete = post(server, "/v3/kv/deleterange", &format!(r#"{{"key":"{key}"}}"#));
    let mut pairs = 0.0;
    loop {
        for request in [&put, &delete] {
            stream.write_all(request.as_bytes())?;
            read_answer(&mut answers)?;
        }
        pairs += 1.0;
        if clock::now() >= end {
            return Ok(pairs);
        }
    }
}

fn post(server: SocketAddr, path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: {server}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn read_answer(answers: &mut impl BufRead) -> Result<()> {
    let mut status = String::new();
    answers.read_line(&mut status)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        answers.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    answers.read_exact(&mut body)?;
    if status.contains(" 200 ") { Ok(()) } else { Err(format!("etcd said {status:?}").into()) }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

impl Server {
    pub(crate) fn start<A: AsRef<OsStr>>(dir: &Path, program: &str, args: impl IntoIterator<Item = A>) -> Result<Server> {
        let mut command = Command::new(program);
        command.current_dir(dir).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Server(command.spawn()?))
    }

    fn wait_until(&self, ready: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + START;
        while !ready() {
            if Instant::now() >= deadline {
                return Err(format!("process {} did not get ready", self.0.id()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The data is not kept, so a kill loses nothing.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
