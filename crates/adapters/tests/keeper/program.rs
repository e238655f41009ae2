//! The keeper for the tests, a runner that tests kill, and a benchmark.
//!
//! ```text
//! banksman-keeper-test hold SPEC                   starts a session and waits for its end
//! banksman-keeper-test end SCRIPT                  runs a script, then ends all processes that it has left behind
//! banksman-keeper-test supervise MS SCRIPT [WANT]  runs a script under a supervisor and prints the result; with WANT, only while its
//!                                                  standard input is open
//! banksman-keeper-test bench N PARALLEL DIR        runs `sh -c true` N times and prints sessions per second
//! ```

use std::error::Error;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{fs, io};

use banksman_adapters::keeper::{self, Notice, Session, Spec};
use banksman_adapters::{command_supervisor, reentry, tree};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{getpid, set_child_subreaper};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = reentry::enter(&args) {
        return Ok(code);
    }
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    match words[..] {
        [_, "hold", spec] => hold(Path::new(spec))?,
        [_, "end", script] => end(script)?,
        [_, "supervise", limit, script] => supervise(limit.parse()?, script, None)?,
        [_, "supervise", limit, script, _] => supervise(limit.parse()?, script, Some(io::stdin().as_fd()))?,
        [_, "bench", sessions, parallel, dir] => bench(sessions.parse()?, parallel.parse()?, Path::new(dir))?,
        _ => return Ok(ExitCode::FAILURE),
    }
    Ok(ExitCode::SUCCESS)
}

fn hold(spec: &Path) -> Result<(), Box<dyn Error>> {
    let mut session = keeper::start(&serde_json::from_slice(&fs::read(spec)?)?)?;
    while !session.notices().contains(&Notice::Gone) {
        poll(&mut [PollFd::new(&session, PollFlags::IN)], None)?;
    }
    Ok(())
}

fn end(script: &str) -> Result<(), Box<dyn Error>> {
    set_child_subreaper(Some(getpid()))?;
    Command::new("sh").args(["-c", script]).status()?;
    tree::end_descendants(Duration::from_secs(10));
    Ok(())
}

fn supervise(limit: u64, script: &str, stop: Option<BorrowedFd<'_>>) -> Result<(), Box<dyn Error>> {
    let task = command_supervisor::Task {
        argv: script.split_whitespace().next().map_or_else(Vec::new, |program| match program {
            "/nowhere" => vec![program.into()],
            _ => vec!["sh".into(), "-c".into(), script.into()],
        }),
        directory: Path::new("."),
        env: vec![("GREETING".into(), "hello".into())],
        env_remove: &[],
        limit: Duration::from_millis(limit),
        stop,
        keep: 10,
    };
    let report = command_supervisor::run(task)?;
    let (stdout, stderr) = (String::from_utf8(report.stdout.bytes)?, report.stderr.last_line());
    #[expect(clippy::print_stdout, reason = "this is its purpose")]
    {
        print!("{:?} {stdout:?} {} {stderr:?}", report.end, report.stdout.is_cut);
    }
    Ok(())
}

fn bench(sessions: usize, parallel: usize, dir: &Path) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let mut live: Vec<Session> = Vec::new();
    let (mut started, mut ended) = (0, 0);
    while ended < sessions {
        while live.len() < parallel && started < sessions {
            started += 1;
            live.push(keeper::start(&spec(dir, started))?);
        }
        let mut fds: Vec<PollFd<'_>> = live.iter().map(|session| PollFd::new(session, PollFlags::IN)).collect();
        poll(&mut fds, None)?;
        live.retain_mut(|session| {
            let notices = session.notices();
            if notices.iter().any(|notice| matches!(notice, Notice::Ended(ending) if ending.code == Some(0))) {
                ended += 1;
                session.acknowledge();
            }
            !notices.contains(&Notice::Gone)
        });
    }
    let rate = f64::from(u32::try_from(sessions)?) / begin.elapsed().as_secs_f64();
    #[expect(clippy::print_stdout, reason = "this is its purpose")]
    {
        println!("{rate:.0} sessions/s, {parallel} at a time");
    }
    Ok(())
}

fn spec(dir: &Path, n: usize) -> Spec {
    Spec {
        run: format!("r-{n}"),
        owner_epoch: 1,
        record: dir.join(format!("runs/{n}")),
        log: dir.join(format!("logs/{n}")),
        log_limit: 1 << 20,
        banner: None,
        sockets: dir.join("sockets"),
        argv: ["sh", "-c", "true"].map(Into::into).to_vec(),
        cwd: dir.into(),
        make_dirs: Vec::new(),
        spare_dirs: Vec::new(),
        env: Vec::new(),
        env_remove: Vec::new(),
        stdin: None,
        grace_ms: 1_000,
        limit: None,
        input: None,
        own_workspace: None,
        agent: None,
    }
}
