//! `banksman top` in a terminal: the time until its first screen, and its cost while the state changes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use banksman_runtime::Project;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::bench::{Bench, Result};
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::{clock, proc, program, tasks};

const TASKS: usize = 1_000;
const MANY: usize = 100_000;
const STARTS: usize = 15;
const SPAN: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(10);

/// A text in the first line of the screen.
const SHOWN: &[u8] = b"slots";

/// `top` in its own terminal. It is asked to leave when this value is dropped.
struct Screen {
    child: Child,
    /// The time of its first screen.
    shown: Receiver<u64>,
}

impl Screen {
    fn start(project: &Project) -> Result<Screen> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let name = ptsname(&controller, Vec::new())?;
        tcsetwinsize(&controller, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 })?;
        let side: OwnedFd = File::options().read(true).write(true).open(OsStr::new(name.to_str()?))?.into();
        let mut command = Command::new(program::path()?);
        command.arg("top").current_dir(project.root()).env("TERM", "xterm-256color");
        command.stdin(Stdio::from(side.try_clone()?)).stdout(Stdio::from(side.try_clone()?)).stderr(side);
        let child = command.spawn()?;
        drop(command);
        let (sender, shown) = channel();
        let mut terminal = File::from(controller);
        std::thread::spawn(move || {
            let (mut buffer, mut seen, mut is_shown) = ([0; 65_536], Vec::new(), false);
            while let Ok(read @ 1..) = terminal.read(&mut buffer) {
                if !is_shown {
                    seen.extend_from_slice(&buffer[..read]);
                    is_shown = seen.windows(SHOWN.len()).any(|part| part == SHOWN);
                    // The receiver may be gone.
                    if is_shown {
                        sender.send(clock::now()).ok();
                    }
                }
            }
        });
        Ok(Screen { child, shown })
    }

    fn until_shown(&self) -> Result<u64> {
        Ok(self.shown.recv_timeout(TIMEOUT).map_err(|_| "top showed nothing within 10 s")?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        program::ask_to_leave(self.child.id());
        program::await_end(&mut self.child);
    }
}

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (count, words) in [(TASKS, "1,000"), (MANY, "100,000")] {
        let project = tasks::project(bench, &format!("screen-{count}"), 2)?;
        tasks::fill(&project, tasks::half_waiting(count)?)?;
        let mut firsts = Vec::new();
        for _ in 0..STARTS {
            let start = clock::now();
            firsts.push((Screen::start(&project)?.until_shown()? - start) as f64 / 1e6);
        }
        rows.push(
            Row::new(
                format!("`top`, {words} tasks, start to first screen: p50"),
                Unit::Milliseconds,
                Sample::once(stats::percentile(&firsts, 0.5)),
            )
            .target(Target::AtMost(50.0)),
        );
        let client = Bench::library(&project)?;
        let screen = Screen::start(&project)?;
        screen.until_shown()?;
        let (span, pid) = (bench.span(SPAN), screen.child.id());
        let (before, begin) = (proc::used(pid)?.0, Instant::now());
        let mut changes = 0;
        while begin.elapsed() < span {
            // Two changes: acquire and release.
            client.lock("changing").try_acquire()?.release()?;
            changes += 2;
            std::thread::sleep(2 * PAUSE);
        }
        let took = begin.elapsed();
        let share = (proc::used(pid)?.0 - before) as f64 / took.as_nanos() as f64 * 100.0;
        drop(screen);
        rows.push(
            Row::new(format!("`top`, {words} tasks, 10 changes per second: CPU"), Unit::Percent, Sample::once(share))
                .beside(format!("{changes} changes in {:.0} s", took.as_secs_f64()))
                .target(Target::AtMost(3.0)),
        );
    }
    Ok(rows)
}
