//! The terminal of `top`: raw mode, and a backend that writes escape sequences.

use std::io::{self, Stdout, Write};
use std::sync::{Mutex, PoisonError};

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Switch to the alternate screen and hide the cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// The terminal settings to restore, while raw mode is on: a panic restores them, too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Raw mode with the alternate screen. Dropping it, or a panic, restores the terminal.
pub(super) struct RawScreen(());

impl RawScreen {
    pub(super) fn enter() -> io::Result<RawScreen> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
        make_raw()?;
        Ok(RawScreen(()))
    }

    /// Runs a function with the terminal restored.
    pub(super) fn with_terminal_restored<R>(&self, what: impl FnOnce() -> R) -> io::Result<R> {
        restore();
        let result = what();
        make_raw().map(|()| result)
    }
}

impl Drop for RawScreen {
    fn drop(&mut self) {
        restore();
    }
}

fn make_raw() -> io::Result<()> {
    let before = tcgetattr(io::stdin())?;
    let mut raw = before.clone();
    raw.make_raw();
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
    write_all(ENTER)
}

fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // If the terminal is gone, there is nothing to restore.
        tcsetattr(io::stdin(), OptionalActions::Flush, &before).ok();
        write_all(LEAVE).ok();
    }
}

fn write_all(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Draws cells with escape sequences. Each frame is written at once.
pub(super) struct Ansi {
    out: Stdout,
    frame: String,
    has_colours: bool,
}

impl Ansi {
    pub(super) fn new(has_colours: bool) -> Ansi {
        Ansi { out: io::stdout(), frame: String::new(), has_colours }
    }

    fn style(&mut self, cell: &Cell) {
        self.frame.push_str("\x1b[0");
        let modifiers = [(Modifier::BOLD, ";1"), (Modifier::DIM, ";2"), (Modifier::REVERSED, ";7")];
        modifiers.iter().filter(|(is, _)| cell.modifier.contains(*is)).for_each(|(_, code)| self.frame.push_str(code));
        let colour = match cell.fg {
            Color::Red => ";31",
            Color::Green => ";32",
            Color::Yellow => ";33",
            Color::Cyan => ";36",
            _ => "",
        };
        if self.has_colours {
            self.frame.push_str(colour);
        }
        self.frame.push('m');
    }
}

impl Backend for Ansi {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> io::Result<()> {
        let mut last: Option<(u16, u16, &Cell)> = None;
        for (x, y, cell) in content {
            // Wide characters take more than one column, so the position after one is set explicitly.
            let is_next = last.is_some_and(|(column, line, before)| line == y && column + 1 == x && before.symbol().is_ascii());
            if !is_next {
                self.frame.push_str(&format!("\x1b[{};{}H", y + 1, x + 1));
            }
            let is_same = last.is_some_and(|(.., before)| before.fg == cell.fg && before.modifier == cell.modifier);
            if !is_same {
                self.style(cell);
            }
            self.frame.push_str(cell.symbol());
            last = Some((x, y, cell));
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, _: P) -> io::Result<()> {
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.frame.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        let size = tcgetwinsize(&self.out)?;
        Ok(Size::new(size.ws_col.max(20), size.ws_row.max(5)))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::new(0, 0) })
    }

    fn flush(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.frame);
        let mut out = self.out.lock();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}
