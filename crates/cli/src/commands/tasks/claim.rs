//! Manual work: take a task with everything it needs, renew the claim, release it.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use banksman_core::backlog::Section;
use banksman_core::resource::lock;
use banksman_core::task::{Outcome, State};
use banksman_core::{Epoch, HolderId, SectionId, Task, TaskId, Title};
use banksman_engine::{Edit, LockedBy, Taking, TaskOutcome, TaskRequest};
use banksman_runtime::{Client, TaskClaim, WaitOptions};
use banksman_store::{Key, Reader};
use clap::Args;

use super::refused::refused;
use super::view;
use crate::commands::recording::with_ended_runs;
use crate::commands::resources::{self, Dur};
use crate::commands::waiting_line::WaitingLine;
use crate::commands::{ExitResult, find};
use crate::context::{Actor, Context};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM};
use crate::signals::Signals;
use crate::views::{Time, tasks as views};

/// Take a task to work on it yourself.
///
/// Claims the task with everything that it needs: its lock, its exclusive section, its locks and semaphores. You get everything
/// or nothing; while you wait, you hold nothing. The claim expires after locking.task_timeout without a `tasks heartbeat`, and ends with
/// `tasks done`, `tasks fail` or `tasks release`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks take 'Fix the login'\n  banksman tasks take t-7k2m9q1a --holder ann --timeout 10m\n  banksman tasks take 'Release' --anyway --no-wait"
)]
pub(super) struct Take {
    /// The task
    task: String,
    /// Take it even if its dependencies are not completed
    #[arg(long)]
    anyway: bool,
    #[command(flatten)]
    terms: ClaimFlags,
}

/// Release a task that you have taken, without ending it.
///
/// The task is pending again, and everything that was claimed with it is released.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman tasks release 'Fix the login'\n  banksman tasks release t-7k2m9q1a --epoch 42")]
pub(super) struct Release {
    /// The task
    task: String,
    /// The epoch of the claim [default: your own claim]
    #[arg(long, value_name = "N")]
    epoch: Option<i64>,
    /// The holder of the claim [default: $BANKSMAN_HOLDER, or USER@TERMINAL]
    #[arg(long, value_name = "NAME")]
    holder: Option<HolderId>,
}

/// Who works on a task, and how long to wait for it.
#[derive(Debug, Args)]
pub(super) struct ClaimFlags {
    /// The holder of the claim [default: $BANKSMAN_HOLDER, or USER@TERMINAL; without a terminal a name is required to take it]
    #[arg(long, value_name = "NAME")]
    pub(super) holder: Option<HolderId>,
    /// Do not wait: exit 6 if something that the task needs is not free
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// Maximum time to wait, in total [default: locking.wait_timeout, 30m]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    timeout: Option<Dur>,
}

/// The result of taking a task.
pub(super) struct Taken {
    pub(super) task: Task,
    /// Whether the same holder had claimed it before.
    pub(super) is_old: bool,
}

impl ClaimFlags {
    /// Takes a task with everything it needs, and applies an edit in the same transaction if one is given.
    pub(super) fn take(
        &self,
        context: &Context,
        client: &Client,
        reader: &mut Reader,
        id: &TaskId,
        anyway: bool,
        edit: Option<&Edit>,
    ) -> Result<Taken, Failure> {
        let actor = claimant(self.holder.as_ref())?;
        let signals = Signals::install()?;
        let start = Instant::now();
        let limit = (!self.no_wait).then(|| self.timeout.map_or(client.config().wait_timeout, |timeout| timeout.0));
        loop {
            let rows = reader.view().load(&[Key::Task(id.clone()), Key::Sections].into())?;
            let Some(task) = rows.backlog.tasks.get(id) else { return Err(refused(id, &TaskOutcome::Unknown)) };
            let names = Names { title: &task.spec.title, sections: &rows.backlog.sections };
            let section = edit.and_then(|edit| edit.section.clone()).unwrap_or_else(|| task.spec.section.clone());
            let taking = Taking {
                holder: actor.holder.clone(),
                ancestors: actor.ancestors.clone(),
                section,
                needs: task.spec.needs.clone(),
                ttl: Dur(client.config().task_timeout).span(),
                anyway,
                edit: edit.cloned().map(Box::new),
                ticket: None,
                wait: None,
                seen: Default::default(),
            };
            // The remaining time: all retries of one command share one limit.
            let wait = limit.map(|limit| limit.saturating_sub(start.elapsed()));
            match Self::wait(context, client, id, taking, wait, &names, &signals)? {
                TaskOutcome::Stepped(Outcome::Taken, task) => return Ok(Taken { task: *task, is_old: false }),
                TaskOutcome::AlreadyYours(task) => return Ok(Taken { task: *task, is_old: true }),
                TaskOutcome::Changed => {}
                TaskOutcome::Locked(locked_by) if self.no_wait => {
                    return Err(locked(id, &locked_by).hint("omit --no-wait to wait for it"));
                }
                outcome => return Err(refused(id, &outcome)),
            }
        }
    }

