//! `sessions attach` in a real terminal: watchers, a typist, detaching, and a runner that is killed meanwhile.

use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::world::{DEADLINE, World, until};

/// A command in its own terminal.
struct Terminal {
    ours: OwnedFd,
    child: Child,
    seen: Vec<u8>,
}

impl Terminal {
    fn start(world: &World, args: &[&str], (rows, columns): (u16, u16)) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        tcsetwinsize(&ours, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        fcntl_setfl(&ours, OFlags::RDWR | OFlags::NONBLOCK).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let child = world.command(args).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Terminal { ours, child, seen: Vec::new() }
    }

    fn screen(&mut self) -> String {
        let mut bytes = [0; 4096];
        while let Ok(read) = rustix::io::read(&self.ours, &mut bytes) {
            if read == 0 {
                break;
            }
            self.seen.extend_from_slice(&bytes[..read]);
        }
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    fn until_seen(&mut self, text: &str) {
        let start = Instant::now();
        while !self.screen().contains(text) {
            assert!(start.elapsed() < DEADLINE, "{text:?} is not in {:?}", self.screen());
            std::thread::park_timeout(std::time::Duration::from_millis(2));
        }
    }

    /// Resizes the window. It is no process's controlling terminal, so the signal is sent from here.
    fn resize(&self, rows: u16, columns: u16) {
        tcsetwinsize(&self.ours, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        kill_process(Pid::from_child(&self.child), Signal::WINCH).unwrap();
    }

    fn type_in(&self, keys: &[u8]) {
        assert_eq!(rustix::io::write(&self.ours, keys).unwrap(), keys.len());
    }

    /// Waits for the end. Returns the exit code and all output.
    fn end(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        let code = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status.code(),
                None => assert!(start.elapsed() < DEADLINE, "it does not end: {:?}", self.screen()),
            }
            std::thread::park_timeout(std::time::Duration::from_millis(2));
        };
        (code, self.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn run_of(world: &World) -> String {
    let sessions = || world.data(&["sessions", "list"])["sessions"].clone();
    until("a session lives", || sessions()[0]["childPid"].is_number());
    sessions()[0]["run"].as_str().unwrap().to_owned()
}

#[test]
fn clients_attach_type_watch_and_detach() {
    let world = World::new();
    let script = r#"echo "begun on $(tty)"; while read -r line; do case "$line" in end) exit 0 ;; size) stty size ;; *) echo "got $line" ;; esac; done"#;
    world.ok(&["tasks", "add", "Shell", "--run", script, "--pty"]);
    let runner = world.start(&["run", "--until-idle"]);
    let run = run_of(&world);
    let mut typist = Terminal::start(&world, &["sessions", "attach", &run], (33, 111));
    typist.until_seen("Ctrl-] detaches");
    typist.until_seen("begun on /dev/pts/");
    // The session has the window size of the typist.
    typist.type_in(b"size\r");
    typist.until_seen("33 111");
    typist.resize(40, 100);
    until("the session has the new size", || {
        typist.type_in(b"size\r");
        typist.screen().contains("40 100")
    });
    // A message does not interrupt the input of a typist.
    world.assert_refused(&["send", "Shell", "x"], 6, "SESSION_BUSY");
    assert_eq!(world.data(&["send", "Shell", "x", "--mode", "follow-up"])["receipt"], "queued");
    let mut watcher = Terminal::start(&world, &["sessions", "attach", &run], (20, 60));
    watcher.until_seen("another client types");
    typist.type_in(b"one\r");
    typist.until_seen("got one");
    watcher.until_seen("got one");
    watcher.type_in(b"not seen\r");
    // The death of the runner does not affect attached clients.
    runner.signal(Signal::KILL);
    typist.type_in(b"two\r");
    watcher.until_seen("got two");
    // Another client takes over the input, and the first one becomes a watcher.
    let mut taker = Terminal::start(&world, &["sessions", "attach", &run, "--take"], (25, 90));
    taker.until_seen("attached to");
    taker.type_in(b"size\r");
    taker.until_seen("25 90");
    typist.type_in(b"not me\r");
    taker.type_in(b"three\r");
    typist.until_seen("got three");
    typist.type_in(b"\x1d");
    let (code, seen) = typist.end();
    assert_eq!(code, Some(0));
    assert!(seen.contains("detached; the session continues"), "{seen:?}");
    assert!(!seen.contains("got not me") && !seen.contains("got not seen"), "{seen:?}");
    // The session ends, all clients are notified, and the next runner records it.
    taker.type_in(b"end\r");
    for terminal in [taker, watcher] {
        let (code, seen) = terminal.end();
        assert_eq!(code, Some(0), "{seen:?}");
        assert!(seen.contains("the session has ended"), "{seen:?}");
    }
    assert_eq!(world.run(&["run", "--until-idle"]).code, 0);
    assert_eq!(world.data(&["tasks", "show", "Shell"])["status"], "completed");
}

#[test]
fn a_session_without_a_terminal_cannot_be_attached_to() {
    let world = World::new();
    world.ok(&["tasks", "add", "Plain", "--run", "sleep 60"]);
    let _runner = world.start(&["run", "--until-idle"]);
    let run = run_of(&world);
    world.assert_refused(&["sessions", "attach", &run], 2, "SESSION_NO_INPUT");
    assert_eq!(world.data(&["sessions", "nudge", &run])["run"], run);
    until("it was nudged", || world.ok(&["sessions", "logs", &run]).contains("nudged"));
    let (code, error) = world.error(&["sessions", "attach", "r-none"]);
    assert_eq!((code, error["code"].is_string()), (4, true));
}
