//! A real terminal of a chosen size, with a command in it: what a person would see.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::world::{World, until};

/// A command in a terminal of its own. It is killed when the test ends.
pub(crate) struct Screen {
    child: Child,
    terminal: File,
    seen: Arc<Mutex<vt100::Parser>>,
    reader: Option<JoinHandle<()>>,
}

fn not_zero(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Screen {
    /// Starts `banksman ARGS` in a terminal with so many lines and columns.
    pub(crate) fn start<S: AsRef<OsStr>>(world: &World, args: &[S], rows: u16, columns: u16) -> Screen {
        Screen::of(world.command(args), rows, columns)
    }

    pub(crate) fn of(mut command: Command, rows: u16, columns: u16) -> Screen {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        tcsetwinsize(&controller, size(rows, columns)).unwrap();
        let side: OwnedFd = File::options().read(true).write(true).open(OsStr::new(name.to_str().unwrap())).unwrap().into();
        // `setsid -c` makes it the controlling terminal, so that Ctrl-C and a change of size arrive as signals.
        let mut inside = Command::new("setsid");
        inside.arg("-cw").arg(command.get_program()).args(command.get_args());
        inside.current_dir(command.get_current_dir().unwrap());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        command = inside;
        command.env("TERM", "xterm-256color").env("TZ", "UTC").env_remove("COLUMNS").env_remove("LINES");
        command.stdin(Stdio::from(side.try_clone().unwrap())).stdout(Stdio::from(side.try_clone().unwrap())).stderr(side);
        let child = command.spawn().unwrap();
        // The command is the only one that has its side open: reading ends when it does.
        drop(command);
        let seen = Arc::new(Mutex::new(vt100::Parser::new(not_zero(rows), not_zero(columns), 0)));
        let (mut terminal, parser) = (File::from(controller.try_clone().unwrap()), Arc::clone(&seen));
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(read @ 1..) = terminal.read(&mut buffer) {
                parser.lock().unwrap().process(&buffer[..read]);
            }
        });
        Screen { child, terminal: File::from(controller), seen, reader: Some(reader) }
    }

    /// What is on the screen, without spaces at the end of lines.
    pub(crate) fn text(&self) -> String {
        let parser = self.seen.lock().unwrap();
        let (_, columns) = parser.screen().size();
        let lines: Vec<String> = parser.screen().rows(0, columns.get()).map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// The screen with its colours, as an emulator would draw it again.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&vt100::Screen) -> R) -> R {
        look(self.seen.lock().unwrap().screen())
    }

    /// Waits until the screen shows something.
    pub(crate) fn until(&self, what: &str, shows: impl Fn(&str) -> bool) -> String {
        let last = std::cell::RefCell::new(String::new());
        let is_there = || {
            *last.borrow_mut() = self.text();
            shows(&last.borrow())
        };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| until(what, is_there)));
        assert!(caught.is_ok(), "waited in vain: {what}; the screen:\n{}", last.borrow());
        last.into_inner()
    }

    pub(crate) fn until_shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.seen.lock().unwrap().screen_mut().set_size(not_zero(rows), not_zero(columns));
        tcsetwinsize(self.terminal.as_fd(), size(rows, columns)).unwrap();
    }

    /// Waits for the end; returns how it ended and what is on the screen.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        (status, self.text())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A screen as a picture for the documentation.
pub(crate) fn picture(screen: &vt100::Screen) -> String {
    const WIDE: u32 = 8;
    const HIGH: u32 = 17;
    let (rows, columns) = screen.size();
    let (width, height) = (u32::from(columns.get()) * WIDE + 24, u32::from(rows.get()) * HIGH + 24);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace, monospace\" font-size=\"13\">\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for row in 0..rows.get() {
        for column in 0..columns.get() {
            let Some(cell) = screen.cell(row, column).filter(|cell| !cell.contents().trim().is_empty()) else { continue };
            let colour = match (cell.fgcolor(), cell.dim()) {
                (vt100::Color::Idx(1 | 9), _) => "#ff7b72",
                (vt100::Color::Idx(2), _) => "#3fb950",
                (vt100::Color::Idx(3), _) => "#d29922",
                (vt100::Color::Idx(6), _) => "#39c5cf",
                (_, true) => "#8b949e",
                _ => "#e6edf3",
            };
            let weight = if cell.bold() { " font-weight=\"bold\"" } else { "" };
            let (x, y) = (12 + u32::from(column) * WIDE, 12 + (u32::from(row) + 1) * HIGH - 4);
            let text = cell.contents().replace('&', "&amp;").replace('<', "&lt;");
            svg.push_str(&format!("<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\"{weight}>{text}</text>\n"));
        }
    }
    svg + "</svg>\n"
}

/// What `banksman ARGS` leaves on a screen of so many columns.
pub(crate) fn shown<S: AsRef<OsStr>>(world: &World, args: &[S], columns: u16) -> String {
    Screen::start(world, args, 60, columns).end().1
}