    fn wait(
        context: &Context,
        client: &Client,
        id: &TaskId,
        taking: Taking,
        wait: Option<Duration>,
        names: &Names<'_>,
        signals: &Signals,
    ) -> Result<TaskOutcome, Failure> {
        let mut line = WaitingLine::new(context);
        let tick = line.tick();
        let claim = with_ended_runs(context, client, |ended_runs, no_runner| {
            let mut progress = |locked_by: &[LockedBy], elapsed: Duration| {
                let runs = no_runner.suffix();
                line.show(&waiting_line(names, locked_by, &runs, elapsed), runs);
            };
            let options = WaitOptions { wait, cancel: Some(signals.as_fd()), progress: None, tick, ended_runs: Some(ended_runs) };
            client.take_task(id.clone(), taking, &options, Some(&mut progress))
        });
        line.clear();
        match claim? {
            TaskClaim::Answered(outcome) => Ok(outcome),
            TaskClaim::Cancelled => Err(Failure::interrupted()),
            TaskClaim::TimedOut(locked_by) => Err(timed_out(id, names, &locked_by)),
        }
    }
}

impl Take {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let mut reader = client.reader()?;
        let id = find::task_id(&mut reader, &self.task)?;
        let taken = self.terms.take(context, &client, &mut reader, &id, self.anyway, None)?;
        let (view, human) = taken.view(&client)?;
        context.printer.result(&view, human)
    }
}

impl Taken {
    pub(super) fn outcome(&self) -> &'static str {
        if self.is_old { "already_yours" } else { "taken" }
    }

    /// `is already yours, taken 4 min ago`, if the same holder had claimed it before.
    pub(super) fn already_yours(&self) -> Option<String> {
        self.is_old.then(|| format!("is already yours, taken {}", format::ago(self.task.changed.wall)))
    }

    fn view(&self, client: &Client) -> Result<(views::Taken<'_>, String), Failure> {
        let Task { id, spec, changed, .. } = &self.task;
        let State::Manual { holder, epoch, .. } = &self.task.state else { return Err(refused(id, &TaskOutcome::NotClaimed)) };
        let ttl = format::span(Dur(client.config().task_timeout).span());
        let view =
            views::Taken { task: (&self.task).into(), holder, epoch: *epoch, since: Time(changed.wall), outcome: self.outcome() };
        let what = match self.already_yours() {
            Some(already_yours) => format!("{BOLD}{}{BOLD:#} {DIM}{id}{DIM:#} {already_yours}", spec.title),
            None => format!("took {BOLD}{}{BOLD:#} {DIM}{id}{DIM:#}", spec.title),
        };
        let human = format!(
            "{what}: holder {BOLD}{holder}{BOLD:#}, epoch {BOLD}{epoch}{BOLD:#}, for {ttl}\n\
             {DIM}end it with: banksman tasks done {id} --holder {} (or tasks fail, tasks release){DIM:#}",
            format::quoted(holder)
        );
        Ok((view, human))
    }
}

