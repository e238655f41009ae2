//! A real terminal of a given size with a command in it, and its screen as a person would see it.

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

/// A command in its own terminal. It is killed when the test ends.
pub(crate) struct Screen {
    child: Child,
    terminal: File,
    seen: Arc<Mutex<vt100::Parser>>,
    reader: Option<JoinHandle<()>>,
}

/// Draws joined emoji as one, as wide as the first: current terminals do so, whereas the emulator draws each.
#[derive(Default)]
struct Joiner {
    /// The number of bytes of a joiner that were read.
    seen: usize,
    /// Whether the next character is joined to the one before, and how many of its bytes are left.
    is_joined: bool,
    left: usize,
}

impl Joiner {
    const BYTES: [u8; 3] = [0xe2, 0x80, 0x8d];

    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for byte in bytes.iter().copied() {
            if self.left > 0 {
                self.left -= 1;
            } else if self.is_joined {
                self.is_joined = false;
                self.left = match byte {
                    0xf0.. => 3,
                    0xe0.. => 2,
                    0xc0.. => 1,
                    _ => 0,
                };
            } else if byte == Joiner::BYTES[self.seen] {
                self.seen = (self.seen + 1) % Joiner::BYTES.len();
                self.is_joined = self.seen == 0;
            } else {
                out.extend_from_slice(&Joiner::BYTES[..self.seen]);
                self.seen = usize::from(byte == Joiner::BYTES[0]);
                if self.seen == 0 {
                    out.push(byte);
                }
            }
        }
        out
    }
}

fn not_zero(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Screen {
    /// Starts `banksman ARGS` in a terminal of this size.
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
        // `setsid -c` makes it the controlling terminal, so that Ctrl-C and resizes arrive as signals.
        let mut inside = Command::new("setsid");
        inside.arg("-cw").arg(command.get_program()).args(command.get_args());
        inside.current_dir(command.get_current_dir().unwrap());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        if command.get_envs().all(|(name, _)| name != "TZ") {
            inside.env("TZ", "UTC");
        }
        command = inside;
        command.env("TERM", "xterm-256color").env_remove("COLUMNS").env_remove("LINES");
        command.stdin(Stdio::from(side.try_clone().unwrap())).stdout(Stdio::from(side.try_clone().unwrap())).stderr(side);
        let child = command.spawn().unwrap();
        // Only the command has the other side open, so the reader ends when the command does.
        drop(command);
        let seen = Arc::new(Mutex::new(vt100::Parser::new(not_zero(rows), not_zero(columns), 0)));
        let (mut terminal, parser) = (File::from(controller.try_clone().unwrap()), Arc::clone(&seen));
        let reader = std::thread::spawn(move || {
            let (mut buffer, mut joiner) = ([0; 4_096], Joiner::default());
            while let Ok(read @ 1..) = terminal.read(&mut buffer) {
                parser.lock().unwrap().process(&joiner.pass(&buffer[..read]));
            }
        });
        Screen { child, terminal: File::from(controller), seen, reader: Some(reader) }
    }

    /// The text on the screen, without spaces at the end of lines.
    pub(crate) fn text(&self) -> String {
        let parser = self.seen.lock().unwrap();
        let (_, columns) = parser.screen().size();
        let lines: Vec<String> = parser.screen().rows(0, columns.get()).map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// Passes the screen with its colours to `look`.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&vt100::Screen) -> R) -> R {
        look(self.seen.lock().unwrap().screen())
    }

    /// Waits until the text on the screen fulfils a condition. Returns the text.
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

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status
    }

    /// Waits for the end. Returns the exit status and the text on the screen.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        (self.wait(), self.text())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// An SVG picture of a screen for the documentation, without empty lines at the end.
pub(crate) fn picture(screen: &vt100::Screen) -> String {
    const WIDE: u32 = 8;
    const HIGH: u32 = 17;
    let (rows, columns) = screen.size();
    let is_empty = |row: u16| (0..columns.get()).all(|column| text_of(screen, row, column).is_none());
    let rows = (0..rows.get()).rev().find(|row| !is_empty(*row)).map_or(1, |last| last + 1);
    let (width, height) = (u32::from(columns.get()) * WIDE + 24, u32::from(rows) * HIGH + 24);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace, monospace\" font-size=\"13\" xml:space=\"preserve\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for row in 0..rows {
        // Adjacent cells of one style are one element; each element is placed at its column, whatever the font.
        let mut parts: Vec<(u16, String, String)> = Vec::new();
        let mut next = 0;
        for column in 0..columns.get() {
            let Some((text, style)) = text_of(screen, row, column) else { continue };
            match parts.last_mut() {
                Some((_, last, known)) if next == column && *known == style && text.is_ascii() && last.is_ascii() => {
                    last.push_str(&text)
                }
                _ => parts.push((column, text.clone(), style)),
            }
            next = column + 1;
        }
        for (column, text, style) in parts {
            let (x, y) = (12 + u32::from(column) * WIDE, 12 + (u32::from(row) + 1) * HIGH - 4);
            let length = u32::try_from(text.len()).unwrap() * WIDE;
            let length = if text.is_ascii() { format!(" textLength=\"{length}\"") } else { String::new() };
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            svg.push_str(&format!("<text x=\"{x}\" y=\"{y}\"{length} {style}>{text}</text>\n"));
        }
    }
    svg + "</svg>\n"
}

/// The contents and the style of a cell.
fn text_of(screen: &vt100::Screen, row: u16, column: u16) -> Option<(String, String)> {
    let cell = screen.cell(row, column).filter(|cell| !cell.contents().trim().is_empty())?;
    let colour = match (cell.fgcolor(), cell.dim()) {
        (vt100::Color::Idx(1 | 9), _) => "#ff7b72",
        (vt100::Color::Idx(2), _) => "#3fb950",
        (vt100::Color::Idx(3), _) => "#d29922",
        (vt100::Color::Idx(6), _) => "#39c5cf",
        (_, true) => "#8b949e",
        _ => "#e6edf3",
    };
    let weight = if cell.bold() { " font-weight=\"bold\"" } else { "" };
    Some((cell.contents().to_owned(), format!("fill=\"{colour}\"{weight}")))
}
