//! The interactive screen.

mod ansi;
mod changes;
mod frame;
mod keys;

use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use banksman_core::HolderId;
use banksman_store::EventFilter;
use clap::Args;
use ratatui::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGWINCH;

use super::recording::record_ended;
use super::{ExitResult, tasks};
use crate::board::{Board, Live};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::RED;
use crate::signals::Signals;
use crate::terminal;
use ansi::{Ansi, RawScreen};
use changes::Changes;
use frame::Subject;
use keys::Key;

/// The shortest interval between two reads of the board, and the interval at which times are redrawn.
const READ_EVERY: Duration = Duration::from_millis(250);
const TICK: Duration = Duration::from_secs(1);

/// The interval between two reads is at least this many times the duration of one, so that slow reads are rarer.
const REST: u32 = 40;

/// The number of log lines shown.
const LOG_LINES: &str = "500";

/// Show the project on an interactive screen.
///
/// Lists running tasks, open decisions, landings, blocked tasks and tasks that have just ended. Keys act on the selected line; ? lists
/// them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman top\n  banksman run --top")]
pub(crate) struct TopCommand {}

/// A text shown in place of the list.
pub(super) struct Pane {
    /// The subject whose log is shown, if it is a log.
    log_of: Option<Subject>,
    text: Vec<String>,
    /// The first visible line; `None` follows the end.
    from: Option<usize>,
}

pub(super) struct Top {
    board: Board,
    changes: Changes,
    pane: Option<Pane>,
    selected: usize,
    /// The subjects of the list as last drawn.
    subjects: Vec<Subject>,
    filter: Option<String>,
    /// A filter that the user is typing.
    typing: Option<String>,
    /// The subject to cancel if the user confirms.
    confirm: Option<Subject>,
    message: Option<String>,
    /// Whether this screen has started a runner.
    is_running: bool,
    /// The holder of tasks that are taken here.
    holder: Option<HolderId>,
}

/// An action of a key outside of the screen's own state.
enum KeyAction {
    Leave,
    /// Runs a command and shows the first line of its output.
    Do(Vec<String>),
    /// Runs a command and shows its output.
    Show(Vec<String>),
    /// Shows a log and follows it.
    Log(Subject),
    /// Runs an interactive command, after another command that checks whether it can run.
    Visit {
        check: Option<Vec<String>>,
        args: Vec<String>,
    },
    Say(&'static str),
}

impl TopCommand {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        show(context, None)
    }
}

/// Shows the board until the user leaves, and then stops a runner that was started with it.
pub(crate) fn show(context: &Context, runner: Option<Command>) -> ExitResult {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::usage("top needs a terminal")
            .hint("banksman status prints the same once; banksman events --follow prints changes"));
    }
    let system = |what: &'static str| move |error| Failure::system(what, error);
    let signals = Signals::install()?;
    let (resized, notify) = UnixStream::pair().map_err(system("create a pipe"))?;
    resized.set_nonblocking(true).map_err(system("create a pipe"))?;
    signal_hook::low_level::pipe::register(SIGWINCH, notify).map_err(system("handle signals"))?;
    let project = context.project()?;
    let mut reader = project.reader()?;
    record_ended(context, &project, &mut reader)?;
    let mut follower = project.follow(reader.view().last_event()?)?;
    let runner = runner.map(|mut command| command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn());
    let mut runner = runner.transpose().map_err(system("start a runner"))?.map(OwnRunner);
    let mut top = Top {
        board: Board::read(&mut reader, &project, None)?,
        changes: Changes::default(),
        pane: None,
        selected: 0,
        subjects: Vec::new(),
        filter: None,
        typing: None,
        confirm: None,
        message: None,
        is_running: runner.is_some(),
        holder: tasks::speaker(None)?,
    };
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let screen = RawScreen::enter().map_err(system("set up the terminal"))?;
    let mut terminal = Terminal::new(Ansi::new(has_colours)).map_err(system("set up the terminal"))?;
    let (mut last_read, mut took, mut is_stale) = (Instant::now(), Duration::ZERO, false);
    loop {
        let worktree = |live: &Live| live.worktree.clone().map(|(path, base)| (live.run.run.task.clone(), path, base));
        top.changes.update(&project, top.board.live.iter().filter_map(worktree));
        terminal.draw(|frame| frame::draw(&mut top, frame)).map_err(system("draw"))?;
        let stdin = std::io::stdin();
        let others = [stdin.as_fd(), resized.as_fd()];
        // Changes are read a few times per second, however often they come.
        let every = (REST * took).clamp(READ_EVERY, 2 * TICK);
        let rest = every.saturating_sub(last_read.elapsed());
        let goes_on = match rest.is_zero() && !is_stale {
            true => follower.wait_for(signals.as_fd(), &others, TICK),
            false => follower.rest(signals.as_fd(), &others, rest),
        };
        if !goes_on {
            break;
        }
        let mut buffer = [0; 256];
        while (&resized).read(&mut buffer).is_ok_and(|read| read > 0) {}
        if last_read.elapsed() >= every {
            let begun = Instant::now();
            is_stale |= !follower.next(&EventFilter::default())?.is_empty();
            if is_stale {
                top.board = Board::read(&mut reader, &project, Some(&top.board))?;
                took = begun.elapsed();
            }
            top.follow_logs(context, is_stale)?;
            (last_read, is_stale) = (Instant::now(), false);
        }
        let actions = read_keys(&mut top)?;
        let mut is_left = false;
        for action in actions {
            match action {
                KeyAction::Leave => is_left = true,
                KeyAction::Do(args) => {
                    let said = text_of(context, &args)?;
                    top.message = Some(said.lines().next().unwrap_or_default().to_owned());
                    is_stale = true;
                }
                KeyAction::Say(what) => top.message = Some(what.to_owned()),
                KeyAction::Show(args) => {
                    let text = lines_of(context, &args)?;
                    top.pane = Some(Pane { log_of: None, text, from: Some(0) });
                }
                KeyAction::Log(subject) => {
                    let text = subject.log(context)?;
                    top.pane = Some(Pane { log_of: Some(subject), text, from: None });
                }
                KeyAction::Visit { check, args } => {
                    if let Some(refusal) = check.map(|check| refusal(context, &check)).transpose()?.flatten() {
                        top.message = Some(refusal);
                        continue;
                    }
                    let mut command = own(context, &args)?;
                    let done = screen.with_terminal_restored(|| command.status()).map_err(system("set up the terminal"))?;
                    terminal.clear().map_err(system("draw"))?;
                    top.message = done.err().map(|error| error.to_string());
                    is_stale = true;
                }
            }
        }
        if is_left {
            break;
        }
    }
    drop(screen);
    let left = top.board.live.len();
    if let Some(runner) = &mut runner {
        runner.end();
        let sessions = if left == 1 { "1 session continues".into() } else { format!("{left} sessions continue") };
        context.printer.note(&if left == 0 {
            "the runner has left".to_owned()
        } else {
            format!("the runner has left; {sessions}")
        });
    }
    Ok(exit::OK)
}