impl Release {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let id = find::task_id(&mut client.reader()?, &self.task)?;
        let request = TaskRequest::GiveBack { id: id.clone(), by: speaker(self.holder.as_ref())?, epoch: self.epoch.map(Epoch) };
        let task = match client.request(request)? {
            TaskOutcome::Stepped(Outcome::Returned, task) => task,
            TaskOutcome::Stepped(Outcome::NotPending(_), _) => return Err(refused(&id, &TaskOutcome::NotClaimed)),
            outcome => return Err(refused(&id, &outcome)),
        };
        let (title, status) = (&task.spec.title, view::coloured(task.status()));
        let view = views::Brief::from(&*task);
        context.printer.result(&view, format!("released {BOLD}{title}{BOLD:#} {DIM}{id}{DIM:#}: {status}"))
    }
}

/// Renews a claim with all its parts. Returns `None` for a task without a claim.
pub(super) fn heartbeat(
    context: &Context,
    client: &Client,
    id: &TaskId,
    given: Option<&HolderId>,
    epoch: Option<Epoch>,
) -> Result<Option<u8>, Failure> {
    let rows = client.reader()?.view().load(&[Key::Task(id.clone()), Key::Manual(id.clone())].into())?;
    let by = speaker(given)?;
    let is_claimed = matches!(rows.backlog.tasks.get(id).map(|task| &task.state), Some(State::Manual { .. }));
    let is_lost = by.as_ref().is_some_and(|by| rows.backlog.lost_claims.contains_key(&(id.clone(), by.clone())));
    if !is_claimed && !is_lost {
        return Ok(None);
    }
    match client.request(TaskRequest::Renew { id: id.clone(), by, epoch })? {
        TaskOutcome::Renewed(task) => {
            let State::Manual { epoch, until, .. } = &task.state else { return Err(refused(id, &TaskOutcome::NotClaimed)) };
            let rows = client.reader()?.view().load(&[Key::Lock(id.lock())].into())?;
            let at = rows.lease;
            let expires_at = match rows.coordination.locks.get(&id.lock()).map(|lock| &lock.state) {
                Some(lock::State::Held(grant)) => grant.expires().map(Time),
                Some(lock::State::Free) | None => None,
            };
            let lasts = until.map_or_else(String::new, |until| format!(", for {} more", format::span(until - at)));
            let view = views::Heartbeat { id, outcome: "seen", epoch: *epoch, expires_at };
            context.printer.print(&view, format!("{} {id} is still yours{lasts}", task.spec.title));
            Ok(Some(exit::OK))
        }
        outcome => Err(refused(id, &outcome)),
    }
}

/// The claimant: the given name, the inherited one, or the user on this terminal.
pub(super) fn claimant(given: Option<&HolderId>) -> Result<Actor, Failure> {
    match Actor::named(given, on_terminal)? {
        Some(actor) => Ok(actor),
        None => Err(Failure::usage("--holder is missing, and there is no terminal to identify the holder")
            .hint("set it with --holder NAME or BANKSMAN_HOLDER")),
    }
}

/// The holder that the call is made for, if it is known.
pub(crate) fn speaker(given: Option<&HolderId>) -> Result<Option<HolderId>, Failure> {
    Ok(Actor::named(given, on_terminal)?.map(|actor| actor.holder))
}

/// The user on the terminal of this command: `ann@pts/3`.
fn on_terminal() -> Option<HolderId> {
    let name = |fd: std::os::fd::BorrowedFd<'_>| rustix::termios::ttyname(fd, Vec::new()).ok();
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let tty = name(stdin.as_fd()).or_else(|| name(stdout.as_fd())).or_else(|| name(stderr.as_fd()))?;
    let tty = tty.to_string_lossy().trim_start_matches("/dev/").to_owned();
    HolderId::new(&format!("{}@{tty}", banksman_adapters::user::User::current().name)).ok()
}