struct OwnRunner(Child);

impl OwnRunner {
    /// Asks the runner to leave, and waits until it has.
    fn end(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).ok();
        }
        self.0.wait().ok();
    }
}

impl Top {
    /// Updates the log on the screen if it has grown.
    fn follow_logs(&mut self, context: &Context, is_changed: bool) -> Result<(), Failure> {
        let shown = self.pane.as_ref().and_then(|pane| pane.log_of.clone());
        let mut is_longer = is_changed;
        for live in &mut self.board.live {
            is_longer |= live.follow_log() && shown.as_ref().is_some_and(|shown| shown.task.as_ref() == Some(&live.run.run.task));
        }
        if let (Some(pane), Some(shown), true) = (&mut self.pane, shown, is_longer) {
            pane.text = shown.log(context)?;
        }
        Ok(())
    }

    fn subject(&self) -> Option<&Subject> {
        self.subjects.get(self.selected)
    }

    /// Handles a key.
    fn press(&mut self, key: Key) -> Option<KeyAction> {
        self.message = None;
        if let Some(subject) = self.confirm.take() {
            let task = subject.task.filter(|_| key == Key::Letter('y'))?;
            return Some(KeyAction::Do(arguments(&["tasks", "cancel", "--no-wait", task.as_str()])));
        }
        if let Some(typed) = &mut self.typing {
            match key {
                Key::Letter(letter) => typed.push(letter),
                Key::Backspace => drop(typed.pop()),
                Key::Enter => self.filter = self.typing.take().filter(|text| !text.is_empty()),
                Key::Escape | Key::Interrupt => self.typing = None,
                _ => {}
            }
            return None;
        }
        if self.pane.is_some() {
            return self.press_in_pane(key);
        }
        let task = || self.subject().and_then(|subject| subject.task.as_ref()).map(|task| task.to_string());
        match key {
            Key::Letter('q') | Key::Interrupt => return Some(KeyAction::Leave),
            Key::Up | Key::Letter('k') => self.selected = self.selected.saturating_sub(1),
            Key::Down | Key::Letter('j') => self.selected += 1,
            Key::PageUp => self.selected = self.selected.saturating_sub(10),
            Key::PageDown => self.selected += 10,
            Key::Home => self.selected = 0,
            Key::End => self.selected = usize::MAX,
            Key::Escape => self.filter = None,
            Key::Enter | Key::Letter('l') => {
                return self.subject().filter(|subject| subject.task.is_some()).cloned().map(KeyAction::Log);
            }
            Key::Letter('w') => return Some(KeyAction::Show(arguments(&["why", &task()?]))),
            Key::Letter('o') => {
                let check = Some(arguments(&["workspaces", "show", &task()?]));
                return Some(KeyAction::Visit { check, args: arguments(&["tasks", "open", &task()?]) });
            }
            Key::Letter('d') if self.board.decisions.is_empty() => return Some(KeyAction::Say("no open decisions")),
            Key::Letter('d') => return Some(KeyAction::Visit { check: None, args: arguments(&["decisions", "review"]) }),
            Key::Letter('t') => {
                // The command has no terminal that would identify its holder.
                let mut args = arguments(&["tasks", "take", "--no-wait", &task()?]);
                args.extend(self.holder.iter().flat_map(|holder| arguments(&["--holder", holder.as_str()])));
                return Some(KeyAction::Do(args));
            }
            Key::Letter('r') => return Some(KeyAction::Do(arguments(&["tasks", "retry", &task()?]))),
            Key::Letter('n') => return Some(KeyAction::Do(arguments(&["sessions", "nudge", &task()?]))),
            Key::Letter('c') => self.confirm = self.subject().filter(|subject| subject.task.is_some()).cloned(),
            Key::Letter('/') => self.typing = Some(String::new()),
            Key::Letter('?') => {
                self.pane = Some(Pane { log_of: None, text: frame::help().lines().map(str::to_owned).collect(), from: Some(0) });
            }
            Key::Letter(_) | Key::Backspace => {}
        }
        None
    }