/// The failure for a lock that another holder has.
pub(super) fn locked(task: &TaskId, locked_by: &LockedBy) -> Failure {
    let expires = locked_by.until.map(|until| format!("; the lock expires {}", format::away(until))).unwrap_or_default();
    let (lock, by) = (&locked_by.lock, format!("{}{expires}", held_by(locked_by)));
    let failure = match lock {
        _ if locked_by.is_reserved => {
            let message = format!("{task} needs {lock}, which is reserved for {}", format::holder(&locked_by.holder));
            Failure::new(exit::LOCKED, "RESERVED", message)
        }
        _ if lock.task().is_some() => Failure::new(exit::LOCKED, "TASK_LOCKED", format!("{task} is locked by {by}")),
        _ if lock.is_section() => {
            Failure::new(exit::LOCKED, "SECTION_LOCKED", format!("the section of {task} is locked by {by}"))
        }
        _ => Failure::new(exit::LOCKED, "NEED_LOCKED", format!("{task} needs {lock}, which is held by {by}")),
    };
    failure
        .detail("taskId", &task)
        .detail("lockedBy", &locked_by.holder)
        .detail("expiresAt", &locked_by.until.map(Time))
        .detail("lock", &locked_by.lock)
}

/// The failure after the timeout; nothing is held.
fn timed_out(task: &TaskId, names: &Names<'_>, locked_by: &[LockedBy]) -> Failure {
    let first = locked_by.first();
    let held = first.map_or_else(String::new, |locked_by| format!(": {}", names.describe(locked_by)));
    Failure::new(exit::LOCKED, "WAIT_TIMEOUT", format!("waited too long for {task}{held}"))
        .detail("taskId", task)
        .detail("lockedBy", &first.map(|locked_by| &locked_by.holder))
        .detail("expiresAt", &first.and_then(|locked_by| locked_by.until).map(Time))
        .detail("lock", &first.map(|locked_by| &locked_by.lock))
        .hint("nothing was acquired")
}

/// The names of the task and of the sections, for messages.
struct Names<'a> {
    title: &'a Title,
    sections: &'a BTreeMap<SectionId, Section>,
}

impl Names<'_> {
    /// `section Backend is held by run r-7k2m9q1a for 3 min`.
    fn describe(&self, locked_by: &LockedBy) -> String {
        let section = self.sections.values().find(|section| section.id.lock() == locked_by.lock);
        let what = match section {
            Some(section) => format!("section {}", section.name),
            None if locked_by.lock.task().is_some() => "the task".into(),
            None => locked_by.lock.to_string(),
        };
        let verb = if locked_by.is_reserved { "is reserved for" } else { "is held by" };
        format!("{what} {verb} {}", held_by(locked_by))
    }
}

/// `ann for 3 min`.
pub(super) fn held_by(locked_by: &LockedBy) -> String {
    let since = locked_by.since.map(|since| format!(" for {}", format::since(since))).unwrap_or_default();
    format!("{}{since}", format::holder(&locked_by.holder))
}

/// `waiting for Fix the login: section Backend is held by run r-7k2m9q1a for 3 min (3 s; Ctrl-C to cancel)`.
fn waiting_line(names: &Names<'_>, locked_by: &[LockedBy], runs: &str, elapsed: Duration) -> String {
    let said: Vec<String> = locked_by.iter().take(3).map(|locked_by| names.describe(locked_by)).collect();
    let why = if said.is_empty() { String::new() } else { format!(": {}", said.join(", ")) };
    let (title, waited) = (names.title, format::span(Dur(elapsed).span()));
    format!("waiting for {BOLD}{title}{BOLD:#}{why}{runs} {DIM}({waited}; Ctrl-C to cancel){DIM:#}")
}

/// The holder of a manual claim, as text.
pub(super) fn grant_words(task: &Task) -> String {
    match &task.state {
        State::Manual { holder, epoch, .. } => format!(" by {holder}, epoch {epoch}"),
        _ => String::new(),
    }
}

/// The failure for a circle of waits.
pub(super) fn deadlock(task: &TaskId, cycle: &[banksman_core::resource::deadlock::Link]) -> Failure {
    resources::circle(&format!("waiting for {task}"), cycle).detail("taskId", task)
}