    fn press_in_pane(&mut self, key: Key) -> Option<KeyAction> {
        let pane = self.pane.as_mut()?;
        let from = pane.from.unwrap_or(usize::MAX);
        match key {
            Key::Letter('q') | Key::Interrupt => return Some(KeyAction::Leave),
            Key::Escape | Key::Enter | Key::Backspace => self.pane = None,
            Key::Up | Key::Letter('k') => pane.from = Some(from.saturating_sub(1)),
            Key::Down | Key::Letter('j') => pane.from = Some(from.saturating_add(1)),
            Key::PageUp => pane.from = Some(from.saturating_sub(20)),
            Key::PageDown => pane.from = Some(from.saturating_add(20)),
            Key::Home => pane.from = Some(0),
            Key::End => pane.from = None,
            Key::Letter(_) => {}
        }
        None
    }
}

impl Pane {
    /// The visible lines. Text is wrapped; the lines of a log are truncated.
    pub(super) fn lines(&mut self, width: usize, height: usize) -> Vec<String> {
        let lines = self.text.iter().map(|line| terminal::one_line(line));
        let lines: Vec<String> = match self.log_of {
            Some(_) => lines.collect(),
            None => {
                lines.flat_map(|line| terminal::wrap(&line, width).split('\n').map(str::to_owned).collect::<Vec<_>>()).collect()
            }
        };
        let end = lines.len().saturating_sub(height);
        // The last page is the end.
        self.from = self.from.map(|from| from.min(end));
        lines.iter().skip(self.from.unwrap_or(end)).take(height).map(|line| terminal::cut(line, width)).collect()
    }
}

fn arguments(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

/// The actions of the keys read_keys since the last call.
fn read_keys(top: &mut Top) -> Result<Vec<KeyAction>, Failure> {
    let stdin = std::io::stdin();
    let mut fds = [rustix::event::PollFd::new(&stdin, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut fds, Some(&now)).unwrap_or(0) == 0 {
        return Ok(Vec::new());
    }
    let mut buffer = [0_u8; 256];
    match rustix::io::read(&stdin, &mut buffer[..]) {
        // The terminal is gone.
        Ok(0) => Ok(vec![KeyAction::Leave]),
        Ok(read) => Ok(keys::parse(&buffer[..read]).into_iter().filter_map(|key| top.press(key)).collect()),
        Err(error) => Err(Failure::system("read a key", std::io::Error::from(error))),
    }
}

/// A command line of this program for the same project.
pub(crate) fn own(context: &Context, args: &[String]) -> Result<Command, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::system("find this program", error))?;
    let mut command = Command::new(program);
    command.args(args);
    if let Some(directory) = &context.directory {
        command.arg("-C").arg(directory);
    }
    if let Some(store) = &context.store {
        command.arg("--store").arg(store);
    }
    Ok(command)
}

/// The error of a command of this program; `None` if it succeeds.
fn refusal(context: &Context, args: &[String]) -> Result<Option<String>, Failure> {
    let done = own(context, args)?.env("NO_COLOR", "1").stdin(Stdio::null()).output();
    let done = done.map_err(|error| Failure::system("start this program", error))?;
    let said = String::from_utf8_lossy(&done.stderr);
    Ok((!done.status.success()).then(|| format!("{RED}{}{RED:#}", said.lines().next().unwrap_or_default())))
}

fn lines_of(context: &Context, args: &[String]) -> Result<Vec<String>, Failure> {
    Ok(text_of(context, args)?.lines().map(str::to_owned).collect())
}

impl Subject {
    /// The end of the log of the task.
    fn log(&self, context: &Context) -> Result<Vec<String>, Failure> {
        let Some(task) = &self.task else { return Ok(Vec::new()) };
        lines_of(context, &arguments(&["tasks", "logs", "--tail", LOG_LINES, task.as_str()]))
    }
}

/// The output of a command of this program.
fn text_of(context: &Context, args: &[String]) -> Result<String, Failure> {
    let done = own(context, args)?.env("NO_COLOR", "1").stdin(Stdio::null()).output();
    let done = done.map_err(|error| Failure::system("start this program", error))?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    Ok(if done.status.success() { said } else { format!("{RED}{}{RED:#}", said.trim_end()) })
}
